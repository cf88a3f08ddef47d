// Calls operators by name, with the arguments of translated code.
#include <algorithm>
#include <deque>

#include "facula/autograd/autograd.h"
#include "facula/nn/dynamic.h"
#include "facula/op/describe.h"
#include "facula/op/registry.h"

namespace facula::nn {

using io::List;
using io::Value;
using Kind = Value::Kind;

namespace {
// One call in preparation: owns the memory that its values borrow.
struct Prepared {
  SmallVector<op::Value, 8> values;
  std::deque<std::vector<SymInt>> ints;
  std::deque<std::vector<TensorImpl*>> tensors;
  std::deque<std::vector<Scalar>> scalars;
};

bool is_integer(const Value& v) { return v.kind() == Kind::integer || v.kind() == Kind::boolean; }
bool is_number(const Value& v) {
  return is_integer(v) || v.kind() == Kind::real || v.kind() == Kind::complex;
}
bool is_sequence(const Value& v) { return v.kind() == Kind::list || v.kind() == Kind::tuple; }

Scalar scalar_of(const Value& v) {
  switch (v.kind()) {
    case Kind::boolean: return Scalar(v.boolean());
    case Kind::integer: return Scalar(v.integer());
    case Kind::real: return Scalar(v.number());
    default: return Scalar(v.complex());
  }
}

bool convert_list(const op::Parameter& p, const Value& v, Prepared& to) {
  if (p.type == op::Type::Int && is_integer(v)) {
    to.values.push_back(op::Value(SymInt(v.integer())));
    return true;
  }
  if (!is_sequence(v)) return false;
  if (p.type == op::Type::Int) {
    auto& l = to.ints.emplace_back();
    for (auto& x : v.list()) {
      if (!is_integer(x)) return false;
      l.push_back(SymInt(x.integer()));
    }
    to.values.push_back(op::Value(SymSpan(l.data(), l.size())));
    return true;
  }
  if (p.type == op::Type::Tensor) {
    auto& l = to.tensors.emplace_back();
    for (auto& x : v.list()) {
      if (!x.is_tensor() && !(p.optional_items && x.is_none())) return false;
      l.push_back(x.is_none() ? nullptr : x.tensor().impl());
    }
    to.values.push_back(op::Value(std::span<TensorImpl* const>(l.data(), l.size())));
    return true;
  }
  auto& l = to.scalars.emplace_back();
  for (auto& x : v.list()) {
    if (!is_number(x)) return false;
    l.push_back(scalar_of(x));
  }
  to.values.push_back(op::Value(std::span<const Scalar>(l.data(), l.size())));
  return true;
}

// Appends the value of a parameter from v; returns false if they do not match.
bool convert(const op::Parameter& p, const Value& v, Prepared& to) {
  auto give = [&](op::Value x) {
    to.values.push_back(x);
    return true;
  };
  if (v.is_none()) return (p.optional || p.type == op::Type::Generator || p.has_default) && give(op::Value());
  if (p.list) return convert_list(p, v, to);
  switch (p.type) {
    case op::Type::Tensor:
      if (v.is_tensor()) return give(op::Value(v.tensor()));
      return (p.number || p.number_alone) && is_number(v) && give(op::Value(scalar_of(v)));
    case op::Type::Scalar:
      if (v.is_tensor() && v.tensor().dim() == 0)  // in a traced program, it is read at each call
        return give(v.tensor().is_traced() ? op::Value(v.tensor()) : op::Value(v.tensor().item()));
      return is_number(v) && give(op::Value(scalar_of(v)));
    case op::Type::Int: return is_integer(v) && give(op::Value(SymInt(v.integer())));
    case op::Type::Float: return is_number(v) && v.kind() != Kind::complex && give(op::Value(v.number()));
    case op::Type::Bool: return is_integer(v) && give(op::Value(v.integer() != 0));
    case op::Type::String: return v.kind() == Kind::string && give(op::Value(std::string_view(v.string())));
    case op::Type::DType: return v.kind() == Kind::dtype && give(op::Value(v.dtype()));
    case op::Type::Device: return v.kind() == Kind::string && give(op::Value(parse_device(v.string())));
    case op::Type::Format:
      return v.kind() == Kind::string && give(op::Value(op::format_from_name(v.string())));
    case op::Type::Generator: {
      auto* o = v.object<GeneratorObject>();
      return o && give(op::Value(o->generator));
    }
    default: return false;
  }
}

// Returns whether sizes are passed one by one, with all further arguments by name: view(2, 3).
bool takes_all(const op::Schema& s, size_t k, const Arguments& a) {
  auto& p = s.parameters[k];
  if (!p.list || p.type != op::Type::Int || a.items.size() <= k + 1 || !is_integer(a.items[k])) return false;
  for (size_t j = k + 1; j < s.parameters.size(); ++j)
    if (!s.parameters[j].keyword_only && j < a.items.size() && !is_integer(a.items[j])) return false;
  for (size_t j = k; j < a.items.size(); ++j)
    if (!is_integer(a.items[j])) return false;
  return k + 1 == s.parameters.size() || s.parameters[k + 1].keyword_only;
}

bool prepare(const op::Schema& s, const Arguments& a, Prepared& to) {
  size_t taken = 0, named = 0;
  for (size_t k = 0; k < s.parameters.size(); ++k) {
    auto& p = s.parameters[k];
    const Value* value = nullptr;
    Value all;
    if (k == taken && k < a.items.size() && !p.keyword_only) {
      if (takes_all(s, k, a)) {
        all = List(a.items.begin() + long(k), a.items.end());
        value = &all;
        taken = a.items.size();
      } else {
        value = &a.items[taken++];
      }
    }
    for (auto& [name, v] : a.named)
      if (name == p.name || (k == 0 && name == "input" && p.name == "self")) {
        if (value) return false;
        value = &v;
        ++named;
      }
    if (value) {
      if (!convert(p, *value, to)) return false;
    } else if (p.has_default) {
      to.values.push_back(p.fallback[0]);
    } else if (p.optional) {
      to.values.push_back(op::Value());
    } else {
      return false;
    }
  }
  return taken == a.items.size() && named == a.named.size();
}

Value value_of(const op::Schema& s, op::Results& results) {
  if (s.returns.empty()) return {};
  bool list = s.returns.size() == 1 && s.returns[0].list;
  if (s.returns.size() == 1 && !list) return results[0];
  List all;
  for (auto& t : results.all()) all.push_back(t.defined() ? Value(t) : Value());
  return list ? Value(std::move(all)) : Value(io::Tuple{std::move(all)});
}
}  // namespace

Overloads::Overloads(std::string_view name) : name_(name), operators_(op::overloads(name)) {
  if (operators_.empty() && name.ends_with('_')) {
    operators_ = op::overloads(name.substr(0, name.size() - 1));
    form_ = op::Form::in_place;
  }
}

Value Overloads::operator()(Arguments&& a) const {
  auto named_out = std::find_if(a.named.begin(), a.named.end(), [](auto& n) { return n.first == "out"; });
  Tensor out;
  if (named_out != a.named.end()) {
    if (!named_out->second.is_none()) out = named_out->second.tensor();
    a.named.erase(named_out);
  }
  for (auto* o : operators_) {
    Prepared call;
    if (!prepare(o->schema, a, call)) continue;
    std::span<const op::Value> values(call.values.data(), call.values.size());
    try {
      op::Results results =
          out.defined() ? op::call(*o, values, op::Form::out, {&out, 1}) : op::call(*o, values, form_);
      return value_of(o->schema, results);
    } catch (const Error& e) {  // an error of a nested operator
      if (e.kind() == ErrorKind::internal) throw;
      throw e.from(name_);
    }
  }
  std::string argument_text;
  for (auto& v : a.items) argument_text += (argument_text.empty() ? "" : ", ") + io::to_string(v, 60);
  for (auto& [n, v] : a.named)
    argument_text += (argument_text.empty() ? "" : ", ") + n + "=" + io::to_string(v, 60);
  type_check(false, name_) << "no form of this operator takes (" << argument_text << ")"
                           << hint(operators_.empty() ? "there is none" : operators_[0]->schema.text);
  __builtin_unreachable();
}

}  // namespace facula::nn
