// Scatters over a monoid: sum, product, mean and extremum of what falls on one place. All are one loop,
// `_scatter_combine`, and counts.
#include <limits>

#include "facula/catalog/accepted.h"
#include "facula/catalog/warns.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {

// The identity element of the reduction.
Tensor identity_of(std::string_view reduce, DType t) {
  bool largest = reduce.starts_with("amin");
  if (reduce.starts_with("prod")) return full(Dims{}, 1, t);
  if (!reduce.starts_with("amax") && !largest) return full(Dims{}, 0, t);
  double inf = std::numeric_limits<double>::infinity();
  if (is_floating(t)) return full(Dims{}, largest ? inf : -inf, t);
  if (t == DType::Bool) return full(Dims{}, Scalar(largest), t);
  int bits = int(8 * itemsize(t));
  int64_t top = t == DType::UInt8 ? 255 : int64_t((uint64_t(1) << (bits - 1)) - 1);
  return full(Dims{}, Scalar(largest ? top : t == DType::UInt8 ? int64_t(0) : -top - 1), t);
}

void check_reduction(const Call& c) {
  auto r = c.str("reduce");
  runtime_check(r == "sum" || r == "prod" || r == "mean" || r == "amax" || r == "amin", c.name())
      << "reduce argument must be either sum, prod, mean, amax or amin, got " << r;
}

// Fractions are cut off downwards where integers are averaged.
Tensor averaged(const Tensor& total, const Tensor& count) {
  Tensor n = to_dtype(count, total.dtype());
  return is_differentiable(total.dtype()) ? div(total, n)
                                          : div(total, n, std::optional<std::string_view>("floor"));
}

Tensor combined(const Tensor& self, int64_t k, const Tensor& index, const Tensor& src,
                std::string_view reduce, bool include_self) {
  bool mean = reduce == "mean";
  std::string_view monoid = mean               ? "sum"
                            : include_self     ? reduce
                            : reduce == "amax" ? "amax of src"
                            : reduce == "amin" ? "amin of src"
                                               : reduce;
  Tensor base = include_self ? self
                             : where(scatter(zeros(self.sizes(), DType::Bool), k, index, Scalar(true)),
                                     identity_of(monoid, self.dtype()), self);
  Tensor y = _scatter_combine(base, k, index, src, monoid);
  if (!mean) return y;
  Tensor one = full(Dims{}, 1, DType::Int64);
  Tensor count =
      scatter_add(full(self.sizes(), include_self ? 1 : 0, DType::Int64), k, index, expand(one, src.sizes()));
  return averaged(y, clamp_min(count, Scalar(int64_t(1))));
}

// An index along dimension k, broadcast over the other dimensions of source.
Tensor spread_index(const Tensor& index, const Tensor& source, int k) {
  if (source.dim() == 0) return reshape(index, Sizes(Dims{}));
  Dims shape(size_t(source.dim()), SymInt(int64_t(1)));
  shape[size_t(k)] = index.numel();
  return expand(reshape(index, shape), source.sizes());
}

// The end of each segment along the last dimension of lengths, or of the offsets between segments.
struct Segments {
  Tensor begin, end;
};
Segments segments_of(const Call& c, const Tensor& data, int axis) {
  runtime_check(c.has("lengths") != c.has("offsets"), c.name()) << "expected one of lengths and offsets";
  bool offsets = c.has("offsets");
  Tensor t = offsets ? c.tensor("offsets") : c.tensor("lengths");
  supported_check(t.dtype() == DType::Int64 || t.dtype() == DType::Int32, c.name())
      << "expected lengths or offsets of int32 or int64, got " << t.dtype();
  runtime_check(t.dim() == axis + 1, c.name())
      << "expected lengths or offsets of " << axis + 1 << " dimensions for axis " << axis << ", got shape "
      << to_string(t.sizes());
  for (int k = 0; k < axis; ++k)
    runtime_check(t.size(k) == data.size(k), c.name())
        << "lengths or offsets must match data before the axis: " << to_string(t.sizes()) << " and "
        << to_string(data.sizes());
  t = to_dtype(t, DType::Int64);
  if (offsets) {
    SymInt n = t.size(-1) - SymInt(int64_t(1));
    return {contiguous(narrow(t, -1, int64_t(0), n)), contiguous(narrow(t, -1, int64_t(1), n))};
  }
  Tensor end = cumsum(t, -1);
  bool checked = !c.flag("unsafe") && t.numel() != SymInt(int64_t(0));
  if (checked && t.is_traced()) {
    Tensor total = narrow(end, -1, end.size(-1) - SymInt(int64_t(1)), SymInt(int64_t(1)));
    end = catalog::accepted(end, logical_and(ge(t, 0), eq(total, Scalar(data.size(axis).guard_int()))));
  } else if (checked) {
    runtime_check(amin(t).item().to_int() >= 0, c.name()) << "lengths contains negative value!";
    Tensor last = select(end, -1, int64_t(-1));
    runtime_check(SymInt(amin(last).item().to_int()) == data.size(axis) &&
                      SymInt(amax(last).item().to_int()) == data.size(axis),
                  c.name())
        << "expected all rows of lengths along axis to sum to data.size(axis), " << data.size(axis);
  }
  return {sub(end, t), end};
}

