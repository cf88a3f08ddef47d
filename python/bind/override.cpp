#include "override.h"

#include <cstring>
#include <utility>
#include <vector>

#include "parse.h"
#include "tensor.h"

namespace facula::bind {

namespace {

__attribute__((tls_model("initial-exec"))) thread_local int disabled_depth = 0;
thread_local std::vector<PyRef> modes;
PyObject* default_override;   // Tensor's own __torch_function__, as it stands in its dict
PyObject* disabled_override;  // _disabled_torch_function_impl

bool is_basic(PyTypeObject* t) {
  return t == &PyLong_Type || t == &PyFloat_Type || t == &PyBool_Type || t == &PyTuple_Type ||
         t == &PyList_Type || t == &PyUnicode_Type || t == Py_TYPE(Py_None) || t == &PyComplex_Type ||
         t == &PyDict_Type || t == &PyType_Type || t == &PySlice_Type || t == &PyEllipsis_Type;
}

}  // namespace
// The contents of `types`: the classes that may take the call, or also plain tensor classes, as for functions that PyTorch writes in Python.
enum class Told : bool { takers, tensors };
static PyObject* call_override_of(PyObject*, PyObject*, PyObject* const*, Py_ssize_t, PyObject*, PyObject*,
                                  Told);
namespace {

struct Overriding {
  std::vector<PyObject*> objects;  // in PyTorch's order: subclasses before superclasses, else left to right
  Told told;

  void add(PyObject* o) {
    PyTypeObject* t = Py_TYPE(o);
    size_t at = objects.size();
    for (size_t i = 0; i < objects.size(); ++i) {
      if (Py_TYPE(objects[i]) == t) return;
      if (at == objects.size() && PyType_IsSubtype(t, Py_TYPE(objects[i]))) at = i;
    }
    objects.insert(objects.begin() + long(at), o);
  }
  void scan(PyObject* o) {
    if (is_plain(Py_TYPE(o)) && told == Told::takers) return;
    if (is_tensor(o)) {
      if (told == Told::tensors || override_of(Py_TYPE(o)) != Override::none) add(o);
    } else if (PyTuple_Check(o) || PyList_Check(o)) {
      if (Py_EnterRecursiveCall(" while looking for arguments with __torch_function__")) throw PythonError();
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); ++i) scan(PySequence_Fast_GET_ITEM(o, i));
      Py_LeaveRecursiveCall();
    } else if (has_torch_function(o)) {
      add(o);
    }
  }
};

PyObject* convert(PyObject* owned, PyTypeObject* cls) {
  PyRef result(owned);
  if (!owned) return nullptr;
  if (is_tensor(owned)) {
    if (PyType_IsSubtype(Py_TYPE(owned), cls)) return result.detach();
    Tensor t = tensor_of(owned);
    if (Py_REFCNT(owned) == 1 && is_plain(Py_TYPE(owned)))
      result = PyRef();  // frees the plain object, not the tensor
    return wrap_as(std::move(t), cls);
  }
  if (!PyTuple_Check(owned) && !PyList_CheckExact(owned)) return result.detach();
  Py_ssize_t n = PySequence_Fast_GET_SIZE(owned);
  PyRef items = checked(PyList_New(n));
  for (Py_ssize_t i = 0; i < n; ++i)
    PyList_SET_ITEM(items.get(), i,
                    checked(convert(Py_NewRef(PySequence_Fast_GET_ITEM(owned, i)), cls)).detach());
  if (PyList_CheckExact(owned)) return items.detach();
  if (PyTuple_CheckExact(owned)) return PyList_AsTuple(items.get());
  return PyObject_CallOneArg(reinterpret_cast<PyObject*>(Py_TYPE(owned)), items.get());
}

struct Disabled {
  Disabled() { ++disabled_depth; }
  ~Disabled() { --disabled_depth; }
};

// The attribute of Tensor itself, even if a descriptor that asks overrides has replaced it.
PyObject* native_attribute(const char* name);

// Tensor.grad.__get__ and Tensor._base.__get__ give tensors of their own.
bool gives_plain(PyObject* func) {
  PyRef descriptor(PyObject_GetAttrString(func, "__self__"));
  if (!descriptor) {
    PyErr_Clear();
    return false;
  }
  for (const char* name : {"grad", "_base"})
    if (native_attribute(name) == descriptor.get()) return true;
  return false;
}

