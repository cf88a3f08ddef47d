// Loop nests as LLVM IR with explicit vectors, and from there to a relocatable object.
//
// A vector loop becomes a main loop over whole vectors, without masks, and one masked iteration (or, where
// accumulators are unrolled, a masked loop) for what remains. An expression is a vector only if it depends on
// the loop's variable; everything else stays scalar. Loops that cannot run in lanes exactly run serially.
#include <llvm/Analysis/TargetTransformInfo.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar.h>
#include <llvm/Transforms/Utils.h>

#include <map>
#include <set>
#include <unordered_map>

#include "facula/base/log.h"
#include "facula/base/settings.h"
#include "facula/codegen/compiler.h"
#include "facula/codegen/kernel.h"
#include "facula/codegen/llvm_math.h"
#include "facula/loop/elementary.h"
#include "facula/loop/lanes.h"
#include "facula/loop/monoid.h"
#include "facula/schedule/lane_access.h"
#include "facula/schedule/lane_select.h"

extern "C" void LLVMInitializeX86TargetInfo();
extern "C" void LLVMInitializeX86Target();
extern "C" void LLVMInitializeX86TargetMC();
extern "C" void LLVMInitializeX86AsmPrinter();

namespace facula::codegen {
namespace {

using llvm::BasicBlock;
using llvm::FixedVectorType;
using loop::Expr;
using loop::Kind;
using loop::LoopKind;
using loop::Monoid;
using loop::Nest;
using loop::Node;
using loop::Statement;
using schedule::LaneAccess;
using schedule::SelectForm;
using V = llvm::Value*;
using StatementKind = Statement::Kind;

// A named value. Lets are values; accumulators and assigned locals are memory until mem2reg; arrays stay
// memory.
struct Local {
  V value = nullptr;
  llvm::Type* type = nullptr;  // of the memory's content; null for a let
  DType dtype{};
};

class Emitter {
 public:
  Emitter(const Nest& nest, llvm::Module& module, int lanes32, const std::string& features)
      : nest_(nest),
        module_(module),
        c_(module.getContext()),
        b_(c_),
        lanes32_(lanes32),
        features_(features),
        facts_(nest) {}

  void run() {
    llvm::Type *ptr = b_.getPtrTy(), *i64 = b_.getInt64Ty();
    std::vector<llvm::Type*> inner_types(nest_.buffers.size(), ptr);
    inner_types.insert(inner_types.end(), {ptr, i64, i64, ptr});
    auto* inner = make("task_range", llvm::FunctionType::get(b_.getVoidTy(), inner_types, false), true);
    auto* outer = make("facula_kernel",
                       llvm::FunctionType::get(b_.getVoidTy(), {ptr, ptr, i64, i64, ptr}, false), false);
    b_.SetInsertPoint(BasicBlock::Create(c_, "entry", outer));
    std::vector<V> args;
    for (size_t k = 0; k < nest_.buffers.size(); ++k) {
      args.push_back(b_.CreateLoad(ptr, b_.CreateConstInBoundsGEP1_64(ptr, outer->getArg(0), k)));
      if (nest_.buffers[k].unique) inner->addParamAttr(unsigned(k), llvm::Attribute::NoAlias);
    }
    for (unsigned k = 1; k < 5; ++k) args.push_back(outer->getArg(k));
    b_.CreateCall(inner, args);
    b_.CreateRetVoid();

    f_ = inner;
    auto* entry = BasicBlock::Create(c_, "entry", f_);
    auto* start = BasicBlock::Create(c_, "start", f_);
    b_.SetInsertPoint(entry);
    unsigned base = unsigned(nest_.buffers.size());
    for (unsigned k = 0; k < base; ++k) buffers_.push_back(f_->getArg(k));
    for (int k = 0; k < nest_.params; ++k)
      params_.push_back(
          b_.CreateLoad(i64, b_.CreateConstInBoundsGEP1_64(i64, f_->getArg(base), uint64_t(k))));
    status_ = f_->getArg(base + 3);
    entry_end_ = b_.CreateBr(start);
    b_.SetInsertPoint(start);
    ScalarMath math(b_, *f_, lanes32_ == 16);
    math_ = &math;
    layers_.emplace_back();
    count_loop(f_->getArg(base + 1), f_->getArg(base + 2), 1, [&](V task) {
      vars_[nest_.task_var] = task;
      emit_block(nest_.body);
    });
    b_.CreateRetVoid();
  }

 private:
  struct Layer {
    std::unordered_map<const Node*, V> values,
        first;  // `first`: the value in lane 0, of lane-dependent expressions
    bool statement = false;
    // Of rows that lie one after the other, one a lane: their elements by place, by buffer and first element.
    std::map<std::pair<std::pair<int, int>, const Node*>, std::vector<V>> rows;
  };
  struct Push {
    Emitter& e;
    Push(Emitter& e, bool statement) : e(e) { e.layers_.emplace_back().statement = statement; }
    ~Push() { e.layers_.pop_back(); }
  };

  llvm::Function* make(const char* name, llvm::FunctionType* t, bool internal) {
    auto* f =
        llvm::Function::Create(t,
                               internal ? llvm::Function::InternalLinkage : llvm::Function::ExternalLinkage,
                               name, module_);
    f->addFnAttr("target-features", features_);
    f->addFnAttr("target-cpu", "x86-64");
    f->addFnAttr("min-legal-vector-width", "512");
    f->addFnAttr("prefer-vector-width", lanes32_ == 16 ? "512" : "256");
    f->setDoesNotThrow();
    if (internal) f->addFnAttr(llvm::Attribute::NoInline);
    return f;
  }

  // ---- lanes

  int lanes() const { return scope_->lanes; }
  bool in_lanes() const { return lanes() > 1; }
  V spread(V v) {
    if (!in_lanes() || v->getType()->isVectorTy()) return v;
    return b_.CreateVectorSplat(unsigned(lanes()), v);
  }
  V iota(llvm::Type* element) {
    std::vector<llvm::Constant*> c;
    for (int i = 0; i < lanes(); ++i) c.push_back(llvm::ConstantInt::get(element, uint64_t(i)));
    return llvm::ConstantVector::get(c);
  }
  static bool is_vector(V v) { return v->getType()->isVectorTy(); }

  // ---- control

  // for i in [begin, end) by step, with the test at the end.
  template <class F>
  void count_loop(V begin, V end, int64_t step, F&& body) {
    auto *head = BasicBlock::Create(c_, "loop", f_), *exit = BasicBlock::Create(c_, "exit", f_);
    auto* from = b_.GetInsertBlock();
    b_.CreateCondBr(b_.CreateICmpSLT(begin, end), head, exit);
    b_.SetInsertPoint(head);
    auto* i = b_.CreatePHI(begin->getType(), 2);
    i->addIncoming(begin, from);
    body(static_cast<V>(i));
    V next = b_.CreateNSWAdd(i, llvm::ConstantInt::get(begin->getType(), uint64_t(step)));
    i->addIncoming(next, b_.GetInsertBlock());
    b_.CreateCondBr(b_.CreateICmpSLT(next, end), head, exit);
    exit->moveAfter(b_.GetInsertBlock());
    b_.SetInsertPoint(exit);
  }

  template <class F>
  void when(V condition, F&& body) {
    auto *yes = BasicBlock::Create(c_, "then", f_), *next = BasicBlock::Create(c_, "next", f_);
    b_.CreateCondBr(condition, yes, next);
    b_.SetInsertPoint(yes);
    body();
    b_.CreateBr(next);
    next->moveAfter(b_.GetInsertBlock());
    b_.SetInsertPoint(next);
  }

  // ---- locals

