// Compiles nests for lanes: statements, loops and folds as LLVM IR with explicit vectors, the module around them, and
// its compilation to a relocatable object. llvm_emitter.h has expressions and memory.
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

#include "facula/base/log.h"
#include "facula/base/settings.h"
#include "facula/codegen/compiler.h"
#include "facula/codegen/kernel.h"
#include "facula/codegen/llvm_emitter.h"
#include "facula/loop/monoid.h"

extern "C" void LLVMInitializeX86TargetInfo();
extern "C" void LLVMInitializeX86Target();
extern "C" void LLVMInitializeX86TargetMC();
extern "C" void LLVMInitializeX86AsmPrinter();

namespace facula::codegen {
namespace {

using loop::LoopKind;
using loop::Monoid;
using StatementKind = Statement::Kind;

// Prefetch distance in steps, for loops with little work: one or two pages.
constexpr uint64_t kAhead = 512;

class NestEmitter : EmitMemory {
 public:
  NestEmitter(const Nest& nest, llvm::Module& module, const std::string& features)
      : EmitMemory(nest, module), features_(features) {}

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
    ScalarMath math(b_, *f_, nest_.lanes == 16);
    math_ = &math;
    each_statement(nest_.body, [&](const Statement& s) {
      by_elements_ |= s.kind == StatementKind::loop && s.loop == LoopKind::serial && s.lanes.unroll > 1;
    });
    layers_.emplace_back();
    emit_tasks(f_->getArg(base + 1), f_->getArg(base + 2));
    b_.CreateRetVoid();
  }

 private:
  llvm::Function* make(const char* name, llvm::FunctionType* t, bool internal) {
    auto* f =
        llvm::Function::Create(t,
                               internal ? llvm::Function::InternalLinkage : llvm::Function::ExternalLinkage,
                               name, module_);
    f->addFnAttr("target-features", features_);
    f->addFnAttr("target-cpu", "x86-64");
    f->addFnAttr("min-legal-vector-width", "512");
    f->addFnAttr("prefer-vector-width", nest_.lanes == 16 ? "512" : "256");
    f->setDoesNotThrow();
    if (internal) f->addFnAttr(llvm::Attribute::NoInline);
    return f;
  }

  void emit_tasks(V begin, V end) {
    auto body = [&](V task) {
      vars_[nest_.task_var] = task;
      emit_block(nest_.body);
    };
    if (nest_.end_var < 0) return count_loop(begin, end, 1, body);
    vars_[nest_.end_var] = end;
    when(b_.CreateICmpSLT(begin, end), [&] { body(begin); });
  }

  // ---- statements

  void emit_block(const loop::Block& block) {
    Push layer(*this, false);
    for (size_t k = 0; k < block.size();)
      if (size_t n = in_lanes() ? store_together(block, k) : 0) k += n;
      else emit_statement(block[k++]);
  }
  void emit_statement(const Statement& s) {
    switch (s.kind) {
      case StatementKind::loop: return emit_loop(s);
      case StatementKind::condition: return condition(s);
      case StatementKind::array: return make_array(s);
      case StatementKind::accumulator: return make_accumulator(s);
      default: break;
    }
    Push layer(*this, true);
    switch (s.kind) {
      case StatementKind::let: {
        V v = emit(s.values[0]);
        locals_[s.var] = {v, nullptr, s.values[0].dtype()};
        selects_.forget();  // it did not have the values that are computed now
        return;
      }
      case StatementKind::assign: return assign(s);
      case StatementKind::accumulate: return accumulate(s);
      case StatementKind::store: return store(s);
      default: internal_check(false) << "codegen: a statement of a grid";
    }
  }

  void condition(const Statement& s) {
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
  }

