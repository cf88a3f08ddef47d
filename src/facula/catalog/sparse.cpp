// Sparse tensors (tensor/sparse.h): what makes them, their parts, conversions, and what other operators do with them.
// All is made of operators on the parts. Two nodes of the tape connect parts with handles: the gradient of a sparse
// tensor made of values is read at its indices, the gradient of values is a sparse tensor of the same indices.
#include <functional>

#include "facula/autograd/autograd.h"
#include "facula/autograd/function.h"
#include "facula/catalog/vectors.h"
#include "facula/op/helpers.h"
#include "facula/ops.h"
#include "facula/run/sparse.h"
#include "facula/tensor/promotion.h"
#include "facula/tensor/sparse.h"

using namespace facula;
using namespace facula::op;
namespace d = facula::dtypes;

namespace facula::catalog::sparse {
namespace {

const SymInt kZero = int64_t(0), kOne = int64_t(1);

bool wants_gradient(const Tensor& t) { return autograd::grad_enabled() && t.requires_grad(); }

// What `value` gives, with a node that turns its gradient into that of `of`.
Tensor recorded(const char* name, const Tensor& of, const std::function<Tensor()>& value,
                std::function<Tensor(const Tensor& grad)> gradient) {
  if (!wants_gradient(of)) return value();
  auto node = make_ref<autograd::FunctionNode>(name, std::vector<Tensor>{of});
  node->backward = [gradient = std::move(gradient)](std::vector<Tensor> g) {
    return std::vector<Tensor>{gradient(g[0])};
  };
  Tensor made;
  {
    autograd::GradMode off(false);
    made = value();
  }
  return node->finish({made})[0];
}

Dims sizes_from(SymSpan sizes, int from) { return Dims(sizes.subspan(size_t(from))); }
Dims sizes_of_values(const Tensor& s) {
  Dims all{SymInt(sparse_parts(s).nnz())};
  for (SymInt n : sizes_from(s.sizes(), sparse_parts(s).sparse_dims())) all.push_back(n);
  return all;
}

// Where a vector of bool is true.
Tensor places_of(const Tensor& flags) { return select(facula::transpose(nonzero(flags), 0, 1), 0, kZero); }

// Smallest and largest of some whole numbers; 0 and -1 of none.
std::pair<int64_t, int64_t> range_of(const Tensor& x) {
  if (x.numel() == kZero) return {0, -1};
  return {amin(x).item().to_int(), amax(x).item().to_int()};
}

// For each whole number from first[k] to first[k] + counts[k]: k, and that number; all one after the other.
std::pair<Tensor, Tensor> ranges(const Tensor& first, const Tensor& counts) {
  Tensor ends = cumsum(counts, 0);
  int64_t total = ends.size(0) > kZero ? select(ends, 0, ends.size(0) - kOne).item().to_int() : 0;
  Tensor all = arange(Scalar(total)), mine = searchsorted(ends, all, false, true);
  Tensor shift = facula::sub(first, facula::sub(ends, counts));
  return {mine, facula::add(all, facula::index_select(shift, 0, mine))};
}

// Row-major places of indices [dims, n] in a box of these sizes.
Tensor flat(const Tensor& indices, SymSpan sizes) {
  int64_t dims = indices.size(0).concrete(), stride = 1;
  if (dims == 1) return select(indices, 0, kZero);
  std::vector<int64_t> strides(static_cast<size_t>(dims));
  for (size_t k = size_t(dims); k-- > 0; stride *= sizes[k].concrete()) strides[k] = stride;
  return facula::sum(facula::mul(indices, facula::unsqueeze(vector_of(strides), 1)), Dims{kZero});
}
// rows[i] added to row at[i] of zeros; `zero` is what they start with.
Tensor added_up(const Tensor& rows, const Tensor& at, SymInt count, double zero) {
  Dims sizes(rows.sizes());
  sizes[0] = count;
  if (rows.dtype() == DType::Bool)
    return ne(index_add(zeros(sizes, DType::Int64), 0, at, facula::to(rows, DType::Int64)),
              Scalar(int64_t(0)));
  Scalar start = is_differentiable(rows.dtype()) ? Scalar(zero) : Scalar(int64_t(0));
  return index_add(full(sizes, start, rows.dtype()), 0, at, rows);
}

// The row of each element of a CSR tensor.
Tensor rows_of(const Tensor& crow, const Tensor& columns) {
  Tensor at = arange(Scalar(columns.size(0).concrete()), crow.dtype());
  return facula::to(searchsorted(slice(crow, 0, kOne), at, false, true), DType::Int64);
}
// The indices of a COO or CSR tensor as those of a COO one.
Tensor indices_of(const SparseParts& p) {
  if (!p.crow.defined()) return p.indices;
  return stack({rows_of(p.crow, p.indices), facula::to(p.indices, DType::Int64)}, 0);
}

Tensor with_values(const Tensor& like, const Tensor& values);
Tensor make(const Tensor& indices, const Tensor& crow, const Tensor& values, SymSpan sizes, bool coalesced);
Tensor coo(const Tensor& indices, const Tensor& values, SymSpan sizes, bool coalesced = false) {
  return make(indices, {}, values, sizes, coalesced);
}

Tensor values_of(const Tensor& s) {
  Tensor values = sparse_parts(s).values, shell = s.detached();
  // The shell keeps these indices, whatever is written to s.
  if (wants_gradient(s)) shell = make_sparse(sparse_parts(s), s.sizes());
  return recorded(
      "ValuesBackward0", s, [&] { return values.detached(); },
      [shell](const Tensor& g) { return with_values(shell, g); });
}

Tensor coalesced(const Tensor& s);
// For what is computed of values one by one: where a gradient is wanted every index is there once, because the gradient
// of an element is one number.
Tensor pattern(const Tensor& s) { return wants_gradient(s) && is_coo(s) ? coalesced(s) : s; }

Tensor dense_at(const Tensor& x, const Tensor& indices) {
  std::vector<Tensor> at = facula::unbind(indices, 0);
  if (!at.empty()) return index(x, at);
  Dims sizes{indices.size(1)};
  for (SymInt n : x.sizes()) sizes.push_back(n);
  return facula::expand(facula::unsqueeze(x, 0), sizes);
}

// Where the keys of `wanted` are among the sorted `keys`, and whether they are.
std::pair<Tensor, Tensor> found(const Tensor& keys, const Tensor& wanted) {
  Tensor at = clamp(searchsorted(keys, wanted), std::nullopt, Scalar(keys.size(0).concrete() - 1));
  return {at, eq(facula::index_select(keys, 0, at), wanted)};
}

Tensor as_column(const Tensor& flags, const Tensor& like) {
  Dims sizes(size_t(like.dim()), kOne);
  sizes[0] = flags.size(0);
  return reshape(flags, sizes);
}

Tensor dense_of(const Tensor& s);
// The elements of a dense or sparse tensor at these indices; 0 where a sparse one has none.
Tensor elements_at(const Tensor& x, const Tensor& indices) {
  if (!is_sparse(x)) return dense_at(x, indices);
  if (is_csr(x) || sparse_parts(x).sparse_dims() != indices.size(0).concrete())
    return dense_at(dense_of(x), indices);
  if (sparse_parts(x).coalesced && sparse_parts(x).indices.is_same(indices)) return values_of(x);
  Tensor s = coalesced(x);
  auto& p = sparse_parts(s);
  Dims box(s.sizes().first(size_t(p.sparse_dims())));
  Dims sizes = sizes_of_values(s);
  sizes[0] = indices.size(1);
  if (p.nnz() == 0) return zeros(sizes, s.dtype());
  auto [at, hit] = found(flat(p.indices, box), flat(indices, box));
  Tensor picked = facula::index_select(values_of(s), 0, at);
  return where(as_column(hit, picked), picked, zeros(Dims{}, picked.dtype()));
}

Tensor make(const Tensor& indices, const Tensor& crow, const Tensor& values, SymSpan sizes,
            bool is_coalesced) {
  SparseParts parts{indices, values.detached(), crow, is_coalesced};
  if (!crow.defined() && parts.nnz() < 2) parts.coalesced = true;
  return recorded(
      crow.defined() ? "SparseCsrTensorBackward0" : "SparseCooTensorBackward0", values,
      [&] { return make_sparse(parts, sizes); },
      [indices, crow](const Tensor& g) {
        if (crow.defined() && is_csr(g) && sparse_parts(g).indices.is_same(indices)) return values_of(g);
        return elements_at(g, indices_of({indices, {}, crow}));
      });
}

Tensor with_values(const Tensor& like, const Tensor& values) {
  auto& p = sparse_parts(like);
  return make(p.indices, p.crow, values, like.sizes(), p.coalesced);
}

// Every index once, sorted; elements of the same index added up.
SparseParts sums(const Tensor& s) {
  auto& p = sparse_parts(s);
  SparseParts made;
  made.coalesced = true;
  int64_t n = p.nnz();
  int dims = p.sparse_dims();
  if (n < 2) {
    made.indices = p.indices;
    made.values = p.values;
  } else if (dims == 0) {
    made.indices = zeros(Dims{kZero, kOne}, DType::Int64);
    made.values = added_up(p.values, zeros(Dims{SymInt(n)}, DType::Int64), kOne, -0.0);
  } else {
    Dims box(s.sizes().first(size_t(dims)));
    auto [keys, order] = sort(flat(p.indices, box), -1, false, true);
    Tensor changes = ne(slice(keys, 0, kOne), slice(keys, 0, kZero, SymInt(n - 1)));
    Tensor first = facula::cat({full(Dims{kOne}, true, DType::Bool), changes});
    Tensor segment = facula::sub(cumsum(first, 0), Scalar(int64_t(1)));
    Tensor places = masked_select(keys, first);
    made.indices = stack(unravel_index(places, box), 0);
    made.values = added_up(facula::index_select(p.values, 0, order), segment, places.size(0), -0.0);
  }
  return made;
}
Tensor coalesced(const Tensor& s) {
  if (is_csr(s) || sparse_parts(s).coalesced) return s;
  return recorded(
      "CoalesceBackward0", s, [&] { return make_sparse(sums(s), s.sizes()); },
      [](const Tensor& g) { return g; });
}

Tensor dense_of(const Tensor& given) {
  Tensor s = pattern(given);
  auto& p = sparse_parts(s);
  Tensor values = values_of(s), indices = indices_of(p);
  int dims = p.sparse_dims();
  Dims box(s.sizes().first(size_t(dims))), sizes{product(box)};
  for (SymInt n : sizes_from(s.sizes(), dims)) sizes.push_back(n);
  Tensor at = dims ? flat(indices, box) : zeros(Dims{values.size(0)}, DType::Int64);
  if (product(sizes) == kZero) return zeros(s.sizes(), s.dtype());
  return reshape(added_up(values, at, sizes[0], 0.0), s.sizes());
}

// A dense tensor as a sparse one of `dims` sparse dimensions: where any element behind them is not 0.
Tensor sparse_of(const Tensor& x, int dims) {
  Tensor mask = ne(detach(x), Scalar(int64_t(0)));
  if (dims < x.dim()) {
    Dims behind;
    for (int k = dims; k < x.dim(); ++k) behind.push_back(SymInt(int64_t(k)));
    mask = facula::any(mask, behind);
  }
  Tensor indices = clone(facula::transpose(nonzero(mask), 0, 1), MemoryFormat::contiguous);
  return coo(indices, dense_at(x, indices), x.sizes(), true);
}

Tensor csr_of(const Tensor& x) {
  if (is_csr(x)) return x;
  runtime_check(x.dim() == 2, "to_sparse_csr")
      << "only matrices can be compressed by rows, got shape " << to_string(x.sizes());
  Tensor s = is_coo(x) ? coalesced(x) : sparse_of(x, 2);
  auto& p = sparse_parts(s);
  runtime_check(p.sparse_dims() == 2, "to_sparse_csr")
      << "a matrix with dense dimensions has no rows of elements";
  Tensor rows = select(p.indices, 0, kZero), columns = clone(select(p.indices, 0, kOne));
  Tensor crow = searchsorted(contiguous(rows), arange(Scalar(x.size(0).concrete() + 1)));
  return make(columns, crow, values_of(s), x.sizes(), true);
}
Tensor coo_of(const Tensor& s) {
  if (!is_csr(s)) return s;
  return coo(indices_of(sparse_parts(s)), values_of(s), s.sizes(), false);
}

bool is_number(const Value& v) {
  return v.tag == Tag::scalar || v.tag == Tag::integer ||
         (v.tag == Tag::tensor && v.tensor->sizes.empty() && !facula::is_sparse(v.tensor));
}
Tensor as_tensor(const Value& v) {
  return v.tag == Tag::tensor ? Tensor(Ref<TensorImpl>::share(v.tensor)) : op::wrapped_number(v.number());
}

Tensor empty_like_of(const Tensor& s, std::optional<DType> dtype) {
  auto& p = sparse_parts(s);
  DType t = dtype.value_or(s.dtype());
  Dims sizes = sizes_of_values(s);
  sizes[0] = kZero;
  if (is_csr(s))
    return make(zeros(Dims{kZero}, p.indices.dtype()), zeros(p.crow.sizes(), p.crow.dtype()), zeros(sizes, t),
                s.sizes(), true);
  return coo(zeros(Dims{p.indices.size(0), kZero}, DType::Int64), zeros(sizes, t), s.sizes(), true);
}

void check_same_sizes(const char* op, const Tensor& a, const Tensor& b) {
  runtime_check(Dims(a.sizes()) == Dims(b.sizes()), op)
      << "expected sparse tensors of the same size, got " << to_string(a.sizes()) << " and "
      << to_string(b.sizes());
  runtime_check(sparse_parts(a).sparse_dims() == sparse_parts(b).sparse_dims(), op)
      << "expected sparse tensors with the same number of sparse dimensions, got "
      << sparse_parts(a).sparse_dims() << " and " << sparse_parts(b).sparse_dims();
}

Tensor times(const Tensor& x, const Scalar& alpha) {
  return alpha.to_complex() == 1.0 ? x : facula::mul(x, alpha);
}

Tensor sparse_sum(const char* op, const Tensor& a, const Tensor& b, const Scalar& alpha) {
  check_same_sizes(op, a, b);
  Tensor x = pattern(a), y = pattern(b);
  auto &p = sparse_parts(x), &q = sparse_parts(y);
  if (p.indices.is_same(q.indices))
    return coo(p.indices, facula::add(values_of(x), values_of(y), alpha), a.sizes(),
               p.coalesced && q.coalesced);
  DType t = promote(a.dtype(), b.dtype());
  Tensor values = facula::cat({facula::to(values_of(x), t), facula::to(times(values_of(y), alpha), t)});
  Tensor all = coo(facula::cat({p.indices, q.indices}, 1), values, a.sizes());
  return p.coalesced && q.coalesced ? coalesced(all) : all;
}

// x + alpha * s, of which x is dense.
Tensor dense_sum(const char* op, const Tensor& x, const Tensor& given, const Scalar& alpha, Form form) {
  Tensor s = pattern(coo_of(given));
  DType t = promote(x.dtype(), s.dtype());
  bool same = Dims(x.sizes()) == Dims(s.sizes());
  runtime_check(same || (form == Form::functional && broadcasts_to(x.sizes(), s.sizes())), op)
      << "expected a dense and a sparse tensor of the same size, got " << to_string(x.sizes()) << " and "
      << to_string(s.sizes());
  runtime_check(form == Form::functional || can_cast(t, x.dtype()), op)
      << "result type " << t << " can't be cast to the desired output type " << x.dtype();
  if (form == Form::in_place) t = x.dtype();
  auto& p = sparse_parts(s);
  Tensor values = facula::to(values_of(s), t);
  bool fresh = form == Form::functional;
  Tensor into = fresh ? facula::to(same ? x : facula::expand(x, s.sizes()), t) : x;
  if (p.nnz() == 0) return fresh && into.is_same(x) ? facula::clone(x) : into;
  std::vector<Tensor> at = facula::unbind(p.indices, 0);
  if (at.empty()) values = facula::sum(values, Dims{kZero});
  if (!fresh && at.size() == 1) return index_add_(into, 0, at[0], values, alpha);
  if (at.empty() || at.size() == 1) {
    Tensor y = at.empty() ? facula::add(into, values, alpha) : index_add(into, 0, at[0], values, alpha);
    return fresh ? y : copy_(into, y);
  }
  values = times(values, alpha);
  return fresh ? index_put(into, at, values, true) : index_put_(into, at, values, true);
}

Results sum_of(const Call& c, Form form, bool minus) {
  const Value &a = c["self"], &b = c["other"];
  Scalar alpha = c.number("alpha");
  if (minus)
    alpha = alpha.category() == Category::complex    ? Scalar(-alpha.to_complex())
            : alpha.category() == Category::floating ? Scalar(-alpha.to_double())
                                                     : Scalar(-alpha.to_int());
  Tensor x = as_tensor(a), y = as_tensor(b);
  if (is_coo(x) && is_coo(y)) return sparse_sum(c.name(), x, y, alpha);
  if (is_csr(x) && is_csr(y))
    return csr_of(coalesced(sparse_sum(c.name(), coalesced(coo_of(x)), coalesced(coo_of(y)), alpha)));
  runtime_check(!is_sparse(x) || is_sparse(y), c.name())
      << c.name() << "(sparse, dense) is not supported. Use " << c.name() << "(dense, sparse) instead."
      << hint("or to_dense() of the first");
  if (a.tag != Tag::tensor || x.impl()->wrapped_number || is_sparse(x)) return {};
  return dense_sum(c.name(), x, y, alpha, form);
}

}  // namespace

Results add(const Call& c, Form form) { return sum_of(c, form, false); }
Results sub(const Call& c, Form form) { return sum_of(c, form, true); }

Results on_values(const Call& c, Form) {
  Tensor s = pattern(c.tensor("self"));
  std::vector<Value> args(c.args().begin(), c.args().end());
  Tensor values = values_of(s);
  args[0] = Value(values);
  return with_values(s, op::call(c.op(), args)[0]);
}

Results mul(const Call& c, Form) {
  const Value &a = c["self"], &b = c["other"];
  if (is_number(a) || is_number(b)) {
    Tensor s = pattern(as_tensor(is_number(a) ? b : a));
    Tensor k = as_tensor(is_number(a) ? a : b);
    return with_values(s, facula::mul(values_of(s), k));
  }
  Tensor x = as_tensor(a), y = as_tensor(b);
  if (is_csr(x) || is_csr(y)) return {};
  if (is_sparse(x) && is_sparse(y)) {
    check_same_sizes(c.name(), x, y);
    x = coalesced(x);
    y = coalesced(y);
    auto &p = sparse_parts(x), &q = sparse_parts(y);
    if (p.indices.is_same(q.indices))
      return coo(p.indices, facula::mul(values_of(x), values_of(y)), x.sizes(), true);
    if (p.nnz() == 0 || q.nnz() == 0) return empty_like_of(x, promote(x.dtype(), y.dtype()));
    Dims box(x.sizes().first(size_t(p.sparse_dims())));
    if (box.empty()) return coo(p.indices, facula::mul(values_of(x), values_of(y)), x.sizes(), true);
    auto [at, hit] = found(flat(q.indices, box), flat(p.indices, box));
    Tensor mine = places_of(hit), theirs = facula::index_select(at, 0, mine);
    Tensor values = facula::mul(facula::index_select(values_of(x), 0, mine),
                                facula::index_select(values_of(y), 0, theirs));
    return coo(facula::index_select(p.indices, 1, mine), values, x.sizes(), true);
  }
  Tensor s = pattern(is_sparse(x) ? x : y), dense = is_sparse(x) ? y : x;
  if (!broadcasts_to(dense.sizes(), s.sizes())) return {};
  Tensor picked = dense_at(facula::expand(dense, s.sizes()), sparse_parts(s).indices);
  Tensor values = values_of(s);
  return with_values(s, is_sparse(x) ? facula::mul(values, picked) : facula::mul(picked, values));
}

Results div(const Call& c, Form) {
  const Value& by = c["other"];
  if (is_sparse(as_tensor(by))) return {};
  runtime_check(is_number(by), c.name())
      << "Sparse division requires a scalar or zero-dim dense tensor divisor (got shape "
      << to_string(c.sizes("other")) << " for divisor)";
  Tensor s = pattern(c.tensor("self"));
  return with_values(s, facula::div(values_of(s), as_tensor(by)));
}

namespace {

void check_matrices(const Call& c, const Tensor& a, const Tensor& b) {
  runtime_check(a.dim() == 2 && b.dim() == 2, c.name())
      << "expected matrices, got shapes " << to_string(a.sizes()) << " and " << to_string(b.sizes());
  runtime_check(a.size(1) == b.size(0), c.name())
      << "mat1 and mat2 shapes cannot be multiplied (" << a.size(0) << "x" << a.size(1) << " and "
      << b.size(0) << "x" << b.size(1) << ")";
  runtime_check(a.dtype() == b.dtype(), c.name())
      << "expected both matrices to have the same dtype, but got " << a.dtype() << " and " << b.dtype();
}
bool is_of_elements(const Tensor& s) { return !is_sparse(s) || sparse_parts(s).sparse_dims() == 2; }

Tensor transposed(const Tensor& s) {
  auto& p = sparse_parts(s);
  return coo(flip(p.indices, Dims{kZero}), values_of(s), Dims{s.size(1), s.size(0)});
}

// Each element of a meets the row of b that its column names.
Tensor sparse_product(const Tensor& given, const Tensor& other) {
  Tensor a = coalesced(coo_of(given)), b = coalesced(coo_of(other));
  auto &p = sparse_parts(a), &q = sparse_parts(b);
  Dims sizes{a.size(0), b.size(1)};
  Tensor starts =
      searchsorted(contiguous(select(q.indices, 0, kZero)), arange(Scalar(b.size(0).concrete() + 1)));
  Tensor columns = select(p.indices, 0, kOne);
  Tensor first = facula::index_select(starts, 0, columns),
         end = facula::index_select(starts, 0, facula::add(columns, Scalar(int64_t(1))));
  auto [mine, theirs] = ranges(first, facula::sub(end, first));
  Tensor values =
      facula::mul(facula::index_select(values_of(a), 0, mine), facula::index_select(values_of(b), 0, theirs));
  Tensor rows = facula::index_select(select(p.indices, 0, kZero), 0, mine);
  return coalesced(
      coo(stack({rows, facula::index_select(select(q.indices, 0, kOne), 0, theirs)}, 0), values, sizes));
}

Tensor product_of(const Call& c, const Tensor& a, const Tensor& b) {
  if (!is_sparse(a) && !is_sparse(b)) return {};
  check_matrices(c, a, b);
  if (!is_of_elements(a) || !is_of_elements(b)) return {};
  if (is_sparse(a) && is_sparse(b)) {
    Tensor y = sparse_product(a, b);
    return is_csr(a) && is_csr(b) ? csr_of(y) : y;
  }
  if (is_sparse(b))
    return facula::transpose(product_of(c, transposed(pattern(coo_of(b))), facula::transpose(a, 0, 1)), 0, 1);
  Tensor s = pattern(a), indices = indices_of(sparse_parts(s));
  return _sparse_mm(select(indices, 0, kZero), select(indices, 0, kOne), values_of(s), b, a.size(0));
}

}  // namespace

Results mm(const Call& c, Form) {
  Tensor y = product_of(c, c.tensor("self"), c.tensor("mat2"));
  return y.defined() ? Results(y) : Results();
}
Results mv(const Call& c, Form) {
  Tensor s = c.tensor("self"), v = c.tensor("vec");
  if (is_sparse(v)) return {};
  runtime_check(v.dim() == 1, c.name()) << "expected a vector, got shape " << to_string(v.sizes());
  Tensor y = product_of(c, s, facula::unsqueeze(v, 1));
  return y.defined() ? Results(squeeze(y, 1)) : Results();
}
Results addmm(const Call& c, Form) {
  Tensor y = product_of(c, c.tensor("mat1"), c.tensor("mat2")), self = c.tensor("self");
  if (!y.defined()) return {};
  Scalar alpha = c.number("alpha"), beta = c.number("beta");
  if (beta.to_complex() == 0.0) return times(y, alpha);
  Tensor first = times(self, beta);
  runtime_check(is_sparse(y) || !is_sparse(self), c.name()) << "a sparse `self` needs two sparse matrices";
  if (!is_sparse(self)) first = facula::expand(first, Dims{y.size(0), y.size(1)});
  return facula::add(first, y, alpha);
}

Results sum(const Call& c, Form) {
  Tensor s = c.tensor("self");
  auto dtype = c.maybe_dtype("dtype");
  bool all = !c.has("dim") || c.ints("dim").empty();
  if (is_csr(s)) {
    if (!all) return {};
    return facula::sum(values_of(s), std::nullopt, false, dtype);
  }
  s = pattern(s);
  auto& p = sparse_parts(s);
  bool keep = c.flag("keepdim");
  Ints dims = c.dims("dim");
  Tensor values = values_of(s);
  Dims kept_rows, behind, box;
  std::vector<bool> summed(size_t(s.dim()), false);
  for (auto k : dims) summed[size_t(k)] = true;
  for (int k = 0; k < s.dim(); ++k) {
    if (k >= p.sparse_dims() && summed[size_t(k)]) behind.push_back(SymInt(int64_t(k - p.sparse_dims() + 1)));
    if (k < p.sparse_dims() && !summed[size_t(k)]) kept_rows.push_back(SymInt(int64_t(k)));
    if (!summed[size_t(k)]) box.push_back(s.size(k));
    else if (keep) box.push_back(kOne);
  }
  bool none_kept = kept_rows.empty() && !(keep && !all);
  if (none_kept) {  // dense: over all sparse dimensions
    behind.insert(0, kZero);
    return reshape(facula::sum(values, behind, false, dtype), box);
  }
  if (!behind.empty()) values = facula::sum(values, behind, keep, dtype);
  else if (DType t = dtype.value_or(is_differentiable(s.dtype()) ? s.dtype() : DType::Int64); t != s.dtype())
    values = facula::to(values, t);
  std::vector<Tensor> rows;
  for (int k = 0; k < p.sparse_dims(); ++k) {
    if (!summed[size_t(k)]) rows.push_back(facula::select(p.indices, 0, SymInt(int64_t(k))));
    else if (keep) rows.push_back(zeros(Dims{SymInt(p.nnz())}, DType::Int64));
  }
  bool same_rows = int(kept_rows.size()) == p.sparse_dims();
  Tensor made = coo(stack(rows, 0), values, box, p.coalesced && same_rows);
  return coalesced(made);
}

Results norm(const Call& c, Form) {
  if (c.has("dim")) return {};
  Tensor s = coalesced(c.tensor("self")), values = values_of(s);
  std::vector<Value> args(c.args().begin(), c.args().end());
  args[0] = Value(values);
  return op::call(c.op(), args);
}
Results any(const Call& c, Form) {
  if (c.has("dim")) return {};
  return facula::any(values_of(coalesced(c.tensor("self"))));
}

namespace {
// The order of dimensions, by what the call is named by its parameters.
Results permuted(const Call& c, const Ints& order) {
  Tensor s = c.tensor("self");
  if (is_csr(s)) return {};
  s = pattern(s);
  auto& p = sparse_parts(s);
  int dims = p.sparse_dims();
  Dims rows, behind{kZero}, sizes;
  for (size_t k = 0; k < order.size(); ++k) {
    runtime_check((order[k] < dims) == (int(k) < dims), c.name())
        << "transposed dimensions must be both sparse or both dense, of a tensor with " << dims
        << " sparse and " << s.dim() - dims << " dense dimensions";
    if (order[k] < dims) rows.push_back(SymInt(order[k]));
    else behind.push_back(SymInt(order[k] - dims + 1));
    sizes.push_back(s.size(int(order[k])));
  }
  std::vector<int64_t> at;
  bool sorted = true;
  for (size_t k = 0; k < rows.size(); ++k) {
    at.push_back(rows[k].concrete());
    sorted &= at[k] == int64_t(k);
  }
  Tensor values = values_of(s);
  if (behind.size() > 2) values = facula::permute(values, behind);
  return coo(sorted ? p.indices : facula::index_select(p.indices, 0, vector_of(at)), values, sizes,
             p.coalesced && sorted);
}
}  // namespace

Results permute(const Call& c, Form) {
  int rank = c.rank("self");
  Ints order;
  if (c.op().schema.index_of("dims") >= 0) {
    for (SymInt k : c.ints("dims")) order.push_back(wrap_dim(c.name(), k.concrete(), rank));
    Ints sorted(order);
    std::sort(sorted.begin(), sorted.end());
    for (size_t k = 0; k < sorted.size(); ++k)
      runtime_check(int64_t(k) == sorted[k] && int(sorted.size()) == rank, c.name())
          << "expected every dimension of shape " << to_string(c.sizes("self")) << " once";
    return permuted(c, order);
  }
  for (int k = 0; k < rank; ++k) order.push_back(k);
  if (c.op().schema.index_of("dim0") >= 0) {
    if (rank) std::swap(order[size_t(c.dim("dim0"))], order[size_t(c.dim("dim1"))]);
  } else {
    if (rank > 2) return {};
    if (rank == 2) std::swap(order[0], order[1]);
  }
  return permuted(c, order);
}

Results unsqueeze(const Call& c, Form) {
  Tensor s = c.tensor("self");
  if (is_csr(s)) return {};
  s = pattern(s);
  auto& p = sparse_parts(s);
  int at = wrap_dim(c.name(), c.integer("dim").concrete(), s.dim() + 1);
  Dims sizes(s.sizes());
  sizes.insert(size_t(at), kOne);
  if (at > p.sparse_dims())
    return coo(p.indices, facula::unsqueeze(values_of(s), at - p.sparse_dims() + 1), sizes, p.coalesced);
  std::vector<Tensor> rows = facula::unbind(p.indices, 0);
  rows.insert(rows.begin() + at, zeros(Dims{SymInt(p.nnz())}, DType::Int64));
  return coo(stack(rows, 0), values_of(s), sizes, p.coalesced);
}

Results select(const Call& c, Form) {
  Tensor s = c.tensor("self");
  if (is_csr(s)) return {};
  s = pattern(s);
  auto& p = sparse_parts(s);
  int dim = c.dim("dim");
  int64_t n = s.size(dim).concrete(), k = c.integer("index").concrete();
  index_check(k >= -n && k < n, c.name())
      << "index " << k << " is out of bounds for dimension " << dim << " with size " << n;
  if (k < 0) k += n;
  Dims sizes(s.sizes());
  sizes.erase(size_t(dim));
  if (dim >= p.sparse_dims())
    return coo(p.indices, facula::select(values_of(s), dim - p.sparse_dims() + 1, SymInt(k)), sizes,
               p.coalesced);
  Tensor at = places_of(eq(facula::select(p.indices, 0, SymInt(int64_t(dim))), Scalar(k)));
  Tensor values = facula::index_select(values_of(s), 0, at);
  if (p.sparse_dims() == 1) return facula::sum(values, Dims{kZero}, false, s.dtype());
  std::vector<Tensor> rows = facula::unbind(p.indices, 0);
  rows.erase(rows.begin() + dim);
  return coo(facula::index_select(stack(rows, 0), 1, at), values, sizes, p.coalesced);
}

Results index_select(const Call& c, Form) {
  Tensor s = c.tensor("self"), index = c.tensor("index");
  if (!is_coo(s) || is_sparse(index)) return {};
  int dim = c.dim("dim");
  runtime_check(index.dim() <= 1 && (index.dtype() == DType::Int64 || index.dtype() == DType::Int32),
                c.name())
      << "expected a vector of int64 or int32 as index, got " << index.dtype() << to_string(index.sizes());
  index = facula::to(reshape(index, Dims{index.numel()}), DType::Int64);
  s = pattern(s);
  auto& p = sparse_parts(s);
  Dims sizes(s.sizes());
  sizes[size_t(dim)] = index.size(0);
  if (dim >= p.sparse_dims())
    return coo(p.indices, facula::index_select(values_of(s), dim - p.sparse_dims() + 1, index), sizes,
               p.coalesced);
  int64_t n = s.size(dim).concrete();
  auto [low, high] = range_of(index);
  index_check(low >= -n && high < n, c.name()) << "index out of range: between " << low << " and " << high
                                               << " for dimension " << dim << " of size " << n;
  if (low < 0) index = where(lt(index, Scalar(int64_t(0))), facula::add(index, Scalar(n)), index);
  // Elements sorted by this dimension; each place of the index takes those of its row.
  Tensor row = facula::select(p.indices, 0, SymInt(int64_t(dim)));
  auto [keys, order] = sort(row, -1, false, true);
  Tensor first = searchsorted(keys, index),
         counts = facula::sub(searchsorted(keys, index, false, true), first);
  auto [mine, among] = ranges(first, counts);
  Tensor at = facula::index_select(order, 0, among);
  std::vector<Tensor> rows = facula::unbind(facula::index_select(p.indices, 1, at), 0);
  rows[size_t(dim)] = mine;
  return coo(stack(rows, 0), facula::index_select(values_of(s), 0, at), sizes, p.coalesced && dim == 0);
}

Results unbind(const Call& c, Form) {
  Tensor s = c.tensor("self");
  if (is_csr(s)) return {};
  int dim = c.dim("dim");
  Results all;
  for (int64_t k = 0; k < s.size(dim).concrete(); ++k) all.push_back(facula::select(s, dim, SymInt(k)));
  return all;
}

Results cat(const Call& c, Form) {
  std::vector<Tensor> tensors = c.tensors("tensors"), values, indices;
  for (auto& t : tensors) {
    if (!is_coo(t)) return {};
    t = pattern(t);
  }
  const Tensor& first = tensors[0];
  int dim = wrap_dim(c.name(), c.integer("dim").concrete(), first.dim()),
      dims = sparse_parts(first).sparse_dims();
  Dims sizes(first.sizes());
  int64_t offset = 0;
  DType type = first.dtype();
  for (auto& t : tensors) type = promote(type, t.dtype());
  supported_check(dim < dims, c.name())
      << "joins sparse tensors along their sparse dimensions, of which they have " << dims << ", got dim "
      << dim;
  for (auto& t : tensors) {
    auto& p = sparse_parts(t);
    bool fits = t.dim() == first.dim() && p.sparse_dims() == dims;
    for (int k = 0; fits && k < t.dim(); ++k) fits = k == dim || t.size(k) == first.size(k);
    runtime_check(fits, c.name()) << "sizes and sparse dimensions of tensors must match except in dimension "
                                  << dim << ": " << shapes_of(tensors);
    std::vector<int64_t> step(size_t(dims), 0);
    step[size_t(dim)] = offset;
    indices.push_back(facula::add(p.indices, facula::unsqueeze(vector_of(step), 1)));
    values.push_back(facula::to(values_of(t), type));
    offset += t.size(dim).concrete();
  }
  sizes[size_t(dim)] = SymInt(offset);
  return coo(facula::cat(indices, 1), facula::cat(values), sizes);
}

Results zeros_like(const Call& c, Form) {
  bool asked = c.op().schema.index_of("dtype") >= 0;
  return empty_like_of(c.tensor("self"), asked ? c.maybe_dtype("dtype") : std::nullopt);
}
Results clone(const Call& c, Form) {
  Tensor s = c.tensor("self");
  auto& p = sparse_parts(s);
  Tensor crow = p.crow.defined() ? facula::clone(p.crow) : Tensor(), indices = facula::clone(p.indices);
  if (!wants_gradient(s)) return make(indices, crow, facula::clone(p.values), s.sizes(), p.coalesced);
  bool once = p.coalesced;
  return recorded(
      "CloneBackward0", s, [&] { return make(indices, crow, facula::clone(p.values), s.sizes(), once); },
      [](const Tensor& g) { return g; });
}
Results copy(const Call& c, Form form) {
  Tensor self = c.tensor("self"), src = c["src"].tag == Tag::tensor ? c.tensor("src") : Tensor();
  runtime_check(is_sparse(self) && is_sparse(src), c.name())
      << "copy_() between dense and sparse Tensors is not implemented: self is " << name(layout_of(self))
      << (src.defined() ? std::string(", src ") + name(layout_of(src)) : ", src a number")
      << hint("to_dense() and to_sparse() convert");
  if (form == Form::in_place && self.is_same(src)) return self;
  Tensor s = facula::clone(src);
  return s.dtype() == self.dtype() ? s : facula::to(s, self.dtype());
}
Results to(const Call& c, Form) {
  Tensor s = c.tensor("self");
  DType t = c["dtype"].dtype;
  if (t == s.dtype()) return c.flag("copy") ? facula::clone(s) : s;
  return to_dtype(s, t);
}
Results itself(const Call& c, Form) { return c.tensor("self"); }
Results detached(const Call& c, Form) { return c.tensor("self").detached(); }
Results by_body(const Call& c, Form) { return (*c.op().calls())(c); }

namespace {

void expect(const Call& c, bool fits, const char* what) {
  Tensor s = c.tensor("self");
  const char* given = is_coo(s) ? "Sparse" : is_csr(s) ? "SparseCsr" : "Strided";
  runtime_check(fits, c.name()) << c.name() << " expected " << what << " tensor layout but got " << given;
}
// The body, which dense tensors reach.
auto refused(const char* expected) {
  return [expected](const Call& c) {
    expect(c, false, expected);
    return Results();
  };
}

void check_indices(const Tensor& indices, SymSpan sizes) {
  for (int k = 0; k < int(indices.size(0).concrete()); ++k) {
    auto [a, b] = range_of(facula::select(indices, 0, SymInt(int64_t(k))));
    int64_t n = sizes[size_t(k)].concrete();
    runtime_check(a >= 0, "sparse_coo_tensor") << "found negative index " << a << " for dim " << k;
    runtime_check(b < n, "sparse_coo_tensor") << "size is inconsistent with indices: for dim " << k
                                              << ", size is " << n << " but found index " << b;
  }
}

Tensor checked_coo(const Tensor& given, const Tensor& values, SymSpan size, bool sized, bool once) {
  const char* op = "sparse_coo_tensor";
  runtime_check(!is_sparse(given) && !is_sparse(values), op) << "expected dense indices and values";
  runtime_check(!is_complex(given.dtype()), op) << "indices must be integers, got " << given.dtype();
  Tensor indices = contiguous(facula::to(detach(given), DType::Int64));
  runtime_check(indices.dim() == 2, op)
      << "indices must be sparse_dim x nnz, but got: " << to_string(indices.sizes());
  runtime_check(values.dim() >= 1, op)
      << "values must have a dimension of elements, got a tensor without dimensions";
  runtime_check(values.size(0) == indices.size(1), op)
      << "indices and values must have same nnz, but got nnz from indices: " << indices.size(1)
      << ", nnz from values: " << values.size(0);
  int64_t dims = indices.size(0).concrete(), dense = values.dim() - 1;
  Dims sizes(size);
  if (!sized) {
    for (int64_t k = 0; k < dims; ++k) {
      auto [low, high] = range_of(facula::select(indices, 0, SymInt(k)));
      sizes.push_back(SymInt(std::max<int64_t>(high + 1, 0)));
    }
    for (SymInt n : sizes_from(values.sizes(), 1)) sizes.push_back(n);
    return checked_coo(indices, values, sizes, true, once);
  }
  runtime_check(int64_t(sizes.size()) == dims + dense, op)
      << "'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = " << int64_t(sizes.size())
      << ", sparse_dim = " << dims << ", dense_dim = " << dense;
  for (SymInt n : sizes)
    runtime_check(!(n < kZero), op) << "negative sizes are not possible: " << to_string(SymSpan(sizes));
  runtime_check(sizes_from(sizes, int(dims)) == sizes_from(values.sizes(), 1), op)
      << "values has incorrect size, expected the dense dimensions of " << to_string(SymSpan(sizes))
      << ", got " << to_string(values.sizes());
  check_indices(indices, sizes);
  if (once && indices.size(1) > kOne) {
    Tensor at =
        dims ? flat(indices, SymSpan(sizes).first(size_t(dims))) : zeros(Dims{indices.size(1)}, DType::Int64);
    Tensor rising = gt(slice(at, 0, kOne), slice(at, 0, kZero, indices.size(1) - kOne));
    runtime_check(facula::all(rising).item().to_bool(), op)
        << "cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor";
  }
  return coo(indices, values, sizes, once);
}

Tensor checked_csr(const Tensor& crow, const Tensor& columns, const Tensor& values, SymSpan size,
                   bool sized) {
  const char* op = "sparse_csr_tensor";
  for (auto& t : {crow, columns})
    runtime_check((t.dtype() == DType::Int64 || t.dtype() == DType::Int32) && t.dim() == 1, op)
        << "crow_indices and col_indices must be vectors of int32 or int64, got " << t.dtype()
        << to_string(t.sizes());
  runtime_check(crow.dtype() == columns.dtype(), op)
      << "crow_indices and col_indices must have the same dtype, got " << crow.dtype() << " and "
      << columns.dtype();
  runtime_check(values.dim() == 1 && values.size(0) == columns.size(0), op)
      << "number of elements in col_indices must match the number of values, got "
      << to_string(columns.sizes()) << " and " << to_string(values.sizes());
  runtime_check(crow.size(0) > kZero, op) << "crow_indices must have at least one element";
  int64_t rows = crow.size(0).concrete() - 1, nnz = columns.size(0).concrete();
  Tensor at = contiguous(facula::to(detach(crow), DType::Int64));
  auto [low, high] = range_of(columns);
  Dims sizes = sized ? Dims(size) : Dims{SymInt(rows), SymInt(high + 1)};
  runtime_check(sizes.size() == 2, op) << "expected a matrix, got size " << to_string(SymSpan(sizes))
                                       << hint("batches of matrices are not taken");
  runtime_check(sizes[0] == SymInt(rows), op)
      << "crow_indices.shape[-1] must be equal to nrows + 1 (" << sizes[0] << " + 1), but got " << rows + 1;
  runtime_check(low >= 0 && high < sizes[1].concrete(), op)
      << "0 <= col_indices < " << sizes[1] << " is not satisfied: found " << (low < 0 ? low : high);
  runtime_check(facula::select(at, 0, kZero).item().to_int() == 0, op)
      << "crow_indices[..., 0] == 0 is not satisfied";
  runtime_check(facula::select(at, 0, SymInt(rows)).item().to_int() == nnz, op)
      << "crow_indices[..., -1] == nnz is not satisfied: nnz is " << nnz;
  if (rows) {
    Tensor steps = facula::sub(slice(at, 0, kOne), slice(at, 0, kZero, SymInt(rows)));
    auto [least, most] = range_of(steps);
    runtime_check(least >= 0 && most <= sizes[1].concrete(), op)
        << "0 <= crow_indices[..., 1:] - crow_indices[..., :-1] <= ncols is not satisfied: found "
        << (least < 0 ? least : most);
  }
  return make(contiguous(detach(columns)), contiguous(detach(crow)), values, sizes, true);
}

Tensor masked(const Tensor& x, const Tensor& mask) {
  runtime_check(is_coo(mask), "sparse_mask")
      << "expected a mask of layout sparse_coo" << hint("mask.to_sparse() makes one of a dense tensor");
  runtime_check(Dims(x.sizes()) == Dims(mask.sizes()), "sparse_mask")
      << "expected self and mask to have the same shape, but got self=" << to_string(x.sizes())
      << " and mask=" << to_string(mask.sizes());
  auto& p = sparse_parts(mask);
  return coo(p.indices, elements_at(x, p.indices), x.sizes(), p.coalesced);
}

}  // namespace
}  // namespace facula::catalog::sparse

