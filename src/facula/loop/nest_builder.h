// Writes loop nests by hand: statements appended to a block, with fresh variables.
#pragma once
#include <limits>
#include <utility>
#include <vector>

#include "facula/loop/nest.h"

namespace facula::loop {

inline Expr number(int64_t i) { return constant(Scalar(i), DType::Int64); }
inline Expr ceil_div(Expr a, int64_t b) { return floordiv(a + Scalar(b - 1), Scalar(b)); }

class NestBuilder {
 public:
  // `lanes` of a vectorized loop.
  NestBuilder(DType d, int lanes) : dtype_(d), lanes_(lanes) {}
  Block block;

  int lanes() const { return lanes_; }
  DType dtype() const { return dtype_; }
  int fresh() { return next_++; }
  Expr real(double x) const { return constant(Scalar(x), dtype()); }
  Expr minus_infinity() const { return real(-std::numeric_limits<double>::infinity()); }
  Expr read(int buffer, Expr offset) const { return read(buffer, offset, dtype()); }
  Expr read(int buffer, Expr offset, DType d) const { return load(buffer, d, {offset}); }

  Expr let(Expr x) {
    int v = fresh();
    Statement s{Statement::Kind::let};
    s.var = v;
    s.values = {x};
    block.push_back(std::move(s));
    return local(v, x.dtype());
  }
  Expr variable(Expr x) {
    int v = fresh();
    set(local(v, x.dtype()), x);
    return local(v, x.dtype());
  }
  void set(Expr variable, Expr x) {
    Statement s{Statement::Kind::assign};
    s.var = variable->slot;
    s.values = {x};
    block.push_back(std::move(s));
  }
  // An accumulator of values of dtype `d`, and its update by a value.
  Expr accumulator(Monoid m, DType d) {
    Statement s{Statement::Kind::accumulator};
    s.var = fresh();
    s.monoid = m;
    s.dtype = d;
    block.push_back(s);
    return local(s.var, d);
  }
  void accumulate(Expr accumulator, Monoid m, Expr x) {
    Statement s{Statement::Kind::accumulate};
    s.var = accumulator->slot;
    s.monoid = m;
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
    within(std::move(s), [&] { body(index(var)); });
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

// A buffer that a task works in; its contents do not outlive the task.
struct WorkBuffer {
  int buffer;
  Expr extent;  // elements, over the nest's params
};
// A second name of a buffer's memory, for reads that happen before it is written.
struct Alias {
  int buffer, of;
};
// Each thread of a CPU provides memory for the work buffers of its tasks, which run one after the other.
struct TaskNest {
  Nest nest;
  std::vector<WorkBuffer> work;
  std::vector<Alias> aliases;
};
// The same nest with a local array per task for each work buffer, so that tasks may run at once, as on a grid. The other
// buffers keep their order; aliases are removed.
Nest with_arrays(TaskNest t);

}  // namespace facula::loop
