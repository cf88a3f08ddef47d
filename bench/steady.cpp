// The cost of a call of a traced program, measured from C++ without other overhead. Nanoseconds are the minimum of many
// rounds, since other load only adds to them; they include the program's kernels, which are as small as possible.
// Allocations are of storages: only results, once values within a call have their arena.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "facula/facula.h"

namespace {

using namespace facula;
using Tensors = std::vector<Tensor>;
using Function = std::function<Tensors(std::span<const Tensor>)>;

double nanoseconds(const Program& p, const Tensors& inputs) {
  using Clock = std::chrono::steady_clock;
  auto round = [&](int calls) {
    auto begin = Clock::now();
    for (int k = 0; k < calls; ++k) p(inputs);
    return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / calls;
  };
  constexpr double kRound = 1e6;
  int calls = std::max(1, int(kRound / round(10)));
  double best = round(calls);
  for (int k = 0; k < 100; ++k) best = std::min(best, round(calls));
  return best;
}

double allocations(const Program& p, const Tensors& inputs) {
  constexpr int kCalls = 100;
  auto before = memory_stats().allocations;
  for (int k = 0; k < kCalls; ++k) p(inputs);
  return double(memory_stats().allocations - before) / kCalls;
}

void show(const char* name, const Program& p, const Tensors& inputs, double asked) {
  double ns = nanoseconds(p, inputs);
  std::printf("%s: %zu steps, %.0f ns a call (asked: %.0f, %s), %.0f allocations\n", name, p.steps().size(),
              ns, asked, ns <= asked ? "reached" : "missed", allocations(p, inputs));
}

// Means along one dimension and along the other, which no kernel can combine.
Function chain(int rounds) {
  return [rounds](std::span<const Tensor> x) {
    Tensor y = x[0];
    for (int k = 0; k < rounds; ++k) {
      y = y - mean(y, Dims{0}, true);
      y = y - mean(y, Dims{1}, true);
    }
    return Tensors{y};
  };
}

}  // namespace

int main() {
  set_num_threads(1);
  Tensors x{randn({4, 4})}, two{randn({4, 4}), randn({4, 4})};
  auto fused = [](std::span<const Tensor> t) { return Tensors{relu(t[0] * t[1]) + t[0]}; };
  auto apart = [](std::span<const Tensor> t) { return Tensors{sum(cumsum(cumsum(t[0], 0), 1))}; };
  constexpr double kCall = 500, kStep = 60;
  show("three operators in one kernel", trace(fused, two), two, kCall);
  show("three operators in three kernels", trace(apart, x), x, kCall);
  Program short_chain = trace(chain(50), x), long_chain = trace(chain(500), x);
  double steps = double(long_chain.steps().size() - short_chain.steps().size()),
         ns = (nanoseconds(long_chain, x) - nanoseconds(short_chain, x)) / steps;
  std::printf(
      "a step of a program of %zu kernels, with its kernel: %.1f ns (asked: %.0f besides kernels, %s), %.0f allocations\n",
      long_chain.steps().size(), ns, kStep, ns <= kStep ? "reached" : "missed", allocations(long_chain, x));
}
