#include "facula/run/profiled.h"

#include <utility>

#include "facula/op/describe.h"
#include "facula/op/operator.h"
#include "facula/profile/profile.h"
#include "facula/tensor/block.h"

namespace facula::run {

namespace {
constinit FACULA_FAST_THREAD_LOCAL bool inside = false;
}  // namespace

bool is_inside_profiled() { return std::exchange(inside, false); }

op::Results perform_profiled(const op::Operator& o, std::span<const op::Value> args, op::Form form,
                             std::span<const Tensor> out) {
  std::string name = (o.is<op::Foreign>() ? "" : "aten::") + o.schema.name;  // users' have a namespace
  if (form == op::Form::in_place && !name.ends_with('_')) name += '_';
  profile::Scope scope(profile::Category::operation, name);
  if (profile::wants_shapes()) scope.describe(op::shapes_text(args), op::dtypes_text(args));
  struct Inside {
    Inside() { inside = true; }
    ~Inside() { inside = false; }  // the session may have ended meanwhile
  } now;
  op::Results results = op::perform(o, args, form, out);
  if (profile::wants_shapes() && results.size() && results[0].defined())
    scope.describe_result(to_string(results[0].sizes()));
  return results;
}

op::Results run_function_profiled(backend::LibraryFn fn, const op::Call& c, std::span<const Tensor> out) {
  profile::Scope scope(profile::Category::library, c.op().backed()->name);
  return fn(c, out);
}

}  // namespace facula::run
