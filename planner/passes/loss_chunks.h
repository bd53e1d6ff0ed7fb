#pragma once

#include "planner/passes/autograd.h"

namespace shardplan {

/// Runs the head, the loss and the gradients of both in forward, over one chunk of the rows after
/// the other, so that the logits of one chunk exist at a time. Rows are cut as torch.chunk cuts
/// them (torchtune's CEWithChunkedOutputLoss): into equal chunks and a smaller last one, fewer than
/// `chunks` where the rows do not fill so many. Throws InputError when the logits are not made by a
/// linear layer that only the loss reads.
void cut_loss(Tape& tape, const ModelGraph& graph, int chunks);

}  // namespace shardplan
