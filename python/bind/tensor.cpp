#include "tensor.h"

#include "autograd.h"
#include "facula/autograd/autograd.h"
#include "facula/autograd/batch.h"
#include "facula/autograd/forward.h"
#include "facula/base/warning.h"
#include "facula/tensor/print.h"
#include "override.h"
#include "symint.h"
#include "trampoline.h"
#include "types.h"

namespace facula::bind {

void note_class(PyTypeObject* type);  // torch_dispatch.cpp: a subclass was made

PyTypeObject *TensorType, *ParameterType;

namespace {

constexpr int kFreeLimit = 512;
PyObject* free_objects[kFreeLimit];
int free_count = 0;

TensorObject* object(PyObject* o) { return reinterpret_cast<TensorObject*>(o); }

PyObject* new_plain() {
  TensorObject* o;
  if (free_count) {
    PyObject* recycled = free_objects[--free_count];
    o = object(PyObject_Init(recycled, TensorType));
  } else {
    o = PyObject_GC_New(TensorObject, TensorType);
    if (!o) throw PythonError();
  }
  o->impl = nullptr;
  o->dict = nullptr;
  o->weakrefs = nullptr;
  return reinterpret_cast<PyObject*>(o);
}

void bind_impl(PyObject* o, TensorImpl* steal) {
  object(o)->impl = steal;
  steal->py_object = o;
}

// The first line of every dealloc. True: the object lives on, owned by its impl.
bool preserve(PyObject* o) {
  TensorImpl* t = impl_of(o);
  if (!t || t->use_count() == 1) return false;
  if (Py_TYPE(o) == TensorType && !object(o)->dict && !object(o)->weakrefs) return false;
  Py_SET_REFCNT(o, 1);
  t->owns_py = true;
  t->release();
  return true;
}

void drop_impl(PyObject* o) {
  TensorImpl* t = std::exchange(object(o)->impl, nullptr);
  if (!t) return;
  t->py_object = nullptr;
  t->release();
}

// Called when an impl that owns its Python object dies.
void release_py(TensorImpl* t) {
  auto* o = static_cast<PyObject*>(t->py_object);
  if (!Py_IsInitialized()) {  // the object is not released, but the last garbage collection may still clear it
    object(o)->impl = nullptr;
    return;
  }
  WithGil gil;
  object(o)->impl = nullptr;
  Py_DECREF(o);
}

void plain_dealloc(PyObject* o) {
  if (preserve(o)) return;
  TensorObject* t = object(o);
  if (t->dict || PyObject_GC_IsTracked(o)) {
    if (PyObject_GC_IsTracked(o)) PyObject_GC_UnTrack(o);
    if (t->weakrefs) PyObject_ClearWeakRefs(o);
    Py_CLEAR(t->dict);
  } else if (t->weakrefs) {
    PyObject_ClearWeakRefs(o);
  }
  drop_impl(o);
  PyTypeObject* type = Py_TYPE(o);
  if (free_count < kFreeLimit) free_objects[free_count++] = o;
  else PyObject_GC_Del(o);
  Py_DECREF(type);
}

void clear_slots(PyTypeObject* type, PyObject* o) {
  auto* members = reinterpret_cast<PyMemberDef*>(reinterpret_cast<char*>(type) + Py_TYPE(type)->tp_basicsize);
  for (Py_ssize_t i = 0; i < Py_SIZE(type); ++i) {
    if (members[i].type != T_OBJECT_EX || (members[i].flags & READONLY)) continue;
    auto** at = reinterpret_cast<PyObject**>(reinterpret_cast<char*>(o) + members[i].offset);
    Py_CLEAR(*at);
  }
}

// Replaces CPython's subtype_dealloc, which would clear the __dict__ before the object can be preserved.
void subclass_dealloc(PyObject* o) {
  if (preserve(o)) return;
  PyTypeObject* type = Py_TYPE(o);
  if (type->tp_finalize) {
    if (!PyObject_GC_IsTracked(o)) PyObject_GC_Track(o);
    if (PyObject_CallFinalizerFromDealloc(o) < 0) return;
  }
  if (PyObject_GC_IsTracked(o)) PyObject_GC_UnTrack(o);
  if (type->tp_del) {
    type->tp_del(o);
    if (Py_REFCNT(o) > 0) return;
  }
  if (object(o)->weakrefs) PyObject_ClearWeakRefs(o);
  for (PyTypeObject* base = type; base && base != TensorType; base = base->tp_base)
    if (Py_SIZE(base)) clear_slots(base, o);
  Py_CLEAR(object(o)->dict);
  drop_impl(o);
  type->tp_free(o);
  Py_DECREF(type);
}

// While C++ holds the impl, the object is reachable from outside: its attributes must not look like garbage.
bool held_by_cpp(PyObject* o) { return impl_of(o) && impl_of(o)->use_count() > 1; }

int tensor_traverse(PyObject* o, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(o));
  if (held_by_cpp(o)) return 0;
  Py_VISIT(object(o)->dict);
  if (!impl_of(o) || !impl_of(o)->grad_slot) return 0;
  // Without taking a reference, because counts must not change while the collector traverses.
  return visit_history(*impl_of(o), visit, arg);
}
int tensor_clear(PyObject* o) {
  if (held_by_cpp(o)) return 0;
  Py_CLEAR(object(o)->dict);
  if (impl_of(o) && impl_of(o)->grad_slot) clear_history(*impl_of(o));
  return 0;
}

int tensor_setattr(PyObject* o, PyObject* name, PyObject* value) {
  int rc = PyObject_GenericSetAttr(o, name, value);
  if (object(o)->dict && !PyObject_GC_IsTracked(o)) PyObject_GC_Track(o);
  return rc;
}

PyObject* subclass_helper;
PyObject* set_subclass_helper(PyObject*, PyObject* f) {
  Py_XSETREF(subclass_helper, Py_NewRef(f));
  Py_RETURN_NONE;
}

int meta_init(PyObject* cls, PyObject* args, PyObject* kwargs) {
  if (PyType_Type.tp_init(cls, args, kwargs) < 0) return -1;
  auto* type = reinterpret_cast<PyTypeObject*>(cls);
  if (type == TensorType) return 0;
  type->tp_dealloc = subclass_dealloc;
  note_class(type);
  return override_of(type) != Override::taken || make_overridable(cls) ? 0 : -1;
}

// Tensor(data), Tensor(2, 3), Tensor(): PyTorch's old constructors, in the default dtype.
PyObject* tensor_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    Py_ssize_t n = PyTuple_GET_SIZE(args);
    DType d = default_dtype();
    if (type == TensorType && kwargs && PyDict_GET_SIZE(kwargs)) {
      PyErr_Format(PyExc_TypeError,
                   "Tensor() takes no keyword arguments; use %s.tensor(data, dtype=..., device=...)",
                   package_name());
      return nullptr;
    }
    Tensor t;
    PyObject* first = n ? PyTuple_GET_ITEM(args, 0) : nullptr;
    if (!n) {
      t = Tensor::empty(IntSpan(Ints{0}), d);
    } else if (is_tensor(first)) {
      t = tensor_of(first);
      t = t.detached();
    } else if (PyLong_Check(first) || is_symint(first)) {
      Ints sizes;
      for (Py_ssize_t i = 0; i < n; ++i) {
        int64_t size = PyLong_AsLongLong(PyTuple_GET_ITEM(args, i));
        if (size == -1 && PyErr_Occurred()) return nullptr;
        sizes.push_back(size);
      }
      t = Tensor::empty(IntSpan(sizes), d);
    } else if (n == 1 && Py_TYPE(first) == SizeType) {
      Ints sizes;
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(first); ++i)
        sizes.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(first, i)));
      t = Tensor::empty(IntSpan(sizes), d);
    } else {
      t = make_tensor("Tensor", first, &d);
    }
    return wrap_as(std::move(t), type);
  });
}

