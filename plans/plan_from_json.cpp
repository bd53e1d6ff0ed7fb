#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "plans/job_reader.h"
#include "plans/json_cursor.h"
#include "plans/plan.h"

namespace shardplan {
namespace {

/// Sizes stay exact in a double and sums of them in 64 bits.
constexpr std::int64_t kMaxElems = std::int64_t{1} << 53;
constexpr Bytes kMaxTotalBytes = Bytes{1} << 60;
constexpr std::int64_t kMaxRanks = std::int64_t{1} << 24;
constexpr std::int64_t kMaxRepeat = 1'000'000;
/// Instructions of a few training steps, every loop written out: bounds what walking a plan costs.
constexpr std::int64_t kMaxUnrolled = 4'000'000;
constexpr std::int64_t kStepsWalked = 4;  // the most that verify and the simulator look at
constexpr std::string_view kSchema = "shardplan/plan/1";

/// Positions of the names of one sort of thing; each name may be given once.
class Names {
 public:
  explicit Names(std::string_view what) : what_(what) {}

  void add(const JsonCursor& name) {
    if (!positions_.emplace(name.text(), static_cast<std::int32_t>(order_.size())).second)
      name.fail(fmt::format("{} '{}' is there twice", what_, name.text()));
    order_.push_back(name.text());
  }
  std::int32_t find(const JsonCursor& name) const {
    const auto place = positions_.find(name.text());
    if (place == positions_.end()) name.fail_unknown(what_, order_);
    return place->second;
  }

 private:
  std::string_view what_;
  std::unordered_map<std::string_view, std::int32_t> positions_;
  std::vector<std::string_view> order_;
};

std::vector<std::int64_t> integers_from(const JsonCursor& json, std::int64_t most) {
  std::vector<std::int64_t> values;
  for (const JsonCursor& value : json.elements())
    values.push_back(value.integer(0, most));
  return values;
}

Buffer buffer_from(const JsonCursor& json) {
  json.allow_only(
      {"name", "category", "dtype", "elems", "space", "resident", "offset", "class_elems"});
  Buffer buffer;
  buffer.name = json.at("name").text();
  buffer.category = json.at("category").enumerator<Category>(kCategories);
  buffer.dtype = json.at("dtype").parsed(dtype_from);
  buffer.elems = json.at("elems").integer(0, kMaxElems);
  buffer.space = json.at("space").enumerator<Space>(kSpaces);
  buffer.resident = json.at("resident").boolean();
  if (const auto offset = json.find("offset")) buffer.offset = offset->integer(0, kMaxTotalBytes);
  if (const auto classes = json.find("class_elems"))
    buffer.class_elems = integers_from(*classes, buffer.elems);
  return buffer;
}

Initializer initializer_from(const JsonCursor& json) {
  json.allow_only({"kind", "standard_deviation"});
  const JsonCursor kind = json.at("kind");
  if (kind.text() == "ones") return {Initializer::Kind::Ones};
  if (kind.text() == "zeros") return {Initializer::Kind::Zeros};
  if (kind.text() != "normal") kind.fail("expected one of normal, ones, zeros");
  return {Initializer::Kind::Normal, json.at("standard_deviation").real()};
}

UnitSlice slice_from(const JsonCursor& json, std::int64_t unit_elems) {
  json.allow_only({"at", "elems", "valid", "trainable", "decays"});
  UnitSlice slice;
  slice.at = json.at("at").integer(0, unit_elems);
  slice.elems = json.at("elems").integer(0, unit_elems - slice.at);
  slice.valid = json.at("valid").integer(0, slice.elems);
  slice.trainable = json.at("trainable").boolean();
  slice.decays = json.at("decays").boolean();
  return slice;
}

UnitParameter unit_parameter_from(const JsonCursor& json, std::int64_t unit_elems) {
  json.allow_only({"name", "shape", "initializer", "at", "elems"});
  UnitParameter parameter;
  parameter.name = json.at("name").text();
  parameter.shape = integers_from(json.at("shape"), kMaxElems);
  parameter.initializer = initializer_from(json.at("initializer"));
  parameter.at = json.at("at").integer(0, unit_elems);
  parameter.elems = json.at("elems").integer(0, unit_elems - parameter.at);
  return parameter;
}

Unit unit_from(const JsonCursor& json, const Names& buffers) {
  json.allow_only(
      {"name", "elems", "padded_elems", "shard_elems", "parameter", "slices", "parameters"});
  Unit unit;
  unit.name = json.at("name").text();
  unit.elems = json.at("elems").integer(0, kMaxElems);
  unit.padded_elems = json.at("padded_elems").integer(unit.elems, kMaxElems);
  unit.shard_elems = json.at("shard_elems").integer(0, unit.padded_elems);
  if (const auto parameter = json.find("parameter")) unit.parameter = buffers.find(*parameter);
  for (const JsonCursor& slice : json.at("slices").elements())
    unit.slices.push_back(slice_from(slice, unit.padded_elems));
  for (const JsonCursor& parameter : json.at("parameters").elements())
    unit.parameters.push_back(unit_parameter_from(parameter, unit.padded_elems));
  return unit;
}

/// "0-6" or "7".
RankClass ranks_from(const JsonCursor& json, std::int64_t world) {
  const std::string& text = json.text();
  RankClass ranks;
  const char* const end = text.data() + text.size();
  auto parsed = std::from_chars(text.data(), end, ranks.first);
  ranks.last = ranks.first;
  if (parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == '-')
    parsed = std::from_chars(parsed.ptr + 1, end, ranks.last);
  if (parsed.ec != std::errc() || parsed.ptr != end || ranks.first < 0 ||
      ranks.last < ranks.first || ranks.last >= world)
    json.fail(fmt::format("expected a rank or a range of ranks like 0-{}", world - 1));
  return ranks;
}

void read_classes(const JsonCursor& json, Plan& plan) {
  std::int64_t next = 0;
  for (const JsonCursor& entry : json.elements()) {
    entry.allow_only({"ranks", "valid"});
    RankClass ranks = ranks_from(entry.at("ranks"), plan.world_size());
    if (ranks.first != next) entry.fail(fmt::format("expected ranks from {} on", next));
    next = ranks.last + 1;
    ranks.valid = integers_from(entry.at("valid"), kMaxElems);
    if (ranks.valid.size() != plan.units.size())
      entry.at("valid").fail(
          fmt::format("expected one size for each of the {} units", plan.units.size()));
    plan.classes.push_back(std::move(ranks));
  }
  if (next != plan.ranks_in_classes())
    json.fail(fmt::format("covers {} of {} ranks", next, plan.ranks_in_classes()));
}

/// Reads what only one kind of instruction has.
class ReadOwnOperands {
 public:
  ReadOwnOperands(const JsonCursor& json, const Names& units) : json_(json), units_(units) {}

