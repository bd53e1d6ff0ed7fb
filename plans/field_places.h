#pragma once

#include <map>
#include <memory>
#include <string>

#include "plans/error.h"

namespace shardplan {

struct Node;

/// Wrong input in a field of a job, found where it is not known where the field stands.
class FieldError : public InputError {
 public:
  /// `field`: "training.sequence_length". The message is "field: what".
  FieldError(const std::string& field, const std::string& what)
      : InputError(field + ": " + what), field_(field) {}
  const std::string& field() const { return field_; }

 private:
  std::string field_;
};

/// Where the fields of a job stand: "training.sequence_length" at "job.yaml:7:20", or at
/// "--seq 4096"; a field that has its default stands nowhere. This is no part of what a job says:
/// all places are equal.
class FieldPlaces {
 public:
  FieldPlaces() = default;
  explicit FieldPlaces(const Node& document);

  /// Empty when the field stands nowhere.
  std::string of(const std::string& field) const;
  /// Whether a user wrote the field: not in a job that states all, with every default resolved.
  bool stated(const std::string& field) const { return !resolved_ && !of(field).empty(); }
  /// Says that this is such a job.
  void set_resolved() { resolved_ = true; }

  bool operator==(const FieldPlaces&) const { return true; }

 private:
  std::shared_ptr<const std::map<std::string, std::string>> places_;  // jobs are copied often
  bool resolved_ = false;
};

/// Runs `make`, and adds the place of the field to the FieldError that it throws.
template <typename Make>
auto located(const FieldPlaces& places, Make make) {
  try {
    return make();
  } catch (const FieldError& error) {
    const std::string place = places.of(error.field());
    throw InputError(place.empty() ? error.what() : place + ": " + error.what());
  }
}

}  // namespace shardplan
