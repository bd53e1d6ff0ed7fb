#pragma once

#include "plans/model_graph.h"
#include "plans/plan.h"

namespace shardplan::torch {

/// Turns the memory of eager mode into that of torch.compile: every block, and `with_loss` the
/// loss, is one graph, in which element-wise operators run inside of kernels.
///
/// What only element-wise operators of a graph write and read takes no memory
/// (Buffer::class_elems): where it is read, in backward too, it is computed from what is there (the
/// min-cut partitioner of AOTAutograd recomputes what is cheap), which therefore lives as long.
/// What a product or attention reads is made once, and all that a graph makes goes with its last
/// use. Launches stay as they are: what fusion saves of their time is the cost model's matter.
///
/// Of a plan without waits for data; its instructions change their order.
void compile_blocks(Plan& plan, const ModelGraph& model, bool with_loss);

}  // namespace shardplan::torch
