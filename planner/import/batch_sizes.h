#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace shardplan::importing {

/// The three sizes of which train_batch = micro_batch x accumulation x world. Null: not given.
struct BatchSizes {
  std::optional<std::int64_t> train_batch;   // sequences per optimizer step, all ranks
  std::optional<std::int64_t> micro_batch;   // sequences per rank and micro-step
  std::optional<std::int64_t> accumulation;  // micro-steps per optimizer step

  bool operator==(const BatchSizes&) const = default;
};

/// Completes the sizes as DeepSpeed does (runtime/config.py: quotients rounded down, then checked).
/// Throws InputError, without a place, that names the four numbers and what would be valid.
BatchSizes resolve_batch_sizes(BatchSizes sizes, std::int64_t world);

/// The only world that three given sizes allow; null when they leave it free or allow none.
std::optional<std::int64_t> world_of(const BatchSizes& sizes);

}  // namespace shardplan::importing
