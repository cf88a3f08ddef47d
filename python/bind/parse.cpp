#include "parse.h"

#include <algorithm>
#include <cstring>

#include "extend.h"
#include "facula/autograd/batch.h"
#include "facula/autograd/forward.h"
#include "facula/run/operands.h"
#include "generator.h"
#include "override.h"
#include "symint.h"
#include "tensor.h"
#include "torch_dispatch.h"
#include "types.h"

namespace facula::bind {

using op::Type;
using op::Value;

namespace {
// Whether out= takes a tuple.
bool returns_several(const Overload& o) {
  auto& returns = o.op->schema.returns;
  return returns.size() > 1 || (returns.size() == 1 && returns[0].list);
}
// The further name that the definition declares for a parameter, interned, or null.
PyObject* declared_name(const op::Operator& op, const std::string& parameter) {
  for (auto& a : op.parameter_aliases)
    if (a.parameter == parameter) return checked(PyUnicode_InternFromString(a.also.c_str())).detach();
  return nullptr;
}
}  // namespace

Overload make_overload(const op::Operator& op) {
  Overload o;
  o.op = &op;
  auto& parameters = op.schema.parameters;
  internal_check(parameters.size() <= kMaxParameters)
      << op.schema.full_name() << " has more than " << kMaxParameters << " parameters";
  bool has_dtype = false, has_device = false;
  for (auto& p : parameters) {
    has_dtype |= p.name == "dtype" && p.type == Type::DType;
    has_device |= p.name == "device" && p.type == Type::Device;
  }
  o.factory = has_dtype && has_device;
  // Sums are accumulated in the dtype of out=; a norm or a softmax is computed in its input's.
  bool of_input = op.calls() && !parameters.empty() && parameters[0].type == Type::Tensor;
  for (size_t i = 0; i < parameters.size(); ++i) {
    auto& p = parameters[i];
    Param q;
    q.name = checked(PyUnicode_InternFromString(p.name.c_str())).detach();
    q.type = p.type;
    q.list = p.list;
    q.optional = p.optional;
    q.optional_items = p.optional_items;
    q.keyword_only = p.keyword_only;
    q.is_self = p.name == "self";
    q.has_default = p.has_default;
    q.list_size = p.list_size;
    q.class_name = p.class_name;
    if (p.has_default) q.fallback = p.fallback[0];
    if (q.is_self) {
      q.also[0] = names::input;
      q.also[1] = names::x;
      q.also[2] = names::a;
    } else if (p.name == "dim") q.also[0] = names::axis;
    else if (p.name == "keepdim") q.also[0] = names::keepdims;
    else if (p.name == "other") q.also[0] = names::x2;
    else if (p.name == "split_size") q.also[0] = names::split_size_or_sections;
    else if (p.name == "input") q.also[0] = names::self;
    q.also[3] = declared_name(op, p.name);
    q.number = p.number;
    q.operand = run::is_run_time_number(op, i, Value(Scalar(0.0))) && p.type == Type::Scalar;
    q.takes_sizes = op.is<op::Procedure>();  // whose body says what it makes of them
    o.numbers_alone |= p.number_alone;
    if (q.is_self) o.self_at = int(i);
    bool of_result = p.name == "out_dtype" || (p.name == "dtype" && !of_input);
    if (of_result && p.type == Type::DType && p.optional) o.dtype = int(i);
    if (o.factory && p.name == "requires_grad") o.requires_grad = int(i);
    if (!p.keyword_only) ++o.positional;
    o.params.push_back(q);
  }
  int free_positional = 0, candidate = -1;
  for (int i = 0; i < o.positional; ++i) {
    if (i == 0 && parameters[0].type == Type::Tensor && !parameters[0].list) continue;
    ++free_positional;
    candidate = i;
  }
  if (free_positional == 1 && o.params[size_t(candidate)].type == Type::Int &&
      o.params[size_t(candidate)].list && !o.params[size_t(candidate)].list_size)
    o.varargs = candidate;
  return o;
}

void* Frame::more(size_t bytes) {
  if (!extra_) extra_ = std::make_unique<Extra>();
  extra_->blocks.push_back(std::make_unique<char[]>(bytes));
  return extra_->blocks.back().get();
}
void Frame::keep(Tensor t) {
  if (!extra_) extra_ = std::make_unique<Extra>();
  extra_->tensors.push_back(std::move(t));
}
void Frame::keep(PyRef o) {
  if (!extra_) extra_ = std::make_unique<Extra>();
  extra_->objects.push_back(std::move(o));
}

namespace {

// Whether the value takes part in derivatives: on the tape, or with a tangent.
bool is_differentiated(TensorImpl& t) {
  Tensor x(Ref<TensorImpl>::share(&t));
  return x.requires_grad() || (autograd::forward_level() && autograd::tangent_of(x).defined());
}

int64_t long_of(PyObject* o, PyObject* error) {
  int overflow;
  int64_t i = PyLong_AsLongLongAndOverflow(o, &overflow);
  if (overflow || i >= int64_t(1) << 61 || i < -(int64_t(1) << 61)) {
    if (!overflow)
      return i > 0 ? (int64_t(1) << 61) - 1 : -(int64_t(1) << 61);  // sys.maxsize means "to the end"
    PyErr_SetString(error, "a Python int does not fit into 64 bits");
    throw PythonError();
  }
  return i;
}

// A number of a traced function that is known only when its program runs.
bool to_symint(PyObject* o, Value& v) {
  if (!is_symint(o)) [[likely]]
    return false;
  v = Value(symint_of(o));
  return true;
}

// A whole number that is no bool: int, NumPy's integers, 0-d integer tensors. `error`: raised if it is too
// large.
bool to_int(PyObject* o, int64_t& i, PyObject* error = PyExc_ValueError) {
  if (PyLong_Check(o)) {
    if (PyBool_Check(o)) return false;
    i = long_of(o, error);
    return true;
  }
  if (is_tensor(o)) {
    TensorImpl* t = impl_of(o);
    if (!is_integral(t->dtype) || !t->sizes.empty() || is_differentiated(*t) || autograd::batch_level(t))
      return false;
    i = tensor_of(o).item().to_int();
    return true;
  }
  if (!PyIndex_Check(o) || PyUnicode_Check(o)) return false;
  if (is_symint(o)) i = symint_of(o).guard_int();  // raises
  PyRef whole(PyNumber_Index(o));
  if (!whole) {
    PyErr_Clear();
    return false;
  }
  i = long_of(whole.get(), error);
  return true;
}

bool to_size(PyObject* o, SymInt& s, PyObject* error = PyExc_ValueError) {
  if (PyLong_CheckExact(o)) [[likely]] {
    s = long_of(o, error);
    return true;
  }
  if (is_symint(o)) [[unlikely]] {
    s = symint_of(o);
    return true;
  }
  if (auto n = size_of_traced(o)) {
    s = *n;
    return true;
  }
  int64_t i;
  if (!to_int(o, i, error)) return false;
  s = i;
  return true;
}

bool to_float(PyObject* o, double& d) {
  if (PyFloat_Check(o)) {
    d = PyFloat_AS_DOUBLE(o);
    return true;
  }
  Scalar s;
  if (is_tensor(o)) {
    TensorImpl* t = impl_of(o);
    if (!t->sizes.empty() || is_complex(t->dtype) || is_differentiated(*t) || autograd::batch_level(t))
      return false;
    s = tensor_of(o).item();
  } else if (!to_scalar(o, s)) {
    return false;
  }
  if (s.category() == Category::complex) return false;
  d = s.to_double();
  return true;
}

// Notes how the class of a tensor argument overrides calls.
void note_class(PyTypeObject* t, Frame& f) {
  switch (override_of(t)) {
    case Override::none: return;
    case Override::rewrap:
      if (!f.sub || PyType_IsSubtype(t, f.sub)) f.sub = t;
      else if (!PyType_IsSubtype(f.sub, t)) f.override_ = true;  // neither can stand for the other: ask them
      return;
    case Override::taken: f.override_ = true;
  }
}

bool to_tensor(const Param& p, PyObject* o, bool numbers, Value& v, Frame& f) {
  PyTypeObject* t = Py_TYPE(o);
  if (is_plain(t)) {
    v = Value(impl_of(o));
    return true;
  }
  if (PyType_IsSubtype(t, TensorType)) {
    note_class(t, f);
    v = Value(impl_of(o));
    return true;
  }
  if (p.number && numbers) {
    Scalar s;
    if (to_symint(o, v)) {
      f.number_first |= p.is_self;
      return true;
    }
    if (to_scalar(o, s)) {
      f.number_first |= p.is_self;
      v = Value(s);
      return true;
    }
  }
  return false;
}

// An object with a __torch_function__ stands for an argument of any kind: a size, a dtype, an item of a list. The call is
// then the object's, whatever the operator would make of the argument.
bool takes_over(PyObject* o, Frame& f) {
  if (overrides_disabled() || !has_torch_function(o)) return false;
  f.override_ = true;
  return true;
}

bool to_tensors(const Param& p, PyObject* o, Value& v, Frame& f) {
  if (!PyTuple_Check(o) && !PyList_Check(o)) return false;
  Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
  auto** list = f.room<TensorImpl*>(size_t(n));
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(o, i);
    if (item == Py_None && p.optional_items) {
      list[i] = nullptr;
      continue;
    }
    if (!is_tensor(item)) {
      if (takes_over(item, f)) {
        list[i] = nullptr;
        continue;
      }
      f.failure = Frame::Failure::wrong_item;
      f.item = i;
      f.culprit = item;
      return false;
    }
    if (!is_plain(Py_TYPE(item))) note_class(Py_TYPE(item), f);
    list[i] = impl_of(item);
  }
  v = Value(std::span<TensorImpl* const>(list, size_t(n)));
  return true;
}

bool to_ints(const Param& p, PyObject* o, Value& v, Frame& f) {
  if (!PyTuple_Check(o) && !PyList_Check(o)) {
    SymInt i;
    if (!p.list_size || !to_size(o, i)) {  // one number stands for a list of a known length only
      if (is_tensor(o) && impl_of(o)->sizes.size() == 1 && is_integral(impl_of(o)->dtype)) {
        PyRef items = checked(PyObject_CallMethod(o, "tolist", nullptr));
        PyObject* held = items.get();
        f.keep(std::move(items));
        return to_ints(p, held, v, f);
      }
      return false;
    }
    auto* one = f.room<SymInt>(1);
    one[0] = i;
    v = Value(SymSpan(one, 1));
    return true;
  }
  Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
  auto* list = f.room<SymInt>(size_t(n));
  for (Py_ssize_t k = 0; k < n; ++k) {
    SymInt i;
    PyObject* item = PySequence_Fast_GET_ITEM(o, k);
    if (!to_size(item, i, PyExc_TypeError) && !takes_over(item, f)) {
      f.failure = Frame::Failure::wrong_item;
      f.item = k;
      f.culprit = item;
      return false;
    }
    list[k] = i;
  }
  v = Value(SymSpan(list, size_t(n)));
  return true;
}

bool to_scalars(PyObject* o, Value& v, Frame& f) {
  if (!PyTuple_Check(o) && !PyList_Check(o)) {
    Scalar s;
    if (!to_scalar(o, s)) return false;
    auto* one = new (f.room<Scalar>(1)) Scalar(s);
    v = Value(std::span<const Scalar>(one, 1));
    return true;
  }
  Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
  auto* list = f.room<Scalar>(size_t(n));
  for (Py_ssize_t k = 0; k < n; ++k) {
    Scalar s;
    PyObject* item = PySequence_Fast_GET_ITEM(o, k);
    if (!to_scalar(item, s) && !takes_over(item, f)) {
      f.failure = Frame::Failure::wrong_item;
      f.item = k;
      f.culprit = item;
      return false;
    }
    new (list + k) Scalar(s);
  }
  v = Value(std::span<const Scalar>(list, size_t(n)));
  return true;
}

bool to_bool(PyObject* o, Value& v) {
  bool numpy = !PyBool_Check(o) && is_numpy_scalar(o) && strstr(Py_TYPE(o)->tp_name, "bool");
  if (!PyBool_Check(o) && !numpy) return false;
  v = Value(numpy ? bool(PyObject_IsTrue(o)) : o == Py_True);
  return true;
}

// A number, or a tensor of one element in the place of one.
bool to_number(const Param& p, PyObject* o, Value& v) {
  Scalar s;
  if (is_tensor(o)) {
    TensorImpl* t = impl_of(o);
    if (autograd::batch_level(t)) return false;  // no number for all calls of a batch
    if (p.operand && t->traced && t->sizes.empty()) {
      v = Value(t);
      return true;
    }
    // A tensor whose class computes calls stays a tensor, which another overload takes.
    if (!t->sizes.empty() || is_differentiated(*t) || takes_calls(t)) return false;
    if (auto n = p.takes_sizes ? size_of_traced(o) : std::nullopt) {
      v = Value(*n);
      return true;
    }
    s = tensor_of(o).item();
  } else if (is_symint(o)) {
    SymInt n = symint_of(o);
    v = p.takes_sizes || p.operand ? Value(n) : Value(Scalar(n.guard_int()));
    return true;
  } else if (!to_scalar(o, s)) {
    return false;
  }
  v = Value(s);
  return true;
}

// Converts `o` with `read` into a Value.
template <class T>
bool to_value(PyObject* o, Value& v, bool (*read)(PyObject*, T&)) {
  T x;
  if (!read(o, x)) return false;
  v = Value(x);
  return true;
}

bool convert(const Param& p, PyObject* o, bool numbers, Value& v, Frame& f) {
  if (o == Py_None) {
    if (!p.optional) return false;
    v = Value();
    return true;
  }
  switch (p.type) {
    case Type::Tensor: return p.list ? to_tensors(p, o, v, f) : to_tensor(p, o, numbers, v, f);
    case Type::Int: {
      if (p.list) return to_ints(p, o, v, f);
      SymInt i;
      if (!to_size(o, i)) return false;
      v = Value(i);
      return true;
    }
    case Type::Float: {
      if (p.list) return to_scalars(o, v, f);
      double d;
      if (!to_float(o, d)) return false;
      v = Value(d);
      return true;
    }
    case Type::Bool: return p.list ? to_scalars(o, v, f) : to_bool(o, v);
    case Type::Scalar: return p.list ? to_scalars(o, v, f) : to_number(p, o, v);
    case Type::String:
      if (!PyUnicode_Check(o)) return false;
      v = Value(text_of(o));
      return true;
    case Type::DType: return to_value<DType>(o, v, to_dtype);
    case Type::Device: return to_value<Device>(o, v, to_device);
    case Type::Format: return to_value<MemoryFormat>(o, v, to_format);
    case Type::Generator: {
      Generator* g = to_generator(o);
      if (!g) return false;
      v = Value(g);
      return true;
    }
    case Type::Object: {
      CustomClassHolder* object = object_argument(o, p.class_name);
      if (!object) return false;
      v = Value(object);
      return true;
    }
  }
  return false;
}

bool same(PyObject* a, PyObject* b) { return a == b || PyUnicode_Compare(a, b) == 0; }

int find_keyword(const Overload& o, PyObject* key) {
  size_t n = o.params.size();
  for (size_t i = 0; i < n; ++i)
    if (o.params[i].name == key) return int(i);
  for (size_t i = 0; i < n; ++i)
    for (auto* also : o.params[i].also)
      if (also == key) return int(i);
  for (size_t i = 0; i < n; ++i) {  // not interned: built at run time
    if (same(o.params[i].name, key)) return int(i);
    for (auto* also : o.params[i].also)
      if (also && same(also, key)) return int(i);
  }
  return -1;
}

// Copies between devices accept PyTorch's non_blocking=. It changes nothing: a copy is always complete when the call returns.
bool takes_non_blocking(const Overload& o) { return o.op->effects.moves; }

// Keywords that are no parameters of the schema: out=, and those of PyTorch's factories.
bool take_extra(const Overload& o, PyObject* key, PyObject* value, bool out_ok, Frame& f) {
  if (same(key, names::out) && out_ok) {
    if (value == Py_None) return true;
    bool good = returns_several(o) ? PyTuple_Check(value) || PyList_Check(value) : is_tensor(value);
    f.failure = good ? Frame::Failure::none : Frame::Failure::wrong_extra;
    f.culprit = value;
    f.out = value;
    if (is_tensor(value) && !is_plain(Py_TYPE(value))) note_class(Py_TYPE(value), f);
    return good;
  }
  if (takes_non_blocking(o) && same(key, names::non_blocking)) {
    f.failure = Frame::Failure::wrong_option;
    return PyBool_Check(value);
  }
  if (o.factory) {
    f.failure = Frame::Failure::wrong_option;
    MemoryFormat format;
    if (same(key, names::requires_grad)) {
      f.requires_grad = value == Py_True;
      return PyBool_Check(value);
    }
    if (same(key, names::layout)) {
      if (value == Py_None || PyRef(wrap(Layout::strided)).get() == value) return true;
      if (Py_TYPE(value) != LayoutType) return false;
      supported_check(false, o.op->name())
          << "does not make tensors of layout " << text_of(checked(PyObject_Repr(value)).get())
          << hint(
                 "sparse_coo_tensor(size=...) makes one without elements; to_sparse() and to_sparse_csr() convert");
    }
    if (same(key, names::pin_memory)) return value == Py_None || PyBool_Check(value);
    if (same(key, names::memory_format)) return value == Py_None || to_format(value, format);
    if (same(key, names::names)) return value == Py_None;
    f.failure = Frame::Failure::unknown_keyword;
  }
  return false;
}

}  // namespace

