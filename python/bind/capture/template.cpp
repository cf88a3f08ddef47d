#include <cstring>

#include "../autograd.h"
#include "../types.h"
#include "facula/autograd/autograd.h"
#include "segment.h"

namespace facula::bind::capture {

using Kind = Template::Instruction::Kind;

namespace {

// Objects that a later call may share: they are the same for the process, or guards have made them constant.
bool is_shared(PyObject* o) {
  if (PyType_Check(o) || PyModule_Check(o) || PyCode_Check(o)) return true;
  PyTypeObject* t = Py_TYPE(o);
  if (t == &PyMethodDescr_Type || t == &PyWrapperDescr_Type || t == &PyClassMethodDescr_Type ||
      t == &PyGetSetDescr_Type)
    return true;
  if (PyCFunction_Check(o)) return !PyCFunction_GET_SELF(o) || PyModule_Check(PyCFunction_GET_SELF(o));
  return std::strstr(t->tp_name, "Overridable") != nullptr;
}

// Iterators and containers of C whose __reduce__ tells everything.
bool is_reducible(PyTypeObject* t) {
  for (const char* n : {"list_iterator", "tuple_iterator", "range_iterator", "enumerate", "zip", "reversed",
                        "list_reverseiterator", "collections.OrderedDict", "collections.defaultdict",
                        "collections.deque", "functools.partial", "str_ascii_iterator"})
    if (!std::strcmp(t->tp_name, n)) return true;
  return false;
}

bool is_iterator_of_list(PyTypeObject* t) {
  return !std::strcmp(t->tp_name, "list_iterator") || !std::strcmp(t->tp_name, "list_reverseiterator");
}

// CPython's iterator of the keys, values or items of a dict (Objects/dictobject.c of 3.11 to 3.13).
struct DictIterator {
  PyObject_HEAD PyObject* dict;  // null: it has ended
  Py_ssize_t size;               // of the dict when the iteration began
  Py_ssize_t position;
  PyObject* result;
  Py_ssize_t left;
};
// The method of a dict whose iterators have this type; null for other types.
const char* view_of_iterator(PyTypeObject* t) {
  return t == &PyDictIterKey_Type     ? "keys"
         : t == &PyDictIterValue_Type ? "values"
         : t == &PyDictIterItem_Type  ? "items"
                                      : nullptr;
}

PyObject* rebuilt(PyObject* reduced) {
  Py_ssize_t n = PyTuple_GET_SIZE(reduced);
  PyRef created = checked(PyObject_CallObject(PyTuple_GET_ITEM(reduced, 0), PyTuple_GET_ITEM(reduced, 1)));
  PyObject* state = n > 2 ? PyTuple_GET_ITEM(reduced, 2) : Py_None;
  if (state != Py_None) checked(PyObject_CallMethod(created.get(), "__setstate__", "(O)", state));
  PyObject* items = n > 3 ? PyTuple_GET_ITEM(reduced, 3) : Py_None;
  for (Py_ssize_t k = 0; items != Py_None && k < PyTuple_GET_SIZE(items); ++k)
    checked(PyObject_CallMethod(created.get(), "append", "(O)", PyTuple_GET_ITEM(items, k)));
  PyObject* pairs = n > 4 ? PyTuple_GET_ITEM(reduced, 4) : Py_None;
  for (Py_ssize_t k = 0; pairs != Py_None && k < PyTuple_GET_SIZE(pairs); ++k) {
    PyObject* pair = PyTuple_GET_ITEM(pairs, k);
    checked(PyObject_SetItem(created.get(), PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1)));
  }
  return created.detach();
}

}  // namespace

// ---- building

int TemplateBuilder::add(Template::Instruction i) {
  bool fills = i.kind >= Kind::fill_list;
  if (!fills) i.out = created.size++;
  int out = i.out;
  created.instructions.push_back(std::move(i));
  return out;
}
int TemplateBuilder::fill(Kind kind, int out, std::vector<int> operands) {
  return add({kind, out, {}, 0, std::move(operands)});
}
int TemplateBuilder::fail(PyObject* o) {
  if (reason.empty()) reason = std::string("a ") + Py_TYPE(o)->tp_name + " cannot be made again";
  return -1;
}

