#include "planner/passes/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>

#include "planner/passes/gathers.h"
#include "plans/error.h"

namespace shardplan {
namespace {

/// Makes names unique: the second "a" becomes "a#2".
class Names {
 public:
  std::string unique(std::string name) {
    const int count = ++seen_[name];
    return count == 1 ? std::move(name) : fmt::format("{}#{}", name, count);
  }

 private:
  std::unordered_map<std::string, int> seen_;
};

class Scheduler {
 public:
  Scheduler(Plan& plan, const ModelGraph& graph, const Tape& tape,
            const std::vector<ParameterPlace>& places)
      : plan_(plan),
        graph_(graph),
        tape_(tape),
        places_(places),
        values_(tape.values.size(), -1),
        launch_ids_(tape.forward.size() + tape.backward.size(), -1) {}

  void run() {
    make_buffers();
    segment("init", [&] { init(); });
    segment("micro_sync", [&] {
      read_batch();
      forward_and_backward();
    });
    segment("optimizer", [&] { optimizer_step(); });
    segment("save", [&] { save(); });
    plan_.program = {{.segment = 0},
                     {.count = ProgramItem::kOncePerStep, .body = {{.segment = 1}, {.segment = 2}}},
                     {.segment = 3}};
  }

 private:
  bool sharded() const { return plan_.mesh.shard > 1; }
  std::int64_t world() const { return plan_.world_size(); }

  BufferId buffer(std::string name, Category category, std::int64_t elems,
                  Dtype dtype = Dtype::Float32) {
    plan_.buffers.push_back({.name = buffer_names_.unique(std::move(name)),
                             .category = category,
                             .dtype = dtype,
                             .elems = elems});
    return static_cast<BufferId>(plan_.buffers.size()) - 1;
  }
  BufferId resident(std::string name, Category category, std::int64_t elems) {
    const BufferId id = buffer(std::move(name), category, elems);
    plan_.buffers[id].resident = true;
    return id;
  }
  View whole(BufferId id) const { return {id, 0, plan_.buffers[id].elems}; }

  InstructionId emit(std::string name, Stream stream, Phase phase, int unit, Operation operation,
                     std::vector<View> reads, std::vector<View> writes) {
    plan_.instructions.push_back({.name = instruction_names_.unique(std::move(name)),
                                  .stream = stream,
                                  .phase = phase,
                                  .unit = unit,
                                  .reads = std::move(reads),
                                  .writes = std::move(writes),
                                  .after = {},
                                  .operation = std::move(operation)});
    return static_cast<InstructionId>(plan_.instructions.size()) - 1;
  }

  template <typename Body>
  void segment(std::string name, Body body) {
    const auto first = static_cast<InstructionId>(plan_.instructions.size());
    body();
    plan_.segments.push_back(
        {std::move(name), first, static_cast<InstructionId>(plan_.instructions.size())});
  }

  std::vector<std::string> state_names() const {
    const OptimizerJob& optimizer = plan_.job.training.optimizer;
    if (optimizer.name != OptimizerJob::Name::Sgd) return {"exp_avg", "exp_avg_sq"};
    if (optimizer.momentum != 0) return {"momentum_buffer"};
    return {};
  }

  void make_buffers() {
    for (Unit& unit : plan_.units) {
      unit.parameter = resident(unit.name + ".parameters", Category::Parameters, unit.shard_elems);
      for (const std::string& state : state_names())
        states_[unit.parameter].push_back(
            resident(unit.name + "." + state, Category::OptimizerState, unit.shard_elems));
      gradients_.push_back(buffer(unit.name + ".gradients", Category::Gradients, unit.shard_elems));
      unsharded_gradients_.push_back(sharded()
                                         ? buffer(unit.name + ".unsharded_gradients",
                                                  Category::UnshardedGradients, unit.padded_elems)
                                         : gradients_.back());
    }
    std::vector<std::string> modules;  // of FSDP units; DDP's buckets are no modules
    for (const Unit& unit : plan_.units)
      modules.push_back(unit.name == "root" ? "" : unit.name);
    for (std::size_t vertex = 0; vertex < boost::num_vertices(graph_.dag); ++vertex)
      unit_of_vertex_.push_back(deepest_containing(modules, graph_.dag[vertex].module));
  }

