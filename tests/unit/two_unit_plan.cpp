#include "tests/unit/two_unit_plan.h"

#include <utility>
#include <vector>

#include "plans/error.h"
#include "plans/lifetimes.h"

namespace shardplan::testing {
namespace {

constexpr std::int64_t kBatch = 2;
constexpr std::int64_t kTime = 4;
constexpr std::int64_t kRows = kBatch * kTime;
constexpr std::int64_t kElems = kTwoUnitsVocab * kTwoUnitsChannels;  // of both parameters

class Builder {
 public:
  explicit Builder(const TwoUnits& options) : sharded_(options.sharded && options.world > 1) {
    plan_.job.cluster.gpus_per_node = options.world;
    plan_.job.training.micro_batch = kBatch;
    plan_.job.training.sequence_length = kTime;
    plan_.job.training.optimizer = {
        .name = OptimizerJob::Name::Sgd, .lr = 0.5, .weight_decay = 0, .momentum = 0.5};
    plan_.job.training.clip_grad_norm = 1.0;
    plan_.job.strategy.sharding = sharded_ ? Strategy::FullShard : Strategy::NoShard;
    plan_.job.run.steps = options.steps;
    plan_.job.run.tokens = options.tokens;
    plan_.job.run.output = options.output;
    plan_.job.run.seed = 7;
    plan_.profile = Profile::CpuReference;
    plan_.scalars = {"learning_rate"};
    if (sharded_)
      plan_.mesh.shard = options.world;
    else
      plan_.mesh.replicate = options.world;
  }

  Plan build() {
    add_unit("embedding", "embedding.weight");
    add_unit("head", "head.weight");
    add_classes();
    segment("init", [&] { init(); });
    segment("step", [&] { step(); });
    segment("save", [&] {
      add("write.embedding", Stream::DeviceToHost, Phase::Save, Write{Sink::Weights},
          {whole("embedding.parameter")}, {}, {"embedding.read", "embedding.sgd"}, 0);
      add("write.head", Stream::DeviceToHost, Phase::Save, Write{Sink::Weights},
          {whole("head.parameter")}, {}, {"head.read", "head.sgd"}, 1);
    });
    plan_.program = {{1, 0, {}}, {ProgramItem::kOncePerStep, 1, {}}, {1, 2, {}}};
    for (Buffer& buffer : plan_.buffers) {  // side by side: nothing shares bytes
      buffer.offset = round_up(plan_.arena.bytes, 64);
      plan_.arena.bytes = buffer.offset + buffer.bytes();
    }
    plan_.arena.live_bound_bytes = plan_.arena.bytes;
    const std::vector<InstructionId> order = unroll(plan_, 1);
    plan_.arena.issue_order_bytes =
        live_peak(live_bytes(plan_, lifetimes(plan_, order), order.size())).bytes;
    plan_.parameter_count = 2 * kElems;
    return std::move(plan_);
  }

 private:
  using Waits = std::vector<std::string>;

  void buffer(const std::string& name, Category category, std::int64_t elems,
              Dtype dtype = Dtype::Float32, bool resident = false) {
    plan_.buffers.push_back({name, category, dtype, elems, Space::Device, resident, -1});
  }
  View whole(const std::string& name) const {
    for (std::size_t b = 0; b < plan_.buffers.size(); ++b)
      if (plan_.buffers[b].name == name)
        return {static_cast<BufferId>(b), 0, plan_.buffers[b].elems};
    check(false, "the buffer exists");
    return {};
  }
  View part(const std::string& name, std::int64_t at, std::int64_t elems) const {
    return {whole(name).buffer, at, elems};
  }

  void add(std::string name, Stream stream, Phase phase, Operation operation,
           std::vector<View> reads, std::vector<View> writes, const Waits& after, int unit = -1) {
    plan_.instructions.push_back(
        {std::move(name), stream, phase, unit, std::move(reads), std::move(writes), {}, operation});
    for (const std::string& wait : after)
      waits_.emplace_back(plan_.instructions.size() - 1, wait);
  }
  template <typename Body>
  void segment(std::string name, Body body) {
    const auto first = static_cast<InstructionId>(plan_.instructions.size());
    body();
    plan_.segments.push_back(
        {std::move(name), first, static_cast<InstructionId>(plan_.instructions.size())});
    for (const auto& [id, wait] : std::exchange(waits_, {}))
      plan_.instructions[id].after.push_back({find(plan_, wait), Why::Data});
  }

