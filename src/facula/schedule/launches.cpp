#include "facula/schedule/launches.h"

#include <algorithm>

namespace facula::schedule {

using loop::Expr;
using loop::Kind;

namespace {

// A scatter's task visits every row and needs a page table entry for each.
constexpr int64_t kScatterBlock = 256;
// Row block if each lane reduces: what the generator holds in registers at a time.
constexpr int64_t kStripBlock = 128;

// Translates parameter numbers into those of the nest.
Expr numbered(Expr e, const std::vector<int>& numbers) {
  return loop::rewrite(e, [&](Expr x) {
    if (x->kind != Kind::param) return Expr();
    auto at = std::find(numbers.begin(), numbers.end(), x->slot);
    internal_check(at != numbers.end()) << "schedule: a parameter of the tasks is none of the nest";
    return loop::param(int(at - numbers.begin()));
  });
}

}  // namespace

LaunchBuilder::LaunchBuilder(const std::string& name, const Analysis& a, const Decisions& d,
                             std::vector<IndexedNest> indexed)
    : Flattener(a, d), name_(name), indexed_(std::move(indexed)) {
  bool overlap = std::find(d.overlaps.begin(), d.overlaps.end(), 1) != d.overlaps.end();
  for (size_t k = 0; k < a.dtypes.size(); ++k) {
    bool output = int(k) >= a.inputs;
    size_t o = k - size_t(a.inputs);
    bool shared = output ? o < d.overlaps.size() && d.overlaps[o] : overlap;
    buffers_.push_back({a.dtypes[k], !shared, false});
  }
}

std::vector<FlatStore> LaunchBuilder::stores() {
  std::vector<FlatStore> stores;
  for (auto& o : a_.outputs) {
    FlatStore s;
    s.buffer = o.buffer;
    s.part = o.part;
    s.value = flat(o.value);
    DType memory = a_.dtypes[size_t(o.buffer)];
    bool rounds_twice = s.value->kind == Kind::cast && s.value->memory == memory && s.value.dtype() != memory;
    if (rounds_twice) s.value = s.value->args[0];  // storing rounds
    s.offset = offset(size_t(o.access));
    for (size_t b = 0; b < d_.domains.size(); ++b)
      for (auto& m : d_.domains[b])
        if (!a_.scatter && std::find(o.axes.begin(), o.axes.end(), m.back()) != o.axes.end())
          s.sweep.push_back({m.back(), extent(m)});
    stores.push_back(std::move(s));
  }
  return stores;
}

double LaunchBuilder::work_of(const std::vector<FlatStore>& stores) {
  std::vector<Expr> values;
  for (auto& s : stores) values.push_back(s.value);
  return operation_count(values) + double(stores.size());
}

void LaunchBuilder::tile(NestSpec& spec, const Shape& s, int64_t elements, double operations) {
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
    spec.chunks = param("tiles " + key, [=](const Numbers& n) { return ceil_div(lanes(n), side(lanes(n))); });
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
    spec.tasks =
        param("tasks " + key, [=](const Numbers& n) { return times(rest(n), ceil_div(lanes(n), chunk(n))); });
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

void LaunchBuilder::add(NestSpec spec) {
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
  for (int r : launch.numbers) launch.params.push_back(recipes()[size_t(r)]);
  built_.launches.push_back(std::move(launch));
}
bool LaunchBuilder::fits(const IndexedNest& n) const {
  auto are_numbers = [](const std::vector<int>& list, size_t end) {
    return std::all_of(list.begin(), list.end(), [&](int i) { return i >= 0 && size_t(i) < end; });
  };
  return are_numbers(n.buffers, buffers_.size()) && are_numbers(n.params, recipes().size());
}
int LaunchBuilder::temporary(DType d, std::function<int64_t(const Numbers&)> numel) {
  built_.temporaries.push_back({d, std::move(numel)});
  buffers_.push_back({d, true, false});
  return int(buffers_.size()) - 1;
}
}  // namespace facula::schedule
