// The shared memory of one rank of a group, which all ranks of the same host map: rings for what they send to it, bells
// on which it sleeps, the reason why the group ended, and the flight recorder. The memory belongs to an anonymous file
// that lives as long as a process maps it, so that a killed process leaves nothing behind.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "facula/distributed/link.h"

namespace facula::distributed {

inline constexpr int kLanes = 2;  // streams between two ranks: collectives, messages
inline constexpr size_t kRingBytes = 1 << 20;
inline constexpr size_t kTokenBytes = 32;
inline constexpr int kRecords = 2048;

// One operation in the flight recorder. A reader accepts an entry if `sequence` is the expected one.
struct Record {
  std::atomic<uint64_t> sequence;    // plus one; 0: never used
  uint64_t started_ns, finished_ns;  // CLOCK_MONOTONIC; finished_ns is 0 while the operation runs
  uint64_t bytes;
  uint8_t kind, reduction, dtype, failed;
  int32_t root;
  char site[80];  // where the program called it: file:line
};

struct InboxHeader {
  uint64_t magic;
  char token[kTokenBytes];
  int32_t rank, size, pid;
  std::atomic<uint32_t> left;               // the rank left the group in order
  std::atomic<uint64_t> heartbeat;          // ticks of the rank's monitor
  std::atomic<uint64_t> started, finished;  // numbers of the last collective
  std::atomic<uint32_t> abort_state;        // 0: none, 1: being written, 2: abort_text is complete
  char abort_text[1500];
  char recorder_name[64];
  Bell bells[kLanes];
  Record records[kRecords];
};

class Inbox {
 public:
  // Creates the memory of this rank.
  Inbox(std::string_view token, int rank, int size);
  // Maps the memory of another rank; null if it is on another host or cannot be opened.
  static std::unique_ptr<Inbox> open(std::string_view token, pid_t pid, int descriptor, int rank, int size);
  ~Inbox();
  Inbox(const Inbox&) = delete;

  InboxHeader* operator->() const { return header_; }
  Ring* ring(int lane, int from) const;  // written by the rank `from`
  int descriptor() const { return descriptor_; }
  void set_abort(std::string_view text);  // the first text stays
  std::string abort_text() const;         // empty if there is none

 private:
  Inbox() = default;
  InboxHeader* header_ = nullptr;
  size_t bytes_ = 0;
  int descriptor_ = -1;
};

// The state of a rank, for other programs to display.
struct RankStatus {
  std::string token, operation, site;  // of the job; of the last collective
  int rank, size, pid;
  uint64_t finished;          // number of completed collectives
  bool waiting;               // in a collective now
  double waiting_s, mean_ms;  // mean duration of the recorded collectives
};
// Both raise RuntimeError if the file is not the memory of a rank. The rank may have ended.
RankStatus read_status(const std::string& path);
std::string read_records(const std::string& path);  // the flight recorder, as JSON

// Appends the recorded operations of a rank to a JSON list, whose first character is in the text already.
void append_records(std::string& text, const InboxHeader& header);

}  // namespace facula::distributed
