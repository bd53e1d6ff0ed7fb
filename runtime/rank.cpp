#include "runtime/rank.h"

#include <algorithm>
#include <variant>

#include "plans/run_phases.h"
#include "runtime/host_memory.h"
#include "runtime/training_state.h"

namespace shardplan {
namespace {

DeviceOptions with_streams(DeviceOptions options, const Plan& plan) {
  for (const Instruction& instruction : plan.instructions)
    options.streams[static_cast<int>(instruction.stream)] = true;
  options.name_of = [&plan](InstructionId id) { return plan.instructions[id].name; };
  return options;
}

}  // namespace

Rank::Rank(const Plan& plan, const Options& options, Communicator& communicator,
           const JobData& data, JobFailure& failure)
    : plan_(plan),
      communicator_(communicator),
      failure_(failure),
      options_(options),
      data_(data),
      device_(options.kind->make(with_streams(options.device, plan),
                                 [this](const Issue& issue) { return execute(issue); })),
      arena_(*device_, plan.arena.bytes),
      latest_(plan.instructions.size()),
      spent_(plan.instructions.size()),
      step_ends_(std::max(plan.job.run.steps, 0)),
      writer_(plan, communicator, [this](const View& view) { return values(view); }) {}

void Rank::connect() {
  if (options_.kind->connect != nullptr)
    own_communicator_ = options_.kind->connect(communicator_, *device_, options_.device);
  Communicator& used = own_communicator_ ? *own_communicator_ : communicator_;
  interpreter_.emplace(plan_, arena_.bytes(), *device_, used, data_);
}

void Rank::run() noexcept {
  try {
    connect();
    if (options_.measure_memory) meter_.emplace(plan_, arena_, *device_);
    const bool issued = std::ranges::all_of(
        plan_.program, [&](const ProgramItem& item) { return issue_item(item); });
    finished_ = (issued || stopped_early_) && wait_for(issued_);
    if (finished_) {
      if (meter_) memory_ = meter_->finish();
      memory_.peak_device_bytes = device_->bytes_in_use();  // nothing was given back until here
      memory_.resident_set_bytes = resident_set_bytes();
    }
  } catch (...) {
    failure_.record(plan_, communicator_.rank(), nullptr);
  }
  steps_issued_.stop();  // a program need not have a loop over steps
  if (own_communicator_ && !finished_) own_communicator_->abort("the job has failed");
  device_->join();  // after a failure, streams may still be reading the memory of other ranks
}

void Rank::stop() noexcept {
  device_->stop();
  steps_issued_.stop();
}

bool Rank::execute(const Issue& issue) noexcept {
  try {
    if (options_.before_instruction) options_.before_instruction(issue.id, issue.step);
    if (meter_) meter_->before(issue);
    const auto begin = std::chrono::steady_clock::now();
    interpreter_->run(issue);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    Spent& spent = spent_[issue.id];
    (issue.step <= first_step() ? spent.first_step : spent.later) += taken.count();
    if (meter_) meter_->after(issue);
    return true;
  } catch (...) {
    failure_.record(plan_, communicator_.rank(), &plan_.instructions[issue.id]);
    return false;
  }
}

bool Rank::issue_item(const ProgramItem& item) {
  if (item.count == ProgramItem::kOncePerStep) return issue_steps(item);
  for (std::int64_t pass = 0; pass < item.count; ++pass)
    if (!issue_pass(item)) return false;
  return true;
}

bool Rank::issue_pass(const ProgramItem& item) {
  if (item.segment >= 0) {
    const Segment& segment = plan_.segments[item.segment];
    for (InstructionId id = segment.first; id < segment.last; ++id)
      if (!issue_one(id)) return false;
  }
  return std::ranges::all_of(item.body,
                             [&](const ProgramItem& inner) { return issue_item(inner); });
}

bool Rank::issue_steps(const ProgramItem& item) {
  if (data_.checkpoint != nullptr) {
    if (!wait_for(issued_)) return false;
    restore_optimizer();
  }
  first_step_begin_ = std::chrono::steady_clock::now();
  for (std::size_t step = first_step(); step < step_ends_.size(); ++step) {
    step_ = static_cast<std::int32_t>(step);
    reads_.fill(0);
    if (!issue_step(item)) return false;
    step_ends_[step] = issued_;
    steps_issued_.reach(step + 1);
    if (!end_step(static_cast<int>(step) + 1)) return false;
  }
  if (writer_.is_pending()) writer_.finish();
  return true;
}

/// The first step is issued whatever there is: communicators and libraries start in it.
bool Rank::issue_step(const ProgramItem& item) {
  device_->begin_step(data_.scalars[step_]);
  Replay* const replay = options_.cuda_graphs ? device_->replay() : nullptr;
  if (replay == nullptr || step_ == first_step()) return issue_pass(item);
  if (step_ == first_step() + 1) {
    replay->begin();
    if (!issue_pass(item)) return false;
    replay->end();
  }
  issued_ = replay->run();
  for (Latest& latest : latest_)
    if (latest.number > 0) latest.number = issued_[static_cast<int>(latest.stream)];
  return issued_[static_cast<int>(Stream::Compute)] > 0;
}

/// The weights come with the program's own reads.
void Rank::restore_optimizer() {
  for (const StatePart& part : training_state(plan_)) {
    if (part.suffix.empty()) continue;
    const std::span<const float> before = values(part.values);
    std::vector<float> restored(before.begin(), before.end());
    for (const Piece& piece : pieces_of(plan_, part, communicator_.rank()))
      data_.checkpoint->read(name_of(plan_, part, piece), piece.first,
                             std::span(restored).subspan(piece.at, piece.elems));
    device_->from_host(std::as_bytes(std::span(restored)), interpreter_->operand(part.values));
  }
}

/// Begins the checkpoint that is due after a step, and finishes one that all ranks have written.
/// False: no further step shall be issued.
bool Rank::end_step(int steps_done) {
  const auto [stops, all_written] = agree();
  const bool due = options_.checkpoint_every > 0 && steps_done % options_.checkpoint_every == 0;
  if (writer_.is_pending() && (all_written || due || stops)) writer_.finish();
  if (!stops && !due) return true;
  if (!wait_for(issued_)) return false;
  writer_.begin(data_.batches == nullptr ? TrainingPosition{steps_done, 0}
                                         : data_.batches->position(steps_done));
  stopped_early_ = stops && steps_done < static_cast<int>(step_ends_.size());
  if (stopped_early_) writer_.finish();
  return !stopped_early_;
}

/// A request to stop reaches ranks at different steps, and files take their time; all ranks do the
/// same after the same step.
Rank::Agreement Rank::agree() {
  if (!options_.stop_requested && !writer_.is_pending()) return {};
  const bool stops = options_.stop_requested && options_.stop_requested();
  std::array<double, 2> counts{stops ? 1.0 : 0.0, writer_.is_written() ? 0.0 : 1.0};
  communicator_.all_reduce(Stream::Host, Group::World, Dtype::Float64,
                           std::as_writable_bytes(std::span(counts)), 1, 1);
  return {.stops = counts[0] > 0, .all_written = counts[1] == 0};
}

/// Every micro-step reads its tokens and its targets once, by whichever instruction.
std::int32_t Rank::next_micro_step(const Instruction& instruction) {
  const auto* read = std::get_if<Read>(&instruction.operation);
  return read == nullptr ? 0 : reads_[static_cast<std::size_t>(read->source)]++;
}

bool Rank::issue_one(InstructionId id) {
  const Instruction& instruction = plan_.instructions[id];
  Issue issue{.id = id,
              .step = step_,
              .micro_step = next_micro_step(instruction),
              .first = latest_[id].number == 0};
  for (const Wait& wait : instruction.after) {
    const auto [stream, number] = latest_[wait.id];
    std::uint64_t& waits = issue.waits[static_cast<int>(stream)];
    waits = std::max(waits, number);
  }
  const std::uint64_t number = device_->enqueue(instruction.stream, issue);
  if (number == 0) return false;
  latest_[id] = {instruction.stream, number};
  issued_[static_cast<int>(instruction.stream)] = number;
  // In the same order as happens-before has it: the host goes on once the wait's own turn is over.
  return !std::holds_alternative<HostWait>(instruction.operation) ||
         device_->wait(instruction.stream, number);
}

bool Rank::wait_for(const Counts& counts) {
  for (int s = 0; s < kStreams; ++s)
    if (!device_->wait(static_cast<Stream>(s), counts[s])) return false;
  return true;
}

bool Rank::wait_step(std::int32_t step) {
  return steps_issued_.wait(step + 1) && wait_for(step_ends_[step]);
}

std::vector<InstructionTime> Rank::instruction_times() const {
  std::vector<InstructionTime> times;
  if (!options_.kind->works_in_bodies) return times;
  const int later_steps = step_ - first_step();
  for (std::size_t i = 0; i < spent_.size(); ++i) {
    const Instruction& instruction = plan_.instructions[i];
    Bytes bytes = 0;
    for (const auto* views : {&instruction.reads, &instruction.writes})
      for (const View& view : *views)
        bytes += bytes_of(plan_, view);
    const auto [first_step, later] = spent_[i];
    const bool has_mean = is_of_a_step(instruction.phase) && later_steps > 0;
    times.push_back({instruction.name, has_mean ? later / later_steps : first_step + later, bytes});
  }
  return times;
}

std::span<const float> Rank::values(const View& view) const {
  const std::span<const std::byte> bytes = device_->on_host(interpreter_->operand(view));
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

}  // namespace shardplan
