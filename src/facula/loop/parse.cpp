#include <cctype>
#include <charconv>
#include <optional>
#include <unordered_map>

#include "facula/loop/nest.h"
#include "facula/loop/print.h"

namespace facula::loop {
namespace {

constexpr int kDeepest = 1000;  // most levels of nested expressions, sizes and blocks; each level takes stack
constexpr int kMost = 1 << 24;  // slots, variables, parameters and names have smaller numbers

std::optional<Fn> function_named(std::string_view s) {
  static const auto* table = [] {
    auto* t = new std::unordered_map<std::string_view, Fn>;
#define FACULA_FN(n, a, r, u) t->emplace(#n, Fn::n);
    FACULA_SCALAR_FUNCTIONS(FACULA_FN)
    FACULA_STEPS(FACULA_FN)
#undef FACULA_FN
    return t;
  }();
  auto it = table->find(s);
  return it == table->end() ? std::nullopt : std::optional(it->second);
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Expr entire_expression() {
    definitions();
    Expr x = expression();
    space();
    if (at_ != text_.size()) fail("the end of the text");
    return x;
  }

  Nest nest() {
    Nest n;
    word("nest");
    n.name = quoted();
    word("params");
    n.params = small();
    take("{");
    while (accept_word("buffer")) {
      Buffer b;
      b.dtype = dtype();
      b.written = choice("write", "read");
      b.unique = choice("unique", "shared");
      b.name = quoted();
      n.buffers.push_back(b);
    }
    if (peek_word("threads")) {
      word("threads");
      n.threads = small(1);
    }
    if (accept_word("lanes")) n.lanes = small(1);
    if (peek_word("index")) {
      word("index");
      n.index_bits = small();
    }
    definitions();
    word("tasks");
    n.task_var = variable('i');
    if (accept_word("to")) n.end_var = variable('i');
    take("<");
    n.tasks = expression();
    definitions();
    word("cost");
    n.cost = expression();
    n.body = block();
    space();
    if (at_ != text_.size()) fail("the end of the text");
    return n;
  }

 private:
  [[noreturn]] void fail(const std::string& wanted) {
    size_t line = 1, column = 1;
    for (size_t k = 0; k < at_ && k < text_.size(); ++k) {
      if (text_[k] == '\n') {
        ++line;
        column = 1;
      } else ++column;
    }
    value_check(false, "parse") << "line " << line << ", column " << column << ": " << wanted
                                << " expected, found '" << text_.substr(std::min(at_, text_.size()), 20)
                                << "'";
    __builtin_unreachable();
  }
  void space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool peek(std::string_view s) {
    space();
    return text_.substr(at_, s.size()) == s;
  }
  bool accept(std::string_view s) {
    bool yes = peek(s);
    if (yes) at_ += s.size();
    return yes;
  }
  void take(std::string_view s) {
    if (!accept(s)) fail("'" + std::string(s) + "'");
  }
  static bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
  std::string_view peek_name() {
    space();
    size_t end = at_;
    while (end < text_.size() && in_name(text_[end])) ++end;
    return text_.substr(at_, end - at_);
  }
  std::string_view name() {
    auto s = peek_name();
    if (s.empty()) fail("a name");
    at_ += s.size();
    return s;
  }
  bool peek_word(std::string_view s) { return peek_name() == s; }
  bool accept_word(std::string_view s) {
    bool yes = peek_word(s);
    if (yes) at_ += s.size();
    return yes;
  }
  void word(std::string_view s) {
    if (!accept_word(s)) fail("'" + std::string(s) + "'");
  }
  bool choice(std::string_view yes, std::string_view no) {
    bool first = accept_word(yes);
    if (!first) word(no);
    return first;
  }
  std::string quoted() {
    take("\"");
    size_t end = text_.find('"', at_);
    if (end == std::string_view::npos) fail("'\"'");
    std::string s(text_.substr(at_, end - at_));
    at_ = end + 1;
    return s;
  }
  int64_t integer() {
    space();
    int64_t v = 0;
    auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), v);
    if (error != std::errc()) fail("an integer");
    at_ = size_t(end - text_.data());
    return v;
  }
  int small(int least = 0) {
    size_t from = at_;
    int64_t v = integer();
    if (v < least || v >= kMost) {
      at_ = from;
      fail("a number from " + std::to_string(least) + " to " + std::to_string(kMost - 1));
    }
    return int(v);
  }
  // Counts one level of nesting during its lifetime.
  struct Level {
    explicit Level(Parser& p) : parser(p) {
      if (++p.depth_ > kDeepest) p.fail("no more than " + std::to_string(kDeepest) + " levels");
    }
    ~Level() { --parser.depth_; }
    Parser& parser;
  };
  double number() {
    space();
    double v = 0;
    auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), v);
    if (error == std::errc::invalid_argument) fail("a number");
    at_ = size_t(end - text_.data());
    return v;
  }
  DType dtype() {
    auto s = name();
    for (int k = 0; k < kDTypeCount; ++k)
      if (s == facula::name(DType(k))) return DType(k);
    at_ -= s.size();
    fail("a dtype");
  }
  Monoid monoid() {
    auto s = name();
#define FACULA_M(n, c) if (s == #n) return Monoid::n;
    FACULA_MONOIDS(FACULA_M)
#undef FACULA_M
    at_ -= s.size();
    fail("a monoid");
  }
  int variable(char letter) {
    auto s = peek_name();
    int v = 0;
    if (!is_variable(s, letter) || std::from_chars(s.data() + 1, s.data() + s.size(), v).ec != std::errc() ||
        v >= kMost)
      fail(std::string("a variable ") + letter + "<number>");
    at_ += s.size();
    return v;
  }
  static bool is_variable(std::string_view s, char letter) {
    if (s.size() < 2 || s[0] != letter) return false;
    for (char c : s.substr(1))
      if (!std::isdigit(static_cast<unsigned char>(c))) return false;
    return true;
  }

  void definitions() {
    while (accept("%")) {
      int k = small();
      take("=");
      names_[k] = expression();
    }
  }

  // Calls f(), which builds a node, and reports an error of it as a mistake in the text at `from`.
  template <class F>
  Expr checked(size_t from, F&& f) {
    try {
      return f();
    } catch (const Error& e) {
      at_ = from;
      fail("a well-typed expression (" + e.message() + ")");
    }
  }

  std::vector<Expr> operands() {
    std::vector<Expr> r;
    if (accept(")")) return r;
    do r.push_back(expression());
    while (accept(","));
    take(")");
    return r;
  }

  Expr expression() {
    Level level(*this);
    space();
    size_t from = at_;
    if (at_ == text_.size()) fail("an expression");
    char c = text_[at_];
    if (accept("%")) return defined_name(from);
    if (c == '(') return complex_number();
    auto s = peek_name();
    if (std::isdigit(static_cast<unsigned char>(c)) || c == '-' || s == "nan" || s == "inf")
      return real_number();
    if (Expr x = leaf(s)) return x;
    at_ += s.size();
    if (Expr x = node_with_attributes(s, from)) return x;
    if (Expr x = node_of_operands(s, from)) return x;
    at_ = from;
    fail("an expression");
  }

  Expr defined_name(size_t from) {
    auto it = names_.find(small());
    if (it == names_.end()) {
      at_ = from;
      fail("a defined name");
    }
    return it->second;
  }

  // Parses expressions that are a single word; returns an empty Expr and consumes nothing if `s` is something else.
  Expr leaf(std::string_view s) {
    if (s == "true" || s == "false") {
      at_ += s.size();
      return constant(s == "true", DType::Bool);
    }
    if (s == "position") {
      at_ += s.size();
      return position();
    }
    if (is_variable(s, 'i')) return index(variable('i'));
    if (is_variable(s, 'p')) return param(variable('p'));
    if (is_variable(s, 'v')) {
      int v = variable('v');
      take(":");
      return local(v, dtype());
    }
    return {};
  }

  // Parses `kind[attributes](operands)` after `kind`, which is `s`, was consumed.
  Expr node_with_attributes(std::string_view s, size_t from) {
    if (s == "size") {
      take("[");
      SymInt n = symbolic_size();
      take("]");
      return size(n);
    }
    if (s == "load") {
      take("[");
      int slot = small(-kMost), part = 0;
      take(":");
      DType d = dtype();
      if (accept(".re")) part = 1;
      else if (accept(".im")) part = 2;
      take("]");
      take("(");
      auto at = operands();
      return checked(from, [&] { return load(slot, d, at, part); });
    }
    if (s == "cast") {
      take("[");
      DType d = dtype();
      take("]");
      return node(from, 1, [&](auto& x) { return compute_type(d) == d ? cast(x[0], d) : round_to(x[0], d); });
    }
    if (s == "part") {
      take("[");
      int k = small();
      take("]");
      return node(from, 1, [&](auto& x) { return part(x[0], k); });
    }
    if (s == "reduce" || s == "scan") return fold(s == "scan", from);
    return {};
  }

  Expr fold(bool scans, size_t from) {
    take("[");
    Monoid m = monoid();
    int axis = 0;
    if (scans) {
      take(",");
      axis = small();
    }
    take("]");
    take("(");
    std::vector<BoundVar> vars;
    do {
      int v = variable('i');
      take("<");
      vars.push_back({v, expression()});
    } while (accept(","));
    take(";");
    auto x = operands();
    return checked(from, [&] { return scans ? scan(m, axis, vars[0], x) : reduce(m, vars, x); });
  }

  // Parses `kind(operands)` after `kind`, which is `s`, was consumed.
  Expr node_of_operands(std::string_view s, size_t from) {
    if (s == "select") return node(from, 3, [](auto& x) { return select(x[0], x[1], x[2]); });
    if (s == "random") return node(from, 2, [](auto& x) { return random(x[0], x[1]); });
    if (s == "check") return node(from, 2, [](auto& x) { return check(x[0], x[1]); });
    if (s == "within") return node(from, 2, [](auto& x) { return within(x[0], x[1]); });
    if (s == "divisor") return node(from, 1, [](auto& x) { return divisor(x[0]); });
    auto f = function_named(s);
    if (!f) return {};
    take("(");
    auto x = operands();
    return checked(from, [&] { return call(*f, x); });
  }

  // Parses `n` operands and builds a node by f(operands).
  template <class F>
  Expr node(size_t from, size_t n, F&& f) {
    take("(");
    auto x = exactly(n);
    return checked(from, [&] { return f(x); });
  }

  std::vector<Expr> exactly(size_t n) {
    size_t from = at_;
    auto x = operands();
    if (x.size() != n) {
      at_ = from;
      fail(std::to_string(n) + " operands");
    }
    return x;
  }

  Expr real_number() {
    size_t from = at_;
    double v = number();
    size_t end = at_;
    if (accept(":")) {
      DType d = dtype();
      if (is_integral(d)) {
        at_ = from;
        int64_t i = integer();
        take(":");
        dtype();
        return constant(i, d);
      }
      return checked(from, [&] { return constant(v, d); });
    }
    at_ = from;
    int64_t i = integer();
    if (at_ != end) {
      at_ = end;
      fail("':' and a dtype");
    }
    return constant(i, DType::Int64);
  }
  Expr complex_number() {
    size_t from = at_;
    take("(");
    double re = number();
    take(",");
    double im = number();
    take(")");
    take(":");
    DType d = dtype();
    if (!is_complex(d)) {
      at_ = from;
      fail("a complex dtype");
    }
    return constant(std::complex<double>(re, im), d);
  }

  // Symbols belong to the current sym::Shapes.
  SymInt symbolic_size() {
    Level level(*this);
    space();
    size_t from = at_;
    if (at_ < text_.size() && (std::isdigit(static_cast<unsigned char>(text_[at_])) || text_[at_] == '-'))
      return integer();
    auto s = name();
    if (accept("(")) {
      SymInt a = symbolic_size();
      take(",");
      SymInt b = symbolic_size();
      take(")");
      if (s == "add") return a + b;
      if (s == "mul") return a * b;
      if (s == "floordiv") return a / b;
      if (s == "remainder") return a % b;
      if (s == "min") return min(a, b);
      if (s == "max") return max(a, b);
    } else if (auto* shapes = sym::Shapes::current()) {
      for (int k = 0; k < shapes->symbol_count(); ++k)
        if (shapes->symbol(k).is_symbolic() && shapes->symbol(k).node()->name == s) return shapes->symbol(k);
    }
    at_ = from;
    fail("a size over the symbols of the current trace");
  }

  Block block() {
    Block b;
    for (;;) {
      definitions();
      if (accept("}")) return b;
      b.push_back(statement());
    }
  }

  void loop_over(Statement& s) {
    s.kind = Statement::Kind::loop;
    s.var = variable('i');
    take("<");
    s.extent = expression();
    if (accept_word("vector")) s.loop = LoopKind::vector;
    else if (accept_word("unrolled")) s.loop = LoopKind::unrolled;
    else if (accept_word("threads")) s.loop = LoopKind::threads;
    if (!peek_name().empty() && std::isdigit(static_cast<unsigned char>(peek_name()[0])))
      s.lanes.width = small(1);
    if (accept_word("unroll")) s.lanes.unroll = small(1);
    if (accept_word("strip")) s.lanes.strip = small(1);
    if (accept_word("chains")) s.lanes.chains = small(1);
    s.lanes.scan = accept_word("scan");
    s.lanes.tail = !accept_word("whole");
    take("{");
    s.body = block();
  }
  void array(Statement& s) {
    s.kind = Statement::Kind::array;
    s.var = variable('v');
    if (accept_word("shared")) s.space = Space::shared;
    else if (accept_word("scratch")) s.space = Space::scratch;
    s.dtype = dtype();
    s.extent = expression();
  }
  // Parses the destination of a store.
  void put(Statement& s) {
    s.buffer = small(-kMost);
    if (s.kind == Statement::Kind::store && accept(".re")) s.part = 1;
    else if (s.kind == Statement::Kind::store && accept(".im")) s.part = 2;
    take("[");
    s.offset = expression();
    take("]");
    take("=");
    s.values = {expression()};
  }

  Statement statement() {
    Level level(*this);
    using Kind = Statement::Kind;
    Statement s{};
    size_t from = at_;
    auto w = name();
    if (w == "for") {
      loop_over(s);
    } else if (w == "if") {
      s.kind = Kind::condition;
      s.values = {expression()};
      take("{");
      s.body = block();
    } else if (w == "let" || w == "assign") {
      s.kind = w == "let" ? Kind::let : Kind::assign;
      s.var = variable('v');
      take("=");
      s.values = {expression()};
    } else if (w == "accumulator") {
      s.kind = Kind::accumulator;
      s.var = variable('v');
      s.monoid = monoid();
      s.dtype = dtype();
      if (accept_word("at")) s.position = dtype();
    } else if (w == "accumulate") {
      s.kind = Kind::accumulate;
      s.var = variable('v');
      s.rising = accept_word("rising");
      s.monoid = monoid();
      take("(");
      s.values = operands();
    } else if (w == "array") {
      array(s);
    } else if (w == "store") {
      s.kind = Kind::store;
      put(s);
    } else if (w == "barrier") {
      s.kind = Kind::barrier;
    } else if (w == "atomic") {
      s.kind = Kind::atomic;
      s.monoid = monoid();
      put(s);
    } else {
      at_ = from;
      fail("a statement");
    }
    return s;
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  std::unordered_map<int, Expr> names_;
};

}  // namespace

Expr parse_expr(std::string_view text) { return Parser(text).entire_expression(); }
Nest parse_nest(std::string_view text) { return Parser(text).nest(); }

}  // namespace facula::loop
