#include "runtime/interpreter.h"

#include <variant>

#include "plans/error.h"
#include "runtime/unit_layout.h"

namespace shardplan {
namespace {

template <typename T>
std::span<T> elements(std::span<std::byte> bytes) {
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}
template <typename T>
std::span<const T> elements(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

/// `bytes` of an operand from byte `at` on.
View part_of(const View& view, Dtype dtype, Bytes at, std::size_t bytes) {
  const Bytes size = size_of(dtype);
  return {view.buffer, view.at + at / size, static_cast<Bytes>(bytes) / size};
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
    self.device_.compute(stream(), {compute.kernel, compute.attributes, operands.reads,
                                    operands.writes, self.data_.scalars[issue.step]});
  }
  void operator()(const Copy& copy) const {
    for (std::size_t i = 0; i < operands.reads.size(); ++i)
      self.device_.copy(stream(), copy.part ? own_part(read(i), *copy.part) : read(i), written(i));
  }
  void operator()(const Fill& fill) const {
    for (const Operand& operand : operands.writes)
      self.device_.fill(stream(), operand, fill.value);
  }

  void operator()(const AllGather& gather) const {
    for (std::size_t i = 0; i < operands.reads.size(); ++i)
      communicator().all_gather(stream(), gather.group, read(i).bytes(), written(i).bytes());
  }
  void operator()(const ReduceScatter& reduce) const {
    for (std::size_t i = 0; i < operands.reads.size(); ++i)
      communicator().reduce_scatter(stream(), reduce.group, read(i).dtype, read(i).bytes(),
                                    written(i).bytes(), reduce.pre_scale, reduce.post_scale);
  }
  void operator()(const AllReduce& reduce) const {
    communicator().all_reduce(stream(), reduce.group, written().dtype, written().bytes(),
                              reduce.pre_scale, reduce.post_scale);
  }
  void operator()(const Broadcast& broadcast) const {
    communicator().broadcast(stream(), broadcast.group, written().bytes(), broadcast.root);
  }

  void operator()(const Read&) const { self.device_.copy_in(stream(), issue, self, written()); }
  void operator()(const Write& write) const {
    if (is_kept(write.sink)) self.device_.copy_out(stream(), issue, self, read());
  }

  Stream stream() const { return instruction.stream; }
  /// Losses and norms are alike on all ranks, weights on those that hold the same.
  bool is_kept(Sink sink) const {
    const std::int64_t rank = communicator().rank();
    if (sink != Sink::Weights) return rank == self.data_.reporting_rank;
    return self.data_.weight_sink != nullptr &&
           rank < holders_of_one_copy(self.unit_of(instruction));
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

void Interpreter::provide(const Issue& issue, Bytes at, std::span<std::byte> part) {
  const Instruction& instruction = plan_.instructions[issue.id];
  const View& view = instruction.writes[0];
  const Source source = std::get<Read>(instruction.operation).source;
  switch (source) {
    case Source::Tokens:
    case Source::Targets:
      check(at == 0, "a batch is read in one part");
      return data_.batches->read(source, issue.step, communicator_.rank(), issue.micro_step,
                                 elements<std::int32_t>(part));
    case Source::Weights: {
      const Unit& unit = unit_of(instruction);
      const View piece = part_of(view, Dtype::Float32, at, part.size());
      return data_.weight_source->read(unit, pieces_of(plan_, unit, communicator_.rank(), piece),
                                       elements<float>(part));
    }
    case Source::Input: break;
  }
  check(false, "plans with other inputs are refused before they run");
}

void Interpreter::accept(const Issue& issue, Bytes at, std::span<const std::byte> part) {
  const Instruction& instruction = plan_.instructions[issue.id];
  switch (std::get<Write>(instruction.operation).sink) {
    case Sink::Loss: data_.steps[issue.step].loss = elements<double>(part)[0]; return;
    case Sink::GradientNorm: data_.steps[issue.step].grad_norm = elements<float>(part)[0]; return;
    case Sink::Weights: {
      const Unit& unit = unit_of(instruction);
      const View piece = part_of(instruction.reads[0], Dtype::Float32, at, part.size());
      data_.weight_sink->write(unit, pieces_of(plan_, unit, communicator_.rank(), piece),
                               elements<float>(part));
      return;
    }
  }
}

void Interpreter::run(const Issue& issue) {
  const Instruction& instruction = plan_.instructions[issue.id];
  std::visit(Execution{*this, issue, instruction, operands_[issue.id]}, instruction.operation);
}

}  // namespace shardplan
