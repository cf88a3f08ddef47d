// Where a tensor lives: a backend's type and an index. Backends register their types (backend/backend.h).
#pragma once
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>

namespace facula {
enum class DeviceType : uint8_t { cpu, meta, cuda, other };
struct Device {
  DeviceType type = DeviceType::cpu;
  int8_t index = -1;  // -1: the current one
  friend bool operator==(Device, Device) = default;
};
std::string to_string(Device d);
Device parse_device(std::string_view text);  // "cpu", "cuda:1"; RuntimeError if unknown
inline std::ostream& operator<<(std::ostream& s, Device d) { return s << to_string(d); }
}  // namespace facula
