#include <cstdint>
#include <string_view>

#include "planner/import/imported.h"
#include "plans/error.h"
#include "plans/job_reader.h"

using namespace shardplan;

/// Any bytes as a launcher's file: an InputError, or a job whose job file gives it back. JSON
/// begins with '{' and is DeepSpeed's, all else accelerate's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Hardware hardware = Hardware::read(data_folder());
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // A named DeepSpeed file would be read from the machine.
  if (text.find("deepspeed_config_file") != std::string_view::npos) return 0;
  const ImportOptions options{.hardware = hardware};
  try {
    const Imported imported = text.starts_with('{') ? import_deepspeed(text, "ds.json", options)
                                                    : import_accelerate(text, "acc.yaml", options);
    const std::string yaml = job_to_yaml(imported.job, hardware);
    const Job again = parse_job(yaml, "job.yaml", hardware, {}, ModelNeed::Optional);
    check(job_to_yaml(again, hardware) == yaml, "an imported job survives its job file");
  } catch (const InputError&) {
  }
  return 0;
}
