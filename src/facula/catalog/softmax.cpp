// Softmax and its logarithm along a dimension.
#include <limits>

#include "facula/autograd/calls.h"
#include "facula/catalog/softmax.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {
Tensor in_dtype(const Tensor& x, std::optional<DType> dtype) {
  return dtype && *dtype != x.dtype() ? to_dtype(x, *dtype) : x;
}
}  // namespace

FACULA_FAMILY(softmax) {
  define("_softmax_backward_data(Tensor grad_output, Tensor output, int dim, dtype input_dtype) -> Tensor")
      .doc("Gradient of softmax from its output: y * (g - sum(g * y)).")
      .bind(function)
      .composite([](const Call& c, const Tensor& g, const Tensor& y) {
        Tensor gy = mul(g, y);
        if (y.dim() == 0) return to_dtype(sub(gy, mul(y, gy)), *c.maybe_dtype("input_dtype"));
        return to_dtype(sub(gy, mul(y, sum(gy, c.dim("dim", "output"), true))),
                        *c.maybe_dtype("input_dtype"));
      })
      .samples({"grad_output[3, 4], output[3, 4], dim=1, input_dtype=float64"});
  define(
      "_log_softmax_backward_data(Tensor grad_output, Tensor output, int dim, dtype input_dtype) -> Tensor")
      .doc("Gradient of log_softmax from its output: g - exp(y) * sum(g).")
      .bind(function)
      .composite([](const Call& c, const Tensor& g, const Tensor& y) {
        Tensor total = y.dim() ? sum(g, c.dim("dim", "output"), true) : g;
        return to_dtype(sub(g, mul(exp(y), total)), *c.maybe_dtype("input_dtype"));
      })
      .samples({"grad_output[3, 4], output[3, 4], dim=1, input_dtype=float64"});
  define("softmax(Tensor self, int dim, dtype? dtype=None) -> Tensor")
      .python("softmax(input, dim=None, _stacklevel=3, dtype=None)")
      .doc("exp(self) / sum(exp(self)) along `dim`, without overflow.")
      .bind(function | method | nn_functional | special)
      .dtypes(d::floating)
      .strict()
      .composite([](const Call& c, const Tensor& self) {
        Tensor x = in_dtype(self, c.maybe_dtype("dtype"));
        int k = c.dim("dim");
        if (x.dim() == 0) return exp(sub(x, x));
        if (x.size(k) == SymInt(int64_t(0))) return mul(x, 1);
        Tensor e = exp(sub(x, amax(x, k, true)));
        Tensor total = sum(e, k, true);
        // total >= 1: a division for each row instead of each element
        return contiguous(mul(e, reciprocal(total)));
      })
      .vjp(catalog::gradient_of_softmax(false))
      .samples({"self[], dim=0", "self[3, 4], dim=1", "self[2, 3, 4], dim=-2", "self[0, 3], dim=1",
                "self[33, 129], dim=1", "self[129, 33], dim=0"});
  define("softmin(Tensor self, int dim, dtype? dtype=None) -> Tensor")
      .grad_name("Softmax")
      .python("softmin(input, dim=None, _stacklevel=3, dtype=None)")
      .doc("softmax(-self) along `dim`.")
      .bind(hidden)
      .dtypes(d::floating)
      .strict()
      .composite([](const Call& c, const Tensor& self) {
        return softmax(neg(self), c.dim("dim"), c.maybe_dtype("dtype"));
      })
      .samples({"self[], dim=0", "self[3, 4], dim=1", "self[2, 3, 4], dim=-2"});
  define("gumbel_softmax(Tensor logits, float tau=1, bool hard=False, float eps=1e-10, int dim=-1) -> Tensor")
      .doc(
          "A random pick in proportion to softmax(logits), relaxed by temperature `tau`; `hard` gives one-hot vectors whose gradient is "
          "that of the relaxed pick. `eps` is not used.  Jang et al., 2016.")
      .grad_name([](const Call& c) { return grad_name(c.flag("hard") ? "Add" : "Softmax"); })
      .bind(nn_functional)
      .draws()
      .dtypes(d::floating)
      .strict()
      .composite([](const Call& c, const Tensor& logits, const Tensor& tau, bool hard) {
        DType t = compute_type(logits.dtype());
        Tensor u = add(rand(logits.sizes(), nullptr, t), t == DType::Float64
                                                             ? std::numeric_limits<double>::min()
                                                             : double(std::numeric_limits<float>::min()));
        Tensor x = to_dtype(div(sub(to_dtype(logits, t), log(neg(log(u)))), tau), logits.dtype());
        int k = c.dim("dim", "logits");
        Tensor soft = softmax(x, k), fixed = detach(soft);
        if (!hard) return soft;
        Tensor one_hot = scatter(zeros_like(soft), k, argmax(fixed, k, true), 1.0);
        return add(sub(one_hot, fixed), soft);
      })
      .undifferenced("hard picks have the gradient of the relaxed ones")
      .samples({"logits[3, 4]", "logits[3, 4], tau=0.5, hard=True, dim=0"});
  define("log_softmax(Tensor self, int dim, dtype? dtype=None) -> Tensor")
      .python("log_softmax(input, dim=None, _stacklevel=3, dtype=None)")
      .doc("log(softmax(self)) along `dim`, computed stably.")
      .bind(function | method | nn_functional | special)
      .dtypes(d::floating)
      .strict()
      .composite([](const Call& c, const Tensor& self) {
        Tensor x = in_dtype(self, c.maybe_dtype("dtype"));
        int k = c.dim("dim");
        if (x.dim() == 0) return sub(x, x);
        if (x.size(k) == SymInt(int64_t(0))) return mul(x, 1);
        Tensor shifted = sub(x, amax(x, k, true));
        return contiguous(sub(shifted, log(sum(exp(shifted), k, true))));
      })
      // By the result; derived, the maximum has a gradient too, which is 0 but for rounding.
      .vjp([](const Vjp& v) {
        auto& c = v.call();
        return grads(
            _log_softmax_backward_data(v.grad(),
                                       catalog::unrounded(v, [](const Tensor& x, int64_t dim,
                                                                DType t) { return log_softmax(x, dim, t); }),
                                       c.dim("dim"), c.dtype("self")));
      })
      .samples({"self[], dim=0", "self[3, 4], dim=1", "self[2, 3, 4], dim=-2", "self[0, 3], dim=1",
                "self[33, 129], dim=1", "self[129, 33], dim=0"});
}
