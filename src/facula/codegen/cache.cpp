#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "facula/base/fork.h"
#include "facula/base/hash.h"
#include "facula/base/interrupt.h"
#include "facula/base/log.h"
#include "facula/base/settings.h"
#include "facula/codegen/compiler.h"
#include "facula/codegen/kernel.h"
#include "facula/codegen/object.h"
#include "facula/profile/profile.h"

namespace facula::codegen {
namespace {

// ---- files: a header, then the object

struct Header {
  char magic[8];
  char digest[32];
  uint64_t length, checksum;
};
constexpr char kMagic[8] = {'F', 'A', 'C', 'U', 'L', 'A', 'K', '1'};

class File {
 public:
  File(const std::string& path, int flags, mode_t mode = 0)
      : fd_(open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, mode)) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  explicit operator bool() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  bool read(void* to, size_t n) {
    for (auto* p = static_cast<char*>(to); n;) {
      ssize_t k = ::read(fd_, p, n);
      if (k < 0 && errno == EINTR) continue;
      if (k <= 0) return false;
      p += k;
      n -= size_t(k);
    }
    return true;
  }
  bool write(const void* from, size_t n) {
    for (auto* p = static_cast<const char*>(from); n;) {
      ssize_t k = ::write(fd_, p, n);
      if (k < 0 && errno == EINTR) continue;
      if (k <= 0) return false;
      p += k;
      n -= size_t(k);
    }
    return true;
  }

 private:
  int fd_;
};

std::string path_of(const std::string& folder, const std::string& digest) {
  return folder + "/" + digest + ".o";
}

// Writable by nobody but its owner, who is us (or, of the shipped folder, whoever installed it).
bool is_trusted(const struct stat& s, bool ours) {
  return (!ours || s.st_uid == geteuid()) && !(s.st_mode & (S_IWGRP | S_IWOTH));
}

void log_cache(const char* what, const std::string& where, const std::string& name) {
  if (log_on(Log::cache))
    log_line(Log::cache, std::string(what) + " " + where + (name.empty() ? "" : " (" + name + ")"));
}

// The object of that name, or "" if there is none that can be trusted and is whole.
std::string read_object(const std::string& folder, const std::string& digest, bool ours) {
  File f(path_of(folder, digest), O_RDONLY | O_NONBLOCK);  // opening a pipe would wait for its other end
  struct stat s;
  if (!f || fstat(f.fd(), &s) || !S_ISREG(s.st_mode) || !is_trusted(s, ours) ||
      uint64_t(s.st_size) > sizeof(Header) + kLargestObject)
    return "";
  std::string file(size_t(s.st_size), '\0');
  return f.read(file.data(), file.size()) ? std::string(object_in(file, digest)) : "";
}

void write_object(const std::string& folder, const std::string& digest, const std::string& object) {
  static std::atomic<int> counter{0};
  std::string path = path_of(folder, digest),
              beside = path + "." + std::to_string(getpid()) + "." + std::to_string(++counter);
  Header h;
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  std::memcpy(h.digest, digest.data(), 32);
  h.length = object.size();
  h.checksum = hash_of(object);
  bool whole = false;
  {
    File f(beside, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (!f) return;
    whole = f.write(&h, sizeof h) && f.write(object.data(), object.size());
  }
  if (whole && !rename(beside.c_str(), path.c_str())) log_cache("stored", path, "");
  else unlink(beside.c_str());
}

// ---- folders

std::string user_folder_name() {
  if (!settings().cache_dir.empty()) return settings().cache_dir;
  if (const char* x = std::getenv("XDG_CACHE_HOME"); x && *x == '/') return std::string(x) + "/facula";
  if (const char* home = std::getenv("HOME"); home && *home == '/')
    return std::string(home) + "/.cache/facula";
  return "";
}

bool make_folders(const std::string& path) {
  for (size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1))
    if (mkdir(path.substr(0, at).c_str(), 0700) && errno != EEXIST && errno != EROFS && errno != EACCES)
      return false;
  return mkdir(path.c_str(), 0700) == 0 || errno == EEXIST;
}

const std::string& folder_of_this_library() {
  static const std::string folder = [] {
    Dl_info info;
    std::string path =
        dladdr(reinterpret_cast<const void*>(&vector_lanes), &info) && info.dli_fname ? info.dli_fname : "";
    if (path.find('/') == std::string::npos) path = "/proc/self/exe";  // a program found through PATH
    char whole[PATH_MAX];
    if (realpath(path.c_str(), whole)) path = whole;
    return path.substr(0, path.rfind('/'));
  }();
  return folder;
}

std::string shipped_folder() {
  return settings().shipped_cache.empty() ? folder_of_this_library() + "/kernels" : settings().shipped_cache;
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
  profile::Scope scope(profile::Category::compile, "compile ", n.name);
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
  TableMutex mutex;  // held while the kernel is made, so that each is made once
  Kernel kernel;
  std::string recorded;
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
  profile::Scope scope(profile::Category::compile, "kernel ", n.name);
  std::string shipped = shipped_folder(), object = read_object(shipped, digest, false);
  KernelFn fn = nullptr;
  if (!object.empty() && (fn = load_object(object))) {
    ++shipped_hits;
    log_cache("hit", path_of(shipped, digest), n.name);
  } else {
    std::string folder = cache_folder();
    object = folder.empty() ? "" : read_object(folder, digest, true);
    if (!object.empty() && (fn = load_object(object))) {
      ++disk_hits;
      log_cache("hit", path_of(folder, digest), n.name);
    } else {
      log_cache("miss", digest, n.name);
      object = compile(n);
      fn = load_object(object);
      internal_check(fn) << "the object of kernel " << n.name << " could not be loaded";
      if (!folder.empty()) write_object(folder, digest, object);
    }
  }
  e.kernel.tasks = n.tasks;
  e.kernel.cost = n.cost;
  e.kernel.name = n.name;
  e.kernel.random_id = hash_of(digest);
  if (std::string to = recording_to(); !to.empty()) {
    write_object(to, digest, object);
    e.recorded = to;
  }
  e.kernel.fn = fn;  // last: the entry counts as made from here on, whatever ran out of memory before
}

}  // namespace

