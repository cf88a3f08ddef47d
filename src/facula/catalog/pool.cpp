// Pooling over windows.
#include "facula/catalog/selected.h"
#include "facula/loop/monoid.h"
#include "facula/op/batched.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {

// Kernel, stride, padding and dilation of the two last dimensions.
struct Window {
  int64_t kernel[2], stride[2], padding[2], dilation[2];
  bool ceil = false;
};

Window window(const Call& c) {
  Window w;
  auto pair = [&](const char* arg, int64_t* to) {
    Dims p = c.ints(arg, 2);
    for (int k = 0; k < 2; ++k) to[k] = p[size_t(k)].guard_int();
  };
  pair("kernel_size", w.kernel);
  if (c.has("stride") && !c.ints("stride").empty()) pair("stride", w.stride);
  else std::copy(w.kernel, w.kernel + 2, w.stride);
  pair("padding", w.padding);
  if (c.op().schema.index_of("dilation") >= 0) pair("dilation", w.dilation);
  else w.dilation[0] = w.dilation[1] = 1;
  w.ceil = c.flag("ceil_mode");
  for (int k = 0; k < 2; ++k) {
    runtime_check(w.kernel[k] > 0 && w.stride[k] > 0 && w.dilation[k] > 0, c.name())
        << "kernel size, stride and dilation must be greater than zero";
    for (int64_t given : {w.kernel[k], w.stride[k], w.dilation[k]})
      runtime_check(given < int64_t(1) << 31, c.name())
          << "kernel size, stride and dilation must be below 2^31, got " << given;
    runtime_check(w.padding[k] >= 0 && w.padding[k] <= w.kernel[k] / 2, c.name())
        << "pad should be at most half of kernel size, but got pad=" << w.padding[k]
        << " and kernel_size=" << w.kernel[k];
  }
  return w;
}

SymInt pooled(SymInt n, const Window& w, int k) {
  SymInt span =
      n + SymInt(2 * w.padding[k] - w.dilation[k] * (w.kernel[k] - 1) - 1 + (w.ceil ? w.stride[k] - 1 : 0));
  SymInt out = span / SymInt(w.stride[k]) + SymInt(int64_t(1));
  if (w.ceil && (out - SymInt(int64_t(1))) * SymInt(w.stride[k]) >= n + SymInt(w.padding[k]))
    out -= SymInt(int64_t(1));
  return out;
}

Dims pooled_sizes(const Call& c, const char* arg = "self") {
  auto sizes = c.sizes(arg);
  index_check(!sizes.empty(), c.name())
      << "expected 3D (unbatched) or 4D (batched) input [N, C, H, W], got shape []";
  bool nothing = false;
  for (size_t k = sizes.size() == 4; k < sizes.size(); ++k) nothing |= sizes[k] == SymInt(int64_t(0));
  runtime_check((sizes.size() == 3 || sizes.size() == 4) && !nothing, c.name())
      << "expected 3D (unbatched) or 4D (batched) input [N, C, H, W], in which only N may be 0, got shape "
      << to_string(sizes);
  Window w = window(c);
  Dims out(sizes);
  for (int k = 0; k < 2; ++k) {
    auto& s = out[sizes.size() - 2 + size_t(k)];
    s = pooled(s, w, k);
    runtime_check(s > SymInt(int64_t(0)), c.name())
        << "given input size " << to_string(sizes)
        << ", the output size is too small: " << to_string(SymSpan(out));
  }
  return out;
}

// The position along input dimension k of step b of window o, and whether it is inside.
struct Tap {
  Expr at, inside;
};
Tap tap(const Window& w, int k, Expr o, Expr b, SymInt n) {
  Expr at = o * Scalar(w.stride[k]) + b * Scalar(w.dilation[k]) - Scalar(w.padding[k]);
  if (w.padding[k] == 0 && !w.ceil) return {at, constant(true, DType::Bool)};
  Expr limit = loop::size(n);
  return {at, (at >= Scalar(int64_t(0))) & (at < limit)};
}

