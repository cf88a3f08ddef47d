#include "facula/embed/c_functions.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "facula/embed/float_functions.h"
#include "facula/embed/int8_functions.h"
#include "facula/op/call.h"
#include "facula/schedule/fuse.h"

namespace facula::embed {
namespace {

using graph::Node;
using graph::Value;
using loop::Kind;

// The sizes of a convolution, NHWC.
struct Window {
  int64_t images, channels, height, width, outputs, out_height, out_width;
  int64_t kernel[2], stride[2], padding[2], dilation[2], groups;
  bool pointwise() const {
    return groups == 1 && kernel[0] == 1 && kernel[1] == 1 && stride[0] == 1 && stride[1] == 1 &&
           !padding[0] && !padding[1];
  }
  // A square kernel of odd size, one for each channel.
  bool depthwise() const {
    return groups == channels && outputs == channels && kernel[0] == kernel[1] && kernel[0] % 2 == 1 &&
           stride[0] == stride[1] && padding[0] == padding[1] && padding[0] < kernel[0] && dilation[0] == 1 &&
           dilation[1] == 1;
  }
  // The C code of a struct facula_window.
  std::string text() const;
  bool keeps_size() const { return channels == outputs && height == out_height && width == out_width; }
};

op::Call call_of(const Node& n) { return op::Call(*n.op, n.args.values()); }

Window window(const Node& n, SymSpan input, SymSpan output) {
  auto c = call_of(n);
  auto weight = c.sizes("weight");
  auto at = [](SymSpan s, size_t d) { return s[d].concrete(); };
  Window w{at(input, 0),  at(input, 1),  at(input, 2), at(input, 3),
           at(output, 1), at(output, 2), at(output, 3)};
  for (size_t d = 0; d < 2; ++d) {
    w.kernel[d] = at(weight, d + 2);
    w.stride[d] = c.ints("stride", 2)[d].concrete();
    w.padding[d] = c.ints("padding", 2)[d].concrete();
    w.dilation[d] = c.ints("dilation", 2)[d].concrete();
  }
  w.groups = c.integer("groups").concrete();
  return w;
}
Window forward_window(const Node& n) {
  return window(n, call_of(n).sizes("input"), n.results[0]->tensor.sizes());
}
Window backward_window(const Node& n) {
  return window(n, n.results[0]->tensor.sizes(), call_of(n).sizes("grad"));
}

// Whether the elements of an NCHW tensor are NHWC in memory.
bool is_channels_last(const Tensor& t) {
  if (t.dim() != 4) return false;
  SymInt step = int64_t(1);
  for (int d : {1, 3, 2, 0}) {
    if (t.size(d) != SymInt(int64_t(1)) && t.stride(d) != step) return false;
    step = step * t.size(d);
  }
  return true;
}
bool is_contiguous(const Tensor& t) { return Dims(t.strides()) == contiguous_strides(t.sizes()); }

std::string listed(std::initializer_list<int64_t> numbers) {
  std::string text;
  for (int64_t n : numbers) text += ", " + std::to_string(n);
  return text;
}
std::string Window::text() const {
  std::string numbers = listed({height, width, out_height, out_width, kernel[0], kernel[1], stride[0],
                                stride[1], padding[0], padding[1], dilation[0], dilation[1]});
  return "    const struct facula_window window = {" + numbers.substr(2) + "};\n";
}
// Calls `function` for each image. `steps`: elements of an image of each pointer that moves on.
std::string for_images(int64_t images, const std::string& body) {
  if (images == 1) return "  {\n    const int32_t n = 0;\n    (void)n;\n" + body + "  }\n";
  return "  for (int32_t n = 0; n < " + std::to_string(images) + "; ++n) {\n" + body + "  }\n";
}
std::string moved(const std::string& pointer, int64_t step, int64_t images) {
  return images == 1 ? pointer : pointer + " + n * " + std::to_string(step);
}
std::string typed(const char* type, const std::string& pointer) {
  return "(" + std::string(type) + ")(" + pointer + ")";
}

// ---- the convolution itself

bool accepts_conv(const Node& n) {
  auto c = call_of(n);
  if (c.dtype("input") != DType::Int8 || n.results[0]->tensor.dtype() != DType::Int8 || !c.has("bias") ||
      c.flag("relu") || c.rank("input") != 4 || !is_channels_last(c.tensor("input")) ||
      !is_contiguous(c.tensor("weight")))
    return false;
  Window w = forward_window(n);
  return w.groups == 1 || (w.depthwise() && w.stride[0] <= 2);
}
int64_t half(const Window& w) { return (w.kernel[0] + 1) / 2; }
int64_t conv_scratch(const Node& n) {
  Window w = forward_window(n);
  if (w.groups == 1) {
    int64_t k = w.channels * w.kernel[0] * w.kernel[1], rows = (k + 3) / 4 * 4 * 4;
    return rows + (w.pointwise() ? 0 : 6 * k);
  }
  int64_t words = ((w.out_width + 3) / 4 * 4 - 4) * w.stride[0] / 2 + half(w) + 3,
          rows = (w.out_height - 1) * w.stride[0] + w.kernel[0];
  return 4 * (2 * half(w) * w.kernel[0] + words * rows);
}
bool conv_in_place(const Node& n) {
  Window w = forward_window(n);
  return w.groups != 1 && w.images == 1;
}
// Two outputs are written after their inputs are read, and the outputs of one pixel are not fewer than its inputs.
bool conv_grows(const Node& n) {
  Window w = forward_window(n);
  return w.pointwise() && w.outputs >= w.channels;
}
std::string conv_statements(const Node& n, std::span<const std::string> p, const std::string& scratch) {
  Window w = forward_window(n);
  auto c = call_of(n);
  int64_t zero_x = c.integer("input_zero_point").concrete(),
          zero_y = c.integer("output_zero_point").concrete();
  std::string rows = ", " + typed("uint32_t*", scratch) + ");\n";
  auto operands = [&](const std::string& x, const std::string& y) {
    return x + ", " + p[1] + ", " + p[2] + ", " + p[3] + ", " + y;
  };
  if (w.pointwise())
    return "  facula_int8_pointwise(" + operands(p[0], p[4]) +
           listed({w.images * w.height * w.width, w.channels, w.outputs, zero_x, zero_y}) + rows;
  std::string x = moved(p[0], w.channels * w.height * w.width, w.images),
              y = moved(p[4], w.outputs * w.out_height * w.out_width, w.images), body;
  if (w.groups != 1)
    body = "    facula_int8_depthwise(" + operands(x, y) +
           listed({w.channels, w.height, w.width, w.out_height, w.out_width, w.kernel[0], w.stride[0],
                   w.padding[0], zero_x, zero_y}) +
           rows;
  else
    body = w.text() + "    facula_int8_conv(" + operands(x, y) + listed({w.channels, w.outputs}) +
           ", &window" + listed({zero_x, zero_y}) + rows;
  return for_images(w.images, body);
}

// ---- its gradient for the input

bool accepts_backward(const Node& n) {
  auto c = call_of(n);
  if (c.dtype("grad") != DType::Float32 || c.rank("grad") != 4 || !is_channels_last(c.tensor("grad")) ||
      !is_channels_last(n.results[0]->tensor))
    return false;
  auto* weight = converted_from(graph::value_of(c.tensor("weight")));
  if (!weight || !is_contiguous(weight->tensor)) return false;
  Window w = backward_window(n);
  return w.pointwise() || w.depthwise();
}
int64_t backward_scratch(const Node& n) {
  Window w = backward_window(n);
  if (w.pointwise()) return 16 * w.outputs;
  int64_t columns = (w.width + 3) / 4 * 4 + w.kernel[0], rows = w.height + w.kernel[0] - 1;
  return 4 * (w.kernel[0] * w.kernel[0] + columns * rows);
}
bool backward_in_place(const Node& n) {
  Window w = backward_window(n);
  return w.groups != 1 && w.images == 1 && w.keeps_size();
}
std::string backward_statements(const Node& n, std::span<const std::string> p, const std::string& scratch) {
  Window w = backward_window(n);
  std::string buffer = ", " + typed("float*", scratch) + ");\n";
  if (w.pointwise())
    return "  facula_pointwise_backward(" + p[0] + ", " + p[1] + ", " + p[2] +
           listed({w.images * w.height * w.width, w.outputs, w.channels}) + buffer;
  return for_images(w.images, "    facula_depthwise_backward(" +
                                  moved(p[0], w.outputs * w.out_height * w.out_width, w.images) + ", " +
                                  p[1] + ", " + moved(p[2], w.channels * w.height * w.width, w.images) +
                                  listed({w.channels, w.height, w.width, w.out_height, w.out_width,
                                          w.kernel[0], w.stride[0], w.padding[0]}) +
                                  buffer);
}

bool never(const Node&) { return false; }

// ---- the convolution of float32

// Each group of outputs reads one channel.
bool reads_one_channel(const Window& w) { return w.groups == w.channels && w.groups > 1; }
bool accepts_float(const Node& n) {
  auto c = call_of(n);
  bool contiguous = is_contiguous(c.tensor("input")) && is_contiguous(c.tensor("weight")) &&
                    is_contiguous(n.results[0]->tensor);
  return c.dtype("input") == DType::Float32 && c.rank("input") == 4 && contiguous;
}
constexpr int64_t kDepth = 256, kMostColumns = 16;  // FACULA_DEPTH and FACULA_COLUMNS of facula_f32_conv
int64_t float_scratch(const Node& n) {
  Window w = forward_window(n);
  if (reads_one_channel(w)) return 4 * (w.height + 2 * w.padding[0]) * (w.width + 2 * w.padding[1]);
  return 4 * kMostColumns * std::min(kDepth, w.channels / w.groups * w.kernel[0] * w.kernel[1]);
}
std::string float_statements(const Node& n, std::span<const std::string> p, const std::string& scratch) {
  Window w = forward_window(n);
  bool one = reads_one_channel(w);
  int64_t parts = one ? 1 : w.groups, channels = w.channels / parts, outputs = w.outputs / parts,
          weights = w.outputs / parts * (w.channels / w.groups) * w.kernel[0] * w.kernel[1];
  std::string body = w.text(), bias = call_of(n).has("bias") ? p[2] : "0";
  auto part = [&](std::string pointer, int64_t k, int64_t size) {
    return k && pointer != "0" ? pointer + " + " + std::to_string(k * size) : pointer;
  };
  for (int64_t k = 0; k < parts; ++k)
    body += std::string("    facula_f32_") + (one ? "depthwise(" : "conv(") +
            part(moved(p[0], w.channels * w.height * w.width, w.images), k, channels * w.height * w.width) +
            ", " + part(p[1], k, weights) + ", " + part(bias, k, outputs) + ", " +
            part(moved(p[3], w.outputs * w.out_height * w.out_width, w.images), k,
                 outputs * w.out_height * w.out_width) +
            listed({channels, outputs}) + ", &window, " + typed("float*", scratch) + ");\n";
  return for_images(w.images, body);
}

constexpr CFunction kFunctions[] = {
    {"conv2d", accepts_float, float_scratch, never, never, -1, float_statements},
    {"int8_conv2d", accepts_conv, conv_scratch, conv_in_place, conv_grows, -1, conv_statements},
    {"conv2d_backward_input", accepts_backward, backward_scratch, backward_in_place, never, 1,
     backward_statements},
};

}  // namespace

const CFunction* c_function(const Node& n) {
  auto* library = n.op->as<op::Library>();
  if (!library) return nullptr;
  auto f = std::ranges::find_if(kFunctions, [&](auto& any) { return library->name == any.library; });
  return f != std::end(kFunctions) && f->accepts(n) ? f : nullptr;
}

Value* converted_from(Value* v) {
  while (v && v->producer && v->producer->op->is<op::View>()) {
    auto* base = graph::operands(*v->producer)[0];
    if (Dims(base->tensor.sizes()) != Dims(v->tensor.sizes()) ||
        Dims(base->tensor.strides()) != Dims(v->tensor.strides()))
      return nullptr;
    v = base;
  }
  if (!v || !v->producer || !v->producer->op->is<op::Pointwise>()) return nullptr;
  auto operands = graph::operands(*v->producer);
  if (operands.size() != 1 || !operands[0] || operands[0]->tensor.dtype() != DType::Int8 ||
      Dims(operands[0]->tensor.sizes()) != Dims(v->tensor.sizes()))
    return nullptr;
  auto definition = schedule::lower(*v->producer->op, v->producer->args.values());
  loop::Expr value = definition.values[0];
  while (value->kind == Kind::cast) value = value->args[0];
  return value->kind == Kind::load ? operands[0] : nullptr;
}

std::string c_function_texts(const std::string& code) {
  std::string texts;
  std::vector<CText> all_texts(std::begin(kInt8Functions), std::end(kInt8Functions));
  all_texts.insert(all_texts.end(), std::begin(kFloatFunctions), std::end(kFloatFunctions));
  for (size_t k = all_texts.size(); k-- > 0;) {
    auto& f = all_texts[k];
    std::string all = code + texts;
    bool needed = k == 0 ? !texts.empty() : all.find(std::string(f.name) + "(") != std::string::npos;
    if (needed) texts = f.text + texts;
  }
  return texts.empty() ? texts : "\n#include <string.h>\n" + texts;
}

}  // namespace facula::embed
