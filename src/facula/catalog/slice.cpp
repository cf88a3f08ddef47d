// Views of a part of a tensor, or of its elements in windows.
#include "facula/autograd/tracing.h"
#include "facula/op/call.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/op/views.h"
#include "facula/ops.h"
#include "facula/sym/run_time.h"

using namespace facula;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {
// Start and length of a slice along a dimension of `n` elements, Python's rules.
std::pair<SymInt, SymInt> slice_range(const char* name, SymInt n, SymInt start, SymInt end, SymInt step) {
  value_check(step > SymInt(int64_t(0)), name) << "slice step must be positive, but got " << step;
  bool later = sym::is_run_time(n) || sym::is_run_time(start) || sym::is_run_time(end);  // known only then
  auto clip = [&](SymInt i) {
    i = sym::from_the_end(i, n);
    if (later) return max(min(i, n), SymInt(int64_t(0)));
    if (i < SymInt(int64_t(0))) return SymInt(int64_t(0));
    return i > n ? n : i;
  };
  start = clip(start);
  end = clip(end);
  if (later) end = max(start, end);
  else if (end < start) end = start;
  return {start, (end - start + step - SymInt(int64_t(1))) / step};
}
SymInt wrapped_index(const char* name, SymInt i, SymInt n, int dim, SymSpan sizes) {
  index_check(sym::may_be_less(i, n) && sym::may_be_at_most(-n, i), name)
      << "index " << i << " is out of bounds for dimension " << dim << " with size " << n << " (shape "
      << to_string(sizes) << ")";
  return sym::from_the_end(i, n);
}
// Slices of `size` of the n elements along `dim`; the last may be smaller.
std::vector<Geometry> pieces(const Call& c, const Geometry& g, int dim, int64_t n, int64_t size) {
  int64_t count = n ? (n - 1) / size + 1 : 1;
  return views(c.name(), g, count, [&](Geometry& piece, int64_t k) {
    piece.slice(dim, k * size, std::min(size, n - k * size), int64_t(1));
  });
}
}  // namespace

