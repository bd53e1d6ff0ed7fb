#include "plans/plan_structure.h"

#include <fmt/format.h>

#include <algorithm>

#include "plans/kernel_operands.h"

namespace shardplan {
namespace {

template <typename Container>
bool in_range(std::int64_t index, const Container& container) {
  return index >= 0 && index < static_cast<std::int64_t>(container.size());
}

class StructureCheck {
 public:
  explicit StructureCheck(const Plan& plan) : plan_(plan) {}

  std::vector<Fault> run() {
    const Mesh& mesh = plan_.mesh;
    if (mesh.shard < 1 || mesh.replicate < 1) fault("", "", "the mesh is empty");
    if (mesh.span < 1 || mesh.shard % std::max<std::int64_t>(mesh.span, 1) != 0)
      fault("", "", "the spans do not divide the shard group");
    for (const Buffer& buffer : plan_.buffers)
      check_buffer(buffer);
    for (const Unit& unit : plan_.units)
      check_unit(unit);
    check_classes();
    for (const Segment& segment : plan_.segments)
      if (segment.first < 0 || segment.first > segment.last ||
          segment.last > static_cast<InstructionId>(plan_.instructions.size()))
        fault("", "", fmt::format("segment {} names instructions that do not exist", segment.name));
    check_program(plan_.program);
    for (const Instruction& instruction : plan_.instructions) {
      const std::size_t before = faults_.size();
      check_references(instruction);
      if (faults_.size() == before)  // sizes mean nothing while a buffer is missing
        std::visit([&](const auto& operation) { check_operands(instruction, operation); },
                   instruction.operation);
    }
    return std::move(faults_);
  }

 private:
  void fault(const std::string& instruction, const std::string& buffer, std::string why) {
    faults_.push_back({instruction, buffer, std::move(why)});
  }

  void check_buffer(const Buffer& buffer) {
    if (buffer.elems < 0) fault("", buffer.name, "has a negative size");
    if (buffer.space != Space::Device) return;
    if (buffer.offset < 0 || buffer.offset > plan_.arena.bytes - buffer.bytes())
      fault("", buffer.name,
            fmt::format("bytes {} to {} are not inside the arena of {} bytes", buffer.offset,
                        buffer.offset + buffer.bytes(), plan_.arena.bytes));
    if (buffer.offset % size_of(buffer.dtype) != 0)
      fault("", buffer.name, fmt::format("offset {} is not aligned", buffer.offset));
  }

  void check_unit(const Unit& unit) {
    if (!in_range(unit.parameter, plan_.buffers))
      return fault("", "", fmt::format("unit {} names a buffer that does not exist", unit.name));
    const Buffer& buffer = plan_.buffers[unit.parameter];
    if (unit.shard_elems * plan_.mesh.shard != unit.padded_elems || unit.elems > unit.padded_elems)
      fault("", buffer.name, "the shards of its unit do not add up to the padded flat parameter");
    if (buffer.elems != unit.shard_elems || !buffer.resident)
      fault("", buffer.name, "is not the resident shard of its unit");
    check_slices(unit);
    std::int64_t end = 0;
    for (const UnitParameter& parameter : unit.parameters) {
      if (parameter.at < end || parameter.elems < 0)
        fault("", buffer.name, fmt::format("parameter {} overlaps another", parameter.name));
      end = parameter.at + parameter.elems;
    }
    if (end > unit.padded_elems) fault("", buffer.name, "its parameters do not fit its size");
  }

  void check_slices(const Unit& unit) {
    const std::string& name = plan_.buffers[unit.parameter].name;
    std::int64_t end = 0;
    bool trainable = true;
    for (const UnitSlice& slice : unit.slices) {
      if (slice.at != end || slice.elems < 0 || slice.elems % unit.shards() != 0 ||
          slice.valid < 0 || slice.valid > slice.elems)
        fault("", name,
              fmt::format("the slice at {} does not follow the one before, or does not "
                          "divide into {} shards",
                          slice.at, unit.shards()));
      if (slice.trainable && !trainable)
        fault("", name, "a slice that is trained follows one that is not");
      trainable = slice.trainable;
      end = slice.at + slice.elems;
    }
    if (end != unit.padded_elems) fault("", name, "the slices do not make up its unit");
  }

