// _C.Group: the collectives and messages of a group of ranks, on contiguous tensors. _C.GroupWork: one that was
// submitted. _C.Pulse: a connection by which two processes notice that the other one is gone. facula.distributed checks
// the arguments of PyTorch's functions and calls these.
//
//   Group(name, rank, size, token, interface)
//     address() -> str, open(addresses) -> [bool], connect([[bool]], timeout, check)    in this order
//     collective(kind, inputs, outputs, reduction, root, timeout, wait) -> GroupWork, or None if it waited
//     all_reduce(tensor, reduction, timeout) -> whether it was done; False for tensors that need collective()
//     message(is_send, tensor, peer, tag, timeout) -> GroupWork
//     abort(reason), failure() -> why it has ended, leave(), is_local(rank), records() -> JSON, sequence()
//   GroupWork
//     is_done(), wait(seconds) -> bool, error() -> exception or None, then(f), source(), duration_ns()
//   Pulse(socket, other, pid)
//     fileno() -> a descriptor that is readable when it has ended, how() -> str, leave()
#include "distributed.h"

#include "facula/base/interrupt.h"
#include "facula/distributed/group.h"
#include "facula/distributed/pulse.h"
#include "facula/tensor/sparse.h"
#include "tensor.h"

namespace facula::bind {

namespace {

using namespace facula::distributed;

struct GroupObject {
  PyObject_HEAD Group* value;
};
struct WorkObject {
  PyObject_HEAD Work* value;
};
struct PulseObject {
  PyObject_HEAD Pulse* value;
};
PyTypeObject *GroupType, *WorkType;

Group& group(PyObject* o) { return *reinterpret_cast<GroupObject*>(o)->value; }
Work& work(PyObject* o) { return *reinterpret_cast<WorkObject*>(o)->value; }
Pulse& pulse(PyObject* o) { return *reinterpret_cast<PulseObject*>(o)->value; }

PyObject* group_new(PyTypeObject* type, PyObject* args, PyObject*) {
  return guarded([&]() -> PyObject* {
    const char *name, *token, *interface;
    int rank, size;
    if (!PyArg_ParseTuple(args, "siiss:Group", &name, &rank, &size, &token, &interface)) return nullptr;
    auto created = make_ref<Group>(name, rank, size, token, interface);
    PyObject* o = type->tp_alloc(type, 0);
    if (!o) throw PythonError();
    reinterpret_cast<GroupObject*>(o)->value = created.detach();
    return o;
  });
}

void group_dealloc(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  if (Group* g = reinterpret_cast<GroupObject*>(o)->value) {
    WithoutGil free;  // it may wait for its threads, whose callbacks take the GIL
    g->release();
  }
  type->tp_free(o);
  Py_DECREF(type);
}

void work_dealloc(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  if (Work* w = reinterpret_cast<WorkObject*>(o)->value) w->release();
  type->tp_free(o);
  Py_DECREF(type);
}

PyObject* wrap_work(Ref<Work> w) {
  PyObject* o = WorkType->tp_alloc(WorkType, 0);
  if (!o) throw PythonError();
  reinterpret_cast<WorkObject*>(o)->value = w.detach();
  return o;
}

// ---- connecting

PyObject* group_address(PyObject* o, PyObject*) {
  return guarded([&] { return unicode(group(o).address()); });
}

PyObject* group_open(PyObject* o, PyObject* list) {
  return guarded([&] {
    PyRef items = checked(PySequence_Fast(list, "open: expected a list of addresses"));
    std::vector<std::string> addresses;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i)
      addresses.emplace_back(text_of(PySequence_Fast_GET_ITEM(items.get(), i)));
    value_check(int(addresses.size()) == group(o).size(), "open") << addresses.size() << " addresses";
    std::vector<bool> shared = group(o).open(addresses);
    PyRef result = checked(PyList_New(Py_ssize_t(shared.size())));
    for (size_t i = 0; i < shared.size(); ++i)
      PyList_SET_ITEM(result.get(), Py_ssize_t(i), Py_NewRef(shared[i] ? Py_True : Py_False));
    return result.detach();
  });
}

PyObject* group_connect(PyObject* o, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject *rows, *check = nullptr;
    double timeout;
    if (!PyArg_ParseTuple(args, "Od|O:connect", &rows, &timeout, &check)) return nullptr;
    std::vector<std::vector<bool>> shared;
    PyRef items = checked(PySequence_Fast(rows, "connect: expected a list of lists"));
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
      PyRef row =
          checked(PySequence_Fast(PySequence_Fast_GET_ITEM(items.get(), i), "connect: expected lists"));
      shared.emplace_back();
      for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(row.get()); ++k)
        shared.back().push_back(is_true(PySequence_Fast_GET_ITEM(row.get(), k)));
      value_check(int(shared.back().size()) == group(o).size(), "connect") << "rows of another length";
    }
    value_check(int(shared.size()) == group(o).size(), "connect") << shared.size() << " rows";
    WithoutGil free;
    group(o).connect(shared, timeout, [check] {
      check_interrupt();
      if (!check) return;
      WithGil gil;
      PyRef result = checked(PyObject_CallNoArgs(check));
    });
    Py_RETURN_NONE;
  });
}

