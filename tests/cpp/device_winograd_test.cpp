// Winograd's nest as one of a grid: what blocks compute at once is what a CPU's threads compute task by task, with a report
// for each task of what is not finite.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "facula/device/cpu/winograd.h"
#include "facula/schedule/grid.h"
#include "task_runs.h"

using namespace facula;
using namespace facula::device::cpu;
using test::Data;

namespace {

const WinogradShape kShape{DType::Float32, 2, 32, 7, 9, 32, 7, 9, 1, 1};

// Buffers besides those of a task; `bad`: an element of the image that is not finite, or -1.
std::vector<Data> buffers(bool bias, int64_t tasks, int64_t bad) {
  auto& s = kShape;
  std::mt19937 random(3);
  auto noise = [&](int64_t n) {
    Data d(DType::Float32, n);
    auto* x = reinterpret_cast<float*>(d.bytes.data());
    for (int64_t i = 0; i < n; ++i) x[i] = std::uniform_real_distribution<float>(-1, 1)(random);
    return d;
  };
  std::vector<Data> all{noise(s.n * s.h * s.w * s.c), noise(36 * s.c * s.o), noise(bias ? s.o : 1),
                        Data(DType::Float32, s.n * s.oh * s.ow * s.o), Data(DType::Float32, tasks)};
  if (bad >= 0) reinterpret_cast<float*>(all[0].bytes.data())[bad] = std::numeric_limits<float>::infinity();
  return all;
}
std::vector<float> reports(const Data& d) {
  std::vector<float> all(d.bytes.size() / sizeof(float));
  std::memcpy(all.data(), d.bytes.data(), d.bytes.size());
  return all;
}

}  // namespace

TEST(WinogradNests, AreTheSameToTheBitOnAGridAndTellWhichTasksAreNotFinite) {
  for (bool bias : {false, true}) {
    auto task = winograd_task(kShape, bias);
    loop::Nest grid = schedule::on_grid(with_arrays(winograd_task(kShape, bias).nest), {.threads = 32});
    auto runners = test::grid_runners({&grid});
    ASSERT_EQ(runners[0]->error(), "");
    int64_t tasks = codegen::eval_params(task.nest.nest.tasks, task.params.data());
    ASSERT_GT(tasks, 4);
    for (int64_t bad : {-1, 40}) {
      auto before = buffers(bias, tasks, bad), wanted = before;
      test::run_tasks(winograd_task(kShape, bias).nest, wanted, task.params);
      int64_t told = 0;
      for (float x : reports(wanted[4])) told += x != 0;
      EXPECT_EQ(told > 0, bad >= 0);
      EXPECT_LT(told, tasks);
      auto compare = [&](const std::vector<Data>& got, const char* by) {
        for (size_t k = 0; k + 1 < got.size(); ++k)
          EXPECT_TRUE(got[k].bytes == wanted[k].bytes || bad >= 0) << by << ", buffer " << k;
        auto ours = reports(got[4]), theirs = reports(wanted[4]);
        for (size_t k = 0; k < ours.size(); ++k)
          EXPECT_EQ(ours[k] != 0, theirs[k] != 0) << by << ", task " << k;
      };
      for (auto& runner : runners) {
        auto got = before;
        EXPECT_EQ(runner->run(0, test::memory(got), task.params).failed, 0);
        compare(got, runner->name());
      }
      auto got = before;
      loop::interpret(test::expanded(grid), test::pointers(test::memory(got)), task.params);
      compare(got, "the interpreter on a grid");
    }
  }
}