  void init() {
    for (std::size_t u = 0; u < plan_.units.size(); ++u) {
      const Unit& unit = plan_.units[u];
      const int index = static_cast<int>(u);
      emit("read_weights." + unit.name, Stream::Compute, Phase::Init, index, Read{Source::Weights},
           {}, {whole(unit.parameter)});
      std::vector<View> states;
      for (const BufferId state : states_[unit.parameter])
        states.push_back(whole(state));
      if (!states.empty())
        emit("zero_state." + unit.name, Stream::Compute, Phase::Init, index, Fill{0}, {}, states);
    }
  }

  void read_batch() {
    emit("read_tokens", Stream::HostToDevice, Phase::Forward, -1, Read{Source::Tokens}, {},
         {whole(value_buffer(tape_.tokens))});
    emit("read_targets", Stream::HostToDevice, Phase::Forward, -1, Read{Source::Targets}, {},
         {whole(value_buffer(tape_.targets))});
  }

  BufferId value_buffer(int value) {
    const TapeValue& tensor = tape_.values[value];
    if (values_[value] < 0)
      values_[value] = buffer(tensor.name, tensor.category, tensor.elems, tensor.dtype);
    return values_[value];
  }

  void forward_and_backward() {
    if (sharded()) gathers_ = plan_gathers(plan_, tape_, places_);
    gathered_.resize(gathers_.size(), -1);
    count_gradient_writes();
    std::size_t next_gather = 0;
    const int forward = static_cast<int>(tape_.forward.size());
    for (int launch = 0; launch < static_cast<int>(launch_ids_.size()); ++launch) {
      while (next_gather < gathers_.size() && gathers_[next_gather].issue <= launch)
        emit_gather(next_gather++);
      if (launch < forward)
        emit_launch(launch, tape_.forward[launch], Phase::Forward);
      else
        emit_launch(launch, tape_.backward[launch - forward], Phase::Backward);
      if (launch == forward - 1) report_loss();
    }
  }

  void emit_gather(std::size_t index) {
    const Gather& gather = gathers_[index];
    const Unit& unit = plan_.units[gather.unit];
    const std::string suffix = fmt::format("{}.{}", unit.name, to_string(gather.phase));
    gathered_[index] =
        buffer(suffix + ".unsharded_parameters", Category::UnshardedParameters, unit.padded_elems);
    const InstructionId id =
        emit("all_gather." + suffix, Stream::AllGather, gather.phase, gather.unit,
             AllGather{Group::Shard}, {whole(unit.parameter)}, {whole(gathered_[index])});
    if (gather.throttle >= 0) throttle(id, launch_ids_[gather.throttle]);
  }

  void throttle(InstructionId id, InstructionId wait_for) {
    plan_.instructions[id].after.push_back({wait_for, Why::Throttle});
  }

  void emit_launch(int launch, const TapeLaunch& entry, Phase phase) {
    std::vector<View> reads;
    std::vector<View> writes;
    for (const TapeOperand& operand : entry.reads)
      reads.push_back(view(operand, launch));
    for (const TapeOperand& operand : entry.writes)
      writes.push_back(view(operand, launch));
    const InstructionId id =
        emit(fmt::format("{}.{}", graph_.dag[entry.vertex].module, to_string(entry.kernel)),
             Stream::Compute, phase, unit_of_vertex_[entry.vertex],
             Compute{entry.kernel, entry.attributes}, std::move(reads), std::move(writes));
    launch_ids_[launch] = id;
    for (const TapeOperand& operand : entry.writes)
      if (operand.kind == TapeOperand::Kind::ParameterGradient)
        count_gradient(places_[operand.index].unit, id);
  }

