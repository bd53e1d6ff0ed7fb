#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plans/units.h"
#include "runtime/comm/contribution.h"
#include "runtime/comm/fabric.h"
#include "runtime/comm/watch.h"

namespace shardplan {

/// Over which one stream of this process takes part in collectives: a lane of the fabric. One
/// thread at a time uses it.
class Channel {
 public:
  /// What goes ahead of a member's bytes: the collective that it means.
  struct Header {
    Contribution::Kind kind;
    Dtype dtype;
    std::int32_t root;
    std::uint64_t bytes;
    double pre_scale;
    double post_scale;
  };
  /// What one member of a group gets from this process and gives to it.
  struct Part {
    std::int64_t rank = 0;
    std::span<const std::byte> sent;
    std::span<std::byte> received;
    Header theirs{};      // once it is received
    std::size_t out = 0;  // bytes moved so far, with those of the header
    std::size_t in = 0;

    bool is_out() const { return out == sizeof(Header) + sent.size(); }
    bool is_in() const { return in == sizeof(Header) + received.size(); }
  };

  /// `name` of the stream, for errors.
  Channel(std::string name, std::int64_t rank, Fabric& fabric, Watch& watch, Seconds timeout_s);

  /// Sends and receives all parts but this rank's own at the same time, and looks that all members
  /// mean the same collective. Throws SystemError when they do not, when a member is gone or does
  /// not come in time, or when the job fails elsewhere.
  void exchange(std::string_view group, const Contribution& own, std::span<Part> parts);

  /// Memory for what is received, that stays; as much as was asked for last is valid.
  std::span<std::byte> scratch(std::size_t bytes);

 private:
  /// Where an exchange stands.
  struct Exchange {
    std::string_view group;
    const Contribution& own;
    std::span<const std::byte> header;  // of `own`
    std::span<Part> parts;
    Deadline deadline;
  };

  void move_all(const Exchange& exchange);
  bool advance(const Exchange& exchange);
  bool send(const Exchange& exchange, Part& part);
  bool receive(const Exchange& exchange, Part& part);
  void wait(const Exchange& exchange);
  void expect_same_collective(const Exchange& exchange, const Part& part);
  [[noreturn]] void time_out(const Exchange& exchange);
  [[noreturn]] void leave(const Exchange& exchange);
  std::string place(const Exchange& exchange) const;

  const std::string name_;
  const std::int64_t rank_;
  Fabric& fabric_;
  const std::unique_ptr<Lane> lane_;
  Watch& watch_;
  const Seconds timeout_s_;
  std::vector<Lane::Pending> pending_;
  std::vector<std::byte> scratch_;
};

}  // namespace shardplan
