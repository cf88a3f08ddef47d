#include "facula/io/value.h"

#include <charconv>
#include <cmath>
#include <cstring>

#include "facula/ops.h"

namespace facula::io {

Value::Value(std::string v) : data_(std::make_shared<const std::string>(std::move(v))) {}
Value::Value(List v) : data_(std::make_shared<List>(std::move(v))) {}
Value::Value(Tuple v) : data_(std::make_shared<Tuple>(std::move(v))) {}
Value::Value(Ref<CustomClassHolder> v) : Value(std::make_shared<CustomObject>(std::move(v))) {}
Value::Value(Dict v) : data_(std::make_shared<Dict>(std::move(v))) {}

const char* name(Value::Kind k) {
  static const char* const names[] = {"None",  "bool",   "int",  "float", "complex", "str",
                                      "dtype", "Tensor", "list", "tuple", "dict",    "object"};
  return names[int(k)];
}

void Value::is_no(const char* wanted) const {
  type_check(false, "") << "expected " << wanted << ", but the value is " << (is_none() ? "" : "a ")
                        << name(kind())
                        << (kind() < Kind::tensor && !is_none() ? ": " + to_string(*this, 60) : "");
  __builtin_unreachable();
}

bool Value::boolean() const {
  if (auto* v = std::get_if<bool>(&data_)) return *v;
  is_no("a bool");
}
int64_t Value::integer() const {
  if (auto* v = std::get_if<int64_t>(&data_)) return *v;
  if (auto* v = std::get_if<bool>(&data_)) return *v;
  is_no("an int");
}
double Value::number() const {
  if (auto* v = std::get_if<double>(&data_)) return *v;
  if (kind() == Kind::integer || kind() == Kind::boolean) return double(integer());
  if (auto* v = std::get_if<Tensor>(&data_); v && v->defined() && v->numel() == 1 && !is_complex(v->dtype()))
    return v->item().to_double();
  is_no("a number");
}
std::complex<double> Value::complex() const {
  if (auto* v = std::get_if<std::complex<double>>(&data_)) return *v;
  return number();
}
const std::string& Value::string() const {
  if (auto* v = std::get_if<std::shared_ptr<const std::string>>(&data_)) return **v;
  is_no("a str");
}
DType Value::dtype() const {
  if (auto* v = std::get_if<DType>(&data_)) return *v;
  is_no("a dtype");
}
const Tensor& Value::tensor() const {
  if (auto* v = std::get_if<Tensor>(&data_)) return *v;
  is_no("a Tensor");
}
List& Value::list() const {
  if (auto* v = std::get_if<std::shared_ptr<List>>(&data_)) return **v;
  if (auto* v = std::get_if<std::shared_ptr<Tuple>>(&data_)) return (*v)->items;
  is_no("a list");
}
Dict& Value::dict() const {
  if (auto* v = std::get_if<std::shared_ptr<Dict>>(&data_)) return **v;
  is_no("a dict");
}
const Ref<CustomClassHolder>& Value::custom_object() const {
  if (auto* o = object<CustomObject>()) return o->object;
  is_no("an object of a C++ class");
}

Value& Value::operator[](const Value& key) const {
  if (is_dict()) return const_cast<Value&>(std::as_const(dict()).at(key));
  List& items = list();
  int64_t k = key.integer(), n = int64_t(items.size());
  index_check(k >= -n && k < n, "") << "index " << k << " is out of range for a " << name(kind()) << " of "
                                    << n << " items";
  return items[size_t(k < 0 ? k + n : k)];
}
bool Value::contains(const Value& key) const { return dict().contains(key); }
size_t Value::size() const {
  if (is_dict()) return dict().size();
  return kind() == Kind::string ? string().size() : list().size();
}
const void* Value::identity() const {
  if (auto* o = object<CustomObject>()) return o->object.get();
  if (kind() == Kind::list) return std::get<std::shared_ptr<List>>(data_).get();
  if (kind() == Kind::tuple) return std::get<std::shared_ptr<Tuple>>(data_).get();
  if (kind() == Kind::object) return std::get<std::shared_ptr<Object>>(data_).get();
  return is_dict() ? std::get<std::shared_ptr<Dict>>(data_).get() : nullptr;
}

namespace {
bool is_real(Value::Kind k) {
  return k == Value::Kind::boolean || k == Value::Kind::integer || k == Value::Kind::real;
}

bool same_elements(const Tensor& a, const Tensor& b) {
  if (a.is_same(b)) return true;
  if (!a.defined() || !b.defined() || a.dtype() != b.dtype() || a.dim() != b.dim()) return false;
  for (int d = 0; d < a.dim(); ++d)
    if (a.size(d) != b.size(d)) return false;
  if (a.numel() == 0) return true;
  return all(eq(a.detached(), b.detached())).item().to_bool();
}
}  // namespace

bool operator==(const Value& a, const Value& b) {
  using Kind = Value::Kind;
  if (is_real(a.kind()) && is_real(b.kind()))
    return a.kind() == Kind::real || b.kind() == Kind::real ? a.number() == b.number()
                                                            : a.integer() == b.integer();
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::complex: return a.complex() == b.complex();
    case Kind::string: return a.string() == b.string();
    case Kind::dtype: return a.dtype() == b.dtype();
    case Kind::tensor: return same_elements(a.tensor(), b.tensor());
    case Kind::list:
    case Kind::tuple: return a.identity() == b.identity() || a.list() == b.list();
    case Kind::dict: {
      if (a.identity() == b.identity()) return true;
      if (a.size() != b.size()) return false;
      for (auto& [key, value] : a.dict()) {
        const Value* other = b.dict().find(key);
        if (!other || !(*other == value)) return false;
      }
      return true;
    }
    case Kind::object: return a.identity() == b.identity();
    default: return true;
  }
}