// Tensor.__torch_function__(cls, func, types, args=(), kwargs=None): natively, then results become cls.
PyObject* tensor_torch_function(PyObject* cls, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject *func, *types, *call_args = nullptr, *kwargs = nullptr;
    if (!PyArg_ParseTuple(args, "OO|OO:__torch_function__", &func, &types, &call_args, &kwargs))
      return nullptr;
    PyRef type_list = checked(PySequence_Fast(types, "types must be a sequence"));
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(type_list.get()); ++i) {
      int is = PyObject_IsSubclass(cls, PySequence_Fast_GET_ITEM(type_list.get(), i));
      if (is < 0) return nullptr;
      if (!is) Py_RETURN_NOTIMPLEMENTED;
    }
    PyRef tuple = checked(call_args ? PySequence_Tuple(call_args) : PyTuple_New(0));
    PyRef result;
    {
      Disabled scope;
      result = checked(PyObject_Call(func, tuple.get(), kwargs == Py_None ? nullptr : kwargs));
    }
    if (gives_plain(func)) return result.detach();
    return convert(result.detach(), reinterpret_cast<PyTypeObject*>(cls));
  });
}
PyMethodDef default_def = {"__torch_function__", tensor_torch_function, METH_VARARGS | METH_CLASS,
                           "Runs func natively and gives its results as instances of cls."};

PyObject* disabled_impl(PyObject*, PyObject* args) {
  PyObject *func, *types, *call_args = nullptr, *kwargs = nullptr;
  if (!PyArg_ParseTuple(args, "OO|OO", &func, &types, &call_args, &kwargs)) return nullptr;
  Disabled scope;
  PyRef tuple(call_args ? PySequence_Tuple(call_args) : PyTuple_New(0));
  return tuple ? PyObject_Call(func, tuple.get(), kwargs == Py_None ? nullptr : kwargs) : nullptr;
}
PyMethodDef disabled_def = {
    "_disabled_torch_function_impl", disabled_impl, METH_VARARGS,
    "As a class's __torch_function__: the class takes part natively and results are Tensors."};

PyObject* enter(PyObject* self, PyObject*) {
  ++disabled_depth;
  return Py_NewRef(self);
}
PyObject* leave(PyObject*, PyObject*) {
  --disabled_depth;
  Py_RETURN_NONE;
}
PyMethodDef scope_methods[] = {{"__enter__", enter, METH_NOARGS, nullptr},
                               {"__exit__", leave, METH_VARARGS, nullptr},
                               {nullptr, nullptr, 0, nullptr}};
PyType_Slot scope_slots[] = {{Py_tp_methods, scope_methods}, {0, nullptr}};
PyType_Spec scope_spec = {"facula._C.DisableTorchFunctionSubclass", sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT,
                          scope_slots};

// ---- modes

// Programs without modes pay nothing: Tensor's attributes that are no operators ask from the first mode on.
PyObject* push_mode(PyObject*, PyObject* mode) {
  static bool asks = false;
  if (!std::exchange(asks, true) && !make_overridable(reinterpret_cast<PyObject*>(TensorType))) {
    asks = false;
    return nullptr;
  }
  modes.push_back(PyRef::share(mode));
  modes_active = int(modes.size());
  Py_RETURN_NONE;
}
PyObject* pop_mode(PyObject*, PyObject*) {
  PyRef top;
  if (!modes.empty()) {
    top = std::move(modes.back());
    modes.pop_back();
  }
  modes_active = int(modes.size());
  return top ? top.detach() : Py_NewRef(Py_None);
}
PyObject* mode_stack(PyObject*, PyObject*) {
  PyObject* list = PyList_New(0);
  for (auto& m : modes)
    if (list && PyList_Append(list, m.get()) < 0) Py_CLEAR(list);
  return list;
}
// Without the innermost mode, while that handles a call.
struct Lowered {
  Lowered() : top(std::move(modes.back())) {
    modes.pop_back();
    modes_active = int(modes.size());
  }
  ~Lowered() {
    modes.push_back(std::move(top));
    modes_active = int(modes.size());
  }
  PyRef top;
};
// Without any.
struct NoModes {
  NoModes() {
    kept.swap(modes);
    modes_active = 0;
  }
  ~NoModes() {
    kept.swap(modes);
    modes_active = int(modes.size());
  }
  std::vector<PyRef> kept;
};

