#include "recorder.h"

#include <opcode.h>

#include <algorithm>

#include "../autograd.h"
#include "../symint.h"
#include "../types.h"
#include "facula/run/open_trace.h"
#include "facula/sym/run_time.h"
#include "facula/sym/substitute.h"

namespace facula::bind::capture {

void Recorder::at_line(PyObject* file, int number, PyObject* globals) {
  line = number;
  globals_ = globals;
  if (file != file_) {
    file_ = file;
    file_name_ = graph::interned(text_of(file));
  }
  if (auto* trace = run::OpenTrace::current()) trace->at_line(file_name_, number);
}

bool Recorder::warn(PyObject* category, PyObject* message) {
  return warn(category, message, file_, line, globals_);
}
bool Recorder::warn(PyObject* category, PyObject* message, PyObject* file, int number, PyObject* globals) {
  PyObject* module = PyDict_GetItemString(globals, "__name__");
  PyRef name = module && PyUnicode_Check(module) ? PyRef::share(module) : checked(unicode("<string>"));
  PyRef polyfills = checked(PyImport_ImportModule("facula._dynamo.polyfills")),
        key = checked(PyUnicode_InternFromString("warn_")),
        args = checked(Py_BuildValue("(OOOiO)", message, category, file, number, name.get()));
  PyRef method = checked(PyObject_GetAttr(polyfills.get(), key.get()));
  if (!PyRef(PyObject_CallObject(method.get(), args.get()))) return false;
  writes.push_back({Write::Kind::call, polyfills, key, args});
  return true;
}

bool Recorder::keeps_sizes() const {
  return std::any_of(run_time_sizes.begin(), run_time_sizes.end(), [](const PyRef& o) {
    if (Py_REFCNT(o.get()) > 1) return true;
    for (Py_ssize_t k = 0; PyTuple_Check(o.get()) && k < PyTuple_GET_SIZE(o.get()); ++k)
      if (is_symint(PyTuple_GET_ITEM(o.get(), k)) && Py_REFCNT(PyTuple_GET_ITEM(o.get(), k)) > 1) return true;
    return false;
  });
}

SourceId Recorder::source_of(PyObject* o) const {
  auto it = outside_.find(o);
  return it == outside_.end() ? kNoSource : it->second;
}

bool Recorder::is_changing(PyObject* o) const {
  return changing && changing->count(list.path(source_of(o), root_names));
}

void Recorder::add(Guard::Kind kind, SourceId s, PyObject* expected, int64_t number) {
  if (!added_.insert({int(kind), s, expected, number}).second) return;
  Guard g{kind, s, PyRef::share(expected), number, line};
  list.guards.push_back(std::move(g));
  if (expected) alive_.push_back(PyRef::share(expected));
}

SourceId Recorder::constant(PyObject* o) {
  auto it = outside_.find(o);
  if (it != outside_.end()) return it->second;
  SourceId id = SourceId(list.sources.size());
  list.sources.push_back({Source::Kind::constant, kNoSource, PyRef::share(o)});
  add(Guard::Kind::load, id);
  outside_[o] = id;
  alive_.push_back(PyRef::share(o));
  return id;
}

void Recorder::serve_this_call_alone() {
  SourceId none = constant(Py_None);
  add(Guard::Kind::different, none, nullptr, none);
}

namespace {

// Makes an equal number that is another object.
PyRef copy_of_number(PyObject* o) {
  if (PyFloat_CheckExact(o)) return checked(PyFloat_FromDouble(PyFloat_AS_DOUBLE(o)));
  auto* from = reinterpret_cast<PyLongObject*>(o);
#if PY_VERSION_HEX < 0x030C0000
  Py_ssize_t digits = std::abs(Py_SIZE(from));
  PyLongObject* copy = _PyLong_New(digits);
  if (!copy) throw PythonError();
  copy->ob_digit[0] = 0;  // CPython reads the digit of 0 too
  std::copy(from->ob_digit, from->ob_digit + digits, copy->ob_digit);
  Py_SET_SIZE(copy, Py_SIZE(from));
#else
  size_t digits = from->long_value.lv_tag >> 3;  // the lower bits have the sign
  PyLongObject* copy = _PyLong_New(Py_ssize_t(digits));
  if (!copy) throw PythonError();
  copy->long_value.ob_digit[0] = 0;  // CPython reads the digit of 0 too
  std::copy_n(from->long_value.ob_digit, digits, copy->long_value.ob_digit);
  copy->long_value.lv_tag = from->long_value.lv_tag;
#endif
  return PyRef(reinterpret_cast<PyObject*>(copy));
}
}  // namespace

bool is_changeable(PyObject* o) { return PyLong_CheckExact(o) || PyFloat_CheckExact(o); }

bool to_operand(PyObject* o, Scalar& number) {
  if (PyFloat_CheckExact(o)) {
    number = Scalar(PyFloat_AS_DOUBLE(o));
    return true;
  }
  int overflow = 0;
  int64_t n = PyLong_CheckExact(o) ? PyLong_AsLongLongAndOverflow(o, &overflow) : 0;
  number = Scalar(n);
  return PyLong_CheckExact(o) && !overflow;
}

void Recorder::pin(PyObject* o) {
  if (!has_free() || !o) return;
  if (free_.erase(o)) {
    add(Guard::Kind::equal, source_of(o), o);
  } else if (PyTuple_Check(o) || PyList_CheckExact(o)) {
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); ++k) pin(PySequence_Fast_GET_ITEM(o, k));
  } else if (PySlice_Check(o)) {
    auto* s = reinterpret_cast<PySliceObject*>(o);
    for (PyObject* part : {s->start, s->stop, s->step}) pin(part);
  } else if (PyDict_Check(o)) {
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(o, &at, &key, &value);) pin(value);
  }
}