// ---- operations

// The line of the program that calls: the nearest frame outside of this package.
std::string call_site() {
  PyRef frame(reinterpret_cast<PyObject*>(PyThreadState_GetFrame(PyThreadState_Get())));
  while (frame) {
    auto* f = reinterpret_cast<PyFrameObject*>(frame.get());
    PyRef globals(PyFrame_GetGlobals(f)), back(reinterpret_cast<PyObject*>(PyFrame_GetBack(f)));
    bool ours = is_our_module(globals.get()) || is_our_module(globals.get(), "torch");
    if (!ours || !back) {
      PyRef code(reinterpret_cast<PyObject*>(PyFrame_GetCode(f)));
      std::string_view file = text_of(reinterpret_cast<PyCodeObject*>(code.get())->co_filename);
      if (file.size() > 60) file.remove_prefix(file.size() - 60);
      return std::string(file) + ":" + std::to_string(PyFrame_GetLineNumber(f));
    }
    frame = std::move(back);
  }
  return "";
}

// The memory of a list of tensors, which the call keeps alive.
void add_tensors(Call& call, std::vector<Buffer>& to, const char* what, PyObject* list) {
  if (list == Py_None) return;
  PyRef items = checked(PySequence_Fast(list, "expected a list of tensors"));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    Tensor t = tensor_argument(name(call.kind), what, PySequence_Fast_GET_ITEM(items.get(), i));
    runtime_check(t.device().type == DeviceType::cpu, name(call.kind))
        << "tensors on the device " << t.device() << "; the backend gloo takes those of the CPU";
    value_check(t.is_contiguous() && !t.impl()->is_lazy(), name(call.kind)) << "Tensors must be contiguous";
    size_t bytes = size_t(t.numel().concrete()) * size_t(t.itemsize());
    to.push_back({bytes ? static_cast<char*>(t.data_ptr()) : nullptr, bytes});
    call.tensors.push_back(std::move(t));
  }
}

// One tensor stands for a list of equal parts.
void divide(std::vector<Buffer>& buffers, int parts, const char* call) {
  if (int(buffers.size()) == parts) return;
  value_check(buffers.size() == 1 && buffers[0].bytes % size_t(parts) == 0, call)
      << buffers.size() << " tensors for " << parts << " ranks";
  Buffer all = buffers[0];
  size_t bytes = all.bytes / size_t(parts);
  buffers.clear();
  for (int p = 0; p < parts; ++p) buffers.push_back({all.data + size_t(p) * bytes, bytes});
}

