#include "facula/sym/one_sided.h"

#include <utility>

#include "facula/sym/run_time.h"

namespace facula::sym {

std::optional<SymInt> broadcast_size(SymInt a, SymInt b) {
  constexpr int64_t kOne = 1;
  if (same(a, b) || same(b, kOne)) return a;
  if (same(a, kOne)) return b;
  bool later = is_run_time(a) || is_run_time(b);
  if (!later && a.hint() == b.hint() && a == b) return a;
  if (b == SymInt(kOne)) return a;
  if (a == SymInt(kOne)) return b;
  return a == b ? std::optional(a) : std::nullopt;
}

static thread_local Refused* collecting = nullptr;
Refused::Refused() : outer_(std::exchange(collecting, this)) {}
Refused::~Refused() { collecting = outer_; }
Refused* Refused::current() { return collecting; }

bool OneSided::equal_under_hints(SymInt a, SymInt b) {
  if (SymInt::surely_equal(a, b)) return true;
  if (is_run_time(a) || is_run_time(b)) return a == b;
  if (a.hint() == b.hint()) {
    equal_.push_back({Guard::Relation::eq, a, b});
    return true;
  }
  SymInt difference = a - b;
  bool possible = difference.is_symbolic() && difference.node()->low <= 0 && difference.node()->high >= 0;
  if (possible) unequal_.push_back({Guard::Relation::ne, a, b});
  return false;
}

bool OneSided::answer(bool yes) const {
  if (!yes) {
    if (collecting) collecting->guards_.insert(collecting->guards_.end(), unequal_.begin(), unequal_.end());
  } else if (auto* shapes = Shapes::current()) {
    for (auto& g : equal_) shapes->guard(g);
  }
  return yes;
}

}  // namespace facula::sym
