// Rounding as quantised numbers are rounded, in floating point: what training for a quantised model computes with.
#include "facula/autograd/autograd.h"
#include "facula/autograd/forward.h"
#include "facula/catalog/elements.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {
constexpr const char* kSteps = "the gradient passes steps, where differences are 0 or large";

// Steps counted from the zero point, the limits they are held to, and what they stand for. PyTorch multiplies by a float32
// reciprocal, counts in the dtype of x but for 16 bits, and has NaN at the lower limit, outside of the mask.
struct Steps {
  Tensor steps;
  int64_t low, high;
  Tensor mask() const { return logical_and(ge(steps, low), le(steps, high)); }
  Tensor limited() const { return where(ge(steps, low), clamp_max(steps, high), low); }
};
Tensor roomy(const Tensor& x) { return to_dtype(x, compute_type(x.dtype())); }
Tensor scaled(const Tensor& x, const Tensor& scale) { return mul(roomy(x), reciprocal(scale)); }

// One scale and zero point for all: the value is computed in float32 whatever x is.
std::tuple<Tensor, Tensor> per_tensor(const Tensor& x, const Tensor& given, const Tensor& zero_point,
                                      int64_t low, int64_t high) {
  Tensor scale = to_dtype(given, DType::Float32), zero = to_dtype(zero_point, DType::Float32);
  Steps s{add(round(scaled(x, scale)), zero), low, high};
  Tensor value = mul(sub(to_dtype(s.limited(), DType::Float32), zero), scale);
  return {to_dtype(value, x.dtype()), s.mask()};
}

void check_limits(int64_t low, int64_t high, const char* name) {
  runtime_check(low <= high, name) << "`quant_min` should be less than or equal to `quant_max`, got " << low
                                   << " and " << high;
}
Grads through(const Vjp& v) {
  Grads out(v.call().all_tensors().size());
  if (v.grad(0).defined()) out[0] = mul(v.grad(0), v.result(1));
  return out;
}
// A scale and zero point of one element, as 0-d tensors.
Tensor one_element(const Tensor& t, const char* what, const char* name = "fake_quantize_per_tensor_affine") {
  runtime_check(t.numel() == SymInt(1), name)
      << what << " has to have one element, but has shape " << to_string(t.sizes());
  return reshape(t, Sizes{});
}
// One element of a wider dtype is a number of the narrower one in which it is used.
Tensor held(const Tensor& t, const char* what, double largest, bool infinities) {
  bool may_exceed =
      is_floating(t.dtype()) && !(infinities && itemsize(t.dtype()) <= itemsize(DType::Float32));
  if (!may_exceed || t.numel() != SymInt(1)) return t;
  if (t.is_traced()) {  // the program refuses it
    Tensor fits = le(abs(t), largest);
    if (infinities) fits = logical_or(fits, logical_not(isfinite(t)));
    return _accepted(t, to_dtype(logical_not(fits), DType::Int64));
  }
  if (!catalog::shows_elements(t)) return t;
  double x = t.item().to_double();
  runtime_check(std::abs(x) <= largest || (infinities && !std::isfinite(x)),
                "fake_quantize_per_tensor_affine")
      << what << " cannot be converted without overflow: " << x;
  return t;
}

// Learned scales and zero points, which broadcast with x. Zero points are integers within the limits for the value and for the
// gradient; in the gradient PyTorch rounds a per-tensor zero point differently.
struct Learned {
  Tensor x, scale, zero;
  Steps s;
  Learned(const Tensor& self, const Tensor& given, const Tensor& zero_point, int64_t low, int64_t high)
      : x(roomy(self)),
        scale(to_dtype(given, compute_type(self.dtype()))),
        zero(clamp(round(to_dtype(zero_point, compute_type(self.dtype()))), low, high)),
        s{add(round(scaled(self, scale)), zero), low, high} {}
  Tensor value() const { return mul(sub(s.limited(), zero), scale); }
};
// The straight-through estimate: within the limits a scale sees how far rounding moved x, beyond them which step is the last. The
// value has the history of a sum with these slopes.
Tensor learnable(const Tensor& self, const Tensor& scale, const Tensor& zero_point, int64_t low, int64_t high,
                 double grad_factor) {
  Tensor value, inside, of_scale, of_zero;
  {
    autograd::GradMode off(false);
    autograd::ForwardPaused no_tangents;
    Learned l(self, scale, zero_point, low, high);
    value = l.value();
    inside = l.s.mask();
    of_scale = where(inside, mul(sub(value, l.x), reciprocal(l.scale)), sub(l.s.limited(), l.zero));
    of_zero = where(inside, zeros_like(l.scale), neg(l.scale));
  }
  auto term = [&](const Tensor& t, const Tensor& slope) {
    return mul(mul(to_dtype(t, slope.dtype()), slope), grad_factor);
  };
  Tensor sum = add(add(mul(roomy(self), inside), term(scale, of_scale)), term(zero_point, of_zero));
  return _with_history(to_dtype(sum, self.dtype()), to_dtype(value, self.dtype()));
}

