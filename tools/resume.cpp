#include "tools/resume.h"

#include <fmt/format.h>

#include <cstdio>
#include <vector>

#include "plans/error.h"
#include "runtime/checkpoint.h"

namespace shardplan {
namespace {

/// Throws InputError for a checkpoint that is damaged.
void expect_whole(const std::string& path) {
  const Checkpoint checkpoint(path, Checkpoint::Verify::Checksums);
}

}  // namespace

std::string checkpoint_to_resume(const std::string& resume, const std::string& output) {
  if (resume.empty()) return {};
  if (resume != "auto") {
    expect_whole(resume);
    return resume;
  }
  const std::string folder = checkpoint_folder(output);
  const std::vector<std::string> all = checkpoints_in(folder);
  for (const std::string& path : all) {
    try {
      expect_whole(path);
      return path;
    } catch (const InputError& error) {
      fmt::print(stderr, "Warning: passed over a damaged checkpoint: {}\n", error.what());
    }
  }
  if (!all.empty())
    throw InputError(fmt::format("{}: no checkpoint is whole; remove them to begin anew", folder));
  return {};
}

}  // namespace shardplan
