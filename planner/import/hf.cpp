#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "planner/import/import_parts.h"
#include "planner/model.h"

namespace shardplan {
namespace {

/// hidden_size of one mapping of a config, or the largest of its hidden_sizes.
std::optional<std::int64_t> hidden_size_in(Fields fields) {
  constexpr std::int64_t kMost = 1 << 20;
  if (const Node* node = fields.find("hidden_size"))
    return integer_of(*node, fields.name_of("hidden_size"), 1, kMost);
  const Node* sizes = fields.find("hidden_sizes");
  if (sizes == nullptr || sizes->items.empty()) return std::nullopt;
  std::int64_t largest = 0;
  for (const Node& item : sizes->items)
    largest = std::max(largest, integer_of(item, fields.name_of("hidden_sizes"), 1, kMost));
  return largest;
}

}  // namespace

std::optional<std::int64_t> hidden_size_of(const ModelJob& model) {
  if (!model.graph.empty()) return std::nullopt;
  const std::string path = config_path(model);
  const Node document = parse_json(read_text(path), path);
  Fields fields(document, "");
  if (const auto size = hidden_size_in(Fields(document, ""))) return size;
  return hidden_size_in(fields.section("text_config"));
}

Imported import_hf(Job job) {
  Imported imported;
  imported.tool = "Hugging Face config";
  const ModelGraph graph = build_model(job.model);
  imported.job = std::move(job);
  imported.set("kind", imported.tool);
  imported.set("family", graph.family);
  imported.set("block_class", fmt::format("{}", fmt::join(graph.block_classes, ", ")));
  imported.set("parameters", graph.parameter_count());
  imported.set("buffers_bytes", std::int64_t{graph.buffers_bytes});
  imported.set("world", std::int64_t{imported.job.world_size()});
  const std::string path = config_path(imported.job.model);
  for (const std::string& remark : graph.remarks)
    importing::warn(imported, path, "config", remark);
  return imported;
}

}  // namespace shardplan
