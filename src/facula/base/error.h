// The exception type of Facula, and the checks that raise it.
//   user_check(cond, "matmul") << "..." << hint("...")   invalid input: names the operator as the user wrote it
//   internal_check(cond)                                 an invariant of ours that does not hold
// Python raises `Error::type`; the text is "<operator>: <message>\n  hint: <hint>".
#pragma once
#include <cstdint>
#include <exception>
#include <sstream>
#include <string>
#include <string_view>

namespace facula {

enum class ErrorKind : uint8_t { user, runtime, internal };
enum class ErrorType : uint8_t {
  RuntimeError,
  IndexError,
  TypeError,
  ValueError,
  NotImplementedError,
  AssertionError,
  LinAlgError,
  KeyboardInterrupt
};

class Error : public std::exception {
 public:
  Error(ErrorKind kind, ErrorType type, std::string op, std::string message, std::string hint = "");
  const char* what() const noexcept override { return text_.c_str(); }
  ErrorKind kind() const { return kind_; }
  ErrorType type() const { return type_; }
  const std::string& op() const { return op_; }
  const std::string& message() const { return message_; }
  Error from(std::string op) const;  // the same error, reported for the operator that the user called

 private:
  ErrorKind kind_;
  ErrorType type_;
  std::string op_, message_, text_;
};

// A remedy, printed on a separate line after the message.
struct Hint {
  std::string text;
};
template <class... Parts>
Hint hint(const Parts&... parts) {
  std::ostringstream s;
  (s << ... << parts);
  return {s.str()};
}

namespace detail {
// Collects the message of a failed check and throws when the full expression ends.
class Thrower {
 public:
  Thrower(ErrorKind kind, ErrorType type, std::string_view op) : kind_(kind), type_(type), op_(op) {}
  [[noreturn]] void raise();
  template <class T>
  Thrower& operator<<(const T& part) {
    text_ << part;
    return *this;
  }
  Thrower& operator<<(const Hint& h) {
    hint_ = h.text;
    return *this;
  }

 private:
  ErrorKind kind_;
  ErrorType type_;
  std::string op_, hint_;
  std::ostringstream text_;
};
struct Raise {
  [[noreturn]] void operator&&(Thrower& t) const { t.raise(); }
  [[noreturn]] void operator&&(Thrower&& t) const { t.raise(); }
};
}  // namespace detail

#define FACULA_CHECK_AS(cond, kind, type, op) \
  if (__builtin_expect(!!(cond), 1)) {        \
  } else                                      \
    ::facula::detail::Raise() && ::facula::detail::Thrower(::facula::ErrorKind::kind, ::facula::ErrorType::type, op)

// A check whose error type is known at run time only.
#define check_as(cond, type, op)      \
  if (__builtin_expect(!!(cond), 1)) { \
  } else                               \
    ::facula::detail::Raise() && ::facula::detail::Thrower(::facula::ErrorKind::runtime, type, op)

#define user_check(cond, op) FACULA_CHECK_AS(cond, user, RuntimeError, op)
#define index_check(cond, op) FACULA_CHECK_AS(cond, user, IndexError, op)
#define type_check(cond, op) FACULA_CHECK_AS(cond, user, TypeError, op)
#define value_check(cond, op) FACULA_CHECK_AS(cond, user, ValueError, op)
#define supported_check(cond, op) FACULA_CHECK_AS(cond, user, NotImplementedError, op)
#define built_check(cond, op) FACULA_CHECK_AS(cond, user, AssertionError, op)  // the build does not include it
#define runtime_check(cond, op) FACULA_CHECK_AS(cond, runtime, RuntimeError, op)
#define linalg_check(cond, op) FACULA_CHECK_AS(cond, runtime, LinAlgError, op)  // also a RuntimeError
#define internal_check(cond) \
  FACULA_CHECK_AS(cond, internal, RuntimeError, "internal") << __FILE__ << ":" << __LINE__ << ": " #cond " "

}  // namespace facula
