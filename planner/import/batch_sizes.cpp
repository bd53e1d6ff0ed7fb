#include "planner/import/batch_sizes.h"

#include <fmt/format.h>

#include "plans/error.h"
#include "plans/job.h"

namespace shardplan::importing {
namespace {

/// What would make the product right, with the two other numbers kept.
std::string valid_sizes(std::int64_t train, std::int64_t micro, std::int64_t accumulation,
                        std::int64_t world) {
  std::string text;
  const auto add = [&](const char* what, std::int64_t value, const std::string& how) {
    text += fmt::format("{}{} {} ({} = {})", text.empty() ? "; nearest valid: " : ", or ", what,
                        value, how, value);
  };
  if (micro > 0 && train % (micro * world) == 0)
    add("gradient_accumulation_steps", train / (micro * world),
        fmt::format("{} / ({} * {})", train, micro, world));
  if (accumulation > 0 && train % (accumulation * world) == 0)
    add("train_micro_batch_size_per_gpu", train / (accumulation * world),
        fmt::format("{} / ({} * {})", train, accumulation, world));
  if (micro * accumulation > 0) {
    if (train % (micro * accumulation) == 0)
      add("world", train / (micro * accumulation),
          fmt::format("{} / ({} * {})", train, micro, accumulation));
    add("train_batch_size", micro * accumulation * world,
        fmt::format("{} * {} * {}", micro, accumulation, world));
  }
  return text;
}

}  // namespace

BatchSizes resolve_batch_sizes(BatchSizes sizes, std::int64_t world) {
  auto& [train, micro, accumulation] = sizes;
  if (!train && !micro)
    throw InputError("train_batch_size or train_micro_batch_size_per_gpu is needed");
  if (train && micro && !accumulation) accumulation = *train / *micro / world;
  if (train && !micro && accumulation) micro = *train / world / *accumulation;
  if (train && !micro && !accumulation) {
    accumulation = 1;
    micro = *train / world;
  }
  if (!accumulation) accumulation = 1;
  if (!train) train = *micro * *accumulation * world;
  if (*train == *micro * *accumulation * world) return sizes;
  throw InputError(fmt::format(
      "train_batch_size is not train_micro_batch_size_per_gpu x gradient_accumulation_steps x "
      "world: {0} != {1} * {2} * {3}{4}",
      *train, *micro, *accumulation, world, valid_sizes(*train, *micro, *accumulation, world)));
}

std::optional<std::int64_t> world_of(const BatchSizes& sizes) {
  if (!sizes.train_batch || !sizes.micro_batch || !sizes.accumulation) return std::nullopt;
  const std::int64_t per_rank = *sizes.micro_batch * *sizes.accumulation;
  const std::int64_t world = *sizes.train_batch / per_rank;
  if (world < 1 || world > kLargestWorld || world * per_rank != *sizes.train_batch)
    return std::nullopt;
  return world;
}

}  // namespace shardplan::importing
