// Arenas (run/arena.h), and the frames that plans run in (run/frame.h), against the functions run in eager.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "facula/facula.h"
#include "facula/run/arena.h"
#include "facula/run/traced.h"

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

TEST(Frame, RunsGiveWhatEagerGivesAndLaterOnesLeaveItAlone) {
  auto program = run::trace(steps_of_every_kind, inputs(0));
  std::vector<Tensors> ours, theirs;
  for (int k = 0; k < 6; ++k) {
    ours.push_back((*program)(inputs(k)));
    theirs.push_back(steps_of_every_kind(inputs(k)));
  }
  for (int k = 0; k < 6; ++k) expect_equal(ours[size_t(k)], theirs[size_t(k)]);
}

TEST(Frame, InputsMayBeginAnywhereInTheirStorages) {
  auto f = [](Given x) { return Tensors{mm(t(narrow(x[0], 0, 1, 4)), x[1]), narrow(x[0], 0, 2, 2)}; };
  Tensor all = randn(Dims{9, 6, 6}), y = randn(Dims{4, 3});
  auto program = run::trace(f, Tensors{select(all, 0, 0), y});
  for (int k : {4, 0, 8, 8, 1}) {
    Tensors given{select(all, 0, k), y};
    expect_equal((*program)(given), f(given));
  }
}

TEST(Frame, AllocatesItsResultsAndOneBlock) {
  auto program = run::trace(steps_of_every_kind, inputs(0));
  auto given = inputs(1);
  for (int k = 0; k < 3; ++k) (*program)(given);
  auto before = memory_stats().allocations;
  for (int k = 0; k < 10; ++k) (*program)(given);
  // a, b and the sum have memory of their own, the others are views.
  EXPECT_EQ(memory_stats().allocations - before, 10 * (3 + 1));
}

TEST(Frame, KeepsNothingOfARun) {
  auto program = run::trace(steps_of_every_kind, inputs(0));
  auto given = inputs(1);
  std::vector<uint32_t> before, after;
  for (auto& t : given) before.push_back(t.impl()->storage->use_count());
  (*program)(given);
  for (auto& t : given) after.push_back(t.impl()->storage->use_count());
  EXPECT_EQ(before, after);
}

TEST(Frame, ViewsThatAreResultsCountWritesWithTheirBase) {
  auto program = run::trace([](Given x) { return Tensors{t(t(x[0]))}; }, Tensors{ones(Dims{2, 3})});
  Tensor a = ones(Dims{2, 3}), b = ones(Dims{2, 3});
  Tensor of_a = (*program)(Tensors{a})[0], of_b = (*program)(Tensors{b})[0];
  add_(of_a, 1);
  EXPECT_EQ(a.version(), 1u);
  EXPECT_EQ(of_b.version(), 0u);
  EXPECT_EQ(b.version(), 0u);
}

TEST(Frame, ARunThatRaisesLeavesTheNextOneRight) {
  auto f = [](Given x) { return Tensors{mm(index_select(mm(x[0], x[0]), 0, x[1]), x[0])}; };
  Tensor x = randn(Dims{4, 4}), good = arange(4), bad = add(good, 1);
  auto program = run::trace(f, Tensors{x, good});
  for (int k = 0; k < 3; ++k) {
    EXPECT_THROW((*program)(Tensors{x, bad}), Error);
    expect_equal((*program)(Tensors{x, good}), f(Tensors{x, good}));
  }
}

TEST(Frame, ThreadsRunOneProgramAtTheSameTime) {
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

}  // namespace
