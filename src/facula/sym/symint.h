// SymInt: an integer, or an expression over named sizes. It is one word: concrete values are stored directly, so an
// array of concrete SymInts is an array of int64_t; symbolic ones point to an immortal hash-consed node.
//   example: s0*3 == 6 with hint s0 = 2  ->  true, and the current Shapes gets the guard s0*3 == 6
//
// Every symbol has a hint, its value during the trace. Arithmetic simplifies. A comparison that the symbols' ranges
// do not decide is decided by the hints and recorded as a guard of the current Shapes. Sizes have the range >= 2 by
// default: 0 and 1 are specialised (as in PyTorch's dynamic shapes).
#pragma once
#include <cstdint>
#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "facula/base/error.h"
#include "facula/base/small_vector.h"

namespace facula {
namespace sym {

enum class Kind : uint8_t { constant, symbol, add, mul, floordiv, mod, min, max };
struct Node {
  Kind kind;
  int64_t value;            // constant: the value; symbol: its index in its Shapes
  const Node* a = nullptr;  // operands; add and mul are in canonical order
  const Node* b = nullptr;
  int64_t hint;       // the value under the hints
  int64_t low, high;  // proven range
  std::string name;   // name of a symbol
};

}  // namespace sym

class SymInt {
 public:
  // Numbers and results beyond +-2^61 are clamped: no valid size is that large, and x[1:sys.maxsize] means the rest.
  constexpr SymInt(int64_t v = 0) : bits_(v >= kLimit ? kLimit - 1 : v < -kLimit ? -kLimit : v) {}
  static SymInt of(const sym::Node* n) {
    SymInt s;
    s.bits_ = int64_t(reinterpret_cast<uint64_t>(n) | kTag);
    return s;
  }
  bool is_symbolic() const { return (uint64_t(bits_) & kTagMask) == kTag; }
  bool is_symbol() const {
    return is_symbolic() && node()->kind == sym::Kind::symbol;
  }  // true for a plain symbol, false for an expression over symbols
  // The value; InternalError if symbolic.
  int64_t concrete() const {
    if (is_symbolic()) [[unlikely]]
      fail();
    return bits_;
  }
  // The value under the hints.
  int64_t hint() const { return is_symbolic() ? node()->hint : bits_; }
  // The value; if symbolic, pins the expression to its hint with a guard.
  int64_t guard_int() const { return is_symbolic() ? guard_slow() : bits_; }
  const sym::Node* node() const { return reinterpret_cast<const sym::Node*>(uint64_t(bits_) & ~kTagMask); }
  static SymInt from_identity(uint64_t word) {
    SymInt s;
    s.bits_ = int64_t(word);
    return s;
  }
  uint64_t identity() const { return uint64_t(bits_); }  // equal for equal expressions

  friend SymInt operator+(SymInt a, SymInt b) {
    return both(a, b) ? SymInt(a.bits_ + b.bits_) : binary(sym::Kind::add, a, b);
  }
  friend SymInt operator-(SymInt a, SymInt b) {
    return both(a, b) ? SymInt(a.bits_ - b.bits_)
                      : binary(sym::Kind::add, a, binary(sym::Kind::mul, b, SymInt(int64_t(-1))));
  }
  friend SymInt operator*(SymInt a, SymInt b) {
    return both(a, b) ? SymInt(times(a.bits_, b.bits_)) : binary(sym::Kind::mul, a, b);
  }
  friend SymInt operator/(SymInt a, SymInt b) {  // floor
    return both(a, b) && a.bits_ >= 0 && b.bits_ > 0 ? SymInt(a.bits_ / b.bits_)
                                                     : binary(sym::Kind::floordiv, a, b);
  }
  friend SymInt operator%(SymInt a, SymInt b) { return binary(sym::Kind::mod, a, b); }  // sign of the divisor
  friend SymInt min(SymInt a, SymInt b) {
    return both(a, b) ? (a.bits_ < b.bits_ ? a : b) : binary(sym::Kind::min, a, b);
  }
  friend SymInt max(SymInt a, SymInt b) {
    return both(a, b) ? (a.bits_ > b.bits_ ? a : b) : binary(sym::Kind::max, a, b);
  }
  SymInt operator-() const { return SymInt(int64_t(0)) - *this; }
  SymInt& operator+=(SymInt o) { return *this = *this + o; }
  SymInt& operator-=(SymInt o) { return *this = *this - o; }
  SymInt& operator*=(SymInt o) { return *this = *this * o; }

