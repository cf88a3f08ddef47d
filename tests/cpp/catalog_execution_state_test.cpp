// Arenas (run/arena.h), and the states that plans run in (run/execution_state.h), against the functions run in eager.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "facula/facula.h"
#include "facula/run/arena.h"
#include "facula/run/traced.h"
#include "facula/tensor/derived.h"
#include "facula/tensor/memory.h"

using namespace facula;

namespace {

using Tensors = std::vector<Tensor>;
using Given = std::span<const Tensor>;

bool equal(const Tensor& a, const Tensor& b) { return all(eq(a, b)).item().to_bool(); }

TEST(Arena, ValuesOverlapInTimeOrInMemoryAndNotInBoth) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    bool many = round % 50 == 0;  // most of which live shortly
    size_t steps = 1 + random() % (many ? 3000 : 40), n = random() % (many ? 2000 : 60);
    std::vector<run::Lifetime> values;
    for (size_t k = 0; k < n; ++k) {
      size_t first = random() % steps, longest = steps - first;
      if (many && random() % 4) longest = std::min<size_t>(longest, 1 + random() % 60);
      values.push_back({random() % 5 ? random() % 5000 : 0, first, first + random() % longest});
    }
    auto p = run::pack(values);
    for (size_t a = 0; a < n; ++a) {
      auto end = [&](size_t k) { return size_t(p.offsets[k]) + values[k].bytes; };
      EXPECT_EQ(p.offsets[a] % 64, 0);
      EXPECT_LE(end(a), p.bytes);
      for (size_t b = 0; b < a; ++b) {
        bool in_time = values[a].first <= values[b].last && values[b].first <= values[a].last;
        bool in_memory = size_t(p.offsets[a]) < end(b) && size_t(p.offsets[b]) < end(a) && values[a].bytes &&
                         values[b].bytes;
        EXPECT_FALSE(in_time && in_memory) << "round " << round << ": " << a << " and " << b;
      }
    }
    EXPECT_GE(p.bytes, run::liveness_bound(values, steps));
  }
}

TEST(Arena, TheLivenessBoundIsTheMostThatLivesAtOnce) {
  std::vector<run::Lifetime> values{{100, 0, 1}, {10, 1, 2}, {1000, 2, 2}, {1, 0, 2}};
  EXPECT_EQ(run::liveness_bound(values, 3), 1011u);
  EXPECT_EQ(run::liveness_bound({}, 3), 0u);
  EXPECT_EQ(run::pack({}).bytes, 0u);
}

// Steps of every kind, on values of the arena, inputs, and what others get to hold.
Tensors steps_of_every_kind(Given x) {
  Tensor a = x[0], b = x[1];
  for (int k = 0; k < 3; ++k) {
    a = mm(t(a), narrow(b, 0, 1, 5));
    a = add(cumsum(a, 0), select(x[2], 0, k));
    b = cat(Tensors{b, narrow(a, 0, 0, 1)}, 0);
  }
  return {a, t(a), narrow(b, 1, 1, 2), sum(b), t(x[0])};
}

Tensors inputs(int seed) {
  Generator g;
  g.manual_seed(uint64_t(seed));
  return {randn(Dims{5, 5}, &g), randn(Dims{6, 5}, &g), randn(Dims{3, 5, 5}, &g)};
}

void expect_equal(Given a, Given b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t k = 0; k < a.size(); ++k) EXPECT_TRUE(equal(a[k], b[k])) << "result " << k;
}

TEST(ExecutionState, RunsGiveWhatEagerGivesAndLaterOnesLeaveItAlone) {
  auto program = run::trace(steps_of_every_kind, inputs(0));
  std::vector<Tensors> ours, theirs;
  for (int k = 0; k < 6; ++k) {
    ours.push_back((*program)(inputs(k)));
    theirs.push_back(steps_of_every_kind(inputs(k)));
  }
  for (int k = 0; k < 6; ++k) expect_equal(ours[size_t(k)], theirs[size_t(k)]);
}

