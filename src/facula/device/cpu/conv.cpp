// Convolutions. oneDNN computes float32 and bfloat16 in the layout that it prefers; operands and results are reordered on
// the way in and out. Other dtypes unfold their windows into a matrix and multiply.
#include <algorithm>
#include <array>
#include <deque>
#include <mutex>

#include "facula/base/fork.h"
#include "facula/base/parallel.h"
#include "facula/device/cpu/cpu.h"
#include "facula/device/cpu/depthwise.h"
#include "facula/device/cpu/onednn.h"
#include "facula/device/cpu/tile_conv.h"
#include "facula/device/cpu/winograd.h"
#include "facula/op/registry.h"
#include "facula/tensor/derived.h"

namespace facula::device::cpu {

namespace {

using dims = dnnl::memory::dims;
using desc = dnnl::memory::desc;

struct Shape {
  int64_t n, c, h, w, o, kh, kw, oh, ow, groups;
  int64_t stride[2], padding[2], dilation[2];
  int64_t padding_after(int k) const {
    int64_t in = k ? w : h, out = k ? ow : oh, kernel = k ? kw : kh;
    return (out - 1) * stride[k] + (kernel - 1) * dilation[k] + 1 - in - padding[k];
  }
};

Shape shape_of(const Call& call, SymSpan input, SymSpan weight, SymSpan output) {
  auto in = concrete(input), ker = concrete(weight), out = concrete(output);
  size_t r = in.size() - 3;
  Shape s{r ? in[0] : 1,
          in[r],
          in[r + 1],
          in[r + 2],
          ker[0],
          ker[2],
          ker[3],
          out[r + 1],
          out[r + 2],
          call.integer("groups").concrete(),
          {},
          {},
          {}};
  auto pair = [&](const char* arg, int64_t* to) {
    Dims d = call.ints(arg, 2);
    for (size_t k = 0; k < 2; ++k) to[k] = d[k].concrete();
  };
  pair("stride", s.stride);
  pair("padding", s.padding);
  pair("dilation", s.dilation);
  return s;
}

// Images [N, C, H, W] that are NHWC in memory.
Tensor empty_nhwc(const Tensor& like, DType d) {
  return Tensor::empty(like.sizes(), d)
      .alias(like.sizes(), channels_last_strides(like.sizes()), SymInt(int64_t(0)));
}
Tensor nhwc_copy(const Tensor& x, DType d) {
  Tensor last = empty_nhwc(x, d);
  copy(last, x);
  return last;
}

// A tensor of images as [N, C, H, W], row-major or NHWC in memory. `dense` makes others row-major.
Tensor images(const Tensor& t, DType d) {
  Tensor x = t;
  if (t.dim() == 3) {
    Dims sizes(t.sizes()), strides(t.strides());
    sizes.insert(0, SymInt(int64_t(1)));
    strides.insert(0, product(t.sizes()));
    x = t.alias(sizes, strides, t.offset());
  }
  if (x.dtype() == d && (x.is_contiguous() || x.is_channels_last())) return x;
  // A selection of the channels of NHWC images stays NHWC: rows of channels are copied, and kernels for NHWC are faster.
  if (x.size(1) == SymInt(int64_t(1)) || x.stride(1) != SymInt(int64_t(1))) return dense(x, d);
  return nhwc_copy(x, d);
}

// A weight that is row-major or, for oneDNN, channels_last.
Tensor weights(const Tensor& t, DType d, bool library) {
  bool readable = library && t.dtype() == d && t.dim() == 4 && t.is_channels_last();
  return readable ? t : dense(t, d);
}

// ---- oneDNN
enum class Pass { forward, input, weight };

desc row_major(dims sizes, dnnl::memory::data_type type) {
  dims strides(sizes.size(), 1);
  for (size_t k = sizes.size(); k-- > 1;) strides[k - 1] = strides[k] * std::max<int64_t>(sizes[k], 1);
  return desc(sizes, type, strides);
}

// ---- packed weights: the layout that oneDNN chooses for the gradient of a weight becomes the physical layout of
// gradient, weight and optimizer state (docs/layouts.md). Keys hold the number of such a layout.
constexpr int kRowMajor = 0, kChannelsLast = -1;
struct PackedLayout {
  PhysicalOrder order;                // of a weight with row-major strides
  PhysicalOrder channels_last_order;  // of a weight with channels_last strides
  dnnl::memory::desc desc;
};
TableMutex& packed_mutex() {
  static auto* m = new TableMutex;
  return *m;
}
std::deque<PackedLayout>& packed_layouts() {
  static auto* all = new std::deque<PackedLayout>;
  return *all;
}
// Returns the number of the layout of a weight of these sizes in this order, 0 if there is none. The order alone is
// ambiguous: it leaves out dimensions of size 1, so that a (1, k) kernel has the order of a (k, 1) one.
int find_packed(const PhysicalOrder& order, const dims& sizes,
                PhysicalOrder PackedLayout::* which) {  // the caller holds the mutex
  auto& all = packed_layouts();
  for (size_t k = 0; k < all.size(); ++k)
    if (all[k].*which == order && all[k].desc.get_dims() == sizes) return int(k) + 1;
  return 0;
}
PackedLayout packed_layout(int number) {
  std::lock_guard lock(packed_mutex());
  return packed_layouts()[size_t(number) - 1];
}

// The layout in memory of a weight [out, in, h, w] with row-major or channels_last strides, and the address of its elements.
struct WeightMemory {
  int layout;
  const void* data;
  Storage holder{};  // keeps the elements of a packed layout
};
WeightMemory weight_memory(const Tensor& w) {
  bool row_major = w.is_contiguous();
  StorageImpl::PhysicalLayout physical;
  if (w.impl()->storage->physical_layout(physical) && fills_storage(*w.impl())) {
    dims sizes;
    for (auto n : w.sizes()) sizes.push_back(n.concrete());
    std::lock_guard lock(packed_mutex());
    auto which = row_major ? &PackedLayout::order : &PackedLayout::channels_last_order;
    if (int number = find_packed(physical.order, sizes, which))
      return {number, physical.memory->data(), physical.memory};
  }
  return {row_major ? kRowMajor : kChannelsLast, w.impl()->data_ptr()};
}

desc weight_layout(int number, const dims& sizes, dnnl::memory::data_type type) {
  if (number == kRowMajor) return row_major(sizes, type);
  if (number == kChannelsLast) return desc(sizes, type, dnnl::memory::format_tag::ohwi);
  return packed_layout(number).desc;
}

// The order in memory of a weight whose dimensions are split into `parts`, two a dimension, with these strides in memory.
PhysicalOrder order_of_parts(const std::array<size_t, 4>& dimensions, const int64_t (&parts)[4][2],
                             const int64_t (&strides)[4][2], int itemsize) {
  PhysicalOrder o;
  o.itemsize = uint8_t(itemsize);
  int64_t stride[8];
  for (size_t d : dimensions)
    for (int part = 0; part < 2; ++part) {
      if (parts[d][part] == 1) continue;
      o.sizes[o.rank] = parts[d][part];
      o.order[o.rank] = o.rank;
      stride[o.rank++] = strides[d][part];
    }
  std::sort(o.order, o.order + o.rank, [&](uint8_t a, uint8_t b) { return stride[a] > stride[b]; });
  int64_t next = 1;
  for (int k = o.rank; k-- > 0; next *= o.sizes[o.order[k]])
    if (stride[o.order[k]] != next) return {};
  return o;
}

// Returns the number of a layout of [out, in, h, w], 0 if it is not a permutation of split dimensions: if it is padded,
// or blocked twice.
int packed_number(const desc& d, int itemsize) {
  auto sizes = d.get_dims(), strides = d.get_strides(), blocks = d.get_inner_blks(), of = d.get_inner_idxs();
  if (d.get_format_kind() != dnnl::memory::format_kind::blocked || sizes.size() != 4 ||
      d.get_padded_dims() != sizes)
    return 0;
  int64_t block[4] = {1, 1, 1, 1}, inner[4] = {}, next = 1;
  for (size_t k = blocks.size(); k-- > 0; next *= blocks[k]) {
    auto dim = size_t(of[k]);
    if (block[dim] != 1) return 0;
    block[dim] = blocks[k];
    inner[dim] = next;
  }
  int64_t parts[4][2], steps[4][2];
  for (size_t k = 0; k < 4; ++k) {
    parts[k][0] = sizes[k] / block[k];
    parts[k][1] = block[k];
    steps[k][0] = strides[k];
    steps[k][1] = inner[k];
  }
  PhysicalOrder o = order_of_parts({0, 1, 2, 3}, parts, steps, itemsize);
  if (o.is_logical() || std::is_sorted(o.order, o.order + o.rank)) return 0;
  std::lock_guard lock(packed_mutex());
  if (int number = find_packed(o, sizes, &PackedLayout::order)) return number;
  packed_layouts().push_back({o, order_of_parts({0, 2, 3, 1}, parts, steps, itemsize), d});
  return int(packed_layouts().size());
}

struct Plan {
  Bound conv;
  bool refused = false;
  int packed = 0;  // the number of the layout in which the gradient of the weight is left
  // The layouts of input, weight and output, in this order, that oneDNN uses; with a reorder if the user's layout
  // differs.
  struct Side {
    bool reordered = false;
    size_t bytes = 0;
    Bound reorder;
  } sides[3];
};

// oneDNN's primitives for a convolution in one dtype, in the layouts that it prefers.
struct Primitives {
  using Forward = dnnl::convolution_forward::primitive_desc;
  using InputGradient = dnnl::convolution_backward_data::primitive_desc;
  using WeightGradient = dnnl::convolution_backward_weights::primitive_desc;
  using tag = dnnl::memory::format_tag;
  static constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;

