#include "plans/hardware.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "plans/document.h"

namespace shardplan {
namespace {

using testing::HasSubstr;

const Hardware& catalogue() {
  static const Hardware hardware = Hardware::read(SHARDPLAN_SOURCE_DIR "/plans");
  return hardware;
}

TEST(Gpus, EveryEntryHasASourceAndPlausibleRates) {
  EXPECT_GE(catalogue().gpus().size(), 30u);
  for (const GpuSpec& gpu : catalogue().gpus()) {
    SCOPED_TRACE(gpu.key);
    EXPECT_FALSE(gpu.source.empty());
    if (gpu.is_cpu()) continue;
    EXPECT_GE(gpu.memory_bytes, Bytes{14} << 30);
    EXPECT_LE(gpu.memory_bytes, Bytes{300} << 30);
    EXPECT_GE(gpu.memory_bandwidth_bytes_per_s, 300e9);
    EXPECT_LE(gpu.memory_bandwidth_bytes_per_s, 8000e9);
    EXPECT_GE(gpu.matmul_flops_fp32, 8e12);
    EXPECT_LE(gpu.matmul_flops_fp32, 200e12);  // no TF32: that starts at 156e12 on the A100
    EXPECT_LE(gpu.matmul_flops_bf16, 2.5e15);
    EXPECT_GE(gpu.pcie_bytes_per_s, 15e9);
    EXPECT_LE(gpu.pcie_bytes_per_s, 63e9);
    EXPECT_NO_THROW(catalogue().network_of(gpu));
  }
}

TEST(Gpus, KeysAnswerToThemselvesAndNamesToTheirEntry) {
  for (const GpuSpec& gpu : catalogue().gpus()) {
    EXPECT_EQ(catalogue().gpu(gpu.key).key, gpu.key);
    EXPECT_EQ(catalogue().gpu(gpu.name).key, gpu.key);
  }
}

TEST(Gpus, AnswerToWhatUsersAndDriversCallThem) {
  const std::pair<const char*, const char*> spellings[] = {
      {"A100 80GB", "a100-sxm-80"},
      {"NVIDIA A100-SXM4-40GB", "a100-sxm-40"},
      {"NVIDIA A100 80GB PCIe", "a100-pcie-80"},
      {"NVIDIA H100 80GB HBM3", "h100-sxm-80"},
      {"h100 sxm", "h100-sxm-80"},
      {"H100-SXM-80", "h100-sxm-80"},
      {"H100 NVL", "h100-nvl-94"},
      {"NVIDIA H200", "h200"},
      {"Tesla T4", "t4"},
      {"NVIDIA GeForce RTX 4090", "rtx-4090"},
      {"4090", "rtx-4090"},
      {"NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"},
      {"RTX A6000", "rtx-a6000"},
      {"MI300X", "mi300x"},
  };
  for (const auto& [spelling, key] : spellings)
    EXPECT_EQ(catalogue().gpu(spelling).key, key);
}

TEST(Gpus, FiguresOfTheH100AreTheDatasheets) {
  const GpuSpec& gpu = catalogue().gpu("h100-sxm-80");
  EXPECT_EQ(gpu.memory_bytes, 84943715697);  // 79.11 GiB
  EXPECT_EQ(gpu.memory_bandwidth_bytes_per_s, 3.35e12);
  EXPECT_EQ(gpu.matmul_flops_bf16, 989e12);
  EXPECT_EQ(gpu.matmul_flops_fp32, 67e12);
}

TEST(Network, FollowsTheLinkOfTheGpuOrElsePcie) {
  const NetworkSpec h100 = catalogue().network_of(catalogue().gpu("h100-sxm-80"));
  EXPECT_EQ(h100.intra_node_bytes_per_s, 450e9);
  EXPECT_EQ(h100.inter_node_bytes_per_s, 8 * 50e9);
  const GpuSpec& l4 = catalogue().gpu("l4");
  EXPECT_EQ(h100.intra_node_link, NodeLink::Direct);
  const NetworkSpec pcie = catalogue().network_of(l4);
  EXPECT_EQ(pcie.intra_node_link, NodeLink::Pcie);
  EXPECT_EQ(pcie.intra_node_bytes_per_s, l4.pcie_bytes_per_s);
  EXPECT_LT(pcie.intra_node_efficiency, h100.intra_node_efficiency);
}

TEST(Network, NamesTheNodeTypesWhenAGpuHasAnotherOne) {
  GpuSpec gpu = catalogue().gpu("l4");
  gpu.node_type = "pci";
  try {
    catalogue().network_of(gpu);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean 'pcie'?"));
  }
}

TEST(Costs, DependOnWhoExecutes) {
  EXPECT_GT(catalogue().costs(Profile::Cuda).device_context_bytes, 0);
  EXPECT_EQ(catalogue().costs(Profile::CpuOneDnn).device_context_bytes, 0);
  EXPECT_LT(catalogue().costs(Profile::Cuda).matmul_efficiency, 1);
}

TEST(GpuInPlace, NeedsItsRates) {
  const Node node = parse_yaml("{memory_bytes: 1e9, matmul_flops_fp32: 1e12}", "f.yaml");
  try {
    gpu_from(node, "mine", "mine");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "f.yaml:1:1: mine.memory_bandwidth_bytes_per_s is missing");
  }
}

TEST(DataFolder, IsTheOneOfTheEnvironmentWhenSet) {
  ASSERT_EQ(setenv("SHARDPLAN_DATA", "/somewhere", 1), 0);
  EXPECT_EQ(data_folder(), "/somewhere");
  ASSERT_EQ(unsetenv("SHARDPLAN_DATA"), 0);
  EXPECT_TRUE(std::filesystem::exists(data_folder() + "/gpus.yaml"));
}

TEST(DataFolder, ThatIsMissingIsWrongInput) {
  EXPECT_THROW(Hardware::read("/no/such/folder"), InputError);
}

}  // namespace
}  // namespace shardplan
