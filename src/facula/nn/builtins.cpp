// Python's builtins for translated code: methods of values, functions, and the classes of container modules.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "facula/autograd/autograd.h"
#include "facula/autograd/tracing.h"
#include "facula/nn/state.h"
#include "facula/ops.h"
#include "facula/run/autocast.h"
#include "facula/tensor/promotion.h"
#include "facula/tensor/sparse.h"

namespace facula::nn {

using io::List;
using io::Value;
using Kind = Value::Kind;

// ---- methods

namespace {
using Method = Value (*)(const Value& self, Arguments& a);
struct BuiltinMethod {
  std::string_view name;
  Method method;
};

Value as_dtype(const Value& self, DType d) { return to(self.tensor(), d); }
Value nested(const Tensor& t, int d, List at) {
  if (d == t.dim()) {
    Scalar s = item(Value(t), io::Tuple{at}).tensor().item();
    switch (s.category()) {
      case Category::boolean: return s.to_bool();
      case Category::integral: return s.to_int();
      case Category::complex: return s.to_complex();
      default: return s.to_double();
    }
  }
  List all;
  for (int64_t k = 0; k < t.size(d).guard_int(); ++k) {
    List next = at;
    next.push_back(k);
    all.push_back(nested(t, d + 1, std::move(next)));
  }
  return all;
}

// Methods of tensors that are not operators.
constexpr BuiltinMethod tensor_methods[] = {
    {"dim", [](const Value& t, Arguments&) -> Value { return int64_t(t.tensor().dim()); }},
    {"numel", [](const Value& t, Arguments&) -> Value { return t.tensor().numel().guard_int(); }},
    {"is_floating_point",
     [](const Value& t, Arguments&) -> Value { return is_floating(t.tensor().dtype()); }},
    {"detach", [](const Value& t, Arguments&) -> Value { return autograd::detach(t.tensor()); }},
    {"is_complex",
     [](const Value& t, Arguments&) -> Value { return facula::is_complex(t.tensor().dtype()); }},
    {"float", [](const Value& t, Arguments&) { return as_dtype(t, DType::Float32); }},
    {"bfloat16", [](const Value& t, Arguments&) { return as_dtype(t, DType::BFloat16); }},
    {"double", [](const Value& t, Arguments&) { return as_dtype(t, DType::Float64); }},
    {"long", [](const Value& t, Arguments&) { return as_dtype(t, DType::Int64); }},
    {"tolist", [](const Value& t, Arguments&) { return nested(t.tensor(), 0, {}); }},
    {"item", [](const Value& t, Arguments&) { return nested(reshape(t.tensor(), Sizes(SymSpan())), 0, {}); }},
    {"size",
     [](const Value& t, Arguments& a) {
       Value shape = attribute(t, "shape");
       return a.items.empty() ? shape : shape[a.items[0]];
     }},
    {"is_contiguous",
     [](const Value& t, Arguments& a) -> Value {
       return t.tensor().is_contiguous(a.named.empty() ? MemoryFormat::contiguous
                                                       : MemoryFormat::channels_last);
     }},
};

char lowered(char c) { return char(std::tolower(c)); }
char raised(char c) { return char(std::toupper(c)); }
Value changed(const Value& s, char (*f)(char)) {
  std::string r = s.string();
  std::transform(r.begin(), r.end(), r.begin(), f);
  return r;
}
constexpr BuiltinMethod string_methods[] = {
    {"lower", [](const Value& s, Arguments&) { return changed(s, lowered); }},
    {"upper", [](const Value& s, Arguments&) { return changed(s, raised); }},
    {"startswith",
     [](const Value& s, Arguments& a) -> Value { return s.string().starts_with(a.items[0].string()); }},
    {"join",
     [](const Value& s, Arguments& a) -> Value {
       std::string r;
       for (auto& v : items_of(a.items[0])) r += (r.empty() ? "" : s.string()) + v.string();
       return r;
     }},
    {"split",
     [](const Value& s, Arguments& a) -> Value {
       List parts;
       const std::string &all = s.string(), &by = a.items[0].string();
       size_t from = 0;
       for (size_t at; (at = all.find(by, from)) != all.npos; from = at + by.size())
         parts.push_back(all.substr(from, at - from));
       parts.push_back(all.substr(from));
       return parts;
     }},
    {"format",
     [](const Value& s, Arguments& a) -> Value {
       std::string r = s.string();
       for (size_t k = 0, at; k < a.items.size() && (at = r.find("{}")) != r.npos; ++k)
         r.replace(at, 2, text(a.items[k]));
       return r;
     }},
};
constexpr BuiltinMethod sequence_methods[] = {
    {"append", [](const Value& l, Arguments& a) -> Value { return l.list().push_back(a.items[0]), Value(); }},
    {"index",
     [](const Value& l, Arguments& a) -> Value {
       auto it = std::find(l.list().begin(), l.list().end(), a.items[0]);
       value_check(it != l.list().end(), "") << text(a.items[0]) << " is not in the sequence";
       return int64_t(it - l.list().begin());
     }},
    {"pop",
     [](const Value& l, Arguments& a) -> Value {
       Value taken = l[a.items.empty() ? Value(-1) : a.items[0]];
       int64_t k = a.items.empty() ? -1 : a.items[0].integer();
       l.list().erase(k < 0 ? l.list().end() + k : l.list().begin() + k);
       return taken;
     }},
};
void take_all(io::Dict& d, const Arguments& a) {  // the semantics of update() and dict()
  for (auto& source : a.items) {
    if (source.is_dict() || source.object<Mapping>()) {
      for (auto& [k, v] : dict_of(source)) d.set(k, v);
      continue;
    }
    for (auto& pair : items_of(source)) d.set(pair[0], pair[1]);
  }
  for (auto& [k, v] : a.named) d.set(k, v);  // later ones override
}
constexpr BuiltinMethod dict_methods[] = {
    {"get",
     [](const Value& d, Arguments& a) -> Value {
       const Value* v = std::as_const(dict_of(d)).find(a.items[0]);
       return v ? *v : a.items.size() > 1 ? a.items[1] : Value();
     }},
    {"setdefault",
     [](const Value& d, Arguments& a) -> Value {
       if (!dict_of(d).contains(a.items[0])) dict_of(d).set(a.items[0], a.items[1]);
       return dict_of(d).at(a.items[0]);
     }},
    {"update", [](const Value& d, Arguments& a) -> Value { return take_all(dict_of(d), a), Value(); }},
    {"pop",
     [](const Value& d, Arguments& a) -> Value {
       Value* v = dict_of(d).find(a.items[0]);
       index_check(v || a.items.size() > 1, "") << io::to_string(a.items[0]);
       if (!v) return a.items[1];
       Value taken = *v;
       dict_of(d).erase(a.items[0]);
       return taken;
     }},
    {"items",
     [](const Value& d, Arguments&) -> Value {
       List all;
       for (auto& [k, v] : dict_of(d)) all.push_back(io::Tuple{{k, v}});
       return all;
     }},
};

Module& module_of(const Value& v) { return v.object<ModuleObject>()->module; }
Value register_named(const Value& m, Arguments& a, bool parameter) {
  const Value& v = a.items[1];
  const std::string& name = a.items[0].string();
  auto* p = v.object<ParameterObject>();
  if (p) module_of(m).register_parameter(name, p->tensor, p->requires_grad);
  else if (parameter) module_of(m).register_parameter(name, v.is_none() ? Tensor() : v.tensor());
  // converted by to()
  else module_of(m).register_buffer(name, v.is_none() ? Tensor() : v.tensor().detached());
  return {};
}
constexpr BuiltinMethod module_methods[] = {
    {"register_parameter", [](const Value& m, Arguments& a) { return register_named(m, a, true); }},
    {"register_buffer", [](const Value& m, Arguments& a) { return register_named(m, a, false); }},
    {"_get_name", [](const Value& m, Arguments&) -> Value { return module_of(m).kind(); }},
    {"parameters",
     [](const Value& m, Arguments&) -> Value {
       List all;
       for (auto& p : module_of(m).parameters()) all.push_back(p);
       return all;
     }},
    {"buffers",
     [](const Value& m, Arguments&) -> Value {
       List all;
       for (auto& b : module_of(m).buffers()) all.push_back(b);
       return all;
     }},
    {"modules",
     [](const Value& m, Arguments&) -> Value {
       List all;
       for (auto& [name, x] : module_of(m).named_modules()) all.push_back(std::make_shared<ModuleObject>(x));
       return all;
     }},
};

template <size_t N>
const BuiltinMethod* find_in(const BuiltinMethod (&methods)[N], std::string_view name) {
  for (auto& m : methods)
    if (m.name == name) return &m;
  return nullptr;
}
const BuiltinMethod* find_method(const Value& self, std::string_view name) {
  switch (self.kind()) {
    case Kind::tensor: return find_in(tensor_methods, name);
    case Kind::string: return find_in(string_methods, name);
    case Kind::list:
    case Kind::tuple: return find_in(sequence_methods, name);
    case Kind::dict: return find_in(dict_methods, name);
    default:
      if (self.object<Mapping>()) return find_in(dict_methods, name);
      return self.object<ModuleObject>() ? find_in(module_methods, name) : nullptr;
  }
}
}  // namespace

Value method(const Value& self, const char* name, Arguments&& a) {
  if (auto* m = find_method(self, name)) return m->method(self, a);
  if (self.is_tensor()) {
    a.items.insert(a.items.begin(), self);
    return call(operator_value(name), std::move(a));
  }
  auto* o = self.object<ModuleObject>();
  const Class* type = o ? Dynamic::state(o->module).type : nullptr;
  const Class::Member* member = type ? type->find(name) : nullptr;
  if (member && member->kind == Class::Kind::method) {
    a.items.insert(a.items.begin(), self);
    return member->body(a);
  }
  return call(attribute(self, name), std::move(a));
}
Value method(const Value& self, const char* name, const Overloads& operators, Arguments&& a) {
  if (!self.is_tensor() || find_method(self, name)) return method(self, name, std::move(a));
  a.items.insert(a.items.begin(), self);
  return operators(std::move(a));
}

// ---- functions

namespace {
int64_t integer_of(const Value& v) {
  if (v.is_tensor()) return v.tensor().item().to_int();
  return v.kind() == Kind::real ? int64_t(v.number()) : v.integer();
}
bool less(const Value& a, const Value& b) { return truth(Two{a, b}.lt()); }
Value best(Arguments& a, bool greatest) {
  List all = a.items.size() == 1 ? items_of(a.items[0]) : a.items;
  value_check(!all.empty() || !a.named.empty(), "") << "min() or max() of nothing";
  if (all.empty()) return a.named[0].second;  // default=
  Value extreme = all[0];
  for (auto& v : all)
    if (greatest ? less(extreme, v) : less(v, extreme)) extreme = v;
  return extreme;
}
List sorted(List all) {
  std::stable_sort(all.begin(), all.end(), less);
  return all;
}
List first_items(Arguments& a) { return a.items.empty() ? List() : items_of(a.items[0]); }
double math_argument(Arguments& a) { return a.items[0].number(); }
}  // namespace

Value py_int(Arguments& a) { return integer_of(a.items[0]); }
Value py_float(Arguments& a) {
  if (a.items[0].kind() == Kind::string) return std::stod(a.items[0].string());
  return a.items[0].number();
}
Value py_bool(Arguments& a) { return truth(a.items[0]); }
Value py_str(Arguments& a) { return text(a.items[0]); }
Value py_tuple(Arguments& a) { return io::Tuple{first_items(a)}; }
Value py_list(Arguments& a) { return first_items(a); }
Value py_dict(Arguments& a) {
  io::Dict d;
  take_all(d, a);
  return d;
}
Value py_len(Arguments& a) {
  auto& v = a.items[0];
  if (v.is_tensor()) return v.tensor().size(0).guard_int();
  return int64_t(v.object<ModuleObject>() ? items_of(v).size() : v.size());
}
Value py_min(Arguments& a) { return best(a, false); }
Value py_max(Arguments& a) { return best(a, true); }
Value py_sum(Arguments& a) {
  Value total = a.items.size() > 1 ? a.items[1] : Value(0);
  for (auto& v : items_of(a.items[0])) total = Two{total, v}.add();
  return total;
}
Value py_any(Arguments& a) {
  for (auto& v : items_of(a.items[0]))
    if (truth(v)) return true;
  return false;
}
Value py_all(Arguments& a) {
  for (auto& v : items_of(a.items[0]))
    if (!truth(v)) return false;
  return true;
}
Value py_zip(Arguments& a) {
  std::vector<List> columns;
  size_t n = SIZE_MAX;
  for (auto& v : a.items) n = std::min(n, columns.emplace_back(items_of(v)).size());
  List rows;
  for (size_t k = 0; k < n && !columns.empty(); ++k) {
    io::Tuple row;
    for (auto& c : columns) row.items.push_back(c[k]);
    rows.push_back(row);
  }
  return rows;
}
Value py_enumerate(Arguments& a) {
  List rows;
  for (auto& v : items_of(a.items[0])) rows.push_back(io::Tuple{{int64_t(rows.size()), v}});
  return rows;
}
Value py_range(Arguments& a) {
  auto& i = a.items;
  int64_t from = i.size() > 1 ? i[0].integer() : 0, to = i[i.size() > 1].integer();
  int64_t step = i.size() > 2 ? i[2].integer() : 1;
  List all;
  for (int64_t k = from; step > 0 ? k < to : k > to; k += step) all.push_back(k);
  return all;
}
Value py_map(Arguments& a) {
  List all;
  for (auto& v : items_of(a.items[1])) all.push_back(call(a.items[0], {v}));
  return all;
}
Value py_sorted(Arguments& a) { return sorted(items_of(a.items[0])); }
Value py_reversed(Arguments& a) {
  List all = items_of(a.items[0]);
  std::reverse(all.begin(), all.end());
  return all;
}
Value py_set(Arguments& a) {
  List all;
  for (auto& v : first_items(a))
    if (std::find(all.begin(), all.end(), v) == all.end()) all.push_back(v);
  return all;
}
Value py_getattr(Arguments& a) {
  const std::string& name = a.items[1].string();
  if (a.items.size() > 2 && !has_attribute(a.items[0], name)) return a.items[2];
  return attribute(a.items[0], name);
}
Value py_setattr(Arguments& a) { return set_attribute(a.items[0], a.items[1].string(), a.items[2]), Value(); }
Value py_abs(Arguments& a) {
  if (a.items[0].is_tensor()) return facula::abs(a.items[0].tensor());
  return less(a.items[0], 0) ? negative(a.items[0]) : a.items[0];
}
Value py_callable(Arguments& a) {
  auto& v = a.items[0];
  return v.object<Function>() || v.object<ModuleObject>() || v.object<ClassObject>();
}
Value py_complex(Arguments& a) { return std::complex<double>(a.items[0].number(), a.items[1].number()); }
Value py_type(Arguments& a) { return type_name(a.items[0]); }
Value math_sqrt(Arguments& a) {
  value_check(math_argument(a) >= 0, "") << "math domain error";
  return std::sqrt(math_argument(a));
}
Value math_floor(Arguments& a) { return int64_t(std::floor(math_argument(a))); }
Value math_ceil(Arguments& a) { return int64_t(std::ceil(math_argument(a))); }
Value math_log(Arguments& a) { return std::log(math_argument(a)); }
Value math_erf(Arguments& a) { return std::erf(math_argument(a)); }
Value math_cos(Arguments& a) { return std::cos(math_argument(a)); }
Value bisect_right(Arguments& a) {
  auto& all = a.items[0].list();
  return int64_t(std::upper_bound(all.begin(), all.end(), a.items[1], less) - all.begin());
}
Value counter(Arguments& a) {
  io::Dict counts;
  for (auto& v : items_of(a.items[0])) counts.set(v, Two{counts.contains(v) ? counts.at(v) : 0, 1}.add());
  return counts;
}
Value math_prod(Arguments& a) {
  Value product = 1;
  for (auto& v : items_of(a.items[0])) product = Two{product, v}.mul();
  return product;
}

// ---- of Facula

Value make_parameter(Arguments& a) {
  bool grad = a.items.size() < 2 || truth(a.items[1]);
  return std::make_shared<ParameterObject>(autograd::detach(a.items[0].tensor()), grad);
}
// Creates a tensor from a number, or a list of numbers.
Value make_tensor(Arguments& a) {
  DType d = DType::Int64;
  for (auto& [name, v] : a.named)
    if (name == "dtype") d = v.dtype();
  auto& v = a.items[0];
  auto scalar = [&](const Value& x) {
    return Tensor::scalar(is_floating(d) ? Scalar(x.number()) : Scalar(x.integer()), d);
  };
  if (v.kind() != Kind::list) return scalar(v);
  if (v.list().empty()) return Tensor::empty(IntSpan(Ints{0}), d);
  List all;
  for (auto& x : v.list()) all.push_back(scalar(x));
  return FACULA_OPERATOR("stack")({all});
}

namespace {
Value copied(const Value& v) {
  if (v.is_tensor()) return clone(v.tensor());
  if (v.is_dict()) {
    io::Dict d;
    for (auto& [k, x] : v.dict()) d.set(k, copied(x));
    return d;
  }
  if (v.kind() == Kind::list || v.kind() == Kind::tuple) {
    List all;
    for (auto& x : v.list()) all.push_back(copied(x));
    return v.kind() == Kind::list ? Value(std::move(all)) : Value(io::Tuple{std::move(all)});
  }
  return v;
}
Module copied(const Module& m) {
  auto& from = Dynamic::state(m);
  user_check(!from.forward, m.kind()) << "a " << m.kind() << " can't be copied";
  Module to(from.kind);
  auto& s = Dynamic::state(to);
  s.type = from.type;
  s.options = from.options;
  s.training = from.training;
  s.attributes = copied(from.attributes);
  autograd::GradMode off(false);
  auto fresh = [](const Tensor& t) { return t.defined() ? clone(t.detached()) : Tensor(); };
  for (auto& [name, t] : from.parameters)
    to.register_parameter(name, fresh(t), !t.defined() || t.requires_grad());
  for (auto& [name, b] : from.buffers) to.register_buffer(name, fresh(b.tensor), b.persistent);
  for (auto& [name, child] : from.modules) to.register_module(name, copied(child));
  return to;
}
}  // namespace
Value deep_copy(Arguments& a) {
  if (auto* o = a.items[0].object<ModuleObject>()) return std::make_shared<ModuleObject>(copied(o->module));
  return copied(a.items[0]);
}

// require(valid, (type of the error), text): like facula.program.require.
Value require(Arguments& a) {
  supported_check(!a.items[0].tensor().is_traced(), "trace")
      << "a function is traced that checks elements: " << a.items[2].string();
  if (!truth(a.items[0])) raise(ErrorType(a.items[1].integer()), a.items[2].string());
  return {};
}
Value autocast_state(Arguments&) { return io::Tuple{{run::autocast_state().enabled}}; }
// Calls a function outside of the current trace.
Value outside_of_trace(Arguments& a) {
  op::Mode::With mode{autograd::Tracing::current() ? nullptr : op::Mode::current()};
  autograd::Tracing::With trace{nullptr};
  Value f = a.items[0];
  a.items.erase(a.items.begin());
  return call(f, std::move(a));
}
Value is_tracing(Arguments&) { return autograd::Tracing::current() != nullptr; }
// Rounds to float32.
Value single(Arguments& a) {
  if (a.items[0].is_tensor()) return to(to(a.items[0].tensor(), DType::Float32), DType::Float64);
  return double(float(a.items[0].number()));
}
Value finfo(Arguments& a) {
  auto of = [](double eps, double tiny) { return io::Dict{{"eps", eps}, {"tiny", tiny}}; };
  switch (a.items[0].dtype()) {
    case DType::Float64: return of(0x1p-52, 0x1p-1022);
    case DType::Float16: return of(0x1p-10, 0x1p-14);
    case DType::BFloat16: return of(0x1p-7, 0x1p-126);
    default: return of(0x1p-23, 0x1p-126);
  }
}
// For (optimizer, parameters): parameters with a dense gradient, these gradients, and parameters with a sparse one.
Value parameters_by_layout(Arguments& a) {
  List dense, grads, sparse;
  for (auto& v : a.items[1].list()) {
    const Tensor& p = v.tensor();
    Tensor g = autograd::grad_of(p);
    if (!g.defined()) continue;
    user_check(Dims(g.sizes()) == Dims(p.sizes()), a.items[0].string())
        << "the gradient of a parameter of shape " << facula::to_string(p.sizes()) << " has shape "
        << facula::to_string(g.sizes());
    bool is_dense = !is_sparse(g.impl());
    (is_dense ? dense : sparse).push_back(p);
    if (is_dense) grads.push_back(g);
  }
  return io::Tuple{{dense, grads, sparse}};
}
Value promote_types(Arguments& a) { return promote(a.items[0].dtype(), a.items[1].dtype()); }

// ---- containers

namespace {
Value no_members(Arguments&) { return {}; }
Value add_all(Arguments& a) {
  Module m = module_of(a.items[0]);
  for (size_t k = 1; k < a.items.size(); ++k)
    m.register_module(std::to_string(m.children().size()), module_of(a.items[k]));
  return {};
}
Value fill_list(Arguments& a) {
  if (a.items.size() < 2) return {};
  Arguments all{a.items[0]};
  for (auto& v : items_of(a.items[1])) all.items.push_back(v);
  return add_all(all);
}
Value run_all(Arguments& a) {
  Value x = a.items.at(1);
  for (auto& child : module_of(a.items[0]).children()) x = forward(child, {x});
  return x;
}

// Creates an optimizer: groups with defaults, and states.
Value make_optimizer(Arguments& a) {
  Value self = a.items[0], defaults = a.items[2];
  set_attribute(self, "defaults", defaults);
  for (auto& group : a.items[1].list())
    for (auto& [name, v] : defaults.dict())
      if (!group.contains(name)) group.dict().set(name, v);
  set_attribute(self, "param_groups", a.items[1]);
  set_attribute(self, "state", std::make_shared<States>());
  return {};
}
Value first_numbers(Arguments&) { return io::Dict{{"step", 0.0}}; }
Value loss_of(Arguments& a) {
  autograd::GradMode on(true);
  return a.items.at(1).is_none() ? Value() : call(a.items[1], {});
}
Value step_by_groups(Arguments& a) {
  autograd::GradMode off(false);
  for (auto& group : items_of(attribute(a.items[0], "param_groups")))
    method(a.items[0], "_step_group", {group});
  return {};
}
}  // namespace
const Class module_class{"Module", nullptr, {{"__init__", Class::Kind::method, no_members}}};
const Class module_list_class{"ModuleList",
                              &module_class,
                              {{"__init__", Class::Kind::method, fill_list},
                               {"append", Class::Kind::method, add_all}}};
const Class optimizer_class{"Optimizer",
                            nullptr,
                            {{"__init__", Class::Kind::method, make_optimizer},
                             {"step", Class::Kind::method, step_by_groups},
                             {"_loss_of", Class::Kind::method, loss_of},
                             {"_numbers", Class::Kind::constant, first_numbers}}};
const Class sequential_class{"Sequential",
                             &module_class,
                             {{"__init__", Class::Kind::method, add_all},
                              {"forward", Class::Kind::method, run_all}}};

}  // namespace facula::nn
