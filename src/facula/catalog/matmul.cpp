// Products of matrices and vectors.
#include <algorithm>
#include <cctype>
#include <map>

#include "facula/catalog/matrices.h"
#include "facula/catalog/no_derivative.h"
#include "facula/op/batched.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {

std::string swapped(SymSpan sizes) {
  Dims s(sizes);
  std::swap(s[s.size() - 2], s[s.size() - 1]);
  return to_string(SymSpan(s));
}

// self @ other fits: equal dtypes, and the dimension they share. Vectors count as a row on the left, a column
// on the right.
void check_product(const char* name, const char* left, const char* right, const Tensor& a, const Tensor& b) {
  runtime_check(a.dtype() == b.dtype(), name)
      << "expected `" << left << "` and `" << right << "` to have the same dtype, but got: " << a.dtype()
      << " != " << b.dtype() << hint(right, ".to(facula.", facula::name(a.dtype()), ") converts");
  SymInt inner = a.size(-1), other = b.dim() == 1 ? b.size(0) : b.size(-2);
  if (inner == other) return;
  std::string fix = b.dim() == 1 ? std::string("the vector must have ") + to_string(inner) + " elements"
                    : b.size(-1) == inner
                        ? std::string(right) + ".mT fits: " + swapped(b.sizes())
                        : std::string(right) + ".mT has shape " + swapped(b.sizes()) + "; " + left + " @ " +
                              right + ".mT would need " + left + " to end in " + to_string(b.size(-1));
  runtime_check(false, name) << "the last dimension of `" << left << "` must equal the "
                             << (b.dim() == 1 ? "size" : "second to last") << " of `" << right
                             << "`: " << to_string(a.sizes()) << " @ " << to_string(b.sizes()) << " ("
                             << inner << " vs " << other << ")." << hint(fix);
}

void check_rank(const char* name, const char* arg, const Tensor& t, int rank, const char* what) {
  index_check(t.dim() > 0 || rank < 2, name) << "`" << arg << "` must be " << what << ", got shape []";
  runtime_check(t.dim() == rank, name)
      << "`" << arg << "` must be " << what << ", got shape " << to_string(t.sizes());
}

Dims matrix_product(const Call& c, const char* left, const char* right) {
  Tensor a = c.tensor(left), b = c.tensor(right);
  check_rank(c.name(), left, a, 2, "a matrix");
  check_rank(c.name(), right, b, 2, "a matrix");
  check_product(c.name(), left, right, a, b);
  return Dims{a.size(0), b.size(1)};
}

Dims batch_product(const Call& c, const char* left, const char* right) {
  Tensor a = c.tensor(left), b = c.tensor(right);
  check_rank(c.name(), left, a, 3, "a 3-D batch of matrices");
  check_rank(c.name(), right, b, 3, "a 3-D batch of matrices");
  runtime_check(a.size(0) == b.size(0), c.name())
      << "`" << left << "` and `" << right << "` must have the same batch size: " << to_string(a.sizes())
      << " and " << to_string(b.sizes());
  check_product(c.name(), left, right, a, b);
  return Dims{a.size(0), a.size(1), b.size(2)};
}

// Batch dimensions broadcast against each other, then rows and columns.
Dims broadcast_product(const Call& c) {
  Tensor a = c.tensor("self"), b = c.tensor("other");
  check_product("matmul", "self", "other", a, b);
  Dims sizes = broadcast_sizes("matmul", std::vector<SymSpan>{a.sizes().first(size_t(a.dim() - 2)),
                                                              b.sizes().first(size_t(b.dim() - 2))});
  sizes.push_back(a.size(-2));
  sizes.push_back(b.size(-1));
  return sizes;
}

// The conjugate transpose of the last two dimensions; a view unless complex.
Tensor adjoint_of(const Tensor& x) {
  Tensor t = transpose(x, -2, -1);
  return is_complex(x.dtype()) ? conj_physical(t) : t;
}
Tensor conjugate(const Tensor& x) { return is_complex(x.dtype()) ? conj_physical(x) : x; }

Expr inner_product(const LoopCall& c, SymInt n, const std::function<Expr(Expr)>& a,
                   const std::function<Expr(Expr)>& b) {
  return reduce(c, monoid::sum, {n}, [&](Index k) { return a(k[0]) * b(k[0]); });
}

// Index of the element of an operand with `rank` dimensions and these sizes that meets index `i` when
// broadcast.
Index broadcast_index(const Index& i, SymSpan sizes) {
  Index j;
  for (size_t k = 0; k < sizes.size(); ++k)
    j.push_back(sizes[k] == SymInt(int64_t(1)) ? integer(0) : i[i.size() - sizes.size() + k]);
  return j;
}

void check_addend(const Call& c, const Dims& product, const char* left) {
  Tensor self = c.tensor("self");
  runtime_check(self.dtype() == c.dtype(left), c.name())
      << "expected `self` and `" << left << "` to have the same dtype, but got: " << self.dtype()
      << " != " << c.dtype(left);
  runtime_check(broadcasts_to(self.sizes(), product), c.name())
      << "`self` of shape " << to_string(self.sizes()) << " does not broadcast to the product's shape "
      << to_string(SymSpan(product));
}

