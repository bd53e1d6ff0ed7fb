#pragma once

#include <string>

#include "plans/job.h"
#include "plans/model_graph.h"

namespace shardplan::testing {

/// Sizes of a small Llama-like model; the defaults are uneven on purpose.
struct TinyLlama {
  int layers = 2;
  int channels = 54;
  int heads = 9;
  int kv_heads = 1;
  int ffn = 145;
  int vocab = 509;
  bool tied = false;
};

/// Built by hand from catalogue operators, so that planner tests do not depend on the families.
ModelGraph tiny_llama(const TinyLlama& sizes = {});

/// A job for `world` CPU ranks with short sequences and clipping.
Job tiny_job(Strategy sharding, int world);

}  // namespace shardplan::testing
