// Modules that hold modules, and Functional. Those of Python's nn with parameters are in torch/nn/layers.h, which is generated.
#pragma once
#include <any>
#include <functional>

#include "torch/nn/module.h"
#include "torch/value.h"

namespace torch::nn {

// A module of any type whose forward takes and gives values of any type.
class AnyModule {
 public:
  AnyModule() = default;
  template <class M>
    requires std::derived_from<M, Module>
  AnyModule(std::shared_ptr<M> module) : module_(module), call_(call_of(module, &M::forward)) {}
  template <class M>
    requires(std::derived_from<M, Module> && requires { M::template forward<Tensor>; })
  AnyModule(std::shared_ptr<M> module)
      : module_(module), call_([module](std::vector<std::any>& x) -> std::any {
          return module->forward(std::any_cast<Tensor>(x.at(0)));
        }) {}
  template <class M>
    requires std::derived_from<std::decay_t<M>, Module>
  explicit AnyModule(M&& module) : AnyModule(std::make_shared<std::decay_t<M>>(std::forward<M>(module))) {}
  template <class M>
  AnyModule(const ModuleHolder<M>& holder) : AnyModule(holder.ptr()) {}

  template <class... A>
  std::any any_forward(A&&... inputs) {
    user_check(module_, "AnyModule") << "an empty AnyModule was called";
    std::vector<std::any> values;
    (values.push_back(boxed(std::forward<A>(inputs))), ...);
    return call_(values);
  }
  // With one value as any_forward gave it.
  std::any any_forward_of(std::any value) {
    std::vector<std::any> values{std::move(value)};
    return call_(values);
  }
  template <class R = Tensor, class... A>
  R forward(A&&... inputs) {
    std::any result = any_forward(std::forward<A>(inputs)...);
    auto* typed = std::any_cast<R>(&result);
    type_check(typed, "AnyModule") << "the forward of " << module_->name()
                                   << " gives another type than was asked for";
    return *typed;
  }
  std::shared_ptr<Module> ptr() const { return module_; }
  template <class M>
  auto& get() {
    auto* typed = module_ ? module_->as<M>() : nullptr;
    type_check(typed, "AnyModule") << "the module is of another class";
    return *typed;
  }
  bool is_empty() const { return !module_; }

 private:
  template <class T>
  static std::any boxed(T&& x) {
    if constexpr (std::derived_from<std::decay_t<T>, facula::Tensor>) return Tensor(std::forward<T>(x));
    else return std::any(std::decay_t<T>(std::forward<T>(x)));
  }
  using Call = std::function<std::any(std::vector<std::any>&)>;
  template <class M, class C, class R, class... P>
  static Call call_of(std::shared_ptr<M> module, R (C::*)(P...)) {
    return
        [module](std::vector<std::any>& x) -> std::any { return call_with<sizeof...(P), P...>(*module, x); };
  }
  template <class M, class C, class R, class... P>
  static Call call_of(std::shared_ptr<M> module, R (C::*)(P...) const) {
    return
        [module](std::vector<std::any>& x) -> std::any { return call_with<sizeof...(P), P...>(*module, x); };
  }
  // Calls forward with as many arguments as there are, where those that are left out have defaults.
  template <size_t Count, class... P, class M>
  static std::any call_with(M& module, std::vector<std::any>& x) {
    if (x.size() == Count)
      return [&]<size_t... K>(std::index_sequence<K...>) -> std::any {
        using All = std::tuple<std::decay_t<P>...>;
        if constexpr (requires { module.forward(std::declval<std::tuple_element_t<K, All>&>()...); })
          return module.forward(value_as<std::tuple_element_t<K, All>>(x[K])...);
        else
          user_check(false, "AnyModule") << "forward takes more arguments than the " << x.size() << " given";
        return {};
      }(std::make_index_sequence<Count>());
    if constexpr (Count > 0) return call_with<Count - 1, P...>(module, x);
    user_check(false, "AnyModule") << "forward takes fewer arguments than the " << x.size() << " given";
    return {};
  }
  template <class T>
  static T& value_as(std::any& x) {
    T* typed = std::any_cast<T>(&x);
    type_check(typed, "AnyModule") << "an argument of forward is of another type";
    return *typed;
  }

  std::shared_ptr<Module> module_;
  Call call_;
};

// A module with its name, for Sequential({{"fc", Linear(3, 4)}, ...}).
class NamedAnyModule {
 public:
  template <class M>
  NamedAnyModule(std::string name, M&& module) : name_(std::move(name)), module_(std::forward<M>(module)) {}
  const std::string& name() const { return name_; }
  AnyModule& module() { return module_; }
  const AnyModule& module() const { return module_; }

