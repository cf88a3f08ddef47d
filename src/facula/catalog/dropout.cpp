// Dropout, of elements and of channels.
#include <cmath>

#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {
// A dropout of `body`, which gives self where nothing is dropped; in place that writes nothing.
template <class F>
Definer dropping(const char* schema, const char* doc, F body) {
  return std::move(define(schema)
                       .doc(doc)
                       .draws()
                       .check([](const Call& c) {
                         double p = c.real("p");
                         runtime_check(p >= 0 && p <= 1, c.name())
                             << "dropout probability has to be between 0 and 1, but got " << p;
                       })
                       .procedure(body)
                       .in_place([body](const Call& c, const Tensor& self, double p, bool train) {
                         Tensor y = body(c, self, p, train);
                         if (y.impl() != self.impl()) copy_(self, y);
                         return self;
                       }));
}
bool is_dropped(double p, bool train) { return train && p != 0; }
// Sizes of the noise of whole channels: 1 behind dimension `channels`.
Dims noise_sizes(const Call& c, const Tensor& self, int channels) {
  runtime_check(self.dim() > channels, c.name())
      << "Feature dropout requires at least 2 dimensions in the input, got shape " << to_string(self.sizes());
  Dims sizes(self.sizes());
  for (int k = channels + 1; k < self.dim(); ++k) sizes[size_t(k)] = SymInt(int64_t(1));
  return sizes;
}
Tensor of_channels(const Call& c, const Tensor& self, double p, bool train, bool has_batch) {
  if (!is_dropped(p, train)) return self;
  if (p == 1) return mul(self, 0);
  return mul(self, _dropout(ones(noise_sizes(c, self, has_batch ? 1 : 0), self.dtype()), p));
}
Tensor of_selu(const Call& c, const Tensor& self, double p, bool train, bool channels) {
  if (!is_dropped(p, train)) return self;
  if (p == 1) return mul(self, 0);
  Dims sizes = channels ? noise_sizes(c, self, 1) : Dims(self.sizes());
  constexpr double low = -1.7580993408473766;  // selu at minus infinity
  double scale = 1 / std::sqrt((1 - p) * (1 + p * low * low));
  Tensor keep = bernoulli(empty(sizes, self.dtype()), 1 - p);
  return _dropped_alpha(self, keep, scale, low * scale, -scale * p * low);
}
}  // namespace

