#include "compiled.h"

#include <algorithm>
#include <atomic>
#include <map>

#include "../autograd.h"
#include "../generator.h"
#include "../graph.h"
#include "../override.h"
#include "../torch_dispatch.h"
#include "facula/autograd/autograd.h"
#include "facula/autograd/forward.h"
#include "facula/autograd/node.h"
#include "facula/autograd/tracing.h"
#include "facula/base/log.h"
#include "facula/graph/break.h"
#include "segment.h"

namespace facula::bind::capture {

namespace {

// The segments that begin in a state, the last used first.
struct Place {
  std::vector<std::shared_ptr<Segment>> segments;
  Changing changing;
  int failures = 0;
  bool plain = false;  // it is no longer captured
};

enum class Dynamic : uint8_t { automatic, always, never };

struct State {
  Dynamic dynamic = Dynamic::automatic;
  PyRef function;
  std::string name;
  PyRef backend;  // a function of Python that makes the runners of programs, or null
  bool fullgraph = false, enabled = true;
  bool called = false;  // under Stance::eager_then_compile
  size_t limit = 64;
  std::map<StateKey, Place> places;
  Place* begin = nullptr;        // of the function's begin, among `places`
  size_t locals = 0;             // slots of the function's frame
  int positional = -1;           // the number of its arguments, if all of them are positional
  std::vector<PyObject*> roots;  // memory for the guards of the next call
  std::vector<PyRef> values;
  std::vector<BreakReport> breaks;
  size_t captures = 0, hits = 0, plain_runs = 0;
};

struct CompiledObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  State* state;
  PyObject *dict, *weakrefs;
};
PyTypeObject* CompiledType;
State& state_of(PyObject* o) { return *reinterpret_cast<CompiledObject*>(o)->state; }

thread_local int capturing = 0;
struct Capturing {
  Capturing() { ++capturing; }
  ~Capturing() { --capturing; }
};

constexpr int kFailures = 4;  // of one state, until it is run plainly

// How calls of compiled functions are treated (facula.compiler.set_stance, in this order).
enum class Stance : int { normal, force_eager, eager_then_compile, eager_on_recompile, fail_on_recompile };
std::atomic<Stance> stance = Stance::normal;

// A debugger, a profiler of Python, a mode, hooks of saved tensors, anomaly detection or another trace see each call: the function
// itself runs.
bool must_run_plainly() {
  PyThreadState* t = PyThreadState_Get();
  return capturing || modes_active || autograd::Tracing::current() || autograd::forward_level() ||
         t->c_tracefunc || t->c_profilefunc || op::Mode::current() || autograd::inference_enabled() ||
         autograd::saved_hook() || autograd::anomaly_enabled() || has_dispatch_mode();
}

void log_break(const State& s, const BreakReport& b) {
  if (!log_on(Log::breaks) || b.quiet) return;
  std::string text = s.name + ", " + b.file + ":" + std::to_string(b.line) + ": " + b.reason;
  if (!b.fix.empty()) text += "\n  hint: " + b.fix;
  log_line(Log::breaks, text);
}

// No tensor that the program writes shares memory with another of its inputs.
bool are_separate(const Segment& s, const std::vector<PyRef>& values) {
  if (!s.program) return true;
  auto& w = s.program->writes;
  if (std::find(w.begin(), w.end(), true) == w.end()) return true;
  std::vector<std::pair<const StorageImpl*, bool>> memory;
  for (size_t k = 0; k < s.inputs.size(); ++k)
    if (s.inputs[k] >= 0 && is_tensor(values[size_t(s.inputs[k])].get()))
      memory.emplace_back(impl_of(values[size_t(s.inputs[k])].get())->storage.get(), w[k]);
  std::sort(memory.begin(), memory.end());
  for (size_t k = 1; k < memory.size(); ++k)
    if (memory[k].first && memory[k].first == memory[k - 1].first &&
        (memory[k].second || memory[k - 1].second))
      return false;
  return true;
}

// The state in which a capture begins. A capture that fails takes its writes back and advances no iterator from outside, so
// that the function can run plainly from here.
class Start {
 public:
  Start(const Frames& frames, const Modes& modes)
      : modes_(modes), regions_(run::autocast_regions()), handled_(PyErr_GetHandledException()) {
    for (auto& f : frames) {
      frames_.push_back(std::make_unique<Frame>(*f));
      for (auto& o : f->stack)  // methods that leave blocks of `with`
        if (PyObject* self = o && PyCFunction_Check(o.get()) ? PyCFunction_GET_SELF(o.get()) : nullptr)
          if (is_grad_mode(self)) entered_.emplace_back(PyRef::share(self), modes_to_restore(self));
    }
  }
  void restore(Interpreter& in) {
    for (auto& f : in.frames) f->generator = {};  // it is not left, but runs in its frame of the beginning
    in.frames = std::move(frames_);
    for (auto& f : in.frames) {
      if (!f->generator) continue;
      GeneratorObject* g = generator_of(f->generator.get());
      delete std::exchange(g->frame, nullptr);
      g->running = true;
    }
    set_modes(modes_);
    for (auto& [mode, outer] : entered_) modes_to_restore(mode.get()) = outer;
    while (autograd::saved_hook()) autograd::pop_saved_hook();  // a capture begins where there is none
    while (run::autocast_regions() > regions_) run::exit_autocast_region();
    while (run::autocast_regions() < regions_) run::enter_autocast_region();
    PyErr_Clear();
    PyErr_SetHandledException(handled_ && handled_.get() != Py_None ? handled_.get() : nullptr);
  }

