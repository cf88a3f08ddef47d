// The profiler: records what ran, when, for how long, with how much memory, and on which line of the user's program.
//
// Scopes nest on their thread and become events when they end. While nothing is recorded, a hook costs one branch on
// a flag: `if (profile::on()) [[unlikely]]`. While recording, an event costs two clock readings, one lock and, for
// the outermost operator, finding the call site. Sessions do not nest. A forked child does not record.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "facula/base/interceptors.h"

namespace facula::profile {

// The categories of events.
#define FACULA_PROFILE_CATEGORIES(_)                                                                                   \
  _(operation, "operator") /* a call, or a node of the tape */                                                         \
  _(kernel, "kernel")      /* generated machine code */                                                                \
  _(library, "library")    /* a backend's function */                                                                  \
  _(compile, "compile")    /* tracing, planning, code generation: what only the first call of a kind does */           \
  _(user, "user")          /* named by the program */
#define FACULA_CATEGORY(name, text) name,
enum class Category : uint8_t { FACULA_PROFILE_CATEGORIES(FACULA_CATEGORY) };
#undef FACULA_CATEGORY
const char* to_string(Category c);

// True while a session is running. `on` is for hooks inside the library, `enabled` for all others.
inline bool on() { return is_in_use(Interceptor::profiled); }
bool enabled();
bool wants_shapes();

// A scope that is not a C++ block, in two steps; `enter` gives 0 if no session is running. Scopes that were opened
// inside end with it. Leaving on another thread, or after the session, has no effect.
uint64_t enter(Category c, std::string_view name);
void leave(uint64_t id);

// Records one event from construction to destruction if a session is running. Use it directly in rarely executed
// code, and behind on() in frequently executed code.
class Scope {
 public:
  Scope(Category c, std::string_view name);
  Scope(Category c, std::string_view prefix, std::string_view name);
  // A node of the tape; its call site is that of the call that created it.
  Scope(std::string_view name, uint64_t sequence);
  ~Scope() {
    if (id_) leave(id_);
  }
  Scope(const Scope&) = delete;
  // Sizes as a JSON list with one item per argument; the same for dtypes.
  void describe(std::string shapes, std::string dtypes);
  void describe_result(std::string sizes);  // of the first result, as a JSON list

 private:
  uint64_t id_;
};

// Hooks, which must be called behind on() only.
void count_bytes(int64_t change);   // memory of tensors, attributed to the innermost scope
void made_node(uint64_t sequence);  // a tape node that the innermost operator created

// Gives the call site: frames of the user's code as "file(line): function", innermost first, one per line; all frames
// or the first one; "" if unknown. It is called on the recording threads.
using LocationSource = std::string (*)(bool all);
void set_location_source(LocationSource f);
// Retains the call site for calls on this thread during which the source cannot be asked (the interpreter lock was
// released).
class KeepLocation {
 public:
  KeepLocation();
  ~KeepLocation();

 private:
  uint32_t outer_;
  bool active_;
};

// Times are nanoseconds of a steady clock.
struct Event {
  uint64_t id, parent;       // parent 0: outermost of its thread
  int64_t thread;            // the system's number of the thread
  int64_t start, end, self;  // self: without the time of events directly inside
  int64_t allocated, freed;  // bytes, including events inside
  int64_t sequence;          // of the node that a call created, or that ran; -1: none
  uint32_t location;         // 0: unknown
  Category category;
  bool backward;
  std::string name, shapes, dtypes, result;
};
struct MemoryChange {
  int64_t time, thread, bytes;
};
struct Recording {
  int64_t start = 0, end = 0;
  std::vector<Event> events;           // in the order of their ends
  std::vector<std::string> locations;  // by number
  std::vector<MemoryChange> memory;    // if asked for
};

struct Options {
  bool shapes = false, memory = false, stacks = false;
};
uint64_t start(const Options& options);  // returns the session's number; RuntimeError if one is running
Recording stop(uint64_t session);        // the recording; empty if another session, or none, is running

}  // namespace facula::profile
