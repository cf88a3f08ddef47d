// Files as Facula reads and writes them: whole, or with one clear error.
#pragma once
#include <cstdint>
#include <cstdio>
#include <string>

namespace facula::io {

// A file that appears under its name, whole, with commit(): it is written beside and renamed. Until then, and
// after an error, what was there before stays. Errors name `op` and the path (RuntimeError).
class NewFile {
 public:
  NewFile(const char* op, std::string path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  FILE* stream() const { return stream_; }
  void write(const void* data, size_t bytes);
  [[noreturn]] void fail(int error) const;  // of errno
  void commit();

 private:
  const char* op_;
  std::string path_, beside_;
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
  void read(void* to, size_t bytes);  // exactly so many; RuntimeError if it ends before

 private:
  const char* op_;
  std::string path_;
  FILE* stream_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace facula::io