int TemplateBuilder::root(Py_ssize_t slot, PyObject* o) {
  if (!o) return -1;
  auto& list = recorder_.list;
  for (size_t k = 0; k < list.sources.size(); ++k)
    if (list.sources[k].kind == Source::Kind::root && list.sources[k].index == slot)
      return add({Kind::source, -1, {}, int64_t(k)});
  int64_t id = int64_t(list.sources.size());
  list.sources.push_back({Source::Kind::root, kNoSource, {}, slot});
  list.guards.push_back({Guard::Kind::load, int(id), {}, 0, 0});
  return add({Kind::source, -1, {}, id});
}

int TemplateBuilder::fresh_of(PyObject* o) {
  auto [it, is_new] = fresh_.try_emplace(o, int(fresh.size()));
  if (is_new) fresh.push_back(PyRef::share(o));
  return it->second;
}

int TemplateBuilder::value(PyObject* o) {
  if (!o || failed()) return -1;
  if (auto it = nodes_.find(o); it != nodes_.end()) return it->second;
  SourceId s = recorder_.source_of(o);
  if (s != kNoSource) return nodes_[o] = add({Kind::source, -1, {}, s});
  if (Py_TYPE(o) == SizeType && has_sources(o)) {
    auto all = items(o);
    return nodes_[o] = add({Kind::named_tuple, -1, PyRef::share(reinterpret_cast<PyObject*>(SizeType)), 0,
                            std::move(all)});
  }
  if (is_atom(o) || is_shared(o)) return nodes_[o] = add({Kind::constant, -1, PyRef::share(o)});
  if (is_tensor(o)) {
    if (auto it = results_.find(o); it != results_.end())
      return nodes_[o] = add({Kind::result, -1, {}, it->second});
    if (auto it = recorder_.gradients.find(o); it != recorder_.gradients.end()) {
      int leaf = value(it->second);
      return nodes_[o] = add({Kind::gradient, -1, {}, 0, {leaf}});
    }
    if (!is_plain(Py_TYPE(o)) || tensor_of(o).requires_grad()) return fail(o);
    return nodes_[o] = add({Kind::fresh, -1, {}, fresh_of(o)});
  }
  if (++depth_ > 500) return fail(o);
  bool plain = is_container(o) && (!PyDict_Check(o) || PyDict_CheckExact(o));
  int out = plain ? container(o) : other(o);
  --depth_;
  return out;
}

bool TemplateBuilder::has_sources(PyObject* tuple) const {
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(tuple); ++k)
    if (recorder_.is_outside(PyTuple_GET_ITEM(tuple, k))) return true;
  return false;
}

std::vector<int> TemplateBuilder::items(PyObject* o) {
  std::vector<int> all;
  for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); ++k)
    all.push_back(value(PySequence_Fast_GET_ITEM(o, k)));
  return all;
}

int TemplateBuilder::container(PyObject* o) {
  if (PyTuple_Check(o)) {
    auto all = items(o);
    return nodes_[o] = add({Kind::tuple, -1, {}, 0, std::move(all)});
  }
  if (PyFrozenSet_Check(o)) return fail(o);
  Kind kind = PyList_Check(o) ? Kind::list : PyDict_Check(o) ? Kind::dict : Kind::set;
  int out = nodes_[o] = add({kind, -1, {}, 0});
  if (PyList_Check(o)) return fill(Kind::fill_list, out, items(o));
  std::vector<int> all;
  if (PyAnySet_Check(o)) {
    PyRef list = checked(PySequence_List(o));
    return fill(Kind::fill_set, out, items(list.get()));
  }
  PyObject *key, *item;
  Py_ssize_t at = 0;
  while (PyDict_Next(o, &at, &key, &item)) {
    all.push_back(value(key));
    all.push_back(value(item));
  }
  return fill(Kind::fill_dict, out, std::move(all));
}

