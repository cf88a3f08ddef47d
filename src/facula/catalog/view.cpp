// Views: another geometry over the same storage. Gradients and functional forms follow from the steps.
#include "facula/autograd/tracing.h"
#include "facula/catalog/warns.h"
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

// Dtypes of the parts of complex numbers.
constexpr DTypeSet kParts = dtypes_where([](DType t) { return is_floating(t) && t != DType::BFloat16; });

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

// Whether a trace records the call; its values share no memory.
bool is_recorded() { return Mode::current() && Mode::current()->records(); }

// The memory of a lazy tensor must not be seen as it is.
void check_resolved(const Call& c, const char* name, const char* why) {
  const TensorImpl* t = c["self"].tensor;
  const char* what = t->conj ? "conj" : "neg";
  runtime_check(!t->is_lazy(), name) << "a view that " << what << (t->conj ? "ugates" : "ates")
                                     << " its elements as they are read " << why
                                     << hint("resolve_", what, "() gives a tensor of its own");
}

Ints all_dims(int rank) {
  Ints order;
  for (int k = 0; k < rank; ++k) order.push_back(k);
  return order;
}

// Slices of `size` of the n elements along `dim`; the last may be smaller.
std::vector<Geometry> pieces(const Call& c, const Geometry& g, int dim, int64_t n, int64_t size) {
  int64_t count = n ? (n - 1) / size + 1 : 1;
  return views(c.name(), g, count, [&](Geometry& piece, int64_t k) {
    piece.slice(dim, k * size, std::min(size, n - k * size), int64_t(1));
  });
}

}  // namespace

