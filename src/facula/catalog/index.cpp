// Reading and writing at computed positions. Indices are checked wherever they are read: one that does not
// fit raises IndexError and nothing is read or written outside.
#include <limits>

#include "facula/catalog/elements.h"
#include "facula/catalog/warns.h"
#include "facula/catalog/widened.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"
#include "facula/sym/parse.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {

Expr zero_of(DType t) { return constant(Scalar(int64_t(0)), t); }

// Repeats of `least` to 1 dimensions; dtypes that PyTorch has no kernel for raise its type of error.
void check_repeats(const Tensor& t, int least, const char* what) {
  runtime_check(t.dim() >= least && t.dim() <= 1, "repeat_interleave")
      << what << ", got " << t.dtype() << " of shape " << to_string(t.sizes());
  supported_check(t.dtype() == DType::Int64 || t.dtype() == DType::Int32, "repeat_interleave")
      << what << ", got " << t.dtype() << " of shape " << to_string(t.sizes());
}
Tensor flat(const Tensor& t) { return reshape(t, Sizes{int64_t(-1)}); }
int repeated_dim(const Tensor& x, std::optional<int64_t> dim) {
  index_check(x.dim() > 0, "repeat_interleave")
      << "dimension specified as " << *dim << " but tensor has no dimensions";
  return wrap_dim("repeat_interleave", dim.value_or(0), x.dim());
}
// The positions for repeat_interleave: each k in order, repeated counts[k] times.
Tensor positions(const Call& c, const Tensor& counts) {
  Tensor at = _repeated_positions(facula::to(counts, DType::Int64));
  runtime_check(!c.has("output_size") || c.integer("output_size") == at.size(0), c.name())
      << "output_size " << (c.has("output_size") ? c.integer("output_size") : SymInt(int64_t(0)))
      << " does not match the sum of the repeats, " << at.size(0);
  return at;
}
// Places of n that indices go around to, as PyTorch's: in both directions, as often as need be.
Tensor around(const Tensor& indices, SymInt n) {
  return n == SymInt(int64_t(0)) ? indices : remainder(indices, n);
}

bool indexes(const Tensor& index) {
  return (is_integral(index.dtype()) && itemsize(index.dtype()) >= 4 && !is_limited(index.dtype())) ||
         index.numel() == SymInt(int64_t(0));
}
void check_index_dtype(const char* name, const char* arg, const Tensor& index) {
  runtime_check(indexes(index), name) << "expected dtype int32 or int64 for `" << arg << "`, got "
                                      << index.dtype() << hint(arg, ".long() converts");
}

void check_gather(const Call& c, bool writes = true) {
  Tensor self = c.tensor("self"), index = c.tensor("index");
  check_index_dtype(c.name(), "index", index);
  int k = c.dim("dim");
  bool same_rank = std::max(1, self.dim()) == std::max(1, index.dim());
  if ((writes || !same_rank) && index.numel() == SymInt(int64_t(0))) return;  // of no elements: any shape
  runtime_check(same_rank, c.name()) << "index tensor must have the same number of dimensions as self: "
                                     << to_string(self.sizes()) << " and " << to_string(index.sizes());
  for (int j = 0; j < index.dim() && j < self.dim(); ++j)
    runtime_check(j == k || !(index.size(j) > self.size(j)), c.name())
        << "size does not match at dimension " << j << ": expected index " << to_string(index.sizes())
        << " to be no larger than self " << to_string(self.sizes()) << " apart from dimension " << k;
}
void check_scatter(const Call& c) {
  check_gather(c);
  Tensor index = c.tensor("index"), src = c.tensor("src");
  runtime_check(c.dtype("self") == src.dtype(), c.name())
      << "expected self.dtype to be equal to src.dtype, got " << c.dtype("self") << " and " << src.dtype()
      << hint("src.to(", name(c.dtype("self")), ")");
  if (index.numel() == SymInt(int64_t(0))) return;
  runtime_check(std::max(1, src.dim()) == std::max(1, index.dim()), c.name())
      << "index tensor must have the same number of dimensions as src: " << to_string(index.sizes())
      << " and " << to_string(src.sizes());
  for (int j = 0; j < index.dim(); ++j)
    runtime_check(!(index.size(j) > (src.dim() ? src.size(j) : SymInt(int64_t(1)))), c.name())
        << "size does not match at dimension " << j << ": expected index " << to_string(index.sizes())
        << " to be no larger than src " << to_string(src.sizes());
}

// ---- advanced indexing: which dimensions are indexed, and where the broadcast indices go in the result
struct Advanced {
  std::vector<int> dims;  // indexed dimensions of self
  Dims broadcast;         // sizes of the indices together
  int front = 0;          // position of the broadcast dimensions in the result
  Dims result;
};

Advanced advanced(const Call& c) {
  Advanced a;
  auto indices = c.tensors("indices");
  auto sizes = c.sizes("self");
  index_check(indices.size() <= sizes.size(), c.name())
      << "too many indices for tensor of dimension " << sizes.size() << " (shape " << to_string(sizes) << ")";
  std::vector<SymSpan> shapes;
  std::vector<Tensor> used;
  for (size_t k = 0; k < indices.size(); ++k) {
    if (!indices[k].defined()) continue;
    index_check(is_integral(indices[k].dtype()) && indices[k].dtype() != DType::Int16 &&
                    indices[k].dtype() != DType::Int8 && !is_limited(indices[k].dtype()),
                c.name())
        << "tensors used as indices must be int64, int32, uint8 or bool tensors, got " << indices[k].dtype();
    a.dims.push_back(int(k));
    used.push_back(indices[k]);
  }
  for (auto& t : used) shapes.push_back(t.sizes());
  bool fit = true;
  try {
    a.broadcast = broadcast_sizes(c.name(), shapes);
  } catch (const Error&) { fit = false; }
  index_check(fit, c.name())
      << "shape mismatch: indexing tensors could not be broadcast together with shapes " << shapes_of(used);
  bool adjacent = !a.dims.empty() && a.dims.back() - a.dims.front() + 1 == int(a.dims.size());
  a.front = adjacent ? a.dims.front() : 0;
  for (int k = 0, next = 0; k <= int(sizes.size()); ++k) {
    if (next == a.front && int(a.result.size()) == a.front)
      for (auto s : a.broadcast) a.result.push_back(s);
    if (k == int(sizes.size())) break;
    if (std::find(a.dims.begin(), a.dims.end(), k) != a.dims.end()) continue;
    a.result.push_back(sizes[size_t(k)]);
    ++next;
  }
  return a;
}

// The element of self that belongs to element `i` of the indexed result.
Index indexed_element(const LoopCall& c, const Advanced& a, const Index& i) {
  auto sizes = c.sizes("self");
  auto indices = c.tensors("indices");
  Index at(sizes.size());
  Index shared(i.begin() + a.front, i.begin() + a.front + long(a.broadcast.size()));
  size_t next = 0;
  for (size_t k = 0; k < sizes.size(); ++k) {
    if (std::find(a.dims.begin(), a.dims.end(), int(k)) == a.dims.end()) {
      if (int(next) == a.front) next += a.broadcast.size();
      at[k] = i[next++];
      continue;
    }
    auto own = indices[k].sizes();
    Index j;
    for (size_t d = 0; d < own.size(); ++d)
      j.push_back(own[d] == SymInt(int64_t(1)) ? integer(0) : shared[shared.size() - own.size() + d]);
    at[k] = check(cast(c.load("indices", j, int(k)), DType::Int64), loop::size(sizes[k]));
  }
  return at;
}

