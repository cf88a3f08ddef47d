#include "facula/run/plan.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "facula/codegen/nest_index.h"
#include "facula/loop/monoid.h"
#include "facula/run/arena.h"
#include "facula/run/key.h"
#include "facula/run/layout.h"
#include "facula/run/pipeline.h"
#include "facula/run/refusals.h"

namespace facula::run {

using graph::Node;
using schedule::Step;

Tensor fake(const op::Meta& m) {
  Dims strides = m.strides.size() == m.sizes.size() ? m.strides : contiguous_strides(m.sizes);
  return Tensor(make_ref<TensorImpl>(Storage(), m.sizes, strides, SymInt(), m.dtype, m.device));
}

void NumberedGraph::number() {
  for (auto* v : graph.inputs) inputs.push_back(v->id);
  for (auto* v : graph.outputs) {
    int id = v ? v->id : -1;
    output_repeats |= std::find(outputs.begin(), outputs.end(), id) != outputs.end();
    outputs.push_back(id);
  }
  for (auto& v : graph.values())
    if (v->constant.defined()) constants.push_back(v.get());
}

uint64_t Plan::next_number() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

void Outline::Exec::find_library() {
  auto* called = node->op->as<op::Library>();
  if (!called) return;
  auto& backend = device::backend_of(node->results[0]->tensor.device().type);
  library = backend.find(called->name);
  with_epilogue = backend.find_with_epilogue(called->name);
}

void Outline::index() {
  std::vector<size_t> last(form.size(), execs.empty() ? 0 : execs.size() - 1), at(form.size());
  for (size_t k = 0; k < execs.size(); ++k)
    for (int v : execs[k].dead) last[size_t(v)] = k;
  first_launch.assign(kernels, execs.size());
  for (size_t k = 0; k < execs.size(); ++k) {
    auto& e = execs[k];
    if (e.kernels >= 0) {
      launches.push_back({k, e.kernels});
      auto& first = first_launch[size_t(e.kernels)];
      first = std::min(first, k);
    }
    for (int v : e.outputs) {
      if (!e.allocates() || written_to[size_t(v)] >= 0) continue;
      if (int u = takes_over[size_t(v)]; u >= 0 && at[size_t(u)] < allocations.size()) {
        at[size_t(v)] = at[size_t(u)];
        allocations[at[size_t(u)]].last = last[size_t(v)];
        successions.push_back({v, u});
        continue;
      }
      at[size_t(v)] = allocations.size();
      allocations.push_back({e.may_be_epilogue ? k - 1 : k, v, form[size_t(v)], last[size_t(v)]});
    }
  }
}

namespace {
bool is_zero(const loop::Expr& e) { return e->kind == loop::Kind::constant && e->value.to_int() == 0; }
}  // namespace

bool reads_only_own_element(const schedule::Group& g, int input, size_t written) {
  using loop::Kind;
  if (g.scatter) return false;
  auto& axes = g.outputs[written]
                   .axes;  // another output may have fewer axes and be computed after this one is written
  bool plain = true, folds = false, elsewhere = false;
  auto is_folded = [&](loop::Expr e) { return e->kind == Kind::reduce || e->kind == Kind::scan; };
  auto loads = [&](loop::Expr e) { return e->kind == Kind::load && e->slot == input; };
  for (size_t k = 0; k < g.outputs.size(); ++k) {
    auto& o = g.outputs[k];
    loop::visit(o.value, [&](loop::Expr e) {
      if (is_folded(e)) {
        folds = true;
        loop::visit(e, [&](loop::Expr inner) { plain &= !loads(inner); });
      }
      if (!loads(e)) return;
      elsewhere |= k != written;
      plain &= o.axes == axes && e->args.size() <= axes.size();
      for (size_t d = 0; plain && d < e->args.size(); ++d)
        plain = axes[d] < 0 ? is_zero(e->args[d])
                            : e->args[d]->kind == Kind::index && e->args[d]->slot == axes[d];
    });
  }
  // A group with reductions may store one output before it computes another.
  return plain && !(folds && elsewhere);
}

bool treats_each_element_alone(const schedule::Group& g) {
  using loop::Kind;
  if (g.scatter || g.outputs.empty()) return false;
  auto& axes = g.outputs[0].axes;  // must be all axes longer than 1, in order
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

// Chooses kernels for the steps of an outline, for values of known forms.
class Arranger {
 protected:
  Arranger(const NumberedGraph& g, const std::vector<Step>& steps, IntSpan symbols) : g_(g), steps_(steps) {
    plan_->symbols.assign(symbols.begin(), symbols.end());
  }

  struct StepKernels {
    Plan::Kernels kernels;
    std::vector<int> empty;  // Outline::Exec::empty
  };
  // The kernels of a step. `overlaps`, by output: whether the step may read the memory that it writes.
  StepKernels kernels(const Step& step, const Outline::Exec& exec, std::vector<bool> overlaps) {
    StepKernels step_kernels;
    auto layout = layout_of(step, exec, step_kernels);
    layout.output_overlaps = std::move(overlaps);
    auto schedule = step_kernels.empty.empty()
                        ? pipeline::schedule(step.group, std::move(layout), step.analysed)
                        : pipeline::schedule(without_nothing(step), std::move(layout), nullptr);
    if (is_empty(step)) schedule.launches.clear();  // skips even index checks that do not depend on elements
    for (auto& t : schedule.temporaries)
      step_kernels.kernels.temporaries.push_back(size_t(t.numel) * size_t(itemsize(t.dtype)));
    size_t buffers = exec.inputs.size() + exec.outputs.size() + step_kernels.kernels.temporaries.size();
    step_kernels.kernels.launches.reserve(schedule.launches.size());
    for (auto& l : schedule.launches) {
      bool all = l.buffers.size() == buffers;
      for (size_t b = 0; b < l.buffers.size(); ++b) all &= l.buffers[b] == int(b);
      nests_.push_back(std::move(l.nest));
      step_kernels.kernels.launches.push_back({nullptr, {}, all, std::move(l.buffers), std::move(l.params)});
    }
    return step_kernels;
  }
  // The kernel of step k as an epilogue of the library call before it.
  std::optional<Plan::Epilogue> epilogue(const Outline& outline, size_t k) {
    auto& exec = outline.execs[k];
    if (k == 0 || exec.kind != Step::Kind::kernel || exec.outputs.size() != 1) return {};
    auto& call = outline.execs[k - 1];
    if (!call.with_epilogue || call.outputs.size() != 1) return {};
    auto result = std::ranges::find(exec.inputs, call.outputs[0]);
    if (result == exec.inputs.end() || std::ranges::count(exec.inputs, call.outputs[0]) != 1) return {};
    StepKernels step_kernels;
    auto layout = layout_of(steps_[k], exec, step_kernels);
    if (!step_kernels.empty.empty()) return {};
    auto match = schedule::as_epilogue(steps_[k].group, int(result - exec.inputs.begin()), layout);
    if (!match) return {};
    Plan::Epilogue e{k - 1, std::move(match->function), {}, {}};
    for (int i : match->inputs) e.operands.push_back(exec.inputs[size_t(i)]);
    e.params.assign(match->params.begin(), match->params.end());
    return e;
  }
  bool add_epilogue(const Outline& outline, size_t k) {
    auto e = epilogue(outline, k);
    if (e) plan_->epilogues.push_back(std::move(*e));
    return e.has_value();
  }
  // Compiles the kernels of all steps at once, so that several threads can share the work.
  void make_kernels() {
    auto kernels = pipeline::kernels(nests_);
    auto next = kernels.begin();
    for (auto& k : plan_->kernels)
      for (auto& l : k.launches) {
        l.kernel = *next++;
        l.work = codegen::work_of(*l.kernel, l.params.data());
      }
  }
  void keep_nests() {
    auto next = nests_.begin();
    for (auto& k : plan_->kernels)
      for (auto& l : k.launches) l.nest = *next++;
  }
  std::optional<Plan::Direct> directly(const Outline& outline, std::span<const Tensor> out) {
    if (outline.execs.size() != 1 || g_.output_repeats || !g_.graph.mutated.empty()) return {};
    auto& exec = outline.execs[0];
    if (exec.kind != Step::Kind::kernel || !exec.dead.empty() || !exec.empty.empty()) return {};
    if (exec.inputs.size() + exec.outputs.size() > Plan::kDirect) return {};
    auto& kernels = plan_->kernels[size_t(exec.kernels)];
    if (!kernels.temporaries.empty()) return {};
    for (auto& l : kernels.launches)
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
    size_t written = 0;
    for (size_t k = 0; k < g_.outputs.size(); ++k) {
      int output_at = position(exec.outputs, g_.outputs[k]), input_at = position(g_.inputs, g_.outputs[k]);
      bool wanted_elsewhere = k < out.size() && out[k].defined();
      if (output_at < 0 && (input_at < 0 || wanted_elsewhere)) return {};
      written += output_at >= 0;
      d.outputs.push_back(output_at >= 0 ? int(exec.inputs.size()) + output_at
                                         : int(Plan::kDirect) + input_at);
    }
    return written == exec.outputs.size() ? std::optional(d) : std::nullopt;
  }
  void measure(const Outline& outline) {
    for (auto& a : outline.allocations)
      if (auto& f = plan_->forms[size_t(a.form)]; !f.bytes)
        f.bytes = storage_bytes(g_.name.c_str(), f.meta.sizes, f.meta.strides, f.meta.dtype);
  }
  // The positions of operands with equal, dense layouts; empty if an operand of more than one element has another.
  std::vector<int> alike(const Step& step, const Outline::Exec& exec) {
    if (!step.each_element_alone) return {};
    std::vector<int> equal_layouts;
    auto& shape = layout_at(exec.outputs[0]);
    for (size_t k = 0; k < exec.inputs.size() + exec.outputs.size(); ++k) {
      auto& f = layout_at(exec.operand(k));
      bool like = f.dense && (&f == &shape || f.has_layout_of(shape));
      if (like) equal_layouts.push_back(int(k));
      else if (k >= exec.inputs.size() || f.numel != 1) return {};
    }
    return equal_layouts;
  }
  int64_t size_of(SymInt e) { return e.is_symbolic() ? sym::evaluate(e, plan_->symbols) : e.concrete(); }
  // The layout of a form: a tensor without memory.
  struct Lying {
    explicit Lying(Tensor t)
        : tensor(std::move(t)),
          numel(tensor.numel().concrete()),
          dense(tensor.is_non_overlapping_and_dense()) {}
    bool has_layout_of(const Lying& other) const {
      auto n = sizes(), m = other.sizes();
      for (size_t d = 0; n.size() == m.size() && d < n.size(); ++d)
        if (n[d] != m[d] || (n[d] != 1 && strides()[d] != other.strides()[d])) return false;
      return n.size() == m.size();
    }
    IntSpan sizes() const { return tensor.int_sizes(); }
    IntSpan strides() const { return tensor.int_strides(); }
    Tensor tensor;
    int64_t numel;
    bool dense;  // fills a range of memory, in any order of dimensions
  };
  const Lying& layout_at(int v) const { return lying_[size_t(form_[size_t(v)])]; }

  const NumberedGraph& g_;
  const std::vector<Step>& steps_;
  std::shared_ptr<Plan> plan_ = std::make_shared<Plan>();
  std::vector<Lying> lying_;   // by form
  std::span<const int> form_;  // by value number

 private:
  // The group without expressions over tensors without elements; otherwise the checks of their indices would run for the
  // elements of other operands.
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
      if (r->monoid == loop::Monoid::welford && slot == 0)  // the mean of no elements
        return loop::constant(std::numeric_limits<double>::quiet_NaN(), e.dtype());
      auto position = r->args.size() > 1 ? r->args[1].dtype() : DType::Int64;
      return loop::cast(loop::identity(r->monoid, r->args[0].dtype(), position).at(slot), e.dtype());
    };
    for (size_t k = 0; k < g.outputs.size() && !g.scatter; ++k) {
      auto& value = g.outputs[k].value;
      bool none = !layout_at(step.outputs[k]->id).numel;
      value = none ? loop::constant(Scalar(int64_t(0)), value.dtype()) : loop::rewrite(value, neutral);
    }
    return g;
  }
  bool is_empty(const Step& step) {
    bool any = false;
    for (auto* v : step.outputs) any |= layout_at(v->id).numel != 0;
    if (!step.group.scatter) return !any;
    auto& domain = step.group.scatter->domain;
    return !any && std::any_of(domain.begin(), domain.end(), [&](SymInt n) { return size_of(n) == 0; });
  }
  schedule::Layout layout_of(const Step& step, const Outline::Exec& exec, StepKernels& step_kernels) {
    schedule::Layout layout;
    layout.size_of = [this](SymInt e) { return size_of(e); };
    for (auto* list : {&layout.input_sizes, &layout.input_strides}) list->reserve(exec.inputs.size());
    for (auto* list : {&layout.output_sizes, &layout.output_strides}) list->reserve(exec.outputs.size());
    for (auto e : step.group.extents) layout.extents.push_back(size_of(e));
    // Kernels that read or write tensors without elements at computed positions access `nothing` instead: they clamp an index
    // before they report it, and an empty range has no valid position.
    auto strides_of = [&](const Lying& f, int position) {
      Ints strides(f.strides());
      if (!f.numel) {
        std::fill(strides.begin(), strides.end(), 0);
        step_kernels.empty.push_back(position);
      }
      return strides;
    };
    int position = 0;
    for (int v : exec.inputs) {
      layout.input_sizes.emplace_back(layout_at(v).sizes());
      layout.input_strides.emplace_back(strides_of(layout_at(v), position++));
    }
    for (int v : exec.outputs) {
      layout.output_strides.emplace_back(strides_of(layout_at(v), position++));
      layout.output_sizes.emplace_back(layout_at(v).sizes());
    }
    return layout;
  }
  pipeline::Nests nests_;
};

