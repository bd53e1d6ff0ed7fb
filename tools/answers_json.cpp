#include "tools/answers_json.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <variant>

#include "plans/job_reader.h"
#include "simulator/simulate.h"

namespace shardplan {
namespace {

using Json = nlohmann::ordered_json;

Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

/// A path or a name need not be UTF-8; JSON must.
std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json json_of(std::monostate) { return {}; }
template <typename Value>
Json json_of(const Value& value) {
  return Json(value);
}

/// Bytes as integers, seconds as they are.
Json amount(const Finding& finding, double value) {
  return finding.is_time() ? Json(value) : Json(std::llround(value));
}

Json json_of(const Finding& finding) {
  const bool has_share = finding.predicted != 0;
  return {{"metric", finding.metric},
          {"against", finding.against},
          {"ranks", or_null(finding.ranks)},
          {"predicted", amount(finding, finding.predicted)},
          {"measured", amount(finding, finding.measured)},
          {"difference", amount(finding, finding.difference())},
          {"error", has_share ? Json(finding.difference() / finding.predicted) : Json()},
          {"allowed", amount(finding, finding.allowed)},
          {"passed", finding.passed()}};
}

Json json_of(const ErrorSummary& summary) {
  const auto known = [&](double error) { return summary.rows > 0 ? Json(error) : Json(); };
  return {{"rows", summary.rows},
          {"median_abs_error", known(summary.median)},
          {"p90_abs_error", known(summary.p90)},
          {"worst_abs_error", known(summary.worst)}};
}

Json json_of(const BreakEven& even) {
  return {{"sharding", to_string(even.sharding)},
          {"over", to_string(even.over)},
          {"share", kBearable - 1},
          {"link", even.between_nodes ? "inter_node" : "intra_node"},
          {"here_bytes_per_s", even.here},
          {"bytes_per_s", even.bytes_per_s ? Json(*even.bytes_per_s) : Json()},
          {"micro_batch", even.micro_batch ? Json(*even.micro_batch) : Json()}};
}

}  // namespace

std::string verification_json(const Plan& plan, const std::vector<Fault>& faults) {
  Json json{{"schema", "shardplan/verification/1"},
            {"plan_hash", hash_of(plan)},
            {"proved", faults.empty()},
            {"instructions", plan.instructions.size()},
            {"buffers", plan.buffers.size()},
            {"faults", Json::array()}};
  for (const Fault& fault : faults)
    json["faults"].push_back({{"instruction", or_null(fault.instruction)},
                              {"buffer", or_null(fault.buffer)},
                              {"why", fault.why}});
  return text_of(json);
}

std::string check_json(const CheckResult& result) {
  Json json{{"schema", "shardplan/check/1"},
            {"passed", result.passed()},
            {"metrics", Json::array()},
            {"not_measured", result.not_measured}};
  for (const Finding& finding : result.findings)
    json["metrics"].push_back(json_of(finding));
  return text_of(json);
}

std::string comparison_json(const std::vector<ComparedStrategy>& rows,
                            const std::optional<BreakEven>& even) {
  std::vector<std::pair<const Report*, const Plan*>> reports;
  for (const ComparedStrategy& row : rows)
    reports.emplace_back(&row.report, &row.plan);
  Json json = Json::parse(comparison_json(reports));
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const auto& largest = rows[r].largest;
    json["rows"][r]["largest_model"] =
        largest ? Json{{"layers", largest->number}, {"parameters", rows[r].largest_parameters}}
                : Json();
  }
  json["break_even"] = even ? json_of(*even) : Json();
  return text_of(json);
}

std::string simulation_json(const Report& report, const Plan& plan,
                            const std::optional<LongTraining>& training) {
  if (!training) return prediction_json(report, plan);
  Json json = Json::parse(prediction_json(report, plan));
  const Goodput& result = training->result;
  json["training"] = {{"tokens", training->tokens},
                      {"steps_s", training->steps_s},
                      {"total_s", result.mean_s},
                      {"total_s_range", {result.least_s, result.most_s}},
                      {"goodput", result.share},
                      {"failures", result.failures},
                      {"checkpoint_every_s", result.checkpoint_every_s},
                      {"straggling", result.straggling},
                      {"cost", training->cost ? Json(*training->cost) : Json()}};
  return text_of(json);
}

