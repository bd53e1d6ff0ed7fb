#include "planner/trainable.h"

#include <fmt/format.h>

#include <algorithm>

#include "plans/error.h"
#include "plans/field_places.h"

namespace shardplan {
namespace {

/// True when the pattern stands for `path` or for its last components.
bool names_end_of(std::string_view pattern, std::string_view path) {
  for (;;) {
    if (matches(pattern, path)) return true;
    const std::size_t dot = path.find('.');
    if (dot == std::string_view::npos) return false;
    path.remove_prefix(dot + 1);
  }
}

/// True when the pattern names the parameter or a module around it.
bool names_parameter(std::string_view pattern, std::string_view name) {
  for (std::string_view path = name;;) {
    if (names_end_of(pattern, path)) return true;
    const std::size_t dot = path.rfind('.');
    if (dot == std::string_view::npos) return false;
    path = path.substr(0, dot);
  }
}

}  // namespace

bool matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;  // the last one, and where what it stands for ends
  std::size_t star_end = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_end = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++star_end;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

void choose_trainable(ModelGraph& graph, const std::vector<std::string>& patterns) {
  std::vector<bool> used(patterns.size(), false);
  for (Parameter& parameter : graph.parameters) {
    parameter.trainable = false;
    for (std::size_t i = 0; i < patterns.size(); ++i) {
      if (!names_parameter(patterns[i], parameter.name)) continue;
      parameter.trainable = true;
      used[i] = true;
    }
  }
  const auto unused = std::ranges::find(used, false);
  if (unused == used.end()) return;
  throw FieldError(
      "model.trainable",
      fmt::format(
          "'{}' names no parameter; the model's are like '{}'", patterns[unused - used.begin()],
          graph.parameters.empty() ? "" : graph.parameters[graph.parameters.size() / 2].name));
}

}  // namespace shardplan
