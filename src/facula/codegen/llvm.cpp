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

class NestEmitter : EmitTiles {
 public:
  NestEmitter(const Nest& nest, llvm::Module& module, const std::string& features)
      : EmitTiles(nest, module, features), features_(features) {}

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
    statement_ = &s;
    switch (s.kind) {
      case StatementKind::loop: return emit_loop(s);
      case StatementKind::condition: return condition(s);
      case StatementKind::array: return make_array(s);
      case StatementKind::tiles: return multiply(s);
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

  void multiply(const Statement& s) {
    Panels at;
    {
      Push layer(*this, true);
      at = panels(s);
    }
    multiply_tiles(*s.product, at, [&](V step) {
      if (s.body.empty()) return;
      vars_[s.var] = step;
      emit_block(s.body);
    });
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

  // Prefetches what the loop accesses `prefetch` iterations after i.
  void prefetch(const Statement& s, V i) {
    if (!s.lanes.prefetch) return;
    V later = b_.CreateAdd(i, b_.getInt64(uint64_t(s.lanes.prefetch)));
    vars_[s.var] = later;
    V base = std::exchange(lane_base_, in_lanes() ? later : lane_base_);
    Push layer(*this, false);
    for (auto& p : loop::prefetched_places(s)) fetch(p.slot, p.part, p.offset);
    lane_base_ = base;
    vars_[s.var] = i;
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
    return complete_groups(done, extent, round, [&](V i) {
      prefetch(s, i);
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

  const std::string& features_;
  bool is_alone_ = false;  // in a vector outside of strips
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
  std::string features = feature_list(target_features(nest));
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
