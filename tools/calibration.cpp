#include "tools/calibration.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "simulator/simulate.h"
#include "tools/parallel.h"

namespace shardplan {
namespace {

using Of = FreeConstant::Of;
constexpr std::array kFree{
    FreeConstant{"cuda.matmul_efficiency", Of::Others, 0.88, 0.15, 1,
                 [](CostConstants& costs) -> double& { return costs.matmul_efficiency; }},
    FreeConstant{"torch-eager.matmul_efficiency", Of::Torch, 0.88, 0.15, 1,
                 [](CostConstants& costs) -> double& { return costs.matmul_efficiency; }},
    FreeConstant{"cuda.asynchronous_matmul_share", Of::All, 0.92, 0.1, 1,
                 [](CostConstants& costs) -> double& { return costs.asynchronous_matmul_share; }},
    FreeConstant{"cuda.narrow_matmul_share", Of::All, 0.75, 0.2, 1,
                 [](CostConstants& costs) -> double& { return costs.narrow_matmul_share; }},
    FreeConstant{"cuda.attention_scale", Of::All, 1, 0.3, 1.4,
                 [](CostConstants& costs) -> double& { return costs.attention.scale; }},
    FreeConstant{"cuda.memory_efficiency", Of::All, 0.85, 0.1, 1,
                 [](CostConstants& costs) -> double& { return costs.memory_efficiency; }},
};

constexpr double kSquareBelow = 0.05;  // of an error; beyond it counts as it is, not its square
constexpr double kPriorWeight = 0.0004;
constexpr double kLeastEvidence = 4 * kPriorWeight;  // of a constant: what two deviations cost
constexpr double kFirstStep = 0.12;                  // of a constant's logarithm
constexpr double kNextStep = 0.03;                   // the same from where a fit has ended
constexpr double kLastStep = 0.004;
constexpr double kLeastGain = 1e-6;

double huber(double error) {
  const double size = std::abs(error);
  return size < kSquareBelow ? size * size / (2 * kSquareBelow) : size - kSquareBelow / 2;
}

/// The loss that a fit makes small.
class Loss {
 public:
  /// `log_errors`: logarithms of predicted over measured speed of all trainings.
  using LogErrors = std::function<std::vector<double>(const Constants&)>;
  Loss(const Predictions& predictions, const Members& members, LogErrors log_errors)
      : log_errors_(std::move(log_errors)), members_(members) {
    std::map<std::string, int> sizes;
    for (const std::size_t member : members)
      ++sizes[predictions.trainings()[member].family];
    for (const std::size_t member : members)
      weights_.push_back(1 / std::sqrt(sizes[predictions.trainings()[member].family]));
  }

  double operator()(const Constants& values) const {
    const std::vector<double> errors = log_errors_(values);
    double sum = 0;
    double weights = 0;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      sum += weights_[i] * huber(errors[members_[i]]);
      weights += weights_[i];
    }
    double away = 0;
    for (std::size_t c = 0; c < values.size(); ++c)
      away += std::pow(std::log(values[c] / kFree[c].prior) / kFree[c].deviation, 2);
    return sum / weights + kPriorWeight * away;
  }

