#include "facula/distributed/link.h"

#include <errno.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "facula/distributed/group.h"

namespace facula::distributed {

namespace {
constexpr size_t kReceiveBuffer = 256 << 10;
void set_option(int socket, int level, int option, int value) {
  setsockopt(socket, level, option, &value, sizeof value);
}
}  // namespace

size_t Link::try_receive(void* to, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    std::span<const char> some = peek();
    if (some.empty()) break;
    size_t n = std::min(bytes - done, some.size());
    std::memcpy(static_cast<char*>(to) + done, some.data(), n);
    consume(n);
    done += n;
  }
  return done;
}

void Bell::ring() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!sleeping.load(std::memory_order_relaxed)) return;
  count.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, &count, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Bell::wait(uint32_t before, long microseconds) {
  timespec limit{microseconds / 1000000, microseconds % 1000000 * 1000};
  syscall(SYS_futex, &count, FUTEX_WAIT, before, &limit, nullptr, 0);
}

size_t RingLink::try_send(const void* data, size_t bytes) {
  size_t space = capacity_ - size_t(written_ - seen_read_);
  if (space < bytes) {
    seen_read_ = out_->read.load(std::memory_order_acquire);
    space = capacity_ - size_t(written_ - seen_read_);
  }
  size_t n = std::min(bytes, space);
  if (!n) return 0;
  size_t at = written_ & (capacity_ - 1), first = std::min(n, capacity_ - at);
  std::memcpy(out_->bytes() + at, data, first);
  std::memcpy(out_->bytes(), static_cast<const char*>(data) + first, n - first);
  written_ += n;
  out_->written.store(written_, std::memory_order_release);
  theirs_->ring();
  return n;
}

std::span<const char> RingLink::peek() {
  if (seen_written_ == read_) seen_written_ = in_->written.load(std::memory_order_acquire);
  size_t at = read_ & (capacity_ - 1);
  return {in_->bytes() + at, std::min(size_t(seen_written_ - read_), capacity_ - at)};
}

void RingLink::consume(size_t bytes) {
  read_ += bytes;
  in_->read.store(read_, std::memory_order_release);
  theirs_->ring();
}

TcpLink::TcpLink(int socket) : socket_(socket), buffer_(new char[kReceiveBuffer]) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  // The kernel closes the connection if the other host does not answer for as long as heartbeats may be missing.
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT,
             int(std::min<int64_t>(silence_limit() / 1'000'000, INT_MAX)));
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 2);
}

TcpLink::~TcpLink() { close(socket_); }

void TcpLink::reset() {
  sockaddr none{};
  none.sa_family = AF_UNSPEC;
  ::connect(socket_, &none, sizeof none);  // Linux sends a reset
  closed_ = true;
}

ssize_t TcpLink::write_some(const void* data, size_t bytes) {
  return ::send(socket_, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
}

ssize_t TcpLink::read_some(void* to, size_t bytes) { return ::recv(socket_, to, bytes, MSG_DONTWAIT); }

size_t TcpLink::try_send(const void* data, size_t bytes) {
  if (is_closed()) return 0;
  ssize_t n = write_some(data, bytes);
  if (n >= 0) return size_t(n);
  if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) broken_ = true;
  return 0;
}

// Reads what has arrived into the buffer.
void TcpLink::fill() {
  if (closed_) return;
  if (begin_ == end_) begin_ = end_ = 0;
  if (end_ == kReceiveBuffer) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ == kReceiveBuffer) return;
  ssize_t n = read_some(buffer_.get() + end_, kReceiveBuffer - end_);
  if (n > 0) end_ += size_t(n);
  else if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) closed_ = true;
}

std::span<const char> TcpLink::peek() {
  if (end_ - begin_ < 64) fill();  // fewer bytes than a header may be part of an element
  return {buffer_.get() + begin_, end_ - begin_};
}

void TcpLink::consume(size_t bytes) { begin_ += bytes; }

size_t TcpLink::try_receive(void* to, size_t bytes) {
  size_t done = std::min(bytes, end_ - begin_);
  std::memcpy(to, buffer_.get() + begin_, done);
  begin_ += done;
  if (done == bytes || closed_) return done;
  if (bytes - done < kReceiveBuffer / 4)
    return done + Link::try_receive(static_cast<char*>(to) + done, bytes - done);
  ssize_t n = read_some(static_cast<char*>(to) + done, bytes - done);
  if (n > 0) return done + size_t(n);
  if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) closed_ = true;
  return done;
}

}  // namespace facula::distributed