 private:
  Frames frames_;
  Modes modes_;
  std::vector<std::pair<PyRef, std::vector<bool>>> entered_;  // the modes whose blocks the frames are in
  int regions_;
  PyRef handled_;
};

class Run {
 public:
  Run(State& s) : s_(s), values_(std::move(s.values)) { in_.backend = s.backend.get(); }
  ~Run() { s_.values = std::move(values_); }

  // Goes on in a state behind a break.
  PyObject* go_on(Frames frames, const BreakReport& report) {
    in_.frames = std::move(frames);
    in_.report = report;
    return go_on(Interpreter::Stop::broke);
  }

  PyObject* call(std::unique_ptr<Frame> frame) {
    in_.frames.push_back(std::move(frame));
    return go_on(advance());
  }

 private:
  PyObject* go_on(Interpreter::Stop stop) {
    in_.depth_limit = 150;
    while (true) {
      if (stop == Interpreter::Stop::broke && !in_.report.is_behind) stop = in_.step();
      if (stop == Interpreter::Stop::raised) return nullptr;
      if (stop == Interpreter::Stop::returned) return in_.result.detach();
      in_.report.is_behind = false;
      stop = advance();
    }
  }

  // Runs a segment that fits, or captures one.
  Interpreter::Stop advance() {
    bool begins = in_.frames.size() == 1 && in_.frame().ip == 0;
    if (begins && !s_.begin) s_.begin = &s_.places[key_of(in_.frames)];
    Place& place = begins ? *s_.begin : s_.places[key_of(in_.frames)];
    if (place.plain || must_run_plainly()) return plainly();  // a part between two segments may enter a mode
    roots_ = roots_of(in_.frames);
    modes_ = modes_now();
    std::string misses;
    for (size_t k = 0; k < place.segments.size(); ++k) {
      auto segment = place.segments[k];
      const char* why = nullptr;
      if (!fits(*segment, place, misses, why)) continue;
      if (k)
        std::rotate(place.segments.begin(), place.segments.begin() + std::ptrdiff_t(k),
                    place.segments.begin() + std::ptrdiff_t(k) + 1);
      auto stop = replay(*segment);
      if (!failed_) return stop;
      if (program_raises_) return plainly();
      misses += "\n  not: the program raises " + *failed_;
    }
    return capture(place, misses);
  }