TEST(ExecutionState, InputsMayBeginAnywhereInTheirStorages) {
  auto f = [](Given x) { return Tensors{mm(t(narrow(x[0], 0, 1, 4)), x[1]), narrow(x[0], 0, 2, 2)}; };
  Tensor all = randn(Dims{9, 6, 6}), y = randn(Dims{4, 3});
  auto program = run::trace(f, Tensors{select(all, 0, 0), y});
  for (int k : {4, 0, 8, 8, 1}) {
    Tensors given{select(all, 0, k), y};
    expect_equal((*program)(given), f(given));
  }
}

template <class F>
int64_t allocations(F&& f) {
  auto before = memory_stats().allocations;
  f();
  return memory_stats().allocations - before;
}

TEST(ExecutionState, AllocatesItsResultsAlone) {
  auto program = run::trace(steps_of_every_kind, inputs(0));
  auto given = inputs(1);
  (*program)(given);
  // a, b and the sum have memory of their own, the others are views.
  EXPECT_EQ(allocations([&] {
              for (int k = 0; k < 10; ++k) (*program)(given);
            }),
            10 * 3);
}

// Rounds of two products, so that n * n floats live in the arena.
Tensors products(Given x) { return {sum(mm(mm(mm(x[0], x[0]), x[0]), x[0]))}; }
Tensor square(int64_t n) { return mul(ones(Dims{n, n}), 1.0 / double(n)); }

TEST(ExecutionState, MemoryOfAProgramWaitsForItsNextRun) {
  empty_cache();
  int64_t before = allocator_stats().reserved_bytes.current, held = 2 * 512 * 512 * 4;
  int64_t allocated = memory_stats().current_bytes;
  // A matrix unit has the right operand packed, which is retained.
  const int64_t packed = derived_counts().bytes;
  {
    Tensor x = square(512);
    int64_t given = 512 * 512 * 4;
    auto program = run::trace(products, Tensors{x});
    (*program)(Tensors{x});
    empty_cache();  // also what waits for the program
    EXPECT_LT(allocator_stats().reserved_bytes.current, before + given + held);
    const int64_t packs = derived_counts().retained;
    const int64_t second = allocations([&] { (*program)(Tensors{x}); });
    EXPECT_EQ(second, 1 + 1 + derived_counts().retained - packs);
    EXPECT_EQ(allocations([&] { (*program)(Tensors{x}); }), 1);
    EXPECT_GE(allocator_stats().reserved_bytes.current,
              before + given + held);  // but allocated is what tensors hold
    EXPECT_EQ(memory_stats().current_bytes, allocated + given + derived_counts().bytes - packed);
  }
  empty_cache();
  EXPECT_LT(allocator_stats().reserved_bytes.current, before + 65536);
}

TEST(ExecutionState, MemoryGoesWithTheProgramThoughItsPlansAreKnownStill) {
  Tensor x = requires_grad_(square(512), true);
  auto* program = run::trace(products, Tensors{x}).release();
  Tensor y = (*program)(Tensors{x})[0];  // with history, which outlives the program
  int64_t waiting = allocator_stats().waiting_blocks;
  delete program;
  EXPECT_GT(allocator_stats().waiting_blocks, waiting);  // in the pool, for anybody
  waiting = allocator_stats().waiting_blocks;
  autograd::backward(Tensors{y}, {}, false, false);
  EXPECT_TRUE(autograd::grad_of(x).defined());
  EXPECT_GE(allocator_stats().waiting_blocks, waiting);
}

TEST(ExecutionState, SizesInTurnKeepNoMoreThanAFewPlans) {
  Tensor x = square(64);
  auto program = run::trace(products, Tensors{x}, "program", true);
  empty_cache();
  int64_t before = allocator_stats().reserved_bytes.current, largest = 0;
  for (int round = 0; round < 2; ++round)
    for (int64_t n = 300; n < 340; ++n) {
      (*program)(Tensors{square(n)});
      largest = n * n * 4;
    }
  empty_cache();
  before = allocator_stats().reserved_bytes.current;
  for (int64_t n = 300; n < 340; ++n) (*program)(Tensors{square(n)});
  int64_t waiting = allocator_stats().waiting_bytes;
  EXPECT_LT(allocator_stats().reserved_bytes.current - waiting - before, (4 + 1) * 3 * largest);
}

