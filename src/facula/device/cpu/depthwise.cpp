#include "facula/device/cpu/depthwise.h"

#include <algorithm>
#include <array>

#include "facula/base/parallel.h"
#include "facula/device/cpu/nest_builder.h"
#include "facula/device/cpu/onednn.h"

namespace facula::device::cpu {

namespace {

using namespace facula::loop;

// Integer parameters.
struct DepthwiseParam {
  enum : int {
    channels,
    vectors,  // of channels
    chunks,
    rows,  // result rows of all images
    h,
    w,
    oh,
    ow,
    kh,
    step_y,
    step_x,
    before_y,
    before_x,
    apart_y,
    apart_x,
    tasks,
    count
  };
};
using P = DepthwiseParam;

// Sums have the layout [chunks, kh, kw, channels]; sums_in is the same memory, read before it is written.
struct DepthwiseBuffer {
  enum : int { input, grad, sums, sums_in, count };
};
using B = DepthwiseBuffer;

// The properties that a nest is built for; everything else is a parameter.
struct DepthwiseVariant {
  DType dtype;
  int width;  // of a weight
  bool tail;  // the last vector of channels is not full
  auto operator<=>(const DepthwiseVariant&) const = default;
};

// Number of sums that are held in registers at once, besides the gradient.
constexpr int kTaps = 12;
// Tasks for threads to share.
constexpr int64_t kTasks = 8;

class WeightTask : public NestBuilder {
 public:
  explicit WeightTask(const DepthwiseVariant& v) : NestBuilder(DType::Float32), v_(v) {}

  void run(Expr task) {
    Expr chunk = let(floordiv(task, param(P::vectors)));
    channel0_ = let((task - chunk * param(P::vectors)) * Scalar(int64_t(lanes())));
    chunk_ = chunk;
    for (int k = 0; k < v_.width; ++k) ranges_.push_back(range_of(k));
    each(param(P::kh), [&](Expr ky) {
      each(number(v_.width),
           [&](Expr kx) { channels([&](Expr lane) { store(B::sums, place(ky, kx) + lane, real(0)); }); });
    });
    Expr from = let(floordiv(chunk * param(P::rows), param(P::chunks))),
         to = let(floordiv((chunk + Scalar(int64_t(1))) * param(P::rows), param(P::chunks)));
    each(to - from, [&](Expr turn) {
      Expr row = let(from + turn), image = let(floordiv(row, param(P::oh)));
      Expr top = let((row - image * param(P::oh)) * param(P::step_y) - param(P::before_y));
      each(param(P::kh), [&](Expr ky) {
        Expr y = let(top + ky * param(P::apart_y));
        when(ge(y, number(0)) & (y < param(P::h)), [&] {
          for (int first = 0; first < v_.width; first += group())
            add_row(image * param(P::h) + y, row, ky, first);
        });
      });
    });
  }

 private:
  // Result columns whose element under a tap is inside of the image.
  struct Range {
    Expr from, to;
  };
  Range range_of(int k) {
    auto first_at_least = [&](Expr x) {  // the first column that is under a tap at x or behind it
      Expr offset = x - Scalar(int64_t(k)) * param(P::apart_x) + param(P::before_x);
      return max(floordiv(offset + param(P::step_x) - Scalar(int64_t(1)), param(P::step_x)), number(0));
    };
    return {let(first_at_least(number(0))), let(min(first_at_least(param(P::w)), param(P::ow)))};
  }
  // Number of taps that are summed at once: all, or groups of about equal size.
  int group() const {
    int groups = (v_.width + kTaps - 1) / kTaps;
    return (v_.width + groups - 1) / groups;
  }
  template <class F>
  void channels(F&& body) {
    vector(v_.tail ? min(param(P::channels) - channel0_, number(lanes())) : number(lanes()), body);
  }
  Expr place(Expr ky, Expr kx) const {
    return ((chunk_ * param(P::kh) + ky) * Scalar(int64_t(v_.width)) + kx) * param(P::channels) + channel0_;
  }
  // Adds the contribution of one row of the gradient to the sums of the taps (ky, first), (ky, first + 1), ...
  void add_row(Expr input_row, Expr grad_row, Expr ky, int first) {
    int taps = std::min(group(), v_.width - first);
    const Range &left = ranges_[size_t(first)], &right = ranges_[size_t(first + taps - 1)];
    Expr from = let(left.from), to = let(max(left.from, right.to));  // where all taps are inside of the image
    Expr x0 = let(input_row * param(P::w) * param(P::channels) + channel0_),
         g0 = let(grad_row * param(P::ow) * param(P::channels) + channel0_);
    channels([&](Expr lane) {
      std::vector<Expr> sums;
      for (int k = 0; k < taps; ++k) sums.push_back(variable(real(0)));
      auto grad = [&](Expr column) {
        return read(B::grad, g0 + column * param(P::channels) + lane, v_.dtype);
      };
      auto add = [&](int k, Expr column, Expr g) {
        Expr x =
            column * param(P::step_x) + Scalar(int64_t(first + k)) * param(P::apart_x) - param(P::before_x);
        Expr& sum = sums[size_t(k)];
        set(sum, call(Fn::fma, {g, read(B::input, x0 + x * param(P::channels) + lane, v_.dtype), sum}));
      };
      auto alone = [&](int k, Expr begin, Expr end) {
        each(max(end - begin, number(0)), [&](Expr turn) {
          Expr column = let(begin + turn);
          add(k, column, grad(column));
        });
      };
      for (int k = 0; k < taps; ++k)
        alone(k, ranges_[size_t(first + k)].from, min(from, ranges_[size_t(first + k)].to));
      each(to - from, [&](Expr turn) {
        Expr column = let(from + turn), g = let(grad(column));
        for (int k = 0; k < taps; ++k) add(k, column, g);
      });
      for (int k = 0; k < taps; ++k)
        alone(k, max(to, ranges_[size_t(first + k)].from), ranges_[size_t(first + k)].to);
      for (int k = 0; k < taps; ++k) {
        Expr at = place(ky, number(first + k)) + lane;
        store(B::sums, at, read(B::sums_in, at) + sums[size_t(k)]);
      }
    });
  }

