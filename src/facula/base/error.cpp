#include "facula/base/error.h"

namespace facula {

Error::Error(ErrorKind kind, ErrorType type, std::string op, std::string message, std::string hint)
    : kind_(kind), type_(type), op_(std::move(op)), message_(std::move(message)) {
  text_ = op_.empty() ? message_ : op_ + ": " + message_;
  if (!hint.empty()) text_ += "\n  hint: " + hint;
}

namespace detail {
void Thrower::raise() { throw Error(kind_, type_, std::move(op_), text_.str(), std::move(hint_)); }
}  // namespace detail

}  // namespace facula
