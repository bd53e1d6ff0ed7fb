#include "runtime/mpi/mpi_fabric.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <optional>
#include <utility>
#include <vector>

#include "plans/error.h"

namespace shardplan::mpi {
namespace {

/// Of one message; MPI counts in int.
constexpr std::size_t kMostBytes = std::size_t{1} << 30;

/// A look at MPI's requests costs about 0.2 us, a sleep at least 50 us more than it asks for
/// (Linux's timer slack, prctl(2)): whoever is awaited for less is not worth one.
constexpr auto kAwake = std::chrono::microseconds(20);
constexpr auto kLongestSleep = std::chrono::microseconds(1000);
/// Of the time waited so far, what one sleep may add to it.
constexpr int kSleepShare = 8;

void expect(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(result, text.data(), &length);
  throw SystemError(fmt::format("{}: {}", call, text.data()));
}

}  // namespace

class MpiFabric::MpiLane final : public Lane {
 public:
  MpiLane(MpiFabric& fabric, int tag)
      : fabric_(fabric), tag_(tag), sent_(fabric.size_), received_(fabric.size_) {}

  Moved send(std::int64_t peer, std::span<const std::byte> bytes) override {
    return move(sent_[peer], bytes.size(), [&](int count, MPI_Request* request) {
      return MPI_Isend(bytes.data(), count, MPI_BYTE, static_cast<int>(peer), tag_, MPI_COMM_WORLD,
                       request);
    });
  }

  Moved receive(std::int64_t peer, std::span<std::byte> bytes) override {
    return move(received_[peer], bytes.size(), [&](int count, MPI_Request* request) {
      return MPI_Irecv(bytes.data(), count, MPI_BYTE, static_cast<int>(peer), tag_, MPI_COMM_WORLD,
                       request);
    });
  }

  /// A request of MPI has no descriptor to sleep on. Its own waiting would spin, on a core that
  /// ranks and their streams share; so this looks again after sleeps that grow with the time
  /// waited.
  bool wait(std::span<const Pending>, int wake, Deadline deadline) override {
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) return false;
    if (!waits_since_) waits_since_ = now;
    const auto waited = now - *waits_since_;
    if (waited < kAwake) return true;
    const auto sleep = std::min<std::chrono::nanoseconds>(waited / kSleepShare, kLongestSleep);
    const timespec limit{.tv_sec = 0, .tv_nsec = sleep.count()};
    pollfd end{wake, POLLIN, 0};
    ppoll(&end, 1, &limit, nullptr);
    return true;
  }

 private:
  /// One way to or from a peer: a message at a time.
  struct Message {
    MPI_Request request = MPI_REQUEST_NULL;
    std::size_t bytes = 0;  // of the one under way; 0: none is
  };

  template <typename Start>
  Moved move(Message& message, std::size_t bytes, Start start) {
    const std::lock_guard lock(fabric_.mutex_);
    if (fabric_.abandoned_) return {};
    int result = MPI_SUCCESS;
    if (message.bytes == 0) {
      message.bytes = std::min(bytes, kMostBytes);
      result = start(static_cast<int>(message.bytes), &message.request);
    }
    int is_over = 0;
    if (result == MPI_SUCCESS) result = MPI_Test(&message.request, &is_over, MPI_STATUS_IGNORE);
    if (result != MPI_SUCCESS) return {.closed = true};
    if (is_over == 0) return {};
    waits_since_.reset();
    return {.bytes = std::exchange(message.bytes, 0)};
  }

  MpiFabric& fabric_;
  const int tag_;
  std::vector<Message> sent_;      // by rank
  std::vector<Message> received_;  // by rank
  std::optional<std::chrono::steady_clock::time_point> waits_since_;
};

MpiFabric::MpiFabric(const ProcessPlace& place) : size_(place.size) {
  int threads = MPI_THREAD_SINGLE;
  expect(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &threads), "MPI_Init_thread");
  expect(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  int rank = 0;
  int size = 0;
  expect(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  expect(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  if (rank != place.rank || size != place.size)
    throw SystemError(fmt::format("MPI has this process as rank {} of {}, {} as rank {} of {}",
                                  rank, size, place.launcher, place.rank, place.size));
  if (threads < MPI_THREAD_SERIALIZED)
    throw SystemError("this MPI lets one thread only call it; ranks need MPI_THREAD_SERIALIZED");
}

/// Takes leave with all others, for which whoever failed cannot wait.
MpiFabric::~MpiFabric() {
  if (!abandoned_) MPI_Finalize();
}

std::unique_ptr<Lane> MpiFabric::open() { return std::make_unique<MpiLane>(*this, lanes_++); }

void MpiFabric::abandon() noexcept {
  const std::lock_guard lock(mutex_);
  abandoned_ = true;
}

}  // namespace shardplan::mpi
