#include "facula/run/arena.h"

#include <algorithm>
#include <numeric>

namespace facula::run {

namespace {

constexpr int64_t kAlign = 64;
int64_t aligned(size_t bytes) { return (int64_t(bytes) + kAlign - 1) / kAlign * kAlign; }

struct Placed {
  int64_t begin, end;
  size_t first, last;
};
bool begins_before(const Placed& a, const Placed& b) { return a.begin < b.begin; }

// The places in the arena that are assigned already, sorted by begin. For many values it also lists them by spans of steps,
// because most live ranges are short and meet few others.
class Occupied {
 public:
  Occupied(size_t steps, size_t values) : width_(std::max<size_t>(32, steps / 64 + 1)) {
    all_.reserve(values);
    if (values >= kMany) spans_.resize(steps / width_ + 1);
  }

  void add(const Placed& p) {
    insert(all_, p);
    for (size_t s = span(p.first); s <= span(p.last) && s < spans_.size(); ++s) insert(spans_[s], p);
  }
  // The offset of the smallest sufficient gap among the places whose live ranges overlap that of `v`, or their end.
  int64_t best_gap(const Lifetime& v, int64_t bytes) {
    if (spans_.empty()) return best_gap(all_, v, bytes);
    size_t first = span(v.first), last = span(v.last), candidates = 0;
    if (first == last) return best_gap(spans_[first], v, bytes);
    for (size_t s = first; s <= last; ++s) candidates += spans_[s].size();
    if (candidates > all_.size() / 4) return best_gap(all_, v, bytes);
    nearby_.clear();
    for (size_t s = first; s <= last; ++s)
      for (auto& p : spans_[s])
        if (std::max(span(p.first), first) == s) nearby_.push_back(p);
    std::sort(nearby_.begin(), nearby_.end(), begins_before);
    return best_gap(nearby_, v, bytes);
  }

 private:
  static constexpr size_t kMany = 128;
  size_t span(size_t step) const { return step / width_; }
  static void insert(std::vector<Placed>& to, const Placed& p) {
    to.insert(std::upper_bound(to.begin(), to.end(), p, begins_before), p);
  }
  static int64_t best_gap(const std::vector<Placed>& placed, const Lifetime& v, int64_t bytes) {
    int64_t best = -1, smallest = INT64_MAX, end = 0;
    for (auto& p : placed) {
      if ((p.last < v.first) | (p.first > v.last)) continue;
      int64_t gap = p.begin - end;
      if (gap >= bytes && gap < smallest) {
        best = end;
        smallest = gap;
      }
      end = std::max(end, p.end);
    }
    return best < 0 ? end : best;
  }

  size_t width_;
  std::vector<Placed> all_, nearby_;
  std::vector<std::vector<Placed>> spans_;
};

}  // namespace

Packing pack(std::span<const Lifetime> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return values[a].bytes > values[b].bytes; });
  Packing arena;
  arena.offsets.resize(values.size());
  size_t steps = 0;
  for (auto& v : values) steps = std::max(steps, v.last + 1);
  Occupied occupied(steps, values.size());
  for (size_t k : order) {
    auto& v = values[k];
    int64_t bytes = aligned(v.bytes), at = bytes ? occupied.best_gap(v, bytes) : 0;
    arena.offsets[k] = at;
    if (!bytes) continue;
    Placed p{at, at + bytes, v.first, v.last};
    occupied.add(p);
    arena.bytes = std::max(arena.bytes, size_t(p.end));
  }
  return arena;
}

size_t liveness_bound(std::span<const Lifetime> values, size_t steps) {
  std::vector<int64_t> change(steps + 1);
  for (auto& v : values) {
    change[v.first] += int64_t(v.bytes);
    change[v.last + 1] -= int64_t(v.bytes);
  }
  int64_t alive = 0, most = 0;
  for (size_t k = 0; k < steps; ++k) most = std::max(most, alive += change[k]);
  return size_t(most);
}

namespace {

class Apart {
 public:
  Apart(const Plan& plan, const Outline& outline, const NumberedGraph& g, std::span<const Tensor> out)
      : plan_(plan),
        outline_(outline),
        g_(g),
        apart_(g.graph.values().size()),
        base_(apart_.size()),
        orders_(apart_.size()) {
    for (size_t v = 0; v < base_.size(); ++v) {
      base_[v] = int(v);
      orders_[v] = may_be_packed(g.graph.values()[v]->tensor);
    }
    for (auto& n : g.graph.nodes)
      for (auto* v : n->results) orders_[size_t(v->id)] = false;
    for (auto& e : outline.execs) look_at(e);
    for (int v : g.outputs) keep(v);
    for (auto& [i, v] : g.graph.mutated) keep(v->id);
    for (size_t k = 0; k < out.size() && k < g.outputs.size(); ++k)
      keep(out[k].defined() ? g.outputs[k] : -1);
  }
  const std::vector<bool>& values() const { return apart_; }

 private:
  using Kind = schedule::Step::Kind;

  // Weights of convolutions may be packed, and so may elementwise results of them.
  static bool may_be_packed(const Tensor& t) { return t.dim() >= 3 && is_floating(t.dtype()); }

