// Operators of users, from a shared library. Its source defines them in blocks at namespace scope:
//
//   FACULA_LIBRARY(mine, m) {
//     m.define("silu2(Tensor self) -> Tensor").pointwise([](auto x) { return x * sigmoid(2 * x); });  // as the catalog's
//     m.def("scaled(Tensor x, float by) -> Tensor", [](const Tensor& x, double by) { return x * by; });
//     m.def("sorted(Tensor x) -> Tensor");
//   }
//   FACULA_LIBRARY_IMPL(mine, CPU, m) { m.impl("sorted", sorted_on_cpu); }
//
// Blocks run when the library is loaded (`load_library`; facula.ops.load_library in Python), all or none: if one of them
// raises, nothing of the library stays registered. In a program that is linked with the library, they run before main().
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "facula/extend/build.h"
#include "facula/extend/class.h"

namespace facula {
namespace extend {

// Creates the kernel of an operator with this schema; raises if the C++ types do not match it.
using KernelOf = std::function<op::CompositeBody(const op::Schema&)>;
// Converts a function's result to the result type of op/typed.h.
template <class R>
struct Plain {
  static R of(R r) { return r; }
};
template <class R, class F, class... A>
auto plain_function(F f, std::tuple<A...>*) {
  if constexpr (std::is_void_v<R>) return [f](A... x) { f(x...); };
  else return [f](A... x) { return Plain<R>::of(f(x...)); };
}
template <class F>
KernelOf kernel_of(F f) {
  using S = op::typed::Signature<F>;
  auto plain = plain_function<typename S::Result>(std::move(f), static_cast<typename S::Arguments*>(nullptr));
  return [plain](const op::Schema& schema) { return op::typed::composite(schema, plain).body; };
}
// A function for one dispatch key: `dispatch("Meta", f)`.
struct Dispatched {
  std::string key;
  KernelOf kernel;
};

// Returns the schema text for parameters of these C++ types: "Tensor", "int[]", "__torch__.torch.classes.mine.Stack?".
template <class F, class... A>
std::string arguments_text(std::tuple<A...>*) {
  std::string text;
  size_t k = 0;
  ((text += (k ? ", " : "") + Boxed<A>::type() + " _" + std::to_string(k), ++k), ...);
  return text;
}
template <class F>
std::string schema_text(std::string_view name) {
  using S = op::typed::Signature<F>;
  using R = typename S::Result;
  std::string result;
  if constexpr (std::is_same_v<R, op::Results>) result = "Tensor";
  else result = Boxed<R>::type();
  return std::string(name) + "(" + arguments_text<F>(static_cast<typename S::Arguments*>(nullptr)) + ") -> " +
         result;
}

// The object that a block uses to register operators. Names without a namespace belong to the block's.
class Library {
 public:
  // Defines an operator of any kind that the catalog has (docs/adding_an_operator.md): kernels, gradient and batching are
  // derived.
  op::Definer define(std::string_view schema);

  // Defines an operator by a function, which is composed of operators (CompositeImplicitAutograd) unless impl() says
  // otherwise.
  Library& def(std::string_view schema) { return define_function(std::string(schema), "", nullptr); }
  Library& def(std::string_view schema, Dispatched f) {
    return define_function(std::string(schema), std::move(f.key), std::move(f.kernel));
  }
  template <class F>
  Library& def(std::string_view schema, F f) {
    bool written = schema.find('(') != schema.npos;  // otherwise the schema follows from the C++ types
    return define_function(written ? std::string(schema) : schema_text<F>(schema),
                           "CompositeImplicitAutograd", kernel_of(std::move(f)));
  }
  // Registers the function for the dispatch key of the block, or of `dispatch`: CPU, CompositeExplicitAutograd (computes;
  // requires a gradient), CompositeImplicitAutograd (operators that are recorded), Autograd (a recording function: calls
  // autograd::run), Meta (operators on tensors without data).
  Library& impl(std::string_view name, Dispatched f);
  template <class F>
  Library& impl(std::string_view name, F f) {
    return impl(name, Dispatched{"", kernel_of(std::move(f))});
  }
  // Registers the gradients of a function that computes, like the catalog's .vjp.
  Library& register_autograd(std::string_view name, op::VjpRule rule);
  // Registers the metadata of the results: a function of operators on tensors without data, as a kernel for Meta.
  template <class F>
  Library& register_fake(std::string_view name, F f) {
    return impl(name, Dispatched{"Meta", kernel_of(std::move(f))});
  }
  // Registers how to compute a batch of calls at once (vmap).
  Library& register_vmap(std::string_view name, op::BatchRule rule);

  template <class T>
  facula::class_<T> class_(std::string name, std::string doc = "") {
    return facula::class_<T>(ns_, std::move(name), std::move(doc));
  }

 private:
  friend struct Transaction;
  Library(std::string ns, std::string key, bool defines, struct Transaction& t)
      : ns_(std::move(ns)), key_(std::move(key)), defines_(defines), transaction_(t) {}
  Library& define_function(std::string schema, std::string key, KernelOf kernel);
  std::string qualified(std::string_view name) const;
  std::string ns_, key_;
  bool defines_;
  struct Transaction& transaction_;
};

template <class F>
Dispatched dispatch(std::string key, F f) {
  return {std::move(key), kernel_of(std::move(f))};
}

enum class BlockKind : uint8_t { whole, fragment, implementations };
struct Block {
  BlockKind kind;
  const char *ns, *key;
  void (*body)(Library&);
  Build build;
  const char* file;
};
// Passes the block to the load in progress, or runs it.
struct Registration {
  explicit Registration(Block block);
};

}  // namespace extend

using extend::dispatch;
using extend::Library;

// Loads a shared library and makes its operators and classes available. A library that is already loaded is not changed.
// Raises RuntimeError, with nothing registered, if there is no such file, for another build, or for a faulty block.
void load_library(const std::string& path);
constexpr const char* kCouldNotLoad = "Could not load this library";  // op() of the error if dlopen fails

// Only one block per namespace:
#define FACULA_LIBRARY(ns, m) FACULA_LIBRARY_BLOCK(whole, ns, , m, __LINE__)
// Further ones, here or in other libraries:
#define FACULA_LIBRARY_FRAGMENT(ns, m) FACULA_LIBRARY_BLOCK(fragment, ns, , m, __LINE__)
// Kernels for a dispatch key:
#define FACULA_LIBRARY_IMPL(ns, key, m) FACULA_LIBRARY_BLOCK(implementations, ns, key, m, __LINE__)
#define FACULA_LIBRARY_BLOCK(kind, ns, key, m, line) FACULA_LIBRARY_NAMED(kind, ns, key, m, line)
#define FACULA_LIBRARY_NAMED(kind, ns, key, m, line)                                                         \
  static void facula_block_##ns##_##key##_##line(::facula::extend::Library&);                                \
  static const ::facula::extend::Registration facula_registers_##ns##_##key##_##line(                        \
      {::facula::extend::BlockKind::kind, #ns, #key, facula_block_##ns##_##key##_##line,                     \
       ::facula::extend::kBuild, __FILE__});                                                                 \
  static void facula_block_##ns##_##key##_##line([[maybe_unused]] ::facula::extend::Library& m)

}  // namespace facula
