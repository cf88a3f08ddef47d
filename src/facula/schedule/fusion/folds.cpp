#include "facula/schedule/fusion/folds.h"

#include <algorithm>

#include "facula/loop/seen.h"
#include "facula/schedule/analysis.h"

namespace facula::schedule::fusion {

using loop::Expr;
using loop::Kind;

namespace {
constexpr int kAside = 1 << 28;
}

bool contains(Expr e, Kind k) {
  if ((k == Kind::reduce || k == Kind::scan) && !e->has_reduce) return false;
  bool contained = false;
  loop::Seen seen;
  each_node(e, seen, [&](Expr x) { contained |= x->kind == k; });
  return contained;
}

bool is_of_folds(Expr e) {
  if (!e->has_reduce) return false;
  Expr rest = loop::rewrite(e, [](Expr x) {
    return is_fold(x) || x->kind == Kind::part ? loop::constant(Scalar(int64_t(0)), x.dtype()) : Expr();
  });
  bool loads = false;
  loop::Seen seen;
  each_node(rest, seen, [&](Expr x) { loads |= x->kind == Kind::load && !x->args.empty(); });
  return !loads;
}

double pointwise_cost(Expr e) {
  std::vector<Expr> top{loop::rewrite(e, [](Expr x) {
    return is_fold(x) || x->kind == Kind::part ? loop::constant(Scalar(int64_t(0)), x.dtype()) : Expr();
  })};
  return operation_count(top);
}

Expr Canonical::operator()(Expr e) {
  if (!e->has_reduce) return e;
  if (auto it = done_.find(e.get()); it != done_.end()) return it->second;
  Expr r = loop::rewrite(e, [&](Expr x) -> Expr {
    if (!x->has_reduce) return x;
    return is_fold(x) ? fold(x) : Expr();
  });
  done_[e.get()] = r;
  return r;
}

int Canonical::height(Expr e) {
  if (!e->has_reduce) return 0;
  if (auto it = heights_.find(e.get()); it != heights_.end()) return it->second;
  int h = 0;
  for (auto& a : e->args) h = std::max(h, height(a));
  if (is_fold(e)) h += int(e->bound.size());
  return heights_[e.get()] = h;
}

Expr Canonical::fold(Expr e) {
  if (auto it = done_.find(e.get()); it != done_.end()) return it->second;
  int inner = 0;
  for (auto& a : e->args) inner = std::max(inner, height(a));
  // Renames in two steps, through names that occur nowhere inside, so that inner reductions cannot capture the
  // variables.
  std::vector<std::pair<int, Expr>> aside, map;
  auto bound = e->bound;
  for (size_t k = 0; k < bound.size(); ++k) {
    int to = kFirstBound + inner + int(k), between = kAside + to;
    aside.push_back({bound[k].var, loop::index(between)});
    map.push_back({between, loop::index(to)});
    bound[k].var = to;
  }
  std::vector<Expr> args;
  for (auto& a : e->args) args.push_back(loop::substitute((*this)(loop::substitute(a, aside)), map));
  Expr r = e->kind == Kind::scan ? loop::scan(e->monoid, e->slot, bound[0], args)
                                 : loop::reduce(e->monoid, bound, args);
  return done_[e.get()] = r;
}

}  // namespace facula::schedule::fusion