// ---- functions that are not operators, and know overrides

struct OverridableObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  PyObject* function;
  PyObject* dict;
  bool shows_itself;  // what overrides are told: this object, or the function
};
PyTypeObject* OverridableType;
PyTypeObject* OverridableAttributeType;

struct AttributeObject {
  PyObject_HEAD PyObject* native;
};

PyObject* native_attribute(const char* name) {
  PyObject* found = PyDict_GetItemString(TensorType->tp_dict, name);
  bool asks = found && Py_TYPE(found) == OverridableAttributeType;
  return asks ? reinterpret_cast<AttributeObject*>(found)->native : found;
}

// Whether the exception comes from a `raise` statement and not from a failing expression.
bool is_deliberate(PyObject* trace) {
  if (!trace) return false;
  auto* last = reinterpret_cast<PyTracebackObject*>(trace);
  while (last->tb_next) last = last->tb_next;
  PyRef opcode(PyImport_ImportModule("opcode"));
  PyRef codes(opcode ? PyObject_GetAttrString(opcode.get(), "opmap") : nullptr);
  PyObject* raise = codes ? PyDict_GetItemString(codes.get(), "RAISE_VARARGS") : nullptr;
  PyRef at(PyObject_GetAttrString(reinterpret_cast<PyObject*>(last), "tb_lasti"));
  PyRef code(reinterpret_cast<PyObject*>(PyFrame_GetCode(last->tb_frame)));
  PyRef bytes(PyObject_GetAttrString(code.get(), "co_code"));
  if (!raise || !at || !bytes) return false;
  Py_ssize_t k = PyLong_AsSsize_t(at.get());
  return k >= 0 && k < PyBytes_GET_SIZE(bytes.get()) &&
         uint8_t(PyBytes_AS_STRING(bytes.get())[k]) == PyLong_AsLong(raise);
}

// The parameter of `code` that an argument is for: positional ones in order, then by name. Null if unknown.
PyObject* parameter_of(PyCodeObject* code, PyObject* names, Py_ssize_t k, Py_ssize_t n, PyObject* kwnames) {
  if (k >= n) return PyTuple_GET_ITEM(kwnames, k - n);
  Py_ssize_t at = k < code->co_argcount ? k : code->co_argcount + code->co_kwonlyargcount;  // *args
  return at < PyTuple_GET_SIZE(names) ? PyTuple_GET_ITEM(names, at) : nullptr;
}

// After an AttributeError or TypeError of the body's own: was there something that the function's annotations
// say to be a Tensor, but is none? Then that is what was wrong, and a TypeError, as with operators. The first `own`
// arguments are not the caller's.
bool blame_argument(const std::string& called, PyFunctionObject* f, PyObject* const* args, Py_ssize_t n,
                    PyObject* kwnames, Py_ssize_t own) {
  auto* code = reinterpret_cast<PyCodeObject*>(f->func_code);
  PyRef names(PyObject_GetAttrString(f->func_code, "co_varnames"));
  PyObject* annotations = PyFunction_GetAnnotations(reinterpret_cast<PyObject*>(f));
  Py_ssize_t all = n + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  for (Py_ssize_t k = own; names && annotations && k < all; ++k) {
    PyObject* name = parameter_of(code, names.get(), k, n, kwnames);
    PyObject* said = name ? PyDict_GetItemWithError(annotations, name) : nullptr;
    if (!said || !PyUnicode_Check(said) || is_tensor(args[k])) continue;
    std::string_view text = text_of(said);
    bool number = args[k] == Py_None || PyNumber_Check(args[k]);
    bool several = text.find('[') != text.npos;  // of Iterable[Tensor], say
    if (text != "Tensor" && (number || several || !text.starts_with("Tensor |"))) continue;
    std::string position = k < n ? " (position " + std::to_string(k + 1 - own) + ")" : "";
    PyErr_Format(PyExc_TypeError, "%s(): argument '%U'%s must be Tensor, not %s", called.c_str(), name,
                 position.c_str(), Py_TYPE(args[k])->tp_name);
    return true;
  }
  return false;
}

