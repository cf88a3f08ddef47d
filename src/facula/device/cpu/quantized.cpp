// Products of 8-bit integers by oneDNN, with its attributes for zero points, scales and rounding. Processors without VNNI sum pairs of
// products in saturating 16 bits there; on these generated kernels compute them (byte_product.h), whose sums are exact, and the reference
// definition what they do not.
#include <algorithm>
#include <cstring>

#include "facula/base/matrix_unit.h"
#include "facula/base/settings.h"
#include "facula/codegen/compiler.h"
#include "facula/device/cpu/byte_product.h"
#include "facula/device/cpu/cpu.h"
#include "facula/device/cpu/onednn.h"
#include "facula/op/registry.h"
#include "facula/tensor/derived.h"

namespace facula::device::cpu {

namespace {

using dims = dnnl::memory::dims;
using desc = dnnl::memory::desc;
using tag = dnnl::memory::format_tag;
using type = dnnl::memory::data_type;

bool sums_are_exact() {
  static const bool exact = __builtin_cpu_supports("avx512vnni") && settings().cpu_capability != "avx2";
  return exact;
}

type byte_type(DType t) {
  switch (t) {
    case DType::UInt8: return type::u8;
    case DType::Int8: return type::s8;
    case DType::Int32: return type::s32;
    default: return type::f32;
  }
}

// Everything that a primitive is built from.
struct Problem {
  bool convolution;
  dims input, weight, output;  // of a product: [n, k], [k, m], [n, m]
  dims stride, padding, padding_after, dilation;
  DType input_type, output_type;
  bool multiplied, bias, relu, zero_point, weight_by_columns;

