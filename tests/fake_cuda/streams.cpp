// Streams, events and the order in which their operations run.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <utility>

#include "tests/fake_cuda/machine.h"
#include "tests/fake_cuda/memory.h"

namespace fake_cuda {
namespace {

using Time = std::chrono::steady_clock::time_point;

std::string environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

Schedule schedule_of(const std::string& name) {
  if (name == "eager") return Schedule::Eager;
  return name == "random" ? Schedule::Random : Schedule::Lazy;
}

/// All that the fake has, under one lock.
struct Machine {
  Machine() {
    memory.set_devices(std::stoi(environment("FAKE_CUDA_DEVICES", "8")),
                       std::stoull(environment("FAKE_CUDA_BYTES", "268435456")));
    schedule = schedule_of(environment("FAKE_CUDA_SCHEDULE", "lazy"));
    seed(std::stoull(environment("FAKE_CUDA_SEED", "1")));
  }
  void seed(std::uint64_t number) { random = number * 0x9e3779b97f4a7c15ULL | 1U; }

  std::mutex mutex;
  std::condition_variable changed;
  Schedule schedule = Schedule::Lazy;
  std::uint64_t random = 1;
  double patience_s = 30;
  Time progress = std::chrono::steady_clock::now();
  Memory memory;
  std::vector<Stream*> streams;
  std::vector<std::uint64_t> epochs;  // by stream id: of its last operation
  std::vector<int> free_ids;
  std::string fault;
};
Machine& machine() {
  static Machine one;
  return one;
}

thread_local int device = 0;
thread_local Clock host;  // what this host thread knows to have happened

cudaError_t result() { return machine().fault.empty() ? cudaSuccess : cudaErrorAssert; }

void note_progress() {
  machine().progress = std::chrono::steady_clock::now();
  machine().changed.notify_all();
}

/// The stream that will record the event, if that is still ahead.
Stream* recorder_of(const Event& event, std::uint64_t generation) {
  for (Stream* stream : machine().streams)
    for (const Operation& operation : stream->queue)
      if (operation.kind == Operation::Kind::Record && operation.event == &event &&
          operation.generation <= generation)
        return stream;
  return nullptr;
}

bool is_ready(Stream& stream) {
  if (stream.queue.empty()) return false;
  const Operation& head = stream.queue.front();
  if (head.kind == Operation::Kind::Wait) return head.event->done >= head.generation;
  if (head.kind != Operation::Kind::Collective) return true;
  if (!stream.at_collective) ++head.collective->arrived;
  stream.at_collective = true;
  return head.collective->aborted || head.collective->arrived == head.collective->ranks;
}

/// Runs the stream's head, which is ready.
void run_head(Stream& stream) {
  const Operation head = std::move(stream.queue.front());
  stream.queue.pop_front();
  switch (head.kind) {
    case Operation::Kind::Work: head.work(); break;
    case Operation::Kind::Record:
      head.event->done = std::max(head.event->done, head.generation);
      break;
    case Operation::Kind::Wait: break;
    case Operation::Kind::Collective:
      stream.at_collective = false;
      if (head.collective->done || head.collective->aborted) break;
      head.collective->done = true;
      head.collective->work();
      break;
  }
  note_progress();
}

bool run_any() {
  std::vector<Stream*> ready;
  for (Stream* stream : machine().streams)
    if (is_ready(*stream)) ready.push_back(stream);
  if (ready.empty()) return false;
  run_head(*ready[next_random() % ready.size()]);
  return true;
}

bool run_for(Stream& stream);

/// Brings another rank's stream towards the collective.
bool run_towards(const Stream& waiting, const std::shared_ptr<Collective>& collective) {
  for (Stream* other : machine().streams) {
    const auto same = [&](const Operation& one) { return one.collective == collective; };
    if (other == &waiting || other->queue.empty()) continue;
    if (std::none_of(other->queue.begin(), other->queue.end(), same)) continue;
    if (!same(other->queue.front()) ? run_for(*other) : is_ready(*other)) return true;
  }
  return false;
}

/// Runs one operation that the stream's head needs, or the head; false: none of them can run.
bool run_for(Stream& stream) {
  if (stream.queue.empty()) return false;
  if (is_ready(stream)) {
    run_head(stream);
    return true;
  }
  if (std::exchange(stream.asked, true)) return false;  // it needs itself
  const Operation& head = stream.queue.front();
  bool ran = false;
  if (head.kind == Operation::Kind::Wait) {
    Stream* recorder = recorder_of(*head.event, head.generation);
    ran = recorder != nullptr && run_for(*recorder);
  } else {
    ran = run_towards(stream, head.collective);
  }
  stream.asked = false;
  return ran;
}

/// What every stream with work waits for.
std::string heads() {
  std::string text;
  for (const Stream* stream : machine().streams)
    if (!stream->queue.empty())
      text += "; stream " + std::to_string(stream->id) + " of device " +
              std::to_string(stream->device) + " waits in [" + stream->queue.front().what + "]";
  return text;
}

void expect_progress() {
  const std::chrono::duration<double> idle = std::chrono::steady_clock::now() - machine().progress;
  if (idle.count() > machine().patience_s)
    machine().fault = machine().fault.empty() ? "deadlock" + heads() : machine().fault;
}

void run_after_enqueue() {
  if (machine().schedule == Schedule::Eager)
    while (run_any())
      continue;
  if (machine().schedule == Schedule::Random)
    for (std::uint64_t count = next_random() % 3; count > 0 && run_any(); --count)
      continue;
}

}  // namespace

void join(Clock& clock, const Clock& other) {
  if (clock.size() < other.size()) clock.resize(other.size());
  for (std::size_t i = 0; i < other.size(); ++i)
    clock[i] = std::max(clock[i], other[i]);
}

std::mutex& lock() { return machine().mutex; }
bool has_fault() { return !machine().fault.empty(); }
void fault(const std::string& text) {
  if (machine().fault.empty()) machine().fault = text;
}
int current_device() { return device; }

std::uint64_t next_random() {
  std::uint64_t& x = machine().random;
  x ^= x << 13;
  x ^= x >> 7;
  return x ^= x << 17;
}

/// An operation comes after all that the stream was given before.
static void tick(Stream& stream, const std::string& what, const std::vector<Access>& accesses) {
  if (stream.device != device) return fault("[" + what + "] is put on a stream of another device");
  const auto id = static_cast<std::size_t>(stream.id);
  join(stream.clock, host);
  stream.clock.resize(std::max(stream.clock.size(), id + 1));
  stream.clock[id] = ++machine().epochs[id];
  for (const Access& access : accesses)
    if (const std::string wrong = machine().memory.touch(stream, access, what); !wrong.empty())
      fault(wrong);
}

cudaError_t note(Stream& stream, const std::string& what, const std::vector<Access>& accesses,
                 std::function<cudaError_t(Stream& on)> node) {
  if (has_fault()) return cudaErrorAssert;
  tick(stream, what, accesses);
  stream.capture->nodes.push_back(std::move(node));
  return result();
}

cudaError_t put(Stream& stream, Operation operation, const std::vector<Access>& accesses) {
  if (stream.capture)
    return note(stream, operation.what, accesses,
                [operation, accesses](Stream& on) { return put(on, operation, accesses); });
  if (has_fault()) return cudaErrorAssert;
  tick(stream, operation.what, accesses);
  if (has_fault()) return cudaErrorAssert;
  stream.queue.push_back(std::move(operation));
  note_progress();
  run_after_enqueue();
  return result();
}

cudaError_t enqueue(cudaStream_t stream, const char* what, const std::vector<Access>& accesses,
                    std::function<void()> work) {
  const std::lock_guard guard(lock());
  if (stream == nullptr) {
    fault("the default stream waits for all others: use one of your own");
    return cudaErrorAssert;
  }
  return put(*stream, {.what = what, .work = std::move(work)}, accesses);
}

void set_schedule(Schedule schedule, std::uint64_t seed) {
  const std::lock_guard guard(lock());
  machine().schedule = schedule;
  machine().seed(seed);
}
void set_devices(int devices, std::size_t bytes) {
  const std::lock_guard guard(lock());
  machine().memory.set_devices(devices, bytes);
}
void set_patience(double seconds) {
  const std::lock_guard guard(lock());
  machine().patience_s = seconds;
}
std::string take_fault() {
  const std::lock_guard guard(lock());
  for (Stream* stream : machine().streams)
    stream->queue.clear();
  return std::exchange(machine().fault, {});
}

}  // namespace fake_cuda

