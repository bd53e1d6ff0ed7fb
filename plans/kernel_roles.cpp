#include "plans/kernel_roles.h"

#include <algorithm>
#include <map>

namespace shardplan {
namespace {

using Kind = Role::Kind;

std::map<Kernel, std::vector<KernelUse>> all_uses() {
  std::map<Kernel, std::vector<KernelUse>> uses;
  for (const OperatorSpec& op : operator_catalogue()) {
    for (const KernelCall& call : op.forward)
      uses[call.kernel].push_back({&op, &call, true});
    for (const KernelCall& call : op.backward)
      uses[call.kernel].push_back({&op, &call, false});
  }
  return uses;
}

bool writes(const std::vector<KernelCall>& calls, const Role& role) {
  return std::ranges::any_of(calls, [&](const KernelCall& call) {
    return std::ranges::find(call.writes, role) != call.writes.end();
  });
}

}  // namespace

std::span<const KernelUse> uses_of(Kernel kernel) {
  static const std::map<Kernel, std::vector<KernelUse>> kUses = all_uses();
  const auto found = kUses.find(kernel);
  return found == kUses.end() ? std::span<const KernelUse>() : found->second;
}

int parameters_present(const KernelCall& forward, std::size_t operands) {
  const auto all = std::ranges::count(forward.reads, Kind::Parameter, &Role::kind);
  const auto absent = std::ssize(forward.reads) - static_cast<std::ptrdiff_t>(operands);
  return static_cast<int>(std::max<std::ptrdiff_t>(all - std::max<std::ptrdiff_t>(absent, 0), 0));
}

std::vector<Role> present(const std::vector<Role>& roles, int parameters) {
  std::vector<Role> result;
  for (const Role& role : roles)
    if ((role.kind != Kind::Parameter && role.kind != Kind::ParameterGradient) ||
        role.index < parameters)
      result.push_back(role);
  return result;
}

bool has_gradient(const OperatorSpec& op, const Role& operand) {
  if (operand.kind == Kind::Parameter)
    return writes(op.backward, {Kind::ParameterGradient, operand.index});
  if (operand.kind != Kind::Input) return false;
  return op.gradient_passes_through || writes(op.backward, {Kind::InputGradient, operand.index}) ||
         writes(op.forward, {Kind::InputGradient, operand.index});
}

}  // namespace shardplan
