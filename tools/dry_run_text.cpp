#include "tools/dry_run_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/table.h"
#include "tools/time_text.h"

namespace shardplan {

std::string dry_run_text(const std::vector<CollectiveTime>& times) {
  Table table({{"collective", Align::Left},
               {"group", Align::Left},
               {"ranks"},
               {"size"},
               {"time"},
               {"algorithm"},
               {"bus"}});
  for (const CollectiveTime& time : times)
    table.add({time.kind, std::string(to_string(time.group)), std::to_string(time.ranks),
               format_bytes(time.bytes), format_seconds(time.seconds),
               bandwidth_text(time.algorithm_bytes_per_s), bandwidth_text(time.bus_bytes_per_s)});
  return table.text();
}

std::string dry_run_json(const std::vector<CollectiveTime>& times) {
  nlohmann::ordered_json json{{"schema", "shardplan/dry_run/1"},
                              {"collectives", nlohmann::ordered_json::array()}};
  for (const CollectiveTime& time : times)
    json["collectives"].push_back({{"kind", time.kind},
                                   {"group", to_string(time.group)},
                                   {"ranks", time.ranks},
                                   {"bytes", time.bytes},
                                   {"seconds", time.seconds},
                                   {"algorithm_bytes_per_s", time.algorithm_bytes_per_s},
                                   {"bus_bytes_per_s", time.bus_bytes_per_s}});
  return json.dump();
}

}  // namespace shardplan
