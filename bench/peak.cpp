// The limits of this machine, measured: `peak fma THREADS` prints the GFLOP/s that a generated loop of fused multiplications
// and additions on registers reaches on so many threads at once, `peak memory THREADS` the GB/s of reading 256 MiB. The best
// of several rounds, since other load only takes time.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "facula/base/parallel.h"
#include "facula/device/cpu/nest_builder.h"
#include "facula/loop/tiles.h"

namespace {

using namespace facula;
using namespace facula::loop;

constexpr int kSums = 12;  // as many as hide the latency of two units
constexpr int64_t kSteps = 1 << 16;

using Writer = device::cpu::NestBuilder;

Nest nest_of(Writer& t, int task, int64_t params) {
  Nest n;
  n.name = "peak";
  n.buffers = {{DType::Float32}, {DType::Float32, true}};
  n.params = int(params);
  n.task_var = task;
  n.tasks = param(0);
  n.cost = number(1 << 20);
  n.body = std::move(t.block);
  return n;
}

Nest fma_nest() {
  Writer t(DType::Float32);
  int task = t.fresh();
  t.vector(number(t.lanes()), [&](Expr lane) {
    std::vector<Expr> sums;
    for (int k = 0; k < kSums; ++k) sums.push_back(t.variable(t.read(0, lane)));
    Expr x = t.let(t.read(0, lane + Scalar(int64_t(64)))), y = t.let(t.read(0, lane + Scalar(int64_t(128))));
    t.each(number(kSteps), [&](Expr) {
      for (Expr s : sums) t.set(s, fma(s, x, y));
    });
    for (int k = 0; k < kSums; ++k)
      t.store(1, index(task) * Scalar(int64_t(1024)) + Scalar(int64_t(k * t.lanes())) + lane,
              sums[size_t(k)]);
  });
  return nest_of(t, task, 1);
}

Nest read_nest() {
  Writer t(DType::Float32);
  int task = t.fresh();
  t.vector(number(t.lanes()), [&](Expr lane) {
    constexpr int kStreams = 8;
    std::vector<Expr> sums;
    for (int k = 0; k < kStreams; ++k) sums.push_back(t.variable(t.real(0)));
    t.each(param(1), [&](Expr step) {
      for (int k = 0; k < kStreams; ++k) {
        Expr at = index(task) * param(1) * Scalar(int64_t(kStreams * t.lanes())) +
                  step * Scalar(int64_t(kStreams * t.lanes())) + Scalar(int64_t(k * t.lanes())) + lane;
        t.set(sums[size_t(k)], sums[size_t(k)] + t.read(0, at));
      }
    });
    for (int k = 0; k < kStreams; ++k)
      t.store(1, index(task) * Scalar(int64_t(1024)) + Scalar(int64_t(k * t.lanes())) + lane,
              sums[size_t(k)]);
  });
  return nest_of(t, task, 2);
}

constexpr int64_t kUnitPairs = 16, kUnitSteps = 4, kUnitRepeats = 256;
constexpr int64_t kUnitPanel = kUnitSteps * kPanelStep;

// The same products of tiles in registers many times.
Nest unit_nest() {
  Writer t(DType::Float32);
  int task = t.fresh();
  TileProduct product{0, 1, 1, {std::vector<TileProduct::Pair>(kUnitPairs, TileProduct::Pair{0, 0})}};
  t.each(number(kUnitRepeats), [&](Expr) {
    Statement s{Statement::Kind::tiles};
    s.buffer = 2, s.offset = index(task) * number(kTileBlock * kTileBlock);
    s.values = {number(0), number(0), number(kUnitSteps)};
    s.product = std::make_shared<const TileProduct>(product);
    t.block.push_back(std::move(s));
  });
  Nest n = nest_of(t, task, 1);
  n.buffers = {{DType::Int32}, {DType::Int32}, {DType::Float32, true}};
  return n;
}

// The seconds of runs of all threads, sorted.
std::vector<double> seconds(const codegen::Kernel& kernel, void* const* buffers, const int64_t* params,
                            int threads, int rounds = 200) {
  std::vector<double> all;
  for (int round = 0; round < rounds; ++round) {
    auto begin = std::chrono::steady_clock::now();
    parallel_for(threads, 1, [&](int64_t from, int64_t to) {
      codegen::Status status;
      kernel.fn(buffers, params, from, to, &status);
    });
    all.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(all.begin(), all.end());
  return all;
}

double unit_speed(int threads) {
  constexpr int kRounds = 20;
  std::vector<int32_t> left(size_t(kUnitPanel), 0x3f803f80), right = left;  // ones
  std::vector<float> out(size_t(threads * kTileBlock * kTileBlock));
  void* buffers[] = {left.data(), right.data(), out.data()};
  const int64_t params[] = {threads};
  auto all = seconds(*codegen::kernel(unit_nest()), buffers, params, threads, kRounds);
  const double terms = double(kUnitRepeats * kUnitSteps * kUnitPairs * kTileTerms);
  return 2.0 * terms * double(kTileBlock * kTileBlock) * threads / all[kRounds / 2] * 1e-9;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) {
    std::fprintf(stderr, "usage: peak fma|memory|unit THREADS\n");
    return 2;
  }
  int threads = std::max(1, std::atoi(arguments[2]));
  set_num_threads(threads);
  if (std::strcmp(arguments[1], "unit") == 0) {
    std::printf("%.1f\n", unit_speed(threads));
    return 0;
  }
  std::vector<float> results(size_t(threads) * 1024);
  int64_t params[] = {threads, 0};
  if (std::strcmp(arguments[1], "fma") == 0) {
    std::vector<float> x(256, 0.5f);
    void* buffers[] = {x.data(), results.data()};
    double best = seconds(*codegen::kernel(fma_nest()), buffers, params, threads).front();
    std::printf("%.1f\n", 2.0 * kSums * kSteps * codegen::vector_lanes() * threads / best * 1e-9);
    return 0;
  }
  constexpr size_t kElements = size_t(1) << 26;
  std::vector<float> x(kElements, 1.0f);
  params[1] = int64_t(kElements) / threads / (8 * codegen::vector_lanes());
  void* buffers[] = {x.data(), results.data()};
  double best = seconds(*codegen::kernel(read_nest()), buffers, params, threads).front();
  std::printf("%.1f\n", double(kElements) * sizeof(float) / best * 1e-9);
}
