// Emits scalar functions as LLVM IR for single values and vectors alike, so that vector loops, their masked tails and
// scalar loops give the same bits. Elementary functions are those of loop/elementary.h; `instruction` has the steps
// for which AVX-512 has instructions.
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
  llvm::Value* cast(llvm::Value* x, DType from, DType to);
  // facula::random_bits of two Int64, as an Int64.
  llvm::Value* random(llvm::Value* seed, llvm::Value* counter);

  static llvm::Type* shaped(llvm::Type* element, llvm::Type* like);
  llvm::Type* type(DType d);            // in registers: Bool is i1
  llvm::Value* any(llvm::Value* mask);  // i1

  // Conversions between registers and memory.
  llvm::Type* memory_type(DType d);
  llvm::Value* decode(llvm::Value* v, DType d);
  llvm::Value* encode(llvm::Value* v, DType from, DType d);
  llvm::Value* upper_half(llvm::Value* v);  // of a float32 that has the value of a bfloat16

 private:
  using V = llvm::Value*;
  V real(double v, V like);
  V integer(int64_t v, V like);
  V sign_bit(V like);
  V fma(V a, V b, V c) { return b_.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, b, c}); }
  V fabs(V x) { return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x); }
  V copysign(V x, V sign) { return b_.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, x, sign); }
  V select(V c, V a, V b) { return b_.CreateSelect(c, a, b); }
  V widen(V x), narrow(V x);  // float32 <-> float64
  V int_bits(V x);            // float as integer of the same width
  V float_bits(V x);
  V map(const char* helper, V x, V y = nullptr);  // lane by lane, through a helper of object.cpp, in float64
  // `easy` in lanes where `hard` is false, the helper's result in the others; jumps over the helper if all lanes are
  // easy.
  V unless(V hard, V easy, const char* helper, V x, V y = nullptr);
  template <class F>
  V unless(V hard, V easy, F&& slow);
  template <class F>
  V by_halves(V x, V y, F&& f);

  class Expansion;
  // A step that the target has instructions for; null if it has none.
  V instruction(loop::Fn f, DType d, std::span<llvm::Value* const> a);
  V scalef(V x, V k);
  V subnormal(V x), getmant(V x), getexp(V x);
  V fixup_log(V r, V x);
  V square_root(V x);
  V to_int32(V x);
  bool is_register(V x);
  V all_lanes(V x);  // the full mask for x
  V entry(int64_t row, V index);
  template <class T>
  V looked_up(int64_t number, std::span<const T> row, V index);
  template <class T>
  V loaded(int64_t number, std::span<const T> row, V index);
  template <class T>
  V picked(std::span<const T> row, V index);

  V floating(loop::Fn f, V x);
  V floating(loop::Fn f, V x, V y);
  V integral(loop::Fn f, DType d, std::span<llvm::Value* const> a);
  V int_divide(loop::Fn f, bool is_signed, V x, V y);
  V dot_bytes(V x, V y, V sum);
  V int_pow(V x, V y, bool is_signed), int_gcd(V x, V y, bool is_signed);
  V fmod(V x, V y);
  V decode(V v, const Float8Format& f), encode(V v, const Float8Format& f);

  llvm::IRBuilder<>& b_;
  llvm::Function& f_;
  bool avx512_;
};

}  // namespace facula::codegen
