#pragma once

#include <exception>
#include <thread>
#include <vector>

namespace shardplan::testing {

/// Runs `body(rank)` on a thread per rank, joins all, and returns what each threw (null: nothing).
template <typename Body>
std::vector<std::exception_ptr> run_ranks(int ranks, Body body) {
  std::vector<std::exception_ptr> errors(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  for (std::thread& thread : threads)
    thread.join();
  return errors;
}

/// The same; rethrows the first error.
template <typename Body>
void expect_ranks(int ranks, Body body) {
  for (const std::exception_ptr& error : run_ranks(ranks, body))
    if (error) std::rethrow_exception(error);
}

}  // namespace shardplan::testing
