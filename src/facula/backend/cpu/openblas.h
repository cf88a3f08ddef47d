// OpenBLAS, which is loaded when the first of its routines is called: a process that multiplies and factors nothing has
// no use for it.
#pragma once
#include <atomic>

// FACULA_ROUTINE(FACULA_PREFIXED(cblas_sgemm)): what calls the declared function of this name.
#define FACULA_PREFIXED2(prefix, name) prefix##name
#define FACULA_PREFIXED1(prefix, name) FACULA_PREFIXED2(prefix, name)
#define FACULA_PREFIXED(name) FACULA_PREFIXED1(FACULA_LAPACK_PREFIX, name)
#define FACULA_QUOTED1(name) #name
#define FACULA_QUOTED(name) FACULA_QUOTED1(name)
#define FACULA_ROUTINE(prefixed) \
  ::facula::backend::cpu::Routine<decltype(prefixed)> { FACULA_QUOTED(prefixed) }

namespace facula::backend::cpu {

// RuntimeError if the library is not beside this one. As it is loaded it has no threads of its own yet.
void* openblas_symbol(const char* symbol);

template <class F>
class Routine;
template <class R, class... Args>
class Routine<R(Args...)> {
  using F = R(Args...);

 public:
  explicit constexpr Routine(const char* symbol) : symbol_(symbol) {}
  const char* symbol() const { return symbol_; }
  R operator()(Args... args) const {
    F* f = found_.load(std::memory_order_acquire);
    if (!f) [[unlikely]]
      found_.store(f = reinterpret_cast<F*>(openblas_symbol(symbol_)), std::memory_order_release);
    return f(args...);
  }

 private:
  const char* symbol_;
  mutable std::atomic<F*> found_{nullptr};
};

}  // namespace facula::backend::cpu
