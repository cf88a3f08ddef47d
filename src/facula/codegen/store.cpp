#include "facula/codegen/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "facula/base/fork.h"
#include "facula/base/library.h"
#include "facula/base/log.h"
#include "facula/base/settings.h"
#include "facula/base/sha256.h"
#include "facula/codegen/kernel.h"
#include "facula/codegen/object.h"

namespace facula::codegen {
namespace {

struct Header {
  char magic[8];
  char name[64];
  uint64_t length;
  Sha256 digest;
};
static_assert(sizeof(Header) == kObjectHeader);
constexpr char kMagic[8] = {'F', 'A', 'C', 'U', 'L', 'A', 'K', '2'};

class File {
 public:
  explicit File(int fd = -1) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(File&& o) noexcept {
    std::swap(fd_, o.fd_);
    return *this;
  }
  explicit operator bool() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
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

uid_t owner_of_package() {
  static const uid_t owner = [] {
    struct stat s;
    return stat(path_of_this_library().c_str(), &s) ? uid_t(0) : s.st_uid;
  }();
  return owner;
}

bool refused(const std::string& path, const char* why) {
  if (log_on(Log::cache)) log_line(Log::cache, "not trusted: " + path + " " + why);
  return false;
}
bool is_trusted_owner(uid_t owner) { return owner == 0 || owner == geteuid() || owner == owner_of_package(); }
// True for a folder or file that can hold code: only its owner can write to it.
bool holds_code(const struct stat& s, Owner owner, const std::string& path) {
  if (owner == Owner::user ? s.st_uid != geteuid() : !is_trusted_owner(s.st_uid))
    return refused(path, "belongs to another user");
  if (s.st_mode & (S_IWGRP | S_IWOTH)) return refused(path, "can be written by others");
  return true;
}
// True for a parent folder whose writers cannot replace the folder inside. Root's groups are the machine's
// administrators (/usr/local); on many systems each user has a private group.
bool is_parent(const struct stat& s, const std::string& path) {
  if (!is_trusted_owner(s.st_uid)) return refused(path, "belongs to another user");
  if (s.st_mode & S_ISVTX || !(s.st_mode & (S_IWGRP | S_IWOTH))) return true;
  bool own_group = s.st_uid == 0 || (s.st_uid == geteuid() && s.st_gid == getegid());
  return (!(s.st_mode & S_IWOTH) && own_group) || refused(path, "can be written by others");
}

// The folder, opened from the root downwards; -1 if it is missing or not trusted.
int open_folder(const std::string& path, Owner owner) {
  char absolute[PATH_MAX];
  if (!realpath(path.c_str(), absolute)) return -1;
  constexpr int kFolder = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  File at(open("/", kFolder));
  std::string_view rest(absolute);
  for (size_t from = 1; at;) {
    struct stat s;
    bool last = from >= rest.size();
    std::string here(rest.substr(0, last ? rest.size() : from));
    if (fstat(at.fd(), &s) || !(last ? holds_code(s, owner, here) : is_parent(s, here))) return -1;
    if (last) return at.release();
    size_t end = std::min(rest.find('/', from), rest.size());
    at = File(openat(at.fd(), std::string(rest.substr(from, end - from)).c_str(), kFolder));
    from = end + 1;
  }
  return -1;
}

// Folders stay open: later changes of their parents do not matter. The mutex guards `folders`.
struct Opened {
  TableMutex mutex;
  std::unordered_map<std::string, int> folders;  // by path and owner
};
Opened& opened() {
  static auto* o = new Opened;
  return *o;
}
bool stays(int folder, Owner owner, const std::string& path) {
  struct stat s;
  return folder >= 0 && !fstat(folder, &s) && s.st_nlink && holds_code(s, owner, path);
}
std::string key_of(const std::string& path, Owner owner) { return (owner == Owner::user ? 'u' : 'p') + path; }
bool is_open(const std::string& path, Owner owner) {
  std::lock_guard lock(opened().mutex);
  auto it = opened().folders.find(key_of(path, owner));
  return it != opened().folders.end() && stays(it->second, owner, path);
}
int folder_at(const std::string& path, Owner owner) {
  std::lock_guard lock(opened().mutex);
  auto [it, is_new] = opened().folders.try_emplace(key_of(path, owner), -1);
  if (!stays(it->second, owner, path)) {
    if (it->second >= 0) close(it->second);
    it->second = open_folder(path, owner);
  }
  return it->second >= 0 ? fcntl(it->second, F_DUPFD_CLOEXEC, 0) : -1;
}

Sha256 digest_of(std::string_view name, std::string_view object) { return sha256({name, object}); }

constexpr const char* kSuffix[] = {".o", ".o", ".plan", ".graph", ".sequence"};  // by kind
std::string file_name(Stored kind, const std::string& name) { return name + kSuffix[size_t(kind)]; }

constexpr time_t kDay = 24 * 60 * 60;
// Notes once a day that an entry is in use, for evict().
void note_use(const File& f, const struct stat& s) {
  if (time(nullptr) - s.st_mtime > kDay) futimens(f.fd(), nullptr);
}

std::string read_file(const std::string& folder, const std::string& path, const std::string& name,
                      Owner owner) {
  File at(folder_at(folder, owner));
  if (!at) return "";
  // O_NONBLOCK prevents waiting for the other end of a pipe.
  constexpr int kPlain = O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC;
  File f(openat(at.fd(), path.c_str(), kPlain));
  struct stat s;
  if (!f || fstat(f.fd(), &s) || !S_ISREG(s.st_mode) || !holds_code(s, owner, folder + "/" + path) ||
      uint64_t(s.st_size) > sizeof(Header) + kLargestObject)
    return "";
  if (owner == Owner::user) note_use(f, s);
  std::string file(size_t(s.st_size), '\0');
  return f.read(file.data(), file.size()) ? std::string(object_in(file, name)) : "";
}

void write_file(const std::string& folder, const std::string& path, const std::string& name,
                const std::string& object, Owner owner) {
  static std::atomic<int> counter{0};
  File at(owner == Owner::any ? open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)
                              : folder_at(folder, owner));
  if (!at) return;
  std::string beside = path + "." + std::to_string(getpid()) + "." + std::to_string(++counter);
  Header h;
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  std::memcpy(h.name, name.data(), sizeof h.name);
  h.length = object.size();
  h.digest = digest_of(name, object);
  bool complete = false;
  {
    File f(openat(at.fd(), beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!f) return;
    complete = f.write(&h, sizeof h) && f.write(object.data(), object.size());
  }
  if (!complete || renameat(at.fd(), beside.c_str(), at.fd(), path.c_str()))
    unlinkat(at.fd(), beside.c_str(), 0);
  else if (log_on(Log::cache)) log_line(Log::cache, "stored " + folder + "/" + path);
}

}  // namespace

std::string read_entry(const std::string& folder, Stored kind, const std::string& name, Owner owner) {
  return read_file(folder, file_name(kind, name), name, owner);
}

// ---- bounds

namespace {

struct Found {
  std::string file;
  uint64_t bytes;  // on disk
  time_t used;
};

bool is_entry(std::string_view file) {
  return std::ranges::any_of(kSuffix, [&](const char* suffix) { return file.ends_with(suffix); });
}

// The entries of a folder; files that a process began to write and did not finish are removed.
std::vector<Found> entries_in(int folder) {
  std::vector<Found> all;
  DIR* listed = fdopendir(openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!listed) return all;
  while (auto* item = readdir(listed)) {
    struct stat s;
    std::string file = item->d_name;
    if (fstatat(folder, file.c_str(), &s, AT_SYMLINK_NOFOLLOW) || !S_ISREG(s.st_mode)) continue;
    time_t used = std::max(s.st_mtime, s.st_atime);
    if (is_entry(file)) all.push_back({file, uint64_t(s.st_blocks) * 512, used});
    else if (size_t name = file.find('.'); name == sizeof Header::name && time(nullptr) - used > kDay)
      unlinkat(folder, file.c_str(), 0);
  }
  closedir(listed);
  return all;
}

// Looks at the folder once in so many writes; processes that write little do it by chance.
constexpr size_t kWrites = 256;
std::atomic<size_t> written{0};
void note_write(const std::string& folder) {
  if (++written % kWrites == 0) evict(folder);
}
void evict_at_exit(const std::string& folder) {
  auto microseconds = size_t(std::chrono::steady_clock::now().time_since_epoch().count()) / 1000;
  if (microseconds % kWrites < written % kWrites) evict(folder);
}

// Entries that are written when the process ends.
class Waiting {
 public:
  static Waiting& all() {
    static auto& w = *new Waiting;
    return w;
  }
  void add(std::string folder, Stored kind, std::string name, std::string contents) {
    std::lock_guard lock(mutex_);
    if (owner_ != getpid()) {
      items_.clear();
      owner_ = getpid();
      std::atexit([] { all().write(); });
    }
    items_.push_back({std::move(folder), kind, std::move(name), std::move(contents)});
  }

