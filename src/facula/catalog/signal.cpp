// Window functions of signal processing, sampled in float64. Of period n: M of a periodic window, M - 1 of a
// symmetric one.
#include <cmath>
#include <initializer_list>

#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::op;

namespace {

constexpr double kPi = 3.14159265358979323846;

struct Window {
  int64_t length;
  bool symmetric;
  double period() const { return double(symmetric ? length - 1 : length); }
  Tensor places(double first = 0) const {
    return add(arange(Scalar(0.0), Scalar(double(length)), Scalar(1.0), DType::Float64), first);
  }
  Tensor ones() const { return full(SymInt(length), 1, DType::Float64); }
  // sum (-1)^k a_k cos(2 pi k i / n).
  Tensor cosines(std::initializer_list<double> a) const {
    Tensor angle = mul(places(), 2 * kPi / period()), y = ones();
    y = mul(y, *a.begin());
    double sign = -1;
    for (size_t k = 1; k < a.size(); ++k, sign = -sign)
      y = add(y, mul(cos(mul(angle, double(k))), sign * a.begin()[k]));
    return y;
  }
  // From -1 to 1 over a period.
  Tensor centred() const { return sub(mul(places(), 2 / period()), 1); }
  // About the middle, in samples.
  Tensor distances() const { return places(-double(symmetric || length < 2 ? length - 1 : length) / 2); }
  Tensor kaiser(double beta) const {
    Tensor k = centred();
    return div(i0(mul(sqrt(clamp_min(sub(1, mul(k, k)), 0)), beta)),
               i0(full(Sizes(Dims{}), beta, DType::Float64)));
  }
};

Tensor windowed(std::string_view kind, const Window& w, double p, std::optional<double> center) {
  if (kind == "cosine")
    return sin(mul(w.places(0.5), kPi / double(w.length + (!w.symmetric && w.length > 1))));
  if (kind == "exponential") return exp(neg(abs(mul(center ? w.places(-*center) : w.distances(), 1 / p))));
  if (kind == "gaussian") {
    Tensor k = mul(w.distances(), 1 / (p * std::sqrt(2.0)));
    return exp(neg(mul(k, k)));
  }
  if (w.length <= 1) return w.ones();
  if (kind == "bartlett") return sub(1, abs(w.centred()));
  if (kind == "kaiser") return w.kaiser(p);
  if (kind == "blackman") return w.cosines({0.42, 0.5, 0.08});
  internal_check(kind == "nuttall") << "no window " << kind;
  return w.cosines({0.3635819, 0.4891775, 0.1365995, 0.0106411});
}

// torch.NAME(window_length, periodic=True, ...).
Definer old_window(const char* schema, const char* doc) {
  return std::move(define(schema).doc(doc).bind(function));
}
template <class F>
Tensor sampled(const Call& c, int64_t length, bool periodic, F&& f) {
  DType t = c.maybe_dtype("dtype").value_or(default_dtype());
  runtime_check(is_floating(t), c.name()) << "expects floating point dtypes, got " << t;
  runtime_check(length >= 0, c.name()) << "requires non-negative window_length, got window_length=" << length;
  Window w{length, !periodic};
  return to_dtype(length <= 1 ? w.ones() : f(w), t);
}

}  // namespace

