#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "plans/plan.h"

namespace shardplan {

/// For every stream the last position (in issue order) known to have finished; -1: none.
using Clock = std::array<std::int32_t, kStreams>;

/// Vector clocks of an issue order: position p happens before position q when clock[q] covers p.
/// Ordered by: the stream, `after` edges (to the latest issue of their instruction), host_wait.
class HappensBefore {
 public:
  /// `issue_order` as from unroll().
  HappensBefore(const Plan& plan, std::span<const InstructionId> issue_order);

  /// True when position `before` has finished whenever position `after` starts.
  bool ordered(std::int32_t before, std::int32_t after) const {
    return clocks_[after][static_cast<int>(streams_[before])] >= before;
  }
  /// What has finished when `position` starts.
  const Clock& clock(std::int32_t position) const { return clocks_[position]; }

 private:
  std::vector<Clock> clocks_;
  std::vector<Stream> streams_;
};

}  // namespace shardplan