  // All numbers and sizes that differ from the captured ones stay free in the next capture.
  void generalize(Segment& segment, Place& place) {
    std::vector<PyRef> values(segment.list.sources.size());
    for (auto& g : segment.list.guards)
      if (!holds(segment.list, g, roots_, values))
        generalize(g, values[size_t(g.source)].get(), segment, place);
  }
  void generalize(const Guard& failed, PyObject* now, const Segment& segment, Place& place) {
    bool number = failed.kind == Guard::Kind::equal &&
                  (PyLong_CheckExact(failed.expected.get()) || PyFloat_CheckExact(failed.expected.get()));
    auto path = [&] { return segment.list.path(failed.source, names_of_roots(in_.frames)); };
    if (number && now && Py_TYPE(now) == Py_TYPE(failed.expected.get()))
      place.changing.numbers.insert(path());
    if (failed.kind == Guard::Kind::is && to_generator(failed.expected.get()) && now && to_generator(now))
      place.changing.numbers.insert(path());
    bool tensor = failed.kind == Guard::Kind::tensor && now && is_tensor(now);
    if (!tensor || s_.dynamic == Dynamic::never || place.changing.free_sizes == FreeSizes::none) return;
    auto& was = segment.list.tensors[size_t(failed.number)];
    auto& t = *impl_of(now);
    if (t.sizes.size() != was.sizes.size() || t.dtype != was.dtype) return;
    std::vector<bool> changed(t.sizes.size());
    for (size_t d = 0; d < was.sizes.size(); ++d)
      changed[d] = t.sizes[d].hint() != was.sizes[d] && t.sizes[d].hint() >= 2 && was.sizes[d] >= 2;
    if (std::ranges::find(changed, true) == changed.end()) return;
    auto& all = place.changing.sizes[path()];
    all.changed.resize(t.sizes.size());
    for (size_t d = 0; d < changed.size(); ++d) all.changed[d] = all.changed[d] || changed[d];
    all.earlier = was.sizes;
  }

  bool fits(Segment& segment, Place& place, std::string& misses, const char* why) {
    const Guard* failed = nullptr;
    if (!(segment.modes == modes_))
      why = "gradient mode, autocast, the default dtype, the default device or deterministic memory differ";
    else if ((failed = first_failure(segment, roots_, values_)) == nullptr) {
      if (are_separate(segment, values_)) return true;
      why = "a tensor that is written shares memory with another";
    }
    values_.clear();
    if (failed) generalize(segment, place);
    if (!log_on(Log::recompiles) && stance != Stance::fail_on_recompile) return false;
    auto names = names_of_roots(in_.frames);
    misses += "\n  not: " + (failed ? segment.list.text(*failed, names) : std::string(why));
    if (failed) misses += " (line " + std::to_string(failed->line) + ")";
    return false;
  }

  Interpreter::Stop replay(Segment& segment) {
    ++s_.hits;
    failed_.reset();
    PyRef result;
    try {
      result = run_segment(segment, values_, in_.frames);
    } catch (const ProgramFailed& e) {  // nothing was written
      failed_ = e.text;
      program_raises_ = e.accepts;
      values_.clear();
      return Interpreter::Stop::raised;
    } catch (const PythonError&) {
      values_.clear();
      return Interpreter::Stop::raised;
    }
    roots_.clear();
    clear_values(segment, values_);
    in_.report = segment.report;
    if (!segment.returns) return Interpreter::Stop::broke;
    in_.result = std::move(result);
    return Interpreter::Stop::returned;
  }

  Interpreter::Stop plainly() {
    ++s_.plain_runs;
    roots_.clear();
    return in_.run();
  }

