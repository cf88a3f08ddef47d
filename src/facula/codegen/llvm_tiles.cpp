// Emits products of tiles (loop/tiles.h): as instructions of AMX, whose eight registers hold the four tiles of the result and the
// tiles of one step, or as calls.
#include <llvm/IR/IntrinsicsX86.h>

#include "facula/codegen/llvm_emitter.h"
#include "facula/loop/tiles.h"

namespace facula::codegen {

namespace {

constexpr uint64_t kRowBytes = 64;  // of a tile
constexpr uint64_t kOutBytes = loop::kTileBlock * sizeof(float);
static_assert(sizeof(float) == sizeof(int32_t));  // elements of both results

// The first element of a tile of the result.
uint64_t out_offset(int i, int j) {
  return uint64_t(i * loop::kTileRows * loop::kTileBlock + j * loop::kTileColumns);
}
bool is_bytes(const loop::TileProduct& p) { return p.words == loop::TileWords::bytes; }

}  // namespace

EmitTiles::Panels EmitTiles::panels(const Statement& s) {
  auto& p = *s.product;
  auto start = [&](int buffer, llvm::Type* element, Expr offset) {
    return V(b_.CreateGEP(element, buffers_[size_t(buffer)], emit(offset)));
  };
  return {start(p.left, b_.getInt32Ty(), s.values[0]), start(p.right, b_.getInt32Ty(), s.values[1]),
          start(s.buffer, b_.getInt32Ty(), s.offset), emit(s.values[2])};
}

void EmitTiles::multiply_tiles(const loop::TileProduct& p, const Panels& at, const EachStep& each_step) {
  if (is_bytes(p) ? has_byte_unit_ : has_unit_) by_unit(p, at, each_step);
  else by_calls(p, at, each_step);
}

// The k-th tile of a part of a step.
V EmitTiles::tile_at(V panel, V step, int parts, int part, int k) {
  V begin = b_.CreateMul(step, b_.getInt64(uint64_t(parts * loop::kPanelStep)));
  V offset = b_.CreateAdd(begin, b_.getInt64(uint64_t(part * loop::kPanelStep + k * loop::kTileWords)));
  return b_.CreateGEP(b_.getInt32Ty(), panel, offset);
}

void EmitTiles::by_calls(const loop::TileProduct& p, const Panels& at, const EachStep& each_step) {
  llvm::Type *ptr = b_.getPtrTy(), *i64 = b_.getInt64Ty();
  auto multiply =
      module_.getOrInsertFunction(is_bytes(p) ? "facula_multiply_byte_tile" : "facula_multiply_tile",
                                  llvm::FunctionType::get(b_.getVoidTy(), {ptr, i64, ptr, ptr}, false));
  // The sums stand apart until all steps are done.
  V sums = room(b_.getInt32Ty(), b_.getInt64(uint64_t(loop::kTileBlock * loop::kTileBlock)));
  b_.CreateMemSet(sums, b_.getInt8(0), uint64_t(loop::kTileBlock) * kOutBytes, llvm::Align(4));
  for (auto& phase : p.phases)
    count_loop(b_.getInt64(0), at.steps, 1, [&](V step) {
      loop::each_tile(phase, [&](const loop::TileProduct::Pair& pair, int i, int j) {
        V to = b_.CreateConstGEP1_64(b_.getInt32Ty(), sums, out_offset(i, j));
        V left = tile_at(at.left, step, p.parts, pair.left, i);
        V right = tile_at(at.right, step, p.parts, pair.right, j);
        b_.CreateCall(multiply, {to, b_.getInt64(uint64_t(loop::kTileBlock)), left, right});
      });
      if (&phase == &p.phases.back()) each_step(step);
    });
  b_.CreateMemCpy(at.out, llvm::Align(4), sums, llvm::Align(4), uint64_t(loop::kTileBlock) * kOutBytes);
}

// The rows of a tile and the bytes of one come before an instruction's other operands.
V EmitTiles::call_unit(llvm::Intrinsic::ID id, const std::vector<V>& operands) {
  std::vector<V> all{b_.getInt16(loop::kTileRows), b_.getInt16(kRowBytes)};
  all.insert(all.end(), operands.begin(), operands.end());
  return b_.CreateIntrinsic(id, {}, all);
}

EmitTiles::Sums EmitTiles::phase_by_unit(const loop::TileProduct& p, size_t phase, const Panels& at,
                                         const Sums& before, const EachStep& each_step) {
  auto *head = BasicBlock::Create(c_, "tiles", f_), *exit = BasicBlock::Create(c_, "exit", f_);
  auto* from = b_.GetInsertBlock();
  b_.CreateCondBr(b_.CreateICmpSGT(at.steps, b_.getInt64(0)), head, exit);
  b_.SetInsertPoint(head);
  auto joined = [&](V first) {
    auto* phi = b_.CreatePHI(first->getType(), 2);
    phi->addIncoming(first, from);
    return phi;
  };
  auto* step = joined(b_.getInt64(0));
  std::vector<llvm::PHINode*> carried;
  for (V sum : before) carried.push_back(joined(sum));
  Sums sums(carried.begin(), carried.end());
  // Two tiles of one part of the left and of the right panel: with the sums they fill the registers.
  struct {
    int part = -1;
    V tiles[2];
  } loaded[2];
  auto tile = [&](int side, int part, int k) {
    auto& l = loaded[side];
    if (l.part != part) l = {part, {}};
    if (!l.tiles[k])
      l.tiles[k] =
          call_unit(llvm::Intrinsic::x86_tileloadd64_internal,
                    {tile_at(side ? at.right : at.left, step, p.parts, part, k), b_.getInt64(kRowBytes)});
    return l.tiles[k];
  };
  const auto multiply =
      is_bytes(p) ? llvm::Intrinsic::x86_tdpbusd_internal : llvm::Intrinsic::x86_tdpbf16ps_internal;
  loop::each_tile(p.phases[phase], [&](const loop::TileProduct::Pair& pair, int i, int j) {
    V& sum = sums[size_t(2 * i + j)];
    V left = tile(0, pair.left, i), right = tile(1, pair.right, j);
    sum = call_unit(multiply, {b_.getInt16(kRowBytes), sum, left, right});
  });
  if (phase + 1 == p.phases.size()) each_step(step);
  V next = b_.CreateNSWAdd(step, b_.getInt64(1));
  auto* last = b_.GetInsertBlock();
  step->addIncoming(next, last);
  for (size_t k = 0; k < sums.size(); ++k) carried[k]->addIncoming(sums[k], last);
  b_.CreateCondBr(b_.CreateICmpSLT(next, at.steps), head, exit);
  exit->moveAfter(last);
  b_.SetInsertPoint(exit);
  Sums after;
  for (size_t k = 0; k < sums.size(); ++k) {
    auto* phi = joined(before[k]);
    phi->addIncoming(sums[k], last);
    after.push_back(phi);
  }
  return after;
}

void EmitTiles::by_unit(const loop::TileProduct& p, const Panels& at, const EachStep& each_step) {
  Sums sums;
  for (int k = 0; k < 4; ++k) sums.push_back(call_unit(llvm::Intrinsic::x86_tilezero_internal, {}));
  for (size_t k = 0; k < p.phases.size(); ++k) sums = phase_by_unit(p, k, at, sums, each_step);
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j) {
      V to = b_.CreateConstGEP1_64(b_.getInt32Ty(), at.out, out_offset(i, j));
      V sum = sums[size_t(2 * i + j)];
      call_unit(llvm::Intrinsic::x86_tilestored64_internal, {to, b_.getInt64(kOutBytes), sum});
    }
}

}  // namespace facula::codegen
