#include "tools/numbers.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "plans/error.h"

namespace shardplan {

std::optional<double> number_from(const std::string& text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

std::optional<double> amount_of(const std::string& where, const std::string& text) {
  if (text.empty()) return std::nullopt;
  const auto amount = number_from(text);
  if (!amount || !(*amount > 0) || !std::isfinite(*amount))
    throw InputError(fmt::format("{} {}: expected a number greater than 0", where, text));
  return amount;
}

}  // namespace shardplan