  DepthwiseVariant v_;
  Expr chunk_, channel0_;
  std::vector<Range> ranges_;
};

TaskNest weight_nest(const DepthwiseVariant& v) {
  WeightTask t(v);
  int task_var = t.fresh();
  t.run(index(task_var));
  Nest n;
  n.name = "depthwise_weight";
  n.buffers = {{v.dtype}, {v.dtype}, {DType::Float32, true, "", false}, {DType::Float32, false, "", false}};
  n.params = P::count;
  n.task_var = task_var;
  n.tasks = param(P::tasks);
  n.cost = floordiv(param(P::rows), param(P::chunks)) * param(P::ow) * param(P::kh) *
           Scalar(int64_t(v.width * t.lanes()));
  n.body = std::move(t.block);
  return {std::move(n), {}, {{B::sums_in, B::sums}}};
}

DepthwiseVariant variant_of(const DepthwiseShape& s) {
  return {s.dtype, int(s.kw), s.c % codegen::vector_lanes() != 0};
}

std::array<int64_t, P::count> params_of(const DepthwiseShape& s) {
  std::array<int64_t, P::count> p{};
  p[P::channels] = s.c, p[P::rows] = s.n * s.oh;
  p[P::vectors] = (s.c + codegen::vector_lanes() - 1) / codegen::vector_lanes();
  p[P::chunks] = std::clamp<int64_t>(kTasks / p[P::vectors], 1, std::max<int64_t>(1, p[P::rows]));
  p[P::h] = s.h, p[P::w] = s.w, p[P::oh] = s.oh, p[P::ow] = s.ow, p[P::kh] = s.kh;
  p[P::step_y] = s.stride[0], p[P::step_x] = s.stride[1];
  p[P::before_y] = s.padding[0], p[P::before_x] = s.padding[1];
  p[P::apart_y] = s.dilation[0], p[P::apart_x] = s.dilation[1];
  p[P::tasks] = p[P::chunks] * p[P::vectors];
  return p;
}

// weight[channel, tap] = the sum of all chunks' sums[chunk, tap, channel].
template <class T>
void combine(const float* sums, int64_t chunks, int64_t taps, int64_t channels, T* weight) {
  constexpr int64_t kWorth = 4096;  // of a thread
  parallel_for(channels, std::max<int64_t>(1, kWorth / (taps * chunks)), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c)
      for (int64_t t = 0; t < taps; ++t) {
        float sum = sums[t * channels + c];
        for (int64_t k = 1; k < chunks; ++k) sum += sums[(k * taps + t) * channels + c];
        weight[c * taps + t] = T(sum);
      }
  });
}

}  // namespace

void depthwise_backward_weight(const DepthwiseShape& s, const void* input, const void* grad, void* weight) {
  auto p = params_of(s);
  int64_t taps = s.kh * s.kw;
  auto* sums =
      static_cast<float*>(scratch(Scratch::weights, size_t(p[P::chunks] * taps * s.c) * sizeof(float)));
  auto& kernel = task_kernel_of(variant_of(s), [](auto& v) { return weight_nest(v); });
  parallel_for(p[P::tasks], 1, [&](int64_t begin, int64_t end) {
    std::array<void*, B::count> buffers{const_cast<void*>(input), const_cast<void*>(grad), sums, sums};
    codegen::Status status;
    kernel.kernel->fn(buffers.data(), p.data(), begin, end, &status);
  });
  if (s.dtype == DType::Float32) combine(sums, p[P::chunks], taps, s.c, static_cast<float*>(weight));
  else combine(sums, p[P::chunks], taps, s.c, static_cast<BFloat16*>(weight));
}

}  // namespace facula::device::cpu
