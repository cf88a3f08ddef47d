#include "function.h"
#include "capture/compiled.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "facula/autograd/autograd.h"
#include "facula/autograd/tracing.h"
#include "facula/run/autocast.h"
#include "tensor.h"

namespace facula::bind {

namespace {

class PythonNode;

struct Context {
  std::vector<PyRef> to_save;  // what save_for_backward got, until the outputs are known
  std::vector<autograd::Saved> saved;
  std::vector<TensorImpl*> dirty, without_grad;  // alive while the outputs are processed
  PyRef needs_input_grad;
  PythonNode* node = nullptr;  // null once it is gone
  bool materialize = true;
  bool released = false;
};
struct ContextObject {
  PyObject_HEAD Context* c;
  PyObject* dict;
};
PyTypeObject* ContextType;
Context& context(PyObject* o) { return *reinterpret_cast<ContextObject*>(o)->c; }

class PythonNode final : public autograd::Node {
 public:
  PythonNode(PyObject* ctx, std::string name) : Node(0), ctx_(ctx), name_(std::move(name)) {
    context(ctx).node = this;
  }
  ~PythonNode() override {
    if (!Py_IsInitialized()) return;
    WithGil gil;
    context(ctx_.get()).node = nullptr;
  }
  std::string own_name() const override { return name_; }
  PyObject* ctx() const { return ctx_.get(); }
  void release_saved() override {
    WithGil gil;
    Context& c = context(ctx_.get());
    c.saved.clear();
    c.released = true;
  }
  std::vector<Tensor> apply(std::vector<Tensor> grads, bool) override {
    WithGil gil;
    try {
      return call_backward(grads);
    } catch (const PythonError&) { throw_carried(); }
  }
  std::vector<bool> is_tensor_input;  // of the forward arguments

  // Gradients of the tensors among the arguments of forward, by what backward of the class gives.
  std::vector<Tensor> call_backward(std::vector<Tensor>& grads) {
    Context& c = context(ctx_.get());
    grads.resize(results.size());
    if (c.materialize)
      for (size_t i = 0; i < grads.size(); ++i)
        if (!grads[i].defined()) grads[i] = autograd::zeros_of(results[i]);
    PyRef args = checked(PyTuple_New(Py_ssize_t(grads.size()) + 1));
    PyTuple_SET_ITEM(args.get(), 0, Py_NewRef(ctx_.get()));
    for (size_t i = 0; i < grads.size(); ++i) PyTuple_SET_ITEM(args.get(), Py_ssize_t(i) + 1, wrap(grads[i]));
    PyRef f = checked(PyObject_GetAttr(reinterpret_cast<PyObject*>(Py_TYPE(ctx_.get())), names::backward));
    PyObject* const* items = &PyTuple_GET_ITEM(args.get(), 0);
    PyRef result =
        checked(capture::call_user(f.get(), items, size_t(PyTuple_GET_SIZE(args.get())), {.pure = true}));
    if (!PyTuple_Check(result.get())) result = checked(PyTuple_Pack(1, result.get()));
    size_t given = size_t(PyTuple_GET_SIZE(result.get())), expected = is_tensor_input.size();
    for (size_t i = expected; i < given; ++i)
      runtime_check(PyTuple_GET_ITEM(result.get(), Py_ssize_t(i)) == Py_None, name_)
          << "returned an incorrect number of gradients (expected " << expected << ", got " << given << ")";
    runtime_check(given >= expected, name_)
        << "returned an incorrect number of gradients (expected " << expected << ", got " << given << ")";
    std::vector<Tensor> wanted;
    for (size_t i = 0; i < expected; ++i) {
      PyObject* g = PyTuple_GET_ITEM(result.get(), Py_ssize_t(i));
      runtime_check(is_tensor_input[i] || g == Py_None, name_)
          << "returned a gradient different from None at position " << i + 1
          << ", but the corresponding forward input was not a Tensor";
      if (!is_tensor_input[i]) continue;
      type_check(g == Py_None || is_tensor(g), name_)
          << "expected Tensor or None as a gradient, but got " << Py_TYPE(g)->tp_name;
      wanted.push_back(g == Py_None ? Tensor() : tensor_of(g));
    }
    return wanted;
  }

