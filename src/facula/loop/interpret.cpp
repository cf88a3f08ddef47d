#include "facula/loop/interpret.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "facula/base/random.h"
#include "facula/loop/lane_access.h"
#include "facula/loop/monoid.h"
#include "facula/loop/number.h"
#include "facula/loop/tiles.h"

namespace facula::loop {
namespace {

using Complex = std::complex<double>;
using Components = std::array<Number, 3>;

Number read(DType d, const void* at, int part) {
  return dispatch_stored(d, [&](auto t) -> Number {
    using T = decltype(t);
    T v;
    std::memcpy(&v, at, sizeof v);
    if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>)
      return part ? Number::real(part == 1 ? v.real() : v.imag()) : Number{0, Complex(v)};
    else if constexpr (std::is_same_v<T, ComplexHalf>)
      return part ? Number::real(float(part == 1 ? v.re : v.im)) : Number{0, Complex(std::complex<float>(v))};
    else if constexpr (std::is_integral_v<T>) return Number::integer(int64_t(v));
    else return Number::real(double(v));
  });
}

void write(DType d, void* at, const Number& x, int part = 0) {
  if (d == DType::Complex32) {  // part by part
    if (part != 2) write(DType::Float16, at, Number::real(x.z.real()));
    if (part != 1)
      write(DType::Float16, static_cast<char*>(at) + sizeof(Half),
            Number::real(part ? x.z.real() : x.z.imag()));
    return;
  }
  dispatch_stored(d, [&](auto t) {
    using T = decltype(t);
    if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>) {
      using R = typename T::value_type;
      R re = R(x.z.real()), im = R(x.z.imag());
      if (part == 0) std::memcpy(at, &re, sizeof re);
      std::memcpy(static_cast<char*>(at) + (part == 1 ? 0 : sizeof(R)),
                  part == 1   ? &re
                  : part == 2 ? &re
                              : &im,
                  sizeof(R));
    } else {
      T v;
      if constexpr (std::is_integral_v<T>) v = T(x.i);
      else if constexpr (std::is_same_v<T, ComplexHalf>) return;
      else if constexpr (sizeof(T) <= 2) v = T(float(x.z.real()));
      else v = T(x.z.real());
      std::memcpy(at, &v, sizeof v);
    }
  });
}

// Values are cached until something that they depend on changes. A source is such a dependency: an index variable, a
// local, or a written buffer. `changed_` has the times of the last changes.
class Machine {
 public:
  explicit Machine(bool exact) : exact_(exact) {}
  std::function<Number(Expr load, std::span<const int64_t> indices)> load;
  std::function<int64_t(SymInt)> size_value;
  std::vector<int64_t> params;

  enum class Source : uint8_t { index, local, buffer, position };
  void mark_volatile(int buffer) { volatile_[buffer] = true; }

  int add(Expr root) {
    visit(root, [&](Expr x) {
      if (id_.count(x.get())) return;
      Cell c;
      c.x = x;
      std::map<int, bool> sources;
      auto take = [&](int k) {
        for (int s : cells_[size_t(k)].sources) sources[s] = true;
      };
      if (x->kind == Kind::index) sources[source(Source::index, x->slot)] = true;
      if (x->kind == Kind::local) sources[source(Source::local, x->slot)] = true;
      if (x->kind == Kind::position) sources[source(Source::position, 0)] = true;
      if (x->kind == Kind::load && volatile_.count(x->slot)) sources[source(Source::buffer, x->slot)] = true;
      for (auto& a : x->args) {
        c.args.push_back(id_[a.get()]);
        take(c.args.back());
      }
      for (auto& b : x->bound) {
        c.vars.push_back(source(Source::index, b.var));
        sources.erase(c.vars.back());
      }
      for (auto& b : x->bound) {
        c.extents.push_back(id_[b.extent.get()]);
        take(c.extents.back());
      }
      if (x->kind == Kind::scan) {
        c.axis = source(Source::index, x->slot);
        sources[c.axis] = true;
      }
      for (auto& [s, yes] : sources) c.sources.push_back(s);
      id_[x.get()] = int(cells_.size());
      cells_.push_back(std::move(c));
    });
    return id_[root.get()];
  }

  int source(Source kind, int k) {
    auto [it, fresh] = source_id_.try_emplace({int(kind), k}, int(values_.size()));
    if (fresh) {
      values_.emplace_back();
      changed_.push_back(++now_);
    }
    return it->second;
  }
  void set(int source, const Number& v) {
    values_[size_t(source)] = v;
    changed_[size_t(source)] = ++now_;
  }
  void touch(int source) { changed_[size_t(source)] = ++now_; }
  const Number& get(int source) const { return values_[size_t(source)]; }

