#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shardplan {

/// A model of plans/models/presets.yaml.
struct Preset {
  std::string key;                   // its folder below plans/models, which holds a config.json
  std::vector<std::string> ids;      // names on the Hugging Face hub
  std::int64_t parameter_count = 0;  // expected; tied weights once
  std::string source;
};

/// The presets below `folder` (see data_folder()). Throws InputError.
std::vector<Preset> read_presets(const std::string& folder);

/// The preset a user means by its key or one of its hub ids; matched as GPUs are, see
/// match_catalogue. Throws InputError.
const Preset& find_preset(const std::vector<Preset>& presets, std::string_view name);

}  // namespace shardplan
