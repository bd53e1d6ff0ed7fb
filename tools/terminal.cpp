#include "tools/terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

namespace shardplan {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

std::string_view escape_of(Tone tone) {
  switch (tone) {
    case Tone::Good: return "\033[32m";
    case Tone::Bad: return "\033[1;31m";
    case Tone::Heading: return "\033[1m";
  }
  return "";
}

}  // namespace

bool is_terminal(std::FILE* file) {
  return isatty(fileno(file)) == 1 && variable("TERM") != "dumb" && !variable("TERM").empty();
}

Palette::Palette() : coloured_(is_terminal(stdout) && variable("NO_COLOR").empty()) {}

std::string Palette::operator()(Tone tone, std::string_view text) const {
  if (!coloured_) return std::string(text);
  return fmt::format("{}{}\033[0m", escape_of(tone), text);
}

}  // namespace shardplan