 private:
  AnyThreadRef ctx_;
  std::string name_;
};

// ---- ctx

PyObject* ctx_new(PyTypeObject* type, PyObject*, PyObject*) {
  PyObject* o = type->tp_alloc(type, 0);
  if (o) reinterpret_cast<ContextObject*>(o)->c = new Context;
  return o;
}
int ctx_traverse(PyObject* o, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(o));
  Py_VISIT(reinterpret_cast<ContextObject*>(o)->dict);
  for (auto& t : context(o).to_save) Py_VISIT(t.get());
  return 0;
}
int ctx_clear(PyObject* o) {
  Py_CLEAR(reinterpret_cast<ContextObject*>(o)->dict);
  context(o).to_save.clear();
  return 0;
}
void ctx_dealloc(PyObject* o) {
  PyObject_GC_UnTrack(o);
  ctx_clear(o);
  delete reinterpret_cast<ContextObject*>(o)->c;
  PyTypeObject* t = Py_TYPE(o);
  t->tp_free(o);
  Py_DECREF(t);
}
PyObject* save_for_backward(PyObject* o, PyObject* args) {
  return guarded([&]() -> PyObject* {
    auto& list = context(o).to_save;
    list.clear();
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) {
      PyObject* t = PyTuple_GET_ITEM(args, i);
      type_check(t == Py_None || is_tensor(t), "save_for_backward")
          << "can only save tensors, but argument " << i << " is of type " << Py_TYPE(t)->tp_name;
      list.push_back(PyRef::share(t));
    }
    Py_RETURN_NONE;
  });
}
PyObject* mark(PyObject* args, std::vector<TensorImpl*>& list, const char* function) {
  return guarded([&]() -> PyObject* {
    list.clear();
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i)
      list.push_back(tensor_argument(function, "args", PyTuple_GET_ITEM(args, i)).impl());
    Py_RETURN_NONE;
  });
}
PyObject* mark_dirty(PyObject* o, PyObject* args) { return mark(args, context(o).dirty, "mark_dirty"); }
PyObject* mark_non_differentiable(PyObject* o, PyObject* args) {
  return mark(args, context(o).without_grad, "mark_non_differentiable");
}
PyObject* set_materialize(PyObject* o, PyObject* on) {
  context(o).materialize = PyObject_IsTrue(on) == 1;
  Py_RETURN_NONE;
}
PyObject* saved_tensors(PyObject* o, void*) {
  return guarded([&]() -> PyObject* {
    Context& c = context(o);
    runtime_check(!c.released, "saved_tensors")
        << "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed)."
        << hint("specify retain_graph=True if you need to backward through the graph a second time");
    if (c.saved.empty()) {  // still inside forward
      PyRef tuple = checked(PyTuple_New(Py_ssize_t(c.to_save.size())));
      for (size_t i = 0; i < c.to_save.size(); ++i)
        PyTuple_SET_ITEM(tuple.get(), Py_ssize_t(i), Py_NewRef(c.to_save[i].get()));
      return tuple.detach();
    }
    std::vector<Tensor> tensors;
    auto owner = Ref<autograd::Node>(Ref<PythonNode>::share(c.node));
    for (auto& s : c.saved) tensors.push_back(s.defined() ? s.unpack(owner, Py_TYPE(o)->tp_name) : Tensor());
    return wrap_list(tensors);
  });
}
PyObject* needs_input_grad(PyObject* o, void*) {
  PyObject* t = context(o).needs_input_grad.get();
  return t ? Py_NewRef(t) : PyTuple_New(0);
}
int set_needs_input_grad(PyObject* o, PyObject* value, void*) {
  context(o).needs_input_grad = PyRef::share(value);
  return 0;
}
PyMemberDef ctx_members[] = {{"__dictoffset__", T_PYSSIZET, offsetof(ContextObject, dict), READONLY, nullptr},
                             {nullptr, 0, 0, 0, nullptr}};
