#include "runtime/dry_run.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <variant>

#include "runtime/comm/process_communicator.h"
#include "runtime/comm/thread_communicator.h"
#include "runtime/executable.h"
#include "runtime/start_thread.h"

namespace shardplan {
namespace {

/// A collective of a plan with operands of its own.
struct Sample {
  Stream stream = Stream::Compute;
  Group group = Group::World;
  Dtype dtype = Dtype::Float32;
  Operation operation;
  Bytes part = 0;   // what one rank brings to a gather or gets from a scatter
  Bytes whole = 0;  // else both are the same
};

/// The collective of an instruction by the largest of its operands; nothing when it is none.
std::optional<Sample> sample_of(const Plan& plan, const Instruction& instruction) {
  const auto collective = [&](Group group, const std::vector<View>& parts,
                              const std::vector<View>& wholes) -> std::optional<Sample> {
    Sample sample{instruction.stream, group, Dtype::Float32, instruction.operation};
    for (std::size_t i = 0; i < wholes.size(); ++i) {
      if (bytes_of(plan, wholes[i]) <= sample.whole) continue;
      sample.whole = bytes_of(plan, wholes[i]);
      sample.part = bytes_of(plan, parts[i]);
      sample.dtype = plan.buffers[wholes[i].buffer].dtype;
    }
    return sample;
  };
  const auto& [reads, writes] = std::tie(instruction.reads, instruction.writes);
  if (const auto* gather = std::get_if<AllGather>(&instruction.operation))
    return collective(gather->group, reads, writes);
  if (const auto* scatter = std::get_if<ReduceScatter>(&instruction.operation))
    return collective(scatter->group, writes, reads);
  if (const auto* reduce = std::get_if<AllReduce>(&instruction.operation))
    return collective(reduce->group, writes, writes);
  if (const auto* broadcast = std::get_if<Broadcast>(&instruction.operation))
    return collective(broadcast->group, writes, writes);
  return std::nullopt;
}

/// The largest of every kind and group, in the plan's order.
std::vector<Sample> samples_of(const Plan& plan) {
  std::vector<Sample> samples;
  for (const Instruction& instruction : plan.instructions) {
    const std::optional<Sample> sample = sample_of(plan, instruction);
    if (!sample) continue;
    const auto known = std::ranges::find_if(samples, [&](const Sample& other) {
      return other.operation.index() == sample->operation.index() && other.group == sample->group;
    });
    if (known == samples.end())
      samples.push_back(*sample);
    else if (known->whole < sample->whole)
      *known = *sample;
  }
  return samples;
}

void run(const Sample& sample, Communicator& own, std::span<std::byte> part,
         std::span<std::byte> whole) {
  if (std::holds_alternative<AllGather>(sample.operation))
    own.all_gather(sample.stream, sample.group, part, whole);
  else if (std::holds_alternative<ReduceScatter>(sample.operation))
    own.reduce_scatter(sample.stream, sample.group, sample.dtype, whole, part, 1, 1);
  else if (std::holds_alternative<AllReduce>(sample.operation))
    own.all_reduce(sample.stream, sample.group, sample.dtype, whole, 1, 1);
  else
    own.broadcast(sample.stream, sample.group, whole, 0);
}

/// What every link carries of a collective's size, as nccl-tests has it.
double bus_share(const Sample& sample, double ranks) {
  if (std::holds_alternative<Broadcast>(sample.operation)) return 1;
  const double others = (ranks - 1) / ranks;
  return std::holds_alternative<AllReduce>(sample.operation) ? 2 * others : others;
}

CollectiveTime time_of(const Sample& sample, Communicator& own, Device& device) {
  const std::span<std::byte> part = device.allocate(Space::Device, sample.part);
  const std::span<std::byte> whole = device.allocate(Space::Device, sample.whole);
  run(sample, own, part, whole);  // warms up buffers and connections
  device.finish(sample.stream);
  const auto begin = std::chrono::steady_clock::now();
  run(sample, own, part, whole);
  device.finish(sample.stream);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  CollectiveTime time{.kind = std::string(kind_of(sample.operation)),
                      .group = sample.group,
                      .ranks = own.size(sample.group),
                      .bytes = sample.whole,
                      .seconds = taken.count()};
  time.algorithm_bytes_per_s = static_cast<double>(sample.whole) / time.seconds;
  time.bus_bytes_per_s =
      time.algorithm_bytes_per_s * bus_share(sample, static_cast<double>(time.ranks));
  return time;
}

/// Those of one rank, whose device is the index-th of its machine.
std::vector<CollectiveTime> times_of(const Plan& plan, Communicator& host,
                                     const DryRunOptions& options, std::int64_t index) {
  const std::vector<Sample> samples = samples_of(plan);
  DeviceOptions wanted{
      .profile = plan.profile, .index = static_cast<int>(index), .timeout_s = options.timeout_s};
  for (const Sample& sample : samples)
    wanted.streams[static_cast<int>(sample.stream)] = true;
  const auto device = options.device.make(wanted, nullptr);
  const auto own = options.device.connect ? options.device.connect(host, *device, wanted) : nullptr;
  std::vector<CollectiveTime> times;
  try {
    for (const Sample& sample : samples)
      times.push_back(time_of(sample, own ? *own : host, *device));
  } catch (...) {
    if (own) own->abort("the dry run has failed");
    device->join();
    throw;
  }
  return times;
}

}  // namespace

std::vector<CollectiveTime> time_collectives(const Plan& plan, const DryRunOptions& options) {
  expect_executable(plan, options.device);
  expect_place(plan, plan.world_size(), options.device);
  ThreadWorld world(plan.mesh, options.timeout_s);
  std::vector<CollectiveTime> times;
  std::exception_ptr error;
  std::mutex mutex;
  const auto rank_body = [&](std::int64_t rank) {
    try {
      std::vector<CollectiveTime> own = times_of(plan, world.at(rank), options, rank);
      if (rank == 0) times = std::move(own);
    } catch (const std::exception& failure) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
      world.abort(failure.what());
    }
  };
  std::vector<std::thread> threads;
  for (std::int64_t rank = 0; rank < plan.world_size(); ++rank)
    threads.push_back(start_thread([&rank_body, rank] { rank_body(rank); }));
  for (std::thread& thread : threads)
    thread.join();
  if (error) std::rethrow_exception(error);
  return times;
}

std::vector<CollectiveTime> time_collectives(const Plan& plan, const DryRunOptions& options,
                                             ProcessWorld& world) {
  expect_executable(plan, options.device);
  expect_place(plan, world.place().local_size, options.device);
  const std::vector<Stream> streams = streams_with_collectives(plan);
  return times_of(plan, *world.communicator(plan.mesh, streams), options,
                  world.place().rank % world.place().local_size);
}

}  // namespace shardplan
