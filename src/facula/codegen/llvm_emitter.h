// Emits a nest for lanes (schedule/lanes.h) as LLVM IR; private to llvm*.cpp. It makes no decisions: the nest says
// how loops run and how memory is accessed, and schedule/lane_select.h says how selects choose.
//   EmitFrame      control flow, locals, and the values that the code has computed
//   EmitValues     expressions, selects, checks (llvm_values.cpp)
//   EmitMemory     loads and stores (llvm_memory.cpp)
//   EmitFolds      accumulators, in lanes too, and scans (llvm_folds.cpp)
//   EmitTiles      products of tiles (llvm_tiles.cpp)
//   NestEmitter    statements and loops, the functions of a kernel (llvm.cpp)
// An expression is a vector if it differs between lanes; everything else is scalar.
#pragma once
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>

#include <functional>
#include <map>
#include <unordered_map>

#include "facula/codegen/llvm_math.h"
#include "facula/loop/lane_access.h"
#include "facula/schedule/lane_select.h"

namespace facula::codegen {

using llvm::BasicBlock;
using llvm::FixedVectorType;
using loop::Access;
using loop::Expr;
using loop::Kind;
using loop::Nest;
using loop::Node;
using loop::Statement;
using AccessKind = loop::Access::Kind;
using V = llvm::Value*;

class EmitFrame {
 protected:
  EmitFrame(const Nest& nest, llvm::Module& module)
      : nest_(nest), module_(module), c_(module.getContext()), b_(c_), facts_(nest) {}

  // A local. Lets are values; accumulators and assigned locals are memory until mem2reg; arrays remain memory.
  struct Local {
    V value = nullptr;
    llvm::Type* type = nullptr;  // of the content of the memory; null for a let
    DType dtype{};
  };
  // The values that the code has computed. The innermost layer ends with its block, branch or statement.
  struct Layer {
    std::unordered_map<const Node*, V> values, first;  // of all lanes; of the first lane
    bool statement = false;
    // Rows that are stored one behind the other, one row per lane: their elements by position, keyed by buffer and
    // first element.
    std::map<std::pair<std::pair<int, int>, const Node*>, std::vector<V>> rows;
  };
  struct Push {
    EmitFrame& e;
    Push(EmitFrame& e, bool statement) : e(e) { e.layers_.emplace_back().statement = statement; }
    ~Push() { e.layers_.pop_back(); }
  };
  V lookup(Expr e, bool first);
  void remember(Expr e, V v, bool first);

  int lanes() const { return scope_->lanes; }
  bool in_lanes() const { return lanes() > 1; }
  static bool is_vector(V v) { return v->getType()->isVectorTy(); }
  V spread(V v);                  // broadcasts to all lanes
  V iota(llvm::Type* element);    // 0, 1, 2, ...
  void level(std::vector<V>& a);  // makes all of them vectors if one is

  // Emits: for i in [begin, end) by step, with the test at the end.
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

  Local& local(int var);
  V room(llvm::Type* t, V count = nullptr);
  V read(const Local& l) { return b_.CreateLoad(l.type, l.value); }
  void write(const Local& l, V v);  // where the mask is off, the old value stays

  const Nest& nest_;
  llvm::Module& module_;
  llvm::LLVMContext& c_;
  llvm::IRBuilder<> b_;
  ScalarMath* math_ = nullptr;
  llvm::Function* f_ = nullptr;
  llvm::Instruction* entry_end_ = nullptr;
  std::vector<V> buffers_, params_;
  V status_ = nullptr;
  std::map<int, V> vars_;
  std::map<int, Local> locals_;
  std::vector<Layer> layers_;
  loop::NestFacts facts_;
  loop::LaneScope no_lanes_{facts_};
  loop::LaneScope* scope_ = &no_lanes_;
  V lane_base_ = nullptr, mask_ = nullptr;
  V tail_ = nullptr;         // the mask outside of conditions
  bool first_ = false;       // values are those of the first lane
  bool maybe_none_ = false;  // the mask may be off in every lane
  bool guarded_ = false;     // in one branch
};

class EmitValues : protected EmitFrame {
 protected:
  using EmitFrame::EmitFrame;
  V emit(Expr e);
  V emit_first(Expr e);          // the scalar value of an expression in the first lane
  V as_stored(Expr e, DType d);  // the value in the representation of memory of dtype d
  // The value of a load, as computed with or in the representation of memory.
  virtual V load(const Node& n, bool as_stored) = 0;

  schedule::Selects selects_{facts_, [this](Expr e, bool first) { return lookup(e, first) != nullptr; }};

 private:
  using Side = std::function<V(Expr)>;  // computes the value of a side of a select
  V constant(const Scalar& s, DType d);
  V fresh(Expr e);
  V cycle(Expr e);
  V select(const Node& n, const Side& value);
  V masked_select(const Node& n, const Side& value);
  template <class T, class E>
  V either(V condition, T&& yes, E&& no);
  V where_any(V condition, const std::function<V()>& side);
  V check(V i, V n, bool wraps);
  V divisor(V y);
  void flag(V bad, int64_t kind, V i, V n);

  bool shared_ = false;  // in code that is emitted twice, with and without masks
};

class EmitMemory : protected EmitValues {
 protected:
  using EmitValues::EmitValues;
  V load(const Node& n, bool as_stored) override;
  void store(const Statement& s);
  void fetch(int slot, int part, Expr offset);  // prefetches an element; in lanes, that of the first lane
  struct Counted {
    V before, yes;  // the accumulator before the vector, and the lanes that counted one
  };
  std::map<int, Counted> counted_;  // by accumulator of a scan
  // Stores the statements from the k-th on together if the nest says so; gives their number, or 0.
  size_t store_together(const loop::Block& block, size_t k);

