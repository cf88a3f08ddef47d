#include "facula/catalog/torch_random.h"

#include <atomic>

#include "facula/catalog/random_helpers.h"
#include "facula/catalog/sizes.h"
#include "facula/op/call.h"
#include "facula/op/operator.h"
#include "facula/op/registry.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::op;

namespace facula::catalog::torch_random {

namespace {

std::atomic<bool> in_use{false};

// Numbers of 16 bits are rounded from float32.
DType drawn_dtype(DType t) { return t == DType::Float64 ? t : DType::Float32; }
Tensor drawn(SymSpan size, const char* distribution, const Value& first, const Value& second, DType t,
             Generator* g, const Tensor& parameter = {}) {
  Value args[] = {size, distribution, first, second, t, parameter, g};
  return op::call(op::get("_torch_random"), args)[0];
}
Tensor in_dtype(const Tensor& y, DType t) { return t == y.dtype() ? y : to_dtype(y, t); }

}  // namespace

void use(bool on) { in_use = on; }

bool is_used() {
  if (!in_use || default_device().type != DeviceType::cpu) return false;
  auto* mode = Mode::current();
  return !mode || mode->records();
}

Tensor uniform(SymSpan size, DType t, double from, double to, Generator* g) {
  return in_dtype(drawn(size, "uniform", from, to, drawn_dtype(t), g), t);
}

Tensor normal(SymSpan size, DType t, double mean, double std, Generator* g) {
  return in_dtype(drawn(size, "normal", mean, std, drawn_dtype(t), g), t);
}

Tensor integers(SymSpan size, const Value& low, const Value& range, DType t, Generator* g,
                const char* distribution) {
  return drawn(size, distribution, low, range, t, g);
}

Tensor permutation(SymInt n, Generator* g) { return drawn({&n, 1}, "permutation", 0, 0, DType::Int64, g); }

Tensor log_gamma(const Tensor& concentration, Generator* g) {
  return drawn(concentration.sizes(), "log_gamma", 0, 0, DType::Float64, g, concentration);
}

}  // namespace facula::catalog::torch_random

FACULA_FAMILY(torch_random) {
  define(
      "_torch_random(SymInt[] size, str distribution, Scalar first, Scalar second, dtype dtype, Tensor? parameter=None, Generator? generator=None) -> Tensor")
      .doc(
          "Numbers of PyTorch's generator. `distribution` is uniform (in [first, second], of float32 or float64), normal (mean `first`, deviation `second`, of these dtypes), integers "
          "(from first on, below first + second, a number without sign, 0: 2^64), words or long_words (integers that take one word of 32 bits or two, whatever their range is), permutation "
          "(of 0 .. size[0] - 1), or log_gamma (logarithms of numbers with the concentrations `parameter`).")
      .bind(hidden)
      .draws()
      .non_differentiable("the numbers are recorded by rules of their own")
      .check([](const Call& c) {
        bool are_sizes = c.str("distribution") == "integers" && c["second"].tag == Tag::integer;
        if (!are_sizes) return;  // of a traced function
        SymInt low = c.integer("first");
        catalog::random_helpers::check_bounds(low, low + c.integer("second"), *c.maybe_dtype("dtype"));
      })
      .result([](const Call& c) { return std::vector<DType>{*c.maybe_dtype("dtype")}; })
      .shape(catalog::checked_size)
      .library("torch_random")
      .samples(
          {"size=[3, 4], distribution='uniform', first=1.0, second=2.0, dtype=float32",
           "size=[3, 7], distribution='normal', first=1.0, second=2.0, dtype=float64",
           "size=[3, 4], distribution='integers', first=2, second=7, dtype=int64",
           "size=[7], distribution='permutation', first=0, second=0, dtype=int64",
           "size=[2], distribution='log_gamma', first=0, second=0, dtype=float64, parameter[2](0.1, 5)"});
}
