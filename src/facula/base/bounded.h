// The one bound of the process's caches: a map that keeps what was used last. Two generations of half its size
// each; what is looked up moves to the young one, and when that is full the old one is dropped. Look-ups stay
// those of a hash map, and between half and all of the `most` entries used last are always there. Callers lock.
#pragma once
#include <functional>
#include <unordered_map>
#include <utility>

namespace facula {

template <class K, class V, class Hash = std::hash<K>>
class Bounded {
 public:
  explicit Bounded(size_t most) : half_(most < 2 ? 1 : most / 2) {}
  // Null if there is none. Valid until the next call.
  V* find(const K& key) {
    if (auto it = young_.find(key); it != young_.end()) return &it->second;
    auto it = old_.find(key);
    if (it == old_.end()) return nullptr;
    auto node = old_.extract(it);  // before its generation may be dropped
    make_room();
    return &young_.insert(std::move(node)).position->second;
  }
  V& put(K key, V value) {
    if (V* known = find(key)) return *known = std::move(value);
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
