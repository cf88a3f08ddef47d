// Caches analyses (by the expressions of a group) and nests (by the class of the layout), so that a call only
// computes parameters.
#include "facula/schedule/schedule.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_set>

#include "facula/base/bounded.h"
#include "facula/base/caches.h"
#include "facula/base/fork.h"
#include "facula/base/log.h"
#include "facula/base/settings.h"
#include "facula/loop/print.h"
#include "facula/schedule/build.h"

namespace facula::schedule {

using loop::Expr;
using loop::Fn;
using loop::Kind;

namespace {
struct Part {
  Analysis analysis;
  std::string text;  // describes what the part computes, if the nest index is in use
  TableMutex mutex;
  Bounded<std::string, std::shared_ptr<const Built>> built{256};
};
}  // namespace
struct AnalysedGroup {
  std::vector<std::unique_ptr<Part>> parts;
  std::shared_ptr<const AnalysedGroup> open;  // the same group with `sizes` in place of `numbers`
  Ints numbers;
  Dims sizes;  // symbols that stand for `numbers`
};

namespace {

const NestIndex* nest_index = nullptr;

std::string identity(const Group& g) {
  std::string k;
  auto number = [&](auto i) {
    k += std::to_string(i);
    k += ',';
  };
  for (auto e : g.extents) number(e.identity());
  for (auto& i : g.inputs) {
    number(int(i.dtype));
    number(i.rank);
  }
  for (auto& o : g.outputs) {
    number(int(o.dtype));
    number(o.value ? o.value->id : 0);
    for (auto x : o.axes) number(x);
    k += ';';
  }
  if (g.scatter) {
    number(int(g.scatter->combine));
    number(g.scatter->base);
    for (auto& t : g.scatter->target) number(t->id);
    number(g.scatter->value->id);
  }
  return k;
}

// Describes what some outputs of a group compute by a text that is equal in every process; "" if names alone cannot
// tell.
std::string described(const Group& g, const std::vector<int>& outputs) {
  std::map<std::string, const sym::Node*> symbols;
  bool clear = true;
  auto note = [&](auto&& self, const sym::Node* n) -> void {
    if (n->kind == sym::Kind::symbol) clear &= symbols.try_emplace(n->name, n).first->second == n;
    if (n->a) self(self, n->a);
    if (n->b) self(self, n->b);
  };
  std::string text;
  auto size = [&](SymInt s) {
    if (s.is_symbolic()) note(note, s.node());
    text += loop::print_size(s) + ' ';
  };
  auto value = [&](Expr e) {
    loop::visit(e, [&](Expr x) {
      if (x->kind == Kind::size && x->size.is_symbolic()) note(note, x->size.node());
    });
    text += loop::print(e) + '\n';
  };
  for (auto e : g.extents) size(e);
  for (auto& i : g.inputs) text += '\n' + std::string(name(i.dtype)) + std::to_string(i.rank);
  for (auto& o : g.outputs) text += '\n' + std::string(name(o.dtype));
  for (int k : outputs) {
    text += '\n' + std::to_string(k);
    for (auto axis : g.outputs[size_t(k)].axes) text += ' ' + std::to_string(axis);
    text += '\n';
    value(g.outputs[size_t(k)].value);
  }
  if (g.scatter) {
    text +=
        "\nscatter " + std::to_string(int(g.scatter->combine)) + ' ' + std::to_string(g.scatter->base) + '\n';
    for (auto e : g.scatter->target) value(e);
    value(g.scatter->value);
  }
  return clear ? text : "";
}

// The symbol that stands for a group's k-th number; equal in all groups.
SymInt open_number(size_t k) {
  static sym::Shapes shapes;
  static std::vector<SymInt> symbols;
  static TableMutex mutex;
  std::lock_guard lock(mutex);
  while (symbols.size() <= k) symbols.push_back(shapes.fresh("n" + std::to_string(symbols.size()), 2));
  return symbols[k];
}

// Replaces numbers that only say where something is by symbols: the index that is picked from a dimension, the
// beginning of a slice (compared with an axis's index or added to it), and the divisor of a mean. Otherwise each
// number would need its own kernel. Small numbers remain: 0 and 1 give simpler code, and windows divide by few
// elements.
class Opened {
 public:
  explicit Opened(const Group& g) : axes_(int(g.extents.size())) {}
  Ints numbers;

  Expr operator()(Expr x) {
    return loop::rewrite(x, [this](Expr e) { return e->kind == Kind::call ? of_call(e) : Expr(); });
  }

 private:
  static constexpr int kWindow = 9;

