// Threads of a block as fibers of the host thread that runs it.
#include <sys/mman.h>

#include <cstdlib>
#include <memory>

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

constinit thread_local dim3 threadIdx;
constinit thread_local dim3 blockIdx;
constinit thread_local dim3 blockDim;
constinit thread_local dim3 gridDim;

namespace fake_cuda {

constinit thread_local Lane* lane = nullptr;

namespace {

constexpr int kMostThreads = 1024;
constexpr std::size_t kStackBytes = std::size_t{64} << 10;
constexpr std::size_t kStagger = 320;  // bytes, so that stacks do not meet in the cache's sets

enum class State { Runs, AtBlockBarrier, AtWarpBarrier, Done };

struct Fiber : Lane {
  State state = State::Runs;
  unsigned mask = 0;  // of the warp barrier that it waits at
#if defined(__x86_64__)
  void* stack = nullptr;
#else
  ucontext_t context{};
#endif
};

/// The fibers of one host thread.
class Block {
 public:
  Block()
      : stacks_(static_cast<std::byte*>(mmap(nullptr, kMostThreads * kStackBytes,
                                             PROT_READ | PROT_WRITE,
                                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))),
        fibers_(kMostThreads),
        slots_(2 * kMostThreads / kWarp) {}
  ~Block() { munmap(stacks_, kMostThreads * kStackBytes); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  void begin(dim3 extent, const std::function<void()>& thread, std::uint64_t seed) {
    thread_ = &thread;
    random_ = seed;
    threads_ = static_cast<int>(extent.x * extent.y * extent.z);
    for (int i = 0; i < threads_; ++i) {
      fibers_[i].index = i;
      fibers_[i].thread.x = i % extent.x;
      fibers_[i].thread.y = i / extent.x % extent.y;
      fibers_[i].thread.z = i / (extent.x * extent.y);
    }
  }

  /// One block to its end; false: its threads wait for one another in vain.
  bool run() {
    done_ = 0;
    for (int i = 0; i < threads_; ++i)
      prepare(i);
    const int warps = (threads_ + kWarp - 1) / kWarp;
    while (done_ < threads_) {
      bool ran = false;
      const int first = static_cast<int>(random() % static_cast<unsigned>(warps));
      for (int i = 0; i < warps; ++i)
        ran |= run_warp((first + i) % warps);
      if (!ran && !release_block()) return false;
    }
    return true;
  }

  void leave(State state, unsigned mask) {
    Fiber& own = static_cast<Fiber&>(*lane);
    own.state = state;
    own.mask = mask;
    switch_out(own);
  }

  const Slots& exchange(unsigned mask, std::uint64_t value) {
    lane->slots ^= 1;
    Slots& slots = slots_[2 * (lane->index / kWarp) + lane->slots];
    slots[lane->index % kWarp] = value;
    leave(State::AtWarpBarrier, mask);
    return slots;
  }

 private:
  static void entry();

  std::uint64_t random() {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    return random_ ^= random_ << 17;
  }

  /// Runs a warp until its lanes wait for others than themselves; false: they did so already.
  bool run_warp(int warp) {
    bool ran = false;
    do {
      // Lanes in an order of their own each time: what they do without a barrier has none.
      const auto start = static_cast<int>(random() % kWarp);
      const auto stride = static_cast<int>(random() % (kWarp / 2)) * 2 + 1;
      for (int i = 0; i < kWarp; ++i) {
        const int index = warp * kWarp + (start + i * stride) % kWarp;
        if (index >= threads_ || fibers_[index].state != State::Runs) continue;
        ran = true;
        lane = &fibers_[index];
        threadIdx = lane->thread;
        switch_in(fibers_[index]);
      }
    } while (release_warp(warp));
    return ran;
  }

  bool release_warp(int warp) {
    unsigned here = 0;
    unsigned exists = 0;
    for (int i = 0; i < kWarp && warp * kWarp + i < threads_; ++i) {
      exists |= 1U << i;
      if (fibers_[warp * kWarp + i].state == State::AtWarpBarrier) here |= 1U << i;
    }
    bool released = false;
    for (int i = 0; i < kWarp && warp * kWarp + i < threads_; ++i) {
      Fiber& fiber = fibers_[warp * kWarp + i];
      const unsigned needed = fiber.mask & exists;
      if (fiber.state != State::AtWarpBarrier || (here & needed) != needed) continue;
      fiber.state = State::Runs;
      released = true;
    }
    return released;
  }

  bool release_block() {
    for (int i = 0; i < threads_; ++i)
      if (fibers_[i].state == State::AtWarpBarrier) return false;
    for (int i = 0; i < threads_; ++i)
      if (fibers_[i].state == State::AtBlockBarrier) fibers_[i].state = State::Runs;
    return done_ < threads_;
  }

#if defined(__x86_64__)
  void prepare(int i) {
    constexpr int kSavedRegisters = 6;
    fibers_[i].state = State::Runs;
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
    fibers_[i].state = State::Runs;
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
  std::vector<Slots> slots_;
  const std::function<void()>* thread_ = nullptr;
  std::uint64_t random_ = 1;
  int threads_ = 0;
  int done_ = 0;
};

thread_local std::unique_ptr<Block> own_block;

void Block::entry() {
  (*own_block->thread_)();
  ++own_block->done_;
  own_block->leave(State::Done, 0);
  std::abort();  // nobody runs it again
}

}  // namespace

void block_barrier() { own_block->leave(State::AtBlockBarrier, 0); }
void warp_barrier(unsigned mask) { own_block->leave(State::AtWarpBarrier, mask); }
const Slots& exchange(unsigned mask, std::uint64_t value) {
  return own_block->exchange(mask, value);
}

void run_grid(dim3 grid, dim3 extent, const std::function<void()>& thread) {
  if (!own_block) own_block = std::make_unique<Block>();
  if (extent.x * extent.y * extent.z > kMostThreads) return fault("a block of too many threads");
  gridDim = grid;
  blockDim = extent;
  own_block->begin(extent, thread, next_random());
  for (blockIdx.z = 0; blockIdx.z < grid.z; ++blockIdx.z)
    for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y)
      for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x)
        if (!own_block->run())
          return fault("threads of a block wait at different barriers, or for one that has ended");
}

}  // namespace fake_cuda
