#include "planner/import/imported.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "planner/import/import_parts.h"
#include "plans/names.h"

namespace shardplan {

void Imported::set(std::string_view name, FactValue value) {
  const auto found = std::ranges::find(facts, name, &Fact::name);
  if (found != facts.end())
    found->value = std::move(value);
  else
    facts.push_back({std::string(name), std::move(value)});
}

const Fact* Imported::find(std::string_view name) const {
  const auto found = std::ranges::find(facts, name, &Fact::name);
  return found == facts.end() ? nullptr : &*found;
}

namespace importing {

std::string_view short_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::Float32: return "fp32";
    case Dtype::BFloat16: return "bf16";
    case Dtype::Float16: return "fp16";
    default: return to_string(dtype);
  }
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

std::string upper(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return std::toupper(c); });
  return result;
}

Job empty_job(const ImportOptions& options) {
  Job job;
  job.cluster.gpu = options.hardware.gpu("h100-sxm-80");  // the contract's default
  job.cluster.network = options.hardware.network_of(job.cluster.gpu);
  return job;
}

void set_world(Imported& imported, int ranks, int nodes) {
  ClusterJob& cluster = imported.job.cluster;
  if (nodes < 1 || ranks < nodes || ranks % nodes != 0)
    throw InputError(fmt::format("{} GPUs do not divide into {} nodes", ranks, nodes));
  cluster.gpus_per_node = ranks / nodes;
  cluster.nodes = nodes;
  imported.set("world", std::int64_t{ranks});
  imported.set("nodes", std::int64_t{nodes});
  imported.set("gpus_per_node", std::int64_t{cluster.gpus_per_node});
}

void set_shard_group(Imported& imported, int ranks) {
  imported.set("shard_group", std::int64_t{ranks});
  imported.set("replica_groups", std::int64_t{imported.job.world_size() / ranks});
}

void set_state_bytes(Imported& imported, StateBytes bytes) {
  imported.set("state_bytes_per_param_adamw.replicated", bytes.replicated);
  imported.set("state_bytes_per_param_adamw.sharded", bytes.sharded);
  imported.set("state_bytes_per_param_adamw.host", bytes.host);
}

void warn(Imported& imported, const std::string& where, const std::string& key, std::string text) {
  imported.warnings.push_back({where, key, std::move(text)});
}

void leave_open(Imported& imported, const std::string& where, const std::string& key,
                std::string decided_by) {
  imported.open.push_back({where, key, std::move(decided_by)});
}

void warn_unread(Imported& imported, const Fields& fields, std::string_view reader) {
  for (const Entry* entry : fields.unread()) {
    const std::string near = nearest_name(entry->key, fields.known());
    warn(imported, entry->where, fields.name_of(entry->key),
         fmt::format("{} is ignored: {} does not read it{}", entry->key, reader,
                     near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
  }
}

}  // namespace importing
}  // namespace shardplan
