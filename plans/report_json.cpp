#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "plans/job_reader.h"
#include "plans/json_cursor.h"
#include "plans/report.h"

namespace shardplan {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kPrediction = "shardplan/prediction/1";
constexpr std::string_view kMeasurement = "shardplan/measurement/1";

template <typename Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

Json json_of(const CategoryBytes& bytes) {
  Json json = Json::object();
  for (int c = 0; c < kCategories; ++c)
    json[std::string(to_string(static_cast<Category>(c)))] = or_null(bytes[c]);
  return json;
}

Json phases_of(const RankMemory& memory) {
  Json json = Json::object();
  for (int p = 0; p < kRunPhases; ++p) {
    Json& entry = json[std::string(to_string(static_cast<RunPhase>(p)))];
    const PhaseMemory& known = memory.phases[p];
    if (known.peak_bytes || known.end_bytes)
      entry = {{"peak_bytes", or_null(known.peak_bytes)},
               {"end_bytes", or_null(known.end_bytes)},
               {"at", or_null(known.at)},
               {"at_peak", json_of(known.at_peak)}};
  }
  return json;
}

Json json_of(const RankReport& rank) {
  const RankMemory& memory = rank.memory;
  return {{"ranks", rank.ranks},
          {"owned_parameters_bytes", or_null(rank.owned_parameters_bytes)},
          {"memory",
           {{"peak_allocated_bytes", or_null(memory.peak_allocated_bytes)},
            {"peak_reserved_bytes", or_null(memory.peak_reserved_bytes)},
            {"peak_device_bytes", or_null(memory.peak_device_bytes)},
            {"resident_set_bytes", or_null(memory.resident_set_bytes)},
            {"peak_phase", or_null(memory.peak_phase)},
            {"peak_at", or_null(memory.peak_at)},
            {"at_peak", json_of(memory.at_peak)},
            {"outside_allocator",
             {{"device_context", or_null(memory.device_context_bytes)},
              {"communicator", or_null(memory.communicator_bytes)},
              {"library_workspace", or_null(memory.library_workspace_bytes)}}},
            {"host_bytes", or_null(memory.host_bytes)},
            {"phases", phases_of(memory)}}}};
}

Json ranks_of(const Report& report) {
  Json ranks = Json::array();
  for (const RankReport& rank : report.ranks)
    ranks.push_back(json_of(rank));
  return ranks;
}

Json arena_of(const Report& report) {
  const auto& arena = report.arena;
  return {{"bytes", arena ? Json(arena->bytes) : Json()},
          {"live_bound_bytes", arena ? Json(arena->live_bound_bytes) : Json()},
          {"issue_order_bytes", arena ? Json(arena->issue_order_bytes) : Json()}};
}

Json communication_of(const Report& report) {
  Json collectives = Json::array();
  for (const CollectiveReport& collective : report.collectives)
    collectives.push_back({{"kind", collective.kind},
                           {"phase", collective.phase},
                           {"unit", or_null(collective.unit)},
                           {"dtype", to_string(collective.dtype)},
                           {"input_bytes", collective.input_bytes},
                           {"output_bytes", collective.output_bytes},
                           {"group_size", collective.group_size}});
  return {{"collectives", std::move(collectives)},
          {"bytes_sent_per_rank", or_null(report.bytes_sent_per_rank)}};
}

Json time_of(const Report& report) {
  if (!report.time) return {};
  const TimeReport& time = *report.time;
  Json range;
  if (time.range_share) {
    const double factor = 1 + *time.range_share;
    range = {{"share", *time.range_share},
             {"step_s", {time.step_s / factor, time.step_s * factor}},
             {"tokens_per_s", {time.tokens_per_s / factor, time.tokens_per_s * factor}},
             {"defaulted", time.defaulted},
             {"guess", time.guess.empty() ? Json() : Json(time.guess)}};
  }
  return {{"step_s", time.step_s},
          {"tokens_per_s", time.tokens_per_s},
          {"tokens_per_s_per_gpu", time.tokens_per_s_per_gpu},
          {"mfu", or_null(time.mfu)},
          {"compute_s", time.compute_s},
          {"communication_s", time.communication_s},
          {"exposed_communication_s", time.exposed_communication_s},
          {"total_s", or_null(time.total_s)},
          {"range", std::move(range)}};
}

Json cost_of(const Report& report) {
  const CostReport cost = report.cost.value_or(CostReport{});
  return {{"per_hour", or_null(cost.per_hour)},
          {"per_billion_tokens", or_null(cost.per_billion_tokens)},
          {"total", or_null(cost.total)}};
}

/// What is left of the limit on the fullest rank; negative when the plan does not fit.
Json headroom_of(const Report& report) {
  std::optional<Bytes> headroom;
  for (const RankReport& rank : report.ranks)
    if (report.limit_bytes && rank.memory.peak_device_bytes) {
      const Bytes left = *report.limit_bytes - *rank.memory.peak_device_bytes;
      headroom = std::min(headroom.value_or(left), left);
    }
  return or_null(headroom);
}

Json prediction_of(const Report& report, const Plan& plan) {
  return {{"schema", kPrediction},
          {"job", Json::parse(job_to_json(plan.job))},
          {"plan_hash", report.plan_hash.empty() ? hash_of(plan) : report.plan_hash},
          {"model",
           {{"parameters", plan.parameter_count},
            {"trainable_parameters", plan.parameter_count},
            {"buffers_bytes", or_null(plan.buffers_bytes)},
            {"remarks", plan.remarks}}},
          {"world_size", report.world_size},
          {"fits", or_null(report.fits)},
          {"limit_bytes", or_null(report.limit_bytes)},
          {"limit_from", or_null(report.limit_from)},
          {"headroom_bytes", headroom_of(report)},
          {"ranks", ranks_of(report)},
          {"arena", arena_of(report)},
          {"communication", communication_of(report)},
          {"time", time_of(report)},
          {"cost", cost_of(report)}};
}

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json json_of(const StepReport& step) {
  return {{"step", step.step},
          {"loss", step.loss},
          {"grad_norm", step.grad_norm},
          {"learning_rate", step.learning_rate},
          {"seconds", step.seconds}};
}

/// What a report may be read from: sizes below 2^60 bytes.
constexpr Bytes kMaxBytes = Bytes{1} << 60;
constexpr std::int64_t kMaxCount = INT32_MAX;
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

std::optional<Bytes> bytes_in(const std::optional<JsonCursor>& json, std::string_view key) {
  const auto value = json ? json->find(key) : std::nullopt;
  if (!value) return std::nullopt;
  return value->integer(0, kMaxBytes);
}

std::optional<double> real_in(const JsonCursor& json, std::string_view key) {
  const auto value = json.find(key);
  if (!value) return std::nullopt;
  return value->real();
}

std::string text_in(const JsonCursor& json, std::string_view key) {
  const auto value = json.find(key);
  return value ? value->text() : "";
}

CategoryBytes categories_from(const std::optional<JsonCursor>& json) {
  CategoryBytes bytes;
  for (int c = 0; c < kCategories; ++c)
    bytes[c] = bytes_in(json, to_string(static_cast<Category>(c)));
  return bytes;
}

void read_phases(const std::optional<JsonCursor>& json, RankMemory& memory) {
  if (!json) return;
  for (int p = 0; p < kRunPhases; ++p) {
    const auto entry = json->find(to_string(static_cast<RunPhase>(p)));
    if (entry)
      memory.phases[p] = {bytes_in(entry, "peak_bytes"), bytes_in(entry, "end_bytes"),
                          text_in(*entry, "at"), categories_from(entry->find("at_peak"))};
  }
}

RankReport rank_from(const JsonCursor& json) {
  RankReport rank;
  rank.ranks = json.at("ranks").text();
  rank.owned_parameters_bytes = bytes_in(json, "owned_parameters_bytes");
  const auto memory = json.find("memory");
  if (!memory) return rank;
  const auto outside = memory->find("outside_allocator");
  rank.memory.peak_allocated_bytes = bytes_in(memory, "peak_allocated_bytes");
  rank.memory.peak_reserved_bytes = bytes_in(memory, "peak_reserved_bytes");
  rank.memory.peak_device_bytes = bytes_in(memory, "peak_device_bytes");
  rank.memory.resident_set_bytes = bytes_in(memory, "resident_set_bytes");
  rank.memory.peak_phase = text_in(*memory, "peak_phase");
  rank.memory.peak_at = text_in(*memory, "peak_at");
  rank.memory.at_peak = categories_from(memory->find("at_peak"));
  rank.memory.device_context_bytes = bytes_in(outside, "device_context");
  rank.memory.communicator_bytes = bytes_in(outside, "communicator");
  rank.memory.library_workspace_bytes = bytes_in(outside, "library_workspace");
  rank.memory.host_bytes = bytes_in(memory, "host_bytes");
  read_phases(memory->find("phases"), rank.memory);
  return rank;
}

void read_communication(const JsonCursor& json, Report& report) {
  report.bytes_sent_per_rank = bytes_in(json, "bytes_sent_per_rank");
  const auto collectives = json.find("collectives");
  if (!collectives) return;
  for (const JsonCursor& entry : collectives->elements())
    report.collectives.push_back({.kind = entry.at("kind").text(),
                                  .phase = entry.at("phase").text(),
                                  .unit = text_in(entry, "unit"),
                                  .dtype = entry.at("dtype").parsed(dtype_from),
                                  .input_bytes = entry.at("input_bytes").integer(0, kMaxBytes),
                                  .output_bytes = entry.at("output_bytes").integer(0, kMaxBytes),
                                  .group_size = entry.at("group_size").integer(1, kMaxCount)});
}

TimeReport time_from(const JsonCursor& json) {
  const auto known = [&](std::string_view key) { return real_in(json, key).value_or(kUnknown); };
  return {.step_s = known("step_s"),
          .tokens_per_s = known("tokens_per_s"),
          .tokens_per_s_per_gpu = known("tokens_per_s_per_gpu"),
          .mfu = real_in(json, "mfu"),
          .compute_s = known("compute_s"),
          .communication_s = known("communication_s"),
          .exposed_communication_s = known("exposed_communication_s"),
          .total_s = real_in(json, "total_s")};
}

StepReport step_from(const JsonCursor& json) {
  const auto known = [&](std::string_view key) { return real_in(json, key).value_or(kUnknown); };
  return {.step = static_cast<int>(json.at("step").integer(0, kMaxCount)),
          .loss = known("loss"),
          .grad_norm = known("grad_norm"),
          .learning_rate = known("learning_rate"),
          .seconds = known("seconds")};
}

void check_schema(const JsonCursor& root) {
  const auto schema = root.find("schema");
  if (!schema) return;
  const std::string& name = schema->text();
  if (name != kPrediction && name != kMeasurement)
    schema->fail(fmt::format("expected \"{}\" or \"{}\"", kPrediction, kMeasurement));
}

void read_summary(const JsonCursor& root, Report& report) {
  report.plan_hash = text_in(root, "plan_hash");
  if (const auto world = root.find("world_size")) report.world_size = world->integer(1, kMaxCount);
  if (const auto fits = root.find("fits")) report.fits = fits->boolean();
  report.limit_bytes = bytes_in(root, "limit_bytes");
  report.limit_from = text_in(root, "limit_from");
  const auto arena = root.find("arena");
  if (const auto bytes = bytes_in(arena, "bytes"))
    report.arena = {*bytes, bytes_in(arena, "issue_order_bytes").value_or(0),
                    bytes_in(arena, "live_bound_bytes").value_or(0)};
}

void read_time_and_cost(const JsonCursor& root, Report& report) {
  // A measurement gives its rate beside the steps, a prediction inside "time".
  if (const auto time = root.find("time")) {
    report.time = time_from(*time);
  } else if (root.find("tokens_per_s")) {
    report.time = time_from(root);
  }
  if (const auto cost = root.find("cost"))
    report.cost = {real_in(*cost, "per_hour"), real_in(*cost, "per_billion_tokens"),
                   real_in(*cost, "total")};
}

}  // namespace

