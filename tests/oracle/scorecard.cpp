#include "tests/oracle/scorecard.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace shardplan::oracle {
namespace {

using nlohmann::json;

constexpr std::size_t kFaultsShown = 4;

/// "loss, worst step 2.1e-07 of 1e-06"
std::string describe(const Check& check) {
  return fmt::format("{} {:.3g} of {:.3g}", check.what, check.value, check.limit);
}

const Check* worst_of(const Outcome& outcome) {
  const auto worst =
      std::max_element(outcome.checks.begin(), outcome.checks.end(),
                       [](const Check& a, const Check& b) { return a.used() < b.used(); });
  return worst == outcome.checks.end() ? nullptr : &*worst;
}

std::string deviations(const Outcome& outcome) {
  if (!outcome.error.empty()) return outcome.error;
  std::string text;
  std::size_t faults = 0;
  for (const Check& check : outcome.checks) {
    if (check.holds()) continue;
    if (faults < kFaultsShown) text += (faults == 0 ? "" : "; ") + describe(check);
    ++faults;
  }
  if (faults > kFaultsShown) text += fmt::format("; and {} more", faults - kFaultsShown);
  return faults == 0 ? "no check was made" : text;
}

void print(const Outcome& outcome) {
  if (!outcome.skipped.empty()) {
    fmt::print("skip  {}: not supported yet: {}\n", outcome.name, outcome.skipped);
  } else if (outcome.passed()) {
    fmt::print("ok    {}: {} ({} checks)\n", outcome.name, describe(*worst_of(outcome)),
               outcome.checks.size());
  } else {
    fmt::print("FAIL  {}: {}\n", outcome.name, deviations(outcome));
  }
  std::fflush(stdout);
}

json to_json(const Outcome& outcome) {
  json object{{"name", outcome.name}};
  if (!outcome.skipped.empty()) {
    object["skipped"] = outcome.skipped;
    return object;
  }
  object["passed"] = outcome.passed();
  if (!outcome.error.empty()) object["error"] = outcome.error;
  object["checks"] = json::array();
  for (const Check& check : outcome.checks) {
    // JSON knows no NaN: such a figure is null.
    const json value = std::isfinite(check.value) ? json(check.value) : json();
    object["checks"].push_back({{"what", check.what}, {"value", value}, {"limit", check.limit}});
  }
  return object;
}

}  // namespace

double Check::used() const {
  if (std::isnan(value)) return std::numeric_limits<double>::infinity();
  if (limit > 0) return value / limit;
  return value > 0 ? std::numeric_limits<double>::infinity() : 0;
}

bool Outcome::passed() const {
  return error.empty() && skipped.empty() && !checks.empty() &&
         std::all_of(checks.begin(), checks.end(), [](const Check& c) { return c.holds(); });
}

void Scorecard::add(Outcome outcome) {
  if (form_ == Form::Text) print(outcome);
  outcomes_.push_back(std::move(outcome));
}

int Scorecard::close() const {
  const auto count = [&](auto&& property) {
    return std::count_if(outcomes_.begin(), outcomes_.end(), property);
  };
  const auto passed = count([](const Outcome& o) { return o.passed(); });
  const auto skipped = count([](const Outcome& o) { return !o.skipped.empty(); });
  const auto failed = static_cast<std::ptrdiff_t>(outcomes_.size()) - passed - skipped;
  if (form_ == Form::Text) {
    fmt::print("{} passed, {} failed, {} skipped\n", passed, failed, skipped);
  } else {
    json object{{"passed", passed}, {"failed", failed}, {"skipped", skipped}};
    for (const Outcome& outcome : outcomes_)
      object["cases"].push_back(to_json(outcome));
    fmt::print("{}\n", object.dump());
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace shardplan::oracle
