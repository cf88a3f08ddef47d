#include "facula/schedule/fusion/virtual.h"

namespace facula::schedule::fusion {

using graph::Node;
using graph::Value;
using loop::Expr;
using loop::Kind;

bool may_be_virtual(State& f, const Node& n, const Body& b) {
  if (b.scatter || n.results.size() != 1 || f.values.is_required(n.results[0]->id)) return false;
  Expr e = b.values[0];
  if (e->has_reduce || contains(e, Kind::random) || contains(e, Kind::position) || contains(e, Kind::check) ||
      contains(e, Kind::divisor))
    return false;
  // A single element would be recomputed for each row that reads it.
  if (n.again && !is_one(product(n.results[0]->tensor.sizes()))) return true;
  std::set<int> loads;
  add_loads(e, loads);
  size_t large = 0;
  for (int id : loads) {
    Value* r = f.values.root(f.values.at(id));
    if (f.in_cluster(r->id)) return false;
    large += f.values.at(id)->tensor.dim() > 0;
  }
  Expr full = f.expanded(e, nullptr);
  if (pointwise_cost(full) > kCheap) return false;
  return f.values.uses(n.results[0]->id) <= 1 || large <= 2;
}

void make_virtual(State& f, const Node& n, const Body& b) {
  Member m{f.expanded(b.values[0], nullptr), {}};
  SymSpan sizes = n.results[0]->tensor.sizes();
  for (size_t d = 0; d < sizes.size(); ++d) m.axes.push_back(is_one(sizes[d]) ? -1 : int(d));
  f.virtual_values[n.results[0]->id] = m;
}

}  // namespace facula::schedule::fusion
