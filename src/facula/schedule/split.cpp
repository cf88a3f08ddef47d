#include "facula/schedule/split.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "facula/schedule/launches.h"
#include "facula/schedule/moments.h"

namespace facula::schedule {

using loop::Expr;
using loop::Kind;
using loop::Monoid;

namespace {

constexpr int64_t kChunkElements = 16384;  // of a split reduction
// Row values with at least this many operations are stored instead of being recomputed for each element.
constexpr double kPrecomputed = 5;

// Partial results of chunks, then their combination, level by level; then the rest.
class SplitNests : LaunchBuilder {
 public:
  using LaunchBuilder::LaunchBuilder;
  Built run() {
    if (d_.split == a_.scan_axis) split_scans(stores());
    else split(stores());
    return take();
  }

 private:
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
    Count row_count, row_lanes, other_count, chunk, chunks;
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

  // Totals of chunks, then those of all chunks before each, then the chunks' scans behind them
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
    int flat_row = new_var(), place = new_var();
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
    s.c = new_var();
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
    int flat_row = new_var();
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
  void precompute(std::vector<FlatStore>& stores, Expr row, Count row_count) {
    for (auto& b : buffers())
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

  int merge_var_ = 1 << 12;
};

}  // namespace

Built build_split(const std::string& name, const Analysis& a, const Decisions& d,
                  std::vector<IndexedNest> indexed) {
  return SplitNests(name, a, d, std::move(indexed)).run();
}

}  // namespace facula::schedule
