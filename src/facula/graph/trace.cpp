#include "facula/graph/trace.h"

#include <optional>
#include <unordered_map>

#include "facula/base/settings.h"
#include "facula/graph/passes.h"
#include "facula/graph/recording.h"

namespace facula::graph {

InputSpec symbolic_spec(const Tensor& t, sym::Shapes& shapes) {
  Dims sizes;
  for (auto s : t.sizes()) {
    int64_t n = s.hint();
    SymInt size = n;
    if (n > 1) {  // equal hints share a symbol, so that equalities need no guards
      size = SymInt(int64_t(-1));
      for (int k = 0; k < shapes.symbol_count(); ++k)
        if (shapes.symbol(k).hint() == n) size = shapes.symbol(k);
      if (!size.is_symbolic()) size = shapes.fresh("s" + std::to_string(shapes.symbol_count()), n);
    }
    sizes.push_back(size);
  }
  return spec_with(t, std::move(sizes));
}

InputSpec spec_with(const Tensor& t, Dims sizes) {
  InputSpec spec{t.dtype(), std::move(sizes), {}, t.impl()->wrapped_number};
  // Strides of dimensions of size 1 order the dimensions of results.
  if (t.is_contiguous() && std::ranges::equal(t.strides(), contiguous_strides(Dims(t.sizes())))) return spec;
  if (!t.is_non_overlapping_and_dense()) {
    spec.strides = Dims(t.strides());
    return spec;
  }
  Ints order;
  for (int d = 0; d < t.dim(); ++d) order.push_back(d);
  auto hints = t.strides();
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return hints[size_t(a)].hint() > hints[size_t(b)].hint(); });
  spec.strides.resize(size_t(t.dim()));
  SymInt next = int64_t(1);
  for (int k = t.dim() - 1; k >= 0; --k) {
    auto d = size_t(order[size_t(k)]);
    spec.strides[d] = next;
    next *= spec.sizes[d];
  }
  return spec;
}

InputSpec spec_of(const Tensor& t) {
  return {t.dtype(), Dims(t.sizes()), Dims(t.strides()), t.impl()->wrapped_number};
}

namespace {

thread_local KeepRules::Which keep_rules = KeepRules::none;

// Removes nodes from a checkpoint if their results leave it: only values that are read inside of it and by backward
// passes are recomputed. Checkpoints are numbered in order, from one.
void close_checkpoints(Graph& g) {
  auto leaves = [](Value* v, int to) {
    if (v && v->producer && v->producer->place.checkpoint != to) v->producer->place.checkpoint = 0;
  };
  for (auto* v : g.outputs) leaves(v, 0);
  for (auto& [i, v] : g.mutated) leaves(v, 0);
  for (auto& n : g.nodes)
    if (n->place.phase == 0)
      for (auto* v : operands(*n)) leaves(v, n->place.checkpoint);
  std::unordered_map<int, int> numbers{{0, 0}};
  for (auto& n : g.nodes)
    n->place.checkpoint = numbers.try_emplace(n->place.checkpoint, int(numbers.size())).first->second;
}

}  // namespace

static thread_local Recording* current_recording = nullptr;
static thread_local bool reads_enclosing = false;

ReadsEnclosing::ReadsEnclosing() : outer_(std::exchange(reads_enclosing, true)) {}
ReadsEnclosing::~ReadsEnclosing() { reads_enclosing = outer_; }

Recording::Recording(std::shared_ptr<sym::Shapes> shapes, std::span<const InputSpec> inputs, Capture* capture)
    : capture_(capture), tracer_(&graph_, capture) {
  graph_.shapes = std::move(shapes);
  for (auto& spec : inputs) {
    auto* v = graph_.add_value(spec.sizes,
                               spec.strides.size() == spec.sizes.size() ? spec.strides
                                                                        : contiguous_strides(spec.sizes),
                               spec.dtype);
    v->tensor.impl()->wrapped_number = spec.number;
    graph_.inputs.push_back(v);
    if (capture) hold(v->tensor);
    arguments_.push_back(handle(v));
    arguments_.back().impl()->requires_grad = spec.requires_grad;
  }
  if (capture) gradients_.emplace(tracer_, &graph_, arguments_);
}

Recording::Active::Active(Recording& r)
    : recording_(r),
      outer_(std::exchange(current_recording, r.capture_ ? &r : current_recording)),
      host_(r.capture_ ? &r.tracer_ : nullptr, r.capture_ ? &r.capture_->reads : nullptr),
      place_(r.at_),
      symbols_(*r.graph_.shapes),
      on_(&r.tracer_),
      tape_(r.gradients_ ? &*r.gradients_ : autograd::Tracing::current()) {
  if (!r.capture_) return;
  rules_.emplace();
  if (std::exchange(reads_enclosing, false) && outer_) r.tracer_.read_values_of(outer_->tracer_);
}

