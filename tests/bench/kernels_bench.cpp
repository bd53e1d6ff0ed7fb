#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "kernels/kernels.h"

namespace shardplan::cpu {
namespace {

using Floats = std::vector<float>;

/// Between -1 and 1, without a pattern that a kernel could profit from.
Floats values(std::int64_t count) {
  Floats result(count);
  std::uint32_t bits = 1;
  for (float& value : result) {
    bits = bits * 1664525U + 1013904223U;
    value = static_cast<float>(bits) / 2147483648.0F - 1.0F;
  }
  return result;
}

void report_flops(benchmark::State& state, double flops) {
  state.counters["FLOP/s"] =
      benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}

/// `floats`: read and written by one iteration, each once.
void report_traffic(benchmark::State& state, std::int64_t floats) {
  state.SetBytesProcessed(state.iterations() * floats * 4);
}

template <Gemm gemm>
void bench_gemm(benchmark::State& state) {
  const std::int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  const Floats a = values(m * k), b = values(k * n);
  Floats out(m * n);
  for (auto _ : state) {
    gemm(m, n, k, 1.0F, {a.data(), k}, {b.data(), k, Transpose::Yes}, 0.0F, out.data(), n);
    benchmark::ClobberMemory();
  }
  report_flops(state, 2.0 * static_cast<double>(m * n * k));
}
void product_sizes(benchmark::internal::Benchmark* bench) {
  bench->Args({64, 64, 64})->Args({512, 768, 768})->Args({1024, 1024, 64})->Args({64, 64, 1024});
  bench->Args({1024, 2048, 1024});
}
BENCHMARK_TEMPLATE(bench_gemm, gemm_onednn)->Name("Gemm/onednn")->Apply(product_sizes);
BENCHMARK_TEMPLATE(bench_gemm, gemm_reference)->Name("Gemm/reference")->Apply(product_sizes);

/// GPT-2's heads; the flops are those of the causal half.
struct AttentionOperands {
  AttentionShape shape;
  Floats q, k, v, out, lse, grad_out, grad_q, grad_k, grad_v, workspace;

  AttentionOperands(std::int64_t time, std::int64_t block_rows)
      : shape{.batch = 1,
              .time = time,
              .heads = 4,
              .kv_heads = 2,
              .head_dim = 64,
              .scale = 0.125F,
              .query_stride = 256,
              .key_value_stride = 128,
              .block_rows = block_rows},
        q(values(time * 256)),
        k(values(time * 128)),
        v(values(time * 128)),
        out(time * 256),
        lse(4 * time),
        grad_out(values(time * 256)),
        grad_q(time * 256),
        grad_k(time * 128),
        grad_v(time * 128),
        workspace(2 * attention_tile_elems(time, block_rows)) {}

  void forward() {
    attention(gemm_onednn, q.data(), k.data(), v.data(), out.data(), lse.data(), workspace.data(),
              shape);
  }
  void backward() {
    attention_backward(gemm_onednn, grad_out.data(), q.data(), k.data(), v.data(), out.data(),
                       lse.data(), grad_q.data(), grad_k.data(), grad_v.data(), workspace.data(),
                       shape);
  }
  double forward_flops() const {
    const auto time = static_cast<double>(shape.time);
    return 4.0 * 4 * 64 * time * (time + 1) / 2;
  }
};
void attention_sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"time", "block"})->Args({128, 64})->Args({1024, 64})->Args({1024, 128});
}

void bench_attention(benchmark::State& state) {
  AttentionOperands operands(state.range(0), state.range(1));
  for (auto _ : state)
    operands.forward();
  report_flops(state, operands.forward_flops());
}
BENCHMARK(bench_attention)->Name("Attention")->Apply(attention_sizes);

void bench_attention_backward(benchmark::State& state) {
  AttentionOperands operands(state.range(0), state.range(1));
  operands.forward();
  for (auto _ : state)
    operands.backward();
  report_flops(state, 2.5 * operands.forward_flops());
}
BENCHMARK(bench_attention_backward)->Name("AttentionBackward")->Apply(attention_sizes);

constexpr std::int64_t kRows = 512;
constexpr std::int64_t kChannels = 768;
constexpr std::int64_t kElems = kRows * kChannels;

void bench_rms_norm(benchmark::State& state) {
  const Floats x = values(kElems), weight = values(kChannels);
  Floats out(kElems), rstd(kRows);
  for (auto _ : state) {
    rms_norm(x.data(), weight.data(), out.data(), rstd.data(), kRows, kChannels, 1e-5F);
    benchmark::ClobberMemory();
  }
  report_traffic(state, 2 * kElems);
}
BENCHMARK(bench_rms_norm)->Name("RmsNorm");

void bench_rms_norm_backward(benchmark::State& state) {
  const Floats x = values(kElems), weight = values(kChannels), grad_out = values(kElems);
  const Floats rstd(kRows, 1.7F);
  Floats grad_x(kElems), grad_weight(kChannels);
  for (auto _ : state) {
    rms_norm_backward(grad_out.data(), x.data(), weight.data(), rstd.data(), grad_x.data(),
                      grad_weight.data(), kRows, kChannels, Store::Overwrite, Store::Overwrite);
    benchmark::ClobberMemory();
  }
  report_traffic(state, 3 * kElems);
}
BENCHMARK(bench_rms_norm_backward)->Name("RmsNormBackward");

