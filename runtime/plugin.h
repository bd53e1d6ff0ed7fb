#pragma once

#include <string>

#include "runtime/device_kind.h"

namespace shardplan {

struct Plugin;  // runtime/plugin_entry.h

/// Opens a plug-in, which stays until the program ends. Throws SystemError when it, or a library
/// that it needs, is not there, or when it is another version's.
const DeviceKind& open_plugin(const std::string& path);

/// The plug-in for "cuda": libshardplan_cuda.so beside this program, in ../lib/shardplan from
/// there (installed), or in ../runtime/cuda (built; from tests one folder higher). Throws
/// SystemError when there is none, or one of its libraries lacks.
const DeviceKind& open_cuda();

/// The same for MPI, libshardplan_mpi.so; null where it, or a library that it needs, is not there.
const Plugin* find_mpi();

}  // namespace shardplan
