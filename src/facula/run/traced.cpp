#include "facula/run/traced.h"

#include <algorithm>
#include <unordered_map>

#include "facula/autograd/accumulate.h"
#include "facula/autograd/autograd.h"
#include "facula/autograd/calls.h"
#include "facula/graph/passes.h"
#include "facula/op/call.h"
#include "facula/op/registry.h"
#include "facula/run/autocast.h"
#include "facula/run/graph_body.h"
#include "facula/run/refusals.h"
#include "facula/sym/parse.h"
#include "facula/sym/run_time.h"
#include "facula/sym/substitute.h"

namespace facula::run {

using op::Value;

namespace {

using Kept = std::shared_ptr<const Keeper>;

// A composite operator whose body is the calls of a graph.
op::Operator* operator_of(const std::string& name, const graph::Graph& g, bool is_piece, Kept keeper,
                          GraphBody::Run run) {
  op::Composite calls{GraphBody(&g, is_piece, std::move(keeper), std::move(run))};
  calls.exact_sizes =
      std::none_of(g.inputs.begin(), g.inputs.end(), [](auto* v) { return any_symbolic(v->tensor.sizes()); });
  return &op::nameless(name + "(Tensor[] inputs) -> Tensor[]", std::move(calls));
}

op::Results to_results(std::vector<Tensor> tensors) {
  op::Results results;
  for (auto& t : tensors) results.push_back(std::move(t));
  return results;
}

}  // namespace

// The graph as a pure function: written values become results behind the others.
static op::Operator* functional_of(const std::string& name, const graph::Graph& g, bool is_piece,
                                   Kept keeper) {
  auto run = [&g](const op::Call& c) {
    return to_results(graph::interpret(g, c.tensors("inputs"), {}, true));
  };
  return operator_of(name, g, is_piece, std::move(keeper), run);
}

static op::Operator* in_place_of(const std::string& name, const graph::Graph& g, bool is_piece, Kept keeper) {
  auto run = [&g](const op::Call& c) {
    auto inputs = c.tensors("inputs");
    auto outputs = graph::interpret(g, inputs, {}, true);
    std::vector<Tensor> written(outputs.end() - std::ptrdiff_t(g.mutated.size()), outputs.end());
    outputs.resize(g.outputs.size());
    if (op::Mode::current()) graph::write_back(g, inputs, written, outputs);
    else
      for (size_t k = 0; k < written.size(); ++k)
        autograd::invoke("copy", {inputs[size_t(g.mutated[k].first)], written[k]}, op::Form::in_place);
    return to_results(std::move(outputs));
  };
  auto* o = operator_of(name, g, is_piece, std::move(keeper), run);
  o->effects.writes = true;
  return o;
}

Traced::Traced(graph::Capture capture, std::string name)
    : name_(std::move(name)), capture_(std::move(capture)) {
  if (graph::has_run_time_sizes(graph())) {
    for (auto& s : graph::segments(graph())) pieces_.push_back({std::move(s), nullptr});
    for (size_t k = 0; k + 1 < pieces_.size(); ++k)
      pieces_[k].calls = functional_of(name_, pieces_[k].segment.graph, true, keeper_);
    whole_graph_ = functional_of(name_, graph(), false, keeper_);
  }
  auto& last = pieces_.empty() ? graph() : pieces_.back().segment.graph;
  functional_ = functional_of(name_, last, !pieces_.empty(), keeper_);
  in_place_ = in_place_of(name_, last, !pieces_.empty(), keeper_);
  for (auto& n : graph().nodes) {
    if (!n->op->effects.draws) continue;
    auto* generator = &default_generator();
    for (auto& v : n->args.values())
      if (v.tag == op::Tag::generator) generator = v.generator;
    if (!std::ranges::count(generators_, generator)) generators_.push_back(generator);
  }
  writes_.resize(graph().inputs.size());
  for (auto& [w, v] : graph().mutated) writes_[size_t(w)] = true;
}

void Traced::divide_history(std::vector<const graph::Value*> inside) {
  inside_ = std::move(inside);
  bool varies = graph().shapes->symbol_count() > 0;
  for (auto& s : graph::segments(graph(), inside_)) divided_.push_back({std::move(s), nullptr});
  for (auto& p : divided_)  // an operator refers to the graph by its address
    if (!p.segment.graph.nodes.empty()) p.calls = functional_of(name_, p.segment.graph, varies, keeper_);
}

Traced::~Traced() {
  keeper_->close();
  std::vector<op::Operator*> all{functional_, in_place_};
  if (whole_graph_) all.push_back(whole_graph_);
  for (auto* pieces : {&pieces_, &divided_})
    for (auto& p : *pieces)
      if (p.calls) all.push_back(p.calls);
  for (auto* o : all) {
    o->cache.reset();
    o->definition = op::Composite{};
  }
}

Traced::Modes Traced::Modes::now() { return {autocast_state(), autograd::grad_enabled(), default_dtype()}; }

void Traced::check_modes(std::span<const Tensor> inputs) const {
  if (!modes_) return;
  const Modes &was = *modes_, now = Modes::now();
  auto autocast = [](const Modes& m) {
    return m.autocast.enabled ? "autocast to " + std::string(facula::name(m.autocast.dtype)) : "no autocast";
  };
  // A region around the trace is a part of the program; one around the call would change what eager calls compute.
  bool same = !now.autocast.enabled || (was.autocast.enabled && was.autocast.dtype == now.autocast.dtype);
  value_check(same, name_.c_str()) << "was traced under " << autocast(was) << ", and is called under "
                                   << autocast(now)
                                   << hint("trace it in the same region, or enter the region inside of it");
  value_check(was.dtype == now.dtype, name_.c_str())
      << "was traced when the default dtype was " << was.dtype << ", and it is " << now.dtype << " now"
      << hint("trace it again");
  auto any_requires_grad = [](auto& tensors) { return std::ranges::any_of(tensors, &Tensor::requires_grad); };
  value_check(was.grad || !now.grad || !(any_requires_grad(inputs) || any_requires_grad(captured())),
              name_.c_str())
      << "was traced while gradients were disabled, and is called where eager calls record them"
      << hint("call it under no_grad(), or trace it outside of no_grad()");
  value_check(!was.grad || now.grad || !capture_.differentiates, name_.c_str())
      << "calls backward(), and is called while gradients are disabled"
      << hint("call it outside of no_grad()");
}

std::shared_ptr<Traced> Traced::with_numbers(std::span<const Tensor> numbers) const {
  auto& g = graph();
  size_t arguments = g.inputs.size() - captured().size() - numbers.size();
  std::vector<graph::InputSpec> specs;
  for (size_t i = 0; i < g.inputs.size(); ++i)
    if (i < arguments || i >= arguments + numbers.size())
      specs.push_back(graph::spec_of(g.inputs[i]->tensor));
  auto calls = [&](std::span<const Tensor> inputs) {
    graph::KeepRules keep;
    std::vector<Tensor> all(inputs.begin(), inputs.begin() + std::ptrdiff_t(arguments));
    all.insert(all.end(), numbers.begin(), numbers.end());
    all.insert(all.end(), inputs.begin() + std::ptrdiff_t(arguments), inputs.end());
    auto outputs = graph::interpret(g, all, {}, true);
    std::vector<Tensor> written(outputs.end() - std::ptrdiff_t(g.mutated.size()), outputs.end());
    outputs.resize(g.outputs.size());
    graph::write_back(g, all, written, outputs);
    return outputs;
  };
  graph::Capture c = capture_.without_graph();
  c.graph = graph::trace(g.shapes, specs, calls, name_.c_str());
  c.graph.results = g.results;
  c.graph.renumber();
  for (auto& s : c.slots)
    if (s.argument >= int(arguments)) s.argument -= int(numbers.size());
  c.required.resize(arguments);
  auto program = std::make_shared<Traced>(std::move(c), name_);
  program->checks_ = checks_;
  program->modes_ = modes_;
  return program;
}

Traced::Items Traced::checked(std::span<const Tensor> inputs) const {
  auto& g = graph();
  size_t input_count = g.inputs.size() - captured().size();
  value_check(inputs.size() == input_count, name_.c_str())
      << "was traced with " << input_count << " tensors, and is called with " << inputs.size();
  Items all;
  for (auto& t : inputs) all.push_back(t.impl());
  for (auto& t : captured()) all.push_back(t.impl());
  SmallVector<int64_t, 16> symbols(size_t(g.shapes->symbol_count()), -1);
  for (size_t i = 0; i < all.size(); ++i) {
    auto& spec = *g.inputs[i]->tensor.impl();
    value_check(all[i], name_.c_str()) << "tensor " << i << " is undefined";
    auto& t = *all[i];
    bool fits = t.dtype == spec.dtype && t.sizes.size() == spec.sizes.size();
    for (size_t d = 0; fits && d < spec.sizes.size(); ++d) {
      auto s = spec.sizes[d];
      int64_t n = t.sizes[d].hint();
      auto* value = s.is_symbol() ? &symbols[size_t(s.node()->value)] : nullptr;
      fits = value ? *value < 0 || *value == n : s.hint() == n;
      if (value) *value = n;
    }
    value_check(fits, name_.c_str()) << "was traced with " << spec.dtype << to_string(SymSpan(spec.sizes))
                                     << " as " << (i < input_count ? "tensor " : "captured tensor ")
                                     << (i < input_count ? i : i - input_count) << ", and is called with "
                                     << t.dtype << to_string(SymSpan(t.sizes))
                                     << hint(i < input_count
                                                 ? "trace it for these inputs, or with dynamic=True"
                                                 : "trace it again");
  }
  check_sizes(symbols);
  for (auto& r : capture_.reads)
    value_check(graph::elements_of(r.tensor) == r.elements, name_.c_str())
        << "was traced when it looked at the elements of a tensor of shape " << to_string(r.tensor.sizes())
        << " from outside of it, and they are others now"
        << hint("trace it again, or compute with the tensor in place of its elements");
  if (!g.mutated.empty()) check_names(all);
  return all;
}

// Raises unless the values of the symbols are within their ranges and satisfy the guards of the trace.
void Traced::check_sizes(IntSpan symbols) const {
  auto& shapes = *graph().shapes;
  for (size_t k = 0; k < symbols.size(); ++k) {
    auto& s = *shapes.symbol(int(k)).node();
    value_check(symbols[k] < 0 || (s.low <= symbols[k] && symbols[k] <= s.high), name_.c_str())
        << "was traced for a size " << s.name << " of at least " << s.low
        << (s.high < sym::kMostSize ? " and at most " + std::to_string(s.high) : "") << " (it was " << s.hint
        << "), and is called with " << symbols[k]
        << hint("trace it for this size; 0 and 1 are sizes of their own");
  }
  if (shapes.hold(symbols)) return;
  for (auto& guard : shapes.guards()) {
    sym::Shapes alone;
    alone.guard(guard);
    value_check(alone.hold(symbols), name_.c_str())
        << "relied on sizes that the tensors it is called with do not have: " << sym::to_string(guard)
        << ", and these are " << sym::evaluate(guard.left, symbols) << " and "
        << sym::evaluate(guard.right, symbols)
        << hint("it was traced where Python looked at a size, or compared one: trace it for these sizes");
  }
}

// Raises if a tensor that is written shares memory with another input or captured tensor.
void Traced::check_names(const Items& all) const {
  struct Name {
    const StorageImpl* storage;
    size_t input;
    auto operator<=>(const Name&) const = default;
  };
  SmallVector<Name, 16> memory;
  for (size_t k = 0; k < all.size(); ++k)
    if (auto* storage = all[k]->storage.get()) memory.push_back({storage, k});
  std::sort(memory.begin(), memory.end());
  for (size_t m = 1; m < memory.size(); ++m) {
    auto [storage, w] = memory[m];
    auto [before, k] = memory[m - 1];
    if (storage != before || !(writes_[w] || writes_[k])) continue;
    if (!writes_[w]) std::swap(w, k);
    value_check(false, name_.c_str())
        << "writes to tensor " << w << " of " << to_string(SymSpan(all[w]->sizes))
        << ", which shares its memory with tensor " << k << " of " << to_string(SymSpan(all[k]->sizes))
        << hint("clone() one of them");
  }
}

static const Tensor& leaf_of(const graph::Capture::Slot& s, std::span<const Tensor> inputs) {
  return s.argument < 0 ? s.leaf : inputs[size_t(s.argument)];
}

static bool same_memory(const Tensor& a, const Tensor& b) {
  return a.is_same(b) ||
         (a.impl()->storage == b.impl()->storage && a.offset() == b.offset() && a.dtype() == b.dtype() &&
          Dims(a.sizes()) == Dims(b.sizes()) && Dims(a.strides()) == Dims(b.strides()));
}

void Traced::check_slots(std::span<const Tensor> inputs) const {
  for (auto& s : capture_.slots) {
    auto& leaf = leaf_of(s, inputs);
    value_check(s.output < 0 || (leaf.requires_grad() && autograd::is_leaf(leaf)), name_.c_str())
        << "fills the gradient of a tensor of shape " << to_string(leaf.sizes())
        << ", which is no leaf that requires gradients" << hint("requires_grad_() it, or trace it as it is");
    value_check(s.output < 0 || autograd::hooks_digest(leaf) == s.hooks, name_.c_str())
        << "was traced with other hooks of a tensor of shape " << to_string(leaf.sizes())
        << ", whose gradient it computes, than it has now" << hint("trace it again");
    if (!s.relied) continue;
    Tensor now = autograd::grad_of(leaf);
    const Tensor& before = s.before_input < 0 ? s.before : inputs[size_t(s.before_input)];
    bool same = now.defined() == before.defined() && (!now.defined() || same_memory(now, before));
    value_check(same, name_.c_str())
        << "was traced when .grad of a tensor of shape " << to_string(leaf.sizes()) << " was "
        << (s.before.defined() ? "a certain tensor" : "None") << ", and is now "
        << (!now.defined()       ? "None"
            : s.before.defined() ? "another"
                                 : "a tensor")
        << hint(s.before.defined()
                    ? "let the traced function begin with zero_grad()"
                    : "zero_grad() before each call, or let the traced function begin with it");
  }
  // Raises if eager mode would compute gradients for more tensors than were traced.
  for (size_t i = 0; capture_.differentiates && i < inputs.size(); ++i)
    value_check(capture_.required[i] || !inputs[i].requires_grad(), name_.c_str())
        << "calls backward(), and was traced when tensor " << i << " did not require gradients"
        << hint("detach() it, or trace with one that requires them");
}

// Sets generators and gradient slots back when it is destroyed, unless the run has `succeeded`: a program that fails has no effects.
class Traced::Undo {
 public:
  explicit Undo(const Traced& t) : traced_(t) {
    for (auto* g : t.generators_) states_.emplace_back(g->seed(), g->offset());
  }
  ~Undo() {
    if (succeeded) return;
    for (size_t k = 0; k < states_.size(); ++k)
      traced_.generators_[k]->set_state(states_[k].first, states_[k].second);
    for (size_t k = 0; k < held.size(); ++k) autograd::ensure_meta(leaves_[k]).grad = held[k];
  }
  Undo(const Undo&) = delete;
  void hold(const Tensor& leaf) {
    Tensor grad = autograd::grad_of(leaf);
    if (!grad.defined()) return;
    leaves_.push_back(leaf);
    held.push_back(std::move(grad));
  }
  std::vector<Tensor> held;  // gradients that were dropped
  bool succeeded = false;

