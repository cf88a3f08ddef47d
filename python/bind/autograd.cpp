// Modes, backward and grad, nodes and hook handles.
#include "autograd.h"
#include "call_arguments.h"
#include "capture/compiled.h"

#include <algorithm>
#include <array>
#include <memory>
#include <unordered_map>
#include <vector>

#include "facula/autograd/accumulate.h"
#include "facula/autograd/autograd.h"
#include "facula/autograd/batch.h"
#include "facula/autograd/call_node.h"
#include "facula/autograd/forward.h"
#include "facula/base/deterministic.h"
#include "facula/base/matmul_precision.h"
#include "facula/run/autocast.h"
#include "function.h"
#include "tensor.h"
#include "types.h"

namespace facula::bind {

using autograd::Node;

namespace {

// ---- handles of hooks

struct HandleObject {
  PyObject_HEAD Tensor* tensor;
  Ref<Node>* node;
  int id;
};
PyTypeObject* HandleType;

PyObject* make_handle(Tensor t, Ref<Node> node, int id) {
  auto* h = PyObject_New(HandleObject, HandleType);
  if (!h) throw PythonError();
  h->tensor = t.defined() ? new Tensor(std::move(t)) : nullptr;
  h->node = node ? new Ref<Node>(std::move(node)) : nullptr;
  h->id = id;
  return reinterpret_cast<PyObject*>(h);
}
void handle_drop(HandleObject* h) {
  delete std::exchange(h->tensor, nullptr);
  delete std::exchange(h->node, nullptr);
}
void handle_dealloc(PyObject* o) {
  handle_drop(reinterpret_cast<HandleObject*>(o));
  PyTypeObject* t = Py_TYPE(o);
  PyObject_Free(o);
  Py_DECREF(t);
}
PyObject* handle_remove(PyObject* o, PyObject*) {
  return guarded([&] {
    auto* h = reinterpret_cast<HandleObject*>(o);
    if (h->tensor) autograd::remove_hook(*h->tensor, h->id);
    if (h->node) autograd::remove_hook(**h->node, h->id);
    handle_drop(h);
    Py_RETURN_NONE;
  });
}
PyObject* handle_enter(PyObject* o, PyObject*) { return Py_NewRef(o); }
PyObject* handle_id(PyObject* o, void*) { return PyLong_FromLong(reinterpret_cast<HandleObject*>(o)->id); }
PyMethodDef handle_methods[] = {{"remove", handle_remove, METH_NOARGS, "Takes the hook away."},
                                {"__enter__", handle_enter, METH_NOARGS, nullptr},
                                {"__exit__", handle_remove, METH_VARARGS, nullptr},
                                {nullptr, nullptr, 0, nullptr}};
PyGetSetDef handle_getset[] = {{"id", handle_id, nullptr, "The hook's number.", nullptr},
                               {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot handle_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(handle_dealloc)},
                              {Py_tp_methods, handle_methods},
                              {Py_tp_getset, handle_getset},
                              {0, nullptr}};
PyType_Spec handle_spec = {"facula._C.HookHandle", sizeof(HandleObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, handle_slots};

// The result of a hook: undefined for None, or a tensor.
Tensor hook_result(PyObject* result) {
  if (!result) throw_carried();
  PyRef r(result);
  if (result == Py_None) return {};
  if (!is_tensor(result)) {
    PyErr_Format(PyExc_TypeError, "hook must return None or a Tensor, not %s", Py_TYPE(result)->tp_name);
    throw_carried();
  }
  return tensor_of(result);
}

PyRef tuple_of(const std::vector<Tensor>& tensors) {
  PyObject* t = nullptr;
  try {
    t = wrap_list(tensors);
  } catch (const PythonError&) { throw_carried(); }
  return PyRef(t);
}

// Replaces gradients by what a node's hook gave: None, a tensor, or a tuple of them.
void take_replacement(std::vector<Tensor>& grads, PyObject* result) {
  if (!result) throw_carried();
  PyRef r(result);
  if (result == Py_None) return;
  if (is_tensor(result)) {
    if (grads.size() == 1) {
      grads[0] = tensor_of(result);
      return;
    }
  } else if (PyTuple_Check(result) && size_t(PyTuple_GET_SIZE(result)) == grads.size()) {
    for (size_t i = 0; i < grads.size(); ++i) {
      PyObject* item = PyTuple_GET_ITEM(result, Py_ssize_t(i));
      grads[i] = item == Py_None ? Tensor() : is_tensor(item) ? tensor_of(item) : grads[i];
    }
    return;
  }
  PyErr_Format(PyExc_RuntimeError, "a hook of a node must return None or a tuple of %zd gradients",
               Py_ssize_t(grads.size()));
  throw_carried();
}

// ---- nodes

struct NodeObject {
  PyObject_HEAD Ref<Node>* node;
  PyObject* metadata;
};
PyTypeObject* NodeType;
Node& node(PyObject* o) { return **reinterpret_cast<NodeObject*>(o)->node; }

void node_dealloc(PyObject* o) {
  auto* n = reinterpret_cast<NodeObject*>(o);
  (*n->node)->py_object = nullptr;
  Py_CLEAR(n->metadata);
  delete n->node;
  PyTypeObject* t = Py_TYPE(o);
  PyObject_Free(o);
  Py_DECREF(t);
}
PyObject* node_name(PyObject* o, PyObject*) {
  return guarded([&] {
    auto name = node(o).name();
    return unicode(node(o).is_accumulator() ? "torch::autograd::" + name : name);
  });
}
// grad_fn(*gradients): those of its inputs, one alone or a tuple.
PyObject* node_call(PyObject* o, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    if (kwargs && PyDict_GET_SIZE(kwargs)) {
      PyErr_SetString(PyExc_TypeError, "keyword arguments are not supported");
      return nullptr;
    }
    std::vector<Tensor> grads(node(o).results.size());
    auto given = size_t(PyTuple_GET_SIZE(args));
    if (given != grads.size()) {
      PyErr_Format(PyExc_TypeError, "%s: expected %zu gradients, got %zu", node(o).name().c_str(),
                   grads.size(), given);
      return nullptr;
    }
    for (size_t k = 0; k < given; ++k) {
      PyObject* g = PyTuple_GET_ITEM(args, Py_ssize_t(k));
      if (g == Py_None) continue;
      if (!is_tensor(g)) {
        PyErr_Format(PyExc_TypeError, "expected Tensor or None (got %s)", Py_TYPE(g)->tp_name);
        return nullptr;
      }
      grads[k] = tensor_of(g);
    }
    auto found = node(o).apply(std::move(grads), autograd::grad_enabled());
    PyRef tuple = checked(PyTuple_New(Py_ssize_t(found.size())));
    for (size_t k = 0; k < found.size(); ++k)
      PyTuple_SET_ITEM(tuple.get(), Py_ssize_t(k),
                       found[k].defined() ? checked(wrap(found[k])).detach() : Py_NewRef(Py_None));
    return found.size() == 1 ? Py_NewRef(PyTuple_GET_ITEM(tuple.get(), 0)) : tuple.detach();
  });
}
PyObject* node_repr(PyObject* o) {
  return guarded([&] {
    std::string path = Py_TYPE(o)->tp_name;
    if (path.starts_with("builtins.")) path = node(o).name();
    return PyUnicode_FromFormat("<%s object at %p>", path.c_str(), static_cast<void*>(o));
  });
}
// Metadata of the results of the forward call, whose gradients the node receives.
PyObject* node_input_metadata(PyObject* o, void*) {
  return guarded([&] {
    auto& results = node(o).results;
    PyRef types = checked(PyImport_ImportModule("types")),
          list = checked(PyList_New(Py_ssize_t(results.size())));
    PyRef make = checked(PyObject_GetAttrString(types.get(), "SimpleNamespace")),
          none = checked(PyTuple_New(0));
    for (size_t k = 0; k < results.size(); ++k) {
      PyRef facts = checked(PyDict_New()), dtype = checked(wrap(results[k].dtype));
      PyRef shape = checked(wrap_sizes(results[k].sizes)), device = checked(wrap(results[k].device));
      checked(PyDict_SetItemString(facts.get(), "dtype", dtype.get()));
      checked(PyDict_SetItemString(facts.get(), "shape", shape.get()));
      checked(PyDict_SetItemString(facts.get(), "device", device.get()));
      PyList_SET_ITEM(list.get(), Py_ssize_t(k),
                      checked(PyObject_Call(make.get(), none.get(), facts.get())).detach());
    }
    return list.detach();
  });
}
PyObject* node_next(PyObject* o, void*) {
  return guarded([&] {
    auto& edges = node(o).edges();
    PyRef tuple = checked(PyTuple_New(Py_ssize_t(edges.size())));
    for (size_t i = 0; i < edges.size(); ++i) {
      PyRef next = checked(wrap_node(edges[i].node));
      PyTuple_SET_ITEM(tuple.get(), Py_ssize_t(i),
                       checked(Py_BuildValue("Oi", next.get(), edges[i].input)).detach());
    }
    return tuple.detach();
  });
}
PyObject* node_metadata(PyObject* o, void*) {
  auto* n = reinterpret_cast<NodeObject*>(o);
  if (!n->metadata) n->metadata = PyDict_New();
  return Py_XNewRef(n->metadata);
}
PyObject* node_sequence(PyObject* o, PyObject*) { return PyLong_FromUnsignedLongLong(node(o).sequence()); }
PyObject* node_created_at(PyObject* o, void*) {
  return guarded([&] { return unicode(node(o).created_at); });
}
PyObject* node_variable(PyObject* o, void*) {
  return guarded([&]() -> PyObject* {
    if (!node(o).is_accumulator())
      return PyErr_Format(PyExc_AttributeError, "%s has no variable", node(o).name().c_str());
    return wrap(static_cast<autograd::Accumulator&>(node(o)).leaf());
  });
}
PyObject* node_hook(PyObject* o, PyObject* hook) {
  return guarded([&] {
    Ref<Node>& n = *reinterpret_cast<NodeObject*>(o)->node;
    std::function<void(std::vector<Tensor>&, const std::vector<Tensor>&)> after =
        [f = AnyThreadRef(hook)](std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) {
          WithGil gil;
          PyRef in = tuple_of(inputs), out = tuple_of(outputs);
          take_replacement(inputs, PyObject_CallFunctionObjArgs(f.get(), in.get(), out.get(), nullptr));
        };
    return make_handle({}, n, autograd::add_hook(*n, std::move(after), hook));
  });
}
PyObject* node_prehook(PyObject* o, PyObject* hook) {
  return guarded([&] {
    Ref<Node>& n = *reinterpret_cast<NodeObject*>(o)->node;
    std::function<void(std::vector<Tensor>&)> before = [f = AnyThreadRef(hook)](std::vector<Tensor>& grads) {
      WithGil gil;
      PyRef in = tuple_of(grads);
      take_replacement(grads, PyObject_CallOneArg(f.get(), in.get()));
    };
    return make_handle({}, n, autograd::add_hook(*n, std::move(before), hook));
  });
}

// A saved tensor of a node, by the name of the argument.
struct SavedObject {
  PyObject_HEAD Ref<Node>* node;
  std::string* name;
};
PyTypeObject* SavedType;
PyObject* make_saved(const Ref<Node>& n, std::string_view name) {
  auto* s = PyObject_New(SavedObject, SavedType);
  if (!s) throw PythonError();
  s->node = new Ref<Node>(n);
  s->name = new std::string(name);
  return reinterpret_cast<PyObject*>(s);
}
void saved_dealloc(PyObject* o) {
  delete reinterpret_cast<SavedObject*>(o)->node;
  delete reinterpret_cast<SavedObject*>(o)->name;
  PyTypeObject* t = Py_TYPE(o);
  PyObject_Free(o);
  Py_DECREF(t);
}
autograd::PackHook pack_hook(PyObject* pack, PyObject* unpack);
PyObject* saved_register(PyObject* o, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject *pack, *unpack;
    if (!PyArg_ParseTuple(args, "OO:register_hooks", &pack, &unpack)) return nullptr;
    auto* s = reinterpret_cast<SavedObject*>(o);
    runtime_check((*s->node)->pack_saved(*s->name, pack_hook(pack, unpack)), "register_hooks")
        << "Calling register_hooks on a saved tensor with value None is forbidden"
        << hint((*s->node)->name(), " saved nothing as '", *s->name, "'");
    Py_RETURN_NONE;
  });
}
PyObject* saved_data(PyObject* o, void*) {
  return guarded([&] {
    auto* s = reinterpret_cast<SavedObject*>(o);
    return wrap((*s->node)->saved_named(*s->name));
  });
}
PyMethodDef saved_methods[] = {{"register_hooks", saved_register, METH_VARARGS,
                                "register_hooks(pack, unpack): puts the tensor away."},
                               {nullptr, nullptr, 0, nullptr}};
