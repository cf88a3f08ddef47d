#include "facula/schedule/build.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "facula/schedule/moments.h"
#include "facula/schedule/nest_spec.h"

namespace facula::schedule {

using loop::Expr;
using loop::Kind;
using loop::Monoid;

namespace {

constexpr int64_t kChunkElements = 16384;  // of a split reduction
constexpr int64_t kWindow = 16;            // constant extents up to this are part of the kernel
constexpr int64_t kLaneBlock = 64;         // lanes in a task are a multiple of this
// Row values with at least this many operations are stored instead of being recomputed for each element.
constexpr double kPrecomputed = 5;
// A scatter's task visits every row and needs a page table entry for each.
constexpr int64_t kScatterBlock = 256;
// Pieces into which a scatter's places are divided, which bounds the number of threads.
constexpr int64_t kShares = 64;
// Elements of a share of slices, which stay in the cache between updates.
constexpr int64_t kNearSlices = 65536;
// From this many elements on, updating a slice takes much longer than testing which task owns it.
constexpr int64_t kLooksWorth = 16;
// Row block if each lane reduces: what the generator holds in registers at a time.
constexpr int64_t kStripBlock = 128;

Expr integer(int64_t i) { return loop::constant(Scalar(i), DType::Int64); }
int64_t ceil_div(int64_t a, int64_t b) { return b ? (a + b - 1) / b : 0; }

std::string text(const std::vector<Merged>& loops) {
  std::string s;
  for (auto& m : loops) {
    for (int v : m) s += std::to_string(v) + ",";
    s += ";";
  }
  return s;
}

class Builder {
 public:
  Builder(const std::string& name, const Analysis& a, const Decisions& d, std::vector<IndexedNest> indexed)
      : name_(name), a_(a), d_(d), indexed_(std::move(indexed)) {
    for (size_t k = 0; k < a.accesses.size(); ++k)
      if (a.accesses[k].node) at_[a.accesses[k].node.get()] = k;
    bool overlap = std::find(d.overlaps.begin(), d.overlaps.end(), 1) != d.overlaps.end();
    for (size_t k = 0; k < a.dtypes.size(); ++k) {
      bool output = int(k) >= a.inputs;
      size_t o = k - size_t(a.inputs);
      bool shared = output ? o < d.overlaps.size() && d.overlaps[o] : overlap;
      buffers_.push_back({a.dtypes[k], !shared, false});
    }
    next_var_ = int(a.vars.size());
  }

  Built run() {
    size_t index = 0;
    for (auto& access : a_.accesses) {
      computed_at_.push_back(index);
      for (int v : access.dims) index += v == Access::kComputed;
    }
    std::vector<FlatStore> stores;
    for (auto& o : a_.outputs) {
      FlatStore s;
      s.buffer = o.buffer;
      s.part = o.part;
      s.value = flat(o.value);
      DType memory = a_.dtypes[size_t(o.buffer)];
      bool rounds_twice =
          s.value->kind == Kind::cast && s.value->memory == memory && s.value.dtype() != memory;
      if (rounds_twice) s.value = s.value->args[0];  // storing rounds
      s.offset = offset(size_t(o.access));
      for (size_t b = 0; b < d_.domains.size(); ++b)
        for (auto& m : d_.domains[b])
          if (!a_.scatter && std::find(o.axes.begin(), o.axes.end(), m.back()) != o.axes.end())
            s.sweep.push_back({m.back(), extent(m)});
      stores.push_back(std::move(s));
    }
    if (a_.scatter) scatter(std::move(stores));
    else if (d_.split >= 0 && d_.split == a_.scan_axis) split_scans(std::move(stores));
    else if (d_.split >= 0) split(std::move(stores));
    else {
      for (auto& s : stores) s.value = in_two_sweeps(s.value);
      rows_nest(std::move(stores));
    }
    return std::move(built_);
  }

 private:
  // ---- parameters
  Expr param(std::string key, std::function<int64_t(const Numbers&)> value) {
    auto [it, fresh] = numbers_.try_emplace(key, int(recipes_.size()));
    if (fresh) recipes_.push_back({std::move(key), std::move(value)});
    return loop::param(it->second);
  }
  Expr extent(const Merged& m) {
    if (d_.short_rows && m.back() == d_.domains[0][0].back()) return integer(d_.short_rows);
    auto& first = a_.vars[size_t(m[0])];
    // Only the extents of windows are constants of the kernel. All others are parameters, so that different sizes
    // share it.
    bool window =
        m[0] >= a_.axes && first.extent->kind == Kind::constant && first.extent->value.to_int() <= kWindow;
    if (m.size() == 1 && (first.ragged || window)) return flat(first.extent);
    std::vector<Merged> loops{m};
    return param("extent " + text(loops), [loops](const Numbers& n) { return n.count(loops); });
  }
  Expr stride(int buffer, const std::vector<size_t>& dims) {
    std::string key = "stride " + std::to_string(buffer) + ":";
    for (size_t k : dims) key += std::to_string(k) + ",";
    return param(key, [buffer, dims](const Numbers& n) {
      int64_t s = 0;
      for (size_t k : dims) s += n.stride(buffer, k);
      return s;
    });
  }

