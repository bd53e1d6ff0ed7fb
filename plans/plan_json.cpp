#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "plans/error.h"
#include "plans/job_reader.h"
#include "plans/plan.h"

namespace shardplan {
namespace {

using Json = nlohmann::ordered_json;

std::string ranks_of(const RankClass& ranks) {
  return ranks.first == ranks.last ? fmt::format("{}", ranks.first)
                                   : fmt::format("{}-{}", ranks.first, ranks.last);
}

std::string_view to_string(Initializer::Kind kind) {
  switch (kind) {
    case Initializer::Kind::Normal: return "normal";
    case Initializer::Kind::Ones: return "ones";
    case Initializer::Kind::Zeros: return "zeros";
  }
  return "";
}

Json json_of(const Buffer& buffer) {
  Json json{{"name", buffer.name},
            {"category", to_string(buffer.category)},
            {"dtype", to_string(buffer.dtype)},
            {"elems", buffer.elems},
            {"space", to_string(buffer.space)},
            {"resident", buffer.resident},
            {"offset", buffer.offset < 0 ? Json() : Json(buffer.offset)}};
  if (!buffer.class_elems.empty()) json["class_elems"] = buffer.class_elems;
  return json;
}

Json json_of(const UnitParameter& parameter) {
  Json initializer{{"kind", to_string(parameter.initializer.kind)}};
  if (parameter.initializer.kind == Initializer::Kind::Normal)
    initializer["standard_deviation"] = parameter.initializer.standard_deviation;
  return {{"name", parameter.name},
          {"shape", parameter.shape},
          {"initializer", std::move(initializer)},
          {"at", parameter.at},
          {"elems", parameter.elems}};
}

/// The last argument of a collective's JSON: what reductions add to the group.
template <typename Reduction>
void add_reduction(Json& json, const Reduction& reduction, const Plan& plan) {
  json["pre_scale"] = reduction.pre_scale;
  json["post_scale"] = reduction.post_scale;
  Json units = Json::array();
  for (const int unit : reduction.contributes)
    units.push_back(plan.units[unit].name);
  json["contributes"] = std::move(units);
}

/// Adds the operands that only one kind of instruction has.
struct AddOwnOperands {
  Json& json;
  const Plan& plan;