PyGetSetDef saved_getset[] = {{"data", saved_data, nullptr, "The tensor.", nullptr},
                              {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot saved_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(saved_dealloc)},
                             {Py_tp_methods, saved_methods},
                             {Py_tp_getset, saved_getset},
                             {0, nullptr}};
PyType_Spec saved_spec = {"facula._C.SavedTensor", sizeof(SavedObject), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, saved_slots};

std::string_view text_of_or_empty(PyObject* name) {
  Py_ssize_t n;
  const char* s = PyUnicode_AsUTF8AndSize(name, &n);
  return s ? std::string_view(s, size_t(n)) : std::string_view();
}
// "self_sym_sizes": of the argument `self` the sizes that were kept; null for another name.
PyRef part_of_tensor(const op::Call& call, std::string_view wanted) {
  constexpr std::string_view kSizes = "_sym_sizes", kStrides = "_sym_strides", kNumel = "_sym_numel";
  for (auto what : {kSizes, kStrides, kNumel}) {
    if (!wanted.ends_with(what)) continue;
    int k = call.op().schema.index_of(wanted.substr(0, wanted.size() - what.size()));
    if (k < 0 || call.at(size_t(k)).tag != op::Tag::tensor) return {};
    Tensor t(Ref<TensorImpl>::share(call.at(size_t(k)).tensor));
    if (what == kNumel) return checked(PyLong_FromLongLong(t.numel().concrete()));
    return checked(wrap_ints(what == kSizes ? t.sizes() : t.strides()));
  }
  return {};
}
// An argument of the call that made a node: a number, flag or list, or None for a tensor that was not saved.
PyRef argument_of_node(Node& n, std::string_view wanted) {
  auto* of_call = dynamic_cast<autograd::CallNode*>(&n);
  PyRef found;
  if (!of_call) return found;
  of_call->read_call([&](const op::Call& call, auto& kept) {
    auto& schema = call.op().schema;
    int k = schema.index_of(wanted);
    if (k < 0) {
      found = part_of_tensor(call, wanted);
      return;
    }
    if (!kept(size_t(k))) return;
    auto& p = schema.parameters[size_t(k)];
    const op::Value& v = call.at(size_t(k));
    if (v.tag == op::Tag::tensor || v.tag == op::Tag::tensors || v.is_none()) found = PyRef::share(Py_None);
    else if (p.type == op::Type::Tensor) found = checked(wrap(op::wrapped_number(v.number())));
    else found = wrap_plain_argument(p, v);
    if (PyList_Check(found.get())) found = checked(PyList_AsTuple(found.get()));
  });
  return found;
}
// `_saved_...` of all that a node has: its tensors, and the call's arguments that are none.
PyObject* node_dir(PyObject* o, PyObject*) {
  return guarded([&] {
    PyRef base = checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(&PyBaseObject_Type), "__dir__"));
    PyRef names = checked(PyObject_CallOneArg(base.get(), o));
    auto* of_call = dynamic_cast<autograd::CallNode*>(&node(o));
    if (!of_call) return names.detach();
    of_call->read_call([&](const op::Call& call, auto& kept) {
      auto add = [&](const std::string& name) {
        checked(PyList_Append(names.get(), checked(unicode("_saved_" + name)).get()));
      };
      auto& schema = call.op().schema;
      for (size_t k = 0; k < schema.parameters.size(); ++k) {
        auto& p = schema.parameters[k];
        bool number = call.at(k).tag == op::Tag::scalar || call.at(k).tag == op::Tag::integer;
        bool saved = p.type == op::Type::Tensor && !number ? of_call->saves(p.name) : kept(k);
        if (saved) add(p.name);
      }
      for (size_t k = 0; k < schema.returns.size(); ++k) {
        std::string name = schema.returns.size() == 1 ? "result" : "result" + std::to_string(k);
        if (of_call->saves(name)) add(name);
      }
    });
    return names.detach();
  });
}
// The node of a custom function shows the attributes of its ctx.
PyObject* node_getattr(PyObject* o, PyObject* name) {
  PyObject* found = PyObject_GenericGetAttr(o, name);
  if (found || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  PyObject* ctx = context_of(node(o));
  if (!ctx) {
    std::string_view wanted = text_of_or_empty(name);
    bool raw = wanted.starts_with("_raw_saved_");
    if (!raw && !wanted.starts_with("_saved_")) return nullptr;
    PyErr_Clear();
    wanted.remove_prefix(raw ? 11 : 7);
    return guarded([&]() -> PyObject* {
      if (raw) return make_saved(*reinterpret_cast<NodeObject*>(o)->node, wanted);
      Tensor t = node(o).saved_named(wanted);
      if (t.defined()) return wrap(std::move(t));
      if (PyRef argument = argument_of_node(node(o), wanted)) return argument.detach();
      return PyErr_Format(PyExc_AttributeError, "%s saved nothing as '%U'", node(o).name().c_str(), name);
    });
  }
  PyErr_Clear();
  return PyObject_GetAttr(ctx, name);
}
PyMethodDef node_methods[] = {
    {"name", node_name, METH_NOARGS, "The node's name, as MulBackward0."},
    {"register_hook", node_hook, METH_O,
     "register_hook(f) -> handle; f(grad_inputs, grad_outputs) runs after the node."},
    {"register_prehook", node_prehook, METH_O,
     "register_prehook(f) -> handle; f(grad_outputs) runs before the node."},
    {"__dir__", node_dir, METH_NOARGS, nullptr},
    {"_sequence_nr", node_sequence, METH_NOARGS, "The order in which nodes were made."},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef node_getset[] = {
    {"next_functions", node_next, nullptr, "((node, result number), ...) that gradients go to.", nullptr},
    {"_input_metadata", node_input_metadata, nullptr,
     "dtype, shape and device of each result of the forward call.", nullptr},
    {"metadata", node_metadata, nullptr, "A dict of the user's.", nullptr},
    {"variable", node_variable, nullptr, "The leaf of an AccumulateGrad node.", nullptr},
    {"created_at", node_created_at, nullptr, "The stack of the forward call, in anomaly mode.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot node_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(node_dealloc)},
                            {Py_tp_repr, reinterpret_cast<void*>(node_repr)},
                            {Py_tp_call, reinterpret_cast<void*>(node_call)},
                            {Py_tp_getattro, reinterpret_cast<void*>(node_getattr)},
                            {Py_tp_methods, node_methods},
                            {Py_tp_getset, node_getset},
                            {0, nullptr}};
PyType_Spec node_spec = {"facula._C.Node", sizeof(NodeObject), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                         node_slots};

// The class of nodes of one name, so that `type(grad_fn).__name__` tells it: tools that draw graphs read that. They
// are as many as operators and users' functions, and are never freed.
PyTypeObject* node_type(const std::string& name, bool of_user) {
  static auto& types = *new std::unordered_map<std::string, PyTypeObject*>;  // under the interpreter's lock
  std::string path = (of_user ? std::string(package_name()) + ".autograd.function." : "builtins.") + name;
  auto [at, made] = types.try_emplace(path, nullptr);
  if (!at->second) {
    PyType_Slot none[] = {{0, nullptr}};
    PyType_Spec spec = {at->first.c_str(), 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                        none};
    PyRef bases = checked(PyTuple_Pack(1, NodeType));
    at->second =
        reinterpret_cast<PyTypeObject*>(checked(PyType_FromSpecWithBases(&spec, bases.get())).detach());
  }
  return at->second;
}

// ---- modes as context managers

PyTypeObject* GradModeType;
struct GradModeObject {
  PyObject_HEAD bool enabled;
  std::vector<bool>* outer;
};
PyObject* grad_mode_new(PyTypeObject* type, PyObject*, PyObject*) {
  PyObject* o = type->tp_alloc(type, 0);
  if (o) reinterpret_cast<GradModeObject*>(o)->outer = new std::vector<bool>;
  return o;
}
int grad_mode_init(PyObject* o, PyObject* args, PyObject*) {
  int enabled = 0;
  if (!PyArg_ParseTuple(args, "|p:GradMode", &enabled)) return -1;
  reinterpret_cast<GradModeObject*>(o)->enabled = enabled;
  return 0;
}
void grad_mode_dealloc(PyObject* o) {
  delete reinterpret_cast<GradModeObject*>(o)->outer;
  PyTypeObject* t = Py_TYPE(o);
  t->tp_free(o);
  Py_DECREF(t);
}
PyObject* grad_mode_enter(PyObject* o, PyObject*) {
  auto* m = reinterpret_cast<GradModeObject*>(o);
  m->outer->push_back(autograd::grad_enabled());
  autograd::set_grad_enabled(m->enabled);
  return Py_NewRef(o);
}
PyObject* grad_mode_exit(PyObject* o, PyObject*) {
  auto* m = reinterpret_cast<GradModeObject*>(o);
  if (!m->outer->empty()) {
    autograd::set_grad_enabled(m->outer->back());
    m->outer->pop_back();
  }
  Py_RETURN_NONE;
}
// The modes to restore, one for each block that was entered, as the bits of a number behind a leading 1.
PyObject* grad_mode_outer(PyObject* o, void*) {
  unsigned long long bits = 1;
  for (bool b : *reinterpret_cast<GradModeObject*>(o)->outer) bits = bits << 1 | (unsigned long long)b;
  return PyLong_FromUnsignedLongLong(bits);
}
PyGetSetDef grad_mode_getset[] = {{"_outer", grad_mode_outer, nullptr, nullptr, nullptr},
                                  {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyObject* grad_mode_reduce(PyObject* o, PyObject*) {
  return guarded([&]() -> PyObject* {
    PyRef make = checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(o)), "_entered")),
          outer = checked(grad_mode_outer(o, nullptr));
    return Py_BuildValue("O(OO)", make.get(),
                         reinterpret_cast<GradModeObject*>(o)->enabled ? Py_True : Py_False, outer.get());
  });
}
PyObject* grad_mode_entered(PyObject* type, PyObject* args) {
  int enabled;
  unsigned long long bits;
  if (!PyArg_ParseTuple(args, "pK:_entered", &enabled, &bits)) return nullptr;
  PyObject* o = grad_mode_new(reinterpret_cast<PyTypeObject*>(type), nullptr, nullptr);
  if (!o) return nullptr;
  auto* m = reinterpret_cast<GradModeObject*>(o);
  m->enabled = enabled;
  for (; bits > 1; bits >>= 1) m->outer->insert(m->outer->begin(), bits & 1);
  return o;
}
PyMethodDef grad_mode_methods[] = {{"__reduce__", grad_mode_reduce, METH_NOARGS, nullptr},
                                   {"_entered", grad_mode_entered, METH_VARARGS | METH_CLASS, nullptr},
                                   {"__enter__", grad_mode_enter, METH_NOARGS, nullptr},
                                   {"__exit__", grad_mode_exit, METH_VARARGS, nullptr},
                                   {nullptr, nullptr, 0, nullptr}};
PyType_Slot grad_mode_slots[] = {{Py_tp_new, reinterpret_cast<void*>(grad_mode_new)},
                                 {Py_tp_init, reinterpret_cast<void*>(grad_mode_init)},
                                 {Py_tp_dealloc, reinterpret_cast<void*>(grad_mode_dealloc)},
                                 {Py_tp_methods, grad_mode_methods},
                                 {Py_tp_getset, grad_mode_getset},
                                 {0, nullptr}};
PyType_Spec grad_mode_spec = {"facula._C.GradMode", sizeof(GradModeObject), 0,
                              Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, grad_mode_slots};

struct InferenceObject {
  PyObject_HEAD bool enabled;
  std::vector<std::unique_ptr<autograd::InferenceMode>>* scopes;
};
PyObject* inference_new(PyTypeObject* type, PyObject*, PyObject*) {
  PyObject* o = type->tp_alloc(type, 0);
  if (o)
    reinterpret_cast<InferenceObject*>(o)->scopes = new std::vector<std::unique_ptr<autograd::InferenceMode>>;
  return o;
}
int inference_init(PyObject* o, PyObject* args, PyObject*) {
  int enabled = 1;
  if (!PyArg_ParseTuple(args, "|p:InferenceMode", &enabled)) return -1;
  reinterpret_cast<InferenceObject*>(o)->enabled = enabled;
  return 0;
}
void inference_dealloc(PyObject* o) {
  delete reinterpret_cast<InferenceObject*>(o)->scopes;
  PyTypeObject* t = Py_TYPE(o);
  t->tp_free(o);
  Py_DECREF(t);
}
PyObject* inference_enter(PyObject* o, PyObject*) {
  auto* m = reinterpret_cast<InferenceObject*>(o);
  m->scopes->push_back(std::make_unique<autograd::InferenceMode>(m->enabled));
  return Py_NewRef(o);
}
PyObject* inference_exit(PyObject* o, PyObject*) {
  auto* m = reinterpret_cast<InferenceObject*>(o);
  if (!m->scopes->empty()) m->scopes->pop_back();
  Py_RETURN_NONE;
}
PyMethodDef inference_methods[] = {{"__enter__", inference_enter, METH_NOARGS, nullptr},
                                   {"__exit__", inference_exit, METH_VARARGS, nullptr},
                                   {nullptr, nullptr, 0, nullptr}};
PyType_Slot inference_slots[] = {{Py_tp_new, reinterpret_cast<void*>(inference_new)},
                                 {Py_tp_init, reinterpret_cast<void*>(inference_init)},
                                 {Py_tp_dealloc, reinterpret_cast<void*>(inference_dealloc)},
                                 {Py_tp_methods, inference_methods},
                                 {0, nullptr}};
PyType_Spec inference_spec = {"facula._C.InferenceMode", sizeof(InferenceObject), 0,
                              Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, inference_slots};

// ---- functions

PyObject* is_grad_enabled(PyObject*, PyObject*) { return PyBool_FromLong(autograd::grad_enabled()); }
PyObject* set_grad_enabled(PyObject*, PyObject* on) {
  autograd::set_grad_enabled(PyObject_IsTrue(on) == 1);
  Py_RETURN_NONE;
}
PyObject* autocast_state(PyObject*, PyObject*) {
  auto& s = run::autocast_state();
  PyRef dtype(wrap(s.dtype));
  return Py_BuildValue("(NON)", PyBool_FromLong(s.enabled), dtype.get(), PyBool_FromLong(s.cache));
}
PyObject* set_autocast(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    int enabled, cache;
    PyObject* dtype;
    run::AutocastState s;
    if (!PyArg_ParseTuple(args, "pOp:set_autocast", &enabled, &dtype, &cache)) return nullptr;
    type_check(to_dtype(dtype, s.dtype), "set_autocast")
        << "expected a dtype, not " << Py_TYPE(dtype)->tp_name;
    s.enabled = enabled;
    s.cache = cache;
    run::set_autocast(s);
    Py_RETURN_NONE;
  });
}
template <void (*f)()>
PyObject* calls(PyObject*, PyObject*) {
  f();
  Py_RETURN_NONE;
}
PyObject* set_matmul_precision(PyObject*, PyObject* level) {
  set_matmul_precision(MatmulPrecision(PyLong_AsLong(level)));
  Py_RETURN_NONE;
}
PyObject* set_fill_uninitialized(PyObject*, PyObject* on) {
  fill_uninitialized = PyObject_IsTrue(on) == 1;
  Py_RETURN_NONE;
}
PyObject* is_inference_mode_enabled(PyObject*, PyObject*) {
  return PyBool_FromLong(autograd::inference_enabled());
}
PyObject* is_anomaly_enabled(PyObject*, PyObject*) { return PyBool_FromLong(autograd::anomaly_enabled()); }
PyObject* is_anomaly_check_nan_enabled(PyObject*, PyObject*) {
  return PyBool_FromLong(autograd::anomaly_checks_nan());
}
PyObject* set_anomaly(PyObject*, PyObject* args) {
  int on, check_nan = 1;
  if (!PyArg_ParseTuple(args, "p|p:set_anomaly", &on, &check_nan)) return nullptr;
  autograd::set_anomaly(on, check_nan);
  Py_RETURN_NONE;
}

