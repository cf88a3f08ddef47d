// An index of the kernels that another process of this build compiled for groups, with what each launch passes to its
// kernel. With it a process need not build the statements of a nest just to find, by their text, a kernel that exists
// already.
#pragma once
#include <string>
#include <vector>

#include "facula/base/sha256.h"

namespace facula::schedule {

struct BuiltLaunch;

// One launch of the index. `buffers` and `params` are numbered as Builder numbers them, which depends on the group
// and the decisions only.
struct IndexedNest {
  Sha256 kernel;
  std::vector<int> buffers, params;
};

// The functions of the index, which codegen/nest_index.cpp provides. `group` describes what the group computes,
// `decisions` its layout.
struct NestIndex {
  bool (*is_of_use)();  // true if the index has entries or records new ones
  std::vector<IndexedNest> (*find)(const std::string& group, const std::string& decisions);
  void (*keep)(const std::string& group, const std::string& decisions,
               const std::vector<BuiltLaunch>& launches);
};
void set_nest_index(const NestIndex* index);  // has to be called before the first schedule

}  // namespace facula::schedule