// Steps of the window are numbered row by row: their number is what is remembered of the largest element. A
// byte does for most windows.
DType tap_type(const Window& w) {
  return w.kernel[0] < 256 && w.kernel[0] * w.kernel[1] < 256 ? DType::UInt8 : DType::Int64;
}
// The step b of dimension k of a tap.
Expr step(const Window& w, int k, Expr tap) {
  return k ? remainder(tap, Scalar(w.kernel[1])) : floordiv(tap, Scalar(w.kernel[1]));
}

// Reduction over a window that tells value and tap.
std::vector<Expr> best(const LoopCall& c, const Index& i) {
  Window w = window(c);
  auto sizes = c.sizes("self");
  size_t r = sizes.size() - 2;
  DType t = compute_type(c.dtype("self"));
  Expr lowest = identity(monoid::argmax_pool, t)[0];
  Domain steps = domain(c, Dims{SymInt(w.kernel[0]), SymInt(w.kernel[1])});
  Expr found = reduce(monoid::argmax_pool, steps, [&](const Index& b) {
    Tap y = tap(w, 0, i[r], b[0], sizes[r]), x = tap(w, 1, i[r + 1], b[1], sizes[r + 1]);
    Index j = i;
    j[r] = y.at;
    j[r + 1] = x.at;
    return std::vector<Expr>{select(y.inside & x.inside, c.load("self", j), lowest),
                             cast(steps.position(), tap_type(w))};
  });
  Expr value = part(found, 0), at = part(found, 1);
  // The first element of the window that is not padding, for windows in which nothing exceeds the padding.
  if (w.padding[0] || w.padding[1]) {
    auto first = [&](int k) {
      Expr before = Scalar(w.padding[k]) - i[r + size_t(k)] * Scalar(w.stride[k]);
      return floordiv(max(before, Scalar(int64_t(0))) + Scalar(w.dilation[k] - 1), Scalar(w.dilation[k]));
    };
    at = select(eq(value, lowest), cast(first(0) * Scalar(w.kernel[1]) + first(1), tap_type(w)), at);
  }
  return {value, at};
}

// A window that may hold an element at `at` of dimension k: there is one of this number if `inside`, which is a
// condition on `at` alone; it holds the element, as its step `step`, if `valid` too. Lanes run along the columns: a
// row's windows are valid for all of them or for none.
struct Cover {
  Expr window, inside, valid, step;
};
// Windows of number b < reach(w, k) are candidates.
int64_t reach(const Window& w, int k) {
  return w.dilation[k] == 1 ? (w.kernel[k] + w.stride[k] - 1) / w.stride[k] : w.kernel[k];
}
Cover cover(const Window& w, int k, Expr at, Expr b, SymInt outputs) {
  Scalar stride = w.stride[k];
  Expr padded = at + Scalar(w.padding[k]), limit = loop::size(outputs), always = constant(true, DType::Bool);
  if (w.dilation[k] == 1) {  // the last window that begins before the element, and those before it
    Expr step = remainder(padded, stride) + b * stride;
    return {floordiv(padded, stride) - b, (padded >= b * stride) & (padded < (limit + b) * stride),
            w.kernel[k] % w.stride[k] ? step < Scalar(w.kernel[k]) : always, step};
  }
  Expr start = padded - b * Scalar(w.dilation[k]);  // of the window that has the element as its step b
  return {floordiv(start, stride), (start >= Scalar(int64_t(0))) & (start < limit * stride),
          w.stride[k] > 1 ? eq(remainder(start, stride), Scalar(int64_t(0))) : always, b};
}
// The only one, where windows do not overlap.
Cover only_cover(const Window& w, int k, Expr at, SymInt outputs) {
  Scalar stride = w.stride[k];
  Expr start = at + Scalar(w.padding[k]), step = remainder(start, stride);
  return {floordiv(start, stride),
          start<loop::size(outputs) * stride, w.stride[k]> w.kernel[k] ? step < Scalar(w.kernel[k])
                                                                       : constant(true, DType::Bool),
          step};
}
// Sum of f(Cover, Cover) over the windows that may hold element i, where there are such; r: the first of its two
// last dimensions.
template <class F>
Expr over_windows(const LoopCall& c, const Window& w, const Index& i, size_t r, SymSpan outputs, F&& f) {
  auto value = [&](const Cover& y, const Cover& x) {
    Expr v = f(y, x), none = constant(0.0, v.dtype());
    return select(y.inside & y.valid, select(x.inside, v, none), none);
  };
  bool apart =
      w.stride[0] >= w.kernel[0] && w.stride[1] >= w.kernel[1] && w.dilation[0] == 1 && w.dilation[1] == 1;
  if (apart) return value(only_cover(w, 0, i[r], outputs[r]), only_cover(w, 1, i[r + 1], outputs[r + 1]));
  return reduce(c, monoid::sum, {SymInt(reach(w, 0)), SymInt(reach(w, 1))}, [&](Index b) {
    return value(cover(w, 0, i[r], b[0], outputs[r]), cover(w, 1, i[r + 1], b[1], outputs[r + 1]));
  });
}