  Local& local(int var) {
    auto it = locals_.find(var);
    internal_check(it != locals_.end()) << "codegen: local " << var << " is used before it is made";
    return it->second;
  }
  V room(llvm::Type* t, V count = nullptr) {
    llvm::IRBuilder<> at(entry_end_);
    auto* a = at.CreateAlloca(t, count);
    a->setAlignment(llvm::Align(count ? 64 : module_.getDataLayout().getPrefTypeAlign(t).value()));
    return a;
  }
  V read(const Local& l) { return b_.CreateLoad(l.type, l.value); }
  // Where the mask is off the old value stays.
  void write(const Local& l, V v) {
    if (l.type->isVectorTy()) {
      v = spread(v);
      if (mask_) v = b_.CreateSelect(mask_, v, read(l));
    }
    internal_check(v->getType() == l.type)
        << "codegen: a value that differs between lanes for a local that does not";
    b_.CreateStore(v, l.value);
  }

  // ---- expressions

  V lookup(Expr e, bool first) {
    for (size_t k = layers_.size(); k--;) {
      auto& map = first ? layers_[k].first : layers_[k].values;
      if (auto it = map.find(e.get()); it != map.end()) return it->second;
    }
    return nullptr;
  }
  void remember(Expr e, V v, bool first) {
    size_t k = layers_.size() - 1;
    if (layers_[k].statement && !facts_.is_volatile(e)) --k;
    (first ? layers_[k].first : layers_[k].values)[e.get()] = v;
  }

  V emit(Expr e) {
    switch (e->kind) {
      case Kind::constant: return constant(e->value, e->dtype);
      case Kind::param: return params_.at(size_t(e->slot));
      case Kind::local: {
        auto& l = local(e->slot);
        if (first_ && !l.type && is_vector(l.value)) return emit(facts_.definition(e->slot));
        return l.type ? read(l) : l.value;
      }
      case Kind::index:
        if (scope_->is_lane_index(e)) {
          if (first_) return lane_base_;
          break;
        }
        return vars_.at(e->slot);
      default: break;
    }
    if (first_ && !scope_->varies(e)) {
      first_ = false;
      V v = emit(e);
      first_ = true;
      return v;
    }
    if (V v = lookup(e, first_)) return v;
    V v = fresh(e);
    remember(e, v, first_);
    return v;
  }

  // The scalar value of a lane-dependent expression in the first lane.
  V emit_first(Expr e) {
    bool outer = std::exchange(first_, in_lanes());
    V v = emit(e);
    first_ = outer;
    return v;
  }

  V constant(const Scalar& s, DType d) {
    auto* t = math_->type(d);
    if (is_floating(d)) {
      double v = s.to_double();
      return llvm::ConstantFP::get(t, d == DType::Float32 ? double(float(v)) : v);
    }
    return llvm::ConstantInt::get(t, uint64_t(d == DType::Bool ? s.to_bool() : s.to_int()), true);
  }

  V fresh(Expr e) {
    switch (e->kind) {
      case Kind::index:
        return b_.CreateAdd(b_.CreateVectorSplat(unsigned(lanes()), lane_base_), iota(b_.getInt64Ty()));
      case Kind::load: return load(*e.get());
      case Kind::cast: {
        V x = emit(e->args[0]);
        if (e->memory != e->dtype) return decode(encode(x, e->dtype, e->memory), e->memory);  // round_to
        return math_->cast(x, e->args[0].dtype(), e->dtype);
      }
      case Kind::call: {
        if (Expr product = loop::fused_product(e); !same(product, e)) return emit(product);
        if (V v = cycle(e)) return v;
        std::vector<V> a;
        for (auto& x : e->args) a.push_back(emit(x));
        level(a);
        return math_->call(e->fn, e->args[0].dtype(), a);
      }
      case Kind::select: return select(*e.get());
      case Kind::random: {
        std::vector<V> a{emit(e->args[0]), emit(e->args[1])};
        level(a);
        return math_->random(a[0], a[1]);
      }
      case Kind::check: return check(emit(e->args[0]), emit(e->args[1]), !e->slot);
      case Kind::divisor: return divisor(emit(e->args[0]));
      default: break;
    }
    internal_check(false) << "codegen: no such expression in a nest: " << loop::print(e);
    return nullptr;
  }

  // All vectors, if one is.
  void level(std::vector<V>& a) {
    for (auto& x : a) {
      if (!is_vector(x)) continue;
      for (auto& y : a) y = spread(y);
      return;
    }
  }

  // ---- select, whose untaken side must have no effect

  V as_stored(Expr e, DType d) {
    if (!loop::is_move(e, d))
      return d == DType::BFloat16 && schedule::is_bfloat16(e) ? upper_half(emit(e))
                                                              : encode(emit(e), e.dtype(), d);
    if (e->kind == Kind::load) return load(*e.get(), true);
    return select(*e.get(), [&](Expr side) { return as_stored(side, d); });
  }

  V upper_half(V v) {
    V bits = b_.CreateBitCast(v, ScalarMath::shaped(b_.getInt32Ty(), v->getType()));
    return b_.CreateTrunc(b_.CreateLShr(bits, 16), ScalarMath::shaped(b_.getInt16Ty(), v->getType()));
  }

  V select(const Node& n) {
    return select(n, [&](Expr side) { return emit(side); });
  }
  template <class F>
  V select(const Node& n, F&& value) {
    Expr condition = n.args[0];
    if (in_lanes() && !first_ && !mask_ && !shared_ && selects_.has_border(*scope_, n)) {
      // Most vectors lie inside, where nothing needs a mask.
      V inside = b_.CreateAnd(emit_first(condition), emit_first(scope_->in_last_lane(condition)));
      shared_ = true;
      V v = either(inside, [&] { return spread(value(n.args[1])); }, [&] { return masked_select(n, value); });
      shared_ = false;
      return v;
    }
    return masked_select(n, value);
  }
  template <class T, class E>
  V either(V condition, T&& yes, E&& no) {
    BasicBlock *blocks[2], *ends[2], *next = BasicBlock::Create(c_, "next", f_);
    V sides[2];
    for (auto& x : blocks) x = BasicBlock::Create(c_, "side", f_, next);
    b_.CreateCondBr(condition, blocks[0], blocks[1]);
    bool outer = std::exchange(guarded_, true);
    for (size_t k = 0; k < 2; ++k) {
      b_.SetInsertPoint(blocks[k]);
      Push layer(*this, false);
      sides[k] = k ? no() : yes();
      ends[k] = b_.GetInsertBlock();
      b_.CreateBr(next);
    }
    guarded_ = outer;
    b_.SetInsertPoint(next);
    auto* phi = b_.CreatePHI(sides[0]->getType(), 2);
    for (size_t k = 0; k < 2; ++k) phi->addIncoming(sides[k], ends[k]);
    return phi;
  }

  template <class F>
  V masked_select(const Node& n, F&& value) {
    bool branch = selects_.is_branch(*scope_, Expr(&n), first_);
    V c = emit(n.args[0]);
    auto form = selects_.form(*scope_, n, branch, first_);
    if (form == SelectForm::rare) {
      V usual = spread(value(n.args[2]));
      auto unusual = [&] { return b_.CreateSelect(c, spread(value(n.args[1])), usual); };
      return either(math_->any(c), unusual, [&] { return usual; });
    }
    if (form == SelectForm::blend) {
      std::vector<V> sides{value(n.args[1]), value(n.args[2])};
      if (is_vector(c))
        for (auto& s : sides) s = spread(s);
      level(sides);
      return b_.CreateSelect(c, sides[0], sides[1]);
    }
    if (form == SelectForm::masked) {
      c = spread(c);
      V outer = mask_;
      bool outer_maybe = std::exchange(maybe_none_, true);
      auto side = [&](Expr e, V m) {
        mask_ = outer ? b_.CreateAnd(outer, m) : m;
        Push layer(*this, false);
        return spread(value(e));
      };
      V a = side(n.args[1], c), b = side(n.args[2], b_.CreateNot(c));
      mask_ = outer;
      maybe_none_ = outer_maybe;
      return b_.CreateSelect(c, a, b);
    }
    bool vector = !first_ && (scope_->varies(n.args[1]) || scope_->varies(n.args[2]));
    auto side = [&](Expr e) {
      V v = value(e);
      return vector ? spread(v) : v;
    };
    return either(c, [&] { return side(n.args[1]); }, [&] { return side(n.args[2]); });
  }

