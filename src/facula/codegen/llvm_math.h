// Scalar functions as LLVM IR that works alike on one value and on a vector of them, so that vector loops,
// their masked ends and scalar loops give the same bits. Bounds on the errors: loop/expr.h.
#pragma once
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <span>

#include "facula/loop/expr.h"

namespace facula::codegen {

class ScalarMath {
 public:
  ScalarMath(llvm::IRBuilder<>& b, llvm::Function& f, bool avx512) : b_(b), f_(f), avx512_(avx512) {}

  // f of arguments of one shape, all of dtype `d`.
  llvm::Value* call(loop::Fn f, DType d, std::span<llvm::Value* const> args);
  // x f(x) for ndtr and sigmoid, rounding once: gelu and silu.
  llvm::Value* times_own(loop::Fn f, llvm::Value* x);
  llvm::Value* cast(llvm::Value* x, DType from, DType to);
  // facula::random_bits of two Int64 as Int64.
  llvm::Value* random(llvm::Value* seed, llvm::Value* counter);

  static llvm::Type* shaped(llvm::Type* element, llvm::Type* like);
  llvm::Type* type(DType d);            // in registers: Bool is i1
  llvm::Value* any(llvm::Value* mask);  // i1

 private:
  using V = llvm::Value*;
  V real(double v, V like);
  V whole(int64_t v, V like);
  V sign_bit(V like);
  V fma(V a, V b, V c) { return b_.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, b, c}); }
  V fabs(V x) { return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x); }
  V copysign(V x, V sign) { return b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, x, sign); }
  V select(V c, V a, V b) { return b_.CreateSelect(c, a, b); }
  template <class C>
  V poly(V x, const C& c);  // c[0] + c[1] x + ...
  V poly(V x, std::initializer_list<double> c) { return poly<std::initializer_list<double>>(x, c); }
  V widen(V x), narrow(V x);  // float32 <-> float64
  V int_bits(V x);            // float as integer of the same width
  V float_bits(V x);
  V map(const char* helper, V x, V y = nullptr);  // lane by lane through a helper of object.cpp, in float64
  // x where `hard` is false; else what the helper says, for the whole vector. `x` is computed by `easy`.
  V unless(V hard, V easy, const char* helper, V x, V y = nullptr);
  template <class F>
  V unless(V hard, V easy, F&& slow);
  template <class F>
  V by_halves(V x, V y, F&& f);

  V floating(loop::Fn f, V x);
  V floating(loop::Fn f, V x, V y);
  V integral(loop::Fn f, DType d, std::span<llvm::Value* const> a);
  V int_divide(loop::Fn f, bool is_signed, V x, V y);
  V int_pow(V x, V y, bool is_signed), int_gcd(V x, V y, bool is_signed);

  // high + low, to more digits than one has.
  struct Sum {
    V high, low;
  };
  Sum fast_sum(V a, V b);   // a + b exactly; |a| >= |b| or a = 0
  Sum exact_sum(V a, V b);  // a + b exactly
  Sum exact_product(V a, V b);
  Sum product(Sum a, Sum b), quotient(Sum a, Sum b);
  V rounded(Sum s) { return b_.CreateFAdd(s.high, s.low); }

  // 2^floor(k) (point + point r + rest): point is 2^(j/16), |r| <= ln2/32.
  struct Power {
    V point, r, rest, k;
  };
  Power exp_power(V x, V more = nullptr, bool exact = true);  // exp(x + more)
  Power exp2_power(V x);
  Power power(V r, V low, V k, V index);  // exp(r + low) 2^k, k by steps of 1/16, which `index` ends with
  Sum sum(const Power& p);                // the sum, without 2^k
  V scaled(V x, V k);                     // x 2^floor(k)
  V scaled_once(Sum s, V k);              // (high + low) 2^floor(k), rounding once (AVX2: denormals twice)
  Sum half_expm1(V x);                    // float64: (exp(x) - 1) / 2
  V exp(V x), exp2(V x), expm1(V x), log(V x), tanh(V x), erf(V x), erfinv(V x), sigmoid(V x);
  V exp_short(V x), log_short(V x);  // 0.8 ULP, for float32 results by way of float64
  V bounded(V x, double low, double high);
  Sum normal_tail_sum(V a, bool of_erfc, V& k);  // without 2^floor(k)
  Sum normal_tail(V a, bool of_erfc);            // ndtr(-a), or erfc(a); a >= 0
  Sum ndtr(V x), sigmoid_exact(V x), complement(V x, Sum f);
  V times(V x, Sum f);
  V reflected(V x, bool of_sigmoid, bool times_x);
  V entry(const char* name, std::span<const float> row, V index);
  V entry(const char* name, std::span<const double> row, V index);
  template <class T, size_t rows, size_t entries>
  V entry(const char* name, const T (&table)[rows][entries], size_t k, V index);  // of row k
  template <class T>
  V looked_up(const char* name, std::span<const T> row, V index);
  bool is_register(V x);
  V all_lanes(V x);  // its mask
  V mantissa(V x, V& k);
  V log_index(V m);                           // of the table's entry
  V log_to(V x, double factor, double rest);  // float64: log(x) (factor + rest)
  Sum log_sum(V x);                           // float64; x > 0, not infinite
  V log_special(V x, V r);                    // r, where log(x) is a number
  // constant + slope * t of the polynomial of an interval (llvm_tables.h), t the distance to its centre.
  struct Piece {
    V constant, slope, t;
  };
  template <class T, size_t rows, size_t entries>
  Piece piece(const char* name, const T (&table)[rows][entries], V x, V index);
  V reduce_pi(V x, V& quadrant);
  V sin_cos(V x, int shift), tan(V x);  // float64 for float32 results, |x| < 2^30
  struct Angle {
    Sum rest;
    V quadrant;
  };
  Angle reduce_pi_exactly(V x);  // float64, |x| < 2^40
  Sum sin_cos(const Angle& a, int shift);
  V trigonometric(loop::Fn f, V x);
  V atan(V x);  // float64
  V atan64(V x);
  V pow(V x, V y), any_pow(V x, V y), atan2(V y, V x), fmod(V x, V y), floordiv(V x, V y);
  V opposite_signs(V m, V y);  // m != 0, and m < 0 differs from y < 0
  V max(V a, V b), min(V a, V b);

  llvm::IRBuilder<>& b_;
  llvm::Function& f_;
  bool avx512_;
};

}  // namespace facula::codegen