  // The state of an unrolled loop whose steps access rows with that many elements, one row per lane.
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
  void store_woven(const Steps& steps);

  const Statement* statement_ = nullptr;  // whose expressions are emitted
  std::vector<Steps> steps_;              // of the unrolled loops around
  size_t steps_from_ = 0;  // the layer around them, whose values are available in all of their steps

 private:
  // The elements that an access touches. `d` is the dtype in memory; factor and shift apply to the offset (components
  // of complex numbers).
  struct Place {
    V base;
    DType d;
    int64_t factor = 1, shift = 0;
  };
  Place place(int slot, int part);
  V scaled(V offset, const Place& p);
  V at(V base, llvm::Type* element, V offset) { return b_.CreateGEP(element, base, offset); }
  V pick(V a, V b, const std::vector<int>& order) { return b_.CreateShuffleVector(a, b, order); }
  V pointer_to(const Place& p, Expr offset);
  Expr stride_of(const Access& a, int slot, const Place& p, Expr offset);
  V pointer_of(const Access& a, int slot, const Place& p, Expr offset);
  V lane_pointers(V first, llvm::Type* element, Expr stride);
  V lane_pointers(int slot, const Place& p, Expr offset);
  V own_row(const Place& p, Expr offset);
  Access access(int slot, Expr offset, bool load);
  void store_packed(const Statement& s, const Place& p, V v);

  V load_uniform(const Place& p, Expr offset);
  V load_lanes(const Access& a, const Node& n, const Place& p);
  V load_repeated(const loop::Repeated& r, FixedVectorType* t, V pointer, llvm::Align align);
  V every(int64_t apart, FixedVectorType* t, V pointer, llvm::Align align);
  V one_by_one(FixedVectorType* t, V pointers, llvm::Align align);
  V backwards(FixedVectorType* t, V pointer, llvm::Align align);

  bool in_rows(const Access& a) const { return a.rows >= 0 && !mask_ && !guarded_; }
  V element_of_rows(const Node& n, const Place& p);
  void weave(const Statement& s, const Place& p, V v);
  std::vector<V> turned(const std::vector<V>& x), turned_back(const std::vector<V>& x);
  template <class F>
  V gathered(const std::vector<V>& x, F&& at);
  void store_turned(const std::vector<V>& values, V pointer, llvm::Align align);
  V load_pair(const Node& re, int step, DType d, V mask);
  void store_pair(const Statement& re, const Statement& im, int moved);
  void store_neighbours(const loop::Block& block, size_t k, size_t apart);
};

class EmitFolds : protected EmitMemory {
 protected:
  using EmitMemory::EmitMemory;
  // Memory for a local of dtype d; in lanes, for a vector.
  Local variable(DType d);
  void make_accumulator(const Statement& s);
  void assign(const Statement& s);
  void accumulate(const Statement& s);

  // An outer accumulator in a loop over lanes. It has one copy for each vector of a round, each with a value per
  // lane, unless the loop scans.
  struct Total {
    loop::Monoid monoid;
    int var;
    std::vector<Local> outer;                // its components
    std::vector<std::vector<Local>> copies;  // by vector of the round
    std::vector<DType> types{};
  };
  std::vector<Total> totals_of(const loop::LaneScope& scope, const loop::Lanes& lanes);
  void use(const Total& t, const std::vector<Local>& parts);
  // Combines in a fixed tree: copies pairwise, then halves of the vector, then with the outer accumulator.
  void fold_lanes(const Total& t, int lanes);

  bool scans_ = false;  // in a loop over lanes that scans

 private:
  // True for a local of an earlier vector of the loop, which had another number of lanes.
  bool stale(const Local& l) const;
  // Combines two partial results of one monoid, given as values of one shape.
  std::vector<V> combined(loop::Monoid m, std::span<const DType> types, const std::vector<V>& a,
                          const std::vector<V>& b);
  // Computes each lane's total from the first lane on, by combining lanes at distances 1, 2, 4, ..., and then with
  // the accumulator's former value.
  void scan(const Statement& s);
};

class EmitTiles : protected EmitFolds {
 protected:
  // Without a matrix unit (AMX) for the words of a product, the product of each tile is a call.
  EmitTiles(const Nest& nest, llvm::Module& module, const std::string& features)
      : EmitFolds(nest, module),
        has_unit_(features.find("+amx-bf16") != std::string::npos),
        has_byte_unit_(features.find("+amx-int8") != std::string::npos) {}
  struct Panels {
    V left, right, out, steps;
  };
  Panels panels(const Statement& s);
  // Calls each_step(step) to emit what runs at each step of the last phase.
  using EachStep = std::function<void(V)>;
  void multiply_tiles(const loop::TileProduct& p, const Panels& at, const EachStep& each_step);

 private:
  using Sums = std::vector<V>;  // of the four tiles, in registers of the unit
  V tile_at(V panel, V step, int parts, int part, int k);
  void by_calls(const loop::TileProduct& p, const Panels& at, const EachStep& each_step);
  void by_unit(const loop::TileProduct& p, const Panels& at, const EachStep& each_step);
  Sums phase_by_unit(const loop::TileProduct& p, size_t phase, const Panels& at, const Sums& before,
                     const EachStep& each_step);
  V call_unit(llvm::Intrinsic::ID id, const std::vector<V>& operands);

  const bool has_unit_, has_byte_unit_;
};

}  // namespace facula::codegen
