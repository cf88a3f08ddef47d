// Padding.
#include "facula/autograd/calls.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"
#include "facula/sym/run_time.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {
// ---- padding
Dims padded_sizes(const Call& c) {
  Dims sizes(c.sizes("self"));
  auto pad = c.ints("pad");
  for (size_t k = 0; k < pad.size() / 2; ++k) {
    SymInt& n = sizes[sizes.size() - 1 - k];
    n = n + pad[2 * k] + pad[2 * k + 1];
    runtime_check(sym::may_be_at_most(0, n), c.name())
        << "the padding " << to_string(pad) << " leaves a negative size of shape "
        << to_string(c.sizes("self"));
  }
  return sizes;
}
void check_repeated_pad(SymSpan sizes, SymSpan pad, std::string_view mode) {
  size_t rank = sizes.size(), dims = pad.size() / 2;
  runtime_check(pad.size() % 2 == 0, "pad") << "the length of pad must be even, got " << to_string(pad);
  supported_check(dims >= 1 && dims <= 3 && (rank == dims + 1 || rank == dims + 2), "pad")
      << "mode '" << mode << "' pads the last 1, 2 or 3 of 2-3, 3-4 or 4-5 dimensions; got a shape "
      << to_string(sizes) << " and pad of " << pad.size() << " numbers";
  SymInt none(int64_t(0));
  for (size_t k = 0; k < dims; ++k) {
    SymInt before = pad[2 * k], after = pad[2 * k + 1], n = sizes[rank - 1 - k];
    runtime_check(sym::is_run_time(n) || n != none || !(before > none || after > none), "pad")
        << "mode '" << mode << "' can't pad the empty dimension " << rank - 1 - k << " of "
        << to_string(sizes);
    SymInt most = n - SymInt(int64_t(mode == "reflect"));
    auto fit = [&](SymInt all) {
      return sym::may_be_at_most(before, all) && sym::may_be_at_most(after, all);
    };
    runtime_check(mode == "replicate" || fit(most), "pad")
        << "padding size should be " << (mode == "reflect" ? "less than" : "at most")
        << " the corresponding input dimension for mode '" << mode << "', but got padding (" << before << ", "
        << after << ") at dimension " << rank - 1 - k << " of input " << to_string(sizes);
    SymInt left = n - max(-before, none) - max(-after, none);
    runtime_check(mode != "circular" || fit(left), "pad")
        << "padding (" << before << ", " << after << ") of dimension " << rank - 1 - k << " of "
        << to_string(sizes) << " wraps around more than once";
  }
}
// The elements of a dimension of size n that padded positions repeat: for x < 0 and for x >= n.
std::pair<Expr, Expr> beyond(std::string_view mode, Expr x, SymInt n, SymInt before, SymInt after) {
  SymInt one(int64_t(1)), none(int64_t(0));
  if (mode == "circular") {  // negative padding crops first
    Expr whole = loop::size(n - max(-before, none) - max(-after, none));
    return {x + whole, x - whole};
  }
  Expr last = loop::size(n - one);
  if (mode == "replicate") return {integer(0), last};
  return {-x, last - (x - last)};  // the edge itself is not repeated
}
// The gradient of element `at` of dimension d, of size n: the sum over the padded positions that repeat it.
Expr gathered_padding(const LoopCall& c, const Index& at, int d, SymInt n, SymInt before, SymInt after) {
  SymInt one(int64_t(1)), none(int64_t(0));
  auto mode = c.str("mode");
  Expr j = at[size_t(d)], places = loop::size(c.size("grad", d)), last = loop::size(n - one);
  auto from = [&](Expr place, Expr repeats) {
    Expr inside = repeats & (place >= integer(0)) & (place < places);
    Expr x = c.load("grad", with(at, d, max(min(place, places - Scalar(int64_t(1))), integer(0))));
    return select(inside, x, constant(Scalar(int64_t(0)), x.dtype()));
  };
  Expr here = j + loop::size(before), always = constant(true, DType::Bool);
  if (mode == "reflect")
    return from(here, always) + from(loop::size(before) - j, j >= integer(1)) +
           from(loop::size(before) + last + last - j, j < last);
  if (mode == "circular") {
    SymInt low = max(-before, none), high = n - max(-after, none);
    Expr kept = (j >= loop::size(low)) & (j < loop::size(high)), whole = loop::size(high - low);
    return from(here, kept) + from(here - whole, kept) + from(here + whole, kept);
  }
  return reduce(c, monoid::sum, {max(max(before, after), none) + one}, [&](const Index& k) {
    Expr centre = eq(k[0], integer(0));
    return from(here - k[0], centre | eq(j, integer(0))) +
           from(here + k[0], (k[0] >= integer(1)) & eq(j, last));
  });
}
std::string pad_name(const Call& c) {
  auto mode = c.str("mode");
  if (mode == "circular") return "CopySlices";
  auto rank = std::to_string(c.ints("pad").size() / 2);
  return grad_name((mode == "reflect" ? "ReflectionPad" : "ReplicationPad") + rank + "D");
}
}  // namespace