  void check_classes() {
    std::int64_t next = 0;
    for (const RankClass& ranks : plan_.classes) {
      if (ranks.first != next || ranks.last < ranks.first ||
          ranks.valid.size() != plan_.units.size())
        fault("", "",
              fmt::format("rank class {}-{} does not follow the one before, or has not one "
                          "size per unit",
                          ranks.first, ranks.last));
      next = ranks.last + 1;
    }
    if (next != plan_.ranks_in_classes())
      fault("", "",
            fmt::format("rank classes cover {} ranks, not {}", next, plan_.ranks_in_classes()));
  }

  void check_program(const std::vector<ProgramItem>& items) {
    for (const ProgramItem& item : items) {
      if (item.segment >= 0 && !in_range(item.segment, plan_.segments))
        fault("", "",
              fmt::format("the program runs segment {}, which does not exist", item.segment));
      if (item.count < 0 && item.count != ProgramItem::kOncePerStep)
        fault("", "", fmt::format("the program repeats something {} times", item.count));
      check_program(item.body);
    }
  }

  void check_references(const Instruction& instruction) {
    if (instruction.unit != -1 && !in_range(instruction.unit, plan_.units))
      fault(instruction.name, "", "names a unit that does not exist");
    for (const Wait& wait : instruction.after)
      if (!in_range(wait.id, plan_.instructions))
        fault(instruction.name, "", "waits for an instruction that does not exist");
    for (const auto* views : {&instruction.reads, &instruction.writes})
      for (const View& view : *views) {
        if (!in_range(view.buffer, plan_.buffers)) {
          fault(instruction.name, "", "has an operand in a buffer that does not exist");
          continue;
        }
        const Buffer& buffer = plan_.buffers[view.buffer];
        if (view.at < 0 || view.elems < 0 || view.at > buffer.elems - view.elems)
          fault(instruction.name, buffer.name,
                fmt::format("elements {} to {} are outside its {} elements", view.at,
                            view.at + view.elems, buffer.elems));
      }
  }

  const Buffer& buffer_of(const View& view) const { return plan_.buffers[view.buffer]; }

  bool has_operands(const Instruction& instruction, std::size_t reads, std::size_t writes) {
    if (instruction.reads.size() == reads && instruction.writes.size() == writes) return true;
    fault(instruction.name, "",
          fmt::format("has {} operands to read and {} to write; its kind takes {} and {}",
                      instruction.reads.size(), instruction.writes.size(), reads, writes));
    return false;
  }

  void check_size(const Instruction& instruction, const View& view, std::int64_t expected) {
    if (view.elems != expected)
      fault(instruction.name, buffer_of(view).name,
            fmt::format("{} elements, where {} fit", view.elems, expected));
  }

  void same_dtype(const Instruction& instruction, std::size_t operand) {
    const Buffer& made = buffer_of(instruction.writes[operand]);
    if (buffer_of(instruction.reads[operand]).dtype != made.dtype)
      fault(instruction.name, made.name, "has another dtype than what it is made of");
  }