// Makes a plan with a new outline.
class Planner : Arranger {
 public:
  Planner(const NumberedGraph& g, const std::vector<Step>& steps, IntSpan symbols, std::vector<Tensor> at,
          std::span<const Tensor> out, bool for_others)
      : Arranger(g, steps, symbols),
        for_others_(for_others),
        at_(std::move(at)),
        out_(out),
        outlives_(g.graph.values().size()),
        last_read_(outlives_.size(), -1) {
    for (int v : g.outputs)
      if (v >= 0) outlives_[size_t(v)] = true;
    for (auto& [i, v] : g.graph.mutated) outlives_[size_t(v->id)] = true;
    for (int v : g.inputs) outlives_[size_t(v)] = true;  // they belong to the caller
  }

  // `compiles`: whether the plan gets kernels; otherwise it gets their nests.
  std::shared_ptr<Plan> run(bool compiles = true) {
    place(compiles);
    find_last_reads();
    find_destinations();
    list_steps();
    choose_forms();
    for (size_t k = 0; k < steps_.size(); ++k)
      if (auto& exec = outline_->execs[k]; exec.kind == Step::Kind::kernel)
        exec.alike = alike(steps_[k], exec);
    for (size_t k = 1; k < steps_.size() && compiles; ++k)  // printed programs have plain library calls
      outline_->execs[k].may_be_epilogue = add_epilogue(*outline_, k);
    auto apart = values_apart(*plan_, *outline_, g_, out_);
    find_heirs(apart, !compiles);
    arrange_kernels();
    outline_->index();
    measure(*outline_);
    if (compiles) make_kernels();
    else keep_nests();
    plan_->direct = directly(*outline_, out_);
    place_in_arena(*plan_, *outline_, apart);
    plan_->outline = std::move(outline_);
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

  // Decides the strides of every value: those of the trace if no library of this machine computes with them.
  void place(bool compiles) {
    auto& g = g_.graph;
    for (auto& v : g.values())
      if (v->constant.defined()) at_[size_t(v->id)] = v->constant;
    for (auto& v : g.values())
      if (auto& t = v->tensor; !compiles && !at_[size_t(v->id)].defined())
        at_[size_t(v->id)] = fake({Dims(t.sizes()), t.dtype(), t.device(), Dims(t.strides())});
    outline_->general =
        !compiles || place_values(g, plan_->symbols, at_, [this](const Node& n) { return concrete_args(n); });
    if (!outline_->general && for_others_) outline_->general = place_in_symbols();
    for (auto& t : out_) outline_->general &= !t.defined();
    for (auto& step : steps_)  // fused intermediates may be stored in a wider dtype
      for (size_t k = 0; step.kind == Step::Kind::kernel && k < step.outputs.size(); ++k) {
        auto& t = at_[size_t(step.outputs[k]->id)];
        DType dtype = step.group.outputs[k].dtype;
        if (t.dtype() != dtype) t = fake({Dims(t.sizes()), dtype, t.device(), Dims(t.strides())});
      }
  }

  // Decides the strides over the symbols of sizes. True if they hold for all sizes that satisfy `relied`.
  bool place_in_symbols() {
    auto& g = g_.graph;
    if (!g.shapes || !g.shapes->symbol_count()) return false;
    std::vector<Tensor> at(at_.size());
    for (auto* v : g.inputs) at[size_t(v->id)] = v->tensor;
    for (auto* v : g_.constants) at[size_t(v->id)] = v->constant;
    sym::Shapes shapes(*g.shapes);
    sym::Shapes::With with(shapes);
    size_t traced = shapes.guards().size();
    auto args_of = [&](const Node& n) {
      op::Args args = n.args.clone();
      args.each_tensor([&](size_t, Tensor& t) {
        if (t.defined()) t = at[size_t(graph::value_of(t)->id)];
      });
      return args;
    };
    try {
      place_values(g, {}, at, args_of);
    } catch (const Error&) {  // a rule that needs numbers: every size gets an outline
      return false;
    }
    for (size_t v = 0; v < at.size(); ++v)
      for (int d = 0; at[v].defined() && d < at[v].dim(); ++d)
        if (SymInt(size_of(at[v].stride(d))) != at_[v].stride(d)) return false;
    for (size_t k = traced; k < shapes.guards().size(); ++k) outline_->relied.guard(shapes.guards()[k]);
    in_symbols_ = std::move(at);
    return true;
  }
  // The strides of a value over the symbols of sizes.
  SymSpan strides_of(int v) const {
    bool placed = !in_symbols_.empty() && in_symbols_[size_t(v)].defined();
    return (placed ? in_symbols_[size_t(v)] : g_.graph.values()[size_t(v)]->tensor).strides();
  }

  void find_last_reads() {
    int count = int(steps_.size());
    for (int k = 0; k < count; ++k) {
      auto& step = steps_[size_t(k)];
      for (auto* v : step.node ? graph::operands(*step.node) : step.inputs)
        if (v) last_read_[size_t(v->id)] = k;
    }
    for (int k = count; k-- > 0;) {  // reading a view reads its base
      auto& step = steps_[size_t(k)];
      if (step.kind != Step::Kind::view) continue;
      int& base = last_read_[size_t(graph::operands(*step.node)[0]->id)];
      for (auto* v : step.node->results)
        base = std::max(base, outlives_[size_t(v->id)] ? count : last_read_[size_t(v->id)]);
    }
    dead_.resize(steps_.size());
    for (size_t v = 0; v < last_read_.size(); ++v)
      if (int k = last_read_[v]; k >= 0 && k < count && !outlives_[v]) dead_[size_t(k)].push_back(int(v));
  }

  // The caller's destinations, and inputs that are mutated where the writing kernel may overwrite them.
  void find_destinations() {
    outline_->written_to.assign(g_.graph.values().size(), -1);
    for (size_t k = 0; k < out_.size() && k < g_.outputs.size(); ++k)
      if (out_[k].defined() && g_.outputs[k] >= 0) at_[size_t(g_.outputs[k])] = out_[k];
    if (g_.graph.mutated.empty() && !g_.keeper) return;
    outline_->last_refusal = last_refusal(steps_);
    std::unordered_map<const graph::Value*, size_t> writers;
    for (size_t k = 0; k < steps_.size(); ++k)
      if (steps_[k].kind == Step::Kind::kernel)
        for (auto* v : steps_[k].outputs) writers[v] = k;
    for (auto& [i, v] : g_.graph.mutated) {
      auto* input = g_.graph.inputs[size_t(i)];
      auto writer = writers.find(v);
      // A write in front of an error would remain.
      if (writer == writers.end() || int(writer->second) <= outline_->last_refusal) continue;
      if (!may_write(*v, *input, writer->second)) continue;
      outline_->written_to[size_t(v->id)] = i;
      at_[size_t(v->id)] = at_[size_t(input->id)];
    }
  }
  bool may_write(const graph::Value& v, const graph::Value& input, size_t writer) {
    auto& step = steps_[writer];
    auto position = size_t(std::find(step.outputs.begin(), step.outputs.end(), &v) - step.outputs.begin());
    bool safe = last_read_[size_t(input.id)] <= int(writer);
    if (step.group.scatter) safe &= step.group.scatter->base < 0;  // the scatter changes another buffer
    for (size_t b = 0; b < step.inputs.size(); ++b)
      if (step.inputs[b] == &input) safe &= reads_only_own_element(step.group, int(b), position);
      else safe &= memory_of(step.inputs[b]) != &input;
    if (!safe) return false;
    // Views of `v` were planned for the strides of `v`.
    bool viewed = std::ranges::any_of(steps_, [&](auto& other) {
      return other.kind == Step::Kind::view && graph::operands(*other.node)[0] == &v;
    });
    if (!viewed) return true;
    outline_->general &= std::ranges::equal(strides_of(v.id), strides_of(input.id), SymInt::surely_equal);
    return Dims(at_[size_t(v.id)].strides()) == Dims(at_[size_t(input.id)].strides());
  }

  static const graph::Value* memory_of(const graph::Value* v) {
    while (v->producer && v->producer->op->is<op::View>()) v = graph::operands(*v->producer)[0];
    return v;
  }

  void list_steps() {
    for (size_t k = 0; k < steps_.size(); ++k) {
      auto& step = steps_[k];
      auto& exec = outline_->execs.emplace_back();
      exec.kind = step.kind;
      exec.node = step.node;
      if (step.node) exec.find_library();
      for (auto* v : step.node ? graph::operands(*step.node) : step.inputs)
        exec.inputs.push_back(v ? v->id : -1);
      for (auto* v : step.node ? step.node->results : step.outputs) exec.outputs.push_back(v->id);
      for (int v : exec.outputs)
        if (last_read_[size_t(v)] < 0 && !outlives_[size_t(v)]) dead_[k].push_back(v);
      exec.dead = std::move(dead_[k]);
    }
  }

  // Values of equal layout share a form: for all sizes, or for these if the outline serves no others.
  void choose_forms() {
    outline_->form.assign(at_.size(), -1);
    std::unordered_map<Key, int, KeyHash> form_of_layout;
    auto choose = [&](int v) {
      if (v < 0 || outline_->form[size_t(v)] >= 0) return;
      auto& t = at_[size_t(v)];
      int input = outline_->written_to[size_t(v)];
      int like = input >= 0 ? g_.inputs[size_t(input)] : v;
      auto& traced = g_.graph.values()[size_t(like)]->tensor;
      Dims sizes(outline_->general ? traced.sizes() : t.sizes());
      Dims strides(outline_->general ? strides_of(like) : t.strides());
      Key key{uint64_t(t.dtype()) | uint64_t(t.device().type) << 8 |
              uint64_t(uint8_t(t.device().index)) << 16};
      for (auto& all : {sizes, strides})
        for (auto s : all) key.push_back(s.identity());
      auto [it, is_new] = form_of_layout.try_emplace(std::move(key), int(lying_.size()));
      outline_->form[size_t(v)] = it->second;
      if (!is_new) return;
      lying_.emplace_back(t);
      outline_->forms.push_back({like, t.dtype()});
      if (outline_->general && !std::ranges::equal(strides, traced.strides(), SymInt::surely_equal))
        outline_->forms.back().strides = strides;
      plan_->forms.push_back({{Dims(t.sizes()), t.dtype(), t.device(), Dims(t.strides())}});
    };
    for (auto& exec : outline_->execs) {
      for (int v : exec.inputs) choose(v);
      for (int v : exec.outputs) choose(v);
    }
    form_ = outline_->form;
  }

  // Lets elementwise results reuse the memory of operands of equal layout whose live ranges end there; `through_views`: also that
  // of values which the step reads through a view of all elements.
  void find_heirs(std::vector<bool>& apart, bool through_views) {
    outline_->takes_over.assign(at_.size(), -1);
    std::vector<bool> leaves(at_.size());  // whether its memory is free for reuse when it dies
    for (size_t k = 0; k < steps_.size(); ++k) {
      auto& exec = outline_->execs[k];
      for (size_t o = 0; o < exec.outputs.size() && exec.allocates(); ++o) {
        int v = exec.outputs[o];
        if (outline_->written_to[size_t(v)] >= 0 || has_destination(v)) continue;
        leaves[size_t(v)] = !outlives_[size_t(v)];
        if (exec.kind != Step::Kind::kernel) continue;
        auto may_leave = [&](int u) {
          return leaves[size_t(u)] && apart[size_t(u)] <= apart[size_t(v)] &&
                 may_take_over(steps_[k], o, u, through_views);
        };
        auto dying = exec.dead.end();
        if (exec.may_be_epilogue)  // an epilogue in place writes one result instead of two
          dying = std::ranges::find_if(exec.dead, [&](int u) {
            return u == outline_->execs[k - 1].outputs[0] && may_leave(u);
          });
        if (dying == exec.dead.end()) dying = std::ranges::find_if(exec.dead, may_leave);
        if (dying == exec.dead.end()) continue;
        outline_->takes_over[size_t(v)] = *dying;
        leaves[size_t(*dying)] = false;
        for (int u = *dying; apart[size_t(v)] && u >= 0; u = outline_->takes_over[size_t(u)])
          apart[size_t(u)] = true;  // they share one block
      }
    }
  }
  bool may_take_over(const Step& step, size_t output, int dying, bool through_views) {
    int result = step.outputs[output]->id;
    if (form_[size_t(dying)] != form_[size_t(result)] &&
        !(through_views && at_[size_t(dying)].numel() == at_[size_t(result)].numel()))
      return false;
    bool safe = true, read = false;
    for (size_t b = 0; b < step.inputs.size() && safe; ++b) {
      if (memory_of(step.inputs[b])->id != dying) continue;
      bool alike = form_[size_t(step.inputs[b]->id)] == form_[size_t(result)];
      bool direct = through_views || step.inputs[b]->id == dying;
      safe = read = direct && alike && reads_only_own_element(step.group, int(b), output);
    }
    return safe && read;
  }
  bool has_destination(int v) const {
    for (size_t j = 0; j < out_.size(); ++j)
      if (g_.outputs[j] == v && out_[j].defined()) return true;
    return false;
  }

  // Equal steps share their kernels.
  void arrange_kernels() {
    std::unordered_map<Key, std::pair<int, size_t>, KeyHash>
        kernels_of_key;  // index of the kernels, and their first step
    for (size_t k = 0; k < steps_.size(); ++k) {
      auto& exec = outline_->execs[k];
      if (exec.kind != Step::Kind::kernel) continue;
      std::vector<bool> overlapping;
      Key key{reinterpret_cast<uint64_t>(steps_[k].analysed.get())};
      for (int v : exec.inputs) key.push_back(uint64_t(form_[size_t(v)]));
      for (int v : exec.outputs) {
        overlapping.push_back(overlaps(v, exec));
        key.push_back(uint64_t(form_[size_t(v)]) << 1 | uint64_t(overlapping.back()));
      }
      auto [it, is_new] = kernels_of_key.try_emplace(std::move(key), int(plan_->kernels.size()), k);
      exec.kernels = it->second.first;
      if (is_new) {
        auto step_kernels = kernels(steps_[k], exec, std::move(overlapping));
        exec.empty = std::move(step_kernels.empty);
        plan_->kernels.push_back(std::move(step_kernels.kernels));
      } else {
        auto& same = outline_->execs[it->second.second];
        exec.empty = same.empty;
      }
    }
    outline_->kernels = plan_->kernels.size();
  }
  // Whether the step may read the memory of `v`, which it writes.
  bool overlaps(int v, const Outline::Exec& exec) {
    if (outline_->overwrites(v)) return true;
    if (!has_destination(v)) return false;
    auto& storage = at_[size_t(v)].impl()->storage;
    return storage && std::ranges::any_of(exec.inputs, [&](int input) {
             return at_[size_t(input)].impl()->storage == storage;
           });
  }

  bool for_others_;
  std::vector<Tensor> at_;          // by value number: concrete sizes and strides
  std::vector<Tensor> in_symbols_;  // the same over symbols, if some differ from the traced ones
  std::span<const Tensor> out_;
  std::shared_ptr<Outline> outline_ = std::make_shared<Outline>();
  std::vector<bool> outlives_;          // by value number: whether it outlives the run
  std::vector<int> last_read_;          // by value number: a step, or -1
  std::vector<std::vector<int>> dead_;  // by step: values that no later step reads
};

// Plans other sizes with an existing outline.
class Resizer : Arranger {
 public:
  Resizer(const NumberedGraph& g, const std::vector<Step>& steps, IntSpan symbols,
          std::shared_ptr<const Outline> outline)
      : Arranger(g, steps, symbols), outline_(std::move(outline)) {
    form_ = outline_->form;
  }

