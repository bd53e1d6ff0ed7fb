#include "planner/torch/forward_pass.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "planner/passes/recomputation.h"
#include "plans/error.h"
#include "plans/field_places.h"

namespace shardplan::torch {
namespace {

bool inside(std::string_view module, std::string_view path) {
  return module.empty() ||
         (path.starts_with(module) && (path.size() == module.size() || path[module.size()] == '.'));
}

/// "a.b" -> "", "a", "a.b".
std::vector<std::string_view> modules_around(std::string_view path) {
  std::vector<std::string_view> around{""};
  for (std::size_t dot = path.find('.'); dot != std::string_view::npos;
       dot = path.find('.', dot + 1))
    around.push_back(path.substr(0, dot));
  if (!path.empty()) around.push_back(path);
  return around;
}

bool checkpointed(const ActivationCheckpointing& checkpointing, std::size_t block) {
  using Kind = ActivationCheckpointing::Kind;
  switch (checkpointing.kind) {
    case Kind::None: return false;
    case Kind::Selective:
    case Kind::Full: return true;
    case Kind::Every: return (block + 1) % static_cast<std::size_t>(checkpointing.every) == 0;
  }
  return false;
}

}  // namespace

ForwardPass::ForwardPass(const Process& process, Engine& engine, const Tensors& inputs,
                         const Setup& setup)
    : process_(process),
      engine_(engine),
      setup_(setup),
      recomputation_(process.model, process.job().training.activation_checkpointing),
      unit_of_(operators(), -1) {
  std::size_t next = 0;
  for (int vertex = 0; vertex < operators(); ++vertex)
    if (is_input(vertex)) inputs_[vertex] = inputs[next++];
  for (const Module& module : process.model.modules)
    classes_[module.path] = module.class_name;
  find_loss();
  find_hooked();
  find_checkpoints();
  find_last_uses();
  find_shared();
}

ForwardPass::Region ForwardPass::region_of(const std::vector<std::string>& modules) const {
  Region region{.first = operators()};
  for (int vertex = 0; vertex < operators(); ++vertex) {
    if (is_input(vertex) || vertex >= model_end_ ||
        std::ranges::none_of(
            modules, [&](const std::string& module) { return inside(module, op(vertex).module); }))
      continue;
    region.first = std::min(region.first, vertex);
    region.last = vertex;
  }
  std::set<int> read;
  for (int vertex = region.first; vertex <= region.last; ++vertex) {
    for (const int input : process_.model.inputs_of(vertex))
      if (!region.contains(input) && !is_input(input)) read.insert(input);
    for (const auto edge : boost::make_iterator_range(boost::out_edges(vertex, process_.model.dag)))
      if (!region.contains(static_cast<int>(boost::target(edge, process_.model.dag)))) {
        region.outputs.push_back(vertex);
        break;
      }
  }
  if (region.last == operators() - 1) region.outputs.push_back(region.last);
  region.inputs.assign(read.begin(), read.end());
  return region;
}

void ForwardPass::find_hooked() {
  const std::vector<Hooked> hooked = engine_.hooked();
  for (std::size_t i = 0; i < hooked.size(); ++i) {
    Region region = region_of(hooked[i].modules);
    if (region.last < 0) continue;  // nothing of it runs
    region.hooked = static_cast<int>(i);
    region.unit = hooked[i].unit;
    hooked_.push_back(std::move(region));
  }
  std::ranges::stable_sort(hooked_, {}, [](const Region& r) { return r.first - r.last; });
  expect_whole_loss();
  for (const Region& region : hooked_)
    for (int vertex = region.first; region.unit >= 0 && vertex <= region.last; ++vertex)
      unit_of_[vertex] = region.unit;
}

void ForwardPass::find_checkpoints() {
  const auto& checkpointing = process_.job().training.activation_checkpointing;
  if (checkpointing.kind == ActivationCheckpointing::Kind::None) return;
  const std::vector<std::string> blocks = block_modules(process_.model);
  if (blocks.empty())
    throw InputError(
        "training.activation_checkpointing: the model has no blocks whose results could be "
        "computed again");
  for (std::size_t block = 0; block < blocks.size(); ++block) {
    if (!checkpointed(checkpointing, block)) continue;
    checkpoints_.push_back(region_of({blocks[block]}));
    const Region& region = checkpoints_.back();
    const bool divided =
        !engine_.hooks_recomputation() &&
        std::ranges::any_of(hooked_, [&](const Region& unit) { return unit.is_inside(region); });
    if (region.outputs.size() != 1 || divided)
      throw InputError(fmt::format(
          "training.activation_checkpointing: {} has {}, which is not modelled for PyTorch yet",
          blocks[block], divided ? "FSDP units inside" : "several results"));
  }
}

/// A tensor goes after the operator that reads it last; but what is an argument of a module, Python
/// holds until the module returns.
void ForwardPass::find_last_uses() {
  std::map<std::string_view, int> ends;  // by module that runs: lists of modules do not
  for (const Module& module : process_.model.modules)
    if (module.class_name != "ModuleList" && module.class_name != "ModuleDict")
      ends[module.path] = -1;
  for (int vertex = 0; vertex < operators(); ++vertex)
    for (const std::string_view around : modules_around(op(vertex).module))
      if (const auto end = ends.find(around); end != ends.end()) end->second = vertex;
  last_use_.resize(operators());
  for (int vertex = 0; vertex < operators(); ++vertex) {
    last_use_[vertex] = vertex;
    for (const auto edge :
         boost::make_iterator_range(boost::out_edges(vertex, process_.model.dag))) {
      const int reader = static_cast<int>(boost::target(edge, process_.model.dag));
      int end = reader;
      for (const std::string_view around : modules_around(op(reader).module))
        if (ends.contains(around) && !inside(around, op(vertex).module))
          end = std::max(end, ends[around]);
      last_use_[vertex] = std::max(last_use_[vertex], end);
    }
  }
  last_use_.back() = operators();  // the loss is the caller's
  if (setup_.keeps_outputs) last_use_[logits()] = operators();
}

/// The model makes the tables of its rotary embedding, and the mask of eager attention, before the
/// first block or unit that reads them. The module that all blocks are in returns after its last
/// operator: it is the first one below the root ("model", "transformer").
void ForwardPass::find_shared() {
  for (int vertex = operators() - 1; vertex >= 0; --vertex) {
    const OperatorKind kind = op(vertex).kind;
    if (kind == OperatorKind::Rope) rope_ = vertex;
    const bool attends = kind == OperatorKind::Attention || kind == OperatorKind::PackedAttention;
    if (!attends) continue;
    if (eager() || setup_.padding) mask_at_ = outside_of_regions(vertex);
    const std::string& path = op(vertex).module;
    const std::string around = path.substr(0, path.find('.'));
    for (int last = vertex; last < operators(); ++last)
      if (inside(around, op(last).module)) blocks_end_ = std::max(blocks_end_, last);
  }
  if (rope_ >= 0) tables_at_ = outside_of_regions(rope_);
}

void ForwardPass::find_loss() {
  const bool chunks = process_.job().training.loss_chunks > 1;
  const bool own_backward = chunks && setup_.loss_chunk == LossChunk::WithOwnBackward;
  if (chunks) {
    loss_from_ = operators() - 1;
    while (op(loss_from_).kind != OperatorKind::Linear)
      loss_from_ = process_.model.inputs_of(loss_from_).front();
  }
  model_end_ = own_backward                      ? loss_from_
               : setup_.loss == LossPlace::Model ? operators()
                                                 : operators() - 1;
}

/// A loss in chunks is of the same unit as what follows it.
void ForwardPass::expect_whole_loss() const {
  for (const Region& unit : hooked_)
    if (loss_from_ >= 0 &&
        (unit.first > loss_from_ || (unit.last >= loss_from_ && unit.last < operators() - 1)))
      throw FieldError("training.loss.chunks",
                       "the head is in an FSDP unit without the loss, which is not modelled for "
                       "PyTorch yet");
}

/// The operator itself, or the first one of the block or unit that it is in.
int ForwardPass::outside_of_regions(int vertex) const {
  int first = vertex;
  for (const auto* regions : {&hooked_, &checkpoints_})
    for (const Region& region : *regions)
      if (region.contains(vertex) && !region.inputs.empty()) first = std::min(first, region.first);
  return first;
}

ForwardPass::Result ForwardPass::run() {
  if (setup_.padding) padding_ = process_.aten.constant("padding", tokens(), Dtype::Int64);
  run_model();
  Result result = return_from_model();
  if (model_end_ == operators() - 1) {  // the loss is the loop's
    if (setup_.float32_logits)
      result.output = process_.aten.to(std::move(result.output), Dtype::Float32);
    Tensor loss = run_loss(result.output);
    if (setup_.loss == LossPlace::LoopHoldsLogits || setup_.keeps_outputs)
      result.held.push_back(result.output);
    result.output = std::move(loss);
  }
  if (setup_.keeps_outputs) result.held.push_back(result.output);
  return result;
}

void ForwardPass::run_backward(Result result) {
  Aten& aten = process_.aten;
  Tensor gradient = model_end_ == loss_from_
                        ? run_chunk_backwards(result.output)
                        : aten.constant("loss.grad", 1, result.output.dtype, Category::Temporaries);
  process_.autograd.backward(std::exchange(result.output, {}), std::move(gradient));
  padding_ = {};
  if (setup_.keeps_outputs) keep(std::exchange(result.held, {}));
}

/// From now on the loop's variable holds these, no longer those of the step before, which are as
/// large: in the plan they have the same buffers.
void ForwardPass::keep(const Tensors& outputs) {
  if (!kept_outputs_.empty()) return;
  for (const Tensor& output : outputs)
    kept_outputs_.push_back(process_.host.allocate({.name = "outputs.kept",
                                                    .category = Category::Activations,
                                                    .elems = output.elems,
                                                    .dtype = output.dtype}));
}

void ForwardPass::run_model() {
  for (int vertex = 0; vertex < model_end_; ++vertex) {
    if (is_input(vertex)) continue;
    if (vertex == tables_at_) make_tables();
    if (vertex == mask_at_) make_mask();
    const auto checkpoint = std::ranges::find(checkpoints_, vertex, &Region::first);
    const bool checkpoints = checkpoint != checkpoints_.end();
    const auto runs_here = [&](const Region& hooked) {
      return !checkpoints || !hooked.is_inside(*checkpoint);
    };
    for (const Region& hooked : hooked_)
      if (hooked.first == vertex && runs_here(hooked)) enter(hooked, values_);
    if (checkpoints) {
      run_checkpoint(*checkpoint);
      vertex = checkpoint->last;
    } else if (vertex == loss_from_) {
      vertex = operators() - 1;
      values_[vertex] =
          run_chunk_losses(value(process_.model.inputs_of(loss_from_).front(), values_));
    } else {
      values_[vertex] = run_operator(vertex, values_);
    }
    for (auto hooked = hooked_.rbegin(); hooked != hooked_.rend(); ++hooked)
      if (hooked->last == vertex && runs_here(*hooked)) leave(*hooked, values_);
    release(0, vertex, values_);
    if (!setup_.transformers) continue;
    if (vertex == blocks_end_) shared_ = {};
  }
}

ForwardPass::Result ForwardPass::return_from_model() {
  const int last =
      model_end_ == operators() ? model_end_ - 1 : process_.model.inputs_of(model_end_).front();
  Result result{.output = values_.at(last), .held = {}};
  if (setup_.keeps_outputs) {
    result.held = std::exchange(cache_, {});
    const auto inner = values_.find(logits());  // a loss in chunks has none
    if (inner != values_.end() && inner->first != last) result.held.push_back(inner->second);
  }
  values_.clear();
  cache_.clear();
  shared_ = {};
  process_.aten.leave_autocast();
  engine_.end_forward();
  return result;
}

/// The loop's loss, in whose call logits are an argument.
Tensor ForwardPass::run_loss(const Tensor& logits) {
  Values values{{this->logits(), logits}};
  return run_operator(operators() - 1, values);
}

void ForwardPass::make_tables() {
  const std::int64_t time = process_.job().training.sizes().time;
  if (setup_.transformers)
    shared_.positions = process_.aten.constant("position_ids", time, Dtype::Int64);
  shared_.tables = rotary_tables(process_.aten, op(rope_), time, compute_dtype(process_.job()));
}

/// A mask for every sequence, of tokens that are hidden: numbers that eager attention adds, one
/// byte each for sdpa.
void ForwardPass::make_mask() {
  const Sizes sizes = process_.job().training.sizes();
  shared_.mask = process_.aten.constant("attention_mask", sizes.batch * sizes.time * sizes.time,
                                        eager() ? compute_dtype(process_.job()) : Dtype::UInt8);
}

bool ForwardPass::eager() const {
  return process_.job().training.attention == AttentionKind::Eager;
}

void ForwardPass::enter(const Region& hooked, const Values& values) {
  Tensors outer;
  for (const int input : hooked.inputs)
    outer.push_back(value(input, values));
  process_.host.enter_unit(hooked.unit);
  const Tensors inner = engine_.pre_forward(hooked.hooked, std::move(outer));
  Values& seen = scopes_.emplace_back();
  for (std::size_t i = 0; i < inner.size(); ++i)
    seen[hooked.inputs[i]] = inner[i];
}

void ForwardPass::leave(const Region& hooked, const Values& values) {
  scopes_.pop_back();
  Tensors outputs;
  for (const int output : hooked.outputs)
    outputs.push_back(values.at(output));
  process_.host.enter_unit(hooked.unit);
  engine_.post_forward(hooked.hooked, outputs);
  process_.host.enter_unit(-1);
}

void ForwardPass::run_checkpoint(const Region& region) {
  Values inputs;
  for (const int input : region.inputs)
    inputs[input] = value(input, values_);
  values_[region.last] = process_.aten.checkpoint([this, &region, inputs, shared = shared_] {
    Values values = inputs;
    const Shared outer = std::exchange(shared_, shared);
    Tensor result = run_operators(region, values);
    shared_ = outer;
    return result;
  });
}

std::int64_t ForwardPass::tokens() const {
  const Sizes sizes = process_.job().training.sizes();
  return sizes.batch * sizes.time;
}

/// Tokens of each chunk of the loss.
std::vector<std::int64_t> ForwardPass::chunks() const {
  const std::int64_t most = ceil_div(tokens(), process_.job().training.loss_chunks);
  std::vector<std::int64_t> counts;
  for (std::int64_t at = 0; at < tokens(); at += most)
    counts.push_back(std::min(most, tokens() - at));
  return counts;
}

/// Operators [first, last] of the head and the loss for `count` tokens; `input` is what the first
/// one reads.
Tensor ForwardPass::run_chunk(int first, int last, const Tensor& input, std::int64_t count) {
  Values values{{process_.model.inputs_of(first).front(), input}};
  chunk_tokens_ = count;
  Tensor result = run_operators({.first = first, .last = last}, values);
  chunk_tokens_ = 0;
  process_.aten.enter_module("loss");
  return result;
}

/// Logits and loss for a part of the tokens at a time; then the mean of the losses.
Tensor ForwardPass::run_chunk_losses(const Tensor& hidden) {
  Aten& aten = process_.aten;
  const int last = operators() - 1;
  const std::vector<std::int64_t> counts = chunks();
  std::vector<std::int64_t> elems;
  for (const std::int64_t count : counts)
    elems.push_back(count * (hidden.elems / tokens()));
  aten.enter_module("loss");
  const Tensors parts = aten.split(hidden, elems);
  Tensors logits;
  if (setup_.loss_chunk == LossChunk::AfterLogits)
    for (std::size_t i = 0; i < parts.size(); ++i)
      logits.push_back(run_chunk(loss_from_, this->logits(), parts[i], counts[i]));
  Tensor sum;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto logits_and_loss = [this, last, part = parts[i], count = counts[i]] {
      return run_chunk(loss_from_, last, part, count);
    };
    const Tensor loss = logits.empty() ? aten.checkpoint(logits_and_loss)
                                       : run_chunk(last, last, logits[i], counts[i]);
    sum = sum ? aten.add(sum, loss) : loss;
  }
  return aten.pointwise(sum, {.name = "div"});
}