 private:
  const Traced& traced_;
  std::vector<std::pair<uint64_t, uint64_t>> states_;
  std::vector<Tensor> leaves_;
};

// Lets go of gradients that the program computes anew without reading them, so that their memory is free meanwhile.
void Traced::drop_gradients(std::span<const Tensor> inputs, Undo& undo) const {
  for (auto& s : capture_.slots) {
    if (s.output < 0 || s.relied) continue;
    auto& leaf = leaf_of(s, inputs);
    if (s.changes_late) undo.hold(leaf);
    autograd::set_grad(leaf, {});
  }
}

void Traced::fill_slots(std::span<const Tensor> inputs, std::span<const Tensor> results) const {
  for (auto& s : capture_.slots) {
    bool is_set =
        s.after.defined() != s.before.defined() || (s.after.defined() && !s.after.is_same(s.before));
    bool changes = s.output >= 0 || is_set || !s.relied;
    if (!changes) continue;
    autograd::set_grad(leaf_of(s, inputs), s.output >= 0 ? results[size_t(s.output)] : s.after);
  }
}

std::vector<Tensor> Traced::operator()(std::span<const Tensor> inputs, std::vector<Tensor>* inside) const {
  check_modes(inputs);
  AutocastOff plainly;  // the casts are calls of the graph
  Items all = checked(inputs);
  auto* mode = op::Mode::current();
  bool traced = mode && mode->records();
  supported_check(!traced || capture_.slots.empty(), name_.c_str())
      << "uses gradient slots (.grad), and is called while another function is traced"
      << hint("call the function itself there");
  check_slots(inputs);
  Value args[] = {std::span<TensorImpl* const>(all)};
  bool recorded = !capture_.differentiates && autograd::needs_record(args);
  Undo undo(*this);
  if (!traced) drop_gradients(inputs, undo);
  auto results = traced || recorded ? with_history(all, undo.held, inside) : in_place(all, undo.held);
  undo.succeeded = true;
  fill_slots(inputs, results);
  for (auto& [k, output] : capture_.retained) autograd::ensure_meta(results[k]).grad = results[output];
  results.resize(capture_.results);
  check_results(results);
  return results;
}

void Traced::check_results(std::vector<Tensor>& results) const {
  size_t first = results.size() - checks_.size();
  for (size_t k = 0; k < checks_.size(); ++k) {
    auto& c = checks_[k];
    if (!results[first + k].item().to_bool()) throw Error(ErrorKind::runtime, c.type, "", c.text);
  }
  results.resize(first);
}

std::vector<Tensor> Traced::run(const Items& all, bool in_place, std::vector<Tensor>& held) const {
  auto* mode = op::Mode::current();
  if (!pieces_.empty() && !(mode && mode->records())) return run_pieces(all, in_place);
  Value args[] = {std::span<TensorImpl* const>(all)};
  std::optional<Held> until_safe;
  if (!held.empty()) until_safe.emplace(held);
  return op::call(*(whole_graph_ ? whole_graph_ : in_place ? in_place_ : functional_), args).to_vector();
}

namespace {

// The values of a graph that runs segment by segment.
class Values {
 public:
  explicit Values(const graph::Graph& g)
      : at_(g.values().size()), symbols_(size_t(g.shapes->symbol_count())) {}
  void set(const graph::Value& v, Tensor t) {
    auto sizes = v.tensor.sizes();
    for (size_t d = 0; d < sizes.size(); ++d)
      if (sizes[d].is_symbol()) symbols_[size_t(sizes[d].node()->value)] = t.sizes()[d];
    at_[size_t(v.id)] = std::move(t);
  }
  Tensor& operator[](const graph::Value* v) { return at_[size_t(v->id)]; }
  // A call that determines a size.
  void call(const graph::Node& n) {
    op::Args args = n.args.clone();
    args.each_tensor([&](size_t, Tensor& t) {
      if (!t.defined()) return;
      auto* v = graph::value_of(t);
      t = v->constant.defined() ? v->constant : (*this)[v];
    });
    args.each_size([&](SymInt& s) { s = sym::substitute(s, symbols_); });
    auto results = op::call(*n.op, args.values());
    for (size_t k = 0; k < n.results.size(); ++k) set(*n.results[k], results[k]);
  }

