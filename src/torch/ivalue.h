// IValue: a value of any type, facula::io::Value with PyTorch's names.
#pragma once
#include <string>
#include <vector>

#include "facula/io/value.h"
#include "torch/types.h"

namespace c10 {

class IValue : public facula::io::Value {
 public:
  using facula::io::Value::Value;
  IValue() = default;
  IValue(facula::io::Value v) : facula::io::Value(std::move(v)) {}
  IValue(const torch::Scalar& s) : facula::io::Value(of_number(s)) {}
  IValue(const torch::Tensor& t)
      : facula::io::Value(t.defined() ? facula::io::Value(facula::Tensor(t)) : facula::io::Value()) {}
  template <class T>
  IValue(const std::vector<T>& items) : facula::io::Value(facula::io::List(items.begin(), items.end())) {}

  bool isNone() const { return is_none(); }
  bool isTensor() const { return is_tensor(); }
  bool isInt() const { return kind() == Kind::integer; }
  bool isDouble() const { return kind() == Kind::real; }
  bool isBool() const { return kind() == Kind::boolean; }
  bool isString() const { return kind() == Kind::string; }
  bool isList() const { return kind() == Kind::list; }
  bool isTuple() const { return kind() == Kind::tuple; }
  torch::Tensor toTensor() const { return is_none() ? torch::Tensor() : torch::Tensor(tensor()); }
  int64_t toInt() const { return integer(); }
  double toDouble() const { return number(); }
  bool toBool() const { return boolean(); }
  const std::string& toStringRef() const { return string(); }
  std::vector<IValue> toListRef() const { return {list().begin(), list().end()}; }
  std::vector<torch::Tensor> toTensorVector() const {
    std::vector<torch::Tensor> all;
    for (auto& v : list()) all.push_back(v.tensor());
    return all;
  }
  std::vector<int64_t> toIntVector() const {
    std::vector<int64_t> all;
    for (auto& v : list()) all.push_back(v.integer());
    return all;
  }

 private:
  static facula::io::Value of_number(const torch::Scalar& s) {
    if (s.isBoolean()) return s.to_bool();
    if (s.isIntegral(false)) return s.to_int();
    return s.isComplex() ? facula::io::Value(s.to_complex()) : facula::io::Value(s.to_double());
  }
};
inline std::ostream& operator<<(std::ostream& s, const IValue& v) { return s << facula::io::to_string(v); }

}  // namespace c10
namespace torch {
using c10::IValue;
}
