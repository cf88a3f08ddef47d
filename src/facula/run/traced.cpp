#include "facula/run/traced.h"

#include <algorithm>
#include <map>
#include <set>

#include "facula/autograd/autograd.h"
#include "facula/op/call.h"
#include "facula/op/registry.h"
#include "facula/run/autocast.h"
#include "facula/schedule/fuse.h"

namespace facula::run {

using op::Value;

Traced::Traced(graph::Capture capture, std::string name)
    : name_(std::move(name)),
      graph_(std::move(capture.graph)),
      captured_(std::move(capture.captured)),
      operator_(new op::Operator()) {
  for (auto& [i, v] : graph_.mutated) {
    written_.push_back(i);
    graph_.outputs.push_back(v);
  }
  auto body = [this](const op::Call& c) {
    graph::KeepRules keep;
    op::Results results;
    for (auto& t : graph::interpret(graph_, c.tensors("inputs"))) results.push_back(std::move(t));
    return results;
  };
  operator_->schema = op::parse_schema(name_ + "(Tensor[] inputs) -> Tensor[]");
  operator_->definition = op::Composite{body};
}

Traced::~Traced() {
  operator_->cache.reset();
  operator_->definition = op::Composite{};
}

std::vector<Tensor> Traced::checked(std::span<const Tensor> inputs) const {
  size_t given = graph_.inputs.size() - captured_.size();
  value_check(inputs.size() == given, name_.c_str())
      << "was traced with " << given << " tensors, and is called with " << inputs.size();
  std::vector<int64_t> symbols(size_t(graph_.shapes->symbol_count()), -1);
  for (size_t i = 0; i < given; ++i) {
    auto& spec = graph_.inputs[i]->tensor;
    auto& t = inputs[i];
    bool fits = t.dtype() == spec.dtype() && t.dim() == spec.dim();
    for (size_t d = 0; fits && d < spec.sizes().size(); ++d) {
      auto s = spec.sizes()[d];
      int64_t n = t.sizes()[d].hint();
      auto* known = s.is_symbol() ? &symbols[size_t(s.node()->value)] : nullptr;
      fits = known ? *known < 0 || *known == n : s.hint() == n;
      if (known) *known = n;
    }
    value_check(fits, name_.c_str()) << "was traced with " << spec.dtype() << to_string(spec.sizes())
                                     << " as tensor " << i << ", and is called with " << t.dtype()
                                     << to_string(t.sizes())
                                     << hint("trace it for these inputs, or with dynamic=True");
  }
  value_check(graph_.shapes->hold(symbols), name_.c_str())
      << "relied on sizes that the tensors it is called with do not have"
      << hint("it was traced where Python looked at a size, or compared one: trace it for these sizes");
  std::vector<Tensor> all(inputs.begin(), inputs.end());
  all.insert(all.end(), captured_.begin(), captured_.end());
  for (int w : written_)
    for (size_t k = 0; k < all.size(); ++k)
      value_check(k == size_t(w) || all[k].impl()->storage != all[size_t(w)].impl()->storage, name_.c_str())
          << "writes to tensor " << w << " of " << to_string(all[size_t(w)].sizes())
          << ", which shares its memory with tensor " << k << " of " << to_string(all[k].sizes())
          << hint("clone() one of them");
  return all;
}

std::vector<Tensor> Traced::operator()(std::span<const Tensor> inputs) const {
  std::vector<Tensor> all = checked(inputs), originals;
  for (int w : written_) {  // the program reads what was there before, also in its backward pass
    originals.push_back(all[size_t(w)]);
    Value args[] = {all[size_t(w)], Value()};
    all[size_t(w)] = op::call(op::get("clone"), args)[0];
  }
  std::vector<TensorImpl*> items;
  for (auto& t : all) items.push_back(t.impl());
  Value args[] = {std::span<TensorImpl* const>(items)};
  auto results = op::call(*operator_, args).to_vector();
  size_t outputs = results.size() - written_.size();
  for (size_t k = 0; k < written_.size(); ++k) {
    auto& original = originals[k];
    bool history =
        results[outputs + k].requires_grad() && !(original.requires_grad() && !autograd::node_of(original));
    autograd::GradMode mode(autograd::grad_enabled() && history);
    Value copied[] = {original, results[outputs + k]};
    op::call(op::get("copy"), copied, op::Form::in_place);
  }
  results.resize(outputs);
  return results;
}

// The operators by which `to` follow from `from`, in their order.
static std::string calls_between(const std::vector<graph::Value*>& from,
                                 const std::vector<graph::Value*>& to) {
  std::set<const graph::Value*> seen(from.begin(), from.end());
  std::map<int, const char*> names;
  std::vector<graph::Value*> todo = to;
  while (!todo.empty()) {
    auto* v = todo.back();
    todo.pop_back();
    if (!v || !seen.insert(v).second || !v->producer) continue;
    names[v->producer->id] = v->producer->op->name();
    for (auto* read : graph::operands(*v->producer)) todo.push_back(read);
  }
  std::string text;
  for (auto& [id, name] : names) text += (text.empty() ? "" : "+") + std::string(name);
  return text;
}

std::vector<std::string> Traced::steps() const {
  std::vector<std::string> lines;
  auto values = [](const std::vector<graph::Value*>& all) {
    std::string text;
    for (auto* v : all)
      if (v) text += (text.empty() ? "%" : ", %") + std::to_string(v->id);
    return text;
  };
  auto shapes = std::make_shared<sym::Shapes>(*graph_.shapes);
  std::vector<graph::InputSpec> specs;
  for (auto* v : graph_.inputs)
    specs.push_back({v->tensor.dtype(), Dims(v->tensor.sizes()), Dims(v->tensor.strides())});
  auto calls = graph::trace(
      shapes, specs, [this](std::span<const Tensor> given) { return graph::interpret(graph_, given); },
      name_.c_str());
  for (auto& s : schedule::fuse(calls, schedule::Between::exact)) {
    using Kind = schedule::Step::Kind;
    if (s.kind == Kind::kernel) {
      lines.push_back("kernel " + calls_between(s.inputs, s.outputs) + ": " + values(s.inputs) + " -> " +
                      values(s.outputs));
      continue;
    }
    lines.push_back((s.kind == Kind::view ? "view " : "library ") + s.node->op->schema.full_name() + ": " +
                    values(graph::operands(*s.node)) + " -> " + values(s.node->results));
  }
  return lines;
}

namespace {

// Ends the region of autocast around a trace, to open it inside: what lies inside hands calls on to the trace.
class AutocastAround {
 public:
  AutocastAround() : state_(autocast_state()) { set(false); }
  ~AutocastAround() { set_autocast(state_); }
  void set(bool enabled) const {
    auto s = state_;
    s.enabled &= enabled;
    set_autocast(s);
  }

 private:
  AutocastState state_;
};

}  // namespace

std::unique_ptr<Traced> trace(const graph::Function& f, std::span<const Tensor> inputs, std::string name,
                              bool dynamic) {
  auto shapes = std::make_shared<sym::Shapes>();
  std::vector<graph::InputSpec> specs;
  for (auto& t : inputs) {
    specs.push_back(graph::symbolic_spec(t, *shapes));
    if (dynamic) continue;
    specs.back().sizes = Dims(t.sizes());
    if (!specs.back().strides.empty()) specs.back().strides = Dims(t.strides());
  }
  AutocastAround autocast;
  auto inside = [&](std::span<const Tensor> given) {
    struct Region {
      explicit Region(const AutocastAround* a) : around(a) { around->set(true); }
      ~Region() { around->set(false); }
      const AutocastAround* around;
    } region(&autocast);
    return f(given);
  };
  auto capture = graph::capture(std::move(shapes), specs, inside, name.c_str());
  return std::make_unique<Traced>(std::move(capture), std::move(name));
}

}  // namespace facula::run
