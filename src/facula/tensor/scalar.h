// A Python-like number: bool, integer, float or complex, unboxed. Its dtype category takes part in promotion with the
// lowest priority, as in PyTorch.
#pragma once
#include <complex>
#include <cstdint>

#include "facula/base/dtype.h"

namespace facula {
class Scalar {
 public:
  Scalar() : Scalar(int64_t(0)) {}
  Scalar(bool v) : category_(Category::boolean) { i_ = v; }
  Scalar(int v) : Scalar(int64_t(v)) {}
  Scalar(int64_t v) : category_(Category::integral) { i_ = v; }
  // An integer that may need 64 bits without a sign.
  static Scalar of_unsigned(uint64_t v) {
    Scalar s{int64_t(v)};
    s.beyond_int64_ = v >> 63;
    return s;
  }
  Scalar(float v) : Scalar(double(v)) {}
  Scalar(double v) : category_(Category::floating) { re_ = v; }
  Scalar(std::complex<double> v) : category_(Category::complex) {
    re_ = v.real();
    im_ = v.imag();
  }
  Category category() const { return category_; }
  // The dtype of a tensor that is created from this scalar alone.
  DType dtype() const {
    switch (category_) {
      case Category::boolean: return DType::Bool;
      case Category::integral: return beyond_int64_ ? DType::UInt64 : DType::Int64;
      case Category::floating: return default_dtype();
      default: return complex_of(default_dtype());
    }
  }
  bool to_bool() const { return category_ <= Category::integral ? i_ != 0 : re_ != 0 || im_ != 0; }
  int64_t to_int() const { return category_ <= Category::integral ? i_ : int64_t(re_); }
  // True for an integer from 2^63 on; its to_int() is less by 2^64.
  bool is_beyond_int64() const { return beyond_int64_; }
  double to_double() const {
    return category_ > Category::integral ? re_ : beyond_int64_ ? double(uint64_t(i_)) : double(i_);
  }
  std::complex<double> to_complex() const {
    return {to_double(), category_ == Category::complex ? im_ : 0.0};
  }
  friend bool operator==(const Scalar& a, const Scalar& b) {
    return a.category_ == b.category_ && a.beyond_int64_ == b.beyond_int64_ &&
           (a.category_ <= Category::integral ? a.i_ == b.i_ : a.re_ == b.re_ && a.im_ == b.im_);
  }
  // Writes the value as an element of `d`.
  void store(DType d, void* to) const;
  static Scalar load(DType d, const void* from);

 private:
  union {
    int64_t i_;
    double re_;
  };
  double im_ = 0;
  Category category_;
  bool beyond_int64_ = false;
};
std::ostream& operator<<(std::ostream& s, const Scalar& v);
}  // namespace facula
