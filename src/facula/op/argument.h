// Parameter types of the generated functions (ops.h), with which calls are written as in Python: `sum(x, {0, 1})`, `x
// + 2`, `linear(x, w, nullopt)`. They borrow their arguments (except for braces and numbers).
#pragma once
#include <concepts>
#include <initializer_list>
#include <optional>
#include <vector>

#include "facula/tensor/tensor.h"

namespace facula {

template <class T>
using Maybe = std::optional<T>;
using std::nullopt;

// A list of sizes or dimensions: {2, 3}, one integer, or any of our lists; nullopt is None.
class Sizes {
 public:
  Sizes() = default;
  Sizes(std::nullopt_t) : none_(true) {}
  template <std::integral T>
  Sizes(T one) : own_{SymInt(int64_t(one))}, count_(1) {}
  Sizes(SymInt one) : own_{one}, count_(1) {}
  Sizes(std::initializer_list<SymInt> l) : own_(l), count_(l.size()) {}
  Sizes(SymSpan s) : data_(s.data()), count_(s.size()) {}
  Sizes(IntSpan s) : Sizes(symbolic(s)) {}
  Sizes(const Dims& d) : Sizes(SymSpan(d)) {}
  Sizes(const Ints& d) : Sizes(symbolic(IntSpan(d))) {}
  Sizes(const std::vector<int64_t>& v) : Sizes(symbolic(IntSpan(v))) {}
  Sizes(const std::vector<SymInt>& v) : Sizes(SymSpan(v)) {}
  Sizes(const std::optional<Sizes>& s) : Sizes(s ? *s : Sizes(std::nullopt)) {}

  bool is_none() const { return none_; }
  size_t size() const { return count_; }
  bool empty() const { return !count_; }
  const SymInt* data() const { return data_ ? data_ : own_.data(); }
  const SymInt* begin() const { return data(); }
  const SymInt* end() const { return data() + count_; }
  SymInt operator[](size_t i) const { return data()[i]; }
  operator SymSpan() const { return {data(), count_}; }

 private:
  const SymInt* data_ = nullptr;
  Dims own_;
  size_t count_ = 0;
  bool none_ = false;
};

// A tensor or a number: a tensor operand of a pointwise operator. Numbers have the lowest promotion priority.
class Operand {
 public:
  Operand(const Tensor& t) : tensor_(&t) {}
  Operand(const Scalar& s) : number_(s) {}
  template <class T>
    requires std::is_arithmetic_v<T>
  Operand(T number) : number_(widened(number)) {}
  Operand(std::complex<double> number) : number_(number) {}
  Operand(SymInt i) : integer_(i), is_integer_(true) {}

  const Tensor* tensor() const { return tensor_; }
  bool is_integer() const { return is_integer_; }
  SymInt integer() const { return integer_; }
  const Scalar& number() const { return number_; }

 private:
  template <class T>
  static auto widened(T x) {
    if constexpr (std::is_same_v<T, bool>) return x;
    else if constexpr (std::is_integral_v<T>) return int64_t(x);
    else return double(x);
  }
  const Tensor* tensor_ = nullptr;
  Scalar number_;
  SymInt integer_ = 0;
  bool is_integer_ = false;
};

// A tensor or None.
class MaybeTensor {
 public:
  MaybeTensor() = default;
  MaybeTensor(std::nullopt_t) {}
  MaybeTensor(const Tensor& t) : impl_(t.impl()) {}
  MaybeTensor(const std::optional<Tensor>& t) : impl_(t ? t->impl() : nullptr) {}
  TensorImpl* impl() const { return impl_; }

 private:
  TensorImpl* impl_ = nullptr;
};

}  // namespace facula
