#pragma once

#include <cuda_runtime.h>

namespace shardplan::cuda {

/// Throws SystemError when a call of the CUDA runtime has failed; `what` names what was tried.
void check(cudaError_t status, const char* what);

}  // namespace shardplan::cuda
