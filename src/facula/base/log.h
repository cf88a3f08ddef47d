// The log: lines on standard error about what the library does, by area. FACULA_LOG names the areas when a
// process starts, as `ops,cache`, `all,-ops` or `help`; set_logs changes them later. A test that is off costs
// a load and a branch.
//   FACULA_LOG_AREAS(_): _(area, what its lines tell)
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace facula {

#define FACULA_LOG_AREAS(_)                                                                     \
  _(ops, "every operator call, with the shapes and data types of its arguments")                \
  _(kernels, "each kernel that is made: how its loops are arranged, its loops, the time; what libraries choose") \
  _(cache, "where each kernel was found or stored: file and digest")                            \
  _(layouts, "each tensor whose memory leaves or regains the logical layout")                      \
  _(passes, "graphs of composites before they are fused")                                       \
  _(llvm, "the LLVM code of each kernel that is compiled")

enum class Log : uint8_t {
#define FACULA_LOG_NAME(area, doc) area,
  FACULA_LOG_AREAS(FACULA_LOG_NAME)
#undef FACULA_LOG_NAME
      count
};

extern std::atomic<uint32_t> log_mask;  // a bit an area
inline bool log_on(Log area) { return log_mask.load(std::memory_order_relaxed) >> unsigned(area) & 1; }
void log_line(Log area, std::string_view text);  // one write, so that lines of threads stay whole

// Areas with commas between: `x` or `+x` turns x on, `-x` off; `all` is every area; `help` prints the table.
// Changes what is on now; an unknown area is a ValueError that names the known ones, and changes nothing.
void set_logs(std::string_view areas);
std::string log_help();  // the table of areas, a line each

}  // namespace facula
