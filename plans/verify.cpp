#include "plans/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "plans/access_history.h"
#include "plans/contents.h"
#include "plans/differentiation.h"
#include "plans/happens_before.h"
#include "plans/plan_structure.h"
#include "plans/training_step.h"

namespace shardplan {
namespace {

constexpr int kRepeats = 2;  // a wait that is missing across the back edge shows in the second pass

class Verifier {
 public:
  explicit Verifier(const Plan& plan)
      : plan_(plan),
        walk_(plan),
        history_(plan,
                 has_allocator(plan.profile) ? separate_addresses(plan) : arena_addresses(plan)),
        contents_(plan, history_,
                  [this](InstructionId id, BufferId buffer, std::string_view why) {
                    fault(id, buffer, Kind::Content, why);
                  }),
        differentiation_(contents_),
        step_(contents_, differentiation_) {}

  std::vector<Fault> run() {
    if (!follows_values()) {
      for (const InstructionId id : unroll(plan_, kRepeats))
        issue(id);
      return std::move(faults_);
    }
    for (const ProgramItem& item : plan_.program) {
      if (item.count != ProgramItem::kOncePerStep) {
        run_item(item);
        continue;
      }
      for (int step = 0; step < kRepeats; ++step) {
        step_.begin();
        run_once(item);
        step_.end();
      }
    }
    step_.end_program();
    return std::move(faults_);
  }

 private:
  const Instruction& at(InstructionId id) const { return plan_.instructions[id]; }

  /// Plans that only PyTorch executes name no kernels whose results could be followed; what holds
  /// for all is their order.
  bool follows_values() const { return !is_torch(plan_.profile); }

  enum class Kind { Order, Content };

  /// One fault per instruction, buffer and kind: a race over many bytes is one fault.
  void fault(InstructionId id, BufferId buffer, Kind kind, std::string_view why) {
    if (id >= 0 && !seen_.emplace(id, buffer, kind).second) return;
    faults_.push_back({id < 0 ? std::string() : at(id).name,
                       buffer < 0 ? std::string() : plan_.buffers[buffer].name, std::string(why)});
  }

  void run_item(const ProgramItem& item) {
    for (std::int64_t pass = 0; pass < std::min<std::int64_t>(item.count, kRepeats); ++pass)
      run_once(item);
  }

  void run_once(const ProgramItem& item) {
    if (item.segment >= 0)
      for (InstructionId id = plan_.segments[item.segment].first;
           id < plan_.segments[item.segment].last; ++id)
        issue(id);
    for (const ProgramItem& inner : item.body)
      run_item(inner);
  }

  void issue(InstructionId id) {
    walk_.issue(id);
    for (const Wait& wait : at(id).after)
      if (wait.why != Why::Throttle) walk_.wait_for(wait.id);  // it may go without changing a value
    check_order(id);
    if (follows_values()) {
      contents_.check_owners(id);
      std::visit([&](const auto& operation) { apply(id, operation); }, at(id).operation);
    }
    history_.record(id, walk_.position());
    walk_.commit();
  }

  void check_order(InstructionId id) {
    history_.for_each_conflict(id, [&](std::int32_t position, const View& view) {
      if (walk_.covers(position) || !must_wait(at(id), walk_.stream_of(position))) return;
      const Instruction& other = at(walk_.instruction_at(position));
      fault(id, view.buffer, Kind::Order,
            fmt::format("touches the same bytes as {} (stream {}), and nothing orders the two",
                        other.name, to_string(other.stream)));
    });
  }

  void apply(InstructionId id, const Alloc&) { contents_.forget(id); }
  void apply(InstructionId id, const Free&) { contents_.forget(id); }
  void apply(InstructionId id, const Compute& compute) {
    if (is_optimizer(compute.kernel)) return step_.update(id);
    if (compute.kernel == Kernel::SumSquares) return step_.sum_squares(id);
    if (compute.kernel == Kernel::GradientNorm) return step_.gradient_norm(id);
    differentiation_.apply(id);
    step_.add_losses(differentiation_.take_losses());
  }
  void apply(InstructionId id, const Copy& copy) {
    for (std::size_t i = 0; i < at(id).writes.size(); ++i) {
      if (copy.part)
        contents_.write_part(id, i, contents_.read(id, i), *copy.part);
      else
        contents_.write(id, i, contents_.read(id, i));
    }
  }
  void apply(InstructionId id, const Fill& fill) {
    for (std::size_t i = 0; i < at(id).writes.size(); ++i) {
      if (fill.value == 0)
        contents_.write(id, i, Values::kZero);
      else
        contents_.write_unknown(id, i);
    }
  }
  void apply(InstructionId id, const AllGather& gather) { contents_.gather(id, gather.group); }
  void apply(InstructionId id, const ReduceScatter& reduce) { step_.reduce_scatter(id, reduce); }
  void apply(InstructionId id, const AllReduce& reduce) { step_.all_reduce(id, reduce); }
  void apply(InstructionId id, const Broadcast&) { contents_.write_unknown(id); }
  void apply(InstructionId id, const Read& read) { step_.read(id, read.source); }
  void apply(InstructionId id, const Write& write) { step_.write(id, write.sink); }
  void apply(InstructionId, const HostWait&) {}

  const Plan& plan_;
  ClockWalk walk_;
  AccessHistory history_;
  Contents contents_;
  Differentiation differentiation_;
  TrainingStep step_;
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
