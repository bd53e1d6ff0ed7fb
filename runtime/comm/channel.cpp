#include "runtime/comm/channel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "plans/error.h"

namespace shardplan {
namespace {

Contribution contribution_of(const Channel::Header& header) {
  return {.kind = header.kind,
          .dtype = header.dtype,
          .bytes = header.bytes,
          .pre_scale = header.pre_scale,
          .post_scale = header.post_scale,
          .root = header.root};
}

}  // namespace

Channel::Channel(std::string name, std::int64_t rank, Fabric& fabric, Watch& watch,
                 Seconds timeout_s)
    : name_(std::move(name)),
      rank_(rank),
      fabric_(fabric),
      lane_(fabric.open()),
      watch_(watch),
      timeout_s_(timeout_s) {}

std::span<std::byte> Channel::scratch(std::size_t bytes) {
  if (scratch_.size() < bytes) scratch_.resize(bytes);
  return std::span(scratch_).first(bytes);
}

void Channel::exchange(std::string_view group, const Contribution& own, std::span<Part> parts) {
  const Header header{own.kind, own.dtype, own.root, own.bytes, own.pre_scale, own.post_scale};
  const Exchange exchange{group, own, std::as_bytes(std::span(&header, 1)), parts,
                          deadline_in(timeout_s_)};
  for (Part& part : parts)
    if (part.rank == rank_) {
      part.theirs = header;
      part.out = sizeof(Header) + part.sent.size();
      part.in = sizeof(Header) + part.received.size();
    }
  try {
    move_all(exchange);
  } catch (...) {
    fabric_.abandon();
    throw;
  }
}

void Channel::move_all(const Exchange& exchange) {
  const auto is_over = [](const Part& part) { return part.is_out() && part.is_in(); };
  while (!std::ranges::all_of(exchange.parts, is_over)) {
    if (watch_.broken()) leave(exchange);
    if (!advance(exchange)) wait(exchange);
  }
}

/// Moves what can be moved now; false: nothing.
bool Channel::advance(const Exchange& exchange) {
  bool moved = false;
  for (Part& part : exchange.parts) {
    if (!part.is_out()) moved |= send(exchange, part);
    if (!part.is_in()) moved |= receive(exchange, part);
  }
  return moved;
}

bool Channel::send(const Exchange& exchange, Part& part) {
  const bool in_header = part.out < sizeof(Header);
  const auto rest =
      in_header ? exchange.header.subspan(part.out) : part.sent.subspan(part.out - sizeof(Header));
  const Moved sent = lane_->send(part.rank, rest);
  if (sent.closed) {
    watch_.explain_loss(part.rank);
    leave(exchange);
  }
  part.out += sent.bytes;
  return sent.bytes > 0;
}

bool Channel::receive(const Exchange& exchange, Part& part) {
  const bool in_header = part.in < sizeof(Header);
  const auto rest = in_header ? std::as_writable_bytes(std::span(&part.theirs, 1)).subspan(part.in)
                              : part.received.subspan(part.in - sizeof(Header));
  const Moved received = lane_->receive(part.rank, rest);
  if (received.closed) {
    watch_.explain_loss(part.rank);
    leave(exchange);
  }
  part.in += received.bytes;
  if (in_header && part.in == sizeof(Header)) expect_same_collective(exchange, part);
  return received.bytes > 0;
}

void Channel::wait(const Exchange& exchange) {
  pending_.clear();
  for (const Part& part : exchange.parts)
    if (!part.is_out() || !part.is_in())
      pending_.push_back({part.rank, !part.is_out(), !part.is_in()});
  if (!lane_->wait(pending_, watch_.descriptor(), exchange.deadline)) time_out(exchange);
}

void Channel::expect_same_collective(const Exchange& exchange, const Part& part) {
  std::array ranks{rank_, part.rank};
  std::array both{exchange.own, contribution_of(part.theirs)};
  if (part.rank < rank_) {  // all who notice say the same
    std::swap(ranks[0], ranks[1]);
    std::swap(both[0], both[1]);
  }
  try {
    expect_same(place(exchange), ranks, both);
  } catch (const SystemError&) {
    watch_.suspect({});
    throw;
  }
}

void Channel::time_out(const Exchange& exchange) {
  std::vector<std::int64_t> missing;
  for (const Part& part : exchange.parts)
    if (!part.is_in() || !part.is_out()) missing.push_back(part.rank);
  watch_.suspect(missing);
  throw SystemError(fmt::format("{}: rank {} waited {:g} s in {} for rank {}", place(exchange),
                                rank_, timeout_s_, to_string(exchange.own.kind),
                                fmt::join(missing, ", ")));
}

void Channel::leave(const Exchange& exchange) {
  throw SystemError(fmt::format("{}: rank {} gave up {}: {}", place(exchange), rank_,
                                to_string(exchange.own.kind), watch_.reason()));
}

std::string Channel::place(const Exchange& exchange) const {
  return fmt::format("stream {}, group {}", name_, exchange.group);
}

}  // namespace shardplan
