#include "stamps.h"

#include <algorithm>

namespace facula::bind::capture {

namespace {

uint64_t version_of(PyObject* dict) { return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag; }

// Whether all writes give a dict another version. Since 3.13 a write to an attribute does not, where the dict shares the memory
// of the instance's values (`embedded` of CPython's struct _dictvalues in pycore_dict.h).
bool has_version([[maybe_unused]] PyObject* dict) {
#if PY_VERSION_HEX >= 0x030D0000
  constexpr int kEmbedded = 2;
  auto* values = reinterpret_cast<const uint8_t*>(reinterpret_cast<PyDictObject*>(dict)->ma_values);
  return !values || !values[kEmbedded];
#else
  return true;
#endif
}

// Classes whose instances have the class for all of their life.
bool keeps_class(PyTypeObject* t) { return !is_class_of_python(t); }

// Whether a dict has the variables of a module of Python. A program at its top level changes some of them all the time.
bool is_namespace(PyObject* dict) {
  PyObject* name = PyDict_GetItemString(dict, "__name__");
  return name && PyUnicode_CheckExact(name);
}

PyObject* own_item(PyObject* dict, PyObject* key) {
  PyObject* value = dict && PyDict_Check(dict) ? PyDict_GetItemWithError(dict, key) : nullptr;
  if (!value) PyErr_Clear();
  return value;
}

}  // namespace

// A dict whose place in the object is not fixed has no address to compare.
PyObject** instance_dict_of(PyObject* o) {
  PyTypeObject* t = Py_TYPE(o);
  if (PyType_HasFeature(t, Py_TPFLAGS_MANAGED_DICT) || t->tp_dictoffset <= 0) return nullptr;
  return reinterpret_cast<PyObject**>(reinterpret_cast<char*>(o) + t->tp_dictoffset);
}

bool Stamps::stamp_dict(PyObject* dict) {
  if (!has_version(dict)) return false;
  if (std::find(stamped_.begin(), stamped_.end(), dict) != stamped_.end()) return true;
  stamped_.push_back(dict);
  steps_.push_back({Step::Kind::dict, dict, 0, nullptr, dict, version_of(dict)});
  return true;
}

void Stamps::stamp_dict_of(PyObject* o) {
  if (std::find(stamped_.begin(), stamped_.end(), o) != stamped_.end()) return;
  stamped_.push_back(o);
  PyObject** slot = instance_dict_of(o);
  steps_.push_back({Step::Kind::dict_of, o, 0, nullptr, *slot, version_of(*slot), nullptr, slot});
}

void Stamps::stamp_type(PyObject* o) {
  if (!keeps_class(Py_TYPE(o))) steps_.push_back({Step::Kind::type, o, 0, Py_TYPE(o)});
}

// The attribute is an item of the instance's dict, or a member of a module.
bool Stamps::anchor_attribute(PyObject* base, PyObject* key, PyObject* value) {
  PyObject** at = instance_dict_of(base);
  if (!at || !*at || !PyDict_CheckExact(*at)) return false;
  PyObject* own = own_item(*at, key);
  if (own) {
    if (own != value) return false;
    stamp_dict_of(base);
    return true;
  }
  if (!is_module(base)) return false;
  bool is_member = false;
  for (PyObject* group : {names::_parameters, names::_modules, names::_buffers}) {
    PyObject* members = own_item(*at, group);
    if (!members || !PyDict_Check(members)) return false;
    is_member |= own_item(members, key) == value;
  }
  if (!is_member) return false;
  stamp_dict_of(base);
  for (PyObject* group : {names::_parameters, names::_modules, names::_buffers})
    if (!stamp_dict(own_item(*at, group))) return false;
  return true;
}

// A place without a version, whose value is compared. A new object at the same address has another dict; an object that a
// guard keeps alive has its address for itself.
bool Stamps::anchor_place(Step place, PyObject* value) {
  PyObject** at = instance_dict_of(value);
  bool has_dict = at && *at && PyDict_CheckExact(*at);
  if (!has_dict && !std::binary_search(held_.begin(), held_.end(), value)) return false;
  steps_.push_back(place);
  stamp_type(value);
  if (has_dict) stamp_dict_of(value);
  return true;
}

bool Stamps::anchor(size_t k) {
  auto& s = list_->sources[k];
  PyObject* value = last_[k];
  if (!value) return false;
  switch (s.kind) {
    case Source::Kind::constant: return true;
    case Source::Kind::root: return anchor_place({Step::Kind::root, value, size_t(s.index)}, value);
    case Source::Kind::closure: return is_anchored(s.base);  // a function has its cells for all of its life
    case Source::Kind::cell:
      return is_anchored(s.base) &&
             anchor_place({Step::Kind::cell, value, 0, nullptr, last_[size_t(s.base)]}, value);
    case Source::Kind::attribute:
      if (!is_anchored(s.base) || !anchor_attribute(last_[size_t(s.base)], s.key.get(), value)) return false;
      break;
    case Source::Kind::dict_item:
      if (!is_anchored(s.base) || !PyDict_Check(last_[size_t(s.base)])) return false;
      if (is_namespace(last_[size_t(s.base)]))
        return anchor_place({Step::Kind::global, value, 0, nullptr, last_[size_t(s.base)], 0, s.key.get()},
                            value);
      if (!stamp_dict(last_[size_t(s.base)])) return false;
      break;
    case Source::Kind::item:
      if (!is_anchored(s.base) || !PyTuple_CheckExact(last_[size_t(s.base)])) return false;
      break;
    default: return false;
  }
  stamp_type(value);
  return true;
}

bool Stamps::cover_hooks(PyObject* module) {
  PyObject** at = instance_dict_of(module);
  if (!at || !*at || !PyDict_CheckExact(*at)) return false;
  stamp_dict_of(module);
  for (PyObject* name :
       {names::_forward_hooks, names::_forward_pre_hooks, names::_backward_hooks, names::_backward_pre_hooks})
    if (PyObject* hooks = own_item(*at, name)) {
      if (!PyDict_Check(hooks) || !stamp_dict(hooks)) return false;
    }
  return true;
}

bool Stamps::cover_class(Guard& g, PyObject* o) {
  auto* type = PyType_Check(o) ? reinterpret_cast<PyTypeObject*>(o) : Py_TYPE(o);
  if (!g.version || !PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG) ||
      type->tp_version_tag != g.version)
    return false;
  auto same = [&](const Class& c) { return c.type == type; };
  if (std::none_of(classes_.begin(), classes_.end(), same)) classes_.push_back({type, g.version});
  return true;
}