  void check_operands(const Instruction& i, const Alloc&) { has_operands(i, 0, 1); }
  void check_operands(const Instruction& i, const Free&) { has_operands(i, 0, 1); }
  void check_operands(const Instruction& i, const HostWait&) {
    has_operands(i, 0, 0);
    if (i.after.size() != 1) fault(i.name, "", "a host_wait names exactly one instruction");
  }
  void check_operands(const Instruction& i, const Fill&) {
    has_operands(i, 0, std::max<std::size_t>(i.writes.size(), 1));
  }
  void check_operands(const Instruction& i, const Read&) {
    has_operands(i, 0, 1);
    if (std::get<Read>(i.operation).source == Source::Weights) needs_unit(i);
  }
  void check_operands(const Instruction& i, const Write&) {
    has_operands(i, 1, 0);
    if (std::get<Write>(i.operation).sink == Sink::Weights) needs_unit(i);
  }
  void needs_unit(const Instruction& i) {
    if (i.unit < 0) fault(i.name, "", "moves weights of no unit");
  }
  void check_operands(const Instruction& i, const Copy& copy) {
    if (!has_pairs(i)) return;
    const std::int64_t parts = copy.part ? plan_.mesh.size(*copy.part) : 1;
    for (std::size_t o = 0; o < i.reads.size(); ++o)
      check_size(i, i.reads[o], i.writes[o].elems * parts);
  }
  void check_operands(const Instruction& i, const AllGather& gather) {
    if (!has_pairs(i)) return;
    for (std::size_t o = 0; o < i.reads.size(); ++o) {
      check_size(i, i.writes[o], i.reads[o].elems * plan_.mesh.size(gather.group));
      same_dtype(i, o);
    }
  }
  void check_operands(const Instruction& i, const ReduceScatter& reduce) {
    if (!has_pairs(i)) return;
    for (std::size_t o = 0; o < i.reads.size(); ++o) {
      check_size(i, i.reads[o], i.writes[o].elems * plan_.mesh.size(reduce.group));
      same_dtype(i, o);
    }
    check_units(i, reduce.contributes);
  }
  /// Every operand read has one that is written, and there is one at least.
  bool has_pairs(const Instruction& i) {
    const std::size_t pairs = std::max<std::size_t>(i.reads.size(), 1);
    return has_operands(i, pairs, pairs);
  }
  void check_operands(const Instruction& i, const AllReduce& reduce) {
    in_place(i);
    check_units(i, reduce.contributes);
  }
  void check_operands(const Instruction& i, const Broadcast&) { in_place(i); }

  void in_place(const Instruction& i) {
    if (has_operands(i, 1, 1) && i.reads[0] != i.writes[0])
      fault(i.name, buffer_of(i.writes[0]).name,
            "is not the operand that is read: it works in place");
  }

  void check_units(const Instruction& i, const std::vector<int>& units) {
    for (const int unit : units)
      if (!in_range(unit, plan_.units))
        fault(i.name, "", "contributes to a unit that does not exist");
  }

  void check_operands(const Instruction& i, const Compute& compute) {
    const OperandSizes sizes = operand_sizes(compute.kernel, compute.attributes);
    const auto least_reads = sizes.reads.size() - sizes.optional_reads;
    const auto least_writes = sizes.writes.size() - sizes.optional_writes;
    const std::size_t most_writes = sizes.writes.size() + (has_narrow_operand(i) ? 1 : 0);
    if (i.reads.size() < least_reads || i.writes.size() < least_writes ||
        i.writes.size() > most_writes)
      return fault(i.name, "",
                   fmt::format("{} has {} operands to read and {} to write",
                               to_string(compute.kernel), i.reads.size(), i.writes.size()));
    if (compute.kernel == Kernel::PositionEmbedding &&
        compute.attributes.integer(Attribute::Time) >
            compute.attributes.integer(Attribute::InFeatures))
      fault(i.name, "", "reads more positions than there are");
    std::int64_t common = OperandSizes::kAny;
    const auto check_sizes = [&](const std::vector<View>& views,
                                 const std::vector<std::int64_t>& expected) {
      for (std::size_t o = 0; o < std::min(views.size(), expected.size()); ++o) {
        if (expected[o] == OperandSizes::kAny && !sizes.one_size) continue;
        if (expected[o] == OperandSizes::kAny && common == OperandSizes::kAny)
          common = views[o].elems;
        check_size(i, views[o], expected[o] == OperandSizes::kAny ? common : expected[o]);
      }
    };
    check_sizes(i.writes, sizes.writes);
    check_sizes(i.reads, sizes.reads);
    if (sizes.more_reads) return;
    for (std::size_t o = sizes.reads.size(); o < i.reads.size(); ++o)
      if (std::ranges::find(i.writes, i.reads[o]) == i.writes.end())
        fault(i.name, buffer_of(i.reads[o]).name,
              fmt::format("is one operand too many for {}", to_string(compute.kernel)));
  }

  /// Such a launch may have a workspace to widen its operands into.
  bool has_narrow_operand(const Instruction& i) const {
    const auto narrow = [&](const View& view) { return buffer_of(view).dtype == Dtype::BFloat16; };
    return std::ranges::any_of(i.reads, narrow) || std::ranges::any_of(i.writes, narrow);
  }

  const Plan& plan_;
  std::vector<Fault> faults_;
};

}  // namespace

std::vector<Fault> structure_faults(const Plan& plan) { return StructureCheck(plan).run(); }

}  // namespace shardplan