  // The stride of access number k along a loop.
  Expr coefficient(size_t k, int var) {
    auto& access = a_.accesses[k];
    int8_t stride_class = d_.stride_class(k, var, a_.vars.size());
    if (stride_class >= 0) return integer(stride_class);
    std::vector<size_t> dims;
    for (size_t i = 0; i < access.dims.size(); ++i)
      if (access.dims[i] == var) dims.push_back(i);
    if (dims.empty()) return integer(0);
    if (access.kind != Access::Kind::position) return stride(access.buffer, dims);
    std::vector<Merged> inner;
    for (size_t i = dims[0] + 1; i < access.dims.size(); ++i)
      if (access.dims[i] >= 0) inner.push_back({access.dims[i]});
    if (inner.empty()) return integer(1);
    return param("extent " + text(inner), [inner](const Numbers& n) { return n.count(inner); });
  }

  Expr offset(size_t k) {
    auto& access = a_.accesses[k];
    Expr sum = integer(0);
    std::set<int> done;
    for (int v : access.dims)
      if (v >= 0 && done.insert(v).second && is_loop(v)) sum = sum + loop::index(v) * coefficient(k, v);
    size_t computed = computed_at_[k];
    for (size_t i = 0; i < access.dims.size(); ++i) {
      if (access.dims[i] != Access::kComputed) continue;
      Expr at = flat(access.indices[i]);
      int64_t stride_class = d_.computed_strides[computed++];
      sum =
          sum +
          (stride_class == 1 ? at : at * (stride_class ? integer(stride_class) : stride(access.buffer, {i})));
    }
    return sum;
  }
  // True for the variable that stands for a merged loop, and for the bound variables of nested reductions.
  bool is_loop(int v) {
    auto in = [&](const std::vector<Merged>& loops) {
      for (auto& m : loops)
        if (std::find(m.begin(), m.end(), v) != m.end()) return m.back() == v ? 1 : 0;
      return -1;
    };
    if (int r = in(d_.rows); r >= 0) return r;
    for (auto& b : d_.domains)
      if (int r = in(b); r >= 0) return r;
    return true;
  }

  // Rewrites e for a nest: loads get flat offsets, sizes become parameters, reductions run over merged loops.
  Expr flat(Expr e) {
    if (auto it = flat_.find(e.get()); it != flat_.end()) return it->second;
    Expr r;
    auto access = at_.find(e.get());
    if (access != at_.end() && e->kind != Kind::load)
      return flat_[e.get()] = offset(access->second);  // a position
    switch (e->kind) {
      case Kind::load: r = loop::load(e->slot, e->memory, {offset(access->second)}, e->part); break;
      case Kind::size: {
        SymInt s = e->size;
        r = s.is_symbolic() ? param("size " + std::to_string(s.identity()),
                                    [s](const Numbers& n) { return n.layout->size_of(s); })
                            : e;
        break;
      }
      case Kind::reduce: {
        std::vector<loop::BoundVar> bound;
        int domain = e->bound.empty() ? kNested : a_.vars[size_t(e->bound[0].var)].domain;
        if (domain >= 0)
          for (auto& m : d_.domains[size_t(domain)]) bound.push_back({m.back(), extent(m)});
        else
          for (auto& b : e->bound) bound.push_back({b.var, flat(b.extent)});
        std::vector<Expr> values;
        for (auto& x : e->args) values.push_back(flat(x));
        r = loop::reduce(e->monoid, bound, values);
        break;
      }
      case Kind::scan: {
        std::vector<Expr> values;
        for (auto& x : e->args) values.push_back(flat(x));
        r = loop::scan(e->monoid, e->slot, {e->bound[0].var, flat(e->bound[0].extent)}, values);
        break;
      }
      default: {
        bool removed = false;
        r = loop::rewrite(e, [&](Expr x) -> Expr {
          if (same(x, e) && !removed) {
            removed = true;
            return {};
          }
          return flat(x);
        });
      }
    }
    flat_.emplace(e.get(), r);
    return r;
  }

  // ---- nests
  static double work_of(const std::vector<FlatStore>& stores) {
    std::vector<Expr> values;
    for (auto& s : stores) values.push_back(s.value);
    return operation_count(values) + double(stores.size());
  }

