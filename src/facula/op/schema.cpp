#include "facula/op/schema.h"

#include <charconv>

#include "facula/op/reader.h"

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
    {"ScalarType", Type::DType, false},
    {"Device", Type::Device, false},
    {"MemoryFormat", Type::Format, false},
    {"Generator", Type::Generator, false},
};

constexpr TypeName kObject{"__torch__", Type::Object, false};

constexpr int kLongest = 64;  // most n of T[n]: no tensor has more dimensions

class Parser final : Reader {
 public:
  explicit Parser(std::string_view text) : Reader(text) {}

  Schema parse() {
    Schema s;
    s.text = std::string(text_);
    s.name = word("the operator's name");
    if (text_.substr(at_, 2) == "::") {  // the namespace of a user's operator
      at_ += 2;
      s.name += "::" + word("the operator's name");
    }
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
  [[noreturn]] void fail(std::string_view what) const override {
    value_check(false, "define") << "in the schema at character " << at_ << ", " << what << ": "
                                 << text_.substr(0, at_) << " <here> " << text_.substr(at_);
    __builtin_unreachable();
  }

  // `class_name`: receives the name of a user's class.
  const TypeName& type(std::string* class_name = nullptr) {
    size_t from = at_;
    std::string name = word("a type");
    if (class_name && name == kObject.name) {
      while (accept('.')) name += '.' + word("a part of a class's name");
      constexpr std::string_view before = "__torch__.torch.classes.";
      if (!name.starts_with(before)) fail("expected __torch__.torch.classes.NAMESPACE.NAME");
      *class_name = name.substr(before.size());
      return kObject;
    }
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
    auto& t = type(&p.class_name);
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
      if (p.type == Type::Object) fail("a list of objects, which operators do not take");
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

  // Parses one default value; sets p.fallback. A single number for a list is repeated.
  void fallback(Parameter& p) {
    size_t start = at_;
    if (accept_word("None")) {
      at_ = start;
      if (!p.optional && p.type != Type::Generator && p.type != Type::Tensor)
        fail("None for a parameter that is not optional");
    } else if (p.list && p.type != Type::Tensor && !next_is('[') && !next_is('(')) {
      Scalar one = number(p.type);
      std::vector<Scalar> items(size_t(std::max(p.list_size, 1)), one);
      std::vector<SymInt> ints(items.size(), p.type == Type::Int ? one.to_int() : 0);
      Value v = p.type == Type::Int ? Value(SymSpan(ints)) : Value(std::span<const Scalar>(items));
      p.fallback = Args(std::span<const Value>(&v, 1));
      return;
    }
    p.fallback = attribute(p);
  }
};

}  // namespace

bool Schema::mutates() const {
  for (auto& p : parameters)
    if (p.written) return true;
  return false;
}

std::string_view Schema::library() const {
  size_t end = name.find("::");
  return std::string_view(name).substr(0, end == std::string::npos ? 0 : end);
}

Schema parse_schema(std::string_view text) { return Parser(text).parse(); }

}  // namespace facula::op
