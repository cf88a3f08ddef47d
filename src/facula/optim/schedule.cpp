#include "facula/optim/schedule.h"

#include "facula/nn/dynamic.h"
#include "facula/optim/objects.h"

namespace facula::optim {

using io::List;
using io::Value;

namespace {
Value object_of(const nn::Module& m) { return std::make_shared<nn::ModuleObject>(m); }
}  // namespace

Factor::Factor(Function f)
    : value_(nn::function("<function of C++>", [f = std::move(f)](nn::Arguments& a) -> Value {
        return f(a.items.at(0).integer());
      })) {}
Factor::Factor(const std::vector<Function>& of_each_group) {
  List all;
  for (auto& f : of_each_group) all.push_back(Factor(f));
  value_ = all;
}

LRScheduler::LRScheduler(const nn::Class& type, nn::Given&& settings)
    : self_(nn::construct(type, std::move(settings))) {}
void LRScheduler::step(std::optional<int64_t> epoch) {
  nn::Arguments a;
  if (epoch) a.items.push_back(*epoch);
  nn::method(object_of(self_), "step", std::move(a));
}
void LRScheduler::step_with(nn::Given&& arguments) {
  nn::method(object_of(self_), "step", std::move(arguments));
}
std::vector<double> LRScheduler::get_last_lr() const {
  Value last = nn::method(object_of(self_), "get_last_lr", {});
  std::vector<double> rates;
  for (auto& lr : last.list()) rates.push_back(lr.number());
  return rates;
}
io::Dict LRScheduler::state_dict() const { return nn::method(object_of(self_), "state_dict", {}).dict(); }
void LRScheduler::load_state_dict(const Value& state) {
  nn::method(object_of(self_), "load_state_dict", {state});
}

Value LRScheduler::value_of(Optimizer& optimizer) { return OptimizerObject::of(optimizer); }
Value LRScheduler::value_of(Optimizer* optimizer) {
  return optimizer ? OptimizerObject::of(*optimizer) : Value();
}
Value LRScheduler::value_of(const std::vector<LRScheduler>& schedules) {
  List all;
  for (auto& s : schedules) all.push_back(object_of(s.self_));
  return all;
}
Value LRScheduler::value_of(const std::vector<int64_t>& numbers) {
  return List(numbers.begin(), numbers.end());
}

}  // namespace facula::optim
