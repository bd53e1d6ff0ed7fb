#include "plans/plan.h"

#include <algorithm>
#include <array>

namespace shardplan {
namespace {

struct GroupOf {
  std::optional<Group> operator()(const AllGather& step) const { return step.group; }
  std::optional<Group> operator()(const ReduceScatter& step) const { return step.group; }
  std::optional<Group> operator()(const AllReduce& step) const { return step.group; }
  std::optional<Group> operator()(const Broadcast& step) const { return step.group; }
  template <typename Local>
  std::optional<Group> operator()(const Local&) const {
    return std::nullopt;
  }
};

constexpr std::array<std::string_view, kStreams> kStreamNames{"compute", "ag",  "rs",  "ar",
                                                              "h2d",     "d2h", "host"};
constexpr std::array<std::string_view, kPhases> kPhaseNames{"load",     "init",      "forward",
                                                            "backward", "optimizer", "save"};
constexpr std::array<std::string_view, kCategories> kCategoryNames{
    "parameters",           "gradients",           "optimizer_state",
    "unsharded_parameters", "unsharded_gradients", "communication_buffers",
    "activations",          "temporaries",         "inputs"};
constexpr std::array<std::string_view, 4> kSpaceNames{"device", "pinned", "host", "disk"};
constexpr std::array<std::string_view, kGroups> kGroupNames{"world", "shard", "replicate", "span"};
constexpr std::array<std::string_view, kSources> kSourceNames{"tokens", "targets", "weights",
                                                              "input"};
constexpr std::array<std::string_view, 3> kSinkNames{"loss", "gradient_norm", "weights"};
constexpr std::array<std::string_view, 3> kWhyNames{"data", "reuse", "throttle"};
constexpr std::array<std::string_view, std::variant_size_v<Operation>> kKindNames{
    "alloc",          "free",       "compute",   "copy", "fill",  "all_gather",
    "reduce_scatter", "all_reduce", "broadcast", "read", "write", "host_wait"};

template <typename Names, typename Enum>
std::string_view text_of(const Names& names, Enum value) {
  return names[static_cast<std::size_t>(value)];
}

void unroll(const Plan& plan, const ProgramItem& item, int repeats,
            std::vector<InstructionId>& order) {
  const std::int64_t times = item.count == ProgramItem::kOncePerStep ? repeats
                             : item.count == ProgramItem::kFirstStep
                                 ? 1
                                 : std::min<std::int64_t>(item.count, repeats);
  for (std::int64_t pass = 0; pass < times; ++pass) {
    if (item.segment >= 0) {
      const Segment& segment = plan.segments[item.segment];
      for (InstructionId id = segment.first; id < segment.last; ++id)
        order.push_back(id);
    }
    for (const ProgramItem& inner : item.body)
      unroll(plan, inner, repeats, order);
  }
}

/// Reads of targets in one pass of the loop over the steps.
std::int64_t target_reads(const Plan& plan, const ProgramItem& item) {
  if (item.count == ProgramItem::kFirstStep) return 0;  // as many as any other
  std::int64_t reads = 0;
  if (item.segment >= 0) {
    const Segment& segment = plan.segments[item.segment];
    for (InstructionId id = segment.first; id < segment.last; ++id) {
      const auto* read = std::get_if<Read>(&plan.instructions[id].operation);
      reads += read && read->source == Source::Targets ? 1 : 0;
    }
  }
  for (const ProgramItem& inner : item.body)
    reads += target_reads(plan, inner);
  return item.count == ProgramItem::kOncePerStep ? reads : item.count * reads;
}

}  // namespace

std::string_view to_string(Stream stream) { return text_of(kStreamNames, stream); }
std::string_view to_string(Phase phase) { return text_of(kPhaseNames, phase); }
std::string_view to_string(Category category) { return text_of(kCategoryNames, category); }
std::string_view to_string(Space space) { return text_of(kSpaceNames, space); }
std::string_view to_string(Group group) { return text_of(kGroupNames, group); }
std::string_view to_string(Source source) { return text_of(kSourceNames, source); }
std::string_view to_string(Sink sink) { return text_of(kSinkNames, sink); }
std::string_view to_string(Why why) { return text_of(kWhyNames, why); }
std::string_view kind_of(const Operation& operation) { return kKindNames[operation.index()]; }

std::optional<Group> group_of(const Operation& operation) {
  return std::visit(GroupOf{}, operation);
}

std::vector<InstructionId> unroll(const Plan& plan, int repeats) {
  std::vector<InstructionId> order;
  for (const ProgramItem& item : plan.program)
    unroll(plan, item, repeats, order);
  return order;
}

std::int64_t micro_steps_of(const Plan& plan) {
  std::int64_t reads = 0;
  for (const ProgramItem& item : plan.program)
    reads += target_reads(plan, item);
  return reads;
}

}  // namespace shardplan
