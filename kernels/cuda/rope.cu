#include "kernels/arithmetic.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"

namespace shardplan::cuda {
namespace {

/// One thread turns one pair of all heads of a token.
__global__ void rope_kernel(ConstFloats x, Floats out, RopeShape shape, RopeDirection direction) {
  const std::int64_t half = shape.head_dim / 2;
  const std::int64_t token = thread_of_grid() / half;
  const std::int64_t pair = thread_of_grid() % half;
  if (token >= shape.batch * shape.time) return;
  const float angle = static_cast<float>(token % shape.time) * rope_frequency(pair, shape);
  const float cosine = std::cos(angle);
  const float sine = direction == RopeDirection::Forward ? std::sin(angle) : -std::sin(angle);
  for (std::int64_t head = 0; head < shape.heads; ++head) {
    const std::int64_t at = (token * shape.heads + head) * shape.head_dim + pair;
    const float first = x[at];
    const float second = x[at + half];
    out.put(at, first * cosine - second * sine);
    out.put(at + half, second * cosine + first * sine);
  }
}

}  // namespace

void rope(ConstFloats x, Floats out, const RopeShape& shape, RopeDirection direction,
          cudaStream_t stream) {
  launch(rope_kernel, blocks_for(shape.batch * shape.time * (shape.head_dim / 2)), kBlockThreads,
         stream, x, out, shape, direction);
}

}  // namespace shardplan::cuda
