#include "kernels/gemm.h"

#include <gtest/gtest.h>

#include <rapidcheck/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace shardplan::cpu {
namespace {

using Floats = std::vector<float>;

struct Product {
  std::int64_t m, n, k;
  Transpose transpose_a, transpose_b;
  std::int64_t padding;  // elements between the end of a row and the next
  float alpha, beta;
  unsigned seed;
};

// The name is RapidCheck's.
void showValue(const Product& p, std::ostream& out) {  // NOLINT(readability-identifier-naming)
  out << p.m << " x " << p.n << " x " << p.k << (p.transpose_a == Transpose::Yes ? " T" : " N")
      << (p.transpose_b == Transpose::Yes ? "T" : "N") << " padding " << p.padding << " alpha "
      << p.alpha << " beta " << p.beta << " seed " << p.seed;
}

rc::Gen<Product> any_product() {
  const auto extent = rc::gen::weightedOneOf<std::int64_t>(
      {{3, rc::gen::inRange<std::int64_t>(1, 40)}, {1, rc::gen::inRange<std::int64_t>(40, 300)}});
  const auto transpose = rc::gen::element(Transpose::No, Transpose::Yes);
  return rc::gen::build<Product>(
      rc::gen::set(&Product::m, extent), rc::gen::set(&Product::n, extent),
      rc::gen::set(&Product::k, extent), rc::gen::set(&Product::transpose_a, transpose),
      rc::gen::set(&Product::transpose_b, transpose),
      rc::gen::set(&Product::padding, rc::gen::inRange<std::int64_t>(0, 5)),
      rc::gen::set(&Product::alpha, rc::gen::element(1.0F, 0.25F, -3.0F)),
      rc::gen::set(&Product::beta, rc::gen::element(0.0F, 1.0F, 0.5F)),
      rc::gen::set(&Product::seed, rc::gen::inRange<unsigned>(0, 1000)));
}

/// Operands of a product in buffers that begin `shift` floats behind an aligned address.
struct Operands {
  Floats a, b, out;
  std::int64_t shift;
  ConstMatrix left, right;
  std::int64_t out_stride;
};

Floats uniform(std::int64_t count, std::int64_t shift, unsigned seed) {
  std::mt19937 bits(seed);
  Floats values(shift + count);
  for (auto value = values.begin() + shift; value != values.end(); ++value)
    *value = static_cast<float>(bits()) / 2147483648.0F - 1.0F;
  return values;
}

Operands operands_of(const Product& p, std::int64_t shift) {
  const bool a_is_stored_k_m = p.transpose_a == Transpose::Yes;
  const bool b_is_stored_n_k = p.transpose_b == Transpose::Yes;
  const std::int64_t a_stride = (a_is_stored_k_m ? p.m : p.k) + p.padding;
  const std::int64_t b_stride = (b_is_stored_n_k ? p.k : p.n) + p.padding;
  Operands o{.a = uniform((a_is_stored_k_m ? p.k : p.m) * a_stride, shift, p.seed),
             .b = uniform((b_is_stored_n_k ? p.n : p.k) * b_stride, shift, p.seed + 1),
             .out = uniform(p.m * (p.n + p.padding), shift, p.seed + 2),
             .shift = shift,
             .left = {nullptr, a_stride, p.transpose_a},
             .right = {nullptr, b_stride, p.transpose_b},
             .out_stride = p.n + p.padding};
  o.left.data = o.a.data() + shift;
  o.right.data = o.b.data() + shift;
  return o;
}

Floats multiply(Gemm gemm, const Product& p, std::int64_t shift) {
  Operands o = operands_of(p, shift);
  gemm(p.m, p.n, p.k, p.alpha, o.left, o.right, p.beta, o.out.data() + shift, o.out_stride);
  return {o.out.begin() + shift, o.out.end()};
}

double element(const ConstMatrix& matrix, std::int64_t row, std::int64_t column) {
  return matrix.transpose == Transpose::No ? matrix.data[row * matrix.stride + column]
                                           : matrix.data[column * matrix.stride + row];
}

/// An element and the largest error that any order of summation in single precision can make.
struct Expected {
  double value;
  double bound;
};

Expected expected_element(const Product& p, const Operands& o, std::int64_t i, std::int64_t j) {
  const double old = o.out[i * o.out_stride + j];
  if (j >= p.n) return {old, 0};
  double sum = 0;
  double magnitude = 0;
  for (std::int64_t k = 0; k < p.k; ++k) {
    const double term = element(o.left, i, k) * element(o.right, k, j);
    sum += term;
    magnitude += std::abs(term);
  }
  // Each term takes part in at most k + 3 roundings of 2^-24 (Higham, Accuracy and Stability of
  // Numerical Algorithms, section 3.1).
  const double roundings = static_cast<double>(p.k + 3) * std::ldexp(1.0, -24);
  return {p.alpha * sum + p.beta * old,
          1.001 * roundings * (std::abs(p.alpha) * magnitude + p.beta * std::abs(old))};
}

void expect_product(Gemm gemm, const Product& p) {
  const Operands o = operands_of(p, 0);
  const Floats actual = multiply(gemm, p, 0);
  for (std::int64_t i = 0; i < p.m; ++i)
    for (std::int64_t j = 0; j < o.out_stride; ++j) {
      const Expected expected = expected_element(p, o, i, j);
      RC_ASSERT(std::abs(actual[i * o.out_stride + j] - expected.value) <= expected.bound);
    }
}

RC_GTEST_PROP(GemmOneDnn, IsTheProductAndLeavesPaddingAlone, ()) {
  expect_product(gemm_onednn, *any_product());
}

RC_GTEST_PROP(GemmReference, IsTheProductAndLeavesPaddingAlone, ()) {
  expect_product(gemm_reference, *any_product());
}

RC_GTEST_PROP(GemmReference, DoesNotDependOnAlignment, ()) {
  const Product p = *any_product();
  const auto shift = *rc::gen::inRange<std::int64_t>(1, 16);
  RC_ASSERT(multiply(gemm_reference, p, shift) == multiply(gemm_reference, p, 0));
}

RC_GTEST_PROP(GemmOneDnn, DoesNotDependOnAlignment, ()) {
  const Product p = *any_product();
  const auto shift = *rc::gen::inRange<std::int64_t>(1, 16);
  RC_ASSERT(multiply(gemm_onednn, p, shift) == multiply(gemm_onednn, p, 0));
}

RC_GTEST_PROP(GemmReference, GivesAnElementTheSameBitsInAnyShape, ()) {
  const Product p = *any_product();
  const Operands o = operands_of(p, 0);
  const Floats whole = multiply(gemm_reference, p, 0);
  const auto i = *rc::gen::inRange<std::int64_t>(0, p.m);
  const auto j = *rc::gen::inRange<std::int64_t>(0, p.n);
  ConstMatrix row = o.left;
  row.data += p.transpose_a == Transpose::Yes ? i : i * row.stride;
  ConstMatrix column = o.right;
  column.data += p.transpose_b == Transpose::Yes ? j * column.stride : j;
  float alone = o.out[i * o.out_stride + j];
  gemm_reference(1, 1, p.k, p.alpha, row, column, p.beta, &alone, 1);
  RC_ASSERT(alone == whole[i * o.out_stride + j]);
}

TEST(Gemm, DoesNotReadStaleResults) {
  const Floats a{1.0F, 2.0F}, b{3.0F, 4.0F};
  for (const Gemm gemm : {gemm_onednn, gemm_reference}) {
    float out = std::nanf("");
    gemm(1, 1, 2, 1.0F, {a.data(), 2}, {b.data(), 1}, 0.0F, &out, 1);
    EXPECT_EQ(out, 11.0F);
  }
}

}  // namespace
}  // namespace shardplan::cpu
