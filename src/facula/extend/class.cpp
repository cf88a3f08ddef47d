#include "facula/extend/class.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "facula/extend/method_operator.h"
#include "facula/extend/transaction.h"
#include "facula/io/objects.h"

namespace facula::extend {
namespace {

struct Registry {
  std::shared_mutex mutex;
  std::vector<std::unique_ptr<const Class>> all;
  std::map<std::string, const Class*, std::less<>> by_name;
  std::unordered_map<std::type_index, const Class*> by_type;
  // Classes that static objects of a program declared, outside of loads.
  std::mutex waiting_mutex;
  std::vector<std::unique_ptr<Class>> waiting;
};
Registry& registry() {
  static Registry& r = *new Registry;
  return r;
}

void register_waiting() {
  auto& r = registry();
  std::vector<std::unique_ptr<Class>> classes;
  {
    std::lock_guard guard(r.waiting_mutex);
    classes.swap(r.waiting);
  }
  for (auto& c : classes) check_build(c->build, c->full_name().c_str());
  if (!classes.empty()) register_classes(classes);
}

bool is_identifier(std::string_view s) {
  auto letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; };
  return !s.empty() && letter(s[0]) && std::ranges::all_of(s, [&](char c) {
    return letter(c) || std::isdigit(static_cast<unsigned char>(c));
  });
}

void check_class(const Class& c) {
  std::string n = c.full_name();
  runtime_check(is_identifier(c.ns) && is_identifier(c.name), "class_")
      << "the name of a class must be a valid identifier: " << n;
  std::vector<std::string> names;
  auto add = [&](const std::string& name) {
    runtime_check(is_identifier(name), "class_")
        << n << ": the name of a method must be a valid identifier: " << name;
    runtime_check(std::ranges::find(names, name) == names.end(), "class_")
        << n << " defines " << name << " twice";
    names.push_back(name);
  };
  for (auto& m : c.methods) add(m.name);
  for (auto& m : c.static_methods) add(m.name);
  for (auto& p : c.properties) add(p.name);
}

// ---- files

io::ObjectState saved_state(const CustomClassHolder& object) {
  auto* c = class_of(object);
  internal_check(c) << "an object of a class that was not registered";
  supported_check(c->get_state, "save")
      << "the program holds an object of the class " << c->full_name() << ", which has no def_pickle"
      << hint("give its class_ a def_pickle(get, set)");
  io::Value self[] = {Ref<CustomClassHolder>::share(const_cast<CustomClassHolder*>(&object))};
  return {c->full_name(), (*c->get_state)(self)};
}

Ref<CustomClassHolder> restored_object(const io::ObjectState& saved) {
  size_t dot = saved.class_name.find('.');
  std::string_view name = saved.class_name;
  auto* c = dot == name.npos ? nullptr : find_class(name.substr(0, dot), name.substr(dot + 1));
  runtime_check(c, "load") << "the program holds an object of the class " << name
                           << ", which this process does not have"
                           << hint("load the library that defines it first");
  supported_check(c->set_state, "load") << "the class " << name << " has no def_pickle(get, set)";
  method_operators(*c);
  io::Value state[] = {saved.state};
  return (*c->set_state)(state).custom_object();
}
constexpr io::ObjectFormat kObjectFormat{saved_state, restored_object};

}  // namespace

Class& declare_class(std::string ns, std::string name, std::string doc, std::type_index type, Build build) {
  auto created = std::make_unique<Class>(
      Class{std::move(ns), std::move(name), std::move(doc), type, build, {}, {}, {}, {}, {}, {}});
  Class& c = *created;
  io::set_object_format(kObjectFormat);
  if (auto* t = Transaction::current()) {
    t->classes.push_back(std::move(created));
    return c;
  }
  std::lock_guard guard(registry().waiting_mutex);
  registry().waiting.push_back(std::move(created));
  return c;
}

void register_classes(const std::vector<std::unique_ptr<Class>>& classes) {
  auto& r = registry();
  std::unique_lock guard(r.mutex);
  for (size_t k = 0; k < classes.size(); ++k) {
    auto& c = *classes[k];
    check_class(c);
    auto is_same = [&](auto& o) { return o->full_name() == c.full_name() || o->type == c.type; };
    bool fresh = !r.by_name.count(c.full_name()) && !r.by_type.count(c.type) &&
                 std::none_of(classes.begin(), classes.begin() + std::ptrdiff_t(k), is_same);
    runtime_check(fresh, "class_")
        << "Custom class with name __torch__.torch.classes." << c.full_name()
        << " is already registered, or its type is under another name. Ensure that "
           "registration with class_ is only called once.";
  }
  for (auto& c : classes) {
    auto registered = std::make_unique<const Class>(*c);
    r.by_name[registered->full_name()] = registered.get();
    r.by_type.emplace(registered->type, registered.get());
    r.all.push_back(std::move(registered));
  }
}

