// The transfers of one collective: for each other rank, what is sent to it and what is received from it, in order. A
// step moves whatever can be moved on all links without waiting.
#pragma once
#include <vector>

#include "facula/distributed/group.h"

namespace facula::distributed {

// How a rank waits: it spins briefly, then yields, then sleeps until a peer rings or a socket is ready. While it
// sleeps it looks every 20 ms whether the group has ended, a peer died, the user interrupts, or the deadline passed.
class Waiting {
 public:
  Waiting(Group& group, int lane, const Call& call);
  void moved() { rounds_ = 0; }
  // Nothing could be moved; `step` tries again and returns whether something was. `wants(peer)`: POLLIN | POLLOUT.
  template <class Step, class Wants>
  void idle(Step&& step, Wants&& wants) {
    if (++rounds_ < spins_) return pause(rounds_);
    if (poll_sockets(wants)) return check();
    bool ready = false;
    group_.inbox_->bells[lane_].sleep(20000, [&] { return ready = step(); });
    if (ready) moved();
    else check();
  }
  // True for one more round after the deadline check found a dead peer: what it sent before has to be read first.
  void check();

 private:
  static void pause(int round);
  template <class Wants>
  bool poll_sockets(Wants&& wants) {
    if (!has_sockets_) return false;
    wait_for_sockets([&](int p) { return wants(p); });
    return true;
  }
  void wait_for_sockets(const std::function<int(int)>& wants);
  Group& group_;
  int lane_, rounds_ = 0, spins_;
  const Call& call_;
  int64_t end_ns_;
  bool has_sockets_ = false;
};

class Exchange {
 public:
  Exchange(Group& group, const Call& call, uint64_t sequence);
  void run();

 private:
  struct Out {
    const char* data;
    size_t bytes;
    int chunk;  // of this rank's reduced block, whose bytes are sent as they are reduced; -1: all bytes are there
  };
  struct In {
    char* data;  // null: padding, which is dropped
    size_t bytes;
    int chunk;  // a contribution to this chunk of this rank's block; -1: bytes to copy
  };
  struct Peer {
    Header header;
    std::vector<Out> out;
    std::vector<In> in;
    size_t next_out = 0, next_in = 0, out_done = 0, in_done = 0;
    uint64_t expected = 0;  // bytes from this rank, without padding
    bool verified = false;
    bool is_done() const { return next_out == out.size() && next_in == in.size(); }
  };
  struct Chunk {
    char* to;
    const char* own;
    size_t bytes, done;
  };
  void plan();
  void plan_payloads();
  void plan_all_reduce();
  void plan_blocks(const Buffer& in, const Buffer& result);
  void plan_reduction(const Buffer& from_each, char* to, const char* own);
  void send(int peer, Buffer b) { add_out(peer, b.data, b.bytes); }
  void add_out(int peer, const char* data, size_t bytes, int chunk = -1);
  void add_in(int peer, char* data, size_t bytes, int chunk = -1);
  void finish_payload(int peer);
  void copy_own();
  bool step();
  bool send_some(int peer);
  bool receive_some(int peer);
  bool reduce_some();
  bool is_done() const;
  bool is_verified() const;
  // Whether this rank may return although it has not read the headers of all others.
  bool may_leave();
  int wants(int peer) const;

  Group& group_;
  const Call& call_;
  const uint64_t sequence_;
  std::vector<Peer> peers_;
  std::vector<Chunk> chunks_;
  size_t next_chunk_ = 0;
  bool reduce_after_sending_ = false;  // the result overwrites what is being sent
  int64_t done_ns_ = 0;                // when all transfers were complete
  bool is_sent() const;
};

}  // namespace facula::distributed
