#include "guards.h"

#include <algorithm>
#include <cstring>

#include "../types.h"
#include "facula/autograd/autograd.h"
#include "facula/sym/substitute.h"

namespace facula::bind::capture {

TensorFacts::TensorFacts(const TensorImpl& t)
    : dtype(t.dtype),
      device(t.device),
      layout(layout_of(&t)),
      requires_grad(Tensor(Ref<TensorImpl>::share(const_cast<TensorImpl*>(&t))).requires_grad()),
      is_leaf(!t.has_node),
      conj(t.conj),
      neg(t.neg),
      inference(t.inference) {
  for (auto s : t.sizes) sizes.push_back(s.hint());
  for (auto s : t.strides) strides.push_back(s.hint());
}

bool TensorFacts::match(const TensorImpl& t) const {
  if (t.dtype != dtype || t.device != device || layout_of(&t) != layout || t.conj != conj || t.neg != neg ||
      t.inference != inference || t.has_node == is_leaf || t.sizes.size() != sizes.size())
    return false;
  if (free.empty()) {
    for (size_t d = 0; d < sizes.size(); ++d)
      if (t.sizes[d].hint() != sizes[d] || t.strides[d].hint() != strides[d]) return false;
  } else {
    int64_t next = 1;
    for (size_t d = sizes.size(); d-- > 0;) {
      int64_t n = t.sizes[d].hint();
      if ((free[d] ? n < 2 : n != sizes[d]) || t.strides[d].hint() != next) return false;
      next *= n;
    }
  }
  bool requires_now = t.requires_grad || t.has_node ||
                      (t.grad_slot && TensorImpl::base_requires_grad && TensorImpl::base_requires_grad(t));
  return requires_now == requires_grad;
}

static std::string text_of_ints(const Ints& all, const std::vector<bool>& free = {}) {
  std::string s = "[";
  for (size_t k = 0; k < all.size(); ++k)
    s += (k ? ", " : "") + (free.empty() || !free[k] ? std::to_string(all[k]) : "any");
  return s + "]";
}

std::string TensorFacts::text() const {
  std::string s = std::string(name(dtype)) + text_of_ints(sizes, free);
  if (layout != Layout::strided) s += std::string(" ") + name(layout);
  s += free.empty() ? " strides " + text_of_ints(strides) : " contiguous";
  return s + (requires_grad ? " requires_grad" : "");
}

bool is_atom(PyObject* o) {
  PyTypeObject* t = Py_TYPE(o);
  if (o == Py_None || o == Py_Ellipsis || o == Py_NotImplemented || t == &PyBool_Type || t == &PyLong_Type ||
      t == &PyFloat_Type || t == &PyUnicode_Type || t == &PyComplex_Type || t == &PyBytes_Type ||
      t == &PyRange_Type)
    return true;
  if (is_dtype(o) || t == DeviceType_ || t == FormatType || t == LayoutType) return true;
  if (t != SizeType && t != &PyFrozenSet_Type) return false;
  if (t == SizeType) {
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(o); ++k)
      if (!is_atom(PyTuple_GET_ITEM(o, k))) return false;
    return true;
  }
  return false;
}

// The function, its arguments and the position by which copy() makes an iterator of a tuple; null at its end.
static PyRef state_of_iterator(PyObject* iterator) {
  PyRef state(Py_TYPE(iterator) == &PyTupleIter_Type ? PyObject_CallMethod(iterator, "__reduce__", nullptr)
                                                     : nullptr);
  if (!state) PyErr_Clear();
  return state && PyTuple_Check(state.get()) && PyTuple_GET_SIZE(state.get()) == 3 ? state : PyRef();
}
Py_ssize_t position_of(PyObject* iterator) {
  PyRef state = state_of_iterator(iterator);
  return state ? PyLong_AsSsize_t(PyTuple_GET_ITEM(state.get(), 2)) : -1;
}
PyRef upcoming_item(PyObject* iterator, Py_ssize_t k) {
  PyRef state = state_of_iterator(iterator);
  if (!state) return {};
  PyObject* items = PyTuple_GET_ITEM(PyTuple_GET_ITEM(state.get(), 1), 0);
  Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GET_ITEM(state.get(), 2)) + k;
  return at < PyTuple_GET_SIZE(items) ? PyRef::share(PyTuple_GET_ITEM(items, at)) : PyRef();
}

