#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "facula/base/fork.h"
#include "facula/base/hash.h"
#include "facula/base/interrupt.h"
#include "facula/base/library.h"
#include "facula/base/log.h"
#include "facula/base/settings.h"
#include "facula/base/sha256.h"
#include "facula/codegen/background.h"
#include "facula/codegen/compiler.h"
#include "facula/codegen/kernel.h"
#include "facula/codegen/named.h"
#include "facula/codegen/nest_index.h"
#include "facula/codegen/object.h"
#include "facula/codegen/packaged.h"
#include "facula/codegen/prediction.h"
#include "facula/codegen/printed.h"
#include "facula/codegen/store.h"
#include "facula/profile/profile.h"
#include "facula/schedule/lanes.h"

namespace facula::codegen {
namespace {

void log_cache(const char* what, const std::string& where, const std::string& name) {
  if (log_on(Log::cache))
    log_line(Log::cache, std::string(what) + " " + where + (name.empty() ? "" : " (" + name + ")"));
}

// ---- the compiler

using Compile = bool (*)(const loop::Nest*, std::string*, std::string*);
#ifdef FACULA_RUNTIME
constexpr bool kCompiles = false;  // libfacula_runtime.so has neither a compiler nor printers
#else
constexpr bool kCompiles = true;
#endif

Compile compiler() {
  static const auto f =
      reinterpret_cast<Compile>(symbol_beside("libfacula_llvm.so", "facula_llvm_compile", "codegen"));
  return f;
}

std::atomic<int64_t> memory_hits{0}, shipped_hits{0}, disk_hits{0}, compiled{0}, compile_nanoseconds{0};

bool prints() { return kCompiles && printed_target() != Printed::none; }

// Runs `how`, which compiles; counts and logs it.
template <class F>
auto compile_by(const loop::Nest& n, F&& how) {
  std::optional<profile::Scope> scope;  // background threads belong to no line of the program
  if (!is_background_thread()) scope.emplace(profile::Category::compile, "compile ", n.name);
  auto start = std::chrono::steady_clock::now();
  auto result = how();
  auto spent =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start).count();
  ++compiled;
  compile_nanoseconds += spent;
  if (log_on(Log::kernels))
    log_line(Log::kernels, n.name + " compiled in " + std::to_string(spent / 1000) + " us\n" +
                               loop::print(n) + (prints() ? "\n" + printed_kernel(printed_target(), n) : ""));
  return result;
}
std::string compile(const loop::Nest& n) {
  runtime_check(kCompiles, "codegen")
      << "no package that was loaded has the kernel " << n.name << " for the sizes of this call and "
      << instruction_set() << hint("name the sizes when you package the program, or link with libfacula.so");
  loop::Nest lowered = schedule::in_lanes(n, lane_limits());
  if (settings().verify) loop::verify(lowered, lane_limits());
  return compile_by(lowered, [&] {
    std::string object, error;
    bool ok = compiler()(&lowered, &object, &error);
    runtime_check(ok, "codegen") << "kernel " << n.name << ": " << error;
    return object;
  });
}
// The result is not cached on disk.
KernelFn compile_printed(const loop::Nest& n) {
  if constexpr (!kCompiles) return nullptr;
  const loop::Nest* one[] = {&n};
  return compile_by(n, [&] { return printed_kernels(printed_target(), one)[0]; });
}

// ---- the table in memory

struct Entry {
  static constexpr pid_t kNobody = 0, kMade = -1;
  std::atomic<pid_t> maker{
      kNobody};  // the process that makes it, since a forked child does not have its parent's threads
  std::atomic<bool> wanted{false};  // the program has asked for it
  struct Named : Kernel {
    Sha256 digest;
  } kernel;
  std::string recorded;  // guarded by record_mutex
};
TableMutex nest_mutex;  // guards the members that the nest determines, which are set once

struct Shard {
  TableMutex mutex;
  std::unordered_map<std::string, std::unique_ptr<Entry>> entries;
};
std::array<Shard, 16>& shards() {
  static auto* s = new std::array<Shard, 16>;
  return *s;
}

TableMutex record_mutex;
std::string& record_folder() {
  static auto* s = new std::string;
  return *s;
}
std::string recording_to() {
  std::lock_guard lock(record_mutex);
  return record_folder();
}

// Loads the kernel from a folder; null if none has it. `object` receives what was read.
KernelFn load(const std::string& digest, const std::string& shown, std::string& object) {
  KernelFn fn = nullptr;
  auto from = [&](const std::string& folder, Owner owner, std::atomic<int64_t>& hits) {
    object = folder.empty() ? "" : read_entry(folder, Stored::kernel, digest, owner);
    if (object.empty() || !(fn = load_object(object))) return false;
    ++hits;
    log_cache("hit", folder + "/" + digest, shown);
    return true;
  };
  if (object = packaged_object(digest); !object.empty() && (fn = load_object(object))) {
    ++shipped_hits;
    return fn;
  }
  if (!from(shipped_folder(), Owner::package, shipped_hits)) from(cache_folder(), Owner::user, disk_hits);
  return fn;
}

// Makes the kernel. If `n` is null it is not compiled, and the result is false unless a folder has it.
bool make(Entry& e, const loop::Nest* n, const std::string& digest, const std::string& shown) {
  std::optional<profile::Scope> scope;
  if (!is_background_thread()) scope.emplace(profile::Category::compile, "kernel ", shown);
  std::string object;
  KernelFn fn = !prints() ? load(digest, shown, object) : n ? compile_printed(*n) : nullptr;
  if (!fn) {
    if (!n) return false;
    log_cache("miss", digest, shown);
    object = compile(*n);
    fn = load_object(object);
    internal_check(fn) << "the object of kernel " << shown << " could not be loaded";
    if (std::string folder = cache_folder(); !folder.empty())
      write_entry(folder, Stored::kernel, digest, object, Owner::user);
  }
  e.kernel.name = shown;
  e.kernel.random_id = hash_of(digest);
  if (std::string to = recording_to(); !to.empty()) {
    write_entry(to, Stored::kernel, digest, object, Owner::any);
    std::lock_guard lock(record_mutex);
    e.recorded = to;
  }
  e.kernel.fn = fn;
  return true;
}

// A lock that delays forks while a kernel is being made. In a child, locks that threads of the parent held may stay
// locked for ever; then another one is taken, or none.
std::unique_lock<TableMutex> while_making() {
  static auto* all = new std::array<TableMutex, 16>;
  for (auto& m : *all)
    if (std::unique_lock lock(m, std::try_to_lock); lock.owns_lock()) return lock;
  return {};
}

// Makes the kernel once: waits if another thread is making it. Tells whether it was present, was made now, or cannot
// be made without a nest.
enum class Outcome { cached, made, needs_nest };
Outcome make_once(Entry& e, const loop::Nest* n, const std::string& digest, const std::string& shown) {
  for (;;) {
    pid_t maker = e.maker.load(std::memory_order_acquire), own = getpid();
    if (maker == Entry::kMade) return Outcome::cached;
    if (maker == own) {
      e.maker.wait(maker, std::memory_order_acquire);
      continue;
    }
    if (!e.maker.compare_exchange_strong(maker, own)) continue;
    auto done = [&](pid_t state) {
      e.maker.store(state, std::memory_order_release);
      e.maker.notify_all();
    };
    auto busy = while_making();
    bool succeeded;
    try {
      succeeded = make(e, n, digest, shown);
    } catch (...) {
      done(Entry::kNobody);
      throw;
    }
    done(succeeded ? Entry::kMade : Entry::kNobody);
    return succeeded ? Outcome::made : Outcome::needs_nest;
  }
}

Entry* entry_of(const std::string& digest) {
  Shard& shard = shards()[hash_of(digest) % shards().size()];
  std::lock_guard lock(shard.mutex);
  auto& slot = shard.entries[digest];
  if (!slot) slot = std::make_unique<Entry>();
  return slot.get();
}

// A kernel by its digest and its name for users.
const Thing kernel_thing("kernel", [](Words words) {
  Sha256 digest;
  std::string text = text_of(words);
  if (text.size() < digest.size()) return;
  std::memcpy(digest.data(), text.data(), digest.size());
  std::string shown = text.substr(digest.size());
  if (std::all_of(shown.begin(), shown.end(), [](unsigned char c) { return std::isprint(c); }))
    find_kernel(digest, shown);
});
void want(Entry& e, const Sha256& digest, const std::string& shown) {
  if (is_background_thread() || e.wanted.load(std::memory_order_relaxed) || e.wanted.exchange(true)) return;
  wanted(kernel_thing, words_of(std::string(digest.begin(), digest.end()) + shown));
}

// The cache entry of a kernel that the program needs, and how it was obtained.
std::pair<Entry*, Outcome> obtained_entry(const Sha256& digest, const std::string& shown,
                                          const loop::Nest* n) {
  std::string name = hex(digest);
  Entry* e = entry_of(name);
  want(*e, digest, shown);
  Outcome outcome = make_once(*e, n, name, shown);
  if (outcome == Outcome::cached) ++memory_hits;
  return {e, outcome};
}

// Sets the members that follow from the nest.
void complete(Entry& e, const Sha256& digest, loop::Expr tasks, loop::Expr cost) {
  std::lock_guard lock(nest_mutex);
  if (e.kernel.tasks.get()) return;
  e.kernel.digest = digest;
  e.kernel.tasks = tasks;
  e.kernel.cost = cost;
}

}  // namespace