int TemplateBuilder::other(PyObject* o) {
  PyTypeObject* t = Py_TYPE(o);
  if (PyCell_Check(o)) {
    int out = nodes_[o] = add({Kind::cell, -1, {}, 0});
    return fill(Kind::fill_cell, out, {value(PyCell_GET(o))});
  }
  if (PyFunction_Check(o)) return function(o);
  if (PyMethod_Check(o)) {
    std::vector<int> parts{value(PyMethod_GET_FUNCTION(o)), value(PyMethod_GET_SELF(o))};
    return nodes_[o] = add({Kind::method, -1, {}, 0, std::move(parts)});
  }
  if (PyCFunction_Check(o)) {
    PyObject* of = PyCFunction_GET_SELF(o);
    if (of && is_grad_mode(of) && recorder_.is_outside(of)) return fail(of);  // it was entered
    int self = value(PyCFunction_GET_SELF(o));
    PyRef name = checked(PyUnicode_FromString(reinterpret_cast<PyCFunctionObject*>(o)->m_ml->ml_name));
    return nodes_[o] = add({Kind::bound, -1, name, 0, {self}});
  }
  if (PySlice_Check(o)) {
    auto* s = reinterpret_cast<PySliceObject*>(o);
    std::vector<int> parts{value(s->start), value(s->stop), value(s->step)};
    return nodes_[o] = add({Kind::slice, -1, {}, 0, std::move(parts)});
  }
  if (is_generator(o)) return generator(o);
  if (PyTuple_Check(o) && t->tp_basicsize == PyTuple_Type.tp_basicsize) {
    auto all = items(o);
    return nodes_[o] =
               add({Kind::named_tuple, -1, PyRef::share(reinterpret_cast<PyObject*>(t)), 0, std::move(all)});
  }
  if (is_reducible(t) || is_grad_mode(o)) return reduced(o);
  if (view_of_iterator(t)) return dict_iterator(o);
  if (is_class_of_python(t) && !PyExceptionInstance_Check(o)) return instance(o);
  return fail(o);
}

int TemplateBuilder::function(PyObject* o) {
  auto* f = reinterpret_cast<PyFunctionObject*>(o);
  if (f->func_dict && PyDict_GET_SIZE(f->func_dict)) return fail(o);
  recorder_.constant(f->func_code);
  auto cells = f->func_closure ? items(f->func_closure) : std::vector<int>();
  std::vector<int> parts{value(f->func_defaults), value(f->func_kwdefaults)};
  parts.insert(parts.end(), cells.begin(), cells.end());
  PyRef owner_ref = checked(PyTuple_Pack(4, f->func_code, f->func_globals, f->func_qualname,
                                         f->func_annotations ? f->func_annotations : Py_None));
  return nodes_[o] = add({Kind::function, -1, owner_ref, 0, std::move(parts)});
}

int TemplateBuilder::instance(PyObject* o) {
  PyTypeObject* t = Py_TYPE(o);
  // Instances of classes of Python whose only state is their attributes, and the items of a dict.
  bool plain = t->tp_base && t->tp_dictoffset != 0 && t->tp_itemsize == 0;
  bool is_mapping = PyDict_Check(o) && (t->tp_new == PyDict_Type.tp_new || t->tp_new == PyODict_Type.tp_new);
  for (PyTypeObject* b = t; plain && b; b = b->tp_base) {
    if (b == &PyBaseObject_Type || (is_mapping && (b == &PyDict_Type || b == &PyODict_Type))) break;
    plain = is_class_of_python(b) &&
            !(PyDict_GetItemString(b->tp_dict, "__slots__") && b->tp_basicsize != b->tp_base->tp_basicsize);
    if (b->tp_new != t->tp_new && b->tp_new != PyBaseObject_Type.tp_new)
      plain = plain && (is_module(o) || is_mapping);
  }
  PyObject** dict = _PyObject_GetDictPtr(o);
  bool object_allocates = t->tp_new == PyBaseObject_Type.tp_new || is_module(o) || is_mapping;
  if (!plain || !object_allocates || !dict) return fail(o);
  int out = nodes_[o] = add({Kind::instance, -1, PyRef::share(reinterpret_cast<PyObject*>(t))});
  std::vector<int> all;
  PyObject *key, *item;
  Py_ssize_t at = 0;
  PyRef held = *dict ? checked(PyDict_Copy(*dict)) : PyRef();
  while (held && PyDict_Next(held.get(), &at, &key, &item)) {
    all.push_back(value(key));
    all.push_back(value(item));
  }
  if (is_mapping) {
    auto* base = reinterpret_cast<PyObject*>(PyODict_Check(o) ? &PyODict_Type : &PyDict_Type);
    PyRef view = checked(PyObject_CallMethod(base, "items", "(O)", o)),
          items = checked(PySequence_List(view.get()));
    std::vector<int> pairs;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(items.get()); ++k) {
      PyObject* pair = PyList_GET_ITEM(items.get(), k);
      pairs.push_back(value(PyTuple_GET_ITEM(pair, 0)));
      pairs.push_back(value(PyTuple_GET_ITEM(pair, 1)));
    }
    fill(Kind::fill_dict, out, std::move(pairs));
  }
  return fill(Kind::fill_instance, out, std::move(all));
}

