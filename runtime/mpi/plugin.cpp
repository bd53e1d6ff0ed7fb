// The plug-in's entry; see runtime/plugin_entry.h.
#include "runtime/mpi/mpi_fabric.h"
#include "runtime/plugin_entry.h"

extern "C" __attribute__((visibility("default"))) const shardplan::Plugin shardplan_plugin{
    .version = SHARDPLAN_VERSION,
    .compiler = __VERSION__,
    .connect = [](const shardplan::ProcessPlace& place) -> std::unique_ptr<shardplan::Fabric> {
      return std::make_unique<shardplan::mpi::MpiFabric>(place);
    }};
