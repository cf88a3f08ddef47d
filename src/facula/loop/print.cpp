#include "facula/loop/print.h"

#include <charconv>

#include "facula/loop/nest.h"
#include "facula/loop/tiles.h"

namespace facula::loop {
namespace {

constexpr size_t kDeepest = 200;  // nesting within one line

template <class T>
std::string shortest(T v) {
  if (v != v) return "nan";
  char text[40];
  auto end = std::to_chars(text, text + sizeof text, v).ptr;
  return {text, end};
}
std::string shortest(double v, DType d) {
  return real_of(d) == DType::Float32 ? shortest(float(v)) : shortest(v);
}

#define FACULA_A(n) #n,
constexpr const char* kAccesses[] = {FACULA_ACCESSES(FACULA_A)};
#undef FACULA_A

std::string var(int v) { return "i" + std::to_string(v); }

// Quotes a name, and replaces characters that a quoted name cannot hold.
std::string quoted(const std::string& s) {
  std::string r = "\"";
  for (char c : s) r += c == '"' || c == '\\' || c == '\n' ? '_' : c;
  return r + "\"";
}

class NestPrinter {
 public:
  explicit NestPrinter(bool names) : names_(names) {}
  std::string operator()(const Nest& n) {
    printer_.count(n.tasks);
    printer_.count(n.cost);
    count(n.body);
    out_ = "nest " + name(n.name) + " params " + std::to_string(n.params) + " {\n";
    for (auto& b : n.buffers)
      out_ += std::string("  buffer ") + facula::name(b.dtype) + (b.written ? " write" : " read") +
              (b.unique ? " unique " : " shared ") + name(b.name) + "\n";
    if (n.threads) out_ += "  threads " + std::to_string(n.threads) + "\n";
    if (n.lanes) out_ += "  lanes " + std::to_string(n.lanes) + "\n";
    if (n.index_bits != 64) out_ += "  index " + std::to_string(n.index_bits) + "\n";
    std::string piece = n.end_var < 0 ? "" : " to " + var(n.end_var);
    line("  ", [&] { return "tasks " + var(n.task_var) + piece + " < " + text(n.tasks); });
    line("  ", [&] { return "cost " + text(n.cost); });
    block(n.body, "  ");
    return out_ + "}\n";
  }

