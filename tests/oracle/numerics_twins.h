#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "plans/job.h"
#include "plans/plan.h"

namespace shardplan::oracle {

/// A job that must train another's numbers bit for bit.
struct Twin {
  std::string name;
  Job job;
};

/// The twins of a plan's job in the groups that PyTorch trains with the same bits (README.md of the
/// numerics, "Bitwise equal"): strategies that differ only in how long parameters stay whole, any
/// at one rank, replicated ones at two ranks and one rank with two micro-steps, and all of them
/// with or without checkpointing. What a twin needs is written into `folder`. Throws InputError
/// when the job's data order cannot be read.
std::vector<Twin> twins_of(const Plan& plan, const std::filesystem::path& folder);

}  // namespace shardplan::oracle
