// New tensors from sizes and numbers.
#include "facula/autograd/calls.h"
#include "facula/autograd/forward.h"
#include "facula/base/deterministic.h"
#include "facula/catalog/sizes.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/op/registry.h"
#include "facula/ops.h"
#include "facula/tensor/resize.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;

namespace {
using catalog::checked_size;
DType number_dtype(const Call& c, std::string_view arg) {
  DType t = operand_dtype(c[arg]);
  return t == DType::UInt64       ? DType::Int64  // which it does not fit
         : t == DType::Float64    ? default_dtype()
         : t == DType::Complex128 ? complex_of(default_dtype())
                                  : t;
}
// A tensor made like another, in the order of memory_format= if one is given.
Tensor in_format(const Call& c, const Tensor& made) {
  return c.has("memory_format") ? contiguous(made, c["memory_format"].format) : made;
}
// Memory without a value, unless a value is asked for.
bool fills() { return fill_uninitialized.load(std::memory_order_relaxed); }
Scalar value_of_unset(DType d) {
  return is_floating(d) || is_complex(d) ? Scalar(std::nan(""))
         : d == DType::Bool              ? Scalar(true)
                            : Scalar(int64_t(~uint64_t(0) >> (64 - (8 * itemsize(d) - is_signed(d)))));
}
Tensor unset(SymSpan sizes, SymSpan strides, DType d, Device device = default_device()) {
  Tensor t = Tensor::empty_strided(sizes, strides, d, device);
  if (!fills()) [[likely]]
    return t;
  op::Value args[] = {t, value_of_unset(d)};
  return op::call(op::get("fill"), args, Form::in_place)[0];
}
// The elements that a trace records for uninitialised memory.
Scalar value_in_traces(DType d) { return fills() ? value_of_unset(d) : Scalar(int64_t(0)); }
// Memory without a value of any strides.
Tensor unset_strided(const Call& c, DType t) {
  Dims sizes = checked_size(c);
  auto strides = c.ints("stride");
  runtime_check(strides.size() == sizes.size(), c.name())
      << "dimensionality of sizes (" << sizes.size() << ") must match dimensionality of strides ("
      << strides.size() << ")";
  for (SymInt s : strides)
    runtime_check(!(s < SymInt(int64_t(0))), c.name())
        << "negative strides are not supported: " << to_string(strides);
  return Mode::current() ? full(sizes, value_in_traces(t), t) : unset(sizes, strides, t);
}
// The tensor with other sizes over its own memory, which grows, for its aliases too, where they need more. The elements
// that were there stay.
Tensor resized(const Call& c, const Tensor& self, SymSpan size, std::optional<MemoryFormat> format) {
  Dims sizes = checked_size(c);
  supported_check(!self.is_traced(), c.name())
      << "changes the memory of a tensor, which a trace cannot record";
  auto* t = self.impl();
  runtime_check(!self.requires_grad(), c.name()) << "cannot resize variables that require grad";
  runtime_check(!autograd::tangent_of(self).defined(), c.name())
      << "cannot resize variables that has a forward grad";
  if (std::ranges::equal(self.sizes(), size)) return self;
  Dims strides = strides_for(sizes, format.value_or(MemoryFormat::contiguous));
  int64_t wanted = (t->offset.concrete() + product(sizes).concrete()) * itemsize(t->dtype);
  if (product(sizes).concrete() && int64_t(t->storage->bytes()) < wanted) {
    // A block of a device's own memory cannot change its size: the tensor gets another one, and aliases keep the old one.
    if (auto* memory = memory_of(t->device.type)) {
      auto grown = make_ref<StorageImpl>(size_t(wanted), t->device);
      size_t bytes = t->storage->bytes();
      if (bytes) memory->from_host(grown->device_data(), self.on_host().impl()->storage->data(), bytes);
      t->storage = std::move(grown);
    } else {
      resize(*t->storage, size_t(wanted), c.name());
    }
  }
  t->sizes = sizes;
  t->strides = strides;
  return self;
}
}  // namespace

