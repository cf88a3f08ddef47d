// Operators that only the tests have: tests/python/test_add_operator.py compiles this file by itself, loads
// it into a running Facula and finds each of them complete. docs/adding_an_operator.md walks through it.
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/op/registry.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::op;
using loop::Expr;

FACULA_FAMILY(added) {
  define("smooth_step(Tensor self, Scalar edge=1) -> Tensor")
      .doc("0 below 0, 1 above `edge`, and 3 t^2 - 2 t^3 with t = self / edge between.")
      .dtypes(dtypes::floating)
      .bind(function | method | nn_functional)
      .in_place()
      .pointwise([](Expr x, Expr edge) {
        Expr t = max(min(x / edge, 1.0), 0.0);
        return t * t * (3.0 - 2.0 * t);
      })
      .samples(unary_samples() + samples({"self[3, 4], edge=0.5"}));

  define("window_sum(Tensor self, SymInt size, int dim=-1) -> Tensor")
      .doc("Sums of `size` neighbours along `dim`.")
      .dtypes(dtypes::numeric)
      .shape([](const Call& c) {
        int d = c.dim("dim");
        SymInt n = c.size("self", d), size = c.integer("size");
        runtime_check(size > 0 && !(size > n), "window_sum")
            << "size must be between 1 and " << n << ", the size of dimension " << d << " of shape "
            << to_string(c.sizes("self")) << ", got " << size;
        return with(c.sizes("self"), d, n - size + SymInt(1));
      })
      .loop([](const LoopCall& c, Index i) {
        int d = c.dim("dim");
        return reduce(c, loop::monoid::sum, {c.integer("size")},
                      [&](Index k) { return c.load("self", with(i, d, i[size_t(d)] + k[0])); });
      })
      .samples({"self[5], size=2", "self[3, 4], size=3, dim=0", "self[2, 5, 3], size=2, dim=1"});

  define("every_other(Tensor(a) self, int dim=0) -> Tensor(a)")
      .doc("The elements at even positions of `dim`; shares storage.")
      .view([](const Call& c, Geometry g) {
        int d = c.dim("dim");
        g.slice(d, int64_t(0), (g.size(d) + SymInt(1)) / SymInt(2), int64_t(2));
        return g;
      })
      .samples({"self[5, 3]", "self[2, 4], dim=1"});

  define("centre(Tensor self, int dim=-1) -> Tensor")
      .doc("self without its mean along `dim`.")
      .dtypes(dtypes::floating)
      .composite([](const Call& c, const Tensor& self) { return sub(self, mean(self, c.dim("dim"), true)); })
      .samples({"self[3, 4]", "self[3, 4], dim=0"});

  // The result, and with it what arrives in its backward, has a size that is computed from the input's.
  define("step_energy(Tensor self) -> Tensor")
      .doc("Squared steps between neighbours along the last dimension.")
      .dtypes(dtypes::floating)
      .composite([](const Tensor& self) {
        SymInt n = self.size(-1) - SymInt(1);
        return square(sub(narrow(self, -1, 1, n), narrow(self, -1, 0, n)));
      })
      .samples({"self[2, 5]"});

  // Views by strides: of the input, of what was computed, and of one another.
  define("window_energy(Tensor self, int size) -> Tensor")
      .doc("Sums of squares in windows of `size` along the last dimension, every second one.")
      .dtypes(dtypes::floating)
      .composite(
          [](const Tensor& self, int64_t size) { return sum(square(unfold(self, -1, size, 2)), {-1}); })
      .samples({"self[2, 7], size=3", "self[3, 4], size=2", "self[5], size=4"});
  define("patch_energy(Tensor self) -> Tensor")
      .doc("Products of the 2 x 2 patches of exp(self) and of self.")
      .dtypes(dtypes::floating)
      .composite([](const Tensor& self) {
        auto patches = [](const Tensor& x) { return unfold(unfold(x, -2, 2, 1), -2, 2, 1); };
        return mul(patches(exp(self)), patches(self));
      })
      .samples({"self[3, 4]", "self[2, 3, 3]"});
  define("diagonal_energy(Tensor self) -> Tensor")
      .doc("Squares of every (columns + 1)-th element of a matrix's memory.")
      .dtypes(dtypes::floating)
      .composite([](const Tensor& self) {
        SymInt n = self.size(1);
        return square(as_strided(mul(self, 2), {self.size(0)}, {n + SymInt(1)}));
      })
      .samples({"self[3, 4]", "self[2, 5]"});
}

extern "C" void define_added_operators() { define_late(catalog::define_added); }
