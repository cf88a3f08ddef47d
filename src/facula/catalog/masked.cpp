// Reductions and normalisations of what a mask leaves: the operator on the elements, with its identity in place of
// those that are masked out. PyTorch's torch.masked; Python finds them in facula.masked (_masked_sum as sum).
#include <cmath>
#include <limits>

#include "facula/catalog/widened.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {

using Given = std::optional<Tensor>;

constexpr double kInf = std::numeric_limits<double>::infinity();

// The number of dtype t that an operator on it ignores: 0 of sums, 1 of products, the lowest or largest one.
Tensor identity(double value, DType t) {
  if (!is_integral(t) || std::isfinite(value)) return full(Dims{}, value, t);
  int bits = int(8 * itemsize(t));
  bool is_unsigned = t == DType::UInt8 || t == DType::Bool;
  int64_t top = t == DType::UInt8 ? 255 : t == DType::Bool ? 1 : int64_t((uint64_t(1) << (bits - 1)) - 1);
  return full(Dims{}, Scalar(value > 0 ? top : is_unsigned ? int64_t(0) : -top - 1), t);
}

// The mask, broadcast to the sizes of what it masks.
Tensor mask_of(const Call& c, const Tensor& input, const Tensor& mask) {
  index_check(mask.dim() <= input.dim(), c.name())
      << "expected a mask that broadcasts to input: " << to_string(mask.sizes())
      << " has more dimensions than " << to_string(input.sizes());
  runtime_check(broadcasts_to(mask.sizes(), input.sizes()), c.name())
      << "mask of shape " << to_string(mask.sizes()) << " does not broadcast to " << to_string(input.sizes());
  return expand(to_dtype(mask, DType::Bool), input.sizes());
}
Tensor filled(const Call& c, const Tensor& input, const Given& mask, double value) {
  return mask ? where(mask_of(c, input, *mask), input, identity(value, input.dtype())) : input;
}

Tensor as(const Tensor& t, const std::optional<DType>& dtype) { return dtype ? to_dtype(t, *dtype) : t; }
DType dtype_of_sums(const Tensor& t, const std::optional<DType>& dtype) {
  return dtype ? *dtype : is_differentiable(t.dtype()) ? t.dtype() : DType::Int64;
}
Sizes dims_of(const Sizes& dim) { return dim.is_none() ? Sizes() : dim; }

// An operator over `dim`, all dimensions if there is none, whose identity is `value`.
using Reduction = Tensor (*)(const Tensor&, Sizes dim, bool keepdim, std::optional<DType> dtype);
void define_reduction(const char* name, const char* doc, double value, Reduction f) {
  define(
      std::string("_masked_") + name +
      "(Tensor input, int[1]? dim=None, *, bool? keepdim=False, dtype? dtype=None, Tensor? mask=None) -> Tensor")
      .doc(doc)
      .bind(hidden)
      .procedure([value, f](const Call& c, const Tensor& input, Sizes dim, std::optional<bool> keepdim,
                            std::optional<DType> dtype, Given mask) {
        return f(filled(c, input, mask, value), dims_of(dim), keepdim.value_or(false), dtype);
      })
      .samples({"input[3, 9], dim=[1], mask?[3, 9]"});
}
// The position of an extremum.
using Position = Tensor (*)(const Tensor&, std::optional<int64_t> dim, bool keepdim);
void define_position(const char* name, const char* doc, double value, Position f) {
  define(
      std::string("_masked_") + name +
      "(Tensor input, int? dim=None, *, bool? keepdim=False, dtype? dtype=None, Tensor? mask=None) -> Tensor")
      .doc(doc)
      .bind(hidden)
      .non_differentiable("positions, in the dtype of the elements")
      .procedure([value, f](const Call& c, const Tensor& input, std::optional<int64_t> dim,
                            std::optional<bool> keepdim, std::optional<DType> dtype, Given mask) {
        return to_dtype(f(filled(c, input, mask, value), dim, keepdim.value_or(false)),
                        dtype.value_or(input.dtype()));
      })
      .samples({"input[3, 9], dim=1, mask?[3, 9]"});
}
// Along one dimension, with a result of the same shape.
using Along = Tensor (*)(const Tensor&, int64_t dim, DType dtype);
Definer define_along(const char* name, const char* doc, double value, Along f) {
  return define(std::string("_masked_") + name +
                "(Tensor input, int dim, *, dtype? dtype=None, Tensor? mask=None) -> Tensor")
      .doc(doc)
      .bind(hidden)
      .procedure([value, f](const Call& c, const Tensor& input, int64_t dim, std::optional<DType> dtype,
                            Given mask) {
        return f(filled(c, input, mask, value), dim, dtype.value_or(input.dtype()));
      })
      .samples({"input[3, 9], dim=1, mask?[3, 9]"});
}

// How many elements remain, and the sum of them.
Tensor count_of(const Call& c, const Tensor& input, const Sizes& dim, bool keepdim, const Given& mask) {
  Tensor kept =
      mask ? mask_of(c, input, *mask) : expand(full(Dims{}, Scalar(true), DType::Bool), input.sizes());
  return sum(kept, dim, keepdim);
}

