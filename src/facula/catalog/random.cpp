// Random numbers. `_rng_take` draws a piece of a generator's sequence; everything else is a function of that
// piece, so it fuses, and is recomputed rather than saved.
#include <algorithm>
#include <cmath>
#include <limits>

#include "facula/autograd/autograd.h"
#include "facula/catalog/elements.h"
#include "facula/catalog/no_derivative.h"
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

namespace {

// Word `word` of `words` for this element, uniform in [0, 2^32), as Int64.
Expr random_word(const LoopCall& c, int64_t word, int64_t words) {
  Expr counter = c.load("state", {integer(1)}) + position() * Scalar(words) + Scalar(word);
  return loop::random(c.load("state", {integer(0)}), counter);
}
// Uniform in [0, 1) with as many bits as the dtype holds: 24 for float32, 53 for float64.
Expr uniform(const LoopCall& c, DType t, int64_t word, int64_t words) {
  if (t == DType::Float64) {
    Expr high = shr(random_word(c, word, words), Scalar(int64_t(5))),
         low = shr(random_word(c, word + 1, words), Scalar(int64_t(6)));
    return (cast(high, t) * 67108864.0 + cast(low, t)) * (1.0 / 9007199254740992.0);
  }
  return cast(shr(random_word(c, word, words), Scalar(int64_t(8))), t) * (1.0 / 16777216.0);
}
// The largest number of a floating dtype that is less than x.
double below(double x, DType t) {
  int digits = t == DType::Float64 ? 53 : t == DType::Float32 ? 24 : t == DType::Float16 ? 11 : 8, exponent;
  if (t == DType::Float64) return std::nextafter(x, -std::numeric_limits<double>::infinity());
  bool power = std::frexp(x, &exponent) == 0.5;  // numbers below a power of two are closer
  int least = t == DType::Float16 ? -24 : -126 - (digits - 1);
  double step = std::ldexp(1.0, std::max(exponent - digits - power, least));
  return (std::ceil(x / step) - 1) * step;
}
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

Definer in_place_fill(const char* schema, const char* doc) {
  return std::move(define(schema).doc(doc).bind(method).draws().non_differentiable());
}

// Writes make(sizes) into a large tensor piece by piece, so that the intermediate values take the memory of one piece.
// The generator hands out numbers in blocks of four: pieces of a multiple of four elements get the same numbers as the
// whole. Where calls are recorded or differentiated, the tensor is filled by one call.
template <class F>
Tensor filled(const Tensor& self, F&& make) {
  constexpr int64_t kPiece = int64_t(1) << 18;
  bool plain = !Mode::current() && self.device().type == DeviceType::cpu && self.dim() > 0 &&
               !(autograd::grad_enabled() && self.requires_grad());
  if (!plain || self.numel().concrete() <= kPiece) return copy_(self, make(self.sizes()));
  Tensor rows_of_self = self.is_contiguous() ? view(self, Sizes{int64_t(-1)}) : self;
  int64_t rows = rows_of_self.size(0).concrete(), row = rows_of_self.numel().concrete() / rows;
  int64_t step = std::max(kPiece / row / 4 * 4, int64_t(4));
  for (int64_t at = 0; at < rows; at += step) {
    Tensor piece = narrow(rows_of_self, 0, at, std::min(step, rows - at));
    copy_(piece, make(piece.sizes()));
  }
  return self;
}

// make(uniform numbers in [0, 1) of float64), converted to self's dtype.
template <class F>
Tensor filled(const char* name, const Tensor& self, std::optional<Generator*> g, F&& make) {
  runtime_check(is_floating(self.dtype()), name)
      << "a continuous distribution needs a floating point dtype, but the dtype is " << self.dtype();
  return filled(self, [&](SymSpan sizes) { return make(rand(sizes, g ? *g : nullptr, DType::Float64)); });
}

Tensor numbers(SymInt n, std::optional<Generator*> g) { return _rng_take(n, g ? *g : nullptr); }

// Random words that a number below `range` (0: 2^64) is made of.
int64_t words_of(uint64_t range) { return range - 1 < 1ull << 16 ? 1 : range - 1 < 1ull << 32 ? 2 : 4; }
Tensor integers(SymSpan size, int64_t low, uint64_t range, DType t, std::optional<Generator*> g) {
  int64_t words = words_of(range);
  return _randint(numbers(product(size) * SymInt(words), g), size, Scalar(low), Scalar(int64_t(range)), words,
                  t);
}

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

// A bound of whole numbers: any of 64 bits, where sizes end at 2^61.
int64_t integral_bound(const char* name, Scalar bound) {
  type_check(bound.category() == Category::integral, name) << "bounds must be whole numbers, got " << bound;
  value_check(!bound.is_beyond_int64(), name) << "bounds must be below 2^63, got " << bound;
  return bound.to_int();
}
// The whole numbers in the range of dtype t, exact or not.
std::pair<int64_t, int64_t> limits(DType t) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  if (t == DType::Float16) return {-65504, 65504};
  if (t == DType::Bool) return {0, 1};
  if (is_floating(t)) return {-kMost - 1, kMost};
  bool negative = t != DType::UInt8;
  auto most = int64_t((uint64_t(1) << (8 * itemsize(t) - negative)) - 1);
  return {negative ? -most - 1 : 0, most};
}
// A bound of a traced function that is known only when its program runs.
std::optional<SymInt> known_later(const Value& v) {
  if (v.tag == Tag::tensor) return _of_length(Tensor(Ref<TensorImpl>::share(v.tensor))).size(0);
  return v.tag == Tag::integer && v.integer().is_symbolic() ? std::optional(v.integer()) : std::nullopt;
}
bool holds(DType t, int64_t x) {
  auto [least, most] = limits(t);
  return least <= x && x <= most;
}
bool holds(DType t, SymInt x) {  // sizes are smaller than 2^60
  constexpr int64_t kMost = int64_t(1) << 60;
  auto [least, most] = limits(t);
  return sym::may_be_at_most(std::max(least, -kMost), x) && sym::may_be_at_most(x, std::min(most, kMost));
}
bool is_less(int64_t a, int64_t b) { return a < b; }
bool is_less(SymInt a, SymInt b) { return sym::may_be_less(a, b); }
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