  // Tasks of about `elements` elements: pieces of a vector of rows, or several whole rows. `inner`: elements of a
  // row.
  struct Shape {
    std::function<int64_t(const Numbers&)> lanes, rest, inner;
    std::string key;
  };
  void tile(NestSpec& spec, const Shape& s, int64_t elements, double operations) {
    auto lanes = s.lanes, rest = s.rest, inner = s.inner;
    auto operation_units = int64_t(operations) + 1;
    bool scatters = !spec.serial.empty();
    std::string key = s.key + " " + std::to_string(elements) + " " + std::to_string(operation_units) +
                      (spec.chunked ? " c" : " r");
    auto chunk = [lanes, inner, elements, scatters](const Numbers& n) {
      int64_t block = scatters ? kScatterBlock : inner(n) > 1 ? kStripBlock : kLaneBlock;
      int64_t wanted = ceil_div(elements / std::max<int64_t>(1, inner(n)), block) * block;
      return std::max<int64_t>(1, std::min(std::max(wanted, block), std::max<int64_t>(lanes(n), 1)));
    };
    auto task_rows = [lanes, rest, inner, elements](const Numbers& n) {
      int64_t one = std::max<int64_t>(1, times(lanes(n), inner(n)));
      return std::max<int64_t>(1, std::min(elements / one, std::max<int64_t>(1, rest(n))));
    };
    if (spec.tiled) {
      // Both sides of a tile are small enough for the cache, whichever way an operand is contiguous.
      auto side = [most = spec.tile](int64_t n) { return std::clamp<int64_t>(n, 1, most); };
      std::vector<Merged> outer(d_.rows.begin(), d_.rows.end() - 2);
      auto others = counter(outer), turned = counter({d_.rows[d_.rows.size() - 2]});
      key += " " + std::to_string(spec.tile);
      spec.chunk = param("tile " + key, [=](const Numbers& n) { return side(lanes(n)); });
      spec.chunks =
          param("tiles " + key, [=](const Numbers& n) { return ceil_div(lanes(n), side(lanes(n))); });
      spec.task_rows = param("tile_rows " + key, [=](const Numbers& n) { return side(turned(n)); });
      spec.row_chunks =
          param("row_tiles " + key, [=](const Numbers& n) { return ceil_div(turned(n), side(turned(n))); });
      spec.tasks = param("tasks " + key, [=](const Numbers& n) {
        return times(times(others(n), ceil_div(turned(n), side(turned(n)))),
                     ceil_div(lanes(n), side(lanes(n))));
      });
      spec.cost = param("cost " + key,
                        [=](const Numbers& n) { return side(turned(n)) * side(lanes(n)) * operation_units; });
    } else if (spec.chunked) {
      spec.chunk = param("chunk " + key, chunk);
      spec.chunks = param("chunks " + key, [=](const Numbers& n) { return ceil_div(lanes(n), chunk(n)); });
      spec.tasks = param("tasks " + key,
                         [=](const Numbers& n) { return times(rest(n), ceil_div(lanes(n), chunk(n))); });
      spec.cost = param("cost " + key, [=](const Numbers& n) {
        return times(times(chunk(n), std::max<int64_t>(1, inner(n))), operation_units);
      });
    } else {
      spec.task_rows = param("task_rows " + key, task_rows);
      spec.tasks = param("tasks " + key,
                         [=](const Numbers& n) { return lanes(n) ? ceil_div(rest(n), task_rows(n)) : 0; });
      spec.cost = param("cost " + key, [=](const Numbers& n) {
        return times(times(times(task_rows(n), lanes(n)), std::max<int64_t>(1, inner(n))), operation_units);
      });
      if (spec.rows.size() == size_t(spec.row_vector)) spec.tasks = integer(1);
    }
  }

  static Merged joined(const std::vector<Merged>& loops) {
    Merged all;
    for (auto& m : loops) all.insert(all.end(), m.begin(), m.end());
    return all;
  }
  std::function<int64_t(const Numbers&)> counter(const std::vector<Merged>& loops) {
    return [all = joined(loops)](const Numbers& n) { return n.count(all); };
  }
  std::function<int64_t(const Numbers&)> widest_domain() {
    std::vector<Merged> domains;
    for (auto& b : d_.domains) domains.push_back(joined(b));
    return [domains](const Numbers& n) {
      int64_t most = 1;
      for (auto& b : domains) most = std::max(most, n.count(b));
      return most;
    };
  }
  std::vector<Loop> loops_of(const std::vector<Merged>& merged) {
    std::vector<Loop> l;
    for (auto& m : merged) l.push_back({m.back(), extent(m)});
    return l;
  }

  // Stages the loads that are contiguous along the last row loop and are read for every element.
  void stage(NestSpec& spec, const std::vector<FlatStore>& stores) {
    constexpr size_t kArrays = 4;
    int turned = d_.rows[d_.rows.size() - 2].back();
    std::unordered_set<const loop::Node*> plain;
    auto unguarded = [&](auto&& self, Expr e) -> void {
      if (!plain.insert(e.get()).second) return;
      size_t sides = e->kind == Kind::select ? 1 : e->args.size();
      for (size_t k = 0; k < sides; ++k) self(self, e->args[k]);
    };
    for (auto& s : stores) unguarded(unguarded, s.value);
    int bytes = 1;
    for (auto& [node, k] : ordered_loads()) {
      auto& access = a_.accesses[k];
      Expr l = flat_.at(node);
      int8_t lanes = d_.stride_class(k, d_.row_vector, a_.vars.size()),
             across = d_.stride_class(k, turned, a_.vars.size());
      bool computed = std::count(access.dims.begin(), access.dims.end(), Access::kComputed) > 0;
      if (lanes == 0 || lanes == 1 || across != 1 || computed || !plain.count(l.get()) ||
          spec.staged.size() == kArrays)
        continue;
      spec.staged.push_back(l);
      bytes = std::max(bytes, l->part ? itemsize(real_of(l->memory)) : itemsize(l->memory));
    }
    spec.tile = bytes > 4 ? kLaneBlock / 2 : kLaneBlock;
  }
  std::vector<std::pair<const loop::Node*, size_t>> ordered_loads() {
    std::vector<std::pair<const loop::Node*, size_t>> loads;
    for (size_t k = 0; k < a_.accesses.size(); ++k)
      if (a_.accesses[k].kind == Access::Kind::load) loads.push_back({a_.accesses[k].node.get(), k});
    return loads;
  }