// The buffers that a rank gives to a collective and takes from it.
void arrange(const Group& g, Call& call) {
  bool is_root = call.root == g.rank();
  const char* called = name(call.kind);
  switch (call.kind) {
    case Kind::all_gather: divide(call.output, g.size(), called); break;
    case Kind::reduce_scatter: divide(call.input, g.size(), called); break;
    case Kind::gather:
      if (is_root) divide(call.output, g.size(), called);
      break;
    case Kind::scatter:
      if (is_root) divide(call.input, g.size(), called);
      break;
    case Kind::all_to_all:
      divide(call.input, g.size(), called);
      divide(call.output, g.size(), called);
      break;
    default: break;
  }
  bool by_output = call.kind == Kind::scatter || call.kind == Kind::reduce_scatter;
  size_t part = by_output ? (call.output.empty() ? 0 : call.output[0].bytes)
                          : (call.input.empty() ? 0 : call.input[0].bytes);
  if (call.kind == Kind::all_to_all || call.kind == Kind::all_reduce) return;
  for (auto* list : {&call.input, &call.output})
    for (const Buffer& b : *list)
      runtime_check(b.bytes == part, called)
          << "tensors of " << b.bytes << " and " << part << " bytes, which must be equal";
}

// The sizes of the tensors that a rank contributes, as the profiler's JSON.
std::string shapes_text(const Call& call, size_t inputs) {
  std::string text = "[";
  size_t count = inputs ? inputs : call.tensors.size();
  for (size_t i = 0; i < count; ++i) {
    text += i ? ", [" : "[";
    for (size_t d = 0; d < call.tensors[i].int_sizes().size(); ++d)
      text += (d ? ", " : "") + std::to_string(call.tensors[i].int_sizes()[d]);
    text += is_complex(call.tensors[i].dtype()) ? ", 2]" : "]";  // PyTorch sends pairs of real numbers
  }
  return text + "]";
}

PyObject* group_collective(PyObject* o, PyObject* const* args, Py_ssize_t n) {
  return guarded([&]() -> PyObject* {
    type_check(n == 7, "collective") << "expected kind, inputs, outputs, reduction, root, timeout, wait";
    Call call;
    call.kind = Kind(PyLong_AsLong(args[0]));
    add_tensors(call, call.input, "tensor", args[1]);
    size_t inputs = call.tensors.size();
    add_tensors(call, call.output, "output", args[2]);
    call.reduction = Reduction(PyLong_AsLong(args[3]));
    call.root = int(PyLong_AsLong(args[4]));
    call.timeout = PyFloat_AsDouble(args[5]);
    if (PyErr_Occurred()) throw PythonError();
    if (!call.tensors.empty()) {
      bool by_output = call.kind == Kind::scatter || call.kind == Kind::reduce_scatter;
      const Tensor& t = call.tensors[by_output ? inputs : 0];
      call.dtype = t.dtype();
      call.sizes.assign(t.int_sizes().begin(), t.int_sizes().end());
      if (call.kind == Kind::all_reduce)
        for (size_t i = 1; i < inputs; ++i)
          call.sizes.insert(call.sizes.end(), call.tensors[i].int_sizes().begin(),
                            call.tensors[i].int_sizes().end());
      for (const Tensor& other : call.tensors)
        value_check(other.dtype() == call.dtype, name(call.kind))
            << "tensors of " << name(other.dtype()) << " and " << name(call.dtype) << ", which must be equal";
    }
    bool reduces =
        call.kind == Kind::all_reduce || call.kind == Kind::reduce || call.kind == Kind::reduce_scatter;
    if (reduces) check_reduction(name(call.kind), call.reduction, call.dtype);
    arrange(group(o), call);
    call.site = call_site();
    for (size_t i = inputs; i < call.tensors.size(); ++i) call.tensors[i].bump_version();
    profile::Scope scope(profile::Category::library, "gloo:", name(call.kind));
    if (profile::wants_shapes()) scope.describe(shapes_text(call, inputs), "");
    auto w = make_ref<Work>(std::move(call));
    if (is_true(args[6])) {
      WithoutGil free;
      group(o).run(*w);
    } else {
      group(o).submit(w);
      return wrap_work(w);
    }
    Py_RETURN_NONE;
  });
}

