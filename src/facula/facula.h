// Facula for C++ programs: tensors, operators, gradients, neural networks, optimizers, data and checkpoints.
// docs/cpp.md is the introduction. Errors are facula::Error (base/error.h), with PyTorch's type and a text
// that names the operator and says how to fix it.
#pragma once
#include <cstring>

#include "facula/autograd/function.h"  // gradients, modes, custom functions
#include "facula/base/parallel.h"      // set_num_threads
#include "facula/base/random.h"
#include "facula/batch/vmap.h"     // functions of one example, for a batch
#include "facula/data/loader.h"    // data sets and batches
#include "facula/io/checkpoint.h"  // save, load (.pt)
#include "facula/io/idx.h"
#include "facula/io/program.h"  // functions that run as a whole
#include "facula/nn/init.h"
#include "facula/nn/layers.h"           // modules
#include "facula/ops.h"                 // every operator as a function
#include "facula/optim/lr_scheduler.h"  // optimizers, schedules
#include "facula/optim/optimizers.h"
#include "facula/optim/swa_utils.h"
#include "facula/tensor/tensor.h"

namespace facula {

// Gradients of `output` summed into .grad of the leaves. `grad` may be left out for one element.
inline void backward(const Tensor& output, const Tensor& grad = {}, bool retain_graph = false,
                     bool create_graph = false) {
  autograd::backward({&output, 1}, {&grad, 1}, retain_graph || create_graph, create_graph);
}
inline Tensor grad_of(const Tensor& t) { return autograd::grad_of(t); }  // undefined: none yet
inline Tensor requires_grad_(const Tensor& t, bool on = true) {
  autograd::set_requires_grad(t, on);
  return t;
}

// No operator is recorded while one lives: { NoGrad off; ... }
class NoGrad : autograd::GradMode {
 public:
  NoGrad() : GradMode(false) {}
};

// Seeds the default generator.
inline void manual_seed(uint64_t seed) { default_generator().manual_seed(seed); }
// A generator's state as 16 bytes, which Python's set_rng_state takes too.
inline Tensor get_rng_state(const Generator& g = default_generator()) {
  Tensor t = Tensor::empty(IntSpan(Ints{16}), DType::UInt8);
  uint64_t words[] = {g.seed(), g.offset()};
  std::memcpy(t.data_ptr(), words, sizeof words);
  return t;
}
inline void set_rng_state(const Tensor& state, Generator& g = default_generator()) {
  user_check(state.dtype() == DType::UInt8 && state.numel() == 16 && state.is_contiguous(), "set_rng_state")
      << "a generator's state is 16 bytes, as get_rng_state() gives, not " << shapes_of({&state, 1});
  uint64_t words[2];
  std::memcpy(words, state.data_ptr(), sizeof words);
  g.set_state(words[0], words[1]);
}

}  // namespace facula