bool same_atom(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (Py_TYPE(a) != Py_TYPE(b)) return false;
  if (PyFloat_CheckExact(a)) {
    double x = PyFloat_AS_DOUBLE(a), y = PyFloat_AS_DOUBLE(b);
    return !std::memcmp(&x, &y, sizeof x);
  }
  if (PyComplex_CheckExact(a)) {
    Py_complex x = PyComplex_AsCComplex(a), y = PyComplex_AsCComplex(b);
    return !std::memcmp(&x, &y, sizeof x);
  }
  int equal = PyObject_RichCompareBool(a, b, Py_EQ);
  if (equal < 0) PyErr_Clear();
  return equal > 0;
}

bool is_of_items(const Guard& absent, PyObject* o) {
  return PyDict_Check(o) && (absent.number || !is_class_of_python(Py_TYPE(o)));
}

PyObject* keys_of(PyObject* dict) {
  if (!PyODict_Check(dict)) return PyDict_Keys(dict);  // the order of an OrderedDict is not that of its dict
  PyRef iterator(PyODict_Type.tp_iter(dict));
  return iterator ? PySequence_List(iterator.get()) : nullptr;
}

std::optional<int64_t> size_now(const GuardList& list, SymInt size, const std::vector<PyRef>& values) {
  SmallVector<int64_t, 16> symbols;
  for (auto& [source, d] : list.symbols) {
    PyObject* o = source == kNoSource ? nullptr : values[size_t(source)].get();
    bool has = o && is_tensor(o) && d < impl_of(o)->sizes.size();
    symbols.push_back(has ? impl_of(o)->sizes[d].hint() : -1);
  }
  bool has_values = true;
  sym::each_symbol(size, [&](size_t k) { has_values &= k < symbols.size() && symbols[k] >= 0; });
  if (!has_values) return std::nullopt;
  return sym::evaluate(size, IntSpan(symbols.data(), symbols.size()));
}

