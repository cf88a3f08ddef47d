// Messages between two ranks (send, recv). A thread moves them while an operation is pending. A message without a
// matching receive is kept until one is posted, if the thread meets it while it looks for another one.
#pragma once
#include <deque>
#include <list>

#include "facula/distributed/group.h"

namespace facula::distributed {

class Messages {
 public:
  explicit Messages(Group& group);
  ~Messages();
  void submit(const Ref<Work>& work);
  void wake();  // something outside of the links has changed
  void end();

 private:
  struct Frame {  // stands before each message
    uint32_t magic;
    DType dtype;
    uint8_t unused[3];
    int64_t tag;
    uint64_t bytes;
    uint64_t reserved[5];
  };
  static_assert(sizeof(Frame) == 64);
  struct Sending {
    Ref<Work> work;
    Frame frame;
    size_t done = 0;  // bytes of frame, payload and padding
  };
  struct Stored {  // arrived without a receive
    Frame frame;
    std::vector<char> bytes;
  };
  struct Peer {
    std::deque<Sending> out;
    Frame frame;
    size_t have = 0;   // bytes of the incoming frame, payload and padding
    Ref<Work> target;  // of the incoming message; null: `storing`
    std::vector<char> storing;
    std::list<Stored> stored;
    char padding[64];  // receives the bytes behind a payload, which nobody reads
  };
  void loop();
  bool step();
  bool send_some(int peer);
  bool receive_some(int peer);
  void begin_message(int peer);
  std::pair<char*, size_t> room(Peer& p);
  void take_stored();
  void check();
  void fail_all(const std::string& reason);
  bool is_idle() const;
  Ref<Work> matching(int peer, const Frame& frame);
  void check_fits(int peer, const Frame& frame, const Work& work);
  void sleep();

  Group& group_;
  std::vector<Peer> peers_;
  std::list<Ref<Work>> receives_;  // posted, without a message yet
  std::list<std::pair<Ref<Work>, int64_t>> deadlines_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Ref<Work>> submitted_;
  bool ending_ = false;
  int wake_;
  std::thread thread_;
};

}  // namespace facula::distributed
