#include "runtime/cuda/local_collectives.h"

#include "kernels/cuda/kernels.h"
#include "plans/error.h"
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

void LocalCollectives::all_gather(Stream stream, Group group, std::span<const std::byte> shard,
                                  std::span<std::byte> full) {
  if (stream == Stream::Host) return host_.all_gather(stream, group, shard, full);
  shardplan::check(full.size() == shard.size() * size(group),
                   "the gathered buffer holds every shard");
  for (std::size_t at = 0; at < full.size(); at += shard.size())
    check(cudaMemcpyAsync(full.data() + at, shard.data(), shard.size(), cudaMemcpyDeviceToDevice,
                          device_.stream(stream)),
          "copy");
}

void LocalCollectives::reduce_scatter(Stream stream, Group group, Dtype dtype,
                                      std::span<const std::byte> full, std::span<std::byte> shard,
                                      double pre_scale, double post_scale) {
  if (stream == Stream::Host)
    return host_.reduce_scatter(stream, group, dtype, full, shard, pre_scale, post_scale);
  multiply(full.subspan(place(group) * shard.size(), shard.size()), dtype,
           pre_scale * post_scale * static_cast<double>(size(group)), shard,
           device_.stream(stream));
}

void LocalCollectives::all_reduce(Stream stream, Group group, Dtype dtype,
                                  std::span<std::byte> data, double pre_scale, double post_scale) {
  if (stream == Stream::Host)
    return host_.all_reduce(stream, group, dtype, data, pre_scale, post_scale);
  multiply(data, dtype, pre_scale * post_scale * static_cast<double>(size(group)), data,
           device_.stream(stream));
}

void LocalCollectives::broadcast(Stream stream, Group group, std::span<std::byte> data, int root) {
  if (stream == Stream::Host) host_.broadcast(stream, group, data, root);
}

}  // namespace shardplan::cuda
