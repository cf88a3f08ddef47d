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
#include "facula/codegen/ahead.h"
#include "facula/codegen/kernel.h"
#include "facula/graph/passes.h"
#include "facula/graph/trace.h"
#include "facula/op/call.h"
#include "facula/op/registry.h"
#include "facula/run/key.h"
#include "facula/run/layout.h"
#include "facula/run/plan.h"
#include "facula/run/stored_plan.h"

namespace facula::run {

using graph::Graph;
using graph::Node;
using op::Results;
using op::Tag;
using schedule::Step;

struct Program::State {
  Graph graph;
  std::string name;
  std::vector<int> input_values, output_values;  // numbers; -1: none
  std::vector<graph::Value*> constants;
  bool output_repeats = false;  // is a value the output twice?
  TableMutex mutex;
  Bounded<Key, std::shared_ptr<const Plan>, KeyHash> plans{kMaxPlans};

  // Plans that were looked for on the disk, which a program does for its first ones.
  std::atomic<int> looked_for{0};
  static constexpr int kStored = 8;

  // Fused when the first plan is made that was not stored.
  const std::vector<Step>& steps() {
    if (auto* known = fused_.load(std::memory_order_acquire)) return *known;
    auto made = schedule::fuse(graph, schedule::Between::exact);
    std::lock_guard lock(mutex);
    if (!fused_.load(std::memory_order_relaxed)) {
      steps_ = std::move(made);
      fused_.store(&steps_, std::memory_order_release);
    }
    return steps_;
  }

 private:
  std::vector<Step> steps_;
  std::atomic<const std::vector<Step>*> fused_{nullptr};
};

Program::Program(Graph g, std::string name) : state_(std::make_unique<State>()) {
  auto& s = *state_;
  bool expands = std::any_of(g.nodes.begin(), g.nodes.end(), [](auto& n) { return n->op->calls(); });
  s.graph = expands ? graph::expanded(g, g.shapes) : std::move(g);
  s.name = std::move(name);
  graph::merge_equal(s.graph);
  graph::rematerialize(s.graph);
  if (settings().verify) graph::verify(s.graph);
  if (log_on(Log::passes)) log_line(Log::passes, s.name + "\n" + graph::print(s.graph));
  for (auto* v : s.graph.inputs) s.input_values.push_back(v->id);
  for (auto* v : s.graph.outputs) {
    int id = v ? v->id : -1;
    s.output_repeats |=
        std::find(s.output_values.begin(), s.output_values.end(), id) != s.output_values.end();
    s.output_values.push_back(id);
  }
  for (auto& v : s.graph.values())
    if (v->constant.defined()) s.constants.push_back(v.get());
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
      safe &= reads_only_own_element(step.group, int(b));
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
      } else if (s.is_symbol()) {  // what a backward saved may have computed sizes: they are made of these
        if (n < 2) return false;
        auto& known = symbols[size_t(s.node()->value)];
        if (known >= 0 && known != n) return false;
        known = n;
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

std::shared_ptr<const Plan> Program::plan(std::span<const op::Value> inputs,
                                          std::span<const Tensor> out) const {
  auto& s = *state_;
  auto& g = s.graph;
  std::vector<int64_t> symbols(size_t(g.shapes->symbol_count()), 0);
  std::vector<Tensor> at(g.values().size());  // what each value will be: concrete sizes and strides
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto* v = g.inputs[i];
    if (inputs[i].tag != Tag::tensor) {
      at[size_t(v->id)] = fake({{}, v->tensor.dtype()});
      at[size_t(v->id)].impl()->wrapped_number = true;
      continue;
    }
    at[size_t(v->id)] = Tensor(Ref<TensorImpl>::share(inputs[i].tensor));
    for (size_t d = 0; d < v->tensor.sizes().size(); ++d)
      if (auto size = v->tensor.sizes()[d]; size.is_symbol())
        symbols[size_t(size.node()->value)] = inputs[i].tensor->sizes[d].concrete();
  }
  std::string stored;
  if (s.looked_for.load(std::memory_order_relaxed) < State::kStored && s.looked_for++ < State::kStored)
    stored = stored_name(s.name, g, symbols, inputs, out);
  if (!stored.empty())
    if (auto known = load_plan(stored, g, symbols)) return known;
  auto& steps = s.steps();
  auto plan = make_plan({g, steps, s.name, s.input_values, s.output_values, s.output_repeats}, symbols,
                        std::move(at), out);
  if (!stored.empty()) store_plan(stored, g, *plan);
  return plan;
}

std::function<void()> Program::preparation(std::span<const op::Value> like, const Graph& of) const {
  auto& g = state_->graph;
  if (g.shapes != of.shapes) return {};
  std::vector<int64_t> symbols(size_t(g.shapes->symbol_count()), -1);
  for (size_t i = 0; i < like.size(); ++i) {
    if (like[i].tag != Tag::tensor) continue;
    auto sizes = of.inputs[i]->tensor.sizes();
    for (size_t d = 0; d < sizes.size(); ++d)
      if (sizes[d].is_symbol()) symbols[size_t(sizes[d].node()->value)] = like[i].tensor->sizes[d].concrete();
  }
  auto known = [&](SymInt e) {
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
      if (!known(e)) return {};
      m.sizes.push_back(sym::evaluate(e, symbols));
    }
    for (auto e : v->tensor.strides()) {
      if (!known(e)) return {};
      m.strides.push_back(sym::evaluate(e, symbols));
    }
    inputs.push_back(fake(m));
    inputs.back().impl()->wrapped_number = v->tensor.impl()->wrapped_number;
  }
  return [this, inputs = std::move(inputs)] {
    std::vector<op::Value> values;
    static const std::complex<double> zero;  // in every dtype
    for (auto& t : inputs)
      values.push_back(t.impl()->wrapped_number ? op::Value(Scalar::load(t.dtype(), &zero)) : op::Value(t));
    Key key;
    for (auto& v : values) append(key, v);
    auto made = plan(values, {});
    std::lock_guard lock(state_->mutex);
    if (!state_->plans.find(key)) state_->plans.put(std::move(key), std::move(made));
  };
}

