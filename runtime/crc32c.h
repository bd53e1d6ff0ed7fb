#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace shardplan {

/// CRC-32C (Castagnoli), as RFC 3720 defines it.
std::uint32_t crc32c(std::span<const std::byte> bytes);

}  // namespace shardplan
