#include "plans/run_phases.h"

#include <algorithm>
#include <array>
#include <variant>

namespace shardplan {
namespace {

constexpr std::array<std::string_view, kRunPhases> kNames{
    "load", "init", "first_step", "forward", "backward", "optimizer", "accumulate", "save"};

RunPhase phase_of(const Instruction& instruction) {
  switch (instruction.phase) {
    case Phase::Load: return RunPhase::Load;
    case Phase::Init: return RunPhase::Init;
    case Phase::Forward: return RunPhase::Forward;
    case Phase::Backward: return RunPhase::Backward;
    case Phase::Optimizer: return RunPhase::Optimizer;
    case Phase::Save: return RunPhase::Save;
  }
  return RunPhase::Init;
}

RunPhases only(RunPhase phase) { return RunPhases().set(static_cast<std::size_t>(phase)); }

class ProgramWalk {
 public:
  explicit ProgramWalk(const Plan& plan) : plan_(plan) {}

  std::vector<RunPhases> run() {
    bool first_step = false;
    for (const ProgramItem& item : plan_.program) {
      if (item.count == ProgramItem::kOncePerStep) {
        step(item, first_step ? RunPhases() : only(RunPhase::FirstStep));
        first_step = false;
        continue;
      }
      first_step |= reads_batch(item);
      if (first_step)
        add(item, Own::No, only(RunPhase::FirstStep));
      else
        add(item, Own::Yes, {});
    }
    return std::move(phases_);
  }

 private:
  enum class Own { No, Yes };  // whether an instruction counts to its own phase, beside `more`

  bool reads_batch(const ProgramItem& item) const {
    if (item.segment >= 0) {
      const Segment& segment = plan_.segments[item.segment];
      for (InstructionId id = segment.first; id < segment.last; ++id) {
        const auto* read = std::get_if<Read>(&plan_.instructions[id].operation);
        if (read && read->source != Source::Weights) return true;
      }
    }
    return std::ranges::any_of(item.body,
                               [&](const ProgramItem& inner) { return reads_batch(inner); });
  }

  /// The loop over the steps: its last pass of what reads a batch is the last micro-step.
  void step(const ProgramItem& loop, RunPhases more) {
    if (loop.segment >= 0) add_segment(loop.segment, Own::Yes, more);
    const auto last = std::find_if(loop.body.rbegin(), loop.body.rend(),
                                   [&](const ProgramItem& inner) { return reads_batch(inner); });
    for (const ProgramItem& inner : loop.body) {
      const bool is_last = last != loop.body.rend() && &inner == &*last;
      const bool batch = reads_batch(inner);
      const bool accumulates = batch && (!is_last || inner.count > 1);
      add(inner, batch && !is_last ? Own::No : Own::Yes,
          accumulates ? more | only(RunPhase::Accumulate) : more);
    }
  }

  void add(const ProgramItem& item, Own own, RunPhases more) {
    if (item.count == 0) return;
    if (item.segment >= 0) add_segment(item.segment, own, more);
    for (const ProgramItem& inner : item.body)
      add(inner, own, more);
  }

  void add_segment(int segment, Own own, RunPhases more) {
    for (InstructionId id = plan_.segments[segment].first; id < plan_.segments[segment].last; ++id)
      phases_.push_back(own == Own::Yes ? more | only(phase_of(plan_.instructions[id])) : more);
  }

  const Plan& plan_;
  std::vector<RunPhases> phases_;
};

}  // namespace

std::string_view to_string(RunPhase phase) { return kNames[static_cast<std::size_t>(phase)]; }

std::vector<RunPhases> run_phases(const Plan& plan) { return ProgramWalk(plan).run(); }

}  // namespace shardplan