std::vector<Tensor> padded(std::vector<Tensor> grads, size_t n, const char* function) {
  if (grads.empty()) grads.resize(n);
  runtime_check(grads.size() == n, function)
      << "got " << n << " tensors and " << grads.size() << " gradients";
  return grads;
}

PyObject* backward(PyObject*, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  return guarded([&]() -> PyObject* {
    static const char* const spec[] = {"tensors", "grads", "retain_graph", "create_graph", "inputs", nullptr};
    PyObject* v[5];
    if (!take_arguments("backward", spec, 1, args, n, kwnames, v)) return nullptr;
    auto outputs = tensor_list_argument("backward", "tensors", v[0]);
    auto grads = padded(tensor_list_argument("backward", "grads", v[1], true), outputs.size(), "backward");
    auto inputs = tensor_list_argument("backward", "inputs", v[4]);
    bool create = v[3] && is_true(v[3]);
    bool retain = v[2] && v[2] != Py_None ? is_true(v[2]) : create;
    {
      WithoutGil free;
      autograd::backward(outputs, grads, retain, create, inputs);
    }
    Py_RETURN_NONE;
  });
}

PyObject* grad(PyObject*, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  return guarded([&]() -> PyObject* {
    static const char* const spec[] = {"outputs",      "inputs",       "grads", "retain_graph",
                                       "create_graph", "allow_unused", nullptr};
    PyObject* v[6];
    if (!take_arguments("grad", spec, 2, args, n, kwnames, v)) return nullptr;
    auto outputs = tensor_list_argument("grad", "outputs", v[0]);
    auto inputs = tensor_list_argument("grad", "inputs", v[1]);
    auto grads = padded(tensor_list_argument("grad", "grads", v[2], true), outputs.size(), "grad");
    bool create = v[4] && is_true(v[4]);
    bool retain = v[3] && v[3] != Py_None ? is_true(v[3]) : create;
    bool unused = v[5] && is_true(v[5]);
    std::vector<Tensor> result;
    {
      WithoutGil free;
      result = autograd::grad(outputs, inputs, grads, retain, create, unused);
    }
    return wrap_list(result);
  });
}