bool parse_ints(PyObject* o, Frame& f, Value& v) {
  Param p{};
  p.list_size = 1;
  return to_ints(p, o, v, f);
}

namespace {

// The arguments of one call, put one by one at the parameters of an overload. Inline, as every call comes by.
struct Arguments {
  const Overload& o;
  bool numbers;
  Frame& f;
  const Param* params = o.params.data();
  Value* values = f.values();
  uint64_t given = 0;  // a bit for each parameter

  [[gnu::always_inline]] bool put(int i, PyObject* a) {
    f.failure = Frame::Failure::wrong_type;
    f.at = i;
    f.culprit = a;
    given |= uint64_t(1) << i;
    if (convert(params[i], a, numbers, values[i], f)) [[likely]]
      return true;
    values[i] = Value();
    return takes_over(a, f);
  }

  // Sizes one by one, as in view(2, 3), stand for a list of them.
  [[gnu::always_inline]] bool begins_sizes(bool self, PyObject* const* args, Py_ssize_t n) const {
    Py_ssize_t first = self ? 0 : o.varargs;
    SymInt ignored;
    f.at = std::max(o.varargs, 0);
    if (o.varargs < 0 || n <= std::max<Py_ssize_t>(first, 0) || PyTuple_Check(args[first]) ||
        PyList_Check(args[first]))
      return false;
    return to_size(args[first], ignored, PyExc_TypeError) || (n > first + 1 && takes_over(args[first], f));
  }
  [[gnu::always_inline]] bool put_sizes(bool self, PyObject* const* args, Py_ssize_t n) {
    Py_ssize_t first = self ? 0 : o.varargs;
    if (first && !put(0, args[0])) return false;
    auto* list = f.room<SymInt>(size_t(n - first));
    for (Py_ssize_t k = first; k < n; ++k) {
      SymInt i;
      if (!to_size(args[k], i, PyExc_TypeError) && !takes_over(args[k], f)) {
        f.failure = Frame::Failure::wrong_item;
        f.at = o.varargs;
        f.item = k - first;
        f.culprit = args[k];
        return false;
      }
      list[k - first] = i;
    }
    values[o.varargs] = Value(SymSpan(list, size_t(n - first)));
    given |= uint64_t(1) << o.varargs;
    return true;
  }

