// How calls of C functions and functions of this package are treated: rules of python/facula/_dynamo/policy.py.
#include <cstring>
#include <string>
#include <unordered_map>

#include "../types.h"
#include "interpreter.h"

namespace facula::bind::capture {

namespace {

struct OwnedRule {
  PyRef callable, detail;
  Policy policy;
};
std::unordered_map<PyObject*, OwnedRule>& rules() {
  static auto* all = new std::unordered_map<PyObject*, OwnedRule>;
  return *all;
}
std::unordered_map<PyObject*, Rule>& user_rules() {  // the objects live in rules()
  static auto* all = new std::unordered_map<PyObject*, Rule>;
  return *all;
}
PyObject* classify = nullptr;

struct Effects {
  PyTypeObject* type;
  const char *reads, *writes;  // names between spaces
};
const Effects kEffects[] = {
    {&PyList_Type, " index count copy __len__ __getitem__ __contains__ ",
     " append extend insert pop remove clear reverse sort "},
    {&PyDict_Type, " get keys values items copy __len__ __getitem__ __contains__ ",
     " pop popitem setdefault update clear "},
    {&PyODict_Type, " get keys values items copy __len__ __getitem__ __contains__ ",
     " pop popitem setdefault update clear move_to_end "},
    {&PyTuple_Type, " index count ", " "},
    {&PySet_Type, " union intersection difference symmetric_difference issubset issuperset isdisjoint copy ",
     " add discard remove pop clear update "},
    {&PyFrozenSet_Type,
     " union intersection difference symmetric_difference issubset issuperset isdisjoint copy ", " "},
};

}  // namespace

Rule rule_of(PyObject* callable) {
  auto it = rules().find(callable);
  if (it == rules().end()) {
    if (!classify) {
      PyRef module = checked(PyImport_ImportModule("facula._dynamo.policy"));
      classify = checked(PyObject_GetAttrString(module.get(), "classify")).detach();
    }
    PyRef answer = checked(PyObject_CallOneArg(classify, callable));
    int policy;
    PyObject* detail;
    if (!PyArg_ParseTuple(answer.get(), "iO", &policy, &detail)) throw PythonError();
    OwnedRule rule{PyRef::share(callable), PyRef::share(detail), Policy(policy)};
    it = rules().emplace(callable, std::move(rule)).first;
  }
  return {it->second.policy, it->second.detail.get()};
}

const Rule* user_rule(PyObject* callable) {
  if (user_rules().empty()) return nullptr;
  auto it = user_rules().find(callable);
  return it == user_rules().end() ? nullptr : &it->second;
}
void set_rule(PyObject* callable, Policy policy, PyObject* detail) {
  user_rules()[callable] = {policy, detail};
  rules()[callable] = {PyRef::share(callable), PyRef::share(detail), policy};
}

PyObject* polyfill(const char* name) {
  static auto* functions = new std::unordered_map<std::string, PyObject*>;
  auto& function = (*functions)[name];
  if (!function) {
    PyRef module = checked(PyImport_ImportModule("facula._dynamo.polyfills"));
    function = checked(PyObject_GetAttrString(module.get(), name)).detach();
  }
  return function;
}

bool is_python_instance(PyObject* o) {
  return is_class_of_python(Py_TYPE(o)) && !is_tensor(o) && !PyType_Check(o);
}
PyObject* python_method(PyObject* o, const char* name) {
  if (!is_python_instance(o)) return nullptr;
  PyRef key = checked(PyUnicode_InternFromString(name));
  PyObject* f = _PyType_Lookup(Py_TYPE(o), key.get());
  return f && PyFunction_Check(f) ? f : nullptr;
}

int effect_of_method(PyTypeObject* type, const char* name) {
  std::string word = " " + std::string(name) + " ";
  if (!std::strcmp(type->tp_name, "collections.defaultdict")) type = &PyDict_Type;
  for (auto& e : kEffects) {
    if (e.type != type) continue;
    if (std::strstr(e.reads, word.c_str())) return 1;
    return std::strstr(e.writes, word.c_str()) ? 2 : 0;
  }
  if (!std::strcmp(type->tp_name, "collections.deque")) {
    if (std::strstr(" index count copy __len__ __getitem__ ", word.c_str())) return 1;
    const char* writes =
        " append appendleft pop popleft extend extendleft insert remove clear reverse rotate ";
    return std::strstr(writes, word.c_str()) ? 2 : 0;
  }
  bool immutable = type == &PyUnicode_Type || type == &PyLong_Type || type == &PyFloat_Type ||
                   type == &PyBytes_Type || type == &PyBool_Type || type == &PyRange_Type ||
                   type == &PySlice_Type || type == SizeType || type == &PyComplex_Type;
  return immutable ? 1 : 0;
}

bool is_container(PyObject* o) {
  return PyList_CheckExact(o) || PyTuple_CheckExact(o) || is_dict(o) || PyAnySet_CheckExact(o);
}

bool is_default_dict(PyObject* o) { return !std::strcmp(Py_TYPE(o)->tp_name, "collections.defaultdict"); }
bool is_dict(PyObject* o) { return PyDict_CheckExact(o) || PyODict_CheckExact(o) || is_default_dict(o); }

bool takes_method_of_dict(Recorder* r, PyObject* o, const char* name) {
  if (!PyDict_Check(o) || !is_python_instance(o)) return false;
  PyRef key = checked(PyUnicode_InternFromString(name));
  PyObject* method = _PyType_Lookup(Py_TYPE(o), key.get());
  bool is_descriptor =
      method && (Py_TYPE(method) == &PyMethodDescr_Type || Py_TYPE(method) == &PyWrapperDescr_Type);
  PyTypeObject* of = is_descriptor ? reinterpret_cast<PyDescrObject*>(method)->d_type : nullptr;
  if (of != &PyDict_Type && of != &PyODict_Type) return false;
  if (r) r->member(o, key.get(), method);
  return true;
}
bool is_read_as_dict(Recorder* r, PyObject* o) {
  for (const char* name : {"__iter__", "keys", "__getitem__"})
    if (!takes_method_of_dict(r, o, name)) return false;
  return true;
}
bool is_deque(PyObject* o) { return !std::strcmp(Py_TYPE(o)->tp_name, "collections.deque"); }
bool is_dict_view(PyObject* o) { return PyDictViewSet_Check(o) || PyObject_TypeCheck(o, &PyDictValues_Type); }

bool is_data(PyObject* o, bool tensors, int depth) {
  if (is_atom(o)) return true;
  if (is_plain(Py_TYPE(o))) return tensors;
  if (depth > 20) return false;
  if (PySlice_Check(o)) {
    auto* s = reinterpret_cast<PySliceObject*>(o);
    return is_data(s->start, tensors, depth + 1) && is_data(s->stop, tensors, depth + 1) &&
           is_data(s->step, tensors, depth + 1);
  }
  if (PyTuple_Check(o) || PyList_CheckExact(o)) {
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); ++k)
      if (!is_data(PySequence_Fast_GET_ITEM(o, k), tensors, depth + 1)) return false;
    return true;
  }
  if (PyAnySet_CheckExact(o)) {
    PyRef items = checked(PySequence_List(o));
    return is_data(items.get(), false, depth + 1);
  }
  if (!is_dict(o)) return false;
  PyObject *key, *value;
  Py_ssize_t at = 0;
  while (PyDict_Next(o, &at, &key, &value))
    if (!is_atom(key) || !is_data(value, tensors, depth + 1)) return false;
  return true;
}

bool is_plain_key(PyObject* o) {
  if (is_atom(o)) return true;
  PyTypeObject* t = Py_TYPE(o);
  if (is_tensor(o)) return is_plain(t);
  bool by_identity =
      t->tp_hash == PyBaseObject_Type.tp_hash && t->tp_richcompare == PyBaseObject_Type.tp_richcompare;
  return by_identity || PyType_Check(o) || PyFunction_Check(o) || PyModule_Check(o) || PyCFunction_Check(o);
}

}  // namespace facula::bind::capture
