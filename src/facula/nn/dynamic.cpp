#include "facula/nn/dynamic.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <unordered_map>

#include "facula/autograd/autograd.h"
#include "facula/base/warning.h"
#include "facula/nn/state.h"
#include "facula/ops.h"
#include "facula/tensor/sparse.h"

namespace facula::nn {

using io::Dict;
using io::List;
using io::Value;
using Kind = Value::Kind;

Arguments&& Arguments::spread(const Value& sequence) && {
  for (auto& v : items_of(sequence)) items.push_back(v);
  return std::move(*this);
}
Arguments&& Arguments::spread_named(const Value& dict) && {
  for (auto& [k, v] : dict.dict()) named.emplace_back(k.string(), v);
  return std::move(*this);
}

const Class::Member* Class::find(std::string_view member) const {
  for (auto& m : members)
    if (m.name == member) return &m;
  return base ? base->find(member) : nullptr;
}
bool Class::derives_from(const Class& c) const { return this == &c || (base && base->derives_from(c)); }

Bound::Bound(Arguments& a, const char* function, std::span<const std::string_view> names, size_t positional,
             size_t required, bool rest, bool rest_named)
    : values_(names.size()), given_(names.size(), false) {
  type_check(rest || a.items.size() <= positional, function)
      << "takes " << positional << " positional arguments but " << a.items.size() << " were given";
  for (size_t k = 0; k < a.items.size(); ++k) {
    if (k >= positional) {
      rest_.push_back(std::move(a.items[k]));
      continue;
    }
    values_[k] = std::move(a.items[k]);
    given_[k] = true;
  }
  for (auto& [name, v] : a.named) {
    size_t k = size_t(std::find(names.begin(), names.end(), name) - names.begin());
    if (k == names.size()) {
      type_check(rest_named, function) << "got an unexpected keyword argument '" << name << "'";
      rest_named_.set(name, std::move(v));
      continue;
    }
    type_check(!given_[k], function) << "got multiple values for argument '" << name << "'";
    values_[k] = std::move(v);
    given_[k] = true;
  }
  for (size_t k = 0; k < required; ++k)
    type_check(given_[k], function) << "missing the argument '" << names[k] << "'";
}

void raise(ErrorType type, const std::string& message) { throw Error(ErrorKind::user, type, "", message); }
Value unsupported(const char* what) {
  supported_check(false, "nn") << what << " is there in Python alone";
  __builtin_unreachable();
}
void warn(const Value& text) { warn_once(text.string()); }

Value function(std::string name, std::function<Value(Arguments&)> f) {
  return std::make_shared<Function>(std::move(name), std::move(f));
}
Value operator_value(std::string_view name) {
  static std::mutex lock;
  static std::unordered_map<std::string, Value> functions;  // one function object per name, as in Python
  std::lock_guard guard(lock);
  Value& v = functions[std::string(name)];
  if (v.is_none())
    v = function(std::string(name), [o = Overloads(name)](Arguments& a) { return o(std::move(a)); });
  return v;
}
Value class_value(const Class& c) { return std::make_shared<ClassObject>(&c); }

Module construct(const Class& c, Arguments&& a) {
  Module m(c.name);
  Dynamic::state(m).type = &c;
  a.items.insert(a.items.begin(), Value(std::make_shared<ModuleObject>(m)));
  c.find("__init__")->body(a);
  return m;
}
Value instance(const Class& c, Arguments&& a) {
  return std::make_shared<ModuleObject>(construct(c, std::move(a)));
}
Value forward(const Module& m, Arguments&& a) {
  auto& state = Dynamic::state(m);
  if (state.forward) return state.forward(a);
  supported_check(state.type, m.kind()) << "a " << m.kind() << " can't be called by other modules";
  a.items.insert(a.items.begin(), Value(std::make_shared<ModuleObject>(m)));
  return state.type->find("forward")->body(a);
}

Tensor own_tensor(const Module& m, std::string_view name) {
  auto& s = Dynamic::state(m);
  if (auto* t = find_named(s.parameters, name)) return *t;
  auto* b = find_named(s.buffers, name);
  return b ? b->tensor : Tensor();
}
std::tuple<Tensor, Tensor> two_tensors(const Value& v) {
  auto& l = v.list();
  return {l.at(0).tensor(), l.at(1).is_none() ? Tensor() : l.at(1).tensor()};
}

Argument::Argument(const Module& m) : Argument(Value(std::make_shared<ModuleObject>(m))) {}
Value Argument::function_of(std::function<Tensor(std::span<const Tensor>)> f, size_t arity) {
  return function("<function of C++>", [f = std::move(f), arity](Arguments& a) -> Value {
    type_check(a.items.size() == arity, "")
        << "a function of " << arity << " tensors gets " << a.items.size();
    std::vector<Tensor> x;
    for (auto& v : a.items) x.push_back(v.tensor());
    return f(x);
  });
}

Value call(const Value& f, Arguments&& a) {
  if (auto* o = f.object<Function>()) return o->call(a);
  if (auto* o = f.object<ModuleObject>()) return forward(o->module, std::move(a));
  if (auto* o = f.object<ClassObject>()) return instance(*o->type, std::move(a));
  type_check(false, "") << "'" << type_name(f).string() << "' object is not callable";
  __builtin_unreachable();
}

// ---- attributes

namespace {
Value tensor_or_none(const Tensor& t) { return t.defined() ? Value(t) : Value(); }

bool module_attribute(const Module& m, const Value& self, std::string_view name, Value& result) {
  auto& s = Dynamic::state(m);
  if (name == "training") return result = s.training, true;
  if (auto* t = find_named(s.parameters, name)) return result = tensor_or_none(*t), true;
  if (auto* b = find_named(s.buffers, name)) return result = tensor_or_none(b->tensor), true;
  if (auto* c = find_named(s.modules, name)) return result = std::make_shared<ModuleObject>(*c), true;
  if (auto* v = s.attributes.dict().find(name)) return result = *v, true;
  if (name == "__dict__") return result = s.attributes, true;
  const Class::Member* member = s.type ? s.type->find(name) : nullptr;
  if (!member) return false;
  Arguments with_self{self}, none;
  switch (member->kind) {
    case Class::Kind::constant: result = member->body(none); break;
    case Class::Kind::property: result = member->body(with_self); break;
    case Class::Kind::unbound: result = function(std::string(name), member->body); break;
    case Class::Kind::method:
      result = function(std::string(name), [self, body = member->body](Arguments& a) {
        a.items.insert(a.items.begin(), self);
        return body(a);
      });
  }
  return true;
}

Value shape_of(const Tensor& t) {
  io::Tuple sizes;
  for (auto& n : t.sizes()) sizes.items.push_back(n.guard_int());
  return sizes;
}

bool tensor_attribute(const Tensor& t, std::string_view name, Value& result) {
  if (name == "shape") return result = shape_of(t), true;
  if (name == "dtype") return result = t.dtype(), true;
  if (name == "device") return result = to_string(t.device()), true;
  if (name == "requires_grad") return result = t.requires_grad(), true;
  if (name == "grad") return result = tensor_or_none(autograd::grad_of(t)), true;
  if (name == "is_sparse") return result = is_sparse(t.impl()), true;
  return false;
}

bool dtype_attribute(DType d, std::string_view name, Value& result) {
  if (name == "is_floating_point") return result = facula::is_floating(d), true;
  if (name == "is_complex") return result = facula::is_complex(d), true;
  if (name == "itemsize") return result = int64_t(itemsize(d)), true;
  return false;
}

bool find_attribute(const Value& self, std::string_view name, Value& result) {
  if (auto* o = self.object<ModuleObject>()) return module_attribute(o->module, self, name, result);
  if (auto* o = self.object<Native>()) return o->find(name, result);
  if (self.is_tensor()) return tensor_attribute(self.tensor(), name, result);
  if (self.kind() == Kind::dtype) return dtype_attribute(self.dtype(), name, result);
  if (self.is_dict()) {  // a record, such as finfo returns
    const Value* v = std::as_const(self.dict()).find(std::string(name));
    return v && (result = *v, true);
  }
  if (auto* o = self.object<ClassObject>(); o && name == "__name__") return result = o->type->name, true;
  if (self.kind() == Kind::string && name == "__name__") return result = self, true;  // the name of type(x)
  return false;
}
}  // namespace

Value attribute(const Value& self, std::string_view name) {
  Value result;
  user_check(find_attribute(self, name, result), "")
      << "'" << type_name(self).string() << "' object has no attribute '" << name << "'";
  return result;
}
bool has_attribute(const Value& self, std::string_view name) {
  Value result;
  return find_attribute(self, name, result);
}

void set_attribute(const Value& self, std::string_view name, const Value& v) {
  if (auto* o = self.object<Native>()) return o->set(name, v);
  auto* o = self.object<ModuleObject>();
  internal_check(o) << name;
  auto& s = Dynamic::state(o->module);
  if (auto* p = v.object<ParameterObject>()) {
    o->module.register_parameter(std::string(name), p->tensor, p->requires_grad);
  } else if (auto* child = v.object<ModuleObject>()) {
    o->module.register_module(std::string(name), child->module);
  } else if (auto* b = find_named(s.buffers, name)) {
    b->tensor = v.is_none() ? Tensor() : v.tensor();
  } else if (auto* t = find_named(s.parameters, name)) {
    *t = v.is_none() ? Tensor() : v.tensor();
  } else {
    s.attributes.dict().set(name, v);
  }
}

Value type_name(const Value& v) {
  if (auto* o = v.object<ModuleObject>()) return o->module.kind();
  if (auto* o = v.object<Native>()) return o->type().name;
  return io::name(v.kind());
}

// ---- containers

List items_of(const Value& v) {
  if (v.kind() == Kind::list || v.kind() == Kind::tuple) return v.list();
  List all;
  if (v.is_dict()) {
    for (auto& [key, x] : v.dict()) all.push_back(key);
  } else if (v.kind() == Kind::string) {
    for (char c : v.string()) all.push_back(std::string(1, c));
  } else if (v.is_tensor()) {
    for (int64_t k = 0, n = v.tensor().size(0).guard_int(); k < n; ++k)
      all.push_back(select(v.tensor(), 0, k));
  } else if (auto* o = v.object<ModuleObject>()) {
    for (auto& child : o->module.children()) all.push_back(std::make_shared<ModuleObject>(child));
  } else {
    type_check(false, "") << "'" << type_name(v).string() << "' object is not iterable";
  }
  return all;
}
List unpacked(const Value& v, size_t count) {
  List all = items_of(v);
  value_check(all.size() == count, "") << "expected " << count << " values to unpack, got " << all.size();
  return all;
}
List unpacked(const Value& v, size_t before, size_t after) {
  List all = items_of(v);
  value_check(all.size() >= before + after, "")
      << "expected at least " << before + after << " values to unpack, got " << all.size();
  List result(all.begin(), all.begin() + long(before));
  result.push_back(List(all.begin() + long(before), all.end() - long(after)));
  result.insert(result.end(), all.end() - long(after), all.end());
  return result;
}

Value slice(Value start, Value stop, Value step) {
  return std::make_shared<SliceObject>(std::move(start), std::move(stop), std::move(step));
}

namespace {
template <class Sequence>
Sequence part_of(const Sequence& all, const SliceObject& s) {
  int64_t n = int64_t(all.size()), step = s.step.is_none() ? 1 : s.step.integer();
  auto place = [&](const Value& v, int64_t fallback) {
    if (v.is_none()) return fallback;
    int64_t k = v.integer();
    return std::clamp<int64_t>(k < 0 ? k + n : k, 0, n);
  };
  value_check(step != 0, "") << "slice step cannot be zero";
  Sequence part;
  if (step > 0)
    for (int64_t k = place(s.start, 0), stop = place(s.stop, n); k < stop; k += step)
      part.push_back(all[size_t(k)]);
  else
    for (int64_t k = s.start.is_none() ? n - 1 : std::min(place(s.start, n), n - 1),
                 stop = s.stop.is_none() ? -1 : place(s.stop, -1);
         k > stop; k += step)
      part.push_back(all[size_t(k)]);
  return part;
}

// A tensor indexed by integers and slices (a view) and by tensors, which are looked up together; empty if there are none.
struct Place {
  Tensor view;
  List looked_up;
};
Place place_of(const Tensor& of, const List& indices) {
  Tensor t = of;
  List looked_up;
  int d = 0;
  for (auto& i : indices) {
    if (i.is_tensor()) {
      looked_up.resize(size_t(d));
      looked_up.push_back(i);
      ++d;
    } else if (auto* s = i.object<SliceObject>()) {
      if (!s->start.is_none() || !s->stop.is_none() || !s->step.is_none())
        t = FACULA_OPERATOR("slice")({t, d, s->start, s->stop, s->step.is_none() ? Value(1) : s->step})
                .tensor();
      ++d;
    } else {
      t = select(t, d, i.integer());
    }
  }
  return {t, looked_up};
}
Value tensor_item(const Tensor& of, const List& indices) {
  Place p = place_of(of, indices);
  return p.looked_up.empty() ? Value(p.view) : FACULA_OPERATOR("index")({p.view, p.looked_up});
}
List indices_of(const Value& index) { return index.kind() == Kind::tuple ? index.list() : List{index}; }
}  // namespace

Value States::at(const Tensor& p) {
  auto& [t, state] = of[p.impl()];
  if (!t.defined()) {
    t = p;
    state = io::Dict();
  }
  return state;
}
void States::set(const Tensor& p, Value state) { of[p.impl()] = {p, std::move(state)}; }

bool Mapping::find(const Value& key, Value& result) const {
  const Value* v = std::as_const(dict()).find(key);
  return v && (result = *v, true);
}
Dict& dict_of(const Value& v) {
  auto* m = v.object<Mapping>();
  return m ? m->dict() : v.dict();
}

Value item(const Value& of, const Value& index) {
  if (auto* m = of.object<Mapping>()) {
    Value result;
    index_check(m->find(index, result), "") << "there is no key " << io::to_string(index);
    return result;
  }
  if (auto* states = of.object<States>()) return states->at(index.tensor());
  if (of.is_tensor()) return tensor_item(of.tensor(), indices_of(index));
  if (auto* s = index.object<SliceObject>()) {
    if (of.kind() == Kind::string) return part_of(of.string(), *s);
    List part = part_of(items_of(of), *s);
    return of.kind() == Kind::tuple ? Value(io::Tuple{std::move(part)}) : Value(std::move(part));
  }
  if (of.is_dict()) return of[index];
  if (of.kind() == Kind::list || of.kind() == Kind::tuple) return of[Value(index.integer())];
  return Value(items_of(of))[index];
}
void set_item(const Value& of, const Value& index, const Value& v) {
  if (auto* states = of.object<States>()) return states->set(index.tensor(), v);
  if (of.is_dict() || of.object<Mapping>()) return dict_of(of).set(index, v);
  if (!of.is_tensor()) {
    of[index] = v;
    return;
  }
  Place p = place_of(of.tensor(), indices_of(index));
  if (!p.looked_up.empty()) {
    Tensor value = v.is_tensor() ? v.tensor() : Tensor::scalar(v.number(), of.tensor().dtype());
    FACULA_OPERATOR("index_put_")({p.view, p.looked_up, value});
  } else if (v.is_tensor()) {
    copy_(p.view, v.tensor());
  } else {
    fill_(p.view, v.number());
  }
}

bool truth(const Value& v) {
  switch (v.kind()) {
    case Kind::none: return false;
    case Kind::boolean: return v.boolean();
    case Kind::integer: return v.integer() != 0;
    case Kind::real: return v.number() != 0;
    case Kind::tensor:
      user_check(v.tensor().numel() == 1, "")
          << "Boolean value of Tensor with " << v.tensor().numel() << " values is ambiguous";
      return v.tensor().item().to_bool();
    case Kind::string:
    case Kind::list:
    case Kind::tuple:
    case Kind::dict: return v.size() != 0;
    default: {
      auto* m = v.object<Mapping>();
      return !m || !m->dict().empty();
    }
  }
}
bool is_same(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  if (a.is_tensor()) return a.tensor().is_same(b.tensor());
  if (auto* m = a.object<ModuleObject>()) {
    auto* n = b.object<ModuleObject>();
    return n && m->module.is_same(n->module);
  }
  if (a.identity()) return a.identity() == b.identity();
  return a == b;
}
bool contains(const Value& of, const Value& v) {
  if (of.is_dict()) return of.contains(v);
  if (auto* m = of.object<Mapping>()) {
    Value result;
    return m->find(v, result);
  }
  if (of.kind() == Kind::string) return of.string().find(v.string()) != std::string::npos;
  for (auto& x : items_of(of))
    if (x == v) return true;
  return false;
}

bool is_a(const Value& v, unsigned kinds) {
  switch (v.kind()) {
    case Kind::boolean: return kinds & (is_bool | is_int);
    case Kind::integer: return kinds & is_int;
    case Kind::real: return kinds & is_float;
    case Kind::complex: return kinds & is_complex;
    case Kind::string: return kinds & is_str;
    case Kind::tuple: return kinds & is_tuple;
    case Kind::list: return kinds & is_list;
    case Kind::dict: return kinds & is_dict;
    case Kind::tensor: return kinds & is_tensor;
    case Kind::object:
      return ((kinds & is_module) && v.object<ModuleObject>()) ||
             ((kinds & is_function) && v.object<Function>()) || ((kinds & is_dict) && v.object<Mapping>());
    default: return false;
  }
}
bool is_a(const Value& v, const Class& c) {
  if (auto* o = v.object<Native>()) return o->type().derives_from(c);
  auto* o = v.object<ModuleObject>();
  const Class* type = o ? Dynamic::state(o->module).type : nullptr;
  return type && type->derives_from(c);
}

// ---- arithmetic

namespace {
bool is_integral(const Value& v) { return v.kind() == Kind::integer || v.kind() == Kind::boolean; }
bool is_sequence(const Value& v) { return v.kind() == Kind::list || v.kind() == Kind::tuple; }
bool of_tensors(const Two& x) { return x.a.is_tensor() || x.b.is_tensor(); }

template <class F, class G>
Value numeric(const Two& x, F of_ints, G of_floats) {
  if (is_integral(x.a) && is_integral(x.b)) return of_ints(x.a.integer(), x.b.integer());
  return of_floats(x.a.number(), x.b.number());
}
[[noreturn]] void by_zero() { raise(ErrorType::ValueError, "division by zero"); }
int64_t floor_div(int64_t a, int64_t b) {
  if (b == 0) by_zero();
  return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
}
Value same_kind(const Value& like, List items) {
  return like.kind() == Kind::tuple ? Value(io::Tuple{std::move(items)}) : Value(std::move(items));
}
Value repeated(const Value& sequence, int64_t count) {
  List all;
  for (int64_t k = 0; k < count; ++k)
    for (auto& v : sequence.list()) all.push_back(v);
  return same_kind(sequence, std::move(all));
}
int order(const Two& x) {  // orders numbers, strings and sequences; 2: NaN
  if (is_sequence(x.a) && is_sequence(x.b)) {
    auto &a = x.a.list(), &b = x.b.list();
    for (size_t k = 0; k < std::min(a.size(), b.size()); ++k)
      if (!(a[k] == b[k])) return order({a[k], b[k]});
    return a.size() < b.size() ? -1 : a.size() > b.size();
  }
  if (x.a.kind() == Kind::string) return x.a.string().compare(x.b.string());
  if (is_integral(x.a) && is_integral(x.b))
    return x.a.integer() < x.b.integer() ? -1 : x.a.integer() > x.b.integer();
  double a = x.a.number(), b = x.b.number();
  return a < b ? -1 : a > b ? 1 : a == b ? 0 : 2;
}
}  // namespace

Value Two::add() const {
  if (of_tensors(*this)) return FACULA_OPERATOR("add")({a, b});
  if (a.kind() == Kind::string) return a.string() + b.string();
  if (is_sequence(a)) {
    List all = a.list();
    for (auto& v : b.list()) all.push_back(v);
    return same_kind(a, std::move(all));
  }
  return numeric(*this, [](int64_t x, int64_t y) { return x + y; }, [](double x, double y) { return x + y; });
}
Value Two::sub() const {
  if (of_tensors(*this)) return FACULA_OPERATOR("sub")({a, b});
  return numeric(*this, [](int64_t x, int64_t y) { return x - y; }, [](double x, double y) { return x - y; });
}
Value Two::mul() const {
  if (of_tensors(*this)) return FACULA_OPERATOR("mul")({a, b});
  if (is_sequence(a)) return repeated(a, b.integer());
  if (is_sequence(b)) return repeated(b, a.integer());
  return numeric(*this, [](int64_t x, int64_t y) { return x * y; }, [](double x, double y) { return x * y; });
}
Value Two::div() const {
  if (of_tensors(*this)) return FACULA_OPERATOR("div")({a, b});
  if (b.number() == 0) by_zero();
  return a.number() / b.number();
}
Value Two::floordiv() const {
  if (of_tensors(*this)) return FACULA_OPERATOR("floor_divide")({a, b});
  return numeric(*this, floor_div, [](double x, double y) { return std::floor(x / y); });
}
Value Two::mod() const {
  if (of_tensors(*this)) return FACULA_OPERATOR("remainder")({a, b});
  return numeric(
      *this, [](int64_t x, int64_t y) { return x - floor_div(x, y) * y; },
      [](double x, double y) { return x - std::floor(x / y) * y; });
}
Value Two::pow() const {
  if (of_tensors(*this)) return FACULA_OPERATOR("pow")({a, b});
  if (is_integral(a) && is_integral(b) && b.integer() >= 0) {
    int64_t power = 1;
    for (int64_t k = 0; k < b.integer(); ++k) power *= a.integer();
    return power;
  }
  return std::pow(a.number(), b.number());
}
Value Two::matmul() const { return FACULA_OPERATOR("matmul")({a, b}); }
Value Two::bitand_() const {
  if (of_tensors(*this)) return FACULA_OPERATOR("bitwise_and")({a, b});
  return a.integer() & b.integer();
}
Value Two::eq() const { return of_tensors(*this) ? FACULA_OPERATOR("eq")({a, b}) : Value(a == b); }
Value Two::ne() const { return of_tensors(*this) ? FACULA_OPERATOR("ne")({a, b}) : Value(!(a == b)); }
Value Two::lt() const { return of_tensors(*this) ? FACULA_OPERATOR("lt")({a, b}) : Value(order(*this) < 0); }
Value Two::gt() const { return of_tensors(*this) ? FACULA_OPERATOR("gt")({a, b}) : Value(order(*this) == 1); }
Value Two::le() const { return of_tensors(*this) ? FACULA_OPERATOR("le")({a, b}) : Value(order(*this) <= 0); }
Value Two::ge() const {
  if (of_tensors(*this)) return FACULA_OPERATOR("ge")({a, b});
  int o = order(*this);
  return o == 0 || o == 1;
}
Value negative(const Value& v) {
  if (v.is_tensor()) return neg(v.tensor());
  return is_integral(v) ? Value(-v.integer()) : Value(-v.number());
}
Value inverted(const Value& v) {
  return v.is_tensor() ? Value(bitwise_not(v.tensor())) : Value(~v.integer());
}

// ---- text

namespace {
std::string formatted(const Value& v, std::string_view format) {
  if (format == "!r" || format.empty()) return io::to_string(v);
  value_check(false, "") << "the format '" << format << "' is not translated";
  return {};
}
}  // namespace
std::string text(const Value& v, std::string_view format) {
  if (v.kind() == Kind::string && format.empty()) return v.string();
  return formatted(v, format);
}

}  // namespace facula::nn
