// Containers: building, indexing, unpacking, iterating.
#include <array>
#include <cstring>

#include "../types.h"
#include "facula/autograd/calls.h"
#include "interpreter.h"

namespace facula::bind::capture {

namespace {

PyRef taken(Frame& f, size_t n, PyObject* (*make)(Py_ssize_t)) {
  PyRef all = checked(make(Py_ssize_t(n)));
  for (size_t k = 0; k < n; ++k) {
    PyObject* item = f.stack[f.stack.size() - n + k].detach();
    if (PyTuple_Check(all.get())) PyTuple_SET_ITEM(all.get(), Py_ssize_t(k), item);
    else PyList_SET_ITEM(all.get(), Py_ssize_t(k), item);
  }
  f.drop(n);
  return all;
}

bool is_sequence(PyObject* o) { return PyList_CheckExact(o) || PyTuple_Check(o); }

// Iterators of C code that only walk over a container of the capture.
bool is_plain_iterator(PyObject* o) {
  static const char* const names[] = {"list_iterator",
                                      "tuple_iterator",
                                      "range_iterator",
                                      "str_ascii_iterator",
                                      "str_iterator",
                                      "dict_keyiterator",
                                      "dict_valueiterator",
                                      "dict_itemiterator",
                                      "set_iterator",
                                      "enumerate",
                                      "zip",
                                      "reversed",
                                      "list_reverseiterator",
                                      "bytes_iterator",
                                      "longrange_iterator",
                                      "_collections._deque_iterator",
                                      "odict_iterator"};
  if (is_class_of_python(Py_TYPE(o))) return false;
  for (const char* n : names)
    if (!std::strcmp(Py_TYPE(o)->tp_name, n)) return true;
  return false;
}

// Keys that C code hashes and compares without effects.
bool is_key(PyObject* o) { return is_atom(o) || is_plain_key(o) || (PyTuple_Check(o) && is_data(o, false)); }
bool are_keys(PyObject* sequence) {
  for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(sequence); ++k)
    if (!is_key(PySequence_Fast_GET_ITEM(sequence, k))) return false;
  return true;
}
void note_key(Recorder& r, PyObject* o) {
  if (!is_atom(o)) r.identity(o);
  r.deep_contents(o);
}

const char* kindname(PyObject* o) { return Py_TYPE(o)->tp_name; }

// An index of a tensor: numbers, slices, None, tensors, and lists or tuples of such.
bool is_tensor_index(PyObject* o, int depth = 0) {
  if (is_atom(o) || is_plain(Py_TYPE(o))) return true;
  if (PySlice_Check(o)) {
    auto* s = reinterpret_cast<PySliceObject*>(o);
    return is_atom(s->start) && is_atom(s->stop) && is_atom(s->step);
  }
  if (depth > 3 || !is_sequence(o)) return false;
  for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); ++k)
    if (!is_tensor_index(PySequence_Fast_GET_ITEM(o, k), depth + 1)) return false;
  return true;
}

// Whether an index is, or contains, an integer tensor with one element from outside, which eager mode reads as a number.
bool is_element(PyObject* o) {
  if (!is_plain(Py_TYPE(o))) return false;
  auto& t = *impl_of(o);
  return t.sizes.empty() && is_integral(t.dtype) && t.dtype != DType::Bool && t.dtype != DType::UInt8;
}
bool has_elements(PyObject* index) {
  if (!is_sequence(index)) return is_element(index);
  for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(index); ++k)
    if (is_element(PySequence_Fast_GET_ITEM(index, k))) return true;
  return false;
}
// The index with values of the trace in place of such tensors: elements that are read when the program runs.
PyRef with_traced_elements(const PyRef& index) {
  PyObject* o = index.get();
  if (is_element(o) && !impl_of(o)->traced)
    return checked(wrap(autograd::invoke("view", {tensor_of(o), SymSpan()})));
  if (!is_sequence(o) || !has_elements(o)) return index;
  PyRef all = checked(PyList_New(0));
  for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); ++k)
    checked(
        PyList_Append(all.get(), with_traced_elements(PyRef::share(PySequence_Fast_GET_ITEM(o, k))).get()));
  return PyTuple_Check(o) ? checked(PyList_AsTuple(all.get())) : all;
}

