#include "facula/op/registry.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <unordered_set>

#include "facula/base/fork.h"
#include "facula/op/origin.h"

namespace facula::op {
namespace {

struct Registry {
  std::shared_mutex lock;
  std::vector<const Operator*> all;
  std::unordered_map<std::string, const Operator*> by_name;
  std::unordered_map<std::string, std::vector<const Operator*>> by_base;
  std::unordered_set<const Operator*> reproducible;
  std::vector<std::function<void(const Operator&)>> listeners;
  std::vector<std::unique_ptr<const Operator>> unlisted;    // nameless, or retired
  std::unique_ptr<Draft> pending;                           // under construction
  std::unordered_map<std::string, std::string> transposes;  // of operators that are defined later
  struct Forwarding {
    const Operator* op;
    std::string target;
    size_t added;  // arguments
  };
  std::vector<Forwarding> forwarding;
};

// Never destroyed: operators are used until the last thread ends.
Registry& registry() {
  static Registry& r = *new Registry;
  return r;
}

// Moves the properties of one kind to the definition; a property that the kind does not have is an error of the
// definition.
void place(Draft& d) {
  Operator& op = d.op;
  std::string n = op.schema.full_name();
  bool shaped = op.shaped() || !d.backed.shape;
  internal_check(shaped && (op.shaped() || (d.backed.format_of.empty() && d.backed.strides_of.empty())))
      << n << ": results of this kind follow from its definition; leave out their shape and strides";
  internal_check(op.backed() || (!d.backed.reference && !d.backed.composed_reference))
      << n << ": .reference(...) is for what a library computes";
  internal_check(op.is<Library>() || d.channels_last == ChannelsLast::no)
      << n << ": .channels_last(...) is for what a library computes";
  internal_check(op.is<Procedure>() || !d.in_place)
      << n << ": .in_place(body) is for procedures; other kinds derive it";
  internal_check(op.is<Composite>() || !d.in_parts) << n << ": .in_parts() is for composites";
  if (auto* loop = op.as<Loop>()) {
    static_cast<Shaped&>(*loop) = std::move(static_cast<Shaped&>(d.backed));
    if (!loop->shape) loop->shape = shape_of_first;
  } else if (auto* library = op.as<Library>()) {
    static_cast<Backed&>(*library) = std::move(d.backed);
    library->channels_last = d.channels_last;
  } else if (auto* dependent = op.as<DataDependent>()) {
    static_cast<Backed&>(*dependent) = std::move(d.backed);
  } else if (auto* procedure = op.as<Procedure>()) {
    if (d.forwards_to.empty() || op.forms.in_place) procedure->in_place = std::move(d.in_place);
  } else if (auto* composite = op.as<Composite>()) {
    composite->in_parts = d.in_parts;
  }
}

bool has_tensor(const Operator& op) {
  return std::ranges::any_of(op.schema.parameters, [](auto& p) { return p.type == Type::Tensor; });
}

void derive(Operator& op) {
  auto& s = op.schema;
  op.effects.writes = s.mutates();
  op.effects.reads_data |= op.is<DataDependent>();
  op.effects.checks |= bool(op.check);
  bool integers = op.result_type == ResultType::boolean || op.result_type == ResultType::int64;
  if (integers || (!op.is<Foreign>() && !has_tensor(op))) op.differentiable = false;
  bool all_tensors = !s.returns.empty();
  for (auto& r : s.returns) all_tensors &= r.type == Type::Tensor && !r.list && !r.alias;
  op.forms.out = (all_tensors && !op.is<View>() && !op.is<Foreign>() && !s.mutates()) || op.forms.wants_out;
}

// The first one of two operators that are transposes of each other declares it. Views have separate gradients.
void pair_with_transpose(Operator& op) {
  std::string n = op.schema.full_name();
  auto& transposes = registry().transposes;
  if (!op.transpose.empty()) {
    runtime_check(!op.vjp, "define") << n
                                     << " has a gradient by .vjp(...) and another by .transposed_by(...)";
    transposes[op.transpose] = n;
  } else if (auto it = transposes.find(n); it != transposes.end() && !op.is<View>()) {
    op.transpose = it->second;
  }
  if (!op.transpose.empty()) op.vjp = transposed;
}

CompositeBody* body_of(Operator& op) {
  if (auto* composite = op.as<Composite>()) return &composite->body;
  auto* procedure = op.as<Procedure>();
  return procedure ? &procedure->body : nullptr;
}

// Checks dtypes for calls of strict operators before the body runs, as infer() does for the other kinds.
void check_dtype_first(Operator& op) {
  auto* checked = body_of(op);
  if (!op.strict || !checked) return;
  int at = op.schema.index_of("dtype");
  *checked = [body = std::move(*checked), at](const Call& c) {
    bool has_dtype = at >= 0 && c.at(size_t(at)).tag == Tag::dtype;
    check_accepted(c.op(), has_dtype ? c.at(size_t(at)).dtype : c.all_tensors().at(0).dtype());
    return body(c);
  };
}

// True if the result may be written to `self`.
bool can_be_in_place(const Operator& op) {
  auto& s = op.schema;
  bool tensor_result = s.returns.size() == 1 && s.returns[0].type == Type::Tensor && !s.returns[0].list;
  bool on_self = !s.parameters.empty() && s.parameters[0].name == "self" &&
                 s.parameters[0].type == Type::Tensor && !s.parameters[0].list && !s.parameters[0].optional;
  bool computed = op.is<View>() || (!op.is<DataDependent>() && !op.is<Foreign>() && !s.mutates() &&
                                    !(tensor_result && s.returns[0].alias));
  return tensor_result && on_self && computed;
}

// Checks a definition that is complete.
void check_definition(const Operator& op) {
  auto& s = op.schema;
  std::string n = s.full_name();
  if (op.is<View>()) {
    runtime_check(!s.parameters.empty() && s.parameters[0].alias && !s.returns.empty() && s.returns[0].alias,
                  "define")
        << n << " is a view: its schema must say so, (Tensor(a) self, ...) -> Tensor(a)";
  }
  if (auto* body = op.calls()) {
    runtime_check(*body, "define") << n << " has no body: end the definition with one of the eight kinds";
  }
  if (auto* backed = op.backed()) {
    runtime_check(backed->shape, "define") << n << " needs a shape rule: .shape(...) or .shapes(...)";
    runtime_check(backed->reference || backed->composed_reference || op.effects.draws, "define")
        << n << " needs its slow definition: .reference(...)";
  }
  runtime_check(!op.forms.in_place || can_be_in_place(op), "define")
      << n << ": .in_place() needs `Tensor self` first and one Tensor in memory of its own as the result";
  runtime_check(!op.is<Procedure>() || !op.vjp, "define")
      << n << ": the calls of a procedure are recorded one by one; it has no .vjp(...) of its own";
  runtime_check(!op.backed() || op.vjp || !op.differentiable, "define")
      << n << " needs its gradient, .vjp(...), or the reason why it has none, .non_differentiable(...)";
  bool constant = !op.differentiable || !op.non_differentiable.empty();
  bool evident =
      op.result_type == ResultType::boolean || op.result_type == ResultType::int64 || !has_tensor(op);
  runtime_check(!constant || evident || !op.undifferenced.empty(), "define")
      << n << ": .non_differentiable(...) needs a reason";
}

void check(const Operator& op) {
  check_definition(op);
  auto& s = op.schema;
  std::string n = s.full_name();
  runtime_check(op.result_type != ResultType::custom || op.dtype_rule, "define")
      << n << " needs .result(rule)";
  for (auto& p :
       s.parameters)  // traces and derived operators would keep the state of an object that they saw
    runtime_check(p.type != Type::Object || op.is<Foreign>(), "define")
        << n << ": only functions take objects of classes, and this definition is of another kind"
        << hint("let the library def() the schema and give it a C++ function");
  for (int r : op.non_differentiable)
    runtime_check(r >= 0 && size_t(r) < s.returns.size(), "define")
        << n << ": non_differentiable names result " << r;
  for (auto& a : op.parameter_aliases)
    runtime_check(s.index_of(a.parameter) >= 0 && s.index_of(a.also) < 0, "define")
        << n << ": `" << a.also << "` cannot be a further name of `" << a.parameter << '`';
}

}  // namespace

Definer define(std::string_view schema) {
  finish_definitions();
  auto draft = std::make_unique<Draft>();
  draft->op.schema = parse_schema(schema);
  if (!draft->op.schema.library().empty()) draft->op.namespaces = hidden;  // users find it in ops
  registry().pending = std::move(draft);
  return Definer(registry().pending.get());
}

void finish_definitions() {
  Registry& r = registry();
  if (!r.pending) return;
  std::unique_ptr<Draft> draft = std::move(r.pending);
  place(*draft);
  pair_with_transpose(draft->op);
  auto done = std::make_unique<Operator>(std::move(draft->op));
  derive(*done);
  check_dtype_first(*done);
  check(*done);
  Operator* op = done.get();
  std::vector<std::function<void(const Operator&)>> listeners;
  {
    std::unique_lock guard(r.lock);
    std::string name = op->schema.full_name();
    runtime_check(!r.by_name.count(name), "define")
        << "Tried to register an operator (" << op->schema.text
        << ") with the same name and overload name multiple times";
    r.by_name[name] = done.release();
    if (!draft->forwards_to.empty()) r.forwarding.push_back({op, draft->forwards_to, draft->added});
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

static const Operator* (*by_name)(std::string_view) = nullptr;
void derive_by_name(const Operator* (*derive)(std::string_view)) { by_name = derive; }

void retire(const Operator& o) {
  Registry& r = registry();
  std::unique_lock guard(r.lock);
  std::erase_if(r.by_name, [&](auto& entry) { return entry.second == &o || entry.second->parent == &o; });
  std::erase(r.by_base[o.schema.name], &o);
  for (auto& alias : o.aliases) std::erase(r.by_base[alias], &o);
  std::erase(r.all, &o);
  r.unlisted.emplace_back(&o);
}

Operator& nameless(std::string_view schema, Composite calls) {
  auto o = std::make_unique<Operator>();
  o->schema = parse_schema(schema);
  o->definition = std::move(calls);
  auto& op = *o;
  Registry& r = registry();
  std::unique_lock guard(r.lock);
  r.unlisted.push_back(std::move(o));
  return op;
}

const Operator* find(std::string_view full_name) {
  Registry& r = registry();
  {
    std::shared_lock guard(r.lock);
    auto it = r.by_name.find(std::string(full_name));
    if (it != r.by_name.end()) return it->second;
  }
  return by_name ? by_name(full_name) : nullptr;
}

bool is_found(const Operator& o) {
  std::string key = o.schema.full_name();
  return find(key) == &o;
}

const Operator& get(std::string_view full_name) {
  const Operator* op = find(full_name);
  internal_check(op) << "no operator is named " << full_name;
  return *op;
}

// Checks the operators that definitions forward to, which may be defined after them.
static void check_targets() {
  for (auto& [op, name, added] : registry().forwarding) {
    auto& target = get(name);
    auto &own = op->schema.parameters, &others = target.schema.parameters;
    bool fits =
        own.size() + added <= others.size() && op->schema.returns.size() == target.schema.returns.size();
    for (size_t k = 0; fits && k < own.size(); ++k)
      fits = own[k].list == others[k].list && (own[k].type == others[k].type || own[k].is_operand());
    for (size_t k = own.size() + added; fits && k < others.size(); ++k)
      fits = others[k].has_default || others[k].optional;
    internal_check(fits) << op->schema.full_name() << " cannot forward to " << target.schema.text;
    internal_check(!op->forms.in_place || target.forms.in_place)
        << op->schema.full_name() << " has an in-place form, which " << name << " lacks";
  }
}

void fix_catalog(size_t begin) {
  Registry& r = registry();
  check_targets();
  std::unique_lock guard(r.lock);
  r.reproducible.insert(r.all.begin() + std::ptrdiff_t(begin), r.all.end());
}

bool is_reproducible(const Operator& o) {
  Registry& r = registry();
  std::shared_lock guard(r.lock);
  return r.reproducible.count(&o) > 0;
}

const Operator& register_derived(std::unique_ptr<Operator> derived) {
  Registry& r = registry();
  std::unique_lock guard(r.lock);
  auto [it, fresh] = r.by_name.try_emplace(derived->schema.full_name(), derived.get());
  if (!fresh) return *it->second;
  if (r.reproducible.count(derived->parent)) r.reproducible.insert(derived.get());
  return *derived.release();
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
