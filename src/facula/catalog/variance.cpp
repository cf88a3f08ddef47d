// Variances and standard deviations.
#include <algorithm>
#include <cmath>

#include "facula/base/warning.h"
#include "facula/catalog/selected.h"
#include "facula/catalog/widened.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
using catalog::is_rounded;
using catalog::put_back;
namespace d = facula::dtypes;

namespace {
double correction_of(const Call& c) { return c.has("correction") ? c.real("correction") : 1; }
// t over the degrees of freedom that `count` elements have left; none if the correction is no number.
Tensor over_freedom(const Tensor& t, const SymInt& count, double correction) {
  bool whole = correction == std::floor(correction) && std::abs(correction) < 0x1p53;
  if (whole && !(count < SymInt(int64_t(correction))))
    return div(t, max(count - SymInt(int64_t(correction)), SymInt(int64_t(0))));
  double freedom = double(count.guard_int()) - correction;
  if (freedom > 0) return div(t, freedom);
  return _without_freedom(t, freedom);
}
struct Moments {
  Tensor mean, variance;
};
// Variance over `dim`, by Welford's recurrence: sums of squares would cancel. And the mean, if it is wanted.
Moments moments(const Tensor& x, Sizes dim, std::optional<double> correction, bool keepdim, bool with_mean) {
  runtime_check(is_differentiable(x.dtype()), "var")
      << "std and var only support floating point and complex dtypes, got " << x.dtype() << hint("x.float()");
  Ints dims;
  for (auto k : dim) dims.push_back(wrap_dim("var", k.guard_int(), x.dim()));
  if (dims.empty())
    for (int k = 0; k < x.dim(); ++k) dims.push_back(k);
  SymInt count = x.dim() ? reduced_count(x.sizes(), dims) : SymInt(int64_t(1));
  double freedom_of_one = 1 - correction.value_or(1);
  auto deviation = [&](const Tensor& t) {
    return t.dim() ? _square_deviation(t, dim, keepdim) : _lone_deviation(t, freedom_of_one);
  };
  auto both = [&](const Tensor& t) {
    return with_mean && t.dim() ? _moments(t, dim, keepdim) : std::tuple(mean(t, dim, keepdim), deviation(t));
  };
  if (!with_mean || !is_complex(x.dtype())) {
    auto [middle, total] = both(x);
    return {middle, over_freedom(total, count, correction.value_or(1))};
  }
  auto [along, total] = both(_real(x));
  auto [across, more] = both(_imag(x));
  Tensor middle = view_as_complex(stack(std::vector<Tensor>{along, across}, -1));
  total = add(total, more);
  return {middle, over_freedom(total, count, correction.value_or(1))};
}
// In float64, where squares neither overflow nor vanish; complex numbers part by part in their own, as in PyTorch.
Tensor in_float64(const Tensor& x) { return is_floating(x.dtype()) ? to_dtype(x, DType::Float64) : x; }
// A wider out= is what moments of floats are computed in. PyTorch has no kernel for that where 16 bits are reduced to one
// number.
DType dtype_of_moments(const Call& c, std::span<const Tensor> out) {
  DType self = c.dtype("self"), to = out[0].dtype();
  if (!is_floating(self) || itemsize(to) <= itemsize(self)) return self;
  SymInt count(int64_t(1));
  Ints dims = c.dims("dim");
  for (int k = 0; k < c.rank("self"); ++k)
    if (std::find(dims.begin(), dims.end(), k) == dims.end()) count *= c.size("self", k);
  runtime_check(itemsize(self) > 2 || !(count == SymInt(int64_t(1))), c.name())
      << "one number of " << self << " of shape " << to_string(c.sizes("self")) << " can't be computed in "
      << to << ", the dtype of out=" << hint("self.to(out.dtype)");
  return is_floating(to) ? to : self;
}
// The square root, whose gradient at 0 is 0: there the length has a kink, its lowest point.
Tensor root(const Tensor& variance) {
  Tensor none = eq(variance, 0);
  return where(none, zeros_like(variance), sqrt(where(none, ones_like(variance), variance)));
}
// The gradient of a sum of squared distances from the mean, or of that sum and the mean.
Grads gradient_of_centre(const Vjp& v) {
  bool both = v.call().op().schema.returns.size() > 1;
  Tensor x = v["self"], of_sum = v.grad(both ? 1 : 0), of_mean = both ? v.grad(0) : Tensor(), g;
  auto dims = v.call().dims("dim");
  if (of_sum.defined()) g = mul(mul(put_back(v, of_sum), 2), sub(x, mean(x, dims, true)));
  if (!of_mean.defined()) return grads(g);
  of_mean = expand(div(put_back(v, of_mean), reduced_count(x.sizes(), dims)), x.sizes());
  return grads(g.defined() ? add(g, of_mean) : of_mean);
}
// The gradient of a variance or standard deviation, and of the mean returned with it. They are computed separately, so that a NaN
// variance does not reach the gradient of the mean.
VjpRule gradient_of_moments(bool is_root) {
  return [is_root](const Vjp& v) {
    auto& c = v.call();
    Tensor x = v["self"], spread = v.grad(0), mean = c.op().schema.returns.size() > 1 ? v.grad(1) : Tensor();
    Ints dims = c.dims("dim");
    SymInt count = reduced_count(c.sizes("self"), dims);
    if (!spread.defined())
      return grads(mean.defined() ? expand(div(put_back(v, mean), count), c.sizes("self")) : Tensor());
    double freedom = double(count.guard_int()) - correction_of(c);
    bool all = c["dim"].is_none() || c.rank("self") == 0, anew = is_root && is_rounded(x) && x.dim();
    Tensor root = is_root && !anew ? put_back(v, v.result(0)) : Tensor();
    if (mean.defined()) mean = put_back(v, mean);
    auto maybe = [](const Tensor& t) { return t.defined() ? MaybeTensor(t) : MaybeTensor(); };
    return grads(_variance_backward(put_back(v, spread), x, maybe(root), maybe(mean), dims, 2.0 / freedom,
                                    all && freedom <= 0, anew));
  };
}
Tensor gradient_of_root(const Tensor& y, const Tensor& g) {
  Tensor none = eq(y, 0);
  return where(none, zeros_like(y), div(g, mul(where(none, ones_like(y), y), 2)));
}
// PyTorch's warning of a variance that divides by 0 or less; where there is no result it counts 0 elements.
void warn_of_freedom(const Call& c) {
  SymSpan sizes = c.sizes("self");
  if (any_symbolic(sizes)) return;
  Ints over = c.dims("dim");
  int64_t count = 1, results = 1;
  for (size_t k = 0; k < sizes.size(); ++k) {
    bool reduced = std::find(over.begin(), over.end(), int64_t(k)) != over.end();
    (reduced ? count : results) *= sizes[k].concrete();
  }
  if (double(results ? count : 0) - (c.has("correction") ? c.real("correction") : 1) > 0) return;
  warn(
      c.op().schema.name +
      "(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor (input numel divided by output numel).");
}
}  // namespace

