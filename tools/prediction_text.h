#pragma once

#include <string>
#include <vector>

#include "plans/plan.h"
#include "plans/report.h"
#include "tools/terminal.h"

namespace shardplan {

/// "shardplan's own kernels (engine native, profile cuda, float32)".
std::string who_executes(const Job& job, Profile profile);
/// The same of an answer about several engines; each is named once.
std::string who_executes(const Job& job, Profile profile, const std::vector<Engine>& engines);
/// "no checkpointing", "checkpointed: rms_norm, swiglu".
std::string checkpointing_text(const ActivationCheckpointing& checkpointing);

/// What of PyTorch a prediction takes for granted; each is worth memory.
std::string assumed_of_torch(const Job& job);
/// How to have PyTorch predicted instead of our own engine.
extern const std::string_view kOtherEngines;
/// The first line of an answer: what it predicts, and what it does not.
std::string headline(const Plan& plan);

/// Model, world, strategy, training and plan, a line each.
std::string summary_text(const Plan& plan, const Report& report);

/// Memory of the fullest rank at its peak by category, what the arena needs, and the phases; where
/// rank 0 needs less, how much.
std::string memory_text(const Report& report, const Palette& palette);

/// "Fits: ..." or "Does not fit: ...", with the distance from the limit.
std::string verdict_text(const Report& report, const Palette& palette);

/// What the ranks exchange in one step, a line per kind, phase, size of group and dtype.
std::string communication_text(const Report& report, const Palette& palette);

/// The rank whose device holds most. The report must have ranks.
const RankReport& fullest(const Report& report);

}  // namespace shardplan