Py_hash_t tensor_hash(PyObject* o) { return reinterpret_cast<Py_hash_t>(o); }  // id(), as in PyTorch

Py_ssize_t tensor_len(PyObject* o) {
  TensorImpl* t = impl_of(o);
  if (t->sizes.empty()) {
    PyErr_SetString(PyExc_TypeError, "len() of a 0-d tensor");
    return -1;
  }
  Py_ssize_t n = -1;
  guarded_int([&] { n = Py_ssize_t(t->sizes[0].guard_int()); });
  return n;
}

// Whether `o` is an operand of an arithmetic operator. Any other object may handle the operation itself.
bool is_operand(PyObject* o) {
  if (is_plain(Py_TYPE(o)) || PyFloat_Check(o) || PyLong_Check(o)) return true;
  if (is_tensor(o) || PyComplex_Check(o) || is_symint(o) || has_array_interface(o))
    return true;  // NumPy's arrays and scalars
  return has_torch_function(o);
}

template <int I>
PyObject* binary(PyObject* a, PyObject* b) {
  if (!is_operand(a) || !is_operand(b)) Py_RETURN_NOTIMPLEMENTED;
  // A number comes second, as in PyTorch, whose nodes have the tensor's first.
  if constexpr (Slot(I) == Slot::add || Slot(I) == Slot::mul)
    if (!is_plain(Py_TYPE(a)) && (PyFloat_Check(a) || PyLong_Check(a) || PyComplex_Check(a))) std::swap(a, b);
  return call_slot(Slot(I), a, b, op::Form::functional);
}
template <int I>
PyObject* binary_in_place(PyObject* a, PyObject* b) {
  if (!is_operand(b)) Py_RETURN_NOTIMPLEMENTED;
  return call_slot(Slot(I), a, b, op::Form::in_place);
}
template <int I>
PyObject* unary(PyObject* a) {
  return call_slot(Slot(I), a, nullptr, op::Form::functional);
}
PyObject* power(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
  return binary<int(Slot::pow)>(a, b);
}
PyObject* power_in_place(PyObject* a, PyObject* b, PyObject*) {
  return binary_in_place<int(Slot::pow)>(a, b);
}
PyObject* matrix_product(PyObject* a, PyObject* b) {
  auto fits = [](PyObject* o) { return is_tensor(o) || has_torch_function(o) || has_array_interface(o); };
  if (!fits(a) || !fits(b)) Py_RETURN_NOTIMPLEMENTED;
  return call_slot(Slot::matmul, a, b, op::Form::functional);
}
PyObject* positive(PyObject* a) {
  return impl_of(a)->dtype == DType::Bool ? call_method_operator("positive", a) : Py_NewRef(a);
}

