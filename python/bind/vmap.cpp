// facula._C.BatchLevel: a level of vmap (facula/batch/level.h), entered when it is made.
#include <memory>

#include "facula/autograd/batch.h"
#include "facula/autograd/forward.h"
#include "facula/batch/level.h"
#include "facula/graph/break.h"
#include "facula/op/batched.h"
#include "facula/run/autocast.h"
#include "facula/tensor/observe.h"
#include "facula/tensor/sparse.h"
#include "symint.h"
#include "tensor.h"
#include "trampoline.h"
#include "types.h"

namespace facula::bind {

namespace {

// Autocast sees calls before a level does, as it is the same for all of the batch: a region around vmap is opened again
// inside.
class AutocastInside {
 public:
  AutocastInside() : state_(run::autocast_state()) { set(false); }
  ~AutocastInside() { set(true); }
  void set(bool enabled) const {
    auto s = state_;
    s.enabled &= enabled;
    run::set_autocast(s);
  }

 private:
  run::AutocastState state_;
};
struct Entered {
  Entered(int64_t size, batch::Randomness r, bool same) : level(SymInt(size), r, same), on(&level) {
    autocast.set(true);
  }
  ~Entered() { autocast.set(false); }
  AutocastInside autocast;
  batch::Level level;
  op::Mode::With on;
};
struct LevelObject {
  PyObject_HEAD Entered* entered;  // null: it has ended
};
PyTypeObject* LevelType;
batch::Level& level(PyObject* o) {
  auto* entered = reinterpret_cast<LevelObject*>(o)->entered;
  runtime_check(entered, "vmap") << "the level has ended";
  return entered->level;
}

void level_dealloc(PyObject* o) {
  delete reinterpret_cast<LevelObject*>(o)->entered;
  PyTypeObject* t = Py_TYPE(o);
  PyObject_Free(o);
  Py_DECREF(t);
}

// enter_vmap(size, randomness, same_variables) -> BatchLevel
PyObject* enter_vmap(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    long long size;
    const char* randomness;
    int same;
    if (!PyArg_ParseTuple(args, "Lsp:enter_vmap", &size, &randomness, &same)) return nullptr;
    std::string_view r = randomness;
    auto* o = PyObject_New(LevelObject, LevelType);
    if (!o) throw PythonError();
    o->entered = new Entered(size,
                             r == "error"       ? batch::Randomness::error
                             : r == "different" ? batch::Randomness::different
                                                : batch::Randomness::same,
                             same);
    return reinterpret_cast<PyObject*>(o);
  });
}

PyObject* level_end(PyObject* self, PyObject*) {
  delete std::exchange(reinterpret_cast<LevelObject*>(self)->entered, nullptr);
  Py_RETURN_NONE;
}
PyObject* level_enter(PyObject* self, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject* t;
    int dim;
    if (!PyArg_ParseTuple(args, "O!i:enter", TensorType, &t, &dim)) return nullptr;
    return wrap(level(self).enter(tensor_of(t), dim));
  });
}
PyObject* level_leave(PyObject* self, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject* t;
    int dim;
    if (!PyArg_ParseTuple(args, "O!i:leave", TensorType, &t, &dim)) return nullptr;
    return wrap(level(self).leave(tensor_of(t), dim));
  });
}
PyObject* level_has(PyObject* self, PyObject* t) {
  return guarded([&] { return PyBool_FromLong(is_tensor(t) && level(self).has(tensor_of(t))); });
}

PyMethodDef level_methods[] = {
    {"enter", level_enter, METH_VARARGS, "enter(tensor, dim): one of the batch that dimension `dim` is."},
    {"leave", level_leave, METH_VARARGS, "leave(tensor, dim): the batch, as dimension `dim`."},
    {"has", level_has, METH_O, "Does the tensor stand for one of the batch?"},
    {"end", level_end, METH_NOARGS, "Levels end in the reverse order of their beginning."},
    {nullptr, nullptr, 0, nullptr}};
PyType_Slot level_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(level_dealloc)},
                             {Py_tp_methods, level_methods},
                             {0, nullptr}};
PyType_Spec level_spec = {"facula._C.BatchLevel", sizeof(LevelObject), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, level_slots};

