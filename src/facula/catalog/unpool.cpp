// Inverses of max pooling, and pooling over windows at random places.
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {

// Adds a missing batch dimension and flattens the planes.
Tensor unpooled(const Tensor& self, const Tensor& indices, SymSpan size) {
  int n = int(size.size());
  std::string name = "max_unpool" + std::to_string(n) + "d";
  runtime_check(indices.dtype() == DType::Int64, name)
      << "elements in indices should be type int64 but got: " << indices.dtype();
  runtime_check(self.dim() == n + 1 || self.dim() == n + 2, name)
      << "input to max_unpooling" << n << "d should be a " << n + 1 << "d or " << n + 2
      << "d tensor, but got shape " << to_string(self.sizes());
  runtime_check(std::ranges::equal(self.sizes(), indices.sizes()), name)
      << "expected shape of indices to be same as that of the input tensor " << to_string(self.sizes())
      << " but got " << to_string(indices.sizes());
  size_t leading = self.sizes().size() - size_t(n);
  Dims out(self.sizes().first(leading)), lines(self.sizes().first(leading));
  SymInt total = int64_t(1);
  for (SymInt s : size) {
    runtime_check(s > SymInt(int64_t(0)), name) << "output_size must be positive, got " << to_string(size);
    out.push_back(s);
    total *= s;
  }
  for (size_t k = leading - 1; k < self.sizes().size(); ++k)
    runtime_check(self.sizes()[k] > SymInt(int64_t(0)), name)
        << "expected input to have non-zero size for non-batch dimensions, but got "
        << to_string(self.sizes());
  Dims planes = lines;
  planes.push_back(total);
  lines.push_back(int64_t(1));
  for (size_t k = leading; k < self.sizes().size(); ++k) lines.back() *= self.sizes()[k];
  return view(_unpool(reshape(self, lines), reshape(indices, lines), planes), out);
}

// The size that was pooled: as told, within a stride of the one that the windows cover.
Dims unpooled_size(const Call& c, int n) {
  std::string name = "max_unpool" + std::to_string(n) + "d";
  Dims kernel = c.ints("kernel_size", n), padding = c.ints("padding", n);
  Dims stride = c.has("stride") && !c.ints("stride").empty() ? c.ints("stride", n) : kernel, low, high;
  Dims of_self(c.sizes("self")), size;
  index_check(int(of_self.size()) >= n, name)
      << "expected at least " << n << " dimensions, got shape " << to_string(c.sizes("self"));
  for (size_t d = 0; d < size_t(n); ++d) {
    SymInt covered = (of_self[of_self.size() - size_t(n) + d] - SymInt(int64_t(1))) * stride[d] + kernel[d] -
                     SymInt(int64_t(2)) * padding[d];
    size.push_back(covered);
    low.push_back(covered - stride[d]);
    high.push_back(covered + stride[d]);
  }
  if (c.has("output_size")) {
    SymSpan given = c.ints("output_size");
    value_check(int(given.size()) == n || int(given.size()) == n + 2, name)
        << "output_size should be a sequence containing " << n << " or " << n + 2 << " elements, but it has "
        << given.size();
    size = Dims(given.last(size_t(n)));
  }
  for (size_t d = 0; d < size_t(n); ++d)
    value_check(low[d] < size[d] && size[d] < high[d], name)
        << "invalid output_size " << to_string(SymSpan(size)) << " (dim " << d << " must be between "
        << low[d] << " and " << high[d] << ")";
  for (SymInt s : size)
    value_check(!(s < SymInt(int64_t(0))), name)
        << "output_size must contain non-negative sizes, but got " << to_string(SymSpan(size));
  return size;
}

// The starts of `out` windows along a dimension of `in` elements, shifted by a random u in [0, 1).
Tensor random_starts(const Tensor& u, int64_t in, int64_t out, int64_t kernel) {
  Tensor last = full(Dims{}, Scalar(in - kernel), DType::Int64);
  if (out == 1)
    return expand(view(last, Sizes{int64_t(1)}), [&] {
      Dims s(u.sizes());
      s.push_back(int64_t(1));
      return s;
    }());
  Tensor step = full(Dims{}, double(in - kernel) / double(out - 1), u.dtype()), k = arange(Scalar(out - 1)),
         x = unsqueeze(u, -1);
  Tensor at = sub(to_dtype(mul(add(to_dtype(k, u.dtype()), x), step), DType::Int64),
                  to_dtype(mul(x, step), DType::Int64));
  Dims one(u.sizes());
  one.push_back(int64_t(1));
  return cat(std::vector<Tensor>{at, expand(view(last, Sizes{int64_t(1)}), one)}, -1);
}

// Refuses operands of a fractional pool that do not fit; returns the random numbers [N, C, dimensions] of its planes.
Tensor checked_samples(const Call& c, const Tensor& self, SymSpan kernel, SymSpan size,
                       const std::optional<Tensor>& given) {
  int n = int(kernel.size());
  runtime_check(n > 0 && size.size() == kernel.size(), c.name())
      << "expected a number of kernel_size and of output_size for each dimension, got " << to_string(kernel)
      << " and " << to_string(size);
  runtime_check(self.dim() == n + 1 || self.dim() == n + 2, c.name())
      << "expected " << n + 1 << "D or " << n + 2 << "D tensor, but got shape " << to_string(self.sizes());
  Dims planes{self.dim() == n + 1 ? SymInt(int64_t(1)) : self.size(0), self.size(-n - 1), int64_t(n)};
  Tensor samples = given ? *given : rand(planes, nullptr, self.dtype());
  runtime_check(samples.dim() == 3 && samples.dtype() == self.dtype() &&
                    samples.size(2) == SymInt(int64_t(n)),
                c.name())
      << "expected _random_samples [N, C, " << n << "] of dtype " << self.dtype() << ", got "
      << samples.dtype() << " of shape " << to_string(samples.sizes());
  for (int k = 0; k <= n; ++k)
    runtime_check(self.size(-1 - k) > SymInt(int64_t(0)), c.name())
        << "Expected input to have non-zero size for non-batch dimensions, but got "
        << to_string(self.sizes());
  Dims batch(self.sizes());
  if (self.dim() == n + 1) batch.insert(0, SymInt(int64_t(1)));
  runtime_check(samples.size(0) >= batch[0] && samples.size(1) == batch[1], c.name())
      << "expected _random_samples for each plane of " << to_string(SymSpan(batch)) << ", got "
      << to_string(samples.sizes());
  return samples;
}

// The largest element of the windows that begin at `starts` [*, outputs] of each dimension, and its place in the plane.
std::tuple<Tensor, Tensor> fractional(const Call& c, const Tensor& self, SymSpan kernel, SymSpan size,
                                      const std::optional<Tensor>& given) {
  int n = int(kernel.size());
  Tensor samples = checked_samples(c, self, kernel, size, given);
  Tensor x = self.dim() == n + 1 ? unsqueeze(self, 0) : self;
  Dims lines{x.size(0), x.size(1), int64_t(1)}, out{x.size(0), x.size(1)};
  // The place of each element of each window, [N, C, out..., kernel...].
  Tensor at;
  for (int k = 0; k < n; ++k) {
    int64_t in = x.size(2 + k).guard_int(), o = size[size_t(k)].guard_int(),
            w = kernel[size_t(k)].guard_int();
    runtime_check(w > 0 && o > 0 && o + w - 1 <= in, c.name())
        << "pool of " << w << " elements in dimension " << k << " is too large relative to input of " << in
        << " and output of " << o;
    out.push_back(o);
    lines[2] *= x.size(2 + k);
    // In planes PyTorch takes the first number for the last dimension.
    Tensor begin = random_starts(contiguous(select(narrow(samples, 0, int64_t(0), x.size(0)), 2,
                                                   int64_t(n == 2 ? 1 - k : k))),
                                 in, o, w);
    Dims shape{x.size(0), x.size(1)}, step;
    for (int j = 0; j < n; ++j) shape.push_back(j == k ? SymInt(o) : SymInt(int64_t(1)));
    for (int j = 0; j < n; ++j)
      shape.push_back(int64_t(1)), step.push_back(j == k ? SymInt(w) : SymInt(int64_t(1)));
    Tensor place = add(view(begin, shape), view(arange(Scalar(w)), step));
    at = at.defined() ? add(mul(at, in), place) : place;
  }
  Dims windows = out;
  windows.push_back(int64_t(1));
  for (SymInt w : kernel) windows.back() *= w;
  Dims flat{x.size(0), x.size(1), product(SymSpan(windows).subspan(2))},
      each{x.size(0), x.size(1), product(SymSpan(out).subspan(2))};
  Tensor places = reshape(at, flat), line = reshape(x, lines);
  Tensor values = view(gather(line, 2, places), windows);
  // A NaN wins, of several the last.
  Tensor count = arange(Scalar(values.size(-1).guard_int())),
         none = full(Dims{}, Scalar(int64_t(-1)), DType::Int64);
  Tensor last_nan = amax(where(isnan(values), count, none), Sizes{int64_t(-1)}, true);
  Tensor best = where(ge(last_nan, 0), last_nan, argmax(values, -1, true));
  Tensor where_best = squeeze(gather(view(places, windows), -1, best), Sizes{int64_t(-1)});
  Tensor y = view(gather(line, 2, reshape(where_best, each)), out);
  if (self.dim() == n + 1) return {squeeze(y, Sizes{int64_t(0)}), squeeze(where_best, Sizes{int64_t(0)})};
  return {y, where_best};
}

}  // namespace

