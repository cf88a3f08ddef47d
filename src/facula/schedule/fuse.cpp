#include "facula/schedule/fuse.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "facula/base/settings.h"
#include "facula/loop/seen.h"
#include "facula/op/helpers.h"
#include "facula/op/operands.h"
#include "facula/schedule/analysis.h"
#include "facula/schedule/order.h"

namespace facula::schedule {

using graph::Graph;
using graph::Node;
using graph::Value;
using loop::Expr;
using loop::Kind;
using op::OpKind;
using op::Tag;
using op::Type;

namespace {

constexpr int kFirstBound = 64, kFresh = 1 << 20, kAside = 1 << 28;
// Operations that may be done more than once rather than stored: no transcendental.
constexpr double kCheap = 9;
// Operations that a reduction does again rather than bind a cluster of maps to its rows.
constexpr double kCopied = 32;
constexpr size_t kMaxBuffers = 32;  // of a kernel
constexpr double kMaxOperations = 2000;

Expr integer(int64_t i) { return loop::constant(Scalar(i), DType::Int64); }
bool is_one(SymInt s) { return SymInt::surely_equal(s, 1); }
bool is_fold(Expr e) { return e->kind == Kind::reduce || e->kind == Kind::scan; }
bool contains(Expr e, Kind k) {
  if ((k == Kind::reduce || k == Kind::scan) && !e->has_reduce) return false;
  bool found = false;
  loop::Seen seen;
  each_node(e, seen, [&](Expr x) { found |= x->kind == k; });
  return found;
}
// Is e made of reductions and scans alone, beside numbers?
bool is_of_folds(Expr e) {
  if (!e->has_reduce) return false;
  Expr rest = loop::rewrite(e, [](Expr x) {
    return is_fold(x) || x->kind == Kind::part ? loop::constant(Scalar(int64_t(0)), x.dtype()) : Expr();
  });
  bool loads = false;
  loop::Seen seen;
  each_node(rest, seen, [&](Expr x) { loads |= x->kind == Kind::load && !x->args.empty(); });
  return !loads;
}
// Operations to compute e, its reductions not counted: they are computed once a row.
double pointwise_cost(Expr e) {
  std::vector<Expr> top{loop::rewrite(e, [](Expr x) {
    return is_fold(x) || x->kind == Kind::part ? loop::constant(Scalar(int64_t(0)), x.dtype()) : Expr();
  })};
  return operation_count(top);
}

// Equal reductions become equal expressions: bound variables are numbered from the innermost outwards.
class Canonical {
 public:
  Expr operator()(Expr e) {
    if (!e->has_reduce) return e;
    if (auto it = done_.find(e.get()); it != done_.end()) return it->second;
    Expr r = loop::rewrite(e, [&](Expr x) -> Expr {
      if (!x->has_reduce) return x;
      return is_fold(x) ? fold(x) : Expr();
    });
    done_[e.get()] = r;
    return r;
  }

 private:
  int height(Expr e) {
    if (!e->has_reduce) return 0;
    if (auto it = heights_.find(e.get()); it != heights_.end()) return it->second;
    int h = 0;
    for (auto& a : e->args) h = std::max(h, height(a));
    if (is_fold(e)) h += int(e->bound.size());
    return heights_[e.get()] = h;
  }
  Expr fold(Expr e) {
    if (auto it = done_.find(e.get()); it != done_.end()) return it->second;
    int inner = 0;
    for (auto& a : e->args) inner = std::max(inner, height(a));
    // By way of names that nothing inside has, so that the reductions inside cannot take hold of these
    // variables.
    std::vector<std::pair<int, Expr>> aside, map;
    auto bound = e->bound;
    for (size_t k = 0; k < bound.size(); ++k) {
      int to = kFirstBound + inner + int(k), between = kAside + to;
      aside.push_back({bound[k].var, loop::index(between)});
      map.push_back({between, loop::index(to)});
      bound[k].var = to;
    }
    std::vector<Expr> args;
    for (auto& a : e->args) args.push_back(loop::substitute((*this)(loop::substitute(a, aside)), map));
    Expr r = e->kind == Kind::scan ? loop::scan(e->monoid, e->slot, bound[0], args)
                                   : loop::reduce(e->monoid, bound, args);
    return done_[e.get()] = r;
  }
  std::unordered_map<const loop::Node*, Expr> done_;
  std::unordered_map<const loop::Node*, int> heights_;
};

// An operand of a node by slot: a value, a number (a size that the call has is one, by its name), or None.
struct Operand {
  Value* value = nullptr;
  std::optional<Scalar> number;
  std::optional<SymInt> size;
};
std::vector<Operand> operands_by_slot(const Node& n) {
  std::vector<Operand> slots;
  op::each_operand(op::Call(*n.op, n.args.values()), [&](const op::Operand& x) {
    Operand& o = slots.emplace_back();
    if (x.value.tag == Tag::tensor) o.value = x.value.tensor->traced;
    else if (x.value.tag == Tag::integer && x.value.integer().is_symbolic()) o.size = x.value.integer();
    else if (!x.value.is_none()) o.number = x.value.number();
  });
  return slots;
}

// The definition of a node, over values: slots are value numbers, numbers are constants, bound variables are
// unique.
struct Body {
  std::vector<Expr> values;
  std::optional<loop::Scatter> scatter;
};

struct Member {
  Expr value;             // over the cluster's axes
  std::vector<int> axes;  // by dimension; -1: size 1
};
struct Cluster {
  Dims extents;
  std::map<int, Member> members;  // by value number
  std::vector<const Node*> nodes;
  std::optional<loop::Scatter> scatter;
  bool positioned = false;  // some value depends on the position in exactly this space
  bool scans = false;
  std::set<int> outputs;
  std::set<int> loads;  // values read from memory
};
// Something that runs: a cluster, a library call, or the making of views.
struct Unit {
  std::optional<Cluster> cluster;
  const Node* node = nullptr;
  bool gone = false;  // merged into another
};

class Fuser {
 public:
  Fuser(const Graph& g, Between between) : g_(g), between_(between), unit_(g.values().size(), -1) {}

