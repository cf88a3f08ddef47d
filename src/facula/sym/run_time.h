// Sizes that are only known after a call has run, such as the number of elements that a mask selects. They are
// symbols with a range, like sizes of inputs, named u0, u1, ...; but comparisons must not rely on their value during
// the trace.
#pragma once
#include "facula/sym/symint.h"

namespace facula::sym {

// A new run-time size from 0 to `high`, or the number 0. `name`: empty for the next one.
SymInt run_time_size(Shapes& shapes, int64_t high, std::string name = "");
bool is_run_time(SymInt e);  // it contains a run-time size
// True for names of run-time sizes, which Shapes::fresh creates.
bool is_run_time_name(std::string_view name);

// a == b, a < b and a <= b for conditions of a call whose rule is applied again, and raises then, when the sizes are
// known: true if the range of a run-time size leaves the answer open. For other sizes they equal the operators.
bool may_equal(SymInt a, SymInt b);
bool may_be_less(SymInt a, SymInt b);
bool may_be_at_most(SymInt a, SymInt b);
// a == b for choosing between ways of computing the same thing: true for run-time sizes only if they are always
// equal. For other sizes it equals the operator.
inline bool must_equal(SymInt a, SymInt b) {
  if (a.is_symbolic() || b.is_symbolic()) [[unlikely]]
    if (is_run_time(a) || is_run_time(b)) return SymInt::surely_equal(a, b);
  return a == b;
}

// Python's meaning of an index: `i`, or `i + n` if it is negative, also if the sign is only known later.
SymInt from_the_end(SymInt i, SymInt n);

// Names the operator that compares sizes on this thread, for the RuntimeError about a comparison with a run-time size
// that its range does not decide; the outermost Comparing with `raises` counts. One with `assumes` takes the size for
// a large one, different from all others; its user must check the result when the size is known.
class Comparing {
 public:
  enum Answer : uint8_t { raises, assumes };
  Comparing(const char* op, Answer answer);
  ~Comparing();
  static bool assumed();  // something was assumed since the innermost Comparing began, including nested ones

 private:
  const char* outer_op_;
  Answer outer_answer_;
  bool outer_assumed_;
};

}  // namespace facula::sym
