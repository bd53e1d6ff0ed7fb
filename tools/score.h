#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "plans/hardware.h"
#include "tools/csv_table.h"
#include "tools/frameworks.h"

namespace shardplan {

enum class Quantity { TokensPerSecond, PeakMemory };
/// "tokens_per_s_per_gpu", "peak_memory_bytes".
std::string_view to_string(Quantity quantity);

/// A published figure and ours.
struct ScoredFigure {
  std::string id;
  std::string group;  // family of measurements
  Quantity quantity = Quantity::TokensPerSecond;
  double predicted = 0;
  double measured = 0;
  std::vector<std::string> assumed;  // what the row does not say
  bool tells_constants = true;       // see PublishedPlan
  std::string set_aside;             // why it takes no part in summaries; empty: it does

  /// Predicted over measured, less one.
  double error() const { return predicted / measured - 1; }
};

struct NotScored {
  std::string id;
  std::string reason;
};

struct Score {
  std::vector<ScoredFigure> figures;
  std::vector<NotScored> not_expressed;
};

/// Why a figure of published measurements takes no part in summaries, by the row's id: an entry of
/// plans/set_aside.yaml.
using SetAside = std::map<std::string, std::string>;
/// The entries below `folder` (see data_folder()) for a quantity. Throws InputError.
SetAside read_set_aside(const std::string& folder, Quantity quantity);

/// Predicts every row of published measurements that has a figure; `on_row(n)` before the n-th.
Score score(const std::vector<CsvRow>& rows, const std::vector<Framework>& frameworks,
            const Hardware& hardware, const std::function<void(std::size_t)>& on_row);

/// Of the absolute errors of some figures.
struct ErrorSummary {
  std::size_t rows = 0;
  double median = 0;
  double p90 = 0;
  double worst = 0;
  double median_error = 0;  // with its sign
};
ErrorSummary summary_of(const std::vector<double>& errors);
ErrorSummary summary_of(const std::vector<const ScoredFigure*>& figures);

/// The figures of a quantity, but those set aside, for which `is_wanted` holds.
std::vector<const ScoredFigure*> figures_of(
    const Score& score, Quantity quantity,
    const std::function<bool(const ScoredFigure&)>& is_wanted = [](const ScoredFigure&) {
      return true;
    });

}  // namespace shardplan