  View view(const TapeOperand& operand, int launch) {
    if (operand.kind == TapeOperand::Kind::Value) return whole(value_buffer(operand.index));
    const ParameterPlace& place = places_[operand.index];
    const BufferId home = operand.kind == TapeOperand::Kind::ParameterGradient
                              ? unsharded_gradients_[place.unit]
                              : parameter_buffer(place.unit, launch);
    return {home, place.at, place.elems};
  }

  /// Where the whole parameters of a unit are while `launch` runs.
  BufferId parameter_buffer(int unit, int launch) const {
    if (!sharded()) return plan_.units[unit].parameter;
    for (std::size_t g = 0; g < gathers_.size(); ++g)
      if (gathers_[g].unit == unit && gathers_[g].first_use <= launch &&
          launch <= gathers_[g].last_use)
        return gathered_[g];
    check(false, "a launch reads parameters that are gathered for it");
    return -1;
  }

  void count_gradient_writes() {
    gradient_writes_.assign(plan_.units.size(), 0);
    for (const TapeLaunch& entry : tape_.backward)
      for (const TapeOperand& operand : entry.writes)
        if (operand.kind == TapeOperand::Kind::ParameterGradient)
          ++gradient_writes_[places_[operand.index].unit];
    gradient_writes_left_ = gradient_writes_;
  }

  /// Called after `writer` wrote one gradient of the unit; the last one starts the reduction.
  void count_gradient(int unit, InstructionId writer) {
    const bool first = gradient_writes_left_[unit] == gradient_writes_[unit];
    // Two units' whole gradients at a time: one being written, one being reduced.
    if (first && sharded() && reductions_.size() >= 2)
      throttle(writer, reductions_[reductions_.size() - 2]);
    if (--gradient_writes_left_[unit] == 0) reduce_gradients(unit);
  }

  void reduce_gradients(int unit) {
    const Unit& target = plan_.units[unit];
    const BufferId gradient = unsharded_gradients_[unit];
    std::vector<View> gaps;
    for (const auto& [at, elems] : padding_of(target))
      gaps.push_back({gradient, at, elems});
    // The optimizer and the norm run over whole shards: padding must hold zeros.
    if (!gaps.empty())
      emit("zero_padding." + target.name, Stream::Compute, Phase::Backward, unit, Fill{0}, {},
           std::move(gaps));
    const double mean = 1.0 / static_cast<double>(world());
    if (sharded())
      reductions_.push_back(emit("reduce_scatter." + target.name, Stream::ReduceScatter,
                                 Phase::Backward, unit,
                                 ReduceScatter{Group::Shard, 1, mean, {unit}}, {whole(gradient)},
                                 {whole(gradients_[unit])}));
    else if (world() > 1)
      emit("all_reduce." + target.name, Stream::AllReduce, Phase::Backward, unit,
           AllReduce{Group::World, 1, mean, {unit}}, {whole(gradient)}, {whole(gradient)});
  }

  void report_loss() {
    const View loss = whole(value_buffer(tape_.loss));
    const double mean = 1.0 / static_cast<double>(world());
    if (world() > 1)
      emit("all_reduce.loss", Stream::AllReduce, Phase::Forward, -1,
           AllReduce{Group::World, 1, mean, {}}, {loss}, {loss});
    emit("write_loss", Stream::DeviceToHost, Phase::Forward, -1, Write{Sink::Loss}, {loss}, {});
  }

