#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "plans/job.h"
#include "plans/operators.h"
#include "plans/parameter.h"
#include "plans/units.h"

namespace shardplan {

using BufferId = std::int32_t;
/// Index of an instruction in Plan::instructions; unique over all segments.
using InstructionId = std::int32_t;

enum class Stream {
  Compute,
  AllGather,
  ReduceScatter,
  AllReduce,
  HostToDevice,
  DeviceToHost,
  Host
};
constexpr int kStreams = 7;
/// "compute", "ag", "rs", "ar", "h2d", "d2h", "host".
std::string_view to_string(Stream stream);

enum class Phase { Load, Init, Forward, Backward, Optimizer, Save };
constexpr int kPhases = 6;
std::string_view to_string(Phase phase);

enum class Category {
  Parameters,
  Gradients,
  OptimizerState,
  UnshardedParameters,
  UnshardedGradients,
  CommunicationBuffers,
  Activations,
  Temporaries,
  Inputs,
};
constexpr int kCategories = 9;
std::string_view to_string(Category category);

enum class Space { Device, Pinned, Host, Disk };
constexpr int kSpaces = 4;
std::string_view to_string(Space space);

/// Ranks a collective spans: a mesh axis, all of it, or the part of the shard axis that Mesh::span
/// says.
enum class Group { World, Shard, Replicate, Span };
constexpr int kGroups = 4;
std::string_view to_string(Group group);

/// A tensor's home in memory. `elems` is the most that a rank holds, and what operands refer to.
struct Buffer {
  std::string name;
  Category category = Category::Temporaries;
  Dtype dtype = Dtype::Float32;
  std::int64_t elems = 0;
  Space space = Space::Device;
  bool resident = false;  // alive from init to the end of the program
  Bytes offset = -1;      // in the arena of its space; -1 until packed, and without an arena
  std::vector<std::int64_t> class_elems = {};  // by rank class, where ranks hold less than others

  Bytes bytes() const { return elems * size_of(dtype); }
  /// What a rank of that class allocates.
  Bytes bytes(std::size_t rank_class) const {
    return class_elems.empty() ? bytes() : class_elems[rank_class] * size_of(dtype);
  }

  bool operator==(const Buffer&) const = default;
};

/// An operand: `elems` elements of a buffer from element `at` on.
struct View {
  BufferId buffer = -1;
  std::int64_t at = 0;
  std::int64_t elems = 0;
  bool operator==(const View&) const = default;
};

/// The operand is the instruction's only write.
struct Alloc {
  bool operator==(const Alloc&) const = default;
};
struct Free {
  std::vector<Stream> used_on;  // streams that may still use the freed buffer
  bool operator==(const Free&) const = default;
};
struct Compute {
  Kernel kernel = Kernel::Add;
  Attributes attributes;
  bool operator==(const Compute&) const = default;
};
/// Converts where the dtypes differ. With `part`: copies only what this rank owns of the operands
/// read, which the ranks of that group own in equal parts, in their order.
struct Copy {
  std::optional<Group> part;
  bool operator==(const Copy&) const = default;
};
struct Fill {
  double value = 0;
  bool operator==(const Fill&) const = default;
};
/// Every read operand is gathered into the written one of the same place: the parts of all ranks of
/// the group, in their order.
struct AllGather {
  Group group = Group::Shard;
  bool operator==(const AllGather&) const = default;
};
/// Sums in rank order; `pre_scale` multiplies every contribution, `post_scale` the sum. Each read
/// operand is scattered into the written one of the same place.
struct ReduceScatter {
  Group group = Group::Shard;
  double pre_scale = 1;
  double post_scale = 1;
  std::vector<int> contributes;  // units whose gradients this reduction makes final
  bool operator==(const ReduceScatter&) const = default;
};
struct AllReduce {
  Group group = Group::World;
  double pre_scale = 1;
  double post_scale = 1;
  std::vector<int> contributes;
  bool operator==(const AllReduce&) const = default;
};
struct Broadcast {
  Group group = Group::World;
  int root = 0;
  bool operator==(const Broadcast&) const = default;
};
enum class Source { Tokens, Targets, Weights, Input };  // Input: pixels, sound, what else there is
constexpr int kSources = 4;
std::string_view to_string(Source source);
struct Read {
  Source source = Source::Tokens;
  bool operator==(const Read&) const = default;
};
enum class Sink { Loss, GradientNorm, Weights };
constexpr int kSinks = 3;
std::string_view to_string(Sink sink);
struct Write {
  Sink sink = Sink::Loss;
  bool operator==(const Write&) const = default;
};
/// The issuing thread blocks until the instruction named by the only wait has finished.
struct HostWait {
  bool operator==(const HostWait&) const = default;
};

using Operation = std::variant<Alloc, Free, Compute, Copy, Fill, AllGather, ReduceScatter,
                               AllReduce, Broadcast, Read, Write, HostWait>;
/// The kind's name in JSON: "alloc", "all_gather", ...
std::string_view kind_of(const Operation& operation);
/// The group of a collective, which its ranks do together; nothing for other operations.
std::optional<Group> group_of(const Operation& operation);
inline bool is_collective(const Operation& operation) { return group_of(operation).has_value(); }

enum class Why { Data, Reuse, Throttle };
constexpr int kWhys = 3;
std::string_view to_string(Why why);

/// Waits for the latest issue of `id` before this instruction; nothing to wait for when there is
/// none. So the same edge inside a loop is a wait within an iteration or across its back edge.
struct Wait {
  InstructionId id = -1;
  Why why = Why::Data;
  bool operator==(const Wait&) const = default;
};

struct Instruction {
  std::string name;  // unique in the plan, e.g. "ag.model.layers.3.forward"
  Stream stream = Stream::Compute;
  Phase phase = Phase::Forward;
  int unit = -1;  // index into Plan::units; -1: none
  std::vector<View> reads;
  std::vector<View> writes;
  std::vector<Wait> after;
  Operation operation;

