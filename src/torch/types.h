// torch::Tensor and the namespaces of PyTorch's C++ front end.
#pragma once
#include <cstdio>

#include "facula/extend/library.h"
#include "torch/tensor.h"

namespace torch {
using TensorList = std::vector<Tensor>;

// ---- members of TensorBase that give tensors
namespace detail {
// A TensorBase is always part of a Tensor.
inline Tensor& itself(const TensorBase& t) { return const_cast<Tensor&>(static_cast<const Tensor&>(t)); }
}  // namespace detail
inline void TensorBase::print() const { std::puts(facula::front::printed(*this).c_str()); }
inline std::ostream& operator<<(std::ostream& s, const TensorBase& t) {
  return s << facula::front::printed(t);
}
inline void TensorBase::backward(const facula::Tensor& gradient, std::optional<bool> retain_graph,
                                 bool create_graph,
                                 const std::optional<std::vector<torch::Tensor>>& inputs) const {
  facula::Tensor self = *this;
  std::vector<facula::Tensor> of = inputs ? detail::plain(*inputs) : std::vector<facula::Tensor>();
  facula::autograd::backward({&self, 1}, {&gradient, 1}, retain_graph.value_or(create_graph), create_graph,
                             of);
}
inline Tensor TensorBase::grad() const { return facula::grad_of(*this); }
inline autograd::GradientSlot TensorBase::mutable_grad() const { return autograd::GradientSlot(*this); }
inline Tensor& TensorBase::requires_grad_(bool on) const {
  facula::requires_grad_(*this, on);
  return detail::itself(*this);
}
inline Tensor TensorBase::data() const { return facula::autograd::data_of(*this); }
inline Tensor TensorBase::variable_data() const { return data(); }
inline Tensor& TensorBase::detach_() const {
  facula::autograd::detach_(*this);
  return detail::itself(*this);
}
template <class F>
unsigned TensorBase::register_hook(F f) const {
  return unsigned(facula::autograd::add_hook(*this, [f](const facula::Tensor& grad) -> facula::Tensor {
    if constexpr (std::is_void_v<decltype(f(Tensor(grad)))>) return f(Tensor(grad)), facula::Tensor();
    else return f(Tensor(grad));
  }));
}

inline Tensor TensorBase::to(ScalarType dtype, bool, bool copy) const {
  return facula::to(*this, dtype, false, copy);
}
inline Tensor TensorBase::to(Device device, ScalarType dtype, bool, bool copy) const {
  facula::Tensor converted = facula::_to_device(facula::to(*this, dtype), device);
  return copy && converted.is_same(*this) ? facula::clone(converted) : converted;
}
inline Tensor TensorBase::to(const TensorOptions& o, bool, bool copy) const {
  return to(o.has_device() ? o.device() : device(), o.has_dtype() ? o.dtype() : scalar_type(), false, copy);
}
inline Tensor TensorBase::to(const facula::Tensor& other, bool, bool copy) const {
  return to(other.device(), other.dtype(), false, copy);
}
inline Tensor TensorBase::toType(ScalarType dtype) const { return to(dtype); }
inline Tensor TensorBase::new_empty(const Sizes& size, const TensorOptions& o) const {
  return torch::empty(size, options_with(o));
}
inline Tensor TensorBase::new_zeros(const Sizes& size, const TensorOptions& o) const {
  return torch::zeros(size, options_with(o));
}
inline Tensor TensorBase::new_ones(const Sizes& size, const TensorOptions& o) const {
  return torch::ones(size, options_with(o));
}
inline Tensor TensorBase::new_full(const Sizes& size, const Scalar& value, const TensorOptions& o) const {
  return torch::full(size, value, options_with(o));
}
inline Tensor TensorBase::cpu() const { return to(TensorOptions(kCPU)); }
inline Tensor TensorBase::cuda() const { return to(TensorOptions(kCUDA)); }

inline Tensor TensorBase::operator[](int64_t k) const { return facula::select(*this, 0, k); }
inline Tensor TensorBase::operator[](const facula::Tensor& k) const {
  return index({indexing::TensorIndex(k)});
}
inline Tensor TensorBase::operator[](const Scalar& k) const { return facula::select(*this, 0, k.to_int()); }
inline Tensor TensorBase::index(ArrayRef<indexing::TensorIndex> items) const {
  return facula::front::index(*this, items);
}
inline Tensor TensorBase::index(std::initializer_list<indexing::TensorIndex> items) const {
  return index(ArrayRef<indexing::TensorIndex>(items));
}
inline Tensor& TensorBase::index_put_(ArrayRef<indexing::TensorIndex> items,
                                      const facula::Tensor& value) const {
  facula::front::index_put_(*this, items, value);
  return detail::itself(*this);
}
inline Tensor& TensorBase::index_put_(ArrayRef<indexing::TensorIndex> items, const Scalar& value) const {
  facula::front::index_put_(*this, items, value);
  return detail::itself(*this);
}
inline Tensor& TensorBase::index_put_(std::initializer_list<indexing::TensorIndex> items,
                                      const facula::Tensor& value) const {
  return index_put_(ArrayRef<indexing::TensorIndex>(items), value);
}
inline Tensor& TensorBase::index_put_(std::initializer_list<indexing::TensorIndex> items,
                                      const Scalar& value) const {
  return index_put_(ArrayRef<indexing::TensorIndex>(items), value);
}

// ---- tensors of data

namespace detail {
// Numbers in braces, nested as the tensor is: {{1, 2}, {3, 4}}.
class Numbers {
 public:
  template <class T>
    requires std::is_arithmetic_v<T>
  Numbers(T one) : dtype_(facula::dtype_of<Stored<T>>()), values_{Scalar(Stored<T>(one))} {}
  Numbers(const facula::Scalar& one) : dtype_(one.dtype()), values_{one} {}
  template <class T>
    requires std::is_arithmetic_v<T>
  Numbers(const std::vector<T>& v) : dtype_(facula::dtype_of<Stored<T>>()), sizes_{int64_t(v.size())} {
    for (T x : v) values_.push_back(Scalar(Stored<T>(x)));
  }
  template <class T>
  Numbers(ArrayRef<T> v) : Numbers(v.vec()) {}
  Numbers(std::initializer_list<Numbers> rows) : sizes_{int64_t(rows.size())} {
    const Numbers* first = rows.begin();
    if (first == rows.end()) {
      dtype_ = facula::default_dtype();
      return;
    }
    dtype_ = first->dtype_;
    sizes_.insert(sizes_.end(), first->sizes_.begin(), first->sizes_.end());
    for (auto& row : rows) {
      value_check(row.sizes_ == first->sizes_, "tensor")
          << "Expected all sub-lists to have sizes: " << IntArrayRef(first->sizes_)
          << ", but got sub-list with sizes: " << IntArrayRef(row.sizes_);
      type_check(row.dtype_ == dtype_, "tensor")
          << "Expected all elements of the tensor to have the same scalar type: " << facula::name(dtype_)
          << ", but got element of scalar type: " << facula::name(row.dtype_);
      values_.insert(values_.end(), row.values_.begin(), row.values_.end());
    }
  }
  // If the options say none, floating-point numbers have the default dtype, and integers are int64.
  Tensor make(const TensorOptions& options) const {
    ScalarType own = facula::is_floating(dtype_) ? facula::default_dtype()
                     : dtype_ == kInt32          ? kInt64
                                                 : dtype_;
    auto dtype = options.dtype_opt().value_or(own);
    facula::Tensor t = facula::Tensor::empty(IntArrayRef(sizes_), dtype);
    auto* at = static_cast<char*>(t.data_ptr());
    for (auto& v : values_) {
      v.store(dtype, at);
      at += t.itemsize();
    }
    if (options.has_device()) t = facula::_to_device(t, options.device());
    if (options.requires_grad()) facula::requires_grad_(t);
    return t;
  }

