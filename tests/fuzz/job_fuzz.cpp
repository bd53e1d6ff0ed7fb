#include <cstdint>
#include <string_view>

#include "plans/error.h"
#include "plans/job_reader.h"

using namespace shardplan;

/// The first line is a setting, as --set gives it, when it begins with "--set "; the rest is a job
/// file. Whatever is accepted must survive its own JSON; everything else must be an InputError.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Hardware hardware = Hardware::read(data_folder());
  std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<Setting> settings;
  constexpr std::string_view kSet = "--set ";
  if (text.starts_with(kSet)) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    settings.emplace_back(std::string(text.substr(kSet.size(), end - kSet.size())));
    text.remove_prefix(end);
  }
  try {
    const Job job = parse_job(text, "job.yaml", hardware, settings);
    check(job_to_json(job_from_json(job_to_json(job), "json")) == job_to_json(job),
          "a job survives its JSON");
  } catch (const InputError&) {
  }
  try {
    job_from_json(text, "job.json");
  } catch (const InputError&) {
  }
  return 0;
}