 private:
  std::string name_;
  AnyModule module_;
};

template <class M>
concept SomeModule = std::constructible_from<AnyModule, M> && !std::same_as<std::decay_t<M>, NamedAnyModule>;

// The functions that Sequential and ModuleList have in common: a vector of items that hold a module each.
template <class Container, class Item>
class ModuleSequence {
 public:
  template <class Modules>
  void extend(const Modules& modules) {
    for (auto& m : modules) static_cast<Container&>(*this).push_back(m);
  }
  auto begin() { return modules_.begin(); }
  auto end() { return modules_.end(); }
  auto begin() const { return modules_.begin(); }
  auto end() const { return modules_.end(); }
  std::shared_ptr<Module> ptr(size_t k) const {
    if constexpr (std::same_as<Item, AnyModule>) return modules_.at(k).ptr();
    else return modules_.at(k);
  }
  std::shared_ptr<Module> operator[](size_t k) const { return ptr(k); }
  size_t size() const noexcept { return modules_.size(); }
  bool is_empty() const noexcept { return modules_.empty(); }

 protected:
  std::vector<Item> modules_;
};

// Modules applied one after the other, each to what the one before gave.
class SequentialImpl : public Module, public ModuleSequence<SequentialImpl, AnyModule> {
 public:
  SequentialImpl() : Module("torch::nn::Sequential") {}
  template <SomeModule... M>
    requires(sizeof...(M) > 0 &&
             !(sizeof...(M) == 1 && (std::derived_from<std::decay_t<M>, SequentialImpl> && ...)))
  explicit SequentialImpl(M&&... modules) : SequentialImpl() {
    (push_back(std::forward<M>(modules)), ...);
  }
  explicit SequentialImpl(std::initializer_list<NamedAnyModule> modules) : SequentialImpl() {
    for (auto& m : modules) push_back(m.name(), m.module());
  }
  explicit SequentialImpl(OrderedDict<std::string, AnyModule>&& modules) : SequentialImpl() {
    for (auto& item : modules) push_back(item.key(), item.value());
  }

  template <class R = Tensor, class... A>
  R forward(A&&... inputs) {
    user_check(!is_empty(), "Sequential") << "Cannot call forward() on an empty Sequential";
    std::any value = modules_.front().any_forward(std::forward<A>(inputs)...);
    for (size_t k = 1; k < modules_.size(); ++k) value = modules_[k].any_forward_of(std::move(value));
    auto* result = std::any_cast<R>(&value);
    type_check(result, "Sequential") << "the last module gives another type than was asked for";
    return *result;
  }

  template <SomeModule M>
  void push_back(M&& module) {
    push_back(std::to_string(modules_.size()), std::forward<M>(module));
  }
  template <SomeModule M>
  void push_back(std::string name, M&& module) {
    modules_.emplace_back(std::forward<M>(module));
    register_module(std::move(name), modules_.back().ptr());
  }
  template <class M>
  auto& at(size_t k) {
    return modules_.at(k).get<M>();
  }
  void pretty_print(std::ostream& s) const override { s << "torch::nn::Sequential"; }
};
class Sequential : public ModuleHolder<SequentialImpl> {
 public:
  using ModuleHolder<SequentialImpl>::ModuleHolder;
  Sequential() = default;
  Sequential(std::initializer_list<NamedAnyModule> modules)
      : ModuleHolder(std::make_shared<SequentialImpl>(modules)) {}
};

// A function of a tensor as a module; arguments after the first are fixed.
class FunctionalImpl : public Module {
 public:
  using Function = std::function<Tensor(Tensor)>;
  explicit FunctionalImpl(Function f) : Module("torch::nn::Functional"), function_(std::move(f)) {}
  template <class F, class... A>
    requires(sizeof...(A) > 0)
  explicit FunctionalImpl(F f, A&&... arguments)
      : FunctionalImpl([f, fixed = std::make_tuple(std::forward<A>(arguments)...)](Tensor x) -> Tensor {
          return std::apply([&](auto&... a) { return f(x, a...); }, fixed);
        }) {}
  Tensor forward(Tensor x) { return function_(std::move(x)); }
  Tensor operator()(Tensor x) { return forward(std::move(x)); }
  void pretty_print(std::ostream& s) const override { s << "torch::nn::Functional()"; }
  bool is_serializable() const override { return false; }

