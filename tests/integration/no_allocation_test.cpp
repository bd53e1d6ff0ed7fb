#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <string>

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

/// oneDNN allocates inside every product; what it does there is not ours to change.
bool is_onednn(void* address) {
  Dl_info info{};
  return dladdr(address, &info) != 0 && std::strstr(info.dli_fname, "libdnnl") != nullptr;
}

void count(void* caller) {
  if (counting.load(std::memory_order_relaxed) && !is_onednn(caller))
    allocations.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

/// The library's operator delete frees what this gives.
void* operator new(std::size_t bytes) {
  count(__builtin_return_address(0));
  if (void* memory = __libc_malloc(bytes)) return memory;
  throw std::bad_alloc();
}

extern "C" void* malloc(std::size_t bytes) {
  count(__builtin_return_address(0));
  return __libc_malloc(bytes);
}
extern "C" void* calloc(std::size_t elems, std::size_t bytes) {
  count(__builtin_return_address(0));
  return __libc_calloc(elems, bytes);
}
extern "C" void* realloc(void* memory, std::size_t bytes) {
  count(__builtin_return_address(0));
  return __libc_realloc(memory, bytes);
}
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  count(__builtin_return_address(0));
  return __libc_memalign(alignment, bytes);
}
extern "C" int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  count(__builtin_return_address(0));
  *memory = __libc_memalign(alignment, bytes);
  return *memory ? 0 : 12;  // ENOMEM
}

namespace shardplan {
namespace {

// Ranks are ahead of the thread that reports steps, and allocate again once the last step is over.
constexpr int kCountedSteps = 25;
constexpr int kSteps = 100;

/// Allocations of all threads from the end of the first step to that of kCountedSteps.
int allocations_of(Strategy sharding, Profile profile) {
  const testing::ScratchFolder folder;
  Job job = testing::tiny_job(sharding, 2);
  job.strategy.profile = profile;
  job.run.steps = kSteps;
  job.run.tokens = folder.file("tokens.bin", std::string(4000, '\1'));
  job.run.output = folder.path("out");
  ExecuteOptions options;
  options.on_step = [&](const StepReport& step) { counting = step.step < kCountedSteps; };
  allocations = 0;
  execute(make_plan(job, testing::tiny_llama()), options);
  return allocations;
}

TEST(NoAllocation, TheHookSeesAllocations) {
  counting = true;
  allocations = 0;
  const auto heap_string = std::make_unique<std::string>(100, 'x');
  counting = false;
  EXPECT_EQ(heap_string->size(), 100);
  EXPECT_GE(allocations, 2);
}

TEST(NoAllocation, NoThreadAllocatesInsideAStep) {
  for (const Strategy sharding :
       {Strategy::Ddp, Strategy::NoShard, Strategy::ShardGradOp, Strategy::FullShard})
    for (const Profile profile : {Profile::CpuReference, Profile::CpuOneDnn})
      EXPECT_EQ(allocations_of(sharding, profile), 0) << to_string(sharding) << to_string(profile);
}

}  // namespace
}  // namespace shardplan
