#include <algorithm>

#include "kernels/cpu/reduce.h"
#include "kernels/kernels.h"

namespace shardplan::cpu {
namespace {

float beta_of(Store store) { return store == Store::Accumulate ? 1.0F : 0.0F; }

/// The weight as the matrix [in_features, out_features].
ConstMatrix weight_in_out(const float* weight, const LinearShape& shape) {
  if (shape.layout == WeightLayout::InOut) return {weight, shape.out_features};
  return {weight, shape.in_features, Transpose::Yes};
}

/// The weight as the matrix [out_features, in_features].
ConstMatrix weight_out_in(const float* weight, const LinearShape& shape) {
  if (shape.layout == WeightLayout::OutIn) return {weight, shape.in_features};
  return {weight, shape.out_features, Transpose::Yes};
}

}  // namespace

void linear(Gemm gemm, const float* x, const float* weight, const float* bias, float* out,
            const LinearShape& shape) {
  if (bias)
    for (std::int64_t row = 0; row < shape.rows; ++row)
      std::copy_n(bias, shape.out_features, out + row * shape.out_features);
  gemm(shape.rows, shape.out_features, shape.in_features, 1.0F, {x, shape.in_features},
       weight_in_out(weight, shape), bias ? 1.0F : 0.0F, out, shape.out_features);
}

void linear_backward_input(Gemm gemm, const float* grad_out, const float* weight, float* grad_x,
                           const LinearShape& shape, Store store) {
  gemm(shape.rows, shape.in_features, shape.out_features, 1.0F, {grad_out, shape.out_features},
       weight_out_in(weight, shape), beta_of(store), grad_x, shape.in_features);
}

void linear_backward_weight(Gemm gemm, const float* grad_out, const float* x, float* grad_weight,
                            const LinearShape& shape, Store store) {
  if (shape.layout == WeightLayout::OutIn)
    gemm(shape.out_features, shape.in_features, shape.rows, 1.0F,
         {grad_out, shape.out_features, Transpose::Yes}, {x, shape.in_features}, beta_of(store),
         grad_weight, shape.in_features);
  else
    gemm(shape.in_features, shape.out_features, shape.rows, 1.0F,
         {x, shape.in_features, Transpose::Yes}, {grad_out, shape.out_features}, beta_of(store),
         grad_weight, shape.out_features);
}

void linear_backward_bias(const float* grad_out, float* grad_bias, const LinearShape& shape,
                          Store store) {
  sum_rows(grad_out, grad_bias, shape.rows, shape.out_features, store);
}

}  // namespace shardplan::cpu