  Interpreter::Stop capture(Place& place, const std::string& misses) {
    if (stance == Stance::eager_on_recompile) {
      log("is not captured: the stance is eager_on_recompile", misses);
      return plainly();
    }
    runtime_check(stance != Stance::fail_on_recompile, "compile")
        << s_.name << " has to be captured, and the stance is fail_on_recompile" << misses;
    if (place.segments.size() >= s_.limit) {
      log("has " + std::to_string(s_.limit) + " segments that begin here, and runs plainly from here on",
          misses);
      place.plain = true;
      return plainly();
    }
    roots_.clear();
    values_.clear();
    Frame& f = in_.frame();
    std::string where =
        std::string(text_of(f.code->get()->co_filename)) + ":" + std::to_string(f.code->line_of(f.ip));
    ++s_.captures;
    Start start(in_.frames, modes_);
    CaptureResult c;
    try {
      Capturing here;
      auto& sizes = place.changing.free_sizes;
      if (s_.dynamic == Dynamic::never) sizes = FreeSizes::none;
      if (s_.dynamic == Dynamic::always && sizes != FreeSizes::none) sizes = FreeSizes::all;
      c = capture_segment(in_, s_.name, place.changing);
    } catch (const Error& e) {
      if (in_.program_failed) return program_failed(e, start);
      if (!in_.has_effects && adds_stop(e, place.changing.stops)) {
        start.restore(in_);
        return capture(place, misses);
      }
      auto& sizes = place.changing.free_sizes;
      bool any_free = sizes == FreeSizes::all || (sizes != FreeSizes::none && !place.changing.sizes.empty());
      if (any_free) {  // sizes as symbols may be the reason
        sizes = sizes == FreeSizes::related ? FreeSizes::changed : FreeSizes::none;
        --place.failures;
      }
      if (in_.has_effects) throw;
      log(std::string("cannot be captured: ") + e.what(), "");
      if (++place.failures >= kFailures) place.plain = true;
      start.restore(in_);
      return plainly();
    }
    log("captured from " + where, misses);
    note(place, c);
    return c.stop;
  }

  // Whether a capture that stops in front of something more may succeed where another has failed.
  bool adds_stop(const Error& e, Stops& stops) const {
    auto* why = graph::Break::find(e);
    auto add = [](bool& stop, bool met) { return met && !std::exchange(stop, true); };
    return add(stops.at_sizes, in_.met_sizes) ||
           add(stops.at_elements, why && why->reason == graph::BreakReason::unknown_size) ||
           add(stops.at_hooks, why && why->reason == graph::BreakReason::hooks) ||
           add(stops.at_backward, why && why->reason == graph::BreakReason::outside_history);
  }

  // The program of a segment raised an error when it was run for the first time, and its effects have been taken back. The
  // function runs plainly from the begin of the segment, and raises the error in its place.
  Interpreter::Stop program_failed(const Error& e, Start& start) {
    log(std::string("runs plainly, since its program raises ") + e.what(), "");
    start.restore(in_);
    return plainly();
  }

  void note(Place& place, CaptureResult& c) {
    if (c.stop == Interpreter::Stop::broke && !in_.report.quiet) {
      s_.breaks.push_back(in_.report);
      log_break(s_, in_.report);
      bool is_error =
          break_errors == BreakErrors::by_fullgraph ? s_.fullgraph : break_errors == BreakErrors::yes;
      if (is_error) {
        auto& b = in_.report;
        const char* why = break_errors == BreakErrors::yes ? "error_on_graph_break(True)" : "fullgraph=True";
        runtime_check(false, "compile")
            << why << ", and " << s_.name << " is divided at " << b.file << ":" << b.line << ": " << b.reason
            << hint(b.fix.empty() ? "compile it without fullgraph" : b.fix);
      }
    }
    if (c.segment) {
      log_segment(*c.segment);
      place.segments.insert(place.segments.begin(), c.segment);
    } else {
      log("cannot repeat this segment: " + c.reason, "");
      if (++place.failures >= kFailures) place.plain = true;
    }
  }