PyObject* compare(PyObject* a, PyObject* b, int how) {
  if (!is_operand(b)) Py_RETURN_NOTIMPLEMENTED;
  constexpr Slot slots[] = {Slot::lt, Slot::le, Slot::eq,
                            Slot::ne, Slot::gt, Slot::ge};  // in the order of Py_LT...
  return call_slot(slots[how], a, b, op::Form::functional);
}

int tensor_bool(PyObject* o) {
  int truth = 0;
  int rc = guarded_int([&] {
    Tensor t = tensor_of(o);
    SymInt n = t.numel();
    runtime_check(!(n == 0), "bool") << "Boolean value of Tensor with no values is ambiguous";
    runtime_check(n == 1, "bool") << "Boolean value of Tensor with more than one value is ambiguous"
                                  << hint("use .any() or .all(); the shape is ", to_string(t.sizes()));
    check_has_data(t, "bool");
    truth = t.item().to_bool();
  });
  return rc < 0 ? -1 : truth;
}

PyObject* tensor_index(PyObject* o) {
  return guarded([&]() -> PyObject* {
    Tensor t = tensor_of(o);
    type_check(t.numel() == 1 && category(t.dtype()) <= Category::integral, "index")
        << "only integer tensors of a single element can be converted to an index, not "
        << to_string(t.sizes()) << " " << name(t.dtype());
    check_has_data(t, "item");
    return wrap_number(t.dtype() == DType::Bool ? Scalar(t.item().to_int()) : t.item());
  });
}
Scalar single(PyObject* o) {
  Tensor t = tensor_of(o);
  value_check(t.numel() == 1, "item")
      << "only one element tensors can be converted to Python scalars, not " << to_string(t.sizes());
  check_has_data(t, "item");
  return t.item();
}
// A complex number with an imaginary part converts to complex only.
Scalar real_single(PyObject* o, const char* what) {
  Scalar s = single(o);
  runtime_check(s.category() != Category::complex || s.to_complex().imag() == 0, what)
      << "value cannot be converted to type " << what << " without overflow"
      << hint("it has an imaginary part: use .real, .abs() or complex()");
  return s;
}
PyObject* tensor_int(PyObject* o) {
  return guarded([&]() -> PyObject* {
    Scalar s = real_single(o, "int");
    if (s.category() == Category::complex) return PyLong_FromDouble(s.to_complex().real());
    if (s.category() == Category::floating) return PyLong_FromDouble(s.to_double());
    return wrap_number(s.category() == Category::boolean ? Scalar(s.to_int()) : s);
  });
}
PyObject* tensor_float(PyObject* o) {
  return guarded([&] {
    warn_of_gradient(tensor_of(o));
    return PyFloat_FromDouble(real_single(o, "double").to_double());
  });
}