// Boolean and uint8 masks become the positions of their true elements, one index a dimension of the mask.
bool is_mask(const Tensor& index) {
  return index.defined() && (index.dtype() == DType::Bool || index.dtype() == DType::UInt8);
}
std::vector<Tensor> expanded_masks(const char* name, const Tensor& self, const std::vector<Tensor>& indices) {
  std::vector<Tensor> out;
  for (auto& t : indices) {
    if (!is_mask(t)) {
      out.push_back(t);
      continue;
    }
    for (int k = 0; k < t.dim(); ++k)
      index_check(int(out.size()) + k < self.dim() && t.size(k) == self.size(int(out.size()) + k), name)
          << "the shape of the mask " << to_string(t.sizes()) << " at index " << k
          << " does not match the shape of the indexed tensor " << to_string(self.sizes()) << " at index "
          << int(out.size()) + k;
    Tensor positions = nonzero(t);
    for (int k = 0; k < t.dim(); ++k) out.push_back(select(positions, 1, k));
  }
  return out;
}

// A mask without dimensions as the only index takes all of self or nothing.
bool is_one_flag(const Tensor& self, const std::vector<Tensor>& indices) {
  if (indices.size() != 1 || !is_mask(indices[0]) || indices[0].dim() != 0) return false;
  index_check(self.dim() > 0, "index_put_")
      << "too many indices for tensor of dimension 0 (got 1)" << hint("self[mask] = value takes one");
  return true;
}
Tensor with_values(const Tensor& self, const std::vector<Tensor>& indices, const Tensor& values,
                   bool accumulate) {
  if (is_one_flag(self, indices))
    return where(ne(indices[0], Scalar(int64_t(0))), _index_put(self, {}, values, accumulate), self);
  auto at = expanded_masks("index_put_", self, indices);
  if (!accumulate || self.dtype() != values.dtype()) return _index_put(self, at, values, accumulate);
  return catalog::narrowed(_index_put(catalog::wide(self), at, catalog::wide(values), true), self.dtype());
}

// The only index into a 0-d tensor is 0: x where `at` is, whose load looks at it.
Expr at_scalar(Expr at, Expr x) { return select(eq(at, integer(0)), x, zero_of(x.dtype())); }

// self with values combined in at `index` along `dim`.
Definition scatter_along(const LoopCall& c, Scatter::Combine combine,
                         const std::function<Expr(const Index&)>& value) {
  Definition d;
  Tensor self = c.tensor("self"), index = c.tensor("index");
  d.rank = self.dim();
  Scatter s;
  s.combine = combine;
  s.base = c.slot("self");
  s.domain = Dims(index.sizes());
  Index i;
  for (int k = 0; k < index.dim(); ++k) i.push_back(loop::index(k));
  s.target = i;
  Expr at = cast(c.load("index", i), DType::Int64);
  if (self.dim() == 0) {
    s.target.clear();
    s.value = at_scalar(within(at, loop::size(int64_t(1))), value(i));
  } else if (std::max(1, index.dim()) != self.dim()) {  // an index of no elements
    s.domain = Dims{int64_t(0)};
    s.target = Index(size_t(self.dim()), integer(0));
    s.value = zero_of(compute_type(self.dtype()));
  } else {
    if (i.empty()) s.target = {integer(0)};
    int k = c.dim("dim");
    s.target[size_t(k)] = within(at, loop::size(self.size(k)));
    s.value = value(i);
  }
  d.scatter = s;
  return d;
}

Scatter::Combine combination(const Call& c) {
  auto reduce = c.str("reduce");
  runtime_check(reduce == "add" || reduce == "multiply", c.name())
      << "reduce argument must be either add or multiply, got '" << reduce << "'";
  return reduce == "add" ? Scatter::Combine::sum : Scatter::Combine::prod;
}

// How `_scatter_combine` combines.
Scatter::Combine monoid_of(const Call& c) {
  auto reduce = c.str("reduce");
  return reduce == "sum"              ? Scatter::Combine::sum
         : reduce.starts_with("prod") ? Scatter::Combine::prod
         : reduce.starts_with("amax") ? Scatter::Combine::max
                                      : Scatter::Combine::min;
}

// t without its elements where `zero` is true, which become `value`.
Tensor replaced(const Tensor& t, const Tensor& zero, double value) {
  return where(zero, full(Dims{}, value, t.dtype()), t);
}

// The gradients of a scattered product: the product of the others, found by division, and at single zeros by
// leaving them out. With several zeros in one place there is none.
Grads gradients_of_product(const Vjp& v, int k, const Tensor& index) {
  Tensor self = v["self"], src = v["src"], g = v.grad();
  auto conj_of = [](const Tensor& t) { return is_complex(t.dtype()) ? conj_physical(t) : t; };
  Grads out(3);
  if (v.needs("self")) {
    Tensor divisor = replaced(self, eq(self, 0), 1);
    out[0] = mul(g, conj_of(div(_scatter_combine(divisor, k, index, src, "prod"), divisor)));
  }
  if (!v.needs("src")) return out;
  Tensor zero = eq(src, 0);
  if (v.call().str("reduce").ends_with(" of segments")) zero = logical_or(zero, isnan(src));
  Tensor counted = to_dtype(zero, DType::Int64);
  Tensor zeros_there = gather(scatter_add(zeros(self.sizes(), DType::Int64), k, index, counted), k, index);
  Tensor single = logical_and(zero, eq(zeros_there, 1));
  Tensor rest = _scatter_combine(self, k, index, replaced(src, single, 1), "prod");
  Tensor quotient = div(gather(mul(g, conj_of(v.result())), k, index), conj_of(replaced(src, zero, 1)));
  out[2] = where(single, gather(mul(g, conj_of(rest)), k, index), quotient);
  return out;
}

// Gradients of an extremum, spread evenly over ties. "of src": self takes part only at places without source elements, since it
// is the monoid's identity elsewhere; "of segments": NaN also ties with NaN.
Grads gradients_of_extremum(const Vjp& v, int k, const Tensor& index) {
  Tensor self = v["self"], src = v["src"], y = v.result(), g = v.grad();
  auto reduce = v.call().str("reduce");
  Tensor same = eq(src, gather(y, k, index));
  if (reduce.ends_with(" of segments")) same = logical_or(same, isnan(src));
  Tensor of_self = to_dtype(eq(self, y), g.dtype()), of_src = to_dtype(same, g.dtype());
  if (reduce.ends_with(" of src") || reduce.ends_with(" of segments")) {
    Tensor fallen = scatter_add(zeros_like(of_self), k, index, of_src);
    of_self = where(gt(fallen, 0), zeros_like(of_self), of_self);
  }
  Tensor share = div(g, scatter_add(of_self, k, index, of_src));
  return grads(mul(of_self, share), Tensor(), mul(of_src, gather(share, k, index)));
}

// The value that scatter_along writes: the element of src at the position of the index. If the index is empty, src may have any shape.
std::function<Expr(const Index&)> source_at(const LoopCall& c) {
  return [&c](const Index& i) {
    bool fits = std::max(1, c.rank("src")) == std::max(1, int(i.size()));
    return fits ? c.load("src", i) : zero_of(compute_type(c.dtype("src")));
  };
}

