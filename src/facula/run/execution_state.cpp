#include "facula/run/execution_state.h"

#include <algorithm>
#include <memory>

#include "facula/base/per_thread.h"
#include "facula/op/registry.h"
#include "facula/run/failed_check.h"
#include "facula/run/library_call.h"
#include "facula/run/program.h"
#include "facula/run/refusals.h"

namespace facula::run {

using op::Results;
using op::Tag;
using Kind = schedule::Step::Kind;

namespace {

// A cache line of zeros to which buffers without elements point.
char* nothing() {
  struct alignas(64) Line {
    char bytes[64] = {};
  };
  return per_thread<Line>().bytes;
}

// Whether nothing else refers to the tensor or its storage, and the storage is in the logical layout.
bool is_held_alone(const Tensor& t) {
  if (!t.defined() || t.impl()->use_count() != 1) return false;
  auto& storage = t.impl()->storage;
  return storage->use_count() == 1 && storage->is_logical() && !storage->is_foreign();
}

// Whether the elements that `written` has in memory may be among those of `read`'s storage.
bool may_overlap(TensorImpl& read, TensorImpl& written) {
  auto *from = static_cast<char*>(read.data_ptr()), *to = static_cast<char*>(written.data_ptr());
  if (read.storage == written.storage) return true;
  from -= read.offset.concrete() * itemsize(read.dtype);
  auto bytes = Tensor(Ref<TensorImpl>::share(&written)).numel().concrete() * itemsize(written.dtype);
  return from < to + bytes && to < from + read.storage->bytes();
}

void copy(const Tensor& from, const Tensor& to) {
  op::Value args[] = {to, from};
  op::call(op::get("copy"), args, op::Form::in_place);
}

// Checks that the results of a user's function are what its shape rule promised, and copies them to the promised strides.
void conform(const op::Operator& o, Results& results, const Plan& plan, std::span<const int> values) {
  runtime_check(results.size() == values.size(), o.schema.full_name())
      << "gave " << results.size() << " tensors, but its fake implementation " << values.size();
  for (size_t k = 0; k < values.size(); ++k) {
    auto& expected = plan.form(values[k]).meta;
    auto& t = results[k];
    bool same = t.dtype() == expected.dtype && Dims(t.sizes()) == expected.sizes;
    runtime_check(same, o.schema.full_name())
        << "gave " << t.dtype() << to_string(t.sizes()) << " as result " << k
        << ", but its fake implementation " << expected.dtype << to_string(SymSpan(expected.sizes));
    if (Dims(t.strides()) == expected.strides) continue;
    Tensor lying = Tensor::empty_strided(expected.sizes, expected.strides, expected.dtype, expected.device);
    copy(t, lying);
    t = lying;
  }
}

}  // namespace

// ---- done once

ExecutionState::ExecutionState(const Outline& outline, const NumberedGraph& g)
    : outline_(outline),
      g_(g),
      values_(g.graph.values().size()),
      numbers_(g.inputs.size()),
      arena_(g.keeper.get()) {
  find_escaping();
  for (auto& exec : outline.execs) add(exec);
  std::vector<bool> dropped(values_.size());
  for (auto& s : steps_)
    for (int v : s.dropped) dropped[size_t(v)] = true;
  for (auto& s : steps_)
    for (int v : s.exec->outputs)
      if (!dropped[size_t(v)] && !is_in_arena(v)) undropped_.push_back(v);
}

void ExecutionState::find_escaping() {
  for (int v : g_.outputs)
    if (v >= 0) at(v).escapes = true;
  for (auto& [i, v] : g_.graph.mutated) at(v->id).escapes = true;
  for (auto& e : outline_.execs)  // a user's function may retain its operands
    for (int v : e.inputs)
      if (v >= 0 && e.kind == Kind::library && !e.node->op->is<op::Library>()) at(v).escapes = true;
  for (size_t k = outline_.execs.size(); k-- > 0;) {
    auto& e = outline_.execs[k];
    if (e.kind == Kind::view)
      for (int v : e.outputs) at(e.inputs[0]).escapes |= at(v).escapes;
  }
}

void ExecutionState::add(const Outline::Exec& exec) {
  Step step;
  step.exec = &exec;
  for (int v : exec.outputs) {
    if (!exec.allocates() || outline_.written_to[size_t(v)] >= 0) continue;
    at(v).inside = outline_.inside[size_t(v)];
    (at(v).inside ? step.resident : step.allocated).push_back(v);
  }
  switch (exec.kind) {
    case Kind::kernel: step.action = Action::launch; break;
    case Kind::library: add_call(step); break;
    case Kind::view: add_view(step); break;
  }
  for (int v : exec.dead)
    if (!is_in_arena(v)) step.dropped.push_back(v);
  steps_.push_back(std::move(step));
}

void ExecutionState::add_call(Step& step) {
  step.action = Action::call;
  step.args = step.exec->node->args.clone();
  step.args.each_tensor([](size_t, Tensor& t) { t = {}; });
  size_t k = 0;
  step.args.each_size([&](SymInt& x) {
    if (x.is_symbolic()) step.sizes.push_back({k, x});
    ++k;
  });
  for (size_t slot = 0; slot < step.exec->inputs.size(); ++slot) {
    int v = step.exec->inputs[slot];
    if (v >= 0 && !is_in_arena(v)) step.bound.push_back({slot, v});
  }
}

void ExecutionState::add_view(Step& step) {
  add_call(step);
  auto& exec = *step.exec;
  bool escapes = std::ranges::any_of(exec.outputs, [&](int v) { return at(v).escapes; });
  bool inside = is_in_arena(exec.inputs[0]);
  step.action = inside ? Action::none : escapes ? Action::view : Action::follow;
  step.fixed = step.sizes.empty() && is_fixed(exec.inputs[0]) &&
               std::ranges::all_of(exec.outputs, [&](int v) { return is_fixed(v); });
  if (step.action != Action::view) find_offsets(step);
  for (int v : exec.outputs) {
    at(v).inside = inside;
    at(v).follows = !inside && !escapes;
  }
}

// Whether the value has the same sizes and strides in all plans of the outline.
bool ExecutionState::is_fixed(int v) const {
  auto& form = outline_.form_of(v);
  auto& like = g_.graph.values()[size_t(form.like)]->tensor;
  return !form.strides && !any_symbolic(like.sizes()) && !any_symbolic(like.strides());
}

// Asks the view's rule over the symbols of sizes. Offsets stay unknown if it disagrees with the outline or compares sizes.
void ExecutionState::find_offsets(Step& step) {
  auto& g = g_.graph;
  if (!outline_.general || !g.shapes || !g.shapes->symbol_count()) return;
  auto layout_of = [&](int v) {
    auto& form = outline_.form_of(v);
    auto& like = g.values()[size_t(form.like)]->tensor;
    return std::pair(like.sizes(), form.strides ? SymSpan(*form.strides) : like.strides());
  };
  sym::Shapes shapes;
  sym::Shapes::With with(shapes);
  auto& exec = *step.exec;
  auto& o = *exec.node->op;
  auto [sizes, strides] = layout_of(exec.inputs[0]);
  try {
    auto views = o.as<op::View>()->rule(op::Call(o, exec.node->args.values()),
                                        op::Geometry(o.name(), sizes, strides, SymInt(), false));
    for (size_t k = 0; k < views.size(); ++k) {
      auto [view_sizes, view_strides] = layout_of(exec.outputs[k]);
      bool as_planned = std::ranges::equal(views[k].sizes(), view_sizes, SymInt::surely_equal) &&
                        std::ranges::equal(views[k].strides(), view_strides, SymInt::surely_equal);
      DType dtype = outline_.form_of(exec.inputs[0]).dtype;
      if (!as_planned || views[k].dtype(dtype) != dtype) return step.offsets.clear();
      step.offsets.push_back(views[k].offset());
    }
  } catch (const Error&) { step.offsets.clear(); }
  if (!shapes.guards().empty()) step.offsets.clear();
}

// ---- done for each plan

void ExecutionState::bind(const Plan& plan) {
  bound_ = 0;
  residents_.clear();
  settled_.clear();
  buffers_.clear();
  arena_at_ = nullptr;
  renewed_ = false;
  size_t scratch = 0;
  for (auto& step : steps_) {
    for (int v : step.resident) own(v);
    switch (step.action) {
      case Action::launch: bind_launch(step, scratch); break;
      case Action::call: bind_call(step); break;
      default: bind_view(step);
    }
  }
  for (auto& step : steps_) step.epilogue = nullptr;
  for (auto& e : plan.epilogues) steps_[e.call].epilogue = &e;
  bound_ = plan.number;
}

void ExecutionState::own(int v) {
  auto& f = plan_->form(v);
  auto& m = f.meta;
  int64_t offset = plan_->offsets[size_t(v)];
  if (auto* t = at(v).own.impl();
      t && t->use_count() == 1 && t->storage->is_logical()) {  // a tensor of the last plan
    t->sizes = m.sizes;
    t->strides = m.strides;
    t->storage->resize_foreign(f.bytes);
  } else {
    auto storage = make_ref<StorageImpl>(nullptr, f.bytes, m.device, std::function<void()>());
    set(v, Tensor(make_ref<TensorImpl>(std::move(storage), m.sizes, m.strides, SymInt(), m.dtype, m.device)));
    renewed_ = true;
  }
  residents_.push_back({at(v).tensor->storage.get(), offset});
  at(v).in_arena = offset;
}

void ExecutionState::bind_launch(Step& step, size_t& scratch) {
  auto& exec = *step.exec;
  size_t operands = exec.inputs.size() + exec.outputs.size();
  size_t temporaries = plan_->kernels_of(exec).temporaries.size();
  step.buffers = buffers_.size();
  step.scratch = scratch;
  step.fetched.clear();
  buffers_.resize(buffers_.size() + operands + temporaries);
  for (size_t k = 0; k < operands; ++k) {
    int v = exec.operand(k);
    bool empty = std::ranges::count(exec.empty, int(k));
    if (!empty && is_in_arena(v)) settled_.push_back({step.buffers + k, at(v).in_arena});
    else step.fetched.push_back({k, empty ? -1 : v});
  }
  for (size_t k = 0; k < temporaries; ++k)
    if (int64_t offset = plan_->scratch[scratch++]; offset >= 0)
      settled_.push_back({step.buffers + operands + k, offset});
  step.may_be_packed =
      std::ranges::any_of(exec.alike, [&](int k) { return !is_in_arena(exec.operand(size_t(k))); });
}

void ExecutionState::bind_call(Step& step) {
  if (!step.sizes.empty()) {
    size_t k = 0;
    auto next = step.sizes.begin();
    step.args.each_size([&](SymInt& x) {
      if (next != step.sizes.end() && next->first == k++)
        x = SymInt(sym::evaluate(next++->second, plan_->symbols));
    });
  }
  bool renewed = renewed_ || step.stale;
  step.stale = false;
  if (!renewed) return;
  for (size_t slot = 0; slot < step.exec->inputs.size(); ++slot)
    if (int v = step.exec->inputs[slot]; v >= 0 && is_in_arena(v)) step.args.borrow(slot, at(v).tensor);
}

op::Views ExecutionState::views_of(const Step& step, const Tensor& base) const {
  auto& o = *step.exec->node->op;
  return o.as<op::View>()->rule(op::Call(o, step.args.values()), op::Geometry(o.name(), base, false));
}

void ExecutionState::bind_view(Step& step) {
  step.begins.clear();
  if (step.action != Action::view && reshape_views(step)) step.stale = true;
  else bind_call(step);
  if (!step.fixed) step.followed = SymInt(int64_t(-1));
  if (step.action != Action::none) return;
  if (!step.stale) view_arena(step);
  auto& base = at(step.exec->inputs[0]);
  int64_t begin = base.in_arena - base.own.offset().concrete() * base.own.itemsize();
  for (int v : step.exec->outputs)
    at(v).in_arena = begin + at(v).own.offset().concrete() * at(v).own.itemsize();
}

// Turns the views of the last plan into those of this one; false if there are none.
bool ExecutionState::reshape_views(Step& step) {
  auto& outputs = step.exec->outputs;
  auto* base = at(step.exec->inputs[0]).own.impl();
  bool resident = step.action == Action::none;
  bool there = !step.offsets.empty() && std::ranges::all_of(outputs, [&](int v) {
    auto* t = at(v).own.impl();
    return t && t->use_count() == 1 && (!resident || t->storage == base->storage);
  });
  if (!there) return false;
  for (size_t k = 0; k < outputs.size(); ++k) {
    auto& t = *at(outputs[k]).own.impl();
    auto& m = plan_->form(outputs[k]).meta;
    t.sizes = m.sizes;
    t.strides = m.strides;
    int64_t begin = sym::evaluate(step.offsets[k], plan_->symbols);
    if (resident) t.offset = base->offset + SymInt(begin);
    else step.begins.push_back(begin);
  }
  return true;
}

void ExecutionState::view_arena(Step& step) {
  const Tensor& base = at(step.exec->inputs[0]).own;
  auto views = views_of(step, base);
  for (size_t k = 0; k < views.size(); ++k) set(step.exec->outputs[k], views[k].apply(base));
  renewed_ = true;
}

// ---- done in each run

op::Results ExecutionState::run(const Plan& plan, std::span<const op::Value> inputs,
                                std::span<const Tensor> out) {
  plan_ = &plan;
  if (bound_ != plan.number) bind(plan);
  take_arena();
  bind_inputs(inputs, out);
  auto* held = Held::take();
  for (size_t k = 0; k < steps_.size(); ++k) {
    if (held && int(k) > outline_.last_refusal) std::exchange(held, nullptr)->release();
    auto& step = steps_[k];
    if (step.epilogue && call_with_epilogue(step, steps_[k + 1])) {
      note_written(step);
      note_written(steps_[k + 1]);
      drop(step.dropped);
      drop(steps_[++k].dropped);
      continue;
    }
    switch (step.action) {
      case Action::launch: launch(step), note_written(step); break;
      case Action::follow: follow(step); break;
      case Action::view: view(step); break;
      case Action::call: call(step), note_written(step); break;
      case Action::none: break;
    }
    drop(step.dropped);
  }
  for (auto& [i, v] : g_.graph.mutated)
    if (outline_.written_to[size_t(v->id)] < 0)
      copy(tensor_at(v->id), Tensor(Ref<TensorImpl>::share(inputs[size_t(i)].tensor)));
  auto results = outputs(out);
  drop(undropped_);
  wrapped_.clear();
  arena_.give();
  return results;
}

// Usually takes the block of the last run.
void ExecutionState::take_arena() {
  if (!plan_->arena) return;
  void* taken = arena_.take(plan_->arena);
  if (taken == arena_at_) return;
  arena_at_ = taken;
  auto* begin = static_cast<char*>(arena_at_);
  for (auto& r : residents_) r.storage->move_to(begin + r.offset);
  for (auto& b : settled_) buffers_[b.buffer] = begin + b.offset;
}

void ExecutionState::bind_inputs(std::span<const op::Value> inputs, std::span<const Tensor> out) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto& to = at(g_.inputs[i]);
    if (inputs[i].tag == Tag::tensor) {
      to.tensor = inputs[i].tensor;
    } else {
      inputs[i].number().store(op::operand_dtype(inputs[i]), numbers_[i].bytes);
      to.number = numbers_[i].bytes;
    }
  }
  for (auto* v : g_.constants) at(v->id).tensor = v->constant.impl();
  for (auto& [i, v] : g_.graph.mutated)
    if (int input = outline_.written_to[size_t(v->id)]; input >= 0)
      at(v->id).tensor = inputs[size_t(input)].tensor;
  for (size_t k = 0; k < out.size() && k < g_.outputs.size(); ++k)
    if (out[k].defined() && g_.outputs[k] >= 0) at(g_.outputs[k]).tensor = out[k].impl();
}

