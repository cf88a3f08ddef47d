#include "facula/codegen/llvm_math.h"

#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <vector>

#include "facula/loop/elementary.h"
#include "facula/loop/seen.h"

namespace facula::codegen {
using loop::Expr;
using loop::Fn;
using loop::Kind;
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
V ScalarMath::integer(int64_t v, V like) {
  return ConstantInt::get(shaped(b_.getIntNTy(width(like)), like->getType()), uint64_t(v), true);
}
V ScalarMath::sign_bit(V like) {
  return integer(std::numeric_limits<int64_t>::min() >> (64 - width(like)), like);
}
V ScalarMath::widen(V x) {
  return is_double(x) ? x : b_.CreateFPExt(x, shaped(b_.getDoubleTy(), x->getType()));
}
V ScalarMath::narrow(V x) { return b_.CreateFPTrunc(x, shaped(b_.getFloatTy(), x->getType())); }
V ScalarMath::int_bits(V x) { return b_.CreateBitCast(x, shaped(b_.getIntNTy(width(x)), x->getType())); }
V ScalarMath::float_bits(V x) {
  return b_.CreateBitCast(x, shaped(width(x) == 64 ? b_.getDoubleTy() : b_.getFloatTy(), x->getType()));
}

// Applies f to both halves of a value that fills two registers, such as the float64 counterpart of a float32 vector.
template <class F>
V ScalarMath::by_halves(V x, V y, F&& f) {
  int n = int(llvm::cast<FixedVectorType>(x->getType())->getNumElements());
  llvm::SmallVector<int, 16> low, high, all;
  for (int i = 0; i < n; ++i) (i < n / 2 ? low : high).push_back(i), all.push_back(i);
  auto half = [&](V v, ArrayRef<int> mask) { return v ? b_.CreateShuffleVector(v, mask) : nullptr; };
  V a = f(half(x, low), half(y, low)), b = f(half(x, high), half(y, high));
  return b_.CreateShuffleVector(a, b, all);
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

// Easy lanes keep their value, so that it does not depend on their neighbours.
template <class F>
V ScalarMath::unless(V hard, V easy, F&& compute) {
  if (auto* constant = dyn_cast<Constant>(hard); constant && constant->isNullValue()) return easy;
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

// ---- elementary functions

namespace {
bool is_jump(Expr e) {
  return e->kind == Kind::select && e->args[0]->kind == Kind::call && e->args[0]->fn == Fn::unlikely;
}
}  // namespace

// Emits an expansion (loop/elementary.h): each node once, in the order in which nodes were created.
class ScalarMath::Expansion {
 public:
  Expansion(ScalarMath& math, std::span<llvm::Value* const> args) : math_(math), args_(args) {}

  V value(Expr root) {
    std::vector<Expr> nodes;
    loop::Seen seen;
    auto collect = [&](Expr e, auto& self) -> void {
      if (emitted_.count(e.get()) || !seen.insert(e.get())) return;
      nodes.push_back(e);
      for (size_t k = 0; k < e->args.size(); ++k)
        if (k != 1 || !is_jump(e)) self(e->args[k], self);
    };
    collect(root, collect);
    std::sort(nodes.begin(), nodes.end(), [](Expr a, Expr b) { return a->id < b->id; });
    for (auto& e : nodes) emitted_[e.get()] = node(e);
    return emitted_[root.get()];
  }

 private:
  V node(Expr e) {
    auto arg = [&](size_t k) { return emitted_[e->args[k].get()]; };
    switch (e->kind) {
      case Kind::constant: {
        auto* t = shaped(math_.type(e.dtype()), args_[0]->getType());
        return is_floating(e.dtype()) ? ConstantFP::get(t, e->value.to_double())
                                      : ConstantInt::get(t, uint64_t(e->value.to_int()), true);
      }
      case Kind::local: return args_[size_t(e->slot - loop::kArguments)];
      case Kind::cast: return math_.cast(arg(0), e->args[0].dtype(), e.dtype());
      case Kind::select: {
        if (!is_jump(e)) return math_.select(arg(0), arg(1), arg(2));
        return math_.unless(arg(0), arg(2), [&] {
          auto before = emitted_;  // values that the jump skips are not available after it
          V slow = value(e->args[1]);
          emitted_ = std::move(before);
          return slow;
        });
      }
      case Kind::call: {
        if (e->fn == Fn::entry) return math_.entry(e->args[0]->value.to_int(), arg(1));
        llvm::SmallVector<V, 3> a;
        for (size_t k = 0; k < e->args.size(); ++k) a.push_back(arg(k));
        return math_.call(e->fn, e->args[0].dtype(), a);
      }
      default: break;
    }
    internal_check(false) << "codegen: an expansion holds " << loop::print(e);
    return nullptr;
  }

  ScalarMath& math_;
  std::span<llvm::Value* const> args_;
  std::unordered_map<const loop::Node*, V> emitted_;
};

// The steps that have instructions instead of expansions, and library functions.
V ScalarMath::instruction(Fn f, DType d, std::span<llvm::Value* const> a) {
  V x = a[0];
  switch (f) {
    case Fn::unlikely: return x;
    case Fn::bits: return int_bits(x);
    case Fn::from_bits: return float_bits(x);
    case Fn::scale: return avx512_ ? scalef(x, a[1]) : nullptr;
    case Fn::is_subnormal: return subnormal(x);
    case Fn::mantissa: return is_register(x) ? getmant(x) : nullptr;
    case Fn::exponent: return is_register(x) ? getexp(x) : nullptr;
    case Fn::log_special: return is_register(x) ? fixup_log(x, a[1]) : nullptr;
    default: break;
  }
  if (!loop::is_library(f, d)) return nullptr;
  return map(("facula_map_" + std::string(loop::name(f))).c_str(), x, a.size() > 1 ? a[1] : nullptr);
}

V ScalarMath::dot_bytes(V x, V y, V sum) {
  bool vnni = f_.getFnAttribute("target-features").getValueAsString().contains("+avx512vnni");
  auto* v = dyn_cast<FixedVectorType>(x->getType());
  unsigned lanes = v ? v->getNumElements() : 1;
  if (vnni && lanes == 16) return b_.CreateIntrinsic(Intrinsic::x86_avx512_vpdpbusd_512, {}, {sum, x, y});
  if (vnni && lanes == 8) return b_.CreateIntrinsic(Intrinsic::x86_avx512_vpdpbusd_256, {}, {sum, x, y});
  for (int64_t k = 0; k < 4; ++k) {
    V left = b_.CreateAnd(b_.CreateLShr(x, integer(8 * k, x)), integer(255, x));
    V right = b_.CreateAShr(b_.CreateShl(y, integer(24 - 8 * k, y)), integer(24, y));
    sum = b_.CreateAdd(sum, b_.CreateMul(left, right));
  }
  return sum;
}

// True if x fills an AVX-512 register.
bool ScalarMath::is_register(V x) {
  auto* v = dyn_cast<FixedVectorType>(x->getType());
  return avx512_ && v && v->getNumElements() * width(x) == 512;
}
V ScalarMath::all_lanes(V x) {
  unsigned lanes = llvm::cast<FixedVectorType>(x->getType())->getNumElements();
  return ConstantInt::getAllOnesValue(b_.getIntNTy(std::max(8u, lanes)));
}

V ScalarMath::scalef(V x, V k) {
  bool d = is_double(x);
  auto* v = dyn_cast<FixedVectorType>(x->getType());
  unsigned bits = v ? v->getNumElements() * width(x) : 0;
  if (bits == 1024) return by_halves(x, k, [&](V a, V b) { return scalef(a, b); });
  if (bits == 256)
    return b_.CreateIntrinsic(d ? Intrinsic::x86_avx512_mask_scalef_pd_256
                                : Intrinsic::x86_avx512_mask_scalef_ps_256,
                              {}, {x, k, x, all_lanes(x)});
  if (bits == 512)
    return b_.CreateIntrinsic(d ? Intrinsic::x86_avx512_mask_scalef_pd_512
                                : Intrinsic::x86_avx512_mask_scalef_ps_512,
                              {}, {x, k, x, all_lanes(x), b_.getInt32(4)});  // in the current rounding mode
  return nullptr;
}

// Null: uses the expansion. With AVX2 subnormal results are rounded twice: it has no instruction that detects them,
// and softmax would take a fifth longer.
V ScalarMath::subnormal(V x) {
  if (!avx512_) return Constant::getNullValue(shaped(b_.getInt1Ty(), x->getType()));
  if (!is_register(x)) return nullptr;
  auto instruction =
      is_double(x) ? Intrinsic::x86_avx512_fpclass_pd_512 : Intrinsic::x86_avx512_fpclass_ps_512;
  return b_.CreateIntrinsic(instruction, {}, {x, b_.getInt32(32)});
}
V ScalarMath::getmant(V x) {  // in [3/4, 3/2)
  return b_.CreateIntrinsic(is_double(x) ? Intrinsic::x86_avx512_mask_getmant_pd_512
                                         : Intrinsic::x86_avx512_mask_getmant_ps_512,
                            {}, {x, b_.getInt32(3), x, all_lanes(x), b_.getInt32(4)});
}
V ScalarMath::getexp(V x) {
  V k = b_.CreateIntrinsic(is_double(x) ? Intrinsic::x86_avx512_mask_getexp_pd_512
                                        : Intrinsic::x86_avx512_mask_getexp_ps_512,
                           {}, {x, x, all_lanes(x), b_.getInt32(4)});
  return select(b_.CreateFCmpOLT(getmant(x), real(1, x)), b_.CreateFAdd(k, real(1, x)), k);
}

V ScalarMath::fixup_log(V r, V x) {
  bool d = is_double(x);
  auto* table = FixedVectorType::get(b_.getIntNTy(d ? 64 : 32), d ? 8 : 16);
  // The replacement for r, in 4 bits per class of x: quiet NaN for NaN, -inf for 0, NaN for negative numbers, inf for
  // inf.
  V classes = llvm::ConstantInt::get(table, 0x03530422);
  return b_.CreateIntrinsic(d ? Intrinsic::x86_avx512_mask_fixupimm_pd_512
                              : Intrinsic::x86_avx512_mask_fixupimm_ps_512,
                            {}, {r, x, classes, b_.getInt32(0), all_lanes(x), b_.getInt32(4)});
}

V ScalarMath::entry(int64_t row, V index) {
  auto& r = loop::table_row(row);
  if (r.dtype == DType::Float32)
    return looked_up(row, std::span(static_cast<const float*>(r.values), r.count), index);
  return looked_up(row, std::span(static_cast<const double*>(r.values), r.count), index);
}

// row[index], by the low bits of the index if the row has 8, 16 or 32 entries; from registers if they can hold the
// row.
template <class T>
V ScalarMath::looked_up(int64_t number, std::span<const T> row, V index) {
  auto* lanes = dyn_cast<FixedVectorType>(index->getType());
  unsigned bits = lanes ? lanes->getNumElements() * unsigned(sizeof(T)) * 8 : 0;
  auto part = [&](size_t from, size_t count) {
    return ConstantDataVector::get(f_.getContext(), ArrayRef<T>(row.data() + from, count));
  };
  if (avx512_ && bits == 1024 && row.size() <= 16)
    return by_halves(index, nullptr, [&](V half, V) { return looked_up(number, row, half); });
  if (avx512_ && bits == 512 && sizeof(T) == 4 && row.size() == 8) {
    std::vector<T> twice(row.begin(), row.end());
    twice.insert(twice.end(), row.begin(), row.end());
    V both = ConstantDataVector::get(f_.getContext(), ArrayRef<T>(twice));
    return b_.CreateIntrinsic(Intrinsic::x86_avx512_permvar_sf_512, {}, {both, index});
  }
  if (avx512_ && bits == 512 && sizeof(T) == 8 && row.size() == 8)
    return b_.CreateIntrinsic(Intrinsic::x86_avx512_permvar_df_512, {}, {part(0, 8), index});
  if (bits == 256 && sizeof(T) == 4 && row.size() == 8)
    return b_.CreateIntrinsic(Intrinsic::x86_avx2_permps, {}, {part(0, 8), index});
  if (avx512_ && bits == 512 && sizeof(T) == 4 && row.size() == 16)
    return b_.CreateIntrinsic(Intrinsic::x86_avx512_permvar_sf_512, {}, {part(0, 16), index});
  if (avx512_ && bits == 512 && sizeof(T) == 4 && row.size() == 32)
    return b_.CreateIntrinsic(Intrinsic::x86_avx512_vpermi2var_ps_512, {},
                              {part(0, 16), index, part(16, 16)});
  if (avx512_ && bits == 512 && sizeof(T) == 8 && row.size() == 16)
    return b_.CreateIntrinsic(Intrinsic::x86_avx512_vpermi2var_pd_512, {}, {part(0, 8), index, part(8, 8)});
  if (bits == 256 && sizeof(T) == 4 && (row.size() == 16 || row.size() == 32)) return picked(row, index);
  return loaded(number, row, index);
}
// A look-up in 2 or 4 AVX2 registers. They hold exclusive ors of parts of the row, which are applied where the index
// has the bit: one instruction less than a select, and a third of the time of a gather.
template <class T>
V ScalarMath::picked(std::span<const T> row, V index) {
  auto* lanes = index->getType();
  auto pick = [&](size_t eighths) {  // the exclusive or of these eighths of the row
    std::vector<uint32_t> part(8);
    for (size_t k = 0; k < row.size(); ++k)
      if (eighths >> (k / 8) & 1) part[k % 8] ^= std::bit_cast<uint32_t>(float(row[k]));
    V values = ConstantDataVector::getFP(b_.getFloatTy(), part);
    return b_.CreateBitCast(b_.CreateIntrinsic(Intrinsic::x86_avx2_permps, {}, {values, index}), lanes);
  };
  auto where = [&](int bit, V x) {
    return b_.CreateAnd(x, b_.CreateAShr(b_.CreateShl(index, integer(31 - bit, index)), integer(31, index)));
  };
  V r = b_.CreateXor(pick(0b1), where(3, pick(0b11)));
  if (row.size() == 32) r = b_.CreateXor(r, where(4, b_.CreateXor(pick(0b101), where(3, pick(0b1111)))));
  return float_bits(r);
}
template <class T>
V ScalarMath::loaded(int64_t number, std::span<const T> row, V index) {
  std::string name = "table" + std::to_string(number);
  auto& module = *f_.getParent();
  auto* table = module.getGlobalVariable(name, true);
  if (!table) {
    auto* values = ConstantDataArray::get(f_.getContext(), ArrayRef<T>(row.data(), row.size()));
    table = new GlobalVariable(module, values->getType(), true, GlobalValue::PrivateLinkage, values, name);
    table->setAlignment(Align(64));
  }
  Type* element = sizeof(T) == 4 ? b_.getFloatTy() : b_.getDoubleTy();
  V last = integer(int64_t(row.size()) - 1, index);
  index =
      row.size() <= 32 ? b_.CreateAnd(index, last) : b_.CreateBinaryIntrinsic(Intrinsic::umin, index, last);
  V at = b_.CreateGEP(element, table, b_.CreateZExt(index, shaped(b_.getInt64Ty(), index->getType())));
  auto* v = dyn_cast<FixedVectorType>(index->getType());
  if (!v) return b_.CreateAlignedLoad(element, at, Align(sizeof(T)));
  return b_.CreateMaskedGather(FixedVectorType::get(element, v->getNumElements()), at, Align(sizeof(T)));
}

// ---- exact functions

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

// The square root of a float64 register in a third of the time of the instruction. It starts with 14 bits of the
// reciprocal root, applies the series of 1 / sqrt(1 - 2e), whose relative error is below 2^-40, and a Newton step
// with the residual scaled by 1 - 2^-38 and 1 + 2^-38. If both results agree they are the correctly rounded root;
// otherwise, or if the residual might underflow, the instruction is used.
V ScalarMath::square_root(V x) {
  auto root = [&] { return b_.CreateUnaryIntrinsic(Intrinsic::sqrt, x); };
  if (!is_register(x) || !is_double(x)) return root();
  V half = real(0.5, x), nonzero = b_.CreateFCmpUNE(x, real(0, x));
  V r = b_.CreateIntrinsic(Intrinsic::x86_avx512_rsqrt14_pd_512, {},
                           {x, real(0, x), b_.CreateBitCast(nonzero, b_.getInt8Ty())});
  V g = b_.CreateFMul(x, r), h = b_.CreateFMul(r, half);
  V e = fma(b_.CreateFNeg(g), h, half), series = b_.CreateFMul(e, fma(e, real(1.5, x), real(1, x)));
  g = fma(g, series, g), h = fma(h, series, h);
  V residual = fma(b_.CreateFNeg(g), g, x);
  auto step = [&](double factor) { return fma(b_.CreateFMul(residual, real(factor, x)), h, g); };
  V low = step(1 - 0x1p-38), high = step(1 + 0x1p-38);
  V small = b_.CreateAnd(nonzero, b_.CreateFCmpOLT(x, real(0x1p-900, x)));
  return unless(b_.CreateOr(b_.CreateFCmpUNE(low, high), small), low, root);
}

V ScalarMath::floating(Fn f, V x) {
  switch (f) {
    case Fn::neg: return b_.CreateFNeg(x);
    case Fn::abs: return fabs(x);
    case Fn::floor: return b_.CreateUnaryIntrinsic(Intrinsic::floor, x);
    case Fn::ceil: return b_.CreateUnaryIntrinsic(Intrinsic::ceil, x);
    case Fn::trunc: return b_.CreateUnaryIntrinsic(Intrinsic::trunc, x);
    case Fn::round: return b_.CreateUnaryIntrinsic(Intrinsic::roundeven, x);
    case Fn::sqrt: return square_root(x);
    case Fn::reciprocal: return b_.CreateFDiv(real(1, x), x);
    case Fn::isnan: return b_.CreateFCmpUNO(x, x);
    case Fn::real:
    case Fn::conj: return x;
    case Fn::imag: return real(0, x);
    default: break;
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
    case Fn::fmod: return fmod(x, y);
    case Fn::copysign: return copysign(x, y);
    case Fn::eq: return b_.CreateFCmpOEQ(x, y);
    case Fn::ne: return b_.CreateFCmpUNE(x, y);
    case Fn::lt: return b_.CreateFCmpOLT(x, y);
    case Fn::le: return b_.CreateFCmpOLE(x, y);
    case Fn::gt: return b_.CreateFCmpOGT(x, y);
    case Fn::ge: return b_.CreateFCmpOGE(x, y);
    default: break;
  }
  internal_check(false) << "no floating form of " << loop::name(f);
  return nullptr;
}

// Division by zero gives 0; the smallest number divided by -1 wraps around. Division by a constant power of two uses
// shifts and masks.
V ScalarMath::int_divide(Fn f, bool is_signed, V x, V y) {
  if (auto* c = dyn_cast<Constant>(y)) {
    auto* number = dyn_cast_or_null<ConstantInt>(c->getType()->isVectorTy() ? c->getSplatValue() : c);
    bool down = !is_signed || f == Fn::floordiv || f == Fn::remainder;
    if (number && down && number->getValue().isPowerOf2() && !(is_signed && number->isNegative())) {
      if (f == Fn::remainder || f == Fn::fmod) return b_.CreateAnd(x, b_.CreateSub(y, integer(1, x)));
      V by = integer(number->getValue().logBase2(), x);
      return is_signed ? b_.CreateAShr(x, by) : b_.CreateLShr(x, by);
    }
  }
  bool small = width(x) <= (is_signed ? 32 : 16);
  V zero = integer(0, x), by_zero = b_.CreateICmpEQ(y, zero);
  V q, r;
  if (small && x->getType()->isVectorTy()) {  // exact in float64, and there is a vector instruction for it
    Type* wide = shaped(b_.getDoubleTy(), x->getType());
    Type* narrow_type = shaped(b_.getInt32Ty(), x->getType());
    auto up = [&](V v) { return is_signed ? b_.CreateSIToFP(v, wide) : b_.CreateUIToFP(v, wide); };
    V safe = select(by_zero, integer(1, x), y);
    V quotient = b_.CreateFDiv(up(x), up(safe));
    if (width(x) == 32)
      quotient = select(b_.CreateFCmpOGE(quotient, real(2147483648.0, quotient)),
                        real(-2147483648.0, quotient), quotient);
    q = b_.CreateTrunc(b_.CreateFPToSI(quotient, narrow_type), x->getType());
    r = b_.CreateSub(x, b_.CreateMul(q, safe));
  } else {
    V minus = is_signed ? b_.CreateICmpEQ(y, integer(-1, x)) : b_.CreateICmpNE(y, y);
    V safe = select(b_.CreateOr(by_zero, minus), integer(1, x), y);
    q = is_signed ? b_.CreateSDiv(x, safe) : b_.CreateUDiv(x, safe);
    r = b_.CreateSub(x, b_.CreateMul(q, safe));
    if (is_signed) {
      q = select(minus, b_.CreateNeg(x), q);
      r = select(minus, zero, r);
    }
  }
  if (is_signed && (f == Fn::floordiv || f == Fn::remainder)) {
    V adjust = b_.CreateAnd(b_.CreateICmpNE(r, zero), b_.CreateICmpSLT(b_.CreateXor(r, y), zero));
    q = select(adjust, b_.CreateSub(q, integer(1, x)), q);
    r = select(adjust, b_.CreateAdd(r, y), r);
  }
  return select(by_zero, zero, f == Fn::fmod || f == Fn::remainder ? r : q);
}

// Exponentiation by squaring. With a negative exponent, 1 and -1 give their power, and everything else gives 0.
V ScalarMath::int_pow(V x, V y, bool is_signed) {
  auto& context = f_.getContext();
  V one = integer(1, x), zero = integer(0, x);
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
  V minus = integer(-1, x);
  V odd_y = b_.CreateICmpNE(b_.CreateAnd(y, one), zero);
  V reciprocal = select(b_.CreateICmpEQ(x, one), one,
                        select(b_.CreateICmpEQ(x, minus), select(odd_y, minus, one), zero));
  return select(negative, reciprocal, r);
}

// Euclid's algorithm until every lane is done. A divisor of 0 gives 0, so that finished lanes do not change.
V ScalarMath::int_gcd(V x, V y, bool is_signed) {
  auto& context = f_.getContext();
  V zero = integer(0, x);
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
  V zero = integer(0, x), one = integer(1, x);
  using P = CmpInst::Predicate;
  auto compare = [&](P s, P u) { return b_.CreateICmp(is_signed ? s : u, x, y); };
  switch (f) {
    case Fn::neg: return b_.CreateNeg(x);
    case Fn::abs: return is_signed ? b_.CreateBinaryIntrinsic(Intrinsic::abs, x, b_.getFalse()) : x;
    case Fn::sign:
      return is_bool ? x
                     : select(b_.CreateICmpEQ(x, zero), zero,
                              is_signed ? select(b_.CreateICmpSLT(x, zero), integer(-1, x), one) : one);
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
    case Fn::fmod: return is_bool ? integer(0, x) : int_divide(f, is_signed, x, y);
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
      V in_range = b_.CreateICmpULT(y, integer(int64_t(width(x)), x));
      V by = select(in_range, y, zero);
      if (f == Fn::shl) return select(in_range, b_.CreateShl(x, by), zero);
      if (!is_signed) return select(in_range, b_.CreateLShr(x, by), zero);
      return b_.CreateAShr(x, select(in_range, y, integer(int64_t(width(x)) - 1, x)));
    }
    case Fn::fma:
      return is_bool ? b_.CreateOr(b_.CreateAnd(x, y), a[2]) : b_.CreateAdd(b_.CreateMul(x, y), a[2]);
    case Fn::dot_bytes: return dot_bytes(x, y, a[2]);
    default: break;
  }
  supported_check(false, loop::name(f)) << "not defined for " << d;
  return nullptr;
}

V ScalarMath::call(Fn f, DType d, std::span<llvm::Value* const> a) {
  if (V v = instruction(f, d, a)) return v;
  if (Expr body = loop::expansion(f, d); body.get()) return Expansion(*this, a).value(body);
  if (!is_floating(d)) return integral(f, d, a);
  if (f == Fn::fma) return fma(a[0], a[1], a[2]);
  return a.size() == 1 ? floating(f, a[0]) : floating(f, a[0], a[1]);
}

// A register of float32 as Int32 by one instruction, which gives the smallest number for what has none; it rounds as well.
V ScalarMath::to_int32(V x) {
  auto* rounded = dyn_cast<llvm::IntrinsicInst>(x);
  const bool nearest = rounded && rounded->getIntrinsicID() == Intrinsic::roundeven;
  V zeros = llvm::Constant::getNullValue(shaped(b_.getInt32Ty(), x->getType()));
  return b_.CreateIntrinsic(nearest ? Intrinsic::x86_avx512_mask_cvtps2dq_512
                                    : Intrinsic::x86_avx512_mask_cvttps2dq_512,
                            {},
                            {nearest ? rounded->getArgOperand(0) : x, zeros, all_lanes(x), b_.getInt32(4)});
}

V ScalarMath::cast(V x, DType from, DType to) {
  if (from == to) return x;
  Type* t = shaped(type(to), x->getType());
  if (is_floating(from)) {
    if (to == DType::Bool) return b_.CreateFCmpUNE(x, real(0, x));
    if (is_floating(to)) return b_.CreateFPCast(x, t);
    // See loop/number.cpp. For float32 from 2^31 on, the bits that uint8 takes are zero.
    bool all_bits = to == DType::UInt32 || to == DType::UInt64;
    bool wide = itemsize(to) == 8 || (to == DType::UInt8 && is_double(x));
    if (is_register(x) && width(x) == 32 && !wide && !all_bits) return b_.CreateTrunc(to_int32(x), t);
    Type* integer_type = shaped(b_.getIntNTy(wide ? 64 : 32), x->getType());
    V top = real(std::ldexp(1.0, wide ? 63 : 31), x);
    V smallest = ConstantInt::get(integer_type, uint64_t(1) << (wide ? 63 : 31)), with_top = nullptr;
    if (all_bits) {
      with_top = b_.CreateFCmpOGE(x, top);
      x = select(with_top, b_.CreateFSub(x, top), x);
    }
    V held = b_.CreateFCmpOLT(fabs(x), top);
    V number = select(held, b_.CreateFPToSI(x, integer_type), smallest);
    if (all_bits) number = select(with_top, b_.CreateXor(number, smallest), number);
    return b_.CreateTrunc(number, t);
  }
  if (to == DType::Bool) return b_.CreateICmpNE(x, integer(0, x));
  bool is_unsigned = !is_signed(from);
  if (is_floating(to)) return is_unsigned ? b_.CreateUIToFP(x, t) : b_.CreateSIToFP(x, t);
  return b_.CreateIntCast(x, t, !is_unsigned);
}

// Ten rounds of Philox-4x32 on (counter / 4); gives word counter % 4.
V ScalarMath::random(V seed, V counter) {
  V block = b_.CreateLShr(counter, integer(2, counter)), word = b_.CreateAnd(counter, integer(3, counter));
  V low = integer(0xffffffff, counter), shift = integer(32, counter);
  V c0 = b_.CreateAnd(block, low), c1 = b_.CreateLShr(block, shift), c2 = integer(0, counter), c3 = c2;
  V k0 = b_.CreateAnd(seed, low), k1 = b_.CreateLShr(seed, shift);
  for (int i = 0; i < 10; ++i) {
    if (i) {
      k0 = b_.CreateAnd(b_.CreateAdd(k0, integer(0x9E3779B9, k0)), low);
      k1 = b_.CreateAnd(b_.CreateAdd(k1, integer(0xBB67AE85, k1)), low);
    }
    V p0 = b_.CreateMul(c0, integer(0xD2511F53, c0)), p1 = b_.CreateMul(c2, integer(0xCD9E8D57, c2));
    V n0 = b_.CreateXor(b_.CreateXor(b_.CreateLShr(p1, shift), c1), k0);
    V n2 = b_.CreateXor(b_.CreateXor(b_.CreateLShr(p0, shift), c3), k1);
    c1 = b_.CreateAnd(p1, low);
    c3 = b_.CreateAnd(p0, low);
    c0 = n0;
    c2 = n2;
  }
  V upper = b_.CreateICmpUGE(word, integer(2, word)),
    odd = b_.CreateICmpNE(b_.CreateAnd(word, integer(1, word)), integer(0, word));
  return select(upper, select(odd, c3, c2), select(odd, c1, c0));
}

// ---- between registers and memory

Type* ScalarMath::memory_type(DType d) {
  switch (d) {
    case DType::Bool: return b_.getInt8Ty();
    case DType::BFloat16: return b_.getInt16Ty();
    case DType::Float16: return b_.getHalfTy();
    default: return is_float8(d) ? b_.getInt8Ty() : type(d);
  }
}

// The counterparts of Float8Format::decode and encode.
V ScalarMath::decode(V v, const Float8Format& f) {
  auto* integers = shaped(b_.getInt32Ty(), v->getType());
  auto* real = shaped(b_.getFloatTy(), v->getType());
  auto number = [&](uint32_t x) { return ConstantInt::get(integers, x); };
  V code = b_.CreateZExt(v, integers), magnitude = f.is_signed ? b_.CreateAnd(code, number(0x7f)) : code;
  V bits = b_.CreateAdd(b_.CreateShl(magnitude, 23 - f.mantissa), number(uint32_t(127 - f.bias) << 23));
  V small =
      f.is_signed
          ? b_.CreateBitCast(b_.CreateFMul(b_.CreateUIToFP(magnitude, real),
                                           ConstantFP::get(real, std::ldexp(1.0, 1 - f.bias - f.mantissa))),
                             integers)
          : number(0x400000);
  bits = b_.CreateSelect(b_.CreateICmpULT(magnitude, number(1u << f.mantissa)), small, bits);
  V no_number = f.nan == 0x80
                    ? b_.CreateICmpEQ(code, number(f.nan))
                    : b_.CreateICmpUGT(magnitude, number(f.has_infinity ? f.too_large : f.nan - 1u));
  bits = b_.CreateSelect(no_number, number(0x7fc00000), bits);
  if (f.has_infinity)
    bits = b_.CreateSelect(b_.CreateICmpEQ(magnitude, number(f.too_large)), number(0x7f800000), bits);
  if (f.is_signed) bits = b_.CreateOr(bits, b_.CreateShl(b_.CreateAnd(code, number(0x80)), 24));
  return b_.CreateBitCast(bits, real);
}

V ScalarMath::encode(V v, const Float8Format& f) {
  auto* integers = shaped(b_.getInt32Ty(), v->getType());
  auto* real = shaped(b_.getFloatTy(), v->getType());
  auto number = [&](uint32_t x) { return ConstantInt::get(integers, x); };
  V bits = b_.CreateBitCast(v, integers), magnitude = b_.CreateAnd(bits, number(0x7fffffff)), code;
  if (!f.is_signed) {
    V least = b_.CreateZExt(b_.CreateICmpULT(magnitude, number(0x800000)), integers);
    code = b_.CreateLShr(b_.CreateSub(b_.CreateAdd(magnitude, number(0x400000)), least), 23);
    code = b_.CreateSelect(b_.CreateICmpUGT(code, number(f.nan)), number(f.nan), code);
    return b_.CreateTrunc(code, shaped(b_.getInt8Ty(), v->getType()));
  }
  int shift = 23 - f.mantissa;
  V odd = b_.CreateAnd(b_.CreateLShr(magnitude, shift), number(1));
  uint32_t half = (1u << (shift - 1)) - 1 - (uint32_t(127 - f.bias) << 23);
  code = b_.CreateLShr(b_.CreateAdd(b_.CreateAdd(magnitude, number(half)), odd), shift);
  auto unit = float(std::ldexp(1.0, 24 - f.bias - f.mantissa));
  V sum = b_.CreateFAdd(b_.CreateBitCast(magnitude, real), ConstantFP::get(real, unit));
  V small = b_.CreateSub(b_.CreateBitCast(sum, integers), number(std::bit_cast<uint32_t>(unit)));
  code = b_.CreateSelect(b_.CreateICmpULT(magnitude, number(uint32_t(128 - f.bias) << 23)), small, code);
  code = b_.CreateSelect(b_.CreateICmpUGT(code, number(f.largest)), number(f.too_large), code);
  code = b_.CreateSelect(b_.CreateICmpUGT(magnitude, number(0x7f800000)), number(f.nan), code);
  V sign = b_.CreateAnd(b_.CreateLShr(bits, 24), number(0x80));
  if (!f.has_negative_zero) sign = b_.CreateSelect(b_.CreateICmpEQ(code, number(0)), number(0), sign);
  return b_.CreateTrunc(b_.CreateOr(code, sign), shaped(b_.getInt8Ty(), v->getType()));
}

// Conversions between memory and registers.
V ScalarMath::decode(V v, DType d) {
  switch (d) {
    case DType::Bool: return b_.CreateICmpNE(v, Constant::getNullValue(v->getType()));
    case DType::Float16: return b_.CreateFPExt(v, shaped(b_.getFloatTy(), v->getType()));
    case DType::BFloat16: {
      V wide = b_.CreateZExt(v, shaped(b_.getInt32Ty(), v->getType()));
      return b_.CreateBitCast(b_.CreateShl(wide, 16), shaped(b_.getFloatTy(), v->getType()));
    }
    default: return is_float8(d) ? decode(v, *float8_format(d)) : v;
  }
}

V ScalarMath::encode(V v, DType from, DType d) {
  v = cast(v, from, compute_type(d));
  switch (d) {
    case DType::Bool: return b_.CreateZExt(v, shaped(b_.getInt8Ty(), v->getType()));
    case DType::Float16: return b_.CreateFPTrunc(v, shaped(b_.getHalfTy(), v->getType()));
    case DType::BFloat16: {
      auto* t = shaped(b_.getInt32Ty(), v->getType());
      auto number = [&](uint32_t x) { return ConstantInt::get(t, x); };
      V bits = b_.CreateBitCast(v, t);
      V odd = b_.CreateAnd(b_.CreateLShr(bits, 16), number(1));
      V rounded = b_.CreateLShr(b_.CreateAdd(b_.CreateAdd(bits, number(0x7fff)), odd), 16);
      V quiet = b_.CreateOr(b_.CreateLShr(bits, 16), number(0x40));
      v = b_.CreateSelect(b_.CreateFCmpUNO(v, v), quiet, rounded);
      return b_.CreateTrunc(v, shaped(b_.getInt16Ty(), v->getType()));
    }
    default: return is_float8(d) ? encode(v, *float8_format(d)) : v;
  }
}

V ScalarMath::upper_half(V v) {
  V bits = b_.CreateBitCast(v, shaped(b_.getInt32Ty(), v->getType()));
  return b_.CreateTrunc(b_.CreateLShr(bits, 16), shaped(b_.getInt16Ty(), v->getType()));
}

}  // namespace facula::codegen