  void add_unit(const std::string& name, const std::string& parameter) {
    const std::int64_t padded = round_up(kElems, plan_.mesh.shard);
    Unit unit{.name = name,
              .parameters = {{parameter,
                              {kTwoUnitsVocab, kTwoUnitsChannels},
                              {Initializer::Kind::Normal, 0.5},
                              0,
                              kElems}},
              .slices = {{.elems = padded, .valid = kElems}},
              .elems = kElems,
              .padded_elems = padded,
              .shard_elems = padded / plan_.mesh.shard};
    buffer(name + ".parameter", Category::Parameters, unit.shard_elems, Dtype::Float32, true);
    unit.parameter = whole(name + ".parameter").buffer;
    buffer(name + ".momentum", Category::OptimizerState, unit.shard_elems, Dtype::Float32, true);
    buffer(name + ".gradient", Category::Gradients, unit.shard_elems);
    if (sharded_) {
      buffer(name + ".full", Category::UnshardedParameters, padded);
      buffer(name + ".full_gradient", Category::UnshardedGradients, padded);
    }
    plan_.units.push_back(std::move(unit));
  }

  /// The last shard has the padding.
  void add_classes() {
    const Unit& unit = plan_.units[0];  // both are alike
    const std::int64_t last = plan_.world_size() - 1;
    const std::int64_t padding = unit.padded_elems - unit.elems;
    const std::int64_t full = unit.shard_elems;
    if (padding > 0) plan_.classes.push_back({0, last - 1, {full, full}});
    plan_.classes.push_back({padding > 0 ? last : 0, last, {full - padding, full - padding}});
  }

  std::string full(const std::string& unit) const {
    return unit + (sharded_ ? ".full" : ".parameter");
  }
  std::string full_gradient(const std::string& unit) const {
    return unit + (sharded_ ? ".full_gradient" : ".gradient");
  }

  void init() {
    for (int u = 0; u < 2; ++u) {
      const std::string& name = plan_.units[u].name;
      add(name + ".read", Stream::Compute, Phase::Init, Read{Source::Weights}, {},
          {whole(name + ".parameter")}, {}, u);
      add(name + ".zero", Stream::Compute, Phase::Init, Fill{0}, {}, {whole(name + ".momentum")},
          {}, u);
    }
  }

  void step() {
    const Attributes shape{{Attribute::Batch, kBatch},
                           {Attribute::Time, kTime},
                           {Attribute::InFeatures, kTwoUnitsVocab},
                           {Attribute::OutFeatures, kTwoUnitsChannels}};
    const Attributes head{{Attribute::Batch, kBatch},
                          {Attribute::Time, kTime},
                          {Attribute::InFeatures, kTwoUnitsChannels},
                          {Attribute::OutFeatures, kTwoUnitsVocab}};
    const Attributes loss{{Attribute::Batch, kBatch},
                          {Attribute::Time, kTime},
                          {Attribute::InFeatures, kTwoUnitsVocab}};
    buffer("tokens", Category::Inputs, kRows, Dtype::Int32);
    buffer("targets", Category::Inputs, kRows, Dtype::Int32);
    buffer("hidden", Category::Activations, kRows * kTwoUnitsChannels);
    buffer("logits", Category::Activations, kRows * kTwoUnitsVocab);
    buffer("hidden.gradient", Category::Activations, kRows * kTwoUnitsChannels);
    buffer("loss", Category::Temporaries, 1, Dtype::Float64);

    add("tokens.read", Stream::HostToDevice, Phase::Forward, Read{Source::Tokens}, {},
        {whole("tokens")}, {});
    add("targets.read", Stream::HostToDevice, Phase::Forward, Read{Source::Targets}, {},
        {whole("targets")}, {});
    gather("embedding", 0);
    gather("head", 1);
    const auto compute = [&](std::string name, Kernel kernel, const Attributes& attributes,
                             std::vector<View> reads, std::vector<View> writes,
                             const Waits& after) {
      add(std::move(name), Stream::Compute, Phase::Forward, Compute{kernel, attributes},
          std::move(reads), std::move(writes), after);
    };
    const View table = part(full("embedding"), 0, kElems);
    const View weight = part(full("head"), 0, kElems);
    compute("embed", Kernel::Embedding, shape, {whole("tokens"), table}, {whole("hidden")},
            gathered({"tokens.read"}, "embedding"));
    compute("project", Kernel::Linear, head, {whole("hidden"), weight}, {whole("logits")},
            gathered({}, "head"));
    compute("cross_entropy", Kernel::CrossEntropy, loss, {whole("logits"), whole("targets")},
            {whole("loss"), whole("logits")}, {"targets.read"});
    if (plan_.world_size() > 1)
      add("loss.reduce", Stream::AllReduce, Phase::Forward,
          AllReduce{Group::World, 1, 1.0 / static_cast<double>(plan_.world_size()), {}},
          {whole("loss")}, {whole("loss")}, {"cross_entropy"});
    add("loss.write", Stream::DeviceToHost, Phase::Forward, Write{Sink::Loss}, {whole("loss")}, {},
        {plan_.world_size() > 1 ? "loss.reduce" : "cross_entropy"});
    compute("head.backward", Kernel::LinearBackwardWeight, head, {whole("logits"), whole("hidden")},
            {part(full_gradient("head"), 0, kElems)}, {});
    reduce("head", 1, "head.backward");
    compute("hidden.backward", Kernel::LinearBackwardInput, head, {whole("logits"), weight},
            {whole("hidden.gradient")}, {});
    compute("embedding.backward", Kernel::EmbeddingBackward, shape,
            {whole("hidden.gradient"), whole("tokens")},
            {part(full_gradient("embedding"), 0, kElems)}, {});
    reduce("embedding", 0, "embedding.backward");
    optimize();
  }

