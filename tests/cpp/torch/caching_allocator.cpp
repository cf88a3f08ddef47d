// PyTorch's caching allocator for phones, as the announcement of release 1.7 uses it: prints page faults of one pass without the
// allocator and with it, and whether the results are equal.
#include <c10/mobile/CPUCachingAllocator.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <cstdio>

// Its results are more blocks of 128 KiB than the pool retains.
struct DeepImpl : torch::nn::Module {
  DeepImpl() {
    for (int k = 0; k < 400; ++k) body->push_back(torch::nn::Linear(128, 128));
    register_module("body", body);
  }
  torch::Tensor forward(torch::Tensor x) { return body->forward(x); }
  torch::nn::Sequential body;
};
TORCH_MODULE(Deep);

static long faults() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

static long faults_of_a_pass(Deep& model, const torch::Tensor& x, c10::CPUCachingAllocator* allocator,
                             torch::Tensor& result) {
  long before = 0;
  for (int k = 0; k < 6; ++k) {
    if (k == 3) before = faults();
    c10::optional<c10::WithCPUCachingAllocatorGuard> caching_allocator_guard;
    if (allocator) caching_allocator_guard.emplace(allocator);
    result = model->forward(x);
  }
  return (faults() - before) / 3;
}

int main() {
  torch::manual_seed(0);
  Deep model;
  auto x = torch::randn({256, 128});
  torch::Tensor plain, cached;
  c10::CPUCachingAllocator caching_allocator;
  long without = faults_of_a_pass(model, x, nullptr, plain);
  long with = faults_of_a_pass(model, x, &caching_allocator, cached);
  std::printf("%ld %ld %d\n", without, with, torch::equal(plain, cached));
}
