#include "runtime/executable.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <string_view>

#include "plans/error.h"
#include "runtime/cpu_kernels.h"
#include "runtime/executor.h"
#include "runtime/host_memory.h"

namespace shardplan {
namespace {

constexpr std::array<std::string_view, 3> kScalars{"learning_rate", "bias_correction1",
                                                   "bias_correction2"};

/// What can be planned but not executed is refused by name.
void expect_kernel(const Plan& plan, const Instruction& instruction) {
  const auto refuse = [&](const std::string& why) {
    throw InputError(
        fmt::format("'{}': {}; the plan can be simulated, not run", instruction.name, why));
  };
  if (const auto* compute = std::get_if<Compute>(&instruction.operation)) {
    const std::string missing = cpu::missing_kernel(compute->kernel, compute->attributes);
    if (!missing.empty()) refuse(fmt::format("there is no CPU kernel for {} yet", missing));
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

void expect_executable(const Plan& plan) {
  if (!is_cpu(plan.profile))
    throw InputError(
        fmt::format("the plan was made for profile {}; re-plan with profile cpu-onednn or "
                    "cpu-reference to run it on CPU ranks",
                    to_string(plan.profile)));
  for (const Buffer& buffer : plan.buffers)
    if (buffer.space != Space::Device)
      throw InputError(
          fmt::format("buffer '{}' lies in {} memory, CPU ranks have device memory only",
                      buffer.name, to_string(buffer.space)));
  for (const Instruction& instruction : plan.instructions)
    expect_kernel(plan, instruction);
  for (const std::string& name : plan.scalars)
    if (std::ranges::find(kScalars, name) == kScalars.end())
      throw InputError(fmt::format("scalar '{}' is not known, expected one of {}", name,
                                   fmt::join(kScalars, ", ")));
}

void expect_memory(const Plan& plan, std::int64_t ranks) {
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
