// Elements and slices picked by an index tensor.
#include "facula/catalog/index_helpers.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;
using namespace facula::catalog::index_helpers;

namespace {
// Places of n that indices go around to, as PyTorch's: in both directions, as often as need be.
Tensor around(const Tensor& indices, SymInt n) {
  return n == SymInt(int64_t(0)) ? indices : remainder(indices, n);
}
}  // namespace

FACULA_FAMILY(gather) {
  define("index_select(Tensor self, int dim, Tensor index) -> Tensor")
      .dtypes(d::stored)
      .doc("Slices of `self` along `dim`, picked by the 1-D integer tensor `index`.")
      .shape([](const Call& c) {
        Tensor index = c.tensor("index");
        check_index_dtype("index_select", "index", index);
        index_check(index.dim() <= 1, "index_select")
            << "index is supposed to be a vector, got shape " << to_string(index.sizes());
        Dims sizes(c.sizes("self"));
        auto k = size_t(c.dim("dim"));
        runtime_check(!sizes.empty() || index.numel() == SymInt(int64_t(1)), "index_select")
            << "the index into a 0-d tensor can have only 1 value, got " << index.numel() << " value(s)";
        if (!sizes.empty()) sizes[k] = index.numel();
        return sizes;
      })
      .checks()
      .loop([](const LoopCall& c, Index i) {
        if (i.empty()) {
          Index first(size_t(c.rank("index")), integer(0));
          return at_scalar(c.index_load("index", first, int64_t(1)), c.load("self", i));
        }
        auto k = size_t(c.dim("dim"));
        Index at = c.rank("index") ? Index{i[k]} : Index{};
        Index j = i;
        j[k] = c.index_load("index", at, c.sizes("self")[k]);
        return c.load("self", j);
      })
      .samples({"self[3, 4], dim=1, index<4>[5]", "self[3, 4], dim=0, index<3>[0]",
                "self[2, 3, 4], dim=-2, index<3>[2]", "self[65, 33], dim=0, index<65>[129]"});
  define("gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor")
      .dtypes(d::stored)
      .bad_index(ErrorType::RuntimeError)
      .doc("out[i][j][k] = self[index[i][j][k]][j][k] for dim 0, and likewise for the others.")
      .shape([](const Call& c) {
        check_gather(c, false);
        return Dims(c.sizes("index"));
      })
      .checks()
      .loop([](const LoopCall& c, Index i) {
        Index j = i;
        if (c.rank("self") == 0) return at_scalar(c.index_load("index", i, int64_t(1)), c.load("self", {}));
        if (std::max(size_t(1), i.size()) != c.sizes("self").size())
          return zero_of(compute_type(c.dtype("self")));  // of no elements
        if (i.empty()) j = {integer(0)};
        auto k = size_t(c.dim("dim"));
        j[k] = c.index_load("index", i, c.sizes("self")[k]);
        return c.load("self", j);
      })
      .samples({"self[3, 4], dim=1, index<4>[3, 2]", "self[3, 4], dim=0, index<3>[2, 4]",
                "self[5], dim=0, index<5>[7]", "self[33, 65], dim=1, index<65>[33, 129]"});
  define("take_along_dim(Tensor self, Tensor indices, int? dim=None) -> Tensor")
      .doc("self at `indices` along `dim`, other dimensions broadcast; of the flat self without `dim`.")
      .exact_out()
      .dtypes(d::stored)
      .procedure([](const Tensor& self, const Tensor& indices, std::optional<int64_t> dim) {
        if (!dim) return gather(flat(self), 0, flat(indices));
        runtime_check(self.dim() == indices.dim(), "take_along_dim")
            << "input and indices should have the same number of dimensions, but got " << self.dim()
            << " dimensions for input, and " << indices.dim() << " dimensions for indices";
        int k = wrap_dim("take_along_dim", *dim, self.dim());
        SymInt one(int64_t(1));
        Dims shapes[] = {with(self.sizes(), k, one), with(indices.sizes(), k, one)};
        SymSpan both[] = {shapes[0], shapes[1]};
        Dims sizes = broadcast_sizes("take_along_dim", both);
        return gather(expand(self, with(sizes, k, self.size(k))), k,
                      expand(around(indices, self.size(k)), with(sizes, k, indices.size(k))));
      })
      .samples({"self[3, 4], indices<4>[1, 2], dim=1", "self[3, 4], indices<12>[5]",
                "self[3, 4], indices<3>[2, 1], dim=0"});
  define("take(Tensor self, Tensor index) -> Tensor")
      .doc("Elements of self, taken as one vector, at `index`; shaped like index.")
      .composite([](const Tensor& self, const Tensor& index) {
        runtime_check(index.dtype() == DType::Int64, "take")
            << "expected dtype int64 for index, got " << index.dtype() << hint("index.long() converts");
        index_check(self.numel() != SymInt(int64_t(0)) || index.numel() == SymInt(int64_t(0)), "take")
            << "tried to take from an empty tensor";
        Tensor at = reshape(where(lt(index, 0), add(index, self.numel()), index), Sizes{index.numel()});
        return view(index_select(reshape(self, Sizes{self.numel()}), 0, at), index.sizes());
      })
      .samples({"self[3, 4], index<12>[5]", "self[], index<1>[]", "self[5], index<5>[2, 3]"});
}
