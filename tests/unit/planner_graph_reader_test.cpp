#include "planner/graph_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "planner/planner.h"
#include "plans/error.h"
#include "plans/verify.h"

namespace shardplan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

/// The example of docs/graph.md: between its fences.
std::string example() {
  std::ifstream file(SHARDPLAN_SOURCE_DIR "/docs/graph.md");
  std::stringstream text;
  text << file.rdbuf();
  const std::string page = text.str();
  const std::size_t begin = page.find("```yaml\n") + 8;
  return page.substr(begin, page.find("```", begin) - begin);
}

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), with);
}

std::string complaint(const std::string& yaml) {
  try {
    read_graph(yaml, "g.yaml");
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(GraphYaml, TheExampleOfTheDocumentationIsPlannedAndVerified) {
  const ModelGraph graph = read_graph(example(), "g.yaml");
  EXPECT_EQ(graph.parameter_count(), 2 * 512 * 64 + 4 * (64 + 64 + 64 * 64));
  EXPECT_THAT(graph.block_classes, ElementsAre("Block"));
  Job job;
  job.cluster.gpus_per_node = 3;
  job.training.sequence_length = 8;
  const Plan plan = make_plan(job, graph);
  EXPECT_THAT(verify(plan), IsEmpty());
  EXPECT_EQ(plan.units.size(), 5U);  // four blocks and the root
}

TEST(GraphYaml, RepetitionsCarryTheirValues) {
  const ModelGraph graph = read_graph(example(), "g.yaml");
  // tokens, targets, x; then norm, product and sum of every repetition.
  EXPECT_THAT(graph.inputs_of(3), ElementsAre(2));
  EXPECT_THAT(graph.inputs_of(5), ElementsAre(2, 4));
  EXPECT_THAT(graph.inputs_of(6), ElementsAre(5));
  EXPECT_THAT(graph.inputs_of(15), ElementsAre(14));  // logits read the last sum
  EXPECT_EQ(graph.dag[12].module, "layers.3.norm");
}

TEST(GraphYaml, MistakesAreNamedWhereTheyStand) {
  const std::string good = example();
  const auto with = [&](const char* what, const char* text) {
    return complaint(replaced(good, what, text));
  };
  EXPECT_THAT(
      with("kind: layer_norm", "kind: layer_nrom"),
      StartsWith("g.yaml:25:19: unknown operator 'layer_nrom'; did you mean 'layer_norm'?"));
  EXPECT_THAT(with("in_features: 64, out_features: 64}\n      - y", "in_feature: 64}\n      - y"),
              HasSubstr("unknown attribute 'in_feature'; did you mean 'in_features'?"));
  EXPECT_THAT(with("inputs: [n]", "inputs: [m]"),
              HasSubstr("there is no operator 'm' before this one"));
  EXPECT_THAT(with("inputs: [x, f]", "inputs: [x]"),
              HasSubstr("operator add has 1 inputs, expected 2"));
  EXPECT_THAT(with("[\"layers.{i}.fc.weight\"]", "[\"layers.{i}.fc.bias\"]"),
              HasSubstr("there is no parameter 'layers.{i}.fc.bias'"));
  EXPECT_THAT(with("fc.weight\": [64, 64]", "fc.weight\": [64, 63]"),
              HasSubstr("has 4032 elements, operator linear reads 4096"));
  EXPECT_THAT(with("inputs: [x], parameters: [head.weight],\n             in_features: 64",
                   "inputs: [x], parameters: [head.weight],\n             in_features: 32"),
              HasSubstr("parameter head.weight has 32768 elements, operator linear reads 16384"));
  EXPECT_THAT(with("parameters: [\"layers.{i}.fc.weight\"], in_features: 64, out_features: 64",
                   "parameters: [\"layers.{i}.fc.weight\"], in_features: 128, out_features: 32"),
              HasSubstr("expects 128 input features, gets 64"));
  EXPECT_THAT(with("repeat: 4", "repeat: 0"), HasSubstr("repeat: expected an integer from 1"));
  EXPECT_THAT(with("carry: {x: y}", "carry: {x: z}"), HasSubstr("there is no operator 'z'"));
  EXPECT_THAT(with("family: tiny", "famly: tiny"), HasSubstr("did you mean 'family'?"));
  EXPECT_THAT(
      with("  - loss: {kind: cross_entropy, inputs: [logits, targets], in_features: 512}", ""),
      HasSubstr("the last operator must be a cross_entropy"));
}

TEST(GraphYaml, SizesThatWouldOverflowAreRefused) {
  const std::string good = example();
  EXPECT_THAT(complaint(replaced(good, "embed.weight: [512, 64]",
                                 "embed.weight: [1000000000, 1000000000]")),
              HasSubstr("a parameter of more than"));
  EXPECT_THAT(complaint(replaced(good, "repeat: 4", "repeat: 99999999999")), HasSubstr("repeat"));
  EXPECT_THAT(complaint(replaced(good, "out_features: 64}", "out_features: 1.0e+300}")),
              HasSubstr("out_features"));
}

TEST(GraphYaml, LogitsThatBackwardNeedsAreRefused) {
  const std::string squashed =
      "  - bounded: {kind: tanh, inputs: [logits], out_features: 512}\n"
      "  - loss: {kind: cross_entropy, inputs: [bounded, targets], in_features: 512}";
  EXPECT_THAT(complaint(replaced(example(),
                                 "  - loss: {kind: cross_entropy, inputs: [logits, targets], "
                                 "in_features: 512}",
                                 squashed)),
              HasSubstr("not even the backward of tanh"));
}

TEST(GraphYaml, CountsAreWholeNumbers) {
  EXPECT_THAT(complaint(replaced(example(), "{kind: add, module: \"layers.{i}\",",
                                 "{kind: add, module: \"layers.{i}\", groups_per_row: -1,")),
              HasSubstr("attribute groups_per_row is -1, expected a whole number"));
}

TEST(GraphYaml, ParametersThatNobodyReadsAreRefused) {
  EXPECT_THAT(complaint(replaced(example(), "parameters:\n", "parameters:\n  lost: [3]\n")),
              HasSubstr("no operator reads parameter 'lost'"));
}

}  // namespace
}  // namespace shardplan
