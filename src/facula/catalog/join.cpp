// Tensors joined along a dimension.
#include "facula/autograd/calls.h"
#include "facula/op/batched.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"
#include "facula/tensor/promotion.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {
Dims joined_sizes(const Call& c) {
  auto tensors = c.tensors("tensors");
  value_check(!tensors.empty(), c.name()) << "expected a non-empty list of tensors";
  const Tensor* first = nullptr;
  for (auto& t : tensors)
    if (!(t.dim() == 1 && t.size(0) == SymInt(int64_t(0))) && !first) first = &t;
  if (!first) first = &tensors[0];
  runtime_check(first->dim() > 0, c.name())
      << "zero-dimensional tensors cannot be concatenated" << hint("stack joins them along a new dimension");
  int d = wrap_dim(c.name(), c.integer("dim").guard_int(), first->dim());
  Dims sizes(first->sizes());
  sizes[size_t(d)] = int64_t(0);
  for (auto& t : tensors) {
    if (t.dim() == 1 && t.size(0) == SymInt(int64_t(0))) continue;
    bool fits = t.dim() == first->dim();
    for (int k = 0; fits && k < t.dim(); ++k) fits = k == d || t.size(k) == first->size(k);
    runtime_check(fits, c.name()) << "sizes of tensors must match except in dimension " << d << ": "
                                  << shapes_of(tensors);
    sizes[size_t(d)] += t.size(d);
  }
  return sizes;
}
// The batching rule (vmap). An empty tensor may have one dimension regardless of the others; with the batch in front it takes
// their dimensions.
Results joined_batches(const Batched& b) {
  auto& c = b.logical();
  auto tensors = c.tensors("tensors"), whole = b.physical().tensors("tensors");
  int rank = 0;
  for (auto& t : tensors) rank = std::max(rank, t.dim());
  int d = wrap_dim("cat", c.integer("dim").guard_int(), rank);
  Dims model;
  for (auto& t : tensors)
    if (t.dim() == rank) model = Dims(t.sizes());
  for (size_t k = 0; k < whole.size(); ++k) {
    Tensor& t = whole[k];
    if (tensors[k].dim() == rank) {
      if (!b.is_batched("tensors", int(k))) t = with_batch(t, b.size());
      continue;
    }
    Dims sizes{b.size()};
    for (SymInt n : with(model, d, SymInt(int64_t(0)))) sizes.push_back(n);
    t = reshape(b.is_batched("tensors", int(k)) ? t : with_batch(t, b.size()), sizes);
  }
  return cat(whole, d + 1);
}
}  // namespace

FACULA_FAMILY(join) {
  define("cat(Tensor[] tensors, int dim=0) -> Tensor")
      .dtypes(d::stored)
      .converting_out()
      .bad_conversion(ErrorType::TypeError)
      .doc("Tensors joined along `dim`.")
      .autocast(Autocast::promote)
      .alias("concat")
      .alias("concatenate")
      .bind(function)
      .result([](const Call& c) {
        Promotion p;
        for (auto& t : c.tensors("tensors")) p.add(t);
        return std::vector<DType>{p.result()};
      })
      .shape(joined_sizes)
      .format_of({"tensors"})
      .channels_last(ChannelsLast::reads)
      .library("cat")
      .batched(joined_batches)
      .reference([](const Call& c, const std::vector<Tensor>& tensors, int64_t dim) {
        Tensor joined = empty(joined_sizes(c), c.op().dtype_rule(c)[0]);
        SymInt at = int64_t(0);
        for (auto& t : tensors) {
          if (t.dim() == 1 && joined.dim() != 1) continue;  // of no elements
          copy_(narrow(joined, dim, at, t.size(int(dim))), t);
          at = at + t.size(int(dim));
        }
        return joined;
      })
      .vjp([](const Vjp& v) {
        auto& c = v.call();
        auto tensors = c.tensors("tensors");
        int d = wrap_dim("cat", c.integer("dim").guard_int(), v.grad().dim());
        Grads out;
        SymInt at = int64_t(0);
        for (auto& t : tensors) {
          if (t.dim() == 1 && v.grad().dim() != 1) {
            out.push_back(zeros_like(t));
            continue;
          }
          out.push_back(to_dtype(narrow(v.grad(), d, at, t.size(d)), t.dtype()));
          at += t.size(d);
        }
        return out;
      })
      .samples({"tensors{[2, 3], [4, 3]}", "tensors{[2, 3], [2, 1]}, dim=-1", "tensors{[2, 3], [0], [1, 3]}",
                "tensors{[5]}", "tensors{[17, 33], [17, 65]}, dim=1"});
  define("stack(Tensor[] tensors, int dim=0) -> Tensor")
      .grad_name("Stack")
      .converting_out()
      .bad_conversion(ErrorType::TypeError)
      .doc("Tensors of one shape joined along a new dimension.")
      .autocast(Autocast::promote)
      .bind(function)
      .procedure([](const std::vector<Tensor>& tensors, int64_t dim) {
        runtime_check(!tensors.empty(), "stack") << "expects a non-empty list of tensors";
        int d = wrap_dim("stack", dim, tensors[0].dim() + 1);
        std::vector<Tensor> raised;
        for (auto& t : tensors) {
          bool same = t.dim() == tensors[0].dim() &&
                      std::equal(t.sizes().begin(), t.sizes().end(), tensors[0].sizes().begin());
          runtime_check(same, "stack") << "expects each tensor to be equal size: " << shapes_of(tensors);
          raised.push_back(unsqueeze(t, d));
        }
        bool plain = std::ranges::all_of(tensors, [](auto& t) { return t.is_traced() || t.is_contiguous(); });
        if (plain || d == tensors[0].dim()) return cat(raised, d);
        // cat() keeps the order of channels-last operands, and a dimension can always be split.
        Dims sizes(tensors[0].sizes());
        sizes.insert(size_t(d), int64_t(tensors.size()));
        return view(cat(tensors, d), sizes);
      })
      .samples({"tensors{[2, 3], [2, 3]}, dim=1", "tensors{[], []}", "tensors{[0, 2]}, dim=-1"});
  define("hstack(Tensor[] tensors) -> Tensor")
      .converting_out()
      .bad_conversion(ErrorType::TypeError)
      .doc("Joined along dimension 1 (0 for vectors).")
      .bind(function)
      .procedure([](const std::vector<Tensor>& tensors) {
        runtime_check(!tensors.empty(), "hstack") << "expects a non-empty list of tensors";
        std::vector<Tensor> raised;
        for (auto& t : tensors) raised.push_back(t.dim() ? t : view(t, 1));
        return cat(raised, raised.empty() || raised[0].dim() == 1 ? 0 : 1);
      })
      .samples({"tensors{[2], [3]}", "tensors{[2, 3], [2, 1]}"});
  define("vstack(Tensor[] tensors) -> Tensor")
      .converting_out()
      .bad_conversion(ErrorType::TypeError)
      .doc("Joined along dimension 0, vectors as rows.")
      .bind(function)
      .procedure([](const std::vector<Tensor>& tensors) {
        runtime_check(!tensors.empty(), "vstack") << "expects a non-empty list of tensors";
        std::vector<Tensor> raised;
        for (auto& t : tensors)
          raised.push_back(t.dim() >= 2 ? t : t.dim() == 1 ? unsqueeze(t, 0) : view(t, {1, 1}));
        return cat(raised, 0);
      })
      .samples({"tensors{[3], [2, 3]}", "tensors{[], [2, 1]}"});
}
