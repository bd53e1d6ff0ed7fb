#include "tools/comparison_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "planner/strategies.h"
#include "tools/prediction_text.h"
#include "tools/table.h"
#include "tools/time_text.h"

namespace shardplan {
namespace {

std::string name_of(const ComparedStrategy& row) { return std::string(to_string(row.strategy)); }

std::string largest_text(const ComparedStrategy& row) {
  if (!row.largest) return "none";
  return fmt::format("{}{} ({} {})", row.largest->next_device_bytes ? "" : "> ",
                     format_count(static_cast<double>(row.largest_parameters)), row.largest->number,
                     row.largest->number == 1 ? "block" : "blocks");
}

/// ", G = 8 ranks of a shard group" when some ranks are replicas of others and yet shard.
std::string group_text(const std::vector<ComparedStrategy>& rows) {
  for (const ComparedStrategy& row : rows)
    if (planned(row.strategy).mesh == PlannedStrategy::Mesh::Hybrid)
      return fmt::format(", G = {} ranks of a shard group", row.plan.mesh.shard);
  return "";
}

std::string copies_text(const std::vector<ComparedStrategy>& rows) {
  Table table({{"strategy", Align::Left},
               {"parameters", Align::Left},
               {"gradients", Align::Left},
               {"optimizer state", Align::Left},
               {"memory per GPU", Align::Left}});
  for (const ComparedStrategy& row : rows) {
    const PlannedStrategy& copies = planned(row.strategy);
    table.add({name_of(row), std::string(copies.parameters), std::string(copies.gradients),
               std::string(copies.optimizer_state), std::string(copies.order)});
  }
  return table.text();
}

std::string memory_table(const std::vector<ComparedStrategy>& rows) {
  Table table({{"strategy", Align::Left},
               {"model states"},
               {"peak"},
               {"limit"},
               {"", Align::Left},
               {"largest model"}});
  for (const ComparedStrategy& row : rows)
    table.add({name_of(row), format_bytes(model_state_bytes(row.plan)),
               format_bytes(row.device_bytes()), format_bytes(row.report.limit_bytes.value_or(0)),
               row.fits() ? "fits" : "does not fit", largest_text(row)});
  return table.text();
}

/// "33 all_gather (29.92 GiB), 33 reduce_scatter (29.92 GiB)" of one phase.
std::string exchanged_text(const Report& report, Phase phase) {
  struct Kind {
    std::string name;
    std::int64_t count = 0;
    Bytes bytes = 0;
  };
  std::vector<Kind> kinds;
  for (const CollectiveReport& collective : report.collectives) {
    if (collective.phase != to_string(phase)) continue;
    auto kind = std::ranges::find(kinds, collective.kind, &Kind::name);
    if (kind == kinds.end()) kind = kinds.insert(kinds.end(), Kind{collective.kind});
    ++kind->count;
    kind->bytes += std::max(collective.input_bytes, collective.output_bytes);
  }
  std::string text;
  for (const Kind& kind : kinds)
    text += fmt::format("{}{} {} ({})", text.empty() ? "" : ", ", kind.count, kind.name,
                        format_bytes(kind.bytes));
  return text.empty() ? "none" : text;
}

std::string communication_table(const std::vector<ComparedStrategy>& rows) {
  Table table({{"strategy", Align::Left},
               {"forward", Align::Left},
               {"backward", Align::Left},
               {"optimizer", Align::Left},
               {"sent per rank"}});
  for (const ComparedStrategy& row : rows)
    table.add({name_of(row), exchanged_text(row.report, Phase::Forward),
               exchanged_text(row.report, Phase::Backward),
               exchanged_text(row.report, Phase::Optimizer),
               format_bytes(row.report.bytes_sent_per_rank.value_or(0))});
  return table.text();
}

template <typename Text>
std::string known_or_dash(const std::optional<double>& value, Text text) {
  return value ? text(*value) : "-";
}

std::string time_table(const std::vector<ComparedStrategy>& rows, bool totals) {
  std::vector<Column> columns{{"strategy", Align::Left}, {"step"}, {"exposed"}, {"rate"}, {"MFU"},
                              {"per billion tokens"}};
  if (totals) columns.insert(columns.end(), {{"time in all"}, {"cost in all"}});
  Table table(columns);
  for (const ComparedStrategy& row : rows) {
    const TimeReport time = row.report.time.value_or(TimeReport{});
    const CostReport cost = row.report.cost.value_or(CostReport{});
    std::vector<std::string> cells{name_of(row),
                                   format_seconds(time.step_s),
                                   format_seconds(time.exposed_communication_s),
                                   rate_text(time.tokens_per_s),
                                   known_or_dash(time.mfu, share_text),
                                   known_or_dash(cost.per_billion_tokens, price_text)};
    if (totals) {
      cells.push_back(known_or_dash(time.total_s, duration_text));
      cells.push_back(known_or_dash(cost.total, price_text));
    }
    table.add(std::move(cells));
  }
  return table.text();
}

/// How to get a price, when the job has none.
std::string price_hint(const ClusterJob& cluster) {
  if (cluster.price_per_gpu_hour) return "";
  const auto& example = cluster.gpu.price_per_hour;
  return fmt::format(
      "Cost is not known without a price: --set cluster.price_per_gpu_hour={}\n",
      example ? fmt::format("{} (the catalogue's example, in $)", *example) : "DOLLARS");
}

}  // namespace

std::string assumptions_text(const Plan& plan, const std::vector<Engine>& engines) {
  const Job& job = plan.job;
  const TrainingJob& training = job.training;
  return fmt::format(
      "Predicts {}; assumes {} x {}, micro-batch {}, {} tokens a sequence, {}, {}; change with "
      "--gpu, --gpus, --micro-batch, --seq, --set FIELD=VALUE. {}.\n",
      who_executes(job, plan.profile, engines), plan.world_size(), job.cluster.gpu.name,
      training.micro_batch, training.sequence_length, to_string(training.optimizer.name),
      checkpointing_text(training.activation_checkpointing),
      is_torch(plan.profile) ? "Of PyTorch: " + assumed_of_torch(job) : std::string(kOtherEngines));
}

std::string comparison_text(const std::vector<ComparedStrategy>& rows, std::optional<double> tokens,
                            const Palette& palette) {
  const auto heading = [&](std::string_view text) {
    return fmt::format("\n{}\n", palette(Tone::Heading, text));
  };
  const Plan& plan = rows.front().plan;
  std::string text = heading(fmt::format("Copies of the model on each GPU, N = {}{}",
                                         plan.world_size(), group_text(rows)));
  text += copies_text(rows);
  text += heading("Memory per GPU");
  text += memory_table(rows);
  text += heading("Communication per step, with the bytes of the whole tensors");
  text += communication_table(rows);
  text += heading(tokens ? fmt::format("Time and cost, in all for {} tokens", format_count(*tokens))
                         : "Time and cost");
  text += time_table(rows, tokens.has_value());
  if (rows.front().report.time) text += range_text(*rows.front().report.time);
  text += price_hint(plan.job.cluster);
  return text;
}

}  // namespace shardplan
