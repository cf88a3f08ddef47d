#include "facula/device/cpu/cpu.h"

#include <algorithm>
#include <complex>
#include <cstring>
#include <optional>
#include <unordered_map>

#include "facula/base/parallel.h"
#include "facula/numerics/small.h"
#include "facula/numerics/workspace.h"
#include "facula/op/registry.h"
#include "facula/tensor/memory.h"

namespace facula::device {

namespace {

constexpr std::pair<std::string_view, LibraryFn> kFunctions[] = {
    {"mm", cpu::mm},
    {"bmm", cpu::bmm},
    {"addmm", cpu::addmm},
    {"baddbmm", cpu::baddbmm},
    {"linear", cpu::linear},
    {"conv2d", cpu::conv2d},
    {"conv2d_backward_input", cpu::conv2d_backward_input},
    {"conv2d_backward_weight", cpu::conv2d_backward_weight},
    {"int_mm", cpu::int_mm},
    {"int8_linear", cpu::int8_linear},
    {"int8_conv2d", cpu::int8_conv2d},
    {"attention", cpu::attention},
    {"attention_backward", cpu::attention_backward},
    {"recurrence", cpu::recurrence},
    {"recurrence_backward", cpu::recurrence_backward},
    {"cat", cpu::cat},
    {"nonzero", cpu::nonzero},
    {"repeated_positions", cpu::repeated_positions},
    {"rng_take", cpu::rng_take},
    {"randperm", cpu::randperm},
    {"torch_random", cpu::torch_random},
    {"max_pool2d_backward", cpu::max_pool2d_backward},
    {"sort", cpu::sort},
    {"topk", cpu::topk},
    {"kth", cpu::kth},
    {"middle", cpu::middle},
    {"counts", cpu::counts},
    {"run_starts", cpu::run_starts},
    {"run_values", cpu::run_values},
    {"searchsorted", cpu::searchsorted},
    {"logcumsumexp", cpu::logcumsumexp},
    {"linalg_lu_solve", cpu::linalg_lu_solve},
    {"linalg_inv", cpu::linalg_inv},
    {"linalg_inv_adjoint", cpu::linalg_inv_adjoint},
    {"linalg_cofactor", cpu::linalg_cofactor},
    {"linalg_det", cpu::linalg_det},
    {"linalg_slogdet", cpu::linalg_slogdet},
    {"linalg_cholesky", cpu::linalg_cholesky},
    {"linalg_triangular", cpu::linalg_triangular},
    {"geqrf", cpu::geqrf},
    {"householder_product", cpu::householder_product},
    {"cholesky_inverse", cpu::cholesky_inverse},
    {"ormqr", cpu::ormqr},
    {"linalg_svd", cpu::linalg_svd},
    {"linalg_svdvals", cpu::linalg_svdvals},
    {"linalg_eigh", cpu::linalg_eigh},
    {"linalg_eigvalsh", cpu::linalg_eigvalsh},
    {"linalg_eig", cpu::linalg_eig},
    {"linalg_eigvals", cpu::linalg_eigvals},
    {"linalg_lstsq", cpu::linalg_lstsq},
    {"linalg_lu_factor", cpu::linalg_lu_factor},
    {"linalg_lu_solve_factored", cpu::linalg_lu_solve_factored},
    {"lu_permutation", cpu::lu_permutation},
    {"linalg_ldl_factor", cpu::linalg_ldl_factor},
    {"linalg_ldl_solve", cpu::linalg_ldl_solve},
    {"linalg_matrix_exp", cpu::linalg_matrix_exp},
    {"ctc_loss", cpu::ctc_loss},
    {"ctc_loss_backward", cpu::ctc_loss_backward},
    {"fft_r2c", cpu::fft_r2c},
    {"fft_c2r", cpu::fft_c2r},
    {"fft_c2c", cpu::fft_c2c},
};

constexpr std::pair<std::string_view, EpilogueFn> kWithEpilogue[] = {
    {"mm", cpu::mm_epilogue},           {"bmm", cpu::bmm_epilogue},       {"addmm", cpu::addmm_epilogue},
    {"baddbmm", cpu::baddbmm_epilogue}, {"linear", cpu::linear_epilogue},
};

class CpuBackend final : public Backend {
 public:
  LibraryFn find(std::string_view name) const override {
    static const std::unordered_map<std::string_view, LibraryFn> table(std::begin(kFunctions),
                                                                       std::end(kFunctions));
    auto it = table.find(name);
    return it == table.end() ? nullptr : it->second;
  }
  EpilogueFn find_with_epilogue(std::string_view name) const override {
    for (auto& [function, fn] : kWithEpilogue)
      if (function == name) return fn;
    return nullptr;
  }
  std::string describe() const override {
    std::string features;
    auto note = [&](bool has, const char* name) {
      if (has) features += std::string(features.empty() ? "" : " ") + name;
    };
    note(__builtin_cpu_supports("avx2"), "avx2");
    note(__builtin_cpu_supports("fma"), "fma");
    note(__builtin_cpu_supports("avx512f"), "avx512f");
    note(__builtin_cpu_supports("avx512bf16"), "avx512_bf16");
    return "cpu: " + std::to_string(num_threads()) + " threads, " + features + "; " + cpu::onednn_version() +
           "; " + cpu::openblas_version() + "; ducc0; Highway";
  }
};

}  // namespace

const Backend& cpu_backend() {
  static const CpuBackend backend;
  return backend;
}

}  // namespace facula::device