  std::vector<Step> run() {
    std::optional<sym::Shapes::With> with;
    if (g_.shapes) with.emplace(*g_.shapes);
    find_required();
    for (auto& n : g_.nodes) {
      switch (n->op->kind()) {
        case OpKind::view: break;  // made where somebody needs the alias itself
        case OpKind::pointwise:
        case OpKind::loop: kernel(*n); break;
        default: library(*n); break;
      }
    }
    for (auto& v : g_.values())
      if (required_.count(v->id) && is_view(v.get())) need(v.get());
    for (auto& v : g_.values())
      if (required_.count(v->id) && in_cluster(v->id)) cluster_of(v->id).outputs.insert(v->id);
    return steps();
  }

 private:
  // ---- values
  static bool is_view(const Value* v) { return v->producer && v->producer->op->is<op::View>(); }
  Value* base_of(const Value* v) { return graph::value_of(v->producer->args.tensors().at(0)); }
  // What an access to v reads: the value that v is a view of, or a view on the way that has no index map.
  Value* root(Value* v) {
    while (is_view(v) && composes(v)) v = base_of(v);
    return v;
  }
  Value* value(int id) { return g_.values()[size_t(id)].get(); }
  bool in_cluster(int id) { return unit_[size_t(id)] >= 0 && units_[size_t(unit_[size_t(id)])].cluster; }
  Cluster& cluster_of(int id) { return *units_[size_t(unit_[size_t(id)])].cluster; }

  op::Geometry geometry(const Value* v) {
    auto& n = *v->producer;
    op::Call c(*n.op, n.args.values());
    auto views = n.op->as<op::View>()->rule(c, op::Geometry(n.op->name(), n.args.tensors().at(0)));
    return views[size_t(v->result)];
  }
  bool composes(const Value* v) {
    auto [it, fresh] = composes_.try_emplace(v->id, true);
    if (fresh) {
      op::Geometry view = geometry(v);
      it->second = view.has_base_index();
    }
    return it->second;
  }

  // Values that must exist in memory whatever is fused.
  void find_required() {
    auto require = [&](Value* v) {
      while (v && required_.insert(v->id).second && is_view(v)) v = base_of(v);
    };
    for (auto* o : g_.outputs)
      if (o) require(o);
    for (auto& [i, v] : g_.mutated) require(v);
    for (auto& n : g_.nodes) {
      auto values = graph::operands(*n);
      for (auto* v : values)
        if (v) ++uses_[v->id];
      if (n->op->backed() || n->op->calls())
        for (auto* v : values)
          if (v) require(v);
      if (n->op->is<op::View>() && !n->results.empty() && !composes(n->results[0])) require(values.at(0));
    }
  }

  // Makes v available in memory to unit `by`: marks outputs, adds the steps that make views.
  int need(Value* v) {
    if (is_view(v)) {
      int at = unit_[size_t(v->id)];
      if (at >= 0) return at;
      int from = need(base_of(v));
      at = add_unit(v->producer);
      if (from >= 0) order_.need(at, from);
      return at;
    }
    if (virtual_.count(v->id)) make_real(v);
    if (in_cluster(v->id)) cluster_of(v->id).outputs.insert(v->id);
    return unit_[size_t(v->id)];
  }

  int add_unit(const Node* n) {
    units_.emplace_back().node = n;
    int at = order_.add();
    if (n)
      for (auto* r : n->results) unit_[size_t(r->id)] = at;
    return at;
  }
  void library(const Node& n) {
    std::vector<int> needs;
    for (auto* v : graph::operands(n))
      if (v)
        if (int at = need(v); at >= 0) needs.push_back(at);
    int at = add_unit(&n);
    for (int u : needs) order_.need(at, u);
    auto& effects = n.op->effects;
    if (!effects.draws && !effects.ordered) return;
    if (last_ordered_ >= 0) order_.need(at, last_ordered_);
    last_ordered_ = at;
  }

