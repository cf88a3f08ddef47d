// The basis of PyTorch's C++ names: dtypes, devices, options, lists, checks, and those members of torch::Tensor that
// are no operators. torch/tensor.h, which is generated, adds the operators as methods and functions.
#pragma once
#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <initializer_list>
#include <memory>
#include <ostream>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "facula/autograd/data.h"
#include "facula/base/warning.h"
#include "facula/facula.h"
#include "facula/front/index.h"
#include "facula/front/print.h"

namespace torch {

using ScalarType = facula::DType;
using Dtype = ScalarType;
using facula::DType;
using facula::Generator;
using facula::manual_seed;
using facula::MaybeTensor;
using facula::MemoryFormat;
using facula::nullopt;
using facula::Operand;
using facula::parse_device;
using facula::Sizes;
using facula::SymInt;
using nullopt_t = std::nullopt_t;
template <class T>
using optional = std::optional<T>;
using Error = facula::Error;
class Tensor;

constexpr ScalarType kBool = ScalarType::Bool, kUInt8 = ScalarType::UInt8, kByte = kUInt8,
                     kInt8 = ScalarType::Int8, kChar = kInt8, kInt16 = ScalarType::Int16, kShort = kInt16,
                     kInt32 = ScalarType::Int32, kInt = kInt32, kInt64 = ScalarType::Int64, kLong = kInt64,
                     kHalf = ScalarType::Float16, kFloat16 = kHalf, kBFloat16 = ScalarType::BFloat16,
                     kFloat32 = ScalarType::Float32, kFloat = kFloat32, kFloat64 = ScalarType::Float64,
                     kDouble = kFloat64, kComplexFloat = ScalarType::Complex64,
                     kComplexDouble = ScalarType::Complex128;

enum class DeviceType : int8_t {
  CPU = int8_t(facula::DeviceType::cpu),
  Meta = int8_t(facula::DeviceType::meta),
  CUDA = int8_t(facula::DeviceType::cuda),
};
constexpr DeviceType kCPU = DeviceType::CPU, kCUDA = DeviceType::CUDA, kMeta = DeviceType::Meta;
inline std::ostream& operator<<(std::ostream& s, DeviceType t) {
  return s << facula::to_string(facula::Device{facula::DeviceType(t)});
}

// A facula::Device with PyTorch's methods.
class Device {
 public:
  Device(DeviceType type, int index = -1) : device_{facula::DeviceType(type), int8_t(index)} {}
  Device(facula::Device d) : device_(d) {}
  Device(const std::string& text) : device_(facula::parse_device(text)) {}
  Device(const char* text) : device_(facula::parse_device(text)) {}
  operator facula::Device() const { return device_; }
  DeviceType type() const { return DeviceType(device_.type); }
  int index() const { return device_.index; }
  bool has_index() const { return device_.index >= 0; }
  void set_index(int index) { device_.index = int8_t(index); }
  bool is_cpu() const { return type() == kCPU; }
  bool is_cuda() const { return type() == kCUDA; }
  bool is_meta() const { return type() == kMeta; }
  std::string str() const { return facula::to_string(device_); }
  friend bool operator==(const Device& a, const Device& b) { return a.device_ == b.device_; }
  friend std::ostream& operator<<(std::ostream& s, const Device& d) { return s << d.str(); }

