#include "runtime/crc32c.h"

#include <boost/crc.hpp>

namespace shardplan {

std::uint32_t crc32c(std::span<const std::byte> bytes) {
  boost::crc_optimal<32, 0x1edc6f41, 0xffffffff, 0xffffffff, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return crc.checksum();
}

}  // namespace shardplan
