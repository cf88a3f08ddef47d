// Cumulative sums and products.
#include "facula/catalog/reduce_helpers.h"
#include "facula/catalog/running.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;
using namespace facula::catalog::reduce_helpers;

namespace {
// The result dtype of a scan; refuses running sums and products of bool.
std::vector<DType> accumulated_along(const Call& c) {
  supported_check(accumulated(c)[0] != DType::Bool, c.name())
      << "not implemented for 'bool'" << hint("dtype=facula.int64 counts");
  return accumulated(c);
}
// y(i) = b(i) + a(i) y(i - 1) along dimension k, in as many steps as its size has digits (Hillis and Steele, 1986).
Tensor recurrence(Tensor a, Tensor b, int k) {
  for (int64_t step = 1, n = b.size(k).guard_int(); step < n; step *= 2) {
    b = add(b, mul(a, shifted(b, k, step, 0)));
    if (2 * step < n) a = mul(a, shifted(a, k, step, 1));
  }
  return b;
}
// One element after the other.
Tensor running_log_sums(const Tensor& x, int64_t dim) {
  if (x.dim() == 0 || x.numel() == SymInt(int64_t(0))) return clone(x);
  std::vector<Tensor> sums;
  for (int64_t k = 0; k < x.size(int(dim)).guard_int(); ++k) {
    Tensor next = select(x, dim, k);
    sums.push_back(k ? logaddexp(sums.back(), next) : next);
  }
  return stack(sums, dim);
}
// The fold of all elements along `dim` up to each.
Definer running(const char* schema, const char* doc, Monoid fold) {
  return std::move(define(schema)
                       .doc(doc)
                       .dtypes(d::any | d::wide_unsigned)
                       .result(accumulated_along)
                       .in_place()
                       .shape([](const Call& c) {
                         c.dim("dim");
                         return Dims(c.sizes("self"));
                       })
                       .loop([fold](const LoopCall& c, Index i) {
                         DType result = accumulated(c)[0], t = catalog::running_type(result);
                         if (i.empty()) return cast(c.load("self", i), compute_type(result));
                         int k = c.dim("dim");
                         Expr running = scan_over(c, fold, i, k, c.size("self", k),
                                                  [&](Index j) { return cast(c.load("self", j), t); });
                         return cast(running, compute_type(result));
                       }));
}
}  // namespace

FACULA_FAMILY(cumulative) {
  running("cumsum(Tensor self, int dim, *, dtype? dtype=None) -> Tensor", "Running sums along `dim`.",
          monoid::sum)
      // A sum from behind; derived, one for each element.
      .vjp([](const Vjp& v) {
        if (v.call().rank("self") == 0) return grads(v.grad());
        int k = v.call().dim("dim");
        return grads(flip(cumsum(flip(v.grad(), k), k), k));
      })
      .samples({"self[], dim=0", "self[3, 4], dim=1", "self[2, 3, 4], dim=0", "self[0, 3], dim=1",
                "self[3, 1025], dim=1"});
  running("cumprod(Tensor self, int dim, *, dtype? dtype=None) -> Tensor", "Running products along `dim`.",
          monoid::prod)
      // Transposition derives sums alone.
      .vjp([](const Vjp& v) {
        if (v.call().rank("self") == 0) return grads(v.grad());
        int k = v.call().dim("dim");
        if (v["self"].size(k) == SymInt(int64_t(1))) return grads(v.grad());
        return grads(_cumprod_backward(v.grad(), v["self"], k));
      })
      .samples({"self[](0.5, 1.5), dim=0", "self[3, 4](0.5, 1.5), dim=1", "self[2, 3, 4](0.5, 1.5), dim=0",
                "self[0, 3], dim=1"});
  define("_cumprod_backward(Tensor grad, Tensor self, int dim) -> Tensor")
      .doc("The gradient of cumprod: by division, except at the first zero; behind it everything is zero.")
      .bind(hidden)
      .composite([](const Tensor& g, const Tensor& x, int64_t k) {
        Tensor zero = eq(x, 0), zeros = cumsum(zero, k), first = logical_and(zero, eq(zeros, 1));
        Tensor filled = cumprod(where(first, ones_like(x), x), k),
               y = where(eq(zeros, 0), filled, mul(filled, 0));
        auto later = [&](const Tensor& t) { return flip(cumsum(flip(mul(g, conj_physical(t)), k), k), k); };
        return where(first, later(filled), div(later(y), conj_physical(where(zero, ones_like(x), x))));
      })
      .vjp([](const Vjp& v) {
        // Computes E S without divisions: E are the products of the preceding elements, S(k) = g(k) + c(k + 1) S(k + 1), and c is the
        // conjugate of x.
        int k = v.call().dim("dim");
        Tensor w = v.grad(), g = v["grad"], c = conj_physical(v["self"]);
        if (c.size(k).guard_int() == 0) return grads(zeros_like(g), zeros_like(c));
        Tensor products = cumprod(c, k), before = shifted(products, k, 1, 1);
        Tensor sums = flip(recurrence(shifted(flip(c, k), k, 1, 0), flip(g, k), k), k);
        Tensor of_g = recurrence(conj_physical(c), mul(w, conj_physical(before)), k);
        Tensor of_c = add(mul(shifted(of_g, k, 1, 0), conj_physical(sums)),
                          _cumprod_backward(shifted(mul(w, conj_physical(sums)), k, -1, 0), c, k));
        return grads(of_g, conj_physical(of_c));
      })
      .samples({"grad[3, 4], self[3, 4](0.5, 1.5), dim=1"});
  define("logcumsumexp(Tensor self, int dim) -> Tensor")
      .doc("log of the running sums of exp(self) along `dim`, without overflow.")
      .dtypes(d::floating | d::complex)
      .shape([](const Call& c) {
        c.dim("dim");
        return Dims(c.sizes("self"));
      })
      .library("logcumsumexp")
      .batched_in_front()
      .reference([](const Tensor& self, int64_t dim) { return running_log_sums(self, dim); })
      // Sums from behind, of g(j) exp(x(i) - y(j)): by a recurrence whose factors exp(y(i) - y(i + 1)) are at most 1.
      .vjp([](const Vjp& v) {
        Tensor x = v["self"], y = v.result(), g = v.grad();
        if (x.dim() == 0) return grads(g);
        DType dtype = x.dtype(), computing = is_complex(dtype) ? DType::Complex128 : DType::Float64;
        if (computing != dtype) {  // a rounded y says little of x - y
          x = to_dtype(x, computing), g = to_dtype(g, computing);
          y = logcumsumexp(x, v.call().dim("dim"));
        }
        int k = v.call().dim("dim");
        if (x.size(k) == SymInt(int64_t(0))) return grads(zeros_like(v["self"]));
        Tensor back = flip(y, k), first = narrow(back, k, int64_t(0), int64_t(1));
        Tensor before =
            cat(std::vector<Tensor>{first, narrow(back, k, int64_t(0), y.size(k) - SymInt(int64_t(1)))}, k);
        Tensor factors = exp(where(eq(back, before), zeros_like(back), sub(back, before)));
        Tensor sums = flip(recurrence(conj_physical(factors), flip(g, k), k), k);
        Tensor result = mul(sums, conj_physical(exp(sub(x, y))));
        return grads(computing == dtype ? result : to_dtype(result, dtype));
      })
      .samples({"self[], dim=0", "self[3, 4], dim=1", "self[2, 3, 4], dim=0", "self[0, 3], dim=1"});
}
