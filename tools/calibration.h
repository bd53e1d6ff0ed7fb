#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plans/hardware.h"
#include "plans/plan.h"

namespace shardplan {

/// A constant of the time model that a fit may move, and what is believed of it beforehand.
struct FreeConstant {
  enum class Of { All, Torch, Others };
  std::string_view name;  // in cost_model.yaml
  Of of = Of::All;        // profiles that it is of
  double prior = 1;
  double deviation = 0.1;  // of the logarithm
  double most = 1;
  double& (*in)(CostConstants& costs) = nullptr;

  bool is_of(Profile profile) const {
    return of == Of::All || (of == Of::Torch) == is_torch(profile);
  }
};

/// Those whose value training figures can tell; latencies and links have figures of their own.
std::span<const FreeConstant> free_constants();

/// A training that was measured, planned once.
struct MeasuredTraining {
  std::string id;
  std::string family;  // trainings of one model by one source
  Plan plan;
  double tokens_per_s_per_gpu = 0;
};

/// Values of free_constants(), in their order.
using Constants = std::vector<double>;

struct Fit {
  Constants values;
  std::vector<bool> identified;  // whether the figures tell it; else it stays where it was believed
};

/// Fits the constants to the trainings: least Huber loss of the logarithm of predicted over
/// measured speed, where a family of n trainings counts as the root of n, plus what each constant
/// is away from its prior; by turns along each constant. `start`: priors when empty. `on_turn` is
/// called before each turn.
Fit fit_constants(const std::vector<const MeasuredTraining*>& trainings, const Hardware& hardware,
                  const Constants& start, const std::function<void()>& on_turn);

/// Predicted over measured speed, less one, of each training with these constants.
std::vector<double> errors_with(const std::vector<const MeasuredTraining*>& trainings,
                                const Hardware& hardware, const Constants& values);

}  // namespace shardplan