/// Forward and backward of one part of the tokens after the other, from a detached copy of
/// `hidden`; returns the gradient of that.
Tensor ForwardPass::run_chunk_backwards(const Tensor& hidden) {
  Aten& aten = process_.aten;
  Tensor gradient;
  Tensor detached = hidden;
  detached.output = 0;
  detached.node = &process_.autograd.add_leaf("loss.hidden", -1, [&](Tensor part) {
    if (!gradient) {
      gradient = std::move(part);
      return;
    }
    process_.host.issue("loss.hidden.grad.add", Stream::Compute, Compute{Kernel::Add, {}},
                        {gradient.view(), part.view()}, {gradient.view()});
  });
  for (const std::int64_t count : chunks()) {
    const std::size_t mark = process_.autograd.mark();
    aten.enter_module("loss");
    const Tensor part = aten.slice(detached, count * (hidden.elems / tokens()));
    const Tensor loss = run_chunk(loss_from_, operators() - 1, part, count);
    process_.autograd.backward(
        loss, aten.constant("loss.grad", 1, loss.dtype, Category::Temporaries), mark);
  }
  return gradient;
}

Tensor ForwardPass::run_operators(const Region& region, Values& values) {
  const std::size_t scopes = scopes_.size();
  for (int vertex = region.first; vertex < region.last; ++vertex) {
    run_hooked(vertex, values, region);
    release(region.first, vertex, values);
  }
  run_hooked(region.last, values, region);
  scopes_.resize(scopes);  // of modules that never returned
  return std::move(values.at(region.last));
}