// Replaces an iterable that runs code of Python, on top of the stack, by a tuple of its items, and repeats the instruction.
bool is_iterated_by_python(Interpreter& in, PyObject* o) {
  if (is_generator(o)) return !in.recorder->is_outside(o);
  PyRef key = checked(PyUnicode_InternFromString("__iter__"));
  PyObject* f = is_class_of_python(Py_TYPE(o)) ? _PyType_Lookup(Py_TYPE(o), key.get()) : nullptr;
  return f && PyFunction_Check(f);
}
Outcome expand(Interpreter& in, Frame& f) {
  Rule rule = rule_of(reinterpret_cast<PyObject*>(&PyTuple_Type));
  in.recorder->constant(rule.detail);
  PyRef o = f.top();
  Outcome result = call(in, f, {rule.detail, {o.get()}, 1, nullptr, 1});
  if (result == Outcome::next) f.jump(f.last);
  return result;
}

// A class or an object of the module typing, whose index makes a type.
bool is_generic(PyObject* o) {
  if (PyType_Check(o)) {
    PyRef key = checked(PyUnicode_InternFromString("__getitem__"));
    return !_PyType_Lookup(Py_TYPE(o), key.get());
  }
  PyRef module(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(o)), "__module__"));
  if (!module) PyErr_Clear();
  return module && PyUnicode_Check(module.get()) && !PyUnicode_CompareWithASCIIString(module.get(), "typing");
}

// Calls the method of a class for an instruction; null if the class has none that is a function of Python.
PyObject* method_of(Interpreter& in, PyObject* o, const char* name) {
  if (!is_class_of_python(Py_TYPE(o))) return nullptr;
  PyRef key = checked(PyUnicode_InternFromString(name));
  PyObject* f = _PyType_Lookup(Py_TYPE(o), key.get());
  if (!f || !PyFunction_Check(f)) return nullptr;
  in.recorder->member(o, key.get(), f);
  return f;
}

}  // namespace

Outcome do_build_tuple(Interpreter&, Frame& f, const MicroOp& op) {
  f.push(taken(f, size_t(op.arg), PyTuple_New));
  return Outcome::next;
}
Outcome do_build_list(Interpreter&, Frame& f, const MicroOp& op) {
  f.push(taken(f, size_t(op.arg), PyList_New));
  return Outcome::next;
}
Outcome do_build_set(Interpreter& in, Frame& f, const MicroOp& op) {
  PyRef all = checked(PySet_New(nullptr));
  for (size_t k = size_t(op.arg); k > 0; --k) {
    PyObject* item = f.top(k).get();
    if (in.recorder && !is_key(item)) return in.breaks(std::string("a set with a ") + kindname(item));
    if (in.recorder) in.recorder->tell_apart(item, all.get(), true);
    checked(PySet_Add(all.get(), item));
  }
  return in.give(f, size_t(op.arg), all.detach());
}
Outcome do_build_map(Interpreter& in, Frame& f, const MicroOp& op) {
  PyRef all = checked(PyDict_New());
  for (size_t k = size_t(op.arg); k > 0; --k) {
    PyObject* key = f.top(2 * k).get();
    if (in.recorder && !is_key(key))
      return in.breaks(std::string("a dict with a key of type ") + kindname(key));
    if (in.recorder) in.recorder->tell_apart(key, all.get(), true);
    checked(PyDict_SetItem(all.get(), key, f.top(2 * k - 1).get()));
  }
  return in.give(f, 2 * size_t(op.arg), all.detach());
}
Outcome do_build_const_key_map(Interpreter& in, Frame& f, const MicroOp& op) {
  PyRef all = checked(PyDict_New());
  PyRef keys = f.top();
  for (int k = 0; k < op.arg; ++k)
    checked(PyDict_SetItem(all.get(), PyTuple_GET_ITEM(keys.get(), k), f.top(size_t(op.arg - k) + 1).get()));
  return in.give(f, size_t(op.arg) + 1, all.detach());
}
Outcome do_build_string(Interpreter& in, Frame& f, const MicroOp& op) {
  PyRef parts = checked(PyList_New(0)), empty = checked(PyUnicode_FromString(""));
  for (size_t k = size_t(op.arg); k > 0; --k) checked(PyList_Append(parts.get(), f.top(k).get()));
  return in.give(f, size_t(op.arg), PyUnicode_Join(empty.get(), parts.get()));
}
Outcome do_build_slice(Interpreter& in, Frame& f, const MicroOp& op) {
  PyObject* step = op.arg == 3 ? f.top().get() : nullptr;
  size_t n = size_t(op.arg);
  return in.give(f, n, PySlice_New(f.top(n).get(), f.top(n - 1).get(), step));
}
Outcome do_format_value(Interpreter& in, Frame& f, const MicroOp& op) {
  bool has_spec = op.arg & 4;
  PyRef spec = has_spec ? f.top() : PyRef();
  PyRef value = f.top(has_spec ? 2 : 1);
  if (in.recorder) {
    if (!is_data(value.get(), false)) return in.breaks(std::string("the text of a ") + kindname(value.get()));
    in.recorder->deep_contents(value.get());
  }
  PyRef shown = value;
  switch (op.arg & 3) {
    case 1: shown = checked(PyObject_Str(value.get())); break;
    case 2: shown = checked(PyObject_Repr(value.get())); break;
    case 3: shown = checked(PyObject_ASCII(value.get())); break;
    default: break;
  }
  if (!PyUnicode_CheckExact(shown.get()) || spec) shown = checked(PyObject_Format(shown.get(), spec.get()));
  return in.give(f, has_spec ? 2 : 1, shown.detach());
}

