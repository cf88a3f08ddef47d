#include "facula/op/reader.h"

#include <cctype>
#include <charconv>

#include "facula/op/describe.h"

namespace facula::op {

bool Reader::in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

void Reader::skip() {
  while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
}

bool Reader::next_is(char c) {
  skip();
  return at_ < text_.size() && text_[at_] == c;
}

bool Reader::accept(char c) {
  if (!next_is(c)) return false;
  ++at_;
  return true;
}

void Reader::expect(char c) {
  if (!accept(c)) fail(std::string("expected ") + c);
}

bool Reader::accept_word(std::string_view w) {
  skip();
  if (text_.substr(at_, w.size()) != w || (at_ + w.size() < text_.size() && in_word(text_[at_ + w.size()])))
    return false;
  at_ += w.size();
  return true;
}

std::string Reader::word(std::string_view what) {
  skip();
  size_t from = at_;
  while (at_ < text_.size() && in_word(text_[at_])) ++at_;
  if (from == at_ || std::isdigit(static_cast<unsigned char>(text_[from]))) {
    at_ = from;
    fail("expected " + std::string(what));
  }
  return std::string(text_.substr(from, at_ - from));
}

Scalar Reader::number(Type t) {
  skip();
  size_t from = at_;
  auto check = [&](bool good, const char* what) {
    if (!good) {
      at_ = from;
      fail(what);
    }
  };
  bool minus = accept('-');
  if (!minus && accept_word("True")) {
    check(t == Type::Bool || t == Type::Scalar, "not a bool");
    return Scalar(true);
  }
  if (!minus && accept_word("False")) {
    check(t == Type::Bool || t == Type::Scalar, "not a bool");
    return Scalar(false);
  }
  check(t != Type::Bool, "expected True or False");
  double sign = minus ? -1 : 1;
  if (accept_word("inf")) {
    check(t != Type::Int, "not an integer");
    return Scalar(sign * __builtin_inf());
  }
  if (accept_word("nan")) {
    check(t != Type::Int, "not an integer");
    return Scalar(__builtin_nan(""));
  }
  if (!minus && t == Type::Scalar && accept('(')) {  // (1.0+2.0j)
    double real = number(Type::Float).to_double();
    accept('+');
    double imaginary = number(Type::Float).to_double();
    expect('j');
    expect(')');
    return Scalar(std::complex<double>(real, imaginary));
  }
  // from_chars would accept a second sign
  check(at_ < text_.size() && text_[at_] != '-', "expected a number");
  double real = 0;
  auto parsed = std::from_chars(text_.data() + at_, text_.data() + text_.size(), real);
  check(parsed.ec == std::errc(), "expected a number");
  std::string_view digits = text_.substr(at_, size_t(parsed.ptr - text_.data()) - at_);
  at_ = size_t(parsed.ptr - text_.data());
  bool integral = digits.find_first_of(".eE") == std::string_view::npos;
  check(integral || t != Type::Int, "not an integer");
  if (!integral || t == Type::Float) return Scalar(sign * real);
  int64_t value = 0;
  // Parses with the sign: there is one more negative number.
  auto exact = std::from_chars(digits.data() - minus, digits.data() + digits.size(), value);
  check(exact.ec == std::errc(), "the integer does not fit in 64 bits");
  return Scalar(value);
}

std::string Reader::text() {
  skip();
  char quote = at_ < text_.size() ? text_[at_] : ' ';
  if (quote != '\'' && quote != '"') fail("expected a quoted string");
  std::string s;
  size_t k = at_ + 1;
  for (; k < text_.size() && text_[k] != quote; ++k) {
    bool escaped = text_[k] == '\\' && k + 1 < text_.size();
    char c = text_[k += escaped];
    s += escaped && c == 'n' ? '\n' : c;
  }
  if (k >= text_.size()) fail("the string does not end");
  at_ = k + 1;
  return s;
}

Args Reader::attribute(const Parameter& p) {
  auto owned = [](const Value& v) { return Args(std::span<const Value>(&v, 1)); };
  if (accept_word("None")) return owned(Value());
  if (p.list) {
    std::vector<Scalar> items;
    std::vector<SymInt> ints;
    auto item = [&] {
      if (p.type == Type::Tensor) fail("a list of tensors has no default but ()");
      if (p.type == Type::Int) ints.push_back(integer());
      else items.push_back(number(p.type));
    };
    bool bracket = accept('[');
    if (!bracket && !accept('(')) {
      item();
      return owned(p.type == Type::Int ? Value(ints[0]) : Value(items[0]));
    }
    char close = bracket ? ']' : ')';
    while (!accept(close)) {
      item();
      if (accept(',')) continue;
      expect(close);
      break;
    }
    if (p.type == Type::Tensor) return owned(Value(std::span<TensorImpl* const>()));
    return owned(p.type == Type::Int ? Value(SymSpan(ints)) : Value(std::span<const Scalar>(items)));
  }
  switch (p.type) {
    case Type::Tensor:
    case Type::Object:
    case Type::Generator: break;
    case Type::Int: return owned(Value(integer()));
    case Type::Scalar:
    case Type::Float:
    case Type::Bool: return owned(Value(number(p.type)));
    case Type::String: return owned(Value(std::string_view(text())));
    case Type::DType: return owned(named("a dtype", dtype_from_name));
    case Type::Device: {
      bool quoted = accept('"');
      Args device = owned(named("a device", parse_device));
      if (quoted) expect('"');
      return device;
    }
    case Type::Format: return owned(named("a memory format", format_from_name));
  }
  fail("the only default of this type is None");
  __builtin_unreachable();
}

// Applies `read` to the next word, and reports its error as a mistake in the text.
template <class Read>
Value Reader::named(const char* what, Read read) {
  size_t from = at_;
  std::string w = word(what);
  if (next_is(':')) {  // the index of a device
    ++at_;
    w += ':' + std::to_string(number(Type::Int).to_int());
  }
  try {
    return Value(read(w));
  } catch (const Error& e) {
    at_ = from;
    fail(e.message());
  }
  __builtin_unreachable();
}

}  // namespace facula::op