std::string fit_json(const Job& job, Maximize what, const std::vector<FittedStrategy>& rows) {
  Json json{{"schema", "shardplan/fit/1"},
            {"job", Json::parse(job_to_json(job))},
            {"maximize", to_string(what)},
            {"rows", Json::array()}};
  for (const FittedStrategy& row : rows) {
    const auto& largest = row.largest;
    const bool bounded = largest && largest->next_device_bytes;
    json["rows"].push_back(
        {{"strategy", to_string(row.strategy)},
         {"largest", largest ? Json(largest->number) : Json()},
         {"next_device_bytes", bounded ? Json(*largest->next_device_bytes) : Json()},
         {"prediction", Json::parse(prediction_json(row.report, row.plan))}});
  }
  return text_of(json);
}

std::string step_json(const StepReport& step, std::int64_t tokens) {
  const bool timed = step.seconds > 0;
  return text_of(
      {{"step", step.step},
       {"loss", step.loss},
       {"grad_norm", step.grad_norm},
       {"learning_rate", step.learning_rate},
       {"seconds", step.seconds},
       {"tokens_per_s", timed ? Json(static_cast<double>(tokens) / step.seconds) : Json()}});
}

std::string score_json(const Score& score) {
  Json rows = Json::array();
  for (const ScoredFigure& figure : score.figures)
    rows.push_back({{"id", figure.id},
                    {"group", figure.group},
                    {"quantity", to_string(figure.quantity)},
                    {"predicted", figure.predicted},
                    {"measured", figure.measured},
                    {"error", figure.error()},
                    {"assumed", figure.assumed}});
  Json not_expressed = Json::array();
  for (const NotScored& row : score.not_expressed)
    not_expressed.push_back({{"id", row.id}, {"reason", row.reason}});
  const auto summary = [&](Quantity quantity) {
    return json_of(summary_of(figures_of(score, quantity)));
  };
  return text_of({{"schema", "shardplan/score/1"},
                  {"rows", std::move(rows)},
                  {"not_expressed", std::move(not_expressed)},
                  {"summary",
                   {{"tokens_per_s", summary(Quantity::TokensPerSecond)},
                    {"peak_memory", summary(Quantity::PeakMemory)}}}});
}

std::string search_json(const SearchResult& result, const SearchQuestion& question,
                        const Evaluator& evaluator, const Hardware& hardware) {
  const SearchLimits& limits = question.limits;
  const auto known = [](const auto& value) { return value ? Json(*value) : Json(); };
  Json json{{"schema", "shardplan/search/1"},
            {"objective", to_string(question.objective)},
            {"limits",
             {{"tokens", known(limits.tokens)},
              {"budget", known(limits.budget)},
              {"deadline_s", known(limits.deadline_s)},
              {"memory_bytes", known(limits.memory)}}},
            {"candidates",
             {{"considered", result.considered},
              {"too_large", result.too_large},
              {"hopeless", result.hopeless},
              {"estimated", result.estimated},
              {"confirmed", result.confirmed}}},
            {"best", Json::array()}};
  for (const Confirmed& one : result.best) {
    const Plan plan = evaluator.full_plan(one.candidate->job);
    const Report report = simulate(plan, hardware.costs(plan.profile));
    json["best"].push_back({{"value", one.outcome.value(question.objective)},
                            {"cost_per_token", known(one.outcome.per_token_cost)},
                            {"prediction", Json::parse(prediction_json(report, plan))}});
  }
  return text_of(json);
}

std::string import_json(const Imported& imported) {
  Json facts = Json::object();
  for (const Fact& fact : imported.facts) {
    const auto dot = fact.name.find('.');
    Json& place = dot == std::string::npos
                      ? facts[fact.name]
                      : facts[fact.name.substr(0, dot)][fact.name.substr(dot + 1)];
    place = std::visit([](const auto& value) { return json_of(value); }, fact.value);
  }
  Json warnings = Json::array();
  for (const ImportWarning& warning : imported.warnings)
    warnings.push_back({{"where", warning.where}, {"key", warning.key}, {"text", warning.text}});
  Json open = Json::array();
  for (const OpenValue& value : imported.open)
    open.push_back({{"where", value.where}, {"key", value.key}, {"decided_by", value.decided_by}});
  return text_of({{"schema", "shardplan/import/1"},
                  {"tool", imported.tool},
                  {"job", Json::parse(job_to_json(imported.job))},
                  {"facts", std::move(facts)},
                  {"warnings", std::move(warnings)},
                  {"open", std::move(open)}});
}

}  // namespace shardplan
