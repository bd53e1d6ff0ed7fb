#include <functional>

#include "kernels/kernels.h"
#include "plans/error.h"
#include "tests/unit/kernel_testing.h"

namespace shardplan::cpu {
namespace {

using Tokens = std::vector<std::int32_t>;

constexpr std::int64_t kVocab = 7;
constexpr std::int64_t kChannels = 3;
const Tokens kTokens{6, 0, 2, 2, 0, 2};  // tokens 1, 3, 4 and 5 do not occur

TEST(Embedding, CopiesTheRowOfEachToken) {
  const Floats weight = random_floats(kVocab * kChannels, 1);
  Floats out = stale(std::ssize(kTokens) * kChannels);
  embedding(kTokens.data(), weight.data(), out.data(), std::ssize(kTokens), kVocab, kChannels);
  for (std::size_t row = 0; row < kTokens.size(); ++row)
    for (std::int64_t c = 0; c < kChannels; ++c)
      EXPECT_EQ(out[row * kChannels + c], weight[kTokens[row] * kChannels + c]);
}

TEST(Embedding, NamesTheFirstTokenOutsideTheVocabulary) {
  const Floats weight(kVocab * kChannels);
  Floats out(3 * kChannels);
  for (const std::int32_t wrong : {-1, 7, 65535}) {
    const Tokens tokens{0, wrong, 1};
    try {
      embedding(tokens.data(), weight.data(), out.data(), 3, kVocab, kChannels);
      FAIL() << "token " << wrong << " is accepted";
    } catch (const InputError& error) {
      EXPECT_EQ(std::string(error.what()),
                "token " + std::to_string(wrong) + " at position 1 of the batch: expected 0 to 6");
    }
  }
}

Doubles summed_by_token(const Floats& grad_out) {
  Doubles sums(kVocab * kChannels);
  for (std::size_t row = 0; row < kTokens.size(); ++row)
    for (std::int64_t c = 0; c < kChannels; ++c)
      sums[kTokens[row] * kChannels + c] += grad_out[row * kChannels + c];
  return sums;
}

TEST(EmbeddingBackward, SumsTheRowsOfATokenAndZeroesTheOthers) {
  const Floats grad_out = random_floats(std::ssize(kTokens) * kChannels, 2);
  Floats grad_weight = stale(kVocab * kChannels);
  embedding_backward(grad_out.data(), kTokens.data(), grad_weight.data(), std::ssize(kTokens),
                     kVocab, kChannels, Store::Overwrite);
  expect_close(grad_weight, summed_by_token(grad_out));
  EXPECT_EQ(grad_weight[1 * kChannels], 0);
}

TEST(EmbeddingBackward, AddsTheSumOfATokenToWhatIsThere) {
  const Floats grad_out = random_floats(std::ssize(kTokens) * kChannels, 2);
  Floats added = random_floats(kVocab * kChannels, 3);
  Floats expected = stale(kVocab * kChannels);
  embedding_backward(grad_out.data(), kTokens.data(), expected.data(), std::ssize(kTokens), kVocab,
                     kChannels, Store::Overwrite);
  // Two micro-steps give the bits that two ranks give.
  std::transform(expected.begin(), expected.end(), added.begin(), expected.begin(), std::plus());
  embedding_backward(grad_out.data(), kTokens.data(), added.data(), std::ssize(kTokens), kVocab,
                     kChannels, Store::Accumulate);
  EXPECT_EQ(added, expected);
}

TEST(EmbeddingBackward, FindsATokenAgainFarAway) {
  constexpr std::int64_t kFar = 1000;
  Tokens tokens(kFar, 1);
  tokens[3] = tokens[kFar - 2] = 0;
  const Floats grad_out(kFar, 1.0F);
  Floats grad_weight = stale(2);
  embedding_backward(grad_out.data(), tokens.data(), grad_weight.data(), kFar, 2, 1,
                     Store::Overwrite);
  EXPECT_EQ(grad_weight, (Floats{2.0F, kFar - 2.0F}));
}

TEST(PositionEmbedding, AddsTheRowOfEachPositionAlsoInPlace) {
  const std::int64_t batch = 2, time = 3;
  const Floats weight = random_floats((time + 2) * kChannels, 4);
  const Floats x = random_floats(batch * time * kChannels, 5);
  Floats out = stale(std::ssize(x));
  Floats in_place = x;
  position_embedding(x.data(), weight.data(), out.data(), batch, time, kChannels);
  position_embedding(in_place.data(), weight.data(), in_place.data(), batch, time, kChannels);
  for (std::int64_t i = 0; i < batch * time * kChannels; ++i)
    EXPECT_EQ(out[i], x[i] + weight[i % (time * kChannels)]);
  EXPECT_EQ(in_place, out);
}

TEST(PositionEmbeddingBackward, SumsOverTheBatchAndZeroesUnusedPositions) {
  const std::int64_t batch = 3, time = 2, positions = 4;
  const std::int64_t used = time * kChannels;
  const Floats grad_out = random_floats(batch * used, 6);
  Doubles expected(positions * kChannels);
  for (std::int64_t i = 0; i < batch * used; ++i)
    expected[i % used] += grad_out[i];

  Floats grad_weight = stale(std::ssize(expected));
  position_embedding_backward(grad_out.data(), grad_weight.data(), batch, time, positions,
                              kChannels, Store::Overwrite);
  expect_close(grad_weight, expected);

  const Floats old = random_floats(positions * kChannels, 7);
  grad_weight = old;
  position_embedding_backward(grad_out.data(), grad_weight.data(), batch, time, positions,
                              kChannels, Store::Accumulate);
  expect_close(grad_weight, sum(expected, old));
}

}  // namespace
}  // namespace shardplan::cpu