// var and std from the deviations of what remains.
Tensor variance(const Call& c, const Tensor& input, const Sizes& dim, std::optional<bool> unbiased,
                std::optional<double> correction, bool keepdim, std::optional<DType> dtype, const Given& mask,
                bool root) {
  DType t = dtype.value_or(is_differentiable(input.dtype()) ? input.dtype() : DType::Float32);
  DType computed = is_differentiable(t) ? t : DType::Float32;
  double less = correction.value_or(unbiased.value_or(true) ? 1.0 : 0.0);
  Tensor count = count_of(c, input, dim, true, mask);
  Tensor mean = div(sum(filled(c, input, mask, 0), dim, true, t), count), x = sub(input, mean);
  Tensor square = is_complex(x.dtype()) ? mul(x, conj_physical(x)) : mul(x, x);
  Tensor total = sum(filled(c, square, mask, 0), dim, keepdim, computed);
  if (!keepdim) count = reshape(count, total.sizes());
  if (less != 0) {
    count = sub(to_dtype(count, is_complex(computed) ? real_of(computed) : computed), less);
    count = maximum(count, zeros_like(count));
  }
  Tensor y = to_dtype(div(total, count), t);
  return root ? sqrt(y) : y;
}
void define_variance(const char* name, const char* doc, bool root) {
  define(
      std::string("_masked_") + name +
      "(Tensor input, int[1]? dim=None, bool? unbiased=None, *, float? correction=None, bool? keepdim=False, dtype? dtype=None, Tensor? mask=None) -> Tensor")
      .doc(doc)
      .bind(hidden)
      .procedure([root](const Call& c, const Tensor& input, Sizes dim, std::optional<bool> unbiased,
                        std::optional<double> correction, std::optional<bool> keepdim,
                        std::optional<DType> dtype, Given mask) {
        return variance(c, input, dims_of(dim), unbiased, correction, keepdim.value_or(false), dtype, mask,
                        root);
      })
      .samples({"input[3, 16], dim=[1], mask?[3, 16]"});
}

}  // namespace

