#include "tools/prediction_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <tuple>
#include <vector>

#include "planner/cost/collective.h"
#include "plans/error.h"
#include "tools/table.h"

namespace shardplan {
namespace {

constexpr std::size_t kMostClasses = 4;  // named one by one

std::string or_dash(const std::optional<Bytes>& bytes) {
  return bytes ? format_bytes(*bytes) : "-";
}

std::string percent(Bytes part, Bytes whole) {
  return whole > 0 ? fmt::format("{:.1f} %",
                                 100.0 * static_cast<double>(part) / static_cast<double>(whole))
                   : "-";
}

std::string world_text(const ClusterJob& cluster) {
  return fmt::format("{} x {} ({} node{} of {})", cluster.world_size(), cluster.gpu.name,
                     cluster.nodes, cluster.nodes == 1 ? "" : "s", cluster.gpus_per_node);
}

/// What of DeepSpeed's options its memory and collectives depend on first.
std::string zero_text(const Plan& plan) {
  const StrategyJob& strategy = plan.job.strategy;
  const DeepSpeedOptions options = strategy.deepspeed.value_or(DeepSpeedOptions{});
  const auto count = [](std::int64_t elems) { return format_count(static_cast<double>(elems)); };
  std::string text(to_string(strategy.sharding));
  if (is_zero(strategy.sharding))
    text += fmt::format(", reduce_bucket_size {}", count(options.reduce_bucket_size));
  if (strategy.sharding == Strategy::Zero3)
    text += fmt::format(", prefetch bucket {}, parameters of {} elements or less stay whole",
                        count(options.prefetch_bucket_size),
                        count(options.param_persistence_threshold));
  if (const auto& precision = strategy.mixed_precision)
    text += fmt::format(", parameters in {}, reductions in {}", to_string(precision->param),
                        to_string(precision->reduce));
  return text;
}

std::string strategy_text(const Plan& plan) {
  const StrategyJob& strategy = plan.job.strategy;
  if (strategy.engine == Engine::DeepSpeed) return zero_text(plan);
  std::string text = fmt::format("{}, {} units", to_string(strategy.sharding), plan.units.size());
  if (strategy.sharding == Strategy::Ddp)
    return text + fmt::format(" (buckets of {} MiB)", strategy.ddp.bucket_cap_mb);
  text += fmt::format(" (wrap: {})", to_string(strategy.wrap.kind));
  if (plan.mesh.shard > 1)
    text += fmt::format(", backward prefetch {}", to_string(strategy.backward_prefetch));
  if (plan.mesh.shard > 1 && plan.mesh.replicate > 1)
    text += fmt::format(", {} replicas of {} shards", plan.mesh.replicate, plan.mesh.shard);
  if (strategy.layout == Layout::PerParameter) text += ", every parameter cut by rows";
  if (const auto& precision = strategy.mixed_precision)
    text += fmt::format(", parameters in {}, reductions in {}", to_string(precision->param),
                        to_string(precision->reduce));
  return text;
}

std::string training_text(const Job& job) {
  const TrainingJob& training = job.training;
  const GradientAccumulation& accumulation = training.gradient_accumulation;
  const std::string micro_steps =
      accumulation.steps == 1 ? ""
                              : fmt::format(" x {} micro-steps (gradients reduced: {})",
                                            accumulation.steps, to_string(accumulation.sync));
  return fmt::format(
      "micro-batch {} x {} tokens per GPU{}, {} tokens per step, {}{}{}", training.micro_batch,
      training.sequence_length, micro_steps,
      format_count(static_cast<double>(tokens_per_step(job))), to_string(training.optimizer.name),
      training.clip_grad_norm ? fmt::format(", clipped at {}", *training.clip_grad_norm) : "",
      training.activation_checkpointing == ActivationCheckpointing{}
          ? ""
          : ", " + checkpointing_text(training.activation_checkpointing));
}

std::string range_text(const RankClass& ranks) {
  return ranks.first == ranks.last ? fmt::format("{}", ranks.first)
                                   : fmt::format("{}-{}", ranks.first, ranks.last);
}

/// "rank 0 owns 1.20 GiB of the parameters, rank 7 12 B less": the most and the least.
std::string owned_text(const Report& report) {
  const auto [least, most] =
      std::ranges::minmax_element(report.ranks, {}, &RankReport::owned_parameters_bytes);
  const auto first = [](const RankReport& rank) {
    return rank.ranks.substr(0, rank.ranks.find('-'));
  };
  const Bytes owned = most->owned_parameters_bytes.value_or(0);
  return fmt::format("rank {} owns {} of the parameters, rank {} {} less", first(*most),
                     format_bytes(owned), first(*least),
                     format_bytes(owned - least->owned_parameters_bytes.value_or(0)));
}

std::string classes_text(const Plan& plan, const Report& report) {
  if (plan.classes.size() == 1) return fmt::format("{}, all alike", range_text(plan.classes[0]));
  std::string text;
  for (std::size_t c = 0; c < std::min(plan.classes.size(), kMostClasses); ++c)
    text += fmt::format("{}{}", c == 0 ? "" : ", ", range_text(plan.classes[c]));
  if (plan.classes.size() > kMostClasses) text += ", ...";
  if (keeps_flat_gradients(plan.job.strategy))
    return fmt::format("{} classes, which differ in the gradients that they keep: {}",
                       plan.classes.size(), text);
  return fmt::format("{} classes, which differ in the padding of their shards: {}; {}",
                     plan.classes.size(), text, owned_text(report));
}

std::string model_name(const ModelJob& model) {
  if (!model.preset.empty()) return model.preset;
  return !model.hf_config.empty() ? model.hf_config : model.graph;
}

std::string heading(const Palette& palette, std::string_view text) {
  return fmt::format("\n{}\n", palette(Tone::Heading, text));
}

std::string categories_text(const RankMemory& memory) {
  Table table({{"category", Align::Left}, {"alive at the peak"}, {"share"}});
  Bytes sum = 0;
  for (const std::optional<Bytes>& bytes : memory.at_peak)
    sum += bytes.value_or(0);
  for (int c = 0; c < kCategories; ++c) {
    const Bytes bytes = memory.at_peak[c].value_or(0);
    table.add({std::string(to_string(static_cast<Category>(c))), format_bytes(bytes),
               percent(bytes, sum)});
  }
  table.add({"sum", format_bytes(sum), ""});
  return table.text();
}

std::string arena_text(const Report& report, const RankMemory& memory) {
  Table table({{"", Align::Left}, {"", Align::Right}, {"", Align::Left}});
  if (report.arena) {
    std::string quality;
    const Bytes bound = report.arena->live_bound_bytes;
    if (bound > 0)
      quality = fmt::format("{:.4f} x the live bound of {}",
                            static_cast<double>(report.arena->bytes) / static_cast<double>(bound),
                            format_bytes(bound));
    table.add({"arena", format_bytes(report.arena->bytes), quality});
  } else {
    table.add({"allocated, peak", or_dash(memory.peak_allocated_bytes), "max_memory_allocated"});
    table.add({"reserved, peak", or_dash(memory.peak_reserved_bytes), "max_memory_reserved"});
  }
  if (memory.host_bytes.value_or(0) > 0)
    table.add({"on the host", or_dash(memory.host_bytes), "of one rank"});
  table.add({"device_context", or_dash(memory.device_context_bytes), ""});
  table.add({"communicator", or_dash(memory.communicator_bytes), ""});
  table.add({"library_workspace", or_dash(memory.library_workspace_bytes), ""});
  table.add({"device, in all", or_dash(memory.peak_device_bytes), ""});
  table.add({"limit", or_dash(report.limit_bytes), report.limit_from});
  return table.text();
}

/// "activations 1.20 GiB, parameters 0.50 GiB": the largest parts of what is alive.
std::string parts_text(const CategoryBytes& bytes) {
  constexpr std::size_t kMostParts = 3;
  std::vector<std::pair<Bytes, Category>> parts;
  for (int c = 0; c < kCategories; ++c)
    if (bytes[c].value_or(0) > 0) parts.emplace_back(*bytes[c], static_cast<Category>(c));
  std::ranges::stable_sort(parts, std::greater<>(), [](const auto& part) { return part.first; });
  std::string text;
  for (std::size_t p = 0; p < std::min(parts.size(), kMostParts); ++p)
    text += fmt::format("{}{} {}", p == 0 ? "" : ", ", to_string(parts[p].second),
                        format_bytes(parts[p].first));
  return text + (parts.size() > kMostParts ? ", ..." : "");
}

std::string phases_text(const RankMemory& memory) {
  Table table({{"phase", Align::Left},
               {"peak"},
               {"at its end"},
               {"peak at", Align::Left},
               {"made of", Align::Left}});
  for (int p = 0; p < kRunPhases; ++p)
    if (const PhaseMemory& phase = memory.phases[p]; phase.peak_bytes)
      table.add({std::string(to_string(static_cast<RunPhase>(p))), or_dash(phase.peak_bytes),
                 or_dash(phase.end_bytes), phase.at, parts_text(phase.at_peak)});
  return table.text();
}

/// Bytes of a collective's whole tensor: what every rank has afterwards, or gives.
Bytes full_bytes(const CollectiveReport& collective) {
  return std::max(collective.input_bytes, collective.output_bytes);
}

Bytes sent_bytes(const CollectiveReport& collective) {
  const Bytes full = full_bytes(collective);
  return collective.kind == "all_reduce" ? ring_all_reduce_traffic(full, collective.group_size)
                                         : ring_all_gather_traffic(full, collective.group_size);
}

/// Collectives of one line of the table.
struct Traffic {
  std::int64_t count = 0;
  Bytes smallest = std::numeric_limits<Bytes>::max();
  Bytes largest = 0;
  Bytes total = 0;
  Bytes sent = 0;