  bool operator==(const Instruction&) const = default;
};

/// A parameter's place in the whole parameters of its unit.
struct UnitParameter {
  std::string name;
  std::vector<std::int64_t> shape;
  Initializer initializer;
  std::int64_t at = 0;  // elements from the begin of the unit's whole parameters
  std::int64_t elems = 0;

  bool operator==(const UnitParameter&) const = default;
};

/// A stretch of a unit's whole parameters that is cut into equal parts for the ranks of the shard
/// group: a flat parameter, or with the layout per_parameter one parameter. Slices follow one
/// another without gaps, those that are trained first; the shard of a rank holds its part of each,
/// in the same order.
struct UnitSlice {
  std::int64_t at = 0;     // elements from the begin of the unit's whole parameters
  std::int64_t elems = 0;  // a multiple of the shard group
  std::int64_t valid = 0;  // without the padding at its end
  bool trainable = true;
  bool decays = true;  // has weight decay

  bool operator==(const UnitSlice&) const = default;
};

/// An FSDP unit (a wrapped module) or a DDP bucket: what one collective moves.
struct Unit {
  std::string name;                       // module path; "root"; "bucket.0"
  std::vector<UnitParameter> parameters;  // in the order of their places
  std::vector<UnitSlice> slices;
  std::int64_t elems = 0;         // without the padding at the ends of the slices
  std::int64_t padded_elems = 0;  // whole size: that of all slices
  std::int64_t shard_elems = 0;   // what one rank owns, padded
  BufferId parameter = -1;        // resident: the shard, or the whole when replicated; -1: every
                                  // parameter has a buffer of its own (PyTorch's)

  /// Ranks that share the unit.
  std::int64_t shards() const {
    return shard_elems < 1 || shard_elems > padded_elems ? 1 : padded_elems / shard_elems;
  }
  /// Whole elements that are trained; the first ones.
  std::int64_t trainable_elems() const {
    std::int64_t elements = 0;
    for (const UnitSlice& slice : slices)
      if (slice.trainable) elements = slice.at + slice.elems;
    return elements;
  }

  bool operator==(const Unit&) const = default;
};

/// Ranks [first, last] of the shard group (without sharding: of the world) hold `valid` real
/// elements of each unit's shard; the rest is padding at the ends of slices.
struct RankClass {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::vector<std::int64_t> valid;  // by unit

