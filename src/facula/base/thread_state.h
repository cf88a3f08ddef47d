// ThreadState: what regions of code set for their thread and restore at their end. Only the scope that a field names sets
// it. Shared libraries access it without a call, so it has to be small and trivially destructible.
//
// Thread state that stands elsewhere, and why:
//   objects that a thread owns and destroys   free lists (tensor/block.h, storage.cpp), recent cache entries
//                                             (run/call_cache.cpp), the profiler's frames, stacks of saved-tensor hooks,
//                                             vmap levels, the forward level, autocast's casts, functions to drop caches
//   types that only one file knows            the running task of a backward pass (autograd/engine.cpp), nodes that are
//                                             being destroyed (autograd/node.cpp), a transaction (extend/library.cpp), what
//                                             observes a trace (graph/tracer.cpp, trace.cpp, tensor/observe.h)
//   locks                                     their number, which a header counts (base/fork.h)
//   other libraries                           the binding (python/bind), LLVM's machine (codegen/llvm.cpp)
#pragma once
#include <cstddef>
#include <cstdint>

#include "facula/base/device.h"

namespace facula {

namespace sym {
class Shapes;
}
namespace op {
class Mode;
}
namespace autograd {
class Tracing;
}

struct ThreadState {
  // base
  bool warnings_off = false;         // WarningsOff
  Device default_device{};           // set_default_device
  int is_main = -1;                  // the main thread of the process; -1: not determined yet
  int uninterrupted = 0;             // number of Uninterrupted scopes
  int64_t next_interrupt_check = 0;  // nanoseconds
  // sym
  sym::Shapes* shapes = nullptr;       // sym::Shapes::With
  size_t expressions_left = SIZE_MAX;  // sym::ExpressionLimit
  const char* comparing_op = nullptr;  // sym::Comparing
  bool comparing_assumes = false, comparing_assumed = false;
  // op
  op::Mode* mode = nullptr;               // op::Mode::With
  int64_t most_views = int64_t(1) << 24;  // op::CallLimit
  // autograd
  bool grad = true, inference = false;   // autograd::GradMode, InferenceMode
  bool has_forward_level = false;        // autograd::enter_forward
  autograd::Tracing* tracing = nullptr;  // autograd::Tracing::With
  // graph
  int phase = 0, checkpoint = 0, checkpoints = 0;  // graph::At; the number of checkpoints that were entered
  // batch, codegen
  uint64_t calls_one_by_one = 0;  // calls of a batch without a rule; only grows
  bool is_background = false;     // a thread that compiles ahead (codegen/background.cpp)
};

extern __attribute__((tls_model("initial-exec"))) constinit thread_local ThreadState thread_state;

}  // namespace facula
