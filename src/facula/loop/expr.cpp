#include "facula/loop/expr.h"

#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "facula/base/fork.h"
#include "facula/base/hash.h"
#include "facula/loop/number.h"
#include "facula/loop/seen.h"
#include "facula/loop/simplify.h"

namespace facula::loop {
namespace {

struct FnInfo {
  const char* name;
  int arity;
  char result;
  double ulp;
};
constexpr FnInfo kFn[] = {
#define FACULA_FN(n, a, r, u) {#n, a, #r[0], u},
    FACULA_SCALAR_FUNCTIONS(FACULA_FN) FACULA_STEPS(FACULA_FN)
#undef FACULA_FN
};
struct MonoidInfo {
  const char* name;
  int components;
};
constexpr MonoidInfo kMonoid[] = {
#define FACULA_M(n, c) {#n, c},
    FACULA_MONOIDS(FACULA_M)
#undef FACULA_M
};

uint64_t bits(double v) { return std::bit_cast<uint64_t>(v); }

uint64_t hash_of(const Node& n) {
  uint64_t h = mix(uint64_t(n.kind) << 8 | uint64_t(n.dtype), uint64_t(n.fn) << 8 | uint64_t(n.monoid));
  h = mix(h, uint64_t(uint32_t(n.slot)) << 32 | uint64_t(n.part) << 8 | uint64_t(n.memory));
  if (n.kind == Kind::constant) {
    h = category(n.dtype) <= Category::integral
            ? mix(h, uint64_t(n.value.to_int()))
            : mix(mix(h, bits(n.value.to_complex().real())), bits(n.value.to_complex().imag()));
  }
  if (n.kind == Kind::size) h = mix(h, n.size.identity());
  for (auto& b : n.bound) h = mix(mix(h, uint64_t(b.var)), b.extent->hash);
  for (auto& a : n.args) h = mix(h, a->hash);
  return h;
}

bool equal(const Node& a, const Node& b) {
  if (a.kind != b.kind || a.dtype != b.dtype || a.fn != b.fn || a.monoid != b.monoid || a.slot != b.slot ||
      a.part != b.part || a.memory != b.memory || a.args.size() != b.args.size() ||
      a.bound.size() != b.bound.size())
    return false;
  for (size_t k = 0; k < a.args.size(); ++k)
    if (!same(a.args[k], b.args[k])) return false;
  for (size_t k = 0; k < a.bound.size(); ++k)
    if (a.bound[k].var != b.bound[k].var || !same(a.bound[k].extent, b.bound[k].extent)) return false;
  if (a.kind == Kind::size) return a.size.identity() == b.size.identity();
  if (a.kind != Kind::constant) return true;
  if (category(a.dtype) <= Category::integral) return a.value.to_int() == b.value.to_int();
  auto x = a.value.to_complex(), y = b.value.to_complex();
  return bits(x.real()) == bits(y.real()) && bits(x.imag()) == bits(y.imag());
}

// An open-addressing hash table over nodes in chunks. A set that allocates for each node took a twentieth of the
// first step.
class Table {
 public:
  TableMutex mutex;
  Expr find_or_keep(Node&& n) {
    if (count_ * 2 >= slots_.size()) grow();
    Slot& s = place(slots_, n.hash, [&](const Node& present) { return equal(present, n); });
    if (!s.node) {
      n.id = uint32_t(count_++);
      s = {n.hash, new (room()) Node(std::move(n))};
    }
    return Expr(s.node);
  }

