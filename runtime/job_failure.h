#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <string>

#include "plans/plan.h"

namespace shardplan {

/// The first error of a job's ranks.
class JobFailure {
 public:
  /// `stop_all` is called once, with the text of the first error.
  explicit JobFailure(std::function<void(const char*)> stop_all) : stop_all_(std::move(stop_all)) {}

  /// Keeps the error that is being handled, if it is the first, with the names of the rank, the
  /// instruction and its unit, and stops all ranks. `instruction` may be null.
  void record(const Plan& plan, std::int64_t rank, const Instruction* instruction) noexcept;
  /// Throws the first error: InputError as such, all others as SystemError.
  void rethrow() const;

 private:
  const std::function<void(const char*)> stop_all_;
  mutable std::mutex mutex_;
  std::exception_ptr first_;
};

}  // namespace shardplan