FACULA_FAMILY(view) {
  define("view(Tensor(a) self, SymInt[] size) -> Tensor(a)")
      .doc("The same elements under another shape, without copying. One size may be -1.")
      .bind(method)
      .view([](const Call& c, Geometry&& g) {
        g.reshape(infer_shape("view", c.ints("size"), product(g.sizes())));
        return std::move(g);
      })
      .samples({"self[2, 6], size=[3, 4]", "self[2, 6], size=[-1]", "self[], size=[1, 1]",
                "self[0, 3], size=[3, 0]"});
  define("_view_dtype(Tensor(a) self, dtype dtype) -> Tensor(a)")
      .doc("The same bytes as elements of another dtype.")
      .bind(hidden)
      .non_differentiable()
      .undifferenced("the bytes of the elements are read as another dtype")
      .view([](const Call& c, Geometry g) {
        check_resolved(c, "view", "has other bytes than it shows");
        g.as_dtype(c.dtype("self"), *c.maybe_dtype("dtype"));
        return g;
      })
      .samples({"self[3, 4], dtype=int32"});
  define("view.dtype(Tensor(a) self, dtype dtype) -> Tensor(a)")
      .doc("The same bytes as elements of another dtype; the last dimension grows or shrinks as they do.")
      .bind(method)
      .procedure([](const Call& c, const Tensor& self) {
        DType to = *c.maybe_dtype("dtype");
        return to == self.dtype() ? view(self, self.sizes()) : _view_dtype(self, to);
      })
      .samples({"self[3, 4], dtype=int32"});
  define("alias(Tensor(a) self) -> Tensor(a)")
      .doc("A view of all of self.")
      .bind(hidden)
      .view([](const Call&, Geometry g) { return g; })
      .samples({"self[2, 3]"});
  define("detach(Tensor(a) self) -> Tensor(a)")
      .doc("self cut off from the graph of gradients; shares storage and version.")
      .non_differentiable()
      .undifferenced("it is what the function is for")
      .view([](const Call&, Geometry g) { return g; })
      .samples({"self[2, 3]"});
  define("_conj(Tensor(a) self) -> Tensor(a)")
      .doc("The conjugates of complex numbers, worked out when they are read; shares memory.")
      .bind(hidden)
      .dtypes(d::complex | d::half_complex)
      .view([](const Call&, Geometry g) {
        g.conj();
        return g;
      })
      .samples({"self[3, 4]", "self[]", "self[2, 0]"});
  define("_neg_view(Tensor(a) self) -> Tensor(a)")
      .doc("The negatives of numbers, worked out when they are read; shares memory.")
      .bind(hidden)
      .dtypes(d::floating | d::complex | d::half_complex)
      .view([](const Call&, Geometry g) {
        g.neg();
        return g;
      })
      .samples({"self[3, 4]", "self[]", "self[2, 0]"});
  define("conj(Tensor(a) self) -> Tensor(a)")
      .doc("The complex conjugate, sharing memory: it is worked out when it is read. A real tensor itself.")
      .procedure([](const Tensor& self) {
        if (!is_complex(self.dtype())) return self;
        if (!is_recorded()) return _conj(self);
        Tensor computed = conj_physical(self);
        if (auto* trace = autograd::Tracing::current()) trace->computes_view(computed, self);
        return computed;
      })
      .samples(unary_samples());
  define("conj_physical(Tensor self) -> Tensor")
      .dtypes(d::stored)
      .exact_out()
      .doc("The complex conjugate, computed. A real tensor itself.")
      .in_place()
      .procedure([](const Tensor& self) { return is_complex(self.dtype()) ? _conj_physical(self) : self; })
      .samples(unary_samples());
  define("resolve_conj(Tensor(a) self) -> Tensor(a)")
      .doc("self, or where conj() made it a view of conjugates, a tensor of them.")
      .procedure([](const Tensor& self) { return self.impl()->conj ? conj_physical(_conj(self)) : self; })
      .samples(unary_samples());
  define("resolve_neg(Tensor(a) self) -> Tensor(a)")
      .doc(
          "self, or where it is a view of negatives, as the imaginary part of a conj() is, a tensor of them.")
      .procedure([](const Tensor& self) { return self.impl()->neg ? neg(_neg_view(self)) : self; })
      .samples(unary_samples());
  define("view_as_real(Tensor(a) self) -> Tensor(a)")
      .doc("Complex numbers as pairs of real ones along a new last dimension; shares memory.")
      .bind(function)
      .dtypes(d::complex | d::half_complex)
      .view([](const Call& c, Geometry g) {
        check_resolved(c, "view_as_real", "has no real view");
        g.as_real(c.dtype("self"));
        return g;
      })
      .samples({"self[3, 4]", "self[]", "self[2, 0]"});
  define("view_as_complex(Tensor(a) self) -> Tensor(a)")
      .autocast(Autocast::fp32)
      .doc(
          "Pairs of real numbers along the last dimension, which has size 2, as complex ones; shares memory.")
      .bind(function)
      .dtypes(kParts)
      .view([](const Call& c, Geometry g) {
        check_resolved(c, "view_as_complex", "has no complex view");
        g.as_complex(c.dtype("self"));
        return g;
      })
      .samples({"self[3, 4, 2]", "self[2]", "self[0, 2]"});
  define("real(Tensor(a) self) -> Tensor(a)")
      .doc("The real part of complex numbers, sharing their memory; a real tensor itself.")
      .bind(function | property)
      .procedure([](const Tensor& self) {
        if (!is_complex(self.dtype())) return self;
        return select(view_as_real(self.impl()->conj ? _conj(self) : self), -1, int64_t(0));
      })
      .samples(unary_samples());
  define("imag(Tensor(a) self) -> Tensor(a)")
      .doc("The imaginary part of complex numbers, sharing their memory.")
      .dtypes(d::complex | d::half_complex)
      .bind(function | property)
      .procedure([](const Tensor& self) {
        runtime_check(is_complex(self.dtype()), "imag")
            << "is not implemented for tensors with non-complex dtypes, got " << self.dtype();
        if (self.impl()->conj) return _neg_view(select(view_as_real(_conj(self)), -1, int64_t(1)));
        return select(view_as_real(self), -1, int64_t(1));
      })
      .samples(unary_samples());
  define("reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)")
      .doc("The same elements under another shape: a view where possible, else a copy.")
      .procedure([](const Tensor& self, SymSpan shape) {
        Dims to = infer_shape("reshape", shape, self.numel());
        if (!Mode::current())
          return Geometry("reshape", self).can_view(to) ? view(self, to) : view(contiguous(self), to);
        bool seen, later;  // later: it may be a view where a program meets other sizes
        {
          sym::Comparing comparing("reshape", sym::Comparing::assumes);
          seen = Geometry("reshape", self).can_view(to);
          later = sym::Comparing::assumed();
        }
        // The program infers such sizes itself, and says what does not fit.
        SymSpan asked = std::ranges::any_of(to, sym::is_run_time) ? shape : SymSpan(to);
        if (seen && !later) return view(self, asked);
        Tensor rows = contiguous(self), shaped = view(rows, asked);
        auto* trace = autograd::Tracing::current();
        if (trace && later && !rows.is_same(self)) trace->computes_view(shaped, self);
        return shaped;
      })
      .samples({"self[2, 6], shape=[3, -1]", "self[], shape=[1]", "self[0, 3], shape=[0]"});
  define("flatten(Tensor(a) self, int start_dim=0, int end_dim=-1) -> Tensor(a)")
      .doc("Dimensions start_dim to end_dim merged into one.")
      .procedure([](const Call& c, const Tensor& self) {
        int a = c.dim("start_dim"), b = c.dim("end_dim");
        if (self.dim() == 0) return reshape(self, {1});
        runtime_check(a <= b, "flatten") << "start_dim cannot come after end_dim: " << a << " and " << b;
        Dims to;
        SymInt merged = int64_t(1);
        for (int k = 0; k < self.dim(); ++k) {
          if (k < a || k > b) to.push_back(self.size(k));
          else {
            merged *= self.size(k);
            if (k == b) to.push_back(merged);
          }
        }
        return reshape(self, to);
      })
      .samples({"self[2, 3, 4], start_dim=1", "self[2, 3, 4], end_dim=1", "self[]"});
  define("unflatten(Tensor(a) self, int dim, SymInt[] sizes) -> Tensor(a)")
      .doc("Dimension `dim` split into `sizes`.")
      .procedure([](const Call& c, const Tensor& self) {
        int d = c.dim("dim");
        Dims part = infer_shape("unflatten", c.ints("sizes"), self.size(d)), to;
        for (int k = 0; k < self.dim(); ++k) {
          if (k != d) to.push_back(self.size(k));
          else
            for (auto s : part) to.push_back(s);
        }
        return view(self, to);
      })
      .samples({"self[2, 6], dim=1, sizes=[2, -1]"});
  define("view_as(Tensor(a) self, Tensor other) -> Tensor(a)")
      .doc("self viewed with the shape of other.")
      .bind(method)
      .procedure([](const Tensor& self, const Tensor& other) { return view(self, other.sizes()); })
      .samples({"self[2, 6], other[3, 4]"});
  define("reshape_as(Tensor(a) self, Tensor other) -> Tensor(a)")
      .doc("self reshaped to the shape of other.")
      .bind(method)
      .procedure([](const Tensor& self, const Tensor& other) { return reshape(self, other.sizes()); })
      .samples({"self[2, 6], other[3, 4]"});
  define("permute(Tensor(a) self, int[] dims) -> Tensor(a)")
      .doc("Dimensions reordered: dimension k of the result is dims[k] of self.")
      .view([](const Call& c, Geometry g) {
        auto dims = c.ints("dims");
        runtime_check(int(dims.size()) == g.dim(), "permute")
            << "number of dimensions in the tensor input does not match the length of the desired ordering: "
            << g.dim() << " (shape " << to_string(g.sizes()) << ") and " << dims.size();
        Ints order;
        for (auto i : dims) order.push_back(wrap_dim("permute", i.guard_int(), g.dim()));
        Ints sorted = order;
        std::sort(sorted.begin(), sorted.end());
        runtime_check(sorted == all_dims(g.dim()), "permute")
            << "duplicate dims are not allowed: " << to_string(dims);
        g.permute(order);
        return g;
      })
      .samples({"self[2, 3, 4], dims=[2, 0, 1]", "self[2, 3, 4], dims=[-1, 0, -2]", "self[], dims=[]"});
  define("transpose(Tensor(a) self, int dim0, int dim1) -> Tensor(a)")
      .also("dim0", "axis0")
      .also("dim1", "axis1")
      .doc("`self` with two dimensions exchanged; shares storage.")
      .alias("swapaxes")
      .alias("swapdims")
      .in_place()
      .view([](const Call& c, Geometry g) {
        int a = c.dim("dim0"), b = c.dim("dim1");
        if (g.dim()) g.swap(a, b);
        return g;
      })
      .samples({"self[2, 3, 4], dim0=0, dim1=-1", "self[5], dim0=0, dim1=0"});
  define("t(Tensor(a) self) -> Tensor(a)")
      .doc("The transpose of a matrix; vectors and scalars stay.")
      .in_place()
      .view([](const Call&, Geometry g) {
        runtime_check(g.dim() <= 2, "t")
            << "expects a tensor with <= 2 dimensions, but self is " << g.dim() << "D "
            << to_string(g.sizes()) << hint("x.mT transposes the last two dimensions");
        if (g.dim() == 2) g.swap(0, 1);
        return g;
      })
      .samples({"self[2, 3]", "self[5]", "self[]"});
  define("mT(Tensor(a) self) -> Tensor(a)")
      .doc("The last two dimensions exchanged; a tensor without dimensions is itself.")
      .grad_name("Transpose")
      .bind(property)
      .view([](const Call&, Geometry g) {
        runtime_check(g.dim() != 1, "mT")
            << "needs a matrix or a batch of matrices, got shape " << to_string(g.sizes());
        if (g.dim()) g.swap(g.dim() - 2, g.dim() - 1);
        return g;
      })
      .samples({"self[2, 3, 4]", "self[]"});
  define("T(Tensor(a) self) -> Tensor(a)")
      .doc("All dimensions reversed.")
      .check([](const Call& c) {
        if (c.rank("self") == 0)
          warn_once("Tensor.T is deprecated on 0-D tensors. This function is the identity in these cases.");
        else if (c.rank("self") != 2)
          warn_once(
              "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is deprecated and it will throw an error in a "
              "future release. Consider `x.mT` to transpose batches of matrices or `x.permute(*torch.arange(x.ndim - 1, -1, -1))` to reverse "
              "the dimensions of a tensor.");
      })
      .grad_name("Permute")
      .bind(property)
      .view([](const Call&, Geometry g) {
        Ints order = all_dims(g.dim());
        std::reverse(order.begin(), order.end());
        g.permute(order);
        return g;
      })
      .samples({"self[2, 3]"});
  define("movedim(Tensor(a) self, int[1] source, int[1] destination) -> Tensor(a)")
      .doc("Dimensions `source` moved to the positions `destination`.")
      .grad_name("Permute")
      .alias("moveaxis")
      .view([](const Call& c, Geometry g) {
        auto from = c.ints("source"), to = c.ints("destination");
        runtime_check(from.size() == to.size(), "movedim")
            << "source and destination must have as many dimensions: " << from.size() << " and " << to.size();
        Ints order(size_t(g.dim()), -1);
        std::vector<bool> taken(size_t(g.dim()));
        for (size_t k = 0; k < from.size(); ++k) {
          int s = wrap_dim("movedim", from[k].guard_int(), g.dim()),
              d = wrap_dim("movedim", to[k].guard_int(), g.dim());
          runtime_check(order[size_t(d)] < 0 && !taken[size_t(s)], "movedim")
              << "a dimension is named twice in " << to_string(from) << " or " << to_string(to);
          order[size_t(d)] = s;
          taken[size_t(s)] = true;
        }
        int next = 0;
        for (auto& o : order) {
          if (o >= 0) continue;
          while (taken[size_t(next)]) ++next;
          o = next++;
        }
        g.permute(order);
        return g;
      })
      .samples(
          {"self[2, 3, 4], source=[0], destination=[2]", "self[2, 3, 4], source=[0, 1], destination=[2, 0]"});
  define("expand(Tensor(a) self, SymInt[] size, *, bool implicit=False) -> Tensor(a)")
      .doc("Dimensions of size 1 repeated without copying; -1 keeps a size; new dimensions go in front.")
      .bind(method)
      .view([](const Call& c, Geometry g) {
        g.expand(c.ints("size"));
        return g;
      })
      .samples({"self[3, 1], size=[3, 4]", "self[3, 1], size=[2, -1, 4]", "self[], size=[2, 2]",
                "self[1], size=[0]"});
  define("expand_as(Tensor(a) self, Tensor other) -> Tensor(a)")
      .doc("self expanded to the shape of other.")
      .bind(method)
      .procedure([](const Tensor& self, const Tensor& other) { return expand(self, other.sizes()); })
      .samples({"self[4], other[3, 4]"});
  define("broadcast_to(Tensor(a) self, SymInt[] size) -> Tensor(a)")
      .doc("self expanded to `size`.")
      .procedure([](const Tensor& self, SymSpan size) { return expand(self, size); })
      .samples({"self[4], size=[3, 4]"});
  define("unsqueeze(Tensor(a) self, int dim) -> Tensor(a)")
      .doc("A dimension of size 1 inserted before `dim`.")
      .in_place()
      .view([](const Call& c, Geometry g) {
        g.insert(wrap_dim("unsqueeze", c.integer("dim").guard_int(), g.dim() + 1));
        return g;
      })
      .samples({"self[3], dim=0", "self[2, 3], dim=-1", "self[], dim=0"});
  define("squeeze(Tensor(a) self) -> Tensor(a)")
      .doc("All dimensions of size 1 removed.")
      .in_place()
      .view([](const Call&, Geometry g) {
        for (int k = g.dim() - 1; k >= 0; --k)
          if (g.size(k) == SymInt(int64_t(1))) g.erase(k);
        return g;
      })
      .samples({"self[1, 3, 1]", "self[]"});
  define("squeeze.dims(Tensor(a) self, int[1] dim) -> Tensor(a)")
      .doc("The given dimensions removed where their size is 1.")
      .grad_name([](const Call& c) { return grad_name("Squeeze", c.ints("dim").size() == 1 ? 1 : 2); })
      .in_place()
      .view([](const Call& c, Geometry g) {
        Ints dims;
        for (auto i : c.ints("dim")) dims.push_back(wrap_dim("squeeze", i.guard_int(), g.dim()));
        std::sort(dims.begin(), dims.end());
        auto twice = std::adjacent_find(dims.begin(), dims.end());
        runtime_check(twice == dims.end(), "squeeze")
            << "dim " << *twice << " appears multiple times in the list of dims";
        for (size_t k = dims.size(); k-- > 0;)
          if (g.dim() && g.size(int(dims[k])) == SymInt(int64_t(1))) g.erase(int(dims[k]));
        return g;
      })
      .samples({"self[1, 3, 1], dim=[0]", "self[1, 3, 1], dim=[0, -1]", "self[2, 3], dim=[0]"});
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
