#pragma once

#include <string_view>

#include "plans/job.h"
#include "plans/model_graph.h"

namespace shardplan {

/// The graph with low-rank adapters (Hu et al., 2021) beside the linear layers whose modules' last
/// components are among the targets: y = W x + alpha / rank * B A x, with B zero at the start.
/// Names are those of PEFT's adapter files. Throws InputError for a target that is no linear layer
/// of the model.
ModelGraph with_lora(const ModelGraph& base, const LoraJob& lora);

}  // namespace shardplan