  const Number& value(int k) { return components_of(k)[0]; }
  const Components& components_of(int k) {
    Cell& c = cells_[size_t(k)];
    bool valid = c.computed != 0;
    for (int s : c.sources) valid = valid && changed_[size_t(s)] < c.computed;
    if (!valid) {
      Components r = compute(c);
      Cell& again = cells_[size_t(k)];
      again.values = r;
      again.computed = ++now_;
    }
    return cells_[size_t(k)].values;
  }

  // The total combined with one more element, whose values the cells compute.
  Components with_element(Monoid m, DType d, const Components& total, std::span<const int> cells) {
    if (adds_product(m, cells_[size_t(cells[0])].x)) {
      // A copy: computing values may reallocate the cells.
      std::vector<int> factors = cells_[size_t(cells[0])].args;
      Number x[3] = {value(factors[0]), value(factors[1]), total[0]};
      return {evaluate(Fn::fma, d, x, exact_)};
    }
    return combined(m, d, total, element(m, cells));
  }
  // The components of a single element.
  Components element(Monoid m, std::span<const int> cells) {
    Components c;
    for (size_t k = 0; k < cells.size(); ++k) c[k] = value(cells[k]);
    if (m == Monoid::logsumexp) c[1] = Number::real(1);
    if (m == Monoid::welford) c[2] = Number::real(1);
    return c;
  }
  // a and b combined, with the machine's rounding.
  Components combined(Monoid m, DType d, const Components& a, const Components& b) const {
    auto binary = [&](Fn f) {
      Number x[2] = {a[0], b[0]};
      return Components{evaluate(f, d, x, exact_)};
    };
    auto r = [&](double v) { return exact_ ? Number::real(v) : Number::real(rounded(v, d)); };
    auto part = [](const Components& c, int k) { return c[size_t(k)].z.real(); };
    switch (m) {
      case Monoid::sum: return binary(Fn::add);
      case Monoid::prod: return binary(Fn::mul);
      case Monoid::max: return binary(Fn::max);
      case Monoid::min: return binary(Fn::min);
      case Monoid::any: return binary(Fn::bit_or);
      case Monoid::all: return binary(Fn::bit_and);
      case Monoid::argmax:
      case Monoid::argmin:
      case Monoid::argmax_pool: {
        bool largest = m != Monoid::argmin, integral = category(d) <= Category::integral;
        double x = integral ? 0 : part(a, 0), y = integral ? 0 : part(b, 0);
        bool better = integral        ? (largest ? b[0].i > a[0].i : b[0].i < a[0].i)
                      : std::isnan(y) ? !std::isnan(x)
                      : largest       ? y > x
                                      : y < x;
        bool equal = integral ? a[0].i == b[0].i : x == y || (std::isnan(x) && std::isnan(y));
        bool later = m == Monoid::argmax_pool && std::isnan(y);
        return better || (equal && (later ? b[1].i > a[1].i : b[1].i < a[1].i)) ? b : a;
      }
      case Monoid::logsumexp: {
        double x = part(a, 0), y = part(b, 0), top = std::isnan(x) || std::isnan(y) ? NAN : std::max(x, y);
        double f = x == y ? 1 : std::exp(-std::fabs(x - y));
        return {r(top), r(x >= y ? part(a, 1) + part(b, 1) * f : part(a, 1) * f + part(b, 1))};
      }
      case Monoid::welford: {
        double n = part(a, 2) + part(b, 2), delta = part(b, 0) - part(a, 0),
               share = part(b, 2) / std::max(n, 1.0);
        return {r(part(a, 0) + delta * share),
                r(part(a, 1) + part(b, 1) + delta * delta * part(a, 2) * share), r(n)};
      }
      case Monoid::complex_prod: {
        auto product = [&](int k, int l) { return r(part(a, k) * part(b, l)).z.real(); };
        return {r(product(0, 0) - product(1, 1)), r(product(0, 1) + product(1, 0))};
      }
    }
    __builtin_unreachable();
  }
  static Components neutral(Monoid m, DType d, DType position) {
    Components c;
    auto e = identity(m, d, position);
    for (size_t k = 0; k < e.size(); ++k) c[k] = number_of(e[k]->value, e[k].dtype());
    return c;
  }

 private:
  struct Cell {
    Expr x;
    std::vector<int> args, extents, vars, sources;
    int axis = -1;
    uint64_t computed = 0;
    Components values;
  };

