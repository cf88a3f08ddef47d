// OpenBLAS, loaded when the first of its routines is called, so that a process without products and factorizations does
// not pay for it.
#pragma once
#include <atomic>

// FACULA_ROUTINE(FACULA_PREFIXED(cblas_sgemm)): a callable that loads and calls the declared function of this name.
#define FACULA_PREFIXED2(prefix, name) prefix##name
#define FACULA_PREFIXED1(prefix, name) FACULA_PREFIXED2(prefix, name)
#define FACULA_PREFIXED(name) FACULA_PREFIXED1(FACULA_LAPACK_PREFIX, name)
#define FACULA_QUOTED1(name) #name
#define FACULA_QUOTED(name) FACULA_QUOTED1(name)
#define FACULA_ROUTINE(prefixed) \
  ::facula::device::cpu::Routine<decltype(prefixed)> { FACULA_QUOTED(prefixed) }

namespace facula::device::cpu {

// Returns the address of a function. Raises RuntimeError if the library does not stand next to this one. Loading it
// starts no threads of OpenBLAS.
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
    F* f = address_.load(std::memory_order_acquire);
    if (!f) [[unlikely]]
      address_.store(f = reinterpret_cast<F*>(openblas_symbol(symbol_)), std::memory_order_release);
    return f(args...);
  }

 private:
  const char* symbol_;
  mutable std::atomic<F*> address_{nullptr};
};

}  // namespace facula::device::cpu
