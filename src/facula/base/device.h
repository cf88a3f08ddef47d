// Where a tensor lives: a type of device and an index. The CPU and `meta`, which has sizes and no memory, are always
// there; further types are added by name (backend/backend.h).
#pragma once
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "facula/base/interceptors.h"

namespace facula {
enum class DeviceType : uint8_t { cpu, meta, cuda, added };  // added: the first one, and those after it
struct Device {
  DeviceType type = DeviceType::cpu;
  int8_t index = -1;  // -1: the current one
  friend bool operator==(Device, Device) = default;
};
constexpr size_t kDeviceTypes = 16;
std::string to_string(Device d);
Device parse_device(std::string_view text);  // "cpu", "cuda:1"; RuntimeError if unknown
inline std::ostream& operator<<(std::ostream& s, Device d) { return s << to_string(d); }

// With the number of the device that a type alone means: the first. Neither the CPU nor meta has one.
inline Device numbered(Device d) {
  if (d.type > DeviceType::meta && d.index < 0) d.index = 0;
  return d;
}

// A further type of device. RuntimeError if the name is taken, or no identifier, or there are kDeviceTypes.
DeviceType add_device_type(std::string_view name);
void rename_device_type(DeviceType type, std::string_view name);
std::vector<std::string> added_device_types();
// Asked once for each name that is no known device; it may add it.
void set_device_loader(std::function<void(const std::string& name)> loader);

// Records that a device was named: from the first one other than the CPU on, calls ask where their tensors are.
inline void note_device(Device d) {
  if (d.type != DeviceType::cpu) [[unlikely]]
    set_in_use(Interceptor::device);
}

// Where this thread makes tensors of which nothing says where they go.
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