const Class* find_class(std::string_view ns, std::string_view name) {
  register_waiting();
  auto& r = registry();
  std::shared_lock guard(r.mutex);
  auto it = r.by_name.find(std::string(ns) + "." + std::string(name));
  return it == r.by_name.end() ? nullptr : it->second;
}

static const Class* of_type(const std::type_info& type) {
  register_waiting();
  auto& r = registry();
  std::shared_lock guard(r.mutex);
  auto it = r.by_type.find(type);
  return it == r.by_type.end() ? nullptr : it->second;
}
const Class* class_of(const CustomClassHolder& object) { return of_type(typeid(object)); }

std::vector<const Class*> classes() {
  register_waiting();
  auto& r = registry();
  std::shared_lock guard(r.mutex);
  std::vector<const Class*> all;
  for (auto& c : r.all) all.push_back(c.get());
  return all;
}

std::string class_name(const std::type_info& type) {
  if (auto* t = Transaction::current())  // a class of the load in progress
    for (auto& c : t->classes)
      if (c->type == type) return c->full_name();
  auto* c = of_type(type);
  runtime_check(c, "class_") << "the C++ class " << type.name()
                             << " was not registered with class_, so that its name is not known"
                             << hint("register it before what takes it");
  return c->full_name();
}

void name_parameters(Method& m, std::initializer_list<arg> names, size_t first) {
  if (names.size() == 0) return;
  runtime_check(names.size() + first == m.parameters.size(), "class_")
      << m.name << " takes " << m.parameters.size() - first << " arguments, of which " << names.size()
      << " are named; name all or none";
  for (auto& a : names) {
    auto& p = m.parameters[first++];
    p.name = a.name;
    p.fallback = a.fallback;
    runtime_check(!a.fallback || p.fits(*a.fallback), "class_")
        << m.name << ": the default of `" << a.name << "` is a " << name(a.fallback->kind()) << ", not "
        << p.type();
  }
}

std::string Method::schema() const {
  std::string text = name + "(";
  for (auto& p : parameters) {
    if (&p != &parameters[0]) text += ", ";
    text += p.type() + " " + p.name;
    if (p.fallback) text += "=" + io::to_string(*p.fallback, 60);
  }
  return text + ") -> " + result();
}

static std::string type_of(const io::Value& v) {
  if (v.kind() != io::Value::Kind::object) return v.is_none() ? "NoneType" : name(v.kind());
  auto* c = class_of(*v.custom_object());
  return c ? "__torch__.torch.classes." + c->full_name() : "object";
}

std::vector<io::Value> Method::arguments(std::span<const io::Value> positional, const io::Dict& named) const {
  auto declaration = [&] { return hint("the method is ", schema()); };
  runtime_check(positional.size() <= parameters.size(), name + "()")
      << "Expected at most " << parameters.size() << " argument(s) but received " << positional.size()
      << " argument(s)" << declaration();
  std::vector<io::Value> arguments(positional.begin(), positional.end());
  for (size_t k = 0; k < parameters.size(); ++k) {
    auto& p = parameters[k];
    const io::Value* by_name = named.find(p.name);
    if (k >= positional.size()) {
      runtime_check(by_name || p.fallback, name + "()")
          << "is missing a value for argument '" << p.name << "'" << declaration();
      arguments.push_back(by_name ? *by_name : *p.fallback);
    } else {
      runtime_check(!by_name, name + "()")
          << "got two values for argument '" << p.name << "'" << declaration();
    }
    auto& v = arguments[k];
    runtime_check(p.fits(v), name + "()")
        << "Expected a value of type '" << p.type() << "' for argument '" << p.name
        << "' but instead found type '" << type_of(v) << "': " << io::to_string(v, 60) << declaration();
  }
  for (auto& [key, v] : named) {
    bool is_parameter = std::ranges::any_of(parameters, [&](auto& p) { return p.name == key.string(); });
    runtime_check(is_parameter, name + "()")
        << "Unknown keyword argument '" << key.string() << "'" << declaration();
  }
  return arguments;
}

io::Value Method::operator()(std::span<const io::Value> positional, const io::Dict& named) const {
  return function(arguments(positional, named));
}

}  // namespace facula::extend
