#include "plans/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
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
    case Group::Span: return 0;  // a part of an axis averages nothing over all ranks
  }
  return 0;
}

/// What the bytes of a cell are. Passes are the backward passes of a step's micro-steps, one bit
/// each.
struct Content {
  BufferId owner = -1;       // buffer they were last written as; -1: never written
  unsigned reduced = 0;      // of a gradient: mesh axes it has been averaged over
  std::uint32_t passes = 0;  // passes whose gradients it sums; 0: none, as in padding
  bool taken = false;        // something has read it since
};

class Verifier {
 public:
  explicit Verifier(const Plan& plan)
      : plan_(plan),
        walk_(plan),
        history_(plan, arena_addresses(plan)),
        contents_(history_.cell_count()) {
    for (const Unit& unit : plan.units)
      updates_.emplace_back(unit.slices.size(), 0);
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

  void write_all(InstructionId id) {
    for (std::size_t i = 0; i < at(id).writes.size(); ++i)
      write(id, i, 0, 0);
  }

  /// The i-th operand written holds gradients of these passes, averaged over these axes.
  void write(InstructionId id, std::size_t i, unsigned reduced, std::uint32_t passes) {
    for_cells(history_.footprint(id).writes[i], [&](Content& content) {
      content = {at(id).writes[i].buffer, reduced, passes, false};
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
    const Instruction& instruction = at(id);
    if (compute.kernel == Kernel::Adam || compute.kernel == Kernel::Sgd) {
      use_gradient(id, 0);
      update_parameter(id);
    } else if (compute.kernel == Kernel::SumSquares) {
      for (std::size_t i = 0; i < instruction.reads.size(); ++i)
        use_gradient(id, i);
    } else if (compute.kernel == Kernel::Add && is_gradient(instruction.writes[0])) {
      return add_gradients(id);
    }
    for (std::size_t i = 0; i < instruction.writes.size(); ++i) {
      if (is_gradient(instruction.writes[i]))
        write_gradient(id, i);
      else
        write(id, i, 0, 0);
    }
  }

  /// Backward writes a parameter's gradient, or adds to it.
  void write_gradient(InstructionId id, std::size_t i) {
    const Instruction& instruction = at(id);
    const View& view = instruction.writes[i];
    const bool added = std::ranges::find(instruction.reads, view) != instruction.reads.end();
    for_cells(history_.footprint(id).writes[i], [&](Content& content) {
      const bool own = content.owner == view.buffer && content.passes != 0;
      if (added && own && content.reduced != 0)
        fault(id, view.buffer, Kind::Gradient,
              [] { return std::string("is added to after it was reduced"); });
      if (!added && own && !content.taken)
        fault(id, view.buffer, Kind::Gradient,
              [] { return std::string("is overwritten before anything used it"); });
      content = {view.buffer, 0, (added && own ? content.passes : 0) | pass_, false};
    });
  }

  /// What a gradient that is read as a whole holds; it counts as used from here on. Faults when its
  /// parts sum different passes, or lack a gradient where there is a parameter.
  Content take(InstructionId id, std::size_t i) {
    const View& view = at(id).reads[i];
    Content all{view.buffer, 0, 0, false};
    Bytes empty = 0;
    const CellRange cells = history_.footprint(id).reads[i];
    for (std::int32_t cell = cells.begin; cell < cells.end; ++cell) {
      Content& content = contents_[cell];
      content.taken = true;
      if (content.passes == 0) {
        empty += history_.cell_bytes(cell);
        continue;
      }
      if (all.passes != 0 && (all.passes != content.passes || all.reduced != content.reduced))
        fault(id, view.buffer, Kind::Gradient,
              [] { return std::string("has parts that sum different micro-steps or ranks"); });
      all.passes |= content.passes;
      all.reduced |= content.reduced;
    }
    if (at(id).unit >= 0 && empty > padding_bytes(id, view))
      fault(id, view.buffer, Kind::Gradient,
            [&] { return fmt::format("lacks the gradients of {} bytes", empty); });
    return all;
  }

  /// Bytes of a whole unit's gradients that belong to no parameter.
  Bytes padding_bytes(InstructionId id, const View& view) const {
    const Unit& unit = plan_.units[at(id).unit];
    std::int64_t elems = unit.trainable_elems();
    for (const UnitParameter& parameter : unit.parameters)
      if (parameter.at < unit.trainable_elems()) elems -= parameter.elems;
    return elems * size_of(plan_.buffers[view.buffer].dtype);
  }

  /// The optimizer and the norm need gradients of all micro-steps, averaged over all ranks.
  void use_gradient(InstructionId id, std::size_t i) {
    const View& view = at(id).reads[i];
    if (!is_gradient(view)) return;
    const Content gradient = take(id, i);
    if (gradient.reduced != needed_axes_)
      fault(id, view.buffer, Kind::Gradient,
            [] { return std::string("is used before it is reduced over all ranks"); });
    if (gradient.passes != step_passes_)
      fault(id, view.buffer, Kind::Gradient,
            [] { return std::string("does not sum the micro-steps of this step, each once"); });
  }

  /// The first operand grows by the second.
  void add_gradients(InstructionId id) {
    const Content summand = take(id, 1);
    const View& sum = at(id).writes[0];
    for_cells(history_.footprint(id).writes[0], [&](Content& content) {
      if ((content.passes & summand.passes) != 0)
        fault(id, sum.buffer, Kind::Gradient,
              [] { return std::string("gets the gradients of a micro-step a second time"); });
      if (content.passes != 0 && content.reduced != summand.reduced)
        fault(id, sum.buffer, Kind::Gradient,
              [] { return std::string("gets gradients that are reduced over other ranks"); });
      content = {sum.buffer, summand.reduced, content.passes | summand.passes, false};
    });
  }

  void update_parameter(InstructionId id) {
    const Instruction& instruction = at(id);
    const int unit = instruction.unit;
    if (unit < 0 || instruction.writes.empty() ||
        instruction.writes[0].buffer != plan_.units[unit].parameter)
      return fault(id, -1, Kind::Update,
                   [] { return std::string("does not update the parameters of its unit"); });
    const View& updated = instruction.writes[0];
    for (std::size_t s = 0; s < plan_.units[unit].slices.size(); ++s) {
      const UnitSlice& slice = plan_.units[unit].slices[s];
      const std::int64_t begin = slice.at / plan_.units[unit].shards();
      const std::int64_t end = begin + slice.elems / plan_.units[unit].shards();
      if (updated.at <= begin && end <= updated.at + updated.elems) ++updates_[unit][s];
    }
    updated_ = true;
  }

  void apply(InstructionId id, const Copy&) { write_like_sources(id); }
  void apply(InstructionId id, const Broadcast&) { write_like_sources(id); }
  void apply(InstructionId id, const AllGather&) { write_like_sources(id); }

  /// Every operand written holds what the one read in its place holds.
  void write_like_sources(InstructionId id) {
    for (std::size_t i = 0; i < at(id).writes.size(); ++i) {
      const Content from = is_gradient(at(id).reads[i]) ? take(id, i) : Content{};
      write(id, i, from.reduced, from.passes);
    }
  }

  void apply(InstructionId id, const Fill&) { write_all(id); }

  void apply(InstructionId id, const ReduceScatter& reduce) {
    const std::vector<View>& reads = at(id).reads;
    for (std::size_t i = 0; i < reads.size(); ++i) {
      if (!is_gradient(reads[i])) {
        write(id, i, 0, 0);
        continue;
      }
      const Content gradient = take(id, i);
      check_reduction(id, i, reduce, gradient);
      write(id, i, gradient.reduced | (axes_of(reduce.group) & needed_axes_), gradient.passes);
    }
  }

  void apply(InstructionId id, const AllReduce& reduce) {
    const View& operand = at(id).reads[0];
    if (!is_gradient(operand)) return write_all(id);
    check_reduction(id, 0, reduce, take(id, 0));
    for_cells(history_.footprint(id).writes[0], [&](Content& content) {
      content.owner = operand.buffer;
      content.reduced |= axes_of(reduce.group) & needed_axes_;
      content.taken = false;
    });
  }

  template <typename Reduction>
  void check_reduction(InstructionId id, std::size_t i, const Reduction& reduce,
                       const Content& gradient) {
    const BufferId buffer = at(id).reads[i].buffer;
    const unsigned axes = axes_of(reduce.group) & needed_axes_;
    const double scale = reduce.pre_scale * reduce.post_scale;
    if (std::abs(scale * static_cast<double>(plan_.mesh.size(reduce.group)) - 1) > 1e-9)
      fault(id, buffer, Kind::Gradient,
            [] { return std::string("is not averaged: the scales do not divide by the ranks"); });
    if ((gradient.reduced & axes) != 0)
      fault(id, buffer, Kind::Gradient,
            [] { return std::string("is reduced a second time over the same ranks"); });
    const bool final = (gradient.reduced | axes) == needed_axes_;
    if (reduce.contributes != (final ? std::vector{at(id).unit} : std::vector<int>{}))
      fault(id, buffer, Kind::Update,
            [] { return std::string("is not what the instruction says that it makes final"); });
  }

  void apply(InstructionId id, const Read& read) {
    write_all(id);
    if (read.source == Source::Tokens) begin_pass();
  }
  void apply(InstructionId, const Write&) {}
  void apply(InstructionId, const HostWait&) {}

  /// A micro-step begins; the first after an update begins a step.
  void begin_pass() {
    if (updated_) step_passes_ = 0;
    updated_ = false;
    pass_ = std::rotl(pass_, 1);
    step_passes_ |= pass_;
  }

  void check_updates() {
    const bool trains = std::ranges::any_of(plan_.program, [](const ProgramItem& item) {
      return item.count == ProgramItem::kOncePerStep;
    });
    for (std::size_t unit = 0; unit < updates_.size(); ++unit)
      for (std::size_t s = 0; s < updates_[unit].size(); ++s) {
        const int expected = trains && plan_.units[unit].slices[s].trainable ? kRepeats : 0;
        if (updates_[unit][s] != expected)
          faults_.push_back(
              {"", buffer_name(plan_.units[unit].parameter),
               fmt::format("is updated {} times in {} steps from element {} on, not {} times",
                           updates_[unit][s], kRepeats, plan_.units[unit].slices[s].at, expected)});
      }
  }

  const Plan& plan_;
  ClockWalk walk_;
  AccessHistory history_;
  std::vector<Content> contents_;          // by cell
  std::vector<std::vector<int>> updates_;  // by unit and slice
  unsigned needed_axes_ = 0;
  std::uint32_t pass_ = 1;         // bit of the current backward pass
  std::uint32_t step_passes_ = 1;  // of the current step, so far
  bool updated_ = true;            // since the last micro-step began
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
