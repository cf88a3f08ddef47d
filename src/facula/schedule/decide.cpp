#include "facula/schedule/decide.h"

#include <algorithm>
#include <charconv>

#include "facula/loop/simplify.h"

namespace facula::schedule {

using loop::Expr;
using loop::Fn;
using loop::Kind;

namespace {

constexpr int64_t kTaskOperations = 16384;
constexpr int64_t kFewTasks = 8;         // fewer tasks than this do not occupy many threads
constexpr int64_t kSplitFrom = 1 << 16;  // from this many elements on, two launches pay
constexpr int64_t kShortRow = 16;        // elements of a short row that registers hold for a vector of rows
constexpr int64_t kMostPhases = 4;
constexpr int64_t kListed = 64;    // from this many places on, a list pays
constexpr int64_t kShared = 4096;  // from this many places on, sharing them among threads pays
constexpr int64_t kNear = 16384;   // size of the first-level cache, in bytes

int64_t floor_div(int64_t a, int64_t b) {
  if (!b) return 0;
  int64_t q = a / b;
  return q - (a % b != 0 && (a < 0) != (b < 0));
}

// Orders variables by stride, largest first: by the strides of stores, then of loads.
bool outer_first(const Numbers& n, int a, int b) {
  for (auto kind : {Access::Kind::store, Access::Kind::load})
    for (auto& access : n.analysis->accesses) {
      if (access.kind != kind) continue;
      int64_t x = std::abs(n.coefficient(access, a)), y = std::abs(n.coefficient(access, b));
      if (x != y && x && y) return x > y;
    }
  return a < b;
}

std::vector<Merged> ordered(const Numbers& n, std::vector<int> vars, bool keep_order) {
  if (!keep_order)  // insertion: the relation need not be transitive where operands disagree
    for (size_t i = 1; i < vars.size(); ++i)
      for (size_t j = i; j > 0 && outer_first(n, vars[j], vars[j - 1]); --j) std::swap(vars[j], vars[j - 1]);
  std::vector<Merged> merged;
  for (int v : vars) {
    auto& all = n.analysis->vars;
    bool joins = !merged.empty() && all[size_t(v)].plain && !all[size_t(v)].ragged;
    if (joins) {
      int u = merged.back().back();
      joins = all[size_t(u)].plain && !all[size_t(u)].ragged;
      for (auto& a : n.analysis->accesses)
        joins = joins && n.coefficient(a, u) == n.coefficient(a, v) * n.extents[size_t(v)];
    }
    if (joins) merged.back().push_back(v);
    else merged.push_back({v});
  }
  return merged;
}

// The bytes per element that are accessed contiguously if `v` runs in lanes, weighted by the extent of each access,
// so that an operand with one value per row counts little.
double contiguous_bytes(const Numbers& n, int v) {
  double bytes = 0;
  for (auto& a : n.analysis->accesses) {
    if (a.kind == Access::Kind::position) continue;
    bool contiguous = n.coefficient(a, v) == 1, computed = false;
    SmallVector<int, 8> covered;
    auto cover = [&](int u) {
      if (std::find(covered.begin(), covered.end(), u) == covered.end()) covered.push_back(u);
    };
    for (size_t d = 0; d < a.dims.size(); ++d) {
      if (a.dims[d] >= 0 && n.stride(a.buffer, d)) cover(a.dims[d]);
      if (a.dims[d] != Access::kComputed) continue;
      auto& f = a.computed_of[d];
      for (int u : f) cover(u);
      computed |= n.stride(a.buffer, d) == 1 && std::find(f.begin(), f.end(), v) != f.end();
    }
    if (!contiguous && !computed) continue;
    double volume = 1;
    for (int u : covered)
      if (size_t(u) < n.extents.size()) volume *= double(n.extents[size_t(u)]);
    bytes += volume * a.bytes * (contiguous ? a.kind == Access::Kind::store ? 1.01 : 1 : 0.25);
  }
  return bytes;
}

// True if every operand that has an element for each (row, domain) pair stores rows of `extent` elements one behind
// the other. Their vectors can then be loaded whole and transposed in registers.
bool are_short_rows(const Numbers& n, int row, int domain, int64_t extent) {
  if (extent < 2 || extent > kShortRow || n.extents[size_t(row)] < 2) return false;
  bool any = false;
  for (auto& a : n.analysis->accesses) {
    if (a.kind == Access::Kind::position) continue;
    if (std::count(a.dims.begin(), a.dims.end(), Access::kComputed)) return false;
    int64_t along = n.coefficient(a, row), inside = n.coefficient(a, domain);
    bool is_short_row = along == extent && inside == 1;
    if (!is_short_row && along != 0 && !(along == 1 && inside == 0)) return false;
    any |= is_short_row;
  }
  return any;
}

void move_last(std::vector<Merged>& loops, int v) {
  for (size_t k = 0; k < loops.size(); ++k)
    if (loops[k].back() == v) std::rotate(loops.begin() + long(k), loops.begin() + long(k) + 1, loops.end());
}

// Makes the decisions for one call in stages; each stage reads the decisions before it.
class Decider {
 public:
  Decider(const Analysis& a, const Numbers& n) : a_(a), n_(n) {}