// The gradient of max_pool2d by elements: of the windows that hold one, those whose tap it is.
Expr gathered(const LoopCall& c, Index i) {
  Window w = window(c);
  return over_windows(c, w, i, i.size() - 2, c.sizes("grad"), [&](const Cover& y, const Cover& x) {
    Index j = i;
    j[i.size() - 2] = y.window;
    j[i.size() - 1] = x.window;
    Expr g = c.load("grad", j), tap = c.load("taps", j);
    auto as_tap = [&](Expr e) { return cast(e, tap.dtype()); };
    Expr own = as_tap(y.step * Scalar(w.kernel[1])) + as_tap(x.step);
    return select(x.valid & eq(tap, own), g, constant(0.0, g.dtype()));
  });
}
// The same by windows, whose gradients are added at their taps: planes are vectors of H * W elements.
Definition scattered(const LoopCall& c) {
  Window w = window(c);
  auto sizes = c.ints("size");
  size_t r = sizes.size() - 2;
  Definition def;
  def.rank = int(r) + 1;
  Scatter s;
  s.domain = Dims(c.sizes("taps"));
  Index i;
  for (size_t k = 0; k < s.domain.size(); ++k) i.push_back(loop::index(int(k)));
  Expr tap = c.load("taps", i), width = loop::size(sizes[r + 1]);
  s.value = c.load("grad", i);
  auto start = [&](int k) { return i[r + size_t(k)] * Scalar(w.stride[k]) - Scalar(w.padding[k]); };
  // Below 256 a tap by the kernel's width is a product and a shift.
  Expr row;
  if (w.kernel[1] == 1) row = cast(tap, DType::Int64);
  else if (tap_type(w) == DType::Int64) row = floordiv(tap, Scalar(w.kernel[1]));
  else
    row = shr(cast(tap, DType::Int64) * Scalar((65536 + w.kernel[1] - 1) / w.kernel[1]), Scalar(int64_t(16)));
  Expr step = cast(tap, DType::Int64) * Scalar(w.dilation[1]) +
              row * (width * Scalar(w.dilation[0]) - Scalar(w.kernel[1] * w.dilation[1]));
  Expr at = start(0) * width + start(1) + step;
  s.target = i;
  s.target.resize(r + 1);
  s.target[r] = within(at, width * loop::size(sizes[r]));
  def.scatter = s;
  return def;
}

