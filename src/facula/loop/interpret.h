// The oracle: a slow, obvious evaluator of definitions and nests, in double (or int64, complex<double>) for
// results that are then rounded once; float32 arithmetic in `Precision::faithful` rounds after each operation
// as the definition says. Every target is tested against it.
#pragma once
#include <functional>

#include "facula/loop/definition.h"
#include "facula/loop/nest.h"
#include "facula/tensor/tensor.h"

namespace facula::loop {

enum class Precision : uint8_t { faithful, wide };

// Results of the definition on operands (any layout), of the given sizes and dtypes. IndexError from `check`.
std::vector<Tensor> interpret(const Definition& d, std::span<const Tensor> operands,
                              std::span<const Dims> result_sizes, std::span<const DType> result_dtypes,
                              Precision p = Precision::wide,
                              std::function<int64_t(SymInt)> size_value = nullptr);

// Runs a nest's tasks in order on raw buffers.
void interpret(const Nest& n, std::span<void* const> buffers, IntSpan params);

}  // namespace facula::loop
