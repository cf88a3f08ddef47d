// Generated kernels against the interpreter: every statement, memory dtype and kind of access, at lengths
// around the vector width.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <deque>
#include <limits>
#include <map>
#include <random>

#include "again.h"
#include "facula/base/parallel.h"
#include "facula/base/random.h"
#include "facula/base/settings.h"
#include "facula/codegen/c99.h"
#include "facula/codegen/kernel.h"
#include "facula/codegen/printed.h"
#include "facula/loop/elementary.h"
#include "facula/loop/interpret.h"
#include "facula/loop/monoid.h"
#include "facula/schedule/grid.h"
#include "facula/schedule/lanes.h"
#include "grid_runs.h"

using namespace facula;
using namespace facula::loop;
using SK = Statement::Kind;

namespace {

constexpr DType kMemory[] = {DType::Bool,           DType::UInt8,          DType::Int8,
                             DType::Int16,          DType::Int32,          DType::Int64,
                             DType::Float16,        DType::BFloat16,       DType::Float32,
                             DType::Float64,        DType::UInt16,         DType::UInt32,
                             DType::UInt64,         DType::Float8E4M3FN,   DType::Float8E5M2,
                             DType::Float8E4M3FNUZ, DType::Float8E5M2FNUZ, DType::Float8E8M0FNU};
constexpr int64_t kLengths[] = {0, 1, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 259};

Expr integer(int64_t v) { return constant(v, DType::Int64); }
Expr i(int v) { return index(v); }

Statement loop_over(int var, Expr extent, LoopKind kind, Block body) {
  Statement s{SK::loop};
  s.var = var;
  s.extent = extent;
  s.loop = kind;
  s.body = std::move(body);
  return s;
}
Statement store(int buffer, Expr offset, Expr value, int part = 0) {
  Statement s{SK::store};
  s.buffer = buffer;
  s.offset = offset;
  s.values = {value};
  s.part = part;
  return s;
}
Statement let(int var, Expr value) {
  Statement s{SK::let};
  s.var = var;
  s.values = {value};
  return s;
}
Statement assign(int var, Expr value) {
  Statement s{SK::assign};
  s.var = var;
  s.values = {value};
  return s;
}
Statement accumulator(int var, Monoid m, DType d) {
  Statement s{SK::accumulator};
  s.var = var;
  s.monoid = m;
  s.dtype = d;
  return s;
}
Statement accumulate(int var, Monoid m, std::vector<Expr> values) {
  Statement s{SK::accumulate};
  s.var = var;
  s.monoid = m;
  s.dtype = values[0].dtype();
  s.values = std::move(values);
  return s;
}
Statement when(Expr condition, Block body) {
  Statement s{SK::condition};
  s.values = {condition};
  s.body = std::move(body);
  return s;
}
Statement array(int var, DType d, Expr extent) {
  Statement s{SK::array};
  s.var = var;
  s.dtype = d;
  s.extent = extent;
  return s;
}

Nest nest(std::string name, std::vector<Buffer> buffers, int params, Expr tasks, Block body) {
  Nest n;
  n.name = std::move(name);
  n.buffers = std::move(buffers);
  n.params = params;
  n.tasks = tasks;
  n.cost = integer(1000);
  n.body = std::move(body);
  return n;
}

// Memory of one buffer.
struct Data {
  DType dtype;
  std::vector<char> bytes;
  Data(DType d, int64_t n) : dtype(d), bytes(size_t(n * itemsize(d)), 0) {}
  int64_t size() const { return int64_t(bytes.size()) / itemsize(dtype); }
  char* at(int64_t k) { return bytes.data() + k * itemsize(dtype); }
};

template <class T>
void set(Data& d, int64_t k, T v) {
  std::memcpy(d.at(k), &v, sizeof v);
}

Data noise(DType d, int64_t n, uint64_t seed, double range = 9) {
  Data r(d, n);
  std::mt19937_64 random(seed);
  for (int64_t k = 0; k < n; ++k) {
    double v = std::uniform_real_distribution<double>(-range, range)(random);
    switch (d) {
      case DType::Bool: set(r, k, uint8_t(v > 0)); break;
      case DType::UInt8: set(r, k, uint8_t(std::fabs(v))); break;
      case DType::Int8: set(r, k, int8_t(v)); break;
      case DType::Int16: set(r, k, int16_t(v)); break;
      case DType::Int32: set(r, k, int32_t(v)); break;
      case DType::Int64: set(r, k, int64_t(v)); break;
      case DType::Float16: set(r, k, Half(float(v))); break;
      case DType::BFloat16: set(r, k, BFloat16(float(v))); break;
      case DType::Float32: set(r, k, float(v)); break;
      case DType::Float64: set(r, k, v); break;
      case DType::Complex64: set(r, k, std::complex<float>(float(v), float(v / 2 + 1))); break;
      case DType::Complex128: set(r, k, std::complex<double>(v, v / 2 + 1)); break;
      default: Scalar(is_signed(d) ? v : std::fabs(v)).store(d, r.at(k)); break;
    }
  }
  return r;
}

double number(DType d, const char* p) { return Scalar::load(d, p).to_double(); }

// Every byte (but of NaN), or floating values to a relative tolerance.
void compare(const Nest& n, const char* by, std::vector<Data>& mine, std::vector<Data>& oracle,
             double tolerance) {
  for (size_t k = 0; k < oracle.size(); ++k) {
    DType d = real_of(oracle[k].dtype);
    for (size_t at = 0; at < mine[k].bytes.size(); at += size_t(itemsize(d))) {
      const char *x = mine[k].bytes.data() + at, *y = oracle[k].bytes.data() + at;
      if (!std::memcmp(x, y, size_t(itemsize(d)))) continue;
      bool close = false;
      if (is_floating(d)) {
        double u = number(d, x), v = number(d, y);
        close = (std::isnan(u) && std::isnan(v)) ||
                (tolerance > 0 && (u == v || std::fabs(u - v) <= tolerance * std::max(1.0, std::fabs(v))));
        if (!close)
          ADD_FAILURE() << n.name << " by " << by << ": buffer " << k << " (" << d << ") element "
                        << at / size_t(itemsize(d)) << " is " << u << ", expected " << v;
      } else {
        int64_t u = 0, v = 0;
        std::memcpy(&u, x, size_t(itemsize(d)));
        std::memcpy(&v, y, size_t(itemsize(d)));
        ADD_FAILURE() << n.name << " by " << by << ": buffer " << k << " (" << d << ") element "
                      << at / size_t(itemsize(d)) << " is " << u << ", expected " << v;
      }
      if (!close) return;
    }
  }
}
std::vector<void*> pointers(std::vector<Data>& data) {
  std::vector<void*> all;
  for (auto& d : data) all.push_back(d.bytes.data());
  return all;
}

// Of these the interpreter rounds a step once, targets each operation.
bool is_wider(const Nest& n) {
  std::string text = print(n);
  return text.find("welford") != text.npos || text.find("logsumexp") != text.npos;
}

// What was run, to be run as C and as CUDA C too once all of it is compiled together.
class Printed : public testing::Environment {
 public:
  struct Run {
    size_t nest;
    std::vector<int64_t> params;
    std::vector<Data> data, oracle;
    double tolerance, reordered;  // where operations are in the interpreter's order; where they are not
  };
  static Printed& all() {
    static auto* a = static_cast<Printed*>(testing::AddGlobalTestEnvironment(new Printed));
    return *a;
  }
  void add(const Nest& n, const std::vector<int64_t>& params, const std::vector<Data>& data,
           const std::vector<Data>& oracle, double tolerance) {
    std::string text = print(n);
    auto [it, is_new] = numbers_.try_emplace(text, nests_.size());
    if (is_new) nests_.push_back(n);
    if (++count_[it->second] <= kMost)
      runs_.push_back({it->second, params, data, oracle, is_wider(n) ? tolerance : 0, tolerance});
  }
  void TearDown() override {
    if (!settings().cpu_capability.empty()) return;  // run again, which changes nothing in what is printed
    run_c();
    run_cuda();
  }

