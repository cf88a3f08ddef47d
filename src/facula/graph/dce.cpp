#include <unordered_set>

#include "facula/graph/passes.h"
#include "facula/op/call.h"
#include "facula/sym/run_time.h"
#include "facula/sym/substitute.h"

namespace facula::graph {

bool may_refuse(const Node& n) {
  const bool by_body = n.op->refusals.empty() && (n.op->is<op::Pointwise>() || n.op->is<op::Loop>());
  if (by_body && !n.op->effects.checks_elements) return false;
  // Such a pointwise operator refuses divisors, of integers alone.
  if (by_body && n.op->is<op::Pointwise>() && !is_integral(n.results.at(0)->tensor.dtype())) return false;
  return n.op->effects.checks || n.op->is<op::Foreign>();
}

void remove_dead(Graph& g) {
  std::vector<bool> live(g.values().size());  // by number
  auto mark = [&](const Value* v) { live[size_t(v->id)] = true; };
  bool run_time = false;  // some sizes are results of calls
  for (int k = 0; g.shapes && k < g.shapes->symbol_count(); ++k)
    run_time |= sym::is_run_time(g.shapes->symbol(k));
  std::unordered_set<size_t> sizes;  // symbols that are read
  auto read = [&](SymInt s) { sym::each_symbol(s, [&](size_t k) { sizes.insert(k); }); };
  for (auto* o : g.outputs)
    if (o) mark(o);
  for (auto& [i, v] : g.mutated) mark(v);
  std::vector<std::unique_ptr<Node>> live_nodes;
  for (auto it = g.nodes.rbegin(); it != g.nodes.rend(); ++it) {
    auto& effects = (*it)->op->effects;  // draws advance a generator, whether or not the numbers are read
    bool used = (*it)->op->schema.mutates() || effects.draws || effects.ordered;
    for (auto* r : (*it)->results) used |= live[size_t(r->id)];
    if (run_time && (*it)->op->is<op::DataDependent>()) {
      SymInt size = (*it)->results[0]->tensor.sizes()[0];
      used |= effects.checks;  // the check may have decided a comparison on which the graph depends
      used |= size.is_symbol() && sizes.count(size_t(size.node()->value)) > 0;
    }
    if (!used) {
      for (auto* r : (*it)->results) r->producer = nullptr;
      continue;
    }
    for (auto& t : (*it)->args.tensors())
      if (auto* v = value_of(t)) mark(v);
    if (run_time) {
      op::Args args = (*it)->args.clone();
      args.each_size([&](SymInt& s) { read(s); });
      for (auto* r : (*it)->results)
        for (auto s : r->tensor.sizes()) read(s);
    }
    live_nodes.push_back(std::move(*it));
  }
  g.nodes.assign(std::make_move_iterator(live_nodes.rbegin()), std::make_move_iterator(live_nodes.rend()));
}

}  // namespace facula::graph
