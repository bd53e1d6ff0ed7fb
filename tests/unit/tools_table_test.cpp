#include <gtest/gtest.h>

#include "tools/progress_bar.h"
#include "tools/table.h"
#include "tools/terminal.h"
#include "tools/time_text.h"

namespace shardplan {
namespace {

TEST(Table, AlignsWordsLeftAndNumbersRight) {
  Table table({{"name", Align::Left}, {"bytes"}});
  table.add({"arena", "7 B"});
  table.add({"context", "1024 B"});
  EXPECT_EQ(table.text(),
            "  name      bytes\n"
            "  arena       7 B\n"
            "  context  1024 B\n");
}

TEST(Table, HasNoHeaderLineWithoutHeaders) {
  Table table({{"", Align::Left}, {""}});
  table.add({"a", "1"});
  EXPECT_EQ(table.text(), "  a  1\n");
}

TEST(Table, EndsLinesWithoutSpaces) {
  Table table({{"a", Align::Left}, {"b", Align::Left}});
  table.add({"x", ""});
  table.add({"y", "long"});
  EXPECT_EQ(table.text(), "  a  b\n  x\n  y  long\n");
}

TEST(Palette, LeavesTextsAloneWithoutColours) {
  EXPECT_EQ(Palette(false)(Tone::Good, "Fits"), "Fits");
  EXPECT_EQ(Palette(true)(Tone::Good, "Fits"), "\033[32mFits\033[0m");
}

TEST(BarText, FillsInProportion) {
  EXPECT_EQ(bar_text(0, 10, 10), "[..........] 0/10");
  EXPECT_EQ(bar_text(5, 10, 10), "[#####.....] 5/10");
  EXPECT_EQ(bar_text(10, 10, 10), "[##########] 10/10");
  EXPECT_EQ(bar_text(1, 3, 30), "[##########....................] 1/3");
}

TEST(DurationText, ChoosesTheUnit) {
  EXPECT_EQ(duration_text(0.0123), "12.30 ms");
  EXPECT_EQ(duration_text(600), "10.0 min");
  EXPECT_EQ(duration_text(3 * 3600.0), "3.0 h");
  EXPECT_EQ(duration_text(86400 * 10.0), "10.0 days");
}

}  // namespace
}  // namespace shardplan
