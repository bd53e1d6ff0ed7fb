#pragma once

#include <string>
#include <string_view>

#include "planner/import/imported.h"
#include "plans/document.h"

namespace shardplan::importing {

/// "bf16": the word that accelerate and DeepSpeed have for a dtype.
std::string_view short_name(Dtype dtype);

/// The text in lower, and in upper case.
std::string lower(std::string_view text);
std::string upper(std::string_view text);

/// A job of the defaults on the catalogue's default GPU, without a model.
Job empty_job(const ImportOptions& options);

/// Sets the world of the job and the facts about it. Throws InputError when it does not divide.
void set_world(Imported& imported, int ranks, int nodes);

/// Facts about the mesh: ranks that share one copy of the state, and how many copies there are.
void set_shard_group(Imported& imported, int ranks);

/// Bytes of training state per parameter with AdamW, activations and unsharded copies apart.
/// Replicated bytes are on every rank whole, the others are divided by the shard group.
struct StateBytes {
  std::int64_t replicated = 0;
  std::int64_t sharded = 0;
  std::int64_t host = 0;  // sharded too, in host memory
};
void set_state_bytes(Imported& imported, StateBytes bytes);

void warn(Imported& imported, const std::string& where, const std::string& key, std::string text);
void leave_open(Imported& imported, const std::string& where, const std::string& key,
                std::string decided_by);

/// Warns of every key of the section that nobody asked for: `reader` ("accelerate 1.15.0") leaves
/// it alone. `path` precedes the keys. Known keys are named when one is near.
void warn_unread(Imported& imported, const Fields& fields, std::string_view reader);

/// What a DeepSpeed config means to `imported`, whose world is known; the rest of import_deepspeed.
void read_deepspeed(const Node& document, const ImportOptions& options, Imported& imported);

}  // namespace shardplan::importing