using namespace fake_cuda;  // NOLINT(google-build-using-namespace)

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  const std::lock_guard guard(lock());
  *count = machine().memory.devices();
  return *count > 0 ? result() : cudaErrorNoDevice;
}
cudaError_t cudaSetDevice(int index) {
  const std::lock_guard guard(lock());
  if (index < 0 || index >= machine().memory.devices()) return cudaErrorInvalidDevice;
  device = index;
  return result();
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const std::lock_guard guard(lock());
  *total = machine().memory.capacity();
  *free = *total - machine().memory.used(device);
  return result();
}

static cudaError_t allocate(void** memory, std::size_t bytes, int where) {
  const std::lock_guard guard(lock());
  *memory = machine().memory.allocate(where, bytes);
  return *memory == nullptr ? cudaErrorMemoryAllocation : result();
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes) { return allocate(memory, bytes, device); }
/// The host reaches all memory of the fake.
cudaError_t cudaMallocManaged(void** memory, std::size_t bytes) {
  return cudaMalloc(memory, bytes);
}
cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
  return allocate(memory, bytes, Memory::kHost);
}
cudaError_t cudaFree(void* memory) {
  const std::lock_guard guard(lock());
  // As CUDA does, it waits for the device; after a fault nothing will run any more.
  for (Stream* stream : machine().streams)
    while (!has_fault() && stream->device == device && run_for(*stream))
      continue;
  return memory == nullptr || machine().memory.free(memory) ? cudaSuccess : cudaErrorInvalidValue;
}
cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  const std::lock_guard guard(lock());
  if (flags != cudaStreamNonBlocking) fault("a stream that waits for the default stream");
  Machine& all = machine();
  int id = static_cast<int>(all.epochs.size());
  if (all.free_ids.empty()) {
    all.epochs.push_back(0);
  } else {
    id = all.free_ids.back();
    all.free_ids.pop_back();
  }
  *stream = new Stream{.id = id, .device = device, .clock = {}, .queue = {}};
  all.streams.push_back(*stream);
  return result();
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard guard(lock());
  while (!has_fault() && run_for(*stream))
    continue;
  machine().free_ids.push_back(stream->id);
  std::erase(machine().streams, stream);
  delete stream;
  return result();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new Event;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard guard(lock());
  for (Stream* stream : machine().streams)
    std::erase_if(stream->queue, [&](const Operation& one) { return one.event == event; });
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard guard(lock());
  join(stream->clock, host);
  event->clock = stream->clock;
  event->capture = stream->capture;
  if (stream->capture) return result();
  Operation record{.kind = Operation::Kind::Record, .what = "event record"};
  record.event = event;
  record.generation = ++event->recorded;
  return put(*stream, std::move(record), {});
}
/// A stream that waits for an event of a capture becomes a part of that.
static cudaError_t follow(Stream& stream, const Event& event) {
  if (!stream.capture) event.capture->streams.push_back(&stream);
  stream.capture = event.capture;
  join(stream.clock, event.clock);
  return result();
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::lock_guard guard(lock());
  if (stream->capture && stream->capture != event->capture)
    fault("a stream that is captured waits for an event of outside");
  if (event->capture) return follow(*stream, *event);
  if (event->recorded == 0) return result();
  join(stream->clock, event->clock);
  Operation wait{.kind = Operation::Kind::Wait, .what = "event wait"};
  wait.event = event;
  wait.generation = event->recorded;
  return put(*stream, std::move(wait), {});
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard guard(lock());
  if (event->capture) fault("an event of a capture is asked for");
  if (has_fault()) return cudaErrorAssert;
  if (event->done >= event->recorded) {
    join(host, event->clock);
    return cudaSuccess;
  }
  Stream* recorder = recorder_of(*event, event->recorded);
  const bool ran =
      machine().schedule == Schedule::Lazy ? recorder && run_for(*recorder) : run_any();
  if (!ran && !run_any()) expect_progress();
  return has_fault() ? cudaErrorAssert : cudaErrorNotReady;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  const auto* source = static_cast<const std::byte*>(from);
  auto* target = static_cast<std::byte*>(to);
  return enqueue(stream, "copy", {{{source, bytes}, false}, {{target, bytes}, true}},
                 [=] { std::memmove(target, source, bytes); });
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  return enqueue(stream, "memset", {{{static_cast<std::byte*>(memory), bytes}, true}},
                 [=] { std::memset(memory, value, bytes); });
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return enqueue(stream, "host function", {}, [=] { function(data); });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const std::lock_guard guard(lock());
  if (stream->capture) fault("a stream is captured twice");
  stream->capture = std::make_shared<Graph>();
  stream->capture->streams.push_back(stream);
  return result();
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::lock_guard guard(lock());
  *graph = new GraphHandle{stream->capture};
  for (Stream* other : (*graph)->graph->streams) {
    const auto id = static_cast<std::size_t>(other->id);
    if (other != stream && id < other->clock.size() &&
        (stream->clock.size() <= id || stream->clock[id] < other->clock[id]))
      fault("a graph ends before all of its streams are joined");
    other->capture = nullptr;
  }
  return result();
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new GraphExec{graph->graph};
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  const std::lock_guard guard(lock());
  delete exec;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  const std::lock_guard guard(lock());
  for (const auto& node : exec->graph->nodes)
    if (const cudaError_t status = node(*stream); status != cudaSuccess) return status;
  return result();
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorAssert: {
      const std::lock_guard guard(lock());
      static thread_local std::string text;
      text = machine().fault;
      return text.c_str();
    }
    case cudaErrorInvalidValue: break;
  }
  return "invalid argument";
}
}
