#include "plans/contents.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace shardplan {

Contents::Contents(const Plan& plan, const AccessHistory& accesses, Report report)
    : plan_(plan),
      accesses_(accesses),
      report_(std::move(report)),
      addresses_(arena_addresses(plan)),
      cells_(accesses.cell_count()) {}

void Contents::check_owners(InstructionId id) {
  for (std::size_t i = 0; i < at(id).reads.size(); ++i) {
    const BufferId buffer = at(id).reads[i].buffer;
    const CellRange range = accesses_.footprint(id).reads[i];
    for (std::int32_t cell = range.begin; cell < range.end; ++cell) {
      const BufferId owner = cells_[cell].owner;
      if (owner == buffer) continue;
      fault(id, buffer,
            owner < 0 ? std::string("is read before anything wrote it")
                      : fmt::format("is read, but its bytes hold {}", plan_.buffers[owner].name));
      break;
    }
  }
}

/// The element of the view's buffer that the address lies in.
std::int64_t Contents::element(const View& view, Bytes address) const {
  return (address - addresses_[view.buffer]) / size_of(plan_.buffers[view.buffer].dtype);
}

std::vector<Slice> Contents::read(InstructionId id, std::size_t i) const {
  const View& view = at(id).reads[i];
  const CellRange range = accesses_.footprint(id).reads[i];
  std::vector<Slice> slices;
  std::int64_t from = view.at;
  for (std::int32_t first = range.begin; first < range.end;) {
    std::int32_t end = first + 1;  // cells that go on with the same value
    while (end < range.end && cells_[end].value == cells_[first].value &&
           (cells_[end].shift == cells_[first].shift || cells_[first].value == Values::kZero))
      ++end;
    // Only operands in other buffers have borders inside of this one's elements: the cells on both
    // sides hold the same.
    const std::int64_t to =
        end == range.end ? view.at + view.elems : element(view, accesses_.cell_begin(end) - 1) + 1;
    const bool zero = cells_[first].value == Values::kZero;
    if (from < to)
      values_.resolve({cells_[first].value, zero ? 0 : from + cells_[first].shift, to - from},
                      slices);
    from = to;
    first = end;
  }
  return slices;
}

void Contents::write(InstructionId id, std::size_t i, const std::vector<Slice>& slices) {
  const View& view = at(id).writes[i];
  const CellRange range = accesses_.footprint(id).writes[i];
  std::int64_t begin = view.at;  // of the current slice, in the buffer
  auto slice = slices.begin();
  for (std::int32_t cell = range.begin; cell < range.end; ++cell) {
    const std::int64_t from = element(view, accesses_.cell_begin(cell));
    const std::int64_t to = cell + 1 == range.end
                                ? view.at + view.elems
                                : element(view, accesses_.cell_begin(cell + 1) - 1) + 1;
    while (std::next(slice) != slices.end() && from >= begin + slice->elems)
      begin += (slice++)->elems;
    cells_[cell] = {view.buffer, slice->value, slice->at - begin};
    if (to <= begin + slice->elems || std::next(slice) == slices.end()) continue;
    std::vector<Slice> pieces;  // nobody has looked into the cell so far
    std::int64_t at = begin;
    for (auto piece = slice; piece != slices.end() && at < to; at += (piece++)->elems) {
      const std::int64_t skipped = std::max<std::int64_t>(from - at, 0);
      pieces.push_back({piece->value, piece->value == Values::kZero ? 0 : piece->at + skipped,
                        std::min(to, at + piece->elems) - at - skipped});
    }
    cells_[cell] = {view.buffer, values_.row(pieces), -from};
  }
}

void Contents::write_part(InstructionId id, std::size_t i, const std::vector<Slice>& slices,
                          Group group) {
  if (plan_.mesh.size(group) == 1) return write(id, i, slices);
  write(id, i, values_.part(values_.row(slices), group, at(id).writes[i].elems));
}

void Contents::gather(InstructionId id, Group group) {
  for (std::size_t i = 0; i < at(id).writes.size(); ++i) {
    const Value& part = values_.at(read_value(id, i));
    if (plan_.mesh.size(group) == 1)
      write(id, i, read(id, i));
    else if (part.kind == Value::Kind::Part && static_cast<Group>(part.second) == group)
      write(id, i, values_.resolved(part.first));
    else
      write_unknown(id, i);
  }
}

void Contents::write_unknown(InstructionId id) {
  for (std::size_t i = 0; i < at(id).writes.size(); ++i)
    write_unknown(id, i);
}

void Contents::forget(InstructionId id) {
  for (const CellRange& range : accesses_.footprint(id).writes)
    std::fill(cells_.begin() + range.begin, cells_.begin() + range.end, Cell{});
}

}  // namespace shardplan
