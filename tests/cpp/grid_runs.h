// Nests of a grid by their CUDA C: on the CPU under an emulation (tests/cuda/emulation.h), and on this machine's GPU
// where nvcc and a driver are.
#pragma once
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "facula/codegen/cuda.h"
#include "facula/codegen/kernel.h"
#include "facula/loop/elementary.h"
#include "facula/loop/nest.h"

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

inline std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream all;
  all << in.rdbuf();
  return all.str();
}
// What a command that fails has said; "" if it does not.
inline std::string complaint_of(const std::string& command, const Workplace& w) {
  if (std::system((command + " > " + w.file("said") + " 2>&1").c_str()) == 0) return "";
  return "failed: " + contents(w.file("said")).substr(0, 4000);
}

// The nest with its elementary functions expanded, so that the interpreter gives the bits of the targets instead of
// libm's.
inline void expand(loop::Block& b) {
  for (auto& s : b) {
    for (auto& v : s.values) v = loop::expanded(v);
    expand(s.body);
  }
}
inline loop::Nest expanded(loop::Nest n) {
  expand(n.body);
  return n;
}

using Nests = std::vector<const loop::Nest*>;

inline std::string cuda_text(std::span<const loop::Nest* const> nests) {
  std::string code;
  for (size_t k = 0; k < nests.size(); ++k)
    code += codegen::cuda_function(*nests[k], "kernel_" + std::to_string(k)) + "\n";
  return codegen::cuda_prelude(code) + code;
}

// Whose memory a kernel reads and writes: from a buffer's first element to where its memory ends.
using Memory = std::span<char>;
template <class T>
Memory memory_of(std::vector<T>& v) {
  return {reinterpret_cast<char*>(v.data()), v.size() * sizeof(T)};
}
inline std::vector<void*> pointers(std::span<const Memory> buffers) {
  std::vector<void*> all;
  for (auto& b : buffers) all.push_back(b.data());
  return all;
}

struct GridFailure {  // facula_status of the prelude
  int64_t failed = 0, index = 0, size = 0, task = 0, site = 0, iteration = 0;
  int lock = 0;
};

class GridRunner {
 public:
  virtual ~GridRunner() = default;
  virtual const char* name() const = 0;
  virtual std::string error() const { return ""; }  // why it runs nothing
  virtual GridFailure run(size_t nest, std::span<const Memory> buffers, const std::vector<int64_t>& params,
                          unsigned blocks = 3) const = 0;
};

