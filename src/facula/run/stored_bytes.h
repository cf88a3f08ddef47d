// Words and texts as bytes, for entries of the store (codegen/store.h).
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace facula::run {

class ByteWriter {
 public:
  std::string bytes;
  void word(uint64_t w) { bytes.append(reinterpret_cast<const char*>(&w), sizeof w); }
  void text(std::string_view s) {
    word(s.size());
    bytes += s;
  }
  template <class List>
  void list(const List& l) {
    word(l.size());
    for (auto& x : l) word(uint64_t(x));
  }
};

// Reads zeros past the end, and notes that the file was too short.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}
  uint64_t word() {
    uint64_t w = 0;
    if (auto s = piece(sizeof w); s.size() == sizeof w) std::memcpy(&w, s.data(), sizeof w);
    return w;
  }
  std::string_view piece(uint64_t size) {
    if (size > rest_.size()) {
      rest_ = {};
      failed_ = true;
      return {};
    }
    auto s = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return s;
  }
  std::string_view text() { return piece(word()); }
  // The number of items that follow, each of at least one word.
  size_t count() {
    uint64_t n = word();
    if (n <= rest_.size() / sizeof(uint64_t)) return n;
    failed_ = true;
    return 0;
  }
  template <class List>
  void list(List& l) {
    size_t n = count();
    for (size_t k = 0; k < n; ++k) l.push_back(std::remove_cvref_t<decltype(l[0])>(int64_t(word())));
  }
  // A number below `end`; any other makes the file invalid.
  int index_under(size_t end) {
    uint64_t n = word();
    if (n < end) return int(n);
    failed_ = true;
    return 0;
  }
  void index_under(std::vector<int>& l, size_t end, bool or_none = false) {
    size_t n = count();
    for (size_t k = 0; k < n; ++k) l.push_back(or_none ? index_or_none(end) : index_under(end));
  }
  int index_or_none(size_t end) {
    uint64_t n = word();
    if (int64_t(n) == -1) return -1;
    if (n >= end) failed_ = true;
    return n < end ? int(n) : -1;
  }
  void refuse() { failed_ = true; }
  bool is_complete() const { return !failed_ && rest_.empty(); }
  bool failed() const { return failed_; }

 private:
  std::string_view rest_;
  bool failed_ = false;
};

}  // namespace facula::run