namespace {

PyRef read_dict(PyObject* dict, PyObject* key) {
  if (!PyDict_Check(dict)) return {};
  PyObject* looked_up = PyDict_GetItemWithError(dict, key);
  if (!looked_up) PyErr_Clear();
  return PyRef::share(looked_up);
}

PyRef read(const GuardList& list, const Source& s, Roots roots, const std::vector<PyRef>& values) {
  PyObject* base = s.base == kNoSource ? nullptr : values[size_t(s.base)].get();
  if (s.base != kNoSource && !base) return {};
  switch (s.kind) {
    case Source::Kind::constant: return s.key;
    case Source::Kind::root:
      return size_t(s.index) < roots.size() ? PyRef::share(roots[size_t(s.index)]) : PyRef();
    case Source::Kind::attribute: {
      PyRef looked_up(PyObject_GetAttr(base, s.key.get()));
      if (!looked_up) PyErr_Clear();
      return looked_up;
    }
    case Source::Kind::item: {
      if (!PyTuple_Check(base) && !PyList_Check(base)) return {};
      if (s.index >= PySequence_Fast_GET_SIZE(base)) return {};
      return PyRef::share(PySequence_Fast_GET_ITEM(base, s.index));
    }
    case Source::Kind::dict_item: return read_dict(base, s.key.get());
    case Source::Kind::cell: return PyCell_Check(base) ? PyRef(PyCell_Get(base)) : PyRef();
    case Source::Kind::closure: {
      PyObject* closure = PyFunction_Check(base) ? PyFunction_GET_CLOSURE(base) : nullptr;
      bool is_there = closure && s.index < PyTuple_GET_SIZE(closure);
      return is_there ? PyRef::share(PyTuple_GET_ITEM(closure, s.index)) : PyRef();
    }
    case Source::Kind::fallback: {
      PyObject* all = PyFunction_Check(base) ? PyFunction_GET_DEFAULTS(base) : nullptr;
      return all && s.index < PyTuple_GET_SIZE(all) ? PyRef::share(PyTuple_GET_ITEM(all, s.index)) : PyRef();
    }
    case Source::Kind::size: {
      auto n = size_now(list, list.sizes[size_t(s.index)], values);
      return n ? checked(PyLong_FromLongLong(*n)) : PyRef();
    }
    case Source::Kind::computed: {
      PyObject* other = values[size_t(s.other)].get();
      PyRef result(other ? binary_of(int(s.index), base, other) : nullptr);
      if (!result) PyErr_Clear();
      return result;
    }
    case Source::Kind::applied: {
      PyObject* args[] = {base, s.other == kNoSource ? nullptr : values[size_t(s.other)].get()};
      if (s.other != kNoSource && !args[1]) return {};
      PyRef result(PyObject_Vectorcall(s.key.get(), args, args[1] ? 2 : 1, nullptr));
      if (!result) PyErr_Clear();
      return result;
    }
    case Source::Kind::upcoming: return upcoming_item(base, s.index);
    case Source::Kind::cached_call: {
      PyObject* named = PyTuple_GET_ITEM(s.key.get(), 1);
      PyRef result(PyObject_Call(base, PyTuple_GET_ITEM(s.key.get(), 0), named == Py_None ? nullptr : named));
      if (!result) PyErr_Clear();
      return result;
    }
    case Source::Kind::keyword_fallback: {
      PyObject* all = PyFunction_Check(base) ? PyFunction_GET_KW_DEFAULTS(base) : nullptr;
      return all ? read_dict(all, s.key.get()) : PyRef();
    }
  }
  return {};
}

// The class of an instance, or the object itself if it is a class, gives the values of `expected` for its names.
bool has_members(Guard& g, PyObject* o) {
  auto* type = PyType_Check(o) ? reinterpret_cast<PyTypeObject*>(o) : Py_TYPE(o);
  bool valid = PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG);
  if (valid && g.version && type->tp_version_tag == g.version) return true;
  PyObject *name, *value;
  Py_ssize_t at = 0;
  while (PyDict_Next(g.expected.get(), &at, &name, &value)) {
    PyObject* now = _PyType_Lookup(type, name);
    if (value == Py_Ellipsis ? now != nullptr : now != value) return false;
  }
  g.version = PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG) ? type->tp_version_tag : 0;
  return true;
}

bool has_keys(PyObject* dict, PyObject* expected) {
  if (!PyDict_Check(dict) || PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(expected)) return false;
  PyObject *key, *value;
  Py_ssize_t at = 0, k = 0;
  if (PyODict_Check(dict)) {
    PyRef keys(keys_of(dict));
    for (; keys && k < PyList_GET_SIZE(keys.get()); ++k) {
      PyObject *is = PyList_GET_ITEM(keys.get(), k), *wanted = PyTuple_GET_ITEM(expected, k);
      if (is != wanted && !(is_atom(is) && same_atom(is, wanted))) return false;
    }
    PyErr_Clear();
    return bool(keys);
  }
  while (PyDict_Next(dict, &at, &key, &value)) {
    PyObject* wanted = PyTuple_GET_ITEM(expected, k++);
    if (key != wanted && !(is_atom(key) && same_atom(key, wanted))) return false;
  }
  return true;
}

