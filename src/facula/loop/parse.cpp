#include <cctype>
#include <optional>
#include <unordered_map>

#include "facula/loop/lexer.h"
#include "facula/loop/nest.h"
#include "facula/loop/print.h"
#include "facula/loop/tiles.h"

namespace facula::loop {
namespace {

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

class ExpressionParser : protected Lexer {
 public:
  explicit ExpressionParser(std::string_view text) : Lexer(text) {}

  Expr entire_expression() {
    definitions();
    Expr x = expression();
    space();
    if (at_ != text_.size()) fail("the end of the text");
    return x;
  }

 protected:
  void definitions() {
    while (accept("%")) {
      int k = small();
      take("=");
      names_[k] = expression();
    }
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
  std::vector<Expr> operands() {
    std::vector<Expr> r;
    if (accept(")")) return r;
    do r.push_back(expression());
    while (accept(","));
    take(")");
    return r;
  }

 private:
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

  std::unordered_map<int, Expr> names_;
};

class NestParser : ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

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
  Block block() {
    Block b;
    for (;;) {
      definitions();
      std::vector<Access> accesses;
      for (; accept_word("access"); definitions()) accesses.push_back(access());
      if (accesses.empty() && accept("}")) return b;
      b.push_back(statement());
      b.back().accesses = std::move(accesses);
    }
  }
  Access access() {
    using AK = Access::Kind;
    Access a{};
    if (accept_word("load")) {
      a.slot = small(-kMost);
      take("[");
      a.offset = expression();
      take("]");
    } else {
      word("store");
    }
    a.kind = access_kind();
    if (a.kind == AK::spaced || a.kind == AK::repeated || a.kind == AK::neighbours) a.count = small(1);
    if (a.kind == AK::pairs) a.count = 2;
    if (a.kind == AK::repeated) {
      word("from");
      a.from = small();
    }
    if (accept_word("moved")) a.moved = accept_word("reversed") ? -1 : 1;
    if (accept_word("rows")) a.rows = variable('i');
    return a;
  }
  Access::Kind access_kind() {
#define FACULA_A(n) if (accept_word(#n)) return Access::Kind::n;
    FACULA_ACCESSES(FACULA_A)
#undef FACULA_A
    fail("an access");
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
    if (accept_word("prefetch")) s.lanes.prefetch = small(1);
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
  Expr place(int& buffer) {
    buffer = small();
    take("[");
    Expr offset = expression();
    take("]");
    return offset;
  }
  void tiles(Statement& s) {
    s.kind = Statement::Kind::tiles;
    TileProduct p{};
    if (accept_word("bytes")) p.words = TileWords::bytes;
    s.offset = place(s.buffer);
    take("=");
    s.values.push_back(place(p.left));
    take("*");
    s.values.push_back(place(p.right));
    word("steps");
    s.values.push_back(expression());
    word("parts");
    p.parts = small(1);
    word("order");
    do {
      p.phases.emplace_back();
      for (space(); at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])); space()) {
        int left = small();
        take("*");
        p.phases.back().push_back({left, small()});
      }
    } while (accept(","));
    if (accept_word("with")) {
      s.var = variable('i');
      take("{");
      s.body = block();
    }
    s.product = std::make_shared<const TileProduct>(std::move(p));
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
    } else if (w == "tiles") {
      tiles(s);
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
};

}  // namespace

Expr parse_expr(std::string_view text) { return ExpressionParser(text).entire_expression(); }
Nest parse_nest(std::string_view text) { return NestParser(text).nest(); }

}  // namespace facula::loop