 private:
  facula::Device device_;
};

// A number of any type, with PyTorch's methods.
class Scalar : public facula::Scalar {
 public:
  using facula::Scalar::Scalar;
  Scalar() = default;
  Scalar(const facula::Scalar& s) : facula::Scalar(s) {}
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  Scalar(T v) : facula::Scalar(int64_t(v)) {}
  template <class T>
  T to() const {
    if constexpr (std::is_same_v<T, bool>) return to_bool();
    else if constexpr (std::is_integral_v<T>) return T(to_int());
    else if constexpr (std::is_arithmetic_v<T>) return T(to_double());
    else return T(to_complex());
  }
  double toDouble() const { return to_double(); }
  float toFloat() const { return float(to_double()); }
  int64_t toLong() const { return to_int(); }
  int toInt() const { return int(to_int()); }
  bool toBool() const { return to_bool(); }
  bool isFloatingPoint() const { return category() == facula::Category::floating; }
  bool isIntegral(bool include_bool) const {
    return category() == facula::Category::integral || (include_bool && isBoolean());
  }
  bool isBoolean() const { return category() == facula::Category::boolean; }
  bool isComplex() const { return category() == facula::Category::complex; }
  ScalarType type() const { return dtype(); }
};

// A list that someone else keeps; one in braces lives as long as the statement.
template <class T>
class ArrayRef : public std::span<const T> {
 public:
  using std::span<const T>::span;
  ArrayRef(std::span<const T> s) : std::span<const T>(s) {}
  ArrayRef(std::initializer_list<T> l) : std::span<const T>(l.begin(), l.size()) {}
  ArrayRef(const T& one) : std::span<const T>(&one, 1) {}
  ArrayRef slice(size_t from) const { return this->subspan(from); }
  ArrayRef slice(size_t from, size_t n) const { return this->subspan(from, n); }
  const T& at(size_t k) const {
    index_check(k < this->size(), "ArrayRef") << "index " << k << " of a list of " << this->size();
    return (*this)[k];
  }
  std::vector<T> vec() const { return {this->begin(), this->end()}; }
  bool equals(ArrayRef o) const { return std::equal(this->begin(), this->end(), o.begin(), o.end()); }
  friend bool operator==(ArrayRef a, ArrayRef b) { return a.equals(b); }
  friend bool operator==(const std::vector<T>& a, ArrayRef b) { return b.equals(a); }
  friend bool operator==(ArrayRef a, const std::vector<T>& b) { return a.equals(b); }
  friend std::ostream& operator<<(std::ostream& s, ArrayRef l) {
    s << '[';
    for (size_t k = 0; k < l.size(); ++k) s << (k ? ", " : "") << l[k];
    return s << ']';
  }
};
using IntArrayRef = ArrayRef<int64_t>;

// One number for each of D dimensions; one number alone stands for all of them.
template <size_t D, class T = int64_t>
class ExpandingArray {
 public:
  ExpandingArray(std::initializer_list<T> l) : ExpandingArray(ArrayRef<T>(l)) {}
  ExpandingArray(const std::vector<T>& v) : ExpandingArray(ArrayRef<T>(v)) {}
  ExpandingArray(ArrayRef<T> v) {
    value_check(v.size() == D, "") << "Expected " << D << " values, but instead got " << v.size();
    std::copy(v.begin(), v.end(), values_.begin());
  }
  ExpandingArray(T all) { values_.fill(all); }
  ExpandingArray(const std::array<T, D>& values) : values_(values) {}
  std::array<T, D>& operator*() { return values_; }
  const std::array<T, D>& operator*() const { return values_; }
  std::array<T, D>* operator->() { return &values_; }
  const std::array<T, D>* operator->() const { return &values_; }
  size_t size() const { return D; }
  operator ArrayRef<T>() const { return std::span<const T>(values_); }
  operator Sizes() const
    requires std::same_as<T, int64_t>
  {
    return facula::IntSpan(values_);
  }
  operator std::vector<T>() const { return {values_.begin(), values_.end()}; }

 private:
  std::array<T, D> values_;
};

// A word that is an option, torch::kSum; its text is Python's.
struct Word {
  std::string_view text;
  operator std::string_view() const { return text; }
  friend bool operator==(Word, Word) = default;
};
#define FACULA_TORCH_WORDS(_)                                                                                   \
  _(kLinear, "linear") _(kConv1D, "conv1d") _(kConv2D, "conv2d") _(kConv3D, "conv3d")                           \
  _(kConvTranspose1D, "conv_transpose1d") _(kConvTranspose2D, "conv_transpose2d")                               \
  _(kConvTranspose3D, "conv_transpose3d") _(kSigmoid, "sigmoid") _(kTanh, "tanh") _(kReLU, "relu")              \
  _(kGELU, "gelu") _(kSiLU, "silu") _(kMish, "mish") _(kLeakyReLU, "leaky_relu") _(kFanIn, "fan_in")            \
  _(kFanOut, "fan_out") _(kConstant, "constant") _(kReflect, "reflect") _(kReplicate, "replicate")              \
  _(kCircular, "circular") _(kNearest, "nearest") _(kBilinear, "bilinear") _(kBicubic, "bicubic")               \
  _(kTrilinear, "trilinear") _(kArea, "area") _(kNearestExact, "nearest-exact") _(kSum, "sum") _(kMean, "mean") \
  _(kMax, "max") _(kNone, "none") _(kBatchMean, "batchmean") _(kZeros, "zeros") _(kBorder, "border")            \
  _(kReflection, "reflection") _(kValid, "valid") _(kSame, "same")
#define FACULA_TORCH_WORD(name, text) inline constexpr Word name{text};
FACULA_TORCH_WORDS(FACULA_TORCH_WORD)
#undef FACULA_TORCH_WORD

namespace Reduction {
enum Reduction { None, Mean, Sum };
}

// The properties of a new tensor; those that are not given have their default values.
class TensorOptions {
 public:
  TensorOptions() = default;
  TensorOptions(ScalarType d) : dtype_(d) {}
  TensorOptions(Device d) : device_(d) {}
  TensorOptions(DeviceType d) : device_(d) {}
  TensorOptions(MemoryFormat f) : memory_format_(f) {}

