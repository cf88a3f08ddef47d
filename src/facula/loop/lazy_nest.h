// A nest that is made when somebody looks at it: who knows which kernel it became elsewhere needs none.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "facula/base/sha256.h"
#include "facula/loop/nest.h"

namespace facula::loop {

class LazyNest {
 public:
  struct Kernel {
    Sha256 name;
    std::string shown;  // to people
    Expr tasks, cost;   // over params, as the nest's
  };
  using Make = std::function<std::shared_ptr<const Nest>()>;

  explicit LazyNest(std::shared_ptr<const Nest> nest) : nest_(std::move(nest)) {}
  LazyNest(Kernel kernel, Make make) : kernel_(std::move(kernel)), make_(std::move(make)) {}

  const Nest& nest() const {
    if (kernel_) std::call_once(once_, [this] { nest_ = make_(); });
    return *nest_;
  }
  operator const Nest&() const { return nest(); }
  const Kernel* kernel() const { return kernel_ ? &*kernel_ : nullptr; }  // null if it is not known

 private:
  std::optional<Kernel> kernel_;
  Make make_;
  mutable std::once_flag once_;
  mutable std::shared_ptr<const Nest> nest_;
};

}  // namespace facula::loop
