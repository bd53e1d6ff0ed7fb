#include "plans/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "plans/access_history.h"
#include "plans/happens_before.h"
#include "plans/plan_structure.h"

namespace shardplan {
namespace {

constexpr int kRepeats = 2;  // a wait that is missing across the back edge shows in the second pass
constexpr unsigned kShardAxis = 1;
constexpr unsigned kReplicateAxis = 2;

unsigned axes_of(Group group) {
  switch (group) {
    case Group::World: return kShardAxis | kReplicateAxis;
    case Group::Shard: return kShardAxis;
    case Group::Replicate: return kReplicateAxis;
  }
  return 0;
}

/// What the bytes of a cell are.
struct Content {
  BufferId owner = -1;    // buffer they were last written as; -1: never written
  bool gradient = false;  // a sum over the ranks of `reduced`
  unsigned reduced = 0;   // mesh axes the gradient has been summed over
};

class Verifier {
 public:
  explicit Verifier(const Plan& plan)
      : plan_(plan),
        walk_(plan),
        history_(plan, arena_addresses(plan)),
        contents_(history_.cell_count()),
        contributions_(plan.units.size(), 0),
        updates_(plan.units.size(), 0) {
    needed_axes_ =
        (plan.mesh.shard > 1 ? kShardAxis : 0) | (plan.mesh.replicate > 1 ? kReplicateAxis : 0);
  }

  std::vector<Fault> run() {
    for (const InstructionId id : unroll(plan_, kRepeats)) {
      walk_.issue(id);
      for (const Wait& wait : plan_.instructions[id].after)
        walk_.wait_for(wait.id);
      check_order(id);
      check_contents(id);
      std::visit([&](const auto& operation) { apply(id, operation); },
                 plan_.instructions[id].operation);
      history_.record(id, walk_.position());
      walk_.commit();
    }
    check_updates();
    return std::move(faults_);
  }

 private:
  const Instruction& at(InstructionId id) const { return plan_.instructions[id]; }
  const std::string& buffer_name(BufferId id) const { return plan_.buffers[id].name; }

  enum class Kind { Order, Content, Gradient, Update };

  /// One fault per instruction, buffer and kind: a race over many bytes is one fault.
  template <typename Why>
  void fault(InstructionId id, BufferId buffer, Kind kind, Why why) {
    if (!seen_.emplace(id, buffer, kind).second) return;
    faults_.push_back({at(id).name, buffer < 0 ? std::string() : buffer_name(buffer), why()});
  }

  void check_order(InstructionId id) {
    history_.for_each_conflict(id, [&](std::int32_t position, const View& view) {
      if (walk_.covers(position)) return;
      fault(id, view.buffer, Kind::Order, [&] {
        const Instruction& other = at(walk_.instruction_at(position));
        return fmt::format("touches the same bytes as {} (stream {}), and nothing orders the two",
                           other.name, to_string(other.stream));
      });
    });
  }

  /// Bytes are read as what they were last written as.
  void check_contents(InstructionId id) {
    const Instruction& instruction = at(id);
    for (std::size_t i = 0; i < instruction.reads.size(); ++i) {
      const BufferId buffer = instruction.reads[i].buffer;
      const CellRange cells = history_.footprint(id).reads[i];
      for (std::int32_t cell = cells.begin; cell < cells.end; ++cell) {
        if (contents_[cell].owner == buffer) continue;
        fault(id, buffer, Kind::Content, [&] {
          const BufferId owner = contents_[cell].owner;
          return owner < 0 ? std::string("is read before anything wrote it")
                           : fmt::format("is read, but its bytes hold {}", buffer_name(owner));
        });
      }
    }
  }

  template <typename Update>
  void for_cells(const CellRange& cells, Update update) {
    for (std::int32_t cell = cells.begin; cell < cells.end; ++cell)
      update(contents_[cell]);
  }

  void write_all(InstructionId id, bool gradient, unsigned reduced) {
    const Instruction& instruction = at(id);
    for (std::size_t i = 0; i < instruction.writes.size(); ++i)
      for_cells(history_.footprint(id).writes[i], [&](Content& content) {
        content = {instruction.writes[i].buffer, gradient, reduced};
      });
  }

  bool is_gradient(const View& view) const {
    const Category category = plan_.buffers[view.buffer].category;
    return category == Category::Gradients || category == Category::UnshardedGradients;
  }

  void apply(InstructionId id, const Alloc&) { forget(id); }
  void apply(InstructionId id, const Free&) { forget(id); }
  void forget(InstructionId id) {
    for (const CellRange& cells : history_.footprint(id).writes)
      for_cells(cells, [](Content& content) { content = {}; });
  }

  void apply(InstructionId id, const Compute& compute) {
    const bool optimizer = compute.kernel == Kernel::Adam || compute.kernel == Kernel::Sgd;
    if (optimizer) update_parameter(id);
    if (optimizer || compute.kernel == Kernel::SumSquares) require_reduced(id);
    const Instruction& instruction = at(id);
    for (std::size_t i = 0; i < instruction.writes.size(); ++i) {
      const View& view = instruction.writes[i];
      const bool added = std::ranges::find(instruction.reads, view) != instruction.reads.end() &&
                         is_gradient(view);
      for_cells(history_.footprint(id).writes[i], [&](Content& content) {
        if (added && content.reduced != 0)
          fault(id, view.buffer, Kind::Gradient,
                [] { return std::string("is added to after it was reduced"); });
        content = {view.buffer, is_gradient(view), 0};
      });
    }
  }

