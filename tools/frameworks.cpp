#include "tools/frameworks.h"

#include <algorithm>

#include "plans/document.h"

namespace shardplan {

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
    read_texts("settings", framework.settings);
    read_texts("compiled", framework.compiled);
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
