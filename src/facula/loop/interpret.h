// The interpreter: a slow, simple evaluator of definitions and nests, against which every target is tested. It
// computes in double (or int64, complex<double>) and rounds results once; with `Precision::faithful`, float32
// arithmetic rounds after each operation as the definition says.
#pragma once
#include <functional>

#include "facula/loop/definition.h"
#include "facula/loop/nest.h"
#include "facula/tensor/tensor.h"

namespace facula::loop {

enum class Precision : uint8_t { faithful, wide };

// The results of the definition on operands (in any layout), with the given sizes and dtypes. A failed `check` raises
// IndexError.
std::vector<Tensor> interpret(const Definition& d, std::span<const Tensor> operands,
                              std::span<const Dims> result_sizes, std::span<const DType> result_dtypes,
                              Precision p = Precision::wide,
                              std::function<int64_t(SymInt)> size_value = nullptr);

// Runs a nest's tasks in order on raw buffers.
void interpret(const Nest& n, std::span<void* const> buffers, IntSpan params);

}  // namespace facula::loop
