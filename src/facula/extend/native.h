// The functions of an operator that a library defined in C++, by dispatch key; they may be registered at any time.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "facula/op/operator.h"

namespace facula::extend {

// Checks "CPU", "CompositeImplicitAutograd" and so on; raises RuntimeError for other strings.
void check_key(const std::string& key);

class NativeFunctions final : public op::ForeignFunctions {
 public:
  op::Results run(const op::Call& c) override;
  std::vector<op::Meta> infer(const op::Call& c) override;
  op::Results record(const op::Call& c) override;
  op::Grads gradient(const op::Vjp& v) override;
  bool is_composite() const override;
  void set_kernel(const std::string& key, op::CompositeBody kernel) override;

  void set_gradient(op::VjpRule rule) { set(gradient_, std::move(rule)); }
  void set_batch(op::BatchRule rule) { set(batch_, std::move(rule)); }
  op::Results batched(const op::Batched& b);
  bool has_gradient() const { return gradient_ || autograd_; }

  // Replaces this operator's functions by those of `to`, which receives `kernels`.
  void hand_over(std::shared_ptr<ForeignFunctions> to);
  ForeignFunctions* successor() const { return successor_; }
  std::vector<std::pair<std::string, op::CompositeBody>> kernels() const;

 private:
  // A replaced function is not freed, since another thread may be running it.
  template <class F>
  void set(std::atomic<const F*>& at, F f) {
    at = new F(std::move(f));
  }
  std::atomic<const op::CompositeBody*> explicit_{}, cpu_{}, composite_{}, autograd_{}, fake_{};
  std::atomic<const op::VjpRule*> gradient_{};
  std::atomic<const op::BatchRule*> batch_{};
  std::atomic<ForeignFunctions*> successor_{};
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<ForeignFunctions>> successors_;
  std::vector<std::pair<std::string, op::CompositeBody>> kernels_;  // in order of registration
};

}  // namespace facula::extend
