// Losses of margins, of likelihoods and of distances: compositions, fused with their reduction.
#include <cmath>
#include <numbers>

#include "facula/catalog/reduced_loss.h"
#include "facula/catalog/widened.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/op/refusal.h"
#include "facula/ops.h"
#include "facula/tensor/promotion.h"

using namespace facula;
using namespace facula::op;
using facula::catalog::check_reduction;
using facula::catalog::loss_name;
using facula::catalog::reduced_loss;
namespace d = facula::dtypes;

namespace {

Definer loss(const char* schema, const char* doc) {
  return std::move(define(schema).doc(doc).bind(hidden).autocast(Autocast::fp32));
}

void check_broadcast(const char* name, std::initializer_list<Tensor> tensors) {
  std::vector<SymSpan> sizes;
  for (auto& t : tensors) sizes.push_back(t.sizes());
  broadcast_sizes(name, sizes);
}
Tensor where_or_zero(const Tensor& condition, const Tensor& x) { return where(condition, x, zeros_like(x)); }
// Rows of a batch, or the one that there is.
Tensor rows_of(const Tensor& t) { return t.dim() == 2 ? t : reshape(t, Sizes{int64_t(1), t.numel()}); }
Tensor of_rows(const Tensor& loss, const Tensor& input) {
  return input.dim() == 2 ? loss : view(loss, Sizes(Dims()));
}
Tensor distance_of(const Tensor& a, const Tensor& b, double p, const Tensor& eps, bool keepdim) {
  DType common = promote(a.dtype(), b.dtype());
  Tensor apart = add(sub(catalog::wide(a), catalog::wide(b)), eps),
         y = norm(apart, std::optional<Scalar>(p), Sizes{int64_t(-1)}, keepdim);
  return is_floating(common) ? catalog::narrowed(y, common) : y;
}

// A margin in the dtype of the elements: True is 1, and integers have integer margins.
Tensor number_for(const Tensor& margin, const Tensor& self) {
  bool converts = margin.dtype() == DType::Bool || !is_differentiable(self.dtype());
  return converts ? to_dtype(margin, self.dtype()) : margin;
}

Tensor multi_margin(const Tensor& self, const Tensor& target, double p, const Tensor& margin,
                    const std::optional<Tensor>& weight, std::string_view reduction) {
  const char* name = "multi_margin_loss";
  check_reduction(name, reduction);
  value_check(p == 1 || p == 2, name) << "only p == 1 and p == 2 supported, got " << p;
  value_check(!weight || weight->dim() == 1, name)
      << "weight must be one-dimensional, got " << to_string(weight->sizes());
  bool fits = self.dim() <= 2 && target.dim() <= 1 &&
              target.numel() == (self.dim() == 2 ? self.size(0) : SymInt(int64_t(1)));
  runtime_check(fits && (self.dim() == 0 || self.size(-1) != SymInt(int64_t(0))), name)
      << "expected input [C] or [N, C] and a class for each row, got " << to_string(self.sizes()) << " and "
      << to_string(target.sizes());
  runtime_check(target.dtype() == DType::Int64, name)
      << "expected target of dtype int64, got " << target.dtype() << " " << to_string(target.sizes())
      << " for input " << to_string(self.sizes());
  Tensor rows = rows_of(self), index = reshape(target, Sizes{rows.size(0), int64_t(1)});
  runtime_check(!weight || (weight->size(0) == rows.size(1) && weight->dtype() == self.dtype()), name)
      << "inconsistent weight: expected one " << self.dtype() << " for each of " << rows.size(1)
      << " classes, got " << weight->dtype() << " " << to_string(weight->sizes());
  // A class counts where its margin is missed, as in PyTorch: not at 0, nor where that is no number.
  Tensor gap = add(sub(number_for(margin, self), gather(rows, 1, index)), rows);
  Tensor missed = logical_and(ne(index, arange(rows.size(1).guard_int())), gt(gap, 0));
  Tensor miss = where_or_zero(missed, gap);
  if (p == 2) miss = mul(miss, miss);
  if (weight) {
    Tensor of_target = gather(expand(*weight, Sizes{rows.size(0), weight->size(0)}), 1, index);
    miss = mul(miss, where_or_zero(missed, of_target));
  }
  return reduced_loss(name, view(div(sum(miss, 1), rows.size(1)), target.sizes()), reduction);
}

Tensor multilabel_margin(const Tensor& self, const Tensor& target, std::string_view reduction) {
  const char* name = "multilabel_margin_loss";
  check_reduction(name, reduction);
  runtime_check(Dims(self.sizes()) == Dims(target.sizes()) && self.dim() <= 2 &&
                    (self.dim() == 0 || self.size(-1) != SymInt(int64_t(0))),
                name)
      << "expected input and target of one shape [], [C] or [N, C], got " << to_string(self.sizes())
      << " and " << to_string(target.sizes());
  runtime_check(target.dtype() == DType::Int64, name)
      << "expected target of dtype int64, got " << target.dtype() << " " << to_string(target.sizes())
      << " for input " << to_string(self.sizes());
  Tensor rows = rows_of(self),
         labels = rows_of(_labels(target, self.dim() ? self.size(-1) : SymInt(int64_t(1))));
  Tensor counted = eq(cumsum(to_dtype(lt(labels, 0), DType::Int64), 1), 0);
  Tensor index = where_or_zero(counted, labels), kept = to_dtype(counted, rows.dtype());
  Tensor hits = scatter_add(zeros_like(rows), 1, index, kept);
  Tensor gaps = add(sub(1, unsqueeze(gather(rows, 1, index), 2)), unsqueeze(rows, 1));
  Tensor both = logical_and(unsqueeze(counted, 2), unsqueeze(eq(hits, 0), 1));
  Tensor total = sum(where_or_zero(logical_and(both, gt(gaps, 0)), gaps), Sizes{int64_t(1), int64_t(2)});
  return reduced_loss(name, of_rows(div(total, rows.size(1)), self), reduction);
}

Tensor poisson_nll(const Tensor& self, const Tensor& target, bool log_input, bool full, const Tensor& eps,
                   std::string_view reduction) {
  check_broadcast("poisson_nll_loss", {self, target});
  Tensor loss = log_input ? sub(exp(self), mul(target, self)) : sub(self, mul(target, log(add(self, eps))));
  if (full) {
    Tensor last = mul(log(mul(target, 2 * std::numbers::pi)), 0.5);
    Tensor stirling = add(sub(mul(target, log(target)), target), last);
    loss = add(loss, masked_fill(stirling, le(target, 1), 0));
  }
  return reduced_loss("poisson_nll_loss", loss, reduction);
}

Tensor gaussian_nll(const Tensor& self, const Tensor& target, const Tensor& given, bool full,
                    const Tensor& eps, std::string_view reduction) {
  const char* name = "gaussian_nll_loss";
  Tensor var = given;
  Dims sizes(self.sizes()), of_var(var.sizes());
  if (of_var != sizes) {
    bool one_less = !sizes.empty() && Dims(self.sizes().first(sizes.size() - 1)) == of_var;
    int differ = of_var.size() == sizes.size() ? 0 : 2;
    for (size_t k = 0; k < sizes.size() && differ < 2; ++k)
      if (of_var[k] != sizes[k]) differ += of_var[k] == SymInt(int64_t(1)) ? 1 : 2;
    bool one_for_all = differ == 1;
    value_check(one_less || one_for_all, name)
        << "var is of incorrect size: " << to_string(var.sizes()) << " for " << to_string(self.sizes());
    if (one_less) var = unsqueeze(var, -1);
  }
  check_broadcast(name, {self, target});
  // The bound counts for the value, and gradients pass it by.
  var = _not_negative(var);
  Tensor low = detach(var), bounded = where(ge(low, eps), var, add(sub(var, low), maximum(low, eps)));
  Tensor loss = mul(add(log(bounded), div(pow(sub(self, target), Scalar(int64_t(2))), bounded)), 0.5);
  if (full) loss = add(loss, 0.5 * std::log(2 * std::numbers::pi));
  return reduced_loss(name, loss, reduction);
}

Tensor cosine_embedding(const Tensor& a, const Tensor& b, const Tensor& target, const Tensor& margin,
                        std::string_view reduction) {
  runtime_check(target.dim() <= 1 && a.dim() == target.dim() + 1 && a.dim() == b.dim(),
                "cosine_embedding_loss")
      << "expected inputs [N, D] with target [N], or [D] with [], got " << to_string(a.sizes()) << ", "
      << to_string(b.sizes()) << " and " << to_string(target.sizes());
  auto length = [](const Tensor& x) { return add(sum(mul(x, x), -1), 1e-12); };
  Tensor cosine = div(sum(mul(a, b), -1), sqrt(mul(length(a), length(b))));
  Tensor loss = add(where_or_zero(eq(target, 1), sub(1, cosine)),
                    where_or_zero(eq(target, -1), clamp_min(sub(cosine, margin), 0)));
  return reduced_loss("cosine_embedding_loss", loss, reduction);
}

void check_triplet(const Tensor& anchor, const Tensor& positive, const Tensor& negative) {
  const char* name = "triplet_margin_loss";
  runtime_check(anchor.dim() == positive.dim() && positive.dim() == negative.dim(), name)
      << "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but "
         "got: anchor "
      << anchor.dim() << "D, positive " << positive.dim() << "D, and negative " << negative.dim()
      << "D inputs";
  check_broadcast(name, {anchor, positive, negative});
}
Tensor triplet(const Tensor& near, const Tensor& far, const std::optional<Tensor>& swapped,
               const Tensor& margin, std::string_view reduction) {
  Tensor away = swapped ? minimum(far, *swapped) : far;
  return reduced_loss("triplet_margin_loss", clamp_min(sub(add(margin, near), away), 0), reduction);
}
void check_margin(const Call& c) {
  value_check(!(c.real("margin") <= 0), "triplet_margin_loss")
      << "margin must be greater than 0, got " << c.number("margin");
}

constexpr const char *kLabels = "target is out of range", *kVariances = "var has negative entry/entries";

}  // namespace

