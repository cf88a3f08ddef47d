// Records what a segment calls: an open trace, whose handles become real tensors at the end of the segment.
#include <algorithm>
#include <cctype>
#include <unordered_set>

#include "../graph.h"
#include "facula/autograd/autograd.h"
#include "facula/autograd/calls.h"
#include "segment.h"

namespace facula::bind::capture {

namespace {

// Lists handles that are the gradients of tensors from outside, which get them when the program runs.
void find_gradients(const run::OpenTrace& trace, Recorder& r) {
  for (auto& s : trace.slots()) {
    auto* leaf = static_cast<PyObject*>(s.leaf.impl()->py_object);
    auto* m = autograd::meta_of(s.leaf);
    auto* o = m && m->grad.defined() ? static_cast<PyObject*>(m->grad.impl()->py_object) : nullptr;
    if (leaf && o && impl_of(o)->traced) r.gradients[o] = leaf;
  }
}

// The handles that somebody besides the recorder and the trace refers to, each once, and that are no gradients of tensors from
// outside.
std::vector<PyObject*> living(const run::OpenTrace& trace, Recorder& r) {
  auto& handles = r.handles;
  std::unordered_set<PyObject*> seen;
  std::vector<PyRef> unique;
  for (auto& h : handles)
    if (seen.insert(h.get()).second) unique.push_back(h);
  handles = std::move(unique);
  auto of_trace = trace.own_references();
  std::vector<PyObject*> all;
  for (auto& h : handles) {
    auto* impl = impl_of(h.get());
    bool refers = Py_REFCNT(h.get()) > 1 || impl->use_count() > 1 + of_trace[impl];
    if (refers && impl->traced && !r.gradients.count(h.get())) all.push_back(h.get());
  }
  return all;
}

std::string operator_name(const std::string& called) {
  std::string name;
  for (char c : called)
    if (std::isalnum(static_cast<unsigned char>(c)) || (c == '_' && !name.empty())) name += c;
  return name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) ? "compiled" : name;
}

// Gradients that results retain: they are results of this call, and later calls have no place for them.
void add_retained(Recorder& r, std::vector<PyObject*>& results) {
  for (size_t k = 0, count = results.size(); k < count; ++k) {
    auto* meta = autograd::meta_of(tensor_of(results[k]));
    if (!meta || !meta->retained) continue;
    r.once = "a result retains its gradient";
    Tensor grad = meta->retained->grad;
    if (!grad.defined() || !grad.is_traced()) continue;
    r.handles.emplace_back(checked(wrap(grad)));
    PyObject* o = r.handles.back().get();
    if (std::find(results.begin(), results.end(), o) == results.end()) results.push_back(o);
  }
}

// Announces each tensor from outside with its source. One without a source was made by the recorded function.
void give_sources(run::OpenTrace& trace, Recorder& r, RecordedProgram& program) {
  run::OpenTrace::Inactive outside;
  autograd::GradMode off(false);
  for (auto& s : trace.slots())
    if (auto* leaf = static_cast<PyObject*>(s.leaf.impl()->py_object); leaf && s.relied) {
      PyRef before = checked(wrap(s.before));
      r.gradient(leaf, before.get());
    }
  for (auto source : trace.sources()) program.inputs.push_back(SourceId(source));
  for (auto& t : trace.outside()) {
    auto* o = static_cast<PyObject*>(t.impl()->py_object);
    SourceId id = o ? r.source_of(o) : kNoSource;
    trace.input(t, run::SourceId(id));
    if (id == kNoSource) {
      // An alias of a tensor from outside that no recorded call has made would keep the contents of this call.
      runtime_check(!r.shares_memory(t), "compile")
          << "the function aliases a tensor in a way that is not recorded";
      id = -1 - SourceId(program.fresh.size());
      program.fresh.push_back(t);
      program.fresh_before.push_back(autograd::invoke("clone", {t.detached()}));
    }
    program.inputs.push_back(id);
  }
}

// Runs the program of a segment by a function of Python, which takes its inputs and captured tensors.
run::Segment::Runner runner_of(PyRef function, std::shared_ptr<run::Traced> traced) {
  std::shared_ptr<PyRef> held(new PyRef(std::move(function)), [](PyRef* p) {
    WithGil gil;
    delete p;
  });
  return [held, captured = traced->captured()](std::span<const Tensor> inputs) {
    WithGil gil;
    std::vector<Tensor> all(inputs.begin(), inputs.end());
    all.insert(all.end(), captured.begin(), captured.end());
    PyRef args = checked(wrap_list(all));
    PyRef results = checked(PyObject_CallObject(held->get(), args.get()));
    std::vector<Tensor> tensors;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(results.get()); ++k) {
      PyObject* o = PyTuple_GET_ITEM(results.get(), k);
      tensors.push_back(o == Py_None ? Tensor() : tensor_of(o));
    }
    return tensors;
  };
}

