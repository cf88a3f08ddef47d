// Products of 8-bit integers with exact 32-bit sums, alone or rounded to 8 bits again: the operators that quantised linear layers
// and convolutions call.
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {
constexpr DTypeSet kBytes{1u << int(DType::UInt8) | 1u << int(DType::Int8)};

void check_operands(const Call& c, const char* left, const char* right) {
  runtime_check(kBytes.has(c.dtype(left)), c.name())
      << "expected " << left << " dtype to be int8 or uint8 but got " << c.dtype(left);
  runtime_check(c.dtype(right) == DType::Int8, c.name())
      << "expected " << right << " dtype to be int8 but got " << c.dtype(right);
}

// The sums alone are int32 and have neither multipliers nor a bias; the other results need one multiplier a channel.
void check_epilogue(const Call& c, SymInt channels) {
  check_operands(c, "input", "weight");
  DType t = *c.maybe_dtype("dtype");
  runtime_check(t == DType::Int32 || t == DType::Float32 || kBytes.has(t), c.name())
      << "dtype must be uint8, int8, int32 or float32, got " << t;
  bool sums = t == DType::Int32;
  runtime_check(sums != c.has("multiplier"), c.name())
      << (sums ? "int32 sums take no multiplier" : "multiplier is needed for results of dtype ")
      << (sums ? "" : name(t));
  runtime_check(!sums || (!c.has("bias") && !c.flag("relu")), c.name())
      << "int32 sums take neither bias nor relu";
  for (const char* what : {"multiplier", "bias"})
    if (c.has(what)) {
      runtime_check(c.dtype(what) == DType::Float32 && c.rank(what) == 1 && c.size(what, 0) == channels,
                    c.name())
          << what << " must be float32 with " << channels << " elements, one a channel, got " << c.dtype(what)
          << " of shape " << to_string(c.sizes(what));
    }
}

struct Epilogue {
  std::optional<Tensor> multiplier, bias;
  int64_t zero_point;
  bool relu;
  DType dtype;
};
// sums * multiplier + bias in float32, plus the zero point, rounded to `dtype`; channels are dimension `axis`. oneDNN adds in this order.
Tensor finished(const Tensor& sums, const Epilogue& e, int axis) {
  if (e.dtype == DType::Int32) return to_dtype(sums, e.dtype);
  Dims along(size_t(sums.dim()), SymInt(int64_t(1)));
  along[size_t(axis)] = e.multiplier->size(0);
  Tensor y = mul(to_dtype(sums, DType::Float32), reshape(*e.multiplier, along));
  if (e.bias) y = add(y, reshape(*e.bias, along));
  if (e.relu) y = relu(y);
  if (e.dtype == DType::Float32) return y;
  int64_t low = e.dtype == DType::Int8 ? -128 : 0;
  return to_dtype(clamp(round(add(y, e.zero_point)), low, low + 255), e.dtype);
}
Tensor centred(const Tensor& x, int64_t zero_point) { return sub(to_dtype(x, DType::Int32), zero_point); }
}  // namespace

