#include "facula/base/log.h"

#include <cstdio>

#include "facula/base/error.h"
#include "facula/base/interceptors.h"
#include "facula/base/settings.h"

namespace facula {

namespace {

struct Area {
  std::string_view name, doc;
};
constexpr Area kAreas[] = {
#define FACULA_LOG_AREA(area, doc) {#area, doc},
    FACULA_LOG_AREAS(FACULA_LOG_AREA)
#undef FACULA_LOG_AREA
};
static_assert(std::size(kAreas) == size_t(Log::count));
constexpr uint32_t kAll = (uint32_t(1) << unsigned(Log::count)) - 1;

uint32_t bits_of(std::string_view name) {
  if (name == "all") return kAll;
  std::string areas;
  for (size_t k = 0; k < std::size(kAreas); ++k) {
    if (kAreas[k].name == name) return uint32_t(1) << k;
    areas += std::string(kAreas[k].name) + ", ";
  }
  value_check(false, "FACULA_LOG") << "there is no area '" << name << "' to log"
                                   << hint("areas are ", areas, "all; FACULA_LOG=help tells what each shows");
  __builtin_unreachable();
}

void write(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stderr); }

// A mistake in the environment variable is reported but is no error.
[[maybe_unused]] const bool started = [] {
  try {
    set_logs(settings().log);
  } catch (const Error& e) { write(std::string(e.what()) + "\n"); }
  return true;
}();

}  // namespace

constinit std::atomic<uint32_t> log_mask{0};

void log_line(Log area, std::string_view text) {
  write("facula " + std::string(kAreas[size_t(area)].name) + ": " + std::string(text) + "\n");
}

std::string log_help() {
  std::string text;
  for (auto& a : kAreas)
    text += std::string(a.name) + std::string(12 - a.name.size(), ' ') + std::string(a.doc) + "\n";
  return text;
}

void set_logs(std::string_view areas) {
  uint32_t mask = log_mask.load(std::memory_order_relaxed);
  while (!areas.empty()) {
    auto comma = areas.find(',');
    std::string_view one = areas.substr(0, comma);
    areas.remove_prefix(comma == std::string_view::npos ? areas.size() : comma + 1);
    while (!one.empty() && one.front() == ' ') one.remove_prefix(1);
    while (!one.empty() && one.back() == ' ') one.remove_suffix(1);
    if (one.empty()) continue;
    if (one == "help") {
      write("FACULA_LOG=area,...  prints to standard error; -area leaves one out, all is every one of\n" +
            log_help());
      continue;
    }
    bool off = one.front() == '-';
    if (off || one.front() == '+') one.remove_prefix(1);
    mask = off ? mask & ~bits_of(one) : mask | bits_of(one);
  }
  log_mask.store(mask, std::memory_order_relaxed);
  set_in_use(Interceptor::logged, log_on(Log::ops));
}

}  // namespace facula