  // ---- kernels
  Body body_of(const Node& n) {
    auto def = lower(*n.op, n.args.values());
    auto slots = operands_by_slot(n);
    auto over_values = [&](Expr e) -> Expr {
      auto go = [&](auto&& self, Expr x) -> Expr {
        return loop::rewrite(x, [&](Expr y) -> Expr {
          if (y->kind != Kind::load) return {};
          auto& o = slots.at(size_t(y->slot));
          if (o.number && y->part == 2) return loop::imag(loop::constant(*o.number, compute_type(y->memory)));
          if (o.number) return loop::constant(*o.number, y.dtype());
          if (o.size && y->part == 2) return loop::constant(0.0, y.dtype());
          if (o.size) return loop::cast(loop::size(*o.size), y.dtype());
          internal_check(o.value) << n.op->name() << ": slot " << y->slot << " is None but loaded";
          std::vector<Expr> at;
          for (auto& i : y->args) at.push_back(self(self, i));
          return loop::load(o.value->id, y->memory, at, y->part);
        });
      };
      return unique_bound(go(go, e));
    };
    Body b;
    std::vector<std::pair<int, Expr>> ones;  // dimensions of size 1 have one index
    if (!def.scatter) {
      SymSpan sizes = n.results[0]->tensor.sizes();
      for (size_t d = 0; d < sizes.size(); ++d)
        if (is_one(sizes[d])) ones.push_back({int(d), integer(0)});
    }
    for (auto& v : def.values) b.values.push_back(loop::substitute(over_values(v), ones));
    if (def.scatter) {
      b.scatter = *def.scatter;
      b.scatter->value = over_values(b.scatter->value);
      for (auto& t : b.scatter->target) t = over_values(t);
    }
    if (b.scatter && b.scatter->base >= 0) {
      auto* base = slots.at(size_t(b.scatter->base)).value;
      internal_check(base) << n.op->name() << ": the base of a scatter is no tensor";
      b.scatter->base = base->id;
    }
    return b;
  }
  Expr unique_bound(Expr e) {
    if (!e->has_reduce) return e;
    return loop::rewrite(e, [&](Expr x) -> Expr {
      if (!x->has_reduce) return x;
      if (!is_fold(x)) return {};
      std::vector<loop::BoundVar>
          bound;  // extents of one go, but one stays where there are components to read
      std::vector<std::pair<int, Expr>> map;
      for (auto& b : x->bound) {
        bool one =
            x->kind == Kind::reduce && b.extent->kind == Kind::constant && b.extent->value.to_int() == 1;
        if (one && (loop::components(x->monoid) == 1 ||
                    (x->bound.size() > 1 && (!bound.empty() || &b != &x->bound.back())))) {
          map.push_back({b.var, integer(0)});
          continue;
        }
        map.push_back({b.var, loop::index(next_var_)});
        bound.push_back({next_var_++, b.extent});
      }
      std::vector<Expr> args;
      for (auto& a : x->args) args.push_back(loop::substitute(unique_bound(a), map));
      if (bound.empty()) return args[0];
      return x->kind == Kind::scan ? loop::scan(x->monoid, x->slot, bound[0], args)
                                   : loop::reduce(x->monoid, bound, args);
    });
  }

  // Where the elements of u (maybe through views) that an access reads lie in its root.
  std::vector<Expr> root_index(Value* u, std::vector<Expr> at) {
    while (is_view(u) && composes(u)) {
      at = geometry(u).base_index(std::move(at));
      u = base_of(u);
    }
    return at;
  }

  static bool is_identity(const Member& m, const std::vector<Expr>& at) {
    for (size_t d = 0; d < at.size(); ++d)
      if (m.axes[d] >= 0 && !(at[d]->kind == Kind::index && at[d]->slot == m.axes[d])) return false;
    return true;
  }
  // e, which was read at the index i: an index that is to be in range is checked also where one element is
  // read for all of them.
  static Expr checking(Expr e, Expr i) {
    if (!contains(i, Kind::check)) return e;
    bool used = false;
    loop::visit(e, [&](Expr x) { used |= loop::same(x, i); });
    return used ? e : loop::select(i < 0, loop::constant(int64_t(0), e.dtype()), e);
  }
  // A member read at an index of its own; `space` are the extents of its axes.
  Expr member_at(const Member& m, const std::vector<Expr>& at, const Dims& space, DType d) {
    Expr e = m.value;
    if (!is_identity(m, at)) {
      if (contains(e, Kind::position)) {
        std::vector<Expr> own;
        for (size_t k = 0; k < space.size(); ++k)
          own.push_back(is_one(space[k]) ? integer(0) : loop::index(int(k)));
        Expr linear = op::linear_index(own, space);
        e = loop::rewrite(e, [&](Expr x) { return x->kind == Kind::position ? linear : Expr(); });
      }
      std::vector<std::pair<int, Expr>> map;
      for (size_t k = 0; k < at.size(); ++k)
        if (m.axes[k] >= 0) map.push_back({m.axes[k], at[k]});
      e = loop::substitute(e, map);
    }
    for (auto& i : at) e = checking(e, i);
    return between_ == Between::rounded ? loop::round_to(e, d) : e;
  }

  // Loads of virtual values and of members of `k` replaced by what they are.
  Expr expanded(Expr e, const Cluster* k) {
    auto go = [&](auto&& self, Expr x) -> Expr {
      return loop::rewrite(x, [&](Expr y) -> Expr {
        if (y->kind != Kind::load) return {};
        Value* v = value(y->slot);
        Value* r = root(v);
        std::vector<Expr> at;
        for (auto& i : y->args) at.push_back(self(self, i));
        auto vt = virtual_.find(r->id);
        auto mt = k ? k->members.find(r->id) : std::map<int, Member>::const_iterator();
        bool member = k && mt != k->members.end();
        if (vt == virtual_.end() && !member) return loop::load(y->slot, y->memory, at, y->part);
        at = root_index(v, std::move(at));
        Expr whole = member_at(member ? mt->second : vt->second, at,
                               member ? k->extents : Dims(r->tensor.sizes()), r->tensor.dtype());
        if (!member) whole = self(self, whole);  // which may be made of members
        return y->part == 1 ? loop::real(whole) : y->part == 2 ? loop::imag(whole) : whole;
      });
    };
    return go(go, e);
  }

  // Is a member that is in memory anyway read sooner than computed again?
  bool is_read_sooner(const Value* v) {
    if (!required_.count(v->id)) return false;
    Expr e = cluster_of(v->id).members.at(v->id).value;
    std::set<int> loads;
    add_loads(e, loads);
    auto large =
        std::count_if(loads.begin(), loads.end(), [&](int id) { return value(id)->tensor.dim() > 0; });
    return large > 1 || pointwise_cost(e) > kCheap;
  }

