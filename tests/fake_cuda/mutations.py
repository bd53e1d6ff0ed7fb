"""Mistakes in the CUDA runtime and its kernels that tests on the fake must see.

name -> (test program, file, old text, new text). An old text must stand in its file exactly once.
"""

KERNELS, RUNTIME = "unit_cuda_kernels", "unit_cuda_runtime"
REDUCE = "kernels/cuda/reduce.h"
LAUNCH = "kernels/cuda/launch.h"
FLOATS = "kernels/cuda/floats.h"
NORMS = "kernels/cuda/norms.cu"
EMBEDDING = "kernels/cuda/embedding.cu"
ATTENTION = "kernels/cuda/attention.cu"
CROSS_ENTROPY = "kernels/cuda/cross_entropy.cu"
OPTIMIZER = "kernels/cuda/optimizer.cu"
MEMORY = "kernels/cuda/memory.cu"
ROPE = "kernels/cuda/rope.cu"
ELEMENTWISE = "kernels/cuda/elementwise.cu"
DEVICE = "runtime/cuda/cuda_device.cpp"
GRAPH = "runtime/cuda/step_graph.cpp"
NCCL = "runtime/cuda/nccl_communicator.cpp"

MUTATIONS = {
    # barriers
    "block_sum without the barrier before": (
        KERNELS, REDUCE, "  __syncthreads();  // the last call's readers are done\n", ""),
    "block_sum without the barrier after": (
        KERNELS, REDUCE, "partial[warp_of_block()] = value;\n  __syncthreads();\n  T sum",
        "partial[warp_of_block()] = value;\n  T sum"),
    "block_max without the barrier before": (
        KERNELS, REDUCE, "value = warp_max(value);\n  __syncthreads();\n", "value = warp_max(value);\n"),
    "block_max without the barrier after": (
        KERNELS, REDUCE, "partial[warp_of_block()] = value;\n  __syncthreads();\n  float largest",
        "partial[warp_of_block()] = value;\n  float largest"),
    "column sums without their barrier": (
        KERNELS, NORMS, "= sum;\n  __syncthreads();\n", "= sum;\n"),
    "cross-entropy without the barrier before it writes": (
        KERNELS, CROSS_ENTROPY, "  __syncthreads();  // before its place gets the gradient\n", ""),
    "attention: a tile is loaded while it is read": (
        KERNELS, ATTENTION, "  __syncthreads();  // the last tile's readers are done\n", ""),
    "attention: a tile is read while it is loaded": (
        KERNELS, ATTENTION, ": 0.0F;\n  __syncthreads();\n", ": 0.0F;\n"),
    "attention: weights are read while they are written": (
        KERNELS, ATTENTION, "= weight;\n    __syncwarp();\n", "= weight;\n"),
    # masks and bounds
    "a warp's sum leaves lanes out": (
        KERNELS, REDUCE, "T warp_sum(T value) {\n  for (int offset = kWarp / 2; offset > 0;",
        "T warp_sum(T value) {\n  for (int offset = kWarp / 2; offset > 1;"),
    "a warp's maximum leaves lanes out": (
        KERNELS, REDUCE, "warp_max(float value) {\n  for (int offset = kWarp / 2;",
        "warp_max(float value) {\n  for (int offset = kWarp / 4;"),
    "packs beyond the end": (KERNELS, LAUNCH, "elems - first < kPackElems ? elems - first : kPackElems",
                             "kPackElems"),
    "one block too few": (KERNELS, LAUNCH, "(work + threads - 1) / threads", "work / threads"),
    "unaligned packs moved at once": (
        KERNELS, FLOATS, "reinterpret_cast<std::uintptr_t>(address) % 16 == 0",
        "reinterpret_cast<std::uintptr_t>(address) % 2 == 0"),
    "bfloat16 pairs swapped": (KERNELS, FLOATS, "std::bit_cast<float>(pairs[i] << 16)",
                               "std::bit_cast<float>(pairs[i] & 0xffff0000U)"),
    "norms: a row too many": (KERNELS, NORMS, "row < elems / channels ? row : -1", "row <= elems / channels ? row : -1"),
    "norms: a channel too few": (KERNELS, NORMS, "c < channels; c += kWarp", "c < channels - 1; c += kWarp"),
    "column sums: a row too few": (KERNELS, NORMS, "row < rows; row += kWarps", "row < rows - 1; row += kWarps"),
    "attention sees the next token": (KERNELS, ATTENTION, "key <= query &&", "key <= query + 1 &&"),
    "attention does not see itself": (KERNELS, ATTENTION, "key <= query &&", "key < query &&"),
    "attention's window is one wider": (KERNELS, ATTENTION, "query - key < window_of(shape)",
                                        "query - key <= window_of(shape)"),
    "attention: keys end a block early": (
        KERNELS, ATTENTION, "place.first_row + kRows<kDim>;", "place.first_row;"),
    "attention: queries end a row early": (
        KERNELS, ATTENTION, "kRows<kDim> - 1 + window_of(shape)", "kRows<kDim> - 2 + window_of(shape)"),
    "attention: the last row is left out": (
        KERNELS, ATTENTION, "query < shape.time && key", "query < shape.time - 1 && key"),
    "attention: tokens beyond the last are loaded": (
        KERNELS, ATTENTION, "first + token < shape.time ?", "first + token <= shape.time ?"),
    "cross-entropy: a column too few": (
        KERNELS, CROSS_ENTROPY, "i < vocab; i += kBlockThreads)\n    own_sum",
        "i < vocab - 1; i += kBlockThreads)\n    own_sum"),
    "cross-entropy: ignored targets are counted": (
        KERNELS, CROSS_ENTROPY, "== kIgnoredTarget ? 0 : 1", "== kIgnoredTarget ? 1 : 1"),
    "embedding: rows of a token are looked for from the next one on": (
        KERNELS, EMBEDDING, "next_row(tokens, row + 1, token)", "next_row(tokens, row + 2, token)"),
    "embedding: every row writes": (
        KERNELS, EMBEDDING, "  if (next_row(tokens, 0, token) != first) return;\n", ""),
    "embedding: positions beyond the sequence keep their bytes": (
        KERNELS, EMBEDDING, "else if (accumulate)", "else"),
    "rope: a token too many": (KERNELS, ROPE, "token >= shape.batch * shape.time",
                               "token > shape.batch * shape.time"),
    "fill and sums: an element too many": (
        KERNELS, OPTIMIZER, "i < x.size(); i += threads", "i <= x.size(); i += threads"),
    "pattern: a word too few": (KERNELS, MEMORY, "if (i >= words_of(memory)) return;",
                                "if (i >= words_of(memory) - 1) return;"),
    "positions: an element shifted": (KERNELS, ELEMENTWISE, "(pack.first + i) % sequence",
                                      "(pack.first + i + 1) % sequence"),
    # events, streams, memory
    "no event waits": (
        RUNTIME, DEVICE,
        "      check(cudaStreamWaitEvent(own.stream.get(), event->get(), 0), \"wait for an event\");\n",
        "      (void)event;\n"),
    "waits for the issue before": (
        RUNTIME, DEVICE, "&own.events[number % kCapacity]", "&own.events[(number - 1) % kCapacity]"),
    "events recorded before the work": (
        RUNTIME, DEVICE, "  if (!body_(issue)) return 0;\n  return mark(stream, issue.id);\n",
        "  const std::uint64_t number = mark(stream, issue.id);\n"
        "  return body_(issue) ? number : 0;\n"),
    "pinned memory overwritten while it is copied": (
        RUNTIME, DEVICE, "  if (slot.used) wait_for(slot.done);\n", ""),
    "collectives on the compute stream": (
        RUNTIME, NCCL, "shard.size(), ncclInt8, own,\n                       device().stream(stream))",
        "shard.size(), ncclInt8, own, device().stream(Stream::Compute))"),
    "sums not averaged": (RUNTIME, NCCL, "if (factor == 1) return ncclSum;", "return ncclSum;"),
    "a failed rank leaves its peers waiting": (
        RUNTIME, "runtime/rank.cpp", "  if (own_communicator_ && !finished_) own_communicator_->abort(\"the job has failed\");\n", ""),
    "a graph's streams are not forked": (
        RUNTIME, GRAPH, "{ order(Stream::Compute, edges_.emplace_back(make_event()), stream); }",
        "{ (void)stream; }"),
    "a graph begins before the last one's streams are done": (
        RUNTIME, GRAPH, "  gather_streams();\n  check(cudaGraphLaunch", "  check(cudaGraphLaunch"),
    "streams go on before the graph has ended": (
        RUNTIME, GRAPH,
        "    check(cudaStreamWaitEvent(device_.stream(stream), done->get(), 0), \"wait for an event\");\n",
        "    (void)done;\n"),
    "waits of a step are no edges of its graph": (
        RUNTIME, DEVICE, "  if (graph_->notes()) return graph_->event_of(stream, number);\n",
        "  if (graph_->notes()) return nullptr;\n"),
    "host waits are no edges of a graph": (
        RUNTIME, DEVICE, "    graph_->hold_all(stream, count);\n", ""),
    "a graph keeps the step's factors": (
        RUNTIME, "runtime/rank.cpp", "  device_->begin_step(data_.scalars[step_]);\n",
        "  if (step_ < 2) device_->begin_step(data_.scalars[step_]);\n"),
    "a graph reads the same tokens again": (
        RUNTIME, DEVICE, "    ++slot.issue.step;\n", ""),
    "communicators go before graphs do": (
        RUNTIME, NCCL, "  device().drop_graph();\n", ""),
    "waits for ever": (RUNTIME, DEVICE, "> device_.options_.timeout_s)", "> 3600)"),
}
