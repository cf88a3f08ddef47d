// The CPU backend's library operators, by subject, and their shared helpers. Each is a device::LibraryFn: it reads
// tensors of any strides and writes `out` through Destination, which adds a row-major temporary if `out` is not
// row-major.
#pragma once
#include "facula/device/device.h"

namespace facula::numerics {}

namespace facula::device::cpu {

using namespace numerics;  // the adapters' own names hide those of the library
using op::Call;
using op::Results;
using Out = std::span<const Tensor>;

// product.cpp: oneDNN (float32, bfloat16; float16 by way of float32), BLAS (float64, complex), loops
// (integers)
Results mm(const Call& c, Out out);
Results bmm(const Call& c, Out out);
Results addmm(const Call& c, Out out);
Results baddbmm(const Call& c, Out out);
Results linear(const Call& c, Out out);
bool mm_epilogue(const Call& c, Out out, const EpilogueCall& e);
bool bmm_epilogue(const Call& c, Out out, const EpilogueCall& e);
bool addmm_epilogue(const Call& c, Out out, const EpilogueCall& e);
bool baddbmm_epilogue(const Call& c, Out out, const EpilogueCall& e);
bool linear_epilogue(const Call& c, Out out, const EpilogueCall& e);
// conv.cpp: oneDNN, and products of unfolded windows for the dtypes it lacks
Results conv2d(const Call& c, Out out);
Results conv2d_backward_input(const Call& c, Out out);
Results conv2d_backward_weight(const Call& c, Out out);
// quantized.cpp: oneDNN with int32 sums, where they are exact
Results int_mm(const Call& c, Out out);
Results int8_linear(const Call& c, Out out);
Results int8_conv2d(const Call& c, Out out);
// attention.cpp: kernels generated for tiles
Results attention(const Call& c, Out out);
Results attention_backward(const Call& c, Out out);
// recurrent.cpp: kernels generated for a step
Results recurrence(const Call& c, Out out);
Results recurrence_backward(const Call& c, Out out);
// move.cpp
Results cat(const Call& c, Out out);
Results nonzero(const Call& c, Out out);
Results repeated_positions(const Call& c, Out out);
Results rng_take(const Call& c, Out out);
Results randperm(const Call& c, Out out);
Results max_pool2d_backward(const Call& c, Out out);
// torch_random.cpp
Results torch_random(const Call& c, Out out);
// sort.cpp
Results sort(const Call& c, Out out);
Results topk(const Call& c, Out out);
Results kth(const Call& c, Out out);
Results middle(const Call& c, Out out);
// count.cpp
Results counts(const Call& c, Out out);
// unique.cpp
Results run_starts(const Call& c, Out out);
Results run_values(const Call& c, Out out);
// search.cpp
Results searchsorted(const Call& c, Out out);
// scan.cpp
Results logcumsumexp(const Call& c, Out out);
// linalg.cpp: LAPACK
Results linalg_lu_solve(const Call& c, Out out);
Results linalg_inv(const Call& c, Out out);
Results linalg_inv_adjoint(const Call& c, Out out);
Results linalg_cofactor(const Call& c, Out out);
Results linalg_det(const Call& c, Out out);
Results linalg_slogdet(const Call& c, Out out);
Results linalg_cholesky(const Call& c, Out out);
Results linalg_triangular(const Call& c, Out out);
// decompose.cpp: LAPACK
Results geqrf(const Call& c, Out out);
Results householder_product(const Call& c, Out out);
Results cholesky_inverse(const Call& c, Out out);
Results ormqr(const Call& c, Out out);
Results linalg_svd(const Call& c, Out out);
Results linalg_svdvals(const Call& c, Out out);
Results linalg_eigh(const Call& c, Out out);
Results linalg_eigvalsh(const Call& c, Out out);
Results linalg_eig(const Call& c, Out out);
Results linalg_eigvals(const Call& c, Out out);
Results linalg_lstsq(const Call& c, Out out);
Results linalg_lu_factor(const Call& c, Out out);
Results linalg_lu_solve_factored(const Call& c, Out out);
Results lu_permutation(const Call& c, Out out);
Results linalg_ldl_factor(const Call& c, Out out);
Results linalg_ldl_solve(const Call& c, Out out);
Results linalg_matrix_exp(const Call& c, Out out);
// ctc.cpp
Results ctc_loss(const Call& c, Out out);
Results ctc_loss_backward(const Call& c, Out out);
// fft.cpp: fft_lines.h
Results fft_r2c(const Call& c, Out out);
Results fft_c2r(const Call& c, Out out);
Results fft_c2c(const Call& c, Out out);

std::string onednn_version();
std::string openblas_version();

// dst[...] = src[...], broadcast and cast, by the operator `copy` on aliases, so that nothing is recorded.
void copy(const Tensor& dst, const Tensor& src);
// Returns a row-major copy of t in dtype `d`, or t itself if it is already row-major in that dtype.
Tensor dense(const Tensor& t, DType d);
inline Tensor dense(const Tensor& t) { return dense(t, t.dtype()); }
void fill_zero(const Tensor& dense);

// A destination as a row-major tensor of dtype `d`: `out` itself if it is one, else a temporary that finish() copies to
// it.
class Destination {
 public:
  explicit Destination(const Tensor& out) : Destination(out, out.dtype()) {}
  Destination(const Tensor& out, DType d);
  explicit Destination(Tensor&& out) = delete;
  Destination(Tensor&& out, DType d) = delete;
  const Tensor& tensor() const { return temporary_.defined() ? temporary_ : out_; }
  template <class T>
  T* data() const {
    return tensor().data<T>();
  }
  void finish() const {
    if (temporary_.defined()) copy(out_, temporary_);
  }

 private:
  const Tensor& out_;  // the caller's tensor, which has to outlive this object
  Tensor temporary_;
};

// out (row-major [batch..., m, n]) = alpha * a @ b + beta * out + bias, of one dtype; a [batch..., m, k] and
// b [batch..., k, n] with any strides; stride 0 broadcasts a batch dimension. `bias` [n] or undefined.
void product(const Tensor& a, const Tensor& b, const Tensor& out, const Tensor& bias = {},
             const Scalar& alpha = 1.0, const Scalar& beta = 0.0);

// BLAS gemm on float, double and their complex types: c (row-major, leading dimension n) = alpha * a @ b +
// beta * c; rs and cs are strides of rows and columns, one of which is 1 for each operand. One thread.
void blas_gemm(DType d, int64_t m, int64_t n, int64_t k, const Scalar& alpha, const void* a, int64_t a_rs,
               int64_t a_cs, const void* b, int64_t b_rs, int64_t b_cs, const Scalar& beta, void* c,
               int64_t ldc);

// Sets the number of threads of BLAS and LAPACK: 1 unless one large call may have all. Calls the library only if the
// number changes.
void blas_threads(int n);

}  // namespace facula::device::cpu
