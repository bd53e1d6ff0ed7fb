#pragma once

/// Before a function that CPU and GPU kernels share.
#if defined(__CUDACC__)
#define SHARDPLAN_HOST_DEVICE __host__ __device__
#else
#define SHARDPLAN_HOST_DEVICE
#endif
