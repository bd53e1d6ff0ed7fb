#include "tools/progress_bar.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "tools/terminal.h"
#include "tools/time_text.h"

namespace shardplan {
namespace {

constexpr int kWidth = 30;
constexpr std::chrono::milliseconds kBetweenDrawings{100};

}  // namespace

std::string bar_text(std::int64_t done, std::int64_t total, int width) {
  const auto filled = total > 0 ? static_cast<int>(done * width / total) : width;
  return fmt::format("[{:#<{}}{:.<{}}] {}/{}", "", filled, "", width - filled, done, total);
}

ProgressBar::ProgressBar(std::string what, std::int64_t total, double delay_s)
    : what_(std::move(what)),
      total_(total),
      terminal_(is_terminal(stderr)),
      next_(begin_ + std::chrono::milliseconds(static_cast<std::int64_t>(delay_s * 1000))) {}

ProgressBar::~ProgressBar() {
  if (!drawn_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
}

void ProgressBar::show(std::int64_t done, std::string_view note) {
  const auto now = Clock::now();
  if (!terminal_ || (now < next_ && done != total_)) return;
  if (now < next_ && !drawn_) return;
  next_ = now + kBetweenDrawings;
  std::string line = fmt::format("{} {}", what_, bar_text(done, total_, kWidth));
  if (!note.empty()) line += fmt::format("  {}", note);
  if (done > 0 && done < total_) {
    const double elapsed = std::chrono::duration<double>(now - begin_).count();
    const double left = elapsed / static_cast<double>(done) * static_cast<double>(total_ - done);
    line += fmt::format("  {} left", duration_text(left));
  }
  // Drawn over the line before and not broken by the end of the line.
  std::fputs(fmt::format("\r\033[?7l{}\033[K\033[?7h", line).c_str(), stderr);
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace shardplan
