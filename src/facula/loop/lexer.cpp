#include "facula/loop/lexer.h"

#include <algorithm>
#include <charconv>

#include "facula/base/error.h"

namespace facula::loop {

void Lexer::fail(const std::string& wanted) {
  size_t line = 1, column = 1;
  for (size_t k = 0; k < at_ && k < text_.size(); ++k) {
    if (text_[k] == '\n') {
      ++line;
      column = 1;
    } else ++column;
  }
  value_check(false, "parse") << "line " << line << ", column " << column << ": " << wanted
                              << " expected, found '" << text_.substr(std::min(at_, text_.size()), 20) << "'";
  __builtin_unreachable();
}

std::string_view Lexer::peek_name() {
  space();
  size_t end = at_;
  while (end < text_.size() && in_name(text_[end])) ++end;
  return text_.substr(at_, end - at_);
}

std::string_view Lexer::name() {
  auto s = peek_name();
  if (s.empty()) fail("a name");
  at_ += s.size();
  return s;
}

bool Lexer::choice(std::string_view yes, std::string_view no) {
  bool first = accept_word(yes);
  if (!first) word(no);
  return first;
}

std::string Lexer::quoted() {
  take("\"");
  size_t end = text_.find('"', at_);
  if (end == std::string_view::npos) fail("'\"'");
  std::string s(text_.substr(at_, end - at_));
  at_ = end + 1;
  return s;
}

int64_t Lexer::integer() {
  space();
  int64_t v = 0;
  auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), v);
  if (error != std::errc()) fail("an integer");
  at_ = size_t(end - text_.data());
  return v;
}

int Lexer::small(int least) {
  size_t from = at_;
  int64_t v = integer();
  if (v < least || v >= kMost) {
    at_ = from;
    fail("a number from " + std::to_string(least) + " to " + std::to_string(kMost - 1));
  }
  return int(v);
}

double Lexer::number() {
  space();
  double v = 0;
  auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), v);
  if (error == std::errc::invalid_argument) fail("a number");
  at_ = size_t(end - text_.data());
  return v;
}

DType Lexer::dtype() {
  auto s = name();
  for (int k = 0; k < kDTypeCount; ++k)
    if (s == facula::name(DType(k))) return DType(k);
  at_ -= s.size();
  fail("a dtype");
}

Monoid Lexer::monoid() {
  auto s = name();
#define FACULA_M(n, c) if (s == #n) return Monoid::n;
  FACULA_MONOIDS(FACULA_M)
#undef FACULA_M
  at_ -= s.size();
  fail("a monoid");
}

int Lexer::variable(char letter) {
  auto s = peek_name();
  int v = 0;
  if (!is_variable(s, letter) || std::from_chars(s.data() + 1, s.data() + s.size(), v).ec != std::errc() ||
      v >= kMost)
    fail(std::string("a variable ") + letter + "<number>");
  at_ += s.size();
  return v;
}

bool Lexer::is_variable(std::string_view s, char letter) {
  if (s.size() < 2 || s[0] != letter) return false;
  for (char c : s.substr(1))
    if (!std::isdigit(static_cast<unsigned char>(c))) return false;
  return true;
}

}  // namespace facula::loop
