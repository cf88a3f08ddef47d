#include "facula/io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "facula/base/error.h"

namespace facula::io {

NewFile::NewFile(const char* op, std::string path) : op_(op), path_(std::move(path)) {
  static std::atomic<unsigned> count{0};
  size_t name = path_.rfind('/') + 1;  // npos + 1 is 0
  temporary_ = path_.substr(0, name) + "." + path_.substr(name) + "." + std::to_string(getpid()) + "-" +
               std::to_string(count++) + ".tmp";
  int fd = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) {
    int error = errno;
    temporary_.clear();
    fail(error);
  }
  stream_ = ::fdopen(fd, "wb");
  if (!stream_) {
    int error = errno;
    ::close(fd);
    ::unlink(temporary_.c_str());
    temporary_.clear();
    fail(error);
  }
}
NewFile::~NewFile() {
  if (stream_) std::fclose(stream_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}
void NewFile::fail(int error) const {
  struct stat there;
  bool existed = ::stat(path_.c_str(), &there) == 0;
  user_check(false, op_) << "cannot write " << path_ << ": " << std::strerror(error)
                         << (existed ? "; the file that is there stays as it was" : "");
  __builtin_unreachable();
}
void NewFile::write(const void* data, size_t bytes) {
  if (std::fwrite(data, 1, bytes, stream_) != bytes) fail(errno);
}
void NewFile::commit() {
  if (std::fflush(stream_) || ::fsync(fileno(stream_))) fail(errno);
  if (std::fclose(std::exchange(stream_, nullptr))) fail(errno);
  if (std::rename(temporary_.c_str(), path_.c_str())) fail(errno);
  temporary_.clear();
}

OldFile::OldFile(const char* op, const std::string& path)
    : op_(op), path_(path), stream_(std::fopen(path.c_str(), "rbe")) {
  user_check(stream_, op) << "cannot open " << path << ": " << std::strerror(errno);
  struct stat s;
  bool plain = ::fstat(fileno(stream_), &s) == 0 && S_ISREG(s.st_mode);
  if (!plain) std::fclose(std::exchange(stream_, nullptr));
  user_check(plain, op) << path << " is no plain file";
  size_ = uint64_t(s.st_size);
}
OldFile::~OldFile() {
  if (stream_) std::fclose(stream_);
}
void OldFile::raise_incomplete(int error) const {
  user_check(false, op_) << path_
                         << (error ? " cannot be read: " + std::string(std::strerror(error))
                                   : " is damaged: it ends too early");
}
void OldFile::read(void* to, size_t bytes) {
  if (std::fread(to, 1, bytes, stream_) != bytes) raise_incomplete(std::ferror(stream_) ? errno : 0);
}
void OldFile::read_at(uint64_t position, void* to, size_t bytes) const {
  for (size_t done = 0; done < bytes;) {
    ssize_t n =
        ::pread(fileno(stream_), static_cast<char*>(to) + done, bytes - done, off_t(position + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) raise_incomplete(n < 0 ? errno : 0);
    done += size_t(n);
  }
}

}  // namespace facula::io
