#pragma once

#include <string>

#include "plans/document.h"

namespace shardplan {

/// Sets one field of a document, as --set "training.optimizer.lr=1e-3" asks for; the value is YAML.
/// Mappings on the way are made where nothing is. Errors, here and in later reading of what was
/// set, name the setting as their place. Throws InputError.
void apply_setting(Node& document, const std::string& setting);

}  // namespace shardplan
