#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "plans/hardware.h"
#include "plans/plan.h"
#include "plans/report.h"
#include "tools/job_flags.h"

namespace shardplan {

enum class DocumentKind { Job, Plan, Prediction, Comparison, Measurement };
/// "a job", "a plan", ...
std::string_view to_string(DocumentKind kind);

/// A file that the user gave, and what its content says it is.
struct Document {
  DocumentKind kind = DocumentKind::Job;
  std::string path;
  std::string text;
};

/// Reads a file of at most 256 MiB. JSON of ours says by its "schema" what it is; all else is a
/// job. Throws InputError.
Document read_document(const std::string& path);

/// Throws InputError unless the document is of the kind.
void expect_kind(const Document& document, DocumentKind kind);

/// The measurement that a file holds; of another program, it need not name its schema. Throws
/// InputError.
Report read_measurement(const std::string& path);

/// The job inside a prediction.
Job job_of_prediction(const Document& prediction);

/// A plan and where it comes from.
struct LoadedPlan {
  Plan plan;
  std::string note;  // a sentence when the plan is not the one of the file; else empty
};

/// The verified plan that a job file, a plan.json or flags alone give. A plan.json whose flags
/// change more than what `run` reads is planned again from its job, which the note says. Throws
/// InputError; a plan of the user that is not right is wrong input too.
LoadedPlan load_plan(const JobFlags& flags, const Hardware& hardware);
LoadedPlan load_plan(const Document& document, const JobFlags& flags, const Hardware& hardware);

/// The job of a job file or of flags alone.
Job load_job(const JobFlags& flags, const Hardware& hardware);

/// The plan of a job. It aborts when the plan is not right, because the planner made it.
Plan verified_plan(const Job& job);

}  // namespace shardplan
