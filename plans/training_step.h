#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "plans/contents.h"
#include "plans/differentiation.h"

namespace shardplan {

/// Follows what makes a training step of gradients, and checks it: every gradient is averaged over
/// all ranks once and has one term of every use of its parameter in the step; the norm is of all
/// gradients; every parameter is updated once, by its own gradient, with its own states; what is
/// reported and saved are the step's loss and norm and the latest weights.
class TrainingStep {
 public:
  TrainingStep(Contents& contents, Differentiation& differentiation);

  void begin();
  void end();
  /// After the program: all weights or none were saved.
  void end_program();

  void read(InstructionId id, Source source);
  void write(InstructionId id, Sink sink);
  void reduce_scatter(InstructionId id, const ReduceScatter& reduce);
  void all_reduce(InstructionId id, const AllReduce& reduce);
  void sum_squares(InstructionId id);
  void gradient_norm(InstructionId id);
  void update(InstructionId id);
  void add_losses(Terms terms) { losses_ = losses_ + terms; }

 private:
  /// What a rank owns of a unit's slice, and the weights.
  struct Stretch {
    std::int64_t at = 0;  // in the shard
    std::int64_t elems = 0;
    bool trainable = true;
    ValueId initial = 0;  // the whole weights as they were read, and as they are
    ValueId latest = 0;
    int updates = 0;  // in this step
    int saves = 0;
  };
  /// What a sum of squares, and all that is made of it, is about.
  struct Norm {
    std::vector<Slice> slices;  // sorted, without zeros
    std::int64_t elems = 0;
    std::int64_t used = 0;  // elements that optimizers have updated by
    bool parted = false;    // the slices are what one rank owns
    bool summed = false;    // over the shard group
  };
  /// What a value is on the way from the gradients to the factor that clips them.
  enum class Stage { Sum, Norm, Factor };
  struct NormValue {
    std::size_t norm = 0;  // of norms_
    Stage stage = Stage::Sum;
  };
  enum class Weights { Initial, Latest };

  const Plan& plan() const { return contents_.plan(); }
  std::vector<Slice> weights(int unit, const View& view, Weights which) const;
  /// What a rank holds of the whole weights.
  ValueId owned(ValueId whole, std::int64_t elems) const;

  template <typename Reduction>
  std::optional<std::vector<Slice>> reduced(InstructionId id, std::size_t i,
                                            const Reduction& reduce);
  Slice averaged(InstructionId id, const View& view, const Slice& slice, unsigned axes);
  std::vector<int> finished_units(const std::vector<Slice>& slices) const;

  ValueId new_norm_value(std::size_t norm, Stage stage);
  Norm* norm_of(InstructionId id, std::size_t i, Stage stage);
  void check_gradient(InstructionId id, const Stretch& stretch, const std::vector<Slice>& gradient);
  void check_states(InstructionId id);
  void check_clipping(InstructionId id, const std::vector<Slice>& gradient);
  void fault(InstructionId id, const View& view, std::string_view why) const {
    contents_.fault(id, view.buffer, why);
  }

  Contents& contents_;
  Values& values_;
  Differentiation& differentiation_;
  unsigned needed_axes_ = 0;
  std::vector<std::vector<Stretch>> stretches_;  // by unit
  std::vector<Norm> norms_;
  std::unordered_map<ValueId, NormValue> norm_values_;
  Terms losses_;                                        // of this step
  int tokens_read_ = 0;                                 // in this step
  int targets_read_ = 0;                                // likewise
  std::unordered_map<InstructionId, int> inputs_read_;  // likewise, by instruction
  int losses_written_ = 0;
  std::vector<std::size_t> norms_written_;  // of norms_
};

}  // namespace shardplan
