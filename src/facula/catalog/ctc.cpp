// Connectionist temporal classification (Graves et al., "Connectionist temporal classification: labelling unsegmented
// sequence data with recurrent neural networks", 2006).
#include <limits>

#include "facula/catalog/no_derivative.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::op;

namespace {

constexpr DTypeSet kReal = dtypes_where([](DType t) { return t == DType::Float32 || t == DType::Float64; });

// Slow: one sequence after the other, place by place.
struct Lattice {
  Tensor forward, backward, loss;  // [frames, places] twice, and a number
  std::vector<int64_t> labels;
};
Tensor log_added(const Tensor& a, const Tensor& b) {
  Tensor m = maximum(a, b), none = isinf(m), safe = where(none, zeros_like(m), m);
  return where(none, m, add(safe, log(add(exp(sub(a, safe)), exp(sub(b, safe))))));
}
Lattice lattice(const Tensor& log_probs, const std::vector<int64_t>& target,
                int64_t blank) {  // [frames, classes]
  Lattice l;
  l.labels.push_back(blank);
  for (int64_t k : target) l.labels.insert(l.labels.end(), {k, blank});
  auto n = int64_t(l.labels.size()), frames = log_probs.size(0).guard_int();
  Tensor never = full({}, -std::numeric_limits<double>::infinity(), log_probs.dtype());
  auto at = [&](int64_t t, int64_t s) { return select(select(log_probs, 0, t), 0, l.labels[size_t(s)]); };
  auto skips = [&](int64_t s) { return s > 1 && s % 2 && l.labels[size_t(s)] != l.labels[size_t(s) - 2]; };
  std::vector<std::vector<Tensor>> a(static_cast<size_t>(frames), std::vector<Tensor>(size_t(n), never)),
      b = a;
  for (int64_t t = 0; t < frames; ++t)
    for (int64_t s = 0; s < n; ++s) {
      Tensor sum = never, later = never;
      int64_t r = frames - 1 - t;
      if (t == 0) {
        sum = s < 2 ? zeros_like(never) : never;
        later = s >= n - 2 ? zeros_like(never) : never;
      } else {
        auto& before = a[size_t(t) - 1];
        auto& after = b[size_t(r) + 1];
        sum = before[size_t(s)], later = after[size_t(s)];
        if (s > 0) sum = log_added(sum, before[size_t(s) - 1]);
        if (skips(s)) sum = log_added(sum, before[size_t(s) - 2]);
        if (s + 1 < n) later = log_added(later, after[size_t(s) + 1]);
        if (s + 2 < n && skips(s + 2)) later = log_added(later, after[size_t(s) + 2]);
      }
      a[size_t(t)][size_t(s)] = add(sum, at(t, s));
      b[size_t(r)][size_t(s)] = add(later, at(r, s));
    }
  auto table = [](const std::vector<std::vector<Tensor>>& x) {
    std::vector<Tensor> rows;
    for (auto& r : x) rows.push_back(stack(r));
    return rows.empty() ? Tensor() : stack(rows);
  };
  l.forward = table(a), l.backward = table(b);
  if (!frames) l.loss = target.empty() ? zeros_like(never) : neg(never);
  else l.loss = neg(log_added(a.back()[size_t(n) - 1], n > 1 ? a.back()[size_t(n) - 2] : never));
  return l;
}
template <class F>
void each_sequence(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                   const Tensor& target_lengths, F&& f) {
  int64_t next = 0;
  auto read = [](const Tensor& t, int64_t k) { return select(t, 0, k).item().to_int(); };
  for (int64_t n = 0; n < log_probs.size(1).guard_int(); ++n) {
    Tensor labels = targets.dim() == 2 ? select(targets, 0, n) : targets;
    std::vector<int64_t> target;
    int64_t first = targets.dim() == 2 ? 0 : next, count = read(target_lengths, n);
    for (int64_t k = 0; k < count; ++k) target.push_back(read(labels, first + k));
    next += count;
    f(narrow(select(log_probs, 1, n), 0, int64_t(0), read(input_lengths, n)), target);
  }
}

Tensor reduced_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                    const Tensor& target_lengths, int64_t blank, std::string_view reduction,
                    bool zero_infinity) {
  value_check(reduction == "mean" || reduction == "sum" || reduction == "none", "ctc_loss")
      << std::string(reduction) << " is not a valid value for reduction";
  auto shape = [&] {
    return "log_probs must be [frames, batch, classes] or [frames, classes], got shape " +
           to_string(log_probs.sizes());
  };
  index_check(log_probs.dim() >= 2, "ctc_loss") << shape();
  runtime_check(log_probs.dim() <= 3, "ctc_loss") << shape();
  runtime_check(log_probs.numel() > SymInt(int64_t(0)), "ctc_loss") << "log_probs tensor must not be empty";
  bool one = log_probs.dim() == 2;
  Tensor x = one ? unsqueeze(log_probs, 1) : log_probs;
  for (auto* lengths : {&input_lengths, &target_lengths})
    runtime_check(is_integral(lengths->dtype()), "ctc_loss")
        << (lengths == &input_lengths ? "input_lengths" : "target_lengths") << " must be integral, got "
        << lengths->dtype();
  Tensor frames = one && input_lengths.dim() == 0 ? unsqueeze(input_lengths, 0) : input_lengths;
  Tensor counts = one && target_lengths.dim() == 0 ? unsqueeze(target_lengths, 0) : target_lengths;
  Tensor labels = is_integral(targets.dtype()) ? targets : to_dtype(targets, DType::Int64);
  Tensor loss = _ctc_loss(x, labels, frames, counts, blank, zero_infinity);
  if (reduction == "mean") return mean(div(loss, to_dtype(clamp_min(counts, 1), loss.dtype())));
  if (reduction == "sum") return sum(loss);
  return one ? squeeze(loss, 0) : loss;
}
Tensor lengths_of(Sizes given) {
  std::vector<Tensor> all;
  for (SymInt n : given) all.push_back(full({int64_t(1)}, n.guard_int(), DType::Int64));
  return all.empty() ? zeros({int64_t(0)}, DType::Int64) : cat(all, 0);
}

