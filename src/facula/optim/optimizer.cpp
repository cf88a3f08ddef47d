#include "facula/optim/optimizer.h"

#include <cmath>
#include <unordered_set>

#include "facula/autograd/autograd.h"
#include "facula/autograd/tracing.h"
#include "facula/op/call.h"
#include "facula/op/registry.h"
#include "facula/ops.h"
#include "facula/optim/objects.h"

namespace facula::optim {

namespace {
void check_option(const char* name, double value, bool valid) {
  value_check(valid, "") << "Invalid " << name << " value: " << value;
}

// While a function is traced: for what is not part of it, the states before the first step.
struct OutsideOfTrace {
  op::Mode::With mode{autograd::Tracing::current() ? nullptr : op::Mode::current()};
  autograd::Tracing::With trace{nullptr};
};

// An option that is a number. As a tensor it may change between the calls of a program.
op::Value operand(const ParamGroup& group, const char* name) {
  auto& v = group.options.at(name);
  if (v.is_tensor() && autograd::Tracing::current()) return v.tensor();
  return Scalar(v.number());
}

// The call of a step's operator: of lists of tensors, then of numbers.
void call(const char* name, std::initializer_list<const std::vector<Tensor>*> lists,
          std::initializer_list<op::Value> numbers) {
  std::vector<std::vector<TensorImpl*>> items;
  for (auto* list : lists) {
    auto& to = items.emplace_back();
    for (auto& t : *list) to.push_back(t.impl());
  }
  std::vector<op::Value> args;
  for (auto& list : items) args.push_back(std::span<TensorImpl* const>(list));
  args.insert(args.end(), numbers);
  op::call(op::get(name), args);
}
}  // namespace

Optimizer::Optimizer(const char* kind, std::vector<ParamGroup> groups, io::Dict defaults)
    : kind_(kind), defaults_(std::move(defaults)) {
  bool any = false;
  for (auto& g : groups) any = any || !g.params.empty();
  value_check(any, kind) << "optimizer got an empty parameter list";
  for (auto& g : groups) add_param_group(std::move(g));
}

Tensor Optimizer::step(const Closure& closure) {
  Tensor loss = [&] {
    autograd::GradMode on(true);
    return closure();
  }();
  step();
  return loss;
}

Optimizer::~Optimizer() { OptimizerObject::forget(*this); }

void Optimizer::add_param_group(ParamGroup group) {
  std::unordered_set<const TensorImpl*> seen;
  for (auto& g : groups_)
    for (auto& p : g.params) seen.insert(p.impl());
  for (auto& p : group.params) {
    type_check(p.defined(), kind_)
        << "optimizer can only optimize Tensors, but one of the params is undefined";
    value_check(autograd::is_leaf(p) || autograd::retains_grad(p), kind_)
        << "can't optimize a non-leaf Tensor";
    value_check(seen.insert(p.impl()).second, kind_)
        << "some parameters appear in more than one parameter group, or twice";
  }
  for (auto& [key, value] : defaults_)
    if (!group.options.contains(key)) group.options.set(key, value);
  groups_.push_back(std::move(group));
}

void Optimizer::zero_grad(bool set_to_none) {
  for (auto& g : groups_)
    for (auto& p : g.params) {
      if (set_to_none) {
        autograd::set_grad(p, Tensor());
      } else if (Tensor grad = autograd::grad_of(p); grad.defined()) {
        if (grad.requires_grad()) autograd::set_grad(p, grad = autograd::detach(grad));
        zero_(grad);
      }
    }
}

std::vector<Tensor> Optimizer::with_grad(const ParamGroup& group) const {
  std::vector<Tensor> chosen;
  for (auto& p : group.params) {
    Tensor g = autograd::grad_of(p);
    if (!g.defined()) continue;
    user_check(Dims(g.sizes()) == Dims(p.sizes()), kind_)
        << "the gradient of a parameter of shape " << facula::to_string(p.sizes()) << " has shape "
        << facula::to_string(g.sizes());
    chosen.push_back(p);
  }
  return chosen;
}

io::Dict Optimizer::state_dict() const {
  std::unordered_map<const TensorImpl*, int64_t> places;
  io::List groups;
  io::Dict state;
  for (auto& g : groups_) {
    io::List ids;
    for (auto& p : g.params) {
      int64_t k = int64_t(places.size());
      places[p.impl()] = k;
      ids.push_back(k);
      auto it = state_.find(p.impl());
      if (it == state_.end() || it->second.second.empty()) continue;
      io::Dict saved = it->second.second;
      for (auto& [name, first] : numbers())
        saved.set(name, Tensor::scalar(saved.at(name).number(), DType::Float32));
      state.set(k, std::move(saved));
    }
    io::Dict options = g.options;
    options.set("params", std::move(ids));
    groups.push_back(std::move(options));
  }
  return {{"state", std::move(state)}, {"param_groups", std::move(groups)}};
}

void Optimizer::load_state_dict(const io::Value& given) {
  const io::List& saved = given["param_groups"].list();
  value_check(saved.size() == groups_.size(), kind_)
      << "loaded state dict has a different number of parameter groups: " << saved.size()
      << ", but the optimizer has " << groups_.size();
  struct Numbered {
    io::Value id;
    Tensor p;
    size_t group;
  };
  std::vector<Numbered> numbered;
  for (size_t k = 0; k < saved.size(); ++k) {
    const io::List& ids = saved[k]["params"].list();
    value_check(ids.size() == groups_[k].params.size(), kind_)
        << "loaded state dict contains a parameter group that doesn't match the size of optimizer's group: group "
        << k << " has " << ids.size() << " parameters, the optimizer's has " << groups_[k].params.size();
    for (size_t i = 0; i < ids.size(); ++i) numbered.push_back({ids[i], groups_[k].params[i], k});
  }
  decltype(state_) state;
  io::Dict counted = numbers();
  for (auto& [id, p, k] : numbered) {
    const io::Value* of = given["state"].dict().find(id);
    if (!of) continue;
    io::Dict mine;
    for (auto& [key, value] : of->dict()) {
      nn::Arguments given{value};
      if (!value.is_tensor()) mine.set(key, nn::deep_copy(given));
      else if (key == io::Value("step") || counted.contains(key)) mine.set(key, value.number());
      else {
        const Tensor& t = value.tensor();
        auto sizes = state_sizes(p, groups_[k], key.string());
        value_check(!sizes || Dims(t.sizes()) == *sizes, kind_)
            << "the loaded state " << io::to_string(key) << " of parameter " << io::to_string(id)
            << " has shape " << facula::to_string(t.sizes()) << ", the parameter "
            << facula::to_string(p.sizes());
        bool keep = !is_differentiable(t.dtype()) || !is_differentiable(p.dtype());
        mine.set(key, clone(to(t.detached(), keep ? t.dtype() : p.dtype())));
      }
    }
    state[p.impl()] = {p, std::move(mine)};
  }
  state_ = std::move(state);
  for (size_t k = 0; k < saved.size(); ++k) {
    io::Dict options = saved[k].dict();
    options.erase("params");
    for (auto& [key, value] : defaults_)
      if (!options.contains(key)) options.set(key, value);
    groups_[k].options = std::move(options);
  }
}

// ---- SGD

SGD::SGD(std::vector<ParamGroup> groups, Options o)
    : Optimizer("SGD", std::move(groups),
                {{"lr", o.lr},
                 {"momentum", o.momentum},
                 {"dampening", o.dampening},
                 {"weight_decay", o.weight_decay},
                 {"nesterov", o.nesterov},
                 {"maximize", o.maximize},
                 {"foreach", nullopt},
                 {"differentiable", false},
                 {"fused", nullopt}}) {
  check_option("learning rate", o.lr, o.lr >= 0);
  check_option("momentum", o.momentum, o.momentum >= 0);
  check_option("weight_decay", o.weight_decay, o.weight_decay >= 0);
  value_check(!o.nesterov || (o.momentum > 0 && o.dampening == 0), "SGD")
      << "Nesterov momentum requires a momentum and zero dampening";
}

void SGD::step() {
  note_step();
  autograd::GradMode off(false);
  for (auto& group : param_groups()) {
    double momentum = group.options.at("momentum").number();
    std::vector<Tensor> known, fresh;
    for (auto& p : with_grad(group)) {
      const io::Value* buffer = state_of(p).find("momentum_buffer");
      bool is_known = !momentum || (buffer && buffer->is_tensor());
      if (!is_known) {
        OutsideOfTrace outside;
        state_of(p).set("momentum_buffer", zeros_like(p));
      }
      (is_known ? known : fresh).push_back(p);
    }
    if (!fresh.empty() && autograd::Tracing::current()) {  // a program takes this step often, not once
      supported_check(group.options.at("dampening").number() == 0, "SGD")
          << "with dampening takes its first step otherwise than the rest"
          << hint("take a step before tracing");
      known = with_grad(group);
      fresh.clear();
    }
    for (bool first : {false, true}) {
      auto& params = first ? fresh : known;
      if (params.empty()) continue;
      std::vector<Tensor> grads, buffers;
      for (auto& p : params) {
        grads.push_back(autograd::grad_of(p));
        if (momentum) buffers.push_back(state_of(p).at("momentum_buffer").tensor());
      }
      call("_sgd_", {&params, &grads, &buffers},
           {operand(group, "lr"), operand(group, "weight_decay"), operand(group, "momentum"),
            operand(group, "dampening"), group.options.at("nesterov").boolean(),
            group.options.at("maximize").boolean(), first});
    }
  }
}

size_t Optimizer::counted_by(const std::string& name, const Tensor& number) const {
  size_t found = 0;
  for (auto& [p, state] : state_) {
    const io::Value* v = state.second.find(name);
    found += v && v->is_tensor() && v->tensor().is_same(number);
  }
  return found;
}

}  // namespace facula::optim
