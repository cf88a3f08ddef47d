// Operations of NNAPI by Facula's operators. Floating-point operations compute in float32; 8-bit operands are integers less
// their zero points in float64, which represents sums of products exactly, and a result is rounded once, to nearest even.
#include <cmath>
#include <map>
#include <numeric>

#include "facula/base/error.h"
#include "facula/deploy/nnapi_host/model.h"
#include "facula/ops.h"

namespace facula::nnapi {

bool is_tensor(int32_t type) {
  return type >= ANEURALNETWORKS_TENSOR_FLOAT32 && type != ANEURALNETWORKS_BOOL;
}

DType dtype_of(int32_t type) {
  switch (type) {
    case ANEURALNETWORKS_FLOAT32:
    case ANEURALNETWORKS_TENSOR_FLOAT32: return DType::Float32;
    case ANEURALNETWORKS_INT32:
    case ANEURALNETWORKS_UINT32:
    case ANEURALNETWORKS_TENSOR_INT32: return DType::Int32;
    case ANEURALNETWORKS_TENSOR_QUANT8_ASYMM: return DType::UInt8;
    case ANEURALNETWORKS_TENSOR_QUANT8_ASYMM_SIGNED:
    case ANEURALNETWORKS_TENSOR_QUANT8_SYMM_PER_CHANNEL: return DType::Int8;
    case ANEURALNETWORKS_BOOL:
    case ANEURALNETWORKS_TENSOR_BOOL8: return DType::Bool;
    default:
      supported_check(false, "neuralnetworks") << "operands of type " << type << " are not supported here";
  }
  __builtin_unreachable();
}

namespace {

using Dims = std::vector<int64_t>;
using Pads = std::array<int64_t, 4>;  // left, right, top, bottom

bool is_8_bits(int32_t type) {
  return type == ANEURALNETWORKS_TENSOR_QUANT8_ASYMM || type == ANEURALNETWORKS_TENSOR_QUANT8_ASYMM_SIGNED ||
         type == ANEURALNETWORKS_TENSOR_QUANT8_SYMM_PER_CHANNEL;
}
Dims dims_of(const Tensor& t) {
  auto sizes = t.int_sizes();
  return {sizes.begin(), sizes.end()};
}

// One operation during an execution.
class Step {
 public:
  Step(const Model& model, const Operation& operation, std::vector<Tensor>& values)
      : model_(model), operation_(operation), values_(values) {}

  int32_t code() const { return operation_.code; }
  size_t inputs() const { return operation_.inputs.size(); }
  const Operand& operand(size_t k) const {
    value_check(k < inputs(), "neuralnetworks") << "operation " << code() << " has " << inputs() << " inputs";
    return model_.operands[operation_.inputs[k]];
  }
  const Operand& result() const { return model_.operands[operation_.outputs.at(0)]; }
  bool has(size_t k) const { return k < inputs() && operand(k).kind != Operand::omitted; }

  Tensor tensor(size_t k) const {
    operand(k);
    const Tensor& t = values_[operation_.inputs[k]];
    value_check(t.defined(), "neuralnetworks")
        << "input " << k << " of operation " << code() << " was not computed, or is omitted";
    return t;
  }
  // Integers less their zero points in float64; other tensors as they are.
  Tensor centred(size_t k) const {
    const Operand& o = operand(k);
    Tensor t = tensor(k);
    return is_8_bits(o.type) ? sub(to(t, DType::Float64), double(o.zero_point)) : t;
  }
  // The numbers that a tensor stands for.
  Tensor real(size_t k) const {
    const Operand& o = operand(k);
    return is_8_bits(o.type) ? mul(centred(k), scales(o)) : tensor(k);
  }
  Tensor scales(const Operand& o) const {
    if (o.channel_scales.empty()) return Tensor::scalar(double(o.scale), DType::Float64);
    Dims sizes(o.dims.size(), 1);
    sizes[size_t(o.channel_dim)] = -1;
    Tensor t = Tensor::empty(IntSpan(Dims{int64_t(o.channel_scales.size())}), DType::Float64);
    std::copy(o.channel_scales.begin(), o.channel_scales.end(), t.data<double>());
    return reshape(t, sizes);
  }