  Decisions run() {
    d_.rows = ordered(n_, a_.rows, false);
    for (auto& b : a_.domains) d_.domains.push_back(ordered(n_, b.vars, b.ordered));
    d_.domain_vectors.assign(a_.domains.size(), -1);
    choose_vectors();
    choose_tiles();
    inner_ = widest_domain();
    lanes_ = d_.row_vector >= 0 ? n_.count(d_.rows.back()) : 1;
    d_.chunked =
        d_.row_vector >= 0 && (d_.rows.size() == 1 || d_.tiled || times(lanes_, inner_) > task_elements(a_));
    choose_split();
    choose_phases();
    choose_row_array();
    choose_lists();
    d_.shares_places = shares_places() || shares_slices();
    if (d_.shares_places) d_.chunked = false;
    if (!(d_.shares_places ? is_result_dense() : owns_result())) d_.begins_along = -1;
    classify_strides();
    for (bool o : n_.layout->output_overlaps) d_.overlaps.push_back(o);
    return std::move(d_);
  }

 private:
  // A loop that could run in lanes, and the bytes that would be contiguous.
  struct Vector {
    double bytes = -1;
    int var = -1;
  };
  Vector best(const std::vector<Merged>& loops, bool last_only) const {
    Vector widest;
    for (size_t k = last_only && !loops.empty() ? loops.size() - 1 : 0; k < loops.size(); ++k) {
      auto& m = loops[k];
      if (a_.vars[size_t(m.back())].ragged) continue;
      // A single element is not a vector, even if it has neighbours.
      double bytes = n_.count(m) > 1 ? contiguous_bytes(n_, m.back()) : 0;
      if (bytes >= widest.bytes) widest = {bytes, m.back()};
    }
    return widest;
  }
  int64_t extent(const std::vector<Merged>& loops, int v) const {
    for (auto& m : loops)
      if (m.back() == v) return n_.count(m);
    return 0;
  }
  int64_t widest_domain() const {
    int64_t most = 1;
    for (auto& b : d_.domains) most = std::max(most, n_.count(b));
    return most;
  }

