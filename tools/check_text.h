#pragma once

#include <string>

#include "tools/check.h"
#include "tools/terminal.h"

namespace shardplan {

/// The worst rank of each metric, what was not measured, and the verdict.
std::string check_text(const CheckResult& result, const Palette& palette);

/// "at_peak.activations on rank 2: predicted 1.00 MiB, measured 1.10 MiB, +104858 B (+10.00 %)".
std::string finding_text(const Finding& finding);

/// The findings as a JUnit report, a test case per metric; what was not measured is skipped.
std::string junit_xml(const CheckResult& result);

}  // namespace shardplan