  void keep(int v) {
    if (v >= 0) apart_[size_t(base_[size_t(v)])] = true;
  }
  void look_at(const Outline::Exec& e) {
    for (int v : e.outputs)
      if (plan_.forms[size_t(outline_.form[size_t(v)])].meta.device.type != DeviceType::cpu) keep(v);
    if (e.kind == Kind::view) {
      for (int v : e.outputs) base_[size_t(v)] = base_[size_t(e.inputs[0])];
    } else if (e.kind == Kind::library) {
      call(e);
    } else if (std::ranges::any_of(e.alike, [&](int k) { return orders_[size_t(e.operand(size_t(k)))]; })) {
      for (int k : e.alike) {
        int v = e.operand(size_t(k));
        orders_[size_t(v)] = true;
        keep(v);
      }
    }
  }
  void call(const Outline::Exec& e) {
    auto* library = e.node->op->as<op::Library>();
    if (!library)  // a user's function may retain its operands
      for (int v : e.inputs) keep(v);
    if (library && library->channels_last != op::ChannelsLast::packs) return;
    for (int v : e.outputs) {
      orders_[size_t(v)] = true;
      keep(v);
    }
  }

  const Plan& plan_;
  const Outline& outline_;
  const NumberedGraph& g_;
  std::vector<bool> apart_;
  std::vector<int> base_;     // the base of a view; other values: themselves
  std::vector<bool> orders_;  // whether its storage may become packed
};

struct Item {
  Lifetime life;
  int64_t* offset;
  int value;  // -1: a temporary of a step
};

std::vector<Item> allocations(Plan& plan, const Outline& outline) {
  size_t temporaries = 0;
  for (auto& [k, kernels] : outline.launches) temporaries += plan.kernels[size_t(kernels)].temporaries.size();
  plan.offsets.assign(outline.form.size(), -1);
  plan.scratch.assign(temporaries, -1);
  std::vector<Item> items;
  items.reserve(temporaries + outline.allocations.size());
  auto* scratch = plan.scratch.data();
  auto launch = outline.launches.begin();
  auto add_temporaries = [&](size_t until) {
    for (; launch != outline.launches.end() && launch->first <= until; ++launch)
      for (size_t bytes : plan.kernels[size_t(launch->second)].temporaries)
        items.push_back({{bytes, launch->first, launch->first}, scratch++, -1});
  };
  for (auto& a : outline.allocations) {
    add_temporaries(a.step);
    items.push_back(
        {{plan.forms[size_t(a.form)].bytes, a.step, a.last}, &plan.offsets[size_t(a.value)], a.value});
  }
  add_temporaries(outline.execs.size());
  return items;
}

struct Choice {
  std::vector<const Item*> inside;
  Packing packing;
  size_t peak = 0;
};
// `is_inside`: whether an item is in the arena.
template <class F>
Choice choose(const std::vector<Item>& items, size_t steps, F&& is_inside) {
  Choice c;
  std::vector<Lifetime> inside, outside;
  for (auto& i : items) {
    bool in = is_inside(i);
    (in ? inside : outside).push_back(i.life);
    if (in) c.inside.push_back(&i);
  }
  c.packing = pack(inside);
  c.peak = c.packing.bytes + liveness_bound(outside, steps);
  return c;
}
// The largest peak that a plan may have.
size_t most_bytes(const std::vector<Item>& items, size_t steps) {
  std::vector<Lifetime> all;
  for (auto& i : items) all.push_back(i.life);
  constexpr size_t kSlack = 4096;  // for alignment
  size_t bound = liveness_bound(all, steps);
  return bound + bound / 16 + kSlack;
}
void settle(Plan& plan, const Outline& outline, const Choice& chosen) {
  for (size_t k = 0; k < chosen.inside.size(); ++k) *chosen.inside[k]->offset = chosen.packing.offsets[k];
  for (auto& [v, u] : outline.successions) plan.offsets[size_t(v)] = plan.offsets[size_t(u)];
  plan.arena = chosen.packing.bytes;
  plan.peak = chosen.peak;
}

}  // namespace

std::vector<bool> values_apart(const Plan& plan, const Outline& outline, const NumberedGraph& g,
                               std::span<const Tensor> out) {
  return Apart(plan, outline, g, out).values();
}

void place_in_arena(Plan& plan, Outline& outline, const std::vector<bool>& apart) {
  outline.inside.assign(outline.form.size(), false);
  plan.offsets.assign(outline.form.size(), -1);
  if (outline.execs.empty()) return;
  auto items = allocations(plan, outline);
  size_t steps = outline.execs.size(), largest = 0, most = most_bytes(items, steps);
  for (auto& i : items) largest = std::max(largest, i.life.bytes);
  auto choose_up_to_largest = [&] {
    return choose(items, steps, [&](const Item& i) {
      return i.life.bytes <= largest && (i.value < 0 || !apart[size_t(i.value)]);
    });
  };
  auto chosen = choose_up_to_largest();
  for (; chosen.peak > most && largest; chosen = choose_up_to_largest()) largest /= 4;
  settle(plan, outline, chosen);
  for (size_t v = 0; v < outline.inside.size(); ++v) outline.inside[v] = plan.offsets[v] >= 0;
}

bool place_in_arena(Plan& plan) {
  auto& outline = *plan.outline;
  plan.offsets.assign(outline.form.size(), -1);
  if (outline.execs.empty()) return true;
  auto items = allocations(plan, outline);
  size_t steps = outline.execs.size();
  auto chosen =
      choose(items, steps, [&](const Item& i) { return i.value < 0 || outline.inside[size_t(i.value)]; });
  settle(plan, outline, chosen);
  return chosen.peak <= most_bytes(items, steps);
}

}  // namespace facula::run
