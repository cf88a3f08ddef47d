// Reductions over dimensions, and running ones.
#include "facula/catalog/reduce_helpers.h"
#include "facula/catalog/selected.h"
#include "facula/catalog/widened.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"
#include "facula/tensor/promotion.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
using catalog::is_rounded;
using catalog::put_back;
namespace d = facula::dtypes;
using namespace facula::catalog::reduce_helpers;

namespace {
DType accumulation_dtype(const Call& c) { return c.maybe_dtype("dtype").value_or(c.dtype("self")); }
// any and all give bool; of uint8 they give uint8.
std::vector<DType> truth_dtype(const Call& c) {
  return {c.dtype("self") == DType::UInt8 ? DType::UInt8 : DType::Bool};
}
// any and all: dim=[] is no dimension there, as in PyTorch, where it is every one of sum's.
bool over_nothing(const Call& c) { return c["dim"].tag == Tag::ints && c.ints("dim").empty(); }
Dims truth_sizes(const Call& c) { return over_nothing(c) ? Dims(c.sizes("self")) : reduced()(c); }
Expr truth(const LoopCall& c, Monoid m, Index i) {
  auto at = [&](Index j) { return cast(c.load("self", j), DType::Bool); };
  return over_nothing(c) ? at(i) : reduce_over(c, m, i, at);
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
  define("any(Tensor self, int[1]? dim=None, bool keepdim=False) -> Tensor")
      .dtypes(d::stored)
      .doc("Is any element over `dim` non-zero?")
      .result(truth_dtype)
      .non_differentiable("the results are truth values")
      .shape(truth_sizes)
      .loop([](const LoopCall& c, Index i) { return truth(c, monoid::any, i); })
      .samples({"self[]", "self[2, 3, 4]", "self[3, 4], dim=[1]", "self[3, 4], dim=[0], keepdim=True",
                "self[0, 3], dim=[0]"});
  define("all(Tensor self, int[1]? dim=None, bool keepdim=False) -> Tensor")
      .dtypes(d::stored)
      .doc("Are all elements over `dim` non-zero?")
      .result(truth_dtype)
      .non_differentiable("the results are truth values")
      .shape(truth_sizes)
      .loop([](const LoopCall& c, Index i) { return truth(c, monoid::all, i); })
      .samples({"self[]", "self[2, 3, 4]", "self[3, 4], dim=[1]", "self[3, 4], dim=[0], keepdim=True",
                "self[0, 3], dim=[0]"});
  define("count_nonzero(Tensor self, int[1]? dim=None) -> Tensor")
      .converting_out()
      .doc("How many elements over `dim` are non-zero.")
      .composite([](const Tensor& self, Sizes dim) { return sum(ne(self, 0), dim); })
      .samples({"self[3, 4]", "self[3, 4], dim=[1]", "self[0]"});
  define("hash_tensor(Tensor self, int[1] dim=[], *, bool keepdim=False, int mode=0) -> Tensor")
      .doc(
          "The exclusive or over `dim` (all) of the elements' 64 bits, integers as int64 and numbers as float64, in uint64. `mode` must be 0.")
      .dtypes(d::integral | d::floating | d::boolean)
      .exact_out()
      .non_differentiable("the results are integers")
      .procedure([](const Tensor& self, SymSpan dim, bool keepdim, int64_t mode) {
        runtime_check(mode == 0, "hash_tensor") << "unknown hash_tensor mode: " << mode << ", expected 0";
        return hash_of(self, dim, keepdim);
      })
      .samples({"self[3, 4]", "self[]", "self[3, 5], dim=[1], keepdim=True", "self[2, 3, 4], dim=[0, 2]",
                "self[2, 0], dim=[0]"});
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
