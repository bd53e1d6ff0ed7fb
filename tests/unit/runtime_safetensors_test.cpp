#include "runtime/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "plans/error.h"
#include "runtime/safetensors_writer.h"
#include "tests/unit/scratch_folder.h"

namespace shardplan {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::ScratchFolder;

/// A file with this header and `data_bytes` zeros behind it.
std::string file_with(std::string_view header, std::size_t data_bytes) {
  const std::uint64_t size = header.size();
  std::string file(sizeof(size), '\0');
  std::memcpy(file.data(), &size, sizeof(size));
  file += header;
  file.append(data_bytes, '\0');
  return file;
}

std::map<std::string, SafeTensor> parse(std::string_view file) {
  return parse_safetensors(std::as_bytes(std::span(file)), "bad.safetensors");
}

std::string error_for(std::string_view header, std::size_t data_bytes) {
  return error_of<InputError>([&] { parse(file_with(header, data_bytes)); });
}

TEST(SafeTensors, ReadsBackWhatWasWrittenInPieces) {
  const ScratchFolder folder;
  const std::vector<SafetensorsWriter::Entry> entries{{"a", {2, 3}}, {"b", {4}}, {"none", {0}}};
  {
    SafetensorsWriter writer(folder.path("deep/model.safetensors"), entries);
    writer.write("b", 2, std::vector<float>{9, 10});
    writer.write("a", 0, std::vector<float>{1, 2, 3, 4, 5, 6});
    writer.write("b", 0, std::vector<float>{7, 8});
    writer.commit();
  }
  const SafeTensors read(folder.path("deep"));
  ASSERT_NE(read.find("a"), nullptr);
  EXPECT_THAT(read.find("a")->shape, ElementsAre(2, 3));
  std::vector<float> middle(3);
  read_elements(*read.find("a"), 2, middle);
  EXPECT_THAT(middle, ElementsAre(3, 4, 5));
  std::vector<float> all(4);
  read_elements(*read.find("b"), 0, all);
  EXPECT_THAT(all, ElementsAre(7, 8, 9, 10));
  EXPECT_EQ(read.find("none")->elements(), 0);
  EXPECT_EQ(read.find("c"), nullptr);
}

TEST(SafeTensors, AnUnfinishedFileNeverHasItsName) {
  const ScratchFolder folder;
  const std::vector<SafetensorsWriter::Entry> entries{{"a", {1}}};
  { SafetensorsWriter writer(folder.path("model.safetensors"), entries); }
  EXPECT_FALSE(std::filesystem::exists(folder.path("model.safetensors")));
  EXPECT_FALSE(std::filesystem::exists(folder.path("model.safetensors.tmp")));
}

TEST(SafeTensors, AnUnfinishedFileLeavesNoFolderBehind) {
  const testing::ScratchFolder scratch;
  { SafetensorsWriter writer(scratch.path("a/b/model.safetensors"), {}); }
  EXPECT_FALSE(std::filesystem::exists(scratch.path("a")));
  EXPECT_TRUE(std::filesystem::exists(scratch.path("")));
}

TEST(SafeTensors, AllFloatTypesBecomeFloat32) {
  std::string file = file_with(R"({"d":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},)"
                               R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[8,12]},)"
                               R"("h":{"dtype":"F16","shape":[4],"data_offsets":[12,20]}})",
                               20);
  const double number = 0.1;
  // bfloat16 1 and -2; float16 1.5, smallest subnormal, infinity, -0.
  const std::uint16_t halves[] = {0x3f80, 0xc000, 0x3e00, 0x0001, 0x7c00, 0x8000};
  std::memcpy(file.data() + file.size() - 20, &number, 8);
  std::memcpy(file.data() + file.size() - 12, halves, 12);
  const auto tensors = parse(file);
  const auto values = [&](const char* name) {
    std::vector<float> out(tensors.at(name).elements());
    read_elements(tensors.at(name), 0, out);
    return out;
  };
  EXPECT_THAT(values("d"), ElementsAre(0.1f));
  EXPECT_THAT(values("b"), ElementsAre(1.0f, -2.0f));
  EXPECT_THAT(values("h"), ElementsAre(1.5f, 0x1p-24f, std::numeric_limits<float>::infinity(), 0));
  EXPECT_TRUE(std::signbit(values("h")[3]));
}

TEST(SafeTensors, FilesOfAFolderAreFoundByTheirIndex) {
  const ScratchFolder folder;
  const std::string one = R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  folder.file("part-1.safetensors", file_with(one, 4));
  folder.file("other.safetensors", "not one of them");
  folder.file("model.safetensors.index.json", R"({"weight_map":{"x":"part-1.safetensors"}})");
  EXPECT_NE(SafeTensors(folder.path("")).find("x"), nullptr);
  folder.file("model.safetensors.index.json", R"({"weight_map":{"x":"../part-1.safetensors"}})");
  EXPECT_THAT(error_of<InputError>([&] { SafeTensors read(folder.path("")); }),
              HasSubstr("/weight_map/x: expected a file of this folder"));
}