  // ---- checks

  V check(V i, V n, bool wraps) {
    std::vector<V> a{i, n};
    level(a);
    i = a[0], n = a[1];
    V zero = llvm::Constant::getNullValue(i->getType());
    V j = wraps ? b_.CreateSelect(b_.CreateICmpSLT(i, zero), b_.CreateAdd(i, n), i) : i;
    V bad = b_.CreateICmpUGE(j, n), result = b_.CreateSelect(bad, zero, j);
    flag(bad, 1, i, n);
    return result;
  }

  V divisor(V y) {
    V zero = llvm::Constant::getNullValue(y->getType());
    V bad = b_.CreateICmpEQ(y, zero);
    flag(bad, 2, nullptr, nullptr);
    return b_.CreateSelect(bad, llvm::ConstantInt::get(y->getType(), 1), y);
  }

  // Notes the first failure: its kind (Status::failed), and the index and size of a failed check.
  void flag(V bad, int64_t kind, V i, V n) {
    V hit = bad;
    if (mask_ && !first_) {
      if (is_vector(bad)) hit = b_.CreateAnd(bad, mask_);
      else if (maybe_none_) hit = b_.CreateAnd(bad, b_.CreateOrReduce(mask_));
    }
    V any = math_->any(hit);
    when(any, [&] {
      auto* i64 = b_.getInt64Ty();
      V lane = nullptr;
      if (is_vector(hit)) {
        V bits = b_.CreateBitCast(hit, b_.getIntNTy(unsigned(lanes())));
        lane = b_.CreateIntrinsic(llvm::Intrinsic::cttz, {bits->getType()}, {bits, b_.getTrue()});
      }
      auto pick = [&](V v) { return !v ? b_.getInt64(0) : lane ? b_.CreateExtractElement(v, lane) : v; };
      V index = pick(i), size = pick(n);
      V before = b_.CreateLoad(i64, status_);
      when(b_.CreateICmpEQ(before, b_.getInt64(0)), [&] {
        b_.CreateStore(b_.getInt64(uint64_t(kind)), status_);
        b_.CreateStore(index, b_.CreateConstInBoundsGEP1_64(i64, status_, 1));
        b_.CreateStore(size, b_.CreateConstInBoundsGEP1_64(i64, status_, 2));
      });
    });
  }

  // ---- memory

