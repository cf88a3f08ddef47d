// Calls of the user's functions by C++ code in the middle of a capture.
#include "compiled.h"

#include <optional>
#include <utility>

#include "facula/autograd/autograd.h"
#include "facula/run/open_trace.h"
#include "interpreter.h"

namespace facula::bind::capture {

namespace {

// The changes of calls that the trace cannot take back: memory from outside or from before, and gradient slots.
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

thread_local UserCalls::State* innermost = nullptr;

}  // namespace

struct UserCalls::State {
  State() : region(*current_recorder), outer(std::exchange(innermost, this)) {}
  ~State() { innermost = outer; }
  void begin(const run::OpenTrace& t) {
    if (!before) before.emplace(t, values = t.values());
  }
  Recorder::Region region;
  State* outer;
  size_t values = 0;
  std::optional<Changes> before;  // the first call of a callable
  bool is_late = false;
};

UserCalls::UserCalls() : state_(std::make_unique<State>()) {}
UserCalls::~UserCalls() = default;

void UserCalls::take_back() {
  auto& s = *state_;
  if (!s.before) return;
  PyObject *type, *value, *at;
  PyErr_Fetch(&type, &value, &at);
  s.region.undo();
  PyErr_Restore(type, value, at);
  if (s.is_late || !(Changes(*run::OpenTrace::current(), s.values) == *s.before))
    current_recorder->failure =
        "a hook or a custom function cannot be captured, and tensors have been written";
}

bool take_warning(const char* text) {
  if (!current_recorder || !run::OpenTrace::current()) return false;
  return current_recorder->warn(PyExc_UserWarning, checked(unicode(text)).get());
}

PyObject* call_user(PyObject* callable, PyObject* const* args, size_t n, UserCall kind) {
  auto* trace = run::OpenTrace::current();
  Recorder* r = current_recorder;
  if (!r || !trace || !innermost) return PyObject_Vectorcall(callable, args, n, nullptr);
  innermost->begin(*trace);
  if (!kind.is_inner && !r->is_outside(callable) && !PyMethod_Check(callable)) r->constant(callable);
  for (size_t k = 0; k < n; ++k)
    if (is_tensor(args[k])) r->result(args[k]);
  Recorder::Region own(*r);
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
  bool done = stop == Interpreter::Stop::returned;
  if (done && !(kind.pure && own.has_writes())) return in.result.detach();
  innermost->is_late |= kind.is_late;
  if (stop == Interpreter::Stop::raised) return nullptr;
  if (done)
    in.report.reason = "a write to an object from outside, in a function that is called for gradients";
  PyErr_SetString(PyExc_RuntimeError, in.report.reason.c_str());
  return nullptr;
}

}  // namespace facula::bind::capture