  bool operator==(const RankClass&) const = default;
};

/// Instructions [first, last) of the plan.
struct Segment {
  std::string name;
  InstructionId first = 0;
  InstructionId last = 0;

  bool operator==(const Segment&) const = default;
};

/// A node of the program tree: runs its segment, or its body in order, `count` times.
struct ProgramItem {
  static constexpr std::int64_t kOncePerStep = -1;  // count: all of job.run.steps that are left
  static constexpr std::int64_t kFirstStep = -2;    // count: once, a step that differs from others
  std::int64_t count = 1;
  int segment = -1;               // index into Plan::segments; -1: the body
  std::vector<ProgramItem> body;  // nested loops: micro-steps inside steps

  bool operator==(const ProgramItem&) const = default;
};

/// Sizes of the device mesh; their product is the world.
struct Mesh {
  std::int64_t replicate = 1;
  std::int64_t shard = 1;
  std::int64_t span = 1;  // neighbours in the shard group that share parameters after forward

  std::int64_t size(Group group) const {
    switch (group) {
      case Group::World: return replicate * shard;
      case Group::Shard: return shard;
      case Group::Replicate: return replicate;
      case Group::Span: return span;
    }
    return 1;
  }

  bool operator==(const Mesh&) const = default;
};

struct ArenaSize {
  Bytes bytes = 0;              // what the packer reached; the run allocates exactly this
  Bytes issue_order_bytes = 0;  // largest sum of live buffers at any instruction, in issue order
  Bytes live_bound_bytes = 0;   // no placement needs less: see planner/passes/live_bound.h

  bool operator==(const ArenaSize&) const = default;
};

/// What one rank does, for all ranks: data that the simulator predicts from and the runtime
/// executes.
struct Plan {
  Job job;
  Profile profile = Profile::CpuOneDnn;
  Mesh mesh;
  std::vector<RankClass> classes;
  std::vector<Buffer> buffers;
  std::vector<Unit> units;
  std::vector<Instruction> instructions;
  std::vector<Segment> segments;
  std::vector<ProgramItem> program;
  std::vector<std::string> scalars;  // columns of values that change from step to step
  ArenaSize arena;
  bool expandable_segments = false;  // of the caching allocator, where there is one
  std::int64_t parameter_count = 0;
  std::optional<Bytes> buffers_bytes;  // non-trainable state of the model
  double model_flops_per_token = 0;    // forward + backward, without recomputation
  std::vector<std::string> remarks;    // what of the model is left out or taken for granted

  std::int64_t world_size() const { return mesh.replicate * mesh.shard; }
  /// How many ranks `classes` tells apart: those of a shard group, whose replicas are alike;
  /// without sharding the world.
  std::int64_t ranks_in_classes() const { return mesh.shard > 1 ? mesh.shard : mesh.replicate; }

  bool operator==(const Plan&) const = default;
};

/// True for plans whose buffers come and go by `alloc` and `free`; the others lie in an arena.
constexpr bool has_allocator(Profile profile) { return is_torch(profile); }

/// Bytes that a view spans.
inline Bytes bytes_of(const Plan& plan, const View& view) {
  return view.elems * size_of(plan.buffers[view.buffer].dtype);
}

/// And all views together.
inline Bytes bytes_of(const Plan& plan, const std::vector<View>& views) {
  Bytes sum = 0;
  for (const View& view : views)
    sum += bytes_of(plan, view);
  return sum;
}

/// Instructions in issue order with every loop run at most `repeats` times.
std::vector<InstructionId> unroll(const Plan& plan, int repeats);

/// Micro-batches that a step of the program reads: how often it reads targets, which every model
/// has.
std::int64_t micro_steps_of(const Plan& plan);

/// Parses a plan. `source` names it in errors. Throws InputError.
Plan plan_from_json(std::string_view text, const std::string& source);
/// The plan as JSON text; equal plans give equal text.
std::string to_json(const Plan& plan);
/// Hexadecimal hash of to_json(plan) without the job's `run` section: which files a run reads and
/// writes, and how many steps it takes, makes no other plan.
std::string hash_of(const Plan& plan);

}  // namespace shardplan