  void log(const std::string& text, const std::string& misses) {
    if (log_on(Log::recompiles)) log_line(Log::recompiles, s_.name + " " + text + misses);
  }
  void log_segment(const Segment& segment) {
    if (log_on(Log::graph))
      log_line(Log::graph, s_.name + "\n" + (segment.program ? segment.program->text() : "(no operators)"));
    if (!log_on(Log::guards)) return;
    std::string text = s_.name;
    std::vector<std::string> names;
    for (auto& g : segment.list.guards)
      if (g.kind != Guard::Kind::load) text += "\n  " + segment.list.text(g, names);
    log_line(Log::guards, text);
  }

  State& s_;
  Interpreter in_;
  std::vector<PyObject*> roots_;
  std::vector<PyRef> values_;
  std::optional<std::string> failed_;  // the error of the program that ran last
  bool program_raises_ = false;        // although its assumptions hold
  Modes modes_;
};

// The exception that Python code handles around a call, and the treatment of breaks; a call that ends inside of a handler or region
// restores them.
class OuterState {
 public:
  OuterState() : handled_(PyErr_GetHandledException()), errors_(break_errors) {}
  ~OuterState() {
    PyErr_SetHandledException(handled_ ? handled_.get() : nullptr);
    break_errors = errors_;
  }

 private:
  PyRef handled_;
  BreakErrors errors_;
};
// Runs the segment that was used last at the function's begin on positional arguments, without a frame. `fits`: whether it
// ran; if not, nothing has happened.
PyObject* begin(State& s, PyObject* function, PyObject* const* args, size_t n, bool& fits) {
  auto segment = s.begin->segments.front();
  fits = false;
  if (!(segment->modes == modes_now())) return nullptr;
  struct Scratch {  // a call inside of this one has its own
    State& state;
    std::vector<PyObject*> roots = std::move(state.roots);
    std::vector<PyRef> values = std::move(state.values);
    ~Scratch() {
      state.roots = std::move(roots);
      state.values = std::move(values);
    }
  } scratch{s};
  scratch.roots.assign(3 + s.locals, nullptr);
  scratch.roots[0] = function;
  std::copy(args, args + n, scratch.roots.begin() + 3);
  if (first_failure(*segment, scratch.roots, scratch.values) || !are_separate(*segment, scratch.values)) {
    scratch.values.clear();
    return nullptr;
  }
  Frames frames;
  PyRef result;
  try {
    result = run_segment(*segment, scratch.values, frames);
  } catch (const ProgramFailed&) {
    scratch.values.clear();
    return nullptr;
  } catch (const PythonError&) {
    scratch.values.clear();
    fits = true;
    return nullptr;
  }
  fits = true;
  ++s.hits;
  clear_values(*segment, scratch.values);
  return segment->returns ? result.detach() : Run(s).go_on(std::move(frames), segment->report);
}

bool is_interpretable(PyObject* function) {
  auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  constexpr int special = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE;
  return !(code->co_flags & special) && !code_of(PyFunction_GET_CODE(function)).refused;
}

PyObject* compiled_call(PyObject* o, PyObject* const* args, size_t flags, PyObject* kwnames) {
  State& s = state_of(o);
  PyObject* function = s.function.get();
  return guarded([&]() -> PyObject* {
    auto plain = [&] { return PyObject_Vectorcall(function, args, flags, kwnames); };
    if (!s.enabled || must_run_plainly()) return plain();
    if (stance == Stance::force_eager) return plain();
    OuterState outer;
    if (stance == Stance::eager_then_compile && !std::exchange(s.called, true)) return plain();
    auto n = size_t(PyVectorcall_NARGS(flags));
    if (int(n) == s.positional && !kwnames && s.begin && !s.begin->segments.empty() && !s.begin->plain) {
      PyRef alive = PyRef::share(o);
      bool fits;
      PyObject* result = begin(s, function, args, n, fits);
      if (fits) return result;
    }
    if (!is_interpretable(function)) return plain();
    auto frame = frame_of_call(function, args, size_t(PyVectorcall_NARGS(flags)), kwnames);
    if (!frame) return PyErr_Occurred() ? nullptr : plain();
    if (Py_EnterRecursiveCall(" in a compiled function")) return nullptr;
    struct Leave {
      ~Leave() { Py_LeaveRecursiveCall(); }
    } leave;
    PyRef alive = PyRef::share(o);
    Modes modes = modes_now();
    try {
      return Run(s).call(std::move(frame));
    } catch (const PythonError&) {
      throw;
    } catch (const Error&) {  // within `with` blocks of the function, which do not see it
      set_modes(modes);
      throw;
    }
  });
}

// ---- the object

PyObject* compiled_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  return guarded([&]() -> PyObject* {
    static const char* names[] = {"function", "name", "fullgraph", nullptr};
    PyObject* function;
    const char* name;
    int fullgraph = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!s|p:Compiled", const_cast<char**>(names),
                                     &PyFunction_Type, &function, &name, &fullgraph))
      return nullptr;
    auto* o = reinterpret_cast<CompiledObject*>(type->tp_alloc(type, 0));
    if (!o) return nullptr;
    o->vectorcall = compiled_call;
    if (type->tp_call == PyVectorcall_Call) {  // 3.11 does not inherit this for classes of Python
      type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
      type->tp_vectorcall_offset = offsetof(CompiledObject, vectorcall);
    }
    o->state = new State;
    o->state->function = PyRef::share(function);
    o->state->name = name;
    o->state->fullgraph = fullgraph;
    auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
    if (!code->co_kwonlyargcount && !(code->co_flags & (CO_VARARGS | CO_VARKEYWORDS)))
      o->state->positional = code->co_argcount;
    o->state->locals = size_t(code->co_nlocalsplus);
    return reinterpret_cast<PyObject*>(o);
  });
}

