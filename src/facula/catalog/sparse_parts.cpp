// The parts of sparse tensors with their history, and conversions.
#include "facula/autograd/autograd.h"
#include "facula/autograd/function.h"
#include "facula/catalog/sparse.h"
#include "facula/catalog/vectors.h"
#include "facula/op/helpers.h"
#include "facula/ops.h"

using namespace facula::op;

namespace facula::catalog::sparse {

bool wants_gradient(const Tensor& t) { return autograd::grad_enabled() && t.requires_grad(); }

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
static Dims sizes_of_values(const Tensor& s) {
  Dims all{SymInt(sparse_parts(s).nnz())};
  for (SymInt n : sizes_from(s.sizes(), sparse_parts(s).sparse_dims())) all.push_back(n);
  return all;
}

Tensor places_of(const Tensor& flags) { return select(facula::transpose(nonzero(flags), 0, 1), 0, kZero); }

std::pair<int64_t, int64_t> range_of(const Tensor& x) {
  if (x.numel() == kZero) return {0, -1};
  return {amin(x).item().to_int(), amax(x).item().to_int()};
}

std::pair<Tensor, Tensor> ranges(const Tensor& first, const Tensor& counts) {
  Tensor ends = cumsum(counts, 0);
  int64_t total = ends.size(0) > kZero ? select(ends, 0, ends.size(0) - kOne).item().to_int() : 0;
  Tensor all = arange(Scalar(total)), mine = searchsorted(ends, all, false, true);
  Tensor shift = facula::sub(first, facula::sub(ends, counts));
  return {mine, facula::add(all, facula::index_select(shift, 0, mine))};
}

Tensor flat(const Tensor& indices, SymSpan sizes) {
  int64_t dims = indices.size(0).concrete(), stride = 1;
  if (dims == 1) return select(indices, 0, kZero);
  std::vector<int64_t> strides(static_cast<size_t>(dims));
  for (size_t k = size_t(dims); k-- > 0; stride *= sizes[k].concrete()) strides[k] = stride;
  return facula::sum(facula::mul(indices, facula::unsqueeze(vector_of(strides), 1)), Dims{kZero});
}
// rows[i] added to row at[i] of zeros; `zero` is what they start with.
static Tensor added_up(const Tensor& rows, const Tensor& at, SymInt count, double zero) {
  Dims sizes(rows.sizes());
  sizes[0] = count;
  if (rows.dtype() == DType::Bool)
    return ne(index_add(zeros(sizes, DType::Int64), 0, at, facula::to(rows, DType::Int64)),
              Scalar(int64_t(0)));
  Scalar start = is_differentiable(rows.dtype()) ? Scalar(zero) : Scalar(int64_t(0));
  return index_add(full(sizes, start, rows.dtype()), 0, at, rows);
}

// The row of each element of a CSR tensor.
static Tensor rows_of(const Tensor& crow, const Tensor& columns) {
  Tensor at = arange(Scalar(columns.size(0).concrete()), crow.dtype());
  return facula::to(searchsorted(slice(crow, 0, kOne), at, false, true), DType::Int64);
}
Tensor indices_of(const SparseParts& p) {
  if (!p.crow.defined()) return p.indices;
  Tensor outer = rows_of(p.crow, p.indices), inner = facula::to(p.indices, DType::Int64);
  return p.by_columns ? stack({inner, outer}, 0) : stack({outer, inner}, 0);
}

Tensor coo(const Tensor& indices, const Tensor& values, SymSpan sizes, bool coalesced) {
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

Tensor pattern(const Tensor& s) { return wants_gradient(s) && is_coo(s) ? coalesced(s) : s; }

Tensor dense_at(const Tensor& x, const Tensor& indices) {
  std::vector<Tensor> at = facula::unbind(indices, 0);
  if (!at.empty()) return index(x, at);
  Dims sizes{indices.size(1)};
  for (SymInt n : x.sizes()) sizes.push_back(n);
  return facula::expand(facula::unsqueeze(x, 0), sizes);
}

std::pair<Tensor, Tensor> found(const Tensor& keys, const Tensor& wanted) {
  Tensor at = clamp(searchsorted(keys, wanted), std::nullopt, Scalar(keys.size(0).concrete() - 1));
  return {at, eq(facula::index_select(keys, 0, at), wanted)};
}

static Tensor as_column(const Tensor& flags, const Tensor& like) {
  Dims sizes(size_t(like.dim()), kOne);
  sizes[0] = flags.size(0);
  return reshape(flags, sizes);
}

Tensor elements_at(const Tensor& x, const Tensor& indices) {
  if (!is_sparse(x)) return dense_at(x, indices);
  if (is_compressed(x) || sparse_parts(x).sparse_dims() != indices.size(0).concrete())
    return dense_at(dense_of(x), indices);
  if (sparse_parts(x).coalesced && sparse_parts(x).indices.is_same(indices)) return values_of(x);
  Tensor s = coalesced(x);
  auto& p = sparse_parts(s);
  Dims sparse_sizes(s.sizes().first(size_t(p.sparse_dims())));
  Dims sizes = sizes_of_values(s);
  sizes[0] = indices.size(1);
  if (p.nnz() == 0) return zeros(sizes, s.dtype());
  auto [at, hit] = found(flat(p.indices, sparse_sizes), flat(indices, sparse_sizes));
  Tensor picked = facula::index_select(values_of(s), 0, at);
  return where(as_column(hit, picked), picked, zeros(Dims{}, picked.dtype()));
}

Tensor make(const Tensor& indices, const Tensor& crow, const Tensor& values, SymSpan sizes, bool is_coalesced,
            bool by_columns) {
  SparseParts parts{indices, values.detached(), crow, is_coalesced, by_columns};
  if (!crow.defined() && parts.nnz() < 2) parts.coalesced = true;
  const char* name = !crow.defined() ? "SparseCooTensorBackward0"
                     : by_columns    ? "SparseCscTensorBackward0"
                                     : "SparseCsrTensorBackward0";
  return recorded(
      name, values, [&] { return make_sparse(parts, sizes); },
      [indices, crow, by_columns](const Tensor& g) {
        bool same = is_compressed(g) && is_csc(g) == by_columns && sparse_parts(g).indices.is_same(indices);
        if (crow.defined() && same) return values_of(g);
        return elements_at(g, indices_of({indices, {}, crow, false, by_columns}));
      });
}

Tensor with_values(const Tensor& like, const Tensor& values) {
  auto& p = sparse_parts(like);
  return make(p.indices, p.crow, values, like.sizes(), p.coalesced, p.by_columns);
}

// Every index once, sorted; elements of the same index added up.
static SparseParts sums(const Tensor& s) {
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
    Dims sparse_sizes(s.sizes().first(size_t(dims)));
    auto [keys, order] = sort(flat(p.indices, sparse_sizes), -1, false, true);
    Tensor changes = ne(slice(keys, 0, kOne), slice(keys, 0, kZero, SymInt(n - 1)));
    Tensor first = facula::cat({full(Dims{kOne}, true, DType::Bool), changes});
    Tensor segment = facula::sub(cumsum(first, 0), Scalar(int64_t(1)));
    Tensor places = masked_select(keys, first);
    made.indices = stack(unravel_index(places, sparse_sizes), 0);
    made.values = added_up(facula::index_select(p.values, 0, order), segment, places.size(0), -0.0);
  }
  return made;
}
Tensor coalesced(const Tensor& s) {
  if (!is_coo(s) || sparse_parts(s).coalesced) return s;
  return recorded(
      "CoalesceBackward0", s, [&] { return make_sparse(sums(s), s.sizes()); },
      [](const Tensor& g) { return g; });
}

Tensor dense_of(const Tensor& given) {
  Tensor s = pattern(given);
  auto& p = sparse_parts(s);
  Tensor values = values_of(s), indices = indices_of(p);
  int dims = p.sparse_dims();
  Dims sparse_sizes(s.sizes().first(size_t(dims))), sizes{product(sparse_sizes)};
  for (SymInt n : sizes_from(s.sizes(), dims)) sizes.push_back(n);
  Tensor at = dims ? flat(indices, sparse_sizes) : zeros(Dims{values.size(0)}, DType::Int64);
  if (product(sizes) == kZero) return zeros(s.sizes(), s.dtype());
  return reshape(added_up(values, at, sizes[0], 0.0), s.sizes());
}

Tensor sparse_of(const Tensor& x, int dims) {
  run::check_no_trace_of_sparse("to_sparse");
  Tensor mask = ne(detach(x), Scalar(int64_t(0)));
  if (dims < x.dim()) {
    Dims behind;
    for (int k = dims; k < x.dim(); ++k) behind.push_back(SymInt(int64_t(k)));
    mask = facula::any(mask, behind);
  }
  Tensor indices = clone(facula::transpose(nonzero(mask), 0, 1), MemoryFormat::contiguous);
  return coo(indices, dense_at(x, indices), x.sizes(), true);
}

Tensor unmasked(const Tensor& s) {
  return recorded("ToDenseBackward0", s, [&] { return dense_of(s); }, [](const Tensor& g) { return g; });
}

static Tensor compressed(const Tensor& x) {
  Tensor s = is_sparse(x) ? coalesced(coo_of(x)) : sparse_of(x, 2);
  auto& p = sparse_parts(s);
  runtime_check(p.sparse_dims() == 2, "to_sparse_csr")
      << "a matrix with dense dimensions has no rows of elements";
  Tensor rows = select(p.indices, 0, kZero), columns = clone(select(p.indices, 0, kOne));
  Tensor crow = searchsorted(contiguous(rows), arange(Scalar(x.size(0).concrete() + 1)));
  return make(columns, crow, values_of(s), x.sizes(), true);
}
Tensor csr_of(const Tensor& x) {
  if (is_csr(x)) return x;
  runtime_check(x.dim() == 2, "to_sparse_csr")
      << "only matrices can be compressed by rows, got shape " << to_string(x.sizes());
  if (!is_sparse(x)) return compressed(x);
  return recorded(
      "ToSparseCsrBackward0", x, [&] { return compressed(x); },
      [layout = layout_of(x)](const Tensor& g) { return in_layout(layout, g); });
}
Tensor csc_of(const Tensor& x) {
  if (is_csc(x)) return x;
  runtime_check(x.dim() == 2, "to_sparse_csc")
      << "only matrices can be compressed by columns, got shape " << to_string(x.sizes());
  auto by_columns = [](const Tensor& s) { return flipped(csr_of(facula::transpose(coo_of(s), 0, 1))); };
  if (!is_sparse(x)) return by_columns(sparse_of(x, 2));
  return recorded(
      "ToSparseCscBackward0", x, [&] { return by_columns(x); },
      [layout = layout_of(x)](const Tensor& g) { return in_layout(layout, g); });
}
Tensor coo_of(const Tensor& s) {
  if (!is_compressed(s)) return s;
  return recorded(
      "ToSparseBackward1", s,
      [&] { return coo(indices_of(sparse_parts(s)), values_of(s), s.sizes(), false); },
      [layout = layout_of(s)](const Tensor& g) { return in_layout(layout, g); });
}
Tensor in_layout(Layout layout, const Tensor& s) {
  if (layout == Layout::strided) return s;
  if (!is_sparse(s)) return in_layout(layout, sparse_of(s, s.dim()));
  return layout == Layout::sparse_csr ? csr_of(s) : layout == Layout::sparse_csc ? csc_of(s) : coo_of(s);
}
Tensor flipped(const Tensor& s) {
  Dims sizes{s.size(1), s.size(0)};
  return recorded(
      "TransposeBackward0", s,
      [&] {
        auto& p = sparse_parts(s);
        return make(p.indices, p.crow, p.values, sizes, p.coalesced, !p.by_columns);
      },
      [](const Tensor& g) { return facula::transpose(g, 0, 1); });
}

Tensor empty_like_of(const Tensor& s, std::optional<DType> dtype) {
  auto& p = sparse_parts(s);
  DType t = dtype.value_or(s.dtype());
  Dims sizes = sizes_of_values(s);
  sizes[0] = kZero;
  if (p.crow.defined())
    return make(zeros(Dims{kZero}, p.indices.dtype()), zeros(p.crow.sizes(), p.crow.dtype()), zeros(sizes, t),
                s.sizes(), true, p.by_columns);
  return coo(zeros(Dims{p.indices.size(0), kZero}, DType::Int64), zeros(sizes, t), s.sizes(), true);
}

Tensor times(const Tensor& x, const Scalar& alpha) {
  return alpha.to_complex() == 1.0 ? x : facula::mul(x, alpha);
}

Results by_body(const Call& c, Form) { return (*c.op().calls())(c); }

}  // namespace facula::catalog::sparse