namespace sp = facula::catalog::sparse;
using sp::kOne, sp::kZero;

namespace {

const run::SparseRules kRules[] = {
    {"add", sp::add},
    {"sub", sp::sub},
    {"mul", sp::mul},
    {"div", sp::div},
    {"neg", sp::on_values},
    {"to_dtype", sp::on_values},
    {"copy", sp::copy},
    {"zero", sp::zeros_like},
    {"zeros_like", sp::zeros_like},
    {"empty_like", sp::zeros_like},
    {"clone", sp::clone},
    {"to", sp::to},
    {"detach", sp::detached},
    {"resolve_conj", sp::itself},
    {"resolve_neg", sp::itself},
    {"mm", sp::mm},
    {"mv", sp::mv},
    {"matmul", sp::by_body},
    {"addmm", sp::addmm},
    {"sum", sp::sum},
    {"any", sp::any},
    {"norm", sp::norm},
    {"norm.str", sp::by_body},
    {"permute", sp::permute},
    {"transpose", sp::permute},
    {"t", sp::permute},
    {"T", sp::permute},
    {"mT", sp::permute},
    {"unsqueeze", sp::unsqueeze},
    {"select", sp::select},
    {"unbind", sp::unbind},
    {"index_select", sp::index_select},
    {"cat", sp::cat},
    {"stack", sp::by_body},
    {"coalesce",
     [](const Call& c, Form) {
       sp::expect(c, is_coo(c.tensor("self")), "sparse coordinate");
       return Results(sp::coalesced(c.tensor("self")));
     }},
    {"_indices",
     [](const Call& c, Form) {
       sp::expect(c, is_coo(c.tensor("self")), "sparse coordinate");
       return Results(sparse_parts(c.tensor("self")).indices.detached());
     }},
    {"_values",
     [](const Call& c, Form) { return Results(sparse_parts(c.tensor("self")).values.detached()); }},
    {"indices",
     [](const Call& c, Form) {
       Tensor s = c.tensor("self");
       sp::expect(c, is_coo(s), "sparse coordinate");
       runtime_check(sparse_parts(s).coalesced, "indices")
           << "Cannot get indices on an uncoalesced tensor, please call .coalesce() first";
       return Results(sparse_parts(s).indices.detached());
     }},
    {"values",
     [](const Call& c, Form) {
       Tensor s = c.tensor("self");
       runtime_check(is_csr(s) || sparse_parts(s).coalesced, "values")
           << "Cannot get values on an uncoalesced tensor, please call .coalesce() first";
       return Results(sp::values_of(s));
     }},
    {"crow_indices",
     [](const Call& c, Form) {
       sp::expect(c, is_csr(c.tensor("self")), "sparse row compressed");
       return Results(sparse_parts(c.tensor("self")).crow.detached());
     }},
    {"col_indices",
     [](const Call& c, Form) {
       sp::expect(c, is_csr(c.tensor("self")), "sparse row compressed");
       return Results(sparse_parts(c.tensor("self")).indices.detached());
     }},
    {"_sparse_values", [](const Call& c, Form) { return Results(sp::values_of(c.tensor("self"))); }},
    {"_sparse_with_values",
     [](const Call& c, Form) { return Results(sp::with_values(c.tensor("self"), c.tensor("values"))); }},
    {"to_dense",
     [](const Call& c, Form) {
       Tensor y = sp::dense_of(c.tensor("self"));
       auto t = c.maybe_dtype("dtype");
       return Results(t ? facula::to(y, *t) : y);
     }},
    {"to_sparse",
     [](const Call& c, Form) {
       Tensor s = c.tensor("self");
       bool other =
           c.has("sparse_dim") && c.integer("sparse_dim").concrete() != sparse_parts(s).sparse_dims();
       return other ? Results() : Results(sp::coalesced(sp::coo_of(s)));
     }},
    {"to_sparse_csr", [](const Call& c, Form) { return Results(sp::csr_of(c.tensor("self"))); }},
    {"sparse_mask",
     [](const Call& c, Form) { return Results(sp::masked(c.tensor("self"), c.tensor("mask"))); }},
};

}  // namespace