void ExecutionState::set(int v, Tensor t) {
  at(v).tensor = t.impl();
  at(v).own = std::move(t);
}

void ExecutionState::allocate(int v) {
  if (at(v).tensor) return;
  int u = outline_.takes_over[size_t(v)];
  if (u >= 0 && is_held_alone(at(u).own)) {
    at(u).own.impl()->storage->note_written();
    set(v, std::move(at(u).own));
  } else {
    set(v, fresh(plan_->form(v)));
  }
}

void ExecutionState::launch(Step& step) {
  auto& exec = *step.exec;
  for (int v : step.allocated) allocate(v);
  void** buffers = buffers_.data() + step.buffers;
  PhysicalOrder order;
  std::vector<Tensor> packed;
  if (step.may_be_packed) packed = in_order(step, order);
  for (auto& f : step.fetched) {
    bool in_packed_order = !packed.empty() && std::ranges::count(exec.alike, int(f.buffer));
    if (!in_packed_order) buffers[f.buffer] = f.value < 0 ? nothing() : address(f.value);
  }
  for (size_t k = 0; k < packed.size(); ++k) buffers[exec.alike[k]] = packed[k].impl()->data_ptr();
  std::vector<Storage> scratch;
  auto& kernels = plan_->kernels_of(exec);
  for (size_t k = 0; k < kernels.temporaries.size(); ++k) {
    if (plan_->scratch[step.scratch + k] >= 0) continue;
    scratch.push_back(make_ref<StorageImpl>(kernels.temporaries[k], Device{}));
    buffers[exec.inputs.size() + exec.outputs.size() + k] = scratch.back()->data();
  }
  for (auto& l : kernels.launches) {
    void** taken = buffers;
    if (!l.all_in_order) {
      chosen_.clear();
      for (int b : l.buffers) chosen_.push_back(buffers[b]);
      taken = chosen_.data();
    }
    try {
      codegen::launch(*l.kernel, l.work, taken, l.params.data(), g_.name.c_str());
    } catch (const Error& e) { throw as_of_operator(e, g_, exec.inputs, exec.outputs); }
  }
  for (size_t k = 0; k < packed.size(); ++k) {
    if (size_t(exec.alike[k]) < exec.inputs.size()) continue;
    order.itemsize = uint8_t(itemsize(packed[k].dtype()));
    if (is_fresh(exec, exec.alike[k]))
      adopt_physical_order(packed[k], order);  // the new tensor takes this order
    else at(exec.operand(size_t(exec.alike[k]))).tensor->storage->settle(order, packed[k].impl()->storage);
  }
}

