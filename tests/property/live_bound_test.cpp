// The live bound, which the planner finds as a maximum flow, against a linear program.
#include <glpk.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "planner/planner.h"
#include "plans/happens_before.h"
#include "tests/models/tiny_models.h"

namespace shardplan {
namespace {

/// Where the device buffers that are not resident are touched when every loop runs once.
std::vector<std::vector<std::int32_t>> touches(const Plan& plan,
                                               const std::vector<InstructionId>& order) {
  std::vector<std::vector<std::int32_t>> positions(plan.buffers.size());
  for (std::int32_t p = 0; p < static_cast<std::int32_t>(order.size()); ++p)
    for (const auto* views :
         {&plan.instructions[order[p]].reads, &plan.instructions[order[p]].writes})
      for (const View& view : *views)
        positions[view.buffer].push_back(p);
  for (std::size_t b = 0; b < positions.size(); ++b)
    if (plan.buffers[b].resident || plan.buffers[b].space != Space::Device) positions[b].clear();
  return positions;
}

/// before[b][c]: all that touches buffer b has finished when anything that touches c starts.
std::vector<std::vector<bool>> precedences(const Plan& plan) {
  const std::vector<InstructionId> order = unroll(plan, 1);
  const HappensBefore happens_before(plan, order);
  const auto positions = touches(plan, order);
  std::vector before(positions.size(), std::vector<bool>(positions.size(), false));
  for (std::size_t b = 0; b < positions.size(); ++b)
    for (std::size_t c = 0; c < positions.size(); ++c) {
      bool ordered = !positions[b].empty() && !positions[c].empty();
      for (const std::int32_t last : positions[b])
        for (const std::int32_t first : positions[c])
          ordered = ordered && happens_before.ordered(last, first);
      before[b][c] = ordered;
    }
  return before;
}

/// A linear program of GLPK.
class LinearProgram {
 public:
  LinearProgram() { glp_set_obj_dir(problem_.get(), GLP_MAX); }

  /// A variable from 0 to 1.
  int add_variable(double weight) {
    const int column = glp_add_cols(problem_.get(), 1);
    glp_set_col_bnds(problem_.get(), column, GLP_DB, 0, 1);
    glp_set_obj_coef(problem_.get(), column, weight);
    return column;
  }
  void expect_at_most(int smaller, int larger) {
    const int row = glp_add_rows(problem_.get(), 1);
    glp_set_row_bnds(problem_.get(), row, GLP_UP, 0, 0);
    const int columns[] = {0, smaller, larger};  // GLPK counts from 1
    const double factors[] = {0, 1, -1};
    glp_set_mat_row(problem_.get(), row, 2, columns, factors);
  }
  double largest() {
    glp_smcp options;
    glp_init_smcp(&options);
    options.msg_lev = GLP_MSG_OFF;
    options.presolve = GLP_ON;
    EXPECT_EQ(glp_simplex(problem_.get(), &options), 0);
    return glp_get_obj_val(problem_.get());
  }

 private:
  struct Delete {
    void operator()(glp_prob* problem) const { glp_delete_prob(problem); }
  };
  std::unique_ptr<glp_prob, Delete> problem_{glp_create_prob()};
};

/// The heaviest set of buffers of which no two are ordered. A moment has begun some buffers and
/// ended some of these; what has begun and not ended is such a set. With 1 for true, `ended` is at
/// most `begun`, and what begins after a buffer has, begins no sooner than that ends. These are
/// differences of variables, so the largest solution is in whole numbers.
double heaviest_unordered(const Plan& plan) {
  const auto before = precedences(plan);
  const std::size_t count = before.size();
  LinearProgram program;
  std::vector<int> begun;
  std::vector<int> ended;
  double resident = 0;
  for (const Buffer& buffer : plan.buffers) {
    const bool counts = buffer.space == Space::Device;
    const double bytes = counts ? static_cast<double>(buffer.bytes()) : 0;
    if (buffer.resident) resident += bytes;
    begun.push_back(program.add_variable(buffer.resident ? 0 : bytes));
    ended.push_back(program.add_variable(buffer.resident ? 0 : -bytes));
    program.expect_at_most(ended.back(), begun.back());
  }
  for (std::size_t b = 0; b < count; ++b)
    for (std::size_t c = 0; c < count; ++c)
      if (before[b][c]) program.expect_at_most(begun[c], ended[b]);
  return resident + program.largest();
}

RC_GTEST_PROP(LiveBound, IsTheHeaviestSetOfUnorderedBuffers, ()) {
  Job job = testing::tiny_job(*rc::gen::element(Strategy::FullShard, Strategy::ShardGradOp,
                                                Strategy::NoShard, Strategy::Ddp),
                              *rc::gen::inRange(1, 5));
  job.strategy.limit_all_gathers = *rc::gen::arbitrary<bool>();
  job.strategy.forward_prefetch = *rc::gen::inRange(0, 3);
  job.training.gradient_accumulation.steps = *rc::gen::inRange(1, 3);
  const Plan plan = make_plan(job, testing::tiny_llama({.layers = *rc::gen::inRange(1, 3)}));
  const double bound = static_cast<double>(plan.arena.live_bound_bytes);
  RC_ASSERT(std::abs(heaviest_unordered(plan) - bound) < 0.5);
}

}  // namespace
}  // namespace shardplan