  // Chooses what runs in lanes: a row loop, or one loop of each domain.
  void choose_vectors() {
    Vector row = best(d_.rows, false);
    choose_domain_vectors();
    if (a_.scatter) {
      d_.domain_vectors.assign(a_.domains.size(), -1);
      // Lanes that only step from row to row would revisit each cache line once per element of it.
      if ((!meets_target(row.var) || row.var == innermost()) && row.bytes > 0) d_.row_vector = row.var;
    } else if (row.var >= 0 && rows_run_in_lanes(row)) {
      d_.row_vector = row.var;
    }
    if (d_.row_vector >= 0) {
      move_last(d_.rows, d_.row_vector);
      std::fill(d_.domain_vectors.begin(), d_.domain_vectors.end(), -1);
    }
    for (size_t b = 0; b < d_.domains.size(); ++b)
      if (d_.domain_vectors[b] >= 0) move_last(d_.domains[b], d_.domain_vectors[b]);
  }
  void choose_domain_vectors() {
    for (size_t b = 0; b < d_.domains.size(); ++b) {
      auto& vars = a_.domains[b].vars;
      bool in_scan = a_.scan_axis >= 0 && std::find(vars.begin(), vars.end(), a_.scan_axis) != vars.end();
      Vector v = in_scan ? along_scan() : best(d_.domains[b], a_.domains[b].ordered);
      d_.domain_vectors[b] = v.var;
      if (in_scan)
        domain_bytes_ = contiguous_bytes(n_, a_.scan_axis), domain_extent_ = n_.extents[size_t(a_.scan_axis)];
      if (v.bytes > domain_bytes_) domain_bytes_ = v.bytes, domain_extent_ = extent(d_.domains[b], v.var);
    }
  }
  // Running lanes along a scan costs additional combination steps, which contiguous accesses have to outweigh.
  Vector along_scan() const {
    auto beside = [&](const Access& x) {
      bool computed =
          x.kind == Access::Kind::load && std::count(x.dims.begin(), x.dims.end(), Access::kComputed);
      int64_t c = n_.coefficient(x, a_.scan_axis);
      return x.kind == Access::Kind::position || computed || c == 0 || c == 1;
    };
    bool worth = n_.extents[size_t(a_.scan_axis)] > kShortRow && !a_.vars[size_t(a_.scan_axis)].ragged &&
                 std::all_of(a_.accesses.begin(), a_.accesses.end(), beside);
    return worth ? Vector{contiguous_bytes(n_, a_.scan_axis), a_.scan_axis} : Vector();
  }
  int innermost() const {
    int v = a_.axes - 1;
    while (v > 0 && n_.extents[size_t(v)] == 1) --v;
    return v;
  }
  // True if lanes along `v` would store to computed places.
  bool meets_target(int v) const {
    bool meets = false;
    for (auto& o : a_.outputs)
      for (auto& t : o.target)
        if (t->kind != Kind::index)
          for (int u : free_vars(t)) meets |= u == v;
    return meets;
  }
  bool rows_run_in_lanes(Vector row) {
    int64_t lanes = extent(d_.rows, row.var);
    bool rows_in_lanes = a_.domains.empty() || row.bytes > domain_bytes_ || domain_bytes_ < 0;
    if (d_.domains.size() == 1 && d_.domains[0].size() == 1 && lanes >= 32) {
      int64_t inside = n_.count(d_.domains[0]);
      if (are_short_rows(n_, row.var, d_.domains[0][0].back(), inside)) d_.short_rows = inside;
      rows_in_lanes |= d_.short_rows > 0;
    }
    if (a_.domains.empty() || domain_bytes_ < 0) return rows_in_lanes;
    // A few elements fill only a part of a vector, unless many vectors of them are accumulated before lanes are
    // folded.
    bool short_domain = domain_extent_ <= 2 || (domain_extent_ <= 8 && widest_domain() <= kShortRow);
    if (!rows_in_lanes && short_domain && lanes >= 32) rows_in_lanes = true;
    if (rows_in_lanes && lanes < 8 && domain_extent_ >= 32) rows_in_lanes = false;
    return rows_in_lanes;
  }

  // Chooses tiles if an operand is contiguous along another loop than the one in lanes.
  void choose_tiles() {
    if (!a_.domains.empty() || d_.row_vector < 0 || d_.rows.size() <= 1) return;
    auto is_contiguous_along = [&](const Access& x, int v) {
      return x.kind != Access::Kind::position && n_.coefficient(x, v) == 1 &&
             std::abs(n_.coefficient(x, d_.row_vector)) > 1;
    };
    for (auto& x : a_.accesses)
      for (auto& m : d_.rows)
        if (!d_.tiled && m.back() != d_.row_vector && n_.count(m) >= 4 && is_contiguous_along(x, m.back())) {
          int v = m.back();
          move_last(d_.rows, v);
          move_last(d_.rows, d_.row_vector);
          d_.tiled = true;
        }
  }

