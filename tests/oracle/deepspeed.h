#pragma once

#include <filesystem>
#include <string>

#include "tests/oracle/scorecard.h"

namespace shardplan::oracle {

/// Live bytes and collectives of DeepSpeed's ZeRO against those of the file; returns the exit
/// status.
int deepspeed(const std::filesystem::path& file, const std::string& filter, Scorecard::Form form);

}  // namespace shardplan::oracle