  dims in, kernel, out, strides, dilation, before, after;
  dnnl::memory::data_type type;
  bool channels_last;
  desc bias;  // empty if there is none
  dnnl::primitive_attr attributes = onednn_attributes();

  Primitives(const Shape& s, DType dtype, bool has_bias, bool channels_last)
      : in{s.n, s.c, s.h, s.w},
        kernel(s.groups == 1 ? dims{s.o, s.c, s.kh, s.kw}
                             : dims{s.groups, s.o / s.groups, s.c / s.groups, s.kh, s.kw}),
        out{s.n, s.o, s.oh, s.ow},
        strides{s.stride[0], s.stride[1]},
        dilation{s.dilation[0] - 1, s.dilation[1] - 1},
        before{s.padding[0], s.padding[1]},
        after{s.padding_after(0), s.padding_after(1)},
        type(onednn_type(dtype)),
        channels_last(channels_last),
        bias(has_bias ? row_major({s.o}, type) : desc()) {}

  desc any(const dims& sizes) const { return desc(sizes, type, tag::any); }
  // Source and destination have the same order: a row-major source with a channels_last destination would select a
  // reference kernel.
  desc image(const dims& sizes) const { return desc(sizes, type, channels_last ? tag::nhwc : tag::any); }

  // With AVX2, oneDNN (3.2) gathers the pixels for strided 1x1 kernels by eight channels, in memory for the actual number
  // of channels: threads overwrite each other's data, so that results are wrong or the call never ends. The next
  // implementation is taken then.
  template <class Primitive>
  Primitive sound(Primitive p) const {
    bool one_by_one = kernel[kernel.size() - 2] == 1 && kernel.back() == 1;
    if (!one_by_one || strides == dims{1, 1} || kernel[kernel.size() - 3] % 8 == 0) return p;
    auto overflows = [&] {
      std::string_view name = p.impl_info_str();
      return name.find("1x1") != name.npos && name.find("avx512") == name.npos;
    };
    while (p && overflows())
      if (!p.next_impl()) return {};
    return p;
  }
  Forward forward(const desc& weight) const {
    return sound(Forward(onednn_engine(), dnnl::prop_kind::forward_training, kAlgorithm, image(in), weight,
                         bias, image(out), strides, dilation, before, after, attributes, true));
  }
  InputGradient input_gradient(const Forward& hint) const {
    return sound(InputGradient(onednn_engine(), kAlgorithm, image(in), any(kernel), image(out), strides,
                               dilation, before, after, hint, attributes, true));
  }
  WeightGradient weight_gradient(const Forward& hint, const desc& bias) const {
    return sound(WeightGradient(onednn_engine(), kAlgorithm, image(in), any(kernel), bias, image(out),
                                strides, dilation, before, after, hint, attributes, true));
  }
  // The forward pass with the weight in the layout of its gradient, if oneDNN has it; else `best`.
  Forward forward_as_gradient(const Forward& best, DType dtype) const {
    WeightGradient gradient = weight_gradient(best, desc());
    if (!gradient || !packed_number(gradient.diff_weights_desc(), itemsize(dtype))) return best;
    Forward same = forward(gradient.diff_weights_desc());
    return same && !is_reference("convolution forward", same.impl_info_str()) ? same : best;
  }
};

using Sides = std::array<desc, 3>;  // input, weight, output

// Binds the primitive of a pass; refuses a reference kernel.
template <class Primitive>
void bind_primitive(Plan& plan, Pass pass, const typename Primitive::primitive_desc& pd, const Sides& sides) {
  constexpr const char* kNames[] = {"convolution forward", "convolution backward data",
                                    "convolution backward weights"};
  constexpr int kArguments[][3] = {{DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
                                   {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
                                   {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST}};
  plan.refused = is_reference(kNames[int(pass)], pd.impl_info_str());
  if (plan.refused) return;
  plan.conv = Bound::of<Primitive>(pd);
  for (size_t k = 0; k < 3; ++k) plan.conv.add(kArguments[int(pass)][k], sides[k]);
}

// Binds the primitive of `pass` in `plan` and returns the layouts that it uses.
Sides bind_pass(Plan& plan, const Primitives& all, Pass pass, const Primitives::Forward& forward) {
  Sides sides;
  if (pass == Pass::forward) {
    sides = {forward.src_desc(), forward.weights_desc(), forward.dst_desc()};
    bind_primitive<dnnl::convolution_forward>(plan, pass, forward, sides);
  } else if (pass == Pass::input) {
    auto pd = all.input_gradient(forward);
    plan.refused = !pd;
    if (plan.refused) return sides;
    sides = {pd.diff_src_desc(), pd.weights_desc(), pd.diff_dst_desc()};
    bind_primitive<dnnl::convolution_backward_data>(plan, pass, pd, sides);
  } else {
    auto pd = all.weight_gradient(forward, all.bias);
    plan.refused = !pd;
    if (plan.refused) return sides;
    sides = {pd.src_desc(), pd.diff_weights_desc(), pd.diff_dst_desc()};
    bind_primitive<dnnl::convolution_backward_weights>(plan, pass, pd, sides);
  }
  return sides;
}

// `layout` is the number of the weight's layout; for the weight's gradient, which is row-major, a nonzero number allows the
// layout that oneDNN prefers. `last_input`, `last_output`: the tensor is channels_last.
Plan make_plan(const Shape& s, Pass pass, DType dtype, bool bias, bool last_input, bool last_output,
               int layout) {
  Primitives all(s, dtype, bias, last_input || last_output);
  auto user = [&](const dims& sizes, bool last) {
    return last ? desc(sizes, all.type, dnnl::memory::format_tag::nhwc) : row_major(sizes, all.type);
  };
  Sides users{user(all.in, last_input),
              weight_layout(pass == Pass::weight ? kRowMajor : layout, all.kernel, all.type),
              user(all.out, last_output)};
  Plan plan;
  auto forward = all.forward(all.any(all.kernel));
  plan.refused = !forward;
  if (plan.refused) return plan;
  // A row-major weight is reordered to that layout too, so that the same kernel gives the same bits.
  if (pass == Pass::forward && s.groups == 1 && all.channels_last)
    forward = all.forward_as_gradient(forward, dtype);
  Sides chosen = bind_pass(plan, all, pass, forward);
  if (plan.refused) return plan;
  if (bias) plan.conv.add(pass == Pass::forward ? DNNL_ARG_BIAS : DNNL_ARG_DIFF_BIAS, all.bias);
  size_t result = pass == Pass::forward ? 2 : pass == Pass::input ? 0 : 1;
  if (pass == Pass::weight && layout && (plan.packed = packed_number(chosen[1], itemsize(dtype))))
    users[1] = chosen[1];
  for (size_t k = 0; k < 3; ++k) {
    auto& side = plan.sides[k];
    side.reordered = users[k] != chosen[k];
    if (!side.reordered) continue;
    side.bytes = chosen[k].get_size();
    side.reorder = k == result ? Bound::reorder(chosen[k], users[k]) : Bound::reorder(users[k], chosen[k]);
  }
  return plan;
}

// Computes the positions of a weight's elements. Returns false if its channels are split in a way that Winograd's
// algorithm does not read: each vector of channels has to be within one block.
bool places_of(const desc& d, WeightPlaces& to) {
  auto sizes = d.get_dims(), strides = d.get_strides(), blocks = d.get_inner_blks(), of = d.get_inner_idxs();
  WeightPlaces::Channels* channels[] = {&to.out, &to.in};
  for (size_t k = 0; k < 2; ++k) *channels[k] = {16, strides[k] * 16, strides[k]};
  int64_t inner = 1;
  for (size_t k = blocks.size(); k-- > 0; inner *= blocks[k]) {
    if (of[k] > 1 || blocks[k] % codegen::vector_lanes() != 0) return false;
    *channels[of[k]] = {blocks[k], strides[size_t(of[k])], inner};
  }
  to.y = strides[2];
  to.x = strides[3];
  return d.get_padded_dims() == sizes;
}

// The gradient of a bias.
void sum_of_channels(const Tensor& grad, const Tensor& to) {
  static const op::Operator& sum = op::get("sum");
  SymInt over[] = {int64_t(0), int64_t(2), int64_t(3)};
  op::Value args[] = {grad, SymSpan(over), false, grad.dtype()};
  copy(to, op::call(sum, args)[0]);
}

WinogradShape winograd_shape(const Shape& s, DType d) {
  return {d, s.n, s.c, s.h, s.w, s.o, s.oh, s.ow, s.padding[0], s.padding[1]};
}

// Retains what is computed from the elements of a weight for `pass` (tensor/derived.h). `key` says what that is.
RetainTransformed retain_with(const Tensor& weight, Pass pass, Key key) {
  key.push_back(weight.offset().concrete());
  return [storage = weight.impl()->storage.get(), pass, key](size_t bytes,
                                                             const std::function<void(void*)>& fill) {
    return derived(*storage, {key.data(), key.size()}, int(pass), bytes, fill);
  };
}

// Returns false if Winograd's algorithm does not read that layout, or if a result is not finite: such values would mix
// with results that the definition keeps apart.
bool by_winograd(const Shape& s, Pass pass, const Tensor& input, const void* weight, const desc& layout,
                 const Tensor& output, const Tensor& bias, const RetainTransformed& retain = {}) {
  WeightPlaces places;
  if (!places_of(layout, places)) return false;
  auto shape = winograd_shape(s, input.dtype());
  auto data = [](const Tensor& t) { return t.impl()->data_ptr(); };
  bool finite =
      pass == Pass::forward ? winograd(shape, data(input), weight, places,
                                       bias.defined() ? data(bias) : nullptr, data(output), retain)
      : pass == Pass::input
          ? winograd_backward_input(shape, data(output), weight, places, data(input), retain)
          : winograd_backward_weight(shape, data(input), data(output), places, const_cast<void*>(weight));
  if (finite && pass == Pass::weight && bias.defined()) sum_of_channels(output, bias);
  return finite;
}
bool suits_winograd(const Shape& s, const Tensor& input, const Tensor& output) {
  if (s.groups != 1 || s.kh != 3 || s.kw != 3) return false;
  for (int k = 0; k < 2; ++k)
    if (s.stride[k] != 1 || s.dilation[k] != 1) return false;
  if (!input.is_channels_last() || !output.is_channels_last()) return false;
  return winograd_pays(winograd_shape(s, input.dtype()));
}

// Computes the gradient of a depthwise weight for which oneDNN has no special kernel; returns false if there is nothing
// to gain.
bool by_channels(const Shape& s, const Tensor& input, const Tensor& weight, const Tensor& output,
                 const Tensor& bias) {
  constexpr int64_t kOneDnnWidth = 3;
  bool one_to_one = s.groups > 1 && s.groups == s.c && s.groups == s.o;
  if (!one_to_one || (s.kw <= kOneDnnWidth && s.dilation[0] == 1 && s.dilation[1] == 1)) return false;
  auto last = [](const Tensor& t) {
    if (t.is_channels_last()) return t;
    Dims sizes{t.size(0), t.size(2), t.size(3), t.size(1)},
        strides{t.stride(0), t.stride(2), t.stride(3), t.stride(1)};
    return dense(t.alias(sizes, strides, t.offset()));
  };
  Tensor x = last(input), y = last(output);
  depthwise_backward_weight({input.dtype(),
                             s.n,
                             s.c,
                             s.h,
                             s.w,
                             s.oh,
                             s.ow,
                             s.kh,
                             s.kw,
                             {s.stride[0], s.stride[1]},
                             {s.padding[0], s.padding[1]},
                             {s.dilation[0], s.dilation[1]}},
                            x.impl()->data_ptr(), y.impl()->data_ptr(), weight.data_ptr());
  if (bias.defined()) sum_of_channels(output, bias);
  return true;
}

Key key_of(const Shape& s, Pass pass, DType dtype, bool bias, bool last_input, bool last_output, int layout) {
  return {int64_t(dtype),
          int64_t(pass),
          layout,
          onednn_threads(),
          bias,
          last_input,
          last_output,
          s.n,
          s.c,
          s.h,
          s.w,
          s.o,
          s.kh,
          s.kw,
          s.oh,
          s.ow,
          s.groups,
          s.stride[0],
          s.stride[1],
          s.padding[0],
          s.padding[1],
          s.dilation[0],
          s.dilation[1]};
}

// Creates the plan for a key of an earlier process, in the background. Keys with packed layouts are skipped, because
// their numbers belong to a process.
const codegen::Thing conv_thing("convolution", [](codegen::Words w) {
  auto pass = Pass(w.size() == 23 ? w[1] : -1);
  bool valid = pass == Pass::forward || pass == Pass::input ? w[2] <= kRowMajor : pass == Pass::weight;
  if (!valid || w[3] != onednn_threads()) return;
  Shape s{w[7],  w[8],  w[9],  w[10],          w[11],          w[12],         w[13],
          w[14], w[15], w[16], {w[17], w[18]}, {w[19], w[20]}, {w[21], w[22]}};
  Prepared<Plan>::all().make(Key(w), [&] {
    return make_plan(s, pass, DType(w[0]), bool(w[4]), bool(w[5]), bool(w[6]), int(w[2]));
  });
});

// Runs a pass on input, weight and output (one of which it writes). Returns false if oneDNN has no good implementation.
// `may_pack`: nobody but the caller holds the gradient of the weight.
bool by_onednn(const Shape& s, Pass pass, const Tensor& input, const Tensor& weight, const Tensor& output,
               const Tensor& bias, bool may_pack = false) {
  // A packed weight is read in its layout; its gradient may be left in the layout that oneDNN produces.
  if (pass == Pass::weight && by_channels(s, input, weight, output, bias)) return true;
  bool may_leave = may_pack && s.groups == 1 && weight.is_contiguous() && fills_storage(*weight.impl());
  WeightMemory of = pass == Pass::weight ? WeightMemory{int(may_leave), weight.impl()->data_ptr()}
                    : s.groups == 1      ? weight_memory(weight)
                                         : WeightMemory{kRowMajor, weight.impl()->data_ptr()};
  bool fast = suits_winograd(s, input, output);
  dims sizes{s.o, s.c, s.kh, s.kw};
  if (fast && pass != Pass::weight) {
    auto layout = weight_layout(of.layout, sizes, onednn_type(input.dtype()));
    constexpr int64_t kTransformed = -1;  // the other keys begin with a dtype
    auto retain = retain_with(weight, pass,
                              {kTransformed, int64_t(input.dtype()), of.layout, int64_t(pass), s.o, s.c,
                               codegen::vector_lanes()});
    if (by_winograd(s, pass, input, of.data, layout, output, bias, retain)) return true;
  }
  bool last_input = input.is_channels_last(), last_output = output.is_channels_last();
  const Key key = key_of(s, pass, input.dtype(), bias.defined(), last_input, last_output, of.layout);
  auto& plan = planned<Plan>(conv_thing, key, [&] {
    return make_plan(s, pass, input.dtype(), bias.defined(), last_input, last_output, of.layout);
  });
  if (plan.refused) return false;
  if (fast && pass == Pass::weight) {
    auto layout = weight_layout(plan.packed, sizes, onednn_type(input.dtype()));
    if (by_winograd(s, pass, input, of.data, layout, output, bias)) {
      if (plan.packed) adopt_physical_order(weight, packed_layout(plan.packed).order);
      return true;
    }
  }
  int result = pass == Pass::forward ? 2 : pass == Pass::input ? 0 : 1;
  const Tensor* tensors[3] = {&input, &weight, &output};
  const Scratch uses[3] = {Scratch::source, Scratch::weights, Scratch::destination};
  const void* at[3];
  Storage retained;
  for (int k = 0; k < 3; ++k) {
    at[k] = k == 1 ? of.data : tensors[k]->impl()->data_ptr();
    if (!plan.sides[k].reordered) continue;
    if (k == 1 && k != result)
      retained = retain_with(weight, pass, key)(plan.sides[k].bytes,
                                                [&](void* to) { plan.sides[1].reorder.run({of.data, to}); });
    if (k == 1 && retained) {
      at[k] = retained->data();
      continue;
    }
    void* own = scratch(uses[k], plan.sides[k].bytes);
    if (k != result) plan.sides[k].reorder.run({at[k], own});
    at[k] = own;
  }
  for (auto& side : plan.sides)
    if (side.reordered) layout_counts().reordered.fetch_add(1, std::memory_order_relaxed);
  if (bias.defined()) plan.conv.run({at[0], at[1], at[2], bias.data_ptr()});
  else plan.conv.run({at[0], at[1], at[2]});
  if (plan.sides[result].reordered)
    plan.sides[result].reorder.run({at[result], tensors[result]->impl()->data_ptr()});
  if (plan.packed) adopt_physical_order(weight, packed_layout(plan.packed).order);
  return true;
}

// ---- a matrix unit

Tensor in_nhwc(const Tensor& t) { return t.is_channels_last() ? t : nhwc_copy(t, t.dtype()); }
// Computes a pass as a product by tiles where that is faster; false if it is not. The images are row-major or NHWC.
bool by_tiles(const Shape& s, Pass pass, const Tensor& input, const Tensor& weight, const Tensor& output,
              const Tensor& bias) {
  if (s.groups != 1) return false;
  TileConv t{input.dtype(), s.n, s.c, s.h, s.w, s.o, s.kh, s.kw, s.oh, s.ow, {}, {}, {}};
  for (int k = 0; k < 2; ++k)
    t.stride[k] = s.stride[k], t.padding[k] = s.padding[k], t.dilation[k] = s.dilation[k];
  const int64_t taps = s.kh * s.kw, windows = s.n * s.oh * s.ow;
  const int parts = pass == Pass::forward ? tile_conv_parts(t, windows, s.o, taps * s.c)
                    : pass == Pass::input ? tile_conv_parts(t, s.n * s.h * s.w, s.c, taps * s.o)
                                          : tile_conv_parts(t, s.o, taps * s.c, windows);
  if (!parts) return false;
  if (pass == Pass::weight) {
    tile_conv_backward_weight(t, parts, in_nhwc(input), in_nhwc(output), weight);
    if (bias.defined()) sum_of_channels(output, bias);
    return true;
  }
  const Tensor& result = pass == Pass::forward ? output : input;
  Tensor to = result.is_channels_last() ? result : empty_nhwc(result, result.dtype());
  if (pass == Pass::forward) tile_conv(t, parts, in_nhwc(input), weight, bias, to);
  else tile_conv_backward_input(t, parts, in_nhwc(output), weight, to);
  if (!to.is_same(result)) copy(result, to);
  return true;
}

// ---- unfolding: columns[c * kh * kw, oh * ow] of one image and group
template <class T>
void unfold(const Shape& s, int64_t channels, const T* image, T* columns) {
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t ky = 0; ky < s.kh; ++ky)
      for (int64_t kx = 0; kx < s.kw; ++kx)
        for (int64_t y = 0; y < s.oh; ++y) {
          int64_t row = y * s.stride[0] + ky * s.dilation[0] - s.padding[0];
          for (int64_t x = 0; x < s.ow; ++x) {
            int64_t column = x * s.stride[1] + kx * s.dilation[1] - s.padding[1];
            bool inside = row >= 0 && row < s.h && column >= 0 && column < s.w;
            *columns++ = inside ? image[(c * s.h + row) * s.w + column] : T(0);
          }
        }
}
template <class T>
void fold(const Shape& s, int64_t channels, const T* columns, T* image) {
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t ky = 0; ky < s.kh; ++ky)
      for (int64_t kx = 0; kx < s.kw; ++kx)
        for (int64_t y = 0; y < s.oh; ++y) {
          int64_t row = y * s.stride[0] + ky * s.dilation[0] - s.padding[0];
          for (int64_t x = 0; x < s.ow; ++x, ++columns) {
            int64_t column = x * s.stride[1] + kx * s.dilation[1] - s.padding[1];
            if (row >= 0 && row < s.h && column >= 0 && column < s.w) {
              auto& to = image[(c * s.h + row) * s.w + column];
              to = T(to + *columns);
            }
          }
        }
}

template <class F>
void of_element_type(DType d, F&& f) {
  dispatch(d, [&](auto x) {
    using T = decltype(x);
    if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
      internal_check(false) << "convolution of " << d;
    else f(x);
  });
}

// All tensors are row-major and of one dtype; `pass` says which one is written.
void by_unfolding(const Shape& s, Pass pass, const Tensor& input, const Tensor& weight,
                  const Tensor& output) {
  DType d = input.dtype();
  int64_t channels = s.c / s.groups, outputs = s.o / s.groups, taps = channels * s.kh * s.kw,
          places = s.oh * s.ow;
  auto matrix = [&](const Tensor& t, int64_t offset, int64_t rows, int64_t cols, bool transposed = false) {
    Dims sizes{SymInt(rows), SymInt(cols)}, strides{SymInt(cols), SymInt(int64_t(1))};
    if (transposed) {
      std::swap(sizes[0], sizes[1]);
      std::swap(strides[0], strides[1]);
    }
    return t.alias(sizes, strides, t.offset() + SymInt(offset));
  };
  Tensor columns = Tensor::empty(IntSpan(Ints{taps, places}), d);
  if (pass != Pass::forward) fill_zero(pass == Pass::input ? input : weight);
  for (int64_t n = 0; n < s.n; ++n)
    for (int64_t g = 0; g < s.groups; ++g) {
      int64_t in_at = (n * s.c + g * channels) * s.h * s.w, out_at = (n * s.o + g * outputs) * places;
      Tensor k = matrix(weight, g * outputs * taps, outputs, taps),
             y = matrix(output, out_at, outputs, places);
      of_element_type(d, [&](auto x) {
        using T = decltype(x);
        if (pass == Pass::input) {
          product(matrix(k, 0, outputs, taps, true), y, columns);
          fold<T>(s, channels, columns.data<T>(), input.data<T>() + in_at);
          return;
        }
        unfold<T>(s, channels, input.data<T>() + in_at, columns.data<T>());
        if (pass == Pass::forward) product(k, columns, y);
        else product(y, matrix(columns, 0, taps, places, true), k, {}, 1.0, 1.0);
      });
    }
}

// The compute dtype of a convolution of `d`.
DType computed_in(DType d) { return d == DType::Float16 ? DType::Float32 : d; }

bool empty(const Tensor& t) { return t.numel() == SymInt(int64_t(0)); }

// A destination as images of dtype d that are row-major or, for oneDNN, channels_last.
class Images {
 public:
  Images(const Tensor& out, DType d, bool library)
      : out_(out), own_(out.dtype() != d || !(out.is_contiguous() || (library && out.is_channels_last()))) {
    if (own_) tensor_ = Tensor::empty(out.sizes(), d);
    Tensor t = own_ ? tensor_ : out;
    Dims sizes(t.sizes()), strides(t.strides());
    if (sizes.size() == 3) {
      sizes.insert(0, SymInt(int64_t(1)));
      strides.insert(0, product(t.sizes()));
    }
    images_ = t.alias(sizes, strides, t.offset());
  }
  const Tensor& tensor() const { return images_; }  // [N, C, H, W]
  void finish() const {
    if (own_) copy(out_, tensor_);
  }

