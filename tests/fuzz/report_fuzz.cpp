#include <cstdint>
#include <string_view>

#include "plans/error.h"
#include "plans/report.h"

using namespace shardplan;

/// Whatever is accepted as a report must survive its own text; everything else must be an
/// InputError.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const Report report = report_from_json(text, "report.json");
    const std::string written = prediction_json(report, Plan{});
    check(prediction_json(report_from_json(written, "written"), Plan{}) == written,
          "a report survives its JSON");
  } catch (const InputError&) {
  }
  return 0;
}
