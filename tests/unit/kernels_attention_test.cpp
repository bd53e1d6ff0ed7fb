#include <bit>

#include "kernels/kernels.h"
#include "tests/unit/kernel_testing.h"

namespace shardplan::cpu {
namespace {

struct Case {
  std::int64_t batch, time, heads, kv_heads, head_dim, window, block_rows;
  bool packed;  // q, k and v side by side in one tensor, as GPT-2 has them
};

/// Where q, k and v lie: three dense tensors one after the other, or one packed tensor.
struct Layout {
  std::int64_t query_stride, key_value_stride;  // of a token
  std::int64_t k, v, elems;                     // offsets from q, and everything together
};

Layout layout_of(const Case& c) {
  const std::int64_t query = c.heads * c.head_dim;
  const std::int64_t key = c.kv_heads * c.head_dim;
  const std::int64_t tokens = c.batch * c.time;
  if (c.packed)
    return {query + 2 * key, query + 2 * key, query, query + key, tokens * (query + 2 * key)};
  return {query, key, tokens * query, tokens * (query + key), tokens * (query + 2 * key)};
}

AttentionShape shape_of(const Case& c) {
  const Layout layout = layout_of(c);
  return {.batch = c.batch,
          .time = c.time,
          .heads = c.heads,
          .kv_heads = c.kv_heads,
          .head_dim = c.head_dim,
          .scale = 0.7F,
          .window = c.window,
          .query_stride = layout.query_stride,
          .key_value_stride = layout.key_value_stride,
          .block_rows = c.block_rows};
}

/// Attention over `qkv` laid out as `layout_of` says; also the logs of the sums of exponentials.
struct Reference {
  Doubles out;
  Doubles lse;
};

Reference reference(const Case& c, const Doubles& qkv) {
  const Layout at = layout_of(c);
  Reference result{Doubles(c.batch * c.time * c.heads * c.head_dim),
                   Doubles(c.batch * c.heads * c.time)};
  for (std::int64_t b = 0; b < c.batch; ++b)
    for (std::int64_t head = 0; head < c.heads; ++head)
      for (std::int64_t i = 0; i < c.time; ++i) {
        const std::int64_t kv_offset = head / (c.heads / c.kv_heads) * c.head_dim;
        const double* q = &qkv[(b * c.time + i) * at.query_stride + head * c.head_dim];
        double* out = &result.out[((b * c.time + i) * c.heads + head) * c.head_dim];
        double sum = 0;
        for (std::int64_t j = 0; j <= i; ++j) {
          if (c.window > 0 && j <= i - c.window) continue;
          const std::int64_t token = (b * c.time + j) * at.key_value_stride + kv_offset;
          double score = 0;
          for (std::int64_t d = 0; d < c.head_dim; ++d)
            score += q[d] * qkv[at.k + token + d];
          const double weight = std::exp(score * shape_of(c).scale);
          sum += weight;
          for (std::int64_t d = 0; d < c.head_dim; ++d)
            out[d] += weight * qkv[at.v + token + d];
        }
        for (std::int64_t d = 0; d < c.head_dim; ++d)
          out[d] /= sum;
        result.lse[(b * c.heads + head) * c.time + i] = std::log(sum);
      }
  return result;
}

/// What nobody computes by chance.
const float kPattern = std::bit_cast<float>(0xFFA5A5A5U);

std::int64_t untouched(const Floats& values) {
  return std::ranges::count_if(values, [](float value) {
    return std::bit_cast<std::uint32_t>(value) == std::bit_cast<std::uint32_t>(kPattern);
  });
}

class Attention : public testing::TestWithParam<std::tuple<Gemm, Case>> {
 protected:
  const Gemm gemm = std::get<0>(GetParam());
  const Case shape_case = std::get<1>(GetParam());
  const AttentionShape shape = shape_of(shape_case);
  const Layout at = layout_of(shape_case);
  const std::int64_t tile = attention_tile_elems(shape.time, shape.block_rows);
  const Floats qkv = random_floats(at.elems, 1);
  Floats out = stale(shape.batch * shape.time * shape.heads * shape.head_dim);
  Floats lse = stale(shape.batch * shape.heads * shape.time);
  Floats workspace = Floats(tile, kPattern);

