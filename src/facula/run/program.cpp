#include "facula/run/program.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "facula/base/bounded.h"
#include "facula/base/fork.h"
#include "facula/base/hash.h"
#include "facula/base/log.h"
#include "facula/base/settings.h"
#include "facula/codegen/background.h"
#include "facula/codegen/kernel.h"
#include "facula/graph/passes.h"
#include "facula/graph/trace.h"
#include "facula/op/call.h"
#include "facula/op/registry.h"
#include "facula/run/execute.h"
#include "facula/run/key.h"
#include "facula/run/layout.h"
#include "facula/run/pipeline.h"
#include "facula/run/plan.h"
#include "facula/run/stored_plan.h"
#include "facula/schedule/schedule.h"

namespace facula::run {

using graph::Graph;
using graph::Node;
using op::Results;
using op::Tag;
using schedule::Step;

struct Program::State : NumberedGraph {
  TableMutex mutex;
  Bounded<Key, std::shared_ptr<const Plan>, KeyHash> plans{kMaxPlans};

  // Number of plans that were looked up on the disk; only the first ones of a program are.
  std::atomic<int> looked_for{0};
  std::atomic<bool> planned{false};  // a plan was made at least once
  static constexpr int kStored = 8;
  GraphName name_on_disk;
  // Number of guards of the trace. Lowering may add guards, which a stored plan could not carry; such a plan is not stored.
  size_t guards = 0;

  // Fused when the first plan is made that is not on the disk.
  const std::vector<Step>& steps() {
    if (auto* fused = fused_.load(std::memory_order_acquire)) return *fused;
    auto steps = pipeline::fuse(graph, name);
    std::lock_guard lock(mutex);
    if (!fused_.load(std::memory_order_relaxed)) {
      steps_ = std::move(steps);
      fused_.store(&steps_, std::memory_order_release);
    }
    return steps_;
  }

  bool is_fused() const { return fused_.load(std::memory_order_relaxed); }

  // A plan with the outline of an earlier plan, or null.
  std::shared_ptr<const Plan> resized(IntSpan symbols) {
    std::vector<std::shared_ptr<const Outline>> candidates;
    {
      std::lock_guard lock(mutex);
      candidates = outlines_;
    }
    for (auto& o : candidates)
      if (auto plan = make_plan(*this, steps(), symbols, o)) {
        keep(o);
        return plan;
      }
    return nullptr;
  }
  // Other sizes will use this outline.
  void keep(const std::shared_ptr<const Outline>& outline) {
    if (!outline->general) return;
    std::lock_guard lock(mutex);
    auto it = std::find(outlines_.begin(), outlines_.end(), outline);
    if (it == outlines_.end()) {
      if (outlines_.size() == kOutlines) outlines_.pop_back();
      it = outlines_.insert(outlines_.end(), outline);
    }
    std::rotate(outlines_.begin(), it, it + 1);
  }

