#pragma once

#include <string>

#include "plans/plan.h"
#include "plans/report.h"
#include "tools/terminal.h"

namespace shardplan {

/// "12.3 ms", "4.5 h", "3.2 days".
std::string duration_text(Seconds seconds);

/// "8250 tokens/s", "33.10 K tokens/s".
std::string rate_text(double tokens_per_s);

/// "12.30 GB/s".
std::string bandwidth_text(double bytes_per_s);

/// "$1.23".
std::string price_text(double dollars);

/// "37.5 %".
std::string share_text(double share);

/// "Times may be off by 20 %: ... have their defaults." Empty where the range is not known.
std::string range_text(const TimeReport& time);

/// Step time, rates, exposed communication, and cost where a price is known.
std::string time_text(const Plan& plan, const Report& report, const Palette& palette);

/// How busy each stream is, and a picture of the step: a row for each stream, in which the darker
/// a character the busier the stream. The report must hold a timeline.
std::string timeline_text(const Plan& plan, const Report& report, const Palette& palette);

}  // namespace shardplan
