#pragma once

#include "plans/job.h"
#include "plans/model_graph.h"

namespace shardplan {

/// The graph with the linear layers of its blocks marked for products on operands of fewer bits
/// (Attribute::OperandBits), as training.matmul_dtype, which is not `none`, says; the head stays as
/// it is, as in torchao, TransformerEngine and LLM.Q. Throws InputError when the job's GPU has no
/// units for them.
ModelGraph with_narrow_products(const ModelGraph& graph, const Job& job);

}  // namespace shardplan
