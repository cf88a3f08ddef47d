// Break: the error of a call that a trace cannot record. It has the text and the type of other errors, and says in data
// why, so that a compiler can run the call outside of the trace and go on.
#pragma once
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "facula/base/error.h"

namespace facula::graph {

#define FACULA_BREAK_REASONS(_)                                                          \
  _(reads_elements)   /* the host reads elements, which are not computed yet */          \
  _(unknown_size)     /* a size that a call determines while running decides something */  \
  _(memory)           /* a write or a view whose memory the trace does not know */       \
  _(alias)            /* one memory is read as two tensors, and written */               \
  _(layout)           /* a tensor from outside changes its sizes, strides or memory */   \
  _(gradients)        /* a backward pass, or .grad, in a way that cannot be recorded */  \
  _(hooks)            /* hooks that would have to run while the program runs */          \
  _(custom_function)  /* an autograd.Function that cannot be recorded */                 \
  _(outside_history)  /* gradients that flow out of the trace */                         \
  _(dead_handle)      /* a handle of a trace that has ended */                           \
  _(mode)             /* a mode or an option that differs, or that is not supported */   \
  _(python)           /* an effect on Python objects that a program would not repeat */

enum class BreakReason : uint8_t {
#define FACULA_BREAK_REASON(name) name,
  FACULA_BREAK_REASONS(FACULA_BREAK_REASON)
#undef FACULA_BREAK_REASON
};
const char* name(BreakReason r);

// A line of the user's program. The texts are interned: they live as long as the process.
struct SourceLine {
  const char* file = "";
  int line = 0;                  // 0: unknown
  const char* module_path = "";  // of the module whose forward was running: "blocks.0.attention"
  explicit operator bool() const { return line > 0; }
};
std::string to_string(const SourceLine& at);  // "model.py:12 blocks.0.attention"
const char* interned(std::string_view text);

struct BreakInfo {
  BreakReason reason;
  std::string message, fix;
  SourceLine at;
};

class Break : public Error {
 public:
  Break(BreakReason reason, ErrorKind kind, ErrorType type, std::string op, std::string message,
        std::string fix);
  const BreakInfo& info() const { return info_; }
  // The description of a caught error that is a break, or a renamed copy of one (Error::from); null for others. Valid
  // until the next break of the thread.
  static const BreakInfo* find(const Error& e);

  // Finds the line that is running for the breaks of this thread; set by the binding.
  static SourceLine (*find_line)();
  // The line that the owner of an open trace has set; it takes precedence.
  static thread_local SourceLine line;
  static SourceLine current_line() { return line ? line : find_line ? find_line() : SourceLine(); }

 private:
  BreakInfo info_;
};

namespace detail {
// Collects the message of a failed check and throws when the full expression ends.
class BreakThrower {
 public:
  BreakThrower(BreakReason reason, ErrorKind kind, ErrorType type, std::string_view op)
      : reason_(reason), kind_(kind), type_(type), op_(op) {}
  template <class T>
  BreakThrower& operator<<(const T& part) {
    text_ << part;
    return *this;
  }
  BreakThrower& operator<<(const Hint& h) {
    fix_ = h.text;
    return *this;
  }
  [[noreturn]] void raise();

 private:
  BreakReason reason_;
  ErrorKind kind_;
  ErrorType type_;
  std::string op_, fix_;
  std::ostringstream text_;
};
struct RaiseBreak {
  [[noreturn]] void operator&&(BreakThrower& t) const { t.raise(); }
  [[noreturn]] void operator&&(BreakThrower&& t) const { t.raise(); }
};
}  // namespace detail

#define FACULA_BREAK_CHECK(cond, reason, kind, type, op) \
  if (__builtin_expect(!!(cond), 1)) {                   \
  } else                                                 \
    ::facula::graph::detail::RaiseBreak() &&             \
        ::facula::graph::detail::BreakThrower(::facula::graph::BreakReason::reason, ::facula::ErrorKind::kind, \
                                              ::facula::ErrorType::type, op)
// NotImplementedError and RuntimeError, as supported_check and runtime_check.
#define trace_check(cond, reason, op) FACULA_BREAK_CHECK(cond, reason, user, NotImplementedError, op)
#define trace_runtime_check(cond, reason, op) FACULA_BREAK_CHECK(cond, reason, runtime, RuntimeError, op)

}  // namespace facula::graph