  Components compute(const Cell& c) {
    const Node& n = *c.x;
    auto arg = [&](size_t k) -> Number { return value(c.args[k]); };
    switch (n.kind) {
      case Kind::constant: return {number_of(n.value, n.dtype)};
      case Kind::index:
      case Kind::local:
      case Kind::position: return {get(c.sources[0])};
      case Kind::size: return {Number::integer(size_value ? size_value(n.size) : n.size.concrete())};
      case Kind::param: return {Number::integer(params.at(size_t(n.slot)))};
      case Kind::load: {
        std::vector<int64_t> at;
        for (int a : c.args) at.push_back(value(a).i);
        return {load(c.x, at)};
      }
      case Kind::cast: {
        if (n.memory == n.dtype) return {convert(arg(0), n.args[0].dtype(), n.dtype, exact_)};
        return {stored(arg(0), n.memory)};
      }
      case Kind::call: {
        std::array<Number, 3> x;
        for (size_t k = 0; k < c.args.size(); ++k) x[k] = arg(k);
        return {evaluate(n.fn, n.args[0].dtype(), std::span(x.data(), c.args.size()), exact_)};
      }
      case Kind::select: return {value(arg(0).i ? c.args[1] : c.args[2])};
      case Kind::reduce:
      case Kind::scan: return fold(Cell(c));
      case Kind::part: return {components_of(c.args[0])[size_t(n.slot)]};
      case Kind::random: return {Number::integer(random_bits(uint64_t(arg(0).i), uint64_t(arg(1).i)))};
      case Kind::divisor:
        runtime_check(arg(0).i != 0, "index") << "ZeroDivisionError: an integer is divided by zero";
        return {arg(0)};
      case Kind::check: {
        int64_t i = arg(0).i, size = arg(1).i;
        index_check(i >= (n.slot ? 0 : -size) && i < size, "index")
            << "index " << i << " is out of bounds for dimension with size " << size;
        return {Number::integer(i < 0 ? i + size : i)};
      }
    }
    __builtin_unreachable();
  }

  Components fold(const Cell& c) {
    Components total = neutral(c.x->monoid, c.x->dtype, c.x->args.back().dtype());
    std::vector<int64_t> extents;
    if (c.axis >= 0) extents = {get(c.axis).i + 1};
    else
      for (int e : c.extents) extents.push_back(value(e).i);
    std::vector<Number> outer;  // an enclosing fold may run over the same variables
    for (int v : c.vars) outer.push_back(get(v));
    auto loop = [&](size_t k, auto& self) -> void {
      if (k == extents.size()) {
        total = with_element(c.x->monoid, c.x->dtype, total, c.args);
        return;
      }
      for (int64_t i = 0; i < extents[k]; ++i) {
        set(c.vars[k], Number::integer(i));
        self(k + 1, self);
      }
    };
    loop(0, loop);
    for (size_t k = 0; k < outer.size(); ++k) set(c.vars[k], outer[k]);
    return total;
  }

  bool exact_;
  std::vector<Cell> cells_;
  std::unordered_map<const Node*, int> id_;
  std::map<std::pair<int, int>, int> source_id_;
  std::map<int, bool> volatile_;
  std::vector<Number> values_;
  std::vector<uint64_t> changed_;
  uint64_t now_ = 0;
};

// Calls f for every point of an index space, in row-major order.
template <class F>
void each(IntSpan sizes, F&& f) {
  for (int64_t n : sizes)
    if (n == 0) return;
  std::vector<int64_t> at(sizes.size(), 0);
  for (int64_t position = 0;; ++position) {
    f(std::span<const int64_t>(at), position);
    size_t d = sizes.size();
    while (d > 0 && ++at[d - 1] == sizes[d - 1]) at[--d] = 0;
    if (d == 0) return;
  }
}

int64_t row_major(std::span<const int64_t> at, IntSpan sizes) {
  int64_t p = 0;
  for (size_t d = 0; d < sizes.size(); ++d) p = p * sizes[d] + at[d];
  return p;
}

std::string text(std::span<const int64_t> v) { return to_string(symbolic(IntSpan(v))); }

struct Axes {
  Machine& m;
  std::vector<int> sources;
  int position;
  Axes(Machine& machine, size_t rank) : m(machine), position(machine.source(Machine::Source::position, 0)) {
    for (size_t d = 0; d < rank; ++d) sources.push_back(m.source(Machine::Source::index, int(d)));
  }
  void move_to(std::span<const int64_t> at, int64_t p) {
    for (size_t d = 0; d < at.size(); ++d)
      if (p == 0 || m.get(sources[d]).i != at[d]) m.set(sources[d], Number::integer(at[d]));
    m.set(position, Number::integer(p));
  }
};

// Reads the element of an operand at an index.
Number element(const Tensor& t, std::span<const int64_t> at, int part, const char* what) {
  auto sizes = t.int_sizes(), strides = t.int_strides();
  internal_check(at.size() == sizes.size())
      << what << " with " << at.size() << " indices of a tensor of sizes " << to_string(symbolic(sizes));
  int64_t offset = 0;
  for (size_t d = 0; d < at.size(); ++d) {
    internal_check(at[d] >= 0 && at[d] < sizes[d])
        << what << " at " << text(at) << " of a tensor of sizes " << to_string(symbolic(sizes));
    offset += at[d] * strides[d];
  }
  return read(t.dtype(), static_cast<const char*>(t.data_ptr()) + offset * t.itemsize(), part);
}

Number narrowed(const Number& v, DType from, DType memory, bool exact) {
  return convert(v, from, compute_type(memory), exact);
}

