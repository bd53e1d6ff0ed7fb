#include "planner/families/image.h"

#include <fmt/format.h>

namespace shardplan {

Image read_image(ModelConfig& config, const Image& otherwise) {
  constexpr std::int64_t kMostPixels = 1 << 13;  // per side
  Image image{.size = read_size(config, {"image_size", otherwise.size, {}, kMostPixels}),
              .patch = read_size(config, {"patch_size", otherwise.patch, {}, kMostPixels}),
              .channels = read_derived_size(config, {"num_channels", 3})};
  if (image.patch > image.size)
    config.fields.fail(
        fmt::format("patch_size {} is more than image_size {}", image.patch, image.size));
  return image;
}

int add_pixels(ModelGraph& graph, const Image& image) {
  return add(graph, OperatorKind::Input, "pixel_values",
             Attributes{{Attribute::Tokens, static_cast<double>(image.size * image.size)},
                        {Attribute::OutFeatures, static_cast<double>(image.channels)}},
             {});
}

int add_token_slice(ModelGraph& graph, const std::string& path, std::int64_t channels,
                    std::int64_t first, std::int64_t count, int input) {
  return add(graph, OperatorKind::SliceTokens, path,
             Attributes{{Attribute::OutFeatures, static_cast<double>(channels)},
                        {Attribute::Offset, static_cast<double>(first)},
                        {Attribute::Tokens, static_cast<double>(count)}},
             {input});
}

}  // namespace shardplan
