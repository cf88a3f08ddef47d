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

// With parts, or procedures that are operators of their own there.
const run::Decomposition kDecompositions[] = {
    {"linear", linear_parts},
    {"_matmul", matmul_parts},
    {"layer_norm", layer_norm_parts},
    {"max_pool2d", max_pool2d_parts},
    {"to_dtype", to_dtype_parts},
    {"conv1d", convolution_parts<1, false>},
    {"conv2d", convolution_parts<2, false>},
    {"conv3d", convolution_parts<3, false>},
    {"conv_transpose1d", convolution_parts<1, true>},
    {"conv_transpose2d", convolution_parts<2, true>},
    {"conv_transpose3d", convolution_parts<3, true>},
#define FACULA_WHOLE(name) {name, {}},
    FACULA_WHOLE("convolution") FACULA_WHOLE("_to_copy") FACULA_WHOLE("clone") FACULA_WHOLE("stack")
        FACULA_WHOLE("mv") FACULA_WHOLE("addmv") FACULA_WHOLE("addbmm") FACULA_WHOLE("addr") FACULA_WHOLE(
            "vdot") FACULA_WHOLE("zeros") FACULA_WHOLE("ones") FACULA_WHOLE("empty") FACULA_WHOLE("full_like")
            FACULA_WHOLE("zeros_like") FACULA_WHOLE("ones_like") FACULA_WHOLE("empty_like") FACULA_WHOLE(
                "arange") FACULA_WHOLE("arange.step") FACULA_WHOLE("rand") FACULA_WHOLE("randn")
                FACULA_WHOLE("rand_like") FACULA_WHOLE("randn_like") FACULA_WHOLE("randint") FACULA_WHOLE(
                    "randint.high") FACULA_WHOLE("randperm") FACULA_WHOLE("bernoulli") FACULA_WHOLE("index")
                    FACULA_WHOLE("index_put") FACULA_WHOLE("masked_select") FACULA_WHOLE("masked_scatter")
                        FACULA_WHOLE("roll") FACULA_WHOLE("rot90") FACULA_WHOLE("diag_embed") FACULA_WHOLE(
                            "count_nonzero") FACULA_WHOLE("linalg_vector_norm") FACULA_WHOLE("scatter_reduce")
                            FACULA_WHOLE("index_reduce") FACULA_WHOLE("median.dim") FACULA_WHOLE("kthvalue")
                                FACULA_WHOLE("mode") FACULA_WHOLE("searchsorted") FACULA_WHOLE("bucketize")
                                    FACULA_WHOLE("isin") FACULA_WHOLE("bincount")
                                        FACULA_WHOLE("native_layer_norm") FACULA_WHOLE("native_group_norm")
                                            FACULA_WHOLE("native_batch_norm")
                                                FACULA_WHOLE("max_pool2d_with_indices") FACULA_WHOLE(
                                                    "max_pool3d_with_indices") FACULA_WHOLE("avg_pool3d")
                                                    FACULA_WHOLE("uniform_") FACULA_WHOLE("normal_")
                                                        FACULA_WHOLE("random_") FACULA_WHOLE("random_.to")
                                                            FACULA_WHOLE("random_.from")
                                                                FACULA_WHOLE("exponential_")
                                                                    FACULA_WHOLE("take") FACULA_WHOLE("put")
#undef FACULA_WHOLE
};

}  // namespace

FACULA_FAMILY(decompositions) { run::set_decompositions(kDecompositions); }
