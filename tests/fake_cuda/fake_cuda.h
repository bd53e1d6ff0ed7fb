#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

/// What tests tell the fake of CUDA and ask of it. The program's environment may say the same:
/// FAKE_CUDA_SCHEDULE (eager, lazy, random), FAKE_CUDA_SEED, FAKE_CUDA_DEVICES, FAKE_CUDA_BYTES.
namespace fake_cuda {

/// When the work of streams runs, all of which CUDA allows.
enum class Schedule {
  Eager,   // at once where it can
  Lazy,    // once something waits for it: missing waits show
  Random,  // in any order
};
void set_schedule(Schedule schedule, std::uint64_t seed);

/// How many devices there are, and the memory of each.
void set_devices(int devices, std::size_t bytes);

/// Without progress for so long, while somebody waits, the job is found to be deadlocked.
void set_patience(double seconds);

/// How many parts in collectives ranks have had since this was last asked, and of how many all that
/// is sent and received lies in memory that is registered with the communicator.
struct Collectives {
  int all = 0;
  int registered = 0;
};
Collectives take_collectives();

/// The first fault that a check has found: a race between streams, collectives that do not match, a
/// deadlock, a wrong address. Every call fails from then on, until it is taken. Empty: none.
std::string take_fault();

}  // namespace fake_cuda
