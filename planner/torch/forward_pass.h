#pragma once

#include <map>
#include <string>
#include <vector>

#include "planner/passes/recomputation.h"
#include "planner/torch/engine.h"
#include "planner/torch/modeling.h"
#include "planner/torch/torch_plan.h"

namespace shardplan::torch {

/// Runs a model's forward as PyTorch does: operator by operator, with the engine's hooks around
/// its units, and each tensor for as long as Python holds it.
class ForwardPass {
 public:
  /// `inputs`: tensors of the model's Input operators, in their order. All must outlive this.
  ForwardPass(const Process& process, Engine& engine, const Tensors& inputs, const Setup& setup);

  struct Result {
    Tensor output;  // that backward starts from: the loss, or hidden states whose loss is to come
    Tensors held;   // what the loop holds through backward beside it
  };
  Result run();
  /// Runs backward, behind that of a loss in chunks that have their own.
  void run_backward(Result result);

 private:
  /// Operators [first, last] that run inside hooked modules or one checkpoint.
  struct Region {
    int first = 0;
    int last = -1;
    int hooked = -1;  // place in Engine::hooked(); -1: a checkpoint
    int unit = -1;
    std::vector<int> inputs;   // operators outside whose results it reads
    std::vector<int> outputs;  // operators inside whose results others read

    bool contains(int vertex) const { return first <= vertex && vertex <= last; }
    bool is_inside(const Region& other) const {
      return other.first <= first && last <= other.last && other.last - other.first > last - first;
    }
  };
  using Values = std::map<int, Tensor>;  // by operator
  /// What the model makes once, for all blocks.
  struct Shared {
    Tensors tables;    // of rotary embeddings: cosines and sines
    Tensor positions;  // that they are of
    Tensor mask;       // of eager attention
  };

  const Operator& op(int vertex) const { return process_.model.dag[vertex]; }
  int operators() const { return static_cast<int>(boost::num_vertices(process_.model.dag)); }
  bool is_input(int vertex) const { return op(vertex).kind == OperatorKind::Input; }
  Region region_of(const std::vector<std::string>& modules) const;
  void find_hooked();
  void find_checkpoints();
  void find_last_uses();
  void find_shared();
  void find_loss();
  void expect_whole_loss() const;

  int outside_of_regions(int vertex) const;
  bool is_kept(int vertex) const;
  bool eager() const;
  void make_tables();
  void make_mask();
  void enter(const Region& hooked, const Values& values);
  void leave(const Region& hooked, const Values& values);
  void run_hooked(int vertex, Values& values, const Region& around);
  void run_checkpoint(const Region& region);
  void run_model();
  Result return_from_model();
  Tensor run_loss(const Tensor& logits);
  void keep(const Tensors& outputs);
  int logits() const { return process_.model.inputs_of(operators() - 1).front(); }
  std::vector<std::int64_t> chunks() const;
  Tensor run_chunk(int first, int last, const Tensor& input, std::int64_t count);
  Tensor run_chunk_losses(const Tensor& hidden);
  Tensor run_chunk_backwards(const Tensor& hidden);
  std::int64_t tokens() const;
  Tensor run_operators(const Region& region, Values& values);
  Tensor run_operator(int vertex, Values& values);
  const Tensor& value(int vertex, const Values& values) const;
  void release(int first, int last, Values& values) const;

  const Process& process_;
  Engine& engine_;
  const Setup& setup_;
  std::vector<Region> hooked_;       // outer ones first
  std::vector<Region> checkpoints_;  // in order
  const Recomputation recomputation_;
  std::vector<int> unit_of_;   // by operator: the innermost; -1: none
  std::vector<int> last_use_;  // by operator: after which its result goes
  Values inputs_;
  Values values_;
  std::vector<Values> scopes_;     // what hooked modules see as inputs, innermost last
  int rope_ = -1;                  // the first operator that rotates
  int tables_at_ = -1;             // operator before which its tables are made
  int mask_at_ = -1;               // operator before which the mask of eager attention is made
  int loss_from_ = -1;             // operator that makes the logits of a loss in chunks
  int model_end_ = 0;              // the first operator that is not the model's but the loop's
  std::int64_t chunk_tokens_ = 0;  // of the chunk that runs
  int blocks_end_ = -1;            // operator after which the module of the blocks returns
  Shared shared_;
  Tensors cache_;                               // keys and values
  Tensor padding_;                              // of sequences, which the loop passes
  std::vector<StoragePtr> kept_outputs_;        // of the step before
  std::map<std::string, std::string> classes_;  // by module
};

}  // namespace shardplan::torch
