#pragma once

#include <vector>

#include "plans/happens_before.h"
#include "plans/plan.h"

namespace shardplan {

/// One life of a buffer: in a loop it has one in every iteration.
struct Life {
  std::int32_t first = -1;  // positions in issue order
  std::int32_t last = -1;
  Clock end;    // the last position on each stream that touches it
  Clock start;  // what has finished whenever it is touched first
};

/// When a buffer is in use, every loop run twice.
struct BufferUse {
  BufferId buffer = -1;
  int stream = -1;  // the only stream that touches it; kStreams: several
  std::vector<Life> lives;
};

/// Uses of all device buffers that are not resident. A life begins with the instruction that
/// touches the buffer first.
std::vector<BufferUse> buffer_uses(const Plan& plan);

/// True when every life of one buffer has finished before the next of the other begins.
bool apart(const BufferUse& a, const BufferUse& b);

}  // namespace shardplan
