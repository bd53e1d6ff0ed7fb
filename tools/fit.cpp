#include "tools/fit.h"

#include "planner/model.h"
#include "planner/planner.h"
#include "simulator/simulate.h"

namespace shardplan {

FittedStrategy fit_strategy(const Job& job, Strategy strategy, Maximize what,
                            const Hardware& hardware) {
  FittedStrategy row{.strategy = strategy};
  Job variant = job;
  set_sharding(variant, strategy);
  row.largest = largest_that_fits(variant, what, hardware);
  const std::int64_t shown = row.largest ? row.largest->number : smallest(what);
  const Enlarged larger = enlarged(variant, what, shown);
  row.plan = make_plan(larger.job, build_model(larger.job.model, larger.layers));
  row.report = simulate(row.plan, hardware.costs(row.plan.profile));
  return row;
}

}  // namespace shardplan
