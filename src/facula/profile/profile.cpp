#include "facula/profile/profile.h"

#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "facula/base/error.h"

namespace facula::profile {

namespace {

struct Session {
  std::mutex mutex;
  Options options;
  Recording result;
  std::unordered_map<std::string, uint32_t> location_numbers;
  std::unordered_map<uint64_t, uint32_t> node_locations;  // by sequence number
};
Session& session() {
  static Session* s = new Session;
  return *s;
}
std::atomic<uint64_t> session_number{0}, next_id{0};
std::atomic<bool> with_shapes{false}, with_memory{false}, with_stacks{false};
std::atomic<LocationSource> location_source{nullptr};

// An open scope.
struct Frame {
  uint64_t id;
  int64_t start, children = 0, allocated = 0, freed = 0, sequence = -1;
  uint32_t location = 0;
  Category category;
  bool backward = false;
  std::string name, shapes, dtypes, result;
};
struct Thread {
  uint64_t session = 0;  // the session of its frames
  int64_t number = gettid();
  uint32_t retained_location = 0;  // number of the retained call site, see KeepLocation
  std::vector<Frame> frames;
};
constinit __attribute__((tls_model("initial-exec"))) thread_local Thread* local = nullptr;
constinit __attribute__((tls_model("initial-exec"))) thread_local bool closed = false;
struct Closer {
  ~Closer() {
    closed = true;
    delete std::exchange(local, nullptr);
  }
};

// The state of this thread in the running session; null while the thread is ending.
Thread* thread() {
  if (!local) {
    if (closed) return nullptr;
    static thread_local Closer closer;
    local = (void(&closer), new Thread);
  }
  uint64_t now = session_number.load(std::memory_order_relaxed);
  if (local->session != now) {
    local->session = now;
    local->frames.clear();
    local->retained_location = 0;
  }
  return local;
}

int64_t clock() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

uint32_t ask_location(const Thread& t) {
  auto source = location_source.load(std::memory_order_relaxed);
  std::string text = source ? source(with_stacks.load(std::memory_order_relaxed)) : std::string();
  if (text.empty()) return t.retained_location;
  auto& s = session();
  std::lock_guard lock(s.mutex);
  auto [it, fresh] = s.location_numbers.emplace(std::move(text), uint32_t(s.result.locations.size()));
  if (fresh) s.result.locations.push_back(it->first);
  return it->second;
}

uint64_t open(Category c, std::string_view name, int64_t sequence) {
  Thread* t = on() ? thread() : nullptr;
  if (!t) return 0;
  Frame f{.id = next_id.fetch_add(1, std::memory_order_relaxed) + 1,
          .start = 0,
          .sequence = sequence,
          .category = c,
          .name = std::string(name)};
  f.backward = sequence >= 0;
  if (f.backward) {
    auto& s = session();
    std::lock_guard lock(s.mutex);
    if (auto it = s.node_locations.find(uint64_t(sequence)); it != s.node_locations.end())
      f.location = it->second;
  } else if (!t->frames.empty()) {
    f.backward = t->frames.back().backward;
  }
  if (!f.location) {
    bool inside = !t->frames.empty() && t->frames.back().category != Category::user;
    f.location = inside ? t->frames.back().location : ask_location(*t);
  }
  t->frames.push_back(std::move(f));
  t->frames.back().start = clock();
  return t->frames.back().id;
}

// Takes the lock around forks, so that it is free in the child, which has no session.
void watch_forks() {
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork([] { session().mutex.lock(); }, [] { session().mutex.unlock(); },
                   [] {
                     set_in_use(Interceptor::profiled, false);
                     session_number.fetch_add(1);
                     if (local) local->number = gettid();
                     session().mutex.unlock();
                   });
  });
}

}  // namespace

const char* to_string(Category c) {
#define FACULA_CATEGORY(name, text) text,
  static const char* const names[] = {FACULA_PROFILE_CATEGORIES(FACULA_CATEGORY)};
#undef FACULA_CATEGORY
  return names[size_t(c)];
}

bool enabled() { return on(); }
bool wants_shapes() { return with_shapes.load(std::memory_order_relaxed); }

Scope::Scope(Category c, std::string_view name) : id_(open(c, name, -1)) {}
Scope::Scope(Category c, std::string_view prefix, std::string_view name)
    : id_(on() ? open(c, std::string(prefix).append(name), -1) : 0) {}
