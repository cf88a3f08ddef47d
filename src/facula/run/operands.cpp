#include "facula/run/operands.h"

#include "facula/base/dtype.h"
#include "facula/op/operator.h"

namespace facula::run {

bool is_run_time_number(const op::Operator& o, size_t k, const op::Value& v) {
  if (v.tag != op::Tag::scalar && v.tag != op::Tag::integer) return false;
  auto& p = o.schema.parameters[k];
  if (p.type == op::Type::Tensor) return true;
  auto* composite = o.as<op::Composite>();
  if (p.type == op::Type::Float) return composite && k < 64 && composite->operand_floats >> k & 1;
  return p.is_number_operand() && !(composite && k < 64 && composite->baked_numbers >> k & 1);
}

void key_of(const op::Operator& o, std::span<const op::Value> args, Purpose purpose, Key& key,
            Operands& operands) {
  uint64_t* head = key.append(2);
  head[0] = reinterpret_cast<uint64_t>(&o);
  head[1] = uint64_t(purpose) | uint64_t(default_dtype()) << 8;
  for (size_t k = 0; k < args.size(); ++k) {
    auto& v = args[k];
    if (v.tag == op::Tag::tensor) [[likely]] {
      append(key, *v.tensor);
      operands.values.push_back(v);
      operands.position.push_back(uint32_t(k) << 16);
    } else if (v.tag == op::Tag::tensors) {
      key.push_back(uint64_t(v.tag) | v.list.count << 8);
      auto items = v.tensors();
      for (size_t i = 0; i < items.size(); ++i) {
        op::Value item(items[i]);
        append(key, item);
        if (!items[i]) continue;
        operands.values.push_back(item);
        operands.position.push_back(uint32_t(k) << 16 | uint32_t(i));
      }
    } else if (is_run_time_number(o, k, v)) {
      op::Value number = as_operand(v);
      append(key, number);
      operands.values.push_back(number);
      operands.position.push_back(uint32_t(k) << 16);
    } else if (v.tag != op::Tag::none) {
      op::append_attributes(key, args.subspan(k, 1));
    } else {
      key.push_back(0);
    }
  }
}

namespace {

bool is_flattenable(const TensorImpl& t, const TensorImpl& first) {
  return t.sizes.size() != 1 && t.sizes == first.sizes && t.strides == first.strides &&
         t.device.type == DeviceType::cpu;
}

}  // namespace

FlattenedOperands::FlattenedOperands(std::span<const op::Value> args, std::span<const op::Value> operands) {
  TensorImpl* first = nullptr;
  for (auto& v : operands) {
    if (v.tag != op::Tag::tensor || v.tensor->wrapped_number) continue;
    if (!first) first = v.tensor;
    if (!is_flattenable(*v.tensor, *first)) return;
  }
  if (!first || !Borrowed(first)->is_non_overlapping_and_dense()) return;
  for (auto& v : args) {
    args_.push_back(v);
    if (v.tag == op::Tag::tensor) args_.back() = op::Value(flattened(v.tensor));
    if (v.tag != op::Tag::tensors) continue;
    auto& list = lists_.emplace_back();
    for (auto* t : v.tensors()) list.push_back(t ? flattened(t) : nullptr);
    args_.back() = op::Value(std::span<TensorImpl* const>(list));
  }
  for (auto& v : operands) operands_.push_back(v.tag == op::Tag::tensor ? op::Value(flattened(v.tensor)) : v);
}

TensorImpl* FlattenedOperands::flattened(TensorImpl* t) {
  if (t->wrapped_number) return t;
  for (auto& [original, flat] : flat_)
    if (original == t) return flat.impl();
  Tensor self(Ref<TensorImpl>::share(t));
  Dims sizes{self.numel()}, strides{SymInt(int64_t(1))};
  flat_.push_back({t, self.alias(sizes, strides, self.offset())});
  return flat_.back().second.impl();
}

}  // namespace facula::run
