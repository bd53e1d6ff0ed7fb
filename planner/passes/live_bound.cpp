#include "planner/passes/live_bound.h"

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/boykov_kolmogorov_max_flow.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

namespace shardplan {
namespace {

using Traits = boost::adjacency_list_traits<boost::vecS, boost::vecS, boost::directedS>;
using Network = boost::adjacency_list<
    boost::vecS, boost::vecS, boost::directedS,
    boost::property<boost::vertex_index_t, std::size_t,
                    boost::property<boost::vertex_color_t, boost::default_color_type,
                                    boost::property<boost::vertex_distance_t, std::int64_t,
                                                    boost::property<boost::vertex_predecessor_t,
                                                                    Traits::edge_descriptor>>>>,
    boost::property<
        boost::edge_capacity_t, std::int64_t,
        boost::property<boost::edge_residual_capacity_t, std::int64_t,
                        boost::property<boost::edge_reverse_t, Traits::edge_descriptor>>>>;

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max() / 4;

void add_arc(Network& network, int from, int to, std::int64_t capacity) {
  const auto forward = boost::add_edge(from, to, network).first;
  const auto backward = boost::add_edge(to, from, network).first;
  auto capacities = boost::get(boost::edge_capacity, network);
  auto reverses = boost::get(boost::edge_reverse, network);
  capacities[forward] = capacity;
  capacities[backward] = 0;
  reverses[forward] = backward;
  reverses[backward] = forward;
}

/// The first position of `stream` whose instruction starts after everything in `end`; -1: none.
std::int32_t first_after(const HappensBefore& order, const std::vector<std::int32_t>& positions,
                         const Clock& end) {
  const auto after = [&](std::int32_t position) {
    const Clock& clock = order.clock(position);
    for (int s = 0; s < kStreams; ++s)
      if (end[s] > clock[s]) return false;
    return true;
  };
  // Clocks only grow along a stream.
  const auto found = std::ranges::partition_point(positions, [&](auto p) { return !after(p); });
  return found == positions.end() ? -1 : static_cast<std::int32_t>(found - positions.begin());
}

}  // namespace

// Dilworth: the heaviest set of pairwise unordered buffers weighs as much as the fewest bytes that
// serve all buffers when bytes pass from a buffer to a later one. Bytes that can be passed on are a
// maximum flow: from a buffer's end to the first instruction of each stream that comes after it,
// along the streams, and into the buffers whose use begins there.
Bytes live_bound(const Plan& plan, const std::vector<BufferUse>& uses) {
  const std::vector<InstructionId> order = unroll(plan, 2);  // positions are those of the uses
  const HappensBefore happens_before(plan, order);
  std::array<std::vector<std::int32_t>, kStreams> positions;
  std::vector<int> node_of(order.size());
  std::vector<bool> issued(plan.instructions.size(), false);
  for (std::int32_t p = 0; p < static_cast<std::int32_t>(order.size()); ++p) {
    if (issued[order[p]]) continue;  // one iteration of every loop
    issued[order[p]] = true;
    const int stream = static_cast<int>(plan.instructions[order[p]].stream);
    positions[stream].push_back(p);
    node_of[p] = 2 + p;
  }
  const int source = 0;
  const int sink = 1;
  const int first_use = 2 + static_cast<int>(order.size());
  Network network(first_use + 2 * uses.size());
  for (const auto& stream : positions)
    for (std::size_t i = 0; i + 1 < stream.size(); ++i)
      add_arc(network, node_of[stream[i]], node_of[stream[i + 1]], kUnlimited);
  Bytes total = 0;
  for (std::size_t u = 0; u < uses.size(); ++u) {
    const Bytes bytes = plan.buffers[uses[u].buffer].bytes();
    const int released = first_use + 2 * static_cast<int>(u);
    const int needed = released + 1;
    total += bytes;
    add_arc(network, source, released, bytes);
    add_arc(network, needed, sink, bytes);
    add_arc(network, node_of[uses[u].lives.front().first], needed, kUnlimited);
    for (const auto& stream : positions) {
      const std::int32_t after = first_after(happens_before, stream, uses[u].lives.front().end);
      if (after >= 0) add_arc(network, released, node_of[stream[after]], kUnlimited);
    }
  }
  const std::int64_t passed_on = boost::boykov_kolmogorov_max_flow(network, source, sink);
  Bytes resident = 0;
  for (const Buffer& buffer : plan.buffers)
    if (buffer.resident && buffer.space == Space::Device) resident += buffer.bytes();
  return resident + total - passed_on;
}

}  // namespace shardplan
