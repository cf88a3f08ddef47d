#include "facula/run/autocast.h"

#include <memory>
#include <unordered_map>

#include "facula/autograd/autograd.h"
#include "facula/base/per_thread.h"
#include "facula/op/call.h"
#include "facula/op/registry.h"

namespace facula::run {

namespace {

using op::Autocast;
using op::Form;
using op::Operator;
using op::Results;
using op::Tag;
using op::Value;

bool eligible(const TensorImpl* t) { return t && is_floating(t->dtype) && t->dtype != DType::Float64; }
bool half(const TensorImpl* t) { return eligible(t) && t->dtype != DType::Float32; }

struct CachedCast {
  Tensor source, cast;
  uint32_t version;
};

class AutocastMode final : public op::Mode {
 public:
  AutocastState state;
  int regions = 0;
  std::unordered_map<const TensorImpl*, CachedCast> cache;
  std::unique_ptr<With> on;  // while enabled
  Mode* beneath = nullptr;   // the mode around the region, such as a trace, which takes the calls next

  Results take(const Operator& o, std::span<const Value> args, Form form,
               std::span<const Tensor> out) override {
    Autocast how = o.autocast;
    if (o.autocast_rule) [[unlikely]]
      how = o.autocast_rule(op::Call(o, args), state.dtype);
    if (how == Autocast::inherit || form != Form::functional)
      return beneath ? beneath->take(o, args, form, out) : op::perform(o, args, form, out);
    With off(beneath);
    if (how == Autocast::as_is) return op::call(o, args, form, out);
    bool lower = how == Autocast::lower;
    DType to = lower ? state.dtype : DType::Float32;
    auto each = [&](auto&& f) {
      for (auto& v : args) {
        if (v.tag == Tag::tensor) f(v.tensor);
        if (v.tag == Tag::tensors)
          for (auto* t : v.tensors()) f(t);
      }
    };
    bool any = false, any_single = false;
    each([&](TensorImpl* t) {
      any = any || (lower ? eligible(t) && t->dtype != to : half(t));
      any_single = any_single || (t && t->dtype == DType::Float32);
    });
    if (!any || (how == Autocast::promote && !any_single)) return op::call(o, args, form, out);
    std::vector<Value> converted_args(args.begin(), args.end());
    std::vector<Tensor> cast;
    std::vector<std::vector<TensorImpl*>> lists(args.size());
    auto converted = [&](TensorImpl* t) {
      if (!eligible(t) || t->dtype == to) return t;
      cast.push_back(in_dtype(Tensor(Ref<TensorImpl>::share(t)), to, lower));
      return cast.back().impl();
    };
    for (size_t k = 0; k < converted_args.size(); ++k) {
      if (converted_args[k].tag == Tag::tensor)
        converted_args[k] = Value(converted(converted_args[k].tensor));
      else if (converted_args[k].tag == Tag::tensors) {
        for (auto* t : args[k].tensors()) lists[k].push_back(converted(t));
        converted_args[k] = Value(std::span<TensorImpl* const>(lists[k]));
      }
    }
    return op::call(o, converted_args, form, out);
  }

 private:
  Tensor in_dtype(const Tensor& t, DType to, bool lower) {
    static const Operator& to_dtype = op::get("to_dtype");
    Value args[] = {t, to};
    TensorImpl* impl = t.impl();
    if (!(lower && state.cache && impl->requires_grad && !impl->has_node && autograd::grad_enabled()))
      return op::call(to_dtype, args)[0];
    auto it = cache.find(impl);
    if (it != cache.end() && it->second.version == t.version() && it->second.cast.dtype() == to)
      return it->second.cast;
    Tensor cast = op::call(to_dtype, args)[0];
    cache[impl] = {t, cast, t.version()};
    return cast;
  }
};

AutocastMode& mode() { return per_thread<AutocastMode>(); }

}  // namespace

const AutocastState& autocast_state() { return mode().state; }

void set_autocast(const AutocastState& s) {
  value_check(s.dtype == DType::BFloat16 || s.dtype == DType::Float16, "autocast")
      << "lowers to bfloat16 or float16, not to " << s.dtype;
  auto& m = mode();
  if (s.enabled && !m.on) {
    m.beneath = op::Mode::current();
    m.on = std::make_unique<op::Mode::With>(&m);
  }
  if (!s.enabled) m.on.reset();
  m.state = s;
}

void clear_autocast_cache() { mode().cache.clear(); }
void enter_autocast_region() { ++mode().regions; }
int autocast_regions() { return mode().regions; }
void exit_autocast_region() {
  auto& m = mode();
  if (--m.regions == 0) m.cache.clear();
}

}  // namespace facula::run
