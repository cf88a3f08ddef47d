// Exceptions to how interposers see operators (run/interpose.h): the calls that PyTorch's dispatch modes see for an operator, if
// its kind implies others.
#include "facula/op/operator.h"
#include "facula/ops.h"
#include "facula/run/interpose.h"

using namespace facula;
using namespace facula::op;

namespace {

Results linear_parts(const Call& c) {
  Tensor x = c.tensor("input"), w = t(c.tensor("weight")), b = c.tensor("bias");
  if (!b.defined()) return matmul(x, w);
  if (x.dim() == 2) return addmm(b, x, w);
  if (x.dim() < 2) return add(matmul(x, w), b);
  Dims sizes(x.sizes());
  sizes.back() = w.size(1);
  SymInt rows = int64_t(1);
  for (SymInt s : x.sizes().first(x.sizes().size() - 1)) rows *= s;
  return view(addmm(b, reshape(x, {rows, x.size(-1)}), w), sizes);
}

Results matmul_parts(const Call& c) {
  Tensor a = c.tensor("self"), b = c.tensor("other");
  SymSpan of_both[] = {a.sizes().first(a.sizes().size() - 2), b.sizes().first(b.sizes().size() - 2)};
  Dims batch = broadcast_sizes(c.name(), of_both);
  SymInt count = int64_t(1);
  for (SymInt s : batch) count *= s;
  auto flat = [&](const Tensor& x) {
    Dims sizes(batch);
    for (int d : {-2, -1}) sizes.push_back(x.size(d));
    return reshape(expand(x, sizes), {count, x.size(-2), x.size(-1)});
  };
  Dims sizes(batch);
  sizes.push_back(a.size(-2));
  sizes.push_back(b.size(-1));
  return view(bmm(flat(a), flat(b)), sizes);
}

template <int rank, bool transposed>
Results convolution_parts(const Call& c) {
  Tensor x = c.tensor("input"), b = c.tensor("bias");
  bool single = x.dim() == rank + 1;
  Dims extra = transposed ? c.ints("output_padding", rank) : Dims(size_t(rank), SymInt(int64_t(0)));
  Tensor y = convolution(single ? unsqueeze(x, 0) : x, c.tensor("weight"),
                         b.defined() ? MaybeTensor(b) : MaybeTensor(), c.ints("stride", rank),
                         c.ints("padding", rank), c.ints("dilation", rank), transposed, extra,
                         c.integer("groups").guard_int());
  return single ? squeeze(y, 0) : y;
}

Results layer_norm_parts(const Call& c) {
  auto optional = [&](const char* name) { return c.has(name) ? MaybeTensor(c.tensor(name)) : MaybeTensor(); };
  return std::get<0>(native_layer_norm(c.tensor("input"), c.ints("normalized_shape"), optional("weight"),
                                       optional("bias"), c.real("eps")));
}

Results max_pool2d_parts(const Call& c) {
  return std::get<0>(max_pool2d_with_indices(c.tensor("self"), c.ints("kernel_size"), c.ints("stride"),
                                             c.ints("padding"), c.ints("dilation"), c.flag("ceil_mode")));
}

Results to_dtype_parts(const Call& c) { return _to_copy(c.tensor("self"), c.dtype("dtype")); }

Results max_pool3d_parts(const Call& c) {
  return std::get<0>(max_pool3d_with_indices(c.tensor("self"), c.ints("kernel_size"), c.ints("stride"),
                                             c.ints("padding"), c.ints("dilation"), c.flag("ceil_mode")));
}

template <int rank>
Results adaptive_mean_parts(const Call& c) {
  Tensor x = c.tensor("self");
  Dims size = c.ints("output_size", rank);
  if (rank == 3) return _adaptive_avg_pool3d(x, size);
  if (rank == 2) return _adaptive_avg_pool2d(x, size);
  return squeeze(_adaptive_avg_pool2d(unsqueeze(x, -2), Dims{SymInt(int64_t(1)), size[0]}), -2);
}

const run::Decomposition kParts[] = {
    {"linear", linear_parts},
    {"_matmul", matmul_parts},
    {"layer_norm", layer_norm_parts},
    {"max_pool2d", max_pool2d_parts},
    {"max_pool3d", max_pool3d_parts},
    {"adaptive_avg_pool1d", adaptive_mean_parts<1>},
    {"adaptive_avg_pool2d", adaptive_mean_parts<2>},
    {"adaptive_avg_pool3d", adaptive_mean_parts<3>},
    {"to_dtype", to_dtype_parts},
    {"conv1d", convolution_parts<1, false>},
    {"conv2d", convolution_parts<2, false>},
    {"conv3d", convolution_parts<3, false>},
    {"conv_transpose1d", convolution_parts<1, true>},
    {"conv_transpose2d", convolution_parts<2, true>},
    {"conv_transpose3d", convolution_parts<3, true>},
};

// The procedures that PyTorch's dispatcher has kernels for, so that its modes see each of them as one call; also every procedure
// whose name begins with _foreach_. Those are left out whose bodies have gradients that a recomputation would not have.
constexpr std::string_view kOneCall =
    // created, or filled with random numbers
    " zeros ones empty full_like zeros_like ones_like empty_like empty_strided new_empty_strided empty_permuted arange"
    " arange.step logspace logspace.Tensor tril_indices triu_indices fft_fftfreq fft_rfftfreq rand randn rand_like randn_like"
    " randint randint.high randint_like randint_like.high randperm bernoulli bernoulli.p bernoulli_ uniform_ normal_"
    " normal.Tensor_Tensor normal.Tensor_float normal.float_Tensor normal.float_float random_ random_.to random_.from"
    " exponential_ cauchy_ log_normal_ geometric_ multinomial poisson binomial _standard_gamma _sample_dirichlet"
    " bartlett_window blackman_window hann_window hamming_window hamming_window.periodic_alpha kaiser_window kaiser_window.beta"
    // copied, joined, moved
    " rot90 diag_embed pixel_shuffle pixel_unshuffle channel_shuffle"
    " _to_copy clone stack roll select_copy slice_copy narrow_copy split_copy unbind_copy diagonal_copy unfold_copy"
    " as_strided_copy view_copy alias_copy detach_copy view_as_real_copy view_as_complex_copy permute_copy transpose_copy"
    " t_copy expand_copy unsqueeze_copy squeeze_copy squeeze_copy.dims diagonal_scatter select_scatter slice_scatter"
    " as_strided_scatter"
    // by indices, in order, counted
    " index index_put index_add index_reduce scatter_add scatter_reduce masked_select masked_scatter _unsafe_masked_index"
    " _unsafe_masked_index_put_accumulate nonzero_static repeat_interleave.Tensor segment_reduce embedding_renorm_ searchsorted"
    " bucketize isin bincount histc histogram _histogramdd_bin_edges hash_tensor kthvalue unique_consecutive _unique2"
    " unique_dim"
    // products and factors of matrices
    " addmv addbmm addr linalg_vector_norm triangular_solve cholesky cholesky_inverse linalg_lu_factor_ex linalg_lu_solve"
    " linalg_ldl_factor_ex linalg_ldl_solve linalg_cholesky_ex linalg_inv_ex linalg_solve_ex linalg_pinv.tensor linalg_lstsq"
    " _sparse_addmm _convert_indices_from_coo_to_csr"
    // layers
    " rrelu convolution conv_tbc native_group_norm native_batch_norm _native_batch_norm_legit _native_batch_norm_legit.no_stats"
    " _batch_norm_with_update max_pool2d_with_indices max_pool3d_with_indices avg_pool3d _adaptive_avg_pool3d"
    " adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d max_unpool2d max_unpool3d"
    " grid_sampler_2d grid_sampler_3d _upsample_bilinear2d_aa _upsample_bilinear2d_aa.vec ";

bool is_one_call(const Operator& o) {
  std::string name = o.schema.full_name();
  return name.starts_with("_foreach_") || kOneCall.find(" " + name + " ") != std::string_view::npos;
}

}  // namespace

FACULA_FAMILY(decompositions) { run::set_decompositions(kParts, is_one_call); }
