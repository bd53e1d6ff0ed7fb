#include "tests/oracle/deepspeed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "plans/error.h"
#include "plans/verify.h"
#include "simulator/memory_replay.h"
#include "tests/oracle/deepspeed_case.h"
#include "tests/oracle/document.h"

namespace shardplan::oracle {
namespace {

using nlohmann::json;
using Lines = std::vector<std::string>;

constexpr double kMostError = 0.01;
constexpr Bytes kBookkeeping = 4096;  // step counts, norms and flags that Python holds

/// Live bytes without the batch, by "initialize", "step1.after_backward", "step2.peak_step", ...:
/// of steps 1 and 2, the second standing for all later ones.
std::map<std::string, Bytes> live_bytes(const Plan& plan, std::size_t rank_class) {
  MemoryReplay replay(plan, rank_class);
  std::map<std::string, Bytes> live;
  // Device and host are one memory there.
  const auto bytes = [&] {
    return replay.requested() + replay.host() -
           replay.by_category()[static_cast<std::size_t>(Category::Inputs)];
  };
  const auto run = [&](const ProgramItem& item, const std::string& step) {
    const Segment& segment = plan.segments[item.segment];
    for (std::int64_t pass = 0; pass < item.count; ++pass)
      for (InstructionId id = segment.first; id < segment.last; ++id) {
        replay.issue(id);
        if (plan.instructions[id].phase != Phase::Optimizer) continue;
        Bytes& peak = live[step + ".peak_step"];
        peak = std::max(peak, bytes());
      }
    if (segment.name.starts_with("micro.last")) live[step + ".after_backward"] = bytes();
    if (segment.name.starts_with("zero_grad")) live[step + ".after_step"] = bytes();
  };
  for (const ProgramItem& item : plan.program) {
    if (item.count == 1) {
      run(item, "");
      live["initialize"] = bytes();
    }
    for (const ProgramItem& part : item.body)
      run(part, item.count == ProgramItem::kFirstStep ? "step1" : "step2");
  }
  return live;
}

/// How far `got` is off, what Python holds beside tensors apart.
double error_of(Bytes got, Bytes expected) {
  const Bytes off = std::max<Bytes>(std::abs(got - expected) - kBookkeeping, 0);
  return static_cast<double>(off) / static_cast<double>(expected);
}

/// Without the batch, the only integers.
Bytes bytes_of(const json& moment) {
  const Bytes inputs = moment.contains("by_dtype")
                           ? moment.at("by_dtype").value("int64", Bytes{0})
                           : moment.at("by_category").value("inputs", Bytes{0});
  return moment.at("total").get<Bytes>() - inputs;
}

/// A figure of the file, and which of live_bytes() it is of.
struct Figure {
  std::string shown;
  std::string moment;
  json recorded;
};

/// Three steps, or the first and the third with the peak of their optimizer.
std::vector<Figure> figures_of(const json& rank) {
  std::vector<Figure> figures{{"after_initialize", "initialize", rank.at("after_initialize")}};
  const auto add = [&](const std::string& shown, const std::string& step, const json& recorded) {
    for (const char* moment : {"after_backward", "after_step"})
      figures.push_back({fmt::format("{} {}", shown, moment), fmt::format("{}.{}", step, moment),
                         recorded.at(moment)});
    if (recorded.contains("peaks"))
      figures.push_back({shown + " peak", step + ".peak_step", recorded.at("peaks").at("step")});
  };
  if (rank.contains("steady")) {
    add("first step", "step1", rank.at("first_step"));
    add("steady step", "step2", rank.at("steady"));
    return figures;
  }
  const json& steps = rank.at("steps");
  for (std::size_t step = 0; step < steps.size(); ++step)
    add(fmt::format("step {}", step + 1), step == 0 ? "step1" : "step2", steps[step]);
  return figures;
}

/// The rank class of the plan that a rank is in.
std::size_t rank_class_of(const Plan& plan, std::int64_t rank) {
  const auto found = std::ranges::find_if(plan.classes, [&](const RankClass& ranks) {
    return ranks.first <= rank && rank <= ranks.last;
  });
  return static_cast<std::size_t>(found - plan.classes.begin());
}

/// The worst of all moments of a rank.
Check memory_check(const json& rank, const Plan& plan) {
  const std::int64_t number = rank.at("rank");
  const auto live = live_bytes(plan, rank_class_of(plan, number));
  Check check{.what = "", .value = 0, .limit = kMostError};
  for (const Figure& figure : figures_of(rank)) {
    const Bytes got = live.at(figure.moment);
    const Bytes expected = bytes_of(figure.recorded);
    const double error = error_of(got, expected);
    if (error < check.value) continue;
    check.value = error;
    check.what = fmt::format("rank {} {}: {} bytes instead of {}, error", number, figure.shown, got,
                             expected);
  }
  return check;
}

std::string line_of(const Plan& plan, const Instruction& instruction) {
  const auto phase = instruction.phase == Phase::Optimizer ? "step" : to_string(instruction.phase);
  std::string bytes = std::to_string(shardplan::bytes_of(plan, instruction.writes));
  if (!std::holds_alternative<AllReduce>(instruction.operation))
    bytes += fmt::format(" {}", shardplan::bytes_of(plan, instruction.reads));
  return fmt::format("{} {} {} {}", phase, kind_of(instruction.operation), bytes,
                     to_string(plan.buffers[instruction.reads[0].buffer].dtype));
}

/// Names of c10d's operators mean the same kinds.
std::string kind_of(const json& one) {
  const std::string name = one.at("kind");
  if (name == "allreduce") return "all_reduce";
  if (name == "allgather_base") return "all_gather";
  if (name == "reduce_scatter_base") return "reduce_scatter";
  return name;
}

std::string line_of(const json& one) {
  const std::string phase = one.at("phase");
  std::string bytes;
  for (const json& operand : one.at("bytes"))
    bytes += (bytes.empty() ? "" : " ") + std::to_string(operand.get<Bytes>());
  return fmt::format("{} {} {} {}", phase.substr(phase.find('.') + 1), kind_of(one), bytes,
                     one.at("dtype").get<std::string>());
}

/// Collectives of a steady step.
Lines collectives_of(const Plan& plan) {
  Lines lines;
  for (const ProgramItem& part : plan.program.back().body)
    for (std::int64_t pass = 0; pass < part.count; ++pass) {
      const Segment& segment = plan.segments[part.segment];
      for (InstructionId id = segment.first; id < segment.last; ++id)
        if (is_collective(plan.instructions[id].operation))
          lines.push_back(line_of(plan, plan.instructions[id]));
    }
  return lines;
}

Check collectives_check(const json& expected, const Plan& plan) {
  Lines wanted;
  for (const json& one : expected)
    for (int time = 0; time < one.value("times", 1); ++time)
      wanted.push_back(line_of(one));
  const Lines got = collectives_of(plan);
  const auto [ours, theirs] = std::mismatch(got.begin(), got.end(), wanted.begin(), wanted.end());
  if (ours == got.end() && theirs == wanted.end())
    return {fmt::format("{} collectives that differ", wanted.size()), 0, 0};
  return {
      fmt::format("number {} of {} collectives is {}, not {}; differences", theirs - wanted.begin(),
                  wanted.size(), ours == got.end() ? "missing" : "'" + *ours + "'",
                  theirs == wanted.end() ? "there" : "'" + *theirs + "'"),
      1, 0};
}

/// Those of the steady step in the file; null: it has only memory.
const json* collectives_of(const json& one) {
  if (one.contains("collectives_steady")) return &one.at("collectives_steady");
  const json& rank = one.at("ranks").at(0);
  return rank.contains("initialize") ? &rank.at("steady") : nullptr;
}

/// Of how many cases what does not hold.
struct Shares {
  int cases = 0;
  int memory = 0;
  int collectives = 0;
};

Outcome outcome_of(const json& one, Shares& shares) {
  Outcome outcome{.name = one.at("id"), .checks = {}, .error = {}, .skipped = {}};
  try {
    const Plan plan = deepspeed_plan(one.at("config"));
    const std::vector<Fault> faults = verify(plan);
    outcome.checks.push_back(
        {faults.empty() ? "faults of the plan"
                        : fmt::format("faults of the plan, first {}: {} {}", faults[0].instruction,
                                      faults[0].buffer, faults[0].why),
         static_cast<double>(faults.size()), 0});
    bool memory = true;
    for (const json& rank : one.at("ranks")) {
      if (!rank.contains("after_initialize")) continue;
      outcome.checks.push_back(memory_check(rank, plan));
      memory = memory && outcome.checks.back().holds();
    }
    ++shares.cases;
    if (!memory) ++shares.memory;
    const json* expected = collectives_of(one);
    if (expected == nullptr) return outcome;
    outcome.checks.push_back(collectives_check(*expected, plan));
    if (!outcome.checks.back().holds()) ++shares.collectives;
  } catch (const InputError& error) {
    const std::string why = error.what();
    (why.find("not supported yet") == std::string::npos ? outcome.error : outcome.skipped) = why;
  }
  return outcome;
}

Outcome share(const char* what, int beyond, int cases, double most) {
  Outcome outcome{.name = fmt::format("all: {}", what), .checks = {}, .error = {}, .skipped = {}};
  outcome.checks.push_back({fmt::format("share of {} cases that deviate", cases),
                            static_cast<double>(beyond) / std::max(cases, 1), most});
  return outcome;
}

}  // namespace

int deepspeed(const std::filesystem::path& file, const std::string& filter, Scorecard::Form form) {
  Scorecard scorecard(form);
  with_document(file, [&](const json& document) {
    Shares shares;
    for (const json& one : document.at("cases"))
      if (one.at("id").get<std::string>().find(filter) != std::string::npos)
        scorecard.add(outcome_of(one, shares));
    scorecard.add(share("live bytes", shares.memory, shares.cases, 0.05));
    scorecard.add(share("collectives", shares.collectives, shares.cases, 0.1));
  });
  return scorecard.close();
}

}  // namespace shardplan::oracle