// The usual all_reduce of one tensor on the calling thread. False: the tensor needs what collective() does before.
PyObject* group_all_reduce(PyObject* o, PyObject* const* args, Py_ssize_t n) {
  return guarded([&]() -> PyObject* {
    type_check(n == 3, "all_reduce") << "expected tensor, reduction, timeout";
    if (!is_tensor(args[0])) Py_RETURN_FALSE;
    Call call;
    call.kind = Kind::all_reduce;
    Tensor t = tensor_argument("all_reduce", "tensor", args[0]);
    bool is_usual = t.device().type == DeviceType::cpu && !is_sparse(t) && !is_complex(t.dtype());
    if (!is_usual || !t.is_contiguous() || t.impl()->is_lazy()) Py_RETURN_FALSE;
    call.reduction = Reduction(PyLong_AsLong(args[1]));
    call.timeout = PyFloat_AsDouble(args[2]);
    if (PyErr_Occurred()) throw PythonError();
    call.dtype = t.dtype();
    check_reduction("all_reduce", call.reduction, call.dtype);
    call.sizes.assign(t.int_sizes().begin(), t.int_sizes().end());
    size_t bytes = size_t(t.numel().concrete()) * size_t(t.itemsize());
    call.input = {{bytes ? static_cast<char*>(t.data_ptr()) : nullptr, bytes}};
    call.output = call.input;
    call.site = call_site();
    t.bump_version();
    profile::Scope scope(profile::Category::library, "gloo:", "all_reduce");
    if (profile::wants_shapes()) {
      call.tensors.push_back(t);
      scope.describe(shapes_text(call, 1), "");
    }
    Work w(std::move(call));
    WithoutGil free;
    group(o).run(w);
    Py_RETURN_TRUE;
  });
}

PyObject* group_message(PyObject* o, PyObject* const* args, Py_ssize_t n) {
  return guarded([&]() -> PyObject* {
    type_check(n == 5, "message") << "expected is_send, tensor, peer, tag, timeout";
    Call call;
    call.kind = is_true(args[0]) ? Kind::send : Kind::recv;
    PyRef list = checked(PyTuple_Pack(1, args[1]));
    add_tensors(call, call.kind == Kind::send ? call.input : call.output, "tensor", list.get());
    call.root = int(PyLong_AsLong(args[2]));
    call.tag = PyLong_AsLongLong(args[3]);
    call.timeout = PyFloat_AsDouble(args[4]);
    if (PyErr_Occurred()) throw PythonError();
    value_check(call.root >= -1 && call.root < group(o).size() && call.root != group(o).rank(),
                name(call.kind))
        << "rank " << call.root << " is no other rank of the group";
    call.dtype = call.tensors[0].dtype();
    call.site = call_site();
    if (call.kind == Kind::recv) call.tensors[0].bump_version();
    profile::Scope scope(profile::Category::library,
                         "gloo:", call.root < 0 ? "recvAnySource" : name(call.kind));
    if (profile::wants_shapes()) scope.describe(shapes_text(call, 1), "");
    auto w = make_ref<Work>(std::move(call));
    group(o).submit_message(w);
    return wrap_work(w);
  });
}

PyObject* group_abort(PyObject* o, PyObject* reason) {
  return guarded([&] {
    group(o).abort(std::string(text_of(reason)));
    return Py_NewRef(Py_None);
  });
}

PyObject* group_failure(PyObject* o, PyObject*) {
  return guarded([&] { return unicode(group(o).failure()); });
}

PyObject* group_leave(PyObject* o, PyObject*) {
  return guarded([&] {
    WithoutGil free;
    group(o).leave();
    return Py_NewRef(Py_None);
  });
}

PyObject* group_is_local(PyObject* o, PyObject* rank) {
  return guarded([&] {
    long r = PyLong_AsLong(rank);
    value_check(r >= 0 && r < group(o).size(), "is_local") << "rank " << r;
    return PyBool_FromLong(group(o).is_local(int(r)));
  });
}

