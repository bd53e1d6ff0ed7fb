#include "plans/plan_structure.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "plans/access_history.h"
#include "plans/aliasing.h"
#include "plans/allocations.h"
#include "plans/extent.h"
#include "plans/job_agreement.h"
#include "plans/launch_structure.h"
#include "plans/plan_figures.h"

namespace shardplan {
namespace {

constexpr std::int64_t kMostElems = std::int64_t{1} << 53;  // bytes and sums of them fit 63 bits

constexpr auto kReduced = {Dtype::Float32, Dtype::Float64, Dtype::BFloat16,
                           Dtype::UInt8};  // flags among them, of which the largest is taken
constexpr auto kSummed = {Dtype::Float32, Dtype::Float64, Dtype::BFloat16};  // and filled

template <typename Container>
bool in_range(std::int64_t index, const Container& container) {
  return index >= 0 && index < static_cast<std::int64_t>(container.size());
}

class StructureCheck {
 public:
  explicit StructureCheck(const Plan& plan) : plan_(plan) {}

  std::vector<Fault> run() {
    const Mesh& mesh = plan_.mesh;
    if (mesh.shard < 1 || mesh.replicate < 1) {
      fault("", "", "the mesh is empty");
      return std::move(faults_);
    }
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
    check_program();
    if (!faults_.empty()) return std::move(faults_);  // what follows builds upon all that
    check_job(plan_, faults_);
    addresses_ = has_allocator(plan_.profile) ? separate_addresses(plan_) : arena_addresses(plan_);
    for (const Instruction& instruction : plan_.instructions) {
      const std::size_t before = faults_.size();
      check_references(instruction);
      if (faults_.size() != before) continue;  // sizes mean nothing while a buffer is missing
      std::visit([&](const auto& operation) { check_operands(instruction, operation); },
                 instruction.operation);
      if (faults_.size() == before) check_aliasing(plan_, addresses_, instruction, faults_);
    }
    if (faults_.empty() && has_allocator(plan_.profile)) check_allocations(plan_, faults_);
    if (faults_.empty()) check_figures(plan_, faults_);
    return std::move(faults_);
  }

 private:
  void fault(const std::string& instruction, const std::string& buffer, std::string why) {
    faults_.push_back({instruction, buffer, std::move(why)});
  }

  void check_buffer(const Buffer& buffer) {
    if (buffer.elems < 0 || buffer.elems > kMostElems)
      return fault("", buffer.name,
                   fmt::format("has {} elements, expected 0 to 2^53", buffer.elems));
    if (!buffer.class_elems.empty() &&
        (buffer.class_elems.size() != plan_.classes.size() ||
         *std::ranges::max_element(buffer.class_elems) > buffer.elems))
      fault("", buffer.name, "has not one size per rank class, each at most its own");
    if (buffer.space != Space::Device || has_allocator(plan_.profile)) return;
    if (buffer.offset < 0 || buffer.offset > plan_.arena.bytes - buffer.bytes())
      fault("", buffer.name,
            fmt::format("{} bytes from {} on are not inside the arena of {} bytes", buffer.bytes(),
                        buffer.offset, plan_.arena.bytes));
    if (buffer.offset % size_of(buffer.dtype) != 0)
      fault("", buffer.name, fmt::format("offset {} is not aligned", buffer.offset));
  }

  void check_unit(const Unit& unit) {
    const bool by_parameter = has_allocator(plan_.profile) && unit.parameter == -1;
    if (!by_parameter && !in_range(unit.parameter, plan_.buffers))
      return fault("", "", fmt::format("unit {} names a buffer that does not exist", unit.name));
    const Buffer unit_buffer{.name = unit.name, .elems = unit.shard_elems, .resident = true};
    const Buffer& buffer = by_parameter ? unit_buffer : plan_.buffers[unit.parameter];
    if (Extent(unit.shard_elems) * plan_.mesh.shard != Extent(unit.padded_elems) ||
        unit.elems > unit.padded_elems)
      fault("", buffer.name, "the shards of its unit do not add up to the padded flat parameter");
    if (buffer.elems != unit.shard_elems || !buffer.resident)
      fault("", buffer.name, "is not the resident shard of its unit");
    check_slices(unit, buffer.name);
    std::int64_t end = 0;
    for (const UnitParameter& parameter : unit.parameters) {
      if (parameter.at < end || parameter.elems < 1)
        fault("", buffer.name,
              fmt::format("parameter {} is empty or overlaps another", parameter.name));
      if (!parameters_.insert(parameter.name).second)
        fault("", buffer.name, fmt::format("parameter {} is there twice", parameter.name));
      Extent shape = 1;
      for (const std::int64_t extent : parameter.shape)
        shape = shape * extent;
      if (shape != Extent(parameter.elems))
        fault("", buffer.name,
              fmt::format("parameter {} has {} elements, its shape another number", parameter.name,
                          parameter.elems));
      end = (Extent(parameter.at) + parameter.elems).value();
    }
    if (end > unit.padded_elems) fault("", buffer.name, "its parameters do not fit its size");
  }

