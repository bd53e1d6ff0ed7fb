#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace shardplan {

/// True when the file is a terminal that understands escape sequences.
bool is_terminal(std::FILE* file);

/// What a piece of text is, for colours.
enum class Tone { Good, Bad, Heading };

/// Colours texts for standard output: on terminals, unless $NO_COLOR is set (https://no-color.org).
class Palette {
 public:
  Palette();
  explicit Palette(bool coloured) : coloured_(coloured) {}

  std::string operator()(Tone tone, std::string_view text) const;

 private:
  bool coloured_;
};

}  // namespace shardplan
