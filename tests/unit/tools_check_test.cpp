#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plans/error.h"
#include "tools/check.h"
#include "tools/check_text.h"

namespace shardplan {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using testing::ThrowsMessage;

constexpr Bytes kMiB = Bytes{1} << 20;

/// One entry that knows its allocated peak only.
Report report_of(const std::string& ranks, Bytes peak) {
  Report report;
  report.ranks.push_back({ranks, {}});
  report.ranks[0].memory.peak_allocated_bytes = peak;
  return report;
}

bool passes(Bytes predicted, Bytes measured, const Tolerances& tolerances = {}) {
  return hold_against(report_of("0", predicted), report_of("0", measured), tolerances).passed();
}

TEST(Check, PassesWithinTheShareOfThePrediction) {
  EXPECT_TRUE(passes(100 * kGiB, 103 * kGiB));
  EXPECT_TRUE(passes(100 * kGiB, 97 * kGiB));
  EXPECT_FALSE(passes(100 * kGiB, 103 * kGiB + 1));
  EXPECT_FALSE(passes(100 * kGiB, 97 * kGiB - 1));
}

TEST(Check, PassesWithinTheFloorOfAllocatedMemory) {
  EXPECT_TRUE(passes(0, 2 * kMiB));
  EXPECT_FALSE(passes(0, 2 * kMiB + 1));
}

TEST(Check, PassesWithinTheFloorOfDeviceMemory) {
  Report predicted = report_of("0", 0);
  Report measured = report_of("0", 0);
  predicted.ranks[0].memory.peak_device_bytes = 0;
  measured.ranks[0].memory.peak_device_bytes = 64 * kMiB;
  EXPECT_TRUE(hold_against(predicted, measured, {}).passed());
  ++*measured.ranks[0].memory.peak_device_bytes;
  EXPECT_FALSE(hold_against(predicted, measured, {}).passed());
}

TEST(Check, ExactMeansEveryByte) {
  EXPECT_TRUE(passes(kGiB, kGiB, {.exact = true}));
  EXPECT_FALSE(passes(kGiB, kGiB + 1, {.exact = true}));
  EXPECT_FALSE(passes(kGiB, kGiB - 1, {.exact = true}));
}

TEST(Check, ExactWantsEveryRankButOfARehearsal) {
  const Report predicted = report_of("0-3", kGiB);
  Report measured = report_of("2", kGiB);
  EXPECT_THAT([&] { hold_against(predicted, measured, {.exact = true}); },
              ThrowsMessage<InputError>(HasSubstr("ranks 0-1, rank 3")));
  EXPECT_TRUE(hold_against(predicted, measured, {}).passed());
  measured.rehearsal = "2/4";
  EXPECT_TRUE(hold_against(predicted, measured, {.exact = true}).passed());
}

TEST(Check, OneSidedIgnoresTheOtherSide) {
  const Tolerances over{.exact = true, .side = Side::Over};
  EXPECT_TRUE(passes(kGiB, kGiB / 2, over));
  EXPECT_FALSE(passes(kGiB, kGiB + 1, over));
  const Tolerances under{.exact = true, .side = Side::Under};
  EXPECT_TRUE(passes(kGiB, 2 * kGiB, under));
  EXPECT_FALSE(passes(kGiB, kGiB - 1, under));
}

TEST(Check, HoldsEachRankAgainstItsClass) {
  Report predicted = report_of("0-2", 10 * kGiB);
  predicted.ranks.push_back(report_of("3", 5 * kGiB).ranks[0]);
  Report measured = report_of("1", 10 * kGiB);
  measured.ranks.push_back(report_of("3", 10 * kGiB).ranks[0]);
  const CheckResult result = hold_against(predicted, measured, {});
  ASSERT_THAT(result.findings, SizeIs(2));
  EXPECT_TRUE(result.findings[0].passed());
  EXPECT_FALSE(result.findings[1].passed());
  EXPECT_EQ(worst_by_metric(result.findings)[0].ranks, "3");
}

TEST(Check, HoldsARangeAgainstEveryEntryThatItTouches) {
  Report predicted = report_of("0-2", 10 * kGiB);
  predicted.ranks.push_back(report_of("3", 5 * kGiB).ranks[0]);
  const CheckResult result = hold_against(predicted, report_of("0-3", 10 * kGiB), {});
  ASSERT_THAT(result.findings, SizeIs(2));
  EXPECT_FALSE(result.passed());
  EXPECT_THROW(hold_against(predicted, report_of("2-4", kGiB), {}), InputError);
}

TEST(Check, TheWorstRankIsTheOneNearestToFailingOnTheSideThatCounts) {
  const Report predicted = report_of("0-1", 10 * kGiB);
  Report measured = report_of("0", kGiB);
  measured.ranks.push_back(report_of("1", 10 * kGiB + kMiB).ranks[0]);
  const auto worst = [&](Side side) {
    return worst_by_metric(hold_against(predicted, measured, {.side = side}).findings)[0].ranks;
  };
  EXPECT_EQ(worst(Side::Over), "1");
  EXPECT_EQ(worst(Side::Under), "0");
  EXPECT_EQ(worst(Side::Both), "0");
}

TEST(Check, NamesTheCategoryThatFails) {
  Report predicted = report_of("0", kGiB);
  Report measured = report_of("0", kGiB);
  predicted.ranks[0].memory.at_peak.fill(10 * kMiB);
  measured.ranks[0].memory.at_peak = predicted.ranks[0].memory.at_peak;
  *measured.ranks[0].memory.at_peak[static_cast<int>(Category::Activations)] += kMiB;
  const CheckResult result = hold_against(predicted, measured, {.exact = true});
  EXPECT_FALSE(result.passed());
  EXPECT_THAT(check_text(result, Palette(false)),
              HasSubstr("Failed: at_peak.activations on rank 0: predicted 10.00 MiB, measured "
                        "11.00 MiB, +1048576 B (+10.00 %)"));
}

TEST(Check, ListsWhatWasNotMeasured) {
  Report predicted = report_of("0", kGiB);
  predicted.ranks[0].memory.peak_device_bytes = kGiB;
  EXPECT_THAT(hold_against(predicted, report_of("0", kGiB), {}).not_measured,
              ElementsAre("peak_device_bytes"));
}

TEST(Check, ListsRanksThatWereNotMeasured) {
  const Report predicted = report_of("0-7", kGiB);
  Report measured = report_of("2", kGiB);
  measured.ranks.push_back(report_of("5-6", kGiB).ranks[0]);
  EXPECT_THAT(hold_against(predicted, measured, {}).not_measured,
              ElementsAre("ranks 0-1", "ranks 3-4", "rank 7"));
  measured.ranks[0].memory.peak_allocated_bytes.reset();
  EXPECT_THAT(hold_against(predicted, measured, {}).not_measured,
              Contains("peak_allocated_bytes on rank 2"));
}

TEST(Check, RefusesARankThatIsMeasuredTwice) {
  Report measured = report_of("0-1", kGiB);
  measured.ranks.push_back(report_of("1", kGiB).ranks[0]);
  EXPECT_THROW(hold_against(report_of("0-3", kGiB), measured, {}), InputError);
}

TEST(Check, ComparesTimeOnlyWhenAsked) {
  Report predicted = report_of("0", kGiB);
  predicted.time = TimeReport{.step_s = 1.0};
  Report measured = report_of("0", kGiB);
  // The first step warms up and does not count.
  for (const double seconds : {9.0, 1.2, 1.1, 1.3})
    measured.steps.push_back({.seconds = seconds});
  EXPECT_THAT(hold_against(predicted, measured, {}).findings, SizeIs(1));
  const CheckResult result = hold_against(predicted, measured, {.time_share = 0.1});
  ASSERT_THAT(result.findings, SizeIs(2));
  EXPECT_DOUBLE_EQ(result.findings[1].measured, 1.2);
  EXPECT_FALSE(result.passed());
  EXPECT_TRUE(hold_against(predicted, measured, {.time_share = 0.25}).passed());
}

TEST(Check, RefusesAnotherWorld) {
  Report predicted = report_of("0-3", kGiB);
  predicted.world_size = 4;
  Report measured = report_of("0", kGiB);
  measured.world_size = 2;
  EXPECT_THROW(hold_against(predicted, measured, {}), InputError);
}

TEST(Check, RefusesRanksThatWereNotPredicted) {
  EXPECT_THROW(hold_against(report_of("0-3", kGiB), report_of("4", kGiB), {}), InputError);
  EXPECT_THROW(hold_against(report_of("0-3", kGiB), report_of("rank 0", kGiB), {}), InputError);
}

TEST(Check, RefusesToPassWithoutACommonMetric) {
  EXPECT_THROW(hold_against(report_of("0", kGiB), Report{}, {}), InputError);
  EXPECT_THROW(hold_against(report_of("0", kGiB), report_of("0", kGiB), {.metrics = {"at_peak"}}),
               InputError);
}

TEST(Junit, EscapesAndCounts) {
  CheckResult result;
  result.findings.push_back({.metric = "a<b", .against = "prediction", .ranks = "0"});
  result.findings.push_back(
      {.metric = "c", .against = "prediction", .ranks = "0", .measured = 5, .excess = 5});
  result.not_measured = {"d"};
  const std::string xml = junit_xml(result);
  EXPECT_THAT(xml, HasSubstr("tests=\"3\" failures=\"1\" skipped=\"1\""));
  EXPECT_THAT(xml, HasSubstr("name=\"a&lt;b\"/>"));
  EXPECT_THAT(xml, HasSubstr("<failure message=\"c on rank 0: predicted 0 B, measured 5 B"));
  EXPECT_THAT(xml, Not(HasSubstr("a<b")));
}

}  // namespace
}  // namespace shardplan
