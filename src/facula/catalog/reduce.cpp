// Reductions over dimensions, and running ones.
#include <algorithm>
#include <cmath>

#include "facula/base/warning.h"
#include "facula/catalog/running.h"
#include "facula/catalog/selected.h"
#include "facula/catalog/widened.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"
#include "facula/tensor/promotion.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
using catalog::even_over_ties, catalog::put_back, catalog::to_places;
using catalog::is_rounded;
namespace d = facula::dtypes;

namespace {

// Sums and products of integers are int64 unless `dtype` says otherwise.
std::vector<DType> accumulated(const Call& c) {
  if (auto wanted = c.maybe_dtype("dtype")) {
    supported_check(!is_limited(*wanted), c.name()) << "not implemented for '" << *wanted << "'";
    return {*wanted};
  }
  DType t = c.dtype("self");
  return {is_differentiable(t) ? t : DType::Int64};
}

// The result dtype of a scan; refuses running sums and products of bool.
std::vector<DType> accumulated_along(const Call& c) {
  supported_check(accumulated(c)[0] != DType::Bool, c.name())
      << "not implemented for 'bool'" << hint("dtype=facula.int64 counts");
  return accumulated(c);
}

DType accumulation_dtype(const Call& c) { return c.maybe_dtype("dtype").value_or(c.dtype("self")); }

void check_not_empty(const Call& c, const char* what) {
  auto sizes = c.sizes("self");
  bool all = c["dim"].tag == Tag::ints && c.ints("dim").empty();
  runtime_check(!all || std::find(sizes.begin(), sizes.end(), SymInt(int64_t(0))) == sizes.end(), c.name())
      << "Expected reduction dim to be specified for input.numel() == 0: " << what
      << " of no elements is undefined";
  for (int k : c.dims("dim"))
    index_check(sizes.empty() || sizes[size_t(k)] != SymInt(int64_t(0)), c.name())
        << "expected reduction dim " << k << " to have non-zero size (shape " << to_string(sizes)
        << "): " << what << " of no elements is undefined";
}

void check_any(const char* name, const Tensor& self) {
  runtime_check(self.numel() != SymInt(int64_t(0)), name)
      << "expected at least one element, but the shape is " << to_string(self.sizes())
      << hint("with `dim` the other dimensions may be empty");
}

std::function<Dims(const Call&)> reduced_not_empty(const char* what) {
  return [what](const Call& c) {
    Dims sizes = reduced()(c);
    check_not_empty(c, what);
    return sizes;
  };
}

// any and all give bool; of uint8 they give uint8.
std::vector<DType> truth_dtype(const Call& c) {
  return {c.dtype("self") == DType::UInt8 ? DType::UInt8 : DType::Bool};
}

Expr extremum(const LoopCall& c, Monoid m, Index i, int part_number) {
  if (c.rank("self") == 0) return part_number ? integer(0) : c.load("self", i);
  Axes axes(c);
  if (axes.domain().vars.empty())
    return part_number ? integer(0) : c.load("self", axes.join(i));  // of a 0-d tensor
  return part(axes.reduce(m, i,
                          [&](Index j) { return std::vector<Expr>{c.load("self", j), axes.position()}; }),
              part_number);
}

// any and all: dim=[] is no dimension there, as in PyTorch, where it is every one of sum's.
bool over_nothing(const Call& c) { return c["dim"].tag == Tag::ints && c.ints("dim").empty(); }
Dims truth_sizes(const Call& c) { return over_nothing(c) ? Dims(c.sizes("self")) : reduced()(c); }
Expr truth(const LoopCall& c, Monoid m, Index i) {
  auto at = [&](Index j) { return cast(c.load("self", j), DType::Bool); };
  return over_nothing(c) ? at(i) : reduce_over(c, m, i, at);
}

double correction_of(const Call& c) { return c.has("correction") ? c.real("correction") : 1; }
// t over the degrees of freedom that `count` elements have left; none if the correction is no number.
Tensor over_freedom(const Tensor& t, const SymInt& count, double correction) {
  bool whole = correction == std::floor(correction) && std::abs(correction) < 0x1p53;
  if (whole && !(count < SymInt(int64_t(correction))))
    return div(t, max(count - SymInt(int64_t(correction)), SymInt(int64_t(0))));
  double freedom = double(count.guard_int()) - correction;
  if (freedom > 0) return div(t, freedom);
  return _without_freedom(t, freedom);
}

struct Moments {
  Tensor mean, variance;
};
// Variance over `dim`, by Welford's recurrence: sums of squares would cancel. And the mean, if it is wanted.
Moments moments(const Tensor& x, Sizes dim, std::optional<double> correction, bool keepdim, bool with_mean) {
  runtime_check(is_differentiable(x.dtype()), "var")
      << "std and var only support floating point and complex dtypes, got " << x.dtype() << hint("x.float()");
  Ints dims;
  for (auto k : dim) dims.push_back(wrap_dim("var", k.guard_int(), x.dim()));
  if (dims.empty())
    for (int k = 0; k < x.dim(); ++k) dims.push_back(k);
  SymInt count = x.dim() ? reduced_count(x.sizes(), dims) : SymInt(int64_t(1));
  double freedom_of_one = 1 - correction.value_or(1);
  auto deviation = [&](const Tensor& t) {
    return t.dim() ? _square_deviation(t, dim, keepdim) : _lone_deviation(t, freedom_of_one);
  };
  auto both = [&](const Tensor& t) {
    return with_mean && t.dim() ? _moments(t, dim, keepdim) : std::tuple(mean(t, dim, keepdim), deviation(t));
  };
  if (!with_mean || !is_complex(x.dtype())) {
    auto [middle, total] = both(x);
    return {middle, over_freedom(total, count, correction.value_or(1))};
  }
  auto [along, total] = both(_real(x));
  auto [across, more] = both(_imag(x));
  Tensor middle = view_as_complex(stack(std::vector<Tensor>{along, across}, -1));
  total = add(total, more);
  return {middle, over_freedom(total, count, correction.value_or(1))};
}

// In float64, where squares neither overflow nor vanish; complex numbers part by part in their own, as in PyTorch.
Tensor in_float64(const Tensor& x) { return is_floating(x.dtype()) ? to_dtype(x, DType::Float64) : x; }
// A wider out= is what moments of floats are computed in. PyTorch has no kernel for that where 16 bits are reduced to one
// number.
DType dtype_of_moments(const Call& c, std::span<const Tensor> out) {
  DType self = c.dtype("self"), to = out[0].dtype();
  if (!is_floating(self) || itemsize(to) <= itemsize(self)) return self;
  SymInt count(int64_t(1));
  Ints dims = c.dims("dim");
  for (int k = 0; k < c.rank("self"); ++k)
    if (std::find(dims.begin(), dims.end(), k) == dims.end()) count *= c.size("self", k);
  runtime_check(itemsize(self) > 2 || !(count == SymInt(int64_t(1))), c.name())
      << "one number of " << self << " of shape " << to_string(c.sizes("self")) << " can't be computed in "
      << to << ", the dtype of out=" << hint("self.to(out.dtype)");
  return is_floating(to) ? to : self;
}

// The square root, whose gradient at 0 is 0: there the length has a kink, its lowest point.
Tensor root(const Tensor& variance) {
  Tensor none = eq(variance, 0);
  return where(none, zeros_like(variance), sqrt(where(none, ones_like(variance), variance)));
}

// The gradient of a sum of squared distances from the mean, or of that sum and the mean.
Grads gradient_of_centre(const Vjp& v) {
  bool both = v.call().op().schema.returns.size() > 1;
  Tensor x = v["self"], of_sum = v.grad(both ? 1 : 0), of_mean = both ? v.grad(0) : Tensor(), g;
  auto dims = v.call().dims("dim");
  if (of_sum.defined()) g = mul(mul(put_back(v, of_sum), 2), sub(x, mean(x, dims, true)));
  if (!of_mean.defined()) return grads(g);
  of_mean = expand(div(put_back(v, of_mean), reduced_count(x.sizes(), dims)), x.sizes());
  return grads(g.defined() ? add(g, of_mean) : of_mean);
}
// The gradient of a variance or standard deviation, and of the mean returned with it. They are computed separately, so that a NaN
// variance does not reach the gradient of the mean.
VjpRule gradient_of_moments(bool is_root) {
  return [is_root](const Vjp& v) {
    auto& c = v.call();
    Tensor x = v["self"], spread = v.grad(0), mean = c.op().schema.returns.size() > 1 ? v.grad(1) : Tensor();
    Ints dims = c.dims("dim");
    SymInt count = reduced_count(c.sizes("self"), dims);
    if (!spread.defined())
      return grads(mean.defined() ? expand(div(put_back(v, mean), count), c.sizes("self")) : Tensor());
    double freedom = double(count.guard_int()) - correction_of(c);
    bool all = c["dim"].is_none() || c.rank("self") == 0, anew = is_root && is_rounded(x) && x.dim();
    Tensor root = is_root && !anew ? put_back(v, v.result(0)) : Tensor();
    if (mean.defined()) mean = put_back(v, mean);
    auto maybe = [](const Tensor& t) { return t.defined() ? MaybeTensor(t) : MaybeTensor(); };
    return grads(_variance_backward(put_back(v, spread), x, maybe(root), maybe(mean), dims, 2.0 / freedom,
                                    all && freedom <= 0, anew));
  };
}
Tensor gradient_of_root(const Tensor& y, const Tensor& g) {
  Tensor none = eq(y, 0);
  return where(none, zeros_like(y), div(g, mul(where(none, ones_like(y), y), 2)));
}

// The gradient of a norm from the gradient g of the norm y of x, both with kept dimensions. `divided_first`: divides before it
// multiplies, because 1 / y would overflow for a subnormal y, in 16-bit dtypes or where y is the size of one element.
Tensor gradient_of_norm(const Tensor& x, const Tensor& y, const Tensor& g, double order, bool divided_first,
                        const Ints& dims) {
  if (order == 0) return Tensor();
  if (order == 1) return mul(g, sgn(x));
  auto unless_zero = [](const Tensor& t, const Tensor& value) {
    return where(eq(t, 0), zeros_like(value), value);
  };
  // g over f(y), 0 at y = 0; what is not taken there is no division by 0 either, nor is its derivative.
  auto quotient = [&](auto&& f) { return unless_zero(y, div(g, f(where(eq(y, 0), ones_like(y), y)))); };
  if (order == 2)
    return divided_first ? mul(g, unless_zero(y, div(x, where(eq(y, 0), ones_like(y), y))))
                         : mul(x, quotient([](const Tensor& t) { return t; }));
  if (std::isinf(order)) {
    Tensor mask = eq(abs(x), y);
    return mul(sgn(x), where(mask, div(g, to_dtype(sum(mask, dims, true), g.dtype())), zeros_like(g)));
  }
  // The powers are those of PyTorch, so that what overflows and what vanishes does so there too.
  if (order < 1) return mul(mul(sgn(x), unless_zero(x, pow(abs(x), order - 1))), mul(g, pow(y, 1 - order)));
  Tensor scaled = order < 2 ? mul(sgn(x), pow(abs(x), order - 1)) : mul(x, pow(abs(x), order - 2));
  return mul(scaled, quotient([&](const Tensor& t) { return pow(t, order - 1); }));
}
// The part of the gradient of unit = x / bounded that comes through the length of x; 0 where the length is below eps.
Tensor gradient_by_length(const Tensor& g, const Tensor& x, const Tensor& unit, const Tensor& length,
                          const Tensor& bounded, double p, SymSpan dim, double eps) {
  Ints dims;
  for (auto k : dim) dims.push_back(wrap_dim("normalize", k.guard_int(), x.dim()));
  Tensor along = mul(g, conj_physical(unit));
  Tensor of_length = neg(div(sum(is_complex(along.dtype()) ? _real(along) : along, dims, true), bounded));
  if (eps >= 0) of_length = where(lt(length, eps), zeros_like(of_length), of_length);
  Tensor result = gradient_of_norm(x, length, of_length, p, is_rounded(x), dims);
  return result.defined() ? result : zeros_like(x);
}
Tensor self_or_unsqueezed(const Vjp& v) {
  return v.call().rank("self") ? unsqueeze(v.grad(), v.call().dim("dim")) : v.grad();
}
std::vector<Dims> twice(const Call& c) {
  auto sizes = reduced_not_empty("the extremum")(c);
  return {sizes, sizes};
}

// t moved by n places along dimension k; `fill` comes in.
Tensor shifted(const Tensor& t, int k, int64_t n, double fill) {
  Dims pad(size_t(2 * (t.dim() - k)), SymInt(int64_t(0)));
  pad[pad.size() - 2] = SymInt(n);
  pad[pad.size() - 1] = SymInt(-n);
  return constant_pad_nd(t, pad, fill);
}

// y(i) = b(i) + a(i) y(i - 1) along dimension k, in as many steps as its size has digits (Hillis and Steele, 1986).
Tensor recurrence(Tensor a, Tensor b, int k) {
  for (int64_t step = 1, n = b.size(k).guard_int(); step < n; step *= 2) {
    b = add(b, mul(a, shifted(b, k, step, 0)));
    if (2 * step < n) a = mul(a, shifted(a, k, step, 1));
  }
  return b;
}

// One element after the other.
Tensor running_log_sums(const Tensor& x, int64_t dim) {
  if (x.dim() == 0 || x.numel() == SymInt(int64_t(0))) return clone(x);
  std::vector<Tensor> sums;
  for (int64_t k = 0; k < x.size(int(dim)).guard_int(); ++k) {
    Tensor next = select(x, dim, k);
    sums.push_back(k ? logaddexp(sums.back(), next) : next);
  }
  return stack(sums, dim);
}

// Each element as 64 bits: integers as int64, numbers as float64.
Tensor as_words(const Tensor& x) {
  return is_floating(x.dtype()) ? view(contiguous(to(x, DType::Float64)), DType::Int64) : to(x, DType::Int64);
}
// The exclusive or of the elements of the last dimension, by halving it repeatedly.
Tensor xor_of_last(Tensor x) {
  const SymInt zero = int64_t(0);
  for (int64_t n = x.size(-1).guard_int(); n > 1; n = (n + 1) / 2) {
    SymInt half = n / 2, end = 2 * (n / 2);
    Tensor y = bitwise_xor(slice(x, -1, zero, half), slice(x, -1, half, end));
    x = n % 2 ? cat(std::vector<Tensor>{y, slice(x, -1, end)}, -1) : y;
  }
  return x;
}
Tensor hash_of(const Tensor& input, SymSpan over, bool keepdim) {
  const char* op = "hash_tensor";
  supported_check(!is_complex(input.dtype()) && !is_limited(input.dtype()), op)
      << "not implemented for '" << input.dtype() << "'"
      << hint("hash_tensor(x.view(facula.uint8)) hashes the bytes");
  Tensor self = detach(input);
  Ints dims;
  for (SymInt k : over) dims.push_back(wrap_dim(op, k.concrete(), self.dim()));
  runtime_check(!dims.empty() || self.numel().guard_int() > 0, op)
      << "expected a reduction dim to be specified for input.numel() == 0, got shape "
      << to_string(self.sizes()) << hint("specify the reduction dim with the 'dim' argument");
  if (dims.empty())
    for (int k = 0; k < self.dim(); ++k) dims.push_back(k);
  Dims result_shape = reduced_sizes(self.sizes(), dims, keepdim),
       lines = reduced_sizes(self.sizes(), dims, false);
  std::vector<bool> folded(size_t(self.dim()));
  SymInt n = int64_t(1);
  for (int64_t k : dims) {
    if (self.dim() == 0) break;
    index_check(self.size(int(k)).guard_int() > 0, op)
        << "expected reduction dim " << k << " to have non-zero size, got shape " << to_string(self.sizes());
    runtime_check(!folded[size_t(k)], op) << "dim " << k << " appears multiple times in the list of dims";
    n *= self.size(int(k));
    folded[size_t(k)] = true;
  }
  Dims order;
  for (bool last : {false, true})
    for (int k = 0; k < self.dim(); ++k)
      if (folded[size_t(k)] == last) order.push_back(int64_t(k));
  lines.push_back(n);
  Tensor words = xor_of_last(reshape(as_words(permute(self, order)), lines));
  return view(reshape(words, result_shape), DType::UInt64);
}

// PyTorch's formulas of a reduction of all elements, and of one along dimensions.
GradName all_or_along(const char* stem) {
  return [stem](const Call& c) { return grad_name(stem, c["dim"].is_none() ? 0 : 1); };
}

// PyTorch's warning of a variance that divides by 0 or less; where there is no result it counts 0 elements.
void warn_of_freedom(const Call& c) {
  SymSpan sizes = c.sizes("self");
  if (any_symbolic(sizes)) return;
  Ints over = c.dims("dim");
  int64_t count = 1, results = 1;
  for (size_t k = 0; k < sizes.size(); ++k) {
    bool reduced = std::find(over.begin(), over.end(), int64_t(k)) != over.end();
    (reduced ? count : results) *= sizes[k].concrete();
  }
  if (double(results ? count : 0) - (c.has("correction") ? c.real("correction") : 1) > 0) return;
  warn(
      c.op().schema.name +
      "(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor (input numel divided by output numel).");
}

// The fold of all elements along `dim` up to each.
Definer running(const char* schema, const char* doc, Monoid fold) {
  return std::move(define(schema)
                       .doc(doc)
                       .dtypes(d::any | d::wide_unsigned)
                       .result(accumulated_along)
                       .in_place()
                       .shape([](const Call& c) {
                         c.dim("dim");
                         return Dims(c.sizes("self"));
                       })
                       .loop([fold](const LoopCall& c, Index i) {
                         DType result = accumulated(c)[0], t = catalog::running_type(result);
                         if (i.empty()) return cast(c.load("self", i), compute_type(result));
                         int k = c.dim("dim");
                         Expr running = scan_over(c, fold, i, k, c.size("self", k),
                                                  [&](Index j) { return cast(c.load("self", j), t); });
                         return cast(running, compute_type(result));
                       }));
}

}  // namespace

