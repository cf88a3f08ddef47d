// What the names of PyTorch's C++ front end stand on: dtypes, options, checks, and what a torch::Tensor has that is no
// operator. torch/tensor.h, which is generated, adds the operators as methods and functions.
#pragma once
#include <initializer_list>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "facula/facula.h"

namespace torch {

using ScalarType = facula::DType;
using facula::backward;
using facula::Device;
using facula::DType;
using facula::Generator;
using facula::manual_seed;
using facula::MaybeTensor;
using facula::MemoryFormat;
using facula::Operand;
using facula::parse_device;
using facula::Scalar;
using facula::Sizes;
using facula::SymInt;
using IntArrayRef = facula::IntSpan;
using facula::nullopt;
template <class T>
using optional = std::optional<T>;

constexpr ScalarType kBool = ScalarType::Bool, kUInt8 = ScalarType::UInt8, kByte = kUInt8,
                     kInt8 = ScalarType::Int8, kChar = kInt8, kInt16 = ScalarType::Int16, kShort = kInt16,
                     kInt32 = ScalarType::Int32, kInt = kInt32, kInt64 = ScalarType::Int64, kLong = kInt64,
                     kHalf = ScalarType::Float16, kFloat16 = kHalf, kBFloat16 = ScalarType::BFloat16,
                     kFloat32 = ScalarType::Float32, kFloat = kFloat32, kFloat64 = ScalarType::Float64,
                     kDouble = kFloat64, kComplexFloat = ScalarType::Complex64,
                     kComplexDouble = ScalarType::Complex128;
inline constexpr Device kCPU{};

// What a new tensor is like; what is not said is the default.
struct TensorOptions {
  std::optional<ScalarType> dtype_;
  std::optional<Device> device_;
  bool requires_grad_ = false;
  TensorOptions dtype(ScalarType d) const {
    TensorOptions o = *this;
    o.dtype_ = d;
    return o;
  }
  TensorOptions device(Device d) const {
    TensorOptions o = *this;
    o.device_ = d;
    return o;
  }
  TensorOptions requires_grad(bool on = true) const {
    TensorOptions o = *this;
    o.requires_grad_ = on;
    return o;
  }
};
inline TensorOptions dtype(ScalarType d) { return TensorOptions().dtype(d); }
inline TensorOptions device(Device d) { return TensorOptions().device(d); }
inline TensorOptions requires_grad(bool on = true) { return TensorOptions().requires_grad(on); }

namespace detail {

// Elements by index, as accessor<T, N>() gives them; for tensors in memory.
template <class T, size_t N>
class Accessor {
 public:
  Accessor(T* data, const int64_t* sizes, const int64_t* strides)
      : data_(data), sizes_(sizes), strides_(strides) {}
  decltype(auto) operator[](int64_t i) const {
    if constexpr (N == 1) return (data_[i * strides_[0]]);
    else return Accessor<T, N - 1>(data_ + i * strides_[0], sizes_ + 1, strides_ + 1);
  }
  int64_t size(int64_t d) const { return sizes_[d]; }
  int64_t stride(int64_t d) const { return strides_[d]; }
  T* data() const { return data_; }

 private:
  T* data_;
  const int64_t *sizes_, *strides_;
};
template <class T, size_t N>
struct OwningAccessor : Accessor<T, N> {
  explicit OwningAccessor(const facula::Tensor& t)
      : OwningAccessor(t, std::make_shared<std::pair<std::vector<int64_t>, std::vector<int64_t>>>()) {}

 private:
  using Kept = std::shared_ptr<std::pair<std::vector<int64_t>, std::vector<int64_t>>>;
  OwningAccessor(const facula::Tensor& t, Kept kept)
      : Accessor<T, N>(t.data<T>(), fill(kept->first, t.int_sizes()), fill(kept->second, t.int_strides())),
        kept_(std::move(kept)) {}
  static const int64_t* fill(std::vector<int64_t>& into, facula::IntSpan from) {
    into.assign(from.begin(), from.end());
    return into.data();
  }
  Kept kept_;
};

// The type of the elements of a dtype.
template <ScalarType>
struct CType;
#define FACULA_TORCH_DTYPE(e, c, n, k, t) \
  template <>                          \
  struct CType<ScalarType::e> {        \
    using type = c;                    \
  };
using namespace facula;  // where the types of elements are
FACULA_DTYPES(FACULA_TORCH_DTYPE)
#undef FACULA_TORCH_DTYPE

}  // namespace detail

// A facula::Tensor with PyTorch's names.
class TensorBase : public facula::Tensor {
 public:
  TensorBase() = default;
  TensorBase(facula::Tensor t) : facula::Tensor(std::move(t)) {}

  ScalarType scalar_type() const { return facula::Tensor::dtype(); }
  int64_t size(int64_t d) const { return facula::Tensor::size(int(d)).guard_int(); }
  int64_t stride(int64_t d) const { return facula::Tensor::stride(int(d)).guard_int(); }
  IntArrayRef sizes() const { return int_sizes(); }
  IntArrayRef strides() const { return int_strides(); }
  int64_t numel() const { return facula::Tensor::numel().guard_int(); }
  int64_t ndimension() const { return dim(); }
  int64_t element_size() const { return itemsize(); }
  TensorOptions options() const { return TensorOptions().dtype(scalar_type()).device(device()); }
  bool is_cpu() const { return device().type == facula::DeviceType::cpu; }
  bool is_cuda() const { return device().type == facula::DeviceType::cuda; }
  bool is_floating_point() const { return facula::is_floating(scalar_type()); }

