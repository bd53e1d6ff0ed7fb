#include "tools/job_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include "plans/error.h"

namespace shardplan {
namespace {

/// The text as a YAML scalar: a path may hold what YAML takes for something else.
std::string yaml_scalar(const std::string& text) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) ||
           std::string_view("._/+- ").find(static_cast<char>(c)) != std::string_view::npos;
  };
  const bool plain = !text.empty() && text.front() != ' ' && text.back() != ' ' &&
                     !text.starts_with("- ") && std::ranges::all_of(text, is_plain);
  if (plain) return text;
  std::string quoted = "'";
  for (const char c : text)
    quoted += c == '\'' ? std::string("''") : std::string(1, c);
  return quoted + "'";
}

/// Settings that --nodes, and --gpus beside it, stand for.
std::vector<Setting> node_settings(const JobFlags& flags) {
  if (flags.nodes.empty()) return {};
  const int nodes = count_of("--nodes", flags.nodes);
  std::vector<Setting> settings{{fmt::format("cluster.nodes={}", nodes), "--nodes " + flags.nodes}};
  if (flags.gpus.empty()) return settings;
  const int gpus = count_of("--gpus", flags.gpus);
  if (gpus % nodes != 0)
    throw InputError(fmt::format("--gpus {0}: {0} GPUs do not divide into {1} nodes", gpus, nodes));
  settings.emplace_back(fmt::format("cluster.gpus_per_node={}", gpus / nodes),
                        "--gpus " + flags.gpus);
  return settings;
}

}  // namespace

int count_of(std::string_view flag, const std::string& text) {
  int count = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, count);
  if (error != std::errc() || stop != end || count < 1 || count > kLargestWorld)
    throw InputError(
        fmt::format("{} {}: expected a whole number from 1 to {}", flag, text, kLargestWorld));
  return count;
}

std::vector<Setting> settings_of(const FieldFlag& flag, const std::string& value) {
  const std::string where = fmt::format("{} {}", flag.flag, value);
  if (flag.field == "cluster") return {{"cluster=" + read_text(value), where}};
  std::vector<Setting> settings{{fmt::format("{}={}", flag.field, yaml_scalar(value)), where}};
  constexpr std::array<std::string_view, 3> kModels{"model.preset", "model.hf_config",
                                                    "model.graph"};
  if (std::ranges::find(kModels, flag.field) == kModels.end()) return settings;
  for (const std::string_view other : kModels)
    if (other != flag.field) settings.emplace_back(fmt::format("{}=null", other), where);
  return settings;
}

Job job_from(std::string_view yaml, const std::string& source, const JobFlags& flags,
             const Hardware& hardware) {
  std::vector<Setting> settings = node_settings(flags);
  settings.insert(settings.end(), flags.settings.begin(), flags.settings.end());
  Job job = parse_job(yaml, source, hardware, settings, ModelNeed::Required, flags.use);
  if (!flags.gpus.empty() && flags.nodes.empty()) set_world(job, count_of("--gpus", flags.gpus));
  return job;
}

}  // namespace shardplan