std::shared_ptr<const Plan> Program::plan_of_elements(std::span<const op::Value> inputs) const {
  auto& s = *state_;
  if (!s.output_values.empty()) return nullptr;
  for (auto& n : s.graph.nodes)
    if (!n->op->is<op::Pointwise>()) return nullptr;
  auto p = plan(inputs, {});
  for (auto& [i, v] : s.graph.mutated)
    if (p->written_to[size_t(v->id)] < 0) return nullptr;
  return p;
}

namespace {

alignas(64) thread_local char nothing[64];  // what stands for a tensor without elements

// Tensors by value number, on the stack where they are few.
class Made {
 public:
  explicit Made(size_t n) : many_(n > kFew ? new Tensor[n] : nullptr), all_(many_ ? many_.get() : few_) {}
  Tensor& operator[](int v) { return all_[v]; }

 private:
  static constexpr size_t kFew = 12;
  Tensor few_[kFew];
  std::unique_ptr<Tensor[]> many_;
  Tensor* all_;
};

struct Number {
  alignas(16) std::byte bytes[16];
};

// The results of a user's function must be what it was said that they would be; in memory they come to lie so.
void conform(const op::Operator& o, Results& results, const Plan& plan, std::span<const int> values) {
  runtime_check(results.size() == values.size(), o.name())
      << "gave " << results.size() << " tensors, but its fake implementation " << values.size();
  for (size_t k = 0; k < values.size(); ++k) {
    auto& expected = plan.results[size_t(values[k])].meta;
    auto& t = results[k];
    bool same = t.dtype() == expected.dtype && Dims(t.sizes()) == expected.sizes;
    runtime_check(same, o.name()) << "gave " << t.dtype() << to_string(t.sizes()) << " as result " << k
                                  << ", but its fake implementation " << expected.dtype
                                  << to_string(SymSpan(expected.sizes));
    if (Dims(t.strides()) == expected.strides) continue;
    Tensor copy = Tensor::empty_strided(expected.sizes, expected.strides, expected.dtype, expected.device);
    op::Value args[] = {copy, t};
    op::call(op::get("copy"), args, op::Form::in_place);
    t = copy;
  }
}

}  // namespace

