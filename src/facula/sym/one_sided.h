// Comparisons of sizes for questions to which "no" is a correct answer for every size, such as whether a copy can be
// avoided. A trace then relies on sizes only if the answer is yes, and a program that was traced for several rows also
// accepts one row.
#pragma once
#include <optional>
#include <vector>

#include "facula/sym/symint.h"

namespace facula::sym {

// a == b for all values of the symbols; records no guard.
inline bool same(SymInt a, SymInt b) {
  return a.is_symbolic() || b.is_symbolic() ? SymInt::surely_equal(a, b) : a == b;
}

// The size of a dimension in which one operand has the size a and the other b, which have to be equal unless one is 1; none
// if they do not fit. No guard excludes a size of 1 where equality is enough.
std::optional<SymInt> broadcast_size(SymInt a, SymInt b);

// While it lives, collects the inequalities on which the "no" answers of its thread relied. A caller for whom the answers
// differ after all, as a copy does that is written, records them as guards. Scopes nest; the innermost one collects.
class Refused {
 public:
  Refused();
  ~Refused();
  const std::vector<Guard>& guards() const { return guards_; }
  static Refused* current();  // of the thread; null: none

 private:
  friend class OneSided;
  std::vector<Guard> guards_;
  Refused* outer_;
};

class OneSided {
 public:
  // a == b under the hints. For run-time sizes it equals the operator.
  bool equal(SymInt a, SymInt b) {
    return a.is_symbolic() || b.is_symbolic() ? equal_under_hints(a, b) : a == b;
  }
  // Records the equalities on which "yes" relies as guards of the trace, or tells Refused on what "no" relies.
  bool answer(bool yes) const;

 private:
  bool equal_under_hints(SymInt a, SymInt b);
  std::vector<Guard> equal_, unequal_;
};

}  // namespace facula::sym