  [[gnu::always_inline]] bool put_positional(bool self, PyObject* const* args, Py_ssize_t n) {
    int i = 0;
    for (Py_ssize_t k = 0; k < n; ++k, ++i) {
      if (self && i == o.self_at) ++i;
      if (i >= o.positional) {
        if (i == o.positional && takes_non_blocking(o) && PyBool_Check(args[k])) continue;
        f.failure = Frame::Failure::too_many;
        return false;
      }
      if (!put(i, args[k])) return false;
    }
    return true;
  }

  [[gnu::always_inline]] bool put_keywords(PyObject* kwnames, PyObject* const* args, bool out_ok) {
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(kwnames); ++k) {
      PyObject* key = PyTuple_GET_ITEM(kwnames, k);
      int i = find_keyword(o, key);
      if (i < 0) {
        f.failure = Frame::Failure::unknown_keyword;
        f.culprit = key;
        if (take_extra(o, key, args[k], out_ok, f)) continue;
        if (f.failure != Frame::Failure::unknown_keyword && takes_over(args[k], f)) continue;
        return false;
      }
      if (given >> i & 1) {
        f.failure = Frame::Failure::twice;
        f.culprit = key;
        return false;
      }
      if (!put(i, args[k])) return false;
    }
    return true;
  }

  [[gnu::always_inline]] bool put_defaults() {
    int count = int(o.params.size());
    for (int i = 0; i < count; ++i) {
      if (given >> i & 1) continue;
      if (!params[i].has_default) {
        f.failure = Frame::Failure::missing;
        f.at = i;
        return false;
      }
      std::memcpy(static_cast<void*>(values + i), &params[i].fallback, sizeof(Value));
    }
    return true;
  }
};

}  // namespace

