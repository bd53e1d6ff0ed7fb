// Every CUDA kernel against its twin on the CPU, over random shapes, odd sizes and alignments, in
// both precisions. Sums are added in another order; all else is the same arithmetic.
#include <functional>

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/linear.h"
#include "kernels/kernels.h"
#include "kernels/pattern.h"
#include "tests/fake_cuda/testing.h"

namespace shardplan {
namespace {

using fake_cuda::testing::Memory;
using fake_cuda::testing::TestStream;
using fake_cuda::testing::TestTensor;

/// One random draw: a precision, and shapes and tensors that follow from its number.
class Draw {
 public:
  explicit Draw(unsigned number) : narrow(number % 2 == 1), random_(number) {}

  std::int64_t from(std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(random_() % static_cast<unsigned>(most - least + 1));
  }
  Store store() { return random_() % 2 == 0 ? Store::Overwrite : Store::Accumulate; }
  /// Random values; not always where 16 bytes can be moved at once.
  std::unique_ptr<TestTensor> tensor(std::int64_t elems, float scale = 1) {
    auto made = std::make_unique<TestTensor>(elems, narrow, from(0, 3) == 0 ? from(1, 7) : 0);
    made->randomize(random_, scale);
    return made;
  }
  /// In float32 whatever the draw's precision: statistics, optimizer states.
  std::unique_ptr<TestTensor> wide(std::int64_t elems) {
    auto made = std::make_unique<TestTensor>(elems, false, from(0, 1) * 4);
    made->randomize(random_);
    return made;
  }

  const bool narrow;
  const TestStream stream;

 private:
  std::mt19937 random_;
};

class Kernels : public ::testing::TestWithParam<unsigned> {
 protected:
  void SetUp() override { fake_cuda::set_schedule(fake_cuda::Schedule::Lazy, GetParam()); }
  void TearDown() override { EXPECT_EQ(fake_cuda::take_fault(), ""); }
  void finish() { ASSERT_EQ(draw.stream.finish(), cudaSuccess); }

