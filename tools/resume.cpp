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

std::string newest_whole(const std::string& folder) {
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

}  // namespace

std::string checkpoint_to_resume(const std::string& resume, const RunJob& run) {
  if (resume.empty()) return {};
  if (resume != "auto") expect_whole(resume);
  const std::string path = resume == "auto" ? newest_whole(checkpoint_folder(run.output)) : resume;
  if (path.empty()) return {};
  const int step = Checkpoint(path, Checkpoint::Verify::Sizes).position().steps;
  if (step > run.steps)
    throw InputError(fmt::format("{}: is of step {}, and run.steps is {}: nothing is left to train",
                                 path, step, run.steps));
  return path;
}

}  // namespace shardplan
