#include <cstdint>
#include <string_view>

#include "planner/graph_reader.h"
#include "plans/error.h"

using namespace shardplan;

/// Any bytes as a graph YAML: a graph of at least one parameter, or an InputError.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const ModelGraph graph =
        read_graph(std::string_view(reinterpret_cast<const char*>(data), size), "graph.yaml");
    check(graph.parameter_count() > 0, "a model has parameters");
  } catch (const InputError&) {
  }
  return 0;
}
