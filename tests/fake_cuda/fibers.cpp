// Threads of a block as fibers of the host thread that runs it, which holds the machine's lock.
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <memory>
#include <utility>

#include "tests/fake_cuda/machine.h"

#if defined(__x86_64__)
// Saves the registers that a function must keep, and goes on at another stack.
extern "C" void fake_cuda_switch(void** save, void* to);
asm(R"(.text
.hidden fake_cuda_switch
.globl fake_cuda_switch
.type fake_cuda_switch,@function
fake_cuda_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp,(%rdi); movq %rsi,%rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
.size fake_cuda_switch,.-fake_cuda_switch
)");
#else
#include <ucontext.h>
#endif

dim3 threadIdx;
dim3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace fake_cuda {

Lane* lane = nullptr;

namespace {

constexpr int kMostThreads = 1024;
constexpr std::size_t kStackBytes = std::size_t{64} << 10;
constexpr std::size_t kStagger = 320;  // bytes, so that stacks do not meet in the cache's sets

struct Fiber : Lane {
#if defined(__x86_64__)
  void* stack = nullptr;
#else
  ucontext_t context{};
#endif
};

/// Lanes of a warp by what they do, as bits.
struct Warp {
  unsigned exist = 0;
  unsigned run = 0;
  unsigned at_warp_barrier = 0;
  unsigned mask = 0;  // of that barrier
  unsigned at_block_barrier = 0;
  std::array<Slots, 2> slots;

  /// Lets lanes go on that all of the barrier's have waited for; false: some have not come.
  bool release() {
    const unsigned needed = mask & exist;
    if (at_warp_barrier == 0 || (at_warp_barrier & needed) != needed) return false;
    run = std::exchange(at_warp_barrier, 0);
    return true;
  }
};

/// The fibers of a block.
class Block {
 public:
  Block()
      : stacks_(static_cast<std::byte*>(mmap(nullptr, kMostThreads * kStackBytes,
                                             PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))),
        fibers_(kMostThreads),
        warps_(kMostThreads / kWarp) {}
  ~Block() { munmap(stacks_, kMostThreads * kStackBytes); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  void begin(dim3 extent, const std::function<void()>& thread, std::uint64_t seed) {
    thread_ = &thread;
    random_ = seed;
    threads_ = static_cast<int>(extent.x * extent.y * extent.z);
    for (int i = 0; i < threads_; ++i) {
      const auto index = static_cast<unsigned>(i);
      fibers_[i].index = i;
      fibers_[i].thread.x = index % extent.x;
      fibers_[i].thread.y = index / extent.x % extent.y;
      fibers_[i].thread.z = index / (extent.x * extent.y);
    }
  }

  /// One block to its end; false: its threads wait for one another in vain.
  bool run() {
    done_ = 0;
    const int warps = (threads_ + kWarp - 1) / kWarp;
    for (int w = 0; w < warps; ++w) {
      const int lanes = std::min(kWarp, threads_ - w * kWarp);
      warps_[w].exist = warps_[w].run = lanes == kWarp ? ~0U : (1U << lanes) - 1;
      warps_[w].at_warp_barrier = warps_[w].at_block_barrier = 0;
    }
    for (int i = 0; i < threads_; ++i)
      prepare(i);
    while (done_ < threads_) {
      const int first = static_cast<int>(random() % static_cast<unsigned>(warps));
      for (int i = 0; i < warps; ++i)
        run_warp((first + i) % warps);
      if (done_ < threads_ && !release_block(warps)) return false;
    }
    return true;
  }

  void wait_for_block() {
    warp().at_block_barrier |= bit();
    switch_out(own());
  }

  void wait_for_warp(unsigned mask) {
    Warp& mine = warp();
    if ((mask & bit()) == 0 || (mine.at_warp_barrier != 0 && mine.mask != mask))
      fault("lanes of a warp wait at one barrier with different masks");
    mine.mask = mask;
    mine.at_warp_barrier |= bit();
    switch_out(own());
  }

  const Slots& exchange(unsigned mask, std::uint64_t value) {
    // Two sets: a lane may give its next value before others have read this one.
    lane->slots ^= 1;
    Slots& slots = warp().slots[static_cast<std::size_t>(lane->slots)];
    slots[static_cast<std::size_t>(lane->index % kWarp)] = value;
    wait_for_warp(mask);
    return slots;
  }

 private:
  static void entry();

  static Fiber& own() { return static_cast<Fiber&>(*lane); }
  Warp& warp() { return warps_[lane->index / kWarp]; }
  static unsigned bit() { return 1U << (lane->index % kWarp); }

  std::uint64_t random() {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    return random_ ^= random_ << 17;
  }

  /// Runs a warp until its lanes wait for others than themselves.
  void run_warp(int w) {
    Warp& mine = warps_[w];
    do {
      // Lanes in an order of their own each time: what they do without a barrier has none.
      const std::uint64_t order = random();
      const int shift = static_cast<int>(order % kWarp);
      while (mine.run != 0) {
        const unsigned turned = std::rotr(mine.run, shift);
        const int next =
            order >> 32 & 1U ? std::countr_zero(turned) : 31 - std::countl_zero(turned);
        const int index = (next + shift) % kWarp;
        mine.run &= ~(1U << index);
        lane = &fibers_[w * kWarp + index];
        threadIdx = lane->thread;
        switch_in(own());
      }
    } while (mine.release());
  }

  bool release_block(int warps) {
    int waiting = 0;
    for (int w = 0; w < warps; ++w)
      waiting += std::popcount(warps_[w].at_block_barrier);
    if (waiting != threads_ - done_) return false;
    for (int w = 0; w < warps; ++w)
      warps_[w].run = std::exchange(warps_[w].at_block_barrier, 0);
    return true;
  }

#if defined(__x86_64__)
  void prepare(int i) {
    constexpr int kSavedRegisters = 6;
    fibers_[i].slots = 0;
    auto** top = reinterpret_cast<void**>(stacks_ + (i + 1) * kStackBytes - i % 8 * kStagger);
    *--top = nullptr;
    *--top = reinterpret_cast<void*>(&Block::entry);
    for (int r = 0; r < kSavedRegisters; ++r)
      *--top = nullptr;
    fibers_[i].stack = top;
  }
  void switch_in(Fiber& fiber) { fake_cuda_switch(&host_, fiber.stack); }
  void switch_out(Fiber& fiber) { fake_cuda_switch(&fiber.stack, host_); }
  void* host_ = nullptr;
#else
  void prepare(int i) {
    fibers_[i].slots = 0;
    getcontext(&fibers_[i].context);
    fibers_[i].context.uc_stack.ss_sp = stacks_ + i * kStackBytes;
    fibers_[i].context.uc_stack.ss_size = kStackBytes;
    fibers_[i].context.uc_link = nullptr;
    makecontext(&fibers_[i].context, &Block::entry, 0);
  }
  void switch_in(Fiber& fiber) { swapcontext(&host_, &fiber.context); }
  void switch_out(Fiber& fiber) { swapcontext(&fiber.context, &host_); }
  ucontext_t host_{};
#endif

  std::byte* const stacks_;
  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  const std::function<void()>* thread_ = nullptr;
  std::uint64_t random_ = 1;
  int threads_ = 0;
  int done_ = 0;
};

Block* the_block = nullptr;

void Block::entry() {
  Block& block = *the_block;
  (*block.thread_)();
  ++block.done_;
  block.warp().exist &= ~bit();
  block.switch_out(own());
  std::abort();  // nobody runs it again
}

}  // namespace

void block_barrier() { the_block->wait_for_block(); }
void warp_barrier(unsigned mask) { the_block->wait_for_warp(mask); }
const Slots& exchange(unsigned mask, std::uint64_t value) {
  return the_block->exchange(mask, value);
}

void run_grid(dim3 grid, dim3 extent, const std::function<void()>& thread) {
  static Block only;
  the_block = &only;
  if (extent.x * extent.y * extent.z > kMostThreads) return fault("a block of too many threads");
  gridDim = grid;
  blockDim = extent;
  the_block->begin(extent, thread, next_random());
  for (blockIdx.z = 0; blockIdx.z < grid.z; ++blockIdx.z)
    for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y)
      for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x)
        if (!the_block->run())
          return fault("threads of a block wait at different barriers, or for one that has ended");
}

}  // namespace fake_cuda
