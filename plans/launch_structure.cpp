#include "plans/launch_structure.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "plans/kernel_operands.h"

namespace shardplan {
namespace {

class LaunchCheck {
 public:
  LaunchCheck(const Plan& plan, const Instruction& instruction, std::vector<Fault>& faults)
      : plan_(plan),
        instruction_(instruction),
        compute_(std::get<Compute>(instruction.operation)),
        faults_(faults) {}

  void run() {
    const std::string wrong = attribute_fault(compute_.kernel, compute_.attributes, plan_.profile);
    if (!wrong.empty()) return fault(nullptr, wrong);
    OperandTypes types = operand_types(compute_.kernel, compute_.attributes, plan_.profile);
    narrow_ = types.may_be_narrow;
    if (const Extent wide = wide_elems(); wide != Extent(0)) types.writes.emplace_back(wide);
    if (!count_fits(types))
      return fault(nullptr, fmt::format("{} has {} operands to read and {} to write",
                                        to_string(compute_.kernel), instruction_.reads.size(),
                                        instruction_.writes.size()));
    check_types(instruction_.writes, types.writes, types.one_size);
    check_types(instruction_.reads, types.reads, types.one_size);
    for (std::size_t i = types.reads.size(); i < instruction_.reads.size(); ++i)
      check_further_read(instruction_.reads[i], types);
    if (is_optimizer(compute_.kernel)) check_states();
  }

 private:
  void fault(const View* view, std::string why) {
    faults_.push_back({instruction_.name, view ? plan_.buffers[view->buffer].name : std::string(),
                       std::move(why)});
  }

  bool count_fits(const OperandTypes& types) const {
    const auto at_least = [](const std::vector<View>& views, std::size_t all, int optional) {
      return views.size() + optional >= all;
    };
    return at_least(instruction_.reads, types.reads.size(), types.optional_reads) &&
           at_least(instruction_.writes, types.writes.size(), types.optional_writes) &&
           instruction_.writes.size() <= types.writes.size() &&
           (types.more_reads ||
            instruction_.reads.size() <= types.reads.size() + types.writes.size());
  }

  void check_types(const std::vector<View>& views, const std::vector<OperandType>& types,
                   bool one_size) {
    for (std::size_t i = 0; i < std::min(views.size(), types.size()); ++i) {
      check_type(views[i], types[i]);
      if (!types[i].elems && one_size && views[i].elems != instruction_.writes[0].elems)
        size_fault(views[i], instruction_.writes[0].elems);
    }
  }

  void check_type(const View& view, const OperandType& type) {
    const Dtype dtype = plan_.buffers[view.buffer].dtype;
    if (type.elems && Extent(view.elems) != *type.elems) size_fault(view, type.elems->value());
    const bool narrow = narrow_ && type.dtype == Dtype::Float32 && dtype == Dtype::BFloat16;
    if (dtype != type.dtype && !narrow)
      fault(&view, fmt::format("is {}, where {} takes {}", to_string(dtype),
                               to_string(compute_.kernel), to_string(type.dtype)));
  }
  /// Float32 copies of what the kernel does not take as it is, each view once.
  Extent wide_elems() const {
    if (!narrow_ || !widens(compute_.kernel, plan_.profile)) return 0;
    std::vector<View> narrow;
    for (const auto* views : {&instruction_.reads, &instruction_.writes})
      for (const View& view : *views)
        if (plan_.buffers[view.buffer].dtype == Dtype::BFloat16 &&
            std::ranges::find(narrow, view) == narrow.end())
          narrow.push_back(view);
    Extent elems = 0;
    for (const View& view : narrow)
      elems = elems + view.elems;
    return elems;
  }

  void size_fault(const View& view, std::int64_t expected) {
    fault(&view, fmt::format("{} elements, where {} fit", view.elems, expected));
  }

  /// One that the kernel adds to, or one more of the same sort.
  void check_further_read(const View& view, const OperandTypes& types) {
    if (types.more_reads) return check_type(view, *types.more_reads);
    const auto& writes = instruction_.writes;
    if (!types.accumulates || std::ranges::find(writes, view) == writes.end())
      fault(&view, fmt::format("is one operand too many for {}", to_string(compute_.kernel)));
  }

  /// An optimizer reads what it writes: the parameter and its states, after gradient and factor.
  void check_states() {
    const auto& [reads, writes] = std::tie(instruction_.reads, instruction_.writes);
    if (!std::equal(reads.begin() + 2, reads.end(), writes.begin(), writes.end()))
      fault(&writes[0], "is not updated in place with its states in their order");
    if (writes.size() < 2 && compute_.attributes.real(Attribute::Momentum) != 0)
      fault(&writes[0], "has no buffer for its momentum");
  }

  const Plan& plan_;
  const Instruction& instruction_;
  const Compute& compute_;
  std::vector<Fault>& faults_;
  bool narrow_ = false;  // operands of float32 may be of bfloat16
};

}  // namespace

void check_launch(const Plan& plan, const Instruction& instruction, std::vector<Fault>& faults) {
  LaunchCheck(plan, instruction, faults).run();
}

}  // namespace shardplan