  // What a reduction does with the clusters of maps that it reads, of which others read as well: it is not bound to
  // them, but reads members from memory (`from`, of units that it must not join) or computes them again.
  struct Unbound {
    std::vector<Expr> values;
    std::set<int> from;
  };
  std::optional<Unbound> unbound(const std::vector<Expr>& values, const Node& n) {
    std::set<int> clusters, from;
    for (auto& r : reads_of(values)) {
      Cluster& k = cluster_of(r.root->id);
      if (k.scatter || k.scans || k.positioned || rows_of(k).any) return {};
      int u = unit_[size_t(r.root->id)];
      if (is_read_sooner(r.root)) {
        from.insert(u);
      } else {
        if (pointwise_cost(k.members.at(r.root->id).value) > kCopied) return {};
        clusters.insert(u);
      }
    }
    for (int u : clusters)
      if (from.count(u)) return {};
    bool shared = false;  // somebody else reads what this node would bind to its rows
    for (int u : clusters)
      for (auto& [id, m] : units_[size_t(u)].cluster->members) {
        int inside = 0;
        for (auto* node : units_[size_t(u)].cluster->nodes)
          for (auto* v : graph::operands(*node)) inside += v && root(v)->id == id;
        for (auto* v : graph::operands(n)) inside += v && root(v)->id == id;
        shared |= uses_[id] > inside || required_.count(id);
      }
    if (!shared) clusters.clear();
    if (clusters.empty() && from.empty()) return {};
    Unbound out{{}, from};
    for (auto& v : values) {
      Expr e = v;
      for (int u : clusters) e = expanded(e, &*units_[size_t(u)].cluster);
      out.values.push_back(e);
    }
    return out;
  }

  struct Read {
    Value* root;
    std::vector<Expr> at;
  };
  std::vector<Read> reads_of(const std::vector<Expr>& values) {
    std::vector<Read> found;
    loop::Seen seen;
    for (auto& e : values)
      each_node(e, seen, [&](Expr x) {
        if (x->kind != Kind::load) return;
        Value* v = value(x->slot);
        if (in_cluster(root(v)->id)) found.push_back({root(v), root_index(v, x->args)});
      });
    return found;
  }
  // Those of members of one unit.
  std::vector<Read> reads_of(const std::vector<Expr>& values, int unit) {
    auto found = reads_of(values);
    std::erase_if(found, [&](auto& r) { return unit_[size_t(r.root->id)] != unit; });
    return found;
  }

  // ---- legality
  struct Rows {
    std::set<int> vars;
    std::vector<const loop::Node*> domain;
    bool any = false, legal = true;
  };
  void add_rows(Rows& r, Expr e) {
    if (!e->has_reduce) return;
    loop::Seen seen;
    each_node(e, seen, [&](Expr x) {
      if (x->kind != Kind::reduce) return;
      std::set<int> free;
      for (int v : free_vars(x)) free.insert(v);
      if (!free.empty() && *free.rbegin() >= kFirstBound) {
        r.legal = false;
        return;
      }
      std::vector<const loop::Node*> domain;
      for (auto& b : x->bound) {
        bool one = b.extent->kind == Kind::constant && b.extent->value.to_int() == 1;
        if (!one) domain.push_back(b.extent.get());
        if (!free_vars(b.extent).empty()) r.legal = false;
      }
      if (domain.empty()) return;
      if (!r.any) {
        r.any = true;
        r.vars = free;
        r.domain = domain;
      } else if (r.vars != free || r.domain != domain) r.legal = false;
    });
  }
  Rows rows_of(const Cluster& k) {
    Rows r;
    for (auto& [id, m] : k.members) add_rows(r, m.value);
    return r;
  }

  // How values are read: which axis, or that it is some inner one, in each dimension.
  std::set<std::string> patterns(const std::vector<Expr>& values, const Rows& rows) {
    std::set<std::string> found;
    loop::Seen seen;
    for (auto& e : values)
      each_node(e, seen, [&](Expr x) {
        if (x->kind != Kind::load || x->args.empty()) return;
        std::string p = std::to_string(x->slot) + ":";
        for (auto& i : x->args) {
          if (i->kind != Kind::index) p += i->kind == Kind::constant ? "0," : "c,";
          else if (!rows.any || rows.vars.count(i->slot)) p += std::to_string(i->slot) + ",";
          else p += "i,";
        }
        found.insert(p);
      });
    return found;
  }

  // Units whose results the loads of these expressions need, apart from `self`.
  std::set<int> units_read(const std::vector<Expr>& values, int self) {
    std::set<int> found;
    loop::Seen seen;
    for (auto& e : values)
      each_node(e, seen, [&](Expr x) {
        if (x->kind != Kind::load) return;
        int u = unit_[size_t(root(value(x->slot))->id)];
        if (u >= 0 && u != self) found.insert(u);
      });
    return found;
  }

  struct Join {
    std::vector<int> axes;
    Dims extents;
    std::vector<Expr> values;
  };

  // Dimensions to the indices of the axes that they run along; -1: of size 1.
  static std::vector<std::pair<int, Expr>> indices(const std::vector<int>& axes) {
    std::vector<std::pair<int, Expr>> map;
    for (size_t d = 0; d < axes.size(); ++d)
      map.push_back({int(d), axes[d] >= 0 ? loop::index(axes[d]) : integer(0)});
    return map;
  }
  static std::vector<Expr> along(const std::vector<int>& axes, const std::vector<Expr>& values) {
    auto map = indices(axes);
    std::vector<Expr> moved;
    for (auto& v : values) moved.push_back(loop::substitute(v, map));
    return moved;
  }

