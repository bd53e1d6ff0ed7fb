#include "runtime/job_failure.h"

#include <fmt/format.h>

#include "plans/error.h"

namespace shardplan {
namespace {

std::string place_of(const Plan& plan, std::int64_t rank, const Instruction* instruction) {
  if (!instruction) return fmt::format("rank {}", rank);
  const std::string unit =
      instruction->unit < 0 ? "" : fmt::format(", unit '{}'", plan.units[instruction->unit].name);
  return fmt::format("rank {}, instruction '{}'{}", rank, instruction->name, unit);
}

/// The error being handled as ours, with its place. Bad input keeps its own position in front.
std::exception_ptr with_place(const std::string& place, std::string& text) {
  try {
    throw;
  } catch (const InputError& error) {
    text = fmt::format("{} ({})", error.what(), place);
    return std::make_exception_ptr(InputError(text));
  } catch (const std::exception& error) {
    text = fmt::format("{}: {}", place, error.what());
  } catch (...) {
    text = fmt::format("{}: unknown error", place);
  }
  return std::make_exception_ptr(SystemError(text));
}

}  // namespace

void JobFailure::record(const Plan& plan, std::int64_t rank,
                        const Instruction* instruction) noexcept {
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    if (first_) return;
    try {
      first_ = with_place(place_of(plan, rank, instruction), text);
    } catch (...) {
      first_ = std::current_exception();  // no memory for the text
    }
  }
  stop_all_(text.c_str());
}

void JobFailure::rethrow() const {
  const std::lock_guard lock(mutex_);
  if (first_) std::rethrow_exception(first_);
}

}  // namespace shardplan
