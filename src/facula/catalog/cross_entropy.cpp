// Losses of classifications: negative log likelihood and cross entropy.
#include "facula/autograd/probing.h"
#include "facula/catalog/loss_helpers.h"
#include "facula/catalog/reduced_loss.h"
#include "facula/catalog/widened.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/op/refusal.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
using facula::catalog::reduced_loss;
namespace d = facula::dtypes;
using namespace facula::catalog::loss_helpers;

namespace {
void check_batch(const char* name, bool fits, const Tensor& input, const Tensor& target, SymInt batch) {
  value_check(fits, name) << "Expected input batch_size (" << batch << ") to match target batch_size ("
                          << (target.dim() ? target.size(0) : SymInt(int64_t(0))) << "): input "
                          << to_string(input.sizes()) << ", target " << to_string(target.sizes());
}
void check_classes(const char* name, const Tensor& input, const Tensor& target) {
  value_check(input.dim() >= 1, name)
      << "expected input of at least 1 dimension [C] or [N, C, ...], got " << to_string(input.sizes());
  Dims expected = without(input.sizes(), class_axis(input.dim()));
  bool fits = expected.size() == target.sizes().size();
  for (size_t k = 0; fits && k < expected.size(); ++k) fits = expected[k] == target.sizes()[k];
  check_batch(name, fits || (!expected.empty() && target.dim() && expected[0] == target.size(0)), input,
              target, expected.empty() ? SymInt(int64_t(1)) : expected[0]);
  runtime_check(fits, name) << "expected target of shape " << to_string(SymSpan(expected))
                            << " for input of shape " << to_string(input.sizes()) << ", got "
                            << to_string(target.sizes())
                            << hint(Dims(input.sizes()) == Dims(target.sizes())
                                        ? "class probabilities have a floating dtype: target.float()"
                                        : "a target holds one class index for each element of the batch");
  runtime_check(is_integral(target.dtype()), name)
      << "expected a target of class indices (int64), got " << target.dtype()
      << hint("target.long(), or a target of the input's shape for class probabilities");
}
// ---- cross-entropy of a linear map
void check_linear_cross_entropy(const Tensor& input, const Tensor& linear, const Tensor& target,
                                const Call& c, SymSpan logits) {
  const char* name = "linear_cross_entropy";
  bool places = linear.dim() > 2;
  runtime_check(!c.has("linear_bias") ||
                    Dims(c.sizes("linear_bias")) == without(linear.sizes(), linear.dim() - 1),
                name)
      << "expected linear_bias of shape " << to_string(SymSpan(without(linear.sizes(), linear.dim() - 1)))
      << ", got " << to_string(c.sizes("linear_bias"));
  runtime_check(!places || input.dim() == 2, name)
      << "a loss for several places needs batched input, got input " << to_string(input.sizes())
      << ", linear_weight " << to_string(linear.sizes());
  runtime_check(!c.has("ignore_index") || Dims(target.sizes()) != Dims(logits), name)
      << "ignore_index cannot be specified when target contains probabilities";
}
// The mean or sum of rows whose losses are added up by chunks.
Tensor reduced_chunks(const Tensor& total, const Tensor& target, const std::optional<Tensor>& weight,
                      SymInt ignored, std::string_view reduction) {
  if (reduction == "sum") return total;
  if (is_floating(target.dtype())) return div(total, target.size(0));
  Tensor valid = ne(target, ignored);
  if (!weight) return div(total, sum(valid));
  Tensor of_rows = index_select(*weight, 0, where(valid, target, 0));
  return div(total, sum(mul(of_rows, valid)));
}
Tensor linear_cross_entropy_of(const Call& c) {
  const char* name = "linear_cross_entropy";
  Tensor input = c.tensor("input"), linear = c.tensor("linear_weight"), target = c.tensor("target");
  runtime_check((input.dim() == 1 || input.dim() == 2) && linear.dim() >= 2 &&
                    input.size(-1) == linear.size(-1),
                name)
      << "expected input of 1 or 2 dimensions and linear_weight of at least 2, with as many features in the "
      << "last one, got input " << to_string(input.sizes()) << ", linear_weight "
      << to_string(linear.sizes());
  Dims logits = without(input.sizes(), input.dim() - 1);
  for (SymInt n : without(linear.sizes(), linear.dim() - 1)) logits.push_back(n);
  check_linear_cross_entropy(input, linear, target, c, logits);
  std::optional<Tensor> bias, weight;
  if (c.has("linear_bias")) bias = reshape(c.tensor("linear_bias"), Sizes{int64_t(-1)});
  if (c.has("weight")) weight = c.tensor("weight");
  SymInt ignored = c.has("ignore_index") ? c.integer("ignore_index") : SymInt(int64_t(-100));
  auto reduction = c.str("reduction");
  double smoothing = c.real("label_smoothing");
  bool by_chunks = c.has("rows") && input.dim() == 2 && linear.dim() == 2 && reduction != "none";
  if (by_chunks && !target.requires_grad()) {  // which the chunks have no gradient of
    value_check(smoothing >= 0 && smoothing <= 1, name)
        << "label_smoothing must be between 0.0 and 1.0, got " << smoothing;
    bool indices = is_integral(target.dtype());
    Dims expected = indices ? Dims{input.size(0)} : logits;
    value_check(Dims(target.sizes()) == expected, name)
        << "expected target of shape " << to_string(SymSpan(expected)) << ", got "
        << to_string(target.sizes());
    auto total = std::get<0>(_linear_cross_entropy(input, linear, target, bias, weight, ignored, smoothing,
                                                   c.integer("rows").guard_int()));
    return reduced_chunks(total, target, weight, ignored, reduction);
  }
  // Logits are not rounded, as in the chunked computation.
  auto wide = [&](const Tensor& t) { return c.has("rows") ? catalog::wide(t) : t; };
  auto maybe = [&](const std::optional<Tensor>& t) { return t ? std::optional(wide(*t)) : t; };
  Tensor rows = flatten(wide(linear), 0, -2);
  Tensor all = reshape(facula::linear(wide(input), rows, maybe(bias)), logits);
  Tensor loss = cross_entropy(all, wide(target), maybe(weight), reduction, ignored, smoothing);
  return c.has("rows") ? catalog::narrowed(loss, input.dtype()) : loss;
}
std::string nll_name(const Call& c) {
  int rank = c.rank("self");
  if (rank < 3) return grad_name("NllLoss");
  return rank > 3 || c.str("reduction") != "none" ? grad_name("NllLoss2D") : grad_name("View");
}
std::string cross_entropy_name(const Call& c) {
  if (is_differentiable(c.dtype("target")))
    return c.str("reduction") == "mean" ? grad_name("Div", 1) : grad_name("Neg");
  return c.real("label_smoothing") > 0 ? grad_name("Add") : nll_name(c);
}
// Cross entropy with class probabilities, `log_p` the logarithm of softmax(self); class_weight may be undefined.
Tensor of_probabilities(const Call& c, const Tensor& self, const Tensor& target, const Tensor& log_p,
                        const Tensor& class_weight) {
  double smoothing = c.real("label_smoothing");
  auto reduction = c.str("reduction");
  int axis = class_axis(self.dim());
  runtime_check(c.integer("ignore_index") < SymInt(int64_t(0)), "cross_entropy")
      << "ignore_index is not supported for class probabilities";
  check_batch("cross_entropy", self.dim() < 2 || target.dim() < 1 || self.size(0) == target.size(0), self,
              target, self.dim() ? self.size(0) : SymInt(int64_t(1)));
  bool fits = self.dim() == target.dim() &&
              std::equal(self.sizes().begin(), self.sizes().end(), target.sizes().begin());
  runtime_check(fits, "cross_entropy") << "class probabilities must have the input's shape "
                                       << to_string(self.sizes()) << ", got " << to_string(target.sizes());
  Tensor t = target;
  if (smoothing > 0) t = add(mul(t, 1 - smoothing), div(full_like(t, smoothing), self.size(axis)));
  Tensor term = mul(log_p, t);
  if (class_weight.defined()) term = mul(term, class_weight);
  Tensor loss = neg(sum(term, axis));
  if (reduction == "mean") return div(sum(loss), self.numel() / max(self.size(axis), SymInt(int64_t(1))));
  return reduced_loss("cross_entropy", loss, reduction);
}
}  // namespace