  void add(const CollectiveReport& collective) {
    const Bytes full = full_bytes(collective);
    ++count;
    smallest = std::min(smallest, full);
    largest = std::max(largest, full);
    total += full;
    sent += sent_bytes(collective);
  }
  std::string each() const {
    return smallest == largest
               ? format_bytes(largest)
               : fmt::format("{} to {}", format_bytes(smallest), format_bytes(largest));
  }
};

}  // namespace

std::string checkpointing_text(const ActivationCheckpointing& checkpointing) {
  switch (checkpointing.kind) {
    case ActivationCheckpointing::Kind::None: return "no checkpointing";
    case ActivationCheckpointing::Kind::Full: return "every block checkpointed";
    case ActivationCheckpointing::Kind::Every:
      return fmt::format("one of {} blocks checkpointed", checkpointing.every);
    case ActivationCheckpointing::Kind::Selective: break;
  }
  std::vector<std::string> names;
  for (const OperatorKind kind : checkpointing.operators)
    names.emplace_back(spec(kind).name);
  for (const OperatorKind kind : checkpointing.every_second)
    names.push_back(fmt::format("every second {}", spec(kind).name));
  for (const std::string& module : checkpointing.modules)
    names.push_back(module);
  return fmt::format("checkpointed: {}", fmt::join(names, ", "));
}

const std::string_view kOtherEngines =
    "PyTorch's: --engine fsdp2, fsdp1, ddp, replicate, deepspeed";

std::string who_executes(const Job& job, Profile profile) {
  return who_executes(job, profile, {job.strategy.engine.value_or(Engine::Native)});
}

std::string who_executes(const Job& job, Profile profile, const std::vector<Engine>& engines) {
  std::vector<std::string_view> names;
  for (const Engine engine : engines)
    if (std::ranges::find(names, to_string(engine)) == names.end())
      names.push_back(to_string(engine));
  const std::vector<std::string_view> kOnlyDeepSpeed{to_string(Engine::DeepSpeed)};
  const auto& precision = job.strategy.mixed_precision;
  return fmt::format("{} (engine{} {}, profile {}, {})",
                     !is_torch(profile)        ? "shardplan's own kernels"
                     : names == kOnlyDeepSpeed ? "DeepSpeed 0.19.8 on PyTorch 2.11"
                                               : "PyTorch 2.11",
                     names.size() > 1 ? "s" : "", fmt::join(names, ", "), to_string(profile),
                     to_string(precision ? precision->param : job.model.dtype));
}

std::string assumed_of_torch(const Job& job) {
  return fmt::format(
      "{} optimizer, expandable_segments {}, {} attention, no key-value cache, float32 loss inside "
      "the wrapped model with its logits held",
      to_string(job.training.optimizer.implementation),
      job.strategy.expandable_segments ? "on" : "off",
      job.training.attention == AttentionKind::Eager ? "eager" : "flash");
}

std::string headline(const Plan& plan) {
  return fmt::format("Predicts {}; {}.\n", who_executes(plan.job, plan.profile),
                     is_torch(plan.profile) ? "assumes " + assumed_of_torch(plan.job)
                                            : std::string(kOtherEngines));
}

std::string summary_text(const Plan& plan, const Report& report) {
  Table table({{"", Align::Left}, {"", Align::Left}});
  const Job& job = plan.job;
  table.add({"model", fmt::format("{}, {} parameters", model_name(job.model),
                                  format_count(static_cast<double>(plan.parameter_count)))});
  table.add({"world", world_text(job.cluster)});
  table.add({"strategy", strategy_text(plan)});
  table.add({"training", training_text(job)});
  table.add({"ranks", classes_text(plan, report)});
  table.add({"plan", fmt::format("{} instructions, {} buffers, verified, hash {}",
                                 plan.instructions.size(), plan.buffers.size(), report.plan_hash)});
  for (const std::string& remark : plan.remarks)
    table.add({"note", remark});
  return table.text();
}

const RankReport& fullest(const Report& report) {
  check(!report.ranks.empty(), "a prediction has ranks");
  return *std::ranges::max_element(report.ranks, {}, [](const RankReport& rank) {
    return rank.memory.peak_device_bytes.value_or(0);
  });
}

namespace {

/// "all ranks", or "ranks 0-6, 8-14": those that need as much as the fullest.
std::string worst_ranks(const Report& report) {
  const auto most = fullest(report).memory.peak_device_bytes;
  std::vector<std::string> ranks;
  for (const RankReport& rank : report.ranks)
    if (rank.memory.peak_device_bytes == most) ranks.push_back(rank.ranks);
  if (ranks.size() == report.ranks.size()) return "all ranks";
  return fmt::format("ranks {}", fmt::join(ranks, ", "));
}

}  // namespace

std::string memory_text(const Report& report, const Palette& palette) {
  const RankReport& worst = fullest(report);
  const RankMemory& memory = worst.memory;
  std::string text =
      heading(palette, fmt::format("Memory per GPU ({}), at its peak in {} ({})",
                                   worst_ranks(report), memory.peak_phase, memory.peak_at));
  text += categories_text(memory);
  if (const Bytes first = report.ranks[0].memory.peak_device_bytes.value_or(0);
      first < memory.peak_device_bytes.value_or(0))
    text += fmt::format("Rank 0 needs less: {} of its device.\n", format_bytes(first));
  text += heading(palette, "Memory of the device");
  text += arena_text(report, memory);
  text += heading(palette, "Memory by phase, in issue order");
  text += phases_text(memory);
  return text;
}

std::string verdict_text(const Report& report, const Palette& palette) {
  const Bytes needed = fullest(report).memory.peak_device_bytes.value_or(0);
  const Bytes limit = report.limit_bytes.value_or(0);
  if (report.fits.value_or(false))
    return fmt::format("{}: {} of {} are left.\n", palette(Tone::Good, "Fits"),
                       format_bytes(limit - needed), format_bytes(limit));
  return fmt::format("{}: needs {}, which is {} more than the {} of {}.\n",
                     palette(Tone::Bad, "Does not fit"), format_bytes(needed),
                     format_bytes(needed - limit), format_bytes(limit), report.limit_from);
}

std::string communication_text(const Report& report, const Palette& palette) {
  if (report.collectives.empty()) return heading(palette, "Communication per step: none");
  std::map<std::tuple<std::string, std::string, Dtype, std::int64_t>, Traffic> lines;
  std::vector<const decltype(lines)::value_type*> in_order;
  for (const CollectiveReport& collective : report.collectives) {
    const auto [line, is_new] = lines.try_emplace(
        {collective.kind, collective.phase, collective.dtype, collective.group_size});
    if (is_new) in_order.push_back(&*line);
    line->second.add(collective);
  }
  Table table({{"kind", Align::Left},
               {"phase", Align::Left},
               {"dtype", Align::Left},
               {"group"},
               {"count"},
               {"bytes each"},
               {"bytes in all"},
               {"sent per rank"}});
  for (const auto* line : in_order) {
    const auto& [kind, phase, dtype, group] = line->first;
    const Traffic& traffic = line->second;
    table.add({kind, phase, std::string(to_string(dtype)), fmt::format("{}", group),
               fmt::format("{}", traffic.count), traffic.each(), format_bytes(traffic.total),
               format_bytes(traffic.sent)});
  }
  return heading(palette, fmt::format("Communication per step: each rank sends {}",
                                      or_dash(report.bytes_sent_per_rank))) +
         table.text();
}

}  // namespace shardplan
