// Calls of the user's functions by C++ code in the middle of a capture.
#include "compiled.h"
#include "facula/autograd/autograd.h"
#include "facula/run/open_trace.h"
#include "interpreter.h"

namespace facula::bind::capture {

namespace {

// What calls have changed that the trace cannot take back: memory from outside or from before, and gradient slots.
struct Changes {
  Changes(const run::OpenTrace& t, size_t values) : writes(t.writes(values)) {
    for (auto& s : t.slots()) grads.push_back(autograd::ensure_meta(s.leaf).grad.impl());
  }
  bool operator==(const Changes&) const = default;
  int writes;
  std::vector<const TensorImpl*> grads;
};

std::unique_ptr<Frame> frame_of(PyObject* callable, PyObject* const* args, size_t n) {
  std::vector<PyObject*> all{callable};
  all.insert(all.end(), args, args + n);
  PyObject* function = polyfill("call_");
  current_recorder->constant(function);
  return frame_of_call(function, all.data(), all.size(), nullptr);
}

}  // namespace

PyObject* call_user(PyObject* callable, PyObject* const* args, size_t n, bool may_write) {
  auto* trace = run::OpenTrace::current();
  Recorder* r = current_recorder;
  if (!r || !trace) return PyObject_Vectorcall(callable, args, n, nullptr);
  Recorder::Region region(*r);
  if (!r->is_outside(callable) && !PyMethod_Check(callable)) r->constant(callable);
  for (size_t k = 0; k < n; ++k)
    if (is_tensor(args[k])) r->result(args[k]);
  size_t values = trace->values();
  Changes before(*trace, values);
  int line = r->line;
  Interpreter in;
  in.recorder = r;
  auto frame = frame_of(callable, args, n);
  if (!frame) return nullptr;
  in.frames.push_back(std::move(frame));
  if (Py_EnterRecursiveCall(" in a hook")) return nullptr;
  auto stop = in.run();
  Py_LeaveRecursiveCall();
  r->line = line;
  if (stop == Interpreter::Stop::returned && (may_write || !region.has_writes())) return in.result.detach();
  if (stop == Interpreter::Stop::returned) in.report.reason = "a write to an object from outside, in a backward";
  PyObject *type = nullptr, *value = nullptr, *at = nullptr;
  PyErr_Fetch(&type, &value, &at);
  region.undo();
  if (!(Changes(*trace, values) == before))
    r->failure = "a hook or a custom function cannot be captured, and has written tensors";
  if (type) {
    PyErr_Restore(type, value, at);
    return nullptr;
  }
  PyErr_SetString(PyExc_RuntimeError, in.report.reason.c_str());
  return nullptr;
}

}  // namespace facula::bind::capture