 private:
  std::vector<Step> steps_;
  std::atomic<const std::vector<Step>*> fused_{nullptr};
  static constexpr size_t kOutlines = 4;
  std::vector<std::shared_ptr<const Outline>> outlines_;  // most recently used first
};

// Whether the inputs have their traced strides.
static bool lie_as_traced(const Graph& g, IntSpan symbols, std::span<const Tensor> at) {
  for (auto* v : g.inputs) {
    auto traced = v->tensor.strides(), strides = at[size_t(v->id)].strides();
    for (size_t d = 0; d < traced.size(); ++d)
      if (sym::evaluate(traced[d], symbols) != strides[d].concrete()) return false;
  }
  return true;
}

Program::Program(Graph g, std::string name, std::shared_ptr<const Keeper> keeper)
    : Program(Simplified{pipeline::simplify(std::move(g), name), ""}, name, std::move(keeper)) {}

Program::Program(Simplified g, std::string name, std::shared_ptr<const Keeper> keeper)
    : state_(std::make_unique<State>()) {
  auto& s = *state_;
  s.keeper = std::move(keeper);
  s.name = std::move(name);
  s.graph = std::move(g.graph);
  if (settings().verify) graph::verify(s.graph);
  if (log_on(Log::passes)) log_line(Log::passes, s.name + "\n" + graph::print(s.graph));
  s.number();
  if (!g.stored.empty()) s.name_on_disk.set(std::move(g.stored), !s.constants.empty());
  if (s.graph.shapes) s.guards = s.graph.shapes->guards().size();
}

Program::~Program() = default;

const Graph& Program::graph() const { return state_->graph; }

bool Program::writes_onto(size_t i) const {
  auto& s = *state_;
  auto& steps = s.steps();
  if (steps.size() != 1 || steps[0].kind != Step::Kind::kernel || s.graph.outputs.size() != 1) return false;
  auto& step = steps[0];
  if (step.outputs.size() != 1 || step.outputs[0] != s.graph.outputs[0]) return false;
  bool safe = true;
  for (size_t b = 0; b < step.inputs.size(); ++b) {
    if (step.inputs[b] != s.graph.inputs[i]) continue;
    if (!step.group.scatter) {
      safe &= reads_only_own_element(step.group, int(b), 0);
      continue;
    }
    auto& scatter = *step.group.scatter;
    auto look = [&](loop::Expr e) { safe &= e->kind != loop::Kind::load || e->slot != int(b); };
    safe &= scatter.base == int(b);
    for (auto& t : scatter.target) loop::visit(t, look);
    loop::visit(scatter.value, look);
  }
  return safe;
}

bool Program::accepts(std::span<const op::Value> inputs) const {
  auto& g = state_->graph;
  if (inputs.size() != g.inputs.size()) return false;
  std::vector<int64_t> symbols(size_t(g.shapes->symbol_count()), -1);
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto& spec = g.inputs[i]->tensor;
    if (inputs[i].tag != Tag::tensor) {
      if (!spec.impl()->wrapped_number || op::operand_dtype(inputs[i]) != spec.dtype()) return false;
      continue;
    }
    auto* t = inputs[i].tensor;
    if (t->dtype != spec.dtype() || t->sizes.size() != spec.sizes().size() ||
        t->wrapped_number != spec.impl()->wrapped_number)
      return false;
    for (size_t d = 0; d < t->sizes.size(); ++d) {
      int64_t n = t->sizes[d].concrete();
      auto s = spec.sizes()[d];
      if (!s.is_symbolic()) {
        if (s.concrete() != n) return false;
      } else if (s.is_symbol()) {  // sizes of values that a backward pass saved may be expressions over these
        if (n < 2) return false;
        auto& value = symbols[size_t(s.node()->value)];
        if (value >= 0 && value != n) return false;
        value = n;
      }
    }
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].tag != Tag::tensor) continue;
    auto expected = g.inputs[i]->tensor.strides();
    for (size_t d = 0; d < expected.size(); ++d)
      if (inputs[i].tensor->sizes[d].concrete() != 1 &&
          sym::evaluate(expected[d], symbols) != inputs[i].tensor->strides[d].concrete())
        return false;
  }
  return g.shapes->hold(symbols);
}

// The values of the symbols for these inputs.
static std::vector<int64_t> symbols_of(const Graph& g, std::span<const op::Value> inputs, int64_t unknown) {
  std::vector<int64_t> symbols(size_t(g.shapes->symbol_count()), unknown);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].tag != Tag::tensor) continue;
    auto sizes = g.inputs[i]->tensor.sizes();
    for (size_t d = 0; d < sizes.size(); ++d)
      if (sizes[d].is_symbol())
        symbols[size_t(sizes[d].node()->value)] = inputs[i].tensor->sizes[d].concrete();
  }
  return symbols;
}

Dims Program::output_sizes(size_t k, std::span<const op::Value> inputs) const {
  auto& g = state_->graph;
  auto symbols = symbols_of(g, inputs, 0);
  Dims sizes;
  for (SymInt s : g.outputs[k]->tensor.sizes()) sizes.push_back(sym::evaluate(s, symbols));
  return sizes;
}

