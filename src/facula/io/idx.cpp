#include "facula/io/idx.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "facula/io/file.h"

namespace facula::io {

namespace {
DType type_of(unsigned char code) {
  switch (code) {
    case 0x08: return DType::UInt8;
    case 0x09: return DType::Int8;
    case 0x0B: return DType::Int16;
    case 0x0C: return DType::Int32;
    case 0x0D: return DType::Float32;
    case 0x0E: return DType::Float64;
    default: return DType::count;
  }
}
}  // namespace

Tensor read_idx(const std::string& path) {
  uint64_t limit = OldFile("read_idx", path).size() * 1032 + 1024;  // deflate's maximum expansion
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rbe"), gzclose);
  user_check(file, "read_idx") << "cannot open " << path << ": " << std::strerror(errno);
  auto read = [&](void* to, uint64_t bytes) {
    for (uint64_t done = 0; done < bytes;) {
      int n = gzread(file.get(), static_cast<char*>(to) + done,
                     unsigned(std::min<uint64_t>(1 << 30, bytes - done)));
      int code = Z_OK;
      const char* why = n > 0 ? "" : gzerror(file.get(), &code);
      user_check(n > 0, "read_idx") << path << " is damaged: "
                                    << (n == 0 || code == Z_BUF_ERROR ? "it ends too early"
                                        : code == Z_ERRNO             ? std::strerror(errno)
                                                                      : why);
      done += uint64_t(n);
    }
  };
  unsigned char head[4];
  read(head, 4);
  DType dtype = type_of(head[2]);
  user_check(!head[0] && !head[1] && dtype != DType::count && head[3] <= 16, "read_idx")
      << path << " is no IDX file";
  Ints sizes;
  uint64_t bytes = uint64_t(itemsize(dtype));
  for (int d = 0; d < head[3]; ++d) {
    unsigned char n[4];
    read(n, 4);
    sizes.push_back(int64_t(n[0]) << 24 | n[1] << 16 | n[2] << 8 | n[3]);
    bool fits = !__builtin_mul_overflow(bytes, uint64_t(sizes.back()), &bytes) && bytes <= limit;
    user_check(fits, "read_idx") << path << " is damaged: its sizes exceed what it holds";
  }
  Tensor t = Tensor::empty(IntSpan(sizes), dtype);
  auto* p = static_cast<unsigned char*>(t.data_ptr());
  read(p, bytes);
  char more;
  user_check(gzread(file.get(), &more, 1) == 0, "read_idx")
      << path << " is damaged: it is longer than its sizes say, or its checksum is wrong";
  int width = itemsize(dtype);
  if (width > 1)
    for (uint64_t at = 0; at < bytes; at += uint64_t(width)) std::reverse(p + at, p + at + width);
  return t;
}

}  // namespace facula::io
