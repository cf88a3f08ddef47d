// Bags of embeddings: reductions of the rows that each bag of indices picks.
#include "facula/autograd/calls.h"
#include "facula/catalog/elements.h"
#include "facula/catalog/vectors.h"
#include "facula/catalog/widened.h"
#include "facula/loop/monoid.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {

using catalog::vector_of;
const SymInt kOne = int64_t(1), kZero = int64_t(0);
enum Mode : int64_t { sum_of, mean_of, max_of };

// The offsets at which bags begin, followed by the end of the last bag.
std::vector<int64_t> bounds(const Call& c, int64_t count) {
  DType t = c.dtype("offsets");
  runtime_check(!is_differentiable(t), c.name()) << "expected offsets of int64 or int32, got " << t;
  Tensor plain = contiguous(to(c.tensor("offsets"), DType::Int64)).on_host();
  std::vector<int64_t> at(plain.data<int64_t>(), plain.data<int64_t>() + plain.numel().guard_int());
  runtime_check(at.empty() || at[0] == 0, c.name())
      << "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. "
      << "However, got " << at[0];
  runtime_check(at.empty() || at.back() <= count, c.name())
      << "offsets[-1] can not be greater than input's length " << count << ", but got offsets[-1] of "
      << at.back();
  index_check(std::is_sorted(at.begin(), at.end()), c.name()) << "offsets must not decrease";
  runtime_check(!c.flag("include_last_offset") || !at.empty(), c.name())
      << "include_last_offset: number of offset should be at least 1";
  if (!c.flag("include_last_offset")) at.push_back(count);
  return at;
}

// The bag of each index, where a trace cannot look at the offsets. Offsets that `bounds` refuses give bag -1, which the sum
// over bags refuses.
Tensor traced_owners(const Call& c, SymInt count) {
  Tensor offsets = to(c.tensor("offsets"), DType::Int64);
  SymInt n = offsets.size(0);
  Tensor places = _arange(Scalar(int64_t(0)), Scalar(int64_t(1)), count, DType::Int64);
  Tensor owners = sub(searchsorted(offsets, places, false, true), Scalar(int64_t(1)));
  Tensor is_sorted = all(ge(slice(offsets, 0, kOne, n), slice(offsets, 0, kZero, n - kOne)));
  Tensor fits = all(autograd::invoke("le", {offsets, count}));
  Tensor begins = all(eq(slice(offsets, 0, kZero, kOne), Scalar(int64_t(0))));
  return where(logical_and(logical_and(is_sorted, fits), begins), owners, Scalar(int64_t(-1)));
}

// The bag of each index; with elements that the host can read also where bags begin, and the length of the longest one.
struct Assignment {
  Tensor bag;
  std::vector<int64_t> begins;
  int64_t longest = 1;
};
Assignment assigned(const Call& c, int64_t mode, SymInt size) {
  bool has_elements = size.is_symbolic() || size > kZero;
  if (mode != max_of && has_elements && !catalog::shows_elements(c.tensor("offsets")))
    return {traced_owners(c, size), {}};
  int64_t count = size.guard_int();
  Assignment a{{}, bounds(c, count)};
  auto& at = a.begins;
  std::vector<int64_t> owner(static_cast<size_t>(count),
                             int64_t(at.size()) - 1);  // the last takes what is over
  for (size_t k = 0; k + 1 < at.size(); ++k) {
    a.longest = std::max(a.longest, at[k + 1] - at[k]);
    std::fill(owner.begin() + at[k], owner.begin() + at[k + 1], int64_t(k));
  }
  a.bag = vector_of(owner);
  return a;
}

int64_t mode_of(std::string_view mode, bool by_frequency, bool sparse) {
  const char* name = "embedding_bag";
  value_check(mode == "sum" || mode == "mean" || mode == "max", name)
      << "mode has to be one of sum, mean or max, got '" << mode << "'";
  value_check(mode != "max" || !by_frequency, name)
      << "max mode does not support scaling the gradient by the frequency";
  value_check(mode != "max" || !sparse, name) << "max mode does not support sparse weights";
  return mode == "sum" ? sum_of : mode == "mean" ? mean_of : max_of;
}

