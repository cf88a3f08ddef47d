#include <cblas.h>

#include <algorithm>
#include <atomic>
#include <complex>
#include <mutex>

#include <sched.h>

#include "facula/base/library.h"
#include "facula/codegen/prediction.h"
#include "facula/device/cpu/cpu.h"
#include "facula/device/cpu/openblas.h"

namespace facula::device::cpu {

namespace {

#define FACULA_BLAS(name) constinit const auto name = FACULA_ROUTINE(FACULA_PREFIXED(name));
FACULA_BLAS(cblas_sgemm)
FACULA_BLAS(cblas_dgemm)
FACULA_BLAS(cblas_cgemm)
FACULA_BLAS(cblas_zgemm)
FACULA_BLAS(cblas_sgemv)
FACULA_BLAS(cblas_dgemv)
FACULA_BLAS(cblas_cgemv)
FACULA_BLAS(cblas_zgemv)
FACULA_BLAS(openblas_set_num_threads)
FACULA_BLAS(openblas_get_config)
FACULA_BLAS(openblas_get_corename)
#undef FACULA_BLAS

struct Operand {
  CBLAS_TRANSPOSE transposed;
  int ld;
};

// Describes a matrix as row-major with leading dimension rs, or as the transpose of one with leading dimension cs.
Operand operand(int64_t rows, int64_t cols, int64_t rs, int64_t cs) {
  if (cs == 1 && rs >= cols) return {CblasNoTrans, int(std::max<int64_t>(rs, 1))};
  internal_check(rs == 1 && cs >= rows) << "strides [" << rs << ", " << cs << "]";
  return {CblasTrans, int(std::max<int64_t>(cs, 1))};
}

}  // namespace

void blas_gemm(DType d, int64_t m, int64_t n, int64_t k, const Scalar& alpha, const void* a, int64_t a_rs,
               int64_t a_cs, const void* b, int64_t b_rs, int64_t b_cs, const Scalar& beta, void* c,
               int64_t ldc) {
  blas_threads(1);  // the library's own threads would compete with OpenMP's
  constexpr int64_t kMost = 2147483647;
  runtime_check(m <= kMost && n <= kMost && k <= kMost && std::max(a_rs, a_cs) <= kMost &&
                    std::max(b_rs, b_cs) <= kMost,
                "matmul")
      << "matrices are too large for BLAS: " << m << " x " << k << " @ " << k << " x " << n;
  auto run = [&](auto& gemm, auto& gemv, auto one, auto zero, auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    // One operand is a vector: y = M x, or y = M^T x.
    auto vector = [&](int64_t rows, int64_t cols, const void* matrix, int64_t rs, int64_t cs, const void* x,
                      int64_t step, int64_t step_out) {
      auto M = operand(rows, cols, rs, cs);
      bool plain = M.transposed == CblasNoTrans;
      gemv(CblasRowMajor, M.transposed, int(plain ? rows : cols), int(plain ? cols : rows), one,
           static_cast<const T*>(matrix), M.ld, static_cast<const T*>(x), int(step), zero, static_cast<T*>(c),
           int(step_out));
    };
    if (n == 1) return vector(m, k, a, a_rs, a_cs, b, b_rs, ldc);
    if (m == 1) return vector(n, k, b, b_cs, b_rs, a, a_cs, 1);
    auto A = operand(m, k, a_rs, a_cs), B = operand(k, n, b_rs, b_cs);
    gemm(CblasRowMajor, A.transposed, B.transposed, int(m), int(n), int(k), one, static_cast<const T*>(a),
         A.ld, static_cast<const T*>(b), B.ld, zero, static_cast<T*>(c), int(ldc));
  };
  std::complex<double> x = alpha.to_complex(), y = beta.to_complex();
  std::complex<float> xf(x), yf(y);
  switch (d) {
    case DType::Float32:
      return run(cblas_sgemm, cblas_sgemv, float(x.real()), float(y.real()), static_cast<float*>(nullptr));
    case DType::Float64:
      return run(cblas_dgemm, cblas_dgemv, x.real(), y.real(), static_cast<double*>(nullptr));
    case DType::Complex64:
      return run(cblas_cgemm, cblas_cgemv, static_cast<const void*>(&xf), static_cast<const void*>(&yf),
                 static_cast<float*>(nullptr));
    case DType::Complex128:
      return run(cblas_zgemm, cblas_zgemv, static_cast<const void*>(&x), static_cast<const void*>(&y),
                 static_cast<double*>(nullptr));
    default: internal_check(false) << "BLAS has no " << d;
  }
}

namespace {

// Restricts the loading thread to its current processor. OpenBLAS, when loaded, starts a thread for each processor that
// the loading thread may run on, and each spins for a tenth of a second on processors that the first steps of a training
// need.
class OneProcessor {
 public:
  OneProcessor() {
    cpu_set_t here;
    CPU_ZERO(&here);
    int cpu = sched_getcpu();
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &here);
    narrowed_ = !sched_getaffinity(0, sizeof all_, &all_) && !sched_setaffinity(0, sizeof here, &here);
  }
  ~OneProcessor() {
    if (narrowed_) sched_setaffinity(0, sizeof all_, &all_);
  }
  OneProcessor(const OneProcessor&) = delete;

 private:
  cpu_set_t all_;
  bool narrowed_;
};

constexpr const char* kLibrary = "libfacula_openblas.so";

void load() {
  static std::once_flag loaded;
  std::call_once(loaded, [] {
    OneProcessor narrowed;
    symbol_beside(kLibrary, openblas_set_num_threads.symbol(), "linalg");
  });
}

// Loaded in the background if an earlier process that began alike has used it.
const codegen::Thing openblas_thing("openblas", [](codegen::Words) { load(); }, true);

}  // namespace

void* openblas_symbol(const char* symbol) {
  codegen::wanted(openblas_thing, {});
  load();
  return symbol_beside(kLibrary, symbol, "linalg");
}

void blas_threads(int n) {
  static std::atomic<int> now{0};
  if (now.load(std::memory_order_relaxed) == n) return;
  openblas_set_num_threads(n);
  now.store(n, std::memory_order_relaxed);
}

std::string openblas_version() {
  std::string config = openblas_get_config();
  return config.substr(0, config.find(' ', config.find(' ') + 1)) + " (" + openblas_get_corename() + ")";
}

}  // namespace facula::device::cpu