Tensor scattered(const Definition& d, Machine& m, std::span<const Tensor> operands, SymSpan sizes,
                 DType dtype, bool exact, const std::function<int64_t(SymInt)>& size_value) {
  const Scatter& s = *d.scatter;
  DType compute = compute_type(dtype);
  IntSpan to = concrete(sizes);
  std::vector<Number> result(size_t(product(sizes).concrete()));
  if (s.base >= 0)
    each(to, [&](auto at, int64_t p) {
      result[size_t(p)] = narrowed(element(operands[size_t(s.base)], at, 0, "base"),
                                   compute_type(operands[size_t(s.base)].dtype()), dtype, exact);
    });
  Ints domain;
  for (SymInt n : s.domain) domain.push_back(n.is_symbolic() ? size_value(n) : n.concrete());
  std::vector<int> target;
  for (auto& t : s.target) target.push_back(m.add(t));
  int value = m.add(s.value);
  Axes axes(m, domain.size());
  Tensor out = Tensor::empty(sizes, dtype);
  char* data = static_cast<char*>(out.data_ptr());
  std::vector<int64_t> where(target.size());
  constexpr Fn kCombine[] = {Fn::add, Fn::add, Fn::mul, Fn::max, Fn::min};
  each(domain, [&](auto at, int64_t p) {
    axes.move_to(at, p);
    for (size_t k = 0; k < target.size(); ++k) {
      where[k] = m.value(target[k]).i;
      internal_check(where[k] >= 0 && where[k] < to[k])
          << "scatter to " << where[k] << " in dimension " << k << " of " << to_string(sizes);
    }
    Number& r = result[size_t(row_major(where, to))];
    Number v = narrowed(m.value(value), s.value.dtype(), dtype, exact);
    if (s.combine == Scatter::Combine::assign) r = v;
    else {
      Number x[2] = {r, v};
      r = evaluate(compute == DType::Bool && s.combine == Scatter::Combine::sum ? Fn::bit_or
                                                                                : kCombine[int(s.combine)],
                   compute, x, exact);
    }
    if (!exact) {  // round as memory does
      write(dtype, data, r);
      r = read(dtype, data, 0);
    }
  });
  for (size_t p = 0; p < result.size(); ++p) write(dtype, data + p * size_t(itemsize(dtype)), result[p]);
  return out;
}

// Checks that the elements which the lanes of a vector access are as far apart as the nest states. An iteration of a loop over
// lanes is a lane, and lanes run one after the other.
class LaneOffsets {
 public:
  explicit LaneOffsets(const Nest& n) : n_(n) {}

  void begin(int64_t lane) {
    former_.swap(now_);
    now_.clear();
    if (!lane) former_.clear();
    lane_ = lane;
  }
  void end() { begin(0); }
  void enter(int loop, int64_t i) { inner_[loop] = i; }
  void leave(int loop) { inner_.erase(loop); }
  // The access of a statement that this lane performs at `offset`.
  void add(const Access& a, int64_t parts, int64_t offset) {
    now_[{&a, inner_}] = offset;
    auto it = former_.find({&a, inner_});
    if (it == former_.end()) return;
    int64_t apart = (offset - it->second) * parts;
    internal_check(apart == distance(a, parts)) << n_.name << ": lanes " << lane_ - 1 << " and " << lane_
                                                << " access elements " << it->second << " and " << offset;
  }
  // True if the nest says how far lanes are apart, and the offset can be computed where the access is not performed.
  static bool is_stated(const Access& a, Expr offset) {
    using AK = Access::Kind;
    if (a.kind == AK::gathered || a.kind == AK::each || a.kind == AK::packed) return false;
    bool computable = true;
    visit(offset, [&](Expr e) {
      computable &= e->kind != Kind::load && e->kind != Kind::check && e->kind != Kind::divisor;
    });
    return computable;
  }

 private:
  int64_t distance(const Access& a, int64_t parts) const {
    switch (a.kind) {
      case Access::Kind::reversed: return -1;
      case Access::Kind::repeated: return (a.from + lane_) / a.count - (a.from + lane_ - 1) / a.count;
      case Access::Kind::contiguous: return 1;
      case Access::Kind::pairs: return parts;
      default: return a.count;
    }
  }
  using Place = std::pair<const Access*, std::map<int, int64_t>>;  // with the indices of the loops inside
  const Nest& n_;
  std::map<int, int64_t> inner_;
  std::map<Place, int64_t> former_, now_;
  int64_t lane_ = 0;
};

