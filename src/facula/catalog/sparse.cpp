// Sparse tensors (tensor/sparse.h): their parts, and conversions of them.
#include "facula/catalog/sparse.h"
#include "facula/op/helpers.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::op;
namespace d = facula::dtypes;

namespace facula::catalog::sparse {
namespace {

void expect(const Call& c, bool fits, const char* what) {
  Tensor s = c.tensor("self");
  const char* layout_name = is_coo(s)   ? "Sparse"
                            : is_csr(s) ? "SparseCsr"
                            : is_csc(s) ? "SparseCsc"
                                        : "Strided";
  runtime_check(fits, c.name()) << c.name() << " expected " << what << " tensor layout but got "
                                << layout_name;
}
// The body, which dense tensors reach.
auto refused(const char* expected) {
  return [expected](const Call& c) {
    expect(c, false, expected);
    return Results();
  };
}

// All elements, dense; a gradient is a sparse tensor of all elements that are not 0.
Tensor whole_of(const Tensor& s) {
  return recorded(
      "ToDenseBackward0", s, [&] { return dense_of(s); },
      [layout = layout_of(s), dims = sparse_parts(s).sparse_dims()](const Tensor& g) {
        Tensor all = is_sparse(g) ? g : sparse_of(g, dims);
        if (layout != Layout::sparse_coo) return in_layout(layout, all);
        return coo(sparse_parts(all).indices, values_of(all), all.sizes());
      });
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
using sp::kZero;

namespace {

const run::SparseRules kOwnRules[] = {
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
       runtime_check(is_compressed(s) || sparse_parts(s).coalesced, "values")
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
    {"ccol_indices",
     [](const Call& c, Form) {
       sp::expect(c, is_csc(c.tensor("self")), "sparse column compressed");
       return Results(sparse_parts(c.tensor("self")).crow.detached());
     }},
    {"row_indices",
     [](const Call& c, Form) {
       sp::expect(c, is_csc(c.tensor("self")), "sparse column compressed");
       return Results(sparse_parts(c.tensor("self")).indices.detached());
     }},
    {"_sparse_values", [](const Call& c, Form) { return Results(sp::values_of(c.tensor("self"))); }},
    {"_sparse_with_values",
     [](const Call& c, Form) { return Results(sp::with_values(c.tensor("self"), c.tensor("values"))); }},
    {"to_dense",
     [](const Call& c, Form) {
       Tensor s = c.tensor("self"), y = c.flag("masked_grad") ? sp::dense_of(s) : sp::whole_of(s);
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
    {"to_sparse_csc", [](const Call& c, Form) { return Results(sp::csc_of(c.tensor("self"))); }},
    {"sparse_mask",
     [](const Call& c, Form) { return Results(sp::masked(c.tensor("self"), c.tensor("mask"))); }},
};

}  // namespace

FACULA_FAMILY(sparse) {
  run::add_sparse_rules(kOwnRules);
  for (auto rules : {sp::arithmetic_rules(), sp::product_rules(), sp::shape_rules()})
    run::add_sparse_rules(rules);
  define("_sparse_mm(Tensor rows, Tensor columns, Tensor values, Tensor dense, SymInt count) -> Tensor")
      .doc("The product of a sparse matrix of `count` rows, given by its parts, with a dense one.")
      .grad_name("SparseAddmm")
      .bind(hidden)
      .dtypes(d::numeric)
      .composite([](const Tensor& rows, const Tensor& columns, const Tensor& values, const Tensor& dense,
                    SymInt count) {
        Tensor terms = mul(index_select(dense, 0, columns), unsqueeze(values, 1));
        return index_add(zeros(Dims{count, dense.size(1)}, values.dtype()), 0, rows, terms);
      })
      .samples({"rows<3>[4], columns<2>[4], values[4], dense[2, 5], count=3"});
  define("_sparse_mm.reduce(Tensor sparse, Tensor dense, str reduce) -> Tensor")
      .doc(
          "The product of a CSR matrix with a dense one, whose terms are reduced by 'sum', 'mean', 'amax' or 'amin'; 0 where there are none.")
      .bind(hidden)
      .procedure(sp::refused("sparse row compressed"));
  define("_sparse_mm.masked(Tensor sparse, Tensor dense) -> Tensor")
      .doc(
          "The product of matrices of which some are sparse. The gradient of a sparse one has elements where the matrix has.")
      .bind(hidden)
      .called("sparse.mm")
      .forwards("mm")
      .samples({"sparse[3, 2], dense[2, 4]"});
  define("_sparse_addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor")
      .doc("beta * self + alpha * (mat1 @ mat2), with the gradients of `_sparse_mm`.")
      .bind(hidden)
      .called("sparse.addmm")
      .forwards("addmm")
      .samples({"self[3, 4], mat1[3, 2], mat2[2, 4], beta=0.5, alpha=2"});
  define("_sparse_sum(Tensor self, int[1]? dim=None, *, dtype? dtype=None) -> Tensor")
      .doc("The sum of a sparse tensor over `dim`; its gradient has elements where the tensor has.")
      .bind(hidden)
      .called("sparse.sum")
      .procedure(sp::refused("sparse"));
  define("_convert_indices_from_coo_to_csr(Tensor self, SymInt size, *, bool out_int32=False) -> Tensor")
      .doc("Where each of `size` rows begins among the elements of sorted rows `self`: [size + 1].")
      .bind(function)
      .procedure([](const Tensor& self, const SymInt& size, bool out_int32) {
        runtime_check(self.dim() == 1 && is_integral(self.dtype()), "_convert_indices_from_coo_to_csr")
            << "expected a vector of row indices, got " << self.dtype() << to_string(self.sizes());
        return searchsorted(contiguous(self), arange(Scalar(size.concrete() + 1), self.dtype()), out_int32);
      })
      .samples({"self<1>[4], size=3"});
  define(
      "_convert_indices_from_csr_to_coo(Tensor crow_indices, Tensor col_indices, *, bool out_int32=False, bool transpose=False) -> Tensor")
      .doc("The indices of elements that rows, or columns if `transpose`, are compressed of: [2, nnz].")
      .bind(function)
      .procedure([](const Tensor& crow, const Tensor& columns, bool out_int32, bool by_columns) {
        runtime_check(crow.dim() == 1 && columns.dim() == 1, "_convert_indices_from_csr_to_coo")
            << "expected vectors, got shapes " << to_string(crow.sizes()) << " and "
            << to_string(columns.sizes());
        Tensor at = sp::indices_of({columns, {}, crow, false, by_columns});
        return to_dtype(at, out_int32 ? DType::Int32 : DType::Int64);
      });
  define("_sparse_mm_reduce_impl(Tensor self, Tensor other, str reduce) -> (Tensor, Tensor)")
      .doc(
          "`_sparse_mm.reduce`, and for 'amax' and 'amin' of each element the place of the term that was taken.")
      .bind(hidden)
      .procedure(sp::refused("sparse row compressed"));
  define(
      "sparse_sampled_addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor")
      .doc("beta * self + alpha * (mat1 @ mat2) where the CSR matrix self has elements.")
      .bind(hidden)
      .called("sampled_addmm")
      .dtypes(d::floating | d::complex)
      .procedure(sp::refused("sparse row compressed"));
  define("coalesce(Tensor self) -> Tensor")
      .doc("The sparse tensor with every index once, sorted; elements of the same index added up.")
      .bind(method)
      .procedure(sp::refused("sparse coordinate"));
  define("_indices(Tensor self) -> Tensor")
      .doc("The indices of a sparse tensor, coalesced or not.")
      .bind(method)
      .non_differentiable("the results are positions")
      .procedure(sp::refused("sparse coordinate"));
  define("_values(Tensor self) -> Tensor")
      .doc("The values of a sparse tensor, coalesced or not, without history.")
      .bind(method)
      .non_differentiable("PyTorch marks the result as not differentiable; values() has a gradient")
      .procedure(sp::refused("sparse"));
  define("indices(Tensor self) -> Tensor")
      .doc("The indices of a coalesced sparse tensor, int64 [sparse dims, nnz].")
      .bind(method)
      .non_differentiable("the results are positions")
      .procedure(sp::refused("sparse coordinate"));
  define("values(Tensor self) -> Tensor")
      .doc("The values of a coalesced sparse tensor, [nnz, dense sizes...].")
      .bind(method)
      .procedure(sp::refused("sparse"));
  define("crow_indices(Tensor self) -> Tensor")
      .doc("Where the rows of a CSR matrix begin among its elements, [rows + 1].")
      .bind(method)
      .non_differentiable("the results are positions")
      .procedure(sp::refused("sparse row compressed"));
  define("col_indices(Tensor self) -> Tensor")
      .doc("The columns of the elements of a CSR matrix.")
      .bind(method)
      .non_differentiable("the results are positions")
      .procedure(sp::refused("sparse row compressed"));
  define("ccol_indices(Tensor self) -> Tensor")
      .doc("Where the columns of a CSC matrix begin among its elements, [columns + 1].")
      .bind(method)
      .non_differentiable("the results are positions")
      .procedure(sp::refused("sparse column compressed"));
  define("row_indices(Tensor self) -> Tensor")
      .doc("The rows of the elements of a CSC matrix.")
      .bind(method)
      .non_differentiable("the results are positions")
      .procedure(sp::refused("sparse column compressed"));
  define("_sparse_values(Tensor self) -> Tensor")
      .doc("The values of a sparse tensor.")
      .bind(hidden)
      .procedure(sp::refused("sparse"));
  define("_sparse_with_values(Tensor self, Tensor values) -> Tensor")
      .doc("A sparse tensor with the indices of self and these values.")
      .bind(hidden)
      .procedure(sp::refused("sparse"));
  define("to_dense(Tensor self, dtype? dtype=None, *, bool masked_grad=True) -> Tensor")
      .doc("The tensor with all its elements in memory; a dense one as it is.")
      .bind(method)
      .procedure([](const Call& c, const Tensor& self) {
        auto t = c.maybe_dtype("dtype");
        return t ? to(self, *t) : self;
      });
  define("to_sparse(Tensor self, int? sparse_dim=None) -> Tensor")
      .doc(
          "The elements that are not 0 as a sparse tensor whose first `sparse_dim` dimensions (all) are sparse.")
      .bind(method)
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
      .reads_data()
      .procedure([](const Tensor& self) { return sp::csr_of(self); });
  define("to_sparse_csc(Tensor self) -> Tensor")
      .doc("The matrix compressed by columns.")
      .bind(method)
      .reads_data()
      .procedure([](const Tensor& self) { return sp::csc_of(self); });
  define("sparse_mask(Tensor self, Tensor mask) -> Tensor")
      .doc("The elements of self at the indices of a sparse tensor.")
      .bind(method)
      .procedure([](const Tensor& self, const Tensor& mask) { return sp::masked(self, mask); });
  define("_sparse_rows(Tensor grad, Tensor indices, SymInt rows, SymInt padding_idx) -> Tensor")
      .doc(
          "The gradient of a table of which these rows were taken, as a sparse tensor; padding_idx gets none.")
      .bind(hidden)
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