  Key key() const {
    Key k{convolution, int64_t(input_type), int64_t(output_type), multiplied,      bias,
          relu,        zero_point,          weight_by_columns,    onednn_threads()};
    for (auto* d : {&input, &weight, &output, &stride, &padding, &padding_after, &dilation})
      for (auto n : *d) k.push_back(n);
    return k;
  }
  bool rounds() const { return output_type == DType::UInt8 || output_type == DType::Int8; }
  bool grouped() const { return weight.size() == 5; }
};

struct Plan {
  Bound product, reorder;
  bool refused = false, reordered = false;
  size_t weight_bytes = 0;
};

dnnl::primitive_attr attributes_of(const Problem& p) {
  auto attr = onednn_attributes();
  if (p.multiplied) attr.set_scales_mask(DNNL_ARG_WEIGHTS, !p.convolution ? 2 : p.grouped() ? 3 : 1);
  if (p.zero_point) attr.set_zero_points_mask(DNNL_ARG_SRC, 0);
  if (p.rounds()) attr.set_zero_points_mask(DNNL_ARG_DST, 0);
  if (p.relu) {
    dnnl::post_ops after;
    after.append_eltwise(dnnl::algorithm::eltwise_relu, 0, 0);
    attr.set_post_ops(after);
  }
  return attr;
}

// The arguments in the order in which `run` gives the pointers.
template <class Primitive, class Descriptor>
void bind(Plan& plan, const Problem& p, const Descriptor& pd, const desc& user_weight) {
  plan.refused = !pd || is_reference("8-bit product", pd.impl_info_str());
  if (plan.refused) return;
  plan.product = Bound::of<Primitive>(pd);
  plan.product.add(DNNL_ARG_SRC, pd.src_desc());
  plan.product.add(DNNL_ARG_WEIGHTS, pd.weights_desc());
  plan.product.add(DNNL_ARG_DST, pd.dst_desc());
  int64_t channels = p.output[1];
  desc numbers({channels}, type::f32, tag::a), one({1}, type::s32, tag::a);
  if (p.multiplied) plan.product.add(DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, numbers);
  if (p.bias)
    plan.product.add(DNNL_ARG_BIAS, p.convolution ? numbers : desc({1, channels}, type::f32, tag::ab));
  if (p.zero_point) plan.product.add(DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC, one);
  if (p.rounds()) plan.product.add(DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_DST, one);
  plan.reordered = pd.weights_desc() != user_weight;
  if (!plan.reordered) return;
  plan.weight_bytes = pd.weights_desc().get_size();
  plan.reorder = Bound::reorder(user_weight, pd.weights_desc());
}

Plan make_plan(const Problem& p) {
  Plan plan;
  auto attr = attributes_of(p);
  type in = byte_type(p.input_type), out = byte_type(p.output_type);
  if (p.convolution) {
    using Descriptor = dnnl::convolution_forward::primitive_desc;
    desc source(p.input, in, tag::nhwc), target(p.output, out, tag::nhwc),
        weight(p.weight, type::s8, tag::any), user(p.weight, type::s8, p.grouped() ? tag::goihw : tag::oihw),
        bias = p.bias ? desc({p.output[1]}, type::f32, tag::a) : desc();
    bind<dnnl::convolution_forward>(plan, p,
                                    Descriptor(onednn_engine(), dnnl::prop_kind::forward_inference,
                                               dnnl::algorithm::convolution_direct, source, weight, bias,
                                               target, p.stride, p.dilation, p.padding, p.padding_after, attr,
                                               true),
                                    user);
  } else {
    using Descriptor = dnnl::matmul::primitive_desc;
    desc source(p.input, in, tag::ab), target(p.output, out, tag::ab), weight(p.weight, type::s8, tag::any),
        user(p.weight, type::s8, p.weight_by_columns ? tag::ba : tag::ab),
        bias = p.bias ? desc({1, p.output[1]}, type::f32, tag::ab) : desc();
    bind<dnnl::matmul>(plan, p, Descriptor(onednn_engine(), source, weight, bias, target, attr, true), user);
  }
  return plan;
}

const codegen::Thing product_thing("8-bit product", [](codegen::Words) {});

// The weight in the layout of a primitive.
Storage packed_weight(const Plan& plan, Key key, const Tensor& weight) {
  auto pack = [&](void* to) { plan.reorder.run({weight.impl()->data_ptr(), to}); };
  key.push_back(weight.offset().concrete());
  if (Storage retained =
          derived(*weight.impl()->storage, {key.data(), key.size()}, 0, plan.weight_bytes, pack))
    return retained;
  auto memory = make_ref<StorageImpl>(plan.weight_bytes, Device{});
  pack(memory->data());
  return memory;
}

// ---- generated kernels

// How generated kernels compute the problem. Null: they do not, because they cannot, FACULA_PRODUCTS wants another way, or oneDNN's sums
// are exact: it multiplies bytes by the same units and is as fast or faster. All ways give the same bits.
std::optional<ByteWay> generated_way(const Problem& p, int64_t zero_point) {
  const int64_t least = p.input_type == DType::Int8 ? -128 : 0;
  const bool representable = zero_point >= least && zero_point < least + 256;
  if (p.grouped() || (p.convolution && !representable)) return {};
  const std::string& wish = settings().products;
  // Without a unit its steps are called one by one; one that differs from them is not used.
  if (wish == "tiles")
    return has_byte_matrix_unit() && !multiplies_byte_tiles() ? ByteWay::vectors : ByteWay::tiles;
  if (wish == "generated") return ByteWay::vectors;
  if (wish.empty() && !sums_are_exact() && codegen::can_compile()) return ByteWay::vectors;
  return {};
}

void generate(const Problem& p, const Call& c, const Tensor& input, const Tensor& weight, const Tensor& out,
              ByteWay way) {
  const bool epilogue = c.op().schema.index_of("multiplier") >= 0;
  auto number = [&](const char* name) { return epilogue ? int32_t(c.integer(name).concrete()) : 0; };
  Tensor multiplier = p.multiplied ? dense(c.tensor("multiplier")) : Tensor(),
         bias = p.bias ? dense(c.tensor("bias")) : Tensor();
  auto floats = [](const Tensor& t) {
    return t.defined() ? static_cast<const float*>(t.impl()->data_ptr()) : nullptr;
  };
  const ByteResult result{out.impl()->data_ptr(), p.output_type, floats(multiplier),
                          floats(bias),           p.relu,        number("output_zero_point")};
  const ByteRows rows{input.impl()->data_ptr(), p.input_type == DType::Int8, number("input_zero_point")};
  const auto* bytes = static_cast<const int8_t*>(weight.impl()->data_ptr());
  auto* storage = weight.impl()->storage.get();
  if (!p.convolution) {
    const int64_t k = p.input[1], m = p.output[1];
    const ByteWeight right{bytes, m, p.weight_by_columns ? k : 1, p.weight_by_columns ? 1 : m, 0, storage};
    return byte_product(ByteMatrix{rows, p.input[0], k}, right, result, way);
  }
  const int64_t taps = p.weight[2] * p.weight[3], channels = p.input[1];
  ByteImages images{rows,        p.input[0],  p.input[2],  p.input[3], channels, p.weight[2],
                    p.weight[3], p.output[2], p.output[3], {},         {},       {}};
  for (size_t k = 0; k < 2; ++k)
    images.stride[k] = p.stride[k], images.padding[k] = p.padding[k], images.dilation[k] = p.dilation[k] + 1;
  byte_product(images, {bytes, p.output[1], channels * taps, taps, 1, storage}, result, way);
}

// ---- oneDNN

// Computes the problem; returns false if oneDNN has no good implementation.
bool compute(const Problem& p, const Call& c, const Tensor& input, const Tensor& weight, const Tensor& out) {
  const bool centred = c.op().schema.index_of("input_zero_point") >= 0;
  if (auto way = generated_way(p, centred ? c.integer("input_zero_point").concrete() : 0)) {
    generate(p, c, input, weight, out, *way);
    return true;
  }
  if (!sums_are_exact()) return false;
  Key key = p.key();
  auto& plan = planned<Plan>(product_thing, key, [&] { return make_plan(p); });
  if (plan.refused) return false;
  Storage held;
  const void* packed = weight.impl()->data_ptr();
  if (plan.reordered) {
    held = packed_weight(plan, key, weight);
    packed = held->data();
  }
  int32_t zero_points[2] = {0, 0};
  Tensor multiplier, bias;
  const void *in = input.data_ptr(), *to = out.data_ptr();
  SmallVector<const void*, 8> pointers{in, packed, to};
  if (p.multiplied) pointers.push_back((multiplier = dense(c.tensor("multiplier"))).data_ptr());
  if (p.bias) pointers.push_back((bias = dense(c.tensor("bias"))).data_ptr());
  if (p.zero_point) {
    zero_points[0] = int32_t(c.integer("input_zero_point").concrete());
    pointers.push_back(&zero_points[0]);
  }
  if (p.rounds()) {
    zero_points[1] = int32_t(c.integer("output_zero_point").concrete());
    pointers.push_back(&zero_points[1]);
  }
  plan.product.run(pointers);
  return true;
}

Results by_reference(const Call& c, Out out) {
  Results results = c.op().backed()->composed_reference(c);
  copy(out[0], results[0]);
  return Results(out[0]);
}
bool empty(const Tensor& t) { return t.numel().concrete() == 0; }

// Products of matrices; `transposed`: the rows of weight are the columns of the product.
Results products(const Call& c, Out out, const char* left, const char* right, bool transposed) {
  Tensor input = c.tensor(left), weight = c.tensor(right);
  if (empty(out[0])) return Results(out[0]);
  if (empty(input)) return by_reference(c, out);
  input = dense(input);
  Dims turned{weight.size(1), weight.size(0)}, strides{weight.stride(1), weight.stride(0)};
  bool by_columns = transposed;
  if (!transposed && weight.alias(turned, strides, weight.offset()).is_contiguous()) by_columns = true;
  else weight = dense(weight);
  DType t = out[0].dtype();
  bool epilogue = c.op().schema.index_of("multiplier") >= 0;
  int64_t n = input.size(0).concrete(), k = input.size(1).concrete(), m = out[0].size(1).concrete();
  Problem p{.convolution = false,
            .input = {n, k},
            .weight = {k, m},
            .output = {n, m},
            .input_type = input.dtype(),
            .output_type = t,
            .multiplied = epilogue && c.has("multiplier"),
            .bias = epilogue && c.has("bias"),
            .relu = epilogue && c.flag("relu"),
            .zero_point = epilogue && c.integer("input_zero_point").concrete() != 0,
            .weight_by_columns = by_columns};
  Destination to(out[0], t);
  if (!compute(p, c, input, weight, to.tensor())) return by_reference(c, out);
  to.finish();
  return Results(out[0]);
}

Tensor channels_last(const Tensor& t) {
  if (t.is_contiguous(MemoryFormat::channels_last)) return t;
  Tensor last =
      Tensor::empty(t.sizes(), t.dtype())
          .alias(t.sizes(), strides_for(t.sizes(), MemoryFormat::channels_last), SymInt(int64_t(0)));
  copy(last, t);
  return last;
}

}  // namespace

Results int_mm(const Call& c, Out out) { return products(c, out, "self", "mat2", false); }
Results int8_linear(const Call& c, Out out) { return products(c, out, "input", "weight", true); }

Results int8_conv2d(const Call& c, Out out) {
  Tensor input = c.tensor("input"), weight = dense(c.tensor("weight"));
  if (empty(out[0])) return Results(out[0]);
  if (empty(input)) return by_reference(c, out);
  auto in = input.int_sizes(), kernel = weight.int_sizes(), to = out[0].int_sizes();
  int64_t groups = c.integer("groups").concrete();
  auto pair = [&](const char* name) {
    Dims d = c.ints(name, 2);
    return dims{d[0].concrete(), d[1].concrete()};
  };
  Problem p{.convolution = true,
            .input = dims(in.begin(), in.end()),
            .weight = dims(kernel.begin(), kernel.end()),
            .output = dims(to.begin(), to.end()),
            .stride = pair("stride"),
            .padding = pair("padding"),
            .dilation = pair("dilation"),
            .input_type = input.dtype(),
            .output_type = out[0].dtype(),
            .multiplied = c.has("multiplier"),
            .bias = c.has("bias"),
            .relu = c.flag("relu"),
            .zero_point = c.integer("input_zero_point").concrete() != 0,
            .weight_by_columns = false};
  for (size_t k = 0; k < 2; ++k) {
    p.padding_after.push_back((p.output[k + 2] - 1) * p.stride[k] + (p.weight[k + 2] - 1) * p.dilation[k] +
                              1 - p.input[k + 2] - p.padding[k]);
    p.dilation[k] -= 1;  // oneDNN counts the gaps
  }
  if (groups > 1) {
    p.weight[0] /= groups;
    p.weight.insert(p.weight.begin(), groups);
  }
  Tensor target = channels_last(out[0]);
  if (!compute(p, c, channels_last(input), weight, target)) return by_reference(c, out);
  if (!target.is_same(out[0])) copy(out[0], target);
  return Results(out[0]);
}

}  // namespace facula::device::cpu
