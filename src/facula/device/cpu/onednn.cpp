#include "facula/device/cpu/onednn.h"

#include <omp.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "facula/base/log.h"
#include "facula/base/parallel.h"
#include "facula/base/per_thread.h"
#include "facula/base/settings.h"
#include "facula/device/cpu/cpu.h"

namespace facula::device::cpu {

const dnnl::engine& onednn_engine() {
  // The engine outlives the caches of all threads.
  static const dnnl::engine* engine = [] {
    if (settings().cpu_capability == "avx2") dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2);
    on_drop_caches([] {  // oneDNN keeps 1024 primitives of its own accord
      int capacity = dnnl::get_primitive_cache_capacity();
      dnnl::set_primitive_cache_capacity(0);
      dnnl::set_primitive_cache_capacity(capacity);
    });
    return new dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return *engine;
}

namespace {

const dnnl::stream& stream() {
  thread_local dnnl::stream s(onednn_engine());
  return s;
}

struct Buffer {
  void* data = nullptr;
  size_t bytes = 0;
  ~Buffer() { std::free(data); }
};

}  // namespace

dnnl::memory::data_type onednn_type(DType d) {
  using type = dnnl::memory::data_type;
  switch (d) {
    case DType::Float32: return type::f32;
    case DType::BFloat16: return type::bf16;
    default: internal_check(false) << "oneDNN is not used for " << d; __builtin_unreachable();
  }
}

dnnl::primitive_attr onednn_attributes() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

int onednn_threads() {
  if (in_parallel()) return 1;
  int n = num_threads();
  if (omp_get_max_threads() != n) omp_set_num_threads(n);
  return n;
}

bool is_reference(const char* what, const char* implementation) {
  bool reference = std::string_view(implementation).find("ref") != std::string_view::npos;
  if (log_on(Log::kernels)) {
    if (reference)
      log_line(Log::kernels, std::string("oneDNN offers only a reference implementation for ") + what + " (" +
                                 implementation + "): not used");
    else log_line(Log::kernels, std::string("oneDNN ") + what + ": " + implementation);
  }
  return reference;
}

void log_refusal(const dnnl::error& e) {
  if (log_on(Log::kernels))
    log_line(Log::kernels, std::string("oneDNN refuses these operands (") + e.what() + "): not used");
}

void* scratch(Scratch use, size_t bytes) {
  auto& b = per_thread<std::array<Buffer, size_t(Scratch::count)>>()[size_t(use)];
  if (b.bytes < bytes) {
    std::free(b.data);
    b.bytes = (bytes + 4095) / 4096 * 4096;
    b.data = std::aligned_alloc(4096, b.bytes);
    if (!b.data) {
      b.bytes = 0;
      throw std::bad_alloc();
    }
  }
  return b.data;
}

Bound Bound::reorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to) {
  dnnl::reorder::primitive_desc pd(onednn_engine(), from, onednn_engine(), to, onednn_attributes());
  is_reference("reorder", pd.impl_info_str());
  Bound b = of<dnnl::reorder>(pd);
  b.add(DNNL_ARG_FROM, from);
  b.add(DNNL_ARG_TO, to);
  return b;
}

void Bound::add(int argument, const dnnl::memory::desc& d) {
  memories_.emplace_back(d, onednn_engine(), nullptr);
  args_.push_back({argument, memories_.back().get()});
}

void Bound::run(std::span<const void* const> pointers) const {
  size_t k = 0;
  auto check = [](dnnl_status_t status) {
    runtime_check(status == dnnl_success, "oneDNN")
        << (status == dnnl_out_of_memory ? "not enough memory to run a primitive"
                                         : "a primitive could not be run")
        << " (status " << int(status) << ")";
  };
  auto set = [&](const void* p) {
    check(dnnl_memory_set_data_handle(args_[k++].memory, const_cast<void*>(p)));
  };
  if (scratchpad_) set(scratch(Scratch::primitive, scratchpad_));
  for (auto* p : pointers) set(p);
  check(dnnl_primitive_execute(primitive_.get(), stream().get(), int(args_.size()), args_.data()));
}

std::string onednn_version() {
  auto* v = dnnl_version();
  return "oneDNN " + std::to_string(v->major) + "." + std::to_string(v->minor) + "." +
         std::to_string(v->patch);
}

}  // namespace facula::device::cpu
