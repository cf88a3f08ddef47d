// Every fuzz target on its seeds, on what it once failed on (corpus/<target>/) and on mutations of both, the
// same in every run. With FACULA_FUZZ_SEEDS=FOLDER it writes the seeds to FOLDER/<target>/ instead, for
// libFuzzer to start from.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "fuzz.h"

namespace facula::fuzz {
namespace {

namespace fs = std::filesystem;
int mutations() {
  const char* n = std::getenv("FACULA_FUZZ_MUTATIONS");
  return n ? std::atoi(n) : 2000;
}
constexpr size_t kLongest = 4096;

std::vector<std::string> findings(const char* name) {
  const char* source = std::getenv("FACULA_SOURCE");
  fs::path folder = fs::path(source ? source : ".") / "tests/fuzz/corpus" / name;
  std::vector<fs::path> paths;
  if (fs::exists(folder))
    for (auto& entry : fs::directory_iterator(folder)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> all;
  for (auto& path : paths) all.push_back(bytes_of(path));
  return all;
}

std::string mutated(const std::vector<std::string>& all, Random& random) {
  auto below = [&](size_t n) { return n ? size_t(random()) % n : 0; };
  std::string s = all[below(all.size())];
  for (size_t k = 1 + below(3); k--;) {
    size_t at = below(s.size() + 1), n = std::min<size_t>(s.size() - at, 1 + below(16));
    switch (below(6)) {
      case 0:
        if (at < s.size()) s[at] = char(random());
        break;
      case 1:
        if (at < s.size()) s[at] = char(s[at] ^ (1 << below(8)));
        break;
      case 2: s.erase(at, n); break;
      case 3: s.insert(at, s.substr(below(s.size() + 1), 1 + below(16))); break;
      case 4: s.resize(at); break;
      case 5: {
        const std::string& other = all[below(all.size())];
        s.replace(at, n, other.substr(below(other.size() + 1), 1 + below(32)));
      }
    }
  }
  if (s.size() > kLongest) s.resize(kLongest);
  return s;
}

class Fuzz : public testing::TestWithParam<Target> {};

TEST_P(Fuzz, KeepsItsPromiseOnSeedsFindingsAndMutations) {
  auto& target = GetParam();
  auto all = target.seeds();
  ASSERT_FALSE(all.empty());
  if (const char* folder = std::getenv("FACULA_FUZZ_SEEDS")) {
    fs::create_directories(fs::path(folder) / target.name);
    for (size_t k = 0; k < all.size(); ++k)
      std::ofstream(fs::path(folder) / target.name / ("seed" + std::to_string(k)), std::ios::binary)
          << all[k];
    return;
  }
  for (auto& found : findings(target.name)) all.push_back(std::move(found));
  for (auto& input : all) target.run(input);
  std::erase_if(all, [](const std::string& s) { return s.size() > kLongest; });
  Random random(1);
  const int n = mutations();
  for (int k = 0; k < n; ++k)
    if (target.mutate && random() % 4) target.run(target.mutate(all[random() % all.size()], random));
    else target.run(mutated(all, random));
}

INSTANTIATE_TEST_SUITE_P(Targets, Fuzz, testing::ValuesIn(targets()),
                         [](auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace facula::fuzz
