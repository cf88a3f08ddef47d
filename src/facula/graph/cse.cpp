#include <map>

#include "facula/graph/key.h"
#include "facula/graph/passes.h"

namespace facula::graph {

void merge_equal(Graph& g) {
  std::map<std::vector<uint64_t>, Node*> seen;
  for (auto& n : g.nodes) {
    if (n->op->random || n->op->schema.mutates()) continue;
    Words key{reinterpret_cast<uint64_t>(n->op)};
    for (auto* v : operands(*n)) key.push_back(v ? uint64_t(v->id) + 1 : 0);
    append_attributes(key, n->args.values());
    auto [it, fresh] = seen.emplace(std::vector<uint64_t>(key.begin(), key.end()), n.get());
    if (fresh) continue;
    for (size_t i = 0; i < n->results.size(); ++i) g.replace(n->results[i], it->second->results[i]);
  }
  remove_dead(g);
}

}  // namespace facula::graph
