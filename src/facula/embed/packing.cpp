#include "facula/embed/packing.h"

#include <algorithm>
#include <numeric>

namespace facula::embed {
namespace {

using run::Lifetime;

constexpr int64_t kAlign = 64;
int64_t aligned(size_t bytes) { return (int64_t(bytes) + kAlign - 1) / kAlign * kAlign; }

class Packer {
 public:
  Packer(std::span<const Lifetime> values, std::span<const Tie> ties)
      : values_(values.begin(), values.end()), ties_(ties), placed_(values.size()) {
    packing_.offsets.assign(values.size(), 0);
    replaces_.resize(values.size());
    for (auto& tie : ties)
      if (tie.replaces) replaces_[tie.inner] = true;
  }

  // The values in this order, each as low as possible; behind each one the values that are a part of it.
  run::Packing run(std::span<const size_t> order) {
    for (size_t v : order) {
      if (placed_[v] || replaces_[v]) continue;
      place(v, lowest(v));
      place_parts(v);
    }
    return std::move(packing_);
  }

 private:
  void place(size_t v, int64_t offset) {
    placed_[v] = true;
    packing_.offsets[v] = offset;
    packing_.bytes = std::max(packing_.bytes, size_t(offset + aligned(values_[v].bytes)));
  }
  void place_parts(size_t outer) {
    for (auto& tie : ties_)
      if (tie.outer == outer && tie.replaces) {
        place(tie.inner, packing_.offsets[outer]);
        place_parts(tie.inner);
      }
    for (auto& tie : ties_) {
      if (tie.outer != outer || placed_[tie.inner] || replaces_[tie.inner]) continue;
      Lifetime life = values_[tie.inner];
      int64_t offset = packing_.offsets[outer] + int64_t(values_[outer].bytes - life.bytes);
      if (offset % kAlign || tie.at == life.first) continue;
      values_[tie.inner].last = tie.at - 1;  // from then on its memory belongs to `outer`
      if (conflicts(tie.inner, offset)) {
        values_[tie.inner].last = life.last;
        continue;
      }
      place(tie.inner, offset);
      place_parts(tie.inner);
    }
  }
  // The end of a value in the way of `v` at this offset, if there is one.
  std::optional<int64_t> conflict(size_t v, int64_t offset) const {
    for (size_t u = 0; u < values_.size(); ++u) {
      if (!placed_[u] || u == v) continue;
      auto &a = values_[u], &b = values_[v];
      int64_t end = packing_.offsets[u] + aligned(a.bytes);
      bool at_once = a.first <= b.last && b.first <= a.last;
      if (at_once && packing_.offsets[u] < offset + aligned(b.bytes) && offset < end) return end;
    }
    return {};
  }
  // The same for `v` and the values that replace it.
  std::optional<int64_t> conflicts(size_t v, int64_t offset) const {
    if (auto end = conflict(v, offset)) return end;
    for (auto& tie : ties_)
      if (tie.outer == v && tie.replaces)
        if (auto end = conflicts(tie.inner, offset)) return end;
    return {};
  }
  int64_t lowest(size_t v) const {
    std::vector<int64_t> candidates{0};
    for (size_t u = 0; u < values_.size(); ++u)
      if (placed_[u]) candidates.push_back(packing_.offsets[u] + aligned(values_[u].bytes));
    std::ranges::sort(candidates);
    return *std::ranges::find_if(candidates, [&](int64_t offset) { return !conflicts(v, offset); });
  }

  std::vector<Lifetime> values_;
  std::span<const Tie> ties_;
  std::vector<bool> placed_, replaces_;
  run::Packing packing_;
};

// The value that ends highest, or the one that it is a part of; `moved` ones are not considered.
std::optional<size_t> highest(const run::Packing& packing, std::span<const Lifetime> values,
                              std::span<const Tie> ties, const std::vector<bool>& moved) {
  std::optional<size_t> top;
  auto end = [&](size_t v) { return packing.offsets[v] + aligned(values[v].bytes); };
  for (size_t v = 0; v < values.size(); ++v)
    if (!moved[v] && (!top || end(v) > end(*top))) top = v;
  for (bool is_part = top.has_value(); is_part;) {
    auto tie = std::ranges::find_if(ties, [&](auto& t) { return t.inner == *top; });
    is_part = tie != ties.end();
    if (is_part) top = tie->outer;
  }
  return top;
}

}  // namespace

// The largest values come first. Then, a number of times, the value that ends highest comes before all others, if that helps.
run::Packing pack(std::span<const Lifetime> values, std::span<const Tie> ties) {
  constexpr int kTries = 32;
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return values[a].bytes > values[b].bytes; });
  run::Packing best = Packer(values, ties).run(order), last = best;
  std::vector<bool> moved(values.size());
  for (int k = 0; k < kTries; ++k) {
    auto top = highest(last, values, ties, moved);
    if (!top || moved[*top]) break;
    moved[*top] = true;
    std::ranges::rotate(order.begin(), std::ranges::find(order, *top), std::ranges::find(order, *top) + 1);
    last = Packer(values, ties).run(order);
    if (last.bytes < best.bytes) best = last;
  }
  return best;
}

}  // namespace facula::embed
