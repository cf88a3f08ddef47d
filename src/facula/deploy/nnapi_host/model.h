// Models of the host library: what the C interface builds, and the executor reads.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "facula/deploy/nnapi.h"
#include "facula/tensor/tensor.h"

namespace facula::nnapi {

struct Operand {
  int32_t type;
  std::vector<int64_t> dims;  // 0: unknown until the execution
  float scale;
  int32_t zero_point;
  std::vector<float> channel_scales;  // of TENSOR_QUANT8_SYMM_PER_CHANNEL
  int64_t channel_dim = 0;
  enum { temporary, constant, omitted } kind = temporary;
  const void* data = nullptr;  // of a constant; NNAPI copies at most 128 bytes
  std::vector<uint8_t> copy;
};

struct Operation {
  int32_t code;
  std::vector<uint32_t> inputs, outputs;
};

struct Model {
  std::vector<Operand> operands;
  std::vector<Operation> operations;
  std::vector<uint32_t> inputs, outputs;
  bool finished = false;
};

bool is_tensor(int32_t type);
DType dtype_of(int32_t type);  // of its elements

// Whether the executor has the operation.
bool is_supported(int32_t code);

// Runs a model. `values` has the tensors of its inputs by their operands' numbers, and receives the others. Results have the
// layout and dtype of their operands. Throws an Error that names the operation.
void execute(const Model& model, std::vector<Tensor>& values);

}  // namespace facula::nnapi
