// Losses: compositions, fused with their reduction.
#include "facula/catalog/loss_helpers.h"
#include "facula/catalog/reduced_loss.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/op/refusal.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
using facula::catalog::loss_name;
using facula::catalog::reduced_loss;
namespace d = facula::dtypes;
using namespace facula::catalog::loss_helpers;

namespace {
// A loss by element, times weights of its shape.
Tensor weighted(const char* name, const Tensor& loss, const std::optional<Tensor>& weight) {
  if (!weight) return loss;
  value_check(Dims(weight->sizes()) == Dims(loss.sizes()), name)
      << "Weights and input must have the same size, got " << to_string(weight->sizes()) << " and "
      << to_string(loss.sizes());
  return mul(loss, *weight);
}
// Reduces a weighted loss; a mean is divided by the sum of the weights.
Tensor weighted_loss(const char* name, const Tensor& loss, const std::optional<Tensor>& weight,
                     std::string_view reduction) {
  Tensor all = weighted(name, loss, weight);
  return weight && reduction == "mean" ? div(sum(all), sum(*weight)) : reduced_loss(name, all, reduction);
}
void check_same_size(const char* name, const Tensor& input, const Tensor& target) {
  bool same = input.dim() == target.dim() &&
              std::equal(input.sizes().begin(), input.sizes().end(), target.sizes().begin());
  value_check(same, name) << "target size " << to_string(target.sizes()) << " must be the same as input size "
                          << to_string(input.sizes());
}
// Errors between floating numbers; whole ones would be rounded or overflow on the way.
Tensor difference(const char* name, const Tensor& input, const Tensor& target) {
  supported_check(is_differentiable(input.dtype()) || is_differentiable(target.dtype()), name)
      << "not implemented for '" << input.dtype() << "'" << hint("input.float() converts");
  auto counted = [](const Tensor& t, const Tensor& other) {
    return t.dtype() == DType::Bool ? to_dtype(t, other.dtype()) : t;
  };
  return sub(counted(input, target), counted(target, input));
}
constexpr const char* kInputs =
    "all elements of input should be between 0 and 1\n"
    "  hint: binary_cross_entropy_with_logits takes any numbers, without a sigmoid before it";
constexpr const char* kTargets = "all elements of target should be between 0 and 1";
}  // namespace

