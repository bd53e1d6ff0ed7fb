#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace shardplan {

/// One line on standard error that is drawn again and again, and taken away at the end. Shows
/// nothing when standard error is no terminal.
class ProgressBar {
 public:
  /// Stays hidden for `delay_s` seconds, so that quick work shows no bar.
  ProgressBar(std::string what, std::int64_t total, double delay_s = 0);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// `done` of the total; `note` is shown beside the bar.
  void show(std::int64_t done, std::string_view note);

 private:
  using Clock = std::chrono::steady_clock;

  std::string what_;
  std::int64_t total_;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point next_;
};

/// "[#####.....]  5/10": `width` characters between the brackets.
std::string bar_text(std::int64_t done, std::int64_t total, int width);

}  // namespace shardplan