PyObject* group_records(PyObject* o, PyObject*) {
  return guarded([&] { return unicode(group(o).records()); });
}

PyObject* group_sequence(PyObject* o, PyObject*) {
  return PyLong_FromUnsignedLongLong(group(o).next_sequence());
}

// ---- work

PyObject* work_is_done(PyObject* o, PyObject*) { return PyBool_FromLong(work(o).is_done()); }

PyObject* work_wait(PyObject* o, PyObject* seconds) {
  return guarded([&]() -> PyObject* {
    double limit = PyFloat_AsDouble(seconds);
    if (PyErr_Occurred()) throw PythonError();
    bool done;
    {
      WithoutGil free;
      done = work(o).wait(limit, check_interrupt);
    }
    return PyBool_FromLong(done);
  });
}

PyObject* work_error(PyObject* o, PyObject*) {
  return guarded([&]() -> PyObject* {
    std::exception_ptr error = work(o).error();
    if (!error) Py_RETURN_NONE;
    try {
      std::rethrow_exception(error);
    } catch (...) { set_python_error(); }
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    return value;
  });
}

PyObject* work_then(PyObject* o, PyObject* f) {
  return guarded([&] {
    auto callback = std::make_shared<AnyThreadRef>(f);
    auto call = [callback] {
      WithGil gil;
      PyObject* result = PyObject_CallNoArgs(callback->get());
      if (result) Py_DECREF(result);
      else PyErr_WriteUnraisable(callback->get());
    };
    WithoutGil free;
    work(o).then(call);
    return Py_NewRef(Py_None);
  });
}

PyObject* work_source(PyObject* o, PyObject*) { return PyLong_FromLong(work(o).source.load()); }
PyObject* work_duration(PyObject* o, PyObject*) { return PyLong_FromLongLong(work(o).duration_ns.load()); }

PyMethodDef group_methods[] = {
    {"address", group_address, METH_NOARGS, "What the other ranks need to know of this one."},
    {"open", group_open, METH_O, "open(addresses) -> [bool]: which ranks this one shares memory with."},
    {"connect", group_connect, METH_VARARGS,
     "connect([[bool]], timeout, check): with what open() gave on each rank; check() raises to end the wait."},
    {"collective", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(group_collective)), METH_FASTCALL,
     nullptr},
    {"all_reduce", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(group_all_reduce)), METH_FASTCALL,
     "all_reduce(tensor, reduction, timeout) -> False if the tensor needs collective()."},
    {"message", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(group_message)), METH_FASTCALL,
     nullptr},
    {"abort", group_abort, METH_O, "abort(reason): every operation of every rank raises it from now on."},
    {"failure", group_failure, METH_NOARGS, "Why the group has ended; empty if it has not."},
    {"leave", group_leave, METH_NOARGS, "Ends the group on this rank."},
    {"is_local", group_is_local, METH_O, "Whether a rank is reached by shared memory."},
    {"records", group_records, METH_NOARGS, "The flight recorder, as JSON."},
    {"sequence", group_sequence, METH_NOARGS, "The number of collectives so far."},
    {nullptr, nullptr, 0, nullptr}};
PyType_Slot group_slots[] = {{Py_tp_new, reinterpret_cast<void*>(group_new)},
                             {Py_tp_dealloc, reinterpret_cast<void*>(group_dealloc)},
                             {Py_tp_methods, group_methods},
                             {0, nullptr}};
PyType_Spec group_spec = {"facula._C.Group", sizeof(GroupObject), 0, Py_TPFLAGS_DEFAULT, group_slots};