  // TypeError unless the elements are of type T.
  template <class T>
  T* data_ptr() const {
    type_check(facula::dtype_of<std::remove_const_t<T>>() == scalar_type(), "data_ptr")
        << "expected scalar type " << facula::name(facula::dtype_of<std::remove_const_t<T>>())
        << " but found " << facula::name(scalar_type());
    return static_cast<T*>(facula::Tensor::data_ptr());
  }
  void* data_ptr() const { return facula::Tensor::data_ptr(); }
  template <class T>
  const T* const_data_ptr() const {
    return data_ptr<T>();
  }
  template <class T>
  T* mutable_data_ptr() const {
    return data_ptr<T>();
  }
  template <class T, size_t N>
  detail::OwningAccessor<T, N> accessor() const {
    user_check(dim() == int(N), "accessor") << "expected " << N << " dims but tensor has " << dim();
    data_ptr<T>();
    return detail::OwningAccessor<T, N>(*this);
  }
  template <class T>
  T item() const {
    Scalar s = facula::Tensor::item();
    if constexpr (std::is_same_v<T, bool>) return s.to_bool();
    else if constexpr (std::is_integral_v<T>) return T(s.to_int());
    else return T(s.to_double());
  }
  Scalar item() const { return facula::Tensor::item(); }
  facula::Tensor grad() const { return facula::grad_of(*this); }
  void backward(const facula::Tensor& gradient = {}, bool retain_graph = false,
                bool create_graph = false) const {
    facula::backward(*this, gradient, retain_graph, create_graph);
  }
};

// Results of Facula's functions with torch::Tensors in them; `T` is torch::Tensor.
namespace detail {
template <class T>
std::vector<facula::Tensor> plain(const std::vector<T>& l) {
  return {l.begin(), l.end()};
}
template <class T>
T as_torch(facula::Tensor t) {
  return T(std::move(t));
}
template <class T>
std::vector<T> as_torch(std::vector<facula::Tensor> l) {
  return {std::make_move_iterator(l.begin()), std::make_move_iterator(l.end())};
}
template <class T, class... A>
auto as_torch(std::tuple<A...> t) {
  return std::apply([](auto&&... x) { return std::make_tuple(as_torch<T>(std::move(x))...); }, std::move(t));
}
template <class T, class N>
  requires std::is_arithmetic_v<N> || std::is_same_v<N, Scalar>
N as_torch(N n) {
  return n;
}
}  // namespace detail

// No operator is recorded while one lives.
using NoGradGuard = facula::NoGrad;

#define TORCH_CHECK(cond, ...) \
  if (!(cond)) ::torch::detail::fail(::facula::ErrorType::RuntimeError, "Expected " #cond " to be true" __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_CHECK_VALUE(cond, ...) \
  if (!(cond)) ::torch::detail::fail(::facula::ErrorType::ValueError, "Expected " #cond " to be true" __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_CHECK_TYPE(cond, ...) \
  if (!(cond)) ::torch::detail::fail(::facula::ErrorType::TypeError, "Expected " #cond " to be true" __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_INTERNAL_ASSERT TORCH_CHECK
#define AT_ERROR(...) ::torch::detail::fail(::facula::ErrorType::RuntimeError, "", __VA_ARGS__)
namespace detail {
template <class... Parts>
[[noreturn]] void fail(facula::ErrorType type, const char* condition, const Parts&... parts) {
  std::ostringstream text;
  if constexpr (sizeof...(parts) == 0) text << condition;
  (text << ... << parts);
  throw facula::Error(facula::ErrorKind::user, type, "", text.str());
}
}  // namespace detail

// Runs a generic lambda's body with scalar_t the type of the elements.
#define FACULA_TORCH_CASE(e, ...)                                        \
  case ::torch::ScalarType::e: {                                         \
    using scalar_t = ::torch::detail::CType<::torch::ScalarType::e>::type; \
    return __VA_ARGS__();                                                \
  }
#define FACULA_TORCH_DISPATCH(type, what, cases, ...)                                                      \
  [&] {                                                                                                    \
    auto type_ = type;                                                                                     \
    switch (type_) {                                                                                       \
      cases(__VA_ARGS__) default                                                                           \
          : ::torch::detail::fail(::facula::ErrorType::RuntimeError, "", '"', what, "\" not implemented for '", \
                                  ::facula::name(type_), "'");                                             \
    }                                                                                                      \
  }()
#define FACULA_TORCH_FLOATING(...) FACULA_TORCH_CASE(Float32, __VA_ARGS__) FACULA_TORCH_CASE(Float64, __VA_ARGS__)
#define FACULA_TORCH_INTEGRAL(...)                                                             \
  FACULA_TORCH_CASE(UInt8, __VA_ARGS__) FACULA_TORCH_CASE(Int8, __VA_ARGS__)                   \
  FACULA_TORCH_CASE(Int16, __VA_ARGS__) FACULA_TORCH_CASE(Int32, __VA_ARGS__) FACULA_TORCH_CASE(Int64, __VA_ARGS__)
#define FACULA_TORCH_ALL(...) FACULA_TORCH_FLOATING(__VA_ARGS__) FACULA_TORCH_INTEGRAL(__VA_ARGS__)
#define AT_DISPATCH_FLOATING_TYPES(type, name, ...) FACULA_TORCH_DISPATCH(type, name, FACULA_TORCH_FLOATING, __VA_ARGS__)
#define AT_DISPATCH_INTEGRAL_TYPES(type, name, ...) FACULA_TORCH_DISPATCH(type, name, FACULA_TORCH_INTEGRAL, __VA_ARGS__)
#define AT_DISPATCH_ALL_TYPES(type, name, ...) FACULA_TORCH_DISPATCH(type, name, FACULA_TORCH_ALL, __VA_ARGS__)

}  // namespace torch
