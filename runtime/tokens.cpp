#include "runtime/tokens.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "kernels/kernels.h"
#include "plans/error.h"

namespace shardplan {
namespace {

using nlohmann::json;

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

std::int64_t token_reads(const Plan& plan, const ProgramItem& item) {
  std::int64_t reads = 0;
  if (item.segment >= 0) {
    const Segment& segment = plan.segments[item.segment];
    for (InstructionId id = segment.first; id < segment.last; ++id) {
      const auto* read = std::get_if<Read>(&plan.instructions[id].operation);
      reads += read && read->source == Source::Tokens;
    }
  }
  for (const ProgramItem& inner : item.body)
    reads += token_reads(plan, inner);
  return item.count == ProgramItem::kOncePerStep ? reads : item.count * reads;
}

OrderShape order_shape_of(const Plan& plan) {
  return {plan.job.run.steps, plan.world_size(), micro_steps_of(plan),
          plan.job.training.micro_batch};
}

/// `value` as a list of exactly `extent` entries. Throws InputError at the JSON pointer `where`.
const json& expect_list(const json& value, std::int64_t extent, const std::string& where,
                        std::string_view of) {
  if (!value.is_array() || static_cast<std::int64_t>(value.size()) != extent)
    throw InputError(fmt::format(
        "{}: expected a list of {} {}, got {}", where, extent, of,
        value.is_array() ? std::to_string(value.size()) : std::string(value.type_name())));
  return value;
}

json parse_order(const std::string& path) {
  const MappedFile file(path, "data order");
  const auto* text = reinterpret_cast<const char*>(file.bytes().data());
  try {
    return json::parse(text, text + file.bytes().size());
  } catch (const json::exception& error) {
    throw InputError(fmt::format("{}: not valid JSON: {}", path, error.what()));
  }
}

std::vector<std::int64_t> read_order(const std::string& path, const OrderShape& shape,
                                     std::int64_t sequences) {
  const json content = parse_order(path);
  std::vector<std::int64_t> order;
  if (!content.is_array() || static_cast<std::int64_t>(content.size()) < shape.steps)
    throw InputError(fmt::format(
        "{}: expected a list of {} steps or more, got {}", path, shape.steps,
        content.is_array() ? std::to_string(content.size()) : std::string(content.type_name())));
  for (std::int64_t step = 0; step < shape.steps; ++step) {
    const std::string at_step = fmt::format("{}: /{}", path, step);
    const json& ranks = expect_list(content[step], shape.ranks, at_step, "ranks");
    for (std::int64_t rank = 0; rank < shape.ranks; ++rank) {
      const std::string at_rank = fmt::format("{}/{}", at_step, rank);
      const json& micro_steps = expect_list(ranks[rank], shape.micro_steps, at_rank, "micro-steps");
      for (std::int64_t micro = 0; micro < shape.micro_steps; ++micro) {
        const std::string at = fmt::format("{}/{}", at_rank, micro);
        const json& batch = expect_list(micro_steps[micro], shape.micro_batch, at, "sequences");
        for (std::int64_t i = 0; i < shape.micro_batch; ++i) {
          const json& sequence = batch[i];
          if (!sequence.is_number_unsigned() ||
              sequence.get<std::uint64_t>() >= static_cast<std::uint64_t>(sequences))
            throw InputError(fmt::format("{}/{}: expected a sequence number below {}, got {}", at,
                                         i, sequences, sequence.dump()));
          order.push_back(sequence.get<std::int64_t>());
        }
      }
    }
  }
  return order;
}

}  // namespace

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
    const std::int64_t value = token(begin + i);
    const bool ignored = dtype_ == Dtype::Int32 && value == kIgnoredTarget;
    if (!ignored && (value < 0 || value >= vocabulary))
      throw InputError(fmt::format(
          "{}: {} {} at position {} is not in the vocabulary, 0 .. {}{}", path(),
          dtype_ == Dtype::Int32 ? "label" : "token", value, begin + i, vocabulary - 1,
          dtype_ == Dtype::Int32 ? fmt::format(", nor {} (not counted)", kIgnoredTarget) : ""));
    out[i] = static_cast<std::int32_t>(value);
  }
}

DataOrder::DataOrder(const std::string& path, const OrderShape& shape, std::int64_t sequences)
    : shape_(shape), sequences_(sequences) {
  if (!path.empty()) order_ = read_order(path, shape, sequences);
}

std::int64_t DataOrder::sequence(std::int64_t step, std::int64_t rank, std::int64_t micro_step,
                                 std::int64_t index) const {
  if (!order_.empty())
    return order_[((step * shape_.ranks + rank) * shape_.micro_steps + micro_step) *
                      shape_.micro_batch +
                  index];
  // All ranks' micro-batches of one micro-step lie side by side, then come those of the next.
  const std::int64_t batches = (step * shape_.micro_steps + micro_step) * shape_.ranks + rank;
  return (batches * shape_.micro_batch + index) % sequences_;
}

Batches::Batches(const Plan& plan)
    : tokens_(open_tokens(plan.job.run, plan.job.training.sequence_length)),
      labels_(open_labels(plan.job.run, tokens_, plan.job.training.sequence_length)),
      sequence_length_(plan.job.training.sequence_length),
      vocabulary_(vocabulary_of(plan)),
      order_(plan.job.run.data_order, order_shape_of(plan), tokens_.sequences()) {}

void Batches::read(Source source, std::int64_t step, std::int64_t rank, std::int64_t micro_step,
                   std::span<std::int32_t> out) const {
  const auto batch = static_cast<std::int64_t>(out.size()) / sequence_length_;
  const bool targets = source == Source::Targets;
  const TokenFile& file = targets && labels_ ? *labels_ : tokens_;
  for (std::int64_t i = 0; i < batch; ++i)
    file.read(order_.sequence(step, rank, micro_step, i), targets ? 1 : 0, vocabulary_,
              out.subspan(i * sequence_length_, sequence_length_));
}

std::int64_t micro_steps_of(const Plan& plan) {
  for (const ProgramItem& item : plan.program)
    if (item.count == ProgramItem::kOncePerStep) return token_reads(plan, item);
  return 0;
}

}  // namespace shardplan
