// Helpers of the families random, random_fill and random_gamma.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>

#include "facula/autograd/autograd.h"
#include "facula/catalog/elements.h"
#include "facula/catalog/no_derivative.h"
#include "facula/catalog/sizes.h"
#include "facula/catalog/torch_random.h"
#include "facula/op/call.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/op/registry.h"
#include "facula/ops.h"
#include "facula/sym/run_time.h"
#include "facula/tensor/promotion.h"

namespace facula::catalog::random_helpers {

using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

// Word `word` of `words` for this element, uniform in [0, 2^32), as Int64.
inline Expr random_word(const LoopCall& c, int64_t word, int64_t words) {
  Expr counter = c.load("state", {integer(1)}) + position() * Scalar(words) + Scalar(word);
  return loop::random(c.load("state", {integer(0)}), counter);
}
// Uniform in [0, 1) with as many bits as the dtype holds: 24 for float32, 53 for float64.
inline Expr uniform(const LoopCall& c, DType t, int64_t word, int64_t words) {
  if (t == DType::Float64) {
    Expr high = shr(random_word(c, word, words), Scalar(int64_t(5))),
         low = shr(random_word(c, word + 1, words), Scalar(int64_t(6)));
    return (cast(high, t) * 67108864.0 + cast(low, t)) * (1.0 / 9007199254740992.0);
  }
  return cast(shr(random_word(c, word, words), Scalar(int64_t(8))), t) * (1.0 / 16777216.0);
}
// The largest number of a floating dtype that is less than x.
inline double next_lower(double x, DType t) {
  int digits = t == DType::Float64 ? 53 : t == DType::Float32 ? 24 : t == DType::Float16 ? 11 : 8, exponent;
  if (t == DType::Float64) return std::nextafter(x, -std::numeric_limits<double>::infinity());
  bool power = std::frexp(x, &exponent) == 0.5;  // numbers below a power of two are closer
  int least = t == DType::Float16 ? -24 : -126 - (digits - 1);
  double step = std::ldexp(1.0, std::max(exponent - digits - power, least));
  return (std::ceil(x / step) - 1) * step;
}
inline Tensor numbers(SymInt n, std::optional<Generator*> g) { return _rng_take(n, g ? *g : nullptr); }
// Random words that a number below `range` (0: 2^64) is made of.
inline int64_t words_of(uint64_t range) {
  return range - 1 < 1ull << 16 ? 1 : range - 1 < 1ull << 32 ? 2 : 4;
}
inline Tensor integers(SymSpan size, int64_t low, uint64_t range, DType t, std::optional<Generator*> g) {
  if (torch_random::is_used())
    return torch_random::integers(size, Scalar(low), Scalar(int64_t(range)), t, g ? *g : nullptr);
  int64_t words = words_of(range);
  return _randint(numbers(product(size) * SymInt(words), g), size, Scalar(low), Scalar(int64_t(range)), words,
                  t);
}
// A bound of whole numbers: any of 64 bits, where sizes end at 2^61.
inline int64_t integral_bound(const char* name, Scalar bound) {
  type_check(bound.category() == Category::integral, name) << "bounds must be whole numbers, got " << bound;
  value_check(!bound.is_beyond_int64(), name) << "bounds must be below 2^63, got " << bound;
  return bound.to_int();
}
// The whole numbers in the range of dtype t, exact or not.
inline std::pair<int64_t, int64_t> limits(DType t) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  if (t == DType::Float16) return {-65504, 65504};
  if (t == DType::Bool) return {0, 1};
  if (is_floating(t)) return {-kMost - 1, kMost};
  bool negative = t != DType::UInt8;
  auto most = int64_t((uint64_t(1) << (8 * itemsize(t) - negative)) - 1);
  return {negative ? -most - 1 : 0, most};
}
inline bool holds(DType t, int64_t x) {
  auto [least, most] = limits(t);
  return least <= x && x <= most;
}
inline bool holds(DType t, SymInt x) {  // sizes are smaller than 2^60
  constexpr int64_t kMost = int64_t(1) << 60;
  auto [least, most] = limits(t);
  return sym::may_be_at_most(std::max(least, -kMost), x) && sym::may_be_at_most(x, std::min(most, kMost));
}
inline bool is_less(int64_t a, int64_t b) { return a < b; }
inline bool is_less(SymInt a, SymInt b) { return sym::may_be_less(a, b); }
// Checks the bounds of randint, which are numbers or sizes of a traced function.
template <class N>
void check_bounds(N from, N to, DType t) {
  runtime_check(is_less(from, to), "randint")
      << "expects 'from' to be less than 'to', got " << from << " >= " << to;
  runtime_check(!is_complex(t), "randint") << "gives integers, truth values or floating numbers, not " << t;
  N last = to - N(int64_t(1));
  runtime_check(holds(t, from) && holds(t, last), "randint")
      << "numbers from " << from << " to " << last << " are out of bounds for " << t;
}
inline constexpr double kRejected = -1;  // a proposal that is none; no proposal that is accepted equals it
// propose(state, parameters...) of flat parameters, until nothing is kRejected.
template <class F>
Tensor drawn(std::vector<Tensor> parameters, int64_t words, std::optional<Generator*> g, F&& propose) {
  Dims sizes(parameters[0].sizes());
  for (Tensor& p : parameters) p = reshape(p, Sizes{int64_t(-1)});
  auto once = [&](const std::vector<Tensor>& of) {
    return propose(numbers(of[0].numel() * SymInt(words), g), of);
  };
  Tensor result = once(parameters);
  for (;;) {
    Tensor left = squeeze(nonzero(eq(result, kRejected)), 1);
    if (left.size(0).guard_int() == 0) return reshape(result, sizes);
    std::vector<Tensor> of;
    for (const Tensor& p : parameters) of.push_back(index_select(p, 0, left));
    result = index_copy(result, 0, left, once(of));
  }
}
inline Dims both(const char* name, const Tensor& a, const Tensor& b) {
  return broadcast_sizes(name, std::vector<SymSpan>{a.sizes(), b.sizes()});
}
inline bool true_everywhere(const Tensor& t) { return !catalog::has_elements(t) || all(t).item().to_bool(); }

}  // namespace facula::catalog::random_helpers