 private:
  Function function_;
};
TORCH_MODULE(Functional);

// A list of modules, which are called by who holds it.
class ModuleListImpl : public Module, public ModuleSequence<ModuleListImpl, std::shared_ptr<Module>> {
 public:
  ModuleListImpl() : Module("torch::nn::ModuleList") {}
  template <class... M>
    requires(sizeof...(M) > 0)
  explicit ModuleListImpl(M&&... modules) : ModuleListImpl() {
    (push_back(std::forward<M>(modules)), ...);
  }
  template <class M>
  void push_back(std::shared_ptr<M> module) {
    register_module(std::to_string(modules_.size()), module);
    modules_.push_back(std::move(module));
  }
  template <class M>
  void push_back(const ModuleHolder<M>& holder) {
    push_back(holder.ptr());
  }
  template <class M>
    requires std::derived_from<std::decay_t<M>, Module>
  void push_back(M&& module) {
    push_back(std::make_shared<std::decay_t<M>>(std::forward<M>(module)));
  }
  template <class M>
  auto& at(size_t k) {
    auto* typed = modules_.at(k)->template as<M>();
    type_check(typed, "ModuleList") << "the module is of another class";
    return *typed;
  }
  void pretty_print(std::ostream& s) const override { s << "torch::nn::ModuleList"; }
};
TORCH_MODULE(ModuleList);

// Modules by name.
class ModuleDictImpl : public Module {
 public:
  using Item = std::pair<std::string, std::shared_ptr<Module>>;
  ModuleDictImpl() : Module("torch::nn::ModuleDict") {}
  explicit ModuleDictImpl(const std::vector<Item>& modules) : ModuleDictImpl() { update(modules); }
  explicit ModuleDictImpl(const OrderedDict<std::string, std::shared_ptr<Module>>& modules)
      : ModuleDictImpl(modules.pairs()) {}
  void update(const std::vector<Item>& modules) {
    for (auto& [name, module] : modules) insert(name, module);
  }
  void insert(const std::string& name, std::shared_ptr<Module> module) {
    if (contains(name)) replace_module(name, std::move(module));
    else register_module(name, std::move(module));
  }
  OrderedDict<std::string, std::shared_ptr<Module>> items() const { return named_children(); }
  std::vector<std::string> keys() const { return named_children().keys(); }
  std::vector<std::shared_ptr<Module>> values() const { return children(); }
  bool contains(const std::string& name) const { return named_children().contains(name); }
  size_t size() const { return named_children().size(); }
  bool empty() const { return size() == 0; }
  void clear() {
    for (auto& name : keys()) unregister_module(name);
  }
  std::shared_ptr<Module> pop(const std::string& name) {
    auto module = (*this)[name];
    unregister_module(name);
    return module;
  }
  template <class M>
  auto& at(const std::string& name) {
    auto* typed = (*this)[name]->template as<M>();
    type_check(typed, "ModuleDict") << "the module '" << name << "' is of another class";
    return *typed;
  }
  void pretty_print(std::ostream& s) const override { s << "torch::nn::ModuleDict"; }
};
TORCH_MODULE(ModuleDict);

// A list of parameters.
class ParameterListImpl : public Module {
 public:
  ParameterListImpl() : Module("torch::nn::ParameterList") {}
  explicit ParameterListImpl(const std::vector<Tensor>& parameters) : ParameterListImpl() {
    for (auto& t : parameters) append(t);
  }
  void append(const Tensor& t) { register_parameter(std::to_string(size()), t, t.requires_grad()); }
  template <class Container>
  void extend(const Container& parameters) {
    for (auto& t : parameters) append(t);
  }
  Tensor at(size_t k) const { return parameters().at(k); }
  Tensor operator[](size_t k) const { return at(k); }
  size_t size() const { return parameters().size(); }
  bool is_empty() const { return size() == 0; }
  void pretty_print(std::ostream& s) const override { s << "torch::nn::ParameterList"; }
};
TORCH_MODULE(ParameterList);

// Parameters by name.
class ParameterDictImpl : public Module {
 public:
  ParameterDictImpl() : Module("torch::nn::ParameterDict") {}
  explicit ParameterDictImpl(const OrderedDict<std::string, Tensor>& parameters) : ParameterDictImpl() {
    for (auto& item : parameters) insert(item.key(), item.value());
  }
  void insert(const std::string& name, const Tensor& t) { register_parameter(name, t, t.requires_grad()); }
  Tensor get(const std::string& name) const { return named_parameters()[name]; }
  Tensor operator[](const std::string& name) const { return get(name); }
  bool contains(const std::string& name) const { return named_parameters().contains(name); }
  std::vector<std::string> keys() const { return named_parameters().keys(); }
  std::vector<Tensor> values() const { return parameters(); }
  size_t size() const { return parameters().size(); }
  void pretty_print(std::ostream& s) const override { s << "torch::nn::ParameterDict"; }
};
TORCH_MODULE(ParameterDict);

}  // namespace torch::nn
