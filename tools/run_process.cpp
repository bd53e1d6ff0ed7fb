#include "tools/run_process.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plans/error.h"
#include "runtime/comm/messages.h"
#include "tools/commands.h"

namespace shardplan {
namespace {

/// Throws `error` with what this process has to tell, if anything.
template <typename Error>
int fail_once(ProcessWorld& world, const Error& error, int status) {
  world.give_up(error.what());
  if (const auto text = world.report(error.what())) throw Error(*text);
  return status;
}

}  // namespace

int run_process(const ProcessPlace& place, Socket listener, Seconds timeout_s,
                const std::function<int(ProcessWorld&)>& part) {
  ProcessWorld world(place, std::move(listener), timeout_s);
  try {
    return part(world);
  } catch (const InputError& error) {
    return fail_once(world, error, kWrongInput);
  } catch (const SystemError& error) {
    return fail_once(world, error, kMachineFailed);
  }
}

std::unique_ptr<Communicator> communicator_of_all(ProcessWorld& world, const Plan& plan) {
  const ProcessPlace& place = world.place();
  if (place.size != plan.world_size())
    throw InputError(fmt::format(
        "{} has started {} processes, but the plan has {} ranks; start as many, or give --ranks {}",
        place.launcher, place.size, plan.world_size(), place.size));
  return world.communicator({.replicate = place.size, .shard = 1}, {});
}

void expect_same_everywhere(Communicator& all, const Plan& plan) {
  const std::string own = fmt::format("shardplan {}, profile {}, plan {}", SHARDPLAN_VERSION,
                                      to_string(plan.profile), hash_of(plan));
  const std::vector<std::string> texts = gather_texts(all, own);
  for (std::size_t rank = 1; rank < texts.size(); ++rank)
    if (texts[rank] != texts[0])
      throw SystemError(fmt::format("ranks do not run the same: rank 0 has {}, rank {} has {}",
                                    texts[0], rank, texts[rank]));
  const std::string own_plan = to_json(plan);
  if (broadcast_text(all, own_plan) != own_plan)  // the hash leaves out what only the run reads
    throw SystemError(fmt::format(
        "ranks do not run the same: the run section of rank {} is not that of rank 0", all.rank()));
}

}  // namespace shardplan