void Recorder::register_free(PyObject* number, SourceId id) {
  outside_[number] = id;
  alive_.push_back(PyRef::share(number));
  free_.insert(number);
}

// ---- sizes

namespace {

namespace names_of_marks {
constexpr const char *dynamic = "_dynamo_dynamic_indices", *fixed = "_dynamo_static_indices";
}

PyObject* marks_of(PyObject* tensor, const char* name) {
  PyObject* dict = reinterpret_cast<TensorObject*>(tensor)->dict;
  PyObject* marks = dict ? PyDict_GetItemString(dict, name) : nullptr;
  return marks && PyAnySet_Check(marks) ? marks : nullptr;
}
bool is_marked(PyObject* tensor) { return marks_of(tensor, names_of_marks::dynamic); }

// Sets the dimensions that mark_dynamic() or mark_static() has named.
void mark(PyObject* tensor, const char* name, std::vector<bool>& free, bool value) {
  PyObject* marks = marks_of(tensor, name);
  if (!marks) return;
  PyRef all = checked(PySequence_List(marks));
  for (Py_ssize_t k = 0; k < PyList_GET_SIZE(all.get()); ++k) {
    auto d = PyLong_AsSsize_t(PyList_GET_ITEM(all.get(), k));
    if (d >= 0 && size_t(d) < free.size()) free[size_t(d)] = value;
  }
  PyErr_Clear();
}

}  // namespace

// Whether the value is an argument or another slot of the state, or an item of one.
bool Recorder::is_argument(SourceId id) const {
  using Kind = Source::Kind;
  while (list.sources[size_t(id)].kind == Kind::item || list.sources[size_t(id)].kind == Kind::dict_item)
    id = list.sources[size_t(id)].base;
  return list.sources[size_t(id)].kind == Kind::root;
}

// Gives the object of a plain contiguous tensor without a gradient, whose sizes may change, a handle with symbols.
bool Recorder::replace(SourceId id, PyObject* o) {
  Tensor t = tensor_of(o);
  auto* trace = run::OpenTrace::current();
  bool fits = Py_TYPE(o) == TensorType && !t.requires_grad() && !t.impl()->traced && trace &&
              t.is_contiguous() && t.dim() && !t.impl()->inference && !t.impl()->conj && !t.impl()->neg &&
              std::ranges::equal(t.strides(), contiguous_strides(Dims(t.sizes())));
  if (!fits) return false;
  const ChangedSizes* own = nullptr;
  if (changing_sizes)
    if (auto it = changing_sizes->find(list.path(id, root_names)); it != changing_sizes->end())
      own = it->second.changed.size() == size_t(t.dim()) ? &it->second : nullptr;
  bool related = free_sizes == FreeSizes::related && (own || (changing_sizes && is_argument(id)));
  std::vector<bool> free(size_t(t.dim()), free_sizes == FreeSizes::all || related);
  if (own && free_sizes == FreeSizes::changed) free = own->changed;
  mark(o, names_of_marks::dynamic, free, true);
  mark(o, names_of_marks::fixed, free, false);
  std::vector<run::SizeKind> kinds;
  for (size_t d = 0; d < free.size(); ++d) {
    free[d] = free[d] && t.sizes()[d].hint() >= 2;
    kinds.push_back(free[d] ? run::SizeKind::symbolic : run::SizeKind::fixed);
  }
  if (std::none_of(free.begin(), free.end(), [](bool b) { return b; })) return false;
  Ints
      earlier;  // Each size that has not changed gets a separate symbol, since it may be equal to others by chance.
  for (size_t d = 0; (own || related) && d < free.size(); ++d)
    earlier.push_back(own && own->changed[d] ? own->earlier[d] : --unchanged_sizes_);
  trace->input(t, run::SourceId(id), kinds, earlier);
  Tensor handle = trace->handle_of(t);
  for (size_t d = 0; d < free.size(); ++d)
    if (free[d] && !handle.sizes()[d].is_symbol())
      return false;  // a call has read it before, with fixed sizes
  for (size_t d = 0; d < free.size(); ++d)
    if (SymInt s = handle.sizes()[d]; s.is_symbol()) {
      auto k = size_t(s.node()->value);
      if (list.symbols.size() <= k) list.symbols.resize(k + 1, {kNoSource, 0});
      if (list.symbols[k].first == kNoSource) list.symbols[k] = {id, d};
    }
  list.tensors.emplace_back(*t.impl());
  list.tensors.back().free = free;
  add(Guard::Kind::tensor, id, reinterpret_cast<PyObject*>(Py_TYPE(o)), int64_t(list.tensors.size()) - 1);
  auto* object = reinterpret_cast<TensorObject*>(o);
  replaced.emplace_back(PyRef::share(o), t.ref());
  handle.impl()->retain();
  object->impl->release();
  object->impl = handle.impl();
  handle.impl()->py_object = o;
  outside_[o] = id;
  alive_.push_back(PyRef::share(o));
  return true;
}

void Recorder::restore() {
  for (auto& [o, tensor] : replaced) {
    auto* object = reinterpret_cast<TensorObject*>(o.get());
    object->impl->py_object = nullptr;
    object->impl->release();
    tensor->retain();
    object->impl = tensor.get();
  }
  replaced.clear();
}