  void operator()(Alloc&) const { allow({}); }
  void operator()(Free& free) const {
    allow({"used_on"});
    for (const JsonCursor& stream : json_.at("used_on").elements())
      free.used_on.push_back(stream.enumerator<Stream>(kStreams));
  }
  void operator()(Compute& compute) const {
    allow({"kernel", "attributes"});
    compute.kernel = json_.at("kernel").parsed(kernel_from);
    for (const auto& [name, value] : json_.at("attributes").members())
      compute.attributes.set(attribute(name, value), value.real());
  }
  void operator()(Copy& copy) const {
    allow({"part"});
    if (const auto part = json_.find("part")) copy.part = part->enumerator<Group>(kGroups);
  }
  void operator()(Fill& fill) const {
    allow({"value"});
    fill.value = json_.at("value").real();
  }
  void operator()(AllGather& gather) const {
    allow({"group"});
    gather.group = group();
  }
  void operator()(ReduceScatter& reduction) const { read_reduction(reduction); }
  void operator()(AllReduce& reduction) const { read_reduction(reduction); }
  void operator()(Broadcast& broadcast) const {
    allow({"group", "root"});
    broadcast.group = group();
    broadcast.root = static_cast<int>(json_.at("root").integer(0, kMaxRanks));
  }
  void operator()(Read& read) const {
    allow({"source"});
    read.source = json_.at("source").enumerator<Source>(kSources);
  }
  void operator()(Write& write) const {
    allow({"sink"});
    write.sink = json_.at("sink").enumerator<Sink>(kSinks);
  }
  void operator()(HostWait&) const { allow({}); }

 private:
  void allow(std::vector<std::string_view> own) const {
    own.insert(own.end(), {"id", "op", "stream", "phase", "unit", "reads", "writes", "after"});
    json_.allow_only(own);
  }

  Group group() const { return json_.at("group").enumerator<Group>(kGroups); }

  static Attribute attribute(std::string_view name, const JsonCursor& value) {
    try {
      return attribute_from(name);
    } catch (const InputError& error) {
      value.fail(error.what());
    }
  }

  template <typename Reduction>
  void read_reduction(Reduction& reduction) const {
    allow({"group", "pre_scale", "post_scale", "contributes"});
    reduction.group = group();
    reduction.pre_scale = json_.at("pre_scale").real();
    reduction.post_scale = json_.at("post_scale").real();
    for (const JsonCursor& unit : json_.at("contributes").elements())
      reduction.contributes.push_back(units_.find(unit));
  }

