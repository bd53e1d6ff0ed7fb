#include "tests/oracle/allocator.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plans/error.h"
#include "simulator/caching_allocator.h"
#include "tests/oracle/document.h"

namespace shardplan::oracle {
namespace {

using nlohmann::json;

constexpr Bytes kMiB = 1 << 20;

/// Options under PyTorch's names, or `expandable` as the cases shorten it.
CachingAllocatorOptions options_of(const json& settings) {
  CachingAllocatorOptions options;
  for (const auto& [key, value] : settings.items()) {
    if (key == "expandable" || key == "expandable_segments")
      options.expandable_segments = value;
    else if (key == "max_split_size_mb")
      options.max_split_size = value.get<Bytes>() * kMiB;
    else if (key == "max_non_split_rounding_mb")
      options.max_non_split_rounding = value.get<Bytes>() * kMiB;
    else if (key == "roundup_power2_divisions")
      options.roundup_power2_divisions = value.is_array() ? value.get<std::vector<std::int64_t>>()
                                                          : std::vector{value.get<std::int64_t>()};
    else if (key == "garbage_collection_threshold")
      options.garbage_collection_threshold = value;
    else if (key == "limit")
      options.limit = value;
    else
      throw InputError(fmt::format("option {} is not known", key));
  }
  return options;
}

/// "default", "expandable_segments", "roundup_power2_divisions_8".
CachingAllocatorOptions options_named(const std::string& name) {
  const std::string divisions = "roundup_power2_divisions_";
  if (name == "default") return options_of(json::object());
  if (name.starts_with(divisions))
    return options_of({{"roundup_power2_divisions", std::stoll(name.substr(divisions.size()))}});
  return options_of({{name, true}});
}

/// Collects what differs, of the figures that the case names.
class Comparison {
 public:
  void equal(const std::string& where, const json& expected, const std::string& key, Bytes got) {
    if (!expected.contains(key)) return;
    ++figures_;
    const Bytes wanted = expected.at(key);
    if (got == wanted) return;
    ++wrong_;
    if (first_.empty())
      first_ = fmt::format(", first {} {}: {} instead of {}", where, key, got, wanted);
  }
  Check check() const {
    return {fmt::format("figures of {} that differ{}", figures_, first_),
            static_cast<double>(wrong_), 0};
  }

 private:
  int figures_ = 0;
  int wrong_ = 0;
  std::string first_;
};

Check single_request(const json& one) {
  Comparison comparison;
  for (const auto& [name, expected] : one.items()) {
    if (!expected.is_object()) continue;
    CachingAllocator allocator(options_named(name));
    const auto block = allocator.allocate(one.at("request"), 0);
    const auto placed = allocator.placement(block.value());
    comparison.equal(name, expected, "block", placed.bytes);
    comparison.equal(name, expected, "reserved", allocator.use().reserved);
    comparison.equal(name, expected, "left_over", allocator.use().reserved - placed.bytes);
    comparison.equal(name, {{"small", expected.at("pool") == "small" ? 1 : 0}}, "small",
                     placed.small_pool);
  }
  return comparison.check();
}

/// The step, counted from `from`, at which the work of other streams is done: events_done.
Seconds events_done(const json& steps, std::size_t from) {
  for (std::size_t at = from; at < steps.size(); ++at)
    if (steps[at].at("op") == "events_done") return static_cast<Seconds>(at);
  return std::numeric_limits<Seconds>::max();
}

Check sequence(const json& one) {
  CachingAllocator allocator(options_of(one.at("options")));
  std::map<std::string, CachingAllocator::BlockId> blocks;
  Comparison comparison;
  const json& steps = one.at("steps");
  for (std::size_t at = 0; at < steps.size(); ++at) {
    const json& step = steps[at];
    const std::string op = step.at("op");
    const std::string where = fmt::format("step {} ({})", at, op);
    if (op == "malloc") {
      const auto block =
          allocator.allocate(step.at("bytes"), step.at("stream"), static_cast<Seconds>(at));
      if (!block) throw InputError(where + ": out of memory");
      const auto placed = allocator.placement(*block);
      comparison.equal(where, step, "segment", placed.segment);
      comparison.equal(where, step, "offset", placed.at);
      comparison.equal(where, step, "block", placed.bytes);
      blocks[step.at("name")] = *block;
    } else if (op == "free") {
      const auto block = blocks.at(step.at("name"));
      if (step.value("other_stream_busy", false))
        allocator.release_after(block, events_done(steps, at));
      else
        allocator.release(block);
    } else if (op == "empty_cache") {
      allocator.empty_cache();
    } else if (op != "events_done") {
      throw InputError(where + ": not known");
    }
    const AllocatorUse& use = allocator.use();
    comparison.equal(where, step, "requested", use.requested);
    comparison.equal(where, step, "allocated", use.allocated);
    comparison.equal(where, step, "reserved", use.reserved);
    comparison.equal(where, step, "inactive_split", use.inactive_split);
    comparison.equal(where, step, "segments", use.segments);
    comparison.equal(where, step, "peak_reserved", allocator.peak().reserved);
  }
  return comparison.check();
}

Outcome outcome_of(const json& one) {
  const std::string type = one.at("type");
  Outcome outcome{.name = fmt::format("{} {}", one.at("id").get<int>(), type),
                  .checks = {},
                  .error = {},
                  .skipped = {}};
  if (type == "sequence")
    outcome.name += ": " + one.at("name").get<std::string>();
  else
    outcome.name += fmt::format(" of {} B", one.at("request").get<Bytes>());
  try {
    outcome.checks.push_back(type == "sequence" ? sequence(one) : single_request(one));
  } catch (const InputError& error) {
    outcome.error = error.what();
  }
  return outcome;
}

}  // namespace

int allocator(const std::filesystem::path& file, Scorecard::Form form) {
  Scorecard scorecard(form);
  with_document(file, [&](const json& document) {
    for (const json& one : document.at("cases"))
      scorecard.add(outcome_of(one));
  });
  return scorecard.close();
}

}  // namespace shardplan::oracle