  // Puts dimensions on the axes along which they read members of k: the axes taken, or none where reads disagree.
  static std::optional<std::set<int>> take_axes(Join& j, const std::vector<Read>& reads, const Cluster& k) {
    for (auto& r : reads) {
      auto& m = k.members.at(r.root->id);
      for (size_t d = 0; d < r.at.size(); ++d) {
        if (m.axes[d] < 0 || r.at[d]->kind != Kind::index || r.at[d]->slot >= kFirstBound) continue;
        auto dim = size_t(r.at[d]->slot);
        if (j.axes[dim] >= 0 && j.axes[dim] != m.axes[d]) return {};
        j.axes[dim] = m.axes[d];
      }
    }
    std::set<int> taken(j.axes.begin(), j.axes.end());
    taken.erase(-1);
    if (taken.size() != size_t(std::count_if(j.axes.begin(), j.axes.end(), [](int a) { return a >= 0; })))
      return {};
    return taken;
  }

  // Puts the other dimensions on axes that fit, or on new ones. False: one has another size than the axis that it
  // runs along, or there are too many axes.
  static bool place(Join& j, SymSpan sizes, std::set<int> taken, const std::vector<Read>& reads,
                    const Cluster& k, const Rows& rows) {
    std::set<int> swept;  // axes that this node runs along with variables of its own
    for (auto& r : reads)
      for (size_t d = 0; d < r.at.size(); ++d)
        if (int a = k.members.at(r.root->id).axes[d]; a >= 0 && !taken.count(a)) swept.insert(a);
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (is_one(sizes[d])) {
        j.axes[d] = -1;
        continue;
      }
      if (j.axes[d] >= 0) {
        if (!SymInt::surely_equal(sizes[d], j.extents[size_t(j.axes[d])])) return false;
        continue;
      }
      for (size_t i = 0; i <= j.extents.size() && j.axes[d] < 0; ++i) {
        size_t a = i ? i - 1 : d;  // the axis of the same number, if it fits
        if (a >= j.extents.size() || taken.count(int(a)) || swept.count(int(a)) ||
            !SymInt::surely_equal(sizes[d], j.extents[a]))
          continue;
        if (reads.empty() || !rows.vars.count(int(a))) j.axes[d] = int(a);
      }
      if (j.axes[d] < 0) {
        j.axes[d] = int(j.extents.size());
        j.extents.push_back(sizes[d]);
      }
      taken.insert(j.axes[d]);
    }
    return j.extents.size() <= size_t(kFirstBound) / 2;
  }

  // Is each dimension the axis of its number, and are there no others?
  static bool is_whole_space(const Join& j) {
    if (j.axes.size() != j.extents.size()) return false;
    for (size_t d = 0; d < j.axes.size(); ++d)
      if (j.axes[d] != int(d) && !(j.axes[d] < 0 && is_one(j.extents[d]))) return false;
    return true;
  }

  // Is something read alike by the values and by members of k?
  bool shares_reads(const Cluster& k, const std::vector<Expr>& values, const Rows& rows) {
    std::vector<Expr> members;
    for (auto& [id, m] : k.members) members.push_back(m.value);
    auto here = patterns(members, rows), there = patterns(values, rows);
    std::vector<std::string> both;
    std::set_intersection(here.begin(), here.end(), there.begin(), there.end(), std::back_inserter(both));
    return !both.empty();
  }

  // May a node along the axes `space` compute the member of k that it reads where it reads it?
  bool may_compute(const Cluster& k, const Read& r, const std::set<int>& space, const Rows& rows) {
    auto& m = k.members.at(r.root->id);
    std::set<int> plain;
    bool computed = false;
    for (size_t d = 0; d < r.at.size(); ++d) {
      if (m.axes[d] < 0) continue;
      if (r.at[d]->kind == Kind::index) plain.insert(r.at[d]->slot);
      else computed = true;
    }
    if (k.scans && !is_identity(m, r.at)) return false;
    std::set<int> own(m.axes.begin(), m.axes.end());
    own.erase(-1);
    bool row_value = rows.any && is_identity(m, r.at) &&
                     std::includes(rows.vars.begin(), rows.vars.end(), own.begin(), own.end());
    bool repeated = computed;
    for (int a : space)
      if (a >= 0 && !plain.count(a)) repeated = true;
    if (repeated && !row_value && pointwise_cost(m.value) > kCheap) return false;
    return !(repeated && !row_value && contains(m.value, Kind::random));
  }