  // Memory for a local of dtype d; in lanes, for a vector.
  Local variable(DType d) {
    auto* t = math_->type(d);
    if (in_lanes()) t = FixedVectorType::get(t, unsigned(lanes()));
    return {room(t), t, d};
  }
  void make_accumulator(const Statement& s) {
    auto start = loop::identity(s.monoid, s.dtype, s.position);
    for (size_t k = 0; k < start.size(); ++k) {
      Local l = variable(start[k].dtype());
      V v = emit(start[k]);
      b_.CreateStore(spread(v), l.value);
      locals_[s.var + int(k)] = l;
    }
  }
  void assign(const Statement& s) {
    V v = emit(s.values[0]);
    auto it = locals_.find(s.var);
    if (it == locals_.end() || stale(it->second)) {
      Local l = variable(s.values[0].dtype());
      b_.CreateStore(llvm::Constant::getNullValue(l.type), l.value);
      it = locals_.insert_or_assign(s.var, l).first;
    }
    write(it->second, v);
  }
  // True for a local of an earlier vector of the loop, which had another number of lanes.
  bool stale(const Local& l) const {
    auto* v = llvm::dyn_cast<FixedVectorType>(l.type);
    return v ? int(v->getNumElements()) != lanes() : false;
  }
  void make_array(const Statement& s) {
    auto* element = math_->memory_type(s.dtype);
    auto* resume = b_.GetInsertBlock();
    V count;
    bool one_each = in_lanes();
    {
      // The size is known at entry: an expression of constants and parameters.
      b_.SetInsertPoint(entry_end_);
      Push layer(*this, false);
      count = emit(s.extent);
      if (one_each) count = b_.CreateMul(count, b_.getInt64(uint64_t(lanes())));
    }
    b_.SetInsertPoint(resume);
    locals_[s.var] = {room(element, count), nullptr, s.dtype};
  }
  void accumulate(const Statement& s) {
    if (scans_ && scope_->accumulators().count(s.var)) return scan(s);
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
  // Combines two partial results of one monoid, given as values of one shape.
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

  // Computes each lane's total from the first lane on, by combining lanes at distances 1, 2, 4, ..., and then with
  // the accumulator's former value.
  void scan(const Statement& s) {
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
    if (schedule::counts(facts_, s)) {
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

  // ---- loops

  void emit_loop(const Statement& s) {
    V extent;
    {
      Push layer(*this, true);
      extent = emit(s.extent);
    }
    if (s.loop == LoopKind::vector) return vector_loop(s, extent);
    if (s.loop == LoopKind::unrolled) return unrolled_loop(s, s.extent->value.to_int());
    // If the trip count varies between lanes, the loop runs to the largest one, under masks.
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
    auto step = [&](V i) {
      vars_[s.var] = i;
      emit_block(s.body);
    };
    if (int steps = s.lanes.unroll; steps > 1)
      begin = complete_groups(begin, extent, steps, [&](V i) {
        prefetch(s, i);
        for (int k = 0; k < steps; ++k) step(k ? b_.CreateNSWAdd(i, b_.getInt64(uint64_t(k))) : i);
      });
    count_loop(begin, extent, 1, step);
    guarded_ = outer;
  }

  // Prefetches what a loop with little work reads from memory. Interleaved streams, such as the places and the values
  // of a scatter, stop the hardware prefetcher at every page boundary.
  void prefetch(const Statement& s, V i) {
    std::set<int> own;
    each_statement(s.body, [&](const Statement& t) { own.insert(t.var); });
    auto plain = [&](Expr offset) {
      bool along = false, other = false;
      loop::visit(offset, [&](Expr e) {
        along |= e->kind == Kind::index && e->slot == s.var;
        bool linear = e->fn == loop::Fn::add || e->fn == loop::Fn::sub || e->fn == loop::Fn::mul;
        bool computed =
            e->kind == Kind::constant || e->kind == Kind::param || (e->kind == Kind::call && linear);
        other |= e->kind == Kind::local ? own.count(e->slot) > 0 : e->kind != Kind::index && !computed;
      });
      return along && !other;
    };
    V later = b_.CreateAdd(i, b_.getInt64(kAhead));
    vars_[s.var] = later;
    V base = std::exchange(lane_base_, in_lanes() ? later : lane_base_);
    loop::Seen seen;
    Push layer(*this, false);
    for (auto& t : s.body)
      each_expression(t, [&](Expr root) {
        loop::each_node(root, seen, [&](Expr e) {
          if (e->kind == Kind::load && e->slot >= 0 && plain(e->args[0])) fetch(e->slot, e->part, e->args[0]);
        });
      });
    for (auto& t : s.body)
      if (t.kind == StatementKind::store && t.buffer >= 0 && plain(t.offset))
        fetch(t.buffer, t.part, t.offset);
    lane_base_ = base;
    vars_[s.var] = i;
  }
  // True if a loop over lanes only stores the places of a scatter, or only initialises its result.
  bool takes_turns(const Statement& s) {
    bool any = false, all = true;
    each_statement(s.body, [&](const Statement& t) {
      if (t.kind != StatementKind::store) return;
      any = true;
      auto array = locals_.find(-1 - t.buffer);  // declared outside of the loop
      bool places = t.buffer < 0 && array != locals_.end() && array->second.dtype == DType::Int64;
      all &= places || (t.buffer >= 0 && by_elements_ && loop::is_move(t.values[0], facts_.memory(t.buffer)));
    });
    return any && all;
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

  // A sum of vectors is a dependency chain. Most of the loop runs in several chains, which are then added pairwise;
  // returns the first iteration that is left.
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
    V chained = b_.CreateAnd(extent, b_.getInt64(uint64_t(-chains)));
    count_loop(b_.getInt64(0), chained, chains, [&](V i) {
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
    return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, chained, b_.getInt64(0));
  }

  // An outer accumulator in a loop over lanes. It has one copy for each vector of a round, each with a value per
  // lane, unless the loop scans.
  struct Total {
    Monoid monoid;
    int var;
    std::vector<Local> outer;                // its components
    std::vector<std::vector<Local>> copies;  // by vector of the round
    std::vector<DType> types{};
  };
  std::vector<Total> totals_of(const loop::LaneScope& scope, const loop::Lanes& lanes) {
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
  void use(const Total& t, const std::vector<Local>& parts) {
    for (size_t k = 0; k < parts.size(); ++k) locals_[t.var + int(k)] = parts[k];
  }

  void vector_loop(const Statement& s, V extent) {
    loop::LaneScope scope(facts_, s);
    auto totals = totals_of(scope, s.lanes);
    auto* around = std::exchange(scope_, &scope);
    auto outer_steps = std::exchange(steps_, {});
    scans_ = s.lanes.scan;
    V done = strips(s, extent, scope);
    is_alone_ = true;
    done = rounds(s, extent, done, totals);
    for (auto& t : totals) use(t, t.copies[0]);
    if (s.lanes.tail) tail(s, extent, done);
    scope_ = around;
    is_alone_ = scans_ = false;
    lane_base_ = nullptr;
    selects_.forget();
    steps_ = std::move(outer_steps);
    for (auto& t : totals) use(t, t.outer);
    for (auto& t : totals)
      if (!s.lanes.scan) fold_lanes(t, s.lanes.width);
    selects_.forget();
  }
  // Runs the iterations from `base` on, one per lane.
  void vector(const Statement& s, V base, V mask) {
    selects_.forget();
    mask_ = tail_ = mask;
    maybe_none_ = false;
    lane_base_ = base;
    vars_[s.var] = base;
    Push layer(*this, false);
    emit_block(s.body);
    mask_ = tail_ = nullptr;
    counted_.clear();
  }
  // Runs iterations from `done` on, as long as complete groups of `count` remain; returns the first one that is left.
  template <class F>
  V complete_groups(V done, V extent, int64_t count, F&& body) {
    V end = b_.CreateAnd(extent, b_.getInt64(uint64_t(-count)));
    count_loop(done, end, count, body);
    return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, end, done);
  }
  V strips(const Statement& s, V extent, loop::LaneScope& scope) {
    V done = b_.getInt64(0);
    auto strip = [&](int vectors) {
      scope.lanes = s.lanes.width * vectors;
      done = complete_groups(done, extent, scope.lanes, [&](V i) { vector(s, i, nullptr); });
      scope.lanes = s.lanes.width;
    };
    if (s.lanes.strip > 1) strip(s.lanes.strip);
    if (s.lanes.strip > 2) strip(2);
    return done;
  }
  V rounds(const Statement& s, V extent, V done, const std::vector<Total>& totals) {
    int64_t round = int64_t(s.lanes.width) * s.lanes.unroll;
    if (s.extent->kind == Kind::constant && s.extent->value.to_int() < round) return done;
    bool prefetches = takes_turns(s);
    return complete_groups(done, extent, round, [&](V i) {
      if (prefetches) prefetch(s, i);
      for (int u = 0; u < s.lanes.unroll; ++u) {
        for (auto& t : totals) use(t, t.copies[size_t(u)]);
        vector(s, u ? b_.CreateNSWAdd(i, b_.getInt64(uint64_t(u * s.lanes.width))) : i, nullptr);
      }
    });
  }
  void tail(const Statement& s, V extent, V done) {
    const int width = s.lanes.width, unroll = s.lanes.unroll;
    auto rest = [&](V i) {
      V left = b_.CreateSub(extent, i);
      if (unroll > 1)
        left = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, left, b_.getInt64(uint64_t(width)));
      V count = b_.CreateTrunc(left, b_.getInt32Ty());
      vector(s, i, b_.CreateICmpULT(iota(b_.getInt32Ty()), b_.CreateVectorSplat(unsigned(width), count)));
    };
    if (unroll > 1) count_loop(done, extent, width, rest);
    else when(b_.CreateICmpSLT(done, extent), [&] { rest(done); });
  }

  // Combines in a fixed tree: copies pairwise, then halves of the vector, then with the outer accumulator.
  void fold_lanes(const Total& t, int lanes) {
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

  const std::string& features_;
  bool is_alone_ = false;     // in a vector outside of strips
  bool by_elements_ = false;  // some loop only updates elements of memory
  bool scans_ = false;        // in a loop over lanes that scans
};

const llvm::Target* target() {
  static const llvm::Target* t = [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    // This pass reassociates sums, which is not allowed for floating-point numbers.
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

// One per thread that compiles; creating it takes a twentieth of the time of a kernel.
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
  NestEmitter(nest, module, features).run();
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
  for (auto& f : module)  // helpers are in this process, within reach through the loader's stubs
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