// Whether the operand is a result that this run allocated.
bool ExecutionState::is_fresh(const Outline::Exec& exec, int operand) {
  return size_t(operand) >= exec.inputs.size() && at(exec.operand(size_t(operand))).own.defined() &&
         !is_in_arena(exec.operand(size_t(operand)));
}

// The operands of equal layout, all brought into the packed layout of those that are packed; none if none is packed.
std::vector<Tensor> ExecutionState::in_order(const Step& step, PhysicalOrder& order) {
  auto& exec = *step.exec;
  bool any = false;
  for (int k : exec.alike)
    any |= has_physical_layout(at(exec.operand(size_t(k))).tensor) && !is_fresh(exec, k);
  if (!any) [[likely]]
    return {};
  std::vector<TensorImpl*> operands;
  std::vector<bool> fresh;
  for (int k : exec.alike) {
    operands.push_back(at(exec.operand(size_t(k))).tensor);
    fresh.push_back(is_fresh(exec, k));
  }
  return in_one_order(operands, fresh, order);
}

// Moves the views to the base of this run, with the geometry of the plan or of the last run if it is known for this offset.
void ExecutionState::follow(Step& step) {
  auto& exec = *step.exec;
  auto* base = argument(exec.inputs[0]);
  auto* storage = base->storage.get();
  bool placed = base->offset != step.followed && !step.begins.empty();
  if ((placed || base->offset == step.followed) && storage && storage->is_logical() && !base->is_lazy()) {
    for (size_t k = 0; k < exec.outputs.size(); ++k) {
      auto& value = at(exec.outputs[k]);
      value.tensor = value.own.impl();
      value.tensor->storage = base->storage;
      if (placed) value.tensor->offset = base->offset + SymInt(step.begins[k]);
    }
    step.followed = base->offset;
    return;
  }
  view(step);
  for (int v : exec.outputs) at(v).tensor->version = {};
  step.followed = base->is_lazy() ? SymInt(int64_t(-1)) : base->offset;
}

