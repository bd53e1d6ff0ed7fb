#include "runtime/cuda/local_collectives.h"

#include "kernels/cuda/kernels.h"
#include "runtime/cuda/cuda_kernels.h"

namespace shardplan::cuda {
namespace {

Operand operand_of(std::span<const std::byte> bytes, Dtype dtype) {
  // Kernels are told by their own types what they may write.
  return {const_cast<std::byte*>(bytes.data()),
          static_cast<std::int64_t>(bytes.size()) / size_of(dtype), dtype};
}

/// out = x * factor.
void multiply(std::span<const std::byte> x, Dtype dtype, double factor, std::span<std::byte> out,
              cudaStream_t stream) {
  if (dtype != Dtype::Float64)
    return scale(const_floats(operand_of(x, dtype)), static_cast<float>(factor),
                 floats(operand_of(out, dtype)), stream);
  const std::size_t elems = x.size() / sizeof(double);
  scale(std::span(reinterpret_cast<const double*>(x.data()), elems), factor,
        std::span(reinterpret_cast<double*>(out.data()), elems), stream);
}

}  // namespace

void LocalCollectives::gather(Stream stream, Group, std::span<const std::byte> shard,
                              std::span<std::byte> full) {
  for (std::size_t at = 0; at < full.size(); at += shard.size())
    check(cudaMemcpyAsync(full.data() + at, shard.data(), shard.size(), cudaMemcpyDeviceToDevice,
                          device().stream(stream)),
          "copy");
}

void LocalCollectives::sum_shards(Stream stream, Group group, Dtype dtype,
                                  std::span<const std::byte> full, std::span<std::byte> shard,
                                  double scale) {
  multiply(full.subspan(place(group) * shard.size(), shard.size()), dtype,
           scale * static_cast<double>(size(group)), shard, device().stream(stream));
}

void LocalCollectives::sum(Stream stream, Group group, Dtype dtype, std::span<std::byte> data,
                           double scale) {
  multiply(data, dtype, scale * static_cast<double>(size(group)), data, device().stream(stream));
}

}  // namespace shardplan::cuda
