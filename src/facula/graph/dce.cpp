#include <unordered_set>

#include "facula/graph/passes.h"

namespace facula::graph {

void remove_dead(Graph& g) {
  std::unordered_set<const Value*> live;
  for (auto* o : g.outputs)
    if (o) live.insert(o);
  for (auto& [i, v] : g.mutated) live.insert(v);
  std::vector<std::unique_ptr<Node>> kept;
  for (auto it = g.nodes.rbegin(); it != g.nodes.rend(); ++it) {
    auto& effects = (*it)->op->effects;  // a generator's sequence goes on, whoever reads its numbers
    bool used = (*it)->op->schema.mutates() || effects.draws || effects.ordered;
    for (auto* r : (*it)->results) used |= live.count(r) > 0;
    if (!used) {
      for (auto* r : (*it)->results) r->producer = nullptr;
      continue;
    }
    for (auto* v : operands(**it))
      if (v) live.insert(v);
    kept.push_back(std::move(*it));
  }
  g.nodes.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
}

}  // namespace facula::graph