  void check_slices(const Unit& unit, const std::string& name) {
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
      else
        check_valid(ranks);
      next = ranks.last + 1;
    }
    if (next != plan_.ranks_in_classes())
      fault("", "",
            fmt::format("rank classes cover {} ranks, not {}", next, plan_.ranks_in_classes()));
  }

  /// All ranks of a class hold as many elements that are no padding.
  void check_valid(const RankClass& ranks) {
    for (std::size_t u = 0; u < plan_.units.size(); ++u)
      for (const std::int64_t rank : {ranks.first, ranks.last})
        if (ranks.valid[u] != valid_elems(plan_.units[u], rank % plan_.mesh.shard))
          fault("", "",
                fmt::format("rank {} holds {} elements of unit {}, not {}", rank,
                            valid_elems(plan_.units[u], rank % plan_.mesh.shard),
                            plan_.units[u].name, ranks.valid[u]));
  }
  static std::int64_t valid_elems(const Unit& unit, std::int64_t shard) {
    std::int64_t valid = 0;
    for (const UnitSlice& slice : unit.slices) {
      const std::int64_t part = slice.elems / unit.shards();
      valid += std::clamp<std::int64_t>(slice.valid - shard * part, 0, part);
    }
    return valid;
  }

  /// Steps are counted at the top of the program, in one loop; only there is a batch to read.
  void check_program() {
    int step_loops = 0;
    for (const ProgramItem& item : plan_.program) {
      const bool steps = item.count == ProgramItem::kOncePerStep;
      const bool first_step = item.count == ProgramItem::kFirstStep && step_loops == 0;
      step_loops += steps ? 1 : 0;
      check_item(item, steps || first_step);
    }
    if (step_loops != 1)
      fault("", "", fmt::format("the program has {} loops over the steps, not one", step_loops));
  }

  void check_item(const ProgramItem& item, bool in_step) {
    if (item.segment >= 0 && !in_range(item.segment, plan_.segments))
      fault("", "", fmt::format("the program runs segment {}, which does not exist", item.segment));
    else if (item.segment >= 0 && !in_step)
      check_outside_steps(plan_.segments[item.segment]);
    if (item.count < 0 && item.count != ProgramItem::kOncePerStep &&
        item.count != ProgramItem::kFirstStep)
      fault("", "", fmt::format("the program repeats something {} times", item.count));
    for (const ProgramItem& inner : item.body) {
      if (inner.count < 0) fault("", "", "the loop over the steps is inside another loop");
      check_item(inner, in_step);
    }
  }

  void check_outside_steps(const Segment& segment) {
    const auto instructions = static_cast<InstructionId>(plan_.instructions.size());
    for (InstructionId id = std::max(segment.first, 0); id < std::min(segment.last, instructions);
         ++id) {
      const auto* read = std::get_if<Read>(&plan_.instructions[id].operation);
      if (read && read->source != Source::Weights)
        fault(plan_.instructions[id].name, "", "reads a batch outside the loop over the steps");
    }
  }