class NestRunner {
 public:
  NestRunner(const Nest& n, std::span<void* const> buffers, IntSpan params)
      : n_(n), buffers_(buffers), m_(false), offsets_(n) {
    m_.params.assign(params.begin(), params.end());
    collect(n.body);
    m_.load = [this](Expr e, std::span<const int64_t> at) {
      char* from = address(e->slot, e->memory, at[0]);
      if (is_volatile_.count(e->slot)) note(e->slot, from, e->memory, e->part, Use::read);
      return read(e->memory, from, e->part);
    };
    if (n_.threads) start_threads();
    if (n_.lanes) facts_.emplace(n_);
  }
  void run() {
    int task = m_.source(Machine::Source::index, n_.task_var);
    int64_t tasks = value(n_.tasks).i, piece = 1;
    int end = -1;
    if (n_.end_var >= 0) {  // runs the tasks in three pieces
      end = m_.source(Machine::Source::index, n_.end_var);
      piece = (tasks + 2) / 3;
    }
    for (int64_t t = 0; t < tasks; t += piece) {
      set_index(task, t);
      if (end >= 0) set_index(end, std::min(t + piece, tasks));
      block(n_.body);
      if (n_.threads) end_task();
    }
  }

 private:
  void collect(const Block& b) {
    for (auto& s : b) {
      using Kind = Statement::Kind;
      if (s.kind == Kind::store || s.kind == Kind::atomic || s.kind == Kind::tiles) mark(s.buffer);
      collect(s.body);
    }
    for (size_t k = 0; k < n_.buffers.size(); ++k)
      if (!n_.buffers[k].unique) mark(int(k));
  }
  void mark(int buffer) {
    m_.mark_volatile(buffer);
    is_volatile_.insert(buffer);
  }
  const Number& value(Expr e) { return m_.value(m_.add(e)); }
  int local(int v) { return m_.source(Machine::Source::local, v); }

  bool fits(int64_t place) const { return n_.index_bits == 64 || std::abs(place) < int64_t(1) << 30; }
  char* address(int slot, DType d, int64_t at) {
    internal_check(fits(at)) << n_.name << ": element " << at;
    if (slot >= 0) return static_cast<char*>(buffers_[size_t(slot)]) + at * itemsize(d);
    auto& a = arrays_.at(-1 - slot);
    internal_check(at >= 0 && (at + 1) * itemsize(d) <= int64_t(a.size()))
        << n_.name << ": element " << at << " of array v" << -1 - slot;
    return a.data() + at * itemsize(d);
  }

  void block(const Block& b) {
    for (auto& s : b) statement(s);
  }

  void set_index(int source, int64_t i) {
    internal_check(fits(i)) << n_.name << ": index " << i;
    m_.set(source, Number::integer(i));
  }

  // ---- the threads of a block, which run one after the other between two barriers, and the accesses since the last
  // barrier

  enum class Use : uint8_t { read, write, atomic };
  static constexpr int kNobody = -2, kAll = -1;
  struct Touched {
    int reader = kNobody, writer = kNobody,
        changer = kNobody;  // kAll: several threads; changer: by atomic updates
  };

  void start_threads() {
    for (int v : divergent_locals(n_)) own_.push_back(local(v));
    for (size_t k = 0; k < own_.size(); ++k) own_at_[own_[k]] = k;
    values_.assign(size_t(n_.threads), std::vector<Number>(own_.size()));
    for (int64_t p : m_.params) internal_check(fits(p)) << n_.name << ": parameter " << p;
  }
  // Discards cached loads, so that the next thread performs its own.
  void touch_volatile() {
    for (int b : is_volatile_) m_.touch(m_.source(Machine::Source::buffer, b));
  }
  template <class F>
  void as_thread(int t, F&& f) {
    for (size_t k = 0; k < own_.size(); ++k) m_.set(own_[k], values_[size_t(t)][k]);
    touch_volatile();
    thread_ = t;
    f();
    thread_ = kAll;
    for (size_t k = 0; k < own_.size(); ++k) values_[size_t(t)][k] = m_.get(own_[k]);
  }
  void over_threads(const Statement& s, int64_t extent, int var) {
    for (int t = 0; t < n_.threads && t < extent; ++t)
      as_thread(t, [&] {
        for (int64_t i = t; i < extent; i += n_.threads) {
          set_index(var, i);
          block(s.body);
        }
      });
  }
  void note(int slot, const char* at, DType d, int part, Use use) {
    if (!n_.threads || (slot < 0 && !block_arrays_.count(-1 - slot))) return;
    if (part == 2) at += itemsize(d) / 2;
    auto& t = touched_[at];
    auto others = [&](int who) { return who != kNobody && (who != thread_ || thread_ == kAll); };
    bool clash = use == Use::read    ? others(t.writer) || others(t.changer)
                 : use == Use::write ? others(t.writer) || others(t.changer) || others(t.reader)
                                     : others(t.writer) || others(t.reader);
    internal_check(!clash) << n_.name << ": two threads use an element of " << d
                           << " with no barrier between";
    int& who = use == Use::read ? t.reader : use == Use::write ? t.writer : t.changer;
    who = who == kNobody || who == thread_ ? thread_ : kAll;
  }
  void end_task() {
    for (int v : block_arrays_) {
      auto& a = arrays_.at(v);
      auto it = touched_.lower_bound(a.data());
      internal_check(it == touched_.end() || it->first >= a.data() + a.size())
          << n_.name << ": array v" << v << " is in use at the end of a task";
    }
    touched_.clear();
  }
  bool is_own(const Statement& s) {
    using Kind = Statement::Kind;
    bool changes = s.kind == Kind::let || s.kind == Kind::assign || s.kind == Kind::accumulator ||
                   s.kind == Kind::accumulate;
    return changes && thread_ == kAll && own_at_.count(local(s.var));
  }