// "mean: ..." and "mean(): ...", as operators and the parser say it.
bool names_operator(std::string_view text) {
  size_t at = 0;
  if (text.starts_with('_')) return false;  // nobody calls it by that
  while (at < text.size() && (isalnum(static_cast<unsigned char>(text[at])) || text[at] == '_')) ++at;
  return at && (text.substr(at).starts_with(":") || text.substr(at).starts_with("()"));
}

}  // namespace

void name_error(const std::string& called, PyObject* function, PyObject* const* args, Py_ssize_t n,
                PyObject* kwnames, bool method, bool also_of_operators) {
  if (!PyFunction_Check(function) || !is_our_module(PyFunction_GET_GLOBALS(function))) return;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  PyRef error[] = {PyRef(type), PyRef(value), PyRef(trace)};
  auto restore = [&] { PyErr_Restore(error[0].detach(), error[1].detach(), error[2].detach()); };
  auto matches = [&](PyObject* kind) { return PyErr_GivenExceptionMatches(type, kind) != 0; };
  bool by_type = matches(PyExc_AttributeError) || matches(PyExc_TypeError) || matches(PyExc_KeyError);
  bool known = by_type || matches(PyExc_RuntimeError) || matches(PyExc_ValueError) ||
               matches(PyExc_IndexError) || matches(PyExc_AssertionError) || matches(PyExc_ArithmeticError) ||
               matches(PyExc_BufferError) || matches(PyExc_MemoryError);
  PyRef shown(known && is_ours(trace) ? PyObject_Str(value) : nullptr);
  const char* text = shown ? PyUnicode_AsUTF8(shown.get()) : nullptr;
  PyErr_Clear();
  if (!text) return restore();
  Py_ssize_t own = method ? 1 : 0;
  by_type &= matches(PyExc_AttributeError) || !is_deliberate(trace);
  PyErr_Clear();
  if (by_type && !names_operator(text) &&
      blame_argument(called, reinterpret_cast<PyFunctionObject*>(function), args, n, kwnames, own))
    return;
  PyErr_Clear();
  if (has_word(text, called) || (!also_of_operators && names_operator(text))) return restore();
  if (by_type && !names_operator(text)) {
    PyErr_Format(PyExc_TypeError, "%s() received an invalid combination of arguments - got %s: %s",
                 called.c_str(), given_text(args + own, n - own, kwnames).c_str(), text);
    return;
  }
  restore();
  name_python_error(called);
}

