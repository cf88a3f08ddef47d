#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "facula/graph/passes.h"
#include "facula/op/key.h"

namespace facula::graph {
namespace {
std::unordered_set<const Value*> memory_of(std::span<Value* const> outputs) {
  std::unordered_set<const Value*> memory;
  for (const Value* v : outputs) {
    while (v && v->producer && v->producer->op->is<op::View>()) v = operands(*v->producer)[0];
    memory.insert(v);
  }
  return memory;
}
}  // namespace

void merge_equal(Graph& g) {
  auto own = memory_of(std::span(g.outputs).first(std::min(g.results, g.outputs.size())));
  std::unordered_map<op::Words, Node*, op::WordsHash> seen;
  std::vector<Value*> by(
      g.values().size());  // by number, for values of repeated nodes: the value of the first one
  bool any = false;
  auto now = [&](Value* v) { return by[size_t(v->id)] ? by[size_t(v->id)] : v; };
  for (auto& n : g.nodes) {
    if (any)
      n->args.each_tensor([&](size_t, Tensor& t) {
        if (!t.defined()) return;
        auto *v = value_of(t), *other = now(v);
        if (other != v) t = other->tensor;
      });
    if (!n->op->effects.repeatable()) continue;
    op::Words key{reinterpret_cast<uint64_t>(n->op)};
    for (auto& t : n->args.tensors()) key.push_back(t.defined() ? uint64_t(value_of(t)->id) + 1 : 0);
    op::append_attributes(key, n->args.values());
    auto [it, fresh] = seen.emplace(std::move(key), n.get());
    if (fresh) continue;
    auto& first = it->second->results;
    auto differs = [&](const Value* r) {
      bool rounds_otherwise = is_16_bit_float(r->tensor.dtype()) && r->held != first[size_t(r->result)]->held;
      return own.count(r) > 0 || rounds_otherwise;
    };
    if (std::any_of(n->results.begin(), n->results.end(), differs)) continue;
    for (size_t i = 0; i < n->results.size(); ++i) by[size_t(n->results[i]->id)] = first[i];
    any |= !n->results.empty();
  }
  if (!any) return remove_dead(g);
  for (auto& o : g.outputs)
    if (o) o = now(o);
  for (auto& [input, v] : g.mutated) v = now(v);
  remove_dead(g);
}

}  // namespace facula::graph
