// Walks over expressions, which take most of the time of planning a first call. The tables of visited nodes have some
// slots on the stack, and more on the heap if those are full; std::unordered_set would allocate for each node.
#pragma once
#include <memory>

#include "facula/base/small_vector.h"
#include "facula/loop/expr.h"

namespace facula::loop {

template <class T>
class NodeMap {
 public:
  // The value of a node, default-constructed if it has none. The reference is valid until the next call.
  T& operator[](const Node* n) { return *try_emplace(n).first; }
  std::pair<T*, bool> try_emplace(const Node* n) {
    if (count_ * 2 >= room_) grow();
    Slot* s = place(slots_, room_, n);
    bool fresh = !s->key;
    if (fresh) {
      s->key = n;
      ++count_;
    }
    return {&s->value, fresh};
  }
  const T* find(const Node* n) const {
    const Slot* s = place(slots_, room_, n);
    return s->key ? &s->value : nullptr;
  }

  bool contains(const Node* n) const { return find(n); }
  size_t size() const { return count_; }

  NodeMap() = default;
  NodeMap(const NodeMap&) = delete;

 private:
  struct Slot {
    const Node* key = nullptr;
    [[no_unique_address]] T value{};
  };
  static constexpr size_t kInline = 32;
  template <class S>
  static S* place(S* slots, size_t room, const Node* n) {
    size_t at = (reinterpret_cast<uintptr_t>(n) >> 4) * 0x9e3779b97f4a7c15ull >> 32;
    while (slots[at &= room - 1].key && slots[at].key != n) ++at;
    return &slots[at];
  }
  void grow() {
    size_t room = room_ * 4;
    auto larger = std::make_unique<Slot[]>(room);
    for (size_t k = 0; k < room_; ++k)
      if (slots_[k].key) *place(larger.get(), room, slots_[k].key) = std::move(slots_[k]);
    heap_ = std::move(larger);
    slots_ = heap_.get();
    room_ = room;
  }
  Slot inline_[kInline];
  std::unique_ptr<Slot[]> heap_;
  Slot* slots_ = inline_;
  size_t room_ = kInline, count_ = 0;
};

class Seen {
 public:
  // False if the node was inserted before.
  bool insert(const Node* n) { return nodes_.try_emplace(n).second; }

 private:
  struct Nothing {};
  NodeMap<Nothing> nodes_;
};

// A node of the same kind with other operands.
Expr rebuilt(Expr x, std::vector<BoundVar> bound, std::vector<Expr> args);

// x with each operand replaced by f(operand).
template <class F>
Expr map_operands(Expr x, F&& f) {
  size_t bound = x->bound.size(), args = x->args.size();
  SmallVector<Expr, 8> now;
  bool changed = false;
  for (size_t k = 0; k < bound + args; ++k) {
    Expr before = k < bound ? x->bound[k].extent : x->args[k - bound];
    now.push_back(f(before));
    changed |= !same(now.back(), before);
  }
  if (!changed) return x;
  auto vars = x->bound;
  for (size_t k = 0; k < bound; ++k) vars[k].extent = now[k];
  return rebuilt(x, std::move(vars), {now.begin() + bound, now.end()});
}

// Calls f for every node of e that is not in `seen`, operands first, including extents and bodies of reductions.
template <class F>
void each_node(Expr e, Seen& seen, F&& f) {
  if (!seen.insert(e.get())) return;
  for (auto& a : e->args) each_node(a, seen, f);
  for (auto& b : e->bound) each_node(b.extent, seen, f);
  f(e);
}

}  // namespace facula::loop