 private:
  struct Slot {
    uint64_t hash = 0;
    const Node* node = nullptr;
  };
  static constexpr size_t kChunk = 256;
  template <class Same>
  static Slot& place(std::vector<Slot>& slots, uint64_t hash, Same same) {
    size_t k = hash & (slots.size() - 1);
    while (slots[k].node && !(slots[k].hash == hash && same(*slots[k].node)))
      k = (k + 1) & (slots.size() - 1);
    return slots[k];
  }
  void grow() {
    std::vector<Slot> larger(std::max<size_t>(slots_.size() * 2, 4096));
    for (auto& s : slots_)
      if (s.node) place(larger, s.hash, [](const Node&) { return false; }) = s;
    slots_ = std::move(larger);
  }
  void* room() {
    if (used_ == kChunk || !chunk_) {
      chunk_ = static_cast<Node*>(::operator new(kChunk * sizeof(Node)));
      used_ = 0;
    }
    return chunk_ + used_++;
  }
  std::vector<Slot> slots_;
  size_t count_ = 0, used_ = 0;
  Node* chunk_ = nullptr;
};
Table& table() {
  static auto* t = new Table;  // immortal, like the expressions
  return *t;
}

Node node(Kind k, DType d) {
  Node n;
  n.kind = k;
  n.dtype = d;
  n.memory = d;
  return n;
}

void check_index(Expr x, const char* what) {
  internal_check(x && x.dtype() == DType::Int64)
      << what << " is " << (x ? name(x.dtype()) : "missing") << ", not int64";
}

bool allowed(Fn f, DType d) {
  switch (f) {
    case Fn::sqrt:
    case Fn::rsqrt:
    case Fn::reciprocal:
    case Fn::exp:
    case Fn::exp2:
    case Fn::expm1:
    case Fn::log:
    case Fn::log2:
    case Fn::log10:
    case Fn::log1p:
    case Fn::sin:
    case Fn::cos:
    case Fn::tan:
    case Fn::asin:
    case Fn::acos:
    case Fn::atan:
    case Fn::sinh:
    case Fn::cosh:
    case Fn::tanh:
    case Fn::asinh:
    case Fn::acosh:
    case Fn::atanh:
    case Fn::sigmoid:
    case Fn::div: return is_differentiable(d);
    case Fn::erf:
    case Fn::erfc:
    case Fn::erfinv:
    case Fn::ndtr:
    case Fn::atan2:
    case Fn::copysign: return is_floating(d);
    case Fn::floor:
    case Fn::ceil:
    case Fn::trunc:
    case Fn::round:
    case Fn::relu:
    case Fn::max:
    case Fn::min:
    case Fn::fmax:
    case Fn::fmin:
    case Fn::lt:
    case Fn::le:
    case Fn::gt:
    case Fn::ge: return !is_complex(d);
    case Fn::floordiv:
    case Fn::truncdiv:
    case Fn::remainder:
    case Fn::fmod: return is_integral(d) || is_floating(d);
    case Fn::bit_not:
    case Fn::bit_and:
    case Fn::bit_or:
    case Fn::bit_xor: return category(d) <= Category::integral;
    case Fn::gcd:
    case Fn::shl:
    case Fn::shr: return is_integral(d);
    case Fn::unlikely: return d == DType::Bool;
    case Fn::from_bits:
    case Fn::entry: return d == DType::Int32 || d == DType::Int64;
    case Fn::bits:
    case Fn::scale:
    case Fn::scaled_sum:
    case Fn::mantissa:
    case Fn::exponent:
    case Fn::is_subnormal:
    case Fn::log_special:
    case Fn::times_ndtr:
    case Fn::times_sigmoid:
    case Fn::any_pow: return is_floating(d);
    case Fn::dot_bytes: return d == DType::Int32;
    case Fn::far_sin:
    case Fn::far_cos:
    case Fn::far_tan: return d == DType::Float64;
#define FACULA_FN(n, a, r, u) case Fn::n:
      FACULA_MAPPED_UNARY(FACULA_FN)
      FACULA_MAPPED_BINARY(FACULA_FN)
#undef FACULA_FN
      return is_floating(d);
    case Fn::neg:
    case Fn::sub:
    case Fn::pow: return d != DType::Bool;
    default: return true;  // add, mul and fma of Bool are logical
  }
}

Expr folded(Monoid m, int axis, std::vector<BoundVar> vars, std::vector<Expr> values, Kind kind) {
  auto wanted = size_t(loop::values(m));
  internal_check(values.size() == wanted)
      << name(m) << " takes " << wanted << " values, not " << values.size();
  DType d = values[0].dtype();
  bool logical = m == Monoid::any || m == Monoid::all;
  internal_check(logical == (d == DType::Bool) || m == Monoid::max || m == Monoid::min || wanted == 2)
      << name(m) << " of " << d;
  internal_check(!is_complex(d) || m == Monoid::sum || m == Monoid::prod) << name(m) << " of " << d;
  bool fractions = m == Monoid::logsumexp || m == Monoid::welford || m == Monoid::complex_prod;
  internal_check(!fractions || is_floating(d)) << name(m) << " of " << d;
  internal_check(m != Monoid::complex_prod || values[1].dtype() == d) << "parts of two dtypes";
  internal_check(!has_position(m) || is_integral(values[1].dtype()))
      << "the position of an extremum is " << values[1].dtype() << ", no integer";
  for (auto& v : vars) check_index(v.extent, "an extent");
  Node n = node(kind, d);
  n.monoid = m;
  n.slot = axis;
  n.bound = std::move(vars);
  n.args = std::move(values);
  return intern(std::move(n));
}

// Substitution by one set of replacements; `avoid_` has the variables that occur in the replacements.
class Substitution {
 public:
  Substitution(std::map<int, Expr> map) : map_(std::move(map)) {
    for (auto& [v, e] : map_)
      visit(e, [&](Expr x) {
        if (x->kind == Kind::index) avoid_.insert(x->slot);
      });
  }
  Expr operator()(Expr x) {
    if (map_.empty()) return x;
    if (const Expr* substituted = done_.find(x.get())) return *substituted;
    Expr r = make(x);
    return done_[x.get()] = r;
  }

