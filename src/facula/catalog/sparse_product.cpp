// Products of matrices, some of them sparse.
#include "facula/autograd/autograd.h"
#include "facula/autograd/function.h"
#include "facula/catalog/sparse.h"
#include "facula/catalog/widened.h"
#include "facula/op/helpers.h"
#include "facula/ops.h"

using namespace facula::op;

namespace facula::catalog::sparse {
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
Tensor sparse_product(const Tensor& self, const Tensor& other) {
  Tensor a = coalesced(coo_of(self)), b = coalesced(coo_of(other));
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

// Gradients of sparse operands have elements where the operand has some.
Tensor masked_product(const Call& c, const Tensor& a, const Tensor& b) {
  if (!is_sparse(a) && !is_sparse(b)) return {};
  check_matrices(c, a, b);
  if (!is_of_elements(a) || !is_of_elements(b)) return {};
  if (is_sparse(a) && is_sparse(b)) {
    Tensor y = sparse_product(a, b);
    return is_compressed(a) && is_compressed(b) ? csr_of(y) : y;
  }
  if (is_sparse(b))
    return facula::transpose(masked_product(c, transposed(pattern(coo_of(b))), facula::transpose(a, 0, 1)), 0,
                             1);
  Tensor s = pattern(a), indices = indices_of(sparse_parts(s));
  return _sparse_mm(select(indices, 0, kZero), select(indices, 0, kOne), values_of(s), b, a.size(0));
}

Tensor adjoint(const Tensor& x) {
  Tensor t = facula::transpose(x, -2, -1);
  return is_complex(x.dtype()) ? conj_physical(t) : t;
}

// `value` is a @ b, of matrices or of batches of them, and `product` computes such products. Gradients are those of dense
// operands: nothing says that elements which a sparse operand does not have must stay 0.
Tensor with_full_gradients(const Tensor& a, const Tensor& b, const char* name,
                           const std::function<Tensor()>& value,
                           Tensor (*product)(const Tensor& a, const Tensor& b)) {
  if (!wants_gradient(a) && !wants_gradient(b)) return value();
  auto node = make_ref<autograd::FunctionNode>(name, std::vector<Tensor>{a, b});
  auto* n = node.get();
  node->backward = [n, product](std::vector<Tensor> g) {
    auto saved = n->saved();
    std::vector<Tensor> grads(2);
    if (n->needs_input_grad(0)) grads[0] = product(g[0], adjoint(saved[1]));
    if (n->needs_input_grad(1)) grads[1] = product(adjoint(saved[0]), g[0]);
    return grads;
  };
  node->save_for_backward({a, b});
  Tensor result;
  {
    autograd::GradMode off(false);
    result = value();
  }
  return result.defined() ? node->finish({result})[0] : result;
}

Tensor product_of(const Call& c, const Tensor& a, const Tensor& b, const char* node) {
  return with_full_gradients(
      a, b, node, [&] { return masked_product(c, a, b); },
      [](const Tensor& x, const Tensor& y) { return facula::mm(x, y); });
}
Results results_of(const Tensor& y) { return y.defined() ? Results(y) : Results(); }

Results mm(const Call& c, Form) {
  return results_of(product_of(c, c.tensor("self"), c.tensor("mat2"), "MmBackward0"));
}
Results masked_mm(const Call& c, Form) {
  return results_of(masked_product(c, c.tensor("sparse"), c.tensor("dense")));
}

// The product of a batch of sparse matrices with a dense batch, as one product with a block diagonal matrix.
Tensor batched_product(const Call& c, const Tensor& a, const Tensor& b) {
  if (!is_coo(a) || is_sparse(b) || sparse_parts(a).sparse_dims() != 3 || a.dim() != 3) return {};
  runtime_check(b.dim() == 3 && a.size(0) == b.size(0) && a.size(2) == b.size(1) && a.dtype() == b.dtype(),
                c.name())
      << "expected batches of matrices that can be multiplied, of one dtype, got a sparse " << a.dtype()
      << to_string(a.sizes()) << " and " << b.dtype() << to_string(b.sizes());
  SymInt count = a.size(0), n = a.size(1), m = a.size(2);
  Tensor indices = sparse_parts(a).indices, at = select(indices, 0, kZero);
  auto place = [&](int64_t dim, const SymInt& size) {
    return facula::add(facula::mul(at, Scalar(size.concrete())), select(indices, 0, SymInt(dim)));
  };
  Tensor y = _sparse_mm(place(1, n), place(2, m), sparse_parts(a).values,
                        reshape(b, Dims{count * m, b.size(2)}), count * n);
  return reshape(y, Dims{count, n, b.size(2)});
}
Results bmm(const Call& c, Form) {
  Tensor a = c.tensor("self"), b = c.tensor("mat2");
  return results_of(with_full_gradients(
      a, b, "BmmBackward0", [&] { return batched_product(c, a, b); },
      [](const Tensor& x, const Tensor& y) { return facula::bmm(x, y); }));
}
// A sparse matrix times each of a batch, or each of a sparse batch times a matrix; otherwise as dense operands.
Results matmul(const Call& c, Form form) {
  Tensor a = c.tensor("self"), b = c.tensor("other");
  if (is_sparse(a) && !is_sparse(b) && a.dim() == 2 && b.dim() == 3) {
    SymInt count = b.size(0), n = b.size(2);
    Tensor columns =
        reshape(facula::permute(b, Dims{kOne, kZero, SymInt(int64_t(2))}), Dims{b.size(1), count * n});
    return facula::permute(reshape(facula::mm(a, columns), Dims{a.size(0), count, n}),
                           Dims{kOne, kZero, SymInt(int64_t(2))});
  }
  if (is_sparse(a) && !is_sparse(b) && a.dim() == 3 && b.dim() >= 2) {
    if (b.dim() == 2) b = facula::expand(b, Dims{a.size(0), b.size(0), b.size(1)});
    return facula::bmm(a, b);
  }
  return by_body(c, form);
}
Results linear(const Call& c, Form) {
  Tensor x = c.tensor("input"), weight = c.tensor("weight");
  if (weight.dim() != 2) return {};
  Tensor w = facula::transpose(weight, 0, 1), y;
  if (is_sparse(x) || x.dim() == 2) {
    y = facula::matmul(x, w);
  } else {
    Dims sizes(x.sizes());
    sizes.back() = weight.size(0);
    y = reshape(facula::mm(reshape(x, Dims{int64_t(-1), x.size(-1)}), w), sizes);
  }
  if (is_sparse(y) && c.has("bias")) return {};
  return c.has("bias") ? facula::add(y, c.tensor("bias")) : y;
}
Results mv(const Call& c, Form) {
  Tensor s = c.tensor("self"), v = c.tensor("vec");
  if (is_sparse(v)) return {};
  runtime_check(v.dim() == 1, c.name()) << "expected a vector, got shape " << to_string(v.sizes());
  Tensor y = product_of(c, s, facula::unsqueeze(v, 1), "MvBackward0");
  return y.defined() ? Results(squeeze(y, 1)) : Results();
}
Results sum_with_product(const Call& c, const Tensor& y) {
  Tensor self = c.tensor("self");
  if (!y.defined()) return {};
  Scalar alpha = c.number("alpha"), beta = c.number("beta");
  if (beta.to_complex() == 0.0) return times(y, alpha);
  Tensor first = times(self, beta);
  runtime_check(is_sparse(y) || !is_sparse(self), c.name()) << "a sparse `self` needs two sparse matrices";
  if (!is_sparse(self)) first = facula::expand(first, Dims{y.size(0), y.size(1)});
  return facula::add(first, y, alpha);
}
Results addmm(const Call& c, Form) {
  return sum_with_product(c, product_of(c, c.tensor("mat1"), c.tensor("mat2"), "AddmmBackward0"));
}
Results masked_addmm(const Call& c, Form) {
  return sum_with_product(c, masked_product(c, c.tensor("mat1"), c.tensor("mat2")));
}

// For each row and column the place of the first of the largest (or smallest) terms; of no terms their number.
Tensor extreme_places(const Tensor& terms, const Tensor& rows, const SymInt& count, bool largest) {
  const SymInt n = terms.size(0), columns = terms.size(1);
  Tensor best = index_reduce(zeros(Dims{count, columns}, terms.dtype()), 0, rows, terms,
                             largest ? "amax" : "amin", false);
  Tensor mine = facula::index_select(best, 0, rows);
  Tensor takes = logical_or(eq(terms, mine), logical_and(isnan(terms), isnan(mine)));
  Tensor none = full(Dims{}, Scalar(n.concrete()), DType::Int64);
  Tensor place = where(takes, facula::unsqueeze(arange(Scalar(n.concrete())), 1), none);
  return index_reduce(contiguous(facula::expand(none, Dims{count, columns})), 0, rows, place, "amin");
}
// The largest term (or the smallest) of each row and column, with the gradient of the first that is; 0 of no terms.
Tensor extreme_terms(const Tensor& terms, const Tensor& rows, const SymInt& count, bool largest) {
  Tensor first = extreme_places(detach(terms), rows, count, largest);
  const SymInt columns = terms.size(1);
  return gather(cat(std::vector<Tensor>{terms, zeros(Dims{kOne, columns}, terms.dtype())}, 0), 0, first);
}

// Sums are of float32 for 16-bit numbers.
Results mm_reduce(const Call& c, const Tensor& a, const Tensor& b) {
  std::string how(c.str("reduce"));
  if (!is_csr(a) || is_sparse(b)) return {};
  check_matrices(c, a, b);
  const DType to = b.dtype();
  supported_check(is_floating(to), c.name())
      << "not implemented for " << to << hint("it takes floating matrices");
  Tensor s = pattern(a), indices = indices_of(sparse_parts(s)), rows = select(indices, 0, kZero),
         columns = select(indices, 0, kOne);
  Tensor values = wide(values_of(s)), dense = wide(b);
  if (how == "amax" || how == "amin") {
    Tensor terms = facula::mul(facula::index_select(dense, 0, columns), facula::unsqueeze(values, 1));
    return narrowed(extreme_terms(terms, rows, a.size(0), how == "amax"), to);
  }
  Tensor y = _sparse_mm(rows, columns, values, dense, a.size(0));
  if (how == "mean") {
    Tensor ones = facula::ones(Dims{rows.size(0)}, y.dtype());
    Tensor counts = index_add(zeros(Dims{a.size(0)}, y.dtype()), 0, rows, ones);
    y = facula::div(y, facula::unsqueeze(clamp_min(counts, 1), 1));
  }
  return narrowed(y, to);
}

// The places of the terms that were taken are computed where a gradient is wanted, as PyTorch's.
Results mm_reduce_with_places(const Call& c, Form) {
  Tensor a = c.tensor("self"), b = c.tensor("other");
  Results y = mm_reduce(c, a, b);
  if (!y.size()) return {};
  bool takes = c.str("reduce") == "amax" || c.str("reduce") == "amin";
  Tensor places = zeros(Dims{kZero}, DType::Int64);
  if (takes && (wants_gradient(a) || wants_gradient(b))) {
    Tensor indices = indices_of(sparse_parts(a)), rows = select(indices, 0, kZero);
    Tensor terms = facula::mul(facula::index_select(detach(b), 0, select(indices, 0, kOne)),
                               facula::unsqueeze(sparse_parts(a).values, 1));
    places = extreme_places(terms, rows, a.size(0), c.str("reduce") == "amax");
  }
  return {y[0], places};
}

// The elements of the product where self has some.
Results sampled_addmm(const Call& c, Form) {
  Tensor self = c.tensor("self"), a = c.tensor("mat1"), b = c.tensor("mat2");
  if (!is_csr(self)) return {};
  for (auto& [name, m] : {std::pair("mat1", a), std::pair("mat2", b)})
    runtime_check(!is_sparse(m), c.name())
        << "expected " << name << " to have strided layout, but got a sparse one";
  check_matrices(c, a, b);
  runtime_check(self.size(0) == a.size(0) && self.size(1) == b.size(1), c.name())
      << "self.shape[-2] must match mat1.shape[-2] and self.shape[-1] mat2.shape[-1], got self of shape "
      << to_string(self.sizes()) << " and a product of shape " << to_string(Dims{a.size(0), b.size(1)});
  runtime_check(self.dtype() == a.dtype(), c.name())
      << "expected self and mat1 to have the same dtype, but got " << self.dtype() << " and " << a.dtype();
  Tensor s = pattern(self), indices = indices_of(sparse_parts(s));
  Tensor left = facula::index_select(a, 0, select(indices, 0, kZero)),
         right = facula::index_select(facula::transpose(b, 0, 1), 0, select(indices, 0, kOne));
  Tensor terms = facula::sum(facula::mul(left, right), Ints{1});
  return csr_of(
      with_values(s, facula::add(times(values_of(s), c.number("beta")), times(terms, c.number("alpha")))));
}

}  // namespace

std::span<const run::SparseRules> product_rules() {
  static const run::SparseRules rules[] = {
      {"mm", mm},
      {"mv", mv},
      {"matmul", matmul},
      {"bmm", bmm},
      {"linear", linear},
      {"addmm", addmm},
      {"_sparse_addmm", masked_addmm},
      {"_sparse_mm.masked", masked_mm},
      {"_sparse_mm.reduce",
       [](const Call& c, Form) { return mm_reduce(c, c.tensor("sparse"), c.tensor("dense")); }},
      {"_sparse_mm_reduce_impl", mm_reduce_with_places},
      {"sparse_sampled_addmm", sampled_addmm},
  };
  return rules;
}

}  // namespace facula::catalog::sparse
