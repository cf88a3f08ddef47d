#include "facula/op/schema.h"

#include <cctype>
#include <charconv>
#include <optional>

namespace facula::op {
namespace {

struct TypeName {
  std::string_view name;
  Type type;
  bool symbolic;
};
constexpr TypeName kTypes[] = {
    {"Tensor", Type::Tensor, false},
    {"Scalar", Type::Scalar, false},
    {"int", Type::Int, false},
    {"SymInt", Type::Int, true},
    {"float", Type::Float, false},
    {"bool", Type::Bool, false},
    {"str", Type::String, false},
    {"dtype", Type::DType, false},
    {"Device", Type::Device, false},
    {"MemoryFormat", Type::Format, false},
    {"Generator", Type::Generator, false},
};

constexpr int kLongest = 64;  // n of T[n]: no tensor has more dimensions

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Schema parse() {
    Schema s;
    s.text = std::string(text_);
    s.name = word("the operator's name");
    if (accept('.')) s.overload = word("the overload's name");
    expect('(');
    bool keyword_only = false;
    if (!accept(')')) {
      do {
        if (accept('*')) {
          if (keyword_only) fail("a second *");
          keyword_only = true;
          continue;
        }
        s.parameters.push_back(parameter(keyword_only));
        s.hashes.push_back(ParameterName(s.parameters.back().name).hash());
        for (size_t i = 0; i + 1 < s.parameters.size(); ++i)
          if (s.parameters[i].name == s.parameters.back().name) fail("a second parameter of this name");
      } while (accept(','));
      expect(')');
    }
    skip();
    if (text_.substr(at_, 2) != "->") fail("expected ->");
    at_ += 2;
    if (accept('(')) {
      if (!accept(')')) {
        do s.returns.push_back(result(true));
        while (accept(','));
        expect(')');
      }
    } else {
      s.returns.push_back(result(false));
    }
    skip();
    if (at_ != text_.size()) fail("unexpected text");
    return s;
  }

 private:
  [[noreturn]] void fail(std::string_view what) {
    value_check(false, "define") << "in the schema at character " << at_ << ", " << what << ": "
                                 << text_.substr(0, at_) << " <here> " << text_.substr(at_);
    __builtin_unreachable();
  }
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool accept(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(std::string("expected ") + c);
  }
  static bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
  std::string word(std::string_view what) {
    skip();
    size_t from = at_;
    while (at_ < text_.size() && in_word(text_[at_])) ++at_;
    if (from == at_ || std::isdigit(static_cast<unsigned char>(text_[from]))) {
      at_ = from;
      fail("expected " + std::string(what));
    }
    return std::string(text_.substr(from, at_ - from));
  }

  const TypeName& type() {
    size_t from = at_;
    std::string name = word("a type");
    for (auto& t : kTypes)
      if (t.name == name) return t;
    at_ = from;
    fail("unknown type " + name);
  }
  // (a), (a!)
  template <class T>
  void alias(T& to) {
    if (!accept('(')) return;
    to.alias = word("an alias")[0];
    to.written = accept('!');
    expect(')');
  }

