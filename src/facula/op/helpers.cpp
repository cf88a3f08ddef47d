#include "facula/op/helpers.h"

#include <algorithm>
#include <cmath>

#include "facula/sym/run_time.h"
#include "facula/tensor/promotion.h"

namespace facula::op {
namespace {

bool keeps(const Call& c, std::string_view keepdim) { return !keepdim.empty() && c.flag(keepdim); }

}  // namespace

Dims reduced_sizes(SymSpan sizes, IntSpan dims, bool keepdim) {
  Dims out;
  for (size_t d = 0; d < sizes.size(); ++d) {
    bool is_reduced = std::find(dims.begin(), dims.end(), int64_t(d)) != dims.end();
    if (!is_reduced) out.push_back(sizes[d]);
    else if (keepdim) out.push_back(1);
  }
  return out;
}

namespace {
// True for numbers that every dtype but uint8 can hold; uint8 wraps negative numbers.
bool is_small(const Value& v) {
  if (v.tag == Tag::integer) return !v.integer().is_symbolic() && std::abs(v.integer().concrete()) <= 127;
  if (v.tag != Tag::scalar) return true;
  const Scalar& s = v.scalar;
  return s.category() <= Category::integral
             ? !s.is_beyond_int64() && uint64_t(s.to_int()) + 127 <= 254
             : s.category() == Category::floating && std::abs(s.to_double()) <= 127;
}
DType taken_as(const Call& c) {
  auto& o = c.op();
  bool told = o.schema.index_of("dtype") >= 0 && c.maybe_dtype("dtype").has_value();
  return told                ? *c.maybe_dtype("dtype")
         : o.dtype_rule      ? o.dtype_rule(c).at(0)
         : o.is<Pointwise>() ? computing_dtype(o, c.args())
                             : c.all_tensors().at(0).dtype();
}
// The last one of the integers `sign`, 2 * `sign`, ... that fits; sizes are at most 2^60.
int64_t last_that_fits(DType d, int64_t sign) {
  int64_t last = 0;
  for (int64_t step = int64_t(1) << 60; step; step /= 2)
    if (last + step <= int64_t(1) << 60 && !overflows(Scalar(sign * (last + step)), d)) last += step;
  return sign * last;
}
void must_fit(const Call& c, ParameterName number, DType d) {
  auto check = [&](bool fits, const auto& value) {
    runtime_check(fits, c.name()) << "value cannot be converted to type " << name(d) << " without overflow: `"
                                  << number.text() << "` is " << value
                                  << hint("a tensor of a wider dtype holds it");
  };
  const Value& v = c[number];
  if (v.tag != Tag::integer || !v.integer().is_symbolic())
    return check(!overflows(v.number(), d), v.number());
  SymInt n = v.integer();
  bool fits = sym::may_be_at_most(n, last_that_fits(d, 1)) && sym::may_be_at_most(last_that_fits(d, -1), n);
  check(fits, n);
}
}  // namespace

void must_fit(const Call& c, ParameterName number) {
  if (!is_small(c[number])) must_fit(c, number, taken_as(c));
}
void must_fit_computed(const Call& c, ParameterName number) {
  if (!is_small(c[number])) must_fit(c, number, compute_type(taken_as(c)));
}

std::function<Dims(const Call&)> reduced(std::string dim, std::string keepdim, std::string of) {
  return [=](const Call& c) {
    runtime_check(c.rank(of) <= 64, c.name())
        << "only tensors with up to 64 dims are supported, got " << c.rank(of);
    return reduced_sizes(c.sizes(of), dim.empty() ? c.every_dim(of) : c.dims(dim, of), keeps(c, keepdim));
  };
}

SymInt reduced_count(SymSpan sizes, IntSpan dims) {
  SymInt n = int64_t(1);
  for (int64_t k : dims) n *= sizes[size_t(k)];
  return n;
}

loop::Expr Domain::position() const {
  loop::Expr p = integer(0);
  for (size_t k = 0; k < vars.size(); ++k) p = k == 0 ? at[0] : p * vars[k].extent + at[k];
  return p;
}

Domain domain(const LoopCall& c, SymSpan extents) {
  Domain b;
  for (SymInt n : extents) {
    int v = c.fresh();
    b.vars.push_back({v, loop::size(n)});
    b.at.push_back(loop::index(v));
  }
  return b;
}

Axes::Axes(const LoopCall& c, std::string_view dim, std::string_view keepdim, std::string_view of)
    : dims_(dim.empty() ? c.every_dim(of) : c.dims(dim, of)),
      keepdim_(keeps(c, keepdim)),
      sizes_(c.sizes(of)) {
  Dims extents;
  for (int64_t d : dims_) extents.push_back(sizes_[size_t(d)]);
  domain_ = op::domain(c, extents);
}

SymInt Axes::count() const {
  SymInt n = 1;
  for (int64_t d : dims_) n *= sizes_[size_t(d)];
  return n;
}

Index Axes::join(const Index& i) const {
  Index j;
  size_t from_result = 0, from_domain = 0;
  for (size_t d = 0; d < sizes_.size(); ++d) {
    if (from_domain < dims_.size() && dims_[from_domain] == int64_t(d)) {
      j.push_back(domain_.at[from_domain++]);
      from_result += keepdim_;
    } else {
      j.push_back(i[from_result++]);
    }
  }
  return j;
}

loop::Expr linear_index(const Index& at, SymSpan sizes) {
  loop::Expr p = integer(0);
  for (size_t d = 0; d < at.size(); ++d) p = d == 0 ? at[0] : p * loop::size(sizes[d]) + at[d];
  return p;
}

Index with(Index at, int d, loop::Expr x) {
  at[size_t(d)] = x;
  return at;
}
Index inserted(Index at, int d, loop::Expr x) {
  at.insert(at.begin() + d, x);
  return at;
}
Index without(Index at, int d) {
  at.erase(at.begin() + d);
  return at;
}
Dims with(SymSpan sizes, int d, SymInt n) {
  Dims out(sizes);
  out[size_t(d)] = n;
  return out;
}
Dims inserted(SymSpan sizes, int d, SymInt n) {
  Dims out(sizes);
  out.insert(size_t(d), n);
  return out;
}
Dims without(SymSpan sizes, int d) {
  Dims out(sizes);
  out.erase(size_t(d));
  return out;
}

}  // namespace facula::op
