// torch::nn::Module: a facula::nn::Module for classes that derive from it, with ownership by shared pointers.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "facula/nn/module.h"
#include "torch/ivalue.h"
#include "torch/serialize/archive.h"
#include "torch/types.h"

namespace torch {

// Values by name, in the order of their insertion.
template <class Key, class T>
class OrderedDict {
 public:
  struct Item : std::pair<Key, T> {
    using std::pair<Key, T>::pair;
    const Key& key() const { return this->first; }
    T& value() { return this->second; }
    const T& value() const { return this->second; }
    T& operator*() { return this->second; }
    const T& operator*() const { return this->second; }
    T* operator->() { return &this->second; }
    const T* operator->() const { return &this->second; }
  };
  OrderedDict() = default;
  OrderedDict(std::initializer_list<Item> items) {
    for (auto& item : items) insert(item.first, item.second);
  }
  T& insert(Key key, T value) {
    index_check(!contains(key), "OrderedDict") << "key '" << str(key) << "' already defined";
    items_.emplace_back(std::move(key), std::move(value));
    return items_.back().second;
  }
  void update(const OrderedDict& other) {
    for (auto& item : other) insert(item.first, item.second);
  }
  void erase(const Key& key) {
    index_check(std::erase_if(items_, [&](auto& item) { return item.first == key; }), "OrderedDict")
        << "key '" << str(key) << "' doesn't exist";
  }
  void clear() { items_.clear(); }
  T* find(const Key& key) {
    for (auto& item : items_)
      if (item.first == key) return &item.second;
    return nullptr;
  }
  const T* find(const Key& key) const { return const_cast<OrderedDict*>(this)->find(key); }
  bool contains(const Key& key) const { return find(key); }
  T& operator[](const Key& key) {
    T* value = find(key);
    index_check(value, "OrderedDict") << "key '" << str(key) << "' is not defined";
    return *value;
  }
  const T& operator[](const Key& key) const { return (*const_cast<OrderedDict*>(this))[key]; }
  Item& operator[](size_t k) { return items_.at(k); }
  const Item& operator[](size_t k) const { return items_.at(k); }
  size_t size() const { return items_.size(); }
  bool is_empty() const { return items_.empty(); }
  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  std::vector<Key> keys() const {
    std::vector<Key> all;
    for (auto& item : items_) all.push_back(item.first);
    return all;
  }
  std::vector<T> values() const {
    std::vector<T> all;
    for (auto& item : items_) all.push_back(item.second);
    return all;
  }
  std::vector<std::pair<Key, T>> pairs() const { return {items_.begin(), items_.end()}; }

 private:
  std::vector<Item> items_;
};

namespace nn {

template <class Contained>
class ModuleHolder;

// Parameters, buffers and modules by name. A class derives from it and registers what it has; it has a `forward` of any
// form, which is not virtual.
class Module : public std::enable_shared_from_this<Module> {
 public:
  Module() = default;
  explicit Module(std::string name) : name_(std::move(name)) {}
  virtual ~Module() = default;

  template <class M>
  std::shared_ptr<M> register_module(std::string name, std::shared_ptr<M> module) {
    add(name, module, false);
    return module;
  }
  template <class M>
  std::shared_ptr<M> register_module(std::string name, ModuleHolder<M> holder) {
    return register_module(std::move(name), holder.ptr());
  }
  template <class M>
  std::shared_ptr<M> replace_module(const std::string& name, std::shared_ptr<M> module) {
    add(name, module, true);
    return module;
  }
  template <class M>
  std::shared_ptr<M> replace_module(const std::string& name, ModuleHolder<M> holder) {
    return replace_module(name, holder.ptr());
  }
  void unregister_module(const std::string& name) {
    handle_.remove(name);
    children_.erase(name);
  }
  Tensor& register_parameter(std::string name, Tensor tensor, bool requires_grad = true) {
    registered_.push_back(handle_.register_parameter(name, tensor, requires_grad));
    return registered_.back();
  }
  Tensor& register_buffer(std::string name, Tensor tensor) {
    registered_.push_back(handle_.register_buffer(name, tensor));
    return registered_.back();
  }

