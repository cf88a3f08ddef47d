// Writes loop nests by hand: statements appended to a block, with fresh variables.
#pragma once
#include <limits>
#include <map>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "facula/base/fork.h"
#include "facula/codegen/kernel.h"
#include "facula/loop/nest.h"

namespace facula::backend::cpu {

inline loop::Expr number(int64_t i) { return loop::constant(Scalar(i), DType::Int64); }
inline loop::Expr ceil_div(loop::Expr a, int64_t b) { return loop::floordiv(a + Scalar(b - 1), Scalar(b)); }

class NestBuilder {
 public:
  using Block = loop::Block;
  using Expr = loop::Expr;
  using LoopKind = loop::LoopKind;
  using Statement = loop::Statement;

  explicit NestBuilder(DType d)
      : dtype_(d), lanes_(codegen::vector_lanes() / (d == DType::Float64 ? 2 : 1)) {}
  Block block;

  int lanes() const { return lanes_; }
  DType dtype() const { return dtype_; }
  int fresh() { return next_++; }
  Expr real(double x) const { return loop::constant(Scalar(x), dtype()); }
  Expr minus_infinity() const { return real(-std::numeric_limits<double>::infinity()); }
  Expr read(int buffer, Expr offset) const { return read(buffer, offset, dtype()); }
  Expr read(int buffer, Expr offset, DType d) const { return loop::load(buffer, d, {offset}); }

  Expr let(Expr x) {
    int v = fresh();
    Statement s{Statement::Kind::let};
    s.var = v;
    s.values = {x};
    block.push_back(std::move(s));
    return loop::local(v, x.dtype());
  }
  Expr variable(Expr x) {
    int v = fresh();
    set(loop::local(v, x.dtype()), x);
    return loop::local(v, x.dtype());
  }
  void set(Expr variable, Expr x) {
    Statement s{Statement::Kind::assign};
    s.var = variable->slot;
    s.values = {x};
    block.push_back(std::move(s));
  }
  void store(int buffer, Expr offset, Expr x) {
    Statement s{Statement::Kind::store};
    s.buffer = buffer;
    s.offset = offset;
    s.values = {x};
    block.push_back(std::move(s));
  }
  template <class F>
  void within(Statement s, F&& body) {
    Block outer = std::move(block);
    block.clear();
    body();
    s.body = std::move(block);
    block = std::move(outer);
    block.push_back(std::move(s));
  }
  template <class F>
  void loop_over(LoopKind kind, int var, Expr extent, F&& body) {
    Statement s{Statement::Kind::loop};
    s.var = var;
    s.loop = kind;
    s.extent = extent;
    within(std::move(s), [&] { body(loop::index(var)); });
  }
  template <class F>
  void each(Expr extent, F&& body) {
    loop_over(LoopKind::serial, fresh(), extent, body);
  }
  template <class F>
  void vector(Expr extent, F&& body) {
    loop_over(LoopKind::vector, fresh(), extent, body);
  }
  template <class F>
  void when(Expr condition, F&& body) {
    Statement s{Statement::Kind::condition};
    s.values = {condition};
    within(std::move(s), body);
  }

 private:
  DType dtype_;
  int lanes_;
  int next_ = 1;
};

// The kernel of the nest that `make` builds for a variant: made once. `make` is a lambda: kernels are kept by
// its type, which functions of one signature share.
template <class Variant, class Make>
const codegen::Kernel& kernel_of(const Variant& v, Make make) {
  static_assert(std::is_class_v<Make>);
  static std::map<Variant, const codegen::Kernel*> kernels;
  static TableMutex mutex;
  {
    std::lock_guard lock(mutex);
    if (auto it = kernels.find(v); it != kernels.end()) return *it->second;
  }
  loop::Nest n = make(v);
  loop::verify(n);
  auto* k = codegen::kernel(n);  // without the lock: it takes long, and Ctrl-C is heard
  std::lock_guard lock(mutex);
  kernels[v] = k;
  return *k;
}

}  // namespace facula::backend::cpu