// A list, tuple or dict has the very objects of the tuple `expected`.
bool has_items(PyObject* o, PyObject* expected) {
  Py_ssize_t n = PyTuple_GET_SIZE(expected);
  if (PyTuple_Check(o) || PyList_Check(o)) {
    if (PySequence_Fast_GET_SIZE(o) != n) return false;
    PyObject** items = PySequence_Fast_ITEMS(o);
    return std::equal(items, items + n, reinterpret_cast<PyTupleObject*>(expected)->ob_item);
  }
  if (!PyDict_Check(o) || 2 * PyDict_GET_SIZE(o) != n) return false;
  PyObject *key, *value;
  Py_ssize_t at = 0, k = 0;
  while (PyDict_Next(o, &at, &key, &value)) {
    bool same_key = key == PyTuple_GET_ITEM(expected, k) ||
                    (is_atom(key) && same_atom(key, PyTuple_GET_ITEM(expected, k)));
    if (!same_key || value != PyTuple_GET_ITEM(expected, k + 1)) return false;
    k += 2;
  }
  return true;
}

// An instance dict, or a dict itself, has no such name; a module of nn has no such member either, unless its class has the name.
bool is_absent(const Guard& g, PyObject* o) {
  PyObject* name = g.expected.get();
  auto lacks = [&](PyObject* dict) {
    int has = dict && PyDict_Check(dict) ? PyDict_Contains(dict, name) : 0;
    if (has < 0) PyErr_Clear();
    return has <= 0;
  };
  if (is_of_items(g, o)) return lacks(o);
  PyObject** dict = _PyObject_GetDictPtr(o);
  if (!dict || !*dict) return !dict || true;
  if (!lacks(*dict)) return false;
  if (!is_module(o) || _PyType_Lookup(Py_TYPE(o), name)) return true;
  for (PyObject* group : {names::_parameters, names::_modules, names::_buffers})
    if (!lacks(PyDict_GetItemWithError(*dict, group))) return false;
  return true;
}

}  // namespace

bool holds(GuardList& list, Guard& g, Roots roots, std::vector<PyRef>& values) {
  if (g.kind == Guard::Kind::null) return !roots[size_t(list.sources[size_t(g.source)].index)];
  PyObject* o = values[size_t(g.source)].get();
  if (g.kind == Guard::Kind::load)
    return bool(values[size_t(g.source)] = read(list, list.sources[size_t(g.source)], roots, values));
  if (!o) return false;
  PyObject* expected = g.expected.get();
  switch (g.kind) {
    case Guard::Kind::is: return o == expected;
    case Guard::Kind::type: return reinterpret_cast<PyObject*>(Py_TYPE(o)) == expected;
    case Guard::Kind::members: return has_members(g, o);
    case Guard::Kind::equal: return same_atom(o, expected);
    case Guard::Kind::tensor:
      return is_tensor(o) && reinterpret_cast<PyObject*>(Py_TYPE(o)) == expected &&
             list.tensors[size_t(g.number)].match(*impl_of(o));
    case Guard::Kind::length:
      return (PyTuple_Check(o) || PyList_Check(o)) && PySequence_Fast_GET_SIZE(o) == g.number;
    case Guard::Kind::keys: return has_keys(o, expected);
    case Guard::Kind::elements: {
      int equal = PyAnySet_Check(o) ? PyObject_RichCompareBool(o, expected, Py_EQ) : 0;
      if (equal < 0) PyErr_Clear();
      return equal > 0;
    }
    case Guard::Kind::items: return has_items(o, expected);
    case Guard::Kind::absent: return is_absent(g, o);
    case Guard::Kind::same: return o == values[size_t(g.number)].get();
    case Guard::Kind::different: return o != values[size_t(g.number)].get();
    case Guard::Kind::function: return PyFunction_Check(o) && PyFunction_GET_CODE(o) == expected;
    case Guard::Kind::no_hooks: return is_module(o) && calls_forward_directly(o);
    default: return false;
  }
}

const Guard* first_failure(GuardList& list, Roots roots, std::vector<PyRef>& values) {
  values.assign(list.sources.size(), PyRef());
  for (auto& g : list.guards)
    if (!holds(list, g, roots, values)) return &g;
  return nullptr;
}