Scope::Scope(std::string_view name, uint64_t sequence)
    : id_(open(Category::operation, name, int64_t(sequence))) {}
void Scope::describe(std::string shapes, std::string dtypes) {
  if (!id_ || !local || local->frames.empty() || local->frames.back().id != id_) return;
  Frame& f = local->frames.back();
  f.shapes = std::move(shapes);
  f.dtypes = std::move(dtypes);
}
void Scope::describe_result(std::string sizes) {
  if (!id_ || !local || local->frames.empty() || local->frames.back().id != id_) return;
  Frame& f = local->frames.back();
  f.result = std::move(sizes);
}

uint64_t enter(Category c, std::string_view name) { return open(c, name, -1); }

void leave(uint64_t id) {
  int64_t end = clock();
  if (!id || !local) return;
  auto& frames = local->frames;
  size_t at = frames.size();
  while (at > 0 && frames[at - 1].id != id) --at;
  if (!at) return;
  uint64_t own_session = local->session;
  for (size_t left = frames.size(); left-- >= at;) {  // ends scopes that were opened inside and not left, too
    Frame f = std::move(frames.back());
    frames.pop_back();
    Frame* parent = frames.empty() ? nullptr : &frames.back();
    if (parent) {
      parent->children += end - f.start;
      parent->allocated += f.allocated;
      parent->freed += f.freed;
    }
    auto& s = session();
    std::lock_guard lock(s.mutex);
    if (!on() || session_number.load(std::memory_order_relaxed) != own_session) continue;
    s.result.events.push_back({f.id, parent ? parent->id : 0, local->number, f.start, end,
                               end - f.start - f.children, f.allocated, f.freed, f.sequence, f.location,
                               f.category, f.backward, std::move(f.name), std::move(f.shapes),
                               std::move(f.dtypes), std::move(f.result)});
  }
}

void count_bytes(int64_t change) {
  Thread* t = thread();
  if (!t) return;
  if (!t->frames.empty()) {
    Frame& f = t->frames.back();
    (change > 0 ? f.allocated : f.freed) += change > 0 ? change : -change;
  }
  if (!with_memory.load(std::memory_order_relaxed)) return;
  int64_t now = clock();
  auto& s = session();
  std::lock_guard lock(s.mutex);
  if (on()) s.result.memory.push_back({now, t->number, change});
}

void made_node(uint64_t sequence) {
  Thread* t = thread();
  if (!t) return;
  Frame* f = t->frames.empty() ? nullptr : &t->frames.back();
  if (f && f->sequence < 0) f->sequence = int64_t(sequence);
  uint32_t location = f ? f->location : ask_location(*t);
  auto& s = session();
  std::lock_guard lock(s.mutex);
  s.node_locations[sequence] = location;
}

void set_location_source(LocationSource f) { location_source = f; }

KeepLocation::KeepLocation() : outer_(0), active_(false) {
  Thread* t = on() ? thread() : nullptr;
  if (!t) return;
  active_ = true;
  outer_ = t->retained_location;
  t->retained_location = ask_location(*t);
}
KeepLocation::~KeepLocation() {
  if (active_ && local) local->retained_location = outer_;
}

uint64_t start(const Options& options) {
  watch_forks();
  auto& s = session();
  std::lock_guard lock(s.mutex);
  runtime_check(!on(), "profile") << "a profile is being recorded already"
                                  << hint(
                                         "profiles do not nest: end the outer one first; "
                                         "record_function(name) marks a part of it");
  s.options = options;
  with_shapes = options.shapes;
  with_memory = options.memory;
  with_stacks = options.stacks;
  s.result = {};
  s.result.locations.push_back("");
  s.location_numbers.clear();
  s.node_locations.clear();
  s.result.start = clock();
  uint64_t number = ++session_number;
  set_in_use(Interceptor::profiled);
  return number;
}

Recording stop(uint64_t number) {
  auto& s = session();
  std::lock_guard lock(s.mutex);
  if (!on() || session_number != number) return {};
  set_in_use(Interceptor::profiled, false);
  s.result.end = clock();
  s.location_numbers.clear();
  s.node_locations.clear();
  return std::exchange(s.result, {});
}

}  // namespace facula::profile
