#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <variant>

#include "planner/import/imported.h"
#include "plans/document.h"
#include "plans/error.h"
#include "plans/job_reader.h"
#include "plans/names.h"
#include "tools/answers_json.h"
#include "tools/commands.h"
#include "tools/output_files.h"

namespace shardplan {
namespace {

bool names_model(const JobFlags& flags) {
  return std::ranges::any_of(flags.settings, [](const Setting& setting) {
    return setting.text.starts_with("model.") && !setting.text.ends_with("=null");
  });
}

ImportOptions options_of(const JobFlags& flags, const Hardware& hardware) {
  ImportOptions options{.hardware = hardware};
  if (!flags.gpus.empty()) options.gpus = count_of("--gpus", flags.gpus);
  if (!flags.nodes.empty()) options.nodes = count_of("--nodes", flags.nodes);
  if (names_model(flags))
    options.hidden_size = hidden_size_of(
        parse_job("", "command line", hardware, flags.settings, ModelNeed::Optional).model);
  return options;
}

/// The imported job with what the flags change; the world is the import's already.
Job with_settings(const Imported& imported, const JobFlags& flags, const Hardware& hardware) {
  return parse_job(job_to_yaml(imported.job, hardware), "command line", hardware, flags.settings,
                   ModelNeed::Optional, flags.use);
}

Imported import_launch(const ImportCommandOptions& options, const Hardware& hardware) {
  const ImportOptions import_options = options_of(options.job, hardware);
  const std::string text = read_text(options.job.path);
  Imported imported = options.tool == "accelerate"
                          ? import_accelerate(text, options.job.path, import_options)
                          : import_deepspeed(text, options.job.path, import_options);
  imported.job = with_settings(imported, options.job, hardware);
  return imported;
}

Imported import_model(const ImportCommandOptions& options, const Hardware& hardware) {
  JobFlags flags = options.job;
  const FieldFlag& config = *std::ranges::find(kFieldFlags, "model.hf_config", &FieldFlag::field);
  for (Setting& setting : settings_of(config, flags.path))
    flags.settings.push_back(std::move(setting));
  return import_hf(job_from("", "command line", flags, hardware));
}

Imported import_file(const ImportCommandOptions& options, const Hardware& hardware) {
  const std::vector<std::string> tools{"accelerate", "deepspeed", "hf"};
  if (std::ranges::find(tools, options.tool) == tools.end())
    throw InputError("command line: import: " + unknown_name("tool", options.tool, tools));
  if (options.job.path.empty())
    throw InputError(fmt::format("command line: import {}: expected a file", options.tool));
  if (options.tool == "hf") return import_model(options, hardware);
  return import_launch(options, hardware);
}

struct FactText {
  std::string operator()(std::monostate) const { return "none"; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(std::int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return fmt::format("{}", value); }
  std::string operator()(const std::string& value) const { return value; }
};

/// The text as part of a comment: nothing in it may end the line.
std::string in_comment(std::string text) {
  std::ranges::replace_if(
      text, [](unsigned char c) { return std::iscntrl(c) != 0; }, ' ');
  return text;
}

/// The job file, with what the other file means as a comment above it.
std::string job_file(const Imported& imported, const std::string& path, const Hardware& hardware) {
  std::string text = fmt::format("# {}, read as {}, means:\n", in_comment(path), imported.tool);
  for (const Fact& fact : imported.facts)
    if (fact.name != "kind")
      text +=
          fmt::format("#   {}: {}\n", fact.name, in_comment(std::visit(FactText{}, fact.value)));
  const ModelJob& model = imported.job.model;
  if (model.preset.empty() && model.hf_config.empty())
    text += "# It names no model: set one of preset and hf_config below, or give --model.\n";
  return text + job_to_yaml(imported.job, hardware);
}

void print_warnings(const Imported& imported) {
  for (const ImportWarning& warning : imported.warnings)
    fmt::print(stderr, "{}: warning: {}\n", warning.where, warning.text);
  for (const OpenValue& open : imported.open)
    fmt::print(stderr, "{}: open: {} is decided by {}\n", open.where, open.key, open.decided_by);
}

}  // namespace

int import_command(const ImportCommandOptions& options) {
  const Hardware hardware = Hardware::read(data_folder());
  const Imported imported = import_file(options, hardware);
  const std::string file = job_file(imported, options.job.path, hardware);
  if (!options.output.empty()) write_file(options.output, file);
  if (options.json) {
    fmt::print("{}\n", import_json(imported));
    return kYes;
  }
  print_warnings(imported);
  if (options.output.empty())
    fmt::print("{}", file);
  else
    fmt::print("Wrote {}.\n", options.output);
  return kYes;
}

}  // namespace shardplan
