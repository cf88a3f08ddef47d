#include "facula/op/registry.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "facula/base/fork.h"
#include "facula/op/factory.h"
#include "facula/op/origin.h"

namespace facula::op {
namespace {

struct Registry {
  std::shared_mutex lock;
  std::vector<const Operator*> all;
  std::unordered_map<std::string, const Operator*> by_name;
  std::unordered_map<std::string, std::vector<const Operator*>> by_base;
  std::vector<std::function<void(const Operator&)>> listeners;
  std::unique_ptr<Operator> pending;  // being defined
};

// Never destroyed: operators are used until the last thread ends.
Registry& registry() {
  static Registry& r = *new Registry;
  return r;
}

void derive(Operator& op) {
  auto& s = op.schema;
  bool keeps_shape = !op.shape_rule || (op.kind != OpKind::loop && op.kind != OpKind::library);
  if (op.kind == OpKind::loop && !op.shape_rule) op.shape_rule = shape_of_first;
  if (op.result_type == ResultType::boolean || op.result_type == ResultType::int64) op.differentiable = false;
  bool tensor_result = s.returns.size() == 1 && s.returns[0].type == Type::Tensor && !s.returns[0].list;
  bool computed = op.kind == OpKind::pointwise || op.kind == OpKind::loop || op.kind == OpKind::composite ||
                  op.kind == OpKind::library;
  bool aliases = !s.returns.empty() && s.returns[0].alias;
  bool derivable = tensor_result && computed && !aliases && !s.mutates();
  bool on_self = !s.parameters.empty() && s.parameters[0].name == "self" &&
                 s.parameters[0].type == Type::Tensor && !s.parameters[0].list && !s.parameters[0].optional;
  bool all_tensors = !s.returns.empty();
  for (auto& r : s.returns) all_tensors &= r.type == Type::Tensor && !r.list && !r.alias;
  op.out_form = all_tensors && op.kind != OpKind::view && !s.mutates();
  op.in_place_form = derivable && on_self && op.wants_in_place.value_or(keeps_shape);
  if (op.kind == OpKind::view)
    op.in_place_form = tensor_result && on_self && op.wants_in_place.value_or(false);
}

// A factory refuses a device that nothing serves, before it makes anything.
void check_device_first(Operator& op) {
  auto& s = op.schema;
  int at = s.index_of("device");
  if (at < 0 || !s.parameters[size_t(at)].keyword_only || s.parameters[size_t(at)].type != Type::Device)
    return;
  auto first = [at](auto& rule) {
    if (!rule) return;
    rule = [rule, at](const Call& c) {
      const Value& device = c.at(size_t(at));
      if (device.tag == Tag::device) check_can_hold(c.name(), device.device);
      return rule(c);
    };
  };
  first(op.composite);
  first(op.shape_rule);
}

// What infer() does for the other kinds: a strict composite looks at the dtype before its body runs.
void check_dtype_first(Operator& op) {
  if (!op.strict || !op.composite) return;
  int at = op.schema.index_of("dtype");
  op.composite = [body = op.composite, at](const Call& c) {
    bool given = at >= 0 && c.at(size_t(at)).tag == Tag::dtype;
    check_accepted(c.op(), given ? c.at(size_t(at)).dtype : c.all_tensors().at(0).dtype());
    return body(c);
  };
}

void check(const Operator& op) {
  auto& s = op.schema;
  std::string n = s.full_name();
  switch (op.kind) {
    case OpKind::pointwise: internal_check(op.body) << n << " has no body"; break;
    case OpKind::loop: internal_check(op.loop) << n << " has no loop"; break;
    case OpKind::view:
      internal_check(op.view) << n << " has no view rule";
      internal_check(!s.parameters.empty() && s.parameters[0].alias && !s.returns.empty() &&
                     s.returns[0].alias)
          << n << " is a view: its schema must say so, (Tensor(a) self, ...) -> Tensor(a)";
      break;
    case OpKind::composite:
      internal_check(op.composite) << n << " has no body: end the definition with one of the six kinds";
      break;
    case OpKind::library:
    case OpKind::data_dependent:
      internal_check(op.shape_rule) << n << " needs a shape rule: .shape(...) or .shapes(...)";
      internal_check(op.reference || op.composed_reference || op.random)
          << n << " needs its slow definition: .reference(...)";
      break;
  }
  internal_check(op.result_type != ResultType::custom || op.dtype_rule) << n << " needs .result(rule)";
  for (int r : op.non_differentiable)
    internal_check(r >= 0 && size_t(r) < s.returns.size()) << n << ": non_differentiable names result " << r;
  for (auto& d : op.differences)
    internal_check(!d.where.empty() && !d.why.empty()) << n << ": a difference needs a place and a reason";
  for (auto& sample : op.samples.list)
    for (auto& [arg, value] : sample.args)
      internal_check(s.index_of(arg) >= 0) << n << ": a sample names `" << arg << "`, which is no parameter";
}

}  // namespace

Definer define(std::string_view schema) {
  finish_definitions();
  auto op = std::make_unique<Operator>();
  op->schema = parse_schema(schema);
  registry().pending = std::move(op);
  return Definer(registry().pending.get());
}

void finish_definitions() {
  Registry& r = registry();
  if (!r.pending) return;
  std::unique_ptr<Operator> done = std::move(r.pending);
  derive(*done);
  check_device_first(*done);
  check_dtype_first(*done);
  check(*done);
  Operator* op = done.get();
  std::vector<std::function<void(const Operator&)>> listeners;
  {
    std::unique_lock guard(r.lock);
    std::string name = op->schema.full_name();
    internal_check(!r.by_name.count(name)) << name << " is defined twice";
    r.by_name[name] = done.release();
    r.all.push_back(op);
    r.by_base[op->schema.name].push_back(op);
    for (auto& alias : op->aliases) {
      r.by_base[alias].push_back(op);
      r.by_name.try_emplace(op->schema.overload.empty() ? alias : alias + "." + op->schema.overload, op);
    }
    listeners = r.listeners;
  }
  for (auto& f : listeners) f(*op);
}

void define_late(const std::function<void()>& family) {
  static TableMutex one_at_a_time;
  std::lock_guard guard(one_at_a_time);
  finish_definitions();
  try {
    family();
    finish_definitions();
  } catch (...) {
    registry().pending.reset();
    throw;
  }
}

const Operator* find(std::string_view full_name) {
  Registry& r = registry();
  std::shared_lock guard(r.lock);
  auto it = r.by_name.find(std::string(full_name));
  return it == r.by_name.end() ? nullptr : it->second;
}

const Operator& get(std::string_view full_name) {
  const Operator* op = find(full_name);
  internal_check(op) << "no operator is named " << full_name;
  return *op;
}

namespace {
struct Origins {
  std::vector<const Operator*> of_catalog;  // sorted
  TableMutex mutex;                         // guards `derived`, whose values stay where they are
  std::unordered_map<const Operator*, std::string> derived;
};
Origins& origins() {
  static auto& o = *new Origins;
  return o;
}
}  // namespace

void fix_catalog(size_t begin) {
  auto& catalog = origins().of_catalog;
  catalog.assign(all().begin() + std::ptrdiff_t(begin), all().end());
  std::sort(catalog.begin(), catalog.end());
}

void set_origin(const Operator& derived, std::string origin) {
  std::lock_guard lock(origins().mutex);
  origins().derived.try_emplace(&derived, std::move(origin));
}

const std::string* origin_of(const Operator& o) {
  static const std::string none;
  auto& catalog = origins().of_catalog;
  if (std::binary_search(catalog.begin(), catalog.end(), &o)) return &none;
  std::lock_guard lock(origins().mutex);
  auto it = origins().derived.find(&o);
  return it == origins().derived.end() ? nullptr : &it->second;
}

const std::vector<const Operator*>& all() { return registry().all; }

std::vector<const Operator*> overloads(std::string_view name) {
  Registry& r = registry();
  std::shared_lock guard(r.lock);
  auto it = r.by_base.find(std::string(name));
  return it == r.by_base.end() ? std::vector<const Operator*>{} : it->second;
}

void on_define(std::function<void(const Operator&)> listener) {
  std::unique_lock guard(registry().lock);
  registry().listeners.push_back(std::move(listener));
}

}  // namespace facula::op