  std::vector<Tensor> parameters(bool recurse = true) const { return named_parameters(recurse).values(); }
  OrderedDict<std::string, Tensor> named_parameters(bool recurse = true) const {
    return as_dict(handle_.named_parameters(), recurse);
  }
  std::vector<Tensor> buffers(bool recurse = true) const { return named_buffers(recurse).values(); }
  OrderedDict<std::string, Tensor> named_buffers(bool recurse = true) const {
    return as_dict(handle_.named_buffers(), recurse);
  }
  std::vector<std::shared_ptr<Module>> children() const { return children_.values(); }
  OrderedDict<std::string, std::shared_ptr<Module>> named_children() const { return children_; }
  // Itself too, where a shared pointer holds it.
  std::vector<std::shared_ptr<Module>> modules(bool include_self = true) const {
    return named_modules("", include_self).values();
  }
  OrderedDict<std::string, std::shared_ptr<Module>> named_modules(const std::string& prefix = "",
                                                                  bool include_self = true) const {
    OrderedDict<std::string, std::shared_ptr<Module>> all;
    if (include_self) {
      auto self = const_cast<Module*>(this)->weak_from_this().lock();
      user_check(self, "Module") << "a module that no shared pointer holds cannot be among its own modules"
                                 << facula::hint("modules(/*include_self=*/false)");
      all.insert(prefix, self);
    }
    collect(prefix, all);
    return all;
  }

  bool is_training() const noexcept { return handle_.is_training(); }
  virtual void train(bool on = true) {
    for (auto& child : children_) child.value()->train(on);
    handle_.train(on);
  }
  void eval() { train(false); }
  virtual void to(Device device, Dtype dtype, bool non_blocking = false) {
    to(dtype, non_blocking);
    to(device, non_blocking);
  }
  virtual void to(Dtype dtype, bool = false) { handle_.to(dtype); }
  virtual void to(Device device, bool = false) { handle_.to(facula::Device(device)); }
  virtual void zero_grad(bool set_to_none = true) { handle_.zero_grad(set_to_none); }
  // f(module), f(name, module), or the same with shared pointers: of itself first, then of all below.
  template <class F>
    requires std::invocable<F&, Module&>
  void apply(const F& f) {
    f(*this);
    for (auto& child : children_) child.value()->apply(f);
  }
  template <class F>
    requires std::invocable<F&, const std::string&, Module&>
  void apply(const F& f, const std::string& prefix = "") {
    f(prefix, *this);
    for (auto& child : children_) child.value()->apply(f, joined(prefix, child.key()));
  }
  template <class F>
    requires std::invocable<F&, const std::shared_ptr<Module>&>
  void apply(const F& f) {
    for (auto& m : modules()) f(m);
  }

  const std::string& name() const;  // the class's
  virtual void pretty_print(std::ostream& s) const { s << name(); }
  // Inline, because a virtual function that is not would make each source contain the virtual functions of the class.
  inline virtual void save(serialize::OutputArchive& archive) const;
  inline virtual void load(serialize::InputArchive& archive);
  virtual bool is_serializable() const { return true; }
  // Returns a copy that shares no parameters with this module; only classes that derive from Cloneable have it.
  virtual std::shared_ptr<Module> clone(const std::optional<Device>& = std::nullopt) const {
    user_check(false, "clone")
        << "a " << name() << " cannot be copied"
        << facula::hint("derive it from torch::nn::Cloneable, and make its parameters in reset()");
    return nullptr;
  }

  // The module as a class of this type; null if it is none.
  template <class M>
  auto* as() {
    return dynamic_cast<typename Implementation<M>::type*>(this);
  }
  template <class M>
  const auto* as() const {
    return dynamic_cast<const typename Implementation<M>::type*>(this);
  }
  std::shared_ptr<Module> operator[](const std::string& name) const { return children_[name]; }

  const facula::nn::Module& handle() const { return handle_; }

 protected:
  // Replaces the parameters, buffers and modules by those of `m`.
  void adopt(facula::nn::Module m) { static_cast<facula::nn::Module&>(handle_) = std::move(m); }
  void forget_members() {
    handle_ = Handle();
    children_.clear();
  }

