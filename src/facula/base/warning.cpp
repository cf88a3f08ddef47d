#include "facula/base/warning.h"

#include <atomic>
#include <cstdio>
#include <mutex>
#include <unordered_set>

namespace facula {

namespace {
std::atomic<void (*)(const std::string&)> installed{nullptr};
std::atomic<bool> always{false};
}  // namespace

void set_warning_handler(void (*handler)(const std::string&)) { installed = handler; }
void set_warn_always(bool on) { always = on; }
bool warns_always() { return always; }

void warn(const std::string& text) {
  if (auto handler = installed.load()) return handler(text);
  std::string line = "facula: warning: " + text + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void warn_once(const std::string& text) {
  static std::mutex lock;
  static auto& told = *new std::unordered_set<std::string>;
  {
    std::lock_guard guard(lock);
    if (!told.insert(text).second && !always) return;
  }
  warn(text);
}

}  // namespace facula