  // Decides whether to split a reduction into chunks, because it has few rows.
  void choose_split() {
    int64_t rows = n_.count(d_.rows);
    if (a_.scan_axis >= 0 && d_.row_vector < 0 && rows > 0 && rows < kFewTasks &&
        times(rows, inner_) >= kSplitFrom && are_totals_enough())
      d_.split = a_.scan_axis;
    if (!a_.reduces || a_.scan_axis >= 0 || d_.domains.size() != 1 || rows <= 0 || d_.short_rows ||
        times(rows, inner_) < kSplitFrom)
      return;
    int64_t tasks = d_.row_vector >= 0 ? rows / std::max<int64_t>(lanes_, 1) * ((lanes_ + 63) / 64) : rows;
    // If lanes walk down a large domain and store to something contiguous along it, all stores fall into the same few
    // cache sets; a separate map in memory order avoids that.
    auto inner = [&](const Output& o) {
      auto& access = a_.accesses[size_t(o.access)];
      int64_t bytes = 0;
      for (auto& m : d_.domains[0])
        bytes += times(times(n_.count(m) - 1, std::abs(n_.coefficient(access, m.back()))), access.bytes);
      return access.inner && bytes > kNear;
    };
    bool writes_inside = d_.row_vector >= 0 && std::any_of(a_.outputs.begin(), a_.outputs.end(), inner);
    if (tasks >= kFewTasks && !writes_inside) return;
    auto& loops = d_.domains[0];
    const Merged* widest = &loops[0];
    if (!a_.domains[0].ordered)
      for (auto& m : loops)
        if (n_.count(m) > n_.count(*widest)) widest = &m;
    if (n_.count(*widest) >= 16) d_.split = widest->back();
  }
  // True if a scan can continue from the total of everything before it, in whatever order that was accumulated. The
  // maximum of a positive and a negative zero depends on the order. With 64-bit elements memory is the bottleneck, so
  // reading them twice does not pay.
  bool are_totals_enough() const {
    if (d_.domains.size() != 1 || d_.domains[0].size() != 1 || d_.domains[0][0].size() != 1) return false;
    int bytes = 0;
    for (auto& x : a_.accesses)
      if (x.kind == Access::Kind::load) bytes += x.bytes;
    bool yes = bytes <= 4;
    for (auto& o : a_.outputs) {
      yes &= a_.accesses[size_t(o.access)].inner;
      loop::visit(o.value, [&](Expr x) {
        if (x->kind == Kind::reduce) yes = false;
        if (x->kind != Kind::scan) return;
        bool zeros =
            is_floating(x.dtype()) && (x->monoid == loop::Monoid::max || x->monoid == loop::Monoid::min);
        yes &= loop::components(x->monoid) == 1 && !x->args[0]->has_reduce && !zeros;
        yes &= x->monoid != loop::Monoid::prod || !is_floating(x.dtype());
      });
    }
    return yes;
  }
  void choose_phases() {
    if (d_.row_vector < 0 || a_.scatter || a_.scan_axis >= 0 || d_.tiled || d_.short_rows || d_.split >= 0 ||
        d_.rows.back().size() != 1)
      return;
    int64_t by = a_.periods[size_t(d_.row_vector)];
    bool fits = by <= kMostPhases && times(by, inner_) <= 2 * kShortRow && lanes_ % by == 0 &&
                lanes_ / by >= kShortRow / 2;
    for (auto& o : a_.outputs) fits &= n_.coefficient(a_.accesses[size_t(o.access)], d_.row_vector) == 1;
    if (fits) d_.phases = by;
  }

  // Decides about keeping row values in an array: a 16-bit result cannot hold intermediates of higher precision.
  void choose_row_array() {
    bool narrow = false;
    for (auto& o : a_.outputs) {
      DType d = a_.dtypes[size_t(o.buffer)];
      narrow |= is_floating(d) && itemsize(d) == 2 && !o.axes.empty();
    }
    d_.keeps_row = narrow && a_.reduces && d_.row_vector < 0 && d_.split < 0 && d_.domains.size() == 1 &&
                   inner_ <= kKeptRow;
  }

