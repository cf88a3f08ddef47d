// Helpers for definitions in the catalog: shape rules of reductions, and reductions in one line.
//
//   define("amax(Tensor self, int[1] dim=(), bool keepdim=False) -> Tensor")
//       .shape(reduced())
//       .loop([](const LoopCall& c, Index i) {
//         return reduce_over(c, monoid::max, i, [&](Index j) { return c.load("self", j); });
//       });
//   define("mm(Tensor self, Tensor mat2) -> Tensor") ...
//         return reduce(c, monoid::sum, {c.size("self", 1)}, [&](Index k) {
//           return c.load("self", {i[0], k[0]}) * c.load("mat2", {k[0], i[1]}); });
#pragma once
#include <functional>
#include <initializer_list>
#include <string>

#include "facula/op/operator.h"

namespace facula::op {

// Raises RuntimeError if the number (if present) cannot be converted to the compute dtype of the call.
void must_fit(const Call& c, ParameterName number);
// The same for operators that compute with the number in the kernel's compute dtype: float32 for 16-bit floats.
void must_fit_computed(const Call& c, ParameterName number);
// The same for several numbers, as a `check`.
inline std::function<void(const Call&)> fitting(std::initializer_list<const char*> names) {
  return [numbers = std::vector<ParameterName>(names.begin(), names.end())](const Call& c) {
    for (auto& n : numbers) must_fit(c, n);
  };
}

inline std::function<void(const Call&)> fitting_computed(std::initializer_list<const char*> names) {
  return [numbers = std::vector<ParameterName>(names.begin(), names.end())](const Call& c) {
    for (auto& n : numbers) must_fit_computed(c, n);
  };
}

// Sizes of the operand `of` with the dimensions named by `dim` removed, or set to 1 if `keepdim` is true. `dim` may
// be an int, a list or None; an empty list and None mean all dimensions. An empty `keepdim` stands for False.
std::function<Dims(const Call&)> reduced(std::string dim = "dim", std::string keepdim = "keepdim",
                                         std::string of = "self");
Dims reduced_sizes(SymSpan sizes, IntSpan dims, bool keepdim);
SymInt reduced_count(SymSpan sizes, IntSpan dims);  // how many elements fold into one result

// A reduction domain: its bound variables, and the index that they form.
struct Domain {
  std::vector<loop::BoundVar> vars;
  Index at;                     // the variables
  loop::Expr position() const;  // row-major position within the domain, Int64
};
Domain domain(const LoopCall& c, SymSpan extents);

// Folds f(index within the domain), which gives an Expr or a std::vector<Expr> (the monoid's inputs).
template <class F>
loop::Expr reduce(loop::Monoid m, const Domain& b, F&& f) {
  return loop::reduce(m, b.vars, typed::expressions(f(b.at)));
}
template <class F>
loop::Expr reduce(const LoopCall& c, loop::Monoid m, std::initializer_list<SymInt> extents, F&& f) {
  return reduce(m, domain(c, SymSpan(extents.begin(), extents.size())), std::forward<F>(f));
}

// The dimensions of an operand that a call reduces; maps an index of the result to an index of the operand.
class Axes {
 public:
  Axes(const LoopCall& c, std::string_view dim = "dim", std::string_view keepdim = "keepdim",
       std::string_view of = "self");
  const Domain& domain() const { return domain_; }
  IntSpan dims() const { return dims_; }
  SymInt count() const;  // number of elements that fold into one result
  loop::Expr position() const { return domain_.position(); }
  // The operand's index of the element at `domain().at` for the result at `i`.
  Index join(const Index& i) const;
  // Folds f(index in the operand).
  template <class F>
  loop::Expr reduce(loop::Monoid m, const Index& i, F&& f) const {
    return loop::reduce(m, domain_.vars, typed::expressions(f(join(i))));
  }

 private:
  Ints dims_;
  bool keepdim_ = false;
  Dims sizes_;
  Domain domain_;
};

// Folds over the dimensions `dim` of `of`: the body of most reductions.
template <class F>
loop::Expr reduce_over(const LoopCall& c, loop::Monoid m, const Index& i, F&& f, std::string_view dim = "dim",
                       std::string_view keepdim = "keepdim", std::string_view of = "self") {
  return Axes(c, dim, keepdim, of).reduce(m, i, std::forward<F>(f));
}

// Inclusive fold of f(index) along dimension `d` up to the result's own index: cumsum and similar operators.
template <class F>
loop::Expr scan_over(const LoopCall& c, loop::Monoid m, const Index& i, int d, SymInt extent, F&& f) {
  int v = c.fresh();
  Index j = i;
  if (!j.empty()) j[size_t(d)] = loop::index(v);
  return loop::scan(m, d, {v, loop::size(extent)}, typed::expressions(f(j)));
}

// Row-major position of `at` in an index space of `sizes`, Int64.
loop::Expr linear_index(const Index& at, SymSpan sizes);
// `at` with dimension d replaced, inserted or removed.
Index with(Index at, int d, loop::Expr x);
Index inserted(Index at, int d, loop::Expr x);
Index without(Index at, int d);
// The same for sizes.
Dims with(SymSpan sizes, int d, SymInt n);
Dims inserted(SymSpan sizes, int d, SymInt n);
Dims without(SymSpan sizes, int d);
// An Int64 constant for arithmetic on indices.
inline loop::Expr integer(int64_t i) { return loop::constant(Scalar(i), DType::Int64); }

}  // namespace facula::op
