#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plans/error.h"
#include "plans/plan.h"

namespace shardplan {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Two ranks gather one unit, multiply by it, and do it again the next step.
Plan small_plan() {
  Plan plan;
  plan.job.model.preset = "gpt2";
  plan.job.cluster.gpu = {.key = "mine",
                          .name = "Mine",
                          .memory_bytes = 1000,
                          .memory_bandwidth_bytes_per_s = 1,
                          .matmul_flops_fp32 = 1,
                          .link_bytes_per_s = 1,
                          .pcie_bytes_per_s = 1,
                          .price_per_hour = {},
                          .source = "a test"};
  plan.job.cluster.gpus_per_node = 2;
  plan.job.cluster.network = {.intra_node_bytes_per_s = 1,
                              .intra_node_latency_s = 1,
                              .inter_node_bytes_per_s = 1,
                              .inter_node_latency_s = 1};
  plan.job.strategy.engine = Engine::Native;
  plan.job.strategy.profile = Profile::Cuda;
  plan.mesh.shard = 2;
  plan.buffers = {
      {"shard", Category::Parameters, Dtype::Float32, 3, Space::Device, true, 0},
      {"full", Category::UnshardedParameters, Dtype::Float32, 6, Space::Device, false, 64}};
  plan.units = {{.name = "root", .elems = 5, .padded_elems = 6, .shard_elems = 3, .parameter = 0}};
  plan.classes = {{0, 0, {3}}, {1, 1, {2}}};
  plan.instructions = {{.name = "gather",
                        .stream = Stream::AllGather,
                        .unit = 0,
                        .reads = {{0, 0, 3}},
                        .writes = {{1, 0, 6}},
                        .after = {{1, Why::Data}},
                        .operation = AllGather{}},
                       {.name = "double",
                        .reads = {{1, 1, 4}},
                        .writes = {{1, 1, 4}},
                        .after = {{0, Why::Data}},
                        .operation = Compute{Kernel::Add, {{Attribute::Batch, 2}}}}};
  plan.segments = {{"step", 0, 2}};
  plan.program = {{.count = ProgramItem::kOncePerStep, .segment = 0}};
  plan.arena = {88, 36, 60};
  return plan;
}

/// The error of reading the small plan's text with `from` replaced by `to`.
std::string error_with(const std::string& from, const std::string& to) {
  std::string text = to_json(small_plan());
  const std::size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from << " is not in " << text;
  try {
    plan_from_json(text.replace(at, from.size(), to), "plan.json");
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(PlanJson, WritesWholeBuffersByNameAndPartsAsViews) {
  const std::string text = to_json(small_plan());
  EXPECT_THAT(text, HasSubstr(R"("reads":["shard"],"writes":["full"])"));
  EXPECT_THAT(text, HasSubstr(R"("reads":[{"buf":"full","at":1,"elems":4}])"));
}

TEST(PlanJson, WritesRangesOfRanksAndWaitsByName) {
  const std::string text = to_json(small_plan());
  EXPECT_THAT(text,
              HasSubstr(R"("classes":[{"ranks":"0","valid":[3]},{"ranks":"1","valid":[2]}])"));
  EXPECT_THAT(text, HasSubstr(R"("after":[{"id":"double","why":"data"}])"));
  EXPECT_THAT(text, HasSubstr(R"("program":[{"repeat":"steps","segment":"step"}])"));
}

TEST(PlanJson, ReadsBackWhatItWrote) {
  EXPECT_EQ(plan_from_json(to_json(small_plan()), "plan.json"), small_plan());
}

TEST(PlanJson, HashChangesWithThePlan) {
  Plan other = small_plan();
  other.buffers[1].offset = 128;
  EXPECT_EQ(hash_of(small_plan()), hash_of(small_plan()));
  EXPECT_NE(hash_of(small_plan()), hash_of(other));
  EXPECT_EQ(hash_of(other).size(), 16u);
}

TEST(PlanJson, NamesThePlaceAndTheNearestInstruction) {
  EXPECT_EQ(error_with(R"("after":[{"id":"double")", R"("after":[{"id":"duble")"),
            "plan.json: /segments/step/instructions/0/after/0/id: unknown instruction 'duble', "
            "nearest 'double'");
}

TEST(PlanJson, RefusesUnknownNames) {
  EXPECT_THAT(error_with(R"("reads":["shard"])", R"("reads":["shart"])"),
              HasSubstr("/reads/0: unknown buffer 'shart', nearest 'shard'"));
  EXPECT_THAT(error_with(R"("op":"all_gather")", R"("op":"all_gater")"),
              HasSubstr("unknown kind of instruction 'all_gater', nearest 'all_gather'"));
  EXPECT_THAT(error_with(R"("stream":"ag")", R"("stream":"gg")"), HasSubstr("nearest 'ag'"));
  EXPECT_THAT(error_with(R"("kernel":"add")", R"("kernel":"adm")"), HasSubstr("/kernel"));
  EXPECT_THAT(error_with(R"("attributes":{"batch")", R"("attributes":{"bach")"),
              HasSubstr("/attributes/bach"));
  EXPECT_THAT(error_with(R"("segment":"step")", R"("segment":"stp")"), HasSubstr("nearest 'step'"));
  EXPECT_THAT(error_with(R"("unit":"root")", R"("unit":"rot")"), HasSubstr("nearest 'root'"));
}

TEST(PlanJson, RefusesUnknownAndMissingKeys) {
  EXPECT_THAT(error_with(R"("resident":)", R"("residnt":)"), HasSubstr("nearest 'resident'"));
  EXPECT_THAT(error_with(R"(,"resident":true)", ""),
              HasSubstr("/buffers/0: 'resident' is missing"));
  EXPECT_THAT(error_with(R"("group":"shard")", R"("group":"shard","root":1)"),
              HasSubstr("unknown key 'root'"));
}

TEST(PlanJson, RefusesWrongTypes) {
  EXPECT_THAT(error_with(R"("elems":3,)", R"("elems":"3",)"),
              HasSubstr("/buffers/0/elems: expected an integer, got \"3\""));
  EXPECT_THAT(error_with(R"("elems":3,)", R"("elems":3.5,)"), HasSubstr("expected an integer"));
  EXPECT_THAT(error_with(R"("resident":true)", R"("resident":1)"), HasSubstr("true or false"));
  EXPECT_THAT(error_with(R"("reads":["shard"])", R"("reads":"shard")"), HasSubstr("an array"));
  EXPECT_THAT(error_with(R"("name":"shard")", R"("name":7)"), HasSubstr("a string"));
}

TEST(PlanJson, RefusesNumbersOutOfRange) {
  EXPECT_THAT(error_with(R"("elems":3,)", R"("elems":-3,)"), HasSubstr("-3 is out of range"));
  EXPECT_THAT(error_with(R"("elems":3,)", R"("elems":18446744073709551615,)"),
              HasSubstr("18446744073709551615 is out of range"));
  EXPECT_THAT(error_with(R"("at":1,"elems":4)", R"("at":3,"elems":4)"),
              HasSubstr("4 is out of range, expected 0 to 3"));
  EXPECT_THAT(error_with(R"("repeat":"steps")", R"("repeat":0)"), HasSubstr("out of range"));
}

TEST(PlanJson, RefusesWhatDoesNotFitTogether) {
  EXPECT_THAT(error_with(R"("name":"full")", R"("name":"shard")"), HasSubstr("is there twice"));
  EXPECT_THAT(error_with(R"("id":"double","op")", R"("id":"gather","op")"),
              HasSubstr("is there twice"));
  EXPECT_THAT(error_with(R"("ranks":"1")", R"("ranks":"1-2")"), HasSubstr("/classes/1/ranks"));
  EXPECT_THAT(error_with(R"("ranks":"1")", R"("ranks":"0")"), HasSubstr("expected ranks from 1"));
  EXPECT_THAT(error_with(R"(,{"ranks":"1","valid":[2]})", ""), HasSubstr("covers 1 of 2 ranks"));
  EXPECT_THAT(error_with(R"("valid":[2])", R"("valid":[])"), HasSubstr("each of the 1 units"));
  EXPECT_THAT(error_with(R"("replicate":1)", R"("replicate":2)"),
              HasSubstr("/mesh: spans 4 ranks, the job's cluster has 2"));
}

TEST(PlanJson, RefusesOtherSchemas) {
  EXPECT_EQ(error_with("shardplan/plan/1", "shardplan/plan/2"),
            "plan.json: /schema: expected \"shardplan/plan/1\"");
}

TEST(PlanJson, GivesLineAndColumnOfWhatIsNotJson) {
  const auto error_of = [](std::string_view text) -> std::string {
    try {
      plan_from_json(text, "plan.json");
    } catch (const InputError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(error_of("{\n \"schema\": oops}"), StartsWith("plan.json:2:12: "));
  EXPECT_THAT(error_of(""), StartsWith("plan.json:1:1: "));
  EXPECT_THAT(error_of("[]"), StartsWith("plan.json: /: expected an object"));
  EXPECT_THAT(error_of(std::string(100'000, '[')), HasSubstr("nested deeper than 64 levels"));
  EXPECT_THAT(error_of(R"({"schema": 1, "a": {"schema": 2}, "schema": 3})"),
              HasSubstr("plan.json:1:46: key 'schema' is there twice"));
}

TEST(PlanJson, RefusesLoopsThatWouldNeverEnd) {
  const std::string empty = R"({"repeat":1000000,"body":[)";
  EXPECT_THAT(error_with(R"({"repeat":"steps")",
                         empty + empty + empty + "]}]}]}," + R"({"repeat":"steps")"),
              HasSubstr("comes to more than 4000000 instructions"));
}

TEST(PlanJson, RefusesLoopsOverStepsInsideOfEachOther) {
  std::string loops;
  std::string ends;
  for (int depth = 0; depth < 12; ++depth) {
    loops += R"({"repeat":"steps","body":[)";
    ends += "]}";
  }
  EXPECT_THAT(error_with(R"({"repeat":"steps")", loops + ends + R"(,{"repeat":"steps")"),
              HasSubstr("comes to more than"));
}

}  // namespace
}  // namespace shardplan
