#include <fmt/format.h>

#include <array>

#include "planner/import/auto_values.h"
#include "planner/import/deepspeed_sections.h"
#include "planner/import/import_parts.h"
#include "plans/names.h"

// deepspeed/runtime/precision_config.py and get_data_types() of runtime/engine.py, 0.19.8.

namespace shardplan::importing {
namespace {

/// DtypeEnum of runtime/config.py.
constexpr std::array kDtypeWords{
    EnumName{Dtype::Float16, "fp16"},
    EnumName{Dtype::Float16, "float16"},
    EnumName{Dtype::Float16, "half"},
    EnumName{Dtype::Float16, "torch.float16"},
    EnumName{Dtype::BFloat16, "bf16"},
    EnumName{Dtype::BFloat16, "bfloat16"},
    EnumName{Dtype::BFloat16, "torch.bfloat16"},
    EnumName{Dtype::Float32, "fp32"},
    EnumName{Dtype::Float32, "float32"},
    EnumName{Dtype::Float32, "float"},
    EnumName{Dtype::Float32, "torch.float32"},
};
constexpr std::array kCommunicationWords{
    EnumName{Dtype::Float16, "fp16"},
    EnumName{Dtype::BFloat16, "bf16"},
    EnumName{Dtype::Float32, "fp32"},
};

template <std::size_t N>
void read_dtype(Fields& fields, std::string_view key, const std::array<EnumName<Dtype>, N>& words,
                Dtype& dtype) {
  const Node* node = fields.find(key);
  if (node == nullptr) return;
  const std::string word = text_of(*node, fields.name_of(key));
  dtype = located(*node, [&] { return value_of(words, word, fields.name_of(key)); });
}

/// Whether `enabled` of a section of the file is "auto".
bool is_enabled_auto(const Node& document, std::string_view section) {
  for (const Entry& entry : document.entries)
    if (entry.key == section)
      for (const Entry& field : entry.value.entries)
        if (field.key == "enabled") return is_auto(field.value);
  return false;
}

struct Fp16 {
  bool enabled = false;
  bool master_weights = false;
  std::string scaling;
};

Fp16 read_fp16(Fields fields) {
  Fp16 fp16;
  double scale = 0;
  int power = 16;
  std::int64_t window = 1000;
  std::int64_t least = 1;
  bool flag = false;
  fields.read("enabled", fp16.enabled);
  fields.read("auto_cast", flag);
  fields.read("loss_scale", scale, 0);
  fields.read("initial_scale_power", power, 0, 1023);
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const std::int64_t lowest = fp16.enabled && scale == 0 ? 1 : -kMost;
  fields.read("loss_scale_window", window, lowest, kMost);
  fields.read("min_loss_scale", least, lowest, kMost);
  fields.find_any("hysteresis");
  fields.read("consecutive_hysteresis", flag);
  fields.read("fp16_master_weights_and_grads", fp16.master_weights);
  fields.refuse_unknown();
  fp16.scaling = scale == 0 ? fmt::format("fp16 with loss scaling (initial 2^{})", power)
                            : fmt::format("fp16 with a static loss scale of {}", scale);
  return fp16;
}

struct Bf16 {
  bool enabled = false;
  bool master_weights = false;
  bool optimizer_states = false;
};

Bf16 read_bf16(Fields fields) {
  Bf16 bf16;
  bool flag = false;
  fields.read("enabled", bf16.enabled);
  fields.read("immediate_grad_update", flag);
  fields.read("check_grad_overflow", flag);
  fields.read("bf16_master_weights_and_grads", bf16.master_weights);
  fields.read("bf16_optimizer_states", bf16.optimizer_states);
  fields.refuse_unknown();
  if (bf16.optimizer_states && !bf16.master_weights)
    fields.fail("bf16.bf16_optimizer_states needs bf16_master_weights_and_grads: true");
  return bf16;
}

/// Says which dtype the trainer chooses when it fills `enabled`.
void read_open_choice(bool fp16_open, bool bf16_open, ZeroPrecision& precision) {
  if (!fp16_open && !bf16_open) return;
  const bool is_set = precision.model != Dtype::Float32;
  if (is_set) return;  // the other of the two is enabled already
  precision.model = bf16_open ? Dtype::BFloat16 : Dtype::Float16;
  precision.compute = fp16_open && bf16_open ? "from the trainer (fp16 or bf16)"
                      : fp16_open            ? "from the trainer (fp16 or fp32)"
                                             : "from the trainer (bf16 or fp32)";
}

}  // namespace

ZeroPrecision read_zero_precision(const Node& document, Fields& root, Imported& imported) {
  ZeroPrecision precision;
  const Fp16 fp16 = read_fp16(root.section("fp16"));
  const bool old_name = root.find("bf16") == nullptr && root.find("bfloat16") != nullptr;
  const Bf16 bf16 = read_bf16(root.section(old_name ? "bfloat16" : "bf16"));
  root.find_any("bfloat16");
  if (fp16.enabled && bf16.enabled)
    root.fail("fp16.enabled and bf16.enabled are both true; DeepSpeed takes one of them");
  precision.model = fp16.enabled ? Dtype::Float16 : bf16.enabled ? Dtype::BFloat16 : Dtype::Float32;
  precision.compute = fp16.enabled ? fp16.scaling : std::string(short_name(precision.model));
  read_open_choice(is_enabled_auto(document, "fp16"), is_enabled_auto(document, "bf16"), precision);
  if ((fp16.enabled && fp16.master_weights) || (bf16.enabled && bf16.master_weights))
    precision.master = precision.model;
  if (bf16.enabled && bf16.optimizer_states) precision.states = Dtype::BFloat16;

  precision.reduce = precision.accumulate = precision.model;
  read_dtype(root, "communication_data_type", kCommunicationWords, precision.reduce);
  Fields types = root.section("data_types");
  read_dtype(types, "grad_accum_dtype", kDtypeWords, precision.accumulate);
  Dtype param = precision.model;
  read_dtype(types, "param_dtype", kDtypeWords, param);
  if (param != precision.model)
    fail(*types.find("param_dtype"),
         fmt::format("data_types.param_dtype: {} is not the model's {}; set fp16.enabled or "
                     "bf16.enabled instead",
                     short_name(param), short_name(precision.model)));
  types.find_any("buffer_dtype");
  types.find_any("keep_in_fp32_modules");
  warn_unread(imported, types, "DeepSpeed 0.19.8");

  Fields autocast = root.section("torch_autocast");
  bool enabled = false;
  Dtype dtype = Dtype::BFloat16;
  autocast.read("enabled", enabled);
  read_dtype(autocast, "dtype", kDtypeWords, dtype);
  autocast.find_any("lower_precision_safe_modules");
  if (enabled) {
    precision.autocast = dtype;
    precision.compute = fmt::format("{} by torch_autocast", short_name(dtype));
  }
  return precision;
}

}  // namespace shardplan::importing