int compiled_traverse(PyObject* o, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(o));
  Py_VISIT(reinterpret_cast<CompiledObject*>(o)->dict);
  State* s = reinterpret_cast<CompiledObject*>(o)->state;
  if (!s) return 0;
  Py_VISIT(s->function.get());
  Py_VISIT(s->backend.get());
  for (auto& [key, place] : s->places)
    for (auto& segment : place.segments) {
      if (segment.use_count() > 1) continue;
      for (auto& g : segment->list.guards) Py_VISIT(g.expected.get());
      for (auto& source : segment->list.sources) Py_VISIT(source.key.get());
      for (auto& i : segment->values.instructions) Py_VISIT(i.object.get());
    }
  return 0;
}
int compiled_clear(PyObject* o) {
  auto* c = reinterpret_cast<CompiledObject*>(o);
  Py_CLEAR(c->dict);
  if (c->state) {
    auto places = std::move(c->state->places);
    c->state->places.clear();
    c->state->begin = nullptr;
    c->state->enabled = false;
  }
  return 0;
}
void compiled_dealloc(PyObject* o) {
  PyObject_GC_UnTrack(o);
  auto* c = reinterpret_cast<CompiledObject*>(o);
  if (c->weakrefs) PyObject_ClearWeakRefs(o);
  compiled_clear(o);
  delete std::exchange(c->state, nullptr);
  PyTypeObject* t = Py_TYPE(o);
  t->tp_free(o);
  Py_DECREF(t);
}
PyObject* compiled_bind(PyObject* o, PyObject* self, PyObject*) {
  return self && self != Py_None ? PyMethod_New(o, self) : Py_NewRef(o);
}