FACULA_FAMILY(cross_entropy) {
  define("_spread(Tensor grad, Tensor target, SymInt[] size, SymInt ignore_index) -> Tensor")
      .doc("Zeros of `size` with grad at the class target[...]: the transpose of _pick.")
      .bind(hidden)
      .shape([](const Call& c) { return Dims(c.ints("size")); })
      .loop([](const LoopCall& c, Index i) {
        int axis = class_axis(int(i.size()));
        Index j = without(i, axis);
        Expr t = cast(c.load("target", j), DType::Int64), g = c.load("grad", j);
        return select(eq(t, i[size_t(axis)]) & ne(t, size(c.integer("ignore_index"))), g, 0.0);
      })
      .samples({"grad[4], target<3>[4], size=[4, 3], ignore_index=-100"});
  define(
      "nll_loss(Tensor self, Tensor target, Tensor? weight=None, str reduction='mean', SymInt ignore_index=-100) -> Tensor")
      .python(
          "nll_loss(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction='mean')")
      .doc("-self[n, target[n]], averaged over the targets that are not ignored, by class weight.")
      .grad_name(nll_name)
      .autocast(Autocast::fp32)
      .bind(function)
      .dtypes(d::floating)
      .strict()
      .composite([](const Call& c, const Tensor& self, const Tensor& target, std::optional<Tensor> weight) {
        check_classes("nll_loss", self, target);
        if (weight) check_same_dtype("nll_loss", self, *weight);
        SymInt ignored = c.integer("ignore_index");
        auto reduction = c.str("reduction");
        Tensor loss = neg(_pick(self, target, ignored));
        Tensor counted = to_dtype(ne(target, ignored), self.dtype());
        if (weight) {
          SymInt classes = self.size(class_axis(self.dim()));
          runtime_check(weight->dim() == 1 && weight->size(0) == classes, "nll_loss")
              << "weight must hold one number for each of the " << classes << " classes of input "
              << to_string(self.sizes()) << ", got shape " << to_string(weight->sizes());
          Dims along(size_t(self.dim()), SymInt(int64_t(1)));
          along[size_t(class_axis(self.dim()))] = classes;
          Tensor w = _pick(expand(view(*weight, along), self.sizes()), target, ignored);
          loss = mul(loss, w);
          counted = w;
        }
        if (reduction == "mean") return div(sum(loss), sum(counted));
        return reduced_loss("nll_loss", loss, reduction);
      })
      .samples({"self[4, 3], target<3>[4]", "self[4, 3], target<3>[4], weight[3](0.1, 2), reduction='sum'",
                "self[4, 3, 2], target<3>[4, 2], ignore_index=1, reduction='none'", "self[3], target<3>[]"});
  define(
      "cross_entropy(Tensor self, Tensor target, Tensor? weight=None, str reduction='mean', SymInt ignore_index=-100, float label_smoothing=0.0) -> Tensor")
      .python(
          "cross_entropy(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction='mean', label_smoothing=0.0)")
      .doc(
          "Negative log-likelihood of softmax(self) for class indices or class probabilities `target`; the class axis is 0 for [C], else 1.")
      .grad_name(cross_entropy_name)
      .autocast(Autocast::fp32)
      .bind(function)
      .dtypes(d::floating)
      .strict()
      .composite([](const Call& c, const Tensor& self, const Tensor& target, std::optional<Tensor> weight) {
        double smoothing = c.real("label_smoothing");
        auto reduction = c.str("reduction");
        SymInt ignored = c.integer("ignore_index");
        int axis = class_axis(self.dim());
        runtime_check(smoothing >= 0 && smoothing <= 1, "cross_entropy")
            << "label_smoothing must be between 0.0 and 1.0, got " << smoothing;
        bool probabilities = is_floating(target.dtype());
        if (!probabilities) check_classes("cross_entropy", self, target);
        Tensor top = detach(_top(self, axis));  // it cancels: no gradient need go that way
        Tensor shifted = sub(self, top);
        Tensor log_total = log(sum(exp(shifted), axis, true));
        Tensor class_weight;
        if (weight) {
          Dims sizes(size_t(self.dim()), SymInt(int64_t(1)));
          sizes[size_t(axis)] = self.size(axis);
          runtime_check(weight->dim() == 1 && weight->size(0) == self.size(axis), "cross_entropy")
              << "weight must hold one number for each of the " << self.size(axis) << " classes of input "
              << to_string(self.sizes()) << ", got shape " << to_string(weight->sizes());
          class_weight = view(*weight, sizes);
        }
        if (weight) check_same_dtype("cross_entropy", self, *weight);
        if (probabilities) return of_probabilities(c, self, target, sub(shifted, log_total), class_weight);
        // A row that is ignored may hold anything, and a count of 0 makes the others' gradient infinite: it is
        // selected away, as neither NaN nor infinity is by a factor of 0.
        Tensor valid = ne(target, ignored), row = squeeze(log_total, axis);
        auto of_valid = [&](const Tensor& t) { return where(valid, t, zeros_like(t)); };
        Tensor loss = sub(row, _pick(shifted, target, ignored)), counted = to_dtype(valid, self.dtype());
        if (weight) {
          counted = _pick(expand(class_weight, self.sizes()), target, ignored);
          loss = mul(loss, counted);
        }
        auto total = [&](const Tensor& t) {
          return reduction == "mean" ? div(sum(t), sum(counted))
                                     : reduced_loss("cross_entropy", t, reduction);
        };
        loss = total(of_valid(loss));
        if (smoothing == 0) return loss;
        Tensor log_p = sub(shifted, log_total);
        Tensor smooth = total(of_valid(neg(sum(weight ? mul(log_p, class_weight) : log_p, axis))));
        return add(mul(loss, 1 - smoothing), mul(smooth, smoothing / double(self.size(axis).guard_int())));
      })
      .samples({"self[4, 3], target<3>[4]",
                "self[4, 3], target<3>[4], weight[3](0.1, 2), label_smoothing=0.1",
                "self[4, 3, 2], target<3>[4, 2], ignore_index=1, reduction='none'", "self[3], target<3>[]",
                "self[4, 3], target[4, 3](0, 1)", "self[33, 65], target<65>[33], reduction='sum'"});
  define(
      "_cross_entropy_slope(Tensor self, Tensor target, Tensor? weight, SymInt ignore_index, float label_smoothing) -> (Tensor loss, Tensor slope)")
      .doc("The sum of cross_entropy over rows self [n, classes], and its gradient by self.")
      .bind(hidden)
      .dtypes(d::floating)
      .non_differentiable("_linear_cross_entropy, whose results these are, has the gradient")
      .composite([](const Call& c, const Tensor& self, const Tensor& target, std::optional<Tensor> weight) {
        double smoothing = c.real("label_smoothing");
        SymInt ignored = c.integer("ignore_index");
        double uniform = smoothing / double(self.size(1).guard_int());
        Tensor shifted = sub(self, _top(self, 1)), e = exp(shifted), total = sum(e, 1, true);
        Tensor log_p = sub(shifted, log(total)), q, loss;
        if (is_floating(target.dtype())) {
          q = add(mul(target, 1 - smoothing), uniform);
          if (weight) q = mul(q, *weight);
          loss = neg(sum(mul(log_p, q)));
        } else {
          Tensor valid = unsqueeze(ne(target, ignored), 1);
          Tensor hit = eq(unsqueeze(target, 1), arange(self.size(1).guard_int()));
          q = where(hit, full_like(log_p, 1 - smoothing + uniform), full_like(log_p, uniform));
          if (weight) q = mul(q, *weight);
          q = where(valid, q, zeros_like(q));
          Tensor term = where(ne(q, 0), mul(log_p, q), zeros_like(q));
          // _pick raises for a class that does not exist.
          Tensor checked = unsqueeze(mul(_pick(zeros_like(self), target, ignored), 0), 1);
          loss = neg(sum(add(term, checked)));
          e = where(valid, e, zeros_like(e));
        }
        return std::tuple(loss, sub(mul(div(e, total), sum(q, 1, true)), q));
      })
      .samples({"self[4, 3], target<3>[4], weight=None, ignore_index=-100, label_smoothing=0.0",
                "self[4, 3], target<3>[4], weight[3](0.1, 2), ignore_index=1, label_smoothing=0.1",
                "self[4, 3], target[4, 3](0, 1), weight=None, ignore_index=-100, label_smoothing=0.1"});
  define(
      "_linear_cross_entropy(Tensor input, Tensor linear_weight, Tensor target, Tensor? linear_bias, Tensor? weight, SymInt ignore_index, float label_smoothing, int chunk) -> (Tensor loss, Tensor grad_input, Tensor grad_weight, Tensor grad_bias)")
      .doc(
          "The sum of cross_entropy over the logits of input [n, features], and its gradients: `chunk` rows of logits are there at a time.")
      .autocast(Autocast::lower)
      .bind(hidden)
      .dtypes(d::floating)
      .shapes([](const Call& c) {
        return std::vector<Dims>{{},
                                 Dims(c.sizes("input")),
                                 Dims(c.sizes("linear_weight")),
                                 {c.size("linear_weight", 0)}};
      })
      .checks()
      .library("linear_cross_entropy")
      .reference([](const Call& c, const Tensor& input, const Tensor& linear_weight, const Tensor& target,
                    std::optional<Tensor> bias, std::optional<Tensor> weight) {
        DType own = input.dtype(), wide = itemsize(own) < 4 ? DType::Float32 : own;
        int64_t n = input.size(0).guard_int(), chunk = c.integer("chunk").guard_int();
        Tensor loss = zeros(Dims{}, wide), grad_weight = zeros(linear_weight.sizes(), wide),
               grad_bias = zeros(Dims{linear_weight.size(0)}, wide);
        std::vector<Tensor> grads;
        for (int64_t k = 0; k < n; k += chunk) {
          SymInt from(k), rows(std::min(chunk, n - k));
          Tensor x = narrow(input, 0, from, rows), logits = mm(x, t(linear_weight));
          if (bias) logits = add(logits, *bias);
          auto [part, slope] =
              _cross_entropy_slope(to_dtype(logits, wide), narrow(target, 0, from, rows),
                                   weight ? MaybeTensor(to_dtype(*weight, wide)) : MaybeTensor(),
                                   c.integer("ignore_index"), c.real("label_smoothing"));
          logits = Tensor();
          loss = add(loss, part);
          if (bias) grad_bias = add(grad_bias, sum(slope, 0));
          Tensor narrowed = to_dtype(slope, own);
          slope = Tensor();
          grads.push_back(mm(narrowed, linear_weight));
          grad_weight = add(grad_weight, mm(t(narrowed), x));
        }
        Tensor grad_input = grads.empty() ? zeros(input.sizes(), own) : cat(grads, 0);
        return std::tuple(to_dtype(loss, own), grad_input, to_dtype(grad_weight, own),
                          to_dtype(grad_bias, own));
      })
      .vjp([](const Vjp& v) {
        for (int k = 1; k < 4; ++k)
          supported_check(!v.grad(k).defined() || autograd::is_probing(), "linear_cross_entropy")
              << "computed by chunks has no second derivative" << hint("options=None computes all logits");
        auto scaled = [&](const char* of, int k) {
          return v.needs(of) ? mul(v.grad(0), v.result(k)) : Tensor();
        };
        return grads(scaled("input", 1), scaled("linear_weight", 2), Tensor(), scaled("linear_bias", 3));
      })
      .undifferenced("some results are gradients already")
      .samples(
          {"input[5, 3], linear_weight[4, 3], target<4>[5], linear_bias=None, weight=None, ignore_index=-100, label_smoothing=0.0, chunk=2",
           "input[4, 3], linear_weight[4, 3], target<4>[4], linear_bias[4], weight[4](0.1, 2), "
           "ignore_index=1, label_smoothing=0.1, chunk=4"});
  define(
      "linear_cross_entropy(Tensor input, Tensor linear_weight, Tensor target, *, Tensor? linear_bias=None, Tensor? weight=None, str reduction='mean', SymInt? ignore_index=None, float label_smoothing=0.0, int? rows=None) -> Tensor")
      .doc(
          "cross_entropy of the logits linear(input, linear_weight, linear_bias). linear_weight is [classes, *, features]; dimensions between give a loss for each of their places. Of `rows` rows the logits are there at a time, of all without it.")
      .bind(nn_functional)
      .procedure([](const Call& c) { return linear_cross_entropy_of(c); })
      .samples({"input[5, 3], linear_weight[4, 3], target<4>[5]",
                "input[5, 3], linear_weight[4, 3], target<4>[5], linear_bias[4], reduction='sum'",
                "input[2, 3], linear_weight[4, 5, 3], target<4>[2, 5]"});
}