PyRef Recorder::free_size(SymInt size) {
  auto& number = by_size_[size.identity()];
  if (number) return number;
  bool has_sources = !sym::is_run_time(size);
  if (has_sources)
    sym::each_symbol(size, [&](size_t k) {
      has_sources &= k < list.symbols.size() && list.symbols[k].first != kNoSource;
    });
  if (!has_sources) return {};
  SourceId id = SourceId(list.sources.size());
  list.sources.push_back({Source::Kind::size, kNoSource, {}, Py_ssize_t(list.sizes.size())});
  list.sizes.push_back(size);
  add(Guard::Kind::load, id);
  PyRef plain = checked(PyLong_FromLongLong(size.hint()));
  number = copy_of_number(plain.get());
  register_free(number.get(), id);
  symbolic_[number.get()] = size;
  return number;
}

PyRef Recorder::without_symbols(PyRef o) {
  if (!has_symbols()) return o;
  if (is_symint(o.get())) {
    SymInt size = symint_of(o.get());
    if (!size.is_symbolic()) return checked(PyLong_FromLongLong(size.hint()));
    PyRef number = free_size(size);
    return number ? number : o;
  }
  if (!PyTuple_CheckExact(o.get()) && Py_TYPE(o.get()) != SizeType) return o;
  Py_ssize_t n = PyTuple_GET_SIZE(o.get());
  bool any = false;
  for (Py_ssize_t k = 0; k < n; ++k) any |= is_symint(PyTuple_GET_ITEM(o.get(), k));
  if (!any) return o;
  PyRef same = checked(Py_TYPE(o.get())->tp_alloc(Py_TYPE(o.get()), n));
  for (Py_ssize_t k = 0; k < n; ++k)
    PyTuple_SET_ITEM(same.get(), k, without_symbols(PyRef::share(PyTuple_GET_ITEM(o.get(), k))).detach());
  return same;
}

PyRef Recorder::with_symbols(PyObject* o) {
  if (!o || !has_free()) return PyRef::share(o);
  if (is_free(o)) {
    auto it = symbolic_.find(o);
    if (it != symbolic_.end()) return checked(wrap_symint(it->second));
    pin(o);
    return PyRef::share(o);
  }
  if (PyTuple_CheckExact(o) || Py_TYPE(o) == SizeType) {
    PyRef same = checked(PyTuple_New(PyTuple_GET_SIZE(o)));
    bool any = false;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(o); ++k) {
      PyRef item = with_symbols(PyTuple_GET_ITEM(o, k));
      any |= item.get() != PyTuple_GET_ITEM(o, k);
      PyTuple_SET_ITEM(same.get(), k, item.detach());
    }
    return any ? same : PyRef::share(o);
  }
  if (PyList_CheckExact(o)) {
    PyRef same = checked(PyList_New(0));
    bool any = false;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(o); ++k) {
      PyRef item = with_symbols(PyList_GET_ITEM(o, k));
      any |= item.get() != PyList_GET_ITEM(o, k);
      checked(PyList_Append(same.get(), item.get()));
    }
    return any ? same : PyRef::share(o);
  }
  if (PySlice_Check(o)) {
    auto* s = reinterpret_cast<PySliceObject*>(o);
    PyRef start = with_symbols(s->start), stop = with_symbols(s->stop), step = with_symbols(s->step);
    if (start.get() == s->start && stop.get() == s->stop && step.get() == s->step) return PyRef::share(o);
    return checked(PySlice_New(start.get(), stop.get(), step.get()));
  }
  pin(o);
  return PyRef::share(o);
}

bool Recorder::are_sizes(PyObject* a, PyObject* b) const {
  auto is_fixed = [&](PyObject* o) { return PyLong_CheckExact(o) && (!is_free(o) || symbolic_.count(o)); };
  return is_fixed(a) && is_fixed(b);
}

PyRef Recorder::computed(int kind, PyObject* a, PyObject* b, PyRef result) {
  bool compares = kind >= kComparison;
  if (!is_free(a) && !is_free(b)) return result;
  if (!compares && !is_changeable(result.get())) {
    pin(a);
    pin(b);
    return result;
  }
  Source s{Source::Kind::computed, source_of_number(a), {}, kind};
  s.other = source_of_number(b);
  PyRef number = follow(std::move(s), std::move(result));
  if (auto size = compares ? std::nullopt : computed_size(kind, a, b)) symbolic_[number.get()] = *size;
  return number;
}

PyRef Recorder::contains(PyObject* container, PyObject* number, PyRef result) {
  Source s{Source::Kind::computed, constant(container), {}, kContains};
  s.other = source_of_number(number);
  return follow(std::move(s), std::move(result));
}

PyRef Recorder::applied(PyObject* function, std::span<PyObject* const> numbers, PyRef result) {
  Source s{Source::Kind::applied, source_of_number(numbers[0]), PyRef::share(function)};
  if (numbers.size() > 1) s.other = source_of_number(numbers[1]);
  return follow(std::move(s), std::move(result));
}

SourceId Recorder::source_of_number(PyObject* o) {
  if (is_free(o)) return source_of(o);
  SourceId id = SourceId(list.sources.size());
  list.sources.push_back({Source::Kind::constant, kNoSource, PyRef::share(o)});
  add(Guard::Kind::load, id);
  return id;
}