// beta * self + alpha * product, where beta = 0 ignores self.
Expr with_addend(const LoopCall& c, const Index& i, Expr product) {
  DType t = product.dtype();
  Expr beta = c.scalar("beta", t), scaled = beta * c.load("self", broadcast_index(i, c.sizes("self")));
  return select(eq(beta, Scalar(int64_t(0))), constant(Scalar(int64_t(0)), t), scaled) +
         c.scalar("alpha", t) * product;
}

// Gradients of a product of (batches of) matrices.
Grads product_gradients(const Vjp& v) {
  auto& c = v.call();
  auto& p = c.op().schema.parameters;
  const std::string &left = p[0].name, &right = p[1].name;
  auto product = [&](const Tensor& a, const Tensor& b, const std::string& of) {
    Tensor g = call(c.op(), std::vector<Value>{a, b})[0];
    return g.dim() == 2 ? g : sum_to_size(g, c.sizes(of));
  };
  return grads(v.needs(left) ? product(v.grad(), adjoint_of(v[right]), left) : Tensor(),
               v.needs(right) ? product(adjoint_of(v[left]), v.grad(), right) : Tensor());
}

Sample product_sample(const char* left, std::vector<int64_t> a, const char* right, std::vector<int64_t> b) {
  return {{{left, op::tensor(std::move(a))}, {right, op::tensor(std::move(b))}}};
}

// ---- einsum: every operand permuted to [batch, kept, summed] matrices, contracted from left to right
struct Subscripts {
  std::vector<std::string> inputs;
  std::string output;
};

void check_subscripts(const Subscripts& s, std::string_view text, const std::vector<Tensor>& operands) {
  for (size_t k = 0; k < s.inputs.size(); ++k) {
    for (char ch : s.inputs[k])
      runtime_check(std::isalnum(static_cast<unsigned char>(ch)), "einsum")
          << "invalid subscript '" << ch << "' in \"" << std::string(text)
          << "\": letters and \"...\" are allowed";
    runtime_check(int(s.inputs[k].size()) == operands[k].dim(), "einsum")
        << "the number of subscripts \"" << s.inputs[k] << "\" does not match operand " << k << " of shape "
        << to_string(operands[k].sizes());
  }
  for (char ch : s.output) {
    bool known = std::any_of(s.inputs.begin(), s.inputs.end(),
                             [&](auto& in) { return in.find(ch) != std::string::npos; });
    runtime_check(known && std::count(s.output.begin(), s.output.end(), ch) == 1, "einsum")
        << "output subscript '" << ch << "' must appear in an input, and once in the output";
  }
}

void check_characters(std::string_view text) {
  for (size_t k = 0; k < text.size(); ++k)
    runtime_check(std::isalpha(static_cast<unsigned char>(text[k])) ||
                      std::string_view(" ,.->").find(text[k]) != std::string_view::npos,
                  "einsum")
        << "invalid subscript given at index " << k << " in the equation string \"" << std::string(text)
        << "\", subscripts must be in [a-zA-Z]";
}

Subscripts parse_equation(std::string_view text, const std::vector<Tensor>& operands) {
  check_characters(text);
  std::string eq;
  for (char ch : text)
    if (ch != ' ') eq += ch;
  Subscripts s;
  size_t arrow = eq.find("->");
  std::string left = eq.substr(0, arrow), current;
  for (char ch : left + ",") {
    if (ch == ',') {
      s.inputs.push_back(current);
      current.clear();
    } else current += ch;
  }
  runtime_check(s.inputs.size() == operands.size(), "einsum")
      << "the equation \"" << std::string(text) << "\" has " << s.inputs.size() << " operands, but "
      << operands.size() << " tensors were given";
  // "..." becomes digits, aligned at the right.
  size_t most = 0;
  std::vector<size_t> dots(s.inputs.size(), 0);
  for (size_t k = 0; k < s.inputs.size(); ++k) {
    size_t at = s.inputs[k].find("...");
    if (at == std::string::npos) continue;
    size_t named = s.inputs[k].size() - 3;
    runtime_check(size_t(operands[k].dim()) >= named, "einsum")
        << "operand " << k << " of shape " << to_string(operands[k].sizes())
        << " has fewer dimensions than \"" << s.inputs[k] << "\"";
    dots[k] = size_t(operands[k].dim()) - named;
    most = std::max(most, dots[k]);
  }
  runtime_check(most <= 9, "einsum") << "at most 9 dimensions can stand for \"...\"";
  auto digits = [&](size_t n) {
    std::string t;
    for (size_t i = most - n; i < most; ++i) t += char('0' + i);
    return t;
  };
  for (size_t k = 0; k < s.inputs.size(); ++k)
    if (size_t at = s.inputs[k].find("..."); at != std::string::npos)
      s.inputs[k].replace(at, 3, digits(dots[k]));
  if (arrow != std::string::npos) {
    s.output = eq.substr(arrow + 2);
    if (size_t at = s.output.find("..."); at != std::string::npos) s.output.replace(at, 3, digits(most));
  } else {
    std::map<char, int> count;
    for (auto& in : s.inputs)
      for (char ch : in) ++count[ch];
    s.output = digits(most);
    for (auto [ch, n] : count)
      if (n == 1 && std::isalpha(static_cast<unsigned char>(ch))) s.output += ch;
  }
  check_subscripts(s, text, operands);
  return s;
}

