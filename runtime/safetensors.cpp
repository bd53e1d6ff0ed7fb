#include "runtime/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "plans/error.h"

namespace shardplan {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference reader
constexpr int kMaxDepth = 3;                            // {name: {key: [numbers]}}
constexpr std::size_t kMaxDimensions = 16;

struct DtypeName {
  std::string_view name;
  Dtype dtype;
};
constexpr std::array kDtypes{
    DtypeName{"F64", Dtype::Float64}, DtypeName{"F32", Dtype::Float32},
    DtypeName{"F16", Dtype::Float16}, DtypeName{"BF16", Dtype::BFloat16},
    DtypeName{"I64", Dtype::Int64},   DtypeName{"I32", Dtype::Int32},
    DtypeName{"U16", Dtype::UInt16},  DtypeName{"U8", Dtype::UInt8},
    DtypeName{"BOOL", Dtype::UInt8},
};

/// Parses JSON that nests at most kMaxDepth levels and names every key once. Throws InputError.
json parse_flat(std::string_view text, std::string_view what) {
  std::array<std::set<std::string>, kMaxDepth + 1> names;
  const auto watch = [&](int depth, json::parse_event_t event, json& value) {
    const bool opens =
        event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
    if (opens && depth >= kMaxDepth)
      throw InputError(fmt::format("{}: JSON nested deeper than {} levels", what, kMaxDepth));
    if (event == json::parse_event_t::object_start) names[depth].clear();
    if (event == json::parse_event_t::key) {
      const auto& key = value.get_ref<const std::string&>();
      if (!names[depth - 1].insert(key).second)
        throw InputError(fmt::format("{}: '{}' occurs twice", what, key));
    }
    return true;
  };
  try {
    return json::parse(text, watch);
  } catch (const json::exception& error) {
    throw InputError(fmt::format("{}: not valid JSON: {}", what, error.what()));
  }
}

/// A JSON array of at most kMaxDimensions integers >= 0; nothing when it is anything else.
std::optional<std::vector<std::int64_t>> naturals(const json& entry, const char* key) {
  const auto found = entry.find(key);
  if (found == entry.end() || !found->is_array() || found->size() > kMaxDimensions) return {};
  std::vector<std::int64_t> numbers;
  for (const json& number : *found) {
    if (!number.is_number_unsigned() || number.get<std::uint64_t>() > INT64_MAX) return {};
    numbers.push_back(number.get<std::int64_t>());
  }
  return numbers;
}

/// Bytes of a dense tensor; nothing on overflow.
std::optional<std::int64_t> bytes_of(std::span<const std::int64_t> shape, Dtype dtype) {
  std::int64_t bytes = size_of(dtype);
  for (const std::int64_t extent : shape)
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return {};
  return bytes;
}

SafeTensor parse_entry(const json& entry, std::span<const std::byte> data,
                       const std::string& where) {
  if (!entry.is_object()) throw InputError(where + "expected {dtype, shape, data_offsets}");
  const auto dtype_text = entry.find("dtype");
  const bool has_dtype = dtype_text != entry.end() && dtype_text->is_string();
  const std::string name = has_dtype ? dtype_text->get<std::string>() : "";
  const auto dtype =
      std::ranges::find_if(kDtypes, [&](const DtypeName& known) { return known.name == name; });
  if (dtype == kDtypes.end())
    throw InputError(fmt::format(
        "{}dtype '{}' is not supported, expected F32, BF16, F16, F64, I64, I32, U16, U8 or BOOL",
        where, name));
  const auto shape = naturals(entry, "shape");
  if (!shape)
    throw InputError(
        fmt::format("{}'shape' must be a list of at most {} sizes", where, kMaxDimensions));
  const auto range = naturals(entry, "data_offsets");
  if (!range || range->size() != 2 || (*range)[0] > (*range)[1] ||
      (*range)[1] > static_cast<std::int64_t>(data.size()))
    throw InputError(fmt::format(
        "{}'data_offsets' must be [begin, end] inside the {} bytes of data", where, data.size()));
  const std::int64_t bytes = (*range)[1] - (*range)[0];
  if (bytes_of(*shape, dtype->dtype) != bytes)
    throw InputError(fmt::format("{}shape [{}] of {} does not fit its {} bytes", where,
                                 fmt::join(*shape, ", "), name, bytes));
  return {dtype->dtype, *shape, data.subspan((*range)[0], bytes)};
}

void expect_no_overlap(const std::map<std::string, SafeTensor>& tensors, std::string_view source) {
  using Entry = std::pair<const std::string, SafeTensor>;
  std::vector<const Entry*> sorted;
  for (const Entry& entry : tensors)
    if (!entry.second.bytes.empty()) sorted.push_back(&entry);
  std::ranges::sort(sorted, {}, [](const Entry* entry) { return entry->second.bytes.data(); });
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    const auto& before = sorted[i - 1]->second.bytes;
    if (before.data() + before.size() > sorted[i]->second.bytes.data())
      throw InputError(fmt::format("{}: tensors '{}' and '{}' overlap", source,
                                   sorted[i - 1]->first, sorted[i]->first));
  }
}