  void operator()(const Alloc&) const {}
  void operator()(const Free& free) const {
    Json streams = Json::array();
    for (const Stream stream : free.used_on)
      streams.push_back(to_string(stream));
    json["used_on"] = std::move(streams);
  }
  void operator()(const Compute& compute) const {
    json["kernel"] = to_string(compute.kernel);
    Json attributes = Json::object();
    for (const auto& [attribute, value] : compute.attributes.entries())
      attributes[std::string(to_string(attribute))] = value;
    json["attributes"] = std::move(attributes);
  }
  void operator()(const Copy& copy) const {
    if (copy.part) json["part"] = to_string(*copy.part);
  }
  void operator()(const Fill& fill) const { json["value"] = fill.value; }
  void operator()(const AllGather& gather) const { json["group"] = to_string(gather.group); }
  void operator()(const ReduceScatter& reduction) const {
    json["group"] = to_string(reduction.group);
    add_reduction(json, reduction, plan);
  }
  void operator()(const AllReduce& reduction) const {
    json["group"] = to_string(reduction.group);
    add_reduction(json, reduction, plan);
  }
  void operator()(const Broadcast& broadcast) const {
    json["group"] = to_string(broadcast.group);
    json["root"] = broadcast.root;
  }
  void operator()(const Read& read) const { json["source"] = to_string(read.source); }
  void operator()(const Write& write) const { json["sink"] = to_string(write.sink); }
  void operator()(const HostWait&) const {}
};

Json json_of(const View& view, const Plan& plan) {
  const Buffer& buffer = plan.buffers[view.buffer];
  if (view.at == 0 && view.elems == buffer.elems) return buffer.name;
  return {{"buf", buffer.name}, {"at", view.at}, {"elems", view.elems}};
}

Json json_of(const std::vector<View>& views, const Plan& plan) {
  Json json = Json::array();
  for (const View& view : views)
    json.push_back(json_of(view, plan));
  return json;
}

Json json_of(const Instruction& instruction, const Plan& plan) {
  Json json{{"id", instruction.name},
            {"op", kind_of(instruction.operation)},
            {"stream", to_string(instruction.stream)},
            {"phase", to_string(instruction.phase)}};
  if (instruction.unit >= 0) json["unit"] = plan.units[instruction.unit].name;
  json["reads"] = json_of(instruction.reads, plan);
  json["writes"] = json_of(instruction.writes, plan);
  Json waits = Json::array();
  for (const Wait& wait : instruction.after)
    waits.push_back({{"id", plan.instructions[wait.id].name}, {"why", to_string(wait.why)}});
  json["after"] = std::move(waits);
  std::visit(AddOwnOperands{json, plan}, instruction.operation);
  return json;
}

Json segments_of(const Plan& plan) {
  Json segments = Json::object();
  InstructionId next = 0;
  for (const Segment& segment : plan.segments) {
    check(segment.first == next && segment.last >= next, "segments follow one another");
    Json instructions = Json::array();
    for (; next < segment.last; ++next)
      instructions.push_back(json_of(plan.instructions[next], plan));
    segments[segment.name] = {{"instructions", std::move(instructions)}};
  }
  check(next == static_cast<InstructionId>(plan.instructions.size()),
        "every instruction belongs to a segment");
  return segments;
}

Json json_of(const ProgramItem& item, const Plan& plan) {
  if (item.count == 1 && item.segment >= 0) return plan.segments[item.segment].name;
  Json json;
  json["repeat"] = item.count == ProgramItem::kOncePerStep ? Json("steps")
                   : item.count == ProgramItem::kFirstStep ? Json("first")
                                                           : Json(item.count);
  if (item.segment >= 0) {
    json["segment"] = plan.segments[item.segment].name;
    return json;
  }
  json["body"] = Json::array();
  for (const ProgramItem& inner : item.body)
    json["body"].push_back(json_of(inner, plan));
  return json;
}

Json json_of(const Unit& unit, const Plan& plan) {
  Json json{{"name", unit.name},
            {"elems", unit.elems},
            {"padded_elems", unit.padded_elems},
            {"shard_elems", unit.shard_elems},
            {"parameter", unit.parameter < 0 ? Json() : Json(plan.buffers[unit.parameter].name)},
            {"slices", Json::array()},
            {"parameters", Json::array()}};
  for (const UnitSlice& slice : unit.slices)
    json["slices"].push_back({{"at", slice.at},
                              {"elems", slice.elems},
                              {"valid", slice.valid},
                              {"trainable", slice.trainable},
                              {"decays", slice.decays}});
  for (const UnitParameter& parameter : unit.parameters)
    json["parameters"].push_back(json_of(parameter));
  return json;
}

/// The streams that the plan uses, in the order of their declaration.
Json streams_of(const Plan& plan) {
  std::array<bool, kStreams> used{};
  for (const Instruction& instruction : plan.instructions)
    used[static_cast<std::size_t>(instruction.stream)] = true;
  Json streams = Json::array();
  for (int s = 0; s < kStreams; ++s)
    if (used[s]) streams.push_back(to_string(static_cast<Stream>(s)));
  return streams;
}

}  // namespace

std::string to_json(const Plan& plan) {
  Json json{
      {"schema", "shardplan/plan/1"},
      {"job", Json::parse(job_to_json(plan.job))},
      {"profile", to_string(plan.profile)},
      {"mesh",
       {{"replicate", plan.mesh.replicate}, {"shard", plan.mesh.shard}, {"span", plan.mesh.span}}},
      {"model",
       {{"parameters", plan.parameter_count},
        {"buffers_bytes", plan.buffers_bytes ? Json(*plan.buffers_bytes) : Json()},
        {"flops_per_token", plan.model_flops_per_token},
        {"remarks", plan.remarks}}},
      {"classes", Json::array()},
      {"spaces",
       {{"device",
         {{"arena_bytes", plan.arena.bytes},
          {"issue_order_bytes", plan.arena.issue_order_bytes},
          {"live_bound_bytes", plan.arena.live_bound_bytes}}}}},
      {"buffers", Json::array()},
      {"units", Json::array()},
      {"streams", streams_of(plan)},
      {"scalars", plan.scalars}};
  if (has_allocator(plan.profile))
    json["spaces"]["device"]["expandable_segments"] = plan.expandable_segments;
  for (const RankClass& ranks : plan.classes)
    json["classes"].push_back({{"ranks", ranks_of(ranks)}, {"valid", ranks.valid}});
  for (const Buffer& buffer : plan.buffers)
    json["buffers"].push_back(json_of(buffer));
  for (const Unit& unit : plan.units)
    json["units"].push_back(json_of(unit, plan));
  json["segments"] = segments_of(plan);
  json["program"] = Json::array();
  for (const ProgramItem& item : plan.program)
    json["program"].push_back(json_of(item, plan));
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string hash_of(const Plan& plan) {
  // FNV-1a, 64 bits: http://www.isthe.com/chongo/tech/comp/fnv (offset basis and prime).
  std::uint64_t hash = 0xcbf29ce484222325;
  Plan identity = plan;
  identity.job.run = {};
  for (const char c : to_json(identity)) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3;
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace shardplan
