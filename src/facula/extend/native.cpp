#include "facula/extend/native.h"

#include <algorithm>

#include "facula/autograd/autograd.h"
#include "facula/graph/trace.h"

namespace facula::extend {
namespace {

constexpr std::string_view kDevices[] = {"CPU", "CUDA", "XPU",  "MPS",  "HPU",
                                         "XLA", "IPU",  "MTIA", "Lazy", "PrivateUse1"};
constexpr std::string_view kOthers[] = {"CompositeImplicitAutograd", "CompositeExplicitAutograd", "Autograd",
                                        "Meta"};

std::string with_hint(const op::Operator& o, const char* key) {
  return "register one with FACULA_LIBRARY_IMPL(" + std::string(o.schema.library()) + ", " + key + ", m)";
}

}  // namespace

void check_key(const std::string& key) {
  std::string_view device = key;
  if (device.starts_with("Autograd")) device.remove_prefix(8);
  bool is_key = std::ranges::find(kOthers, key) != std::end(kOthers) ||
                std::ranges::find(kDevices, device) != std::end(kDevices);
  runtime_check(is_key, "impl")
      << "could not parse dispatch key: " << key
      << hint(
             "CPU, CompositeImplicitAutograd, CompositeExplicitAutograd, Autograd and Meta "
             "are known, and keys of devices");
}

void NativeFunctions::set_kernel(const std::string& key, op::CompositeBody kernel) {
  check_key(key);
  std::lock_guard guard(mutex_);
  kernels_.emplace_back(key, kernel);
  if (auto* to = successor_.load()) return to->set_kernel(key, std::move(kernel));
  if (key == "CPU") set(cpu_, std::move(kernel));
  else if (key == "CompositeExplicitAutograd") set(explicit_, std::move(kernel));
  else if (key == "CompositeImplicitAutograd") set(composite_, std::move(kernel));
  else if (key == "Autograd" || key == "AutogradCPU") set(autograd_, std::move(kernel));
  else if (key == "Meta") set(fake_, std::move(kernel));
}

bool NativeFunctions::is_composite() const {
  if (auto* to = successor_.load()) return to->is_composite();
  // A recording function consists of operators and custom functions, within which gradients are off.
  bool computes = cpu_ || explicit_;
  if (autograd_) return autograd::grad_enabled() || (!computes && !composite_);
  return composite_ && !computes && !gradient_;
}

op::Results NativeFunctions::run(const op::Call& c) {
  if (auto* to = successor_.load()) return to->run(c);
  const op::CompositeBody* kernel = autograd::grad_enabled() ? autograd_.load() : nullptr;
  for (auto* next : {&cpu_, &explicit_, &composite_, &autograd_})
    if (!kernel) kernel = *next;
  supported_check(kernel, c.name()) << "Could not run '" << c.op().schema.full_name()
                                    << "' with arguments from the 'CPU' backend: it has no kernel for it"
                                    << hint(with_hint(c.op(), "CPU"));
  return (*kernel)(c);
}

op::Results NativeFunctions::record(const op::Call& c) {
  if (auto* to = successor_.load()) return to->record(c);
  if (!gradient_) return run(c);  // operators of the kernel are recorded
  op::Results results;
  {
    autograd::GradMode off(false);
    results = run(c);
  }
  autograd::record(c.op(), c.args(), op::Form::functional, results);
  return results;
}

std::vector<op::Meta> NativeFunctions::infer(const op::Call& c) {
  if (auto* to = successor_.load()) return to->infer(c);
  const op::CompositeBody* kernel = fake_ ? fake_.load() : composite_.load();
  if (!kernel && c.op().schema.returns.empty()) return {};
  supported_check(kernel, c.name())
      << "attempted to run this operator on tensors without data, but there was no fake "
         "impl or Meta kernel registered"
      << hint(with_hint(c.op(), "Meta"));
  return graph::infer_by_calls(c, *kernel);
}

op::Grads NativeFunctions::gradient(const op::Vjp& v) {
  if (auto* to = successor_.load()) return to->gradient(v);
  auto* rule = gradient_.load();
  runtime_check(rule, v.call().name())
      << "Trying to backward through " << v.call().op().schema.full_name()
      << " but no autograd formula was registered"
      << hint("give it one with register_autograd, or a kernel for Autograd");
  return (*rule)(v);
}

op::Results NativeFunctions::batched(const op::Batched& b) {
  auto* rule = batch_.load();
  return rule ? (*rule)(b) : op::Results();
}

void NativeFunctions::hand_over(std::shared_ptr<ForeignFunctions> to) {
  std::lock_guard guard(mutex_);
  successor_ = to.get();
  successors_.push_back(std::move(to));
}

std::vector<std::pair<std::string, op::CompositeBody>> NativeFunctions::kernels() const {
  std::lock_guard guard(mutex_);
  return kernels_;
}

}  // namespace facula::extend