SampleArg constant_index(std::vector<int64_t> sizes, int64_t value) {
  SampleArg a = op::index(std::move(sizes), value + 1);
  a.low = double(value);
  return a;
}
Samples ctc_samples(bool whole) {
  SampleArg labels = op::index({2, 2}, 3);
  labels.low = 1;  // the blank is none
  Sample s{{{"log_probs", op::tensor({4, 2, 3}, -2, -0.5)},
            {"targets", labels},
            {"input_lengths", constant_index({2}, 4)},
            {"target_lengths", constant_index({2}, 2)}}};
  if (whole) {
    s.args.push_back({"blank", op::literal("0")});
    s.args.push_back({"zero_infinity", op::literal("True")});
  }
  return op::samples({s});
}
Samples gradient_samples() {
  Sample s = ctc_samples(true).list()[0];
  s.args.insert(s.args.begin(), {"grad", op::tensor({2})});
  return op::samples({s});
}
Dims loss_sizes(const Call& c) {
  Tensor x = c.tensor("log_probs"), targets = c.tensor("targets");
  SymInt batch = x.dim() == 3 ? x.size(1) : SymInt(), blank = c.integer("blank");
  runtime_check(is_integral(targets.dtype()), "ctc_loss")
      << "targets must be integral, got " << targets.dtype();
  runtime_check(targets.dim() == 1 || (targets.dim() == 2 && targets.size(0) == batch), "ctc_loss")
      << "targets must be one row of labels, or a row for each sequence: log_probs " << to_string(x.sizes())
      << ", targets " << to_string(targets.sizes());
  runtime_check(blank >= SymInt(int64_t(0)) && blank < x.size(2), "ctc_loss")
      << "blank must be in label range, from 0 to " << x.size(2) - SymInt(int64_t(1)) << ", got " << blank;
  for (const char* lengths : {"input_lengths", "target_lengths"})
    runtime_check(c.rank(lengths) == 1 && c.size(lengths, 0) == batch, "ctc_loss")
        << lengths << " must have one element for each of " << batch << " sequences, got shape "
        << to_string(c.sizes(lengths));
  return Dims{batch};
}

}  // namespace