  void rows_nest(std::vector<FlatStore> stores) {
    NestSpec spec;
    spec.name = name_;
    spec.rows = loops_of(d_.rows);
    spec.row_vector = d_.row_vector >= 0;
    spec.chunked = d_.chunked;
    spec.tiled = d_.tiled;
    spec.row_array_elements = d_.keeps_row ? kKeptRow : 0;
    if (d_.tiled) stage(spec, stores);
    for (int v : d_.domain_vectors)
      if (v >= 0) spec.vectors.push_back(v);
    double operations = work_of(stores);
    int64_t phases = d_.phases;
    if (phases > 1) stores = by_phase(spec, stores);
    spec.stores = std::move(stores);
    auto rest = d_.rows;
    std::vector<Merged> lanes;
    if (spec.row_vector) {
      lanes.push_back(rest.back());
      rest.pop_back();
    }
    auto vectors = [count = counter(lanes), phases](const Numbers& n) { return count(n) / phases; };
    auto inner = [domain = widest_domain(), phases](const Numbers& n) { return times(domain(n), phases); };
    tile(spec, {vectors, counter(rest), inner, "main"}, task_elements(a_), operations);
    add(std::move(spec));
  }

  // Makes each lane compute `phases` neighbouring elements with separate stores, in which quotients and remainders
  // are those of the lane plus constants.
  std::vector<FlatStore> by_phase(NestSpec& spec, const std::vector<FlatStore>& stores) {
    auto& lane = spec.rows.back();
    std::vector<Merged> own{d_.rows.back()};
    int64_t phases = d_.phases;
    lane.extent =
        param("phases " + text(own), [own, phases](const Numbers& n) { return n.count(own) / phases; });
    std::vector<FlatStore> all;
    for (auto& s : stores)
      for (int64_t k = 0; k < phases; ++k) {
        auto& t = all.emplace_back(s);
        std::vector<std::pair<int, Expr>> here{
            {lane.var, loop::index(lane.var) * integer(phases) + integer(k)}};
        t.value = loop::substitute(s.value, here);
        t.offset = loop::substitute(s.offset, here);
      }
    return all;
  }

  void scatter(std::vector<FlatStore> stores) {
    NestSpec spec;
    spec.name = name_;
    spec.rows = loops_of(d_.rows);
    spec.row_vector = d_.row_vector >= 0;
    spec.chunked = d_.chunked;
    spec.serial = loops_of(d_.domains[0]);
    spec.lists_places = d_.lists_places;
    double operations = work_of(stores);
    for (auto& s : stores) s.value = in_two_sweeps(s.value);
    spec.stores = std::move(stores);
    auto rest = d_.rows;
    std::vector<Merged> lanes;
    if (spec.row_vector) {
      lanes.push_back(rest.back());
      rest.pop_back();
    }
    if (d_.shares_places) share_places(spec, operations);
    else
      tile(spec, {counter(lanes), counter(rest), counter(d_.domains[0]), "scatter"}, task_elements(a_),
           operations);
    if (d_.begins_along >= 0) spec.first.push_back(base(spec));
    add(std::move(spec));
  }
  // Tasks own shares of the places: several shares per thread, each a contiguous range of whole cache lines or of
  // whole slices.
  void share_places(NestSpec& spec, double operations) {
    bool slices = spec.row_vector;
    auto slice = counter(slices ? d_.rows : std::vector<Merged>());
    auto unit = [slices, slice](const Numbers& n) {
      int64_t shares = kShares, part = kLaneBlock, span = span_of_result(n);
      if (slices) {
        part = std::max<int64_t>(slice(n), 1);
        shares = std::clamp(span / kNearSlices, int64_t(2), std::max(part / kLooksWorth, int64_t(2)));
      }
      return std::max(ceil_div(ceil_div(span, shares), part), int64_t(1)) * part;
    };
    auto tasks = [unit](const Numbers& n) { return ceil_div(span_of_result(n), unit(n)); };
    int64_t each = (slices ? 1 : 4) * (int64_t(operations) + 1);
    auto cost = [tasks, all = counter(d_.domains[0]), slice, each](const Numbers& n) {
      return ceil_div(times(times(all(n), slice(n)), each), tasks(n));
    };
    spec.unit = param("unit", unit);
    spec.span = param("span", [](const Numbers& n) { return span_of_result(n); });
    spec.tasks = param("tasks of places", tasks);
    spec.cost = param("cost of places", cost);
  }

  // The store that initialises a scatter's result: all places of a row or of its lanes, or, if tasks share places,
  // all.
  FlatStore base(NestSpec& spec) {
    auto& out = a_.outputs[0];
    FlatStore s;
    s.buffer = out.buffer;
    s.offset = integer(0);
    size_t dims = spec.unit ? 0 : out.axes.size();
    for (size_t d = 0; d < dims; ++d) {
      int v = out.axes[d];
      if (std::count(a_.rows.begin(), a_.rows.end(), v)) {
        if (is_loop(v)) s.offset = s.offset + loop::index(v) * coefficient(size_t(out.access), v);
        continue;
      }
      Loop over{next_var_++, param("size " + std::to_string(d) + " of the result",
                                   [d](const Numbers& n) { return n.layout->output_sizes[0][d]; })};
      bool nearest = d_.begins_along == int(d);
      s.offset =
          s.offset + (nearest ? loop::index(over.var) : loop::index(over.var) * stride(out.buffer, {d}));
      s.sweep.insert(nearest ? s.sweep.end() : s.sweep.begin(), over);
    }
    if (spec.unit) {
      s.sweep.push_back({next_var_++, spec.span});
      s.offset = loop::index(s.sweep.back().var);
    }
    spec.vectors.push_back(spec.row_vector && !spec.shares_slices() ? spec.rows.back().var
                                                                    : s.sweep.back().var);
    DType d = a_.dtypes[size_t(out.buffer)];
    s.value = a_.base < 0
                  ? loop::constant(Scalar(int64_t(0)), compute_type(d))
                  : loop::cast(loop::load(a_.base, a_.dtypes[size_t(a_.base)], {s.offset}), compute_type(d));
    return s;
  }

