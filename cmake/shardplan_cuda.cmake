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

# shardplan_cuda_part(TARGET): objects of those, of which nothing can be seen from outside.
function(shardplan_cuda_part target)
  target_compile_features(${target} PRIVATE cxx_std_20)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON
                                             CXX_VISIBILITY_PRESET hidden)
  target_compile_definitions(${target} PRIVATE SHARDPLAN_VERSION="${PROJECT_VERSION}")
  target_link_libraries(${target} PRIVATE shardplan::runtime fmt::fmt shardplan_build_flags)
endfunction()

# shardplan_cuda_plugin(TARGET): a library of such objects that is opened at run time.
function(shardplan_cuda_plugin target)
  target_link_libraries(${target} PRIVATE shardplan::runtime fmt::fmt shardplan_build_flags)
  target_link_options(${target} PRIVATE -Wl,--as-needed -Wl,--exclude-libs,ALL)
  if(NOT SHARDPLAN_SANITIZE)  # sanitizers are the program's
    target_link_options(${target} PRIVATE -Wl,--no-undefined)
  endif()
endfunction()