FACULA_FAMILY(quantized) {
  define(
      "_quantize_affine(Tensor self, Tensor scale, Tensor zero_point, int quant_min, int quant_max, dtype dtype) -> Tensor")
      .doc(
          "Integers: self / scale rounded to even, plus zero_point, within the limits; NaN becomes quant_max. A zero point of a floating "
          "dtype is added before rounding: float32 to the quotient in float32, float64 to the exact quotient. `scale` and "
          "`zero_point` broadcast with self.")
      .bind(function)
      .dtypes(d::any)
      .promote(Promote::none)
      .result([](const Call& c) { return std::vector<DType>{*c.maybe_dtype("dtype")}; })
      .non_differentiable("the elements are integers")
      .composite([](const Tensor& self, const Tensor& scale, const Tensor& zero_point, int64_t quant_min,
                    int64_t quant_max, DType dtype) {
        Tensor x = to_dtype(self, DType::Float32), inverse = reciprocal(to_dtype(scale, DType::Float32));
        bool integral = !is_floating(zero_point.dtype()), exact = zero_point.dtype() == DType::Float64;
        // float32 does not hold the limits of 32-bit integers
        DType wide = itemsize(dtype) > 2 ? DType::Float64 : DType::Float32;
        Tensor zero = to_dtype(zero_point, integral ? wide : DType::Float32);
        Tensor steps =
            integral ? add(to_dtype(round(mul(x, inverse)), wide), zero)
                     : to_dtype(round(exact ? addcmul(zero, x, inverse) : add(mul(x, inverse), zero)), wide);
        return to_dtype(where(isnan(steps), quant_max, clamp(steps, quant_min, quant_max)), dtype);
      })
      .samples(
          {"self[3, 4](-2, 2), scale[](0.1, 0.2), zero_point[], quant_min=-8, quant_max=7, dtype=int8",
           "self[3, 4](-2, 2), scale[3, 1](0.1, 0.2), zero_point[3, 1], quant_min=0, quant_max=255, dtype=uint8"});
  define("_dequantize_affine(Tensor self, Tensor scale, Tensor zero_point, dtype dtype) -> Tensor")
      .doc("(self - zero_point) * scale for integers; `scale` and `zero_point` broadcast with self.")
      .bind(function)
      .dtypes(d::any)
      .promote(Promote::none)
      .result([](const Call& c) { return std::vector<DType>{*c.maybe_dtype("dtype")}; })
      .non_differentiable("the operands are integers")
      .composite([](const Tensor& self, const Tensor& scale, const Tensor& zero_point, DType dtype) {
        DType wide = itemsize(self.dtype()) > 2 ? DType::Float64 : DType::Float32;
        Tensor steps = to_dtype(sub(to_dtype(self, wide), to_dtype(zero_point, wide)), DType::Float32);
        return to_dtype(mul(steps, to_dtype(scale, DType::Float32)), dtype);
      })
      .samples({"self[3, 4], scale[](0.1, 0.2), zero_point[], dtype=float32",
                "self[3, 4], scale[3, 1](0.1, 0.2), zero_point[3, 1], dtype=float32"});
  define("_int_mm(Tensor self, Tensor mat2) -> Tensor")
      .doc("Product of matrices of 8-bit integers with int32 sums, [n, k] x [k, m] -> [n, m].")
      .bind(function)
      .dtypes(kBytes)
      .promote(Promote::none)
      .result([](const Call&) { return std::vector<DType>{DType::Int32}; })
      .non_differentiable("the elements are integers")
      .shape([](const Call& c) {
        check_operands(c, "self", "mat2");
        for (const char* what : {"self", "mat2"})
          runtime_check(c.rank(what) == 2, c.name())
              << "expected " << what << " to be of dimension 2 but got " << c.rank(what);
        runtime_check(c.size("self", 1) == c.size("mat2", 0), c.name())
            << "self.size(1) needs to match mat2.size(0), got " << to_string(c.sizes("self")) << " and "
            << to_string(c.sizes("mat2"));
        return Dims{c.size("self", 0), c.size("mat2", 1)};
      })
      .library("int_mm")
      .reference(
          [](const Tensor& self, const Tensor& mat2) { return mm(centred(self, 0), centred(mat2, 0)); });
  define(
      "_int8_linear(Tensor input, Tensor weight, Tensor? multiplier, Tensor? bias, int input_zero_point, int output_zero_point, bool relu, dtype dtype) -> Tensor")
      .doc(
          "(input - input_zero_point) @ weight.T of 8-bit integers, [n, k] x [m, k] -> [n, m]. The int32 sums, or float32 sums * "
          "multiplier + bias, or those plus output_zero_point, rounded to an 8-bit dtype.")
      .bind(function)
      .dtypes(kBytes | d::floating)
      .promote(Promote::none)
      .result([](const Call& c) { return std::vector<DType>{*c.maybe_dtype("dtype")}; })
      .non_differentiable("the operands are integers")
      .shape([](const Call& c) {
        runtime_check(c.rank("input") == 2 && c.rank("weight") == 2 &&
                          c.size("input", 1) == c.size("weight", 1),
                      c.name())
            << "input and weight must be matrices with rows of the same length, got shapes "
            << to_string(c.sizes("input")) << " and " << to_string(c.sizes("weight"));
        check_epilogue(c, c.size("weight", 0));
        return Dims{c.size("input", 0), c.size("weight", 0)};
      })
      .library("int8_linear")
      .reference([](const Tensor& input, const Tensor& weight, std::optional<Tensor> multiplier,
                    std::optional<Tensor> bias, int64_t input_zero_point, int64_t output_zero_point,
                    bool relu, DType dtype) {
        Tensor sums = mm(centred(input, input_zero_point), transpose(centred(weight, 0), 0, 1));
        return finished(sums, {multiplier, bias, output_zero_point, relu, dtype}, 1);
      });
  define(
      "_int8_conv2d(Tensor input, Tensor weight, Tensor? multiplier, Tensor? bias, int input_zero_point, int output_zero_point, bool relu, dtype dtype, SymInt[2] stride=1, SymInt[2] padding=0, SymInt[2] dilation=1, int groups=1) -> Tensor")
      .doc(
          "conv2d of input - input_zero_point and weight, of 8-bit integers; results as those of _int8_linear.")
      .bind(function)
      .dtypes(kBytes | d::floating)
      .promote(Promote::none)
      .result([](const Call& c) { return std::vector<DType>{*c.maybe_dtype("dtype")}; })
      .non_differentiable("the operands are integers")
      .shape([](const Call& c) {
        runtime_check(c.rank("input") == 4 && c.rank("weight") == 4, c.name())
            << "input and weight must have 4 dimensions, got shapes " << to_string(c.sizes("input"))
            << " and " << to_string(c.sizes("weight"));
        check_epilogue(c, c.size("weight", 0));
        Dims out(c.sizes("input"));
        SymInt one = int64_t(1), groups = c.integer("groups");
        runtime_check(groups > SymInt(int64_t(0)) && out[1] == c.size("weight", 1) * groups &&
                          c.size("weight", 0) % groups == SymInt(int64_t(0)),
                      c.name())
            << "input of shape " << to_string(c.sizes("input")) << " does not fit weight of shape "
            << to_string(c.sizes("weight")) << " with groups=" << groups;
        out[1] = c.size("weight", 0);
        Dims stride = c.ints("stride", 2), padding = c.ints("padding", 2), dilation = c.ints("dilation", 2);
        for (size_t k = 0; k < 2; ++k) {
          SymInt kernel = dilation[k] * (c.size("weight", int(k) + 2) - one) + one,
                 padded = out[k + 2] + padding[k] + padding[k];
          runtime_check(stride[k] > SymInt(int64_t(0)) && dilation[k] > SymInt(int64_t(0)) &&
                            !(padding[k] < SymInt(int64_t(0))),
                        c.name())
              << "stride and dilation must be positive and padding must not be negative, got stride "
              << to_string(SymSpan(stride)) << ", dilation " << to_string(SymSpan(dilation)) << ", padding "
              << to_string(SymSpan(padding));
          runtime_check(!(kernel > padded), c.name())
              << "kernel size can't be greater than actual input size: padded input " << padded << ", kernel "
              << kernel << ", input " << to_string(c.sizes("input")) << ", weight "
              << to_string(c.sizes("weight"));
          out[k + 2] = (padded - kernel) / stride[k] + one;
        }
        return out;
      })
      .format_of({"input"})
      .library("int8_conv2d")
      .reference([](const Tensor& input, const Tensor& weight, std::optional<Tensor> multiplier,
                    std::optional<Tensor> bias, int64_t input_zero_point, int64_t output_zero_point,
                    bool relu, DType dtype, Sizes stride, Sizes padding, Sizes dilation, int64_t groups) {
        Tensor sums = conv2d(centred(input, input_zero_point), centred(weight, 0), MaybeTensor(), stride,
                             padding, dilation, groups);
        return finished(sums, {multiplier, bias, output_zero_point, relu, dtype}, 1);
      });
}
