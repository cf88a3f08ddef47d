#include "segment.h"

#include "../types.h"

#include <algorithm>

#include "facula/autograd/autograd.h"
#include "facula/autograd/calls.h"
#include "facula/autograd/node.h"
#include "facula/base/deterministic.h"
#include "facula/base/dtype.h"

namespace facula::bind::capture {

thread_local Recorder* current_recorder = nullptr;

thread_local BreakErrors break_errors = BreakErrors::by_fullgraph;

Modes modes_now() {
  auto& a = run::autocast_state();
  return {autograd::grad_enabled(),
          autograd::inference_enabled(),
          a.enabled,
          a.cache,
          fill_uninitialized.load(std::memory_order_relaxed),
          a.dtype,
          default_dtype(),
          default_device(),
          break_errors};
}
void set_modes(const Modes& m) {
  autograd::set_grad_enabled(m.grad);
  run::set_autocast({m.autocast, m.autocast_dtype, m.cache});
  break_errors = m.break_errors;
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

std::vector<PyObject*> roots_of(const Frames& frames) {
  std::vector<PyObject*> all;
  for (auto& f : frames) each_slot(*f, [&](PyRef& s) { all.push_back(s.get()); });
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
      PyRef number;
      if (s) r.root(at, s.get(), &number);
      else r.null_root(at);
      if (number) s = number;
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

  void inputs(const RecordedProgram& p) {
    for (SourceId id : p.inputs) {
      if (id < 0) {
        const Tensor& tensor = p.fresh[size_t(-1 - id)];
        if (tensor.requires_grad()) {
          t.reason = "it reads a tensor that requires a gradient and that Python did not read";
          return;
        }
        PyRef object(wrap(tensor));
        int fresh = t.fresh_of(object.get());
        contents[size_t(fresh)] = p.fresh_before[size_t(-1 - id)];
        id = -1 - fresh;
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
      layout->named = f->named;
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

// Interprets, runs the program that was recorded, and makes its handles real; `numbers` becomes the numbers of its results.
void interpret(Interpreter& in, Recorder& r, Segment& segment, const std::string& name, CaptureResult& c,
               Exception& raised, std::unordered_map<PyObject*, int>& numbers) {
  struct Recording {
    Interpreter& in;
    Recorder* outer;
    ~Recording() {
      in.recorder = nullptr;
      current_recorder = outer;
    }
  } recording{in, std::exchange(current_recorder, &r)};
  in.recorder = &r;
  in.has_effects = in.program_failed = in.met_sizes = false;
  in.is_later_segment = in.frames.size() > 1 || in.frame().ip > 0;
  std::vector<PyObject*> results;
  auto body = [&] {
    c.stop = in.run();
    in.has_effects = !r.writes.empty();
    if (c.stop == Interpreter::Stop::raised) raised.take();
    in.met_sizes = r.sizes_failed || r.keeps_sizes();
    if (in.met_sizes) r.failure = "a size is used that is known only when the program has run";
  };
  Recorder::Region all(r);
  try {
    segment.program = record(body, r, results, name, in.backend);
  } catch (const Error&) {  // the call runs again, plainly
    all.undo();
    in.has_effects = false;
    in.program_failed = r.program_failed;
    throw;
  }
  for (size_t k = 0; k < results.size(); ++k) numbers[results[k]] = int(k);
}

}  // namespace

CaptureResult capture_segment(Interpreter& in, const std::string& name, const Changing& changing) {
  Recorder r;
  r.changing = changing.numbers.empty() ? nullptr : &changing.numbers;
  r.changing_sizes = changing.sizes.empty() ? nullptr : &changing.sizes;
  r.free_sizes = changing.free_sizes;
  r.stops = changing.stops;
  if (r.changing || r.changing_sizes || in.backend) r.root_names = names_of_roots(in.frames);
  auto segment = std::make_shared<Segment>();
  segment->modes = modes_now();
  int regions = run::autocast_regions();
  r.is_begin = true;
  begin(in, r);
  r.is_begin = false;
  std::vector<PyRef> running;  // generators
  for (auto& f : in.frames)
    if (f->generator) running.push_back(f->generator);
  CaptureResult c{Interpreter::Stop::raised, nullptr, ""};
  Exception raised;
  size_t closed = closed_generators();
  std::unordered_map<PyObject*, int> numbers;
  interpret(in, r, *segment, name, c, raised, numbers);
  if (raised.raise()) {
    c.reason = "it raised an exception";
    return c;
  }
  r.distinguish_written();
  Builder b{in, r, *segment, TemplateBuilder(r, std::move(numbers)), {}};
  b.t.reason = autograd::saved_hook() ? "it stops inside of saved_tensors_hooks" : r.once;
  if (segment->program) b.inputs(*segment->program);
  b.writes();
  segment->returns = c.stop == Interpreter::Stop::returned;
  if (segment->returns) segment->result = b.t.value(in.result.get());
  else b.state();
  for (auto& g : running) b.t.leave(g.get());
  PyRef handled(PyErr_GetHandledException());
  if (!segment->returns && handled && handled.get() != Py_None)
    b.t.reason = "it stops inside of an exception handler";
  if (closed_generators() != closed)
    b.t.reason = "it destroys a generator that waits inside of `try` or `with`";
  segment->modes_after = modes_now();
  segment->regions = run::autocast_regions() - regions;
  segment->report = in.report;
  c.reason = b.t.reason;
  if (!b.t.failed()) {
    b.finish();
    if (segment->program) segment->program->fresh.clear(), segment->program->fresh_before.clear();
    segment->list = std::move(r.list);
    c.segment = std::move(segment);
  }
  for (auto& f : in.frames) f->untouched.clear();
  for (auto& g : running)
    if (auto* frame = generator_of(g.get())->frame) (*frame)->untouched.clear();
  return c;
}

// ---- later calls

std::vector<SourceId> Segment::used_sources() const {
  std::vector<SourceId> all;
  for (int k : inputs)
    if (k >= 0) all.push_back(k);
  for (auto& i : values.instructions)
    if (i.kind == Template::Instruction::Kind::source) all.push_back(SourceId(i.number));
  return all;
}

const Guard* first_failure(Segment& s, Roots roots, std::vector<PyRef>& values) {
  constexpr int most_failures = 8;
  auto& list = s.list;
  if (auto stamps = s.stamps) {
    if (values.size() != list.sources.size()) values.assign(list.sources.size(), PyRef());
    if (stamps->hold(roots, values)) {
      for (size_t k : stamps->rest())
        if (!holds(list, list.guards[k], roots, values)) return &list.guards[k];
      return nullptr;
    }
    ++s.stamp_failures;
    s.stamps = nullptr;
  }
  if (auto* failed = first_failure(list, roots, values)) return failed;
  if (s.runs && s.stamp_failures < most_failures) {
    s.stamps = std::make_shared<Stamps>(list, values, s.used_sources());
    if (!s.stamps->useful()) s.stamps = nullptr, s.stamp_failures = most_failures;
  }
  return nullptr;
}

void clear_values(const Segment& s, std::vector<PyRef>& values) {
  if (s.stamps && values.size() == s.list.sources.size()) s.stamps->clear(values);
  else values.clear();
}

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

static Tensor input_of(PyObject* o) {
  if (is_tensor(o)) return tensor_of(o);
  Scalar number;
  if (!to_operand(o, number)) throw ProgramFailed{"a number is too large for an operand"};
  return run::number_input(number);
}

PyRef run_segment(Segment& s, const std::vector<PyRef>& values, Frames& frames) {
  ++s.runs;
  using Kind = Template::Instruction::Kind;
  std::vector<PyRef> results, fresh;
  for (auto& t : s.fresh) {
    autograd::GradMode off(false);
    fresh.push_back(checked(wrap(autograd::invoke("clone", {tensor_of(t.get())}))));
  }
  if (s.program) {
    std::vector<Tensor> inputs;
    inputs.reserve(s.inputs.size());
    for (int k : s.inputs)
      inputs.push_back(input_of((k >= 0 ? values[size_t(k)] : fresh[size_t(-1 - k)]).get()));
    std::vector<Tensor> tensors;
    try {
      tensors = s.program->run(inputs);
    } catch (const PythonError&) { throw; } catch (const Error& e) {
      throw ProgramFailed{e.what(), s.program->segment->accepts(inputs)};
    } catch (...) { throw ProgramFailed{"an error"}; }
    auto& instructions = s.values.instructions;
    bool is_only_result =
        s.returns && s.writes.empty() && instructions.size() == 1 && instructions[0].kind == Kind::result;
    if (is_only_result && s.modes_after == s.modes && !s.regions)
      return checked(wrap(tensors[size_t(instructions[0].number)]));
    for (auto& t : tensors) results.push_back(checked(wrap(t)));
  }
  auto created = s.values.make(values, results, fresh);
  for (auto& w : s.writes) repeat(w, created);
  s.values.place_iterators(created);
  if (s.modes_after != s.modes) set_modes(s.modes_after);
  for (int k = 0; k < s.regions; ++k) run::enter_autocast_region();
  for (int k = 0; k > s.regions; --k) run::exit_autocast_region();
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
    f->named = from.named;
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
