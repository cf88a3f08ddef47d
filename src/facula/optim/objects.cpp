#include "facula/optim/objects.h"

namespace facula::optim {

using io::Value;

namespace {
struct GroupObject : nn::Mapping {
  std::shared_ptr<OptimizerObject> of;
  size_t number;
  GroupObject(std::shared_ptr<OptimizerObject> o, size_t k) : of(std::move(o)), number(k) {}
  ParamGroup& group() const { return of->optimizer->param_groups().at(number); }
  io::Dict& dict() const override { return group().options; }
  bool find(const Value& key, Value& result) const override {
    if (key.kind() != Value::Kind::string || key.string() != "params") return Mapping::find(key, result);
    auto& params = group().params;
    return result = io::List(params.begin(), params.end()), true;
  }
};
struct StateObject : nn::Mapping {
  std::shared_ptr<OptimizerObject> of;
  Tensor p;
  StateObject(std::shared_ptr<OptimizerObject> o, Tensor t) : of(std::move(o)), p(std::move(t)) {}
  io::Dict& dict() const override { return of->state_of(p); }
};
struct StatesObject : nn::States {
  std::shared_ptr<OptimizerObject> optimizer;
  explicit StatesObject(std::shared_ptr<OptimizerObject> o) : optimizer(std::move(o)) {}
  Value at(const Tensor& p) override { return std::make_shared<StateObject>(optimizer, p); }
  void set(const Tensor& p, Value state) override { optimizer->state_of(p) = state.dict(); }
};
}  // namespace

Value OptimizerObject::states_of(Optimizer& o) {
  of(o);
  return std::make_shared<StatesObject>(o.object_);
}
io::Dict& OptimizerObject::state_of(const Tensor& p) const { return optimizer->state_of(p); }

Value OptimizerObject::of(Optimizer& o) {
  if (!o.object_) o.object_ = std::make_shared<OptimizerObject>(&o);
  return o.object_;
}
void OptimizerObject::forget(Optimizer& o) {
  if (o.object_) o.object_->optimizer = nullptr;
}

bool OptimizerObject::find(std::string_view name, Value& result) const {
  user_check(optimizer, "Optimizer") << "the optimizer of this schedule is gone"
                                     << hint("an optimizer must outlive its schedules");
  if (name == "defaults") return result = optimizer->defaults(), true;
  if (name == "_opt_called") return result = optimizer->stepped_, true;
  if (name != "param_groups") return false;
  io::List groups;
  for (size_t k = 0; k < optimizer->param_groups().size(); ++k)
    groups.push_back(std::make_shared<GroupObject>(optimizer->object_, k));
  return result = groups, true;
}
void OptimizerObject::set(std::string_view name, const Value& v) {
  internal_check(name == "_opt_called") << name;
  optimizer->stepped_ = v.boolean();
}

}  // namespace facula::optim