PyObject* accumulate_hook(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject *tensor, *hook;
    if (!PyArg_ParseTuple(args, "OO:add_accumulated_hook", &tensor, &hook)) return nullptr;
    Tensor t = tensor_argument("register_post_accumulate_grad_hook", "tensor", tensor);
    int id = autograd::add_accumulated_hook(
        t,
        [f = AnyThreadRef(hook), inner = t.is_traced()](const Tensor& leaf) {
          WithGil gil;
          PyRef arg(wrap(leaf));
          PyObject* args[] = {arg.get()};
          hook_result(capture::call_user(f.get(), args, 1, {.is_inner = inner, .is_late = true}));
        },
        hook);
    track(tensor);
    return make_handle(t, nullptr, id);
  });
}

// ---- the dtype of gradients

PyObject* grad_dtype(PyObject*, PyObject* leaf) {
  return guarded([&] {
    auto found = autograd::grad_dtype(tensor_argument("grad_dtype", "self", leaf));
    return found ? wrap(*found) : Py_NewRef(Py_None);
  });
}
PyObject* set_grad_dtype(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject *leaf, *given;
    if (!PyArg_ParseTuple(args, "OO:set_grad_dtype", &leaf, &given)) return nullptr;
    runtime_check(given == Py_None || is_dtype(given), "grad_dtype")
        << "grad_dtype must be a torch.dtype or None, but got " << Py_TYPE(given)->tp_name;
    std::optional<DType> dtype;
    if (DType d; given != Py_None && to_dtype(given, d)) dtype = d;
    autograd::set_grad_dtype(tensor_argument("grad_dtype", "self", leaf), dtype);
    Py_RETURN_NONE;
  });
}

