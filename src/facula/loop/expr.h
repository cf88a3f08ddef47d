// Scalar expressions: the value of one element of a result. Expressions are hash-consed and immortal, so equality is
// pointer equality, and an Expr is one word. Every expression has a dtype; the operands of an arithmetic node have
// equal dtypes (`verify`). Floats of 8 and 16 bits and complex32 exist in memory only: `load` yields their compute
// dtype, and a store rounds.
//
// Kinds (semantics; the interpreter is their executable form):
//   constant            a number of the dtype
//   index v             loop variable v, Int64. Variables 0..rank-1 are the axes of the result; others are bound by
//                       reduce, scan or a nest's For
//   position            row-major position of the element in the result's index space, Int64 (survives collapsing)
//   size s              a SymInt, Int64
//   param k             integer parameter k of a kernel, Int64 (nests only)
//   load b (i...)       element (i...) of operand b; in a nest: one flat offset in elements. `part` 1/2 selects the
//                       real/imaginary component of a complex buffer as a real number
//   cast                conversion as C++'s, but to Bool: x != 0; float to integer as x86 (number.cpp). With `memory`
//                       Float16 or BFloat16 (see round_to) a float32 is rounded to that dtype and stays float32;
//                       every other cast has memory == dtype
//   call f (args)       a scalar function of FACULA_SCALAR_FUNCTIONS
//   select (c, a, b)    a where c else b; the other side may be anything, even NaN, without effect
//   reduce m (vars) (x...)   fold of x over the domain of its bound variables; several components: read by `part`
//   scan m (var) (x)    fold of x over var = 0..index (inclusive) of axis `axis`
//   part k (r)          component k of a reduce or scan over a monoid with several components
//   random (seed, counter)   facula::random_bits, as Int64 in [0, 2^32)
//   check (i, n)        i, or i + n if negative; flags an IndexError of the kernel and yields 0 if out of [-n, n)
//   within (i, n)       i; flags an IndexError of the kernel and yields 0 if out of [0, n). A `check` with slot 1
//   divisor (y)         the integer y; flags a division by zero of the kernel and yields 1 if y is 0
//   local v             value of a nest's local or let variable v
#pragma once
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "facula/base/dtype.h"
#include "facula/special_table.h"
#include "facula/sym/symint.h"
#include "facula/tensor/scalar.h"

