#include "facula/embed/c_functions.h"

#include <algorithm>
#include <iterator>
#include <optional>
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
           stride[0] == stride[1] && padding[0] < kernel[0] && padding[1] < kernel[1] && dilation[0] == 1 &&
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
// Whether the strides of the trace are those in memory. Inputs and constants are printed in row-major order.
bool has_strides(const Tensor& t) {
  auto* v = graph::value_of(t);
  while (v && v->producer && v->producer->op->is<op::View>()) v = graph::operands(*v->producer)[0];
  return v && (v->producer || is_contiguous(v->tensor));
}

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

// Whether the results are rounded to int8, with a bias.
bool rounds(const Node& n) {
  auto c = call_of(n);
  return c.dtype("input") == DType::Int8 && n.results[0]->tensor.dtype() == DType::Int8 && c.has("bias") &&
         is_contiguous(c.tensor("weight"));
}
// Statements behind `body` that rectify the result: its least value is the zero point, because rounding is monotonic.
std::string rectified(const Node& n, const std::string& y, std::string body) {
  auto c = call_of(n);
  int64_t count = 1;
  for (auto s : n.results[0]->tensor.sizes()) count *= s.concrete();
  if (!c.flag("relu")) return body;
  return body + "  facula_int8_rectify(" + y + listed({count, c.integer("output_zero_point").concrete()}) +
         ");\n";
}
// Whether the result is NCHW. That of an image of one channel, which is in both orders, may be.
bool is_planar(const Node& n) { return !is_channels_last(n.results[0]->tensor); }
bool accepts_conv(const Node& n) {
  auto c = call_of(n);
  if (!rounds(n) || c.rank("input") != 4 || !is_channels_last(c.tensor("input"))) return false;
  if (is_planar(n) && !is_contiguous(n.results[0]->tensor)) return false;
  Window w = forward_window(n);
  if (is_planar(n)) return w.groups == 1;
  return w.groups == 1 || (w.depthwise() && w.stride[0] <= 2);
}
int64_t half(const Window& w) { return (w.kernel[0] + 1) / 2; }
int64_t conv_scratch(const Node& n) {
  Window w = forward_window(n);
  if (w.groups == 1) {
    int64_t k = w.channels * w.kernel[0] * w.kernel[1], rows = (k + 3) / 4 * 4 * 4;
    return rows + (w.pointwise() && !is_planar(n) ? 0 : 6 * k) + (is_planar(n) ? 2 * w.outputs : 0);
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
  return w.pointwise() && !is_planar(n) && w.outputs >= w.channels;
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
  if (w.pointwise() && !is_planar(n))
    return rectified(n, p[4],
                     "  facula_int8_pointwise(" + operands(p[0], p[4]) +
                         listed({w.images * w.height * w.width, w.channels, w.outputs, zero_x, zero_y}) +
                         rows);
  std::string x = moved(p[0], w.channels * w.height * w.width, w.images),
              y = moved(p[4], w.outputs * w.out_height * w.out_width, w.images), body;
  if (w.groups != 1)
    body = "    facula_int8_depthwise(" + operands(x, y) +
           listed({w.channels, w.height, w.width, w.out_height, w.out_width, w.kernel[0], w.stride[0],
                   w.padding[0], w.padding[1], zero_x, zero_y}) +
           rows;
  else
    body = w.text() + "    facula_int8_conv(" + operands(x, y) + listed({w.channels, w.outputs}) +
           ", &window" + listed({zero_x, zero_y, is_planar(n)}) + rows;
  return rectified(n, p[4], for_images(w.images, body));
}

// ---- the product of matrices of int8

bool accepts_linear(const Node& n) { return rounds(n) && is_contiguous(call_of(n).tensor("input")); }
int64_t linear_scratch(const Node& n) { return (call_of(n).sizes("input")[1].concrete() + 3) / 4 * 4 * 4; }
std::string linear_statements(const Node& n, std::span<const std::string> p, const std::string& scratch) {
  auto c = call_of(n);
  auto size = [&](const char* name, int d) { return c.size(name, d).concrete(); };
  return rectified(n, p[4],
                   "  facula_int8_pointwise(" + p[0] + ", " + p[1] + ", " + p[2] + ", " + p[3] + ", " + p[4] +
                       listed({size("input", 0), size("input", 1), size("weight", 0),
                               c.integer("input_zero_point").concrete(),
                               c.integer("output_zero_point").concrete()}) +
                       ", " + typed("uint32_t*", scratch) + ");\n");
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
  return w.pointwise() || (w.depthwise() && w.padding[0] == w.padding[1]);
}
int64_t backward_scratch(const Node& n) {
  Window w = backward_window(n);
  if (w.pointwise()) return 32 * w.outputs;
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

// ---- products of matrices of float32

struct Product {
  int64_t count, a_next, b_next;  // products, and the elements from one to the next
  int64_t rows, columns, depth, a_row, a_step, b_step, b_column;
};
bool is_linear(const Node& n) { return n.op->schema.index_of("weight") >= 0; }
// The factors of a product of matrices: (input, weight), (self, mat2) or (self, other).
std::pair<Tensor, Tensor> factors(const Node& n) {
  auto c = call_of(n);
  if (is_linear(n)) return {c.tensor("input"), c.tensor("weight")};
  return {c.tensor("self"), c.tensor(n.op->schema.index_of("mat2") >= 0 ? "mat2" : "other")};
}
// The number of matrices of a batch, and the elements from one to the next; nothing if these are several numbers.
std::optional<std::pair<int64_t, int64_t>> batch_of(const Tensor& t) {
  std::pair<int64_t, int64_t> batch{1, 0};
  for (int d = t.dim() - 3; d >= 0; --d) {
    int64_t size = t.size(d).concrete(), next = t.stride(d).concrete();
    if (size == 1) continue;
    if (batch.first > 1 && next != batch.first * batch.second) return {};
    if (batch.first == 1) batch.second = next;
    batch.first *= size;
  }
  return batch;
}
std::optional<Product> product_of(const Node& n) {
  auto [a, b] = factors(n);
  auto at = [](SymSpan s, int d) { return s[s.size() - size_t(d)].concrete(); };
  auto of_a = a.sizes(), of_b = b.sizes(), by_a = a.strides(), by_b = b.strides();
  if (is_linear(n)) {  // rows of any number of dimensions times the transpose
    int64_t k = at(of_b, 1), m = at(of_b, 2);
    return Product{1, 0, 0, n.results[0]->tensor.numel().concrete() / std::max<int64_t>(m, 1), m, k, k,
                   1, 1, k};
  }
  auto many_a = batch_of(a), many_b = batch_of(b);
  bool alike = a.dim() == b.dim() && Dims(of_a.first(of_a.size() - 2)) == Dims(of_b.first(of_b.size() - 2));
  if (!alike || !many_a || !many_b) return {};
  return Product{many_a->first, many_a->second, many_b->second, at(of_a, 2), at(of_b, 1),
                 at(of_a, 1),   at(by_a, 2),    at(by_a, 1),    at(by_b, 2), at(by_b, 1)};
}
// Small products, and those with short rows, such as gradients of weights of a small batch, are better fused with their operands.
bool accepts_product(const Node& n) {
  auto [a, b] = factors(n);
  if (a.dtype() != DType::Float32 || a.dim() < 2 || b.dim() < 2 || !is_contiguous(n.results[0]->tensor))
    return false;
  if (is_linear(n) ? !is_contiguous(a) || !is_contiguous(b) : !has_strides(a) || !has_strides(b))
    return false;
  auto p = product_of(n);
  return p && p->depth >= 8 && p->rows * p->columns * p->depth >= 4096;
}
int64_t product_scratch(const Node& n) {
  return 4 * (kMostColumns + 4) * std::min(kDepth, product_of(n)->depth);
}
std::string product_statements(const Node& n, std::span<const std::string> p, const std::string& scratch) {
  Product f = *product_of(n);
  bool bias = p.size() == 4;
  std::string body = "    const struct facula_product product = {" +
                     listed({f.rows, f.columns, f.depth, f.a_row, f.a_step, f.b_step, f.b_column}).substr(2) +
                     "};\n    facula_f32_product(" + moved(p[0], f.a_next, f.count) + ", " +
                     moved(p[1], f.b_next, f.count) + ", " + (bias ? p[2] : "0") + ", " +
                     moved(p.back(), f.rows * f.columns, f.count) + ", &product, " +
                     typed("float*", scratch) + ");\n";
  return for_images(f.count, body);
}

constexpr CFunction kFunctions[] = {
    {"linear", accepts_product, product_scratch, never, never, -1, product_statements},
    {"mm", accepts_product, product_scratch, never, never, -1, product_statements},
    {"bmm", accepts_product, product_scratch, never, never, -1, product_statements},
    {"int8_linear", accepts_linear, linear_scratch, never, never, -1, linear_statements},
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
