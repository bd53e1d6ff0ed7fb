#include "runtime/interpreter.h"

#include <variant>

#include "plans/error.h"
#include "runtime/unit_layout.h"

namespace shardplan {
namespace {

template <typename T>
std::span<T> elements(const Operand& operand) {
  return {reinterpret_cast<T*>(operand.data), static_cast<std::size_t>(operand.elems)};
}

}  // namespace

struct Interpreter::Execution {
  Interpreter& self;
  const Issue& issue;
  const Instruction& instruction;
  const Operands& operands;

  const Operand& read(std::size_t i = 0) const { return operands.reads[i]; }
  const Operand& written(std::size_t i = 0) const { return operands.writes[i]; }
  Communicator& communicator() const { return self.communicator_; }

  void operator()(const Alloc&) const {}  // every buffer has its place in the arena
  void operator()(const Free&) const {}
  void operator()(const HostWait&) const {}  // the issuing thread does it

  void operator()(const Compute& compute) const {
    self.device_.compute({compute.kernel, compute.attributes, operands.reads, operands.writes,
                          self.data_.scalars[issue.step]});
  }
  void operator()(const Copy& copy) const {
    for (std::size_t i = 0; i < operands.reads.size(); ++i)
      self.device_.copy(copy.part ? own_part(read(i), *copy.part) : read(i), written(i));
  }
  void operator()(const Fill& fill) const {
    for (const Operand& operand : operands.writes)
      self.device_.fill(operand, fill.value);
  }

  void operator()(const AllGather& gather) const {
    for (std::size_t i = 0; i < operands.reads.size(); ++i)
      communicator().all_gather(instruction.stream, gather.group, read(i).bytes(),
                                written(i).bytes());
  }
  void operator()(const ReduceScatter& reduce) const {
    for (std::size_t i = 0; i < operands.reads.size(); ++i)
      communicator().reduce_scatter(instruction.stream, reduce.group, read(i).dtype,
                                    read(i).bytes(), written(i).bytes(), reduce.pre_scale,
                                    reduce.post_scale);
  }
  void operator()(const AllReduce& reduce) const {
    communicator().all_reduce(instruction.stream, reduce.group, written().dtype, written().bytes(),
                              reduce.pre_scale, reduce.post_scale);
  }
  void operator()(const Broadcast& broadcast) const {
    communicator().broadcast(instruction.stream, broadcast.group, written().bytes(),
                             broadcast.root);
  }

  void operator()(const Read& source) const {
    switch (source.source) {
      case Source::Tokens:
      case Source::Targets:
        return self.data_.batches->read(source.source, issue.step, communicator().rank(),
                                        issue.micro_step, elements<std::int32_t>(written()));
      case Source::Weights:
        return self.data_.weight_source->read(unit(), pieces(instruction.writes[0]),
                                              elements<float>(written()));
      case Source::Input: break;
    }
    check(false, "plans with other inputs are refused before they run");
  }
  void operator()(const Write& write) const {
    switch (write.sink) {
      case Sink::Loss:
        if (reports()) self.data_.steps[issue.step].loss = elements<double>(read())[0];
        return;
      case Sink::GradientNorm:
        if (reports()) self.data_.steps[issue.step].grad_norm = elements<float>(read())[0];
        return;
      case Sink::Weights:
        if (self.data_.weight_sink != nullptr &&
            communicator().rank() < holders_of_one_copy(unit()))
          self.data_.weight_sink->write(unit(), pieces(instruction.reads[0]),
                                        elements<float>(read()));
        return;
    }
  }

  bool reports() const { return communicator().rank() == self.data_.reporting_rank; }
  const Unit& unit() const { return self.plan_.units[instruction.unit]; }
  std::vector<Piece> pieces(const View& view) const {
    return pieces_of(self.plan_, unit(), communicator().rank(), view);
  }
  /// The equal part of an operand that belongs to this rank's place in the group.
  Operand own_part(const Operand& whole, Group group) const {
    const std::int64_t elems = whole.elems / communicator().size(group);
    const std::int64_t at = communicator().place(group) * elems;
    return {whole.data + at * size_of(whole.dtype), elems, whole.dtype};
  }
};

Interpreter::Interpreter(const Plan& plan, std::span<std::byte> arena, Device& device,
                         Communicator& communicator, const JobData& data)
    : plan_(plan), arena_(arena), device_(device), communicator_(communicator), data_(data) {
  operands_.reserve(plan.instructions.size());
  for (const Instruction& instruction : plan.instructions) {
    Operands& operands = operands_.emplace_back();
    for (const View& view : instruction.reads)
      operands.reads.push_back(operand(view));
    for (const View& view : instruction.writes)
      operands.writes.push_back(operand(view));
  }
}

Operand Interpreter::operand(const View& view) const {
  const Buffer& buffer = plan_.buffers[view.buffer];
  const Operand operand{arena_.data() + buffer.offset + view.at * size_of(buffer.dtype), view.elems,
                        buffer.dtype};
  check(buffer.offset >= 0 && view.at >= 0 && view.elems >= 0 &&
            view.at + view.elems <= buffer.elems &&
            buffer.offset + buffer.bytes() <= static_cast<Bytes>(arena_.size()),
        "operands lie inside their buffers, and those inside the arena");
  return operand;
}

void Interpreter::run(const Issue& issue) {
  const Instruction& instruction = plan_.instructions[issue.id];
  std::visit(Execution{*this, issue, instruction, operands_[issue.id]}, instruction.operation);
}

}  // namespace shardplan
