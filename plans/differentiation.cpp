#include "plans/differentiation.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace shardplan {
namespace {

using Kind = Role::Kind;

constexpr int kLossSlot = -1;           // of the term that a loss operator adds to the loss
constexpr std::size_t kMostTried = 64;  // values that one gradient may be of

std::optional<std::size_t> place_of(const std::vector<Role>& roles, const Role& role) {
  const auto found = std::ranges::find(roles, role);
  if (found == roles.end()) return std::nullopt;
  return static_cast<std::size_t>(found - roles.begin());
}

}  // namespace

void Differentiation::apply(InstructionId id) {
  const Kernel kernel = std::get<Compute>(contents_.at(id).operation).kernel;
  if (contents_.at(id).reads.empty()) return contents_.write_unknown(id);
  const std::span<const KernelUse> uses = uses_of(kernel);
  const bool on_gradient = is_gradient(contents_.read(id, 0));
  if (kernel == Kernel::Add && (on_gradient || is_gradient(contents_.read(id, 1)))) return add(id);
  const auto forward_use = std::ranges::find(uses, true, &KernelUse::forward);
  const bool has_backward = std::ranges::find(uses, false, &KernelUse::forward) != uses.end();
  if (has_backward && (on_gradient || forward_use == uses.end())) return backward(id, uses);
  if (forward_use != uses.end()) return forward(id, *forward_use);
  contents_.write_unknown(id);
}

/// A part of gradients is a gradient. What is all zeros may be one.
bool Differentiation::is_gradient(const std::vector<Slice>& slices) const {
  return std::ranges::any_of(slices, [&](const Slice& slice) {
    const Value& value = values_.at(slice.value);
    if (value.kind == Value::Kind::Part) return is_gradient(values_.resolved(value.first));
    return value.kind == Value::Kind::Gradient;
  });
}

void Differentiation::forward(InstructionId id, const KernelUse& use) {
  const Instruction& instruction = contents_.at(id);
  const Compute& compute = std::get<Compute>(instruction.operation);
  const int parameters = parameters_present(*use.call, instruction.reads.size());
  const std::vector<Role> roles = present(use.call->reads, parameters);
  Operands operands;
  std::vector<ValueId> ids;
  for (std::size_t i = 0; i < roles.size(); ++i) {
    operands.push_back(contents_.read(id, i));
    ids.push_back(values_.row(operands.back()));
    if (is_gradient(operands.back()))
      fault(id, instruction.reads[i], "is a gradient, where the kernel takes a value");
  }
  std::vector<std::int64_t> sizes;
  for (const View& view : instruction.writes)
    sizes.push_back(view.elems);
  const auto [application, fresh] =
      values_.apply(compute.kernel, compute.attributes, std::move(ids), sizes);
  const Application& made = values_.application(application);
  if (fresh) register_uses(use, application, operands, roles);
  if (values_.at(made.results[0]).batch == Value::kMixed)
    fault(id, instruction.writes[0], "is made from different micro-batches");
  const std::vector<Role> results = present(use.call->writes, parameters);
  for (std::size_t i = 0; i < instruction.writes.size(); ++i) {
    const Kind kind = i < results.size() ? results[i].kind : Kind::Workspace;
    if (kind == Kind::Workspace) {
      contents_.write_unknown(id, i);
    } else if (kind == Kind::InputGradient) {
      const std::size_t slot = *place_of(roles, {Kind::Input, results[i].index});
      contribute(id, i, operands[slot], term_of(application, static_cast<int>(slot)), roles.size());
    } else if (kind == Kind::Output && use.op->gradient_in_forward) {
      const Terms term = term_of(application, kLossSlot);
      losses_ = losses_ + term;
      contribute(id, i, {{Values::kLoss, 0, 1}}, term, roles.size());
    } else {
      contents_.write(id, i, made.results[i]);
    }
  }
}

/// Which terms the gradients of an application's operands will have.
void Differentiation::register_uses(const KernelUse& use, std::int32_t application,
                                    const Operands& operands, const std::vector<Role>& roles) {
  const ValueId result = values_.application(application).results[0];
  for (std::size_t i = 0; i < roles.size(); ++i) {
    if (!has_gradient(*use.op, roles[i])) continue;
    const bool whole = operands[i].size() == 1 && operands[i][0].elems == values_.at(result).elems;
    for (const Slice& slice : operands[i]) {
      if (roles[i].kind == Kind::Input && use.op->gradient_passes_through && whole)
        values_.add_passage(slice, result);
      else
        values_.add_consumer(slice, term_of(application, static_cast<int>(i)));
    }
  }
}