  // The values of a node in the coordinates of cluster `at`, if it may join it.
  std::optional<Join> try_join(const Node& n, const Body& b, int at) {
    const Cluster& k = *units_[size_t(at)].cluster;
    if (k.scatter || b.scatter) return {};
    SymSpan sizes = n.results[0]->tensor.sizes();
    for (auto* r : n.results)
      if (r->tensor.sizes().size() != sizes.size()) return {};
    bool node_scans = false, node_positioned = false, node_reduces = false;
    for (auto& v : b.values) {
      node_scans |= contains(v, Kind::scan);
      node_positioned |= contains(v, Kind::position);
      node_reduces |= v->has_reduce;
    }
    if (node_scans && (k.scans || !k.members.empty())) return {};

    Join j;
    j.extents = k.extents;
    j.axes.assign(sizes.size(), -1);
    auto reads = reads_of(b.values, at);
    auto taken = take_axes(j, reads, k);
    if (!taken) return {};
    Rows before = rows_of(k);
    if (!place(j, sizes, *taken, reads, k, before)) return {};
    bool grows = j.extents.size() != k.extents.size(), same_space = !grows && is_whole_space(j);
    if ((k.positioned && grows) || (node_positioned && !same_space)) return {};
    if (k.scans && !(same_space && !node_reduces)) return {};
    if (reads.empty() && !same_space && !(node_reduces && !grows)) return {};

    auto moved = along(j.axes, b.values);
    for (auto& v : moved) j.values.push_back(canonical_(expanded(v, &k)));
    Rows rows = before;
    for (auto& v : j.values) add_rows(rows, v);
    if (!rows.legal) return {};
    // Side by side only for the sake of something that both read alike; a reduction does not bind a cluster
    // of maps.
    if (reads.empty() && ((node_reduces && !before.any) || !shares_reads(k, j.values, rows))) return {};
    bool maps_only = !rows.any;
    if (maps_only && grows && !k.members.empty())
      return {};  // what a map over more axes reads, it would compute again
    std::set<int> space(j.axes.begin(), j.axes.end());
    for (auto& r : reads_of(moved, at))
      if (!may_compute(k, r, space, rows)) return {};
    if (operation_count(j.values) > kMaxOperations) return {};

    auto needs = units_read(j.values, at);
    for (int u : needs)
      if (order_.depends(u, at)) return {};
    std::set<int> buffers = k.loads;
    for (auto& v : j.values) add_loads(v, buffers);
    if (buffers.size() + k.outputs.size() + n.results.size() > kMaxBuffers && !k.members.empty()) return {};
    return j;
  }

  void add_loads(Expr e, std::set<int>& to) {
    loop::Seen seen;
    each_node(e, seen, [&](Expr x) {
      if (x->kind == Kind::load) to.insert(x->slot);
    });
  }

  void join(const Node& n, int at, Join j) {
    Cluster& k = *units_[size_t(at)].cluster;
    k.extents = j.extents;
    k.nodes.push_back(&n);
    for (size_t r = 0; r < n.results.size(); ++r) {
      k.members[n.results[r]->id] = {j.values[r], j.axes};
      unit_[size_t(n.results[r]->id)] = at;
      k.positioned |= contains(j.values[r], Kind::position);
      k.scans |= contains(j.values[r], Kind::scan);
      add_loads(j.values[r], k.loads);
    }
  }

  // What these expressions load must be in memory before unit `at` runs.
  void read_from_memory(const std::vector<Expr>& values, int at) {
    std::set<int> loads;
    for (auto& v : values) add_loads(v, loads);
    for (int id : loads) {
      int u = need(value(id));
      if (u >= 0 && u != at) order_.need(at, u);
    }
  }

  int new_cluster(const Node& n, const Body& b) {
    int at = add_unit(nullptr);
    units_[size_t(at)].cluster.emplace();
    if (b.scatter) {
      loop::Scatter s = *b.scatter;
      s.value = canonical_(expanded(s.value, nullptr));
      std::vector<Expr> all{s.value};
      for (auto& t : s.target) all.push_back(t = canonical_(expanded(t, nullptr)));
      if (s.base >= 0) {
        std::vector<Expr> at_zero(value(s.base)->tensor.sizes().size(), integer(0));
        all.push_back(loop::load(s.base, value(s.base)->tensor.dtype(), at_zero));
      }
      auto& k = *units_[size_t(at)].cluster;
      k.extents = s.domain;
      k.scatter = s;
      k.nodes.push_back(&n);
      k.members[n.results[0]->id] = {};
      k.outputs.insert(n.results[0]->id);
      for (auto& e : all) add_loads(e, k.loads);
      read_from_memory(all, at);
      unit_[size_t(n.results[0]->id)] = at;
      return at;
    }
    auto& k = *units_[size_t(at)].cluster;
    Join j;
    std::vector<std::pair<int, Expr>> map;
    for (SymInt s : n.results[0]->tensor.sizes()) k.extents.push_back(s);
    j.extents = k.extents;
    for (size_t d = 0; d < j.extents.size(); ++d) j.axes.push_back(is_one(j.extents[d]) ? -1 : int(d));
    for (auto& v : b.values) j.values.push_back(canonical_(expanded(v, nullptr)));
    bool same_sizes = true;
    for (auto* r : n.results) same_sizes &= r->tensor.sizes().size() == j.extents.size();
    internal_check(same_sizes) << n.op->name() << ": results of different ranks in one loop";
    join(n, at, j);
    read_from_memory(j.values, at);
    return at;
  }

  // ---- values that exist only inside their readers
  bool may_be_virtual(const Node& n, const Body& b) {
    if (b.scatter || n.results.size() != 1 || required_.count(n.results[0]->id)) return false;
    Expr e = b.values[0];
    if (e->has_reduce || contains(e, Kind::random) || contains(e, Kind::position) ||
        contains(e, Kind::check) || contains(e, Kind::divisor))
      return false;
    // One element that is computed again would be for each row that reads it.
    if (n.again && !is_one(product(n.results[0]->tensor.sizes()))) return true;
    std::set<int> loads;
    add_loads(e, loads);
    size_t large = 0;
    for (int id : loads) {
      Value* r = root(value(id));
      if (in_cluster(r->id)) return false;
      large += value(id)->tensor.dim() > 0;
    }
    Expr full = expanded(e, nullptr);
    if (pointwise_cost(full) > kCheap) return false;
    int uses = uses_[n.results[0]->id];
    return uses <= 1 || large <= 2;
  }
  void make_real(Value* v) {
    const Node& n = *v->producer;
    virtual_.erase(v->id);
    new_cluster(n, body_of(n));
  }

