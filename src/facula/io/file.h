// Files that are written and read completely, or raise one clear error.
#pragma once
#include <cstdint>
#include <cstdio>
#include <string>

namespace facula::io {

// A file that is written under a temporary name, which commit() renames to its own. Until then, and after an error, the
// previous file remains. RuntimeErrors name `op` and the path.
class NewFile {
 public:
  NewFile(const char* op, std::string path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  FILE* stream() const { return stream_; }
  void write(const void* data, size_t bytes);
  [[noreturn]] void fail(int error) const;  // an errno
  void commit();

 private:
  const char* op_;
  std::string path_, temporary_;
  FILE* stream_ = nullptr;
};

// A file opened for reading, and its size.
class OldFile {
 public:
  OldFile(const char* op, const std::string& path);
  ~OldFile();
  OldFile(const OldFile&) = delete;
  FILE* stream() const { return stream_; }
  uint64_t size() const { return size_; }
  void read(void* to, size_t bytes);  // exactly that many; RuntimeError at the end of the file
  void read_at(uint64_t position, void* to, size_t bytes) const;  // likewise; threads may call it together

 private:
  void raise_incomplete(int error) const;  // an errno, 0 for the end of the file
  const char* op_;
  std::string path_;
  FILE* stream_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace facula::io
