#include "facula/base/device.h"

#include <charconv>

#include "facula/base/error.h"

namespace facula {

namespace {
constexpr const char* kDeviceNames[] = {"cpu", "meta", "cuda", "other"};
}

std::string to_string(Device d) {
  std::string s = kDeviceNames[int(d.type)];
  return d.index < 0 ? s : s + ":" + std::to_string(d.index);
}

Device parse_device(std::string_view text) {
  auto colon = text.find(':');
  auto type = text.substr(0, colon);
  for (int k = 0; k < 4; ++k) {
    if (type != kDeviceNames[k]) continue;
    Device d{DeviceType(k)};
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

}  // namespace facula