// Repeated subscripts of one operand: its diagonal.
void take_diagonals(Tensor& t, std::string& names) {
  for (size_t a = 0; a < names.size(); ++a)
    for (size_t b = names.size() - 1; b > a; --b)
      if (names[b] == names[a]) {
        runtime_check(t.size(int(a)) == t.size(int(b)), "einsum")
            << "subscript '" << names[a]
            << "' is repeated for dimensions of different sizes: " << to_string(t.sizes());
        t = movedim(diagonal(t, int64_t(0), int(a), int(b)), -1, int(a));
        names.erase(b, 1);
      }
}

Tensor contract(Tensor a, std::string in_a, Tensor b, std::string in_b, const std::string& keep,
                std::string& names) {
  auto has = [](const std::string& s, char ch) { return s.find(ch) != std::string::npos; };
  auto drop = [&](Tensor& t, std::string& own,
                  const std::string& other) {  // summed at once: in no other place
    Ints over;
    std::string left;
    for (size_t k = 0; k < own.size(); ++k) {
      if (has(other, own[k]) || has(keep, own[k])) left += own[k];
      else over.push_back(int64_t(k));
    }
    if (!over.empty()) t = sum(t, over);
    own = left;
  };
  drop(a, in_a, in_b);
  drop(b, in_b, in_a);
  std::string batch, rows, columns, inner;
  for (char ch : in_a) (has(in_b, ch) ? (has(keep, ch) ? batch : inner) : rows) += ch;
  for (char ch : in_b)
    if (!has(in_a, ch)) columns += ch;
  std::map<char, SymInt> size;
  auto note = [&](const Tensor& t, const std::string& own) {
    for (size_t k = 0; k < own.size(); ++k) {
      auto [it, fresh] = size.try_emplace(own[k], t.size(int(k)));
      if (fresh) continue;
      runtime_check(it->second == t.size(int(k)) || it->second == SymInt(int64_t(1)) ||
                        t.size(int(k)) == SymInt(int64_t(1)),
                    "einsum")
          << "subscript '" << own[k] << "' has size " << t.size(int(k)) << " for one operand and "
          << it->second << " for another";
      if (it->second == SymInt(int64_t(1))) it->second = t.size(int(k));
    }
  };
  note(a, in_a);
  note(b, in_b);
  auto arranged = [&](Tensor t, const std::string& own, const std::string& outer, const std::string& last) {
    Ints order;
    Dims full, to;
    SymInt first = int64_t(1), second = int64_t(1);
    for (char ch : batch) {
      order.push_back(int64_t(own.find(ch)));
      full.push_back(size[ch]);
      to.push_back(size[ch]);
    }
    for (char ch : outer) {
      order.push_back(int64_t(own.find(ch)));
      full.push_back(size[ch]);
      first *= size[ch];
    }
    for (char ch : last) {
      order.push_back(int64_t(own.find(ch)));
      full.push_back(size[ch]);
      second *= size[ch];
    }
    to.push_back(first);
    to.push_back(second);
    return reshape(expand(permute(t, order), full), to);
  };
  Tensor left = arranged(a, in_a, rows, inner), right = arranged(b, in_b, inner, columns);
  Tensor y = inner.empty() ? mul(left, right) : matmul(left, right);
  names = batch + rows + columns;
  Dims sizes;
  for (char ch : names) sizes.push_back(size[ch]);
  return reshape(y, sizes);
}

Tensor einsum_of(std::string_view equation, const std::vector<Tensor>& operands) {
  value_check(!operands.empty(), "einsum") << "must be given at least one tensor";
  Subscripts s = parse_equation(equation, operands);
  Tensor t = operands[0];
  std::string names = s.inputs[0];
  take_diagonals(t, names);
  for (size_t k = 1; k < operands.size(); ++k) {
    Tensor next = operands[k];
    std::string own = s.inputs[k], keep = s.output, result;
    take_diagonals(next, own);
    for (size_t j = k + 1; j < operands.size(); ++j) keep += s.inputs[j];
    t = contract(t, names, next, own, keep, result);
    names = result;
  }
  Ints over, order;
  std::string left;
  for (size_t k = 0; k < names.size(); ++k) {
    if (s.output.find(names[k]) == std::string::npos) over.push_back(int64_t(k));
    else left += names[k];
  }
  if (!over.empty()) t = sum(t, over);
  for (char ch : s.output) order.push_back(int64_t(left.find(ch)));
  return permute(t, order);
}

// ---- batches of calls (vmap)

// t with its batch in front and `rank` dimensions behind it; what is the same in all calls stays without a batch.
Tensor with_rank(const Batched& b, ParameterName arg, int rank) {
  Tensor t = b[arg];
  if (!b.is_batched(arg)) return t;
  Dims sizes{t.size(0)};
  for (int d = t.dim() - 1; d < rank; ++d) sizes.push_back(SymInt(int64_t(1)));
  for (int d = 1; d < t.dim(); ++d) sizes.push_back(t.size(d));
  return int(sizes.size()) == t.dim() ? t : view(t, sizes);
}

