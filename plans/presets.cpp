#include "plans/presets.h"

#include <limits>

#include "plans/document.h"
#include "plans/names.h"

namespace shardplan {

std::vector<Preset> read_presets(const std::string& folder) {
  const std::string path = folder + "/models/presets.yaml";
  const Node document = parse_yaml(read_text(path), path);
  std::vector<Preset> presets;
  for (const auto& [key, where, value] : document.entries) {
    Preset preset;
    preset.key = key;
    Fields fields(value, key);
    if (const Node* ids = fields.find("ids")) preset.ids = texts_of(*ids, fields.name_of("ids"));
    fields.read("parameters", preset.parameter_count, 1, std::numeric_limits<std::int64_t>::max());
    fields.read("source", preset.source);
    fields.refuse_unknown();
    presets.push_back(std::move(preset));
  }
  return presets;
}

const Preset& find_preset(const std::vector<Preset>& presets, std::string_view name) {
  std::vector<Spellings> catalogue;
  for (const Preset& preset : presets) {
    Spellings spellings{preset.key};
    spellings.insert(spellings.end(), preset.ids.begin(), preset.ids.end());
    catalogue.push_back(std::move(spellings));
  }
  return presets[match_catalogue("model preset", name, catalogue)];
}

}  // namespace shardplan
