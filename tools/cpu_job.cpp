#include "tools/cpu_job.h"

namespace shardplan {

Job on_cpu(const Job& job, const Hardware& hardware) {
  Job changed = job;
  if (!job.cluster.gpu.is_cpu()) {
    changed.cluster.gpu = hardware.gpu("cpu");
    changed.cluster.network = hardware.network_of(changed.cluster.gpu);
  }
  if (job.strategy.profile != Profile::CpuReference) changed.strategy.profile = Profile::CpuOneDnn;
  return changed;
}

}  // namespace shardplan