  static bool is_number(Expr e, int64_t least) {
    if (e->kind != Kind::constant || is_complex(e->dtype)) return false;
    double x = e->value.to_double();
    return std::abs(x) > double(least) && std::abs(x) < 1 << 24 && x == std::trunc(x);
  }
  bool is_place(Expr e) const {
    if (e->kind == Kind::index) return e->slot < axes_;
    return e->kind == Kind::call && (e->fn == Fn::add || e->fn == Fn::sub) && is_place(e->args[0]) &&
           e->args[1]->kind == Kind::constant;
  }
  Expr number(Expr e) {
    int64_t x = e->value.to_int(), size = std::abs(x);
    size_t k = size_t(std::find(numbers.begin(), numbers.end(), size) - numbers.begin());
    if (k == numbers.size()) numbers.push_back(size);
    Expr n = loop::cast(loop::size(open_number(k)), e->dtype);
    return x < 0 ? -n : n;
  }
  Expr place(Expr e) {
    if (e->kind == Kind::index) return e;
    Expr by = e->args[1];
    return loop::call(e->fn, {place(e->args[0]), is_number(by, 1) ? number(by) : by});
  }
  Expr of_call(Expr e) {
    switch (e->fn) {
      case Fn::eq:
      case Fn::ne:
      case Fn::lt:
      case Fn::le:
      case Fn::gt:
      case Fn::ge: {
        Expr a = e->args[0], b = e->args[1];
        if (is_place(a) && is_number(b, 1)) return loop::call(e->fn, {place(a), number(b)});
        if (is_place(b) && is_number(a, 1)) return loop::call(e->fn, {number(a), place(b)});
        return {};
      }
      case Fn::add:
      case Fn::sub: return is_place(e) ? place(e) : Expr();
      case Fn::div:
        if (!is_floating(e->dtype) || !is_number(e->args[1], kWindow)) return {};
        return loop::call(e->fn, {(*this)(e->args[0]), number(e->args[1])});
      default: return {};
    }
  }
  int axes_;
};

}  // namespace

std::shared_ptr<const AnalysedGroup> analysed(const Group& g) {
  static TableMutex mutex;
  static Bounded<std::string, std::shared_ptr<const AnalysedGroup>> all(2048);
  static const Droppable registered([] {
    std::lock_guard lock(mutex);
    all.clear();
  });
  std::string key = identity(g);
  {
    std::lock_guard lock(mutex);
    if (auto* entry = all.find(key)) return *entry;
  }
  auto k = std::make_shared<AnalysedGroup>();
  Opened opened(g);
  Group open = g;
  for (auto& o : open.outputs)
    if (o.value) o.value = opened(o.value);
  if (!opened.numbers.empty()) {
    k->open = analysed(open);
    k->numbers = std::move(opened.numbers);
    for (size_t n = 0; n < k->numbers.size(); ++n) k->sizes.push_back(open_number(n));
    std::lock_guard lock(mutex);
    return all.put(std::move(key), std::move(k));
  }
  bool indexed = nest_index && nest_index->is_of_use();
  auto add = [&](Analysis a, const std::vector<int>& outputs) {
    k->parts.push_back(std::make_unique<Part>());
    k->parts.back()->analysis = std::move(a);
    if (indexed) k->parts.back()->text = described(g, outputs);
  };
  if (g.scatter) add(analyse_scatter(g), {});
  else
    for (auto& p : parts(g)) add(analyse(g, p), p);
  std::lock_guard lock(mutex);
  if (auto* entry = all.find(key)) return *entry;
  return all.put(std::move(key), std::move(k));
}

namespace {

Schedule initial(const Group& g, const Layout& l);

// Creates the launches of an analysed group.
Schedule arrange(const Group& g, const AnalysedGroup& group, const Layout& l) {
  Schedule s;
  int fixed = int(g.inputs.size() + g.outputs.size());
  for (auto& p : group.parts) {
    Numbers n = numbers(p->analysis, l);
    Decisions d = decide(p->analysis, n);
    if (g.scatter && d.begins_along < 0) s = initial(g, l);
    std::string key = d.key();
    std::shared_ptr<const Built> built;
    {
      std::lock_guard lock(p->mutex);
      if (auto* of_key = p->built.find(key)) built = *of_key;
    }
    if (!built) {
      auto indexed = p->text.empty() ? std::vector<IndexedNest>() : nest_index->find(p->text, key);
      bool is_new = indexed.empty();
      built = std::make_shared<const Built>(build(g.name, p->analysis, d, std::move(indexed)));
      if (is_new && !p->text.empty()) nest_index->keep(p->text, key, built->launches);
      if (log_on(Log::kernels)) log_line(Log::kernels, g.name + " is arranged as " + d.text());
      if (settings().verify)
        for (auto& b : built->launches) loop::verify(*b.nest);
      std::lock_guard lock(p->mutex);
      p->built.put(key, built);
    }
    int shift = int(s.temporaries.size());
    s.launches.reserve(s.launches.size() + built->launches.size());
    for (auto& t : built->temporaries) s.temporaries.push_back({t.dtype, t.numel(n)});
    for (auto& b : built->launches) {
      Launch launch{b.nest, b.buffers, {}};
      for (auto& k : launch.buffers)
        if (k >= fixed) k += shift;
      launch.params.reserve(b.params.size());
      for (auto& r : b.params) launch.params.push_back(r.value(n));
      s.launches.push_back(std::move(launch));
    }
  }
  return s;
}

// Checks all indices of a scatter before it writes onto its base, so that an index out of range raises before
// anything is written.
Schedule checked(const Group& g, const Layout& l) {
  Schedule s;
  loop::Expr all;
  std::vector<loop::Expr> roots(g.scatter->target);
  roots.push_back(g.scatter->value);
  std::unordered_set<uint32_t> seen;
  for (auto& root : roots)
    loop::visit(root, [&](loop::Expr e) {
      if (e->kind != loop::Kind::check || !seen.insert(e->id).second) return;
      loop::Expr i = loop::cast(e, DType::Int64);
      all = all.get() ? loop::max(all, i) : i;
    });
  if (!all.get() || std::count(l.extents.begin(), l.extents.end(), 0)) return s;
  constexpr int kBound = 1 << 10;  // variables for the scatter's axes while they are reduced over
  std::vector<loop::BoundVar> vars;
  std::vector<std::pair<int, loop::Expr>> renamed;
  loop::visit(all, [&](loop::Expr e) {
    if (e->kind != loop::Kind::index || size_t(e->slot) >= g.scatter->domain.size()) return;
    vars.push_back({kBound + e->slot, loop::size(g.scatter->domain[size_t(e->slot)])});
    renamed.push_back({e->slot, loop::index(kBound + e->slot)});
  });
  Group test;
  test.name = g.name + "_indices";
  test.inputs = g.inputs;
  GroupOutput out;
  out.dtype = DType::Int64;
  out.value = vars.empty() ? all : loop::reduce(loop::Monoid::max, vars, {loop::substitute(all, renamed)});
  test.outputs.push_back(out);
  Layout layout;
  layout.size_of = l.size_of;
  layout.input_strides = l.input_strides;
  layout.input_sizes = l.input_sizes;
  layout.output_strides = layout.output_sizes = {Ints()};
  layout.output_overlaps = {false};
  s = schedule(test, layout);
  // The result of the check is not used: it becomes the first temporary.
  int output = int(g.inputs.size());
  for (auto& launch : s.launches)
    for (auto& b : launch.buffers)
      if (b >= output) b += 1;
  s.temporaries.insert(s.temporaries.begin(), Temporary{DType::Int64, 1});
  return s;
}

// Initialises the result of a scatter: with its base, or with zeros. In place it needs no initialisation.
Schedule initial(const Group& g, const Layout& l) {
  int base = g.scatter->base;
  bool in_place = !l.output_overlaps.empty() && l.output_overlaps[0];
  if (base >= 0 && in_place && l.input_strides[size_t(base)] == l.output_strides[0]) return checked(g, l);
  static sym::Shapes shapes;
  static std::vector<SymInt> symbols;  // the layout gives the extents; these only stand for them
  static TableMutex mutex;
  Group init;
  init.name = g.name + "_base";
  Layout layout;
  layout.size_of = l.size_of;
  {
    std::lock_guard lock(mutex);
    while (symbols.size() < l.output_sizes[0].size())
      symbols.push_back(shapes.fresh("r" + std::to_string(symbols.size()), 2));
    init.extents = Dims(SymSpan(symbols).first(l.output_sizes[0].size()));
  }
  layout.extents = l.output_sizes[0];
  GroupOutput out;
  out.dtype = g.outputs[0].dtype;
  std::vector<loop::Expr> at;
  for (size_t d = 0; d < layout.extents.size(); ++d) {
    out.axes.push_back(int64_t(d));
    at.push_back(loop::index(int(d)));
  }
  if (base >= 0) {
    init.inputs.push_back(g.inputs[size_t(base)]);
    layout.input_strides.push_back(l.input_strides[size_t(base)]);
    out.value = loop::cast(loop::load(0, init.inputs[0].dtype, at), compute_type(out.dtype));
  } else {
    out.value = loop::constant(Scalar(int64_t(0)), compute_type(out.dtype));
  }
  init.outputs.push_back(out);
  layout.output_strides = l.output_strides;
  layout.output_overlaps = {false};
  Schedule s = schedule(init, layout);
  for (auto& launch : s.launches)
    for (auto& b : launch.buffers) b = b < int(init.inputs.size()) ? base : int(g.inputs.size());
  return s;
}

}  // namespace

void set_nest_index(const NestIndex* index) { nest_index = index; }

Schedule schedule(const Group& g, Layout l, std::shared_ptr<const AnalysedGroup> analysis) {
  internal_check(!g.scatter || l.output_sizes.size() == 1)
      << "schedule: the layout of a scatter needs its result's sizes";
  auto group = analysis ? std::move(analysis) : analysed(g);
  if (group->open) {
    l.size_of = [&, of_call = std::move(l.size_of)](SymInt e) {
      for (size_t k = 0; k < group->numbers.size(); ++k)
        if (e.identity() == group->sizes[k].identity()) return group->numbers[k];
      return of_call(e);
    };
    return arrange(g, *group->open, l);
  }
  return arrange(g, *group, l);
}

}  // namespace facula::schedule
