#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plans/error.h"
#include "tests/unit/scratch_folder.h"
#include "tools/job_flags.h"
#include "tools/machine.h"

namespace shardplan {
namespace {

using ::testing::ElementsAre;
using testing::ScratchFolder;
using ::testing::StartsWith;

const Hardware& hardware() {
  static const Hardware read = Hardware::read(data_folder());
  return read;
}

auto text_is(std::string text) { return ::testing::Field(&Setting::text, std::move(text)); }

const FieldFlag& flag(std::string_view name) {
  return *std::ranges::find(kFieldFlags, name, &FieldFlag::flag);
}

Job job_of(const JobFlags& flags) {
  return job_from("model: {hf_config: a/config.json}\ncluster: {gpu: h100-sxm-80}", "job.yaml",
                  flags, hardware());
}

TEST(FieldFlags, SetTheirField) {
  EXPECT_THAT(settings_of(flag("--seq"), "128"),
              ElementsAre(text_is("training.sequence_length=128")));
  EXPECT_THAT(settings_of(flag("--gpu"), "A100 80GB"),
              ElementsAre(text_is("cluster.gpu=A100 80GB")));
}

TEST(FieldFlags, AreThePlaceOfTheirErrors) {
  try {
    job_of({.settings = settings_of(flag("--gpu"), "A200")});
    FAIL() << "no error";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), StartsWith("--gpu A200: unknown GPU"));
  }
}

TEST(FieldFlags, TakeAClusterFromAFile) {
  const ScratchFolder folder;
  const std::string file = folder.file("machine.yaml", cluster_yaml({.ranks = 3,
                                                                     .memory_bytes = 1 << 30,
                                                                     .matmul_flops_per_s = 5e10,
                                                                     .memory_bytes_per_s = 8e9,
                                                                     .link_bytes_per_s = 3e9,
                                                                     .hop_s = 2.5e-5}));
  const ClusterJob cluster = job_of({.settings = settings_of(flag("--cluster"), file)}).cluster;
  EXPECT_TRUE(cluster.gpu.is_cpu());
  EXPECT_EQ(cluster.gpus_per_node, 3);
  EXPECT_EQ(cluster.gpu.memory_bytes, 1 << 30);
  EXPECT_EQ(cluster.gpu.matmul_flops_fp32, 5e10);
  EXPECT_EQ(cluster.gpu.memory_bandwidth_bytes_per_s, 8e9);
  EXPECT_EQ(cluster.network.intra_node_bytes_per_s, 3e9);
  EXPECT_EQ(cluster.network.intra_node_latency_s, 2.5e-5);
}

TEST(FieldFlags, QuoteWhatYamlWouldTakeApart) {
  EXPECT_THAT(settings_of(flag("--output"), "it's: [x]"),
              ElementsAre(text_is("run.output='it''s: [x]'")));
  JobFlags flags{.settings = settings_of(flag("--output"), "it's: [x]")};
  EXPECT_EQ(job_of(flags).run.output, "it's: [x]");
}

TEST(FieldFlags, NameAnotherModelThanTheFile) {
  const Job job = job_of({.settings = settings_of(flag("--model"), "gpt2")});
  EXPECT_EQ(job.model.preset, "gpt2");
  EXPECT_EQ(job.model.hf_config, "");
}

TEST(Gpus, FillOneNodeOrWholeNodes) {
  EXPECT_EQ(job_of({.gpus = "4"}).cluster.nodes, 1);
  EXPECT_EQ(job_of({.gpus = "4"}).cluster.gpus_per_node, 4);
  EXPECT_EQ(job_of({.gpus = "32"}).cluster.nodes, 4);
  EXPECT_THROW(job_of({.gpus = "12"}), InputError);
}

TEST(Gpus, AreDividedAmongTheNodesGiven) {
  const Job job = job_of({.gpus = "12", .nodes = "3"});
  EXPECT_EQ(job.cluster.nodes, 3);
  EXPECT_EQ(job.cluster.gpus_per_node, 4);
  EXPECT_THROW(job_of({.gpus = "12", .nodes = "5"}), InputError);
}

TEST(Gpus, AreWholeNumbers) {
  for (const char* text : {"0", "-1", "1.5", "four", "4x", "99999999999999"})
    EXPECT_THROW(job_of({.gpus = text}), InputError) << text;
}

}  // namespace
}  // namespace shardplan
