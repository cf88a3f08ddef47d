// Writes loop nests by hand: statements appended to a block, with fresh variables.
#pragma once
#include <array>
#include <limits>
#include <map>
#include <mutex>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "facula/base/fork.h"
#include "facula/codegen/kernel.h"
#include "facula/loop/nest.h"

namespace facula::device::cpu {

inline loop::Expr number(int64_t i) { return loop::constant(Scalar(i), DType::Int64); }
inline loop::Expr ceil_div(loop::Expr a, int64_t b) { return loop::floordiv(a + Scalar(b - 1), Scalar(b)); }

class NestBuilder {
 public:
  using Block = loop::Block;
  using Expr = loop::Expr;
  using LoopKind = loop::LoopKind;
  using Statement = loop::Statement;

  // `lanes` of a vectorized loop; 0: as many as this machine has.
  explicit NestBuilder(DType d, int lanes = 0)
      : dtype_(d), lanes_(lanes ? lanes : codegen::vector_lanes() / (d == DType::Float64 ? 2 : 1)) {}
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

// A buffer that a task works in; its contents do not outlive the task.
struct WorkBuffer {
  int buffer;
  loop::Expr extent;  // elements, over the nest's params
};
// A second name of a buffer's memory, for reads that happen before it is written.
struct Alias {
  int buffer, of;
};
// Each thread of a CPU provides memory for the work buffers of its tasks, which run one after the other.
struct TaskNest {
  loop::Nest nest;
  std::vector<WorkBuffer> work;
  std::vector<Alias> aliases;
};
// The same nest with a local array per task for each work buffer, so that tasks may run at once, as on a grid. The other
// buffers keep their order; aliases are removed.
loop::Nest with_arrays(TaskNest t);

struct TaskKernel {
  const codegen::Kernel* kernel;
  std::vector<WorkBuffer> work;
  std::vector<DType> dtypes;  // of `work`
  std::vector<Alias> aliases;
};
// Size in bytes of a thread's work buffers, and their positions.
class WorkMemory {
 public:
  WorkMemory(const TaskKernel& k, const int64_t* params);
  size_t bytes() const { return bytes_; }
  void place(char* memory, std::span<void*> buffers) const;  // and aliases

 private:
  const TaskKernel& kernel_;
  std::array<size_t, 16> begin_;
  size_t bytes_ = 0;
};

// Returns the kernel of the nest that `make` builds for a variant, which is compiled once. `make` has to be a lambda:
// kernels are cached by its type, which functions of one signature would share.
template <class Variant, class Make>
const TaskKernel& task_kernel_of(const Variant& v, Make make) {
  static_assert(std::is_class_v<Make>);
  static std::map<Variant, TaskKernel> kernels;
  static TableMutex mutex;
  {
    std::lock_guard lock(mutex);
    if (auto it = kernels.find(v); it != kernels.end()) return it->second;
  }
  TaskNest t = make(v);
  loop::verify(t.nest);
  TaskKernel result{codegen::kernel(t.nest),
                    t.work,
                    {},
                    t.aliases};  // without the lock: it takes long, and Ctrl-C is heard
  for (auto& w : t.work) result.dtypes.push_back(t.nest.buffers[size_t(w.buffer)].dtype);
  std::lock_guard lock(mutex);
  return kernels.try_emplace(v, std::move(result)).first->second;
}
template <class Variant, class Make>
const codegen::Kernel& kernel_of(const Variant& v, Make make) {
  return *task_kernel_of(v, [make](const Variant& w) { return TaskNest{make(w), {}, {}}; }).kernel;
}

}  // namespace facula::device::cpu
