#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "planner/families/module_builder.h"
#include "planner/families/part.h"

namespace shardplan {

/// The operators that the modules of a tree run, found by the part that they belong to.
class Parts {
 public:
  struct Found {
    PartRole part;  // Module outside of every part
    PartRole role;
    std::string path;
    std::optional<Operator> op;
  };

  void add(Found found) { found_.push_back(std::move(found)); }
  bool has(PartRole part, PartRole role) const { return find(part, role) != nullptr; }
  const Operator& op(PartRole part, PartRole role) const;
  /// Path of the module; of the tree's root when no module has that role.
  const std::string& path(PartRole part, PartRole role) const;

  std::string root;

 private:
  const Found* find(PartRole part, PartRole role) const;

  std::vector<Found> found_;
};

/// Makes the operator of a module at `path`; nothing for roles that run none.
template <typename Make>
void grow(Parts& parts, const std::vector<Part>& tree, const std::string& parent, PartRole part,
          Make& make) {
  for (const Part& child : tree) {
    const std::string path = parent.empty() ? child.name : parent + "." + child.name;
    const bool opens = child.role > PartRole::Module && child.role < PartRole::Query;
    const PartRole inside = opens ? child.role : part;
    parts.add({inside, child.role, path, make(child, path, inside)});
    grow(parts, child.children, path, inside, make);
  }
}

}  // namespace shardplan
