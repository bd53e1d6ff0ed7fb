#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/import/imported.h"
#include "plans/plan.h"
#include "plans/report.h"
#include "plans/verify.h"
#include "tools/break_even.h"
#include "tools/check.h"
#include "tools/comparison.h"
#include "tools/fit.h"
#include "tools/goodput_text.h"
#include "tools/score.h"
#include "tools/search.h"

namespace shardplan {

/// schema shardplan/verification/1.
std::string verification_json(const Plan& plan, const std::vector<Fault>& faults);

/// schema shardplan/check/1: every metric of every rank.
std::string check_json(const CheckResult& result);

/// schema shardplan/comparison/1, each row with its "largest_model": {"layers", "parameters"}, and
/// the "break_even" of one sharding over another.
std::string comparison_json(const std::vector<ComparedStrategy>& rows,
                            const std::optional<BreakEven>& even);

/// schema shardplan/prediction/1, with the "training" on so many tokens where there is one.
std::string simulation_json(const Report& report, const Plan& plan,
                            const std::optional<LongTraining>& training);

/// schema shardplan/fit/1: per strategy the largest that fits, and the prediction for it.
std::string fit_json(const Job& job, Maximize what, const std::vector<FittedStrategy>& rows);

/// schema shardplan/search/1: what was asked and counted, and the best as predictions.
std::string search_json(const SearchResult& result, const SearchQuestion& question,
                        const Evaluator& evaluator, const Hardware& hardware);

/// schema shardplan/import/1: the job, what the file means ("facts", dotted names as nested
/// objects), "warnings" and "open" values.
std::string import_json(const Imported& imported);

/// schema shardplan/score/1.
std::string score_json(const Score& score);

/// A line of metrics.jsonl: one step; what is not known is null. `tokens` are those of one step of
/// all ranks.
std::string step_json(const StepReport& step, std::int64_t tokens);

}  // namespace shardplan