  Parameter parameter(bool keyword_only) {
    Parameter p;
    auto& t = type();
    p.type = t.type;
    p.symbolic = t.symbolic;
    p.keyword_only = keyword_only;
    if (accept('|')) {
      auto& second = type();
      if (!(t.type == Type::Tensor && second.type == Type::Scalar) &&
          !(t.type == Type::Scalar && second.type == Type::Tensor))
        fail("two types other than Tensor and Scalar");
      p.type = Type::Tensor;
      p.number = true;
      p.number_alone = t.type == Type::Scalar;
    }
    alias(p);
    bool marked = accept('?');
    if (accept('[')) {
      p.list = true;
      p.optional_items = marked;
      skip();
      if (!accept(']')) {
        auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), p.list_size);
        if (error != std::errc() || p.list_size <= 0 || p.list_size > kLongest)
          fail("expected a length up to " + std::to_string(kLongest));
        at_ = size_t(end - text_.data());
        expect(']');
      }
      p.optional = accept('?');
    } else {
      p.optional = marked;
    }
    p.name = word("a parameter's name");
    if (accept('=')) {
      skip();
      size_t from = at_;
      p.has_default = true;
      fallback(p);
      p.default_text = std::string(text_.substr(from, at_ - from));
    }
    return p;
  }

  Return result(bool named) {
    Return r;
    r.type = type().type;
    alias(r);
    if (accept('[')) {
      r.list = true;
      expect(']');
    }
    skip();
    if (named && at_ < text_.size() && in_word(text_[at_])) r.name = word("a result's name");
    return r;
  }

  // One default value; sets p.fallback.
  void fallback(Parameter& p) {
    auto keep = [&](const Value& v) { p.fallback = Args(std::span<const Value>(&v, 1)); };
    size_t start = at_;
    if (accept_word("None")) {
      if (!p.optional && p.type != Type::Generator && p.type != Type::Tensor) {
        at_ = start;
        fail("None for a parameter that is not optional");
      }
      return keep(Value());
    }
    if (p.list) {
      std::vector<Scalar> items;
      bool bracket = accept('[');
      if (bracket || accept('(')) {
        char close = bracket ? ']' : ')';
        while (!accept(close)) {
          items.push_back(number(p.type));
          if (!accept(',')) {
            expect(close);
            break;
          }
        }
      } else {
        items.assign(size_t(std::max(p.list_size, 1)), number(p.type));
      }
      if (p.type == Type::Tensor) {
        if (!items.empty()) fail("a list of tensors has no default but ()");
        return keep(Value(std::span<TensorImpl* const>()));
      }
      if (p.type != Type::Int) return keep(Value(std::span<const Scalar>(items)));
      std::vector<SymInt> ints;
      for (auto& i : items) ints.push_back(i.to_int());
      return keep(Value(SymSpan(ints)));
    }
    switch (p.type) {
      case Type::Tensor:
      case Type::Generator: fail("the only default of this type is None");
      case Type::Int: return keep(Value(SymInt(number(p.type).to_int())));
      case Type::Scalar:
      case Type::Float:
      case Type::Bool: return keep(Value(number(p.type)));
      case Type::String: {
        skip();
        char quote = at_ < text_.size() ? text_[at_] : ' ';
        if (quote != '\'' && quote != '"') fail("expected a quoted string");
        size_t end = text_.find(quote, at_ + 1);
        if (end == std::string_view::npos) fail("the string does not end");
        std::string_view s = text_.substr(at_ + 1, end - at_ - 1);
        at_ = end + 1;
        return keep(Value(s));
      }
      case Type::DType: return keep(named("a dtype", dtype_from_name));
      case Type::Device: return keep(named("a device", parse_device));
      case Type::Format: {
        std::string f = word("a memory format");
        if (f == "contiguous_format") return keep(Value(MemoryFormat::contiguous));
        if (f == "channels_last") return keep(Value(MemoryFormat::channels_last));
        if (f == "preserve_format") return keep(Value(MemoryFormat::preserve));
        at_ = start;
        fail("expected contiguous_format, channels_last or preserve_format");
      }
    }
  }

  // What `read` makes of the next word; what it refuses is a mistake of the schema.
  template <class Read>
  Value named(const char* what, Read read) {
    std::string w = word(what);
    try {
      return Value(read(w));
    } catch (const Error& e) {
      at_ -= w.size();
      fail(e.message());
    }
  }

  bool accept_word(std::string_view w) {
    skip();
    if (text_.substr(at_, w.size()) != w || (at_ + w.size() < text_.size() && in_word(text_[at_ + w.size()])))
      return false;
    at_ += w.size();
    return true;
  }

  // A number as the parameter's type wants it.
  Scalar number(Type t) {
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
    check(at_ < text_.size() && text_[at_] != '-',
          "expected a number");  // from_chars takes a sign of its own
    double real = 0;
    auto parsed = std::from_chars(text_.data() + at_, text_.data() + text_.size(), real);
    check(parsed.ec == std::errc(), "expected a number");
    std::string_view digits = text_.substr(at_, size_t(parsed.ptr - text_.data()) - at_);
    at_ = size_t(parsed.ptr - text_.data());
    bool integral = digits.find_first_of(".eE") == std::string_view::npos;
    check(integral || t != Type::Int, "not an integer");
    if (!integral || t == Type::Float) return Scalar(sign * real);
    int64_t value = 0;
    auto exact = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    check(exact.ec == std::errc(), "the integer does not fit in 64 bits");
    return Scalar(minus ? -value : value);
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

bool Schema::mutates() const {
  for (auto& p : parameters)
    if (p.written) return true;
  return false;
}

Schema parse_schema(std::string_view text) { return Parser(text).parse(); }

}  // namespace facula::op
