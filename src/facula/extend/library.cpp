#include "facula/extend/library.h"

#include <dlfcn.h>

#include <map>
#include <mutex>
#include <set>

#include "facula/catalog/catalog.h"
#include "facula/extend/native.h"
#include "facula/extend/transaction.h"
#include "facula/op/batched.h"
#include "facula/op/registry.h"

namespace facula {
namespace extend {
namespace {

std::mutex& namespaces_mutex() {
  static auto& m = *new std::mutex;
  return m;
}
std::set<std::string>& namespaces() {
  static auto& defined_namespaces = *new std::set<std::string>;
  return defined_namespaces;
}

op::ForeignFunctions& functions_of(const char* what, const std::string& name) {
  auto* o = op::find(name);
  runtime_check(o, what) << "operator " << name << " does not exist; define it first";
  auto* foreign = o->as<op::Foreign>();
  supported_check(foreign, what) << name << " is no function, and cannot be given another implementation";
  return *foreign->functions;
}
NativeFunctions& native_of(const char* what, const std::string& name) {
  auto* native = dynamic_cast<NativeFunctions*>(&functions_of(what, name));
  supported_check(native, what) << name
                                << " was defined in Python, which also says its gradient and its batches";
  return *native;
}

void check_function(const op::Schema& s) {
  for (auto& r : s.returns)
    supported_check(r.type == op::Type::Tensor, "def")
        << s.name
        << " returns what is no Tensor, and operators of libraries return Tensors and lists of them: "
        << s.text << hint("return a tensor of one element, or let it be a static method of a class");
}

}  // namespace

void check_build(const Build& build, const char* file) {
  runtime_check(std::string_view(build.version) == kBuild.version && build.layout == kBuild.layout,
                "load_library")
      << file << " was compiled against Facula " << build.version
      << (std::string_view(build.version) == kBuild.version ? " with other types" : "")
      << ", and this is Facula " << kBuild.version
      << hint("compile it again against the headers of this one");
}

void claim_namespace(const std::string& ns) {
  std::lock_guard guard(namespaces_mutex());
  bool fresh = !ns.empty() && ns != "aten" && ns != "prim" && namespaces().insert(ns).second;
  runtime_check(fresh, "")
      << "Only a single library of kind DEF can be used to register the namespace " << ns
      << "; please put all of your definitions in it. If you were trying to specify implementations, consider using "
         "IMPL (which can be duplicated). If you really intended to define operators for a single namespace in a "
         "distributed way, you can use FRAGMENT to explicitly indicate this.";
}
void release_namespace(const std::string& ns) {
  std::lock_guard guard(namespaces_mutex());
  namespaces().erase(ns);
}

// ---- blocks

std::string Library::qualified(std::string_view name) const {
  size_t end = name.find("::");
  if (end == name.npos) return ns_ + "::" + std::string(name);
  runtime_check(!defines_ || name.substr(0, end) == ns_, "library")
      << "a block of the namespace " << ns_ << " defines " << name;
  return std::string(name);
}

op::Definer Library::define(std::string_view schema) {
  runtime_check(defines_, "define") << "a block of kind IMPL defines no operators: " << schema;
  auto definer = op::define(qualified(schema));
  transaction_.defined(op::parse_schema(qualified(schema)).full_name());
  return definer;
}

Library& Library::define_function(std::string schema, std::string key, KernelOf kernel) {
  auto functions = std::make_shared<NativeFunctions>();
  std::string text = qualified(schema);
  op::Schema parsed = op::parse_schema(text);
  check_function(parsed);
  define(schema).foreign(functions).batched(
      [f = functions.get()](const op::Batched& b) { return f->batched(b); });
  op::finish_definitions();
  if (kernel) functions->set_kernel(key, kernel(parsed));
  return *this;
}

Library& Library::impl(std::string_view name, Dispatched f) {
  std::string key = f.key.empty() ? key_ : f.key, full = qualified(name);
  if (key.empty()) key = "CompositeImplicitAutograd";
  check_key(key);
  transaction_.later([full, key, kernel = std::move(f.kernel)]() -> Transaction::Apply {
    auto& functions = functions_of("impl", full);
    return [&functions, key, built = kernel(op::get(full).schema)] { functions.set_kernel(key, built); };
  });
  return *this;
}

Library& Library::register_autograd(std::string_view name, op::VjpRule rule) {
  transaction_.later([full = qualified(name), rule = std::move(rule)]() -> Transaction::Apply {
    auto& native = native_of("register_autograd", full);
    auto& schema = op::get(full).schema;
    bool functional = !schema.mutates();
    for (auto& r : schema.returns) functional &= !r.alias;
    runtime_check(functional, "register_autograd")
        << "Cannot register autograd formula for non-functional operator " << schema.text
        << hint("define a functional operator and register an autograd formula for that");
    return [&native, rule] { native.set_gradient(rule); };
  });
  return *this;
}

Library& Library::register_vmap(std::string_view name, op::BatchRule rule) {
  transaction_.later([full = qualified(name), rule = std::move(rule)]() -> Transaction::Apply {
    auto& native = native_of("register_vmap", full);
    return [&native, rule] { native.set_batch(rule); };
  });
  return *this;
}

// ---- loading

Transaction*& Transaction::current() {
  static thread_local Transaction* t = nullptr;
  return t;
}

void Transaction::defined(const std::string& full_name) {
  runtime_check(!op::find(full_name), "define") << "Tried to register an operator (" << full_name
                                                << ") with the same name and overload name multiple times";
}

// Runs blocks with definitions first, whatever the order of the sources.
std::vector<Transaction::Apply> Transaction::run_blocks(std::vector<std::string>& claimed) {
  for (bool defining : {true, false})
    for (auto& b : blocks) {
      if (defining == (b.kind == BlockKind::implementations)) continue;
      if (b.kind == BlockKind::whole) {
        claim_namespace(b.ns);
        claimed.push_back(b.ns);
      }
      Library m(b.ns, b.key, defining, *this);
      b.body(m);
      op::finish_definitions();
    }
  std::vector<Apply> apply;
  for (auto& check : later_) apply.push_back(check());
  return apply;
}

void Transaction::commit() {
  for (auto& b : blocks) check_build(b.build, b.file);
  for (auto& c : classes) check_build(c->build, c->full_name().c_str());
  size_t before = 0, waiting = classes.size();
  std::vector<std::string> claimed;
  Transaction* outer = std::exchange(current(), this);
  try {
    op::define_late([&] {
      before = op::all().size();
      later_.clear();
      try {
        auto apply = run_blocks(claimed);
        register_classes(classes);
        for (auto& f : apply) f();
      } catch (...) {
        while (op::all().size() > before) op::retire(*op::all().back());
        throw;
      }
    });
  } catch (...) {
    current() = outer;
    classes.resize(waiting);  // classes that blocks declared will be declared again
    for (auto& ns : claimed) release_namespace(ns);
    throw;
  }
  current() = outer;
  blocks.clear();
}

Registration::Registration(Block block) {
  if (auto* t = Transaction::current()) {
    t->blocks.push_back(block);
    return;
  }
  catalog::load();
  Transaction alone;
  alone.blocks.push_back(block);
  alone.commit();
}

}  // namespace extend

void load_library(const std::string& path) {
  using extend::Transaction;
  // Transactions of libraries whose blocks failed, so that loading them again retries.
  static std::map<void*, std::unique_ptr<Transaction>>& failed =
      *new std::map<void*, std::unique_ptr<Transaction>>;
  static std::recursive_mutex& mutex = *new std::recursive_mutex;
  std::lock_guard guard(mutex);
  auto transaction = std::make_unique<Transaction>();
  Transaction* outer = std::exchange(Transaction::current(), transaction.get());
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  Transaction::current() = outer;
  const char* why = handle ? nullptr : dlerror();
  bool symbol = why && std::string_view(why).find("undefined symbol") != std::string_view::npos;
  runtime_check(handle, kCouldNotLoad)
      << path << " (" << (why ? why : "no reason given") << ')'
      << (symbol ? hint("it was compiled against another build, or a source is missing") : Hint{});
  auto earlier = failed.find(handle);
  if (earlier != failed.end() && transaction->blocks.empty()) transaction = std::move(earlier->second);
  try {
    transaction->commit();
    failed.erase(handle);
  } catch (...) {
    failed[handle] = std::move(transaction);
    throw;
  }
}

}  // namespace facula
