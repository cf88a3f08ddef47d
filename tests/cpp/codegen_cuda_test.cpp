// Nests of a grid as CUDA C: the text, its failures, indices of 32 bits, and what nvcc says.
#include <gtest/gtest.h>

#include <deque>
#include <fstream>
#include <sstream>

#include "facula/loop/interpret.h"
#include "facula/loop/nest.h"
#include "facula/schedule/grid.h"
#include "grid_runs.h"

using namespace facula;
using namespace facula::loop;

namespace {

// Rows of p0 elements: sums, scaled by a row's sum of exponentials.
const char kSoftmax[] = R"(nest "softmax" params 2 {
  buffer float32 read unique "x"
  buffer float32 write unique "y"
  tasks i0 < p1
  cost 1000
  let v0 = mul(i0, p0)
  accumulator v1 sum float32
  for i1 < p0 vector {
    let v2 = exp(load[0:float32](add(i1, v0:int64)))
    store 1[add(i1, v0:int64)] = v2:float32
    accumulate v1 sum(v2:float32)
  }
  for i2 < p0 vector {
    store 1[add(i2, v0:int64)] = div(load[1:float32](add(i2, v0:int64)), v1:float32)
  }
}
)";
const char kScatter[] = R"(nest "scatter" params 2 {
  buffer DTYPE read unique "x"
  buffer int64 read unique "index"
  buffer DTYPE write unique "y"
  tasks i0 < 1
  cost 1000
  for i1 < p0 vector {
    let v1 = check(load[1:int64](i1), p1)
    store 2[v1:int64] = FUNCTION(load[0:DTYPE](i1), load[2:DTYPE](v1:int64))
  }
}
)";

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != text.npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}
Nest scatter(const std::string& dtype, const std::string& function) {
  return parse_nest(replaced(replaced(kScatter, "DTYPE", dtype), "FUNCTION", function));
}
std::string text_of(const Nest& n, const GridLimits& limits) {
  return codegen::cuda_function(schedule::on_grid(n, limits), "kernel");
}
bool holds(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

}  // namespace

TEST(CudaC, IsReadable) {
  std::string text = text_of(parse_nest(kSoftmax), {.threads = 128, .index_bits = 32});
  EXPECT_EQ(text, R"(/* softmax */
extern "C" __global__ void __launch_bounds__(128)
kernel(const facula_arguments<2, 2> args, int64_t begin, int64_t end, facula_status* status,
    unsigned char* scratch, int64_t bytes) {
  const float* __restrict__ const b0 = (const float*)args.buffers[0];
  float* const b1 = (float*)args.buffers[1];
  (void)status; (void)scratch; (void)bytes;
  for (int32_t i0 = (int32_t)(begin + blockIdx.x); i0 < end; i0 += gridDim.x) {
    __shared__ float a12[facula_at_least_1(128)];
    int32_t v0 = i0 * (int32_t)args.params[0];
    float v1 = 0x0p+0f;
    float v11 = 0x0p+0f;
    for (int32_t i1 = threadIdx.x; i1 < (int32_t)args.params[0]; i1 += 128) {
      float v2 = facula_exp_f32((b0[i1 + v0]));
      b1[i1 + v0] = v2;
      v11 = v11 + v2;
    }
    for (int32_t i3 = threadIdx.x; i3 < 128; i3 += 128) {
      a12[i3] = v11;
    }
    for (int32_t i4 = 0; i4 < 7; ++i4) {
      int32_t v13 = (int32_t)facula_shr(64, i4, 32);
      __syncthreads();
      for (int32_t i3 = threadIdx.x; i3 < v13; i3 += 128) {
        float v14 = (a12[i3]) + (a12[i3 + v13]);
        a12[i3] = v14;
      }
    }
    __syncthreads();
    float v15 = v1 + (a12[0]);
    v1 = v15;
    for (int32_t i2 = threadIdx.x; i2 < (int32_t)args.params[0]; i2 += 128) {
      const int32_t t1 = i2 + v0;
      b1[t1] = (b1[t1]) / v1;
    }
    __syncthreads();
  }
}
)");
  std::ifstream docs(std::string(FACULA_SOURCE_FOLDER) + "/docs/codegen.md");
  std::stringstream page;
  page << docs.rdbuf();
  EXPECT_TRUE(holds(page.str(), text)) << "docs/codegen.md shows another text";
}

TEST(CudaC, ChangesAreAtomicOnlyWhereTheOrderCannotBeSeen) {
  GridLimits limits{.threads = 32};
  EXPECT_TRUE(holds(text_of(scatter("int32", "add"), limits), "facula_atomic("));
  EXPECT_TRUE(holds(text_of(scatter("uint8", "max"), limits), "facula_atomic("));
  for (const char* function : {"add", "mul", "max"}) {
    std::string text = text_of(scatter("float32", function), limits);
    EXPECT_FALSE(holds(text, "facula_atomic(")) << text;
    EXPECT_TRUE(holds(text, "facula_remainder_i64(")) << text;
  }
}