  const JsonCursor& json_;
  const Names& units_;
};

/// A default value of every alternative of Operation, in order.
template <std::size_t... Index>
std::vector<Operation> kinds_of(std::index_sequence<Index...>) {
  return {Operation(std::in_place_index<Index>)...};
}

Operation operation_from(const JsonCursor& json, const Names& units) {
  static const std::vector<Operation> kKinds =
      kinds_of(std::make_index_sequence<std::variant_size_v<Operation>>());
  const JsonCursor name = json.at("op");
  std::vector<std::string_view> known;
  for (const Operation& kind : kKinds) {
    if (kind_of(kind) != name.text()) {
      known.push_back(kind_of(kind));
      continue;
    }
    Operation operation = kind;
    std::visit(ReadOwnOperands(json, units), operation);
    return operation;
  }
  name.fail_unknown("kind of instruction", known);
}

/// Names by which the parts of a plan refer to each other.
struct PlanNames {
  Names buffers{"buffer"};
  Names units{"unit"};
  Names instructions{"instruction"};
  std::vector<std::string_view> segments;
};

std::vector<View> views_from(const JsonCursor& json, const Plan& plan, const Names& buffers) {
  std::vector<View> views;
  for (const JsonCursor& operand : json.elements()) {
    if (operand.is_text()) {
      const BufferId whole = buffers.find(operand);
      views.push_back({whole, 0, plan.buffers[whole].elems});
      continue;
    }
    operand.allow_only({"buf", "at", "elems"});
    View view{buffers.find(operand.at("buf"))};
    const std::int64_t elems = plan.buffers[view.buffer].elems;
    view.at = operand.at("at").integer(0, elems);
    view.elems = operand.at("elems").integer(0, elems - view.at);
    views.push_back(view);
  }
  return views;
}

Instruction instruction_from(const JsonCursor& json, const Plan& plan, const PlanNames& names) {
  Instruction instruction;
  instruction.name = json.at("id").text();
  instruction.stream = json.at("stream").enumerator<Stream>(kStreams);
  instruction.phase = json.at("phase").enumerator<Phase>(kPhases);
  if (const auto unit = json.find("unit")) instruction.unit = names.units.find(*unit);
  instruction.reads = views_from(json.at("reads"), plan, names.buffers);
  instruction.writes = views_from(json.at("writes"), plan, names.buffers);
  for (const JsonCursor& wait : json.at("after").elements()) {
    wait.allow_only({"id", "why"});
    instruction.after.push_back(
        {names.instructions.find(wait.at("id")), wait.at("why").enumerator<Why>(kWhys)});
  }
  instruction.operation = operation_from(json, names.units);
  return instruction;
}

void read_segments(const JsonCursor& json, Plan& plan, PlanNames& names) {
  // All names first: a wait may point forward, across the back edge of a loop.
  std::vector<JsonCursor> instructions;
  for (const auto& [name, segment] : json.members()) {
    segment.allow_only({"instructions"});
    const auto first = static_cast<InstructionId>(instructions.size());
    for (const JsonCursor& instruction : segment.at("instructions").elements()) {
      names.instructions.add(instruction.at("id"));
      instructions.push_back(instruction);
    }
    names.segments.push_back(name);
    plan.segments.push_back(
        {std::string(name), first, static_cast<InstructionId>(instructions.size())});
  }
  plan.instructions.reserve(instructions.size());
  for (const JsonCursor& instruction : instructions)
    plan.instructions.push_back(instruction_from(instruction, plan, names));
}

/// Reads the program tree and adds up how many instructions it comes to.
class ProgramReader {
 public:
  ProgramReader(const Plan& plan, const PlanNames& names) : plan_(plan), names_(names) {}

  std::vector<ProgramItem> body(const JsonCursor& json, std::int64_t& instructions) const {
    std::vector<ProgramItem> items;
    for (const JsonCursor& entry : json.elements()) {
      items.push_back(item(entry, instructions));
      if (instructions > kMaxUnrolled)
        entry.fail(fmt::format("the program comes to more than {} instructions", kMaxUnrolled));
    }
    return items;
  }

 private:
  ProgramItem item(const JsonCursor& json, std::int64_t& instructions) const {
    ProgramItem result;
    std::int64_t once = 0;
    if (json.is_text()) {
      result.segment = segment(json, once);
    } else {
      json.allow_only({"repeat", "segment", "body"});
      result.count = count(json.at("repeat"));
      const auto name = json.find("segment");
      if (name.has_value() == json.find("body").has_value())
        json.fail("expected either a segment or a body");
      if (name) result.segment = segment(*name, once);
      if (!name) result.body = body(json.at("body"), once);
    }
    const std::int64_t times = result.count == ProgramItem::kOncePerStep
                                   ? kStepsWalked
                                   : std::max<std::int64_t>(result.count, 1);
    instructions += times * std::max<std::int64_t>(once, 1);  // a loop of nothing costs time too
    return result;
  }