bool can_compile() {
  static const bool has =
      kCompiles && access((folder_of_this_library() + "/libfacula_llvm.so").c_str(), R_OK) == 0;
  return has;
}

const Kernel* kernel(const loop::Nest& n) {
  internal_check(!n.threads) << "nest " << n.name << " is one of a grid, which this machine has not";
  check_background();
  check_interrupt();  // a kernel that was begun is finished and stored: another call or process may need it
  Sha256 digest = name_of(n);
  auto [e, outcome] = obtained_entry(digest, n.name, &n);
  complete(*e, digest, n.tasks, n.cost);
  if (outcome == Outcome::cached) {
    std::string to = recording_to();
    auto is_new = [&] {
      std::lock_guard lock(record_mutex);
      return std::exchange(e->recorded, to) != to;
    };
    if (!to.empty() && is_new()) write_entry(to, Stored::kernel, hex(digest), compile(n), Owner::any);
  }
  return &e->kernel;
}

static const Kernel* find_or_compile(const loop::LazyNest& n) {
  auto* named = n.kernel();
  if (!named || records_kernels() || prints()) return kernel(n.nest());
  check_background();
  check_interrupt();
  auto [e, outcome] = obtained_entry(named->name, named->shown, nullptr);
  if (outcome == Outcome::needs_nest) return kernel(n.nest());
  complete(*e, named->name, named->tasks, named->cost);
  return &e->kernel;
}

