// Sums, products and quotients of sparse tensors, element by element.
#include "facula/catalog/sparse.h"
#include "facula/op/helpers.h"
#include "facula/ops.h"
#include "facula/tensor/promotion.h"

using namespace facula::op;

namespace facula::catalog::sparse {
namespace {

bool is_number(const Value& v) {
  return v.tag == Tag::scalar || v.tag == Tag::integer ||
         (v.tag == Tag::tensor && v.tensor->sizes.empty() && !facula::is_sparse(v.tensor));
}
Tensor as_tensor(const Value& v) {
  return v.tag == Tag::tensor ? Tensor(Ref<TensorImpl>::share(v.tensor)) : op::wrapped_number(v.number());
}

void check_same_sizes(const char* op, const Tensor& a, const Tensor& b) {
  runtime_check(Dims(a.sizes()) == Dims(b.sizes()), op)
      << "expected sparse tensors of the same size, got " << to_string(a.sizes()) << " and "
      << to_string(b.sizes());
  runtime_check(sparse_parts(a).sparse_dims() == sparse_parts(b).sparse_dims(), op)
      << "expected sparse tensors with the same number of sparse dimensions, got "
      << sparse_parts(a).sparse_dims() << " and " << sparse_parts(b).sparse_dims();
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

// x + alpha * s for a dense x and a sparse s.
Tensor dense_sum(const char* op, const Tensor& x, const Tensor& sparse, const Scalar& alpha, Form form) {
  Tensor s = pattern(coo_of(sparse));
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
  if (wants_gradient(sparse)) {  // of all elements, which those of a sparse operand alone would not give
    Tensor with_all_gradients = unmasked(sparse);
    return fresh ? facula::add(x, with_all_gradients, alpha) : add_(x, with_all_gradients, alpha);
  }
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
  if (is_compressed(x) && is_compressed(y)) {
    Tensor sum = coalesced(sparse_sum(c.name(), coalesced(coo_of(x)), coalesced(coo_of(y)), alpha));
    return is_csc(x) && is_csc(y) ? csc_of(sum) : csr_of(sum);
  }
  runtime_check(!is_sparse(x) || is_sparse(y), c.name())
      << c.name() << "(sparse, dense) is not supported. Use " << c.name() << "(dense, sparse) instead."
      << hint("or to_dense() of the first");
  if (a.tag != Tag::tensor || x.impl()->wrapped_number || is_sparse(x)) return {};
  return dense_sum(c.name(), x, y, alpha, form);
}

Results add(const Call& c, Form form) { return sum_of(c, form, false); }
Results sub(const Call& c, Form form) { return sum_of(c, form, true); }

// Applies a linear function to the values of a sparse tensor. The gradient may be dense.
Tensor linear(const char* node, const Tensor& s, const std::function<Tensor(const Tensor& x)>& f,
              std::function<Tensor(const Tensor& grad)> gradient) {
  return recorded(node, s, [&] { return with_values(s, f(sparse_parts(s).values)); }, std::move(gradient));
}
// True if the tape records the product of s with the number k as a linear function of s.
bool scales(const Tensor& s, const Tensor& k) {
  return wants_gradient(s) && !wants_gradient(k) && is_complex(k.dtype()) <= is_complex(s.dtype());
}
Results neg(const Call& c, Form) {
  auto f = [](const Tensor& x) { return facula::neg(x); };
  return linear("NegBackward0", c.tensor("self"), f, f);
}
Results to_dtype(const Call& c, Form) {
  Tensor s = c.tensor("self");
  auto to = [](DType t) { return [t](const Tensor& x) { return facula::to_dtype(x, t); }; };
  return linear("ToCopyBackward0", s, to(c.dtype("dtype")), to(s.dtype()));
}

Results mul(const Call& c, Form) {
  const Value &a = c["self"], &b = c["other"];
  if (is_number(a) || is_number(b)) {
    Tensor s = as_tensor(is_number(a) ? b : a), k = as_tensor(is_number(a) ? a : b);
    if (!scales(s, k)) return with_values(pattern(s), facula::mul(values_of(pattern(s)), k));
    return linear(
        "MulBackward0", s, [&](const Tensor& v) { return facula::mul(v, k); },
        [k = clone(k), t = s.dtype()](const Tensor& g) {
          return facula::to(facula::mul(g, is_complex(t) ? conj_physical(k) : k), t);
        });
  }
  Tensor x = as_tensor(a), y = as_tensor(b);
  if (is_compressed(x) && is_compressed(y)) {
    Tensor product = facula::mul(coalesced(coo_of(x)), coalesced(coo_of(y)));
    return is_csc(x) && is_csc(y) ? csc_of(product) : csr_of(product);
  }
  if (is_sparse(x) && is_sparse(y) && !(is_coo(x) && is_coo(y))) return {};
  if (is_sparse(x) && is_sparse(y)) {
    check_same_sizes(c.name(), x, y);
    x = coalesced(x);
    y = coalesced(y);
    auto &p = sparse_parts(x), &q = sparse_parts(y);
    if (p.indices.is_same(q.indices))
      return coo(p.indices, facula::mul(values_of(x), values_of(y)), x.sizes(), true);
    if (p.nnz() == 0 || q.nnz() == 0) return empty_like_of(x, promote(x.dtype(), y.dtype()));
    Dims sparse_sizes(x.sizes().first(size_t(p.sparse_dims())));
    if (sparse_sizes.empty()) return coo(p.indices, facula::mul(values_of(x), values_of(y)), x.sizes(), true);
    auto [at, hit] = found(flat(q.indices, sparse_sizes), flat(p.indices, sparse_sizes));
    Tensor mine = places_of(hit), theirs = facula::index_select(at, 0, mine);
    Tensor values = facula::mul(facula::index_select(values_of(x), 0, mine),
                                facula::index_select(values_of(y), 0, theirs));
    return coo(facula::index_select(p.indices, 1, mine), values, x.sizes(), true);
  }
  Tensor s = pattern(is_sparse(x) ? x : y), dense = is_sparse(x) ? y : x;
  if (!broadcasts_to(dense.sizes(), s.sizes())) return {};
  Tensor picked = dense_at(facula::expand(dense, s.sizes()), indices_of(sparse_parts(s)));
  Tensor values = values_of(s);
  return with_values(s, is_sparse(x) ? facula::mul(values, picked) : facula::mul(picked, values));
}

Results div(const Call& c, Form) {
  const Value& by = c["other"];
  if (is_sparse(as_tensor(by))) return {};
  runtime_check(is_number(by), c.name())
      << "Sparse division requires a scalar or zero-dim dense tensor divisor (got shape "
      << to_string(c.sizes("other")) << " for divisor)";
  Tensor s = c.tensor("self"), k = as_tensor(by);
  if (!scales(s, k)) return with_values(pattern(s), facula::div(values_of(pattern(s)), k));
  return linear(
      "DivBackward0", s, [&](const Tensor& v) { return facula::div(v, k); },
      [k = clone(k), t = s.dtype()](const Tensor& g) {
        return facula::to(facula::div(g, is_complex(t) ? conj_physical(k) : k), t);
      });
}

}  // namespace

std::span<const run::SparseRules> arithmetic_rules() {
  static const run::SparseRules rules[] = {
      {"add", add}, {"sub", sub}, {"mul", mul}, {"div", div}, {"neg", neg}, {"to_dtype", to_dtype},
  };
  return rules;
}

}  // namespace facula::catalog::sparse
