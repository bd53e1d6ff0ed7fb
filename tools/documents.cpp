#include "tools/documents.h"

#include <fmt/format.h>

#include <array>

#include "planner/planner.h"
#include "plans/document.h"
#include "plans/error.h"
#include "plans/job_reader.h"
#include "plans/json_cursor.h"
#include "plans/names.h"
#include "plans/verify.h"

namespace shardplan {
namespace {

constexpr std::size_t kLargestFile = std::size_t{256} << 20;  // bytes

constexpr std::array kSchemas{
    EnumName{DocumentKind::Plan, "shardplan/plan/1"},
    EnumName{DocumentKind::Prediction, "shardplan/prediction/1"},
    EnumName{DocumentKind::Comparison, "shardplan/comparison/1"},
    EnumName{DocumentKind::Measurement, "shardplan/measurement/1"},
};

DocumentKind kind_of(std::string_view text, const std::string& path) {
  const auto first = text.find_first_not_of(" \t\r\n");
  const bool object = first != std::string_view::npos && text[first] == '{';
  if (!object || text.find("\"schema\"") == std::string_view::npos) return DocumentKind::Job;
  const JsonDocument json(text, path);
  const auto schema = json.root().find("schema");
  if (!schema) return DocumentKind::Job;
  return schema->parsed<DocumentKind>(
      [](std::string_view name) { return value_of(kSchemas, name, "schema"); });
}

/// Throws InputError when the plan is not right.
void expect_proved(const Plan& plan, const std::string& path) {
  const std::vector<Fault> faults = verify(plan);
  if (faults.empty()) return;
  const Fault& fault = faults.front();
  throw InputError(
      fmt::format("{}: the plan is not right: {}{}{} ({} in all); `shardplan verify {}` lists them",
                  path, fault.instruction.empty() ? "" : fault.instruction + ": ",
                  fault.buffer.empty() ? "" : fault.buffer + ": ", fault.why,
                  faults.size() == 1 ? "1 fault" : fmt::format("{} faults", faults.size()), path));
}

/// The plan of a plan.json, with what the flags change.
LoadedPlan plan_of(const Document& document, const JobFlags& flags, const Hardware& hardware) {
  Plan plan = plan_from_json(document.text, document.path);
  if (flags.any()) {
    Job job = job_from(job_to_json(plan.job), document.path, flags, hardware);
    Job same_plan = job;
    job.places.set_resolved();
    same_plan.run = plan.job.run;
    same_plan.run.weights = job.run.weights;
    if (same_plan != plan.job)
      return {verified_plan(job), fmt::format("{}: planned again from its job, for the flags that "
                                              "change it.\n",
                                              document.path)};
    plan.job = std::move(job);
  }
  expect_proved(plan, document.path);
  return {std::move(plan), ""};
}

}  // namespace

std::string_view to_string(DocumentKind kind) {
  switch (kind) {
    case DocumentKind::Job: return "a job";
    case DocumentKind::Plan: return "a plan";
    case DocumentKind::Prediction: return "a prediction";
    case DocumentKind::Comparison: return "a comparison";
    case DocumentKind::Measurement: return "a measurement";
  }
  return "";
}

Document read_document(const std::string& path) {
  std::string text = read_text(path, kLargestFile);
  const DocumentKind kind = kind_of(text, path);
  return {kind, path, std::move(text)};
}

void expect_kind(const Document& document, DocumentKind kind) {
  if (document.kind == kind) return;
  throw InputError(fmt::format("{}: expected {}, got {}", document.path, to_string(kind),
                               to_string(document.kind)));
}

Report read_measurement(const std::string& path) {
  const Document document = read_document(path);
  if (document.kind != DocumentKind::Job) expect_kind(document, DocumentKind::Measurement);
  return report_from_json(document.text, document.path);
}

Job job_of_prediction(const Document& prediction) {
  const JsonDocument json(prediction.text, prediction.path);
  return job_from_json(json.root().at("job").dump(), prediction.path + ": /job");
}

LoadedPlan load_plan(const JobFlags& flags, const Hardware& hardware) {
  if (flags.path.empty()) return {verified_plan(load_job(flags, hardware)), ""};
  return load_plan(read_document(flags.path), flags, hardware);
}

LoadedPlan load_plan(const Document& document, const JobFlags& flags, const Hardware& hardware) {
  if (document.kind == DocumentKind::Plan) return plan_of(document, flags, hardware);
  if (document.kind != DocumentKind::Job)
    throw InputError(fmt::format("{}: expected a job or a plan, got {}", document.path,
                                 to_string(document.kind)));
  return {verified_plan(job_from(document.text, document.path, flags, hardware)), ""};
}

Job load_job(const JobFlags& flags, const Hardware& hardware) {
  if (flags.path.empty()) {
    if (!flags.any())
      throw InputError("command line: expected a job file, or flags such as --model llama-3-8b");
    return job_from("", "command line", flags, hardware);
  }
  const Document document = read_document(flags.path);
  expect_kind(document, DocumentKind::Job);
  return job_from(document.text, document.path, flags, hardware);
}

Plan verified_plan(const Job& job) {
  Plan plan = make_plan(job);
  for (const Fault& fault : verify(plan))
    check(false, fmt::format("the planner's plan is right, but {}: {}: {}", fault.instruction,
                             fault.buffer, fault.why));
  return plan;
}

}  // namespace shardplan