// random_: integers from `from` on, below `to` or up to the largest that the dtype holds exactly.
Tensor fill_integers(const Tensor& self, int64_t from, std::optional<int64_t> to,
                     std::optional<Generator*> g) {
  DType t = self.dtype();
  supported_check(!is_complex(t), "random_") << "not implemented for '" << t << "'";
  bool negative = t != DType::Bool && t != DType::UInt8;
  int64_t last = 0;
  if (to) {
    runtime_check(from < *to, "random_")
        << "expects 'from' to be less than 'to', but got from=" << from << " >= to=" << *to;
    last = *to - 1;
  } else if (is_floating(t)) {
    last = int64_t(1) << (t == DType::Float16    ? 11
                          : t == DType::BFloat16 ? 8
                          : t == DType::Float32  ? 24
                                                 : 53);
  } else {
    last = t == DType::Bool ? 1 : int64_t((uint64_t(1) << (8 * itemsize(t) - negative)) - 1);
  }
  runtime_check(holds(t, from), "random_") << "from=" << from << " is out of bounds for " << t;
  runtime_check(holds(t, last), "random_") << "to - 1 = " << last << " is out of bounds for " << t;
  runtime_check(from <= last, "random_") << "no number from " << from << " on is exact in " << t;
  uint64_t range = uint64_t(last) - uint64_t(from) + 1;
  return filled(self, [&](SymSpan sizes) { return integers(sizes, from, range, t, g); });
}

// ---- Numbers of distributions that are drawn by rejection. A proposal is a function of its words in float64; the
// few that are rejected are proposed again.

Expr wide(double v) { return constant(v, DType::Float64); }
Expr operand(const LoopCall& c, const char* name, const Index& i) {
  return cast(c.load(name, i), DType::Float64);
}
// log(k!) for k >= 0: Stirling's series, from 8 on after log(k! (k + 1) ... (k + 8)).
Expr log_factorial(Expr k) {
  Expr x = k + 1.0, shifted = x < 8.0, product = x;
  for (int j = 1; j < 8; ++j) product = product * (x + double(j));
  Expr y = select(shifted, x + 8.0, x), r = 1.0 / (y * y);
  Expr series = ((0.00079365079365079365 * r - 0.0027777777777777778) * r + 0.083333333333333333) / y;
  Expr log_gamma = (y - 0.5) * log(y) - y + 0.91893853320467274178 + series;
  return select(shifted, log_gamma - log(select(shifted, product, wide(1))), log_gamma);
}
// Inverts the distribution function of a distribution over 0, 1, ... with a mean below 10 at u. The probability of k is
// first * ratio(1) * ... * ratio(k); the probability of numbers beyond 64 is below 2^-53.
template <class F>
Expr inverted(Expr u, Expr first, F&& ratio) {
  Expr probability = first, sum = first, count = wide(0);
  for (int k = 1; k < 64; ++k) {
    count = count + select(u >= sum, wide(1), wide(0));
    probability = probability * ratio(double(k));
    sum = sum + probability;
  }
  return count;
}
constexpr double kRejected = -1;  // a proposal that is none; no proposal that is accepted equals it

