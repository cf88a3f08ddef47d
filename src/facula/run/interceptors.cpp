#include "facula/run/interceptors.h"

#include <string>

#include "facula/base/log.h"
#include "facula/op/describe.h"
#include "facula/profile/profile.h"
#include "facula/run/devices.h"
#include "facula/run/interpose.h"
#include "facula/run/lazy.h"
#include "facula/run/sparse.h"

namespace facula::run {

using op::Form;
using op::Results;
using op::Tag;

namespace {

struct Station;

// The stations that an invocation has still to pass, and where it goes behind them.
struct Rest {
  std::span<const Station> stations;
  Destination then;
  Results operator()(Invocation& call) const;
};

struct Station {
  Interceptor interceptor;
  Results (*take)(Invocation& call, Rest rest);
};

Results Rest::operator()(Invocation& call) const {
  for (size_t k = 0; k < stations.size(); ++k)
    if (is_in_use(stations[k].interceptor)) return stations[k].take(call, {stations.subspan(k + 1), then});
  return then(call);
}

Results take_sparse(Invocation& call, Rest rest) {
  return any_sparse(call.args, call.out) ? call_sparse(call.op, call.args, call.form, call.out) : rest(call);
}

Results take_lazy(Invocation& call, Rest rest) {
  bool resolves = !takes_lazy(call.op, call.form) && any_lazy(call.args, call.out);
  return resolves ? call_resolved(call.op, call.args, call.form, call.out) : rest(call);
}

Results take_profiled(Invocation& call, Rest rest) {
  // The names of users' operators have a namespace.
  std::string name = (call.op.is<op::Foreign>() ? "" : "aten::") + call.op.schema.name;
  if (call.form == Form::in_place && !name.ends_with('_')) name += '_';
  profile::Scope scope(profile::Category::operation, name);
  if (profile::wants_shapes()) scope.describe(op::shapes_text(call.args), op::dtypes_text(call.args));
  Results results = rest(call);
  if (profile::wants_shapes() && results.size() && results[0].defined())
    scope.describe_result(to_string(results[0].sizes()));
  return results;
}

// "add(float32[8, 8], float32[8, 8], alpha)": tensors by dtype and sizes, other arguments by their names.
std::string call_text(const Invocation& call) {
  auto tensor = [](const TensorImpl* t) {
    return t ? std::string(name(t->dtype)) + to_string(SymSpan(t->sizes)) : "None";
  };
  const char* form = call.form == Form::in_place ? " in place" : call.form == Form::out ? " into out" : "";
  std::string text = call.op.schema.full_name() + form + "(";
  for (size_t k = 0; k < call.args.size(); ++k) {
    auto& v = call.args[k];
    if (k) text += ", ";
    if (v.tag == Tag::tensor) {
      text += tensor(v.tensor);
    } else if (v.tag == Tag::tensors) {
      text += "[";
      for (auto* t : v.tensors()) text += (text.back() == '[' ? "" : ", ") + tensor(t);
      text += "]";
    } else {
      text += call.op.schema.parameters[k].name;
    }
  }
  return text + ")";
}

Results take_logged(Invocation& call, Rest rest) {
  log_line(Log::ops, call_text(call));
  return rest(call);
}

Results take_interposed(Invocation& call, Rest rest) {
  call.interposer = find_interposer(call.args, call.out);
  return rest(call);
}

Results take_on_device(Invocation& call, Rest rest) {
  call.device = device_of(call.op, call.args, call.form, call.out);
  Gathered operands(call.device, call.op, call.args, call.out);
  DefaultDevice inside(call.device);
  call.args = operands.args();
  return rest(call);
}

constexpr Station kBeforeMode[] = {{Interceptor::sparse, take_sparse}, {Interceptor::lazy, take_lazy}};
constexpr Station kBehindMode[] = {{Interceptor::profiled, take_profiled},
                                   {Interceptor::logged, take_logged},
                                   {Interceptor::interposed, take_interposed},
                                   {Interceptor::device, take_on_device}};

}  // namespace

Results pass_before_mode(Invocation& call, Destination then) { return Rest{kBeforeMode, then}(call); }
Results pass_behind_mode(Invocation& call, Destination then) { return Rest{kBehindMode, then}(call); }

}  // namespace facula::run
