#include "plans/field_places.h"

#include "plans/document.h"

namespace shardplan {
namespace {

void add_places(const Node& node, const std::string& path,
                std::map<std::string, std::string>& places) {
  if (!path.empty()) places[path] = node.where;
  for (const Entry& entry : node.entries)
    add_places(entry.value, path.empty() ? entry.key : path + "." + entry.key, places);
}

}  // namespace

FieldPlaces::FieldPlaces(const Node& document) {
  std::map<std::string, std::string> places;
  add_places(document, "", places);
  places_ = std::make_shared<const std::map<std::string, std::string>>(std::move(places));
}

std::string FieldPlaces::of(const std::string& field) const {
  if (!places_) return "";
  const auto found = places_->find(field);
  return found == places_->end() ? "" : found->second;
}

}  // namespace shardplan