  Draw draw{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Draws, Kernels, ::testing::Range(0U, 12U));

TEST_P(Kernels, OfSingleElements) {
  const std::int64_t elems = draw.from(1, 700);
  const auto a = draw.tensor(elems, 4);
  const auto b = draw.tensor(elems);
  const auto grad = draw.tensor(elems);
  const auto expect = [&](const char* what, const std::function<void(cuda::Floats)>& run,
                          const std::function<void(float*)>& twin) {
    const auto out = draw.tensor(elems);
    run(out->out());
    finish();
    twin(out->twin());
    out->expect_same(what);
  };
  expect(
      "add", [&](cuda::Floats out) { cuda::add(a->in(), b->in(), out, draw.stream); },
      [&](float* out) { cpu::add(a->twin(), b->twin(), out, elems); });
  expect(
      "scale", [&](cuda::Floats out) { cuda::scale(a->in(), 0.3F, out, draw.stream); },
      [&](float* out) { cpu::scale(a->twin(), 0.3F, out, elems); });
  expect(
      "swiglu", [&](cuda::Floats out) { cuda::swiglu(a->in(), b->in(), out, draw.stream); },
      [&](float* out) { cpu::swiglu(a->twin(), b->twin(), out, elems); });
  for (const GeluKind kind : {GeluKind::Erf, GeluKind::Tanh}) {
    expect(
        "gelu", [&](cuda::Floats out) { cuda::gelu(a->in(), out, kind, draw.stream); },
        [&](float* out) { cpu::gelu(a->twin(), out, elems, kind); });
    expect(
        "gelu_backward",
        [&](cuda::Floats out) { cuda::gelu_backward(grad->in(), a->in(), out, kind, draw.stream); },
        [&](float* out) { cpu::gelu_backward(grad->twin(), a->twin(), out, elems, kind); });
  }
  const auto grad_gate = draw.tensor(elems);
  expect(
      "swiglu_backward",
      [&](cuda::Floats out) {
        cuda::swiglu_backward(grad->in(), a->in(), b->in(), grad_gate->out(), out, draw.stream);
      },
      [&](float* out) {
        cpu::swiglu_backward(grad->twin(), a->twin(), b->twin(), grad_gate->twin(), out, elems);
      });
  grad_gate->expect_same("swiglu_backward, gate");
}

TEST_P(Kernels, OfConversionsAndMixedSums) {
  const std::int64_t elems = draw.from(1, 300);
  const auto x = draw.tensor(elems);
  const auto sum = draw.wide(elems);
  const auto out = draw.tensor(elems);
  cuda::add(sum->in(), x->in(), sum->out(), draw.stream);
  cuda::convert(sum->in(), out->out(), draw.stream);
  finish();
  cpu::add(sum->twin(), x->twin(), sum->twin(), elems);
  out->values = sum->values;
  sum->expect_same("add");
  out->expect_same("convert");
}

TEST_P(Kernels, OfNorms) {
  const std::int64_t rows = draw.from(1, 40);
  const std::int64_t channels = draw.from(1, 150);
  const auto x = draw.tensor(rows * channels);
  const auto weight = draw.tensor(channels);
  const auto bias = draw.tensor(channels);
  const auto grad = draw.tensor(rows * channels);
  const auto out = draw.tensor(rows * channels);
  const auto mean = draw.wide(rows);
  const auto rstd = draw.wide(rows);
  const auto grad_x = draw.tensor(rows * channels);
  const auto grad_weight = draw.tensor(channels);
  const auto grad_bias = draw.tensor(channels);
  const Store store = draw.store();
  const Store store_weight = draw.store();

  cuda::rms_norm(x->in(), weight->in(), out->out(), rstd->out(), channels, 1e-5F, draw.stream);
  finish();
  cpu::rms_norm(x->twin(), weight->twin(), out->twin(), rstd->twin(), rows, channels, 1e-5F);
  out->expect_same("rms_norm");
  rstd->expect_same("rms_norm, rstd");
  cuda::rms_norm_backward(grad->in(), x->in(), weight->in(), rstd->in(), grad_x->out(),
                          grad_weight->out(), store, store_weight, draw.stream);
  finish();
  cpu::rms_norm_backward(grad->twin(), x->twin(), weight->twin(), rstd->twin(), grad_x->twin(),
                         grad_weight->twin(), rows, channels, store, store_weight);
  grad_x->expect_same("rms_norm_backward");
  grad_weight->expect_same("rms_norm_backward, weight");

  cuda::layer_norm(x->in(), weight->in(), bias->in(), out->out(), mean->out(), rstd->out(),
                   channels, 1e-5F, draw.stream);
  finish();
  cpu::layer_norm(x->twin(), weight->twin(), bias->twin(), out->twin(), mean->twin(), rstd->twin(),
                  rows, channels, 1e-5F);
  out->expect_same("layer_norm");
  mean->expect_same("layer_norm, mean");
  for (const auto& [tensor, elems] : {std::pair(grad_x.get(), rows * channels)})
    tensor->values.assign(static_cast<std::size_t>(elems), 0);
  cuda::layer_norm_backward(grad->in(), x->in(), weight->in(), mean->in(), rstd->in(),
                            grad_x->out(), grad_weight->out(), grad_bias->out(), Store::Overwrite,
                            Store::Overwrite, store_weight, draw.stream);
  finish();
  cpu::layer_norm_backward(grad->twin(), x->twin(), weight->twin(), mean->twin(), rstd->twin(),
                           grad_x->twin(), grad_weight->twin(), grad_bias->twin(), rows, channels,
                           Store::Overwrite, Store::Overwrite, store_weight);
  // One channel has no deviation, but what is lost when 1/std is multiplied with.
  grad_x->expect_same("layer_norm_backward", channels == 1 ? 1 : 4e-6F);
  grad_weight->expect_same("layer_norm_backward, weight");
  grad_bias->expect_same("layer_norm_backward, bias");
}

TEST_P(Kernels, OfEmbeddings) {
  const std::int64_t batch = draw.from(1, 4);
  const std::int64_t time = draw.from(1, 20);
  const std::int64_t rows = batch * time;
  const std::int64_t vocab = draw.from(2, 12);
  const std::int64_t channels = draw.from(1, 300);
  const Memory<std::int32_t> tokens(rows);
  for (std::int32_t& token : tokens.span())
    token = static_cast<std::int32_t>(draw.from(0, vocab - 1));
  const auto weight = draw.tensor(vocab * channels);
  const auto positions = draw.tensor((time + 2) * channels);
  const auto out = draw.tensor(rows * channels);
  const auto grad = draw.tensor(rows * channels);
  const auto grad_weight = draw.tensor(vocab * channels);
  const auto grad_positions = draw.tensor((time + 2) * channels);
  const Store store = draw.store();

  cuda::embedding(tokens.span(), weight->in(), out->out(), channels, draw.stream);
  cuda::position_embedding(out->in(), positions->in(), out->out(), time * channels, draw.stream);
  cuda::embedding_backward(grad->in(), tokens.span(), grad_weight->out(), channels, store,
                           draw.stream);
  cuda::position_embedding_backward(grad->in(), grad_positions->out(), time * channels, store,
                                    draw.stream);
  finish();
  cpu::embedding(tokens.span().data(), weight->twin(), out->twin(), rows, vocab, channels);
  cpu::position_embedding(out->twin(), positions->twin(), out->twin(), batch, time, channels);
  cpu::embedding_backward(grad->twin(), tokens.span().data(), grad_weight->twin(), rows, vocab,
                          channels, store);
  cpu::position_embedding_backward(grad->twin(), grad_positions->twin(), batch, time, time + 2,
                                   channels, store);
  out->expect_same("embedding and position_embedding");
  grad_weight->expect_same("embedding_backward");
  grad_positions->expect_same("position_embedding_backward");
}

TEST_P(Kernels, OfRope) {
  RopeShape shape{.batch = draw.from(1, 3),
                  .time = draw.from(1, 30),
                  .heads = draw.from(1, 4),
                  .head_dim = 2 * draw.from(1, 20),
                  .theta = 10000};
  if (draw.from(0, 1) == 1) {
    shape.factor = 8;
    shape.low_frequency = 1;
    shape.high_frequency = 4;
    shape.original_context = 64;
  }
  const std::int64_t elems = shape.batch * shape.time * shape.heads * shape.head_dim;
  for (const RopeDirection direction : {RopeDirection::Forward, RopeDirection::Backward}) {
    const auto x = draw.tensor(elems);
    cuda::rope(x->in(), x->out(), shape, direction, draw.stream);
    finish();
    cpu::rope(x->twin(), x->twin(), shape, direction);
    x->expect_same("rope");
  }
}

TEST_P(Kernels, OfAttention) {
  const std::int64_t kv_heads = draw.from(1, 3);
  const std::int64_t sharing = draw.from(1, 3);
  const std::int64_t dims[] = {draw.from(1, 64), draw.from(65, 128), draw.from(129, 160)};
  AttentionShape shape{.batch = draw.from(1, 2),
                       .time = draw.from(1, 70),
                       .heads = kv_heads * sharing,
                       .kv_heads = kv_heads,
                       .head_dim = dims[GetParam() % 3],
                       .scale = 0.25F,
                       .window = draw.from(0, 1) * draw.from(1, 40),
                       .query_stride = 0,
                       .key_value_stride = 0,
                       .block_rows = 16};
  if (GetParam() == 3) {  // one query more than tiles of 32 sees the last key of a block of rows
    shape.time = 70;
    shape.window = 26;
  }
  shape.query_stride = shape.heads * shape.head_dim;
  shape.key_value_stride = kv_heads * shape.head_dim;
  const std::int64_t rows = shape.batch * shape.time;
  const auto q = draw.tensor(rows * shape.query_stride);
  const auto k = draw.tensor(rows * shape.key_value_stride);
  const auto v = draw.tensor(rows * shape.key_value_stride);
  const auto out = draw.tensor(rows * shape.query_stride);
  const auto lse = draw.wide(rows * shape.heads);
  const auto grad = draw.tensor(rows * shape.query_stride);
  const auto grad_q = draw.tensor(rows * shape.query_stride);
  const auto grad_k = draw.tensor(rows * shape.key_value_stride);
  const auto grad_v = draw.tensor(rows * shape.key_value_stride);
  const Memory<float> row_dots(rows * shape.heads);
  std::vector<float> workspace(
      static_cast<std::size_t>(2 * cpu::attention_tile_elems(shape.time, shape.block_rows)));

  cuda::attention(q->in(), k->in(), v->in(), out->out(), lse->out(), shape, draw.stream);
  finish();
  cpu::attention(cpu::gemm_reference, q->twin(), k->twin(), v->twin(), out->twin(), lse->twin(),
                 workspace.data(), shape);
  out->expect_same("attention", 4e-6F);
  lse->expect_same("attention, lse");
  // From here on both know what forward gave, rounded alike.
  for (std::size_t i = 0; draw.narrow && i < out->values.size(); ++i)
    out->values[i] = out->rounded_at(i);
  cuda::attention_backward(grad->in(), q->in(), k->in(), v->in(), out->in(), lse->in(),
                           grad_q->out(), grad_k->out(), grad_v->out(), row_dots.span(), shape,
                           draw.stream);
  finish();
  cpu::attention_backward(cpu::gemm_reference, grad->twin(), q->twin(), k->twin(), v->twin(),
                          out->twin(), lse->twin(), grad_q->twin(), grad_k->twin(), grad_v->twin(),
                          workspace.data(), shape);
  grad_q->expect_same("attention_backward, q", 1e-5F, 0.1F);
  grad_k->expect_same("attention_backward, k", 1e-5F, 0.1F);
  grad_v->expect_same("attention_backward, v", 1e-5F);
}

TEST_P(Kernels, OfCrossEntropy) {
  const std::int64_t rows = draw.from(1, 30);
  const LogitsShape shape{
      .rows = rows, .vocab = draw.from(2, 600), .first = draw.from(0, 9), .all = rows + 9};
  const Memory<std::int32_t> targets(shape.all);
  for (std::int32_t& target : targets.span())
    target = draw.from(0, 4) == 0 ? kIgnoredTarget
                                  : static_cast<std::int32_t>(draw.from(0, shape.vocab - 1));
  targets.span()[static_cast<std::size_t>(shape.first)] = 1;
  const auto logits = draw.tensor(rows * shape.vocab, 5);
  const Memory<double> loss(1);
  const Memory<double> partials(draw.from(2, 20));
  const Store store = draw.store();
  double twin = loss.span()[0] = 3;
  cuda::cross_entropy(logits->in(), targets.span(), loss.span(), logits->out(), partials.span(),
                      shape, 2, store, draw.stream);
  finish();
  cpu::cross_entropy(logits->twin(), targets.span().data(), &twin, logits->twin(), shape, 2, store);
  EXPECT_NEAR(loss.span()[0], twin, 1e-6);
  logits->expect_same("cross_entropy");
}

TEST_P(Kernels, OfOptimizers) {
  const std::int64_t elems = draw.from(1, 500);
  const auto grad = draw.wide(elems);
  const auto coefficient = draw.wide(1);
  const auto parameter = draw.wide(elems);
  const auto first = draw.wide(elems);
  const auto second = draw.wide(elems);
  for (float& value : second->values)
    value = std::abs(value);
  std::ranges::copy(second->values, reinterpret_cast<float*>(second->out().bytes().data()));
  const AdamStep adam{
      .lr = 1e-2,
      .beta1 = 0.9,
      .beta2 = 0.95,
      .eps = 1e-8,
      .weight_decay = 0.1,
      .bias_correction1 = 0.1,
      .bias_correction2 = 0.05,
      .decay = GetParam() % 3 == 0 ? AdamStep::Decay::Coupled : AdamStep::Decay::Decoupled};
  const SgdStep sgd{.lr = 1e-2, .momentum = 0.9, .weight_decay = 0.1};
  const Memory<StepFactors> now(1);
  now.span()[0] = {adam.lr, adam.bias_correction1, adam.bias_correction2};
  AdamStep adam_of_the_run = adam;
  adam_of_the_run.lr = adam_of_the_run.bias_correction1 = adam_of_the_run.bias_correction2 = 7;
  const SgdStep sgd_of_the_run{.lr = 7, .momentum = 0.9, .weight_decay = 0.1};
  cuda::adam(grad->in(), coefficient->in(), parameter->out(), first->out(), second->out(),
             adam_of_the_run, now.span(), draw.stream);
  cuda::sgd(grad->in(), coefficient->in(), parameter->out(), first->out(), sgd_of_the_run,
            now.span(), draw.stream);
  cuda::sgd(grad->in(), coefficient->in(), parameter->out(), cuda::Floats(), sgd_of_the_run,
            now.span(), draw.stream);
  finish();
  const float scale = coefficient->values[0];
  cpu::adam(grad->twin(), scale, parameter->twin(), first->twin(), second->twin(), elems, adam);
  cpu::sgd(grad->twin(), scale, parameter->twin(), first->twin(), elems, sgd);
  cpu::sgd(grad->twin(), scale, parameter->twin(), nullptr, elems, sgd);
  parameter->expect_same("parameter", 0);
  first->expect_same("exp_avg", 0);
  second->expect_same("exp_avg_sq", 0);
}

TEST_P(Kernels, OfNormsOfGradients) {
  const auto x = draw.wide(draw.from(1, 9000));
  const auto y = draw.wide(draw.from(1, 100));
  const auto norm = draw.wide(1);
  const auto coefficient = draw.wide(1);
  const Memory<double> sum(1);
  const Memory<double> partials(draw.from(1, 9));
  const float most = draw.from(0, 1) == 0 ? 0.0F : 1.0F;
  cuda::sum_squares(x->in(), sum.span(), partials.span(), Store::Overwrite, draw.stream);
  cuda::sum_squares(y->in(), sum.span(), partials.span(), Store::Accumulate, draw.stream);
  cuda::gradient_norm(sum.span(), most, norm->out(), coefficient->out(), draw.stream);
  finish();
  const double twin = cpu::sum_squares(x->twin(), static_cast<std::int64_t>(x->values.size())) +
                      cpu::sum_squares(y->twin(), static_cast<std::int64_t>(y->values.size()));
  EXPECT_NEAR(sum.span()[0], twin, 1e-12 * twin);
  norm->values = {static_cast<float>(std::sqrt(twin))};
  norm->expect_same("norm");
  coefficient->values = {most > 0 ? std::min(1.0F, most / (norm->values[0] + 1e-6F)) : 1.0F};
  coefficient->expect_same("coefficient");
}

TEST_P(Kernels, OfLinearLayers) {
  const LinearShape shape{draw.from(1, 20), draw.from(1, 30), draw.from(1, 30),
                          draw.from(0, 1) == 0 ? WeightLayout::OutIn : WeightLayout::InOut};
  const auto x = draw.tensor(shape.rows * shape.in_features);
  const auto weight = draw.tensor(shape.in_features * shape.out_features);
  const auto bias = draw.tensor(shape.out_features);
  const auto out = draw.tensor(shape.rows * shape.out_features);
  const auto grad_x = draw.tensor(shape.rows * shape.in_features);
  const auto grad_weight = draw.tensor(shape.in_features * shape.out_features);
  const auto grad_bias = draw.tensor(shape.out_features);
  const bool biased = draw.from(0, 1) == 1;
  const Store store = draw.store();
  const Memory<std::byte> workspace(1024);
  cuda::Products products(workspace.span());
  const auto grad = draw.tensor(shape.rows * shape.out_features);

  cuda::linear(products, x->in(), weight->in(), biased ? bias->in() : cuda::ConstFloats(),
               out->out(), shape, draw.stream);
  cuda::linear_backward_input(products, grad->in(), weight->in(), grad_x->out(), shape, store,
                              draw.stream);
  cuda::linear_backward_weight(products, grad->in(), x->in(), grad_weight->out(), shape, store,
                               draw.stream);
  cuda::sum_rows(grad->in(), grad_bias->out(), store, draw.stream);
  finish();
  cpu::linear(cpu::gemm_reference, x->twin(), weight->twin(), biased ? bias->twin() : nullptr,
              out->twin(), shape);
  cpu::linear_backward_input(cpu::gemm_reference, grad->twin(), weight->twin(), grad_x->twin(),
                             shape, store);
  cpu::linear_backward_weight(cpu::gemm_reference, grad->twin(), x->twin(), grad_weight->twin(),
                              shape, store);
  cpu::linear_backward_bias(grad->twin(), grad_bias->twin(), shape, store);
  out->expect_same("linear");
  grad_x->expect_same("linear_backward_input");
  grad_weight->expect_same("linear_backward_weight");
  grad_bias->expect_same("linear_backward_bias");
}

TEST_P(Kernels, OfPatternsCountWhatWasWritten) {
  const Memory<std::byte> memory(60'000);  // several blocks, or less than one
  const auto begin = static_cast<std::size_t>(draw.from(0, 9));
  const std::int64_t bytes = draw.from(0, 1) == 0 ? draw.from(20, 300) : draw.from(20'000, 59'000);
  const std::span<std::byte> part = memory.span().subspan(begin, static_cast<std::size_t>(bytes));
  const Memory<std::int64_t> changed(1);
  const Memory<double> partials(draw.from(1, 9));
  cuda::fill_pattern(part, draw.stream);
  cuda::count_changed(part, changed.span(), partials.span(), draw.stream);
  finish();
  EXPECT_EQ(changed.span()[0], 0);
  EXPECT_EQ(memory.span()[begin + part.size()], std::byte{0xff});
  if (begin > 0) {
    EXPECT_EQ(memory.span()[begin - 1], std::byte{0xff});
  }
  part.back() ^= std::byte{1};
  part.front() ^= std::byte{1};
  const auto address = reinterpret_cast<std::uintptr_t>(part.data());
  const std::uintptr_t end = address + part.size();
  cuda::count_changed(part, changed.span(), partials.span(), draw.stream);
  finish();
  EXPECT_EQ(changed.span()[0], static_cast<std::int64_t>(pattern_word_end(address, end) - address +
                                                         (end - 1) % 4 + 1));
}

}  // namespace
}  // namespace shardplan
