#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plans/hardware.h"
#include "plans/job.h"

namespace shardplan::oracle {

/// Sums over one tensor, in double precision.
struct TensorStatistics {
  double sum = 0;
  double abs_sum = 0;
  double l2 = 0;
};
using StatisticsByName = std::map<std::string, TensorStatistics>;

/// What PyTorch measured.
struct NumericsExpectation {
  std::vector<double> loss;       // per step
  std::vector<double> grad_norm;  // per step
  StatisticsByName final_weights;
  StatisticsByName gradient_of_step0;  // averaged over ranks, before clipping
};

/// Largest deviations allowed, for one precision and one optimizer.
struct NumericsLimits {
  double loss = 0;
  double grad_norm_step0 = 0;
  double grad_norm = 0;
  double gradient_of_step0 = 0;
  double final_rel_l2 = 0;
  double final_max_abs = 0;
  double final_tensor_l2 = 0;
  double key_bias = 0;  // of GPT-2's c_attn.bias, whose middle third has no true gradient
};

/// One folder of DIR/cases.
struct NumericsCase {
  std::string name;
  std::filesystem::path folder;
  std::string not_supported;  // why it cannot be run yet; empty: it can
  /// Without profile and output. Only the name is set in a case that is not supported.
  Job job;
  bool masked = false;  // targets are counted only where the layout's rule says so
  NumericsExpectation expected;
  NumericsLimits limits;
  /// Reference weights after the last step, where the case has them.
  std::optional<std::filesystem::path> final_weights;
};

/// Every case of `folder`, in order of names. Throws InputError when a file is missing or is not
/// what the layout of numerics/README.md says.
std::vector<NumericsCase> read_numerics_cases(const std::filesystem::path& folder,
                                              const Hardware& hardware);

}  // namespace shardplan::oracle
