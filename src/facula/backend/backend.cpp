#include "facula/backend/backend.h"

#include <array>
#include <atomic>

namespace facula::backend {

const Backend& cpu_backend();  // cpu/cpu.cpp

namespace {
constexpr size_t kTypes = size_t(DeviceType::other) + 1;
std::array<std::atomic<const Backend*>, kTypes>& table() {
  static std::array<std::atomic<const Backend*>, kTypes> t{};
  return t;
}
}  // namespace

void register_backend(DeviceType type, const Backend* b) { table()[size_t(type)] = b; }

const Backend& backend_of(DeviceType type) {
  const Backend* b = table()[size_t(type)];
  if (!b && type == DeviceType::cpu) {  // always there
    b = &cpu_backend();
    register_backend(type, b);
  }
  runtime_check(b, "backend") << "no backend is registered for device " << Device{type}
                              << hint("tensors on the cpu always work");
  return *b;
}

}  // namespace facula::backend
