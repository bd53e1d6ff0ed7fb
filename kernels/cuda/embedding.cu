#include "kernels/cuda/kernels.h"
#include "kernels/cuda/reduce.h"

namespace shardplan::cuda {
namespace {

__global__ void embedding_kernel(std::span<const std::int32_t> tokens, ConstFloats weight,
                                 Floats out, std::int64_t channels) {
  for_each_pack(out.size(), [&](Pack pack) {
    PackValues values;
    for_each_below(pack.count, [&](int i) {
      const std::int64_t row = (pack.first + i) / channels;
      values[i] = weight[tokens[row] * channels + (pack.first + i) % channels];
    });
    out.store(pack, values);
  });
}

/// The first place of `token` in tokens[from, ...), or how many there are; the same on all threads.
__device__ std::int64_t next_row(std::span<const std::int32_t> tokens, std::int64_t from,
                                 std::int32_t token) {
  const auto rows = static_cast<std::int64_t>(tokens.size());
  for (; from < rows; from += kWarp) {
    const std::int64_t row = from + lane_of_warp();
    const unsigned found = __ballot_sync(kAllLanes, row < rows && tokens[row] == token);
    if (found != 0) return from + __ffs(static_cast<int>(found)) - 1;
  }
  return rows;
}

constexpr std::int64_t kChannels = kWarp * kPackElems;  // of a warp

// One warp per row and kChannels channels. That of a token's first row sums all of its rows, in
// order, before it adds them to what is there: no order depends on the schedule, and two
// micro-steps give what two ranks give.
__global__ void embedding_backward_kernel(ConstFloats grad_out,
                                          std::span<const std::int32_t> tokens, Floats grad_weight,
                                          std::int64_t channels) {
  const auto rows = static_cast<std::int64_t>(tokens.size());
  const std::int64_t first = blockIdx.x;
  const std::int32_t token = tokens[first];
  if (next_row(tokens, 0, token) != first) return;
  const std::int64_t channel = blockIdx.y * kChannels + lane_of_warp() * kPackElems;
  const std::int64_t left = channels - channel;
  const int count = static_cast<int>(left < 0 ? 0 : left < kPackElems ? left : kPackElems);
  PackValues sum{};
  for (std::int64_t row = first; row < rows; row = next_row(tokens, row + 1, token)) {
    if (count == 0) continue;  // but its lane has a part in looking for rows
    const PackValues more = grad_out.load({row * channels + channel, count});
    for (int i = 0; i < kPackElems; ++i)
      sum[i] = row == first ? more[i] : sum[i] + more[i];
  }
  if (count == 0) return;
  const Pack place{token * channels + channel, count};
  PackValues total = grad_weight.load(place);
  for (int i = 0; i < kPackElems; ++i)
    total[i] += sum[i];
  grad_weight.store(place, total);
}

__global__ void zero_kernel(Floats out) {
  for_each_pack(out.size(), [&](Pack pack) { out.store(pack, PackValues{}); });
}

__global__ void position_embedding_backward_kernel(ConstFloats grad_out, Floats grad_weight,
                                                   std::int64_t sequence, bool accumulate) {
  const std::int64_t i = thread_of_grid();
  if (i >= grad_weight.size()) return;
  double sum = 0;
  if (i < sequence)
    for (std::int64_t at = i; at < grad_out.size(); at += sequence)
      sum += grad_out[at];
  else if (accumulate)
    return;
  grad_weight.put(i, static_cast<float>(sum), accumulate);
}

}  // namespace

void embedding(std::span<const std::int32_t> tokens, ConstFloats weight, Floats out,
               std::int64_t channels, cudaStream_t stream) {
  launch_packs(embedding_kernel, out.size(), stream, tokens, weight, out, channels);
}

void embedding_backward(ConstFloats grad_out, std::span<const std::int32_t> tokens,
                        Floats grad_weight, std::int64_t channels, Store store,
                        cudaStream_t stream) {
  if (store == Store::Overwrite) launch_packs(zero_kernel, grad_weight.size(), stream, grad_weight);
  const dim3 grid(static_cast<unsigned>(tokens.size()),
                  static_cast<unsigned>((channels + kChannels - 1) / kChannels));
  launch(embedding_backward_kernel, grid, kWarp, stream, grad_out, tokens, grad_weight, channels);
}

void position_embedding_backward(ConstFloats grad_out, Floats grad_weight, std::int64_t sequence,
                                 Store store, cudaStream_t stream) {
  launch(position_embedding_backward_kernel, blocks_for(grad_weight.size()), kBlockThreads, stream,
         grad_out, grad_weight, sequence, store == Store::Accumulate);
}

}  // namespace shardplan::cuda