  // Comparisons return bool and may add guards; see above.
  friend bool operator==(SymInt a, SymInt b) { return both(a, b) ? a.bits_ == b.bits_ : equal(a, b); }
  friend bool operator!=(SymInt a, SymInt b) { return !(a == b); }
  friend bool operator<(SymInt a, SymInt b) { return both(a, b) ? a.bits_ < b.bits_ : less(a, b); }
  friend bool operator>(SymInt a, SymInt b) { return b < a; }
  friend bool operator<=(SymInt a, SymInt b) { return !(b < a); }
  friend bool operator>=(SymInt a, SymInt b) { return !(a < b); }
  // True only if provable without a guard.
  static bool surely_equal(SymInt a, SymInt b);

 private:
  // Concrete values are in [-2^61, 2^61); the top three bits of a pointer's word are 0b011.
  static constexpr int64_t kLimit = int64_t(1) << 61;
  static constexpr uint64_t kTagMask = 0xE000000000000000ull, kTag = 0x6000000000000000ull;
  static bool both(SymInt a, SymInt b) { return !a.is_symbolic() && !b.is_symbolic(); }
  static constexpr int64_t times(int64_t a, int64_t b) {
    int64_t p = 0;
    return __builtin_mul_overflow(a, b, &p) ? (a < 0) != (b < 0) ? INT64_MIN : INT64_MAX : p;
  }
  static SymInt binary(sym::Kind k, SymInt a, SymInt b);
  static bool equal(SymInt a, SymInt b);
  static bool less(SymInt a, SymInt b);
  int64_t guard_slow() const;
  [[noreturn]] void fail() const;
  int64_t bits_;
};
static_assert(sizeof(SymInt) == 8);

template <>
inline constexpr bool kCheckedLists<SymInt> = true;
using Dims = SmallVector<SymInt, 5>;   // sizes or strides, possibly symbolic
using Ints = SmallVector<int64_t, 5>;  // concrete ones, and lists of dimensions
// Borrowed sizes or strides. Access to a dimension that does not exist raises IndexError.
class SymSpan : public std::span<const SymInt> {
 public:
  using Span = std::span<const SymInt>;
  using Span::span;
  SymSpan(Span s) : Span(s) {}
  const SymInt& operator[](size_t d) const { return Span::operator[](checked(d, size())); }
  const SymInt& front() const { return (*this)[0]; }
  const SymInt& back() const { return (*this)[size() - 1]; }
  SymSpan first(size_t n) const { return Span::first(checked(n, size() + 1)); }
  SymSpan last(size_t n) const { return Span::last(checked(n, size() + 1)); }
  SymSpan subspan(size_t from) const { return Span::subspan(checked(from, size() + 1)); }
  SymSpan subspan(size_t from, size_t n) const { return subspan(from).first(n); }

 private:
  static size_t checked(size_t at, size_t end) {
    if (at >= end) [[unlikely]]
      no_such_element(at, end);
    return at;
  }
};
using IntSpan = std::span<const int64_t>;

bool any_symbolic(SymSpan s);
// The same memory as integers; all must be concrete.
inline IntSpan concrete(SymSpan s) { return {reinterpret_cast<const int64_t*>(s.data()), s.size()}; }
inline SymSpan symbolic(IntSpan s) { return {reinterpret_cast<const SymInt*>(s.data()), s.size()}; }
inline SymInt product(SymSpan s) {
  SymInt p = int64_t(1);
  for (auto x : s) p *= x;
  return p;
}
std::string to_string(SymInt s);
std::string to_string(SymSpan s);  // "[2, s0*3]"
inline std::ostream& operator<<(std::ostream& o, SymInt s) { return o << to_string(s); }

namespace sym {

// A guard: a comparison on which a trace relied, `left relation right`.
struct Guard {
  enum class Relation : uint8_t { eq, ne, lt, ge } relation;
  SymInt left, right;
};
std::string to_string(const Guard& g);

// The symbols and guards of one trace. A With makes it the current one of the thread.
class Shapes {
 public:
  SymInt fresh(std::string name, int64_t hint, int64_t low = 2, int64_t high = int64_t(1) << 60);
  const std::vector<Guard>& guards() const { return guards_; }
  void guard(Guard g);
  int symbol_count() const { return int(symbols_.size()); }
  SymInt symbol(int i) const { return symbols_[size_t(i)]; }
  // True if the guards hold for symbol values values[i].
  bool hold(IntSpan values) const;

  static Shapes* current();
  class With {
   public:
    explicit With(Shapes& s);
    ~With();

   private:
    Shapes* outer_;
  };

 private:
  std::vector<SymInt> symbols_;
  std::vector<Guard> guards_;
};

// The value of `e` for symbol values values[i].
int64_t evaluate(SymInt e, IntSpan values);

}  // namespace sym
}  // namespace facula