  // ---- lanes and chains: iterations run one after the other, each with the accumulators of its copy

  struct Total {
    Monoid monoid;
    DType dtype;
    std::vector<int> sources;
    Components before{};
    std::vector<Components> copies{};
  };
  Total total(const Statement& adds, int copies) {
    Total t{adds.monoid, adds.values[0].dtype(), {}};
    for (int k = 0; k < components(adds.monoid); ++k) t.sources.push_back(local(adds.var + k));
    t.before = held(t);
    t.copies.assign(size_t(copies), Machine::neutral(t.monoid, t.dtype, adds.values.back().dtype()));
    return t;
  }
  Components held(const Total& t) const {
    Components c;
    for (size_t k = 0; k < t.sources.size(); ++k) c[k] = m_.get(t.sources[k]);
    return c;
  }
  void hold(const Total& t, const Components& c) {
    for (size_t k = 0; k < t.sources.size(); ++k) m_.set(t.sources[k], c[k]);
  }
  void iteration(const Statement& s, int var, int64_t i, std::vector<Total>& totals, int64_t copy) {
    for (auto& t : totals) hold(t, t.copies[size_t(copy)]);
    set_index(var, i);
    block(s.body);
    for (auto& t : totals) t.copies[size_t(copy)] = held(t);
  }
  // Combines each copy with the one at distance `apart`, until `apart` copies remain.
  void halve(Total& t, size_t apart) const {
    for (auto& c = t.copies; c.size() > apart; c.resize(c.size() / 2)) {
      auto from = c;
      for (size_t k = 0; k < c.size() / 2; ++k) {
        size_t first = k / apart * 2 * apart + k % apart;
        c[k] = m_.combined(t.monoid, t.dtype, from[first], from[first + apart]);
      }
    }
  }
  void over_lanes(const Statement& s, int64_t extent, int var) {
    LaneScope scope(*facts_, s);
    int64_t width = s.lanes.width, round = width * s.lanes.unroll, strips = 0;
    for (int64_t strip : {s.lanes.strip, std::min(s.lanes.strip, 2)})
      if (strip > 1) strips = std::max(strips, extent / (width * strip) * (width * strip));
    int64_t rounds = std::max<int64_t>(extent, 0) / round * round;
    std::vector<Total> totals;
    for (auto& [first, adds] : scope.accumulators()) totals.push_back(total(*adds, int(round)));
    for (int64_t i = 0; i < extent; ++i) {
      is_alone_ = i >= strips;
      offsets_.begin(i % width);
      iteration(s, var, i, totals, i < rounds ? i % round : (i - rounds) % width);
    }
    is_alone_ = false;
    offsets_.end();
    for (auto& t : totals) {
      halve(t, size_t(width));
      for (size_t lanes = size_t(width) / 2; lanes; lanes /= 2) halve(t, lanes);
      hold(t, m_.combined(t.monoid, t.dtype, t.before, t.copies[0]));
    }
  }
  // Runs one vector after the other: first computes each lane's accumulators, then runs each lane's iteration with
  // them.
  void scan_lanes(const Statement& s, int64_t extent, int var) {
    LaneScope scope(*facts_, s);
    int64_t width = s.lanes.width;
    std::vector<Total> totals;
    for (auto& [first, adds] : scope.accumulators()) totals.push_back(total(*adds, int(width)));
    for (int64_t begin = 0; begin < extent; begin += width) {
      int64_t lanes = std::min(width, extent - begin);
      for (auto& adds : s.body) {
        auto it = std::find_if(totals.begin(), totals.end(),
                               [&](auto& t) { return t.sources[0] == local(adds.var); });
        if (adds.kind == Statement::Kind::accumulate && it != totals.end())
          scan_vector(s, adds, *it, begin, lanes, var);
      }
      for (int64_t l = 0; l < lanes; ++l) lane(s, begin + l, l, var, nullptr);
      scanned_.clear();
      for (auto& t : totals) hold(t, t.before);
    }
  }
  void scan_vector(const Statement& s, const Statement& adds, Total& t, int64_t begin, int64_t lanes,
                   int var) {
    std::vector<int> cells;
    for (auto& e : adds.values) cells.push_back(m_.add(e));
    auto x = t.copies;  // identities
    for (int64_t l = 0; l < lanes; ++l) {
      lane(s, begin + l, l, var, &adds);
      x[size_t(l)] = m_.element(t.monoid, cells);
    }
    for (size_t apart = 1; apart < x.size(); apart *= 2)
      for (size_t l = x.size(); l-- > apart;) x[l] = m_.combined(t.monoid, t.dtype, x[l - apart], x[l]);
    auto& scanned = scanned_[&adds] = {t.sources, {}};
    for (auto& total : x) scanned.second.push_back(m_.combined(t.monoid, t.dtype, t.before, total));
    t.before = scanned.second.back();
  }
  // Runs the iteration of a lane up to `end`, using the results of scans that are complete.
  void lane(const Statement& s, int64_t i, int64_t lane, int var, const Statement* end) {
    offsets_.begin(lane);
    set_index(var, i);
    for (auto& t : s.body) {
      if (&t == end) break;
      auto it = scanned_.find(&t);
      if (it == scanned_.end()) statement(t);
      for (size_t k = 0; it != scanned_.end() && k < it->second.first.size(); ++k)
        m_.set(it->second.first[k], it->second.second[size_t(lane)][k]);
    }
  }
  void in_chains(const Statement& s, int64_t extent, int var) {
    int chains = s.lanes.chains;
    std::map<int, Total> by_local;
    for (auto& adds : s.body)
      if (adds.kind == Statement::Kind::accumulate) by_local.try_emplace(adds.var, total(adds, chains));
    std::vector<Total> totals;
    for (auto& [first, t] : by_local) {
      t.copies[0] = t.before;
      totals.push_back(std::move(t));
    }
    int64_t chained = std::max<int64_t>(extent, 0) / chains * chains;
    for (int64_t i = 0; i < chained; ++i) {
      offsets_.enter(var, i);
      iteration(s, var, i, totals, i % chains);
    }
    for (auto& t : totals) halve(t, 1);
    for (int64_t i = chained; i < extent; ++i) {
      offsets_.enter(var, i);
      iteration(s, var, i, totals, 0);
    }
    offsets_.leave(var);
    for (auto& t : totals) hold(t, t.copies[0]);
  }

