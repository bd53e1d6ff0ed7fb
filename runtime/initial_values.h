#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "plans/parameter.h"

namespace shardplan {

/// Elements [first, first + out.size()) of a parameter's initial values. Every element depends on
/// seed, name and its own index alone, so all ways to cut a parameter start from the same bits.
void initial_values(const Initializer& initializer, std::uint64_t seed, std::string_view name,
                    std::int64_t first, std::span<float> out);

}  // namespace shardplan