  void add(NestSpec spec) {
    BuiltLaunch launch;
    size_t k = built_.launches.size();
    if (k < indexed_.size() && fits(indexed_[k])) {
      launch.buffers = std::move(indexed_[k].buffers);
      launch.numbers = std::move(indexed_[k].params);
      loop::LazyNest::Kernel kernel{indexed_[k].kernel, spec.name, numbered(spec.tasks, launch.numbers),
                                    numbered(spec.cost, launch.numbers)};
      launch.nest =
          std::make_shared<loop::LazyNest>(std::move(kernel), [spec = std::move(spec), buffers = buffers_] {
            return finish(spec, buffers).nest;
          });
    } else {
      Finished f = finish(spec, buffers_);
      launch.nest = std::make_shared<loop::LazyNest>(std::move(f.nest));
      launch.buffers = std::move(f.buffers);
      launch.numbers = std::move(f.numbers);
    }
    for (int r : launch.numbers) launch.params.push_back(recipes_[size_t(r)]);
    built_.launches.push_back(std::move(launch));
  }
  bool fits(const IndexedNest& n) const {
    auto are_numbers = [](const std::vector<int>& list, size_t end) {
      return std::all_of(list.begin(), list.end(), [&](int i) { return i >= 0 && size_t(i) < end; });
    };
    return are_numbers(n.buffers, buffers_.size()) && are_numbers(n.params, recipes_.size());
  }
  // Translates parameter numbers into those of the nest.
  static Expr numbered(Expr e, const std::vector<int>& numbers) {
    return loop::rewrite(e, [&](Expr x) {
      if (x->kind != Kind::param) return Expr();
      auto at = std::find(numbers.begin(), numbers.end(), x->slot);
      internal_check(at != numbers.end()) << "schedule: a parameter of the tasks is none of the nest";
      return loop::param(int(at - numbers.begin()));
    });
  }

  int temporary(DType d, std::function<int64_t(const Numbers&)> numel) {
    built_.temporaries.push_back({d, std::move(numel)});
    buffers_.push_back({d, true, false});
    return int(buffers_.size()) - 1;
  }

  // True if e depends only on the row.
  bool of_rows(Expr e) {
    for (int v : free_vars(e))
      if (std::none_of(d_.rows.begin(), d_.rows.end(), [&](const Merged& m) { return m.back() == v; }))
        return false;
    return true;
  }

  // ---- split reductions: partial results of chunks, then their combination, level by level; then the rest
  std::vector<Expr> ready(const std::vector<FlatStore>& stores) {
    std::vector<Expr> reductions;
    std::unordered_set<const loop::Node*> seen, blocked;
    auto visit = [&](auto&& self, Expr e) -> void {
      if (!e->has_reduce || !seen.insert(e.get()).second) return;
      bool inside = false;
      for (auto& a : e->args) {
        self(self, a);
        inside |= blocked.count(a.get()) > 0;
      }
      if (!inside && e->kind == Kind::reduce && of_rows(e)) reductions.push_back(e), inside = true;
      if (inside) blocked.insert(e.get());
    };
    for (auto& s : stores) visit(visit, s.value);
    return reductions;
  }

  // Values that the nests of a split reduction share.
  struct Split {
    bool lanes;
    std::function<int64_t(const Numbers&)> row_count, row_lanes, other_count, chunk, chunks;
    Expr chunk_size = {}, chunk_count = {};
    int c = 0;  // the loop over chunks
    Expr first = {};
    std::vector<Loop> row_loops = {};
    Expr row = {}, rows = {};
  };
  // By stored reduction: the loads of its components.
  using Stored = std::unordered_map<const loop::Node*, std::vector<Expr>>;

  void split(std::vector<FlatStore> stores) {
    Split s = cut_domain();
    while (true) {
      auto folds = ready(stores);
      if (folds.empty()) break;
      auto stored = fold_chunks(s, folds);
      for (auto& store : stores) store.value = replaced(store.value, stored);
    }
    // The rest is pointwise: stores along the rows, then stores that also run along the domain.
    if (s.lanes) precompute(stores, s.row, s.row_count);
    while (!stores.empty()) map_nest(take_one_sweep(stores));
  }

