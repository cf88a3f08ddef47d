// Emits expressions, and the frame in which they are computed.
#include "facula/codegen/llvm_emitter.h"
#include "facula/loop/elementary.h"

namespace facula::codegen {

using schedule::SelectForm;

// ---- the frame

V EmitFrame::lookup(Expr e, bool first) {
  for (size_t k = layers_.size(); k--;) {
    auto& map = first ? layers_[k].first : layers_[k].values;
    if (auto it = map.find(e.get()); it != map.end()) return it->second;
  }
  return nullptr;
}

void EmitFrame::remember(Expr e, V v, bool first) {
  size_t k = layers_.size() - 1;
  if (layers_[k].statement && !facts_.is_volatile(e)) --k;
  (first ? layers_[k].first : layers_[k].values)[e.get()] = v;
}

V EmitFrame::spread(V v) {
  if (!in_lanes() || v->getType()->isVectorTy()) return v;
  return b_.CreateVectorSplat(unsigned(lanes()), v);
}

V EmitFrame::iota(llvm::Type* element) {
  std::vector<llvm::Constant*> c;
  for (int i = 0; i < lanes(); ++i) c.push_back(llvm::ConstantInt::get(element, uint64_t(i)));
  return llvm::ConstantVector::get(c);
}

// Makes all of them vectors if one is.
void EmitFrame::level(std::vector<V>& a) {
  for (auto& x : a) {
    if (!is_vector(x)) continue;
    for (auto& y : a) y = spread(y);
    return;
  }
}

EmitFrame::Local& EmitFrame::local(int var) {
  auto it = locals_.find(var);
  internal_check(it != locals_.end()) << "codegen: local " << var << " is used before it is made";
  return it->second;
}

V EmitFrame::room(llvm::Type* t, V count) {
  llvm::IRBuilder<> at(entry_end_);
  auto* a = at.CreateAlloca(t, count);
  a->setAlignment(llvm::Align(count ? 64 : module_.getDataLayout().getPrefTypeAlign(t).value()));
  return a;
}

// Writes v to the local; where the mask is off, the old value stays.
void EmitFrame::write(const Local& l, V v) {
  if (l.type->isVectorTy()) {
    v = spread(v);
    if (mask_) v = b_.CreateSelect(mask_, v, read(l));
  }
  internal_check(v->getType() == l.type)
      << "codegen: a value that differs between lanes for a local that does not";
  b_.CreateStore(v, l.value);
}

// ---- expressions

V EmitValues::emit(Expr e) {
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
V EmitValues::emit_first(Expr e) {
  bool outer = std::exchange(first_, in_lanes());
  V v = emit(e);
  first_ = outer;
  return v;
}

V EmitValues::constant(const Scalar& s, DType d) {
  auto* t = math_->type(d);
  if (is_floating(d)) {
    double v = s.to_double();
    return llvm::ConstantFP::get(t, d == DType::Float32 ? double(float(v)) : v);
  }
  return llvm::ConstantInt::get(t, uint64_t(d == DType::Bool ? s.to_bool() : s.to_int()), true);
}

V EmitValues::fresh(Expr e) {
  switch (e->kind) {
    case Kind::index:
      return b_.CreateAdd(b_.CreateVectorSplat(unsigned(lanes()), lane_base_), iota(b_.getInt64Ty()));
    case Kind::load: return load(*e.get(), false);
    case Kind::cast: {
      V x = emit(e->args[0]);
      if (e->memory != e->dtype)
        return math_->decode(math_->encode(x, e->dtype, e->memory), e->memory);  // round_to
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
    case Kind::select: return select(*e.get(), [&](Expr side) { return emit(side); });
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

// A remainder that is the same in every vector; null for other expressions.
V EmitValues::cycle(Expr e) {
  if (e->fn != loop::Fn::remainder) return nullptr;
  auto from = first_ ? std::nullopt : scope_->phase(e->args[0], e->args[1]);
  if (!from) return nullptr;
  std::vector<llvm::Constant*> c;
  for (int64_t l = 0; l < lanes(); ++l)
    c.push_back(llvm::ConstantInt::get(b_.getInt64Ty(), uint64_t((*from + l) % e->args[1]->value.to_int())));
  return llvm::ConstantVector::get(c);
}

V EmitValues::as_stored(Expr e, DType d) {
  if (!loop::is_move(e, d))
    return d == DType::BFloat16 && loop::is_bfloat16(e) ? math_->upper_half(emit(e))
                                                        : math_->encode(emit(e), e.dtype(), d);
  if (e->kind == Kind::load) return load(*e.get(), true);
  return select(*e.get(), [&](Expr side) { return as_stored(side, d); });
}

// ---- select: the side that is not taken must have no effect

template <class T, class E>
V EmitValues::either(V condition, T&& yes, E&& no) {
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

// side(), or an arbitrary value if the condition holds in no lane.
V EmitValues::where_any(V condition, const std::function<V()>& side) {
  V v = nullptr;
  return either(
      math_->any(condition), [&] { return v = side(); },
      [&] { return llvm::Constant::getNullValue(v->getType()); });
}

V EmitValues::select(const Node& n, const Side& value) {
  Expr condition = n.args[0];
  if (in_lanes() && !first_ && !mask_ && !shared_ && selects_.has_border(*scope_, n)) {
    // Most vectors satisfy the condition in all lanes and need no mask.
    V inside = b_.CreateAnd(emit_first(condition), emit_first(scope_->in_last_lane(condition)));
    shared_ = true;
    V v = either(inside, [&] { return spread(value(n.args[1])); }, [&] { return masked_select(n, value); });
    shared_ = false;
    return v;
  }
  return masked_select(n, value);
}

V EmitValues::masked_select(const Node& n, const Side& value) {
  bool branch = selects_.is_branch(*scope_, Expr(&n), first_);
  V c = emit(n.args[0]);
  auto form = selects_.form(*scope_, n, branch, first_);
  if (form == SelectForm::blend) {
    bool skipped[2] = {};
    if (is_vector(c)) {
      for (auto& e : selects_.shared(*scope_, n, first_)) emit(e);
      for (size_t k : {0, 1}) skipped[k] = selects_.is_skipped(*scope_, n, k + 1, first_);
    }
    std::vector<V> sides(2);
    auto side = [&](size_t k) { return is_vector(c) ? spread(value(n.args[k + 1])) : value(n.args[k + 1]); };
    for (size_t k : {0, 1})
      if (!skipped[k]) sides[k] = side(k);
    for (size_t k : {0, 1})
      if (skipped[k]) sides[k] = where_any(k ? b_.CreateNot(c) : c, [&] { return side(k); });
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

V EmitValues::check(V i, V n, bool wraps) {
  std::vector<V> a{i, n};
  level(a);
  i = a[0], n = a[1];
  V zero = llvm::Constant::getNullValue(i->getType());
  V j = wraps ? b_.CreateSelect(b_.CreateICmpSLT(i, zero), b_.CreateAdd(i, n), i) : i;
  V bad = b_.CreateICmpUGE(j, n), result = b_.CreateSelect(bad, zero, j);
  flag(bad, 1, i, n);
  return result;
}

V EmitValues::divisor(V y) {
  V zero = llvm::Constant::getNullValue(y->getType());
  V bad = b_.CreateICmpEQ(y, zero);
  flag(bad, 2, nullptr, nullptr);
  return b_.CreateSelect(bad, llvm::ConstantInt::get(y->getType(), 1), y);
}

// Records the first failure: its kind (Status::failed), and the index and size of a failed check.
void EmitValues::flag(V bad, int64_t kind, V i, V n) {
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

}  // namespace facula::codegen
