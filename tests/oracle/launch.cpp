#include "tests/oracle/launch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <variant>

#include "planner/import/imported.h"
#include "plans/document.h"
#include "plans/error.h"
#include "plans/job_reader.h"
#include "tests/oracle/launch_meaning.h"

namespace shardplan::oracle {
namespace {

using Json = nlohmann::ordered_json;

/// A launch file, and what importing it at some world gives.
class LaunchFile {
 public:
  LaunchFile(std::string folder, std::string name, bool accelerate, const Hardware& hardware)
      : path_(std::move(folder) + "/" + std::move(name)),
        accelerate_(accelerate),
        hardware_(hardware) {}

  /// The import, or the error that it ends in.
  std::variant<Imported, std::string> import(std::optional<int> gpus) const {
    try {
      const std::string text = read_text(path_);
      const ImportOptions options{.hardware = hardware_, .gpus = gpus};
      return accelerate_ ? import_accelerate(text, path_, options)
                         : import_deepspeed(text, path_, options);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
  }

 private:
  std::string path_;
  bool accelerate_;
  const Hardware& hardware_;
};

struct Said {
  std::string operator()(std::monostate) const { return "none"; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(std::int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return fmt::format("{}", value); }
  std::string operator()(const std::string& value) const { return value; }
};

/// The number at the end of "error_world_8" or "gradient_accumulation_at_world_8".
std::optional<int> world_in(const std::string& key) {
  const auto at = key.rfind("world_");
  if (at == std::string::npos) return std::nullopt;
  return std::atoi(key.c_str() + at + 6);
}

/// Checks the fields of one expected file, one Check per field: 0 holds, 1 does not.
class FieldChecks {
 public:
  FieldChecks(const LaunchFile& file, const Json& expected, Outcome& outcome)
      : file_(file), outcome_(outcome), result_(file.import(std::nullopt)) {
    const Json& strategy = expected.contains("strategy") ? expected["strategy"] : Json();
    expects_error_ = strategy.is_string() && strategy.get<std::string>().starts_with("error");
    for (const auto& [key, value] : expected.items())
      check(key, value);
  }

 private:
  const Imported* imported() const { return std::get_if<Imported>(&result_); }

  void record(const std::string& key, bool holds, const std::string& expected,
              const std::string& said) {
    outcome_.checks.push_back(
        {holds ? key : fmt::format("{}: expected \"{}\", said \"{}\":", key, expected, said),
         holds ? 0.0 : 1.0, 0.0});
  }

  /// Everything that the import says, a line each.
  std::vector<std::string> lines() const {
    if (imported() == nullptr) return {std::get<std::string>(result_)};
    std::vector<std::string> lines;
    for (const ImportWarning& warning : imported()->warnings)
      lines.push_back(warning.key + ": " + warning.text);
    for (const OpenValue& open : imported()->open)
      lines.push_back(open.key + ": " + open.decided_by);
    for (const Fact& fact : imported()->facts)
      lines.push_back(fact.name + ": " + std::visit(Said{}, fact.value));
    return lines;
  }

  void check(const std::string& key, const Json& value) {
    if (key == "kind") return check_kind(value);
    if (key == "verified_with") return check_versions(value);
    if (key == "strategy") return check_strategy(value);
    if (key == "must_warn") {
      for (const Json& warning : value)
        check_warning(warning);
      return;
    }
    if (key == "valid_world") return check_valid_worlds(value);
    if (key.starts_with("error_world_")) return check_error(key, value);
    if (key.find("at_world_") != std::string::npos) return check_at_world(key, value);
    if (imported() == nullptr && key != "must_say")
      return record(key, false, value.dump(), std::get<std::string>(result_));
    if (value.is_object()) return check_object(key, value);
    check_value(key, value);
  }

  /// "accelerate FSDP yaml": the tools that the file is for.
  void check_kind(const Json& value) {
    const auto expected = value.get<std::string>();
    if (imported() == nullptr) return;  // an error: `strategy` checks it
    const auto names = [](const std::string& text, std::string_view tool) {
      const auto lower = [](unsigned char c) { return std::tolower(c); };
      return !std::ranges::search(text, tool, {}, lower).empty();
    };
    const bool holds =
        std::ranges::all_of(std::array<std::string_view, 3>{"accelerate", "fsdp", "deepspeed"},
                            [&](std::string_view tool) {
                              return names(expected, tool) == names(imported()->tool, tool);
                            });
    record("kind", holds, expected, imported()->tool);
  }

