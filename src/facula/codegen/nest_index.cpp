#include "facula/codegen/nest_index.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "facula/base/fork.h"
#include "facula/base/log.h"
#include "facula/base/settings.h"
#include "facula/base/sha256.h"
#include "facula/codegen/build_id.h"
#include "facula/codegen/kernel.h"
#include "facula/codegen/named.h"
#include "facula/codegen/store.h"
#include "facula/schedule/build.h"

namespace facula::codegen {
namespace {

using schedule::IndexedNest;

// ---- the file: the numbers of kernels and of entries; the kernels' names; the entries' keys in order, each with the
// position of its bytes; the entries. An entry has the number of launches, and for each one the kernel's number (two
// bytes), buffers and params with their lengths.

using Count = uint32_t;
using Key = std::array<unsigned char, 16>;  // a prefix of a digest that tells the entries apart

std::string file_name() { return hex(sha256({"nests", build_id(), "\n", target_features()})); }
Key key_of(const std::string& group, const std::string& decisions) {
  Sha256 digest = sha256({group, "\n", decisions});
  Key key;
  std::copy_n(digest.begin(), key.size(), key.begin());
  return key;
}

class Index {
 public:
  explicit Index(std::string bytes) : bytes_(std::move(bytes)) {
    size_t kernels = count_at(0), entries = count_at(sizeof(Count)), room = bytes_.size();
    if (kernels > room || entries > room || keys(kernels) + entries * kEntry > room) return;
    kernels_ = kernels;
    entries_ = entries;
  }
  bool empty() const { return !entries_; }
  std::vector<IndexedNest> find(const Key& key) const {
    size_t low = 0, high = entries_;
    while (low < high) {
      size_t k = (low + high) / 2, entry = keys(kernels_) + k * kEntry;
      int order = std::memcmp(&bytes_[entry], key.data(), key.size());
      if (!order) return at(count_at(entry + key.size()));
      (order < 0 ? low : high) = order < 0 ? k + 1 : k;
    }
    return {};
  }

 private:
  static constexpr size_t kEntry = sizeof(Key) + sizeof(Count);
  static size_t keys(size_t kernels) { return 2 * sizeof(Count) + kernels * sizeof(Sha256); }
  Count count_at(size_t place) const {
    Count c = 0;
    if (place + sizeof c <= bytes_.size()) std::memcpy(&c, &bytes_[place], sizeof c);
    return c;
  }
  std::vector<IndexedNest> at(size_t place) const {
    bool valid = true;
    auto next = [&]() -> int {
      valid &= place < bytes_.size();
      return valid ? static_cast<unsigned char>(bytes_[place++]) : 0;
    };
    auto list = [&](std::vector<int>& to) {
      for (int n = next(); n && valid; --n) to.push_back(next());
    };
    std::vector<IndexedNest> nests;
    for (int n = next(); n && valid; --n) {
      IndexedNest& k = nests.emplace_back();
      size_t kernel = size_t(next());
      kernel += size_t(next()) << 8;
      valid &= kernel < kernels_;
      if (valid) std::memcpy(k.kernel.data(), &bytes_[keys(kernel)], sizeof(Sha256));
      list(k.buffers);
      list(k.params);
    }
    return valid ? nests : std::vector<IndexedNest>();
  }
  std::string bytes_;
  size_t kernels_ = 0, entries_ = 0;
};

// True if the numbers fit into the file's fields.
bool fits(const std::vector<IndexedNest>& nests) {
  auto small = [](const std::vector<int>& l) {
    return l.size() < 256 && std::all_of(l.begin(), l.end(), [](int i) { return i >= 0 && i < 256; });
  };
  return nests.size() < 256 && std::all_of(
                                   nests.begin(), nests.end(),
                                   [&](const IndexedNest& k) { return small(k.buffers) && small(k.params); });
}

std::string written(const std::map<Key, std::vector<IndexedNest>>& all) {
  std::map<Sha256, int> kernels;
  for (auto& [key, nests] : all)
    for (auto& k : nests) kernels.try_emplace(k.kernel, 0);
  if (kernels.size() >= 1 << 16) return "";
  std::string bytes, rest;
  auto count = [&](size_t n) {
    Count c = Count(n);
    bytes.append(reinterpret_cast<const char*>(&c), sizeof c);
  };
  auto list = [&](const std::vector<int>& l) {
    rest += char(l.size());
    for (int i : l) rest += char(i);
  };
  count(kernels.size());
  count(all.size());
  int number = 0;
  for (auto& [name, k] : kernels) {
    bytes.append(name.begin(), name.end());
    k = number++;
  }
  size_t begin = bytes.size() + all.size() * (sizeof(Key) + sizeof(Count));
  for (auto& [key, nests] : all) {
    bytes.append(key.begin(), key.end());
    count(begin + rest.size());
    rest += char(nests.size());
    for (auto& k : nests) {
      rest += char(kernels[k.kernel] & 255);
      rest += char(kernels[k.kernel] >> 8);
      list(k.buffers);
      list(k.params);
    }
  }
  return bytes + rest;
}

const Index& shipped() {
  static const auto& index = *new Index(
      build_id().empty() ? "" : read_entry(shipped_folder(), Stored::nests, file_name(), Owner::package));
  return index;
}

struct Noted {
  TableMutex mutex;
  std::map<Key, std::vector<IndexedNest>> all;
};
Noted& noted() {
  static auto* n = new Noted;
  return *n;
}

bool is_of_use() { return !settings().verify && (records_kernels() || !shipped().empty()); }

std::vector<IndexedNest> find(const std::string& group, const std::string& decisions) {
  if (records_kernels()) return {};
  Key key = key_of(group, decisions);
  auto nests = shipped().find(key);
  if (log_on(Log::cache)) log_line(Log::cache, (nests.empty() ? "miss nests of " : "hit nests of ") + group);
  return nests;
}

void keep(const std::string& group, const std::string& decisions,
          const std::vector<schedule::BuiltLaunch>& launches) {
  if (!records_kernels()) return;
  std::vector<IndexedNest> nests;
  for (auto& l : launches) nests.push_back({name_of(l.nest->nest()), l.buffers, l.numbers});
  if (!fits(nests)) return;
  std::lock_guard lock(noted().mutex);
  noted().all[key_of(group, decisions)] = std::move(nests);
}

}  // namespace

constinit const schedule::NestIndex shipped_nests{is_of_use, find, keep};

void write_nest_index(const std::string& folder) {
  std::map<Key, std::vector<IndexedNest>> all;
  {
    std::lock_guard lock(noted().mutex);
    all.swap(noted().all);
  }
  if (all.empty() || build_id().empty()) return;
  write_entry(folder, Stored::nests, file_name(), written(all), Owner::any);
}

}  // namespace facula::codegen
