// Tensor: sizes, strides and an offset in a shared storage. It is a handle of one word; copies share the tensor.
// Operators are free functions (ops.h, generated); this header has the properties of a tensor.
//
// Sizes are SymInt: concrete in eager mode, symbolic while a trace records (there is then no storage, and `traced` is
// the graph value that the tensor represents).
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

enum class MemoryFormat : uint8_t { contiguous, channels_last, preserve, channels_last_3d };
constexpr int kMemoryFormats = 4;

// Counts in-place writes (the storage version). It is shared by a tensor, its views and its detached aliases.
struct VersionCounter final : RefCounted {
  std::atomic<uint32_t> value{0};
  std::atomic<const char*> writer{nullptr};  // operator of the last write, for messages
};

class TensorImpl final : public RefCounted {
 public:
  TensorImpl(Storage s, SymSpan sizes_, SymSpan strides_, SymInt offset_, DType d, Device dev)
      : storage(std::move(s)), sizes(sizes_), strides(strides_), offset(offset_), dtype(d), device(dev) {}
  ~TensorImpl() override;

  Storage storage;  // null in a trace
  Dims sizes, strides;
  SymInt offset;  // in elements
  DType dtype;
  Device device;
  bool requires_grad = false;  // for a leaf
  bool has_node = false;       // the autograd slot has a node: the result of a recorded operator
  bool inference = false;      // created under inference_mode
  // Lazy: the elements are the conjugates, or for a real tensor the negatives, of the memory's contents (run/lazy.h).
  bool conj = false, neg = false;
  bool owns_py = false;            // the Python object is kept alive by this impl (python/bind/tensor.h)
  bool wrapped_number = false;     // a 0-d tensor that wraps a Python number: lowest promotion priority
  std::atomic<bool> saved{false};  // a node retains it, or a view of it, for backward (autograd/node.h)
  Ref<VersionCounter> version;     // created on first use
  std::unique_ptr<autograd::Meta, void (*)(autograd::Meta*)> grad_slot{nullptr, nullptr};
  bool is_lazy() const { return conj || neg; }
  graph::Value* traced = nullptr;
  void* py_object = nullptr;
  static void (*release_py)(TensorImpl*);  // set by the binding: drops an owned Python object
  // Set by autograd: returns whether the base of a view requires a gradient.
  static bool (*base_requires_grad)(const TensorImpl&);

  void* data_ptr() {  // the first element; see Tensor::data
    auto* s = storage.get();
    if (!s || !s->is_logical() || device.type != DeviceType::cpu) [[unlikely]]
      prepare_data();
    return static_cast<char*>(storage->data()) + offset.concrete() * itemsize(dtype);
  }

  static void* operator new(size_t bytes);  // per-thread free lists recycle the blocks
  static void operator delete(void* p);

 protected:
  void destroy() override { delete this; }

 private:
  void prepare_data();  // restores the logical layout; RuntimeError if there is no data
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
  // A 0-d tensor with this value.
  static Tensor scalar(const Scalar& value, DType dtype, Device device = {});
  // Memory that someone else owns; `release` is called when the last reference is released.
  static Tensor from_blob(void* data, IntSpan sizes, IntSpan strides, DType dtype,
                          std::function<void()> release);

  bool defined() const { return bool(impl_); }
  explicit operator bool() const { return defined(); }
  TensorImpl* impl() const { return impl_.get(); }
  const Ref<TensorImpl>& ref() const { return impl_; }
  Ref<TensorImpl> detach_ref() { return std::move(impl_); }  // leaves an undefined tensor

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
  bool is_channels_last()
      const;  // channels_last or channels_last_3d by rank; a tensor may be contiguous as well
  bool is_non_overlapping_and_dense() const;
  bool has_overlap() const;  // true if two indices may share an element

  // The first element, in the logical layout (which is restored if necessary). Eager only.
  template <class T>
  T* data() const {
    return static_cast<T*>(data_ptr());
  }
  // The tensor itself, or a copy with the same strides if the CPU cannot address its memory.
  Tensor on_host() const;
  void* data_ptr() const {  // the memory is not moved afterwards; TensorImpl::data_ptr is valid for one call
    if (impl_->storage) impl_->storage->pin();
    return impl_->data_ptr();
  }
  Scalar item() const;  // the only element; RuntimeError otherwise

  // Reads the element at an address within the storage, as conjugate or negative if the tensor is lazy.
  Scalar load(const void* at) const;

  // An alias with another geometry, and as lazy as this tensor. It is neither differentiable nor tracked: operators
  // are built on it.
  Tensor alias(SymSpan sizes, SymSpan strides, SymInt offset) const;
  // An alias that shares the version counter but not the autograd slot (detach).
  Tensor detached() const;

  uint32_t version() const {
    return impl_->version ? impl_->version->value.load(std::memory_order_relaxed) : 0;
  }
  const Ref<VersionCounter>& version_counter() const;  // created on demand
  void bump_version() const;

  bool requires_grad() const;  // a leaf that requires it, or the result of a recorded operator
  bool is_same(const Tensor& o) const { return impl_ == o.impl_; }

 private:
  Ref<TensorImpl> impl_;
};

// A tensor that the caller keeps alive: it does not count references, which would take a locked instruction.
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

// For a tensor in a physical layout: a tensor over the memory of that layout, with the strides that it has there.
// Undefined if the layout is logical (now), or if no strides can describe it; in the latter case the logical layout
// is restored, unless `restore` is false. Valid for one call.
Tensor in_memory(const TensorImpl& t, bool restore = true);
// For a tensor that fills a storage in a physical layout: a contiguous tensor over its memory. Pointwise work can be
// done on several of these if their orders are equal. Undefined for other tensors.
Tensor flat_in_memory(const TensorImpl& t, PhysicalOrder& order);
// True if t has all elements of its storage, in row-major order.
bool fills_storage(const TensorImpl& t);
// Declares that the memory of a contiguous tensor, to which nothing else refers, is in `order`.
void adopt_physical_order(const Tensor& fresh, const PhysicalOrder& order);

// Row-major strides; the NHWC strides of a 4-d (5-d) tensor.
Dims contiguous_strides(SymSpan sizes);
// The bytes from the first to the last element for these sizes and strides; RuntimeError if that overflows.
size_t storage_bytes(const char* op, SymSpan sizes, SymSpan strides, DType dtype);
Dims channels_last_strides(SymSpan sizes);  // of images or of volumes
Dims strides_for(SymSpan sizes, MemoryFormat f);
// Strides of a dense tensor of `sizes` with the order of dimensions that the operands have in memory. This is
// PyTorch's rule for results of pointwise operators: the first operand decides, and later ones break ties caused by
// broadcasting.
Dims dense_strides_like(SymSpan sizes, std::span<const Tensor> operands);

// Broadcasts all sizes; RuntimeError with `op` and all shapes if they do not fit.
Dims broadcast_sizes(const char* op, std::span<const SymSpan> sizes);
// True if `from` can be broadcast to `to`.
bool broadcasts_to(SymSpan from, SymSpan to);

// Makes a dimension in [-rank, rank) non-negative; IndexError with PyTorch's text. Rank 0 counts as 1.
int wrap_dim(const char* op, int64_t dim, int rank);

std::string shapes_of(std::span<const Tensor> tensors);  // "[8, 3] float32, [4, 5] float32", for messages
std::string to_string(const Tensor& t,
                      std::string_view suffix = "");  // in PyTorch's form; suffix: ", requires_grad=True"

}  // namespace facula