void bench_layer_norm(benchmark::State& state) {
  const Floats x = values(kElems), weight = values(kChannels), bias = values(kChannels);
  Floats out(kElems), mean(kRows), rstd(kRows);
  for (auto _ : state) {
    layer_norm(x.data(), weight.data(), bias.data(), out.data(), mean.data(), rstd.data(), kRows,
               kChannels, 1e-5F);
    benchmark::ClobberMemory();
  }
  report_traffic(state, 2 * kElems);
}
BENCHMARK(bench_layer_norm)->Name("LayerNorm");

void bench_layer_norm_backward(benchmark::State& state) {
  const Floats x = values(kElems), weight = values(kChannels), grad_out = values(kElems);
  const Floats mean(kRows, 0.1F), rstd(kRows, 1.7F);
  Floats grad_x(kElems), grad_weight(kChannels), grad_bias(kChannels);
  for (auto _ : state) {
    layer_norm_backward(grad_out.data(), x.data(), weight.data(), mean.data(), rstd.data(),
                        grad_x.data(), grad_weight.data(), grad_bias.data(), kRows, kChannels,
                        Store::Overwrite, Store::Overwrite, Store::Overwrite);
    benchmark::ClobberMemory();
  }
  report_traffic(state, 3 * kElems);
}
BENCHMARK(bench_layer_norm_backward)->Name("LayerNormBackward");

void bench_rope(benchmark::State& state) {
  const RopeShape shape{.batch = 1, .time = kRows, .heads = 12, .head_dim = 64, .theta = 10000};
  const Floats x = values(kElems);
  Floats out(kElems);
  for (auto _ : state) {
    rope(x.data(), out.data(), shape, RopeDirection::Forward);
    benchmark::ClobberMemory();
  }
  report_traffic(state, 2 * kElems);
}
BENCHMARK(bench_rope)->Name("Rope");

void bench_swiglu(benchmark::State& state) {
  const Floats gate = values(kElems), up = values(kElems);
  Floats out(kElems);
  for (auto _ : state) {
    swiglu(gate.data(), up.data(), out.data(), kElems);
    benchmark::ClobberMemory();
  }
  report_traffic(state, 3 * kElems);
}
BENCHMARK(bench_swiglu)->Name("SwiGlu");

void bench_swiglu_backward(benchmark::State& state) {
  const Floats gate = values(kElems), up = values(kElems), grad_out = values(kElems);
  Floats grad_gate(kElems), grad_up(kElems);
  for (auto _ : state) {
    swiglu_backward(grad_out.data(), gate.data(), up.data(), grad_gate.data(), grad_up.data(),
                    kElems);
    benchmark::ClobberMemory();
  }
  report_traffic(state, 5 * kElems);
}
BENCHMARK(bench_swiglu_backward)->Name("SwiGluBackward");

template <GeluKind kind>
void bench_gelu(benchmark::State& state) {
  const Floats x = values(kElems);
  Floats out(kElems);
  for (auto _ : state) {
    gelu(x.data(), out.data(), kElems, kind);
    benchmark::ClobberMemory();
  }
  report_traffic(state, 2 * kElems);
}
BENCHMARK_TEMPLATE(bench_gelu, GeluKind::Tanh)->Name("Gelu/tanh");
BENCHMARK_TEMPLATE(bench_gelu, GeluKind::Erf)->Name("Gelu/erf");

void bench_cross_entropy(benchmark::State& state) {
  const std::int64_t rows = 32, vocab = 32000;
  const Floats logits = values(rows * vocab);
  const std::vector<std::int32_t> targets(rows, 17);
  Floats gradient(rows * vocab);
  double loss = 0;
  for (auto _ : state) {
    cross_entropy(logits.data(), targets.data(), &loss, gradient.data(), {rows, vocab, 0, rows}, 1,
                  Store::Overwrite);
    benchmark::ClobberMemory();
  }
  report_traffic(state, 2 * rows * vocab);
}
BENCHMARK(bench_cross_entropy)->Name("CrossEntropy");

void bench_sum_squares(benchmark::State& state) {
  const Floats x = values(1 << 22);
  for (auto _ : state)
    benchmark::DoNotOptimize(sum_squares(x.data(), 1 << 22));
  report_traffic(state, 1 << 22);
}
BENCHMARK(bench_sum_squares)->Name("SumSquares");

void bench_adam(benchmark::State& state) {
  const std::int64_t elems = 1 << 22;  // 64 MiB of operands: beyond the caches, as in training
  const Floats grad = values(elems);
  Floats parameter = values(elems), m(elems), v(elems);
  const AdamStep step{.lr = 1e-3,
                      .beta1 = 0.9,
                      .beta2 = 0.95,
                      .eps = 1e-8,
                      .weight_decay = 0.1,
                      .bias_correction1 = 0.1,
                      .bias_correction2 = 0.05,
                      .decay = AdamStep::Decay::Decoupled};
  for (auto _ : state) {
    adam(grad.data(), 1.0F, parameter.data(), m.data(), v.data(), elems, step);
    benchmark::ClobberMemory();
  }
  report_traffic(state, 7 * elems);
}
BENCHMARK(bench_adam)->Name("Adam");

void bench_accumulate(benchmark::State& state) {
  const std::int64_t elems = 1 << 22;
  const Floats x = values(elems);
  Floats out(elems);
  for (auto _ : state) {
    accumulate(x.data(), 1.0F, out.data(), elems);
    benchmark::ClobberMemory();
  }
  report_traffic(state, 3 * elems);
}
BENCHMARK(bench_accumulate)->Name("Accumulate");

}  // namespace
}  // namespace shardplan::cpu
