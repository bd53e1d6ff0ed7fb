#pragma once

#include <string>
#include <vector>

namespace shardplan::oracle {

/// One figure against its bar: holds when value <= limit. NaN never holds.
struct Check {
  std::string what;
  double value = 0;
  double limit = 0;

  bool holds() const { return value <= limit; }
  /// How much of the bar is used up; infinite when a bar of 0 is passed.
  double used() const;
};

/// What came of one case.
struct Outcome {
  std::string name;
  std::vector<Check> checks;
  std::string error;    // not empty: the case could not be run
  std::string skipped;  // not empty: why it was not tried

  bool passed() const;
};

/// Prints a line per case as it comes, and the closing line.
class Scorecard {
 public:
  enum class Form { Text, Json };
  explicit Scorecard(Form form) : form_(form) {}

  void add(Outcome outcome);
  /// Prints `N passed, N failed, N skipped` (or everything as one JSON object); returns the exit
  /// status: 0, or 1 when a case failed.
  int close() const;

 private:
  Form form_;
  std::vector<Outcome> outcomes_;
};

}  // namespace shardplan::oracle
