#include "tests/oracle/mutation.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace shardplan::oracle {
namespace {

InstructionId last_of(const Plan& plan) {
  return static_cast<InstructionId>(plan.instructions.size()) - 1;
}

template <typename Renumber>
void renumber_waits(Plan& plan, Renumber renumber) {
  for (Instruction& instruction : plan.instructions)
    for (Wait& wait : instruction.after)
      wait.id = renumber(wait.id);
}

/// What waited for the instruction waits for nothing.
void drop(Plan& plan, InstructionId id) {
  plan.instructions.erase(plan.instructions.begin() + id);
  for (Instruction& instruction : plan.instructions)
    std::erase_if(instruction.after, [&](const Wait& wait) { return wait.id == id; });
  renumber_waits(plan, [&](InstructionId wait) { return wait > id ? wait - 1 : wait; });
  for (Segment& segment : plan.segments) {
    segment.first -= segment.first > id ? 1 : 0;
    segment.last -= segment.last > id ? 1 : 0;
  }
}

void duplicate(Plan& plan, InstructionId id) {
  Instruction copy = plan.instructions[id];
  copy.name += ".again";
  plan.instructions.insert(plan.instructions.begin() + id + 1, std::move(copy));
  renumber_waits(plan, [&](InstructionId wait) { return wait > id ? wait + 1 : wait; });
  for (Segment& segment : plan.segments) {
    segment.first += segment.first > id ? 1 : 0;
    segment.last += segment.last > id ? 1 : 0;
  }
}

void put_behind_next(Plan& plan, InstructionId id) {
  std::swap(plan.instructions[id], plan.instructions[id + 1]);
  renumber_waits(plan, [&](InstructionId wait) {
    return wait == id ? id + 1 : wait == id + 1 ? id : wait;
  });
}

bool same_segment(const Plan& plan, InstructionId a, InstructionId b) {
  return std::ranges::any_of(plan.segments, [&](const Segment& segment) {
    return segment.first <= a && a < segment.last && segment.first <= b && b < segment.last;
  });
}

class Mutator {
 public:
  Mutator(const Plan& plan, const std::function<void(const Mutant&)>& visit)
      : plan_(plan), visit_(visit) {}

  void run() {
    for (InstructionId id = 0; id <= last_of(plan_); ++id) {
      mutant("dropped", id, [&](Plan& plan) { drop(plan, id); });
      mutant("duplicated", id, [&](Plan& plan) { duplicate(plan, id); });
      if (id < last_of(plan_) && same_segment(plan_, id, id + 1))
        mutant("reordered", id, [&](Plan& plan) { put_behind_next(plan, id); });
      move(id);
      resize(id);
      remove_waits(id);
      swap_operands(id);
    }
    for (std::size_t buffer = 0; buffer < plan_.buffers.size(); ++buffer) {
      Mutant smaller{"buffer resized", plan_.buffers[buffer].name, plan_};
      smaller.plan.buffers[buffer].elems -= 1;
      visit_(smaller);
    }
  }

 private:
  template <typename Change>
  void mutant(std::string kind, InstructionId id, Change change) {
    Mutant result{std::move(kind), plan_.instructions[id].name, plan_};
    change(result.plan);
    visit_(result);
  }

  void move(InstructionId id) {
    for (const int distance : {1, 3}) {
      const auto from = static_cast<int>(plan_.instructions[id].stream);
      mutant("moved to another stream", id, [&](Plan& plan) {
        plan.instructions[id].stream = static_cast<Stream>((from + distance) % kStreams);
      });
    }
  }

  static std::vector<View>& operands(Plan& plan, InstructionId id, bool written) {
    Instruction& instruction = plan.instructions[id];
    return written ? instruction.writes : instruction.reads;
  }

  void resize(InstructionId id) {
    for (const bool written : {false, true}) {
      const Instruction& instruction = plan_.instructions[id];
      const auto count = (written ? instruction.writes : instruction.reads).size();
      for (std::size_t i = 0; i < count; ++i) {
        mutant("resized", id, [&](Plan& plan) { operands(plan, id, written)[i].elems -= 1; });
        mutant("resized", id, [&](Plan& plan) {
          View& view = operands(plan, id, written)[i];
          (view.at > 0 ? view.at : view.elems) -= 1;
          view.elems += view.at > 0 ? 1 : 0;
        });
      }
    }
  }

  void remove_waits(InstructionId id) {
    for (std::size_t w = 0; w < plan_.instructions[id].after.size(); ++w)
      mutant("event removed", id, [&](Plan& plan) {
        std::vector<Wait>& after = plan.instructions[id].after;
        after.erase(after.begin() + static_cast<std::ptrdiff_t>(w));
      });
  }

  bool alike(const View& a, const View& b) const {
    return a != b && a.elems == b.elems &&
           plan_.buffers[a.buffer].dtype == plan_.buffers[b.buffer].dtype;
  }

  void swap_operands(InstructionId id) {
    const Instruction& instruction = plan_.instructions[id];
    for (const bool written : {false, true}) {
      const std::vector<View>& views = written ? instruction.writes : instruction.reads;
      for (std::size_t a = 0; a < views.size(); ++a)
        for (std::size_t b = a + 1; b < views.size(); ++b)
          if (alike(views[a], views[b]))
            mutant("operands swapped", id, [&](Plan& plan) {
              std::swap(operands(plan, id, written)[a], operands(plan, id, written)[b]);
            });
      if (id == last_of(plan_)) continue;
      const Instruction& next = plan_.instructions[id + 1];
      const std::vector<View>& others = written ? next.writes : next.reads;
      for (std::size_t a = 0; a < std::min(views.size(), others.size()); ++a)
        if (alike(views[a], others[a]))
          mutant("operands swapped", id, [&](Plan& plan) {
            std::swap(operands(plan, id, written)[a], operands(plan, id + 1, written)[a]);
          });
    }
  }

  const Plan& plan_;
  const std::function<void(const Mutant&)>& visit_;
};

}  // namespace

void for_each_mutant(const Plan& plan, const std::function<void(const Mutant&)>& visit) {
  Mutator(plan, visit).run();
}

}  // namespace shardplan::oracle