FACULA_FAMILY(pad) {
  define("constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor")
      .dtypes(d::stored)
      .doc(
          "`pad` = (before, after) of the last dimension, then of the one before, ...; negative amounts crop.")
      .check(fitting({"value"}))
      .bind(function)
      .shape([](const Call& c) {
        auto pad = c.ints("pad");
        size_t rank = c.sizes("self").size();
        runtime_check(pad.size() % 2 == 0 && pad.size() / 2 <= rank, "constant_pad_nd")
            << "length of pad must be even and at most twice the number of dimensions: pad " << to_string(pad)
            << " for shape " << to_string(c.sizes("self"));
        return padded_sizes(c);
      })
      .format_of({"self"})
      .loop([](const LoopCall& c, Index i) {
        auto pad = c.ints("pad");
        auto sizes = c.sizes("self");
        DType t = compute_type(c.dtype("self"));
        Expr value = c.scalar("value", t);
        Index j = i;
        Expr inside = constant(true, DType::Bool);
        for (size_t k = 0; k < pad.size() / 2; ++k) {
          size_t d = sizes.size() - 1 - k;
          if (sizes[d] == SymInt(int64_t(0))) return value;
          Expr at = i[d] - loop::size(pad[2 * k]), n = loop::size(sizes[d]);
          inside = inside & (at >= Scalar(int64_t(0))) & (at < n);
          j[d] = at;  // read only if it is inside
        }
        return select(inside, c.load("self", j), value);
      })
      .samples({"self[2, 3], pad=[1, 2]", "self[2, 3], pad=[1, 2, 0, -1], value=3",
                "self[0, 3], pad=[1, 1, 1, 1], value=0.5"});
  define("_pad_repeated(Tensor self, SymInt[] pad, str mode) -> Tensor")
      .doc(
          "self with elements of its own around it: `mode` 'reflect' (without the edge), 'replicate' (the edge) or 'circular'.")
      .grad_name(pad_name)
      .called("pad")
      .autocast([](const Call& c, DType) {
        auto mode = c.str("mode");
        bool as_given = mode == "circular" || (mode == "reflect" && c.ints("pad").size() == 6);
        return as_given ? Autocast::inherit : Autocast::fp32;
      })
      .dtypes(d::stored)
      .bind(hidden)
      .shape([](const Call& c) {
        check_repeated_pad(c.sizes("self"), c.ints("pad"), c.str("mode"));
        return padded_sizes(c);
      })
      .format_of({"self"})
      .loop([](const LoopCall& c, Index i) {
        auto pad = c.ints("pad");
        auto sizes = c.sizes("self");
        auto mode = c.str("mode");
        auto at = [&](size_t d) { return i[d] - loop::size(pad[2 * (sizes.size() - 1 - d)]); };
        auto repeated = [&](size_t d) {
          size_t k = sizes.size() - 1 - d;
          return beyond(mode, at(d), sizes[d], pad[2 * k], pad[2 * k + 1]);
        };
        size_t line = sizes.size() - 1;
        for (size_t d = line; d-- > sizes.size() - pad.size() / 2;) {
          auto [low, high] = repeated(d);
          i[d] = select(at(d) < integer(0), low, select(at(d) >= loop::size(sizes[d]), high, at(d)));
        }
        // Three loads, one for each part of a line, so that each part is read contiguously.
        Expr x = at(line);
        auto [low, high] = repeated(line);
        auto element = [&](Expr place) { return c.load("self", with(i, int(line), place)); };
        Expr inside = (x >= integer(0)) & (x < loop::size(sizes[line]));
        return select(inside, element(x), select(x < integer(0), element(low), element(high)));
      })
      // Derived, a scatter, it takes seven times as long.
      .vjp([](const Vjp& v) {
        auto pad = v.call().ints("pad");
        auto sizes = v.call().sizes("self");
        Tensor g = v.grad();
        for (size_t k = 0; k < pad.size() / 2; ++k) {
          size_t d = sizes.size() - 1 - k;
          g = _pad_repeated_backward(g, sizes[d], pad[2 * k], pad[2 * k + 1], int64_t(d),
                                     v.call().str("mode"));
        }
        return grads(g);
      })
      .samples({"self[2, 4], pad=[1, 2], mode='reflect'",
                "self[2, 3, 4], pad=[2, 1, -1, 1], mode='replicate'",
                "self[1, 2, 3, 4], pad=[3, -1, 1, 3], mode='circular'"});
  define(
      "_pad_repeated_backward(Tensor grad, SymInt size, SymInt before, SymInt after, int dim, str mode) -> Tensor")
      .doc("Sums of what arrives at the places of one dimension that repeat the same element of `size`.")
      .bind(hidden)
      .dtypes(d::numeric)
      .shape([](const Call& c) { return with(c.sizes("grad"), c.dim("dim", "grad"), c.integer("size")); })
      .format_of({"grad"})
      .loop([](const LoopCall& c, Index i) {
        return gathered_padding(c, i, c.dim("dim", "grad"), c.integer("size"), c.integer("before"),
                                c.integer("after"));
      })
      .samples({"grad[2, 7], size=4, before=1, after=2, dim=1, mode='reflect'",
                "grad[2, 5], size=3, before=2, after=0, dim=-1, mode='replicate'",
                "grad[4, 2], size=3, before=2, after=-1, dim=0, mode='circular'"});
  define("pad(Tensor self, SymInt[] pad, str mode='constant', Scalar? value=None) -> Tensor")
      .doc(
          "`pad` = (before, after) of the last dimension, then of the one before, ... By `value`, or in the last one to three dimensions of a batched or single image by elements of its own: `mode` 'reflect', 'replicate' or 'circular'.")
      .dtypes(d::stored)
      .bind(nn_functional)
      .procedure([](const Call& c, const Tensor& self, SymSpan pad, std::string_view mode) {
        if (mode == "constant")
          return autograd::invoke("constant_pad_nd", {self, pad, c.has("value") ? c["value"] : op::Value(0)});
        supported_check(mode == "reflect" || mode == "replicate" || mode == "circular", "pad")
            << "Unrecognised padding mode " << mode;
        runtime_check(!c.has("value") || c.real("value") == 0, "pad")
            << "padding mode \"" << mode << "\" doesn't take in value argument";
        // PyTorch makes contiguous results here, whatever the memory format.
        bool by_rows = mode == "circular" && !self.is_contiguous();
        return _pad_repeated(by_rows ? contiguous(self, MemoryFormat::contiguous) : self, pad, mode);
      })
      .samples({"self[1, 2, 3], pad=[1, 2], value=2", "self[1, 2, 4], pad=[2, 1], mode='reflect'"});
}
