#include "facula/optim/optimizer.h"

#include <unordered_set>

#include "facula/autograd/autograd.h"
#include "facula/ops.h"
#include "facula/optim/objects.h"

namespace facula::optim {

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

void Optimizer::load_state_dict(const io::Value& loaded) {
  const io::List& saved = loaded["param_groups"].list();
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
    const io::Value* of = loaded["state"].dict().find(id);
    if (!of) continue;
    io::Dict mine;
    auto check = [&](const io::Value& key, const Tensor& t) {
      auto sizes = state_sizes(p, groups_[k], key.string());
      value_check(!sizes || Dims(t.sizes()) == *sizes, kind_)
          << "the loaded state " << io::to_string(key) << " of parameter " << io::to_string(id)
          << " has shape " << facula::to_string(t.sizes()) << ", but must have " << facula::to_string(*sizes);
    };
    for (auto& [key, value] : of->dict()) {
      nn::Arguments to_copy{value};
      if (value.kind() == io::Value::Kind::list)
        for (auto& item : value.list())
          if (item.is_tensor()) check(key, item.tensor());
      if (!value.is_tensor()) mine.set(key, nn::deep_copy(to_copy));
      else if (key == io::Value("step") || counted.contains(key)) mine.set(key, value.number());
      else {
        const Tensor& t = value.tensor();
        check(key, t);
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

size_t Optimizer::counted_by(const std::string& name, const Tensor& number) const {
  size_t count = 0;
  for (auto& [p, state] : state_) {
    const io::Value* v = state.second.find(name);
    count += v && v->is_tensor() && v->tensor().is_same(number);
  }
  return count;
}

}  // namespace facula::optim
