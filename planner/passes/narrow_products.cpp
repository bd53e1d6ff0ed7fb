#include "planner/passes/narrow_products.h"

#include <fmt/format.h>

#include "planner/passes/recomputation.h"
#include "planner/passes/wrap.h"
#include "plans/error.h"
#include "plans/field_places.h"

namespace shardplan {

ModelGraph with_narrow_products(const ModelGraph& graph, const Job& job) {
  const MatmulDtype dtype = job.training.matmul_dtype;
  const GpuSpec& gpu = job.cluster.gpu;
  const bool float8 = dtype == MatmulDtype::Float8;
  if ((float8 ? gpu.matmul_flops_fp8 : gpu.matmul_flops_fp4) == 0 || gpu.matmul_flops_bf16 == 0)
    throw FieldError(
        "training.matmul_dtype",
        fmt::format("{} has no units for products in {}; expected none{}", gpu.name,
                    to_string(dtype), !float8 && gpu.matmul_flops_fp8 > 0 ? " or float8" : ""));
  ModelGraph marked = graph;
  const std::vector<std::string> blocks = block_modules(graph);
  for (const auto vertex : boost::make_iterator_range(boost::vertices(marked.dag))) {
    Operator& op = marked.dag[vertex];
    if (op.kind == OperatorKind::Linear && deepest_containing(blocks, op.module) >= 0)
      op.attributes.set(Attribute::OperandBits, float8 ? 8 : 4);
  }
  return marked;
}

}  // namespace shardplan