  // Views without an index map are made before anything is decided about who reads them: their base has to be
  // in memory, so the reader cannot join the cluster that computes it.
  void make_views(const Body& b) {
    std::set<int> loads;
    for (auto& v : b.values) add_loads(v, loads);
    if (b.scatter) {
      add_loads(b.scatter->value, loads);
      for (auto& t : b.scatter->target) add_loads(t, loads);
    }
    for (int id : loads)
      if (Value* r = root(value(id)); is_view(r)) need(r);
  }

  void kernel(const Node& n) {
    Body b = body_of(n);
    make_views(b);
    if (may_be_virtual(n, b)) {
      Member m{expanded(b.values[0], nullptr), {}};
      for (size_t d = 0; d < n.results[0]->tensor.sizes().size(); ++d)
        m.axes.push_back(is_one(n.results[0]->tensor.sizes()[d]) ? -1 : int(d));
      virtual_[n.results[0]->id] = m;
      return;
    }
    bool reduces = false;
    for (auto& v : b.values) reduces |= v->has_reduce && !contains(v, Kind::scan);
    std::set<int> apart;
    if (reduces)
      if (auto read = unbound(b.values, n)) std::tie(b.values, apart) = std::tie(read->values, read->from);
    std::vector<int> candidates;
    auto add = [&](int u) {
      if (std::find(candidates.begin(), candidates.end(), u) == candidates.end()) candidates.push_back(u);
    };
    std::vector<Expr> full;
    for (auto& v : b.values) full.push_back(expanded(v, nullptr));
    if (b.scatter) full.push_back(expanded(b.scatter->value, nullptr));
    std::vector<int> vertical;
    for (auto& r : reads_of(full))
      if (int u = unit_[size_t(r.root->id)]; !apart.count(u)) vertical.push_back(u);
    std::sort(vertical.rbegin(), vertical.rend());
    for (int u : vertical) add(u);
    std::set<int> loads;
    for (auto& v : full) add_loads(v, loads);
    for (size_t u = units_.size(), tried = 0; u-- > 0 && tried < 16; ++tried) {
      if (!units_[u].cluster || units_[u].gone || apart.count(int(u))) continue;
      for (int id : loads)
        if (value(id)->tensor.dim() > 0 && units_[u].cluster->loads.count(id)) {
          add(int(u));
          break;
        }
    }
    int joined = -1;
    for (int u : candidates) {
      auto j = try_join(n, b, u);
      if (!j) continue;
      join(n, u, *j);
      joined = u;
      break;
    }
    if (joined < 0) {
      new_cluster(n, b);
      return;
    }
    for (int u : vertical)
      if (u != joined && !units_[size_t(u)].gone) merge(u, joined, n, b);
    std::vector<Expr> values;
    for (auto* r : n.results) values.push_back(units_[size_t(joined)].cluster->members.at(r->id).value);
    read_from_memory(values, joined);
  }

  // The axes of k along which node n of it reads members of `from`, by axis of `from`; -1: of extent 1. None if there
  // is more than one way.
  std::optional<std::vector<int>> axes_read(const Cluster& k, int from, const Node& n, const Body& b) {
    const Cluster& other = *units_[size_t(from)].cluster;
    auto moved = along(k.members.at(n.results[0]->id).axes, b.values);
    std::vector<int> axes(other.extents.size(), -1);
    for (auto& r : reads_of(moved, from)) {
      auto& m = other.members.at(r.root->id);
      for (size_t d = 0; d < r.at.size(); ++d) {
        if (m.axes[d] < 0) continue;
        if (r.at[d]->kind != Kind::index || r.at[d]->slot >= kFirstBound) return {};
        int& a = axes[size_t(m.axes[d])];
        if (a >= 0 && a != r.at[d]->slot) return {};
        a = r.at[d]->slot;
      }
    }
    for (size_t a = 0; a < axes.size(); ++a)
      if (!is_one(other.extents[a]) &&
          (axes[a] < 0 || !SymInt::surely_equal(other.extents[a], k.extents[size_t(axes[a])])))
        return {};
    return axes;
  }

  // Would merging make no cycle, no kernel of too many buffers, and no maps repeat what they compute?
  bool may_merge(int from, int to, const Node& n) {
    const Cluster &k = *units_[size_t(to)].cluster, &other = *units_[size_t(from)].cluster;
    bool maps = !rows_of(k).any && !rows_of(other).any;
    if (maps) {
      size_t wide = 0, wide_other = 0;
      for (auto e : k.extents) wide += !is_one(e);
      for (auto e : other.extents) wide_other += !is_one(e);
      if (wide != wide_other) return false;
    }
    for (int u : order_.needs(to))
      if (u != from && order_.depends(u, from)) return false;
    for (auto* r : n.results)
      for (int u : units_read({k.members.at(r->id).value}, to))
        if (u != from && (order_.depends(u, from) || order_.depends(u, to))) return false;
    for (int u : order_.needs(from))
      if (order_.depends(u, to)) return false;
    return k.loads.size() + other.loads.size() + k.outputs.size() + other.outputs.size() <= kMaxBuffers;
  }

  // k with the members of another cluster, whose axes become these of k.
  Cluster with_members(const Cluster& k, const Cluster& other, const std::vector<int>& axes) {
    Cluster merged = k;
    auto map = indices(axes);
    for (auto& [id, m] : other.members) {
      Member x{canonical_(loop::substitute(m.value, map)), m.axes};
      for (auto& a : x.axes)
        if (a >= 0) a = axes[size_t(a)];
      merged.members[id] = x;
    }
    // Members that loaded what is now inside read it directly, in the order they were made.
    for (auto* node : k.nodes)
      for (auto* r : node->results) {
        auto& m = merged.members.at(r->id);
        m.value = canonical_(expanded(m.value, &merged));
      }
    return merged;
  }

