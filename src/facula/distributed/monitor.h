// One thread of the process that watches the other ranks of all groups: it learns of a death by a pidfd on this host
// and by a closed control connection or missing heartbeats on other hosts, and prints a verdict on a collective that
// takes long. It also watches the other side of each pulse. It needs neither the GIL nor a thread of the program.
#pragma once
#include "facula/distributed/group.h"
#include "facula/distributed/pulse.h"

namespace facula::distributed {

class Monitor {
 public:
  static void watch(Group* group);
  static void watch(Pulse* pulse);
  static void remove(Group* group);  // the monitor does not use it afterwards
  static void remove(Pulse* pulse);
};

// The state of a process as in /proc: R, S, T (stopped), Z (zombie); '?' if there is none.
char process_state(int pid);

}  // namespace facula::distributed