FACULA_FAMILY(reduce) {
  define("sum(Tensor self, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor")
      .dtypes(d::any | d::wide_unsigned)
      .doc("Sum over `dim` (all dimensions if None). Integers and bool give int64.")
      .grad_name(all_or_along("Sum"))
      .result(accumulated)
      .shape(reduced())
      .loop([](const LoopCall& c, Index i) {
        DType t = compute_type(accumulated(c)[0]);
        return reduce_over(c, t == DType::Bool ? monoid::any : monoid::sum, i,
                           [&](Index j) { return cast(c.load("self", j), t); });
      })
      // A view of the gradient, where the derived rule writes it out for each element.
      .vjp([](const Vjp& v) {
        const Call& c = v.call();
        Tensor g = to_dtype(v.grad(), c.dtype("self"));
        return grads(expand(c.rank("self") == 0 ? g : put_back(v, g), c.sizes("self")));
      })
      .samples(reduction_samples());
  define("mean(Tensor self, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor")
      .dtypes(d::any | d::wide_unsigned)
      .doc("Mean over `dim` (all dimensions if None).")
      .grad_name(all_or_along("Mean"))
      .for_out([](const Call& c, std::span<const Tensor> out) {
        bool real = is_complex(c.dtype("self")) && !is_complex(out[0].dtype());
        runtime_check(!real || !c["dim"].is_none(), "mean")
            << "the mean of all elements of " << c.dtype("self")
            << " can't be cast to the desired output type " << out[0].dtype();
        return c.dtype("self");
      })
      .result([](const Call& c) {
        runtime_check(is_differentiable(accumulation_dtype(c)), "mean")
            << "could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: "
            << c.dtype("self") << hint("x.float().mean(), or mean(dtype=facula.float32)");
        return std::vector<DType>{accumulation_dtype(c)};
      })
      .shape(reduced())
      .loop([](const LoopCall& c, Index i) {
        DType t = compute_type(accumulation_dtype(c));
        Axes axes(c);
        Expr total = axes.reduce(monoid::sum, i, [&](Index j) { return cast(c.load("self", j), t); });
        return total / cast(size(axes.count()), t);
      })
      .samples(reduction_samples());
  define("prod(Tensor self, int? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor")
      .dtypes(d::any | d::wide_unsigned)
      .doc("Product along `dim` (of all elements if None). Integers and bool give int64.")
      .grad_name(all_or_along("Prod"))
      .autocast(Autocast::fp32)
      .result(accumulated)
      .shape(reduced())
      .loop([](const LoopCall& c, Index i) {
        DType t = compute_type(accumulated(c)[0]);
        return reduce_over(c, t == DType::Bool ? monoid::all : monoid::prod, i,
                           [&](Index j) { return cast(c.load("self", j), t); });
      })
      // Transposition derives sums alone; zeros want the products of the others.
      .vjp([](const Vjp& v) {
        if (v.call().rank("self") == 0) return grads(v.grad());
        return grads(
            mul(put_back(v, v.grad()), conj_physical(_products_of_others(v["self"], v.call().dims("dim")))));
      })
      .samples({"self[]", "self[2, 3, 4]", "self[3, 4], dim=1", "self[3, 4], dim=0, keepdim=True",
                "self[0, 3], dim=0", "self[33, 65], dim=1"});
  define("prod_over(Tensor self, int[] dim) -> Tensor")
      .doc("Product over `dim`, kept as size 1.")
      .bind(hidden)
      .in_place()
      .procedure([](const Tensor& self, SymSpan dim) {
        if (dim.size() == 1) return prod(self, dim[0].guard_int(), true);
        return view(prod(self), Dims(size_t(self.dim()), SymInt(int64_t(1))));
      })
      .samples({"self[3, 4], dim=[1]"});
  define("_products_of_others(Tensor self, int[] dim) -> Tensor")
      .doc(
          "For each element the product of all others along `dim`: the product of all over the element, or, at zeros, the product of the rest.")
      .bind(hidden)
      .composite([](const Tensor& x, SymSpan dim) {
        Tensor zero = eq(x, 0), zeros = sum(zero, dim, true), divisor = where(zero, ones_like(x), x);
        Tensor rest = prod_over(divisor, dim);
        return where(zero, where(le(zeros, 1), rest, zeros_like(rest)),
                     where(eq(zeros, 0), div(rest, divisor), zeros_like(x)));
      })
      .vjp([](const Vjp& v) {
        // Again without divisions: a product of those before and of those behind.
        auto dims = v.call().dims("dim");
        Tensor x = v["self"], g = v.grad();
        if (dims.empty()) return grads(zeros_like(x));
        Dims shape(x.sizes());
        int k = dims.size() > 1 ? 0 : dims[0];
        if (dims.size() > 1) x = flatten(x), g = flatten(g);
        if (x.size(k).guard_int() == 0) return grads(zeros_like(v["self"]));
        Tensor back = flip(x, k), before = cumprod(x, k), behind = cumprod(back, k);
        Tensor of_before = shifted(mul(g, conj_physical(flip(shifted(behind, k, 1, 1), k))), k, -1, 0),
               of_behind = shifted(flip(mul(g, conj_physical(shifted(before, k, 1, 1))), k), k, -1, 0);
        Tensor y = add(_cumprod_backward(of_before, x, k), flip(_cumprod_backward(of_behind, back, k), k));
        return grads(reshape(y, shape));
      })
      .samples({"self[3, 4], dim=[1]", "self[2, 3], dim=[0, 1]"});
  define("amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor")
      .doc("Largest value over `dim`; gradients are spread evenly over ties; NaN wins.")
      .dtypes(d::real)
      .shape(reduced_not_empty("the maximum"))
      .loop([](const LoopCall& c, Index i) {
        return reduce_over(c, monoid::max, i, [&](Index j) { return c.load("self", j); });
      })
      // By the result; derived, each element looks for the maximum anew.
      .vjp(even_over_ties(false))
      .samples(reduction_samples());
  define("amin(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor")
      .doc("Smallest value over `dim`; gradients are spread evenly over ties; NaN wins.")
      .dtypes(d::real)
      .shape(reduced_not_empty("the minimum"))
      .loop([](const LoopCall& c, Index i) {
        return reduce_over(c, monoid::min, i, [&](Index j) { return c.load("self", j); });
      })
      // By the result; derived, each element looks for the minimum anew.
      .vjp(even_over_ties(false))
      .samples(reduction_samples());
  define("_top(Tensor self, int[1] dim=[], bool keepdim=True) -> Tensor")
      .doc("Largest value over `dim`; of no elements -inf.")
      .bind(hidden)
      .dtypes(d::floating)
      .shape(reduced())
      .loop([](const LoopCall& c, Index i) {
        return reduce_over(c, monoid::max, i, [&](Index j) { return c.load("self", j); });
      })
      // By the result; derived, each element looks for the maximum anew.
      .vjp(even_over_ties(true))
      .samples({"self[3, 4], dim=[1]"});
  define("aminmax(Tensor self, *, int? dim=None, bool keepdim=False) -> (Tensor min, Tensor max)")
      .doc("Smallest and largest value, of all elements or along `dim`.")
      .dtypes(d::real)
      .composite([](const Tensor& self, std::optional<int64_t> dim, bool keepdim) {
        Sizes over = dim ? Sizes(*dim) : Sizes();
        return std::tuple(amin(self, over, keepdim), amax(self, over, keepdim));
      })
      .samples({"self![3, 4]", "self![3, 4], dim=1", "self![2, 3, 4], dim=0, keepdim=True", "self[]"});
  define("max(Tensor self) -> Tensor")
      .converting_out()
      .doc("Largest element; its gradient is spread evenly over ties.")
      .grad_name("Max", 1)
      .composite([](const Tensor& self) {
        check_any("max", self);
        return amax(self);
      })
      // Over NaNs too, unlike amax.
      .vjp(even_over_ties(true))
      .samples({"self[]", "self![5]", "self![2, 3, 4]", "self![33, 65]"});
  define("min(Tensor self) -> Tensor")
      .converting_out()
      .doc("Smallest element; its gradient is spread evenly over ties.")
      .grad_name("Min", 1)
      .composite([](const Tensor& self) {
        check_any("min", self);
        return amin(self);
      })
      // Over NaNs too, unlike amin.
      .vjp(even_over_ties(true))
      .samples({"self[]", "self![5]", "self![2, 3, 4]", "self![33, 65]"});
  define("max.other(Tensor self, Tensor other) -> Tensor")
      .converting_out()
      .doc("The larger of both, element by element.")
      .procedure([](const Tensor& self, const Tensor& other) { return maximum(self, other); })
      .samples({"self![3, 4], other[4]"});
  define("min.other(Tensor self, Tensor other) -> Tensor")
      .converting_out()
      .doc("The smaller of both, element by element.")
      .procedure([](const Tensor& self, const Tensor& other) { return minimum(self, other); })
      .samples({"self![3, 4], other[4]"});
  define("max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)")
      .doc("Largest values along `dim` and their first positions.")
      .dtypes(d::real)
      .result([](const Call& c) { return std::vector<DType>{c.dtype("self"), DType::Int64}; })
      .shapes(twice)
      .non_differentiable({1})
      .loop([](const LoopCall& c, Index i) {
        return std::vector<Expr>{extremum(c, monoid::argmax, i, 0), extremum(c, monoid::argmax, i, 1)};
      })
      // By the position; derived, each element looks for the maximum anew.
      .vjp(to_places)
      .samples({"self[], dim=0", "self![3, 4], dim=1", "self![2, 3, 4], dim=0, keepdim=True",
                "self![33, 65], dim=1"});
  define("min.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)")
      .doc("Smallest values along `dim` and their first positions.")
      .dtypes(d::real)
      .result([](const Call& c) { return std::vector<DType>{c.dtype("self"), DType::Int64}; })
      .shapes(twice)
      .non_differentiable({1})
      .loop([](const LoopCall& c, Index i) {
        return std::vector<Expr>{extremum(c, monoid::argmin, i, 0), extremum(c, monoid::argmin, i, 1)};
      })
      // By the position; derived, each element looks for the minimum anew.
      .vjp(to_places)
      .samples({"self[], dim=0", "self![3, 4], dim=1", "self![2, 3, 4], dim=0, keepdim=True",
                "self![33, 65], dim=0"});
  define("put_along(Tensor grad, Tensor indices, SymInt[] size, int dim, bool keepdim) -> Tensor")
      .doc(
          "Zeros of `size` with grad at `indices` along `dim`: the gradient of operators that pick one value.")
      .bind(hidden)
      .shape([](const Call& c) { return Dims(c.ints("size")); })
      .loop([](const LoopCall& c, Index i) {
        if (i.empty()) return c.load("grad", i);
        int k = wrap_dim("put_along", c.integer("dim").guard_int(), int(i.size()));
        Index j = i;
        if (c.flag("keepdim")) j[size_t(k)] = integer(0);
        else j = without(i, k);
        Expr g = c.load("grad", j);
        return select(eq(c.load("indices", j), i[size_t(k)]), g, constant(0.0, g.dtype()));
      })
      .samples({"grad[3], indices<4>[3], size=[3, 4], dim=1, keepdim=False",
                "grad[3, 1], indices<4>[3, 1], size=[3, 4], dim=1, keepdim=True"});
  define("argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor")
      .doc("Position of the first largest value along `dim` (of the flattened tensor if None).")
      .dtypes(d::integral | d::floating)
      .result(ResultType::int64)
      .non_differentiable()
      .shape(reduced_not_empty("the position of the maximum"))
      .loop([](const LoopCall& c, Index i) { return extremum(c, monoid::argmax, i, 1); })
      .samples({"self[]", "self![2, 3, 4]", "self![3, 4], dim=1", "self![3, 4], dim=0, keepdim=True",
                "self![33, 65], dim=1"});
  define("argmin(Tensor self, int? dim=None, bool keepdim=False) -> Tensor")
      .doc("Position of the first smallest value along `dim` (of the flattened tensor if None).")
      .dtypes(d::integral | d::floating)
      .result(ResultType::int64)
      .non_differentiable()
      .shape(reduced_not_empty("the position of the minimum"))
      .loop([](const LoopCall& c, Index i) { return extremum(c, monoid::argmin, i, 1); })
      .samples({"self[]", "self![2, 3, 4]", "self![3, 4], dim=1", "self![3, 4], dim=0, keepdim=True",
                "self![33, 65], dim=0"});
  define("any(Tensor self, int[1]? dim=None, bool keepdim=False) -> Tensor")
      .dtypes(d::stored)
      .doc("Is any element over `dim` non-zero?")
      .result(truth_dtype)
      .non_differentiable()
      .shape(truth_sizes)
      .loop([](const LoopCall& c, Index i) { return truth(c, monoid::any, i); })
      .samples({"self[]", "self[2, 3, 4]", "self[3, 4], dim=[1]", "self[3, 4], dim=[0], keepdim=True",
                "self[0, 3], dim=[0]"});
  define("all(Tensor self, int[1]? dim=None, bool keepdim=False) -> Tensor")
      .dtypes(d::stored)
      .doc("Are all elements over `dim` non-zero?")
      .result(truth_dtype)
      .non_differentiable()
      .shape(truth_sizes)
      .loop([](const LoopCall& c, Index i) { return truth(c, monoid::all, i); })
      .samples({"self[]", "self[2, 3, 4]", "self[3, 4], dim=[1]", "self[3, 4], dim=[0], keepdim=True",
                "self[0, 3], dim=[0]"});
  define("count_nonzero(Tensor self, int[1]? dim=None) -> Tensor")
      .converting_out()
      .doc("How many elements over `dim` are non-zero.")
      .procedure([](const Tensor& self, Sizes dim) { return sum(ne(self, 0), dim); })
      .samples({"self[3, 4]", "self[3, 4], dim=[1]", "self[0]"});

  define("hash_tensor(Tensor self, int[1] dim=[], *, bool keepdim=False, int mode=0) -> Tensor")
      .doc(
          "The exclusive or over `dim` (all) of the elements' 64 bits, integers as int64 and numbers as float64, in uint64. `mode` must be 0.")
      .dtypes(d::integral | d::floating | d::boolean)
      .exact_out()
      .non_differentiable()
      .procedure([](const Tensor& self, SymSpan dim, bool keepdim, int64_t mode) {
        runtime_check(mode == 0, "hash_tensor") << "unknown hash_tensor mode: " << mode << ", expected 0";
        return hash_of(self, dim, keepdim);
      })
      .samples({"self[3, 4]", "self[]", "self[3, 5], dim=[1], keepdim=True", "self[2, 3, 4], dim=[0, 2]",
                "self[2, 0], dim=[0]"});

  define("_square_deviation(Tensor self, int[] dim, bool keepdim) -> Tensor")
      .doc(
          "Sum of squared distances from the mean over `dim`. Its gradient knows that the mean adds nothing to it.")
      .bind(hidden)
      .dtypes(d::floating | d::complex)
      .result(ResultType::real)
      .shape(reduced())
      .loop([](const LoopCall& c, Index i) {
        auto of = [&](Expr (*component)(Expr)) {
          return part(Axes(c).reduce(monoid::welford, i,
                                     [&](Index j) { return component(c.load("self", j)); }),
                      1);
        };
        return is_complex(c.dtype("self")) ? of(loop::real) + of(loop::imag) : of([](Expr x) { return x; });
      })
      // The mean adds nothing to it; derived, each element computes it anew.
      .vjp(gradient_of_centre)
      .samples({"self[3, 4], dim=[1], keepdim=True", "self[2, 3, 4], dim=[0, 2], keepdim=False",
                "self[33, 129], dim=[1], keepdim=True", "self[129, 33], dim=[0], keepdim=False"});
  define("_mean_and_deviation(Tensor self, int[] dim, bool keepdim) -> (Tensor mean, Tensor deviation)")
      .doc("Mean and `_square_deviation` over `dim`; the mean is corrected by the sum of what is left.")
      .bind(hidden)
      .dtypes(d::floating)
      .shapes([](const Call& c) { return std::vector<Dims>(2, reduced()(c)); })
      .loop([](const LoopCall& c, Index i) {
        Expr fold = Axes(c).reduce(monoid::welford, i, [&](Index j) { return c.load("self", j); });
        return std::vector<Expr>{part(fold, 0), part(fold, 1)};
      })
      // The mean adds nothing to it; derived, each element computes it anew.
      .vjp(gradient_of_centre)
      .samples({"self[3, 4], dim=[1], keepdim=True", "self[2, 3, 4], dim=[0, 2], keepdim=False",
                "self[33, 129], dim=[1], keepdim=True", "self[129, 33], dim=[0], keepdim=False"});
  define("_moments(Tensor self, int[] dim, bool keepdim) -> (Tensor mean, Tensor deviation)")
      .doc(
          "Mean and `_square_deviation` over `dim`; the mean is corrected by the sum of what is left. Beside an infinity it "
          "is NaN, but for the last element: Welford's recurrence ends there.")
      .bind(hidden)
      .dtypes(d::floating)
      .shapes([](const Call& c) { return std::vector<Dims>(2, reduced()(c)); })
      .loop([](const LoopCall& c, Index i) {
        Axes axes(c);
        auto at = [&](Index j) { return c.load("self", j); };
        Expr n = integer(1);
        for (auto& b : axes.domain().vars) n = n * b.extent;
        Expr fold = axes.reduce(monoid::welford, i, at), sum = axes.reduce(monoid::sum, i, at);
        Expr before = axes.reduce(monoid::any, i, [&](Index j) {
          return isinf(at(j)) & (axes.position() < n - Scalar(int64_t(1)));
        });
        Expr mean = part(fold, 0);
        bool wide = mean.dtype() == DType::Float64;
        double largest = wide ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max();
        Expr last = bit_not(abs(mean) <= largest) & isinf(sum) & bit_not(before);
        return std::vector<Expr>{select(last, sum, select(isinf(mean), constant(NAN, mean.dtype()), mean)),
                                 part(fold, 1)};
      })
      // The mean adds nothing to it; derived, each element computes it anew.
      .vjp(gradient_of_centre)
      .samples({"self[3, 4], dim=[1], keepdim=True", "self[2, 3, 4], dim=[0, 2], keepdim=False",
                "self[33, 129], dim=[1], keepdim=True", "self[129, 33], dim=[0], keepdim=False"});
  define("_lone_deviation(Tensor self, Scalar freedom) -> Tensor")
      .doc("The squared distance of a number from itself, of which `freedom` degrees are left.")
      .bind(hidden)
      .dtypes(d::floating | d::complex)
      .result(ResultType::real)
      .shape([](const Call&) { return Dims(); })
      .loop([](const LoopCall& c, Index i) {
        auto of = [](Expr x) { return (x - x) * (x - x); };
        Expr x = c.load("self", i);
        return is_complex(x.dtype()) ? of(loop::real(x)) + of(loop::imag(x)) : of(x);
      })
      .samples({"self[], freedom=1"});
  define("_without_freedom(Tensor self, Scalar freedom) -> Tensor")
      .doc("self over 0, and over `freedom`, which is negative or NaN, in the gradient.")
      .bind(hidden)
      .dtypes(d::floating)
      .shape([](const Call& c) { return Dims(c.sizes("self")); })
      .loop([](const LoopCall& c, Index i) {
        return c.load("self", i) / constant(0.0, compute_type(c.dtype("self")));
      })
      .samples({"self[0], freedom=-2"});
  define(
      "_variance_backward(Tensor grad, Tensor self, Tensor? root, Tensor? grad_mean, int[] dim, Scalar factor, bool undefined, bool rooted=False) "
      "-> Tensor")
      .doc(
          "grad * factor * (self - mean) for a grad whose reduced dimensions are there; of the square root `root` if given, which "
          "`rooted` computes anew; and of the mean. Where no degree of freedom is left (`undefined`) only elements at the mean have "
          "no gradient.")
      .bind(hidden)
      .dtypes(d::floating | d::complex)
      .composite([](const Tensor& grad, const Tensor& self, std::optional<Tensor> given,
                    std::optional<Tensor> grad_mean, Sizes dim, const Tensor& factor, bool undefined,
                    bool rooted) {
        Tensor middle, g = given ? gradient_of_root(*given, grad) : grad;
        if (rooted) {
          auto [along, deviation] = _moments(self, dim, true);
          middle = along, g = gradient_of_root(root(div(mul(deviation, factor), 2)), grad);
        } else {
          middle = self.dim() ? mean(self, dim, true) : self;
        }
        if (!self.dim() && is_complex(self.dtype()))  // an infinity by parts is no mean
          middle = where(isfinite(self), self, full_like(self, std::numeric_limits<double>::quiet_NaN()));
        Tensor result;
        if (undefined) {
          Tensor none = zeros_like(g), endless = add(none, std::numeric_limits<double>::infinity());
          result = mul(g, where(eq(self, middle), mul(none, endless), endless));
        } else {
          result = mul(mul(g, factor), sub(self, middle));
        }
        if (!grad_mean) return result;
        Ints dims;
        for (auto k : dim) dims.push_back(k.guard_int());
        return add(result, div(*grad_mean, reduced_count(self.sizes(), dims)));
      })
      .samples(
          {"grad[3, 1], self[3, 4], root=None, grad_mean=None, dim=[1], factor=0.5, undefined=False",
           "grad[3, 1], self[3, 4], root[3, 1](0.1, 2), grad_mean[3, 1], dim=[1], factor=0.5, undefined=False",
           "grad[3, 1], self[3, 4], root=None, grad_mean=None, dim=[1], factor=0.5, undefined=False, rooted=True"});
  define("var(Tensor self, int[1]? dim=None, *, float? correction=1, bool keepdim=False) -> Tensor")
      .check(warn_of_freedom)
      .converting_out()
      .for_out(dtype_of_moments)
      .doc("Variance over `dim`: mean squared deviation, with `correction` subtracted from the count.")
      .dtypes(d::floating | d::complex)
      .composite([](const Tensor& self, Sizes dim, std::optional<double> correction, bool keepdim) {
        return catalog::narrowed(moments(in_float64(self), dim, correction, keepdim, false).variance,
                                 real_of(self.dtype()));
      })
      // In one sweep, and as PyTorch's where no freedom is left.
      .vjp(gradient_of_moments(false))
      .samples(reduction_samples());
  define("var.unbiased(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> Tensor")
      .converting_out()
      .for_out(dtype_of_moments)
      .doc("Variance over `dim`, unbiased or not.")
      .procedure([](const Tensor& self, Sizes dim, bool unbiased, bool keepdim) {
        return var(self, dim, std::optional<double>(unbiased ? 1.0 : 0.0), keepdim);
      })
      .samples({"self[3, 4], dim=[1], unbiased=False", "self[3, 4], dim=[0], unbiased=True, keepdim=True"});
  define("std(Tensor self, int[1]? dim=None, *, float? correction=1, bool keepdim=False) -> Tensor")
      .check(warn_of_freedom)
      .converting_out()
      .for_out(dtype_of_moments)
      .doc("Standard deviation over `dim`.")
      .dtypes(d::floating | d::complex)
      .composite([](const Tensor& self, Sizes dim, std::optional<double> correction, bool keepdim) {
        return catalog::narrowed(root(moments(in_float64(self), dim, correction, keepdim, false).variance),
                                 real_of(self.dtype()));
      })
      // In one sweep, and as PyTorch's where no freedom is left.
      .vjp(gradient_of_moments(true))
      .samples({"self[3, 4], dim=[1]", "self[3, 4]", "self[2, 3, 4], dim=[0, 2], correction=0, keepdim=True",
                "self[33, 129], dim=[1]"});
  define("std.unbiased(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> Tensor")
      .converting_out()
      .for_out(dtype_of_moments)
      .doc("Standard deviation over `dim`, unbiased or not.")
      .procedure([](const Tensor& self, Sizes dim, bool unbiased, bool keepdim) {
        return facula::std(self, dim, std::optional<double>(unbiased ? 1.0 : 0.0), keepdim);
      })
      .samples({"self[3, 4], dim=[1], unbiased=False", "self[3, 4], dim=[0], unbiased=True, keepdim=True"});
  define("var.all(Tensor self, bool unbiased) -> Tensor")
      .converting_out()
      .doc("Variance of all elements, unbiased or not.")
      .procedure([](const Tensor& self, bool unbiased) {
        return var(self, Sizes(), std::optional<double>(unbiased ? 1.0 : 0.0));
      })
      .samples({"self[3, 4], unbiased=False", "self[5], unbiased=True"});
  define("std.all(Tensor self, bool unbiased) -> Tensor")
      .converting_out()
      .doc("Standard deviation of all elements, unbiased or not.")
      .procedure([](const Tensor& self, bool unbiased) {
        return facula::std(self, Sizes(), std::optional<double>(unbiased ? 1.0 : 0.0));
      })
      .samples({"self[3, 4], unbiased=False", "self[5], unbiased=True"});
  define(
      "var_mean(Tensor self, int[1]? dim=None, *, float? correction=1, bool keepdim=False) -> (Tensor, Tensor)")
      .check(warn_of_freedom)
      .doc("Variance and mean over `dim`.")
      .dtypes(d::floating | d::complex)
      .composite([](const Tensor& self, Sizes dim, std::optional<double> correction, bool keepdim) {
        auto [mean, variance] = moments(in_float64(self), dim, correction, keepdim, true);
        return std::tuple(catalog::narrowed(variance, real_of(self.dtype())),
                          catalog::narrowed(mean, self.dtype()));
      })
      // In one sweep, and as PyTorch's where no freedom is left.
      .vjp(gradient_of_moments(false))
      .samples(
          {"self[3, 4], dim=[1]", "self[3, 4]", "self[2, 3, 4], dim=[0, 2], correction=0, keepdim=True"});
  define(
      "var_mean.unbiased(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> (Tensor, Tensor)")
      .doc("Variance and mean over `dim`, unbiased or not.")
      .procedure([](const Tensor& self, Sizes dim, bool unbiased, bool keepdim) {
        return var_mean(self, dim, std::optional<double>(unbiased ? 1.0 : 0.0), keepdim);
      })
      .samples({"self[3, 4], dim=[1], unbiased=False", "self[3, 4], dim=[0], unbiased=True, keepdim=True"});
  define("var_mean.all(Tensor self, bool unbiased) -> (Tensor, Tensor)")
      .doc("Variance and mean of all elements, unbiased or not.")
      .procedure([](const Tensor& self, bool unbiased) {
        return var_mean(self, Sizes(nullopt), std::optional<double>(unbiased ? 1.0 : 0.0));
      })
      .samples({"self[3, 4], unbiased=False"});
  define(
      "std_mean(Tensor self, int[1]? dim=None, *, float? correction=1, bool keepdim=False) -> (Tensor, Tensor)")
      .check(warn_of_freedom)
      .doc("Standard deviation and mean over `dim`.")
      .dtypes(d::floating | d::complex)
      .composite([](const Tensor& self, Sizes dim, std::optional<double> correction, bool keepdim) {
        auto [mean, variance] = moments(in_float64(self), dim, correction, keepdim, true);
        return std::tuple(catalog::narrowed(root(variance), real_of(self.dtype())),
                          catalog::narrowed(mean, self.dtype()));
      })
      // In one sweep, and as PyTorch's where no freedom is left.
      .vjp(gradient_of_moments(true))
      .samples({"self[3, 4], dim=[1]", "self[2, 3, 4], dim=[0, 2], correction=0, keepdim=True"});
  define(
      "std_mean.unbiased(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> (Tensor, Tensor)")
      .doc("Standard deviation and mean over `dim`, unbiased or not.")
      .procedure([](const Tensor& self, Sizes dim, bool unbiased, bool keepdim) {
        return std_mean(self, dim, std::optional<double>(unbiased ? 1.0 : 0.0), keepdim);
      })
      .samples({"self[3, 4], dim=[1], unbiased=False"});
  define("std_mean.all(Tensor self, bool unbiased) -> (Tensor, Tensor)")
      .doc("Standard deviation and mean of all elements, unbiased or not.")
      .procedure([](const Tensor& self, bool unbiased) {
        return std_mean(self, Sizes(nullopt), std::optional<double>(unbiased ? 1.0 : 0.0));
      })
      .samples({"self[3, 4], unbiased=False"});
  define("norm.str(Tensor self, str p, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor")
      .doc("p = 'fro': the 2-norm over `dim`; p = 'nuc': the sum of singular values.")
      .procedure([](const Call& c, const Tensor& self, std::string_view p, Sizes dim, bool keepdim) {
        runtime_check(p == "fro" || p == "nuc", "norm")
            << "p must be a number, 'fro' or 'nuc', got '" << p << "'";
        if (p == "nuc") {
          Dims both;
          for (int64_t k = 0; dim.is_none() && k < self.dim(); ++k) both.push_back(SymInt(k));
          if (!dim.is_none()) both = Dims(SymSpan(dim.begin(), dim.size()));
          return linalg_matrix_norm(self, p, both, keepdim, c.maybe_dtype("dtype"));
        }
        return norm(self, std::optional<Scalar>(Scalar(2.0)), dim, keepdim, c.maybe_dtype("dtype"));
      })
      .samples({"self[3, 4], p='fro'", "self[3, 4], p='fro', dim=[1]"});
  define(
      "norm(Tensor self, Scalar? p=2, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor")
      .doc("The p-norm over `dim`: (sum |x|^p)^(1/p); p = inf, -inf and 0 are the limits.")
      .grad_name("LinalgVectorNorm")
      .composite([](const Call& c, const Tensor& self, std::optional<Scalar> p, Sizes dim, bool keepdim,
                    std::optional<DType> dtype) {
        runtime_check(!dtype || !is_complex(*dtype) || is_complex(self.dtype()), "norm")
            << "dtype should be real for real inputs, but got " << *dtype;
        Tensor x = dtype ? to_dtype(self, *dtype) : self;
        runtime_check(is_differentiable(x.dtype()), "norm")
            << "expected a floating point or complex tensor, got " << x.dtype() << hint("x.float().norm()");
        runtime_check(!p || p->category() != Category::complex, "norm")
            << "expected a non-complex number as the order of the norm, got " << *p;
        double order = p ? p->to_double() : 2;
        Tensor magnitude = abs(x);
        if (order && reduced_count(x.sizes(), c.dims("dim")) == SymInt(int64_t(1)))
          order = 1;  // without overflow
        if (order == 2) {
          Tensor total = sum(is_complex(x.dtype()) ? mul(magnitude, magnitude) : mul(x, x), dim, keepdim);
          return sqrt(total);
        }
        if (order == 1) return sum(magnitude, dim, keepdim);
        if (std::isinf(order)) {
          Sizes all = dim.is_none() ? Sizes() : dim;
          return order > 0 ? amax(magnitude, all, keepdim) : amin(magnitude, all, keepdim);
        }
        if (order == 0) return sum(to_dtype(ne(x, 0), magnitude.dtype()), dim, keepdim);
        if (order < 0) check_not_empty(c, "a norm of negative order");
        return pow(sum(pow(magnitude, order), dim, keepdim), 1 / order);
      })
      // 0 at 0, and by the powers that PyTorch takes, which say what overflows.
      .vjp([](const Vjp& v) {
        auto& c = v.call();
        Tensor x = v["self"], y = put_back(v, v.result()), g = put_back(v, v.grad());
        double order = c.has("p") ? c.real("p") : 2;
        bool one = reduced_count(x.sizes(), c.dims("dim")) == SymInt(int64_t(1));
        return grads(
            gradient_of_norm(x, y, g, order, one || compute_type(x.dtype()) != x.dtype(), c.dims("dim")));
      })
      .samples(reduction_samples());
  define("_normalize(Tensor self, float p, int[1] dim, float eps) -> Tensor")
      .check(fitting({"eps"}))
      .python("normalize(input, p=2.0, dim=1, eps=1e-12, out=None)")
      .converting_out()
      .doc("self over its p-norm along `dim`, or over eps if that is larger.")
      .grad_name("Div")
      .bind(hidden)
      .dtypes(d::floating | d::complex)
      .composite([](const Tensor& self, double p, SymSpan dim, double eps) {
        return div(self, clamp_min(norm(self, std::optional<Scalar>(p), dim, true), eps));
      })
      .samples({"self[3, 4], p=2.0, dim=[1], eps=1e-12", "self[2, 3, 2], p=3.0, dim=[0, 2], eps=1e-12"});
  define("_cosine_similarity(Tensor self, Tensor other, int dim, float eps) -> Tensor")
      .doc("The product along `dim` of self and other, each over its length or over eps if that is larger.")
      .grad_name("Sum", 1)
      .bind(hidden)
      .dtypes(d::floating | d::complex)
      .composite([](const Tensor& self, const Tensor& other, int64_t dim, double eps) {
        auto unit = [&](const Tensor& x) {
          return div(x, clamp_min(norm(x, std::optional<Scalar>(2.0), Sizes{dim}, true), eps));
        };
        return sum(mul(unit(self), unit(other)), Sizes{dim});
      })
      // Like PyTorch's gradient, this includes the part through the lengths where eps bounds them.
      .vjp([](const Vjp& v) {
        auto& c = v.call();
        Tensor g = self_or_unsqueezed(v), a = v["self"], b = v["other"];
        auto of = [&](const char* one, const Tensor& x, const Tensor& y) {
          return v.needs(one) ? _cosine_similarity_backward(g, x, y, c.dim("dim"), c.real("eps")) : Tensor();
        };
        return grads(of("self", a, b), of("other", b, a));
      })
      .samples({"self[3, 4], other[3, 4], dim=1, eps=1e-08"});
  define("_cosine_similarity_backward(Tensor grad, Tensor self, Tensor other, int dim, float eps) -> Tensor")
      .doc("The gradient of _cosine_similarity for self, of a grad with `dim`; eps does not stop it.")
      .bind(hidden)
      .dtypes(d::floating | d::complex)
      .composite([](const Tensor& grad, const Tensor& x, const Tensor& y, int64_t dim, double eps) {
        auto length_of = [&](const Tensor& t) {
          return norm(t, std::optional<Scalar>(2.0), Sizes{dim}, true);
        };
        Tensor length = length_of(x), bounded = clamp_min(length, eps);
        Tensor g = mul(grad, conj_physical(div(y, clamp_min(length_of(y), eps))));
        return add(div(g, bounded),
                   gradient_by_length(g, x, div(x, bounded), length, bounded, 2, Sizes{dim}, -1));
      })
      .samples({"grad[3, 1], self[3, 4], other[3, 4], dim=1, eps=1e-08"});
  define("renorm(Tensor self, Scalar p, int dim, Scalar maxnorm) -> Tensor")
      .doc("self with each slice along `dim` whose p-norm is above maxnorm scaled down to it.")
      .dtypes(d::floating | d::complex)
      .in_place()
      .composite([](const Tensor& self, const Scalar& p, int64_t dim, const Scalar& maxnorm) {
        runtime_check(p.category() != Category::complex && maxnorm.category() != Category::complex, "renorm")
            << "p and maxnorm must be real-valued";
        runtime_check(p.to_double() > 0, "renorm") << "non-positive norm not supported, got p = " << p;
        runtime_check(maxnorm.to_double() >= 0, "renorm")
            << "expected maxnorm to be >= 0 but got " << maxnorm;
        runtime_check(self.dim() > 1, "renorm")
            << "input needs at least 2 dimensions, got shape " << to_string(self.sizes());
        int k = wrap_dim("renorm", dim, self.dim());
        Ints others;
        for (int j = 0; j < self.dim(); ++j)
          if (j != k) others.push_back(j);
        supported_check(is_differentiable(self.dtype()), "renorm")
            << "expected a floating point or complex tensor, got " << self.dtype() << hint("x.float()");
        Tensor length = linalg_vector_norm(self, p, others, true, compute_type(self.dtype())),
               above = gt(length, maxnorm.to_double());
        // A slice that is short enough, or NaN, is unchanged, and so is its gradient.
        Tensor scale = where(above, div(mul(ones_like(length), maxnorm.to_double()), add(length, 1e-7)),
                             ones_like(length));
        return mul(self, to_dtype(scale, self.dtype()));
      })
      // In float64, as PyTorch's; what is not scaled takes no part.
      .vjp([](const Vjp& v) {
        auto& c = v.call();
        Tensor x = v["self"], g = v.grad();
        Ints others;
        for (int j = 0; j < x.dim(); ++j)
          if (j != c.dim("dim")) others.push_back(j);
        Scalar p = c.number("p");
        double limit = c.number("maxnorm").to_double();
        // In float64, as in PyTorch, whose forward keeps to float32.
        DType wide = x.dtype() == DType::Float32 ? DType::Float64 : compute_type(x.dtype());
        Tensor length = linalg_vector_norm(x, p, others, true, wide), inverse = reciprocal(add(length, 1e-7));
        Tensor along = mul(conj_physical(x), g);
        along = sum(to_dtype(is_complex(x.dtype()) ? _real(along) : along, length.dtype()), others, true);
        Tensor turned = gradient_of_norm(x, length, along, p.to_double(), false, others);
        Tensor scaled = mul(mul(inverse, limit), sub(g, mul(inverse, turned)));
        return grads(where(gt(length, limit), to_dtype(scaled, g.dtype()), g));
      })
      .samples({"self[3, 4], p=2, dim=0, maxnorm=0.5", "self[2, 3, 2], p=1, dim=-1, maxnorm=1"});
  define("nanmean(Tensor self, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor")
      .converting_out()
      .bad_conversion(ErrorType::NotImplementedError)
      .doc("Mean of the elements over `dim` that are not NaN.")
      .grad_name("Div")
      .composite([](const Tensor& self, Sizes dim, bool keepdim, std::optional<DType> dtype) {
        runtime_check(is_differentiable(self.dtype()), "nanmean")
            << "expected input to have floating point or complex dtype but got " << self.dtype();
        Tensor nan = isnan(self);
        Tensor total = is_complex(self.dtype()) ? sum(where(nan, zeros_like(self), self), dim, keepdim, dtype)
                                                : nansum(self, dim, keepdim, dtype);
        return div(total, sum(logical_not(nan), dim, keepdim));
      })
      .samples({"self[3, 4]", "self[3, 4], dim=[1], keepdim=True"});
  define("nansum(Tensor self, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor")
      .dtypes(d::any | d::wide_unsigned)
      .converting_out()
      .bad_conversion(ErrorType::NotImplementedError)
      .doc("Sum of the elements over `dim` that are not NaN.")
      .composite([](const Tensor& self, Sizes dim, bool keepdim, std::optional<DType> dtype) {
        runtime_check(!is_complex(self.dtype()), "nansum")
            << "does not support complex inputs, got " << self.dtype();
        if (!is_floating(self.dtype())) return sum(self, dim, keepdim, dtype);
        return sum(where(isnan(self), zeros_like(self), self), dim, keepdim, dtype);
      })
      // By a factor of 0 where self is NaN, as in PyTorch: the mean of nothing has a gradient of NaN.
      .vjp([](const Vjp& v) {
        Tensor x = v["self"];
        return grads(
            mul(to_dtype(put_back(v, v.grad()), x.dtype()), to_dtype(logical_not(isnan(x)), x.dtype())));
      })
      .samples({"self[3, 4]", "self[3, 4], dim=[1], keepdim=True"});
  define("logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor")
      .converting_out()
      .for_out([](const Call& c, std::span<const Tensor> out) {
        DType self = c.dtype("self"), to = out[0].dtype();
        DType computed = is_differentiable(self) ? self : default_dtype();
        bool wider = itemsize(real_of(to)) > itemsize(real_of(computed));
        return wider && is_differentiable(to) && can_cast(self, to) ? to : self;
      })
      .doc("log(sum(exp(self))) over `dim`, without overflow.")
      .bind(function | method | special)
      .dtypes(d::floating | d::complex)
      .composite([](const Tensor& input, SymSpan dim, bool keepdim) {
        Tensor self = is_differentiable(input.dtype()) ? input : to_dtype(input, default_dtype());
        Tensor top = _top(is_complex(self.dtype()) ? _real(self) : self, dim);
        Tensor shift = where(isinf(top), zeros_like(top), top);
        Tensor y = add(log(sum(exp(sub(self, shift)), dim, true)), shift);
        return keepdim ? y : dim.empty() ? view(y, Sizes(Dims{})) : squeeze(y, dim);
      })
      // By the result, as PyTorch's: where that absorbs the logarithm of the count too.
      .vjp([](const Vjp& v) {
        Tensor x = v["self"], g = put_back(v, v.grad());
        if (!is_rounded(x)) return grads(mul(g, conj_physical(exp(sub(x, put_back(v, v.result()))))));
        return grads(_logsumexp_backward(g, x, v.call().dims("dim")));
      })
      .samples({"self[3, 4], dim=[1]", "self[2, 3, 4], dim=[0, 2], keepdim=True", "self[33, 129], dim=[1]",
                "self[3, 4], dim=[]"});
  define("_logsumexp_backward(Tensor grad, Tensor self, int[] dim) -> Tensor")
      .doc("The gradient of logsumexp, whose reduced dimensions are there, from the operand alone.")
      .bind(hidden)
      .composite([](const Tensor& grad, const Tensor& self, Sizes dim) {
        return mul(grad, exp(sub(self, logsumexp(self, dim, true))));
      })
      .samples({"grad[3, 1], self[3, 4], dim=[1]"});

  running("cumsum(Tensor self, int dim, *, dtype? dtype=None) -> Tensor", "Running sums along `dim`.",
          monoid::sum)
      // A sum from behind; derived, one for each element.
      .vjp([](const Vjp& v) {
        if (v.call().rank("self") == 0) return grads(v.grad());
        int k = v.call().dim("dim");
        return grads(flip(cumsum(flip(v.grad(), k), k), k));
      })
      .samples({"self[], dim=0", "self[3, 4], dim=1", "self[2, 3, 4], dim=0", "self[0, 3], dim=1",
                "self[3, 1025], dim=1"});
  running("cumprod(Tensor self, int dim, *, dtype? dtype=None) -> Tensor", "Running products along `dim`.",
          monoid::prod)
      // Transposition derives sums alone.
      .vjp([](const Vjp& v) {
        if (v.call().rank("self") == 0) return grads(v.grad());
        int k = v.call().dim("dim");
        if (v["self"].size(k) == SymInt(int64_t(1))) return grads(v.grad());
        return grads(_cumprod_backward(v.grad(), v["self"], k));
      })
      .samples({"self[](0.5, 1.5), dim=0", "self[3, 4](0.5, 1.5), dim=1", "self[2, 3, 4](0.5, 1.5), dim=0",
                "self[0, 3], dim=1"});
  define("_cumprod_backward(Tensor grad, Tensor self, int dim) -> Tensor")
      .doc("The gradient of cumprod: by division, except at the first zero; behind it everything is zero.")
      .bind(hidden)
      .composite([](const Tensor& g, const Tensor& x, int64_t k) {
        Tensor zero = eq(x, 0), zeros = cumsum(zero, k), first = logical_and(zero, eq(zeros, 1));
        Tensor filled = cumprod(where(first, ones_like(x), x), k),
               y = where(eq(zeros, 0), filled, mul(filled, 0));
        auto later = [&](const Tensor& t) { return flip(cumsum(flip(mul(g, conj_physical(t)), k), k), k); };
        return where(first, later(filled), div(later(y), conj_physical(where(zero, ones_like(x), x))));
      })
      .vjp([](const Vjp& v) {
        // Computes E S without divisions: E are the products of the preceding elements, S(k) = g(k) + c(k + 1) S(k + 1), and c is the
        // conjugate of x.
        int k = v.call().dim("dim");
        Tensor w = v.grad(), g = v["grad"], c = conj_physical(v["self"]);
        if (c.size(k).guard_int() == 0) return grads(zeros_like(g), zeros_like(c));
        Tensor products = cumprod(c, k), before = shifted(products, k, 1, 1);
        Tensor sums = flip(recurrence(shifted(flip(c, k), k, 1, 0), flip(g, k), k), k);
        Tensor of_g = recurrence(conj_physical(c), mul(w, conj_physical(before)), k);
        Tensor of_c = add(mul(shifted(of_g, k, 1, 0), conj_physical(sums)),
                          _cumprod_backward(shifted(mul(w, conj_physical(sums)), k, -1, 0), c, k));
        return grads(of_g, conj_physical(of_c));
      })
      .samples({"grad[3, 4], self[3, 4](0.5, 1.5), dim=1"});
  define("logcumsumexp(Tensor self, int dim) -> Tensor")
      .doc("log of the running sums of exp(self) along `dim`, without overflow.")
      .dtypes(d::floating | d::complex)
      .shape([](const Call& c) {
        c.dim("dim");
        return Dims(c.sizes("self"));
      })
      .library("logcumsumexp")
      .batched_in_front()
      .reference([](const Tensor& self, int64_t dim) { return running_log_sums(self, dim); })
      // Sums from behind, of g(j) exp(x(i) - y(j)): by a recurrence whose factors exp(y(i) - y(i + 1)) are at most 1.
      .vjp([](const Vjp& v) {
        Tensor x = v["self"], y = v.result(), g = v.grad();
        if (x.dim() == 0) return grads(g);
        DType dtype = x.dtype(), computing = is_complex(dtype) ? DType::Complex128 : DType::Float64;
        if (computing != dtype) {  // a rounded y says little of x - y
          x = to_dtype(x, computing), g = to_dtype(g, computing);
          y = logcumsumexp(x, v.call().dim("dim"));
        }
        int k = v.call().dim("dim");
        if (x.size(k) == SymInt(int64_t(0))) return grads(zeros_like(v["self"]));
        Tensor back = flip(y, k), first = narrow(back, k, int64_t(0), int64_t(1));
        Tensor before =
            cat(std::vector<Tensor>{first, narrow(back, k, int64_t(0), y.size(k) - SymInt(int64_t(1)))}, k);
        Tensor factors = exp(where(eq(back, before), zeros_like(back), sub(back, before)));
        Tensor sums = flip(recurrence(conj_physical(factors), flip(g, k), k), k);
        Tensor result = mul(sums, conj_physical(exp(sub(x, y))));
        return grads(computing == dtype ? result : to_dtype(result, dtype));
      })
      .samples({"self[], dim=0", "self[3, 4], dim=1", "self[2, 3, 4], dim=0", "self[0, 3], dim=1"});
  define("sum_to_size(Tensor self, SymInt[] size) -> Tensor")
      .doc("self summed over the dimensions in which `size` is smaller: the inverse of broadcasting.")
      .bind(method)
      .procedure([](const Tensor& self, SymSpan size) {
        runtime_check(broadcasts_to(size, self.sizes()), "sum_to_size")
            << "size " << to_string(size) << " is not expandable to " << to_string(self.sizes());
        Ints over;
        int leading = self.dim() - int(size.size());
        for (int k = 0; k < self.dim(); ++k)
          if (k < leading ||
              (size[size_t(k - leading)] == SymInt(int64_t(1)) && self.size(k) != SymInt(int64_t(1))))
            over.push_back(k);
        if (over.empty())
          return !is_differentiable(self.dtype()) && size.empty() ? sum(self)
                                                                  : self;  // as PyTorch: bool becomes int64
        Tensor t = sum(self, over, true);
        return leading ? view(t, size) : t;
      })
      .samples({"self[2, 3, 4], size=[3, 1]", "self[3, 4], size=[3, 4]"});
}
