// Views: another geometry over the same storage. Gradients and functional forms follow from the steps.
#include "facula/autograd/tracing.h"
#include "facula/base/warning.h"
#include "facula/op/call.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/op/views.h"
#include "facula/ops.h"
#include "facula/sym/one_sided.h"
#include "facula/sym/run_time.h"

using namespace facula;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {
// Dtypes of the parts of complex numbers.
constexpr DTypeSet kParts = dtypes_where([](DType t) { return is_floating(t) && t != DType::BFloat16; });
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
      .non_differentiable("the bytes of the elements are read as another dtype")
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
      .non_differentiable("it is what the function is for")
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
        sym::Refused none;  // it is a view for all sizes
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
        bool seen, later, assumed;  // later: it may be a view where a program meets other sizes
        sym::Refused refused;
        {
          sym::Comparing comparing("reshape", sym::Comparing::assumes);
          seen = Geometry("reshape", self).can_view(to);
          assumed = sym::Comparing::assumed();
          later = assumed || !refused.guards().empty();
        }
        // The program infers such sizes itself, and says what does not fit.
        SymSpan asked = std::ranges::any_of(to, sym::is_run_time) ? shape : SymSpan(to);
        if (seen && !later) return view(self, asked);
        Tensor rows, shaped;
        {
          sym::Refused of_copy;
          rows = contiguous(self), shaped = view(rows, asked);
        }
        auto* trace = autograd::Tracing::current();
        std::optional<sym::Refused> none;  // no guard on sizes that are known later can exclude a view
        if (assumed) none.emplace();
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
      .forwards("expand")
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
}
