// Images of bytes, resized in integer arithmetic.
#include "facula/catalog/resample_helpers.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
using namespace facula::catalog::resample_helpers;

FACULA_FAMILY(resample_bytes) {
  define(
      "_byte_weights(SymInt n, SymInt size, float scale, str mode, bool align_corners) -> (Tensor at, Tensor weight, Tensor partial)")
      .doc(
          "For each of `size` results those of n elements that it reads, their weights, and sums of weights of one element.")
      .bind(hidden)
      .result([](const Call&) { return std::vector<DType>{DType::Int64, DType::Float64, DType::Float64}; })
      .shapes([](const Call& c) {
        check_positive(c["n"].ints(), c["n"].ints(), c["size"].ints());
        Resampling r(c, c.integer("n"), c.integer("size"), DType::Float64);
        return std::vector<Dims>(3, Dims{c.integer("size"), r.width()});
      })
      .loop([](const LoopCall& c, Index i) {
        return Resampling(c, c.integer("n"), c.integer("size"), DType::Float64).entry(i[0], i[1]);
      })
      .samples({"n=5, size=8, scale=0, mode='cubic', align_corners=False",
                "n=5, size=3, scale=0, mode='linear', align_corners=True",
                "n=9, size=4, scale=0, mode='smooth-cubic', align_corners=False"});
  define("_weighted_bytes(Tensor self, Tensor at, Tensor weight, int dim) -> Tensor")
      .doc("Sums of the elements `at` of `dim`, times their weights.")
      .bind(hidden)
      .dtypes(kBytes | dtypes_where([](DType t) { return t == DType::Int32 || t == DType::Int64; }))
      .promote(Promote::none)
      .non_differentiable("the operands are integers")
      .result([](const Call&) { return std::vector<DType>{DType::Int32}; })
      .shape([](const Call& c) { return with(c.sizes("self"), c.dim("dim"), c.size("at", 0)); })
      .checks()
      .loop([](const LoopCall& c, Index i) {
        int k = c.dim("dim");
        return reduce(c, monoid::sum, {c.size("at", 1)}, [&](Index b) {
          Index tap{i[size_t(k)], b[0]};
          Expr x = c.load("self", with(i, k, c.index_load("at", tap, c.size("self", k))));
          return cast(x, DType::Int32) * cast(c.load("weight", tap), DType::Int32);
        });
      })
      .samples({"self[2, 5], at<5>[3, 2], weight[3, 2], dim=1"});
}