// The products of all calls: one of taller matrices where the right factor is the same in all.
Tensor products(const Batched& b, ParameterName left, ParameterName right) {
  auto& c = b.logical();
  int rank = std::max(c.rank(left), c.rank(right));
  Tensor x = b[left], y = b[right];
  if (!b.is_batched(left) && !b.is_batched(right)) return rank == 2 ? mm(x, y) : _matmul(x, y);
  if (rank == 2 && !b.is_batched(right)) {
    return view(mm(reshape(x, Sizes{x.size(0) * x.size(1), x.size(2)}), y),
                Sizes{x.size(0), x.size(1), y.size(1)});
  }
  x = with_rank(b, left, rank), y = with_rank(b, right, rank);
  return x.dim() == 3 && y.dim() == 3 ? bmm(x, y) : _matmul(x, y);
}

Tensor products_and_addend(const Batched& b, ParameterName left, ParameterName right) {
  auto& c = b.logical();
  Tensor product = products(b, left, right);
  Scalar beta = c.number("beta"), alpha = c.number("alpha");
  if (alpha.to_complex() != 1.0) product = mul(product, alpha);
  if (beta.to_complex() == 0.0) return product;
  Tensor addend = with_rank(b, "self", c.rank(left));
  return add(beta.to_complex() == 1.0 ? addend : mul(addend, beta), product);
}

Results linear_layers(const Batched& b) {
  if (!b.is_batched("weight") && !b.is_batched("bias"))
    return linear(b["input"], b["weight"], b["bias"].defined() ? MaybeTensor(b["bias"]) : MaybeTensor());
  if (!b.is_batched("weight")) {
    int rank = b.logical().rank("input");
    return add(linear(b["input"], b["weight"], MaybeTensor()), with_rank(b, "bias", rank));
  }
  Tensor x = b.whole("input"), w = b["weight"];
  SymInt rows = int64_t(1);
  for (int d = 1; d + 1 < x.dim(); ++d) rows *= x.size(d);
  Tensor y = bmm(reshape(x, Sizes{x.size(0), rows, x.size(-1)}), transpose(w, 1, 2));
  if (b["bias"].defined()) {
    Tensor bias = b["bias"];
    y = add(y, b.is_batched("bias") ? unsqueeze(bias, 1) : bias);
  }
  return reshape(y, with(x.sizes(), x.dim() - 1, w.size(1)));
}

}  // namespace

namespace {
Tensor scaled_product(const Tensor& a, const Tensor& b, const Tensor& scale_a, const Tensor& scale_b,
                      std::optional<Tensor> bias, std::optional<Tensor> scale_result,
                      std::optional<DType> wanted, bool) {
  constexpr const char* kName = "_scaled_mm";
  runtime_check(a.dim() == 2 && b.dim() == 2, kName)
      << "self and mat2 must be matrices, got " << to_string(a.sizes()) << " and " << to_string(b.sizes());
  runtime_check(a.size(1) == b.size(0), kName)
      << "shapes cannot be multiplied: " << to_string(a.sizes()) << " and " << to_string(b.sizes());
  auto is = [](const Tensor& t, SymInt rows, SymInt columns) {
    return t.dim() == 2 && t.size(0) == rows && t.size(1) == columns;
  };
  SymInt one = int64_t(1), m = a.size(0), n = b.size(1);
  bool whole = scale_a.numel() == one && scale_b.numel() == one,
       lines = is(scale_a, m, one) && is(scale_b, one, n);
  value_check(is_float8(a.dtype()) && is_float8(b.dtype()) && scale_a.dtype() == DType::Float32 &&
                  scale_b.dtype() == DType::Float32 && (whole || lines),
              kName)
      << "invalid scaling configuration: " << a.dtype() << " " << to_string(a.sizes()) << " with scales of "
      << scale_a.dtype() << " " << to_string(scale_a.sizes()) << ", " << b.dtype() << " "
      << to_string(b.sizes()) << " with scales of " << scale_b.dtype() << " " << to_string(scale_b.sizes())
      << hint("float8 matrices, and float32 scales of one element each, or of sizes [m, 1] and [1, n]");
  runtime_check(!bias || (bias->dim() == 1 && bias->size(0) == n), kName)
      << "bias must have size " << n << ", got " << to_string(bias->sizes());
  auto scale = [&](const Tensor& t) { return whole ? reshape(t, Dims{}) : t; };
  DType result = wanted.value_or(a.dtype());
  Tensor y = mm(to_dtype(a, DType::Float32), to_dtype(b, DType::Float32));
  y = mul(mul(y, scale(scale_a)), scale(scale_b));
  if (bias) y = add(y, to_dtype(*bias, DType::Float32));
  if (scale_result && is_float8(result)) y = div(y, reshape(*scale_result, Dims{}));
  return to_dtype(y, result);
}

// By the last of the steps that PyTorch takes.
std::string linear_name(const Call& c) {
  bool bias = c.has("bias");
  int rank = c.rank("input");
  if (rank == 2) return grad_name(bias ? "Addmm" : "Mm");
  if (!bias) return rank == 1 ? grad_name("Squeeze", 4) : grad_name("UnsafeView");
  return grad_name(c.tensor("input").is_contiguous() ? "View" : "Add");
}

std::string matmul_name(const Call& c) {
  int a = c.rank("self"), b = c.rank("other");
  if (a == 1 && b == 2) return grad_name("Squeeze", 4);
  if (a == 2 && b > 2) return grad_name("Clone");
  return a > 2 || b > 2 ? grad_name("UnsafeView") : "";
}
// PyTorch views a product, multiplies where nothing is summed, and sums what has one operand.
std::string einsum_name(const Call& c) {
  std::string_view equation = c.str("equation");
  size_t arrow = equation.find("->");
  auto given = equation.substr(0, arrow), kept = arrow == equation.npos ? "" : equation.substr(arrow);
  bool summed = false;
  for (char label : given) {
    bool letter = std::isalpha(static_cast<unsigned char>(label));
    summed |= letter && (arrow == equation.npos ? std::count(given.begin(), given.end(), label) > 1
                                                : kept.find(label) == kept.npos);
  }
  if (c.tensors("tensors").size() > 1) return grad_name(summed ? "View" : "Mul");
  return summed ? grad_name("Sum", 1) : "";
}

}  // namespace

