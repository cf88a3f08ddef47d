#include "facula/run/traced.h"

#include <algorithm>

#include "facula/autograd/autograd.h"
#include "facula/autograd/calls.h"
#include "facula/graph/passes.h"
#include "facula/op/call.h"
#include "facula/op/registry.h"
#include "facula/run/autocast.h"
#include "facula/sym/parse.h"

namespace facula::run {

using op::Value;

namespace {

// The calls of a program as a composite.
op::Operator* operator_of(const std::string& name, bool exact_sizes,
                          std::function<op::Results(const op::Call&)> body) {
  op::Composite calls{std::move(body)};
  calls.exact_sizes = exact_sizes;
  return &op::nameless(name + "(Tensor[] inputs) -> Tensor[]", std::move(calls));
}

op::Results to_results(std::vector<Tensor> tensors) {
  op::Results results;
  for (auto& t : tensors) results.push_back(std::move(t));
  return results;
}

}  // namespace

Traced::Traced(graph::Capture capture, std::string name)
    : name_(std::move(name)), capture_(std::move(capture)) {
  bool exact = std::none_of(graph().inputs.begin(), graph().inputs.end(),
                            [](auto* v) { return any_symbolic(v->tensor.sizes()); });
  functional_ = operator_of(name_, exact, [this](const op::Call& c) {
    graph::KeepRules keep;
    return to_results(graph::interpret(graph(), c.tensors("inputs"), {}, true));
  });
  in_place_ = operator_of(name_, exact, [this](const op::Call& c) {
    auto inputs = c.tensors("inputs");
    auto outputs = graph::interpret(graph(), inputs, {}, true);
    std::vector<Tensor> written(outputs.end() - std::ptrdiff_t(graph().mutated.size()), outputs.end());
    outputs.resize(graph().outputs.size());
    if (op::Mode::current()) graph::write_back(graph(), inputs, written, outputs);
    else
      for (size_t k = 0; k < written.size(); ++k)
        autograd::invoke("copy", {inputs[size_t(graph().mutated[k].first)], written[k]}, op::Form::in_place);
    return to_results(std::move(outputs));
  });
  in_place_->effects.writes = true;
  writes_.resize(graph().inputs.size());
  for (auto& [w, v] : graph().mutated) writes_[size_t(w)] = true;
}

Traced::~Traced() {
  for (auto* o : {functional_, in_place_}) {
    o->cache.reset();
    o->definition = op::Composite{};
  }
}

Traced::Items Traced::checked(std::span<const Tensor> inputs) const {
  auto& g = graph();
  size_t given = g.inputs.size() - captured().size();
  value_check(inputs.size() == given, name_.c_str())
      << "was traced with " << given << " tensors, and is called with " << inputs.size();
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
      auto* known = s.is_symbol() ? &symbols[size_t(s.node()->value)] : nullptr;
      fits = known ? *known < 0 || *known == n : s.hint() == n;
      if (known) *known = n;
    }
    value_check(fits, name_.c_str()) << "was traced with " << spec.dtype << to_string(SymSpan(spec.sizes))
                                     << " as " << (i < given ? "tensor " : "captured tensor ")
                                     << (i < given ? i : i - given) << ", and is called with " << t.dtype
                                     << to_string(SymSpan(t.sizes))
                                     << hint(i < given ? "trace it for these inputs, or with dynamic=True"
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

// By symbol: do they lie in the ranges that were assumed, and do the comparisons come out as they did?
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

// What is written may be known by one name only.
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
    if (!s.relied) continue;
    Tensor now = autograd::grad_of(leaf);
    bool same = now.defined() == s.before.defined() && (!now.defined() || same_memory(now, s.before));
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
  // Gradients that eager would give to more tensors than were traced.
  for (size_t i = 0; capture_.differentiates && i < inputs.size(); ++i)
    value_check(capture_.required[i] || !inputs[i].requires_grad(), name_.c_str())
        << "calls backward(), and was traced when tensor " << i << " did not require gradients"
        << hint("detach() it, or trace with one that requires them");
}

void Traced::fill_slots(std::span<const Tensor> inputs, std::span<const Tensor> results) const {
  for (auto& s : capture_.slots) {
    bool changes = s.output >= 0 || s.after.defined() != s.before.defined() ||
                   (s.after.defined() && !s.after.is_same(s.before)) || !s.relied;
    if (!changes) continue;
    autograd::set_grad(leaf_of(s, inputs), s.output >= 0 ? results[size_t(s.output)] : s.after);
  }
}

std::vector<Tensor> Traced::operator()(std::span<const Tensor> inputs) const {
  Items all = checked(inputs);
  auto* mode = op::Mode::current();
  bool traced = mode && mode->records();
  supported_check(!traced || capture_.slots.empty(), name_.c_str())
      << "uses gradient slots (.grad), and is called while another function is traced"
      << hint("call the function itself there");
  check_slots(inputs);
  Value args[] = {std::span<TensorImpl* const>(all)};
  bool recorded = !capture_.differentiates && autograd::needs_record(args);
  auto results = traced || recorded ? with_history(all) : in_place(all);
  fill_slots(inputs, results);
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

std::vector<Tensor> Traced::in_place(const Items& all) const {
  autograd::GradMode off(false);
  Value args[] = {std::span<TensorImpl* const>(all)};
  auto results = op::call(*in_place_, args).to_vector();
  for (auto& [w, v] : graph().mutated) Tensor(Ref<TensorImpl>::share(all[size_t(w)])).bump_version();
  return results;
}

std::vector<Tensor> Traced::with_history(Items all) const {
  std::vector<Tensor> originals, copies;
  for (auto& [w, v] :
       graph().mutated) {  // the program reads what was there before, also in its backward pass
    originals.push_back(Tensor(Ref<TensorImpl>::share(all[size_t(w)])));
    copies.push_back(autograd::invoke("clone", {originals.back()}));
    all[size_t(w)] = copies.back().impl();
  }
  Value args[] = {std::span<TensorImpl* const>(all)};
  auto results = op::call(*functional_, args).to_vector();
  size_t outputs = results.size() - originals.size();
  for (size_t k = 0; k < originals.size(); ++k) {
    auto& original = originals[k];
    bool history =
        results[outputs + k].requires_grad() && !(original.requires_grad() && !autograd::node_of(original));
    autograd::GradMode mode(autograd::grad_enabled() && history);
    autograd::invoke("copy", {original, results[outputs + k]}, op::Form::in_place);
  }
  results.resize(outputs);
  return results;
}

Report Traced::report() const {
  return run::report(graph::expanded(graph(), std::make_shared<sym::Shapes>(*graph().shapes)), name_);
}

namespace {

// Ends the region of autocast around a trace, to open it inside: what lies inside hands calls on to the trace.
class AutocastAround {
 public:
  AutocastAround() : state_(autocast_state()) { set(false); }
  ~AutocastAround() { set_autocast(state_); }
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
  AutocastAround autocast;
  auto inside = [&](std::span<const Tensor> given) {
    struct Region {
      explicit Region(const AutocastAround* a) : around(a) { around->set(true); }
      ~Region() { around->set(false); }
      const AutocastAround* around;
    } region(&autocast);
    return f(given);
  };
  auto capture = graph::capture(std::move(shapes), specs, inside, name.c_str());
  return std::make_unique<Traced>(std::move(capture), std::move(name));
}

}  // namespace facula::run
