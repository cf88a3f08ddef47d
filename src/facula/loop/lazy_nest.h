// A nest that is built when it is first accessed. A launch that knows its kernel by name does not need the nest.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "facula/base/sha256.h"
#include "facula/loop/nest.h"

namespace facula::codegen {
struct Kernel;
}

namespace facula::loop {

class LazyNest {
 public:
  struct Kernel {
    Sha256 name;
    std::string shown;  // the name for users
    Expr tasks, cost;   // over params, like the nest's
  };
  using Make = std::function<std::shared_ptr<const Nest>()>;

  explicit LazyNest(std::shared_ptr<const Nest> nest) : nest_(std::move(nest)) {}
  LazyNest(Kernel kernel, Make make) : kernel_(std::move(kernel)), make_(std::move(make)) {}

  const Nest& nest() const {
    if (kernel_) std::call_once(once_, [this] { nest_ = make_(); });
    return *nest_;
  }
  operator const Nest&() const { return nest(); }
  const Kernel* kernel() const { return kernel_ ? &*kernel_ : nullptr; }  // null if it is unknown
  // The machine code, once codegen::kernel has found or compiled it; null before.
  const codegen::Kernel* compiled() const { return compiled_.load(std::memory_order_acquire); }
  void set_compiled(const codegen::Kernel* k) const { compiled_.store(k, std::memory_order_release); }

 private:
  std::optional<Kernel> kernel_;
  Make make_;
  mutable std::once_flag once_;
  mutable std::shared_ptr<const Nest> nest_;
  mutable std::atomic<const codegen::Kernel*> compiled_{nullptr};
};

}  // namespace facula::loop
