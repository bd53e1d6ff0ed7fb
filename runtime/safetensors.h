#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plans/units.h"
#include "runtime/mapped_file.h"

namespace shardplan {

/// A tensor of a safetensors file.
struct SafeTensor {
  Dtype dtype = Dtype::Float32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  // row-major, little-endian; inside the file

  std::int64_t elements() const { return static_cast<std::int64_t>(bytes.size()) / size_of(dtype); }
};

/// Tensors by name of a whole file in memory. Throws InputError that starts with `source` for
/// anything but a well-formed file: a header that fits, known dtypes, shapes that fit the byte
/// ranges, ranges inside the file without overlap, every name once.
std::map<std::string, SafeTensor> parse_safetensors(std::span<const std::byte> file,
                                                    std::string_view source);

/// float64, float32, bfloat16 or float16.
bool is_floating_point(Dtype dtype);

/// Elements [first, first + out.size()) of a floating-point tensor as float32.
void read_elements(const SafeTensor& tensor, std::int64_t first, std::span<float> out);

/// The tensors of one safetensors file, or of all files of a model's folder.
class SafeTensors {
 public:
  /// In a folder: the files of model.safetensors.index.json, else model.safetensors, else all
  /// *.safetensors. Throws InputError.
  explicit SafeTensors(const std::string& path);

  /// Null when there is no such tensor.
  const SafeTensor* find(const std::string& name) const;
  const std::string& path() const { return path_; }

 private:
  void add(const std::string& file);

  std::string path_;
  std::vector<MappedFile> files_;
  std::map<std::string, SafeTensor> tensors_;
};

}  // namespace shardplan
