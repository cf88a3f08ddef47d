#include "facula/base/matmul_precision.h"

#include <atomic>

namespace facula {

namespace {
std::atomic<MatmulPrecision> precision{MatmulPrecision::highest};
}

MatmulPrecision matmul_precision() { return precision.load(std::memory_order_relaxed); }
void set_matmul_precision(MatmulPrecision p) { precision.store(p, std::memory_order_relaxed); }

}  // namespace facula
