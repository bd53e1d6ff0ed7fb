#include "kernels/cuda/check.h"

#include <string>

#include "plans/error.h"

namespace shardplan::cuda {

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess)
    throw SystemError(std::string("CUDA cannot ") + what + ": " + cudaGetErrorString(status));
}

}  // namespace shardplan::cuda