FACULA_FAMILY(margin) {
  define("_labels(Tensor self, SymInt classes) -> Tensor")
      .doc("self, whose elements have to be classes or -1.")
      .bind(hidden)
      .non_differentiable("the operand is an integer")
      .refuses(ErrorType::RuntimeError, {kLabels})
      .shape([](const Call& c) { return Dims(c.sizes("self")); })
      .loop([](const LoopCall& c, Index i) {
        loop::Expr label = c.load("self", i);
        return accepted(label, (label >= integer(-1)) & (label < loop::size(c.integer("classes"))), kLabels);
      })
      .samples({"self<3>[4], classes=3"});
  define("_not_negative(Tensor self) -> Tensor")
      .doc("self, no element of which may be below 0.")
      .bind(hidden)
      .dtypes(d::boolean | d::integral | d::floating)
      .refuses(ErrorType::ValueError, {kVariances})
      .pointwise([](loop::Expr x) { return accepted(x, bit_not(x < 0.0), kVariances); })
      .samples({"self[3](0.1, 2)"});
  loss("soft_margin_loss(Tensor self, Tensor target, str reduction='mean') -> Tensor",
       "log(1 + exp(-target * self)) for targets of -1 and 1.")
      .python("soft_margin_loss(input, target, size_average=None, reduce=None, reduction='mean')")
      .composite([](const Tensor& self, const Tensor& target, std::string_view reduction) {
        const char* name = "soft_margin_loss";
        check_broadcast(name, {self, target});
        runtime_check(is_differentiable(self.dtype()) && target.dtype() != DType::Bool, name)
            << "expected floating numbers with targets of -1 and 1, got " << self.dtype() << " and "
            << target.dtype();
        Tensor loss = log1p(exp(neg(mul(target, self))));  // unsigned targets have no negative
        return reduced_loss(name, to_dtype(loss, self.dtype()), reduction);
      })
      .samples({"self[3, 2], target[3, 2]", "self[3, 2], target[2], reduction='none'"});
  loss(
      "multilabel_soft_margin_loss(Tensor self, Tensor target, Tensor? weight=None, str reduction='mean') -> Tensor",
      "Binary cross-entropy of sigmoid(self), averaged over the classes, the last dimension.")
      .grad_name(loss_name("Div"))
      .python(
          "multilabel_soft_margin_loss(input, target, weight=None, size_average=None, reduce=None, reduction='mean')")
      .autocast(Autocast::inherit)
      .composite([](const Tensor& self, const Tensor& target, std::optional<Tensor> weight,
                    std::string_view reduction) {
        Tensor present = mul(target, log_sigmoid(self));
        Tensor loss = neg(add(present, mul(sub(1, target), log_sigmoid(neg(self)))));
        if (weight) loss = mul(loss, *weight);
        index_check(self.dim() > 0, "multilabel_soft_margin_loss") << "expected input [*, C], got shape []";
        // The classes are the input's last dimension; a target may have more.
        Tensor total = sum(loss, Sizes{int64_t(self.dim() - 1)});
        return reduced_loss("multilabel_soft_margin_loss", div(total, self.size(-1)), reduction);
      })
      .samples(
          {"self[3, 2], target[3, 2](0, 1)", "self[3, 2], target[3, 2](0, 1), weight[2], reduction='none'"});
  loss(
      "multi_margin_loss(Tensor self, Tensor target, Scalar p=1, Scalar margin=1, Tensor? weight=None, str reduction='mean') -> Tensor",
      "max(0, margin - self[target] + self[k]) ** p, averaged over the classes k; self [C] or [N, C].")
      .python(
          "multi_margin_loss(input, target, p=1, margin=1.0, weight=None, size_average=None, reduce=None, reduction='mean')")
      .dtypes(d::floating)
      .strict()
      .bad_index(ErrorType::RuntimeError)
      .check(fitting({"margin"}))
      .composite([](const Tensor& self, const Tensor& target, double p, const Tensor& margin,
                    std::optional<Tensor> weight, std::string_view reduction) {
        return multi_margin(self, target, p, margin, weight, reduction);
      })
      .samples({"self[4, 3], target<3>[4]",
                "self[4, 3], target<3>[4], p=2, margin=0.5, weight[3](0.1, 2), reduction='none'",
                "self[3], target<3>[], reduction='sum'"});
  loss(
      "multilabel_margin_loss(Tensor self, Tensor target, str reduction='mean') -> Tensor",
      "max(0, 1 - self[label] + self[other]) over all labels and others; a row's labels end at the first -1.")
      .python("multilabel_margin_loss(input, target, size_average=None, reduce=None, reduction='mean')")
      .refuses(ErrorType::RuntimeError, {kLabels})
      .dtypes(d::floating)
      .strict()
      .composite([](const Tensor& self, const Tensor& target, std::string_view reduction) {
        return multilabel_margin(self, target, reduction);
      })
      .samples({"self[4, 3], target<3>[4, 3]", "self[3], target<3>[3], reduction='none'"});
  loss(
      "poisson_nll_loss(Tensor self, Tensor target, bool log_input=True, bool full=False, float eps=1e-08, str reduction='mean') -> Tensor",
      "Negative log-likelihood of counts under a Poisson distribution of rate exp(self), or of rate self; `full` adds Stirling's "
      "approximation of log(target!) for targets above 1.")
      .grad_name(loss_name("Sub"))
      .python(
          "poisson_nll_loss(input, target, log_input=True, full=False, size_average=None, eps=1e-08, reduce=None, reduction='mean')")
      .composite([](const Tensor& self, const Tensor& target, bool log_input, bool full, const Tensor& eps,
                    std::string_view reduction) {
        return poisson_nll(self, target, log_input, full, eps, reduction);
      })
      .samples({"self[3, 2], target[3, 2](0.1, 4), full=True",
                "self[3, 2](0.1, 2), target[3, 2](0.1, 4), log_input=False, reduction='none'"});
  loss(
      "gaussian_nll_loss(Tensor self, Tensor target, Tensor|Scalar var, bool full=False, float eps=1e-06, str reduction='mean') -> Tensor",
      "Negative log-likelihood under normal distributions of mean self and variance var, at least eps: the bound counts for the "
      "value, and gradients pass it by.")
      .grad_name(loss_name("Mul"))
      .python("gaussian_nll_loss(input, target, var, full=False, eps=1e-06, reduction='mean')",
              "var = variance_of(input, var)")
      .autocast(Autocast::inherit)
      .refuses(ErrorType::ValueError, {kVariances})
      .check(fitting({"eps"}))
      .composite(
          [](const Tensor& self, const Tensor& target, const Tensor& var, bool full, const Tensor& eps,
             std::string_view reduction) { return gaussian_nll(self, target, var, full, eps, reduction); })
      .samples({"self[3, 2], target[3, 2], var[3, 2](0.1, 2), full=True",
                "self[3, 2], target[3, 2], var[3, 1](0.1, 2), reduction='none'",
                "self[3, 2], target[3, 2], var[3](0.1, 2)"});
  loss(
      "margin_ranking_loss(Tensor input1, Tensor input2, Tensor target, float margin=0, str reduction='mean') -> Tensor",
      "max(0, -target * (input1 - input2) + margin): target 1 wants input1 higher, -1 input2.")
      .grad_name(loss_name("ClampMin"))
      .python(
          "margin_ranking_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction='mean')")
      .composite([](const Tensor& a, const Tensor& b, const Tensor& target, const Tensor& margin,
                    std::string_view reduction) {
        runtime_check(a.dim() == b.dim() && b.dim() == target.dim(), "margin_ranking_loss")
            << "All input tensors should have same dimension but got sizes: input1: " << to_string(a.sizes())
            << ", input2: " << to_string(b.sizes()) << ", target: " << to_string(target.sizes());
        return reduced_loss("margin_ranking_loss", clamp_min(add(mul(neg(target), sub(a, b)), margin), 0),
                            reduction);
      })
      .samples({"input1[3], input2[3], target[3]",
                "input1[3, 2], input2[3, 2], target[3, 2], margin=0.5, reduction='none'"});
  loss("hinge_embedding_loss(Tensor self, Tensor target, Scalar margin=1.0, str reduction='mean') -> Tensor",
       "A distance itself where the target is 1, max(0, margin - distance) where it is -1.")
      .grad_name(loss_name("Add"))
      .python(
          "hinge_embedding_loss(input, target, margin=1.0, size_average=None, reduce=None, reduction='mean')")
      .check(fitting({"margin"}))
      .composite([](const Tensor& self, const Tensor& target, const Tensor& margin,
                    std::string_view reduction) {
        Tensor gap = sub(number_for(margin, self), self), zero = zeros_like(self);
        Tensor far = where(ne(target, 1), clamp_min(gap, 0), zero);
        return reduced_loss("hinge_embedding_loss", add(far, where(ne(target, -1), self, zero)), reduction);
      })
      .samples({"self[3, 2], target[3, 2]", "self[3, 2], target[3, 2], margin=0.5, reduction='none'"});
  loss(
      "cosine_embedding_loss(Tensor input1, Tensor input2, Tensor target, float margin=0, str reduction='mean') -> Tensor",
      "1 - cosine where the target is 1, max(0, cosine - margin) where it is -1; vectors in the last dimension.")
      .grad_name(loss_name("Add"))
      .python(
          "cosine_embedding_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction='mean')")
      .composite([](const Tensor& a, const Tensor& b, const Tensor& target, const Tensor& margin,
                    std::string_view reduction) { return cosine_embedding(a, b, target, margin, reduction); })
      .samples({"input1[4, 3], input2[4, 3], target[4]",
                "input1[3], input2[3], target[], margin=0.5, reduction='none'"});
  loss(
      "triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative, float margin=1.0, float p=2.0, float eps=1e-06, bool swap=False, str reduction='mean') -> Tensor",
      "max(0, distance to the positive - distance to the negative + margin). `swap` takes the negative's distance to the "
      "positive where that is smaller.  Balntas et al., 2016.")
      .grad_name(loss_name("ClampMin"))
      .python(
          "triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2, eps=1e-06, swap=False, size_average=None, reduce=None, reduction='mean')")
      .check(check_margin)
      .composite([](const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                    const Tensor& margin, double p, const Tensor& eps, bool swap,
                    std::string_view reduction) {
        check_triplet(anchor, positive, negative);
        auto distance = [&](const Tensor& a, const Tensor& b) { return distance_of(a, b, p, eps, false); };
        return triplet(distance(anchor, positive), distance(anchor, negative),
                       swap ? std::optional(distance(positive, negative)) : std::nullopt, margin, reduction);
      })
      .samples(
          {"anchor[4, 3], positive[4, 3], negative[4, 3]",
           "anchor[4, 3], positive[4, 3], negative[4, 3], margin=0.5, p=1.0, swap=True, reduction='none'"});
  define("_check_triplet(Tensor anchor, Tensor positive, Tensor negative, float margin) -> ()")
      .doc("Raises for what triplet_margin_loss does not take.")
      .bind(hidden)
      .called("triplet_margin_with_distance_loss")
      .check(check_margin)
      .procedure([](const Tensor& anchor, const Tensor& positive, const Tensor& negative, double) {
        check_triplet(anchor, positive, negative);
      })
      .samples({"anchor[4, 3], positive[4, 3], negative[4, 3], margin=1.0"});
  define("_triplet(Tensor near, Tensor far, Tensor? swapped, float margin, str reduction) -> Tensor")
      .doc("max(0, near - far + margin), `far` the distance `swapped` where that is smaller.")
      .grad_name(loss_name("ClampMin"))
      .bind(hidden)
      .called("triplet_margin_with_distance_loss")
      .composite([](const Tensor& near, const Tensor& far, std::optional<Tensor> swapped,
                    const Tensor& margin,
                    std::string_view reduction) { return triplet(near, far, swapped, margin, reduction); })
      .samples({"near[4], far[4], swapped=None, margin=1.0, reduction='mean'",
                "near[4], far[4], swapped[4], margin=0.5, reduction='none'"});
  define(
      "pairwise_distance(Tensor x1, Tensor x2, float p=2.0, float eps=1e-06, bool keepdim=False) -> Tensor")
      .doc("The p-norm of `x1 - x2 + eps` along the last dimension.")
      .grad_name("Norm", 1)
      .bind(function | nn_functional)
      .composite([](const Tensor& a, const Tensor& b, double p, const Tensor& eps, bool keepdim) {
        return distance_of(a, b, p, eps, keepdim);
      })
      .samples({"x1[4, 3], x2[4, 3]", "x1[4, 3], x2[3], p=1.0, keepdim=True"});
  define("cosine_similarity(Tensor x1, Tensor x2, int dim=1, float eps=1e-08) -> Tensor")
      .doc("The product along `dim` of x1 and x2, each over its length or over eps if that is larger.")
      .bind(function | nn_functional)
      .procedure([](const Tensor& a, const Tensor& b, int64_t dim, double eps) {
        runtime_check(eps >= 0, "cosine_similarity") << "eps must be non-negative, got: " << eps;
        Promotion of;
        of.add(a);
        of.add(b);
        DType common = of.result();
        runtime_check(is_floating(common), "cosine_similarity")
            << "expected common dtype to be floating point, yet common dtype is " << common;
        Dims sizes = broadcast_sizes("cosine_similarity", std::vector<SymSpan>{a.sizes(), b.sizes()});
        auto common_to = [&](const Tensor& x) {
          Tensor y = x.dtype() == common ? x : to_dtype(x, common);
          return Dims(y.sizes()) == sizes ? y : expand(y, sizes);
        };
        return _cosine_similarity(common_to(a), common_to(b), dim, eps);
      })
      .samples({"x1[3, 4], x2[3, 4]", "x1[3, 4], x2[4], dim=-1"});
}