bool parse(const Overload& o, PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames,
           bool numbers, bool out_ok, Frame& f) {
  f.reset();
  Arguments call{o, numbers, f};
  bool bound = self != nullptr;
  if (bound && !call.put(o.self_at, self)) return false;
  bool put = call.begins_sizes(bound, args, n) ? call.put_sizes(bound, args, n)
                                               : call.put_positional(bound, args, n);
  if (!put) return false;
  if (kwnames && !call.put_keywords(kwnames, args + n, out_ok)) return false;
  if (!call.put_defaults()) return false;
  if (f.number_first && !o.numbers_alone && !f.override_) {  // no operand is a tensor
    Value* values = f.values();
    f.number_first = std::none_of(values, values + o.params.size(),
                                  [](const Value& v) { return v.tag == op::Tag::tensor; });
    if (f.number_first) return false;
  }
  f.failure = Frame::Failure::none;
  return true;
}

namespace {

std::string type_text(const Param& p) {
  switch (p.type) {
    case Type::Tensor: return p.list ? "tuple of Tensors" : "Tensor";
    case Type::Scalar: return p.list ? "tuple of Numbers" : "Number";
    case Type::Int: return p.list ? "tuple of ints" : "int";
    case Type::Float: return p.list ? "tuple of floats" : "float";
    case Type::Bool: return p.list ? "tuple of bools" : "bool";
    case Type::String: return "str";
    case Type::DType: return package_name() + std::string(".dtype");
    case Type::Device: return package_name() + std::string(".device");
    case Type::Format: return package_name() + std::string(".memory_format");
    case Type::Object: return "classes." + std::string(p.class_name);
    default: return package_name() + std::string(".Generator");
  }
}

std::string name_text(const Param& p, bool method) {
  return p.is_self && !method ? "input" : std::string(text_of(p.name));
}

std::string position_text(const Overload& o, const Frame& f, bool method) {
  if (f.at >= int(o.params.size()) || o.params[size_t(f.at)].keyword_only) return "";
  if (method && f.at == o.self_at) return "";
  return " (position " + std::to_string(f.at + 1 - (method && f.at > o.self_at ? 1 : 0)) + ")";
}

std::string failure_text(const char* name, const Overload& o, const Frame& f, bool method, Py_ssize_t n) {
  const Param* p = f.at < int(o.params.size()) ? &o.params[size_t(f.at)] : nullptr;
  std::string position = position_text(o, f, method), call = std::string(name) + "()";
  switch (f.failure) {
    case Frame::Failure::wrong_type:
      return call + ": argument '" + name_text(*p, method) + "'" + position + " must be " + type_text(*p) +
             ", not " + Py_TYPE(f.culprit)->tp_name;
    case Frame::Failure::wrong_item:
      return call + ": argument '" + name_text(*p, method) + "'" + position + " must be " + type_text(*p) +
             ", but found element of type " + Py_TYPE(f.culprit)->tp_name + " at pos " +
             std::to_string(f.item);
    case Frame::Failure::missing:
      return call + " missing 1 required " + (p->keyword_only ? "keyword-only " : "positional ") +
             "argument: \"" + name_text(*p, method) + "\"";
    case Frame::Failure::too_many: {
      int takes = o.positional - (method ? 1 : 0);
      return call + " takes " + std::to_string(takes) + " positional argument" + (takes == 1 ? "" : "s") +
             " but " + std::to_string(n) + (n == 1 ? " was" : " were") + " given";
    }
    case Frame::Failure::unknown_keyword:
      return call + " got an unexpected keyword argument '" + std::string(text_of(f.culprit)) + "'";
    case Frame::Failure::twice:
      return call + " got multiple values for argument '" + std::string(text_of(f.culprit)) + "'";
    case Frame::Failure::wrong_extra:
      return call + ": argument 'out' must be " + (returns_several(o) ? "tuple of Tensors" : "Tensor") +
             ", not " + Py_TYPE(f.culprit)->tp_name;
    case Frame::Failure::wrong_option:
      return call + ": argument '" + std::string(text_of(f.culprit)) + "' is of the wrong type";
    default: return call + ": arguments do not fit";
  }
}

}  // namespace