namespace facula::device::cpu {

namespace {

constexpr numerics::MemorySource kBlocks{take_temporary, give_temporary};
[[maybe_unused]] const bool installed = (numerics::set_memory_source(kBlocks), true);

// Returns the rows and columns of the matrices of src, in memory order, if dst and src are batches of small matrices of
// which one is row-major and the other column-major, as results of LAPACK are.
std::optional<std::pair<int, int>> turned(const Tensor& dst, const Tensor& src) {
  if (dst.dtype() != src.dtype() || src.dim() < 2 || itemsize(src.dtype()) < 4) return {};
  auto sizes = src.int_sizes();
  int64_t m = sizes[sizes.size() - 2], n = sizes.back();
  if (m < 2 || n < 2 || m > kSmall || n > kSmall || !std::ranges::equal(sizes, dst.int_sizes())) return {};
  auto in_columns = [](const Tensor& t) {
    Dims turned_sizes(t.sizes()), strides(t.strides());
    for (Dims* d : {&turned_sizes, &strides}) std::swap((*d)[d->size() - 2], d->back());
    return t.alias(turned_sizes, strides, t.offset()).is_contiguous();
  };
  if (dst.is_contiguous() && in_columns(src)) return std::pair(int(n), int(m));
  if (src.is_contiguous() && in_columns(dst)) return std::pair(int(m), int(n));
  return {};
}
template <class T>
void turn(int m, int n, int64_t count, const void* from, void* to) {
  auto job = [&](int64_t k) {
    int64_t first = k * m * n;
    return SmallJob<T>{.m = m,
                       .n = n,
                       .a = static_cast<const T*>(from) + first,
                       .x = static_cast<T*>(to) + first};
  };
  each_small<T>(Small::turn, count, m, n, job, [](int64_t) {});
}

}  // namespace

void copy(const Tensor& dst, const Tensor& src) {
  if (auto matrix = turned(dst, src)) {
    auto [m, n] = *matrix;
    int64_t count = src.numel().concrete() / (m * n);
    switch (itemsize(src.dtype())) {
      case 4: return turn<float>(m, n, count, src.data_ptr(), dst.data_ptr());
      case 8: return turn<double>(m, n, count, src.data_ptr(), dst.data_ptr());
      default: return turn<std::complex<double>>(m, n, count, src.data_ptr(), dst.data_ptr());
    }
  }
  static const op::Operator& copy = op::get("copy");
  Tensor to = dst.alias(dst.sizes(), dst.strides(), dst.offset()),
         from = src.alias(src.sizes(), src.strides(), src.offset());
  op::Value args[] = {to, from};
  op::call(copy, args, op::Form::in_place);
}

Tensor dense(const Tensor& t, DType d) {
  if (t.dtype() == d && t.is_contiguous()) return t;
  Tensor to = Tensor::empty(t.sizes(), d, t.device());
  copy(to, t);
  return to;
}

void fill_zero(const Tensor& t) {
  if (auto* data = t.data_ptr()) std::memset(data, 0, size_t(t.numel().concrete()) * size_t(t.itemsize()));
}

Destination::Destination(const Tensor& out, DType d) : out_(out) {
  if (out.dtype() != d || !out.is_contiguous()) temporary_ = Tensor::empty(out.sizes(), d, out.device());
}

}  // namespace facula::device::cpu