Recording::Active::~Active() {
  recording_.at_ = At::now();
  current_recording = outer_;
}

Recording* Recording::current() { return current_recording; }

Tensor Recording::number(const Tensor& t) {
  InputSpec spec = spec_of(t);
  spec.number = true;
  Tensor h = handle(outside_value(outside(t, spec)));
  tracer_.keep(h);
  return h;
}

size_t Recording::outside(const Tensor& t, const InputSpec& spec) {
  auto [it, fresh] = outside_numbers_.try_emplace(t.impl(), int(arguments_.size() + outside_.size()));
  if (!fresh) return size_t(it->second) - arguments_.size();
  outside_.push_back(t);
  outside_values_.push_back(tracer_.outside(t, spec));
  return outside_.size() - 1;
}

// Makes inputs of the tensors from outside: those that were announced, then those that were captured.
void Recording::give_inputs() {
  for (auto* v : outside_values_) {
    v->constant = Tensor();
    graph_.inputs.push_back(v);
  }
  for (size_t k = 0; k < graph_.values().size(); ++k) {
    auto* v = graph_.values()[k].get();
    if (!v->constant.defined() || v->constant.impl()->wrapped_number) continue;
    capture_->captured.push_back(std::exchange(v->constant, Tensor()));
    graph_.inputs.push_back(v);
  }
}

void Recording::list_writes() {
  for (size_t i = 0; i < graph_.inputs.size(); ++i) {
    auto* input = graph_.inputs[i];
    Value* now = tracer_.current(input);
    bool argument = i < arguments_.size();
    trace_check(!capture_ || !argument || has_layout_of(arguments_[i], input->tensor), layout, "trace")
        << "of a function that changes the sizes or strides of its argument " << i << " in place, from "
        << to_string(input->tensor.sizes()) << " to " << to_string(arguments_[i].sizes())
        << hint("take a view of it inside, as by t() in place of t_()");
    if (!capture_ && now == input && argument) now = value_of(arguments_[i]);
    if (now != input) graph_.mutated.push_back({int(i), now});
  }
}

void Recording::keep_checks() {
  auto refuses = [](const auto& n) { return may_refuse(*n) && !n->op->template is<op::Foreign>(); };
  if (!on_unread_ && std::ranges::none_of(graph_.nodes, refuses)) return;
  std::vector<bool> live(graph_.values().size());  // by number
  auto mark = [&](const Value* v) { live[size_t(v->id)] = true; };
  for (auto* o : graph_.outputs)
    if (o) mark(o);
  for (auto& [i, v] : graph_.mutated) mark(v);
  for (size_t k = graph_.nodes.size(); k-- > 0;) {
    auto& n = graph_.nodes[k];
    auto& effects = n->op->effects;
    bool used = n->op->schema.mutates() || effects.draws || effects.ordered ||
                std::ranges::any_of(n->results, [&](auto* r) { return live[size_t(r->id)]; });
    if (!used && refuses(n)) {
      if (!n->op->is<op::DataDependent>()) graph_.outputs.push_back(n->results.at(0));
      used = true;
    }
    if (used) each_operand(*n, mark);
    else if (on_unread_) on_unread_(*n);
  }
}

void Recording::take_back_draws(size_t first) {
  auto begin = graph_.nodes.begin() + std::ptrdiff_t(first);
  if (std::none_of(begin, graph_.nodes.end(), [](auto& n) { return n->op->effects.draws; })) return;
  std::move(begin, graph_.nodes.end(), std::back_inserter(removed_));
  graph_.nodes.resize(first);
}