TEST(SafeTensors, ATensorInTwoFilesIsRefused) {
  const ScratchFolder folder;
  const std::string one = R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  folder.file("a.safetensors", file_with(one, 4));
  folder.file("b.safetensors", file_with(one, 4));
  EXPECT_THAT(error_of<InputError>([&] { SafeTensors read(folder.path("")); }),
              HasSubstr("'x' is also in another file"));
}

TEST(SafeTensors, MissingFilesAndFoldersAreNamed) {
  EXPECT_THAT(error_of<InputError>([] { SafeTensors read("/nowhere/model.safetensors"); }),
              HasSubstr("/nowhere/model.safetensors: cannot read the weights file"));
  const ScratchFolder folder;
  EXPECT_THAT(error_of<InputError>([&] { SafeTensors read(folder.path("")); }),
              HasSubstr("no weights here"));
}

TEST(SafeTensorsHeader, TooShortAFileIsRefused) {
  EXPECT_THAT(error_of<InputError>([] { parse("1234567"); }), HasSubstr("7 bytes are too few"));
}

TEST(SafeTensorsHeader, AHeaderLargerThanTheFileIsRefused) {
  std::string file = file_with("{}", 0);
  file[7] = '\x7f';
  EXPECT_THAT(error_of<InputError>([&] { parse(file); }), HasSubstr("cannot be"));
}

TEST(SafeTensorsHeader, BrokenJsonIsRefused) {
  EXPECT_THAT(error_for("{\"x\":", 0), HasSubstr("bad.safetensors: header: not valid JSON"));
  EXPECT_THAT(error_for("[]", 0), HasSubstr("expected an object"));
  EXPECT_THAT(error_for("{\"x\":\"\xff\"}", 0), HasSubstr("not valid JSON"));
}

TEST(SafeTensorsHeader, DeepNestingIsRefused) {
  EXPECT_THAT(error_for(std::string(100000, '['), 0), HasSubstr("nested deeper than 3 levels"));
  EXPECT_THAT(error_for(R"({"x":{"y":[[]]}})", 0), HasSubstr("nested deeper"));
}

TEST(SafeTensorsHeader, ANameThatOccursTwiceIsRefused) {
  const std::string entry = R"("x":{"dtype":"F32","shape":[],"data_offsets":[0,4]})";
  EXPECT_THAT(error_for("{" + entry + "," + entry + "}", 4), HasSubstr("'x' occurs twice"));
}

TEST(SafeTensorsHeader, RangesOutsideTheFileAreRefused) {
  EXPECT_THAT(error_for(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4),
              HasSubstr("tensor 'x': 'data_offsets' must be [begin, end] inside the 4 bytes"));
  EXPECT_THAT(error_for(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4),
              HasSubstr("data_offsets"));
  EXPECT_THAT(error_for(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", 4),
              HasSubstr("data_offsets"));
  EXPECT_THAT(
      error_for(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551615]}})", 4),
      HasSubstr("data_offsets"));
}

TEST(SafeTensorsHeader, ShapesThatDoNotFitTheirBytesAreRefused) {
  EXPECT_THAT(error_for(R"({"x":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8),
              HasSubstr("shape [3] of F32 does not fit its 8 bytes"));
  EXPECT_THAT(error_for(R"({"x":{"dtype":"F32","shape":[4611686018427387904,4],)"
                        R"("data_offsets":[0,0]}})",
                        0),
              HasSubstr("does not fit"));
  EXPECT_THAT(error_for(R"({"x":{"dtype":"F32","shape":"1","data_offsets":[0,0]}})", 0),
              HasSubstr("'shape' must be a list"));
}

TEST(SafeTensorsHeader, OverlappingTensorsAreRefused) {
  EXPECT_THAT(error_for(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                        R"("y":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                        12),
              HasSubstr("tensors 'x' and 'y' overlap"));
}

TEST(SafeTensorsHeader, UnknownDtypesAreNamed) {
  EXPECT_THAT(error_for(R"({"x":{"dtype":"F7","shape":[],"data_offsets":[0,4]}})", 4),
              HasSubstr("dtype 'F7' is not supported, expected F32"));
  EXPECT_THAT(error_for(R"({"x":7})", 4), HasSubstr("expected {dtype, shape, data_offsets}"));
}

}  // namespace
}  // namespace shardplan
