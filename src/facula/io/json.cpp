#include "facula/io/json.h"

#include <charconv>

namespace facula::io {

namespace {

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}
  Value document() {
    Value v = value(0);
    skip();
    check(at_ == text_.size(), "text after the end");
    return v;
  }

 private:
  static constexpr int kDeepest = 200;
  void check(bool good, const char* what) const {
    value_check(good, "json") << "at character " << at_ << ": " << what;
  }
  void skip() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
  }
  bool accept(char c) {
    skip();
    bool is = at_ < text_.size() && text_[at_] == c;
    at_ += is;
    return is;
  }
  bool accept_word(std::string_view word) {
    bool is = text_.substr(at_, word.size()) == word;
    if (is) at_ += word.size();
    return is;
  }

  Value value(int depth) {
    check(depth < kDeepest, "nested too deeply");
    skip();
    check(at_ < text_.size(), "expected a value");
    switch (text_[at_]) {
      case '{': return object(depth);
      case '[': return array(depth);
      case '"': return Value(string());
      case 't': check(accept_word("true"), "expected true"); return Value(true);
      case 'f': check(accept_word("false"), "expected false"); return Value(false);
      case 'n': check(accept_word("null"), "expected null"); return Value();
      default: return number();
    }
  }
  Value object(int depth) {
    Dict dict;
    ++at_;
    if (accept('}')) return Value(std::move(dict));
    do {
      skip();
      check(at_ < text_.size() && text_[at_] == '"', "expected a key");
      Value key(string());
      check(accept(':'), "expected :");
      dict.set(key, value(depth + 1));
    } while (accept(','));
    check(accept('}'), "expected }");
    return Value(std::move(dict));
  }
  Value array(int depth) {
    List list;
    ++at_;
    if (accept(']')) return Value(std::move(list));
    do list.push_back(value(depth + 1));
    while (accept(','));
    check(accept(']'), "expected ]");
    return Value(std::move(list));
  }
  Value number() {
    size_t end = text_.find_first_not_of("+-0123456789.eE", at_);
    std::string_view digits = text_.substr(at_, end == text_.npos ? end : end - at_);
    const char *from = digits.data(), *to = from + digits.size();
    int64_t i;
    double d;
    if (auto r = std::from_chars(from, to, i); r.ec == std::errc() && r.ptr == to && from != to) {
      at_ += digits.size();
      return Value(i);
    }
    auto r = std::from_chars(from, to, d);
    check(r.ec == std::errc() && r.ptr == to && from != to, "expected a number");
    at_ += digits.size();
    return Value(d);
  }

  uint32_t hex() {
    check(at_ + 4 <= text_.size(), "expected four hexadecimal digits");
    uint32_t code = 0;
    auto r = std::from_chars(text_.data() + at_, text_.data() + at_ + 4, code, 16);
    check(r.ec == std::errc() && r.ptr == text_.data() + at_ + 4, "expected four hexadecimal digits");
    at_ += 4;
    return code;
  }
  uint32_t code_point() {
    uint32_t code = hex();
    if (code < 0xD800 || code > 0xDBFF) return code;
    check(accept_word("\\u"), "expected the second half of a character");
    uint32_t low = hex();
    check(low >= 0xDC00 && low <= 0xDFFF, "expected the second half of a character");
    return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  }
  static void append(std::string& s, uint32_t code) {
    auto tail = [&](int shift) { s += char(0x80 | (code >> shift & 0x3F)); };
    if (code < 0x80) {
      s += char(code);
    } else if (code < 0x800) {
      s += char(0xC0 | code >> 6), tail(0);
    } else if (code < 0x10000) {
      s += char(0xE0 | code >> 12), tail(6), tail(0);
    } else {
      s += char(0xF0 | code >> 18), tail(12), tail(6), tail(0);
    }
  }
  std::string string() {
    std::string s;
    ++at_;
    while (true) {
      check(at_ < text_.size(), "a string without its end");
      char c = text_[at_++];
      if (c == '"') return s;
      if (c != '\\') {
        s += c;
        continue;
      }
      check(at_ < text_.size(), "a string without its end");
      char escaped = text_[at_++];
      static constexpr std::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
      if (escaped == 'u') append(s, code_point());
      else if (size_t k = kNames.find(escaped); k != kNames.npos) s += kMeanings[k];
      else check(false, "an unknown escape");
    }
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Value parse_json(std::string_view text) { return Parser(text).document(); }

}  // namespace facula::io
