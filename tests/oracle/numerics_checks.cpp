#include "tests/oracle/numerics_checks.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "runtime/safetensors.h"

namespace shardplan::oracle {
namespace {

constexpr double kMissing = std::numeric_limits<double>::infinity();

double relative(double got, double expected) {
  return std::abs(got - expected) / std::abs(expected);
}

double worst_relative(const std::vector<double>& got, const std::vector<double>& expected) {
  if (got.size() != expected.size() || got.empty()) return kMissing;
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double off = relative(got[i], expected[i]);
    if (!(off <= worst)) worst = off;  // keeps a NaN
  }
  return worst;
}

std::vector<double> by_step(const Report& report, double StepReport::*figure) {
  std::vector<double> values;
  for (const StepReport& step : report.steps)
    values.push_back(step.*figure);
  return values;
}

TensorStatistics statistics_of(const std::vector<float>& tensor) {
  TensorStatistics statistics;
  double squares = 0;
  for (const double x : tensor) {
    statistics.sum += x;
    statistics.abs_sum += std::abs(x);
    squares += x * x;
  }
  statistics.l2 = std::sqrt(squares);
  return statistics;
}

/// Softmax ignores the key bias, so the gradient of the middle third of this tensor is rounding
/// noise, which Adam turns into real steps.
bool holds_key_bias(const std::string& name) { return name.ends_with("c_attn.bias"); }

void compare_tensors(const std::string& what, const TensorsByName& got,
                     const StatisticsByName& expected, double limit, double key_bias_limit,
                     std::vector<Check>& checks) {
  for (const auto& [name, tensor] : got) {
    if (!expected.contains(name)) checks.push_back({what + " unexpected " + name, kMissing, 0});
  }
  for (const auto& [name, want] : expected) {
    const auto found = got.find(name);
    if (found == got.end()) {
      checks.push_back({what + " missing " + name, kMissing, 0});
      continue;
    }
    const double bar = holds_key_bias(name) ? std::max(limit, key_bias_limit) : limit;
    const TensorStatistics have = statistics_of(found->second);
    checks.push_back({what + " " + name + " l2", relative(have.l2, want.l2), bar});
    checks.push_back(
        {what + " " + name + " sum", std::abs(have.sum - want.sum) / want.abs_sum, bar});
  }
}

/// Element by element, where the case stores every weight.
void compare_elements(const NumericsCase& one, const TensorsByName& got,
                      std::vector<Check>& checks) {
  const SafeTensors reference(one.final_weights->string());
  double difference = 0;
  double size = 0;
  double largest = 0;
  for (const auto& [name, tensor] : got) {
    const SafeTensor* expected = reference.find(name);
    if (expected == nullptr || expected->elements() != static_cast<std::int64_t>(tensor.size())) {
      checks.push_back({"final weights, shape of " + name, kMissing, 0});
      continue;
    }
    std::vector<float> values(tensor.size());
    read_elements(*expected, 0, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double off = static_cast<double>(tensor[i]) - values[i];
      difference += off * off;
      size += static_cast<double>(values[i]) * values[i];
      largest = std::max(largest, std::abs(off));
    }
  }
  checks.push_back(
      {"final weights, relative L2", std::sqrt(difference / size), one.limits.final_rel_l2});
  checks.push_back({"final weights, largest difference", largest, one.limits.final_max_abs});
}

std::size_t differing(const std::vector<float>& a, const std::vector<float>& b) {
  std::size_t count = std::max(a.size(), b.size()) - std::min(a.size(), b.size());
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0) ++count;
  }
  return count;
}

/// Infinite when one of the two is not known.
double bytes_off(std::optional<Bytes> got, std::optional<Bytes> expected) {
  return got && expected ? static_cast<double>(std::llabs(*got - *expected)) : kMissing;
}

}  // namespace

std::vector<Check> against_pytorch(const NumericsCase& one, const Training& got) {
  const NumericsLimits& limits = one.limits;
  const std::vector<double> norms = by_step(got.report, &StepReport::grad_norm);
  std::vector<Check> checks = {
      {"loss, worst step",
       worst_relative(by_step(got.report, &StepReport::loss), one.expected.loss), limits.loss},
      {"grad_norm, step 0",
       norms.empty() ? kMissing : relative(norms.front(), one.expected.grad_norm.front()),
       limits.grad_norm_step0},
      {"grad_norm, worst step", worst_relative(norms, one.expected.grad_norm), limits.grad_norm}};
  if (one.final_weights) compare_elements(one, got.weights, checks);
  const bool sgd = one.job.training.optimizer.name == OptimizerJob::Name::Sgd;
  compare_tensors("final", got.weights, one.expected.final_weights, limits.final_tensor_l2,
                  sgd ? 0 : limits.key_bias, checks);
  return checks;
}

std::vector<Check> gradient_against_pytorch(const NumericsCase& one,
                                            const TensorsByName& gradient) {
  std::vector<Check> checks;
  compare_tensors("grad_step0", gradient, one.expected.gradient_of_step0,
                  one.limits.gradient_of_step0, one.limits.key_bias, checks);
  return checks;
}

Check same_bits(const std::string& what, const Training& a, const Training& b) {
  std::size_t count = 0;
  for (const auto& figure : {&StepReport::loss, &StepReport::grad_norm}) {
    const std::vector<double> x = by_step(a.report, figure);
    const std::vector<double> y = by_step(b.report, figure);
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (i >= y.size() || x[i] != y[i]) ++count;
    }
  }
  for (const auto& [name, tensor] : a.weights) {
    const auto other = b.weights.find(name);
    count += differing(tensor, other == b.weights.end() ? std::vector<float>() : other->second);
  }
  return {what + ", values with other bits", static_cast<double>(count), 0};
}

std::vector<Check> memory_as_predicted(const Plan& plan, const Report& predicted,
                                       const Report& measured) {
  double arena =
      measured.ranks.size() == static_cast<std::size_t>(plan.world_size()) ? 0 : kMissing;
  double peak = 0;
  std::array<double, kCategories> by_category{};
  const auto expected_of = [&](std::int64_t rank) -> const RankMemory& {
    std::size_t entry = 0;  // by rank class, or one for all
    while (predicted.ranks.size() > 1 && plan.classes.at(entry).last < rank)
      ++entry;
    return predicted.ranks.at(entry).memory;
  };
  for (std::size_t rank = 0; rank < measured.ranks.size(); ++rank) {
    const RankMemory& expected = expected_of(static_cast<std::int64_t>(rank));
    const RankMemory& got = measured.ranks[rank].memory;
    arena = std::max(arena, bytes_off(got.peak_allocated_bytes, plan.arena.bytes));
    peak = std::max(peak, bytes_off(got.peak_allocated_bytes, expected.peak_allocated_bytes));
    for (int i = 0; i < kCategories; ++i) {
      double& worst = by_category[static_cast<std::size_t>(i)];
      worst = std::max(worst, bytes_off(got.at_peak[i], expected.at_peak[i]));
    }
  }
  std::vector<Check> checks = {{"arena, bytes off", arena, 0},
                               {"peak_allocated, bytes off", peak, 0}};
  for (int i = 0; i < kCategories; ++i) {
    const std::string category(to_string(static_cast<Category>(i)));
    checks.push_back(
        {category + " at peak, bytes off", by_category[static_cast<std::size_t>(i)], 0});
  }
  return checks;
}

}  // namespace shardplan::oracle