FACULA_FAMILY(masked) {
  define_reduction("sum", "Sum over `dim` of what the mask leaves.", 0,
                   [](const Tensor& x, Sizes dim, bool keep, std::optional<DType> t) {
                     return sum(x, dim, keep, dtype_of_sums(x, t));
                   });
  define_reduction("prod", "Product over `dim` of what the mask leaves.", 1,
                   [](const Tensor& x, Sizes dim, bool keep, std::optional<DType> t) {
                     Tensor y = to_dtype(x, dtype_of_sums(x, t));
                     Ints over;
                     for (auto k : dim) over.push_back(wrap_dim("prod", k.guard_int(), x.dim()));
                     if (over.empty())
                       for (int k = 0; k < x.dim(); ++k) over.push_back(k);
                     std::sort(over.begin(), over.end());
                     for (size_t k = over.size(); k-- > 0;) y = prod(y, over[k], keep);
                     return y;
                   });
  define_reduction("amax", "Largest element over `dim` of what the mask leaves.", -kInf,
                   [](const Tensor& x, Sizes dim, bool keep, std::optional<DType> t) {
                     return as(amax(x, dim, keep), t);
                   });
  define_reduction("amin", "Smallest element over `dim` of what the mask leaves.", kInf,
                   [](const Tensor& x, Sizes dim, bool keep, std::optional<DType> t) {
                     return as(amin(x, dim, keep), t);
                   });
  define_reduction("logsumexp", "log(sum(exp(input))) over `dim` of what the mask leaves.", -kInf,
                   [](const Tensor& x, Sizes dim, bool keep, std::optional<DType> t) {
                     return to_dtype(logsumexp(x, dim, keep), t.value_or(x.dtype()));
                   });
  define_position("argmax", "Position of the largest element along `dim` of what the mask leaves.", -kInf,
                  [](const Tensor& x, std::optional<int64_t> dim, bool keep) {
                    return argmax(x, dim ? std::optional<SymInt>(*dim) : std::nullopt, keep);
                  });
  define_position("argmin", "Position of the smallest element along `dim` of what the mask leaves.", kInf,
                  [](const Tensor& x, std::optional<int64_t> dim, bool keep) {
                    return argmin(x, dim ? std::optional<SymInt>(*dim) : std::nullopt, keep);
                  });
  define_along("cumsum", "Running sums along `dim` of what the mask leaves.", 0,
               [](const Tensor& x, int64_t dim, DType t) { return cumsum(x, dim, t); });
  define_along("cumprod", "Running products along `dim` of what the mask leaves.", 1,
               [](const Tensor& x, int64_t dim, DType t) { return cumprod(x, dim, t); });
  define_along("softmax", "softmax along `dim` of what the mask leaves.", -kInf,
               [](const Tensor& x, int64_t dim, DType t) { return softmax(x, dim, t); });
  define_along("log_softmax", "log_softmax along `dim` of what the mask leaves.", -kInf,
               [](const Tensor& x, int64_t dim, DType t) { return log_softmax(x, dim, t); })
      .undifferenced("logarithms of what the mask leaves out are infinite");
  define_along("softmin", "softmax of the negatives along `dim` of what the mask leaves.", kInf,
               [](const Tensor& x, int64_t dim, DType t) { return softmax(neg(x), dim, t); });
  define_variance("var", "Variance over `dim` of what the mask leaves.", false);
  define_variance("std", "Standard deviation over `dim` of what the mask leaves.", true);
  define(
      "_masked_mean(Tensor input, int[1]? dim=None, *, bool? keepdim=False, dtype? dtype=None, Tensor? mask=None) -> Tensor")
      .doc("Mean over `dim` of what the mask leaves.")
      .bind(hidden)
      .dtypes(d::floating | d::complex)
      .procedure([](const Call& c, const Tensor& input, Sizes dim, std::optional<bool> keepdim,
                    std::optional<DType> dtype, Given mask) {
        value_check(is_differentiable(dtype.value_or(input.dtype())), "masked.mean")
            << "could not infer output dtype, which must be a floating point or complex one, from "
            << input.dtype();
        Sizes over = dims_of(dim);
        bool keep = keepdim.value_or(false);
        return div(sum(filled(c, input, mask, 0), over, keep, dtype.value_or(input.dtype())),
                   count_of(c, input, over, keep, mask));
      })
      .samples({"input[3, 9], dim=[1], mask?[3, 9]"});
  define(
      "_masked_median(Tensor input, int dim=-1, *, bool keepdim=False, dtype? dtype=None, Tensor? mask=None) -> Tensor")
      .doc("Middle element along `dim` of what the mask leaves.")
      .bind(hidden)
      .reads_data()
      .undifferenced("differences reach over two elements")
      .procedure([](const Call& c, const Tensor& input, int64_t dim, bool keepdim, std::optional<DType> dtype,
                    Given mask) {
        bool floats = is_floating(input.dtype());
        Tensor x = floats ? input : to_dtype(input, DType::Float32);
        Tensor y = std::get<0>(
            nanmedian(filled(c, x, mask, std::numeric_limits<double>::quiet_NaN()), dim, keepdim));
        if (floats) return y;
        value_check(!any(isnan(y)).item().to_bool(), "masked.median")
            << "expects no fully masked out rows if dtype is not floating point";
        return to_dtype(y, dtype.value_or(input.dtype()));
      })
      .samples({"input[3, 9], dim=1, mask?[3, 9]"});
  define(
      "_masked_norm(Tensor input, float? ord=2.0, int[1]? dim=None, *, bool? keepdim=False, dtype? dtype=None, Tensor? mask=None) -> Tensor")
      .doc("Norm of order `ord` over `dim` of what the mask leaves.")
      .bind(hidden)
      .procedure([](const Call& c, const Tensor& input, std::optional<double> ord, Sizes dim,
                    std::optional<bool> keepdim, std::optional<DType> dtype, Given mask) {
        double order = ord.value_or(2);
        return linalg_vector_norm(filled(c, input, mask, order == -kInf ? kInf : 0), Scalar(order),
                                  dims_of(dim), keepdim.value_or(false), dtype.value_or(input.dtype()));
      })
      .samples({"input[3, 4], ord=2, dim=[1], mask?[3, 4]"});
  define(
      "_masked_normalize(Tensor input, float ord, int dim, *, float eps=1e-12, dtype? dtype=None, Tensor? mask=None) -> Tensor")
      .doc("What the mask leaves over its norm of order `ord` along `dim`, or over eps.")
      .bind(hidden)
      .procedure([](const Call& c, const Tensor& input, double ord, int64_t dim, double eps,
                    std::optional<DType> dtype, Given mask) {
        DType t = dtype.value_or(input.dtype());
        Tensor x = catalog::wide(input);
        Tensor length = linalg_vector_norm(filled(c, x, mask, ord == -kInf ? kInf : 0), Scalar(ord),
                                           Sizes{dim}, true, compute_type(t));
        Tensor y = div(filled(c, x, mask, 0), maximum(length, full(Dims{}, eps, length.dtype())));
        return catalog::narrowed(y, promote(input.dtype(), t));
      })
      .samples({"input[3, 4], ord=2, dim=1, mask?[3, 4]"});
  define(
      "_masked_logaddexp(Tensor input, Tensor other, *, dtype? dtype=None, Tensor? input_mask=None, Tensor? other_mask=None) -> Tensor")
      .doc("log(exp(input) + exp(other)) of what the masks leave.")
      .bind(hidden)
      .procedure([](const Call& c, const Tensor& input, const Tensor& other, std::optional<DType> dtype,
                    Given input_mask, Given other_mask) {
        Tensor a = filled(c, input, input_mask, -kInf), b = filled(c, other, other_mask, -kInf);
        Tensor both = stack(std::vector<Tensor>{expand_as(a, add(a, b)), expand_as(b, add(a, b))}, 0);
        return to_dtype(logsumexp(both, Sizes{int64_t(0)}), dtype.value_or(input.dtype()));
      })
      .samples({"input[3, 4], other[3, 4], input_mask?[3, 4]"});
}
