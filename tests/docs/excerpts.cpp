#include "tests/docs/excerpts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "planner/model.h"
#include "planner/planner.h"
#include "plans/error.h"

namespace shardplan::docs {
namespace {

constexpr int kShownBuffers = 16;
constexpr int kFewLaunches = 3;  // of one stream in a row; more are cut short

std::string shape_text(const TensorType& type) {
  std::vector<std::string> dimensions;
  for (const Dimension& dimension : type.dimensions) {
    std::vector<std::string> factors;
    if (dimension.batch) factors.emplace_back("batch");
    if (dimension.time) factors.emplace_back("time");
    if (factors.empty() || dimension.constant != 1)
      factors.push_back(fmt::format("{}", dimension.constant));
    dimensions.push_back(fmt::format("{}", fmt::join(factors, " ")));
  }
  return fmt::format("{} [{}]", to_string(type.dtype), fmt::join(dimensions, ", "));
}

std::string trimmed(std::string line) {
  line.resize(line.find_last_not_of(' ') + 1);
  return line;
}

std::string graph_text(const ModelGraph& graph) {
  std::string text;
  for (const auto vertex : boost::make_iterator_range(boost::vertices(graph.dag))) {
    const Operator& op = graph.dag[vertex];
    if (op.module.starts_with("model.layers.1")) continue;  // as layer 0
    std::vector<std::string> parameters;
    for (const int p : op.parameters)
      parameters.push_back(graph.parameters[p].name);
    text += trimmed(fmt::format(
                "{:>3}  {:14} {:40} {:12} {:26} {}", vertex, spec(op.kind).name, op.module,
                fmt::format("<- {}", fmt::join(graph.inputs_of(static_cast<int>(vertex)), ", ")),
                shape_text(op.output), fmt::join(parameters, ", "))) +
            "\n";
  }
  return text;
}

std::string modules_text(const ModelGraph& graph) {
  std::string text;
  for (const Module& module : graph.modules)
    if (!module.path.starts_with("model.layers.1"))
      text +=
          fmt::format("{:40} {}\n", module.path.empty() ? "\"\"" : module.path, module.class_name);
  return text;
}

std::string operand_text(const Passes& passes, const TapeOperand& operand) {
  using Kind = TapeOperand::Kind;
  if (operand.kind == Kind::Value) return passes.tape.values[operand.index].name;
  const std::string& name = passes.graph.parameters[operand.index].name;
  return operand.kind == Kind::Parameter ? name : "grad of " + name;
}

std::string launches_text(const Passes& passes, const std::vector<TapeLaunch>& launches,
                          std::string_view module) {
  const auto names = [&](const std::vector<TapeOperand>& operands) {
    std::vector<std::string> texts;
    for (const TapeOperand& operand : operands)
      texts.push_back(operand_text(passes, operand));
    return fmt::format("{}", fmt::join(texts, ", "));
  };
  std::string text;
  for (const TapeLaunch& launch : launches)
    if (passes.graph.dag[launch.vertex].module.starts_with(module))
      text += fmt::format("{}\n    reads  {}\n    writes {}\n", to_string(launch.kernel),
                          names(launch.reads), names(launch.writes));
  return text;
}

std::string values_text(const Passes& passes, std::string_view module) {
  std::string text;
  for (const TapeValue& value : passes.tape.values)
    if (value.name.starts_with(module))
      text += fmt::format("{:48} {:>4} x {:8} {}\n", value.name, value.elems,
                          to_string(value.dtype), to_string(value.category));
  return text;
}

std::string units_text(const Plan& plan) {
  std::string text;
  for (const Unit& unit : plan.units)
    text += fmt::format(
        "{:16} {:>2} parameters {:>4} elements, padded {:>4}, a rank's shard {:>4}\n", unit.name,
        unit.parameters.size(), unit.elems, unit.padded_elems, unit.shard_elems);
  return text;
}

std::string layout_text(const Unit& unit) {
  std::string text;
  for (const UnitParameter& parameter : unit.parameters) {
    const std::int64_t last = parameter.at + parameter.elems - 1;
    text += fmt::format(
        "{:>4} .. {:>4}  rank {}  {:46} [{}]\n", parameter.at, last,
        parameter.at / unit.shard_elems == last / unit.shard_elems
            ? fmt::format("{}    ", parameter.at / unit.shard_elems)
            : fmt::format("{}, {}", parameter.at / unit.shard_elems, last / unit.shard_elems),
        parameter.name, fmt::join(parameter.shape, ", "));
  }
  return text;
}

/// Streams as columns: an instruction stands in that of its own. Of many in a row on one stream,
/// the first and the last.
std::string schedule_text(const Plan& plan, InstructionId first, InstructionId last) {
  const std::vector<std::pair<Stream, int>> columns{
      {Stream::HostToDevice, 14},  {Stream::AllGather, 36}, {Stream::Compute, 54},
      {Stream::ReduceScatter, 31}, {Stream::AllReduce, 26}, {Stream::DeviceToHost, 1}};
  const auto used = [&](Stream stream) {
    return std::any_of(plan.instructions.begin() + first, plan.instructions.begin() + last,
                       [&](const Instruction& i) { return i.stream == stream; });
  };
  std::string text;
  const auto add_line = [&](auto cell_of) {
    std::string line;
    for (const auto& [stream, width] : columns)
      if (used(stream)) line += fmt::format("{:{}}", cell_of(stream), width);
    text += trimmed(line) + "\n";
  };
  add_line([](Stream stream) { return std::string(to_string(stream)); });
  for (InstructionId id = first; id < last;) {
    const Stream stream = plan.instructions[id].stream;
    const auto add = [&](const std::string& name) {
      add_line([&](Stream column) { return column == stream ? name : std::string(); });
    };
    InstructionId end = id;
    while (end < last && plan.instructions[end].stream == stream)
      ++end;
    const int many = end - id;
    add(plan.instructions[id].name);
    if (many > kFewLaunches) add(fmt::format("... {} more", many - 2));
    for (InstructionId rest = many > kFewLaunches ? end - 1 : id + 1; rest < end; ++rest)
      add(plan.instructions[rest].name);
    id = end;
  }
  return text;
}

const Segment& segment(const Plan& plan, std::string_view name) {
  const auto found = std::ranges::find(plan.segments, name, &Segment::name);
  check(found != plan.segments.end(), "the plan has the segment");
  return *found;
}

/// The first instruction of the phase in the segment.
InstructionId first_of(const Plan& plan, const Segment& in, Phase phase) {
  for (InstructionId id = in.first; id < in.last; ++id)
    if (plan.instructions[id].phase == phase) return id;
  check(false, "the segment has the phase");
  return in.last;
}

std::string waits_text(const Plan& plan, const Segment& in) {
  std::string text;
  for (InstructionId id = in.first; id < in.last; ++id)
    for (const Wait& wait : plan.instructions[id].after)
      text += fmt::format("{:52} waits for {:54} {}\n", plan.instructions[id].name,
                          plan.instructions[wait.id].name, to_string(wait.why));
  return text;
}

std::string arena_text(const Plan& plan) {
  std::vector<const Buffer*> buffers;
  for (const Buffer& buffer : plan.buffers)
    buffers.push_back(&buffer);
  std::ranges::stable_sort(buffers, {}, [](const Buffer* buffer) { return buffer->offset; });
  const auto resident = std::ranges::count(plan.buffers, true, &Buffer::resident);
  std::string text;
  for (std::ptrdiff_t b = 0;
       b < std::min<std::ptrdiff_t>(resident + kShownBuffers, std::ssize(buffers)); ++b)
    text += fmt::format("{:>6} .. {:>6}  {:22} {}{}\n", buffers[b]->offset,
                        buffers[b]->offset + buffers[b]->bytes(), to_string(buffers[b]->category),
                        buffers[b]->name, buffers[b]->resident ? "  (resident)" : "");
  return text + fmt::format(
                    "... {} buffers in all\n\narena {} bytes, live bound {}, largest sum in "
                    "issue order {}; all buffers side by side would take {}\n",
                    buffers.size(), plan.arena.bytes, plan.arena.live_bound_bytes,
                    plan.arena.issue_order_bytes, [&] {
                      Bytes sum = 0;
                      for (const Buffer& buffer : plan.buffers)
                        sum += buffer.bytes();
                      return sum;
                    }());
}

std::string instruction_json(const nlohmann::ordered_json& plan, std::string_view name) {
  for (const auto& [key, segment] : plan.at("segments").items())
    for (const auto& instruction : segment.at("instructions"))
      if (instruction.at("id") == name) return instruction.dump(2) + "\n";
  check(false, "the plan has the instruction");
  return "";
}

}  // namespace

Passes run_passes(const Job& job) {
  ModelGraph graph = build_model(job.model);
  Plan plan = make_plan(job, graph);
  Tape tape = autograd(graph, {.sizes = job.training.sizes(), .profile = plan.profile});
  return {std::move(graph), std::move(tape), std::move(plan)};
}

std::map<std::string, std::string> excerpts(const Passes& passes) {
  const Plan& plan = passes.plan;
  const std::string block = "model.layers.1.mlp";
  const Segment& step = segment(plan, "micro_sync");
  const InstructionId backward = first_of(plan, step, Phase::Backward);
  const Segment& optimizer = segment(plan, "optimizer");
  const auto json = nlohmann::ordered_json::parse(to_json(plan));
  return {{"modules", modules_text(passes.graph)},
          {"graph", graph_text(passes.graph)},
          {"tape-forward", launches_text(passes, passes.tape.forward, block)},
          {"tape-backward", launches_text(passes, passes.tape.backward, block)},
          {"tape-values", values_text(passes, block)},
          {"units", units_text(plan)},
          {"layout", layout_text(plan.units[1])},
          {"schedule-forward", schedule_text(plan, step.first, backward)},
          {"schedule-backward", schedule_text(plan, backward, step.last)},
          {"schedule-optimizer", schedule_text(plan, optimizer.first, optimizer.last)},
          {"waits", waits_text(plan, step)},
          {"arena", arena_text(plan)},
          {"program", json.at("program").dump() + "\n"},
          {"all-gather", instruction_json(json, "all_gather.model.layers.1.forward")},
          {"product", instruction_json(json, "model.layers.1.mlp.down_proj.linear")}};
}

}  // namespace shardplan::docs
