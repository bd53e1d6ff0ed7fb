#pragma once

#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "plans/contents.h"
#include "plans/kernel_roles.h"

namespace shardplan {

/// Follows the model's own kernels through a plan and checks that backward is the derivative of the
/// forward that ran, by the operator catalogue: every backward launch has the operands of the
/// forward launch whose result it has the whole gradient of.
class Differentiation {
 public:
  explicit Differentiation(Contents& contents) : contents_(contents), values_(contents.values()) {}

  /// A launch that is neither optimizer nor norm.
  void apply(InstructionId id);
  /// The loss terms since the last call.
  Terms take_losses() { return std::exchange(losses_, Terms{}); }
  /// Piece by piece; empty when the two are not gradients of the same.
  std::optional<std::vector<Slice>> sum(const std::vector<Slice>& a, const std::vector<Slice>& b);
  bool is_gradient(const std::vector<Slice>& slices) const;

 private:
  using Operands = std::vector<std::vector<Slice>>;

  void forward(InstructionId id, const KernelUse& use);
  void register_uses(const KernelUse& use, std::int32_t application, const Operands& operands,
                     const std::vector<Role>& roles);
  void backward(InstructionId id, std::span<const KernelUse> uses);
  struct Found {
    const KernelUse* use = nullptr;
    std::int32_t application = -1;
  };
  Found differentiated(InstructionId id, const std::vector<Slice>& gradient,
                       std::span<const KernelUse> uses);
  bool is_whole_gradient(const std::vector<Slice>& gradient, ValueId of);
  std::vector<std::size_t> other_operands(InstructionId id, const KernelUse& use,
                                          const Application& application);
  void contribute(InstructionId id, std::size_t write, const std::vector<Slice>& operand,
                  Terms term, std::size_t own_reads);
  void add(InstructionId id);
  std::optional<Slice> sum(Slice a, Slice b);
  const KernelUse& forward_use(const Application& application) const;
  void fault(InstructionId id, const View& view, std::string_view why) const {
    contents_.fault(id, view.buffer, why);
  }

  Contents& contents_;
  Values& values_;
  Terms losses_;
  std::set<std::pair<std::int32_t, Kernel>> differentiated_;  // applications, by which kernel
};

}  // namespace shardplan
