// Numerical calculus, products of vectors, and statistics of observations.
#include "facula/autograd/calls.h"
#include "facula/catalog/calculus_helpers.h"
#include "facula/catalog/matrices.h"
#include "facula/catalog/warns.h"
#include "facula/catalog/widened.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
using namespace facula::catalog::calculus_helpers;

namespace {
// ---- the trapezoid rule
struct Sides {
  Tensor left, right;
};
// Neighbours along dimension k; of fewer than two elements none.
Sides neighbours(const Tensor& t, int k) {
  SymInt n = t.size(k), pairs = max(n - SymInt(int64_t(1)), SymInt(int64_t(0)));
  return {narrow(t, k, int64_t(0), pairs), narrow(t, k, n - pairs, pairs)};
}
// The widths between neighbours of x along dimension k of y, and the sums of neighbours of y.
Tensor twice_areas(const Call& c, const Tensor& y, const Tensor& x, int k) {
  Tensor at = x;
  if (at.dim() == 1 && y.dim() != 1) {
    runtime_check(at.size(0) == y.size(k), c.name())
        << "there must be one `x` value for each sample point: x " << to_string(at.sizes()) << ", y "
        << to_string(y.sizes());
    Dims shape(size_t(y.dim()), SymInt(int64_t(1)));
    shape[size_t(k)] = at.size(0);
    at = view(at, shape);
  } else if (at.dim() < y.dim()) {
    Dims shape(size_t(y.dim() - at.dim()), SymInt(int64_t(1)));
    for (SymInt n : at.sizes()) shape.push_back(n);
    at = view(at, shape);
  }
  Sides of_x = neighbours(at, k), of_y = neighbours(y, k);
  return mul(sub(of_x.right, of_x.left), add(of_y.left, of_y.right));
}
Scalar half_of(const Scalar& x) {
  return x.category() == Category::complex ? Scalar(x.to_complex() / 2.0) : Scalar(x.to_double() / 2);
}
int trapezoid_dim(const Call& c, const Tensor& y) {
  index_check(y.dim() > 0, c.name()) << "`y` must have at least 1 dimension, got a 0-d tensor";
  return wrap_dim(c.name(), c.integer("dim").guard_int(), y.dim());
}
Tensor running_integral(const Tensor& y, const Scalar& dx, int k) {
  Sides s = neighbours(y, k);
  return cumsum(mul(add(s.left, s.right), half_of(dx)), k);
}
void check_not_bool(const Call& c, const Tensor& t) {
  runtime_check(t.dtype() != DType::Bool, c.name()) << "received a bool input, but bool is not supported";
}
// trapezoid and cumulative_trapezoid: of samples dx apart, or of what `gather` makes of the areas between those at x.
void define_trapezoid(const char* name, const char* doc, Tensor (*even)(const Tensor&, const Scalar&, int),
                      Tensor (*gather)(const Tensor&, int64_t)) {
  define(std::string(name) + ".x(Tensor y, Tensor x, *, int dim=-1) -> Tensor")
      .doc(doc)
      .bind(function)
      .grad_name("Div")
      .in_parts()
      .composite([even, gather](const Call& c, const Tensor& y, const Tensor& x) {
        check_not_bool(c, y);
        check_not_bool(c, x);
        int k = trapezoid_dim(c, y);
        if (y.size(k) == SymInt(int64_t(0))) return even(y, Scalar(1.0), k);
        return div(gather(twice_areas(c, y, x, k), k), 2.0);
      })
      .samples({"y[3, 4], x[4]", "y[3, 4], x[3, 1], dim=0"});
  define(std::string(name) + "(Tensor y, *, Scalar dx=1, int dim=-1) -> Tensor")
      .doc(doc)
      .bind(function)
      .procedure([even](const Call& c, const Tensor& y) {
        check_not_bool(c, y);
        if (const Value& said = c["dx"]; said.tag == Tag::integer && said.integer().is_symbolic())
          return autograd::invoke("mul", {even(y, Scalar(int64_t(1)), trapezoid_dim(c, y)), said});
        Scalar dx = c.number("dx");
        bool number = std::string_view(c.name()) == "trapz";  // whose dx is a float
        type_check(!number || dx.category() != Category::complex, c.name())
            << "dx must be a real number, got " << dx;
        runtime_check(number || dx.category() != Category::boolean, c.name()) << "dx must not be a bool";
        runtime_check(dx.category() != Category::complex, c.name())
            << "only dx as a real number is supported, got " << dx;
        return even(y, number ? Scalar(dx.to_double()) : dx, trapezoid_dim(c, y));
      })
      .samples({"y[3, 4]", "y[5], dx=0.5", "y[3, 1], dim=1"});
}
// ---- gradient: differences of neighbours, one-sided at both ends
struct Weights {  // of three neighbours
  Tensor a, b, c;
};
Tensor weighted(const Tensor& f, int k, int64_t from, SymInt n, const Weights& w) {
  auto at = [&](int64_t j) { return narrow(f, k, SymInt(from + j), n); };
  return add(add(mul(at(0), w.a), mul(at(1), w.b)), mul(at(2), w.c));
}
Tensor even_differences(const Tensor& f, int k, const Scalar& dx, int order) {
  SymInt n = f.size(k), last = n - SymInt(int64_t(1)), two = int64_t(2);
  auto at = [&](SymInt j) { return narrow(f, k, j, int64_t(1)); };
  Tensor centre = div(div(sub(narrow(f, k, two, n - two), narrow(f, k, int64_t(0), n - two)), dx), 2);
  Tensor begin, end;
  if (order == 1) {
    begin = sub(at(int64_t(1)), at(int64_t(0)));
    end = sub(at(last), at(last - SymInt(int64_t(1))));
  } else {
    begin = sub(sub(mul(at(int64_t(1)), 2.0), mul(at(int64_t(0)), 1.5)), mul(at(two), 0.5));
    end = sub(add(mul(at(last - two), 0.5), mul(at(last), 1.5)), mul(at(last - SymInt(int64_t(1))), 2.0));
  }
  return cat(std::vector<Tensor>{div(begin, dx), centre, div(end, dx)}, k);
}
Tensor rounded_once(const Tensor& f, int k, const Scalar& dx, int order) {
  if (!is_floating(f.dtype())) return even_differences(f, k, dx, order);
  return catalog::narrowed(even_differences(catalog::wide(f), k, dx, order), f.dtype());
}
Tensor uneven_differences(const Tensor& f, int k, const Tensor& x, int order) {
  SymInt n = f.size(k), one = int64_t(1);
  Sides sides = neighbours(x, 0);
  Dims shape(size_t(f.dim()), one);
  shape[size_t(k)] = n - one;
  Tensor dx = view(sub(sides.right, sides.left), shape);
  Tensor h = narrow(dx, k, int64_t(0), n - SymInt(int64_t(2))),
         g = narrow(dx, k, int64_t(1), n - SymInt(int64_t(2)));
  Tensor s = add(h, g);
  Tensor centre = weighted(f, k, 0, n - SymInt(int64_t(2)),
                           {div(neg(g), mul(h, s)), div(sub(g, h), mul(h, g)), div(h, mul(g, s))});
  auto at = [&](const Tensor& t, SymInt j) { return narrow(t, k, j, one); };
  Tensor begin, end;
  if (order == 1) {
    begin = div(sub(at(f, int64_t(1)), at(f, int64_t(0))), at(dx, int64_t(0)));
    end = div(sub(at(f, n - one), at(f, n - SymInt(int64_t(2)))), at(dx, n - SymInt(int64_t(2))));
  } else {
    Tensor p = at(h, int64_t(0)), q = at(g, int64_t(0)), r = add(p, q);
    begin = weighted(f, k, 0, one,
                     {div(neg(add(mul(p, 2), q)), mul(p, r)), div(r, mul(p, q)), div(neg(p), mul(q, r))});
    SymInt l = n - SymInt(int64_t(3));
    p = at(h, l), q = at(g, l), r = add(p, q);
    end = weighted(f, k, l.guard_int(), one,
                   {div(q, mul(p, r)), div(neg(r), mul(p, q)), div(add(mul(q, 2), p), mul(q, r))});
  }
  return cat(std::vector<Tensor>{begin, centre, end}, k);
}
Ints gradient_dims(const Call& c, const Tensor& self, std::optional<size_t> spacings) {
  Ints dims;
  if (c["dim"].is_none()) {
    for (int k = 0; k < self.dim(); ++k) dims.push_back(k);
  } else {
    for (SymInt k : c.ints("dim")) dims.push_back(wrap_dim(c.name(), k.guard_int(), self.dim()));
  }
  int64_t order = c.integer("edge_order").guard_int();
  runtime_check(order == 1 || order == 2, c.name())
      << "only supports edge_order=1 and edge_order=2, got " << order;
  runtime_check(!spacings || *spacings == dims.size(), c.name())
      << "expected spacing to be unspecified, a scalar, or a list of length equal to the number of dimensions, "
      << dims.size() << ", but got a list of " << *spacings;
  for (size_t k = 0; k < dims.size(); ++k) {
    runtime_check(std::count(dims.begin(), dims.end(), dims[k]) == 1, c.name())
        << "dim " << dims[k] << " appears multiple times in the list of dims";
    runtime_check(self.size(int(dims[k])) > SymInt(order), c.name())
        << "expected each dimension size to be at least edge_order+1, got shape " << to_string(self.sizes());
  }
  return dims;
}
Tensor correlation(const Tensor& c) {
  if (c.dim() == 0) return div(c, c);
  Tensor of = diagonal(c), deviation = sqrt(is_complex(c.dtype()) ? real(of) : of);
  Tensor scaled = div(div(c, unsqueeze(deviation, 1)), unsqueeze(deviation, 0));
  auto clipped = [](const Tensor& t) { return clamp(t, Scalar(-1.0), Scalar(1.0)); };
  if (!is_complex(c.dtype())) return clipped(scaled);
  return view_as_complex(stack(std::vector<Tensor>{clipped(real(scaled)), clipped(imag(scaled))}, -1));
}
}  // namespace

