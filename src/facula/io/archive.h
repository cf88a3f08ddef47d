// Zip archives of uncompressed records, as PyTorch writes checkpoints: the data of each record begin at a multiple of 64
// bytes, so that readers can map them. minizip handles the format.
#pragma once
#include <map>
#include <string>

#include "facula/io/file.h"

namespace facula::io {

class ArchiveWriter {
 public:
  ArchiveWriter(const char* op, const std::string& path);
  ~ArchiveWriter();
  void add(const std::string& name, const void* data, size_t bytes);
  void commit();  // renames the complete archive to its name

 private:
  void check(int code);
  NewFile file_;
  void* zip_ = nullptr;
};

// Every size is checked against the file's size before it is used, and all bytes against the checksum of their record.
// Raises RuntimeError "<path> is damaged: ...".
class ArchiveReader {
 public:
  ArchiveReader(const char* op, const std::string& path);
  ~ArchiveReader();
  bool has(const std::string& name) const { return records_.count(name); }
  const auto& records() const { return records_; }
  uint64_t size_of(const std::string& name) const;  // of an existing record
  // Reads size_of() bytes. All records together may not be larger than the file.
  void read(const std::string& name, void* to);
  std::string read(const std::string& name);

 private:
  struct Record {
    uint64_t at, number, bytes;
    uint32_t checksum;
  };
  void check(int code, const std::string& what);
  uint64_t begin_of(const Record& r, const std::string& what);  // the position of its data in the file
  const char* op_;
  std::string path_;
  OldFile file_;
  uint64_t left_;
  void* zip_ = nullptr;
  std::map<std::string, Record> records_;
};

}  // namespace facula::io
