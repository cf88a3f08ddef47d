// Copies that rearrange: joining, repeating, mirroring, padding, triangles.
#include "facula/autograd/calls.h"
#include "facula/autograd/function.h"
#include "facula/autograd/tracing.h"
#include "facula/catalog/shifts.h"
#include "facula/op/batched.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"
#include "facula/run/devices.h"
#include "facula/sym/one_sided.h"
#include "facula/sym/run_time.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {
Expr zero_of(Expr like) { return constant(Scalar(int64_t(0)), like.dtype()); }
void check_triangle(const Call& c) {
  runtime_check(c.rank("self") >= 2, c.name())
      << "input tensor must have at least 2 dimensions, got shape " << to_string(c.sizes("self"));
}
}  // namespace

FACULA_FAMILY(shape) {
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
        sym::Refused refused;
        if (format == MemoryFormat::preserve || self.is_contiguous(format)) return self;
        Tensor copy;
        {
          sym::Refused of_clone;
          copy = clone(self, format);
        }
        auto* trace = autograd::Tracing::current();
        if (trace && !refused.guards().empty()) trace->computes_view(copy, self);
        return copy;
      })
      .samples({"self[]", "self[5]", "self[2, 3, 4]", "self[2, 0, 3]"});
  define("_row_major(Tensor self) -> Tensor")
      .dtypes(d::stored)
      .doc("A copy of self in row-major order.")
      .grad_name("Clone")
      .bind(hidden)
      .shape([](const Call& c) { return Dims(c.sizes("self")); })
      .loop([](const LoopCall& c, Index i) { return c.load("self", i); })
      .samples({"self[]", "self[5]", "self[2, 3, 4]", "self[2, 0, 3]"});
  define("_copied(Tensor self) -> Tensor")
      .dtypes(d::stored)
      .doc("A copy of self with its dimensions in the same order of memory.")
      .grad_name("Clone")
      .bind(hidden)
      .pointwise([](Expr x) { return x; })
      .samples({"self[]", "self[5]", "self[2, 3, 4]", "self[2, 0, 3]"});
  define("clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor")
      .converting_out()
      .doc("A copy of self, by default in the same memory order.")
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
  define("_to_device(Tensor self, Device device) -> Tensor")
      .doc("The elements of self on another device, dense; itself where it is there.")
      .bind(hidden)
      .moves()
      .batched_in_front()
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
      .procedure([](const Call& c, const Tensor& self) {
        DType t = *c.maybe_dtype("dtype");
        if (t == self.dtype()) return c.flag("copy") ? clone(self) : self;
        return to_dtype(self, t);
      })
      .samples({"self[3, 4], dtype=int32", "self[3, 4], dtype=float64, copy=True"});
  define("_to_copy(Tensor self, *, dtype? dtype=None, MemoryFormat? memory_format=None) -> Tensor")
      .doc("A copy of self, as `dtype` and in the memory order given.")
      .bind(hidden)
      .procedure([](const Tensor& self, std::optional<DType> dtype, std::optional<MemoryFormat> format) {
        bool converts = dtype && *dtype != self.dtype();
        Tensor t = converts ? to_dtype(self, *dtype) : self;
        if (!format && converts) return t;
        return format ? clone(t, *format) : clone(t);
      })
      .samples({"self[3, 4], dtype=int32", "self[3, 4]"});
}
