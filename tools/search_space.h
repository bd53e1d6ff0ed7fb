#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plans/hardware.h"
#include "plans/job.h"

namespace shardplan {

/// GPUs of one type that the user could have.
struct GpuOffer {
  GpuSpec gpu;
  NetworkSpec network;
  int most = 1;
  std::optional<double> price_per_hour;  // USD of one
};

/// Reads "GPU:COUNT" or "GPU:COUNT:PRICE"; without a price the catalogue's example counts. Throws
/// InputError that begins with `where`.
GpuOffer offer_from(const std::string& text, const std::string& where, const Hardware& hardware);
/// The GPUs of the job itself, up to its world.
GpuOffer offer_of(const ClusterJob& cluster);

/// What a search may choose.
struct SearchSpace {
  std::vector<GpuOffer> offers;
  std::vector<Strategy> strategies;
  std::vector<std::int64_t> micro_batches;  // ascending
  std::vector<ActivationCheckpointing> checkpointing;
  std::optional<std::int64_t> global_batch;  // sequences of a step: what accumulation makes up for;
                                             // none: the job's micro-steps stay
};
/// The strategies that are usual for the job, and the usual micro-batches and modes of
/// checkpointing, on these GPUs.
SearchSpace usual_space(const Job& job, const std::vector<GpuOffer>& offers);

/// A job that can be chosen.
struct Candidate {
  Job job;
  std::size_t group = 0;  // the same for those that differ in the micro-batch only
  std::size_t work = 0;   // the same for those whose ranks compute the same products
};
struct Candidates {
  std::vector<Candidate> all;  // of a group in the order of their micro-batches
  std::size_t groups = 0;
  std::size_t works = 0;
};
/// Every combination that makes sense: one rank shards nothing, shard groups are smaller than the
/// world, a global batch divides. Counts of GPUs are powers of two up to a node and then nodes:
/// powers of two, halfway between, and as many as there are.
Candidates candidates_of(const Job& job, const SearchSpace& space);

}  // namespace shardplan