TEST(ExecutionState, BlocksOfManyProgramsHoldABoundedAmount) {
  // Each keeps some 128 MiB: 20 of them were 2.5 GiB.
  std::vector<std::unique_ptr<run::Traced>> programs;
  empty_cache();
  int64_t before = allocator_stats().reserved_bytes.current, most = int64_t(1) << 30;
  auto f = [](Given x) { return Tensors{sum(cumsum(cumsum(expand(x[0], Dims{4096, 4096}), 0), 1))}; };
  Tensor x = ones(Dims{4096, 1});
  for (int k = 0; k < 20; ++k) {
    programs.push_back(run::trace(f, Tensors{x}));
    (*programs.back())(Tensors{x});
    int64_t waiting = allocator_stats().waiting_bytes;  // in the pool
    EXPECT_LE(allocator_stats().reserved_bytes.current - before - waiting, most + (1 << 20));
  }
  EXPECT_EQ(allocations([&] { (*programs.back())(Tensors{x}); }), 1);
  EXPECT_EQ(allocations([&] { (*programs.front())(Tensors{x}); }), 2);
  EXPECT_EQ(allocations([&] { (*programs.front())(Tensors{x}); }), 1);
}

TEST(ExecutionState, KeepsNothingOfARun) {
  auto program = run::trace(steps_of_every_kind, inputs(0));
  auto given = inputs(1);
  std::vector<uint32_t> before, after;
  for (auto& t : given) before.push_back(t.impl()->storage->use_count());
  (*program)(given);
  for (auto& t : given) after.push_back(t.impl()->storage->use_count());
  EXPECT_EQ(before, after);
}

TEST(ExecutionState, ViewsThatAreResultsCountWritesWithTheirBase) {
  auto program = run::trace([](Given x) { return Tensors{t(t(x[0]))}; }, Tensors{ones(Dims{2, 3})});
  Tensor a = ones(Dims{2, 3}), b = ones(Dims{2, 3});
  Tensor of_a = (*program)(Tensors{a})[0], of_b = (*program)(Tensors{b})[0];
  add_(of_a, 1);
  EXPECT_EQ(a.version(), 1u);
  EXPECT_EQ(of_b.version(), 0u);
  EXPECT_EQ(b.version(), 0u);
}

TEST(ExecutionState, ARunThatRaisesLeavesTheNextOneRight) {
  auto f = [](Given x) { return Tensors{mm(index_select(mm(x[0], x[0]), 0, x[1]), x[0])}; };
  Tensor x = randn(Dims{4, 4}), good = arange(4), bad = add(good, 1);
  auto program = run::trace(f, Tensors{x, good});
  for (int k = 0; k < 3; ++k) {
    EXPECT_THROW((*program)(Tensors{x, bad}), Error);
    expect_equal((*program)(Tensors{x, good}), f(Tensors{x, good}));
  }
}

TEST(ExecutionState, ThreadsRunOneProgramAtTheSameTime) {
  auto program = run::trace(steps_of_every_kind, inputs(0));
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int n = 0; n < 6; ++n)
    threads.emplace_back([&, n] {
      auto given = inputs(n), expected = steps_of_every_kind(given);
      for (int k = 0; k < 200; ++k) {
        auto results = (*program)(given);
        for (size_t r = 0; r < results.size(); ++r) wrong += !equal(results[r], expected[r]);
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ExecutionState, ThreadsThatRunAtTheSameTimeHaveABlockEach) {
  auto program = run::trace(steps_of_every_kind, inputs(0));
  auto given = inputs(1);
  constexpr int kThreads = 8, kRuns = 300;
  auto all = [&] {
    std::vector<std::thread> threads;
    for (int n = 0; n < kThreads; ++n)
      threads.emplace_back([&] {
        for (int k = 0; k < kRuns; ++k) (*program)(given);
      });
    for (auto& t : threads) t.join();
  };
  all();
  EXPECT_LE(allocations(all), kThreads * kRuns * 3 + kThreads);  // of which some may not have met before
}

}  // namespace