PyRef Recorder::follow(Source s, PyRef result) {
  SourceId id = SourceId(list.sources.size());
  list.sources.push_back(std::move(s));
  add(Guard::Kind::load, id);
  if (!is_changeable(result.get())) {
    add(Guard::Kind::equal, id, result.get());
    return result;
  }
  add(Guard::Kind::type, id, reinterpret_cast<PyObject*>(Py_TYPE(result.get())));
  PyRef number = copy_of_number(result.get());
  register_free(number.get(), id);
  return number;
}

// The same as an expression over sizes, if both are such or numbers.
std::optional<SymInt> Recorder::computed_size(int kind, PyObject* a, PyObject* b) const {
  auto size = [&](PyObject* o) -> std::optional<SymInt> {
    auto it = symbolic_.find(o);
    if (it != symbolic_.end()) return it->second;
    int overflow = 0;
    int64_t n = PyLong_CheckExact(o) && !is_free(o) ? PyLong_AsLongLongAndOverflow(o, &overflow) : 0;
    if (!PyLong_CheckExact(o) || is_free(o) || overflow) return std::nullopt;
    return SymInt(n);
  };
  auto x = size(a), y = size(b);
  if (!x || !y) return std::nullopt;
  switch (kind % NB_INPLACE_ADD) {
    case NB_ADD: return *x + *y;
    case NB_SUBTRACT: return *x - *y;
    case NB_MULTIPLY: return *x * *y;
    case NB_FLOOR_DIVIDE: return y->is_symbolic() || y->hint() <= 0 ? std::nullopt : std::optional(*x / *y);
    case NB_REMAINDER: return y->is_symbolic() || y->hint() <= 0 ? std::nullopt : std::optional(*x % *y);
  }
  return std::nullopt;
}

PyObject* Recorder::operand_of(PyObject* o) {
  SourceId id = source_of(o);
  auto& handle = operands_[id];
  if (!handle) {
    Scalar number;
    if (!to_operand(o, number)) return nullptr;
    handle = checked(wrap(run::OpenTrace::current()->number(number, run::SourceId(id))));
  }
  return handle.get();
}

SourceId Recorder::note(Source s, PyObject* o, PyRef* number) {
  // Keys that are equal strings are one object: names are interned. Others make a guard more.
  SourceKey key{int(s.kind), s.base, s.key.get(), s.index};
  if (auto [existing, fresh] = read_.try_emplace(key, SourceId(list.sources.size())); !fresh) {
    // C code may give another object at each access, as for the shape of an array.
    if (s.kind == Source::Kind::attribute && !is_atom(o) && source_of(o) == kNoSource) {
      outside_[o] = existing->second;
      alive_.push_back(PyRef::share(o));
    }
    auto it = numbers_.find(key);
    if (it != numbers_.end() && number && is_free(it->second.get())) *number = it->second;
    else if (it != numbers_.end()) pin(it->second.get());
    return kNoSource;
  }
  if (s.key) alive_.push_back(s.key);
  SourceId id = SourceId(list.sources.size());
  list.sources.push_back(std::move(s));
  add(Guard::Kind::load, id);
  if (is_atom(o)) {
    bool is_result = is_begin && list.sources[size_t(id)].kind == Source::Kind::root;  // of the break
    bool may_change = is_result || (changing && changing->count(list.path(id, root_names)));
    if (number && may_change && is_changeable(o)) {
      *number = numbers_[key] = copy_of_number(o);
      register_free(number->get(), id);
      add(Guard::Kind::type, id, reinterpret_cast<PyObject*>(Py_TYPE(o)));
      return id;
    }
    add(Guard::Kind::equal, id, o);
    return id;
  }
  SourceId existing = source_of(o);
  if (existing != kNoSource) {
    if (list.sources[size_t(existing)].kind == Source::Kind::constant)
      add(Guard::Kind::is, id, list.sources[size_t(existing)].key.get());
    else add(Guard::Kind::same, id, nullptr, existing);
    return id;
  }
  bool may_replace = is_tensor(o) && (changing_sizes || free_sizes == FreeSizes::all || is_marked(o));
  if (may_replace && replace(id, o)) return id;
  outside_[o] = id;
  alive_.push_back(PyRef::share(o));
  first_guard(id, o);
  return id;
}

void Recorder::read_attribute(PyObject* o, const char* name) {
  PyRef key = checked(PyUnicode_InternFromString(name)), value = checked(PyObject_GetAttr(o, key.get()));
  attribute(o, key.get(), value.get());
}

// A method of a builtin container. Each access makes another object, so that its name and its container are compared.
static bool is_method_of_container(PyObject* o) {
  PyObject* self = PyCFunction_CheckExact(o) ? PyCFunction_GET_SELF(o) : nullptr;
  return self && (PyList_CheckExact(self) || PyDict_CheckExact(self) || Py_TYPE(self) == &PySet_Type);
}

// A method of no_grad or another such mode, which is on the stack within `with`.
static bool is_exit_of_mode(PyObject* o) {
  PyObject* self = PyCFunction_Check(o) ? PyCFunction_GET_SELF(o) : nullptr;
  return self && is_grad_mode(self);
}