 private:
  template <class M>
  struct Implementation {
    using type = M;
  };
  template <class M>
    requires requires { typename M::ContainedType; }
  struct Implementation<M> {
    using type = typename M::ContainedType;
  };
  struct Handle : facula::nn::Module {
    using facula::nn::Module::put;
    using facula::nn::Module::remove;
  };
  static std::string joined(const std::string& prefix, const std::string& name) {
    return prefix.empty() ? name : prefix + "." + name;
  }
  void add(const std::string& name, const std::shared_ptr<Module>& module, bool replaces) {
    user_check(module, "register_module") << "the module '" << name << "' is empty";
    index_check(!replaces || children_.contains(name), "replace_module")
        << "there is no module '" << name << "'";
    if (!replaces) {
      handle_.register_module(name, static_cast<const facula::nn::Module&>(module->handle_));
      children_.insert(name, module);
    } else {
      handle_.put(name, module->handle_);
      children_[name] = module;
    }
  }
  OrderedDict<std::string, Tensor> as_dict(const facula::nn::Named<facula::Tensor>& named,
                                           bool recurse) const {
    OrderedDict<std::string, Tensor> all;
    for (auto& [name, t] : named)
      if (recurse || name.find('.') == name.npos) all.insert(name, t);
    return all;
  }
  void collect(const std::string& prefix, OrderedDict<std::string, std::shared_ptr<Module>>& all) const {
    for (auto& child : children_) {
      std::string path = joined(prefix, child.key());
      all.insert(path, child.value());
      child.value()->collect(path, all);
    }
  }
  friend std::ostream& operator<<(std::ostream& s, const Module& m);
  void print(std::ostream& s, const std::string& indent) const;

  Handle handle_;
  OrderedDict<std::string, std::shared_ptr<Module>> children_;
  std::deque<Tensor> registered_;  // what references to parameters and buffers refer to
  mutable std::string name_;
};

// The part of Cloneable that depends on no template argument: the compiler instantiates it once for all classes.
class CloneableBase : public Module {
 public:
  using Module::Module;
  virtual void reset() = 0;
  std::shared_ptr<Module> clone(const std::optional<Device>& device = std::nullopt) const override {
    CloneableBase* copy = copy_of_members();
    std::shared_ptr<Module> owner(copy);
    copy->forget_members();
    copy->reset();
    NoGradGuard off;
    copy_elements(copy->named_parameters(), named_parameters());
    copy_elements(copy->named_buffers(), named_buffers());
    if (device) copy->to(*device);
    copy->train(is_training());
    return owner;
  }

 private:
  using Module::forget_members;
  virtual CloneableBase* copy_of_members() const = 0;
  void copy_elements(OrderedDict<std::string, Tensor> to,
                     const OrderedDict<std::string, Tensor>& from) const {
    user_check(to.size() == from.size(), "clone")
        << "the copy of a " << name() << " has other parameters and buffers"
        << facula::hint("reset() makes all of them");
    for (auto& item : from) to[item.key()].set_data(item.value().data().clone());
  }
};
// The base of classes that clone() copies: such a class makes its parameters and modules in reset().
template <class Derived>
class Cloneable : public CloneableBase {
 public:
  using CloneableBase::CloneableBase;

 private:
  CloneableBase* copy_of_members() const override { return new Derived(static_cast<const Derived&>(*this)); }
};

// A shared pointer to a module that is made, called and copied like a value.
template <class Contained>
class ModuleHolder {
 public:
  using ContainedType = Contained;
  ModuleHolder() : impl_(make_default()) {}
  ModuleHolder(std::nullptr_t) {}
  ModuleHolder(std::shared_ptr<Contained> module) : impl_(std::move(module)) {}
  template <class Head, class... Tail>
    requires(!(std::derived_from<std::decay_t<Head>, ModuleHolder> && sizeof...(Tail) == 0) &&
             !std::convertible_to<Head, std::shared_ptr<Contained>>)
  explicit ModuleHolder(Head&& head, Tail&&... tail)
      : impl_(std::make_shared<Contained>(std::forward<Head>(head), std::forward<Tail>(tail)...)) {}

