// The C interface of programs (facula_c.h) on Program (io/program.h).
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "facula/autograd/autograd.h"
#include "facula/base/error.h"
#include "facula/base/parallel.h"
#include "facula/base/per_thread.h"
#include "facula/deploy/facula_c.h"
#include "facula/extend/library.h"
#include "facula/graph/graph.h"
#include "facula/io/program.h"
#include "facula/io/program_file.h"
#include "facula/ops.h"
#include "facula/run/traced.h"

using facula::DType;
using facula::Tensor;

struct facula_program {
  facula_program(facula::Program p, std::string text) : program(std::move(p)), extra(std::move(text)) {}
  facula::Program program;
  std::string extra;  // what Python stored with the program: the structure of its arguments and results
  std::mutex mutex;   // held by calls of programs that write their state, or that of objects
  bool writes = false;
};

namespace {

std::string& last_error() {
  struct Text : std::string {};
  return facula::per_thread<Text>();
}

// Runs f; an exception becomes the result `failed` and the text of facula_error().
template <class F, class R>
R guarded(R failed, F&& f) noexcept {
  try {
    return f();
  } catch (const std::exception& e) {
    try {
      last_error() = e.what();
    } catch (...) { last_error().clear(); }
    return failed;
  }
}

DType dtype_of(const char* name) {
  std::string_view wanted = name ? name : "";
  for (int k = 0; k < facula::kDTypeCount; ++k)
    if (wanted == facula::name(DType(k))) return DType(k);
  type_check(false, "facula_run") << "no dtype is " << (name ? name : "null");
  __builtin_unreachable();
}

// A tensor over the caller's memory.
Tensor tensor_of(const facula_array& a) {
  value_check(a.rank >= 0 && a.rank <= FACULA_MAX_RANK, "facula_run")
      << "an array of " << a.rank << " dimensions";
  facula::Ints sizes, strides(size_t(a.rank), 1);
  int64_t elements = 1;
  for (int d = 0; d < a.rank; ++d) {
    value_check(a.sizes[d] >= 0, "facula_run") << "an array has the size " << a.sizes[d];
    sizes.push_back(a.sizes[d]);
    elements *= a.sizes[d];
  }
  for (int d = a.rank - 2; d >= 0; --d) strides[size_t(d)] = strides[size_t(d) + 1] * sizes[size_t(d) + 1];
  value_check(a.data || !elements, "facula_run") << "an array without data";
  return Tensor::from_blob(a.data, sizes, strides, dtype_of(a.dtype), [] {});
}

void describe(const Tensor& t, facula_array& a) {
  a.dtype = facula::name(t.dtype());
  a.rank = int(t.dim());
  runtime_check(a.rank <= FACULA_MAX_RANK, "facula") << "a tensor of " << a.rank << " dimensions";
  for (int d = 0; d < a.rank; ++d) a.sizes[d] = t.size(d).is_symbolic() ? -1 : t.size(d).concrete();
  a.data = a.owner = nullptr;
}

std::vector<Tensor> run(facula_program& p, const facula_array* inputs, int count) {
  std::vector<Tensor> tensors;
  for (int k = 0; k < count; ++k) tensors.push_back(tensor_of(inputs[k]));
  std::unique_lock<std::mutex> lock(p.mutex, std::defer_lock);
  if (p.writes) lock.lock();
  facula::autograd::GradMode recording(false);
  return p.program(tensors);
}

}  // namespace

extern "C" {

const char* facula_version(void) { return "1"; }
const char* facula_error(void) { return last_error().c_str(); }

int facula_set_threads(int count) {
  return guarded(1, [&] {
    facula::set_num_threads(count > 0 ? count : int(std::thread::hardware_concurrency()));
    return 0;
  });
}

int facula_load_library(const char* path) {
  return guarded(1, [&] {
    value_check(path, "facula_load_library") << "the path is null";
#ifdef FACULA_RUNTIME
    supported_check(false, "facula_load_library")
        << "libfacula_runtime.so runs programs without operators and classes of users"
        << facula::hint("link with libfacula.so");
#else
    facula::load_library(path);
#endif
    return 0;
  });
}

facula_program* facula_load(const char* path) {
  return guarded(static_cast<facula_program*>(nullptr), [&] {
    value_check(path, "facula_load") << "the path is null";
    if (facula::io::is_program_file(path)) facula::io::add_kernels_of(path);
    std::string extra;
    auto program = facula::Program::load(path, &extra);
    auto loaded = std::make_unique<facula_program>(std::move(program), std::move(extra));
    auto& capture = loaded->program.traced().capture();
    loaded->writes =
        !capture.graph.mutated.empty() || !capture.slots.empty() || !loaded->program.objects().empty();
    return loaded.release();
  });
}
void facula_free(facula_program* program) { delete program; }

int facula_inputs(const facula_program* p) {
  return int(p->program.traced().graph().inputs.size() - p->program.captured().size());
}
int facula_outputs(const facula_program* p) {
  auto& t = p->program.traced();
  return int(t.capture().results - t.checks().size());
}
int facula_input(const facula_program* p, int k, facula_array* description) {
  return guarded(1, [&] {
    index_check(k >= 0 && k < facula_inputs(p), "facula_input") << "the program has no input " << k;
    describe(p->program.traced().graph().inputs[size_t(k)]->tensor, *description);
    return 0;
  });
}

int facula_run(facula_program* p, const facula_array* inputs, int count, facula_array* results) {
  return guarded(1, [&] {
    auto tensors = run(*p, inputs, count);
    std::vector<std::unique_ptr<Tensor>> owned;
    auto dense = [](const Tensor& t) {  // with conjugates and negatives that views have left to their readers
      if (!t.impl()->is_lazy() && t.is_contiguous()) return t;
      return facula::contiguous(facula::resolve_neg(facula::resolve_conj(t)));
    };
    for (auto& t : tensors) owned.push_back(t.defined() ? std::make_unique<Tensor>(dense(t)) : nullptr);
    for (size_t k = 0; k < owned.size(); ++k) {
      results[k] = {};
      if (!owned[k]) continue;
      describe(*owned[k], results[k]);
      results[k].data = owned[k]->impl()->data_ptr();
      results[k].owner = owned[k].release();
    }
    return 0;
  });
}
void facula_release(facula_array* results, int count) {
  for (int k = 0; k < count; ++k) {
    delete static_cast<Tensor*>(results[k].owner);
    results[k].owner = results[k].data = nullptr;
  }
}

int facula_train_step(facula_program* p, const facula_array* inputs, int count, double* loss) {
  return guarded(1, [&] {
    auto results = run(*p, inputs, count);
    runtime_check(!results.empty() && results[0].defined() && results[0].numel() == facula::SymInt(1),
                  "facula_train_step")
        << "the first result of the program is no tensor of one element";
    if (loss) *loss = results[0].item().to_double();
    return 0;
  });
}

int facula_states(const facula_program* p) { return int(p->program.captured().size()); }
int facula_state(facula_program* p, int k, facula_array* state) {
  return guarded(1, [&] {
    index_check(k >= 0 && k < facula_states(p), "facula_state") << "the program has no state " << k;
    auto& t = p->program.captured()[size_t(k)];
    runtime_check(t.is_contiguous(), "facula_state") << "the state " << k << " is not contiguous";
    describe(t, *state);
    state->data = const_cast<Tensor&>(t).impl()->data_ptr();
    return 0;
  });
}
int facula_save(const facula_program* p, const char* path) {
  return guarded(1, [&] {
    p->program.save(path, p->extra);
    return 0;
  });
}

}  // extern "C"