void Recorder::first_guard(SourceId id, PyObject* o) {
  bool is_method_of_c = Py_TYPE(o) == &PyMethodDescr_Type || Py_TYPE(o) == &PyWrapperDescr_Type ||
                        Py_TYPE(o) == &PyClassMethodDescr_Type;
  bool is_fixed =
      PyType_Check(o) || PyModule_Check(o) || PyCFunction_Check(o) || PyCode_Check(o) || is_method_of_c;
  if (is_tensor(o)) {
    list.tensors.emplace_back(*impl_of(o));
    add(Guard::Kind::tensor, id, reinterpret_cast<PyObject*>(Py_TYPE(o)), int64_t(list.tensors.size()) - 1);
  } else if (is_exit_of_mode(o)) {
    add(Guard::Kind::type, id, reinterpret_cast<PyObject*>(Py_TYPE(o)));
    read_attribute(o, "__name__");
    read_attribute(o, "__self__");
    read_attribute(PyCFunction_GET_SELF(o), "_outer");  // what it restores
  } else if (is_method_of_container(o)) {
    add(Guard::Kind::type, id, reinterpret_cast<PyObject*>(Py_TYPE(o)));
    read_attribute(o, "__name__");
    read_attribute(o, "__self__");
  } else if (is_fixed) {
    add(Guard::Kind::is, id, o);
  } else {
    add(Guard::Kind::type, id, reinterpret_cast<PyObject*>(Py_TYPE(o)));
  }
}

SourceId Recorder::root(Py_ssize_t slot, PyObject* o, PyRef* number) {
  return note({Source::Kind::root, kNoSource, {}, slot}, o, number);
}
void Recorder::null_root(Py_ssize_t slot) {
  SourceId id = SourceId(list.sources.size());
  list.sources.push_back({Source::Kind::root, kNoSource, {}, slot});
  add(Guard::Kind::null, id);
}

void Recorder::attribute(PyObject* base, PyObject* name, PyObject* value, PyRef* number) {
  SourceId b = source_of(base);
  if (b != kNoSource && !is_written(base, name))
    note({Source::Kind::attribute, b, PyRef::share(name)}, value, number);
}
void Recorder::append(PyObject* o, PyObject* value) {
  remember(o, nullptr);
  if (!is_written(o, nullptr) && !full_.count(o)) appended_.try_emplace(o, checked(PySequence_List(o)));
  PyRef name = checked(PyUnicode_InternFromString("append")), args = checked(PyTuple_Pack(1, value));
  writes.push_back({Write::Kind::call, PyRef::share(o), name, args});
}

void Recorder::item(PyObject* sequence, Py_ssize_t k, PyObject* value, PyRef* number) {
  SourceId b = source_of(sequence);
  if (auto it = appended_.find(sequence); it != appended_.end()) {  // the length decides which item it is
    contents(sequence);
    if (k >= PyList_GET_SIZE(it->second.get())) return;
  }
  if (b != kNoSource && !is_written(sequence, nullptr)) note({Source::Kind::item, b, {}, k}, value, number);
}
PyRef Recorder::items_of_tuple(PyObject* tuple, PyObject* slice) {
  Py_ssize_t start, stop, step;
  if (PySlice_Unpack(slice, &start, &stop, &step) < 0) return {};
  Py_ssize_t n = PySlice_AdjustIndices(PyTuple_GET_SIZE(tuple), &start, &stop, step);
  add(Guard::Kind::length, source_of(tuple), nullptr, PyTuple_GET_SIZE(tuple));
  PyRef part = checked(PyTuple_New(n));
  for (Py_ssize_t k = 0; k < n; ++k) {
    PyObject* value = PyTuple_GET_ITEM(tuple, start + k * step);
    PyRef number;
    item(tuple, start + k * step, value, &number);
    PyTuple_SET_ITEM(part.get(), k, number ? number.detach() : Py_NewRef(value));
  }
  return part;
}
PyRef Recorder::advance(PyObject* iterator, PyRef* number) {
  PyRef item = upcoming_item(iterator, 0);
  if (!item) return {};
  Py_ssize_t before =
      std::count_if(writes.begin(), writes.end(), [&](auto& w) { return w.target.get() == iterator; });
  note({Source::Kind::upcoming, source_of(iterator), {}, before}, item.get(), number);
  remember(iterator, nullptr);
  PyRef next = checked(PyUnicode_InternFromString("__next__")), none = checked(PyTuple_New(0));
  writes.push_back({Write::Kind::call, PyRef::share(iterator), next, none});
  return checked(PyIter_Next(iterator));
}
void Recorder::dict_item(PyObject* dict, PyObject* key, PyObject* value, PyRef* number) {
  SourceId b = source_of(dict);
  bool by_key = !is_class_of_python(Py_TYPE(dict));  // else only attributes are written by key
  if (b == kNoSource || (by_key && is_written(dict, key)) || is_written(dict, nullptr)) return;
  if (value) note({Source::Kind::dict_item, b, PyRef::share(key)}, value, number);
  else add(Guard::Kind::absent, b, key, 1);
}
void Recorder::cell(PyObject* cell, PyRef* number) {
  SourceId b = source_of(cell);
  if (b == kNoSource || is_written(cell, nullptr)) return;
  if (PyObject* value = PyCell_GET(cell)) note({Source::Kind::cell, b}, value, number);
}
void Recorder::absent(PyObject* o, PyObject* name) {
  SourceId b = source_of(o);
  if (b != kNoSource && !is_written(o, name)) add(Guard::Kind::absent, b, name);
}

void Recorder::member(PyObject* o, PyObject* name, PyObject* value) {
  auto* type = PyType_Check(o) ? reinterpret_cast<PyTypeObject*>(o) : Py_TYPE(o);
  if (!is_class_of_python(type)) {  // builtin classes do not change
    if (value && !is_atom(value)) constant(value);
    return;
  }
  SourceId b = constant(reinterpret_cast<PyObject*>(type));
  auto [it, is_new] = members_.try_emplace(b, list.guards.size());
  if (is_new) {
    PyRef names = checked(PyDict_New());
    list.guards.push_back({Guard::Kind::members, b, names, 0, line});
  }
  checked(PyDict_SetItem(list.guards[it->second].expected.get(), name, value ? value : Py_Ellipsis));
  if (value && !is_atom(value)) constant(value);
}

