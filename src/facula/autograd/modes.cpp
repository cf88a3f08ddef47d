#include <string>

#include "facula/autograd/autograd.h"

namespace facula::autograd {
namespace {
struct Modes { bool grad = true, inference = false; };
__attribute__((tls_model("initial-exec"))) thread_local Modes modes;
std::atomic<bool> anomaly{false}, anomaly_nan{true};
std::atomic<std::string (*)()> stack_source{nullptr};
}  // namespace

bool grad_enabled() { return modes.grad; }
void set_grad_enabled(bool enabled) { modes.grad = enabled; }
bool inference_enabled() { return modes.inference; }

GradMode::GradMode(bool enabled) : outer_(modes.grad) { modes.grad = enabled; }
GradMode::~GradMode() { modes.grad = outer_; }

InferenceMode::InferenceMode(bool enabled) : outer_(modes.inference), outer_grad_(modes.grad) {
  modes.inference = enabled;
  if (enabled) modes.grad = false;
  else if (outer_) modes.grad = true;
}
InferenceMode::~InferenceMode() {
  modes.inference = outer_;
  modes.grad = outer_grad_;
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
