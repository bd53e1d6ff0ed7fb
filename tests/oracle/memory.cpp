#include "tests/oracle/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "plans/error.h"
#include "plans/verify.h"
#include "simulator/memory_replay.h"
#include "tests/oracle/document.h"
#include "tests/oracle/torch_case.h"

namespace shardplan::oracle {
namespace {

using nlohmann::json;
using Categories = MemoryReplay::Categories;

/// What is allocated at a moment.
struct Moment {
  Bytes total = 0;
  Categories categories{};

  Bytes of(std::initializer_list<Category> wanted) const {
    Bytes sum = 0;
    for (const Category category : wanted)
      sum += categories[static_cast<std::size_t>(category)];
    return sum;
  }
};

/// The figures of a case, from its plan. Names of moments and peaks are those of the file.
struct Figures {
  std::map<std::string, Moment> moments;
  std::map<std::string, Moment> peaks;
};

class CaseReplay {
 public:
  CaseReplay(const Plan& plan, std::size_t rank_class) : plan_(plan), replay_(plan, rank_class) {}

  Figures run() {
    for (const ProgramItem& item : plan_.program) {
      if (item.count == 1) {
        run_segment(item);
        note("after_init");
        continue;
      }
      in_first_step_ = item.count == ProgramItem::kFirstStep;
      for (const ProgramItem& part : item.body)
        run_segment(part);
    }
    return std::move(figures_);
  }

 private:
  void run_segment(const ProgramItem& item) {
    const Segment& segment = plan_.segments[item.segment];
    bool backward = false;
    for (InstructionId id = segment.first; id < segment.last; ++id) {
      const Phase phase = plan_.instructions[id].phase;
      if (phase == Phase::Backward && !backward && !figures_.moments.contains("after_forward"))
        note("after_forward");
      backward = phase == Phase::Backward;
      replay_.issue(id);
      if (segment.name != "zero_grad") note_peak(phase);
    }
    if (segment.name.starts_with("micro.first")) note("after_first_backward");
    if (segment.name.starts_with("micro.last")) note("after_backward");
    if (segment.name == "optimizer") note("after_step");
    if (segment.name.starts_with("zero_grad")) note("after_zero_grad");
  }

  void note(const std::string& name) {
    if (in_first_step_) return;
    figures_.moments[name] = {replay_.requested(), replay_.by_category()};
  }

  void note_peak(Phase phase) {
    const auto raise = [&](const std::string& name) {
      Moment& peak = figures_.peaks[name];
      if (replay_.requested() > peak.total) peak = {replay_.requested(), replay_.by_category()};
    };
    if (phase == Phase::Init) return;
    if (in_first_step_) return raise("first_iteration");
    raise("peak_total");
    raise(phase == Phase::Forward    ? "peak_forward"
          : phase == Phase::Backward ? "peak_backward"
                                     : "peak_step");
  }

  const Plan& plan_;
  MemoryReplay replay_;
  bool in_first_step_ = false;
  Figures figures_;
};

/// Counts states that are not those of the file, to the byte.
class StateCheck {
 public:
  void compare(const std::string& where, const json& one, const Moment& moment) {
    const auto of = [&](const char* name) { return one.value(name, Bytes{0}); };
    equal(where, "parameters",
          of("sharded_param") + of("unsharded_param") + of("parameter") + of("buffer") +
              post_forward_,
          moment.of({Category::Parameters, Category::UnshardedParameters}));
    equal(where, "opt_state", of("opt_state"), moment.of({Category::OptimizerState}));
    if (one.contains("sharded_param"))
      equal(where, "sharded_grad", of("sharded_grad"), moment.of({Category::Gradients}));
    // Of buckets the tracker hears when they are first used.
    const bool unseen = where == "after_init" && !one.contains("sharded_param");
    if (where != "after_forward" && !unseen) equal(where, "total", of("total"), moment.total);
  }
  /// Parts of parameters that the file counts as activations after forward.
  void expect_post_forward(Bytes bytes) { post_forward_ = bytes; }

  Check check() const {
    return {fmt::format("states of {} that differ{}", figures_, first_),
            static_cast<double>(wrong_), 0};
  }

 private:
  void equal(const std::string& where, const char* what, Bytes expected, Bytes got) {
    ++figures_;
    if (expected == got) return;
    ++wrong_;
    if (first_.empty())
      first_ = fmt::format(", first {} {}: {} instead of {}", where, what, got, expected);
  }