void Recorder::no_hooks(PyObject* module) {
  SourceId b = source_of(module);
  if (b != kNoSource) add(Guard::Kind::no_hooks, b);
}
void Recorder::function(PyObject* f) {
  SourceId b = source_of(f);
  if (b != kNoSource) add(Guard::Kind::function, b, PyFunction_GET_CODE(f));
}
void Recorder::identity(PyObject* o) {
  SourceId b = source_of(o);
  if (b != kNoSource && list.sources[size_t(b)].kind != Source::Kind::constant) add(Guard::Kind::is, b, o);
}
void Recorder::distinct(PyObject* a, PyObject* b) {
  SourceId x = source_of(a), y = source_of(b);
  if (x != kNoSource && y != kNoSource && x != y) add(Guard::Kind::different, x, nullptr, y);
}

namespace {

constexpr Py_ssize_t kFewElements = 8;  // a pair takes a guard

// Atoms and tuples of such are compared by their values, which other guards fix.
bool is_by_identity(PyObject* o) { return !is_atom(o) && !PyTuple_Check(o); }

}  // namespace

void Recorder::tell_apart(PyObject* item, PyObject* keyed, bool adds) {
  if (!is_by_identity(item)) return;
  PyRef elements = checked(PySequence_Fast(keyed, "a set or dict"));
  Py_ssize_t n = PySequence_Fast_GET_SIZE(elements.get());
  bool is_small = n <= kFewElements && !is_outside(keyed) && !PyCFunction_Check(item);
  if (!is_small) identity(item);
  bool pins = n == kFewElements && adds;  // so all elements of a larger set are fixed
  for (Py_ssize_t k = 0; k < n && is_small; ++k) {
    PyObject* element = PySequence_Fast_GET_ITEM(elements.get(), k);
    if (is_by_identity(element)) distinct(element, item);
    if (pins && is_by_identity(element)) identity(element);
  }
  if (is_small && pins) identity(item);
}

void Recorder::tell_apart(PyObject* o) {
  if (is_atom(o) || PyIter_Check(o) || !Py_TYPE(o)->tp_iter) return;
  PyRef items = checked(PySequence_Fast(o, "a container"));
  Py_ssize_t n = PySequence_Fast_GET_SIZE(items.get());
  for (Py_ssize_t k = 0; k < n; ++k) {
    PyObject* item = PySequence_Fast_GET_ITEM(items.get(), k);
    if (!is_by_identity(item)) continue;
    if (n > kFewElements || PyCFunction_Check(item)) identity(item);
    for (Py_ssize_t j = 0; j < k && n <= kFewElements; ++j)
      if (is_by_identity(PySequence_Fast_GET_ITEM(items.get(), j)))
        distinct(PySequence_Fast_GET_ITEM(items.get(), j), item);
  }
}

void Recorder::tell_apart(std::span<PyObject* const> containers) {
  PyRef all = checked(PyList_New(0));
  for (auto* o : containers) {
    if (is_atom(o) || PyIter_Check(o) || !Py_TYPE(o)->tp_iter) continue;
    PyRef items = checked(PySequence_List(o));
    Py_ssize_t n = PyList_GET_SIZE(all.get());
    checked(PyList_SetSlice(all.get(), n, n, items.get()));
  }
  tell_apart(all.get());
}

void Recorder::contents(PyObject* o) {
  SourceId b = source_of(o);
  if (b == kNoSource || is_written(o, nullptr) || !full_.insert(o).second) return;
  if (PyTuple_Check(o) || PyList_Check(o)) {
    auto it = appended_.find(o);
    PyObject* of = it == appended_.end() ? o : it->second.get();
    add(Guard::Kind::length, b, nullptr, PySequence_Fast_GET_SIZE(of));
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(of); ++k)
      note({Source::Kind::item, b, {}, k}, PySequence_Fast_GET_ITEM(of, k));
  } else if (PyDict_Check(o)) {
    PyRef keys = checked(keys_of(o)), all = checked(PyList_AsTuple(keys.get()));
    bool by_key = false;  // a key that this segment has written
    for (auto& [object, key] : written_) by_key |= object == o && !is_class_of_python(Py_TYPE(o));
    if (!by_key) add(Guard::Kind::keys, b, all.get());
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(all.get()); ++k) {
      PyObject* key = PyTuple_GET_ITEM(all.get(), k);
      if (!is_atom(key)) constant(key);
      dict_item(o, key, PyDict_GetItemWithError(o, key));
    }
  } else if (PyAnySet_Check(o)) {
    PyRef all = checked(PyFrozenSet_New(o));
    add(Guard::Kind::elements, b, all.get());
    PyRef items = checked(PySequence_List(o));
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(items.get()); ++k)
      if (!is_atom(PyList_GET_ITEM(items.get(), k))) constant(PyList_GET_ITEM(items.get(), k));
  } else if (PySlice_Check(o)) {
    for (const char* part : {"start", "stop", "step"}) read_attribute(o, part);
  }
}

void Recorder::deep_contents(PyObject* o, int depth) {
  if (is_atom(o) || depth > 20) return;
  contents(o);
  if (PyTuple_Check(o) || PyList_Check(o)) {
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); ++k)
      deep_contents(PySequence_Fast_GET_ITEM(o, k), depth + 1);
  } else if (PyDict_Check(o)) {
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(o, &at, &key, &value)) deep_contents(value, depth + 1);
  }
}

