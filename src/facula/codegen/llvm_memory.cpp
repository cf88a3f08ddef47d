// Emits loads and stores, scalar and in lanes.
#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>

#include "facula/codegen/kernel.h"
#include "facula/codegen/llvm_emitter.h"

namespace facula::codegen {

// ---- places

EmitMemory::Place EmitMemory::place(int slot, int part) {
  if (slot < 0) {
    auto& l = local(-1 - slot);
    return {l.value, l.dtype};
  }
  DType d = nest_.buffers.at(size_t(slot)).dtype;
  if (!is_complex(d)) return {buffers_[size_t(slot)], d};
  supported_check(part, "codegen") << "complex buffers are read and written by components";
  return {buffers_[size_t(slot)], real_of(d), 2, part - 1};
}

V EmitMemory::scaled(V offset, const Place& p) {
  auto* t = offset->getType();
  if (p.factor != 1) offset = b_.CreateMul(offset, llvm::ConstantInt::get(t, uint64_t(p.factor)));
  return p.shift ? b_.CreateAdd(offset, llvm::ConstantInt::get(t, uint64_t(p.shift))) : offset;
}

// The address of an element; in lanes, that of the first lane.
V EmitMemory::pointer_to(const Place& p, Expr offset) {
  return at(p.base, math_->memory_type(p.d), scaled(emit_first(offset), p));
}

// The addresses of all lanes' elements: from the first one by a stride, or by separate offsets.
V EmitMemory::lane_pointers(V first, llvm::Type* element, Expr stride) {
  return at(first, element, b_.CreateMul(iota(b_.getInt64Ty()), spread(emit(stride))));
}

void EmitMemory::fetch(int slot, int part, Expr offset) {
  V p = pointer_to(place(slot, part), offset);
  b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {p->getType()},
                     {p, b_.getInt32(0), b_.getInt32(3), b_.getInt32(1)});
}

V EmitMemory::lane_pointers(int slot, const Place& p, Expr offset) {
  auto* element = math_->memory_type(p.d);
  V o = spread(emit(offset));
  if (slot >= 0 || !scope_->is_lane_array(-1 - slot)) return at(p.base, element, scaled(o, p));
  V count = spread(b_.getInt64(uint64_t(lanes())));
  return at(p.base, element, b_.CreateAdd(b_.CreateMul(o, count), iota(b_.getInt64Ty())));
}

// The row of an array that has one element per lane.
V EmitMemory::own_row(const Place& p, Expr offset) {
  return at(p.base, math_->memory_type(p.d), b_.CreateMul(emit(offset), b_.getInt64(uint64_t(lanes()))));
}

// The distance between the elements of neighbouring lanes that are accessed one by one, or gathered; null if the lanes
// have offsets of their own, and for other accesses.
Expr EmitMemory::stride_of(const Access& a, int slot, const Place& p, Expr offset) {
  bool own = slot < 0 && scope_->is_lane_array(-1 - slot);
  if (own || (a.kind != AccessKind::gathered && a.kind != AccessKind::each)) return {};
  auto m = scope_->motion(offset);
  if (!m.simple) return {};
  return p.factor == 1 ? m.stride : m.stride * loop::constant(p.factor, DType::Int64);
}

// The pointer of an access: that of the first lane, or one per lane if they have offsets of their own.
V EmitMemory::pointer_of(const Access& a, int slot, const Place& p, Expr offset) {
  if (a.kind == AccessKind::own) return own_row(p, offset);
  bool scattered = a.kind == AccessKind::gathered || a.kind == AccessKind::each;
  return scattered && !stride_of(a, slot, p, offset).get() ? lane_pointers(slot, p, offset)
                                                           : pointer_to(p, offset);
}

// The access of the current statement under the current mask.
Access EmitMemory::access(int slot, Expr offset, bool load) {
  if (!in_lanes() || first_) return {.kind = AccessKind::uniform};
  Access a = loop::access_of(*scope_, *statement_, slot, offset, load);
  if (mask_ && (a.kind == AccessKind::spaced || a.kind == AccessKind::each)) a.kind = AccessKind::gathered;
  return a;
}

// ---- shuffles