 private:
  std::vector<Tensor> at_;  // by value number
  std::vector<SymInt> symbols_;
};

}  // namespace

std::vector<Tensor> Traced::run_pieces(const Items& all, bool in_place) const {
  Values at(graph());
  for (size_t i = 0; i < all.size(); ++i) at.set(*graph().inputs[i], Tensor(Ref<TensorImpl>::share(all[i])));
  for (auto& p : pieces_) {
    auto& s = p.segment;
    bool last = &p == &pieces_.back();
    std::vector<Tensor> inputs;
    for (auto* v : s.inputs) inputs.push_back(at[v]);
    if (last && in_place) separate(inputs);
    Value args[] = {std::span<const Tensor>(inputs)};
    auto& o = *(!last ? p.calls : in_place ? in_place_ : functional_);
    auto results = op::call(o, args).to_vector();
    if (last) return results;
    for (size_t k = 0; k < s.outputs.size(); ++k) at.set(*s.outputs[k], results[k]);
    for (auto* n : s.calls) at.call(*n);
    for (auto* v : s.dead) at[v] = {};
  }
  return {};
}

std::vector<Tensor> Traced::run_divided(const Items& all, std::vector<Tensor>& inside) const {
  Values at(graph());
  for (size_t i = 0; i < all.size(); ++i) at.set(*graph().inputs[i], Tensor(Ref<TensorImpl>::share(all[i])));
  for (auto& p : divided_) {
    auto& s = p.segment;
    if (p.calls) {
      std::vector<Tensor> inputs;
      for (auto* v : s.inputs) inputs.push_back(at[v]);
      Value args[] = {std::span<const Tensor>(inputs)};
      auto results = op::call(*p.calls, args);
      for (size_t k = 0; k < s.outputs.size(); ++k) at.set(*s.outputs[k], results[k]);
    }
    for (auto* n : s.calls) at.call(*n);
    for (auto* v : s.dead) at[v] = {};
  }
  inside.clear();
  for (auto* v : inside_) inside.push_back(at[v]);
  std::vector<Tensor> results;
  auto give = [&](const graph::Value* v) {
    results.push_back(!v ? Tensor() : v->constant.defined() ? v->constant : at[v]);
  };
  for (auto* v : graph().outputs) give(v);
  for (auto& [w, v] : graph().mutated) give(v);
  return results;
}

// Copies values of earlier segments that share memory with inputs which the last segment writes.
void Traced::separate(std::vector<Tensor>& inputs) const {
  auto& s = pieces_.back().segment;
  for (auto& [w, v] : s.graph.mutated)
    for (size_t k = 0; k < inputs.size(); ++k) {
      auto& written = inputs[size_t(w)];
      if (s.inputs[k]->producer && inputs[k].impl()->storage == written.impl()->storage)
        inputs[k] = autograd::invoke("clone", {inputs[k]});
    }
}

std::vector<Tensor> Traced::in_place(const Items& all, std::vector<Tensor>& held) const {
  autograd::GradMode off(false);
  auto results = run(all, true, held);
  for (auto& [w, v] : graph().mutated) Tensor(Ref<TensorImpl>::share(all[size_t(w)])).bump_version();
  return results;
}

std::vector<Tensor> Traced::with_history(Items all, std::vector<Tensor>& held,
                                         std::vector<Tensor>* inside) const {
  std::vector<Tensor> originals, copies;
  for (auto& [w, v] : graph().mutated) {  // the program and its backward pass read the old value
    originals.push_back(Tensor(Ref<TensorImpl>::share(all[size_t(w)])));
    copies.push_back(autograd::invoke("clone", {originals.back()}));
    all[size_t(w)] = copies.back().impl();
  }
  auto* mode = op::Mode::current();
  bool divides = inside && !inside_.empty() && !(mode && mode->records());
  auto results = divides ? run_divided(all, *inside) : run(all, false, held);
  size_t outputs = results.size() - originals.size();
  for (size_t k = 0; k < originals.size(); ++k) {
    auto& original = originals[k];
    auto& result = results[outputs + k];
    bool history = result.requires_grad() && !(original.requires_grad() && !autograd::node_of(original));
    // A value that other results depend on: they depend on the tensor that is written, unless it is a view of another one.
    auto* meta = autograd::meta_of(original);
    bool shares = history && divides && std::ranges::count(inside_, graph().mutated[k].second) > 0 &&
                  !(meta && meta->base.defined());
    autograd::GradMode mode(autograd::grad_enabled() && history && !shares);
    autograd::invoke("copy", {original, result}, op::Form::in_place);
    if (shares) autograd::set_history(original, autograd::node_of(result), autograd::meta_of(result)->result);
  }
  results.resize(outputs);
  return results;
}

// A segment with the sizes of the trace; a data-dependent size is the largest of its range.
static graph::Graph as_traced(const graph::Graph& g) {
  std::vector<SymInt> values;
  for (int k = 0; k < g.shapes->symbol_count(); ++k) {
    auto s = g.shapes->symbol(k);
    values.push_back(sym::is_run_time(s) ? std::min(s.node()->high, s.hint()) : s.hint());
  }
  std::vector<graph::InputSpec> specs;
  for (auto* v : g.inputs) {
    specs.push_back(graph::spec_of(v->tensor));
    for (auto* all : {&specs.back().sizes, &specs.back().strides})
      for (auto& s : *all) s = sym::substitute(s, values);
  }
  auto calls = [&](std::span<const Tensor> arguments) { return graph::interpret(g, arguments, {}, true); };
  return graph::trace(std::make_shared<sym::Shapes>(*g.shapes), specs, calls, "report");
}

Report Traced::report() const {
  if (pieces_.empty())
    return run::report(graph::expanded(graph(), std::make_shared<sym::Shapes>(*graph().shapes)), name_);
  Report all;
  int next = int(
      graph().values().size());  // values inside of a segment have numbers beyond those of the printed graph
  for (auto& p : pieces_) {
    auto& s = p.segment;
    graph::Graph g = as_traced(s.graph);
    std::unordered_map<int, int> numbers;  // of the segment's values in the printed graph
    for (size_t k = 0; k < s.inputs.size(); ++k) numbers[g.inputs[k]->id] = s.inputs[k]->id;
    for (size_t k = 0; k < s.outputs.size(); ++k)
      if (g.outputs[k]) numbers.try_emplace(g.outputs[k]->id, s.outputs[k]->id);
    auto one = run::report(std::move(g), name_);
    all.arena = std::max(all.arena, one.arena);
    all.taken = std::max(all.taken, one.taken);
    for (auto& step : one.steps) {
      for (auto* list : {&step.reads, &step.writes})
        for (int& v : *list)
          if (v >= 0) v = next == (v = numbers.try_emplace(v, next).first->second) ? next++ : v;
      all.steps.push_back(std::move(step));
    }
    for (auto* n : s.calls) {
      auto& step = all.steps.emplace_back();
      step.kind = "library";
      step.calls = n->op->schema.full_name();
      for (auto* v : graph::operands(*n)) step.reads.push_back(v ? v->id : -1);
      for (auto* v : n->results) step.writes.push_back(v->id);
    }
  }
  return all;
}

namespace {

// Closes the autocast region around a trace and opens it inside, so that its casts are recorded.
class AutocastAround {
 public:
  AutocastAround() : state_(autocast_state()) {
    clear_autocast_cache();  // of casts that are no calls of the trace
    set(false);
  }
  ~AutocastAround() {
    clear_autocast_cache();
    set_autocast(state_);
  }
  void set(bool enabled) const {
    auto s = state_;
    s.enabled &= enabled;
    set_autocast(s);
  }

 private:
  AutocastState state_;
};

}  // namespace

std::unique_ptr<Traced> trace(const graph::Function& f, std::span<const Tensor> inputs, std::string name,
                              bool dynamic) {
  auto shapes = std::make_shared<sym::Shapes>();
  std::vector<graph::InputSpec> specs;
  for (auto& t : inputs) {
    specs.push_back(graph::symbolic_spec(t, *shapes));
    specs.back().requires_grad = t.requires_grad();
    if (dynamic) continue;
    specs.back().sizes = Dims(t.sizes());
    if (!specs.back().strides.empty()) specs.back().strides = Dims(t.strides());
  }
  auto modes = Traced::Modes::now();
  AutocastAround autocast;
  auto inside = [&](std::span<const Tensor> arguments) {
    struct Region {
      explicit Region(const AutocastAround* a) : around(a) { around->set(true); }
      ~Region() { around->set(false); }
      const AutocastAround* around;
    } region(&autocast);
    return f(arguments);
  };
  auto capture = graph::capture(std::move(shapes), specs, inside, name.c_str());
  auto program = std::make_unique<Traced>(std::move(capture), std::move(name));
  program->require(modes);
  return program;
}

}  // namespace facula::run
