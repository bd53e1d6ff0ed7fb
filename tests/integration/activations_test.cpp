#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>

#include "planner/planner.h"
#include "plans/error.h"
#include "runtime/arena.h"
#include "runtime/comm/thread_communicator.h"
#include "runtime/cpu_device.h"
#include "runtime/interpreter.h"
#include "runtime/safetensors.h"

namespace shardplan {
namespace {

const std::string kNumerics = std::string(SHARDPLAN_SOURCE_DIR) + "/tests/oracle/numerics";

/// One sequence, number 45 of the oracle's data, through one rank.
Job one_sequence(const std::string& model, const std::string& order) {
  Job job;
  job.model.hf_config = kNumerics + "/models/" + model;
  job.cluster.gpu.node_type = "cpu-host";
  job.cluster.gpus_per_node = 1;
  job.strategy.sharding = Strategy::NoShard;
  job.strategy.profile = Profile::CpuReference;
  job.training.micro_batch = 1;
  job.training.sequence_length = 32;
  job.run.weights = kNumerics + "/models/" + model + "/model.safetensors";
  job.run.tokens = kNumerics + "/data/train.bin";
  job.run.data_order = order;
  job.run.steps = 1;
  return job;
}

/// Largest distance, relative to the largest value.
double distance(std::span<const float> got, const SafeTensor& expected) {
  std::vector<float> values(expected.elements());
  read_elements(expected, 0, values);
  if (values.size() != got.size()) return INFINITY;
  double largest = 0;
  double apart = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(values[i])));
    apart = std::max(apart, std::abs(static_cast<double>(got[i]) - values[i]));
  }
  return apart / largest;
}

/// The module whose output a launch leaves in its first written operand; "" when it is none.
std::string module_of(const Instruction& instruction) {
  const auto* compute = std::get_if<Compute>(&instruction.operation);
  if (compute == nullptr || instruction.phase != Phase::Forward) return {};
  const std::string module = instruction.name.substr(0, instruction.name.rfind('.'));
  // The sum after the MLP is what the block returns; the first sum of a block is inside it.
  const bool inside = compute->kernel == Kernel::Add && !instruction.name.ends_with("#2");
  const bool is_module = compute->kernel == Kernel::Embedding ||
                         compute->kernel == Kernel::RmsNorm ||
                         compute->kernel == Kernel::LayerNorm ||
                         compute->kernel == Kernel::Linear || compute->kernel == Kernel::Add;
  return is_module && !inside ? module : std::string();
}

class Activations : public ::testing::TestWithParam<const char*> {};

// Float64 results of PyTorch, stored as float32: tests/oracle/numerics/README.md.
TEST_P(Activations, OfEveryModuleEqualPyTorchs) {
  const std::string order = ::testing::TempDir() + "/order_" + GetParam() + ".json";
  std::ofstream(order) << "[[[[45]]]]";
  const Plan plan = make_plan(one_sequence(GetParam(), order));
  const SafeTensors expected(kNumerics + "/models/" + GetParam() + "/activations_seq0.safetensors");

  CpuDevice device({.profile = Profile::CpuReference}, {});
  const Arena arena(device, plan.arena.bytes);
  ThreadWorld world(plan.mesh, 1);
  const Batches batches(plan);
  const WeightSource weights(plan);
  const std::vector<StepScalars> scalars(1);
  std::vector<StepReport> steps(1);
  const JobData data{.batches = &batches,
                     .weight_source = &weights,
                     .weight_sink = nullptr,
                     .scalars = scalars,
                     .steps = steps};
  Interpreter interpreter(plan, arena.bytes(), device, world.at(0), data);
  int compared = 0;
  for (const InstructionId id : unroll(plan, 1)) {
    const Instruction& instruction = plan.instructions[id];
    if (instruction.phase != Phase::Load && instruction.phase != Phase::Forward) continue;
    interpreter.run({.id = id});
    const std::string module = module_of(instruction);
    const SafeTensor* tensor = module.empty() ? nullptr : expected.find(module);
    if (tensor == nullptr) continue;
    const std::span<std::byte> bytes = interpreter.operand(instruction.writes[0]).bytes();
    const std::span<const float> got(reinterpret_cast<const float*>(bytes.data()),
                                     bytes.size() / 4);
    EXPECT_LT(distance(got, *tensor), 1e-6) << module;
    ++compared;
  }
  EXPECT_GE(compared, 20);
}

INSTANTIATE_TEST_SUITE_P(Models, Activations,
                         ::testing::Values("llama-nano", "llama-odd", "gpt2-nano"));

}  // namespace
}  // namespace shardplan
