#include "facula/schedule/decide.h"

#include <algorithm>
#include <set>

#include "facula/loop/simplify.h"

namespace facula::schedule {

using loop::Expr;
using loop::Fn;
using loop::Kind;

namespace {

constexpr int64_t kTaskOperations = 16384;
constexpr int64_t kFewTasks = 8;         // fewer tasks than this are not enough for many threads
constexpr int64_t kSplitFrom = 1 << 16;  // elements that are worth two launches
constexpr int64_t kShortRow = 16;        // elements that registers hold for a vector of rows
constexpr int64_t kMostPhases = 4;

int64_t floor_div(int64_t a, int64_t b) {
  if (!b) return 0;
  int64_t q = a / b;
  return q - (a % b != 0 && (a < 0) != (b < 0));
}

// Largest strides first: in the stores, then in the loads.
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

// Bytes that are read or written side by side if `v` runs in lanes: over all that an access covers, so that a
// value for each row counts little beside one for each element.
double contiguous_bytes(const Numbers& n, int v) {
  double bytes = 0;
  for (auto& a : n.analysis->accesses) {
    if (a.kind == Access::Kind::position) continue;
    bool contiguous = n.coefficient(a, v) == 1, computed = false;
    std::set<int> covered;
    for (size_t d = 0; d < a.dims.size(); ++d) {
      if (a.dims[d] >= 0 && n.stride(a.buffer, d)) covered.insert(a.dims[d]);
      if (a.dims[d] != Access::kComputed) continue;
      auto f = free_vars(a.indices[d]);
      covered.insert(f.begin(), f.end());
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

// Do rows of `extent` elements lie one after the other in whatever has an element for each, `row` and `box`
// being the variables of both? Their vectors are then loaded whole and turned in registers.
bool are_short_rows(const Numbers& n, int row, int box, int64_t extent) {
  if (extent < 2 || extent > kShortRow || n.extents[size_t(row)] < 2) return false;
  bool any = false;
  for (auto& a : n.analysis->accesses) {
    if (a.kind == Access::Kind::position) continue;
    if (std::count(a.dims.begin(), a.dims.end(), Access::kComputed)) return false;
    int64_t along = n.coefficient(a, row), inside = n.coefficient(a, box);
    bool whole = along == extent && inside == 1;
    if (!whole && along != 0 && !(along == 1 && inside == 0)) return false;
    any |= whole;
  }
  return any;
}

// The divisor of the quotients and remainders that indices along `v` go through, if there is one: pools with a stride
// ask the same windows for so many neighbours.
int64_t period(const Analysis& a, int v) {
  int64_t found = 1;
  bool one = true;
  auto look = [&](Expr e) {
    if (e->kind != Kind::call || (e->fn != Fn::floordiv && e->fn != Fn::remainder)) return;
    auto vars = free_vars(e);
    if (std::find(vars.begin(), vars.end(), v) == vars.end()) return;
    loop::Linear at;
    bool plain = e->args[1]->kind == Kind::constant && loop::linear(e->args[0], at) && at.terms.size() == 1 &&
                 same(at.terms[0].x, loop::index(v)) && at.terms[0].coefficient == 1;
    int64_t by = plain ? e->args[1]->value.to_int() : 0;
    one &= by > 1 && (found == 1 || found == by);
    found = by;
  };
  for (auto& o : a.outputs) loop::visit(o.value, look);
  return one ? found : 1;
}

void move_last(std::vector<Merged>& loops, int v) {
  for (size_t k = 0; k < loops.size(); ++k)
    if (loops[k].back() == v) std::rotate(loops.begin() + long(k), loops.begin() + long(k) + 1, loops.end());
}

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

int64_t Numbers::coefficient(const Access& a, int var) const {
  int64_t c = 0;
  for (size_t d = 0; d < a.dims.size(); ++d) {
    if (a.dims[d] != var) continue;
    if (a.kind == Access::Kind::position) {
      int64_t inner = 1;
      for (size_t k = d + 1; k < a.dims.size(); ++k)
        if (a.dims[k] >= 0) inner = times(inner, extents[size_t(a.dims[k])]);
      c += inner;
    } else {
      c += stride(a.buffer, d);
    }
  }
  return c;
}

int64_t Numbers::count(const std::vector<Merged>& axes) const {
  int64_t n = 1;
  for (auto& m : axes)
    for (int v : m) n = times(n, extents[size_t(v)]);
  return n;
}

Numbers numbers(const Analysis& a, const Layout& l) {
  Numbers n;
  n.analysis = &a;
  n.layout = &l;
  for (size_t k = 0; k < a.vars.size(); ++k)
    n.extents.push_back(k < l.extents.size() ? l.extents[k]
                        : a.vars[k].ragged   ? 1
                                             : evaluate(a.vars[k].extent, l));
  return n;
}

int64_t task_elements(const Analysis& a) {
  int64_t n = 16384;
  while (n > 256 && double(n) * a.operations > double(kTaskOperations)) n /= 2;
  return n;
}

Decisions decide(const Analysis& a, const Numbers& n) {
  Decisions d;
  d.rows = ordered(n, a.rows, false);
  for (auto& b : a.boxes) d.boxes.push_back(ordered(n, b.vars, b.ordered));
  d.box_vectors.assign(a.boxes.size(), -1);

  auto best = [&](const std::vector<Merged>& loops, bool last_only) {
    std::pair<double, int> found{-1, -1};
    for (size_t k = last_only && !loops.empty() ? loops.size() - 1 : 0; k < loops.size(); ++k) {
      auto& m = loops[k];
      if (a.vars[size_t(m.back())].ragged) continue;
      // One element is no vector, whatever lies beside it.
      double bytes = n.count({m}) > 1 ? contiguous_bytes(n, m.back()) : 0;
      if (bytes >= found.first) found = {bytes, m.back()};
    }
    return found;
  };
  auto extent = [&](const std::vector<Merged>& loops, int v) {
    for (auto& m : loops)
      if (m.back() == v) return n.count({m});
    return int64_t(0);
  };
  auto row = best(d.rows, false);
  double inner_bytes = -1;
  int64_t inner_extent = 0;
  for (size_t b = 0; b < d.boxes.size(); ++b) {
    bool in_scan = a.scan_axis >= 0 && std::find(a.boxes[b].vars.begin(), a.boxes[b].vars.end(),
                                                 a.scan_axis) != a.boxes[b].vars.end();
    auto v = in_scan ? std::pair<double, int>{-1, -1} : best(d.boxes[b], a.boxes[b].ordered);
    if (in_scan)
      inner_bytes = contiguous_bytes(n, a.scan_axis), inner_extent = n.extents[size_t(a.scan_axis)];
    d.box_vectors[b] = v.second;
    if (v.first > inner_bytes) inner_bytes = v.first, inner_extent = extent(d.boxes[b], v.second);
  }
  if (a.scatter) {
    d.box_vectors.assign(a.boxes.size(), -1);
    bool meets = false;  // lanes would go to computed places
    for (auto& o : a.outputs)
      for (auto& t : o.target)
        if (t->kind != Kind::index)
          for (int v : free_vars(t)) meets |= v == row.second;
    if (!meets) d.row_vector = row.second;
  } else if (row.second >= 0) {
    int64_t lanes = extent(d.rows, row.second);
    bool rows_in_lanes = a.boxes.empty() || row.first > inner_bytes || inner_bytes < 0;
    if (d.boxes.size() == 1 && d.boxes[0].size() == 1 && lanes >= 32) {
      int64_t inside = n.count(d.boxes[0]);
      if (are_short_rows(n, row.second, d.boxes[0][0].back(), inside)) d.short_rows = inside;
      rows_in_lanes |= d.short_rows > 0;
    }
    if (!a.boxes.empty() && inner_bytes >= 0) {
      // A few elements are a part of a vector, but many of them add up before lanes are folded.
      int64_t inside = 1;
      for (auto& b : d.boxes) inside = std::max(inside, n.count(b));
      bool few = inner_extent <= 2 || (inner_extent <= 8 && inside <= kShortRow);
      if (!rows_in_lanes && few && lanes >= 32) rows_in_lanes = true;
      if (rows_in_lanes && lanes < 8 && inner_extent >= 32) rows_in_lanes = false;
    }
    if (rows_in_lanes) d.row_vector = row.second;
  }
  if (d.row_vector >= 0) {
    move_last(d.rows, d.row_vector);
    std::fill(d.box_vectors.begin(), d.box_vectors.end(), -1);
  }
  for (size_t b = 0; b < d.boxes.size(); ++b)
    if (d.box_vectors[b] >= 0) move_last(d.boxes[b], d.box_vectors[b]);

  if (a.boxes.empty() && d.row_vector >= 0 && d.rows.size() > 1) {
    auto lies_along = [&](const Access& x, int v) {
      return x.kind != Access::Kind::position && n.coefficient(x, v) == 1 &&
             std::abs(n.coefficient(x, d.row_vector)) > 1;
    };
    for (auto& x : a.accesses)
      for (auto& m : d.rows)
        if (!d.tiled && m.back() != d.row_vector && n.count({m}) >= 4 && lies_along(x, m.back())) {
          int v = m.back();
          move_last(d.rows, v);
          move_last(d.rows, d.row_vector);
          d.tiled = true;
        }
  }

  int64_t rows = n.count(d.rows), inner = 1;
  for (auto& b : d.boxes) inner = std::max(inner, n.count(b));
  int64_t lanes = d.row_vector >= 0 ? n.count({d.rows.back()}) : 1;
  d.chunked = d.row_vector >= 0 && (d.rows.size() == 1 || d.tiled || times(lanes, inner) > task_elements(a));

  if (a.reduces && a.scan_axis < 0 && d.boxes.size() == 1 && rows > 0 && !d.short_rows &&
      times(rows, inner) >= kSplitFrom) {
    int64_t tasks = d.row_vector >= 0 ? rows / std::max<int64_t>(lanes, 1) * ((lanes + 63) / 64) : rows;
    // Lanes that walk down the box and write what lies along it come back to the same few sets of the cache;
    // a map in the order of memory does not.
    bool writes_inside =
        d.row_vector >= 0 && std::any_of(a.outputs.begin(), a.outputs.end(),
                                         [&](const Output& o) { return a.accesses[size_t(o.access)].inner; });
    if (tasks < kFewTasks || writes_inside) {
      auto& loops = d.boxes[0];
      const Merged* widest = &loops[0];
      if (!a.boxes[0].ordered)
        for (auto& m : loops)
          if (n.count({m}) > n.count({*widest})) widest = &m;
      if (n.count({*widest}) >= 16) d.split = widest->back();
    }
  }

  if (d.row_vector >= 0 && !a.scatter && a.scan_axis < 0 && !d.tiled && !d.short_rows && d.split < 0 &&
      d.rows.back().size() == 1) {
    int64_t by = period(a, d.row_vector);
    bool whole = by <= kMostPhases && times(by, inner) <= 2 * kShortRow && lanes % by == 0 &&
                 lanes / by >= kShortRow / 2;
    for (auto& o : a.outputs) whole &= n.coefficient(a.accesses[size_t(o.access)], d.row_vector) == 1;
    if (whole) d.phases = by;
  }

  size_t vars = a.vars.size();
  d.classes.assign(a.accesses.size() * vars, -1);
  std::vector<int> vectors = d.box_vectors;
  vectors.push_back(d.row_vector);
  if (d.short_rows) vectors.push_back(d.boxes[0][0].back());
  if (d.tiled) vectors.push_back(d.rows[d.rows.size() - 2].back());
  for (size_t k = 0; k < a.accesses.size(); ++k) {
    auto& access = a.accesses[k];
    for (int v : vectors) {
      if (v < 0) continue;
      int64_t c = n.coefficient(access, v);
      // Elements up to eight apart are parts of whole vectors.
      bool apart = (c >= 2 && c <= 8 && access.kind == Access::Kind::load) ||
                   (c == d.short_rows && c && v == d.row_vector);
      if (c == 0 || c == 1 || apart) d.classes[k * vars + size_t(v)] = int8_t(c);
    }
    for (size_t i = 0; i < access.dims.size(); ++i)
      if (access.dims[i] == Access::kComputed) d.unit.push_back(n.stride(access.buffer, i) == 1);
  }
  for (bool o : n.layout->output_overlaps) d.overlaps.push_back(o);
  return d;
}

std::string Decisions::key() const {
  std::string k;
  auto number = [&](int64_t i) {
    k += std::to_string(i);
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
  for (auto& b : boxes) loops(b);
  number(row_vector);
  for (int v : box_vectors) number(v);
  number(chunked);
  number(tiled);
  number(split);
  number(short_rows);
  number(phases);
  for (auto* list : {&classes, &unit, &overlaps}) {
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
  for (size_t k = 0; k < boxes.size(); ++k)
    s += "; box " + std::to_string(k) + " of " + lanes(boxes[k], box_vectors[k]);
  if (chunked) s += "; one row of vectors in pieces";
  if (short_rows) s += "; vectors of rows of " + std::to_string(short_rows) + " elements are turned";
  if (phases > 1) s += "; " + std::to_string(phases) + " neighbours to a lane, for indices repeat with them";
  if (tiled) s += "; in tiles, for an operand lies the other way";
  if (split >= 0)
    s += "; variable " + std::to_string(split) + " reduced in fixed chunks, for there are few rows";
  return s;
}

}  // namespace facula::schedule