 private:
  struct Item {
    std::string folder;
    Stored kind;
    std::string name, contents;
  };
  void write() {
    std::vector<Item> items;
    {
      std::lock_guard lock(mutex_);
      if (owner_ != getpid()) return;
      items.swap(items_);
    }
    for (auto& i : items) write_entry(i.folder, i.kind, i.name, i.contents, Owner::user);
    if (!items.empty()) evict_at_exit(items[0].folder);
  }
  TableMutex mutex_;
  std::vector<Item> items_;
  pid_t owner_ = 0;
};

}  // namespace

void evict(const std::string& folder, const StoreLimits& limits) {
  File at(folder_at(folder, Owner::user));
  if (!at) return;
  auto all = entries_in(at.fd());
  uint64_t bytes = 0;
  for (auto& e : all) bytes += e.bytes;
  if (bytes <= limits.bytes && all.size() <= limits.entries) return;
  std::ranges::sort(all, {}, &Found::used);
  size_t left = all.size();
  for (auto& e : all) {
    if (bytes <= limits.bytes / 4 * 3 && left <= limits.entries / 4 * 3) break;
    unlinkat(at.fd(), e.file.c_str(), 0);
    bytes -= e.bytes;
    --left;
  }
  if (log_on(Log::cache))
    log_line(Log::cache, "removed " + std::to_string(all.size() - left) + " entries of " + folder);
}

void write_entry(const std::string& folder, Stored kind, const std::string& name, const std::string& contents,
                 Owner owner) {
  write_file(folder, file_name(kind, name), name, contents, owner);
  if (owner == Owner::user) note_write(folder);
}

void write_at_exit(Stored kind, std::string name, std::string contents) {
  if (std::string folder = user_folder(); !folder.empty())
    Waiting::all().add(std::move(folder), kind, std::move(name), std::move(contents));
}

std::string_view object_in(std::string_view file, std::string_view name) {
  Header h;
  if (file.size() < sizeof h) return "";
  std::memcpy(&h, file.data(), sizeof h);
  file.remove_prefix(sizeof h);
  bool valid = !std::memcmp(h.magic, kMagic, sizeof kMagic) &&
               std::string_view(h.name, sizeof h.name) == name && h.length == file.size() &&
               h.digest == digest_of(name, file);
  return valid ? file : "";
}

bool make_folders(const std::string& path) {
  for (size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1))
    if (mkdir(path.substr(0, at).c_str(), 0700) && errno != EEXIST && errno != EROFS && errno != EACCES)
      return false;
  return mkdir(path.c_str(), 0700) == 0 || errno == EEXIST;
}

namespace {
std::string user_folder_name() {
  if (!settings().cache_dir.empty()) return settings().cache_dir;
  if (const char* x = std::getenv("XDG_CACHE_HOME"); x && *x == '/') return std::string(x) + "/facula";
  if (const char* home = std::getenv("HOME"); home && *home == '/')
    return std::string(home) + "/.cache/facula";
  return "";
}
}  // namespace

std::string user_folder() {
  std::string path = user_folder_name();
  if (is_open(path, Owner::user)) return path;
  struct stat s;
  // A symbolic link is not accepted as the user's folder, and neither is a file.
  if (path.empty() || !make_folders(path) || lstat(path.c_str(), &s) || !S_ISDIR(s.st_mode)) return "";
  return File(folder_at(path, Owner::user)) ? path : "";
}

std::string shipped_folder() {
  return settings().shipped_cache.empty() ? folder_of_this_library() + "/kernels" : settings().shipped_cache;
}

}  // namespace facula::codegen
