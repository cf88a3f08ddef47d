// A map that keeps the most recently used entries; all caches of the process are bounded by it. It consists of two
// generations, each of half its size. A look-up moves the entry to the young generation, and when that is full the
// old generation is dropped. Look-ups cost as much as in a hash map, and at least the last `most` / 2 entries used
// are always present. Callers must hold a lock.
#pragma once
#include <functional>
#include <unordered_map>
#include <utility>

namespace facula {

template <class K, class V, class Hash = std::hash<K>>
class Bounded {
 public:
  explicit Bounded(size_t most) : half_(most < 2 ? 1 : most / 2) {}
  // Null if there is no entry. The pointer is valid until the next call.
  V* find(const K& key) {
    if (auto it = young_.find(key); it != young_.end()) return &it->second;
    auto it = old_.find(key);
    if (it == old_.end()) return nullptr;
    auto node = old_.extract(it);  // before its generation may be dropped
    make_room();
    return &young_.insert(std::move(node)).position->second;
  }
  V& put(K key, V value) {
    if (V* entry = find(key)) return *entry = std::move(value);
    make_room();
    return young_.emplace(std::move(key), std::move(value)).first->second;
  }
  size_t size() const { return young_.size() + old_.size(); }
  void clear() {
    young_.clear();
    old_.clear();
  }

 private:
  void make_room() {
    if (young_.size() < half_) return;
    old_ = std::move(young_);
    young_.clear();
  }
  std::unordered_map<K, V, Hash> young_, old_;
  size_t half_;
};

}  // namespace facula
