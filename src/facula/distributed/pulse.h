// A connection by which two processes notice that the other one is gone: it closes when a process ends, and it is
// silent when a process is stopped or its host cannot be reached. The monitor's thread sends and reads the heartbeats.
// It needs no lock of an interpreter, so that a process which computes for long is not taken for dead.
#pragma once
#include <cstdint>
#include <mutex>
#include <string>

#include "facula/base/intrusive.h"

namespace facula::distributed {

class Pulse : public RefCounted {
 public:
  // Duplicates both sockets. `other` (-1: none) is shut down when the connection is lost, so that a thread that waits
  // for an answer there returns. `pid` is the other process if it is on this host, and 0 otherwise: on one host,
  // silence of a process that runs means that the machine is busy.
  Pulse(int socket, int other, int pid);
  ~Pulse() override;

  // Becomes readable when the connection ends, in order or not. Threads of Python poll it: they may be ended in the
  // middle of a wait, which functions of C++ do not survive.
  int ended() const { return ended_; }
  std::string how() const;  // the reason why the other process was lost, or empty
  void leave();             // tells the other process that this one leaves in order; idempotent

  // For the monitor.
  int descriptor() const { return socket_; }
  bool is_open() const;
  void read();
  void beat();
  void forgive(int64_t ns);  // the monitor did not listen for that long

 private:
  void end(const std::string& how);
  bool close_once(const std::string& how);
  const int socket_, other_, ended_, pid_;
  mutable std::mutex mutex_;
  bool open_ = true;
  std::string how_;
  int64_t heard_ns_;
};

}  // namespace facula::distributed