FACULA_FAMILY(unpool) {
  define("_unpool(Tensor self, Tensor index, SymInt[] size) -> Tensor")
      .doc(
          "Zeros of `size` with the elements of self at index along the last dimension, of several at one place the last. As in PyTorch "
          "the gradient goes to all of them, and a direction comes from the last.")
      .bind(hidden)
      .checks()
      .composite([](const Tensor& self, const Tensor& index, SymSpan size) {
        return scatter(zeros(size, self.dtype()), -1, index, self);
      })
      // All elements that share a place get its gradient, although the value comes from the last of them.
      .transposed_by("_unpool_backward")
      .undifferenced("of several elements at one place the gradient goes to all")
      .samples({"self[2, 3], index<4>[2, 3], size=[2, 4]"});
  define("_unpool_backward(Tensor grad, Tensor index) -> Tensor")
      .doc("The gradient of _unpool, whose own is _unpool.")
      .bind(hidden)
      .checks()
      .composite([](const Tensor& grad, const Tensor& index) { return gather(grad, -1, index); })
      .undifferenced("of several elements at one place the last is the direction")
      .samples({"grad[2, 4], index<4>[2, 3]"});
  define("max_unpool1d(Tensor self, Tensor indices, SymInt[1] output_size) -> Tensor")
      .doc(
          "Lines of output_size, 0 but for the elements of self, each at its index: the inverse of max_pool1d.")
      .autocast(Autocast::fp32)
      .bind(hidden)
      .procedure([](const Tensor& self, const Tensor& indices, SymSpan size) {
        return unpooled(self, indices, size);
      })
      .samples({"self[1, 1, 1], indices<1>[1, 1, 1], output_size=[2]"});
  define("max_unpool2d(Tensor self, Tensor indices, SymInt[2] output_size) -> Tensor")
      .grad_name("MaxUnpool2D")
      .doc(
          "Planes of output_size, 0 but for the elements of self, each at its index: the inverse of max_pool2d.")
      .autocast(Autocast::fp32)
      .bind(hidden)
      .procedure([](const Tensor& self, const Tensor& indices, SymSpan size) {
        return unpooled(self, indices, size);
      })
      .samples({"self[1, 1, 1, 1], indices<1>[1, 1, 1, 1], output_size=[2, 2]"});
  define(
      "max_unpool3d(Tensor self, Tensor indices, SymInt[3] output_size, int[3] stride=[], int[3] padding=0) -> Tensor")
      .grad_name("MaxUnpool3D")
      .doc(
          "Volumes of output_size, 0 but for the elements of self, each at its index: the inverse of max_pool3d.")
      .autocast(Autocast::fp32)
      .bind(hidden)
      .procedure([](const Call&, const Tensor& self, const Tensor& indices, SymSpan size) {
        return unpooled(self, indices, size);
      })
      .samples(
          {"self[1, 1, 1, 1, 1], indices<1>[1, 1, 1, 1, 1], output_size=[2, 2, 1], stride=[1, 1, 1], padding=[0, 0, 0]"});
  define(
      "_max_unpool1d(Tensor self, Tensor indices, SymInt[1] kernel_size, SymInt[1]? stride=None, SymInt[1] padding=0, SymInt[]? output_size=None) -> Tensor")
      .grad_name("Squeeze", 1)
      .python("max_unpool1d(input, indices, kernel_size, stride=None, padding=0, output_size=None)")
      .doc(
          "Lines, 0 but for the elements of self, each at its index: the inverse of max_pool1d, of output_size or of the size that the windows cover.")
      .bind(hidden)
      .autocast(Autocast::fp32)
      .procedure([](const Call& c, const Tensor& self, const Tensor& indices) {
        return unpooled(self, indices, unpooled_size(c, 1));
      })
      .samples({"self[1, 1, 1], indices<1>[1, 1, 1], kernel_size=2"});
  define(
      "_max_unpool2d(Tensor self, Tensor indices, SymInt[2] kernel_size, SymInt[2]? stride=None, SymInt[2] padding=0, SymInt[]? output_size=None) -> Tensor")
      .grad_name("MaxUnpool2D")
      .python("max_unpool2d(input, indices, kernel_size, stride=None, padding=0, output_size=None)")
      .doc(
          "Planes, 0 but for the elements of self, each at its index: the inverse of max_pool2d, of output_size or of the size that the windows cover.")
      .bind(hidden)
      .autocast(Autocast::fp32)
      .procedure([](const Call& c, const Tensor& self, const Tensor& indices) {
        return unpooled(self, indices, unpooled_size(c, 2));
      })
      .samples({"self[1, 1, 1, 1], indices<1>[1, 1, 1, 1], kernel_size=2"});
  define(
      "_max_unpool3d(Tensor self, Tensor indices, SymInt[3] kernel_size, SymInt[3]? stride=None, SymInt[3] padding=0, SymInt[]? output_size=None) -> Tensor")
      .grad_name("MaxUnpool3D")
      .python("max_unpool3d(input, indices, kernel_size, stride=None, padding=0, output_size=None)")
      .doc(
          "Volumes, 0 but for the elements of self, each at its index: the inverse of max_pool3d, of output_size or of the size that the windows cover.")
      .bind(hidden)
      .autocast(Autocast::fp32)
      .procedure([](const Call& c, const Tensor& self, const Tensor& indices) {
        return unpooled(self, indices, unpooled_size(c, 3));
      })
      .samples({"self[1, 1, 1, 1, 1], indices<1>[1, 1, 1, 1, 1], kernel_size=2"});
  define(
      "fractional_max_pool2d(Tensor self, int[2] kernel_size, int[2] output_size, Tensor? random_samples=None) -> (Tensor, Tensor)")
      .python(
          "fractional_max_pool2d(input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None)",
          "output_size = fractional_size(input, 2, output_size, output_ratio)")
      .python(
          "fractional_max_pool2d_with_indices(input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None)",
          "output_size = fractional_size(input, 2, output_size, output_ratio)")
      .also("random_samples", "_random_samples")
      .doc(
          "The largest element, and its place in the plane, of windows that are spread over it at random.  Graham, 2014.")
      .autocast(Autocast::fp32)
      .bind(hidden)
      .draws()
      .dtypes(d::floating)
      .procedure([](const Call& c, const Tensor& self, Dims kernel, Dims size,
                    std::optional<Tensor> samples) { return fractional(c, self, kernel, size, samples); })
      .samples({"self[2, 3, 6, 6], kernel_size=[2, 2], output_size=[3, 3], random_samples[2, 3, 2](0, 1)"});
  define(
      "fractional_max_pool3d(Tensor self, int[3] kernel_size, int[3] output_size, Tensor? random_samples=None) -> (Tensor, Tensor)")
      .python(
          "fractional_max_pool3d(input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None)",
          "output_size = fractional_size(input, 3, output_size, output_ratio)")
      .python(
          "fractional_max_pool3d_with_indices(input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None)",
          "output_size = fractional_size(input, 3, output_size, output_ratio)")
      .also("random_samples", "_random_samples")
      .doc(
          "The largest element, and its place in the volume, of windows that are spread over it at random.  Graham, 2014.")
      .autocast(Autocast::fp32)
      .bind(hidden)
      .draws()
      .dtypes(d::floating)
      .procedure([](const Call& c, const Tensor& self, Dims kernel, Dims size,
                    std::optional<Tensor> samples) { return fractional(c, self, kernel, size, samples); })
      .samples(
          {"self[1, 2, 4, 4, 4], kernel_size=[2, 2, 2], output_size=[2, 2, 2], random_samples[1, 2, 3](0, 1)"});
}