FACULA_FAMILY(signal) {
  define(
      "_window(str kind, int M, bool sym, float parameter=0, float? center=None, *, dtype? dtype=None) -> Tensor")
      .doc("The window functions of facula.signal.windows but the sums of cosines of any coefficients.")
      .bind(hidden)
      .procedure([](const Call& c, std::string_view kind, int64_t length, bool sym, double p,
                    std::optional<double> center) {
        return to_dtype(windowed(kind, {length, sym}, p, center),
                        c.maybe_dtype("dtype").value_or(default_dtype()));
      })
      .samples({"kind='bartlett', M=7, sym=True", "kind='gaussian', M=6, sym=False, parameter=2.0",
                "kind='kaiser', M=1, sym=True, parameter=2.0", "kind='nuttall', M=0, sym=True"});
  define("_general_cosine_window(Tensor a, int M, bool sym, *, dtype? dtype=None) -> Tensor")
      .doc("sum (-1)^k a[k] cos(2 pi k i / n) over the period n.")
      .bind(hidden)
      .non_differentiable("the window functions take their coefficients as numbers")
      .procedure([](const Call& c, const Tensor& a, int64_t length, bool sym) {
        Window w{length, sym};
        Tensor y = w.ones();
        if (length > 1) {
          Tensor k = unsqueeze(arange(Scalar(0.0), Scalar(double(a.numel().guard_int()) - 0.5), Scalar(1.0),
                                      DType::Float64),
                               -1);
          Tensor signs = mul(unsqueeze(to_dtype(a, DType::Float64), -1), pow(Scalar(-1.0), k));
          y = sum(mul(signs, cos(mul(k, mul(w.places(), 2 * kPi / w.period())))), 0);
        }
        return to_dtype(y, c.maybe_dtype("dtype").value_or(default_dtype()));
      })
      .samples({"a[3], M=7, sym=True", "a[2], M=6, sym=False", "a[2], M=1, sym=True"});
  old_window(
      "bartlett_window(int window_length, bool periodic=True, *, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor",
      "Bartlett's window, 1 - |2i/n - 1|; of a periodic one n is its length, else one less.")
      .procedure([](const Call& c, int64_t length, bool periodic) {
        return sampled(c, length, periodic, [](const Window& w) { return windowed("bartlett", w, 0, {}); });
      })
      .samples({"window_length=7", "window_length=6, periodic=False", "window_length=0"});
  old_window(
      "blackman_window(int window_length, bool periodic=True, *, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor",
      "Blackman's window, 0.42 - 0.5 cos(2 pi i / n) + 0.08 cos(4 pi i / n).")
      .procedure([](const Call& c, int64_t length, bool periodic) {
        return sampled(c, length, periodic, [](const Window& w) { return windowed("blackman", w, 0, {}); });
      })
      .samples({"window_length=7", "window_length=6, periodic=False", "window_length=1"});
  old_window(
      "hann_window(int window_length, bool periodic=True, *, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor",
      "Hann's window, 0.5 - 0.5 cos(2 pi i / n).")
      .procedure([](const Call& c, int64_t length, bool periodic) {
        return sampled(c, length, periodic, [](const Window& w) { return w.cosines({0.5, 0.5}); });
      })
      .samples({"window_length=7", "window_length=6, periodic=False", "window_length=1"});
  old_window(
      "hamming_window(int window_length, bool periodic=True, *, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor",
      "Hamming's window, 0.54 - 0.46 cos(2 pi i / n).")
      .procedure([](const Call& c, int64_t length, bool periodic) {
        return sampled(c, length, periodic, [](const Window& w) { return w.cosines({0.54, 0.46}); });
      })
      .samples({"window_length=7", "window_length=6, periodic=False", "window_length=1"});
  // PyTorch's overloads: alpha and beta are accepted only together with the preceding parameters.
  old_window(
      "hamming_window.periodic_alpha(int window_length, bool periodic, float alpha, float beta=0.46, *, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor",
      "Hamming's window, alpha - beta cos(2 pi i / n).")
      .procedure([](const Call& c, int64_t length, bool periodic, double alpha, double beta) {
        return sampled(c, length, periodic, [&](const Window& w) { return w.cosines({alpha, beta}); });
      })
      .samples({"window_length=7, periodic=True, alpha=0.6, beta=0.3",
                "window_length=6, periodic=False, alpha=0.5", "window_length=1, periodic=True, alpha=0.5"});
  old_window(
      "kaiser_window(int window_length, bool periodic=True, *, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor",
      "Kaiser's window, i0(12 sqrt(1 - (2i/n - 1)^2)) / i0(12).")
      .procedure([](const Call& c, int64_t length, bool periodic) {
        return sampled(c, length, periodic, [](const Window& w) { return w.kaiser(12); });
      })
      .samples({"window_length=7", "window_length=6, periodic=False", "window_length=1"});
  old_window(
      "kaiser_window.beta(int window_length, bool periodic, float beta, *, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor",
      "Kaiser's window, i0(beta sqrt(1 - (2i/n - 1)^2)) / i0(beta).")
      .procedure([](const Call& c, int64_t length, bool periodic, double beta) {
        return sampled(c, length, periodic, [&](const Window& w) { return w.kaiser(beta); });
      })
      .samples({"window_length=7, periodic=True, beta=12.0", "window_length=6, periodic=False, beta=5.0",
                "window_length=1, periodic=True, beta=5.0"});
}
