// Products of matrices with an addend, and linear layers.
#include <cctype>

#include "facula/autograd/calls.h"
#include "facula/catalog/matmul_helpers.h"
#include "facula/catalog/matrices.h"
#include "facula/catalog/no_derivative.h"
#include "facula/catalog/widened.h"
#include "facula/op/batched.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;
using namespace facula::catalog::matmul_helpers;
using namespace facula::catalog;
using facula::loop::Expr;

namespace {
Tensor conjugate(const Tensor& x) { return is_complex(x.dtype()) ? conj_physical(x) : x; }
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
}  // namespace

FACULA_FAMILY(linear) {
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
  define("bilinear(Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None) -> Tensor")
      .doc("input1 [*, in1], weight [out, in1, in2], input2 [*, in2]: [*, out], plus bias.")
      .grad_name([](const Call& c) { return grad_name(c.has("bias") ? "Add" : "View"); })
      .bind(function | nn_functional)
      .composite([](const Tensor& input1, const Tensor& input2, const Tensor& weight,
                    std::optional<Tensor> bias) {
        auto leading = [](const Tensor& t) { return Dims(t.sizes().first(t.sizes().size() - 1)); };
        bool fits = weight.dim() == 3 && input1.dim() > 0 && input2.dim() > 0 &&
                    input1.size(-1) == weight.size(1) && input2.size(-1) == weight.size(2);
        runtime_check(fits, "bilinear")
            << "weight must be [out, in1, in2] for inputs [*, in1] and [*, in2], got inputs "
            << to_string(input1.sizes()) << " and " << to_string(input2.sizes()) << " and weight "
            << to_string(weight.sizes());
        runtime_check(leading(input1) == leading(input2), "bilinear")
            << "inputs must agree in all but the last dimension, got " << to_string(input1.sizes()) << " and "
            << to_string(input2.sizes());
        // The product of the first two is not rounded to 16 bits.
        SymInt out = weight.size(0), n1 = weight.size(1), n2 = weight.size(2), n = product(leading(input1));
        Tensor by_first =
            reshape(permute(wide(weight), {int64_t(1), int64_t(0), int64_t(2)}), Sizes{n1, out * n2});
        Tensor rows = view(mm(reshape(wide(input1), Sizes{n, n1}), by_first), Sizes{n, out, n2});
        Tensor y = squeeze(bmm(rows, reshape(wide(input2), Sizes{n, n2, int64_t(1)})), Sizes{int64_t(-1)});
        if (bias) y = add(y, wide(*bias));
        Dims sizes = leading(input1);
        sizes.push_back(out);
        return narrowed(view(y, sizes), input1.dtype());
      })
      .samples({"input1[4, 3], input2[4, 2], weight[5, 3, 2], bias[5]",
                "input1[2, 4, 3], input2[2, 4, 2], weight[5, 3, 2]"});
}
