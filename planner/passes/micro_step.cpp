#include "planner/passes/micro_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace shardplan {

MicroStep::MicroStep(Emitter& emitter, const ModelGraph& graph, const Tape& tape,
                     const std::vector<ParameterPlace>& places, GradientPath& gradients,
                     BufferId loss)
    : emitter_(emitter),
      graph_(graph),
      tape_(tape),
      places_(places),
      gradients_(gradients),
      loss_(loss),
      parameters_(emitter, tape, places),
      gradient_writes_(emitter.plan().units.size(), 0) {
  std::vector<std::string> modules;  // of FSDP units; DDP's buckets are no modules
  for (const Unit& unit : plan().units)
    modules.push_back(unit.name == "root" ? "" : unit.name);
  for (std::size_t vertex = 0; vertex < boost::num_vertices(graph.dag); ++vertex)
    unit_of_vertex_.push_back(deepest_containing(modules, graph.dag[vertex].module));
  for (const auto* launches : {&tape.forward, &tape.backward})  // a chunk of the loss is both
    for (const TapeLaunch& entry : *launches)
      for (const TapeOperand& operand : entry.writes)
        if (operand.kind == TapeOperand::Kind::ParameterGradient)
          ++gradient_writes_[places[operand.index].unit];
}

void MicroStep::emit(GradientPath::Reduce reduce) {
  values_.assign(tape_.values.size(), -1);
  values_[tape_.loss] = loss_;
  const int forward = static_cast<int>(tape_.forward.size());
  const int launches = forward + static_cast<int>(tape_.backward.size());
  launch_ids_.assign(launches, -1);
  gradients_.begin_micro_step(gradient_writes_, reduce);
  parameters_.begin_micro_step();
  const auto first = static_cast<InstructionId>(plan().instructions.size());
  read_batch();
  for (int launch = 0; launch < launches; ++launch) {
    parameters_.before_launch(launch, launch_ids_);
    if (launch < forward)
      emit_launch(launch, tape_.forward[launch], Phase::Forward);
    else
      emit_launch(launch, tape_.backward[launch - forward], Phase::Backward);
    parameters_.after_launch(launch);
  }
  if (adds_loss()) follow(first);
}

/// One micro-step's gathered parameters and gradients at a time: what begins this one waits for the
/// end of the one before, be it the same segment's.
void MicroStep::follow(InstructionId first) {
  ends_.push_back(launch_ids_.back());
  if (const InstructionId reduction = gradients_.last_finished(); reduction >= 0)
    ends_.push_back(reduction);
  std::array<bool, kStreams> begun{};
  const auto last = static_cast<InstructionId>(plan().instructions.size());
  for (InstructionId id = first; id < last; ++id) {
    const Stream stream = plan().instructions[id].stream;
    if (stream == Stream::HostToDevice || begun[static_cast<std::size_t>(stream)]) continue;
    begun[static_cast<std::size_t>(stream)] = true;
    for (const InstructionId end : ends_)
      if (plan().instructions[end].stream != stream) emitter_.throttle(id, end);
  }
}

void MicroStep::read_batch() {
  for (const TapeInput& input : tape_.inputs) {
    const std::string& name = graph_.dag[input.vertex].module;
    const Source source = name == "tokens"    ? Source::Tokens
                          : name == "targets" ? Source::Targets
                                              : Source::Input;
    emitter_.emit("read_" + name, {Stream::HostToDevice, Phase::Forward}, Read{source}, {},
                  {emitter_.whole(value_buffer(input.value))});
  }
}

BufferId MicroStep::value_buffer(int value) {
  const TapeValue& tensor = tape_.values[value];
  if (values_[value] < 0)
    values_[value] = emitter_.buffer(tensor.name, tensor.category, tensor.elems, tensor.dtype);
  return values_[value];
}

void MicroStep::emit_launch(int launch, const TapeLaunch& entry, Phase phase) {
  std::vector<View> reads;
  std::vector<View> writes;
  for (const TapeOperand& operand : entry.reads)
    reads.push_back(view(operand, launch));
  for (const TapeOperand& operand : entry.writes) {
    writes.push_back(view(operand, launch));
    if (adds_to(operand, entry)) reads.push_back(writes.back());
  }
  const InstructionId id =
      emitter_.emit(fmt::format("{}.{}{}", graph_.dag[entry.vertex].module, to_string(entry.kernel),
                                entry.recomputation ? ".recompute" : ""),
                    {Stream::Compute, phase, unit_of_vertex_[entry.vertex]},
                    Compute{entry.kernel, entry.attributes}, std::move(reads), std::move(writes));
  launch_ids_[launch] = id;
  for (const TapeOperand& operand : entry.writes)
    if (operand.kind == TapeOperand::Kind::ParameterGradient)
      gradients_.wrote(places_[operand.index].unit, id);
}

/// True when the launch adds to what earlier micro-steps left. A read of its own says the same
/// within a micro-step.
bool MicroStep::adds_to(const TapeOperand& written, const TapeLaunch& entry) {
  const bool sum = written.kind == TapeOperand::Kind::ParameterGradient
                       ? gradients_.adds_up()
                       : written.index == tape_.loss && adds_loss();
  return sum && std::ranges::find(entry.reads, written) == entry.reads.end();
}

View MicroStep::view(const TapeOperand& operand, int launch) {
  switch (operand.kind) {
    case TapeOperand::Kind::Value: break;
    case TapeOperand::Kind::Parameter: return parameters_.view(places_[operand.index], launch);
    case TapeOperand::Kind::ParameterGradient: return gradients_.gradient_of(operand.index);
  }
  const BufferId buffer = value_buffer(operand.index);
  if (operand.elems == TapeOperand::kAll) return emitter_.whole(buffer);
  return {buffer, operand.at, operand.elems};
}

}  // namespace shardplan
