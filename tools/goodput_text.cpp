#include "tools/goodput_text.h"

#include <fmt/format.h>

#include "tools/table.h"
#include "tools/time_text.h"

namespace shardplan {

std::string text_of(const LongTraining& training, const Palette& palette) {
  const Goodput& result = training.result;
  Table table({{"", Align::Left}, {""}, {"", Align::Left}});
  table.add({"steps alone", duration_text(training.steps_s), ""});
  table.add({"in all", duration_text(result.mean_s),
             fmt::format("in the mean; {} to {} in nine of ten", duration_text(result.least_s),
                         duration_text(result.most_s))});
  table.add({"goodput", share_text(result.share), ""});
  table.add({"failures", fmt::format("{:.1f}", result.failures), "in the mean"});
  table.add({"checkpoint every", duration_text(result.checkpoint_every_s), ""});
  if (result.straggling > 0) table.add({"stragglers", share_text(result.straggling), "of a step"});
  if (training.cost) table.add({"cost", price_text(*training.cost), "in the mean"});
  return fmt::format(
      "\n{}\n{}",
      palette(Tone::Heading, fmt::format("Training on {} tokens", format_count(training.tokens))),
      table.text());
}

}  // namespace shardplan
