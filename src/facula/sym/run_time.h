// Sizes that are known only when a call has run: how many elements a mask picks. They are symbols of a range, as sizes of
// inputs are, named u0, u1, ...; but no comparison may rely on the number that they have in an example.
#pragma once
#include "facula/sym/symint.h"

namespace facula::sym {

// A new one, from 0 to `high`, or 0 itself. `name`: empty for the next one.
SymInt run_time_size(Shapes& shapes, int64_t high, std::string name = "");
bool is_run_time(SymInt e);  // made of one
// Is it the name of one? Shapes::fresh makes those.
bool is_run_time_name(std::string_view name);

// a == b, a < b and a <= b for the conditions of a call whose rule is asked again when the sizes are known, and raises then: true
// where the range of such a size leaves the answer open. Of other sizes as the operators.
bool may_equal(SymInt a, SymInt b);
bool may_be_less(SymInt a, SymInt b);
bool may_be_at_most(SymInt a, SymInt b);
// a == b for a choice between ways of computing one thing: only where such a size is equal whatever it will be. Of other sizes
// as the operator.
inline bool must_equal(SymInt a, SymInt b) {
  if (a.is_symbolic() || b.is_symbolic()) [[unlikely]]
    if (is_run_time(a) || is_run_time(b)) return SymInt::surely_equal(a, b);
  return a == b;
}

// An index as Python means it: `i`, or `i + n` if it is negative, also where that is known only later.
SymInt from_the_end(SymInt i, SymInt n);

// Who compares, on this thread, while one lives: the outermost of those that `raises`, for the RuntimeError that tells of a
// comparison with such a size whose answer its range does not force. One that does not raise takes the size for a large
// one, unlike all others, and its user sees to it that this is checked when the size is known.
class Comparing {
 public:
  enum Answer : uint8_t { raises, assumes };
  Comparing(const char* op, Answer answer);
  ~Comparing();
  static bool assumed();  // since the innermost began, was anything, also by those that it had inside?

 private:
  const char* outer_op_;
  Answer outer_answer_;
  bool outer_assumed_;
};

}  // namespace facula::sym
