// Gamma, Poisson and binomial numbers, by rejection.
#include <cmath>
#include <limits>

#include "facula/autograd/autograd.h"
#include "facula/catalog/no_derivative.h"
#include "facula/catalog/random_helpers.h"
#include "facula/op/call.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/op/registry.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;
using namespace facula::catalog::random_helpers;

namespace {
// ---- Numbers of distributions that are drawn by rejection. A proposal is a function of its words in float64; the
// few that are rejected are proposed again.

Expr wide(double v) { return constant(v, DType::Float64); }
Expr operand(const LoopCall& c, const char* name, const Index& i) {
  return cast(c.load(name, i), DType::Float64);
}
// log(k!) for k >= 0: Stirling's series, from 8 on after log(k! (k + 1) ... (k + 8)).
Expr log_factorial(Expr k) {
  Expr x = k + 1.0, shifted = x < 8.0, product = x;
  for (int j = 1; j < 8; ++j) product = product * (x + double(j));
  Expr y = select(shifted, x + 8.0, x), r = 1.0 / (y * y);
  Expr series = ((0.00079365079365079365 * r - 0.0027777777777777778) * r + 0.083333333333333333) / y;
  Expr log_gamma = (y - 0.5) * log(y) - y + 0.91893853320467274178 + series;
  return select(shifted, log_gamma - log(select(shifted, product, wide(1))), log_gamma);
}
// Inverts the distribution function of a distribution over 0, 1, ... with a mean below 10 at u. The probability of k is
// first * ratio(1) * ... * ratio(k); the probability of numbers beyond 64 is below 2^-53.
template <class F>
Expr inverted(Expr u, Expr first, F&& ratio) {
  Expr probability = first, sum = first, count = wide(0);
  for (int k = 1; k < 64; ++k) {
    count = count + select(u >= sum, wide(1), wide(0));
    probability = probability * ratio(double(k));
    sum = sum + probability;
  }
  return count;
}
// a proposal that is none; no proposal that is accepted equals it

// Transformed rejection (Hormann, 1993), for 10 and more on average: the number, or kRejected. `scale` is that of
// the hat; log_ratio(k) = log(p(k) * constant).
template <class F>
Expr transformed_rejection(Expr u, Expr v, Expr a, Expr b, Expr centre, Expr scale, Expr last,
                           F&& log_ratio) {
  Expr us = 0.5 - abs(u - 0.5), k = floor((2.0 * a / us + b) * (u - 0.5) + centre);
  Expr inside = (k >= 0.0) & (k <= last), at = select(inside, k, wide(0));
  Expr accepted = log(v * scale / (a / (us * us) + b)) <= log_ratio(at);
  return select(inside & accepted, at, wide(kRejected));
}
std::vector<DType> as_self(const Call& c) { return {c.dtype("self")}; }
Definer proposal(const char* schema, const char* doc) {
  return std::move(define(schema)
                       .doc(doc)
                       .bind(hidden)
                       .non_differentiable("draws have no gradient until they are accepted")
                       .shape([](const Call& c) { return Dims(c.sizes("self")); }));
}
// Positive and not NaN, as the proposals need it; what the others give does not come from them.
Expr usable(Expr x) { return select((x > 0.0) & (x < 1e300), x, wide(1)); }
void expect_floating(const Tensor& t, const char* name) {
  supported_check(is_floating(t.dtype()), name)
      << "not implemented for '" << t.dtype() << "'"
      << hint("it takes floating-point parameters: x.float() converts");
}
}  // namespace

