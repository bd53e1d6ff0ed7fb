#include "runtime/comm/contribution.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "plans/error.h"

namespace shardplan {
namespace {

bool same(const Contribution& a, const Contribution& b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.bytes == b.bytes &&
         a.pre_scale == b.pre_scale && a.post_scale == b.post_scale && a.root == b.root;
}

std::string describe(const Contribution& c) {
  return fmt::format("{} of {} bytes ({}, scales {:g} and {:g}, root {})", to_string(c.kind),
                     c.bytes, to_string(c.dtype), c.pre_scale, c.post_scale, c.root);
}

}  // namespace

std::string_view to_string(Contribution::Kind kind) {
  switch (kind) {
    case Contribution::Kind::AllGather: return "all_gather";
    case Contribution::Kind::ReduceScatter: return "reduce_scatter";
    case Contribution::Kind::AllReduce: return "all_reduce";
    case Contribution::Kind::Broadcast: return "broadcast";
  }
  return "";
}

void expect_same(std::string_view place, std::span<const std::int64_t> ranks,
                 std::span<const Contribution> contributions) {
  const auto other = std::ranges::find_if(
      contributions, [&](const Contribution& c) { return !same(c, contributions.front()); });
  if (other == contributions.end()) return;
  throw SystemError(fmt::format("ranks issued different collectives on {}: rank {} {}, rank {} {}",
                                place, ranks.front(), describe(contributions.front()),
                                ranks[other - contributions.begin()], describe(*other)));
}

}  // namespace shardplan