std::string_view object_in(std::string_view file, std::string_view digest) {
  Header h;
  if (file.size() < sizeof h) return "";
  std::memcpy(&h, file.data(), sizeof h);
  file.remove_prefix(sizeof h);
  bool whole = !std::memcmp(h.magic, kMagic, sizeof kMagic) && std::string_view(h.digest, 32) == digest &&
               h.length == file.size() && hash_of(file) == h.checksum;
  return whole ? file : "";
}

const Kernel* kernel(const loop::Nest& n) {
  check_interrupt();  // what is being made is finished and stored: another call, or process, may want it
  std::string name = digest(identity(n) + "\n" + target_features() + "\n" + FACULA_GENERATOR_VERSION);
  Entry* e;
  {
    Shard& shard = shards()[hash_of(name) % shards().size()];
    std::lock_guard lock(shard.mutex);
    auto& slot = shard.entries[name];
    if (!slot) slot = std::make_unique<Entry>();
    e = slot.get();
  }
  std::lock_guard lock(e->mutex);
  if (!e->kernel.fn) {
    make(*e, n, name);
  } else {
    ++memory_hits;
    if (std::string to = recording_to(); !to.empty() && e->recorded != to) {
      write_object(to, name, compile(n));
      e->recorded = to;
    }
  }
  return &e->kernel;
}

CacheStats cache_stats() {
  return {memory_hits, shipped_hits, disk_hits, compiled, double(compile_nanoseconds) * 1e-9};
}

std::string cache_folder() {
  std::string path = user_folder_name();
  struct stat s;
  if (path.empty() || !make_folders(path) || lstat(path.c_str(), &s) || !S_ISDIR(s.st_mode) ||
      !is_trusted(s, true))
    return "";
  return path;
}

void record_kernels_to(const std::string& folder) {
  runtime_check(folder.empty() || make_folders(folder), "codegen") << "cannot make the folder " << folder;
  std::lock_guard lock(record_mutex);
  record_folder() = folder;
}

}  // namespace facula::codegen
