#pragma once

#include <memory>

#include "runtime/comm/fabric.h"
#include "runtime/comm/peers.h"
#include "runtime/device_kind.h"

namespace shardplan {

/// A plug-in is a shared library that exports one of these under the name `shardplan_plugin`. Its
/// interface and the compiler's ABI must be those of the program that opens it.
struct Plugin {
  const char* version;               // SHARDPLAN_VERSION
  const char* compiler;              // __VERSION__
  const DeviceKind* kind = nullptr;  // that it brings, if any
  /// Connects this process with the others of its job, if it can: all call it at the same time.
  /// Throws SystemError.
  std::unique_ptr<Fabric> (*connect)(const ProcessPlace& place) = nullptr;
};

}  // namespace shardplan
