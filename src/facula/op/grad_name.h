// The name of a tape node that is the same for all calls, in the form in which Definer::grad_name(stem) stores it.
#pragma once
#include <string>

namespace facula::op {

class Call;
struct FixedGradName {
  std::string text;
  std::string operator()(const Call&) const { return text; }
};

}  // namespace facula::op
