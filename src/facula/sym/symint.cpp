#include "facula/sym/symint.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <unordered_map>

#include "facula/base/fork.h"
#include "facula/base/hash.h"
#include "facula/base/thread_state.h"
#include "facula/sym/parse.h"
#include "facula/sym/run_time.h"

namespace facula {
namespace sym {
namespace {

constexpr int64_t kLow = -(int64_t(1) << 60), kHigh = int64_t(1) << 60;
int64_t clip(__int128 x) { return int64_t(std::clamp<__int128>(x, kLow, kHigh)); }

// Clamps concrete numbers, see SymInt.
int64_t within_limits(__int128 x) {
  constexpr int64_t kLimit = int64_t(1) << 61;
  return int64_t(std::clamp<__int128>(x, -kLimit, kLimit - 1));
}

int64_t floor_div(int64_t a, int64_t b) {
  if (b == 0) return 0;
  int64_t q = a / b;
  return q - ((a % b != 0) && ((a < 0) != (b < 0)));
}
int64_t floor_mod(int64_t a, int64_t b) { return b == 0 ? 0 : a - floor_div(a, b) * b; }

int64_t apply(Kind k, int64_t a, int64_t b) {
  switch (k) {
    case Kind::add: return within_limits(__int128(a) + b);
    case Kind::mul: return within_limits(__int128(a) * b);
    case Kind::floordiv: return floor_div(a, b);
    case Kind::mod: return floor_mod(a, b);
    case Kind::min: return std::min(a, b);
    case Kind::max: return std::max(a, b);
    default: return a;
  }
}

struct Range {
  int64_t low, high;
};
Range range_of(Kind k, const Node* a, const Node* b) {
  switch (k) {
    case Kind::add: return {clip(__int128(a->low) + b->low), clip(__int128(a->high) + b->high)};
    case Kind::mul: {
      __int128 c[] = {__int128(a->low) * b->low, __int128(a->low) * b->high, __int128(a->high) * b->low,
                      __int128(a->high) * b->high};
      return {clip(*std::min_element(c, c + 4)), clip(*std::max_element(c, c + 4))};
    }
    case Kind::floordiv: {
      if (b->low < 0) return {kLow, kHigh};
      int64_t least = std::max<int64_t>(b->low, 1);
      Range r{std::min(floor_div(a->low, least), floor_div(a->low, b->high)),
              std::max(floor_div(a->high, least), floor_div(a->high, b->high))};
      return b->low
                 ? r
                 : Range{std::min<int64_t>(r.low, 0), std::max<int64_t>(r.high, 0)};  // division by 0 gives 0
    }
    case Kind::mod:
      if (b->low > 0) return {0, b->high - 1};
      if (b->low < 0) return {kLow, kHigh};
      return {std::min<int64_t>(a->low, 0),
              std::max(a->high, b->high - 1)};  // the remainder by 0 is the operand
    case Kind::min: return {std::min(a->low, b->low), std::min(a->high, b->high)};
    case Kind::max: return {std::max(a->low, b->low), std::max(a->high, b->high)};
    default: return {a->low, a->high};
  }
}

// Nodes are immortal. Equal (kind, value, operands) give the same node; symbols are always new.
struct Identity {
  Kind kind;
  int64_t value;
  const Node *a, *b;
  bool operator==(const Identity&) const = default;
};
struct IdentityHash {
  size_t operator()(const Identity& i) const {
    return mix(mix(mix(uint64_t(i.kind), uint64_t(i.value)), reinterpret_cast<uint64_t>(i.a)),
               reinterpret_cast<uint64_t>(i.b));
  }
};

// The actual type of every node.
struct Counted : Node {
  int parts = 1;          // number of symbols, numbers and operations in it
  bool run_time = false;  // contains a run-time size
};
int parts_of(const Node* n) { return static_cast<const Counted*>(n)->parts; }
bool has_run_time(const Node* n) { return static_cast<const Counted*>(n)->run_time; }

void check_parts(size_t parts) {
  value_check(parts <= size_t(kMostParts), "size")
      << "a size follows from others by more than " << kMostParts << " operations, sizes and numbers";
}

const Node* intern(Kind k, int64_t value, const Node* a = nullptr, const Node* b = nullptr) {
  static TableMutex mutex;
  static auto* nodes = new std::unordered_map<Identity, const Node*, IdentityHash>;
  const Identity identity{k, value, a, b};
  std::lock_guard lock(mutex);
  if (auto it = nodes->find(identity); it != nodes->end()) return it->second;
  value_check(thread_state.expressions_left > 0, "size") << "the text describes too many different sizes";
  int parts = a ? parts_of(a) + parts_of(b) + 1 : 1;
  check_parts(size_t(parts));
  auto node = std::make_unique<Counted>(Counted{{k, value, a, b, value, value, value, ""}, parts});
  if (k != Kind::constant) {
    auto r = range_of(k, a, b);
    node->hint = apply(k, a->hint, b->hint);
    node->low = r.low;
    node->high = r.high;
    node->run_time = has_run_time(a) || has_run_time(b);
  }
  --thread_state.expressions_left;
  return nodes->emplace(identity, node.release()).first->second;
}

const Node* node_of(SymInt s) { return s.is_symbolic() ? s.node() : intern(Kind::constant, s.concrete()); }
SymInt of_node(const Node* n) { return n->kind == Kind::constant ? SymInt(n->value) : SymInt::of(n); }

// An order that does not depend on addresses, so that texts are equal in every process.
bool before(const Node* x, const Node* y) {
  if (x == y) return false;
  if (x->kind != y->kind) return x->kind < y->kind;
  if (x->value != y->value) return x->value < y->value;
  if (x->a != y->a && x->a && y->a) return before(x->a, y->a);
  if (x->b != y->b && x->b && y->b) return before(x->b, y->b);
  return x < y;
}
struct Before {
  bool operator()(const std::vector<const Node*>& x, const std::vector<const Node*>& y) const {
    return std::lexicographical_compare(x.begin(), x.end(), y.begin(), y.end(), before);
  }
};
// A polynomial over atoms (symbols and opaque nodes): monomial -> coefficient. It is the canonical form of sums and
// products.
using Polynomial = std::map<std::vector<const Node*>, int64_t, Before>;

void add_to(Polynomial& p, const std::vector<const Node*>& monomial, int64_t c) {
  auto& slot = p[monomial];
  slot = within_limits(__int128(slot) + c);
  if (!slot) p.erase(monomial);
}

size_t parts_of(const Polynomial& p) {
  size_t parts = 0;
  for (auto& [m, c] : p) parts += m.size() + 1;
  return parts;
}

Polynomial polynomial(const Node* n);

// The polynomial of a + b or a * b.
Polynomial polynomial(const Node* a, Kind k, const Node* b) {
  Polynomial p;
  if (k == Kind::add) {
    p = polynomial(a);
    for (auto& [m, c] : polynomial(b)) add_to(p, m, c);
  } else {
    auto left = polynomial(a), right = polynomial(b);
    check_parts(parts_of(left) * right.size() + parts_of(right) * left.size());
    for (auto& [m, c] : left)
      for (auto& [k, e] : right) {
        auto product = m;
        product.insert(product.end(), k.begin(), k.end());
        std::sort(product.begin(), product.end(), before);
        add_to(p, product, within_limits(__int128(c) * e));
      }
  }
  return p;
}

Polynomial polynomial(const Node* n) {
  if (n->kind == Kind::add || n->kind == Kind::mul) return polynomial(n->a, n->kind, n->b);
  Polynomial p;
  if (n->kind != Kind::constant) p[{n}] = 1;
  else if (n->value) p[{}] = n->value;
  return p;
}

// Caches the last results, since a trace computes the same sums and products repeatedly.
template <class F>
SymInt remembered(const Identity& i, F&& make) {
  struct Slot {
    Identity key{};
    SymInt value;
  };
  struct Slots {
    TableMutex mutex;
    Slot at[2048];
  };
  static auto* slots = new Slots;
  Slot& slot = slots->at[IdentityHash()(i) % std::size(slots->at)];
  {
    std::lock_guard lock(slots->mutex);
    if (slot.key.a && slot.key == i) return slot.value;
  }
  SymInt value = make();
  std::lock_guard lock(slots->mutex);
  slot = {i, value};
  return value;
}

SymInt rebuild(const Polynomial& p) {
  const Node* sum = nullptr;
  int64_t constant = 0;
  for (auto& [m, c] : p) {
    if (m.empty()) {
      constant = c;
      continue;
    }
    const Node* term = nullptr;
    for (auto* atom : m) term = term ? intern(Kind::mul, 0, term, atom) : atom;
    if (c != 1) term = intern(Kind::mul, 0, term, intern(Kind::constant, c));
    sum = sum ? intern(Kind::add, 0, sum, term) : term;
  }
  if (!sum) return SymInt(constant);
  if (constant) sum = intern(Kind::add, 0, sum, intern(Kind::constant, constant));
  return SymInt::of(sum);
}

// p / d if every term is a multiple of d's only term.
bool divide(const Polynomial& p, const Polynomial& d, Polynomial& quotient) {
  if (d.size() != 1) return false;
  auto& [atoms, divisor] = *d.begin();
  for (auto& [m, c] : p) {
    if (c % divisor) return false;
    auto rest = m;
    for (auto* atom : atoms) {
      auto it = std::find(rest.begin(), rest.end(), atom);
      if (it == rest.end()) return false;
      rest.erase(it);
    }
    add_to(quotient, rest, c / divisor);
  }
  return true;
}

// Called before a comparison is decided by hints, or a size is replaced by its hint; true if that is allowed.
bool check_comparable(const char* what, SymInt a, const SymInt* b) {
  bool run_time = is_run_time(a) || (b && is_run_time(*b));
  if (!run_time) [[likely]]
    return true;
  if (b && thread_state.comparing_assumes) {
    thread_state.comparing_assumed = true;
    return false;
  }
  SymInt e = is_run_time(a) ? a : *b;
  runtime_check(false, thread_state.comparing_op ? thread_state.comparing_op : "size")
      << what << ' ' << to_string(a) << (b ? " and " + to_string(*b) : "") << ", and " << to_string(e)
      << ", from " << e.node()->low << " to " << e.node()->high
      << ", is known only when the program has run what picks the elements"
      << hint(
             "let no branch and no other size depend on it: keep all elements, as with where(mask, x, 0), or ",
             "do that part outside of the traced function");
  __builtin_unreachable();
}

}  // namespace

// The hint is larger than usual sizes, and not a multiple of them.
SymInt run_time_size(Shapes& shapes, int64_t high, std::string name) {
  if (high <= 0) return SymInt(int64_t(0));
  static constexpr int64_t kPrimes[] = {99991, 99989, 99971, 99961, 99929, 99923, 99907, 99901,
                                        99881, 99877, 99871, 99859, 99839, 99833, 99829, 99823};
  int before = 0;
  for (int k = 0; k < shapes.symbol_count(); ++k) before += is_run_time(shapes.symbol(k));
  int64_t hint = kPrimes[size_t(before) % std::size(kPrimes)] + 100'000 * (before / int(std::size(kPrimes)));
  if (name.empty()) name = "u" + std::to_string(before);
  return shapes.fresh(std::move(name), hint, 0, high);
}
bool is_run_time(SymInt e) { return e.is_symbolic() && has_run_time(e.node()); }
bool is_run_time_name(std::string_view name) { return name.starts_with('u'); }

bool may_equal(SymInt a, SymInt b) {
  if (!a.is_symbolic() && !b.is_symbolic()) [[likely]]
    return a == b;
  SymInt d = a - b;
  return is_run_time(d) ? d.node()->low <= 0 && d.node()->high >= 0 : a == b;
}
bool may_be_less(SymInt a, SymInt b) {
  if (!a.is_symbolic() && !b.is_symbolic()) [[likely]]
    return a < b;
  SymInt d = a - b;
  return is_run_time(d) ? d.node()->low < 0 : a < b;
}
bool may_be_at_most(SymInt a, SymInt b) {
  if (!a.is_symbolic() && !b.is_symbolic()) [[likely]]
    return a <= b;
  SymInt d = a - b;
  return is_run_time(d) ? d.node()->low <= 0 : a <= b;
}

SymInt from_the_end(SymInt i, SymInt n) {
  constexpr int64_t kBeyond = (int64_t(1) << 61) - 1;  // the quotient is -1 or 0
  bool later = is_run_time(i) && i.node()->low < 0 && i.node()->high >= 0;
  if (later) return i - n * (i / SymInt(kBeyond));
  return i < 0 ? i + n : i;
}

Comparing::Comparing(const char* op, Answer answer)
    : outer_op_(thread_state.comparing_op),
      outer_answer_(thread_state.comparing_assumes ? assumes : raises),
      outer_assumed_(thread_state.comparing_assumed) {
  if (!thread_state.comparing_op || answer == assumes)
    thread_state.comparing_assumes = answer == assumes;  // otherwise the outer one counts
  if (!thread_state.comparing_op) thread_state.comparing_op = op;
  thread_state.comparing_assumed = false;
}
Comparing::~Comparing() {
  thread_state.comparing_op = outer_op_;
  thread_state.comparing_assumes = outer_answer_ == assumes;
  thread_state.comparing_assumed |= outer_assumed_;
}
bool Comparing::assumed() { return thread_state.comparing_assumed; }

SymInt Shapes::fresh(std::string name, int64_t hint, int64_t low, int64_t high) {
  auto* n = new Counted{
      {Kind::symbol, int64_t(symbols_.size()), nullptr, nullptr, hint, low, high, std::move(name)}};
  n->run_time = is_run_time_name(n->name);
  // Symbols are immortal too; the list prevents reports of leaks, since tagged pointers are not recognised.
  static TableMutex mutex;
  static auto* symbols = new std::vector<const Node*>;
  {
    std::lock_guard lock(mutex);
    symbols->push_back(n);
  }
  symbols_.push_back(SymInt::of(n));
  return symbols_.back();
}

void Shapes::guard(Guard g) {
  for (auto& guard : guards_)
    if (guard.relation == g.relation && guard.left.identity() == g.left.identity() &&
        guard.right.identity() == g.right.identity())
      return;
  guards_.push_back(g);
}

bool Shapes::hold(IntSpan values) const {
  for (auto& g : guards_) {
    int64_t a = evaluate(g.left, values), b = evaluate(g.right, values);
    bool ok = false;
    switch (g.relation) {
      case Guard::Relation::eq: ok = a == b; break;
      case Guard::Relation::ne: ok = a != b; break;
      case Guard::Relation::lt: ok = a < b; break;
      case Guard::Relation::ge: ok = a >= b; break;
    }
    if (!ok) return false;
  }
  return true;
}

ExpressionLimit::ExpressionLimit(size_t most)
    : outer_(thread_state.expressions_left), most_(std::min(most, outer_)) {
  thread_state.expressions_left = most_;
}
// Nodes that were created within an inner limit also count for the outer one.
ExpressionLimit::~ExpressionLimit() {
  thread_state.expressions_left = outer_ - (most_ - thread_state.expressions_left);
}

Shapes* Shapes::current() { return thread_state.shapes; }
Shapes::With::With(Shapes& s) : outer_(thread_state.shapes) { thread_state.shapes = &s; }
Shapes::With::~With() { thread_state.shapes = outer_; }

namespace {
int64_t evaluate_node(const Node* n, IntSpan values) {
  if (n->kind == Kind::constant) return n->value;
  if (n->kind == Kind::symbol) return values[size_t(n->value)];
  return apply(n->kind, evaluate_node(n->a, values), evaluate_node(n->b, values));
}

std::string text(const Node* n) {
  switch (n->kind) {
    case Kind::constant: return std::to_string(n->value);
    case Kind::symbol: return n->name;
    case Kind::add:
      if (n->b->kind == Kind::constant && n->b->value < 0)
        return text(n->a) + " - " + std::to_string(-n->b->value);
      return text(n->a) + " + " + text(n->b);
    case Kind::mul: {
      auto factor = [](const Node* x) {
        bool open = x->kind == Kind::add || x->kind == Kind::floordiv || x->kind == Kind::mod;
        return open ? "(" + text(x) + ")" : text(x);
      };
      if (n->b->kind == Kind::constant && n->b->value == -1) return "-" + factor(n->a);
      return factor(n->a) + "*" + factor(n->b);
    }
    case Kind::floordiv: return "(" + text(n->a) + ")//(" + text(n->b) + ")";
    case Kind::mod: return "(" + text(n->a) + ")%(" + text(n->b) + ")";
    case Kind::min: return "min(" + text(n->a) + ", " + text(n->b) + ")";
    case Kind::max: return "max(" + text(n->a) + ", " + text(n->b) + ")";
  }
  return "?";
}
}  // namespace

int64_t evaluate(SymInt e, IntSpan values) {
  return e.is_symbolic() ? evaluate_node(e.node(), values) : e.concrete();
}

std::string to_string(const Guard& g) {
  const char* relation[] = {"==", "!=", "<", ">="};
  return facula::to_string(g.left) + " " + relation[int(g.relation)] + " " + facula::to_string(g.right);
}

}  // namespace sym

using namespace sym;

SymInt SymInt::binary(Kind k, SymInt a, SymInt b) {
  if (both(a, b)) {
    value_check((k != Kind::floordiv && k != Kind::mod) || b.bits_ != 0, "size")
        << "division of " << a.bits_ << " by zero";
    return SymInt(apply(k, a.bits_, b.bits_));
  }
  if (k == Kind::add || k == Kind::mul) {
    SymInt number = a.is_symbolic() ? b : a, other = a.is_symbolic() ? a : b;
    if (!number.is_symbolic()) {
      if (number.bits_ == (k == Kind::mul)) return other;
      if (k == Kind::mul && number.bits_ == 0) return number;
    }
  }
  const Node *x = node_of(a), *y = node_of(b);
  switch (k) {
    case Kind::add:
    case Kind::mul: return remembered({k, 0, x, y}, [&] { return rebuild(polynomial(x, k, y)); });
    case Kind::floordiv: {
      if (y->kind == Kind::constant && y->value == 1) return a;
      Polynomial quotient;
      if (divide(polynomial(x), polynomial(y), quotient)) return rebuild(quotient);
      break;
    }
    case Kind::mod: {
      if (y->kind == Kind::constant && y->value == 1) return SymInt(int64_t(0));
      Polynomial quotient;
      if (divide(polynomial(x), polynomial(y), quotient)) return SymInt(int64_t(0));
      break;
    }
    case Kind::min:
    case Kind::max: {
      if (x == y) return a;
      // min(x, max(x, ...)) is x, and likewise max(x, min(x, ...)).
      Kind other = k == Kind::min ? Kind::max : Kind::min;
      auto has = [&](const Node* n, const Node* part) {
        return n->kind == other && (n->a == part || n->b == part);
      };
      if (has(y, x)) return a;
      if (has(x, y)) return b;
      if (x->high <= y->low) return k == Kind::min ? a : b;
      if (y->high <= x->low) return k == Kind::min ? b : a;
      if (before(y, x)) std::swap(x, y);
      break;
    }
    default: break;
  }
  auto* n = intern(k, 0, x, y);
  return n->low == n->high ? SymInt(n->low) : of_node(n);
}

bool SymInt::surely_equal(SymInt a, SymInt b) {
  if (a.bits_ == b.bits_) return true;
  SymInt difference = a - b;
  return !difference.is_symbolic() && difference.bits_ == 0;
}

bool SymInt::equal(SymInt a, SymInt b) {
  if (a.bits_ == b.bits_) return true;
  SymInt d = a - b;
  if (!d.is_symbolic()) return d.bits_ == 0;
  if (d.node()->low > 0 || d.node()->high < 0) return false;
  bool comparable = check_comparable("compares the sizes", a, &b), answer = d.hint() == 0;
  if (auto* shapes = Shapes::current(); comparable && shapes)
    shapes->guard({answer ? Guard::Relation::eq : Guard::Relation::ne, a, b});
  return answer;
}

bool SymInt::less(SymInt a, SymInt b) {
  SymInt d = a - b;
  if (!d.is_symbolic()) return d.bits_ < 0;
  if (d.node()->high < 0) return true;
  if (d.node()->low >= 0) return false;
  bool comparable = check_comparable("compares the sizes", a, &b), answer = d.hint() < 0;
  if (auto* shapes = Shapes::current(); comparable && shapes)
    shapes->guard({answer ? Guard::Relation::lt : Guard::Relation::ge, a, b});
  return answer;
}

int64_t SymInt::guard_slow() const {
  check_comparable("needs the number of", *this, nullptr);
  if (auto* shapes = Shapes::current()) shapes->guard({Guard::Relation::eq, *this, SymInt(node()->hint)});
  return node()->hint;
}

void SymInt::fail() const {
  check_comparable("needs the number of", *this, nullptr);
  internal_check(false) << "the size " << to_string(*this) << " is symbolic where a number is needed";
  __builtin_unreachable();
}

bool any_symbolic(SymSpan s) {
  return std::any_of(s.begin(), s.end(), [](SymInt x) { return x.is_symbolic(); });
}

std::string to_string(SymInt s) { return s.is_symbolic() ? text(s.node()) : std::to_string(s.concrete()); }

std::string to_string(SymSpan s) {
  std::string out = "[";
  for (size_t k = 0; k < s.size(); ++k) out += (k ? ", " : "") + to_string(s[k]);
  return out + "]";
}

}  // namespace facula