FACULA_FAMILY(matmul) {
  define("mm(Tensor self, Tensor mat2) -> Tensor")
      .doc("Product of two matrices, [n, k] x [k, m] -> [n, m].")
      .autocast(Autocast::lower)
      .dtypes(d::numeric)
      .shape([](const Call& c) { return matrix_product(c, "self", "mat2"); })
      .library("mm")
      .batched([](const Batched& b) { return Results(products(b, "self", "mat2")); })
      .reference([](const LoopCall& c, Index i) {
        return inner_product(
            c, c.size("self", 1), [&](Expr k) { return c.load("self", {i[0], k}); },
            [&](Expr k) { return c.load("mat2", {k, i[1]}); });
      })
      .vjp(product_gradients)
      .samples(op::samples({product_sample("self", {5, 7}, "mat2", {7, 3}),
                            product_sample("self", {33, 65}, "mat2", {65, 40}),
                            product_sample("self", {4, 0}, "mat2", {0, 3})}));
  define("bmm(Tensor self, Tensor mat2) -> Tensor")
      .doc("Products of matrices pair by pair, [b, n, k] x [b, k, m] -> [b, n, m].")
      .autocast(Autocast::lower)
      .dtypes(d::numeric)
      .shape([](const Call& c) { return batch_product(c, "self", "mat2"); })
      .library("bmm")
      .batched([](const Batched& b) { return Results(products(b, "self", "mat2")); })
      .reference([](const LoopCall& c, Index i) {
        return inner_product(
            c, c.size("self", 2), [&](Expr k) { return c.load("self", {i[0], i[1], k}); },
            [&](Expr k) { return c.load("mat2", {i[0], k, i[2]}); });
      })
      .vjp(product_gradients)
      .samples(op::samples({product_sample("self", {3, 5, 7}, "mat2", {3, 7, 2}),
                            product_sample("self", {0, 5, 7}, "mat2", {0, 7, 2}),
                            product_sample("self", {2, 4, 0}, "mat2", {2, 0, 3})}));
  define("_matmul(Tensor self, Tensor other) -> Tensor")
      .doc(
          "Products of matrices whose batch dimensions broadcast, [..., n, k] x [..., k, m] -> [..., n, m]; both have at least 2 dimensions.")
      .grad_name([](const Call& c) {
        return grad_name(c.rank("self") == 2 && c.rank("other") == 2 ? "Mm" : "UnsafeView");
      })
      .bind(hidden)
      .dtypes(d::numeric)
      .shape(broadcast_product)
      .library("bmm")
      .batched([](const Batched& b) { return Results(products(b, "self", "other")); })
      .reference([](const LoopCall& c, Index i) {
        size_t r = i.size();
        auto at = [&](const char* arg, Expr row, Expr column) {
          auto sizes = c.sizes(arg);
          Index j = broadcast_index(Index(i.begin(), i.end() - 2), sizes.first(sizes.size() - 2));
          j.push_back(row);
          j.push_back(column);
          return c.load(arg, j);
        };
        return inner_product(
            c, c.size("self", -1), [&](Expr k) { return at("self", i[r - 2], k); },
            [&](Expr k) { return at("other", k, i[r - 1]); });
      })
      .vjp(product_gradients)
      .samples(op::samples({product_sample("self", {2, 3, 4, 5}, "other", {3, 5, 2}),
                            product_sample("self", {2, 1, 4, 5}, "other", {3, 5, 2}),
                            product_sample("self", {4, 5}, "other", {3, 5, 2})}));
  define("dot(Tensor self, Tensor tensor) -> Tensor")
      .doc("Sum of the products of two vectors.")
      .dtypes(d::numeric)
      .shape([](const Call& c) {
        Tensor a = c.tensor("self"), b = c.tensor("tensor");
        runtime_check(a.dim() == 1 && b.dim() == 1, "dot")
            << "1D tensors expected, but got shapes " << to_string(a.sizes()) << " and "
            << to_string(b.sizes());
        runtime_check(a.dtype() == b.dtype(), "dot")
            << "expected both vectors to have the same dtype, but found " << a.dtype() << " and "
            << b.dtype();
        runtime_check(a.size(0) == b.size(0), "dot")
            << "inconsistent tensor size, expected `self` and `tensor` to have the same number of elements, but got "
            << a.size(0) << " and " << b.size(0) << " elements";
        return Dims{};
      })
      .loop([](const LoopCall& c, Index) {
        return reduce(c, monoid::sum, {c.size("self", 0)},
                      [&](Index k) { return c.load("self", k) * c.load("tensor", k); });
      })
      .samples(op::samples({product_sample("self", {11}, "tensor", {11})}));
  define("mv(Tensor self, Tensor vec) -> Tensor")
      .grad_name("Mv")
      .doc("Matrix times vector, [n, k] x [k] -> [n].")
      .autocast(Autocast::as_is)
      .procedure([](const Tensor& self, const Tensor& vec) {
        check_rank("mv", "self", self, 2, "a matrix");
        check_rank("mv", "vec", vec, 1, "a vector");
        check_product("mv", "self", "vec", self, vec);
        return squeeze(mm(self, unsqueeze(vec, 1)), 1);
      })
      .samples({"self[3, 4], vec[4]", "self[0, 4], vec[4]", "self[3, 0], vec[0]"});
  define("_matrix_vector(Tensor self, Tensor vec, Tensor? addend, *, Scalar beta, Scalar alpha) -> Tensor")
      .doc(
          "beta * addend + alpha * (self @ vec) for a matrix and a vector, summed and rounded once, in one sweep over the matrix.")
      .bind(hidden)
      .dtypes(d::numeric)
      .non_differentiable()
      .undifferenced("addmv and its kind compute their gradient themselves")
      .shape([](const Call& c) { return Dims{c.size("self", 0)}; })
      .loop([](const LoopCall& c, Index i) {
        Expr y = inner_product(
            c, c.size("self", 1), [&](Expr k) { return c.load("self", {i[0], k}); },
            [&](Expr k) { return c.load("vec", {k}); });
        y = c.scalar("alpha", y.dtype()) * y;
        if (!c.has("addend")) return y;
        return y + c.scalar("beta", y.dtype()) * c.load("addend", broadcast_index(i, c.sizes("addend")));
      })
      .samples({"self[3, 4], vec[4], addend[3], beta=2, alpha=0.5",
                "self[3, 4], vec[4], addend=None, beta=0, alpha=1"});
  define("outer(Tensor self, Tensor vec2) -> Tensor")
      .converting_out()
      .doc("All products of the elements of two vectors, [n] x [m] -> [n, m].")
      .alias("ger")
      .procedure([](const Tensor& self, const Tensor& vec2) {
        check_rank("outer", "self", self, 1, "a vector");
        check_rank("outer", "vec2", vec2, 1, "a vector");
        return mul(unsqueeze(self, 1), vec2);
      })
      .samples({"self[3], vec2[4]", "self[0], vec2[4]"});
  define("inner(Tensor self, Tensor other) -> Tensor")
      .doc(
          "Sums of the products along the last dimensions: [*a, k] and [*b, k] -> [*a, *b]; with a 0-d tensor, the product.")
      .exact_out([](const Call& c) { return c.rank("self") && c.rank("other"); })
      .autocast([](const Call& c, DType) {  // of vectors it is dot, which is not lowered
        return c.rank("self") == 1 && c.rank("other") == 1 ? Autocast::as_is : Autocast::inherit;
      })
      .procedure([](const Tensor& self, const Tensor& other) {
        if (!self.dim() || !other.dim()) return mul(self, other);
        runtime_check(self.size(-1) == other.size(-1), "inner")
            << "the last dimension must match on both input tensors but got shapes "
            << to_string(self.sizes()) << " and " << to_string(other.sizes());
        auto rows = [](const Tensor& t) {
          return reshape(t, Sizes{product(t.sizes().first(t.sizes().size() - 1)), t.size(-1)});
        };
        Dims sizes(self.sizes().first(self.sizes().size() - 1));
        for (auto n : other.sizes().first(other.sizes().size() - 1)) sizes.push_back(n);
        return reshape(mm(rows(self), transpose(rows(other), 0, 1)), sizes);
      })
      .samples({"self[3], other[3]", "self[2, 3], other[4, 3]", "self[2, 1, 3], other[3]", "self[], other[3]",
                "self[2, 0], other[3, 0]"});
  define("matmul(Tensor self, Tensor other) -> Tensor")
      .doc("Product of vectors, matrices, or batches of matrices whose batch dimensions broadcast.")
      .grad_name(matmul_name)
      .autocast(Autocast::lower)
      .procedure([](const Tensor& self, const Tensor& other) {
        int a = self.dim(), b = other.dim();
        runtime_check(a > 0 && b > 0, "matmul") << "both arguments need to be at least 1D, but they are " << a
                                                << "D and " << b << "D" << hint("* multiplies by a number");
        check_product("matmul", "self", "other", self, other);
        if (a == 1 && b == 1) return dot(self, other);
        if (a == 2 && b == 2) return mm(self, other);
        if (a == 2 && b == 1) return mv(self, other);
        if (a == 1) return squeeze(matmul(unsqueeze(self, 0), other), -2);
        if (b == 1) return squeeze(matmul(self, unsqueeze(other, 1)), -1);
        if (b == 2) {  // one product of all rows
          SymInt rows = product(self.sizes().first(size_t(a - 1)));
          Dims sizes(self.sizes());
          sizes[size_t(a - 1)] = other.size(1);
          return reshape(mm(reshape(self, {rows, self.size(-1)}), other), sizes);
        }
        return _matmul(self, other);
      })
      .samples({"self[3], other[3]", "self[2, 3], other[3]", "self[3], other[3, 2]",
                "self[2, 3], other[3, 4]", "self[5, 2, 3], other[3]", "self[5, 1, 2, 3], other[4, 3, 2]",
                "self[0, 3], other[3, 4]", "self[2, 0], other[0, 4]", "self[33, 65], other[65, 17]"});
  define("addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor")
      .check(fitting({"beta", "alpha"}))
      .doc("beta * self + alpha * (mat1 @ mat2); self broadcasts; beta = 0 ignores it.")
      .autocast(Autocast::lower)
      .dtypes(d::numeric)
      .in_place()
      .shape([](const Call& c) {
        Dims sizes = matrix_product(c, "mat1", "mat2");
        check_addend(c, sizes, "mat1");
        return sizes;
      })
      .library("addmm")
      .batched([](const Batched& b) { return Results(products_and_addend(b, "mat1", "mat2")); })
      .reference([](const LoopCall& c, Index i) {
        return with_addend(c, i,
                           inner_product(
                               c, c.size("mat1", 1), [&](Expr k) { return c.load("mat1", {i[0], k}); },
                               [&](Expr k) { return c.load("mat2", {k, i[1]}); }));
      })
      .vjp(catalog::matrices::gradients_of_sum_with_product)
      .samples({"self[4], mat1[3, 2], mat2[2, 4], beta=0.5, alpha=2", "self[3, 4], mat1[3, 2], mat2[2, 4]"});
  define(
      "_scaled_mm(Tensor self, Tensor mat2, Tensor scale_a, Tensor scale_b, Tensor? bias=None, Tensor? scale_result=None, dtype? out_dtype=None, bool use_fast_accum=False) -> Tensor")
      .doc(
          "Product of two float8 matrices, each scaled: as a whole (scales of one element) or by rows of self, [m, 1], and columns of mat2, [1, n]. Summed in float32; without out_dtype of self's dtype. A float8 result is divided by scale_result.")
      .bind(function)
      .bad_conversion(ErrorType::ValueError)
      .grad_name(catalog::not_implemented())
      .vjp(catalog::NoDerivative{"aten::_scaled_mm"})
      .composite(scaled_product);
  define("baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor")
      .check(fitting({"beta", "alpha"}))
      .doc("beta * self + alpha * bmm(batch1, batch2); self broadcasts; beta = 0 ignores it.")
      .autocast(Autocast::lower)
      .dtypes(d::numeric)
      .in_place()
      .shape([](const Call& c) {
        Dims sizes = batch_product(c, "batch1", "batch2");
        check_addend(c, sizes, "batch1");
        return sizes;
      })
      .library("baddbmm")
      .batched([](const Batched& b) { return Results(products_and_addend(b, "batch1", "batch2")); })
      .reference([](const LoopCall& c, Index i) {
        return with_addend(c, i,
                           inner_product(
                               c, c.size("batch1", 2),
                               [&](Expr k) { return c.load("batch1", {i[0], i[1], k}); },
                               [&](Expr k) { return c.load("batch2", {i[0], k, i[2]}); }));
      })
      .vjp(catalog::matrices::gradients_of_sum_with_product)
      .samples({"self[4], batch1[5, 3, 2], batch2[5, 2, 4], alpha=2",
                "self[5, 3, 4], batch1[5, 3, 2], batch2[5, 2, 4]"});
  define("addbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor")
      .grad_name("Addbmm")
      .check(fitting({"beta", "alpha"}))
      .doc(
          "beta * self + alpha * the sum of bmm(batch1, batch2) over the batch; self broadcasts; beta = 0 ignores it.")
      .autocast(Autocast::lower)
      .dtypes(d::numeric)
      .in_place()
      .procedure([](const Tensor& self, const Tensor& batch1, const Tensor& batch2, const Scalar& beta,
                    const Scalar& alpha) {
        check_rank("addbmm", "batch1", batch1, 3, "a batch of matrices");
        check_rank("addbmm", "batch2", batch2, 3, "a batch of matrices");
        runtime_check(batch1.size(0) == batch2.size(0) && batch1.size(2) == batch2.size(1), "addbmm")
            << "batch1 and batch2 must be batches of matrices that can be multiplied, got "
            << to_string(batch1.sizes()) << " and " << to_string(batch2.sizes());
        // If a factor is infinite, the order of multiplication and addition matters.
        if (!is_complex(self.dtype()) &&
            !(std::isfinite(alpha.to_double()) && std::isfinite(beta.to_double()))) {
          Tensor sum = self;
          Scalar first = beta;
          for (int64_t k = 0; k < batch1.size(0).guard_int(); ++k, first = Scalar(int64_t(1)))
            sum = addmm(sum, select(batch1, 0, SymInt(k)), select(batch2, 0, SymInt(k)), first, alpha);
          if (!sum.is_same(self)) return sum;
        }
        // The batch becomes part of the inner dimension: one product of [n, b k] and [b k, m].
        SymInt inner = batch1.size(0) * batch1.size(2);
        Tensor left = reshape(transpose(batch1, 0, 1), Sizes{batch1.size(1), inner}),
               right = reshape(batch2, Sizes{inner, batch2.size(2)});
        return addmm(self, left, right, beta, alpha);
      })
      .samples({"self[4], batch1[5, 3, 2], batch2[5, 2, 4], alpha=2",
                "self[3, 4], batch1[5, 3, 2], batch2[5, 2, 4], beta=0.5"});
  define("vdot(Tensor self, Tensor other) -> Tensor")
      .grad_name("Vdot")
      .doc("Sum of the products of two vectors, the first conjugated.")
      .procedure([](const Tensor& self, const Tensor& other) {
        return dot(is_complex(self.dtype()) ? conj_physical(self) : self, other);
      })
      .samples({"self[5], other[5]"});
  define("addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor")
      .grad_name("Addmv")
      .check(fitting({"beta", "alpha"}))
      .doc("beta * self + alpha * (mat @ vec); beta = 0 ignores self.")
      .autocast(Autocast::as_is)
      .in_place()
      .procedure([](const Tensor& self, const Tensor& mat, const Tensor& vec, const Scalar& beta,
                    const Scalar& alpha) {
        check_rank("addmv", "mat", mat, 2, "a matrix");
        check_rank("addmv", "vec", vec, 1, "a vector");
        check_product("addmv", "mat", "vec", mat, vec);
        return squeeze(addmm(self.dim() ? unsqueeze(self, 1) : self, mat, unsqueeze(vec, 1), beta, alpha), 1);
      })
      .samples({"self[3], mat[3, 4], vec[4], beta=2"});
  define("linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor")
      .doc("input [*, in] times the transpose of weight [out, in], plus bias [out].")
      .grad_name(linear_name)
      .autocast(Autocast::lower)
      .bind(nn_functional)
      .dtypes(d::numeric)
      .shape([](const Call& c) {
        Tensor x = c.tensor("input"), w = c.tensor("weight");
        runtime_check(x.dim() > 0, "linear") << "`input` must have at least 1 dimension, got a 0-d tensor";
        check_rank("linear", "weight", w, 2, "a matrix [out_features, in_features]");
        runtime_check(x.dtype() == w.dtype(), "linear")
            << "expected `input` and `weight` to have the same dtype, but got: " << x.dtype()
            << " != " << w.dtype() << hint("input.to(facula.", facula::name(w.dtype()), ") converts");
        runtime_check(x.size(-1) == w.size(1), "linear")
            << "the last dimension of `input` must equal in_features: input " << to_string(x.sizes())
            << ", weight " << to_string(w.sizes()) << " (" << x.size(-1) << " vs " << w.size(1) << ").";
        if (c.has("bias")) {
          Tensor b = c.tensor("bias");
          runtime_check(b.dtype() == w.dtype() && b.dim() == 1 && b.size(0) == w.size(0), "linear")
              << "`bias` must be " << w.dtype() << " of shape [" << w.size(0) << "] for weight "
              << to_string(w.sizes()) << ", got " << b.dtype() << " of shape " << to_string(b.sizes());
        }
        return with(x.sizes(), x.dim() - 1, w.size(0));
      })
      .library("linear")
      .batched(linear_layers)
      .reference([](const LoopCall& c, Index i) {
        size_t last = i.size() - 1;
        Expr y = inner_product(
            c, c.size("weight", 1), [&](Expr k) { return c.load("input", with(i, int(last), k)); },
            [&](Expr k) { return c.load("weight", {i[last], k}); });
        return c.has("bias") ? y + c.load("bias", {i[last]}) : y;
      })
      .vjp([](const Vjp& v) {
        auto& c = v.call();
        auto sizes = c.sizes("input");
        SymInt rows = product(sizes.first(sizes.size() - 1)), in = c.size("weight", 1),
               out = c.size("weight", 0);
        Tensor g = sizes.size() == 2 ? v.grad() : reshape(v.grad(), {rows, out});
        Grads result(3);
        if (v.needs("input")) {
          Tensor x = mm(g, conjugate(v["weight"]));
          result[0] = sizes.size() == 2 ? x : reshape(x, sizes);
        }
        if (v.needs("weight"))
          result[1] = mm(transpose(g, 0, 1),
                         conjugate(sizes.size() == 2 ? v["input"] : reshape(v["input"], {rows, in})));
        if (v.needs("bias")) result[2] = sum(g, 0);
        return result;
      })
      .samples(op::samples(
          {{{{"input", op::tensor({4, 5})}, {"weight", op::tensor({3, 5})}, {"bias", op::tensor({3})}}},
           {{{"input", op::tensor({2, 3, 5})}, {"weight", op::tensor({4, 5})}}},
           {{{"input", op::tensor({5})}, {"weight", op::tensor({4, 5})}, {"bias", op::tensor({4})}}}}));
  define("einsum(str equation, Tensor[] tensors) -> Tensor")
      .doc("Sums of products over named dimensions, for example einsum('bij,bjk->bik', [a, b]).")
      .grad_name(einsum_name)
      .bind(function)
      .procedure([](std::string_view equation, const std::vector<Tensor>& tensors) {
        return einsum_of(equation, tensors);
      })
      .samples({"equation='ij,jk->ik', tensors{[2, 3], [3, 4]}",
                "equation='bij,bjk->bik', tensors{[5, 2, 3], [5, 3, 4]}", "equation='ii->i', tensors{[3, 3]}",
                "equation='ij->', tensors{[3, 3]}", "equation='i,j', tensors{[3], [4]}",
                "equation='...ij,jk->...ik', tensors{[2, 2, 3], [3, 4]}"});
}