// Whether a program leaves a gradient slot as it was, and depends on its contents alone, which guards check.
bool is_unchanged(const graph::Capture::Slot& s) {
  return s.relied && s.output < 0 && !s.after.defined() && !s.before.defined();
}

run::OpenTrace::Backend backend_of(PyObject* make, const Recorder& r, const RecordedProgram& program) {
  return [make, &r, &program](const std::shared_ptr<run::Segment>& s, std::span<const Tensor> inputs) {
    // A graph does not contain the gradient slots that a program fills.
    auto& capture = s->program().capture();
    bool is_empty = capture.graph.nodes.empty() && !s->results();
    bool fills = !std::ranges::all_of(capture.slots, is_unchanged);
    if (capture.differentiates || fills || is_empty) return run::Segment::Runner();
    std::shared_ptr<run::Traced> traced(s, &s->program());
    PyRef native = checked(wrap_program(Program(traced))), names = checked(PyList_New(0));
    for (size_t k = 0; k < inputs.size(); ++k) {
      SourceId id = k < program.inputs.size() ? program.inputs[k] : kNoSource;
      std::string path = id >= 0 ? r.list.path(id, r.root_names) : "tensor_" + std::to_string(k);
      checked(PyList_Append(names.get(), checked(unicode(path)).get()));
    }
    std::vector<Tensor> all(inputs.begin(), inputs.end());
    for (auto& t : traced->captured()) {
      all.push_back(t);
      checked(PyList_Append(names.get(), checked(unicode("captured")).get()));
    }
    PyRef list = checked(wrap_list(all));
    PyRef function(PyObject_CallFunctionObjArgs(make, native.get(), names.get(), list.get(), nullptr));
    return runner_of(checked(function.detach()), std::move(traced));
  };
}

}  // namespace

std::vector<Tensor> RecordedProgram::run(std::span<const Tensor> tensors) const {
  WithoutGil released;
  return (*segment)(tensors);
}

std::optional<RecordedProgram> record(const std::function<void()>& body, Recorder& r,
                                      std::vector<PyObject*>& results, const std::string& called,
                                      PyObject* backend) {
  run::OpenTrace trace(operator_name(called));
  trace.fill_slots_last();
  run::OpenTrace::Active on(trace);
  body();
  runtime_check(r.failure.empty(), "compile") << r.failure;
  find_gradients(trace, r);
  results = living(trace, r);
  add_retained(r, results);
  bool is_empty = results.empty() && !trace.calls() && trace.outside().empty() && trace.sources().empty();
  if (is_empty) return std::nullopt;
  RecordedProgram program;
  give_sources(trace, r, program);
  std::vector<Tensor> tensors;
  for (auto* o : results) tensors.push_back(tensor_of(o));
  if (backend) trace.compile_by(backend_of(backend, r, program));
  // The handles become aliases of the tensors that they stand for.
  for (auto& [o, tensor] : r.replaced) tensors.push_back(tensor_of(o.get()));
  try {
    program.segment = trace.close(tensors);
  } catch (...) {
    r.program_failed = trace.has_failed();
    throw;
  }
  r.restore();
  auto& capture = program.segment->program().capture();
  bool does_nothing = capture.graph.nodes.empty() && capture.graph.mutated.empty() && capture.slots.empty();
  // The program compares sizes that share a symbol.
  bool assumes_nothing = !r.has_symbols() && capture.reads.empty();
  if (results.empty() && does_nothing && assumes_nothing) return std::nullopt;
  program.writes = program.segment->writes();
  return program;
}

}  // namespace facula::bind::capture
