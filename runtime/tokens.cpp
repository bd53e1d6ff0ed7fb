#include "runtime/tokens.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>

#include "kernels/kernels.h"
#include "plans/error.h"
#include "plans/json_cursor.h"

namespace shardplan {
namespace {

TokenFile open_tokens(const RunJob& run, std::int64_t sequence_length) {
  if (run.tokens.empty()) throw InputError("run.tokens: missing, expected a file of tokens");
  if (run.token_dtype != Dtype::UInt16 && run.token_dtype != Dtype::UInt32)
    throw InputError(fmt::format("run.token_dtype: {} is not supported, expected uint16 or uint32",
                                 to_string(run.token_dtype)));
  return {run.tokens, "tokens", run.token_dtype, sequence_length};
}

/// The labels of `tokens`, where the job has some.
std::optional<TokenFile> open_labels(const RunJob& run, const TokenFile& tokens,
                                     std::int64_t sequence_length) {
  if (run.labels.empty()) return std::nullopt;
  TokenFile labels(run.labels, "labels", Dtype::Int32, sequence_length);
  if (labels.tokens() != tokens.tokens())
    throw InputError(fmt::format("{}: has {} labels, but {} has {} tokens; expected one a token",
                                 labels.path(), labels.tokens(), tokens.path(), tokens.tokens()));
  return labels;
}

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

/// Token numbers below this may index the model's first table.
std::int64_t vocabulary_of(const Plan& plan) {
  for (const Instruction& instruction : plan.instructions) {
    const auto* compute = std::get_if<Compute>(&instruction.operation);
    if (compute && compute->kernel == Kernel::Embedding)
      return compute->attributes.integer(Attribute::InFeatures);
  }
  return std::numeric_limits<std::int32_t>::max();
}

OrderShape order_shape_of(const Plan& plan) {
  return {plan.job.run.steps, plan.world_size(), micro_steps_of(plan),
          plan.job.training.micro_batch};
}

std::vector<JsonCursor> list(const JsonCursor& json, std::int64_t extent, std::string_view of) {
  std::vector<JsonCursor> entries = json.elements();
  if (static_cast<std::int64_t>(entries.size()) != extent)
    json.fail(fmt::format("expected a list of {} {}, got {}", extent, of, entries.size()));
  return entries;
}

}  // namespace

std::vector<std::int64_t> order_from_json(std::string_view text, const std::string& source,
                                          const OrderShape& shape, std::int64_t sequences) {
  const JsonDocument document(text, source);
  std::vector<JsonCursor> steps = document.root().elements();
  if (static_cast<std::int64_t>(steps.size()) < shape.steps)
    document.root().fail(
        fmt::format("expected a list of {} steps or more, got {}", shape.steps, steps.size()));
  steps.erase(steps.begin() + shape.steps, steps.end());
  std::vector<std::int64_t> order;
  for (const JsonCursor& step : steps)
    for (const JsonCursor& rank : list(step, shape.ranks, "ranks"))
      for (const JsonCursor& micro_step : list(rank, shape.micro_steps, "micro-steps"))
        for (const JsonCursor& sequence : list(micro_step, shape.micro_batch, "sequences"))
          order.push_back(sequence.integer(0, sequences - 1));
  return order;
}

TokenFile::TokenFile(const std::string& path, const std::string& what, Dtype dtype,
                     std::int64_t sequence_length)
    : file_(path, what), dtype_(dtype), sequence_length_(sequence_length) {
  const auto bytes = static_cast<std::int64_t>(file_.bytes().size());
  if (bytes % size_of(dtype_) != 0)
    throw InputError(fmt::format("{}: {} bytes are no whole number of {}-byte {}", file_.path(),
                                 bytes, size_of(dtype_), what));
  tokens_ = bytes / size_of(dtype_);
  if (tokens_ < sequence_length_ + 1)
    throw InputError(fmt::format("{}: {} {} are too few, a sequence of {} needs {}", file_.path(),
                                 tokens_, what, sequence_length_, sequence_length_ + 1));
}

std::int64_t TokenFile::token(std::int64_t position) const {
  const std::byte* from = file_.bytes().data() + position * size_of(dtype_);
  switch (dtype_) {
    case Dtype::UInt16: return load<std::uint16_t>(from);
    case Dtype::UInt32: return load<std::uint32_t>(from);
    case Dtype::Int32: return load<std::int32_t>(from);
    default: break;
  }
  check(false, "tokens are uint16, uint32 or int32");
  return 0;
}

void TokenFile::read(std::int64_t sequence, int shift, std::int64_t vocabulary,
                     std::span<std::int32_t> out) const {
  const std::int64_t begin = sequence * sequence_length_ + shift;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int64_t value = token(begin + static_cast<std::int64_t>(i));
    const bool ignored = dtype_ == Dtype::Int32 && value == kIgnoredTarget;
    if (!ignored && (value < 0 || value >= vocabulary))
      throw InputError(fmt::format(
          "{}: {} {} at position {} is not in the vocabulary, 0 .. {}{}", path(),
          dtype_ == Dtype::Int32 ? "label" : "token", value, begin + i, vocabulary - 1,
          dtype_ == Dtype::Int32 ? fmt::format(", nor {} (not counted)", kIgnoredTarget) : ""));
    out[i] = static_cast<std::int32_t>(value);
  }
}

DataOrder::DataOrder(const std::string& path, const OrderShape& shape, std::int64_t sequences,
                     const TrainingPosition& start)
    : shape_(shape), sequences_(sequences), start_(start) {
  if (path.empty()) return;
  const MappedFile file(path, "data order");
  const auto bytes = file.bytes();
  order_ = order_from_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path, shape,
                           sequences);
}

std::int64_t DataOrder::sequence(std::int64_t step, std::int64_t rank, std::int64_t micro_step,
                                 std::int64_t index) const {
  if (!order_.empty())
    return order_[((step * shape_.ranks + rank) * shape_.micro_steps + micro_step) *
                      shape_.micro_batch +
                  index];
  // All ranks' micro-batches of one micro-step lie side by side, then come those of the next.
  const std::int64_t batches =
      ((step - start_.steps) * shape_.micro_steps + micro_step) * shape_.ranks + rank;
  return (start_.sequences + batches * shape_.micro_batch + index) % sequences_;
}

TrainingPosition DataOrder::position(int steps) const {
  const std::int64_t of_step = shape_.micro_steps * shape_.ranks * shape_.micro_batch;
  return {steps, start_.sequences + (steps - start_.steps) * of_step};
}

Batches::Batches(const Plan& plan, const TrainingPosition& start)
    : tokens_(open_tokens(plan.job.run, plan.job.training.sequence_length)),
      labels_(open_labels(plan.job.run, tokens_, plan.job.training.sequence_length)),
      sequence_length_(plan.job.training.sequence_length),
      vocabulary_(vocabulary_of(plan)),
      order_(plan.job.run.data_order, order_shape_of(plan), tokens_.sequences(), start) {}

void Batches::read(Source source, std::int64_t step, std::int64_t rank, std::int64_t micro_step,
                   std::span<std::int32_t> out) const {
  const auto batch = static_cast<std::int64_t>(out.size()) / sequence_length_;
  const bool targets = source == Source::Targets;
  const TokenFile& file = targets && labels_ ? *labels_ : tokens_;
  for (std::int64_t i = 0; i < batch; ++i)
    file.read(order_.sequence(step, rank, micro_step, i), targets ? 1 : 0, vocabulary_,
              out.subspan(i * sequence_length_, sequence_length_));
}

}  // namespace shardplan
