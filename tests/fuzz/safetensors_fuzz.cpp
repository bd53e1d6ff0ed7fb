#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plans/error.h"
#include "runtime/safetensors.h"

/// Any bytes are a safetensors file or an InputError; what is accepted can be read to its end.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace shardplan;
  try {
    for (const auto& [name, tensor] :
         parse_safetensors(std::as_bytes(std::span(data, size)), "fuzz")) {
      if (!is_floating_point(tensor.dtype)) continue;
      std::vector<float> values(tensor.elements());
      read_elements(tensor, 0, values);
    }
  } catch (const InputError&) {
  }
  return 0;
}