void ExecutionState::view(Step& step) {
  if (step.stale) bind_call(step);
  bind_arguments(step);
  Borrowed base(argument(step.exec->inputs[0]));
  auto views = views_of(step, base);
  for (size_t k = 0; k < views.size(); ++k) set(step.exec->outputs[k], views[k].apply(base));
}

// The tensor of a value; a number becomes a tensor.
TensorImpl* ExecutionState::argument(int v) {
  if (!at(v).number) return at(v).tensor;
  auto dtype = g_.graph.values()[size_t(v)]->tensor.dtype();
  wrapped_.push_back(op::wrapped_number(Scalar::load(dtype, at(v).number)));
  return wrapped_.back().impl();
}

void ExecutionState::bind_arguments(Step& step) {
  for (auto& b : step.bound) step.args.borrow(b.slot, argument(b.value));
}

void ExecutionState::call(Step& step) {
  auto& exec = *step.exec;
  auto& o = *exec.node->op;
  bind_arguments(step);
  Results destinations;
  if (o.is<op::Library>())
    for (int v : exec.outputs) {
      if (!at(v).tensor) allocate(v);
      bool mine = !is_in_arena(v) && at(v).own.defined();  // the only reference is handed over
      destinations.push_back(mine ? std::move(at(v).own) : tensor_at(v));
    }
  auto results = run_library(exec.library, o, step.args.values(), std::move(destinations));
  if (o.is<op::Foreign>()) conform(o, results, *plan_, exec.outputs);
  for (size_t k = 0; k < exec.outputs.size(); ++k)
    if (int v = exec.outputs[k]; !is_in_arena(v)) set(v, std::move(results[k]));
    else
      internal_check(results[k].is_same(at(v).own))
          << o.name() << " gave another tensor than its destination";
}

