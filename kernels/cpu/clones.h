#pragma once

/// Before a function: compiled for AVX2 too, and the loader picks what the machine has. Products
/// are not fused (see CMakeLists.txt), so both give the same bits. Sanitizers cannot instrument the
/// choice, which runs before they are set up.
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define SHARDPLAN_CLONE_FOR_AVX2 __attribute__((target_clones("avx2", "default")))
#else
#define SHARDPLAN_CLONE_FOR_AVX2
#endif
