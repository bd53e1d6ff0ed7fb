#pragma once

#include <cstdint>
#include <vector>

#include "plans/units.h"

namespace shardplan {

/// Half-open range of addresses, bytes.
struct AddressRange {
  Bytes begin = 0;
  Bytes end = 0;
};

/// Half-open range of cell numbers.
struct CellRange {
  std::int32_t begin = 0;
  std::int32_t end = 0;
};

/// Cuts addresses into the fewest cells such that every given range is a row of whole cells.
class Cells {
 public:
  explicit Cells(const std::vector<AddressRange>& ranges);

  /// The cells of one of the ranges given.
  CellRange of(const AddressRange& range) const;
  std::int32_t count() const;
  Bytes begin(std::int32_t cell) const { return borders_[cell]; }

 private:
  std::vector<Bytes> borders_;
};

}  // namespace shardplan
