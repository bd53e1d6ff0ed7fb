#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plans/job.h"
#include "plans/plan.h"
#include "runtime/mapped_file.h"
#include "runtime/training_position.h"

namespace shardplan {

/// A stream of little-endian tokens in a file, cut into sequences of T tokens: sequence i is tokens
/// i*T .. i*T+T-1, its targets are one later. Labels are a stream of the same form, in which an
/// entry may be kIgnoredTarget.
class TokenFile {
 public:
  /// `what` names the file in errors: "tokens". `dtype`: uint16, uint32 or int32. Throws InputError
  /// when the file cannot be read or holds no whole sequence.
  TokenFile(const std::string& path, const std::string& what, Dtype dtype,
            std::int64_t sequence_length);

  std::int64_t tokens() const { return tokens_; }
  std::int64_t sequences() const { return (tokens_ - 1) / sequence_length_; }
  const std::string& path() const { return file_.path(); }
  /// The T tokens from `shift` (0: inputs, 1: targets) after the begin of the sequence on. Throws
  /// InputError with the position of a token outside [0, vocabulary); kIgnoredTarget is allowed to
  /// files of signed numbers.
  void read(std::int64_t sequence, int shift, std::int64_t vocabulary,
            std::span<std::int32_t> out) const;

 private:
  std::int64_t token(std::int64_t position) const;

  MappedFile file_;
  const Dtype dtype_;
  const std::int64_t sequence_length_;
  std::int64_t tokens_ = 0;
};

/// The extents of a job's order of data.
struct OrderShape {
  std::int64_t steps = 0;
  std::int64_t ranks = 1;
  std::int64_t micro_steps = 1;  // of one step
  std::int64_t micro_batch = 1;  // sequences of one rank and micro-step
};

/// The sequence numbers of a JSON text [step][rank][micro-step][micro_batch], one after the other;
/// steps beyond those of `shape` are left out. `source` names the text in errors. Throws InputError
/// with the JSON pointer of what is wrong, as numbers that are not below `sequences`.
std::vector<std::int64_t> order_from_json(std::string_view text, const std::string& source,
                                          const OrderShape& shape, std::int64_t sequences);

/// Which sequences each rank reads when.
class DataOrder {
 public:
  /// From the file job.run.data_order: JSON [step][rank][micro-step][micro_batch] of sequence
  /// numbers below `sequences`; when empty, in sequence, ranks and micro-steps side by side, from
  /// the start again at the end. Throws InputError with the JSON pointer of what is wrong.
  /// A sequential order goes on at `start`, whatever the world was before.
  DataOrder(const std::string& path, const OrderShape& shape, std::int64_t sequences,
            const TrainingPosition& start = {});

  /// Sequence number of the `index`-th sequence of a micro-batch; `step` counts from 0.
  std::int64_t sequence(std::int64_t step, std::int64_t rank, std::int64_t micro_step,
                        std::int64_t index) const;
  TrainingPosition position(int steps) const;

 private:
  const OrderShape shape_;
  const std::int64_t sequences_;
  const TrainingPosition start_;
  std::vector<std::int64_t> order_;  // empty: sequential
};

/// The batches of a job, for all ranks.
class Batches {
 public:
  /// Throws InputError for bad tokens or labels or a bad data order.
  explicit Batches(const Plan& plan, const TrainingPosition& start = {});

  /// After so many steps.
  TrainingPosition position(int steps) const { return order_.position(steps); }

  /// Inputs or targets of one micro-batch, int32 [micro_batch, T].
  void read(Source source, std::int64_t step, std::int64_t rank, std::int64_t micro_step,
            std::span<std::int32_t> out) const;

 private:
  TokenFile tokens_;
  std::optional<TokenFile> labels_;  // none: the targets are the tokens
  const std::int64_t sequence_length_;
  const std::int64_t vocabulary_;
  DataOrder order_;
};

}  // namespace shardplan