// With the table behind the indices, which are rows of bags or a line of them.
Tensor bags(const Call& c) {
  const char* name = "embedding_bag";
  auto maybe = [&](const char* argument) {
    return c.has(argument) ? std::optional(c.tensor(argument)) : std::nullopt;
  };
  Tensor input = c.tensor("input"), weight = c.tensor("weight");
  std::optional<Tensor> offsets = maybe("offsets"), scales = maybe("per_sample_weights");
  bool rows = input.dim() == 2;
  value_check(!scales || Dims(scales->sizes()) == Dims(input.sizes()), name)
      << "per_sample_weights must have the same shape as the input, " << to_string(input.sizes()) << ", got "
      << to_string(scales->sizes());
  value_check(weight.dim() == 2, name)
      << "weight has to be a 2D Tensor, but got Tensor of dimension " << weight.dim();
  value_check(rows || input.dim() == 1, name)
      << "input has to be 1D or 2D Tensor, but got Tensor of dimension " << input.dim();
  value_check(!rows || !offsets, name)
      << "if input is 2D, then offsets has to be None, as input is treated as a mini-batch of fixed length "
      << "sequences, but got offsets of shape " << to_string(offsets->sizes());
  value_check(rows || offsets, name) << "offsets has to be a 1D Tensor but got None";
  value_check(rows || offsets->dim() == 1, name)
      << "offsets has to be a 1D Tensor, got shape " << to_string(offsets->sizes());
  bool by_frequency = c.flag("scale_grad_by_freq"), sparse = c.flag("sparse");
  int64_t mode = mode_of(c.str("mode"), by_frequency, sparse);
  supported_check(!scales || mode == sum_of, name)
      << "per_sample_weights is only supported for mode='sum' (got mode='" << c.str("mode") << "')";
  if (rows) {
    Tensor numbers = _arange(Scalar(int64_t(0)), Scalar(int64_t(1)), input.size(0), DType::Int64);
    offsets = autograd::invoke("mul", {numbers, input.size(1)});
    input = reshape(input, Sizes{int64_t(-1)});
    if (scales) scales = reshape(*scales, Sizes{int64_t(-1)});
  }
  std::optional<SymInt> pad;
  if (c.has("padding_idx")) pad = c.integer("padding_idx");
  return std::get<0>(embedding_bag(weight, input, *offsets, by_frequency, mode, sparse,
                                   scales ? MaybeTensor(*scales) : MaybeTensor(),
                                   !rows && c.flag("include_last_offset"), pad));
}

}  // namespace