  Dims ints(size_t k) const {
    Tensor t = contiguous(to(tensor(k), DType::Int64));
    return Dims(t.data<int64_t>(), t.data<int64_t>() + t.numel().concrete());
  }
  int64_t integer(size_t k, int64_t otherwise = 0) const { return has(k) ? ints(k).at(0) : otherwise; }
  double number(size_t k) const { return to(tensor(k), DType::Float64).item().to_double(); }
  bool flag(size_t k) const { return integer(k) != 0; }
  bool is_flag(size_t k) const { return k < inputs() && operand(k).type == ANEURALNETWORKS_BOOL; }

  // Stores a result: real numbers, which are quantised if the operand is.
  void give(Tensor t, int64_t activation = ANEURALNETWORKS_FUSED_NONE) const {
    if (activation == ANEURALNETWORKS_FUSED_RELU) t = clamp(t, Scalar(0.0));
    if (activation == ANEURALNETWORKS_FUSED_RELU1) t = clamp(t, Scalar(-1.0), Scalar(1.0));
    if (activation == ANEURALNETWORKS_FUSED_RELU6) t = clamp(t, Scalar(0.0), Scalar(6.0));
    const Operand& o = result();
    if (is_8_bits(o.type)) {
      bool is_signed = o.type != ANEURALNETWORKS_TENSOR_QUANT8_ASYMM;
      t = add(round(div(to(t, DType::Float64), double(o.scale))), double(o.zero_point));
      t = clamp(t, Scalar(is_signed ? -128.0 : 0.0), Scalar(is_signed ? 127.0 : 255.0));
    }
    give_as_is(to(t, dtype_of(o.type)));
  }
  // The same for 8-bit integers less their zero point that keep their scale, and for all other dtypes.
  void give_moved(Tensor t) const {
    const Operand &from = operand(0), &o = result();
    if (!is_8_bits(o.type)) return give_as_is(t);
    give(mul(t, double(from.scale)));
  }
  void give_as_is(Tensor t) const {
    const Operand& o = result();
    Dims sizes = dims_of(t);
    bool fits = o.dims.empty() || sizes.size() == o.dims.size();
    for (size_t d = 0; fits && d < o.dims.size(); ++d) fits = !o.dims[d] || o.dims[d] == sizes[d];
    value_check(fits, "neuralnetworks") << "the result of operation " << code() << " has sizes "
                                        << to_string(t.sizes()) << ", which differ from its operand's";
    values_[operation_.outputs.at(0)] = contiguous(t);
  }

