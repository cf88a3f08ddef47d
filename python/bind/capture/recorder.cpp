#include "recorder.h"

namespace facula::bind::capture {

SourceId Recorder::source_of(PyObject* o) const {
  auto it = outside_.find(o);
  return it == outside_.end() ? kNoSource : it->second;
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

SourceId Recorder::note(Source s, PyObject* o) {
  // Keys that are equal strings are one object: names are interned. Others make a guard more.
  if (!read_.insert({int(s.kind), s.base, s.key.get(), s.index}).second) return kNoSource;
  if (s.key) alive_.push_back(s.key);
  SourceId id = SourceId(list.sources.size());
  list.sources.push_back(std::move(s));
  add(Guard::Kind::load, id);
  if (is_atom(o)) {
    add(Guard::Kind::equal, id, o);
    return id;
  }
  SourceId known = source_of(o);
  if (known != kNoSource) {
    if (list.sources[size_t(known)].kind == Source::Kind::constant)
      add(Guard::Kind::is, id, list.sources[size_t(known)].key.get());
    else add(Guard::Kind::same, id, nullptr, known);
    return id;
  }
  outside_[o] = id;
  alive_.push_back(PyRef::share(o));
  first_guard(id, o);
  return id;
}

void Recorder::first_guard(SourceId id, PyObject* o) {
  bool is_fixed = PyType_Check(o) || PyModule_Check(o) || PyCFunction_Check(o) || PyCode_Check(o);
  if (is_tensor(o)) {
    list.tensors.emplace_back(*impl_of(o));
    add(Guard::Kind::tensor, id, reinterpret_cast<PyObject*>(Py_TYPE(o)), int64_t(list.tensors.size()) - 1);
  } else if (is_fixed) {
    add(Guard::Kind::is, id, o);
  } else {
    add(Guard::Kind::type, id, reinterpret_cast<PyObject*>(Py_TYPE(o)));
  }
}

SourceId Recorder::root(Py_ssize_t slot, PyObject* o) {
  return note({Source::Kind::root, kNoSource, {}, slot}, o);
}
void Recorder::null_root(Py_ssize_t slot) {
  SourceId id = SourceId(list.sources.size());
  list.sources.push_back({Source::Kind::root, kNoSource, {}, slot});
  add(Guard::Kind::null, id);
}

void Recorder::attribute(PyObject* base, PyObject* name, PyObject* value) {
  SourceId b = source_of(base);
  if (b != kNoSource && !is_written(base, name)) note({Source::Kind::attribute, b, PyRef::share(name)}, value);
}
void Recorder::item(PyObject* sequence, Py_ssize_t k, PyObject* value) {
  SourceId b = source_of(sequence);
  if (b != kNoSource && !is_written(sequence, nullptr)) note({Source::Kind::item, b, {}, k}, value);
}
void Recorder::dict_item(PyObject* dict, PyObject* key, PyObject* value) {
  SourceId b = source_of(dict);
  if (b == kNoSource || is_written(dict, key) || is_written(dict, nullptr)) return;
  if (value) note({Source::Kind::dict_item, b, PyRef::share(key)}, value);
  else add(Guard::Kind::absent, b, key);
}
void Recorder::cell(PyObject* cell) {
  SourceId b = source_of(cell);
  if (b == kNoSource || is_written(cell, nullptr)) return;
  if (PyObject* value = PyCell_GET(cell)) note({Source::Kind::cell, b}, value);
}
void Recorder::absent(PyObject* o, PyObject* name) {
  SourceId b = source_of(o);
  if (b != kNoSource && !is_written(o, name)) add(Guard::Kind::absent, b, name);
}

void Recorder::member(PyObject* o, PyObject* name, PyObject* value) {
  auto* type = PyType_Check(o) ? reinterpret_cast<PyTypeObject*>(o) : Py_TYPE(o);
  if (!PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE)) {  // builtin classes do not change
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

void Recorder::contents(PyObject* o) {
  SourceId b = source_of(o);
  if (b == kNoSource || is_written(o, nullptr) || !full_.insert(o).second) return;
  if (PyTuple_Check(o) || PyList_Check(o)) {
    add(Guard::Kind::length, b, nullptr, PySequence_Fast_GET_SIZE(o));
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); ++k) item(o, k, PySequence_Fast_GET_ITEM(o, k));
  } else if (PyDict_Check(o)) {
    PyRef keys = checked(PyDict_Keys(o)), all = checked(PyList_AsTuple(keys.get()));
    bool by_key = false;  // a key that this segment has written
    for (auto& [object, key] : written_) by_key |= object == o;
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

bool Recorder::is_written(PyObject* o, PyObject* key) const {
  return !written_.empty() && (written_.count({o, key}) || written_.count({o, nullptr}));
}

void Recorder::write(Write::Kind kind, PyObject* target, PyObject* key, PyObject* value, bool by_key) {
  writes.push_back({kind, PyRef::share(target), PyRef::share(key), PyRef::share(value)});
  for (PyObject* o : {target, key, value})
    if (o) alive_.push_back(PyRef::share(o));
  written_.insert({target, by_key ? key : nullptr});
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

void Recorder::result(PyObject* o) {
  if (is_tensor(o)) {
    if (impl_of(o)->traced) handles.push_back(PyRef::share(o));
  } else if (PyTuple_Check(o) || PyList_Check(o)) {
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); ++k) result(PySequence_Fast_GET_ITEM(o, k));
  }
}

}  // namespace facula::bind::capture
