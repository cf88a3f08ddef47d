// The device of a tensor: a type and an index. The CPU and `meta`, which has sizes and no memory, always exist; other
// types are added by name (device/device.h).
#pragma once
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "facula/base/interceptors.h"

namespace facula {
enum class DeviceType : uint8_t {
  cpu,
  meta,
  cuda,
  added
};  // added: the first added type; more follow after it
struct Device {
  DeviceType type = DeviceType::cpu;
  int8_t index = -1;  // -1: the current device
  friend bool operator==(Device, Device) = default;
};
constexpr size_t kDeviceTypes = 16;
std::string to_string(Device d);
Device parse_device(std::string_view text);  // "cpu", "cuda:1"; RuntimeError if unknown
inline std::ostream& operator<<(std::ostream& s, Device d) { return s << to_string(d); }

// Replaces a missing index by that of the first device. The CPU and meta have no index.
inline Device numbered(Device d) {
  if (d.type > DeviceType::meta && d.index < 0) d.index = 0;
  return d;
}

// Adds a type of device. RuntimeError if the name is taken or not an identifier, or if there are kDeviceTypes.
DeviceType add_device_type(std::string_view name);
void rename_device_type(DeviceType type, std::string_view name);
std::vector<std::string> added_device_types();
// Sets a function that is called once for each unknown name, and may add the device.
void set_device_loader(std::function<void(const std::string& name)> loader);

// Records that a device was named: from the first one other than the CPU on, calls ask where their tensors are.
inline void note_device(Device d) {
  if (d.type != DeviceType::cpu) [[unlikely]]
    set_in_use(Interceptor::device);
}

// The device on which this thread creates tensors if nothing else determines it.
Device default_device();
void set_default_device(Device d);
class DefaultDevice {  // for a while
 public:
  explicit DefaultDevice(Device d) : outer_(default_device()) { set_default_device(d); }
  ~DefaultDevice() { set_default_device(outer_); }
  DefaultDevice(const DefaultDevice&) = delete;

 private:
  Device outer_;
};
}  // namespace facula