int TemplateBuilder::reduced(PyObject* o) {
  PyRef parts(PyObject_CallMethod(o, "__reduce__", nullptr));
  if (!parts || !PyTuple_Check(parts.get())) {
    PyErr_Clear();
    return fail(o);
  }
  PyRef copy = checked(PyList_New(0));
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(parts.get()); ++k) {
    PyRef part = PyRef::share(PyTuple_GET_ITEM(parts.get(), k));
    if (k >= 3 && part.get() != Py_None) {
      PyRef list = checked(PySequence_List(part.get()));
      part = checked(PyList_AsTuple(list.get()));
    }
    checked(PyList_Append(copy.get(), part.get()));
  }
  PyRef position;
  if (is_iterator_of_list(Py_TYPE(o)) && PyList_GET_SIZE(copy.get()) == 3) {
    position = PyRef::share(PyList_GET_ITEM(copy.get(), 2));
    checked(PyList_SetSlice(copy.get(), 2, 3, nullptr));
  }
  PyRef tuple = checked(PyList_AsTuple(copy.get()));
  int inner = value(tuple.get());
  if (failed()) return -1;
  created.instructions.back().object = tuple;  // keeps temporary objects, whose addresses are known, alive
  int out = nodes_[o] = add({Kind::reduced, -1, {}, 0, {inner}});
  return position ? fill(Kind::place_iterator, out, {value(position.get())}) : out;
}

// An iterator that has given some items of a dict. The dict of a later call has the same keys when the iterator is made, which is
// before the segment repeats its writes.
int TemplateBuilder::dict_iterator(PyObject* o) {
  auto* it = reinterpret_cast<DictIterator*>(o);
  bool is_unchanged = it->dict && it->size == PyDict_GET_SIZE(it->dict) &&
                      !recorder_.is_written(it->dict, nullptr) && Py_TYPE(it->dict) != &PyODict_Type;
  if (!is_unchanged) return fail(o);
  recorder_.contents(it->dict);
  PyRef method = checked(PyUnicode_InternFromString(view_of_iterator(Py_TYPE(o))));
  int dict = value(it->dict);
  return nodes_[o] = add({Kind::dict_iterator, -1, method, it->size - it->left, {dict}});
}

int TemplateBuilder::generator(PyObject* o) {
  GeneratorObject* g = generator_of(o);
  if (!g->frame) return nodes_[o] = add({Kind::running_generator, -1, PyRef::share(g->name), g->running});
  std::vector<int> parts;
  const Frame* frame = layout(**g->frame, parts);
  return nodes_[o] = add({Kind::generator, -1, {}, g->started, std::move(parts), frame});
}

// The layout of a frame, whose values become `parts`.
const Frame* TemplateBuilder::layout(const Frame& f, std::vector<int>& parts) {
  auto layout = std::make_unique<Frame>();
  layout->code = f.code;
  layout->ip = f.ip;
  layout->last = f.last;
  layout->role = f.role;
  layout->named = f.named;
  parts.push_back(value(f.function.get()));
  for (size_t k = 0; k < f.locals.size(); ++k) {
    PyObject* local = f.locals[k].get();
    bool untouched = !f.untouched.empty() && f.untouched[k];
    parts.push_back(untouched ? root(f.first_root + Py_ssize_t(k), local) : value(local));
  }
  for (auto& s : f.stack) parts.push_back(value(s.get()));
  created.layouts.push_back(std::move(layout));
  return created.layouts.back().get();
}