// Transformed rejection (Hormann, 1993), for 10 and more on average: the number, or kRejected. `scale` is that of
// the hat; log_ratio(k) = log(p(k) * constant).
template <class F>
Expr transformed_rejection(Expr u, Expr v, Expr a, Expr b, Expr centre, Expr scale, Expr last,
                           F&& log_ratio) {
  Expr us = 0.5 - abs(u - 0.5), k = floor((2.0 * a / us + b) * (u - 0.5) + centre);
  Expr inside = (k >= 0.0) & (k <= last), at = select(inside, k, wide(0));
  Expr accepted = log(v * scale / (a / (us * us) + b)) <= log_ratio(at);
  return select(inside & accepted, at, wide(kRejected));
}

std::vector<DType> as_self(const Call& c) { return {c.dtype("self")}; }
Definer proposal(const char* schema, const char* doc) {
  return std::move(define(schema)
                       .doc(doc)
                       .bind(hidden)
                       .non_differentiable()
                       .undifferenced("draws have no gradient until they are accepted")
                       .shape([](const Call& c) { return Dims(c.sizes("self")); }));
}
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
// Positive and not NaN, as the proposals need it; what the others give does not come from them.
Expr usable(Expr x) { return select((x > 0.0) & (x < 1e300), x, wide(1)); }

Dims both(const char* name, const Tensor& a, const Tensor& b) {
  return broadcast_sizes(name, std::vector<SymSpan>{a.sizes(), b.sizes()});
}
void expect_floating(const Tensor& t, const char* name) {
  supported_check(is_floating(t.dtype()), name)
      << "not implemented for '" << t.dtype() << "'"
      << hint("it takes floating-point parameters: x.float() converts");
}

bool true_everywhere(const Tensor& t) { return !catalog::has_elements(t) || all(t).item().to_bool(); }
// The weights of multinomial in float64; checks that none is negative and each row has a positive one.
Tensor weights_of(const Tensor& self) {
  Tensor weights = to_dtype(detach(self), DType::Float64);
  runtime_check(true_everywhere(logical_and(isfinite(weights), ge(weights, 0))), "multinomial")
      << "probability tensor contains either `inf`, `nan` or element < 0";
  runtime_check(true_everywhere(gt(sum(weights, Sizes{int64_t(-1)}), 0)), "multinomial")
      << "invalid multinomial distribution (sum of probabilities <= 0)";
  return weights;
}
void check_deviation(double std) {
  runtime_check(std >= 0, "normal") << "expects std >= 0.0, but found std " << std;
}
Tensor noise(const Tensor& like, SymSpan sizes, std::optional<Generator*> g) {
  return randn(sizes, g ? *g : nullptr, like.dtype());
}
Tensor normal_around(const Tensor& mean, const Tensor& std, std::optional<Generator*> g) {
  runtime_check(!is_complex(std.dtype()), "normal") << "expects standard deviation to be non-complex";
  runtime_check(true_everywhere(ge(std, 0)), "normal") << "expects all elements of std >= 0.0";
  return _normal_around(noise(mean.dim() ? mean : std, both("normal", mean, std), g), mean, std);
}

DType float_or_default(std::optional<DType> t) { return t.value_or(default_dtype()); }

}  // namespace