// Runs a library call and the kernel after it at once. False if the backend does not do that; then both are still to be run.
bool ExecutionState::call_with_epilogue(Step& step, const Step& kernel) {
  auto& e = *step.epilogue;
  auto &call = *step.exec, &last = *kernel.exec;
  bind_arguments(step);
  auto is_packed = [&](int v) { return has_physical_layout(at(v).tensor); };
  if (std::ranges::any_of(e.operands, is_packed)) return false;
  int v = call.outputs[0], w = last.outputs[0];
  if (!at(v).tensor) allocate(v);
  TensorImpl* result = at(v).tensor;
  for (int x : kernel.allocated) allocate(x);
  TensorImpl* out = at(w).tensor;
  if (is_packed(w)) return false;
  void* to = out->data_ptr();
  // The last elements of the call's operands are read after the first ones of `out` are written.
  for (int x : call.inputs)
    if (x >= 0 && !at(x).number && may_overlap(*at(x).tensor, *out)) return false;
  SmallVector<void*, 8> operands;
  for (int x : e.operands) operands.push_back(address(x));
  Tensor destination(Ref<TensorImpl>::share(result));
  return run_with_epilogue(call.with_epilogue, *call.node->op, step.args.values(), {&destination, 1},
                           {e.function, operands, e.params, to});
}