  TensorOptions dtype(std::optional<ScalarType> d) const { return with(&TensorOptions::dtype_, d); }
  template <class T>
  TensorOptions dtype() const {
    return dtype(facula::dtype_of<T>());
  }
  TensorOptions device(std::optional<Device> d) const { return with(&TensorOptions::device_, d); }
  TensorOptions device(DeviceType type, int index = -1) const { return device(Device(type, index)); }
  TensorOptions requires_grad(std::optional<bool> on) const {
    return with(&TensorOptions::requires_grad_, on);
  }
  TensorOptions memory_format(std::optional<MemoryFormat> f) const {
    return with(&TensorOptions::memory_format_, f);
  }
  TensorOptions pinned_memory(std::optional<bool>) const { return *this; }  // says nothing here

  ScalarType dtype() const { return dtype_.value_or(facula::default_dtype()); }
  Device device() const { return device_.value_or(facula::default_device()); }
  bool requires_grad() const { return requires_grad_.value_or(false); }
  std::optional<ScalarType> dtype_opt() const { return dtype_; }
  std::optional<facula::Device> device_opt() const { return device_; }
  std::optional<MemoryFormat> memory_format_opt() const { return memory_format_; }
  bool has_dtype() const { return dtype_.has_value(); }
  bool has_device() const { return device_.has_value(); }

 private:
  template <class M, class V>
  TensorOptions with(M member, const V& value) const {
    TensorOptions o = *this;
    o.*member = value;
    return o;
  }
  std::optional<ScalarType> dtype_;
  std::optional<Device> device_;
  std::optional<bool> requires_grad_;
  std::optional<MemoryFormat> memory_format_;
};
inline TensorOptions dtype(ScalarType d) { return TensorOptions(d); }
inline TensorOptions device(Device d) { return TensorOptions(d); }
inline TensorOptions requires_grad(bool on = true) { return TensorOptions().requires_grad(on); }

namespace indexing {
using facula::front::Ellipsis;
using facula::front::None;
using facula::front::Slice;
using TensorIndex = facula::front::IndexItem;
}  // namespace indexing

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
  using Dimensions = std::shared_ptr<std::pair<std::vector<int64_t>, std::vector<int64_t>>>;
  OwningAccessor(const facula::Tensor& t, Dimensions dimensions)
      : Accessor<T, N>(t.data<T>(), fill(dimensions->first, t.int_sizes()),
                       fill(dimensions->second, t.int_strides())),
        storage_(std::move(dimensions)) {}
  static const int64_t* fill(std::vector<int64_t>& into, facula::IntSpan from) {
    into.assign(from.begin(), from.end());
    return into.data();
  }
  Dimensions storage_;
};

// How a loss is reduced: by name, by one of the words, or by a number of torch::Reduction.
class ReductionName {
 public:
  ReductionName(const char* name) : name_(name) {}
  ReductionName(const std::string& name) : name_(name) {}
  ReductionName(std::string_view name) : name_(name) {}
  ReductionName(Word word) : name_(word.text) {}
  ReductionName(int64_t number) {
    static constexpr std::string_view names[] = {"none", "mean", "sum"};
    value_check(number >= 0 && number < 3, "") << number << " is no torch::Reduction";
    name_ = names[number];
  }
  operator std::string_view() const { return name_; }

