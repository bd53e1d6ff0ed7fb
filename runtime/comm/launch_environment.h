#pragma once

#include <optional>

#include "runtime/comm/peers.h"

namespace shardplan {

/// The place that the launcher of this process gives it, by the environment's variables: those of
/// PyTorch (RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT), else of Open MPI's
/// mpirun, else of Slurm's srun. Where one of those two speaks PMIx and the plug-in for MPI is
/// here, MPI may connect it with the others. Nothing when it was started alone. Throws InputError
/// for variables that make no sense or leave open where rank 0 is.
std::optional<ProcessPlace> launched_place();

}  // namespace shardplan
