#include "kernels/cpu/parallel.h"

#include "kernels/cpu/reduce.h"
#include "tests/unit/kernel_testing.h"

/// Read by LeakSanitizer: LLVM's OpenMP keeps descriptors of threads that a smaller pool left.
extern "C" const char* __lsan_default_suppressions();  // NOLINT(bugprone-reserved-identifier)
extern "C" const char* __lsan_default_suppressions() { return "leak:libomp.so"; }  // NOLINT

namespace shardplan::cpu {
namespace {

/// The number of threads of kernels, put back at the end.
class Threads {
 public:
  explicit Threads(int count) : before_(omp_get_max_threads()) { omp_set_num_threads(count); }
  ~Threads() { omp_set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  const int before_;
};

/// `run` returns what a kernel made of fixed inputs.
template <typename Run>
void expect_same_bits_with_any_threads(Run run) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the sanitizer does not see the barriers of OpenMP";
#endif
  const auto on = [&](int count) {
    const Threads threads(count);
    return run();
  };
  const Floats alone = on(1);
  for (const int count : {2, 3, 7})
    EXPECT_EQ(on(count), alone) << count << " threads";
}

constexpr std::int64_t kRows = 97;
constexpr std::int64_t kChannels = 601;
constexpr std::int64_t kElems = kRows * kChannels;
static_assert(kElems > kParallelElems);

TEST(Worker, PartsCoverEverythingOnce) {
  for (std::int64_t count = 1; count < 9; ++count)
    for (std::int64_t end = 5; end < 60; ++end) {
      std::int64_t next = 5;
      for (std::int64_t index = 0; index < count; ++index) {
        const Range part = Worker{index, count}.part_of(5, end, 16);
        ASSERT_EQ(part.begin, next);
        ASSERT_TRUE(part.size() == 0 || (part.begin - 5) % 16 == 0);
        next = part.end;
      }
      ASSERT_EQ(next, end);
    }
}

TEST(Parallel, SumsDependOnTheirLengthAlone) {
  const Floats x = random_floats(kElems, 1);
  expect_same_bits_with_any_threads([&] {
    Floats sums = stale(kChannels);
    sum_rows(x.data(), sums.data(), kRows, kChannels, Store::Overwrite);
    const double squares = sum_squares(x.data(), kElems);
    sums.push_back(static_cast<float>(squares));
    sums.push_back(static_cast<float>(squares - sums.back()));
    return sums;
  });
}

TEST(Parallel, RmsNormBackward) {
  const Floats x = random_floats(kElems, 1), grad_out = random_floats(kElems, 2);
  const Floats weight = random_floats(kChannels, 3);
  expect_same_bits_with_any_threads([&] {
    Floats out = stale(kElems), rstd = stale(kRows), grad_weight = stale(kChannels);
    rms_norm(x.data(), weight.data(), out.data(), rstd.data(), kRows, kChannels, 1e-5F);
    rms_norm_backward(grad_out.data(), x.data(), weight.data(), rstd.data(), out.data(),
                      grad_weight.data(), kRows, kChannels, Store::Accumulate, Store::Overwrite);
    out.insert(out.end(), grad_weight.begin(), grad_weight.end());
    return out;
  });
}

TEST(Parallel, CrossEntropy) {
  const Floats logits = random_floats(kElems, 1);
  std::vector<std::int32_t> targets(kRows, 5);
  targets[3] = kIgnoredTarget;
  expect_same_bits_with_any_threads([&] {
    Floats gradient = stale(kElems);
    double loss = 0;
    cross_entropy(logits.data(), targets.data(), &loss, gradient.data(),
                  {kRows, kChannels, 0, kRows}, 1, Store::Overwrite);
    gradient.push_back(static_cast<float>(loss));
    return gradient;
  });
}

TEST(Parallel, EmbeddingBackward) {
  const Floats grad_out = random_floats(kElems, 1);
  std::vector<std::int32_t> tokens;
  for (std::int32_t row = 0; row < kRows; ++row)
    tokens.push_back(row * row % 11);
  expect_same_bits_with_any_threads([&] {
    Floats gradient = stale(12 * kChannels);
    embedding_backward(grad_out.data(), tokens.data(), gradient.data(), kRows, 12, kChannels,
                       Store::Overwrite);
    return gradient;
  });
}

TEST(Parallel, Attention) {
  const AttentionShape shape{.batch = 2,
                             .time = 100,
                             .heads = 4,
                             .kv_heads = 2,
                             .head_dim = 48,
                             .scale = 0.3F,
                             .window = 70,
                             .query_stride = 192,
                             .key_value_stride = 96,
                             .block_rows = 64};
  const std::int64_t queries = 2 * 100 * 192, keys = 2 * 100 * 96;
  const Floats q = random_floats(queries, 1), grad_out = random_floats(queries, 2);
  const Floats k = random_floats(keys, 3), v = random_floats(keys, 4);
  expect_same_bits_with_any_threads([&] {
    Floats out = stale(queries), lse = stale(2 * 4 * 100), grad_q = stale(queries);
    Floats grad_k = stale(keys), grad_v = stale(keys);
    Floats workspace = stale(2 * attention_tile_elems(100, 64));
    attention(gemm_reference, q.data(), k.data(), v.data(), out.data(), lse.data(),
              workspace.data(), shape);
    attention_backward(gemm_reference, grad_out.data(), q.data(), k.data(), v.data(), out.data(),
                       lse.data(), grad_q.data(), grad_k.data(), grad_v.data(), workspace.data(),
                       shape);
    for (const Floats* more : {&grad_q, &grad_k, &grad_v})
      out.insert(out.end(), more->begin(), more->end());
    return out;
  });
}

}  // namespace
}  // namespace shardplan::cpu
