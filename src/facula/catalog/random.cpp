// Random numbers. `_rng_take` draws a piece of a generator's sequence; everything else is a function of that
// piece, so it fuses, and is recomputed rather than saved.
#include <algorithm>

#include "facula/autograd/autograd.h"
#include "facula/catalog/no_derivative.h"
#include "facula/catalog/random_helpers.h"
#include "facula/catalog/sizes.h"
#include "facula/op/call.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/op/registry.h"
#include "facula/ops.h"
#include "facula/sym/run_time.h"
#include "facula/tensor/promotion.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;
using namespace facula::catalog::random_helpers;

namespace {
// floor(range * u) with u uniform in [0, 1) of 32 * words bits. `range` is unsigned, 0 for 2^64. One word serves ranges up to
// 2^16 and two up to 2^32, so that probabilities differ by at most 2^-16 of their value, which no sample of fewer than 2^32
// numbers can detect.
Expr scaled_word(const LoopCall& c, Expr range, int words) {
  Expr half = constant(int64_t(0xffffffff), DType::Int64), bits = constant(int64_t(32), DType::Int64);
  auto low = [&](Expr x) { return x & half; };
  auto high = [&](Expr x) { return shr(x, bits) & half; };
  auto word = [&](int k) { return random_word(c, k, words); };
  if (words == 1) return high(range * word(0));
  if (words == 2) return high(range * word(1) + high(range * word(0)));
  // [r1, r0] * [w3, w2, w1, w0] in digits of 32 bits; no sum exceeds 64 bits. The result is the digits above w3.
  Expr r0 = low(range), r1 = high(range), carry = high(r0 * word(0));
  Expr digits[4];
  for (int k = 1; k < 4; ++k) {
    Expr sum = r0 * word(k) + carry;
    digits[k] = low(sum);
    carry = high(sum);
  }
  Expr top = carry;
  carry = constant(int64_t(0), DType::Int64);
  for (int k = 0; k < 3; ++k) carry = high(r1 * word(k) + digits[k + 1] + carry);
  Expr scaled = r1 * word(3) + top + carry, all = shl(word(1), bits) | word(0);
  return select(eq(range, constant(int64_t(0), DType::Int64)), all, scaled);
}
int64_t words_for(DType t) { return t == DType::Float64 || t == DType::Complex128 ? 2 : 1; }
// make(sizes), laid out as PyTorch lays out what is "like" self: in the order of memory_format= if one is given,
// else a dense tensor's strides are kept.
template <class F>
Tensor laid_like(const Call& c, const Tensor& self, F&& make) {
  auto format = c.has("memory_format") ? c["memory_format"].format : MemoryFormat::preserve;
  if (format != MemoryFormat::preserve) return contiguous(make(self.sizes()), format);
  Dims strides = dense_strides_like(self.sizes(), std::span(&self, 1));
  Ints order, back(size_t(self.dim()));
  for (int d = 0; d < self.dim(); ++d) order.push_back(d);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return strides[size_t(a)].hint() > strides[size_t(b)].hint();
  });
  if (std::is_sorted(order.begin(), order.end())) return make(self.sizes());
  Dims sizes, inverse(order.size());
  for (size_t k = 0; k < order.size(); ++k) {
    sizes.push_back(self.size(int(order[k])));
    inverse[size_t(order[k])] = SymInt(int64_t(k));
  }
  Tensor drawn = make(sizes);
  return Mode::current() ? permute(drawn, inverse) : drawn.alias(self.sizes(), strides, drawn.offset());
}
// A bound of a traced function that is known only when its program runs.
std::optional<SymInt> known_later(const Value& v) {
  if (v.tag == Tag::tensor) return _of_length(Tensor(Ref<TensorImpl>::share(v.tensor))).size(0);
  return v.tag == Tag::integer && v.integer().is_symbolic() ? std::optional(v.integer()) : std::nullopt;
}
void check_sizes_as_bounds(const Call& c) {
  if (c["range"].tag != Tag::integer) return;
  SymInt low = c.integer("low");
  check_bounds(low, low + c.integer("range"), *c.maybe_dtype("dtype"));
}
// randint of the bounds `low` and `high`.
Tensor randint_between(const Call& c, const Value& low, const Value& high, SymSpan size, DType t) {
  const SymInt zero = int64_t(0), one = int64_t(1);
  auto* g = c.has("generator") ? c["generator"].generator : nullptr;
  auto from_later = known_later(low), to_later = known_later(high);
  if (from_later || to_later) {
    SymInt first = from_later ? *from_later : SymInt(integral_bound("randint", low.number())),
           range = (to_later ? *to_later : SymInt(integral_bound("randint", high.number()))) - first;
    if (catalog::torch_random::is_used()) return catalog::torch_random::integers(size, first, range, t, g);
    // The number of words, as words_of computes it for numbers; _randint reports ranges that do not fit.
    SymInt last = max(range - one, zero), more = min(last / SymInt(int64_t(1) << 16), one),
           most = min(last / SymInt(int64_t(1) << 32), one), words = one + more + most * SymInt(int64_t(2));
    Tensor state = numbers(product(size) * words, g);
    Value args[] = {state, size, first, range, words, t};
    return op::call(op::get("_randint"), args)[0];
  }
  int64_t from = integral_bound("randint", low.number()), to = integral_bound("randint", high.number());
  check_bounds(from, to, t);
  return integers(size, from, uint64_t(to) - uint64_t(from), t, g);
}
// The weights of multinomial in float64; checks that none is negative and each row has a positive one.
Tensor weights_of(const Tensor& self) {
  Tensor weights = to_dtype(detach(self), DType::Float64);
  runtime_check(true_everywhere(logical_and(isfinite(weights), ge(weights, 0))), "multinomial")
      << "probability tensor contains either `inf`, `nan` or element < 0";
  runtime_check(true_everywhere(gt(sum(weights, Sizes{int64_t(-1)}), 0)), "multinomial")
      << "invalid multinomial distribution (sum of probabilities <= 0)";
  return weights;
}
DType float_or_default(std::optional<DType> t) { return t.value_or(default_dtype()); }
}  // namespace

