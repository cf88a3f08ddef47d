// Nests of a grid by their CUDA C, on the CPU: tests/cuda/emulation.h. All of them are compiled together.
#pragma once
#include <dlfcn.h>
#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "facula/codegen/cuda.h"
#include "facula/codegen/kernel.h"
#include "facula/loop/expr.h"

namespace facula::test {

// A folder of its own for a while.
class Workplace {
 public:
  Workplace() : path_((std::filesystem::temp_directory_path() / "facula-cuda-XXXXXX").string()) {
    if (!mkdtemp(path_.data())) std::abort();
  }
  ~Workplace() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Workplace(const Workplace&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// What a command that fails has said; "" if it does not.
inline std::string complaint_of(const std::string& command, const Workplace& w) {
  if (std::system((command + " > " + w.file("said") + " 2>&1").c_str()) == 0) return "";
  std::ifstream in(w.file("said"));
  std::stringstream all;
  all << in.rdbuf();
  return "failed: " + all.str().substr(0, 4000);
}

inline std::string cuda_text(const std::vector<const loop::Nest*>& nests) {
  std::string code;
  for (size_t k = 0; k < nests.size(); ++k)
    code += codegen::cuda_function(*nests[k], "kernel_" + std::to_string(k)) + "\n";
  return codegen::cuda_prelude(code) + code;
}

inline bool has_nvcc() {
  static const bool has = std::system("nvcc --version > /dev/null 2>&1") == 0;
  return has;
}
// What nvcc says against the text; "" if nothing, or if it is not installed.
inline std::string nvcc_complaint(const std::string& text) {
  if (!has_nvcc()) return "";
  Workplace w;
  std::ofstream(w.file("kernels.cu")) << text;
  return complaint_of(
      "nvcc -w -std=c++17 -fmad=false -rdc=true -Xcicc -O0 -Xptxas -O0 -gencode arch=compute_80,code=sm_80 "
      "-gencode arch=compute_90,code=sm_90 -c -o " +
          w.file("kernels.o") + " " + w.file("kernels.cu"),
      w);
}

class EmulatedCuda {
 public:
  struct Failure {
    int64_t failed = 0, index = 0, size = 0, task = 0, site = 0, iteration = 0;
    int lock = 0;
  };
  explicit EmulatedCuda(std::vector<const loop::Nest*> nests) : nests_(std::move(nests)) {
    Workplace w;
    {
      std::ofstream out(w.file("kernels.cpp"));
      out << "#include \"" << FACULA_SOURCE_FOLDER << "/tests/cuda/emulation.h\"\n"
          << cuda_text(nests_) << special_functions();
      for (size_t k = 0; k < nests_.size(); ++k) {
        std::string n = std::to_string(k);
        out << "extern \"C\" void run_" << n
            << "(unsigned blocks, void* const* buffers, const int64_t* params, int64_t begin, int64_t end,\n"
               "    facula_status* status, int64_t bytes) {\n  facula_emulate(kernel_"
            << n << ", " << nests_[k]->threads
            << ", blocks, buffers, params, begin, end, status, bytes);\n}\n";
      }
    }
    error_ = complaint_of("c++ -std=c++20 -O0 -w -ffp-contract=off -fno-strict-aliasing -fPIC -shared -o " +
                              w.file("kernels.so") + " " + w.file("kernels.cpp"),
                          w);
    if (!error_.empty()) return;
    library_ = dlopen(w.file("kernels.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library_) error_ = dlerror();
  }
  const std::string& error() const { return error_; }

  Failure run(size_t k, void* const* buffers, const int64_t* params, unsigned blocks = 3) const {
    auto f = reinterpret_cast<void (*)(unsigned, void* const*, const int64_t*, int64_t, int64_t, Failure*,
                                       int64_t)>(dlsym(library_, ("run_" + std::to_string(k)).c_str()));
    Failure status;
    f(blocks, buffers, params, 0, codegen::eval_params(nests_[k]->tasks, params), &status,
      codegen::cuda_scratch_bytes(*nests_[k], params));
    return status;
  }

 private:
  static std::string special_functions() {
    std::string s;
#define FACULA_FN(n, ...)                                                                                     \
  s += "namespace facula::loop::mapped { double " #n "(double); }\n"                                          \
       "double facula_" #n "(double x) { return facula::loop::mapped::" #n "(x); }\n";
    FACULA_MAPPED_UNARY(FACULA_FN)
#undef FACULA_FN
#define FACULA_FN(n, ...)                                                                                     \
  s += "namespace facula::loop::mapped { double " #n "(double, double); }\n"                                  \
       "double facula_" #n "(double x, double y) { return facula::loop::mapped::" #n "(x, y); }\n";
    FACULA_MAPPED_BINARY(FACULA_FN)
#undef FACULA_FN
    return s;
  }
  std::vector<const loop::Nest*> nests_;
  std::string error_;
  void* library_ = nullptr;  // for the life of the process
};

}  // namespace facula::test