// ---- hooks on saved tensors

class PyPacked final : public autograd::Packed {
 public:
  PyPacked(PyObject* unpack, PyObject* value) : unpack_(unpack), value_(value) {}
  Tensor get() override {
    WithGil gil;
    PyObject* args[] = {value_.get()};
    PyRef result(capture::call_user(unpack_.get(), args, 1, {true, true}));
    if (!result) throw_carried();
    if (!is_tensor(result.get())) {
      PyErr_Format(PyExc_TypeError,
                   "Output of saved tensor unpack_hook expected to be a Tensor but got result of type %s",
                   Py_TYPE(result.get())->tp_name);
      throw_carried();
    }
    return tensor_of(result.get());
  }

 private:
  AnyThreadRef unpack_, value_;
};

autograd::PackHook pack_hook(PyObject* pack, PyObject* unpack) {
  type_check(PyCallable_Check(pack) && PyCallable_Check(unpack), "saved_tensors_hooks")
      << "expected two callables, pack and unpack";
  return [p = AnyThreadRef(pack), u = AnyThreadRef(unpack)](const Tensor& t) -> Ref<autograd::Packed> {
    WithGil gil;
    PyRef arg(wrap(t));
    PyObject* args[] = {arg.get()};
    PyRef value(arg ? capture::call_user(p.get(), args, 1, {true, true}) : nullptr);
    if (!value) throw_carried();
    return make_ref<PyPacked>(u.get(), value.get());
  };
}