  // ---- split scans: totals of chunks, then those of all chunks before each, then the chunks' scans behind them
  void split_scans(std::vector<FlatStore> stores) {
    Split s = cut_domain();
    std::vector<Expr> scans;
    for (auto& store : stores)
      loop::visit(store.value, [&](Expr x) {
        if (x->kind == Kind::scan &&
            std::none_of(scans.begin(), scans.end(), [&](Expr y) { return same(x, y); }))
          scans.push_back(x);
      });
    NestSpec totals, before, rest;
    totals.name = name_ + "_partial";
    before.name = name_ + "_before";
    rest.name = name_;
    int flat_row = next_var_++, place = next_var_++;
    Expr here = d_.rows.empty() ? integer(0) : loop::index(flat_row);
    Expr length = loop::min(extent({d_.split}) - s.first, s.chunk_size);
    auto all_chunks = [chunks = s.chunks, row_count = s.row_count](const Numbers& n) {
      return times(chunks(n), row_count(n));
    };
    std::unordered_map<const loop::Node*, Expr> prefixes;
    for (auto& x : scans) {
      Expr element = in_chunk(s, x->args[0]), none = loop::identity(x->monoid, x.dtype())[0];
      int of_chunks = temporary(x.dtype(), all_chunks), so_far = temporary(x.dtype(), all_chunks);
      Expr total = loop::load(of_chunks, x.dtype(), {loop::index(s.c) * s.rows + here});
      totals.stores.push_back({.buffer = of_chunks,
                               .value = loop::reduce(x->monoid, {{d_.split, length}}, {element}),
                               .offset = loop::index(s.c) * s.rows + s.row});
      before.stores.push_back({.buffer = so_far,
                               .value = loop::scan(x->monoid, s.c, {place, s.chunk_count}, {total}),
                               .offset = loop::index(s.c) * s.rows + here,
                               .sweep = {{s.c, s.chunk_count}}});
      Expr last = loop::max(loop::index(s.c) - int64_t(1), int64_t(0));
      std::vector<Expr> from{loop::select(loop::eq(loop::index(s.c), int64_t(0)), none,
                                          loop::load(so_far, x.dtype(), {last * s.rows + s.row}))};
      std::vector<Expr> own{loop::scan(x->monoid, d_.split, {place, length}, {element})};
      prefixes[x.get()] = loop::combine(x->monoid, from, own)[0];
    }
    for (auto& store : stores) {
      store.value = loop::rewrite(store.value, [&](Expr x) {
        auto it = prefixes.find(x.get());
        return it != prefixes.end() ? it->second : x->has_reduce ? Expr() : in_chunk(s, x);
      });
      store.offset = in_chunk(s, store.offset);
      for (auto& l : store.sweep) l.extent = length;
    }
    rest.stores = std::move(stores);
    add_chunks(std::move(totals), s, "partial");
    add_before(std::move(before), s, flat_row);
    add_chunks(std::move(rest), s, "main");
  }
  // Shifts e to a chunk, whose elements are counted from 0.
  Expr in_chunk(const Split& s, Expr e) const {
    std::pair<int, Expr> shift{d_.split, s.first + loop::index(d_.split)};
    return loop::substitute(e, std::span(&shift, 1));
  }
  void add_chunks(NestSpec spec, const Split& s, const char* key) {
    spec.rows = s.row_loops;
    spec.rows.push_back({s.c, s.chunk_count});
    for (int v : d_.domain_vectors)
      if (v >= 0) spec.vectors.push_back(v);
    auto one = [](const Numbers&) { return int64_t(1); };
    auto count = [chunks = s.chunks, row_count = s.row_count](const Numbers& n) {
      return times(chunks(n), row_count(n));
    };
    double operations = work_of(spec.stores);
    tile(spec, {one, count, s.chunk, key}, kChunkElements, operations);
    add(std::move(spec));
  }
  void add_before(NestSpec spec, const Split& s, int flat_row) {
    if (!d_.rows.empty()) spec.rows.push_back({flat_row, s.rows});
    auto one = [](const Numbers&) { return int64_t(1); };
    tile(spec, {one, s.row_count, s.chunks, "before"}, kChunkElements, 2);
    add(std::move(spec));
  }

  Split cut_domain() {
    const Merged* cut = nullptr;
    std::vector<Merged> others;
    for (auto& m : d_.domains[0]) (m.back() == d_.split ? void(cut = &m) : others.push_back(m));
    auto cut_count = counter({*cut}), other_count = counter(others), row_count = counter(d_.rows);
    bool lanes = d_.row_vector >= 0;
    auto row_lanes = counter(lanes ? std::vector<Merged>{d_.rows.back()} : std::vector<Merged>{});
    // The number of elements of the split variable in a chunk.
    auto chunk = [=](const Numbers& n) {
      int64_t beside = std::max<int64_t>(1, other_count(n)) *
                       (lanes ? std::clamp<int64_t>(row_lanes(n), 1, 4 * kLaneBlock) : 1);
      int64_t per_chunk = std::max<int64_t>(1, kChunkElements / beside);
      return std::max<int64_t>(1, std::min(per_chunk, cut_count(n)));
    };
    auto chunks = [=](const Numbers& n) { return ceil_div(cut_count(n), chunk(n)); };
    Split s{lanes, row_count, row_lanes, other_count, chunk, chunks};
    s.chunk_size = param("split", chunk);
    s.chunk_count = param("splits", chunks);
    s.c = next_var_++;
    s.first = loop::index(s.c) * s.chunk_size;

    // The row-major position of the row.
    s.row = integer(0);
    s.row_loops = loops_of(d_.rows);
    for (auto& l : s.row_loops) s.row = s.row * l.extent + loop::index(l.var);
    s.rows = param("extent " + text(d_.rows), row_count);
    if (d_.rows.empty()) s.rows = integer(1);
    return s;
  }

