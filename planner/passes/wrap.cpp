#include "planner/passes/wrap.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "plans/error.h"

namespace shardplan {
namespace {

bool contains(const std::string& module, const std::string& path) {
  return module.empty() ||
         (path.starts_with(module) && (path.size() == module.size() || path[module.size()] == '.'));
}

/// Modules whose class is one of `classes`.
std::vector<std::string> modules_of_class(const ModelGraph& graph,
                                          const std::vector<std::string>& classes) {
  std::vector<std::string> wrapped;
  for (const std::string& name : classes) {
    const std::size_t before = wrapped.size();
    for (const Module& module : graph.modules)
      if (module.class_name == name) wrapped.push_back(module.path);
    if (wrapped.size() > before) continue;
    std::set<std::string> known;
    for (const Module& module : graph.modules)
      known.insert(module.class_name);
    throw FieldError("strategy.wrap.layer_classes",
                     fmt::format("the model has no '{}'; it has {}", name, fmt::join(known, ", ")));
  }
  return wrapped;
}

/// PyTorch's size_based_auto_wrap_policy: from the leaves up, a module is wrapped when it has at
/// least so many parameters that no module inside it took; containers never are.
std::vector<std::string> modules_of_size(const ModelGraph& graph, std::int64_t min_params,
                                         const std::vector<std::string>& users) {
  std::vector<const Module*> modules;
  for (const Module& module : graph.modules)
    if (!module.path.empty() && module.class_name != "ModuleList" &&
        module.class_name != "ModuleDict")
      modules.push_back(&module);
  // A module's path is longer than that of any module around it.
  std::ranges::stable_sort(modules, std::greater<>(),
                           [](const Module* m) { return m->path.size(); });
  std::vector<bool> taken(graph.parameters.size(), false);
  std::vector<std::string> wrapped;
  for (const Module* module : modules) {
    std::vector<std::size_t> own;
    std::int64_t elements = 0;
    for (std::size_t p = 0; p < users.size(); ++p) {
      if (taken[p] || !contains(module->path, users[p])) continue;
      own.push_back(p);
      elements += graph.parameters[p].elements();
    }
    if (elements < min_params) continue;
    wrapped.push_back(module->path);
    for (const std::size_t p : own)
      taken[p] = true;
  }
  return wrapped;
}

std::vector<std::string> wrapped_modules(const ModelGraph& graph, const WrapPolicy& policy,
                                         const std::vector<std::string>& users) {
  switch (policy.kind) {
    case WrapPolicy::Kind::None: return {};
    case WrapPolicy::Kind::Transformer:
      return modules_of_class(
          graph, policy.layer_classes.empty() ? graph.block_classes : policy.layer_classes);
    case WrapPolicy::Kind::Modules: return policy.names;
    case WrapPolicy::Kind::Size: return modules_of_size(graph, policy.min_params, users);
  }
  return {};
}

/// The module path that contains every operator using each parameter.
std::vector<std::string> common_module_of_users(const ModelGraph& graph) {
  std::vector<std::string> common(graph.parameters.size());
  std::vector<bool> seen(graph.parameters.size(), false);
  for (const auto vertex : boost::make_iterator_range(boost::vertices(graph.dag))) {
    const Operator& op = graph.dag[vertex];
    for (const int parameter : op.parameters) {
      std::string& path = common[parameter];
      if (!seen[parameter]) path = op.module;
      seen[parameter] = true;
      while (!contains(path, op.module)) {
        const std::size_t dot = path.rfind('.');
        path = dot == std::string::npos ? "" : path.substr(0, dot);
      }
    }
  }
  return common;
}

/// "model.norm, lm_head": both modules. Throws InputError for one that is not in the model.
std::vector<std::string> modules_named(const ModelGraph& graph, const std::string& name) {
  constexpr std::string_view kSeparator = ", ";
  std::vector<std::string> paths;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find(kSeparator, begin), name.size());
    paths.push_back(name.substr(begin, end - begin));
    begin = end + kSeparator.size();
  }
  for (const std::string& path : paths)
    if (std::ranges::none_of(graph.modules, [&](const Module& m) { return m.path == path; }))
      throw FieldError("strategy.wrap.names", fmt::format("the model has no module '{}'", path));
  return paths;
}

std::vector<ParameterGroup> fsdp_units(const ModelGraph& graph, const WrapPolicy& policy) {
  const std::vector<std::string> users = common_module_of_users(graph);
  std::vector<ParameterGroup> groups{{"root", {}, {""}}};
  for (const std::string& name : wrapped_modules(graph, policy, users))
    groups.push_back({name, {}, modules_named(graph, name)});
  std::vector<std::string> modules;
  std::vector<std::size_t> group_of;
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (const std::string& path : groups[g].modules) {
      modules.push_back(path);
      group_of.push_back(g);
    }
  for (std::size_t parameter = 0; parameter < users.size(); ++parameter)
    groups[group_of[deepest_containing(modules, users[parameter])]].parameters.push_back(
        static_cast<int>(parameter));
  std::erase_if(groups, [](const ParameterGroup& group) { return group.parameters.empty(); });
  return groups;
}

