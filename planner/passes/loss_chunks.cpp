#include "planner/passes/loss_chunks.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "plans/error.h"

namespace shardplan {
namespace {

using Kind = TapeOperand::Kind;

/// Moves the launches of the vertices out of the list, in their order.
std::vector<TapeLaunch> take(std::vector<TapeLaunch>& launches, std::initializer_list<int> of) {
  const auto taken = [&](const TapeLaunch& launch) {
    return std::find(of.begin(), of.end(), launch.vertex) != of.end();
  };
  std::vector<TapeLaunch> result;
  std::ranges::copy_if(launches, std::back_inserter(result), taken);
  std::erase_if(launches, taken);
  return result;
}

class LossCutter {
 public:
  LossCutter(Tape& tape, const ModelGraph& graph)
      : tape_(tape),
        loss_(static_cast<int>(boost::num_vertices(graph.dag)) - 1),
        head_(graph.inputs_of(loss_)[0]) {
    const Operator& head = graph.dag[head_];
    if (head.kind != OperatorKind::Linear || boost::out_degree(head_, graph.dag) != 1)
      throw FieldError("training.loss.chunks",
                       fmt::format("the logits are made by {} ({}); expected a linear "
                                   "layer that only the loss reads, or 1 chunk",
                                   head.module, spec(head.kind).name));
    check(tape.backward.empty() || tape.backward.front().vertex == head_,
          "nothing is differentiated ahead of what the loss reads");
  }

  void run(int chunks) {
    std::vector<TapeLaunch> whole = take(tape_.forward, {head_, loss_});
    std::ranges::move(take(tape_.backward, {head_}), std::back_inserter(whole));
    logits_ = whole.front().writes.front().index;
    all_ = rows_of(whole.front().attributes).value();
    const std::int64_t most = ceil_div(all_, chunks);
    for (first_ = 0; first_ < all_; first_ += most) {
      rows_ = std::min(most, all_ - first_);
      TapeValue logits = tape_.values[logits_];
      logits.elems = logits.elems / all_ * rows_;
      chunk_ = static_cast<int>(std::ssize(tape_.values));
      tape_.values.push_back(std::move(logits));
      for (const TapeLaunch& launch : whole)
        tape_.forward.push_back(cut(launch));
    }
  }

 private:
  TapeLaunch cut(TapeLaunch launch) const {
    launch.attributes.set(Attribute::Rows, static_cast<double>(rows_));
    if (launch.vertex == loss_)
      launch.attributes.set(Attribute::FirstRow, static_cast<double>(first_));
    for (auto* operands : {&launch.reads, &launch.writes})
      for (TapeOperand& operand : *operands)
        operand = cut(operand, launch.vertex);
    if (first_ == 0) return launch;
    for (const TapeOperand& written : launch.writes) {
      const bool adds_up = written.kind == Kind::ParameterGradient || written.index == tape_.loss;
      if (adds_up && std::ranges::find(launch.reads, written) == launch.reads.end())
        launch.reads.push_back(written);
    }
    return launch;
  }

  /// The chunk of the logits; the rows of what else the head reads and writes. The loss takes all
  /// targets: it divides by their number.
  TapeOperand cut(TapeOperand operand, int vertex) const {
    if (operand.kind != Kind::Value) return operand;
    if (operand.index == logits_) return {Kind::Value, chunk_};
    if (vertex == loss_) return operand;
    const std::int64_t width = tape_.values[operand.index].elems / all_;
    return {Kind::Value, operand.index, first_ * width, rows_ * width};
  }

  Tape& tape_;
  const int loss_;        // vertex
  const int head_;        // vertex
  int logits_ = -1;       // value: of all rows
  int chunk_ = -1;        // value: of this chunk
  std::int64_t all_ = 0;  // rows
  std::int64_t first_ = 0;
  std::int64_t rows_ = 0;  // of this chunk
};

}  // namespace

void cut_loss(Tape& tape, const ModelGraph& graph, int chunks) {
  LossCutter(tape, graph).run(chunks);
}

}  // namespace shardplan
