#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "plans/plan.h"
#include "runtime/comm/communicator.h"
#include "runtime/device.h"

namespace shardplan {

/// What a rank asks of its device.
struct DeviceOptions {
  Profile profile = Profile::CpuOneDnn;     // whose kernels
  std::array<bool, kStreams> streams = {};  // those that the plan uses
  int index = 0;                            // of the rank on its machine, from 0 on
  int compute_threads = 1;                  // of a CPU's compute stream
  Seconds timeout_s = 60;                   // of what waits for other ranks
  bool alone = false;                       // the world's other ranks are not there: a rehearsal
  /// The name of an instruction, for errors; may be empty.
  std::function<std::string(InstructionId)> name_of;
};

/// A kind of device, as ours for CPUs or one that a plug-in brings.
struct DeviceKind {
  /// "CPU", as in "there is no CPU kernel".
  const char* name;
  bool (*runs)(Profile profile);
  /// What it lacks to run that kernel with those attributes, e.g. "rope with rope_yarn"; empty when
  /// nothing.
  std::string (*missing_kernel)(Kernel kernel, const Attributes& attributes);
  /// How many there are on this machine; ranks on it need one each. -1: any number of ranks.
  int (*count)();
  /// Throws SystemError when there is none of that index, or its memory or threads lack.
  std::unique_ptr<Device> (*make)(const DeviceOptions& options, Device::Body body);
  /// Collectives on the memory of `device`, among the ranks that `host` connects, which does those
  /// of Stream::Host; null: `host` does all. All ranks call it at the same time. Both must outlive
  /// it.
  std::unique_ptr<Communicator> (*connect)(Communicator& host, Device& device,
                                           const DeviceOptions& options);
  /// Whether bodies do their work themselves, so that the time they take is that of the work.
  bool works_in_bodies;
};

const DeviceKind& cpu_devices();

}  // namespace shardplan