  // Folds one level: stores the chunks' partial results of `folds`, then combines them.
  Stored fold_chunks(const Split& s, const std::vector<Expr>& folds) {
    NestSpec partial, combine;
    partial.name = name_ + "_partial";
    combine.name = name_ + "_combine";
    int flat_row = next_var_++;
    Stored stored;
    Expr here = d_.rows.empty() ? integer(0) : loop::index(flat_row);
    for (auto& f : folds) {
      Merge merge = store_pieces(partial, s, f, here);
      stored[f.get()] = store_combined(combine, s, f, here, merge);
      merge_var_ += 8;
    }
    add_partial(std::move(partial), s);
    add_combine(std::move(combine), s, flat_row);
    return stored;
  }

  // `fold` restricted to one chunk.
  Expr piece_of(const Split& s, Expr fold) {
    std::vector<loop::BoundVar> bound;
    for (auto& b : fold->bound)
      bound.push_back({b.var, b.var == d_.split ? loop::min(b.extent - s.first, s.chunk_size) : b.extent});
    std::pair<int, Expr> shift{d_.split, s.first + loop::index(d_.split)};
    std::vector<Expr> values;
    for (auto& x : fold->args) values.push_back(loop::substitute(x, std::span(&shift, 1)));
    return loop::reduce(fold->monoid, bound, values);
  }
  // Stores the chunks' partial results of `f`; gives the Merge that combines those of row `here`.
  Merge store_pieces(NestSpec& partial, const Split& s, Expr f, Expr here) {
    Expr piece = piece_of(s, f);
    int count = loop::components(f->monoid);
    DType own = f->args[0].dtype();
    // Products of long pieces would pass through subnormal float32 numbers, which are a hundred times slower.
    bool product = f->monoid == Monoid::prod,
         wide = own == DType::Float32 && (product || f->monoid == Monoid::welford);
    std::vector<Expr> moments;
    if (wide && !product) moments = wide_moments(piece);
    if (wide && product)
      moments = {in_two_sweeps(
          loop::reduce(Monoid::prod, piece->bound, {loop::cast(piece->args[0], DType::Float64)}))};
    Merge merge{f->monoid, wide ? DType::Float64 : own, merge_var_, {s.c, s.chunk_count}, {}};
    for (int k = 0; k < count; ++k) {
      Expr value = wide         ? moments[size_t(k)]
                   : count == 1 ? in_two_sweeps(piece)
                                : in_two_sweeps(loop::part(piece, k));
      DType d = value.dtype();
      int of_chunks = temporary(d, [chunks = s.chunks, row_count = s.row_count](const Numbers& n) {
        return times(chunks(n), row_count(n));
      });
      partial.stores.push_back(
          {.buffer = of_chunks, .value = value, .offset = loop::index(s.c) * s.rows + s.row});
      merge.parts.push_back(loop::load(of_chunks, d, {loop::index(s.c) * s.rows + here}));
    }
    return merge;
  }
  // Stores the combination of the partial results; gives the loads that read it.
  std::vector<Expr> store_combined(NestSpec& combine, const Split& s, Expr f, Expr here, const Merge& merge) {
    bool pairwise = f->monoid == Monoid::welford || f->monoid == Monoid::logsumexp;
    int count = loop::components(f->monoid);
    DType own = f->args[0].dtype();
    std::vector<Expr> loads;
    for (int k = 0; k < count; ++k) {
      DType d = merge.parts[size_t(k)].dtype();
      Expr value = loop::local(merge.var + k, d);
      if (!pairwise) {
        Expr all = loop::reduce(f->monoid, {{s.c, s.chunk_count}}, merge.parts);
        value = count == 1 ? all : loop::part(all, k);
      }
      if (merge.dtype != own) value = loop::cast(value, d = own);
      int of_rows = temporary(d, s.row_count);
      combine.stores.push_back({.buffer = of_rows, .value = value, .offset = here});
      loads.push_back(loop::load(of_rows, d, {s.row}));
    }
    if (pairwise) combine.merges.push_back(merge);
    return loads;
  }

  void add_partial(NestSpec partial, const Split& s) {
    partial.rows.push_back({s.c, s.chunk_count});
    for (auto& l : s.row_loops) partial.rows.push_back(l);
    partial.row_vector = partial.chunked = s.lanes;
    for (int v : d_.domain_vectors)
      if (v >= 0) partial.vectors.push_back(v);
    auto rest_rows = d_.rows;
    if (s.lanes) rest_rows.pop_back();
    auto pieces = [chunks = s.chunks, rest_count = counter(rest_rows)](const Numbers& n) {
      return times(chunks(n), rest_count(n));
    };
    auto piece_size = [chunk = s.chunk, other_count = s.other_count](const Numbers& n) {
      return std::max<int64_t>(1, times(chunk(n), other_count(n)));
    };
    tile(partial, {s.row_lanes, pieces, piece_size, "partial"}, kChunkElements, work_of(partial.stores));
    add(std::move(partial));
  }
  void add_combine(NestSpec combine, const Split& s, int flat_row) {
    if (d_.rows.empty()) {
      if (combine.merges.empty()) combine.vectors.push_back(s.c);
      combine.tasks = integer(1);
      combine.cost = s.chunk_count;
    } else {
      combine.rows.push_back({flat_row, s.rows});
      combine.row_vector = combine.chunked = true;
      tile(combine, {s.row_count, [](const Numbers&) { return int64_t(1); }, s.chunks, "combine"},
           kChunkElements, 4);
    }
    add(std::move(combine));
  }

