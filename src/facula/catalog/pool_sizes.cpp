// Pooling of one dimension, to a given size and by p-norms: by the pools of two and three dimensions.
#include <cmath>
#include <functional>

#include "facula/catalog/widened.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"
#include "facula/sym/run_time.h"

using namespace facula;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {

const SymInt kOne(int64_t(1)), kZero(int64_t(0));

// f(), whose errors bear the name of the operator that the user called.
template <class F>
auto named(const Call& c, F&& f) {
  try {
    return f();
  } catch (const Error& e) { throw e.from(c.name()); }
}
void check_rank(const Call& c, const Tensor& self, int n) {
  runtime_check(self.dim() == n + 1 || self.dim() == n + 2, c.name())
      << "Expected " << n + 1 << "D or " << n + 2 << "D input, got " << to_string(self.sizes());
}
// A setting of one dimension as one of a plane of one row, which has `of_rows` for it; one of none stays.
Dims lifted(SymSpan one, const SymInt& of_rows) { return one.empty() ? Dims() : Dims{of_rows, one[0]}; }
Dims lifted(const Call& c, const char* setting, const SymInt& of_rows) {
  auto one = c.ints(setting);
  runtime_check(one.size() <= 1, c.name())
      << "argument '" << setting << "' should contain one int (got " << one.size() << ")";
  return lifted(one, of_rows);
}
Tensor as_plane(const Tensor& self) { return unsqueeze(self, -2); }
Tensor as_line(const Tensor& plane) { return squeeze(plane, Sizes{int64_t(-2)}); }

Tensor max_of_lines(const Call& c, const Tensor& self, Tensor* indices) {
  check_rank(c, self, 1);
  runtime_check(self.size(-1) != kZero && self.size(-2) != kZero, c.name())
      << "only the batch may be empty, got " << to_string(self.sizes());
  Dims kernel = lifted(c, "kernel_size", kOne), stride = lifted(c, "stride", kOne),
       padding = lifted(c, "padding", kZero), dilation = lifted(c, "dilation", kOne);
  bool ceil = c.flag("ceil_mode");
  if (!indices) return as_line(max_pool2d(as_plane(self), kernel, stride, padding, dilation, ceil));
  auto [best, at] = max_pool2d_with_indices(as_plane(self), kernel, stride, padding, dilation, ceil);
  *indices = as_line(at);
  return as_line(best);
}

// The sizes to reach in the last n dimensions.
Dims target(const Call& c, const Tensor& self, int n) {
  check_rank(c, self, n);
  Dims sizes = c.ints("output_size", n);
  SymInt count = kOne;
  for (auto& s : sizes) {
    runtime_check(sym::may_be_at_most(kZero, s), c.name())
        << "elements of output_size must be greater than or equal to 0 but received "
        << to_string(SymSpan(sizes));
    count *= s;
  }
  runtime_check(sym::may_be_less(count, SymInt(int64_t(1) << 40)), c.name())
      << "a result of " << to_string(SymSpan(sizes)) << " windows does not fit into memory";
  return sizes;
}
// No windows at all, of the input: a result whose gradient is 0.
Tensor no_windows(const Tensor& self, SymSpan to) {
  Dims sizes(self.sizes().first(self.sizes().size() - to.size()));
  for (auto& size : to) sizes.push_back(size);
  return reshape(narrow(self, -1, int64_t(0), int64_t(0)), sizes);
}
bool is_empty(SymSpan to) {
  return std::ranges::any_of(to, [](SymInt s) { return sym::must_equal(s, kZero); });
}
bool is_known_later(SymSpan to) { return std::ranges::any_of(to, sym::is_run_time); }
void check_pooled(const Call& c, const Tensor& self, int n) {
  for (auto& s : self.sizes().last(size_t(n)))
    runtime_check(s != kZero, c.name())
        << "Expected input to have non-zero size for non-batch dimensions, but input has sizes "
        << to_string(self.sizes());
}

Tensor adaptive_mean(const Call& c, const Tensor& self, int n) {
  check_rank(c, self, n);
  Dims to = target(c, self, n), from(self.sizes().last(size_t(n)));
  bool whole = std::ranges::all_of(to, [](SymInt s) { return sym::must_equal(s, kOne); });
  supported_check(is_floating(self.dtype()) || (whole && is_complex(self.dtype())), c.name())
      << "not implemented for '" << self.dtype() << "'";
  if (whole) {
    Ints dims;
    for (int k = 0; k < n; ++k) dims.push_back(self.dim() - n + k);
    return mean(self, dims, true);
  }
  check_pooled(c, self, n);
  if (is_empty(to)) return no_windows(self, to);
  if (n == 3) return _adaptive_avg_pool3d(self, to);
  bool even = !is_known_later(to) && !sym::must_equal(self.numel(), kZero);
  Dims kernel;
  for (size_t k = 0; k < to.size() && even; ++k) {
    even = from[k] % to[k] == kZero;
    if (even) kernel.push_back(from[k] / to[k]);
  }
  Tensor x = n == 1 ? as_plane(self) : self;
  if (n == 1) kernel = lifted(kernel, kOne), to = lifted(to, kOne);
  Tensor y = even ? avg_pool2d(x, kernel) : _adaptive_avg_pool2d(x, to);
  return n == 1 ? as_line(y) : y;
}
std::tuple<Tensor, Tensor> adaptive_max(const Call& c, const Tensor& self, int n) {
  Dims to = target(c, self, n);
  check_pooled(c, self, n + 1);
  if (is_empty(to)) {
    Tensor none = no_windows(self, to);
    return {none, zeros(none.sizes(), DType::Int64, self.device())};
  }
  if (n == 3) return _adaptive_max_pool3d(self, to);
  if (n == 2) return _adaptive_max_pool2d(self, to);
  auto [best, at] = _adaptive_max_pool2d(as_plane(self), lifted(to, kOne));
  return {as_line(best), as_line(at)};
}

// Norms of infinite order: the largest magnitude of each window, or the smallest.
Tensor extreme(const Tensor& self, double order, const std::function<Tensor(const Tensor&)>& largest) {
  Tensor x = abs(self);
  return order > 0 ? largest(x) : neg(largest(neg(x)));
}
// The root of sums of powers, of their means over windows.
Tensor root(const Tensor& means, const Scalar& order, SymSpan kernel, int n) {
  SymInt count = kOne;
  for (int k = 0; k < n; ++k) count *= kernel[kernel.size() == 1 ? 0 : size_t(k)];
  Tensor sums = mul(mul(sign(means), relu(abs(means))), count);
  return pow(sums, 1.0 / order.to_double());
}
// The p-norm of each window of n dimensions, rounded once; an order that the dtype does not hold is infinite.
template <class Largest, class Mean>
Tensor norms(const Call& c, const Tensor& self, const Scalar& order, SymSpan kernel, int n, Largest&& largest,
             Mean&& mean) {
  return named(c, [&] {
    double p = order.to_double();
    value_check(p != 0, c.name()) << "norm_type must not be 0: the root of a sum of powers is its inverse";
    Tensor x = catalog::wide(self);
    if (std::isinf(p) || (x.dtype() == DType::Float32 && std::isinf(float(p))))
      return extreme(self, p, largest);
    Tensor y = root(mean(pow(x, order)), order, kernel, n);
    return catalog::is_rounded(self) ? to_dtype(y, self.dtype()) : y;
  });
}
// Declares a pool of p-norms.
Definer pool_of_norms(const char* schema, const char* doc) {
  return define(schema).doc(doc).bind(hidden).check([](const Call& c) {
    if (catalog::is_rounded(c.tensor("self"))) must_fit(c, "norm_type");
  });
}

}  // namespace

