#include <cstdint>
#include <string_view>

#include "plans/error.h"
#include "runtime/tokens.h"

using namespace shardplan;

/// Any bytes are an order of data or an InputError; what is accepted has every number, in range.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr OrderShape kShape{.steps = 2, .ranks = 2, .micro_steps = 1, .micro_batch = 2};
  constexpr std::int64_t kSequences = 10;
  try {
    const auto order =
        order_from_json({reinterpret_cast<const char*>(data), size}, "order", kShape, kSequences);
    check(order.size() == 8, "an order has an entry for every sequence");
    for (const std::int64_t sequence : order)
      check(sequence >= 0 && sequence < kSequences, "sequences are those of the file");
  } catch (const InputError&) {
  }
  return 0;
}