 private:
  std::string_view name_;
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

namespace autograd {
// The node that made a tensor: y.grad_fn()->name().
class NodePtr {
 public:
  NodePtr(facula::Ref<facula::autograd::Node> node = {}) : node_(std::move(node)) {}
  facula::autograd::Node* get() const { return node_.get(); }
  facula::autograd::Node* operator->() const { return get(); }
  facula::autograd::Node& operator*() const { return *get(); }
  explicit operator bool() const { return get(); }
  friend bool operator==(const NodePtr& a, const NodePtr& b) { return a.get() == b.get(); }
  friend std::ostream& operator<<(std::ostream& s, const NodePtr& n) {
    return s << static_cast<const void*>(n.get());
  }

 private:
  facula::Ref<facula::autograd::Node> node_;
};
// The .grad of a leaf, to be read and set.
class GradientSlot {
 public:
  explicit GradientSlot(facula::Tensor leaf) : leaf_(std::move(leaf)) {}
  void operator=(const facula::Tensor& grad) const { facula::autograd::set_grad(leaf_, grad); }
  void reset() const { facula::autograd::set_grad(leaf_, {}); }
  bool defined() const { return get().defined(); }
  facula::Tensor get() const { return facula::autograd::grad_of(leaf_); }

 private:
  facula::Tensor leaf_;
};
}  // namespace autograd

// A facula::Tensor with PyTorch's names. The members that give tensors are defined in torch/types.h.
class TensorBase : public facula::Tensor {
 public:
  TensorBase() = default;
  TensorBase(facula::Tensor t) : facula::Tensor(std::move(t)) {}

  ScalarType scalar_type() const { return facula::Tensor::dtype(); }
  ScalarType dtype() const { return facula::Tensor::dtype(); }
  Device device() const { return facula::Tensor::device(); }
  int64_t size(int64_t d) const { return facula::Tensor::size(int(d)).guard_int(); }
  int64_t stride(int64_t d) const { return facula::Tensor::stride(int(d)).guard_int(); }
  IntArrayRef sizes() const { return int_sizes(); }
  IntArrayRef strides() const { return int_strides(); }
  int64_t storage_offset() const { return offset().guard_int(); }
  int64_t dim() const { return facula::Tensor::dim(); }
  int64_t numel() const { return facula::Tensor::numel().guard_int(); }
  int64_t ndimension() const { return dim(); }
  int64_t element_size() const { return itemsize(); }
  size_t nbytes() const { return size_t(numel() * itemsize()); }
  TensorOptions options() const { return TensorOptions().dtype(scalar_type()).device(device()); }
  bool is_cpu() const { return device().is_cpu(); }
  bool is_cuda() const { return device().is_cuda(); }
  int get_device() const { return device().index(); }
  bool is_floating_point() const { return facula::is_floating(scalar_type()); }
  bool is_complex() const { return facula::is_complex(scalar_type()); }
  std::string toString() const { return facula::front::type_name(*this); }
  void print() const;

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
  template <class T>
  T* data() const {
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
    return item().to<T>();
  }
  Scalar item() const { return facula::Tensor::item(); }

  bool is_leaf() const { return facula::autograd::is_leaf(*this); }
  void retain_grad() const { facula::autograd::retain_grad(*this); }
  bool retains_grad() const { return facula::autograd::retains_grad(*this); }
  autograd::NodePtr grad_fn() const { return facula::autograd::node_of(*this); }
  void backward(const facula::Tensor& gradient = {}, std::optional<bool> retain_graph = std::nullopt,
                bool create_graph = false,
                const std::optional<std::vector<torch::Tensor>>& inputs = std::nullopt) const;
  torch::Tensor grad() const;
  autograd::GradientSlot mutable_grad() const;  // x.mutable_grad() = g; x.mutable_grad().reset()
  torch::Tensor& requires_grad_(bool on = true) const;
  torch::Tensor& set_requires_grad(bool on) const { return requires_grad_(on); }
  torch::Tensor data() const;
  torch::Tensor variable_data() const;
  void set_data(const facula::Tensor& from) const { facula::autograd::set_data(*this, from); }
  torch::Tensor& detach_() const;
  // f gets the gradient, and gives another one or nothing.
  template <class F>
  unsigned register_hook(F f) const;
  void remove_hook(unsigned id) const { facula::autograd::remove_hook(*this, int(id)); }

