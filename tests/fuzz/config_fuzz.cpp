#include <cstdint>
#include <string_view>

#include "planner/model.h"
#include "plans/error.h"

using namespace shardplan;

/// Any bytes as a config.json: a graph of at least one parameter, or an InputError.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const ModelGraph graph = model_from_config(
        std::string_view(reinterpret_cast<const char*>(data), size), "config.json");
    check(graph.parameter_count() > 0, "a model has parameters");
  } catch (const InputError&) {
  }
  return 0;
}
