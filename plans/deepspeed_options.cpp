#include "plans/deepspeed_options.h"

#include <array>

#include "plans/document.h"
#include "plans/names.h"

namespace shardplan {
namespace {

constexpr std::array kDeviceNames{
    EnumName{OffloadDevice::None, "none"},
    EnumName{OffloadDevice::Cpu, "cpu"},
    EnumName{OffloadDevice::Nvme, "nvme"},
};

/// Reads the value of one option from `fields`; an overload for each type of option.
struct OptionReader {
  Fields& fields;

  void operator()(std::string_view key, bool& value, int) { fields.read(key, value); }
  void operator()(std::string_view key, std::optional<bool>& value, int) {
    if (const Node* node = fields.find(key)) value = boolean_of(*node, fields.name_of(key));
  }
  void operator()(std::string_view key, std::int64_t& value, int least) {
    fields.read(key, value, least, std::numeric_limits<std::int64_t>::max());
  }
  void operator()(std::string_view key, double& value, int) { fields.read(key, value, 0, 1); }
  void operator()(std::string_view key, std::string& value, int) { fields.read(key, value); }
  void operator()(std::string_view key, OffloadDevice& value, int) {
    const Node* node = fields.find(key);
    if (node == nullptr) return;
    const std::string name = text_of(*node, fields.name_of(key));
    value = located(*node, [&] { return offload_device_from(name); });
  }
};

}  // namespace

std::string_view to_string(OffloadDevice device) { return name_of(kDeviceNames, device); }
OffloadDevice offload_device_from(std::string_view name) {
  return value_of(kDeviceNames, name, "offload device");
}

void read_zero_options(Fields& fields, DeepSpeedOptions& options) {
  visit_zero_options(options, OptionReader{fields});
  Fields param = fields.section("offload_param");
  visit_offload_param(options.offload_param, OptionReader{param});
  param.refuse_unknown();
  Fields optimizer = fields.section("offload_optimizer");
  visit_offload_optimizer(options.offload_optimizer, OptionReader{optimizer});
  optimizer.refuse_unknown();
}

}  // namespace shardplan
