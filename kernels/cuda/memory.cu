#include "kernels/cuda/kernels.h"
#include "kernels/cuda/reduce.h"
#include "kernels/pattern.h"

namespace shardplan::cuda {
namespace {

constexpr std::int64_t kWord = sizeof(kPattern);

/// The i-th word that memory has a part of: its bytes [begin, end) as places in it.
struct Word {
  std::int64_t begin;
  std::int64_t end;
};
__host__ __device__ std::int64_t bytes_before(std::span<const std::byte> memory) {
  return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(memory.data()) % kWord);
}
__device__ Word word_of(std::span<const std::byte> memory, std::int64_t i) {
  const std::int64_t begin = i * kWord - bytes_before(memory);
  const auto size = static_cast<std::int64_t>(memory.size());
  return {begin < 0 ? 0 : begin, begin + kWord < size ? begin + kWord : size};
}
__host__ __device__ std::int64_t words_of(std::span<const std::byte> memory) {
  return (static_cast<std::int64_t>(memory.size()) + bytes_before(memory) + kWord - 1) / kWord;
}

__device__ std::byte pattern_at(std::span<const std::byte> memory, std::int64_t at) {
  return pattern_byte(reinterpret_cast<std::uintptr_t>(memory.data()) + at);
}

__global__ void fill_pattern_kernel(std::span<std::byte> memory) {
  const std::int64_t i = thread_of_grid();
  if (i >= words_of(memory)) return;
  const Word word = word_of(memory, i);
  if (word.end - word.begin == kWord)
    *reinterpret_cast<std::uint32_t*>(&memory[word.begin]) = kPattern;
  else
    for (std::int64_t at = word.begin; at < word.end; ++at)
      memory[at] = pattern_at(memory, at);
}

__device__ bool is_changed(std::span<const std::byte> memory, const Word& word) {
  if (word.end - word.begin == kWord)
    return *reinterpret_cast<const std::uint32_t*>(&memory[word.begin]) != kPattern;
  for (std::int64_t at = word.begin; at < word.end; ++at)
    if (memory[at] != pattern_at(memory, at)) return true;
  return false;
}

/// partials[block] = bytes in the changed words of its threads, which doubles count exactly.
__global__ void count_changed_kernel(std::span<const std::byte> memory,
                                     std::span<double> partials) {
  double own = 0;
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = thread_of_grid(); i < words_of(memory); i += threads) {
    const Word word = word_of(memory, i);
    if (is_changed(memory, word)) own += static_cast<double>(word.end - word.begin);
  }
  const double sum = block_sum(own);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void add_counts_kernel(std::span<const double> partials,
                                  std::span<std::int64_t> changed) {
  const double sum = sum_of_partials(partials);
  if (threadIdx.x == 0) changed[0] = static_cast<std::int64_t>(sum);
}

}  // namespace

void fill_pattern(std::span<std::byte> memory, cudaStream_t stream) {
  launch(fill_pattern_kernel, blocks_for(memory.empty() ? 0 : words_of(memory)), kBlockThreads,
         stream, memory);
}

void count_changed(std::span<const std::byte> memory, std::span<std::int64_t> changed,
                   std::span<double> partials, cudaStream_t stream) {
  const std::span<double> used = partials_for(words_of(memory), partials);
  launch(count_changed_kernel, dim3(static_cast<unsigned>(used.size())), kBlockThreads, stream,
         memory, used);
  launch(add_counts_kernel, dim3(1), kBlockThreads, stream, used, changed);
}

}  // namespace shardplan::cuda
