#pragma once

#include <string>

#include "runtime/device_kind.h"

namespace shardplan {

/// What a plug-in must have been built with: its interface and the compiler's ABI are those of the
/// program that opens it.
inline constexpr const char* kPluginVersion = SHARDPLAN_VERSION " built with " __VERSION__;

/// A plug-in is a shared library that exports one of these under the name `shardplan_plugin`.
struct Plugin {
  const char* version;  // kPluginVersion
  const DeviceKind* kind;
};

/// Opens a plug-in, which stays until the program ends. Throws SystemError when it, or a library
/// that it needs, is not there, or when it is another version's.
const DeviceKind& open_plugin(const std::string& path);

/// The plug-in for "cuda": libshardplan_cuda.so beside this program, in ../lib/shardplan from
/// there, or where the build made it. Throws SystemError that says where it was looked for.
const DeviceKind& open_cuda();

}  // namespace shardplan
