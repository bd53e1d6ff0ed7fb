#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace shardplan {

using Bytes = std::int64_t;
using Seconds = double;

constexpr Bytes kGiB = Bytes{1} << 30;
constexpr Seconds kHour = 3600;

/// Least value of a number that must be greater than 0.
constexpr double kPositive = std::numeric_limits<double>::min();

enum class Dtype { Float64, Float32, BFloat16, Float16, Int64, Int32, UInt32, UInt16, UInt8 };

/// Bytes of one element.
constexpr Bytes size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::Float64:
    case Dtype::Int64: return 8;
    case Dtype::Float32:
    case Dtype::Int32:
    case Dtype::UInt32: return 4;
    case Dtype::BFloat16:
    case Dtype::Float16:
    case Dtype::UInt16: return 2;
    case Dtype::UInt8: return 1;
  }
  return 0;
}

/// PyTorch's name: "float32", "bfloat16", ...
std::string_view to_string(Dtype dtype);

/// The dtype of that name. Throws InputError that lists the names.
Dtype dtype_from(std::string_view name);

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t round_up(std::int64_t a, std::int64_t multiple) {
  return ceil_div(a, multiple) * multiple;
}

/// "1.50 GiB", "512 B".
std::string format_bytes(Bytes bytes);
/// "1.5 s", "12.3 ms", "4.0 us".
std::string format_seconds(Seconds seconds);
/// "8.03 B", "124.4 M", "512": a count with a decimal suffix.
std::string format_count(double count);

}  // namespace shardplan