// self with `value` written to the slices along `dim` that the vector `index` names; `domain` is what is
// written.
// `from_end`: a negative index counts from the end.
Definition write_slices(const LoopCall& c, const Dims& domain, const std::function<Expr(const Index&)>& value,
                        bool from_end = false) {
  Definition def;
  def.rank = c.rank("self");
  Scatter s;
  s.combine = Scatter::Combine::assign;
  s.base = c.slot("self");
  bool scalar = def.rank == 0;
  s.domain = scalar ? Dims(c.sizes("index")) : domain;
  Index i;
  for (size_t k = 0; k < s.domain.size(); ++k) i.push_back(loop::index(int(k)));
  s.target = scalar ? Index{} : i;
  size_t k = size_t(c.dim("dim"));
  Expr at = cast(c.load("index", c.rank("index") ? Index{i[k]} : Index{}), DType::Int64);
  Expr n = loop::size(scalar ? SymInt(int64_t(1)) : c.size("self", int(k)));
  at = from_end ? check(at, n) : within(at, n);
  if (!scalar) s.target[k] = at;
  s.value = scalar ? at_scalar(at, value({})) : value(i);
  def.scatter = s;
  return def;
}
void check_slices(const Call& c) {
  check_index_dtype(c.name(), "index", c.tensor("index"));
  index_check(c.rank("index") <= 1, c.name())
      << "index is supposed to be a vector, got shape " << to_string(c.sizes("index"));
}

void check_filled(const Call& c) {
  index_check(c.dtype("index") == DType::Int64, "index_fill")
      << "expected dtype int64 for `index`, got " << c.dtype("index");
  check_slices(c);
}

// The gradient of a scatter's `src`, which may be larger than `index`: the rest was not read.
Tensor source_gradient(const Vjp& v) {
  Tensor index = v["index"];
  if (index.numel() == SymInt(int64_t(0))) return full(v.call().sizes("src"), 0, v.call().dtype("src"));
  Tensor g = gather(v.grad(), v.call().dim("dim"), index);
  auto sizes = v.call().sizes("src");
  if (sizes.empty()) return reshape(g, sizes);
  if (g.dim() == 0) g = unsqueeze(g, 0);
  Dims pad;
  bool larger = false;
  for (int k = g.dim() - 1; k >= 0; --k) {
    pad.push_back(int64_t(0));
    pad.push_back(sizes[size_t(k)] - g.size(k));
    larger |= !SymInt::surely_equal(sizes[size_t(k)], g.size(k));
  }
  return larger ? constant_pad_nd(g, pad, 0) : g;
}

// Indices of elements that exist.
std::vector<Tensor> within(const Tensor& self, std::vector<Tensor> indices) {
  for (size_t k = 0; k < indices.size(); ++k) {
    if (!indices[k].defined() || indices[k].dtype() == DType::Bool) continue;
    int64_t n = self.size(int(k)).guard_int();
    indices[k] = clamp(indices[k], Scalar(-n), Scalar(n - 1));
  }
  return indices;
}

// The rules that _index_add and _index_add_vector share.
void adds_slices(Definer definer) {
  definer.dtypes(d::any | d::half_complex)
      .doc("index_add in the dtype of self: its sums are rounded at every step.")
      .bind(hidden)
      .called("index_add")
      .in_place()
      .shape([](const Call& c) {
        check_index_dtype("index_add", "index", c.tensor("index"));
        runtime_check(c.dtype("self") == c.dtype("source"), "index_add")
            << "self (" << c.dtype("self") << ") and source (" << c.dtype("source")
            << ") must have the same scalar type";
        index_check(c.rank("index") <= 1, "index_add")
            << "Index is supposed to be a vector, but got shape " << to_string(c.sizes("index"));
        auto self = c.sizes("self"), source = c.sizes("source");
        size_t d = size_t(c.dim("dim"));
        bool fits = self.size() == source.size();
        for (size_t k = 0; fits && k < self.size(); ++k) fits = k == d || self[k] == source[k];
        runtime_check(fits, "index_add")
            << "source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = "
            << to_string(self) << " source.shape = " << to_string(source);
        SymInt count = self.empty() ? SymInt(int64_t(1)) : source[d], given = product(c.sizes("index"));
        runtime_check(given == count, "index_add")
            << "Number of indices (" << given << ") should be equal to source.size(dim): (" << count
            << "), for dim: " << d;
        return Dims(self);
      })
      .checks()
      .loop([](const LoopCall& c) {
        Definition def;
        def.rank = c.rank("self");
        Scatter s;
        s.base = c.slot("self");
        s.domain = Dims(c.sizes("source"));
        Index i;
        for (size_t k = 0; k < s.domain.size(); ++k) i.push_back(loop::index(int(k)));
        s.target = i;
        int k = c.dim("dim");
        if (!i.empty())
          s.target[size_t(k)] =
              c.index_load("index", c.rank("index") ? Index{i[size_t(k)]} : Index{}, c.size("self", k));
        DType t = compute_type(c.dtype("self"));
        s.value = c.load("source", i) * c.scalar("alpha", t);
        if (i.empty()) {
          Index first(size_t(c.rank("index")), integer(0));
          s.value = at_scalar(c.index_load("index", first, int64_t(1)), s.value);
        }
        def.scatter = s;
        return def;
      });
}
}  // namespace

// The source must have the dtype of self. Sums of 16-bit numbers are computed in float32 and rounded once.
static void check_source(const char* op, const char* called, const Tensor& self, const Tensor& source) {
  runtime_check(self.dtype() == source.dtype(), op) << "self (" << self.dtype() << ") and " << called << " ("
                                                    << source.dtype() << ") must have the same scalar type";
}