  llvm::Type* memory_type(DType d) {
    switch (d) {
      case DType::Bool: return b_.getInt8Ty();
      case DType::BFloat16: return b_.getInt16Ty();
      case DType::Float16: return b_.getHalfTy();
      default: return is_float8(d) ? b_.getInt8Ty() : math_->type(d);
    }
  }
  // As Float8Format::decode and encode.
  V decode(V v, const Float8Format& f) {
    auto* whole = ScalarMath::shaped(b_.getInt32Ty(), v->getType());
    auto* real = ScalarMath::shaped(b_.getFloatTy(), v->getType());
    auto number = [&](uint32_t x) { return llvm::ConstantInt::get(whole, x); };
    V code = b_.CreateZExt(v, whole), magnitude = f.is_signed ? b_.CreateAnd(code, number(0x7f)) : code;
    V bits = b_.CreateAdd(b_.CreateShl(magnitude, 23 - f.mantissa), number(uint32_t(127 - f.bias) << 23));
    V small =
        f.is_signed
            ? b_.CreateBitCast(b_.CreateFMul(b_.CreateUIToFP(magnitude, real),
                                             llvm::ConstantFP::get(real,
                                                                   std::ldexp(1.0, 1 - f.bias - f.mantissa))),
                               whole)
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
  V encode(V v, const Float8Format& f) {
    auto* whole = ScalarMath::shaped(b_.getInt32Ty(), v->getType());
    auto* real = ScalarMath::shaped(b_.getFloatTy(), v->getType());
    auto number = [&](uint32_t x) { return llvm::ConstantInt::get(whole, x); };
    V bits = b_.CreateBitCast(v, whole), magnitude = b_.CreateAnd(bits, number(0x7fffffff)), code;
    if (!f.is_signed) {
      V least = b_.CreateZExt(b_.CreateICmpULT(magnitude, number(0x800000)), whole);
      code = b_.CreateLShr(b_.CreateSub(b_.CreateAdd(magnitude, number(0x400000)), least), 23);
      code = b_.CreateSelect(b_.CreateICmpUGT(code, number(f.nan)), number(f.nan), code);
      return b_.CreateTrunc(code, ScalarMath::shaped(b_.getInt8Ty(), v->getType()));
    }
    int shift = 23 - f.mantissa;
    V odd = b_.CreateAnd(b_.CreateLShr(magnitude, shift), number(1));
    uint32_t half = (1u << (shift - 1)) - 1 - (uint32_t(127 - f.bias) << 23);
    code = b_.CreateLShr(b_.CreateAdd(b_.CreateAdd(magnitude, number(half)), odd), shift);
    auto unit = float(std::ldexp(1.0, 24 - f.bias - f.mantissa));
    V sum = b_.CreateFAdd(b_.CreateBitCast(magnitude, real), llvm::ConstantFP::get(real, unit));
    V small = b_.CreateSub(b_.CreateBitCast(sum, whole), number(std::bit_cast<uint32_t>(unit)));
    code = b_.CreateSelect(b_.CreateICmpULT(magnitude, number(uint32_t(128 - f.bias) << 23)), small, code);
    code = b_.CreateSelect(b_.CreateICmpUGT(code, number(f.largest)), number(f.too_large), code);
    code = b_.CreateSelect(b_.CreateICmpUGT(magnitude, number(0x7f800000)), number(f.nan), code);
    V sign = b_.CreateAnd(b_.CreateLShr(bits, 24), number(0x80));
    if (!f.has_negative_zero) sign = b_.CreateSelect(b_.CreateICmpEQ(code, number(0)), number(0), sign);
    return b_.CreateTrunc(b_.CreateOr(code, sign), ScalarMath::shaped(b_.getInt8Ty(), v->getType()));
  }
  // Between memory and registers.
  V decode(V v, DType d) {
    switch (d) {
      case DType::Bool: return b_.CreateICmpNE(v, llvm::Constant::getNullValue(v->getType()));
      case DType::Float16: return b_.CreateFPExt(v, ScalarMath::shaped(b_.getFloatTy(), v->getType()));
      case DType::BFloat16: {
        V wide = b_.CreateZExt(v, ScalarMath::shaped(b_.getInt32Ty(), v->getType()));
        return b_.CreateBitCast(b_.CreateShl(wide, 16), ScalarMath::shaped(b_.getFloatTy(), v->getType()));
      }
      default: return is_float8(d) ? decode(v, *float8_format(d)) : v;
    }
  }
  V encode(V v, DType from, DType d) {
    v = math_->cast(v, from, compute_type(d));
    switch (d) {
      case DType::Bool: return b_.CreateZExt(v, ScalarMath::shaped(b_.getInt8Ty(), v->getType()));
      case DType::Float16: return b_.CreateFPTrunc(v, ScalarMath::shaped(b_.getHalfTy(), v->getType()));
      case DType::BFloat16: {
        auto* t = ScalarMath::shaped(b_.getInt32Ty(), v->getType());
        auto number = [&](uint32_t x) { return llvm::ConstantInt::get(t, x); };
        V bits = b_.CreateBitCast(v, t);
        V odd = b_.CreateAnd(b_.CreateLShr(bits, 16), number(1));
        V rounded = b_.CreateLShr(b_.CreateAdd(b_.CreateAdd(bits, number(0x7fff)), odd), 16);
        V quiet = b_.CreateOr(b_.CreateLShr(bits, 16), number(0x40));
        v = b_.CreateSelect(b_.CreateFCmpUNO(v, v), quiet, rounded);
        return b_.CreateTrunc(v, ScalarMath::shaped(b_.getInt16Ty(), v->getType()));
      }
      default: return is_float8(d) ? encode(v, *float8_format(d)) : v;
    }
  }

  // The elements an access touches: `d` as stored, and a factor and shift on the offset (components of
  // complex numbers).
  struct Place {
    V base;
    DType d;
    int64_t factor = 1, shift = 0;
  };
  Place place(int slot, int part) {
    if (slot < 0) {
      auto& l = local(-1 - slot);
      return {l.value, l.dtype};
    }
    DType d = nest_.buffers.at(size_t(slot)).dtype;
    if (!is_complex(d)) return {buffers_[size_t(slot)], d};
    supported_check(part, "codegen") << "complex buffers are read and written by components";
    return {buffers_[size_t(slot)], real_of(d), 2, part - 1};
  }
  V scaled(V offset, const Place& p) {
    auto* t = offset->getType();
    if (p.factor != 1) offset = b_.CreateMul(offset, llvm::ConstantInt::get(t, uint64_t(p.factor)));
    return p.shift ? b_.CreateAdd(offset, llvm::ConstantInt::get(t, uint64_t(p.shift))) : offset;
  }
  V at(V base, llvm::Type* element, V offset) { return b_.CreateGEP(element, base, offset); }

  // Where an element is; in lanes that of the first one.
  V pointer_to(const Place& p, Expr offset) {
    return at(p.base, memory_type(p.d), scaled(emit_first(offset), p));
  }
  // Where the elements of all lanes are: from the first one on by a stride, or each by its own offset.
  V lane_pointers(V first, llvm::Type* element, Expr stride) {
    return at(first, element, b_.CreateMul(iota(b_.getInt64Ty()), spread(emit(stride))));
  }
  V lane_pointers(int slot, const Place& p, Expr offset) {
    auto* element = memory_type(p.d);
    V o = spread(emit(offset));
    if (slot >= 0 || !scope_->is_lane_array(-1 - slot)) return at(p.base, element, scaled(o, p));
    V count = spread(b_.getInt64(uint64_t(lanes())));
    return at(p.base, element, b_.CreateAdd(b_.CreateMul(o, count), iota(b_.getInt64Ty())));
  }
  // The row of an array that has an element for each lane.
  V own_row(const Place& p, Expr offset) {
    return at(p.base, memory_type(p.d), b_.CreateMul(emit(offset), b_.getInt64(uint64_t(lanes()))));
  }
  // The pointer that an access begins with: of the first lane, or one for each.
  V pointer_of(const LaneAccess& a, int slot, const Place& p, Expr offset) {
    if (a.kind == LaneAccess::own) return own_row(p, offset);
    return a.has_own_offsets() ? lane_pointers(slot, p, offset) : pointer_to(p, offset);
  }
  LaneAccess access(int slot, Expr offset, bool loads) {
    if (!in_lanes() || first_) return {LaneAccess::uniform};
    return schedule::lane_access(*scope_, slot, offset, {.loads = loads, .masked = mask_ != nullptr});
  }

  // Every `apart`-th element, out of whole vectors side by side. The last one ends with the last element that
  // is wanted.
  V every(int64_t apart, FixedVectorType* t, V pointer, llvm::Align align) {
    V r = nullptr;
    for (int64_t k = 0; k < apart; ++k) {
      int64_t from = k * lanes() - (k + 1 == apart ? apart - 1 : 0);
      V piece =
          b_.CreateAlignedLoad(t, b_.CreateConstGEP1_64(t->getElementType(), pointer, uint64_t(from)), align);
      std::vector<int> mask;
      for (int64_t j = 0; j < lanes(); ++j) {
        int64_t at = j * apart, in = std::min(at / lanes(), apart - 1);
        mask.push_back(in < k ? int(j) : in == k ? int(lanes() + at - from) : -1);
      }
      r = b_.CreateShuffleVector(r ? r : piece, piece, mask);
    }
    return r;
  }

  // Remainders that are the same in every vector; null if e is none.
  V cycle(Expr e) {
    if (e->fn != loop::Fn::remainder) return nullptr;
    auto from = first_ ? std::nullopt : scope_->phase(e->args[0], e->args[1]);
    if (!from) return nullptr;
    std::vector<llvm::Constant*> c;
    for (int64_t l = 0; l < lanes(); ++l)
      c.push_back(
          llvm::ConstantInt::get(b_.getInt64Ty(), uint64_t((*from + l) % e->args[1]->value.to_int())));
    return llvm::ConstantVector::get(c);
  }

  V load_repeated(const loop::Repeated& r, FixedVectorType* t, V pointer, llvm::Align align) {
    int64_t count = r.at(lanes() - 1) + 1;
    std::vector<int> order;
    if (mask_) {  // an element is read if any lane wants it
      V zero = llvm::Constant::getNullValue(mask_->getType()), wanted = zero;
      for (int64_t k = 0; k < r.times; ++k) {
        for (int64_t j = 0; j < lanes(); ++j) {
          int64_t lane = j * r.times - r.from + k;
          order.push_back(j < count && lane >= 0 && lane < lanes() ? int(lane) : lanes());
        }
        wanted = b_.CreateOr(wanted, pick(mask_, zero, std::exchange(order, {})));
      }
      for (int64_t l = 0; l < lanes(); ++l) order.push_back(int(r.at(l)));
      V v = b_.CreateMaskedLoad(t, pointer, align, wanted, llvm::Constant::getNullValue(t));
      return b_.CreateShuffleVector(v, order);
    }
    // As many as there are without a part of one, from the first and up to the last.
    int64_t whole = lanes() / r.times;
    auto* part = FixedVectorType::get(t->getElementType(), unsigned(whole));
    V first = b_.CreateAlignedLoad(part, pointer, align), last = first;
    if (count > whole)
      last =
          b_.CreateAlignedLoad(part,
                               b_.CreateConstGEP1_64(t->getElementType(), pointer, uint64_t(count - whole)),
                               align);
    for (int64_t l = 0; l < lanes(); ++l)
      order.push_back(int(r.at(l) < whole ? r.at(l) : 2 * whole - count + r.at(l)));
    return pick(first, last, order);
  }

  // What an unrolled loop does at each of its steps with rows of as many elements, one a lane.
  struct Steps {
    int var;
    int64_t count, now = 0;
    struct Woven {
      const Statement* store;
      V pointer;
      llvm::Align align;
      std::vector<V> values;
    };
    std::vector<Woven> woven;  // stores of a step's element of each row, which wait for the last step
  };
  bool in_rows() const { return in_lanes() && !first_ && !mask_ && !guarded_ && steps_.size() == 1; }

  V pick(V a, V b, const std::vector<int>& order) { return b_.CreateShuffleVector(a, b, order); }
  // Of n vectors of a stretch: for each j below n the elements j, j + n, j + 2 n, ...
  std::vector<V> turned(const std::vector<V>& x) {
    int64_t n = int64_t(x.size());
    if (n == 1) return x;
    std::vector<V> r;
    if (n % 2) {
      for (int64_t j = 0; j < n; ++j) r.push_back(gathered(x, [&](int64_t l) { return l * n + j; }));
      return r;
    }
    std::vector<V> halves[2];
    for (int64_t k = 0; k < n; k += 2)
      for (int64_t h : {0, 1}) {
        std::vector<int> order;
        for (int l = 0; l < lanes(); ++l) order.push_back(2 * l + int(h));
        halves[h].push_back(pick(x[size_t(k)], x[size_t(k + 1)], order));
      }
    for (auto& h : halves) h = turned(h);
    for (int64_t j = 0; j < n; ++j) r.push_back(halves[j % 2][size_t(j / 2)]);
    return r;
  }
  // The way back.
  std::vector<V> turned_back(const std::vector<V>& x) {
    int64_t n = int64_t(x.size());
    if (n == 1) return x;
    std::vector<V> r;
    if (n % 2) {
      for (int64_t k = 0; k < n; ++k)
        r.push_back(gathered(x, [&](int64_t l) {
          int64_t at = k * lanes() + l;
          return at % n * lanes() + at / n;
        }));
      return r;
    }
    std::vector<V> halves[2];
    for (int64_t j = 0; j < n; ++j) halves[j % 2].push_back(x[size_t(j)]);
    for (auto& h : halves) h = turned_back(h);
    for (int64_t k = 0; k < n; ++k) {
      std::vector<int> order;
      for (int l = 0; l < lanes(); ++l) order.push_back((int(k % 2) * lanes() + l) / 2 + l % 2 * lanes());
      r.push_back(pick(halves[0][size_t(k / 2)], halves[1][size_t(k / 2)], order));
    }
    return r;
  }
  // Lane l: element at(l) of the vectors side by side.
  template <class F>
  V gathered(const std::vector<V>& x, F&& at) {
    V r = nullptr;
    for (int64_t k = 0; k < int64_t(x.size()); ++k) {
      std::vector<int> order;
      for (int64_t l = 0; l < lanes(); ++l) {
        int64_t in = at(l) / lanes();
        order.push_back(in < k ? int(l) : in == k ? int(lanes() + at(l) % lanes()) : -1);
      }
      r = pick(r ? r : x[size_t(k)], x[size_t(k)], order);
    }
    return r;
  }

  // The current step's element of rows that lie one after the other; null if these are none.
  V element_of_rows(const Node& n, const Place& p) {
    if (!in_rows()) return nullptr;
    auto& steps = steps_.back();
    Expr start = schedule::start_of_rows(*scope_, n.slot, n.args[0], steps.var, steps.count, true);
    if (!start.get()) return nullptr;
    auto& rows = layers_[steps_from_].rows[{{n.slot, n.part}, facts_.spelled_out(start).get()}];
    if (rows.empty()) {
      auto* element = memory_type(p.d);
      auto* t = FixedVectorType::get(element, unsigned(lanes()));
      V pointer = at(p.base, element, emit_first(start));
      for (int64_t k = 0; k < steps.count; ++k)
        rows.push_back(b_.CreateAlignedLoad(t, b_.CreateConstGEP1_64(element, pointer, uint64_t(k * lanes())),
                                            llvm::Align(uint64_t(itemsize(p.d)))));
      rows = turned(rows);
    }
    return rows[size_t(steps.now)];
  }
  // Keeps a store to such rows until all of their elements are there; false if these are none.
  bool weave(const Statement& s, const Place& p, V v) {
    if (!in_rows()) return false;
    auto& steps = steps_.back();
    Expr start = schedule::start_of_rows(*scope_, s.buffer, s.offset, steps.var, steps.count, false);
    if (!start.get()) return false;
    auto it = std::find_if(steps.woven.begin(), steps.woven.end(), [&](auto& w) { return w.store == &s; });
    if (it == steps.woven.end()) {
      if (steps.now) return false;
      V pointer = at(p.base, memory_type(p.d), emit_first(start));
      steps.woven.push_back({&s, pointer, llvm::Align(uint64_t(itemsize(p.d))), {}});
      it = steps.woven.end() - 1;
    }
    it->values.push_back(spread(v));
    return true;
  }
  void store_woven(const Steps& steps) {
    for (auto& w : steps.woven) {
      internal_check(int64_t(w.values.size()) == steps.count) << "codegen: a row is stored in part";
      store_turned(w.values, w.pointer, w.align);
    }
  }
  // Vectors of elements as many apart as there are vectors, as whole ones from `pointer` on.
  void store_turned(const std::vector<V>& values, V pointer, llvm::Align align) {
    auto* element = llvm::cast<FixedVectorType>(values[0]->getType())->getElementType();
    auto whole = turned_back(values),
         masks = mask_ ? turned_back(std::vector<V>(values.size(), mask_)) : whole;
    for (size_t k = 0; k < whole.size(); ++k) {
      V to = b_.CreateConstGEP1_64(element, pointer, k * uint64_t(lanes()));
      if (mask_) b_.CreateMaskedStore(whole[k], to, align, masks[k]);
      else b_.CreateAlignedStore(whole[k], to, align);
    }
  }

  // A load for each lane.
  V one_by_one(FixedVectorType* t, V pointers, llvm::Align align) {
    V v = llvm::PoisonValue::get(t);
    for (uint64_t k = 0; k < uint64_t(lanes()); ++k)
      v = b_.CreateInsertElement(
          v, b_.CreateAlignedLoad(t->getElementType(), b_.CreateExtractElement(pointers, k), align), k);
    return v;
  }

  // Elements from the last lane's to the first's, which is at `pointer`.
  V backwards(FixedVectorType* t, V pointer, llvm::Align align) {
    V first = b_.CreateConstGEP1_64(t->getElementType(), pointer, uint64_t(1 - lanes()));
    if (!mask_) return b_.CreateVectorReverse(b_.CreateAlignedLoad(t, first, align));
    return b_.CreateVectorReverse(
        b_.CreateMaskedLoad(t, first, align, b_.CreateVectorReverse(mask_), llvm::Constant::getNullValue(t)));
  }

  V load(const Node& n, bool as_stored = false) {
    Place p = place(n.slot, n.part);
    auto decoded = [&](V v) { return as_stored ? v : decode(v, p.d); };
    if (V v = element_of_rows(n, p)) return decoded(v);
    LaneAccess a = access(n.slot, n.args[0], true);
    if (a.kind == LaneAccess::uniform) return decoded(load_uniform(p, n.args[0]));
    return decoded(load_lanes(a, n, p));
  }
  V load_uniform(const Place& p, Expr offset) {
    auto* element = memory_type(p.d);
    llvm::Align align(uint64_t(itemsize(p.d)));
    V pointer = pointer_to(p, offset);
    if (!(mask_ && maybe_none_ && !first_)) return b_.CreateAlignedLoad(element, pointer, align);
    V zero = llvm::Constant::getNullValue(element), v = zero;
    auto* from = b_.GetInsertBlock();
    BasicBlock* end = nullptr;
    when(b_.CreateOrReduce(mask_), [&] {
      v = b_.CreateAlignedLoad(element, pointer, align);
      end = b_.GetInsertBlock();
    });
    auto* phi = b_.CreatePHI(element, 2);
    phi->addIncoming(zero, from);
    phi->addIncoming(v, end);
    return phi;
  }
  V load_lanes(const LaneAccess& a, const Node& n, const Place& p) {
    auto* t = FixedVectorType::get(memory_type(p.d), unsigned(lanes()));
    llvm::Align align(uint64_t(itemsize(p.d)));
    V from = pointer_of(a, n.slot, p, n.args[0]), zero = llvm::Constant::getNullValue(t);
    if (a.stride) from = lane_pointers(from, t->getElementType(), a.stride);
    switch (a.kind) {
      case LaneAccess::repeated: return load_repeated(a.lanes, t, from, align);
      case LaneAccess::spaced: return every(a.apart, t, from, align);
      case LaneAccess::reversed: return backwards(t, from, align);
      case LaneAccess::gathered: return b_.CreateMaskedGather(t, from, align, mask_, zero);
      case LaneAccess::each: return one_by_one(t, from, align);
      default: break;
    }
    if (mask_ && a.kind == LaneAccess::contiguous) return b_.CreateMaskedLoad(t, from, align, mask_, zero);
    return b_.CreateAlignedLoad(t, from, align);
  }

  void store(const Statement& s) {
    Place p = place(s.buffer, s.part);
    V v = as_stored(s.values[0], p.d);
    if (weave(s, p, v)) return;
    LaneAccess a = access(s.buffer, s.offset, false);
    llvm::Align align(uint64_t(itemsize(p.d)));
    V to = pointer_of(a, s.buffer, p, s.offset);
    if (a.kind == LaneAccess::uniform) {
      b_.CreateAlignedStore(v, to, align);
      return;
    }
    v = spread(v);
    if (a.stride) to = lane_pointers(to, memory_type(p.d), a.stride);
    if (a.kind == LaneAccess::gathered) b_.CreateMaskedScatter(v, to, align, mask_);
    else if (a.kind == LaneAccess::each)
      for (uint64_t k = 0; k < uint64_t(lanes()); ++k)
        b_.CreateAlignedStore(b_.CreateExtractElement(v, k), b_.CreateExtractElement(to, k), align);
    else if (mask_) b_.CreateMaskedStore(v, to, align, mask_);
    else b_.CreateAlignedStore(v, to, align);
  }

  // Both parts of complex numbers beside each other, as they lie in memory; null if these are none.
  V load_pair(Expr re, Expr im, DType d, V mask) {
    if (!schedule::loads_pairs(*scope_, re, im, d)) return nullptr;
    V pointer = pointer_to(place(re->slot, 1), re->args[0]);
    auto* t = FixedVectorType::get(memory_type(d), unsigned(2 * lanes()));
    llvm::Align align(uint64_t(itemsize(d)));
    if (!mask) return b_.CreateAlignedLoad(t, pointer, align);
    return b_.CreateMaskedLoad(t, pointer, align, mask, llvm::Constant::getNullValue(t));
  }

  // Real and imaginary parts that lie side by side are written as whole vectors; false if these are none.
  bool store_pair(const Statement& re, const Statement& im) {
    if (!in_lanes() || first_ || !schedule::stores_pairs(*scope_, re, im)) return false;
    Push layer(*this, true);
    Place p = place(re.buffer, 1);
    auto value = [&](const Statement& s) {
      return spread(encode(emit(s.values[0]), s.values[0].dtype(), p.d));
    };
    auto woven = [&](V a, V b) {
      std::vector<int> order;
      for (int k = 0; k < lanes(); ++k) {
        order.push_back(k);
        order.push_back(int(lanes()) + k);
      }
      return b_.CreateShuffleVector(a, b, order);
    };
    V v = load_pair(re.values[0], im.values[0], p.d, mask_ ? woven(mask_, mask_) : nullptr);
    if (!v) {
      V parts[] = {value(re), value(im)};
      v = woven(parts[0], parts[1]);
    }
    V pointer = pointer_to(p, re.offset);
    llvm::Align align(uint64_t(itemsize(p.d)));
    if (mask_) b_.CreateMaskedStore(v, pointer, align, woven(mask_, mask_));
    else b_.CreateAlignedStore(v, pointer, align);
    return true;
  }

  // Stores of neighbours, as whole vectors: how many there are.
  size_t store_neighbours(const loop::Block& block, size_t k) {
    size_t apart = in_lanes() && !first_ ? schedule::stores_of_neighbours(*scope_, block, k) : 0;
    if (!apart) return 0;
    auto& first = block[k];
    Push layer(*this, true);
    Place p = place(first.buffer, 0);
    std::vector<V> values;
    for (size_t j = 0; j < apart; ++j) values.push_back(spread(as_stored(block[k + j].values[0], p.d)));
    store_turned(values, at(p.base, memory_type(p.d), emit_first(first.offset)),
                 llvm::Align(uint64_t(itemsize(p.d))));
    return apart;
  }

  // ---- statements

  void emit_block(const loop::Block& block) {
    Push layer(*this, false);
    for (size_t k = 0; k < block.size();)
      if (k + 1 < block.size() && store_pair(block[k], block[k + 1])) k += 2;
      else if (size_t n = store_neighbours(block, k)) k += n;
      else emit_statement(block[k++]);
  }

  void emit_statement(const Statement& s) {
    switch (s.kind) {
      case StatementKind::loop: return emit_loop(s);
      case StatementKind::condition: {
        V c;
        {
          Push layer(*this, true);
          c = emit(s.values[0]);
        }
        if (!is_vector(c)) {
          bool outer = std::exchange(guarded_, true);
          when(c, [&] { emit_block(s.body); });
          guarded_ = outer;
          return;
        }
        V outer = mask_;
        mask_ = outer ? b_.CreateAnd(outer, c) : c;
        bool maybe = std::exchange(maybe_none_, false);
        when(b_.CreateOrReduce(mask_), [&] { emit_block(s.body); });
        mask_ = outer;
        maybe_none_ = maybe;
        return;
      }
      case StatementKind::array: return make_array(s);
      case StatementKind::accumulator: {
        auto start = loop::identity(s.monoid, s.dtype, s.position);
        for (size_t k = 0; k < start.size(); ++k) {
          auto* t = math_->type(start[k].dtype());
          if (in_lanes()) t = FixedVectorType::get(t, unsigned(lanes()));
          Local l{room(t), t, start[k].dtype()};
          V v = emit(start[k]);
          b_.CreateStore(t->isVectorTy() ? spread(v) : v, l.value);
          locals_[s.var + int(k)] = l;
        }
        return;
      }
      default: break;
    }
    Push layer(*this, true);
    switch (s.kind) {
      case StatementKind::let: {
        V v = emit(s.values[0]);
        locals_[s.var] = {v, nullptr, s.values[0].dtype()};
        selects_.forget();  // what is computed now was not before
        return;
      }
      case StatementKind::assign: {
        V v = emit(s.values[0]);
        auto it = locals_.find(s.var);
        DType d = s.values[0].dtype();
        if (it == locals_.end() || !it->second.type || !it->second.value || stale(it->second)) {
          auto* t = math_->type(d);
          if (in_lanes()) t = FixedVectorType::get(t, unsigned(lanes()));
          Local l{room(t), t, d};
          b_.CreateStore(llvm::Constant::getNullValue(t), l.value);
          it = locals_.insert_or_assign(s.var, l).first;
        }
        return write(it->second, v);
      }
      case StatementKind::accumulate: return accumulate(s);
      case StatementKind::store: return store(s);
      default: break;
    }
  }

  // A local left over from another loop, made in other lanes.
  bool stale(const Local& l) const {
    auto* v = llvm::dyn_cast<FixedVectorType>(l.type);
    return v ? int(v->getNumElements()) != lanes() : false;
  }

  void make_array(const Statement& s) {
    auto* element = memory_type(s.dtype);
    auto* resume = b_.GetInsertBlock();
    V count;
    bool one_each = in_lanes();
    {
      // Its size is known at entry: an expression of constants and parameters.
      b_.SetInsertPoint(entry_end_);
      Push layer(*this, false);
      count = emit(s.extent);
      if (one_each) count = b_.CreateMul(count, b_.getInt64(uint64_t(lanes())));
    }
    b_.SetInsertPoint(resume);
    locals_[s.var] = {room(element, count), nullptr, s.dtype};
  }

  void accumulate(const Statement& s) {
    size_t count = size_t(loop::components(s.monoid));
    std::vector<Expr> current;
    for (size_t k = 0; k < count; ++k)
      current.push_back(loop::local(s.var + int(k), local(s.var + int(k)).dtype));
    auto one = loop::lift(s.monoid, s.values);
    auto next =
        s.rising ? loop::combine_rising(s.monoid, current, one) : loop::combine(s.monoid, current, one);
    std::vector<V> v;
    for (auto& e : next) v.push_back(emit(e));
    for (size_t k = 0; k < count; ++k) write(local(s.var + int(k)), v[k]);
  }

  // Any two partial results of one monoid, as values of one shape.
  std::vector<V> combined(Monoid m, std::span<const DType> types, const std::vector<V>& a,
                          const std::vector<V>& b) {
    constexpr int kFirst = 1 << 28;
    std::vector<Expr> x, y;
    for (size_t k = 0; k < a.size(); ++k) {
      x.push_back(loop::local(kFirst + int(k), types[k]));
      y.push_back(loop::local(kFirst + 8 + int(k), types[k]));
      locals_[kFirst + int(k)] = {a[k], nullptr, types[k]};
      locals_[kFirst + 8 + int(k)] = {b[k], nullptr, types[k]};
    }
    Push layer(*this, false);
    selects_.forget();
    auto* vector = llvm::dyn_cast<FixedVectorType>(a[0]->getType());
    loop::LaneScope values(facts_, vector ? int(vector->getNumElements()) : 1);
    auto* outer = std::exchange(scope_, &values);
    std::vector<V> r;
    for (auto& e : loop::combine(m, x, y)) r.push_back(spread(emit(e)));
    scope_ = outer;
    return r;
  }

  // ---- loops

  void emit_loop(const Statement& s) {
    V extent;
    {
      Push layer(*this, true);
      extent = emit(s.extent);
    }
    if (s.loop == LoopKind::vector) return vector_loop(s, extent);
    if (s.loop == LoopKind::unrolled) return unrolled_loop(s, s.extent->value.to_int());
    // A loop whose length differs from lane to lane goes to the longest, with masks.
    if (is_vector(extent)) {
      V longest = b_.CreateIntMaxReduce(
          mask_ ? b_.CreateSelect(mask_, extent, llvm::Constant::getNullValue(extent->getType())) : extent,
          true);
      V outer = mask_;
      bool maybe = std::exchange(maybe_none_, false);
      count_loop(b_.getInt64(0), longest, 1, [&](V i) {
        V m = b_.CreateICmpSLT(spread(i), extent);
        mask_ = outer ? b_.CreateAnd(outer, m) : m;
        vars_[s.var] = i;
        emit_block(s.body);
      });
      mask_ = outer;
      maybe_none_ = maybe;
      return;
    }
    bool outer = std::exchange(guarded_, guarded_ || !steps_.empty());
    V begin = b_.getInt64(0);
    if (s.lanes.chains > 1 && is_alone_) begin = loop_in_chains(s, extent);
    count_loop(begin, extent, 1, [&](V i) {
      vars_[s.var] = i;
      emit_block(s.body);
    });
    guarded_ = outer;
  }

  void unrolled_loop(const Statement& s, int64_t count) {
    if (steps_.empty()) steps_from_ = layers_.size() - 1;
    steps_.push_back({s.var, count});
    for (int64_t i = 0; i < count; ++i) {
      vars_[s.var] = b_.getInt64(uint64_t(i));
      steps_.back().now = i;
      Push layer(*this, false);
      emit_block(s.body);
    }
    store_woven(steps_.back());
    steps_.pop_back();
  }

  // A sum of vectors is a chain in which each addition waits for the one before. Most of the loop goes by several
  // chains, which are added up pairwise; returns where it has got to.
  V loop_in_chains(const Statement& s, V extent) {
    const int chains = s.lanes.chains;
    std::map<int, std::vector<Local>> sums;
    for (auto& t : s.body) {
      if (t.kind != StatementKind::accumulate || sums.count(t.var)) continue;
      auto& list = sums[t.var];
      list.push_back(local(t.var));
      for (int c = 1; c < chains; ++c) {
        auto& l = list.emplace_back(list[0]);
        l.value = room(l.type);
        b_.CreateStore(spread(emit(loop::identity(t.monoid, l.dtype)[0])), l.value);
      }
    }
    V whole = b_.CreateAnd(extent, b_.getInt64(uint64_t(-chains)));
    count_loop(b_.getInt64(0), whole, chains, [&](V i) {
      for (int c = 0; c < chains; ++c) {
        for (auto& [var, list] : sums) locals_[var] = list[size_t(c)];
        vars_[s.var] = c ? b_.CreateNSWAdd(i, b_.getInt64(uint64_t(c))) : i;
        Push layer(*this, false);
        emit_block(s.body);
      }
    });
    for (auto& [var, list] : sums) {
      std::vector<V> parts;
      for (auto& l : list) parts.push_back(read(l));
      for (; parts.size() > 1; parts.resize(parts.size() / 2))
        for (size_t k = 0; k < parts.size() / 2; ++k)
          parts[k] = b_.CreateFAdd(parts[2 * k], parts[2 * k + 1]);
      b_.CreateStore(parts[0], list[0].value);
      locals_[var] = list[0];
    }
    selects_.forget();
    return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, whole, b_.getInt64(0));
  }