FACULA_FAMILY(slice) {
  define("select(Tensor(a) self, int dim, SymInt index) -> Tensor(a)")
      .doc("The slice of self at `index` of `dim`, without that dimension.")
      .view([](const Call& c, Geometry g) {
        index_check(g.dim() > 0, "select")
            << "cannot be applied to a 0-dim tensor" << hint("x.item() gives its value");
        int d = c.dim("dim");
        g.select(d, wrapped_index("select", c.integer("index"), g.size(d), d, g.sizes()));
        return g;
      })
      .samples({"self[2, 3], dim=1, index=-1", "self[5], dim=0, index=2"});
  define("slice(Tensor(a) self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor(a)")
      .doc("Elements start, start + step, ... below end of `dim`, as Python's slices.")
      .bind(hidden)
      .view([](const Call& c, Geometry&& g) {
        const Value &dim = c.at(1), &from = c.at(2), &to = c.at(3), &step = c.at(4);  // of every x[a:b]
        int d = wrap_dim("slice", dim.integer().guard_int(), g.dim());
        index_check(g.dim() > 0, "slice") << "cannot be applied to a 0-d tensor";
        SymInt n = g.size(d);
        auto [start, length] = slice_range("slice", n, from.is_none() ? SymInt(int64_t(0)) : from.integer(),
                                           to.is_none() ? n : to.integer(), step.integer());
        g.slice(d, start, length, step.integer());
        return std::move(g);
      })
      .samples({"self[5, 3], dim=0, start=1, end=4, step=2", "self[5, 3], dim=1, start=-2",
                "self[5], start=3, end=1"});
  define("narrow(Tensor(a) self, int dim, SymInt start, SymInt length) -> Tensor(a)")
      .doc("Elements start to start + length - 1 of `dim`.")
      .grad_name("Slice")
      .view([](const Call& c, Geometry g) {
        runtime_check(g.dim() > 0, "narrow") << "cannot be applied to a 0-d tensor";
        int d = c.dim("dim");
        SymInt n = g.size(d), start = c.integer("start"), length = c.integer("length");
        runtime_check(sym::may_be_at_most(0, length), "narrow")
            << "length must be non-negative, got " << length;
        index_check(sym::may_be_at_most(-n, start) && sym::may_be_at_most(start, n), "narrow")
            << "start must be in [" << -n << ", " << n << "], got " << start;
        start = sym::from_the_end(start, n);
        runtime_check(sym::may_be_at_most(start + length, n), "narrow")
            << "start (" << start << ") + length (" << length << ") exceeds dimension size (" << n << ")";
        g.slice(d, start, length, int64_t(1));
        return g;
      })
      .samples({"self[4, 3], dim=0, start=1, length=2", "self[4, 3], dim=1, start=-2, length=1",
                "self[4], dim=0, start=4, length=0"});
  define("narrow.Tensor(Tensor(a) self, int dim, Tensor start, SymInt length) -> Tensor(a)")
      .doc("Elements start to start + length - 1 of `dim`; start is a 0-d tensor of integers.")
      .reads_data()
      .procedure([](const Tensor& self, int64_t dim, const Tensor& start, SymInt length) {
        runtime_check(start.dim() == 0 && is_integral(start.dtype()), "narrow")
            << "start must be a 0-dim integral tensor, got " << start.dtype() << " of shape "
            << to_string(start.sizes());
        return narrow(self, dim, SymInt(start.item().to_int()), length);
      })
      .samples({"self[4, 3], dim=0, start<2>[], length=2"});
  define("split(Tensor(a) self, SymInt split_size, int dim=0) -> Tensor(a)[]")
      .also("self", "tensor")
      .doc("Pieces of `split_size` elements along `dim`; the last may be smaller. All share self's storage.")
      .view([](const Call& c, Geometry g) {
        runtime_check(g.dim() > 0, "split") << "expects at least a 1-dimensional tensor";
        int d = c.dim("dim");
        int64_t n = g.size(d).guard_int(), size = c.integer("split_size").guard_int();
        runtime_check(size > 0 || (size == 0 && n == 0), "split")
            << "split_size must be positive, got " << size << " for dimension size " << n;
        return pieces(c, g, d, n, size);
      })
      .samples({"self[5, 3], split_size=2", "self[3, 4], split_size=4, dim=1"});
  define("split.sizes(Tensor(a) self, SymInt[] split_size, int dim=0) -> Tensor(a)[]")
      .grad_name("SplitWithSizes")
      .also("self", "tensor")
      .also("split_size", "split_sizes")
      .doc("Pieces of the given sizes along `dim`.")
      .alias("split_with_sizes")
      .view([](const Call& c, Geometry g) {
        runtime_check(g.dim() > 0, "split") << "expects at least a 1-dimensional tensor";
        int d = c.dim("dim");
        auto lengths = c.ints("split_size");
        SymInt sum = int64_t(0);
        for (auto n : lengths) {
          runtime_check(sym::may_be_at_most(0, n), "split")
              << "expects sizes that are not negative, got " << to_string(lengths);
          sum += n;
        }
        runtime_check(sym::may_equal(sum, g.size(d)), "split")
            << "expects split_sizes to sum exactly to " << g.size(d) << " (the size of dimension " << d
            << " of shape " << to_string(g.sizes()) << "), but got " << to_string(lengths);
        SymInt at = int64_t(0);
        return views(c.name(), g, int64_t(lengths.size()), [&](Geometry& piece, int64_t k) {
          piece.slice(d, at, lengths[size_t(k)], int64_t(1));
          at += lengths[size_t(k)];
        });
      })
      .samples({"self[5, 3], split_size=[1, 4]", "self[3, 4], split_size=[1, 0, 3], dim=-1"});
  define("chunk(Tensor(a) self, int chunks, int dim=0) -> Tensor(a)[]")
      .doc("At most `chunks` pieces of equal size along `dim`, the last possibly smaller.")
      .grad_name("Split")
      .view([](const Call& c, Geometry g) {
        runtime_check(g.dim() > 0, "chunk") << "expects at least a 1-dimensional tensor";
        int d = c.dim("dim");
        int64_t n = g.size(d).guard_int(), count = c.integer("chunks").guard_int();
        runtime_check(count > 0, "chunk") << "expects chunks to be greater than 0, got " << count;
        if (n) return pieces(c, g, d, n, (n - 1) / count + 1);
        return views(c.name(), g, count,
                     [&](Geometry& piece, int64_t) { piece.slice(d, int64_t(0), int64_t(0), int64_t(1)); });
      })
      .samples({"self[5, 3], chunks=3", "self[7], chunks=4"});
  define("unbind(Tensor(a) self, int dim=0) -> Tensor(a)[]")
      .doc("All slices along `dim`, each without that dimension.")
      .view([](const Call& c, Geometry g) {
        index_check(g.dim() > 0, "unbind") << "Dimension specified as 0 but tensor has no dimensions";
        int d = c.dim("dim");
        return views(c.name(), g, g.size(d).guard_int(),
                     [&](Geometry& piece, int64_t k) { piece.select(d, k); });
      })
      .samples({"self[3, 2], dim=1", "self[2, 3]"});
  define("diagonal(Tensor(a) self, SymInt offset=0, int dim1=0, int dim2=1) -> Tensor(a)")
      .doc("The diagonal of dimensions dim1 and dim2 as the last dimension.")
      .view([](const Call& c, Geometry g) {
        int a = c.dim("dim1"), b = c.dim("dim2");
        runtime_check(a != b, "diagonal") << "dimensions cannot be identical " << a << ", " << b;
        g.diagonal(a, b, c.integer("offset"));
        return g;
      })
      .samples({"self[3, 4]", "self[2, 3, 4], offset=1, dim1=1, dim2=2", "self[3, 4], offset=-1"});
  define("unfold(Tensor(a) self, int dimension, SymInt size, SymInt step) -> Tensor(a)")
      .doc("Windows of `size` elements every `step` along `dimension`, as a new last dimension.")
      .bind(method)
      .view([](const Call& c, Geometry g) {
        int d = c.dim("dimension");
        SymInt size = c.integer("size"), step = c.integer("step");
        SymInt n = g.dim() ? g.size(d) : SymInt(int64_t(1));
        runtime_check(sym::may_be_at_most(size, n), "unfold")
            << "maximum size for tensor at dimension " << d << " is " << n << " but size is " << size;
        runtime_check(step > SymInt(int64_t(0)), "unfold") << "step is " << step << " but must be > 0";
        Dims sizes(g.sizes()), strides(g.strides());
        SymInt stride = g.dim() ? g.strides()[size_t(d)] : SymInt(int64_t(1));
        if (g.dim()) {
          sizes[size_t(d)] = (n - size) / step + SymInt(int64_t(1));
          strides[size_t(d)] = stride * step;
        }
        sizes.push_back(size);
        strides.push_back(stride);
        g.strided(sizes, strides, g.offset());
        return g;
      })
      .samples({"self[7], dimension=0, size=3, step=2", "self[2, 7], dimension=1, size=3, step=1"});
  define(
      "as_strided(Tensor(a) self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor(a)")
      .doc("A view of self's storage with the given sizes, strides and offset, in elements.")
      .in_place()
      .view([](const Call& c, Geometry g) {
        auto size = c.ints("size"), stride = c.ints("stride");
        SymInt offset = c.has("storage_offset") ? c.integer("storage_offset") : g.offset();
        runtime_check(size.size() == stride.size(), "as_strided")
            << "mismatch in length of strides and shape: " << to_string(stride) << " and " << to_string(size);
        Tensor self = c.tensor("self");
        int64_t last =
            any_symbolic(size) || any_symbolic(stride) || offset.is_symbolic() ? 0 : offset.concrete();
        bool empty = false, overflow = false;
        for (size_t k = 0; k < size.size(); ++k) {
          runtime_check(!(size[k] < SymInt(int64_t(0))) && !(stride[k] < SymInt(int64_t(0))), "as_strided")
              << "negative sizes and strides are not supported: " << to_string(size) << ", "
              << to_string(stride);
          empty |= size[k] == SymInt(int64_t(0));
          int64_t step = 0;
          if (!size[k].is_symbolic() && !stride[k].is_symbolic())
            overflow |= __builtin_mul_overflow(size[k].concrete() - 1, stride[k].concrete(), &step) ||
                        __builtin_add_overflow(last, step, &last);
        }
        if (!empty && self.impl()->storage) {
          int64_t held = int64_t(self.impl()->storage->bytes()) / self.itemsize();
          runtime_check(!overflow && last < held && offset >= SymInt(int64_t(0)), "as_strided")
              << "size " << to_string(size) << ", stride " << to_string(stride) << " and storage offset "
              << offset << " are out of bounds for storage of " << self.impl()->storage->bytes() << " bytes";
        }
        g.strided(size, stride, offset);
        return g;
      })
      .samples(
          {"self[12], size=[3, 2], stride=[2, 1], storage_offset=1", "self[12], size=[3, 3], stride=[1, 1]"});
}