/// Parameters in the order in which backward finishes their gradients.
std::vector<int> gradient_order(const Tape& tape, std::size_t parameters) {
  std::vector<int> order;
  std::vector<bool> seen(parameters, false);
  for (const auto* launches : {&tape.backward, &tape.forward})
    for (auto launch = launches->rbegin(); launch != launches->rend(); ++launch)
      for (auto write = launch->writes.rbegin(); write != launch->writes.rend(); ++write) {
        if (write->kind != TapeOperand::Kind::ParameterGradient || seen[write->index]) continue;
        seen[write->index] = true;
        order.push_back(write->index);
      }
  std::ranges::reverse(order);
  return order;
}

/// PyTorch's addmm gives the gradient of a linear layer's bias ahead of that of its weight.
void put_biases_first(const ModelGraph& graph, std::vector<int>& order) {
  std::vector<int> bias_of(graph.parameters.size(), -1);  // by weight
  for (const auto vertex : boost::make_iterator_range(boost::vertices(graph.dag)))
    if (const Operator& op = graph.dag[vertex];
        op.kind == OperatorKind::Linear && op.parameters.size() > 1)
      bias_of[op.parameters[0]] = op.parameters[1];
  for (std::size_t i = 1; i < order.size(); ++i)
    if (bias_of[order[i - 1]] == order[i]) std::swap(order[i - 1], order[i]);
}

std::vector<ParameterGroup> ddp_buckets(const ModelGraph& graph, const Tape& tape,
                                        const StrategyJob& strategy) {
  const DdpOptions& options = strategy.ddp;
  constexpr Bytes kFirstBucketBytes = 1 << 20;
  const auto cap = static_cast<Bytes>(options.bucket_cap_mb * (1 << 20));
  std::vector<ParameterGroup> buckets;
  Bytes filled = 0;
  std::vector<int> order = gradient_order(tape, graph.parameters.size());
  if (strategy.engine == Engine::Ddp) put_biases_first(graph, order);
  for (const int parameter : order) {
    const Bytes limit = buckets.size() <= 1 ? std::min(kFirstBucketBytes, cap) : cap;
    if (buckets.empty() || filled >= limit) {
      buckets.push_back({fmt::format("bucket.{}", buckets.size()), {}});
      filled = 0;
    }
    buckets.back().parameters.push_back(parameter);
    filled += graph.parameters[parameter].elements() * size_of(Dtype::Float32);
  }
  ParameterGroup frozen{"frozen", {}};  // no reduction: not the buckets' business
  for (std::size_t p = 0; p < graph.parameters.size(); ++p)
    if (!graph.parameters[p].trains()) frozen.parameters.push_back(static_cast<int>(p));
  if (!frozen.parameters.empty()) buckets.push_back(std::move(frozen));
  return buckets;
}

/// Of DeepSpeed: what trains, and what is frozen.
std::vector<ParameterGroup> trained_and_frozen(const ModelGraph& graph) {
  std::vector<ParameterGroup> groups{{"root", {}, {""}}, {"frozen", {}}};
  for (std::size_t p = 0; p < graph.parameters.size(); ++p)
    groups[graph.parameters[p].trains() ? 0 : 1].parameters.push_back(static_cast<int>(p));
  std::erase_if(groups, [](const ParameterGroup& group) { return group.parameters.empty(); });
  return groups;
}

/// Of DeepSpeed's stage 3: every module with parameters of its own; a tied one is the first's.
std::vector<ParameterGroup> modules_with_parameters(const ModelGraph& graph) {
  std::map<std::string, std::size_t> places;
  std::vector<ParameterGroup> groups;
  std::vector<bool> taken(graph.parameters.size(), false);
  for (const auto vertex : boost::make_iterator_range(boost::vertices(graph.dag))) {
    const Operator& op = graph.dag[vertex];
    for (const int parameter : op.parameters) {
      if (taken[parameter]) continue;
      taken[parameter] = true;
      const auto [place, is_new] = places.try_emplace(op.module, groups.size());
      if (is_new) groups.push_back({op.module.empty() ? "root" : op.module, {}, {op.module}});
      groups[place->second].parameters.push_back(parameter);
    }
  }
  return groups;
}

}  // namespace

int deepest_containing(std::span<const std::string> modules, const std::string& path) {
  int deepest = -1;
  for (std::size_t m = 0; m < modules.size(); ++m)
    if (contains(modules[m], path) && (deepest < 0 || modules[m].size() > modules[deepest].size()))
      deepest = static_cast<int>(m);
  return deepest;
}

std::vector<ParameterGroup> wrap(const ModelGraph& graph, const Tape& tape, const Job& job) {
  if (job.strategy.engine == Engine::DeepSpeed)
    return job.strategy.sharding == Strategy::Zero3 ? modules_with_parameters(graph)
                                                    : trained_and_frozen(graph);
  const bool buckets =
      job.strategy.sharding == Strategy::Ddp && job.strategy.engine != Engine::Replicate;
  if (buckets) return ddp_buckets(graph, tape, job.strategy);
  return fsdp_units(graph, job.strategy.wrap);
}

}  // namespace shardplan
