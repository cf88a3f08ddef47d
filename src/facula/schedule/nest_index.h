// An index of what groups became in another process of this build: which kernels, and what each launch hands to its
// kernel. So the statements of a nest are not written again only to find by their text a kernel that is there already.
#pragma once
#include <string>
#include <vector>

#include "facula/base/sha256.h"

namespace facula::schedule {

struct BuiltLaunch;

// One launch. Numbers as Builder gives them, which follow from the group and the decisions alone.
struct IndexedNest {
  Sha256 kernel;
  std::vector<int> buffers, params;
};

// Who keeps them: codegen/nest_index.cpp. `group`: what it does, as text; `decisions`: about its layout.
struct NestIndex {
  bool (*is_of_use)();  // are any kept, or to be kept?
  std::vector<IndexedNest> (*find)(const std::string& group, const std::string& decisions);
  void (*keep)(const std::string& group, const std::string& decisions,
               const std::vector<BuiltLaunch>& launches);
};
void set_nest_index(const NestIndex* index);  // before the first schedule

}  // namespace facula::schedule