FACULA_FAMILY(dropout) {
  define("_dropout(Tensor input, float p) -> Tensor")
      .doc("Each element is zero with probability p, the others are scaled by 1 / (1 - p).")
      .grad_name([](const Call& c) { return c.real("p") == 0 || c.real("p") == 1 ? "" : grad_name("Mul"); })
      .bind(hidden)
      .draws()
      .dtypes(d::floating)
      .check([](const Call& c) {
        double p = c.real("p");
        // Integers are dropped all or none: what is kept of them could not be scaled.
        runtime_check(is_differentiable(c.dtype("input")) || p == 0 || p == 1, "dropout")
            << "result type " << default_dtype() << " can't be cast to the desired output type "
            << c.dtype("input") << hint("input.float() converts");
      })
      .composite([](const Tensor& input, const Tensor& p) {
        if (!is_differentiable(input.dtype())) return mul(input, to_dtype(lt(p, 1), input.dtype()));
        Tensor noise = _uniform(_rng_take(input.numel()), input.sizes(), DType::Float32);
        Tensor q = rsub(to_dtype(p, DType::Float64), 1), none = zeros({}, DType::Float64);
        // At p = 1 nothing is kept, and nothing is infinite.
        Tensor factor = to_dtype(where(gt(q, 0), reciprocal(q), none), input.dtype());
        return mul(input, where(ge(noise, p), factor, to_dtype(none, input.dtype())));
      })
      .samples({"input[3, 4], p=0.5", "input[5], p=1.0"});
  dropping(
      "dropout(Tensor self, float p=0.5, bool train=True) -> Tensor",
      "In training, each element is zero with probability p, the others are scaled by 1 / (1 - p).  Srivastava et al., 2014.",
      [](const Call&, const Tensor& self, double p, bool train) {
        return is_dropped(p, train) ? _dropout(self, p) : self;
      })
      .python("dropout(input, p=0.5, training=True, inplace=False)", "check_probability(p)",
              "inplace = inplace and drops(input, p, training)")
      .also("train", "training")
      .bind(function)
      .samples({"self[3, 4], p=0.5", "self[3, 4], p=0.3, train=False", "self[5], p=1.0"});
  dropping("feature_dropout(Tensor self, float p, bool train) -> Tensor",
           "dropout of whole channels, dimension 1.  Tompson et al., 2015.",
           [](const Call& c, const Tensor& self, double p, bool train) {
             return of_channels(c, self, p, train, true);
           })
      .bind(function)
      .samples({"self[3, 4, 2], p=0.5, train=True", "self[3, 4], p=0.3, train=False"});
  dropping(
      "dropout1d(Tensor self, float p=0.5, bool training=True) -> Tensor",
      "Zeroes whole channels of [N, C, L] or [C, L] with probability p.  Tompson et al., 2015.",
      [](const Call& c, const Tensor& self, double p, bool train) {
        runtime_check(self.dim() == 2 || self.dim() == 3, "dropout1d")
            << "Expected 2D or 3D input, but received a " << self.dim()
            << "D input. Note that dropout1d exists to provide channel-wise dropout on inputs with 1 spatial "
               "dimension, a channel dimension, and an optional batch dimension (i.e. 2D or 3D inputs).";
        return of_channels(c, self, p, train, self.dim() == 3);
      })
      .python("dropout1d(input, p=0.5, training=True, inplace=False)", "check_probability(p)",
              "inplace = inplace and drops(input, p, training)")
      .bind(hidden)
      .samples({"self[3, 4, 2], p=0.5", "self[3, 4], p=0.3, training=False"});
  dropping(
      "dropout2d(Tensor self, float p=0.5, bool training=True) -> Tensor",
      "Zeroes whole channels of [N, C, H, W] with probability p; of [N, C, L] too, where one would expect [C, H, W], as PyTorch "
      "does.  Tompson et al., 2015.",
      [](const Call& c, const Tensor& self, double p, bool train) {
        return of_channels(c, self, p, train, true);
      })
      .python("dropout2d(input, p=0.5, training=True, inplace=False)", "check_probability(p)",
              "inplace = inplace and drops(input, p, training)", "warn_of_rank('dropout2d', input.dim(), 2)")
      .bind(hidden)
      .samples({"self[3, 4, 2, 2], p=0.5", "self[3, 4, 2], p=0.3, training=False"});
  dropping(
      "dropout3d(Tensor self, float p=0.5, bool training=True) -> Tensor",
      "Zeroes whole channels of [N, C, D, H, W] or [C, D, H, W] with probability p.  Tompson et al., 2015.",
      [](const Call& c, const Tensor& self, double p, bool train) {
        return of_channels(c, self, p, train, self.dim() == 5);
      })
      .python("dropout3d(input, p=0.5, training=True, inplace=False)", "check_probability(p)",
              "inplace = inplace and drops(input, p, training)", "warn_of_rank('dropout3d', input.dim(), 3)")
      .bind(hidden)
      .samples({"self[3, 4, 2, 2, 1], p=0.5", "self[4, 2, 1, 2], p=0.3"});
  define("_dropped_alpha(Tensor self, Tensor keep, Scalar scale, Scalar low, Scalar shift) -> Tensor")
      .doc("self times scale where keep is 1, low where it is 0, and shift beside.")
      .grad_name("Add")
      .bind(hidden)
      .dtypes(d::floating)
      .pointwise([](Expr x, Expr keep, Expr scale, Expr low, Expr shift) {
        return x * (keep * scale) + ((1.0 - keep) * low + shift);
      })
      .samples({"self[3, 4], keep<2>[3, 1], scale=0.5, low=-1, shift=0.25"});
  dropping("alpha_dropout(Tensor self, float p, bool train) -> Tensor",
           "Dropout that keeps mean and variance of the output of selu.  Klambauer et al., 2017.",
           [](const Call& c, const Tensor& self, double p, bool train) {
             return of_selu(c, self, p, train, false);
           })
      .python("alpha_dropout(input, p=0.5, training=False, inplace=False)", "check_probability(p)",
              "inplace = inplace and drops(input, p, training)")
      .also("train", "training")
      .bind(function)
      .samples({"self[3, 4], p=0.5, train=True", "self[3, 4], p=0.3, train=False"});
  dropping("feature_alpha_dropout(Tensor self, float p, bool train) -> Tensor",
           "alpha_dropout of whole channels.",
           [](const Call& c, const Tensor& self, double p, bool train) {
             return of_selu(c, self, p, train, true);
           })
      .python("feature_alpha_dropout(input, p=0.5, training=False, inplace=False)", "check_probability(p)",
              "inplace = inplace and drops(input, p, training)")
      .also("train", "training")
      .bind(function)
      .samples({"self[3, 4, 2], p=0.5, train=True", "self[3, 4], p=0.3, train=False"});
}