 private:
  template <class T>
  using Stored =
      std::conditional_t<std::is_integral_v<T> && !std::is_same_v<T, bool> && sizeof(T) == 8, int64_t, T>;
  ScalarType dtype_;
  std::vector<int64_t> sizes_;
  std::vector<facula::Scalar> values_;
};
}  // namespace detail

// A copy of numbers: tensor(3.5), tensor({1, 2}), tensor({{1., 2.}, {3., 4.}}, torch::kDouble), tensor(vector).
inline Tensor tensor(const detail::Numbers& numbers, const TensorOptions& options = {}) {
  return numbers.make(options);
}
// Have they the same sizes and elements?
inline bool equal(const Tensor& a, const Tensor& b) {
  return a.sizes() == b.sizes() && facula::all(facula::eq(a, b)).item().to_bool();
}
inline bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-05, double atol = 1e-08,
                     bool equal_nan = false) {
  return facula::all(facula::isclose(a, b, rtol, atol, equal_nan)).item().to_bool();
}
// Over memory of someone else's, which `release` is told when nothing needs it any more.
inline Tensor from_blob(void* data, const Sizes& sizes, const Sizes& strides,
                        std::function<void(void*)> release, const TensorOptions& options = {}) {
  facula::Ints shape, steps;
  for (facula::SymInt n : sizes) shape.push_back(n.guard_int());
  for (facula::SymInt n : strides) steps.push_back(n.guard_int());
  Tensor t = facula::Tensor::from_blob(data, shape, steps, options.dtype(), [release, data] {
    if (release) release(data);
  });
  return options.requires_grad() ? t.requires_grad_() : t;
}
inline Tensor from_blob(void* data, const Sizes& sizes, std::function<void(void*)> release,
                        const TensorOptions& options = {}) {
  return from_blob(data, sizes, Sizes(facula::contiguous_strides(sizes)), std::move(release), options);
}
inline Tensor from_blob(void* data, const Sizes& sizes, const Sizes& strides,
                        const TensorOptions& options = {}) {
  return from_blob(data, sizes, strides, nullptr, options);
}
inline Tensor from_blob(void* data, const Sizes& sizes, const TensorOptions& options = {}) {
  return from_blob(data, sizes, std::function<void(void*)>(), options);
}
}  // namespace torch