FACULA_FAMILY(variance) {
  define("_square_deviation(Tensor self, int[] dim, bool keepdim) -> Tensor")
      .doc(
          "Sum of squared distances from the mean over `dim`. Its gradient knows that the mean adds nothing to it.")
      .bind(hidden)
      .dtypes(d::floating | d::complex)
      .result(ResultType::real)
      .shape(reduced())
      .loop([](const LoopCall& c, Index i) {
        auto of = [&](Expr (*component)(Expr)) {
          return part(Axes(c).reduce(monoid::welford, i,
                                     [&](Index j) { return component(c.load("self", j)); }),
                      1);
        };
        return is_complex(c.dtype("self")) ? of(loop::real) + of(loop::imag) : of([](Expr x) { return x; });
      })
      // The mean adds nothing to it; derived, each element computes it anew.
      .vjp(gradient_of_centre)
      .samples({"self[3, 4], dim=[1], keepdim=True", "self[2, 3, 4], dim=[0, 2], keepdim=False",
                "self[33, 129], dim=[1], keepdim=True", "self[129, 33], dim=[0], keepdim=False"});
  define("_mean_and_deviation(Tensor self, int[] dim, bool keepdim) -> (Tensor mean, Tensor deviation)")
      .doc("Mean and `_square_deviation` over `dim`; the mean is corrected by the sum of what is left.")
      .bind(hidden)
      .dtypes(d::floating)
      .shapes([](const Call& c) { return std::vector<Dims>(2, reduced()(c)); })
      .loop([](const LoopCall& c, Index i) {
        Expr fold = Axes(c).reduce(monoid::welford, i, [&](Index j) { return c.load("self", j); });
        return std::vector<Expr>{part(fold, 0), part(fold, 1)};
      })
      // The mean adds nothing to it; derived, each element computes it anew.
      .vjp(gradient_of_centre)
      .samples({"self[3, 4], dim=[1], keepdim=True", "self[2, 3, 4], dim=[0, 2], keepdim=False",
                "self[33, 129], dim=[1], keepdim=True", "self[129, 33], dim=[0], keepdim=False"});
  define("_moments(Tensor self, int[] dim, bool keepdim) -> (Tensor mean, Tensor deviation)")
      .doc(
          "Mean and `_square_deviation` over `dim`; the mean is corrected by the sum of what is left. Beside an infinity it "
          "is NaN, but for the last element: Welford's recurrence ends there.")
      .bind(hidden)
      .dtypes(d::floating)
      .shapes([](const Call& c) { return std::vector<Dims>(2, reduced()(c)); })
      .loop([](const LoopCall& c, Index i) {
        Axes axes(c);
        auto at = [&](Index j) { return c.load("self", j); };
        Expr n = integer(1);
        for (auto& b : axes.domain().vars) n = n * b.extent;
        Expr fold = axes.reduce(monoid::welford, i, at), sum = axes.reduce(monoid::sum, i, at);
        Expr before = axes.reduce(monoid::any, i, [&](Index j) {
          return isinf(at(j)) & (axes.position() < n - Scalar(int64_t(1)));
        });
        Expr mean = part(fold, 0);
        bool wide = mean.dtype() == DType::Float64;
        double largest = wide ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max();
        Expr last = bit_not(abs(mean) <= largest) & isinf(sum) & bit_not(before);
        return std::vector<Expr>{select(last, sum, select(isinf(mean), constant(NAN, mean.dtype()), mean)),
                                 part(fold, 1)};
      })
      // The mean adds nothing to it; derived, each element computes it anew.
      .vjp(gradient_of_centre)
      .samples({"self[3, 4], dim=[1], keepdim=True", "self[2, 3, 4], dim=[0, 2], keepdim=False",
                "self[33, 129], dim=[1], keepdim=True", "self[129, 33], dim=[0], keepdim=False"});
  define("_lone_deviation(Tensor self, Scalar freedom) -> Tensor")
      .doc("The squared distance of a number from itself, of which `freedom` degrees are left.")
      .bind(hidden)
      .dtypes(d::floating | d::complex)
      .result(ResultType::real)
      .shape([](const Call&) { return Dims(); })
      .loop([](const LoopCall& c, Index i) {
        auto of = [](Expr x) { return (x - x) * (x - x); };
        Expr x = c.load("self", i);
        return is_complex(x.dtype()) ? of(loop::real(x)) + of(loop::imag(x)) : of(x);
      })
      .samples({"self[], freedom=1"});
  define("_without_freedom(Tensor self, Scalar freedom) -> Tensor")
      .doc("self over 0, and over `freedom`, which is negative or NaN, in the gradient.")
      .bind(hidden)
      .dtypes(d::floating)
      .shape([](const Call& c) { return Dims(c.sizes("self")); })
      .loop([](const LoopCall& c, Index i) {
        return c.load("self", i) / constant(0.0, compute_type(c.dtype("self")));
      })
      .samples({"self[0], freedom=-2"});
  define(
      "_variance_backward(Tensor grad, Tensor self, Tensor? root, Tensor? grad_mean, int[] dim, Scalar factor, bool undefined, bool rooted=False) "
      "-> Tensor")
      .doc(
          "grad * factor * (self - mean) for a grad whose reduced dimensions are there; of the square root `root` if given, which "
          "`rooted` computes anew; and of the mean. Where no degree of freedom is left (`undefined`) only elements at the mean have "
          "no gradient.")
      .bind(hidden)
      .dtypes(d::floating | d::complex)
      .composite([](const Tensor& grad, const Tensor& self, std::optional<Tensor> given,
                    std::optional<Tensor> grad_mean, Sizes dim, const Tensor& factor, bool undefined,
                    bool rooted) {
        Tensor middle, g = given ? gradient_of_root(*given, grad) : grad;
        if (rooted) {
          auto [along, deviation] = _moments(self, dim, true);
          middle = along, g = gradient_of_root(root(div(mul(deviation, factor), 2)), grad);
        } else {
          middle = self.dim() ? mean(self, dim, true) : self;
        }
        if (!self.dim() && is_complex(self.dtype()))  // an infinity by parts is no mean
          middle = where(isfinite(self), self, full_like(self, std::numeric_limits<double>::quiet_NaN()));
        Tensor result;
        if (undefined) {
          Tensor none = zeros_like(g), endless = add(none, std::numeric_limits<double>::infinity());
          result = mul(g, where(eq(self, middle), mul(none, endless), endless));
        } else {
          result = mul(mul(g, factor), sub(self, middle));
        }
        if (!grad_mean) return result;
        Ints dims;
        for (auto k : dim) dims.push_back(k.guard_int());
        return add(result, div(*grad_mean, reduced_count(self.sizes(), dims)));
      })
      .samples(
          {"grad[3, 1], self[3, 4], root=None, grad_mean=None, dim=[1], factor=0.5, undefined=False",
           "grad[3, 1], self[3, 4], root[3, 1](0.1, 2), grad_mean[3, 1], dim=[1], factor=0.5, undefined=False",
           "grad[3, 1], self[3, 4], root=None, grad_mean=None, dim=[1], factor=0.5, undefined=False, rooted=True"});
  define("var(Tensor self, int[1]? dim=None, *, float? correction=1, bool keepdim=False) -> Tensor")
      .check(warn_of_freedom)
      .converting_out()
      .for_out(dtype_of_moments)
      .doc("Variance over `dim`: mean squared deviation, with `correction` subtracted from the count.")
      .dtypes(d::floating | d::complex)
      .composite([](const Tensor& self, Sizes dim, std::optional<double> correction, bool keepdim) {
        return catalog::narrowed(moments(in_float64(self), dim, correction, keepdim, false).variance,
                                 real_of(self.dtype()));
      })
      // In one sweep, and as PyTorch's where no freedom is left.
      .vjp(gradient_of_moments(false))
      .samples(reduction_samples());
  define("var.unbiased(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> Tensor")
      .converting_out()
      .for_out(dtype_of_moments)
      .doc("Variance over `dim`, unbiased or not.")
      .procedure([](const Tensor& self, Sizes dim, bool unbiased, bool keepdim) {
        return var(self, dim, std::optional<double>(unbiased ? 1.0 : 0.0), keepdim);
      })
      .samples({"self[3, 4], dim=[1], unbiased=False", "self[3, 4], dim=[0], unbiased=True, keepdim=True"});
  define("std(Tensor self, int[1]? dim=None, *, float? correction=1, bool keepdim=False) -> Tensor")
      .check(warn_of_freedom)
      .converting_out()
      .for_out(dtype_of_moments)
      .doc("Standard deviation over `dim`.")
      .dtypes(d::floating | d::complex)
      .composite([](const Tensor& self, Sizes dim, std::optional<double> correction, bool keepdim) {
        return catalog::narrowed(root(moments(in_float64(self), dim, correction, keepdim, false).variance),
                                 real_of(self.dtype()));
      })
      // In one sweep, and as PyTorch's where no freedom is left.
      .vjp(gradient_of_moments(true))
      .samples({"self[3, 4], dim=[1]", "self[3, 4]", "self[2, 3, 4], dim=[0, 2], correction=0, keepdim=True",
                "self[33, 129], dim=[1]"});
  define("std.unbiased(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> Tensor")
      .converting_out()
      .for_out(dtype_of_moments)
      .doc("Standard deviation over `dim`, unbiased or not.")
      .procedure([](const Tensor& self, Sizes dim, bool unbiased, bool keepdim) {
        return facula::std(self, dim, std::optional<double>(unbiased ? 1.0 : 0.0), keepdim);
      })
      .samples({"self[3, 4], dim=[1], unbiased=False", "self[3, 4], dim=[0], unbiased=True, keepdim=True"});
  define("var.all(Tensor self, bool unbiased) -> Tensor")
      .converting_out()
      .doc("Variance of all elements, unbiased or not.")
      .procedure([](const Tensor& self, bool unbiased) {
        return var(self, Sizes(), std::optional<double>(unbiased ? 1.0 : 0.0));
      })
      .samples({"self[3, 4], unbiased=False", "self[5], unbiased=True"});
  define("std.all(Tensor self, bool unbiased) -> Tensor")
      .converting_out()
      .doc("Standard deviation of all elements, unbiased or not.")
      .procedure([](const Tensor& self, bool unbiased) {
        return facula::std(self, Sizes(), std::optional<double>(unbiased ? 1.0 : 0.0));
      })
      .samples({"self[3, 4], unbiased=False", "self[5], unbiased=True"});
  define(
      "var_mean(Tensor self, int[1]? dim=None, *, float? correction=1, bool keepdim=False) -> (Tensor, Tensor)")
      .check(warn_of_freedom)
      .doc("Variance and mean over `dim`.")
      .dtypes(d::floating | d::complex)
      .composite([](const Tensor& self, Sizes dim, std::optional<double> correction, bool keepdim) {
        auto [mean, variance] = moments(in_float64(self), dim, correction, keepdim, true);
        return std::tuple(catalog::narrowed(variance, real_of(self.dtype())),
                          catalog::narrowed(mean, self.dtype()));
      })
      // In one sweep, and as PyTorch's where no freedom is left.
      .vjp(gradient_of_moments(false))
      .samples(
          {"self[3, 4], dim=[1]", "self[3, 4]", "self[2, 3, 4], dim=[0, 2], correction=0, keepdim=True"});
  define(
      "var_mean.unbiased(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> (Tensor, Tensor)")
      .doc("Variance and mean over `dim`, unbiased or not.")
      .procedure([](const Tensor& self, Sizes dim, bool unbiased, bool keepdim) {
        return var_mean(self, dim, std::optional<double>(unbiased ? 1.0 : 0.0), keepdim);
      })
      .samples({"self[3, 4], dim=[1], unbiased=False", "self[3, 4], dim=[0], unbiased=True, keepdim=True"});
  define("var_mean.all(Tensor self, bool unbiased) -> (Tensor, Tensor)")
      .doc("Variance and mean of all elements, unbiased or not.")
      .procedure([](const Tensor& self, bool unbiased) {
        return var_mean(self, Sizes(nullopt), std::optional<double>(unbiased ? 1.0 : 0.0));
      })
      .samples({"self[3, 4], unbiased=False"});
  define(
      "std_mean(Tensor self, int[1]? dim=None, *, float? correction=1, bool keepdim=False) -> (Tensor, Tensor)")
      .check(warn_of_freedom)
      .doc("Standard deviation and mean over `dim`.")
      .dtypes(d::floating | d::complex)
      .composite([](const Tensor& self, Sizes dim, std::optional<double> correction, bool keepdim) {
        auto [mean, variance] = moments(in_float64(self), dim, correction, keepdim, true);
        return std::tuple(catalog::narrowed(root(variance), real_of(self.dtype())),
                          catalog::narrowed(mean, self.dtype()));
      })
      // In one sweep, and as PyTorch's where no freedom is left.
      .vjp(gradient_of_moments(true))
      .samples({"self[3, 4], dim=[1]", "self[2, 3, 4], dim=[0, 2], correction=0, keepdim=True"});
  define(
      "std_mean.unbiased(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> (Tensor, Tensor)")
      .doc("Standard deviation and mean over `dim`, unbiased or not.")
      .procedure([](const Tensor& self, Sizes dim, bool unbiased, bool keepdim) {
        return std_mean(self, dim, std::optional<double>(unbiased ? 1.0 : 0.0), keepdim);
      })
      .samples({"self[3, 4], dim=[1], unbiased=False"});
  define("std_mean.all(Tensor self, bool unbiased) -> (Tensor, Tensor)")
      .doc("Standard deviation and mean of all elements, unbiased or not.")
      .procedure([](const Tensor& self, bool unbiased) {
        return std_mean(self, Sizes(nullopt), std::optional<double>(unbiased ? 1.0 : 0.0));
      })
      .samples({"self[3, 4], unbiased=False"});
}