FACULA_FAMILY(bag) {
  define("_bag_argmax(Tensor rows, Tensor bounds, Tensor counted, SymInt longest) -> Tensor")
      .doc(
          "The first of the counted rows of each bag that has the largest value in a column; bag k: bounds[k] to bounds[k + 1]. A NaN is "
          "what is larger than nothing before it, and than which nothing is: the first row's stays, others are passed.")
      .bind(hidden)
      .dtypes(d::floating)
      .promote(Promote::none)
      .result(ResultType::int64)
      .shape([](const Call& c) { return Dims{c.size("bounds", 0) - kOne, c.size("rows", 1)}; })
      .loop([](const LoopCall& c, Index i) {
        Expr start = c.load("bounds", {i[0]}), end = c.load("bounds", {i[0] + Scalar(int64_t(1))});
        Expr last = loop::size(c.size("rows", 0)) - Scalar(int64_t(1));
        Domain steps = domain(c, Dims{c.integer("longest")});
        auto safe = [&](Expr at) { return max(min(at, last), Scalar(int64_t(0))); };
        auto valid = [&](Expr at) { return (at < end) & c.load("counted", {safe(at)}); };
        auto row = [&](Expr at) { return c.load("rows", {safe(at), i[1]}); };
        Expr first = reduce(monoid::min, steps, [&](const Index& b) {
          Expr at = start + b[0];
          return select(valid(at), at, end);
        });
        Expr best = reduce(monoid::max, steps, [&](const Index& b) {
          Expr at = start + b[0], x = row(at);
          return select(valid(at) & bit_not(isnan(x)), x, identity(monoid::max, x.dtype())[0]);
        });
        Expr found = reduce(monoid::min, steps, [&](const Index& b) {
          Expr at = start + b[0];
          return select(valid(at) & eq(row(at), best), at, end);
        });
        return select(isnan(row(first)), first, found);
      })
      .samples({"rows![5, 2], bounds<1>[3], counted?[5], longest=3"});
  define(
      "embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0, bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False, int? padding_idx=None) -> (Tensor, Tensor, Tensor, Tensor)")
      .doc(
          "Sums (mode 0), means (1) or maxima (2) of the rows of `weight` that bags of indices pick; bags begin at `offsets`. Also the bag of each index, the sizes of the bags and, of maxima, the rows.")
      .grad_name("EmbeddingBag")
      .bind(function)
      .reads_data()
      .procedure([](const Call& c) {
        Tensor weight = c.tensor("weight"), indices = c.tensor("indices"),
               scales = c.tensor("per_sample_weights");
        runtime_check(weight.dim() == 2, c.name())
            << "weight has to be 2D, got shape " << to_string(weight.sizes());
        runtime_check(indices.dim() == 1 && c.rank("offsets") == 1, c.name())
            << "indices and offsets have to be 1D, got shapes " << to_string(indices.sizes()) << " and "
            << to_string(c.sizes("offsets"));
        int64_t mode = c.integer("mode").guard_int();
        SymInt count = indices.size(0);
        runtime_check(!scales.defined() || mode == sum_of, c.name())
            << "per_sample_weights is only supported for mode='sum'";
        auto [bag, at, longest] = assigned(c, mode, count);
        SymInt bags = c.size("offsets", 0) - SymInt(int64_t(c.flag("include_last_offset")));
        SymInt width = weight.size(1), pad = int64_t(-1);
        Tensor counted = full(Dims{count}, true, DType::Bool);
        if (c.has("padding_idx")) {
          pad = c.integer("padding_idx");
          runtime_check(pad >= -weight.size(0) && pad < weight.size(0), c.name())
              << "padding_idx must be within the number of embeddings " << weight.size(0) << ", got " << pad;
          if (pad < kZero) pad += weight.size(0);
          counted = ne(indices, Scalar(pad.guard_int()));
        }
        Tensor rows = embedding(weight, indices, pad, c.flag("scale_grad_by_freq"), c.flag("sparse"));
        if (mode != max_of) rows = catalog::wide(rows);
        if (scales.defined()) rows = mul(rows, unsqueeze(scales, -1));
        Tensor column = unsqueeze(counted, -1), none = zeros(Dims{bags + kOne}, DType::Int64);
        Tensor sizes = slice(index_add(none, 0, bag, to(counted, DType::Int64)), 0, kZero, bags);
        if (mode == max_of) {
          Tensor picked = _bag_argmax(detach(rows), vector_of(at), counted, SymInt(longest));
          Tensor filled = unsqueeze(gt(sizes, Scalar(int64_t(0))), -1);
          if (count == kZero) return Results{zeros(Dims{bags, width}, weight.dtype()), bag, sizes, picked};
          picked = where(filled, picked, Scalar(int64_t(0)));
          Tensor y = where(filled, gather(rows, 0, picked), Scalar(0.0));
          return Results{y, bag, sizes,
                         gather(expand(unsqueeze(indices, -1), Dims{count, width}), 0, picked)};
        }
        if (c.has("padding_idx")) rows = where(column, rows, Scalar(0.0));
        Tensor total = index_add(zeros(Dims{bags + kOne, width}, rows.dtype()), 0, bag, rows);
        Tensor y = slice(total, 0, kZero, bags);
        if (mode == mean_of) y = div(y, to(unsqueeze(clamp_min(sizes, Scalar(int64_t(1))), -1), y.dtype()));
        return Results{catalog::narrowed(y, weight.dtype()), bag, sizes, sizes};
      })
      .samples({"weight[5, 3], indices<5>[7], offsets<1>[2], mode=1"});
  define(
      "_embedding_bags(Tensor input, Tensor weight, Tensor? offsets=None, bool scale_grad_by_freq=False, str mode='mean', bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False, int? padding_idx=None) -> Tensor")
      .python(
          "embedding_bag(input, weight, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, mode='mean', sparse=False, per_sample_weights=None, include_last_offset=False, padding_idx=None)",
          "input, weight = before_table(input, weight)", "limit_rows(weight, input, max_norm, norm_type)")
      .doc(
          "Sums, means or maxima of the rows of `weight` that bags of integers pick: rows of input [bags, size], or parts of [n] that begin at `offsets`. "
          "per_sample_weights scales rows of sums; padding_idx is not counted.")
      .bind(hidden)
      .reads_data()
      .procedure([](const Call& c) { return bags(c); })
      .samples({"input<5>[2, 3], weight[5, 3]", "input<5>[7], weight[5, 3], offsets<1>[2], mode='max'",
                "input<5>[2, 3], weight[5, 3], mode='sum', per_sample_weights[2, 3]"});
}