// Comprehensions and displays write to containers of their own, which may come from before a break.
static bool is_outside(Interpreter& in, PyObject* o) { return in.recorder && in.recorder->is_outside(o); }
static void journal(Interpreter& in, PyObject* o, const char* method, std::initializer_list<PyObject*> args) {
  PyRef name = checked(PyUnicode_InternFromString(method)),
        all = checked(PyTuple_New(Py_ssize_t(args.size())));
  Py_ssize_t k = 0;
  for (auto* a : args) PyTuple_SET_ITEM(all.get(), k++, Py_NewRef(a));
  in.recorder->write(Write::Kind::call, o, name.get(), all.get());
}

Outcome do_list_append(Interpreter& in, Frame& f, const MicroOp& op) {
  PyRef value = f.pop();
  PyObject* list = f.top(size_t(op.arg)).get();
  if (is_outside(in, list)) in.recorder->append(list, value.get());
  checked(PyList_Append(list, value.get()));
  return Outcome::next;
}
Outcome do_set_add(Interpreter& in, Frame& f, const MicroOp& op) {
  if (in.recorder && !is_key(f.top().get()))
    return in.breaks(std::string("a set with a ") + kindname(f.top().get()));
  PyRef value = f.pop();
  PyObject* set = f.top(size_t(op.arg)).get();
  bool outside = is_outside(in, set);
  if (outside) in.recorder->before_write(set);
  if (in.recorder) in.recorder->tell_apart(value.get(), set, true);
  checked(PySet_Add(set, value.get()));
  if (outside) journal(in, set, "add", {value.get()});
  return Outcome::next;
}
Outcome do_map_add(Interpreter& in, Frame& f, const MicroOp& op) {
  PyObject* key = f.top(2).get();
  if (in.recorder && !is_key(key))
    return in.breaks(std::string("a dict with a key of type ") + kindname(key));
  PyRef value = f.pop(), name = f.pop();
  PyObject* dict = f.top(size_t(op.arg)).get();
  bool outside = is_outside(in, dict);
  if (outside) in.recorder->before_write(dict);
  if (in.recorder) in.recorder->tell_apart(name.get(), dict, true);
  checked(PyDict_SetItem(dict, name.get(), value.get()));
  if (outside) in.recorder->write(Write::Kind::set_item, dict, name.get(), value.get());
  return Outcome::next;
}
Outcome do_list_extend(Interpreter& in, Frame& f, const MicroOp& op) {
  PyObject* from = f.top().get();
  if (in.recorder) {
    bool walks = is_plain_iterator(from) && !in.recorder->is_outside(from);
    if (is_iterated_by_python(in, from)) return expand(in, f);
    if (!is_container(from) && !is_atom(from) && !walks && !PyTuple_Check(from) && !is_dict_view(from))
      return in.breaks(std::string("unpacking of a ") + kindname(from));
    in.recorder->contents(from);
    if (is_outside(in, f.top(size_t(op.arg) + 1).get()))
      return in.breaks("a list display that was begun before a break");
  }
  PyRef owner_ref = f.pop();
  PyObject* list = f.top(size_t(op.arg)).get();
  if (PyList_SetSlice(list, PyList_GET_SIZE(list), PyList_GET_SIZE(list), owner_ref.get()) == 0)
    return Outcome::next;
  if (!PyErr_ExceptionMatches(PyExc_TypeError) || PySequence_Check(owner_ref.get())) return Outcome::raised;
  PyErr_Clear();
  PyErr_Format(PyExc_TypeError, "Value after * must be an iterable, not %.200s", kindname(owner_ref.get()));
  return Outcome::raised;
}
Outcome do_set_update(Interpreter& in, Frame& f, const MicroOp& op) {
  PyObject* from = f.top().get();
  if (in.recorder) {
    if (is_iterated_by_python(in, from)) return expand(in, f);
    bool data = is_data(from, false);
    if (!data && !(is_sequence(from) && are_keys(from)))
      return in.breaks(std::string("unpacking of a ") + kindname(from));
    if (data) in.recorder->deep_contents(from);
    else in.recorder->contents(from);
    in.recorder->tell_apart(std::array{f.top(size_t(op.arg) + 1).get(), from});
  }
  if (is_outside(in, f.top(size_t(op.arg) + 1).get()))
    return in.breaks("a set display that was begun before a break");
  PyRef owner_ref = f.pop();
  checked(PyObject_CallMethod(f.top(size_t(op.arg)).get(), "update", "(O)", owner_ref.get()));
  return Outcome::next;
}
// Whether a dict has a key of a mapping; -1: an exception is set.
static int has_key_of(PyObject* dict, PyObject* mapping) {
  PyRef keys(PyMapping_Keys(mapping));
  if (!keys) return -1;
  int has = 0;
  for (Py_ssize_t k = 0; has == 0 && k < PyList_GET_SIZE(keys.get()); ++k)
    has = PyDict_Contains(dict, PyList_GET_ITEM(keys.get(), k));
  return has;
}
static Outcome merge(Interpreter& in, Frame& f, size_t depth, bool unique) {
  PyObject* from = f.top().get();
  if (in.recorder) {
    if (!is_dict(from) && !is_read_as_dict(in.recorder, from))
      return in.breaks(std::string("unpacking of a ") + kindname(from));
    in.recorder->contents(from);
    if (is_outside(in, f.top(depth + 1).get()))
      return in.breaks("a dict display that was begun before a break");
  }
  PyRef owner_ref = f.pop();
  PyObject* into = f.top(depth).get();
  int repeated = unique ? has_key_of(into, owner_ref.get()) : 0;
  if (repeated == 0 && PyDict_Update(into, owner_ref.get()) >= 0) return Outcome::next;
  if (repeated > 0) {
    PyErr_SetString(PyExc_TypeError, "got multiple values for a keyword argument");
  } else if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "'%.200s' object is not a mapping", kindname(owner_ref.get()));
  }
  return Outcome::raised;
}
Outcome do_dict_update(Interpreter& in, Frame& f, const MicroOp& op) {
  return merge(in, f, size_t(op.arg), false);
}
Outcome do_dict_merge(Interpreter& in, Frame& f, const MicroOp& op) {
  return merge(in, f, size_t(op.arg), true);
}
Outcome do_list_to_tuple(Interpreter& in, Frame& f, const MicroOp&) {
  return in.give(f, 1, PyList_AsTuple(f.top().get()));
}

