#pragma once

#include <map>
#include <string>

#include "tests/fake_cuda/machine.h"

namespace fake_cuda {

/// Memory of the devices and pinned memory of the host, and who touched which bytes last.
class Memory {
 public:
  static constexpr int kHost = -1;

  void set_devices(int devices, std::size_t bytes);
  int devices() const { return static_cast<int>(used_.size()); }
  std::size_t capacity() const { return capacity_; }
  std::size_t used(int device) const { return used_[static_cast<std::size_t>(device)]; }

  /// Memory full of NaNs; null: there is not enough. `device`: kHost for pinned memory.
  void* allocate(int device, std::size_t bytes);
  bool free(void* memory);

  /// Notes an access of the stream's newest operation. What is wrong with it: an address that the
  /// device does not have, or bytes that an operation touched which nothing orders before this one.
  std::string touch(const Stream& stream, const Access& access, const std::string& what);

 private:
  struct Touch {
    int stream = -1;
    std::uint64_t epoch = 0;
    std::string what;

    bool before(const Clock& clock) const {
      return stream < 0 || (static_cast<std::size_t>(stream) < clock.size() &&
                            clock[static_cast<std::size_t>(stream)] >= epoch);
    }
  };
  /// Bytes that were always touched together.
  struct Cell {
    std::size_t end = 0;
    Touch writer;
    std::vector<Touch> readers;  // since then, one a stream
  };
  struct Block {
    std::size_t bytes = 0;
    int device = kHost;
    std::map<std::size_t, Cell> cells;
  };

  static void cut(Block& block, std::size_t at);
  static std::string touch(Cell& cell, const Touch& now, const Clock& clock, bool writes);

  std::map<std::uintptr_t, Block> blocks_;
  std::vector<std::size_t> used_;
  std::size_t capacity_ = 0;
};

}  // namespace fake_cuda