PyObject* tensor_iter(PyObject* o) {
  return guarded([&]() -> PyObject* {
    type_check(impl_of(o)->sizes.size() > 0, "iter") << "iteration over a 0-d tensor";
    PyRef rows = checked(call_method_operator("unbind", o));
    return PyObject_GetIter(rows.get());
  });
}

int tensor_contains(PyObject* o, PyObject* item) {
  if (!is_operand(item)) {
    PyErr_Format(PyExc_RuntimeError,
                 "Tensor.__contains__ only supports Tensor or scalar, but you passed in a %s.",
                 Py_TYPE(item)->tp_name);
    return -1;
  }
  PyRef equal(call_slot(Slot::eq, o, item, op::Form::functional));
  if (!equal) return -1;
  PyRef any(call_method_operator("any", equal.get()));
  return any ? PyObject_IsTrue(any.get()) : -1;
}

// The text of a tensor of a class, its history and its direction in forward mode noted.
std::string text_of(const Tensor& t, std::string_view type = "tensor") {
  std::vector<std::string> notes;
  if (auto node = autograd::node_of(t)) notes.push_back("grad_fn=<" + node->name() + ">");
  else if (t.requires_grad()) notes.push_back("requires_grad=True");
  if (Tensor tangent = autograd::tangent_in_levels(t); tangent.defined())
    notes.push_back("tangent=" + to_string(tangent));
  return to_text(t, type, notes);
}

// BatchedTensor(lvl=1, bdim=0, value=...), as PyTorch shows what stands for one of a batch.
std::string batched_text(const Tensor& t) {
  if (!autograd::batch_level(t)) return text_of(t);
  auto* level = autograd::BatchLevel::find(autograd::batch_level(t));
  std::string inner = batched_text(autograd::physical(t)), lines;
  for (char c : inner) lines += c == '\n' ? std::string("\n    ") : std::string(1, c);
  return "BatchedTensor(lvl=" + std::to_string(level ? level->number() : -1) + ", bdim=0, value=\n    " +
         lines + "\n)";
}

PyObject* tensor_repr(PyObject* o) {
  return guarded([&] {
    Tensor t = tensor_of(o);
    if (autograd::batch_level(t)) return unicode(batched_text(t));
    if (is_plain(Py_TYPE(o))) return unicode(text_of(t));
    const char* dot = strrchr(Py_TYPE(o)->tp_name, '.');
    return unicode(text_of(t, dot ? dot + 1 : Py_TYPE(o)->tp_name));
  });
}

PyMemberDef members[] = {{"__dictoffset__", T_PYSSIZET, offsetof(TensorObject, dict), READONLY, nullptr},
                         {"__weaklistoffset__", T_PYSSIZET, offsetof(TensorObject, weakrefs), READONLY,
                          nullptr},
                         {nullptr, 0, 0, 0, nullptr}};