 private:
  void run_c() {
    std::vector<const Nest*> nests;
    for (auto& n : nests_) nests.push_back(&n);
    auto kernels = codegen::printed_kernels(codegen::Printed::c99, nests);
    for (auto r : runs_) {
      auto& n = nests_[r.nest];
      auto buffers = pointers(r.data);
      codegen::Status status;
      kernels[r.nest](buffers.data(), r.params.data(), 0, codegen::eval_params(n.tasks, r.params.data()),
                      &status);
      compare(n, "C", r.data, r.oracle, r.tolerance);
    }
  }
  // Blocks of 32 threads, so that short loops have several rounds of them; indices of either width. The interpreter runs the first of the nests
  // of a grid too: it finds out what lacks a barrier.
  void run_cuda() {
    std::vector<Nest> grids;
    std::vector<const Nest*> all;
    for (auto& n : nests_)
      grids.push_back(schedule::on_grid(n, {.threads = 32, .index_bits = grids.size() % 2 ? 32 : 64}));
    for (auto& n : grids) all.push_back(&n);
    auto runners = test::grid_runners(all);
    ASSERT_EQ(runners[0]->error(), "");
    std::map<std::string, size_t> count;
    std::set<size_t> interpreted;
    for (auto& r : runs_) {
      auto& n = grids[r.nest];
      bool folds = print(n).find("shared") != std::string::npos;
      for (auto& runner : runners) {
        std::vector<Data> data = r.data;
        std::vector<test::Memory> memory;
        for (auto& d : data) memory.emplace_back(d.bytes);
        auto failure = runner->run(r.nest, memory, r.params);
        EXPECT_EQ(failure.failed, 0) << n.name << " by " << runner->name();
        compare(n, runner->name(), data, r.oracle, folds ? r.reordered : r.tolerance);
        ++count[runner->name()];
      }
      if (!interpreted.insert(r.nest).second) continue;
      auto buffers = pointers(r.data);
      interpret(test::expanded(n), buffers, r.params);
      compare(n, "the interpreter on a grid", r.data, r.oracle, folds ? r.reordered : r.tolerance);
    }
    for (auto& [name, runs] : count)
      std::printf("%zu runs of %zu nests by %s\n", runs, all.size(), name.c_str());
    if (runners.size() == 1) std::printf("none by a GPU: %s\n", test::Gpu::missing().c_str());
  }

