#include "facula/codegen/cuda.h"

#include <algorithm>

#include "facula/codegen/c_printer.h"
#include "facula/codegen/cuda_prelude.h"
#include "facula/codegen/kernel.h"

namespace facula::codegen {
namespace {

using loop::Space;
using loop::Statement;

constexpr int64_t kAlignment = 256;  // of scratch arrays, in bytes

class CudaPrinter : public CPrinter {
 public:
  using CPrinter::CPrinter;

 private:
  void open_function(const std::string& name) override {
    std::string buffers = std::to_string(n_.buffers.size()), params = std::to_string(n_.params);
    std::string task = index(n_.task_var), type = index_type();
    open(
        "extern \"C\" __global__ void __launch_bounds__(" + std::to_string(n_.threads) + ")\n" + name +
        "(const facula_arguments<" + buffers + ", " + params +
        "> args, int64_t begin, int64_t end, facula_status* status,\n    unsigned char* scratch, int64_t bytes) {");
    pointers("args.buffers", " __restrict__");
    line("(void)status; (void)scratch; (void)bytes;");
    open("for (" + type + " " + task + " = (" + type + ")(begin + blockIdx.x); " + task + " < end; " + task +
         " += gridDim.x) {");
    for (auto& s : n_.body)
      if (s.kind == Statement::Kind::array && s.space == Space::scratch)
        return line("unsigned char* next = scratch + blockIdx.x * bytes;");
  }
  std::string param(int k) const override {
    std::string param = "args.params[" + std::to_string(k) + "]";
    return n_.index_bits == 32 ? "(int32_t)" + param : param;
  }
  std::string reports_to() const override {
    return "{status, " + index(n_.task_var) + ", " + std::to_string(site_) + ", " + iteration_ + "}";
  }
  void threads_loop(const Statement& s) override {
    std::string i = index(s.var), end = extent(s), type = index_type();
    open("for (" + type + " " + i + " = threadIdx.x; " + i + " < " + end + "; " + i +
         " += " + std::to_string(n_.threads) + ") {");
    ++site_;
    iteration_ = i;
    block(s.body);
    iteration_ = "0";
    ++site_;
    close();
  }
  void array(const Statement& s) override {
    std::string type = memory_type(s.dtype), name = "a" + std::to_string(s.var);
    std::string count = values_of({s.extent})[0] + (is_complex(s.dtype) ? " * 2" : "");
    if (s.space == Space::scratch) {
      line(type + "* const " + name + " = (" + type + "*)next;");
      return line("next += facula_scratch_bytes(" + bare(count) + ", sizeof(" + type + "));");
    }
    line((s.space == Space::shared ? "__shared__ " : "") + type + " " + name + "[facula_at_least_1(" + count +
         ")];");
  }
  void barrier() override { line("__syncthreads();"); }

  int site_ = 0;  // numbers loops over threads, so that failures have an order
  std::string iteration_ = "0";
};

int64_t scratch_bytes_of(int64_t count, int64_t size) {
  return (std::max<int64_t>(0, count) * size + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

const loop::GridLimits& cuda_limits() {
  static const loop::GridLimits limits;
  return limits;
}

std::string cuda_function(const loop::Nest& n, const std::string& name) {
  internal_check(n.threads) << "nest " << n.name << " is none of a grid";
  return CudaPrinter(n).function(name);
}

std::string cuda_prelude(const std::string& code) {
  loop::Nest none;
  std::string a = std::to_string(kAlignment), last = std::to_string(kAlignment - 1);
  return std::string(kCudaBefore) + c_prelude() + kCudaAfter +
         "\nFACULA_FUNCTION int64_t facula_scratch_bytes(int64_t count, int64_t size) {\n"
         "  return ((count > 0 ? count : 0) * size + " +
         last + ") / " + a + " * " + a + ";\n}\n\n" + CudaPrinter(none).functions(code);
}

int64_t cuda_scratch_bytes(const loop::Nest& n, const int64_t* params) {
  int64_t sum = 0;
  for (auto& s : n.body)
    if (s.kind == Statement::Kind::array && s.space == Space::scratch)
      sum += scratch_bytes_of(eval_params(s.extent, params), itemsize(s.dtype));
  return sum;
}

}  // namespace facula::codegen
