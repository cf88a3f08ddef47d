// Nests that this backend writes by hand (loop/nest_builder.h), and their kernels.
#pragma once
#include <array>
#include <map>
#include <mutex>
#include <span>
#include <type_traits>
#include <vector>

#include "facula/base/fork.h"
#include "facula/codegen/kernel.h"
#include "facula/loop/nest_builder.h"

namespace facula::device::cpu {

using loop::Alias, loop::TaskNest, loop::WorkBuffer;
using loop::ceil_div, loop::number, loop::with_arrays;

// A number as an operand of expressions.
inline Scalar n_of(int64_t x) { return Scalar(x); }

class NestBuilder : public loop::NestBuilder {
 public:
  using Block = loop::Block;
  using Expr = loop::Expr;
  using LoopKind = loop::LoopKind;
  using Statement = loop::Statement;

  // `lanes` of a vectorized loop; 0: as many as this machine has.
  explicit NestBuilder(DType d, int lanes = 0)
      : loop::NestBuilder(d, lanes ? lanes : codegen::vector_lanes() / (d == DType::Float64 ? 2 : 1)) {}
};

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
