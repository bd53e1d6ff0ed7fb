#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "plans/plan.h"

namespace shardplan {

/// For every stream the last position (in issue order) known to have finished; -1: none.
using Clock = std::array<std::int32_t, kStreams>;

/// Takes, stream by stream, the later of both positions.
void join(Clock& clock, const Clock& other);

/// Vector clocks, advanced one issued instruction at a time. An instruction is ordered after: the
/// one before it on its stream, the latest issue of what it waits for, and what the host has waited
/// for.
class ClockWalk {
 public:
  explicit ClockWalk(const Plan& plan);

  /// Issues `id` without its waits; its clock is what has finished when it starts.
  void issue(InstructionId id);
  /// Orders the instruction issued last after the latest issue of `id`, if there was one before it.
  void wait_for(InstructionId id);
  /// Whether `position` has finished when the instruction issued last starts.
  bool covers(std::int32_t position) const {
    return clock_[static_cast<int>(streams_[position])] >= position;
  }
  /// The instruction issued last is complete: later ones may wait for it.
  void commit();

  std::int32_t position() const { return static_cast<std::int32_t>(streams_.size()) - 1; }
  const Clock& clock() const { return clock_; }
  Stream stream_of(std::int32_t position) const { return streams_[position]; }
  InstructionId instruction_at(std::int32_t position) const { return ids_[position]; }

 private:
  const Plan& plan_;
  Clock clock_;  // of the instruction issued last
  Clock host_;
  std::vector<Clock> finished_;       // by instruction: clock at the end of its latest issue
  std::vector<std::int32_t> latest_;  // by instruction: position of its latest issue
  std::array<Clock, kStreams> streams_finished_;
  std::vector<Stream> streams_;     // by position
  std::vector<InstructionId> ids_;  // by position
};

/// The clocks of a whole issue order, as from unroll(): position p happens before position q when
/// the clock of q covers p.
class HappensBefore {
 public:
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