// Lane l gets element at(l) of the concatenated vectors.
template <class F>
V EmitMemory::gathered(const std::vector<V>& x, F&& at) {
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

// Deinterleaves n vectors: vector j gets elements j, j + n, j + 2 n, ...
std::vector<V> EmitMemory::turned(const std::vector<V>& x) {
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

// Interleaves n vectors: the inverse of turned().
std::vector<V> EmitMemory::turned_back(const std::vector<V>& x) {
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

// Loads every `apart`-th element out of whole vectors. The last vector ends with the last element that is needed.
V EmitMemory::every(int64_t apart, FixedVectorType* t, V pointer, llvm::Align align) {
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

V EmitMemory::load_repeated(const loop::Repeated& r, FixedVectorType* t, V pointer, llvm::Align align) {
  int64_t count = r.at(lanes() - 1) + 1;
  std::vector<int> order;
  if (mask_) {  // an element is read if any lane needs it
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
  // The whole number of elements, loaded from the first one and up to the last one.
  int64_t distinct = lanes() / r.times;
  auto* part = FixedVectorType::get(t->getElementType(), unsigned(distinct));
  V first = b_.CreateAlignedLoad(part, pointer, align), last = first;
  if (count > distinct)
    last =
        b_.CreateAlignedLoad(part,
                             b_.CreateConstGEP1_64(t->getElementType(), pointer, uint64_t(count - distinct)),
                             align);
  for (int64_t l = 0; l < lanes(); ++l)
    order.push_back(int(r.at(l) < distinct ? r.at(l) : 2 * distinct - count + r.at(l)));
  return pick(first, last, order);
}

// One load per lane.
V EmitMemory::one_by_one(FixedVectorType* t, V pointers, llvm::Align align) {
  V v = llvm::PoisonValue::get(t);
  for (uint64_t k = 0; k < uint64_t(lanes()); ++k)
    v = b_.CreateInsertElement(
        v, b_.CreateAlignedLoad(t->getElementType(), b_.CreateExtractElement(pointers, k), align), k);
  return v;
}

// Loads elements in reversed order; the first lane's element is at `pointer`.
V EmitMemory::backwards(FixedVectorType* t, V pointer, llvm::Align align) {
  V first = b_.CreateConstGEP1_64(t->getElementType(), pointer, uint64_t(1 - lanes()));
  if (!mask_) return b_.CreateVectorReverse(b_.CreateAlignedLoad(t, first, align));
  return b_.CreateVectorReverse(
      b_.CreateMaskedLoad(t, first, align, b_.CreateVectorReverse(mask_), llvm::Constant::getNullValue(t)));
}

// ---- rows of an unrolled loop

// The current step's element of rows that are stored one behind the other.
V EmitMemory::element_of_rows(const Node& n, const Place& p) {
  auto& steps = steps_.back();
  Expr start = scope_->start_of_row(steps.var, steps.count, n.args[0]);
  auto& rows = layers_[steps_from_].rows[{{n.slot, n.part}, facts_.spelled_out(start).get()}];
  if (rows.empty()) {
    auto* element = math_->memory_type(p.d);
    auto* t = FixedVectorType::get(element, unsigned(lanes()));
    V pointer = at(p.base, element, emit_first(start));
    for (int64_t k = 0; k < steps.count; ++k)
      rows.push_back(b_.CreateAlignedLoad(t, b_.CreateConstGEP1_64(element, pointer, uint64_t(k * lanes())),
                                          llvm::Align(uint64_t(itemsize(p.d)))));
    rows = turned(rows);
  }
  return rows[size_t(steps.now)];
}

// Delays a store to such rows until all of their elements are available.
void EmitMemory::weave(const Statement& s, const Place& p, V v) {
  auto& steps = steps_.back();
  auto it = std::find_if(steps.woven.begin(), steps.woven.end(), [&](auto& w) { return w.store == &s; });
  if (it == steps.woven.end()) {
    Expr start = scope_->start_of_row(steps.var, steps.count, s.offset);
    V pointer = at(p.base, math_->memory_type(p.d), emit_first(start));
    steps.woven.push_back({&s, pointer, llvm::Align(uint64_t(itemsize(p.d))), {}});
    it = steps.woven.end() - 1;
  }
  it->values.push_back(spread(v));
}

void EmitMemory::store_woven(const Steps& steps) {
  for (auto& w : steps.woven) {
    internal_check(int64_t(w.values.size()) == steps.count) << "codegen: a row is stored in part";
    store_turned(w.values, w.pointer, w.align);
  }
}

// Stores vectors, whose elements have as many positions between them as there are vectors, as whole interleaved
// vectors from `pointer` on.
void EmitMemory::store_turned(const std::vector<V>& values, V pointer, llvm::Align align) {
  auto* element = llvm::cast<FixedVectorType>(values[0]->getType())->getElementType();
  auto interleaved = turned_back(values),
       masks = mask_ ? turned_back(std::vector<V>(values.size(), mask_)) : interleaved;
  for (size_t k = 0; k < interleaved.size(); ++k) {
    V to = b_.CreateConstGEP1_64(element, pointer, k * uint64_t(lanes()));
    if (mask_) b_.CreateMaskedStore(interleaved[k], to, align, masks[k]);
    else b_.CreateAlignedStore(interleaved[k], to, align);
  }
}

// ---- loads and stores

V EmitMemory::load(const Node& n, bool as_stored) {
  Place p = place(n.slot, n.part);
  auto decoded = [&](V v) { return as_stored ? v : math_->decode(v, p.d); };
  Access a = access(n.slot, n.args[0], true);
  if (in_rows(a)) return decoded(element_of_rows(n, p));
  if (a.kind == AccessKind::uniform) return decoded(load_uniform(p, n.args[0]));
  return decoded(load_lanes(a, n, p));
}

V EmitMemory::load_uniform(const Place& p, Expr offset) {
  auto* element = math_->memory_type(p.d);
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

V EmitMemory::load_lanes(const Access& a, const Node& n, const Place& p) {
  auto* t = FixedVectorType::get(math_->memory_type(p.d), unsigned(lanes()));
  llvm::Align align(uint64_t(itemsize(p.d)));
  V from = pointer_of(a, n.slot, p, n.args[0]), zero = llvm::Constant::getNullValue(t);
  if (Expr stride = stride_of(a, n.slot, p, n.args[0]))
    from = lane_pointers(from, t->getElementType(), stride);
  switch (a.kind) {
    case AccessKind::repeated: return load_repeated({a.count, a.from}, t, from, align);
    case AccessKind::spaced: return every(a.count, t, from, align);
    case AccessKind::reversed: return backwards(t, from, align);
    case AccessKind::gathered: return b_.CreateMaskedGather(t, from, align, mask_, zero);
    case AccessKind::each: return one_by_one(t, from, align);
    default: break;
  }
  if (mask_ && a.kind == AccessKind::contiguous) return b_.CreateMaskedLoad(t, from, align, mask_, zero);
  return b_.CreateAlignedLoad(t, from, align);
}

void EmitMemory::store(const Statement& s) {
  Place p = place(s.buffer, s.part);
  V v = as_stored(s.values[0], p.d);
  Access a = access(s.buffer, s.offset, false);
  if (in_rows(a)) return weave(s, p, v);
  llvm::Align align(uint64_t(itemsize(p.d)));
  if (a.kind == AccessKind::packed) return store_packed(s, p, v);
  V to = pointer_of(a, s.buffer, p, s.offset);
  if (a.kind == AccessKind::uniform) {
    b_.CreateAlignedStore(v, to, align);
    return;
  }
  v = spread(v);
  if (Expr stride = stride_of(a, s.buffer, p, s.offset))
    to = lane_pointers(to, math_->memory_type(p.d), stride);
  if (a.kind == AccessKind::gathered) b_.CreateMaskedScatter(v, to, align, mask_);
  else if (a.kind == AccessKind::each)
    for (uint64_t k = 0; k < uint64_t(lanes()); ++k)
      b_.CreateAlignedStore(b_.CreateExtractElement(v, k), b_.CreateExtractElement(to, k), align);
  else if (mask_) b_.CreateMaskedStore(v, to, align, mask_);
  else b_.CreateAlignedStore(v, to, align);
}

// Stores the counted lanes one behind the other, and after them the last active lane, as a serial loop would.
void EmitMemory::store_packed(const Statement& s, const Place& p, V v) {
  auto& counted = counted_.at(*loop::count_before(*scope_, s.offset));
  std::vector<llvm::Constant*> last(size_t(lanes()), b_.getFalse());
  last.back() = b_.getTrue();
  auto* bits = b_.getIntNTy(unsigned(lanes()));
  V end = llvm::ConstantVector::get(last);
  if (mask_) {
    V on = b_.CreateBitCast(mask_, bits);
    end = b_.CreateBitCast(b_.CreateXor(on, b_.CreateLShr(on, 1)), mask_->getType());
  }
  V taken = b_.CreateOr(counted.yes, end);
  V count = b_.CreateUnaryIntrinsic(llvm::Intrinsic::ctpop, b_.CreateBitCast(taken, bits));
  v = spread(v);
  V beside = b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_compress, {v->getType()},
                                {v, llvm::PoisonValue::get(v->getType()), taken});
  V first_lanes = b_.CreateICmpULT(iota(b_.getInt32Ty()), spread(b_.CreateZExt(count, b_.getInt32Ty())));
  b_.CreateMaskedStore(beside, at(p.base, math_->memory_type(p.d), counted.before),
                       llvm::Align(uint64_t(itemsize(p.d))), first_lanes);
}

// Loads both parts of contiguous complex numbers, in the order of memory (1) or in reversed order (-1).
V EmitMemory::load_pair(const Node& re, int step, DType d, V mask) {
  V pointer = pointer_to(place(re.slot, 1), re.args[0]);
  auto* t = FixedVectorType::get(math_->memory_type(d), unsigned(2 * lanes()));
  llvm::Align align(uint64_t(itemsize(d)));
  std::vector<int> turned;
  for (int k = int(lanes()); k-- > 0;) turned.insert(turned.end(), {2 * k, 2 * k + 1});
  auto ordered = [&](V v) { return step > 0 ? v : b_.CreateShuffleVector(v, turned); };
  if (step < 0) pointer = b_.CreateConstGEP1_64(t->getElementType(), pointer, uint64_t(2 - 2 * lanes()));
  if (!mask) return ordered(b_.CreateAlignedLoad(t, pointer, align));
  return ordered(b_.CreateMaskedLoad(t, pointer, align, ordered(mask), llvm::Constant::getNullValue(t)));
}

// Stores contiguous real and imaginary parts as whole vectors.
void EmitMemory::store_pair(const Statement& re, const Statement& im, int moved) {
  Push layer(*this, true);
  Place p = place(re.buffer, 1);
  auto value = [&](const Statement& s) {
    statement_ = &s;
    return spread(math_->encode(emit(s.values[0]), s.values[0].dtype(), p.d));
  };
  auto woven = [&](V a, V b) {
    std::vector<int> order;
    for (int k = 0; k < lanes(); ++k) {
      order.push_back(k);
      order.push_back(int(lanes()) + k);
    }
    return b_.CreateShuffleVector(a, b, order);
  };
  V v = nullptr;
  if (moved) {
    v = load_pair(*re.values[0].get(), moved, p.d, mask_ ? woven(mask_, mask_) : nullptr);
  } else {
    V parts[] = {value(re), value(im)};
    v = woven(parts[0], parts[1]);
  }
  V pointer = pointer_to(p, re.offset);
  llvm::Align align(uint64_t(itemsize(p.d)));
  if (mask_) b_.CreateMaskedStore(v, pointer, align, woven(mask_, mask_));
  else b_.CreateAlignedStore(v, pointer, align);
}

// Stores neighbouring elements, `apart` in number, as whole vectors.
void EmitMemory::store_neighbours(const loop::Block& block, size_t k, size_t apart) {
  auto& first = block[k];
  Push layer(*this, true);
  Place p = place(first.buffer, 0);
  std::vector<V> values;
  for (size_t j = 0; j < apart; ++j) {
    statement_ = &block[k + j];
    values.push_back(spread(as_stored(block[k + j].values[0], p.d)));
  }
  store_turned(values, at(p.base, math_->memory_type(p.d), emit_first(first.offset)),
               llvm::Align(uint64_t(itemsize(p.d))));
}

size_t EmitMemory::store_together(const loop::Block& block, size_t k) {
  for (auto& a : block[k].accesses) {
    if (a.kind == AccessKind::pairs) store_pair(block[k], block[k + 1], a.moved);
    else if (a.kind == AccessKind::neighbours) store_neighbours(block, k, size_t(a.count));
    else continue;
    return size_t(a.count);
  }
  return 0;
}

}  // namespace facula::codegen
