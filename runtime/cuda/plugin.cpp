// The plug-in's entry; see runtime/plugin_entry.h.
#include "runtime/plugin_entry.h"

#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/cuda_kernels.h"
#include "runtime/cuda/local_collectives.h"
#include "runtime/cuda/nccl_communicator.h"

namespace shardplan::cuda {
namespace {

constexpr DeviceKind kKind{
    .name = "CUDA",
    .runs = [](Profile profile) { return profile == Profile::Cuda; },
    .missing_kernel = missing_kernel,
    .count = device_count,
    .make = [](const DeviceOptions& options, Device::Body body) -> std::unique_ptr<Device> {
      return std::make_unique<CudaDevice>(options, std::move(body));
    },
    .connect = [](Communicator& host, Device& device,
                  const DeviceOptions& options) -> std::unique_ptr<Communicator> {
      auto& own = static_cast<CudaDevice&>(device);
      if (options.alone) return std::make_unique<LocalCollectives>(host, own);
      return std::make_unique<NcclCommunicator>(host, own, options.timeout_s);
    },
    .works_in_bodies = false};

}  // namespace
}  // namespace shardplan::cuda

extern "C" __attribute__((visibility("default")))
const shardplan::Plugin shardplan_plugin{SHARDPLAN_VERSION, __VERSION__, &shardplan::cuda::kKind};
