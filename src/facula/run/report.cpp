#include "facula/run/report.h"

#include <map>
#include <set>

#include "facula/op/call.h"
#include "facula/run/plan.h"
#include "facula/run/program.h"

namespace facula::run {

using graph::Value;

namespace {

// The operators that compute `to` from `from`, in order.
std::string calls_between(const graph::Graph& g, const std::vector<int>& from, const std::vector<int>& to) {
  std::set<int> seen(from.begin(), from.end());
  std::map<int, const char*> names;
  std::vector<int> todo = to;
  while (!todo.empty()) {
    int id = todo.back();
    todo.pop_back();
    if (id < 0 || !seen.insert(id).second) continue;
    auto* v = g.values()[size_t(id)].get();
    if (!v->producer) continue;
    names[v->producer->id] = v->producer->op->name();
    for (auto* read : graph::operands(*v->producer)) todo.push_back(read ? read->id : -1);
  }
  std::string text;
  for (auto& [id, name] : names) text += (text.empty() ? "" : "+") + std::string(name);
  return text;
}

std::string listed(const std::vector<int>& values) {
  std::string text;
  for (int v : values)
    if (v >= 0) text += (text.empty() ? "%" : ", %") + std::to_string(v);
  return text;
}

// An input with the sizes and strides of the trace.
Tensor example(const Tensor& t) {
  Dims sizes(t.sizes()), strides(t.strides());
  for (auto* all : {&sizes, &strides})
    for (auto& s : *all) s = s.hint();
  Tensor input(make_ref<TensorImpl>(Storage(), sizes, strides, SymInt(), t.dtype(), t.device()));
  input.impl()->wrapped_number = t.impl()->wrapped_number;
  return input;
}

}  // namespace

std::string StepReport::text() const {
  return std::string(kind) + " " + calls + ": " + listed(reads) + " -> " + listed(writes);
}

Report report(graph::Graph traced, const std::string& name) {
  Program program(std::move(traced), name);
  auto& g = program.graph();
  std::vector<Tensor> examples;
  for (auto* v : g.inputs) examples.push_back(example(v->tensor));
  std::vector<op::Value> inputs(examples.begin(), examples.end());
  auto plan = program.plan(inputs, {});

  Report all{{}, plan->arena, plan->peak};
  std::vector<size_t> held(g.values().size());  // by value: bytes that it allocates
  size_t alive = 0;
  for (auto& e : plan->outline->execs) {
    using Kind = schedule::Step::Kind;
    auto& s = all.steps.emplace_back();
    s.kind = e.kind == Kind::kernel ? "kernel" : e.kind == Kind::view ? "view" : "library";
    s.reads = e.inputs;
    s.writes = e.outputs;
    s.calls = e.node ? e.node->op->schema.full_name() : calls_between(g, e.inputs, e.outputs);
    for (int v : e.outputs) {
      if (e.kind == Kind::view || plan->outline->written_to[size_t(v)] >= 0) continue;
      if (int u = plan->outline->takes_over[size_t(v)]; u >= 0) {
        held[size_t(v)] = std::exchange(held[size_t(u)], 0);
        continue;
      }
      held[size_t(v)] = plan->form(v).bytes;
      s.allocates += held[size_t(v)];
    }
    alive += s.allocates;
    s.alive = alive;
    if (e.kind == Kind::kernel)
      for (size_t bytes : plan->kernels_of(e).temporaries) s.alive += bytes;
    for (int v : e.dead) alive -= std::exchange(held[size_t(v)], 0);
  }
  return all;
}

}  // namespace facula::run