void TemplateBuilder::leave(PyObject* o) {
  GeneratorObject* g = generator_of(o);
  if (g->running) return;  // its frame is one of the state
  int out = value(o);
  std::vector<int> parts;
  const Frame* frame = g->frame ? layout(**g->frame, parts) : nullptr;
  add({Kind::fill_generator, out, {}, 0, std::move(parts), frame});
}

// ---- making

namespace {

struct Maker {
  const std::vector<PyRef>&sources, &results, &fresh;
  std::vector<PyRef> values;

  PyRef at(int k) const { return k < 0 ? PyRef() : values[size_t(k)]; }
  PyObject* borrowed(int k) const { return k < 0 ? nullptr : values[size_t(k)].get(); }

  PyRef tuple(const std::vector<int>& operands) const {
    PyRef all = checked(PyTuple_New(Py_ssize_t(operands.size())));
    for (size_t k = 0; k < operands.size(); ++k)
      PyTuple_SET_ITEM(all.get(), Py_ssize_t(k), Py_XNewRef(borrowed(operands[k])));
    return all;
  }

  PyRef function(const Template::Instruction& i) const {
    PyObject* owner_ref = i.object.get();
    PyRef created = checked(PyFunction_New(PyTuple_GET_ITEM(owner_ref, 0), PyTuple_GET_ITEM(owner_ref, 1)));
    auto* f = reinterpret_cast<PyFunctionObject*>(created.get());
    f->func_defaults = Py_XNewRef(borrowed(i.operands[0]));
    f->func_kwdefaults = Py_XNewRef(borrowed(i.operands[1]));
    Py_SETREF(f->func_qualname, Py_NewRef(PyTuple_GET_ITEM(owner_ref, 2)));
    if (PyTuple_GET_ITEM(owner_ref, 3) != Py_None)
      f->func_annotations = Py_NewRef(PyTuple_GET_ITEM(owner_ref, 3));
    if (i.operands.size() > 2)
      f->func_closure = tuple(std::vector<int>(i.operands.begin() + 2, i.operands.end())).detach();
    return created;
  }

  std::unique_ptr<Frame> frame(const Template::Instruction& i) const {
    auto f = std::make_unique<Frame>();
    f->code = i.frame->code;
    f->ip = i.frame->ip;
    f->last = i.frame->last;
    f->role = i.frame->role;
    f->named = i.frame->named;
    f->function = at(i.operands[0]);
    f->globals = PyRef::share(PyFunction_GET_GLOBALS(f->function.get()));
    f->builtins = PyRef::share(reinterpret_cast<PyFunctionObject*>(f->function.get())->func_builtins);
    auto locals = size_t(f->code->locals);
    for (size_t k = 1; k < i.operands.size(); ++k)
      (k <= locals ? f->locals : f->stack).push_back(at(i.operands[k]));
    return f;
  }
  PyRef generator(const Template::Instruction& i) const {
    PyRef created = make_generator(frame(i));
    generator_of(created.get())->started = i.number;
    return created;
  }

  void fill(const Template::Instruction& i) {
    PyObject* o = values[size_t(i.out)].get();
    switch (i.kind) {
      case Kind::fill_list:
        for (int k : i.operands) checked(PyList_Append(o, borrowed(k)));
        break;
      case Kind::fill_set:
        for (int k : i.operands) checked(PySet_Add(o, borrowed(k)));
        break;
      case Kind::fill_cell: checked(PyCell_Set(o, borrowed(i.operands[0]))); break;
      case Kind::fill_dict:
        for (size_t k = 0; k < i.operands.size(); k += 2)
          checked(PyODict_Check(o) ? PyODict_SetItem(o, borrowed(i.operands[k]), borrowed(i.operands[k + 1]))
                                   : PyDict_SetItem(o, borrowed(i.operands[k]), borrowed(i.operands[k + 1])));
        break;
      case Kind::fill_generator: {
        GeneratorObject* g = generator_of(o);
        g->running = false;
        if (i.frame) g->frame = new std::unique_ptr<Frame>(frame(i));
        break;
      }
      default: {
        PyRef dict = checked(PyObject_GenericGetDict(o, nullptr));
        for (size_t k = 0; k < i.operands.size(); k += 2)
          checked(PyDict_SetItem(dict.get(), borrowed(i.operands[k]), borrowed(i.operands[k + 1])));
      }
    }
  }