  void vector_loop(const Statement& s, V extent) {
    loop::LaneScope scope(facts_, s);
    const int lanes = s.lanes.width, unroll = s.lanes.unroll;
    const int64_t step = int64_t(lanes) * unroll;
    auto& outer_accumulators = scope.accumulators();

    // One accumulator a lane and an unrolled copy, in place of the outer ones.
    struct Copy {
      std::vector<Local> parts;
    };
    std::map<int, std::vector<Copy>> copies;
    std::map<int, Local> outer;
    std::map<int, std::vector<DType>> types;
    for (auto& [var, t] : outer_accumulators) {
      size_t count = size_t(loop::components(t->monoid));
      for (size_t k = 0; k < count; ++k) {
        outer[var + int(k)] = local(var + int(k));
        types[var].push_back(local(var + int(k)).dtype);
      }
      auto start = loop::identity(t->monoid, t->values[0].dtype(), t->values.back().dtype());
      auto& list = copies[var];
      for (int u = 0; u < unroll; ++u) {
        auto& copy = list.emplace_back();
        for (size_t k = 0; k < count; ++k) {
          auto* vector = FixedVectorType::get(math_->type(types[var][k]), unsigned(lanes));
          Local l{room(vector), vector, types[var][k]};
          b_.CreateStore(b_.CreateVectorSplat(unsigned(lanes), emit(start[k])), l.value);
          copy.parts.push_back(l);
        }
      }
    }
    auto use_copy = [&](int u) {
      for (auto& [var, list] : copies)
        for (size_t k = 0; k < list[size_t(u)].parts.size(); ++k)
          locals_[var + int(k)] = list[size_t(u)].parts[k];
    };

    auto* around = std::exchange(scope_, &scope);
    auto outer_steps = std::exchange(steps_, {});
    auto body = [&](V base, V mask) {
      selects_.forget();
      mask_ = mask;
      maybe_none_ = false;
      lane_base_ = base;
      vars_[s.var] = base;
      Push layer(*this, false);
      emit_block(s.body);
      mask_ = nullptr;
    };
    V done = b_.getInt64(0);
    for (int vectors : {s.lanes.strip, std::min(s.lanes.strip, 2)}) {
      if (vectors == 1 || vectors == scope.lanes / lanes) continue;
      scope.lanes = lanes * vectors;
      V whole = b_.CreateAnd(extent, b_.getInt64(uint64_t(-scope.lanes)));
      count_loop(done, whole, scope.lanes, [&](V i) { body(i, nullptr); });
      done = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, whole, done);
    }
    scope.lanes = lanes;
    is_alone_ = true;
    bool is_short = s.extent->kind == Kind::constant && s.extent->value.to_int() < step;
    if (!is_short) {
      V whole = b_.CreateAnd(extent, b_.getInt64(uint64_t(-step)));
      count_loop(done, whole, step, [&](V i) {
        for (int u = 0; u < unroll; ++u) {
          use_copy(u);
          body(u ? b_.CreateNSWAdd(i, b_.getInt64(uint64_t(u * lanes))) : i, nullptr);
        }
      });
      done = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, whole, done);
    }
    use_copy(0);
    auto rest = [&](V i) {
      V left = b_.CreateSub(extent, i);
      if (unroll > 1)
        left = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, left, b_.getInt64(uint64_t(lanes)));
      V count = b_.CreateTrunc(left, b_.getInt32Ty());
      body(i, b_.CreateICmpULT(iota(b_.getInt32Ty()), b_.CreateVectorSplat(unsigned(lanes), count)));
    };
    if (s.lanes.tail) {
      if (unroll > 1) count_loop(done, extent, lanes, rest);
      else when(b_.CreateICmpSLT(done, extent), [&] { rest(done); });
    }
    scope_ = around;
    is_alone_ = false;
    lane_base_ = nullptr;
    selects_.forget();
    steps_ = std::move(outer_steps);