PyObject* compiled_reset(PyObject* o, PyObject*) {
  State& s = state_of(o);
  auto places = std::move(s.places);
  s.places.clear();
  s.begin = nullptr;
  s.breaks.clear();
  s.captures = s.hits = s.plain_runs = 0;
  Py_RETURN_NONE;
}
PyObject* compiled_report(PyObject* o, PyObject*) {
  return guarded([&]() -> PyObject* {
    State& s = state_of(o);
    PyRef segments = checked(PyList_New(0)), breaks = checked(PyList_New(0));
    for (auto& [key, place] : s.places)
      for (auto& segment : place.segments) {
        std::string guards;
        for (auto& g : segment->list.guards)
          if (g.kind != Guard::Kind::load) guards += segment->list.text(g, {}) + "\n";
        std::string graph = segment->program ? segment->program->text() : "";
        PyRef program = PyRef::share(Py_None);
        if (segment->program) {
          auto& part = segment->program->segment;
          program = checked(wrap_program(Program(std::shared_ptr<run::Traced>(part, &part->program()))));
        }
        PyRef row = checked(Py_BuildValue("{s:O,s:s,s:s,s:n,s:n,s:n,s:n}", "program", program.get(), "guards",
                                          guards.c_str(), "graph", graph.c_str(), "calls",
                                          Py_ssize_t(segment->program ? segment->program->calls() : 0),
                                          "runs", Py_ssize_t(segment->runs), "guard_count",
                                          Py_ssize_t(segment->list.guards.size()), "returns",
                                          Py_ssize_t(segment->returns)));
        checked(PyList_Append(segments.get(), row.get()));
      }
    for (auto& b : s.breaks) {
      PyRef row = checked(Py_BuildValue("(siss)", b.file.c_str(), b.line, b.reason.c_str(), b.fix.c_str()));
      checked(PyList_Append(breaks.get(), row.get()));
    }
    return Py_BuildValue("{s:O,s:O,s:n,s:n,s:n}", "segments", segments.get(), "breaks", breaks.get(),
                         "captures", Py_ssize_t(s.captures), "hits", Py_ssize_t(s.hits), "plain_runs",
                         Py_ssize_t(s.plain_runs));
  });
}
PyObject* get_enabled(PyObject* o, void*) { return PyBool_FromLong(state_of(o).enabled); }
int set_enabled(PyObject* o, PyObject* value, void*) {
  int on = value ? PyObject_IsTrue(value) : 0;
  if (on < 0) return -1;
  state_of(o).enabled = on;
  return 0;
}
PyObject* get_backend(PyObject* o, void*) {
  PyObject* backend = state_of(o).backend.get();
  return Py_NewRef(backend ? backend : Py_None);
}
int set_backend(PyObject* o, PyObject* value, void*) {
  state_of(o).backend = value && value != Py_None ? PyRef::share(value) : PyRef();
  return 0;
}
PyObject* get_dynamic(PyObject* o, void*) {
  auto d = state_of(o).dynamic;
  if (d == Dynamic::automatic) Py_RETURN_NONE;
  return PyBool_FromLong(d == Dynamic::always);
}
int set_dynamic(PyObject* o, PyObject* value, void*) {
  state_of(o).dynamic = !value || value == Py_None    ? Dynamic::automatic
                        : PyObject_IsTrue(value) == 1 ? Dynamic::always
                                                      : Dynamic::never;
  return 0;
}
PyObject* get_function(PyObject* o, void*) { return Py_NewRef(state_of(o).function.get()); }

PyMethodDef methods[] = {{"reset", compiled_reset, METH_NOARGS, "Forgets what was captured."},
                         {"report", compiled_report, METH_NOARGS,
                          "What was captured: segments, breaks, counts."},
                         {nullptr, nullptr, 0, nullptr}};
PyMemberDef members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(CompiledObject, vectorcall), READONLY,
                          nullptr},
                         {"__dictoffset__", T_PYSSIZET, offsetof(CompiledObject, dict), READONLY, nullptr},
                         {"__weaklistoffset__", T_PYSSIZET, offsetof(CompiledObject, weakrefs), READONLY,
                          nullptr},
                         {nullptr, 0, 0, 0, nullptr}};
