#include <cstdint>
#include <string_view>

#include "plans/error.h"
#include "plans/hardware.h"
#include "plans/plan.h"
#include "plans/verify.h"
#include "simulator/simulate.h"

using namespace shardplan;

/// Whatever is accepted as a plan must survive its own text and be safe to verify, and to simulate
/// when it has no fault; everything else must be an InputError.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Hardware hardware = Hardware::read(data_folder());
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const Plan plan = plan_from_json(text, "plan.json");
    const std::string written = to_json(plan);
    check(to_json(plan_from_json(written, "written")) == written, "a plan survives its JSON");
    if (verify(plan).empty()) simulate(plan, hardware.costs(plan.profile));
  } catch (const InputError&) {
  }
  return 0;
}