class EmulatedCuda final : public GridRunner {
 public:
  explicit EmulatedCuda(Nests nests) : nests_(std::move(nests)) {
    Workplace w;
    {
      std::ofstream out(w.file("kernels.cpp"));
      out << "#include \"" << FACULA_SOURCE_FOLDER << "/tests/cuda/emulation.h\"\n" << cuda_text(nests_);
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
  const char* name() const override { return "CUDA C"; }
  std::string error() const override { return error_; }
  GridFailure run(size_t k, std::span<const Memory> buffers, const std::vector<int64_t>& params,
                  unsigned blocks) const override {
    auto f = reinterpret_cast<void (*)(unsigned, void* const*, const int64_t*, int64_t, int64_t, GridFailure*,
                                       int64_t)>(dlsym(library_, ("run_" + std::to_string(k)).c_str()));
    GridFailure status;
    f(blocks, pointers(buffers).data(), params.data(), 0,
      codegen::eval_params(nests_[k]->tasks, params.data()), &status,
      codegen::cuda_scratch_bytes(*nests_[k], params.data()));
    return status;
  }

 private:
  Nests nests_;
  std::string error_;
  void* library_ = nullptr;  // for the life of the process
};

// ---- the driver: CUDA's functions of a C interface that is stable, found in its library

class Driver {
 public:
  static const Driver& get() {
    static const Driver d;
    return d;
  }
  const std::string& missing() const { return missing_; }  // "": there is a GPU

  void check(int code, const char* what) const {
    if (!code) return;
    const char* text = nullptr;
    error_name(code, &text);
    throw std::runtime_error(std::string(what) + ": " + (text ? text : "an unknown error of the driver"));
  }
  // Of this thread; each that asks the driver for something has to.
  void enter() const { check(set_current(context_), "cuCtxSetCurrent"); }

  int (*load)(void** module, const void* image) = nullptr;
  int (*function)(void** f, void* module, const char* name) = nullptr;
  int (*allocate)(uint64_t* at, size_t bytes) = nullptr;
  int (*free)(uint64_t at) = nullptr;
  int (*to_gpu)(uint64_t to, const void* from, size_t bytes) = nullptr;
  int (*from_gpu)(void* to, uint64_t from, size_t bytes) = nullptr;
  int (*launch)(void* f, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned shared,
                void* stream, void** args, void** extra) = nullptr;
  int (*synchronize)() = nullptr;

 private:
  Driver() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      missing_ = "no driver of a GPU is installed";
      return;
    }
    int (*init)(unsigned) = nullptr;
    int (*device)(int*, int) = nullptr;
    int (*retain)(void**, int) = nullptr;
    auto find = [&](auto& f, const char* name) {
      f = reinterpret_cast<std::remove_reference_t<decltype(f)>>(dlsym(library, name));
      if (!f) missing_ = std::string("the driver has no ") + name;
    };
    find(init, "cuInit");
    find(device, "cuDeviceGet");
    find(retain, "cuDevicePrimaryCtxRetain");
    find(set_current, "cuCtxSetCurrent");
    find(error_name, "cuGetErrorName");
    find(load, "cuModuleLoadData");
    find(function, "cuModuleGetFunction");
    find(allocate, "cuMemAlloc_v2");
    find(free, "cuMemFree_v2");
    find(to_gpu, "cuMemcpyHtoD_v2");
    find(from_gpu, "cuMemcpyDtoH_v2");
    find(launch, "cuLaunchKernel");
    find(synchronize, "cuCtxSynchronize");
    int first = 0;
    if (missing_.empty() && (init(0) || device(&first, 0) || retain(&context_, first)))
      missing_ = "the driver finds no GPU";
  }
  int (*set_current)(void*) = nullptr;
  int (*error_name)(int, const char**) = nullptr;
  void* context_ = nullptr;
  std::string missing_;
};

// ---- nvcc

inline bool has_nvcc() {
  static const bool has = std::system("nvcc --version > /dev/null 2>&1") == 0;
  return has;
}
// Machine code for sm_80 and sm_90, in pieces that all cores share; optimized where a GPU is to run it.
struct Fatbins {
  struct Piece {
    std::vector<size_t> nests;  // kernel_0, kernel_1 ...
    std::string image, complaint;
  };
  std::vector<Piece> pieces;
  std::string complaint() const {
    std::string all;
    for (auto& p : pieces) all += p.complaint;
    return all;
  }
};
inline Fatbins by_nvcc(const Nests& nests) {
  constexpr size_t kMost = 40;
  Fatbins all;
  for (size_t k = 0; k < nests.size(); ++k) {
    if (k % kMost == 0) all.pieces.emplace_back();
    all.pieces.back().nests.push_back(k);
  }
  std::vector<std::string> texts;
  for (auto& p : all.pieces) {
    Nests chosen;
    for (size_t k : p.nests) chosen.push_back(nests[k]);
    texts.push_back(cuda_text(chosen));
  }
  const std::string effort = Driver::get().missing().empty() ? "" : "-Xcicc -O0 -Xptxas -O0 ";
  std::atomic<size_t> next{0};
  auto work = [&] {
    for (size_t k; (k = next++) < texts.size();) {
      Workplace w;
      std::ofstream(w.file("kernels.cu")) << texts[k];
      auto& p = all.pieces[k];
      p.complaint = complaint_of(
          "nvcc -w -std=c++17 -fmad=false " + effort +
              "-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=[sm_90,compute_90] -fatbin -o " +
              w.file("kernels.fatbin") + " " + w.file("kernels.cu"),
          w);
      p.image = contents(w.file("kernels.fatbin"));
    }
  };
  std::vector<std::jthread> workers;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t) workers.emplace_back(work);
  workers.clear();
  return all;
}

// A kernel's memory is a copy of its buffers', between words that it must leave alone.
class Gpu final : public GridRunner {
 public:
  static std::string missing() { return has_nvcc() ? Driver::get().missing() : "nvcc is not installed"; }