    for (auto& [var, l] : outer) locals_[var] = l;
    for (auto& [var, t] : outer_accumulators) fold_lanes(t->monoid, var, types[var], copies[var], lanes);
    selects_.forget();
  }

  // The fixed tree: copies pairwise, then halves of the vector, then into the outer accumulator.
  template <class Copies>
  void fold_lanes(Monoid m, int var, std::span<const DType> types, Copies& copies, int lanes) {
    std::vector<std::vector<V>> partial;
    for (auto& c : copies) {
      auto& p = partial.emplace_back();
      for (auto& l : c.parts) p.push_back(read(l));
    }
    for (; partial.size() > 1; partial.resize(partial.size() / 2))
      for (size_t k = 0; k < partial.size() / 2; ++k)
        partial[k] = combined(m, types, partial[2 * k], partial[2 * k + 1]);
    std::vector<V> x = partial[0];
    for (int width = lanes / 2; width >= 1; width /= 2) {
      std::vector<int> low, high;
      for (int i = 0; i < width; ++i) low.push_back(i), high.push_back(width + i);
      std::vector<V> a, b;
      for (V v : x) {
        a.push_back(width > 1 ? b_.CreateShuffleVector(v, low) : b_.CreateExtractElement(v, uint64_t(0)));
        b.push_back(width > 1 ? b_.CreateShuffleVector(v, high) : b_.CreateExtractElement(v, uint64_t(1)));
      }
      x = combined(m, types, a, b);
    }
    std::vector<V> before;
    for (size_t k = 0; k < types.size(); ++k) before.push_back(read(local(var + int(k))));
    auto r = combined(m, types, before, x);
    for (size_t k = 0; k < types.size(); ++k) b_.CreateStore(r[k], local(var + int(k)).value);
  }

  const Nest& nest_;
  llvm::Module& module_;
  llvm::LLVMContext& c_;
  llvm::IRBuilder<> b_;
  ScalarMath* math_ = nullptr;
  int lanes32_;
  std::string features_;
  llvm::Function* f_ = nullptr;
  llvm::Instruction* entry_end_ = nullptr;
  std::vector<V> buffers_, params_;
  V status_ = nullptr;
  std::map<int, V> vars_;
  std::map<int, Local> locals_;
  std::vector<Layer> layers_;
  loop::NestFacts facts_;
  schedule::Selects selects_{facts_, [this](Expr e, bool first) { return lookup(e, first) != nullptr; }};
  loop::LaneScope no_lanes_{facts_};
  loop::LaneScope* scope_ = &no_lanes_;
  bool is_alone_ = false;  // in a vector of no strip
  V lane_base_ = nullptr, mask_ = nullptr;
  bool first_ = false;
  bool maybe_none_ = false;   // the mask may be off in every lane
  bool shared_ = false;       // in code that is there twice, with masks and without
  bool guarded_ = false;      // on one side of a branch
  std::vector<Steps> steps_;  // of the unrolled loops around
  size_t steps_from_ = 0;     // the layer around them, whose values all their steps have
};