std::string prediction_json(const Report& report, const Plan& plan) {
  return text_of(prediction_of(report, plan));
}

std::string comparison_json(const std::vector<std::pair<const Report*, const Plan*>>& rows) {
  Json json{{"schema", "shardplan/comparison/1"}, {"rows", Json::array()}};
  for (const auto& [report, plan] : rows)
    json["rows"].push_back(prediction_of(*report, *plan));
  return text_of(json);
}

std::string measurement_json(const Report& report, const Plan& plan) {
  Json steps = Json::array();
  for (const StepReport& step : report.steps)
    steps.push_back(json_of(step));
  Json instructions = Json::array();
  for (const InstructionTime& one : report.instructions)
    instructions.push_back({{"name", one.name}, {"seconds", one.seconds}, {"bytes", one.bytes}});
  return text_of({{"schema", kMeasurement},
                  {"job", Json::parse(job_to_json(plan.job))},
                  {"plan_hash", report.plan_hash.empty() ? hash_of(plan) : report.plan_hash},
                  {"world_size", report.world_size},
                  {"steps", std::move(steps)},
                  {"ranks", ranks_of(report)},
                  {"tokens_per_s", report.time ? Json(report.time->tokens_per_s) : Json()},
                  {"rehearsal", report.rehearsal.empty() ? Json() : Json(report.rehearsal)},
                  {"instructions", std::move(instructions)}});
}

Report report_from_json(std::string_view text, const std::string& source) {
  const JsonDocument document(text, source);
  const JsonCursor root = document.root();
  check_schema(root);
  Report report;
  read_summary(root, report);
  read_time_and_cost(root, report);
  if (const auto ranks = root.find("ranks"))
    for (const JsonCursor& rank : ranks->elements())
      report.ranks.push_back(rank_from(rank));
  if (const auto communication = root.find("communication"))
    read_communication(*communication, report);
  if (const auto steps = root.find("steps"))
    for (const JsonCursor& step : steps->elements())
      report.steps.push_back(step_from(step));
  report.rehearsal = text_in(root, "rehearsal");
  if (const auto instructions = root.find("instructions"))
    for (const JsonCursor& one : instructions->elements())
      report.instructions.push_back({one.at("name").text(),
                                     real_in(one, "seconds").value_or(kUnknown),
                                     one.at("bytes").integer(0, kMaxBytes)});
  return report;
}

}  // namespace shardplan
