#include "facula/base/device.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <mutex>
#include <set>
#include <vector>

#include "facula/base/error.h"
#include "facula/base/thread_state.h"

namespace facula {

namespace {

struct Names {
  std::mutex mutex;
  std::vector<std::string> all{"cpu", "meta", "cuda"};  // by type
  std::function<void(const std::string&)> loader;
  std::set<std::string, std::less<>> asked;  // names for which the loader was called
};
Names& names() {
  static auto* n = new Names;
  return *n;
}

bool find(std::string_view name, DeviceType& type) {
  auto& n = names();
  std::lock_guard lock(n.mutex);
  auto it = std::find(n.all.begin(), n.all.end(), name);
  type = DeviceType(it - n.all.begin());
  return it != n.all.end();
}

// Calls the loader for a name, which may add the type.
void load(std::string_view name) {
  auto& n = names();
  std::function<void(const std::string&)> loader;
  {
    std::lock_guard lock(n.mutex);
    if (!n.loader || !n.asked.insert(std::string(name)).second) return;
    loader = n.loader;
  }
  loader(std::string(name));
}

void check_name(const Names& n, std::string_view name) {
  bool identifier = !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::islower(c) || std::isdigit(c) || c == '_';
  }) && !std::isdigit(static_cast<unsigned char>(name[0]));
  runtime_check(identifier, "device") << "'" << name << "' is no name for a type of device"
                                      << hint("lower-case letters, digits and underscores, as in 'npu'");
  runtime_check(std::find(n.all.begin(), n.all.end(), name) == n.all.end(), "device")
      << "there is a device '" << name << "' already";
}

}  // namespace

std::string to_string(Device d) {
  auto& n = names();
  std::lock_guard lock(n.mutex);
  auto& s = n.all.at(size_t(d.type));
  return d.index < 0 ? s : s + ":" + std::to_string(d.index);
}

Device parse_device(std::string_view text) {
  auto colon = text.find(':');
  auto name = text.substr(0, colon);
  Device d;
  bool exists = find(name, d.type);
  if (!exists && !name.empty()) {
    load(name);
    exists = find(name, d.type);
  }
  if (exists) {
    note_device(d);
    if (colon == std::string_view::npos) return d;
    int index = -1;
    auto digits = text.substr(colon + 1);
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (error == std::errc() && end == digits.data() + digits.size() && index >= 0 && index < 128) {
      d.index = int8_t(index);
      return d;
    }
  }
  runtime_check(false, "device") << "invalid device string: '" << text << "'"
                                 << hint("a device is 'cpu', or a type and an index such as 'cuda:0'");
  __builtin_unreachable();
}

DeviceType add_device_type(std::string_view name) {
  auto& n = names();
  std::lock_guard lock(n.mutex);
  check_name(n, name);
  runtime_check(n.all.size() < kDeviceTypes, "device")
      << "there are " << kDeviceTypes << " types of devices already";
  n.all.emplace_back(name);
  return DeviceType(n.all.size() - 1);
}

void rename_device_type(DeviceType type, std::string_view name) {
  auto& n = names();
  std::lock_guard lock(n.mutex);
  runtime_check(type >= DeviceType::added && size_t(type) < n.all.size(), "device")
      << "no such device was added";
  if (n.all[size_t(type)] == name) return;
  check_name(n, name);
  n.all[size_t(type)] = name;
}

std::vector<std::string> added_device_types() {
  auto& n = names();
  std::lock_guard lock(n.mutex);
  return {n.all.begin() + long(DeviceType::added), n.all.end()};
}

void set_device_loader(std::function<void(const std::string&)> loader) {
  auto& n = names();
  std::lock_guard lock(n.mutex);
  n.loader = std::move(loader);
}

Device default_device() { return thread_state.default_device; }
void set_default_device(Device d) {
  note_device(d);
  thread_state.default_device = d;
}

}  // namespace facula
