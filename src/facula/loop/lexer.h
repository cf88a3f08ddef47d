// Lexer: the words, numbers and names of a printed expression or nest. Errors are ValueErrors that name the line and column.
#pragma once
#include <cctype>
#include <string>
#include <string_view>

#include "facula/base/dtype.h"
#include "facula/loop/monoid.h"

namespace facula::loop {

constexpr int kDeepest = 1000;  // most levels of nested expressions, sizes and blocks; each level takes stack
constexpr int kMost = 1 << 24;  // slots, variables, parameters and names have smaller numbers

class Lexer {
 protected:
  explicit Lexer(std::string_view text) : text_(text) {}

  [[noreturn]] void fail(const std::string& wanted);
  void space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool peek(std::string_view s) {
    space();
    return text_.substr(at_, s.size()) == s;
  }
  bool accept(std::string_view s) {
    bool yes = peek(s);
    if (yes) at_ += s.size();
    return yes;
  }
  void take(std::string_view s) {
    if (!accept(s)) fail("'" + std::string(s) + "'");
  }
  static bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
  std::string_view peek_name();
  std::string_view name();
  bool peek_word(std::string_view s) { return peek_name() == s; }
  bool accept_word(std::string_view s) {
    bool yes = peek_word(s);
    if (yes) at_ += s.size();
    return yes;
  }
  void word(std::string_view s) {
    if (!accept_word(s)) fail("'" + std::string(s) + "'");
  }
  bool choice(std::string_view yes, std::string_view no);
  std::string quoted();
  int64_t integer();
  int small(int least = 0);
  double number();
  DType dtype();
  Monoid monoid();
  int variable(char letter);
  static bool is_variable(std::string_view s, char letter);
  // Counts one level of nesting during its lifetime.
  struct Level {
    explicit Level(Lexer& p) : lexer(p) {
      if (++p.depth_ > kDeepest) p.fail("no more than " + std::to_string(kDeepest) + " levels");
    }
    ~Level() { --lexer.depth_; }
    Lexer& lexer;
  };

  std::string_view text_;
  size_t at_ = 0;

 private:
  int depth_ = 0;
};

}  // namespace facula::loop
