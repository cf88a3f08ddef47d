// Mutations of texts that are mostly in form: of graphs, and of what is written like them.
#include <algorithm>
#include <cctype>

#include "facula/op/registry.h"
#include "fuzz.h"

namespace facula::fuzz {

namespace {

struct Span {
  size_t at, size;
};

bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }

// Runs of characters that belong together: numbers and words.
std::vector<Span> words_of(const std::string& s) {
  std::vector<Span> all;
  for (size_t at = 0; at < s.size();) {
    size_t end = at;
    while (end < s.size() && in_word(s[end])) ++end;
    if (end > at) all.push_back({at, end - at});
    at = std::max(end, at + 1);
  }
  return all;
}

class Mutation {
 public:
  Mutation(std::string text, Random& random) : s_(std::move(text)), random_(random) {}

  std::string made() {
    for (size_t k = 1 + below(3); k--;) {
      switch (below(8)) {
        case 0:
        case 1: number(); break;
        case 2: word(); break;
        case 3: word_of_this(); break;
        case 4: line(); break;
        case 5: item(); break;
        case 6: expression(); break;
        default: operator_name();
      }
    }
    return std::move(s_);
  }

 private:
  size_t below(size_t n) { return n ? size_t(random_()) % n : 0; }
  template <class List>
  auto& any(const List& list) {
    return list[below(std::size(list))];
  }

  void number() {
    static const char* const kNumbers[] = {"0",
                                           "1",
                                           "-1",
                                           "2",
                                           "3",
                                           "7",
                                           "64",
                                           "65",
                                           "-2",
                                           "1000",
                                           "100000",
                                           "2147483647",
                                           "2147483648",
                                           "-2147483649",
                                           "4294967296",
                                           "1099511627776",
                                           "1152921504606846976",
                                           "2305843009213693951",
                                           "9223372036854775807",
                                           "-9223372036854775808",
                                           "0.5",
                                           "inf",
                                           "nan",
                                           "1e300"};
    auto words = words_of(s_);
    std::erase_if(words, [&](Span w) { return !std::isdigit(static_cast<unsigned char>(s_[w.at])); });
    if (words.empty()) return;
    Span w = any(words);
    s_.replace(w.at, w.size, any(kNumbers));
  }
  void word() {
    static const char* const kWords[] = {
        "None",          "True",  "False",      "float32",   "float64",    "float16",  "bfloat16",
        "int64",         "uint8", "bool",       "complex64", "complex128", "number",   "strides",
        "constant",      "phase", "checkpoint", "size",      "piece",      "requires", "contiguous_format",
        "channels_last", "[]",    "s0",         "s1",        "gradient",   "function"};
    auto words = words_of(s_);
    if (words.empty()) return;
    Span w = any(words);
    s_.replace(w.at, w.size, any(kWords));
  }
  void word_of_this() {
    auto words = words_of(s_);
    if (words.empty()) return;
    Span from = any(words), to = any(words);
    s_.replace(to.at, to.size, s_.substr(from.at, from.size));
  }
  void operator_name() {
    auto& all = op::all();
    size_t open = s_.find('(', below(s_.size()));
    size_t begin = open == s_.npos ? open : s_.rfind(' ', open);
    if (begin != s_.npos) s_.replace(begin + 1, open - begin - 1, any(all)->schema.full_name());
  }
  void line() {
    size_t begin = s_.rfind('\n', below(s_.size())),
           end = begin == s_.npos ? begin : s_.find('\n', begin + 1);
    if (end == s_.npos) return;
    std::string line = s_.substr(begin, end - begin);
    if (below(2)) s_.erase(begin, line.size());
    else s_.insert(below(2) ? begin : s_.rfind('\n', below(s_.size()) + 1) == s_.npos ? begin : end, line);
  }
  // Of a list: once less, or more.
  void item() {
    size_t at = s_.find_first_of("[,", below(s_.size()));
    if (at == s_.npos) return;
    size_t end = s_.find_first_of(",]()\n", at + 1);
    if (end == s_.npos) return;
    std::string item = s_.substr(at + 1, end - at - 1);
    if (below(3) == 0) s_.erase(at + 1, item.size() + (s_[end] == ','));
    else
      for (size_t k = 1 + below(4); k--;) s_.insert(at + 1, item + ", ");
  }
  void expression() {
    static const char* const kOperators[] = {" + ", " - ", "*", "//", "%"};
    auto words = words_of(s_);
    if (words.empty()) return;
    Span w = any(words), other = any(words);
    std::string a = s_.substr(w.at, w.size), b = s_.substr(other.at, other.size);
    std::string made = below(3) ? "(" + a + ")" + any(kOperators) + "(" + b + ")"
                                : (below(2) ? "min(" : "max(") + a + ", " + b + ")";
    s_.replace(w.at, w.size, made);
  }

  std::string s_;
  Random& random_;
};

}  // namespace

std::string mutated_text(std::string text, Random& random) {
  return Mutation(std::move(text), random).made();
}

}  // namespace facula::fuzz