FACULA_FAMILY(sparse) {
  run::set_sparse_rules(kRules);
  define("_sparse_mm(Tensor rows, Tensor columns, Tensor values, Tensor dense, SymInt count) -> Tensor")
      .doc("The product of a sparse matrix of `count` rows, given by its parts, with a dense one.")
      .bind(hidden)
      .no_in_place()
      .dtypes(d::numeric)
      .composite([](const Tensor& rows, const Tensor& columns, const Tensor& values, const Tensor& dense,
                    SymInt count) {
        Tensor terms = mul(index_select(dense, 0, columns), unsqueeze(values, 1));
        return index_add(zeros(Dims{count, dense.size(1)}, values.dtype()), 0, rows, terms);
      })
      .samples({"rows<3>[4], columns<2>[4], values[4], dense[2, 5], count=3"});
  define(
      "sparse_coo_tensor(Tensor indices, Tensor values, SymInt[]? size=None, *, bool is_coalesced=False) -> Tensor")
      .doc(
          "A sparse tensor whose element at indices[:, k] is values[k]; elements of the same index are added up. Without `size` as large as the indices need.")
      .bind(hidden)
      .reads_data()
      .procedure([](const Call& c, const Tensor& indices, const Tensor& values) {
        return sp::checked_coo(indices, values, c.has("size") ? c.ints("size") : SymSpan(), c.has("size"),
                               c.flag("is_coalesced"));
      });
  define(
      "sparse_csr_tensor(Tensor crow_indices, Tensor col_indices, Tensor values, SymInt[]? size=None) -> Tensor")
      .doc(
          "A sparse matrix by rows: the elements of row i are those from crow_indices[i] to crow_indices[i + 1].")
      .bind(hidden)
      .reads_data()
      .procedure([](const Call& c, const Tensor& crow, const Tensor& columns, const Tensor& values) {
        return sp::checked_csr(crow, columns, values, c.has("size") ? c.ints("size") : SymSpan(),
                               c.has("size"));
      });
  define("coalesce(Tensor self) -> Tensor")
      .doc("The sparse tensor with every index once, sorted; elements of the same index added up.")
      .bind(method)
      .no_in_place()
      .procedure(sp::refused("sparse coordinate"));
  define("_indices(Tensor self) -> Tensor")
      .doc("The indices of a sparse tensor, coalesced or not.")
      .bind(method)
      .no_in_place()
      .non_differentiable()
      .procedure(sp::refused("sparse coordinate"));
  define("_values(Tensor self) -> Tensor")
      .doc("The values of a sparse tensor, coalesced or not, without history.")
      .bind(method)
      .no_in_place()
      .non_differentiable()
      .procedure(sp::refused("sparse"));
  define("indices(Tensor self) -> Tensor")
      .doc("The indices of a coalesced sparse tensor, int64 [sparse dims, nnz].")
      .bind(method)
      .no_in_place()
      .non_differentiable()
      .procedure(sp::refused("sparse coordinate"));
  define("values(Tensor self) -> Tensor")
      .doc("The values of a coalesced sparse tensor, [nnz, dense sizes...].")
      .bind(method)
      .no_in_place()
      .procedure(sp::refused("sparse"));
  define("crow_indices(Tensor self) -> Tensor")
      .doc("Where the rows of a CSR matrix begin among its elements, [rows + 1].")
      .bind(method)
      .no_in_place()
      .non_differentiable()
      .procedure(sp::refused("sparse row compressed"));
  define("col_indices(Tensor self) -> Tensor")
      .doc("The columns of the elements of a CSR matrix.")
      .bind(method)
      .no_in_place()
      .non_differentiable()
      .procedure(sp::refused("sparse row compressed"));
  define("_sparse_values(Tensor self) -> Tensor")
      .doc("The values of a sparse tensor.")
      .bind(hidden)
      .no_in_place()
      .procedure(sp::refused("sparse"));
  define("_sparse_with_values(Tensor self, Tensor values) -> Tensor")
      .doc("A sparse tensor with the indices of self and these values.")
      .bind(hidden)
      .no_in_place()
      .procedure(sp::refused("sparse"));
  define("to_dense(Tensor self, dtype? dtype=None, *, bool masked_grad=True) -> Tensor")
      .doc("The tensor with all its elements in memory; a dense one as it is.")
      .bind(method)
      .no_in_place()
      .procedure([](const Call& c, const Tensor& self) {
        auto t = c.maybe_dtype("dtype");
        return t ? to(self, *t) : self;
      });
  define("to_sparse(Tensor self, int? sparse_dim=None) -> Tensor")
      .doc(
          "The elements that are not 0 as a sparse tensor whose first `sparse_dim` dimensions (all) are sparse.")
      .bind(method)
      .no_in_place()
      .reads_data()
      .procedure([](const Call& c, const Tensor& self) {
        int64_t n = c.has("sparse_dim") ? c.integer("sparse_dim").concrete() : self.dim();
        runtime_check(n >= 0 && n <= self.dim() && (n > 0 || self.dim() == 0), "to_sparse")
            << "sparse_dim must be between " << std::min(self.dim(), 1) << " and " << self.dim()
            << " for a tensor of shape " << to_string(self.sizes()) << ", got " << n;
        return sp::sparse_of(self, int(n));
      });
  define("to_sparse_csr(Tensor self) -> Tensor")
      .doc("The matrix compressed by rows.")
      .bind(method)
      .no_in_place()
      .reads_data()
      .procedure([](const Tensor& self) { return sp::csr_of(self); });
  define("sparse_mask(Tensor self, Tensor mask) -> Tensor")
      .doc("The elements of self at the indices of a sparse tensor.")
      .bind(method)
      .no_in_place()
      .procedure([](const Tensor& self, const Tensor& mask) { return sp::masked(self, mask); });
  define("_sparse_rows(Tensor grad, Tensor indices, SymInt rows, SymInt padding_idx) -> Tensor")
      .doc(
          "The gradient of a table of which these rows were taken, as a sparse tensor; padding_idx gets none.")
      .bind(hidden)
      .no_in_place()
      .reads_data()
      .procedure([](const Call&, const Tensor& grad, const Tensor& indices, SymInt rows, SymInt padding) {
        if (grad.is_traced()) return grad;  // while it is asked what this reads
        SymInt width = grad.size(-1);
        Tensor at = facula::to(reshape(indices, Dims{indices.numel()}), DType::Int64);
        Tensor values = reshape(grad, Dims{indices.numel(), width});
        if (!(padding < kZero)) {
          Tensor others = sp::places_of(ne(at, Scalar(padding.concrete())));
          at = index_select(at, 0, others);
          values = index_select(values, 0, others);
        }
        return sp::coo(unsqueeze(at, 0), values, Dims{rows, width});
      });
}
