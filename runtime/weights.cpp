#include "runtime/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "plans/error.h"
#include "runtime/initial_values.h"

namespace shardplan {
namespace {

std::string output_file(const Plan& plan) {
  const std::string& folder = plan.job.run.output;
  const bool joined = folder.empty() || folder.back() == '/';
  return folder + (joined ? "" : "/") + "model.safetensors";
}

/// PEFT's name for a parameter that the base model's files do not have.
bool is_adapter(const UnitParameter& parameter) {
  return parameter.name.starts_with("base_model.model.") &&
         parameter.name.find(".lora_") != std::string::npos;
}

std::vector<SafetensorsWriter::Entry> entries_of(const Plan& plan) {
  std::vector<SafetensorsWriter::Entry> entries;
  for (const Unit& unit : plan.units)
    for (const UnitParameter& parameter : unit.parameters)
      entries.push_back({parameter.name, parameter.shape});
  return entries;
}

}  // namespace

WeightSource::WeightSource(const Plan& plan, const Checkpoint* checkpoint)
    : seed_(plan.job.run.seed), checkpoint_(checkpoint) {
  if (checkpoint_ != nullptr || plan.job.run.weights.empty()) return;
  tensors_.emplace(plan.job.run.weights);
  for (const Unit& unit : plan.units)
    for (const UnitParameter& parameter : unit.parameters)
      if (find(parameter.name) != nullptr || !is_adapter(parameter)) expect_tensor(parameter);
}

/// Files of a bare model, as "gpt2" on the Hub, lack the prefix that the model with a head puts
/// before every name ("transformer."); transformers accepts both, and so do we.
const SafeTensor* WeightSource::find(const std::string& name) const {
  if (const SafeTensor* tensor = tensors_->find(name)) return tensor;
  const std::size_t dot = name.find('.');
  return dot == std::string::npos ? nullptr : tensors_->find(name.substr(dot + 1));
}

void WeightSource::expect_tensor(const UnitParameter& parameter) const {
  const SafeTensor* tensor = find(parameter.name);
  if (!tensor)
    throw InputError(fmt::format("{}: tensor '{}' is missing", tensors_->path(), parameter.name));
  if (tensor->shape != parameter.shape)
    throw InputError(fmt::format("{}: tensor '{}' has shape [{}], the model needs [{}]",
                                 tensors_->path(), parameter.name, fmt::join(tensor->shape, ", "),
                                 fmt::join(parameter.shape, ", ")));
  if (!is_floating_point(tensor->dtype))
    throw InputError(fmt::format("{}: tensor '{}' is of dtype {}, expected a floating-point one",
                                 tensors_->path(), parameter.name, to_string(tensor->dtype)));
}

void WeightSource::read(const Unit& unit, const std::vector<Piece>& pieces,
                        std::span<float> out) const {
  std::ranges::fill(out, 0.0f);
  for (const Piece& piece : pieces) {
    const UnitParameter& parameter = unit.parameters[piece.parameter];
    const auto values = out.subspan(piece.at, piece.elems);
    const SafeTensor* tensor = tensors_ ? find(parameter.name) : nullptr;
    if (checkpoint_ != nullptr)
      checkpoint_->read(parameter.name, piece.first, values);
    else if (tensor != nullptr)
      read_elements(*tensor, piece.first, values);
    else
      initial_values(parameter.initializer, seed_, parameter.name, piece.first, values);
  }
}

WeightSink::WeightSink(const Plan& plan, SafetensorsWriter::Open open)
    : writer_(output_file(plan), entries_of(plan), open) {}

void WeightSink::write(const Unit& unit, const std::vector<Piece>& pieces,
                       std::span<const float> values) {
  for (const Piece& piece : pieces)
    writer_.write(unit.parameters[piece.parameter].name, piece.first,
                  values.subspan(piece.at, piece.elems));
}

}  // namespace shardplan