 private:
  LogErrors log_errors_;
  const Members& members_;
  std::vector<double> weights_;
};

Constants moved(Constants values, std::size_t constant, double step) {
  values[constant] = std::min(kFree[constant].most, values[constant] * std::exp(step));
  return values;
}

/// Goes along each constant that `may_move` in turn, as long as that makes the loss smaller.
Constants descend(const Loss& loss, Constants values, double first_step,
                  const std::vector<bool>& may_move, const std::function<void()>& on_turn) {
  std::vector<double> steps;
  for (const bool moves : may_move)
    steps.push_back(moves ? first_step : 0);
  double best = loss(values);
  while (*std::ranges::max_element(steps) >= kLastStep) {
    on_turn();
    for (std::size_t c = 0; c < steps.size(); ++c) {
      if (steps[c] < kLastStep) continue;
      bool better = false;
      for (const double step : {steps[c], -steps[c]}) {
        const Constants tried = moved(values, c, step);
        const double there = loss(tried);
        if (there >= best - kLeastGain) continue;
        best = there;
        values = tried;
        better = true;
        break;
      }
      steps[c] *= better ? 1.4 : 0.5;
    }
  }
  return values;
}

/// Which constants the trainings tell: the loss grows by more than the priors' share of it when one
/// of them moves to either side.
std::vector<bool> identified_by(const Loss& loss, const Constants& values) {
  const double best = loss(values);
  std::vector<bool> identified;
  for (std::size_t c = 0; c < kFree.size(); ++c) {
    const double below = loss(moved(values, c, -kFree[c].deviation));
    identified.push_back(below - best > kLeastEvidence);
  }
  return identified;
}

std::vector<double> log_errors(Predictions& predictions, const Constants& values) {
  std::vector<double> logarithms;
  for (const double error : predictions.errors(values))
    logarithms.push_back(std::log1p(error));
  return logarithms;
}

/// Descends, and again without what the trainings turn out not to tell.
Fit fitted(const Loss& loss, const Constants& start, double first_step,
           const std::function<void()>& on_turn) {
  const std::vector<bool> all(kFree.size(), true);
  Fit fit;
  fit.values = descend(loss, start, first_step, all, on_turn);
  fit.identified = identified_by(loss, fit.values);
  if (fit.identified == all) return fit;
  for (std::size_t c = 0; c < kFree.size(); ++c)
    if (!fit.identified[c]) fit.values[c] = kFree[c].prior;
  fit.values = descend(loss, fit.values, kNextStep, fit.identified, on_turn);
  return fit;
}

}  // namespace

std::span<const FreeConstant> free_constants() { return kFree; }

const std::vector<double>& Predictions::errors(const Constants& values) {
  const auto [known, fresh] = known_.try_emplace(values);
  std::vector<double>& errors = known->second;
  if (!fresh) return errors;
  errors.resize(trainings_.size());
  on_all_cores(trainings_.size(), [&](std::size_t i) {
    const MeasuredTraining& training = trainings_[i];
    CostConstants costs = hardware_.costs(training.plan.profile);
    for (std::size_t c = 0; c < values.size(); ++c)
      if (kFree[c].is_of(training.plan.profile)) kFree[c].in(costs) = values[c];
    const auto time = simulate_time(training.plan, costs);
    errors[i] = time ? time->tokens_per_s_per_gpu / training.tokens_per_s_per_gpu - 1 : -1;
  });
  return errors;
}

LinearPredictions::LinearPredictions(Predictions& predictions, const Constants& around)
    : around_(around), there_(log_errors(predictions, around)) {
  for (std::size_t c = 0; c < around.size(); ++c) {
    std::vector<double>& gradient = gradients_.emplace_back();
    const std::vector<double> below = log_errors(predictions, moved(around, c, -kNextStep));
    for (std::size_t t = 0; t < there_.size(); ++t)
      gradient.push_back((there_[t] - below[t]) / kNextStep);
  }
}

std::vector<double> LinearPredictions::operator()(const Constants& values) const {
  std::vector<double> here = there_;
  for (std::size_t c = 0; c < values.size(); ++c) {
    const double step = std::log(values[c] / around_[c]);
    for (std::size_t t = 0; t < here.size(); ++t)
      here[t] += gradients_[c][t] * step;
  }
  return here;
}

Fit fit_constants(Predictions& predictions, const Members& members,
                  const std::function<void()>& on_turn) {
  const Loss loss(predictions, members,
                  [&](const Constants& values) { return log_errors(predictions, values); });
  Constants priors;
  for (const FreeConstant& constant : kFree)
    priors.push_back(constant.prior);
  return fitted(loss, priors, kFirstStep, on_turn);
}

Fit refit_constants(const Predictions& predictions, const Members& members, const Fit& fit,
                    const LinearPredictions& linear) {
  return fitted(Loss(predictions, members, linear), fit.values, kNextStep, [] {});
}

}  // namespace shardplan
