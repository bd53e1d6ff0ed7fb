#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "planner/torch/engine.h"
#include "planner/torch/flat_partitions.h"

namespace shardplan::torch {

/// What the optimizer classes of DeepSpeed 0.19.8 have in common (deepspeed/runtime): gradients
/// that they take as autograd makes them, and a step around a wrapped optimizer that updates
/// float32 copies of the parameters.
class DeepSpeedEngine : public Engine {
 public:
  explicit DeepSpeedEngine(const Process& process);

  Tensor parameter(int index) override { return params_[index].tensor; }
  void begin_micro_step(Sync sync) override { sync_ = sync; }
  void zero_grad() override { drop_gradients(); }

 protected:
  struct Param {
    std::string name;
    Tensor tensor;
    Tensor gradient;

    std::int64_t elems() const { return tensor.elems; }
  };

  /// Once the gradient of a leaf is there.
  virtual void on_gradient(Param&) {}

  const DeepSpeedOptions& options() const { return options_; }
  /// The model's parameters, which are in no memory yet.
  void make_params();
  /// Memory of its own for a parameter that stays whole.
  void make_whole(Param& param);
  void make_frozen_whole();
  /// Flat parameters and a float32 copy of this rank's part.
  struct Flat {
    StoragePtr parameters;
    StoragePtr master;
  };
  Flat make_flat(const FlatPartitions& layout);
  /// Where offload_optimizer keeps what the optimizer works with.
  Space optimizer_space() const;
  bool offloads() const { return optimizer_space() != Space::Device; }
  StoragePtr resident(const std::string& name, Category category, std::int64_t elems, Dtype dtype,
                      Space space = Space::Device) {
    return host_.resident(
        {.name = name, .category = category, .elems = elems, .dtype = dtype, .space = space});
  }
  /// The parameters as the updated part is, on all ranks.
  void update_flat(const Flat& flat);
  /// DeepSpeedEngine._broadcast_model: parameters as rank 0 has them, one by one.
  void broadcast_model(const std::vector<View>& parameters);
  void drop_gradients();
  /// What the optimizer of offloaded state needs to know of gradients that are on the host.
  void reduce_host_norm();
  void add(const std::string& name, const View& sum, const View& term);

  StoragePtr allocate(const std::string& name, Category category, std::int64_t elems, Dtype dtype,
                      Stream stream = Stream::Compute) {
    return host_.allocate(
        {.name = name, .category = category, .elems = elems, .dtype = dtype, .stream = stream});
  }
  View whole(const StoragePtr& storage) const { return host_.whole(storage); }
  void launch(const std::string& name, std::vector<View> reads, std::vector<View> writes,
              Stream stream = Stream::Compute) {
    host_.issue(name, stream, Compute{Kernel::Elementwise, {}}, std::move(reads),
                std::move(writes));
  }
  /// A float32 gradient is scaled where the job clips.
  void clip(const View& gradient);
  /// In place, over all ranks. `final`: units whose gradients are reduced with it.
  void all_reduce(const std::string& name, const View& view, std::vector<int> final = {},
                  Stream stream = Stream::Compute);
  /// The same of `view` in the dtype of communication, and back.
  void all_reduce_in_comm_dtype(const std::string& name, const View& view, std::vector<int> final,
                                Stream stream);
  /// Of all gradients, over all ranks, each from a copy in float64 (get_norm_dtype). `largest`: the
  /// most elements of one, by rank class; `dtype`: of the sum of all.
  void compute_norm(const std::vector<View>& gradients, std::vector<std::int64_t> largest,
                    Dtype dtype);

  const Process& process_;
  Host& host_;
  const DeepSpeedOptions options_;
  const std::int64_t world_;
  const Dtype dtype_;       // of the parameters that operators read
  const Dtype comm_dtype_;  // of gradients in collectives
  Sync sync_ = Sync::Yes;
  std::vector<Param> params_;  // by parameter of the model
  std::vector<int> trained_;   // of them
};

/// Dtype that gradients are accumulated in (data_types.grad_accum_dtype).
Dtype grad_accum_dtype(const Job& job);

/// DeepSpeedEngine without ZeRO: around a plain optimizer, or FP16_UnfusedOptimizer.
std::unique_ptr<Engine> make_zero0(const Process& process);
/// BF16_Optimizer: stage 1 with parameters in bfloat16 and gradients accumulated in float32.
std::unique_ptr<Engine> make_bf16_optimizer(const Process& process);
/// DeepSpeedZeroOptimizer: stages 1 and 2.
std::unique_ptr<Engine> make_zero12(const Process& process);
/// DeepSpeedZeroOptimizer_Stage3.
std::unique_ptr<Engine> make_zero3(const Process& process);

}  // namespace shardplan::torch