namespace facula::loop {

// (name, arity, result dtype: T that of the operands | B Bool | R the real component type, error bound of generated
// float32 and float64 code in ULP; 0 = exact or correctly rounded). ndtr is the normal distribution function, erfinv
// the inverse of erf. max and min propagate NaN; fmax and fmin ignore it; remainder has the divisor's sign, fmod the
// dividend's; round is half to even; div is true division on floating types; floordiv rounds down, truncdiv towards
// zero. gcd takes integers, and is never negative except for the smallest number. The mapped functions (their rows
// come from special_functions.h) are computed lane by lane in float64, because their trip counts depend on the
// arguments; orders of polynomials are truncated.
#define FACULA_SCALAR_FUNCTIONS(_)                                                                            \
  _(neg, 1, T, 0) _(abs, 1, R, 0) _(sign, 1, T, 0) _(floor, 1, T, 0) _(ceil, 1, T, 0) _(trunc, 1, T, 0)       \
  _(round, 1, T, 0) _(sqrt, 1, T, 0) _(rsqrt, 1, T, 1.5) _(reciprocal, 1, T, 0) _(exp, 1, T, 1.5)             \
  _(exp2, 1, T, 1.5) _(expm1, 1, T, 1.5) _(log, 1, T, 1.5) _(log2, 1, T, 1.5) _(log10, 1, T, 1.5) _(log1p, 1, T, 1.5) \
  _(sin, 1, T, 1.5) _(cos, 1, T, 1.5) _(tan, 1, T, 1.5) _(asin, 1, T, 1.5) _(acos, 1, T, 1.5) _(atan, 1, T, 1.5)          \
  _(sinh, 1, T, 1.5) _(cosh, 1, T, 1.5) _(tanh, 1, T, 1.5) _(asinh, 1, T, 1.5) _(acosh, 1, T, 1.5) _(atanh, 1, T, 1.5)    \
  _(erf, 1, T, 1.5) _(erfc, 1, T, 1.5) _(erfinv, 1, T, 1) _(ndtr, 1, T, 1) _(sigmoid, 1, T, 1.5) _(relu, 1, T, 0) _(isnan, 1, B, 0) _(isinf, 1, B, 0) \
  _(bit_not, 1, T, 0) _(real, 1, R, 0) _(imag, 1, R, 0) _(conj, 1, T, 0)                                      \
  _(add, 2, T, 0) _(sub, 2, T, 0) _(mul, 2, T, 0) _(div, 2, T, 0) _(floordiv, 2, T, 0) _(truncdiv, 2, T, 0)   \
  _(remainder, 2, T, 0) _(fmod, 2, T, 0) _(pow, 2, T, 1.5) _(atan2, 2, T, 1.5) _(max, 2, T, 0) _(min, 2, T, 0)    \
  _(fmax, 2, T, 0) _(fmin, 2, T, 0) _(copysign, 2, T, 0)                                                      \
  _(eq, 2, B, 0) _(ne, 2, B, 0) _(lt, 2, B, 0) _(le, 2, B, 0) _(gt, 2, B, 0) _(ge, 2, B, 0)                   \
  _(bit_and, 2, T, 0) _(bit_or, 2, T, 0) _(bit_xor, 2, T, 0) _(shl, 2, T, 0) _(shr, 2, T, 0)                  \
  _(fma, 3, T, 0) _(gcd, 2, T, 0) FACULA_MAPPED_UNARY(_) FACULA_MAPPED_BINARY(_)

// The steps into which functions are expanded for every target (elementary.h); bodies and nests do not use them. I:
// the integer type of the operand's width, F: the floating type.
//   unlikely (c)            c, which is rarely true: targets jump over the side of a select that it guards
//   bits (x), from_bits (i) the same bits as an integer, as a floating-point number
//   entry (row, i)          entry i of a constant row of the tables, by the low bits of i if the row has 8, 16 or 32
//                           entries
//   scale (x, k)            x 2^floor(k), rounded once; |k| < 2^12, for float32 2^9
//   scaled_sum (h, l, k)    (h + l) 2^floor(k), rounded once
//   mantissa, exponent (x)  m and k of x = m 2^k > 0 with m in [3/4, 3/2)
//   is_subnormal (x)        0 < |x| < the smallest normal number
//   log_special (r, x)      r if x is positive and finite, else the special value of log(x)
//   times_ndtr, times_sigmoid (x)   x ndtr(x), x sigmoid(x), rounded once
//   dot_bytes (x, y, s)     the sum of the products of x's four bytes, without sign, and y's four bytes, with sign, and of
//                           s; Int32, modulo 2^32
//   any_pow (x, y)          pow for exponents other than the ones that become products and roots
//   far_sin, far_cos, far_tan (x)   of huge angles, in float64
#define FACULA_STEPS(_)                                                                                       \
  _(unlikely, 1, T, 0) _(bits, 1, I, 0) _(from_bits, 1, F, 0) _(entry, 2, F, 0)                               \
  _(scale, 2, T, 0.5) _(scaled_sum, 3, T, 0.5) _(mantissa, 1, T, 0.5) _(exponent, 1, T, 0.5)                  \
  _(is_subnormal, 1, B, 0.5) _(log_special, 2, T, 0.5) _(times_ndtr, 1, T, 1.5) _(times_sigmoid, 1, T, 1.5)   \
  _(dot_bytes, 3, T, 0) _(any_pow, 2, T, 1.5) _(far_sin, 1, T, 0.5) _(far_cos, 1, T, 0.5) _(far_tan, 1, T, 0.5)

enum class Fn : uint8_t {
#define FACULA_FN(n, a, r, u) n,
  FACULA_SCALAR_FUNCTIONS(FACULA_FN) FACULA_STEPS(FACULA_FN)
#undef FACULA_FN
};
const char* name(Fn f);
int arity(Fn f);
double ulp(Fn f);

// (name, number of components). monoid.h has the identity and the combination of each one.
//   sum prod max min any all: one value (max and min propagate NaN)
//   argmax argmin: (value, position): first position of the extremum, NaN counts as the extremum; positions are
//   integers below the dtype's largest
//   argmax_pool: argmax, but the last one of several NaNs, as in PyTorch's pools
//   logsumexp: (maximum, sum of exp(x - maximum))      welford: (mean, sum of squared deviations, count)
//   complex_prod: (real, imaginary part)
#define FACULA_MONOIDS(_) \
  _(sum, 1) _(prod, 1) _(max, 1) _(min, 1) _(any, 1) _(all, 1) _(argmax, 2) _(argmin, 2) _(argmax_pool, 2) _(logsumexp, 2) _(welford, 3) \
  _(complex_prod, 2)
enum class Monoid : uint8_t {
#define FACULA_M(n, c) n,
  FACULA_MONOIDS(FACULA_M)
#undef FACULA_M
};
namespace monoid {
#define FACULA_M(n, c) inline constexpr Monoid n = Monoid::n;
FACULA_MONOIDS(FACULA_M)
#undef FACULA_M
}  // namespace monoid
const char* name(Monoid m);
int components(Monoid m);
bool has_position(Monoid m);  // argmax, argmin and argmax_pool take (value, position)
int values(Monoid m);         // the number of values of an element: 2 with a position, and for complex_prod

enum class Kind : uint8_t {
  constant,
  index,
  position,
  size,
  param,
  load,
  cast,
  call,
  select,
  reduce,
  scan,
  part,
  random,
  check,
  divisor,
  local
};

struct Node;

class Expr {
 public:
  Expr() = default;
  explicit Expr(const Node* n) : node_(n) {}
  const Node* operator->() const { return node_; }
  const Node& operator*() const { return *node_; }
  const Node* get() const { return node_; }
  explicit operator bool() const { return node_; }
  DType dtype() const;
  friend bool operator==(Expr a,
                         Expr b) = delete;  // elementwise comparison is eq(a, b); identity is same(a, b)

