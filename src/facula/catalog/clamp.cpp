// Numbers limited from below and above.
#include <cmath>
#include <limits>

#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {
// x limited by a bound; equal ones give x, and x the gradient. NaN of either stays, and has no gradient.
Expr limited(Expr inside, Expr x, Expr outside, Expr bound) {
  if (is_floating(x.dtype()))
    bound = select(outside, bound, constant(std::numeric_limits<double>::quiet_NaN(), x.dtype()));
  return select(inside, x, bound);
}
Expr below(Expr x, Expr low) { return limited(x >= low, x, x < low, low); }
Expr above(Expr x, Expr high) { return limited(x <= high, x, x > high, high); }

// The larger or smaller of both, of equal ones the bound; NaN of either wins.
Expr at_least(Expr x, Expr low) { return select((x > low) | isnan(x), x, low); }
Expr at_most(Expr x, Expr high) { return select((x < high) | isnan(x), x, high); }
Tensor masked(const Tensor& g, const Tensor& mask) { return where(mask, g, zeros({}, g.dtype())); }
// Gradients of clamp with tensors: equal ones give it to x, and a lower bound above the upper one none.
Grads clamped(const Vjp& v) {
  auto& schema = v.call().op().schema;
  auto bound = [&](const char* name) { return schema.index_of(name) < 0 ? Tensor() : v[name]; };
  Tensor g = v.grad(), x = v["self"], low = bound("min"), high = bound("max");
  bool both = low.defined() && high.defined();
  Tensor kept = both ? logical_and(ge(x, low), le(x, high)) : low.defined() ? ge(x, low) : le(x, high);
  Grads out;
  out.push_back(v.needs("self") ? masked(g, kept) : Tensor());
  auto of = [&](const char* name, auto&& taken) {
    if (schema.index_of(name) >= 0) out.push_back(v.needs(name) ? masked(g, taken()) : Tensor());
  };
  of("min", [&] { return both ? logical_and(lt(x, low), lt(low, high)) : lt(x, low); });
  of("max", [&] { return both ? logical_or(gt(x, high), lt(high, low)) : gt(x, high); });
  return out;
}
}  // namespace

FACULA_FAMILY(clamp) {
  define("clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor")
      .doc("self limited to [min, max]; NaN stays. The gradient passes at the limits.")
      .grad_name("Clamp", 1)
      .alias("clip")
      .dtypes(d::real)
      .in_place()
      .pointwise([](const LoopCall& c, Expr x, Expr low, Expr high) {
        runtime_check(c.has("min") || c.has("max"), "clamp")
            << "at least one of 'min' or 'max' must not be None";
        Expr y = x;
        if (c.has("min")) y = below(y, low);
        if (c.has("max")) y = above(y, high);
        return y;
      })
      .check(fitting({"min", "max"}))
      .samples(unary_samples().with("min", {"-0.5"}).with("max", {"0.75"}));
  define("clamp.Tensor(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor")
      .doc("self limited element by element to [min, max]; NaN stays.")
      .alias("clip")
      .dtypes(d::real)
      .in_place()
      .pointwise([](const LoopCall& c, Expr x, Expr low, Expr high) {
        runtime_check(c.has("min") || c.has("max"), "clamp")
            << "at least one of 'min' or 'max' must not be None";
        Expr y = x;
        if (c.has("min")) y = at_least(y, low);
        if (c.has("max")) y = at_most(y, high);
        return y;
      })
      // At ties self gets the gradient, as in PyTorch; the derived gradient would go to the limit.
      .vjp(clamped)
      .samples({"self[3, 4], min[4](-1, 0), max[3, 1](0, 1)", "self[5], min=None, max[5]", "self[5], min[]"});
  define("clamp_min(Tensor self, Scalar min) -> Tensor")
      .doc("self, but at least `min`; NaN stays. The gradient passes at the limit.")
      .dtypes(d::real)
      .check(fitting({"min"}))
      .in_place()
      .pointwise(below)
      .samples({"self[3, 4], min=-0.5", "self[], min=0.25", "self[0], min=1", "self[33, 65], min=0"});
  define("clamp_min.Tensor(Tensor self, Tensor min) -> Tensor")
      .grad_name("ClampMin", 1)
      .doc("self, but at least `min`, element by element; NaN wins.")
      .dtypes(d::real)
      .in_place()
      .pointwise(at_least)
      // At ties self gets the gradient, as for clamp.
      .vjp(clamped)
      .samples({"self[3, 4], min[4]", "self[5], min[]"});
  define("clamp_max(Tensor self, Scalar max) -> Tensor")
      .doc("self, but at most `max`; NaN stays. The gradient passes at the limit.")
      .dtypes(d::real)
      .check(fitting({"max"}))
      .in_place()
      .pointwise(above)
      .samples({"self[3, 4], max=-0.5", "self[], max=0.25", "self[0], max=1", "self[33, 65], max=0"});
  define("clamp_max.Tensor(Tensor self, Tensor max) -> Tensor")
      .grad_name("ClampMax", 1)
      .doc("self, but at most `max`, element by element; NaN wins.")
      .dtypes(d::real)
      .in_place()
      .pointwise(at_most)
      // At ties self gets the gradient, as for clamp.
      .vjp(clamped)
      .samples({"self[3, 4], max[4]", "self[5], max[]"});
}
