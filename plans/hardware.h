#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plans/names.h"
#include "plans/operators.h"
#include "plans/units.h"

namespace shardplan {

class Fields;
struct Node;

/// One accelerator of plans/gpus.yaml (or "cpu", a stand-in for this machine's cores).
struct GpuSpec {
  std::string key;                 // "h100-sxm-80"
  std::string name;                // "H100 SXM 80GB"
  std::string compute_capability;  // NVIDIA's, "9.0"; empty: another vendor's, or not known
  int multiprocessors = 0;         // that share the tiles of a product; 0: not known
  Bytes memory_bytes = 0;          // usable by a program, context included
  double memory_bandwidth_bytes_per_s = 0;
  double matmul_flops_bf16 = 0;            // dense, FLOP/s; 0: no such units
  double reachable_matmul_flops_bf16 = 0;  // that large products sustain; 0: not known
  double matmul_flops_fp8 = 0;             // dense, FLOP/s; 0: no such units
  double matmul_flops_fp4 = 0;             // dense, FLOP/s; 0: no such units
  double matmul_flops_fp32 = 0;            // dense, FLOP/s, without TF32
  double link_bytes_per_s = 0;             // GPU to GPU inside a node, one direction; 0: over PCIe
  double pcie_bytes_per_s = 0;             // GPU to host, one direction
  std::string node_type = "pcie";          // an entry of plans/clusters.yaml
  int max_gpus_per_node = 8;
  std::optional<double> price_per_hour;  // USD, an example price with its date in `source`
  std::string source;

  /// True for the stand-in for CPU cores.
  bool is_cpu() const { return node_type == "cpu-host"; }
  /// Matrix units that work while their operands still arrive: wgmma of sm_90, tcgen05 of sm_100.
  bool has_asynchronous_tensor_cores() const {
    return compute_capability.starts_with("9.") || compute_capability.starts_with("10.");
  }
  bool operator==(const GpuSpec&) const = default;
};

/// Bounds of rates (bytes or operations a second) and latencies in input: no time overflows.
constexpr double kLeastRate = 1;
constexpr double kMostRate = 1e18;
constexpr Seconds kMostLatency = 3600;

/// Calls `visit(field, rate, least)` for every rate of a GPU, in bytes or FLOP per second, with the
/// name that gpus.yaml and jobs have for it. Gpu is GpuSpec, const or not.
template <typename Gpu, typename Visit>
void visit_rates(Gpu& gpu, Visit&& visit) {
  visit("memory_bandwidth_bytes_per_s", gpu.memory_bandwidth_bytes_per_s, kLeastRate);
  visit("matmul_flops_bf16", gpu.matmul_flops_bf16, 0);
  visit("reachable_matmul_flops_bf16", gpu.reachable_matmul_flops_bf16, 0);
  visit("matmul_flops_fp8", gpu.matmul_flops_fp8, 0);
  visit("matmul_flops_fp4", gpu.matmul_flops_fp4, 0);
  visit("matmul_flops_fp32", gpu.matmul_flops_fp32, kLeastRate);
  visit("link_bytes_per_s", gpu.link_bytes_per_s, 0);
  visit("pcie_bytes_per_s", gpu.pcie_bytes_per_s, kLeastRate);
}

/// The GPU that a mapping of gpus.yaml, or of a job, defines; `path` names the mapping's fields in
/// errors. Throws InputError.
GpuSpec gpu_from(const Node& mapping, const std::string& key, const std::string& path);

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

/// Calls `visit(field, value, least, most)` for every number that clusters.yaml and jobs have for
/// the links of a node type. Network is NetworkSpec, const or not.
template <typename Network, typename Visit>
void visit_links(Network& network, Visit&& visit) {
  visit("intra_node_latency_s", network.intra_node_latency_s, 0, kMostLatency);
  visit("full_mesh_gpus", network.full_mesh_gpus, 0, 65'536);
  visit("nvls_efficiency", network.nvls_efficiency, 0, 1);
  visit("inter_node_bytes_per_s", network.inter_node_bytes_per_s, kLeastRate, kMostRate);
  visit("inter_node_efficiency", network.inter_node_efficiency, kPositive, 1);
  visit("inter_node_latency_s", network.inter_node_latency_s, 0, kMostLatency);
}

/// Reads the numbers of visit_links() that stand in a mapping. Throws InputError.
void read_links(Fields& fields, NetworkSpec& network);

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

/// A part of a matrix product's result that one multiprocessor computes.
struct ProductTile {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  double share = 1;  // of the matmul rate that it reaches
};

/// Shares of the reachable matmul rate that fused attention has in forward, with heads of 128
/// columns and long sequences.
struct AttentionEfficiency {
  double scale = 1;  // of all of them
  double flash2 = 1;
  double flash2_asynchronous = 1;  // on GPUs whose tensor cores run ahead of the warps that feed
                                   // them (sm_90, sm_100), which these kernels do not use
  double flash3_asynchronous = 1;  // kernels written for those: FlashAttention-3, -4, cuDNN
  double backward = 1;             // backward's rate over forward's
  double head_dim_power = 0;       // rate falls with (columns / 128) to this power
  double ramp_tokens = 0;          // sequence length at which it reaches half its rate
};

/// Constants of the time model that are no property of one GPU; plans/cost_model.yaml has sources.
struct CostConstants {
  double unmeasured_matmul_share = 1;    // of the dense matmul rate that products reach, where no
                                         // GpuSpec::reachable_matmul_flops_bf16 is known
  double matmul_efficiency = 0;          // share of the reachable rate a product of full tiles has
  double asynchronous_matmul_share = 1;  // of that, on GPUs with asynchronous tensor cores
  double narrow_matmul_share = 1;        // of that, where operands of fewer bits raise the rate
  double narrow_cast_bytes = 0;          // moved per operand element to round it to fewer bits
  std::vector<ProductTile> product_tiles;  // that a library chooses from; none: no such loss
  double product_split_share = 1;          // of the rate, when the inner extent is cut in parts
  double product_ramp_elems = 0;           // inner extent at which a tile reaches half its rate
  AttentionEfficiency attention;
  double fused_share = 1;            // of an element-wise kernel's bytes and launch, where a
                                     // compiler puts it into one kernel with its neighbours
  double memory_efficiency = 0;      // share of the memory bandwidth an element-wise kernel reaches
  Seconds kernel_latency_s = 0;      // least time of one launch on the device
  Seconds host_issue_s = 0;          // of the host for each launch
  Seconds host_collective_s = 0;     // of the host for each collective
  Seconds collective_latency_s = 0;  // start of one collective
  double collective_compute_share = 0;  // of the device's compute, while a collective runs
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
    switch (profile) {
      case Profile::CpuOneDnn:
      case Profile::CpuReference: return cpu_costs_;
      case Profile::TorchEager: return torch_costs_;
      case Profile::TorchCompile: return torch_compile_costs_;
      case Profile::Cuda: break;
    }
    return cuda_costs_;
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
  CostConstants torch_costs_;
  CostConstants torch_compile_costs_;
  CostConstants cpu_costs_;
};

/// Folder with the catalogues and presets: $SHARDPLAN_DATA, else beside the installed program, else
/// the source tree the build came from.
std::string data_folder();

}  // namespace shardplan
