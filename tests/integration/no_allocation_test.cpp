#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "planner/planner.h"
#include "runtime/executor.h"
#include "tests/models/tiny_models.h"
#include "tests/unit/scratch_folder.h"

// The C library's own allocator, under the names that ours below wrap.
extern "C" void* __libc_malloc(std::size_t bytes);
extern "C" void* __libc_calloc(std::size_t count, std::size_t bytes);
extern "C" void* __libc_realloc(void* memory, std::size_t bytes);
extern "C" void* __libc_memalign(std::size_t alignment, std::size_t bytes);

namespace {

std::atomic<bool> counting{false};
std::atomic<int> allocations{0};

void count() {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

// operator new ends here too, and so do libraries.
extern "C" void* malloc(std::size_t bytes) {
  count();
  return __libc_malloc(bytes);
}
extern "C" void* calloc(std::size_t elems, std::size_t bytes) {
  count();
  return __libc_calloc(elems, bytes);
}
extern "C" void* realloc(void* memory, std::size_t bytes) {
  count();
  return __libc_realloc(memory, bytes);
}
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  count();
  return __libc_memalign(alignment, bytes);
}
extern "C" int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  count();
  *memory = __libc_memalign(alignment, bytes);
  return *memory ? 0 : 12;  // ENOMEM
}

namespace shardplan {
namespace {

/// Allocations of all threads between the end of the first step and that of the last.
int allocations_of(Strategy sharding, Profile profile, bool tied) {
  const testing::ScratchFolder folder;
  Job job = testing::tiny_job(sharding, 2);
  job.strategy.profile = profile;
  job.run.steps = 4;
  job.run.tokens = folder.file("tokens.bin", std::string(4000, '\1'));
  job.run.output = folder.path("out");
  ExecuteOptions options;
  options.on_step = [&](const StepReport& step) { counting = 1 <= step.step && step.step < 4; };
  allocations = 0;
  execute(make_plan(job, testing::tiny_llama({.tied = tied})), options);
  return allocations;
}

TEST(NoAllocation, TheHookSeesAllocations) {
  counting = true;
  allocations = 0;
  delete new int;
  std::free(std::malloc(100));
  counting = false;
  EXPECT_GE(allocations, 2);
}

TEST(NoAllocation, NoThreadAllocatesInsideAStep) {
  for (const Strategy sharding :
       {Strategy::Ddp, Strategy::NoShard, Strategy::ShardGradOp, Strategy::FullShard})
    EXPECT_EQ(allocations_of(sharding, Profile::CpuReference, true), 0) << to_string(sharding);
}

}  // namespace
}  // namespace shardplan