  // Updating single elements of a scatter is so cheap that checking their indices takes a large part of the time;
  // lanes check many indices at a time.
  void choose_lists() {
    if (!a_.scatter || d_.domains[0].empty()) return;
    d_.lists_places = n_.count(d_.row_vector < 0 ? d_.domains[0].back() : d_.rows.back()) >= kListed;
  }

  // True if a single row accumulates into a large result. Each thread then lists the updates that go to its share of
  // the places and performs them in domain order, which is independent of the number of threads.
  bool shares_places() const {
    if (!d_.lists_places || d_.row_vector >= 0 || n_.count(d_.rows) != 1 ||
        n_.count(d_.domains[0]) < kSplitFrom || span_of_result(n_) < kShared)
      return false;
    return std::any_of(a_.accesses.begin(), a_.accesses.end(), [&](const Access& x) {
      return x.kind == Access::Kind::load && x.buffer == a_.inputs;
    });
  }
  // True if rows are contiguous slices of the result that run in lanes. Tasks then own shares of the slices. (Pieces
  // of all slices would be a page or more apart and fall into few cache sets.)
  bool shares_slices() {
    if (!a_.scatter || d_.row_vector < 0 || d_.rows.size() != 1 || d_.domains[0].empty() ||
        times(n_.count(d_.domains[0]), lanes_) < kSplitFrom || span_of_result(n_) < kShared ||
        meets_target(d_.row_vector))
      return false;
    auto& out = a_.outputs[0];
    for (size_t d = 0; d < out.axes.size(); ++d) {
      bool row = std::count(a_.rows.begin(), a_.rows.end(), out.axes[d]);
      if (!row && n_.layout->output_sizes[0][d] > 1 && n_.stride(out.buffer, d) % lanes_) return false;
    }
    d_.lists_places = n_.count(d_.domains[0].back()) >= kListed;
    return n_.coefficient(a_.accesses[size_t(out.access)], d_.row_vector) == 1;
  }
  bool is_in_place() const {
    auto& overlaps = n_.layout->output_overlaps;
    return !overlaps.empty() && overlaps[0];
  }
  // True if the base has the result's stride in dimension `d`, or if there is no base but zeros.
  bool is_base_alike(size_t d) const {
    return a_.base < 0 || n_.layout->output_sizes[0][d] == 1 ||
           n_.stride(a_.base, d) == n_.stride(a_.outputs[0].buffer, d);
  }
  // True if result and base are contiguous as a whole.
  bool is_result_dense() {
    if (is_in_place() || a_.outputs.size() != 1) return false;
    int64_t count = 1;
    for (size_t d = 0; d < n_.layout->output_sizes[0].size(); ++d) {
      if (!is_base_alike(d)) return false;
      count = times(count, n_.layout->output_sizes[0][d]);
    }
    d_.begins_along = 0;  // any dimension will do
    return count == span_of_result(n_);
  }

  // True if the rows of a scatter are whole slices of its result, enough of them for many threads, and not much
  // larger than what is updated. If a task writes the base of its slices first, they are in its cache when it updates
  // them. (Pieces of rows are too far apart for that.)
  bool owns_result() {
    auto& l = *n_.layout;
    if (!a_.scatter || is_in_place() || a_.outputs.size() != 1 || n_.count(d_.rows) < kFewTasks) return false;
    auto& out = a_.outputs[0];
    int64_t swept = 1;
    size_t rows = 0;
    for (size_t d = 0; d < out.axes.size(); ++d) {
      int64_t size = l.output_sizes[0][d], stride = n_.stride(out.buffer, d);
      bool row = std::count(a_.rows.begin(), a_.rows.end(), out.axes[d]);
      if (!is_base_alike(d) || (row && n_.extents[size_t(out.axes[d])] != size)) return false;
      rows += row;
      // If lanes are rows, a row begins with the lanes of all places.
      if (stride == 1 && size >= kListed && (d_.row_vector < 0 ? !row : out.axes[d] == d_.row_vector))
        d_.begins_along = int(d);
      if (!row) swept = times(swept, size);
    }
    return d_.begins_along >= 0 && rows == a_.rows.size() && n_.count(d_.domains[0]) >= swept / 4;
  }

