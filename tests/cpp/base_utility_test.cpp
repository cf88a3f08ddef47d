// Errors, hashing, small vectors, settings, parallel_for and random numbers.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <numeric>
#include <random>
#include <set>
#include <thread>

#include "facula/base/error.h"
#include "facula/base/fork.h"
#include "facula/base/hash.h"
#include "facula/base/log.h"
#include "facula/base/parallel.h"
#include "facula/base/random.h"
#include "facula/base/settings.h"
#include "facula/base/sha256.h"
#include "facula/base/small_vector.h"

namespace facula {
namespace {

TEST(Error, NamesOperatorMessageAndHint) {
  try {
    index_check(1 > 2, "take") << "index " << 7 << " is out of range" << hint("use at most ", 3);
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "take: index 7 is out of range\n  hint: use at most 3");
    EXPECT_EQ(e.type(), ErrorType::IndexError);
    EXPECT_EQ(e.kind(), ErrorKind::user);
    EXPECT_EQ(e.op(), "take");
    EXPECT_EQ(e.message(), "index 7 is out of range");
  }
}

TEST(Error, ChecksAreStatements) {
  bool other = false;
  if (true) user_check(true, "op") << "never";
  else other = true;
  EXPECT_FALSE(other);
}

TEST(Hash, SeesEveryByteAndTheLength) {
  std::set<uint64_t> seen;
  std::string text(40, 'a');
  for (size_t n = 0; n <= text.size(); ++n) seen.insert(hash_of(std::string_view(text).substr(0, n)));
  for (size_t k = 0; k < text.size(); ++k)
    for (int bit = 0; bit < 8; ++bit) {
      text[k] = char(text[k] ^ 1 << bit);
      seen.insert(hash_of(text));
      text[k] = char(text[k] ^ 1 << bit);
    }
  EXPECT_EQ(seen.size(), 41u + 320u);
}

TEST(Sha256, AgreesWithTheStandardsExamples) {  // FIPS 180-4
  EXPECT_EQ(hex(sha256({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256({"abc"})), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256({"abcdbcdecdefdefgefghfghighijhijk", "ijkljklmklmnlmnomnopnopq"})),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256({std::string(1'000'000, 'a')})),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(SmallVector, BehavesAsAVector) {
  std::mt19937 rng(1);
  SmallVector<int, 5> v;
  std::vector<int> w;
  for (int step = 0; step < 20000; ++step) {
    int x = int(rng());
    switch (rng() % 8) {
      case 0:
      case 1:
        v.push_back(x);
        w.push_back(x);
        break;
      case 2:
        if (!w.empty()) {
          v.pop_back();
          w.pop_back();
        }
        break;
      case 3: {
        size_t at = rng() % (w.size() + 1);
        v.insert(at, x);
        w.insert(w.begin() + long(at), x);
        break;
      }
      case 4:
        if (!w.empty()) {
          size_t at = rng() % w.size();
          v.erase(at);
          w.erase(w.begin() + long(at));
        }
        break;
      case 5: {
        auto moved = std::move(v);
        SmallVector<int, 5> copy(moved);
        v = std::move(copy);
        break;
      }
      case 6: {
        size_t n = rng() % 12;
        v.resize(n, 3);
        w.resize(n, 3);
        break;
      }
      case 7: {
        SmallVector<int, 5> other(std::span<const int>(w.data(), w.size()));
        v = other;
        break;
      }
    }
    ASSERT_TRUE(std::equal(v.begin(), v.end(), w.begin(), w.end()));
  }
}

TEST(Log, AreasAreTurnedOnAndOffByName) {
  set_logs("passes, +cache");
  EXPECT_TRUE(log_on(Log::passes));
  EXPECT_TRUE(log_on(Log::cache));
  EXPECT_FALSE(log_on(Log::ops));
  set_logs("all,-cache");
  EXPECT_TRUE(log_on(Log::ops));
  EXPECT_FALSE(log_on(Log::cache));
  set_logs("-all");
  EXPECT_EQ(log_mask.load(), 0u);
}

TEST(Log, AnUnknownAreaIsRefusedWithTheKnownOnesAndChangesNothing) {
  try {
    set_logs("ops,pass");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.type(), ErrorType::ValueError);
    for (auto word : {"'pass'", "ops", "kernels", "cache", "layouts", "passes", "llvm", "help"})
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << e.what();
  }
  EXPECT_EQ(log_mask.load(), 0u);
}

class Threads : public ::testing::Test {
 protected:
  void SetUp() override { set_num_threads(3); }
  void TearDown() override { set_num_threads(before_); }
  int before_ = num_threads();
};

TEST_F(Threads, CoverEveryItemOnce) {
  for (int64_t n : {0, 1, 2, 3, 7, 100, 1001})
    for (int64_t grain : {0, 1, 3, 50, 5000}) {
      std::vector<std::atomic<int>> count(static_cast<size_t>(n));
      parallel_for(n, grain, [&](int64_t begin, int64_t end) {
        EXPECT_GE(end - begin, std::min(grain, n));
        for (int64_t k = begin; k < end; ++k) ++count[size_t(k)];
      });
      for (auto& c : count) EXPECT_EQ(c, 1);
    }
}

TEST_F(Threads, ReallyWorkTogetherAndNeverNested) {
  std::atomic<int> pieces{0}, inner{0};
  parallel_for(30, 1, [&](int64_t, int64_t) {
    ++pieces;
    EXPECT_TRUE(in_parallel());
    parallel_for(30, 1, [&](int64_t begin, int64_t end) { inner += int(end - begin == 30); });
  });
  EXPECT_EQ(pieces, 3);
  EXPECT_EQ(inner, 3);
  EXPECT_FALSE(in_parallel());
}

TEST_F(Threads, PassOnExceptions) {
  EXPECT_THROW(parallel_for(30, 1,
                            [](int64_t begin, int64_t) {
                              user_check(begin == 0, "op") << "piece at " << begin;
                            }),
               Error);
}

TEST_F(Threads, AForkedChildWorksAlone) {
  parallel_for(30, 1, [](int64_t, int64_t) {});  // the pool exists
  pid_t child = fork();
  if (child == 0) {
    int64_t sum = 0;
    parallel_for(1000, 1, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) sum += k;
    });
    _exit(sum == 499500 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// The generator written from its definition, on the whole counter; held to the published known answers.
std::array<uint32_t, 4> reference_philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    uint64_t left = 0xD2511F53ull * counter[0], right = 0xCD9E8D57ull * counter[2];
    counter = {uint32_t(right >> 32) ^ counter[1] ^ key[0], uint32_t(right),
               uint32_t(left >> 32) ^ counter[3] ^ key[1], uint32_t(left)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

TEST(Random, IsPhilox) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(reference_philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(reference_philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(reference_philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  std::mt19937_64 rng(7);
  for (int k = 0; k < 1000; ++k) {
    uint64_t seed = rng(), counter = rng();
    EXPECT_EQ(philox(seed, counter), reference_philox({uint32_t(counter), uint32_t(counter >> 32), 0, 0},
                                                      {uint32_t(seed), uint32_t(seed >> 32)}));
    EXPECT_EQ(random_bits(seed, counter), philox(seed, counter / 4)[counter % 4]);
  }
}

constinit TableMutex made_without_waiting;  // in a static's guard it must not wait for a fork

// In a child: 0 if both can be locked.
int locked_in_child(TableMutex& a, TableMutex& b) {
  pid_t child = fork();
  if (!child) {
    alarm(10);
    a.lock();
    b.lock();
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST(Fork, LocksThatAnotherThreadHoldsAreFreeInTheChild) {
  TableMutex a, b;
  std::atomic<bool> done{false};
  std::thread thread([&] {
    while (!done) {
      {
        std::lock_guard first(a);
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        // Held one by one: a fork that took b first and waited for a would wait for ever.
        std::lock_guard second(b);
        TableMutex one_more;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      std::this_thread::yield();
    }
  });
  std::thread other([&] {
    for (int k = 0; k < 20; ++k) EXPECT_EQ(locked_in_child(a, b), 0);
  });  // two fork at once
  for (int k = 0; k < 20; ++k) EXPECT_EQ(locked_in_child(a, b), 0);
  other.join();
  done = true;
  thread.join();
  EXPECT_EQ(locked_in_child(a, b), 0);
  EXPECT_EQ(locked_in_child(a, made_without_waiting), 0);
}

TEST(Fork, DoesNotWaitForEverForAThreadThatWaitsForIt) {
  TableMutex a;
  std::atomic<bool> taken{false}, forked{false};
  std::thread thread([&] {
    std::lock_guard lock(a);
    taken = true;
    while (!forked) std::this_thread::yield();
  });
  while (!taken) std::this_thread::yield();
  pid_t child = fork();
  if (!child) _exit(0);
  forked = true;
  thread.join();
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(a.try_lock());
  a.unlock();
}

TEST(Random, OffsetsAreTakenInWholeBlocks) {
  Generator g(5);
  EXPECT_EQ(g.take(1), 0u);
  EXPECT_EQ(g.take(4), 4u);
  EXPECT_EQ(g.take(5), 8u);
  EXPECT_EQ(g.offset(), 16u);
  g.manual_seed(6);
  EXPECT_EQ(g.offset(), 0u);
}

}  // namespace
}  // namespace facula