void Recorder::gradient(PyObject* leaf, PyObject* value) {
  static PyObject* const name = PyUnicode_InternFromString("grad");
  SourceId b = source_of(leaf);
  if (b != kNoSource) note({Source::Kind::attribute, b, PyRef::share(name)}, value);
}

// The source of dict[key], or of item k of it, with guards of what is between.
SourceId Recorder::source_of_item(PyObject* dict, PyObject* key, Py_ssize_t k) {
  Source s{Source::Kind::dict_item, constant(dict), PyRef::share(key)};
  if (k >= 0) {
    PyObject* tuple = PyDict_GetItemWithError(dict, key);
    if (!is_outside(tuple)) note(std::move(s), tuple);
    add(Guard::Kind::length, source_of(tuple), nullptr, PyTuple_GET_SIZE(tuple));
    s = {Source::Kind::item, source_of(tuple), {}, k};
  }
  SourceId id = SourceId(list.sources.size());
  list.sources.push_back(std::move(s));
  add(Guard::Kind::load, id);
  return id;
}

bool Recorder::is_changing(PyObject* dict, PyObject* key, Py_ssize_t k) {
  if (!changing) return false;
  SourceId base = constant(dict);
  size_t sources = list.sources.size();  // the path alone is asked for, so that no guard is left
  list.sources.push_back({Source::Kind::dict_item, base, PyRef::share(key)});
  if (k >= 0) list.sources.push_back({Source::Kind::item, SourceId(list.sources.size()) - 1, {}, k});
  bool changes = changing->count(list.path(SourceId(list.sources.size()) - 1, root_names)) > 0;
  list.sources.resize(sources);
  return changes;
}

PyObject* Recorder::operand(PyObject* dict, PyObject* key, Py_ssize_t k, bool decides) {
  PyObject* value = PyDict_GetItemWithError(dict, key);
  if (value && k >= 0) value = PyTuple_GET_ITEM(value, k);
  Scalar number;
  runtime_check(value && to_operand(value, number), "compile") << "an operand is no number of Python";
  if (is_written(dict,
                 key)) {  // by this segment: the item itself still has its earlier value when a program runs
    if (is_free(value)) return Py_NewRef(operand_of(value));
    SourceId id = SourceId(list.sources.size());
    list.sources.push_back({Source::Kind::constant, kNoSource, PyRef::share(value)});
    add(Guard::Kind::load, id);
    return checked(wrap(run::OpenTrace::current()->number(number, run::SourceId(id)))).detach();
  }
  SourceId id = source_of_item(dict, key, k);
  auto& s = list.sources[size_t(id)];
  for (auto& [of, handle] : operands_) {
    auto& other = list.sources[size_t(of)];
    if (other.kind == s.kind && other.base == s.base && other.key.get() == s.key.get() &&
        other.index == s.index)
      return Py_NewRef(handle.get());
  }
  add(Guard::Kind::type, id, reinterpret_cast<PyObject*>(Py_TYPE(value)));
  if (decides) {
    PyRef zero = checked(PyLong_FromLong(0)), used = checked(PyObject_RichCompare(value, zero.get(), Py_NE));
    Source differs{Source::Kind::computed, id, {}, kComparison + Py_NE};
    differs.other = source_of_number(zero.get());
    follow(std::move(differs), std::move(used));
  }
  PyRef handle = checked(wrap(run::OpenTrace::current()->number(number, run::SourceId(id))));
  operands_[id] = handle;
  return handle.detach();
}

// ---- what functions of this package have read

PyObject* Recorder::observer() {
  if (!observer_) {
    PyRef module = checked(PyImport_ImportModule("facula._dynamo.observer"));
    observer_ = checked(PyObject_CallMethod(module.get(), "Observer", nullptr));
  }
  return observer_.get();
}

void Recorder::fixed_items(PyObject* o) {
  SourceId b = constant(o);
  PyRef all;
  if (PyDict_Check(o)) {
    all = checked(PyTuple_New(2 * PyDict_GET_SIZE(o)));
    PyObject *key, *value;
    Py_ssize_t at = 0, k = 0;
    while (PyDict_Next(o, &at, &key, &value)) {
      PyTuple_SET_ITEM(all.get(), k++, Py_NewRef(key));
      PyTuple_SET_ITEM(all.get(), k++, Py_NewRef(value));
    }
  } else {
    all = checked(PySequence_Tuple(o));
  }
  // A list that is read again is the same list, unless the segment has written it.
  if (is_written(o, nullptr) || !fixed_.insert(o).second) return;
  add(Guard::Kind::items, b, all.get());
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(all.get()); ++k)
    if (PyObject* item = PyTuple_GET_ITEM(all.get(), k); !is_atom(item)) {
      bool was_outside = is_outside(item);
      SourceId id = constant(item);
      if (was_outside) identity(item);
      else if (is_tensor(item)) first_guard(id, item);
    }
}

void Recorder::item_of(PyObject* o, PyObject* key) {
  PyRef value;
  if (PyDict_Check(o)) {
    value = PyRef::share(PyDict_GetItemWithError(o, key));
    SourceId b = constant(o);
    if (!value) add(Guard::Kind::absent, b, key, 1);
    else if (!is_written(o, key)) note({Source::Kind::dict_item, b, PyRef::share(key)}, value.get());
  } else {
    Py_ssize_t k = PyLong_AsSsize_t(key);
    value = checked(PySequence_GetItem(o, k));
    constant(o);
    item(o, k, value.get());
  }
  if (!value || is_atom(value.get())) return;
  bool has_atoms = PyTuple_CheckExact(value.get());  // as the pair of Adam's betas, which schedules make anew
  for (Py_ssize_t k = 0; has_atoms && k < PyTuple_GET_SIZE(value.get()); ++k)
    has_atoms = is_atom(PyTuple_GET_ITEM(value.get(), k));
  if (has_atoms) deep_contents(value.get());
  else identity(value.get());
}

