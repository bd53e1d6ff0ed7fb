#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "planner/torch/engine.h"

namespace shardplan::torch {

/// A parameter of which every rank holds a part of its elements, padded by itself.
struct PartitionedParameter {
  enum class Status { NotAvailable, InFlight, Available } status = Status::NotAvailable;
  std::string name;
  Tensor tensor;          // whole; in the memory that holds it while it is available
  View shard;             // this rank's part
  bool persists = false;  // small enough to stay whole
  std::set<int> users;    // modules that are using it
};

/// A module whose own parameters are gathered before it runs.
struct PartitionedModule {
  std::vector<int> parameters;  // in the model's order
  int unit = -1;
};

/// DeepSpeed's PartitionedParameterCoordinator (runtime/zero/partitioned_param_coordinator.py):
/// gathers what a module needs, and ahead of that what the modules after it will need, in the order
/// that the first forward and backward showed; releases what is not used again soon.
class ParameterCoordinator {
 public:
  ParameterCoordinator(const Process& process, std::vector<PartitionedModule> modules,
                       std::vector<PartitionedParameter> parameters);

  const PartitionedParameter& parameter(int index) const { return parameters_[index]; }

  /// Before the root module's forward (reset_step).
  void begin_forward();
  void fetch(int module, Phase phase);
  void release(int module, Phase phase);
  /// What modules whose backward nothing waited for still use (release_backward_leftovers).
  void end_backward();
  /// Before the optimizer's step: nothing stays whole (release_and_reset_all).
  void release_all();
  /// After it: what persists is gathered, each parameter by itself.
  void gather_persistent();

 private:
  /// An all-gather of several parameters: their shards in one buffer, whole parameters copied out.
  /// The buffer stays until the last of them has been waited for.
  struct Gather {
    std::vector<int> parameters;
    StoragePtr buffer;  // none: of one parameter, in its own memory
    bool complete = false;
  };
  using Set = std::set<int>;

  const DeepSpeedOptions& options() const { return *process_.job().strategy.deepspeed; }
  /// Whole in its shard, which the device holds.
  bool is_resident(const PartitionedParameter& parameter) const {
    return parameter.tensor.storage->buffer() == parameter.shard.buffer;
  }
  bool knows_order() const { return trace_ == Trace::Complete; }
  void gather(const Set& wanted);
  void gather_in_place(int index, Stream stream);
  View on_device(const View& shard, StoragePtr& copy, Stream stream);
  void gather_coalesced(const std::shared_ptr<Gather>& gather);
  void wait(int index);
  void limit_fetches();
  void prefetch(const std::vector<int>& fetched);
  Set reused_later() const;
  const Set& released_after(int module);
  void release_parameter(int index);
  Tensor& tensor(int index) { return parameters_[index].tensor; }

  const Process& process_;
  Host& host_;
  const std::int64_t world_;
  const Stream stream_;  // that gathers are issued on
  const std::vector<PartitionedModule> modules_;
  std::vector<PartitionedParameter> parameters_;

  enum class Trace { Invalid, Record, Complete } trace_ = Trace::Invalid;
  int step_ = 0;  // modules fetched for so far
  std::vector<int> module_order_;
  std::deque<std::pair<int, int>> queue_;        // parameter, step it is used at; not yet fetched
  std::map<int, int> fetched_until_;             // parameter -> latest step it has been fetched for
  std::map<std::pair<int, int>, Set> released_;  // by module and step: decided once
  std::int64_t available_elems_ = 0;             // as DeepSpeed counts them
  std::map<int, std::shared_ptr<Gather>> in_flight_;  // by parameter
  std::deque<InstructionId> fetches_;                 // that the host may have to wait for
  std::vector<int> active_backward_;                  // modules
  std::map<int, Set> recomputed_;  // frozen parameters that a module's recomputation used
};

}  // namespace shardplan::torch
