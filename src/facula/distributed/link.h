// A link is a pair of byte streams between two ranks of a group, over shared memory or TCP. One thread at a time uses
// it. Nothing here waits: functions return how much they could do, and `Bell` is how a rank sleeps until a peer on the
// same host has changed something.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace facula::distributed {

class Link {
 public:
  virtual ~Link() = default;
  // Takes up to `bytes` and returns how many were taken.
  virtual size_t try_send(const void* data, size_t bytes) = 0;
  // A contiguous part of the bytes that have arrived; empty if there are none. Valid until consume().
  virtual std::span<const char> peek() = 0;
  virtual void consume(size_t bytes) = 0;
  // Copies up to `bytes` that have arrived.
  virtual size_t try_receive(void* to, size_t bytes);
  virtual int descriptor() const { return -1; }  // of the socket; -1 for shared memory
  virtual bool is_closed() const { return false; }
};

// ---- shared memory

// A counter in shared memory on which one rank sleeps. A peer increments it if the rank has announced that it sleeps.
struct Bell {
  alignas(64) std::atomic<uint32_t> count{0};
  std::atomic<uint32_t> sleeping{0};

  void ring();  // wakes the sleeper, if there is one
  // Sleeps until somebody rings, unless `ready` returns true after the announcement; at most `microseconds`.
  template <class Ready>
  void sleep(long microseconds, Ready&& ready) {
    uint32_t before = count.load(std::memory_order_acquire);
    sleeping.store(1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!ready()) wait(before, microseconds);
    sleeping.store(0, std::memory_order_relaxed);
  }

 private:
  void wait(uint32_t before, long microseconds);
};

// A ring of bytes with one writer and one reader, whose bytes follow it in memory. The capacity is a power of two.
struct Ring {
  alignas(64) std::atomic<uint64_t> written{0};
  alignas(64) std::atomic<uint64_t> read{0};
  char* bytes() { return reinterpret_cast<char*>(this + 1); }
};

class RingLink final : public Link {
 public:
  // `out` is read by the peer, which sleeps on `theirs`; `in` is written by the peer.
  RingLink(Ring* out, Ring* in, size_t capacity, Bell* theirs)
      : out_(out), in_(in), capacity_(capacity), theirs_(theirs) {}
  size_t try_send(const void* data, size_t bytes) override;
  std::span<const char> peek() override;
  void consume(size_t bytes) override;

 private:
  Ring *out_, *in_;
  size_t capacity_;
  Bell* theirs_;
  uint64_t written_ = 0, read_ = 0;            // own copies of the counters that this side changes
  uint64_t seen_read_ = 0, seen_written_ = 0;  // the peer's counters when they were loaded last
};

// ---- TCP

class TcpLink : public Link {
 public:
  explicit TcpLink(int socket);  // takes ownership; a connected socket
  ~TcpLink() override;
  size_t try_send(const void* data, size_t bytes) override;
  std::span<const char> peek() override;
  void consume(size_t bytes) override;
  size_t try_receive(void* to, size_t bytes) override;
  int descriptor() const override { return socket_; }
  bool is_closed() const override { return closed_ || broken_; }
  void reset();  // ends the connection at once; the other side learns of it even if it cannot answer

 protected:
  // These have the results of send() and recv() with MSG_DONTWAIT.
  virtual ssize_t write_some(const void* data, size_t bytes);
  virtual ssize_t read_some(void* to, size_t bytes);

 private:
  void fill();
  int socket_;
  bool closed_ = false;  // nothing more can be read
  bool broken_ = false;  // nothing can be sent; what the other side sent before it went can still be read
  std::unique_ptr<char[]> buffer_;
  size_t begin_ = 0, end_ = 0;
};

}  // namespace facula::distributed
