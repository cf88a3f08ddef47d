#include "segment.h"

#include <algorithm>

#include "facula/autograd/autograd.h"
#include "facula/autograd/calls.h"
#include "facula/base/dtype.h"

namespace facula::bind::capture {

Modes modes_now() {
  auto& a = run::autocast_state();
  return {autograd::grad_enabled(), autograd::inference_enabled(), a.enabled, a.cache, a.dtype,
          default_dtype()};
}
void set_modes(const Modes& m) {
  autograd::set_grad_enabled(m.grad);
  run::set_autocast({m.autocast, m.autocast_dtype, m.cache});
}

// ---- states

StateKey key_of(const Frames& frames) {
  StateKey key;
  for (auto& f : frames) {
    key.push_back(int64_t(reinterpret_cast<intptr_t>(f->code)));
    key.push_back(f->ip);
    key.push_back(int64_t(f->stack.size()));
    key.push_back(int64_t(f->role));
  }
  return key;
}

namespace {

template <class F>
void each_slot(Frame& f, F&& visit) {
  visit(f.function);
  visit(f.created);
  visit(f.generator);
  for (auto& s : f.locals) visit(s);
  for (auto& s : f.stack) visit(s);
}

}  // namespace

std::vector<PyRef> roots_of(const Frames& frames) {
  std::vector<PyRef> all;
  for (auto& f : frames) each_slot(*f, [&](PyRef& s) { all.push_back(s); });
  return all;
}

std::vector<std::string> names_of_roots(const Frames& frames) {
  std::vector<std::string> all;
  for (auto& f : frames) {
    all.insert(all.end(), {std::string(text_of(f->code->get()->co_name)), "self", "generator"});
    for (int k = 0; k < f->code->locals; ++k)
      all.emplace_back(text_of(PyTuple_GET_ITEM(f->code->get()->co_localsplusnames, k)));
    for (size_t k = 0; k < f->stack.size(); ++k) all.push_back("stack[" + std::to_string(k) + "]");
  }
  return all;
}

// ---- capture

namespace {

// Registers the slots of a state: variables when they are read first, the others at once.
void begin(Interpreter& in, Recorder& r) {
  Py_ssize_t at = 0;
  for (auto& f : in.frames) {
    if (f->function) {
      if (in.frames.size() == 1 && f->ip == 0) r.constant(f->function.get());
      else r.root(at, f->function.get());
    }
    for (auto* s : {&f->created, &f->generator})
      if (*s) r.root(at + (s == &f->created ? 1 : 2), s->get());
    f->first_root = at + 3;
    f->untouched.assign(f->locals.size(), true);
    for (size_t k = 0; k < f->locals.size(); ++k)
      if (!f->locals[k]) r.null_root(f->first_root + Py_ssize_t(k));
    at = f->first_root + Py_ssize_t(f->locals.size());
    for (auto& s : f->stack) {
      if (s) r.root(at, s.get());
      else r.null_root(at);
      ++at;
    }
  }
}

// The values of sources of a capture, for its own check.
struct Builder {
  Interpreter& in;
  Recorder& r;
  Segment& s;
  TemplateBuilder t;

  void inputs(RecordedProgram& p, const std::vector<Tensor>& before) {
    for (size_t k = 0; k < p.inputs.size(); ++k) {
      auto* o = static_cast<PyObject*>(p.inputs[k].impl()->py_object);
      SourceId id = o ? r.source_of(o) : kNoSource;
      if (id == kNoSource) {
        if (p.inputs[k].requires_grad()) {
          t.reason = "it reads a tensor that requires a gradient and that Python did not read";
          return;
        }
        PyRef object(wrap(p.inputs[k]));
        int fresh = t.fresh_of(object.get());
        id = -1 - fresh;
        contents[size_t(fresh)] = before[k];
      }
      s.inputs.push_back(id);
    }
  }
  std::map<size_t, Tensor> contents;  // of fresh tensors before the program ran

