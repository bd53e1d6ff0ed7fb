#include "runtime/comm/messages.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

namespace shardplan {
namespace {

std::span<std::byte> bytes_of(std::string& text) {
  return std::as_writable_bytes(std::span(text.data(), text.size()));
}

}  // namespace

std::string broadcast_text(Communicator& communicator, std::string text_of_rank_0) {
  std::uint64_t length = text_of_rank_0.size();
  communicator.broadcast(Stream::Host, Group::World, std::as_writable_bytes(std::span(&length, 1)),
                         0);
  text_of_rank_0.resize(length);
  communicator.broadcast(Stream::Host, Group::World, bytes_of(text_of_rank_0), 0);
  return text_of_rank_0;
}

std::vector<std::string> gather_texts(Communicator& communicator, const std::string& own) {
  const auto ranks = static_cast<std::size_t>(communicator.size(Group::World));
  std::vector<std::uint64_t> lengths(ranks);
  const std::uint64_t length = own.size();
  communicator.all_gather(Stream::Host, Group::World, std::as_bytes(std::span(&length, 1)),
                          std::as_writable_bytes(std::span(lengths)));
  const std::uint64_t longest = *std::ranges::max_element(lengths);
  std::string padded = own;
  padded.resize(longest);
  std::string all(longest * ranks, '\0');
  communicator.all_gather(Stream::Host, Group::World, bytes_of(padded), bytes_of(all));
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    texts.push_back(all.substr(rank * longest, lengths[rank]));
  return texts;
}

void barrier(Communicator& communicator) { gather_texts(communicator, ""); }

}  // namespace shardplan