  PyRef make(const Template::Instruction& i) const {
    switch (i.kind) {
      case Kind::constant: return i.object;
      case Kind::source: return sources[size_t(i.number)];
      case Kind::result: return results[size_t(i.number)];
      case Kind::gradient: return checked(wrap(autograd::grad_of(tensor_of(borrowed(i.operands[0])))));
      case Kind::fresh: return fresh[size_t(i.number)];
      case Kind::list: return checked(PyList_New(0));
      case Kind::dict: return checked(PyDict_New());
      case Kind::set: return checked(PySet_New(nullptr));
      case Kind::tuple: return tuple(i.operands);
      case Kind::cell: return checked(PyCell_New(nullptr));
      case Kind::slice:
        return checked(
            PySlice_New(borrowed(i.operands[0]), borrowed(i.operands[1]), borrowed(i.operands[2])));
      case Kind::function: return function(i);
      case Kind::method: return checked(PyMethod_New(borrowed(i.operands[0]), borrowed(i.operands[1])));
      case Kind::bound: return checked(PyObject_GetAttr(borrowed(i.operands[0]), i.object.get()));
      case Kind::instance: {
        auto* type = reinterpret_cast<PyTypeObject*>(i.object.get());
        PyRef none = checked(PyTuple_New(0));
        PyRef created =
            checked(type->tp_new == PyBaseObject_Type.tp_new ? type->tp_alloc(type, 0)
                                                             : type->tp_new(type, none.get(), nullptr));
        return created;
      }
      case Kind::named_tuple: {
        auto* type = reinterpret_cast<PyTypeObject*>(i.object.get());
        PyRef all = tuple(i.operands), args = checked(PyTuple_Pack(1, all.get()));
        bool sequence = type->tp_new != PyTuple_Type.tp_new && !PyType_IsSubtype(type, &PyTuple_Type);
        return checked(sequence ? PyObject_CallOneArg(i.object.get(), all.get())
                                : PyTuple_Type.tp_new(type, args.get(), nullptr));
      }
      case Kind::reduced: return PyRef(rebuilt(borrowed(i.operands[0])));
      case Kind::generator: return generator(i);
      case Kind::dict_iterator: {
        PyRef view = checked(PyObject_CallMethodNoArgs(borrowed(i.operands[0]), i.object.get())),
              iterator = checked(PyObject_GetIter(view.get()));
        for (int64_t k = 0; k < i.number; ++k) checked(PyIter_Next(iterator.get()));
        return iterator;
      }
      case Kind::running_generator: return make_generator_without_frame(i.object.get(), i.number);
      default: return {};
    }
  }
};

}  // namespace

std::vector<PyRef> Template::make(const std::vector<PyRef>& sources, const std::vector<PyRef>& results,
                                  const std::vector<PyRef>& fresh) const {
  Maker m{sources, results, fresh, std::vector<PyRef>(size_t(size))};
  for (auto& i : instructions) {
    if (i.kind == Kind::place_iterator) continue;
    if (i.kind >= Kind::fill_list) m.fill(i);
    else m.values[size_t(i.out)] = m.make(i);
  }
  return std::move(m.values);
}

void Template::place_iterators(const std::vector<PyRef>& values) const {
  for (auto& i : instructions)
    if (i.kind == Kind::place_iterator)
      checked(PyObject_CallMethod(values[size_t(i.out)].get(), "__setstate__", "(O)",
                                  values[size_t(i.operands[0])].get()));
}

}  // namespace facula::bind::capture
