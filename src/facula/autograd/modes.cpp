#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "facula/autograd/autograd.h"
#include "facula/base/per_thread.h"
#include "facula/base/thread_state.h"

namespace facula::autograd {
namespace {
std::atomic<bool> anomaly{false}, anomaly_nan{true};
std::atomic<std::string (*)()> stack_source{nullptr};
struct SavedHooks {
  std::vector<PackHook> hooks;
  std::optional<std::string> disabled;
};
SavedHooks& saved_hooks() { return per_thread<SavedHooks>(); }
__attribute__((tls_model("initial-exec"))) thread_local const PackHook* innermost = nullptr;
void set_innermost() { innermost = saved_hooks().hooks.empty() ? nullptr : &saved_hooks().hooks.back(); }
}  // namespace

void push_saved_hook(PackHook hook) {
  runtime_check(!saved_hooks().disabled, "saved_tensors_hooks") << saved_hooks().disabled.value_or("");
  saved_hooks().hooks.push_back(std::move(hook));
  set_innermost();
}
void pop_saved_hook() {
  if (!saved_hooks().hooks.empty()) saved_hooks().hooks.pop_back();
  set_innermost();
}
const PackHook* saved_hook() { return innermost; }
const std::string* saved_hooks_disabled() {
  return saved_hooks().disabled ? &*saved_hooks().disabled : nullptr;
}
void set_saved_hooks_disabled(const std::string* message) {
  runtime_check(!message || saved_hooks().hooks.empty(), "disable_saved_tensors_hooks")
      << (message ? *message : std::string());
  saved_hooks().disabled = message ? std::optional(*message) : std::nullopt;
}

bool grad_enabled() { return thread_state.grad; }
void set_grad_enabled(bool enabled) { thread_state.grad = enabled; }
bool inference_enabled() { return thread_state.inference; }

GradMode::GradMode(bool enabled) : outer_(thread_state.grad) { thread_state.grad = enabled; }
GradMode::~GradMode() { thread_state.grad = outer_; }

InferenceMode::InferenceMode(bool enabled) : outer_(thread_state.inference), outer_grad_(thread_state.grad) {
  thread_state.inference = enabled;
  if (enabled) thread_state.grad = false;
  else if (outer_) thread_state.grad = true;
}
InferenceMode::~InferenceMode() {
  thread_state.inference = outer_;
  thread_state.grad = outer_grad_;
}

bool anomaly_enabled() { return anomaly.load(std::memory_order_relaxed); }
bool anomaly_checks_nan() { return anomaly_nan.load(std::memory_order_relaxed); }
void set_anomaly(bool enabled, bool check_nan) {
  anomaly = enabled;
  anomaly_nan = check_nan;
}
void set_stack_source(std::string (*capture)()) { stack_source = capture; }
std::string captured_stack() {
  auto capture = stack_source.load();
  return capture ? capture() : std::string();
}

}  // namespace facula::autograd
