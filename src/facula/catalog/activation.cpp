// Activations, softmax and dropout.
#include <algorithm>
#include <cmath>
#include <sstream>

#include "facula/autograd/calls.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"
#include "facula/sym/run_time.h"
#include "facula/tensor/promotion.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {
Definer activation(const char* schema, const char* doc) {
  return std::move(define(schema)
                       .doc(doc)
                       .dtypes(d::floating)
                       .strict()
                       .bind(nn_functional)
                       .samples(unary_samples(-4, 4))
                       .in_place());
}
// Not a size that is known only when a program runs?
bool is_known(const Value& v) { return v.tag != Tag::integer || !v.integer().is_symbolic(); }
// The gradient of units that are exponential below 0 (in self, or in self / alpha). At 0 PyTorch takes the derivative of the
// exponential side; the derivative of the body there would be 1.
VjpRule exponential_below(bool over_alpha) {
  return [over_alpha](const Vjp& v) {
    const Value& alpha = v.call()["alpha"];
    if (over_alpha && !is_known(alpha)) {  // what an element says has no reciprocal among numbers
      Tensor x = v["self"], slope = exp(autograd::invoke("div", {x, alpha}));
      return grads(mul(v.grad(), where(gt(x, 0), ones_like(x), slope)));
    }
    double scale = over_alpha ? 1 / alpha.number().to_double() : 1.0;
    return grads(autograd::invoke("_elu_backward", {v.grad(), v["self"], alpha, scale}));
  };
}
// Whether a > b. For sizes that are known only when a program runs: whether it holds for all of them; the program asks again.
bool exceeds(const Value& a, const Value& b) {
  if (is_known(a) && is_known(b)) return a.number().to_double() > b.number().to_double();
  auto whole = [&](const Value& v, double (*rounded)(double)) {
    if (!is_known(v)) return v.integer();
    constexpr double kMost = double(int64_t(1) << 60);
    return SymInt(int64_t(std::clamp(rounded(v.number().to_double()), -kMost, kMost)));
  };
  for (auto* v : {&a, &b})
    if (is_known(*v) && std::isnan(v->number().to_double())) return false;
  return !sym::may_be_at_most(whole(a, std::ceil), whole(b, std::floor));
}
std::string text_of(const Value& v) {
  std::ostringstream text;
  if (v.tag == Tag::integer) text << v.integer();
  else text << v.number();
  return text.str();
}
std::vector<DType> as_self(const Call& c) { return {c.dtype("self")}; }
Expr zero_like(Expr x) { return constant(int64_t(0), x.dtype()); }
// y, but NaN where x is, which has no gradient.
Expr nan_or(Expr x, Expr y) {
  return is_floating(x.dtype()) ? select(isnan(x), constant(std::nan(""), y.dtype()), y) : y;
}
// 1 where self is positive, else a number drawn from [lower, upper].
Tensor slopes(const Tensor& self, double lower, double upper, std::optional<Generator*> g) {
  Tensor u = rand(self.sizes(), g ? *g : nullptr, compute_type(self.dtype()));
  return where(gt(self, 0), ones_like(self), to_dtype(add(mul(u, upper - lower), lower), self.dtype()));
}
}  // namespace

