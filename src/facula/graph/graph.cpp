#include "facula/graph/graph.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "facula/base/thread_state.h"
#include "facula/op/call.h"
#include "facula/sym/run_time.h"
#include "facula/sym/substitute.h"

namespace facula::graph {

namespace {
Tensor fake(SymSpan sizes, SymSpan strides, DType dtype, Device device) {
  return Tensor(make_ref<TensorImpl>(Storage(), Dims(sizes), Dims(strides), SymInt(), dtype, device));
}
}  // namespace

static void set_place(Place p) {
  thread_state.phase = p.phase;
  thread_state.checkpoint = p.checkpoint;
}
At::At(Place place) : outer_(now()) { set_place(place); }
At::~At() { set_place(outer_); }
Place At::now() { return {thread_state.phase, thread_state.checkpoint}; }
void At::next_phase() { ++thread_state.phase; }
int At::enter_checkpoint() { return std::exchange(thread_state.checkpoint, ++thread_state.checkpoints); }
void At::leave_checkpoint(int outer) { thread_state.checkpoint = outer; }

bool is_countable(SymSpan sizes) {
  constexpr __int128 kMost = __int128(1) << 58;
  __int128 n = 1;
  for (auto s : sizes) {
    if (s.hint() == 0) return true;
    n = std::min(n * s.hint(), kMost + 1);
  }
  return n <= kMost;
}

Value* Graph::add_value(SymSpan sizes, SymSpan strides, DType dtype, Device device) {
  auto v = std::make_unique<Value>();
  v->id = int(values_.size());
  v->tensor = fake(sizes, strides, dtype, device);
  v->tensor.impl()->traced = v.get();
  values_.push_back(std::move(v));
  return values_.back().get();
}

Value* Graph::add_value_like(const Value& v) {
  auto& t = v.tensor;
  Value* other = add_value(t.sizes(), t.strides(), t.dtype(), t.device());
  other->tensor.impl()->wrapped_number = t.impl()->wrapped_number;
  other->held = v.held;
  return other;
}

Value* Graph::add_constant(const Tensor& eager) {
  Value* v = add_value(eager.sizes(), eager.strides(), eager.dtype(), eager.device());
  v->tensor.impl()->wrapped_number = eager.impl()->wrapped_number;
  v->constant = eager;
  return v;
}

Node* Graph::add_node(const op::Operator& op, std::span<const op::Value> args, std::vector<Value*> results) {
  auto n = std::make_unique<Node>();
  n->id = int(nodes.size());
  n->place = At::now();
  n->op = &op;
  n->args = op::Args(args, op.schema);
  n->args.each_tensor([](size_t, Tensor& t) {
    if (!t.defined()) return;
    internal_check(t.is_traced()) << "a graph node takes an eager tensor";
    t = t.impl()->traced->tensor;  // the value's own tensor, since users' handles may change
  });
  n->results = std::move(results);
  for (size_t i = 0; i < n->results.size(); ++i) {
    n->results[i]->producer = n.get();
    n->results[i]->result = int(i);
  }
  nodes.push_back(std::move(n));
  return nodes.back().get();
}

void Graph::replace(Value* old, Value* by) {
  for (auto& n : nodes)
    n->args.each_tensor([&](size_t, Tensor& t) {
      if (value_of(t) == old) t = by->tensor;
    });
  for (auto& o : outputs)
    if (o == old) o = by;
  for (auto& [input, v] : mutated)
    if (v == old) v = by;
}

void Graph::renumber() {
  std::vector<bool> read(values_.size());  // by number
  auto mark = [&](const Value* v) {
    if (v) read[size_t(v->id)] = true;
  };
  for (auto& n : nodes)
    for (auto& t : n->args.tensors()) mark(value_of(t));
  for (auto* o : outputs) mark(o);
  for (auto& [i, v] : mutated) mark(v);
  std::vector<Value*> order = inputs;
  for (auto& v : values_)
    if (v->constant.defined() && read[size_t(v->id)]) order.push_back(v.get());
  for (auto& n : nodes) order.insert(order.end(), n->results.begin(), n->results.end());
  for (auto& v : values_) v->id = -1;
  for (size_t k = 0; k < order.size(); ++k) order[k]->id = int(k);
  std::vector<std::unique_ptr<Value>> numbered(order.size());
  for (auto& v : values_) {
    if (v->id < 0) former_.push_back(std::move(v));
    else numbered[size_t(v->id)] = std::move(v);
  }
  values_ = std::move(numbered);
}

std::vector<Value*> operands(const Node& n) {
  std::vector<Value*> values;
  values.reserve(n.args.tensors().size());
  for (auto& t : n.args.tensors()) values.push_back(value_of(t));
  return values;
}

void hold(const Tensor& t) {
  for (Value* v = value_of(t); v && !v->held; v = operands(*v->producer)[0]) {
    v->held = true;
    if (!v->producer || !v->producer->op->is<op::View>()) return;
  }
}
bool is_16_bit_float(DType d) { return d == DType::Float16 || d == DType::BFloat16; }

void verify(const Graph& g) {
  std::unordered_set<const Value*> defined(g.inputs.begin(), g.inputs.end());
  for (auto& v : g.values())
    if (v->constant.defined()) defined.insert(v.get());
  for (auto& n : g.nodes) {
    for (auto* v : operands(*n))
      internal_check(!v || defined.count(v))
          << "graph: node " << n->op->name() << " reads %" << v->id << " before it is made\n"
          << print(g);
    for (size_t i = 0; i < n->results.size(); ++i) {
      auto* r = n->results[i];
      internal_check(r && r->producer == n.get() && r->result == int(i))
          << "graph: result " << i << " of " << n->op->name() << " does not know its producer";
      defined.insert(r);
    }
  }
  for (auto* o : g.outputs)
    internal_check(!o || defined.count(o)) << "graph: output %" << o->id << " is never made\n" << print(g);
  for (auto& [i, v] : g.mutated)
    internal_check(defined.count(v)) << "graph: input " << i << " is replaced by a value never made";
}

// Checks the results of a graph whose sizes are only known when it runs: the shapes must be those that the rules gave
// when they knew only ranges. A call whose result has such a size determines the symbol.
static void check_sizes(const Node& n, const op::Results& results, std::vector<SymInt>& symbols) {
  for (size_t i = 0; i < n.results.size(); ++i) {
    if (!results[i].defined()) continue;
    auto expected = n.results[i]->tensor.sizes(), actual = results[i].sizes();
    if (n.op->is<op::DataDependent>() && expected[0].is_symbol())
      symbols[size_t(expected[0].node()->value)] = actual[0];
    bool same = expected.size() == actual.size();
    for (size_t d = 0; same && d < actual.size(); ++d)
      same = actual[d] == sym::substitute(expected[d], symbols);
    runtime_check(same, n.op->name())
        << "gives a tensor of shape " << to_string(actual) << " where the program was traced for "
        << to_string(expected) << ", which held of more elements than there are now"
        << hint("keep shapes the same for any number of elements, 0 and 1 too");
  }
}

std::vector<Tensor> interpret(const Graph& g, std::span<const Tensor> inputs,
                              std::span<const std::pair<const Value*, Tensor>> available, bool written,
                              const NodeCall& call) {
  internal_check(inputs.size() == g.inputs.size())
      << "graph: " << inputs.size() << " inputs for " << g.inputs.size();
  std::vector<Tensor> at(g.values().size());  // by number
  std::vector<SymInt> symbols;                // by symbol of this graph: its value, or a symbol of the caller
  for (int k = 0; g.shapes && k < g.shapes->symbol_count(); ++k) symbols.push_back(g.shapes->symbol(k));
  bool run_time = std::any_of(symbols.begin(), symbols.end(), sym::is_run_time);
  for (size_t i = 0; i < inputs.size(); ++i) {
    at[size_t(g.inputs[i]->id)] = inputs[i];
    if (g.inputs[i]->held) hold(inputs[i]);
    auto sizes = g.inputs[i]->tensor.sizes();
    if (!inputs[i].defined()) continue;
    for (size_t d = 0; d < sizes.size(); ++d)
      if (sizes[d].is_symbol()) symbols[size_t(sizes[d].node()->value)] = inputs[i].sizes()[d];
  }
  for (auto& [v, t] : available) at[size_t(v->id)] = t;
  const Place outer = At::now();
  for (auto& n : g.nodes) {
    At at_node({outer.phase + n->place.phase, outer.checkpoint ? outer.checkpoint : n->place.checkpoint});
    if (!available.empty() && !n->results.empty() &&
        std::all_of(n->results.begin(), n->results.end(),
                    [&](auto* r) { return at[size_t(r->id)].defined(); }))
      continue;
    op::Args args = n->args.clone();
    args.each_tensor([&](size_t, Tensor& t) {
      if (!t.defined()) return;
      auto* v = value_of(t);
      t = v->constant.defined() ? v->constant : at[size_t(v->id)];
    });
    args.each_size([&](SymInt& s) { s = sym::substitute(s, symbols); });
    auto results = call ? call(*n, args.values()) : op::call(*n->op, args.values());
    if (run_time) check_sizes(*n, results, symbols);
    for (size_t i = 0; i < n->results.size(); ++i) {
      at[size_t(n->results[i]->id)] = results[i];
      if (n->results[i]->held) hold(results[i]);
    }
  }
  std::vector<Tensor> out;
  auto give = [&](Value* v) {
    out.push_back(!v ? Tensor() : v->constant.defined() ? v->constant : at[size_t(v->id)]);
  };
  for (auto* o : g.outputs) give(o);
  if (written)
    for (auto& [i, v] : g.mutated) give(v);
  return out;
}

}  // namespace facula::graph