  // ---- statements

  void statement(const Statement& s) {
    if (n_.threads && is_own(s))
      for (int t = 0; t < n_.threads; ++t) as_thread(t, [&] { run(s); });
    else run(s);
  }
  void check_accesses(const Statement& s) {
    for (auto& a : s.accesses) {
      Expr offset = a.offset ? a.offset : s.offset;
      auto [it, is_new] = stated_.try_emplace(&a);
      if (is_new) it->second = LaneOffsets::is_stated(a, offset);
      if (it->second) offsets_.add(a, parts_of(*facts_, a.offset ? a.slot : s.buffer), value(offset).i);
    }
  }
  void run(const Statement& s) {
    using Kind = Statement::Kind;
    check_accesses(s);
    switch (s.kind) {
      case Kind::loop: {
        int64_t extent = value(s.extent).i;
        int var = m_.source(Machine::Source::index, s.var);
        if (s.loop == LoopKind::threads) return over_threads(s, extent, var);
        if (s.lanes.scan) return scan_lanes(s, extent, var);
        if (s.lanes.width) return over_lanes(s, extent, var);
        if (s.lanes.chains > 1 && is_alone_) return in_chains(s, extent, var);
        for (int64_t i = 0; i < extent; ++i) {
          offsets_.enter(var, i);
          set_index(var, i);
          block(s.body);
        }
        offsets_.leave(var);
        break;
      }
      case Kind::condition:
        if (value(s.values[0]).i) block(s.body);
        break;
      case Kind::barrier:
        touched_.clear();
        touch_volatile();
        break;
      case Kind::let:
      case Kind::assign: {
        Number v = value(s.values[0]);
        m_.set(local(s.var), v);
        break;
      }
      case Kind::accumulator: {
        Components c = Machine::neutral(s.monoid, s.dtype, s.position);
        for (int k = 0; k < components(s.monoid); ++k) m_.set(local(s.var + k), c[size_t(k)]);
        break;
      }
      case Kind::accumulate: {
        Components now;
        for (int k = 0; k < components(s.monoid); ++k) now[size_t(k)] = m_.get(local(s.var + k));
        std::vector<int> cells;
        for (auto& e : s.values) cells.push_back(m_.add(e));
        now = m_.with_element(s.monoid, s.values[0].dtype(), now, cells);
        for (int k = 0; k < components(s.monoid); ++k) m_.set(local(s.var + k), now[size_t(k)]);
        break;
      }
      case Kind::array:
        arrays_[s.var].assign(size_t(value(s.extent).i * itemsize(s.dtype)), 0);
        dtypes_[s.var] = s.dtype;
        if (s.space != Space::local) block_arrays_.insert(s.var);
        m_.touch(m_.source(Machine::Source::buffer, -1 - s.var));
        break;
      case Kind::tiles: tiles(s); break;
      case Kind::store:
      case Kind::atomic: put(s); break;
    }
  }
  void tiles(const Statement& s) {
    auto from = [&](int buffer, Expr offset) {
      return reinterpret_cast<const int32_t*>(address(buffer, DType::Int32, value(offset).i));
    };
    int64_t steps = value(s.values[2]).i;
    char* to = address(s.buffer, s.product->dtype(), value(s.offset).i);
    std::array<int32_t, kTileBlock * kTileBlock> sums;  // of 32 bits, whatever their dtype
    multiply_tiles(*s.product, from(s.product->left, s.values[0]), from(s.product->right, s.values[1]), steps,
                   sums.data());
    if (!s.body.empty()) {
      int var = m_.source(Machine::Source::index, s.var);
      for (int64_t i = 0; i < steps; ++i) {
        offsets_.enter(var, i);
        set_index(var, i);
        block(s.body);
      }
      offsets_.leave(var);
    }
    std::memcpy(to, sums.data(), sizeof sums);
    touch_written(s.buffer);
  }
  void put(const Statement& s) {
    DType d = s.buffer >= 0 ? n_.buffers[size_t(s.buffer)].dtype : dtypes_.at(-1 - s.buffer);
    char* to = address(s.buffer, d, value(s.offset).i);
    Number v = value(s.values[0]);
    bool atomic = s.kind == Statement::Kind::atomic;
    if (atomic) v = m_.combined(s.monoid, compute_type(d), {read(d, to, 0)}, {v})[0];
    note(s.buffer, to, d, s.part, atomic ? Use::atomic : Use::write);
    write(d, to, v, s.part);
    touch_written(s.buffer);
  }
  // Discards cached loads of a buffer, and of those that may overlap it.
  void touch_written(int buffer) {
    m_.touch(m_.source(Machine::Source::buffer, buffer));
    if (buffer >= 0 && !n_.buffers[size_t(buffer)].unique)
      for (size_t k = 0; k < n_.buffers.size(); ++k)
        if (!n_.buffers[k].unique) m_.touch(m_.source(Machine::Source::buffer, int(k)));
  }

