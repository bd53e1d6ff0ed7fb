#include "runtime/plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <string_view>

#include "plans/error.h"
#include "runtime/plugin_entry.h"

namespace shardplan {
namespace {

constexpr const char* kCudaLibrary = "libshardplan_cuda.so";

std::filesystem::path folder_of_program() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
}

}  // namespace

const DeviceKind& open_plugin(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw SystemError(fmt::format("cannot open {}: {}", path, dlerror()));
  const auto* plugin = static_cast<const Plugin*>(dlsym(library, "shardplan_plugin"));
  if (plugin == nullptr) throw SystemError(fmt::format("{} is no plug-in of shardplan", path));
  if (std::string_view(plugin->version) != SHARDPLAN_VERSION ||
      std::string_view(plugin->compiler) != __VERSION__)
    throw SystemError(
        fmt::format("{} is of shardplan {} built with {}, this program is {} built with {}", path,
                    plugin->version, plugin->compiler, SHARDPLAN_VERSION, __VERSION__));
  return *plugin->kind;
}

const DeviceKind& open_cuda() {
  const std::filesystem::path here = folder_of_program();
  for (const std::filesystem::path& folder :
       {here, here.parent_path() / "lib/shardplan", here.parent_path() / "runtime/cuda",
        here.parent_path().parent_path() / "runtime/cuda"})
    if (std::filesystem::exists(folder / kCudaLibrary)) return open_plugin(folder / kCudaLibrary);
  throw SystemError(
      "this build has no CUDA: configure it with -DSHARDPLAN_CUDA=on, where nvcc, cuBLASLt and "
      "NCCL are");
}

}  // namespace shardplan
