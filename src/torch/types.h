// torch::Tensor and the namespaces of PyTorch's C++ front end.
#pragma once
#include "facula/extend/library.h"
#include "torch/tensor.h"

namespace torch {
using TensorList = std::vector<Tensor>;

// A copy of numbers: tensor({1.0, 2.0}).
template <class T>
  requires std::is_arithmetic_v<T>
Tensor tensor(std::initializer_list<T> numbers, const TensorOptions& options = {}) {
  facula::Tensor t =
      facula::Tensor::empty(facula::IntSpan(facula::Ints{int64_t(numbers.size())}), facula::dtype_of<T>());
  std::copy(numbers.begin(), numbers.end(), t.data<T>());
  bool real = std::is_floating_point_v<T> && !options.dtype_;
  if (auto d = real ? facula::default_dtype() : options.dtype_.value_or(t.dtype()); d != t.dtype())
    t = facula::to_dtype(t, d);
  if (options.requires_grad_) facula::requires_grad_(t);
  return t;
}
// Over memory of someone else's, which `release` is told when nothing needs it any more.
inline Tensor from_blob(void* data, facula::Sizes sizes, std::function<void(void*)> release,
                        const TensorOptions& options = {}) {
  facula::Ints shape, strides(sizes.size(), 1);
  for (facula::SymInt n : sizes) shape.push_back(n.guard_int());
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return facula::Tensor::from_blob(data, shape, strides, options.dtype_.value_or(facula::default_dtype()),
                                   [release, data] {
                                     if (release) release(data);
                                   });
}
inline Tensor from_blob(void* data, facula::Sizes sizes, const TensorOptions& options = {}) {
  return from_blob(data, std::move(sizes), nullptr, options);
}
}  // namespace torch

namespace at {
using namespace torch;
}
namespace c10 {
using torch::nullopt;
using torch::optional;
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

// As values of classes and of functions of libraries.
namespace facula::extend {
template <>
struct Boxed<torch::Tensor> : Boxed<facula::Tensor> {};
}  // namespace facula::extend
namespace facula::op::typed {
template <>
struct Read<torch::Tensor> : Read<facula::Tensor> {};
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