  /// "accelerate 1.15.0 launch parser ...": the versions whose rules the importer follows.
  void check_versions(const Json& value) {
    const auto text = value.get<std::string>();
    const bool known =
        text.find("accelerate 1.15.0") != text.npos || text.find("deepspeed 0.19.8") != text.npos;
    record("verified_with", known, text, "accelerate 1.15.0, deepspeed 0.19.8");
  }

  void check_strategy(const Json& value) {
    const auto expected = value.get<std::string>();
    if (expects_error_ || imported() == nullptr)
      return record("strategy", expects_error_ && imported() == nullptr, expected,
                    imported() ? "no error" : std::get<std::string>(result_));
    const Fact* fact = imported()->find("strategy");
    const std::string said = fact ? std::visit(Said{}, fact->value) : "";
    // One without an equal in FSDP may be described by what it is near to.
    const bool same_name = first_strategy_in(expected) == first_strategy_in(said);
    const bool has_none = concepts_of(said).contains("no-equivalent");
    const bool holds = missing_concepts(expected, said).empty() && (same_name || has_none);
    record("strategy", holds, expected, said);
  }

  /// A warning is there when one of ours names the same keys and values. Small numbers in such
  /// sentences are versions and counts, not facts.
  void check_warning(const Json& value) {
    const auto expected = value.get<std::string>();
    const auto all = imported() == nullptr ? lines() : warnings();
    const bool holds = std::ranges::any_of(all, [&](const std::string& said) {
      const auto missing = missing_concepts(expected, said);
      return std::ranges::all_of(missing, [](const std::string& word) {
        return std::isdigit(static_cast<unsigned char>(word.front())) && word.size() == 1;
      });
    });
    record("must_warn", holds && !concepts_of(expected).empty(), expected,
           fmt::format("{}", fmt::join(all, " | ")));
  }

  std::vector<std::string> warnings() const {
    std::vector<std::string> texts;
    for (const ImportWarning& warning : imported()->warnings)
      texts.push_back(warning.key + ": " + warning.text);
    return texts;
  }

  /// Each listed world imports; of the two that the file was verified at, the others do not.
  void check_valid_worlds(const Json& value) {
    std::set<int> valid;
    for (const Json& world : value)
      valid.insert(world.get<int>());
    std::set<int> tried = valid;
    tried.insert({1, 8});
    std::string wrong;
    for (const int world : tried)
      if (std::holds_alternative<Imported>(file_.import(world)) != valid.contains(world))
        wrong += fmt::format(" {}", world);
    record("valid_world", wrong.empty(), value.dump(), "wrong at worlds" + wrong);
  }

  void check_error(const std::string& key, const Json& value) {
    const auto result = file_.import(world_in(key).value_or(0));
    const std::string* error = std::get_if<std::string>(&result);
    const auto expected = value.get<std::string>();
    record(key, error != nullptr && error->find(expected) != error->npos, expected,
           error ? *error : "no error");
  }

  /// "NAME_at_world_8", and "at_world_1" for the NAME before it.
  void check_at_world(const std::string& key, const Json& value) {
    if (!key.starts_with("at_world_")) at_world_name_ = key.substr(0, key.find("_at_world_"));
    const auto result = file_.import(world_in(key).value_or(0));
    const auto* there = std::get_if<Imported>(&result);
    const Fact* fact = there ? fact_like(*there, at_world_name_) : nullptr;
    record(key, fact != nullptr && equal(value, fact->value), value.dump(),
           fact    ? std::visit(Said{}, fact->value)
           : there ? "no such fact"
                   : std::get<std::string>(result));
  }

  /// "micro_batch" is short for "train_micro_batch_size_per_gpu".
  static const Fact* fact_like(const Imported& imported, const std::string& name) {
    if (const Fact* fact = imported.find(name)) return fact;
    const auto found = std::ranges::find_if(
        imported.facts, [&](const Fact& fact) { return fact.name.find(name) != fact.name.npos; });
    return found == imported.facts.end() ? nullptr : &*found;
  }

  void check_object(const std::string& key, const Json& object) {
    if (key.starts_with("state_bytes_per_param")) return check_state_bytes(key, object);
    for (const auto& [name, value] : object.items()) {
      if (name.find("at_world_") != std::string::npos)
        check_at_world(name, value);
      else
        check_value(imported()->find(key + "." + name) ? key + "." + name : name, value);
    }
  }