const KernelUse& Differentiation::forward_use(const Application& application) const {
  return *std::ranges::find(uses_of(application.kernel), true, &KernelUse::forward);
}

void Differentiation::backward(InstructionId id, std::span<const KernelUse> uses) {
  const Instruction& instruction = contents_.at(id);
  const std::vector<Slice> gradient = contents_.read(id, 0);
  const auto [use, index] = differentiated(id, gradient, uses);
  if (!use) {
    fault(id, instruction.reads[0],
          fmt::format("is not the whole gradient of what {} belongs to",
                      to_string(std::get<Compute>(instruction.operation).kernel)));
    return contents_.write_unknown(id);
  }
  const Application& application = values_.application(index);
  const KernelUse& forward = forward_use(application);
  const int parameters = parameters_present(*forward.call, application.operands.size());
  const std::vector<Role> forward_reads = present(forward.call->reads, parameters);
  const std::vector<Role> own = present(use->call->reads, parameters);
  if (*application.attributes != std::get<Compute>(instruction.operation).attributes)
    fault(id, instruction.writes[0], "is computed with other attributes than forward was");
  for (const std::size_t wrong : other_operands(id, *use, application))
    fault(id, instruction.reads[wrong], "is not what forward computed with");
  const std::vector<Role> results = present(use->call->writes, parameters);
  for (std::size_t i = 0; i < instruction.writes.size(); ++i) {
    const Role role = i < results.size() ? results[i] : Role{Kind::Workspace};
    const Kind of = role.kind == Kind::InputGradient ? Kind::Input : Kind::Parameter;
    const auto slot = place_of(forward_reads, {of, role.index});
    if (role.kind == Kind::Workspace || !slot) {
      contents_.write_unknown(id, i);
      continue;
    }
    contribute(id, i, values_.resolved(application.operands[*slot]),
               term_of(index, static_cast<int>(*slot)), own.size());
  }
}

/// The application whose result `gradient` is the whole gradient of, and the call of its operator.
/// The gradient of a sum is at the same time that of each summand which nothing else uses: of
/// several that fit, it is the one that the launch agrees with, and of those one whose turn is
/// still to come.
Differentiation::Found Differentiation::differentiated(InstructionId id,
                                                       const std::vector<Slice>& gradient,
                                                       std::span<const KernelUse> uses) {
  if (values_.at(gradient[0].value).kind != Value::Kind::Gradient) return {};
  Found first;
  std::vector<ValueId> tried{values_.at(gradient[0].value).first};
  for (std::size_t next = 0; next < tried.size() && tried.size() < kMostTried; ++next) {
    const Value& value = values_.at(tried[next]);
    if (value.kind != Value::Kind::Result) continue;
    const Application& application = values_.application(value.first);
    const KernelUse& forward = forward_use(application);
    const auto use = std::ranges::find_if(
        uses, [&](const KernelUse& one) { return !one.forward && one.op == forward.op; });
    if (use != uses.end() && value.second == 0 && is_whole_gradient(gradient, tried[next])) {
      const Found found{&*use, value.first};
      const Compute& launch = std::get<Compute>(contents_.at(id).operation);
      const bool agrees = *application.attributes == launch.attributes &&
                          other_operands(id, *use, application).empty();
      if (agrees && differentiated_.emplace(value.first, launch.kernel).second) return found;
      if (agrees || !first.use) first = found;
    }
    if (!forward.op->gradient_passes_through) continue;
    for (const ValueId operand : application.operands)
      tried.push_back(values_.resolved(operand)[0].value);
  }
  return first;
}

bool Differentiation::is_whole_gradient(const std::vector<Slice>& gradient, ValueId of) {
  std::int64_t at = 0;
  for (const Slice& slice : gradient) {
    const Value& value = values_.at(slice.value);
    if (value.kind != Value::Kind::Gradient || value.second != 0 || slice.at != at ||
        values_.expected({of, at, slice.elems}) != value.terms)
      return false;
    at += slice.elems;
  }
  return at == values_.at(of).elems;
}