  void require_reduced(InstructionId id) {
    const Instruction& instruction = at(id);
    for (std::size_t i = 0; i < instruction.reads.size(); ++i) {
      if (!is_gradient(instruction.reads[i])) continue;
      for_cells(history_.footprint(id).reads[i], [&](const Content& content) {
        if (content.reduced == needed_axes_) return;
        fault(id, instruction.reads[i].buffer, Kind::Gradient,
              [] { return std::string("is used before it is reduced over all ranks"); });
      });
    }
  }

  void update_parameter(InstructionId id) {
    const Instruction& instruction = at(id);
    const int unit = instruction.unit;
    if (unit < 0 || instruction.writes.empty() ||
        instruction.writes[0].buffer != plan_.units[unit].parameter)
      return fault(id, -1, Kind::Update,
                   [] { return std::string("does not update the parameters of its unit"); });
    ++updates_[unit];
    const int expected = plan_.world_size() > 1 ? 1 : 0;
    if (contributions_[unit] != expected)
      fault(id, -1, Kind::Gradient, [&] {
        return fmt::format("the gradients of unit {} were reduced {} times in this step, not once",
                           plan_.units[unit].name, contributions_[unit]);
      });
    contributions_[unit] = 0;
  }

  void apply(InstructionId id, const Copy&) { write_like_source(id, 0); }
  void apply(InstructionId id, const Broadcast&) { write_like_source(id, 0); }
  void apply(InstructionId id, const AllGather&) { write_like_source(id, 0); }

  /// The destination holds what the source holds, gradients summed over `more` axes besides.
  void write_like_source(InstructionId id, unsigned more) {
    const CellRange source = history_.footprint(id).reads[0];
    const Content from = source.begin < source.end ? contents_[source.begin] : Content{};
    write_all(id, from.gradient, from.gradient ? from.reduced | more : 0);
  }

  void apply(InstructionId id, const Fill&) {
    const Instruction& instruction = at(id);
    for (std::size_t i = 0; i < instruction.writes.size(); ++i)
      for_cells(history_.footprint(id).writes[i], [&](Content& content) {
        content = {instruction.writes[i].buffer, is_gradient(instruction.writes[i]), 0};
      });
  }

  void apply(InstructionId id, const ReduceScatter& reduce) {
    reduce_gradient(id, reduce.group, reduce.pre_scale * reduce.post_scale, reduce.contributes);
  }
  void apply(InstructionId id, const AllReduce& reduce) {
    reduce_gradient(id, reduce.group, reduce.pre_scale * reduce.post_scale, reduce.contributes);
  }

  void reduce_gradient(InstructionId id, Group group, double scale, const std::vector<int>& units) {
    const View& operand = at(id).reads[0];
    if (is_gradient(operand)) {
      if (std::abs(scale * static_cast<double>(plan_.mesh.size(group)) - 1) > 1e-9)
        fault(id, operand.buffer, Kind::Gradient,
              [] { return std::string("is not averaged: the scales do not divide by the ranks"); });
      for_cells(history_.footprint(id).reads[0], [&](const Content& content) {
        if ((content.reduced & axes_of(group)) == 0) return;
        fault(id, operand.buffer, Kind::Gradient,
              [] { return std::string("is reduced a second time over the same ranks"); });
      });
    }
    for (const int unit : units)
      ++contributions_[unit];
    write_like_source(id, axes_of(group) & needed_axes_);
  }

  void apply(InstructionId id, const Read&) { write_all(id, false, 0); }
  void apply(InstructionId, const Write&) {}
  void apply(InstructionId, const HostWait&) {}

  void check_updates() {
    const bool trains = std::ranges::any_of(plan_.program, [](const ProgramItem& item) {
      return item.count == ProgramItem::kOncePerStep;
    });
    for (std::size_t unit = 0; unit < updates_.size(); ++unit)
      if (trains && updates_[unit] != kRepeats)
        faults_.push_back({"", buffer_name(plan_.units[unit].parameter),
                           fmt::format("is updated {} times in {} steps, not once a step",
                                       updates_[unit], kRepeats)});
  }

  const Plan& plan_;
  ClockWalk walk_;
  AccessHistory history_;
  std::vector<Content> contents_;   // by cell
  std::vector<int> contributions_;  // by unit, since its last update
  std::vector<int> updates_;        // by unit
  unsigned needed_axes_ = 0;
  std::set<std::tuple<InstructionId, BufferId, Kind>> seen_;
  std::vector<Fault> faults_;
};

}  // namespace

std::vector<Fault> verify(const Plan& plan) {
  std::vector<Fault> faults = structure_faults(plan);
  if (!faults.empty())
    return faults;  // positions and sizes must hold for the rest to mean something
  return Verifier(plan).run();
}

}  // namespace shardplan
