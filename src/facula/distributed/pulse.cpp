#include "facula/distributed/pulse.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "facula/distributed/monitor.h"

namespace facula::distributed {

namespace {
constexpr char kBeat = 'h', kLeave = 'l';
int duplicated(int socket) { return socket < 0 ? -1 : fcntl(socket, F_DUPFD_CLOEXEC, 0); }
}  // namespace

Pulse::Pulse(int socket, int other, int pid)
    : socket_(duplicated(socket)),
      other_(duplicated(other)),
      ended_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      pid_(pid),
      heard_ns_(now_ns()) {
  runtime_check(socket_ >= 0 && ended_ >= 0, "Pulse") << "the socket is closed, or no descriptor is left";
  Monitor::watch(this);
}

Pulse::~Pulse() {
  Monitor::remove(this);
  close(socket_);
  close(ended_);
  if (other_ >= 0) close(other_);
}

bool Pulse::is_open() const {
  std::lock_guard lock(mutex_);
  return open_;
}

std::string Pulse::how() const {
  std::lock_guard lock(mutex_);
  return how_;
}

// False: it was closed before.
bool Pulse::close_once(const std::string& how) {
  std::lock_guard lock(mutex_);
  if (!open_) return false;
  open_ = false;
  how_ = how;
  uint64_t one = 1;
  return write(ended_, &one, sizeof one) > 0;
}

void Pulse::end(const std::string& how) {
  if (!close_once(how)) return;
  shutdown(socket_, SHUT_RDWR);
  if (!how.empty() && other_ >= 0) shutdown(other_, SHUT_RDWR);
}

// The pulse is closed first: the monitor could take the end of the other side, which follows, for a loss.
void Pulse::leave() {
  if (!close_once("")) return;
  if (send(socket_, &kLeave, 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) return;
  shutdown(socket_, SHUT_RDWR);
}

void Pulse::read() {
  char some[256];
  while (true) {
    ssize_t n = recv(socket_, some, sizeof some, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n <= 0) return end("died (its connection was closed)");
    heard_ns_ = now_ns();
    if (std::find(some, some + n, kLeave) != some + n) return end("");
  }
}

void Pulse::forgive(int64_t ns) { heard_ns_ += ns; }

void Pulse::beat() {
  if (!is_open()) return;
  read();  // what arrived while this process itself was stopped counts
  if (!is_open()) return;
  if (now_ns() - heard_ns_ > silence_limit()) {
    char state = pid_ > 0 ? process_state(pid_) : 0;
    if (!state) return end(unreachable());
    if (state == 'T') return end("is stopped by a signal");
    if (state == 'Z' || state == '?') return end("died");
  }
  if (send(socket_, &kBeat, 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno != EAGAIN && errno != EWOULDBLOCK &&
      errno != EINTR)
    end("died (its connection was closed)");
}

}  // namespace facula::distributed
