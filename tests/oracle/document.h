#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "plans/error.h"

namespace shardplan::oracle {

/// Calls `use` with the JSON document of a file. Throws InputError when the file cannot be read, or
/// has not the form that `use` expects.
template <typename Use>
void with_document(const std::filesystem::path& file, Use use) {
  std::ifstream stream(file);
  if (!stream) throw InputError(file.string() + ": cannot be read");
  try {
    use(nlohmann::json::parse(stream));
  } catch (const nlohmann::json::exception& error) {
    throw InputError(file.string() + ": " + error.what());
  }
}

}  // namespace shardplan::oracle
