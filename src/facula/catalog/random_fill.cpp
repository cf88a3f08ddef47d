// Tensors filled with random numbers in place, and normal numbers around means.
#include <algorithm>
#include <cmath>

#include "facula/autograd/autograd.h"
#include "facula/catalog/random_helpers.h"
#include "facula/op/call.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"
#include "facula/tensor/promotion.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
using namespace facula::catalog::random_helpers;

namespace {
Definer in_place_fill(const char* schema, const char* doc) {
  return std::move(
      define(schema).doc(doc).bind(method).draws().non_differentiable("random numbers replace the elements"));
}
// Writes make(sizes) into a large tensor piece by piece, so that the intermediate values take the memory of one piece.
// The generator hands out numbers in blocks of four: pieces of a multiple of four elements get the same numbers as the
// whole, and PyTorch's normal numbers, which come in blocks of 16, have no piece that is smaller than a block. Where calls are
// recorded or differentiated, the tensor is filled by one call.
template <class F>
Tensor filled(const Tensor& self, F&& make) {
  constexpr int64_t kPiece = int64_t(1) << 18, kLeast = 16;
  bool plain = !Mode::current() && self.device().type == DeviceType::cpu && self.dim() > 0 &&
               !(autograd::grad_enabled() && self.requires_grad());
  if (!plain || self.numel().concrete() <= kPiece) return copy_(self, make(self.sizes()));
  Tensor rows_of_self = self.is_contiguous() ? view(self, Sizes{int64_t(-1)}) : self;
  int64_t rows = rows_of_self.size(0).concrete(), row = rows_of_self.numel().concrete() / rows;
  int64_t step = std::max(kPiece / row / 4 * 4, int64_t(4));
  for (int64_t at = 0, count; at < rows; at += count) {
    count = rows - at < step + kLeast ? rows - at : step;
    Tensor piece = narrow(rows_of_self, 0, at, count);
    copy_(piece, make(piece.sizes()));
  }
  return self;
}
// make(uniform numbers in [0, 1) of float64), converted to self's dtype.
template <class F>
Tensor filled(const char* name, const Tensor& self, std::optional<Generator*> g, F&& make) {
  runtime_check(is_floating(self.dtype()), name)
      << "a continuous distribution needs a floating point dtype, but the dtype is " << self.dtype();
  return filled(self, [&](SymSpan sizes) { return make(rand(sizes, g ? *g : nullptr, DType::Float64)); });
}
// random_: integers from `from` on, below `to` or up to the largest that the dtype holds exactly.
Tensor fill_integers(const Tensor& self, int64_t from, std::optional<int64_t> to,
                     std::optional<Generator*> g) {
  DType t = self.dtype();
  supported_check(!is_complex(t), "random_") << "not implemented for '" << t << "'";
  bool negative = t != DType::Bool && t != DType::UInt8;
  int64_t last = 0;
  if (to) {
    runtime_check(from < *to, "random_")
        << "expects 'from' to be less than 'to', but got from=" << from << " >= to=" << *to;
    last = *to - 1;
  } else if (is_floating(t)) {
    last = int64_t(1) << (t == DType::Float16    ? 11
                          : t == DType::BFloat16 ? 8
                          : t == DType::Float32  ? 24
                                                 : 53);
  } else {
    last = t == DType::Bool ? 1 : int64_t((uint64_t(1) << (8 * itemsize(t) - negative)) - 1);
  }
  runtime_check(holds(t, from), "random_") << "from=" << from << " is out of bounds for " << t;
  runtime_check(holds(t, last), "random_") << "to - 1 = " << last << " is out of bounds for " << t;
  runtime_check(from <= last, "random_") << "no number from " << from << " on is exact in " << t;
  uint64_t range = uint64_t(last) - uint64_t(from) + 1;
  // Without a bound the dtype tells how many words PyTorch takes for each.
  namespace theirs = catalog::torch_random;
  const char* kind = to ? "integers" : t == DType::Int64 || t == DType::Float64 ? "long_words" : "words";
  return filled(self, [&](SymSpan sizes) {
    return theirs::is_used()
               ? theirs::integers(sizes, Scalar(from), Scalar(int64_t(range)), t, g ? *g : nullptr, kind)
               : integers(sizes, from, range, t, g);
  });
}
void check_deviation(double std) {
  runtime_check(std >= 0, "normal") << "expects std >= 0.0, but found std " << std;
}
Tensor noise(const Tensor& like, SymSpan sizes, std::optional<Generator*> g) {
  return randn(sizes, g ? *g : nullptr, like.dtype());
}
Tensor normal_around(const Tensor& mean, const Tensor& std, std::optional<Generator*> g) {
  runtime_check(!is_complex(std.dtype()), "normal") << "expects standard deviation to be non-complex";
  runtime_check(true_everywhere(ge(std, 0)), "normal") << "expects all elements of std >= 0.0";
  return _normal_around(noise(mean.dim() ? mean : std, both("normal", mean, std), g), mean, std);
}
}  // namespace