// Every combination in the order of the interpreter, or one in which it makes no difference.
TEST(CudaC, ScattersToTheBit) {
  std::deque<Nest> nests, grids;
  for (const char* dtype : {"float32", "float64", "int8", "int16", "int32", "int64", "uint8"})
    for (const char* function : {"add", "mul", "max", "min"}) {
      nests.push_back(scatter(dtype, function));
      grids.push_back(schedule::on_grid(nests.back(), {.threads = 32}));
    }
  std::vector<const Nest*> all;
  for (auto& g : grids) all.push_back(&g);
  auto runners = test::grid_runners(all);
  ASSERT_EQ(runners[0]->error(), "");
  constexpr int64_t kCount = 500, kPlaces = 7;
  std::vector<int64_t> index(kCount), params{kCount, kPlaces};
  for (int64_t k = 0; k < kCount; ++k) index[size_t(k)] = k * k % 11 % kPlaces - (k % 2 ? kPlaces : 0);
  for (size_t n = 0; n < all.size(); ++n) {
    DType d = nests[n].buffers[0].dtype;
    auto filled = [&](int64_t count, int64_t seed) {
      std::vector<char> bytes(size_t(count * itemsize(d)));
      for (int64_t k = 0; k < count; ++k) {
        double v = double((k * 7919 + seed) % 23 - 11) / (is_floating(d) ? 7 : 1);
        Scalar s = is_floating(d) ? Scalar(v) : Scalar(int64_t(v));
        s.store(d, bytes.data() + k * itemsize(d));
      }
      return bytes;
    };
    auto x = filled(kCount, 1), oracle = filled(kPlaces, 5), before = oracle;
    void* buffers[] = {x.data(), index.data(), oracle.data()};
    interpret(nests[n], buffers, params);
    for (auto& runner : runners) {
      auto mine = before;
      const test::Memory memory[] = {test::Memory(x), test::memory_of(index), test::Memory(mine)};
      EXPECT_EQ(runner->run(n, memory, params).failed, 0);
      EXPECT_TRUE(mine == oracle) << runner->name() << "\n" << print(nests[n]);
    }
  }
}

TEST(CudaC, ReportsTheFailureThatComesFirst) {
  Nest n = parse_nest(R"(nest "gather" params 2 {
  buffer float32 read unique "x"
  buffer int64 read unique "index"
  buffer float32 write unique "y"
  tasks i0 < 5
  cost 1000
  for i1 < p0 vector {
    store 2[add(i1, mul(i0, p0))] = load[0:float32](check(load[1:int64](add(i1, mul(i0, p0))), p1))
  }
}
)");
  Nest grid = schedule::on_grid(n, {.threads = 32});
  auto runners = test::grid_runners({&grid});
  ASSERT_EQ(runners[0]->error(), "");
  std::vector<float> x(10), y(500);
  std::vector<int64_t> index(500), params{100, 10};
  index[499] = 10, index[238] = -11, index[270] = 12, index[301] = 13;
  const test::Memory memory[] = {test::memory_of(x), test::memory_of(index), test::memory_of(y)};
  for (auto& runner : runners)
    for (unsigned blocks : {1u, 2u, 3u, 5u}) {
      auto f = runner->run(0, memory, params, blocks);
      EXPECT_EQ(f.failed, 1) << runner->name();
      EXPECT_EQ(f.index, -11) << runner->name();
      EXPECT_EQ(f.size, 10) << runner->name();
      EXPECT_EQ(f.task, 2) << runner->name();
    }
}

TEST(CudaC, NvccCompilesIt) {
  if (!test::has_nvcc()) GTEST_SKIP() << "nvcc is not installed";
  std::deque<Nest> grids;
  for (int bits : {32, 64})
    for (int threads : {32, 256, 1024})
      for (auto& n : {parse_nest(kSoftmax), scatter("int16", "add"), scatter("float64", "max")})
        grids.push_back(schedule::on_grid(n, {.threads = threads, .index_bits = bits}));
  std::vector<const Nest*> all;
  for (auto& g : grids) all.push_back(&g);
  EXPECT_EQ(test::by_nvcc(all).complaint(), "");
}

TEST(CudaC, RefusesNestsOfNoGrid) {
  EXPECT_THROW(codegen::cuda_function(parse_nest(kSoftmax), "kernel"), Error);
  EXPECT_THROW(schedule::on_grid(schedule::on_grid(parse_nest(kSoftmax), {}), {}), Error);
  EXPECT_THROW(schedule::on_grid(parse_nest(kSoftmax), {.threads = 100}), Error);
}