/// The places of operands that are not what the forward launch read and made.
std::vector<std::size_t> Differentiation::other_operands(InstructionId id, const KernelUse& use,
                                                         const Application& application) {
  const KernelUse& forward = forward_use(application);
  const int parameters = parameters_present(*forward.call, application.operands.size());
  const std::vector<Role> reads = present(forward.call->reads, parameters);
  const std::vector<Role> writes = present(forward.call->writes, parameters);
  const std::vector<Role> own = present(use.call->reads, parameters);
  std::vector<std::size_t> others;
  for (std::size_t i = 0; i < own.size() && i < contents_.at(id).reads.size(); ++i) {
    if (own[i].kind == Kind::OutputGradient) continue;
    const bool made = own[i].kind == Kind::Output || own[i].kind == Kind::Statistic;
    const auto place = place_of(made ? writes : reads, own[i]);
    const ValueId expected = !place ? Values::kUnknown
                             : made ? application.results[*place]
                                    : application.operands[*place];
    if (contents_.read_value(id, i) != expected) others.push_back(i);
  }
  return others;
}

/// The written operand holds the gradient of `operand`: one term, and what was there before when
/// the launch adds to it.
void Differentiation::contribute(InstructionId id, std::size_t write,
                                 const std::vector<Slice>& operand, Terms term,
                                 std::size_t own_reads) {
  const Instruction& instruction = contents_.at(id);
  std::vector<Slice> slices;
  for (const Slice& slice : operand)
    slices.push_back({values_.gradient(slice.value, term, 0), slice.at, slice.elems});
  const auto more = instruction.reads.begin() +
                    static_cast<std::ptrdiff_t>(std::min(own_reads, instruction.reads.size()));
  const auto added = std::find(more, instruction.reads.end(), instruction.writes[write]);
  if (added != instruction.reads.end()) {
    const auto total = sum(
        contents_.read(id, static_cast<std::size_t>(added - instruction.reads.begin())), slices);
    if (total)
      slices = *total;
    else
      fault(id, *added, "is added to, but holds no gradient of the same");
  }
  contents_.write(id, write, slices);
}

void Differentiation::add(InstructionId id) {
  const auto total = sum(contents_.read(id, 0), contents_.read(id, 1));
  if (total) return contents_.write(id, 0, *total);
  fault(id, contents_.at(id).writes[0], "is a sum of gradients of different things");
  contents_.write_unknown(id, 0);
}

std::optional<std::vector<Slice>> Differentiation::sum(const std::vector<Slice>& a,
                                                       const std::vector<Slice>& b) {
  std::vector<Slice> result;
  std::int64_t done_a = 0;  // elements of the current slices that are summed already
  std::int64_t done_b = 0;
  for (auto one = a.begin(), other = b.begin(); one != a.end() && other != b.end();) {
    const std::int64_t elems = std::min(one->elems - done_a, other->elems - done_b);
    const auto piece =
        sum({one->value, one->at + done_a, elems}, {other->value, other->at + done_b, elems});
    if (!piece) return std::nullopt;
    result.push_back(*piece);
    done_a += elems;
    done_b += elems;
    if (done_a == one->elems) ++one, done_a = 0;
    if (done_b == other->elems) ++other, done_b = 0;
  }
  return result;
}

std::optional<Slice> Differentiation::sum(Slice a, Slice b) {
  if (a.value == Values::kZero) return b.value == Values::kZero ? Slice{b.value, 0, b.elems} : b;
  if (b.value == Values::kZero) return a;
  const Value one = values_.at(a.value);
  const Value other = values_.at(b.value);
  if (a.at != b.at || one.kind != other.kind || one.second != other.second) return std::nullopt;
  if (one.kind == Value::Kind::Gradient)
    return Slice{values_.gradient(std::min(one.first, other.first), one.terms + other.terms,
                                  static_cast<unsigned>(one.second)),
                 a.at, a.elems};
  if (one.kind != Value::Kind::Part) return std::nullopt;
  const auto whole = sum(values_.resolved(one.first), values_.resolved(other.first));
  if (!whole) return std::nullopt;
  return Slice{values_.part(values_.row(*whole), static_cast<Group>(one.second), one.elems), a.at,
               a.elems};
}

}  // namespace shardplan
