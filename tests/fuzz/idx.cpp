// IDX files of data sets, plain and compressed: RuntimeError is the only error, and no file makes more than
// it can hold.
#include "facula/io/idx.h"
#include "fuzz.h"

using namespace facula;

static void run(std::string_view data) {
  const std::string& path = fuzz::file_of(data);
  fuzz::raises_only(ErrorType::RuntimeError, [&] {
    Tensor t = io::read_idx(path);
    if (uint64_t(t.numel().concrete()) > 1032 * data.size() + 1024)
      fuzz::broken("an array is not larger than its file allows", "");
  });
}

static std::vector<std::string> seeds() {
  using namespace std::string_literals;
  return {
      "\0\0\x08\x01\0\0\0\x03"
      "abc"s,
      "\0\0\x0b\x02\0\0\0\x01\0\0\0\x02"
      "abcd"s,
      "\0\0\x0d\0"
      "abcd"s,
      "\0\0\x0e\x01\0\0\0\0"s,
      // the first one, compressed by gzip
      "\x1f\x8b\x08\0\0\0\0\0\x02\x03\x01\x0b\0\xf4\xff\0\0\x08\x01\0\0\0\x03"
      "abc\x54\x24\x25\xc4\x0b\0\0\0"s};
}

FACULA_FUZZ("idx", run, seeds)
