#include "plans/document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plans/setting.h"

namespace shardplan {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string yaml_complaint(std::string_view text) {
  try {
    parse_yaml(text, "f.yaml");
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

std::string json_complaint(std::string_view text) {
  try {
    parse_json(text, "f.json");
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

template <typename Function>
std::string complaint(Function function) {
  try {
    function();
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

std::string repeated(std::string_view text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i)
    result += text;
  return result;
}

TEST(Yaml, KeepsTheOrderAndThePlacesOfFields) {
  const Node node = parse_yaml("b: 1\na:\n  - x\n  - 'y'\n", "f.yaml");
  ASSERT_EQ(node.entries.size(), 2u);
  EXPECT_EQ(node.entries[0].key, "b");
  EXPECT_EQ(node.entries[1].where, "f.yaml:2:1");
  EXPECT_EQ(node.entries[1].value.items[1].where, "f.yaml:4:5");
  EXPECT_EQ(node.entries[1].value.items[1].kind, Node::Kind::Quoted);
}

TEST(Yaml, AnEmptyTextIsNull) {
  EXPECT_EQ(parse_yaml("", "f.yaml").kind, Node::Kind::Null);
  EXPECT_EQ(parse_yaml("# nothing\n", "f.yaml").where, "f.yaml");
}

TEST(Yaml, RefusesDuplicateKeysAtTheSecond) {
  EXPECT_EQ(yaml_complaint("a: 1\nb: 2\na: 3\n"), "f.yaml:3:1: the key 'a' is there twice");
}

TEST(Yaml, RefusesAnchorsAliasesTagsAndSecondDocuments) {
  EXPECT_THAT(yaml_complaint("a: &x [1]\nb: *x\n"), StartsWith("f.yaml:1:4: anchors"));
  EXPECT_THAT(yaml_complaint("a: !!binary abcd\n"), StartsWith("f.yaml:1:4: tags"));
  EXPECT_THAT(yaml_complaint("a: 1\n---\nb: 2\n"), HasSubstr("more than one document"));
}

TEST(Yaml, RefusesDeepNestingInEveryForm) {
  EXPECT_NE(yaml_complaint(repeated("[", 200'000)), "");
  EXPECT_NE(yaml_complaint(repeated("{a: ", 200'000)), "");
  EXPECT_NE(yaml_complaint(repeated("- ", 200'000)), "");
  EXPECT_NE(yaml_complaint(repeated("? ", 200'000)), "");
  std::string indented;
  for (int depth = 0; depth < 1'000; ++depth)
    indented += std::string(static_cast<std::size_t>(depth), ' ') + "a:\n";
  EXPECT_THAT(yaml_complaint(indented), HasSubstr("nested more than 64 deep"));
}

TEST(Yaml, RefusesMoreValuesThanAnyJobHas) {
  EXPECT_THAT(yaml_complaint("[" + repeated("1,", 200'000) + "]"), HasSubstr("more than 100000"));
}

TEST(Yaml, SyntaxErrorsHaveAPlace) {
  EXPECT_THAT(yaml_complaint("a: [1, 2\n"), StartsWith("f.yaml:"));
  EXPECT_THAT(yaml_complaint("a: 1\n\tb: 2\n"), StartsWith("f.yaml:2:1: "));
}

TEST(Json, PlacesArePointers) {
  const Node node = parse_json(R"({"a": {"b": [1, true, null, "x"]}})", "f.json");
  const Node& list = node.entries[0].value.entries[0].value;
  EXPECT_EQ(list.where, "f.json: /a/b");
  EXPECT_EQ(list.items[1].where, "f.json: /a/b/1");
  EXPECT_EQ(list.items[0].kind, Node::Kind::Plain);
  EXPECT_EQ(list.items[2].kind, Node::Kind::Null);
  EXPECT_EQ(list.items[3].kind, Node::Kind::Quoted);
}

TEST(Json, RefusesWhatIsNoJson) {
  EXPECT_THAT(json_complaint("{\"a\":\n  nope}"), StartsWith("f.json:2:"));
  EXPECT_NE(json_complaint(""), "");
  EXPECT_NE(json_complaint("{\"a\": 1} x"), "");
  EXPECT_NE(json_complaint("{\"a\": 1e999}"), "");
}

TEST(Json, RefusesDuplicateKeysAndDeepNesting) {
  EXPECT_THAT(json_complaint(R"({"a": {"b": 1, "b": 2}})"),
              StartsWith("f.json: /a: the key 'b' is there twice"));
  EXPECT_THAT(json_complaint(repeated("[", 1'000'000)), HasSubstr("nested more than 64 deep"));
}

Node scalar(std::string text, Node::Kind kind = Node::Kind::Plain) {
  Node node;
  node.kind = kind;
  node.text = std::move(text);
  node.where = "here";
  return node;
}

TEST(Integer, TakesExactWholeNumbersOnly) {
  EXPECT_EQ(integer_of(scalar("9007199254740993"), "n", 0, INT64_MAX), 9007199254740993);
  EXPECT_EQ(integer_of(scalar("1e6"), "n", 0, INT64_MAX), 1'000'000);
  EXPECT_EQ(integer_of(scalar("2.0"), "n", 0, INT64_MAX), 2);
  for (const char* wrong : {"", "-", "1.5", "x", "0x10", "1e30", "99999999999999999999", "1 2",
                            "nan", "inf", ".inf", "true", "--1"})
    EXPECT_THROW(integer_of(scalar(wrong), "n", 0, INT64_MAX), InputError) << wrong;
  EXPECT_THROW(integer_of(scalar("3", Node::Kind::Quoted), "n", 0, 9), InputError);
}

TEST(Integer, SaysTheBoundsAndWhatItFound) {
  EXPECT_EQ(complaint([] { integer_of(scalar("0"), "cluster.nodes", 1, 8); }),
            "here: cluster.nodes: expected an integer from 1 to 8, found '0'");
}

TEST(Real, TakesFiniteDecimalNumbersOnly) {
  EXPECT_EQ(real_of(scalar("3.0e-4"), "x", 0, kNoLimit), 3.0e-4);
  for (const char* wrong : {"nan", ".nan", "inf", "-inf", ".inf", "0x1p3", "1e999", "1,5", ""})
    EXPECT_THROW(real_of(scalar(wrong), "x", -kNoLimit, kNoLimit), InputError) << wrong;
}

TEST(Real, SaysTheBoundsInWords) {
  EXPECT_EQ(complaint([] { real_of(scalar("0"), "x", kPositive, kNoLimit); }),
            "here: x: expected a number greater than 0, found '0'");
  EXPECT_EQ(complaint([] { real_of(scalar("2"), "x", 0, 1); }),
            "here: x: expected a number of at least 0 and at most 1, found '2'");
}

TEST(FieldsOfAMapping, RefusesTheFirstKeyNobodyAskedFor) {
  const Node node = parse_yaml("lr: 1\nbeta: 2\n", "f.yaml");
  Fields fields(node, "training.optimizer");
  double value = 0;
  fields.read("lr", value);
  fields.read("betas", value);
  EXPECT_EQ(complaint([&] { fields.refuse_unknown(); }),
            "f.yaml:2:1: unknown field of training.optimizer 'beta'; did you mean 'betas'? known: "
            "lr, betas");
}

TEST(FieldsOfAMapping, NullLeavesTheDefault) {
  const Node node = parse_yaml("a: null\nb:\n", "f.yaml");
  Fields fields(node, "");
  int value = 7;
  fields.read("a", value, 0, 9);
  EXPECT_EQ(value, 7);
  EXPECT_EQ(fields.section("b").find("c"), nullptr);
}

TEST(TextFile, MustBeAFileWithAnEnd) {
  EXPECT_THAT(complaint([] { read_text("/no/such/file"); }), HasSubstr("cannot be opened"));
  EXPECT_THAT(complaint([] { read_text("/"); }), HasSubstr("cannot be read"));
  EXPECT_THAT(complaint([] { read_text("/dev/zero"); }), HasSubstr("longer than"));
}

TEST(Setting, ReplacesOneFieldAndKeepsTheOthers) {
  Node node = parse_yaml("a: {b: 1, c: 2}\n", "f.yaml");
  apply_setting(node, "a.b=[3, 4]");
  EXPECT_EQ(node.entries[0].value.entries[0].value.items[1].text, "4");
  EXPECT_EQ(node.entries[0].value.entries[1].value.text, "2");
}

TEST(Setting, MakesTheMappingsOnTheWay) {
  Node node = parse_yaml("", "f.yaml");
  apply_setting(node, "a.b.c=x=y");
  EXPECT_EQ(node.entries[0].value.entries[0].value.entries[0].value.text, "x=y");
}

TEST(Setting, IsThePlaceOfItsOwnErrors) {
  Node node = parse_yaml("a: text\n", "f.yaml");
  EXPECT_EQ(complaint([&] { apply_setting(node, "nothing"); }),
            "--set nothing: expected field=value, e.g. training.micro_batch=2");
  EXPECT_EQ(complaint([&] { apply_setting(node, "a.b=1"); }), "--set a.b=1: 'a' has no fields");
  EXPECT_THAT(complaint([&] { apply_setting(node, "b=[1"); }), StartsWith("--set b=[1:"));
  apply_setting(node, "b={c: 1}");
  EXPECT_EQ(node.entries[1].value.entries[0].where, "--set b={c: 1}");
}

}  // namespace
}  // namespace shardplan
