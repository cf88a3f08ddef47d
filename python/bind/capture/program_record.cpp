// Records what a segment calls: an open trace, whose handles become real tensors at the end of the segment.
#include <cctype>
#include <unordered_set>

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

// The handles that somebody besides the recorder refers to, each once, and that are no gradients of tensors from outside.
std::vector<PyObject*> living(Recorder& r) {
  auto& handles = r.handles;
  std::unordered_set<PyObject*> seen;
  std::vector<PyRef> unique;
  for (auto& h : handles)
    if (seen.insert(h.get()).second) unique.push_back(h);
  handles = std::move(unique);
  std::vector<PyObject*> all;
  for (auto& h : handles) {
    bool refers = Py_REFCNT(h.get()) > 1 || impl_of(h.get())->use_count() > 1;
    if (refers && impl_of(h.get())->traced && !r.gradients.count(h.get())) all.push_back(h.get());
  }
  return all;
}

std::string operator_name(const std::string& called) {
  std::string name;
  for (char c : called)
    if (std::isalnum(static_cast<unsigned char>(c)) || (c == '_' && !name.empty())) name += c;
  return name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) ? "compiled" : name;
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
      id = -1 - SourceId(program.fresh.size());
      program.fresh.push_back(t);
      program.fresh_before.push_back(autograd::invoke("clone", {t.detached()}));
    }
    program.inputs.push_back(id);
  }
}

}  // namespace

std::vector<Tensor> RecordedProgram::run(std::span<const Tensor> tensors) const {
  WithoutGil released;
  return (*segment)(tensors);
}

std::optional<RecordedProgram> record(const std::function<void()>& body, Recorder& r,
                                      std::vector<PyObject*>& results, const std::string& called) {
  run::OpenTrace trace(operator_name(called));
  trace.refuse_hooks();
  run::OpenTrace::Active on(trace);
  body();
  runtime_check(r.failure.empty(), "compile") << r.failure;
  find_gradients(trace, r);
  results = living(r);
  bool is_empty = results.empty() && !trace.calls() && trace.outside().empty() && trace.sources().empty();
  if (is_empty) return std::nullopt;
  RecordedProgram program;
  give_sources(trace, r, program);
  std::vector<Tensor> tensors;
  for (auto* o : results) tensors.push_back(tensor_of(o));
  // The handles become aliases of the tensors that they stand for.
  for (auto& [o, tensor] : r.replaced) tensors.push_back(tensor_of(o.get()));
  program.segment = trace.close(tensors);
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
