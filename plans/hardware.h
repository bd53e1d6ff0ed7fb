#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plans/names.h"
#include "plans/operators.h"
#include "plans/units.h"

namespace shardplan {

struct Node;

/// One accelerator of plans/gpus.yaml (or "cpu", a stand-in for this machine's cores).
struct GpuSpec {
  std::string key;         // "h100-sxm-80"
  std::string name;        // "H100 SXM 80GB"
  Bytes memory_bytes = 0;  // usable by a program, context included
  double memory_bandwidth_bytes_per_s = 0;
  double matmul_flops_bf16 = 0;    // dense, FLOP/s; 0: no such units
  double matmul_flops_fp32 = 0;    // dense, FLOP/s, without TF32
  double link_bytes_per_s = 0;     // GPU to GPU inside a node, one direction; 0: over PCIe
  double pcie_bytes_per_s = 0;     // GPU to host, one direction
  std::string node_type = "pcie";  // an entry of plans/clusters.yaml
  int max_gpus_per_node = 8;
  std::optional<double> price_per_hour;  // USD, an example price with its date in `source`
  std::string source;

  /// True for the stand-in for CPU cores.
  bool is_cpu() const { return node_type == "cpu-host"; }
  bool operator==(const GpuSpec&) const = default;
};

/// The GPU that a mapping of gpus.yaml, or of a job, defines; `path` names the mapping's fields in
/// errors. Throws InputError.
GpuSpec gpu_from(const Node& mapping, const std::string& key, const std::string& path);

/// Bounds of rates (bytes or operations a second) and latencies in input: no time overflows.
constexpr double kLeastRate = 1;
constexpr double kMostRate = 1e18;
constexpr Seconds kMostLatency = 3600;

/// How the GPUs of a node reach each other: over links of their own (NVLink, xGMI), or over PCIe.
enum class NodeLink { Direct, Pcie };
/// "direct", "pcie".
std::string_view to_string(NodeLink link);
NodeLink node_link_from(std::string_view name);

/// Links between GPUs: inside a node and between nodes.
struct NetworkSpec {
  NodeLink intra_node_link = NodeLink::Direct;
  double intra_node_bytes_per_s = 0;  // per GPU, one direction
  double intra_node_efficiency = 1;   // share of it that a ring reaches
  double intra_node_latency_s = 0;    // per hop, beside the library's own
  int full_mesh_gpus = 0;             // wired one by one, so that few use few links; 0: a switch
  double nvls_efficiency = 0;  // share of a ring's rate that sums in the switch reach; 0: none
  double inter_node_bytes_per_s = 0;  // per node, one direction
  double inter_node_efficiency = 1;   // share of it that a collective reaches
  double inter_node_latency_s = 0;    // per hop, beside the library's own

  bool operator==(const NetworkSpec&) const = default;
};

/// How a library sums or gathers: along a ring, up and down a binary tree of nodes, or in the
/// switch of a node (NVLink SHARP), with a tree between nodes.
enum class CollectiveAlgorithm { Ring, Tree, Nvls, NvlsTree };
/// NCCL's names: "Ring", "Tree", "NVLS", "NVLSTree".
std::string_view to_string(CollectiveAlgorithm algorithm);
CollectiveAlgorithm collective_algorithm_from(std::string_view name);

/// A library's implementation of an algorithm, by one of its protocols: it starts after `base_s`,
/// passes data on in the time of a hop, and moves it at `rate_share` of the links' rate.
struct CollectiveProtocol {
  std::string name;  // "ring_ll128"
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::Ring;
  Seconds base_s = 0;
  Seconds direct_hop_s = 0;
  Seconds pcie_hop_s = 0;
  Seconds network_hop_s = 0;
  double rate_share = 1;
};

/// Constants of the time model that are no property of one GPU; plans/cost_model.yaml has sources.
struct CostConstants {
  double matmul_efficiency = 0;      // share of the dense matmul rate a large product reaches
  double attention_efficiency = 0;   // share of the dense matmul rate fused attention reaches
  double memory_efficiency = 0;      // share of the memory bandwidth an element-wise kernel reaches
  Seconds kernel_latency_s = 0;      // least time of one launch on the device
  Seconds collective_latency_s = 0;  // start of one collective
  std::vector<CollectiveProtocol> collective_protocols;  // the library takes the fastest
  Bytes device_context_bytes = 0;  // taken by the driver before the first allocation
  Bytes communicator_bytes = 0;    // taken by NCCL per communicator
};

/// The catalogue, read from the data folder (plans/*.yaml).
class Hardware {
 public:
  /// Reads gpus.yaml, clusters.yaml and cost_model.yaml below `folder`. Throws InputError.
  static Hardware read(const std::string& folder);

  /// The GPU a user means: case, spaces, '-', '_', "gb", "nvidia" and "geforce" do not count.
  /// Throws InputError with the candidates when none or several match.
  const GpuSpec& gpu(std::string_view name) const;
  const std::vector<GpuSpec>& gpus() const { return gpus_; }
  /// Links of a node of such GPUs and between nodes. Throws InputError for an unknown node type.
  NetworkSpec network_of(const GpuSpec& gpu) const;
  /// Constants of the model when `profile` executes.
  const CostConstants& costs(Profile profile) const {
    return is_cpu(profile) ? cpu_costs_ : cuda_costs_;
  }

 private:
  struct NodeType {
    std::string name;
    NetworkSpec network;  // without the link inside the node and its rate, which the GPU sets
    double direct_efficiency = 0;  // intra_node_efficiency of GPUs with links of their own
    double pcie_efficiency = 0;    // and of others
  };
  void read_gpus(const std::string& path);
  void read_node_types(const std::string& path);
  void read_costs(const std::string& path);

  std::vector<GpuSpec> gpus_;
  std::vector<Spellings> spellings_;  // by index into gpus_
  std::vector<NodeType> node_types_;
  CostConstants cuda_costs_;
  CostConstants cpu_costs_;
};

/// Folder with the catalogues and presets: $SHARDPLAN_DATA, else beside the installed program, else
/// the source tree the build came from.
std::string data_folder();

}  // namespace shardplan
