#include "tools/frameworks.h"

#include <algorithm>

#include "plans/document.h"

namespace shardplan {

namespace {

/// Adds to `version` what the fields say.
void read_version(Fields& fields, FrameworkVersion& version) {
  const auto add_texts = [&](std::string_view key, std::vector<std::string>& texts) {
    const Node* node = fields.find(key);
    if (node == nullptr) return;
    for (std::string& text : texts_of(*node, fields.name_of(key)))
      texts.push_back(std::move(text));
  };
  add_texts("settings", version.settings);
  add_texts("compiled", version.compiled);
  add_texts("units", version.units);
  Fields process = fields.section("process");
  if (const Node* loss = process.find("loss"))
    version.process.loss = located(*loss, [&] { return torch::loss_place_from(loss->text); });
  process.read("float32_logits", version.process.float32_logits);
  process.read("compiles_loss", version.process.compiles_loss);
  process.refuse_unknown();
}

/// From the first on, each with what those before it say.
std::vector<FrameworkVersion> read_versions(Fields& fields) {
  std::vector<FrameworkVersion> versions(1);
  read_version(fields, versions.front());
  const Node* later = fields.find("versions");
  if (later == nullptr) return versions;
  for (const Node& entry : later->items) {
    versions.push_back(versions.back());
    Fields version(entry, "version");
    version.read("since", versions.back().since);
    if (versions.back().since <= versions[versions.size() - 2].since)
      fail(entry, "versions: each needs a date (since) after the one before");
    read_version(version, versions.back());
    version.refuse_unknown();
  }
  return versions;
}

}  // namespace

const FrameworkVersion& Framework::at(std::string_view date) const {
  const std::string_view known = date.empty() ? std::string_view(undated) : date;
  const FrameworkVersion* version = &versions.front();
  for (const FrameworkVersion& later : versions)
    if (later.since <= known) version = &later;
  return *version;
}

std::vector<Framework> read_frameworks(const std::string& folder) {
  const std::string path = folder + "/frameworks.yaml";
  const Node document = parse_yaml(read_text(path), path);
  std::vector<Framework> frameworks;
  for (const Node& entry : document.items) {
    Framework& framework = frameworks.emplace_back();
    std::string source;
    Fields fields(entry, "framework");
    const auto read_texts = [&](std::string_view key, std::vector<std::string>& texts) {
      if (const Node* node = fields.find(key)) texts = texts_of(*node, fields.name_of(key));
    };
    read_texts("names", framework.names);
    framework.versions = read_versions(fields);
    fields.read("undated", framework.undated);
    const auto read_map = [&](std::string_view key, std::map<std::string, std::string>& texts) {
      if (const Node* node = fields.find(key))
        for (const Entry& part : node->entries)
          texts[part.key] = text_of(part.value, fields.name_of(key));
    };
    read_map("recomputed_operators", framework.recomputed_operators);
    read_map("recomputed_modules", framework.recomputed_modules);
    fields.read("global_batch", framework.global_batch, 1, 1 << 24);
    fields.read("selective", framework.selective);
    fields.read("selective_float8", framework.selective_float8);
    fields.read("checkpointing", framework.checkpointing);
    fields.read("source", source);
    fields.refuse_unknown();
    if (framework.names.empty() || source.empty()) fail(entry, "needs names and a source");
  }
  return frameworks;
}

const Framework* find_framework(const std::vector<Framework>& frameworks, std::string_view name) {
  for (const Framework& framework : frameworks)
    if (std::ranges::any_of(framework.names, [&](const std::string& part) {
          return name.find(part) != std::string_view::npos;
        }))
      return &framework;
  return nullptr;
}

}  // namespace shardplan
