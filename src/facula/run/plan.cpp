#include "facula/run/plan.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "facula/base/bounded.h"
#include "facula/base/fork.h"
#include "facula/codegen/ahead.h"
#include "facula/codegen/nest_index.h"
#include "facula/loop/monoid.h"
#include "facula/run/arena.h"
#include "facula/run/layout.h"
#include "facula/schedule/schedule.h"

namespace facula::run {

using graph::Node;
using schedule::Step;

Tensor fake(const op::Meta& m) {
  Dims strides = m.strides.size() == m.sizes.size() ? m.strides : contiguous_strides(m.sizes);
  return Tensor(make_ref<TensorImpl>(Storage(), m.sizes, strides, SymInt(), m.dtype, m.device));
}

void Plan::Exec::find_library() {
  auto* called = node->op->as<op::Library>();
  if (called) library = backend::backend_of(node->results[0]->tensor.device().type).find(called->name);
}

namespace {
bool is_zero(const loop::Expr& e) { return e->kind == loop::Kind::constant && e->value.to_int() == 0; }
}  // namespace

bool reads_only_own_element(const schedule::Group& g, int input, size_t written) {
  if (g.scatter) return false;
  auto& axes = g.outputs[written].axes;  // another output may have fewer, and be computed when all is written
  bool plain = true;
  for (auto& o : g.outputs)
    loop::visit(o.value, [&](loop::Expr e) {
      if (e->kind == loop::Kind::reduce || e->kind == loop::Kind::scan) plain = false;
      if (e->kind != loop::Kind::load || e->slot != input) return;
      plain &= o.axes == axes && e->args.size() <= axes.size();
      for (size_t d = 0; plain && d < e->args.size(); ++d)
        plain = axes[d] < 0 ? is_zero(e->args[d])
                            : e->args[d]->kind == loop::Kind::index && e->args[d]->slot == axes[d];
    });
  return plain;
}

bool treats_each_element_alone(const schedule::Group& g) {
  using loop::Kind;
  if (g.scatter || g.outputs.empty()) return false;
  auto& axes = g.outputs[0].axes;  // all that are longer than 1, in order
  Ints named;
  for (auto a : axes)
    if (a >= 0) named.push_back(a);
  bool alone = std::is_sorted(named.begin(), named.end());
  for (size_t k = 0; k < g.extents.size(); ++k)
    alone &= g.extents[k] == SymInt(int64_t(1)) || std::count(named.begin(), named.end(), int64_t(k)) == 1;
  for (auto& o : g.outputs) {
    alone &= o.axes == axes && o.value->kind != Kind::index;
    loop::visit(o.value, [&](loop::Expr e) {
      bool loads = e->kind == Kind::load;
      alone &= e->kind != Kind::reduce && e->kind != Kind::scan && e->kind != Kind::position;
      for (size_t d = 0; d < e->args.size(); ++d) {
        auto& x = e->args[d];
        bool index = x->kind == Kind::index;
        if (!loads) alone &= !index;
        else if (index) alone &= e->args.size() == axes.size() && x->slot == axes[d];
        else alone &= is_zero(x);
      }
    });
  }
  return alone;
}

namespace {

const bool indexed = (schedule::set_nest_index(&codegen::shipped_nests), true);

// The kernels of nests. The scheduler's cache hands the same ones to all calls, so a pointer identifies one as long as
// it lives.
using Nests = std::vector<std::shared_ptr<const loop::LazyNest>>;
std::vector<const codegen::Kernel*> kernels_of(const Nests& nests) {
  static TableMutex mutex;
  using KernelOfNest = std::pair<std::shared_ptr<const loop::LazyNest>, const codegen::Kernel*>;
  static Bounded<const loop::LazyNest*, KernelOfNest> known(kMaxPlans);
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

class Planner {
 public:
  Planner(const NumberedGraph& g, const std::vector<Step>& steps, IntSpan symbols, std::vector<Tensor> at,
          std::span<const Tensor> out)
      : g_(g),
        steps_(steps),
        symbols_(symbols),
        at_(std::move(at)),
        out_(out),
        kept_(g.graph.values().size()),
        last_read_(kept_.size(), -1) {
    for (int v : g.outputs)
      if (v >= 0) kept_[size_t(v)] = true;
    for (auto& [i, v] : g.graph.mutated) kept_[size_t(v->id)] = true;
    for (int v : g.inputs) kept_[size_t(v)] = true;  // the caller's
  }

  std::shared_ptr<Plan> run() {
    place();
    find_last_reads();
    find_destinations();
    for (size_t k = 0; k < steps_.size(); ++k) {
      auto& step = steps_[k];
      Plan::Exec exec = step.kind == Step::Kind::kernel ? kernel(step) : call(step);
      for (int v : exec.outputs) {
        auto& r = plan_->results[size_t(v)];
        if (exec.allocates())
          r.bytes = storage_bytes(g_.name.c_str(), r.meta.sizes, r.meta.strides, r.meta.dtype);
        if (last_read_[size_t(v)] < 0 && !kept_[size_t(v)]) dead_[k].push_back(v);
      }
      exec.dead = std::move(dead_[k]);
      plan_->execs.push_back(std::move(exec));
    }
    auto kernels = kernels_of(nests_);
    auto next = kernels.begin();
    for (auto& exec : plan_->execs)
      for (auto& l : exec.launches) {
        l.kernel = *next++;
        l.work = codegen::work_of(*l.kernel, l.params.data());
      }
    plan_->direct = directly();
    place_in_arena(*plan_, g_, out_);
    return plan_;
  }

 private:
  op::Args concrete_args(const Node& n) {
    op::Args args = n.args.clone();
    args.each_tensor([&](size_t, Tensor& t) {
      if (t.defined()) t = at_[size_t(graph::value_of(t)->id)];
    });
    args.each_size([&](SymInt& x) {
      if (x.is_symbolic()) x = SymInt(size_of(x));
    });
    return args;
  }
  int64_t size_of(SymInt e) { return e.is_symbolic() ? sym::evaluate(e, symbols_) : e.concrete(); }

  // What lies where, with which strides.
  void place() {
    auto& g = g_.graph;
    for (auto& v : g.values())
      if (v->constant.defined()) at_[size_t(v->id)] = v->constant;
    plan_->results.resize(g.values().size());
    auto metas = place_values(g, symbols_, at_, [this](const Node& n) { return concrete_args(n); });
    for (size_t v = 0; v < metas.size(); ++v) plan_->results[v].meta = std::move(metas[v]);
    for (auto& step : steps_)  // what fusing stores wider than its value's dtype
      for (size_t k = 0; step.kind == Step::Kind::kernel && k < step.outputs.size(); ++k) {
        auto id = size_t(step.outputs[k]->id);
        auto& meta = plan_->results[id].meta;
        if (meta.dtype == step.group.outputs[k].dtype) continue;
        meta.dtype = step.group.outputs[k].dtype;
        at_[id] = fake(meta);
      }
  }

  void find_last_reads() {
    int count = int(steps_.size());
    for (int k = 0; k < count; ++k) {
      auto& step = steps_[size_t(k)];
      for (auto* v : step.node ? graph::operands(*step.node) : step.inputs)
        if (v) last_read_[size_t(v->id)] = k;
    }
    for (int k = count; k-- > 0;) {  // who reads a view reads what it is a view of
      auto& step = steps_[size_t(k)];
      if (step.kind != Step::Kind::view) continue;
      int& base = last_read_[size_t(graph::operands(*step.node)[0]->id)];
      for (auto* v : step.node->results)
        base = std::max(base, kept_[size_t(v->id)] ? count : last_read_[size_t(v->id)]);
    }
    dead_.resize(steps_.size());
    for (size_t v = 0; v < last_read_.size(); ++v)
      if (int k = last_read_[v]; k >= 0 && k < count && !kept_[v]) dead_[size_t(k)].push_back(int(v));
  }

  // Given ones, and inputs that a mutation replaces where the writing kernel allows it.
  void find_destinations() {
    plan_->written_to.assign(g_.graph.values().size(), -1);
    for (size_t k = 0; k < out_.size() && k < g_.outputs.size(); ++k)
      if (out_[k].defined() && g_.outputs[k] >= 0) at_[size_t(g_.outputs[k])] = out_[k];
    if (g_.graph.mutated.empty()) return;
    std::unordered_map<const graph::Value*, size_t> writers;
    for (size_t k = 0; k < steps_.size(); ++k)
      if (steps_[k].kind == Step::Kind::kernel)
        for (auto* v : steps_[k].outputs) writers[v] = k;
    for (auto& [i, v] : g_.graph.mutated) {
      auto* input = g_.graph.inputs[size_t(i)];
      auto writer = writers.find(v);
      if (writer == writers.end()) continue;
      auto& step = steps_[writer->second];
      auto position = size_t(std::find(step.outputs.begin(), step.outputs.end(), v) - step.outputs.begin());
      bool safe = last_read_[size_t(input->id)] <= int(writer->second);
      if (step.group.scatter) safe &= step.group.scatter->base < 0;  // what it changes lies elsewhere
      for (size_t b = 0; b < step.inputs.size(); ++b)
        if (step.inputs[b] == input) safe &= reads_only_own_element(step.group, int(b), position);
        else safe &= memory_of(step.inputs[b]) != input;
      // Views of v show v as it lies by itself.
      if (at_[size_t(v->id)].strides().size() != at_[size_t(input->id)].strides().size() ||
          !std::equal(at_[size_t(v->id)].strides().begin(), at_[size_t(v->id)].strides().end(),
                      at_[size_t(input->id)].strides().begin()))
        for (auto& other : steps_)
          if (other.kind == Step::Kind::view) safe &= graph::operands(*other.node)[0] != v;
      if (!safe) continue;
      plan_->written_to[size_t(v->id)] = i;
      at_[size_t(v->id)] = at_[size_t(input->id)];
    }
  }

  static const graph::Value* memory_of(const graph::Value* v) {
    while (v->producer && v->producer->op->is<op::View>()) v = graph::operands(*v->producer)[0];
    return v;
  }

  Plan::Exec call(const Step& step) {
    Plan::Exec exec;
    exec.kind = step.kind;
    exec.node = step.node;
    exec.args = concrete_args(*step.node);
    exec.find_library();
    for (auto* v : graph::operands(*step.node)) exec.inputs.push_back(v ? v->id : -1);
    for (auto* v : step.node->results) exec.outputs.push_back(v->id);
    exec.args.each_tensor([](size_t, Tensor& t) { t = {}; });  // bound at each run
    return exec;
  }

  Plan::Exec kernel(const Step& step) {
    Plan::Exec exec;
    exec.kind = step.kind;
    exec.node = step.node;
    for (auto* v : step.inputs) exec.inputs.push_back(v->id);
    for (auto* v : step.outputs) exec.outputs.push_back(v->id);
    auto layout = layout_of(step, exec);
    auto schedule = exec.empty.empty() ? schedule::schedule(step.group, layout)
                                       : schedule::schedule(without_nothing(step), layout);
    if (is_empty(step)) schedule.launches.clear();  // not even a check of an index that is the same for all
    for (auto& t : schedule.temporaries)
      exec.temporaries.push_back({size_t(t.numel) * size_t(itemsize(t.dtype))});
    if (step.each_element_alone) exec.alike = alike(exec);
    size_t buffers = exec.inputs.size() + exec.outputs.size() + exec.temporaries.size();
    for (auto& l : schedule.launches) {
      bool all = l.buffers.size() == buffers;
      for (size_t b = 0; b < l.buffers.size(); ++b) all &= l.buffers[b] == int(b);
      nests_.push_back(l.nest);
      exec.launches.push_back({nullptr, {}, all, l.buffers, l.params});
    }
    return exec;
  }
  // The group without what is computed of no elements, or for none: where other values have some, its checks of indices
  // would be made too.
  schedule::Group without_nothing(const Step& step) {
    using loop::Kind;
    schedule::Group g = step.group;
    auto is_none = [&](const loop::BoundVar& v) {
      if (v.extent->kind == Kind::size) return size_of(v.extent->size) == 0;
      return is_zero(v.extent);
    };
    auto over_none = [&](loop::Expr e) {
      return e->kind == Kind::reduce && std::any_of(e->bound.begin(), e->bound.end(), is_none);
    };
    auto neutral = [&](loop::Expr e) -> loop::Expr {
      loop::Expr r = e->kind == Kind::part ? e->args[0] : e;
      if (!over_none(r)) return {};
      size_t slot = loop::same(e, r) ? 0 : size_t(e->slot);
      if (r->monoid == loop::Monoid::welford && slot == 0)  // the mean of nothing
        return loop::constant(std::numeric_limits<double>::quiet_NaN(), e.dtype());
      auto position = r->args.size() > 1 ? r->args[1].dtype() : DType::Int64;
      return loop::cast(loop::identity(r->monoid, r->args[0].dtype(), position).at(slot), e.dtype());
    };
    for (size_t k = 0; k < g.outputs.size() && !g.scatter; ++k) {
      auto& value = g.outputs[k].value;
      bool none = at_[size_t(step.outputs[k]->id)].numel() == SymInt(int64_t(0));
      value = none ? loop::constant(Scalar(int64_t(0)), value.dtype()) : loop::rewrite(value, neutral);
    }
    return g;
  }
  bool is_empty(const Step& step) {
    bool any = false;
    for (auto* v : step.outputs) any |= at_[size_t(v->id)].numel() != SymInt(int64_t(0));
    if (!step.group.scatter) return !any;
    auto& domain = step.group.scatter->domain;
    return !any && std::any_of(domain.begin(), domain.end(), [&](SymInt n) { return size_of(n) == 0; });
  }
  schedule::Layout layout_of(const Step& step, Plan::Exec& exec) {
    schedule::Layout layout;
    layout.size_of = [this](SymInt e) { return size_of(e); };
    for (auto e : step.group.extents) layout.extents.push_back(size_of(e));
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
      layout.input_sizes.emplace_back(at_[size_t(v)].int_sizes());
      layout.input_strides.emplace_back(strides_of(at_[size_t(v)], position++));
    }
    for (int v : exec.outputs) {
      auto& t = at_[size_t(v)];
      layout.output_strides.emplace_back(strides_of(t, position++));
      layout.output_sizes.emplace_back(t.int_sizes());
      layout.output_overlaps.push_back(overlaps(v, exec));
    }
    return layout;
  }
  // Operands of one shape in the order of their dimensions; empty if any but single elements lies otherwise.
  std::vector<int> alike(const Plan::Exec& exec) {
    std::vector<int> found, operands(exec.inputs);
    operands.insert(operands.end(), exec.outputs.begin(), exec.outputs.end());
    auto& shape = at_[size_t(exec.outputs[0])];
    for (size_t k = 0; k < operands.size(); ++k) {
      auto& t = at_[size_t(operands[k])];
      bool like = Dims(t.sizes()) == Dims(shape.sizes()) && t.is_contiguous();
      if (like) found.push_back(int(k));
      else if (k >= exec.inputs.size() || t.numel() != SymInt(int64_t(1))) return {};
    }
    return found;
  }
  // May the step read what it writes as v?
  bool overlaps(int v, const Plan::Exec& exec) {
    if (plan_->written_to[size_t(v)] >= 0) return true;
    auto& storage = at_[size_t(v)].impl()->storage;
    for (size_t j = 0; j < out_.size() && storage; ++j)
      if (g_.outputs[j] == v && out_[j].defined())
        for (int input : exec.inputs)
          if (at_[size_t(input)].impl()->storage == storage) return true;
    return false;
  }

  std::optional<Plan::Direct> directly() {
    if (plan_->execs.size() != 1 || g_.output_repeats || !g_.graph.mutated.empty()) return {};
    auto& exec = plan_->execs[0];
    if (exec.kind != Step::Kind::kernel || !exec.temporaries.empty() || !exec.dead.empty() ||
        !exec.empty.empty())
      return {};
    if (exec.inputs.size() + exec.outputs.size() > Plan::kDirect) return {};
    for (auto& l : exec.launches)
      if (!l.all_in_order) return {};
    auto position = [](const std::vector<int>& in, int v) {
      auto it = std::find(in.begin(), in.end(), v);
      return it == in.end() ? -1 : int(it - in.begin());
    };
    Plan::Direct d;
    for (int v : exec.inputs) {
      d.inputs.push_back(position(g_.inputs, v));
      if (d.inputs.back() < 0) return {};
    }
    size_t made = 0;
    for (size_t k = 0; k < g_.outputs.size(); ++k) {
      int made_at = position(exec.outputs, g_.outputs[k]), given = position(g_.inputs, g_.outputs[k]);
      bool wanted_elsewhere = k < out_.size() && out_[k].defined();
      if (made_at < 0 && (given < 0 || wanted_elsewhere)) return {};
      made += made_at >= 0;
      d.outputs.push_back(made_at >= 0 ? int(exec.inputs.size()) + made_at : int(Plan::kDirect) + given);
    }
    return made == exec.outputs.size() ? std::optional(d) : std::nullopt;
  }

  const NumberedGraph& g_;
  const std::vector<Step>& steps_;
  IntSpan symbols_;
  std::vector<Tensor> at_;  // by value number: what it will be, with concrete sizes and strides
  std::span<const Tensor> out_;
  std::shared_ptr<Plan> plan_ = std::make_shared<Plan>();
  std::vector<bool> kept_;              // by value number: does it outlive the call?
  std::vector<int> last_read_;          // by value number: step, or -1
  std::vector<std::vector<int>> dead_;  // by step: values that no later one reads
  Nests nests_;                         // of all steps, so that their kernels are made side by side
};

}  // namespace

std::shared_ptr<Plan> make_plan(const NumberedGraph& g, const std::vector<Step>& steps, IntSpan symbols,
                                std::vector<Tensor> at, std::span<const Tensor> out) {
  return Planner(g, steps, symbols, std::move(at), out).run();
}

}  // namespace facula::run
