// Tensor: sizes, strides and an offset over a shared storage. A handle of one word; copying shares.
// Operators are free functions (ops.h, generated); this header has what a tensor is.
//
// Sizes are SymInt: concrete in eager, symbolic while a trace records (then there is no storage, and `traced`
// says which graph value the tensor stands for).
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "facula/base/device.h"
#include "facula/base/dtype.h"
#include "facula/base/intrusive.h"
#include "facula/sym/symint.h"
#include "facula/tensor/scalar.h"
#include "facula/tensor/storage.h"

namespace facula {

namespace autograd {
struct Meta;
}  // namespace autograd
namespace graph {
struct Value;
}
class Tensor;

enum class MemoryFormat : uint8_t { contiguous, channels_last, preserve };

// Counts in-place writes. It belongs to a tensor and is shared with its views and detached aliases.
struct VersionCounter final : RefCounted {
  std::atomic<uint32_t> value{0};
  std::atomic<const char*> writer{nullptr};  // operator of the last write, for messages
};

class TensorImpl final : public RefCounted {
 public:
  TensorImpl(Storage s, SymSpan sizes_, SymSpan strides_, SymInt offset_, DType d, Device dev)
      : storage(std::move(s)), sizes(sizes_), strides(strides_), offset(offset_), dtype(d), device(dev) {}
  ~TensorImpl() override;

  Storage storage;  // null while traced
  Dims sizes, strides;
  SymInt offset;  // in elements
  DType dtype;
  Device device;
  bool requires_grad = false;  // of a leaf
  bool has_node = false;       // the autograd slot holds a node: the result of a recorded operator
  bool inference = false;      // made under inference_mode
  // Lazy: the elements are the conjugates, or of a real tensor the negatives, of what lies in memory (run/lazy.h).
  bool conj = false, neg = false;
  bool owns_py = false;            // the Python object is kept alive by this impl (python/bind/tensor.h)
  bool wrapped_number = false;     // a 0-d tensor made of a Python number: lowest promotion priority
  std::atomic<bool> saved{false};  // some node keeps it, or a view of it, for backward (autograd/node.h)
  Ref<VersionCounter> version;     // made on first use
  std::unique_ptr<autograd::Meta, void (*)(autograd::Meta*)> grad_slot{nullptr, nullptr};
  bool is_lazy() const { return conj || neg; }
  graph::Value* traced = nullptr;
  void* py_object = nullptr;
  static void (*release_py)(TensorImpl*);  // set by the binding: drops an owned Python object
  // Set by autograd: does the base of a view require a gradient?
  static bool (*base_requires_grad)(const TensorImpl&);

  void* data_ptr() {  // of the first element; see Tensor::data
    auto* s = storage.get();
    if (!s || !s->is_logical() || device.type != DeviceType::cpu) [[unlikely]]
      prepare_data();
    return static_cast<char*>(storage->data()) + offset.concrete() * itemsize(dtype);
  }

  static void* operator new(size_t bytes);  // blocks are recycled by a per-thread free list
  static void operator delete(void* p);

 protected:
  void destroy() override { delete this; }

 private:
  void prepare_data();  // restores the logical layout; RuntimeError if there are no data
};

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(Ref<TensorImpl> impl) : impl_(std::move(impl)) {}
  // Uninitialised memory, contiguous.
  static Tensor empty(SymSpan sizes, DType dtype, Device device = {});
  static Tensor empty(IntSpan sizes, DType dtype, Device device = {}) {
    return empty(symbolic(sizes), dtype, device);
  }
  static Tensor empty_strided(SymSpan sizes, SymSpan strides, DType dtype, Device device = {});
  // A 0-d tensor holding `value`.
  static Tensor scalar(const Scalar& value, DType dtype, Device device = {});
  // Memory owned by someone else; `release` is called when the last reference goes.
  static Tensor from_blob(void* data, IntSpan sizes, IntSpan strides, DType dtype,
                          std::function<void()> release);

  bool defined() const { return bool(impl_); }
  explicit operator bool() const { return defined(); }
  TensorImpl* impl() const { return impl_.get(); }
  const Ref<TensorImpl>& ref() const { return impl_; }
  Ref<TensorImpl> detach_ref() { return std::move(impl_); }  // nothing is left

  int dim() const { return int(impl_->sizes.size()); }
  SymSpan sizes() const { return impl_->sizes; }
  SymSpan strides() const { return impl_->strides; }
  SymInt size(int d) const;  // negative d counts from the end; IndexError
  SymInt stride(int d) const;
  SymInt offset() const { return impl_->offset; }
  IntSpan int_sizes() const { return concrete(impl_->sizes); }  // eager only
  IntSpan int_strides() const { return concrete(impl_->strides); }
  SymInt numel() const { return product(impl_->sizes); }
  DType dtype() const { return impl_->dtype; }
  Device device() const { return impl_->device; }
  int itemsize() const { return facula::itemsize(impl_->dtype); }
  bool is_traced() const { return impl_->traced; }

