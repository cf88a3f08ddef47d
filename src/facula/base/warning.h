// Warnings: what a user should know of a call that is answered all the same. A front end with warnings of its own
// installs a handler, which may throw what its filters make of one (Python's does); without one a warning is a line on standard error.
#pragma once
#include <string>

namespace facula {

void set_warning_handler(void (*handler)(const std::string& text));
void warn(const std::string& text);       // each time
void warn_once(const std::string& text);  // once in a process for each text

// While one lives, this thread warns of nothing: what it does has been done, and warned of, before.
class WarningsOff {
 public:
  explicit WarningsOff(bool off = true);
  ~WarningsOff();
  WarningsOff(const WarningsOff&) = delete;

 private:
  bool before_;
};

// Do warnings that come once come each time instead?
void set_warn_always(bool on);
bool warns_always();

}  // namespace facula