 private:
  Expr make(Expr x) {
    if (x->kind == Kind::index) {
      auto it = map_.find(x->slot);
      return it == map_.end() ? x : it->second;
    }
    if (x->kind == Kind::scan) {
      if (auto it = map_.find(x->slot); it != map_.end()) return scan_at(x, it->second);
    }
    for (auto& b : x->bound)
      if (map_.count(b.var) || avoid_.count(b.var)) return under_binder(x);
    return map_operands(x, *this);
  }
  // Bound variables shadow the map's, and are renamed if a replacement mentions them.
  Expr under_binder(Expr x) {
    std::map<int, Expr> inner = map_;
    auto bound = x->bound;
    std::vector<Expr> all{x};
    for (auto& [v, e] : map_) all.push_back(e);
    int next = fresh_var(all);
    for (auto& b : bound) {
      b.extent = (*this)(b.extent);
      inner.erase(b.var);
      if (avoid_.count(b.var)) {
        inner[b.var] = index(next);
        b.var = next++;
      }
    }
    Substitution s(std::move(inner));
    std::vector<Expr> args;
    for (auto& a : x->args) args.push_back(s(a));
    return rebuilt(x, std::move(bound), std::move(args));
  }
  // A scan that is read at another index: along a renamed axis it remains a scan, otherwise it becomes a reduction up
  // to that index.
  Expr scan_at(Expr x, Expr at) {
    if (at->kind == Kind::index && at->slot < 64) {
      int v = x->bound[0].var, axis = at->slot;
      if (!map_.count(v) && !avoid_.count(v)) {
        std::vector<Expr> args;
        for (auto& a : x->args) args.push_back((*this)(a));
        return scan(x->monoid, axis, {v, (*this)(x->bound[0].extent)}, std::move(args));
      }
    }
    Expr r = reduce(x->monoid, {{x->bound[0].var, index(x->slot) + 1}}, x->args);
    return (*this)(r);
  }
  std::map<int, Expr> map_;
  std::unordered_set<int> avoid_;
  NodeMap<Expr> done_;
};

}  // namespace

Expr rebuilt(Expr x, std::vector<BoundVar> bound, std::vector<Expr> args) {
  switch (x->kind) {
    case Kind::load: return load(x->slot, x->memory, std::move(args), x->part);
    case Kind::cast: return x->memory == x->dtype ? cast(args[0], x->dtype) : round_to(args[0], x->memory);
    case Kind::call: return call(x->fn, std::move(args));
    case Kind::select: return select(args[0], args[1], args[2]);
    case Kind::reduce: return reduce(x->monoid, std::move(bound), std::move(args));
    case Kind::scan: return scan(x->monoid, x->slot, bound[0], std::move(args));
    case Kind::part: return part(args[0], x->slot);
    case Kind::random: return random(args[0], args[1]);
    case Kind::check: return x->slot ? within(args[0], args[1]) : check(args[0], args[1]);
    case Kind::divisor: return divisor(args[0]);
    default: return x;
  }
}

const char* name(Fn f) { return kFn[int(f)].name; }
int arity(Fn f) { return kFn[int(f)].arity; }
double ulp(Fn f) { return kFn[int(f)].ulp; }
const char* name(Monoid m) { return kMonoid[int(m)].name; }
int components(Monoid m) { return kMonoid[int(m)].components; }
int values(Monoid m) { return has_position(m) || m == Monoid::complex_prod ? 2 : 1; }
bool has_position(Monoid m) { return m == Monoid::argmax || m == Monoid::argmin || m == Monoid::argmax_pool; }

Expr intern(Node n) {
  n.hash = hash_of(n);
  n.has_reduce = n.kind == Kind::reduce || n.kind == Kind::scan;
  for (auto& a : n.args) n.has_reduce |= a->has_reduce;
  for (auto& b : n.bound) n.has_reduce |= b.extent->has_reduce;
  Table& t = table();
  std::lock_guard lock(t.mutex);
  return t.find_or_keep(std::move(n));
}

DType call_type(Fn f, std::span<const Expr> args) {
  internal_check(int(args.size()) == arity(f))
      << name(f) << " takes " << arity(f) << " operands, not " << args.size();
  for (auto& a : args) internal_check(bool(a)) << name(f) << ": an operand is missing";
  DType d = args[0].dtype();
  for (auto& a : args)
    internal_check(a.dtype() == d) << name(f) << ": operands of " << d << " and " << a.dtype()
                                   << "; cast one";
  internal_check(allowed(f, d)) << name(f) << " is not defined for " << d;
  switch (kFn[int(f)].result) {
    case 'B': return DType::Bool;
    case 'R': return real_of(d);
    case 'I': return itemsize(d) == 4 ? DType::Int32 : DType::Int64;
    case 'F': return itemsize(d) == 4 ? DType::Float32 : DType::Float64;
    default: return d;
  }
}

Expr constant(const Scalar& v, DType d) {
  internal_check(compute_type(d) == d) << "a constant of " << d << ", which exists in memory only";
  Node n = node(Kind::constant, d);
  Number x = number_of(v, d);
  if (std::isnan(x.z.real())) x.z.real(std::numeric_limits<double>::quiet_NaN());
  if (std::isnan(x.z.imag())) x.z.imag(std::numeric_limits<double>::quiet_NaN());
  n.value = scalar_of(x, d);
  return intern(std::move(n));
}

Expr index(int var) {
  Node n = node(Kind::index, DType::Int64);
  n.slot = var;
  return intern(std::move(n));
}

Expr position() { return intern(node(Kind::position, DType::Int64)); }

Expr size(SymInt s) {
  if (!s.is_symbolic()) return constant(s.concrete(), DType::Int64);
  Node n = node(Kind::size, DType::Int64);
  n.size = s;
  return intern(std::move(n));
}

Expr param(int k) {
  Node n = node(Kind::param, DType::Int64);
  n.slot = k;
  return intern(std::move(n));
}

Expr load(int slot, DType memory, std::vector<Expr> indices, int part) {
  for (auto& i : indices) check_index(i, "an index");
  internal_check(part >= 0 && part <= 2 && (part == 0 || is_complex(memory)))
      << "part " << part << " of " << memory;
  Node n = node(Kind::load, part ? real_of(compute_type(memory)) : compute_type(memory));
  n.slot = slot;
  n.memory = memory;
  n.part = part;
  n.args = std::move(indices);
  return intern(std::move(n));
}

Expr cast(Expr x, DType to) {
  internal_check(bool(x)) << "cast of nothing";
  internal_check(compute_type(to) == to) << "a cast to " << to << ", which exists in memory only";
  return simplify_cast(x, to);
}

Expr round_to(Expr x, DType d) {
  if (compute_type(d) == d) return x;
  internal_check(x.dtype() == compute_type(d))
      << "only " << compute_type(d) << " rounds to " << d << ", not " << x.dtype();
  if ((x->kind == Kind::load || x->kind == Kind::cast) && x->memory == d) return x;
  if (x->kind == Kind::constant)
    return constant(scalar_of(stored(number_of(x->value, x.dtype()), d), x.dtype()), x.dtype());
  Node n = node(Kind::cast, x.dtype());
  n.memory = d;
  n.args = {x};
  return intern(std::move(n));
}

Expr call(Fn f, std::vector<Expr> args) {
  call_type(f, args);
  return simplify_call(f, std::move(args));
}

Expr raw_call(Fn f, std::vector<Expr> args) {
  Node n = node(Kind::call, call_type(f, args));
  n.fn = f;
  n.args = std::move(args);
  return intern(std::move(n));
}

Expr select(Expr c, Expr a, Expr b) {
  internal_check(c && a && b) << "select: an operand is missing";
  internal_check(c.dtype() == DType::Bool) << "select: the condition is " << c.dtype();
  internal_check(a.dtype() == b.dtype()) << "select: " << a.dtype() << " and " << b.dtype() << "; cast one";
  return simplify_select(c, a, b);
}

Expr reduce(Monoid m, std::vector<BoundVar> vars, std::vector<Expr> values) {
  return folded(m, 0, std::move(vars), std::move(values), Kind::reduce);
}

Expr scan(Monoid m, int axis, BoundVar var, std::vector<Expr> values) {
  return folded(m, axis, {var}, std::move(values), Kind::scan);
}

Expr part(Expr r, int k) {
  internal_check(r && (r->kind == Kind::reduce || r->kind == Kind::scan)) << "part of what is no reduction";
  internal_check(k >= 0 && k < components(r->monoid)) << "component " << k << " of " << name(r->monoid);
  if (components(r->monoid) == 1) return r;
  bool position = k == 1 && r->args.size() == 2;
  Node n = node(Kind::part, position ? r->args[1].dtype() : r.dtype());
  n.slot = k;
  n.args = {r};
  return intern(std::move(n));
}

Expr random(Expr seed, Expr counter) {
  check_index(seed, "the seed");
  check_index(counter, "the counter");
  Node n = node(Kind::random, DType::Int64);
  n.args = {seed, counter};
  return intern(std::move(n));
}

static Expr checked(Expr i, Expr size, bool wraps) {
  check_index(i, "an index");
  check_index(size, "a size");
  if (is_constant(i) && is_constant(size)) {
    int64_t v = i->value.to_int(), s = size->value.to_int();
    if (v >= (wraps ? -s : 0) && v < s) return constant(v < 0 ? v + s : v, DType::Int64);
  }
  Node n = node(Kind::check, DType::Int64);
  n.slot = !wraps;
  n.args = {i, size};
  return intern(std::move(n));
}
Expr check(Expr i, Expr size) { return checked(i, size, true); }
Expr within(Expr i, Expr size) { return checked(i, size, false); }

Expr divisor(Expr y) {
  internal_check(is_integral(y.dtype())) << "a divisor that is checked must be an integer, got " << y.dtype();
  if (is_constant(y) && y->value.to_int() != 0) return y;
  Node n = node(Kind::divisor, y.dtype());
  n.args = {y};
  return intern(std::move(n));
}

Expr local(int var, DType d) {
  Node n = node(Kind::local, d);
  n.slot = var;
  return intern(std::move(n));
}

void visit(Expr root, const std::function<void(Expr)>& f) {
  struct Frame {
    Expr x;
    size_t next;
  };
  Seen seen;
  seen.insert(root.get());
  std::vector<Frame> stack{{root, 0}};
  while (!stack.empty()) {
    Frame& top = stack.back();
    Expr x = top.x;
    size_t k = top.next++;
    if (k == x->bound.size() + x->args.size()) {
      stack.pop_back();
      f(x);
      continue;
    }
    Expr child = k < x->bound.size() ? x->bound[k].extent : x->args[k - x->bound.size()];
    if (seen.insert(child.get())) stack.push_back({child, 0});
  }
}

Expr rewrite(Expr x, const Rewrite& f) {
  NodeMap<Expr> done;
  auto go = [&](Expr e, auto& self) -> Expr {
    if (const Expr* rewritten = done.find(e.get())) return *rewritten;
    Expr r = f(e);
    if (!r.get()) r = map_operands(e, [&](Expr a) { return self(a, self); });
    return done[e.get()] = r;
  };
  return go(x, go);
}

Expr substitute(Expr x, std::span<const std::pair<int, Expr>> map) {
  std::map<int, Expr> m;
  for (auto& [v, e] : map)
    if (!(e->kind == Kind::index && e->slot == v)) m[v] = e;
  return Substitution(std::move(m))(x);
}

int fresh_var(std::span<const Expr> xs) {
  int next = 64;
  for (auto& x : xs) {
    visit(x, [&](Expr e) {
      if (e->kind == Kind::index) next = std::max(next, e->slot + 1);
      for (auto& b : e->bound) next = std::max(next, b.var + 1);
    });
  }
  return next;
}

}  // namespace facula::loop
