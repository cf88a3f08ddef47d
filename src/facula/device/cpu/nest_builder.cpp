#include "facula/device/cpu/nest_builder.h"

namespace facula::device::cpu {

namespace {

constexpr size_t kAlignment = 64;  // of work buffers, in bytes

}  // namespace

WorkMemory::WorkMemory(const TaskKernel& k, const int64_t* params) : kernel_(k) {
  internal_check(k.work.size() <= begin_.size())
      << k.kernel->name << ": " << k.work.size() << " work buffers";
  for (size_t w = 0; w < k.work.size(); ++w) {
    begin_[w] = bytes_;
    size_t own = size_t(codegen::eval_params(k.work[w].extent, params) * itemsize(k.dtypes[w]));
    bytes_ += (own + kAlignment - 1) / kAlignment * kAlignment;
  }
}
void WorkMemory::place(char* memory, std::span<void*> buffers) const {
  for (size_t w = 0; w < kernel_.work.size(); ++w)
    buffers[size_t(kernel_.work[w].buffer)] = memory + begin_[w];
  for (auto& a : kernel_.aliases) buffers[size_t(a.buffer)] = buffers[size_t(a.of)];
}

}  // namespace facula::device::cpu