  static std::int64_t count(const JsonCursor& json) {
    if (!json.is_text()) return json.integer(1, kMaxRepeat);
    if (json.text() == "first") return ProgramItem::kFirstStep;
    if (json.text() != "steps") json.fail("expected a number, \"first\" or \"steps\"");
    return ProgramItem::kOncePerStep;
  }

  int segment(const JsonCursor& json, std::int64_t& instructions) const {
    const auto place = std::find(names_.segments.begin(), names_.segments.end(), json.text());
    if (place == names_.segments.end()) json.fail_unknown("segment", names_.segments);
    const auto index = static_cast<int>(place - names_.segments.begin());
    instructions += plan_.segments[index].last - plan_.segments[index].first;
    return index;
  }

  const Plan& plan_;
  const PlanNames& names_;
};

void read_buffers(const JsonCursor& json, Plan& plan, PlanNames& names) {
  Bytes total = 0;
  for (const JsonCursor& entry : json.elements()) {
    names.buffers.add(entry.at("name"));
    plan.buffers.push_back(buffer_from(entry));
    total += plan.buffers.back().bytes();
    if (total > kMaxTotalBytes) entry.fail("the buffers are larger than 2^60 bytes together");
  }
}

void read_units(const JsonCursor& json, Plan& plan, PlanNames& names) {
  for (const JsonCursor& entry : json.elements()) {
    names.units.add(entry.at("name"));
    plan.units.push_back(unit_from(entry, names.buffers));
  }
}

void read_mesh(const JsonCursor& json, Plan& plan) {
  json.allow_only({"replicate", "shard", "span"});
  plan.mesh.replicate = json.at("replicate").integer(1, kMaxRanks);
  plan.mesh.shard = json.at("shard").integer(1, kMaxRanks / plan.mesh.replicate);
  plan.mesh.span = json.at("span").integer(1, plan.mesh.shard);
  if (plan.world_size() != plan.job.world_size())
    json.fail(fmt::format("spans {} ranks, the job's cluster has {}", plan.world_size(),
                          plan.job.world_size()));
}

/// The streams are listed for readers; what counts is each instruction's own.
void check_streams(const JsonCursor& json) {
  for (const JsonCursor& stream : json.elements())
    stream.enumerator<Stream>(kStreams);
}

void read_sizes(const JsonCursor& root, Plan& plan) {
  const JsonCursor device = root.at("spaces").at("device");
  plan.arena.bytes = device.at("arena_bytes").integer(0, kMaxTotalBytes);
  plan.arena.issue_order_bytes = device.at("issue_order_bytes").integer(0, kMaxTotalBytes);
  plan.arena.live_bound_bytes = device.at("live_bound_bytes").integer(0, kMaxTotalBytes);
  if (const auto expandable = device.find("expandable_segments"))
    plan.expandable_segments = expandable->boolean();
  const JsonCursor model = root.at("model");
  plan.parameter_count = model.at("parameters").integer(0, kMaxElems);
  if (const auto buffers = model.find("buffers_bytes"))
    plan.buffers_bytes = buffers->integer(0, kMaxTotalBytes);
  plan.model_flops_per_token = model.at("flops_per_token").real();
  if (const auto remarks = model.find("remarks"))
    for (const JsonCursor& remark : remarks->elements())
      plan.remarks.push_back(remark.text());
}

}  // namespace

Plan plan_from_json(std::string_view text, const std::string& source) {
  const JsonDocument document(text, source);
  const JsonCursor root = document.root();
  const JsonCursor schema = root.at("schema");
  if (schema.text() != kSchema) schema.fail(fmt::format("expected \"{}\"", kSchema));
  root.allow_only({"schema", "job", "profile", "mesh", "model", "classes", "spaces", "buffers",
                   "units", "streams", "scalars", "segments", "program"});
  Plan plan;
  PlanNames names;
  plan.job = job_from_json(root.at("job").dump(), source + ": /job");
  plan.profile = root.at("profile").parsed(profile_from);
  read_mesh(root.at("mesh"), plan);
  read_sizes(root, plan);
  read_buffers(root.at("buffers"), plan, names);
  read_units(root.at("units"), plan, names);
  read_classes(root.at("classes"), plan);
  check_streams(root.at("streams"));
  for (const JsonCursor& scalar : root.at("scalars").elements())
    plan.scalars.push_back(scalar.text());
  read_segments(root.at("segments"), plan, names);
  std::int64_t instructions = 0;
  plan.program = ProgramReader(plan, names).body(root.at("program"), instructions);
  return plan;
}

}  // namespace shardplan
