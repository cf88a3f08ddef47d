// Recording with the trace of a whole function: it begins and ends with the body.
#include <cctype>
#include <unordered_set>

#include "facula/autograd/autograd.h"
#include "facula/autograd/calls.h"
#include "facula/graph/trace.h"
#include "segment.h"

namespace facula::bind::capture {

namespace {

// Closes the autocast region around a trace, which opens it again inside, so that its casts are recorded.
class AutocastAround {
 public:
  AutocastAround() : state_(run::autocast_state()) { set(false); }
  ~AutocastAround() { run::set_autocast(state_); }
  void set(bool enabled) const {
    auto s = state_;
    s.enabled &= enabled;
    run::set_autocast(s);
  }
  // The body may leave other settings.
  void keep() { state_ = run::autocast_state(); }

 private:
  run::AutocastState state_;
};

std::vector<PyObject*> living(std::vector<PyRef>& handles) {
  std::unordered_set<PyObject*> seen;
  std::vector<PyRef> unique;
  for (auto& h : handles)
    if (seen.insert(h.get()).second) unique.push_back(h);
  handles = std::move(unique);
  std::vector<PyObject*> all;
  for (auto& h : handles)
    if (Py_REFCNT(h.get()) > 1 || impl_of(h.get())->use_count() > 1) all.push_back(h.get());
  return all;
}

}  // namespace

void set_real(PyObject* o, const Tensor& result) {
  auto* object = reinterpret_cast<TensorObject*>(o);
  // A result that is an input of the program has an object already.
  Tensor t = result.impl()->py_object ? autograd::invoke("alias", {result}) : result;
  TensorImpl* old = object->impl;
  t.impl()->retain();
  object->impl = t.impl();
  t.impl()->py_object = o;
  old->py_object = nullptr;
  old->release();
}

std::optional<RecordedProgram> record(const std::function<void()>& body, std::vector<PyRef>& handles,
                                      std::vector<PyObject*>& results, const std::string& called) {
  std::string name;  // an operator's
  for (char c : called)
    if (std::isalnum(static_cast<unsigned char>(c)) || (c == '_' && !name.empty())) name += c;
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0]))) name = "compiled";
  bool grad = autograd::grad_enabled();
  auto shapes = std::make_shared<sym::Shapes>();
  std::optional<AutocastAround> autocast(std::in_place);
  auto inside = [&](std::span<const Tensor>) {
    autocast->set(true);
    body();
    autocast->keep();
    auto s = run::autocast_state();
    s.enabled = false;
    run::set_autocast(s);
    results = living(handles);
    std::vector<Tensor> tensors;
    for (auto* o : results) tensors.push_back(tensor_of(o));
    return tensors;
  };
  graph::Capture capture = graph::capture(shapes, {}, inside, name.c_str());
  autocast.reset();
  if (results.empty() && capture.graph.mutated.empty() && capture.slots.empty()) return std::nullopt;
  RecordedProgram made;
  made.inputs = std::move(capture.captured);
  capture.captured.clear();
  capture.required.clear();
  for (auto& t : made.inputs) capture.required.push_back(t.requires_grad());
  for (auto& s : capture.slots)
    for (size_t k = 0; s.argument < 0 && k < made.inputs.size(); ++k)
      if (s.leaf.is_same(made.inputs[k])) s.argument = int(k);
  made.writes.resize(made.inputs.size());
  for (auto& [w, v] : capture.graph.mutated) made.writes[size_t(w)] = true;
  made.calls = capture.graph.nodes.size();
  auto program = std::make_shared<run::Traced>(std::move(capture), name);
  made.text = [program] { return graph::print(program->graph()); };
  bool needs_grad = grad || autograd::grad_enabled();
  made.run = [program, needs_grad](std::span<const Tensor> inputs) {
    autograd::GradMode mode(needs_grad);
    run::AutocastState outer = run::autocast_state(), off = outer;
    off.enabled = false;
    if (outer.enabled) run::set_autocast(off);
    struct Restore {
      run::AutocastState state;
      ~Restore() {
        if (state.enabled) run::set_autocast(state);
      }
    } restore{outer};
    WithoutGil released;
    return (*program)(inputs);
  };
  return made;
}

}  // namespace facula::bind::capture