FACULA_FAMILY(loss) {
  define("_pick(Tensor self, Tensor target, SymInt ignore_index) -> Tensor")
      .doc("self at the class target[...] along the class axis; 0 where target is ignore_index.")
      .bind(hidden)
      .called("nll_loss")
      .shape([](const Call& c) { return Dims(c.sizes("target")); })
      .checks()
      .loop([](const LoopCall& c, Index i) {
        int axis = class_axis(c.rank("self"));
        Expr t = cast(c.load("target", i), DType::Int64);
        Expr ignored = eq(t, size(c.integer("ignore_index")));
        Expr k = within(select(ignored, integer(0), t), size(c.size("self", axis)));
        Expr x = c.load("self", inserted(i, axis, k));
        return select(ignored, 0.0, x);
      })
      // One kernel that writes every element; derived, zeros and a scatter: 1.75 times the time.
      .transposed_by("_spread")
      .samples(
          {"self[4, 3], target<3>[4], ignore_index=-100", "self[4, 3, 2], target<3>[4, 2], ignore_index=1"});
  // One body each: the gradient of the side that an error is not on never reaches it.
  define("_smooth_l1(Tensor self, Scalar beta) -> Tensor")
      .doc("self^2 / (2 beta) where |self| < beta, else |self| - beta / 2.")
      .bind(hidden)
      .dtypes(d::floating)
      .pointwise([](Expr x, Expr beta) {
        Expr e = abs(x);  // the square is of x: abs has no second derivative at 0
        return select(e >= beta, e - 0.5 * beta, 0.5 * x * x / beta);
      })
      .samples({"self[3, 4](-3, 3), beta=0.7"});
  define("_huber(Tensor self, Scalar delta) -> Tensor")
      .doc("self^2 / 2 where |self| <= delta, else delta (|self| - delta / 2).")
      .bind(hidden)
      .dtypes(d::floating)
      .pointwise([](Expr x, Expr delta) {
        Expr e = abs(x);
        return select(e >= delta, (e - 0.5 * delta) * delta, 0.5 * x * x);
      })
      .samples({"self[3, 4](-3, 3), delta=0.7"});
  define("_binary_cross_entropy(Tensor self, Tensor target) -> Tensor")
      .doc("-(target * log(self) + (1 - target) * log(1 - self)), with logarithms of at least -100.")
      .bind(hidden)
      .dtypes(d::floating)
      .refuses(ErrorType::RuntimeError, {kInputs, kTargets})
      .pointwise([](Expr x, Expr t) {
        x = accepted(x, (x >= 0.0) & (x <= 1.0), kInputs);
        t = accepted(t, (t >= 0.0) & (t <= 1.0), kTargets);
        return (t - 1.0) * max(log1p(-x), -100.0) - t * max(log(x), -100.0);
      })
      // PyTorch's, which divides by x (1 - x): the derivative of the bounded logarithms is 0 near 0 and 1.
      .vjp([](const Vjp& v) {
        Tensor x, t;
        if (v.needs("self")) x = mul(v.grad(), _binary_cross_entropy_slope(v["self"], v["target"]));
        if (v.needs("target")) t = mul(v.grad(), sub(log1p(neg(v["self"])), log(v["self"])));
        return grads(x, t);
      })
      .samples({"self[3, 4](0.1, 0.9), target[3, 4](0, 1)"});
  define("_binary_cross_entropy_slope(Tensor self, Tensor target) -> Tensor")
      .doc("(self - target) / (self (1 - self)), the divisor at least 1e-12.")
      .bind(hidden)
      .dtypes(d::floating)
      .pointwise([](Expr x, Expr t) { return (x - t) / max((1.0 - x) * x, 1e-12); })
      .samples({"self[3, 4](0.1, 0.9), target[3, 4](0, 1)"});
  define("mse_loss(Tensor self, Tensor target, str reduction='mean', Tensor? weight=None) -> Tensor")
      .python("mse_loss(input, target, size_average=None, reduce=None, reduction='mean', weight=None)",
              "warn_of_broadcast('mse_loss', input, target)")
      .doc("Squared error.")
      .autocast(Autocast::fp32)
      .bind(function)
      .dtypes(d::floating)
      .composite([](const Tensor& self, const Tensor& target, std::string_view reduction,
                    std::optional<Tensor> weight) {
        // With weights integers have a loss too, as in PyTorch.
        Tensor e = weight ? sub(self, target) : difference("mse_loss", self, target);
        return weighted_loss("mse_loss", mul(e, e), weight, reduction);
      })
      .samples({"self[3, 2], target[3, 2]", "self[3, 2], target[3, 2], reduction='none'",
                "self[3, 2], target[3, 2], weight[3, 2](0.1, 2)"});
  define("l1_loss(Tensor self, Tensor target, str reduction='mean', Tensor? weight=None) -> Tensor")
      .python("l1_loss(input, target, size_average=None, reduce=None, reduction='mean', weight=None)",
              "warn_of_broadcast('l1_loss', input, target)")
      .doc("Absolute error.")
      .grad_name(loss_name("Abs"))
      .autocast(Autocast::fp32)
      .bind(function)
      .dtypes(d::floating)
      .composite([](const Tensor& self, const Tensor& target, std::string_view reduction,
                    std::optional<Tensor> weight) {
        return weighted_loss("l1_loss", abs(sub(self, target)), weight, reduction);
      })
      .samples({"self[3, 2], target[3, 2]", "self[3, 2], target[3, 2], reduction='sum'"});
  define(
      "binary_cross_entropy_with_logits(Tensor self, Tensor target, Tensor? weight=None, str reduction='mean', Tensor? pos_weight=None) -> Tensor")
      .python(
          "binary_cross_entropy_with_logits(input, target, weight=None, size_average=None, reduce=None, reduction='mean', pos_weight=None)")
      .doc("Binary cross-entropy of sigmoid(self), computed stably.")
      .autocast(Autocast::fp32)
      .bind(function)
      .dtypes(d::floating)
      .strict()
      .composite([](const Tensor& x, const Tensor& target, std::optional<Tensor> weight,
                    std::string_view reduction, std::optional<Tensor> pos_weight) {
        check_same_size("binary_cross_entropy_with_logits", x, target);
        runtime_check(is_differentiable(target.dtype()), "binary_cross_entropy_with_logits")
            << "expected a floating target, got " << target.dtype()
            << hint("target.to(input.dtype) converts");
        Tensor rest = mul(sub(1, target), x), log_of_sigmoid = log_sigmoid(x);
        Tensor loss;
        if (pos_weight) {
          Tensor w = add(mul(sub(*pos_weight, 1), target), 1);
          loss = sub(rest, mul(w, log_of_sigmoid));
        } else {
          loss = sub(rest, log_of_sigmoid);
        }
        if (weight) loss = mul(loss, *weight);
        return reduced_loss("binary_cross_entropy_with_logits", loss, reduction);
      })
      .samples({"self[3, 2], target[3, 2](0, 1)",
                "self[3, 2], target[3, 2](0, 1), weight[2], pos_weight[2](0.1, 2), reduction='none'"});
  define("smooth_l1_loss(Tensor self, Tensor target, str reduction='mean', float beta=1.0) -> Tensor")
      .python("smooth_l1_loss(input, target, size_average=None, reduce=None, reduction='mean', beta=1.0)",
              "warn_of_broadcast('smooth_l1_loss', input, target)")
      .doc(
          "Half the squared error over beta where the error is below beta, else the absolute error less beta / 2.  Girshick, 2015.")
      .autocast(Autocast::fp32)
      .bind(function)
      .dtypes(d::floating)
      .composite([](const Tensor& self, const Tensor& target, std::string_view reduction, double beta) {
        runtime_check(beta >= 0, "smooth_l1_loss")
            << "smooth_l1_loss does not support negative values for beta, got " << beta;
        Tensor e = difference("smooth_l1_loss", self, target);
        return reduced_loss("smooth_l1_loss", beta == 0 ? abs(e) : _smooth_l1(e, beta), reduction);
      })
      .samples({"self[3, 2], target[3, 2]", "self[3, 2], target[3, 2], reduction='none', beta=0.3",
                "self[4], target[4], beta=0.0"});
  define(
      "huber_loss(Tensor self, Tensor target, str reduction='mean', float delta=1.0, Tensor? weight=None) -> Tensor")
      .python("huber_loss(input, target, reduction='mean', delta=1.0, weight=None)",
              "warn_of_broadcast('huber_loss', input, target)")
      .doc(
          "Half the squared error where the error is at most delta, else delta * (|error| - delta / 2).  Huber, 1964.")
      .autocast(Autocast::fp32)
      .bind(function)
      .dtypes(d::floating)
      .composite([](const Tensor& self, const Tensor& target, std::string_view reduction, double delta,
                    std::optional<Tensor> weight) {
        runtime_check(delta > 0, "huber_loss")
            << "huber_loss does not support non-positive values for delta, got " << delta;
        // PyTorch's mean is by the number of elements, weighted or not.
        Tensor loss = _huber(difference("huber_loss", self, target), delta);
        return reduced_loss("huber_loss", weighted("huber_loss", loss, weight), reduction);
      })
      .samples({"self[3, 2], target[3, 2]", "self[3, 2], target[3, 2], reduction='none', delta=0.3"});
  define("kl_div(Tensor self, Tensor target, str reduction='mean', *, bool log_target=False) -> Tensor")
      .python("kl_div(input, target, size_average=None, reduce=None, reduction='mean', log_target=False)",
              "warn_of_mean(reduction)")
      .doc(
          "target * (log(target) - self): the divergence of log-probabilities `self` from `target`, which log_target says to be logarithms too. "
          "reduction='batchmean' is the sum by the size of the first dimension: the divergence itself.")
      .grad_name(loss_name("Sub"))
      .autocast(Autocast::fp32)
      .bind(function)
      .dtypes(d::floating)
      .strict()
      .composite([](const Tensor& self, const Tensor& target, std::string_view reduction, bool log_target) {
        runtime_check(is_differentiable(target.dtype()), "kl_div")
            << "Integral inputs not supported, got a target of " << target.dtype();
        Tensor loss = log_target ? mul(exp(target), sub(target, self))
                                 : sub(where(eq(target, 0), zeros_like(target), mul(target, log(target))),
                                       mul(target, self));
        if (reduction != "batchmean") return reduced_loss("kl_div", loss, reduction);
        return self.dim() ? div(sum(loss), self.size(0)) : sum(loss);
      })
      .samples({"self[3, 2](-3, -0.1), target[3, 2](0.1, 1)",
                "self[3, 2](-3, -0.1), target[3, 2](-3, -0.1), reduction='sum', log_target=True",
                "self[3, 2](-3, -0.1), target[3, 2](0.1, 1), reduction='batchmean'"});
  define(
      "binary_cross_entropy(Tensor self, Tensor target, Tensor? weight=None, str reduction='mean') -> Tensor")
      .python(
          "binary_cross_entropy(input, target, weight=None, size_average=None, reduce=None, reduction='mean')")
      .refuses(ErrorType::RuntimeError, {kInputs, kTargets})
      .doc("-(target * log(self) + (1 - target) * log(1 - self)), with logarithms of at least -100.")
      .autocast(Autocast::fp32)
      .bind(function)
      .dtypes(d::floating)
      .strict()
      .composite([](const Tensor& x, const Tensor& target, std::optional<Tensor> weight,
                    std::string_view reduction) {
        check_same_size("binary_cross_entropy", x, target);
        check_same_dtype("binary_cross_entropy", x, target);
        Tensor loss = _binary_cross_entropy(x, target);
        if (weight) loss = mul(loss, *weight);
        return reduced_loss("binary_cross_entropy", loss, reduction);
      })
      .samples({"self[3, 2](0.1, 0.9), target[3, 2](0, 1)",
                "self[3, 2](0.1, 0.9), target[3, 2](0, 1), weight[2], reduction='none'"});
}
