#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "facula/base/hash.h"
#include "facula/graph/key.h"
#include "facula/graph/passes.h"

namespace facula::graph {
namespace {
struct Hash {
  size_t operator()(const Words& key) const {
    uint64_t h = key.size();
    for (auto w : key) h = mix(h, w);
    return h;
  }
};

std::unordered_set<const Value*> memory_of(std::span<Value* const> outputs) {
  std::unordered_set<const Value*> found;
  for (const Value* v : outputs) {
    while (v && v->producer && v->producer->op->is<op::View>()) v = operands(*v->producer)[0];
    found.insert(v);
  }
  return found;
}
}  // namespace

void merge_equal(Graph& g) {
  auto own = memory_of(std::span(g.outputs).first(std::min(g.results, g.outputs.size())));
  std::unordered_map<Words, Node*, Hash> seen;
  std::unordered_map<const Value*, Value*> by;  // values of nodes that are there twice
  auto now = [&](Value* v) {
    auto it = by.find(v);
    return it == by.end() ? v : it->second;
  };
  for (auto& n : g.nodes) {
    if (!by.empty())
      n->args.each_tensor([&](size_t, Tensor& t) {
        if (!t.defined()) return;
        auto *v = value_of(t), *other = now(v);
        if (other != v) t = other->tensor;
      });
    if (!n->op->effects.repeatable()) continue;
    Words key{reinterpret_cast<uint64_t>(n->op)};
    for (auto* v : operands(*n)) key.push_back(v ? uint64_t(v->id) + 1 : 0);
    append_attributes(key, n->args.values());
    auto [it, fresh] = seen.emplace(std::move(key), n.get());
    if (fresh) continue;
    if (std::any_of(n->results.begin(), n->results.end(), [&](auto* r) { return own.count(r) > 0; }))
      continue;
    for (size_t i = 0; i < n->results.size(); ++i) by[n->results[i]] = it->second->results[i];
  }
  if (by.empty()) return remove_dead(g);
  for (auto& o : g.outputs)
    if (o) o = now(o);
  for (auto& [input, v] : g.mutated) v = now(v);
  remove_dead(g);
}

}  // namespace facula::graph