FACULA_FAMILY(ctc) {
  define(
      "_ctc_loss(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank, bool zero_infinity) -> Tensor")
      .doc("-log of the sum over alignments, for each sequence.")
      .bind(hidden)
      .dtypes(kReal)
      .promote(Promote::none)
      .result([](const Call& c) { return std::vector<DType>{c.dtype("log_probs")}; })
      .shape([](const Call& c) {
        supported_check(kReal.has(c.dtype("log_probs")), "ctc_loss")
            << "not implemented for " << c.dtype("log_probs");
        return loss_sizes(c);
      })
      .checks()
      .library("ctc_loss")
      .reference([](const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                    const Tensor& target_lengths, int64_t blank, bool zero_infinity) {
        std::vector<Tensor> losses;
        each_sequence(log_probs, targets, input_lengths, target_lengths,
                      [&](const Tensor& x, const std::vector<int64_t>& y) {
                        Tensor loss = lattice(x, y, blank).loss;
                        losses.push_back(zero_infinity ? where(isinf(loss), zeros_like(loss), loss) : loss);
                      });
        return losses.empty() ? zeros({int64_t(0)}, log_probs.dtype()) : stack(losses);
      })
      .vjp([](const Vjp& v) {
        auto& c = v.call();
        return grads(_ctc_loss_backward(v.grad(), v["log_probs"], v["targets"], v["input_lengths"],
                                        v["target_lengths"], c.integer("blank").guard_int(),
                                        c.flag("zero_infinity")));
      })
      .undifferenced("it is that of logarithms which stay normalised")
      .samples(ctc_samples(true));
  define(
      "_ctc_loss_backward(Tensor grad, Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank, bool zero_infinity) -> Tensor")
      .doc("The gradient of _ctc_loss, of log_probs that are normalised (equation 16 of Graves et al.).")
      .bind(hidden)
      .dtypes(kReal)
      .promote(Promote::none)
      .result([](const Call& c) { return std::vector<DType>{c.dtype("log_probs")}; })
      .shape([](const Call& c) {
        SymInt batch = loss_sizes(c)[0];
        runtime_check(c.dtype("grad") == c.dtype("log_probs") && c.rank("grad") == 1 &&
                          c.size("grad", 0) == batch,
                      "ctc_loss")
            << "the gradient must have one element of " << c.dtype("log_probs") << " for each of " << batch
            << " sequences, got " << c.dtype("grad") << to_string(c.sizes("grad"));
        return Dims(c.sizes("log_probs"));
      })
      .checks()
      .library("ctc_loss_backward")
      .reference([](const Tensor& grad, const Tensor& log_probs, const Tensor& targets,
                    const Tensor& input_lengths, const Tensor& target_lengths, int64_t blank,
                    bool zero_infinity) {
        std::vector<Tensor> all;
        int64_t frames = log_probs.size(0).guard_int(), n = 0;
        each_sequence(
            log_probs, targets, input_lengths, target_lengths,
            [&](const Tensor& x, const std::vector<int64_t>& y) {
              Lattice l = lattice(x, y, blank);
              Tensor g = zeros_like(x);
              if (x.numel() > SymInt(int64_t(0)) && !(zero_infinity && isinf(l.loss).item().to_bool())) {
                std::vector<Tensor> columns;
                for (int64_t k = 0; k < x.size(1).guard_int(); ++k) {
                  Tensor sum = full({x.size(0)}, -std::numeric_limits<double>::infinity(), x.dtype());
                  for (size_t s = 0; s < l.labels.size(); ++s)
                    if (l.labels[s] == k)
                      sum = log_added(sum, add(select(l.forward, 1, int64_t(s)),
                                               select(l.backward, 1, int64_t(s))));
                  Tensor p = select(x, 1, k);
                  columns.push_back(sub(exp(p), exp(sub(add(sum, l.loss), p))));
                }
                g = mul(stack(columns, 1), select(grad, 0, n));
              }
              all.push_back(
                  constant_pad_nd(g, std::vector<int64_t>{0, 0, 0, frames - x.size(0).guard_int()}, 0));
              ++n;
            });
        return all.empty() ? zeros_like(log_probs) : stack(all, 1);
      })
      .grad_name(catalog::not_implemented())
      .vjp(catalog::NoDerivative{"aten::_ctc_loss_backward"})
      .samples(gradient_samples());
  define(
      "ctc_loss(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank=0, str reduction='mean', bool zero_infinity=False) -> Tensor")
      .doc(
          "-log of the probability of `targets` summed over all their alignments to frames, log_probs [frames, batch, "
          "classes] being logarithms of probabilities. targets: [batch, length], or all behind each other. 'mean' divides "
          "by the targets' lengths first; `zero_infinity` drops targets that do not fit their frames.")
      .bind(nn_functional)
      .autocast(Autocast::fp32)
      .procedure([](const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                    const Tensor& target_lengths, int64_t blank, std::string_view reduction,
                    bool zero_infinity) {
        return reduced_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction,
                            zero_infinity);
      })
      .undifferenced("it is that of logarithms which stay normalised")
      .samples(ctc_samples(false));
  define(
      "ctc_loss.lengths(Tensor log_probs, Tensor targets, int[] input_lengths, int[] target_lengths, int blank=0, str reduction='mean', bool zero_infinity=False) -> Tensor")
      .doc("With lengths as numbers.")
      .bind(nn_functional)
      .autocast(Autocast::fp32)
      .procedure([](const Tensor& log_probs, const Tensor& targets, Sizes input_lengths, Sizes target_lengths,
                    int64_t blank, std::string_view reduction, bool zero_infinity) {
        return reduced_loss(log_probs, targets, lengths_of(input_lengths), lengths_of(target_lengths), blank,
                            reduction, zero_infinity);
      })
      .undifferenced("it is that of logarithms which stay normalised")
      .samples(
          {"log_probs[4, 2, 3](-2, -0.5), targets<3>[2, 2], input_lengths=[4, 3], target_lengths=[2, 1]"});
}