  // Chooses the strides that the nest knows: those of the loops in lanes, and, of a scatter without lanes, those of
  // the innermost loop, since computing places is a good part of its work. If the domain is empty none is known: an
  // index that does not vary would be checked before the loop.
  void classify_strides() {
    size_t vars = a_.vars.size();
    d_.classes.assign(a_.accesses.size() * vars, -1);
    std::vector<int> vectors = d_.domain_vectors;
    vectors.push_back(d_.row_vector);
    if (d_.short_rows) vectors.push_back(d_.domains[0][0].back());
    if (d_.tiled) vectors.push_back(d_.rows[d_.rows.size() - 2].back());
    bool singly = std::all_of(vectors.begin(), vectors.end(), [](int v) { return v < 0; });
    if (a_.scatter && singly)
      for (auto& loops : d_.domains)
        if (!loops.empty() && n_.count(loops) > 0) vectors.push_back(loops.back().back());
    for (size_t k = 0; k < a_.accesses.size(); ++k) {
      auto& access = a_.accesses[k];
      for (int v : vectors) {
        if (v < 0) continue;
        int64_t c = n_.coefficient(access, v);
        // Elements at most eight apart are picked out of whole vectors.
        bool apart = (!singly && c >= 2 && c <= 8 && access.kind == Access::Kind::load) ||
                     (c == d_.short_rows && c && v == d_.row_vector);
        if (c == 0 || c == 1 || apart) d_.classes[k * vars + size_t(v)] = int8_t(c);
      }
      for (size_t i = 0; i < access.dims.size(); ++i)
        if (access.dims[i] == Access::kComputed) {
          int64_t c = n_.stride(access.buffer, i);
          bool in_nest = c == 1 || (d_.phases > 1 && c >= 2 && c <= 8 && access.kind == Access::Kind::load);
          d_.computed_strides.push_back(in_nest ? int8_t(c) : 0);
        }
    }
  }

  const Analysis& a_;
  const Numbers& n_;
  Decisions d_;
  double domain_bytes_ = -1;  // of the best loop of any domain
  int64_t domain_extent_ = 0;
  int64_t inner_ = 1, lanes_ = 1;  // inner_: elements of the largest domain; lanes_: of the loop in lanes
};

}  // namespace

int64_t times(int64_t a, int64_t b) {
  constexpr int64_t kMost = int64_t(1) << 61;
  int64_t n;
  return __builtin_mul_overflow(a, b, &n) || n > kMost ? kMost : n;
}

int64_t evaluate(Expr e, const Layout& l) {
  switch (e->kind) {
    case Kind::constant: return e->value.to_int();
    case Kind::size: return e->size.is_symbolic() ? l.size_of(e->size) : e->size.concrete();
    case Kind::cast: return evaluate(e->args[0], l);
    case Kind::select: return evaluate(e->args[evaluate(e->args[0], l) ? 1 : 2], l);
    case Kind::call: break;
    default: internal_check(false) << "schedule: not an extent: " << loop::print(e);
  }
  int64_t a = evaluate(e->args[0], l), b = e->args.size() > 1 ? evaluate(e->args[1], l) : 0;
  switch (e->fn) {
    case Fn::neg: return -a;
    case Fn::abs: return std::abs(a);
    case Fn::add: return a + b;
    case Fn::sub: return a - b;
    case Fn::mul: return a * b;
    case Fn::floordiv: return floor_div(a, b);
    case Fn::truncdiv: return b ? a / b : 0;
    case Fn::remainder: return b ? a - floor_div(a, b) * b : 0;
    case Fn::max: return std::max(a, b);
    case Fn::min: return std::min(a, b);
    case Fn::lt: return a < b;
    case Fn::le: return a <= b;
    case Fn::gt: return a > b;
    case Fn::ge: return a >= b;
    case Fn::eq: return a == b;
    case Fn::ne: return a != b;
    default: internal_check(false) << "schedule: not an extent: " << loop::print(e);
  }
  return 0;
}

int64_t Numbers::stride(int buffer, size_t dim) const {
  auto& s = buffer < analysis->inputs ? layout->input_strides[size_t(buffer)]
                                      : layout->output_strides[size_t(buffer - analysis->inputs)];
  return dim < s.size() ? s[dim] : 0;
}

int64_t Numbers::count(const Merged& loop) const {
  int64_t n = 1;
  for (int v : loop) n = times(n, extents[size_t(v)]);
  return n;
}
int64_t Numbers::count(const std::vector<Merged>& loops) const {
  int64_t n = 1;
  for (auto& m : loops) n = times(n, count(m));
  return n;
}

int64_t span_of_result(const Numbers& n) {
  auto& sizes = n.layout->output_sizes[0];
  int64_t last = 0;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) return 0;
    last += times(sizes[d] - 1, n.stride(n.analysis->inputs, d));
  }
  return last + 1;
}

