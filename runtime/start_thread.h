#pragma once

#include <fmt/format.h>

#include <system_error>
#include <thread>
#include <utility>

#include "plans/error.h"

namespace shardplan {

/// A thread that runs `body`. Throws SystemError when the system gives none.
template <typename Body>
std::thread start_thread(Body body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    throw SystemError(fmt::format("cannot start a thread: {}", error.what()));
  }
}

}  // namespace shardplan