 private:
  Tensor out_, tensor_, images_;
  bool own_;
};

bool has_onednn(DType d) { return d == DType::Float32 || d == DType::BFloat16; }

Tensor invoked(const char* name, std::initializer_list<op::Value> args) {
  std::vector<op::Value> arguments(args);
  return op::call(op::get(name), arguments)[0];
}

// A convolution of complex numbers by three real ones (Gauss), combined as in PyTorch: if a sum is not finite, both parts
// become NaN.
void by_real_parts(const Call& c, const Tensor& out) {
  auto detached = [](const Tensor& t) { return t.alias(t.sizes(), t.strides(), t.offset()); };
  struct Parts {
    Tensor re, im, sum;
  };
  auto split = [&](const char* name) {
    Tensor t = c.tensor(name);
    if (!t.defined()) return Parts();
    t = detached(t);
    Parts p{invoked("_real", {t}), invoked("_imag", {t}), {}};
    p.sum = invoked("add", {p.re, p.im, Scalar(int64_t(1))});
    return p;
  };
  Parts x = split("input"), w = split("weight"), b = split("bias");
  auto convolution = [&](const Tensor& input, const Tensor& weight, const Tensor& bias) {
    auto args = std::vector<op::Value>(c.args().begin(), c.args().end());
    args[0] = input;
    args[1] = weight;
    args[2] = bias.defined() ? op::Value(bias) : op::Value();
    return op::call(c.op(), args)[0];
  };
  Scalar one = int64_t(1);
  Tensor first = convolution(x.re, w.re, b.re), second = convolution(x.im, w.im, {}),
         turned = convolution(x.sum, w.sum, b.sum);
  turned = invoked("sub", {invoked("sub", {turned, first, one}), second, one});
  Tensor none = invoked("mul", {turned, Scalar(int64_t(0))});
  Tensor straight = invoked("add", {invoked("sub", {first, second, one}), none, one});
  std::vector<Tensor> parts{straight, invoked("add", {turned, none, one})};
  copy(out, invoked("view_as_complex", {invoked("stack", {op::Value(parts), Scalar(int64_t(-1))})}));
}

// bfloat16 is computed as float32 without oneDNN.
DType without_onednn(DType d) { return d == DType::BFloat16 ? DType::Float32 : d; }

}  // namespace

Results conv2d(const Call& c, Out out) {
  Tensor input = c.tensor("input"), weight = c.tensor("weight"), bias = c.tensor("bias");
  if (empty(out[0])) return Results(out[0]);
  if (is_complex(input.dtype())) {
    by_real_parts(c, out[0]);
    return Results(out[0]);
  }
  Shape s = shape_of(c, input.sizes(), weight.sizes(), out[0].sizes());
  auto run = [&](DType d, bool library) {
    Images to(out[0], d, library);
    Tensor x = images(input, d), k = weights(weight, d, library && s.groups == 1), y = to.tensor(),
           b = bias.defined() ? dense(bias, d) : bias;
    bool done = true;
    if (s.c == 0) fill_zero(y);
    else if (library)
      done = by_tiles(s, Pass::forward, x, k, y, b) || by_onednn(s, Pass::forward, x, k, y, b);
    else by_unfolding(s, Pass::forward, dense(x), k, y);
    if (done && b.defined() && (!library || s.c == 0)) {
      static const op::Operator& add = op::get("add");
      SymInt one = int64_t(1);
      Tensor column = b.alias(Dims{b.size(0), one, one}, Dims{b.stride(0), one, one}, b.offset());
      op::Value args[] = {y, column, Scalar(int64_t(1))};
      op::call(add, args, op::Form::in_place);
    }
    if (done) to.finish();
    return done;
  };
  DType d = computed_in(input.dtype());
  if (!has_onednn(d) || !run(d, true)) run(without_onednn(d), false);
  return Results(out[0]);
}

Results conv2d_backward_input(const Call& c, Out out) {
  Tensor grad = c.tensor("grad"), weight = c.tensor("weight");
  if (empty(out[0])) return Results(out[0]);
  Shape s = shape_of(c, out[0].sizes(), weight.sizes(), grad.sizes());
  auto run = [&](DType d, bool library) {
    Images to(out[0], d, library);
    Tensor y = images(grad, d), k = weights(weight, d, library && s.groups == 1), x = to.tensor();
    bool done = true;
    if (empty(y)) fill_zero(x);
    else if (library) done = by_tiles(s, Pass::input, x, k, y, {}) || by_onednn(s, Pass::input, x, k, y, {});
    else by_unfolding(s, Pass::input, x, k, dense(y));
    if (done) to.finish();
    return done;
  };
  DType d = computed_in(grad.dtype());
  if (!has_onednn(d) || !run(d, true)) run(without_onednn(d), false);
  return Results(out[0]);
}

// Gradients of the weight and, if there are two results, of the bias.
Results conv2d_backward_weight(const Call& c, Out out) {
  Tensor grad = c.tensor("grad"), input = c.tensor("input");
  bool with_bias = out.size() > 1,
       own = out[0].impl()->use_count() == 1 && out[0].impl()->storage->use_count() == 1;
  auto results = [&] { return with_bias ? Results{out[0], out[1]} : Results(out[0]); };
  Shape s = shape_of(c, input.sizes(), out[0].sizes(), grad.sizes());
  auto run = [&](DType d, bool library) {
    Destination to(out[0], d);
    Tensor no_bias = with_bias ? Tensor() : Tensor::empty(IntSpan(Ints{0}), d);
    Destination to_bias(with_bias ? out[1] : no_bias, d);
    Tensor x = images(input, d), y = images(grad, d), k = to.tensor(),
           b = with_bias ? to_bias.tensor() : Tensor();
    bool nothing = empty(k) || empty(y) || empty(x), done = true;
    if (nothing) fill_zero(k);
    else if (library)
      done = by_tiles(s, Pass::weight, x, k, y, b) ||
             by_onednn(s, Pass::weight, x, k, y, b, own && k.is_same(out[0]));
    else by_unfolding(s, Pass::weight, dense(x), k, dense(y));
    if (done && with_bias && (!library || nothing)) sum_of_channels(y, b);
    if (!done) return false;
    to.finish();
    if (with_bias) to_bias.finish();
    return true;
  };
  DType d = computed_in(grad.dtype());
  if (!has_onednn(d) || !run(d, true)) run(without_onednn(d), false);
  return results();
}

}  // namespace facula::device::cpu
