#include "facula/base/settings.h"

#include <cstdlib>

#include "facula/base/error.h"

namespace facula {

namespace {

void read(const char* text, const char*, std::string& to) { to = text; }
void read(const char* text, const char*, bool& to) {
  std::string_view t = text;
  to = !(t.empty() || t == "0" || t == "false" || t == "off" || t == "no");
}
void read(const char* text, const char* variable, int64_t& to) {
  char* end = nullptr;
  to = std::strtoll(text, &end, 10);
  value_check(end != text && !*end, variable) << "expected an integer, got '" << text << "'";
}

Settings from_environment() {
  Settings s;
#define FACULA_READ_SETTING(name, env, type, def, doc) \
  if (const char* text = std::getenv(env)) read(text, env, s.name);
  FACULA_SETTINGS(FACULA_READ_SETTING)
#undef FACULA_READ_SETTING
  return s;
}

}  // namespace

Settings& mutable_settings() {
  static Settings& s = *new Settings(from_environment());  // threads may ask while the process ends
  return s;
}
const Settings& settings() { return mutable_settings(); }

}  // namespace facula