FACULA_FAMILY(activation) {
  define("relu(Tensor self) -> Tensor")
      .python("relu(input, inplace=False)")
      .doc("max(self, 0).")
      .dtypes(d::integral | d::floating)
      .bind(function | method | nn_functional)
      .in_place()
      .pointwise([](Expr x) { return relu(x); })
      .samples(unary_samples());
  define("gelu(Tensor self, *, str approximate='none') -> Tensor")
      .exact_out()
      .doc(
          "Gaussian error linear unit, x * Phi(x). approximate='tanh' uses the tanh form.  Hendrycks and Gimpel, 2016.")
      .dtypes(d::floating)
      .bind(nn_functional)
      .in_place()
      .pointwise([](const LoopCall& c, Expr x) {
        auto form = c.str("approximate");
        runtime_check(form == "none" || form == "tanh", "gelu")
            << "approximate must be 'none' or 'tanh', got '" << form << "'";
        if (form == "tanh") return 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
        // The product with all digits of both (loop::fused_product) is for those who see them.
        if (itemsize(c.dtype("self")) == 2) return fma(x, ndtr(x), constant(-0.0, x.dtype()));
        return x * ndtr(x);
      })
      .samples(unary_samples(-4, 4).with("approximate", {"'none'", "'tanh'"}));
  activation("silu(Tensor self) -> Tensor",
             "Sigmoid-weighted linear unit, x * sigmoid(x).  Elfwing et al., 2017.")
      .python("silu(input, inplace=False)")
      .dtypes(d::floating | d::complex)
      .pointwise([](Expr x) { return is_complex(x.dtype()) ? x / (1.0 + exp(-x)) : x * sigmoid(x); });
  define("softsign(Tensor self) -> Tensor")
      .doc("x / (1 + |x|).")
      .grad_name("Div")
      .bind(nn_functional)
      .dtypes(d::floating | d::complex)
      .promote(Promote::int_to_float)
      .pointwise([](Expr x) { return x / cast(abs(x) + 1.0, x.dtype()); })
      .samples(unary_samples(-4, 4));
  activation("leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor",
             "x where positive, else negative_slope * x.")
      .python("leaky_relu(input, negative_slope=0.01, inplace=False)")
      .check(fitting_computed({"negative_slope"}))
      .pointwise([](Expr x, Expr slope) { return select(x > 0.0, x, x * slope); });
  activation("elu(Tensor self, Scalar alpha=1) -> Tensor",
             "x where positive, else alpha * (exp(x) - 1).  Clevert et al., 2015.")
      .python("elu(input, alpha=1.0, inplace=False)")
      .check(fitting_computed({"alpha"}))
      .pointwise([](Expr x, Expr alpha) { return select(x < 0.0, alpha * expm1(x), x); })
      .vjp(exponential_below(false));
  define("_elu_backward(Tensor grad, Tensor self, Scalar alpha, Scalar scale) -> Tensor")
      .doc("The gradient of elu (and of celu, whose exponent is scale * self): at 0 as below it.")
      .bind(hidden)
      .dtypes(d::floating)
      .pointwise([](Expr g, Expr x, Expr alpha, Expr scale) {
        return select(x > 0.0, g, g * (alpha * scale) * exp(x * scale));
      })
      .samples({"grad[3, 4], self[3, 4](-4, 4), alpha=0.5, scale=2"});
  activation("softplus(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor",
             "log(1 + exp(beta * x)) / beta; linear above the threshold.")
      .check(fitting_computed({"beta", "threshold"}))
      .exact_out()
      .pointwise([](Expr x, Expr beta, Expr threshold) {
        Expr bx = x * beta;
        return select(bx > threshold, x, log1p(exp(bx)) / beta);
      })
      // beta and 1 / beta cancel; derived, it is NaN where one of them is infinite.
      .vjp([](const Vjp& v) {
        auto& c = v.call();
        return grads(
            autograd::invoke("_softplus_backward", {v.grad(), v["self"], c["beta"], c["threshold"]}));
      });
  define("_softplus_backward(Tensor grad, Tensor self, Scalar beta, Scalar threshold) -> Tensor")
      .doc("The gradient of softplus, in which beta and 1 / beta cancel.")
      .bind(hidden)
      .dtypes(d::floating)
      .pointwise([](Expr g, Expr x, Expr beta, Expr threshold) {
        Expr bx = x * beta, e = exp(bx);
        return select(bx > threshold, g, g * e / (e + 1.0));
      })
      .samples({"grad[3, 4], self[3, 4](-4, 4), beta=0.5, threshold=1"});
  activation("hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor",
             "self limited to [min_val, max_val].")
      .python("hardtanh(input, min_val=-1.0, max_val=1.0, inplace=False)")
      .check([](const Call& c) {
        const Value &low = c["min_val"], &high = c["max_val"], zero(0.0);
        value_check(!exceeds(low, high), "hardtanh")
            << "min_val cannot be greater than max_val, got " << text_of(low) << " and " << text_of(high);
        must_fit(c, "min_val");
        must_fit(c, "max_val");
        bool negative = exceeds(zero, low) || exceeds(zero, high);
        runtime_check(c.dtype("self") != DType::UInt8 || !negative, "hardtanh")
            << "negative limits are not supported for the unsigned dtype " << c.dtype("self") << ", got ["
            << text_of(low) << ", " << text_of(high) << "]";
      })
      .dtypes(d::integral | d::floating)
      .promote(Promote::none)
      .result(as_self)
      .pointwise([](Expr x, Expr low, Expr high) {
        low = cast(low, x.dtype());
        high = cast(high, x.dtype());
        // A bound that is reached gives x: a zero has its sign, NaN stays; a bound that is NaN gives that. Only between them
        // has x a gradient.
        if (!is_floating(x.dtype())) return select(x < low, low, select(x > high, high, x));
        auto reached = [&](Expr bound, Expr v) { return select(eq(x, bound), copysign(bound, x), v); };
        Expr y = reached(low, reached(high, constant(std::nan(""), x.dtype())));
        y = select((x > low) & (x < high), x, select(x < low, low, select(x > high, high, y)));
        return select(isnan(low), low, select(isnan(high), high, y));
      });
  define("relu6(Tensor self) -> Tensor")
      .python("relu6(input, inplace=False)")
      .doc("min(max(self, 0), 6).")
      .bind(hidden)
      .dtypes(d::integral | d::floating)
      .in_place()
      .forwards("hardtanh", {0.0, 6.0})
      .samples(unary_samples(-4, 9));
  define("tanhshrink(Tensor self) -> Tensor")
      .doc("self - tanh(self).")
      .grad_name("Sub")
      .bind(nn_functional)
      .dtypes(d::floating | d::complex)
      .promote(Promote::int_to_float)
      .pointwise([](Expr x) { return x - tanh(x); })
      .samples(unary_samples(-4, 4));
  define(
      "rrelu(Tensor self, Scalar lower=0.125, Scalar upper=0.3333333333333333, bool training=False, Generator? generator=None) -> Tensor")
      .grad_name("RreluWithNoise")
      .python("rrelu(input, lower=1.0 / 8, upper=1.0 / 3, training=False, inplace=False)")
      .doc(
          "leaky_relu with slopes drawn from [lower, upper] in training, their mean otherwise.  Xu et al., 2015.")
      .bind(function | nn_functional)
      .draws()
      .dtypes(d::floating)
      .strict()
      .check([](const Call& c) {
        Scalar lower = c.number("lower"), upper = c.number("upper");
        for (const Scalar& bound : {lower, upper})
          runtime_check(std::isfinite(bound.to_double()), "rrelu") << "bounds must be finite, got " << bound;
        runtime_check(!(lower.to_double() > upper.to_double()), "rrelu")
            << "lower bound " << lower << " should be less than or equal to the upper bound " << upper;
      })
      .procedure(
          [](const Tensor& self, double lower, double upper, bool training, std::optional<Generator*> g) {
            if (!training) return leaky_relu(self, (lower + upper) / 2);
            return mul(self, slopes(self, lower, upper, g));
          })
      .in_place(
          [](const Tensor& self, double lower, double upper, bool training, std::optional<Generator*> g) {
            if (!training) return leaky_relu_(self, (lower + upper) / 2);
            return mul_(self, slopes(self, lower, upper, g));
          })
      .samples({"self[3, 4], lower=0.1, upper=0.3", "self[3, 4], training=True"});
  define("selu(Tensor self) -> Tensor")
      .python("selu(input, inplace=False)")
      .doc(
          "scale * elu(x, alpha) with the constants that keep mean 0 and variance 1.  Klambauer et al., 2017.")
      .grad_name("Elu")
      .dtypes(d::floating)
      .bind(function | nn_functional)
      .in_place()
      .pointwise([](Expr x) {
        constexpr double alpha = 1.6732632423543772848170429916717, scale = 1.0507009873554804934193349852946;
        return select(x > 0.0, x * scale, (alpha * scale) * expm1(x));
      })
      .samples(unary_samples(-4, 4));
  define("celu(Tensor self, Scalar alpha=1.0) -> Tensor")
      .python("celu(input, alpha=1.0, inplace=False)")
      .doc("x where positive, else alpha * (exp(x / alpha) - 1).  Barron, 2017.")
      .dtypes(d::floating)
      .strict()
      .bind(function | nn_functional)
      .check([](const Call& c) {
        must_fit_computed(c, "alpha");
        const Value& alpha = c["alpha"];
        bool zero = is_known(alpha) ? alpha.number().to_double() == 0
                                    : !sym::may_be_less(SymInt(int64_t(0)), alpha.integer());
        runtime_check(!zero, "celu") << "ZeroDivisionError: alpha cannot be 0 for CELU";
      })
      .in_place()
      .pointwise([](Expr x, Expr alpha) { return select(x < 0.0, alpha * expm1(x / alpha), x); })
      .vjp(exponential_below(true))
      .samples(unary_samples(-4, 4) + samples({"self[3, 4], alpha=0.5"}));
  activation("mish(Tensor self) -> Tensor", "x * tanh(softplus(x)).  Misra, 2019.")
      .python("mish(input, inplace=False)")
      .pointwise([](Expr x) { return x * tanh(max(x, 0.0) + log1p(exp(-abs(x)))); });
  activation("hardswish(Tensor self) -> Tensor", "x * min(max(x + 3, 0), 6) / 6.  Howard et al., 2019.")
      .python("hardswish(input, inplace=False)")
      .pointwise(
          [](Expr x) { return select(x <= -3.0, x * 0.0, select(x >= 3.0, x, x * (x + 3.0) * (1.0 / 6))); });
  activation("hardsigmoid(Tensor self) -> Tensor", "min(max(x + 3, 0), 6) / 6.")
      .python("hardsigmoid(input, inplace=False)")
      .pointwise([](Expr x) {
        return select(x >= 3.0, 1.0, select(x > -3.0, (x + 3.0) * (1.0 / 6), nan_or(x, zero_like(x))));
      });
  activation("log_sigmoid(Tensor self) -> Tensor", "log(1 / (1 + exp(-x))), without overflow.")
      .exact_out()
      .pointwise([](Expr x) {
        // By selects, which have a second derivative at 0 where abs has none.
        Expr below = x < 0.0;
        return select(below, x, zero_like(x)) - log1p(exp(select(below, x, -x)));
      });
  define("threshold(Tensor self, Scalar threshold, Scalar value) -> Tensor")
      .python("threshold(input, threshold, value, inplace=False)")
      .doc("x where greater than the threshold, else `value`.")
      .dtypes(d::integral | d::floating)
      .bind(function | nn_functional)
      .promote(Promote::none)
      .result(as_self)
      .check([](const Call& c) {
        must_fit_computed(c, "threshold");
        must_fit(c, "value");
      })
      .in_place()
      .pointwise([](Expr x, Expr threshold, Expr value) {
        return select(x <= cast(threshold, x.dtype()), cast(value, x.dtype()), x);
      })
      .samples({"self[3, 4], threshold=0.5, value=2", "self[], threshold=0, value=0"});
  activation("softshrink(Tensor self, Scalar lambd=0.5) -> Tensor",
             "x moved towards 0 by lambd; 0 within [-lambd, lambd].")
      .check([](const Call& c) {
        if (!is_known(c["lambd"])) return must_fit(c, "lambd");  // which is none below 0
        Scalar lambd = c.number("lambd");
        double v = lambd.to_double();
        runtime_check(v >= 0 && std::isfinite(v) && !overflows(lambd, c.dtype("self")), "softshrink")
            << "lambda must be in range [0, the largest number of " << c.dtype("self") << "], but found "
            << lambd;
      })
      .exact_out()
      .pointwise([](Expr x, Expr lambd) {
        return select(x > lambd, x - lambd, select(x < -lambd, x + lambd, nan_or(x, zero_like(x))));
      });
  define("hardshrink(Tensor self, Scalar lambd=0.5) -> Tensor")
      .exact_out()
      .doc("x, but 0 within [-lambd, lambd].")
      .dtypes(d::floating)
      .strict()
      .bind(function | method | nn_functional)
      .check(fitting({"lambd"}))
      .pointwise(
          [](Expr x, Expr lambd) { return select((x >= -lambd) & (x <= lambd), zero_like(x), nan_or(x, x)); })
      .samples(unary_samples(-4, 4));
  define("_leaky(Tensor self, Tensor weight) -> Tensor")
      .doc("x where positive, else weight * x.")
      .bind(hidden)
      .dtypes(d::floating)
      .pointwise([](Expr x, Expr weight) { return select(x > 0.0, x, weight * x); })
      .samples({"self[3, 4], weight[4]", "self[], weight[]", "self[0], weight[1]"});
  define("prelu(Tensor self, Tensor weight) -> Tensor")
      .doc(
          "x where positive, else weight * x, with one weight or one for each channel (dimension 1).  He et al., 2015.")
      .grad_name("PreluKernel")
      .autocast(Autocast::lower)
      .dtypes(d::floating)
      .strict()
      .bind(function | method | nn_functional)
      .composite([](const Tensor& x, const Tensor& weight) {
        SymInt n = weight.numel(), channels = x.dim() >= 2 ? x.size(1) : SymInt(int64_t(1));
        runtime_check(weight.dim() <= 1, "prelu")
            << "weight must have 0 or 1 dimensions, got shape " << to_string(weight.sizes());
        runtime_check(n == SymInt(int64_t(1)) || n == channels, "prelu")
            << "weight must hold 1 number, or one for each of the " << channels << " channels of the input "
            << to_string(x.sizes()) << ", got " << n;
        Dims sizes(size_t(std::max(x.dim(), 1)), SymInt(int64_t(1)));
        if (x.dim() >= 2 && n == channels) sizes[1] = n;
        if (x.dim() == 0) sizes.clear();
        return _leaky(x, view(weight, sizes));
      })
      .samples(
          {"self[2, 3, 4], weight[3]", "self[2, 3], weight[1]", "self[], weight[1]", "self[5], weight[]"});
  define("glu(Tensor self, int dim=-1) -> Tensor")
      .doc("a * sigmoid(b) for the halves a, b of self along `dim`.  Dauphin et al., 2016.")
      .dtypes(d::floating)
      .strict()
      .bind(nn_functional)
      .composite([](const Call& c, const Tensor& self) {
        runtime_check(self.dim() > 0, "glu") << "self must have at least one dimension";
        int k = c.dim("dim");
        int64_t n = self.size(k).guard_int();
        runtime_check(n % 2 == 0, "glu")
            << "Halving dimension must be even, but dimension " << k << " is size " << n;
        return _gated(narrow(self, k, 0, n / 2), narrow(self, k, n / 2, n / 2));
      })
      .samples({"self[3, 4]", "self[4, 3, 2], dim=0", "self[2, 6, 3], dim=1"});
  define("_gated(Tensor self, Tensor gate) -> Tensor")
      .doc("self * sigmoid(gate).")
      .bind(hidden)
      .dtypes(d::floating)
      .pointwise([](Expr x, Expr gate) { return x * sigmoid(gate); })
      // Derived, the gradient meets self before the slope of the gate, which may be 0: largest numbers give NaN.
      .vjp([](const Vjp& v) {
        auto [x, gate] = _gated_backward(v.grad(), v["self"], v["gate"]);
        return grads(x, gate);
      })
      .samples({"self[3, 4], gate[3, 4]"});
  define("_gated_backward(Tensor grad, Tensor self, Tensor gate) -> (Tensor of_self, Tensor of_gate)")
      .doc("The gradients of _gated. The gate's slope, which may be 0, meets self before the gradient does.")
      .bind(hidden)
      .dtypes(d::floating)
      .pointwise([](Expr g, Expr x, Expr gate) {
        Expr y = sigmoid(gate);
        return std::vector<Expr>{g * y, (1.0 - y) * y * x * g};
      })
      .samples({"grad[3, 4], self[3, 4], gate[3, 4]"});
}
