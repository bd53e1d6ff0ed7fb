#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/families/image.h"
#include "planner/families/transformer_block.h"

namespace shardplan {

/// The image encoder of a model that reads images and text: CLIP's or SigLIP's.
class VisionTower {
 public:
  /// `otherwise_type` is the model_type when the config has none. Throws InputError for others.
  VisionTower(ModelConfig config, std::string_view otherwise_type);

  /// Declares the modules below `path`.
  void declare(ModuleBuilder& modules, const std::string& path);
  /// Features of the pixels, one token per patch (and one more for CLIP): the output of the block
  /// `layer`, counted from the end as transformers does (-1: the last), or of the last norm.
  int run_to_layer(int pixels, std::int64_t layer);
  int run_to_norm(int pixels);

  const Image& image() const { return image_; }
  std::int64_t channels() const { return block_.channels; }
  bool has_class_token() const { return names_->has_class_token; }
  const std::string& block_class() const { return block_.class_name; }
  const Norm& norm() const { return block_.norm; }
  std::int64_t buffers_bytes() const;
  std::vector<std::string> take_remarks() { return std::move(config_.remarks); }

 private:
  struct Names {
    std::string_view type;
    std::string prefix;
    bool has_class_token;
    std::string_view activation;
    double epsilon;
    Image image;
    std::int64_t channels;
    std::int64_t intermediate;
    std::int64_t layers;
    std::int64_t heads;
  };
  static const std::vector<Names>& known();

  std::vector<Part> block_parts() const;
  void declare_pooling(ModuleBuilder& modules, const std::string& path);
  int embed(int pixels);

  ModelConfig config_;
  const Names* names_ = nullptr;
  Image image_;
  Block block_;
  std::vector<Block> blocks_;
  std::vector<Parts> parts_;
  ModelGraph* graph_ = nullptr;
  std::optional<Operator> token_, patches_, positions_, first_norm_, last_norm_;
};

}  // namespace shardplan
