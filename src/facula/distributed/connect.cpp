// TCP connections of a group: each rank listens on the job's interface until all ranks with higher numbers have
// connected. A connection counts after it has shown the job's token; nothing else that it sends is interpreted.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "facula/distributed/group.h"
#include "facula/distributed/tls.h"

namespace facula::distributed {

struct Hello {
  char token[kTokenBytes];
  int32_t rank, stream;
};

// A connection that has not shown the token yet.
struct Stranger {
  std::unique_ptr<TcpLink> link;
  Hello hello;
  size_t have = 0;  // bytes of the hello that have arrived
  int64_t since = now_ns();
};

namespace {

constexpr int kStreams = kLanes + 1;          // and the control connection
constexpr int64_t kPatience = 5'000'000'000;  // nanoseconds for the token
constexpr size_t kMostStrangers = 256;
constexpr int kLook = 40;  // milliseconds between two calls of `check`

bool to_address(const std::string& text, int port, sockaddr_storage& address, socklen_t& bytes) {
  std::memset(&address, 0, sizeof address);
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address);
  if (inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(uint16_t(port));
    bytes = sizeof *v4;
    return true;
  }
  if (inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) != 1) return false;
  v6->sin6_family = AF_INET6;
  v6->sin6_port = htons(uint16_t(port));
  bytes = sizeof *v6;
  return true;
}

// Sends everything before the time `end`; a handshake may need answers of the other side first.
bool send_all(TcpLink& link, const void* data, size_t bytes, int64_t end,
              const std::function<void()>& check) {
  const char* at = static_cast<const char*>(data);
  while (bytes) {
    size_t n = link.try_send(at, bytes);
    at += n;
    bytes -= n;
    if (link.is_closed() || (bytes && now_ns() > end)) return false;
    pollfd wait{link.descriptor(), POLLIN, 0};
    if (bytes && !n && poll(&wait, 1, kLook) == 0) check();
  }
  return true;
}

// Waits until the socket is connected; false if that fails, or takes longer than a second SYN of the kernel needs.
bool is_established(int s, int64_t end, const std::function<void()>& check) {
  for (int64_t limit = std::min(end, now_ns() + kPatience); now_ns() < limit; check()) {
    pollfd wait{s, POLLOUT, 0};
    if (poll(&wait, 1, kLook) <= 0) continue;
    int error = 0;
    socklen_t n = sizeof error;
    getsockopt(s, SOL_SOCKET, SO_ERROR, &error, &n);
    errno = error;
    return !error;
  }
  errno = ETIMEDOUT;
  return false;
}

// Connects within the time; -1 if that fails.
int connected(const sockaddr_storage& address, socklen_t bytes, int64_t end,
              const std::function<void()>& check) {
  while (true) {
    int s = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0) return -1;
    int rc = ::connect(s, reinterpret_cast<const sockaddr*>(&address), bytes);
    try {
      if (rc == 0 || (errno == EINPROGRESS && is_established(s, end, check))) return s;
      int error = errno;
      check();
      errno = error;
    } catch (...) {
      close(s);
      throw;
    }
    close(s);
    if (now_ns() > end) return -1;
    usleep(20'000);
  }
}

}  // namespace

void Group::listen() {
  sockaddr_storage address;
  socklen_t bytes;
  value_check(to_address(interface_, 0, address, bytes), "init_process_group")
      << "the interface " << interface_ << " is not an IP address";
  listener_ = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  bool bound = listener_ >= 0 && bind(listener_, reinterpret_cast<sockaddr*>(&address), bytes) == 0 &&
               ::listen(listener_, 1024) == 0;
  runtime_check(bound, "init_process_group")
      << "cannot listen on " << interface_ << ": " << std::strerror(errno);
  getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &bytes);
  port_ = ntohs(address.ss_family == AF_INET ? reinterpret_cast<sockaddr_in*>(&address)->sin_port
                                             : reinterpret_cast<sockaddr_in6*>(&address)->sin6_port);
}

void Group::connect_tcp(double timeout, const std::function<void()>& check) {
  int64_t end = now_ns() + int64_t(std::min(timeout, 1e6) * 1e9);
  std::vector<bool> expected(size_t(size_), false);
  for (int p = 0; p < size_; ++p) {
    if (p == rank_ || peers_[size_t(p)]->inbox) continue;
    Peer& peer = *peers_[size_t(p)];
    if (p > rank_) {
      expected[size_t(p)] = true;
      continue;
    }
    sockaddr_storage address;
    socklen_t bytes;
    bool valid = to_address(peer.interface, peer.port, address, bytes);
    for (int stream = 0; stream < kStreams; ++stream) {
      int s = valid ? connected(address, bytes, end, check) : -1;
      Hello hello{{}, rank_, stream};
      token_.copy(hello.token, kTokenBytes);
      std::unique_ptr<TcpLink> link = s >= 0 ? make_link(s, false) : nullptr;
      bool there = link && send_all(*link, &hello, sizeof hello, end, check);
      runtime_check(there, "init_process_group")
          << "cannot connect to rank " << p << " at " << peer.interface << ":" << peer.port << ": "
          << (uses_tls() ? "the TLS handshake failed" : std::strerror(errno));
      peer.take(stream, std::move(link));
    }
  }
  accept_peers(std::move(expected), timeout, check);
  close(listener_);
  listener_ = -1;
}

// Reads what a stranger sends until the hello is complete. False: it is none of ours, or has closed the connection.
bool Group::is_welcome(Stranger& stranger, const std::vector<bool>& expected) const {
  char* to = reinterpret_cast<char*>(&stranger.hello);
  stranger.have += stranger.link->try_receive(to + stranger.have, sizeof(Hello) - stranger.have);
  if (stranger.have < sizeof(Hello))
    return !stranger.link->is_closed() && now_ns() - stranger.since < kPatience;
  const Hello& hello = stranger.hello;
  bool is_ours = !std::memcmp(hello.token, token_.data(), kTokenBytes) && hello.rank > rank_ &&
                 hello.rank < size_ && hello.stream >= 0 && hello.stream < kStreams &&
                 expected[size_t(hello.rank)];
  return is_ours && !peers_[size_t(hello.rank)]->has(hello.stream);
}

void Group::accept_peers(std::vector<bool> expected, double timeout, const std::function<void()>& check) {
  int64_t end = now_ns() + int64_t(std::min(timeout, 1e6) * 1e9);
  std::vector<Stranger> strangers;
  int missing = kStreams * int(std::count(expected.begin(), expected.end(), true));
  while (missing) {
    std::vector<pollfd> sources{{strangers.size() < kMostStrangers ? listener_ : -1, POLLIN, 0}};
    for (auto& s : strangers) sources.push_back({s.link->descriptor(), POLLIN, 0});
    if (poll(sources.data(), sources.size(), kLook) == 0) check();
    runtime_check(now_ns() <= end, "init_process_group")
        << missing << " connections of ranks on other hosts did not come within " << timeout << " s";
    if (sources[0].revents)
      if (int s = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); s >= 0)
        strangers.push_back({make_link(s, true), {}});
    for (auto& s : strangers) {
      if (!is_welcome(s, expected)) {
        s.link = nullptr;
      } else if (s.have == sizeof(Hello)) {
        peers_[size_t(s.hello.rank)]->take(s.hello.stream, std::move(s.link));
        --missing;
      }
    }
    std::erase_if(strangers, [](auto& s) { return !s.link; });
  }
}

}  // namespace facula::distributed