 private:
  const Model& model_;
  const Operation& operation_;
  std::vector<Tensor>& values_;
};

// Tensors of images are [N, H, W, C] unless a flag says [N, C, H, W], in which operators of ours compute.
Tensor from_image(const Tensor& t, bool nchw) { return nchw ? t : permute(t, {0, 3, 1, 2}); }
Tensor to_image(const Tensor& t, bool nchw) { return nchw ? t : permute(t, {0, 2, 3, 1}); }

// The padding of a scheme: SAME divides it, and the odd row or column comes last.
Pads scheme_pads(int64_t scheme, const Dims& sizes, int64_t kw, int64_t kh, int64_t sw, int64_t sh) {
  if (scheme != ANEURALNETWORKS_PADDING_SAME) return {0, 0, 0, 0};
  auto total = [](int64_t size, int64_t kernel, int64_t stride) {
    return std::max<int64_t>(0, ((size + stride - 1) / stride - 1) * stride + kernel - size);
  };
  int64_t w = total(sizes[3], kw, sw), h = total(sizes[2], kh, sh);
  return {w / 2, w - w / 2, h / 2, h - h / 2};
}
Tensor padded(const Tensor& t, const Pads& p, double value = 0) {
  if (p == Pads{0, 0, 0, 0}) return t;
  return constant_pad_nd(t, {p[0], p[1], p[2], p[3]}, Scalar(value));
}

// The arguments of a convolution behind image, weight and bias.
struct Window {
  Pads pads{};
  int64_t sw = 1, sh = 1, dw = 1, dh = 1, extra = 1, activation = 0;  // extra: a multiplier, or groups
  bool nchw = false;
};
Window window_of(const Step& s, bool has_extra, bool has_dilation, int64_t kw, int64_t kh) {
  Window w;
  size_t flag = 7 + has_extra;  // where the implicit form has the layout
  bool is_explicit = s.inputs() > flag && !s.is_flag(flag);
  size_t at = 3;
  int64_t scheme = 0;
  if (is_explicit) {
    for (auto& p : w.pads) p = s.integer(at++);
  } else {
    scheme = s.integer(at++);
  }
  w.sw = s.integer(at++);
  w.sh = s.integer(at++);
  if (has_extra) w.extra = s.integer(at++);
  w.activation = s.integer(at++);
  if (at < s.inputs()) w.nchw = s.flag(at++);
  if (has_dilation && at + 1 < s.inputs()) {
    w.dw = s.integer(at++);
    w.dh = s.integer(at++);
  }
  if (!is_explicit)
    w.pads = scheme_pads(scheme, dims_of(from_image(s.tensor(0), w.nchw)), (kw - 1) * w.dw + 1,
                         (kh - 1) * w.dh + 1, w.sw, w.sh);
  value_check(w.sw > 0 && w.sh > 0 && w.dw > 0 && w.dh > 0, "neuralnetworks")
      << "strides and dilations of operation " << s.code() << " must be positive";
  return w;
}

// Adds the bias and scales the sums of products of 8-bit integers.
Tensor with_bias(const Step& s, Tensor sums, int64_t channel_axis) {
  Dims shape(size_t(sums.dim()), 1);
  shape[size_t(channel_axis)] = -1;
  sums = add(sums, reshape(to(s.tensor(2), sums.dtype()), shape));
  if (!is_8_bits(s.operand(0).type)) return sums;
  Tensor scale = s.scales(s.operand(1));
  if (scale.dim()) scale = reshape(scale, shape);
  return mul(mul(sums, double(s.operand(0).scale)), scale);
}

void convolution(const Step& s) {
  Tensor weight = s.centred(1);  // [O, kh, kw, I]; of depthwise ones [1, kh, kw, O]
  Dims k = dims_of(weight);
  value_check(k.size() == 4, "neuralnetworks")
      << "the weight of a convolution has 4 dimensions, given are " << k.size();
  bool depthwise = s.code() == ANEURALNETWORKS_DEPTHWISE_CONV_2D,
       grouped = s.code() == ANEURALNETWORKS_GROUPED_CONV_2D;
  Window w = window_of(s, depthwise || grouped, !grouped, k[2], k[1]);
  Tensor image = from_image(s.centred(0), w.nchw);
  int64_t groups = grouped ? w.extra : depthwise ? dims_of(image).at(1) : 1;
  weight = depthwise ? permute(weight, {3, 0, 1, 2}) : permute(weight, {0, 3, 1, 2});
  Tensor sums =
      conv2d(padded(image, w.pads), weight, std::nullopt, {w.sh, w.sw}, Sizes{0, 0}, {w.dh, w.dw}, groups);
  s.give(to_image(with_bias(s, sums, 1), w.nchw), w.activation);
}

void transposed_convolution(const Step& s) {
  Tensor weight = s.centred(1);  // [O, kh, kw, I]
  bool implicit = s.inputs() < 11;
  size_t at = implicit ? 5 : 7;
  int64_t sw = s.integer(at), sh = s.integer(at + 1), activation = s.integer(at + 2);
  bool nchw = s.flag(at + 3);
  Tensor image = from_image(s.centred(0), nchw);
  Tensor all = conv_transpose2d(image, permute(weight, {3, 0, 1, 2}), std::nullopt, {sh, sw});
  Dims sizes = dims_of(all);
  Pads p;
  if (implicit) {
    Dims wanted = s.ints(3);
    int64_t h = sizes[2] - wanted.at(nchw ? 2 : 1), w = sizes[3] - wanted.at(nchw ? 3 : 2);
    p = {w / 2, w - w / 2, h / 2, h - h / 2};
  } else {
    p = {s.integer(3), s.integer(4), s.integer(5), s.integer(6)};
  }
  all = slice(slice(all, 2, p[2], sizes[2] - p[3]), 3, p[0], sizes[3] - p[1]);
  s.give(to_image(with_bias(s, all, 1), nchw), activation);
}

void fully_connected(const Step& s) {
  Tensor weight = s.centred(1), x = s.centred(0);  // [O, I]
  x = reshape(x, {-1, dims_of(weight).at(1)});
  s.give(with_bias(s, matmul(x, transpose(weight, 0, 1)), 1), s.integer(3));
}

void pool(const Step& s) {
  bool is_explicit = s.inputs() >= 10, largest = s.code() == ANEURALNETWORKS_MAX_POOL_2D;
  size_t at = is_explicit ? 5 : 2;
  int64_t sw = s.integer(at), sh = s.integer(at + 1), kw = s.integer(at + 2), kh = s.integer(at + 3);
  bool nchw = s.integer(at + 5);
  value_check(sw > 0 && sh > 0 && kw > 0 && kh > 0, "neuralnetworks")
      << "windows and strides of a pool are positive";
  Tensor image = from_image(s.real(0), nchw);
  Pads p = is_explicit ? Pads{s.integer(1), s.integer(2), s.integer(3), s.integer(4)}
                       : scheme_pads(s.integer(1), dims_of(image), kw, kh, sw, sh);
  Tensor t;
  if (largest) {
    t = max_pool2d(padded(image, p, -std::numeric_limits<double>::infinity()), {kh, kw}, {sh, sw});
  } else {  // the mean of the elements of the image within each window
    t = avg_pool2d(padded(image, p), {kh, kw}, {sh, sw});
    if (p != Pads{0, 0, 0, 0}) {
      Tensor ones = add(mul(slice(slice(image, 0, 0, 1), 1, 0, 1), 0), 1);
      t = div(t, avg_pool2d(padded(ones, p), {kh, kw}, {sh, sw}));
    }
  }
  s.give(to_image(t, nchw), s.integer(at + 4));
}

// Samples rows along `dim` at `count` positions; `linear`: between two neighbours.
Tensor resized(const Tensor& t, int64_t dim, int64_t count, double ratio, bool align, bool half,
               bool linear) {
  int64_t size = dims_of(t).at(size_t(dim));
  if (align && count > 1) ratio = double(size - 1) / double(count - 1);
  Tensor low = Tensor::empty(IntSpan(Dims{count}), DType::Int64),
         high = Tensor::empty(IntSpan(Dims{count}), DType::Int64);
  Tensor part = Tensor::empty(IntSpan(Dims{count}), DType::Float32);
  for (int64_t k = 0; k < count; ++k) {
    double at = half ? (double(k) + 0.5) * ratio - (linear ? 0.5 : 0) : double(k) * ratio;
    at = std::clamp(linear ? at : align ? std::floor(at + 0.5) : std::floor(at), 0.0, double(size - 1));
    int64_t first = int64_t(at);
    low.data<int64_t>()[k] = first;
    high.data<int64_t>()[k] = std::min(first + 1, size - 1);
    part.data<float>()[k] = float(at - double(first));
  }
  Tensor a = index_select(t, dim, low);
  if (!linear) return a;
  Dims shape(size_t(t.dim()), 1);
  shape[size_t(dim)] = count;
  Tensor b = index_select(t, dim, high);
  return add(a, mul(sub(b, a), reshape(to(part, t.dtype()), shape)));
}

void resize(const Step& s) {
  bool linear = s.code() == ANEURALNETWORKS_RESIZE_BILINEAR, nchw = s.integer(3), align = s.integer(4),
       half = s.integer(5);
  Tensor image = from_image(s.real(0), nchw);
  Dims sizes = dims_of(image);
  bool by_factor = s.operand(1).type == ANEURALNETWORKS_FLOAT32;
  auto target = [&](size_t k, int64_t size) {
    return by_factor ? int64_t(std::floor(double(size) * s.number(k))) : s.integer(k);
  };
  int64_t w = target(1, sizes.at(3)), h = target(2, sizes.at(2));
  value_check(w > 0 && h > 0, "neuralnetworks") << "an image cannot be resized to " << h << " x " << w;
  image = resized(image, 2, h, double(sizes[2]) / double(h), align, half, linear);
  image = resized(image, 3, w, double(sizes[3]) / double(w), align, half, linear);
  s.give(to_image(image, nchw));
}

void binary(const Step& s) {
  Tensor a = s.real(0), b = s.real(1), t;
  switch (s.code()) {
    case ANEURALNETWORKS_ADD: t = add(a, b); break;
    case ANEURALNETWORKS_SUB: t = sub(a, b); break;
    case ANEURALNETWORKS_MUL: t = mul(a, b); break;
    case ANEURALNETWORKS_DIV:
      t = a.dtype() == DType::Int32 ? div(a, b, std::string_view("floor")) : div(a, b);
      break;
    case ANEURALNETWORKS_MAXIMUM: t = maximum(a, b); break;
    case ANEURALNETWORKS_MINIMUM: t = minimum(a, b); break;
    default: t = where(gt(a, 0), a, mul(a, b));  // PRELU
  }
  bool fused = s.code() == ANEURALNETWORKS_ADD || s.code() == ANEURALNETWORKS_SUB ||
               s.code() == ANEURALNETWORKS_MUL || s.code() == ANEURALNETWORKS_DIV;
  s.give(t, fused ? s.integer(2) : 0);
}

void unary(const Step& s) {
  Tensor x = s.real(0);
  switch (s.code()) {
    case ANEURALNETWORKS_FLOOR: return s.give(floor(x));
    case ANEURALNETWORKS_LOGISTIC: return s.give(sigmoid(x));
    case ANEURALNETWORKS_TANH: return s.give(tanh(x));
    case ANEURALNETWORKS_RELU: return s.give(x, ANEURALNETWORKS_FUSED_RELU);
    case ANEURALNETWORKS_RELU1: return s.give(x, ANEURALNETWORKS_FUSED_RELU1);
    case ANEURALNETWORKS_RELU6: return s.give(x, ANEURALNETWORKS_FUSED_RELU6);
    case ANEURALNETWORKS_ABS: return s.give(abs(x));
    case ANEURALNETWORKS_EXP: return s.give(exp(x));
    case ANEURALNETWORKS_LOG: return s.give(log(x));
    case ANEURALNETWORKS_NEG: return s.give(neg(x));
    case ANEURALNETWORKS_RSQRT: return s.give(rsqrt(x));
    case ANEURALNETWORKS_SQRT: return s.give(sqrt(x));
    case ANEURALNETWORKS_HARD_SWISH: return s.give(hardswish(x));
    case ANEURALNETWORKS_ELU: return s.give(elu(x, Scalar(s.number(1))));
    case ANEURALNETWORKS_SOFTMAX: return s.give(softmax(mul(x, s.number(1)), s.integer(2, -1)));
    case ANEURALNETWORKS_LOG_SOFTMAX: return s.give(log_softmax(mul(x, s.number(1)), s.integer(2, -1)));
    default: return s.give(x);  // QUANTIZE, DEQUANTIZE
  }
}

void reduction(const Step& s) {
  Tensor x = s.real(0);
  Dims axes = s.ints(1);
  bool keep = s.integer(2);
  switch (s.code()) {
    case ANEURALNETWORKS_MEAN: return s.give(mean(x, axes, keep));
    case ANEURALNETWORKS_REDUCE_MAX: return s.give(amax(x, axes, keep));
    case ANEURALNETWORKS_REDUCE_MIN: return s.give(amin(x, axes, keep));
    default: return s.give(sum(x, axes, keep));
  }
}

void strided_slice(const Step& s) {
  Tensor t = s.centred(0);
  Dims begin = s.ints(1), end = s.ints(2), step = s.ints(3), shrunk;
  int64_t from_start = s.integer(4), to_end = s.integer(5), shrink = s.integer(6);
  for (size_t d = 0; d < begin.size(); ++d) {
    int64_t size = dims_of(t).at(d), bit = int64_t(1) << d;
    value_check(step.at(d) > 0, "neuralnetworks")
        << "STRIDED_SLICE with a step of " << step[d] << " is not supported here";
    int64_t first = from_start & bit ? 0 : begin[d];
    int64_t last = to_end & bit ? size : shrink & bit ? begin[d] + 1 : end.at(d);
    t = slice(t, int64_t(d), first, last == 0 && begin[d] == -1 ? size : last, step[d]);
    if (shrink & bit) shrunk.push_back(int64_t(d));
  }
  s.give_moved(shrunk.empty() ? t : squeeze(t, shrunk));
}

// Operations that move elements.
void movement(const Step& s) {
  Tensor t = s.centred(0);
  switch (s.code()) {
    case ANEURALNETWORKS_RESHAPE: return s.give_moved(reshape(t, s.ints(1)));
    case ANEURALNETWORKS_EXPAND_DIMS: return s.give_moved(unsqueeze(t, s.integer(1)));
    case ANEURALNETWORKS_SQUEEZE: return s.give_moved(s.has(1) ? squeeze(t, s.ints(1)) : squeeze(t));
    case ANEURALNETWORKS_TRANSPOSE: {
      Dims order(size_t(t.dim()));
      for (size_t d = 0; d < order.size(); ++d) order[d] = int64_t(order.size() - 1 - d);
      return s.give_moved(permute(t, s.has(1) ? s.ints(1) : order));
    }
    case ANEURALNETWORKS_PAD: {
      Dims pads = s.ints(1), last_first;
      for (size_t d = pads.size() / 2; d-- > 0;)
        last_first.insert(last_first.end(), {pads[2 * d], pads[2 * d + 1]});
      return s.give_moved(constant_pad_nd(t, last_first));
    }
    default: {  // SLICE
      Dims begin = s.ints(1), size = s.ints(2);
      for (size_t d = 0; d < begin.size(); ++d) {
        int64_t end = size.at(d) < 0 ? dims_of(t).at(d) : begin[d] + size[d];
        t = slice(t, int64_t(d), begin[d], end);
      }
      return s.give_moved(t);
    }
  }
}

void concatenation(const Step& s) {
  std::vector<Tensor> parts;
  for (size_t k = 0; k + 1 < s.inputs(); ++k) parts.push_back(s.real(k));
  s.give(cat(parts, s.integer(s.inputs() - 1)));
}

using Function = void (*)(const Step&);
const std::map<int32_t, Function>& functions() {
  static const auto* all = [] {
    auto* m = new std::map<int32_t, Function>;
    auto set = [&](Function f, std::initializer_list<int32_t> codes) {
      for (int32_t code : codes) (*m)[code] = f;
    };
    set(convolution,
        {ANEURALNETWORKS_CONV_2D, ANEURALNETWORKS_DEPTHWISE_CONV_2D, ANEURALNETWORKS_GROUPED_CONV_2D});
    set(transposed_convolution, {ANEURALNETWORKS_TRANSPOSE_CONV_2D});
    set(fully_connected, {ANEURALNETWORKS_FULLY_CONNECTED});
    set(pool, {ANEURALNETWORKS_AVERAGE_POOL_2D, ANEURALNETWORKS_MAX_POOL_2D});
    set(resize, {ANEURALNETWORKS_RESIZE_BILINEAR, ANEURALNETWORKS_RESIZE_NEAREST_NEIGHBOR});
    set(concatenation, {ANEURALNETWORKS_CONCATENATION});
    set(strided_slice, {ANEURALNETWORKS_STRIDED_SLICE});
    set(binary, {ANEURALNETWORKS_ADD, ANEURALNETWORKS_SUB, ANEURALNETWORKS_MUL, ANEURALNETWORKS_DIV,
                 ANEURALNETWORKS_MAXIMUM, ANEURALNETWORKS_MINIMUM, ANEURALNETWORKS_PRELU});
    set(reduction, {ANEURALNETWORKS_MEAN, ANEURALNETWORKS_REDUCE_MAX, ANEURALNETWORKS_REDUCE_MIN,
                    ANEURALNETWORKS_REDUCE_SUM});
    set(movement, {ANEURALNETWORKS_RESHAPE, ANEURALNETWORKS_EXPAND_DIMS, ANEURALNETWORKS_SQUEEZE,
                   ANEURALNETWORKS_TRANSPOSE, ANEURALNETWORKS_PAD, ANEURALNETWORKS_SLICE});
    set(unary, {ANEURALNETWORKS_FLOOR, ANEURALNETWORKS_LOGISTIC, ANEURALNETWORKS_TANH, ANEURALNETWORKS_RELU,
                ANEURALNETWORKS_RELU1, ANEURALNETWORKS_RELU6, ANEURALNETWORKS_ABS, ANEURALNETWORKS_EXP,
                ANEURALNETWORKS_LOG, ANEURALNETWORKS_NEG, ANEURALNETWORKS_RSQRT, ANEURALNETWORKS_SQRT,
                ANEURALNETWORKS_HARD_SWISH, ANEURALNETWORKS_ELU, ANEURALNETWORKS_SOFTMAX,
                ANEURALNETWORKS_LOG_SOFTMAX, ANEURALNETWORKS_QUANTIZE, ANEURALNETWORKS_DEQUANTIZE});
    return m;
  }();
  return *all;
}

Tensor constant_of(const Operand& o) {
  Tensor t = Tensor::empty(IntSpan(o.dims), dtype_of(o.type));
  const void* from = o.data ? o.data : o.copy.data();
  size_t bytes = size_t(t.numel().concrete()) * size_t(t.itemsize());
  if (bytes) std::memcpy(t.data_ptr(), from, bytes);
  return t;
}

}  // namespace

bool is_supported(int32_t code) { return functions().count(code); }

void execute(const Model& model, std::vector<Tensor>& values) {
  for (size_t k = 0; k < values.size(); ++k)
    if (model.operands[k].kind == Operand::constant) values[k] = constant_of(model.operands[k]);
  for (auto& operation : model.operations) {
    auto entry = functions().find(operation.code);
    supported_check(entry != functions().end(), "neuralnetworks")
        << "operation " << operation.code << " is not supported here";
    entry->second(Step(model, operation, values));
  }
}

}  // namespace facula::nnapi
