// Arithmetic, comparison, logic and elementary functions, element by element.
#include <cmath>

#include "facula/autograd/calls.h"
#include "facula/base/warning.h"
#include "facula/catalog/pointwise_helpers.h"
#include "facula/catalog/repeated.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/op/refusal.h"
#include "facula/op/registry.h"
#include "facula/tensor/promotion.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;
using facula::autograd::invoke;
using namespace facula::catalog::pointwise_helpers;

namespace {
constexpr const char* kNotZero = "expects zeros";
// The result dtype of where().
DType chosen_dtype(const Call& c) {
  Promotion p;
  for (auto* name : {"self", "other"}) {
    auto& v = c[name];
    if (v.tag == Tag::tensor) p.add(c.tensor(name));
    else p.add(v.tag == Tag::integer ? Scalar(int64_t(0)) : v.scalar);
  }
  return p.result();
}
}  // namespace

FACULA_FAMILY(pointwise) {
  define("neg(Tensor self) -> Tensor")
      .dtypes(d::any | d::half_complex)
      .exact_out()
      .doc("-self.")
      .alias("negative")
      .in_place()
      .pointwise([](Expr x) {
        runtime_check(x.dtype() != DType::Bool, "neg")
            << "not supported for bool" << hint("~ or logical_not() inverts a mask");
        return -x;
      })
      .samples(unary_samples());
  define("abs(Tensor self) -> Tensor")
      .exact_out([](const Call& c) { return !is_complex(c.dtype("self")); })
      .doc("Absolute value; the modulus of complex numbers.")
      .alias("absolute")
      .dtypes(d::numeric | d::half_complex | d::float8)
      .result(ResultType::real)
      .in_place()
      .pointwise([](Expr x) { return abs(x); })
      .samples(unary_samples());
  define("sign(Tensor self) -> Tensor")
      .exact_out()
      .doc("-1, 0 or 1.")
      .dtypes(d::real)
      .in_place()
      .pointwise([](Expr x) { return x.dtype() == DType::Bool ? x : sign(x); })
      .samples(unary_samples());
  define("sgn(Tensor self) -> Tensor")
      .dtypes(d::any | d::half_complex)
      .exact_out()
      .doc("sign(self); of complex numbers z / |z|, 0 at 0.")
      .in_place()
      .pointwise([](Expr x) { return x.dtype() == DType::Bool ? x : sign(x); })
      .samples(unary_samples());
  define("angle(Tensor self) -> Tensor")
      .dtypes(d::any | d::wide_unsigned)
      .doc("The angle of complex numbers in (-pi, pi]; of real ones 0, or pi where negative. NaN stays.")
      .result([](const Call& c) {
        DType t = c.dtype("self");
        return std::vector<DType>{is_differentiable(t) ? real_of(t) : default_dtype()};
      })
      .pointwise([](Expr x) {
        if (is_complex(x.dtype())) return atan2(imag(x), real(x));
        if (!is_floating(x.dtype())) {
          if (x.dtype() == DType::Bool) return constant(0.0, default_dtype());
          return select(x < 0, constant(3.14159265358979323846, default_dtype()), 0.0);
        }
        return select(isnan(x), std::nan(""), select(x < 0.0, 3.14159265358979323846, zero_like(x)));
      })
      .samples(unary_samples());
  define("square(Tensor self) -> Tensor")
      .doc("self * self; of bool int64.")
      .grad_name("Pow")
      .result([](const Call& c) {
        return std::vector<DType>{c.dtype("self") == DType::Bool ? DType::Int64 : c.dtype("self")};
      })
      .in_place()
      .pointwise([](Expr x) { return x.dtype() == DType::Bool ? cast(x, DType::Int64) : x * x; })
      .samples(unary_samples());
  auto rounded = [](Expr (*f)(Expr)) { return [f](Expr x) { return is_floating(x.dtype()) ? f(x) : x; }; };
  define("floor(Tensor self) -> Tensor")
      .exact_out()
      .doc("The largest integer not above self.")
      .dtypes(d::integral | d::floating | d::wide_unsigned)
      .in_place()
      .pointwise(std::function<Expr(Expr)>(rounded(floor)))
      .samples(unary_samples());
  define("ceil(Tensor self) -> Tensor")
      .exact_out()
      .doc("The smallest integer not below self.")
      .dtypes(d::integral | d::floating | d::wide_unsigned)
      .in_place()
      .pointwise(std::function<Expr(Expr)>(rounded(ceil)))
      .samples(unary_samples());
  define("trunc(Tensor self) -> Tensor")
      .exact_out()
      .doc("self without its fraction.")
      .alias("fix")
      .dtypes(d::integral | d::floating | d::wide_unsigned)
      .in_place()
      .pointwise(std::function<Expr(Expr)>(rounded(trunc)))
      .samples(unary_samples());
  define("round(Tensor self) -> Tensor")
      .exact_out()
      .doc("The nearest integer; halves go to the even one.")
      .bind(function | method | special)
      .dtypes(d::integral | d::floating | d::wide_unsigned)
      .in_place()
      .pointwise(std::function<Expr(Expr)>(rounded(loop::round)))
      .samples(unary_samples());
  define("round.decimals(Tensor self, *, int decimals) -> Tensor")
      .grad_name("Round", 1)
      .exact_out()
      .doc(
          "The nearest number with `decimals` digits behind the point; negative ones round tens, hundreds, ...")
      .bind(function | method | special)
      .dtypes(d::floating)
      .in_place()
      .pointwise([](const LoopCall& c, Expr x) {
        int64_t digits = c.integer("decimals").guard_int();
        double scale = std::pow(10.0, double(std::abs(digits)));
        if (digits == 0) return loop::round(x);
        return digits > 0 ? loop::round(x * scale) / scale : loop::round(x / scale) * scale;
      })
      .samples({"self[3, 4], decimals=2", "self[5], decimals=0", "self[](-900, 900), decimals=-2"});
  define("frac(Tensor self) -> Tensor")
      .exact_out()
      .doc("The fraction: self - trunc(self), with the sign of self.")
      .dtypes(d::floating)
      .in_place()
      .pointwise([](Expr x) { return x - trunc(x); })
      .samples(unary_samples());
  define("isnan(Tensor self) -> Tensor")
      .dtypes(d::stored)
      .doc("Is the element NaN?")
      .result(ResultType::boolean)
      .in_place()
      .pointwise(
          [](Expr x) { return is_differentiable(x.dtype()) ? isnan(x) : constant(false, DType::Bool); })
      .samples(unary_samples());
  define("isinf(Tensor self) -> Tensor")
      .dtypes(d::stored)
      .doc("Is the element infinite?")
      .result(ResultType::boolean)
      .in_place()
      .pointwise(
          [](Expr x) { return is_differentiable(x.dtype()) ? isinf(x) : constant(false, DType::Bool); })
      .samples(unary_samples());
  define("isfinite(Tensor self) -> Tensor")
      .dtypes(d::stored)
      .doc("Is the element neither infinite nor NaN?")
      .result(ResultType::boolean)
      .in_place()
      .pointwise([](Expr x) {
        return is_differentiable(x.dtype()) ? bit_not(isnan(x) | isinf(x)) : constant(true, DType::Bool);
      })
      .samples(unary_samples());
  define("where(Tensor condition, Tensor|Scalar self, Tensor|Scalar other) -> Tensor")
      .exact_out()
      .doc("self where condition, else other.")
      .promote(Promote::none)
      .result([](const Call& c) {
        runtime_check(c.dtype("condition") == DType::Bool || c.dtype("condition") == DType::UInt8, "where")
            << "expected condition to be a boolean tensor, but got a tensor with dtype "
            << c.dtype("condition") << hint("condition != 0 is one");
        return std::vector<DType>{chosen_dtype(c)};
      })
      .check([](const Call& c) {
        if (c.dtype("condition") == DType::UInt8)
          warn_once(
              "where received a uint8 condition tensor. This behavior is deprecated and will be removed in a future version of PyTorch. "
              "Use a boolean condition instead.");
        // Numbers combined with 16-bit floats are rounded to them; others must fit.
        for (auto* n : {"self", "other"}) {
          auto& v = c[n];
          if (v.tag == Tag::tensor || (v.tag == Tag::scalar && std::abs(v.scalar.to_complex()) <= 127))
            continue;
          DType d = c.op().dtype_rule(c).at(0);
          if (compute_type(d) == d) must_fit(c, n);
        }
      })
      .pointwise([](const LoopCall& c, Expr cond, Expr a, Expr b) {
        DType t = compute_type(chosen_dtype(c));
        return select(truth(cond), cast(a, t), cast(b, t));
      })
      .samples({"condition?[3, 4], self[3, 4], other[4]", "condition?[5], self[5], other[5]",
                "condition?[], self[], other[]", "condition?[2, 0], self[2, 0], other[1]",
                "condition?[33, 65], self[33, 65], other[33, 1]"});
  define("lerp(Tensor self, Tensor end, Tensor|Scalar weight) -> Tensor")
      .doc("self + weight * (end - self), all of one dtype; exact where the weight is 0 or 1.")
      .grad_name([](const Call& c) { return grad_name("Lerp", is_number(c["weight"]) ? 0 : 1); })
      .dtypes(floats)
      .strict()
      .result([](const Call& c) {
        DType d = c.dtype("self");
        for (auto* name : {"end", "weight"})
          runtime_check(c.dtype(name) == d || (name[0] == 'w' && c.rank(name) == 0), "lerp")
              << "expected dtype " << d << " for `" << name << "` but got dtype " << c.dtype(name)
              << hint(name, ".to(facula.", d, ") converts");
        DType computed = computing_dtype(c.op(), c.args());
        runtime_check(computed == d, "lerp")
            << "a weight of dtype " << computed << " cannot be converted to type " << d;
        return std::vector<DType>{d};
      })
      .check(fitting_computed({"weight"}))
      .in_place()
      .pointwise([](Expr a, Expr b, Expr w) {
        Expr near = abs(w) < 0.5;  // from whichever end is nearer
        return fma(select(near, w, w - constant(int64_t(1), w.dtype())), b - a, select(near, a, b));
      })
      .samples(
          {"self[3, 4], end[4], weight[3, 1]", "self[], end[], weight[]", "self[5], end[5], weight=0.3"});
  define("_fused_multiply_add(Tensor self, Tensor other, Tensor addend) -> Tensor")
      .doc("self * other + addend, rounded once.")
      .bind(hidden)
      .dtypes(d::floating)
      .pointwise([](Expr a, Expr b, Expr c) { return fma(a, b, c); })
      .samples({"self[3, 4], other[4], addend[3, 1]"});
  define("addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor")
      .doc("self + value * tensor1 * tensor2.")
      .dtypes(d::numeric | d::half_complex)
      .check(fitting_computed({"value"}))
      .in_place()
      .pointwise([](Expr a, Expr b, Expr c, Expr v) { return fma(v * b, c, a); })
      .samples({"self[3, 4], tensor1[4], tensor2[3, 1]", "self[5], tensor1[5], tensor2[5], value=2",
                "self[0], tensor1[0], tensor2[0]"});
  define("addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor")
      .doc("self + value * tensor1 / tensor2.")
      .dtypes(floats)
      .check(fitting_computed({"value"}))
      .in_place()
      .pointwise([](Expr a, Expr b, Expr c, Expr v) { return a + v * b / c; })
      // value meets the divisor first: derived, an infinite quotient meets it, which may be 0.
      .vjp([](const Vjp& v) {
        const Value& value = v.call()["value"];
        Tensor over, under;
        if (v.needs("tensor1"))
          over = invoke("_addcdiv_backward_over",
                        {catalog::wide_if_repeated(v, "tensor1"), v["tensor2"], value});
        if (v.needs("tensor2"))
          under = invoke("_addcdiv_backward_under",
                         {catalog::wide_if_repeated(v, "tensor2"), v["tensor1"], v["tensor2"], value});
        return grads(v.grad(), over, under);
      })
      .samples({"self[3, 4], tensor1[4], tensor2[3, 1](0.5, 2)",
                "self[5], tensor1[5], tensor2[5](0.5, 2), value=2"});
  define("_addcdiv_backward_over(Tensor grad, Tensor tensor2, Scalar value) -> Tensor")
      .doc("The gradient of addcdiv for tensor1.")
      .bind(hidden)
      .dtypes(floats)
      .pointwise([](Expr g, Expr x, Expr v) { return g * conj(v / x); })
      .samples({"grad[3, 4], tensor2[3, 4](0.5, 2), value=2"});
  define("_addcdiv_backward_under(Tensor grad, Tensor tensor1, Tensor tensor2, Scalar value) -> Tensor")
      .doc("The gradient of addcdiv for tensor2.")
      .bind(hidden)
      .dtypes(floats)
      .pointwise([](Expr g, Expr a, Expr b, Expr v) { return -g * conj(v * a / (b * b)); })
      .samples({"grad[3, 4], tensor1[3, 4], tensor2[3, 4](0.5, 2), value=2"});
  // Conversions and copies.
  define("to_dtype(Tensor self, dtype dtype) -> Tensor")
      .dtypes(d::stored)
      .doc("self converted to `dtype`.")
      .check([](const Call& c) {
        if (is_complex(c.dtype("self")) && !is_complex(c["dtype"].dtype) && c["dtype"].dtype != DType::Bool)
          warn_once("Casting complex values to real discards the imaginary part");
      })
      .grad_name("ToCopy")
      .bind(hidden)
      .called("to")
      .promote(Promote::none)
      .result([](const Call& c) { return std::vector<DType>{c["dtype"].dtype}; })
      .pointwise([](const LoopCall& c, Expr x) { return converted(x, c["dtype"].dtype); })
      .samples({"self[3, 4], dtype=int32", "self[5], dtype=float64", "self[], dtype=float16",
                "self[0], dtype=complex64"});
  define("_unrounded(Tensor self, dtype dtype) -> Tensor")
      .dtypes(d::floating)
      .doc("self in `dtype`, float32 or a shorter one, but within a program as it was computed.")
      .bind(hidden)
      .promote(Promote::none)
      .result([](const Call& c) { return std::vector<DType>{c["dtype"].dtype}; })
      .pointwise([](Expr x) { return x; })
      .vjp([](const Vjp& v) { return grads(invoke("_unrounded", {v.grad(), v.call().dtype("self")})); })
      .undifferenced("its result has the dtype that is given")
      .samples({"self[3, 4], dtype=float32", "self[5], dtype=float32"});
  define("_accepted(Tensor self, Tensor zero) -> Tensor")
      .dtypes(d::stored)
      .doc("self; the kernel refuses the call if an element of zero, of int64, is another number.")
      .bind(hidden)
      .promote(Promote::none)
      .result([](const Call& c) { return std::vector<DType>{c.tensor("self").dtype()}; })
      .refuses(ErrorType::RuntimeError, {kNotZero})
      .pointwise([](Expr x, Expr zero) { return accepted(x, eq(zero, zero_like(zero)), kNotZero); })
      .samples({"self[3, 4], zero<1>[3, 4]"});
  define("copy(Tensor self, Tensor|Scalar src) -> Tensor")
      .dtypes(d::stored)
      .also("src", "other")
      .doc("The elements of src, broadcast to self's shape and converted to its dtype.")
      .moves()
      .promote(Promote::none)
      .result([](const Call& c) { return std::vector<DType>{c.tensor("self").dtype()}; })
      .in_place()
      .pointwise([](const LoopCall& c, Expr, Expr b) { return converted(b, c.dtype("self")); })
      .samples({"self[3, 4], src[4]", "self[], src[]", "self[2, 0], src[1, 1]"});
  define("_with_history(Tensor self, Tensor value) -> Tensor")
      .dtypes(d::stored)
      .doc("The numbers of value, with the gradient of self: what a write leaves that is not recorded.")
      .bind(hidden)
      .promote(Promote::none)
      .result([](const Call& c) { return std::vector<DType>{c.tensor("value").dtype()}; })
      .pointwise([](Expr, Expr b) { return b; })
      // The gradient is defined to pass unchanged to self.
      .vjp([](const Vjp& v) { return grads(v.grad(), Tensor()); })
      .undifferenced("it is that of other numbers")
      .samples({"self[3, 4], value[3, 4]"});
  define("fill(Tensor self, Tensor|Scalar value) -> Tensor")
      .grad_name([](const Call& c) { return grad_name("Fill", is_number(c["value"]) ? 0 : 1); })
      .dtypes(d::stored)
      .doc("A tensor like self with every element set to value.")
      .overlap(Overlap::uniform)
      .check(fitting({"value"}))
      .promote(Promote::none)
      .result([](const Call& c) {
        runtime_check(c["value"].tag != Tag::tensor || c.rank("value") == 0, "fill")
            << "only supports a 0-dimensional value tensor, but got tensor with " << c.rank("value")
            << " dimension(s)" << hint("copy_() takes a tensor of any shape");
        return std::vector<DType>{c.tensor("self").dtype()};
      })
      .in_place()
      .pointwise([](Expr a, Expr v) { return cast(v, a.dtype()); })
      .samples({"self[3, 4], value=2", "self[3, 4], value[]"});
  define("zero(Tensor self) -> Tensor")
      .dtypes(d::stored)
      .doc("A tensor like self full of zeros.")
      .overlap(Overlap::uniform)
      .in_place()
      .pointwise([](Expr a) { return zero_like(a); })
      .samples({"self[]", "self[5]", "self[2, 3, 4]", "self[2, 0, 3]"});
  define("masked_fill(Tensor self, Tensor mask, Tensor|Scalar value) -> Tensor")
      .grad_name([](const Call& c) { return grad_name("MaskedFill", is_number(c["value"]) ? 0 : 1); })
      .dtypes(d::stored)
      .overlap(Overlap::overwrites)
      .doc("value where mask, else self.")
      .check(fitting({"value"}))
      .promote(Promote::none)
      .result([](const Call& c) {
        bool tensor = c["value"].tag == Tag::tensor;
        runtime_check(!tensor || c.rank("value") == 0, "masked_fill")
            << "only supports a 0-dimensional value tensor, but got tensor with " << c.rank("value")
            << " dimension(s)";
        runtime_check(is_complex(c.dtype("self")) || !is_complex(operand_dtype(c["value"])), "masked_fill")
            << "value of dtype " << operand_dtype(c["value"]) << " cannot be converted to type "
            << c.dtype("self") << " without overflow";
        runtime_check(c.dtype("mask") == DType::Bool, "masked_fill")
            << "only supports boolean masks, but got mask with dtype " << c.dtype("mask")
            << hint("mask != 0 is one");
        return std::vector<DType>{c.tensor("self").dtype()};
      })
      .in_place()
      .pointwise([](Expr a, Expr m, Expr v) { return select(truth(m), cast(v, a.dtype()), a); })
      .samples({"self[3, 4], mask?[4], value=1.5", "self[3, 4], mask?[3, 4], value[]",
                "self[0], mask?[0], value=1"});
  define("_real(Tensor self) -> Tensor")
      .doc("The real part.")
      .bind(hidden)
      .dtypes(d::complex)
      .result(ResultType::real)
      .pointwise([](Expr x) { return real(x); })
      .samples(unary_samples());
  define("_imag(Tensor self) -> Tensor")
      .doc("The imaginary part.")
      .bind(hidden)
      .dtypes(d::complex)
      .result(ResultType::real)
      .pointwise([](Expr x) { return imag(x); })
      .samples(unary_samples());
  define("_conj_physical(Tensor self) -> Tensor")
      .doc("The conjugates of complex numbers, computed.")
      .bind(hidden)
      .dtypes(d::complex | d::half_complex)
      .pointwise([](Expr x) { return conj(x); })
      .samples(unary_samples());
}
