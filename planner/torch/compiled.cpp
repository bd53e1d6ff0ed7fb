#include "planner/torch/compiled.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>
#include <variant>
#include <vector>

#include "planner/passes/recomputation.h"

namespace shardplan::torch {
namespace {

constexpr int kNone = -1;

/// What a segment does with a buffer; places of instructions.
struct Use {
  int allocs = 0;
  InstructionId free = kNone;
  int graph = kNone;             // that all of its operators are in
  bool inside = true;            // and all are element-wise
  bool written = false;          // by an operator of the graph
  InstructionId needed = kNone;  // last one that must find it in memory
};

class Compiler {
 public:
  Compiler(Plan& plan, const ModelGraph& model, bool with_loss) : plan_(plan) {
    for (const std::string& block : block_modules(model))
      graphs_.emplace(block, static_cast<int>(graphs_.size()));
    if (with_loss) graphs_.emplace("loss", static_cast<int>(graphs_.size()));
  }

  void run() {
    std::vector<InstructionId> order(plan_.instructions.size());
    std::iota(order.begin(), order.end(), 0);
    for (const Segment& segment : plan_.segments) {
      find_uses(segment);
      find_needs(segment);
      const std::vector<InstructionId> moved = with_frees_moved(segment);
      std::ranges::copy(moved, order.begin() + segment.first);
    }
    reorder(order);
  }

 private:
  /// Of the instruction; kNone: it runs outside of graphs.
  int graph_of(const Instruction& instruction) const {
    if (!std::holds_alternative<Compute>(instruction.operation)) return kNone;
    if (instruction.phase != Phase::Forward && instruction.phase != Phase::Backward) return kNone;
    const std::string_view name = instruction.name;
    for (std::size_t dot = name.find('.'); dot != std::string_view::npos;
         dot = name.find('.', dot + 1))
      if (const auto graph = graphs_.find(name.substr(0, dot)); graph != graphs_.end())
        return graph->second;
    return kNone;
  }

  static bool is_elementwise(const Instruction& instruction) {
    const auto* compute = std::get_if<Compute>(&instruction.operation);
    return compute != nullptr &&
           (compute->kernel == Kernel::Elementwise || compute->kernel == Kernel::Add);
  }

  void find_uses(const Segment& segment) {
    uses_.assign(plan_.buffers.size(), {});
    std::vector<bool> seen(plan_.buffers.size(), false);
    for (InstructionId id = segment.first; id < segment.last; ++id) {
      const Instruction& instruction = plan_.instructions[id];
      if (std::holds_alternative<Alloc>(instruction.operation)) {
        ++uses_[instruction.writes.front().buffer].allocs;
        continue;
      }
      if (const auto* free = std::get_if<Free>(&instruction.operation)) {
        Use& use = uses_[instruction.writes.front().buffer];
        use.free = id;
        use.inside = use.inside && free->used_on.empty();
        continue;
      }
      const int graph = graph_of(instruction);
      const bool inside = graph != kNone && is_elementwise(instruction);
      for (const auto* views : {&instruction.reads, &instruction.writes})
        for (const View& view : *views) {
          Use& use = uses_[view.buffer];
          use.inside = use.inside && inside && (!seen[view.buffer] || use.graph == graph);
          use.graph = graph;
          seen[view.buffer] = true;
        }
      for (const View& view : instruction.writes)
        if (graph != kNone) uses_[view.buffer].written = true;
    }
    for (BufferId id = 0; id < static_cast<BufferId>(uses_.size()); ++id)
      if (is_in_kernels(id)) plan_.buffers[id].class_elems.assign(plan_.classes.size(), 0);
  }

  /// Made and gone within the segment.
  bool is_passing(BufferId id) const {
    return uses_[id].allocs == 1 && uses_[id].free != kNone && uses_[id].written;
  }

  bool is_in_kernels(BufferId id) const { return is_passing(id) && uses_[id].inside; }

  /// Backwards, so that what a result inside of kernels is needed for is known before what it is
  /// computed from is asked for.
  void find_needs(const Segment& segment) {
    for (InstructionId id = segment.last - 1; id >= segment.first; --id) {
      const Instruction& instruction = plan_.instructions[id];
      if (std::holds_alternative<Alloc>(instruction.operation) ||
          std::holds_alternative<Free>(instruction.operation))
        continue;
      InstructionId runs = kNone;  // last, each time that its results are computed
      for (const View& view : instruction.writes)
        runs = std::max(runs, is_in_kernels(view.buffer) ? uses_[view.buffer].needed : id);
      for (const auto* views : {&instruction.reads, &instruction.writes})
        for (const View& view : *views)
          uses_[view.buffer].needed = std::max(uses_[view.buffer].needed, runs);
    }
  }

  /// The segment's instructions, each free right after the last one that needs the buffer.
  std::vector<InstructionId> with_frees_moved(const Segment& segment) {
    std::multimap<InstructionId, InstructionId> frees;  // by what they follow
    const auto moves = [&](const Instruction& instruction) {
      if (!std::holds_alternative<Free>(instruction.operation)) return false;
      const BufferId id = instruction.writes.front().buffer;
      return is_passing(id) && !uses_[id].inside && uses_[id].needed != kNone;
    };
    for (InstructionId id = segment.first; id < segment.last; ++id)
      if (const Instruction& instruction = plan_.instructions[id]; moves(instruction))
        frees.emplace(uses_[instruction.writes.front().buffer].needed, id);
    std::vector<InstructionId> order;
    for (InstructionId id = segment.first; id < segment.last; ++id) {
      if (!moves(plan_.instructions[id])) order.push_back(id);
      const auto [first, last] = frees.equal_range(id);
      for (auto free = first; free != last; ++free) {
        plan_.instructions[free->second].phase = plan_.instructions[id].phase;
        order.push_back(free->second);
      }
    }
    return order;
  }

  void reorder(const std::vector<InstructionId>& order) {
    std::vector<InstructionId> place(order.size());
    for (std::size_t i = 0; i < order.size(); ++i)
      place[order[i]] = static_cast<InstructionId>(i);
    std::vector<Instruction> instructions;
    instructions.reserve(order.size());
    for (const InstructionId id : order) {
      instructions.push_back(std::move(plan_.instructions[id]));
      for (Wait& wait : instructions.back().after)
        wait.id = place[wait.id];
    }
    plan_.instructions = std::move(instructions);
  }

  Plan& plan_;
  std::map<std::string, int, std::less<>> graphs_;  // by module
  std::vector<Use> uses_;                           // of a segment, by buffer
};

}  // namespace

void compile_blocks(Plan& plan, const ModelGraph& model, bool with_loss) {
  Compiler(plan, model, with_loss).run();
}

}  // namespace shardplan::torch
