// A group of ranks and its collective operations.
//
// Between any two ranks is a link (link.h): shared memory on one host, TCP between hosts. Every collective sends a
// header to each other rank, with the payload behind it. The header states the operation, dtype, sizes and root; the
// receiver compares it with its own call before it reads the payload. Ranks that disagree therefore raise an error that
// names both calls, and no rank gets wrong data. A rank whose own part is complete, such as the root of a broadcast,
// waits for the headers of the others for `agreement_wait()`; it learns of a later disagreement in its next operation.
//
// A failure (a rank that died, disagreed, or exceeded its deadline) ends the group: its reason is written to the
// memory of each rank, and every operation from then on raises it.
//
// Operations of a lane are executed in the order of submission: on the calling thread if it waits for the result and
// the lane is idle, otherwise on the lane's thread.
#pragma once
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "facula/distributed/call.h"
#include "facula/distributed/inbox.h"

namespace facula::distributed {

struct Header {
  static constexpr uint32_t kMagic = 0xfac01a64;
  uint32_t magic;
  Kind kind;
  Reduction reduction;
  DType dtype;
  uint8_t rank_of_sizes;
  int32_t root;
  uint32_t reserved;
  uint64_t sequence;
  uint64_t payload;       // bytes behind this header, without padding
  int64_t sizes[4];       // sizes[3] combines the sizes of all further dimensions
  bool is_valid() const;  // the fields have values that describe() can print
  bool agrees(const Header& o) const;
  std::string describe() const;
};
static_assert(sizeof(Header) == 64);

class Messages;
struct Stranger;
class Group : public RefCounted {
 public:
  Group(std::string name, int rank, int size, std::string token, std::string interface);
  ~Group() override;

  // Connecting: each rank publishes its address; opens the addresses of all; publishes which ranks it reaches by shared
  // memory; and connects, by TCP where shared memory is not reached from both sides. While connect() waits, it calls
  // `check` about every 100 ms, which throws if waiting is in vain.
  std::string address() const;
  std::vector<bool> open(const std::vector<std::string>& addresses);
  void connect(
      const std::vector<std::vector<bool>>& shared, double timeout,
      const std::function<void()>& check = [] {});

  // Executes a collective and returns when it is done.
  void run(Work& work);
  void submit(const Ref<Work>& work);
  // The same for messages; `call.root` is the peer, -1 for a message of any rank.
  void submit_message(const Ref<Work>& work);

  void abort(const std::string& reason);
  void leave();                                                // no operation follows; idempotent
  std::string failure() const { return inbox_.abort_text(); }  // why the group has ended; empty if it has not

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }
  uint64_t next_sequence() const { return next_; }
  bool is_local(int rank) const;  // reached by shared memory
  std::string records()
      const;  // the flight recorder of this rank and of the other ranks of the host, as JSON

  // For the monitor.
  void tick();
  void forgive(int64_t ns);  // the monitor did not listen for that long
  void mark_dead(int rank, const std::string& how);
  struct Process {
    int rank, pidfd;
  };
  std::vector<Process> processes() const { return processes_; }

 private:
  friend class Exchange;
  friend class Messages;
  friend class Waiting;
  struct Peer {
    std::unique_ptr<Inbox> inbox;  // null on another host
    std::unique_ptr<Link> links[kLanes];
    std::unique_ptr<TcpLink> control;
    std::string host, interface;
    int port = 0, pid = 0, descriptor = -1;
    std::atomic<bool> dead{false};
    std::string how;        // it went
    uint64_t verified = 0;  // number of the next collective whose header is read
    Header partial;         // of a header that has not arrived completely
    size_t partial_bytes = 0;
    std::atomic<int64_t> heard_ns{0};
    uint64_t heartbeat = 0;  // of a rank on this host, when it was seen to change at heard_ns
    bool left = false, announced = false;

    // Streams are those of the lanes, and then the control connection.
    bool has(int stream) const { return stream < kLanes ? bool(links[stream]) : bool(control); }
    void take(int stream, std::unique_ptr<TcpLink> link) {
      if (stream < kLanes) links[stream] = std::move(link);
      else control = std::move(link);
    }
  };
  void listen();
  void connect_tcp(double timeout, const std::function<void()>& check);
  void accept_peers(std::vector<bool> expected, double timeout, const std::function<void()>& check);
  bool is_welcome(Stranger& stranger, const std::vector<bool>& expected) const;
  void execute(Work& work);
  void work_loop();
  void execute_next(std::unique_lock<std::mutex>& lock);
  void finish_queue();
  bool verify(int peer, uint64_t until);
  void compare(int peer, const Header& theirs);
  [[noreturn]] void fail(const std::string& reason);
  void check_alive(const Call& call);
  void tick_remote(int peer);
  void hear_last_words(int peer);
  void watch(int64_t now);
  bool has_stopped_peer(int64_t now);
  void dump_records() const;
  std::string who(int rank) const;

  const std::string name_, token_, interface_, host_;
  const int rank_, size_;
  Inbox inbox_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<Process> processes_;
  int listener_ = -1, port_ = 0;
  std::vector<int> spins_;

  std::mutex mutex_;  // of the queue of collectives
  std::condition_variable changed_;
  std::deque<Ref<Work>> queue_;
  bool running_ = false, ending_ = false, left_ = false;
  std::thread thread_;
  uint64_t next_ = 0;           // number of the next collective
  std::deque<Header> history_;  // the last collectives, for which the header of a peer is missing
  uint64_t history_begin_ = 0;  // number of history_.front()
  std::unique_ptr<Messages> messages_;
  std::atomic<int64_t> waiting_since_{0};  // of the running collective
  uint64_t warned_ = ~0ull;                // the collective about which the watchdog has printed a verdict
  std::mutex control_mutex_;               // of the control connections
  std::mutex dead_mutex_;                  // of Peer::how
};

// Environment variables and limits that tests change.
int64_t now_ns();
double soft_deadline();  // seconds after which the watchdog prints who is missing
// Nanoseconds without a heartbeat after which a process counts as gone: 1.5 s, or TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC;
// never, if TORCH_NCCL_ENABLE_MONITORING is 0.
int64_t silence_limit();
std::string unreachable();  // what is said of such a process
double agreement_wait();    // seconds; the timeout of the operation limits it as well

}  // namespace facula::distributed
