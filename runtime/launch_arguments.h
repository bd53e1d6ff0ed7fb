#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/shapes.h"
#include "runtime/device.h"

namespace shardplan {

/// A launch seen by its kernel: operands by place, in the order of the operator catalogue, and
/// attributes by name. Throws InputError where the launch has other operands than the kernel takes.
class LaunchArguments {
 public:
  explicit LaunchArguments(const Launch& launched) : launch(launched) {}

  const Operand& read(std::size_t i) const {
    expect(i < launch.reads.size());
    return launch.reads[i];
  }
  const Operand& write(std::size_t i) const {
    expect(i < launch.writes.size());
    return launch.writes[i];
  }
  bool reads(std::size_t i) const { return i < launch.reads.size(); }
  bool writes(std::size_t i) const { return i < launch.writes.size(); }

  /// Whether the kernel, which has `own` reads of its own, adds to the i-th written operand: it is
  /// then among the further reads.
  Store store(std::size_t i, std::size_t own) const;

  std::int64_t integer(Attribute attribute) const { return launch.attributes.integer(attribute); }
  double real(Attribute attribute) const { return launch.attributes.real(attribute); }
  float single(Attribute attribute) const { return static_cast<float>(real(attribute)); }
  std::int64_t batch() const { return integer(Attribute::Batch); }
  std::int64_t time() const { return integer(Attribute::Time); }
  std::int64_t rows() const { return rows_of(launch.attributes).value(); }
  std::int64_t channels() const { return integer(Attribute::OutFeatures); }
  std::int64_t norm_rows() const {
    return rows() * launch.attributes.integer(Attribute::GroupsPerRow, 1);
  }

  const Launch& launch;

 private:
  void expect(bool has_operand) const;
};

LinearShape linear_shape(const LaunchArguments& call);
RopeShape rope_shape(const LaunchArguments& call);
AttentionShape attention_shape(const LaunchArguments& call);

/// Queries, keys and values of one token that lie side by side.
struct PackedAttentionShape {
  AttentionShape shape;
  std::int64_t keys;    // elements from a token's queries to its keys
  std::int64_t values;  // elements from a token's queries to its values
};
PackedAttentionShape packed_attention_shape(const LaunchArguments& call);

GeluKind gelu_kind(const LaunchArguments& call);
LogitsShape logits_shape(const LaunchArguments& call);
double loss_scale(const LaunchArguments& call);
AdamStep adam_step(const LaunchArguments& call);
SgdStep sgd_step(const LaunchArguments& call);

/// Names an attribute that none of our kernels looks at, "rope with rope_yarn"; empty when there is
/// none.
std::string unsupported_attribute(Kernel kernel, const Attributes& attributes);

}  // namespace shardplan