FACULA_FAMILY(calculus) {
  define("diff(Tensor self, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None) -> Tensor")
      .grad_name(
          [](const Call& c) { return grad_name(c.integer("n") == SymInt(int64_t(0)) ? "Clone" : "Sub"); })
      .doc("Differences of neighbours along `dim`, n times; of bool whether they differ.")
      .exact_out([](const Call& c) { return c.integer("n") == SymInt(int64_t(0)); })
      .in_parts()
      .composite([](const Tensor& self, int64_t n, int64_t dim, std::optional<Tensor> prepend,
                    std::optional<Tensor> append) {
        runtime_check(self.dim() > 0, "diff") << "expects input to be at least one-dimensional";
        runtime_check(n >= 0, "diff") << "order must be non-negative but got " << n;
        int k = wrap_dim("diff", dim, self.dim());
        std::vector<Tensor> parts;
        if (prepend) parts.push_back(*prepend);
        parts.push_back(self);
        if (append) parts.push_back(*append);
        Tensor x = n == 0 || parts.size() == 1 ? self : cat(parts, k);
        int64_t steps = 0;
        for (; steps < n && x.size(k) > SymInt(int64_t(0)); ++steps) {
          Sides s = neighbours(x, k);
          x = x.dtype() == DType::Bool ? logical_xor(s.right, s.left) : sub(s.right, s.left);
        }
        return steps ? x : clone(x);
      })
      .samples(
          {"self[5]", "self[3, 4], n=2, dim=0", "self[2, 3], prepend[2, 1], append[2, 2]", "self[4], n=0"});
  define_trapezoid("trapezoid",
                   "The integral along `dim` by the trapezoid rule, of samples dx apart or at x.", integral,
                   [](const Tensor& t, int64_t dim) { return sum(t, Sizes{dim}); });
  define_trapezoid("trapz", "The integral along `dim` by the trapezoid rule, of samples dx apart or at x.",
                   integral, [](const Tensor& t, int64_t dim) { return sum(t, Sizes{dim}); });
  define_trapezoid("cumulative_trapezoid",
                   "The running integral along `dim` by the trapezoid rule, of samples dx apart or at x.",
                   running_integral, [](const Tensor& t, int64_t dim) { return cumsum(t, dim); });
  define("gradient(Tensor self, *, Scalar? spacing=None, int[1]? dim=None, int edge_order=1) -> Tensor[]")
      .doc(
          "Derivatives along each of `dim` by differences of neighbours, of order 2 inside and `edge_order` at the ends.")
      .bind(function)
      .procedure([](const Call& c, const Tensor& self, std::optional<Scalar> spacing, Sizes, int64_t order) {
        std::vector<Tensor> out;
        for (int64_t k : gradient_dims(c, self, std::nullopt))
          out.push_back(rounded_once(self, int(k), spacing.value_or(Scalar(int64_t(1))), int(order)));
        return out;
      })
      .samples({"self[5]", "self[3, 4], spacing=0.5, edge_order=2", "self[3, 4], dim=[1]"});
  define(
      "gradient.spacings(Tensor self, *, Scalar[] spacing, int[1]? dim=None, int edge_order=1) -> Tensor[]")
      .doc("The same with a spacing for each dimension.")
      .bind(function)
      .procedure(
          [](const Call& c, const Tensor& self, const std::vector<Scalar>& spacing, Sizes, int64_t order) {
            std::vector<Tensor> out;
            Ints dims = gradient_dims(c, self, spacing.size());
            for (size_t k = 0; k < dims.size(); ++k)
              out.push_back(rounded_once(self, int(dims[k]), spacing[k], int(order)));
            return out;
          })
      .samples({"self[3, 4], spacing=[0.5, 2]"});
  define(
      "gradient.coordinates(Tensor self, *, Tensor[] spacing, int[1]? dim=None, int edge_order=1) -> Tensor[]")
      .grad_name("Cat")
      .doc("The same with the coordinates of the elements along each dimension.")
      .bind(function)
      .in_parts()
      .composite(
          [](const Call& c, const Tensor& self, const std::vector<Tensor>& spacing, Sizes, int64_t order) {
            std::vector<Tensor> out;
            Ints dims = gradient_dims(c, self, spacing.size());
            for (size_t k = 0; k < dims.size(); ++k) {
              auto& x = spacing[k];
              runtime_check(x.dim() == 1 && x.size(0) == self.size(int(dims[k])), c.name())
                  << "expected a coordinate for each of the " << self.size(int(dims[k]))
                  << " elements of dimension " << dims[k] << ", got shape " << to_string(x.sizes());
              out.push_back(uneven_differences(self, int(dims[k]), x, int(order)));
            }
            return out;
          })
      .samples({"self[3, 4], spacing{[3](0.1, 2), [4](0.1, 2)}"});
  define("dist(Tensor self, Tensor other, Scalar p=2) -> Tensor")
      .doc("The p-norm of self - other.")
      .composite([](const Tensor& self, const Tensor& other, const Scalar& p) {
        return norm(sub(self, other), std::optional<Scalar>(p));
      })
      .samples({"self[3, 4], other[4]", "self[3], other[3], p=1"});
  define("cov(Tensor self, *, int correction=1, Tensor? fweights=None, Tensor? aweights=None) -> Tensor")
      .doc(
          "The covariances of variables, the rows, over observations, the columns, repeated fweights times and weighted by aweights.")
      .check([](const Call& c) {
        int rank = c.rank("self");
        SymInt count = rank == 0 ? SymInt(int64_t(1)) : c.size("self", rank - 1);
        bool known = !count.is_symbolic() && !c.has("fweights") && !c.has("aweights");
        if (known && count <= c.integer("correction"))
          warn(
              "cov(): degrees of freedom is <= 0. Correction should be strictly less than the number of observations.");
      })
      .reads_data()
      .procedure([](const Tensor& self, int64_t correction, std::optional<Tensor> fweights,
                    std::optional<Tensor> aweights) {
        runtime_check(self.dim() <= 2, "cov")
            << "expected input to have two or fewer dimensions but got shape " << to_string(self.sizes());
        runtime_check(self.dtype() != DType::Bool, "cov") << "bool dtype is not supported for input";
        Tensor x = self.dim() == 2 ? self : reshape(self, Sizes{int64_t(1), self.numel()}), w;
        SymInt n = x.size(1);
        for (auto* given : {&fweights, &aweights}) {
          if (!*given) continue;
          const Tensor& t = **given;
          const char* name = given == &fweights ? "fweights" : "aweights";
          runtime_check(t.dim() <= 1, "cov")
              << "expected " << name << " to have one or fewer dimensions but got shape "
              << to_string(t.sizes());
          runtime_check(given == &fweights ? is_integral(t.dtype()) && t.dtype() != DType::Bool
                                           : is_floating(t.dtype()),
                        "cov")
              << "expected " << name << " to have " << (given == &fweights ? "integral" : "floating point")
              << " dtype but got " << t.dtype();
          runtime_check(t.numel() == n, "cov")
              << "expected " << name << " to have the same numel as there are observations: " << t.numel()
              << " != " << n;
          runtime_check(n == SymInt(int64_t(0)) || ge(amin(t), 0).item().to_bool(), "cov")
              << name << " cannot be negative";
          w = w.defined() ? mul(w, t) : t;
        }
        // Weights of fewer digits than the observations are summed with those of the observations.
        if (w.defined() && is_floating(w.dtype())) w = to_dtype(w, promote(real_of(x.dtype()), w.dtype()));
        Tensor total = w.defined() ? sum(w) : full(Dims{}, Scalar(n.guard_int()), DType::Int64);
        runtime_check(!w.defined() || ne(total, 0).item().to_bool(), "cov")
            << "weights sum to zero, can't be normalized";
        Tensor average = div(sum(w.defined() ? mul(x, w) : x, Sizes{int64_t(1)}), total);
        Tensor freedom = w.defined() && aweights && correction != 0
                             ? sub(total, div(mul(sum(mul(w, *aweights)), correction), total))
                             : sub(total, correction);
        if (le(freedom, 0).item().to_bool()) freedom = zeros_like(freedom);
        Tensor centred = sub(x, unsqueeze(average, 1));
        Tensor right = conjugate(transpose(w.defined() ? mul(centred, w) : centred, 0, 1));
        return squeeze(div(mm(to_dtype(centred, right.dtype()), right), freedom));
      })
      .samples({"self[3, 5]", "self[5], correction=0"});
  define("corrcoef(Tensor self) -> Tensor")
      .doc("The correlations of variables, the rows, over observations, the columns.")
      .reads_data()
      .procedure([](const Tensor& self) {
        runtime_check(self.dim() <= 2, "corrcoef")
            << "expected input to have two or fewer dimensions but got shape " << to_string(self.sizes());
        Tensor x = catalog::wide(self), y = correlation(cov(x));
        return x.dtype() == self.dtype() ? y : catalog::narrowed(y, self.dtype());
      })
      .samples({"self[3, 5]", "self[5]"});
}