namespace {

std::string name_of(PyObject* function) {
  return PyFunction_Check(function)
             ? std::string(text_of(reinterpret_cast<PyFunctionObject*>(function)->func_name))
             : std::string();
}

PyObject* overridable_call(PyObject* o, PyObject* const* args, size_t flags, PyObject* kwnames) {
  auto* f = reinterpret_cast<OverridableObject*>(o);
  Py_ssize_t n = PyVectorcall_NARGS(flags), all = n + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  bool asks_itself = PyCFunction_Check(f->function);  // an operator
  if (disabled_depth || asks_itself || (!modes_active && !any_taken(args, all))) {
    PyObject* result = PyObject_Vectorcall(f->function, args, flags, kwnames);
    if (!result) [[unlikely]]
      name_error(name_of(f->function), f->function, args, n, kwnames, false, true);
    return result;
  }
  return call_override_of(f->shows_itself ? o : f->function, nullptr, args, n, kwnames, nullptr,
                          Told::tensors);
}
PyObject* overridable_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject* function;
  int itself = 1;
  if (!PyArg_ParseTuple(args, "O|p:Overridable", &function, &itself)) return nullptr;
  auto* o = reinterpret_cast<OverridableObject*>(type->tp_alloc(type, 0));
  if (!o) return nullptr;
  o->vectorcall = overridable_call;
  o->function = Py_NewRef(function);
  o->shows_itself = itself;
  return reinterpret_cast<PyObject*>(o);
}
int overridable_traverse(PyObject* o, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(o));
  Py_VISIT(reinterpret_cast<OverridableObject*>(o)->function);
  Py_VISIT(reinterpret_cast<OverridableObject*>(o)->dict);
  return 0;
}
int overridable_clear(PyObject* o) {
  Py_CLEAR(reinterpret_cast<OverridableObject*>(o)->function);
  Py_CLEAR(reinterpret_cast<OverridableObject*>(o)->dict);
  return 0;
}
void overridable_dealloc(PyObject* o) {
  PyObject_GC_UnTrack(o);
  overridable_clear(o);
  PyTypeObject* t = Py_TYPE(o);
  t->tp_free(o);
  Py_DECREF(t);
}
PyObject* overridable_bind(PyObject* o, PyObject* self, PyObject*) {
  return self && self != Py_None ? PyMethod_New(o, self) : Py_NewRef(o);
}
// Everything else as the function has it.
PyObject* overridable_getattr(PyObject* o, PyObject* name) {
  PyObject* found = PyObject_GenericGetAttr(o, name);
  if (found || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  PyErr_Clear();
  return PyObject_GetAttr(reinterpret_cast<OverridableObject*>(o)->function, name);
}
PyObject* overridable_forward(PyObject* o, void* name) {
  return PyObject_GetAttrString(reinterpret_cast<OverridableObject*>(o)->function,
                                static_cast<const char*>(name));
}
PyObject* overridable_wrapped(PyObject* o, void*) {
  return Py_NewRef(reinterpret_cast<OverridableObject*>(o)->function);
}
// It is the function, to whoever keeps one and is told the other.
PyObject* told(PyObject* o) {
  auto* f = reinterpret_cast<OverridableObject*>(o);
  return Py_TYPE(o) == OverridableType && !f->shows_itself ? f->function : o;
}
PyObject* overridable_compare(PyObject* a, PyObject* b, int op) {
  if (op != Py_EQ && op != Py_NE) Py_RETURN_NOTIMPLEMENTED;
  PyObject *x = told(a), *y = told(b);
  if (x == a && y == b) return PyBool_FromLong((a == b) == (op == Py_EQ));
  return PyObject_RichCompare(x, y, op);
}
Py_hash_t overridable_hash(PyObject* o) {
  PyObject* f = told(o);
  return f == o ? _Py_HashPointer(o) : PyObject_Hash(f);
}
PyObject* overridable_repr(PyObject* o) {
  return PyObject_Repr(reinterpret_cast<OverridableObject*>(o)->function);
}
PyObject* overridable_reduce(PyObject* o, PyObject*) {
  PyObject* function = reinterpret_cast<OverridableObject*>(o)->function;
  if (!PyFunction_Check(function)) return PyObject_CallMethod(function, "__reduce__", nullptr);
  return PyObject_GetAttrString(function, "__qualname__");
}
PyMemberDef overridable_members[] = {{"__vectorcalloffset__", T_PYSSIZET,
                                      offsetof(OverridableObject, vectorcall), READONLY, nullptr},
                                     {"__dictoffset__", T_PYSSIZET, offsetof(OverridableObject, dict),
                                      READONLY, nullptr},
                                     {nullptr, 0, 0, 0, nullptr}};
PyMethodDef overridable_methods[] = {{"__reduce__", overridable_reduce, METH_NOARGS, nullptr},
                                     {nullptr, nullptr, 0, nullptr}};
PyGetSetDef overridable_getset[] = {{"__wrapped__", overridable_wrapped, nullptr, nullptr, nullptr},
                                    {"__doc__", overridable_forward, nullptr, nullptr,
                                     const_cast<char*>("__doc__")},
                                    {"__module__", overridable_forward, nullptr, nullptr,
                                     const_cast<char*>("__module__")},
                                    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot overridable_slots[] = {{Py_tp_new, reinterpret_cast<void*>(overridable_new)},
                                   {Py_tp_dealloc, reinterpret_cast<void*>(overridable_dealloc)},
                                   {Py_tp_traverse, reinterpret_cast<void*>(overridable_traverse)},
                                   {Py_tp_clear, reinterpret_cast<void*>(overridable_clear)},
                                   {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                   {Py_tp_descr_get, reinterpret_cast<void*>(overridable_bind)},
                                   {Py_tp_getattro, reinterpret_cast<void*>(overridable_getattr)},
                                   {Py_tp_repr, reinterpret_cast<void*>(overridable_repr)},
                                   {Py_tp_richcompare, reinterpret_cast<void*>(overridable_compare)},
                                   {Py_tp_hash, reinterpret_cast<void*>(overridable_hash)},
                                   {Py_tp_members, overridable_members},
                                   {Py_tp_methods, overridable_methods},
                                   {Py_tp_getset, overridable_getset},
                                   {0, nullptr}};
PyType_Spec overridable_spec = {"facula._C.Overridable", sizeof(OverridableObject), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                                    Py_TPFLAGS_METHOD_DESCRIPTOR,
                                overridable_slots};

// ---- attributes: in the place of a descriptor of Tensor's, which overrides are told (its __get__ and __set__)

bool asks(PyObject* of) {
  return !disabled_depth && (modes_active || override_of(Py_TYPE(of)) == Override::taken);
}
PyObject* attribute_get(PyObject* o, PyObject* of, PyObject* type) {
  PyObject* native = reinterpret_cast<AttributeObject*>(o)->native;
  if (!of || !asks(of)) return !of ? Py_NewRef(o) : Py_TYPE(native)->tp_descr_get(native, of, type);
  PyRef get(PyObject_GetAttrString(native, "__get__"));
  return get ? call_override_of(get.get(), nullptr, &of, 1, nullptr, nullptr, Told::tensors) : nullptr;
}
int attribute_set(PyObject* o, PyObject* of, PyObject* value) {
  PyObject* native = reinterpret_cast<AttributeObject*>(o)->native;
  if (!asks(of)) return Py_TYPE(native)->tp_descr_set(native, of, value);
  PyRef set(PyObject_GetAttrString(native, value ? "__set__" : "__delete__"));
  PyObject* args[] = {of, value};
  PyRef done(set ? call_override_of(set.get(), nullptr, args, value ? 2 : 1, nullptr, nullptr, Told::tensors)
                 : nullptr);
  return done ? 0 : -1;
}
PyObject* attribute_new(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject* native;
  if (!PyArg_ParseTuple(args, "O:OverridableAttribute", &native)) return nullptr;
  if (!Py_TYPE(native)->tp_descr_get || !Py_TYPE(native)->tp_descr_set) {
    PyErr_Format(PyExc_TypeError, "OverridableAttribute(): expected a data descriptor, got %R", native);
    return nullptr;
  }
  PyObject* o = type->tp_alloc(type, 0);
  if (o) reinterpret_cast<AttributeObject*>(o)->native = Py_NewRef(native);
  return o;
}
void attribute_dealloc(PyObject* o) {
  PyTypeObject* t = Py_TYPE(o);
  Py_DECREF(reinterpret_cast<AttributeObject*>(o)->native);
  t->tp_free(o);
  Py_DECREF(t);
}
// It looks like the descriptor: `Tensor.shape.__get__` is what overrides are told.
PyObject* attribute_getattr(PyObject* o, PyObject* name) {
  return PyObject_GetAttr(reinterpret_cast<AttributeObject*>(o)->native, name);
}
PyObject* attribute_repr(PyObject* o) { return PyObject_Repr(reinterpret_cast<AttributeObject*>(o)->native); }
PyType_Slot attribute_slots[] = {{Py_tp_new, reinterpret_cast<void*>(attribute_new)},
                                 {Py_tp_dealloc, reinterpret_cast<void*>(attribute_dealloc)},
                                 {Py_tp_descr_get, reinterpret_cast<void*>(attribute_get)},
                                 {Py_tp_descr_set, reinterpret_cast<void*>(attribute_set)},
                                 {Py_tp_getattro, reinterpret_cast<void*>(attribute_getattr)},
                                 {Py_tp_repr, reinterpret_cast<void*>(attribute_repr)},
                                 {0, nullptr}};
PyType_Spec attribute_spec = {"facula._C.OverridableAttribute", sizeof(AttributeObject), 0,
                              Py_TPFLAGS_DEFAULT, attribute_slots};

PyObject* has_torch_function_of(PyObject*, PyObject* relevant) {
  PyRef items(PySequence_Fast(relevant, "has_torch_function() takes a tuple of arguments"));
  if (!items) return nullptr;
  if (disabled_depth) Py_RETURN_FALSE;
  return PyBool_FromLong(
      modes_active || any_taken(PySequence_Fast_ITEMS(items.get()), PySequence_Fast_GET_SIZE(items.get())));
}
// handle_torch_function(public function, relevant arguments, *args, **kwargs)
PyObject* handle_torch_function(PyObject*, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  if (n < 2) {
    PyErr_SetString(PyExc_TypeError,
                    "handle_torch_function() needs a function and the arguments that may override it");
    return nullptr;
  }
  return guarded([&]() -> PyObject* {
    PyRef relevant = checked(
        PySequence_Fast(args[1], "handle_torch_function(): the relevant arguments must be a sequence"));
    return call_override_of(args[0], nullptr, args + 2, n - 2, kwnames, relevant.get(), Told::tensors);
  });
}
PyMethodDef mode_functions[] = {
    {"push_torch_function_mode", push_mode, METH_O,
     "This object's __torch_function__ takes every call of this thread."},
    {"pop_torch_function_mode", pop_mode, METH_NOARGS, "Ends the innermost; gives it."},
    {"torch_function_modes", mode_stack, METH_NOARGS, "The modes of this thread, the innermost last."},
    {"has_torch_function", has_torch_function_of, METH_O,
     "Has one of these arguments, or a mode, a __torch_function__ of its own?"},
    {"handle_torch_function", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(handle_torch_function)),
     METH_FASTCALL | METH_KEYWORDS,
     "handle_torch_function(f, relevant, *args, **kwargs): asks the overrides."},
    {nullptr, nullptr, 0, nullptr}};

struct EverythingObject {
  PyObject_HEAD std::vector<NoModes*>* paused;
};
PyObject* everything_new(PyTypeObject* type, PyObject*, PyObject*) {
  PyObject* o = type->tp_alloc(type, 0);
  if (o) reinterpret_cast<EverythingObject*>(o)->paused = new std::vector<NoModes*>;
  return o;
}
void everything_dealloc(PyObject* o) {
  delete reinterpret_cast<EverythingObject*>(o)->paused;
  PyTypeObject* t = Py_TYPE(o);
  t->tp_free(o);
  Py_DECREF(t);
}
PyObject* everything_enter(PyObject* o, PyObject*) {
  reinterpret_cast<EverythingObject*>(o)->paused->push_back(new NoModes);
  ++disabled_depth;
  return Py_NewRef(o);
}
PyObject* everything_leave(PyObject* o, PyObject*) {
  auto& paused = *reinterpret_cast<EverythingObject*>(o)->paused;
  if (!paused.empty()) {
    delete paused.back();
    paused.pop_back();
    --disabled_depth;
  }
  Py_RETURN_NONE;
}
PyMethodDef everything_methods[] = {{"__enter__", everything_enter, METH_NOARGS, nullptr},
                                    {"__exit__", everything_leave, METH_VARARGS, nullptr},
                                    {nullptr, nullptr, 0, nullptr}};
PyType_Slot everything_slots[] = {{Py_tp_new, reinterpret_cast<void*>(everything_new)},
                                  {Py_tp_dealloc, reinterpret_cast<void*>(everything_dealloc)},
                                  {Py_tp_methods, everything_methods},
                                  {0, nullptr}};
PyType_Spec everything_spec = {"facula._C.DisableTorchFunction", sizeof(EverythingObject), 0,
                               Py_TPFLAGS_DEFAULT, everything_slots};

}  // namespace

__attribute__((tls_model("initial-exec"))) thread_local int modes_active = 0;

PyObject* wrap_like(PyObject* like, Tensor t) {
  return override_of(Py_TYPE(like)) == Override::rewrap ? wrap_as(std::move(t), Py_TYPE(like))
                                                        : wrap(std::move(t));
}

bool overrides_disabled() { return disabled_depth > 0; }

void keep_results_plain(PyTypeObject* cls) {
  if (_PyType_Lookup(cls, names::__torch_function__) != default_override) return;
  checked(PyObject_SetAttr(reinterpret_cast<PyObject*>(cls), names::__torch_function__, disabled_override));
}

Override override_of(PyTypeObject* t) {
  if (is_plain(t)) return Override::none;
  if (!PyType_IsSubtype(t, TensorType)) {
    return !is_basic(t) && _PyType_Lookup(t, names::__torch_function__) ? Override::taken : Override::none;
  }
  if (disabled_depth) return Override::none;
  PyObject* f = _PyType_Lookup(t, names::__torch_function__);
  return f == default_override ? Override::rewrap : f == disabled_override ? Override::none : Override::taken;
}

bool has_torch_function(PyObject* o) {
  PyTypeObject* t = Py_TYPE(o);
  return !is_basic(t) && override_of(t) == Override::taken;
}

PyObject* call_override(PyObject* function, PyObject* self, PyObject* const* args, Py_ssize_t n,
                        PyObject* kwnames) {
  return call_override_of(function, self, args, n, kwnames, nullptr, Told::takers);
}

// `relevant`: only these are asked.
static PyObject* call_override_of(PyObject* function, PyObject* self, PyObject* const* args, Py_ssize_t n,
                                  PyObject* kwnames, PyObject* relevant, Told told) {
  return guarded([&]() -> PyObject* {
    Py_ssize_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    Overriding found{{}, told};
    if (relevant) {
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(relevant); ++i)
        found.scan(PySequence_Fast_GET_ITEM(relevant, i));
    } else {
      if (self) found.scan(self);
      for (Py_ssize_t i = 0; i < n + keywords; ++i) found.scan(args[i]);
    }
    Py_ssize_t offset = self ? 1 : 0;
    PyRef tuple = checked(PyTuple_New(n + offset));
    if (self) PyTuple_SET_ITEM(tuple.get(), 0, Py_NewRef(self));
    for (Py_ssize_t i = 0; i < n; ++i) PyTuple_SET_ITEM(tuple.get(), i + offset, Py_NewRef(args[i]));
    PyRef kwargs = checked(PyDict_New());
    for (Py_ssize_t i = 0; i < keywords; ++i)
      checked(PyDict_SetItem(kwargs.get(), PyTuple_GET_ITEM(kwnames, i), args[n + i]));
    PyRef types = checked(PyTuple_New(Py_ssize_t(found.objects.size())));
    for (size_t i = 0; i < found.objects.size(); ++i)
      PyTuple_SET_ITEM(types.get(), Py_ssize_t(i),
                       Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(found.objects[i]))));
    if (modes_active) {
      Lowered lowered;
      PyRef f = checked(PyObject_GetAttr(lowered.top.get(), names::__torch_function__));
      PyRef result = checked(
          PyObject_CallFunctionObjArgs(f.get(), function, types.get(), tuple.get(), kwargs.get(), nullptr));
      if (result.get() != Py_NotImplemented) return result.detach();
    }
    for (PyObject* o : found.objects) {
      if (override_of(Py_TYPE(o)) == Override::none) continue;
      PyRef f = checked(PyObject_GetAttr(reinterpret_cast<PyObject*>(Py_TYPE(o)), names::__torch_function__));
      PyRef result = checked(
          PyObject_CallFunctionObjArgs(f.get(), function, types.get(), tuple.get(), kwargs.get(), nullptr));
      if (result.get() != Py_NotImplemented) return result.detach();
    }
    PyErr_Format(PyExc_TypeError,
                 "no implementation found for %R on types that implement __torch_function__: %R", function,
                 types.get());
    return nullptr;
  });
}

