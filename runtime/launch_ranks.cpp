#include "runtime/launch_ranks.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "plans/error.h"

namespace shardplan {
namespace {

/// Ranks that know of a failure take no longer to end.
constexpr Seconds kFarewell = 5;

/// A rank's process, from the launcher's side.
struct Process {
  pid_t pid = 0;
  bool running = true;
  int status = 0;  // as waitpid() gives it

  bool killed() const { return !running && WIFSIGNALED(status); }
  bool failed() const { return !running && status != 0; }
};

sigset_t launcher_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  sigaddset(&signals, SIGTERM);
  return signals;
}

void signal_running(const std::vector<Process>& processes, int signal) {
  for (const Process& process : processes)
    if (process.running) kill(process.pid, signal);
}

class Launcher {
 public:
  explicit Launcher(Seconds grace_s) : grace_s_(grace_s) {
    const sigset_t signals = launcher_signals();
    sigprocmask(SIG_BLOCK, &signals, &outer_mask_);
  }
  ~Launcher() { sigprocmask(SIG_SETMASK, &outer_mask_, nullptr); }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  /// True in the new process.
  bool start() {
    const pid_t launcher = getpid();
    const pid_t pid = fork();
    if (pid < 0) {
      const int error = errno;
      signal_running(processes_, SIGKILL);
      throw SystemError(
          fmt::format("cannot start rank {}: {}", processes_.size(), std::strerror(error)));
    }
    if (pid > 0) {
      processes_.push_back({.pid = pid});
      return false;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(1);  // it died before that
    return true;
  }

  void wait_for_all() {
    while (std::ranges::any_of(processes_, &Process::running)) {
      wait_for_signal();
      for (Process& process : processes_)
        if (process.running && waitpid(process.pid, &process.status, WNOHANG) == process.pid) {
          process.running = false;
          if (process.failed()) hurry(process.killed() ? grace_s_ : kFarewell);
        }
      if (deadline_ && milliseconds_until(*deadline_) == 0) signal_running(processes_, SIGKILL);
    }
  }

  /// 2 when a rank says that the input is wrong.
  int status() const {
    int worst = 0;
    bool explained = false;
    for (const Process& process : processes_) {
      if (!process.failed() || process.killed()) continue;
      explained = true;
      const int status = WEXITSTATUS(process.status);
      worst = worst == 0 ? status : std::min(worst, status);
    }
    const auto killed = std::ranges::find_if(processes_, &Process::killed);
    if (killed == processes_.end() || explained) return worst;
    throw SystemError(fmt::format("rank {} was ended by signal {} ({})",
                                  killed - processes_.begin(), WTERMSIG(killed->status),
                                  strsignal(WTERMSIG(killed->status))));
  }

 private:
  void hurry(Seconds seconds) {
    const Deadline deadline = deadline_in(seconds);
    deadline_ = deadline_ ? std::min(*deadline_, deadline) : deadline;
  }

  void wait_for_signal() {
    const int left = deadline_ ? milliseconds_until(*deadline_) : 1000;
    const timespec limit{left / 1000, left % 1000 * 1'000'000L};
    const sigset_t signals = launcher_signals();
    if (sigtimedwait(&signals, nullptr, &limit) == SIGTERM) signal_running(processes_, SIGTERM);
  }

  const Seconds grace_s_;
  sigset_t outer_mask_{};
  std::vector<Process> processes_;
  std::optional<Deadline> deadline_;
};

}  // namespace

Launched launch_ranks(std::int64_t ranks, Seconds grace_s) {
  Launched launched;
  launched.listener = listen_on("127.0.0.1", 0);
  ProcessPlace place{.size = ranks,
                     .local_size = ranks,
                     .host = "127.0.0.1",
                     .port = port_of(launched.listener),
                     .launcher = "--processes"};
  std::fflush(nullptr);  // or every process would write what is in the buffers
  Launcher launcher(grace_s);
  for (place.rank = 0; place.rank < ranks; ++place.rank) {
    if (!launcher.start()) continue;
    launched.place = place;
    if (place.rank != 0) launched.listener = Socket();
    return launched;
  }
  launched.listener = Socket();
  launcher.wait_for_all();
  launched.status = launcher.status();
  return launched;
}

}  // namespace shardplan
