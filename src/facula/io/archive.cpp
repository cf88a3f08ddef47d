#include "facula/io/archive.h"

#include <minizip/unzip.h>
#include <minizip/zip.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "facula/base/error.h"
#include "facula/base/parallel.h"

namespace facula::io {

namespace {
constexpr uint64_t kAlign = 64, kHeader = 30, kZip64Extra = 20, kChunk = 1 << 30;

// minizip's file functions, on an open stream.
voidpf opened(voidpf stream, const void*, int) { return stream; }
uLong read_some(voidpf, voidpf s, void* to, uLong n) {
  return uLong(std::fread(to, 1, n, static_cast<FILE*>(s)));
}
uLong write_some(voidpf, voidpf s, const void* from, uLong n) {
  return uLong(std::fwrite(from, 1, n, static_cast<FILE*>(s)));
}
ZPOS64_T tell(voidpf, voidpf s) { return ZPOS64_T(ftello(static_cast<FILE*>(s))); }
long seek(voidpf, voidpf s, ZPOS64_T to, int origin) {
  int from = origin == ZLIB_FILEFUNC_SEEK_SET   ? SEEK_SET
             : origin == ZLIB_FILEFUNC_SEEK_CUR ? SEEK_CUR
                                                : SEEK_END;
  return fseeko(static_cast<FILE*>(s), off_t(to), from);
}
int left_open(voidpf, voidpf) { return 0; }
int error_of(voidpf, voidpf s) { return std::ferror(static_cast<FILE*>(s)); }
zlib_filefunc64_def functions(FILE* stream) {
  return {opened, read_some, write_some, tell, seek, left_open, error_of, stream};
}
}  // namespace

ArchiveWriter::ArchiveWriter(const char* op, const std::string& path) : file_(op, path) {
  auto f = functions(file_.stream());
  zip_ = zipOpen2_64("", APPEND_STATUS_CREATE, nullptr, &f);
  if (!zip_) file_.fail(errno);
}
ArchiveWriter::~ArchiveWriter() {
  if (zip_) zipClose(zip_, nullptr);
}
void ArchiveWriter::check(int code) {
  if (code != ZIP_OK) file_.fail(code == ZIP_ERRNO && errno ? errno : EIO);
}

void ArchiveWriter::add(const std::string& name, const void* data, size_t bytes) {
  bool large = bytes >= 0xFFFFFFFFull;
  uint64_t start = uint64_t(ftello(file_.stream())) + kHeader + name.size() + (large ? kZip64Extra : 0) + 4;
  unsigned char extra[4 + kAlign] = {0x46, 0x42};  // "FB" and the padding with Z, as PyTorch writes them
  size_t padding = (kAlign - start % kAlign) % kAlign;
  extra[2] = static_cast<unsigned char>(padding);
  std::memset(extra + 4, 'Z', padding);
  zip_fileinfo info{};
  info.dosDate = 1 << 21 | 1 << 16;  // 1980-01-01: files with equal contents are equal
  errno = 0;
  check(zipOpenNewFileInZip4_64(zip_, name.c_str(), &info, extra, uInt(4 + padding), nullptr, 0, nullptr, 0,
                                0, 0, -MAX_WBITS, DEF_MEM_LEVEL, Z_DEFAULT_STRATEGY, nullptr, 0, 0, 0,
                                large));
  for (size_t at = 0; at < bytes; at += kChunk)
    check(zipWriteInFileInZip(zip_, static_cast<const char*>(data) + at,
                              unsigned(std::min<uint64_t>(kChunk, bytes - at))));
  check(zipCloseFileInZip(zip_));
}
void ArchiveWriter::commit() {
  errno = 0;
  check(zipClose(std::exchange(zip_, nullptr), nullptr));
  file_.commit();
}

ArchiveReader::ArchiveReader(const char* op, const std::string& path)
    : op_(op), path_(path), file_(op, path), left_(file_.size()) {
  uint64_t size = file_.size();
  auto f = functions(file_.stream());
  zip_ = unzOpen2_64(path.c_str(), &f);
  user_check(zip_, op) << path << " is damaged, or no file of save(): it is no zip archive";
  try {
    int code = unzGoToFirstFile(zip_);
    for (; code == UNZ_OK; code = unzGoToNextFile(zip_)) {
      unz_file_info64 info;
      check(unzGetCurrentFileInfo64(zip_, &info, nullptr, 0, nullptr, 0, nullptr, 0), "its directory");
      std::string name(info.size_filename, '\0');
      check(unzGetCurrentFileInfo64(zip_, &info, name.data(), uLong(name.size()), nullptr, 0, nullptr, 0),
            "its directory");
      user_check(info.compression_method == 0 && !(info.flag & 1), op)
          << path << " holds the compressed or encrypted record " << name
          << "; checkpoints are archives of plain records";
      user_check(info.compressed_size == info.uncompressed_size && info.uncompressed_size <= size, op)
          << path << " is damaged: record " << name << " claims " << info.uncompressed_size
          << " bytes of a file of " << size;
      unz64_file_pos at;
      check(unzGetFilePos64(zip_, &at), "its directory");
      user_check(records_
                     .emplace(name, Record{at.pos_in_zip_directory, at.num_of_file, info.uncompressed_size,
                                           uint32_t(info.crc)})
                     .second,
                 op)
          << path << " is damaged: it holds record " << name << " twice";
    }
    user_check(code == UNZ_END_OF_LIST_OF_FILE, op) << path << " is damaged: its directory ends too early";
  } catch (...) {
    unzClose(zip_);
    throw;
  }
}
ArchiveReader::~ArchiveReader() { unzClose(zip_); }
void ArchiveReader::check(int code, const std::string& what) {
  user_check(code >= 0, op_) << path_ << " is damaged: " << what
                             << (code == UNZ_CRCERROR     ? " does not have its checksum"
                                 : code == UNZ_BADZIPFILE ? " is inconsistent"
                                                          : " cannot be read");
}
uint64_t ArchiveReader::size_of(const std::string& name) const {
  auto it = records_.find(name);
  user_check(it != records_.end(), op_)
      << path_ << " is damaged: record " << name.substr(name.find('/') + 1) << " is missing";
  return it->second.bytes;
}
uint64_t ArchiveReader::begin_of(const Record& r, const std::string& what) {
  unz64_file_pos at{r.at, r.number};
  check(unzGoToFilePos64(zip_, &at), what);
  check(unzOpenCurrentFile(zip_), what);
  uint64_t begin = unzGetCurrentFileZStreamPos64(zip_);
  check(unzCloseCurrentFile(zip_), what);
  return begin;
}
// minizip copies bytes one by one, so that threads read the file and compute the checksum here.
void ArchiveReader::read(const std::string& name, void* to) {
  constexpr uint64_t kPiece = 1 << 20;
  uint64_t bytes = size_of(name);
  user_check(bytes <= left_, op_) << path_ << " is damaged: its records overlap";
  left_ -= bytes;
  if (!bytes) return;
  const Record& r = records_.at(name);
  std::string what = "record " + name;
  uint64_t begin = begin_of(r, what), pieces = (bytes + kPiece - 1) / kPiece;
  user_check(begin <= file_.size() && bytes <= file_.size() - begin, op_)
      << path_ << " is damaged: " << what << " ends too early";
  auto size_of_piece = [&](uint64_t k) { return std::min(kPiece, bytes - k * kPiece); };
  std::vector<uint32_t> checksums(pieces);
  parallel_for(int64_t(pieces), 1, [&](int64_t first, int64_t end) {
    for (auto k = uint64_t(first); k < uint64_t(end); ++k) {
      auto* piece = static_cast<unsigned char*>(to) + k * kPiece;
      file_.read_at(begin + k * kPiece, piece, size_of_piece(k));
      checksums[k] = uint32_t(crc32_z(0, piece, size_of_piece(k)));
    }
  });
  uLong checksum = checksums[0];
  for (uint64_t k = 1; k < pieces; ++k)
    checksum = crc32_combine(checksum, checksums[k], z_off_t(size_of_piece(k)));
  if (checksum != r.checksum) check(UNZ_CRCERROR, what);
}
std::string ArchiveReader::read(const std::string& name) {
  uint64_t bytes = size_of(name);
  user_check(bytes <= left_, op_) << path_ << " is damaged: its records overlap";
  std::string s(bytes, '\0');
  read(name, s.data());
  return s;
}

}  // namespace facula::io
