#include "facula/codegen/llvm_math.h"

#include <llvm/IR/IntrinsicsX86.h>

#include <cmath>
#include <limits>

#include "facula/codegen/llvm_tables.h"
#include "facula/codegen/maps.h"

namespace facula::codegen {
using loop::Fn;
using namespace llvm;
using V = llvm::Value*;

namespace {
constexpr double kInf = std::numeric_limits<double>::infinity(),
                 kNan = std::numeric_limits<double>::quiet_NaN();
bool is_double(V x) { return x->getType()->getScalarType()->isDoubleTy(); }
unsigned width(V x) { return x->getType()->getScalarSizeInBits(); }
}  // namespace

Type* ScalarMath::shaped(Type* element, Type* like) {
  auto* v = dyn_cast<FixedVectorType>(like);
  return v ? FixedVectorType::get(element, v->getNumElements()) : element;
}

Type* ScalarMath::type(DType d) {
  switch (d) {
    case DType::Bool: return b_.getInt1Ty();
    case DType::UInt8:
    case DType::Int8: return b_.getInt8Ty();
    case DType::UInt16:
    case DType::Int16: return b_.getInt16Ty();
    case DType::UInt32:
    case DType::Int32: return b_.getInt32Ty();
    case DType::UInt64:
    case DType::Int64: return b_.getInt64Ty();
    case DType::Float16: return b_.getHalfTy();
    case DType::Float32: return b_.getFloatTy();
    case DType::Float64: return b_.getDoubleTy();
    default: break;
  }
  supported_check(false, "codegen") << "no registers hold " << d
                                    << "; complex expressions must be split first";
  return nullptr;
}

V ScalarMath::any(V mask) { return mask->getType()->isVectorTy() ? b_.CreateOrReduce(mask) : mask; }
V ScalarMath::real(double v, V like) { return ConstantFP::get(like->getType(), v); }
V ScalarMath::whole(int64_t v, V like) {
  return ConstantInt::get(shaped(b_.getIntNTy(width(like)), like->getType()), uint64_t(v), true);
}
V ScalarMath::sign_bit(V like) {
  return whole(std::numeric_limits<int64_t>::min() >> (64 - width(like)), like);
}
V ScalarMath::widen(V x) {
  return is_double(x) ? x : b_.CreateFPExt(x, shaped(b_.getDoubleTy(), x->getType()));
}
V ScalarMath::narrow(V x) { return b_.CreateFPTrunc(x, shaped(b_.getFloatTy(), x->getType())); }
V ScalarMath::int_bits(V x) { return b_.CreateBitCast(x, shaped(b_.getIntNTy(width(x)), x->getType())); }
V ScalarMath::float_bits(V x) {
  return b_.CreateBitCast(x, shaped(width(x) == 64 ? b_.getDoubleTy() : b_.getFloatTy(), x->getType()));
}

template <class C>
V ScalarMath::poly(V x, const C& c) {
  auto p = std::end(c);
  V r = real(*--p, x);
  while (p != std::begin(c)) r = fma(r, x, real(*--p, x));
  return r;
}

V ScalarMath::bounded(V x, double low, double high) {  // NaN stays
  x = select(b_.CreateFCmpOGT(x, real(high, x)), real(high, x), x);
  return select(b_.CreateFCmpOLT(x, real(low, x)), real(low, x), x);
}

// Both halves of what fills two registers, as float64 for float32 does.
template <class F>
V ScalarMath::by_halves(V x, V y, F&& f) {
  int n = int(llvm::cast<FixedVectorType>(x->getType())->getNumElements());
  llvm::SmallVector<int, 16> low, high, all;
  for (int i = 0; i < n; ++i) (i < n / 2 ? low : high).push_back(i), all.push_back(i);
  auto half = [&](V v, ArrayRef<int> mask) { return v ? b_.CreateShuffleVector(v, mask) : nullptr; };
  V a = f(half(x, low), half(y, low)), b = f(half(x, high), half(y, high));
  return b_.CreateShuffleVector(a, b, all);
}

// Knuth, Dekker: what a sum or a product loses in rounding is a number.
ScalarMath::Sum ScalarMath::fast_sum(V a, V b) {
  V s = b_.CreateFAdd(a, b);
  return {s, b_.CreateFSub(b, b_.CreateFSub(s, a))};
}
ScalarMath::Sum ScalarMath::exact_sum(V a, V b) {
  V s = b_.CreateFAdd(a, b), c = b_.CreateFSub(s, a);
  return {s, b_.CreateFAdd(b_.CreateFSub(a, b_.CreateFSub(s, c)), b_.CreateFSub(b, c))};
}
ScalarMath::Sum ScalarMath::exact_product(V a, V b) {
  V p = b_.CreateFMul(a, b);
  return {p, fma(a, b, b_.CreateFNeg(p))};
}
ScalarMath::Sum ScalarMath::product(Sum a, Sum b) {
  Sum p = exact_product(a.high, b.high);
  return {p.high, fma(a.high, b.low, fma(a.low, b.high, p.low))};
}
ScalarMath::Sum ScalarMath::quotient(Sum a, Sum b) {
  V inverse = b_.CreateFDiv(real(1, b.high), b.high), q = b_.CreateFMul(a.high, inverse),
    back = b_.CreateFNeg(q);
  V left = b_.CreateFAdd(fma(back, b.high, a.high), fma(back, b.low, a.low));
  return {q, b_.CreateFMul(left, inverse)};
}

V ScalarMath::map(const char* helper, V x, V y) {
  bool wide = is_double(x);
  Type* shape = x->getType();
  x = widen(x);
  if (y) y = widen(y);
  auto* vector = dyn_cast<FixedVectorType>(shape);
  IRBuilder<> entry(&f_.getEntryBlock(), f_.getEntryBlock().begin());
  auto room = [&](V v) {
    auto* a = entry.CreateAlloca(v->getType());
    a->setAlignment(Align(64));
    b_.CreateAlignedStore(v, a, Align(64));
    return a;
  };
  V in = room(x), second = y ? room(y) : in;
  auto* type = FunctionType::get(b_.getVoidTy(), {b_.getPtrTy(), b_.getPtrTy(), b_.getInt64Ty()}, false);
  auto callee = f_.getParent()->getOrInsertFunction(helper, type);
  llvm::cast<Function>(callee.getCallee())->setDoesNotThrow();
  b_.CreateCall(callee, {in, second, b_.getInt64(vector ? vector->getNumElements() : 1)});
  V r = b_.CreateAlignedLoad(x->getType(), in, Align(64));
  return wide ? r : narrow(r);
}

// Lanes that are easy keep their value, so that it does not depend on their neighbours.
template <class F>
V ScalarMath::unless(V hard, V easy, F&& compute) {
  auto& context = f_.getContext();
  auto *from = b_.GetInsertBlock(), *slow = BasicBlock::Create(context, "slow", &f_),
       *next = BasicBlock::Create(context, "next", &f_);
  b_.CreateCondBr(any(hard), slow, next);
  b_.SetInsertPoint(slow);
  V r = select(hard, compute(), easy);
  auto* end = b_.GetInsertBlock();
  b_.CreateBr(next);
  b_.SetInsertPoint(next);
  auto* phi = b_.CreatePHI(easy->getType(), 2);
  phi->addIncoming(easy, from);
  phi->addIncoming(r, end);
  return phi;
}
V ScalarMath::unless(V hard, V easy, const char* helper, V x, V y) {
  return unless(hard, easy, [&] { return map(helper, x, y); });
}

// 2^k with k by steps of 1/16 is a power of two and an entry of a table: r is at most ln2/32, and what
// rounding loses in the polynomial is far below the result's last place.
ScalarMath::Power ScalarMath::power(V r, V low, V k, V index) {
  bool d = is_double(r);
  V point = d ? entry("power0_64", kPower64[0], index) : entry("power0", kPower32[0], index);
  V beyond = d ? entry("power1_64", kPower64[1], index) : entry("power1", kPower32[1], index);
  V z = b_.CreateFMul(r, r), c = d ? poly(r, kExp64) : poly(r, kExp32);
  if (!low) return {point, fma(z, c, r), beyond, k};
  return {point, r, fma(point, fma(z, c, low), fma(beyond, r, beyond)), k};
}

// Adding 1.5 * 2^(mantissa bits - 4) rounds to a multiple of 1/16, which is found in the sum's last bits.
ScalarMath::Power ScalarMath::exp_power(V x, V more, bool exact) {
  bool d = is_double(x);
  V magic = real(d ? 422212465065984.0 : 786432.0, x);
  V t = fma(x, real(1.4426950408889634, x), magic), k = b_.CreateFSub(t, magic);
  V high = fma(k, real(d ? -0.6931471787393093 : -0.693359375, x), x);  // exact
  V rest = real(d ? -1.8206359985041462e-09 : 2.1219444170128554e-4, x);
  V r = fma(k, rest, high), low = exact ? fma(k, rest, b_.CreateFSub(high, r)) : nullptr;
  if (more) {
    Sum moved = fast_sum(r, more);
    r = moved.high;
    low = low ? b_.CreateFAdd(low, moved.low) : moved.low;
  }
  return power(r, low, k, int_bits(t));
}

ScalarMath::Power ScalarMath::exp2_power(V x) {
  bool d = is_double(x);
  V magic = real(d ? 422212465065984.0 : 786432.0, x);
  V t = b_.CreateFAdd(x, magic), k = b_.CreateFSub(t, magic), rest = b_.CreateFSub(x, k);
  V ln2 = real(0.6931471805599453, x);
  if (!d) return power(b_.CreateFMul(rest, ln2), nullptr, k, int_bits(t));
  Sum r = exact_product(rest, ln2);
  return power(r.high, fma(rest, real(2.3190468138462996e-17, x), r.low), k, int_bits(t));
}

ScalarMath::Sum ScalarMath::sum(const Power& p) { return fast_sum(p.point, fma(p.point, p.r, p.rest)); }

// Is x a whole register of AVX-512?
bool ScalarMath::is_register(V x) {
  auto* v = dyn_cast<FixedVectorType>(x->getType());
  return avx512_ && v && v->getNumElements() * width(x) == 512;
}
V ScalarMath::all_lanes(V x) {
  unsigned lanes = llvm::cast<FixedVectorType>(x->getType())->getNumElements();
  return ConstantInt::getAllOnesValue(b_.getIntNTy(std::max(8u, lanes)));
}

// AVX-512 has an instruction; else two factors, each a normal number, so that a denormal result rounds once
// all the same.
V ScalarMath::scaled(V x, V k) {
  bool d = is_double(x);
  auto* v = dyn_cast<FixedVectorType>(x->getType());
  unsigned bits = v ? v->getNumElements() * width(x) : 0;
  if (avx512_ && bits == 1024) return by_halves(x, k, [&](V a, V b) { return scaled(a, b); });
  if (avx512_ && (bits == 512 || bits == 256)) {
    V all = all_lanes(x);
    if (bits == 256)
      return b_.CreateIntrinsic(d ? Intrinsic::x86_avx512_mask_scalef_pd_256
                                  : Intrinsic::x86_avx512_mask_scalef_ps_256,
                                {}, {x, k, x, all});
    return b_.CreateIntrinsic(d ? Intrinsic::x86_avx512_mask_scalef_pd_512
                                : Intrinsic::x86_avx512_mask_scalef_ps_512,
                              {}, {x, k, x, all, b_.getInt32(4)});  // rounding as set
  }
  V magic = real(d ? 422212465065984.0 : 786432.0, x);
  V n = b_.CreateSub(int_bits(b_.CreateFAdd(k, magic)), int_bits(magic));  // sixteenths
  V half = b_.CreateAShr(n, whole(5, x)), rest = b_.CreateSub(b_.CreateAShr(n, whole(4, x)), half);
  auto power = [&](V p) {
    return float_bits(b_.CreateShl(b_.CreateAdd(p, whole(d ? 1023 : 127, x)), whole(d ? 52 : 23, x)));
  };
  return b_.CreateFMul(b_.CreateFMul(x, power(half)), power(rest));
}

// A denormal result has fewer digits: there the sum is rounded, 2^64 higher, by adding a number with that
// last place. AVX2 rounds those twice: it has no instruction that tells them, and softmax would take a fifth
// more time.
V ScalarMath::scaled_once(Sum s, V k) {
  bool d = is_double(s.high);
  V x = s.high, v = scaled(rounded(s), k);
  if (!avx512_) return v;
  V denormal;
  if (is_register(x)) {
    auto classes = d ? Intrinsic::x86_avx512_fpclass_pd_512 : Intrinsic::x86_avx512_fpclass_ps_512;
    denormal = b_.CreateIntrinsic(classes, {}, {v, b_.getInt32(32)});
  } else {
    V a = fabs(v);
    V least = real(d ? 2.2250738585072014e-308 : 1.17549435e-38, x);
    denormal = b_.CreateAnd(b_.CreateFCmpOLT(a, least), b_.CreateFCmpOGT(a, real(0, x)));
  }
  return unless(denormal, v, [&] {
    V up = b_.CreateFAdd(k, real(64, x)),
      last = real(std::ldexp(1.0, d ? -1074 + 64 + 52 : -149 + 64 + 23), x);
    Sum t = fast_sum(last, scaled(s.high, up));
    V r = b_.CreateFSub(b_.CreateFAdd(t.high, b_.CreateFAdd(t.low, scaled(s.low, up))), last);
    return b_.CreateFMul(r, real(std::ldexp(1.0, -64), x));
  });
}

V ScalarMath::exp(V x) {
  bool d = is_double(x);
  Power p = exp_power(bounded(x, d ? -746 : -104.5, d ? 710 : 89), nullptr, d);
  return scaled_once({p.point, fma(p.point, p.r, p.rest)}, p.k);
}
V ScalarMath::exp_short(V x) {
  bool d = is_double(x);
  Power p = exp_power(bounded(x, d ? -746 : -104.5, d ? 710 : 89), nullptr, false);
  return scaled(b_.CreateFAdd(p.point, fma(p.point, p.r, p.rest)), p.k);
}
V ScalarMath::exp2(V x) {
  bool d = is_double(x);
  Power p = exp2_power(bounded(x, d ? -1080 : -155, d ? 1025 : 129));
  return scaled_once({p.point, fma(p.point, p.r, p.rest)}, p.k);
}

ScalarMath::Sum ScalarMath::half_expm1(V x) {
  Power p = exp_power(x);
  V k = b_.CreateFSub(p.k, real(1, x));
  Sum step = exact_product(p.point, p.r), from = exact_sum(scaled(p.point, k), real(-0.5, x));
  Sum s = fast_sum(from.high, scaled(step.high, k));
  V low = scaled(b_.CreateFAdd(step.low, p.rest), k);
  return fast_sum(s.high, b_.CreateFAdd(s.low, b_.CreateFAdd(from.low, low)));
}

V ScalarMath::expm1(V x) {  // float64
  V half = half_expm1(bounded(x, -746, 709.9)).high, r = b_.CreateFAdd(half, half);
  return select(b_.CreateFCmpOLT(fabs(x), real(1e-20, x)), x, r);
}

V ScalarMath::log_special(V x, V r) {
  if (is_register(x)) {
    bool d = is_double(x);
    auto* table = FixedVectorType::get(b_.getIntNTy(d ? 64 : 32), d ? 8 : 16);
    // What takes the place of r, 4 bits a class of x: a quiet NaN of a NaN, -inf of 0, NaN below, inf of inf.
    V classes = llvm::ConstantInt::get(table, 0x03530422);
    return b_.CreateIntrinsic(d ? Intrinsic::x86_avx512_mask_fixupimm_pd_512
                                : Intrinsic::x86_avx512_mask_fixupimm_ps_512,
                              {}, {r, x, classes, b_.getInt32(0), all_lanes(x), b_.getInt32(4)});
  }
  r = select(b_.CreateFCmpOEQ(x, real(kInf, x)), x, r);
  r = select(b_.CreateFCmpOEQ(x, real(0, x)), real(-kInf, x), r);
  return select(b_.CreateFCmpULT(x, real(0, x)), select(b_.CreateFCmpUNO(x, x), x, real(kNan, x)), r);
}

// x = 2^k m, m in [sqrt(1/2), sqrt(2)) of float32, in [3/4, 3/2) of float64.
V ScalarMath::mantissa(V x, V& k) {
  bool d = is_double(x);
  if (d && is_register(x)) {
    V all = all_lanes(x), as_set = b_.getInt32(4);
    V m = b_.CreateIntrinsic(Intrinsic::x86_avx512_mask_getmant_pd_512, {},
                             {x, b_.getInt32(3), x, all, as_set});
    k = b_.CreateIntrinsic(Intrinsic::x86_avx512_mask_getexp_pd_512, {}, {x, x, all, as_set});
    k = select(b_.CreateFCmpOLT(m, real(1, x)), b_.CreateFAdd(k, real(1, x)), k);
    return m;
  }
  int digits = d ? 52 : 23;
  double tiny = d ? 2.2250738585072014e-308 : 1.17549435e-38;
  int lift = d ? 54 : 25;
  V denormal = b_.CreateFCmpOLT(x, real(tiny, x));
  V y = select(denormal, b_.CreateFMul(x, real(std::ldexp(1.0, lift), x)), x);
  int64_t root = d ? 0x3fe8000000000000 : 0x3f3504f3;  // 3/4, sqrt(1/2)
  V bits = b_.CreateSub(int_bits(y), whole(root, x));
  V e = b_.CreateAShr(bits, whole(digits, x));
  V m = float_bits(b_.CreateAdd(b_.CreateAnd(bits, whole((int64_t(1) << digits) - 1, x)), whole(root, x)));
  // The exponent as a floating number without a conversion (AVX2 has none from 64-bit integers).
  V magic = real(d ? 6755399441055744.0 : 12582912.0, x);
  k = b_.CreateFSub(float_bits(b_.CreateAdd(e, int_bits(magic))), magic);
  k = select(denormal, b_.CreateFSub(k, real(lift, x)), k);
  return m;
}

V ScalarMath::log_short(V x) {
  bool d = is_double(x);
  V k, m = mantissa(x, k), r;
  if (d) {
    V index = log_index(m), f = fma(m, entry("logarithm0_64", kLogarithm64[0], index), real(-1, x));
    V point = fma(k, real(0.6931471787393093, x), entry("logarithm1_64", kLogarithm64[1], index));  // exact
    V low = fma(k, real(1.8206359985041462e-09, x), entry("logarithm2_64", kLogarithm64[2], index));
    V square = b_.CreateFMul(f, f);
    low = fma(square, fma(f, poly(f, kLog64), real(-0.5, x)), low);
    Sum s = fast_sum(point, f);
    r = b_.CreateFAdd(s.high, b_.CreateFAdd(s.low, low));
  } else {
    V f = b_.CreateFSub(m, real(1, x)), z = b_.CreateFMul(f, f);
    V p = poly(f, {0.333333313, -0.24999997, 0.200007156, -0.166678026, 0.142490536, -0.12425676, 0.116854429,
                   -0.114798367, 0.0697168112});
    V low = fma(b_.CreateFMul(f, z), p, b_.CreateFMul(k, real(-2.1219444170128554e-4, x)));
    low = fma(z, real(-0.5, x), low);
    r = fma(k, real(0.693359375, x), b_.CreateFAdd(f, low));
  }
  return log_special(x, r);
}

// m by the reciprocal of the nearest j/16 is 1 + f; near 1 it is m itself. Then log(1 + f) = f - f^2 / 2 +
// f^3 (...), where only the first two terms' rounding would be seen.
V ScalarMath::log_index(V m) { return int_bits(b_.CreateFAdd(m, real(422212465065984.0, m))); }
ScalarMath::Sum ScalarMath::log_sum(V x) {
  V k, m = mantissa(x, k), index = log_index(m);
  Sum p = exact_product(m, entry("logarithm0_64", kLogarithm64[0], index));
  Sum f = fast_sum(b_.CreateFSub(p.high, real(1, x)), p.low);
  Sum square = exact_product(b_.CreateFMul(f.high, real(-0.5, x)), f.high);
  V point = fma(k, real(0.6931471787393093, x), entry("logarithm1_64", kLogarithm64[1], index));  // exact
  Sum s = fast_sum(point, f.high), t = fast_sum(s.high, square.high);
  V low = fma(k, real(1.8206359985041462e-09, x), entry("logarithm2_64", kLogarithm64[2], index));
  low = b_.CreateFAdd(low, fma(b_.CreateFNeg(f.low), f.high, f.low));
  low = b_.CreateFAdd(low, b_.CreateFAdd(square.low, b_.CreateFAdd(s.low, t.low)));
  V cube = b_.CreateFMul(b_.CreateFMul(square.high, real(-2, x)), f.high);
  return fast_sum(t.high, fma(cube, poly(f.high, kLog64), low));
}
V ScalarMath::log(V x) { return is_double(x) ? log_special(x, rounded(log_sum(x))) : log_short(x); }
V ScalarMath::log_to(V x, double factor, double rest) {
  return log_special(x, rounded(product(log_sum(x), {real(factor, x), real(rest, x)})));
}

// exp(-|x|) / (1 + exp(-|x|)) or 1 / (1 + exp(-|x|)), where the quotient is corrected by its remainder and by
// what the exponential and the sum lost in rounding.
ScalarMath::Sum ScalarMath::sigmoid_exact(V x) {
  V one = real(1, x), a = fabs(x), most = real(is_double(x) ? 746 : 104.5, x);
  a = select(b_.CreateFCmpOGT(a, most), most, a);
  Power power = exp_power(b_.CreateFNeg(a));
  Sum p = sum(power);
  V e = scaled(p.high, power.k), lost = scaled(p.low, power.k);
  V sum = b_.CreateFAdd(e, one), low = b_.CreateFAdd(b_.CreateFSub(e, b_.CreateFSub(sum, one)), lost);
  V inverse = b_.CreateFDiv(one, sum);
  V positive = b_.CreateFCmpOGE(x, real(0, x));
  V top = select(positive, one, e);
  V q = b_.CreateFMul(top, inverse);
  V left = b_.CreateFAdd(fma(b_.CreateFNeg(q), sum, top), select(positive, real(0, x), lost));
  return {q, b_.CreateFMul(fma(b_.CreateFNeg(q), low, left), inverse)};
}

// row[index], by the index's low bits in a row of 16 or 32: out of registers where they hold the row.
template <class T>
V ScalarMath::looked_up(const char* name, std::span<const T> row, V index) {
  auto& context = f_.getContext();
  V like = index;
  auto* lanes = dyn_cast<FixedVectorType>(like->getType());
  unsigned bits = lanes ? lanes->getNumElements() * unsigned(sizeof(T)) * 8 : 0;
  auto part = [&](size_t from, size_t count) {
    return ConstantDataVector::get(context, ArrayRef<T>(row.data() + from, count));
  };
  if (avx512_ && bits == 1024 && row.size() == 16)
    return by_halves(index, nullptr, [&](V half, V) { return looked_up(name, row, half); });
  if (avx512_ && bits == 512 && sizeof(T) == 4 && row.size() == 16)
    return b_.CreateIntrinsic(Intrinsic::x86_avx512_permvar_sf_512, {}, {part(0, 16), index});
  if (avx512_ && bits == 512 && sizeof(T) == 4 && row.size() == 32)
    return b_.CreateIntrinsic(Intrinsic::x86_avx512_vpermi2var_ps_512, {},
                              {part(0, 16), index, part(16, 16)});
  if (avx512_ && bits == 512 && sizeof(T) == 8 && row.size() == 16)
    return b_.CreateIntrinsic(Intrinsic::x86_avx512_vpermi2var_pd_512, {}, {part(0, 8), index, part(8, 8)});
  if (bits == 256 && sizeof(T) == 4 && row.size() == 16) {
    auto pick = [&](size_t from) {
      return b_.CreateIntrinsic(Intrinsic::x86_avx2_permps, {}, {part(from, 8), index});
    };
    V upper = b_.CreateICmpSLT(b_.CreateShl(index, whole(28, index)), whole(0, index));
    return select(upper, pick(8), pick(0));
  }
  auto& module = *f_.getParent();
  auto* table = module.getGlobalVariable(name, true);
  if (!table) {
    auto* values = ConstantDataArray::get(context, ArrayRef<T>(row.data(), row.size()));
    table = new GlobalVariable(module, values->getType(), true, GlobalValue::PrivateLinkage, values, name);
    table->setAlignment(Align(64));
  }
  Type* element = sizeof(T) == 4 ? b_.getFloatTy() : b_.getDoubleTy();
  index = row.size() <= 32
              ? b_.CreateAnd(index, whole(int64_t(row.size()) - 1, index))
              : b_.CreateBinaryIntrinsic(Intrinsic::umin, index, whole(int64_t(row.size()) - 1, index));
  V at = b_.CreateGEP(element, table, b_.CreateZExt(index, shaped(b_.getInt64Ty(), like->getType())));
  auto* v = dyn_cast<FixedVectorType>(like->getType());
  if (!v) return b_.CreateAlignedLoad(element, at, Align(sizeof(T)));
  return b_.CreateMaskedGather(FixedVectorType::get(element, v->getNumElements()), at, Align(sizeof(T)));
}
V ScalarMath::entry(const char* name, std::span<const float> row, V index) {
  return looked_up(name, row, index);
}
V ScalarMath::entry(const char* name, std::span<const double> row, V index) {
  return looked_up(name, row, index);
}

template <class T, size_t rows, size_t entries>
V ScalarMath::entry(const char* name, const T (&table)[rows][entries], size_t k, V index) {
  return entry((name + std::to_string(k)).c_str(), table[k], index);
}

// exp(-a^2 / 2) g(a) with g from a table of polynomials (llvm_tables.py), so that neither factor cancels. The
// square is exact: what its rounding loses goes into the exponential's reduced argument.
ScalarMath::Sum ScalarMath::normal_tail_sum(V a, bool of_erfc, V& k) {
  bool d = is_double(a);
  V most = real(d ? (of_erfc ? 28 : 40) : (of_erfc ? 10.6 : 14.99), a);
  a = select(b_.CreateFCmpOLT(a, most), a, most);
  Sum square = exact_product(a, a);
  double half = of_erfc ? 1 : 0.5;
  Power p = exp_power(b_.CreateFMul(square.high, real(-half, a)), b_.CreateFMul(square.low, real(-half, a)));
  // g's argument: a, or a sqrt 2 as the sum of two products.
  constexpr double kRoot = 1.4142135623730951, kRootRest = -9.667293313452913e-17;
  double high = of_erfc ? (d ? kRoot : double(float(kRoot))) : 1,
         rest = of_erfc ? (d ? kRootRest : kRoot - double(float(kRoot))) : 0;
  V u = fma(a, real(high, a), real(1, a));
  V index =
      b_.CreateSub(b_.CreateLShr(int_bits(u), whole(d ? 48 : 20, a)), whole(d ? 1023 * 16 : 127 * 8, a));
  auto row = [&](int k) {
    return d ? entry("tail_64_", kTail64, size_t(k), index) : entry("tail", kTail32, size_t(k), index);
  };
  V x = of_erfc ? fma(a, real(high, a), b_.CreateFNeg(row(0))) : b_.CreateFSub(a, row(0));
  if (of_erfc) x = fma(a, real(rest, a), x);
  int degree = int(d ? std::size(kTail64) : std::size(kTail32)) - 2;
  V s = row(degree + 1);
  for (int k = degree; k >= 2; --k) s = fma(s, x, row(k));
  s = b_.CreateFMul(s, x);
  V g0 = row(1), g = b_.CreateFAdd(s, g0);
  // (point + q) (g0 + s), the largest term last.
  k = of_erfc ? b_.CreateFAdd(p.k, real(1, a)) : p.k;
  V q = fma(p.point, p.r, p.rest);
  Sum first = exact_product(p.point, g0);
  return fast_sum(first.high, fma(p.point, s, fma(q, g, first.low)));
}
ScalarMath::Sum ScalarMath::normal_tail(V a, bool of_erfc) {
  V k;
  Sum s = normal_tail_sum(a, of_erfc, k);
  return {scaled(s.high, k), scaled(s.low, k)};
}

// 1 - f where x is not negative, else f. |f| <= 1/2, so that what the difference loses is known exactly.
ScalarMath::Sum ScalarMath::complement(V x, Sum f) {
  V one = real(1, x), negative = b_.CreateFCmpOLT(x, real(0, x)), high = b_.CreateFSub(one, f.high);
  V low = b_.CreateFSub(b_.CreateFSub(b_.CreateFSub(one, high), f.high), f.low);
  return {select(negative, f.high, high), select(negative, f.low, low)};
}
ScalarMath::Sum ScalarMath::ndtr(V x) {
  Sum r = complement(x, normal_tail(fabs(x), false));
  return {select(b_.CreateFCmpUNO(x, x), x, r.high), r.low};
}

// x (high + low) with high >= 0, rounding once; infinite and NaN as x * high is, with x's sign if 0.
V ScalarMath::times(V x, Sum f) {
  V product = b_.CreateFMul(x, f.high), lost = fma(x, f.high, b_.CreateFNeg(product));
  V r = b_.CreateFAdd(product, fma(x, f.low, lost));
  r = select(b_.CreateFCmpOLT(fabs(product), real(kInf, x)), r, product);
  return float_bits(b_.CreateOr(int_bits(r), b_.CreateAnd(int_bits(x), sign_bit(x))));
}

template <class T, size_t rows, size_t entries>
ScalarMath::Piece ScalarMath::piece(const char* name, const T (&table)[rows][entries], V x, V index) {
  auto row = [&](size_t k) { return entry(name, table, k, index); };
  V t = b_.CreateFSub(x, row(0)), slope = row(rows - 1);
  for (size_t k = rows - 2; k > 1; --k) slope = fma(slope, t, row(k));
  return {row(1), slope, t};
}

// (exp(2a) - 1) / (exp(2a) + 1); of float32 a polynomial of the interval where a + 1 is, whose linear
// terms are added exactly.
V ScalarMath::tanh(V x) {
  bool d = is_double(x);
  V a = fabs(x), most = real(d ? 20 : 9.02, x), r;
  a = select(b_.CreateFCmpOGT(a, most), most, a);
  if (d) {
    Sum top = half_expm1(b_.CreateFAdd(a, a)), bottom = exact_sum(top.high, real(1, x));
    r = rounded(quotient(top, {bottom.high, b_.CreateFAdd(bottom.low, top.low)}));
    r = select(b_.CreateFCmpOLT(a, real(1e-20, x)), a, r);
  } else {
    V index = b_.CreateLShr(int_bits(b_.CreateFAdd(a, real(1, x))), whole(21, x));
    index = b_.CreateSub(index, whole(127 * 4, x));
    auto row = [&](size_t k) { return entry("tanh", kTanh32, k, index); };
    V t = b_.CreateFSub(a, row(0)), value = row(1), slope = row(2), rest = row(std::size(kTanh32) - 1);
    for (size_t k = std::size(kTanh32) - 2; k > 2; --k) rest = fma(rest, t, row(k));
    V s = fma(slope, t, value), lost = fma(slope, t, b_.CreateFSub(value, s));
    r = b_.CreateFAdd(s, fma(b_.CreateFMul(t, t), rest, lost));
  }
  return copysign(r, x);
}

// In float32 f(x) = 1 - f(-x), f(-|x|) by a polynomial of the interval where |x| is; far out by the longer
// way.
V ScalarMath::reflected(V x, bool of_sigmoid, bool times_x) {
  auto exact = [&] {
    Sum r = of_sigmoid ? sigmoid_exact(x) : ndtr(x);
    return times_x ? times(x, r) : b_.CreateFAdd(r.high, r.low);
  };
  if (is_double(x)) return exact();
  double scale = of_sigmoid ? 3 : 7;
  V a = fabs(x), index = int_bits(fma(a, real(scale, x), real(12582912.0, x)));
  Piece p = of_sigmoid ? piece("sigmoid", kSigmoid32, a, index) : piece("normal", kNormal32, a, index);
  V r;
  if (times_x) {
    r = times(x, complement(x, {p.constant, b_.CreateFMul(p.slope, p.t)}));
  } else {
    r = fma(p.slope, p.t, p.constant);
    r = select(b_.CreateFCmpOLT(x, real(0, x)), r, b_.CreateFSub(real(1, x), r));
  }
  return unless(b_.CreateNot(b_.CreateFCmpOLT(a, real(31.4 / scale, x))), r, exact);
}
V ScalarMath::sigmoid(V x) { return reflected(x, true, false); }
V ScalarMath::times_own(Fn f, V x) { return reflected(x, f == Fn::sigmoid, true); }

// Odd polynomial near zero; beyond, 1 - erfc(|x|).
V ScalarMath::erf(V x) {
  bool d = is_double(x);
  V a = fabs(x), z = b_.CreateFMul(x, x);
  V small = d ? poly(z, kErf64) : poly(z, kErf32);
  small = fma(small, a, a);
  V large = rounded(complement(a, normal_tail(a, true)));
  V r = copysign(select(b_.CreateFCmpOLT(a, real(0.45, x)), small, large), x);
  return select(b_.CreateFCmpUNO(x, x), x, r);
}

// |x| times a polynomial of the interval where 1 - |x| is; nearer to 1 by the root of -log(1 - x^2).
V ScalarMath::erfinv(V x) {
  bool d = is_double(x);
  V a = fabs(x), one = real(1, x);
  // 1 itself belongs to what is below it.
  V index = b_.CreateLShr(b_.CreateSub(int_bits(b_.CreateFSub(one, a)), whole(1, x)), whole(d ? 51 : 21, x));
  Piece p =
      d ? piece("inverse_erf_64_", kInverseErf64, a, index) : piece("inverse_erf", kInverseErf32, a, index);
  Sum s{p.constant, b_.CreateFMul(p.slope, p.t)};
  // Of the others products may be subnormal, or their low parts. One comparison finds both, and NaN.
  V least = int_bits(real(0x1p-100, x)), most = int_bits(real(1 - 1.0 / 256, x));
  V hard = b_.CreateICmpUGE(b_.CreateSub(int_bits(a), least), b_.CreateSub(most, least));
  V r = unless(hard, fma(a, s.high, b_.CreateFMul(a, s.low)), [&] {
    Sum above = fast_sum(one, a), left = exact_product(b_.CreateFSub(one, a), above.high), w;
    if (d) {
      w = log_sum(left.high);
    } else {
      V l = log_short(widen(left.high));
      w.high = narrow(l);
      w.low = narrow(b_.CreateFSub(l, widen(w.high)));
    }
    left.low = fma(b_.CreateFSub(one, a), above.low, left.low);
    w.low = b_.CreateFAdd(w.low, b_.CreateFDiv(left.low, left.high));
    w = {b_.CreateFNeg(w.high), b_.CreateFNeg(w.low)};
    V r = b_.CreateUnaryIntrinsic(Intrinsic::sqrt, w.high);
    V lost = b_.CreateFDiv(b_.CreateFAdd(fma(b_.CreateFNeg(r), r, w.high), w.low), b_.CreateFAdd(r, r));
    V nearest = int_bits(fma(r, real(4, x), real(d ? 6755399441055744.0 : 12582912.0, x)));
    Piece q = d ? piece("inverse_erf_far_64_", kInverseErfFar64, r, nearest)
                : piece("inverse_erf_far", kInverseErfFar32, r, nearest);
    Sum far{q.constant, b_.CreateFMul(q.slope, q.t)};
    far.low = b_.CreateFAdd(far.low, lost);  // the slope is nearly 1
    V beyond = select(b_.CreateFCmpOEQ(a, one), real(kInf, x), real(kNan, x));
    V high = b_.CreateFMul(a, real(0x1p64, x));
    Sum product = exact_product(high, s.high);
    product = fast_sum(product.high, fma(high, s.low, product.low));
    V up = scaled_once(product, real(-64, x));
    V tiny = b_.CreateFCmpOLT(a, real(0x1p-100, x));
    return select(tiny, up, select(b_.CreateFCmpOLT(a, one), rounded(far), beyond));
  });
  return copysign(r, x);
}

// x - n pi/2 in two steps, exact enough while n < 2^30.
V ScalarMath::reduce_pi(V x, V& quadrant) {
  V magic = real(6755399441055744.0, x);
  V t = fma(x, real(0.63661977236758134, x), magic);
  V k = b_.CreateFSub(t, magic);
  quadrant = int_bits(t);
  return fma(k, real(-6.123233995736766e-17, x), fma(k, real(-1.5707963267948966, x), x));
}

V ScalarMath::sin_cos(V x, int shift) {
  V quadrant;
  V r = reduce_pi(x, quadrant);
  V z = b_.CreateFMul(r, r);
  V s = b_.CreateFMul(r, poly(z, {1, -0.16666666666666666, 0.0083333333333333315, -0.00019841269841264941,
                                  2.7557319219243677e-06, -2.5052106199361816e-08, 1.6058526388141905e-10,
                                  -7.5863895546954418e-13}));
  V c = fma(b_.CreateFMul(z, z),
            poly(z, {0.041666666666666664, -0.0013888888888888887, 2.4801587301584578e-05,
                     -2.7557319221349705e-07, 2.0876755772676989e-09, -1.1470457978267159e-11,
                     4.7457008479358709e-14}),
            fma(z, real(-0.5, x), real(1, x)));
  quadrant = b_.CreateAdd(quadrant, whole(shift, x));
  V odd = b_.CreateICmpNE(b_.CreateAnd(quadrant, whole(1, x)), whole(0, x));
  V sign = b_.CreateShl(b_.CreateAnd(quadrant, whole(2, x)), whole(62, x));
  return float_bits(b_.CreateXor(int_bits(select(odd, c, s)), sign));
}

// x - n pi/2, n < 2^40. The first product cancels exactly; pi/2 is known to 160 bits.
ScalarMath::Angle ScalarMath::reduce_pi_exactly(V x) {
  V magic = real(6755399441055744.0, x), t = fma(x, real(0.63661977236758134, x), magic);
  V k = b_.CreateFSub(t, magic);
  V first = fma(k, real(-1.5707963267948966, x), x);
  Sum second = exact_product(k, real(-6.123233995736766e-17, x)), r = exact_sum(first, second.high);
  V low = fma(k, real(1.4973849048591698e-33, x), b_.CreateFAdd(r.low, second.low));
  return {fast_sum(r.high, low), int_bits(t)};
}

// sin of the angle, or of that many quarters more: the nearest j/16 is c, d the distance. sin(c + d) =
// sin c + cos c d + sin c (cos d - 1) + cos c (sin d - d), and cos(c + d) likewise with -sin c for cos c.
ScalarMath::Sum ScalarMath::sin_cos(const Angle& angle, int shift) {
  V r = angle.rest.high, quadrant = b_.CreateAdd(angle.quadrant, whole(shift, r));
  V odd = b_.CreateICmpNE(b_.CreateAnd(quadrant, whole(1, r)), whole(0, r));
  V sign = b_.CreateAnd(int_bits(r), whole(std::numeric_limits<int64_t>::min(), r));
  auto flipped = [&](V v, V bits) { return float_bits(b_.CreateXor(int_bits(v), bits)); };
  V magic = real(422212465065984.0, r), a = fabs(r), t = b_.CreateFAdd(a, magic), index = int_bits(t);
  Sum d = fast_sum(b_.CreateFSub(a, b_.CreateFSub(t, magic)), flipped(angle.rest.low, sign));
  V s = entry("sine0_64", kSine64[0], index), sl = entry("sine1_64", kSine64[1], index);
  V c = entry("cosine0_64", kCosine64[0], index), cl = entry("cosine1_64", kCosine64[1], index);
  V f = select(odd, c, s), fl = select(odd, cl, sl);
  V g = select(odd, b_.CreateFNeg(s), c), gl = select(odd, b_.CreateFNeg(sl), cl);
  V z = b_.CreateFMul(d.high, d.high), cube = b_.CreateFMul(z, d.high);
  Sum step = exact_product(g, d.high), top = fast_sum(f, step.high);
  V curved = fma(g, fma(cube, poly(z, kSin64), d.low), fma(gl, d.high, fl));
  V low = fma(f, b_.CreateFMul(z, poly(z, kCos64)), b_.CreateFAdd(curved, b_.CreateFAdd(step.low, top.low)));
  V turned = b_.CreateShl(b_.CreateAnd(quadrant, whole(2, r)), whole(62, r));
  sign = b_.CreateXor(turned, select(odd, whole(0, r), sign));
  return {flipped(top.high, sign), flipped(low, sign)};
}

V ScalarMath::trigonometric(Fn f, V x) {
  V hard = b_.CreateNot(b_.CreateFCmpOLT(fabs(x), real(1099511627776.0, x)));
  Angle a = reduce_pi_exactly(x);
  V r;
  if (f == Fn::tan) {
    Sum top = sin_cos(a, 0), bottom = sin_cos(a, 1);
    r = rounded(quotient(fast_sum(top.high, top.low), fast_sum(bottom.high, bottom.low)));
  } else {
    r = rounded(sin_cos(a, f == Fn::cos));
  }
  if (f != Fn::cos) r = select(b_.CreateFCmpOEQ(x, real(0, x)), x, r);  // -0
  return unless(hard, r, ("facula_map_" + std::string(loop::name(f))).c_str(), x);
}

// t = |x| or 1 / |x|, the nearest j/16 is c: atan t = atan c + atan((t - c) / (1 + c t)).
V ScalarMath::atan(V x) {
  V a = bounded(fabs(x), 0, 1e18), one = real(1, x), big = b_.CreateFCmpOGT(a, one);
  V longer = select(big, a, one), shorter = select(big, one, a);
  V near = bounded(b_.CreateFDiv(shorter, longer), 0, 0.9375), magic = real(422212465065984.0, x);
  V t = b_.CreateFAdd(near, magic), c = b_.CreateFSub(t, magic), index = int_bits(t);
  Sum top = exact_product(c, longer), across = exact_product(c, shorter),
      bottom = fast_sum(longer, across.high);
  Sum q = quotient({b_.CreateFSub(shorter, top.high), b_.CreateFNeg(top.low)},
                   {bottom.high, b_.CreateFAdd(bottom.low, across.low)});
  V z = b_.CreateFMul(q.high, q.high);
  V low = fma(b_.CreateFMul(z, q.high), poly(z, kAtan64),
              b_.CreateFAdd(q.low, entry("arc1_64", kArc64[1], index)));
  Sum s = fast_sum(entry("arc0_64", kArc64[0], index), q.high);
  low = b_.CreateFAdd(low, s.low);
  Sum rest = fast_sum(real(1.5707963267948966, x), b_.CreateFNeg(s.high));
  V beyond = b_.CreateFAdd(rest.low, b_.CreateFSub(real(6.123233995736766e-17, x), low));
  return copysign(b_.CreateFAdd(select(big, rest.high, s.high), select(big, beyond, low)), x);
}

V ScalarMath::tan(V x) { return b_.CreateFDiv(sin_cos(x, 0), sin_cos(x, 1)); }

V ScalarMath::atan64(V x) {  // 1e-12: for float32 results
  V a = fabs(x);
  V big = b_.CreateFCmpOGT(a, real(1, x));
  V t = select(big, b_.CreateFDiv(real(1, x), a), a);
  V z = b_.CreateFMul(t, t);
  V p = b_.CreateFMul(t, poly(z, {0.99999999999971001, -0.3333333332025471, 0.1999999901342103,
                                  -0.14285684661254053, 0.11110640790649381, -0.090863606607273315,
                                  0.076631773577540779, -0.065362288118493733, 0.054582394542429476,
                                  -0.042324616793255394, 0.028410612112699588, -0.01523249190907656,
                                  0.0059363765964521222, -0.0014666686334116588, 0.00017046040466188239}));
  return copysign(select(big, b_.CreateFSub(real(1.5707963267948966, x), p), p), x);
}

V ScalarMath::max(V a, V b) {
  V m = select(b_.CreateFCmpOGT(a, b), a, b);
  return select(b_.CreateFCmpUNO(a, a), a, m);
}
V ScalarMath::min(V a, V b) {
  V m = select(b_.CreateFCmpOLT(a, b), a, b);
  return select(b_.CreateFCmpUNO(a, a), a, m);
}

V ScalarMath::opposite_signs(V m, V y) {
  V zero = real(0, m);
  return b_.CreateAnd(b_.CreateFCmpONE(m, zero),
                      b_.CreateXor(b_.CreateFCmpOLT(m, zero), b_.CreateFCmpOLT(y, zero)));
}

// Exact: the truncated quotient is right or one too large in magnitude, and the remainder is representable.
V ScalarMath::fmod(V x, V y) {
  bool d = is_double(x);
  V a = fabs(x), m = fabs(y);
  V q = b_.CreateFDiv(a, m);
  V k = b_.CreateUnaryIntrinsic(Intrinsic::trunc, q);
  V r = fma(b_.CreateFNeg(k), m, a);
  r = select(b_.CreateFCmpOLT(r, real(0, x)), b_.CreateFAdd(r, m), r);
  r = copysign(r, x);
  V easy = b_.CreateAnd(b_.CreateFCmpOLT(q, real(d ? 4503599627370496.0 : 4194304.0, x)),
                        b_.CreateFCmpOLT(m, real(kInf, x)));
  return unless(b_.CreateNot(easy), r, "facula_map_fmod", x, y);
}

// |x| / |y| truncated is right or one too large, which the exact remainder tells; the sign comes last.
V ScalarMath::floordiv(V x, V y) {
  V a = fabs(x), m = fabs(y), one = real(1, x), zero = real(0, x), q = b_.CreateFDiv(a, m);
  V k = b_.CreateUnaryIntrinsic(Intrinsic::trunc, q), r = fma(b_.CreateFNeg(k), m, a);
  V over = b_.CreateFCmpOLT(r, zero);
  k = select(over, b_.CreateFSub(k, one), k);
  V sign = b_.CreateAnd(b_.CreateXor(int_bits(x), int_bits(y)), sign_bit(x));
  V down = b_.CreateAnd(b_.CreateICmpNE(sign, whole(0, x)),
                        b_.CreateFCmpONE(r, select(over, b_.CreateFNeg(m), zero)));
  k = select(down, b_.CreateFAdd(k, one), k);
  V easy = b_.CreateAnd(b_.CreateFCmpOLT(q, real(is_double(x) ? 4503599627370496.0 : 4194304.0, x)),
                        b_.CreateFCmpOLT(m, real(kInf, x)));
  return unless(b_.CreateNot(easy), float_bits(b_.CreateOr(int_bits(k), sign)), [&] {
    V rest = map("facula_map_fmod", x, y), quotient = b_.CreateFDiv(x, y);
    V p = b_.CreateFDiv(b_.CreateFSub(x, rest), y);
    p = select(opposite_signs(rest, y), b_.CreateFSub(p, one), p);
    V f = b_.CreateUnaryIntrinsic(Intrinsic::floor, p);
    f = select(b_.CreateFCmpOGT(b_.CreateFSub(p, f), real(0.5, x)), b_.CreateFAdd(f, one), f);
    f = select(b_.CreateFCmpOEQ(p, zero), copysign(zero, quotient), f);
    return select(b_.CreateFCmpOEQ(y, zero), quotient, f);
  });
}

// Small exponents, which most programs have, are products, quotients and roots; each lane goes by its own.
V ScalarMath::pow(V x, V y) {
  V square = b_.CreateFMul(x, x), one = real(1, x);
  auto is = [&](double exponent) { return b_.CreateFCmpOEQ(y, real(exponent, y)); };
  auto otherwise = [&](V easy, V value, auto&& next) { return unless(b_.CreateNot(easy), value, next); };
  V positive = b_.CreateFCmpOGT(x, real(0, x));
  auto root = [&] { return b_.CreateUnaryIntrinsic(Intrinsic::sqrt, x); };
  return otherwise(is(2), square, [&] {
    return otherwise(is(1), x, [&] {
      return otherwise(is(3), b_.CreateFMul(square, x), [&] {
        return otherwise(is(-1), b_.CreateFDiv(one, x), [&] {
          return otherwise(b_.CreateAnd(is(0.5), positive), root(), [&] {
            return otherwise(b_.CreateAnd(is(-0.5), positive), b_.CreateFDiv(one, root()),
                             [&] { return any_pow(x, y); });
          });
        });
      });
    });
  });
}

V ScalarMath::any_pow(V x, V y) {
  if (is_double(x)) return map("facula_map_pow", x, y);
  V a = fabs(x), w = widen(y);
  V p = narrow(exp_short(b_.CreateFMul(w, log_short(widen(a)))));
  // A negative base has whole exponents only; its odd powers are negative.
  auto whole = [&](V e) { return b_.CreateFCmpOEQ(b_.CreateUnaryIntrinsic(Intrinsic::trunc, e), e); };
  V odd = b_.CreateNot(whole(b_.CreateFMul(y, real(0.5, y))));
  V signed_power = select(whole(y), select(odd, b_.CreateFNeg(p), p), real(kNan, x));
  p = select(b_.CreateFCmpOLT(x, real(0, x)), signed_power, p);
  // Easy: a finite base other than zero and a finite exponent; the rest has many special cases.
  V easy = b_.CreateAnd(b_.CreateFCmpOGT(a, real(0, x)), b_.CreateFCmpOLT(a, real(kInf, x)));
  easy = b_.CreateAnd(easy, b_.CreateFCmpOLT(fabs(y), real(kInf, y)));
  return unless(b_.CreateNot(easy), p, "facula_map_pow", x, y);
}

V ScalarMath::atan2(V y, V x) {
  if (is_double(x)) return map("facula_map_atan2", y, x);
  V wy = widen(y), wx = widen(x), ay = fabs(wy), ax = fabs(wx);
  V q = atan64(b_.CreateFDiv(ay, ax));
  q = select(b_.CreateFCmpOLT(wx, real(0, wx)), b_.CreateFSub(real(3.141592653589793, wx), q), q);
  V r = narrow(copysign(q, wy));
  auto proper = [&](V v) {
    return b_.CreateAnd(b_.CreateFCmpOGT(v, real(0, v)), b_.CreateFCmpOLT(v, real(kInf, v)));
  };
  return unless(b_.CreateNot(b_.CreateAnd(proper(ay), proper(ax))), r, "facula_map_atan2", y, x);
}

V ScalarMath::floating(Fn f, V x) {
  bool d = is_double(x);
  V one = real(1, x), zero = real(0, x);
  auto series = [&](V w, double limit, V exact,
                    V near) {  // of odd functions that cancel near zero, in float64
    return narrow(select(b_.CreateFCmpOLT(fabs(w), real(limit, w)), near, exact));
  };
  auto hard_angle = [&](V v) { return b_.CreateNot(b_.CreateFCmpOLT(fabs(v), real(1073741824.0, v))); };
  switch (f) {
    case Fn::neg: return b_.CreateFNeg(x);
    case Fn::abs: return fabs(x);
    case Fn::sign:
      return select(b_.CreateFCmpOGT(x, zero), one, select(b_.CreateFCmpOLT(x, zero), real(-1, x), zero));
    case Fn::floor: return b_.CreateUnaryIntrinsic(Intrinsic::floor, x);
    case Fn::ceil: return b_.CreateUnaryIntrinsic(Intrinsic::ceil, x);
    case Fn::trunc: return b_.CreateUnaryIntrinsic(Intrinsic::trunc, x);
    case Fn::round: return b_.CreateUnaryIntrinsic(Intrinsic::roundeven, x);
    case Fn::sqrt: return b_.CreateUnaryIntrinsic(Intrinsic::sqrt, x);
    case Fn::rsqrt: return b_.CreateFDiv(one, b_.CreateUnaryIntrinsic(Intrinsic::sqrt, x));
    case Fn::reciprocal: return b_.CreateFDiv(one, x);
    case Fn::relu: return select(b_.CreateFCmpOLT(x, zero), zero, x);
    case Fn::isnan: return b_.CreateFCmpUNO(x, x);
    case Fn::isinf: return b_.CreateFCmpOEQ(fabs(x), real(kInf, x));
    case Fn::real:
    case Fn::conj: return x;
    case Fn::imag: return zero;
    case Fn::exp: return exp(x);
    case Fn::exp2: return exp2(x);
    case Fn::log: return log(x);
    case Fn::sigmoid: return sigmoid(x);
    case Fn::tanh: return tanh(x);
    case Fn::erf: return erf(x);
    case Fn::erfinv: return erfinv(x);
    case Fn::ndtr: return reflected(x, false, false);
    case Fn::erfc: {
      V k;
      Sum tail = normal_tail_sum(fabs(x), true, k);
      Sum rest = fast_sum(real(2, x), b_.CreateFNeg(scaled(tail.high, k)));
      V r = select(b_.CreateFCmpOGE(x, zero), scaled_once(tail, k),
                   b_.CreateFAdd(rest.high, b_.CreateFSub(rest.low, scaled(tail.low, k))));
      return select(b_.CreateFCmpUNO(x, x), x, r);
    }
#define FACULA_FN(n, a, r, u) case Fn::n: return map("facula_map_" #n, x);
      FACULA_MAPPED_UNARY(FACULA_FN)
#undef FACULA_FN
    default: break;
  }
  if (d) {
    switch (f) {
#define FACULA_MAP(n, far) case Fn::n: return map("facula_map_" #n, x);
      FACULA_UNARY_MAPS(FACULA_MAP)
#undef FACULA_MAP
      case Fn::expm1: return expm1(x);
      case Fn::log2: return log_to(x, 1.4426950408889634, 2.0355273740931033e-17);
      case Fn::log10: return log_to(x, 0.4342944819032518, 1.098319650216765e-17);
      case Fn::sin:
      case Fn::cos:
      case Fn::tan: return trigonometric(f, x);
      case Fn::atan: return atan(x);
      default: break;
    }
  } else {
    V w = widen(x), a = fabs(w), w1 = real(1, w), z = b_.CreateFMul(w, w);
    auto root = [&](V v) { return b_.CreateUnaryIntrinsic(Intrinsic::sqrt, v); };
    switch (f) {
      case Fn::expm1:
        return series(w, 1e-5, b_.CreateFSub(exp_short(w), w1), b_.CreateFMul(w, poly(w, {1, 0.5})));
      case Fn::log2: return narrow(b_.CreateFMul(log_short(w), real(1.4426950408889634, w)));
      case Fn::log10: return narrow(b_.CreateFMul(log_short(w), real(0.4342944819032518, w)));
      case Fn::log1p:
        return series(w, 1e-4, log_short(b_.CreateFAdd(w, w1)),
                      b_.CreateFMul(w, poly(w, {1, -0.5, 1.0 / 3, -0.25})));
      case Fn::sin: return unless(hard_angle(x), narrow(sin_cos(w, 0)), "facula_map_sin", x);
      case Fn::cos: return unless(hard_angle(x), narrow(sin_cos(w, 1)), "facula_map_cos", x);
      case Fn::tan: return unless(hard_angle(x), narrow(tan(w)), "facula_map_tan", x);
      case Fn::asin: return narrow(atan64(b_.CreateFDiv(w, root(b_.CreateFSub(w1, z)))));
      case Fn::acos:
        return narrow(b_.CreateFMul(real(2, w),
                                    atan64(root(b_.CreateFDiv(b_.CreateFSub(w1, w), b_.CreateFAdd(w1, w))))));
      case Fn::atan: return narrow(atan64(w));
      case Fn::sinh: {
        V e = exp_short(a);
        V big = copysign(b_.CreateFMul(real(0.5, w), b_.CreateFSub(e, b_.CreateFDiv(w1, e))), w);
        return series(w, 0.1, big, b_.CreateFMul(w, poly(z, {1, 1.0 / 6, 1.0 / 120, 1.0 / 5040})));
      }
      case Fn::cosh: {
        V e = exp_short(a);
        return narrow(b_.CreateFMul(real(0.5, w), b_.CreateFAdd(e, b_.CreateFDiv(w1, e))));
      }
      case Fn::asinh:
        return series(w, 1e-3, copysign(log_short(b_.CreateFAdd(a, root(b_.CreateFAdd(z, w1)))), w),
                      b_.CreateFMul(w, poly(z, {1, -1.0 / 6, 3.0 / 40})));
      case Fn::acosh: {
        V r = narrow(log_short(b_.CreateFAdd(w, root(b_.CreateFSub(z, w1)))));
        return select(b_.CreateFCmpOLT(x, one), real(kNan, x), r);
      }
      case Fn::atanh:
        return series(w, 1e-3,
                      b_.CreateFMul(real(0.5, w),
                                    log_short(b_.CreateFDiv(b_.CreateFAdd(w1, w), b_.CreateFSub(w1, w)))),
                      b_.CreateFMul(w, poly(z, {1, 1.0 / 3, 0.2})));
      default: break;
    }
  }
  internal_check(false) << "no floating form of " << loop::name(f);
  return nullptr;
}

V ScalarMath::floating(Fn f, V x, V y) {
  switch (f) {
    case Fn::add: return b_.CreateFAdd(x, y);
    case Fn::sub: return b_.CreateFSub(x, y);
    case Fn::mul: return b_.CreateFMul(x, y);
    case Fn::div: return b_.CreateFDiv(x, y);
    case Fn::truncdiv: return b_.CreateUnaryIntrinsic(Intrinsic::trunc, b_.CreateFDiv(x, y));
    case Fn::fmod: return fmod(x, y);
    case Fn::remainder: {
      V m = fmod(x, y);
      return select(opposite_signs(m, y), b_.CreateFAdd(m, y), m);
    }
    case Fn::floordiv: return floordiv(x, y);
    case Fn::pow: return pow(x, y);
    case Fn::atan2: return atan2(x, y);
    case Fn::max: return max(x, y);
    case Fn::min: return min(x, y);
    case Fn::fmax: return select(b_.CreateFCmpUNO(y, y), x, select(b_.CreateFCmpOGT(x, y), x, y));
    case Fn::fmin: return select(b_.CreateFCmpUNO(y, y), x, select(b_.CreateFCmpOLT(x, y), x, y));
    case Fn::copysign: return copysign(x, y);
    case Fn::eq: return b_.CreateFCmpOEQ(x, y);
    case Fn::ne: return b_.CreateFCmpUNE(x, y);
    case Fn::lt: return b_.CreateFCmpOLT(x, y);
    case Fn::le: return b_.CreateFCmpOLE(x, y);
    case Fn::gt: return b_.CreateFCmpOGT(x, y);
    case Fn::ge: return b_.CreateFCmpOGE(x, y);
#define FACULA_FN(n, a, r, u) case Fn::n: return map("facula_map_" #n, x, y);
      FACULA_MAPPED_BINARY(FACULA_FN)
#undef FACULA_FN
    default: break;
  }
  internal_check(false) << "no floating form of " << loop::name(f);
  return nullptr;
}

// Division by zero gives 0; the smallest number divided by -1 wraps. By a constant power of two: bits.
V ScalarMath::int_divide(Fn f, bool is_signed, V x, V y) {
  if (auto* c = dyn_cast<Constant>(y)) {
    auto* number = dyn_cast_or_null<ConstantInt>(c->getType()->isVectorTy() ? c->getSplatValue() : c);
    bool down = !is_signed || f == Fn::floordiv || f == Fn::remainder;
    if (number && down && number->getValue().isPowerOf2() && !(is_signed && number->isNegative())) {
      if (f == Fn::remainder || f == Fn::fmod) return b_.CreateAnd(x, b_.CreateSub(y, whole(1, x)));
      V by = whole(number->getValue().logBase2(), x);
      return is_signed ? b_.CreateAShr(x, by) : b_.CreateLShr(x, by);
    }
  }
  bool small = width(x) <= (is_signed ? 32 : 16);
  V zero = whole(0, x), by_zero = b_.CreateICmpEQ(y, zero);
  V q, r;
  if (small && x->getType()->isVectorTy()) {  // exact in float64, and there is a vector instruction for it
    Type* wide = shaped(b_.getDoubleTy(), x->getType());
    Type* narrow_type = shaped(b_.getInt32Ty(), x->getType());
    auto up = [&](V v) { return is_signed ? b_.CreateSIToFP(v, wide) : b_.CreateUIToFP(v, wide); };
    V safe = select(by_zero, whole(1, x), y);
    V quotient = b_.CreateFDiv(up(x), up(safe));
    if (width(x) == 32)
      quotient = select(b_.CreateFCmpOGE(quotient, real(2147483648.0, quotient)),
                        real(-2147483648.0, quotient), quotient);
    q = b_.CreateTrunc(b_.CreateFPToSI(quotient, narrow_type), x->getType());
    r = b_.CreateSub(x, b_.CreateMul(q, safe));
  } else {
    V minus = is_signed ? b_.CreateICmpEQ(y, whole(-1, x)) : b_.CreateICmpNE(y, y);
    V safe = select(b_.CreateOr(by_zero, minus), whole(1, x), y);
    q = is_signed ? b_.CreateSDiv(x, safe) : b_.CreateUDiv(x, safe);
    r = b_.CreateSub(x, b_.CreateMul(q, safe));
    if (is_signed) {
      q = select(minus, b_.CreateNeg(x), q);
      r = select(minus, zero, r);
    }
  }
  if (is_signed && (f == Fn::floordiv || f == Fn::remainder)) {
    V adjust = b_.CreateAnd(b_.CreateICmpNE(r, zero), b_.CreateICmpSLT(b_.CreateXor(r, y), zero));
    q = select(adjust, b_.CreateSub(q, whole(1, x)), q);
    r = select(adjust, b_.CreateAdd(r, y), r);
  }
  return select(by_zero, zero, f == Fn::fmod || f == Fn::remainder ? r : q);
}

// By squaring. A negative exponent: 1 and -1 keep their meaning, all else gives 0.
V ScalarMath::int_pow(V x, V y, bool is_signed) {
  auto& context = f_.getContext();
  V one = whole(1, x), zero = whole(0, x);
  auto *from = b_.GetInsertBlock(), *body = BasicBlock::Create(context, "pow", &f_),
       *next = BasicBlock::Create(context, "next", &f_);
  V negative = is_signed ? b_.CreateICmpSLT(y, zero) : b_.CreateICmpNE(y, y);
  V exponent = select(negative, zero, y);
  b_.CreateBr(body);
  b_.SetInsertPoint(body);
  auto* result = b_.CreatePHI(x->getType(), 2);
  auto* base = b_.CreatePHI(x->getType(), 2);
  auto* left = b_.CreatePHI(x->getType(), 2);
  result->addIncoming(one, from);
  base->addIncoming(x, from);
  left->addIncoming(exponent, from);
  V odd = b_.CreateICmpNE(b_.CreateAnd(left, one), zero);
  V r = select(odd, b_.CreateMul(result, base), result), s = b_.CreateMul(base, base),
    l = b_.CreateLShr(left, one);
  result->addIncoming(r, body);
  base->addIncoming(s, body);
  left->addIncoming(l, body);
  b_.CreateCondBr(any(b_.CreateICmpNE(l, zero)), body, next);
  b_.SetInsertPoint(next);
  if (!is_signed) return r;
  V minus = whole(-1, x);
  V odd_y = b_.CreateICmpNE(b_.CreateAnd(y, one), zero);
  V reciprocal = select(b_.CreateICmpEQ(x, one), one,
                        select(b_.CreateICmpEQ(x, minus), select(odd_y, minus, one), zero));
  return select(negative, reciprocal, r);
}

// Euclid's algorithm until every lane is done. A divisor of 0 gives 0, so that a lane that is done stays so.
V ScalarMath::int_gcd(V x, V y, bool is_signed) {
  auto& context = f_.getContext();
  V zero = whole(0, x);
  auto size = [&](V v) { return is_signed ? b_.CreateBinaryIntrinsic(Intrinsic::abs, v, b_.getFalse()) : v; };
  x = size(x), y = size(y);
  auto *from = b_.GetInsertBlock(), *body = BasicBlock::Create(context, "gcd", &f_),
       *next = BasicBlock::Create(context, "next", &f_);
  b_.CreateBr(body);
  b_.SetInsertPoint(body);
  auto *divisor = b_.CreatePHI(x->getType(), 2), *number = b_.CreatePHI(x->getType(), 2);
  divisor->addIncoming(x, from);
  number->addIncoming(y, from);
  V done = b_.CreateICmpEQ(divisor, zero), rest = int_divide(Fn::fmod, is_signed, number, divisor);
  V result = select(done, number, divisor);
  auto* end = b_.GetInsertBlock();
  divisor->addIncoming(rest, end);
  number->addIncoming(result, end);
  b_.CreateCondBr(any(b_.CreateICmpNE(rest, zero)), body, next);
  b_.SetInsertPoint(next);
  return result;
}

V ScalarMath::integral(Fn f, DType d, std::span<llvm::Value* const> a) {
  bool is_bool = d == DType::Bool, is_signed = facula::is_signed(d);
  V x = a[0], y = a.size() > 1 ? a[1] : nullptr;
  V zero = whole(0, x), one = whole(1, x);
  using P = CmpInst::Predicate;
  auto compare = [&](P s, P u) { return b_.CreateICmp(is_signed ? s : u, x, y); };
  switch (f) {
    case Fn::neg: return b_.CreateNeg(x);
    case Fn::abs: return is_signed ? b_.CreateBinaryIntrinsic(Intrinsic::abs, x, b_.getFalse()) : x;
    case Fn::sign:
      return is_bool ? x
                     : select(b_.CreateICmpEQ(x, zero), zero,
                              is_signed ? select(b_.CreateICmpSLT(x, zero), whole(-1, x), one) : one);
    case Fn::relu: return is_signed ? select(b_.CreateICmpSLT(x, zero), zero, x) : x;
    case Fn::floor:
    case Fn::ceil:
    case Fn::trunc:
    case Fn::round:
    case Fn::real:
    case Fn::conj: return x;
    case Fn::imag: return zero;
    case Fn::isnan:
    case Fn::isinf: return b_.CreateICmpNE(x, x);
    case Fn::bit_not: return b_.CreateNot(x);
    case Fn::add: return is_bool ? b_.CreateOr(x, y) : b_.CreateAdd(x, y);
    case Fn::sub: return is_bool ? b_.CreateXor(x, y) : b_.CreateSub(x, y);
    case Fn::mul: return is_bool ? b_.CreateAnd(x, y) : b_.CreateMul(x, y);
    case Fn::floordiv:
    case Fn::truncdiv: return is_bool ? b_.CreateAnd(x, y) : int_divide(f, is_signed, x, y);
    case Fn::remainder:
    case Fn::fmod: return is_bool ? whole(0, x) : int_divide(f, is_signed, x, y);
    case Fn::pow: return is_bool ? b_.CreateOr(x, b_.CreateNot(y)) : int_pow(x, y, is_signed);
    case Fn::max:
    case Fn::fmax: return select(compare(P::ICMP_SGT, P::ICMP_UGT), x, y);
    case Fn::min:
    case Fn::fmin: return select(compare(P::ICMP_SLT, P::ICMP_ULT), x, y);
    case Fn::eq: return b_.CreateICmpEQ(x, y);
    case Fn::ne: return b_.CreateICmpNE(x, y);
    case Fn::lt: return compare(P::ICMP_SLT, P::ICMP_ULT);
    case Fn::le: return compare(P::ICMP_SLE, P::ICMP_ULE);
    case Fn::gt: return compare(P::ICMP_SGT, P::ICMP_UGT);
    case Fn::ge: return compare(P::ICMP_SGE, P::ICMP_UGE);
    case Fn::bit_and: return b_.CreateAnd(x, y);
    case Fn::bit_or: return b_.CreateOr(x, y);
    case Fn::bit_xor: return b_.CreateXor(x, y);
    case Fn::gcd: return int_gcd(x, y, is_signed);
    case Fn::shl:
    case Fn::shr: {
      if (is_bool) return b_.CreateAnd(x, b_.CreateNot(y));
      V in_range = b_.CreateICmpULT(y, whole(int64_t(width(x)), x));
      V by = select(in_range, y, zero);
      if (f == Fn::shl) return select(in_range, b_.CreateShl(x, by), zero);
      if (!is_signed) return select(in_range, b_.CreateLShr(x, by), zero);
      return b_.CreateAShr(x, select(in_range, y, whole(int64_t(width(x)) - 1, x)));
    }
    case Fn::fma:
      return is_bool ? b_.CreateOr(b_.CreateAnd(x, y), a[2]) : b_.CreateAdd(b_.CreateMul(x, y), a[2]);
    default: break;
  }
  supported_check(false, loop::name(f)) << "not defined for " << d;
  return nullptr;
}

V ScalarMath::call(Fn f, DType d, std::span<llvm::Value* const> a) {
  if (!is_floating(d)) return integral(f, d, a);
  if (f == Fn::fma) return fma(a[0], a[1], a[2]);
  return a.size() == 1 ? floating(f, a[0]) : floating(f, a[0], a[1]);
}

V ScalarMath::cast(V x, DType from, DType to) {
  if (from == to) return x;
  Type* t = shaped(type(to), x->getType());
  if (is_floating(from)) {
    if (to == DType::Bool) return b_.CreateFCmpUNE(x, real(0, x));
    if (is_floating(to)) return b_.CreateFPCast(x, t);
    // See loop/number.cpp. A float32 from 2^31 on has zeros where uint8's bits are.
    bool all_bits = to == DType::UInt32 || to == DType::UInt64;
    bool wide = itemsize(to) == 8 || (to == DType::UInt8 && is_double(x));
    Type* whole_type = shaped(b_.getIntNTy(wide ? 64 : 32), x->getType());
    V top = real(std::ldexp(1.0, wide ? 63 : 31), x);
    V smallest = ConstantInt::get(whole_type, uint64_t(1) << (wide ? 63 : 31)), with_top = nullptr;
    if (all_bits) {
      with_top = b_.CreateFCmpOGE(x, top);
      x = select(with_top, b_.CreateFSub(x, top), x);
    }
    V held = b_.CreateFCmpOLT(fabs(x), top);
    V number = select(held, b_.CreateFPToSI(x, whole_type), smallest);
    if (all_bits) number = select(with_top, b_.CreateXor(number, smallest), number);
    return b_.CreateTrunc(number, t);
  }
  if (to == DType::Bool) return b_.CreateICmpNE(x, whole(0, x));
  bool is_unsigned = !is_signed(from);
  if (is_floating(to)) return is_unsigned ? b_.CreateUIToFP(x, t) : b_.CreateSIToFP(x, t);
  return b_.CreateIntCast(x, t, !is_unsigned);
}

// Ten rounds of Philox-4x32 on (counter / 4), word counter % 4.
V ScalarMath::random(V seed, V counter) {
  V block = b_.CreateLShr(counter, whole(2, counter)), word = b_.CreateAnd(counter, whole(3, counter));
  V low = whole(0xffffffff, counter), shift = whole(32, counter);
  V c0 = b_.CreateAnd(block, low), c1 = b_.CreateLShr(block, shift), c2 = whole(0, counter), c3 = c2;
  V k0 = b_.CreateAnd(seed, low), k1 = b_.CreateLShr(seed, shift);
  for (int i = 0; i < 10; ++i) {
    if (i) {
      k0 = b_.CreateAnd(b_.CreateAdd(k0, whole(0x9E3779B9, k0)), low);
      k1 = b_.CreateAnd(b_.CreateAdd(k1, whole(0xBB67AE85, k1)), low);
    }
    V p0 = b_.CreateMul(c0, whole(0xD2511F53, c0)), p1 = b_.CreateMul(c2, whole(0xCD9E8D57, c2));
    V n0 = b_.CreateXor(b_.CreateXor(b_.CreateLShr(p1, shift), c1), k0);
    V n2 = b_.CreateXor(b_.CreateXor(b_.CreateLShr(p0, shift), c3), k1);
    c1 = b_.CreateAnd(p1, low);
    c3 = b_.CreateAnd(p0, low);
    c0 = n0;
    c2 = n2;
  }
  V upper = b_.CreateICmpUGE(word, whole(2, word)),
    odd = b_.CreateICmpNE(b_.CreateAnd(word, whole(1, word)), whole(0, word));
  return select(upper, select(odd, c3, c2), select(odd, c1, c0));
}

}  // namespace facula::codegen