// (number of the level, physical tensor), or None.
PyObject* batch_of(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* {
    if (!is_tensor(o) || !autograd::batch_level(tensor_of(o))) Py_RETURN_NONE;
    Tensor t = tensor_of(o);
    auto* found = autograd::BatchLevel::find(autograd::batch_level(t));
    PyRef physical = checked(wrap(autograd::physical(t)));
    return Py_BuildValue("(iO)", found ? found->number() : -1, physical.get());
  });
}
PyObject* debug_unwrap(PyObject*, PyObject* o) {
  return guarded([&] {
    Tensor t = tensor_argument("debug_unwrap", "tensor", o);
    while (autograd::batch_level(t)) t = autograd::physical(t);
    return wrap(t);
  });
}
PyObject* in_every_level(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* {
    if (!autograd::BatchLevel::innermost()) return Py_NewRef(o);
    return wrap(autograd::in_every_level(tensor_of(o)));
  });
}
PyObject* into_vmap(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject* t;
    int dim;
    if (!PyArg_ParseTuple(args, "O!i:into_vmap", TensorType, &t, &dim)) return nullptr;
    auto* innermost = autograd::BatchLevel::innermost();
    runtime_check(innermost, "into_vmap") << "no level of vmap is entered";
    return wrap(static_cast<batch::Level*>(innermost)->enter(tensor_of(t), dim));
  });
}
PyObject* beneath_vmap(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    runtime_check(autograd::BatchLevel::innermost(), "beneath_vmap") << "no level of vmap is entered";
    autograd::BatchLevel::Beneath outside;
    PyRef rest = checked(PyTuple_GetSlice(args, 1, PY_SSIZE_T_MAX));
    return PyObject_Call(PyTuple_GET_ITEM(args, 0), rest.get(), nullptr);
  });
}
// Belongs `t` to the levels of `like`? Else it gets memory for each call of the batch.
Tensor in_level_of(const Tensor& like, const Tensor& t) {
  auto* level = static_cast<batch::Level*>(autograd::BatchLevel::find(autograd::batch_level(like)));
  if (!level || level->has(t)) return t;
  op::Mode::With outside(level->beneath());
  Tensor whole = in_level_of(autograd::physical(like), op::with_batch(t, level->size()));
  return autograd::one_of(run_operator(operator_named("clone"), {whole})[0], *level);
}
PyObject* in_level_of(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject *like, *t;
    if (!PyArg_ParseTuple(args, "O!O!:in_level_of", TensorType, &like, TensorType, &t)) return nullptr;
    return wrap(in_level_of(tensor_of(like), tensor_of(t)));
  });
}
PyObject* with_its_tangent(PyObject*, PyObject* o) {
  return guarded([&]() -> PyObject* {
    auto* level = autograd::BatchLevel::innermost();
    Tensor t = tensor_of(o);
    if (!level || !autograd::forward_level() || !autograd::tangent_belongs(t.impl(), *level))
      return Py_NewRef(o);
    return wrap(autograd::with_its_tangent(t, *level));
  });
}
PyObject* calls_one_by_one(PyObject*, PyObject*) {
  return PyLong_FromUnsignedLongLong(batch::calls_one_by_one());
}
PyObject* vmap_level(PyObject*, PyObject*) {
  auto* l = autograd::BatchLevel::innermost();
  return PyLong_FromLong(l ? l->number() : 0);
}

PyMethodDef functions[] = {
    {"enter_vmap", enter_vmap, METH_VARARGS, "enter_vmap(size, randomness, same_variables) -> BatchLevel"},
    {"batch_of", batch_of, METH_O,
     "(number of the level, the whole batch) of a tensor inside of vmap, or None."},
    {"debug_unwrap", debug_unwrap, METH_O, "The whole batch, of every level."},
    {"in_every_level", in_every_level, METH_O, "The tensor as one of the batch of every level of vmap."},
    {"in_level_of", in_level_of, METH_VARARGS,
     "in_level_of(like, tensor): the tensor, as one of a batch if `like` is."},
    {"with_its_tangent", with_its_tangent, METH_O,
     "The tensor as one of the batch of the innermost level of vmap, if its tangent is."},
    {"calls_one_by_one", calls_one_by_one, METH_NOARGS,
     "How many calls inside of vmap no rule did the work of, on this thread."},
    {"into_vmap", into_vmap, METH_VARARGS,
     "into_vmap(tensor, dim): one of the batch that dimension `dim` is, of the innermost level."},
    {"beneath_vmap", beneath_vmap, METH_VARARGS,
     "beneath_vmap(f, *args): calls f as if it were called outside of the innermost level."},
    {"vmap_level", vmap_level, METH_NOARGS, "How many levels of vmap this thread is in."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

void check_has_data(const Tensor& t, const char* what) {
  type_check(!is_sparse(t) || std::string_view(what) != "numpy", what)
      << "can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first.";
  type_check(t.device().type == DeviceType::cpu || std::string_view(what) != "numpy", what)
      << "can't convert " << t.device()
      << " device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.";
  std::string_view w = what;
  if (!autograd::batch_level(t)) {
    if (!t.is_traced() && w != "bool" && w != "item") note_read(t);
    trace_check(!t.is_traced(), reads_elements, what)
        << "looks at the elements of a tensor, which a traced function has not yet"
        << (has_traced_integers(t)
                ? hint("item() and tolist() give integers as sizes, which int() and range() can not take")
                : hint("compute what depends on elements outside of the function, or with where()"));
    return;
  }
  runtime_check(w != "bool", "vmap")
      << "It looks like you're attempting to use a Tensor in some data-dependent control flow. We don't support that yet, please file "
         "an issue at https://github.com/pytorch/pytorch/issues ."
      << hint(
             "the tensor has another value in each call of the batch; where(condition, a, b) chooses for each");
  runtime_check(w != "item", "vmap")
      << "It looks like you're calling .item() on a Tensor. We don't support vmap over calling .item() on a Tensor, please try to "
         "rewrite what you're doing with other operations. If error is occurring somewhere inside PyTorch internals, please file a bug report."
      << hint("the tensor has another value in each call of the batch");
  runtime_check(false, what) << "Cannot access data pointer of Tensor that doesn't have storage"
                             << hint("it stands for one of a batch inside of vmap");
}

void add_vmap(PyObject* module) {
  LevelType = add_type(module, &level_spec);
  add_functions(module, functions);
}

}  // namespace facula::bind