PyMethodDef ctx_methods[] = {{"save_for_backward", save_for_backward, METH_VARARGS,
                              "Keeps tensors for backward, as ctx.saved_tensors."},
                             {"mark_dirty", mark_dirty, METH_VARARGS,
                              "Names the inputs that forward wrote in place."},
                             {"mark_non_differentiable", mark_non_differentiable, METH_VARARGS,
                              "Names outputs that carry no gradient."},
                             {"set_materialize_grads", set_materialize, METH_O,
                              "False: missing gradients stay None."},
                             {nullptr, nullptr, 0, nullptr}};
PyGetSetDef ctx_getset[] = {{"saved_tensors", saved_tensors, nullptr, "What save_for_backward kept.",
                             nullptr},
                            {"needs_input_grad", needs_input_grad, set_needs_input_grad,
                             "Which inputs want a gradient.", nullptr},
                            {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
                            {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot ctx_slots[] = {{Py_tp_new, reinterpret_cast<void*>(ctx_new)},
                           {Py_tp_dealloc, reinterpret_cast<void*>(ctx_dealloc)},
                           {Py_tp_traverse, reinterpret_cast<void*>(ctx_traverse)},
                           {Py_tp_clear, reinterpret_cast<void*>(ctx_clear)},
                           {Py_tp_members, ctx_members},
                           {Py_tp_methods, ctx_methods},
                           {Py_tp_getset, ctx_getset},
                           {0, nullptr}};
PyType_Spec ctx_spec = {"facula._C.FunctionCtx", sizeof(ContextObject), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, ctx_slots};

// ---- apply

bool contains(const std::vector<TensorImpl*>& list, const TensorImpl* t) {
  return std::find(list.begin(), list.end(), t) != list.end();
}

// One output of forward as the caller gets it: result `k` of the node.
PyRef attach_output(PyObject* output, int k, Context& c, const Ref<autograd::Node>& node,
                    const std::vector<Tensor>& inputs) {
  Tensor t = tensor_of(output);
  bool is_input = std::any_of(inputs.begin(), inputs.end(), [&](auto& i) { return i.is_same(t); });
  bool written = contains(c.dirty, t.impl());
  bool differentiable = is_differentiable(t.dtype()) && !contains(c.without_grad, t.impl());
  if (!differentiable) {
    if (is_input && !written) t = t.detached();
    while (node->results.size() <= size_t(k))
      node->results.push_back({Dims(t.sizes()), t.dtype(), t.device()});
    return PyRef(wrap(std::move(t)));
  }
  if (written) {
    runtime_check(!t.impl()->requires_grad || autograd::node_of(t), "mark_dirty")
        << "a leaf Variable that requires grad has been used in an in-place operation."
        << hint("clone() it first");
    while (node->results.size() <= size_t(k))
      node->results.push_back({Dims(t.sizes()), t.dtype(), t.device()});
    if (k == 0) autograd::rebase_history(t, node);
    else autograd::set_history(t, node, k);
    return PyRef::share(output);
  }
  if (is_input || autograd::node_of(t) || t.impl()->requires_grad) t = t.detached();
  autograd::set_history(t, node, k);
  PyTypeObject* type = Py_TYPE(output);
  PyRef result = checked(is_plain(type) ? wrap(std::move(t)) : wrap_as(std::move(t), type));
  track(result.get());  // its ctx may hold it
  return result;
}

// The call as a part of the function that is being traced.
class TracedCall {
 public:
  TracedCall(PyObject* ctx, const char* name, std::vector<bool> is_tensor_input,
             const std::vector<Tensor>& inputs)
      : ctx_(PyRef::share(ctx)),
        node_(make_ref<PythonNode>(ctx, std::string(name) + "Backward")),
        trace_(autograd::Tracing::current()) {
    bool plain =
        std::all_of(name, name + strlen(name), [](char c) { return isalnum(uint8_t(c)) || c == '_'; });
    node_->is_tensor_input = std::move(is_tensor_input);
    call_.name = plain ? name : "Function";
    call_.inputs = inputs;
    for (auto& t : inputs) call_.needs.push_back(t.requires_grad());
    trace_->enter(call_);
  }

  // `output`: of forward.
  PyRef finish(PyRef output) {
    bool single = !PyTuple_Check(output.get());
    PyRef all = single ? checked(PyTuple_Pack(1, output.get())) : std::move(output);
    Context& c = context(ctx_.get());
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(all.get()); ++i) {
      PyObject* o = PyTuple_GET_ITEM(all.get(), i);
      Tensor t = is_tensor(o) ? tensor_of(o) : Tensor();
      type_check(t.defined() || !single, "apply")
          << Py_TYPE(ctx_.get())->tp_name << ".forward must return a Tensor or a tuple of Tensors, not "
          << Py_TYPE(o)->tp_name;
      bool dirty = t.defined() && contains(c.dirty, t.impl());
      bool carries = t.defined() && is_differentiable(t.dtype()) && !contains(c.without_grad, t.impl());
      check_written(t, dirty && carries);
      call_.dirty.push_back(dirty);
      call_.carries.push_back(carries);
      node_->results.push_back(t.defined() ? autograd::ResultMeta{Dims(t.sizes()), t.dtype(), t.device()}
                                           : autograd::ResultMeta{});
      call_.outputs.push_back(std::move(t));
    }
    call_.materialize = c.materialize;
    call_.attach = [&](const std::vector<Tensor>& results) { return attach(c, results); };
    call_.backward = [&](std::vector<Tensor> grads, const std::vector<bool>& needs) {
      return backward(c, std::move(grads), needs);
    };
    auto given = trace_->function(call_);
    c.to_save.clear();
    c.dirty.clear();
    c.without_grad.clear();
    PyRef results = checked(PyTuple_New(PyTuple_GET_SIZE(all.get())));
    for (size_t k = 0; k < given.size(); ++k) {
      PyObject* before = PyTuple_GET_ITEM(all.get(), Py_ssize_t(k));
      bool same = !given[k].defined() || given[k].is_same(call_.outputs[k]);
      PyTuple_SET_ITEM(results.get(), Py_ssize_t(k), same ? Py_NewRef(before) : wrap(given[k]));
    }
    return single ? PyRef::share(PyTuple_GET_ITEM(results.get(), 0)) : std::move(results);
  }

 private:
  static void check_written(const Tensor& t, bool written) {
    if (!written) return;
    bool leaf = t.impl()->requires_grad && !t.is_traced() && !autograd::node_of(t);
    runtime_check(!leaf, "mark_dirty")
        << "a leaf Variable that requires grad has been used in an in-place operation."
        << hint("clone() it first");
  }
  std::vector<Tensor> attach(Context& c, const std::vector<Tensor>& results) const {
    std::vector<Tensor> saved;
    for (auto& s : c.to_save) {
      saved.push_back(s.get() == Py_None ? Tensor() : tensor_of(s.get()));
      Tensor& t = saved.back();
      bool is_input =
          std::any_of(call_.inputs.begin(), call_.inputs.end(), [&](auto& i) { return i.is_same(t); });
      for (size_t k = 0; t.defined() && !is_input && k < results.size(); ++k)
        if (call_.outputs[k].is_same(t) && call_.carries[k]) {
          if (!results[k].is_same(t)) s = PyRef(wrap(results[k]));
          t = results[k];
          break;
        }
    }
    return saved;
  }
  std::vector<Tensor> backward(Context& c, std::vector<Tensor> grads, const std::vector<bool>& needs) {
    PyRef flags = checked(PyTuple_New(Py_ssize_t(node_->is_tensor_input.size())));
    size_t k = 0;
    for (size_t i = 0; i < node_->is_tensor_input.size(); ++i)
      PyTuple_SET_ITEM(flags.get(), Py_ssize_t(i), PyBool_FromLong(node_->is_tensor_input[i] && needs[k++]));
    c.needs_input_grad = std::move(flags);
    struct WithoutAutocast {  // which backward() does not see either
      WithoutAutocast() : state(run::autocast_state()) {
        auto off = state;
        off.enabled = false;
        if (state.enabled) run::set_autocast(off);
      }
      ~WithoutAutocast() {
        if (state.enabled) run::set_autocast(state);
      }
      run::AutocastState state;
    } outside;
    try {
      return node_->call_backward(grads);
    } catch (const PythonError&) {
      if (!PyErr_ExceptionMatches(PyExc_Exception)) throw;
      PyObject *type, *value, *trace;
      PyErr_Fetch(&type, &value, &trace);
      PyRef t(type), v(value), tb(trace);
      PyRef text(v ? PyObject_Str(v.get()) : nullptr);
      if (!text) PyErr_Clear();
      auto kind = error_type(type);
      throw Error(ErrorKind::user, kind, "", text ? std::string(text_of(text.get())) : std::string());
    }
  }

  PyRef ctx_;
  Ref<PythonNode> node_;
  autograd::Tracing* trace_;
  autograd::TracedFunction call_;
};

// One call of a Function's apply.
class Application {
 public:
  Application(PyTypeObject* cls, PyObject* const* inputs, Py_ssize_t n)
      : cls_(cls),
        inputs_(inputs),
        n_(n),
        ctx_(checked(ctx_new(cls, nullptr, nullptr))),
        c_(context(ctx_.get())) {
    const char* dot = strrchr(cls->tp_name, '.');
    name_ = dot ? dot + 1 : cls->tp_name;
  }

  PyObject* run() {
    profile::Scope scope(profile::Category::user, name_);
    bool recording = take_inputs() && autograd::grad_enabled();
    std::optional<TracedCall> traced;
    if (autograd::grad_enabled() && autograd::Tracing::current()) {
      if (!tensors_.empty()) traced.emplace(ctx_.get(), name_, is_tensor_input_, tensors_);
      recording = false;
    }
    for (auto& t : tensors_)
      supported_check(!t.is_traced() || traced || !autograd::grad_enabled(), name_)
          << "has a gradient of its own, which a traced function cannot record here"
          << hint("call it outside of the function, or under no_grad()");
    if (recording) {
      node_ = make_ref<PythonNode>(ctx_.get(), std::string(name_) + "Backward");
      node_->is_tensor_input = is_tensor_input_;
      for (auto& t : tensors_) node_->add_edge(t);
    }
    PyRef output = forward();
    if (traced) return traced->finish(std::move(output)).detach();
    if (!recording) {
      c_.to_save.clear();
      return output.detach();
    }
    PyRef results = take_results(output.get());
    save();
    return PyTuple_Check(output.get()) ? results.detach() : Py_NewRef(PyTuple_GET_ITEM(results.get(), 0));
  }

 private:
  bool take_inputs() {  // true if one wants a gradient
    bool any = false;
    PyRef needs = checked(PyTuple_New(n_));
    for (Py_ssize_t i = 0; i < n_; ++i) {
      is_tensor_input_.push_back(is_tensor(inputs_[i]));
      bool wants = is_tensor_input_.back() && tensor_of(inputs_[i]).requires_grad();
      if (is_tensor_input_.back()) tensors_.push_back(tensor_of(inputs_[i]));
      any |= wants;
      PyTuple_SET_ITEM(needs.get(), i, PyBool_FromLong(wants));
    }
    c_.needs_input_grad = std::move(needs);
    return any;
  }

  // Whether the class defines setup_context. The last class before ours is Python's Function.
  bool sets_up_apart() const {
    PyObject* own = _PyType_Lookup(cls_, names::setup_context);
    PyObject* inherited = own;
    for (PyTypeObject* base = cls_; base && base != ContextType; base = base->tp_base)
      inherited = _PyType_Lookup(base, names::setup_context);
    return own && own != inherited;
  }
  PyRef forward() {
    auto* cls = reinterpret_cast<PyObject*>(cls_);
    PyRef method = checked(PyObject_GetAttr(cls, names::forward));
    autograd::GradMode off(false);
    if (!sets_up_apart()) {
      std::vector<PyObject*> call{ctx_.get()};
      call.insert(call.end(), inputs_, inputs_ + n_);
      return checked(capture::call_user(method.get(), call.data(), call.size(), {}));
    }
    PyRef output = checked(capture::call_user(method.get(), inputs_, size_t(n_), {}));
    PyRef setup = checked(PyObject_GetAttr(cls, names::setup_context));
    PyRef tuple = checked(PyTuple_New(n_));
    for (Py_ssize_t i = 0; i < n_; ++i) PyTuple_SET_ITEM(tuple.get(), i, Py_NewRef(inputs_[i]));
    PyObject* args[] = {ctx_.get(), tuple.get(), output.get()};
    checked(capture::call_user(setup.get(), args, 3, {}));
    return output;
  }

  // The tuple of results that users get for the outputs of forward.
  PyRef take_results(PyObject* output) {
    bool single = !PyTuple_Check(output);
    Py_ssize_t count = single ? 1 : PyTuple_GET_SIZE(output);
    PyRef results = checked(PyTuple_New(count));
    Ref<autograd::Node> base(node_);
    int k = 0;
    for (Py_ssize_t i = 0; i < count; ++i) {
      PyObject* o = single ? output : PyTuple_GET_ITEM(output, i);
      if (!is_tensor(o)) {
        type_check(!single, "apply") << cls_->tp_name
                                     << ".forward must return a Tensor or a tuple of Tensors, not "
                                     << Py_TYPE(o)->tp_name;
        PyTuple_SET_ITEM(results.get(), i, Py_NewRef(o));
        node_->results.push_back({});
        ++k;
        continue;
      }
      TensorImpl* before = impl_of(o);
      PyRef made = attach_output(o, k++, c_, base, tensors_);
      produced_.push_back({before, tensor_of(made.get()), k - 1});
      PyTuple_SET_ITEM(results.get(), i, made.detach());
    }
    return results;
  }

  // Saves the tensors of save_for_backward; an output is replaced by the result that users got.
  void save() {
    for (auto& t : c_.to_save) {
      if (t.get() == Py_None) {
        c_.saved.emplace_back();
        continue;
      }
      Tensor tensor = tensor_of(t.get());
      int result = -1;
      bool is_input =
          std::any_of(tensors_.begin(), tensors_.end(), [&](auto& i) { return i.is_same(tensor); });
      for (auto& p : produced_)
        if (p.before == tensor.impl() && !is_input && p.now.requires_grad()) result = p.result;
      c_.saved.emplace_back(tensor, result >= 0, std::max(result, 0));
    }
    c_.to_save.clear();
    c_.dirty.clear();
    c_.without_grad.clear();
  }

  PyTypeObject* cls_;
  const char* name_;
  PyObject* const* inputs_;
  Py_ssize_t n_;
  PyRef ctx_;
  Context& c_;
  std::vector<Tensor> tensors_;
  std::vector<bool> is_tensor_input_;
  Ref<PythonNode> node_;  // if it is recorded
  struct Produced {
    TensorImpl* before;
    Tensor now;
    int result;
  };
  std::vector<Produced> produced_;  // forward's own tensor, and what stands for it
};

PyObject* apply_function(PyObject*, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  return guarded([&]() -> PyObject* {
    if (n < 1 || !PyType_Check(args[0]) ||
        !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(args[0]), ContextType)) {
      PyErr_SetString(PyExc_TypeError,
                      "apply_function(cls, *args): cls must be a subclass of autograd.Function");
      return nullptr;
    }
    type_check(!kwnames || !PyTuple_GET_SIZE(kwnames), "apply") << "takes no keyword arguments";
    return Application(reinterpret_cast<PyTypeObject*>(args[0]), args + 1, n - 1).run();
  });
}

PyMethodDef functions[] = {{"apply_function",
                            reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(apply_function)),
                            METH_FASTCALL | METH_KEYWORDS,
                            "apply_function(cls, *args): runs cls.forward and records cls.backward."},
                           {nullptr, nullptr, 0, nullptr}};

}  // namespace

PyObject* context_of(const autograd::Node& node) {
  auto* p = dynamic_cast<const PythonNode*>(&node);
  return p ? p->ctx() : nullptr;
}

void add_function(PyObject* module) {
  ContextType = add_type(module, &ctx_spec);
  add_functions(module, functions);
}

}  // namespace facula::bind
