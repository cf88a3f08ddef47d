// Operands: the arguments of a call that its program computes with, and the key under which the call is cached.
#pragma once
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "facula/op/operator.h"
#include "facula/run/key.h"

namespace facula::run {

// The tensors of a call, and the numbers that stay run-time values, in program order.
struct Operands {
  SmallVector<op::Value, 8> values;
  SmallVector<uint32_t, 8> position;  // argument << 16 | item of its list
};
// Whether a number is an operand of the kernel, so that a new value needs no new kernel.
bool is_run_time_number(const op::Operator& o, size_t parameter, const op::Value& v);
inline op::Value as_operand(const op::Value& v) {
  return v.tag == op::Tag::integer ? op::Value(Scalar(v.integer().concrete())) : v;
}

// The use of a cache entry: a form of the call, or a composite that is recorded with its gradient.
enum class Purpose : uint8_t { functional, in_place, out, recorded };
// Appends the complete key of a call, and its operands.
void key_of(const op::Operator& o, std::span<const op::Value> args, Purpose purpose, Key& key,
            Operands& operands);

// The operands of a composite that writes, as tensors of one dimension. This is possible if all of them have equal sizes and
// strides without gaps: then one program and one plan serve tensors of every rank, provided that the composite treats each
// element alone.
class FlattenedOperands {
 public:
  FlattenedOperands(std::span<const op::Value> args, std::span<const op::Value> operands);
  bool possible() const { return !args_.empty(); }
  std::span<const op::Value> args() const { return args_; }
  std::span<const op::Value> operands() const { return operands_; }

 private:
  TensorImpl* flattened(TensorImpl* t);
  std::vector<op::Value> args_, operands_;
  std::deque<std::vector<TensorImpl*>> lists_;
  std::vector<std::pair<TensorImpl*, Tensor>> flat_;
};

}  // namespace facula::run
