#pragma once

namespace shardplan {

/// Looks for about a microsecond whether `done()` comes true by itself, before the caller sleeps.
/// No yielding: on a busy machine a thread that yields gets its core back later than one that
/// sleeps. No longer spinning: ranks times streams is often more threads than cores.
template <typename Done>
void spin_briefly(Done done) {
  constexpr int kLooks = 200;
  for (int look = 0; look < kLooks && !done(); ++look) {
  }
}

}  // namespace shardplan
