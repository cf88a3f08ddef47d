#include "facula/schedule/build.h"

#include <algorithm>
#include <unordered_set>

#include "facula/schedule/launches.h"
#include "facula/schedule/moments.h"
#include "facula/schedule/split.h"

namespace facula::schedule {

using loop::Expr;
using loop::Kind;

namespace {

// Pieces into which a scatter's places are divided, which bounds the number of threads.
constexpr int64_t kShares = 64;
// Elements of a share of slices, which stay in the cache between updates.
constexpr int64_t kNearSlices = 65536;
// From this many elements on, updating a slice takes much longer than testing which task owns it.
constexpr int64_t kLooksWorth = 16;

// One nest of rows, each with its sweeps over reduction domains.
class RowNest : LaunchBuilder {
 public:
  using LaunchBuilder::LaunchBuilder;
  Built run() {
    auto all = stores();
    for (auto& s : all) s.value = in_two_sweeps(s.value);
    rows_nest(std::move(all));
    return take();
  }

 private:
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
      Expr l = flattened(node);
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
};

// One nest that scatters updates onto its result.
class ScatterNest : LaunchBuilder {
 public:
  using LaunchBuilder::LaunchBuilder;
  Built run() {
    scatter(stores());
    return take();
  }

 private:
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
      Loop over{new_var(), param("size " + std::to_string(d) + " of the result",
                                 [d](const Numbers& n) { return n.layout->output_sizes[0][d]; })};
      bool nearest = d_.begins_along == int(d);
      s.offset =
          s.offset + (nearest ? loop::index(over.var) : loop::index(over.var) * stride(out.buffer, {d}));
      s.sweep.insert(nearest ? s.sweep.end() : s.sweep.begin(), over);
    }
    if (spec.unit) {
      s.sweep.push_back({new_var(), spec.span});
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
};

}  // namespace

Built build(const std::string& name, const Analysis& a, const Decisions& d,
            std::vector<IndexedNest> indexed) {
  if (a.scatter) return ScatterNest(name, a, d, std::move(indexed)).run();
  if (d.split >= 0) return build_split(name, a, d, std::move(indexed));
  return RowNest(name, a, d, std::move(indexed)).run();
}

}  // namespace facula::schedule