Tensor reduced_segments(const Call& c, const Tensor& data, std::string_view reduce,
                        std::optional<Scalar> initial) {
  int axis = c.dim("axis", "data");
  std::string_view monoid = reduce == "max"    ? "amax of segments"
                            : reduce == "min"  ? "amin of segments"
                            : reduce == "prod" ? "prod of segments"
                                               : reduce;
  auto [begin, end] = segments_of(c, data, axis);
  // The segment of each place: the number of segments that end at or before it.
  Dims lines(data.sizes().first(size_t(axis) + 1));
  Tensor place = contiguous(expand(arange(Scalar(data.size(axis).guard_int())), lines));
  Tensor segment =
      end.size(-1) == SymInt(int64_t(0)) ? zeros_like(place) : _searchsorted(end, place, MaybeTensor(), true);
  Dims shape = lines, sizes(data.sizes()), counted(begin.sizes());
  while (shape.size() < sizes.size()) shape.push_back(int64_t(1)), counted.push_back(int64_t(1));
  // Elements behind the last segment go into an additional segment, which is dropped.
  SymInt segments = begin.size(-1);
  sizes[size_t(axis)] = segments + SymInt(int64_t(1));
  bool mean = monoid == "mean";
  Tensor none =
      initial ? full(Dims{}, *initial, data.dtype()) : identity_of(mean ? "sum" : monoid, data.dtype());
  Tensor y = _scatter_combine(contiguous(expand(none, sizes)), axis,
                              expand(view(segment, shape), data.sizes()), data, mean ? "sum" : monoid);
  y = contiguous(narrow(y, axis, int64_t(0), segments));
  if (!mean) return y;
  Tensor count = view(sub(end, begin), counted);
  Tensor average = div(y, to_dtype(clamp_min(count, Scalar(int64_t(1))), y.dtype()));
  return where(eq(count, 0),
               initial ? full(Dims{}, *initial, y.dtype())
                       : full(Dims{}, std::numeric_limits<double>::quiet_NaN(), y.dtype()),
               average);
}

// Three segments of two.
Samples segments() {
  SampleArg lengths = op::index({3}, 3);
  lengths.low = 2;
  std::vector<Sample> all;
  for (const char* reduce : {"'sum'", "'mean'", "'max'", "'prod'"})
    all.push_back(
        {{{"data", op::tensor({6, 2}, 0.5, 1.5)}, {"reduce", op::literal(reduce)}, {"lengths", lengths}}});
  return op::samples(std::move(all));
}

}  // namespace