static Outcome subscript_of(Interpreter& in, Frame& f, PyObject* o, PyObject* key) {
  auto* r = in.recorder;
  if (is_plain(Py_TYPE(o))) {
    if (!is_tensor_index(key)) return in.breaks(std::string("a tensor indexed by a ") + kindname(key));
    if (r->stops.at_elements && has_elements(key))
      return in.breaks("an index that is an element of a tensor");
    r->deep_contents(key);
    PyRef index = with_traced_elements(r->with_symbols(key));
    return in.give_recorded(f, 2, PyObject_GetItem(o, index.get()), "indexing");
  }
  if (is_generic(o)) {  // list[int], Optional[C]: an object that the module typing keeps
    PyRef alias(PyObject_GetItem(o, key));
    if (!alias) return Outcome::raised;
    r->constant(alias.get());
    return in.give(f, 2, alias.detach());
  }
  r->pin(key);
  bool sequence = PyList_CheckExact(o) || PyTuple_CheckExact(o) || Py_TYPE(o) == SizeType;
  bool named =
      PyTuple_Check(o) && Py_TYPE(o)->tp_as_mapping->mp_subscript == PyTuple_Type.tp_as_mapping->mp_subscript;
  if ((sequence || named) && PyLong_CheckExact(key)) {
    PyObject* looked_up = PyObject_GetItem(o, key);
    Py_ssize_t k = PyLong_AsSsize_t(key);
    PyErr_Clear();
    if (!looked_up)
      PyErr_SetString(PyExc_IndexError,
                      PyList_Check(o) ? "list index out of range" : "tuple index out of range");
    PyRef number;
    if (looked_up && k >= 0) r->item(o, k, looked_up, &number);
    else if (r->is_outside(o)) r->contents(o);
    if (!number) return in.give(f, 2, looked_up);
    Py_DECREF(looked_up);
    return in.give(f, 2, number.detach());
  }
  if (PyTuple_CheckExact(o) && r->is_outside(o) && PySlice_Check(key) && is_data(key, false)) {
    PyRef part = r->items_of_tuple(o, key);
    return part ? in.give(f, 2, part.detach()) : Outcome::raised;
  }
  if ((sequence || named) && PySlice_Check(key)) {
    r->contents(o);
    r->contents(key);
    return in.give(f, 2, PyObject_GetItem(o, key));
  }
  if (is_key(key) && (is_dict(o) || takes_method_of_dict(r, o, "__getitem__"))) {
    note_key(*r, key);
    PyObject* looked_up = PyDict_GetItemWithError(o, key);
    if (!looked_up && PyErr_Occurred()) return Outcome::raised;
    if (!looked_up && is_python_instance(o))
      return in.breaks(std::string("a key that is missing in a ") + kindname(o));
    PyRef number;
    r->dict_item(o, key, looked_up, &number);
    if (!looked_up && is_default_dict(o)) return call_polyfill(in, f, "default_item_", {o, key}, 2);
    return in.give(f, 2, number ? number.detach() : PyObject_GetItem(o, key));
  }
  if (is_atom(o)) return in.give(f, 2, PyObject_GetItem(o, key));
  if (PyObject* method = method_of(in, o, "__getitem__"))
    return call(in, f, {method, {o, key}, 2, nullptr, 2});
  return in.breaks(std::string("indexing of a ") + kindname(o));
}