  void check_references(const Instruction& instruction) {
    if (is_collective(instruction.operation) && instruction.stream == Stream::Host)
      fault(instruction.name, "", "is a collective on the host stream, which has no communicator");
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
        if (view.elems < 1)
          fault(instruction.name, buffer.name, "is an operand without elements");
        else if (view.at < 0 || view.at > buffer.elems - view.elems)
          fault(instruction.name, buffer.name,
                fmt::format("{} elements from {} on are outside its {} elements", view.elems,
                            view.at, buffer.elems));
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

  void check_size(const Instruction& instruction, const View& view, Extent expected) {
    if (Extent(view.elems) != expected)
      fault(instruction.name, buffer_of(view).name,
            fmt::format("{} elements, where {} fit", view.elems, expected.value()));
  }
  void check_dtype(const Instruction& instruction, const View& view,
                   std::initializer_list<Dtype> expected) {
    if (std::ranges::find(expected, buffer_of(view).dtype) == expected.end())
      fault(instruction.name, buffer_of(view).name,
            fmt::format("is {}, expected {}", to_string(buffer_of(view).dtype),
                        to_string(*expected.begin())));
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
    if (!has_operands(i, 0, std::max<std::size_t>(i.writes.size(), 1))) return;
    for (const View& view : i.writes)
      check_dtype(i, view, kSummed);
  }
  void check_operands(const Instruction& i, const Read& read) {
    if (!has_operands(i, 0, 1)) return;
    if (read.source == Source::Weights) return check_weights(i, i.writes[0]);
    if (read.source == Source::Input) return;  // pixels, sound: of any size
    const TrainingJob& training = plan_.job.training;
    const bool per_sequence =  // one label each, as for images
        read.source == Source::Targets && i.writes[0].elems == training.micro_batch;
    if (!per_sequence)
      check_size(i, i.writes[0], Extent(training.micro_batch) * training.sequence_length);
    check_dtype(i, i.writes[0], {is_torch(plan_.profile) ? Dtype::Int64 : Dtype::Int32});
  }
  void check_operands(const Instruction& i, const Write& write) {
    if (!has_operands(i, 1, 0)) return;
    if (write.sink == Sink::Weights) return check_weights(i, i.reads[0]);
    check_size(i, i.reads[0], 1);
    check_dtype(i, i.reads[0], {write.sink == Sink::Loss ? Dtype::Float64 : Dtype::Float32});
  }
  void check_weights(const Instruction& i, const View& view) {
    if (i.unit < 0 || view.buffer != plan_.units[i.unit].parameter)
      fault(i.name, buffer_of(view).name, "does not hold the weights of the instruction's unit");
    check_dtype(i, view, {Dtype::Float32});
  }
  void check_operands(const Instruction& i, const Copy& copy) {
    if (!has_pairs(i)) return;
    const std::int64_t parts = copy.part ? plan_.mesh.size(*copy.part) : 1;
    for (std::size_t o = 0; o < i.reads.size(); ++o) {
      check_size(i, i.reads[o], Extent(i.writes[o].elems) * parts);
      if (buffer_of(i.reads[o]).dtype == buffer_of(i.writes[o]).dtype) continue;
      check_dtype(i, i.reads[o], {Dtype::Float32, Dtype::BFloat16});
      check_dtype(i, i.writes[o], {Dtype::Float32, Dtype::BFloat16});
    }
  }
  void check_operands(const Instruction& i, const AllGather& gather) {
    if (!has_pairs(i)) return;
    for (std::size_t o = 0; o < i.reads.size(); ++o) {
      check_size(i, i.writes[o], Extent(i.reads[o].elems) * plan_.mesh.size(gather.group));
      same_dtype(i, o);
    }
  }
  void check_operands(const Instruction& i, const ReduceScatter& reduce) {
    if (!has_pairs(i)) return;
    for (std::size_t o = 0; o < i.reads.size(); ++o) {
      check_size(i, i.reads[o], Extent(i.writes[o].elems) * plan_.mesh.size(reduce.group));
      same_dtype(i, o);
      check_dtype(i, i.reads[o], kSummed);
    }
    check_units(i, reduce.contributes);
  }
  /// Every operand read has one that is written, and there is one at least.
  bool has_pairs(const Instruction& i) {
    const std::size_t pairs = std::max<std::size_t>(i.reads.size(), 1);
    return has_operands(i, pairs, pairs);
  }
  void check_operands(const Instruction& i, const AllReduce& reduce) {
    if (in_place(i)) check_dtype(i, i.writes[0], is_torch(plan_.profile) ? kReduced : kSummed);
    check_units(i, reduce.contributes);
  }
  void check_operands(const Instruction& i, const Broadcast& broadcast) {
    in_place(i);
    if (broadcast.root < 0 || broadcast.root >= plan_.mesh.size(broadcast.group))
      fault(i.name, "",
            fmt::format("comes from rank {} of a group of {}", broadcast.root,
                        plan_.mesh.size(broadcast.group)));
  }

  bool in_place(const Instruction& i) {
    if (!has_operands(i, 1, 1)) return false;
    if (i.reads[0] != i.writes[0])
      fault(i.name, buffer_of(i.writes[0]).name,
            "is not the operand that is read: it works in place");
    return true;
  }

  void check_units(const Instruction& i, const std::vector<int>& units) {
    for (const int unit : units)
      if (!in_range(unit, plan_.units))
        fault(i.name, "", "contributes to a unit that does not exist");
  }

  /// PyTorch's launches name what they cost like, not one of our kernels with its operands.
  void check_operands(const Instruction& i, const Compute&) {
    if (!is_torch(plan_.profile)) check_launch(plan_, i, faults_);
  }

  const Plan& plan_;
  std::vector<Bytes> addresses_;
  std::set<std::string_view> parameters_;  // names
  std::vector<Fault> faults_;
};

}  // namespace

std::vector<Fault> structure_faults(const Plan& plan) { return StructureCheck(plan).run(); }

}  // namespace shardplan