  const Nest& n_;
  std::span<void* const> buffers_;
  Machine m_;
  std::map<int, std::vector<char>> arrays_;
  std::map<int, DType> dtypes_;
  std::set<int> is_volatile_, block_arrays_;
  std::optional<NestFacts> facts_;  // for a nest for lanes
  bool is_alone_ = false;           // in a vector outside of strips
  LaneOffsets offsets_;
  std::unordered_map<const Access*, bool> stated_;
  // By accumulate statement of a scan: the sources of its accumulators, and their values in each lane after it.
  std::map<const Statement*, std::pair<std::vector<int>, std::vector<Components>>> scanned_;
  int thread_ = kAll;             // the thread that runs; kAll: uniform statements run once for all threads
  std::vector<int> own_;          // sources of the locals that differ between threads
  std::map<int, size_t> own_at_;  // index into own_ by source
  std::vector<std::vector<Number>> values_;  // values of own_, by thread
  std::map<const char*, Touched> touched_;
};

}  // namespace

std::vector<Tensor> interpret(const Definition& d, std::span<const Tensor> operands,
                              std::span<const Dims> result_sizes, std::span<const DType> result_dtypes,
                              Precision p, std::function<int64_t(SymInt)> size_value) {
  bool exact = p == Precision::wide;
  Machine m(exact);
  m.size_value = size_value;
  m.load = [&](Expr e, std::span<const int64_t> at) {
    internal_check(size_t(e->slot) < operands.size())
        << print(e) << ": there are " << operands.size() << " operands";
    const Tensor& t = operands[size_t(e->slot)];
    internal_check(t.dtype() == e->memory) << print(e) << ": operand " << e->slot << " is " << t.dtype();
    return element(t, at, e->part, "load");
  };
  if (d.scatter) return {scattered(d, m, operands, result_sizes[0], result_dtypes[0], exact, size_value)};
  std::vector<Tensor> results;
  for (size_t k = 0; k < d.values.size(); ++k) {
    DType dtype = result_dtypes[k];
    Tensor out = Tensor::empty(result_sizes[k], dtype);
    char* data = static_cast<char*>(out.data_ptr());
    int value = m.add(d.values[k]);
    Axes axes(m, size_t(d.rank));
    each(concrete(result_sizes[k]), [&](auto at, int64_t position) {
      axes.move_to(at, position);
      write(dtype, data + position * itemsize(dtype),
            narrowed(m.value(value), d.values[k].dtype(), dtype, exact));
    });
    results.push_back(std::move(out));
  }
  return results;
}

void interpret(const Nest& n, std::span<void* const> buffers, IntSpan params) {
  NestRunner(n, buffers, params).run();
}

}  // namespace facula::loop
