#include "facula/base/warning.h"

#include <atomic>
#include <cstdio>
#include <mutex>
#include <unordered_set>

#include "facula/base/fork.h"
#include "facula/base/thread_state.h"

namespace facula {

namespace {
std::atomic<void (*)(const std::string&)> installed{nullptr};
std::atomic<bool> always{false};
}  // namespace

void set_warning_handler(void (*handler)(const std::string&)) { installed = handler; }
void set_warn_always(bool on) { always = on; }
bool warns_always() { return always; }

WarningsOff::WarningsOff(bool off) : before_(thread_state.warnings_off) { thread_state.warnings_off |= off; }
WarningsOff::~WarningsOff() { thread_state.warnings_off = before_; }

void warn(const std::string& text) {
  if (thread_state.warnings_off) return;
  if (auto handler = installed.load()) return handler(text);
  std::string line = "facula: warning: " + text + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void warn_once(const std::string& text) {
  if (thread_state.warnings_off) return;
  static TableMutex lock;
  static auto& told = *new std::unordered_set<std::string>;
  {
    std::lock_guard guard(lock);
    if (!told.insert(text).second && !always) return;
  }
  warn(text);
}

}  // namespace facula