FACULA_FAMILY(create) {
  define(
      "full(SymInt[] size, Scalar fill_value, *, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor")
      .dtypes(dtypes::stored)
      .doc("A tensor of `size` filled with fill_value; without dtype, the number's own.")
      .bind(function)
      .check(fitting({"fill_value"}))
      .result([](const Call& c) {
        return std::vector<DType>{c.maybe_dtype("dtype").value_or(number_dtype(c, "fill_value"))};
      })
      .shape(checked_size)
      .loop([](const LoopCall& c, Index) {
        return c.scalar("fill_value",
                        compute_type(c.maybe_dtype("dtype").value_or(number_dtype(c, "fill_value"))));
      })
      .samples({"size=[2, 3], fill_value=1.5", "size=[], fill_value=2", "size=[0, 3], fill_value=True"});
  define(
      "zeros(SymInt[] size, *, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor")
      .doc("Zeros.")
      .bind(function)
      .procedure([](const Call& c, SymSpan size) {
        return full(size, 0, c.maybe_dtype("dtype").value_or(default_dtype()));
      })
      .samples({"size=[2, 3]", "size=[]", "size=[2, 0]"});
  define("ones(SymInt[] size, *, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor")
      .doc("Ones.")
      .bind(function)
      .procedure([](const Call& c, SymSpan size) {
        return full(size, 1, c.maybe_dtype("dtype").value_or(default_dtype()));
      })
      .samples({"size=[2, 3]", "size=[]", "size=[2, 0]"});
  define(
      "empty(SymInt[] size, *, dtype? dtype=None, Device? device=None, bool requires_grad=False, MemoryFormat? memory_format=None) -> Tensor")
      .doc("Uninitialised memory.")
      .bind(function)
      .procedure([](const Call& c) {
        Dims size = checked_size(c);
        DType t = c.maybe_dtype("dtype").value_or(default_dtype());
        // A format of another rank is refused here, in programs too.
        Dims strides =
            strides_for(size, c.has("memory_format") ? c["memory_format"].format : MemoryFormat::contiguous);
        if (Mode::current()) return in_format(c, full(size, value_in_traces(t), t));
        return unset(size, strides, t);
      })
      .samples({"size=[2, 3]"});
  define(
      "full_like(Tensor self, Scalar fill_value, *, dtype? dtype=None, Device? device=None, bool requires_grad=False, MemoryFormat? memory_format=None) -> Tensor")
      .doc("Shaped like self, filled with fill_value.")
      .bind(function)
      .non_differentiable("the elements are constants")
      .check(fitting({"fill_value"}))
      .procedure([](const Call& c, const Tensor& self) {
        Tensor like = c.maybe_dtype("dtype") ? to_dtype(detach(self), *c.maybe_dtype("dtype")) : detach(self);
        return in_format(c, autograd::invoke("fill", {like, c["fill_value"]}));
      })
      .samples({"self[2, 3], fill_value=7", "self[], fill_value=1.5"});
  define(
      "zeros_like(Tensor self, *, dtype? dtype=None, Device? device=None, bool requires_grad=False, MemoryFormat? memory_format=None) -> Tensor")
      .doc("Zeros shaped like self.")
      .bind(function)
      .non_differentiable("the elements are constants")
      .procedure([](const Call& c, const Tensor& self) {
        return in_format(c, full_like(self, 0, c.maybe_dtype("dtype")));
      })
      .samples({"self[2, 3]", "self[]", "self[0, 2]"});
  define(
      "ones_like(Tensor self, *, dtype? dtype=None, Device? device=None, bool requires_grad=False, MemoryFormat? memory_format=None) -> Tensor")
      .doc("Ones shaped like self.")
      .bind(function)
      .non_differentiable("the elements are constants")
      .procedure([](const Call& c, const Tensor& self) {
        return in_format(c, full_like(self, 1, c.maybe_dtype("dtype")));
      })
      .samples({"self[2, 3]", "self[]", "self[0, 2]"});
  define(
      "empty_like(Tensor self, *, dtype? dtype=None, Device? device=None, bool requires_grad=False, MemoryFormat? memory_format=None) -> Tensor")
      .doc("Uninitialised memory shaped like self.")
      .bind(function)
      .non_differentiable("the elements are whatever was in the memory")
      .procedure([](const Call& c, const Tensor& self) {
        DType t = c.maybe_dtype("dtype").value_or(self.dtype());
        auto format = c.has("memory_format") ? c["memory_format"].format : MemoryFormat::preserve;
        if (Mode::current()) return in_format(c, full_like(self, value_in_traces(t), t));
        Dims strides = format == MemoryFormat::preserve
                           ? dense_strides_like(self.sizes(), std::span(&self, 1))
                           : strides_for(self.sizes(), format);
        return unset(self.sizes(), strides, t, self.device());
      })
      .samples({"self[2, 3]"});
  define(
      "eye(SymInt n, SymInt? m=None, *, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor")
      .doc("Ones on the diagonal, zeros elsewhere: [n, m].")
      .bind(function)
      .result(
          [](const Call& c) { return std::vector<DType>{c.maybe_dtype("dtype").value_or(default_dtype())}; })
      .shape([](const Call& c) { return Dims{c.integer("n"), c.has("m") ? c.integer("m") : c.integer("n")}; })
      .loop([](const LoopCall& c, Index i) {
        return cast(eq(i[0], i[1]), compute_type(c.maybe_dtype("dtype").value_or(default_dtype())));
      })
      .samples({"n=3", "n=2, m=4"});
  define(
      "empty_strided(SymInt[] size, SymInt[] stride, *, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor")
      .doc("Uninitialised memory with the given strides.")
      .bind(function)
      .procedure(
          [](const Call& c) { return unset_strided(c, c.maybe_dtype("dtype").value_or(default_dtype())); })
      .samples({"size=[2, 3], stride=[1, 2]"});
  define(
      "new_empty_strided(Tensor self, SymInt[] size, SymInt[] stride, *, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor")
      .doc("Uninitialised memory with the given strides, of the dtype of self.")
      .bind(method)
      .non_differentiable("the elements are whatever was in the memory")
      .procedure(
          [](const Call& c) { return unset_strided(c, c.maybe_dtype("dtype").value_or(c.dtype("self"))); })
      .samples({"self[2], size=[2, 3], stride=[1, 2]"});
  define(
      "empty_permuted(SymInt[] size, int[] physical_layout, *, dtype? dtype=None, Device? device=None, bool requires_grad=False) -> Tensor")
      .doc("Uninitialised memory whose dimensions lie in the order of physical_layout, the outermost first.")
      .bind(function)
      .procedure([](const Call& c, SymSpan, SymSpan order) {
        Dims sizes = checked_size(c), strides(sizes.size(), SymInt(int64_t(-1)));
        runtime_check(order.size() == sizes.size(), c.name())
            << "number of dimensions in size does not match the length of the physical_layout; i.e. "
            << sizes.size() << " is not equal to " << order.size();
        SymInt stride = int64_t(1);
        for (size_t k = order.size(); k-- > 0;) {
          int64_t at = order[k].guard_int();
          runtime_check(at >= 0 && at < int64_t(sizes.size()), c.name())
              << "dimension out of range (expected to be between 0 and " << sizes.size() - 1 << ", but got "
              << at << ")";
          runtime_check(strides[size_t(at)] == SymInt(int64_t(-1)), c.name())
              << "duplicate dim " << at << " in physical_layout";
          strides[size_t(at)] = stride;
          stride = stride * max(sizes[size_t(at)], SymInt(int64_t(1)));
        }
        DType t = c.maybe_dtype("dtype").value_or(default_dtype());
        return Mode::current() ? full(sizes, value_in_traces(t), t) : unset(sizes, strides, t);
      })
      .samples({"size=[2, 3], physical_layout=[1, 0]"});
  define("fill_diagonal_(Tensor(a!) self, Scalar fill_value, bool wrap=False) -> Tensor(a!)")
      .doc(
          "Fills the diagonal; with `wrap` that of a tall matrix begins anew below its square, one row apart.")
      .bind(method)
      .procedure([](const Tensor& self, Scalar value, bool wrap) {
        runtime_check(self.dim() >= 2, "fill_diagonal_")
            << "dimensions must be larger than 1, got " << self.dim();
        SymInt rows = self.size(0), length = rows, step(int64_t(0));
        for (int d = 0; d < self.dim(); ++d) {
          runtime_check(self.dim() == 2 || self.size(d) == rows, "fill_diagonal_")
              << "all dimensions of input must be of equal length, got " << to_string(self.sizes());
          length = min(length, self.size(d));
          step += self.stride(d);
        }
        bool again = wrap && self.dim() == 2;  // below the square and one row more
        for (SymInt row(int64_t(0)); row == 0 || (again && row < rows); row += self.size(1) + 1)
          fill_(as_strided(narrow(self, 0, row, rows - row), Dims{min(length, rows - row)}, Dims{step}),
                value);
        return self;
      })
      .samples({"self[3, 3], fill_value=2", "self[7, 3], fill_value=2, wrap=True"});
  define("resize_(Tensor(a!) self, SymInt[] size, *, MemoryFormat? memory_format=None) -> Tensor(a!)")
      .doc(
          "Gives self other sizes over its memory, which grows where it must; new elements are uninitialised.")
      .bind(method)
      .procedure([](const Call& c, const Tensor& self, SymSpan size, std::optional<MemoryFormat> format) {
        return resized(c, self, size, format);
      })
      .samples({"self[2, 3], size=[4]"});
  define(
      "resize_as_(Tensor(a!) self, Tensor the_template, *, MemoryFormat? memory_format=None) -> Tensor(a!)")
      .doc("Gives self the sizes of the_template.")
      .bind(function | method)
      .procedure([](const Tensor& self, const Tensor& like, std::optional<MemoryFormat> format) {
        return resize_(self, like.sizes(), format == MemoryFormat::preserve ? std::nullopt : format);
      })
      .samples({"self[2, 3], the_template[4]"});
}
