#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
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
  std::string family;  // trainings of one model by one source, "llmq/qwen2.5-7b"
  Plan plan;
  double tokens_per_s_per_gpu = 0;
};

/// Values of free_constants(), in their order.
using Constants = std::vector<double>;

/// Trainings and what is predicted of them, each set of constants once.
class Predictions {
 public:
  Predictions(std::vector<MeasuredTraining> trainings, const Hardware& hardware)
      : trainings_(std::move(trainings)), hardware_(hardware) {}

  const std::vector<MeasuredTraining>& trainings() const { return trainings_; }
  /// Predicted over measured speed, less one, of each training with these constants.
  const std::vector<double>& errors(const Constants& values);

 private:
  std::vector<MeasuredTraining> trainings_;
  const Hardware& hardware_;
  std::map<Constants, std::vector<double>> known_;
};

/// The logarithms of predicted over measured speed of all trainings, as linear functions of the
/// constants' logarithms: exact where they are taken, and good near it.
class LinearPredictions {
 public:
  LinearPredictions(Predictions& predictions, const Constants& around);
  std::vector<double> operator()(const Constants& values) const;

 private:
  Constants around_;
  std::vector<double> there_;
  std::vector<std::vector<double>> gradients_;  // by constant
};

/// Indices of trainings.
using Members = std::vector<std::size_t>;

struct Fit {
  Constants values;
  std::vector<bool> identified;  // whether the figures tell it; else it stays where it was believed
};

/// Fits the constants to the members: least Huber loss of the logarithm of predicted over measured
/// speed, where a family of n trainings counts as the root of n, plus what each constant is away
/// from its prior; by turns along each constant, from the priors on. `on_turn` is called before
/// each turn.
Fit fit_constants(Predictions& predictions, const Members& members,
                  const std::function<void()>& on_turn);

/// The same of a part of the trainings that `fit` is of, by linear predictions taken there.
Fit refit_constants(const Predictions& predictions, const Members& members, const Fit& fit,
                    const LinearPredictions& linear);

}  // namespace shardplan