Outcome do_subscr(Interpreter& in, Frame& f, const MicroOp&) {
  PyRef o = f.top(2), key = f.top();
  if (in.recorder) return subscript_of(in, f, o.get(), key.get());
  return in.give(f, 2, PyObject_GetItem(o.get(), key.get()));
}

Outcome do_store_subscr(Interpreter& in, Frame& f, const MicroOp&) {
  PyRef o = f.top(2), key = f.top(), value = f.top(3);
  auto* r = in.recorder;
  if (r && is_plain(Py_TYPE(o.get()))) {
    bool plain = is_tensor_index(key.get()) && (is_plain(Py_TYPE(value.get())) || is_atom(value.get()));
    if (!plain) return in.breaks("an assignment to elements of a tensor");
    if (r->stops.at_elements && has_elements(key.get()))
      return in.breaks("an index that is an element of a tensor");
    r->deep_contents(key.get());
    PyRef index = with_traced_elements(key);
    if (PyObject_SetItem(o.get(), index.get(), value.get()) < 0)
      return in.give_recorded(f, 3, nullptr, "assignment");
    f.drop(3);
    return Outcome::next;
  }
  bool slice = PyList_CheckExact(o.get()) && PySlice_Check(key.get()) && is_container(value.get());
  bool list = (PyList_CheckExact(o.get()) && PyLong_CheckExact(key.get())) || slice;
  bool dict = is_dict(o.get()) && is_key(key.get());
  if (r && !list && !dict) {
    if (PyObject* method = method_of(in, o.get(), "__setitem__"))
      return call(in, f, {method, {o.get(), key.get(), value.get()}, 3, nullptr, 3, Role::discard});
    return in.breaks(std::string("an assignment to an item of a ") + kindname(o.get()));
  }
  bool outside = r && r->is_outside(o.get());
  if (r) note_key(*r, key.get());
  if (r && slice) r->contents(value.get());
  if (slice) value = snapshot(value.get());
  // A value that replaces another in a dict depends on no other item.
  PyObject* former = outside && PyDict_CheckExact(o.get()) && is_atom(key.get())
                         ? PyDict_GetItemWithError(o.get(), key.get())
                         : nullptr;
  if (former) {
    PyRef number;
    r->dict_item(o.get(), key.get(), former, &number);
    r->remember(o.get(), key.get());
  } else if (outside) {
    r->before_write(o.get());
  }
  if (PyObject_SetItem(o.get(), key.get(), value.get()) < 0) return Outcome::raised;
  if (outside) r->write(Write::Kind::set_item, o.get(), key.get(), value.get(), former);
  f.drop(3);
  return Outcome::next;
}
Outcome do_delete_subscr(Interpreter& in, Frame& f, const MicroOp&) {
  PyRef o = f.top(2), key = f.top();
  auto* r = in.recorder;
  if (r && !(PyList_CheckExact(o.get()) && PyLong_CheckExact(key.get())) &&
      !(is_dict(o.get()) && is_key(key.get())))
    return in.breaks(std::string("`del` of an item of a ") + kindname(o.get()));
  bool outside = r && r->is_outside(o.get());
  if (outside) r->before_write(o.get());
  if (PyObject_DelItem(o.get(), key.get()) < 0) return Outcome::raised;
  if (outside) r->write(Write::Kind::delete_item, o.get(), key.get(), nullptr);
  f.drop(2);
  return Outcome::next;
}

