#include "plans/hardware.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <filesystem>

#include "plans/document.h"

namespace shardplan {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;  // of one GPU's memory

constexpr std::array kNodeLinks{EnumName{NodeLink::Direct, "direct"},
                                EnumName{NodeLink::Pcie, "pcie"}};
constexpr std::array kCollectiveAlgorithms{EnumName{CollectiveAlgorithm::Ring, "Ring"},
                                           EnumName{CollectiveAlgorithm::Tree, "Tree"},
                                           EnumName{CollectiveAlgorithm::Nvls, "NVLS"},
                                           EnumName{CollectiveAlgorithm::NvlsTree, "NVLSTree"}};

/// A constant of cost_model.yaml: {value, source}, the source for the reader of the file.
double constant(Fields& fields, std::string_view key) {
  Fields entry = fields.section(key);
  double value = -1;
  std::string source;
  entry.read("value", value, 0);
  entry.read("source", source);
  entry.refuse_unknown();
  if (value < 0 || source.empty())
    fields.fail(fmt::format("{} needs a value and a source", fields.name_of(key)));
  return value;
}

CollectiveProtocol protocol_from(const std::string& name, Fields fields) {
  CollectiveProtocol protocol;
  protocol.name = name;
  read_name(fields, "algorithm", protocol.algorithm, collective_algorithm_from);
  fields.read("base_s", protocol.base_s, 0, kMostLatency);
  fields.read("direct_hop_s", protocol.direct_hop_s, 0, kMostLatency);
  fields.read("pcie_hop_s", protocol.pcie_hop_s, 0, kMostLatency);
  fields.read("network_hop_s", protocol.network_hop_s, 0, kMostLatency);
  fields.read("rate_share", protocol.rate_share, kPositive, 1);
  fields.refuse_unknown();
  return protocol;
}

std::vector<CollectiveProtocol> protocols_from(Fields fields) {
  std::string source;
  fields.read("source", source);
  const Node* entries = fields.find("value");
  if (source.empty() || entries == nullptr || entries->entries.empty())
    fields.fail(
        fmt::format("{} needs a value, protocols by name, and a source", fields.name_of("")));
  std::vector<CollectiveProtocol> protocols;
  for (const Entry& entry : entries->entries)
    protocols.push_back(protocol_from(entry.key, Fields(entry.value, entry.key)));
  fields.refuse_unknown();
  return protocols;
}

std::vector<ProductTile> tiles_from(Fields fields) {
  std::string source;
  fields.read("source", source);
  const Node* entries = fields.find("value");
  if (source.empty() || entries == nullptr)
    fields.fail(fmt::format("{} needs a value, a list of tiles, and a source", fields.name_of("")));
  std::vector<ProductTile> tiles;
  for (const Node& entry : entries->items) {
    Fields tile(entry, fields.name_of("value"));
    tiles.emplace_back();
    tile.read("rows", tiles.back().rows, 1, 65'536);
    tile.read("columns", tiles.back().columns, 1, 65'536);
    tile.read("share", tiles.back().share, kPositive, 1);
    tile.refuse_unknown();
  }
  fields.refuse_unknown();
  return tiles;
}

void read_host_costs(Fields& fields, CostConstants& costs) {
  costs.host_issue_s = constant(fields, "host_issue_s");
  costs.host_collective_s = constant(fields, "host_collective_s");
}

AttentionEfficiency attention_from(Fields fields) {
  std::string source;
  fields.read("source", source);
  Fields value = fields.section("value");
  AttentionEfficiency attention{.flash2 = 0, .flash2_asynchronous = 0, .flash3_asynchronous = 0};
  value.read("flash2", attention.flash2, kPositive, 1);
  value.read("flash2_asynchronous", attention.flash2_asynchronous, kPositive, 1);
  value.read("flash3_asynchronous", attention.flash3_asynchronous, kPositive, 1);
  value.read("backward", attention.backward, kPositive, 2);
  value.read("head_dim_power", attention.head_dim_power, 0, 2);
  value.read("ramp_tokens", attention.ramp_tokens, 0, 1e6);
  value.refuse_unknown();
  fields.refuse_unknown();
  if (source.empty() || attention.flash2 == 0 || attention.flash2_asynchronous == 0 ||
      attention.flash3_asynchronous == 0)
    fields.fail(
        fmt::format("{} needs flash2, flash2_asynchronous, flash3_asynchronous and a source",
                    fields.name_of("value")));
  return attention;
}

CostConstants costs_from(Fields fields) {
  CostConstants costs;
  costs.unmeasured_matmul_share = constant(fields, "unmeasured_matmul_share");
  costs.matmul_efficiency = constant(fields, "matmul_efficiency");
  costs.asynchronous_matmul_share = constant(fields, "asynchronous_matmul_share");
  costs.narrow_matmul_share = constant(fields, "narrow_matmul_share");
  costs.narrow_cast_bytes = constant(fields, "narrow_cast_bytes");
  costs.product_tiles = tiles_from(fields.section("product_tiles"));
  costs.product_split_share = constant(fields, "product_split_share");
  costs.product_ramp_elems = constant(fields, "product_ramp_elems");
  costs.attention = attention_from(fields.section("attention_efficiency"));
  costs.attention.scale = constant(fields, "attention_scale");
  costs.memory_efficiency = constant(fields, "memory_efficiency");
  costs.kernel_latency_s = constant(fields, "kernel_latency_s");
  read_host_costs(fields, costs);
  costs.collective_latency_s = constant(fields, "collective_latency_s");
  costs.collective_compute_share = constant(fields, "collective_compute_share");
  costs.collective_protocols = protocols_from(fields.section("collective_protocols"));
  costs.device_context_bytes = static_cast<Bytes>(constant(fields, "device_context_bytes"));
  costs.communicator_bytes = static_cast<Bytes>(constant(fields, "communicator_bytes"));
  fields.refuse_unknown();
  return costs;
}

}  // namespace

std::string_view to_string(NodeLink link) { return name_of(kNodeLinks, link); }
NodeLink node_link_from(std::string_view name) {
  return value_of(kNodeLinks, name, "link inside a node");
}

std::string_view to_string(CollectiveAlgorithm algorithm) {
  return name_of(kCollectiveAlgorithms, algorithm);
}
CollectiveAlgorithm collective_algorithm_from(std::string_view name) {
  return value_of(kCollectiveAlgorithms, name, "algorithm");
}

void read_links(Fields& fields, NetworkSpec& network) {
  visit_links(network, [&](std::string_view field, auto& value, auto least, auto most) {
    fields.read(field, value, least, most);
  });
}

GpuSpec gpu_from(const Node& mapping, const std::string& key, const std::string& path) {
  GpuSpec gpu;
  gpu.key = key;
  gpu.name = key;
  Fields fields(mapping, path);
  fields.read("key", gpu.key);
  fields.read("name", gpu.name);
  fields.find("aliases");  // of the catalogue, which reads them itself
  fields.read("compute_capability", gpu.compute_capability);
  fields.read("multiprocessors", gpu.multiprocessors, 0, 65'536);
  fields.read("memory_bytes", gpu.memory_bytes, 1, kMostBytes);
  visit_rates(gpu, [&](std::string_view field, double& rate, double least) {
    fields.read(field, rate, least, kMostRate);
  });
  fields.read("node_type", gpu.node_type);
  fields.read("max_gpus_per_node", gpu.max_gpus_per_node, 1, 65'536);
  if (const Node* price = fields.find("price_per_hour"))
    gpu.price_per_hour = real_of(*price, fields.name_of("price_per_hour"), 0, kNoLimit);
  fields.read("source", gpu.source);
  fields.refuse_unknown();
  for (const auto& [name, value] :
       {std::pair{"memory_bytes", static_cast<double>(gpu.memory_bytes)},
        std::pair{"memory_bandwidth_bytes_per_s", gpu.memory_bandwidth_bytes_per_s},
        std::pair{"matmul_flops_fp32", gpu.matmul_flops_fp32},
        std::pair{"pcie_bytes_per_s", gpu.pcie_bytes_per_s}})
    if (value == 0) fail(mapping, fmt::format("{} is missing", fields.name_of(name)));
  return gpu;
}

Hardware Hardware::read(const std::string& folder) {
  Hardware hardware;
  hardware.read_gpus(folder + "/gpus.yaml");
  hardware.read_node_types(folder + "/clusters.yaml");
  hardware.read_costs(folder + "/cost_model.yaml");
  return hardware;
}

void Hardware::read_gpus(const std::string& path) {
  const Node document = parse_yaml(read_text(path), path);
  for (const auto& [key, where, value] : document.entries) {
    gpus_.push_back(gpu_from(value, key, key));
    Spellings spellings{key, gpus_.back().name};
    Fields fields(value, key);
    if (const Node* aliases = fields.find("aliases"))
      for (const std::string& alias : texts_of(*aliases, fields.name_of("aliases")))
        spellings.push_back(alias);
    spellings_.push_back(std::move(spellings));
  }
}

void Hardware::read_node_types(const std::string& path) {
  const Node document = parse_yaml(read_text(path), path);
  for (const auto& [key, where, value] : document.entries) {
    NodeType type;
    type.name = key;
    std::string source;
    Fields fields(value, key);
    NetworkSpec& network = type.network;
    fields.read("direct_efficiency", type.direct_efficiency, kPositive, 1);
    fields.read("pcie_efficiency", type.pcie_efficiency, kPositive, 1);
    read_links(fields, network);
    fields.read("source", source);
    fields.refuse_unknown();
    if (network.inter_node_bytes_per_s == 0 || type.direct_efficiency == 0 ||
        type.pcie_efficiency == 0 || source.empty())
      fail(value, fmt::format("{} needs direct_efficiency, pcie_efficiency, "
                              "inter_node_bytes_per_s and source",
                              key));
    node_types_.push_back(std::move(type));
  }
}

void Hardware::read_costs(const std::string& path) {
  const Node document = parse_yaml(read_text(path), path);
  Fields fields(document, "");
  cuda_costs_ = costs_from(fields.section("cuda"));
  cpu_costs_ = costs_from(fields.section("cpu"));
  torch_costs_ = cuda_costs_;
  Fields torch = fields.section("torch-eager");
  torch_costs_.matmul_efficiency = constant(torch, "matmul_efficiency");
  torch_costs_.narrow_cast_bytes = constant(torch, "narrow_cast_bytes");
  read_host_costs(torch, torch_costs_);
  torch.refuse_unknown();
  torch_compile_costs_ = torch_costs_;
  Fields compiled = fields.section("torch-compile");
  torch_compile_costs_.fused_share = constant(compiled, "fused_share");
  torch_compile_costs_.narrow_cast_bytes = constant(compiled, "narrow_cast_bytes");
  compiled.refuse_unknown();
  fields.refuse_unknown();
}

const GpuSpec& Hardware::gpu(std::string_view name) const {
  return gpus_[match_catalogue("GPU", name, spellings_)];
}

NetworkSpec Hardware::network_of(const GpuSpec& gpu) const {
  std::vector<std::string> known;
  for (const NodeType& type : node_types_) {
    known.push_back(type.name);
    if (type.name != gpu.node_type) continue;
    NetworkSpec network = type.network;
    const bool direct = gpu.link_bytes_per_s > 0;
    network.intra_node_link = direct ? NodeLink::Direct : NodeLink::Pcie;
    network.intra_node_bytes_per_s = direct ? gpu.link_bytes_per_s : gpu.pcie_bytes_per_s;
    network.intra_node_efficiency = direct ? type.direct_efficiency : type.pcie_efficiency;
    return network;
  }
  throw InputError(unknown_name("node type", gpu.node_type, known));
}

std::string data_folder() {
  namespace fs = std::filesystem;
  if (const char* folder = std::getenv("SHARDPLAN_DATA"); folder != nullptr && *folder != '\0')
    return folder;
  std::error_code error;  // an unreadable link means: not installed
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  const fs::path installed = program.parent_path().parent_path() / "share" / "shardplan";
  if (!error && fs::exists(installed / "gpus.yaml", error)) return installed.string();
  return SHARDPLAN_SOURCE_DATA;
}

}  // namespace shardplan
