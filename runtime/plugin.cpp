#include "runtime/plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <string_view>

#include "plans/error.h"
#include "runtime/plugin_entry.h"

namespace shardplan {
namespace {

/// Where a plug-in lies that is part of this build or installation; empty: nowhere.
std::filesystem::path path_of(const std::string& name) {
  std::error_code ignored;
  const auto here = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  const std::filesystem::path above = here.parent_path();
  for (const auto& folder : {here, above / "lib/shardplan", above / "runtime" / name,
                             above.parent_path() / "runtime" / name}) {
    std::filesystem::path path = folder / fmt::format("libshardplan_{}.so", name);
    if (std::filesystem::exists(path)) return path;
  }
  return {};
}

void* library_at(const std::string& path) { return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); }

/// Throws SystemError when it is not a plug-in for this program.
const Plugin& entry_of(void* library, const std::string& path) {
  const auto* plugin = static_cast<const Plugin*>(dlsym(library, "shardplan_plugin"));
  if (plugin == nullptr) throw SystemError(fmt::format("{} is no plug-in of shardplan", path));
  if (std::string_view(plugin->version) != SHARDPLAN_VERSION ||
      std::string_view(plugin->compiler) != __VERSION__)
    throw SystemError(
        fmt::format("{} is of shardplan {} built with {}, this program is {} built with {}", path,
                    plugin->version, plugin->compiler, SHARDPLAN_VERSION, __VERSION__));
  return *plugin;
}

}  // namespace

const DeviceKind& open_plugin(const std::string& path) {
  void* library = library_at(path);
  if (library == nullptr) throw SystemError(fmt::format("cannot open {}: {}", path, dlerror()));
  const Plugin& plugin = entry_of(library, path);
  if (plugin.kind == nullptr) throw SystemError(fmt::format("{} brings no devices", path));
  return *plugin.kind;
}

const DeviceKind& open_cuda() {
  const std::filesystem::path path = path_of("cuda");
  if (path.empty())
    throw SystemError(
        "this build has no CUDA: configure it with -DSHARDPLAN_CUDA=on, where nvcc, cuBLASLt and "
        "NCCL are");
  return open_plugin(path);
}

const Plugin* find_mpi() {
  const std::filesystem::path path = path_of("mpi");
  void* library = path.empty() ? nullptr : library_at(path);
  return library == nullptr ? nullptr : &entry_of(library, path);
}

}  // namespace shardplan
