#include "facula/graph/break.h"

#include <memory>
#include <mutex>
#include <unordered_set>

#include "facula/base/fork.h"
#include "facula/base/per_thread.h"

namespace facula::graph {

const char* name(BreakReason r) {
  static constexpr const char* kNames[] = {
#define FACULA_BREAK_REASON(name) #name,
      FACULA_BREAK_REASONS(FACULA_BREAK_REASON)
#undef FACULA_BREAK_REASON
  };
  return kNames[size_t(r)];
}

std::string to_string(const SourceLine& at) {
  if (!at) return "";
  std::string text = std::string(at.file) + ':' + std::to_string(at.line);
  return *at.module_path ? text + ' ' + at.module_path : text;
}

const char* interned(std::string_view text) {
  static TableMutex mutex;
  static auto& table = *new std::unordered_set<std::string>;
  std::lock_guard lock(mutex);
  return table.emplace(text).first->c_str();
}

// The last break of the thread.
static std::optional<BreakInfo>& last_break() { return per_thread<std::optional<BreakInfo>>(); }

SourceLine (*Break::find_line)() = nullptr;
thread_local SourceLine Break::line;

Break::Break(BreakReason reason, ErrorKind kind, ErrorType type, std::string op, std::string message,
             std::string fix)
    : Error(kind, type, std::move(op), message, fix),
      info_{reason, std::move(message), std::move(fix), current_line()} {
  last_break() = info_;
}

const BreakInfo* Break::find(const Error& e) {
  if (auto* b = dynamic_cast<const Break*>(&e)) return &b->info_;
  auto& last = last_break();
  return last && last->message == e.message() ? &*last : nullptr;
}

void detail::BreakThrower::raise() {
  throw Break(reason_, kind_, type_, std::move(op_), text_.str(), std::move(fix_));
}

}  // namespace facula::graph