std::string GuardList::path(SourceId id, const std::vector<std::string>& roots) const {
  if (id == kNoSource) return "?";
  auto& s = sources[size_t(id)];
  auto shown = [](PyObject* o) {
    PyRef text(PyObject_Repr(o));
    if (!text) {
      PyErr_Clear();
      return std::string("?");
    }
    return std::string(text_of(text.get())).substr(0, 80);
  };
  switch (s.kind) {
    case Source::Kind::constant: {
      if (PyDict_Check(s.key.get()))
        return PyDict_GetItemString(s.key.get(), "__name__") ? "globals" : "a dict";
      return PyModule_Check(s.key.get()) ? PyModule_GetName(s.key.get()) : shown(s.key.get());
    }
    case Source::Kind::root: return size_t(s.index) < roots.size() ? roots[size_t(s.index)] : "slot";
    case Source::Kind::attribute: return path(s.base, roots) + "." + std::string(text_of(s.key.get()));
    case Source::Kind::item: return path(s.base, roots) + "[" + std::to_string(s.index) + "]";
    case Source::Kind::dict_item: return path(s.base, roots) + "[" + shown(s.key.get()) + "]";
    case Source::Kind::cell: return path(s.base, roots);
    case Source::Kind::closure: return path(s.base, roots) + ".__closure__[" + std::to_string(s.index) + "]";
    case Source::Kind::size: return facula::to_string(sizes[size_t(s.index)]);
    case Source::Kind::upcoming:
      return "item " + std::to_string(s.index) + " behind the position of " + path(s.base, roots);
    case Source::Kind::cached_call: return path(s.base, roots) + shown(PyTuple_GET_ITEM(s.key.get(), 0));
    case Source::Kind::applied:
      return shown(s.key.get()) + "(" + path(s.base, roots) +
             (s.other == kNoSource ? "" : ", " + path(s.other, roots)) + ")";
    case Source::Kind::computed: return "(" + path(s.base, roots) + " with " + path(s.other, roots) + ")";
    case Source::Kind::fallback:
      return path(s.base, roots) + ".__defaults__[" + std::to_string(s.index) + "]";
    case Source::Kind::keyword_fallback:
      return path(s.base, roots) + ".__kwdefaults__[" + shown(s.key.get()) + "]";
  }
  return "?";
}

std::string GuardList::text(const Guard& g, const std::vector<std::string>& roots) const {
  std::string at = path(g.source, roots);
  std::string expected;
  if (g.expected) {
    PyRef shown(PyObject_Repr(g.expected.get()));
    if (shown) expected = std::string(text_of(shown.get())).substr(0, 100);
    else PyErr_Clear();
  }
  switch (g.kind) {
    case Guard::Kind::load: return at + " can be read";
    case Guard::Kind::is: return at + " is " + expected;
    case Guard::Kind::type: return "type(" + at + ") is " + expected;
    case Guard::Kind::members: return "the class of " + at + " has unchanged members";
    case Guard::Kind::equal: return at + " == " + expected;
    case Guard::Kind::tensor: return at + " is a " + tensors[size_t(g.number)].text();
    case Guard::Kind::length: return "len(" + at + ") == " + std::to_string(g.number);
    case Guard::Kind::keys: return "the keys of " + at + " are " + expected;
    case Guard::Kind::elements: return at + " == " + expected;
    case Guard::Kind::items: return at + " has the same objects";
    case Guard::Kind::absent: return at + " has no " + expected;
    case Guard::Kind::same: return at + " is " + path(int(g.number), roots);
    case Guard::Kind::different: return at + " is not " + path(int(g.number), roots);
    case Guard::Kind::function: return "the code of " + at + " is unchanged";
    case Guard::Kind::no_hooks: return at + " has no hooks";
    case Guard::Kind::null: return at + " is unbound";
  }
  return at;
}

}  // namespace facula::bind::capture