  int figures_ = 0;
  int wrong_ = 0;
  Bytes post_forward_ = 0;
  std::string first_;
};

/// Errors of one figure over all cases.
using Errors = std::map<std::string, std::vector<double>>;

/// How far off figures may be.
struct Bars {
  double worst = 0.02;   // of any peak
  double beyond = 0.03;  // share of cases that may be off by more than 1 %
};

/// What a peak consists of.
std::string parts_of(const Moment& moment) {
  std::string text;
  for (int c = 0; c < kCategories; ++c)
    if (moment.categories[c] != 0)
      text += fmt::format(" {} {}", to_string(static_cast<Category>(c)), moment.categories[c]);
  return text;
}

void check_peak(const std::string& name, Bytes expected, const Moment& got, const Bars& bars,
                Outcome& outcome, Errors& errors) {
  const double error = std::abs(static_cast<double>(got.total) / static_cast<double>(expected) - 1);
  errors[name].push_back(error);
  outcome.checks.push_back({error <= bars.worst ? name
                                                : fmt::format("{} ({} instead of {}:{})", name,
                                                              got.total, expected, parts_of(got)),
                            error, bars.worst});
}

std::size_t rank_class_of(const Plan& plan, std::int64_t rank) {
  const std::int64_t place = rank % plan.ranks_in_classes();
  const auto found = std::ranges::find_if(plan.classes, [&](const RankClass& ranks) {
    return ranks.first <= place && place <= ranks.last;
  });
  return static_cast<std::size_t>(found - plan.classes.begin());
}

void compare(const json& one, const Plan& plan, const Bars& bars, Outcome& outcome,
             Errors& errors) {
  const Figures figures = CaseReplay(plan, rank_class_of(plan, one.at("rank"))).run();
  const json& steady = one.at("steady");
  StateCheck states;
  states.compare("after_init", one.at("after_init"), figures.moments.at("after_init"));
  for (const char* where : {"after_forward", "after_first_backward", "after_backward", "after_step",
                            "after_zero_grad"}) {
    if (!steady.contains(where)) continue;
    states.expect_post_forward(std::string(where) == "after_forward"
                                   ? steady.value("post_forward_shard_bytes", Bytes{0})
                                   : 0);
    states.compare(where, steady.at(where), figures.moments.at(where));
  }
  outcome.checks.push_back(states.check());
  check_peak("peak_total", steady.at("peak_total"), figures.peaks.at("peak_total"), bars, outcome,
             errors);
  for (const char* name : {"peak_forward", "peak_backward", "peak_step"})
    check_peak(name, steady.at(name).at("total"), figures.peaks.at(name), bars, outcome, errors);
  check_peak("after_forward", steady.at("after_forward").at("total"),
             figures.moments.at("after_forward"), bars, outcome, errors);
  // The tracker hears of DDP's first bucket when it is first used, which may be after the peak.
  const bool unseen_bucket = plan.job.strategy.engine == Engine::Ddp && plan.world_size() > 1;
  if (one.contains("first_iteration") && !unseen_bucket)
    check_peak("first_iteration", one.at("first_iteration").at("peak_total"),
               figures.peaks.at("first_iteration"), bars, outcome, errors);
}

Outcome outcome_of(const json& one, const json& models, const Bars& bars, Errors& errors) {
  Outcome outcome{.name = one.at("id"), .checks = {}, .error = {}, .skipped = {}};
  try {
    const json& config = one.at("config");
    const ModelGraph graph = torch_model(models.at(config.at("model").get<std::string>()));
    const Plan plan = torch_plan(config, graph);
    const std::vector<Fault> faults = verify(plan);
    outcome.checks.push_back(
        {faults.empty() ? "faults of the plan"
                        : fmt::format("faults of the plan, first {}: {} {}", faults[0].instruction,
                                      faults[0].buffer, faults[0].why),
         static_cast<double>(faults.size()), 0});
    compare(one, plan, bars, outcome, errors);
  } catch (const InputError& error) {
    const std::string why = error.what();
    (why.find("not supported yet") == std::string::npos ? outcome.error : outcome.skipped) = why;
  }
  return outcome;
}

/// The share of cases whose error is beyond `within`.
Outcome bar(const Errors& errors, const std::string& figure, double within, double share) {
  const auto found = errors.find(figure);
  Outcome outcome{.name = fmt::format("all: {}", figure), .checks = {}, .error = {}, .skipped = {}};
  if (found == errors.end()) {
    outcome.skipped = "no case has it";
    return outcome;
  }
  const auto beyond =
      std::ranges::count_if(found->second, [&](double e) { return !(e <= within); });
  outcome.checks.push_back(
      {fmt::format("share of {} cases beyond {} (worst {:.2g})", found->second.size(), within,
                   *std::ranges::max_element(found->second)),
       static_cast<double>(beyond) / static_cast<double>(found->second.size()), share});
  return outcome;
}

}  // namespace

int memory(const std::filesystem::path& file, const std::string& filter, Scorecard::Form form) {
  Scorecard scorecard(form);
  with_document(file, [&](const json& document) {
    // Models of transformers, autocast, adapters: known less exactly.
    const bool extended = document.at("meta").contains("extends");
    const Bars bars = extended ? Bars{.worst = 0.03, .beyond = 0.1} : Bars{};
    Errors errors;
    for (const json& one : document.at("cases"))
      if (one.contains("steady") &&
          one.at("id").get<std::string>().find(filter) != std::string::npos)
        scorecard.add(outcome_of(one, document.at("models"), bars, errors));
    if (!extended) {
      scorecard.add(bar(errors, "peak_total", 0.01, 0.01));
      scorecard.add(bar(errors, "peak_total", 0.001, 0.05));
    }
    for (const char* figure :
         {"peak_forward", "peak_backward", "peak_step", "after_forward", "first_iteration"})
      scorecard.add(bar(errors, figure, 0.01, bars.beyond));
  });
  return scorecard.close();
}

}  // namespace shardplan::oracle