// Checks the zero points of all channels against the limits, if they have data.
void check_channels(const Tensor& self, const Tensor& scale, const Tensor& zero_point, int64_t axis,
                    int64_t low, int64_t high) {
  constexpr const char* name = "fake_quantize_per_channel_affine";
  DType z = zero_point.dtype();
  runtime_check(scale.dtype() == DType::Float32 || scale.dtype() == DType::BFloat16, name)
      << "scale must be float32 or bfloat16, got " << scale.dtype();
  runtime_check(z == DType::Int32 || z == DType::Float32 || z == DType::Float16, name)
      << "zero_point must be int32, float32 or float16, got " << z;
  runtime_check(scale.dim() == 1 && zero_point.dim() == 1, name)
      << "scale and zero_point must be 1-D tensors, got shapes " << to_string(scale.sizes()) << " and "
      << to_string(zero_point.sizes());
  runtime_check(scale.numel() == zero_point.numel(), name)
      << "scale and zero_point need to have the same dimensions, got shapes " << to_string(scale.sizes())
      << " and " << to_string(zero_point.sizes());
  index_check(axis < self.dim(), name)
      << "axis " << axis << " is out of range for self of shape " << to_string(self.sizes());
  runtime_check(axis >= 0, name) << "`axis` must be between 0 and number of dimensions of input, got "
                                 << axis;
  runtime_check(scale.numel() == self.size(int(axis)), name)
      << "dimensions of scale and zero_point, " << to_string(scale.sizes())
      << ", are not consistent with dimension " << axis << " of self of shape " << to_string(self.sizes());
  check_limits(low, high, name);
  if (is_floating(z) || !catalog::shows_elements(zero_point) || zero_point.numel() == SymInt(0)) return;
  bool within = all(logical_and(ge(zero_point, low), le(zero_point, high))).item().to_bool();
  runtime_check(within, name) << "`zero_point` must be between `quant_min` " << low << " and `quant_max` "
                              << high;
}
}  // namespace

