#pragma once

#include "runtime/device_kind.h"

namespace shardplan {

/// A plug-in is a shared library that exports one of these under the name `shardplan_plugin`. Its
/// interface and the compiler's ABI must be those of the program that opens it.
struct Plugin {
  const char* version;   // SHARDPLAN_VERSION
  const char* compiler;  // __VERSION__
  const DeviceKind* kind;
};

}  // namespace shardplan
