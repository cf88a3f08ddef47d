// The transposes of views, which the tape calls: each embeds a gradient of the view's shape into zeros of the base's shape. The
// gradient of a transpose is the view itself, which moves no data.
#include "facula/op/helpers.h"
#include "facula/op/memory_overlap.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {

Dims input_sizes(const Call& c) {
  Dims sizes(c.ints("input_sizes"));
  for (auto& p : c.op().schema.parameters) {  // not negative: they were wrapped when the view was made
    if (!p.name.starts_with("dim")) continue;
    int64_t dim = c.integer(p.name).guard_int();
    index_check(dim >= 0 && dim < int64_t(sizes.size()), c.name())
        << p.name << " " << dim << " is not among the dimensions of " << to_string(sizes);
  }
  return sizes;
}
Expr number(SymInt s) { return size(s); }
Expr zero_of(const LoopCall& c) { return constant(Scalar(int64_t(0)), compute_type(c.dtype("grad"))); }

// A vector of memory with the elements of an operand in it.
Definition over_memory(const LoopCall& c, const char* operand, Scatter::Combine combine) {
  Definition d;
  d.rank = 1;
  Scatter s;
  s.combine = combine;
  s.domain = Dims(c.sizes(operand));
  Index at;
  Expr place = number(c.integer("offset"));
  auto strides = c.ints("stride");
  for (size_t k = 0; k < s.domain.size(); ++k) {
    at.push_back(loop::index(int(k)));
    place = place + at.back() * number(strides[k]);
  }
  s.target = {place};
  s.value = c.load(operand, at);
  d.scatter = s;
  return d;
}

}  // namespace

FACULA_FAMILY(view_backward) {
  define(
      "slice_backward(Tensor grad, SymInt[] input_sizes, int dim, SymInt start, SymInt end, SymInt step) -> Tensor")
      .dtypes(d::any | d::float8 | d::half_complex)
      .doc("Zeros of input_sizes with grad at start, start + step, ... of `dim`.")
      .bind(hidden)
      .shape(input_sizes)
      .loop([](const LoopCall& c, Index i) {
        auto d = size_t(c.integer("dim").guard_int());
        SymInt start = c.integer("start"), step = c.integer("step"), length = c.size("grad", int(d));
        if (SymInt::surely_equal(length, c.ints("input_sizes")[d])) return c.load("grad", i);
        Expr at = i[d] - number(start);
        Expr inside = (at >= integer(0)) & (at < number(length * step));
        if (!SymInt::surely_equal(step, 1)) {
          inside = inside & eq(remainder(at, number(step)), integer(0));
          at = floordiv(at, number(step));
        }
        return select(inside, c.load("grad", with(i, int(d), at)), zero_of(c));
      })
      .transposed_by("slice")
      .samples({"grad[2, 3], input_sizes=[5, 3], dim=0, start=1, end=4, step=2"});
  define("select_backward(Tensor grad, SymInt[] input_sizes, int dim, SymInt index) -> Tensor")
      .dtypes(d::any | d::float8 | d::half_complex)
      .doc("Zeros of input_sizes with grad at `index` of `dim`.")
      .bind(hidden)
      .shape(input_sizes)
      .loop([](const LoopCall& c, Index i) {
        int d = int(c.integer("dim").guard_int());
        return select(eq(i[size_t(d)], number(c.integer("index"))), c.load("grad", without(i, d)),
                      zero_of(c));
      })
      .transposed_by("select")
      .samples({"grad[2], input_sizes=[2, 3], dim=1, index=2"});
  define("diagonal_backward(Tensor grad, SymInt[] input_sizes, SymInt offset, int dim1, int dim2) -> Tensor")
      .dtypes(d::any | d::float8 | d::half_complex)
      .doc("Zeros of input_sizes with grad on the diagonal of dim1 and dim2.")
      .bind(hidden)
      .shape(input_sizes)
      .loop([](const LoopCall& c, Index i) {
        int a = int(c.integer("dim1").guard_int()), b = int(c.integer("dim2").guard_int());
        SymInt offset = c.integer("offset");
        Expr row = i[size_t(a)], column = i[size_t(b)];
        Expr on = eq(column - row, number(offset));
        Expr along = offset >= SymInt(int64_t(0)) ? row : column;
        Index at = without(without(i, std::max(a, b)), std::min(a, b));
        at.push_back(along);
        return select(on, c.load("grad", at), zero_of(c));
      })
      .transposed_by("diagonal")
      .samples({"grad[3], input_sizes=[3, 4], offset=0, dim1=0, dim2=1",
                "grad[2], input_sizes=[3, 4], offset=-1, dim1=0, dim2=1"});
  define("_strided_scatter(Tensor grad, SymInt[] stride, SymInt offset, SymInt numel) -> Tensor")
      .dtypes(d::any | d::float8 | d::half_complex)
      .doc(
          "A vector of numel zeros to which each element of grad is added at its place under `stride` and `offset`.")
      .bind(hidden)
      .shape([](const Call& c) { return Dims{c.integer("numel")}; })
      .loop([](const LoopCall& c) { return over_memory(c, "grad", Scatter::Combine::sum); })
      .samples({"grad[3, 3], stride=[1, 1], offset=0, numel=12"});
  define("_strided_memory(Tensor self, SymInt[] stride, SymInt offset, SymInt numel) -> Tensor")
      .dtypes(d::stored)
      .doc(
          "A vector of numel zeros with each element of self in its place under `stride` and `offset`; no two have the same.")
      .bind(hidden)
      .shape([](const Call& c) { return Dims{c.integer("numel")}; })
      .loop([](const LoopCall& c) { return over_memory(c, "self", Scatter::Combine::assign); })
      .samples({"self[3, 3], stride=[4, 1], offset=1, numel=14"});
  define(
      "as_strided_backward(Tensor grad, SymInt[] input_sizes, SymInt[] input_strides, SymInt input_offset, SymInt[] size, SymInt[] stride, "
      "SymInt offset) -> Tensor")
      .doc(
          "The gradient of as_strided: grad at the elements that the view shares with its input, summed where it shares them twice.")
      .bind(hidden)
      .procedure([](const Tensor& grad, SymSpan input_sizes, SymSpan input_strides, SymInt input_offset,
                    SymSpan, SymSpan stride, SymInt offset) {
        // Both geometries over one stretch of storage, which starts at the lower offset.
        SymInt start = min(input_offset, offset);
        SymInt in = input_offset - start, out = offset - start;
        SymInt numel = max(in + reach(input_sizes, input_strides), out + reach(grad.sizes(), stride));
        Tensor flat = _strided_scatter(grad, stride, out, numel);
        if (may_overlap(input_sizes,
                        input_strides)) {  // elements that the input holds several times share the gradient
          Tensor count =
              _strided_scatter(full(input_sizes, 1.0, real_of(grad.dtype())), input_strides, in, numel);
          flat = div(flat, clamp(count, 1.0));
        }
        return _row_major(as_strided(flat, input_sizes, input_strides, in));
      })
      .samples(
          {"grad[3, 3], input_sizes=[12], input_strides=[1], input_offset=0, size=[3, 3], stride=[1, 1], offset=0"});
}
