// Embedding tables and one-hot encodings.
#include <limits>

#include "facula/autograd/tracing.h"
#include "facula/catalog/elements.h"
#include "facula/catalog/index_helpers.h"
#include "facula/catalog/widened.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;
using namespace facula::catalog::index_helpers;

FACULA_FAMILY(embedding) {
  define(
      "embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, bool sparse=False) -> Tensor")
      .python(
          "embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False)",
          "padding_idx = row_of(padding_idx, weight)", "limit_rows(weight, input, max_norm, norm_type)")
      .also("indices", "input")
      .dtypes(d::stored)
      .doc("Rows of weight [count, width] picked by indices [*]: [*, width].")
      .bind(function)
      .shape([](const Call& c) {
        Tensor weight = c.tensor("weight");
        runtime_check(weight.dim() == 2, "embedding")
            << "'weight' must be 2-D, got shape " << to_string(weight.sizes());
        check_index_dtype("embedding", "indices", c.tensor("indices"));
        Dims sizes(c.sizes("indices"));
        sizes.push_back(weight.size(1));
        return sizes;
      })
      .checks()
      .loop([](const LoopCall& c, Index i) {
        Index at(i.begin(), i.end() - 1);
        Expr row = cast(c.load("indices", at), DType::Int64);
        return c.load("weight", {within(row, loop::size(c.size("weight", 0))), i.back()});
      })
      // Leaves out padding_idx, which only affects the gradient.
      .vjp([](const Vjp& v) {
        Tensor grad = v.grad(), indices = v["indices"];
        SymInt rows = v.call().size("weight", 0);
        if (v.call().flag("sparse")) {
          supported_check(!autograd::Tracing::current(), "embedding")
              << "has sparse=True, and a traced function holds no sparse gradients"
              << hint("leave sparse False");
          runtime_check(!v.call().flag("scale_grad_by_freq"), "embedding")
              << "scale_grad_by_freq not supported with sparse gradients" << hint("leave sparse False");
          return grads(_sparse_rows(grad, indices, rows, v.call().integer("padding_idx")), Tensor());
        }
        if (v.call().flag("scale_grad_by_freq")) {  // the mean over a row's occurrences instead of the sum
          Tensor one = unsqueeze(ones_like(indices, DType::Int64), -1);
          grad = grad / embedding(_embedding_backward(one, indices, rows, int64_t(-1)), indices);
        }
        return grads(_embedding_backward(grad, indices, rows, v.call().integer("padding_idx")), Tensor());
      })
      .samples({"weight[4, 5], indices<4>[3, 2]", "weight[4, 5], indices<4>[7]",
                "weight[4, 5], indices<4>[0]", "weight[65, 17], indices<65>[129]"});
  define("embedding_renorm_(Tensor(a!) self, Tensor indices, float max_norm, float norm_type) -> Tensor(a!)")
      .doc("self, of whose rows `indices` those of a larger norm are scaled down to max_norm.")
      .bind(function)
      .procedure([](const Tensor& self, const Tensor& indices, double max_norm, double norm_type) {
        runtime_check(self.dim() == 2, "embedding_renorm_")
            << "'self' must be 2-D, got shape " << to_string(self.sizes());
        check_index_dtype("embedding_renorm_", "indices", indices);
        // A row with several indices is written several times with the same value.
        Tensor at = to_dtype(reshape(indices, Sizes{indices.numel()}), DType::Int64),
               rows = index_select(self, 0, at);
        Tensor length = norm(rows, std::optional<Scalar>(norm_type), Sizes{int64_t(1)}, true);
        // In float64, which holds every bound.
        Tensor wide = to_dtype(length, DType::Float64);
        Tensor less = div(full_like(wide, max_norm), add(wide, 1e-7));
        Tensor scale = to_dtype(where(gt(wide, max_norm), less, ones_like(wide)), rows.dtype());
        return index_copy_(self, 0, at, mul(rows, scale));
      })
      .samples({"self[4, 3], indices<4>[2, 2], max_norm=0.5, norm_type=2.0"});
  define("_embedding_backward(Tensor grad, Tensor indices, SymInt rows, SymInt padding_idx) -> Tensor")
      .doc("Rows of grad added up by index; padding_idx gets none.")
      .bind(hidden)
      .shape([](const Call& c) { return Dims{c.integer("rows"), c.size("grad", -1)}; })
      .checks()
      .loop([](const LoopCall& c) {
        Definition def;
        def.rank = 2;
        Scatter s;
        s.domain = Dims(c.sizes("grad"));
        Index i;
        for (size_t k = 0; k < s.domain.size(); ++k) i.push_back(loop::index(int(k)));
        Index at(i.begin(), i.end() - 1);
        Expr row = within(cast(c.load("indices", at), DType::Int64), loop::size(c.integer("rows")));
        Expr g = c.load("grad", i);
        SymInt padding = c.integer("padding_idx");
        if (padding >= SymInt(int64_t(0))) g = select(eq(row, loop::size(padding)), zero_of(g.dtype()), g);
        s.target = {row, i.back()};
        s.value = g;
        def.scatter = s;
        return def;
      })
      .samples({"grad[3, 2, 5], indices<4>[3, 2], rows=4, padding_idx=-1",
                "grad[3, 2, 5], indices<4>[3, 2], rows=4, padding_idx=1"});
  define("one_hot(Tensor self, SymInt num_classes=-1) -> Tensor")
      .doc("int64 [*, num_classes]: 1 at the class, else 0.")
      .bind(nn_functional)
      .non_differentiable("the operand is an integer")
      .reads_data()
      .procedure([](const Tensor& self, SymInt classes) {
        runtime_check(self.dtype() == DType::Int64, "one_hot")
            << "is only applicable to index tensors of dtype int64, got " << self.dtype();
        runtime_check(!(classes < SymInt(int64_t(-1))), "one_hot")
            << "class values must be smaller than num_classes, which is " << classes;
        bool told = !(classes < SymInt(int64_t(0)));
        if (told && self.is_traced()) {  // a kernel says which class does not fit
          Dims sizes(self.sizes());
          sizes.push_back(classes);
          return scatter(zeros(sizes, DType::Int64), -1, unsqueeze(self, -1), 1);
        }
        if ((catalog::has_elements(self) || !told) && self.numel() > SymInt(int64_t(0))) {
          int64_t low = amin(self).item().to_int(), high = amax(self).item().to_int();
          runtime_check(low >= 0, "one_hot") << "class values must be non-negative, got " << low;
          runtime_check(high < std::numeric_limits<int64_t>::max(), "one_hot")
              << "class values must be smaller than " << high;
          if (classes < SymInt(int64_t(0))) classes = high + 1;
          runtime_check(SymInt(high) < classes, "one_hot")
              << "class values must be smaller than num_classes, got " << high << " for " << classes;
        }
        runtime_check(classes > SymInt(int64_t(0)), "one_hot")
            << "num_classes must be positive where there are no values to infer it from";
        Tensor k = arange(Scalar(classes.guard_int()));
        return to_dtype(eq(unsqueeze(contiguous(self), -1), k), DType::Int64);
      })
      .samples({"self<3>[3, 2], num_classes=4", "self<5>[7]"});
}
