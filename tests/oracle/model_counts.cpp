#include "tests/oracle/model_counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace shardplan::oracle {
namespace {

std::string parent_of(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

/// Blocks of one list, e.g. "model.layers", in order.
struct BlockList {
  std::string path;
  std::string class_name;
  std::vector<std::int64_t> sizes;
};

class Counter {
 public:
  explicit Counter(const ModelGraph& graph) : graph_(graph) {
    for (const Module& module : graph.modules)
      add_block(module);
    find_ends();
  }

  ModelCounts counts() {
    for (std::size_t i = 0; i < graph_.parameters.size(); ++i)
      add(static_cast<int>(i));
    for (const Module& module : graph_.modules)
      if (module.path.empty()) counts_.model_class = module.class_name;
    describe_blocks();
    return counts_;
  }

 private:
  void add_block(const Module& module) {
    class_of_[module.path] = module.class_name;
    if (std::ranges::find(graph_.block_classes, module.class_name) == graph_.block_classes.end())
      return;
    const std::string list = parent_of(module.path);
    if (lists_.empty() || lists_.back().path != list)
      lists_.push_back({list, module.class_name, {}});
    place_of_[module.path] = {lists_.size() - 1, lists_.back().sizes.size()};
    lists_.back().sizes.push_back(0);
  }

  /// The table of the tokens, and the last product as wide as the vocabulary.
  void find_ends() {
    for (const auto vertex : boost::make_iterator_range(boost::vertices(graph_.dag))) {
      const Operator& op = graph_.dag[vertex];
      if (op.kind == OperatorKind::Embedding && table_ < 0) {
        table_ = op.parameters[0];
        vocabulary_ = op.attributes.integer(Attribute::InFeatures);
      }
      if (op.kind == OperatorKind::Linear && table_ >= 0 &&
          op.attributes.integer(Attribute::OutFeatures) == vocabulary_) {
        head_ = {op.parameters.begin(), op.parameters.end()};
        counts_.tied = op.parameters[0] == table_;
      }
    }
  }

  void add(int index) {
    const Parameter& parameter = graph_.parameters[index];
    const std::int64_t elements = parameter.elements();
    counts_.total += elements;
    if (parameter.trainable) counts_.trainable += elements;
    if (index == table_) counts_.token_embedding = elements;
    const std::string module = parent_of(parameter.name);
    for (std::string path = module; !path.empty(); path = parent_of(path)) {
      const auto place = place_of_.find(path);
      if (place == place_of_.end()) continue;
      lists_[place->second.first].sizes[place->second.second] += elements;
      return;
    }
    if (class_of_[module].ends_with("Embedding"))
      counts_.embedding += elements;
    else
      (head_.contains(index) ? counts_.lm_head : counts_.other) += elements;
  }

  void describe_blocks() {
    for (const BlockList& list : lists_) {
      std::string runs;
      for (auto begin = list.sizes.begin(); begin != list.sizes.end();) {
        const auto end = std::find_if(begin, list.sizes.end(),
                                      [&](std::int64_t size) { return size != *begin; });
        runs += fmt::format("{}{}x{}", runs.empty() ? "" : "+", end - begin, *begin);
        begin = end;
      }
      counts_.all_blocks += fmt::format("{}{}[{}]={}", counts_.all_blocks.empty() ? "" : ";",
                                        list.path, list.class_name, runs);
    }
    if (lists_.empty()) return;
    const BlockList& last = lists_.back();
    counts_.layer_class = last.class_name;
    counts_.n_layers = static_cast<std::int64_t>(last.sizes.size());
    counts_.per_layer = *std::ranges::max_element(
        last.sizes, {}, [&](std::int64_t size) { return std::ranges::count(last.sizes, size); });
  }

  const ModelGraph& graph_;
  ModelCounts counts_;
  std::map<std::string, std::string> class_of_;  // by module
  std::vector<BlockList> lists_;
  std::map<std::string, std::pair<std::size_t, std::size_t>>
      place_of_;  // list and number, by block
  int table_ = -1;
  std::int64_t vocabulary_ = 0;
  std::set<int> head_;
};

}  // namespace

ModelCounts count_parameters(const ModelGraph& graph) { return Counter(graph).counts(); }

}  // namespace shardplan::oracle
