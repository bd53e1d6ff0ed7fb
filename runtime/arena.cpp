#include "runtime/arena.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include "plans/error.h"

namespace shardplan {

Arena::Arena(Bytes bytes) : bytes_(bytes) {
  const Bytes size = round_up(bytes + 2 * kGuardBytes, kAlignment);
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, size)));
  if (!memory_)
    throw SystemError(fmt::format("cannot allocate the arena of {}", format_bytes(bytes)));
  // Large pages: matrix products step over thousands of small ones. A wish; any pages will do.
  madvise(memory_.get(), static_cast<std::size_t>(size), MADV_HUGEPAGE);
}

}  // namespace shardplan
