#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "facula/base/fork.h"
#include "facula/base/hash.h"
#include "facula/base/interrupt.h"
#include "facula/base/log.h"
#include "facula/base/sha256.h"
#include "facula/codegen/ahead.h"
#include "facula/codegen/compiler.h"
#include "facula/codegen/kernel.h"
#include "facula/codegen/object.h"
#include "facula/codegen/store.h"
#include "facula/profile/profile.h"

namespace facula::codegen {
namespace {

void log_cache(const char* what, const std::string& where, const std::string& name) {
  if (log_on(Log::cache))
    log_line(Log::cache, std::string(what) + " " + where + (name.empty() ? "" : " (" + name + ")"));
}

// ---- the compiler

std::string compiler_path() { return folder_of_this_library() + "/libfacula_llvm.so"; }

using Compile = bool (*)(const loop::Nest*, std::string*, std::string*);

Compile compiler() {
  static const Compile f = [] {
    std::string path = compiler_path();
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    runtime_check(library, "codegen") << "the code generator could not be loaded: " << dlerror()
                                      << hint("libfacula_llvm.so belongs beside libfacula.so");
    void* symbol = dlsym(library, "facula_llvm_compile");
    runtime_check(symbol, "codegen") << path << " has no facula_llvm_compile";
    return reinterpret_cast<Compile>(symbol);
  }();
  return f;
}

std::atomic<int64_t> memory_hits{0}, shipped_hits{0}, disk_hits{0}, compiled{0}, compile_nanoseconds{0};

std::string compile(const loop::Nest& n) {
  std::optional<profile::Scope> scope;  // threads beside the program are on no line of it
  if (!is_ahead()) scope.emplace(profile::Category::compile, "compile ", n.name);
  auto start = std::chrono::steady_clock::now();
  std::string object, error;
  bool ok = compiler()(&n, &object, &error);
  runtime_check(ok, "codegen") << "kernel " << n.name << ": " << error;
  auto spent =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start).count();
  ++compiled;
  compile_nanoseconds += spent;
  if (log_on(Log::kernels))
    log_line(Log::kernels,
             n.name + " compiled in " + std::to_string(spent / 1000) + " us\n" + loop::print(n));
  return object;
}

// ---- the table in memory

struct Entry {
  static constexpr pid_t kNobody = 0, kMade = -1;
  std::atomic<pid_t> maker{
      kNobody};  // the process that makes it: a forked child has no threads of its parent
  Kernel kernel;
  std::string recorded;  // guarded by record_mutex
};
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

// What the kernel is, without the names that people gave.
std::string identity(const loop::Nest& n) {
  loop::Nest bare = n;
  bare.name.clear();
  for (size_t k = 0; k < bare.buffers.size(); ++k) bare.buffers[k].name.clear();
  return loop::print(bare);
}

void make(Entry& e, const loop::Nest& n, const std::string& digest) {
  std::optional<profile::Scope> scope;
  if (!is_ahead()) scope.emplace(profile::Category::compile, "kernel ", n.name);
  std::string shipped = shipped_folder(), object = read_object(shipped, digest, Owner::package);
  KernelFn fn = nullptr;
  if (!object.empty() && (fn = load_object(object))) {
    ++shipped_hits;
    log_cache("hit", shipped + "/" + digest, n.name);
  } else {
    std::string folder = cache_folder();
    object = folder.empty() ? "" : read_object(folder, digest, Owner::user);
    if (!object.empty() && (fn = load_object(object))) {
      ++disk_hits;
      log_cache("hit", folder + "/" + digest, n.name);
    } else {
      log_cache("miss", digest, n.name);
      object = compile(n);
      fn = load_object(object);
      internal_check(fn) << "the object of kernel " << n.name << " could not be loaded";
      if (!folder.empty()) write_object(folder, digest, object, Owner::user);
    }
  }
  e.kernel.tasks = n.tasks;
  e.kernel.cost = n.cost;
  e.kernel.name = n.name;
  e.kernel.random_id = hash_of(digest);
  if (std::string to = recording_to(); !to.empty()) {
    write_object(to, digest, object, Owner::any);
    std::lock_guard lock(record_mutex);
    e.recorded = to;
  }
  e.kernel.fn = fn;
}

// What a fork waits for while a kernel is being made. In a child whose parent's threads still held them some stay
// locked for ever: then another one, or none.
std::unique_lock<TableMutex> while_making() {
  static auto* all = new std::array<TableMutex, 16>;
  for (auto& m : *all)
    if (std::unique_lock lock(m, std::try_to_lock); lock.owns_lock()) return lock;
  return {};
}

// Makes the kernel, or waits for the thread that does: each is made once.
bool make_once(Entry& e, const loop::Nest& n, const std::string& digest) {
  for (;;) {
    pid_t maker = e.maker.load(std::memory_order_acquire), own = getpid();
    if (maker == Entry::kMade) return false;
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
    try {
      make(e, n, digest);
    } catch (...) {
      done(Entry::kNobody);
      throw;
    }
    done(Entry::kMade);
    return true;
  }
}

}  // namespace

const Kernel* kernel(const loop::Nest& n) {
  check_ahead();
  check_interrupt();  // what is being made is finished and stored: another call, or process, may want it
  std::string name = hex(sha256({identity(n), "\n", target_features(), "\n", FACULA_GENERATOR_VERSION}));
  Entry* e;
  {
    Shard& shard = shards()[hash_of(name) % shards().size()];
    std::lock_guard lock(shard.mutex);
    auto& slot = shard.entries[name];
    if (!slot) slot = std::make_unique<Entry>();
    e = slot.get();
  }
  if (!make_once(*e, n, name)) {
    ++memory_hits;
    std::string to = recording_to();
    auto is_new = [&] {
      std::lock_guard lock(record_mutex);
      return std::exchange(e->recorded, to) != to;
    };
    if (!to.empty() && is_new()) write_object(to, name, compile(n), Owner::any);
  }
  return &e->kernel;
}

CacheStats cache_stats() {
  return {memory_hits, shipped_hits, disk_hits, compiled, double(compile_nanoseconds) * 1e-9};
}

std::string cache_folder() { return user_folder(); }

void record_kernels_to(const std::string& folder) {
  runtime_check(folder.empty() || make_folders(folder), "codegen") << "cannot make the folder " << folder;
  finish_ahead();  // what was begun belongs where it would have gone
  std::lock_guard lock(record_mutex);
  record_folder() = folder;
}

}  // namespace facula::codegen
