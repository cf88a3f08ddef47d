#include "facula/graph/cells.h"

namespace facula::graph {

Cell& Cells::of(Value* first) {
  auto& cell = by_version_[first];
  if (!cell) cell = &cells_.emplace_back(Cell{first, first});
  return *cell;
}

void Cells::write(Cell& c, Value* next) {
  c.now = next;
  ++c.version;
  by_version_[next] = &c;
  if (!c.copies) return;
  for (auto& g : c.copies->apart) sym::Shapes::current()->guard(g);
  if (!c.copies->apart.empty()) return;
  for (auto* other : c.copies->cells)
    if (other != &c) other->stale = any_stale_ = true;
}

void Cells::join(Cell& a, Cell& b, const std::vector<sym::Guard>& apart) {
  bool separable = !apart.empty();
  for (auto* c : {&a, &b}) {
    if (!c->copies) c->copies = std::make_shared<Copies>(Copies{{c}, {}});
    else separable &= !c->copies->apart.empty();
  }
  auto into = a.copies, from = b.copies;
  if (into != from)
    for (auto* c : from->cells) {
      into->cells.push_back(c);
      c->copies = into;
    }
  if (!separable) {
    into->apart.clear();
    return;
  }
  if (into != from) into->apart.insert(into->apart.end(), from->apart.begin(), from->apart.end());
  into->apart.insert(into->apart.end(), apart.begin(), apart.end());
}

Value* Cells::version_of(Value* v) const {
  while (!find(v) && v->producer && v->producer->op->is<op::View>()) {
    auto of = operands(*v->producer);
    runtime_check(!of.empty() && of[0], v->producer->op->name()) << "is a view of no tensor";
    v = of[0];
  }
  return v;
}

Value* Cells::first_of(Value* v) const {
  v = version_of(v);
  auto* cell = find(v);
  return cell ? cell->first : v;
}

Location Cells::locate(Value* v) const {
  Location at{v, nullptr, {}};
  for (;; v = operands(*v->producer)[0]) {
    at.version = v;
    at.cell = find(v);
    bool is_outside = at.cell && at.cell->version && !at.cell->first->producer;
    if (is_outside || !v->producer || !v->producer->op->is<op::View>()) return at;
    at.views.push_back({v->producer, v->result});
  }
}

void Cells::add_outside(const Tensor& t, Value* v) {
  outside_[t.impl()] = v;
  if (auto* storage = t.impl()->storage.get()) by_storage_[storage].emplace_back(t, v);
}

const Tensor* Cells::other_name(const Tensor& t, bool written) const {
  auto it = by_storage_.find(t.impl()->storage.get());
  if (it == by_storage_.end()) return nullptr;
  for (auto& [other, v] : it->second) {
    auto* cell = find(v);
    if (!other.is_same(t) && (!written || (cell && cell->version))) return &other;
  }
  return nullptr;
}

bool Cells::is_written(const Tensor& t) const {
  auto it = by_storage_.find(t.impl()->storage.get());
  if (it == by_storage_.end()) return false;
  for (auto& [other, v] : it->second)
    if (auto* cell = find(v); cell && cell->version) return true;
  return false;
}

}  // namespace facula::graph