void Recorder::take_observations() {
  PyRef seen = checked(PyObject_CallMethod(observer(), "take", nullptr));
  for (Py_ssize_t k = 0; k < PyList_GET_SIZE(seen.get()); ++k) {
    PyObject *of, *key;
    if (!PyArg_ParseTuple(PyList_GET_ITEM(seen.get(), k), "OO", &of, &key)) throw PythonError();
    if (key == Py_None) fixed_items(of);
    else item_of(of, key);
  }
}

bool Recorder::is_written(PyObject* o, PyObject* key) const {
  return !written_.empty() && (written_.count({o, key}) || written_.count({o, nullptr}));
}

void Recorder::write(Write::Kind kind, PyObject* target, PyObject* key, PyObject* value, bool by_key) {
  writes.push_back({kind, PyRef::share(target), PyRef::share(key), PyRef::share(value)});
  for (PyObject* o : {target, key, value})
    if (o) alive_.push_back(PyRef::share(o));
  written_.insert({target, by_key ? key : nullptr});
}

namespace {

PyObject* copy_of(PyObject* container) {
  if (PyList_Check(container)) return PyList_GetSlice(container, 0, PyList_GET_SIZE(container));
  if (PyDict_Check(container)) return PyDict_Copy(container);
  if (Py_TYPE(container) == &PyTupleIter_Type) return PyLong_FromSsize_t(position_of(container));
  return PySet_New(container);
}

void set_contents(PyObject* container, PyObject* copy) {
  if (Py_TYPE(container) == &PyTupleIter_Type) {
    checked(PyObject_CallMethod(container, "__setstate__", "O", copy));
    return;
  }
  if (PyList_Check(container)) {
    checked(PyList_SetSlice(container, 0, PyList_GET_SIZE(container), copy));
    return;
  }
  checked(PyObject_CallMethod(container, "clear", nullptr));
  checked(PyObject_CallMethod(container, "update", "(O)", copy));
}

}  // namespace

void Recorder::remember(PyObject* target, PyObject* key) {
  if (!regions_ || !is_outside(target)) return;
  PyRef value;
  if (PyCell_Check(target)) {
    value = PyRef::share(PyCell_GET(target));
  } else if (key && PyDict_Check(target)) {
    value = PyRef::share(PyDict_GetItemWithError(target, key));
  } else if (key) {
    PyObject** dict = _PyObject_GetDictPtr(target);
    bool own = dict && *dict && !PyType_Check(target);
    value = own ? PyRef::share(PyDict_GetItemWithError(*dict, key)) : PyRef(PyObject_GetAttr(target, key));
    PyErr_Clear();
  } else {
    value = checked(copy_of(target));
  }
  past_.push_back({PyRef::share(target), PyRef::share(key), std::move(value)});
}

void Recorder::Region::undo() {
  auto& past = recorder_.past_;
  for (; past.size() > past_; past.pop_back()) {
    auto& [target, key, value] = past.back();
    PyObject* o = target.get();
    if (PyCell_Check(o)) checked(PyCell_Set(o, value.get()));
    else if (!key) set_contents(o, value.get());
    else if (PyDict_Check(o) && value) checked(PyDict_SetItem(o, key.get(), value.get()));
    else if (PyDict_Check(o)) checked(PyDict_DelItem(o, key.get()));
    else if (PyType_Check(o)) checked(PyObject_SetAttr(o, key.get(), value.get()));
    else checked(PyObject_GenericSetAttr(o, key.get(), value.get()));
  }
  recorder_.writes.resize(std::min(recorder_.writes.size(), writes_));
}

Recorder::Region::~Region() {
  if (!--recorder_.regions_) recorder_.past_.clear();
}

void Recorder::distinguish_written() {
  for (auto& w : writes) {
    SourceId s = source_of(w.target.get());
    if (s == kNoSource) continue;
    for (auto& [o, id] : outside_)
      if (id != s && Py_TYPE(o) == Py_TYPE(w.target.get())) {
        bool fixed = list.sources[size_t(id)].kind == Source::Kind::constant &&
                     list.sources[size_t(s)].kind == Source::Kind::constant;
        if (!fixed) add(Guard::Kind::different, s, nullptr, id);
      }
  }
}

bool Recorder::shares_memory(const Tensor& t) const {
  auto shares = [&](const Tensor& other) {
    return other.impl()->storage && other.impl()->storage == t.impl()->storage;
  };
  for (auto& [o, id] : outside_)
    if (is_tensor(o) && !impl_of(o)->traced && shares(tensor_of(o))) return true;
  return std::any_of(replaced.begin(), replaced.end(), [&](auto& r) { return shares(Tensor(r.second)); });
}

void Recorder::result(PyObject* o) {
  if (is_tensor(o)) {
    if (impl_of(o)->traced) handles.push_back(PyRef::share(o));
  } else if (PyTuple_Check(o) || PyList_Check(o)) {
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); ++k) result(PySequence_Fast_GET_ITEM(o, k));
  }
}

}  // namespace facula::bind::capture