Numbers numbers(const Analysis& a, const Layout& l) {
  Numbers n;
  n.analysis = &a;
  n.layout = &l;
  for (size_t k = 0; k < a.vars.size(); ++k)
    n.extents.push_back(k < l.extents.size() ? l.extents[k]
                        : a.vars[k].ragged   ? 1
                                             : evaluate(a.vars[k].extent, l));
  n.coefficients.resize(a.accesses.size() * a.vars.size());
  auto* of_access = n.coefficients.data();
  for (auto& access : a.accesses) {
    int64_t inner = 1;  // of positions: the number of elements of all later dimensions
    for (size_t d = access.dims.size(); d-- > 0;) {
      if (access.dims[d] < 0) continue;
      auto var = size_t(access.dims[d]);
      bool position = access.kind == Access::Kind::position;
      of_access[var] += position ? inner : n.stride(access.buffer, d);
      if (position) inner = times(inner, n.extents[var]);
    }
    of_access += a.vars.size();
  }
  return n;
}

int64_t task_elements(const Analysis& a) {
  int64_t n = 16384;
  while (n > 256 && double(n) * a.operations > double(kTaskOperations)) n /= 2;
  return n;
}

Decisions decide(const Analysis& a, const Numbers& n) { return Decider(a, n).run(); }

std::string Decisions::key() const {
  std::string k;
  auto number = [&](int64_t i) {
    char digits[24];
    k.append(digits, std::to_chars(digits, digits + sizeof(digits), i).ptr);
    k += ',';
  };
  auto loops = [&](const std::vector<Merged>& l) {
    for (auto& m : l) {
      for (int v : m) number(v);
      k += ';';
    }
    k += '|';
  };
  loops(rows);
  for (auto& b : domains) loops(b);
  number(row_vector);
  for (int v : domain_vectors) number(v);
  number(chunked);
  number(tiled);
  number(split);
  number(short_rows);
  number(phases);
  number(keeps_row);
  number(begins_along);
  number(lists_places);
  number(shares_places);
  for (auto* list : {&classes, &computed_strides, &overlaps}) {
    for (int8_t c : *list) k += char('0' + c);
    k += '|';
  }
  return k;
}

std::string Decisions::text() const {
  auto lanes = [](const std::vector<Merged>& loops, int vector) {
    return std::to_string(loops.size()) +
           (vector < 0 ? " loops, none in lanes" : " loops, " + std::to_string(vector) + " in lanes");
  };
  std::string s = "rows of " + lanes(rows, row_vector);
  for (size_t k = 0; k < domains.size(); ++k)
    s += "; domain " + std::to_string(k) + " of " + lanes(domains[k], domain_vectors[k]);
  if (chunked) s += "; one row of vectors in pieces";
  if (short_rows) s += "; vectors of rows of " + std::to_string(short_rows) + " elements are turned";
  if (phases > 1) s += "; " + std::to_string(phases) + " neighbours to a lane, for indices repeat with them";
  if (keeps_row) s += "; an array of a row's values, should they be needed twice";
  if (begins_along >= 0) s += "; each writes its base first";
  if (lists_places) s += "; places that a tensor picks are computed in lanes beforehand";
  if (shares_places) s += "; tasks are shares of the places";
  if (tiled) s += "; in tiles, for an operand lies the other way";
  if (split >= 0)
    s += "; variable " + std::to_string(split) + " reduced in fixed chunks, for there are few rows";
  return s;
}

}  // namespace facula::schedule