FACULA_FAMILY(quantize) {
  define(
      "fake_quantize_per_tensor_affine_cachemask(Tensor self, float scale, Scalar zero_point, int quant_min, int quant_max) -> (Tensor output, Tensor mask)")
      .doc("fake_quantize_per_tensor_affine, and which elements were within the limits.")
      .bind(hidden)
      .dtypes(d::floating)
      .strict()
      .check([](const Call& c) {
        constexpr const char* name = "fake_quantize_per_tensor_affine";
        Scalar zero = c.number("zero_point");
        type_check(zero.category() == Category::integral, name) << "zero_point must be int, got " << zero;
        int64_t low = c.integer("quant_min").guard_int(), high = c.integer("quant_max").guard_int();
        check_limits(low, high, name);
        runtime_check(zero.to_int() >= low && zero.to_int() <= high, name)
            << "`zero_point` must be between `quant_min` and `quant_max`, got " << zero
            << ", which is not between " << low << " and " << high;
      })
      .composite([](const Tensor& self, const Tensor& scale, const Tensor& zero_point, int64_t quant_min,
                    int64_t quant_max) { return per_tensor(self, scale, zero_point, quant_min, quant_max); })
      .vjp(through)
      .undifferenced(kSteps)
      .samples({"self[3, 4](-2, 2), scale=0.1, zero_point=0, quant_min=-8, quant_max=7",
                "self[5], scale=0.25, zero_point=3, quant_min=0, quant_max=15",
                "self[], scale=0.5, zero_point=-1, quant_min=-4, quant_max=3",
                "self[0], scale=0.5, zero_point=0, quant_min=-4, quant_max=3"});
  define(
      "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams(Tensor self, Tensor scale, Tensor zero_point, Tensor fake_quant_enabled, int quant_min, int quant_max) -> (Tensor output, Tensor mask)")
      .doc("The same with its numbers in tensors of one element; self itself where fake_quant_enabled is 0.")
      .bind(hidden)
      .dtypes(d::floating)
      .strict()
      .composite([](const Tensor& self, const Tensor& scale, const Tensor& zero_point, const Tensor& enabled,
                    int64_t quant_min, int64_t quant_max) {
        check_limits(quant_min, quant_max, "fake_quantize_per_tensor_affine");
        Tensor zero = one_element(zero_point, "zero_point");
        auto [value, mask] = per_tensor(self, one_element(scale, "scale"),
                                        is_floating(zero.dtype()) ? trunc(zero) : zero, quant_min, quant_max);
        Tensor on = ne(one_element(enabled, "fake_quant_enabled"), 0);
        return std::tuple(where(on, value, self), logical_or(mask, logical_not(on)));
      })
      .vjp(through)
      .undifferenced(kSteps)
      .samples(
          {"self[3, 4](-2, 2), scale[1](0.1, 0.2), zero_point[1], fake_quant_enabled[], quant_min=-8, quant_max=7"});
  define(
      "fake_quantize_per_channel_affine_cachemask(Tensor self, Tensor scale, Tensor zero_point, int axis, int quant_min, int quant_max) -> (Tensor output, Tensor mask)")
      .doc("fake_quantize_per_channel_affine, and which elements were within the limits.")
      .bind(hidden)
      .dtypes(d::floating)
      .strict()
      .composite([](const Tensor& self, const Tensor& scale, const Tensor& zero_point, int64_t axis,
                    int64_t quant_min, int64_t quant_max) {
        Dims along(size_t(self.dim()), SymInt(int64_t(1)));
        along[size_t(axis)] = scale.size(0);
        Tensor factor = reshape(to_dtype(scale, DType::Float32), along),
               zero = reshape(roomy(zero_point), along);
        Tensor x = scaled(self, factor);
        // A zero point that is no integer is added before it is rounded.
        bool whole = !is_floating(zero.dtype());
        Steps s{whole ? add(round(x), zero) : round(add(x, zero)), quant_min, quant_max};
        auto wide = [&](const Tensor& t) { return whole ? t : to_dtype(t, DType::Float64); };
        Tensor value = mul(sub(wide(s.limited()), wide(zero)), wide(factor));
        return std::tuple(to_dtype(value, self.dtype()), s.mask());
      })
      .vjp(through)
      .undifferenced(kSteps)
      .samples({"self[3, 4](-2, 2), scale[3](0.1, 0.2), zero_point[3], axis=0, quant_min=-8, quant_max=7"});

  define(
      "fake_quantize_per_tensor_affine(Tensor self, float scale, int zero_point, int quant_min, int quant_max) -> Tensor")
      .doc(
          "self rounded to the numbers (q - zero_point) * scale with whole q from quant_min to quant_max. The gradient passes as if "
          "nothing had been rounded, but not beyond the limits.")
      .bind(function)
      .procedure(
          [](const Tensor& self, double scale, int64_t zero_point, int64_t quant_min, int64_t quant_max) {
            return std::get<0>(fake_quantize_per_tensor_affine_cachemask(self, scale, Scalar(zero_point),
                                                                         quant_min, quant_max));
          })
      .undifferenced(kSteps)
      .samples({"self[3, 4](-2, 2), scale=0.1, zero_point=0, quant_min=-8, quant_max=7"});
  define(
      "fake_quantize_per_tensor_affine.tensor_qparams(Tensor self, Tensor scale, Tensor zero_point, int quant_min, int quant_max) -> Tensor")
      .doc(
          "The same with `scale` and `zero_point` in tensors of one element; the zero point is cut to an integer.")
      .bind(function)
      .reads_data()
      .procedure([](const Tensor& self, const Tensor& scale, const Tensor& zero_point, int64_t quant_min,
                    int64_t quant_max) {
        Tensor factor = held(scale, "scale", 0x1.fffffep127, true),
               zero = held(zero_point, "zero_point", 0x1p31, false);
        Tensor enabled = ones({}, DType::UInt8);
        return std::get<0>(_fake_quantize_per_tensor_affine_cachemask_tensor_qparams(self, factor, zero,
                                                                                     enabled, quant_min,
                                                                                     quant_max));
      })
      .undifferenced(kSteps)
      .samples({"self[3, 4](-2, 2), scale[1](0.1, 0.2), zero_point[1], quant_min=-8, quant_max=7"});
  define(
      "fake_quantize_per_channel_affine(Tensor self, Tensor scale, Tensor zero_point, int axis, int quant_min, int quant_max) -> Tensor")
      .doc(
          "The same with a scale and a zero point for each index of dimension `axis`; a zero point that is no integer is added before "
          "self is rounded.")
      .bind(function)
      .reads_data()
      .procedure([](const Tensor& self, const Tensor& scale, const Tensor& zero_point, int64_t axis,
                    int64_t quant_min, int64_t quant_max) {
        check_channels(self, scale, zero_point, axis, quant_min, quant_max);
        return std::get<0>(
            fake_quantize_per_channel_affine_cachemask(self, scale, zero_point, axis, quant_min, quant_max));
      })
      .undifferenced(kSteps);

  define(
      "_fake_quantize_learnable(Tensor self, Tensor scale, Tensor zero_point, int quant_min, int quant_max, float grad_factor) -> Tensor")
      .doc("self rounded as scales and zero points say that broadcast with it.")
      .bind(hidden)
      .dtypes(d::floating)
      .strict()
      .procedure(learnable)
      .undifferenced(kSteps)
      .samples(
          {"self[3, 4](-2, 2), scale[3, 1](0.1, 0.2), zero_point[3, 1], quant_min=-8, quant_max=7, grad_factor=1.0",
           "self[5], scale[](0.1, 0.2), zero_point[], quant_min=0, quant_max=15, grad_factor=0.5"});
  define(
      "_fake_quantize_learnable_per_tensor_affine(Tensor self, Tensor scale, Tensor zero_point, int quant_min, int quant_max, float grad_factor=1.0) -> Tensor")
      .doc(
          "fake_quantize_per_tensor_affine with a gradient of `scale` and `zero_point`, of one element, times grad_factor  (Jain et "
          "al. 2019).")
      .bind(function)
      .grad_name("FakeQuantizeLearnablePerTensorAffine")
      .procedure([](const Tensor& self, const Tensor& scale, const Tensor& zero_point, int64_t quant_min,
                    int64_t quant_max, double grad_factor) {
        constexpr const char* name = "_fake_quantize_learnable_per_tensor_affine";
        check_limits(quant_min, quant_max, name);
        return _fake_quantize_learnable(self, one_element(scale, "scale", name),
                                        one_element(zero_point, "zero_point", name), quant_min, quant_max,
                                        grad_factor);
      })
      .undifferenced(kSteps)
      .samples({"self[3, 4](-2, 2), scale[1](0.1, 0.2), zero_point[1], quant_min=-8, quant_max=7"});
  define(
      "_fake_quantize_learnable_per_channel_affine(Tensor self, Tensor scale, Tensor zero_point, int axis, int quant_min, int quant_max, float grad_factor=1.0) -> Tensor")
      .doc("The same with a scale and a zero point for each index of dimension `axis`.")
      .bind(function)
      .grad_name("FakeQuantizeLearnablePerChannelAffine")
      .procedure([](const Tensor& self, const Tensor& scale, const Tensor& zero_point, int64_t axis,
                    int64_t quant_min, int64_t quant_max, double grad_factor) {
        constexpr const char* name = "_fake_quantize_learnable_per_channel_affine";
        check_limits(quant_min, quant_max, name);
        index_check(axis >= 0 && axis < self.dim(), name)
            << "axis " << axis << " is out of range for self of shape " << to_string(self.sizes());
        Dims along(size_t(self.dim()), SymInt(int64_t(1)));
        along[size_t(axis)] = self.size(int(axis));
        for (auto& [t, what] : {std::pair(&scale, "scale"), {&zero_point, "zero_point"}})
          runtime_check(t->dim() == 1 && t->numel() == along[size_t(axis)], name)
              << what << " must have one element for each index of dimension " << axis << " of self of shape "
              << to_string(self.sizes()) << ", but has shape " << to_string(t->sizes());
        return _fake_quantize_learnable(self, reshape(scale, along), reshape(zero_point, along), quant_min,
                                        quant_max, grad_factor);
      })
      .undifferenced(kSteps)
      .samples({"self[3, 4](-2, 2), scale[3](0.1, 0.2), zero_point[3], axis=0, quant_min=-8, quant_max=7"});
}
