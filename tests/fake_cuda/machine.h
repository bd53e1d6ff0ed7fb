#pragma once

#include <cuda_runtime.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "tests/fake_cuda/fake_cuda.h"

/// The fake's devices: memory, streams and who must wait for whom. All of it is under one lock;
/// functions say when they want it held.
namespace fake_cuda {

/// By stream: how many of its operations happen before.
using Clock = std::vector<std::uint64_t>;
void join(Clock& clock, const Clock& other);

/// An operation that the streams of several ranks do together.
struct Collective {
  int ranks = 0;
  int arrived = 0;
  bool done = false;
  bool aborted = false;
  std::function<void()> work;  // of all ranks, once
};

struct Operation {
  enum class Kind { Work, Record, Wait, Collective } kind = Kind::Work;
  std::string what;
  std::function<void()> work = {};
  Event* event = nullptr;
  std::uint64_t generation = 0;  // of the event
  std::shared_ptr<Collective> collective = {};
};

struct Stream;

/// What streams were given while they were captured, in that order, which is one of those that
/// their events allow. What these forget is seen by clocks, while it is captured.
struct Graph {
  std::vector<Stream*> streams;
  std::vector<std::function<cudaError_t(Stream& on)>> nodes;
};
struct GraphHandle {
  std::shared_ptr<Graph> graph;
};
struct GraphExec {
  std::shared_ptr<const Graph> graph;
};

struct Stream {
  int id = 0;
  int device = 0;
  Clock clock;  // of all that was put there
  std::deque<Operation> queue;
  bool at_collective = false;           // its head has arrived
  bool asked = false;                   // somebody tries to bring it further
  std::shared_ptr<Graph> capture = {};  // null: what it is given will run
};

struct Event {
  std::uint64_t recorded = 0;  // how often
  std::uint64_t done = 0;
  Clock clock;
  std::shared_ptr<Graph> capture;  // that it was last recorded in
};

std::mutex& lock();
/// Keeps the first one, and lets every later call fail.
void fault(const std::string& text);
/// With the lock.
bool has_fault();
/// For schedules.
std::uint64_t next_random();

/// With the lock: the operation comes at the end of the stream. What it touches must be ordered
/// with all that touched the same bytes.
cudaError_t put(Stream& stream, Operation operation, const std::vector<Access>& accesses);
/// With the lock: the same for a stream that is captured; `node` puts the operation elsewhere.
cudaError_t note(Stream& stream, const std::string& what, const std::vector<Access>& accesses,
                 std::function<cudaError_t(Stream& on)> node);

/// The device of this host thread.
int current_device();

}  // namespace fake_cuda