bool any_taken(PyObject* const* args, Py_ssize_t n, int depth) {
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyTypeObject* t = Py_TYPE(args[i]);
    if (is_plain(t)) continue;
    if (t == &PyTuple_Type || t == &PyList_Type) {
      if (depth && any_taken(PySequence_Fast_ITEMS(args[i]), PySequence_Fast_GET_SIZE(args[i]), depth - 1))
        return true;
    } else if (!is_basic(t) && override_of(t) == Override::taken) {
      return true;
    }
  }
  return false;
}

bool is_numpy_scalar(PyObject* o) {
  for (PyTypeObject* t = Py_TYPE(o); t; t = t->tp_base)
    if (!strcmp(t->tp_name, "numpy.generic")) return true;
  return false;
}

void add_overrides(PyObject* module) {
  PyRef method = checked(PyDescr_NewClassMethod(TensorType, &default_def));
  checked(PyDict_SetItemString(TensorType->tp_dict, "__torch_function__", method.get()));
  default_override = method.detach();
  PyRef disabled = checked(PyCFunction_New(&disabled_def, nullptr));
  checked(PyModule_AddObjectRef(module, "_disabled_torch_function_impl", disabled.get()));
  disabled_override = disabled.detach();
  add_type(module, &scope_spec);
  add_type(module, &everything_spec);
  OverridableType = add_type(module, &overridable_spec);
  OverridableAttributeType = add_type(module, &attribute_spec);
  add_functions(module, mode_functions);
  PyType_Modified(TensorType);
}

}  // namespace facula::bind
