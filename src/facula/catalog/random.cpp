// Random numbers. `_rng_take` draws a piece of a generator's sequence; everything else is a function of that
// piece, so it fuses, and is recomputed rather than saved.
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"
#include "facula/tensor/promotion.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {

Dims size_argument(const Call& c) { return Dims(c.ints("size")); }

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
int64_t words_for(DType t) { return t == DType::Float64 || t == DType::Complex128 ? 2 : 1; }

Definer in_place_fill(const char* schema, const char* doc) {
  return std::move(define(schema).doc(doc).bind(method).random().no_in_place().non_differentiable());
}

Tensor numbers(SymInt n, std::optional<Generator*> g) { return _rng_take(n, g ? *g : nullptr); }

DType float_or_default(std::optional<DType> t) { return t.value_or(default_dtype()); }

}  // namespace

FACULA_FAMILY(random) {
  define("_rng_take(SymInt n, Generator? generator=None) -> Tensor")
      .doc("Seed and first counter of the next n numbers of the generator, as int64[2].")
      .bind(hidden)
      .random()
      .no_in_place()
      .non_differentiable()
      .result(ResultType::int64)
      .shape([](const Call&) { return Dims{SymInt(int64_t(2))}; })
      .library("rng_take")
      .samples({"n=5"});
  define("_uniform(Tensor state, SymInt[] size, dtype dtype) -> Tensor")
      .doc("Uniform numbers in [0, 1).")
      .bind(hidden)
      .no_in_place()
      .non_differentiable()
      .result([](const Call& c) { return std::vector<DType>{*c.maybe_dtype("dtype")}; })
      .shape(size_argument)
      .loop([](const LoopCall& c, Index) {
        DType t = compute_type(*c.maybe_dtype("dtype"));
        return uniform(c, t, 0, words_for(t));
      })
      .samples({"state<9>[2], size=[3, 4], dtype=float32", "state<9>[2], size=[3], dtype=float64"});
  define("_normal(Tensor state, SymInt[] size, dtype dtype) -> Tensor")
      .doc("Standard normal numbers, by the transform of Box and Muller, 1958.")
      .bind(hidden)
      .no_in_place()
      .non_differentiable()
      .result([](const Call& c) { return std::vector<DType>{*c.maybe_dtype("dtype")}; })
      .shape(size_argument)
      .loop([](const LoopCall& c, Index) {
        DType t = compute_type(*c.maybe_dtype("dtype")), part = is_complex(t) ? real_of(t) : t;
        int64_t w = words_for(t);
        Expr u = 1.0 - uniform(c, part, 0, 2 * w), v = uniform(c, part, w, 2 * w);  // u in (0, 1]
        // Of a complex number both parts of the transform, of variance 1/2 each.
        if (is_complex(t)) {
          Expr r = sqrt(-log(u)), angle = 6.283185307179586 * v;
          return cast(r * cos(angle), t) + cast(r * sin(angle), t) * Scalar(std::complex<double>(0, 1));
        }
        return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
      })
      .samples({"state<9>[2], size=[3, 4], dtype=float32", "state<9>[2], size=[3], dtype=float64",
                "state<9>[2], size=[3], dtype=complex64"});
  define("_randint(Tensor state, SymInt[] size, SymInt low, SymInt high, dtype dtype) -> Tensor")
      .doc("Uniform integers in [low, high).")
      .bind(hidden)
      .no_in_place()
      .non_differentiable()
      .result([](const Call& c) { return std::vector<DType>{*c.maybe_dtype("dtype")}; })
      .shape(size_argument)
      .loop([](const LoopCall& c, Index) {
        SymInt range = c.integer("high") - c.integer("low");
        Expr bits = random_word(c, 0, 2);
        if (range > SymInt(int64_t(1) << 32)) bits = (shl(random_word(c, 1, 2), Scalar(int64_t(31)))) ^ bits;
        return cast(remainder(bits, size(range)) + size(c.integer("low")),
                    compute_type(*c.maybe_dtype("dtype")));
      })
      .samples({"state<9>[2], size=[3, 4], low=2, high=9, dtype=int64"});
  define("_randperm(Tensor state, SymInt n) -> Tensor")
      .doc("A random permutation of 0 .. n - 1 by the shuffle of Durstenfeld, 1964.")
      .bind(hidden)
      .random()
      .no_in_place()
      .non_differentiable()
      .shape([](const Call& c) { return Dims{c.integer("n")}; })
      .library("randperm")
      .samples({"state<9>[2], n=7", "state<9>[2], n=0"});

  define(
      "rand(SymInt[] size, *, Generator? generator=None, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor")
      .doc("Uniform numbers in [0, 1).")
      .bind(function)
      .random()
      .unfused([](const Call& c, SymSpan size, std::optional<Generator*> g) {
        DType t = float_or_default(c.maybe_dtype("dtype"));
        supported_check(is_differentiable(t), "rand")
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
      .random()
      .unfused([](const Call& c, SymSpan size, std::optional<Generator*> g) {
        DType t = float_or_default(c.maybe_dtype("dtype"));
        supported_check(is_differentiable(t), "randn")
            << "normal numbers are floating point, but the dtype is " << t;
        return _normal(numbers(product(size) * SymInt(2 * words_for(t)), g), size, t);
      })
      .samples({"size=[3, 4]", "size=[]", "size=[0]"});
  define(
      "randint(SymInt low, SymInt high, SymInt[] size, *, Generator? generator=None, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor")
      .doc("Uniform integers in [low, high).")
      .bind(function)
      .random()
      .unfused([](const Call& c, SymInt low, SymInt high, SymSpan size, std::optional<Generator*> g) {
        runtime_check(low < high, "randint")
            << "expects 'from' to be less than 'to', got " << low << " >= " << high;
        DType t = c.maybe_dtype("dtype").value_or(DType::Int64);
        Scalar least(low.hint()), most(high.hint() - 1);
        runtime_check(!is_complex(t), "randint")
            << "gives integers, truth values or floating numbers, not " << t;
        bool fits = t == DType::Bool ? !(low < SymInt(int64_t(0))) && !(high > SymInt(int64_t(2)))
                                     : !overflows(least, t) && !overflows(most, t);
        runtime_check(is_floating(t) || fits, "randint")
            << "numbers from " << low << " to " << high - SymInt(int64_t(1)) << " are out of bounds for "
            << t;
        return _randint(numbers(product(size) * SymInt(int64_t(2)), g), size, low, high, t);
      })
      .samples({"low=2, high=9, size=[3, 4]"});
  define(
      "randint.high(SymInt high, SymInt[] size, *, Generator? generator=None, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor")
      .doc("Uniform integers in [0, high).")
      .bind(function)
      .random()
      .unfused([](const Call& c, SymInt high, SymSpan size, std::optional<Generator*> g) {
        return randint(SymInt(int64_t(0)), high, size, g ? *g : nullptr, c.maybe_dtype("dtype"));
      })
      .samples({"high=9, size=[3, 4]"});
  define(
      "rand_like(Tensor self, *, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor")
      .doc("Uniform numbers in [0, 1), shaped like self.")
      .bind(function)
      .random()
      .unfused([](const Call& c, const Tensor& self) {
        return rand(self.sizes(), nullptr, c.maybe_dtype("dtype").value_or(self.dtype()));
      })
      .samples({"self[3, 4]"});
  define(
      "randn_like(Tensor self, *, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor")
      .doc("Standard normal numbers, shaped like self.")
      .bind(function)
      .random()
      .unfused([](const Call& c, const Tensor& self) {
        return randn(self.sizes(), nullptr, c.maybe_dtype("dtype").value_or(self.dtype()));
      })
      .samples({"self[3, 4]"});
  define(
      "randint_like(Tensor self, SymInt low, SymInt high, *, Generator? generator=None, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor")
      .doc("Uniform integers in [low, high), shaped like self and, unless told otherwise, of its dtype.")
      .bind(function)
      .random()
      .unfused([](const Call& c, const Tensor& self, SymInt low, SymInt high, std::optional<Generator*> g) {
        return randint(low, high, self.sizes(), g ? *g : nullptr,
                       c.maybe_dtype("dtype").value_or(self.dtype()));
      })
      .samples({"self[3, 4], low=2, high=9"});
  define(
      "randint_like.high(Tensor self, SymInt high, *, Generator? generator=None, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor")
      .doc("Uniform integers in [0, high), shaped like self and, unless told otherwise, of its dtype.")
      .bind(function)
      .random()
      .unfused([](const Call& c, const Tensor& self, SymInt high, std::optional<Generator*> g) {
        return randint_like(self, SymInt(int64_t(0)), high, g ? *g : nullptr, c.maybe_dtype("dtype"));
      })
      .samples({"self[3, 4], high=9"});
  define(
      "randperm(SymInt n, *, Generator? generator=None, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor")
      .doc("A random permutation of 0 .. n - 1.")
      .bind(function)
      .random()
      .unfused([](const Call& c, SymInt n, std::optional<Generator*> g) {
        runtime_check(!(n < SymInt(int64_t(0))), "randperm") << "n must be non-negative, got " << n;
        DType t = c.maybe_dtype("dtype").value_or(DType::Int64);
        supported_check(is_integral(t) || is_floating(t), "randperm") << "not implemented for '" << t << "'";
        runtime_check(!is_integral(t) || !overflows(Scalar(n.hint()), t), "randperm")
            << "the numbers below " << n << " do not fit " << t;
        return to_dtype(_randperm(numbers(n * SymInt(int64_t(2)), g), n), t);
      })
      .samples({"n=7", "n=0"});
  define("bernoulli(Tensor self, *, Generator? generator=None) -> Tensor")
      .doc("1 with probability self, else 0.")
      .random()
      .dtypes(d::floating)
      .no_in_place()
      .non_differentiable()
      .unfused([](const Tensor& self, std::optional<Generator*> g) {
        DType t = compute_type(self.dtype());
        supported_check(is_floating(t), "bernoulli") << "not implemented for '" << self.dtype() << "'"
                                                     << hint("it takes probabilities: x.float() converts");
        // False for NaN.
        bool valid = all(logical_and(ge(self, Scalar(0.0)), le(self, Scalar(1.0)))).item().to_bool();
        runtime_check(valid, "bernoulli")
            << "expects probabilities between 0 and 1, but some are not" << hint("x.sigmoid() are");
        return to_dtype(lt(_uniform(numbers(self.numel() * SymInt(words_for(t)), g), self.sizes(), t), self),
                        self.dtype());
      })
      .samples({"self[3, 4](0, 1)"});
  define("bernoulli.p(Tensor self, float p, *, Generator? generator=None) -> Tensor")
      .doc("1 with probability p, else 0, shaped like self.")
      .random()
      .no_in_place()
      .non_differentiable()
      .unfused([](const Tensor& self, double p, std::optional<Generator*> g) {
        return bernoulli_(empty_like(self), p, g ? *g : nullptr);
      })
      .samples({"self[3, 4], p=0.5"});
  in_place_fill(
      "uniform_(Tensor(a!) self, float from=0, float to=1, *, Generator? generator=None) -> Tensor(a!)",
      "Filled with uniform numbers in [from, to).")
      .unfused([](const Tensor& self, double from, double to, std::optional<Generator*> g) {
        DType t = self.dtype();
        for (double bound : {from, to, to - from})
          runtime_check(std::isfinite(bound) && !overflows(Scalar(bound), t), "uniform_")
              << "a range from " << from << " to " << to << " is out of bounds for " << t;
        runtime_check(from <= to, "uniform_")
            << "expects to return a [from, to) range, but found from=" << from << " > to=" << to;
        return copy_(self,
                     add(mul(rand(self.sizes(), g ? *g : nullptr, compute_type(self.dtype())), to - from),
                         from));
      })
      .samples({"self[3, 4], from=1.0, to=2.0"});
  in_place_fill(
      "normal_(Tensor(a!) self, float mean=0, float std=1, *, Generator? generator=None) -> Tensor(a!)",
      "Filled with normal numbers.")
      .unfused([](const Tensor& self, double mean, double std, std::optional<Generator*> g) {
        runtime_check(std >= 0, "normal_") << "expects std >= 0.0, but found std " << std;
        return copy_(self,
                     add(mul(randn(self.sizes(), g ? *g : nullptr, compute_type(self.dtype())), std), mean));
      })
      .samples({"self[3, 4], mean=1.0, std=2.0"});
  in_place_fill("bernoulli_(Tensor(a!) self, float p=0.5, *, Generator? generator=None) -> Tensor(a!)",
                "Filled with 1 (probability p) and 0.")
      .unfused([](const Tensor& self, double p, std::optional<Generator*> g) {
        runtime_check(p >= 0 && p <= 1, "bernoulli_") << "expects p to be in [0, 1], but got p=" << p;
        return copy_(self, lt(rand(self.sizes(), g ? *g : nullptr, DType::Float32), p));
      })
      .samples({"self[3, 4], p=0.25"});
}
