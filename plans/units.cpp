#include "plans/units.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "plans/names.h"

namespace shardplan {
namespace {

constexpr std::array kDtypeNames{
    EnumName{Dtype::Float64, "float64"},   EnumName{Dtype::Float32, "float32"},
    EnumName{Dtype::BFloat16, "bfloat16"}, EnumName{Dtype::Float16, "float16"},
    EnumName{Dtype::Int64, "int64"},       EnumName{Dtype::Int32, "int32"},
    EnumName{Dtype::UInt32, "uint32"},     EnumName{Dtype::UInt16, "uint16"},
    EnumName{Dtype::UInt8, "uint8"}};

}  // namespace

std::string_view to_string(Dtype dtype) { return name_of(kDtypeNames, dtype); }
Dtype dtype_from(std::string_view name) { return value_of(kDtypeNames, name, "dtype"); }

std::string format_bytes(Bytes bytes) {
  constexpr std::array kSuffixes{"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (std::abs(bytes) < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  std::size_t suffix = 0;
  while (std::abs(value) >= 1024 && suffix + 1 < kSuffixes.size()) {
    value /= 1024;
    ++suffix;
  }
  return fmt::format("{:.2f} {}", value, kSuffixes[suffix]);
}

std::string format_seconds(Seconds seconds) {
  if (seconds >= 1 || seconds == 0) return fmt::format("{:.2f} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.1f} us", seconds * 1e6);
}

std::string format_count(double count) {
  constexpr std::array kSuffixes{" K", " M", " B", " T"};
  if (std::abs(count) < 1e4) return fmt::format("{:g}", count);
  std::size_t suffix = 0;
  count /= 1e3;
  while (std::abs(count) >= 1e3 && suffix + 1 < kSuffixes.size()) {
    count /= 1e3;
    ++suffix;
  }
  return fmt::format("{:.2f}{}", count, kSuffixes[suffix]);
}

}  // namespace shardplan