const Kernel* kernel(const loop::LazyNest& n) {
  auto* k = n.compiled();
  if (!k || records_kernels()) n.set_compiled(k = find_or_compile(n));
  return k;
}

// True if it checks indices, as kernels do that gather rows.
static bool picks_by_indices(const loop::Nest& n) {
  bool checks = false;
  auto look = [&](loop::Expr x) { checks |= x->kind == loop::Kind::check && x->slot; };
  loop::each_statement(n.body, [&](const loop::Statement& s) {
    loop::each_expression(s, [&](loop::Expr x) { loop::visit(x, look); });
  });
  return checks;
}

Sha256 name_of(const loop::Nest& n) {
  const char* gathers = lane_limits().gathers && picks_by_indices(n) ? " gathers" : "";
  return sha256({loop::identity(n), "\n", target_features(n), gathers, "\n", FACULA_GENERATOR_VERSION});
}
const Sha256& name_of(const Kernel& k) { return static_cast<const Entry::Named&>(k).digest; }

const Kernel* find_kernel(const Sha256& digest, const std::string& shown) {
  check_background();
  auto [e, outcome] = obtained_entry(digest, shown, nullptr);
  return outcome == Outcome::needs_nest ? nullptr : &e->kernel;
}

bool records_kernels() { return !recording_to().empty(); }

CacheStats cache_stats() {
  return {memory_hits, shipped_hits, disk_hits, compiled, double(compile_nanoseconds) * 1e-9};
}

std::string cache_folder() { return user_folder(); }

void record_kernels_to(const std::string& folder) {
  runtime_check(!prints(), "codegen") << "printed kernels are not kept; unset FACULA_TARGET";
  runtime_check(folder.empty() || make_folders(folder), "codegen") << "cannot make the folder " << folder;
  finish_background();  // kernels that were begun belong to the former folder
  if (std::string before = recording_to(); !before.empty()) write_nest_index(before);
  std::lock_guard lock(record_mutex);
  record_folder() = folder;
}

}  // namespace facula::codegen