  // Brings cluster `from` into `to`, whose node n reads a member of it.
  void merge(int from, int to, const Node& n, const Body& b) {
    Cluster &k = *units_[size_t(to)].cluster, &other = *units_[size_t(from)].cluster;
    if (other.scatter || other.scans || k.scans || other.positioned || k.positioned) return;
    auto axes = axes_read(k, from, n, b);
    if (!axes || !may_merge(from, to, n)) return;
    Cluster merged = with_members(k, other, *axes);
    if (!rows_of(merged).legal) return;
    merged.loads.clear();
    for (auto& [id, m] : merged.members) add_loads(m.value, merged.loads);
    merged.outputs.insert(other.outputs.begin(), other.outputs.end());
    std::vector<const Node*> nodes = other.nodes;
    nodes.insert(nodes.end(), k.nodes.begin(), k.nodes.end());
    std::sort(nodes.begin(), nodes.end(), [](auto* a, auto* b) { return a->id < b->id; });
    merged.nodes = nodes;
    for (auto& [id, m] : other.members) unit_[size_t(id)] = to;
    order_.merge(from, to);
    k = std::move(merged);
    units_[size_t(from)].gone = true;
    units_[size_t(from)].cluster.reset();
    recount(to);
  }

  // Outputs of a cluster that only it read are none any more.
  void recount(int at) {
    auto& k = *units_[size_t(at)].cluster;
    std::set<int> kept;
    for (int id : k.outputs) {
      bool outside = required_.count(id);
      for (int u : order_.readers(at)) {
        auto& reader = units_[size_t(u)];
        if (reader.cluster) outside |= reader.cluster->loads.count(id) > 0;
        else
          for (auto* v : graph::operands(*reader.node)) outside |= v && v->id == id;
      }
      if (outside) kept.insert(id);
    }
    k.outputs = kept;
  }

  // ---- result
  // Sums in 16 bits that only kernels of this program read lie in memory as they were computed: they are small, and
  // rounded between two kernels they would lose digits that one kernel keeps. Scans too, few as they are.
  void find_wide() {
    for (auto& unit : units_) {
      if (unit.gone || !unit.cluster || unit.cluster->scatter) continue;
      for (int id : unit.cluster->outputs) {
        DType d = value(id)->tensor.dtype();
        if ((d == DType::Float16 || d == DType::BFloat16) && !required_.count(id) &&
            is_of_folds(unit.cluster->members.at(id).value) && only_loaded(id))
          wide_.insert(id);
      }
    }
  }
  bool only_loaded(int id) {
    for (auto& u : units_) {
      if (u.gone) continue;
      if (u.cluster && u.cluster->scatter && u.cluster->scatter->base == id) return false;
      if (u.cluster) continue;
      for (auto* v : graph::operands(*u.node))
        if (v && v->id == id) return false;
    }
    return true;
  }
  DType dtype_in_memory(int id) { return wide_.count(id) ? DType::Float32 : value(id)->tensor.dtype(); }

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
        g.inputs.push_back({dtype_in_memory(id), value(id)->tensor.dim()});
        s.inputs.push_back(value(id));
      }
      return it->second;
    };
    auto numbered = [&](Expr e) {
      auto go = [&](auto&& self, Expr x) -> Expr {
        return loop::rewrite(x, [&](Expr y) -> Expr {
          if (y->kind != Kind::load) return {};
          std::vector<Expr> at;
          for (auto& i : y->args) at.push_back(self(self, i));
          DType memory = wide_.count(y->slot) ? DType::Float32 : y->memory;
          return loop::load(input(y->slot), memory, at, y->part);
        });
      };
      return go(go, e);
    };
    for (int id : k.outputs) {
      auto* v = value(id);
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

  std::vector<Step> steps() {
    find_wide();
    std::vector<Step> result;
    std::vector<int> state(units_.size(), 0);
    auto visit = [&](auto&& self, int u) -> void {
      if (state[size_t(u)]) return;
      state[size_t(u)] = 1;
      auto& unit = units_[size_t(u)];
      for (int x : order_.needs(u)) self(self, x);
      if (unit.gone) return;
      if (unit.cluster) {
        if (!unit.cluster->outputs.empty()) result.push_back(kernel_step(*unit.cluster));
      } else {
        result.push_back(
            {unit.node->op->is<op::View>() ? Step::Kind::view : Step::Kind::library, {}, unit.node, {}, {}});
      }
    };
    for (size_t u = 0; u < units_.size(); ++u) visit(visit, int(u));
    return result;
  }

  const Graph& g_;
  Between between_;
  std::deque<Unit> units_;
  Order order_;            // of the units
  int last_ordered_ = -1;  // the last unit so far that takes from a sequence, as a generator's
  std::vector<int> unit_;  // by value: what makes it; -1: given
  std::unordered_map<int, Member> virtual_;
  std::set<int> required_;
  std::unordered_set<int> wide_;  // 16-bit values that are stored in float32
  std::unordered_map<int, int> uses_;
  std::unordered_map<int, bool> composes_;
  Canonical canonical_;
  int next_var_ = kFresh;
};

}  // namespace

std::vector<Step> fuse(const Graph& g, Between between) { return Fuser(g, between).run(); }

}  // namespace facula::schedule