 private:
  const Node* node_ = nullptr;
};
inline bool same(Expr a, Expr b) { return a.get() == b.get(); }

struct BoundVar {
  int var;
  Expr extent;
};

struct Node {
  Kind kind;
  DType dtype;
  Fn fn{};                      // call
  Monoid monoid{};              // reduce, scan
  int slot = 0;                 // index, local: variable; load: operand; param, part: k; scan: axis
  int part = 0;                 // load: 0 the element, 1 its real part, 2 its imaginary part
  DType memory{};               // load: the buffer's dtype
  Scalar value;                 // constant
  SymInt size;                  // size
  std::vector<BoundVar> bound;  // reduce, scan
  std::vector<Expr> args;
  uint64_t hash = 0;
  uint32_t id = 0;          // creation order
  bool has_reduce = false;  // true if it contains a reduce or scan
};
inline DType Expr::dtype() const { return node_->dtype; }

// Constructors: check dtypes, fold constants and apply the identities of simplify.h.
Expr constant(const Scalar& v, DType d);
Expr index(int var);
Expr position();
Expr size(SymInt s);  // a constant if concrete
Expr param(int k);
Expr load(int slot, DType memory, std::vector<Expr> indices,
          int part = 0);  // dtype: compute_type(memory), real if part
Expr cast(Expr x, DType to);
// x as it reads back after a store to memory of dtype d; marks a rounding where a fused kernel skips the store. A
// cast node with memory = d and dtype compute_type(d), which has its own printed form; x itself for other dtypes.
Expr round_to(Expr x, DType d);
Expr call(Fn f, std::vector<Expr> args);
Expr select(Expr c, Expr a, Expr b);
Expr reduce(Monoid m, std::vector<BoundVar> vars,
            std::vector<Expr> values);  // argmax takes (value, position)
Expr scan(Monoid m, int axis, BoundVar var, std::vector<Expr> values);
Expr part(Expr reduction, int k);
Expr random(Expr seed, Expr counter);
Expr check(Expr i, Expr n);
Expr within(Expr i, Expr n);
Expr divisor(Expr y);
Expr local(int var, DType d);

// Replaces every node for which f yields an expression by it (outermost first), and rebuilds the rest of x.
using Rewrite = std::function<Expr(Expr)>;
Expr rewrite(Expr x, const Rewrite& f);
// Replaces variables by expressions.
Expr substitute(Expr x, std::span<const std::pair<int, Expr>> map);
void visit(Expr x, const std::function<void(Expr)>& f);  // every distinct node once, operands first
int fresh_var(std::span<const Expr> xs);                 // a variable none of them uses (>= 64)

// Arithmetic for bodies: each function of the table by its name, and C++ operators for those that have one. A number
// takes the dtype of the other operand.
#define FACULA_BINARY(spelled, f)                                                                   \
  inline Expr spelled(Expr a, Expr b) { return call(Fn::f, {a, b}); }                               \
  inline Expr spelled(Expr a, const Scalar& b) { return call(Fn::f, {a, constant(b, a.dtype())}); } \
  inline Expr spelled(const Scalar& a, Expr b) { return call(Fn::f, {constant(a, b.dtype()), b}); }
#define FACULA_FUNCTION_1(n) inline Expr n(Expr x) { return call(Fn::n, {x}); }
#define FACULA_FUNCTION_2(n) FACULA_BINARY(n, n)
#define FACULA_FUNCTION_3(n) inline Expr n(Expr x, Expr y, Expr z) { return call(Fn::n, {x, y, z}); }
#define FACULA_FUNCTION(n, arity, r, u) FACULA_FUNCTION_##arity(n)
FACULA_SCALAR_FUNCTIONS(FACULA_FUNCTION)
#undef FACULA_FUNCTION
#undef FACULA_FUNCTION_1
#undef FACULA_FUNCTION_2
#undef FACULA_FUNCTION_3
FACULA_BINARY(operator+, add)
FACULA_BINARY(operator-, sub)
FACULA_BINARY(operator*, mul)
FACULA_BINARY(operator/, div)
FACULA_BINARY(operator<, lt)
FACULA_BINARY(operator<=, le)
FACULA_BINARY(operator>, gt)
FACULA_BINARY(operator>=, ge)
FACULA_BINARY(operator&, bit_and)
FACULA_BINARY(operator|, bit_or)
FACULA_BINARY(operator^, bit_xor)
#undef FACULA_BINARY
inline Expr operator-(Expr x) { return neg(x); }
Expr operator!(Expr x) = delete;  // bit_not of Bool; `!x` would also catch tests for an empty Expr
inline Expr select(Expr c, Expr a, const Scalar& b) { return select(c, a, constant(b, a.dtype())); }
inline Expr select(Expr c, const Scalar& a, Expr b) { return select(c, constant(a, b.dtype()), b); }

// Text form, e.g. "add(load[0:float32](i0, i1), 2:float32)"; parse(print(x)) is x.
std::string print(Expr x);
Expr parse_expr(std::string_view text);  // ValueError with the position of the mistake
// RuntimeError (internal) if dtypes, arities or variable scopes are wrong. `free` are the allowed free
// variables.
void verify(Expr x, std::span<const int> free);

}  // namespace facula::loop