static Outcome unpack_items(Interpreter& in, Frame& f, Py_ssize_t before, Py_ssize_t after, bool starred) {
  PyRef from = f.top();
  PyRef all;
  auto* r = in.recorder;
  if (r && is_plain(Py_TYPE(from.get()))) {
    PyRef unbound(PyObject_CallMethod(from.get(), "unbind", nullptr));
    if (!unbound) return in.give_recorded(f, 1, nullptr, "unpacking");
    r->result(unbound.get());
    all = checked(PySequence_List(unbound.get()));
  } else {
    bool walks = is_plain_iterator(from.get()) && !(r && r->is_outside(from.get()));
    bool plain = is_container(from.get()) || PyTuple_Check(from.get()) || is_atom(from.get()) || walks;
    if (r && is_iterated_by_python(in, from.get())) return expand(in, f);
    if (r && !plain) return in.breaks(std::string("unpacking of a ") + kindname(from.get()));
    if (r) r->contents(from.get());
    PyRef iterator(PyObject_GetIter(from.get()));
    if (!iterator) {
      if (PyErr_ExceptionMatches(PyExc_TypeError) && !Py_TYPE(from.get())->tp_iter &&
          !PySequence_Check(from.get()))
        PyErr_Format(PyExc_TypeError, "cannot unpack non-iterable %.200s object", kindname(from.get()));
      return Outcome::raised;
    }
    all = checked(PyList_New(0));
    Py_ssize_t limit = starred ? PY_SSIZE_T_MAX : before + 1;
    while (PyList_GET_SIZE(all.get()) < limit) {
      PyRef item(PyIter_Next(iterator.get()));
      if (!item) break;
      checked(PyList_Append(all.get(), item.get()));
    }
    if (PyErr_Occurred()) return Outcome::raised;
  }
  Py_ssize_t n = PyList_GET_SIZE(all.get());
  if (n < before + after) {
    PyErr_Format(PyExc_ValueError, "not enough values to unpack (expected %s%zd, got %zd)",
                 starred ? "at least " : "", before + after, n);
    return Outcome::raised;
  }
  if (!starred && n > before) {
    PyErr_Format(PyExc_ValueError, "too many values to unpack (expected %zd)", before);
    return Outcome::raised;
  }
  f.drop(1);
  for (Py_ssize_t k = n - 1; k >= n - after; --k) f.push(PyRef::share(PyList_GET_ITEM(all.get(), k)));
  if (starred) f.push(checked(PyList_GetSlice(all.get(), before, n - after)));
  for (Py_ssize_t k = before - 1; k >= 0; --k) f.push(PyRef::share(PyList_GET_ITEM(all.get(), k)));
  return Outcome::next;
}
Outcome do_unpack(Interpreter& in, Frame& f, const MicroOp& op) {
  return unpack_items(in, f, op.arg, 0, false);
}
Outcome do_unpack_ex(Interpreter& in, Frame& f, const MicroOp& op) {
  return unpack_items(in, f, op.arg & 255, op.arg >> 8, true);
}

