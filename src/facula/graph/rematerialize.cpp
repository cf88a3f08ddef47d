// A training step is one program whose backward pass reads what the forward pass computes. Reading costs bytes;
// values that are not in memory anyway (inputs, results of libraries and reductions, operands of libraries) also cost
// the write. A minimum cut between the first phase and later ones chooses the values to retain; pointwise consumers
// of retained values are recomputed inside of their readers.
#include <algorithm>
#include <vector>

#include "facula/graph/cut.h"
#include "facula/graph/passes.h"
#include "facula/op/operator.h"

namespace facula::graph {

namespace {

// The cost of recomputing a byte, in bytes that are moved.
constexpr double kAgain = 0.25;

bool in_memory(const Node& reader) { return reader.op->backed() || reader.op->calls(); }

class Rematerialize {
 public:
  explicit Rematerialize(Graph& g)
      : g_(g), later_(g.values().size()), retained_(later_.size(), true), copies_(later_.size()) {}

  void run() {
    find_later();
    cut();
    std::vector<std::unique_ptr<Node>> nodes;
    nodes.swap(g_.nodes);
    for (auto& n : nodes) {
      if (is_later(*n))
        n->args.each_tensor([&](size_t, Tensor& t) {
          if (t.defined()) t = again(value_of(t))->tensor;
        });
      n->id = int(g_.nodes.size());
      g_.nodes.push_back(std::move(n));
    }
    remove_dead(g_);
    for (size_t k = 0; k < g_.nodes.size(); ++k) g_.nodes[k]->id = int(k);
  }

 private:
  size_t id(const Value* v) const { return size_t(v->id); }
  bool is_later(const Node& n) const { return !n.results.empty() && later_[id(n.results[0])]; }

  void find_later() {
    for (auto& n : g_.nodes) {
      bool later = false, any = false;
      each_operand(*n, [&](Value* v) {
        any = true;
        later |= later_[id(v)];
      });
      // Pointwise values that a backward pass computes from values of the first phase count as values of the first
      // phase.
      if (n->place.phase > 0) later |= !recomputable(*n) || !any;
      for (auto* r : n->results) later_[id(r)] = later;
    }
  }

  void cut() {
    size_t count = later_.size();
    std::vector<bool> wanted(count), resident(count), fixed(count);
    // An operand of a library has to be in memory, and so has the base of a view.
    auto keep = [&](Value* v, std::vector<bool>& flags) {
      while (v) {
        flags[id(v)] = true;
        v = v->producer && v->producer->op->is<op::View>() ? operands(*v->producer)[0] : nullptr;
      }
    };
    // The number of library calls that precede a value in a chain. A value that is read after a further library call
    // was stored.
    std::vector<int> stage(count);
    for (auto& n : g_.nodes) {
      int here = 0;
      each_operand(*n, [&](Value* v) { here = std::max(here, stage[id(v)]); });
      each_operand(*n, [&](Value* v) {
        if (in_memory(*n)) keep(v, is_later(*n) ? fixed : resident);
        if (later_[id(v)]) return;
        if (is_later(*n)) wanted[id(v)] = true;
        else if (here > stage[id(v)]) keep(v, resident);
      });
      for (auto* r : n->results) stage[id(r)] = here + in_memory(*n);
    }
    for (auto* v : g_.outputs) keep(v, resident);
    for (auto& [i, v] : g_.mutated) keep(v, resident);

    int source = int(2 * count), sink = source + 1;
    Flow flow(sink + 1);
    for (auto& value : g_.values()) {
      auto* v = value.get();
      if (later_[id(v)] || v->constant.defined()) continue;
      // Separate calls recompute a checkpoint, so any operator can read the results.
      bool asked = v->producer && v->producer->place.checkpoint;
      bool again = v->producer && recomputable(*v->producer) && (asked || !fixed[id(v)]);
      bool there = !v->producer || !recomputable(*v->producer) || resident[id(v)];
      bool view = v->producer && v->producer->op->is<op::View>();
      flow.edge(2 * v->id, 2 * v->id + 1, bytes(*v) * (there ? 1 : 2));
      flow.edge(source, 2 * v->id, again ? (view || asked ? 0 : kAgain * bytes(*v)) : kUncut);
      if (wanted[id(v)]) flow.edge(2 * v->id + 1, sink, kUncut);
    }
    for (auto& n : g_.nodes) {
      if (is_later(*n) || !recomputable(*n)) continue;
      each_operand(*n, [&](Value* v) {
        for (size_t k = 0; k < n->results.size() && !v->constant.defined(); ++k)
          flow.edge(2 * v->id + 1, 2 * n->results[k]->id, kUncut);
      });
    }
    auto near = flow.cut(source, sink);
    for (auto& v : g_.values())
      if (!later_[id(v.get())] && v->producer && recomputable(*v->producer))
        retained_[id(v.get())] = near[2 * id(v.get())];
  }

  // The copy of v that a later phase reads instead of v, which is created if necessary.
  Value* again(Value* v) {
    if (v->constant.defined() || size_t(v->id) >= retained_.size() || retained_[id(v)]) return v;
    if (copies_[id(v)]) return copies_[id(v)];
    auto& n = *v->producer;
    op::Args args = n.args.clone();
    args.each_tensor([&](size_t, Tensor& t) {
      if (t.defined()) t = again(value_of(t))->tensor;
    });
    std::vector<Value*> results;
    for (auto* r : n.results) {
      results.push_back(g_.add_value_like(*r));
      copies_[id(r)] = results.back();
    }
    auto* copy = g_.add_node(*n.op, args.values(), results);
    copy->again = !n.place.checkpoint;
    copy->place.phase = 1;
    return copies_[id(v)];
  }

  Graph& g_;
  std::vector<bool> later_;  // by value: computed in a later phase
  std::vector<bool> retained_;
  std::vector<Value*> copies_;  // by value
};

}  // namespace

void rematerialize(Graph& g) {
  bool phases = std::any_of(g.nodes.begin(), g.nodes.end(), [](auto& n) { return n->place.phase > 0; });
  if (phases) Rematerialize(g).run();
}

}  // namespace facula::graph
