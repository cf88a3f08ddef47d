#include "facula/codegen/llvm_emitter.h"
#include "facula/loop/monoid.h"

namespace facula::codegen {

using loop::Monoid;

EmitFolds::Local EmitFolds::variable(DType d) {
  auto* t = math_->type(d);
  if (in_lanes()) t = FixedVectorType::get(t, unsigned(lanes()));
  return {room(t), t, d};
}

bool EmitFolds::stale(const Local& l) const {
  auto* v = llvm::dyn_cast<FixedVectorType>(l.type);
  return v ? int(v->getNumElements()) != lanes() : false;
}

void EmitFolds::make_accumulator(const Statement& s) {
  auto start = loop::identity(s.monoid, s.dtype, s.position);
  for (size_t k = 0; k < start.size(); ++k) {
    Local l = variable(start[k].dtype());
    V v = emit(start[k]);
    b_.CreateStore(spread(v), l.value);
    locals_[s.var + int(k)] = l;
  }
}

void EmitFolds::assign(const Statement& s) {
  V v = emit(s.values[0]);
  auto it = locals_.find(s.var);
  if (it == locals_.end() || stale(it->second)) {
    Local l = variable(s.values[0].dtype());
    b_.CreateStore(llvm::Constant::getNullValue(l.type), l.value);
    it = locals_.insert_or_assign(s.var, l).first;
  }
  write(it->second, v);
}

void EmitFolds::accumulate(const Statement& s) {
  if (scans_ && scope_->accumulators().count(s.var)) return scan(s);
  size_t count = size_t(loop::components(s.monoid));
  std::vector<Expr> current;
  for (size_t k = 0; k < count; ++k)
    current.push_back(loop::local(s.var + int(k), local(s.var + int(k)).dtype));
  auto one = loop::lift(s.monoid, s.values);
  auto next = s.rising ? loop::combine_rising(s.monoid, current, one) : loop::combine(s.monoid, current, one);
  std::vector<V> v;
  for (auto& e : next) v.push_back(emit(e));
  for (size_t k = 0; k < count; ++k) write(local(s.var + int(k)), v[k]);
}

std::vector<V> EmitFolds::combined(Monoid m, std::span<const DType> types, const std::vector<V>& a,
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

void EmitFolds::scan(const Statement& s) {
  auto one = loop::lift(s.monoid, s.values),
       none = loop::identity(s.monoid, one[0].dtype(), one.back().dtype());
  std::vector<DType> types;
  std::vector<V> x, before, last, beside;
  for (size_t k = 0; k < one.size(); ++k) {
    types.push_back(one[k].dtype());
    V v = spread(emit(one[k]));
    x.push_back(mask_ ? b_.CreateSelect(mask_, v, spread(emit(none[k]))) : v);
    before.push_back(read(local(s.var + int(k))));
  }
  if (loop::counts(facts_, s)) {
    V yes = b_.CreateICmpNE(x[0], llvm::Constant::getNullValue(x[0]->getType()));
    counted_[s.var] = {before[0], yes};
  }
  V mask = std::exchange(mask_, nullptr);
  for (int apart = 1; apart < lanes(); apart *= 2) {
    std::vector<int> from;
    std::vector<llvm::Constant*> has;
    for (int l = 0; l < lanes(); ++l) {
      from.push_back(l < apart ? llvm::PoisonMaskElem : l - apart);
      has.push_back(b_.getInt1(l >= apart));
    }
    std::vector<V> earlier;
    for (V v : x) earlier.push_back(b_.CreateShuffleVector(v, from));
    auto both = combined(s.monoid, types, earlier, x);
    for (size_t k = 0; k < x.size(); ++k)
      x[k] = b_.CreateSelect(llvm::ConstantVector::get(has), both[k], x[k]);
  }
  for (V v : x) last.push_back(b_.CreateExtractElement(v, uint64_t(lanes() - 1)));
  for (V v : before) beside.push_back(spread(v));
  auto total = combined(s.monoid, types, beside, x), next = combined(s.monoid, types, before, last);
  if (auto it = counted_.find(s.var); it != counted_.end()) {
    V bits = b_.CreateBitCast(it->second.yes, b_.getIntNTy(unsigned(lanes())));
    V count = b_.CreateUnaryIntrinsic(llvm::Intrinsic::ctpop, bits);
    next[0] = b_.CreateAdd(before[0], b_.CreateZExtOrTrunc(count, before[0]->getType()));
  }
  mask_ = mask;
  for (size_t k = 0; k < x.size(); ++k) {
    Local& l = local(s.var + int(k));
    b_.CreateStore(next[k], l.value);
    l = {total[k], nullptr, types[k]};
  }
  selects_.forget();
}

std::vector<EmitFolds::Total> EmitFolds::totals_of(const loop::LaneScope& scope, const loop::Lanes& lanes) {
  std::vector<Total> all;
  for (auto& [var, t] : scope.accumulators()) {
    Total& total = all.emplace_back(Total{t->monoid, var, {}, {}});
    auto start = loop::identity(t->monoid, t->values[0].dtype(), t->values.back().dtype());
    for (size_t k = 0; k < start.size(); ++k) {
      total.outer.push_back(local(var + int(k)));
      total.types.push_back(total.outer[k].dtype);
    }
    if (lanes.scan) total.copies.push_back(total.outer);
    for (int u = 0; u < lanes.unroll && !lanes.scan; ++u) {
      auto& copy = total.copies.emplace_back();
      for (size_t k = 0; k < start.size(); ++k) {
        auto* vector = FixedVectorType::get(math_->type(total.types[k]), unsigned(lanes.width));
        Local l{room(vector), vector, total.types[k]};
        b_.CreateStore(b_.CreateVectorSplat(unsigned(lanes.width), emit(start[k])), l.value);
        copy.push_back(l);
      }
    }
  }
  return all;
}

void EmitFolds::use(const Total& t, const std::vector<Local>& parts) {
  for (size_t k = 0; k < parts.size(); ++k) locals_[t.var + int(k)] = parts[k];
}

void EmitFolds::fold_lanes(const Total& t, int lanes) {
  std::vector<std::vector<V>> partial;
  for (auto& c : t.copies) {
    auto& p = partial.emplace_back();
    for (auto& l : c) p.push_back(read(l));
  }
  for (; partial.size() > 1; partial.resize(partial.size() / 2))
    for (size_t k = 0; k < partial.size() / 2; ++k)
      partial[k] = combined(t.monoid, t.types, partial[2 * k], partial[2 * k + 1]);
  std::vector<V> x = partial[0];
  for (int width = lanes / 2; width >= 1; width /= 2) {
    std::vector<int> low, high;
    for (int i = 0; i < width; ++i) low.push_back(i), high.push_back(width + i);
    std::vector<V> a, b;
    for (V v : x) {
      a.push_back(width > 1 ? b_.CreateShuffleVector(v, low) : b_.CreateExtractElement(v, uint64_t(0)));
      b.push_back(width > 1 ? b_.CreateShuffleVector(v, high) : b_.CreateExtractElement(v, uint64_t(1)));
    }
    x = combined(t.monoid, t.types, a, b);
  }
  std::vector<V> before;
  for (auto& l : t.outer) before.push_back(read(l));
  auto r = combined(t.monoid, t.types, before, x);
  for (size_t k = 0; k < t.outer.size(); ++k) b_.CreateStore(r[k], t.outer[k].value);
}

}  // namespace facula::codegen
