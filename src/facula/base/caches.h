// Caches of what a process has met: plans of calls, traced programs, loop nests, primitives of libraries. They save time and
// nothing else. Each registers how it is emptied; drop_caches() empties those of the process and of the calling thread, and
// what a call still uses lives until the call returns. Caches of other threads keep what their own bound allows.
#pragma once

namespace facula {

// `drop` empties a cache that lives as long as the process; it may be called by any thread.
void on_drop_caches(void (*drop)());
// `drop` empties a cache of the calling thread.
void on_drop_caches_of_thread(void (*drop)());
void drop_caches();
// A static object that registers how a cache is emptied.
struct Droppable {
  explicit Droppable(void (*drop)()) { on_drop_caches(drop); }
};

}  // namespace facula