  static constexpr int kMost = 4;  // runs of a nest
  std::map<std::string, size_t> numbers_;
  std::deque<Nest> nests_;
  std::map<size_t, int> count_;
  std::vector<Run> runs_;
};

std::vector<Data> interpreted(const Nest& n, const std::vector<int64_t>& params, std::vector<Data> data) {
  interpret(n, pointers(data), params);
  return data;
}

// LLVM's code against the interpreter, which adds up in the same order, so to the bit, if it has the nest in lanes; and
// C's, which computes what that does.
void expect_same(const Nest& n, std::vector<int64_t> params, std::vector<Data> data, double tolerance = 0) {
  std::vector<Data> mine = data;
  auto a = pointers(mine);
  params.push_back(0);
  codegen::launch(*codegen::kernel(n), a.data(), params.data(), n.name.c_str());
  auto oracle = interpreted(n, params, data);
  compare(n, "LLVM", mine, oracle, tolerance);
  Nest lanes = test::expanded(schedule::in_lanes(n, codegen::lane_limits()));
  verify(lanes, codegen::lane_limits());
  auto in_order = interpreted(lanes, params, data);
  compare(n, "LLVM in lanes", mine, in_order, is_wider(n) ? tolerance : 0);
  if (Nest e = test::expanded(n); print(e) != print(n)) oracle = interpreted(e, params, data);
  Printed::all().add(n, params, data, oracle, tolerance);
}

// z[i * s2] = f(x[i * s0], y[i * s1]) for i < p0; strides are parameters unless they are 0 or 1.
Nest binary(Fn f, DType d, LoopKind kind, std::array<int, 3> strides, DType out_dtype = DType::count) {
  int params = 1;
  auto offset = [&](int s) { return s == 0 ? integer(0) : s == 1 ? i(1) : i(1) * param(params++); };
  Expr x = load(0, d, {offset(strides[0])});
  Expr value = arity(f) == 1 ? call(f, {x}) : call(f, {x, load(1, d, {offset(strides[1])})});
  if (out_dtype == DType::count) out_dtype = value.dtype() == compute_type(d) ? d : value.dtype();
  Expr to = offset(strides[2]);
  return nest(name(f), {{d, false, "x"}, {d, false, "y"}, {out_dtype, true, "z"}}, params, integer(1),
              {loop_over(1, param(0), kind, {store(2, to, value)})});
}

TEST(CodegenNest, AddsEveryDtypeAtEveryLengthAndStride) {
  for (DType d : kMemory)
    for (auto strides : {std::array{1, 1, 1}, std::array{0, 1, 1}, std::array{2, 1, 1}, std::array{1, 3, 2}})
      for (auto kind : {LoopKind::vector, LoopKind::serial}) {
        Nest n = binary(Fn::add, d, kind, strides);
        for (int64_t length : kLengths) {
          std::vector<int64_t> p{length};
          for (int s : strides)
            if (s > 1) p.push_back(s);
          expect_same(n, p,
                      {noise(d, 3 * length + 1, 1), noise(d, 3 * length + 1, 2),
                       noise(d, 3 * length + 1, 3)});
        }
      }
}

// Windows and complex components: lanes a few elements apart come out of whole vectors, which end where the
// data ends.
TEST(CodegenNest, ReadsEverySecondToFourthElementToTheLastOne) {
  for (DType d : kMemory)
    for (int64_t apart : {2, 3, 4, 5}) {
      Nest n = nest("every", {{d}, {d, true}}, 1, integer(1),
                    {loop_over(1, param(0), LoopKind::vector,
                               {store(1, i(1), load(0, d, {i(1) * integer(apart)}))})});
      for (int64_t length : kLengths)
        expect_same(n, {length},
                    {noise(d, std::max<int64_t>(1, (length - 1) * apart + 1), 1), noise(d, length + 1, 2)});
    }
}

TEST(CodegenNest, DividesByPowersOfTwo) {
  for (DType d : {DType::UInt8, DType::Int8, DType::Int16, DType::Int32, DType::Int64})
    for (Fn f : {Fn::floordiv, Fn::truncdiv, Fn::remainder, Fn::fmod})
      for (int64_t by : {1, 2, 8, 64})
        for (auto kind : {LoopKind::vector, LoopKind::serial}) {
          Nest n = nest("divide", {{d}, {d, true}}, 1, integer(1),
                        {loop_over(1, param(0), kind,
                                   {store(1, i(1), call(f, {load(0, d, {i(1)}), constant(by, d)}))})});
          for (int64_t length : {0, 5, 16, 100})
            expect_same(n, {length}, {noise(d, length + 1, 1, 100), noise(d, length + 1, 2)});
        }
}

// Strips of columns go down the rows together; what no strip fills goes vector by vector.
TEST(CodegenNest, SumsColumnsAtEveryWidth) {
  for (int sums : {1, 2, 3}) {
    Block body, inner, stores;
    std::vector<Buffer> buffers{{DType::Float32}};
    Expr x = load(0, DType::Float32, {i(2) * param(0) + i(1)});
    for (int k = 0; k < sums; ++k) {
      body.push_back(accumulator(10 + k, monoid::sum, DType::Float32));
      inner.push_back(accumulate(10 + k, monoid::sum, {k == 0 ? x : k == 1 ? x * x : x * x * x}));
      buffers.push_back({DType::Float32, true});
      stores.push_back(store(1 + k, i(1), local(10 + k, DType::Float32)));
    }
    body.push_back(loop_over(2, param(1), LoopKind::serial, inner));
    body.insert(body.end(), stores.begin(), stores.end());
    Nest n = nest("columns", buffers, 2, integer(1), {loop_over(1, param(0), LoopKind::vector, body)});
    for (int64_t width : {0, 1, 8, 16, 20, 63, 64, 100, 127, 128, 129, 259, 400})
      for (int64_t rows : {0, 1, 3, 4, 5, 8, 13}) {
        // Sums of whole numbers are exact in any order: vectors that are no part of a strip go in several chains.
        Data whole(DType::Float32, width * rows + 1);
        for (int64_t k = 0; k < width * rows; ++k) set(whole, int(k), float(k * 7919 % 17 - 8));
        const float special[] = {NAN, INFINITY, -INFINITY, -0.0f, 1e-40f};
        for (int64_t k = 0; k < width * rows; k += 37) set(whole, int(k), special[k % 5]);
        for (bool exact : {true, false}) {
          std::vector<Data> data{exact ? whole : noise(DType::Float32, width * rows + 1, 1)};
          for (int k = 0; k < sums; ++k) data.push_back(noise(DType::Float32, width + 1, 2));
          expect_same(n, {width, rows}, data, exact ? 0 : 1e-5);
        }
      }
  }
}

TEST(CodegenNest, ReversesWithANegativeStride) {
  Expr from = param(0) - integer(1) - i(1);
  Nest n =
      nest("flip", {{DType::Float32}, {DType::Float32, true}}, 1, integer(1),
           {loop_over(1, param(0), LoopKind::vector, {store(1, i(1), load(0, DType::Float32, {from}))})});
  for (int64_t length : kLengths)
    expect_same(n, {length}, {noise(DType::Float32, length + 1, 1), noise(DType::Float32, length + 1, 2)});
}

TEST(CodegenNest, CastsEveryPair) {
  for (DType from : kMemory)
    for (DType to : kMemory) {
      Nest n = nest("cast", {{from}, {to, true}}, 1, integer(1),
                    {loop_over(1, param(0), LoopKind::vector,
                               {store(1, i(1), cast(load(0, from, {i(1)}), compute_type(to)))})});
      Data x = noise(from, 37, 5, 300);
      if (from == DType::Float32 || from == DType::Float64) {
        const double special[] = {NAN,          INFINITY,      -INFINITY, 1e30, -1e30, 255.5, -0.5,
                                  2147483648.0, -2147483649.0, 9.3e18,    0.1,  65519, 65520, 1e-8};
        for (int k = 0; k < 14; ++k)
          from == DType::Float32 ? set(x, k, float(special[k])) : set(x, k, special[k]);
      }
      expect_same(n, {37}, {x, Data(to, 38)});
    }
}

TEST(CodegenNest, ComputesOnIntegers) {
  for (DType d :
       {DType::UInt8, DType::Int8, DType::Int16, DType::Int32, DType::Int64, DType::UInt16, DType::UInt32})
    for (Fn f : {Fn::sub, Fn::mul,  Fn::floordiv, Fn::truncdiv, Fn::remainder, Fn::fmod, Fn::pow,
                 Fn::max, Fn::min,  Fn::bit_and,  Fn::bit_or,   Fn::bit_xor,   Fn::shl,  Fn::shr,
                 Fn::eq,  Fn::ne,   Fn::lt,       Fn::le,       Fn::gt,        Fn::ge,   Fn::neg,
                 Fn::abs, Fn::sign, Fn::relu,     Fn::bit_not})
      for (auto kind : {LoopKind::vector, LoopKind::serial}) {
        Data x = noise(d, 100, 11), y = noise(d, 100, 12);
        auto lowest = [&](Data& to, int64_t k) {
          std::memset(to.at(k), 0, size_t(itemsize(d))), to.at(k)[itemsize(d) - 1] = char(0x80);
        };
        if (f != Fn::abs) lowest(x, 3), lowest(x, 4);
        std::memset(y.at(3), 0xff, size_t(itemsize(d)));  // -1, or 255
        std::memset(y.at(5), 0, size_t(itemsize(d)));
        y.at(6)[0] = char(100);
        expect_same(binary(f, d, kind, {1, 1, 1}), {100},
                    {x, y, Data(binary(f, d, kind, {1, 1, 1}).buffers[2].dtype, 100)});
      }
}

TEST(CodegenNest, ComputesExactlyOnSpecialFloats) {
  const double special[] = {0.0, -0.0,  1,      -1,   0.5,   -0.5,     1.5, 2.5, -2.5,     3,        7,
                            -7,  1e-40, -1e-40, 1e30, -1e30, 16777217, 0.3, NAN, INFINITY, -INFINITY};
  for (DType d : {DType::Float32, DType::Float64})
    for (Fn f : {Fn::sign, Fn::relu,  Fn::floor, Fn::ceil,       Fn::trunc,    Fn::round,    Fn::abs,
                 Fn::neg,  Fn::isnan, Fn::isinf, Fn::reciprocal, Fn::floordiv, Fn::truncdiv, Fn::remainder,
                 Fn::fmod, Fn::max,   Fn::min,   Fn::fmax,       Fn::fmin,     Fn::copysign, Fn::add,
                 Fn::div,  Fn::eq,    Fn::ne,    Fn::lt,         Fn::le,       Fn::gt,       Fn::ge})
      for (auto kind : {LoopKind::vector, LoopKind::serial}) {
        Nest n = binary(f, d, kind, {1, 1, 1});
        Data x(d, 21 * 21), y(d, 21 * 21);
        for (int64_t k = 0; k < 21 * 21; ++k) {
          double a = special[k / 21], b = special[k % 21];
          d == DType::Float32 ? (set(x, k, float(a)), set(y, k, float(b))) : (set(x, k, a), set(y, k, b));
        }
        expect_same(n, {21 * 21}, {x, y, Data(n.buffers[2].dtype, 21 * 21)});
      }
}

// Special values, every exponent, and where functions change their ways.
Data arguments(DType d, int64_t n, uint64_t seed, double most) {
  Data x(d, n);
  std::mt19937_64 random(seed);
  const double special[] = {0.0,    -0.0,      NAN,        INFINITY,      -INFINITY, 1,
                            -1,     2,         -2,         0.5,           -0.5,      3,
                            1e-45,  -1e-45,    1e-40,      -1e-40,        1.2e-38,   5e-324,
                            1e-310, 2.3e-308,  1e-20,      3e38,          -3e38,     1e300,
                            -1e300, 87.4,      -87.4,      -103.5,        -103.98,   88.8,
                            709.8,  -745.2,    -708.5,     128,           -149,      -126.5,
                            -1074,  0.9999999, -0.9999999, 1 - 1.0 / 256, 1e-31,     10.2,
                            14.5,   -38.5};
  for (int64_t k = 0; k < n; ++k) {
    double v = std::uniform_real_distribution<double>(-1, 1)(random);
    if (k < int64_t(std::size(special))) v = special[k];
    else if (k % 3 == 0) v = std::ldexp(v, int(random() % 300) - 150);
    else if (k % 3 == 1) v *= std::array{1, 4, 40, 800}[random() % 4];
    if (std::fabs(v) >= most) v = std::isinf(v) ? v : std::fmod(v, most);
    d == DType::Float32 ? set(x, k, float(v)) : set(x, k, v);
  }
  return x;
}

// By LLVM, by C, as CUDA C, and by the interpreter from the expansions. AVX2 rounds denormal results twice; angles
// from 2^40 on are libraries' own.
TEST(CodegenNest, ElementaryFunctionsHaveTheSameBitsByEveryTarget) {
  constexpr Fn all[] = {
#define FACULA_FN(n, ...) Fn::n,
      FACULA_SCALAR_FUNCTIONS(FACULA_FN)
#undef FACULA_FN
  };
  int functions = 0;  // and dtypes
  for (DType d : {DType::Float32, DType::Float64})
    for (Fn f : all) {
      if (!loop::expansion(f, d).get()) continue;
      ++functions;
      for (bool product : {false, true}) {
        if (product && f != Fn::ndtr && f != Fn::sigmoid) continue;
        for (auto kind : {LoopKind::vector, LoopKind::serial}) {
          Nest n = binary(f, d, kind, {1, 1, 1});
          auto& value = n.body[0].body[0].values[0];
          if (product) value = load(0, d, {i(1)}) * value;
          bool angle = f == Fn::sin || f == Fn::cos || f == Fn::tan;
          double most = angle && d == DType::Float64 ? 0x1p40 : INFINITY;
          constexpr int64_t kCount = 437;
          std::vector<Data> data{arguments(d, kCount, 5, most), arguments(d, kCount, 6, most),
                                 Data(d, kCount)};
          for (int64_t k = 0; k < kCount / 2; ++k)  // every special value meets others
            std::swap_ranges(data[1].at(k), data[1].at(k) + itemsize(d), data[1].at(k * 7 % kCount));
          std::vector<Data> mine = data;
          std::vector<int64_t> params{kCount, 0};
          codegen::launch(*codegen::kernel(n), pointers(mine).data(), params.data(), name(f));
          auto oracle = interpreted(test::expanded(n), params, data);
          Printed::all().add(n, params, data, oracle, 0);
          double least = d == DType::Float32 ? 1.17549435e-38 : 2.2250738585072014e-308;
          for (int64_t k = 0; codegen::vector_lanes() == 8 && k < kCount; ++k)
            if (std::fabs(number(d, oracle[2].at(k))) < least)
              std::memcpy(mine[2].at(k), oracle[2].at(k), size_t(itemsize(d)));
          compare(n, "LLVM", mine, oracle, 0);
        }
      }
    }
  EXPECT_GE(functions, 70);
}

// Special functions, of one source: in lanes and by themselves, printed, and by the interpreter. Angles and orders are
// below 2^20; polynomials of Hermite take as many steps as their order.
TEST(CodegenNest, SpecialFunctionsHaveTheSameBitsByEveryTarget) {
  constexpr Fn all[] = {
#define FACULA_FN(n, ...) Fn::n,
      FACULA_MAPPED_UNARY(FACULA_FN) FACULA_MAPPED_BINARY(FACULA_FN)
#undef FACULA_FN
  };
  constexpr int64_t kCount = 350;
  const double most = 0x1p20, orders[] = {-1, 0, 1, 2, 3, 6.5, 7, 9, 20, 65535, 65537, 700001};
  for (DType d : {DType::Float32, DType::Float64})
    for (Fn f : all) {
      if (!loop::is_library(f, d)) continue;
      std::vector<Data> data{arguments(d, kCount, 5, most), arguments(d, kCount, 6, most), Data(d, kCount)};
      for (int64_t k = 0; k < kCount; ++k) {
        if (k % 2 == 0 && k < kCount / 2)
          std::memcpy(data[1].at(k), data[1].at(k * 7 % kCount), size_t(itemsize(d)));
        if (k % 3 == 0) Scalar(orders[size_t(k / 3) % std::size(orders)]).store(d, data[1].at(k));
        // Near each other, as gamma functions have them, and both positive.
        if (k % 3 == 1)
          Scalar(number(d, data[0].at(k)) * (0.5 + double(k % 16) / 16)).store(d, data[1].at(k));
      }
      for (auto kind : {LoopKind::vector, LoopKind::serial}) {
        Nest n = binary(f, d, kind, {1, 1, 1});
        std::vector<Data> mine = data;
        std::vector<int64_t> params{kCount, 0};
        codegen::launch(*codegen::kernel(n), pointers(mine).data(), params.data(), name(f));
        auto oracle = interpreted(n, params, data);
        if (kind == LoopKind::vector) Printed::all().add(n, params, data, oracle, 0);
        compare(n, "LLVM", mine, oracle, 0);
      }
    }
}

TEST(CodegenNest, OfSpecialFunctionsThoseThatAreCalledArePrinted) {
  auto printed = [](Fn f) {
    std::string code =
        codegen::c99_function(binary(f, DType::Float64, LoopKind::serial, {1, 1, 1}), "kernel");
    return codegen::c99_prelude(code);
  };
  auto holds = [](const std::string& text, const char* part) { return text.find(part) != text.npos; };
  std::string none = printed(Fn::exp), k0 = printed(Fn::bessel_k0), zeta = printed(Fn::hurwitz_zeta);
  EXPECT_FALSE(holds(none, "FACULA_SPECIAL double"));
  EXPECT_TRUE(holds(k0, "FACULA_SPECIAL double facula_bessel_k0(double x)"));
  EXPECT_TRUE(holds(k0, "facula_kScaledK0[") && holds(k0, "double facula_log_f64("));
  EXPECT_FALSE(holds(k0, "facula_igamma") || holds(k0, "facula_kTemme") || holds(k0, "facula_pow_f64"));
  EXPECT_TRUE(holds(zeta, "facula_kEulerMaclaurin[12]") && holds(zeta, "facula_any_pow_f64"));
  EXPECT_FALSE(holds(zeta, "bessel"));
}

TEST(CodegenNest, ComparesAndSelects) {
  for (DType d : {DType::Float32, DType::Float64, DType::Int32, DType::Bool}) {
    Expr x = load(0, d, {i(1)}), y = load(1, d, {i(1)});
    Nest n = nest("where", {{d}, {d}, {d, true}, {DType::Bool, true}}, 1, integer(1),
                  {loop_over(1, param(0), LoopKind::vector,
                             {store(2, i(1), select((x < y) | eq(x, y), y, x)),
                              store(3, i(1), bit_not(x < y) & bit_not(call(Fn::isnan, {x})))})});
    Data a = noise(d, 61, 3, 3), b = noise(d, 61, 4, 3);
    if (d == DType::Float32) set(a, 5, float(NAN)), set(b, 7, float(NAN));
    expect_same(n, {61}, {a, b, Data(d, 61), Data(DType::Bool, 61)});
  }
}

TEST(CodegenNest, LooksAtSharedPartsOfABodyOnce) {
  // Each step reads the one before it three times: 3^40 ways through it.
  DType d = DType::Float32;
  Expr t = load(0, d, {i(1)});
  for (int k = 0; k < 40; ++k) t = select(t < 30.0, t + 1.0, t);
  Nest n = nest("count", {{d}, {d, true}}, 1, integer(1),
                {loop_over(1, param(0), LoopKind::vector, {store(1, i(1), t)})});
  std::vector<float> x{-20, 0, 29.5, 31, NAN}, y(x.size());
  void* buffers[] = {x.data(), y.data()};
  int64_t params[] = {int64_t(x.size())};
  codegen::launch(*codegen::kernel(n), buffers, params, "count");
  EXPECT_EQ(std::vector<float>(y.begin(), y.begin() + 4), (std::vector<float>{20, 30, 30.5, 31}));
  EXPECT_TRUE(std::isnan(y[4]));
}

std::vector<Expr> lifted(Monoid m, Expr x, int var) {
  if (loop::has_position(m)) return {x, i(var)};
  if (m == Monoid::complex_prod) return {x, x * 0.25};
  if (m == Monoid::any || m == Monoid::all) return {ne(x, constant(int64_t(0), x.dtype()))};
  return {x};
}

TEST(CodegenNest, ReducesEveryMonoidInLanes) {
  for (DType d : {DType::Float32, DType::Float64, DType::Int32, DType::Int64, DType::UInt8})
    for (Monoid m :
         {Monoid::sum, Monoid::prod, Monoid::max, Monoid::min, Monoid::any, Monoid::all, Monoid::argmax,
          Monoid::argmin, Monoid::argmax_pool, Monoid::logsumexp, Monoid::welford, Monoid::complex_prod}) {
      if (!is_floating(d) && (m == Monoid::logsumexp || m == Monoid::welford)) continue;
      if (d != DType::Float64 && m == Monoid::complex_prod) continue;
      Expr x = load(0, d, {i(0) * param(0) + i(1)});
      auto values = lifted(m, x, 1);
      DType kind = values[0].dtype();
      auto start = loop::identity(m, kind);
      Nest n = nest(std::string("reduce ") + name(m), {{d}}, 1, integer(3), {});
      Block body{accumulator(20, m, kind),
                 loop_over(1, param(0), LoopKind::vector, {accumulate(20, m, values)})};
      if (m == Monoid::complex_prod) body[0].position = kind;
      for (size_t k = 0; k < start.size(); ++k) {
        n.buffers.push_back({start[k].dtype(), true});
        body.push_back(store(int(k) + 1, i(0), local(20 + int(k), start[k].dtype())));
      }
      n.body = body;
      for (int64_t length : {1, 2, 7, 16, 17, 40, 100, 1000}) {
        std::vector<Data> data{
            noise(d, 3 * length, 21, m == Monoid::prod || m == Monoid::complex_prod ? 1.2 : 5)};
        for (auto& s : start) data.emplace_back(s.dtype(), 3);
        if (is_floating(d) && length >= 40)  // NaN wins wherever it stands
          d == DType::Float32 ? set(data[0], length + 33, float(NAN))
                              : set(data[0], length + 33, double(NAN));
        expect_same(n, {length}, data, d == DType::Float64 ? 1e-11 : 1e-4);
      }
      if (m != Monoid::logsumexp) {
        std::vector<Data> data{Data(d, 1)};
        for (auto& s : start) data.emplace_back(s.dtype(), 3);
        expect_same(n, {0}, data);
      }
    }
}

// -1 * 1 and then (1 + e)(1 - e): -e^2, which is 0 where the product is rounded first.
TEST(CodegenNest, SumsAddProductsRoundedOnce) {
  DType f = DType::Float32;
  Expr product = fma(load(0, f, {i(1)}), load(1, f, {i(1)}), constant(0.0, f));
  Nest n = nest("products", {{f}, {f}, {f, true}}, 1, integer(1),
                {accumulator(20, Monoid::sum, f),
                 loop_over(1, param(0), LoopKind::serial, {accumulate(20, Monoid::sum, {product})}),
                 store(2, integer(0), local(20, f))});
  float x[] = {-1, 1 + 0x1p-13f}, y[] = {1, 1 - 0x1p-13f}, interpreted = 0, compiled = 0;
  int64_t params[] = {2};
  void* buffers[] = {x, y, &interpreted};
  loop::interpret(n, buffers, params);
  buffers[2] = &compiled;
  codegen::launch(*codegen::kernel(n), buffers, params, "products");
  EXPECT_EQ(interpreted, -0x1p-26f);
  EXPECT_EQ(compiled, -0x1p-26f);
}

TEST(CodegenNest, ArgmaxTakesTheFirstOfEquals) {
  Nest n = nest("argmax", {{DType::Float32}, {DType::Int64, true}}, 1, integer(1),
                {accumulator(20, Monoid::argmax, DType::Float32),
                 loop_over(1, param(0), LoopKind::vector,
                           {accumulate(20, Monoid::argmax, {load(0, DType::Float32, {i(1)}), i(1)})}),
                 store(1, integer(0), local(21, DType::Int64))});
  for (int64_t first : {0, 1, 15, 16, 31, 47, 63, 64, 70}) {
    Data x(DType::Float32, 80);
    for (int64_t k = 0; k < 80; ++k) set(x, k, -1.0f);
    for (int64_t k : {first, int64_t(71), int64_t(72), int64_t(79)}) set(x, k, 2.0f);
    expect_same(n, {80}, {x, Data(DType::Int64, 1)});
    set(x, 75, float(NAN)), set(x, 77, float(NAN));
    expect_same(n, {80}, {x, Data(DType::Int64, 1)});
  }
  Data lowest(DType::Float32, 50);
  for (int64_t k = 0; k < 50; ++k) set(lowest, k, -std::numeric_limits<float>::infinity());
  expect_same(n, {50}, {lowest, Data(DType::Int64, 1)});
}

TEST(CodegenNest, RisingPositionsNeedNoComparison) {
  // Down the columns in lanes, and along a row in lanes; positions in a byte.
  for (Monoid m : {Monoid::argmax, Monoid::argmax_pool}) {
    auto rising = [m](int var, std::vector<Expr> values) {
      Statement s = accumulate(var, m, std::move(values));
      s.rising = true;
      return s;
    };
    Statement in_bytes = accumulator(20, m, DType::Float32);
    in_bytes.position = DType::UInt8;
    Expr byte = local(21, DType::UInt8), whole = local(21, DType::Int64);
    Nest down = nest(
        "down", {{DType::Float32}, {DType::UInt8, true}}, 1, integer(1),
        {loop_over(1, param(0), LoopKind::vector,
                   {in_bytes,
                    loop_over(2, integer(5), LoopKind::serial,
                              {rising(20, {load(0, DType::Float32, {i(2) * param(0) + i(1)}),
                                           loop::cast(i(2), DType::UInt8)})}),
                    store(1, i(1),
                          loop::select(loop::eq(byte, Scalar(int64_t(255))), Scalar(int64_t(0)), byte))})});
    Nest along =
        nest("along", {{DType::Float32}, {DType::Int64, true}}, 1, integer(1),
             {accumulator(20, m, DType::Float32),
              loop_over(1, param(0), LoopKind::vector, {rising(20, {load(0, DType::Float32, {i(1)}), i(1)})}),
              store(1, integer(0),
                    loop::select(loop::eq(whole, Scalar(std::numeric_limits<int64_t>::max())),
                                 Scalar(int64_t(0)), whole))});
    EXPECT_EQ(loop::print(loop::parse_nest(loop::print(down))), loop::print(down));
    const float few[] = {-std::numeric_limits<float>::infinity(), 1, 2, NAN};
    for (int kinds : {1, 3, 4})
      for (int64_t n : {1, 16, 37, 90}) {
        Data x(DType::Float32, 5 * n);
        for (int64_t k = 0; k < 5 * n; ++k) set(x, k, few[(k * 7919 >> 3) % kinds]);
        expect_same(down, {n}, {x, Data(DType::UInt8, n)});
        expect_same(along, {n}, {x, Data(DType::Int64, 1)});
      }
  }
}

TEST(CodegenNest, ReducesColumnsWithSerialLoopsInsideALane) {
  for (DType d : {DType::Float32, DType::Float64, DType::BFloat16})
    for (Monoid m : {Monoid::sum, Monoid::argmax, Monoid::argmax_pool, Monoid::welford, Monoid::logsumexp}) {
      DType c = compute_type(d);
      auto start = loop::identity(m, c);
      Nest n = nest(std::string("columns ") + name(m), {{d}}, 2, integer(1), {});
      auto values = lifted(m, load(0, d, {i(2) * param(0) + i(1)}), 2);
      Block inner{accumulator(20, m, c),
                  loop_over(2, param(1), LoopKind::serial, {accumulate(20, m, values)})};
      for (size_t k = 0; k < start.size(); ++k) {
        n.buffers.push_back({start[k].dtype(), true});
        inner.push_back(store(int(k) + 1, i(1), local(20 + int(k), start[k].dtype())));
      }
      n.body = {loop_over(1, param(0), LoopKind::vector, inner)};
      for (int64_t columns : {1, 5, 16, 35})
        for (int64_t rows : {1, 9}) {
          std::vector<Data> data{noise(d, rows * columns, 5)};
          for (auto& s : start) data.emplace_back(s.dtype(), columns);
          expect_same(n, {columns, rows}, data, d == DType::Float64 ? 1e-14 : 1e-6);
        }
    }
}

TEST(CodegenNest, ScansWithAssignedLocalsSeriallyAndInLanes) {
  // Running sums along rows (serial) and along columns, one lane a column.
  Expr zero = constant(0.0, DType::Float32), so_far = local(30, DType::Float32);
  auto scan = [&](Expr offset, int var, Expr extent) -> Block {
    return {assign(30, zero),
            loop_over(var, extent, LoopKind::serial,
                      {assign(30, so_far + load(0, DType::Float32, {offset})), store(1, offset, so_far)})};
  };
  std::vector<Buffer> buffers{{DType::Float32}, {DType::Float32, true}};
  Nest rows = nest("scan rows", buffers, 2, param(1), scan(i(0) * param(0) + i(1), 1, param(0)));
  Nest columns = nest("scan columns", buffers, 2, integer(1),
                      {loop_over(1, param(0), LoopKind::vector, scan(i(2) * param(0) + i(1), 2, param(1)))});
  for (int64_t n : {1, 16, 37}) {
    expect_same(rows, {n, 4}, {noise(DType::Float32, 4 * n, 1), Data(DType::Float32, 4 * n)});
    expect_same(columns, {n, 4}, {noise(DType::Float32, 4 * n, 1), Data(DType::Float32, 4 * n)});
  }
}

TEST(CodegenNest, TakesConditionsByBranchAndByMask) {
  Expr x = load(0, DType::Float32, {i(1)});
  Nest n =
      nest("condition", {{DType::Float32}, {DType::Float32, true}, {DType::Float32, true}}, 2, integer(1),
           {accumulator(20, Monoid::sum, DType::Float32),
            loop_over(1, param(0), LoopKind::vector,
                      {when(x > 0.0, {store(1, i(1), sqrt(x)), accumulate(20, Monoid::sum, {x})}),
                       when(param(1) > int64_t(5), {store(1, i(1), x + 1.0)})}),
            when(param(1) > int64_t(3), {store(2, integer(0), local(20, DType::Float32))})});
  for (int64_t length : {1, 16, 50})
    for (int64_t p : {1, 4, 9})
      expect_same(n, {length, p},
                  {noise(DType::Float32, length, 2), noise(DType::Float32, length, 3),
                   Data(DType::Float32, 1)},
                  1e-5);
}

TEST(CodegenNest, KeepsLocalArraysOutsideAndInsideLanes) {
  // Outside: a row is normalised through scratch. Inside: every lane sorts out its own little array.
  Expr x = load(0, DType::Float32, {i(0) * param(0) + i(1)});
  Expr sum = local(20, DType::Float32);
  Nest outside =
      nest("scratch", {{DType::Float32}, {DType::Float32, true}}, 1, integer(3),
           {array(5, DType::Float32, param(0)), accumulator(20, Monoid::sum, DType::Float32),
            loop_over(1, param(0), LoopKind::vector,
                      {let(7, exp(x)), store(-1 - 5, i(1), local(7, DType::Float32)),
                       accumulate(20, Monoid::sum, {local(7, DType::Float32)})}),
            loop_over(2, param(0), LoopKind::vector,
                      {store(1, i(0) * param(0) + i(2), load(-1 - 5, DType::Float32, {i(2)}) / sum)})});
  Expr at = i(2) * param(0) + i(1);
  Nest inside =
      nest("lane arrays", {{DType::Float32}, {DType::Float32, true}}, 1, integer(1),
           {loop_over(1, param(0), LoopKind::vector,
                      {array(5, DType::Float32, integer(4)),
                       loop_over(2, integer(4), LoopKind::serial,
                                 {store(-1 - 5, i(2), load(0, DType::Float32, {at}) * 2.0)}),
                       loop_over(2, integer(4), LoopKind::unrolled,
                                 {store(1, at, load(-1 - 5, DType::Float32, {integer(3) - i(2)}))})})});
  for (int64_t n : {1, 16, 37}) {
    expect_same(outside, {n}, {noise(DType::Float32, 3 * n, 2, 2), Data(DType::Float32, 3 * n)}, 1e-6);
    expect_same(inside, {n}, {noise(DType::Float32, 4 * n, 2, 2), Data(DType::Float32, 4 * n)});
  }
}

// A buffer whose last element is followed by a page that must not be touched, and preceded by one.
class Fenced {
 public:
  explicit Fenced(int64_t bytes) : bytes_(bytes) {
    base_ = static_cast<char*>(mmap(nullptr, 3 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_ + kPage, kPage, PROT_READ | PROT_WRITE);
  }
  ~Fenced() { munmap(base_, 3 * kPage); }
  void* at_end() { return base_ + 2 * kPage - bytes_; }
  void* at_start() { return base_ + kPage; }

 private:
  static constexpr int64_t kPage = 4096;
  int64_t bytes_;
  char* base_;
};

TEST(CodegenNest, LeavesTheUntakenSideOfSelectAlone) {
  // A padded copy: out[j] = x[j - 3] inside, else 0; x lies between forbidden pages.
  for (DType d : {DType::Float32, DType::UInt8, DType::Float64}) {
    Expr j = i(1) - integer(3);
    Expr value = select((j >= int64_t(0)) & (j < param(0)), load(0, d, {j}), constant(int64_t(0), d));
    for (auto kind : {LoopKind::vector, LoopKind::serial}) {
      Nest n = nest("pad", {{d}, {d, true}}, 2, integer(1),
                    {loop_over(1, param(1), kind, {store(1, i(1), value)})});
      for (int64_t length : {1, 16, 40}) {
        Fenced x(length * itemsize(d));
        Data out(d, length + 8), source = noise(d, length, 4);
        for (void* p : {x.at_end(), x.at_start()}) {
          std::memcpy(p, source.bytes.data(), source.bytes.size());
          void* buffers[] = {p, out.bytes.data()};
          int64_t params[] = {length, length + 8};
          codegen::launch(*codegen::kernel(n), buffers, params, "pad");
          for (int64_t k = 0; k < length + 8; ++k) {
            char zero[8] = {};
            const char* want = k >= 3 && k < length + 3 ? source.at(k - 3) : zero;
            ASSERT_EQ(std::memcmp(out.at(k), want, size_t(itemsize(d))), 0) << d << " " << length << " " << k;
          }
        }
      }
    }
  }
}

TEST(CodegenNest, NeverTouchesMemoryBehindTheEnd) {
  for (DType d : {DType::Float32, DType::UInt8, DType::BFloat16, DType::Float64}) {
    Nest n = binary(Fn::add, d, LoopKind::vector, {1, 1, 1});
    for (int64_t length : kLengths) {
      Fenced x(length * itemsize(d)), y(length * itemsize(d)), z(length * itemsize(d));
      void* buffers[] = {x.at_end(), y.at_end(), z.at_end()};
      codegen::launch(*codegen::kernel(n), buffers, &length, "add");
    }
  }
}

TEST(CodegenNest, ChecksIndices) {
  for (auto kind : {LoopKind::vector, LoopKind::serial}) {
    Nest n =
        nest("gather", {{DType::Float32}, {DType::Int64}, {DType::Float32, true}}, 2, integer(2),
             {loop_over(1, param(0), kind,
                        {store(2, i(0) * param(0) + i(1),
                               load(0, DType::Float32,
                                    {check(load(1, DType::Int64, {i(0) * param(0) + i(1)}), param(1))}))})});
    Data indices(DType::Int64, 80);
    for (int64_t k = 0; k < 80; ++k) set(indices, k, k % 10 - 5);
    expect_same(n, {40, 5}, {noise(DType::Float32, 5, 1), indices, Data(DType::Float32, 80)});
    set(indices, 63, int64_t(7));
    set(indices, 38, int64_t(-6));
    set(indices, 39, int64_t(9));
    Data x = noise(DType::Float32, 5, 1), out(DType::Float32, 80);
    void* buffers[] = {x.bytes.data(), indices.bytes.data(), out.bytes.data()};
    int64_t params[] = {40, 5};
    try {
      codegen::launch(*codegen::kernel(n), buffers, params, "gather");
      ADD_FAILURE() << "no error";
    } catch (const Error& e) {
      EXPECT_EQ(e.type(), ErrorType::IndexError);
      EXPECT_STREQ(e.what(), "gather: index -6 is out of bounds for dimension with size 5");
    }
  }
}

TEST(CodegenNest, ScattersWithRepeatedIndicesExactly) {
  Expr to = load(1, DType::Int64, {i(1)});
  Nest n = nest("scatter_add", {{DType::Float32}, {DType::Int64}, {DType::Float32, true}}, 1, integer(1),
                {loop_over(1, param(0), LoopKind::vector,
                           {store(2, to, load(2, DType::Float32, {to}) + load(0, DType::Float32, {i(1)}))})});
  Data indices(DType::Int64, 50);
  for (int64_t k = 0; k < 50; ++k) set(indices, k, k * k % 4);
  expect_same(n, {50}, {noise(DType::Float32, 50, 1), indices, noise(DType::Float32, 4, 3)});
}

TEST(CodegenNest, WorksInPlace) {
  Nest n = nest("in place", {{DType::Float32, true}}, 1, integer(1),
                {loop_over(1, param(0), LoopKind::vector,
                           {store(0, i(1), load(0, DType::Float32, {i(1)}) * 2.0),
                            store(0, i(1), load(0, DType::Float32, {i(1)}) + 1.0)})});
  expect_same(n, {37}, {noise(DType::Float32, 37, 2)});
  // A recurrence must not run in lanes.
  Nest chain = nest("chain", {{DType::Float32, true}}, 1, integer(1),
                    {loop_over(1, param(0), LoopKind::vector,
                               {store(0, i(1) + integer(1),
                                      load(0, DType::Float32, {i(1)}) +
                                          load(0, DType::Float32, {i(1) + integer(1)}))})});
  expect_same(chain, {36}, {noise(DType::Float32, 37, 2)});
}

TEST(CodegenNest, ReadsAndWritesComponentsOfComplexNumbers) {
  for (DType d : {DType::Complex64, DType::Complex128}) {
    auto c = [&](int b, int part) { return load(b, d, {i(1)}, part); };
    Nest n = nest("complex mul", {{d}, {d}, {d, true}}, 1, integer(1),
                  {loop_over(1, param(0), LoopKind::vector,
                             {store(2, i(1), c(0, 1) * c(1, 1) - c(0, 2) * c(1, 2), 1),
                              store(2, i(1), c(0, 1) * c(1, 2) + c(0, 2) * c(1, 1), 2)})});
    for (int64_t length : kLengths)
      expect_same(n, {length}, {noise(d, length + 1, 1), noise(d, length + 1, 2), noise(d, length + 1, 3)});
  }
}

TEST(CodegenNest, DrawsTheDocumentedRandomNumbers) {
  for (auto kind : {LoopKind::vector, LoopKind::serial}) {
    Nest n = nest("random", {{DType::Int64, true}}, 3, integer(1),
                  {loop_over(1, param(0), kind, {store(0, i(1), random(param(1), param(2) + i(1)))})});
    int64_t params[] = {37, 0x123456789abcdef, (int64_t(1) << 34) + 2};
    std::vector<int64_t> out(37);
    void* buffers[] = {out.data()};
    codegen::launch(*codegen::kernel(n), buffers, params, "random");
    for (int64_t k = 0; k < 37; ++k)
      EXPECT_EQ(out[size_t(k)], int64_t(random_bits(uint64_t(params[1]), uint64_t(params[2] + k))));
  }
}

TEST(CodegenNest, GivesTheSameBitsForEveryThreadCount) {
  Expr x = load(0, DType::Float32, {i(0) * integer(4096) + i(1)});
  Expr limit = min(integer(4096), param(0) - i(0) * integer(4096));
  Nest n = nest("chunks", {{DType::Float32}, {DType::Float32, true}, {DType::Float32, true}}, 1,
                floordiv(param(0) + integer(4095), integer(4096)),
                {accumulator(20, Monoid::sum, DType::Float32),
                 loop_over(1, limit, LoopKind::vector,
                           {let(3, tanh(x)), store(1, i(0) * integer(4096) + i(1), local(3, DType::Float32)),
                            accumulate(20, Monoid::sum, {local(3, DType::Float32)})}),
                 store(2, i(0), local(20, DType::Float32))});
  n.cost = integer(40000);
  int64_t length = 100003;
  Data x0 = noise(DType::Float32, length, 8);
  int before = num_threads();
  std::vector<char> first;
  for (int threads : {1, 2, 3, 7}) {
    set_num_threads(threads);
    Data y(DType::Float32, length), sums(DType::Float32, 25);
    void* buffers[] = {x0.bytes.data(), y.bytes.data(), sums.bytes.data()};
    codegen::launch(*codegen::kernel(n), buffers, &length, "chunks");
    std::vector<char> all = y.bytes;
    all.insert(all.end(), sums.bytes.begin(), sums.bytes.end());
    if (first.empty()) first = all;
    EXPECT_TRUE(all == first) << threads << " threads";
  }
  set_num_threads(before);
}

TEST(CodegenNest, AgreesOnAvx2Too) {
  if (codegen::vector_lanes() == 8) GTEST_SKIP() << "this is that run";
  auto [status, text] = run_again("avx2", "CodegenNest.*");
  EXPECT_EQ(status, 0) << text;
}

}  // namespace
