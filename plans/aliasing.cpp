#include "plans/aliasing.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "plans/cells.h"
#include "plans/kernel_operands.h"

namespace shardplan {
namespace {

/// {kernel, read, write}: operands that one launch may have in the same place.
using InPlace = std::set<std::tuple<Kernel, std::size_t, std::size_t>>;

/// Adds the pair of operands with these roles, where the call has both.
void add_pair(InPlace& pairs, const KernelCall& call, const Role& read, const Role& write) {
  const auto from = std::ranges::find(call.reads, read);
  const auto to = std::ranges::find(call.writes, write);
  if (from != call.reads.end() && to != call.writes.end())
    pairs.emplace(call.kernel, from - call.reads.begin(), to - call.writes.begin());
}

InPlace in_place_operands() {
  using Kind = Role::Kind;
  InPlace pairs{{Kernel::Add, 0, 0}, {Kernel::Add, 1, 0}};
  for (const std::size_t state : {0, 1, 2})  // the parameter, and what the optimizer keeps of it
    pairs.insert({{Kernel::Adam, state + 2, state}, {Kernel::Sgd, state + 2, state}});
  for (const OperatorSpec& op : operator_catalogue()) {
    for (const KernelCall& call : op.forward) {
      add_pair(pairs, call, {Kind::Input, op.in_place_input}, {Kind::Output, 0});
      if (op.gradient_in_forward) add_pair(pairs, call, {Kind::Input, 0}, {Kind::InputGradient, 0});
    }
    for (const KernelCall& call : op.backward)
      add_pair(pairs, call, {Kind::OutputGradient, 0}, {Kind::InputGradient, op.in_place_input});
  }
  return pairs;
}

/// PyTorch's collectives may gather into, or scatter from, what a rank's own part lies in.
bool is_part_of_collective(const Plan& plan, const Instruction& instruction) {
  return is_torch(plan.profile) && (std::holds_alternative<AllGather>(instruction.operation) ||
                                    std::holds_alternative<ReduceScatter>(instruction.operation));
}

bool works_in_place(const Plan& plan, const Instruction& instruction, std::size_t read,
                    std::size_t write) {
  const auto* compute = std::get_if<Compute>(&instruction.operation);
  if (!compute)
    return std::holds_alternative<AllReduce>(instruction.operation) ||
           std::holds_alternative<Broadcast>(instruction.operation);
  if (is_torch(plan.profile)) return true;  // add_(), and optimizers
  static const InPlace kInPlace = in_place_operands();
  if (kInPlace.contains({compute->kernel, read, write})) return true;
  const OperandTypes types = operand_types(compute->kernel, compute->attributes, plan.profile);
  return types.accumulates && read >= types.reads.size();
}

/// An operand and the bytes it takes.
struct Place {
  AddressRange bytes;
  std::size_t operand = 0;
};

std::vector<Place> places_of(const Plan& plan, const std::vector<Bytes>& addresses,
                             const std::vector<View>& views) {
  std::vector<Place> places;
  for (std::size_t i = 0; i < views.size(); ++i) {
    const Bytes begin =
        addresses[views[i].buffer] + views[i].at * size_of(plan.buffers[views[i].buffer].dtype);
    if (views[i].elems > 0) places.push_back({{begin, begin + bytes_of(plan, views[i])}, i});
  }
  return places;
}

}  // namespace

void check_aliasing(const Plan& plan, const std::vector<Bytes>& addresses,
                    const Instruction& instruction, std::vector<Fault>& faults) {
  const auto name = [&](const View& view) { return plan.buffers[view.buffer].name; };
  std::vector<Place> writes = places_of(plan, addresses, instruction.writes);
  std::ranges::sort(writes, {}, [](const Place& place) { return place.bytes.begin; });
  for (std::size_t w = 1; w < writes.size(); ++w)
    if (writes[w].bytes.begin < writes[w - 1].bytes.end) {
      faults.push_back({instruction.name, name(instruction.writes[writes[w].operand]),
                        "is written twice by one instruction"});
      return;
    }
  // Writes are apart from here on: what is read as exactly one of them touches no other.
  for (const Place& read : places_of(plan, addresses, instruction.reads)) {
    const auto write = std::ranges::partition_point(
        writes, [&](const Place& place) { return place.bytes.end <= read.bytes.begin; });
    if (write == writes.end() || write->bytes.begin >= read.bytes.end) continue;
    const View& from = instruction.reads[read.operand];
    const View& to = instruction.writes[write->operand];
    if (from.buffer == to.buffer && is_part_of_collective(plan, instruction)) continue;
    if (from == to && works_in_place(plan, instruction, read.operand, write->operand)) continue;
    faults.push_back(
        {instruction.name, name(from),
         fmt::format("is read while the instruction writes its bytes, as {}", name(to))});
    return;
  }
}

}  // namespace shardplan