Results Program::execute(const Plan& plan, std::span<const op::Value> inputs,
                         std::span<const Tensor> out) const {
  auto& s = *state_;
  auto fresh = [](const Plan::Result& r) {
    auto& m = r.meta;
    return Tensor(make_ref<TensorImpl>(make_ref<StorageImpl>(r.bytes, m.device), m.sizes, m.strides, SymInt(),
                                       m.dtype, m.device));
  };
  if (plan.direct && !any_hidden(inputs) && !any_hidden(out)) {
    auto& d = *plan.direct;
    void* buffers[Plan::kDirect];
    Number numbers[Plan::kDirect];
    Results results;
    for (size_t k = 0; k < d.inputs.size(); ++k) {
      auto& v = inputs[size_t(d.inputs[k])];
      if (v.tag == Tag::tensor) {
        buffers[k] = v.tensor->data_ptr();
      } else {
        v.number().store(op::operand_dtype(v), numbers[k].bytes);
        buffers[k] = numbers[k].bytes;
      }
    }
    for (size_t k = 0; k < d.buffers.size(); ++k) {
      Tensor t =
          k < out.size() && out[k].defined() ? out[k] : fresh(plan.results[size_t(s.output_values[k])]);
      buffers[d.buffers[k]] = t.impl()->data_ptr();
      results.push_back(std::move(t));
    }
    for (auto& l : plan.execs[0].launches)
      codegen::launch(*l.kernel, l.work, buffers, l.params.data(), s.name.c_str());
    return results;
  }
  auto& g = s.graph;
  // By value number: a tensor, or the memory of a number. Inputs are borrowed; `made` owns what is made here.
  struct Operand {
    TensorImpl* tensor = nullptr;
    void* number = nullptr;
  };
  SmallVector<Operand, 16> at(g.values().size());
  Made made(g.values().size());
  SmallVector<Number, 4> numbers(inputs.size());
  auto set = [&](int v, Tensor t) {
    at[size_t(v)].tensor = t.impl();
    made[v] = std::move(t);
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto& to = at[size_t(s.input_values[i])];
    if (inputs[i].tag == Tag::tensor) {
      to.tensor = inputs[i].tensor;
    } else {
      inputs[i].number().store(op::operand_dtype(inputs[i]), numbers[i].bytes);
      to.number = numbers[i].bytes;
    }
  }
  for (auto* v : s.constants) at[size_t(v->id)].tensor = v->constant.impl();
  for (size_t k = 0; k < out.size() && k < s.output_values.size(); ++k)
    if (out[k].defined() && s.output_values[k] >= 0) at[size_t(s.output_values[k])].tensor = out[k].impl();
  auto allocate = [&](int v) {
    if (int input = plan.written_to[size_t(v)]; input >= 0)
      at[size_t(v)].tensor = inputs[size_t(input)].tensor;
    else if (!at[size_t(v)].tensor) { set(v, fresh(plan.results[size_t(v)])); }
    return at[size_t(v)].tensor;
  };
  auto tensor_at = [&](int v) { return Tensor(Ref<TensorImpl>::share(at[size_t(v)].tensor)); };
  for (auto& exec : plan.execs) {
    switch (exec.kind) {
      case Step::Kind::kernel: {
        for (int v : exec.outputs) allocate(v);
        size_t given = exec.inputs.size(), count = given + exec.outputs.size();
        auto value_of = [&](size_t k) { return k < given ? exec.inputs[k] : exec.outputs[k - given]; };
        auto is_fresh = [&](int k) { return size_t(k) >= given && made[value_of(size_t(k))].defined(); };
        bool packed = false;
        for (int k : exec.alike) packed |= !is_fresh(k) && is_hidden(at[size_t(value_of(size_t(k)))].tensor);
        PhysicalOrder order;
        std::vector<Tensor> flat;
        if (packed) [[unlikely]] {
          std::vector<TensorImpl*> operands;
          std::vector<bool> fresh;
          for (int k : exec.alike) {
            operands.push_back(at[size_t(value_of(size_t(k)))].tensor);
            fresh.push_back(is_fresh(k));
          }
          flat = in_one_order(operands, fresh, order);
        }
        SmallVector<void*, 12> pointers(count);
        for (size_t j = 0; j < flat.size(); ++j) pointers[size_t(exec.alike[j])] = flat[j].impl()->data_ptr();
        for (size_t k = 0; k < count; ++k) {
          auto& operand = at[size_t(value_of(k))];
          if (!pointers[k]) pointers[k] = operand.number ? operand.number : operand.tensor->data_ptr();
        }
        for (int b : exec.empty) pointers[size_t(b)] = nothing;
        std::vector<Storage> scratch;
        for (auto& t : exec.temporaries) {
          scratch.push_back(make_ref<StorageImpl>(size_t(t.numel) * size_t(itemsize(t.dtype)), Device{}));
          pointers.push_back(scratch.back()->data());
        }
        for (auto& l : exec.launches) {
          SmallVector<void*, 12> buffers;
          if (!l.all_in_order)
            for (int b : l.buffers) buffers.push_back(pointers[size_t(b)]);
          codegen::launch(*l.kernel, l.work, l.all_in_order ? pointers.data() : buffers.data(),
                          l.params.data(), s.name.c_str());
        }
        for (size_t j = 0; j < flat.size(); ++j)
          if (int k = exec.alike[j]; is_fresh(k)) {
            order.itemsize = uint8_t(itemsize(flat[j].dtype()));
            hide_in_order(flat[j], order);
          }
        break;
      }
      case Step::Kind::view:
      case Step::Kind::library: {
        auto& node = *exec.node;
        op::Args args = exec.args.clone();
        args.each_tensor([&](size_t slot, Tensor& t) {
          int v = exec.inputs[slot];
          if (v < 0) return;
          void* number = at[size_t(v)].number;
          t = number ? op::wrapped_number(Scalar::load(g.values()[size_t(v)]->tensor.dtype(), number))
                     : tensor_at(v);
        });
        if (exec.kind == Step::Kind::view) {
          Tensor base = args.tensors()[0];
          auto views = node.op->as<op::View>()->rule(op::Call(*node.op, args.values()),
                                                     op::Geometry(node.op->name(), base, false));
          for (size_t k = 0; k < views.size(); ++k) set(exec.outputs[k], views[k].apply(base));
        } else {
          Results destinations;  // alone in holding what is new
          if (node.op->is<op::Library>())
            for (int v : exec.outputs) {
              destinations.push_back(Tensor(Ref<TensorImpl>::share(allocate(v))));
              made[v] = {};
            }
          auto results = run_library(exec.library, *node.op, args.values(), std::move(destinations));
          if (node.op->is<op::Foreign>()) conform(*node.op, results, plan, exec.outputs);
          for (size_t k = 0; k < exec.outputs.size(); ++k) set(exec.outputs[k], std::move(results[k]));
        }
        break;
      }
    }
    for (int v : exec.dead) {
      at[size_t(v)].tensor = nullptr;
      made[v] = {};
    }
  }
  auto copy = [](const Tensor& from, const Tensor& to) {
    op::Value args[] = {to, from};
    op::call(op::get("copy"), args, op::Form::in_place);
  };
  for (auto& [i, v] : g.mutated)
    if (plan.written_to[size_t(v->id)] < 0)
      copy(tensor_at(v->id), Tensor(Ref<TensorImpl>::share(inputs[size_t(i)].tensor)));
  Results results;
  for (size_t k = 0; k < s.output_values.size(); ++k) {
    int v = s.output_values[k];
    Tensor t = v < 0 ? Tensor() : made[v].defined() && !s.output_repeats ? std::move(made[v]) : tensor_at(v);
    if (k < out.size() && out[k].defined() && !t.is_same(out[k])) {
      copy(t, out[k]);
      t = out[k];
    }
    results.push_back(std::move(t));
  }
  return results;
}

Results Program::run(std::span<const op::Value> inputs, std::span<const Tensor> out) const {
  auto& s = *state_;
  Key key;
  for (auto& v : inputs) append(key, v);
  for (auto& t : out) append(key, t, inputs);
  std::shared_ptr<const Plan> found;
  {
    std::lock_guard lock(s.mutex);
    if (auto* known = s.plans.find(key)) found = *known;
  }
  if (!found) {
    found = plan(inputs, out);
    std::lock_guard lock(s.mutex);
    s.plans.put(std::move(key), found);
  }
  return execute(*found, inputs, out);
}

}  // namespace facula::run
