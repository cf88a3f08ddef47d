// Ranges of numbers.
#include <cmath>
#include <complex>

#include "facula/autograd/calls.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/op/registry.h"
#include "facula/ops.h"
#include "facula/sym/run_time.h"
#include "facula/tensor/promotion.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;

namespace {
DType linspace_dtype(const Call& c) {
  auto told = c.maybe_dtype("dtype");
  if (!is_complex(operand_dtype(c["start"])) && !is_complex(operand_dtype(c["end"])))
    return told.value_or(default_dtype());
  DType own = complex_of(default_dtype());
  runtime_check(!told || is_complex(*told), "linspace")
      << "start or end is complex: `dtype` must be a complex dtype, got '" << *told << "'";
  return told.value_or(own);
}
bool is_symbolic(const op::Value& v) { return v.tag == Tag::integer && v.integer().is_symbolic(); }
// arange over sizes of a traced function: its length is a size too, if start and end are integers and the step is a number.
Tensor range_of_sizes(const Call& c, const op::Value& start, const op::Value& step) {
  const op::Value& end = c["end"];
  auto integral = [](const op::Value& v) {
    return v.tag == Tag::integer || v.scalar.category() <= Category::integral;
  };
  SymInt none(int64_t(0));
  bool of_sizes = integral(start) && integral(end) && integral(step) && !is_symbolic(step);
  if (!of_sizes || step.integer() == none)  // of the numbers that they are in the example
    return arange(start.number(), end.number(), step.number(), c.maybe_dtype("dtype"));
  DType t = c.maybe_dtype("dtype").value_or(DType::Int64);
  supported_check((is_integral(t) || is_floating(t)) && !is_limited(t), "arange")
      << "not implemented for '" << t << "'";
  SymInt from = start.integer(), below = end.integer(), by = step.integer();
  SymInt span = by > none ? below - from : from - below, stride = max(by, -by);
  runtime_check(sym::may_be_at_most(none, span), "arange")
      << "upper bound and lower bound inconsistent with step sign: start " << from << ", end " << below
      << ", step " << by;
  SymInt count = (span + stride - SymInt(int64_t(1))) / stride;
  if (!is_symbolic(start)) return _arange(Scalar(from.concrete()), Scalar(by.concrete()), count, t);
  Tensor from_zero = _arange(Scalar(int64_t(0)), Scalar(by.concrete()), count, DType::Int64);
  return to(autograd::invoke("add", {from_zero, start}), t);
}
}  // namespace