  bool is_contiguous(MemoryFormat f = MemoryFormat::contiguous) const;
  bool is_non_overlapping_and_dense() const;
  bool has_overlap() const;  // may two indices share an element?

  // The first element, in the logical layout (restored if need be). Eager only.
  template <class T>
  T* data() const {
    return static_cast<T*>(data_ptr());
  }
  // Itself, or where the CPU does not address its memory a copy of that, with the same strides.
  Tensor on_host() const;
  void* data_ptr() const {  // it stays there; TensorImpl::data_ptr serves for one call
    if (impl_->storage) impl_->storage->pin();
    return impl_->data_ptr();
  }
  Scalar item() const;  // the only element; RuntimeError otherwise

  // The element at an address within the storage, resolved.
  Scalar load(const void* at) const;

  // The same storage under another geometry, as lazy as this. Not differentiable and not tracked: operators build on it.
  Tensor alias(SymSpan sizes, SymSpan strides, SymInt offset) const;
  // alias() sharing the version counter but not the autograd slot (detach).
  Tensor detached() const;

  uint32_t version() const {
    return impl_->version ? impl_->version->value.load(std::memory_order_relaxed) : 0;
  }
  const Ref<VersionCounter>& version_counter() const;  // makes it
  void bump_version() const;

  bool requires_grad() const;  // a leaf that was asked to, or the result of a recorded operator
  bool is_same(const Tensor& o) const { return impl_ == o.impl_; }

 private:
  Ref<TensorImpl> impl_;
};

// A tensor that someone else keeps for as long: it does not count, which takes a locked instruction.
class Borrowed {
 public:
  explicit Borrowed(TensorImpl* t) : tensor_(Ref<TensorImpl>::adopt(t)) {}
  Borrowed(const Borrowed&) = delete;
  ~Borrowed() { tensor_.detach_ref().detach(); }
  const Tensor& operator*() const { return tensor_; }
  const Tensor* operator->() const { return &tensor_; }
  operator const Tensor&() const { return tensor_; }

 private:
  Tensor tensor_;
};

// The elements of a tensor in a physical layout, as they lie in memory: another tensor over that memory.
// Undefined if the layout is the logical one (now): also where strides cannot say it, which restores that.
// Keep it for one call. With `restore` false nothing is restored then.
Tensor in_memory(const TensorImpl& t, bool restore = true);
// A tensor that fills a storage in a physical layout, as if that were the logical one: what is done with each element alone may
// be done with these, of one order. Undefined if `t` is not such a tensor.
Tensor flat_in_memory(const TensorImpl& t, PhysicalOrder& order);
// Has t all elements of its storage, in row-major order?
bool fills_storage(const TensorImpl& t);
// Declares that the memory of a contiguous tensor that nobody else holds is in `order`.
void adopt_physical_order(const Tensor& fresh, const PhysicalOrder& order);
// Gives a tensor that nobody else holds contiguous strides: where its own are others, they become its physical layout.
// False if they cannot: it is not dense, or not alone in its storage.
bool make_strides_physical(const Tensor& fresh);

// Row-major strides; the NHWC strides of a 4-d (5-d) tensor.
Dims contiguous_strides(SymSpan sizes);
// Bytes from the first to the last element that sizes and strides reach; RuntimeError if that overflows.
size_t storage_bytes(const char* op, SymSpan sizes, SymSpan strides, DType dtype);
Dims channels_last_strides(SymSpan sizes);
Dims strides_for(SymSpan sizes, MemoryFormat f);
// Strides of a dense tensor of `sizes` whose dimensions are ordered in memory as `like`'s are; PyTorch's rule
// for the result of a pointwise operator is this for its first operand, with broadcasting operands as
// tie-breakers.
Dims dense_strides_like(SymSpan sizes, std::span<const Tensor> operands);

// Broadcast of all sizes; RuntimeError naming `op` and all shapes if they do not fit.
Dims broadcast_sizes(const char* op, std::span<const SymSpan> sizes);
// Is a broadcast of `from` equal to `to`?
bool broadcasts_to(SymSpan from, SymSpan to);

// A dimension in [-rank, rank) made non-negative; IndexError with PyTorch's text. Rank 0 counts as 1.
int wrap_dim(const char* op, int64_t dim, int rank);

std::string shapes_of(std::span<const Tensor> tensors);  // "[8, 3] float32, [4, 5] float32", for messages
std::string to_string(const Tensor& t,
                      std::string_view suffix = "");  // as PyTorch prints it; suffix: ", requires_grad=True"

}  // namespace facula
