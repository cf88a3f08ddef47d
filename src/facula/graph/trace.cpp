#include "facula/graph/trace.h"

#include <optional>
#include <unordered_map>

#include "facula/base/settings.h"
#include "facula/graph/passes.h"
#include "facula/graph/trace_gradients.h"
#include "facula/graph/tracer.h"

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

Graph traced(std::shared_ptr<sym::Shapes> shapes, std::span<const InputSpec> inputs, const Function& f,
             Capture* capture) {
  Graph g;
  g.shapes = shapes;
  std::vector<Tensor> arguments;
  for (auto& spec : inputs) {
    auto* v =
        g.add_value(spec.sizes,
                    spec.strides.size() == spec.sizes.size() ? spec.strides : contiguous_strides(spec.sizes),
                    spec.dtype);
    v->tensor.impl()->wrapped_number = spec.number;
    g.inputs.push_back(v);
    arguments.push_back(handle(v));
    arguments.back().impl()->requires_grad = spec.requires_grad;
  }
  Tracer tracer(&g, capture);
  Tracer::Observed host(capture ? &tracer : nullptr, capture ? &capture->reads : nullptr);
  At first({});
  sym::Shapes::With symbols(*shapes);
  op::Mode::With on(&tracer);
  std::optional<Gradients> gradients;
  if (capture) gradients.emplace(tracer, &g, arguments);
  autograd::Tracing::With tape(gradients ? &*gradients : autograd::Tracing::current());
  for (auto& t : f(arguments)) {
    auto* v = !t.defined() ? nullptr : t.is_traced() ? value_of(t) : tracer.constant(t);
    g.outputs.push_back(v ? tracer.current(v) : nullptr);
  }
  if (capture) {
    capture->results = g.outputs.size();
    gradients->finish(*capture);
    for (size_t k = 0; k < g.values().size(); ++k) {
      auto* v = g.values()[k].get();
      if (!v->constant.defined() || v->constant.impl()->wrapped_number) continue;
      capture->captured.push_back(std::exchange(v->constant, Tensor()));
      g.inputs.push_back(v);
    }
  }
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    Value* now = tracer.current(g.inputs[i]);
    supported_check(!capture || i >= arguments.size() || has_layout_of(arguments[i], g.inputs[i]->tensor),
                    "trace")
        << "of a function that changes the sizes or strides of its argument " << i << " in place, from "
        << to_string(g.inputs[i]->tensor.sizes()) << " to " << to_string(arguments[i].sizes())
        << hint("take a view of it inside, as by t() in place of t_()");
    if (!capture && now == g.inputs[i] && i < arguments.size()) now = value_of(arguments[i]);
    if (now != g.inputs[i]) g.mutated.push_back({int(i), now});
  }
  auto outdated = capture && !capture->differentiates ? tracer.outdated() : std::vector<const Node*>();
  remove_dead(g);
  for (auto* n : outdated)
    for (auto& alive : g.nodes)
      if (alive.get() == n) Tracer::check_outdated(*n);
  if (capture) close_checkpoints(g);
  if (settings().verify) verify(g);
  return g;
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

Capture capture(std::shared_ptr<sym::Shapes> shapes, std::span<const InputSpec> inputs, const Function& f,
                const char* name) {
  Capture c;
  KeepRules keep;
  c.graph = traced(std::move(shapes), inputs, f, &c);
  c.graph.renumber();
  // A write to memory that is captured as two tensors would have to be visible in both.
  for (auto& [i, v] : c.graph.mutated) {
    if (size_t(i) < inputs.size()) continue;
    auto& written = c.captured[size_t(i) - inputs.size()];
    for (auto& other : c.captured)
      runtime_check(other.is_same(written) || other.impl()->storage != written.impl()->storage, name)
          << "writes to a captured tensor of shape " << to_string(written.sizes())
          << " whose memory it also reads as another tensor, of shape " << to_string(other.sizes())
          << hint("make the view inside of the function");
  }
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

Graph expanded(const Graph& g, std::shared_ptr<sym::Shapes> shapes) {
  std::vector<InputSpec> specs;
  for (auto* v : g.inputs) specs.push_back(spec_of(v->tensor));
  auto calls = [&](std::span<const Tensor> arguments) {
    KeepRules off(KeepRules::none);
    auto outputs = interpret(g, arguments, {}, true);
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
