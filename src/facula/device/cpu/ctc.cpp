// Connectionist temporal classification: sums over alignments by forward and backward variables in log space (Graves et
// al., "Connectionist temporal classification", 2006). Threads share the sequences of a batch.
#include <cmath>
#include <limits>
#include <vector>

#include "facula/base/parallel.h"
#include "facula/device/cpu/cpu.h"

namespace facula::device::cpu {

namespace {

// The variables grow with the number of frames, but their differences do not: double precision for all dtypes.
constexpr double kNever = -std::numeric_limits<double>::infinity();

double log_sum(double a, double b) {
  double m = std::max(a, b);
  if (a != a || b != b || m == -kNever) return std::numeric_limits<double>::quiet_NaN();  // inf - inf
  return m == kNever ? m : m + std::log1p(std::exp(std::min(a, b) - m));
}

// One sequence. Its target has 2 n + 1 places: `label(s)` alternates blanks with the n labels, with a blank at either
// end.
template <class T>
struct Sequence {
  const T* log_probs;  // of frame 0; frames are `stride` apart
  int64_t frames, stride, count;
  const int64_t* target;
  int64_t blank;
  int64_t places() const { return 2 * count + 1; }
  int64_t label(int64_t s) const { return s % 2 ? target[s / 2] : blank; }
  double at(int64_t t, int64_t s) const { return log_probs[t * stride + label(s)]; }
  bool skips(int64_t s) const { return s > 1 && s % 2 && label(s) != label(s - 2); }

  void forward(std::vector<double>& a) const {  // [frames, places]
    a.assign(size_t(frames * places()), kNever);
    if (!frames) return;
    for (int64_t s = 0; s < std::min<int64_t>(2, places()); ++s) a[size_t(s)] = at(0, s);
    for (int64_t t = 1; t < frames; ++t) {
      const double* before = a.data() + (t - 1) * places();
      for (int64_t s = 0; s < places(); ++s) {
        double sum = before[s];
        if (s > 0) sum = log_sum(sum, before[s - 1]);
        if (skips(s)) sum = log_sum(sum, before[s - 2]);
        a[size_t(t * places() + s)] = sum + at(t, s);
      }
    }
  }
  void backward(std::vector<double>& b) const {
    b.assign(size_t(frames * places()), kNever);
    if (!frames) return;
    double* last = b.data() + (frames - 1) * places();
    for (int64_t s = std::max<int64_t>(0, places() - 2); s < places(); ++s) last[s] = at(frames - 1, s);
    for (int64_t t = frames - 2; t >= 0; --t) {
      const double* after = b.data() + (t + 1) * places();
      for (int64_t s = 0; s < places(); ++s) {
        double sum = after[s];
        if (s + 1 < places()) sum = log_sum(sum, after[s + 1]);
        if (s + 2 < places() && skips(s + 2)) sum = log_sum(sum, after[s + 2]);
        b[size_t(t * places() + s)] = sum + at(t, s);
      }
    }
  }
  double loss(const std::vector<double>& a) const {
    if (!frames) return count ? -kNever : 0.0;
    const double* last = a.data() + (frames - 1) * places();
    return -log_sum(last[places() - 1], count ? last[places() - 2] : kNever);
  }
};

// Calls f(number, sequence) for all sequences of a batch.
template <class T, class F>
void each_sequence(const Call& c, const Tensor& log_probs, F&& f) {
  auto sizes = log_probs.int_sizes();
  int64_t batch = sizes[1], classes = sizes[2], blank = c.integer("blank").guard_int();
  Tensor targets = dense(c.tensor("targets"), DType::Int64),
         frames = dense(c.tensor("input_lengths"), DType::Int64),
         counts = dense(c.tensor("target_lengths"), DType::Int64);
  bool padded = targets.dim() == 2;
  int64_t have = targets.numel().concrete(), width = padded ? targets.int_sizes()[1] : 0, next = 0;
  std::vector<Sequence<T>> all;
  for (int64_t n = 0; n < batch; ++n) {
    int64_t t = frames.data<int64_t>()[n], count = counts.data<int64_t>()[n];
    runtime_check(t >= 0 && t <= sizes[0], "ctc_loss")
        << "expected input_lengths between 0 and " << sizes[0] << ", got " << t << " for sequence " << n;
    runtime_check(count >= 0 && (padded ? count <= width : next + count <= have), "ctc_loss")
        << "target_lengths do not fit targets of shape " << to_string(targets.sizes()) << ": " << count
        << " for sequence " << n;
    const int64_t* labels = targets.data<int64_t>() + (padded ? n * width : next);
    next += count;
    for (int64_t k = 0; k < count; ++k)
      runtime_check(labels[k] >= 0 && labels[k] < classes, "ctc_loss")
          << "expected targets between 0 and " << classes - 1 << ", got " << labels[k] << " in sequence "
          << n;
    all.push_back({log_probs.data<T>() + n * classes, t, batch * classes, count, labels, blank});
  }
  parallel_for(batch, 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) f(n, all[size_t(n)]);
  });
}

template <class F>
void of_real_type(DType d, F&& f) {
  if (d == DType::Float64) f(double{});
  else f(float{});
}

}  // namespace

Results ctc_loss(const Call& c, Out out) {
  Tensor log_probs = dense(c.tensor("log_probs"));
  Destination to(out[0]);
  bool clipped = c.flag("zero_infinity");
  of_real_type(log_probs.dtype(), [&](auto zero) {
    using T = decltype(zero);
    each_sequence<T>(c, log_probs, [&](int64_t n, const Sequence<T>& s) {
      std::vector<double> a;
      s.forward(a);
      double loss = s.loss(a);
      to.data<T>()[n] = clipped && loss == -kNever ? T(0) : T(loss);
    });
  });
  to.finish();
  return Results(out[0]);
}

Results ctc_loss_backward(const Call& c, Out out) {
  Tensor log_probs = dense(c.tensor("log_probs")), g = dense(c.tensor("grad"));
  Destination to(out[0]);
  fill_zero(to.tensor());
  int64_t classes = log_probs.int_sizes()[2];
  bool clipped = c.flag("zero_infinity");
  of_real_type(log_probs.dtype(), [&](auto zero) {
    using T = decltype(zero);
    each_sequence<T>(c, log_probs, [&](int64_t n, const Sequence<T>& s) {
      std::vector<double> a, b, sums;
      s.forward(a);
      double loss = s.loss(a), scale = g.data<T>()[n];
      if (clipped && loss == -kNever) return;
      s.backward(b);
      for (int64_t t = 0; t < s.frames; ++t) {
        sums.assign(size_t(classes), kNever);
        for (int64_t k = 0; k < s.places(); ++k) {
          double& sum = sums[size_t(s.label(k))];
          sum = log_sum(sum, a[size_t(t * s.places() + k)] + b[size_t(t * s.places() + k)]);
        }
        T* y = to.data<T>() + n * classes + t * s.stride;
        for (int64_t k = 0; k < classes; ++k) {
          double p = s.log_probs[t * s.stride + k];
          y[k] = T(scale * (std::exp(p) - std::exp(sums[size_t(k)] + loss - p)));
        }
      }
    });
  });
  to.finish();
  return Results(out[0]);
}

}  // namespace facula::device::cpu
