// Repetitions of elements.
#include "facula/catalog/index_helpers.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"
#include "facula/sym/parse.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;
using namespace facula::catalog::index_helpers;

namespace {
// Repeats of `least` to 1 dimensions; dtypes that PyTorch has no kernel for raise its type of error.
void check_repeats(const Tensor& t, int least, const char* what) {
  runtime_check(t.dim() >= least && t.dim() <= 1, "repeat_interleave")
      << what << ", got " << t.dtype() << " of shape " << to_string(t.sizes());
  supported_check(t.dtype() == DType::Int64 || t.dtype() == DType::Int32, "repeat_interleave")
      << what << ", got " << t.dtype() << " of shape " << to_string(t.sizes());
}
int repeated_dim(const Tensor& x, std::optional<int64_t> dim) {
  index_check(x.dim() > 0, "repeat_interleave")
      << "dimension specified as " << *dim << " but tensor has no dimensions";
  return wrap_dim("repeat_interleave", dim.value_or(0), x.dim());
}
}  // namespace

FACULA_FAMILY(repeat) {
  define("_repeated_positions(Tensor counts) -> Tensor")
      .doc("Of a vector of int64: k, counts[k] times, for all k in order.")
      .bind(hidden)
      .result(ResultType::int64)
      .shape([](const Call& c) {
        Tensor counts = c.tensor("counts");
        runtime_check(counts.dim() == 1 && counts.dtype() == DType::Int64, "repeat_interleave")
            << "expects a vector of int64 as repeats, got " << counts.dtype() << " of shape "
            << to_string(counts.sizes());
        return Dims{SymInt(sym::kMostSize)};
      })
      .checks()
      .data_dependent("repeated_positions")
      .reference([](const Tensor& counts) {
        runtime_check(!any(lt(counts, 0)).item().to_bool(), "repeat_interleave")
            << "repeats can not be negative";
        Tensor ends = cumsum(counts, 0);  // a place is the number of ends at or before it
        SymInt last = counts.numel() - SymInt(int64_t(1));
        int64_t total = last < SymInt(int64_t(0)) ? 0 : select(ends, 0, last).item().to_int();
        Tensor marks = index_add(zeros(Sizes{total + 1}, DType::Int64), 0, ends, ones_like(ends));
        return narrow(cumsum(marks, 0), 0, int64_t(0), total);
      })
      .samples({"counts<4>[5]", "counts<4>[0]"});
  define("repeat_interleave.Tensor(Tensor repeats, *, SymInt? output_size=None) -> Tensor")
      .doc("k, repeats[k] times, for all k in order.")
      .bind(function)
      .reads_data()
      .non_differentiable("the results are positions")
      .procedure([](const Call& c, const Tensor& repeats) {
        check_repeats(repeats, 1, "only accepts a vector of int64 or int32 as repeats");
        return to_dtype(positions(c, repeats), repeats.dtype());
      })
      .samples({"repeats<4>[5]"});
  define(
      "repeat_interleave.self_Tensor(Tensor self, Tensor repeats, int? dim=None, *, SymInt? output_size=None) -> Tensor")
      .doc("Each slice along `dim`, each element without it, repeats[k] times, one after the other.")
      .dtypes(d::stored)
      .promote(Promote::none)
      .reads_data()
      .procedure([](const Call& c, const Tensor& self, const Tensor& repeats, std::optional<int64_t> dim) {
        check_repeats(repeats, 0, "repeats must be 0-dim or 1-dim tensor of int64 or int32");
        Tensor x = dim ? self : flat(self);
        int k = repeated_dim(x, dim);
        Tensor counts = flat(repeats);
        if (counts.size(0) == SymInt(int64_t(1))) counts = expand(counts, Sizes{x.size(k)});
        runtime_check(counts.size(0) == x.size(k), "repeat_interleave")
            << "repeats must have the same size as input along dim, but got repeats.size(0) = "
            << counts.size(0) << " and input.size(" << k << ") = " << x.size(k);
        return index_select(x, k, positions(c, counts));
      })
      .samples({"self[3, 2], repeats<3>[3], dim=0", "self[2, 2], repeats<3>[4]",
                "self[2, 3], repeats<3>[], dim=1"});
  define(
      "repeat_interleave.self_int(Tensor self, SymInt repeats, int? dim=None, *, SymInt? output_size=None) -> Tensor")
      .doc("Each slice along `dim`, each element without it, `repeats` times, one after the other.")
      .dtypes(d::stored)
      .procedure([](const Call& c, const Tensor& self, SymInt repeats, std::optional<int64_t> dim) {
        Tensor x = dim ? self : flat(self);
        int k = repeated_dim(x, dim);
        runtime_check(!(repeats < SymInt(int64_t(0))), "repeat_interleave") << "Repeats must be non-negative";
        SymInt whole = x.size(k) * repeats;
        runtime_check(!c.has("output_size") || c.integer("output_size") == whole, "repeat_interleave")
            << "Invalid output_size, expected " << whole << " but got " << c.integer("output_size");
        Tensor each = expand(unsqueeze(x, k + 1), inserted(x.sizes(), k + 1, repeats));
        return view(clone(each, MemoryFormat::contiguous), with(x.sizes(), k, whole));
      })
      .samples({"self[3, 2], repeats=2, dim=1", "self[2, 2], repeats=3", "self[2], repeats=0"});
  define("_of_length(Tensor self) -> Tensor")
      .doc(
          "A vector in one element of memory, as long as the single integer in `self` says: a trace makes a size of it.")
      .bind(hidden)
      .checks()
      .dtypes(d::integral)
      .result(ResultType::boolean)
      .shape([](const Call&) { return Dims{SymInt(sym::kMostSize)}; })
      .data_dependent("of_length")
      .reference([](const Tensor& self) {
        int64_t n = self.item().to_int();
        runtime_check(n >= 0 && n <= sym::kMostSize, "item")
            << "an integer that a traced function reads is a size, which " << n << " can not be"
            << hint("compute with the tensor itself, or read it outside of the function");
        return expand(zeros(Sizes{int64_t(1)}, DType::Bool), Sizes{n});
      })
      .samples({"self<4>[]"});
}