#define FACULA_SLOT(slot, function) {slot, reinterpret_cast<void*>(function)}
#define FACULA_BINARY(slot, name) FACULA_SLOT(Py_nb_##slot, binary<int(Slot::name)>)
#define FACULA_BOTH(slot, name) FACULA_BINARY(slot, name), FACULA_SLOT(Py_nb_inplace_##slot, binary_in_place<int(Slot::name)>)
PyType_Slot slots[] = {FACULA_SLOT(Py_tp_new, tensor_new),
                       FACULA_SLOT(Py_tp_dealloc, plain_dealloc),
                       FACULA_SLOT(Py_tp_traverse, tensor_traverse),
                       FACULA_SLOT(Py_tp_clear, tensor_clear),
                       FACULA_SLOT(Py_tp_setattro, tensor_setattr),
                       FACULA_SLOT(Py_tp_hash, tensor_hash),
                       FACULA_SLOT(Py_tp_repr, tensor_repr),
                       FACULA_SLOT(Py_tp_iter, tensor_iter),
                       FACULA_SLOT(Py_tp_richcompare, compare),
                       FACULA_SLOT(Py_tp_methods, tensor_methods),
                       FACULA_SLOT(Py_tp_getset, tensor_getset),
                       FACULA_SLOT(Py_tp_members, members),
                       FACULA_SLOT(Py_mp_length, tensor_len),
                       FACULA_SLOT(Py_mp_subscript, tensor_subscript),
                       FACULA_SLOT(Py_mp_ass_subscript, tensor_assign_subscript),
                       FACULA_SLOT(Py_sq_contains, tensor_contains),
                       FACULA_SLOT(Py_nb_bool, tensor_bool),
                       FACULA_SLOT(Py_nb_index, tensor_index),
                       FACULA_SLOT(Py_nb_int, tensor_int),
                       FACULA_SLOT(Py_nb_float, tensor_float),
                       FACULA_SLOT(Py_nb_positive, positive),
                       FACULA_SLOT(Py_nb_negative, unary<int(Slot::neg)>),
                       FACULA_SLOT(Py_nb_absolute, unary<int(Slot::abs)>),
                       FACULA_SLOT(Py_nb_invert, unary<int(Slot::bitwise_not)>),
                       FACULA_BOTH(add, add),
                       FACULA_BOTH(subtract, sub),
                       FACULA_BOTH(multiply, mul),
                       FACULA_BOTH(true_divide, div),
                       FACULA_BOTH(floor_divide, floor_divide),
                       FACULA_BOTH(remainder, remainder),
                       FACULA_SLOT(Py_nb_matrix_multiply, matrix_product),
                       FACULA_BOTH(and, bitwise_and),
                       FACULA_BOTH(or, bitwise_or),
                       FACULA_BOTH(xor, bitwise_xor),
                       FACULA_BOTH(lshift, bitwise_left_shift),
                       FACULA_BOTH(rshift, bitwise_right_shift),
                       FACULA_SLOT(Py_nb_power, power),
                       FACULA_SLOT(Py_nb_inplace_power, power_in_place),
                       {0, nullptr}};
PyType_Spec spec = {"facula.Tensor", sizeof(TensorObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};

PyType_Slot meta_slots[] = {FACULA_SLOT(Py_tp_init, meta_init), {0, nullptr}};
PyType_Spec meta_spec = {"facula._C.TensorMeta", 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, meta_slots};

PyObject* set_parameter_class(PyObject*, PyObject* cls) {
  if (!PyType_Check(cls) || !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(cls), TensorType)) {
    PyErr_SetString(PyExc_TypeError, "set_parameter_class() needs a subclass of Tensor");
    return nullptr;
  }
  ParameterType = reinterpret_cast<PyTypeObject*>(Py_NewRef(cls));
  Py_RETURN_NONE;
}

PyObject* make_subclass(PyObject*, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  return guarded([&]() -> PyObject* {
    static const char* const spec[] = {"cls", "data", "requires_grad", nullptr};
    PyObject* v[3];
    if (!take_arguments("make_subclass", spec, 2, args, n, kwnames, v)) return nullptr;
    if (!PyType_Check(v[0]) || !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(v[0]), TensorType)) {
      PyErr_SetString(PyExc_TypeError, "make_subclass(): cls must be a subclass of Tensor");
      return nullptr;
    }
    Tensor data = tensor_argument("make_subclass", "data", v[1]).detached();
    if (v[2] && is_true(v[2])) autograd::set_requires_grad(data, true);
    return wrap_as(std::move(data), reinterpret_cast<PyTypeObject*>(v[0]));
  });
}

// Two objects exchange their tensors, attributes and classes: whoever holds one of them holds the other's tensor.
PyObject* swap_tensors(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject *a, *b;
    if (!PyArg_ParseTuple(args, "O!O!:swap_tensors", TensorType, &a, TensorType, &b)) return nullptr;
    auto *x = reinterpret_cast<TensorObject*>(a), *y = reinterpret_cast<TensorObject*>(b);
    runtime_check(!x->weakrefs && !y->weakrefs, "swap_tensors")
        << "Cannot swap a tensor that has weakref associated with it";
    runtime_check(Py_TYPE(a)->tp_basicsize == Py_TYPE(b)->tp_basicsize, "swap_tensors")
        << "cannot swap a " << Py_TYPE(a)->tp_name << " with a " << Py_TYPE(b)->tp_name;
    for (auto* o : {x, y})
      if (std::exchange(o->impl->owns_py,
                        false)) {  // reached by a weak reference: the object owns its tensor again
        o->impl->retain();
        Py_DECREF(o);
      }
    std::swap(x->impl, y->impl);
    std::swap(x->dict, y->dict);
    x->impl->py_object = a;
    y->impl->py_object = b;
    PyTypeObject *of_x = Py_TYPE(a), *of_y = Py_TYPE(b);
    Py_SET_TYPE(a, of_y);
    Py_SET_TYPE(b, of_x);
    track(a);
    track(b);
    Py_RETURN_NONE;
  });
}