FACULA_FAMILY(random_fill) {
  in_place_fill(
      "uniform_(Tensor(a!) self, float from=0, float to=1, *, Generator? generator=None) -> Tensor(a!)",
      "Filled with uniform numbers in [from, to).")
      .procedure([](const Tensor& self, double from, double to, std::optional<Generator*> g) {
        DType t = self.dtype();
        for (double bound : {from, to, to - from})
          runtime_check(std::isfinite(bound) && !overflows(Scalar(bound), t), "uniform_")
              << "a range from " << from << " to " << to << " is out of bounds for " << t;
        runtime_check(from <= to, "uniform_")
            << "expects to return a [from, to) range, but found from=" << from << " > to=" << to;
        double most = std::max(from, next_lower(to, is_complex(t) ? real_of(t) : t));
        return filled(self, [&](SymSpan sizes) {
          DType computed = compute_type(t);
          Tensor y = torch_random::is_used() && !is_complex(t)
                         ? torch_random::uniform(sizes, computed, from, to, g ? *g : nullptr)
                         : add(mul(rand(sizes, g ? *g : nullptr, computed), to - from), from);
          return is_complex(t) || from == to ? y : clamp_max(y, Scalar(most));
        });
      })
      .samples({"self[3, 4], from=1.0, to=2.0"});
  in_place_fill(
      "normal_(Tensor(a!) self, float mean=0, float std=1, *, Generator? generator=None) -> Tensor(a!)",
      "Filled with normal numbers.")
      .procedure([](const Tensor& self, double mean, double std, std::optional<Generator*> g) {
        runtime_check(std >= 0, "normal_") << "expects std >= 0.0, but found std " << std;
        return filled(self, [&](SymSpan sizes) {
          DType computed = compute_type(self.dtype());
          if (torch_random::is_used() && !is_complex(computed))
            return torch_random::normal(sizes, computed, mean, std, g ? *g : nullptr);
          return add(mul(randn(sizes, g ? *g : nullptr, computed), std), mean);
        });
      })
      .samples({"self[3, 4], mean=1.0, std=2.0"});
  in_place_fill("random_(Tensor(a!) self, *, Generator? generator=None) -> Tensor(a!)",
                "Filled with integers from 0 to the largest that the dtype holds exactly.")
      .procedure(
          [](const Tensor& self, std::optional<Generator*> g) { return fill_integers(self, 0, {}, g); })
      .samples({"self[3, 4]"});
  in_place_fill("random_.to(Tensor(a!) self, Scalar to, *, Generator? generator=None) -> Tensor(a!)",
                "Filled with integers in [0, to).")
      .procedure([](const Tensor& self, Scalar to, std::optional<Generator*> g) {
        return fill_integers(self, 0, integral_bound("random_", to), g);
      })
      .samples({"self[3, 4], to=7"});
  in_place_fill(
      "random_.from(Tensor(a!) self, Scalar from, Scalar? to, *, Generator? generator=None) -> Tensor(a!)",
      "Filled with integers in [from, to), or from `from` to the largest that the dtype holds exactly.")
      .procedure([](const Tensor& self, Scalar from, std::optional<Scalar> to, std::optional<Generator*> g) {
        int64_t first = integral_bound("random_", from);
        return to ? fill_integers(self, first, integral_bound("random_", *to), g)
                  : fill_integers(self, first, {}, g);
      })
      .samples({"self[3, 4], from=2, to=7"});
  define("_normal_around(Tensor noise, Tensor mean, Tensor std) -> Tensor")
      .doc(
          "noise * std + mean. Its gradient is 0, as PyTorch's: numbers that were drawn do not move with these.")
      .bind(hidden)
      .pointwise([](Expr noise, Expr mean, Expr std) { return noise * std + mean; })
      // None, as PyTorch's, though they are zeros.
      .vjp([](const Vjp& v) {
        auto none = [&](const char* of) { return v.needs(of) ? zeros_like(v.grad()) : Tensor(); };
        return grads(Tensor(), none("mean"), none("std"));
      })
      .undifferenced("random numbers do not move with their mean")
      .samples({"noise[3, 4], mean[3, 4], std[4](0, 1)"});
  const char* drawn_around = "Normal numbers of the given means and deviations, one for each element.";
  define("normal.Tensor_Tensor(Tensor mean, Tensor std, *, Generator? generator=None) -> Tensor")
      .doc(drawn_around)
      .bind(function)
      .draws()
      .reads_data()
      .undifferenced("draws do not move with their distribution: PyTorch's gradient is zero")
      .procedure([](const Tensor& mean, const Tensor& std, std::optional<Generator*> g) {
        return normal_around(mean, std, g);
      })
      .samples({"mean[3, 1], std[4](0, 1)"});
  define("normal.Tensor_float(Tensor mean, float std=1, *, Generator? generator=None) -> Tensor")
      .doc(drawn_around)
      .bind(function)
      .draws()
      .undifferenced("draws do not move with their distribution: PyTorch's gradient is zero")
      .procedure([](const Tensor& mean, double std, std::optional<Generator*> g) {
        check_deviation(std);
        return _normal_around(noise(mean, mean.sizes(), g), mean, full(Dims{}, Scalar(std), mean.dtype()));
      })
      .samples({"mean[3, 4], std=0.5"});
  define("normal.float_Tensor(float mean, Tensor std, *, Generator? generator=None) -> Tensor")
      .doc(drawn_around)
      .bind(function)
      .draws()
      .reads_data()
      .undifferenced("draws do not move with their distribution: PyTorch's gradient is zero")
      .procedure([](double mean, const Tensor& std, std::optional<Generator*> g) {
        return normal_around(full(Dims{}, Scalar(mean), std.dtype()), std, g);
      })
      .samples({"mean=2.0, std[3](0, 1)"});
  define(
      "normal.float_float(float mean, float std, SymInt[] size, *, Generator? generator=None, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor")
      .doc("Normal numbers of one mean and deviation.")
      .bind(function)
      .draws()
      .procedure([](const Call& c, double mean, double std, SymSpan size, std::optional<Generator*> g) {
        check_deviation(std);
        return add(mul(randn(size, g ? *g : nullptr, c.maybe_dtype("dtype")), std), mean);
      })
      .samples({"mean=1.0, std=0.5, size=[3, 4]"});
  in_place_fill("bernoulli_(Tensor(a!) self, float p=0.5, *, Generator? generator=None) -> Tensor(a!)",
                "Filled with 1 (probability p) and 0.")
      .procedure([](const Tensor& self, double p, std::optional<Generator*> g) {
        runtime_check(p >= 0 && p <= 1, "bernoulli_") << "expects p to be in [0, 1], but got p=" << p;
        return filled(self, [&](SymSpan sizes) {
          DType t = torch_random::is_used() ? DType::Float64 : DType::Float32;
          return lt(rand(sizes, g ? *g : nullptr, t), p);
        });
      })
      .samples({"self[3, 4], p=0.25"});
  in_place_fill("exponential_(Tensor(a!) self, float lambd=1, *, Generator? generator=None) -> Tensor(a!)",
                "Filled with waiting times of rate lambd: -log(1 - u) / lambd.")
      .procedure([](const Tensor& self, double rate, std::optional<Generator*> g) {
        runtime_check(rate > 0, "exponential_") << "expects lambda > 0.0, but found lambda=" << rate;
        return filled("exponential_", self, g,
                      [&](const Tensor& u) { return mul(log1p(neg(u)), -1 / rate); });
      })
      .samples({"self[3, 4]", "self[5], lambd=2.0"});
  in_place_fill(
      "cauchy_(Tensor(a!) self, float median=0, float sigma=1, *, Generator? generator=None) -> Tensor(a!)",
      "Filled with numbers of Cauchy's distribution: median + sigma tan(pi (u - 1/2)).")
      .procedure([](const Tensor& self, double median, double sigma, std::optional<Generator*> g) {
        runtime_check(sigma > 0, "cauchy_") << "expects sigma > 0.0, but found sigma=" << sigma;
        return filled("cauchy_", self, g, [&](const Tensor& u) {
          return add(mul(tan(mul(sub(u, 0.5), 3.14159265358979323846)), sigma), median);
        });
      })
      .samples({"self[3, 4]", "self[5], median=1.0, sigma=2.0"});
  in_place_fill(
      "log_normal_(Tensor(a!) self, float mean=1, float std=2, *, Generator? generator=None) -> Tensor(a!)",
      "Filled with numbers whose logarithms are normal with this mean and deviation.")
      .procedure([](const Tensor& self, double mean, double std, std::optional<Generator*> g) {
        runtime_check(std > 0, "log_normal_") << "expects std > 0.0, but found std=" << std;
        supported_check(is_floating(self.dtype()), "log_normal_")
            << "not implemented for '" << self.dtype() << "'";
        return filled(self, [&](SymSpan sizes) {
          return exp(add(mul(randn(sizes, g ? *g : nullptr, DType::Float64), std), mean));
        });
      })
      .samples({"self[3, 4]", "self[5], mean=0.0, std=0.5"});
  in_place_fill("geometric_(Tensor(a!) self, float p, *, Generator? generator=None) -> Tensor(a!)",
                "Filled with numbers of trials to the first success: log(1 - u) / log(1 - p), rounded up.")
      .procedure([](const Tensor& self, double p, std::optional<Generator*> g) {
        runtime_check(p > 0 && p < 1, "geometric_") << "expects p to be in (0, 1), but got p=" << p;
        supported_check(!is_complex(self.dtype()) && self.dtype() != DType::Bool, "geometric_")
            << "not implemented for '" << self.dtype() << "'";
        return filled(self, [&](SymSpan sizes) {
          Tensor u = rand(sizes, g ? *g : nullptr, DType::Float64);
          return clamp_min(ceil(mul(log1p(neg(u)), 1 / std::log1p(-p))), 1);
        });
      })
      .samples({"self[3, 4], p=0.5"});
}
