// Emits products of tiles (loop/tiles.h): as instructions of AMX, whose eight registers hold the four tiles of the result and the
// tiles of one step, or as calls.
#include <llvm/IR/IntrinsicsX86.h>

#include "facula/codegen/llvm_emitter.h"

namespace facula::codegen {

namespace {

constexpr uint64_t kRowBytes = 64;  // of a tile
constexpr uint64_t kOutBytes = loop::kTileBlock * sizeof(float);

// The first element of a tile of the result.
uint64_t out_offset(int i, int j) {
  return uint64_t(i * loop::kTileRows * loop::kTileBlock + j * loop::kTileColumns);
}

}  // namespace

void EmitTiles::multiply_tiles(const Statement& s) {
  auto& p = *s.product;
  auto start = [&](int buffer, llvm::Type* element, Expr offset) {
    return V(b_.CreateGEP(element, buffers_[size_t(buffer)], emit(offset)));
  };
  Panels at{start(p.left, b_.getInt32Ty(), s.values[0]), start(p.right, b_.getInt32Ty(), s.values[1]),
            start(s.buffer, b_.getFloatTy(), s.offset), emit(s.values[2])};
  if (has_unit_) by_unit(p, at);
  else by_calls(p, at);
}

// The k-th tile of a part of a step.
V EmitTiles::tile_at(V panel, V step, int parts, int part, int k) {
  V begin = b_.CreateMul(step, b_.getInt64(uint64_t(parts * loop::kPanelStep)));
  V offset = b_.CreateAdd(begin, b_.getInt64(uint64_t(part * loop::kPanelStep + k * loop::kTileWords)));
  return b_.CreateGEP(b_.getInt32Ty(), panel, offset);
}

void EmitTiles::by_calls(const loop::TileProduct& p, const Panels& at) {
  llvm::Type *ptr = b_.getPtrTy(), *i64 = b_.getInt64Ty();
  auto multiply =
      module_.getOrInsertFunction("facula_multiply_tile",
                                  llvm::FunctionType::get(b_.getVoidTy(), {ptr, i64, ptr, ptr}, false));
  b_.CreateMemSet(at.out, b_.getInt8(0), uint64_t(loop::kTileBlock) * kOutBytes, llvm::Align(4));
  for (auto& phase : p.phases)
    count_loop(b_.getInt64(0), at.steps, 1, [&](V step) {
      loop::each_tile(phase, [&](const loop::TileProduct::Pair& pair, int i, int j) {
        V to = b_.CreateConstGEP1_64(b_.getFloatTy(), at.out, out_offset(i, j));
        V left = tile_at(at.left, step, p.parts, pair.left, i);
        V right = tile_at(at.right, step, p.parts, pair.right, j);
        b_.CreateCall(multiply, {to, b_.getInt64(uint64_t(loop::kTileBlock)), left, right});
      });
    });
}

// The rows of a tile and the bytes of one come before an instruction's other operands.
V EmitTiles::call_unit(llvm::Intrinsic::ID id, const std::vector<V>& operands) {
  std::vector<V> all{b_.getInt16(loop::kTileRows), b_.getInt16(kRowBytes)};
  all.insert(all.end(), operands.begin(), operands.end());
  return b_.CreateIntrinsic(id, {}, all);
}

EmitTiles::Sums EmitTiles::phase_by_unit(const loop::TileProduct& p, size_t phase, const Panels& at,
                                         const Sums& before) {
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
  loop::each_tile(p.phases[phase], [&](const loop::TileProduct::Pair& pair, int i, int j) {
    V& sum = sums[size_t(2 * i + j)];
    V left = tile(0, pair.left, i), right = tile(1, pair.right, j);
    sum = call_unit(llvm::Intrinsic::x86_tdpbf16ps_internal, {b_.getInt16(kRowBytes), sum, left, right});
  });
  V next = b_.CreateNSWAdd(step, b_.getInt64(1));
  step->addIncoming(next, head);
  for (size_t k = 0; k < sums.size(); ++k) carried[k]->addIncoming(sums[k], head);
  b_.CreateCondBr(b_.CreateICmpSLT(next, at.steps), head, exit);
  b_.SetInsertPoint(exit);
  Sums after;
  for (size_t k = 0; k < sums.size(); ++k) {
    auto* phi = joined(before[k]);
    phi->addIncoming(sums[k], head);
    after.push_back(phi);
  }
  return after;
}

void EmitTiles::by_unit(const loop::TileProduct& p, const Panels& at) {
  Sums sums;
  for (int k = 0; k < 4; ++k) sums.push_back(call_unit(llvm::Intrinsic::x86_tilezero_internal, {}));
  for (size_t k = 0; k < p.phases.size(); ++k) sums = phase_by_unit(p, k, at, sums);
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j) {
      V to = b_.CreateConstGEP1_64(b_.getFloatTy(), at.out, out_offset(i, j));
      V sum = sums[size_t(2 * i + j)];
      call_unit(llvm::Intrinsic::x86_tilestored64_internal, {to, b_.getInt64(kOutBytes), sum});
    }
}

}  // namespace facula::codegen
