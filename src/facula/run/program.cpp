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

namespace {

Tensor fake(const op::Meta& m) {
  Dims strides = m.strides.size() == m.sizes.size() ? m.strides : contiguous_strides(m.sizes);
  return Tensor(make_ref<TensorImpl>(Storage(), m.sizes, strides, SymInt(), m.dtype, m.device));
}

// The kernels of nests. Nests are shared by the scheduler's cache, so a pointer identifies one as long as it
// lives.
using Nests = std::vector<std::shared_ptr<const loop::Nest>>;
std::vector<const codegen::Kernel*> kernels_of(const Nests& nests) {
  static TableMutex mutex;
  using Known = std::pair<std::shared_ptr<const loop::Nest>, const codegen::Kernel*>;
  static Bounded<const loop::Nest*, Known> known(kMaxPlans);
  std::vector<const codegen::Kernel*> all;
  Nests missing;
  {
    std::lock_guard lock(mutex);
    for (auto& n : nests) {
      auto* of_nest = known.find(n.get());
      all.push_back(of_nest ? of_nest->second : nullptr);
      if (!of_nest) missing.push_back(n);
    }
  }
  if (missing.size() > 1) codegen::expect({missing.begin() + 1, missing.end()});
  for (size_t k = 0; k < nests.size(); ++k) {
    if (all[k]) continue;
    all[k] = codegen::kernel(*nests[k]);
    std::lock_guard lock(mutex);
    known.put(nests[k].get(), {nests[k], all[k]});
  }
  return all;
}

// May the group write over an input it reads? Only if it reads that input at the element it writes.
bool reads_only_own_element(const schedule::Group& g, int input) {
  if (g.scatter) return false;
  bool plain = true;
  for (auto& o : g.outputs)
    loop::visit(o.value, [&](loop::Expr e) {
      if (e->kind == loop::Kind::reduce || e->kind == loop::Kind::scan) plain = false;
      if (e->kind != loop::Kind::load || e->slot != input) return;
      for (size_t d = 0; d < e->args.size(); ++d)
        plain &= d < o.axes.size() && e->args[d]->kind == loop::Kind::index && e->args[d]->slot == o.axes[d];
    });
  return plain;
}

}  // namespace

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
  auto plan = std::make_shared<Plan>();
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
  for (auto& v : g.values())
    if (v->constant.defined()) at[size_t(v->id)] = v->constant;
  auto concrete_args = [&](const Node& n) {
    op::Args args = n.args.clone();
    args.each_tensor([&](size_t, Tensor& t) {
      if (t.defined()) t = at[size_t(graph::value_of(t)->id)];
    });
    args.each_size([&](SymInt& x) {
      if (x.is_symbolic()) x = SymInt(sym::evaluate(x, symbols));
    });
    return args;
  };
  plan->results.resize(g.values().size());
  auto metas = place_values(g, symbols, at, concrete_args);
  for (size_t v = 0; v < metas.size(); ++v) plan->results[v].meta = std::move(metas[v]);
  for (auto& step : steps)  // what fusing stores wider than its value's dtype
    for (size_t k = 0; step.kind == Step::Kind::kernel && k < step.outputs.size(); ++k) {
      auto id = size_t(step.outputs[k]->id);
      auto& meta = plan->results[id].meta;
      if (meta.dtype == step.group.outputs[k].dtype) continue;
      meta.dtype = step.group.outputs[k].dtype;
      at[id] = fake(meta);
    }
  // Destinations: given ones, and inputs that a mutation replaces where the writing kernel allows it.
  plan->written_to.assign(g.values().size(), -1);
  std::unordered_map<int, size_t> last_read;  // by value number: step
  for (size_t k = 0; k < steps.size(); ++k) {
    for (auto* v : steps[k].inputs)
      if (v) last_read[v->id] = k;
    if (steps[k].node)
      for (auto* v : graph::operands(*steps[k].node))
        if (v) last_read[v->id] = k;
  }
  std::unordered_set<int> kept(s.output_values.begin(), s.output_values.end());
  for (auto& [i, v] : g.mutated) kept.insert(v->id);
  for (size_t k = steps.size(); k-- > 0;) {  // who reads a view reads what it is a view of
    if (steps[k].kind != Step::Kind::view) continue;
    auto& base = last_read[graph::operands(*steps[k].node)[0]->id];
    for (auto* v : steps[k].node->results) {
      if (kept.count(v->id)) base = steps.size();
      else if (last_read.count(v->id)) base = std::max(base, last_read[v->id]);
    }
  }
  for (size_t k = 0; k < out.size() && k < s.output_values.size(); ++k)
    if (out[k].defined() && s.output_values[k] >= 0) at[size_t(s.output_values[k])] = out[k];
  for (auto& [i, v] : g.mutated) {
    auto input = g.inputs[size_t(i)];
    for (size_t k = 0; k < steps.size(); ++k) {
      auto& step = steps[k];
      if (step.kind != Step::Kind::kernel ||
          std::find(step.outputs.begin(), step.outputs.end(), v) == step.outputs.end())
        continue;
      bool safe = !last_read.count(input->id) || last_read[input->id] <= k;
      for (size_t b = 0; b < step.inputs.size(); ++b)
        if (step.inputs[b] == input) safe &= reads_only_own_element(step.group, int(b));
      if (!safe) continue;
      plan->written_to[size_t(v->id)] = i;
      at[size_t(v->id)] = at[size_t(input->id)];
    }
  }
  Nests nests;  // of all steps, so that their kernels are made side by side
  for (size_t k = 0; k < steps.size(); ++k) {
    auto& step = steps[k];
    Plan::Exec exec;
    exec.kind = step.kind;
    exec.node = step.node;
    for (auto* v : step.inputs) exec.inputs.push_back(v->id);
    for (auto* v : step.outputs) exec.outputs.push_back(v->id);
    bool allocates = step.kind == Step::Kind::kernel;
    if (step.kind == Step::Kind::kernel) {
      schedule::Layout layout;
      layout.size_of = [&](SymInt e) { return e.is_symbolic() ? sym::evaluate(e, symbols) : e.concrete(); };
      for (auto e : step.group.extents) layout.extents.push_back(layout.size_of(e));
      // Where there are no elements, kernels that read or write at computed positions do so at `nothing`: an
      // index is pulled into range before it is reported, and no range has room for it.
      auto strides_of = [&](const Tensor& t, int position) {
        Ints strides(t.int_strides());
        if (t.numel() == SymInt(int64_t(0))) {
          std::fill(strides.begin(), strides.end(), 0);
          exec.empty.push_back(position);
        }
        return strides;
      };
      int position = 0;
      for (int v : exec.inputs) {
        layout.input_sizes.emplace_back(at[size_t(v)].int_sizes());
        layout.input_strides.emplace_back(strides_of(at[size_t(v)], position++));
      }
      for (int v : exec.outputs) {
        auto& t = at[size_t(v)];
        layout.output_strides.emplace_back(strides_of(t, position++));
        layout.output_sizes.emplace_back(t.int_sizes());
        bool overlaps = plan->written_to[size_t(v)] >= 0;
        for (size_t j = 0; j < out.size(); ++j)
          if (t.impl()->storage && s.output_values[j] == v && out[j].defined())
            for (int input : exec.inputs) overlaps |= at[size_t(input)].impl()->storage == t.impl()->storage;
        layout.output_overlaps.push_back(overlaps);
      }
      auto schedule = schedule::schedule(step.group, layout);
      exec.temporaries = schedule.temporaries;
      size_t buffers = exec.inputs.size() + exec.outputs.size() + exec.temporaries.size();
      for (auto& l : schedule.launches) {
        bool all = l.buffers.size() == buffers;
        for (size_t b = 0; b < l.buffers.size(); ++b) all &= l.buffers[b] == int(b);
        nests.push_back(l.nest);
        exec.launches.push_back({nullptr, {}, all, l.buffers, l.params});
      }
    } else {
      exec.args = concrete_args(*step.node);
      for (auto* v : graph::operands(*step.node)) exec.inputs.push_back(v ? v->id : -1);
      for (auto* v : step.node->results) exec.outputs.push_back(v->id);
      exec.args.each_tensor([](size_t, Tensor& t) { t = {}; });  // bound at each run
      allocates = step.node->op->is<op::Library>();
    }
    for (int v : exec.outputs) {
      auto& r = plan->results[size_t(v)];
      if (allocates) r.bytes = storage_bytes(s.name.c_str(), r.meta.sizes, r.meta.strides, r.meta.dtype);
    }
    for (auto& [v, step_number] : last_read)
      if (step_number == k && !kept.count(v)) exec.dead.push_back(v);
    for (int v : exec.outputs)
      if (!last_read.count(v) && !kept.count(v)) exec.dead.push_back(v);
    plan->execs.push_back(std::move(exec));
  }
  auto kernels = kernels_of(nests);
  auto next = kernels.begin();
  for (auto& exec : plan->execs)
    for (auto& l : exec.launches) {
      l.kernel = *next++;
      l.work = codegen::work_of(*l.kernel, l.params.data());
    }
  auto directly = [&]() -> std::optional<Plan::Direct> {
    if (plan->execs.size() != 1 || s.output_repeats || !g.mutated.empty()) return {};
    auto& exec = plan->execs[0];
    if (exec.kind != Step::Kind::kernel || !exec.temporaries.empty() || !exec.dead.empty() ||
        !exec.empty.empty())
      return {};
    if (exec.inputs.size() + exec.outputs.size() > Plan::kDirect ||
        exec.outputs.size() != s.output_values.size())
      return {};
    for (auto& l : exec.launches)
      if (!l.all_in_order) return {};
    Plan::Direct d;
    for (int v : exec.inputs) {
      auto it = std::find(s.input_values.begin(), s.input_values.end(), v);
      if (it == s.input_values.end()) return {};
      d.inputs.push_back(int(it - s.input_values.begin()));
    }
    for (int v : s.output_values) {
      auto it = std::find(exec.outputs.begin(), exec.outputs.end(), v);
      if (it == exec.outputs.end()) return {};
      d.buffers.push_back(int(exec.inputs.size()) + int(it - exec.outputs.begin()));
    }
    return d;
  };
  plan->direct = directly();
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
  if (plan.direct) {
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
        SmallVector<void*, 12> pointers;
        for (int v : exec.inputs)
          pointers.push_back(at[size_t(v)].number ? at[size_t(v)].number : at[size_t(v)].tensor->data_ptr());
        for (int v : exec.outputs) pointers.push_back(allocate(v)->data_ptr());
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
          std::vector<Tensor> destinations;
          if (node.op->is<op::Library>())
            for (int v : exec.outputs) destinations.push_back(Tensor(Ref<TensorImpl>::share(allocate(v))));
          auto results = run_library(*node.op, args.values(), destinations);
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