  /// Where nothing is said to lie on the host, sharded bytes are those of both places.
  void check_state_bytes(const std::string& key, const Json& object) {
    const auto bytes = [&](const char* where) {
      const Fact* fact = imported()->find(std::string("state_bytes_per_param_adamw.") + where);
      return fact ? std::get<std::int64_t>(fact->value) : -1;
    };
    const auto is_host = [](const std::string& name) {
      return name.find("host") != name.npos || name.find("cpu") != name.npos ||
             name.find("nvme") != name.npos;
    };
    const bool names_host =
        std::ranges::any_of(object.items(), [&](const auto& item) { return is_host(item.key()); });
    for (const auto& [name, value] : object.items()) {
      const std::int64_t said = is_host(name)                          ? bytes("host")
                                : name.find("replicated") != name.npos ? bytes("replicated")
                                : names_host                           ? bytes("sharded")
                                             : bytes("sharded") + bytes("host");
      record(key + "." + name, value == said, value.dump(), std::to_string(said));
    }
  }

  void check_value(const std::string& key, const Json& value) {
    const Fact* fact = imported() ? imported()->find(key) : nullptr;
    if (fact != nullptr)
      return record(key, equal(value, fact->value), value.dump(), std::visit(Said{}, fact->value));
    if (const Json* field = field_of_job(key); field != nullptr && !value.is_string())
      return record(key, *field == value, value.dump(), field->dump());
    if (value.is_null()) return record(key, true, "null", "");
    if (!value.is_string()) return record(key, false, value.dump(), "no such fact");
    // A sentence about something that has no fact of its own: it must be said somewhere.
    const auto expected = value.get<std::string>();
    const std::string text = fmt::format("{}", fmt::join(lines(), "\n"));
    const auto missing = missing_concepts(expected, text);
    record(key, !concepts_of(expected).empty() && missing.empty(), expected,
           fmt::format("{} is missing in: {}", fmt::join(missing, ", "), text));
  }

  /// The value of the first field of the job that has this name, whatever section it is in.
  const Json* field_of_job(const std::string& name) {
    if (imported() == nullptr) return nullptr;
    if (job_.is_null()) job_ = Json::parse(job_to_json(imported()->job));
    return field_in(job_, name);
  }
  static const Json* field_in(const Json& object, const std::string& name) {
    for (const auto& [key, value] : object.items()) {
      if (key == name) return &value;
      if (!value.is_object()) continue;
      if (const Json* found = field_in(value, name)) return found;
    }
    return nullptr;
  }

  static bool equal(const Json& expected, const FactValue& said) {
    if (expected.is_string())
      return means_the_same(expected.get<std::string>(), std::visit(Said{}, said));
    if (expected.is_null()) return std::holds_alternative<std::monostate>(said);
    if (expected.is_boolean() && std::holds_alternative<bool>(said))
      return std::get<bool>(said) == expected.get<bool>();
    if (expected.is_boolean())  // whether there is something of the kind
      return std::holds_alternative<std::monostate>(said) != expected.get<bool>();
    if (!expected.is_number()) return false;
    if (const auto* number = std::get_if<double>(&said)) return *number == expected.get<double>();
    const auto* integer = std::get_if<std::int64_t>(&said);
    return integer != nullptr && static_cast<double>(*integer) == expected.get<double>();
  }

  const LaunchFile& file_;
  Outcome& outcome_;
  std::variant<Imported, std::string> result_;
  bool expects_error_ = false;
  std::string at_world_name_;
  Json job_;  // of the import, once asked for
};

bool is_accelerate(const std::string& name, const Json& expected) {
  const std::string kind = expected.value("kind", "");
  if (kind.find("accelerate") != kind.npos) return true;
  return kind.empty() && !name.ends_with(".json");
}

}  // namespace

int launch(const std::string& folder, Scorecard::Form form) {
  const Hardware hardware = Hardware::read(data_folder());
  const std::string path = folder + "/expected.json";
  Json all;
  try {
    all = Json::parse(read_text(path));
  } catch (const Json::exception& error) {
    throw InputError(fmt::format("{}: {}", path, error.what()));
  }
  Scorecard scorecard(form);
  for (const auto& [name, expected] : all.items()) {
    Outcome outcome{.name = name};
    const LaunchFile file(folder, name, is_accelerate(name, expected), hardware);
    FieldChecks(file, expected, outcome);
    scorecard.add(std::move(outcome));
  }
  return scorecard.close();
}

}  // namespace shardplan::oracle