const llvm::Target* target() {
  static const llvm::Target* t = [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    // It looks for sums to reorder, which it may not in numbers with rounding.
    auto& options = llvm::cl::getRegisteredOptions();
    if (auto it = options.find("x86-machine-combiner"); it != options.end())
      static_cast<llvm::cl::opt<bool>*>(it->second)->setValue(false);
    std::string error;
    return llvm::TargetRegistry::lookupTarget("x86_64-unknown-linux-gnu", error);
  }();
  return t;
}

// "x86-64+avx2+fma" -> "+avx2,+fma"
std::string feature_list(const std::string& features) {
  std::string r;
  for (char c : features.substr(features.find('+'))) {
    if (c == '+' && !r.empty()) r += ',';
    r += c;
  }
  return r;
}

// Kept by each thread that compiles: what it knows of the processor takes a twentieth of a kernel's time to make.
llvm::TargetMachine& machine_for(const std::string& features) {
  static thread_local std::unique_ptr<llvm::TargetMachine> machine;
  if (machine && machine->getTargetFeatureString() == features) return *machine;
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  options.UseInitArray = true;
  machine.reset(target()->createTargetMachine("x86_64-unknown-linux-gnu", "x86-64", features, options,
                                              llvm::Reloc::PIC_, llvm::CodeModel::Small,
                                              llvm::CodeGenOptLevel::Default));
  return *machine;
}