std::shared_ptr<const Plan> Program::plan(std::span<const op::Value> inputs,
                                          std::span<const Tensor> out) const {
  auto& s = *state_;
  auto& g = s.graph;
  auto symbols = symbols_of(g, inputs, 0);
  std::vector<Tensor> at(g.values().size());  // by value number: concrete sizes and strides
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto* v = g.inputs[i];
    if (inputs[i].tag != Tag::tensor) {
      at[size_t(v->id)] = fake({{}, v->tensor.dtype()});
      at[size_t(v->id)].impl()->wrapped_number = true;
      continue;
    }
    at[size_t(v->id)] = Tensor(Ref<TensorImpl>::share(inputs[i].tensor));
  }
  std::string stored;
  if (s.looked_for.load(std::memory_order_relaxed) < State::kStored && s.looked_for++ < State::kStored)
    stored = stored_name(s.name, s.name_on_disk, g, symbols, inputs, out);
  std::shared_ptr<const Plan> plan;
  if (!stored.empty() && !s.is_fused()) plan = load_plan(stored, g, symbols);
  if (plan) {
    s.planned.store(true, std::memory_order_relaxed);
    s.keep(plan->outline);
    return plan;
  }
  bool like_others = lie_as_traced(g, symbols, at) && std::ranges::none_of(out, &Tensor::defined);
  if (like_others) plan = s.resized(symbols);
  if (!plan || settings().verify) {
    bool again = s.planned.exchange(true, std::memory_order_relaxed);
    auto complete_plan = make_plan(s, s.steps(), symbols, std::move(at), out, like_others && again);
    if (plan) {
      check_same(*plan, *complete_plan);
    } else {
      s.keep(complete_plan->outline);
      plan = std::move(complete_plan);
    }
  }
  if (!stored.empty() && g.shapes->guards().size() == s.guards) store_plan(stored, g, *plan);
  return plan;
}

std::function<void()> Program::preparation(std::span<const op::Value> like, const Graph& of) const {
  auto& g = state_->graph;
  if (g.shapes != of.shapes) return {};
  auto symbols = symbols_of(of, like, -1);
  auto follows = [&](SymInt e) {
    auto of_node = [&](const sym::Node* n, auto& self) -> bool {
      if (n->kind == sym::Kind::symbol) return symbols[size_t(n->value)] >= 0;
      return (!n->a || self(n->a, self)) && (!n->b || self(n->b, self));
    };
    return !e.is_symbolic() || of_node(e.node(), of_node);
  };
  std::vector<Tensor> inputs;
  for (auto* v : g.inputs) {
    op::Meta m{{}, v->tensor.dtype()};
    for (auto e : v->tensor.sizes()) {
      if (!follows(e)) return {};
      m.sizes.push_back(sym::evaluate(e, symbols));
    }
    for (auto e : v->tensor.strides()) {
      if (!follows(e)) return {};
      m.strides.push_back(sym::evaluate(e, symbols));
    }
    inputs.push_back(fake(m));
    inputs.back().impl()->wrapped_number = v->tensor.impl()->wrapped_number;
  }
  return [this, inputs = std::move(inputs)] {
    std::vector<op::Value> values;
    static const std::complex<double> zero;  // zero in every dtype
    for (auto& t : inputs)
      values.push_back(t.impl()->wrapped_number ? op::Value(Scalar::load(t.dtype(), &zero)) : op::Value(t));
    Key key;
    for (auto& v : values) append(key, v);
    auto new_plan = plan(values, {});
    std::lock_guard lock(state_->mutex);
    if (!state_->plans.find(key)) state_->plans.put(std::move(key), std::move(new_plan));
  };
}

std::shared_ptr<const Plan> Program::plan_of_elements(std::span<const op::Value> inputs) const {
  auto& s = *state_;
  if (!s.outputs.empty()) return nullptr;
  for (auto& n : s.graph.nodes)
    if (!n->op->is<op::Pointwise>()) return nullptr;
  auto p = plan(inputs, {});
  for (auto& [i, v] : s.graph.mutated)
    if (p->outline->written_to[size_t(v->id)] < 0) return nullptr;
  return p;
}

Results Program::execute(const Plan& plan, std::span<const op::Value> inputs, std::span<const Tensor> out,
                         bool logical) const {
  return run::execute(plan, *state_, inputs, out, logical);
}

Results Program::run(std::span<const op::Value> inputs, std::span<const Tensor> out) const {
  auto& s = *state_;
  Key key;
  for (auto& v : inputs) append(key, v);
  for (auto& t : out) append(key, t, inputs);
  std::shared_ptr<const Plan> cached;
  {
    std::lock_guard lock(s.mutex);
    if (auto* entry = s.plans.find(key)) cached = *entry;
  }
  if (!cached) {
    cached = plan(inputs, out);
    std::lock_guard lock(s.mutex);
    s.plans.put(std::move(key), cached);
  }
  return execute(*cached, inputs, out);
}

}  // namespace facula::run
