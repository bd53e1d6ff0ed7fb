#include "runtime/crc32c.h"

#include <array>
#include <cstring>

namespace shardplan {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;  // bits reversed; RFC 3720, appendix B.4
constexpr int kSlices = 8;

using Tables = std::array<std::array<std::uint32_t, 256>, kSlices>;

/// Table k is the checksum's change by a byte that k more bytes follow.
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc >> 1) ^ (crc & 1 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (int k = 1; k < kSlices; ++k)
    for (int byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  return tables;
}
constexpr Tables kTables = make_tables();

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes) {
  std::uint32_t crc = ~0u;
  std::size_t at = 0;
  for (; at + kSlices <= bytes.size(); at += kSlices) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + at, sizeof(word));
    word ^= crc;
    crc = 0;
    for (int k = 0; k < kSlices; ++k)
      crc ^= kTables[kSlices - 1 - k][(word >> (8 * k)) & 0xff];
  }
  for (; at < bytes.size(); ++at)
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<std::uint8_t>(bytes[at])) & 0xff];
  return ~crc;
}

}  // namespace shardplan