 private:
  void count(const Block& b) {
    for (auto& s : b) {
      for (Expr e : {s.extent, s.offset})
        if (e) printer_.count(e);
      for (Expr e : s.values) printer_.count(e);
      for (auto& a : s.accesses)
        if (a.offset) printer_.count(a.offset);
      count(s.body);
    }
  }
  std::string name(const std::string& s) const { return quoted(names_ ? s : ""); }
  std::string text(Expr x) { return printer_.print(x, out_, indent_); }
  // Evaluates the line first, since that may print definitions before it.
  template <class F>
  void line(const std::string& indent, F&& f) {
    indent_ = indent;
    std::string s = f();
    out_ += indent + s + "\n";
  }
  void block(const Block& b, const std::string& indent) {
    for (auto& s : b) statement(s, indent);
  }
  static const char* where(Space space) {
    return space == Space::shared ? " shared " : space == Space::scratch ? " scratch " : " ";
  }
  static std::string how(const Statement& s) {
    std::string t = s.loop == LoopKind::vector     ? " vector"
                    : s.loop == LoopKind::unrolled ? " unrolled"
                    : s.loop == LoopKind::threads  ? " threads"
                                                   : "";
    auto unless = [&](int n, int usual, const char* what) {
      if (n != usual) t += what + std::to_string(n);
    };
    unless(s.lanes.width, 0, " ");
    unless(s.lanes.unroll, 1, " unroll ");
    unless(s.lanes.strip, 1, " strip ");
    unless(s.lanes.chains, 1, " chains ");
    unless(s.lanes.prefetch, 0, " prefetch ");
    if (s.lanes.scan) t += " scan";
    return s.lanes.tail ? t : t + " whole";
  }
  void access(const Access& a, const std::string& indent) {
    using Kind = Access::Kind;
    line(indent, [&] {
      std::string t = "access ";
      t += a.offset ? "load " + std::to_string(a.slot) + "[" + text(a.offset) + "]" : "store";
      t += std::string(" ") + kAccesses[size_t(a.kind)];
      auto add = [&](const char* what, int n) { t += what + std::to_string(n); };
      if (a.kind == Kind::spaced || a.kind == Kind::repeated || a.kind == Kind::neighbours) add(" ", a.count);
      if (a.kind == Kind::repeated) add(" from ", a.from);
      if (a.moved) t += a.moved > 0 ? " moved" : " moved reversed";
      if (a.rows >= 0) add(" rows i", a.rows);
      return t;
    });
  }
  std::string tiles(const Statement& s) {
    auto& p = *s.product;
    auto place = [&](int buffer, Expr offset) { return std::to_string(buffer) + "[" + text(offset) + "]"; };
    std::string t = p.words == TileWords::bytes ? "tiles bytes " : "tiles ";
    t += place(s.buffer, s.offset);
    t += " = " + place(p.left, s.values[0]);
    t += " * " + place(p.right, s.values[1]);
    t += " steps " + text(s.values[2]);
    t += " parts " + std::to_string(p.parts) + " order";
    for (size_t k = 0; k < p.phases.size(); ++k) {
      if (k) t += ",";
      for (auto& pair : p.phases[k]) t += " " + std::to_string(pair.left) + "*" + std::to_string(pair.right);
    }
    if (!s.body.empty()) t += " with " + var(s.var) + " {";
    return t;
  }
  void statement(const Statement& s, const std::string& indent) {
    using Kind = Statement::Kind;
    for (auto& a : s.accesses) access(a, indent);
    std::string v = "v" + std::to_string(s.var);
    switch (s.kind) {
      case Kind::loop:
        line(indent, [&] { return "for " + var(s.var) + " < " + text(s.extent) + how(s) + " {"; });
        break;
      case Kind::condition: line(indent, [&] { return "if " + text(s.values[0]) + " {"; }); break;
      case Kind::let: line(indent, [&] { return "let " + v + " = " + text(s.values[0]); }); break;
      case Kind::assign: line(indent, [&] { return "assign " + v + " = " + text(s.values[0]); }); break;
      case Kind::accumulator:
        line(indent, [&] {
          return "accumulator " + v + " " + loop::name(s.monoid) + " " + facula::name(s.dtype) +
                 (s.position == DType::Int64 ? "" : std::string(" at ") + facula::name(s.position));
        });
        break;
      case Kind::accumulate:
        line(indent, [&] {
          std::string t = "accumulate " + v + (s.rising ? " rising " : " ") + loop::name(s.monoid) + "(";
          for (size_t k = 0; k < s.values.size(); ++k) t += (k ? ", " : "") + text(s.values[k]);
          return t + ")";
        });
        break;
      case Kind::array:
        line(indent,
             [&] { return "array " + v + where(s.space) + facula::name(s.dtype) + " " + text(s.extent); });
        break;
      case Kind::store:
        line(indent, [&] {
          std::string t = "store " + std::to_string(s.buffer) +
                          (s.part == 1   ? ".re"
                           : s.part == 2 ? ".im"
                                         : "") +
                          "[";
          t += text(s.offset) + "] = ";
          return t + text(s.values[0]);
        });
        break;
      case Kind::tiles: line(indent, [&] { return tiles(s); }); break;
      case Kind::barrier: line(indent, [] { return std::string("barrier"); }); break;
      case Kind::atomic:
        line(indent, [&] {
          std::string t =
              std::string("atomic ") + loop::name(s.monoid) + " " + std::to_string(s.buffer) + "[";
          t += text(s.offset) + "] = ";
          return t + text(s.values[0]);
        });
        break;
    }
    if (s.kind == Kind::loop || s.kind == Kind::condition || (s.kind == Kind::tiles && !s.body.empty())) {
      block(s.body, indent + "  ");
      out_ += indent + "}\n";
    }
  }
  const bool names_;
  ExprPrinter printer_;
  std::string out_, indent_;
};

}  // namespace

std::string print_size(SymInt s) {
  if (!s.is_symbolic()) return std::to_string(s.concrete());
  auto* n = s.node();
  if (n->kind == sym::Kind::constant) return std::to_string(n->value);
  if (n->kind == sym::Kind::symbol) return n->name;
  const char* f = n->kind == sym::Kind::add        ? "add"
                  : n->kind == sym::Kind::mul      ? "mul"
                  : n->kind == sym::Kind::floordiv ? "floordiv"
                  : n->kind == sym::Kind::mod      ? "remainder"
                  : n->kind == sym::Kind::min      ? "min"
                                                   : "max";
  return std::string(f) + "(" + print_size(SymInt::of(n->a)) + ", " + print_size(SymInt::of(n->b)) + ")";
}

std::string print_number(const Scalar& v, DType d) {
  std::string suffix = std::string(":") + facula::name(d);
  switch (category(d)) {
    case Category::boolean: return v.to_bool() ? "true" : "false";
    case Category::integral: return std::to_string(v.to_int()) + (d == DType::Int64 ? "" : suffix);
    case Category::floating: return shortest(v.to_double(), d) + suffix;
    default:
      return "(" + shortest(v.to_complex().real(), d) + ", " + shortest(v.to_complex().imag(), d) + ")" +
             suffix;
  }
}

void ExprPrinter::count(Expr x) {
  struct Frame {
    Expr x;
    size_t next;
  };
  std::vector<Frame> stack;
  auto use = [&](Expr e) {
    if (uses_[e.get()]++ == 0) stack.push_back({e, 0});
  };
  use(x);
  while (!stack.empty()) {
    Frame& top = stack.back();
    size_t k = top.next++, b = top.x->bound.size();
    if (k == b + top.x->args.size()) stack.pop_back();
    else use(k < b ? top.x->bound[k].extent : top.x->args[k - b]);
  }
}

std::string ExprPrinter::print(Expr x, std::string& lines, const std::string& indent) {
  // Names subexpressions of a deep expression, so that neither printing nor parsing it needs more stack.
  std::unordered_map<const Node*, int> heights;
  const bool may_be_deep = uses_.size() >= kDeepest;
  auto is_deep = [&](Expr e) {
    int height = 0;
    auto over = [&](Expr child) {
      if (!names_.contains(child.get())) height = std::max(height, heights[child.get()]);
    };
    for (auto& b : e->bound) over(b.extent);
    for (auto& a : e->args) over(a);
    return (heights[e.get()] = height + 1) >= int(kDeepest);
  };
  visit(x, [&](Expr e) {
    if (e->args.empty() || names_.contains(e.get())) return;
    if (!(may_be_deep && e.get() != x.get() && is_deep(e)) && uses_[e.get()] < 2) return;
    std::string definition;
    write(e, definition);
    int id = int(names_.size());
    names_[e.get()] = id;
    lines += indent + "%" + std::to_string(id) + " = " + definition + "\n";
  });
  std::string s;
  write(x, s);
  return s;
}

namespace {

// The text of a node before its operands, which is the complete text if it has none.
std::string head(const Node& x) {
  switch (x.kind) {
    case Kind::constant: return print_number(x.value, x.dtype);
    case Kind::index: return var(x.slot);
    case Kind::position: return "position";
    case Kind::size: return "size[" + print_size(x.size) + "]";
    case Kind::param: return "p" + std::to_string(x.slot);
    case Kind::local: return "v" + std::to_string(x.slot) + ":" + facula::name(x.dtype);
    case Kind::load: {
      const char* component = x.part == 1 ? ".re" : x.part == 2 ? ".im" : "";
      return "load[" + std::to_string(x.slot) + ":" + facula::name(x.memory) + component + "]";
    }
    case Kind::cast: return std::string("cast[") + facula::name(x.memory) + "]";
    case Kind::call: return loop::name(x.fn);
    case Kind::select: return "select";
    case Kind::reduce: return std::string("reduce[") + loop::name(x.monoid) + "]";
    case Kind::scan: return std::string("scan[") + loop::name(x.monoid) + ", " + std::to_string(x.slot) + "]";
    case Kind::part: return "part[" + std::to_string(x.slot) + "]";
    case Kind::random: return "random";
    case Kind::check: return x.slot ? "within" : "check";
    case Kind::divisor: return "divisor";
  }
  return {};
}

bool has_operands(Kind k) {
  return k != Kind::constant && k != Kind::index && k != Kind::position && k != Kind::size &&
         k != Kind::param && k != Kind::local;
}

}  // namespace

void ExprPrinter::write(Expr x, std::string& to) {
  if (const int* id = names_.find(x.get())) {
    to += "%" + std::to_string(*id);
    return;
  }
  to += head(*x);
  if (!has_operands(x->kind)) return;
  to += "(";
  for (size_t k = 0; k < x->bound.size(); ++k) {
    to += (k ? ", " : "") + var(x->bound[k].var) + " < ";
    write(x->bound[k].extent, to);
  }
  if (x->kind == Kind::reduce || x->kind == Kind::scan) to += "; ";
  for (size_t k = 0; k < x->args.size(); ++k) {
    if (k) to += ", ";
    write(x->args[k], to);
  }
  to += ")";
}

std::string print(Expr x) {
  ExprPrinter p;
  p.count(x);
  std::string lines;
  std::string last = p.print(x, lines, "");
  return lines + last;
}

std::string print(const Nest& n) { return NestPrinter(true)(n); }
std::string identity(const Nest& n) {
  return n.identity.text.empty() ? NestPrinter(false)(n) : n.identity.text;
}

}  // namespace facula::loop