  torch::Tensor to(ScalarType dtype, bool non_blocking = false, bool copy = false) const;
  torch::Tensor to(Device device, ScalarType dtype, bool non_blocking = false, bool copy = false) const;
  torch::Tensor to(const TensorOptions& options, bool non_blocking = false, bool copy = false) const;
  torch::Tensor to(const facula::Tensor& other, bool non_blocking = false, bool copy = false) const;
  torch::Tensor toType(ScalarType dtype) const;
  // New tensors of this one's dtype and device, where the options say no others.
  torch::Tensor new_empty(const Sizes& size, const TensorOptions& options = {}) const;
  torch::Tensor new_zeros(const Sizes& size, const TensorOptions& options = {}) const;
  torch::Tensor new_ones(const Sizes& size, const TensorOptions& options = {}) const;
  torch::Tensor new_full(const Sizes& size, const Scalar& value, const TensorOptions& options = {}) const;
  torch::Tensor cpu() const;
  torch::Tensor cuda() const;

  TensorOptions options_with(const TensorOptions& o) const {
    return o.dtype(o.has_dtype() ? o.dtype() : scalar_type()).device(o.has_device() ? o.device() : device());
  }

  torch::Tensor operator[](int64_t k) const;
  torch::Tensor operator[](const facula::Tensor& k) const;
  torch::Tensor operator[](const Scalar& k) const;
  torch::Tensor index(std::initializer_list<indexing::TensorIndex> items) const;
  torch::Tensor index(ArrayRef<indexing::TensorIndex> items) const;
  torch::Tensor& index_put_(std::initializer_list<indexing::TensorIndex> items,
                            const facula::Tensor& value) const;
  torch::Tensor& index_put_(std::initializer_list<indexing::TensorIndex> items, const Scalar& value) const;
  torch::Tensor& index_put_(ArrayRef<indexing::TensorIndex> items, const facula::Tensor& value) const;
  torch::Tensor& index_put_(ArrayRef<indexing::TensorIndex> items, const Scalar& value) const;
};
std::ostream& operator<<(std::ostream& s, const TensorBase& t);

// Results of Facula's functions with torch::Tensors in them; `T` is torch::Tensor.
namespace detail {
Tensor& itself(const TensorBase& t);
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
  requires std::is_arithmetic_v<N> || std::is_same_v<N, facula::Scalar>
N as_torch(N n) {
  return n;
}
}  // namespace detail

// No operator is recorded while one lives.
using NoGradGuard = facula::NoGrad;
class AutoGradMode : facula::autograd::GradMode {
 public:
  explicit AutoGradMode(bool on) : GradMode(on) {}
};
class InferenceMode : facula::autograd::InferenceMode {
 public:
  explicit InferenceMode(bool on = true) : facula::autograd::InferenceMode(on) {}
};
struct GradMode {
  static bool is_enabled() { return facula::autograd::grad_enabled(); }
  static void set_enabled(bool on) { facula::autograd::set_grad_enabled(on); }
};

// The texts of values, one after the other.
template <class... Parts>
std::string str(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

#define TORCH_CHECK(cond, ...) \
  if (!(cond)) ::torch::detail::fail(::facula::ErrorType::RuntimeError, "Expected " #cond " to be true" __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_CHECK_VALUE(cond, ...) \
  if (!(cond)) ::torch::detail::fail(::facula::ErrorType::ValueError, "Expected " #cond " to be true" __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_CHECK_TYPE(cond, ...) \
  if (!(cond)) ::torch::detail::fail(::facula::ErrorType::TypeError, "Expected " #cond " to be true" __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_CHECK_INDEX(cond, ...) \
  if (!(cond)) ::torch::detail::fail(::facula::ErrorType::IndexError, "Expected " #cond " to be true" __VA_OPT__(, ) __VA_ARGS__)
#define TORCH_INTERNAL_ASSERT TORCH_CHECK
#define AT_ASSERT TORCH_CHECK
#define TORCH_WARN(...) ::facula::warn_once(::torch::str(__VA_ARGS__))
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
