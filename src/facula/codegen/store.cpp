#include "facula/codegen/store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>

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

std::string file_name(const std::string& name) { return name + ".o"; }
// One of 16384 places.
std::string place_of(const std::string& name) {
  std::string digits = name.substr(0, 4);
  digits[0] = "0123012301230123"[digits[0] <= '9' ? digits[0] - '0' : digits[0] - 'a' + 10];
  return digits + ".plan";
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

std::string read_object(const std::string& folder, const std::string& name, Owner owner) {
  return read_file(folder, file_name(name), name, owner);
}
void write_object(const std::string& folder, const std::string& name, const std::string& object,
                  Owner owner) {
  write_file(folder, file_name(name), name, object, owner);
}
std::string read_placed(const std::string& folder, const std::string& name, Owner owner) {
  return read_file(folder, place_of(name), name, owner);
}
void write_placed(const std::string& folder, const std::string& name, const std::string& bytes, Owner owner) {
  write_file(folder, place_of(name), name, bytes, owner);
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
