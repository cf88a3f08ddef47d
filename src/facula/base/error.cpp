#include "facula/base/error.h"

#include "facula/base/small_vector.h"

namespace facula {

Error::Error(ErrorKind kind, ErrorType type, std::string op, std::string message, std::string hint)
    : kind_(kind), type_(type), op_(std::move(op)), message_(std::move(message)) {
  text_ = op_.empty() ? message_ : op_ + ": " + message_;
  if (!hint.empty()) text_ += "\n  hint: " + hint;
}

Error Error::from(std::string op) const {
  Error e = *this;
  e.text_ = op + text_.substr(op_.size());
  e.op_ = std::move(op);
  return e;
}

void no_such_element(size_t at, size_t size) {
  index_check(false, "size") << "there is no dimension " << int64_t(at) << " of " << size;
  __builtin_unreachable();
}

namespace detail {
void Thrower::raise() { throw Error(kind_, type_, std::move(op_), text_.str(), std::move(hint_)); }
}  // namespace detail

}  // namespace facula