/// IEEE half precision, exact.
float from_half(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu;
  const std::uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  const std::uint32_t wide = exponent == 0x1f ? 0xffu : exponent + 112;
  return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
}

float from_bfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Tensors lie at any byte, so every element is copied out before it is looked at.
template <typename Stored, typename Convert>
void convert(const std::byte* from, std::span<float> out, Convert to_float) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    Stored value;
    std::memcpy(&value, from + i * sizeof(Stored), sizeof(Stored));
    out[i] = to_float(value);
  }
}

std::vector<std::string> files_of_index(const std::string& folder, const std::string& index) {
  const MappedFile file(index, "weights index");
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  const json content = parse_flat(text, index);
  const auto map = content.is_object() ? content.find("weight_map") : content.end();
  if (map == content.end() || !map->is_object())
    throw InputError(index + ": /weight_map: expected an object of tensor and file names");
  std::set<std::string> names;
  for (const auto& [tensor, name] : map->items()) {
    if (!name.is_string() || name.get_ref<const std::string&>().find('/') != std::string::npos)
      throw InputError(
          fmt::format("{}: /weight_map/{}: expected a file of this folder", index, tensor));
    names.insert(name.get<std::string>());
  }
  std::vector<std::string> files;
  for (const std::string& name : names)
    files.push_back((std::filesystem::path(folder) / name).string());
  return files;
}

std::vector<std::string> files_of_folder(const std::string& folder) {
  const std::filesystem::path path(folder);
  if (exists(path / "model.safetensors.index.json"))
    return files_of_index(folder, (path / "model.safetensors.index.json").string());
  if (exists(path / "model.safetensors")) return {(path / "model.safetensors").string()};
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(path))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path().string());
  std::ranges::sort(files);
  if (files.empty())
    throw InputError(folder + ": no weights here, expected model.safetensors or *.safetensors");
  return files;
}

}  // namespace

std::map<std::string, SafeTensor> parse_safetensors(std::span<const std::byte> file,
                                                    std::string_view source) {
  std::uint64_t header_bytes = 0;
  if (file.size() < sizeof(header_bytes))
    throw InputError(
        fmt::format("{}: {} bytes are too few for a safetensors file", source, file.size()));
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  const auto rest = file.subspan(sizeof(header_bytes));
  if (header_bytes > rest.size() || header_bytes > kMaxHeaderBytes)
    throw InputError(
        fmt::format("{}: a header of {} bytes cannot be: the file has {} bytes and the limit is {}",
                    source, header_bytes, file.size(), kMaxHeaderBytes));
  const json header = parse_flat(
      {reinterpret_cast<const char*>(rest.data()), static_cast<std::size_t>(header_bytes)},
      fmt::format("{}: header", source));
  if (!header.is_object()) throw InputError(fmt::format("{}: header: expected an object", source));

  std::map<std::string, SafeTensor> tensors;
  for (const auto& [name, entry] : header.items())
    if (name != "__metadata__")
      tensors.emplace(name, parse_entry(entry, rest.subspan(header_bytes),
                                        fmt::format("{}: tensor '{}': ", source, name)));
  expect_no_overlap(tensors, source);
  return tensors;
}

bool is_floating_point(Dtype dtype) {
  return dtype == Dtype::Float64 || dtype == Dtype::Float32 || dtype == Dtype::BFloat16 ||
         dtype == Dtype::Float16;
}

void read_elements(const SafeTensor& tensor, std::int64_t first, std::span<float> out) {
  const auto count = static_cast<std::int64_t>(out.size());
  check(first >= 0 && first + count <= tensor.elements(), "the elements lie inside the tensor");
  const std::byte* from = tensor.bytes.data() + first * size_of(tensor.dtype);
  switch (tensor.dtype) {
    case Dtype::Float32:
      if (!out.empty()) std::memcpy(out.data(), from, out.size_bytes());
      return;
    case Dtype::Float64:
      return convert<double>(from, out, [](double value) { return static_cast<float>(value); });
    case Dtype::BFloat16: return convert<std::uint16_t>(from, out, from_bfloat16);
    case Dtype::Float16: return convert<std::uint16_t>(from, out, from_half);
    default: check(false, "weights are of a floating-point dtype");
  }
}

SafeTensors::SafeTensors(const std::string& path) : path_(path) {
  try {
    const bool folder = std::filesystem::is_directory(path);
    for (const std::string& file : folder ? files_of_folder(path) : std::vector{path})
      add(file);
  } catch (const std::filesystem::filesystem_error& error) {
    throw InputError(fmt::format("{}: cannot read the weights: {}", path, error.what()));
  }
}

void SafeTensors::add(const std::string& file) {
  files_.emplace_back(file, "weights");
  for (auto& [name, tensor] : parse_safetensors(files_.back().bytes(), file))
    if (!tensors_.emplace(name, tensor).second)
      throw InputError(
          fmt::format("{}: tensor '{}' is also in another file of {}", file, name, path_));
}

const SafeTensor* SafeTensors::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

}  // namespace shardplan