FACULA_FAMILY(random) {
  define("_rng_take(SymInt n, Generator? generator=None) -> Tensor")
      .doc("Seed and first counter of the next n numbers of the generator, as int64[2].")
      .bind(hidden)
      .draws()
      .result(ResultType::int64)
      .shape([](const Call&) { return Dims{SymInt(int64_t(2))}; })
      .library("rng_take")
      .samples({"n=5"});
  define("_uniform(Tensor state, SymInt[] size, dtype dtype) -> Tensor")
      .doc("Uniform numbers in [0, 1).")
      .bind(hidden)
      .non_differentiable("the operand is the state of a generator")
      .result([](const Call& c) { return std::vector<DType>{*c.maybe_dtype("dtype")}; })
      .shape(catalog::checked_size)
      .loop([](const LoopCall& c, Index) {
        DType own = *c.maybe_dtype("dtype"), t = compute_type(own);
        Expr u = uniform(c, t, 0, words_for(t));
        return own == t ? u : min(u, next_lower(1, own));  // which would be rounded to 1
      })
      .samples({"state<9>[2], size=[3, 4], dtype=float32", "state<9>[2], size=[3], dtype=float64"});
  define("_normal(Tensor state, SymInt[] size, dtype dtype) -> Tensor")
      .doc("Standard normal numbers, by the transform of Box and Muller, 1958.")
      .bind(hidden)
      .non_differentiable("the operand is the state of a generator")
      .result([](const Call& c) { return std::vector<DType>{*c.maybe_dtype("dtype")}; })
      .shape(catalog::checked_size)
      .loop([](const LoopCall& c, Index) {
        DType t = compute_type(*c.maybe_dtype("dtype")), part = is_complex(t) ? real_of(t) : t;
        int64_t w = words_for(t);
        Expr u = 1.0 - uniform(c, part, 0, 2 * w), v = uniform(c, part, w, 2 * w);  // u in (0, 1]
        // A complex number takes both results of the Box-Muller transform, with variance 1/2 each.
        if (is_complex(t)) {
          Expr r = sqrt(-log(u)), angle = 6.283185307179586 * v;
          return cast(r * cos(angle), t) + cast(r * sin(angle), t) * Scalar(std::complex<double>(0, 1));
        }
        return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
      })
      .samples({"state<9>[2], size=[3, 4], dtype=float32", "state<9>[2], size=[3], dtype=float64",
                "state<9>[2], size=[3], dtype=complex64"});
  define("_randint(Tensor state, SymInt[] size, Scalar low, Scalar range, int words, dtype dtype) -> Tensor")
      .doc(
          "Uniform integers from low on, below low + range, a number without sign (0: 2^64); each is made of `words` random words of 32 bits.")
      .bind(hidden)
      .non_differentiable("the operand is the state of a generator")
      .check(check_sizes_as_bounds)
      .result([](const Call& c) { return std::vector<DType>{*c.maybe_dtype("dtype")}; })
      .shape(catalog::checked_size)
      .loop([](const LoopCall& c, Index) {
        Expr low = c.scalar("low", DType::Int64), range = c.scalar("range", DType::Int64);
        return cast(low + scaled_word(c, range, int(c.integer("words").guard_int())),
                    compute_type(*c.maybe_dtype("dtype")));
      })
      .samples({"state<9>[2], size=[3, 4], low=2, range=7, words=1, dtype=int64",
                "state<9>[2], size=[5], low=-2, range=4000000000, words=2, dtype=int64",
                "state<9>[2], size=[5], low=0, range=4611686018427387904, words=4, dtype=int64"});
  define("_randperm(Tensor state, SymInt n) -> Tensor")
      .doc("A random permutation of 0 .. n - 1 by the shuffle of Durstenfeld, 1964.")
      .bind(hidden)
      .draws()
      .non_differentiable("the operand is the state of a generator")
      .shape([](const Call& c) { return Dims{c.integer("n")}; })
      .library("randperm")
      .samples({"state<9>[2], n=7", "state<9>[2], n=0"});
  define(
      "rand(SymInt[] size, *, Generator? generator=None, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor")
      .doc("Uniform numbers in [0, 1).")
      .bind(function)
      .draws()
      .procedure([](const Call& c, SymSpan size, std::optional<Generator*> g) {
        DType t = float_or_default(c.maybe_dtype("dtype"));
        supported_check(is_differentiable(t) && !is_float8(t), "rand")
            << "uniform numbers are floating point, but the dtype is " << t
            << hint("randint(low, high, size) gives whole ones");
        if (is_complex(t)) {
          Dims parts(size);
          parts.push_back(SymInt(int64_t(2)));
          return view_as_complex(rand(parts, g ? *g : nullptr, real_of(t)));
        }
        if (torch_random::is_used()) {
          Tensor u = torch_random::uniform(size, t, 0, 1, g ? *g : nullptr);
          return itemsize(t) == 2 ? clamp_max(u, Scalar(next_lower(1, t)))
                                  : u;  // which may have been rounded to 1
        }
        return _uniform(numbers(product(size) * SymInt(words_for(t)), g), size, t);
      })
      .samples({"size=[3, 4]", "size=[]", "size=[0]"});
  define(
      "randn(SymInt[] size, *, Generator? generator=None, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor")
      .doc("Standard normal numbers.")
      .bind(function)
      .draws()
      .procedure([](const Call& c, SymSpan size, std::optional<Generator*> g) {
        DType t = float_or_default(c.maybe_dtype("dtype"));
        supported_check(is_differentiable(t) && !is_float8(t), "randn")
            << "normal numbers are floating point, but the dtype is " << t;
        if (torch_random::is_used()) {
          if (!is_complex(t)) return torch_random::normal(size, t, 0, 1, g ? *g : nullptr);
          Dims parts(size);
          parts.push_back(SymInt(int64_t(2)));
          return view_as_complex(
              torch_random::normal(parts, real_of(t), 0, std::sqrt(0.5), g ? *g : nullptr));
        }
        return _normal(numbers(product(size) * SymInt(2 * words_for(t)), g), size, t);
      })
      .samples({"size=[3, 4]", "size=[]", "size=[0]"});
  define(
      "randint(Scalar low, Scalar high, SymInt[] size, *, Generator? generator=None, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor")
      .doc("Uniform integers in [low, high).")
      .bind(function)
      .draws()
      .procedure([](const Call& c) {
        DType t = c.maybe_dtype("dtype").value_or(DType::Int64);
        return randint_between(c, c["low"], c["high"], c.ints("size"), t);
      })
      .samples({"low=2, high=9, size=[3, 4]"});
  define(
      "randint.high(Scalar high, SymInt[] size, *, Generator? generator=None, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor")
      .doc("Uniform integers in [0, high).")
      .bind(function)
      .draws()
      .procedure([](const Call& c) {
        DType t = c.maybe_dtype("dtype").value_or(DType::Int64);
        return randint_between(c, Scalar(int64_t(0)), c["high"], c.ints("size"), t);
      })
      .samples({"high=9, size=[3, 4]"});
  define(
      "rand_like(Tensor self, *, dtype? dtype=None, Device? device=None, bool requires_grad=False, MemoryFormat? memory_format=None) -> Tensor")
      .doc("Uniform numbers in [0, 1), shaped like self.")
      .bind(function)
      .draws()
      .non_differentiable("the numbers depend on the shape of self alone")
      .in_place()
      .procedure([](const Call& c, const Tensor& self) {
        DType t = c.maybe_dtype("dtype").value_or(self.dtype());
        return laid_like(c, self, [&](SymSpan sizes) { return rand(sizes, nullptr, t); });
      })
      .samples({"self[3, 4]"});
  define(
      "randn_like(Tensor self, *, dtype? dtype=None, Device? device=None, bool requires_grad=False, MemoryFormat? memory_format=None) -> Tensor")
      .doc("Standard normal numbers, shaped like self.")
      .bind(function)
      .draws()
      .non_differentiable("the numbers depend on the shape of self alone")
      .in_place()
      .procedure([](const Call& c, const Tensor& self) {
        DType t = c.maybe_dtype("dtype").value_or(self.dtype());
        return laid_like(c, self, [&](SymSpan sizes) { return randn(sizes, nullptr, t); });
      })
      .samples({"self[3, 4]"});
  define(
      "randint_like(Tensor self, Scalar low, Scalar high, *, Generator? generator=None, dtype? dtype=None, Device? device=None, bool requires_grad=False, MemoryFormat? memory_format=None) -> Tensor")
      .doc("Uniform integers in [low, high), shaped like self and, unless told otherwise, of its dtype.")
      .bind(function)
      .draws()
      .non_differentiable("the numbers depend on the shape of self alone")
      .in_place()
      .procedure([](const Call& c) {
        Tensor self = c.tensor("self");
        DType t = c.maybe_dtype("dtype").value_or(self.dtype());
        return laid_like(c, self,
                         [&](SymSpan sizes) { return randint_between(c, c["low"], c["high"], sizes, t); });
      })
      .samples({"self[3, 4], low=2, high=9"});
  define(
      "randint_like.high(Tensor self, Scalar high, *, Generator? generator=None, dtype? dtype=None, Device? device=None, bool requires_grad=False, MemoryFormat? memory_format=None) -> Tensor")
      .doc("Uniform integers in [0, high), shaped like self and, unless told otherwise, of its dtype.")
      .bind(function)
      .draws()
      .non_differentiable("the numbers depend on the shape of self alone")
      .in_place()
      .procedure([](const Call& c) {
        Tensor self = c.tensor("self");
        DType t = c.maybe_dtype("dtype").value_or(self.dtype());
        return laid_like(c, self, [&](SymSpan sizes) {
          return randint_between(c, Scalar(int64_t(0)), c["high"], sizes, t);
        });
      })
      .samples({"self[3, 4], high=9"});
  define(
      "randperm(SymInt n, *, Generator? generator=None, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor")
      .doc("A random permutation of 0 .. n - 1.")
      .bind(function)
      .draws()
      .procedure([](const Call& c, SymInt n, std::optional<Generator*> g) {
        runtime_check(!(n < SymInt(int64_t(0))), "randperm") << "n must be non-negative, got " << n;
        DType t = c.maybe_dtype("dtype").value_or(DType::Int64);
        supported_check((is_integral(t) || is_floating(t)) && !is_limited(t), "randperm")
            << "not implemented for '" << t << "'";
        runtime_check(!is_integral(t) || !overflows(Scalar(n.hint()), t), "randperm")
            << "the numbers below " << n << " do not fit " << t;
        Tensor order = torch_random::is_used() ? torch_random::permutation(n, g ? *g : nullptr)
                                               : _randperm(numbers(n * SymInt(int64_t(2)), g), n);
        return t == order.dtype() ? order : to_dtype(order, t);
      })
      .samples({"n=7", "n=0"});
  define("bernoulli(Tensor self, *, Generator? generator=None) -> Tensor")
      .doc("1 with probability self, else 0.")
      .draws()
      .dtypes(d::floating)
      .non_differentiable("draws do not move with their probability: PyTorch's gradient is zero")
      .reads_data()
      .procedure([](const Tensor& self, std::optional<Generator*> g) {
        DType t = compute_type(self.dtype());
        supported_check(is_floating(t), "bernoulli") << "not implemented for '" << self.dtype() << "'"
                                                     << hint("it takes probabilities: x.float() converts");
        // False for NaN.
        bool valid = true_everywhere(logical_and(ge(self, Scalar(0.0)), le(self, Scalar(1.0))));
        runtime_check(valid, "bernoulli")
            << "expects probabilities between 0 and 1, but some are not" << hint("x.sigmoid() are");
        return to_dtype(lt(rand(self.sizes(), g ? *g : nullptr, t), self), self.dtype());
      })
      .samples({"self[3, 4](0, 1)"});
  define(
      "multinomial(Tensor self, SymInt num_samples, bool replacement=False, *, Generator? generator=None) -> Tensor")
      .doc(
          "Indices picked in proportion to the weights [n] or [rows, n].  Without replacement: Efraimidis and Spirakis, 2006.")
      .exact_out()
      .draws()
      .reads_data()
      .non_differentiable("the results are positions")
      .procedure([](const Tensor& self, SymInt num_samples, bool replacement, std::optional<Generator*> g) {
        runtime_check(self.dim() == 1 || self.dim() == 2, "multinomial")
            << "prob_dist must be 1 or 2 dim, got shape " << to_string(self.sizes());
        runtime_check(is_floating(self.dtype()), "multinomial")
            << "only supports floating-point dtypes for input, got: " << self.dtype();
        runtime_check(num_samples > SymInt(int64_t(0)), "multinomial")
            << "cannot sample n_sample <= 0 samples, got " << num_samples;
        SymInt n = self.size(-1);
        runtime_check(replacement || !(num_samples > n), "multinomial")
            << "cannot sample n_sample > prob_dist.size(-1) samples without replacement: " << num_samples
            << " of " << n;
        Tensor weights = weights_of(self);
        Dims drawn(self.sizes());
        if (replacement) {
          drawn.back() = num_samples;
          SymInt last = n - SymInt(int64_t(1));
          Tensor sums = cumsum(weights, -1), total = narrow(sums, -1, last, int64_t(1));
          Tensor u = mul(rand(drawn, g ? *g : nullptr, DType::Float64), total);
          return searchsorted(narrow(sums, -1, int64_t(0), last), u, false, true);
        }
        // The earliest of arrivals at these rates come as picks do.
        Tensor u = rand(drawn, g ? *g : nullptr, DType::Float64);
        Tensor arrivals = div(neg(log(rsub(u, 1))), weights);
        return contiguous(narrow(argsort(arrivals, -1), -1, int64_t(0), num_samples));
      })
      .samples({"self[3, 4](0.1, 1), num_samples=2", "self[4](0.1, 1), num_samples=6, replacement=True"});
  define("bernoulli.p(Tensor self, float p, *, Generator? generator=None) -> Tensor")
      .doc("1 with probability p, else 0, shaped like self.")
      .draws()
      .procedure([](const Tensor& self, double p, std::optional<Generator*> g) {
        return catalog::without_derivative(bernoulli_(empty_like(self), p, g ? *g : nullptr), {self},
                                           "aten::bernoulli");
      })
      .samples({"self[3, 4], p=0.5"});
}
