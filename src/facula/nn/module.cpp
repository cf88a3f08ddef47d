#include "facula/nn/module.h"

#include <unordered_set>

#include "facula/autograd/autograd.h"
#include "facula/autograd/data.h"
#include "facula/nn/state.h"
#include "facula/ops.h"

namespace facula::nn {

using io::Value;

void Module::State::check_name(const std::string& name) const {
  value_check(!name.empty() && name.find('.') == name.npos, "Module")
      << "'" << name << "' can't name a member of a " << kind << ": names are not empty and have no dot";
  bool taken = false;
  for (auto& [n, x] : parameters) taken = taken || n == name;
  for (auto& [n, x] : buffers) taken = taken || n == name;
  for (auto& [n, x] : modules) taken = taken || n == name;
  value_check(!taken, "Module") << "a " << kind << " has a member '" << name << "' already";
}

Module::Module(std::string kind) : state_(std::make_shared<State>()) { state_->kind = std::move(kind); }

Tensor Module::register_parameter(const std::string& name, Tensor t, bool requires_grad) {
  state_->check_name(name);
  if (t.defined()) autograd::set_requires_grad(t, requires_grad);
  state_->parameters.emplace_back(name, t);
  return t;
}
Tensor Module::register_buffer(const std::string& name, Tensor t, bool persistent) {
  state_->check_name(name);
  state_->buffers.push_back({name, {t, persistent}});
  return t;
}
void Module::add(const std::string& name, const Module& m) {
  state_->check_name(name);
  for (auto& [path, child] : m.named_modules())
    value_check(!child.is_same(*this), "Module") << "a " << kind() << " can't be a member of itself";
  state_->modules.emplace_back(name, m);
}

void Module::put(const std::string& name, const Module& m) {
  Module* old = find_named(state_->modules, name);
  if (!old) return add(name, m);
  for (auto& [path, child] : m.named_modules())
    value_check(!child.is_same(*this), "Module") << "a " << kind() << " can't be a member of itself";
  *old = m;
}
void Module::put(const std::string& name, const Tensor& parameter) {
  type_check(parameter.defined(), kind()) << "'" << name << "' is an undefined tensor";
  state_->lists_parameters = true;
  bool grad = is_differentiable(parameter.dtype());
  Tensor* old = find_named(state_->parameters, name);
  if (!old) register_parameter(name, parameter, grad);
  else autograd::set_requires_grad(*old = parameter, grad);
}
void Module::remove(const std::string& name) {
  auto named = [&](auto& member) { return member.first == name; };
  size_t removed = std::erase_if(state_->modules, named) + std::erase_if(state_->parameters, named);
  index_check(removed, kind()) << "there is no member '" << name << "'";
}

// Calls f(prefix of names, module) for every module once, beginning with this one.
template <class F>
void Module::walk(const std::string& prefix, F&& f) const {
  std::unordered_set<const State*> seen;
  auto visit = [&](auto& self, const std::string& path, const Module& m) -> void {
    if (!seen.insert(m.state_.get()).second) return;
    f(path, m);
    for (auto& [name, child] : m.state_->modules) self(self, path + name + ".", child);
  };
  visit(visit, prefix, *this);
}

namespace {
template <class T>
std::vector<T> values_of(const Named<T>& named) {
  std::vector<T> values;
  for (auto& [name, x] : named) values.push_back(x);
  return values;
}
}  // namespace

Named<Tensor> Module::named_parameters() const {
  Named<Tensor> all;
  std::unordered_set<const TensorImpl*> seen;
  walk("", [&](const std::string& prefix, const Module& m) {
    for (auto& [name, t] : m.state_->parameters)
      if (t.defined() && seen.insert(t.impl()).second) all.emplace_back(prefix + name, t);
  });
  return all;
}
Named<Tensor> Module::named_buffers() const {
  Named<Tensor> all;
  std::unordered_set<const TensorImpl*> seen;
  walk("", [&](const std::string& prefix, const Module& m) {
    for (auto& [name, b] : m.state_->buffers)
      if (b.tensor.defined() && seen.insert(b.tensor.impl()).second)
        all.emplace_back(prefix + name, b.tensor);
  });
  return all;
}
Named<Module> Module::named_modules() const {
  Named<Module> all;
  walk("", [&](const std::string& prefix, const Module& m) {
    all.emplace_back(prefix.substr(0, prefix.empty() ? 0 : prefix.size() - 1), m);
  });
  return all;
}
std::vector<Tensor> Module::parameters() const { return values_of(named_parameters()); }
std::vector<Tensor> Module::buffers() const { return values_of(named_buffers()); }
std::vector<Module> Module::children() const { return values_of(state_->modules); }
Tensor Module::parameter(const std::string& name) const {
  for (auto& [n, t] : named_parameters())
    if (n == name) return t;
  index_check(false, "Module") << kind() << " has no parameter '" << name << "'";
  return {};
}
void Module::called_by_modules(std::function<Tensor(const Tensor&)> f) {
  state_->forward = [f = std::move(f)](Arguments& a) -> Value { return f(a.items.at(0).tensor()); };
}
Tensor Module::find_tensor(std::string_view name) const { return own_tensor(*this, name); }
size_t Module::child_count() const { return state_->modules.size(); }

bool Module::is_training() const { return state_->training; }
void Module::train(bool on) const {
  walk("", [&](const std::string&, const Module& m) { m.state_->training = on; });
}
void Module::requires_grad_(bool on) const {
  for (auto& p : parameters()) autograd::set_requires_grad(p, on);
}
void Module::zero_grad(bool set_to_none) const {
  for (auto& p : parameters()) {
    Tensor g = autograd::grad_of(p);
    if (!g.defined()) continue;
    autograd::set_grad(p, set_to_none ? Tensor() : zeros_like(g.detached()));
  }
}
void Module::convert(const std::function<Tensor(const Tensor&)>& f) const {
  autograd::GradMode off(false);
  auto take = [&](const Tensor& t) {
    Tensor converted = f(t);
    if (converted.is_same(t)) return;
    autograd::set_data(t, converted);
    if (Tensor g = autograd::grad_of(t); g.defined()) autograd::set_grad(t, f(g.detached()));
  };
  for (auto& t : parameters()) take(t);
  for (auto& t : buffers()) take(t);
}
void Module::to(DType dtype) const {
  type_check(is_differentiable(dtype), "Module")
      << "to() only accepts floating point or complex dtypes, but got " << dtype;
  convert([&](const Tensor& t) { return is_differentiable(t.dtype()) ? facula::to(t, dtype) : t; });
}
void Module::to(Device device) const {
  convert([&](const Tensor& t) { return _to_device(t, device); });
}
void Module::apply(const std::function<void(const Module&)>& f) const {
  for (auto& m : children()) m.apply(f);
  f(*this);
}

io::Dict Module::state_dict() const {
  io::Dict all;
  auto visit = [&](auto& self, const std::string& prefix,
                   const Module& m) -> void {  // a module with two names occurs twice
    for (auto& [name, t] : m.state_->parameters)
      if (t.defined()) all.set(prefix + name, t.detached());
    for (auto& [name, b] : m.state_->buffers)
      if (b.tensor.defined() && b.persistent) all.set(prefix + name, b.tensor.detached());
    for (auto& [name, child] : m.state_->modules) self(self, prefix + name + ".", child);
  };
  visit(visit, "", *this);
  return all;
}

Module::LoadResult Module::load_state_dict(const io::Value& state, bool strict) const {
  type_check(state.is_dict(), "load_state_dict")
      << "expected a dict, but the state is a " << io::name(state.kind());
  LoadResult result;
  std::string errors;
  auto mine = state_dict();
  auto quoted = [](const std::vector<std::string>& names) {
    std::string s;
    for (auto& n : names) (((s += s.empty() ? "" : ", ") += '"') += n) += '"';
    return s;
  };
  for (auto& [key, value] : state.dict())
    if (key.kind() != io::Value::Kind::string || !mine.contains(key))
      result.unexpected_keys.push_back(key.kind() == io::Value::Kind::string ? key.string()
                                                                             : io::to_string(key));
  struct Copy {
    Tensor to, from;
  };
  std::vector<Copy> copies;
  for (auto& [key, value] : mine) {
    const std::string& name = key.string();
    const io::Value* loaded = state.dict().find(key);
    Tensor to = value.tensor();
    if (!loaded) result.missing_keys.push_back(name);
    else if (!loaded->is_tensor())
      errors += "\n\tWhile copying the parameter named \"" + name + "\", expected a Tensor but got a " +
                io::name(loaded->kind());
    else if (!(Dims(loaded->tensor().sizes()) == Dims(to.sizes())))
      errors += "\n\tsize mismatch for " + name + ": copying a param with shape " +
                facula::to_string(loaded->tensor().sizes()) +
                " from checkpoint, the shape in current model is " + facula::to_string(to.sizes()) + ".";
    else copies.push_back({to, loaded->tensor()});
  }
  if (strict && !result.unexpected_keys.empty())
    errors = "\n\tUnexpected key(s) in state_dict: " + quoted(result.unexpected_keys) + "." + errors;
  if (strict && !result.missing_keys.empty())
    errors = "\n\tMissing key(s) in state_dict: " + quoted(result.missing_keys) + "." + errors;
  user_check(errors.empty(), "load_state_dict")
      << "Error(s) in loading state_dict for " << kind() << ":" << errors;
  autograd::GradMode off(false);
  for (auto& c : copies) copy_(c.to, c.from);
  return result;
}

const std::string& Module::kind() const { return state_->kind; }
void Module::describe(std::string options) { state_->options = std::move(options); }
namespace {
// Formats the parameters of containers, one per line.
std::string parameter_lines(const Named<Tensor>& parameters) {
  std::string text;
  for (auto& [name, t] : parameters) {
    std::string sizes;
    for (auto& n : t.sizes()) sizes += (sizes.empty() ? "" : "x") + std::to_string(n.guard_int());
    text += (text.empty() ? "  (" : "\n  (") + name + "): Parameter containing: [" +
            io::to_string(t.dtype()) + " of size " + sizes + "]";
  }
  return text;
}
std::string indented(std::string text) {
  for (size_t at = 0; (at = text.find('\n', at)) != text.npos; at += 3) text.insert(at + 1, "  ");
  return text;
}
struct Line {
  std::string name, last, text;  // first and last name of equal neighbours
  size_t count;
};
}  // namespace
std::string Module::to_string() const {
  std::string options = state_->options;
  if (state_->type && state_->type->find("extra_repr")) {
    Value self = std::make_shared<ModuleObject>(*this);
    options = method(self, "extra_repr", Arguments()).string();
  }
  if (state_->lists_parameters) options = parameter_lines(state_->parameters);
  if (state_->modules.empty() && options.find('\n') != options.npos)
    return kind() + "(\n  " + indented(std::move(options)) + "\n)";
  if (state_->modules.empty()) return kind() + "(" + options + ")";
  std::vector<Line> lines;
  for (auto& [name, m] : state_->modules) {
    std::string text = m.to_string();
    if (kind() == "ModuleList" && !lines.empty() && lines.back().text == text) {
      lines.back().last = name;
      ++lines.back().count;
    } else {
      lines.push_back({name, name, std::move(text), 1});
    }
  }
  std::string s = kind() + "(\n";
  if (!options.empty()) s += "  " + options + "\n";
  for (auto& l : lines) {
    s += "  (" + l.name + (l.count > 1 ? "-" + l.last + "): " + std::to_string(l.count) + " x " : "): ");
    s += indented(std::move(l.text)) + "\n";
  }
  return s + ")";
}

}  // namespace facula::nn
