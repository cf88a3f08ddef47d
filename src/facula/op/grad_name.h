// The name of a node on the tape where it is the same for all calls, as Definer::grad_name(stem) keeps it.
#pragma once
#include <string>

namespace facula::op {

class Call;
struct FixedGradName {
  std::string text;
  std::string operator()(const Call&) const { return text; }
};

}  // namespace facula::op