// ---- pooling to a given size: window o of n over m elements goes from floor(o m / n) to ceil((o + 1) m / n).
// The windows that hold element p are, by the same rule, those from floor(p n / m) to ceil((p + 1) n / m).
struct Span {
  Expr start, end;
  Expr count() const { return end - start; }
};
Span even_window(Expr o, const SymInt& m, const SymInt& n) {
  Expr elements = loop::size(m), windows = max(loop::size(n), Scalar(int64_t(1)));
  Expr next = (o + Scalar(int64_t(1))) * elements + loop::size(n) - Scalar(int64_t(1));
  return {floordiv(o * elements, windows), floordiv(next, windows)};
}
// No window is wider.
SymInt widest(const SymInt& m, const SymInt& n) {
  const SymInt one = int64_t(1);
  return (m + n - one) / max(n, one) + one;
}

Dims with_plane(SymSpan sizes, SymSpan plane) {
  Dims out(sizes);
  for (size_t k = 0; k < 2; ++k) out[out.size() - 2 + k] = plane[k];
  return out;
}
Dims adaptive_sizes(const Call& c) { return with_plane(c.sizes("self"), c.ints("output_size", 2)); }
// Sum over the windows at `i` of the last two dimensions, which lead from `from` sizes to `to` sizes, of
// f(element).
template <class F>
Expr over_even_windows(const LoopCall& c, const Index& i, const SymInt* from, const SymInt* to, F&& f) {
  size_t r = i.size() - 2;
  Span y = even_window(i[r], from[0], to[0]), x = even_window(i[r + 1], from[1], to[1]);
  return reduce(c, monoid::sum, {widest(from[0], to[0]), widest(from[1], to[1])}, [&](Index b) {
    Index j = i;
    j[r] = y.start + b[0];
    j[r + 1] = x.start + b[1];
    Expr inside = (j[r] < y.end) & (j[r + 1] < x.end);
    j[r] = min(j[r], y.end - Scalar(int64_t(1)));
    j[r + 1] = min(j[r + 1], x.end - Scalar(int64_t(1)));
    Expr value = f(j);
    return select(inside, value, constant(0.0, value.dtype()));
  });
}

Samples pool_samples() {
  return samples({"self![2, 3, 6, 7], kernel_size=[2]",
                  "self![2, 1, 6, 7], kernel_size=[3], stride=[2], padding=[1]",
                  "self![3, 5, 4], kernel_size=[2, 3], stride=[1]",
                  "self![1, 1, 8, 7], kernel_size=[3], stride=[1], padding=[0], dilation=[2]"});
}

}  // namespace