  /// The waits of a launch that reads a unit.
  Waits gathered(Waits others, const std::string& unit) const {
    if (sharded_) others.push_back(unit + ".gather");
    return others;
  }

  void gather(const std::string& name, int unit) {
    if (sharded_)
      add(name + ".gather", Stream::AllGather, Phase::Forward, AllGather{},
          {whole(name + ".parameter")}, {whole(name + ".full")}, {name + ".read"}, unit);
  }

  void reduce(const std::string& name, int unit, const std::string& writer) {
    const double mean = 1.0 / static_cast<double>(plan_.world_size());
    const View gradient = whole(full_gradient(name));
    if (gradient.elems > kElems)
      add(name + ".pad", Stream::ReduceScatter, Phase::Backward, Fill{0}, {},
          {part(full_gradient(name), kElems, gradient.elems - kElems)}, {}, unit);
    if (plan_.world_size() == 1) return;
    if (sharded_)
      add(name + ".reduce", Stream::ReduceScatter, Phase::Backward,
          ReduceScatter{Group::Shard, 1, mean, {unit}}, {gradient}, {whole(name + ".gradient")},
          {writer}, unit);
    else
      add(name + ".reduce", Stream::AllReduce, Phase::Backward,
          AllReduce{Group::World, 1, mean, {unit}}, {gradient}, {gradient}, {writer}, unit);
  }

  Waits reductions() const {
    if (plan_.world_size() == 1) return {};
    return {"embedding.reduce", "head.reduce"};
  }

  void optimize() {
    buffer("norm.sum", Category::Temporaries, 1, Dtype::Float64);
    buffer("norm", Category::Temporaries, 1);
    buffer("coefficient", Category::Temporaries, 1);
    add("norm.squares", Stream::Compute, Phase::Optimizer, Compute{Kernel::SumSquares, {}},
        {whole("embedding.gradient"), whole("head.gradient")}, {whole("norm.sum")}, reductions());
    if (sharded_)
      add("norm.reduce", Stream::AllReduce, Phase::Optimizer, AllReduce{Group::Shard, 1, 1, {}},
          {whole("norm.sum")}, {whole("norm.sum")}, {"norm.squares"});
    add("norm.root", Stream::Compute, Phase::Optimizer,
        Compute{Kernel::GradientNorm, {{Attribute::MaxNorm, 1.0}}}, {whole("norm.sum")},
        {whole("norm"), whole("coefficient")}, {sharded_ ? "norm.reduce" : "norm.squares"});
    add("norm.write", Stream::DeviceToHost, Phase::Optimizer, Write{Sink::GradientNorm},
        {whole("norm")}, {}, {"norm.root"});
    for (int u = 0; u < 2; ++u) {
      const std::string& name = plan_.units[u].name;
      const std::vector<View> updated{whole(name + ".parameter"), whole(name + ".momentum")};
      add(name + ".sgd", Stream::Compute, Phase::Optimizer,
          Compute{Kernel::Sgd, {{Attribute::Momentum, 0.5}}},
          {whole(name + ".gradient"), whole("coefficient"), updated[0], updated[1]}, updated, {},
          u);
    }
    add("step.end", Stream::Host, Phase::Optimizer, HostWait{}, {}, {}, {"head.sgd"});
    add("step.written", Stream::Host, Phase::Optimizer, HostWait{}, {}, {}, {"norm.write"});
  }

  const bool sharded_;
  Plan plan_;
  std::vector<std::pair<std::size_t, std::string>> waits_;
};

}  // namespace

Plan two_unit_plan(const TwoUnits& options) { return Builder(options).build(); }

InstructionId find(const Plan& plan, const std::string& name) {
  for (std::size_t id = 0; id < plan.instructions.size(); ++id)
    if (plan.instructions[id].name == name) return static_cast<InstructionId>(id);
  check(false, "the instruction exists");
  return -1;
}

}  // namespace shardplan::testing
