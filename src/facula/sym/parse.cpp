#include "facula/sym/parse.h"

#include <cctype>
#include <charconv>

namespace facula::sym {

namespace {

constexpr int kDeepest = 64;  // most levels of nested parentheses

class Expression {
 public:
  Expression(std::string_view& rest, const FindSymbol& find) : rest_(rest), find_(find) {}

  SymInt sum() {
    SymInt value = product();
    for (;;) {
      if (accept("+")) value += product();
      else if (accept("-")) value -= product();
      else return value;
    }
  }

 private:
  static void check(bool good, const char* what) { value_check(good, "size") << what; }
  bool accept(std::string_view token) {
    std::string_view next = rest_;
    while (!next.empty() && next[0] == ' ') next.remove_prefix(1);
    if (!next.starts_with(token)) return false;
    rest_ = next.substr(token.size());
    return true;
  }
  SymInt product() {
    SymInt value = factor();
    for (;;) {
      if (accept("*")) value *= factor();
      else if (accept("//")) value = value / factor();
      else if (accept("%")) value = value % factor();
      else return value;
    }
  }
  SymInt factor() {
    check(++depth_ <= kDeepest, "the expression is nested too deeply");
    SymInt value = atom();
    --depth_;
    return value;
  }
  SymInt pair(SymInt (*f)(SymInt, SymInt)) {
    SymInt a = sum();
    check(accept(","), "expected a comma");
    SymInt b = sum();
    check(accept(")"), "expected )");
    return f(a, b);
  }
  SymInt atom() {
    if (accept("-")) return -factor();
    if (accept("min(")) return pair([](SymInt a, SymInt b) { return min(a, b); });
    if (accept("max(")) return pair([](SymInt a, SymInt b) { return max(a, b); });
    if (accept("(")) {
      SymInt value = sum();
      check(accept(")"), "expected )");
      return value;
    }
    accept("");
    int64_t number = 0;
    auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
    if (end != rest_.data()) {
      check(error == std::errc(), "the number does not fit in 64 bits");
      rest_.remove_prefix(size_t(end - rest_.data()));
      return number;
    }
    size_t length = 0;
    while (length < rest_.size() && std::isalnum(static_cast<unsigned char>(rest_[length]))) ++length;
    std::string_view name = rest_.substr(0, length);
    const SymInt* symbol = find_(name);
    check(symbol, length ? "the symbol is not known" : "expected a size");
    rest_.remove_prefix(length);
    return *symbol;
  }

  std::string_view& rest_;
  const FindSymbol& find_;
  int depth_ = 0;
};

}  // namespace

SymInt parse_size(std::string_view& rest, const FindSymbol& find) { return Expression(rest, find).sum(); }

SymInt parse_size(std::string_view& rest, const Shapes& shapes) {
  SymInt symbol;
  return parse_size(rest, [&](std::string_view name) -> const SymInt* {
    for (int k = 0; k < shapes.symbol_count(); ++k) {
      symbol = shapes.symbol(k);
      if (symbol.node()->name == name) return &symbol;
    }
    return nullptr;
  });
}

}  // namespace facula::sym
