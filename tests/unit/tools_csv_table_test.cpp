#include "tools/csv_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "plans/error.h"

namespace shardplan {
namespace {

using ::testing::HasSubstr;

class CsvTable : public ::testing::Test {
 protected:
  ~CsvTable() override { std::filesystem::remove(path_); }

  std::vector<CsvRow> read(std::string_view text) const {
    std::ofstream(path_) << text;
    return read_csv(path_);
  }
  std::string complaint(std::string_view text) const {
    try {
      read(text);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }

 private:
  std::string path_ = ::testing::TempDir() + "shardplan_table.csv";
};

TEST_F(CsvTable, QuotesHoldCommasQuotesAndLineFeeds) {
  const auto rows = read("id,note\r\n1,\"a, \"\"b\"\"\nc\"\r\n2,\r\n");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].at("note"), "a, \"b\"\nc");
  EXPECT_EQ(rows[1].at("id"), "2");
  EXPECT_EQ(rows[1].at("note"), "");
}

TEST_F(CsvTable, TheLastLineMayEndWithoutALineFeed) {
  EXPECT_EQ(read("id,note\n1,end").at(0).at("note"), "end");
}

TEST_F(CsvTable, WrongTablesAreRefused) {
  EXPECT_THAT(complaint("id,note\n1\n"), HasSubstr("record 2: 1 cells, expected 2"));
  EXPECT_THAT(complaint("id,note\n"), HasSubstr("no rows"));
  EXPECT_THAT(complaint(""), HasSubstr("no rows"));
  EXPECT_THAT(complaint("id,note\n1,\"open"), HasSubstr("record 2: "));
}

}  // namespace
}  // namespace shardplan