Graph Recording::finish(std::span<const Tensor> results) {
  for (auto& t : results) {
    auto* v = !t.defined() ? nullptr : tracer_.is_own(t) ? value_of(t) : tracer_.constant(t);
    graph_.outputs.push_back(v ? tracer_.current(v) : nullptr);
  }
  if (capture_) {
    capture_->results = graph_.outputs.size();
    capture_->lines = tracer_.take_lines();
    gradients_->check_results(results);
    for (size_t k = 0; k < results.size(); ++k) {
      auto* m = results[k].defined() && results[k].is_traced() ? autograd::meta_of(results[k]) : nullptr;
      if (!m || !m->retained || !m->retained->grad.defined()) continue;
      capture_->retained.emplace_back(k, graph_.outputs.size());
      graph_.outputs.push_back(tracer_.current_value(m->retained->grad));
    }
    gradients_->finish(*capture_, outside_numbers_);
    for (auto& t : outside_) capture_->required.push_back(t.requires_grad());
    give_inputs();
  }
  list_writes();
  if (capture_)
    for (auto& [i, v] : graph_.mutated)
      if (size_t captured = graph_.inputs.size() - capture_->captured.size(); size_t(i) >= captured)
        tracer_.check_names(capture_->captured[size_t(i) - captured], capture_->captured);
  if (capture_) keep_checks();
  auto outdated = capture_ && !capture_->differentiates ? tracer_.outdated() : std::vector<const Node*>();
  remove_dead(graph_);
  for (auto* n : outdated)
    for (auto& alive : graph_.nodes)
      if (alive.get() == n) Tracer::check_outdated(*n);
  if (capture_) close_checkpoints(graph_);
  if (settings().verify) verify(graph_);
  return std::move(graph_);
}

Graph traced(std::shared_ptr<sym::Shapes> shapes, std::span<const InputSpec> inputs, const Function& f,
             Capture* capture) {
  Recording recording(std::move(shapes), inputs, capture);
  Recording::Active on(recording);
  return recording.finish(f(recording.arguments()));
}

std::string elements_of(const Tensor& t) {
  std::string bytes;
  auto sizes = t.int_sizes(), strides = t.int_strides();
  auto* data = static_cast<const char*>(t.data_ptr());
  auto size = size_t(t.itemsize());
  auto append = [&](auto& self, size_t d, int64_t at) -> void {
    if (d == sizes.size()) {
      bytes.append(data + size_t(at) * size, size);
      return;
    }
    for (int64_t i = 0; i < sizes[d]; ++i) self(self, d + 1, at + i * strides[d]);
  };
  append(append, 0, 0);
  return bytes;
}

KeepRules::KeepRules(Which which) : outer_(std::exchange(keep_rules, which)) {}
KeepRules::~KeepRules() { keep_rules = outer_; }
KeepRules::Which KeepRules::now() { return keep_rules; }

Graph trace(std::shared_ptr<sym::Shapes> shapes, std::span<const InputSpec> inputs, const Function& f,
            const char*) {
  KeepRules keep(KeepRules::of_composites);
  return traced(std::move(shapes), inputs, f, nullptr);
}

void complete(Capture& c, size_t argument_count, const char* name) {
  c.graph.renumber();
  // A write to memory that is captured as two tensors would have to be visible in both.
  for (auto& [i, v] : c.graph.mutated) {
    if (size_t(i) < argument_count) continue;
    auto& written = c.captured[size_t(i) - argument_count];
    for (auto& other : c.captured) {
      bool apart = other.is_traced() || other.impl()->storage != written.impl()->storage;
      trace_runtime_check(other.is_same(written) || apart, alias, name)
          << "writes to a captured tensor of shape " << to_string(written.sizes())
          << " whose memory it also reads as another tensor, of shape " << to_string(other.sizes())
          << hint("make the view inside of the function");
    }
  }
}

Capture capture(std::shared_ptr<sym::Shapes> shapes, std::span<const InputSpec> inputs, const Function& f,
                const char* name) {
  Capture c;
  c.graph = traced(std::move(shapes), inputs, f, &c);
  complete(c, c.graph.inputs.size() - c.captured.size(), name);
  return c;
}

void write_back(const Graph& g, std::span<const Tensor> inputs, std::span<const Tensor> written,
                std::vector<Tensor>& outputs) {
  for (size_t k = 0; k < written.size(); ++k) {
    auto* input = inputs[size_t(g.mutated[k].first)].impl();
    for (auto& t : outputs)
      if (t.defined() && t.impl() == input) t = handle(value_of(t));
  }
  for (size_t k = 0; k < written.size(); ++k)
    inputs[size_t(g.mutated[k].first)].impl()->traced = value_of(written[k]);
}

Graph expanded(const Graph& g, std::shared_ptr<sym::Shapes> shapes, const NodeCall& call) {
  std::vector<InputSpec> specs;
  for (auto* v : g.inputs) specs.push_back(spec_of(v->tensor));
  auto calls = [&](std::span<const Tensor> arguments) {
    KeepRules off(KeepRules::none);
    auto outputs = interpret(g, arguments, {}, true, call);
    std::vector<Tensor> written(outputs.end() - std::ptrdiff_t(g.mutated.size()), outputs.end());
    outputs.resize(g.outputs.size());
    write_back(g, arguments, written, outputs);
    return outputs;
  };
  Graph result = trace(std::move(shapes), specs, calls, "expanded");
  result.results = g.results;
  return result;
}

}  // namespace facula::graph
