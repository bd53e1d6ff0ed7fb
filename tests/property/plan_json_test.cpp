#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "plans/error.h"
#include "plans/plan.h"
#include "tests/property/random_plan.h"

namespace shardplan {
namespace {

using testing::random_plan;

RC_GTEST_PROP(PlanJson, ReadsBackWhatItWrote, ()) {
  const Plan plan = random_plan();
  const std::string text = to_json(plan);
  const Plan again = plan_from_json(text, "plan.json");
  RC_ASSERT(again == plan);
  RC_ASSERT(to_json(again) == text);
  RC_ASSERT(hash_of(again) == hash_of(plan));
}

RC_GTEST_PROP(PlanJson, DamagedTextIsAnInputErrorOrAPlan, ()) {
  std::string text = to_json(random_plan());
  const auto at = *rc::gen::inRange<std::size_t>(0, text.size());
  const auto length = *rc::gen::inRange<std::size_t>(0, 20);
  text.replace(at, length, *rc::gen::element<std::string>("", "0", "-1", "\"x\"", "{", "null,"));
  try {
    plan_from_json(text, "plan.json");
  } catch (const InputError&) {
    RC_SUCCEED("refused");
  }
}

}  // namespace
}  // namespace shardplan
