#include "plans/cells.h"

#include <algorithm>

namespace shardplan {

Cells::Cells(const std::vector<AddressRange>& ranges) {
  borders_.reserve(ranges.size() * 2);
  for (const AddressRange& range : ranges) {
    borders_.push_back(range.begin);
    borders_.push_back(range.end);
  }
  std::ranges::sort(borders_);
  borders_.erase(std::unique(borders_.begin(), borders_.end()), borders_.end());
}

CellRange Cells::of(const AddressRange& range) const {
  const auto cell = [&](Bytes address) {
    return static_cast<std::int32_t>(std::ranges::lower_bound(borders_, address) -
                                     borders_.begin());
  };
  return {cell(range.begin), cell(range.end)};
}

std::int32_t Cells::count() const {
  return borders_.empty() ? 0 : static_cast<std::int32_t>(borders_.size()) - 1;
}

}  // namespace shardplan