FACULA_FAMILY(random) {
  define("_rng_take(SymInt n, Generator? generator=None) -> Tensor")
      .doc("Seed and first counter of the next n numbers of the generator, as int64[2].")
      .bind(hidden)
      .draws()
      .non_differentiable()
      .result(ResultType::int64)
      .shape([](const Call&) { return Dims{SymInt(int64_t(2))}; })
      .library("rng_take")
      .samples({"n=5"});
  define("_uniform(Tensor state, SymInt[] size, dtype dtype) -> Tensor")
      .doc("Uniform numbers in [0, 1).")
      .bind(hidden)
      .non_differentiable()
      .result([](const Call& c) { return std::vector<DType>{*c.maybe_dtype("dtype")}; })
      .shape(catalog::checked_size)
      .loop([](const LoopCall& c, Index) {
        DType own = *c.maybe_dtype("dtype"), t = compute_type(own);
        Expr u = uniform(c, t, 0, words_for(t));
        return own == t ? u : min(u, below(1, own));  // which would be rounded to 1
      })
      .samples({"state<9>[2], size=[3, 4], dtype=float32", "state<9>[2], size=[3], dtype=float64"});
  define("_normal(Tensor state, SymInt[] size, dtype dtype) -> Tensor")
      .doc("Standard normal numbers, by the transform of Box and Muller, 1958.")
      .bind(hidden)
      .non_differentiable()
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
      .non_differentiable()
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
      .non_differentiable()
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
      .undifferenced("draws take nothing but the shape of self")
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
      .undifferenced("draws take nothing but the shape of self")
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
      .undifferenced("draws take nothing but the shape of self")
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
      .undifferenced("draws take nothing but the shape of self")
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
        Tensor order = _randperm(numbers(n * SymInt(int64_t(2)), g), n);
        return t == order.dtype() ? order : to_dtype(order, t);
      })
      .samples({"n=7", "n=0"});
  define("bernoulli(Tensor self, *, Generator? generator=None) -> Tensor")
      .doc("1 with probability self, else 0.")
      .draws()
      .dtypes(d::floating)
      .non_differentiable()
      .undifferenced("draws do not move with their probability: PyTorch's gradient is zero")
      .reads_data()
      .procedure([](const Tensor& self, std::optional<Generator*> g) {
        DType t = compute_type(self.dtype());
        supported_check(is_floating(t), "bernoulli") << "not implemented for '" << self.dtype() << "'"
                                                     << hint("it takes probabilities: x.float() converts");
        // False for NaN.
        bool valid = true_everywhere(logical_and(ge(self, Scalar(0.0)), le(self, Scalar(1.0))));
        runtime_check(valid, "bernoulli")
            << "expects probabilities between 0 and 1, but some are not" << hint("x.sigmoid() are");
        return to_dtype(lt(_uniform(numbers(self.numel() * SymInt(words_for(t)), g), self.sizes(), t), self),
                        self.dtype());
      })
      .samples({"self[3, 4](0, 1)"});
  define(
      "multinomial(Tensor self, SymInt num_samples, bool replacement=False, *, Generator? generator=None) -> Tensor")
      .doc(
          "Indices picked in proportion to the weights [n] or [rows, n].  Without replacement: Efraimidis and Spirakis, 2006.")
      .exact_out()
      .draws()
      .reads_data()
      .non_differentiable()
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
  in_place_fill(
      "uniform_(Tensor(a!) self, float from=0, float to=1, *, Generator? generator=None) -> Tensor(a!)",
      "Filled with uniform numbers in [from, to).")
      .procedure([](const Tensor& self, double from, double to, std::optional<Generator*> g) {
        DType t = self.dtype();
        for (double bound : {from, to, to - from})
          runtime_check(std::isfinite(bound) && !overflows(Scalar(bound), t), "uniform_")
              << "a range from " << from << " to " << to << " is out of bounds for " << t;
        runtime_check(from <= to, "uniform_")
            << "expects to return a [from, to) range, but found from=" << from << " > to=" << to;
        double most = std::max(from, below(to, is_complex(t) ? real_of(t) : t));
        return filled(self, [&](SymSpan sizes) {
          Tensor y = add(mul(rand(sizes, g ? *g : nullptr, compute_type(t)), to - from), from);
          return is_complex(t) || from == to ? y : clamp_max(y, Scalar(most));
        });
      })
      .samples({"self[3, 4], from=1.0, to=2.0"});
  in_place_fill(
      "normal_(Tensor(a!) self, float mean=0, float std=1, *, Generator? generator=None) -> Tensor(a!)",
      "Filled with normal numbers.")
      .procedure([](const Tensor& self, double mean, double std, std::optional<Generator*> g) {
        runtime_check(std >= 0, "normal_") << "expects std >= 0.0, but found std " << std;
        return filled(self, [&](SymSpan sizes) {
          return add(mul(randn(sizes, g ? *g : nullptr, compute_type(self.dtype())), std), mean);
        });
      })
      .samples({"self[3, 4], mean=1.0, std=2.0"});
  in_place_fill("random_(Tensor(a!) self, *, Generator? generator=None) -> Tensor(a!)",
                "Filled with integers from 0 to the largest that the dtype holds exactly.")
      .procedure(
          [](const Tensor& self, std::optional<Generator*> g) { return fill_integers(self, 0, {}, g); })
      .samples({"self[3, 4]"});
  in_place_fill("random_.to(Tensor(a!) self, Scalar to, *, Generator? generator=None) -> Tensor(a!)",
                "Filled with integers in [0, to).")
      .procedure([](const Tensor& self, Scalar to, std::optional<Generator*> g) {
        return fill_integers(self, 0, integral_bound("random_", to), g);
      })
      .samples({"self[3, 4], to=7"});
  in_place_fill(
      "random_.from(Tensor(a!) self, Scalar from, Scalar? to, *, Generator? generator=None) -> Tensor(a!)",
      "Filled with integers in [from, to), or from `from` to the largest that the dtype holds exactly.")
      .procedure([](const Tensor& self, Scalar from, std::optional<Scalar> to, std::optional<Generator*> g) {
        int64_t first = integral_bound("random_", from);
        return to ? fill_integers(self, first, integral_bound("random_", *to), g)
                  : fill_integers(self, first, {}, g);
      })
      .samples({"self[3, 4], from=2, to=7"});
  define("_normal_around(Tensor noise, Tensor mean, Tensor std) -> Tensor")
      .doc(
          "noise * std + mean. Its gradient is 0, as PyTorch's: numbers that were drawn do not move with these.")
      .bind(hidden)
      .pointwise([](Expr noise, Expr mean, Expr std) { return noise * std + mean; })
      // None, as PyTorch's, though they are zeros.
      .vjp([](const Vjp& v) {
        auto none = [&](const char* of) { return v.needs(of) ? zeros_like(v.grad()) : Tensor(); };
        return grads(Tensor(), none("mean"), none("std"));
      })
      .undifferenced("random numbers do not move with their mean")
      .samples({"noise[3, 4], mean[3, 4], std[4](0, 1)"});
  const char* drawn_around = "Normal numbers of the given means and deviations, one for each element.";
  define("normal.Tensor_Tensor(Tensor mean, Tensor std, *, Generator? generator=None) -> Tensor")
      .doc(drawn_around)
      .bind(function)
      .draws()
      .reads_data()
      .undifferenced("draws do not move with their distribution: PyTorch's gradient is zero")
      .procedure([](const Tensor& mean, const Tensor& std, std::optional<Generator*> g) {
        return normal_around(mean, std, g);
      })
      .samples({"mean[3, 1], std[4](0, 1)"});
  define("normal.Tensor_float(Tensor mean, float std=1, *, Generator? generator=None) -> Tensor")
      .doc(drawn_around)
      .bind(function)
      .draws()
      .undifferenced("draws do not move with their distribution: PyTorch's gradient is zero")
      .procedure([](const Tensor& mean, double std, std::optional<Generator*> g) {
        check_deviation(std);
        return _normal_around(noise(mean, mean.sizes(), g), mean, full(Dims{}, Scalar(std), mean.dtype()));
      })
      .samples({"mean[3, 4], std=0.5"});
  define("normal.float_Tensor(float mean, Tensor std, *, Generator? generator=None) -> Tensor")
      .doc(drawn_around)
      .bind(function)
      .draws()
      .reads_data()
      .undifferenced("draws do not move with their distribution: PyTorch's gradient is zero")
      .procedure([](double mean, const Tensor& std, std::optional<Generator*> g) {
        return normal_around(full(Dims{}, Scalar(mean), std.dtype()), std, g);
      })
      .samples({"mean=2.0, std[3](0, 1)"});
  define(
      "normal.float_float(float mean, float std, SymInt[] size, *, Generator? generator=None, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor")
      .doc("Normal numbers of one mean and deviation.")
      .bind(function)
      .draws()
      .procedure([](const Call& c, double mean, double std, SymSpan size, std::optional<Generator*> g) {
        check_deviation(std);
        return add(mul(randn(size, g ? *g : nullptr, c.maybe_dtype("dtype")), std), mean);
      })
      .samples({"mean=1.0, std=0.5, size=[3, 4]"});
  in_place_fill("bernoulli_(Tensor(a!) self, float p=0.5, *, Generator? generator=None) -> Tensor(a!)",
                "Filled with 1 (probability p) and 0.")
      .procedure([](const Tensor& self, double p, std::optional<Generator*> g) {
        runtime_check(p >= 0 && p <= 1, "bernoulli_") << "expects p to be in [0, 1], but got p=" << p;
        return filled(self,
                      [&](SymSpan sizes) { return lt(rand(sizes, g ? *g : nullptr, DType::Float32), p); });
      })
      .samples({"self[3, 4], p=0.25"});

  proposal("_log_gamma_proposal(Tensor state, Tensor self) -> Tensor",
           "Logarithm of a number of the gamma distribution with concentration self, or -1.")
      .result([](const Call&) { return std::vector<DType>{DType::Float64}; })
      .loop([](const LoopCall& c, Index i) {
        // Marsaglia and Tsang, 2000; below 1 from that of self + 1.
        Expr parameter = operand(c, "self", i), a = usable(parameter), small = a < 1.0;
        Expr shape = select(small, a + 1.0, a) - 1.0 / 3.0, scale = 1.0 / sqrt(9.0 * shape);
        auto u = [&](int k) { return uniform(c, DType::Float64, 2 * k, 8); };
        Expr x = sqrt(-2.0 * log(1.0 - u(0))) * cos(6.283185307179586 * u(1)), root = 1.0 + scale * x;
        Expr logarithm = 3.0 * log(select(root > 0.0, root, wide(1))), v = exp(logarithm);
        Expr bound = 0.5 * x * x + shape - shape * v + shape * logarithm;
        Expr accepted = (root > 0.0) & (log(1.0 - u(2)) < bound);
        Expr result = log(shape) + logarithm + select(small, log(1.0 - u(3)) / a, wide(0));
        Expr special = select(eq(parameter, wide(0)), -std::numeric_limits<double>::infinity(),
                              wide(std::numeric_limits<double>::quiet_NaN()));
        result = select(eq(result, wide(kRejected)), wide(std::nextafter(kRejected, 0)), result);
        return select(eq(a, parameter), select(accepted, result, wide(kRejected)), special);
      })
      .samples({"state<9>[2], self[3, 4](0.1, 5)"});
  proposal("_poisson_proposal(Tensor state, Tensor self) -> Tensor",
           "A number of the Poisson distribution with rate self, or -1.")
      .result(as_self)
      .loop([](const LoopCall& c, Index i) {
        Expr parameter = operand(c, "self", i), rate = usable(parameter),
             u = uniform(c, DType::Float64, 0, 4), v = 1.0 - uniform(c, DType::Float64, 2, 4);
        Expr low = min(rate, 10.0), high = max(rate, 10.0);
        Expr by_inversion = inverted(u, exp(-low), [&](double k) { return low / k; });
        Expr b = 0.931 + 2.53 * sqrt(high), a = 0.02483 * b - 0.059, scale = 1.1239 + 1.1328 / (b - 3.4);
        Expr many = transformed_rejection(u, v, a, b, high + 0.43, scale, wide(1e300),
                                          [&](Expr k) { return k * log(high) - high - log_factorial(k); });
        Expr result = select(rate < 10.0, by_inversion, many);
        Expr zero = select(eq(parameter, wide(0)), wide(0), wide(std::numeric_limits<double>::quiet_NaN()));
        return cast(select(eq(rate, parameter), result, zero), compute_type(c.dtype("self")));
      })
      .samples({"state<9>[2], self[3, 4](0.1, 5)"});
  proposal("_binomial_proposal(Tensor state, Tensor self, Tensor prob) -> Tensor",
           "Successes among `self` trials with probability `prob` each, or -1.")
      .result(as_self)
      .loop([](const LoopCall& c, Index i) {
        Expr parameter = operand(c, "self", i), chance = operand(c, "prob", i);
        Expr n = usable(floor(parameter)), flipped = chance > 0.5, p = select(flipped, 1.0 - chance, chance);
        p = select((p > 0.0) & (p <= 0.5), p, wide(0));
        Expr u = uniform(c, DType::Float64, 0, 4), v = 1.0 - uniform(c, DType::Float64, 2, 4);
        Expr is_small = n * p < 10.0;
        // Each side computes with numbers that it is made for.
        Expr m = select(is_small, n, wide(1)), q = select(is_small, p, wide(0)), r = q / (1.0 - q);
        Expr by_inversion =
            inverted(u, exp(m * log1p(-q)), [&](double k) { return max(m + 1.0 - k, 0.0) / k * r; });
        Expr size = select(is_small, wide(100), n), s = select(is_small, wide(0.5), p);
        Expr spread = sqrt(size * s * (1.0 - s)), b = 1.15 + 2.53 * spread,
             a = 0.0248 * b + 0.01 * s - 0.0873;
        Expr mode = floor((size + 1.0) * s), log_odds = log(s / (1.0 - s));
        Expr most = log_factorial(mode) + log_factorial(size - mode);
        Expr many =
            transformed_rejection(u, v, a, b, size * s + 0.5, (2.83 + 5.1 / b) * spread, size, [&](Expr k) {
              return most - log_factorial(k) - log_factorial(size - k) + (k - mode) * log_odds;
            });
        Expr successes = select(is_small, by_inversion, many);
        successes = select(flipped & (successes >= 0.0), n - successes, successes);
        Expr valid = (chance >= 0.0) & (chance <= 1.0);
        Expr none =
            select(eq(parameter, wide(0)) & valid, wide(0), wide(std::numeric_limits<double>::quiet_NaN()));
        return cast(select((parameter >= 1.0) & (parameter < 1e300) & valid, successes, none),
                    compute_type(c.dtype("self")));
      })
      .samples({"state<9>[2], self[3, 4](1, 50), prob[3, 4](0.1, 0.9)"});
  define("_log_gamma_slope(Tensor self, Tensor log_value, Tensor digamma) -> Tensor")
      .doc(
          "Derivative by the concentration `self` of the logarithm of a gamma distributed number at a fixed probability.  Figurnov et al., 2018.")
      .bind(hidden)
      .vjp(catalog::NoDerivative{"_standard_gamma_grad"})
      .dtypes(d::floating)
      .shape([](const Call& c) { return Dims(c.sizes("self")); })
      .loop([](const LoopCall& c, Index i) {
        Expr a = operand(c, "self", i), y = operand(c, "log_value", i), psi = operand(c, "digamma", i);
        // For numbers z = exp(y) below 1: the series of the distribution function.
        Expr z = exp(min(y, 0.0)), term = 1.0 / a, up = psi + 1.0 / a, series = wide(0);
        for (int n = 1; n < 15; ++n) {
          series = series + term * (up - min(y, 0.0));
          term = term * z / (a + double(n));
          up = up + 1.0 / (a + double(n));
        }
        // For others: the integral of density * (digamma - log) from 0 to z, or of its negative from z to infinity, whichever integrand
        // has one sign; over t = z exp(-+w), w = width * exp(u - exp(-u)), by the trapezoid rule.
        Expr large = max(y, 0.0);
        z = exp(large);
        Expr is_below = psi > large, side = select(is_below, wide(1), wide(-1)),
             fall = max((a - z) * side, 0.0);
        Expr width = 2.0 / (fall + sqrt(fall * fall + 2.0 * z));
        width = select(is_below, width, log1p(width));
        constexpr double kFirst = -3.3, kStep = 6.9 / 47;
        Expr integral = reduce(c, monoid::sum, {SymInt(int64_t(48))}, [&](Index k) {
          Expr u = cast(k[0], DType::Float64) * kStep + kFirst, e = exp(-u), w = width * exp(u - e);
          Expr density = exp(-side * a * w - z * expm1(-side * w));
          return w * (1.0 + e) * kStep * density * (side * (psi - large) + w);
        });
        return cast(select(y < 0.0, series, integral), compute_type(c.dtype("self")));
      })
      .samples({"self[3, 4](0.1, 5), log_value[3, 4](-2, 2), digamma[3, 4](-1, 1)"});
  define("_reparametrised_log_gamma(Tensor self, Tensor log_value) -> Tensor")
      .doc("log_value, which was drawn at the concentration `self` and moves with it.")
      .bind(hidden)
      .dtypes(d::floating)
      .shape([](const Call& c) { return Dims(c.sizes("self")); })
      .loop([](const LoopCall& c, Index i) { return c.load("log_value", i); })
      // The gradient of an operand that the body does not read.
      .vjp([](const Vjp& v) {
        Tensor a = v["self"];
        return grads(mul(v.grad(), _log_gamma_slope(a, v["log_value"], digamma(a))), Tensor());
      })
      .undifferenced("numbers that were drawn move with the concentration")
      .samples({"self[3, 4](0.1, 5), log_value[3, 4](-2, 2)"});
  define("_standard_log_gamma(Tensor self, Generator? generator=None) -> Tensor")
      .doc("Logarithms of numbers of the gamma distribution with concentration `self` and rate 1.")
      .bind(function)
      .draws()
      .reads_data()
      .undifferenced("numbers that were drawn move with the concentration")
      .procedure([](const Tensor& self, std::optional<Generator*> g) {
        expect_floating(self, "_standard_gamma");
        Tensor drawn_values =
            drawn({detach(self)}, 8, g, [](const Tensor& state, const std::vector<Tensor>& of) {
              return _log_gamma_proposal(state, of[0]);
            });
        return _reparametrised_log_gamma(self, to_dtype(drawn_values, self.dtype()));
      })
      .samples({"self[3, 4](0.1, 5)"});
  define("_standard_gamma(Tensor self, Generator? generator=None) -> Tensor")
      .doc(
          "Numbers of the gamma distribution with concentration `self` and rate 1; they have a gradient.  Marsaglia and Tsang, 2000; Figurnov et al., 2018.")
      .bind(function)
      .draws()
      .reads_data()
      .undifferenced("numbers that were drawn move with the concentration")
      .procedure([](const Tensor& self, std::optional<Generator*> g) {
        return exp(_standard_log_gamma(self, g ? *g : nullptr));
      })
      .samples({"self[3, 4](0.1, 5)"});
  define("_standard_gamma_grad(Tensor self, Tensor output) -> Tensor")
      .doc("Derivative of `_standard_gamma`'s result by the concentration `self`.  Figurnov et al., 2018.")
      .bind(function)
      .vjp(catalog::NoDerivative{"_standard_gamma_grad"})
      .dtypes(d::floating)
      .composite([](const Tensor& self, const Tensor& output) {
        return mul(output, _log_gamma_slope(self, log(output), digamma(self)));
      })
      .samples({"self[3, 4](0.1, 5), output[3, 4](0.1, 4)"});
  define("_sample_dirichlet(Tensor self, Generator? generator=None) -> Tensor")
      .doc(
          "Numbers of the Dirichlet distribution with concentrations along the last dimension; they have a gradient.")
      .bind(function)
      .draws()
      .reads_data()
      .undifferenced("numbers that were drawn move with the concentration")
      .procedure([](const Tensor& self, std::optional<Generator*> g) {
        return softmax(_standard_log_gamma(self, g ? *g : nullptr), -1);
      })
      .samples({"self[3, 4](0.1, 5)"});
  define("poisson(Tensor self, Generator? generator=None) -> Tensor")
      .doc("Numbers of the Poisson distribution with rates `self`.  Hormann, 1993.")
      .bind(function)
      .draws()
      .reads_data()
      .non_differentiable()
      .undifferenced("draws do not move with their rate: PyTorch's gradient is zero")
      .procedure([](const Tensor& self, std::optional<Generator*> g) {
        expect_floating(self, "poisson");
        runtime_check(true_everywhere(ge(self, 0.0)), "poisson")
            << "invalid Poisson rate, expected rate to be non-negative";
        return drawn({self}, 4, g, [](const Tensor& state, const std::vector<Tensor>& of) {
          return _poisson_proposal(state, of[0]);
        });
      })
      .samples({"self[3, 4](0, 30)"});
  define("binomial(Tensor count, Tensor prob, Generator? generator=None) -> Tensor")
      .doc("Successes among `count` trials of probability `prob` each.  Hormann, 1993.")
      .bind(function)
      .draws()
      .reads_data()
      .procedure([](const Tensor& count, const Tensor& prob, std::optional<Generator*> g) {
        value_check(is_floating(count.dtype()), "binomial")
            << "only supports floating-point dtypes for count, got " << count.dtype()
            << hint("count.float() converts");
        runtime_check(count.dtype() == prob.dtype(), "binomial")
            << "count and prob must have the same dtype, got " << count.dtype() << " and " << prob.dtype();
        Dims sizes = both("binomial", count, prob);
        Tensor y = drawn({expand(detach(count), sizes), expand(detach(prob), sizes)}, 4, g,
                         [](const Tensor& state, const std::vector<Tensor>& of) {
                           return _binomial_proposal(state, of[0], of[1]);
                         });
        return catalog::without_derivative(y, {count, prob}, "aten::binomial");
      })
      .samples({"count[3, 4](1, 50), prob[3, 4](0, 1)"});
  in_place_fill("exponential_(Tensor(a!) self, float lambd=1, *, Generator? generator=None) -> Tensor(a!)",
                "Filled with waiting times of rate lambd: -log(1 - u) / lambd.")
      .procedure([](const Tensor& self, double rate, std::optional<Generator*> g) {
        runtime_check(rate > 0, "exponential_") << "expects lambda > 0.0, but found lambda=" << rate;
        return filled("exponential_", self, g,
                      [&](const Tensor& u) { return mul(log1p(neg(u)), -1 / rate); });
      })
      .samples({"self[3, 4]", "self[5], lambd=2.0"});
  in_place_fill(
      "cauchy_(Tensor(a!) self, float median=0, float sigma=1, *, Generator? generator=None) -> Tensor(a!)",
      "Filled with numbers of Cauchy's distribution: median + sigma tan(pi (u - 1/2)).")
      .procedure([](const Tensor& self, double median, double sigma, std::optional<Generator*> g) {
        runtime_check(sigma > 0, "cauchy_") << "expects sigma > 0.0, but found sigma=" << sigma;
        return filled("cauchy_", self, g, [&](const Tensor& u) {
          return add(mul(tan(mul(sub(u, 0.5), 3.14159265358979323846)), sigma), median);
        });
      })
      .samples({"self[3, 4]", "self[5], median=1.0, sigma=2.0"});
  in_place_fill(
      "log_normal_(Tensor(a!) self, float mean=1, float std=2, *, Generator? generator=None) -> Tensor(a!)",
      "Filled with numbers whose logarithms are normal with this mean and deviation.")
      .procedure([](const Tensor& self, double mean, double std, std::optional<Generator*> g) {
        runtime_check(std > 0, "log_normal_") << "expects std > 0.0, but found std=" << std;
        supported_check(is_floating(self.dtype()), "log_normal_")
            << "not implemented for '" << self.dtype() << "'";
        return filled(self, [&](SymSpan sizes) {
          return exp(add(mul(randn(sizes, g ? *g : nullptr, DType::Float64), std), mean));
        });
      })
      .samples({"self[3, 4]", "self[5], mean=0.0, std=0.5"});
  in_place_fill("geometric_(Tensor(a!) self, float p, *, Generator? generator=None) -> Tensor(a!)",
                "Filled with numbers of trials to the first success: log(1 - u) / log(1 - p), rounded up.")
      .procedure([](const Tensor& self, double p, std::optional<Generator*> g) {
        runtime_check(p > 0 && p < 1, "geometric_") << "expects p to be in (0, 1), but got p=" << p;
        supported_check(!is_complex(self.dtype()) && self.dtype() != DType::Bool, "geometric_")
            << "not implemented for '" << self.dtype() << "'";
        return filled(self, [&](SymSpan sizes) {
          Tensor u = rand(sizes, g ? *g : nullptr, DType::Float64);
          return clamp_min(ceil(mul(log1p(neg(u)), 1 / std::log1p(-p))), 1);
        });
      })
      .samples({"self[3, 4], p=0.5"});
}