FACULA_FAMILY(pool) {
  define(
      "max_pool2d_taps(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, bool ceil_mode=False) "
      "-> (Tensor output, Tensor taps)")
      .doc("Largest value of each window, and the number of its element in the window, counted row by row.")
      .grad_name("MaxPool2DWithIndices")
      .bind(hidden)
      .dtypes(d::integral | d::floating)
      .result([](const Call& c) { return std::vector<DType>{c.dtype("self"), tap_type(window(c))}; })
      .shapes([](const Call& c) {
        Dims s = pooled_sizes(c);
        return std::vector<Dims>{s, s};
      })
      .non_differentiable({1})
      .format_of({"self"})
      .loop([](const LoopCall& c, Index i) { return best(c, i); })
      // By the taps; derived, it looks for the maxima anew.
      .vjp([](const Vjp& v) {
        auto& c = v.call();
        return grads(max_pool2d_backward(v.grad(0), v.result(1), c.sizes("self"), c.ints("kernel_size"),
                                         c.ints("stride"), c.ints("padding"), c.ints("dilation"),
                                         c.flag("ceil_mode")));
      })
      .samples(pool_samples());
  define(
      "max_pool2d_positions(Tensor taps, SymInt[] size, int[2] kernel_size, int[2] stride, int[2] padding, int[2] dilation, bool ceil_mode) -> Tensor")
      .doc("Where each tap lies in the H x W plane of an input of that size.")
      .bind(hidden)
      .dtypes(d::integral)
      .result(ResultType::int64)
      .shape([](const Call& c) { return Dims(c.sizes("taps")); })
      .non_differentiable()
      .format_of({"taps"})
      .loop([](const LoopCall& c, Index i) {
        Window w = window(c);
        size_t r = i.size() - 2;
        Expr tap = c.load("taps", i);
        if (tap_type(w) != DType::Int64) tap = cast(tap, DType::Int32);  // whose division is quick
        auto at = [&](int k) {
          return i[r + size_t(k)] * Scalar(w.stride[k]) +
                 cast(step(w, k, tap), DType::Int64) * Scalar(w.dilation[k]) - Scalar(w.padding[k]);
        };
        return at(0) * loop::size(c.ints("size")[r + 1]) + at(1);
      })
      .samples(
          {"taps<4>[2, 3, 1, 2], size=[2, 3, 2, 4], kernel_size=[2], stride=[2], padding=[0], dilation=[1], ceil_mode=False"});
  define(
      "max_pool2d_backward(Tensor grad, Tensor taps, SymInt[] size, int[2] kernel_size, int[2] stride, int[2] padding, int[2] dilation, bool ceil_mode) -> Tensor")
      .doc("Each gradient at the element of its window that was the largest.")
      .dtypes(d::floating)
      .bind(hidden)
      .shape([](const Call& c) { return Dims(c.ints("size")); })
      .format_of({"grad", "taps"})
      .channels_last(ChannelsLast::reads)
      .library("max_pool2d_backward")
      .batched([](const Batched& b) {  // it joins the first dimension
        auto& c = b.logical();
        auto joined = [&](const char* arg) {
          Tensor t = b.whole(arg);
          Dims sizes{t.size(0) * (c.rank(arg) == 4 ? t.size(1) : SymInt(int64_t(1)))};
          for (int d = c.rank(arg) == 4 ? 2 : 1; d < t.dim(); ++d) sizes.push_back(t.size(d));
          return reshape(t, sizes);
        };
        Dims one(c.ints("size")), all(one);
        if (all.size() == 4) all[0] *= b.size();
        else all.insert(0, b.size());
        Tensor g =
            max_pool2d_backward(joined("grad"), joined("taps"), all, c.ints("kernel_size"), c.ints("stride"),
                                c.ints("padding"), c.ints("dilation"), c.flag("ceil_mode"));
        one.insert(0, b.size());
        return Results(reshape(g, one));
      })
      .reference(gathered)
      .transposed_by("max_pool2d_pick")
      .samples(
          {"grad[2, 3, 1, 1], taps<4>[2, 3, 1, 1], size=[2, 3, 2, 2], kernel_size=[2], stride=[2], padding=[0], dilation=[1], ceil_mode=False"});
  define(
      "_max_pool2d_gather(Tensor grad, Tensor taps, SymInt[] size, int[2] kernel_size, int[2] stride, int[2] padding, int[2] dilation, bool ceil_mode) -> Tensor")
      .doc("max_pool2d_backward where channels lie side by side: each element asks its windows.")
      .dtypes(d::floating)
      .bind(hidden)
      .non_differentiable()
      .undifferenced("max_pool2d_backward, for which the library calls it, has the gradient")
      .shape([](const Call& c) { return Dims(c.ints("size")); })
      .format_of({"grad", "taps"})
      .loop(gathered)
      .samples(
          {"grad[2, 3, 1, 1], taps<4>[2, 3, 1, 1], size=[2, 3, 2, 2], kernel_size=[2], stride=[2], padding=[0], dilation=[1], ceil_mode=False"});
  define(
      "_max_pool2d_scatter(Tensor grad, Tensor taps, SymInt[] size, int[2] kernel_size, int[2] stride, int[2] padding, int[2] dilation, bool ceil_mode) -> Tensor")
      .doc(
          "max_pool2d_backward where rows lie side by side, before it is rounded: each window adds to an element.")
      .dtypes(d::floating)
      .bind(hidden)
      .non_differentiable()
      .undifferenced("max_pool2d_backward, for which the library calls it, has the gradient")
      .result([](const Call& c) { return std::vector<DType>{compute_type(c.dtype("grad"))}; })
      .shape([](const Call& c) {
        auto sizes = c.ints("size");
        size_t r = sizes.size() - 2;
        return with(sizes.first(r + 1), int(r), sizes[r] * sizes[r + 1]);
      })
      .checks()
      .loop(scattered)
      .samples(
          {"grad[2, 3, 1, 1], taps<4>[2, 3, 1, 1], size=[2, 3, 2, 2], kernel_size=[2], stride=[2], padding=[0], dilation=[1], ceil_mode=False"});
  define(
      "max_pool2d_pick(Tensor self, Tensor taps, int[2] kernel_size, int[2] stride, int[2] padding, int[2] dilation, bool ceil_mode) -> Tensor")
      .doc("The element of each window that a tap says.")
      .dtypes(d::floating)
      .bind(hidden)
      .shape([](const Call& c) { return Dims(c.sizes("taps")); })
      .format_of({"self", "taps"})
      .loop([](const LoopCall& c, Index i) {
        Window w = window(c);
        auto sizes = c.sizes("self");
        size_t r = i.size() - 2;
        Expr at = cast(c.load("taps", i), DType::Int64);
        Tap y = tap(w, 0, i[r], step(w, 0, at), sizes[r]),
            x = tap(w, 1, i[r + 1], step(w, 1, at), sizes[r + 1]);
        Index j = i;
        j[r] = y.at;
        j[r + 1] = x.at;
        Expr value = c.load("self", j);
        return select(y.inside & x.inside, value, constant(0.0, value.dtype()));
      })
      .samples(
          {"self[2, 3, 2, 2], taps<4>[2, 3, 1, 1], kernel_size=[2], stride=[2], padding=[0], dilation=[1], ceil_mode=False"});
  define(
      "max_pool2d_with_indices(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, bool ceil_mode=False) "
      "-> (Tensor, Tensor)")
      .python(
          "max_pool2d_with_indices(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False)")
      .doc("Largest value of each window [..., H, W], and its position in the H x W plane.")
      .bind(function)
      .dtypes(d::integral | d::floating)
      .procedure([](const Tensor& self, SymSpan kernel, SymSpan stride, SymSpan padding, SymSpan dilation,
                    bool ceil) {
        auto [output, taps] = max_pool2d_taps(self, kernel, stride, padding, dilation, ceil);
        return std::tuple(output,
                          max_pool2d_positions(taps, self.sizes(), kernel, stride, padding, dilation, ceil));
      })
      .samples(pool_samples());
  define(
      "max_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, bool ceil_mode=False) -> Tensor")
      .python(
          "max_pool2d(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False)")
      .doc("Largest value of each window [..., H, W]; stride defaults to the kernel's size.")
      .bind(function)
      .procedure([](const Tensor& self, SymSpan kernel, SymSpan stride, SymSpan padding, SymSpan dilation,
                    bool ceil) {
        return std::get<0>(max_pool2d_taps(self, kernel, stride, padding, dilation, ceil));
      })
      .samples({"self![2, 3, 6, 7], kernel_size=[2]",
                "self![2, 1, 6, 7], kernel_size=[3], stride=[2], padding=[1], ceil_mode=True",
                "self![1, 2, 4, 4], kernel_size=[2]"});
  define(
      "avg_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None) -> Tensor")
      .python(
          "avg_pool2d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None, *, out=None)")
      .doc("Mean of each window [..., H, W].")
      .grad_name("AvgPool2D")
      .bind(nn_functional)
      .dtypes(d::integral | d::floating)
      .shape([](const Call& c) {
        runtime_check(!c.has("divisor_override") || c.integer("divisor_override") != SymInt(int64_t(0)),
                      "avg_pool2d")
            << "divisor must be not zero";
        return pooled_sizes(c);
      })
      .format_of({"self"})
      .loop([](const LoopCall& c, Index i) {
        Window w = window(c);
        auto sizes = c.sizes("self");
        size_t r = sizes.size() - 2;
        Expr total = reduce(c, monoid::sum, {SymInt(w.kernel[0]), SymInt(w.kernel[1])}, [&](Index b) {
          Tap y = tap(w, 0, i[r], b[0], sizes[r]), x = tap(w, 1, i[r + 1], b[1], sizes[r + 1]);
          Index j = i;
          j[r] = y.at;
          j[r + 1] = x.at;
          Expr value = c.load("self", j);
          return select(y.inside & x.inside, value, constant(0.0, value.dtype()));
        });
        auto over = [&](Expr count) {
          return is_integral(total.dtype()) ? truncdiv(total, loop::divisor(count)) : total / count;
        };
        if (c.has("divisor_override"))
          return over(constant(Scalar(c.integer("divisor_override").guard_int()), total.dtype()));
        auto extent = [&](int k) {  // elements of the window along dimension k that count
          Expr start = i[r + size_t(k)] * Scalar(w.stride[k]) - Scalar(w.padding[k]),
               n = loop::size(sizes[r + size_t(k)]);
          Expr end = min(start + Scalar(w.kernel[k]), n + Scalar(w.padding[k]));
          if (c.flag("count_include_pad")) return end - start;
          return min(end, n) - max(start, Scalar(int64_t(0)));
        };
        return over(cast(extent(0) * extent(1), total.dtype()));
      })
      // Gathers; derived, windows scatter: 2 to 8 times the time.
      .transposed_by("avg_pool2d_backward")
      .samples(
          {"self[2, 3, 6, 7], kernel_size=[2]", "self[1, 1, 6, 5], kernel_size=[3], stride=[2], padding=[1]",
           "self[2, 3, 6, 7], kernel_size=[3], stride=[2], padding=[1], ceil_mode=True, count_include_pad=False",
           "self[1, 4, 4], kernel_size=[2], divisor_override=3"});
  define(
      "avg_pool2d_backward(Tensor grad, SymInt[] size, int[2] kernel_size, int[2] stride, int[2] padding, bool ceil_mode, bool count_include_pad, int? divisor_override) -> Tensor")
      .doc("Each gradient spread over its window.")
      .bind(hidden)
      .dtypes(d::floating)
      .shape([](const Call& c) { return Dims(c.ints("size")); })
      .format_of({"grad"})
      .loop([](const LoopCall& c, Index i) {
        Window w = window(c);
        auto sizes = c.ints("size");
        size_t r = i.size() - 2;
        return over_windows(c, w, i, r, c.sizes("grad"), [&](const Cover& y, const Cover& x) {
          Index j = i;
          j[r] = y.window;
          j[r + 1] = x.window;
          Expr g = c.load("grad", j);
          Expr count;
          if (c.has("divisor_override")) {
            count = constant(double(c.integer("divisor_override").guard_int()), g.dtype());
          } else {
            auto extent = [&](int k, Expr o) {
              Expr start = o * Scalar(w.stride[k]) - Scalar(w.padding[k]),
                   n = loop::size(sizes[r + size_t(k)]);
              Expr end = min(start + Scalar(w.kernel[k]), n + Scalar(w.padding[k]));
              return c.flag("count_include_pad") ? end - start : min(end, n) - max(start, Scalar(int64_t(0)));
            };
            count = cast(extent(0, y.window) * extent(1, x.window), g.dtype());
          }
          return select(x.valid, g / count, constant(0.0, g.dtype()));
        });
      })
      .samples(
          {"grad[1, 1, 2, 2], size=[1, 1, 4, 4], kernel_size=[2], stride=[2], padding=[0], ceil_mode=False, count_include_pad=True, divisor_override=None"});

  define("_adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor")
      .doc("Means of the windows that divide [..., H, W] evenly into `output_size`.")
      .grad_name("AdaptiveAvgPool2D")
      .bind(hidden)
      .dtypes(d::floating)
      .shape(adaptive_sizes)
      .format_of({"self"})
      .loop([](const LoopCall& c, Index i) {
        size_t r = i.size() - 2;
        SymSpan from = c.sizes("self").last(2);
        Dims to(c.ints("output_size"));
        Expr total = over_even_windows(c, i, from.data(), to.data(),
                                       [&](const Index& j) { return c.load("self", j); });
        return total /
               cast(even_window(i[r], from[0], to[0]).count() * even_window(i[r + 1], from[1], to[1]).count(),
                    total.dtype());
      })
      // Derived, it takes 1.5 times as long where all is averaged (and a tenth for a few bins).
      .transposed_by("_adaptive_avg_pool2d_backward")
      .samples({"self[2, 3, 5, 7], output_size=[2, 3]", "self[3, 4, 3], output_size=[5, 2]",
                "self[1, 1, 1, 8], output_size=[1, 3]"});
  define("_adaptive_avg_pool2d_backward(Tensor self, SymInt[2] input_size) -> Tensor")
      .doc("Each gradient spread over its window; input_size is H, W of what was pooled.")
      .bind(hidden)
      .dtypes(d::floating)
      .shape([](const Call& c) { return with_plane(c.sizes("self"), c.ints("input_size", 2)); })
      .format_of({"self"})
      .loop([](const LoopCall& c, Index i) {
        size_t r = i.size() - 2;
        SymSpan from = c.sizes("self").last(2);
        Dims to(c.ints("input_size", 2));
        return over_even_windows(c, i, from.data(), to.data(), [&](const Index& j) {
          Expr g = c.load("self", j);
          Expr count =
              even_window(j[r], to[0], from[0]).count() * even_window(j[r + 1], to[1], from[1]).count();
          return g / cast(count, g.dtype());
        });
      })
      .samples({"self[2, 3, 2, 3], input_size=[5, 7]", "self[3, 5, 2], input_size=[4, 3]"});
  define("_adaptive_max_pool2d(Tensor self, SymInt[2] output_size) -> (Tensor output, Tensor indices)")
      .doc(
          "Largest values of the windows that divide [..., H, W] evenly, and their positions in the H x W plane.")
      .grad_name("AdaptiveMaxPool2D")
      .bind(hidden)
      .dtypes(d::integral | d::floating)
      .result([](const Call& c) { return std::vector<DType>{c.dtype("self"), DType::Int64}; })
      .shapes([](const Call& c) { return std::vector<Dims>(2, adaptive_sizes(c)); })
      .non_differentiable({1})
      .format_of({"self"})
      .loop([](const LoopCall& c, Index i) {
        size_t r = i.size() - 2;
        SymSpan from = c.sizes("self").last(2);
        Dims to(c.ints("output_size"));
        Span y = even_window(i[r], from[0], to[0]), x = even_window(i[r + 1], from[1], to[1]);
        Domain steps = domain(c, std::vector<SymInt>{widest(from[0], to[0]), widest(from[1], to[1])});
        // Steps beyond a window's end see its last element again.
        Expr found = reduce(monoid::argmax_pool, steps, [&](const Index& b) {
          Index j = i;
          j[r] = min(y.start + b[0], y.end - Scalar(int64_t(1)));
          j[r + 1] = min(x.start + b[1], x.end - Scalar(int64_t(1)));
          return std::vector<Expr>{c.load("self", j), j[r] * loop::size(from[1]) + j[r + 1]};
        });
        return std::vector<Expr>{part(found, 0), part(found, 1)};
      })
      // The first of equals takes the gradient; derived, it looks for the maxima anew: 500 times the time.
      .vjp(catalog::to_places)
      .samples({"self![2, 3, 5, 7], output_size=[2, 3]", "self![3, 4, 3], output_size=[5, 2]"});
}
