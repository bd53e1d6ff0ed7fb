#include "plans/values.h"

#include <algorithm>
#include <bit>

namespace shardplan {
namespace {

/// Gradients pass through so many additions at most; residual streams have two a block.
constexpr int kDeepest = 10'000;

/// A step of SplitMix64 (Steele, Lea and Flood 2014), used as a hash.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// 128 bits in two lanes that differ in their seed.
class Hasher {
 public:
  Hasher& add(std::uint64_t number) {
    low_ = mix(low_ ^ number);
    high_ = mix(high_ + number);
    return *this;
  }
  Hasher& add(std::int64_t number) { return add(static_cast<std::uint64_t>(number)); }
  Hasher& add(std::int32_t number) { return add(static_cast<std::int64_t>(number)); }
  std::uint64_t low() const { return low_; }
  std::uint64_t high() const { return high_; }

 private:
  std::uint64_t low_ = 0x243f6a8885a308d3u;  // digits of pi
  std::uint64_t high_ = 0x13198a2e03707344u;
};

int joint(int batch, int other) {
  if (batch == Value::kNoBatch) return other;
  return other == Value::kNoBatch || other == batch ? batch : Value::kMixed;
}

constexpr std::int32_t kApplication = 100;  // apart from the kinds of values, among the keys

}  // namespace

Terms term_of(std::int32_t application, int slot) {
  const Hasher hash = Hasher().add(application).add(slot);
  return {hash.low(), hash.high()};
}

Values::Values() : values_{{.kind = Value::Kind::Zero}, {.elems = 1}, {}} {}

ValueId Values::intern(const Key& key, const Value& value) {
  const auto [place, fresh] = known_.emplace(key, static_cast<ValueId>(values_.size()));
  if (fresh) values_.push_back(value);
  return place->second;
}

ValueId Values::opaque(std::int64_t elems, int batch) {
  values_.push_back({.elems = elems, .batch = batch});
  return static_cast<ValueId>(values_.size()) - 1;
}

ValueId Values::weights(int unit, int slice, std::int64_t elems) {
  values_.push_back({Value::Kind::Weights, unit, slice, elems});
  return static_cast<ValueId>(values_.size()) - 1;
}

ValueId Values::state(int unit, int index, std::int64_t elems) {
  const Hasher hash =
      Hasher().add(static_cast<std::int32_t>(Value::Kind::State)).add(unit).add(index);
  return intern({hash.low(), hash.high()}, {Value::Kind::State, unit, index, elems});
}

ValueId Values::row(std::span<const Slice> slices) {
  if (slices.size() == 1) {
    const Value& only = values_[slices[0].value];
    if (only.kind == Value::Kind::Zero) return kZero;
    if (slices[0].at == 0 && slices[0].elems == only.elems) return slices[0].value;
  }
  Hasher hash;
  hash.add(static_cast<std::int32_t>(Value::Kind::Row));
  const auto index = static_cast<std::int32_t>(rows_.size());
  Value row{.kind = Value::Kind::Row, .first = index};
  for (const Slice& slice : slices) {
    hash.add(slice.value).add(slice.at).add(slice.elems);
    row.elems += slice.elems;
    row.batch = joint(row.batch, values_[slice.value].batch);
  }
  const ValueId id = intern({hash.low(), hash.high()}, row);
  if (values_[id].first == index) rows_.emplace_back(slices.begin(), slices.end());
  return id;
}

ValueId Values::part(ValueId whole, Group group, std::int64_t elems) {
  if (whole == kZero) return kZero;
  const Hasher hash = Hasher()
                          .add(static_cast<std::int32_t>(Value::Kind::Part))
                          .add(whole)
                          .add(static_cast<std::int32_t>(group));
  return intern({hash.low(), hash.high()},
                {Value::Kind::Part, whole, static_cast<std::int32_t>(group), elems});
}

ValueId Values::gradient(ValueId of, Terms terms, unsigned axes) {
  const Hasher hash = Hasher()
                          .add(static_cast<std::int32_t>(Value::Kind::Gradient))
                          .add(of)
                          .add(terms.low)
                          .add(terms.high)
                          .add(static_cast<std::uint64_t>(axes));
  return intern(
      {hash.low(), hash.high()},
      {Value::Kind::Gradient, of, static_cast<std::int32_t>(axes), values_[of].elems, terms});
}

Values::Applied Values::apply(Kernel kernel, const Attributes& attributes,
                              std::vector<ValueId> operands,
                              std::span<const std::int64_t> results) {
  Hasher hash;
  hash.add(kApplication).add(static_cast<std::int32_t>(kernel));
  for (const auto& [attribute, value] : attributes.entries())
    hash.add(static_cast<std::int32_t>(attribute)).add(std::bit_cast<std::uint64_t>(value));
  for (const ValueId operand : operands)
    hash.add(operand);
  const auto next = static_cast<std::int32_t>(applications_.size());
  const auto [place, fresh] = known_.emplace(Key{hash.low(), hash.high()}, next);
  if (!fresh) return {place->second, false};
  int batch = Value::kNoBatch;
  for (const ValueId operand : operands)
    batch = joint(batch, values_[operand].batch);
  Application& made =
      applications_.emplace_back(Application{kernel, &attributes, std::move(operands), {}});
  for (std::size_t i = 0; i < results.size(); ++i) {
    made.results.push_back(static_cast<ValueId>(values_.size()));
    values_.push_back(
        {Value::Kind::Result, next, static_cast<std::int32_t>(i), results[i], {}, batch});
  }
  return {next, true};
}

void Values::resolve(const Slice& slice, std::vector<Slice>& slices) const {
  const auto append = [&](const Slice& more) {
    if (!slices.empty() && slices.back().value == more.value &&
        (more.value == kZero || slices.back().at + slices.back().elems == more.at))
      slices.back().elems += more.elems;
    else
      slices.push_back(more);
  };
  if (values_[slice.value].kind != Value::Kind::Row) return append(slice);
  std::int64_t begin = 0;
  for (const Slice& piece : rows_[values_[slice.value].first]) {
    const std::int64_t from = std::max(slice.at, begin);
    const std::int64_t to = std::min(slice.at + slice.elems, begin + piece.elems);
    if (from < to) append({piece.value, piece.at + from - begin, to - from});
    begin += piece.elems;
    if (begin >= slice.at + slice.elems) break;
  }
}

std::vector<Slice> Values::resolved(ValueId id) const {
  std::vector<Slice> slices;
  resolve({id, 0, values_[id].elems}, slices);
  return slices;
}

void Values::add_consumer(const Slice& slice, Terms term) {
  Consumers& consumers = consumers_[slice.value];
  consumers.list.push_back({slice.at, slice.at + slice.elems, term});
  consumers.begin = -1;
}

void Values::add_passage(const Slice& slice, ValueId result) {
  Consumers& consumers = consumers_[slice.value];
  consumers.passages.push_back({slice.at, slice.at + slice.elems, result});
  consumers.begin = -1;
}

Terms Values::Borders::up_to(std::int64_t border) const {
  const auto after =
      std::ranges::upper_bound(sums, border, {}, &std::pair<std::int64_t, Terms>::first);
  return after == sums.begin() ? Terms{} : std::prev(after)->second;
}

bool Values::Borders::any_inside(std::int64_t begin, std::int64_t end) const {
  const auto after =
      std::ranges::upper_bound(sums, begin, {}, &std::pair<std::int64_t, Terms>::first);
  return after != sums.end() && after->first < end;
}

/// The terms of the consumers that touch [begin, end), when all of them read the whole of it.
std::optional<Terms> Values::terms_within(Consumers& consumers, std::int64_t begin,
                                          std::int64_t end) {
  if (consumers.sorted != consumers.list.size()) {
    consumers.sorted = consumers.list.size();
    for (const bool of_begins : {true, false}) {
      auto& sums = (of_begins ? consumers.begins : consumers.ends).sums;
      sums.clear();
      for (const Consumer& consumer : consumers.list)
        sums.emplace_back(of_begins ? consumer.begin : consumer.end, consumer.term);
      std::ranges::sort(sums, {}, &std::pair<std::int64_t, Terms>::first);
      for (std::size_t i = 1; i < sums.size(); ++i)
        sums[i].second = sums[i].second + sums[i - 1].second;
    }
  }
  if (consumers.begins.any_inside(begin, end) || consumers.ends.any_inside(begin, end))
    return std::nullopt;
  return consumers.begins.up_to(begin) - consumers.ends.up_to(begin);
}

std::optional<Terms> Values::expected(const Slice& slice, int depth) {
  const auto found = consumers_.find(slice.value);
  if (found == consumers_.end()) return Terms{};
  Consumers& consumers = found->second;
  const std::int64_t end = slice.at + slice.elems;
  if (consumers.begin == slice.at && consumers.end == end) return consumers.answer;
  std::optional<Terms> sum = terms_within(consumers, slice.at, end);
  for (const Passage& passage : consumers.passages) {
    if (!sum || passage.end <= slice.at || passage.begin >= end) continue;
    if (passage.begin > slice.at || passage.end < end || depth >= kDeepest) {
      sum.reset();
      break;
    }
    const std::optional<Terms> through =
        expected({passage.result, slice.at - passage.begin, slice.elems}, depth + 1);
    if (through)
      sum = *sum + *through;
    else
      sum.reset();
  }
  consumers.begin = slice.at;
  consumers.end = end;
  consumers.answer = sum;
  return sum;
}

}  // namespace shardplan
