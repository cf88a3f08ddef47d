#include "facula/device/device.h"

#include <array>
#include <atomic>

namespace facula::device {

const Backend& cpu_backend();  // cpu/cpu.cpp

namespace {
std::array<std::atomic<const Backend*>, kDeviceTypes>& table() {
  static std::array<std::atomic<const Backend*>, kDeviceTypes> t{};
  return t;
}
}  // namespace

void register_backend(DeviceType type, const Backend* b) { table()[size_t(type)] = b; }

DeviceType add_device(std::string_view name, const Backend* b, const DeviceMemory* memory) {
  internal_check(b && memory) << "add_device: '" << name << "' needs a backend and memory";
  DeviceType type = add_device_type(name);
  register_backend(type, b);
  register_memory(type, memory);
  return type;
}

const Backend& backend_of(DeviceType type) {
  const Backend* b = table()[size_t(type)];
  if (!b && type == DeviceType::cpu) {  // always available
    b = &cpu_backend();
    register_backend(type, b);
  }
  runtime_check(b, "backend") << "no backend is registered for device " << Device{type}
                              << hint("tensors on the cpu always work");
  return *b;
}

}  // namespace facula::device
