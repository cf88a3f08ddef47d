// What grad_fn is called where PyTorch's formula belongs to another operator than ours: to a part of it, to a variant of its
// own, or to the last step of a function that PyTorch writes in steps.
#include "facula/autograd/shown_name.h"
#include "facula/op/operator.h"

using namespace facula;
using namespace facula::op;

namespace {

bool is_number(const Value& v) {
  return v.tag == Tag::scalar || v.tag == Tag::integer || (v.tag == Tag::tensor && v.tensor->wrapped_number);
}
std::string name(const char* stem, int number = 0) { return stem + ("Backward" + std::to_string(number)); }
std::string spatial(const char* stem, int rank, const char* end = "") {
  return stem + (std::to_string(rank) + "D") + end + "Backward0";
}

std::string linear_name(const Call& c, const char*) {
  bool bias = c.has("bias");
  int rank = c.rank("input");
  if (rank == 2) return name(bias ? "Addmm" : "Mm");
  if (!bias) return rank == 1 ? name("Squeeze", 4) : name("UnsafeView");
  return name(c.tensor("input").is_contiguous() ? "View" : "Add");
}
std::string matmul_name(const Call& c, const char*) {
  return c.rank("self") == 2 && c.rank("other") == 2 ? name("Mm") : name("UnsafeView");
}
std::string sub_name(const Call& c, const char*) { return is_number(c["self"]) ? name("Rsub", 1) : ""; }
std::string div_name(const Call& c, const char*) { return is_number(c["self"]) ? name("Mul") : ""; }
std::string pow_name(const Call& c, const char*) {
  return name("Pow", is_number(c["self"]) ? 2 : is_number(c["exponent"]) ? 0 : 1);
}
std::string remainder_name(const Call& c, const char*) {
  return name("Remainder", is_number(c["other"]) ? 0 : 1);
}
std::string lerp_name(const Call& c, const char*) { return name("Lerp", is_number(c["weight"]) ? 0 : 1); }
// Of all elements, or along dimensions.
std::string reduction_name(const Call& c, const char* stem) { return name(stem, c["dim"].is_none() ? 0 : 1); }
std::string dropout_name(const Call& c, const char*) {
  return c.real("p") == 0 || c.real("p") == 1 ? "" : name("Mul");
}
std::string gumbel_name(const Call& c, const char*) { return name(c.flag("hard") ? "Add" : "Softmax"); }

// Losses end in their reduction.
std::string loss_name(const Call& c, const char* each) {
  auto reduction = c.str("reduction");
  return name(reduction == "mean" ? "Mean" : reduction == "sum" ? "Sum" : each);
}
std::string nll_name(const Call& c, const char*) {
  int rank = c.rank("self");
  if (rank < 3) return name("NllLoss");
  return rank > 3 || c.str("reduction") != "none" ? name("NllLoss2D") : name("View");
}
std::string cross_entropy_name(const Call& c, const char*) {
  if (is_differentiable(c.dtype("target")))
    return c.str("reduction") == "mean" ? name("Div", 1) : name("Neg");
  return c.real("label_smoothing") > 0 ? name("Add") : nll_name(c, {});
}

std::string interpolate_name(const Call& c, const char*) {
  std::string mode(c.str("mode"));
  const char* antialiased = mode.starts_with("smooth-") ? "Aa" : "";
  if (*antialiased) mode.erase(0, std::string("smooth-").size());
  int rank = c.rank("self") - 2;
  const char* linear[] = {"UpsampleLinear", "UpsampleBilinear", "UpsampleTrilinear"};
  if (mode == "linear") return spatial(linear[rank - 1], rank, antialiased);
  if (mode == "cubic") return spatial("UpsampleBicubic", rank, antialiased);
  if (mode == "nearest") return spatial("UpsampleNearest", rank);
  return mode == "nearest-exact" ? spatial("UpsampleNearestExact", rank) : "";
}
std::string pad_name(const Call& c, const char*) {
  auto mode = c.str("mode");
  int rank = int(c.ints("pad").size() / 2);
  if (mode == "circular") return "CopySlices";
  return spatial(mode == "reflect" ? "ReflectionPad" : "ReplicationPad", rank);
}
std::string bilinear_name(const Call& c, const char*) { return name(c.has("bias") ? "Add" : "View"); }
std::string grid_name(const Call& c, const char*) { return spatial("GridSampler", c.rank("input") - 2); }
std::string convolution_name(const Call& c, const char*) {
  return c.rank("input") == 4 ? name("Convolution") : name("Squeeze", 1);
}

template <int number>
std::string numbered(const Call&, const char* stem) {
  return name(stem, number);
}
std::string squeeze_name(const Call& c, const char*) {
  return name("Squeeze", c.ints("dim").size() == 1 ? 1 : 2);
}

const autograd::ShownName kNames[] = {
    {"linear", nullptr, linear_name},
    {"_matmul", nullptr, matmul_name},
    {"sub", nullptr, sub_name},
    {"div", nullptr, div_name},
    {"pow", nullptr, pow_name},
    {"remainder", nullptr, remainder_name},
    {"lerp", nullptr, lerp_name},
    {"clamp", "Clamp", numbered<1>},
    {"scatter.value", "Scatter", numbered<1>},
    {"square", "Pow"},
    {"log1p", "Log1P"},
    {"deg2rad", "Deg2Rad"},
    {"rad2deg", "Rad2Deg"},
    {"special_xlog1py", "SpecialXlog1Py"},
    {"_copied", "Clone"},
    {"_row_major", "Clone"},
    {"to_dtype", "ToCopy"},
    {"_cross", "LinalgCross"},
    {"_scatter_combine", "ScatterReduce"},
    {"_sparse_mm", "SparseAddmm"},
    {"_lstm_step", "Mul"},
    {"_gru_step", "Add"},

    {"sum", "Sum", reduction_name},
    {"mean", "Mean", reduction_name},
    {"prod", "Prod", reduction_name},
    {"nanmean", "Div"},
    {"max", "Max", numbered<1>},
    {"min", "Min", numbered<1>},
    {"norm", "LinalgVectorNorm"},

    {"T", "Permute"},
    {"mT", "Transpose"},
    {"movedim", "Permute"},
    {"narrow", "Slice"},
    {"chunk", "Split"},
    {"tensor_split", "Slice"},
    {"tensor_split.indices", "Slice"},
    {"hsplit", "Slice"},
    {"hsplit.indices", "Slice"},
    {"vsplit", "Slice"},
    {"vsplit.indices", "Slice"},
    {"squeeze.dims", nullptr, squeeze_name},

    {"selu", "Elu"},
    {"softsign", "Div"},
    {"tanhshrink", "Sub"},
    {"prelu", "PreluKernel"},
    {"_dropout", nullptr, dropout_name},
    {"_dropped_alpha", "Add"},
    {"bilinear", nullptr, bilinear_name},
    {"gumbel_softmax", nullptr, gumbel_name},
    {"_normalize", "Div"},
    {"_cosine_similarity", "Sum", numbered<1>},
    {"pairwise_distance", "Norm", numbered<1>},

    {"conv2d", nullptr, convolution_name},
    {"convolution_backward_input", "Convolution"},
    {"max_pool2d_taps", "MaxPool2DWithIndices"},
    {"avg_pool2d", "AvgPool2D"},
    {"_adaptive_avg_pool2d", "AdaptiveAvgPool2D"},
    {"_adaptive_max_pool2d", "AdaptiveMaxPool2D"},
    {"lp_pool2d", "Pow"},
    {"_interpolate", nullptr, interpolate_name},
    {"_pad_repeated", nullptr, pad_name},
    {"im2col", "Im2Col"},
    {"col2im", "Col2Im"},
    {"grid_sampler", nullptr, grid_name},
    {"layer_norm", "NativeLayerNorm"},
    {"group_norm", "NativeGroupNorm"},
    {"rms_norm", "Mul"},
    {"local_response_norm", "Div"},
    {"_batch_norm_train", "NativeBatchNorm"},
    {"_batch_norm_eval", "NativeBatchNorm"},

    {"cross_entropy", nullptr, cross_entropy_name},
    {"nll_loss", nullptr, nll_name},
    {"l1_loss", "Abs", loss_name},
    {"kl_div", "Sub", loss_name},
    {"poisson_nll_loss", "Sub", loss_name},
    {"gaussian_nll_loss", "Mul", loss_name},
    {"hinge_embedding_loss", "Add", loss_name},
    {"cosine_embedding_loss", "Add", loss_name},
    {"margin_ranking_loss", "ClampMin", loss_name},
    {"triplet_margin_loss", "ClampMin", loss_name},
    {"_triplet", "ClampMin", loss_name},
    {"multilabel_soft_margin_loss", "Div", loss_name},

    {"linalg_inv", "LinalgInvEx"},
    {"_linalg_cholesky", "LinalgCholeskyEx"},
    {"_linalg_solve", "LinalgSolveEx"},
    {"_linalg_triangular", "LinalgSolveTriangular"},
    {"linalg_svdvals", "LinalgSvd"},
    {"linalg_eigvalsh", "LinalgEigh"},
    {"_fft_r2c", "FftR2C"},
    {"_fft_c2c", "FftC2C"},
    {"_fft_c2r", "FftC2R"},
};

}  // namespace

FACULA_FAMILY(shown_names) { autograd::set_shown_names(kNames); }