bool Stamps::cover(Guard& g) {
  if (!is_anchored(g.source)) return false;
  PyObject* o = last_[size_t(g.source)];
  switch (g.kind) {
    case Guard::Kind::load:
    case Guard::Kind::is:
    case Guard::Kind::type:  // there is a step for classes that may change
    case Guard::Kind::equal: return true;
    case Guard::Kind::same:
    case Guard::Kind::different: return is_anchored(SourceId(g.number));
    case Guard::Kind::members: return cover_class(g, o);
    case Guard::Kind::tensor:
      facts_.push_back(
          {o, reinterpret_cast<PyTypeObject*>(g.expected.get()), &list_->tensors[size_t(g.number)]});
      return true;
    case Guard::Kind::keys: return PyDict_Check(o) && stamp_dict(o);
    case Guard::Kind::absent: {
      if (is_of_items(g, o)) return !is_namespace(o) && stamp_dict(o);
      PyObject** at = instance_dict_of(o);
      if (!at || !*at || !PyDict_CheckExact(*at)) return false;
      stamp_dict_of(o);
      for (PyObject* group : {names::_parameters, names::_modules, names::_buffers})
        if (PyObject* members = is_module(o) ? own_item(*at, group) : nullptr;
            members && !stamp_dict(members))
          return false;
      return true;
    }
    case Guard::Kind::no_hooks: {
      bool is_first = true;  // one is evaluated, for the hooks of all modules
      for (size_t k : rest_) is_first &= list_->guards[k].kind != Guard::Kind::no_hooks;
      return cover_hooks(o) && !is_first;
    }
    default: return false;
  }
}

Stamps::Stamps(GuardList& list, const std::vector<PyRef>& values, std::span<const SourceId> used)
    : list_(&list), anchored_(list.sources.size()) {
  for (auto& g : list.guards)
    if (g.kind == Guard::Kind::is || g.kind == Guard::Kind::equal) held_.push_back(g.expected.get());
  std::sort(held_.begin(), held_.end());
  for (auto& v : values) last_.push_back(v.get());
  last_.resize(list.sources.size());
  for (size_t k = 0; k < list.sources.size(); ++k) anchored_[k] = anchor(k);
  for (size_t k = 0; k < list.guards.size(); ++k) {
    if (cover(list.guards[k])) ++covered_;
    else rest_.push_back(k);
  }
  std::vector<bool> asked(list.sources.size());
  auto ask = [&](SourceId s) {
    if (s >= 0) asked[size_t(s)] = true;
  };
  for (SourceId s : used) ask(s);
  for (auto& [s, d] : list.symbols) ask(s);
  for (size_t k : rest_) {
    auto& g = list.guards[k];
    ask(g.source);
    ask(list.sources[size_t(g.source)].base);
    ask(list.sources[size_t(g.source)].other);
    if (g.kind == Guard::Kind::same || g.kind == Guard::Kind::different) ask(SourceId(g.number));
  }
  for (size_t k = 0; k < asked.size(); ++k) {
    if (!asked[k]) continue;
    set_.push_back(SourceId(k));
    if (anchored_[k]) needed_.push_back(SourceId(k));
  }
  stamped_ = held_ = {};
}

bool Stamps::hold(std::span<PyObject* const> roots, std::vector<PyRef>& values) const {
  for (auto& s : steps_) {
    switch (s.kind) {
      case Step::Kind::root:
        if (s.index >= roots.size() || roots[s.index] != s.object) return false;
        break;
      case Step::Kind::cell:
        if (PyCell_GET(s.dict) != s.object) return false;
        break;
      case Step::Kind::global:
        if (PyDict_GetItemWithError(s.dict, s.key) != s.object) return false;
        break;
      case Step::Kind::type:
        if (Py_TYPE(s.object) != s.type) return false;
        break;
      case Step::Kind::dict_of:
        if (*s.slot != s.dict) return false;
        [[fallthrough]];
      case Step::Kind::dict:
        if (version_of(s.dict) != s.version) return false;
    }
  }
  for (auto& c : classes_)
    if (c.type->tp_version_tag != c.version || !PyType_HasFeature(c.type, Py_TPFLAGS_VALID_VERSION_TAG))
      return false;
  for (auto& f : facts_)
    if (Py_TYPE(f.tensor) != f.type || !f.facts->match(*impl_of(f.tensor))) return false;
  for (SourceId s : needed_) values[size_t(s)] = PyRef::share(last_[size_t(s)]);
  return true;
}

void Stamps::clear(std::vector<PyRef>& values) const {
  for (SourceId s : set_) values[size_t(s)] = {};
}

}  // namespace facula::bind::capture