namespace at {
using namespace torch;
}
namespace c10 {
using torch::Device;
using torch::DeviceType;
using torch::Error;
using torch::IntArrayRef;
using torch::nullopt;
using torch::optional;
using torch::Scalar;
using torch::ScalarType;
using torch::TensorOptions;
template <class T>
using intrusive_ptr = facula::Ref<T>;
template <class T, class... A>
intrusive_ptr<T> make_intrusive(A&&... a) {
  return facula::make_ref<T>(std::forward<A>(a)...);
}
using string_view = std::string_view;
}  // namespace c10
namespace torch {
using c10::intrusive_ptr;
using c10::make_intrusive;
}  // namespace torch

// Conversions of these types for classes and functions of libraries.
namespace facula::extend {
template <>
struct Boxed<torch::Tensor> : Boxed<facula::Tensor> {};
}  // namespace facula::extend
namespace facula::op::typed {
template <>
struct Read<torch::Tensor> : Read<facula::Tensor> {};
template <>
struct Read<torch::Scalar> : Read<facula::Scalar> {};
template <>
struct Read<torch::Device> : Read<facula::Device> {};
template <>
struct Read<torch::IntArrayRef> {
  static bool fits(const Parameter& p) { return Read<SymSpan>::fits(p); }
  static torch::IntArrayRef get(const Call& c, size_t k) { return concrete(Read<SymSpan>::get(c, k)); }
};
template <>
struct Read<std::vector<torch::Tensor>> {
  static bool fits(const Parameter& p) { return Read<std::vector<facula::Tensor>>::fits(p); }
  static std::vector<torch::Tensor> get(const Call& c, size_t k) {
    return torch::detail::as_torch<torch::Tensor>(read_tensors(c, k));
  }
};
}  // namespace facula::op::typed
namespace facula::extend {
// Results of kernels.
template <>
struct Plain<torch::Tensor> {
  static facula::Tensor of(torch::Tensor t) { return t; }
};
template <>
struct Plain<std::vector<torch::Tensor>> {
  static std::vector<facula::Tensor> of(const std::vector<torch::Tensor>& l) {
    return torch::detail::plain(l);
  }
};
template <class... T>
struct Plain<std::tuple<T...>> {
  static auto of(std::tuple<T...> t) {
    return std::apply([](auto&&... x) { return std::make_tuple(Plain<T>::of(std::move(x))...); },
                      std::move(t));
  }
};
}  // namespace facula::extend