std::string given_text(PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  std::string text = "(";
  for (Py_ssize_t i = 0; i < n; ++i) text += std::string(i ? ", " : "") + Py_TYPE(args[i])->tp_name;
  for (Py_ssize_t k = 0; kwnames && k < PyTuple_GET_SIZE(kwnames); ++k)
    text += std::string(n + k ? ", " : "") + std::string(text_of(PyTuple_GET_ITEM(kwnames, k))) + "=" +
            Py_TYPE(args[n + k])->tp_name;
  return text + ")";
}

std::string argument_text(const Overload& o, const Frame& f, bool method) {
  if (f.at >= int(o.params.size())) return "arguments";
  return "argument '" + name_text(o.params[size_t(f.at)], method) + "'" + position_text(o, f, method);
}

std::string signature_of(const Overload& o, bool method, bool out) {
  std::string text = "(";
  bool first = true, star = false;
  auto& parameters = o.op->schema.parameters;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Param& p = o.params[i];
    if (method && int(i) == o.self_at) continue;
    if (p.keyword_only && !star) {
      text += first ? "*" : ", *";
      first = false;
      star = true;
    }
    text += (first ? "" : ", ") + type_text(p) + " " + name_text(p, method);
    if (p.has_default) text += "=" + parameters[i].default_text;
    first = false;
  }
  if (out)
    text += std::string(first  ? "*"
                        : star ? ""
                               : ", *") +
            (returns_several(o) ? ", tuple of Tensors out=None" : ", Tensor out=None");
  return text + ")";
}

void raise_mismatch(const char* name, std::span<const Overload> overloads, PyObject* self,
                    PyObject* const* args, Py_ssize_t n, PyObject* kwnames, bool out_ok) {
  std::string text;
  if (overloads.size() == 1) {
    Frame f;
    parse(overloads[0], self, args, n, kwnames, true, out_ok && overloads[0].op->forms.out, f);
    text = failure_text(name, overloads[0], f, self != nullptr, n) + "\n  signature: " + name +
           signature_of(overloads[0], self != nullptr, out_ok && overloads[0].op->forms.out);
  } else {
    text = std::string(name) + "() received an invalid combination of arguments - got " +
           given_text(args, n, kwnames) + ", but expected one of:";
    for (auto& o : overloads) {
      Frame f;
      parse(o, self, args, n, kwnames, true, out_ok && o.op->forms.out, f);
      text += "\n * " + signature_of(o, self != nullptr, out_ok && o.op->forms.out) + "\n      " +
              failure_text(name, o, f, self != nullptr, n);
    }
  }
  PyErr_SetString(PyExc_TypeError, text.c_str());
}

}  // namespace facula::bind