void compile(const Nest& nest, std::string& object) {
  llvm::LLVMContext context;
  llvm::Module module("facula", context);
  std::string features = feature_list(target_features());
  llvm::TargetMachine* machine = &machine_for(features);
  module.setTargetTriple("x86_64-unknown-linux-gnu");
  module.setDataLayout(machine->createDataLayout());
  module.setPICLevel(llvm::PICLevel::SmallPIC);

  internal_check(nest.lanes == vector_lanes())
      << "nest " << nest.name << " is lowered for " << nest.lanes << " lanes";
  Emitter(nest, module, nest.lanes, features).run();
  if (log_on(Log::llvm)) {
    std::string text;
    llvm::raw_string_ostream(text) << module;
    log_line(Log::llvm, text);
  }
  if (settings().verify || log_on(Log::llvm)) {
    std::string problem;
    llvm::raw_string_ostream stream(problem);
    internal_check(!llvm::verifyModule(module, &stream)) << "the generated module is not valid: " << problem;
  }
  for (auto& f : module)  // helpers live in the process, within reach through the loader's stubs
    if (f.isDeclaration() && !f.isIntrinsic()) f.setDSOLocal(true);

  llvm::legacy::PassManager passes;
  passes.add(llvm::createTargetTransformInfoWrapperPass(machine->getTargetIRAnalysis()));
  passes.add(llvm::createPromoteMemoryToRegisterPass());
  passes.add(llvm::createEarlyCSEPass(false));
  passes.add(llvm::createLICMPass());
  llvm::SmallVector<char, 0> buffer;
  llvm::raw_svector_ostream stream(buffer);
  internal_check(!machine->addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::ObjectFile))
      << "no object writer";
  passes.run(module);
  object.assign(buffer.begin(), buffer.end());
}

}  // namespace

extern "C" bool facula_llvm_compile(const loop::Nest* nest, std::string* object, std::string* error) {
  try {
    compile(*nest, *object);
    return true;
  } catch (const std::exception& e) {
    *error = e.what();
    return false;
  }
}

}  // namespace facula::codegen