  void optimizer_step() {
    const BufferId sum = buffer("gradient_sum_squares", Category::Temporaries, 1, Dtype::Float64);
    const BufferId norm = buffer("gradient_norm", Category::Temporaries, 1);
    const BufferId coefficient = buffer("clip_coefficient", Category::Temporaries, 1);
    std::vector<View> gradients;
    for (const BufferId gradient : gradients_)
      gradients.push_back(whole(gradient));
    emit("sum_squares", Stream::Compute, Phase::Optimizer, -1, Compute{Kernel::SumSquares, {}},
         std::move(gradients), {whole(sum)});
    if (sharded())
      emit("all_reduce.gradient_norm", Stream::AllReduce, Phase::Optimizer, -1,
           AllReduce{Group::Shard, 1, 1, {}}, {whole(sum)}, {whole(sum)});
    const double max_norm = plan_.job.training.clip_grad_norm.value_or(0);
    emit("gradient_norm", Stream::Compute, Phase::Optimizer, -1,
         Compute{Kernel::GradientNorm, {{Attribute::MaxNorm, max_norm}}}, {whole(sum)},
         {whole(norm), whole(coefficient)});
    emit("write_gradient_norm", Stream::DeviceToHost, Phase::Optimizer, -1,
         Write{Sink::GradientNorm}, {whole(norm)}, {});
    const Compute update = optimizer_kernel();
    for (std::size_t u = 0; u < plan_.units.size(); ++u) {
      const Unit& unit = plan_.units[u];
      std::vector<View> updated{whole(unit.parameter)};
      for (const BufferId state : states_[unit.parameter])
        updated.push_back(whole(state));
      std::vector<View> reads{whole(gradients_[u]), whole(coefficient)};
      reads.insert(reads.end(), updated.begin(), updated.end());
      emit(fmt::format("{}.{}", unit.name, to_string(update.kernel)), Stream::Compute,
           Phase::Optimizer, static_cast<int>(u), update, std::move(reads), std::move(updated));
    }
  }

  Compute optimizer_kernel() {
    const OptimizerJob& optimizer = plan_.job.training.optimizer;
    plan_.scalars = {"learning_rate"};
    if (optimizer.name == OptimizerJob::Name::Sgd)
      return {Kernel::Sgd,
              {{Attribute::Momentum, optimizer.momentum},
               {Attribute::WeightDecay, optimizer.weight_decay}}};
    plan_.scalars.insert(plan_.scalars.end(), {"bias_correction1", "bias_correction2"});
    const bool decoupled = optimizer.name == OptimizerJob::Name::AdamW;
    return {Kernel::Adam,
            {{Attribute::Beta1, optimizer.beta1},
             {Attribute::Beta2, optimizer.beta2},
             {Attribute::Epsilon, optimizer.eps},
             {Attribute::WeightDecay, optimizer.weight_decay},
             {Attribute::DecoupledDecay, decoupled ? 1 : 0}}};
  }

  void save() {
    for (std::size_t u = 0; u < plan_.units.size(); ++u)
      emit("write_weights." + plan_.units[u].name, Stream::DeviceToHost, Phase::Save,
           static_cast<int>(u), Write{Sink::Weights}, {whole(plan_.units[u].parameter)}, {});
  }

  Plan& plan_;
  const ModelGraph& graph_;
  const Tape& tape_;
  const std::vector<ParameterPlace>& places_;
  Names buffer_names_;
  Names instruction_names_;
  std::vector<BufferId> values_;                                // by tape value; -1: not needed yet
  std::vector<BufferId> gradients_;                             // by unit: what the optimizer reads
  std::vector<BufferId> unsharded_gradients_;                   // by unit: what backward writes
  std::unordered_map<BufferId, std::vector<BufferId>> states_;  // by parameter buffer
  std::vector<int> unit_of_vertex_;
  std::vector<Gather> gathers_;
  std::vector<BufferId> gathered_;         // by gather
  std::vector<InstructionId> launch_ids_;  // by launch, forward then backward
  std::vector<int> gradient_writes_;       // by unit
  std::vector<int> gradient_writes_left_;  // by unit
  std::vector<InstructionId> reductions_;  // reduce-scatters issued so far
};

}  // namespace

void schedule(Plan& plan, const ModelGraph& graph, const Tape& tape,
              const std::vector<ParameterPlace>& places) {
  Scheduler(plan, graph, tape, places).run();
}

}  // namespace shardplan
