#include "tests/oracle/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "plans/error.h"
#include "plans/verify.h"
#include "tests/oracle/document.h"
#include "tests/oracle/torch_case.h"

namespace shardplan::oracle {
namespace {

using nlohmann::json;

/// One line for a collective; two are the same when their lines are.
std::string line_of(const Plan& plan, const Instruction& instruction, Group group) {
  const std::string unit = instruction.unit < 0 ? "" : plan.units[instruction.unit].name;
  return fmt::format("{} {} in {} out {} {} of {} {}", to_string(instruction.phase),
                     kind_of(instruction.operation), bytes_of(plan, instruction.reads),
                     bytes_of(plan, instruction.writes),
                     to_string(plan.buffers[instruction.reads[0].buffer].dtype),
                     plan.mesh.size(group), unit);
}

std::string line_of(const json& one) {
  std::string phase = one.at("phase");
  phase = phase.substr(0, phase.find('['));  // "backward[1]": of the second micro-step
  std::string module = one.value("module", "");
  if (module == "(root)") module = "root";
  return fmt::format("{} {} in {} out {} {} of {} {}", phase, one.at("kind").get<std::string>(),
                     one.at("bytes_in").get<Bytes>(), one.at("bytes_out").get<Bytes>(),
                     one.at("dtype").get<std::string>(), one.at("group_size").get<int>(), module);
}

using Lines = std::vector<std::string>;

/// Lists of a plan under the names of the file. What happens between the first step and the second
/// PyTorch does as the second begins.
class PlanLists {
 public:
  explicit PlanLists(const Plan& plan, bool names_units) : plan_(plan), names_units_(names_units) {}

  std::map<std::string, Lines> run() {
    for (const ProgramItem& item : plan_.program) {
      if (item.count == 1) add(item, "at_wrap");
      if (item.count == ProgramItem::kFirstStep)
        for (const ProgramItem& part : item.body)
          add(part, plan_.segments[part.segment].name == "first_step.end" ? "iteration_2"
                                                                          : "iteration_1");
      if (item.count != ProgramItem::kOncePerStep) continue;
      for (const char* step : {"iteration_2", "iteration_3"})
        for (const ProgramItem& part : item.body)
          for (std::int64_t pass = 0; pass < part.count; ++pass)
            add(part, step);
    }
    return std::move(lists_);
  }

 private:
  void add(const ProgramItem& item, const std::string& list) {
    const Segment& segment = plan_.segments[item.segment];
    for (InstructionId id = segment.first; id < segment.last; ++id) {
      Instruction instruction = plan_.instructions[id];
      const auto group = group_of(instruction.operation);
      if (!group || (plan_.mesh.size(*group) == 1 && plan_.world_size() > 1)) continue;
      if (!names_units_) instruction.unit = -1;
      lists_[list].push_back(line_of(plan_, instruction, *group));
    }
  }

  const Plan& plan_;
  const bool names_units_;
  std::map<std::string, Lines> lists_;
};

Check compare(const std::string& name, const json& expected, const Lines& got) {
  Lines wanted;
  for (const json& one : expected)
    wanted.push_back(line_of(one));
  const auto [ours, theirs] = std::mismatch(got.begin(), got.end(), wanted.begin(), wanted.end());
  if (ours == got.end() && theirs == wanted.end())
    return {fmt::format("{} of {} collectives that differ", name, wanted.size()), 0, 0};
  return {fmt::format("{}: number {} is {}, not {}; differences", name, theirs - wanted.begin(),
                      ours == got.end() ? "missing" : "'" + *ours + "'",
                      theirs == wanted.end() ? "there" : "'" + *theirs + "'"),
          1, 0};
}

Outcome outcome_of(const json& one, const json& models) {
  Outcome outcome{.name = one.at("id"), .checks = {}, .error = {}, .skipped = {}};
  try {
    json config = one.at("config");
    config["use_orig_params"] = true;  // so these were recorded
    const ModelGraph graph = torch_model(models.at(config.at("model").get<std::string>()));
    const Plan plan = torch_plan(config, graph);
    outcome.checks.push_back({"faults of the plan", static_cast<double>(verify(plan).size()), 0});
    const bool names_units = config.at("strategy") != "ddp";  // there buckets have numbers
    std::map<std::string, Lines> lists = PlanLists(plan, names_units).run();
    for (const char* name : {"at_wrap", "iteration_1", "iteration_2", "iteration_3"}) {
      if (!one.contains(name)) continue;
      const json* expected = &one.at(name);
      if (expected->is_string()) expected = &one.at("iteration_2");  // "same as iteration_2"
      outcome.checks.push_back(compare(name, *expected, lists[name]));
    }
  } catch (const InputError& error) {
    const std::string why = error.what();
    (why.find("not supported yet") == std::string::npos ? outcome.error : outcome.skipped) = why;
  }
  return outcome;
}

}  // namespace

int collectives(const std::filesystem::path& file, const std::string& filter,
                Scorecard::Form form) {
  Scorecard scorecard(form);
  with_document(file, [&](const json& document) {
    for (const json& one : document.at("cases"))
      if (one.at("id").get<std::string>().find(filter) != std::string::npos)
        scorecard.add(outcome_of(one, document.at("models")));
  });
  return scorecard.close();
}

}  // namespace shardplan::oracle
