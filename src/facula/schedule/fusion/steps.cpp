#include "facula/schedule/fusion/steps.h"

#include <map>
#include <unordered_set>

namespace facula::schedule::fusion {

using loop::Expr;
using loop::Kind;

namespace {

bool only_loaded(State& f, int id) {
  for (auto& u : f.units) {
    if (u.merged) continue;
    if (u.cluster && u.cluster->scatter && u.cluster->scatter->base == id) return false;
    if (u.cluster) continue;
    for (auto* v : graph::operands(*u.node))
      if (v && v->id == id) return false;
  }
  return true;
}

// 16-bit values that only kernels of this program read, and that eager mode does not store, are stored in float32:
// rounding them between two kernels would lose digits that a single kernel preserves. With Between::rounded only
// sums and scans qualify.
std::unordered_set<int> wide_values(State& f) {
  std::unordered_set<int> wide;
  for (auto& unit : f.units) {
    if (unit.merged || !unit.cluster || unit.cluster->scatter) continue;
    for (int id : unit.cluster->outputs) {
      DType d = f.values.at(id)->tensor.dtype();
      if (graph::is_16_bit_float(d) && !f.values.at(id)->held && !f.values.is_required(id) &&
          (f.between == Between::exact || is_of_folds(unit.cluster->members.at(id).value)) &&
          only_loaded(f, id))
        wide.insert(id);
    }
  }
  return wide;
}

// Turns clusters into steps.
struct Emission {
  State& f;
  std::unordered_set<int> wide;  // 16-bit values that are stored in float32

  DType dtype_in_memory(int id) const {
    return wide.count(id) ? DType::Float32 : f.values.at(id)->tensor.dtype();
  }

  Step kernel_step(const Cluster& k) {
    Step s{Step::Kind::kernel, {}, nullptr, {}, {}};
    auto& g = s.group;
    for (auto* n : k.nodes)
      if (g.name.size() < 60) g.name += (g.name.empty() ? "" : "_") + n->op->schema.name;
    g.extents = k.extents;
    std::map<int, int> number;
    auto input = [&](int id) {
      auto [it, fresh] = number.try_emplace(id, int(g.inputs.size()));
      if (fresh) {
        g.inputs.push_back({dtype_in_memory(id), f.values.at(id)->tensor.dim()});
        s.inputs.push_back(f.values.at(id));
      }
      return it->second;
    };
    auto numbered = [&](Expr e) {
      auto go = [&](auto&& self, Expr x) -> Expr {
        return loop::rewrite(x, [&](Expr y) -> Expr {
          if (y->kind != Kind::load) return {};
          std::vector<Expr> at;
          for (auto& i : y->args) at.push_back(self(self, i));
          DType memory = wide.count(y->slot) ? DType::Float32 : y->memory;
          return loop::load(input(y->slot), memory, at, y->part);
        });
      };
      return go(go, e);
    };
    for (int id : k.outputs) {
      auto* v = f.values.at(id);
      GroupOutput o;
      o.dtype = dtype_in_memory(id);
      if (!k.scatter) {
        auto& m = k.members.at(id);
        o.value = numbered(m.value);
        for (int a : m.axes) o.axes.push_back(a);
      }
      g.outputs.push_back(o);
      s.outputs.push_back(v);
    }
    if (k.scatter) {
      loop::Scatter x = *k.scatter;
      x.value = numbered(x.value);
      for (auto& t : x.target) t = numbered(t);
      if (x.base >= 0) x.base = input(x.base);
      g.scatter = x;
    }
    return s;
  }
};

}  // namespace

std::vector<Step> steps_of(State& f) {
  Emission emission{f, wide_values(f)};
  std::vector<Step> result;
  std::vector<int> state(f.units.size(), 0);
  auto visit = [&](auto&& self, int u) -> void {
    if (state[size_t(u)]) return;
    state[size_t(u)] = 1;
    auto& unit = f.units[size_t(u)];
    for (int x : f.order.needs(u)) self(self, x);
    if (unit.merged) return;
    if (unit.cluster) {
      if (!unit.cluster->outputs.empty()) result.push_back(emission.kernel_step(*unit.cluster));
    } else {
      result.push_back(
          {unit.node->op->is<op::View>() ? Step::Kind::view : Step::Kind::library, {}, unit.node, {}, {}});
    }
  };
  for (size_t u = 0; u < f.units.size(); ++u) visit(visit, int(u));
  return result;
}

}  // namespace facula::schedule::fusion