FACULA_FAMILY(range) {
  define("_arange(Scalar start, Scalar step, SymInt n, dtype dtype) -> Tensor")
      .doc("start + k * step for k below n.")
      .bind(hidden)
      .result([](const Call& c) { return std::vector<DType>{*c.maybe_dtype("dtype")}; })
      .shape([](const Call& c) { return Dims{c.integer("n")}; })
      .loop([](const LoopCall& c, Index i) {
        DType t = compute_type(*c.maybe_dtype("dtype"));
        DType wide = is_floating(t) ? DType::Float64 : DType::Int64;
        return cast(c.scalar("start", wide) + cast(i[0], wide) * c.scalar("step", wide), t);
      })
      .samples({"start=0, step=2, n=5, dtype=int64"});
  define(
      "arange.step(Scalar start, Scalar end, Scalar step=1, *, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor")
      .doc("start, start + step, ... below end; int64 if all are integers.")
      .bind(function)
      .keeps_out_shape()
      .procedure([](const Call& c) {
        if (is_symbolic(c["start"]) || is_symbolic(c["end"])) return range_of_sizes(c, c["start"], c["step"]);
        Scalar start = c.number("start"), end = c.number("end"), step = c.number("step");
        bool integers = start.category() <= Category::integral && end.category() <= Category::integral &&
                        step.category() <= Category::integral;
        DType t = c.maybe_dtype("dtype").value_or(integers ? DType::Int64 : default_dtype());
        if (t == DType::Int64 && !integers) {  // as PyTorch: int64 numbers from the start
          start = Scalar(int64_t(start.to_double()));
          end = Scalar(int64_t(end.to_double()));
          step = Scalar(int64_t(step.to_double()));
          value_check(step.to_int() != 0, "arange") << "step must be nonzero, also as an integer";
          integers = true;
        }
        supported_check((is_integral(t) || is_floating(t)) && !is_limited(t), "arange")
            << "not implemented for '" << t << "'";
        for (auto& x : {start, end, step})
          runtime_check(x.category() <= Category::floating, "arange")
              << "value cannot be converted to type double without overflow: " << x;
        double a = start.to_double(), b = end.to_double(), s = step.to_double();
        runtime_check(s != 0, "arange") << "step must be nonzero";
        runtime_check(std::isfinite(a) && std::isfinite(b), "arange")
            << "unsupported range: " << a << " -> " << b;
        runtime_check((s > 0 && b >= a) || (s < 0 && b <= a), "arange")
            << "upper bound and lower bound inconsistent with step sign: start " << a << ", end " << b
            << ", step " << s;
        int64_t n = 0;
        runtime_check(std::ceil((b - a) / s) < 0x1p60, "arange")
            << "a range of " << std::ceil((b - a) / s) << " numbers does not fit into memory";
        if (integers) {
          __int128 span = __int128(end.to_int()) - start.to_int(), by = step.to_int();
          n = int64_t((span + by - (by > 0 ? 1 : -1)) / by);
        } else {
          n = int64_t(std::ceil((b - a) / s));
        }
        return _arange(start, step, n, t);
      })
      .samples({"start=1, end=10, step=3", "start=10, end=1, step=-4", "start=0, end=1, step=0.125"});
  define("arange(Scalar end, *, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor")
      .doc("0, 1, ... below end.")
      .bind(function)
      .keeps_out_shape()
      .procedure([](const Call& c) {
        if (is_symbolic(c["end"])) return range_of_sizes(c, Value(int64_t(0)), Value(int64_t(1)));
        Scalar end = c.number("end");
        return arange(end.category() <= Category::integral ? Scalar(int64_t(0)) : Scalar(0.0), end,
                      end.category() <= Category::integral ? Scalar(int64_t(1)) : Scalar(1.0),
                      c.maybe_dtype("dtype"));
      })
      .samples({"end=5", "end=5.5", "end=0"});
  define(
      "linspace(Scalar start, Scalar end, SymInt steps, *, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor")
      .doc("`steps` numbers from start to end, evenly spaced, both included.")
      .bind(function)
      .keeps_out_shape()
      .check(fitting({"start", "end"}))
      .result([](const Call& c) { return std::vector<DType>{linspace_dtype(c)}; })
      .shape([](const Call& c) {
        DType t = linspace_dtype(c);
        supported_check(t != DType::Bool && !is_limited(t), "linspace")
            << "not implemented for '" << t << "'";
        runtime_check(!(c.integer("steps") < SymInt(int64_t(0))), "linspace")
            << "number of steps must be non-negative, got " << c.integer("steps");
        return Dims{c.integer("steps")};
      })
      .loop([](const LoopCall& c, Index i) {
        DType t = compute_type(linspace_dtype(c)), wide = is_complex(t) ? DType::Complex128 : DType::Float64;
        Expr n = size(c.integer("steps")), start = c.scalar("start", wide), end = c.scalar("end", wide);
        if (is_integral(t)) start = cast(cast(start, t), wide), end = cast(cast(end, t), wide);
        Expr last = max(n - Scalar(int64_t(1)), Scalar(int64_t(1)));
        auto between = [&](Expr a, Expr b) {
          DType d = DType::Float64;
          Expr step = (b - a) / cast(last, d);
          // From both ends, so that the last value is exact.
          Expr from_start = a + cast(i[0], d) * step, from_end = b - cast(last - i[0], d) * step;
          return select(i[0] * Scalar(int64_t(2)) < last, from_start, from_end);
        };
        if (!is_complex(t)) return cast(between(start, end), t);
        Expr re = between(real(start), real(end)), im = between(imag(start), imag(end));
        return cast(cast(re, wide) + cast(im, wide) * constant(std::complex<double>(0, 1), wide), t);
      })
      .samples({"start=0, end=1, steps=7", "start=-3, end=5, steps=1", "start=2, end=2, steps=0",
                "start=0, end=2, steps=4, dtype=complex64"});
  define(
      "linspace.Tensor(Tensor start, Tensor end, SymInt steps, *, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor")
      .doc("`steps` numbers between two 0-d tensors.")
      .bind(function)
      .keeps_out_shape()
      .non_differentiable("PyTorch marks the result as not differentiable: it reads the ends as numbers")
      .reads_data()
      .procedure([](const Call& c, const Tensor& start, const Tensor& end, SymInt steps) {
        runtime_check(start.dim() == 0 && end.dim() == 0, "linspace")
            << "only supports 0-dimensional start and end tensors, but got start of shape "
            << to_string(start.sizes()) << " and end of shape " << to_string(end.sizes());
        return linspace(start.item(), end.item(), steps, c.maybe_dtype("dtype"));
      })
      .samples({"start[], end[], steps=5"});
  define(
      "logspace(Scalar start, Scalar end, SymInt steps, float base=10.0, *, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor")
      .doc("`steps` numbers from base^start to base^end, whose logarithms are evenly spaced.")
      .bind(function)
      .keeps_out_shape()
      .procedure([](const Call& c, Scalar start, Scalar end, SymInt steps, double base) {
        DType t = linspace_dtype(c);
        supported_check(t != DType::Bool && !is_limited(t), "logspace")
            << "not implemented for '" << t << "'";
        runtime_check(!(steps < SymInt(int64_t(0))), "logspace")
            << "number of steps must be non-negative, got " << steps;
        for (const Scalar& x : {start, end})
          runtime_check(!is_differentiable(t) || !overflows(x, compute_type(t)), "logspace")
              << "value " << x << " cannot be converted to " << t << " without overflow";
        auto whole = [&](Scalar x) { return is_integral(t) ? Scalar(double(int64_t(x.to_double()))) : x; };
        Tensor powers =
            linspace(whole(start), whole(end), steps, is_complex(t) ? DType::Complex128 : DType::Float64);
        return to_dtype(pow(Scalar(base), powers), t);
      })
      .samples({"start=0, end=1, steps=7", "start=-3, end=5, steps=1", "start=2, end=2, steps=0",
                "start=0, end=2, steps=4, base=2.0, dtype=float64"});
  define(
      "logspace.Tensor(Tensor|Scalar start, Tensor|Scalar end, SymInt steps, float base=10.0, *, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor")
      .doc("The same between 0-d tensors.")
      .bind(function)
      .keeps_out_shape()
      .non_differentiable("PyTorch marks the result as not differentiable: it reads the ends as numbers")
      .reads_data()
      .procedure([](const Call& c, const Tensor& start, const Tensor& end, SymInt steps, double base) {
        runtime_check(start.dim() == 0 && end.dim() == 0, "logspace")
            << "only supports 0-dimensional start and end tensors, but got start of shape "
            << to_string(start.sizes()) << " and end of shape " << to_string(end.sizes());
        return logspace(start.item(), end.item(), steps, base, c.maybe_dtype("dtype"));
      })
      .samples({"start[], end[], steps=5"});
}
