// Checks of calls that PyTorch answers with a warning.
#pragma once
#include <functional>
#include <string>

#include "facula/base/warning.h"
#include "facula/op/helpers.h"

namespace facula::catalog {

// A `check` that warns, once in a process: of what is deprecated or may change.
inline std::function<void(const op::Call&)> warns_once(std::string text) {
  return [text = std::move(text)](const op::Call&) { warn_once(text); };
}

// The text of a function that another has taken the place of.
inline std::string deprecated(const std::string& name, const std::string& instead, const std::string& more) {
  return "torch." + name + " is deprecated in favor of torch." + instead +
         " and will be removed in a future PyTorch release.\n" + more;
}

}  // namespace facula::catalog
