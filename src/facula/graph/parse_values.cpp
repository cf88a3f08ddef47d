#include "facula/graph/parse_values.h"

#include <algorithm>
#include <limits>

#include "facula/graph/graph.h"
#include "facula/op/call.h"
#include "facula/op/views.h"
#include "facula/sym/parse.h"
#include "facula/sym/run_time.h"

namespace facula::graph {

using op::Type;

void ValueReader::fail(std::string_view what) const {
  auto before = text_.substr(0, std::min(at_, text_.size()));
  auto begin = before.rfind('\n') + 1;  // 0 if there is none
  auto shown = text_.substr(begin, text_.substr(begin).find('\n')).substr(0, 200);
  value_check(false, "parse_graph") << "line " << 1 + std::count(before.begin(), before.end(), '\n')
                                    << ", character " << at_ - begin << ", " << what << ": " << shown;
  __builtin_unreachable();
}

SymInt ValueReader::integer() {
  skip();
  auto rest = text_.substr(at_);
  try {
    SymInt s = sym::parse_size(rest, [&](std::string_view name) { return symbol(name); });
    at_ = text_.size() - rest.size();
    return s;
  } catch (const Error& e) {
    at_ = text_.size() - rest.size();
    fail(e.message());
  }
}

Dims ValueReader::sizes() {
  Dims all;
  expect('[');
  while (!accept(']')) {
    all.push_back(integer());
    if (all.size() > 64) fail("no tensor has more than 64 dimensions");
    if (accept(',')) continue;
    expect(']');
    break;
  }
  return all;
}

int64_t ValueReader::plain(int64_t low, int64_t high) {
  size_t from = at_;
  int64_t n = number(Type::Int).to_int();
  if (n < low || n > high) {
    at_ = from;
    fail("expected a number from " + std::to_string(low) + " to " + std::to_string(high));
  }
  return n;
}

void ValueReader::read_sizes() {
  static constexpr std::string_view begin = "\n  size ";
  for (size_t at = text_.find(begin); at != text_.npos; at = text_.find(begin, at + 1)) {
    at_ = at + begin.size();
    std::string name = word("a symbol");
    if (!is_symbol(name)) fail("a symbol is s or u, and a number");
    if (symbol(name)) fail("the symbol is there already");
    if (sym::is_run_time_name(name)) {
      if (!accept_word("from")) fail("expected from");
      plain(0, 0);
      if (!accept_word("to")) fail("expected to");
      symbols_.emplace(name, sym::run_time_size(*shapes_, plain(1, sym::kMostSize), name));
      continue;
    }
    expect('=');
    int64_t hint = plain(0, sym::kMostSize), low = sym::kLeastSize, high = sym::kMostSize;
    if (accept_word("from")) {
      low = plain(-sym::kMostSize, hint);
      if (!accept_word("to")) fail("expected to");
      high = plain(hint, sym::kMostSize);
    } else if (hint < low) {
      fail("a size below its range");
    }
    symbols_.emplace(name, shapes_->fresh(name, hint, low, high));
  }
  at_ = 0;
}

const SymInt* ValueReader::symbol(std::string_view name) const {
  auto it = symbols_.find(std::string(name));
  return it == symbols_.end() ? nullptr : &it->second;
}

int ValueReader::id() {
  expect('%');
  return int(plain(0, std::numeric_limits<int>::max()));
}

void ValueReader::define(int id, const Tensor& t) {
  if (!values_.try_emplace(id, t).second) fail("%" + std::to_string(id) + " is there already");
}

const Tensor& ValueReader::value() {
  size_t from = at_;
  auto it = values_.find(id());
  if (it != values_.end()) return it->second;
  at_ = from;
  fail("the value is not there yet");
}

TensorType ValueReader::type() {
  TensorType t;
  size_t from = at_;
  std::string dtype = word("a dtype");
  try {
    t.dtype = dtype_from_name(dtype);
  } catch (const Error& e) {
    at_ = from;
    fail(e.message());
  }
  t.sizes = sizes();
  for (auto s : t.sizes)
    if (sym::is_run_time(s) ? s.node()->high < 0 : s.hint() < 0) fail("a negative size");
  if (!is_countable(t.sizes)) fail("a tensor of too many elements");
  if (accept_word("strides")) t.strides = sizes();
  else t.strides = contiguous_strides(t.sizes);
  if (t.strides.size() != t.sizes.size()) fail("as many strides as sizes are expected");
  for (auto s : t.strides)
    if (s.hint() < 0) fail("a negative stride");
  t.number = accept_word("number");
  if (accept_word("on")) fail("only values on the CPU are supported");
  t.held = accept_word("held");
  return t;
}

op::Args ValueReader::arguments(const op::Operator& o, const std::function<Tensor()>& tensor) {
  std::vector<op::Args> attributes;
  std::vector<std::vector<TensorImpl*>> lists(o.schema.parameters.size());
  std::vector<Tensor> held;
  std::vector<op::Value> values;
  expect('(');
  for (size_t k = 0; k < o.schema.parameters.size(); ++k) {
    auto& p = o.schema.parameters[k];
    auto one = [&]() -> TensorImpl* {
      if (accept_word("None")) return nullptr;
      held.push_back(tensor());
      return held.back().impl();
    };
    if (k) expect(',');
    if (p.type != Type::Tensor) {
      if (!accept_word(p.name)) fail("expected " + p.name + "=");
      expect('=');
      if (p.is_number_operand() && next_is('%')) {
        values.push_back(one());
        continue;
      }
      attributes.push_back(is_word("object") ? object(p) : is_expression(p) ? of_size() : attribute(p));
      values.push_back(attributes.back()[0]);
      continue;
    }
    if (p.list && next_is('[')) {
      lists[k] = list<TensorImpl*>(one);
      values.push_back(std::span<TensorImpl* const>(lists[k]));
    } else if (is_number()) {
      attributes.push_back(is_expression(p) ? of_size() : scalar());
      values.push_back(attributes.back()[0]);
    } else {
      values.push_back(one());
    }
  }
  expect(')');
  return op::Args(values, o.schema);
}

bool ValueReader::is_expression(const op::Parameter& p) {
  if (p.type != Type::Scalar && p.type != Type::Tensor && p.type != Type::Float) return false;
  skip();
  auto rest = text_.substr(at_);
  if (rest.starts_with("min(") || rest.starts_with("max(")) return true;
  rest = rest.substr(0, rest.find_first_of(",\n"));
  for (size_t at = 0; at < rest.size();) {
    size_t end = at;
    while (end < rest.size() && in_word(rest[end])) ++end;
    if (is_symbol(rest.substr(at, end - at))) return true;
    at = end + 1;
  }
  return false;
}

bool ValueReader::is_number() {
  skip();
  return at_ < text_.size() &&
         (std::isdigit(uint8_t(text_[at_])) ||
          std::string_view("-(").find(text_[at_]) != std::string_view::npos || is_word("True") ||
          is_word("False") || is_word("inf") || is_word("nan") || is_expression({}));
}

bool ValueReader::is_word(std::string_view w) {
  size_t from = at_;
  bool is = accept_word(w);
  at_ = from;
  return is;
}

op::Args ValueReader::of_size() {
  op::Value v(integer());
  return op::Args(std::span<const op::Value>(&v, 1));
}

op::Args ValueReader::object(const op::Parameter& p) {
  size_t from = at_;
  accept_word("object");
  if (p.type != Type::Object || objects_.empty()) {
    at_ = from;
    fail("no object is expected here");
  }
  op::Value v(objects_[size_t(plain(0, int64_t(objects_.size()) - 1))].get());
  return op::Args(std::span<const op::Value>(&v, 1));
}

op::Args ValueReader::scalar() {
  op::Value v(number(Type::Scalar));
  return op::Args(std::span<const op::Value>(&v, 1));
}

}  // namespace facula::graph