FACULA_FAMILY(scatter) {
  define(
      "scatter_reduce(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True) -> Tensor")
      .grad_name("ScatterReduce")
      .doc(
          "self with src combined in at index along `dim`: reduce is 'sum', 'prod', 'mean', 'amax' or 'amin'; without include_self what was there counts for nothing.")
      .in_place()
      .procedure([](const Call& c, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src,
                    std::string_view reduce, bool include_self) {
        check_reduction(c);
        supported_check(!is_complex(self.dtype()) || (reduce != "amax" && reduce != "amin"), c.name())
            << "complex numbers have no order, as " << reduce << " needs";
        return combined(self, dim, index, src, reduce, include_self);
      })
      .samples({"self[5, 3], dim=0, index<5>[4, 3], src[4, 3], reduce='sum'",
                "self[5, 3], dim=0, index<5>[4, 3], src[4, 3], reduce='mean', include_self=False",
                "self[5, 3], dim=1, index<3>[5, 4], src![5, 4], reduce='amax'",
                "self[5], dim=0, index<5>[4], src[4](0.5, 1.5), reduce='prod'"});
  define(
      "index_reduce(Tensor self, int dim, Tensor index, Tensor source, str reduce, *, bool include_self=True) -> Tensor")
      .check(catalog::warns_once("index_reduce() is in beta and the API may change at any time."))
      .grad_name("IndexReduce")
      .doc(
          "self with the slices of source combined into those along `dim` that the vector `index` names: reduce is 'prod', 'mean', 'amax' or 'amin'.")
      .reads_data()
      .in_place()
      .procedure([](const Call& c, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                    std::string_view reduce, bool include_self) {
        check_reduction(c);
        supported_check(!is_complex(self.dtype()) || (reduce != "amax" && reduce != "amin"), c.name())
            << "complex numbers have no order, as " << reduce << " needs";
        runtime_check(reduce != "sum", c.name())
            << "reduce argument must be either prod, mean, amax or amin, got sum";
        index_check(index.dim() <= 1, c.name())
            << "index is supposed to be a vector, got shape " << to_string(index.sizes());
        int k = wrap_dim(c.name(), dim, self.dim());
        SymInt n = source.dim() ? source.size(k) : SymInt(int64_t(1));
        runtime_check(source.dim() == self.dim() || source.dim() == 0, c.name())
            << "source must have the dimensions of self: " << to_string(self.sizes()) << " and "
            << to_string(source.sizes());
        index_check(index.numel() == n, c.name()) << "number of indices (" << index.numel()
                                                  << ") should be equal to source.size(dim): (" << n << ")";
        if (index.numel() != SymInt(int64_t(0)) && !index.is_traced()) {
          int64_t low = amin(index).item().to_int(), high = amax(index).item().to_int();
          index_check(low >= 0 && SymInt(high) < (self.dim() ? self.size(k) : SymInt(int64_t(1))), c.name())
              << "index " << (low < 0 ? low : high) << " is out of bounds for dimension " << k << " of "
              << to_string(self.sizes());
        }
        for (int j = 0; j < source.dim(); ++j)
          index_check(j == k || source.size(j) == self.size(j), c.name())
              << "source/destination tensor must have same slice shapes: " << to_string(self.sizes())
              << " and " << to_string(source.sizes());
        return combined(self, dim, spread_index(index, source, k), source, reduce, include_self);
      })
      .samples({"self[5, 3], dim=0, index<5>[4], source[4, 3], reduce='mean'",
                "self[5, 3], dim=1, index<3>[4], source![5, 4], reduce='amax', include_self=False",
                "self[5, 3], dim=1, index<3>[4], source![5, 4], reduce='amin'",
                "self[5], dim=0, index<5>[4], source[4](0.5, 1.5), reduce='prod'"});
  define(
      "segment_reduce(Tensor data, str reduce, *, Tensor? lengths=None, Tensor? indices=None, Tensor? offsets=None, int axis=0, bool unsafe=False, Scalar? initial=None) -> Tensor")
      .grad_name("SegmentReduce")
      .doc(
          "Segments along `axis`, of these lengths or between these offsets, each reduced: reduce is 'sum', 'prod', 'mean', 'max' or 'min' ('amax', 'amin').")
      .alias("_segment_reduce")
      .dtypes(d::floating)
      .strict()
      .bind(function)
      .reads_data()
      .procedure([](const Call& c, const Tensor& data, std::string_view reduce, std::optional<Tensor>,
                    std::optional<Tensor>, std::optional<Tensor>, int64_t, bool,
                    std::optional<Scalar> initial) {
        if (reduce == "amax" || reduce == "amin") reduce.remove_prefix(1);
        runtime_check(reduce == "sum" || reduce == "prod" || reduce == "mean" || reduce == "max" ||
                          reduce == "min",
                      c.name())
            << "reduce must be sum, prod, mean, max (amax) or min (amin), got " << reduce;
        return reduced_segments(c, data, reduce, initial);
      })
      .samples(segments());
  define("put(Tensor self, Tensor index, Tensor source, bool accumulate=False) -> Tensor")
      .doc("self, taken as one vector, with the elements of source written, or added, at index.")
      .bind(function | method)
      .in_place()
      .composite([](const Tensor& self, const Tensor& index, const Tensor& source, bool accumulate) {
        runtime_check(index.dtype() == DType::Int64, "put")
            << "expected dtype int64 for index, got " << index.dtype();
        runtime_check(source.dtype() == self.dtype(), "put")
            << "expected self and source to have the same dtype, but got " << self.dtype() << " and "
            << source.dtype();
        runtime_check(index.numel() == source.numel(), "put")
            << "source and index must have as many elements: " << to_string(source.sizes()) << " and "
            << to_string(index.sizes());
        index_check(self.numel() != SymInt(int64_t(0)) || index.numel() == SymInt(int64_t(0)), "put")
            << "tried to put elements into an empty tensor";
        Tensor flat = reshape(self, Sizes{self.numel()}), at = reshape(index, Sizes{index.numel()});
        Tensor y = index_put(flat, {at}, reshape(source, Sizes{source.numel()}), accumulate);
        return view(y, self.sizes());
      })
      .samples({"self[3, 4], index<12>[5], source[5], accumulate=True", "self[3], index<1>[1], source[1]"});
}
