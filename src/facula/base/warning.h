// Warnings: information for users about a call that succeeds nevertheless. A front end with its own warnings installs
// a handler, which may throw if its filters say so (as Python's does); without a handler a warning is a line on
// standard error.
#pragma once
#include <string>

namespace facula {

void set_warning_handler(void (*handler)(const std::string& text));
void warn(const std::string& text);       // every time
void warn_once(const std::string& text);  // once per process for each text

// While a WarningsOff lives, this thread emits no warnings, because the same work was done, and warned about, before.
class WarningsOff {
 public:
  explicit WarningsOff(bool off = true);
  ~WarningsOff();
  WarningsOff(const WarningsOff&) = delete;

 private:
  bool before_;
};

// If set, warnings that are emitted once are emitted every time.
void set_warn_always(bool on);
bool warns_always();

}  // namespace facula
