// The profiler: what ran, when, for how long, with how much memory, and on which line of the user's program.
//
// Scopes nest on their thread and become events when they end. A hook costs one branch on a flag while
// nothing is recorded: `if (profile::on()) [[unlikely]]`. While recording, an event costs two readings of the
// clock, one lock and, at the outermost operator, the search for the user's line. Sessions do not nest. A
// forked child does not record.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "facula/base/interceptors.h"

namespace facula::profile {

// What an event stands for.
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

// Is a session running? For hooks inside the library; `enabled` is the same for everybody else.
inline bool on() { return is_in_use(Interceptor::profiled); }
bool enabled();
bool wants_shapes();

// A scope in two steps, for those that are no C++ block. 0 while off. Scopes opened inside end with it;
// leaving on another thread, or after the session, is ignored.
uint64_t enter(Category c, std::string_view name);
void leave(uint64_t id);

// One event from construction to destruction, if a session is running. For rare places, and behind on() in
// busy ones.
class Scope {
 public:
  Scope(Category c, std::string_view name);
  Scope(Category c, std::string_view prefix, std::string_view name);
  // A node of the tape: attributed to the line of the call that made it.
  Scope(std::string_view name, uint64_t sequence);
  ~Scope() {
    if (id_) leave(id_);
  }
  Scope(const Scope&) = delete;
  // Sizes as a JSON list with an item an argument; dtypes the same.
  void describe(std::string shapes, std::string dtypes);
  void describe_result(std::string sizes);  // of the first result, as a JSON list

 private:
  uint64_t id_;
};

// Hooks. Called behind on() only.
void count_bytes(int64_t change);   // memory of tensors, attributed to the innermost scope
void made_node(uint64_t sequence);  // of the tape, by the innermost operator

// Where the program is: frames of the user's code as "file(line): function", innermost first, one a line; all
// of them or the first; "" where unknown. Called on threads that record.
using LocationSource = std::string (*)(bool all);
void set_location_source(LocationSource f);
// Keeps the location for calls on this thread during which the source cannot tell (the interpreter was let
// go).
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
  int64_t thread;            // the system's number
  int64_t start, end, self;  // self: without the time of events directly inside
  int64_t allocated, freed;  // bytes, with those of events inside
  int64_t sequence;          // of the node that a call made, or that ran; -1: none
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
  std::vector<Event> events;           // in order of their ends
  std::vector<std::string> locations;  // by number
  std::vector<MemoryChange> memory;    // if asked for
};

struct Options {
  bool shapes = false, memory = false, stacks = false;
};
uint64_t start(const Options& options);  // the session's number; RuntimeError if one is running
Recording stop(uint64_t session);        // what was recorded; nothing if another session or none is running

}  // namespace facula::profile
