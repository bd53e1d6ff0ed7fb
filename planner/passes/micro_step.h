#pragma once

#include <vector>

#include "planner/passes/autograd.h"
#include "planner/passes/emitter.h"
#include "planner/passes/gradient_path.h"
#include "planner/passes/layout.h"
#include "planner/passes/whole_parameters.h"
#include "plans/model_graph.h"
#include "plans/plan.h"

namespace shardplan {

/// Forward and backward of one micro-batch: reads the batch and runs the tape, parameters gathered
/// ahead of their use and gradients on their way as soon as a unit's are complete.
class MicroStep {
 public:
  /// All must outlive this. `loss`: where the losses of a step's micro-steps are added up.
  MicroStep(Emitter& emitter, const ModelGraph& graph, const Tape& tape,
            const std::vector<ParameterPlace>& places, GradientPath& gradients, BufferId loss);

  /// Whole parameters that all micro-steps of a step read, where they do.
  WholeParameters& parameters() { return parameters_; }

  /// Emits the micro-step, with values of its own.
  void emit(GradientPath::Reduce reduce);

 private:
  const Plan& plan() const { return emitter_.plan(); }
  bool adds_loss() const { return plan().job.training.gradient_accumulation.steps > 1; }
  void read_batch();
  void follow(InstructionId first);
  void emit_launch(int launch, const TapeLaunch& entry, Phase phase);
  BufferId value_buffer(int value);
  View view(const TapeOperand& operand, int launch);
  bool adds_to(const TapeOperand& written, const TapeLaunch& entry);

  Emitter& emitter_;
  const ModelGraph& graph_;
  const Tape& tape_;
  const std::vector<ParameterPlace>& places_;
  GradientPath& gradients_;
  const BufferId loss_;
  WholeParameters parameters_;
  std::vector<int> unit_of_vertex_;
  std::vector<int> gradient_writes_;       // by unit
  std::vector<BufferId> values_;           // by tape value; -1: not needed yet
  std::vector<InstructionId> launch_ids_;  // by launch, forward then backward
  std::vector<InstructionId> ends_;        // last instructions of the micro-steps emitted
};

}  // namespace shardplan
