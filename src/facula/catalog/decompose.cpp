// Decompositions of (batches of) matrices: orthogonal factors, singular values, eigenvalues. Vectors are determined up to
// signs (phases); they are those of LAPACK's routines for the matrix itself.
#include <cmath>

#include "facula/catalog/differences.h"
#include "facula/catalog/matrices.h"
#include "facula/catalog/no_derivative.h"
#include "facula/catalog/warns.h"

using namespace facula;
using namespace facula::op;
using namespace facula::catalog::matrices;

namespace {

Tensor column(const Tensor& m, int64_t k) { return narrow(m, -1, k, int64_t(1)); }
Tensor skew(const Tensor& x) { return sub(x, adjoint_of(x)); }
Tensor real_part(const Tensor& x) { return is_complex(x.dtype()) ? _real(x) : x; }
Tensor as_dtype_of(const Tensor& x, const Tensor& like) { return to_dtype(x, like.dtype()); }
Tensor row_scaled(const Tensor& s, const Tensor& m) { return mul(unsqueeze(s, -1), m); }     // diag(s) m
Tensor column_scaled(const Tensor& m, const Tensor& s) { return mul(m, unsqueeze(s, -2)); }  // m diag(s)
Tensor unit_matrix(SymInt rows, SymInt columns, const Tensor& like) {
  return expand(eye(rows, columns, like.dtype()), of_matrices(like.sizes(), rows, columns));
}

// ---- Householder reflections H = 1 - tau v v^H (Golub, Van Loan, "Matrix Computations", 5.1)

// The vectors of reflections: below the diagonal, with 1 on it and 0 above.
Tensor reflectors(const Tensor& a, SymInt count) {
  Tensor v = narrow(a, -1, int64_t(0), count);
  return add(tril(v, -1), unit_matrix(v.size(-2), count, v));
}

// H_1 ... H_k E for E = the first columns of 1, with all its parts: the last is E.
std::vector<Tensor> partial_products(const Tensor& v, const Tensor& tau, SymInt columns) {
  std::vector<Tensor> parts{unit_matrix(v.size(-2), columns, v)};
  for (int64_t k = tau.size(-1).guard_int(); k-- > 0;) {
    Tensor x = column(v, k), t = unsqueeze(column(tau, k), -1), &q = parts.back();
    parts.push_back(sub(q, mul(t, matmul(x, matmul(adjoint_of(x), q)))));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

// Gradients of the matrix of reflection vectors and of tau from a gradient of H_1 ... H_k E, one reflection after the other,
// with Q_i = H_i Q_{i+1}.
std::pair<Tensor, Tensor> through_reflections(const Tensor& a, const Tensor& tau, Tensor g,
                                              const Tensor& result) {
  int64_t count = tau.size(-1).guard_int();
  Tensor v = reflectors(a, tau.size(-1));
  auto q = partial_products(v, tau, g.size(-1));
  g = add(g, sum(mul(result, 0), {-2, -1}, true));  // of a product that is not finite none is
  std::vector<Tensor> of_v, of_tau;
  for (int64_t k = 0; k < count; ++k) {
    Tensor x = column(v, k), t = conjugate(unsqueeze(column(tau, k), -1)), &rest = q[size_t(k) + 1];
    Tensor row = matmul(adjoint_of(x), rest), back = matmul(adjoint_of(x), g);
    of_tau.push_back(neg(squeeze(sum(mul(matmul(adjoint_of(x), g), conjugate(row)), -1, true), -1)));
    of_v.push_back(
        neg(add(mul(t, matmul(g, adjoint_of(row))), mul(conjugate(t), matmul(rest, adjoint_of(back))))));
    g = sub(g, mul(t, matmul(x, back)));
  }
  if (SymInt more = a.size(-1) - SymInt(count); more > SymInt(int64_t(0)) || !count)
    of_v.push_back(zeros(of_matrices(a.sizes(), a.size(-2), more), a.dtype()));
  return {tril(cat(of_v, -1), -1), of_tau.empty() ? zeros_like(tau) : cat(of_tau, -1)};
}

// R above the diagonal, the vectors below, and tau; with a real diagonal of R, as LAPACK's larfg makes it.
std::tuple<Tensor, Tensor> householder_factors(const Tensor& self) {
  Tensor a = self;
  int64_t m = a.size(-2).guard_int(), n = a.size(-1).guard_int(), k = std::min(m, n);
  std::vector<Tensor> taus;
  Tensor row = unsqueeze(arange(m), -1);
  for (int64_t j = 0; j < k; ++j) {
    Tensor x = column(a, j), below = where(gt(row, j), x, zeros_like(x)),
           alpha = narrow(x, -2, j, int64_t(1));
    Tensor rest = sum(real_part(mul(below, conjugate(below))), -2, true), size = abs(alpha);
    Tensor plain = eq(rest, 0);
    if (is_complex(a.dtype())) plain = logical_and(plain, eq(_imag(alpha), 0));
    Tensor norm = sqrt(add(mul(size, size), rest));
    Tensor beta = where(lt(real_part(alpha), 0), norm, neg(norm)), b = as_dtype_of(beta, a);
    Tensor tau = where(plain, zeros_like(alpha), div(sub(b, alpha), b));
    Tensor v = where(plain, zeros_like(below), div(below, sub(alpha, b)));
    Tensor w = add(v, as_dtype_of(eq(row, j), a));
    Tensor reflected = sub(a, mul(conjugate(tau), matmul(w, matmul(adjoint_of(w), a))));
    Tensor kept = where(gt(row, j), v, where(eq(row, j), where(plain, alpha, b), x));
    a = cat(std::vector<Tensor>{narrow(a, -1, int64_t(0), j), kept, narrow(reflected, -1, j + 1, n - j - 1)},
            -1);
    taus.push_back(squeeze(tau, -1));
  }
  Dims sizes = batch_of(self.sizes());
  sizes.push_back(SymInt(int64_t(0)));
  return {a, taus.empty() ? zeros(sizes, a.dtype()) : cat(taus, -1)};
}

// The matrix with a real diagonal whose Hermitian part the upper triangle represents.
Tensor mirrored(const Tensor& upper) {
  Tensor strict = triu(upper, 1), diagonal_only = sub(upper, strict);
  if (is_complex(upper.dtype())) diagonal_only = mul(add(diagonal_only, conjugate(diagonal_only)), 0.5);
  return add(add(strict, adjoint_of(strict)), diagonal_only);
}

// Walter, Lehmann, "Algorithmic differentiation of linear algebra functions", 2012; Roberts, Roberts, "QR and LQ
// decomposition matrix backpropagation algorithms", 2020.
Tensor qr_gradient(const Tensor& a, const Tensor& q, const Tensor& r, Tensor gq, Tensor gr) {
  if (!gq.defined() && !gr.defined()) return Tensor();
  if (!gr.defined()) gr = zeros_like(r);
  if (!gq.defined()) gq = zeros_like(q);
  SymInt m = a.size(-2), n = a.size(-1);
  auto tall = [&](const Tensor& u, const Tensor& of_u, const Tensor& of_q) {
    Tensor inner = triu(sub(matmul(of_u, adjoint_of(u)), matmul(adjoint_of(q), of_q)));
    Tensor x = add(of_q, matmul(q, mirrored(inner)));
    return adjoint_of(_linalg_triangular(u, adjoint_of(x), true));  // x u^-H
  };
  if (m >= n) return tall(r, gr, gq);
  // A = Q (U | V), V = Q^H Y: Y's part by way of Q.
  Tensor gv = narrow(gr, -1, m, n - m), y = narrow(a, -1, m, n - m);
  Tensor gx =
      tall(narrow(r, -1, int64_t(0), m), narrow(gr, -1, int64_t(0), m), add(gq, matmul(y, adjoint_of(gv))));
  return cat(std::vector<Tensor>{gx, matmul(q, gv)}, -1);
}

// ---- Slow references of spectra

// Cyclic Jacobi rotations of a Hermitian matrix (Golub, Van Loan, 8.5): eigenvalues ascending, vectors.
std::pair<Tensor, Tensor> jacobi(Tensor a) {
  int64_t n = a.size(-1).guard_int();
  Tensor v = identity(a), at = arange(n), row = unsqueeze(at, -1);
  for (int sweep = 0; sweep < 12; ++sweep)
    for (int64_t p = 0; p < n; ++p)
      for (int64_t q = p + 1; q < n; ++q) {
        auto element = [&](int64_t i, int64_t j) { return narrow(column(a, j), -2, i, int64_t(1)); };
        Tensor off = element(p, q), r = abs(off), none = eq(r, 0), one = ones_like(r);
        Tensor phase = where(none, ones_like(off), div(off, as_dtype_of(where(none, one, r), a)));
        Tensor tau =
            div(sub(real_part(element(q, q)), real_part(element(p, p))), mul(where(none, one, r), 2));
        Tensor t = div(where(lt(tau, 0), neg(one), one), add(abs(tau), sqrt(add(mul(tau, tau), 1))));
        t = where(none, zeros_like(t), t);
        Tensor c = div(one, sqrt(add(mul(t, t), 1))), s = as_dtype_of(mul(t, c), a),
               cosine = as_dtype_of(c, a);
        auto place = [&](int64_t i, int64_t j) { return logical_and(eq(row, i), eq(at, j)); };
        Tensor j = where(logical_or(place(p, p), place(q, q)), cosine, identity(a));
        j = where(place(p, q), mul(s, phase), where(place(q, p), neg(mul(s, conjugate(phase))), j));
        a = matmul(adjoint_of(j), matmul(a, j));
        v = matmul(v, j);
      }
  auto [values, order] = sort(real_part(diagonal(a, int64_t(0), -2, -1)), -1);
  return {values, gather(v, -1, expand(unsqueeze(order, -2), v.sizes()))};
}

Tensor hermitian_of(const Tensor& a, std::string_view uplo) {
  if (uplo == "U" || uplo == "u") return mirrored(triu(a));
  return mirrored(triu(adjoint_of(a)));
}

// A V = Q R for V of A^H A has a diagonal R: the singular values but for their phases.
std::tuple<Tensor, Tensor, Tensor> singular_values(const Tensor& a, bool full) {
  SymInt m = a.size(-2), n = a.size(-1), k = smaller(m, n);
  if (m < n) {
    auto [u, s, vh] = singular_values(adjoint_of(a), full);
    return {adjoint_of(vh), s, adjoint_of(u)};
  }
  auto [values, vectors] = jacobi(matmul(adjoint_of(a), a));
  Tensor v = flip(vectors, std::vector<int64_t>{-1});
  auto [q, r] = linalg_qr(matmul(a, v), full ? "complete" : "reduced");
  Tensor d = diagonal(r, int64_t(0), -2, -1), s = abs(d), none = eq(s, 0);
  Tensor turned = where(none, ones_like(d), div(d, as_dtype_of(where(none, ones_like(s), s), a)));
  if (full && m > k) {
    Dims more(turned.sizes());
    more.back() = m - k;
    turned = cat(std::vector<Tensor>{turned, ones(more, a.dtype())}, -1);
  }
  return {column_scaled(q, turned), s, adjoint_of(v)};
}

// Eigenvalues by QR steps with shifts on ever smaller leading blocks; vectors of the triangle by substitution (Golub,
// Van Loan, 7.3, 7.6).
std::tuple<Tensor, Tensor> eigen(const Tensor& self) {
  DType d = complex_of(self.dtype());
  Tensor t = to_dtype(self, d), z = identity(t);
  int64_t n = t.size(-1).guard_int();
  Tensor at = arange(n), row = unsqueeze(at, -1);
  for (int64_t active = n; active > 1; --active)
    for (int step = 0; step < 60; ++step) {
      Tensor shift = add(narrow(column(t, active - 1), -2, active - 1, int64_t(1)),
                         Scalar(std::complex<double>(0, step < 3 ? 0.1 : 0)));
      Tensor block = narrow(narrow(t, -1, int64_t(0), active), -2, int64_t(0), active);
      auto [q, r] = linalg_qr(sub(block, mul(identity(block), shift)), "complete");
      Tensor whole = constant_pad_nd(q, std::vector<int64_t>{0, n - active, 0, n - active}, 0);
      whole = add(whole, as_dtype_of(logical_and(eq(row, at), ge(row, active)), t));
      t = matmul(adjoint_of(whole), matmul(t, whole));
      z = matmul(z, whole);
    }
  t = triu(t);
  std::vector<Tensor> vectors;
  for (int64_t k = 0; k < n; ++k) {
    Tensor value = narrow(column(t, k), -2, k, int64_t(1)), x = column(identity(t), k);
    if (k > 0) {
      Tensor head = narrow(narrow(t, -1, int64_t(0), k), -2, int64_t(0), k);
      Tensor rhs = neg(narrow(column(t, k), -2, int64_t(0), k));
      Tensor solved = _linalg_triangular(sub(head, mul(identity(head), value)), rhs, true);
      x = add(x, constant_pad_nd(solved, std::vector<int64_t>{0, 0, 0, n - k}, 0));
    }
    x = matmul(z, x);
    vectors.push_back(div(x, as_dtype_of(sqrt(sum(real_part(mul(x, conjugate(x))), -2, true)), t)));
  }
  return {diagonal(t, int64_t(0), -2, -1), vectors.empty() ? zeros_like(t) : cat(vectors, -1)};
}

// ---- Gradients of spectra

// Square matrices with 1 on the diagonal.
Tensor with_unit_diagonal(const Tensor& t) {
  return where(eye(t.size(-1), nullopt, DType::Bool), ones_like(t), t);
}
// l_j - l_i, and 1 on the diagonal.
Tensor gaps_of(const Tensor& l) { return with_unit_diagonal(sub(unsqueeze(l, -2), unsqueeze(l, -1))); }

// Townsend, "Differentiating the singular value decomposition", 2016; Wan, Zhang, "Automatic differentiation for complex
// valued SVD", 2019. Of vectors beyond the k-th nothing arrives.
Tensor svd_gradient(const Tensor& u, const Tensor& s, const Tensor& vh, const Tensor& gu, const Tensor& gs,
                    const Tensor& gvh) {
  if (!gu.defined() && !gvh.defined())
    return gs.defined() ? matmul(u, row_scaled(as_dtype_of(gs, u), vh)) : Tensor();
  SymInt m = u.size(-2), n = vh.size(-1), k = s.size(-1);
  Tensor sigma = as_dtype_of(s, u);
  // Divides by s_j^2 - s_i^2. Its two factors are exact for neighbours and do not underflow where the squares do.
  Tensor sums = as_dtype_of(with_unit_diagonal(add(unsqueeze(s, -2), unsqueeze(s, -1))), u);
  Tensor gaps = as_dtype_of(gaps_of(s), u);
  auto over_gaps = [&](const Tensor& x) { return div(div(x, sums), gaps); };
  Tensor left = gu.defined() ? skew(matmul(adjoint_of(u), gu)) : Tensor();
  Tensor right = gvh.defined() ? skew(matmul(vh, adjoint_of(gvh))) : Tensor();
  Tensor core;
  if (left.defined() && right.defined())
    core = over_gaps(add(column_scaled(left, sigma), row_scaled(sigma, right)));
  else if (left.defined()) core = over_gaps(column_scaled(left, sigma));
  else core = over_gaps(row_scaled(sigma, right));
  if (gs.defined()) core = add(core, diagonal_matrix(as_dtype_of(gs, u)));
  if (is_complex(u.dtype()) && left.defined() && right.defined())
    core = add(core, diagonal_matrix(div(diagonal(left, int64_t(0), -2, -1), mul(sigma, 2.0))));
  if (m > k && gu.defined()) {
    Tensor outer = div(gu, unsqueeze(sigma, -2));
    Tensor whole = sub(add(matmul(u, core), outer), matmul(u, matmul(adjoint_of(u), outer)));
    return matmul(whole, vh);
  }
  if (n > k && gvh.defined()) {
    Tensor outer = div(gvh, unsqueeze(sigma, -1));
    Tensor whole = sub(add(matmul(core, vh), outer), matmul(matmul(outer, adjoint_of(vh)), vh));
    return matmul(u, whole);
  }
  return m >= n ? matmul(u, matmul(core, vh)) : matmul(matmul(u, core), vh);
}

// Magnus, "On differentiating eigenvalues and eigenvectors", 1985; Boeddeker et al., "On the computation of complex-valued
// gradients with application to statistically optimum beamforming", 2017.
Tensor eigh_gradient(const Tensor& values, const Tensor& v, const Tensor& gl, const Tensor& gv) {
  Tensor l = as_dtype_of(values, v);
  if (!gv.defined())
    return gl.defined() ? matmul(column_scaled(v, as_dtype_of(gl, v)), adjoint_of(v)) : Tensor();
  // Half the skew part: the gradient is Hermitian, whichever triangle was read.
  Tensor turned = mul(skew(matmul(adjoint_of(v), gv)), 0.5);
  Tensor inner = div(turned, gaps_of(l));
  Tensor on_diagonal = gl.defined() ? as_dtype_of(gl, v) : zeros_like(l);
  inner = where(eye(l.size(-1), nullopt, DType::Bool), unsqueeze(on_diagonal, -1), inner);
  return matmul(v, matmul(inner, adjoint_of(v)));
}
Tensor eig_gradient(const Tensor& l, const Tensor& v, const Tensor& gl, const Tensor& gv) {
  Tensor vh = adjoint_of(v);
  if (!gv.defined()) return gl.defined() ? linalg_solve(vh, row_scaled(gl, vh)) : Tensor();
  Tensor arrived = matmul(vh, gv), diagonals = diagonal(arrived, int64_t(0), -2, -1);
  Tensor inner = sub(arrived, column_scaled(matmul(vh, v), as_dtype_of(_real(diagonals), v)));
  inner = div(inner, conjugate(gaps_of(l)));
  inner =
      where(eye(l.size(-1), nullopt, DType::Bool), unsqueeze(gl.defined() ? gl : zeros_like(l), -1), inner);
  return linalg_solve(vh, matmul(inner, vh));
}

std::vector<DType> real_result(const Call& c) { return {real_of(c.all_tensors()[0].dtype())}; }
std::vector<DType> complex_results(const Call& c) {
  return std::vector<DType>(c.op().schema.returns.size(), complex_of(c.dtype("self")));
}

void check_input(const Call& c, const char* arg, bool square = false) {
  Tensor a = c.tensor(arg);
  if (square) check_square(c.name(), arg, a);
  else check_matrices(c.name(), arg, a);
  check_floating(c.name(), a);
}
// The strides of U alone: V is an adjoint.
Dims left_by_columns(const Call& c, size_t k, const Tensor& out, SymSpan sizes) {
  return k == 0 ? by_columns("self")(c, k, out, sizes) : Dims{};
}
void check_driver(const Call& c) {
  runtime_check(!c.has("driver"), shown(c.name()))
      << "keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER backend, got driver='"
      << c.str("driver") << "' on the CPU";
}
void check_uplo(const Call& c) {
  std::string_view uplo = c.str("UPLO");
  runtime_check(uplo.size() == 1 && std::string_view("LUlu").find(uplo) != std::string_view::npos,
                shown(c.name()))
      << "expected UPLO argument to be 'L' or 'U', but got '" << std::string(uplo) << "'";
}
Dims without_columns(SymSpan sizes, SymInt count) {
  Dims to = batch_of(sizes);
  to.push_back(count);
  return to;
}
SymInt rank_of(const Call& c, ParameterName arg) { return smaller(c.size(arg, -2), c.size(arg, -1)); }

std::vector<Dims> geqrf_sizes(const Call& c) {
  check_input(c, "self");
  return {Dims(c.sizes("self")), without_columns(c.sizes("self"), rank_of(c, "self"))};
}

// Checks matrices [m, n] whose columns are the vectors of k <= n reflections, and returns the sizes of their product.
Dims product_sizes(const Call& c, const char* vectors) {
  Tensor a = c.tensor(vectors), tau = c.tensor("tau");
  const char* name = shown(c.name());
  check_input(c, vectors);
  runtime_check(a.size(-2) >= a.size(-1), name)
      << "`" << vectors << "` must have at least as many rows as columns, got shape " << to_string(a.sizes());
  runtime_check(tau.dim() == a.dim() - 1 &&
                    std::equal(tau.sizes().begin(), tau.sizes().end() - 1, a.sizes().begin()),
                name)
      << "expected batch dimensions of tau to be those of `" << vectors << "` of shape "
      << to_string(a.sizes()) << ", got " << to_string(tau.sizes());
  runtime_check(a.size(-1) >= tau.size(-1), name)
      << "`tau` of shape " << to_string(tau.sizes()) << " has more elements than `" << vectors
      << "` of shape " << to_string(a.sizes()) << " has columns";
  runtime_check(tau.dtype() == a.dtype(), name)
      << "tau dtype " << tau.dtype() << " does not match input dtype " << a.dtype();
  return Dims(a.sizes());
}

Dims ormqr_sizes(const Call& c) {
  Tensor a = c.tensor("self"), tau = c.tensor("input2"), other = c.tensor("input3");
  check_input(c, "self");
  check_matrices("ormqr", "other", other);
  int side = c.flag("left") ? -2 : -1;
  auto batch_is = [&](const Tensor& t, int more) {
    return t.dim() == a.dim() - 2 + more &&
           std::equal(a.sizes().begin(), a.sizes().end() - 2, t.sizes().begin());
  };
  auto shapes = [&] {
    return "input " + to_string(a.sizes()) + ", tau " + to_string(tau.sizes()) + ", other " +
           to_string(other.sizes());
  };
  runtime_check(other.size(side) >= tau.size(-1), "ormqr")
      << "other.shape[" << side << "] must be greater than or equal to tau.shape[-1]: " << shapes();
  runtime_check(other.size(side) == a.size(-2), "ormqr")
      << "other.shape[" << side << "] must be equal to input.shape[-2]: " << shapes();
  SymInt least = min(other.size(side), a.size(-1));
  runtime_check(tau.size(-1) == least, "ormqr")
      << "tau.shape[-1] must be equal to min(other.shape[" << side << "], input.shape[-1]): " << shapes();
  runtime_check(batch_is(tau, 1) && batch_is(other, 2), "ormqr")
      << "expected batch dimensions of tau and other to be those of input: " << shapes();
  runtime_check(tau.dtype() == a.dtype() && other.dtype() == a.dtype(), "ormqr")
      << "expected input, tau and other to have the same dtype, but found " << a.dtype() << ", "
      << tau.dtype() << " and " << other.dtype();
  return Dims(other.sizes());
}

// Gradients of operators that return values and vectors, or values alone; then the vectors are recomputed.
bool gives_vectors(const Vjp& v) { return v.call().op().schema.returns.size() > 1; }
Grads of_singular_values(const Vjp& v) {
  if (!gives_vectors(v)) {
    auto [u, s, vh] = linalg_svd(v["A"], false);
    return grads(matmul(u, row_scaled(as_dtype_of(v.grad(), u), vh)));
  }
  SymInt k = rank_of(v.call(), "A");
  auto first = [&](const Tensor& t, int dim) { return t.defined() ? narrow(t, dim, int64_t(0), k) : t; };
  return grads(svd_gradient(first(v.result(0), -1), v.result(1), first(v.result(2), -2), first(v.grad(0), -1),
                            v.grad(1), first(v.grad(2), -2)));
}
Grads of_hermitian_eigenvalues(const Vjp& v) {
  if (gives_vectors(v)) return grads(eigh_gradient(v.result(0), v.result(1), v.grad(0), v.grad(1)));
  auto [values, vectors] = linalg_eigh(v["self"], v.call().str("UPLO"));
  return grads(eigh_gradient(values, vectors, v.grad(), Tensor()));
}
Grads of_eigenvalues(const Vjp& v) {
  auto [values, vectors] = gives_vectors(v) ? std::tuple(v.result(0), v.result(1)) : linalg_eig(v["self"]);
  Tensor g = eig_gradient(values, vectors, v.grad(0), gives_vectors(v) ? v.grad(1) : Tensor());
  return grads(g.defined() && !is_complex(v.call().dtype("self")) ? _real(g) : g);
}

}  // namespace

FACULA_FAMILY(decompose) {
  define("geqrf(Tensor self) -> (Tensor a, Tensor tau)")
      .differs(kExtremes, kOrderOfLapack)
      .differs(kSingular, kRounding)
      .resized(by_columns("self", true))
      .converting_out()
      .autocast(Autocast::fp32)
      .doc(
          "QR of each matrix as LAPACK's geqrf leaves it: R, below it the vectors of Householder reflections, and tau.")
      .dtypes(kExact)
      .shapes(geqrf_sizes)
      .library("geqrf")
      .batched_in_front()
      .reference([](const Tensor& self) { return householder_factors(self); })
      .vjp(catalog::NoDerivative{"geqrf"})
      .samples({"self[4, 3]", "self[2, 3, 4]", "self[0, 3]"});
  define("linalg_householder_product(Tensor input, Tensor tau) -> Tensor")
      .converting_out()
      .resized(by_columns("input", true))
      .autocast(Autocast::fp32)
      .doc(
          "The first n columns of H_1 H_2 ... H_k, H_i = 1 - tau_i v_i v_i^H, v_i in column i of `input` [..., m, n].")
      .bind(linalg)
      .dtypes(kExact)
      .promote(Promote::none)
      .no_in_place()
      .shape([](const Call& c) { return product_sizes(c, "input"); })
      .library("householder_product")
      .batched_in_front()
      .reference([](const Tensor& input, const Tensor& tau) {
        return partial_products(reflectors(input, tau.size(-1)), tau, input.size(-1)).front();
      })
      .vjp([](const Vjp& v) {
        auto [a, tau] = through_reflections(v["input"], v["tau"], v.grad(), v.result());
        return grads(a, tau);
      })
      .samples({"input[4, 3], tau[2]", "input[2, 3, 3], tau[2, 3]"});
  define("orgqr(Tensor self, Tensor input2) -> Tensor")
      .converting_out()
      .resized(by_columns("self", true))
      .autocast(Autocast::fp32)
      .doc("linalg.householder_product.")
      .no_in_place()
      .procedure(
          [](const Tensor& self, const Tensor& input2) { return linalg_householder_product(self, input2); })
      .samples({"self[4, 3], input2[2]"});
  define("ormqr(Tensor self, Tensor input2, Tensor input3, bool left=True, bool transpose=False) -> Tensor")
      .differs(kExtremes, kOrderOfLapack)
      .differs("(float|complex)\\d+ gradient of (self|input2): .* with input2: all (1|-2\\.5)",
               "reflectors that are none: the peer divides by what is 0 but for rounding")
      .resized(by_columns("self", true))
      .autocast(Autocast::fp32)
      .doc(
          "op(Q) input3 (input3 op(Q) if not `left`) for Q = H_1 ... H_k as geqrf gives it, op(Q) = Q^H if `transpose`.")
      .dtypes(kExact)
      .promote(Promote::none)
      .no_in_place()
      .also("input2", "tau")
      .also("input3", "other")
      .check([](const Call& c) { ormqr_sizes(c); })  // before dtypes, as in PyTorch
      .shape(ormqr_sizes)
      .library("ormqr")
      .batched_in_front()
      .reference(
          [](const Tensor& self, const Tensor& input2, const Tensor& input3, bool left, bool transposed) {
            Tensor q = partial_products(reflectors(self, input2.size(-1)), input2, self.size(-2)).front();
            if (transposed) q = adjoint_of(q);
            return left ? matmul(q, input3) : matmul(input3, q);
          })
      .vjp([](const Vjp& v) {
        bool left = v.call().flag("left"), transposed = v.call().flag("transpose");
        Tensor other = ormqr(v["self"], v["input2"], v.grad(), left, !transposed), a, tau;
        if (v.needs("self") || v.needs("input2")) {
          Tensor q =
              left ? matmul(v.grad(), adjoint_of(v["input3"])) : matmul(adjoint_of(v["input3"]), v.grad());
          std::tie(a, tau) =
              through_reflections(v["self"], v["input2"], transposed ? adjoint_of(q) : q, v.result());
        }
        return grads(a, tau, other);
      })
      .samples({"self[4, 3], input2[3], input3[4, 2]",
                "self[3, 3], input2[3], input3[2, 3], left=False, transpose=True"});
  define("linalg_qr(Tensor A, str mode='reduced') -> (Tensor Q, Tensor R)")
      .differs(kSingular, kRounding)
      .differs(kExtremes, kOrderOfLapack)
      .resized(by_columns("A"))
      .doc(
          "A = Q R of each matrix, Q with orthonormal columns, R upper triangular with a real diagonal of either sign, as "
          "LAPACK's; mode 'complete' gives all columns of Q, 'r' only R.")
      .bind(linalg)
      .autocast(Autocast::fp32)
      .composite([](const Tensor& A, std::string_view mode) {
        check_matrices("linalg_qr", "A", A);
        check_floating("linalg_qr", A);
        runtime_check(mode == "reduced" || mode == "complete" || mode == "r", "linalg.qr")
            << "received unrecognized mode '" << std::string(mode)
            << "' but expected one of 'reduced' (default), 'r', or 'complete'";
        auto [a, tau] = geqrf(A);
        SymInt m = A.size(-2), n = A.size(-1), rows = mode == "complete" ? m : smaller(m, n);
        Tensor r = triu(narrow(a, -2, int64_t(0), rows));
        if (mode == "r") return std::tuple(zeros({int64_t(0)}, A.dtype()), r);
        Tensor vectors = narrow(a, -1, int64_t(0), smaller(rows, n));
        if (rows > n)
          vectors =
              cat(std::vector<Tensor>{vectors, zeros(of_matrices(A.sizes(), m, rows - n), A.dtype())}, -1);
        return std::tuple(linalg_householder_product(vectors, tau), r);
      })
      // Derived from Q and R, because the geqrf of the body has no gradient.
      .vjp([](const Vjp& v) {
        std::string_view mode = v.call().str("mode");
        runtime_check(mode != "r", "linalg.qr")
            << "The derivative of linalg.qr depends on Q, which is not computed when mode='r'"
            << hint("linalg.qr(A, mode='reduced') has a derivative");
        runtime_check(mode == "reduced" || v.call().size("A", -2) <= v.call().size("A", -1), "linalg.qr")
            << "The QR decomposition is not differentiable when mode='complete' and nrows > ncols, got shape "
            << to_string(v.call().sizes("A"));
        return grads(qr_gradient(v["A"], v.result(0), v.result(1), v.grad(0), v.grad(1)));
      })
      .samples({"A[4, 3]", "A[2, 3, 4]", "A[3, 3], mode='complete'", "A[0, 2]"});
  define("qr(Tensor self, bool some=True) -> (Tensor Q, Tensor R)")
      .check(catalog::warns_once(catalog::deprecated(
          "qr", "linalg.qr",
          "The boolean parameter 'some' has been replaced with a string parameter 'mode'.\n"
          "Q, R = torch.qr(A, some)\nshould be replaced with\n"
          "Q, R = torch.linalg.qr(A, 'reduced' if some else 'complete')")))
      .differs(kSingular, kRounding)
      .differs(kExtremes, kOrderOfLapack)
      .resized(by_columns("self"))
      .doc("linalg.qr, mode 'reduced' if `some`, else 'complete'.")
      .procedure([](const Tensor& self, bool some) { return linalg_qr(self, some ? "reduced" : "complete"); })
      .samples({"self[4, 3]", "self[3, 4], some=False"});

  define(
      "linalg_svd(Tensor A, bool full_matrices=True, *, str? driver=None) -> (Tensor U, Tensor S, Tensor Vh)")
      .resized(by_columns("A"))
      .doc(
          "A = U diag(S) Vh of each matrix, S descending; U and Vh hold as many vectors as rows and columns with "
          "`full_matrices`, else min(m, n). Signs (phases) are LAPACK's gesdd's; gradients want distinct S.")
      .bind(linalg)
      .dtypes(kExact)
      .autocast(Autocast::fp32)
      .result(
          [](const Call& c) { return std::vector<DType>{c.dtype("A"), real_of(c.dtype("A")), c.dtype("A")}; })
      .shapes([](const Call& c) {
        check_driver(c);
        check_input(c, "A");
        SymInt m = c.size("A", -2), n = c.size("A", -1), k = smaller(m, n);
        bool full = c.flag("full_matrices");
        SymSpan sizes = c.sizes("A");
        return std::vector<Dims>{of_matrices(sizes, m, full ? m : k), without_columns(sizes, k),
                                 of_matrices(sizes, full ? n : k, n)};
      })
      .library("linalg_svd")
      .batched_in_front()
      .reference([](const Tensor& A, bool full_matrices, std::optional<std::string_view>) {
        return singular_values(A, full_matrices);
      })
      .vjp(of_singular_values)
      .samples({"A[2, 0], full_matrices=False"});  // vectors have no signs of their own to compare
  define("linalg_svdvals(Tensor A, *, str? driver=None) -> Tensor")
      .differs(kExtremes, kOrderOfLapack)
      .doc("The singular values of each matrix, descending.")
      .grad_name("LinalgSvd")
      .differs(kInfinite, kRefused)
      .differs(
          "(float|complex)\\d+ gradient of A: .* with A: (all|max and lowest)",
          "equal singular values have no gradient each; that of their sum by chosen weights depends on the vectors")
      .bind(linalg)
      .dtypes(kExact)
      .autocast(Autocast::fp32)
      .no_in_place()
      .result(real_result)
      .shape([](const Call& c) {
        check_driver(c);
        check_input(c, "A");
        return without_columns(c.sizes("A"), rank_of(c, "A"));
      })
      .library("linalg_svdvals")
      .batched_in_front()
      .reference([](const Tensor& A, std::optional<std::string_view>) {
        return std::get<1>(singular_values(A, false));
      })
      .vjp(of_singular_values)
      .samples({"A[4, 3]", "A[2, 3, 4]", "A[0, 3]"});
  define("svd(Tensor self, bool some=True, bool compute_uv=True) -> (Tensor U, Tensor S, Tensor V)")
      .resized(left_by_columns)
      .doc(
          "linalg.svd with V instead of its adjoint; `some`: not all vectors. Without `compute_uv` U and V are zeros.")
      .procedure([](const Tensor& self, bool some, bool compute_uv) {
        check_matrices("svd", "input", self);
        if (!compute_uv) {
          SymInt m = self.size(-2), n = self.size(-1);
          return std::tuple(zeros(of_matrices(self.sizes(), m, m), self.dtype()), linalg_svdvals(self),
                            zeros(of_matrices(self.sizes(), n, n), self.dtype()));
        }
        auto [u, s, vh] = linalg_svd(self, !some);
        return std::tuple(u, s, adjoint_of(vh));
      })
      .samples({"self[2, 0]"});

  define("linalg_eigh(Tensor self, str UPLO='L') -> (Tensor eigenvalues, Tensor eigenvectors)")
      .resized(by_columns("self"))
      .doc(
          "A = V diag(eigenvalues) V^H of each Hermitian matrix, of which the triangle `UPLO` is read; ascending. Signs "
          "(phases) of vectors are LAPACK's syevd's (heevd's), up to 8 rows of real numbers those of its classic rotations; "
          "gradients want distinct eigenvalues.")
      .bind(linalg)
      .also("self", "A")
      .dtypes(kExact)
      .autocast(Autocast::fp32)
      .result([](const Call& c) { return std::vector<DType>{real_of(c.dtype("self")), c.dtype("self")}; })
      .shapes([](const Call& c) {
        check_input(c, "self", true);
        check_uplo(c);
        return std::vector<Dims>{without_columns(c.sizes("self"), c.size("self", -1)), Dims(c.sizes("self"))};
      })
      .library("linalg_eigh")
      .batched_in_front()
      .reference([](const Tensor& self, std::string_view uplo) {
        auto [values, vectors] = jacobi(hermitian_of(self, uplo));
        return std::tuple(values, vectors);
      })
      .vjp(of_hermitian_eigenvalues)
      .samples({"self[0, 0]"});
  define("linalg_eigvalsh(Tensor self, str UPLO='L') -> Tensor")
      .doc("The eigenvalues of each Hermitian matrix, ascending.")
      .grad_name("LinalgEigh")
      .differs("(float|complex)\\d+ error: LinAlgError .* for a result with self: .*(nan|inf)",
               "what is not finite is refused, as for eigenvectors")
      .bind(linalg)
      .also("self", "A")
      .dtypes(kExact)
      .autocast(Autocast::fp32)
      .no_in_place()
      .result(real_result)
      .shape([](const Call& c) {
        check_input(c, "self", true);
        check_uplo(c);
        return without_columns(c.sizes("self"), c.size("self", -1));
      })
      .library("linalg_eigvalsh")
      .batched_in_front()
      .reference(
          [](const Tensor& self, std::string_view uplo) { return jacobi(hermitian_of(self, uplo)).first; })
      .vjp(of_hermitian_eigenvalues)
      .samples({"self[1, 1]", "self[0, 2, 2]"});  // larger ones: not symmetric when one element moves
  define("linalg_eig(Tensor self) -> (Tensor eigenvalues, Tensor eigenvectors)")
      .resized(by_columns("self", true))
      .converting_out()
      .doc(
          "A = V diag(eigenvalues) V^-1 of each square matrix, complex; vectors of length 1 whose largest element is real, "
          "as LAPACK's geev gives them. Gradients want distinct eigenvalues.")
      .bind(linalg)
      .also("self", "A")
      .dtypes(kExact)
      .autocast(Autocast::fp32)
      .result(complex_results)
      .shapes([](const Call& c) {
        check_input(c, "self", true);
        return std::vector<Dims>{without_columns(c.sizes("self"), c.size("self", -1)), Dims(c.sizes("self"))};
      })
      .library("linalg_eig")
      .batched_in_front()
      .reference([](const Tensor& self) { return eigen(self); })
      .vjp(of_eigenvalues)
      .samples({"self[0, 0]"});
  define("linalg_eigvals(Tensor self) -> Tensor")
      .grad_name("LinalgEig")
      .converting_out()
      .differs(kExtremes, kOrderOfLapack)
      .doc("The eigenvalues of each square matrix, complex.")
      .differs("(float|complex)\\d+ error: RuntimeError .*infs or NaNs.* for a result with self: .*(nan|inf)",
               "what is not finite is refused, as for eigenvectors")
      .bind(linalg)
      .also("self", "A")
      .dtypes(kExact)
      .autocast(Autocast::fp32)
      .no_in_place()
      .result(complex_results)
      .shape([](const Call& c) {
        check_input(c, "self", true);
        return without_columns(c.sizes("self"), c.size("self", -1));
      })
      .library("linalg_eigvals")
      .batched_in_front()
      .reference([](const Tensor& self) { return std::get<0>(eigen(self)); })
      .vjp(of_eigenvalues)
      .samples({"self[1, 1]", "self[0, 2, 2]"});
}
