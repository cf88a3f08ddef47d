// Custom operators and a class in a library: facula.ops.load_library("mine.so"), then facula.ops.mine.silu2(x),
// facula.classes.mine.Average(0.9).
#include <facula/extension.h>

#include <algorithm>

namespace {

using namespace facula;
using facula::loop::Expr;

// An exponential average of tensors: state that persists between calls.
struct Average : CustomClassHolder {
  explicit Average(double decay_) : decay(decay_) {
    value_check(decay >= 0 && decay < 1, "Average") << "decay must lie in [0, 1), got " << decay;
  }
  void update(const Tensor& x) {
    value = value.defined() ? value * decay + x * (1 - decay) : clone(x);
    ++count;
  }
  double decay;
  int64_t count = 0;
  Tensor value;
};

// A function that reads elements directly.
Tensor clipped_ramp(const Tensor& x, double low, double high) {
  value_check(low <= high, "clipped_ramp") << "low " << low << " is above high " << high;
  type_check(x.dtype() == DType::Float32, "clipped_ramp") << "expected float32, got " << x.dtype();
  Tensor from = contiguous(x), to = empty_like(from);
  const float* p = from.data<float>();
  float* q = to.data<float>();
  for (int64_t i = 0; i < x.numel().guard_int(); ++i) q[i] = std::clamp(p[i], float(low), float(high));
  return to;
}

Tensor centered(const Tensor& x, const Ref<Average>& average) {
  return average->value.defined() ? x - average->value : clone(x);
}

FACULA_LIBRARY(mine, m) {
  // A definition like those of the catalog: kernels, gradient, batching and fusion are derived.
  m.define("silu2(Tensor self) -> Tensor")
      .doc("x * sigmoid(2 x).")
      .dtypes(dtypes::floating)
      .pointwise([](Expr x) { return x * sigmoid(x + x); });

  // A function composed of operators, which gradients and programs see.
  m.def("scaled_sum(Tensor x, float by, int[] dim) -> Tensor",
        [](const Tensor& x, double by, const std::vector<int64_t>& dim) { return sum(x * by, dim); });

  // A function that computes; its metadata and its gradient are registered separately.
  m.def("clipped_ramp(Tensor x, float low, float high) -> Tensor");
  m.register_fake("clipped_ramp", [](const Tensor& x, double, double) { return empty_like(x); });
  m.register_autograd("clipped_ramp", [](const op::Vjp& v) {
    double low = v.call().real("low"), high = v.call().real("high");
    Tensor x = v["x"];
    return op::grads(v.grad() * logical_and(ge(x, low), le(x, high)));
  });

  m.class_<Average>("Average", "An exponential average of tensors.")
      .def(init<double>(), "", {arg("decay") = 0.9})
      .def("update", &Average::update, "Takes another tensor into the average.", {arg("x")})
      .def("__call__", [](const Ref<Average>& self) { return self->value; })
      .def("__len__", [](const Ref<Average>& self) { return self->count; })
      .def_readonly("decay", &Average::decay)
      .def_pickle(
          [](const Ref<Average>& self) {
            return std::tuple(self->decay, self->count,
                              self->value.defined() ? std::optional(self->value) : nullopt);
          },
          [](std::tuple<double, int64_t, std::optional<Tensor>> state) {
            auto restored = make_ref<Average>(std::get<0>(state));
            restored->count = std::get<1>(state);
            restored->value = std::get<2>(state).value_or(Tensor());
            return restored;
          });

  // An object as an argument; the schema follows from the C++ types.
  m.def("centered", centered);
}

FACULA_LIBRARY_IMPL(mine, CPU, m) { m.impl("clipped_ramp", clipped_ramp); }

}  // namespace
