#pragma once

#include <string>
#include <utility>

#include "plans/document.h"

namespace shardplan {

/// One field of a document and its value.
struct Setting {
  std::string text;   // "training.optimizer.lr=1e-3"; the value is YAML
  std::string where;  // what the user wrote: the place of errors

  /// As --set gives it.
  Setting(std::string assignment)  // NOLINT(google-explicit-constructor): settings are texts
      : text(std::move(assignment)), where("--set " + text) {}
  Setting(const char* assignment)  // NOLINT(google-explicit-constructor)
      : Setting(std::string(assignment)) {}
  /// As a flag of its own gives it.
  Setting(std::string assignment, std::string flag)
      : text(std::move(assignment)), where(std::move(flag)) {}
};

/// Sets the field. Mappings on the way are made where nothing is. Errors, here and in later reading
/// of what was set, name the setting as their place. Throws InputError.
void apply_setting(Node& document, const Setting& setting);

}  // namespace shardplan