  std::shared_ptr<Plan> run() {
    if (!outline_->relied.hold(plan_->symbols)) return nullptr;
    shape();
    measure(*outline_);
    if (!arrange_kernels()) return nullptr;
    for (size_t k = 1; k < outline_->execs.size(); ++k)
      if (outline_->execs[k].may_be_epilogue) add_epilogue(*outline_, k);
    make_kernels();
    plan_->direct = directly(*outline_, {});
    plan_->outline = outline_;
    return place_in_arena(*plan_) ? plan_ : nullptr;
  }

 private:
  void shape() {
    lying_.reserve(outline_->forms.size());
    plan_->forms.reserve(outline_->forms.size());
    for (auto& f : outline_->forms) {
      auto& like = g_.graph.values()[size_t(f.like)]->tensor;
      op::Meta m{Dims(like.sizes()), f.dtype, like.device(), f.strides.value_or(Dims(like.strides()))};
      for (auto* all : {&m.sizes, &m.strides})
        for (auto& s : *all) s = SymInt(size_of(s));
      lying_.emplace_back(fake(m));
      plan_->forms.push_back({std::move(m)});
    }
  }
  // False if a step differs from the outline in which operands have no elements or equal layouts.
  bool arrange_kernels() {
    plan_->kernels.reserve(outline_->kernels);
    for (size_t k : outline_->first_launch) {
      auto& exec = outline_->execs[k];
      std::vector<bool> overlaps;
      for (int v : exec.outputs) overlaps.push_back(outline_->overwrites(v));
      auto step_kernels = kernels(steps_[k], exec, std::move(overlaps));
      if (step_kernels.empty != exec.empty || alike(steps_[k], exec) != exec.alike) return false;
      plan_->kernels.push_back(std::move(step_kernels.kernels));
    }
    return true;
  }