PyObject* push_saved_hooks(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject *pack, *unpack;
    if (!PyArg_ParseTuple(args, "OO:saved_tensors_hooks", &pack, &unpack)) return nullptr;
    autograd::push_saved_hook(pack_hook(pack, unpack));
    Py_RETURN_NONE;
  });
}
PyObject* saved_hooks_disabled(PyObject*, PyObject*) {
  return guarded([]() -> PyObject* {
    auto* message = autograd::saved_hooks_disabled();
    if (!message) Py_RETURN_NONE;
    return unicode(*message);
  });
}
PyObject* set_saved_hooks_disabled(PyObject*, PyObject* message) {
  return guarded([&]() -> PyObject* {
    if (message == Py_None) {
      autograd::set_saved_hooks_disabled(nullptr);
    } else {
      std::string text(text_of(message));
      autograd::set_saved_hooks_disabled(&text);
    }
    Py_RETURN_NONE;
  });
}

// ---- edges

PyObject* gradient_edge(PyObject*, PyObject* tensor) {
  return guarded([&]() -> PyObject* {
    Tensor t = tensor_argument("get_gradient_edge", "tensor", tensor);
    runtime_check(t.requires_grad(), "get_gradient_edge")
        << "It is not possible to get the gradient edge for a Tensor that does not require gradients";
    auto edge = autograd::edge_of(t);
    PyRef n = checked(wrap_node(edge.node));
    return Py_BuildValue("Oi", n.get(), edge.input);
  });
}
PyObject* tensor_at_edge(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject* o;
    int k;
    if (!PyArg_ParseTuple(args, "O!i:tensor_at_edge", NodeType, &o, &k)) return nullptr;
    Ref<Node>& n = *reinterpret_cast<NodeObject*>(o)->node;
    runtime_check(k >= 0 && size_t(k) < n->results.size(), "grad") << n->name() << " has no result " << k;
    if (n->is_accumulator()) return wrap(static_cast<autograd::Accumulator&>(*n).leaf());
    auto& m = n->results[size_t(k)];
    Tensor t(make_ref<TensorImpl>(Storage(), m.sizes, contiguous_strides(m.sizes), SymInt(int64_t(0)),
                                  m.dtype, m.device));
    autograd::set_history(t, n, k);
    return wrap(std::move(t));
  });
}
PyObject* backward_number(PyObject*, PyObject*) {
  return PyLong_FromUnsignedLongLong(autograd::backward_number());
}
PyObject* backward_restricted(PyObject*, PyObject*) {
  return PyBool_FromLong(autograd::backward_restricted());
}
PyObject* backward_runs(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* {
    type_check(PyObject_TypeCheck(o, NodeType), "backward_runs")
        << "expected a node, not " << Py_TYPE(o)->tp_name;
    return PyBool_FromLong(autograd::backward_runs(node(o)));
  });
}
PyObject* increment_version(PyObject*, PyObject* tensor) {
  return guarded([&]() -> PyObject* {
    tensor_argument("increment_version", "tensor", tensor).bump_version();
    Py_RETURN_NONE;
  });
}

