#include <cstdio>

#include "planner/planner.h"
#include "plans/job_reader.h"
#include "plans/verify.h"
#include "simulator/simulate.h"

/// Plans Llama 3 8B over eight GPUs, fully sharded, and prints what it needs.
int main() {
  using namespace shardplan;
  const Hardware hardware = Hardware::read(data_folder());
  const std::vector<Setting> settings = {"model.preset=llama-3-8b", "strategy.engine=native"};
  const Plan plan = make_plan(read_job("", hardware, settings));
  const Report report = simulate(plan, hardware.costs(plan.profile));
  const Bytes peak = report.ranks.front().memory.peak_allocated_bytes.value_or(0);
  std::printf("%zu instructions, %s per GPU, %s a step\n", plan.instructions.size(),
              format_bytes(peak).c_str(), format_seconds(report.time->step_s).c_str());
  return verify(plan).empty() && peak > 0 ? 0 : 1;
}
