#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace shardplan {

/// The user gave something wrong: the message says where, what, and what would be right. Exit 2.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The machine or a peer failed: a file, a device, a rank. Exit 3.
class SystemError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

namespace detail {
[[noreturn]] void check_failed(std::string_view what_holds, const char* file, int line);
}

/// Aborts with `what_holds` when one of our own invariants is broken, in all build types.
inline void check(bool condition, std::string_view what_holds, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  if (!condition) detail::check_failed(what_holds, file, line);
}

}  // namespace shardplan