  Gpu(Nests nests, const Fatbins& code) : nests_(std::move(nests)), kernels_(nests_.size()) {
    cuda_.enter();
    for (auto& p : code.pieces) {
      void* module = nullptr;
      cuda_.check(cuda_.load(&module, p.image.data()), "cuModuleLoadData");
      for (size_t k = 0; k < p.nests.size(); ++k)
        cuda_.check(cuda_.function(&kernels_[p.nests[k]], module, ("kernel_" + std::to_string(k)).c_str()),
                    "cuModuleGetFunction");
    }
  }
  const char* name() const override { return "the GPU"; }

  GridFailure run(size_t k, std::span<const Memory> buffers, const std::vector<int64_t>& params,
                  unsigned blocks) const override {
    cuda_.enter();
    const loop::Nest& n = *nests_[k];
    int64_t begin = 0, end = codegen::eval_params(n.tasks, params.data()),
            scratch_bytes = codegen::cuda_scratch_bytes(n, params.data());
    GridFailure failure;
    std::deque<Guarded> held;
    std::map<char*, const Guarded*> of;  // buffers may be the same memory
    std::vector<uint64_t> arguments;     // facula_arguments<buffers, params>
    for (auto& b : buffers) {
      if (!of.count(b.data())) of[b.data()] = &held.emplace_back(b);
      arguments.push_back(of[b.data()]->address());
    }
    if (buffers.empty()) arguments.push_back(0);
    Guarded status(Memory(reinterpret_cast<char*>(&failure), sizeof failure));
    std::vector<char> none(size_t(scratch_bytes) * blocks,
                           char(0xff));  // NaN, to those who read it unwritten
    Guarded scratch{Memory(none)};
    for (int p = 0; p < std::max(1, n.params); ++p)
      arguments.push_back(size_t(p) < params.size() ? uint64_t(params[size_t(p)]) : 0);
    uint64_t status_at = status.address(), scratch_at = scratch.address();
    void* args[] = {arguments.data(), &begin, &end, &status_at, &scratch_at, &scratch_bytes};
    cuda_.check(cuda_.launch(kernels_[k], blocks, 1, 1, unsigned(n.threads), 1, 1, 0, nullptr, args, nullptr),
                "cuLaunchKernel");
    cuda_.check(cuda_.synchronize(), n.name.c_str());
    for (auto& h : held) h.give_back(n);
    status.give_back(n);
    scratch.give_back(n);
    return failure;
  }

 private:
  class Guarded {
   public:
    static constexpr size_t kGuard = 256;  // keeps what is aligned aligned
    explicit Guarded(Memory own) : own_(own) {
      auto& cuda = Driver::get();
      std::vector<char> all(kGuard + own.size() + kGuard, kMark);
      std::copy(own.begin(), own.end(), all.begin() + kGuard);
      cuda.check(cuda.allocate(&at_, all.size()), "cuMemAlloc");
      cuda.check(cuda.to_gpu(at_, all.data(), all.size()), "cuMemcpyHtoD");
    }
    Guarded(const Guarded&) = delete;
    ~Guarded() { Driver::get().free(at_); }
    uint64_t address() const { return at_ + kGuard; }
    void give_back(const loop::Nest& n) const {
      auto& cuda = Driver::get();
      std::vector<char> all(kGuard + own_.size() + kGuard);
      cuda.check(cuda.from_gpu(all.data(), at_, all.size()), "cuMemcpyDtoH");
      for (size_t k = 0; k < kGuard; ++k)
        if (all[k] != kMark || all[all.size() - 1 - k] != kMark)
          throw std::runtime_error(n.name + " writes outside of its memory on the GPU");
      std::copy_n(all.begin() + kGuard, own_.size(), own_.begin());
    }

   private:
    static constexpr char kMark = 0x5a;
    Memory own_;
    uint64_t at_ = 0;
  };
  const Driver& cuda_ = Driver::get();
  Nests nests_;
  std::vector<void*> kernels_;
};

// All that can run nests of a grid here.
inline std::vector<std::unique_ptr<GridRunner>> grid_runners(const Nests& nests) {
  std::vector<std::unique_ptr<GridRunner>> all;
  all.push_back(std::make_unique<EmulatedCuda>(nests));
  if (!has_nvcc()) return all;
  Fatbins code = by_nvcc(nests);
  EXPECT_EQ(code.complaint(), "");
  if (Gpu::missing().empty() && code.complaint().empty()) all.push_back(std::make_unique<Gpu>(nests, code));
  return all;
}

}  // namespace facula::test
