#include "facula/base/caches.h"

#include <vector>

#include "facula/base/fork.h"
#include "facula/base/per_thread.h"

namespace facula {

namespace {

using Drops = std::vector<void (*)()>;
TableMutex mutex;
Drops& of_process() {
  static Drops& drops = *new Drops;  // caches register until the process ends
  return drops;
}
Drops& of_thread() { return per_thread<Drops>(); }

}  // namespace

void on_drop_caches(void (*drop)()) {
  std::lock_guard lock(mutex);
  of_process().push_back(drop);
}

void on_drop_caches_of_thread(void (*drop)()) { of_thread().push_back(drop); }

void drop_caches() {
  Drops all;
  {
    std::lock_guard lock(mutex);
    all = of_process();
  }
  for (auto drop : all) drop();
  for (auto drop : of_thread()) drop();
}

}  // namespace facula