FACULA_FAMILY(random_gamma) {
  proposal("_log_gamma_proposal(Tensor state, Tensor self) -> Tensor",
           "Logarithm of a number of the gamma distribution with concentration self, or -1.")
      .result([](const Call&) { return std::vector<DType>{DType::Float64}; })
      .loop([](const LoopCall& c, Index i) {
        // Marsaglia and Tsang, 2000; below 1 from that of self + 1.
        Expr parameter = operand(c, "self", i), a = usable(parameter), small = a < 1.0;
        Expr shape = select(small, a + 1.0, a) - 1.0 / 3.0, scale = 1.0 / sqrt(9.0 * shape);
        auto u = [&](int k) { return uniform(c, DType::Float64, 2 * k, 8); };
        Expr x = sqrt(-2.0 * log(1.0 - u(0))) * cos(6.283185307179586 * u(1)), root = 1.0 + scale * x;
        Expr logarithm = 3.0 * log(select(root > 0.0, root, wide(1))), v = exp(logarithm);
        Expr bound = 0.5 * x * x + shape - shape * v + shape * logarithm;
        Expr accepted = (root > 0.0) & (log(1.0 - u(2)) < bound);
        Expr result = log(shape) + logarithm + select(small, log(1.0 - u(3)) / a, wide(0));
        Expr special = select(eq(parameter, wide(0)), -std::numeric_limits<double>::infinity(),
                              wide(std::numeric_limits<double>::quiet_NaN()));
        result = select(eq(result, wide(kRejected)), wide(std::nextafter(kRejected, 0)), result);
        return select(eq(a, parameter), select(accepted, result, wide(kRejected)), special);
      })
      .samples({"state<9>[2], self[3, 4](0.1, 5)"});
  proposal("_poisson_proposal(Tensor state, Tensor self) -> Tensor",
           "A number of the Poisson distribution with rate self, or -1.")
      .result(as_self)
      .loop([](const LoopCall& c, Index i) {
        Expr parameter = operand(c, "self", i), rate = usable(parameter),
             u = uniform(c, DType::Float64, 0, 4), v = 1.0 - uniform(c, DType::Float64, 2, 4);
        Expr low = min(rate, 10.0), high = max(rate, 10.0);
        Expr by_inversion = inverted(u, exp(-low), [&](double k) { return low / k; });
        Expr b = 0.931 + 2.53 * sqrt(high), a = 0.02483 * b - 0.059, scale = 1.1239 + 1.1328 / (b - 3.4);
        Expr many = transformed_rejection(u, v, a, b, high + 0.43, scale, wide(1e300),
                                          [&](Expr k) { return k * log(high) - high - log_factorial(k); });
        Expr result = select(rate < 10.0, by_inversion, many);
        Expr zero = select(eq(parameter, wide(0)), wide(0), wide(std::numeric_limits<double>::quiet_NaN()));
        return cast(select(eq(rate, parameter), result, zero), compute_type(c.dtype("self")));
      })
      .samples({"state<9>[2], self[3, 4](0.1, 5)"});
  proposal("_binomial_proposal(Tensor state, Tensor self, Tensor prob) -> Tensor",
           "Successes among `self` trials with probability `prob` each, or -1.")
      .result(as_self)
      .loop([](const LoopCall& c, Index i) {
        Expr parameter = operand(c, "self", i), chance = operand(c, "prob", i);
        Expr n = usable(floor(parameter)), flipped = chance > 0.5, p = select(flipped, 1.0 - chance, chance);
        p = select((p > 0.0) & (p <= 0.5), p, wide(0));
        Expr u = uniform(c, DType::Float64, 0, 4), v = 1.0 - uniform(c, DType::Float64, 2, 4);
        Expr is_small = n * p < 10.0;
        // Each side computes with numbers that it is made for.
        Expr m = select(is_small, n, wide(1)), q = select(is_small, p, wide(0)), r = q / (1.0 - q);
        Expr by_inversion =
            inverted(u, exp(m * log1p(-q)), [&](double k) { return max(m + 1.0 - k, 0.0) / k * r; });
        Expr size = select(is_small, wide(100), n), s = select(is_small, wide(0.5), p);
        Expr spread = sqrt(size * s * (1.0 - s)), b = 1.15 + 2.53 * spread,
             a = 0.0248 * b + 0.01 * s - 0.0873;
        Expr mode = floor((size + 1.0) * s), log_odds = log(s / (1.0 - s));
        Expr most = log_factorial(mode) + log_factorial(size - mode);
        Expr many =
            transformed_rejection(u, v, a, b, size * s + 0.5, (2.83 + 5.1 / b) * spread, size, [&](Expr k) {
              return most - log_factorial(k) - log_factorial(size - k) + (k - mode) * log_odds;
            });
        Expr successes = select(is_small, by_inversion, many);
        successes = select(flipped & (successes >= 0.0), n - successes, successes);
        Expr valid = (chance >= 0.0) & (chance <= 1.0);
        Expr none =
            select(eq(parameter, wide(0)) & valid, wide(0), wide(std::numeric_limits<double>::quiet_NaN()));
        return cast(select((parameter >= 1.0) & (parameter < 1e300) & valid, successes, none),
                    compute_type(c.dtype("self")));
      })
      .samples({"state<9>[2], self[3, 4](1, 50), prob[3, 4](0.1, 0.9)"});
  define("_log_gamma_slope(Tensor self, Tensor log_value, Tensor digamma) -> Tensor")
      .doc(
          "Derivative by the concentration `self` of the logarithm of a gamma distributed number at a fixed probability.  Figurnov et al., 2018.")
      .bind(hidden)
      .vjp(catalog::NoDerivative{"_standard_gamma_grad"})
      .dtypes(d::floating)
      .shape([](const Call& c) { return Dims(c.sizes("self")); })
      .loop([](const LoopCall& c, Index i) {
        Expr a = operand(c, "self", i), y = operand(c, "log_value", i), psi = operand(c, "digamma", i);
        // For numbers z = exp(y) below 1: the series of the distribution function.
        Expr z = exp(min(y, 0.0)), term = 1.0 / a, up = psi + 1.0 / a, series = wide(0);
        for (int n = 1; n < 15; ++n) {
          series = series + term * (up - min(y, 0.0));
          term = term * z / (a + double(n));
          up = up + 1.0 / (a + double(n));
        }
        // For others: the integral of density * (digamma - log) from 0 to z, or of its negative from z to infinity, whichever integrand
        // has one sign; over t = z exp(-+w), w = width * exp(u - exp(-u)), by the trapezoid rule.
        Expr large = max(y, 0.0);
        z = exp(large);
        Expr is_below = psi > large, side = select(is_below, wide(1), wide(-1)),
             fall = max((a - z) * side, 0.0);
        Expr width = 2.0 / (fall + sqrt(fall * fall + 2.0 * z));
        width = select(is_below, width, log1p(width));
        constexpr double kFirst = -3.3, kStep = 6.9 / 47;
        Expr integral = reduce(c, monoid::sum, {SymInt(int64_t(48))}, [&](Index k) {
          Expr u = cast(k[0], DType::Float64) * kStep + kFirst, e = exp(-u), w = width * exp(u - e);
          Expr density = exp(-side * a * w - z * expm1(-side * w));
          return w * (1.0 + e) * kStep * density * (side * (psi - large) + w);
        });
        return cast(select(y < 0.0, series, integral), compute_type(c.dtype("self")));
      })
      .samples({"self[3, 4](0.1, 5), log_value[3, 4](-2, 2), digamma[3, 4](-1, 1)"});
  define("_reparametrised_log_gamma(Tensor self, Tensor log_value) -> Tensor")
      .doc("log_value, which was drawn at the concentration `self` and moves with it.")
      .bind(hidden)
      .dtypes(d::floating)
      .shape([](const Call& c) { return Dims(c.sizes("self")); })
      .loop([](const LoopCall& c, Index i) { return c.load("log_value", i); })
      // The gradient of an operand that the body does not read.
      .vjp([](const Vjp& v) {
        Tensor a = v["self"];
        return grads(mul(v.grad(), _log_gamma_slope(a, v["log_value"], digamma(a))), Tensor());
      })
      .undifferenced("numbers that were drawn move with the concentration")
      .samples({"self[3, 4](0.1, 5), log_value[3, 4](-2, 2)"});
  define("_standard_log_gamma(Tensor self, Generator? generator=None) -> Tensor")
      .doc("Logarithms of numbers of the gamma distribution with concentration `self` and rate 1.")
      .bind(function)
      .draws()
      .reads_data()
      .undifferenced("numbers that were drawn move with the concentration")
      .procedure([](const Tensor& self, std::optional<Generator*> g) {
        expect_floating(self, "_standard_gamma");
        Tensor drawn_values =
            torch_random::is_used()
                ? torch_random::log_gamma(detach(self), g ? *g : nullptr)
                : drawn({detach(self)}, 8, g, [](const Tensor& state, const std::vector<Tensor>& of) {
                    return _log_gamma_proposal(state, of[0]);
                  });
        return _reparametrised_log_gamma(self, to_dtype(drawn_values, self.dtype()));
      })
      .samples({"self[3, 4](0.1, 5)"});
  define("_standard_gamma(Tensor self, Generator? generator=None) -> Tensor")
      .doc(
          "Numbers of the gamma distribution with concentration `self` and rate 1; they have a gradient.  Marsaglia and Tsang, 2000; Figurnov et al., 2018.")
      .bind(function)
      .draws()
      .reads_data()
      .undifferenced("numbers that were drawn move with the concentration")
      .procedure([](const Tensor& self, std::optional<Generator*> g) {
        return exp(_standard_log_gamma(self, g ? *g : nullptr));
      })
      .samples({"self[3, 4](0.1, 5)"});
  define("_standard_gamma_grad(Tensor self, Tensor output) -> Tensor")
      .doc("Derivative of `_standard_gamma`'s result by the concentration `self`.  Figurnov et al., 2018.")
      .bind(function)
      .vjp(catalog::NoDerivative{"_standard_gamma_grad"})
      .dtypes(d::floating)
      .composite([](const Tensor& self, const Tensor& output) {
        return mul(output, _log_gamma_slope(self, log(output), digamma(self)));
      })
      .samples({"self[3, 4](0.1, 5), output[3, 4](0.1, 4)"});
  define("_sample_dirichlet(Tensor self, Generator? generator=None) -> Tensor")
      .doc(
          "Numbers of the Dirichlet distribution with concentrations along the last dimension; they have a gradient.")
      .bind(function)
      .draws()
      .reads_data()
      .undifferenced("numbers that were drawn move with the concentration")
      .procedure([](const Tensor& self, std::optional<Generator*> g) {
        return softmax(_standard_log_gamma(self, g ? *g : nullptr), -1);
      })
      .samples({"self[3, 4](0.1, 5)"});
  define("poisson(Tensor self, Generator? generator=None) -> Tensor")
      .doc("Numbers of the Poisson distribution with rates `self`.  Hormann, 1993.")
      .bind(function)
      .draws()
      .reads_data()
      .non_differentiable("draws do not move with their rate: PyTorch's gradient is zero")
      .procedure([](const Tensor& self, std::optional<Generator*> g) {
        expect_floating(self, "poisson");
        runtime_check(true_everywhere(ge(self, 0.0)), "poisson")
            << "invalid Poisson rate, expected rate to be non-negative";
        return drawn({self}, 4, g, [](const Tensor& state, const std::vector<Tensor>& of) {
          return _poisson_proposal(state, of[0]);
        });
      })
      .samples({"self[3, 4](0, 30)"});
  define("binomial(Tensor count, Tensor prob, Generator? generator=None) -> Tensor")
      .doc("Successes among `count` trials of probability `prob` each.  Hormann, 1993.")
      .bind(function)
      .draws()
      .reads_data()
      .procedure([](const Tensor& count, const Tensor& prob, std::optional<Generator*> g) {
        value_check(is_floating(count.dtype()), "binomial")
            << "only supports floating-point dtypes for count, got " << count.dtype()
            << hint("count.float() converts");
        runtime_check(count.dtype() == prob.dtype(), "binomial")
            << "count and prob must have the same dtype, got " << count.dtype() << " and " << prob.dtype();
        Dims sizes = both("binomial", count, prob);
        Tensor y = drawn({expand(detach(count), sizes), expand(detach(prob), sizes)}, 4, g,
                         [](const Tensor& state, const std::vector<Tensor>& of) {
                           return _binomial_proposal(state, of[0], of[1]);
                         });
        return catalog::without_derivative(y, {count, prob}, "aten::binomial");
      })
      .samples({"count[3, 4](1, 50), prob[3, 4](0, 1)"});
}
