#include "plans/error.h"

#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>

namespace shardplan::detail {

void check_failed(std::string_view what_holds, const char* file, int line) {
  fmt::print(stderr, "shardplan: internal error at {}:{}: it should hold that {}\n", file, line,
             what_holds);
  std::abort();
}

}  // namespace shardplan::detail