FACULA_FAMILY(pool_sizes) {
  define(
      "max_pool1d_with_indices(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=0, int[1] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)")
      .python(
          "max_pool1d_with_indices(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False)")
      .doc("Largest value of each window of [N, C, L] or [C, L], and its position.")
      .bind(function)
      .procedure([](const Call& c, const Tensor& self) {
        Tensor at, best = named(c, [&] { return max_of_lines(c, self, &at); });
        return std::tuple(best, at);
      })
      .samples({"self![2, 3, 7], kernel_size=[2]", "self![3, 7], kernel_size=[3], stride=[2], padding=[1]"});
  define(
      "max_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=0, int[1] dilation=1, bool ceil_mode=False) -> Tensor")
      .python(
          "max_pool1d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False)")
      .doc("Largest value of each window of [N, C, L] or [C, L]; stride defaults to the kernel's size.")
      .bind(function)
      .procedure([](const Call& c, const Tensor& self) {
        return named(c, [&] { return max_of_lines(c, self, nullptr); });
      })
      .samples({"self![2, 3, 7], kernel_size=[2]", "self![3, 7], kernel_size=[3], stride=[2], padding=[1]"});
  define(
      "avg_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=0, bool ceil_mode=False, bool count_include_pad=True) -> Tensor")
      .python(
          "avg_pool1d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True)")
      .doc("Mean of each window of [N, C, L] or [C, L].")
      .bind(function)
      .procedure([](const Call& c, const Tensor& self) {
        return named(c, [&] {
          check_rank(c, self, 1);
          return as_line(avg_pool2d(as_plane(self), lifted(c, "kernel_size", kOne), lifted(c, "stride", kOne),
                                    lifted(c, "padding", kZero), c.flag("ceil_mode"),
                                    c.flag("count_include_pad")));
        });
      })
      .samples({"self[2, 3, 7], kernel_size=[2]", "self[3, 7], kernel_size=[3], stride=[2], padding=[1]"});
  pool_of_norms(
      "lp_pool1d(Tensor self, Scalar norm_type, int[1] kernel_size, int[1] stride=[], bool ceil_mode=False) -> Tensor",
      "p-norm of each window of [N, C, L] or [C, L].")
      .python("lp_pool1d(input, norm_type, kernel_size, stride=None, ceil_mode=False)",
              "check_order('lp_pool1d', norm_type)")
      .composite([](const Call& c, const Tensor& self, const Scalar& order, SymSpan kernel, SymSpan stride,
                    bool ceil) {
        return norms(
            c, self, order, kernel, 1,
            [&](const Tensor& x) { return max_pool1d(x, kernel, stride, kZero, kOne, ceil); },
            [&](const Tensor& x) { return avg_pool1d(x, kernel, stride, kZero, ceil); });
      })
      .samples({"self[2, 3, 7](0.1, 2), norm_type=2, kernel_size=[2]"});
  pool_of_norms(
      "lp_pool2d(Tensor self, Scalar norm_type, int[2] kernel_size, int[2] stride=[], bool ceil_mode=False) -> Tensor",
      "p-norm of each window of [N, C, H, W] or [C, H, W].")
      .python("lp_pool2d(input, norm_type, kernel_size, stride=None, ceil_mode=False)",
              "check_order('lp_pool2d', norm_type)")
      .grad_name("Pow")
      .composite([](const Call& c, const Tensor& self, const Scalar& order, SymSpan kernel, SymSpan stride,
                    bool ceil) {
        return norms(
            c, self, order, kernel, 2,
            [&](const Tensor& x) { return max_pool2d(x, kernel, stride, kZero, kOne, ceil); },
            [&](const Tensor& x) { return avg_pool2d(x, kernel, stride, kZero, ceil); });
      })
      .samples({"self[1, 2, 5, 4](0.1, 2), norm_type=2, kernel_size=[2]",
                "self[2, 5, 4](0.1, 2), norm_type=1.5, kernel_size=[2, 3], stride=[1]"});
  pool_of_norms(
      "lp_pool3d(Tensor self, Scalar norm_type, int[3] kernel_size, int[3] stride=[], bool ceil_mode=False) -> Tensor",
      "p-norm of each window of [N, C, D, H, W] or [C, D, H, W].")
      .python("lp_pool3d(input, norm_type, kernel_size, stride=None, ceil_mode=False)",
              "check_order('lp_pool3d', norm_type)")
      .composite([](const Call& c, const Tensor& self, const Scalar& order, SymSpan kernel, SymSpan stride,
                    bool ceil) {
        return norms(
            c, self, order, kernel, 3,
            [&](const Tensor& x) { return max_pool3d(x, kernel, stride, kZero, kOne, ceil); },
            [&](const Tensor& x) { return avg_pool3d(x, kernel, stride, kZero, ceil); });
      })
      .samples({"self[1, 2, 3, 4, 2](0.1, 2), norm_type=2, kernel_size=[2]"});
  define("adaptive_avg_pool1d(Tensor self, SymInt[1] output_size) -> Tensor")
      .doc("Means of `output_size` windows that cover [N, C, L] or [C, L] evenly.")
      .bind(function | nn_functional)
      .procedure([](const Call& c, const Tensor& self) { return adaptive_mean(c, self, 1); })
      .samples({"self[2, 3, 7], output_size=[3]", "self[3, 6], output_size=[2]"});
  define("adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor")
      .python("adaptive_avg_pool2d(input, output_size)", "output_size = given_sizes(input, output_size, 2)")
      .doc("Means of `output_size` windows that cover [N, C, H, W] or [C, H, W] evenly.")
      .bind(hidden)
      .procedure([](const Call& c, const Tensor& self) { return adaptive_mean(c, self, 2); })
      .samples({"self[2, 3, 5, 7], output_size=[2, 3]", "self[3, 4, 6], output_size=[2, 3]",
                "self[2, 3, 4, 4], output_size=[1, 1]"});
  define("adaptive_avg_pool3d(Tensor self, SymInt[3] output_size) -> Tensor")
      .python("adaptive_avg_pool3d(input, output_size)", "output_size = given_sizes(input, output_size, 3)")
      .doc("Means of `output_size` windows that cover [N, C, D, H, W] or [C, D, H, W] evenly.")
      .autocast(Autocast::fp32)
      .bind(hidden)
      .procedure([](const Call& c, const Tensor& self) { return adaptive_mean(c, self, 3); })
      .samples({"self[2, 2, 4, 5, 3], output_size=[3, 2, 2]"});
  define("adaptive_max_pool1d(Tensor self, SymInt[1] output_size) -> (Tensor, Tensor)")
      .python("adaptive_max_pool1d(input, output_size, return_indices=False)")
      .python("adaptive_max_pool1d_with_indices(input, output_size, return_indices=False)")
      .doc(
          "Largest values of `output_size` windows that cover [N, C, L] or [C, L] evenly, and their positions.")
      .bind(function)
      .procedure([](const Call& c, const Tensor& self) { return adaptive_max(c, self, 1); })
      .samples({"self![2, 3, 7], output_size=[3]"});
  define("adaptive_max_pool2d(Tensor self, SymInt[2] output_size) -> (Tensor, Tensor)")
      .python("adaptive_max_pool2d(input, output_size, return_indices=False)",
              "output_size = given_sizes(input, output_size, 2)")
      .python("adaptive_max_pool2d_with_indices(input, output_size, return_indices=False)",
              "output_size = given_sizes(input, output_size, 2)")
      .doc(
          "Largest values of `output_size` windows that cover [N, C, H, W] or [C, H, W] evenly, and their positions.")
      .bind(hidden)
      .procedure([](const Call& c, const Tensor& self) { return adaptive_max(c, self, 2); })
      .samples({"self![2, 3, 5, 7], output_size=[2, 3]"});
  define("adaptive_max_pool3d(Tensor self, SymInt[3] output_size) -> (Tensor, Tensor)")
      .python("adaptive_max_pool3d(input, output_size, return_indices=False)",
              "output_size = given_sizes(input, output_size, 3)")
      .python("adaptive_max_pool3d_with_indices(input, output_size, return_indices=False)",
              "output_size = given_sizes(input, output_size, 3)")
      .doc(
          "Largest values of `output_size` windows that cover [N, C, D, H, W] or [C, D, H, W] evenly, and their positions.")
      .autocast(Autocast::fp32)
      .bind(hidden)
      .procedure([](const Call& c, const Tensor& self) { return adaptive_max(c, self, 3); })
      .samples({"self![1, 2, 4, 5, 3], output_size=[3, 2, 2]"});
}