/// Runs an operator with the hooks of modules inside `around`. Where all that was saved has been
/// computed again, an exception ends the region: the modules it is in never return.
void ForwardPass::run_hooked(int vertex, Values& values, const Region& around) {
  const Aten& aten = process_.aten;
  for (const Region& hooked : hooked_)
    if (hooked.first == vertex && hooked.is_inside(around) && !aten.stopped())
      enter(hooked, values);
  values[vertex] = run_operator(vertex, values);
  for (auto hooked = hooked_.rbegin(); hooked != hooked_.rend(); ++hooked) {
    if (hooked->last != vertex || !hooked->is_inside(around)) continue;
    if (!aten.stopped()) leave(*hooked, values);
  }
}

Tensor ForwardPass::run_operator(int vertex, Values& values) {
  const Operator& current = op(vertex);
  const Sizes sizes = process_.job().training.sizes();
  ForwardCall call{current, {}, {}, {}, current.attributes};
  if (setup_.transformers) call.family = process_.model.family;
  if (const auto found = classes_.find(current.module); found != classes_.end())
    call.module_class = found->second;
  call.eager = eager();
  call.dropout = setup_.dropout;
  call.mask = shared_.mask;
  // transformers makes no cache where it checkpoints.
  const bool checkpoints =
      process_.job().training.activation_checkpointing.kind != ActivationCheckpointing::Kind::None;
  if (setup_.use_cache && !checkpoints) call.cache = &cache_;
  call.sizes.set(Attribute::Batch, static_cast<double>(sizes.batch));
  call.sizes.set(Attribute::Time, static_cast<double>(sizes.time));
  if (chunk_tokens_ > 0) call.sizes.set(Attribute::Rows, static_cast<double>(chunk_tokens_));
  for (const int input : process_.model.inputs_of(vertex))
    call.inputs.push_back(value(input, values));
  for (const int parameter : current.parameters)
    call.parameters.push_back(engine_.parameter(parameter));
  if (current.kind == OperatorKind::CrossEntropy && !setup_.transformers)
    values.erase(process_.model.inputs_of(vertex).front());
  process_.host.enter_unit(unit_of_[vertex]);
  if (current.kind == OperatorKind::Rope) call.tables = shared_.tables;
  process_.aten.enter_module(current.module.empty() ? "loss" : current.module);
  process_.aten.keep_results(is_kept(vertex));
  const Tensor result = process_.aten.keep_result(forward(process_.aten, call));
  process_.aten.keep_results(false);
  return result;
}

/// With selective checkpointing: of a block, but not to be computed again.
bool ForwardPass::is_kept(int vertex) const {
  const auto& checkpointing = process_.job().training.activation_checkpointing;
  return checkpointing.kind == ActivationCheckpointing::Kind::Selective &&
         !recomputation_.again(vertex) &&
         std::ranges::any_of(checkpoints_,
                             [&](const Region& region) { return region.contains(vertex); });
}

const Tensor& ForwardPass::value(int vertex, const Values& values) const {
  if (const auto input = inputs_.find(vertex); input != inputs_.end()) return input->second;
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
    if (const auto found = scope->find(vertex); found != scope->end()) return found->second;
  return values.at(vertex);
}

void ForwardPass::release(int first, int last, Values& values) const {
  std::erase_if(values, [&](const auto& entry) {
    return entry.first >= first && last_use_[entry.first] <= last;
  });
}

}  // namespace shardplan::torch
