// Copies that rearrange: joining, repeating, mirroring, padding, triangles.
#include "facula/autograd/calls.h"
#include "facula/autograd/function.h"
#include "facula/catalog/shifts.h"
#include "facula/op/batched.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"
#include "facula/run/devices.h"
#include "facula/sym/run_time.h"
#include "facula/tensor/promotion.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {

Expr zero_of(Expr like) { return constant(Scalar(int64_t(0)), like.dtype()); }

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

void check_triangle(const Call& c) {
  runtime_check(c.rank("self") >= 2, c.name())
      << "input tensor must have at least 2 dimensions, got shape " << to_string(c.sizes("self"));
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

FACULA_FAMILY(shape) {
  define("cat(Tensor[] tensors, int dim=0) -> Tensor")
      .dtypes(d::stored)
      .converting_out()
      .bad_conversion(ErrorType::TypeError)
      .doc("Tensors joined along `dim`.")
      .autocast(Autocast::promote)
      .alias("concat")
      .alias("concatenate")
      .bind(function)
      .no_in_place()
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
      .no_in_place()
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
      .no_in_place()
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
      .no_in_place()
      .procedure([](const std::vector<Tensor>& tensors) {
        runtime_check(!tensors.empty(), "vstack") << "expects a non-empty list of tensors";
        std::vector<Tensor> raised;
        for (auto& t : tensors)
          raised.push_back(t.dim() >= 2 ? t : t.dim() == 1 ? unsqueeze(t, 0) : view(t, {1, 1}));
        return cat(raised, 0);
      })
      .samples({"tensors{[3], [2, 3]}", "tensors{[], [2, 1]}"});
  define("positive(Tensor(a) self) -> Tensor(a)")
      .doc("self.")
      .procedure([](const Tensor& self) {
        runtime_check(self.dtype() != DType::Bool, "positive")
            << "the + operator on bool tensors is not supported";
        return self;
      })
      .samples({"self[3, 4]", "self[]"});
  define("contiguous(Tensor(a) self, *, MemoryFormat memory_format=contiguous_format) -> Tensor(a)")
      .doc("self if its memory is already in that order, else a copy that is.")
      .bind(method)
      .procedure([](const Tensor& self, MemoryFormat format) {
        if (format == MemoryFormat::preserve || self.is_contiguous(format)) return self;
        return clone(self, format);
      })
      .samples({"self[]", "self[5]", "self[2, 3, 4]", "self[2, 0, 3]"});
  define("_row_major(Tensor self) -> Tensor")
      .dtypes(d::stored)
      .doc("A copy of self in row-major order.")
      .grad_name("Clone")
      .bind(hidden)
      .no_in_place()
      .shape([](const Call& c) { return Dims(c.sizes("self")); })
      .loop([](const LoopCall& c, Index i) { return c.load("self", i); })
      .samples({"self[]", "self[5]", "self[2, 3, 4]", "self[2, 0, 3]"});
  define("_copied(Tensor self) -> Tensor")
      .dtypes(d::stored)
      .doc("A copy of self with its dimensions in the same order of memory.")
      .grad_name("Clone")
      .bind(hidden)
      .no_in_place()
      .pointwise([](Expr x) { return x; })
      .samples({"self[]", "self[5]", "self[2, 3, 4]", "self[2, 0, 3]"});
  define("clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor")
      .converting_out()
      .doc("A copy of self, by default in the same memory order.")
      .no_in_place()
      .procedure([](const Tensor& self, std::optional<MemoryFormat> format) {
        switch (format.value_or(MemoryFormat::preserve)) {
          case MemoryFormat::preserve: return _copied(self);
          case MemoryFormat::contiguous: return _row_major(self);
          default: break;
        }
        strides_for(self.sizes(), *format);  // checks the rank
        return movedim(_row_major(movedim(self, {1}, {-1})), {-1}, {1});
      })
      .samples(unary_samples());
  define("repeat(Tensor self, SymInt[] repeats) -> Tensor")
      .dtypes(d::stored)
      .doc("self tiled repeats[k] times along dimension k.")
      .bind(method)
      .no_in_place()
      .shape([](const Call& c) {
        auto repeats = c.ints("repeats");
        auto sizes = c.sizes("self");
        runtime_check(repeats.size() >= sizes.size(), "repeat")
            << "number of dimensions of repeat dims " << to_string(repeats)
            << " cannot be smaller than that of the tensor " << to_string(sizes);
        Dims out(repeats);
        size_t leading = repeats.size() - sizes.size();
        for (size_t k = 0; k < repeats.size(); ++k) {
          runtime_check(!(repeats[k] < SymInt(int64_t(0))), "repeat")
              << "trying to create a tensor with negative dimension: repeats " << to_string(repeats);
          if (k >= leading) out[k] = out[k] * sizes[k - leading];
        }
        return out;
      })
      .loop([](const LoopCall& c, Index i) {
        auto sizes = c.sizes("self");
        size_t leading = i.size() - sizes.size();
        Index j;
        for (size_t k = 0; k < sizes.size(); ++k)
          j.push_back(c.ints("repeats")[leading + k] == SymInt(int64_t(1))
                          ? i[leading + k]
                          : remainder(i[leading + k], loop::size(sizes[k])));
        return c.load("self", j);
      })
      // A sum over views; derived it is as fast, but its kernel knows the size: each new one is compiled.
      .vjp([](const Vjp& v) {
        auto repeats = v.call().ints("repeats");
        auto sizes = v.call().sizes("self");
        Dims split;
        Ints over;
        size_t leading = repeats.size() - sizes.size();
        for (size_t k = 0; k < repeats.size(); ++k) {
          over.push_back(int64_t(split.size()));
          split.push_back(repeats[k]);
          if (k >= leading) split.push_back(sizes[k - leading]);
        }
        if (over.empty()) return grads(v.grad());
        return grads(reshape(sum(reshape(v.grad(), split), over), sizes));
      })
      .samples({"self[2, 3], repeats=[2, 1, 3]", "self[2, 3], repeats=[2, 0]", "self[], repeats=[3]"});
  define("flip(Tensor self, int[] dims) -> Tensor")
      .dtypes(d::stored)
      .doc("Order reversed along `dims`.")
      .no_in_place()
      .shape([](const Call& c) {
        std::vector<bool> seen(size_t(c.rank("self")) + 1);
        for (auto k : c.ints("dims")) {
          auto d = size_t(wrap_dim("flip", k.guard_int(), c.rank("self")));
          runtime_check(!seen[d], "flip") << "dim " << d << " appears multiple times in the list of dims";
          seen[d] = true;
        }
        return Dims(c.sizes("self"));
      })
      .strides_of("self")
      .loop([](const LoopCall& c, Index i) {
        Index j = i;
        for (auto k : c.ints("dims")) {
          if (i.empty()) break;
          auto d = size_t(wrap_dim("flip", k.guard_int(), c.rank("self")));
          j[d] = loop::size(c.sizes("self")[d]) - Scalar(int64_t(1)) - i[d];
        }
        return c.load("self", j);
      })
      .samples(
          {"self[2, 3], dims=[0, 1]", "self[5], dims=[-1]", "self[0, 3], dims=[0]", "self[2, 3], dims=[]"});
  define("roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor")
      .grad_name("Roll")
      .doc("Elements moved by `shifts` along `dims`, those that leave come in on the other side.")
      .no_in_place()
      .procedure([](const Call& c, const Tensor& self) {
        auto shifts = c.ints("shifts"), dims = c.ints("dims");
        runtime_check(dims.empty() ? shifts.size() == 1 : shifts.size() == dims.size(), "roll")
            << "shifts and dimensions must align: " << to_string(shifts) << ", " << to_string(dims);
        if (self.numel() == SymInt(int64_t(0))) return clone(self);
        if (dims.empty()) return reshape(roll(reshape(self, -1), shifts, 0), self.sizes());
        Tensor t = self;
        for (size_t k = 0; k < dims.size(); ++k) {
          index_check(self.dim() > 0, "roll")
              << "Dimension specified as " << dims[k] << " but tensor has no dimensions";
          int d = wrap_dim("roll", dims[k].guard_int(), self.dim());
          check_shift("roll", "shifts", shifts[k]);
          SymInt n = self.size(d), s = shifts[k] % n;
          if (sym::is_run_time(s) || s != SymInt(int64_t(0)))
            t = cat(std::vector<Tensor>{narrow(t, d, n - s, s), narrow(t, d, int64_t(0), n - s)}, d);
        }
        return t.is_same(self) ? clone(self) : t;
      })
      .samples({"self[2, 3], shifts=[1]", "self[3, 4], shifts=[1, -2], dims=[0, 1]", "self[0], shifts=[1]"});
  define("tril(Tensor self, SymInt diagonal=0) -> Tensor")
      .dtypes(d::stored)
      .overlap(Overlap::overwrites)
      .doc("The lower triangle of the last two dimensions, up to `diagonal`; the rest is 0.")
      .in_place()
      .shape([](const Call& c) {
        check_triangle(c);
        return Dims(c.sizes("self"));
      })
      .loop([](const LoopCall& c, Index i) {
        Expr x = c.load("self", i);
        return select(i[i.size() - 1] - i[i.size() - 2] <= loop::size(c.integer("diagonal")), x, zero_of(x));
      })
      .samples({"self[3, 4]", "self[2, 3, 4], diagonal=1", "self[3, 4], diagonal=-1"});
  define("triu(Tensor self, SymInt diagonal=0) -> Tensor")
      .dtypes(d::stored)
      .overlap(Overlap::overwrites)
      .doc("The upper triangle of the last two dimensions, from `diagonal`; the rest is 0.")
      .in_place()
      .shape([](const Call& c) {
        check_triangle(c);
        return Dims(c.sizes("self"));
      })
      .loop([](const LoopCall& c, Index i) {
        Expr x = c.load("self", i);
        return select(i[i.size() - 1] - i[i.size() - 2] >= loop::size(c.integer("diagonal")), x, zero_of(x));
      })
      .samples({"self[3, 4]", "self[2, 3, 4], diagonal=1", "self[3, 4], diagonal=-1"});
  define("constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor")
      .dtypes(d::stored)
      .doc(
          "`pad` = (before, after) of the last dimension, then of the one before, ...; negative amounts crop.")
      .check(fitting({"value"}))
      .bind(function)
      .no_in_place()
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
      .no_in_place()
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
      .no_in_place()
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
      .differs(
          "complex\\d+ error: a result for TypeError \\(pad\\(\\): argument 'value' .* must be float, not complex",
          "complex images are padded by complex numbers")
      .differs("\\w+ error: a result for RuntimeError \\(Expected 2D or 3D .* with sizes 2 as 0",
               "nothing has no border")
      .doc(
          "`pad` = (before, after) of the last dimension, then of the one before, ... By `value`, or in the last one to three dimensions of a batched or single image by elements of its own: `mode` 'reflect', 'replicate' or 'circular'.")
      .dtypes(d::stored)
      .bind(nn_functional)
      .no_in_place()
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
  define("_to_device(Tensor self, Device device) -> Tensor")
      .doc("The elements of self on another device, dense; itself where it is there.")
      .bind(hidden)
      .moves()
      .batched_in_front()
      .no_in_place()
      .procedure([](const Call& c, const Tensor& self) {
        supported_check(!self.is_traced(), "to") << "a trace stays on one device; move tensors before it";
        Device from = self.device(), to = numbered(c["device"].device);
        if (to == from) return self;
        auto node = make_ref<autograd::FunctionNode>("ToCopyBackward0", std::vector<Tensor>{self});
        node->backward = [from](std::vector<Tensor> grads) {
          return std::vector<Tensor>{_to_device(grads[0], from)};
        };
        return node->finish({run::moved(self, to)})[0];
      })
      .samples({"self[3, 4], device=cpu"});
  define("to(Tensor(a) self, dtype dtype, bool non_blocking=False, bool copy=False) -> Tensor(a)")
      .doc("self converted to `dtype`; itself if nothing changes and copy is False.")
      .bind(method)
      .no_in_place()
      .procedure([](const Call& c, const Tensor& self) {
        DType t = *c.maybe_dtype("dtype");
        if (t == self.dtype()) return c.flag("copy") ? clone(self) : self;
        return to_dtype(self, t);
      })
      .samples({"self[3, 4], dtype=int32", "self[3, 4], dtype=float64, copy=True"});
  define("_to_copy(Tensor self, *, dtype? dtype=None, MemoryFormat? memory_format=None) -> Tensor")
      .doc("A copy of self, as `dtype` and in the memory order given.")
      .bind(hidden)
      .no_in_place()
      .procedure([](const Tensor& self, std::optional<DType> dtype, std::optional<MemoryFormat> format) {
        bool converts = dtype && *dtype != self.dtype();
        Tensor t = converts ? to_dtype(self, *dtype) : self;
        if (!format && converts) return t;
        return format ? clone(t, *format) : clone(t);
      })
      .samples({"self[3, 4], dtype=int32", "self[3, 4]"});
}