// The Python stack as traceback prints it, for anomaly mode. Empty if formatting fails.
std::string python_stack() {
  if (!Py_IsInitialized()) return {};
  WithGil gil;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  std::string text;
  PyRef module(PyImport_ImportModule("traceback"));
  PyRef lines(module ? PyObject_CallMethod(module.get(), "format_stack", nullptr) : nullptr);
  PyRef empty(lines ? PyUnicode_FromString("") : nullptr);
  PyRef joined(empty ? PyUnicode_Join(empty.get(), lines.get()) : nullptr);
  const char* s = joined ? PyUnicode_AsUTF8(joined.get()) : nullptr;
  if (s) text = s;
  PyErr_Clear();
  PyErr_Restore(type, value, trace);
  return text;
}

// ---- forward mode

PyObject* enter_forward_level(PyObject*, PyObject*) {
  return guarded([]() -> PyObject* {
    autograd::enter_forward_level();
    Py_RETURN_NONE;
  });
}
PyObject* exit_forward_level(PyObject*, PyObject*) {
  return guarded([]() -> PyObject* {
    autograd::exit_forward_level();
    Py_RETURN_NONE;
  });
}
PyObject* forward_level(PyObject*, PyObject*) { return PyBool_FromLong(autograd::forward_level()); }
PyObject* pause_forward(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    type_check(PyTuple_GET_SIZE(args) > 0, "pause_forward") << "expected a function";
    PyRef rest = checked(PyTuple_GetSlice(args, 1, PyTuple_GET_SIZE(args)));
    autograd::ForwardPaused paused;
    return PyObject_Call(PyTuple_GET_ITEM(args, 0), rest.get(), nullptr);
  });
}
PyObject* tangent_of(PyObject*, PyObject* t) {
  return guarded([&]() -> PyObject* {
    Tensor v = autograd::tangent_in_levels(tensor_argument("tangent_of", "tensor", t));
    if (!v.defined()) Py_RETURN_NONE;
    return wrap(std::move(v));
  });
}
PyObject* make_dual(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject *t, *v;
    if (!PyArg_ParseTuple(args, "OO", &t, &v)) return nullptr;
    return wrap(autograd::make_dual(tensor_argument("make_dual", "tensor", t),
                                    tensor_argument("make_dual", "tangent", v)));
  });
}
PyObject* set_tangent(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject *t, *v;
    if (!PyArg_ParseTuple(args, "OO", &t, &v)) return nullptr;
    autograd::set_tangent_in_levels(tensor_argument("make_dual", "tensor", t),
                                    v == Py_None ? Tensor() : tensor_argument("make_dual", "tangent", v));
    Py_RETURN_NONE;
  });
}

// Parameters that have a gradient: those of a dense one, these gradients, and those of a sparse one.
PyObject* parameters_by_layout(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    static PyObject* const name = PyUnicode_InternFromString("grad");
    const char* optimizer;
    PyObject* params;
    if (!PyArg_ParseTuple(args, "sO!", &optimizer, &PyList_Type, &params)) return nullptr;
    PyRef dense = checked(PyList_New(0)), grads = checked(PyList_New(0)), sparse = checked(PyList_New(0));
    auto append = [](const PyRef& list, PyObject* item) {
      if (PyList_Append(list.get(), item) < 0) throw PythonError();
    };
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(params); ++k) {
      PyRef p(Py_NewRef(PyList_GET_ITEM(params, k)));
      Tensor of = tensor_argument(optimizer, "params", p.get());
      PyRef grad = checked(PyObject_GetAttr(p.get(), name));
      if (grad.get() == Py_None) continue;
      Tensor g = tensor_argument(optimizer, "grad", grad.get());
      runtime_check(g.impl()->sizes == of.impl()->sizes, optimizer)
          << "the gradient of a parameter of shape " << to_string(of.sizes()) << " has shape "
          << to_string(g.sizes());
      if (is_sparse(g.impl())) {
        append(sparse, p.get());
      } else {
        append(dense, p.get());
        append(grads, grad.get());
      }
    }
    return Py_BuildValue("OOO", dense.get(), grads.get(), sparse.get());
  });
}

