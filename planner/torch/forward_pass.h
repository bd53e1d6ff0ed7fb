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

  /// Runs it; returns the loss.
  Tensor run();
  /// Lets go of what the training loop holds until backward has run.
  void forget_outputs() { logits_ = {}; }

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
  int loss() const { return operators() - 1; }
  bool is_input(int vertex) const { return op(vertex).kind == OperatorKind::Input; }
  Region region_of(const std::vector<std::string>& modules) const;
  void find_hooked();
  void find_checkpoints();
  void find_last_uses();
  void find_shared();
  void find_loss();

  int outside_of_regions(int vertex) const;
  bool is_kept(int vertex) const;
  void make_tables();
  void make_mask();
  void enter(const Region& hooked, const Values& values);
  void leave(const Region& hooked, const Values& values);
  void run_hooked(int vertex, Values& values, const Region& around);
  void run_checkpoint(const Region& region);
  void run_loss_in_chunks();
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
  std::int64_t chunk_tokens_ = 0;  // of the chunk that runs
  int blocks_end_ = -1;            // operator after which the module of the blocks returns
  Shared shared_;
  Tensor logits_;                               // where the training loop keeps them
  Tensors cache_;                               // keys and values
  std::map<std::string, std::string> classes_;  // by module
};

}  // namespace shardplan::torch