// Notes the writes to memory that this run did not allocate: later steps may read it.
void ExecutionState::note_written(const Step& step) {
  for (int v : step.exec->outputs) {
    auto* t = is_in_arena(v) ? nullptr : at(v).tensor;
    if (t && t->storage) t->storage->note_written();
  }
}

void ExecutionState::drop(const std::vector<int>& values) {
  for (int v : values) {
    auto& value = at(v);
    value.tensor = nullptr;
    if (!value.follows) value.own = {};
    else if (value.own.defined()) value.own.impl()->storage = {};
  }
}

Results ExecutionState::outputs(std::span<const Tensor> out) {
  Results results;
  for (size_t k = 0; k < g_.outputs.size(); ++k) {
    int v = g_.outputs[k];
    Tensor t = v < 0                                       ? Tensor()
               : at(v).own.defined() && !g_.output_repeats ? std::move(at(v).own)
                                                           : tensor_at(v);
    if (k < out.size() && out[k].defined() && !t.is_same(out[k])) {
      copy(t, out[k]);
      t = out[k];
    }
    results.push_back(std::move(t));
  }
  return results;
}

// ---- idle states

IdleExecutionStates::~IdleExecutionStates() {
  for (auto& slot : slots_) taken(slot);
}

std::unique_ptr<ExecutionState> IdleExecutionStates::taken(Slot& slot) {
  if (!slot.state.load(std::memory_order_relaxed)) return nullptr;
  return std::unique_ptr<ExecutionState>(slot.state.exchange(nullptr, std::memory_order_acquire));
}

std::unique_ptr<ExecutionState> IdleExecutionStates::take(const Plan& plan) {
  size_t idle = 0;
  for (auto& slot : slots_) {
    idle += slot.state.load(std::memory_order_relaxed) != nullptr;
    if (slot.plan.load(std::memory_order_relaxed) == plan.number)
      if (auto state = taken(slot)) return state;
  }
  if (plan.has_run.exchange(true, std::memory_order_relaxed) && idle < kPlans) return nullptr;
  for (auto& slot : slots_)
    if (auto state = taken(slot)) return state;
  return nullptr;
}

void IdleExecutionStates::give(std::unique_ptr<ExecutionState> state) {
  for (auto& slot : slots_) {
    ExecutionState* none = nullptr;
    uint64_t plan = state->plan();
    if (!slot.state.compare_exchange_strong(none, state.get(), std::memory_order_release)) continue;
    slot.plan.store(plan, std::memory_order_relaxed);
    return void(state.release());
  }
}

}  // namespace facula::run
