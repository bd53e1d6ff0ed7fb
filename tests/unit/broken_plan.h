#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "planner/planner.h"
#include "plans/verify.h"
#include "tests/models/tiny_models.h"

namespace shardplan::testing {

/// A right plan, to be broken by each test.
class BrokenPlan : public ::testing::Test {
 protected:
  Plan plan = make_plan(tiny_job(Strategy::FullShard, 4), tiny_llama());

  Instruction& at(const std::string& name) {
    const auto found = std::ranges::find(plan.instructions, name, &Instruction::name);
    EXPECT_NE(found, plan.instructions.end()) << name;
    return *found;
  }
  Attributes& attributes(const std::string& name) {
    return std::get<Compute>(at(name).operation).attributes;
  }
  Buffer& buffer(const std::string& name) {
    const auto found = std::ranges::find(plan.buffers, name, &Buffer::name);
    EXPECT_NE(found, plan.buffers.end()) << name;
    return *found;
  }
  /// Removes an instruction; what waited for it waits for nothing.
  void drop(const std::string& name) {
    const auto id = static_cast<InstructionId>(&at(name) - plan.instructions.data());
    plan.instructions.erase(plan.instructions.begin() + id);
    for (Instruction& instruction : plan.instructions) {
      std::erase_if(instruction.after, [&](const Wait& wait) { return wait.id == id; });
      for (Wait& wait : instruction.after)
        wait.id -= wait.id > id ? 1 : 0;
    }
    for (Segment& segment : plan.segments) {
      segment.first -= segment.first > id ? 1 : 0;
      segment.last -= segment.last > id ? 1 : 0;
    }
  }
  /// Expects a fault that names the instruction and the buffer and says why.
  void expect_fault(const std::string& instruction, const std::string& buffer,
                    const std::string& why) {
    const std::vector<Fault> faults = verify(plan);
    const bool found = std::ranges::any_of(faults, [&](const Fault& fault) {
      return fault.instruction == instruction && fault.buffer == buffer &&
             fault.why.find(why) != std::string::npos;
    });
    EXPECT_TRUE(found) << faults.size() << " faults, first: "
                       << (faults.empty() ? ""
                                          : faults[0].instruction + " | " + faults[0].buffer +
                                                " | " + faults[0].why);
  }
};

}  // namespace shardplan::testing