PyMethodDef functions[] = {
    {"swap_tensors", swap_tensors, METH_VARARGS, "Two objects exchange their tensors and attributes."},
    {"set_subclass_helper", set_subclass_helper, METH_O,
     "f(cls) completes subclasses with a __torch_function__ of their own."},
    {"set_parameter_class", set_parameter_class, METH_O,
     "Names the class whose exact instances count as plain tensors."},
    {"make_subclass", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(make_subclass)),
     METH_FASTCALL | METH_KEYWORDS,
     "make_subclass(cls, data, requires_grad=False): data as an instance of cls, without its history."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

void warn_of_gradient(const Tensor& t) {
  if (autograd::grad_enabled() && t.requires_grad())
    warn_once(
        "Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior.\nConsider using tensor.detach() first.");
}

bool make_overridable(PyObject* cls) {
  return !subclass_helper || bool(PyRef(PyObject_CallOneArg(subclass_helper, cls)));
}

PyObject* wrap(Tensor tensor) {
  if (!tensor.defined()) Py_RETURN_NONE;
  TensorImpl* t = tensor.detach_ref().detach();
  if (!t->py_object) {
    PyObject* o = new_plain();
    bind_impl(o, t);
    return o;
  }
  auto* o = static_cast<PyObject*>(t->py_object);
  if (t->owns_py) {  // our reference of t becomes the object's, the impl's reference of the object the caller's
    t->owns_py = false;
    return o;
  }
  Py_INCREF(o);
  t->release();
  return o;
}

PyObject* wrap_as(Tensor tensor, PyTypeObject* type) {
  if (type == TensorType) return wrap(std::move(tensor));
  if (tensor.impl()->py_object) {
    if (Py_TYPE(static_cast<PyObject*>(tensor.impl()->py_object)) == type) return wrap(std::move(tensor));
    tensor = tensor.detached();
  }
  PyRef o = checked(type->tp_alloc(type, 0));
  bind_impl(o.get(), tensor.detach_ref().detach());
  return o.detach();
}

PyObject* wrap_list(std::span<const Tensor> tensors) {
  PyRef tuple = checked(PyTuple_New(Py_ssize_t(tensors.size())));
  for (size_t i = 0; i < tensors.size(); ++i) PyTuple_SET_ITEM(tuple.get(), Py_ssize_t(i), wrap(tensors[i]));
  return tuple.detach();
}

PyObject* wrap_number(const Scalar& s) {
  switch (s.category()) {
    case Category::boolean: return PyBool_FromLong(s.to_bool());
    case Category::integral:
      if (s.is_beyond_int64()) return PyLong_FromUnsignedLongLong(uint64_t(s.to_int()));
      return PyLong_FromLongLong(s.to_int());
    case Category::floating: return PyFloat_FromDouble(s.to_double());
    default: return PyComplex_FromDoubles(s.to_complex().real(), s.to_complex().imag());
  }
}

Tensor tensor_argument(const char* function, const char* argument, PyObject* o) {
  if (!is_tensor(o)) {
    PyErr_Format(PyExc_TypeError, "%s(): argument '%s' must be Tensor, not %s", function, argument,
                 Py_TYPE(o)->tp_name);
    throw PythonError();
  }
  return tensor_of(o);
}

std::vector<Tensor> tensor_list_argument(const char* function, const char* argument, PyObject* o, bool gaps) {
  std::vector<Tensor> list;
  if (!o || o == Py_None) return list;
  if (is_tensor(o)) {
    list.push_back(tensor_of(o));
    return list;
  }
  PyRef items(PySequence_Fast(o, ""));
  if (!items) PyErr_Clear();
  type_check(items, function) << "argument '" << argument << "' must be Tensor or a sequence of Tensors, not "
                              << Py_TYPE(o)->tp_name;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(items.get(), i);
    if (item == Py_None && gaps) list.emplace_back();
    else list.push_back(tensor_argument(function, argument, item));
  }
  return list;
}

void add_tensor(PyObject* module) {
  PyTypeObject* meta = add_type(module, &meta_spec, &PyType_Type);
  TensorType = add_type(module, &spec, nullptr, meta);
  TensorType->tp_dealloc = plain_dealloc;
  ParameterType = TensorType;
  TensorImpl::release_py = release_py;
  add_functions(module, functions);
  add_tensor_functions(module);
}

}  // namespace facula::bind
