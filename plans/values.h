#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plans/plan.h"

namespace shardplan {

/// What bytes stand for, whatever buffer holds them: the result of a kernel on certain operands, a
/// parameter before or after an update, a gradient. Equal derivations have equal numbers.
using ValueId = std::int32_t;

/// A multiset of terms: the sum of their 128-bit hashes. Two different multisets that come up in
/// one plan are taken for equal with a chance below 2^-64.
struct Terms {
  std::uint64_t low = 0;
  std::uint64_t high = 0;

  bool empty() const { return low == 0 && high == 0; }
  bool operator==(const Terms&) const = default;
  friend Terms operator+(Terms a, Terms b) { return {a.low + b.low, a.high + b.high}; }
  friend Terms operator-(Terms a, Terms b) { return {a.low - b.low, a.high - b.high}; }
};
/// The term of `slot` of application `application`.
Terms term_of(std::int32_t application, int slot);

/// Elements [at, at + elems) of a value.
struct Slice {
  ValueId value = 0;
  std::int64_t at = 0;
  std::int64_t elems = 0;
  bool operator==(const Slice&) const = default;
};

/// One launch of a forward kernel on certain operands, wherever and however often it runs.
struct Application {
  Kernel kernel = Kernel::Add;
  const Attributes* attributes = nullptr;  // of a launch in the plan
  std::vector<ValueId> operands;           // in the order of the launcher's arguments
  std::vector<ValueId> results;
};

struct Value {
  enum class Kind {
    Zero,      // of any size
    Opaque,    // nothing is known but its number
    Weights,   // whole parameters, between two updates: unit, slice of the unit
    State,     // what the optimizer keeps of a unit: unit, which one
    Result,    // of a forward kernel: application, which one
    Row,       // values side by side
    Part,      // what a rank owns of a value that a group shares: the value, group
    Gradient,  // a sum of terms, averaged over mesh axes: a value that it is the gradient of, axes
  } kind = Kind::Opaque;
  std::int32_t first = 0;
  std::int32_t second = 0;
  std::int64_t elems = 0;
  Terms terms = {};  // Gradient
  /// The micro-batch of the step that it is made from, counted from 0.
  static constexpr int kNoBatch = -1;
  static constexpr int kMixed = -2;  // from several
  int batch = kNoBatch;
};

/// The values of a plan, by number. Later values are made from earlier ones.
class Values {
 public:
  static constexpr ValueId kZero = 0;
  static constexpr ValueId kLoss = 1;     // the sum of what the loss operators give
  static constexpr ValueId kUnknown = 2;  // what is not followed

  Values();

  const Value& at(ValueId id) const { return values_[id]; }
  const Application& application(std::int32_t index) const { return applications_[index]; }

  ValueId opaque(std::int64_t elems, int batch = Value::kNoBatch);
  ValueId weights(int unit, int slice, std::int64_t elems);
  ValueId state(int unit, int index, std::int64_t elems);
  /// `slices` as one value: the value itself when there is one slice and that is whole.
  ValueId row(std::span<const Slice> slices);
  ValueId part(ValueId whole, Group group, std::int64_t elems);
  ValueId gradient(ValueId of, Terms terms, unsigned axes);

  /// The application of `kernel` to `operands`, made when there was none; `results`: their sizes.
  struct Applied {
    std::int32_t index = 0;
    bool fresh = false;
  };
  /// `attributes` must outlive this.
  Applied apply(Kernel kernel, const Attributes& attributes, std::vector<ValueId> operands,
                std::span<const std::int64_t> results);

  /// Appends the slices of other values that make up a slice of a row; any other slice itself.
  /// Takes as long as the row is.
  void resolve(const Slice& slice, std::vector<Slice>& slices) const;
  std::vector<Slice> resolved(ValueId id) const;

  /// The application reads the slice as operand `slot`, and its backward gives a term of the
  /// slice's gradient; or, when it passes gradients through, the gradient of `result` is the term.
  void add_consumer(const Slice& slice, Terms term);
  void add_passage(const Slice& slice, ValueId result);

  /// The terms that the whole gradient of the slice has: one of every consumer that there is so
  /// far. Empty when the consumers cut the slice in parts.
  std::optional<Terms> expected(const Slice& slice) { return expected(slice, 0); }

 private:
  struct Passage {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    ValueId result = 0;
  };
  /// Sums of terms by border, so that those over a range take two look-ups.
  struct Borders {
    std::vector<std::pair<std::int64_t, Terms>> sums;  // the terms of borders up to this one
    Terms up_to(std::int64_t border) const;
    bool any_inside(std::int64_t begin, std::int64_t end) const;
  };
  struct Consumer {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    Terms term;
  };
  struct Consumers {
    std::vector<Consumer> list;
    std::vector<Passage> passages;
    Borders begins;  // of `list`, as far as it was when they were made
    Borders ends;
    std::size_t sorted = 0;
    // The last answer, as long as nothing is added.
    std::int64_t begin = -1;
    std::int64_t end = -1;
    std::optional<Terms> answer;
  };

  struct Key {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const { return key.low; }
  };

  ValueId intern(const Key& key, const Value& value);
  std::optional<Terms> expected(const Slice& slice, int depth);
  std::optional<Terms> terms_within(Consumers& consumers, std::int64_t begin, std::int64_t end);

  std::vector<Value> values_;
  std::vector<std::vector<Slice>> rows_;
  std::vector<Application> applications_;
  std::unordered_map<Key, std::int32_t, KeyHash> known_;  // values and applications
  std::unordered_map<ValueId, Consumers> consumers_;
};

}  // namespace shardplan
