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
#include <map>

#include "facula/distributed/group.h"

namespace facula::distributed {

namespace {

constexpr int kStreams = kLanes + 1;  // and the control connection

struct Hello {
  char token[kTokenBytes];
  int32_t rank, stream;
};

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

bool send_all(int socket, const void* data, size_t bytes) {
  return ::send(socket, data, bytes, MSG_NOSIGNAL) == ssize_t(bytes);
}

// Connects within the time; -1 if that fails.
int connected(const sockaddr_storage& address, socklen_t bytes, int64_t end) {
  while (true) {
    int s = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0) return -1;
    int rc = ::connect(s, reinterpret_cast<const sockaddr*>(&address), bytes);
    pollfd wait{s, POLLOUT, 0};
    int64_t left = (end - now_ns()) / 1'000'000;
    if (rc < 0 && errno == EINPROGRESS && poll(&wait, 1, int(std::clamp<int64_t>(left, 0, 3000))) > 0) {
      int error = 0;
      socklen_t n = sizeof error;
      getsockopt(s, SOL_SOCKET, SO_ERROR, &error, &n);
      rc = error ? -1 : 0;
    }
    if (rc == 0) return s;
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

void Group::connect_tcp(double timeout) {
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
    bool known = to_address(peer.interface, peer.port, address, bytes);
    for (int stream = 0; stream < kStreams; ++stream) {
      int s = known ? connected(address, bytes, end) : -1;
      Hello hello{{}, rank_, stream};
      token_.copy(hello.token, kTokenBytes);
      bool there = s >= 0 && send_all(s, &hello, sizeof hello);
      if (!there && s >= 0) close(s);
      runtime_check(there, "init_process_group")
          << "cannot connect to rank " << p << " at " << peer.interface << ":" << peer.port << ": "
          << std::strerror(errno);
      if (stream < kLanes) peer.links[stream] = std::make_unique<TcpLink>(s);
      else peer.control = std::make_unique<TcpLink>(s);
    }
  }
  accept_peers(std::move(expected), timeout);
  close(listener_);
  listener_ = -1;
}

void Group::accept_peers(std::vector<bool> expected, double timeout) {
  int64_t end = now_ns() + int64_t(std::min(timeout, 1e6) * 1e9);
  std::map<int, std::pair<Hello, size_t>> strangers;  // by socket: what has arrived of the first message
  int missing = kStreams * int(std::count(expected.begin(), expected.end(), true));
  while (missing) {
    std::vector<pollfd> sources{{listener_, POLLIN, 0}};
    for (auto& [s, hello] : strangers) sources.push_back({s, POLLIN, 0});
    poll(sources.data(), sources.size(), 100);
    if (now_ns() > end) {
      for (auto& [s, hello] : strangers) close(s);
      runtime_check(false, "init_process_group")
          << missing << " connections of ranks on other hosts did not come within " << timeout << " s";
    }
    if (sources[0].revents)
      if (int s = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); s >= 0)
        strangers[s] = {};
    for (size_t i = 1; i < sources.size(); ++i) {
      if (!sources[i].revents) continue;
      int s = sources[i].fd;
      auto& [hello, have] = strangers[s];
      ssize_t n = recv(s, reinterpret_cast<char*>(&hello) + have, sizeof hello - have, MSG_DONTWAIT);
      if (n > 0) have += size_t(n);
      bool ended = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
      if (!ended && have < sizeof hello) continue;
      bool is_ours = !ended && !std::memcmp(hello.token, token_.data(), kTokenBytes) && hello.rank > rank_ &&
                     hello.rank < size_ && hello.stream >= 0 && hello.stream < kStreams &&
                     expected[size_t(hello.rank)];
      Peer* peer = is_ours ? peers_[size_t(hello.rank)].get() : nullptr;
      bool twice = peer && (hello.stream < kLanes ? bool(peer->links[hello.stream]) : bool(peer->control));
      if (!peer || twice) {
        close(s);
      } else {
        if (hello.stream < kLanes) peer->links[hello.stream] = std::make_unique<TcpLink>(s);
        else peer->control = std::make_unique<TcpLink>(s);
        --missing;
      }
      strangers.erase(s);
    }
  }
  for (auto& [s, hello] : strangers) close(s);
}

}  // namespace facula::distributed
