#include "planner/passes/emitter.h"

#include <fmt/format.h>

namespace shardplan {

std::string Emitter::unique(Counts& seen, std::string name) {
  const int count = ++seen[name];
  return count == 1 ? std::move(name) : fmt::format("{}#{}", name, count);
}

BufferId Emitter::buffer(std::string name, Category category, std::int64_t elems, Dtype dtype) {
  plan_.buffers.push_back({.name = unique(buffers_, std::move(name)),
                           .category = category,
                           .dtype = dtype,
                           .elems = elems});
  return static_cast<BufferId>(plan_.buffers.size()) - 1;
}

BufferId Emitter::resident(std::string name, Category category, std::int64_t elems, Dtype dtype) {
  const BufferId id = buffer(std::move(name), category, elems, dtype);
  plan_.buffers[id].resident = true;
  return id;
}

InstructionId Emitter::emit(std::string name, const Slot& slot, Operation operation,
                            std::vector<View> reads, std::vector<View> writes) {
  plan_.instructions.push_back({.name = unique(instructions_, std::move(name)),
                                .stream = slot.stream,
                                .phase = slot.phase,
                                .unit = slot.unit,
                                .reads = std::move(reads),
                                .writes = std::move(writes),
                                .after = {},
                                .operation = std::move(operation)});
  return static_cast<InstructionId>(plan_.instructions.size()) - 1;
}

}  // namespace shardplan