PyMethodDef work_methods[] = {{"is_done", work_is_done, METH_NOARGS, nullptr},
                              {"wait", work_wait, METH_O, "wait(seconds) -> whether it is done"},
                              {"error", work_error, METH_NOARGS,
                               "The exception that it ended with, or None."},
                              {"then", work_then, METH_O, "then(f): calls f() when it is done."},
                              {"source", work_source, METH_NOARGS, "The rank that a message came from."},
                              {"duration_ns", work_duration, METH_NOARGS, nullptr},
                              {nullptr, nullptr, 0, nullptr}};
PyType_Slot work_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(work_dealloc)},
                            {Py_tp_methods, work_methods},
                            {0, nullptr}};
PyType_Spec work_spec = {"facula._C.GroupWork", sizeof(WorkObject), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, work_slots};

// ---- pulses

PyObject* pulse_new(PyTypeObject* type, PyObject* args, PyObject*) {
  return guarded([&]() -> PyObject* {
    int socket, other, pid;
    if (!PyArg_ParseTuple(args, "iii:Pulse", &socket, &other, &pid)) return nullptr;
    auto created = make_ref<Pulse>(socket, other, pid);
    PyObject* o = type->tp_alloc(type, 0);
    if (!o) throw PythonError();
    reinterpret_cast<PulseObject*>(o)->value = created.detach();
    return o;
  });
}

void pulse_dealloc(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  if (Pulse* p = reinterpret_cast<PulseObject*>(o)->value) p->release();
  type->tp_free(o);
  Py_DECREF(type);
}

PyObject* pulse_fileno(PyObject* o, PyObject*) { return PyLong_FromLong(pulse(o).ended()); }

PyObject* pulse_how(PyObject* o, PyObject*) {
  return guarded([&] { return unicode(pulse(o).how()); });
}

PyObject* pulse_leave(PyObject* o, PyObject*) {
  return guarded([&] {
    pulse(o).leave();
    return Py_NewRef(Py_None);
  });
}

PyMethodDef pulse_methods[] = {{"fileno", pulse_fileno, METH_NOARGS,
                                "A descriptor that is readable when the connection has ended."},
                               {"how", pulse_how, METH_NOARGS,
                                "How the other process went; empty if it is there, or left in order."},
                               {"leave", pulse_leave, METH_NOARGS, "Leaves in order."},
                               {nullptr, nullptr, 0, nullptr}};
PyType_Slot pulse_slots[] = {{Py_tp_new, reinterpret_cast<void*>(pulse_new)},
                             {Py_tp_dealloc, reinterpret_cast<void*>(pulse_dealloc)},
                             {Py_tp_methods, pulse_methods},
                             {0, nullptr}};
PyType_Spec pulse_spec = {"facula._C.Pulse", sizeof(PulseObject), 0, Py_TPFLAGS_DEFAULT, pulse_slots};

PyObject* read_group_memory(PyObject*, PyObject* path) {
  return guarded([&] {
    RankStatus s = read_status(std::string(text_of(path)));
    return Py_BuildValue("{s:s, s:s, s:s, s:i, s:i, s:i, s:K, s:O, s:d, s:d}", "token", s.token.c_str(),
                         "operation", s.operation.c_str(), "site", s.site.c_str(), "rank", s.rank, "size",
                         s.size, "pid", s.pid, "finished", (unsigned long long)s.finished, "waiting",
                         s.waiting ? Py_True : Py_False, "waiting_s", s.waiting_s, "mean_ms", s.mean_ms);
  });
}
PyObject* read_group_records(PyObject*, PyObject* path) {
  return guarded([&] { return unicode(read_records(std::string(text_of(path)))); });
}
PyMethodDef functions[] = {{"read_group_memory", read_group_memory, METH_O,
                            "The state of a rank, from the file of its shared memory."},
                           {"read_group_records", read_group_records, METH_O,
                            "The flight recorder of a rank, from the same file, as JSON."},
                           {nullptr, nullptr, 0, nullptr}};

}  // namespace

void add_distributed(PyObject* module) {
  GroupType = add_type(module, &group_spec);
  WorkType = add_type(module, &work_spec);
  add_type(module, &pulse_spec);
  add_functions(module, functions);
}

}  // namespace facula::bind
