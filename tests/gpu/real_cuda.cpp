// What tests tell the fake of CUDA and ask of it, where CUDA is the real one.
#include <cuda_runtime.h>

#include "tests/fake_cuda/fake_cuda.h"

namespace fake_cuda {

void set_schedule(Schedule, std::uint64_t) {}

std::string take_fault() {
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? "" : cudaGetErrorString(error);
}

}  // namespace fake_cuda
