#include "facula/op/value.h"

#include "facula/op/schema.h"

namespace facula::op {

Value::Value(std::span<const Tensor> t)
    : tag(Tag::tensors), list{reinterpret_cast<TensorImpl* const*>(t.data()), t.size()} {}

SymInt Value::integer() const {
  if (tag == Tag::integer) return SymInt::from_identity(uint64_t(word));
  internal_check(tag == Tag::scalar && scalar.category() <= Category::integral)
      << "the value is not an integer";
  return scalar.to_int();
}

Scalar Value::number() const {
  if (tag == Tag::integer) return Scalar(SymInt::from_identity(uint64_t(word)).guard_int());
  internal_check(tag == Tag::scalar) << "the value is not a number";
  return scalar;
}

DType operand_dtype(const Value& v) {
  if (v.tag == Tag::tensor) return v.tensor->dtype;
  if (v.tag == Tag::integer) return DType::Int64;
  internal_check(v.tag == Tag::scalar) << "only tensors and numbers are operands";
  switch (v.scalar.category()) {
    case Category::boolean: return DType::Bool;
    case Category::integral: return v.scalar.is_beyond_int64() ? DType::UInt64 : DType::Int64;
    case Category::floating: return DType::Float64;
    default: return DType::Complex128;
  }
}

Tensor wrapped_number(const Scalar& number, Device device) {
  Tensor t = Tensor::scalar(number, operand_dtype(number), device);
  t.impl()->wrapped_number = true;
  return t;
}

Args::Args(std::span<const Value> values) {
  values_.reserve(values.size());
  for (auto& v : values) take(v, false);
  rebind();
}

Args::Args(std::span<const Value> values, const Schema& schema) {
  values_.reserve(values.size());
  tensors_.reserve(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    auto& p = schema.parameters[i];
    take(values[i], p.type == Type::Tensor && !p.list);
  }
  rebind();
}

void Args::take(const Value& v, bool tensor_slot) {
  auto argument = uint32_t(values_.size());
  values_.push_back(v);
  Value& mine = values_.back();
  if (v.tag == Tag::tensor || tensor_slot) {
    tensors_.push_back(v.tag == Tag::tensor ? Tensor(Ref<TensorImpl>::share(v.tensor)) : Tensor());
    at_.push_back({argument, 0});
  }
  switch (v.tag) {
    case Tag::tensors: {
      auto from = v.tensors();
      auto& copied = lists().tensors.emplace_back(from.begin(), from.end());
      for (uint32_t k = 0; k < from.size(); ++k) {
        tensors_.push_back(Tensor(Ref<TensorImpl>::share(from[k])));
        at_.push_back({argument, k});
      }
      mine.list = {copied.data(), copied.size()};
      break;
    }
    case Tag::ints: {
      auto from = v.ints();
      auto& copied = lists().ints.emplace_back(from.begin(), from.end());
      mine.list = {copied.data(), copied.size()};
      break;
    }
    case Tag::scalars: {
      auto from = v.scalars();
      auto& copied = lists().scalars.emplace_back(from.begin(), from.end());
      mine.list = {copied.data(), copied.size()};
      break;
    }
    case Tag::string: {
      auto& copied = lists().strings.emplace_back(v.string());
      mine.list = {copied.data(), copied.size()};
      break;
    }
    case Tag::generator: objects_.push_back(Ref<Generator>::share(v.generator)); break;
    case Tag::object: objects_.push_back(Ref<CustomClassHolder>::share(v.object)); break;
    default: break;
  }
}

void Args::rebind() {
  for (size_t k = 0; k < tensors_.size(); ++k) put(k, tensors_[k].impl());
}

Args Args::clone() const {
  Args copy(values());
  if (copy.tensors_.size() == tensors_.size()) return copy;
  // Slots of None tensors and numbers are not visible in the values.
  copy.tensors_ = tensors_;
  copy.at_ = at_;
  return copy;
}

}  // namespace facula::op
