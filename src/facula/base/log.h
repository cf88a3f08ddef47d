// The log: lines on standard error about the library's activities, by area. FACULA_LOG selects the areas when a
// process starts, as `ops,cache`, `all,-ops` or `help`; set_logs changes them later. A disabled area costs a load and
// a branch.
//   FACULA_LOG_AREAS(_): _(area, contents of its lines)
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
  _(passes, "the time of each pass from a graph to its kernels, and graphs before they are fused") \
  _(llvm, "the LLVM code of each kernel that is compiled")                                       \
  _(recompiles, "each capture of a compiled function, and the guard that made it necessary")     \
  _(breaks, "where a compiled function is divided: line, reason, and what would prevent it")     \
  _(guards, "the guards of each captured segment")                                               \
  _(graph, "the graph of each captured segment")

enum class Log : uint8_t {
#define FACULA_LOG_NAME(area, doc) area,
  FACULA_LOG_AREAS(FACULA_LOG_NAME)
#undef FACULA_LOG_NAME
      count
};

extern std::atomic<uint32_t> log_mask;  // one bit per area
inline bool log_on(Log area) { return log_mask.load(std::memory_order_relaxed) >> unsigned(area) & 1; }
void log_line(Log area, std::string_view text);  // one write, so that lines of threads do not mix

// Takes areas separated by commas: `x` or `+x` enables x, `-x` disables it; `all` stands for every area; `help`
// prints the table. Changes the current selection; an unknown area raises a ValueError that lists the known ones, and
// changes nothing.
void set_logs(std::string_view areas);
std::string log_help();  // the table of areas, one per line

}  // namespace facula