FACULA_FAMILY(index) {
  define("index_select(Tensor self, int dim, Tensor index) -> Tensor")
      .dtypes(d::stored)
      .doc("Slices of `self` along `dim`, picked by the 1-D integer tensor `index`.")
      .no_in_place()
      .shape([](const Call& c) {
        Tensor index = c.tensor("index");
        check_index_dtype("index_select", "index", index);
        index_check(index.dim() <= 1, "index_select")
            << "index is supposed to be a vector, got shape " << to_string(index.sizes());
        Dims sizes(c.sizes("self"));
        auto k = size_t(c.dim("dim"));
        runtime_check(!sizes.empty() || index.numel() == SymInt(int64_t(1)), "index_select")
            << "the index into a 0-d tensor can have only 1 value, got " << index.numel() << " value(s)";
        if (!sizes.empty()) sizes[k] = index.numel();
        return sizes;
      })
      .checks()
      .loop([](const LoopCall& c, Index i) {
        if (i.empty()) {
          Index first(size_t(c.rank("index")), integer(0));
          return at_scalar(c.index_load("index", first, int64_t(1)), c.load("self", i));
        }
        auto k = size_t(c.dim("dim"));
        Index at = c.rank("index") ? Index{i[k]} : Index{};
        Index j = i;
        j[k] = c.index_load("index", at, c.sizes("self")[k]);
        return c.load("self", j);
      })
      .samples({"self[3, 4], dim=1, index<4>[5]", "self[3, 4], dim=0, index<3>[0]",
                "self[2, 3, 4], dim=-2, index<3>[2]", "self[65, 33], dim=0, index<65>[129]"});
  define("gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor")
      .dtypes(d::stored)
      .bad_index(ErrorType::RuntimeError)
      .doc("out[i][j][k] = self[index[i][j][k]][j][k] for dim 0, and likewise for the others.")
      .no_in_place()
      .shape([](const Call& c) {
        check_gather(c, false);
        return Dims(c.sizes("index"));
      })
      .checks()
      .loop([](const LoopCall& c, Index i) {
        Index j = i;
        if (c.rank("self") == 0) return at_scalar(c.index_load("index", i, int64_t(1)), c.load("self", {}));
        if (std::max(size_t(1), i.size()) != c.sizes("self").size())
          return zero_of(compute_type(c.dtype("self")));  // of no elements
        if (i.empty()) j = {integer(0)};
        auto k = size_t(c.dim("dim"));
        j[k] = c.index_load("index", i, c.sizes("self")[k]);
        return c.load("self", j);
      })
      .samples({"self[3, 4], dim=1, index<4>[3, 2]", "self[3, 4], dim=0, index<3>[2, 4]",
                "self[5], dim=0, index<5>[7]", "self[33, 65], dim=1, index<65>[33, 129]"});
  define("take_along_dim(Tensor self, Tensor indices, int? dim=None) -> Tensor")
      .differs("\\w+ error: a result for RuntimeError \\(torch.take_along_dim\\(\\): dtype of indices",
               "indices may have any integer dtype")
      .doc("self at `indices` along `dim`, other dimensions broadcast; of the flat self without `dim`.")
      .exact_out()
      .dtypes(d::stored)
      .no_in_place()
      .procedure([](const Tensor& self, const Tensor& indices, std::optional<int64_t> dim) {
        if (!dim) return gather(flat(self), 0, flat(indices));
        runtime_check(self.dim() == indices.dim(), "take_along_dim")
            << "input and indices should have the same number of dimensions, but got " << self.dim()
            << " dimensions for input, and " << indices.dim() << " dimensions for indices";
        int k = wrap_dim("take_along_dim", *dim, self.dim());
        SymInt one(int64_t(1));
        Dims shapes[] = {with(self.sizes(), k, one), with(indices.sizes(), k, one)};
        SymSpan both[] = {shapes[0], shapes[1]};
        Dims sizes = broadcast_sizes("take_along_dim", both);
        return gather(expand(self, with(sizes, k, self.size(k))), k,
                      expand(around(indices, self.size(k)), with(sizes, k, indices.size(k))));
      })
      .samples({"self[3, 4], indices<4>[1, 2], dim=1", "self[3, 4], indices<12>[5]",
                "self[3, 4], indices<3>[2, 1], dim=0"});
  define("scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor")
      .doc("self with src added at index along `dim`; in a fixed order, so sums are the same in every run.")
      .grad_name("ScatterAdd")
      .procedure([](const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
        check_source("scatter_add", "src", self, src);
        Tensor y = _scatter_add(catalog::wide(self), dim, index, catalog::wide(src));
        return catalog::narrowed(y, self.dtype());
      })
      .in_place([](const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
        if (!catalog::is_rounded(self)) return _scatter_add_(self, dim, index, src);
        return copy_(self, scatter_add(self, dim, index, src));
      })
      .samples({"self[3, 4], dim=1, index<4>[3, 4], src[3, 4]",
                "self[3, 4], dim=0, index<3>[2, 3], src[3, 4]", "self[5], dim=0, index<5>[5], src[5]",
                "self[17, 33], dim=0, index<17>[17, 33], src[17, 33]"});
  define("_scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor")
      .bad_index(ErrorType::RuntimeError)
      .doc("scatter_add in the dtype of self: its sums are rounded at every step.")
      .bind(hidden)
      .called("scatter_add")
      .in_place()
      .shape([](const Call& c) {
        check_scatter(c);
        return Dims(c.sizes("self"));
      })
      .checks()
      .loop([](const LoopCall& c) { return scatter_along(c, Scatter::Combine::sum, source_at(c)); })
      .samples(
          {"self[3, 4], dim=1, index<4>[3, 4], src[3, 4]", "self[3, 4], dim=0, index<3>[2, 3], src[3, 4]"});
  define("scatter.src(Tensor self, int dim, Tensor index, Tensor src) -> Tensor")
      .dtypes(d::stored)
      .bad_index(ErrorType::RuntimeError)
      .doc("self with src written at index along `dim`; the last of several writes wins.")
      .in_place()
      .shape([](const Call& c) {
        check_scatter(c);
        return Dims(c.sizes("self"));
      })
      .checks()
      .loop([](const LoopCall& c) { return scatter_along(c, Scatter::Combine::assign, source_at(c)); })
      .samples(
          {"self[5, 3], dim=0, index<1>[1, 3], src[2, 3]", "self[3, 4], dim=1, index<1>[3, 1], src[3, 1]"});
  define("scatter.value(Tensor self, int dim, Tensor index, Scalar value) -> Tensor")
      .dtypes(d::stored)
      .bad_index(ErrorType::RuntimeError)
      .doc("self with value written at index along `dim`.")
      .grad_name("Scatter", 1)
      .check(fitting({"value"}))
      .in_place()
      .shape([](const Call& c) {
        check_gather(c);
        return Dims(c.sizes("self"));
      })
      .checks()
      .loop([](const LoopCall& c) {
        return scatter_along(c, Scatter::Combine::assign,
                             [&](const Index&) { return c.scalar("value", compute_type(c.dtype("self"))); });
      })
      .samples({"self[3, 4], dim=1, index<4>[3, 2], value=2.5"});
  define("scatter.reduce(Tensor self, int dim, Tensor index, Tensor src, *, str reduce) -> Tensor")
      .check(catalog::warns_once(
          "The reduce argument of torch.scatter with Tensor src is deprecated and will be removed in a future PyTorch release. Use "
          "torch.scatter_reduce instead for more reduction options."))
      .bad_index(ErrorType::RuntimeError)
      .doc("self with src combined in at index along `dim`: reduce is 'add' or 'multiply'.")
      .in_place()
      .shape([](const Call& c) {
        check_scatter(c);
        combination(c);
        return Dims(c.sizes("self"));
      })
      .checks()
      .loop([](const LoopCall& c) { return scatter_along(c, combination(c), source_at(c)); })
      .samples({"self[5, 3], dim=0, index<5>[2, 3], src[2, 3], reduce='add'"});
  define("scatter.value_reduce(Tensor self, int dim, Tensor index, Scalar value, *, str reduce) -> Tensor")
      .bad_index(ErrorType::RuntimeError)
      .doc("self with value combined in at index along `dim`: reduce is 'add' or 'multiply'.")
      .check(fitting({"value"}))
      .in_place()
      .shape([](const Call& c) {
        check_gather(c);
        combination(c);
        return Dims(c.sizes("self"));
      })
      .checks()
      .loop([](const LoopCall& c) {
        return scatter_along(c, combination(c),
                             [&](const Index&) { return c.scalar("value", compute_type(c.dtype("self"))); });
      })
      .samples({"self[3, 4], dim=1, index<4>[3, 2], value=2.5, reduce='add'"});
  define("_scatter_combine(Tensor self, int dim, Tensor index, Tensor src, str reduce) -> Tensor")
      .bad_index(ErrorType::RuntimeError)
      .doc(
          "self with src, shaped like index, combined in at index along `dim`: reduce is 'sum', 'prod', 'amax' or 'amin'; the last two 'of src' or 'of segments', where self is no more than what nothing falls on.")
      .grad_name("ScatterReduce")
      .bind(hidden)
      .in_place()
      .shape([](const Call& c) {
        check_scatter(c);
        auto reduce = c.str("reduce");
        runtime_check(reduce == "sum" || reduce.starts_with("prod") || !is_complex(c.dtype("self")),
                      "scatter_reduce")
            << "complex numbers have no order, as " << reduce << " needs";
        return Dims(c.sizes("self"));
      })
      .checks()
      .loop([](const LoopCall& c) { return scatter_along(c, monoid_of(c), source_at(c)); })
      // Only the gradient of a sum could be derived.
      .vjp([](const Vjp& v) {
        int k = v.call().dim("dim");
        auto reduce = v.call().str("reduce");
        if (reduce == "sum") return grads(v.grad(), Tensor(), source_gradient(v));
        return reduce.starts_with("prod") ? gradients_of_product(v, k, v["index"])
                                          : gradients_of_extremum(v, k, v["index"]);
      })
      .samples({"self[5, 3], dim=0, index<5>[4, 3], src[4, 3], reduce='sum'",
                "self[5, 3], dim=0, index<5>[4, 3], src[4, 3](0.5, 1.5), reduce='prod'"});
  define("index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor")
      .dtypes(d::stored)
      .doc("self with the slices of source written to those along `dim` that the 1-D `index` names.")
      .in_place()
      .shape([](const Call& c) {
        check_slices(c);
        runtime_check(c.dtype("index") == DType::Int64, "index_copy")
            << "expected a tensor of dtype int64 for `index`, got " << c.dtype("index");
        auto self = c.sizes("self"), source = c.sizes("source");
        runtime_check(c.dtype("self") == c.dtype("source"), "index_copy")
            << "self and source expected to have the same dtype, but got (self) " << c.dtype("self")
            << " and (source) " << c.dtype("source");
        auto d = size_t(c.dim("dim"));
        SymInt given = product(c.sizes("index"));
        bool alike = true;
        for (size_t k = 0; k < std::min(self.size(), source.size()); ++k)
          alike &= k == d || source[k] == self[k];
        std::string wanted = "source must have the shape of self but for dimension " + std::to_string(d) +
                             ", where it has one slice an index: self " + to_string(self) + ", index " +
                             to_string(c.sizes("index")) + ", source " + to_string(source);
        index_check(source.empty() || self.size() == source.size(), "index_copy") << wanted;
        runtime_check(alike, "index_copy") << wanted;
        index_check(given == (source.empty() ? SymInt(int64_t(1)) : source[d]), "index_copy") << wanted;
        return Dims(self);
      })
      .checks()
      .loop([](const LoopCall& c) {
        bool scalar = c.rank("source") == 0;
        return write_slices(c,
                            scalar && c.rank("self") ? Dims(c.rank("self"), SymInt(int64_t(1)))
                                                     : Dims(c.sizes("source")),
                            [&](const Index& i) { return c.load("source", scalar ? Index{} : i); });
      })
      .samples({"self[4, 3], dim=0, index<1>[1], source[1, 3]",
                "self[3, 4], dim=-1, index<1>[1], source[3, 1]", "self[], dim=0, index<1>[1], source[]"});
  define("index_fill(Tensor self, int dim, Tensor index, Scalar value) -> Tensor")
      .dtypes(d::stored)
      .overlap(Overlap::overwrites)
      .doc("self with value written to the slices along `dim` that the 1-D `index` names.")
      .check(fitting({"value"}))
      .in_place()
      .shape([](const Call& c) {
        check_filled(c);
        return Dims(c.sizes("self"));
      })
      .strides_of("self")
      .checks()
      .loop([](const LoopCall& c) {
        Dims domain(c.sizes("self"));
        if (!domain.empty()) domain[size_t(c.dim("dim"))] = product(c.sizes("index"));
        return write_slices(
            c, domain, [&](const Index&) { return c.scalar("value", compute_type(c.dtype("self"))); }, true);
      })
      .samples({"self[3, 4], dim=1, index<4>[2], value=2.5", "self[], dim=0, index<1>[1], value=1",
                "self[5], dim=0, index<5>[0], value=1"});
  define("index_fill.Tensor(Tensor self, int dim, Tensor index, Tensor value) -> Tensor")
      .grad_name("IndexFill", 1)
      .dtypes(d::stored)
      .overlap(Overlap::overwrites)
      .doc("self with the 0-d tensor value written to the slices along `dim` that the 1-D `index` names.")
      .in_place()
      .shape([](const Call& c) {
        check_filled(c);
        runtime_check(c.rank("value") == 0, "index_fill")
            << "only supports a 0-dimensional value tensor, but got shape " << to_string(c.sizes("value"));
        return Dims(c.sizes("self"));
      })
      .strides_of("self")
      .result([](const Call& c) { return std::vector<DType>{c.dtype("self")}; })
      .promote(Promote::none)
      .checks()
      .loop([](const LoopCall& c) {
        Dims domain(c.sizes("self"));
        if (!domain.empty()) domain[size_t(c.dim("dim"))] = product(c.sizes("index"));
        return write_slices(
            c, domain, [&](const Index&) { return cast(c.load("value", {}), compute_type(c.dtype("self"))); },
            true);
      })
      // A slice that several indices fill counts once, as in PyTorch; the derived gradient would count it for each index.
      .vjp([](const Vjp& v) {
        int k = v.call().dim("dim");
        Tensor g = index_fill(v.grad(), k, v["index"], Scalar(0.0));
        return grads(g, Tensor(), sum(sub(v.grad(), g)));
      })
      .samples({"self[3, 4], dim=1, index<4>[2], value[]"});
  define("take(Tensor self, Tensor index) -> Tensor")
      .grad_name("Take")
      .doc("Elements of self, taken as one vector, at `index`; shaped like index.")
      .no_in_place()
      .procedure([](const Tensor& self, const Tensor& index) {
        runtime_check(index.dtype() == DType::Int64, "take")
            << "expected dtype int64 for index, got " << index.dtype() << hint("index.long() converts");
        index_check(self.numel() != SymInt(int64_t(0)) || index.numel() == SymInt(int64_t(0)), "take")
            << "tried to take from an empty tensor";
        Tensor at = reshape(where(lt(index, 0), add(index, self.numel()), index), Sizes{index.numel()});
        return view(index_select(reshape(self, Sizes{self.numel()}), 0, at), index.sizes());
      })
      .samples({"self[3, 4], index<12>[5]", "self[], index<1>[]", "self[5], index<5>[2, 3]"});
  define("masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor")
      .grad_name("MaskedScatter")
      .doc("self with the elements of source, in order, where mask is true.")
      .reads_data()
      .procedure([](const Tensor& self, const Tensor& mask, const Tensor& source) {
        runtime_check(mask.dtype() == DType::Bool, "masked_scatter")
            << "only supports boolean masks, but got mask with dtype " << mask.dtype();
        runtime_check(self.dtype() == source.dtype(), "masked_scatter")
            << "expected self and source to have same dtypes but got " << self.dtype() << " and "
            << source.dtype();
        SymSpan shapes[] = {self.sizes(), mask.sizes()};
        Dims sizes = broadcast_sizes("masked_scatter", shapes);
        Tensor m = reshape(expand(mask, sizes), Sizes{int64_t(-1)}),
               from = reshape(source, Sizes{source.numel()});
        Tensor at = clamp_min(sub(cumsum(m, 0), 1), 0);
        if (!catalog::shows_elements(m)) {  // a kernel says what does not fit
          if (SymInt::surely_equal(from.numel(), int64_t(0))) from = zeros(Sizes{int64_t(1)}, from.dtype());
          return where(view(m, sizes), view(index_select(from, 0, at), sizes), self);
        }
        if (m.numel() == SymInt(int64_t(0))) return expand(self, sizes);
        int64_t wanted = sum(m).item().to_int();
        runtime_check(SymInt(wanted) <= from.numel(), "masked_scatter")
            << "number of elements of source, " << from.numel()
            << ", is smaller than the number of ones in mask, " << wanted;
        if (from.numel() == SymInt(int64_t(0))) return clone(expand(self, sizes));
        return where(view(m, sizes), view(index_select(from, 0, at), sizes), self);
      })
      .samples({"self[3, 4], mask?[4], source[12]", "self[5], mask?[5], source[5]"});
  define("index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor")
      .doc("self with alpha * source added to the slices that the 1-D `index` names.")
      .grad_name("IndexAdd")
      .differs(
          "\\w+ error: RuntimeError \\(index_add: index .* for IndexError \\(index out of range in self\\)",
          "an index beyond a tensor of several dimensions raises one type; the peer's depends on sizes")
      .check(fitting({"alpha"}))
      .differs(
          "\\w+ error: RuntimeError \\(index_add: index \\d+ is out of bounds for dimension with size 0\\)",
          "an index into nothing is refused; the peer does not look at it where self is empty")
      .procedure([](const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                    const Scalar& alpha) {
        check_source("index_add", "source", self, source);
        auto add = self.dim() <= 1 ? _index_add_vector : _index_add;
        return catalog::narrowed(add(catalog::wide(self), dim, index, catalog::wide(source), alpha),
                                 self.dtype());
      })
      .in_place([](const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                   const Scalar& alpha) {
        if (catalog::is_rounded(self)) return copy_(self, index_add(self, dim, index, source, alpha));
        auto add = self.dim() <= 1 ? _index_add_vector_ : _index_add_;
        return add(self, dim, index, source, alpha);
      })
      .samples({"self[3, 4], dim=1, index<4>[5], source[3, 5]",
                "self[3, 4], dim=0, index<3>[2], source[2, 4], alpha=2"});
  adds_slices(
      define("_index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor")
          .bad_index(ErrorType::RuntimeError)
          .samples({"self[3, 4], dim=1, index<4>[5], source[3, 5]",
                    "self[3, 4], dim=0, index<3>[2], source[2, 4], alpha=2"}));
  // PyTorch raises another error type if self is a vector or a number.
  adds_slices(
      define(
          "_index_add_vector(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor")
          .bad_index(ErrorType::IndexError)
          .samples(
              {"self[4], dim=0, index<4>[5], source[5], alpha=2", "self[], dim=0, index<1>[1], source[]"}));

  define("_index(Tensor self, Tensor?[] indices) -> Tensor")
      .dtypes(d::stored)
      .doc("Elements of self at integer indices, one tensor (or None) a dimension, as NumPy's.")
      .bind(hidden)
      .no_in_place()
      .shape([](const Call& c) { return advanced(c).result; })
      .checks()
      .loop([](const LoopCall& c, Index i) { return c.load("self", indexed_element(c, advanced(c), i)); })
      .samples({"self[3, 4], indices{<3>[5]}", "self[3, 4, 2], indices{<3>[2, 1], <3>[2]}"});
  define("index(Tensor self, Tensor?[] indices) -> Tensor")
      .doc("Advanced indexing, self[indices]: integer tensors, boolean masks and None, one a dimension.")
      .bind(hidden)
      .no_in_place()
      .procedure([](const Tensor& self, const std::vector<Tensor>& indices) {
        return _index(self, expanded_masks("index", self, indices));
      })
      .samples({"self[3, 4], indices{<3>[5]}", "self[3, 4, 2], indices{<3>[2, 1], <3>[2]}",
                "self[3, 4], indices{<3>[0]}"});
  define("_index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor")
      .dtypes(d::stored)
      .doc("self with values written (or added) at integer indices.")
      .bind(hidden)
      .in_place()
      .shape([](const Call& c) {
        auto a = advanced(c);
        Tensor self = c.tensor("self"), values = c.tensor("values");
        runtime_check(self.dtype() == values.dtype(), "index_put_")
            << "requires the source and destination dtypes match, got " << self.dtype()
            << " for the destination and " << values.dtype() << " for the source"
            << hint("values.to(", name(self.dtype()), ")");
        runtime_check(broadcasts_to(values.sizes(), a.result), "index_put_")
            << "shape mismatch: value tensor of shape " << to_string(values.sizes())
            << " cannot be broadcast to indexing result of shape " << to_string(SymSpan(a.result));
        return Dims(c.sizes("self"));
      })
      .checks()
      .loop([](const LoopCall& c) {
        auto a = advanced(c);
        Definition def;
        def.rank = c.rank("self");
        Scatter s;
        s.combine = c.flag("accumulate") ? Scatter::Combine::sum : Scatter::Combine::assign;
        s.base = c.slot("self");
        s.domain = a.result;
        Index i, j;
        for (size_t k = 0; k < a.result.size(); ++k) i.push_back(loop::index(int(k)));
        auto own = c.sizes("values");
        for (size_t k = 0; k < own.size(); ++k)
          j.push_back(own[k] == SymInt(int64_t(1)) ? integer(0) : i[i.size() - own.size() + k]);
        s.target = indexed_element(c, a, i);
        s.value = c.load("values", j);
        def.scatter = s;
        return def;
      })
      .samples({"self[3, 4], indices{<3>[5]}, values[5, 4], accumulate=True",
                "self[4, 3], indices{<1>[1], <3>[1]}, values[1]"});
  define("index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor")
      .overlap(Overlap::overwrites)
      .doc("self with values at `indices` (integer tensors, masks, None).")
      .procedure(with_values)
      .in_place(
          [](const Tensor& self, const std::vector<Tensor>& indices, const Tensor& values, bool accumulate) {
            if (is_one_flag(self, indices) || (accumulate && catalog::is_rounded(self)))
              return copy_(self, with_values(self, indices, values, accumulate));
            return _index_put_(self, expanded_masks("index_put_", self, indices), values, accumulate);
          })
      .samples({"self[3, 4], indices{<3>[5]}, values[5, 4], accumulate=True",
                "self[4, 3], indices{<1>[1], <3>[1]}, values[1]", "self[3, 4], indices{<1>[1]}, values[4]"});
  define("_unsafe_masked_index(Tensor self, Tensor mask, Tensor?[] indices, Scalar fill) -> Tensor")
      .doc(
          "self[indices], indices beyond the ends taken for the nearest one, and `fill` where mask is false.")
      .bind(function)
      .no_in_place()
      .procedure(
          [](const Tensor& self, const Tensor& mask, const std::vector<Tensor>& indices, const Scalar& fill) {
            return masked_fill(index(self, within(self, indices)), logical_not(mask), fill);
          })
      .samples({"self[3, 4], mask?[5], indices{<3>[5], <4>[5]}, fill=0.5"});
  define(
      "_unsafe_masked_index_put_accumulate(Tensor self, Tensor mask, Tensor?[] indices, Tensor values) -> Tensor")
      .doc("self with values added at `indices`, taken as _unsafe_masked_index does, where mask is true.")
      .bind(function)
      .no_in_place()
      .procedure([](const Tensor& self, const Tensor& mask, const std::vector<Tensor>& indices,
                    const Tensor& values) {
        if (self.numel() == SymInt(int64_t(0))) return clone(self);
        return index_put(self, within(self, indices), masked_fill(values, logical_not(mask), 0), true);
      })
      .samples({"self[3, 4], mask?[5], indices{<3>[5], <4>[5]}, values[5]"});
  define("masked_select(Tensor self, Tensor mask) -> Tensor")
      .grad_name("MaskedSelect")
      .doc("The elements of self where mask is true, as a vector.")
      .no_in_place()
      .reads_data()
      .procedure([](const Tensor& self, const Tensor& mask) {
        runtime_check(mask.dtype() == DType::Bool, "masked_select")
            << "expected BoolTensor for mask, got " << mask.dtype();
        Dims sizes = broadcast_sizes("masked_select", std::vector<SymSpan>{self.sizes(), mask.sizes()});
        if (sizes.empty()) sizes = {SymInt(int64_t(1))};  // the result is a vector even of a 0-d tensor
        return index(expand(self, sizes), std::vector<Tensor>{expand(mask, sizes)});
      })
      .samples({"self[3, 4], mask?[3, 4]", "self[3, 4], mask?[4]", "self[33, 65], mask?[33, 65]"});
  define("nonzero(Tensor self) -> Tensor")
      .dtypes(d::stored)
      .doc("Positions of the non-zero elements: int64 [count, rank], in row-major order.")
      .bind(hidden)
      .no_in_place()
      .non_differentiable()
      .result(ResultType::int64)
      .shape([](const Call& c) { return Dims{product(c.sizes("self")), SymInt(int64_t(c.rank("self")))}; })
      .data_dependent("nonzero")
      .reference([](const Tensor& self) {
        Tensor found = reshape(ne(self, 0), Sizes{int64_t(-1)});
        Tensor at = narrow(argsort(found, 0, true, true), 0, int64_t(0), sum(found).item().to_int());
        std::vector<Tensor> columns;
        int64_t stride = 1;
        for (int k = self.dim(); k-- > 0; stride *= self.size(k).guard_int())
          columns.insert(columns.begin(), remainder(floor_divide(at, stride), self.size(k).guard_int()));
        return columns.empty() ? empty(Sizes{at.size(0), SymInt(int64_t(0))}, DType::Int64)
                               : stack(columns, 1);
      })
      .samples({"self[3, 4]", "self[]", "self[0, 3]", "self[33, 65]"});
  define("_repeated_positions(Tensor counts) -> Tensor")
      .doc("Of a vector of int64: k, counts[k] times, for all k in order.")
      .bind(hidden)
      .no_in_place()
      .non_differentiable()
      .result(ResultType::int64)
      .shape([](const Call& c) {
        Tensor counts = c.tensor("counts");
        runtime_check(counts.dim() == 1 && counts.dtype() == DType::Int64, "repeat_interleave")
            << "expects a vector of int64 as repeats, got " << counts.dtype() << " of shape "
            << to_string(counts.sizes());
        return Dims{SymInt(sym::kMostSize)};
      })
      .data_dependent("repeated_positions")
      .reference([](const Tensor& counts) {
        runtime_check(!any(lt(counts, 0)).item().to_bool(), "repeat_interleave")
            << "repeats can not be negative";
        Tensor ends = cumsum(counts, 0);  // a place is the number of ends at or before it
        SymInt last = counts.numel() - SymInt(int64_t(1));
        int64_t total = last < SymInt(int64_t(0)) ? 0 : select(ends, 0, last).item().to_int();
        Tensor marks = index_add(zeros(Sizes{total + 1}, DType::Int64), 0, ends, ones_like(ends));
        return narrow(cumsum(marks, 0), 0, int64_t(0), total);
      })
      .samples({"counts<4>[5]", "counts<4>[0]"});
  define("repeat_interleave.Tensor(Tensor repeats, *, SymInt? output_size=None) -> Tensor")
      .doc("k, repeats[k] times, for all k in order.")
      .bind(function)
      .reads_data()
      .no_in_place()
      .non_differentiable()
      .procedure([](const Call& c, const Tensor& repeats) {
        check_repeats(repeats, 1, "only accepts a vector of int64 or int32 as repeats");
        return to_dtype(positions(c, repeats), repeats.dtype());
      })
      .samples({"repeats<4>[5]"});
  define(
      "repeat_interleave.self_Tensor(Tensor self, Tensor repeats, int? dim=None, *, SymInt? output_size=None) -> Tensor")
      .doc("Each slice along `dim`, each element without it, repeats[k] times, one after the other.")
      .dtypes(d::stored)
      .promote(Promote::none)
      .reads_data()
      .no_in_place()
      .procedure([](const Call& c, const Tensor& self, const Tensor& repeats, std::optional<int64_t> dim) {
        check_repeats(repeats, 0, "repeats must be 0-dim or 1-dim tensor of int64 or int32");
        Tensor x = dim ? self : flat(self);
        int k = repeated_dim(x, dim);
        Tensor counts = flat(repeats);
        if (counts.size(0) == SymInt(int64_t(1))) counts = expand(counts, Sizes{x.size(k)});
        runtime_check(counts.size(0) == x.size(k), "repeat_interleave")
            << "repeats must have the same size as input along dim, but got repeats.size(0) = "
            << counts.size(0) << " and input.size(" << k << ") = " << x.size(k);
        return index_select(x, k, positions(c, counts));
      })
      .samples({"self[3, 2], repeats<3>[3], dim=0", "self[2, 2], repeats<3>[4]",
                "self[2, 3], repeats<3>[], dim=1"});
  define(
      "repeat_interleave.self_int(Tensor self, SymInt repeats, int? dim=None, *, SymInt? output_size=None) -> Tensor")
      .doc("Each slice along `dim`, each element without it, `repeats` times, one after the other.")
      .dtypes(d::stored)
      .no_in_place()
      .procedure([](const Call& c, const Tensor& self, SymInt repeats, std::optional<int64_t> dim) {
        Tensor x = dim ? self : flat(self);
        int k = repeated_dim(x, dim);
        runtime_check(!(repeats < SymInt(int64_t(0))), "repeat_interleave") << "Repeats must be non-negative";
        SymInt whole = x.size(k) * repeats;
        runtime_check(!c.has("output_size") || c.integer("output_size") == whole, "repeat_interleave")
            << "Invalid output_size, expected " << whole << " but got " << c.integer("output_size");
        Tensor each = expand(unsqueeze(x, k + 1), inserted(x.sizes(), k + 1, repeats));
        return view(clone(each, MemoryFormat::contiguous), with(x.sizes(), k, whole));
      })
      .samples({"self[3, 2], repeats=2, dim=1", "self[2, 2], repeats=3", "self[2], repeats=0"});
  define("_of_length(Tensor self) -> Tensor")
      .doc(
          "A vector in one element of memory, as long as the single integer in `self` says: a trace makes a size of it.")
      .bind(hidden)
      .no_in_place()
      .non_differentiable()
      .checks()
      .dtypes(d::integral)
      .result(ResultType::boolean)
      .shape([](const Call&) { return Dims{SymInt(sym::kMostSize)}; })
      .data_dependent("of_length")
      .reference([](const Tensor& self) {
        int64_t n = self.item().to_int();
        runtime_check(n >= 0 && n <= sym::kMostSize, "item")
            << "an integer that a traced function reads is a size, which " << n << " can not be"
            << hint("compute with the tensor itself, or read it outside of the function");
        return expand(zeros(Sizes{int64_t(1)}, DType::Bool), Sizes{n});
      })
      .samples({"self<4>[]"});
  define("where.positions(Tensor condition) -> Tensor[]")
      .doc("The positions where condition is true, a vector for each dimension.")
      .bind(function)
      .no_in_place()
      .reads_data()
      .procedure([](const Tensor& condition) {
        return unbind(nonzero(condition.dim() ? condition : view(condition, 1)), 1);
      })
      .samples({"condition?[3, 4]"});
  define("argwhere(Tensor self) -> Tensor")
      .doc("Positions of the non-zero elements: int64 [count, rank], in row-major order.")
      .no_in_place()
      .non_differentiable()
      .reads_data()
      .procedure([](const Tensor& self) { return nonzero(self); })
      .samples({"self[3, 4]", "self[0, 3]"});
  define(
      "embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, bool sparse=False) -> Tensor")
      .python(
          "embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False)",
          "padding_idx = row_of(padding_idx, weight)", "limit_rows(weight, input, max_norm, norm_type)")
      .also("indices", "input")
      .dtypes(d::stored)
      .doc("Rows of weight [count, width] picked by indices [*]: [*, width].")
      .bind(function)
      .no_in_place()
      .shape([](const Call& c) {
        Tensor weight = c.tensor("weight");
        runtime_check(weight.dim() == 2, "embedding")
            << "'weight' must be 2-D, got shape " << to_string(weight.sizes());
        check_index_dtype("embedding", "indices", c.tensor("indices"));
        Dims sizes(c.sizes("indices"));
        sizes.push_back(weight.size(1));
        return sizes;
      })
      .checks()
      .loop([](const LoopCall& c, Index i) {
        Index at(i.begin(), i.end() - 1);
        Expr row = cast(c.load("indices", at), DType::Int64);
        return c.load("weight", {within(row, loop::size(c.size("weight", 0))), i.back()});
      })
      // Leaves out padding_idx, which only affects the gradient.
      .vjp([](const Vjp& v) {
        Tensor grad = v.grad(), indices = v["indices"];
        SymInt rows = v.call().size("weight", 0);
        if (v.call().flag("sparse")) {
          runtime_check(!v.call().flag("scale_grad_by_freq"), "embedding")
              << "scale_grad_by_freq not supported with sparse gradients" << hint("leave sparse False");
          return grads(_sparse_rows(grad, indices, rows, v.call().integer("padding_idx")), Tensor());
        }
        if (v.call().flag("scale_grad_by_freq")) {  // the mean over a row's occurrences instead of the sum
          Tensor one = unsqueeze(ones_like(indices, DType::Int64), -1);
          grad = grad / embedding(_embedding_backward(one, indices, rows, int64_t(-1)), indices);
        }
        return grads(_embedding_backward(grad, indices, rows, v.call().integer("padding_idx")), Tensor());
      })
      .samples({"weight[4, 5], indices<4>[3, 2]", "weight[4, 5], indices<4>[7]",
                "weight[4, 5], indices<4>[0]", "weight[65, 17], indices<65>[129]"});
  define("embedding_renorm_(Tensor(a!) self, Tensor indices, float max_norm, float norm_type) -> Tensor(a!)")
      .differs("\\w+ error: IndexError .* is out of bounds .* for a result with indices: ",
               "a row that is none is refused; PyTorch writes before the matrix")
      .doc("self, of whose rows `indices` those of a larger norm are scaled down to max_norm.")
      .bind(function)
      .procedure([](const Tensor& self, const Tensor& indices, double max_norm, double norm_type) {
        runtime_check(self.dim() == 2, "embedding_renorm_")
            << "'self' must be 2-D, got shape " << to_string(self.sizes());
        check_index_dtype("embedding_renorm_", "indices", indices);
        // A row with several indices is written several times with the same value.
        Tensor at = to_dtype(reshape(indices, Sizes{indices.numel()}), DType::Int64),
               rows = index_select(self, 0, at);
        Tensor length = norm(rows, std::optional<Scalar>(norm_type), Sizes{int64_t(1)}, true);
        // In float64, which holds every bound.
        Tensor wide = to_dtype(length, DType::Float64);
        Tensor less = div(full_like(wide, max_norm), add(wide, 1e-7));
        Tensor scale = to_dtype(where(gt(wide, max_norm), less, ones_like(wide)), rows.dtype());
        return index_copy_(self, 0, at, mul(rows, scale));
      })
      .samples({"self[4, 3], indices<4>[2, 2], max_norm=0.5, norm_type=2.0"});
  define("_embedding_backward(Tensor grad, Tensor indices, SymInt rows, SymInt padding_idx) -> Tensor")
      .doc("Rows of grad added up by index; padding_idx gets none.")
      .bind(hidden)
      .no_in_place()
      .shape([](const Call& c) { return Dims{c.integer("rows"), c.size("grad", -1)}; })
      .checks()
      .loop([](const LoopCall& c) {
        Definition def;
        def.rank = 2;
        Scatter s;
        s.domain = Dims(c.sizes("grad"));
        Index i;
        for (size_t k = 0; k < s.domain.size(); ++k) i.push_back(loop::index(int(k)));
        Index at(i.begin(), i.end() - 1);
        Expr row = within(cast(c.load("indices", at), DType::Int64), loop::size(c.integer("rows")));
        Expr g = c.load("grad", i);
        SymInt padding = c.integer("padding_idx");
        if (padding >= SymInt(int64_t(0))) g = select(eq(row, loop::size(padding)), zero_of(g.dtype()), g);
        s.target = {row, i.back()};
        s.value = g;
        def.scatter = s;
        return def;
      })
      .samples({"grad[3, 2, 5], indices<4>[3, 2], rows=4, padding_idx=-1",
                "grad[3, 2, 5], indices<4>[3, 2], rows=4, padding_idx=1"});
  define("one_hot(Tensor self, SymInt num_classes=-1) -> Tensor")
      .doc("int64 [*, num_classes]: 1 at the class, else 0.")
      .bind(nn_functional)
      .no_in_place()
      .non_differentiable()
      .reads_data()
      .procedure([](const Tensor& self, SymInt classes) {
        runtime_check(self.dtype() == DType::Int64, "one_hot")
            << "is only applicable to index tensors of dtype int64, got " << self.dtype();
        runtime_check(!(classes < SymInt(int64_t(-1))), "one_hot")
            << "class values must be smaller than num_classes, which is " << classes;
        bool told = !(classes < SymInt(int64_t(0)));
        if (told && self.is_traced()) {  // a kernel says which class does not fit
          Dims sizes(self.sizes());
          sizes.push_back(classes);
          return scatter(zeros(sizes, DType::Int64), -1, unsqueeze(self, -1), 1);
        }
        if ((catalog::has_elements(self) || !told) && self.numel() > SymInt(int64_t(0))) {
          int64_t low = amin(self).item().to_int(), high = amax(self).item().to_int();
          runtime_check(low >= 0, "one_hot") << "class values must be non-negative, got " << low;
          runtime_check(high < std::numeric_limits<int64_t>::max(), "one_hot")
              << "class values must be smaller than " << high;
          if (classes < SymInt(int64_t(0))) classes = high + 1;
          runtime_check(SymInt(high) < classes, "one_hot")
              << "class values must be smaller than num_classes, got " << high << " for " << classes;
        }
        runtime_check(classes > SymInt(int64_t(0)), "one_hot")
            << "num_classes must be positive where there are no values to infer it from";
        Tensor k = arange(Scalar(classes.guard_int()));
        return to_dtype(eq(unsqueeze(contiguous(self), -1), k), DType::Int64);
      })
      .samples({"self<3>[3, 2], num_classes=4", "self<5>[7]"});
}