  void writes() {
    for (auto& w : r.writes)
      s.writes.push_back({w.kind, t.value(w.target.get()), t.value(w.key.get()), t.value(w.value.get())});
  }
  void state() {
    for (auto& f : in.frames) {
      auto layout = std::make_unique<Frame>();
      layout->code = f->code;
      layout->ip = f->ip;
      layout->last = f->last;
      layout->role = f->role;
      layout->globals = f->globals;
      layout->builtins = f->builtins;
      layout->locals.resize(f->locals.size());
      std::vector<int> slots{t.value(f->function.get()), t.value(f->created.get()),
                             t.value(f->generator.get())};
      for (size_t k = 0; k < f->locals.size(); ++k) {
        bool untouched = !f->untouched.empty() && f->untouched[k];
        slots.push_back(untouched ? t.root(f->first_root + Py_ssize_t(k), f->locals[k].get())
                                  : t.value(f->locals[k].get()));
      }
      for (auto& slot : f->stack) slots.push_back(t.value(slot.get()));
      s.layout.push_back(std::move(layout));
      s.slots.push_back(std::move(slots));
    }
  }
  void finish() {
    for (size_t k = 0; k < t.fresh.size(); ++k) {
      auto it = contents.find(k);
      Tensor now = tensor_of(t.fresh[k].get());
      autograd::GradMode off(false);
      s.fresh.push_back(PyRef(wrap(it != contents.end() ? it->second : autograd::invoke("clone", {now}))));
    }
    s.values = std::move(t.created);
  }
};

}  // namespace

namespace {

// An exception of Python that is set aside.
struct Exception {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  void take() { PyErr_Fetch(&type, &value, &trace); }
  bool raise() {
    if (!type) return false;
    PyErr_Restore(std::exchange(type, nullptr), value, trace);
    return true;
  }
  ~Exception() {
    if (!type) return;
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
  }
};

// The contents, before the program runs, of inputs that Python did not read: the segment makes them.
std::vector<Tensor> contents_of_inputs(const RecordedProgram& p, const Recorder& r) {
  autograd::GradMode off(false);
  std::vector<Tensor> all;
  for (auto& t : p.inputs) {
    auto* o = static_cast<PyObject*>(t.impl()->py_object);
    bool is_fresh = !o || !r.is_outside(o);
    all.push_back(is_fresh ? autograd::invoke("clone", {t.detached()}) : Tensor());
  }
  return all;
}

// Interprets, runs the program that was recorded, and makes its handles real; `numbers` becomes the numbers of its results.
std::vector<Tensor> interpret(Interpreter& in, Recorder& r, Segment& segment, const std::string& name,
                              CaptureResult& c, Exception& raised,
                              std::unordered_map<PyObject*, int>& numbers) {
  struct Recording {
    Interpreter& in;
    ~Recording() { in.recorder = nullptr; }
  } recording{in};
  in.recorder = &r;
  in.has_effects = false;
  std::vector<PyObject*> results;
  auto body = [&] {
    c.stop = in.run();
    in.has_effects = !r.writes.empty();
    if (c.stop == Interpreter::Stop::raised) raised.take();
  };
  segment.program = record(body, r.handles, results, name);
  if (!segment.program) return {};
  auto before = contents_of_inputs(*segment.program, r);
  auto tensors = segment.program->run(segment.program->inputs);
  for (size_t k = 0; k < results.size(); ++k) {
    set_real(results[k], tensors[k]);
    numbers[results[k]] = int(k);
  }
  return before;
}

}  // namespace

CaptureResult capture_segment(Interpreter& in, const std::string& name) {
  Recorder r;
  auto segment = std::make_shared<Segment>();
  segment->modes = modes_now();
  begin(in, r);
  CaptureResult c{Interpreter::Stop::raised, nullptr, ""};
  Exception raised;
  size_t closed = closed_generators();
  std::unordered_map<PyObject*, int> numbers;
  auto before = interpret(in, r, *segment, name, c, raised, numbers);
  if (raised.raise()) {
    c.reason = "it raised an exception";
    return c;
  }
  r.distinguish_written();
  Builder b{in, r, *segment, TemplateBuilder(r, std::move(numbers)), {}};
  if (segment->program) b.inputs(*segment->program, before);
  b.writes();
  segment->returns = c.stop == Interpreter::Stop::returned;
  if (segment->returns) segment->result = b.t.value(in.result.get());
  else b.state();
  PyRef handled(PyErr_GetHandledException());
  if (!segment->returns && handled && handled.get() != Py_None)
    b.t.reason = "it stops inside of an exception handler";
  if (closed_generators() != closed)
    b.t.reason = "it destroys a generator that waits inside of `try` or `with`";
  segment->modes_after = modes_now();
  segment->report = in.report;
  c.reason = b.t.reason;
  if (!b.t.failed()) {
    b.finish();
    if (segment->program) segment->program->inputs.clear();
    segment->list = std::move(r.list);
    c.segment = std::move(segment);
  }
  for (auto& f : in.frames) f->untouched.clear();
  return c;
}

// ---- later calls

namespace {

void repeat(const Segment::Repeat& w, const std::vector<PyRef>& values) {
  auto at = [&](int k) { return k < 0 ? nullptr : values[size_t(k)].get(); };
  PyObject *target = at(w.target), *key = at(w.key), *value = at(w.value);
  switch (w.kind) {
    case Write::Kind::set_attribute:
      if (PyType_Check(target)) checked(PyObject_SetAttr(target, key, value));
      else checked(PyObject_GenericSetAttr(target, key, value));
      if (is_tensor(target)) track(target);
      break;
    case Write::Kind::delete_attribute: checked(PyObject_GenericSetAttr(target, key, nullptr)); break;
    case Write::Kind::set_item: checked(PyObject_SetItem(target, key, value)); break;
    case Write::Kind::delete_item: checked(PyObject_DelItem(target, key)); break;
    case Write::Kind::set_cell: checked(PyCell_Set(target, value)); break;
    case Write::Kind::call: {
      PyRef method = checked(PyObject_GetAttr(target, key));
      checked(PyObject_CallObject(method.get(), value));
    }
  }
}

}  // namespace

PyRef run_segment(Segment& s, const std::vector<PyRef>& values, Frames& frames) {
  ++s.runs;
  std::vector<PyRef> results, fresh;
  for (auto& t : s.fresh) {
    autograd::GradMode off(false);
    fresh.push_back(checked(wrap(autograd::invoke("clone", {tensor_of(t.get())}))));
  }
  if (s.program) {
    std::vector<Tensor> inputs;
    for (int k : s.inputs)
      inputs.push_back(tensor_of((k >= 0 ? values[size_t(k)] : fresh[size_t(-1 - k)]).get()));
    std::vector<Tensor> tensors;
    try {
      tensors = s.program->run(inputs);
    } catch (const Error& e) { throw ProgramFailed{e.what()}; } catch (...) {
      throw ProgramFailed{"an error"};
    }
    for (auto& t : tensors) results.push_back(checked(wrap(t)));
  }
  auto created = s.values.make(values, results, fresh);
  for (auto& w : s.writes) repeat(w, created);
  if (s.modes_after != s.modes) set_modes(s.modes_after);
  auto at = [&](int k) { return k < 0 ? PyRef() : created[size_t(k)]; };
  if (s.returns) return at(s.result);
  Frames next;
  for (size_t k = 0; k < s.layout.size(); ++k) {
    auto& from = *s.layout[k];
    auto f = std::make_unique<Frame>();
    f->code = from.code;
    f->ip = from.ip;
    f->last = from.last;
    f->role = from.role;
    f->globals = from.globals;
    f->builtins = from.builtins;
    auto& slots = s.slots[k];
    f->function = at(slots[0]);
    f->created = at(slots[1]);
    f->generator = at(slots[2]);
    for (size_t i = 3; i < slots.size(); ++i)
      (i < 3 + from.locals.size() ? f->locals : f->stack).push_back(at(slots[i]));
    next.push_back(std::move(f));
  }
  frames = std::move(next);
  return {};
}

}  // namespace facula::bind::capture