Outcome do_get_iter(Interpreter& in, Frame& f, const MicroOp&) {
  PyRef o = f.top();
  auto* r = in.recorder;
  if (!r || is_generator(o.get())) return in.give(f, 1, PyObject_GetIter(o.get()));
  if (is_plain(Py_TYPE(o.get()))) {
    PyRef rows(PyObject_CallMethod(o.get(), "unbind", nullptr));
    if (!rows) return in.give_recorded(f, 1, nullptr, "iteration");
    r->result(rows.get());
    return in.give(f, 1, PyObject_GetIter(rows.get()));
  }
  const char* kind = kindname(o.get());
  bool view = is_dict_view(o.get());
  bool sequence = PyTuple_Check(o.get()) && Py_TYPE(o.get())->tp_iter == PyTuple_Type.tp_iter;
  bool is_inner_deque = is_deque(o.get()) && !r->is_outside(o.get());
  if (is_container(o.get()) || is_atom(o.get()) || view || sequence || is_plain_iterator(o.get()) ||
      is_inner_deque || takes_method_of_dict(r, o.get(), "__iter__")) {
    r->contents(o.get());
    return in.give(f, 1, PyObject_GetIter(o.get()));
  }
  if (method_of(in, o.get(), "__iter__") || method_of(in, o.get(), "__getitem__"))
    return call_polyfill(in, f, "iter_", {o.get()}, 1);
  return in.breaks(std::string("iteration over a ") + kind);
}

Outcome do_for_iter(Interpreter& in, Frame& f, const MicroOp& op) {
  PyRef o = f.top();
  auto* r = in.recorder;
  if (r && is_generator(o.get()) && !r->is_outside(o.get())) {
    auto frame = resume(generator_of(o.get()), Py_None);
    if (!frame) {
      f.drop(1);
      f.jump(op.target);
      return Outcome::next;
    }
    return in.enter(f, 0, std::move(frame), Role::iterate);
  }
  if (r && (r->is_outside(o.get()) || !is_plain_iterator(o.get()))) {
    Outcome stops = in.breaks(std::string("iteration with a ") + kindname(o.get()));
    in.report.quiet = r->is_outside(o.get());
    return stops;
  }
  PyRef value(Py_TYPE(o.get())->tp_iternext(o.get()));
  if (value) {
    f.push(std::move(value));
    return Outcome::next;
  }
  if (PyErr_Occurred()) {
    if (!PyErr_ExceptionMatches(PyExc_StopIteration)) return Outcome::raised;
    PyErr_Clear();
  }
  f.drop(1);
  f.jump(op.target);
  return Outcome::next;
}
Outcome do_get_len(Interpreter& in, Frame& f, const MicroOp&) {
  PyObject* o = f.top().get();
  if (in.recorder) {
    if (!is_container(o) && !is_atom(o) && !PyTuple_Check(o))
      return in.breaks(std::string("the length of a ") + kindname(o));
    in.recorder->contents(o);
  }
  Py_ssize_t n = PyObject_Length(o);
  if (n < 0) return Outcome::raised;
  f.push(checked(PyLong_FromSsize_t(n)));
  return Outcome::next;
}

}  // namespace facula::bind::capture