  void forward() {
    attention(gemm, qkv.data(), qkv.data() + at.k, qkv.data() + at.v, out.data(), lse.data(),
              workspace.data(), shape);
  }
};

INSTANTIATE_TEST_SUITE_P(
    GemmsAndShapes, Attention,
    testing::Combine(testing::Values(gemm_onednn, gemm_reference),
                     testing::Values(Case{1, 1, 1, 1, 1, 0, 64, false},  // one token
                                     Case{2, 7, 3, 3, 5, 0, 3, false},   // a smaller last tile
                                     Case{1, 8, 4, 2, 3, 0, 4, false},   // grouped queries
                                     Case{2, 6, 9, 1, 6, 0, 64, false},  // one key head, one tile
                                     Case{2, 7, 3, 3, 4, 0, 2, true},    // packed
                                     Case{1, 9, 2, 1, 4, 3, 2, false},   // window
                                     Case{1, 9, 2, 2, 4, 1, 4, true},    // sees itself alone
                                     Case{1, 5, 2, 2, 4, 50, 4, false})));  // window beyond all

TEST_P(Attention, EqualsItsFormula) {
  forward();
  const Reference expected = reference(shape_case, widen(qkv));
  expect_close(out, expected.out);
  expect_close(lse, expected.lse);
}

TEST_P(Attention, GradientsEqualFiniteDifferences) {
  forward();
  const Floats grad_out = random_floats(std::ssize(out), 2);
  const Doubles expected = numeric_gradient(
      [&](const Doubles& v) { return dot(reference(shape_case, v).out, grad_out); }, widen(qkv));
  Floats gradient = stale(at.elems);
  workspace.assign(2 * tile, kPattern);
  attention_backward(gemm, grad_out.data(), qkv.data(), qkv.data() + at.k, qkv.data() + at.v,
                     out.data(), lse.data(), gradient.data(), gradient.data() + at.k,
                     gradient.data() + at.v, workspace.data(), shape);
  expect_close(gradient, expected, 5e-6);
  EXPECT_EQ(untouched(workspace), 0);
}

TEST_P(Attention, WritesItsWholeWorkspaceAndNothingElse) {
  const std::int64_t guard = 64;
  workspace.resize(tile + guard, kPattern);
  forward();
  EXPECT_EQ(untouched(workspace), guard);
  EXPECT_EQ(untouched({workspace.end() - guard, workspace.end()}), guard);
}

TEST(AttentionTile, IsTheLargestProductOfRowsAndKeys) {
  EXPECT_EQ(attention_tile_elems(1, 64), 1);
  EXPECT_EQ(attention_tile_elems(64, 64), 64 * 64);
  EXPECT_EQ(attention_tile_elems(65, 64), 64 * 64);  // the last row alone has 65 keys
  EXPECT_EQ(attention_tile_elems(100, 64), 64 * 64);
  EXPECT_EQ(attention_tile_elems(127, 64), 63 * 127);
  EXPECT_EQ(attention_tile_elems(1024, 64), 64 * 1024);
}

TEST(Attention, SurvivesScoresWhoseExponentialsOverflow) {
  const Case two_tokens{1, 2, 1, 1, 1, 0, 64, false};
  const Floats q{1000.0F, 1000.0F}, k{1.0F, -1.0F}, v{3.0F, 5.0F};
  Floats out = stale(2), lse = stale(2), workspace = stale(4);
  attention(gemm_reference, q.data(), k.data(), v.data(), out.data(), lse.data(), workspace.data(),
            shape_of(two_tokens));
  EXPECT_EQ(out, (Floats{3.0F, 3.0F}));
  EXPECT_NEAR(lse[1], 700.0F, 1e-4F);
}

}  // namespace
}  // namespace shardplan::cpu
