# The sources of the plug-in for GPUs, which two targets compile: nvcc for GPUs, and the compiler of
# everything else for the fake of CUDA that tests run on.
set(SHARDPLAN_CUDA_KERNELS attention cross_entropy elementwise embedding memory norms optimizer rope)
list(TRANSFORM SHARDPLAN_CUDA_KERNELS PREPEND ${PROJECT_SOURCE_DIR}/kernels/cuda/)
list(TRANSFORM SHARDPLAN_CUDA_KERNELS APPEND .cu)
set(SHARDPLAN_CUDA_SOURCES
  kernels/cuda/check.cpp kernels/cuda/linear.cpp
  runtime/cuda/cuda_device.cpp runtime/cuda/cuda_kernels.cpp runtime/cuda/device_communicator.cpp
  runtime/cuda/local_collectives.cpp runtime/cuda/nccl_communicator.cpp runtime/cuda/plugin.cpp
  runtime/cuda/step_graph.cpp)
list(TRANSFORM SHARDPLAN_CUDA_SOURCES PREPEND ${PROJECT_SOURCE_DIR}/)