  // Removes and returns the stores that have the same sweep as the first one.
  static std::vector<FlatStore> take_one_sweep(std::vector<FlatStore>& stores) {
    std::vector<Loop> sweep = stores[0].sweep;
    std::vector<FlatStore> chosen, left;
    for (auto& s : stores) {
      bool same_sweep = s.sweep.size() == sweep.size();
      for (size_t k = 0; same_sweep && k < sweep.size(); ++k) same_sweep = s.sweep[k].var == sweep[k].var;
      (same_sweep ? chosen : left).push_back(s);
    }
    stores = std::move(left);
    return chosen;
  }
  // The rows and the domain loops of `sweep`, with the loop that runs in lanes last.
  std::vector<Merged> map_loops(const std::vector<Loop>& sweep) {
    auto swept = [&](int v) {
      return std::any_of(sweep.begin(), sweep.end(), [&](const Loop& x) { return x.var == v; });
    };
    std::vector<Merged> loops = d_.rows;
    for (auto& m : d_.domains[0])
      if (swept(m.back())) loops.push_back(m);
    int vector = d_.row_vector >= 0            ? d_.row_vector
                 : swept(d_.domain_vectors[0]) ? d_.domain_vectors[0]
                 : loops.empty()               ? -1
                                               : loops.back().back();
    for (size_t k = 0; k < loops.size(); ++k)
      if (loops[k].back() == vector) {
        std::rotate(loops.begin() + long(k), loops.begin() + long(k) + 1, loops.end());
        break;
      }
    return loops;
  }
  void map_nest(std::vector<FlatStore> stores) {
    NestSpec map;
    map.name = name_ + "_map";
    auto loops = map_loops(stores[0].sweep);
    for (auto& s : stores) s.sweep.clear();
    map.rows = loops_of(loops);
    map.row_vector = map.chunked = !loops.empty();
    double operations = work_of(stores);
    map.stores = std::move(stores);
    if (loops.empty()) {
      map.tasks = integer(1);
      map.cost = integer(1);
    } else {
      Merged last = loops.back();
      std::vector<Merged> rest(loops.begin(), loops.end() - 1);
      tile(map, {counter({last}), counter(rest), [](const Numbers&) { return int64_t(1); }, text(loops)},
           task_elements(a_), operations);
    }
    add(std::move(map));
  }

  // Stores expensive row values before the sweep. When lanes run along the domain, they would otherwise be recomputed
  // for every element (for example the reciprocal of a channel's deviation in batch_norm).
  void precompute(std::vector<FlatStore>& stores, Expr row,
                  std::function<int64_t(const Numbers&)> row_count) {
    for (auto& b : buffers_)
      if (!b.unique) return;
    std::unordered_map<const loop::Node*, Expr> stored;
    std::vector<FlatStore> first;
    auto worth = [&](Expr e) {
      if (e->kind != Kind::call || !is_floating(e.dtype()) ||
          operation_count(std::span(&e, 1)) < kPrecomputed)
        return false;
      if (!of_rows(e)) return false;
      bool pure = true;
      loop::visit(e, [&](Expr x) {
        pure &= x->kind != Kind::random && x->kind != Kind::check && x->kind != Kind::divisor;
      });
      return pure;
    };
    for (auto& s : stores) {
      if (s.sweep.empty()) continue;
      s.value = loop::rewrite(s.value, [&](Expr x) -> Expr {
        if (auto it = stored.find(x.get()); it != stored.end()) return it->second;
        if (x->kind == Kind::select)
          return x;  // a side of the select may load an element that does not exist in the other case
        if (!worth(x)) return {};
        FlatStore f;
        f.buffer = temporary(x.dtype(), row_count);
        f.value = x;
        f.offset = row;
        first.push_back(f);
        return stored[x.get()] = loop::load(f.buffer, x.dtype(), {row});
      });
    }
    stores.insert(stores.begin(), first.begin(), first.end());
  }

  static Expr replaced(Expr e, const Stored& stored) {
    return loop::rewrite(e, [&](Expr x) -> Expr {
      if (!x->has_reduce) return x;
      if (x->kind == Kind::part)
        if (auto it = stored.find(x->args[0].get()); it != stored.end()) return it->second[size_t(x->slot)];
      auto it = stored.find(x.get());
      return it == stored.end() ? Expr() : it->second[0];
    });
  }

  const std::string& name_;
  const Analysis& a_;
  const Decisions& d_;
  std::vector<IndexedNest> indexed_;
  Built built_;
  std::vector<BufferInfo> buffers_;
  std::vector<Recipe> recipes_;
  std::map<std::string, int> numbers_;
  std::unordered_map<const loop::Node*, size_t> at_;
  std::unordered_map<const loop::Node*, Expr> flat_;
  std::vector<size_t> computed_at_;
  int next_var_ = 0, merge_var_ = 1 << 12;
};

}  // namespace

Built build(const std::string& name, const Analysis& a, const Decisions& d,
            std::vector<IndexedNest> indexed) {
  return Builder(name, a, d, std::move(indexed)).run();
}

}  // namespace facula::schedule