PyMethodDef functions[] = {
    {"parameters_by_layout", parameters_by_layout, METH_VARARGS,
     "parameters_by_layout(optimizer, params) -> (dense, gradients of these, sparse): those that have a gradient"},
    {"is_grad_enabled", is_grad_enabled, METH_NOARGS, "Are operations recorded on this thread?"},
    {"set_grad_enabled", set_grad_enabled, METH_O, "Switches recording on this thread."},
    {"is_inference_mode_enabled", is_inference_mode_enabled, METH_NOARGS,
     "Is this thread in inference mode?"},
    {"autocast_state", autocast_state, METH_NOARGS, "(enabled, dtype, cache) of autocast on this thread."},
    {"set_autocast", set_autocast, METH_VARARGS, "set_autocast(enabled, dtype, cache), on this thread."},
    {"enter_autocast", calls<run::enter_autocast_region>, METH_NOARGS, "A region of autocast begins."},
    {"exit_autocast", calls<run::exit_autocast_region>, METH_NOARGS,
     "A region of autocast ends; the outermost forgets the casts that it kept."},
    {"clear_autocast_cache", calls<run::clear_autocast_cache>, METH_NOARGS,
     "Forgets the casts of parameters that are kept."},
    {"set_matmul_precision", set_matmul_precision, METH_O,
     "Sets the precision of float32 products: 0 highest, 1 high, 2 medium."},
    {"set_fill_uninitialized", set_fill_uninitialized, METH_O, "Are new tensors without a value filled?"},
    {"is_anomaly_enabled", is_anomaly_enabled, METH_NOARGS, "Is anomaly detection on?"},
    {"is_anomaly_check_nan_enabled", is_anomaly_check_nan_enabled, METH_NOARGS,
     "Does anomaly detection look for NaN?"},
    {"set_anomaly", set_anomaly, METH_VARARGS, "set_anomaly(enabled, check_nan=True)"},
    {"backward", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(backward)),
     METH_FASTCALL | METH_KEYWORDS,
     "backward(tensors, grads=None, retain_graph=None, create_graph=False, inputs=None)"},
    {"grad", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(grad)), METH_FASTCALL | METH_KEYWORDS,
     "grad(outputs, inputs, grads=None, retain_graph=None, create_graph=False, allow_unused=False) -> tuple"},
    {"enter_forward_level", enter_forward_level, METH_NOARGS,
     "Tensors of this thread may carry tangents from now on."},
    {"exit_forward_level", exit_forward_level, METH_NOARGS, "Ends them."},
    {"forward_level", forward_level, METH_NOARGS, "May tensors of this thread carry tangents?"},
    {"pause_forward", pause_forward, METH_VARARGS,
     "pause_forward(f, *args): f(*args), whose operators see no tangents."},
    {"tangent_of", tangent_of, METH_O, "The tangent of a tensor, or None."},
    {"make_dual", make_dual, METH_VARARGS, "make_dual(tensor, tangent): a view that carries the tangent."},
    {"set_tangent", set_tangent, METH_VARARGS, "set_tangent(tensor, tangent)"},
    {"push_saved_tensors_hooks", push_saved_hooks, METH_VARARGS,
     "push_saved_tensors_hooks(pack, unpack), on this thread."},
    {"pop_saved_tensors_hooks", calls<autograd::pop_saved_hook>, METH_NOARGS,
     "Takes the innermost pair away."},
    {"saved_tensors_hooks_disabled", saved_hooks_disabled, METH_NOARGS,
     "The message of the error that they raise, or None."},
    {"set_saved_tensors_hooks_disabled", set_saved_hooks_disabled, METH_O,
     "They raise this message from now on; None: they do not."},
    {"gradient_edge", gradient_edge, METH_O, "gradient_edge(tensor) -> (node, number of its result)"},
    {"tensor_at_edge", tensor_at_edge, METH_VARARGS,
     "tensor_at_edge(node, k): a tensor without data whose gradient goes there."},
    {"backward_number", backward_number, METH_NOARGS, "Which backward runs on this thread, from 1; 0: none."},
    {"backward_restricted", backward_restricted, METH_NOARGS,
     "Is the backward on this thread for some inputs only?"},
    {"backward_runs", backward_runs, METH_O, "Does the backward on this thread run this node?"},
    {"grad_dtype", grad_dtype, METH_O, "The dtype that a leaf's gradient has; None: any."},
    {"set_grad_dtype", set_grad_dtype, METH_VARARGS, "set_grad_dtype(leaf, dtype or None)"},
    {"increment_version", increment_version, METH_O, "Marks a tensor as written."},
    {"add_accumulated_hook", accumulate_hook, METH_VARARGS,
     "add_accumulated_hook(leaf, f) -> handle; f(leaf) runs when .grad was accumulated."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

PyObject* wrap_node(Ref<Node> n) {
  if (!n) Py_RETURN_NONE;
  if (n->py_object) return Py_NewRef(static_cast<PyObject*>(n->py_object));
  auto* o = PyObject_New(NodeObject, node_type(n->name(), context_of(*n)));
  if (!o) throw PythonError();
  n->py_object = o;
  o->metadata = nullptr;
  o->node = new Ref<Node>(std::move(n));
  return reinterpret_cast<PyObject*>(o);
}

PyObject* add_tensor_hook(const Tensor& t, PyObject* hook) {
  type_check(PyCallable_Check(hook), "register_hook")
      << "the hook must be callable, not " << Py_TYPE(hook)->tp_name;
  int id = autograd::add_hook(
      t,
      [f = AnyThreadRef(hook), inner = t.is_traced()](const Tensor& g) -> Tensor {
        WithGil gil;
        PyRef arg(wrap(g));
        PyObject* args[] = {arg.get()};
        return hook_result(capture::call_user(f.get(), args, 1, {.is_inner = inner}));
      },
      hook);
  return make_handle(t, nullptr, id);
}

// The nodes that nothing but `t` holds: only their hooks die with it.
static std::array<Node*, 2> own_nodes(const TensorImpl& t) {
  auto* m = t.grad_slot.get();
  if (!m) return {};
  std::array<Node*, 2> own{};
  if (m->accumulator && m->accumulator->use_count() == 1) own[0] = m->accumulator.get();
  if (!m->node) return own;
  auto held =
      1 + std::count_if(m->hooks.begin(), m->hooks.end(), [&](auto& h) { return h.second == m->node; });
  if (long(m->node->use_count()) == held) own[1] = m->node.get();
  return own;
}

int visit_history(const TensorImpl& t, visitproc visit, void* arg) {
  auto [leaf, node] = own_nodes(t);
  if (leaf) {
    for (auto& h : leaf->pre_hooks) Py_VISIT(static_cast<PyObject*>(h.foreign));
    for (auto& h : leaf->post_hooks) Py_VISIT(static_cast<PyObject*>(h.foreign));
    for (auto& h : static_cast<autograd::Accumulator&>(*leaf).after)
      Py_VISIT(static_cast<PyObject*>(h.foreign));
  }
  if (!node) return 0;
  for (auto& h : node->pre_hooks) Py_VISIT(static_cast<PyObject*>(h.foreign));
  for (auto& h : node->post_hooks) Py_VISIT(static_cast<PyObject*>(h.foreign));
  Py_VISIT(context_of(*node));
  return 0;
}

// Dropping a hook may drop everything that it refers to, even the tensor's other node; both nodes are held until both are
// cleared.
void clear_history(const TensorImpl& t) {
  auto nodes = own_nodes(t);
  Ref<Node> own[2] = {Ref<Node>::share(nodes[0]), Ref<Node>::share(nodes[1])};
  std::vector<autograd::PreHook> before[2];
  std::vector<autograd::PostHook> after[2];
  std::vector<autograd::Accumulator::AfterHook> summed;
  for (int k : {0, 1}) {
    if (!own[k]) continue;
    before[k].swap(own[k]->pre_hooks);
    after[k].swap(own[k]->post_hooks);
  }
  if (own[0]) summed.swap(static_cast<autograd::Accumulator&>(*own[0]).after);
}

bool is_grad_mode(PyObject* o) { return PyObject_TypeCheck(o, GradModeType); }
std::vector<bool>& modes_to_restore(PyObject* grad_mode) {
  return *reinterpret_cast<GradModeObject*>(grad_mode)->outer;
}

void add_autograd(PyObject* module) {
  HandleType = add_type(module, &handle_spec);
  NodeType = add_type(module, &node_spec);
  SavedType = add_type(module, &saved_spec);
  GradModeType = add_type(module, &grad_mode_spec);
  add_type(module, &inference_spec);
  add_functions(module, functions);
  autograd::set_stack_source(python_stack);
}

}  // namespace facula::bind