PyGetSetDef getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {"enabled", get_enabled, set_enabled, "False: calls run the function itself.", nullptr},
    {"backend", get_backend, set_backend,
     "backend(program, names, inputs) -> function of the inputs that runs the program.", nullptr},
    {"dynamic", get_dynamic, set_dynamic,
     "Whether sizes may change: True, False, or None for those that have changed.", nullptr},
    {"function", get_function, nullptr, "The function that is captured.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(compiled_new)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(compiled_dealloc)},
                       {Py_tp_traverse, reinterpret_cast<void*>(compiled_traverse)},
                       {Py_tp_clear, reinterpret_cast<void*>(compiled_clear)},
                       {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                       {Py_tp_descr_get, reinterpret_cast<void*>(compiled_bind)},
                       {Py_tp_methods, methods},
                       {Py_tp_members, members},
                       {Py_tp_getset, getset},
                       {0, nullptr}};
PyType_Spec spec = {"facula._C.Compiled", sizeof(CompiledObject), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC |
                        Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
                    slots};
PyObject* capturing_now(PyObject*, PyObject*) { return PyBool_FromLong(capturing); }
PyObject* set_stance(PyObject*, PyObject* number) {
  int to = int(PyLong_AsLong(number));
  if (PyErr_Occurred()) return nullptr;
  return PyLong_FromLong(int(stance.exchange(Stance(to))));
}
PyObject* set_break_errors(PyObject*, PyObject* number) {
  int to = int(PyLong_AsLong(number));
  if (PyErr_Occurred()) return nullptr;
  return PyLong_FromLong(int(std::exchange(break_errors, BreakErrors(to))));
}
PyObject* set_capture_rule(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject *callable, *detail;
    int policy;
    if (!PyArg_ParseTuple(args, "OiO:set_capture_rule", &callable, &policy, &detail)) return nullptr;
    set_rule(callable, Policy(policy), detail);
    Py_RETURN_NONE;
  });
}
PyObject* captured_number(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject *dict, *key;
    Py_ssize_t k;
    int decides;
    if (!PyArg_ParseTuple(args, "O!Onp:captured_number", &PyDict_Type, &dict, &key, &k, &decides))
      return nullptr;
    runtime_check(current_recorder, "captured_number") << "is called while nothing is captured";
    return current_recorder->operand(dict, key, k, decides);
  });
}
PyObject* changes_between_captures(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    PyObject *dict, *key;
    Py_ssize_t k;
    if (!PyArg_ParseTuple(args, "O!On:changes_between_captures", &PyDict_Type, &dict, &key, &k))
      return nullptr;
    return PyBool_FromLong(current_recorder && current_recorder->is_changing(dict, key, k));
  });
}
PyMethodDef functions[] = {
    {"captured_number", captured_number, METH_VARARGS,
     "captured_number(dict, key, k, decides): the number, or item k of the tuple if k >= 0, as an operand of the captured "
     "program, which if it `decides` something serves numbers other than 0, or 0 alone."},
    {"changes_between_captures", changes_between_captures, METH_VARARGS,
     "changes_between_captures(dict, key, k): has this number differed from what a former capture saw?"},
    {"is_capturing", capturing_now, METH_NOARGS, "Is a compiled function being captured?"},
    {"set_compile_stance", set_stance, METH_O,
     "set_compile_stance(number) -> the number before, of facula.compiler.set_stance."},
    {"set_break_errors", set_break_errors, METH_O,
     "set_break_errors(number) -> the number before: -1 by fullgraph, 0 a break is no error, 1 it is one."},
    {"set_capture_rule", set_capture_rule, METH_VARARGS,
     "set_capture_rule(callable, policy, detail): how a capture treats its calls (_dynamo/policy.py)."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

PyObject* function_of_compiled(PyObject* o) {
  return PyObject_TypeCheck(o, CompiledType) ? state_of(o).function.get() : nullptr;
}
bool is_capturing() { return capturing; }

void add_capture(PyObject* module) {
  add_generator_type(module);
  CompiledType = add_type(module, &spec);
  add_functions(module, functions);
}

}  // namespace facula::bind::capture
