#pragma once

#include <vector>

#include "plans/happens_before.h"
#include "plans/plan.h"

namespace shardplan {

/// When a buffer is in use, in the first of two iterations of every loop.
struct BufferUse {
  BufferId buffer = -1;
  std::int32_t first = -1;  // positions in issue order
  std::int32_t last = -1;
  Clock end;         // the last position on each stream that touches it
  Clock start;       // what has finished whenever it is touched first
  Clock next_start;  // the same in the second iteration; everything when there is none
  int stream = -1;   // the only stream that touches it; kStreams: several
};

/// Uses of all device buffers that are not resident.
std::vector<BufferUse> buffer_uses(const Plan& plan);

/// True when every use of `earlier` has finished before any use of `later` begins, in one iteration
/// and across the loop's back edge.
bool wholly_before(const BufferUse& earlier, const BufferUse& later);

}  // namespace shardplan
