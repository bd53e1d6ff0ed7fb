#include "runtime/host_memory.h"

#include <fstream>
#include <string>

namespace shardplan {
namespace {

/// The number behind `key` in a file of lines "Key:  123 kB" of Linux's /proc.
std::optional<Bytes> entry_of(const char* file, const std::string& key) {
  std::ifstream lines(file);
  for (std::string word; lines >> word;) {
    Bytes kibibytes = 0;
    if (word == key && lines >> kibibytes) return kibibytes * 1024;
  }
  return {};
}

}  // namespace

std::optional<Bytes> resident_set_bytes() { return entry_of("/proc/self/status", "VmRSS:"); }

std::optional<Bytes> available_memory_bytes() { return entry_of("/proc/meminfo", "MemAvailable:"); }

}  // namespace shardplan
