#include "planner/passes/arena.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "planner/passes/buffer_uses.h"
#include "planner/passes/live_bound.h"
#include "plans/lifetimes.h"

namespace shardplan {
namespace {

constexpr Bytes kAlignment = 64;  // a cache line; wider than any vector register

/// A buffer to place.
struct Item {
  const BufferUse* use = nullptr;
  Bytes size = 0;  // aligned

  const Life& life() const { return use->lives.front(); }
  std::int64_t lifetime() const { return life().last - life().first + 1; }
};

std::vector<Item> items_of(const Plan& plan, const std::vector<BufferUse>& uses) {
  std::vector<Item> items;
  for (const BufferUse& use : uses)
    items.push_back({&use, round_up(plan.buffers[use.buffer].bytes(), kAlignment)});
  return items;
}

struct Placement {
  std::vector<Bytes> offsets;  // by item
  Bytes top = 0;
};

/// First fit in the given order: each buffer at the lowest offset free of conflicts.
Placement first_fit(const std::vector<Item>& items, const std::vector<int>& order) {
  Placement result{std::vector<Bytes>(items.size(), 0), 0};
  std::vector<int> placed;  // by offset
  placed.reserve(items.size());
  for (const int candidate : order) {
    const Item& item = items[candidate];
    Bytes offset = 0;
    for (const int other : placed) {
      const Bytes begin = result.offsets[other];
      if (begin >= offset + item.size) break;
      if (begin + items[other].size > offset && !apart(*item.use, *items[other].use))
        offset = begin + items[other].size;
    }
    result.offsets[candidate] = offset;
    result.top = std::max(result.top, offset + item.size);
    const auto place = std::ranges::upper_bound(placed, offset, {},
                                                [&](int other) { return result.offsets[other]; });
    placed.insert(place, candidate);
  }
  return result;
}

/// Total size of the buffers in use at the same time as each, by issue order.
std::vector<double> conflict_weights(const std::vector<Item>& items) {
  std::int32_t end = 0;
  for (const Item& item : items)
    end = std::max(end, item.life().last + 1);
  std::vector<double> begun(end + 1, 0);  // sizes of buffers first used before a position
  std::vector<double> ended(end + 1, 0);  // ... last used before it
  for (const Item& item : items) {
    begun[item.life().first + 1] += static_cast<double>(item.size);
    ended[item.life().last + 1] += static_cast<double>(item.size);
  }
  std::partial_sum(begun.begin(), begun.end(), begun.begin());
  std::partial_sum(ended.begin(), ended.end(), ended.begin());
  std::vector<double> weights;
  for (const Item& item : items)
    weights.push_back(begun[item.life().last + 1] - ended[item.life().first]);
  return weights;
}

/// What lives longest comes first: activations end in the opposite order to their begin, like a
/// stack; gradients fill what they leave; gathered parameters and temporaries fit between.
int role_of(Category category) {
  switch (category) {
    case Category::Activations: return 3;
    case Category::Gradients:
    case Category::UnshardedGradients: return 2;
    case Category::UnshardedParameters: return 1;
    default: return 0;
  }
}

/// Orders in which first fit does well. Over all presets and strategies the first or the second is
/// within 0.1 % of the live bound in nine of ten plans without accumulation and checkpointing.
std::vector<std::vector<int>> orders_to_try(const std::vector<Item>& items, const Plan& plan) {
  using Key = std::pair<double, double>;
  const std::vector<double> weights = conflict_weights(items);
  const auto size = [&](int i) { return static_cast<double>(items[i].size); };
  const auto lifetime = [&](int i) { return static_cast<double>(items[i].lifetime()); };
  const auto role = [&](int i) { return role_of(plan.buffers[items[i].use->buffer].category); };
  const std::vector<std::function<Key(int)>> keys{
      [&](int i) {
        return Key{role(i), lifetime(i)};
      },
      [&](int i) {
        return Key{size(i), 0};
      },
      [&](int i) {
        return Key{weights[i] * size(i), 0};
      },
      [&](int i) {
        return Key{size(i) * lifetime(i), 0};
      },
  };
  std::vector<std::vector<int>> orders;
  for (const auto& key : keys) {
    std::vector<int>& order = orders.emplace_back(items.size());
    std::iota(order.begin(), order.end(), 0);
    std::vector<Key> value(items.size());
    for (const int i : order)
      value[i] = key(i);
    std::ranges::sort(order, [&](int a, int b) {
      if (value[a] != value[b]) return value[a] > value[b];
      return items[a].size != items[b].size ? items[a].size > items[b].size : a < b;
    });
  }
  return orders;
}

/// The best of first fit in some orders; stops early when `bound` is reached within 0.1 %. Where
/// none comes near, what sticks out above the bound is placed first in another round (Joslin and
/// Clements, "Squeaky wheel" optimization, 1999).
Placement best_placement(const std::vector<Item>& items, const Plan& plan, Bytes bound) {
  constexpr int kRounds = 16;
  const auto reached = [&](const Placement& placement, Bytes slack) {
    return placement.top <= bound + slack;
  };
  Placement best{{}, std::numeric_limits<Bytes>::max()};
  std::vector<int> best_order;
  for (std::vector<int>& order : orders_to_try(items, plan)) {
    Placement placement = first_fit(items, order);
    if (placement.top >= best.top) continue;
    best = std::move(placement);
    best_order = std::move(order);
    if (reached(best, bound / 1000)) return best;
  }
  Placement current = best;
  for (int round = 0; round < kRounds && !reached(best, bound / 100); ++round) {
    // Not std::ranges': clang 14 does not compile libstdc++'s.
    std::stable_partition(best_order.begin(), best_order.end(),
                          [&](int i) { return current.offsets[i] + items[i].size > bound; });
    current = first_fit(items, best_order);
    if (current.top < best.top) best = current;
  }
  return best;
}

}  // namespace

void pack_arena(Plan& plan) {
  Bytes prefix = 0;
  for (Buffer& buffer : plan.buffers) {
    if (!buffer.resident || buffer.space != Space::Device) continue;
    buffer.offset = prefix;
    prefix += round_up(buffer.bytes(), kAlignment);
  }
  const std::vector<InstructionId> order = unroll(plan, 1);
  const std::vector<Lifetime> lives = lifetimes(plan, order);
  plan.arena.issue_order_bytes = live_peak(live_bytes(plan, lives, order.size())).bytes;
  const std::vector<BufferUse> uses = buffer_uses(plan);
  const std::vector<Item> items = items_of(plan, uses);
  plan.arena.live_bound_bytes = live_bound(plan, uses);
  const Placement placement = best_placement(items, plan, plan.arena.live_bound_bytes - prefix);
  for (std::size_t i = 0; i < items.size(); ++i)
    plan.buffers[items[i].use->buffer].offset = prefix + placement.offsets[i];
  plan.arena.bytes = 0;
  for (const Buffer& buffer : plan.buffers)
    if (buffer.space == Space::Device)
      plan.arena.bytes = std::max(plan.arena.bytes, buffer.offset + buffer.bytes());
}

}  // namespace shardplan