  explicit operator bool() const noexcept { return bool(impl_); }
  bool is_empty() const noexcept { return !impl_; }
  Contained* operator->() { return get(); }
  const Contained* operator->() const { return get(); }
  Contained& operator*() { return *get(); }
  const Contained& operator*() const { return *get(); }
  const std::shared_ptr<Contained>& ptr() const {
    get();
    return impl_;
  }
  Contained* get() {
    user_check(impl_, "ModuleHolder") << "an empty module holder was used";
    return impl_.get();
  }
  const Contained* get() const { return const_cast<ModuleHolder*>(this)->get(); }
  template <class... A>
  auto operator()(A&&... arguments) {
    return get()->forward(std::forward<A>(arguments)...);
  }
  template <class T>
  decltype(auto) operator[](T&& index) {
    return (*get())[std::forward<T>(index)];
  }
  friend bool operator==(const ModuleHolder& m, std::nullptr_t) { return m.is_empty(); }

 private:
  static std::shared_ptr<Contained> make_default() {
    if constexpr (std::is_default_constructible_v<Contained>) return std::make_shared<Contained>();
    else
      static_assert(
          sizeof(Contained) < 0,
          "this module needs arguments; one that is made later is declared with nullptr: Linear fc{nullptr};");
  }
  std::shared_ptr<Contained> impl_;
};
template <class Contained>
std::ostream& operator<<(std::ostream& s, const ModuleHolder<Contained>& m) {
  return s << *m;
}

#define TORCH_MODULE_IMPL(Name, ImplType)                        \
  class Name : public ::torch::nn::ModuleHolder<ImplType> {      \
   public:                                                       \
    using ::torch::nn::ModuleHolder<ImplType>::ModuleHolder;     \
    using Impl [[maybe_unused]] = ImplType;                      \
  }
// The holder `Name` of a class `NameImpl`.
#define TORCH_MODULE(Name) TORCH_MODULE_IMPL(Name, Name##Impl)

// The modules of a module, by name; one with two names comes once.
inline facula::nn::Named<facula::nn::Module> child_modules(const facula::nn::Module& m) {
  facula::nn::Named<facula::nn::Module> children;
  for (auto& [name, child] : m.named_modules())
    if (!name.empty() && name.find('.') == name.npos) children.emplace_back(name, child);
  return children;
}
inline void Module::save(serialize::OutputArchive& archive) const {
  for (auto& item : named_parameters(false)) archive.write(item.key(), item.value());
  for (auto& item : named_buffers(false)) archive.write(item.key(), item.value(), true);
  for (auto& child : child_modules(handle_)) {
    serialize::OutputArchive nested;
    if (auto* own = children_.find(child.first)) {
      if (!(*own)->is_serializable()) continue;
      (*own)->save(nested);
    } else {
      Module inner;
      inner.adopt(child.second);
      inner.save(nested);
    }
    archive.write(child.first, nested);
  }
}
inline void Module::load(serialize::InputArchive& archive) {
  for (auto& item : named_parameters(false)) archive.read(item.key(), item.value(), false);
  for (auto& item : named_buffers(false)) archive.read(item.key(), item.value(), true);
  for (auto& child : child_modules(handle_)) {
    serialize::InputArchive nested;
    auto* own = children_.find(child.first);
    if (own && !(*own)->is_serializable()) continue;
    archive.read(child.first, nested);
    if (own) {
      (*own)->load(nested);
    } else {
      Module inner;
      inner.adopt(child.second);
      inner.load(nested);
    }
  }
}
inline const std::string& Module::name() const {
  if (name_.empty()) name_ = facula::front::class_name(typeid(*this));
  return name_;
}
inline void Module::print(std::ostream& s, const std::string& indent) const {
  pretty_print(s);
  if (children_.is_empty()) return;
  s << "(\n";
  for (auto& child : children_) {
    s << indent << "  (" << child.key() << "): ";
    child.value()->print(s, indent + "  ");
    s << '\n';
  }
  s << indent << ')';
}
inline std::ostream& operator<<(std::ostream& s, const Module& m) {
  m.print(s, "");
  return s;
}

}  // namespace nn
}  // namespace torch
