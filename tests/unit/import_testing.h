#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "planner/import/imported.h"
#include "plans/error.h"

namespace shardplan {

inline const Hardware& import_hardware() {
  static const Hardware catalogue = Hardware::read(data_folder());
  return catalogue;
}

/// Texts of the warnings about a key.
inline std::string warnings_about(const Imported& imported, std::string_view key) {
  std::string texts;
  for (const ImportWarning& warning : imported.warnings)
    if (warning.key == key) texts += warning.text + "\n";
  return texts;
}

/// The value of a fact; null when there is none.
inline FactValue fact(const Imported& imported, std::string_view name) {
  const Fact* found = imported.find(name);
  return found == nullptr ? FactValue() : found->value;
}

/// The message of the InputError that `make` throws, "" when it throws none.
template <typename Make>
std::string complaint_of(Make make) {
  try {
    make();
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

}  // namespace shardplan
