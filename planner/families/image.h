#pragma once

#include <cstdint>

#include "planner/families/config_fields.h"
#include "planner/families/module_builder.h"

namespace shardplan {

/// A square image and the squares that it is cut into.
struct Image {
  std::int64_t size = 0;  // pixels
  std::int64_t patch = 0;
  std::int64_t channels = 3;

  std::int64_t patches_per_side() const { return size / patch; }
  std::int64_t patches() const { return patches_per_side() * patches_per_side(); }
  /// The convolution that makes a token of every patch.
  Window window() const { return {.height = size, .width = size, .size = patch, .stride = patch}; }
};
/// image_size, patch_size and num_channels; `otherwise` are the class defaults.
Image read_image(ModelConfig& config, const Image& otherwise);

/// The input that holds the pixels of one image per sequence.
int add_pixels(ModelGraph& graph, const Image& image);
/// `count` tokens from `first` on.
int add_token_slice(ModelGraph& graph, const std::string& path, std::int64_t channels,
                    std::int64_t first, std::int64_t count, int input);

}  // namespace shardplan