  std::shared_ptr<const Outline> outline_;
};

}  // namespace

std::shared_ptr<Plan> make_plan(const NumberedGraph& g, const std::vector<Step>& steps, IntSpan symbols,
                                std::vector<Tensor> at, std::span<const Tensor> out, bool for_others) {
  return Planner(g, steps, symbols, std::move(at), out, for_others).run();
}

std::shared_ptr<const Plan> make_plan_to_print(const NumberedGraph& g, const std::vector<Step>& steps) {
  std::vector<Tensor> at(g.graph.values().size());
  for (auto* v : g.graph.inputs)
    at[size_t(v->id)] = fake({Dims(v->tensor.sizes()), v->tensor.dtype(), v->tensor.device()});
  return Planner(g, steps, {}, std::move(at), {}, false).run(false);
}

std::shared_ptr<Plan> make_plan(const NumberedGraph& g, const std::vector<Step>& steps, IntSpan symbols,
                                std::shared_ptr<const Outline> outline) {
  return Resizer(g, steps, symbols, std::move(outline)).run();
}

void check_same(const Plan& a, const Plan& b) {
  auto check = [](bool same, const char* what) {
    internal_check(same) << "plans of one layout differ in " << what;
  };
  auto &x = *a.outline, &y = *b.outline;
  check(x.execs.size() == y.execs.size() && x.written_to == y.written_to && x.takes_over == y.takes_over,
        "what they write");
  check(std::ranges::equal(a.epilogues, b.epilogues,
                           [](auto& e, auto& f) {
                             return e.call == f.call && e.function == f.function &&
                                    e.operands == f.operands && e.params == f.params;
                           }),
        "epilogues");
  for (size_t k = 0; k < x.execs.size(); ++k) {
    auto &s = x.execs[k], &t = y.execs[k];
    check(s.kind == t.kind && s.node == t.node && s.inputs == t.inputs && s.outputs == t.outputs, "steps");
    check(s.empty == t.empty && s.alike == t.alike && s.dead == t.dead, "operands");
    check(s.may_be_epilogue == t.may_be_epilogue, "epilogues");
    for (int v : s.outputs) {
      auto &f = a.form(v), &g = b.form(v);
      check(f.meta.sizes == g.meta.sizes && f.meta.strides == g.meta.strides, "sizes and strides");
      check(f.meta.dtype == g.meta.dtype && f.meta.device == g.meta.device && f.bytes == g.bytes, "memory");
    }
    if (s.kernels < 0) continue;
    auto &one = a.kernels_of(s), &other = b.kernels_of(t);
    check(one.temporaries == other.temporaries && one.launches.size() == other.launches.size(), "launches");
    for (size_t l = 0; l < one.launches.size(); ++l) {
      auto &m = one.launches[l], &n = other.launches[l];
      check(m.kernel == n.kernel && m.buffers == n.buffers && m.params == n.params, "kernels");
    }
  }
}

}  // namespace facula::run
