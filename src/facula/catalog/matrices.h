// Helpers of operators on (batches of) matrices: checks of operands, names in messages, parts of formulas.
#pragma once
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

namespace facula::catalog::matrices {

using namespace facula::op;

constexpr DTypeSet kExact =
    dtypes_where([](DType t) { return t == DType::Float32 || t == DType::Float64 || is_complex(t); });

inline const char* shown(const char* name) {  // linalg_solve as linalg.solve
  thread_local std::string text;
  text = name;
  if (text.rfind("linalg_", 0) == 0) text[6] = '.';
  return text.c_str();
}

inline Dims batch_of(SymSpan sizes) { return Dims(sizes.first(sizes.size() - 2)); }

inline void check_square(const char* name, const char* arg, const Tensor& t) {
  runtime_check(t.dim() >= 2, shown(name))
      << "`" << arg << "` must have at least 2 dimensions, got shape " << to_string(t.sizes());
  runtime_check(t.size(-1) == t.size(-2), shown(name))
      << "`" << arg << "` must be batches of square matrices, but they are " << t.size(-2) << " by "
      << t.size(-1) << " matrices (shape " << to_string(t.sizes()) << ")";
}

inline Tensor conjugate(const Tensor& x) { return is_complex(x.dtype()) ? conj_physical(x) : x; }
inline Tensor adjoint_of(const Tensor& x) { return conjugate(transpose(x, -2, -1)); }
inline Tensor as_matrices(const Tensor& t) { return unsqueeze(unsqueeze(t, -1), -1); }

inline Tensor identity(const Tensor& like) {
  return expand(eye(like.size(-1), nullopt, like.dtype()), like.sizes());
}

// A and B with one batch shape.
inline std::pair<Tensor, Tensor> broadcast_system(const char* name, const Tensor& a, const Tensor& b) {
  check_square(name, "A", a);
  runtime_check(b.dim() >= 2, shown(name))
      << "`B` must have at least 2 dimensions, got shape " << to_string(b.sizes());
  runtime_check(a.size(-1) == b.size(-2), shown(name))
      << "incompatible shapes of A and B for the equation AX = B: A " << to_string(a.sizes()) << ", B "
      << to_string(b.sizes());
  Dims batch_a = batch_of(a.sizes()), batch_b = batch_of(b.sizes());
  Dims batch = broadcast_sizes(shown(name), std::vector<SymSpan>{batch_a, batch_b});
  auto expanded = [&](const Tensor& t) {
    Dims to(batch);
    to.push_back(t.size(-2));
    to.push_back(t.size(-1));
    return std::equal(to.begin(), to.end(), t.sizes().begin(), t.sizes().end()) ? t : expand(t, to);
  };
  return {expanded(a), expanded(b)};
}

// The elements of v [..., k] on the diagonals of matrices [..., k, k].
inline Tensor diagonal_matrix(const Tensor& v) {
  return where(eye(v.size(-1), nullopt, DType::Bool), unsqueeze(v, -1), zeros_like(unsqueeze(v, -1)));
}
inline SymInt smaller(SymInt a, SymInt b) { return a < b ? a : b; }
// Sizes with other numbers of rows and columns.
inline Dims of_matrices(SymSpan sizes, SymInt rows, SymInt columns) {
  Dims to = batch_of(sizes);
  to.push_back(rows);
  to.push_back(columns);
  return to;
}
inline void check_matrices(const char* name, const char* arg, const Tensor& t) {
  runtime_check(t.dim() >= 2, shown(name))
      << "`" << arg << "` must have at least 2 dimensions, got shape " << to_string(t.sizes());
}

inline void check_floating(const char* name, const Tensor& t) {
  supported_check(is_differentiable(t.dtype()), shown(name))
      << "expected a floating point or complex tensor, got " << t.dtype() << " of shape "
      << to_string(t.sizes());
}

// Matrices by columns, as LAPACK leaves them; of vectors none.
inline Dims columns(SymSpan sizes) {
  size_t n = sizes.size();
  Dims strides = contiguous_strides(sizes);
  strides[n - 2] = SymInt(int64_t(1));
  strides[n - 1] = sizes[n - 2] > SymInt(int64_t(1)) ? sizes[n - 2] : SymInt(int64_t(1));
  return strides;
}
// An out= tensor that takes the shape of `arg` becomes column-major; `empty`: only if it has no elements.
inline auto by_columns(const char* arg, bool empty = false) {
  return [=](const Call& c, size_t, const Tensor& out, SymSpan sizes) {
    bool fresh = !empty || out.numel() == SymInt(int64_t(0));
    return fresh && sizes.size() >= 2 && sizes.size() == c.sizes(arg).size() ? columns(sizes) : Dims{};
  };
}

// The same as by_columns, except for systems X A = B, which are solved transposed.
inline auto solved_by_columns(const char* factor) {
  return [=](const Call& c, size_t k, const Tensor& out, SymSpan sizes) {
    return c.flag("left") ? by_columns(factor)(c, k, out, sizes) : Dims{};
  };
}

// Raises LinAlgError for the first matrix of a batch whose code is not 0.
template <class F>
void check_codes(const char* name, const Tensor& codes, F&& text) {
  Tensor bad = ne(reshape(codes, {int64_t(-1)}), 0);
  if (!any(bad).item().to_bool()) return;
  int64_t first = argmax(to_dtype(bad, DType::Int32)).item().to_int();
  int64_t code = select(reshape(codes, {int64_t(-1)}), 0, first).item().to_int();
  linalg_check(false, shown(name)) << (codes.dim() ? "(Batch element " + std::to_string(first) + "): " : "")
                                   << text(code);
}
inline std::string singular_inverse(int64_t code) {
  return "The diagonal element " + std::to_string(code) +
         " is zero, the inversion could not be completed because the input matrix is singular.";
}
inline double epsilon_of(DType d) { return real_of(d) == DType::Float64 ? 0x1p-52 : 0x1p-23; }

// Murray, "Differentiation of the Cholesky decomposition", 2016; of the diagonal the imaginary part, which a Hermitian
// matrix does not have, goes on as PyTorch's does, of either triangle.
inline Tensor cholesky_gradient(const Tensor& l, const Tensor& g, bool adjoint) {
  Tensor lh = adjoint_of(l), p = tril(matmul(lh, tril(g)));
  p = mul(adjoint ? add(adjoint_of(p), tril(p, -1)) : add(p, adjoint_of(tril(p, -1))), 0.5);
  Tensor half = _linalg_triangular(lh, p, true);                      // L^-H P
  return adjoint_of(_linalg_triangular(lh, adjoint_of(half), true));  // L^-H P L^-1
}

// The gradients of operators whose first result is a Cholesky factor, or an inverse.
inline Grads gradient_of_cholesky(const Vjp& v) {
  return grads(cholesky_gradient(v.result(0), v.grad(0), v.call().flag("adjoint")));
}
inline Grads gradient_of_inverse(const Vjp& v) {
  Tensor y = adjoint_of(v.result(0));
  return grads(neg(matmul(y, matmul(v.grad(0), y))));
}
// Gradients of operators whose first result is X of A X = B, also for singular A: factors of A solve the adjoint system.
inline Grads gradients_of_solution(const Vjp& v) {
  auto factors = _linalg_lu_factor(v["A"]);
  Tensor b = _linalg_lu_solve(std::get<0>(factors), std::get<1>(factors), v.grad(0), true);
  return grads(v.needs("A") ? neg(matmul(b, adjoint_of(v.result(0)))) : Tensor(), b);
}

// Gradients of beta * self + alpha * (left @ right). Sums are computed before the factors are applied, as in PyTorch, so that infinite factors stay infinite.
inline Grads gradients_of_sum_with_product(const Vjp& v) {
  auto& c = v.call();
  auto& p = c.op().schema.parameters;
  const std::string &left = p[1].name, &right = p[2].name;
  Tensor g = v.grad();
  auto times = [&](const Tensor& x, const char* factor) {
    Scalar s = c.number(factor);
    if (s.to_complex() == std::complex<double>(1)) return x;
    return mul(x, is_complex(g.dtype()) ? Scalar(std::conj(s.to_complex())) : s);
  };
  Grads out(3);
  if (v.needs("self")) out[0] = sum_to_size(times(g, "beta"), c.sizes("self"));
  if (v.needs(left)) out[1] = times(matmul(g, adjoint_of(v[right])), "alpha");
  if (v.needs(right)) out[2] = times(matmul(adjoint_of(v[left]), g), "alpha");
  return out;
}

}  // namespace facula::catalog::matrices
