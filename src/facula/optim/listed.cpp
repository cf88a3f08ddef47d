#include "facula/optim/listed.h"

#include <algorithm>

#include "facula/autograd/autograd.h"
#include "facula/autograd/tracing.h"
#include "facula/nn/dynamic.h"
#include "facula/ops.h"
#include "facula/optim/objects.h"

namespace facula::optim {

using io::Dict;
using io::List;
using io::Value;

namespace {
Value object_of(const nn::Module& m) { return std::make_shared<nn::ModuleObject>(m); }

// Groups for the translation: options, and the parameters under "params".
Value dict_of(const ParamGroup& group) {
  Dict all = group.options;
  List params;
  for (auto& p : group.params) params.push_back(p);
  all.set("params", params);
  return all;
}
Value dicts_of(const std::vector<ParamGroup>& groups) {
  List all;
  for (auto& g : groups) all.push_back(dict_of(g));
  return all;
}

// Suspends a trace for work that is not part of it: the states before the first step.
struct OutsideOfTrace {
  op::Mode::With mode{autograd::Tracing::current() ? nullptr : op::Mode::current()};
  autograd::Tracing::With trace{nullptr};
};

bool same_number(const Value& a, const Value& b) {
  if (a.is_tensor() || b.is_tensor()) return nn::is_same(a, b);
  return a == b;
}
}  // namespace

struct ListOptimizer::Batch {
  List key;
  std::vector<Tensor> params, grads;
  std::vector<Dict*> states;
  std::vector<std::pair<std::string, List>> lists;  // for each kind of state that is in use, or empty
};

ListOptimizer::ListOptimizer(const nn::Class& type, std::vector<ParamGroup> groups, nn::Given&& options)
    : ListOptimizer(nn::construct(type, std::move(options).with("params", dicts_of(groups))), groups) {}

ListOptimizer::ListOptimizer(nn::Module module, std::vector<ParamGroup> groups)
    : Optimizer(module.kind().c_str(), std::move(groups),
                nn::attribute(object_of(module), "defaults").dict()),
      self_(std::move(module)) {
  auto* states = nn::attribute(object_of(self_), "state").object<nn::States>();
  // created immediately, as by Adagrad
  for (auto& [p, state] : states->of) state_of(state.first) = state.second.dict();
}

Dict ListOptimizer::numbers() const { return nn::attribute(object_of(self_), "_numbers").dict(); }

Dict& ListOptimizer::first_state(const Tensor& p, const ParamGroup& group) {
  Dict& s = state_of(p);
  if (s.empty()) {
    OutsideOfTrace outside;
    s = nn::method(object_of(self_), "_first", {p, dict_of(group)}).dict();
  }
  return s;
}
std::optional<Dims> ListOptimizer::state_sizes(const Tensor& p, const ParamGroup& group,
                                               const std::string& kind) {
  Value first = nn::method(object_of(self_), "_first", {p, dict_of(group)});
  const Value* v = first.dict().find(kind);
  return Dims(v && v->is_tensor() ? v->tensor().sizes() : p.sizes());
}

void ListOptimizer::step() {
  note_step();
  autograd::GradMode off(false);
  for (auto& group : param_groups()) step_group(group);
}

void ListOptimizer::step_group(ParamGroup& group) {
  Value self = object_of(self_), kinds = nn::method(self, "_kinds", {dict_of(group)});
  bool apart = nn::has_attribute(self, "_apart") && !nn::attribute(self, "_apart").is_none();
  Dict counts = numbers();
  std::vector<Batch> batches;
  for (auto& p : with_grad(group)) {
    Dict& s = first_state(p, group);
    List key;
    for (auto& [name, first] : counts) key.push_back(s.at(name));
    if (apart) {
      Value parts = nn::method(self, "_apart", {p});
      key.insert(key.end(), parts.list().begin(), parts.list().end());
    }
    auto alike = std::find_if(batches.begin(), batches.end(), [&](const Batch& b) {
      return std::equal(b.key.begin(), b.key.end(), key.begin(), key.end(), same_number);
    });
    if (alike == batches.end()) {
      alike = batches.insert(alike, Batch{key, {}, {}, {}, {}});
      for (auto& [kind, used] : kinds.dict()) alike->lists.emplace_back(kind.string(), List());
    }
    alike->params.push_back(p);
    alike->grads.push_back(autograd::grad_of(p));
    alike->states.push_back(&s);
    for (auto& [kind, list] : alike->lists)
      if (nn::truth(kinds[kind]) && s.contains(kind)) list.push_back(s.at(kind));
  }
  for (auto& b : batches) step_batch(group, b);
}

void ListOptimizer::step_batch(ParamGroup& group, Batch& batch) {
  // Complex numbers are pairs, whose parts are updated independently.
  auto real = [](const Tensor& t) -> Value {
    return is_complex(t.dtype()) ? view_as_real(resolve_conj(t)) : t;
  };
  List params, grads;
  for (auto& p : batch.params) params.push_back(real(p));
  for (auto& g : batch.grads) grads.push_back(real(g));
  Dict numbers = counted(batch);
  Value now = numbers;
  nn::Arguments a{dict_of(group), now, params, grads};
  for (auto& [kind, list] : batch.lists) {
    List tensors;
    for (auto& t : list) tensors.push_back(real(t.tensor()));
    a.items.push_back(tensors);
  }
  nn::method(object_of(self_), "_update", std::move(a));
  count(batch, now.dict());
}

// The numbers of this step: floats, or tensors in a traced function.
Dict ListOptimizer::counted(Batch& batch) {
  bool traced = autograd::Tracing::current();
  Dict counts;
  for (auto& [name, first] : numbers()) {
    Value x = batch.states[0]->at(name);
    if (traced && !x.is_tensor()) {
      OutsideOfTrace outside;
      x = Tensor::scalar(Scalar(x.number()), DType::Float32);
      for (auto* s : batch.states) s->set(name, x);
    }
    counts.set(name, traced ? Value(to_dtype(x.tensor(), DType::Float64)) : Value(x.number()));
  }
  counts.set("step", nn::Two{counts.at("step"), 1}.add());
  return counts;
}

void ListOptimizer::count(Batch& batch, const Dict& numbers) {
  for (auto& [key, x] : numbers) {
    const std::string& name = key.string();
    Value cell = batch.states[0]->at(name);
    if (cell.is_tensor() && counted_by(name, cell.tensor()) <= batch.states.size()) {
      if (x.is_tensor()) copy_(cell.tensor(), x.tensor());
      else fill_(cell.tensor(), x.number());
      continue;
    }
    supported_check(!x.is_tensor(), self_.kind())
        << "takes a step, which is traced, of some of the parameters whose steps are counted together"
        << hint("give parameters that get no gradient in each step an optimizer of their own");
    Value next = double(float(x.number()));
    if (cell.is_tensor()) next = Tensor::scalar(Scalar(x.number()), DType::Float32);
    for (auto* s : batch.states) s->set(name, next);
  }
}

// ---- optimizers whose step is translated as a whole

GroupOptimizer::GroupOptimizer(const nn::Class& type, std::vector<ParamGroup> groups, nn::Given&& options)
    : GroupOptimizer(nn::construct(type, std::move(options).with("params", dicts_of(groups))), groups) {}
GroupOptimizer::GroupOptimizer(nn::Module module, std::vector<ParamGroup> groups)
    : Optimizer(module.kind().c_str(), std::move(groups),
                nn::attribute(object_of(module), "defaults").dict()),
      self_(std::move(module)) {
  nn::set_attribute(object_of(self_), "state", OptimizerObject::states_of(*this));
}

// Returns the translated object, with the present groups.
Value GroupOptimizer::bound() {
  Value self = object_of(self_);
  nn::set_attribute(self, "param_groups", nn::attribute(OptimizerObject::of(*this), "param_groups"));
  return self;
}
std::optional<Dims> GroupOptimizer::state_sizes(const Tensor& p, const ParamGroup&, const std::string& kind) {
  Value self = bound();
  if (!nn::has_attribute(self, "_state_shape")) return Dims(p.sizes());
  Value shape = nn::method(self, "_state_shape", {kind});
  Dims sizes;
  for (auto& n : shape.list()) sizes.push_back(n.integer());
  return sizes;
}
void GroupOptimizer::step() {
  note_step();
  nn::method(bound(), "step", {});
}
Tensor GroupOptimizer::step_with(const Closure& closure) {
  note_step();
  Value f = nn::function("<closure of C++>", [&](nn::Arguments&) -> Value { return closure(); });
  return nn::method(bound(), "step", {f}).tensor();
}

std::unique_ptr<Optimizer> make_optimizer(std::string_view name, std::vector<ParamGroup> params,
                                          const io::Dict& options) {
  for (auto& factory : optimizers())
    if (factory.name == name) return factory.make(std::move(params), options);
  value_check(false, "optim") << "there is no optimizer '" << name << "'";
  return nullptr;
}

}  // namespace facula::optim