// ---- dict

namespace {
size_t hash_of(const Value& key) {
  switch (key.kind()) {
    case Value::Kind::none: return 0x9e37;
    case Value::Kind::boolean:
    case Value::Kind::integer: return size_t(key.integer()) * 0x9E3779B97F4A7C15ull >> 8;
    case Value::Kind::real: {
      double d = key.number();  // equal to the hash of an equal int
      return d == std::floor(d) && std::abs(d) < 9e15 ? hash_of(Value(int64_t(d))) : std::hash<double>()(d);
    }
    case Value::Kind::string: return std::hash<std::string>()(key.string());
    default: break;
  }
  type_check(false, "") << "a " << name(key.kind())
                        << " can't be a key of a dict: keys are None, bool, int, float or str";
  __builtin_unreachable();
}
}  // namespace

size_t Dict::slot_of(const Value& key) const {
  size_t mask = slots_.size() - 1, at = hash_of(key) & mask;
  while (slots_[at] && !(items_[slots_[at] - 1].first == key)) at = (at + 1) & mask;
  return at;
}
void Dict::rehash(size_t slots) {
  slots_.assign(slots, 0);
  for (size_t k = 0; k < items_.size(); ++k) slots_[slot_of(items_[k].first)] = uint32_t(k + 1);
}
const Value* Dict::find(const Value& key) const {
  if (slots_.empty()) return hash_of(key), nullptr;
  uint32_t k = slots_[slot_of(key)];
  return k ? &items_[k - 1].second : nullptr;
}
Value& Dict::operator[](const Value& key) {
  if (2 * (items_.size() + 1) > slots_.size()) rehash(std::max<size_t>(8, 2 * slots_.size()));
  uint32_t& k = slots_[slot_of(key)];
  if (!k) {
    items_.emplace_back(key, Value());
    k = uint32_t(items_.size());
  }
  return items_[k - 1].second;
}
const Value& Dict::at(const Value& key) const {
  const Value* v = find(key);
  index_check(v, "") << "there is no key " << to_string(key, 100) << " in this dict of " << size()
                     << " items";
  return *v;
}
void Dict::erase(const Value& key) {
  if (!contains(key)) return;
  items_.erase(items_.begin() + slots_[slot_of(key)] - 1);
  rehash(slots_.size());
}

// ---- text

namespace {
void write(std::string& out, const Value& v, size_t limit);

void write_quoted(std::string& out, std::string_view s, size_t limit) {
  out += '\'';
  for (char c : s) {
    if (out.size() > limit) return;
    if (c == '\'' || c == '\\') out += '\\';
    if (c == '\n') out += "\\n";
    else out += c;
  }
  out += '\'';
}
void write_real(std::string& out, double d) {
  if (std::isnan(d)) out += "nan";
  else if (std::isinf(d)) out += d < 0 ? "-inf" : "inf";
  else {
    // Python's format: the shortest digits, with an exponent below 1e-4 and from 1e16 on.
    char text[40];
    bool plain = d == 0 || (std::abs(d) >= 1e-4 && std::abs(d) < 1e16);
    auto format = plain ? std::chars_format::fixed : std::chars_format::scientific;
    std::string_view s(text, size_t(std::to_chars(text, text + sizeof text, d, format).ptr - text));
    out += s;
    if (s.find_first_of(".e") == s.npos) out += ".0";
  }
}
void write_items(std::string& out, const List& items, size_t limit) {
  for (size_t k = 0; k < items.size() && out.size() <= limit; ++k) {
    if (k) out += ", ";
    write(out, items[k], limit);
  }
}
void write(std::string& out, const Value& v, size_t limit) {
  using Kind = Value::Kind;
  if (out.size() > limit) return;
  switch (v.kind()) {
    case Kind::none: out += "None"; return;
    case Kind::boolean: out += v.boolean() ? "True" : "False"; return;
    case Kind::integer: out += std::to_string(v.integer()); return;
    case Kind::real: write_real(out, v.number()); return;
    case Kind::complex:
      out += "complex(";
      write_real(out, v.complex().real());
      out += ", ";
      write_real(out, v.complex().imag());
      out += ')';
      return;
    case Kind::string: write_quoted(out, v.string(), limit); return;
    case Kind::dtype: (out += "facula.") += facula::name(v.dtype()); return;
    case Kind::tensor:
      if (v.tensor().defined()) ((out += "Tensor(") += shapes_of({&v.tensor(), 1})) += ')';
      else out += "Tensor()";
      return;
    case Kind::list:
      out += '[';
      write_items(out, v.list(), limit);
      out += ']';
      return;
    case Kind::tuple:
      out += '(';
      write_items(out, v.list(), limit);
      out += v.size() == 1 ? ",)" : ")";
      return;
    case Kind::dict: {
      out += '{';
      bool first = true;
      for (auto& [key, value] : v.dict()) {
        if (out.size() > limit) return;
        if (!std::exchange(first, false)) out += ", ";
        write(out, key, limit);
        out += ": ";
        write(out, value, limit);
      }
      out += '}';
      return;
    }
    case Kind::object: out += v.object<Object>()->to_string();
  }
}
}  // namespace

std::string to_string(const Value& v, size_t limit) {
  std::string out;
  write(out, v, limit);
  if (out.size() > limit) out.replace(limit, out.npos, "...");
  return out;
}

}  // namespace facula::io
