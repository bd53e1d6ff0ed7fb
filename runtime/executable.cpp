#include "runtime/executable.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "plans/error.h"
#include "runtime/executor.h"
#include "runtime/host_memory.h"

namespace shardplan {
namespace {

constexpr std::array<std::string_view, 3> kScalars{"learning_rate", "bias_correction1",
                                                   "bias_correction2"};

/// "cpu-onednn or cpu-reference".
std::string profiles_of(const DeviceKind& kind) {
  std::vector<std::string_view> names;
  for (const Profile profile : {Profile::CpuOneDnn, Profile::CpuReference, Profile::Cuda})
    if (kind.runs(profile)) names.push_back(to_string(profile));
  return fmt::format("{}", fmt::join(names, " or "));
}

/// What can be planned but not executed is refused by name.
void expect_kernel(const Plan& plan, const Instruction& instruction, const DeviceKind& kind) {
  const auto refuse = [&](const std::string& why) {
    throw InputError(
        fmt::format("'{}': {}; the plan can be simulated, not run", instruction.name, why));
  };
  if (const auto* compute = std::get_if<Compute>(&instruction.operation)) {
    const std::string missing = kind.missing_kernel(compute->kernel, compute->attributes);
    if (!missing.empty())
      refuse(fmt::format("there is no {} kernel for {} yet", kind.name, missing));
  }
  const auto* read = std::get_if<Read>(&instruction.operation);
  if (read == nullptr || read->source == Source::Weights) return;
  const TrainingJob& training = plan.job.training;
  const bool per_token =
      !instruction.writes.empty() &&
      instruction.writes[0].elems == training.micro_batch * training.sequence_length;
  if (read->source == Source::Input || !per_token)
    refuse("runs read tokens and one target for each only");
}

}  // namespace

void expect_executable(const Plan& plan, const DeviceKind& kind) {
  if (!kind.runs(plan.profile))
    throw InputError(
        fmt::format("the plan was made for profile {}; re-plan with profile {} to run it on {} "
                    "ranks",
                    to_string(plan.profile), profiles_of(kind), kind.name));
  if (plan.job.run.cuda_graphs && kind.works_in_bodies)
    throw InputError(fmt::format(
        "run.cuda_graphs: {} ranks have no graphs; expected false, or GPUs: --device cuda",
        kind.name));
  for (const Buffer& buffer : plan.buffers)
    if (buffer.space != Space::Device)
      throw InputError(
          fmt::format("buffer '{}' lies in {} memory, {} ranks have device memory only",
                      buffer.name, to_string(buffer.space), kind.name));
  for (const Instruction& instruction : plan.instructions)
    expect_kernel(plan, instruction, kind);
  for (const std::string& name : plan.scalars)
    if (std::ranges::find(kScalars, name) == kScalars.end())
      throw InputError(fmt::format("scalar '{}' is not known, expected one of {}", name,
                                   fmt::join(kScalars, ", ")));
}

void expect_place(const Plan& plan, std::int64_t ranks, const DeviceKind& kind) {
  if (const int devices = kind.count(); devices >= 0) {
    if (devices < ranks)
      throw SystemError(fmt::format("{} ranks on this machine need a {} device each, it has {}",
                                    ranks, kind.name, devices));
    return;
  }
  const MachineFit fit = fit_on_this_machine(plan, ranks);
  if (!fit.fits())
    throw SystemError(
        fmt::format("{} ranks need {} together, this machine has {} of memory available", ranks,
                    format_bytes(fit.needed), format_bytes(*fit.available)));
}

MachineFit fit_on_this_machine(const Plan& plan, std::int64_t ranks) {
  constexpr Bytes kMost = std::numeric_limits<Bytes>::max();
  const bool countable = plan.arena.bytes <= kMost / ranks;
  return {countable ? plan.arena.bytes * ranks : kMost, available_memory_bytes()};
}

std::vector<Stream> streams_with_collectives(const Plan& plan) {
  std::vector<Stream> streams;
  for (const Instruction& instruction : plan.instructions)
    if (is_collective(instruction.operation) &&
        std::ranges::find(streams, instruction.stream) == streams.end())
      streams.push_back(instruction.stream);
  return streams;
}

}  // namespace shardplan
