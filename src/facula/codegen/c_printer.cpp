#include "facula/codegen/c_printer.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>
#include <utility>

#include "facula/codegen/c_element.h"
#include "facula/codegen/c_prelude.h"
#include "facula/loop/elementary.h"
#include "facula/loop/monoid.h"
#include "facula/special_text.h"

namespace facula::codegen {
namespace {

using loop::Expr;
using loop::Fn;
using loop::Kind;
using loop::Statement;

// Locals of an atomic update outside of any nest.
constexpr int kFormer = -1, kNew = -2;

bool is_float32(DType d) { return d == DType::Float32; }
bool is_real(DType d) { return category(d) == Category::floating; }

std::string number(double v, DType d) {
  std::string suffix = is_float32(d) ? "f" : "";
  if (v != v) return is_float32(d) ? "facula_nan_f32" : "facula_nan_f64";
  if (std::isinf(v))
    return (v < 0 ? "-facula_inf_f" : "facula_inf_f") + std::string(is_float32(d) ? "32" : "64");
  return c_hexadecimal(v) + suffix;
}
std::string number(int64_t v) {
  if (v == INT64_MIN) return "INT64_MIN";
  return v == int32_t(v) ? std::to_string(v) : "INT64_C(" + std::to_string(v) + ")";
}
std::string constant(Expr e) {
  DType d = e.dtype();
  if (d == DType::Bool) return e->value.to_bool() ? "1" : "0";
  if (d == DType::UInt64) return "UINT64_C(" + std::to_string(uint64_t(e->value.to_int())) + ")";
  return is_real(d) ? number(e->value.to_double(), d) : number(e->value.to_int());
}

// The C operator for f(a, b), or null.
const char* infix(Fn f) {
  switch (f) {
    case Fn::add: return "+";
    case Fn::sub: return "-";
    case Fn::mul: return "*";
    case Fn::div: return "/";
    case Fn::eq: return "==";
    case Fn::ne: return "!=";
    case Fn::lt: return "<";
    case Fn::le: return "<=";
    case Fn::gt: return ">";
    case Fn::ge: return ">=";
    case Fn::bit_and: return "&";
    case Fn::bit_or: return "|";
    case Fn::bit_xor: return "^";
    default: return nullptr;
  }
}
bool is_unlikely(Expr e) { return e->kind == Kind::call && e->fn == Fn::unlikely; }
bool compares(Fn f) { return f >= Fn::eq && f <= Fn::ge; }
std::string elementary_name(Fn f, DType d) {
  return "facula_" + std::string(loop::name(f)) + (is_float32(d) ? "_f32" : "_f64");
}

// The function of libm whose result is exact, or rounded correctly; or null. Its form for float is that with the suffix f.
const char* libm(Fn f) {
  switch (f) {
    case Fn::round: return "nearbyint";
    case Fn::abs: return "fabs";
    case Fn::sqrt:
    case Fn::floor:
    case Fn::ceil:
    case Fn::trunc:
    case Fn::fmod:
    case Fn::copysign: return loop::name(f);
    default: return nullptr;
  }
}

const char* type_name(DType d) {
  internal_check(compute_type(d) == d && !is_complex(d)) << "C: " << d << " stands in memory only";
  return c_memory_type(d);
}

// True if the text of f(x, y) mentions an operand more than once.
bool says_twice(Fn f, DType d) {
  if (is_real(d)) return f == Fn::isnan;
  return f == Fn::max || f == Fn::min || f == Fn::fmax || f == Fn::fmin || f == Fn::abs || f == Fn::sign ||
         f == Fn::relu || f == Fn::dot_bytes;
}
std::string listed(const std::vector<std::string>& x) {
  std::string s;
  for (auto& a : x) s += (s.empty() ? "" : ", ") + a;
  return "(" + s + ")";
}
std::string of_reals(Fn f, DType d, const std::vector<std::string>& x) {
  std::string rounds = is_float32(d) ? "(float)" : "", of = is_float32(d) ? "_f32" : "_f64";
  if (const char* sign = infix(f)) return x[0] + " " + sign + " " + x[1];
  if (f == Fn::bits || loop::expansion(f, d).get()) return elementary_name(f, d) + listed(x);
  if (const char* name = libm(f)) return name + std::string(is_float32(d) ? "f" : "") + listed(x);
  if (loop::is_library(f, d)) return rounds + "facula_" + loop::name(f) + listed(x);
  switch (f) {
    case Fn::neg: return "-(" + x[0] + ")";
    case Fn::real:
    case Fn::conj: return x[0];
    case Fn::imag: return "0";
    case Fn::isnan: return x[0] + " != " + x[0];
    case Fn::reciprocal: return "1 / " + x[0];
    case Fn::fma: return (is_float32(d) ? "facula_fmaf" : "fma") + listed(x);
    default: break;
  }
  internal_check(false) << "C: " << loop::name(f) << " of " << d;
  return "";
}
// Computes in 64 bits and truncates to the width, which wraps around. `narrow`: operands and result fit into 32 bits.
std::string of_integers(Fn f, DType d, const std::vector<std::string>& x, bool narrow) {
  std::string of = narrow ? "_i32" : "_i64", type = "(" + std::string(type_name(d)) + ")",
              bits = std::to_string(itemsize(d) * 8);
  auto word = [&](size_t k) { return "(uint64_t)" + x[k]; };
  bool divides =
      f == Fn::div || f == Fn::truncdiv || f == Fn::floordiv || f == Fn::remainder || f == Fn::fmod;
  supported_check(d != DType::UInt64 || !(divides || f == Fn::pow || f == Fn::shr || f == Fn::gcd), "codegen")
      << loop::name(f) << " of " << d << " is not printed as C";
  switch (f) {
    case Fn::add:
    case Fn::sub:
    case Fn::mul: return type + "(" + word(0) + " " + infix(f) + " " + word(1) + ")";
    case Fn::bit_and:
    case Fn::bit_or:
    case Fn::bit_xor: return type + "(" + x[0] + " " + infix(f) + " " + x[1] + ")";
    case Fn::fma: return type + "(" + word(0) + " * " + word(1) + " + " + word(2) + ")";
    case Fn::dot_bytes: {
      std::string sum = word(2);
      for (int k = 0; k < 32; k += 8) {
        std::string by = " >> " + std::to_string(k) + ")";
        sum += " + (uint64_t)((int64_t)(uint8_t)(" + x[0] + by + " * (int8_t)(" + x[1] + by + ")";
      }
      return type + "(" + sum + ")";
    }
    case Fn::neg: return type + "(0 - " + word(0) + ")";
    case Fn::abs: return type + "(" + x[0] + " < 0 ? 0 - " + word(0) + " : " + word(0) + ")";
    case Fn::sign: return type + "((" + x[0] + " > 0) - (" + x[0] + " < 0))";
    case Fn::relu: return x[0] + " < 0 ? 0 : " + x[0];
    case Fn::floor:
    case Fn::ceil:
    case Fn::trunc:
    case Fn::round:
    case Fn::real:
    case Fn::conj: return x[0];
    case Fn::imag:
    case Fn::isnan:
    case Fn::isinf: return "0";
    case Fn::bit_not: return d == DType::Bool ? "!" + x[0] : type + "~" + x[0];
    case Fn::max:
    case Fn::fmax: return x[0] + " > " + x[1] + " ? " + x[0] + " : " + x[1];
    case Fn::min:
    case Fn::fmin: return x[0] + " < " + x[1] + " ? " + x[0] + " : " + x[1];
    case Fn::div:
    case Fn::truncdiv: return type + "facula_truncdiv" + of + listed(x);
    case Fn::fmod: return type + "facula_fmod" + of + listed(x);
    case Fn::floordiv:
    case Fn::remainder: return type + "facula_" + loop::name(f) + of + listed(x);
    case Fn::pow: return type + "facula_pow_i64" + listed(x);
    case Fn::shl:
    case Fn::shr: return type + "facula_" + loop::name(f) + "(" + x[0] + ", " + x[1] + ", " + bits + ")";
    case Fn::gcd:
      return type + "facula_gcd(" + x[0] + ", " + x[1] + ", " + (is_signed(d) ? bits : "64") + ")";
    default: break;
  }
  internal_check(false) << "C: " << loop::name(f) << " of " << d;
  return "";
}

}  // namespace

const char* CPrinter::type_of(DType d) { return type_name(d); }
const char* CPrinter::memory_type(DType d) { return c_memory_type(d); }

namespace {
// Conversions between memory and registers: the text that decodes an element of dtype d, and that encodes a float.
std::string decoded(DType d, const std::string& x) {
  d = real_of(d);
  if (auto* f = float8_format(d))
    return "facula_from_float8(" + x + ", " + std::to_string(f->mantissa) + ", " + std::to_string(f->bias) +
           ", " + std::to_string(f->nan) + ", " + std::to_string(f->is_signed) + ", " +
           std::to_string(f->has_infinity ? f->too_large : 256) + ")";
  if (d == DType::Float16) return "facula_from_half(" + x + ")";
  return d == DType::BFloat16 ? "facula_from_bfloat16(" + x + ")" : x;
}
std::string encoded(DType d, const std::string& x) {
  d = real_of(d);
  if (auto* f = float8_format(d))
    return "facula_to_float8(" + x + ", " + std::to_string(f->mantissa) + ", " + std::to_string(f->bias) +
           ", " + std::to_string(f->largest) + ", " + std::to_string(f->too_large) + ", " +
           std::to_string(f->nan) + ", " + std::to_string(f->is_signed) + ", " +
           std::to_string(f->has_negative_zero) + ")";
  if (d == DType::Float16) return "facula_to_half(" + x + ")";
  return d == DType::BFloat16 ? "facula_to_bfloat16(" + x + ")" : x;
}
}  // namespace

std::string CPrinter::bare(const std::string& text) {
  if (text.size() < 2 || text[0] != '(') return text;
  int depth = 0;
  for (size_t k = 0; k + 1 < text.size(); ++k) {
    depth += (text[k] == '(') - (text[k] == ')');
    if (!depth) return text;
  }
  return text.substr(1, text.size() - 2);
}

std::string CPrinter::function(const std::string& name) {
  std::string title;
  for (char c : n_.name) title += c == '*' || c == '/' || c == '\\' || c == '\n' ? '_' : c;
  out_ = "/* " + title + " */\n";
  depth_ = 0;
  find_places();
  open_function(name);
  block(n_.body);
  close();
  close();
  return std::move(out_);
}

namespace {
// Removes the selects for huge angles, which libm handles.
Expr without_far_angles(Expr e) {
  return loop::rewrite(e, [](Expr x) -> Expr {
    bool far = false;
    if (x->kind == Kind::select)
      loop::visit(x->args[1], [&](Expr y) {
        far |=
            y->kind == Kind::call && (y->fn == Fn::far_sin || y->fn == Fn::far_cos || y->fn == Fn::far_tan);
      });
    return far ? without_far_angles(x->args[2]) : Expr();
  });
}
}  // namespace

std::string CPrinter::elementary(Fn f, DType d) {
  std::string type = type_of(d), parameters;
  for (int k = 0; k < loop::arity(f); ++k)
    parameters += (k ? ", " : "") + type + " " + local(loop::kArguments + k);
  Expr body = straight_ ? without_far_angles(loop::expansion(f, d)) : loop::expansion(f, d);
  out_ = "FACULA_FUNCTION " + std::string(type_of(body.dtype())) + " " + elementary_name(f, d) + "(" +
         parameters + ")";
  out_ += " {\n";
  depth_ = 1;
  temporaries_ = 0;
  line("return " + bare(values_of({body})[0]) + ";");
  close();
  return std::move(out_);
}

namespace {
bool names(const std::string& text, const std::string& name) {
  auto goes_on = [&](size_t at) { return at < text.size() && (std::isalnum(text[at]) || text[at] == '_'); };
  for (size_t at = text.find(name); at != text.npos; at = text.find(name, at + 1))
    if (!goes_on(at + name.size()) && (at == 0 || !goes_on(at - 1))) return true;
  return false;
}
// The special functions that `code` calls, after the ones that they use.
std::string special_functions(const std::string& code) {
  std::string chosen;
  for (size_t k = std::size(loop::kSpecialTexts); k-- > 0;) {
    auto& s = loop::kSpecialTexts[k];
    if (names(code, s.name) || names(chosen, s.name)) chosen = s.text + chosen;
  }
  return chosen;
}
}  // namespace

std::string CPrinter::functions(const std::string& code) {
  constexpr Fn all[] = {
#define FACULA_FN(n, ...) Fn::n,
      FACULA_SCALAR_FUNCTIONS(FACULA_FN) FACULA_STEPS(FACULA_FN)
#undef FACULA_FN
  };
  std::string special = special_functions(code);
  std::set<std::string> done;
  std::vector<std::string> texts{code + special};
  for (size_t at = 0; at < texts.size(); ++at)
    for (Fn f : all)
      for (DType d : {DType::Float32, DType::Float64}) {
        std::string name = elementary_name(f, d);
        if (done.count(name) || texts[at].find(name + "(") == std::string::npos) continue;
        if (!loop::expansion(f, d).get()) continue;
        done.insert(name);
        texts.push_back(elementary(f, d));
      }
  std::string tables, declared, defined;
  for (int64_t k : rows_) {
    auto& row = loop::table_row(k);
    tables += "FACULA_TABLE " + std::string(type_of(row.dtype)) + " facula_table_" + std::to_string(k) + "[" +
              std::to_string(row.count) + "] = {";
    for (size_t i = 0; i < row.count; ++i)
      tables += (i ? ", " : "") + number(loop::entry_of(row, int64_t(i)), row.dtype);
    tables += "};\n";
  }
  for (size_t k = 1; k < texts.size(); ++k) {
    declared += texts[k].substr(0, texts[k].find(" {")) + ";\n";
    defined += texts[k] + "\n";
  }
  return tables + declared + defined + special;
}

std::string CPrinter::local(int v) {
  if (v == kFormer) return "former";
  if (v >= loop::kArguments) return std::string(1, "xyz"[v - loop::kArguments]);
  return v == kNew ? "now" : "v" + std::to_string(v);
}

void CPrinter::pointers(const std::string& from, const std::string& qualifier) {
  for (size_t k = 0; k < n_.buffers.size(); ++k) {
    auto& b = n_.buffers[k];
    std::string type = (b.written ? "" : "const ") + std::string(memory_type(b.dtype)) + "*";
    std::string as = b.unique && !b.written ? type + qualifier : type;
    line(as + " const b" + std::to_string(k) + " = (" + type + ")" + from + "[" + std::to_string(k) + "];");
  }
}

// ---- statements

void CPrinter::block(const loop::Block& b) {
  auto declared = declared_;
  auto arrays = arrays_;
  for (auto& s : b) statement(s);
  declared_ = std::move(declared);
  arrays_ = std::move(arrays);
}

void CPrinter::set(int v, const char* type, const std::string& value) {
  bool is_new = declared_.insert(v).second;
  line((is_new ? type + std::string(" ") : "") + local(v) + " = " + bare(value) + ";");
  if (is_new && !is_read(v)) line("(void)" + local(v) + ";");
}
bool CPrinter::is_read(int v) {
  if (!read_) {
    read_.emplace();
    auto look = [&](Expr e) {
      if (e->kind == Kind::local) read_->insert(e->slot);
    };
    loop::each_statement(n_.body, [&](const Statement& s) {
      loop::each_expression(s, [&](Expr e) { loop::visit(e, look); });
    });
  }
  return read_->count(v);
}
void CPrinter::set(int v, const std::vector<Expr>& values) {
  std::vector<std::string> texts = values_of(values);
  std::vector<std::string> components;  // the components before any of them changes
  for (size_t k = 0; k < values.size(); ++k) {
    if (values.size() == 1) components = texts;
    else {
      components.push_back(fresh());
      line("const " + std::string(type_of(values[k].dtype())) + " " + components.back() + " = " + texts[k] +
           ";");
    }
  }
  for (size_t k = 0; k < values.size(); ++k)
    set(v + int(k), type_of_local(v + int(k), values[k]), components[k]);
}

void CPrinter::find_places() {
  using SK = Statement::Kind;
  std::vector<const Statement*> sets;
  std::set<int> others;  // locals that some statement gives another value
  loop::each_statement(n_.body, [&](const Statement& s) {
    bool assigns = (s.kind == SK::let || s.kind == SK::assign) && s.values.size() == 1;
    if (assigns && s.values[0].dtype() == DType::Int64) sets.push_back(&s);
    else if (s.kind == SK::let || s.kind == SK::assign)
      for (size_t k = 0; k < s.values.size(); ++k) others.insert(s.var + int(k));
    else if (s.kind == SK::accumulator)
      for (size_t k = 0; k < loop::identity(s.monoid, s.dtype, s.position).size(); ++k)
        others.insert(s.var + int(k));
  });
  for (auto* s : sets)
    if (!others.count(s->var)) places_.insert(s->var);
  for (bool changed = true; changed;) {  // without those that some other value is assigned to
    changed = false;
    for (auto* s : sets) {
      is_place_.clear();
      if (!places_.count(s->var) || is_place(s->values[0])) continue;
      places_.erase(s->var);
      changed = true;
    }
  }
  is_place_.clear();
}

void CPrinter::statement(const Statement& s) {
  using SK = Statement::Kind;
  switch (s.kind) {
    case SK::loop: {
      if (s.loop == loop::LoopKind::threads) return threads_loop(s);
      std::string i = index(s.var), end = extent(s);
      open("for (" + std::string(index_type()) + " " + i + " = 0; " + i + " < " + end + "; ++" + i + ") {");
      block(s.body);
      close();
      break;
    }
    case SK::condition: {
      open("if (" + bare(values_of({s.values[0]})[0]) + ") {");
      block(s.body);
      close();
      break;
    }
    case SK::let: set(s.var, type_of_local(s.var, s.values[0]), values_of(s.values)[0]); break;
    case SK::assign: set(s.var, s.values); break;
    case SK::accumulator: set(s.var, loop::identity(s.monoid, s.dtype, s.position)); break;
    case SK::accumulate: accumulate(s); break;
    case SK::array:
      arrays_[s.var] = s.dtype;
      array(s);
      break;
    case SK::store: store(s); break;
    case SK::barrier: barrier(); break;
    case SK::tiles: internal_check(false) << "products of tiles are not printed as C"; break;
    case SK::atomic: atomic(s); break;
  }
}

std::string CPrinter::extent(const Statement& s) {
  std::string text = values_of({s.extent})[0];
  if (is_place(s.extent)) return text;
  std::string name = fresh();
  line("const int64_t " + name + " = " + bare(text) + ";");
  return name;
}

void CPrinter::accumulate(const Statement& s) {
  auto start =
      loop::identity(s.monoid, s.values[0].dtype(), s.values.size() > 1 ? s.values[1].dtype() : DType::Int64);
  std::vector<Expr> total, element = loop::lift(s.monoid, s.values);
  for (size_t k = 0; k < start.size(); ++k) total.push_back(loop::local(s.var + int(k), start[k].dtype()));
  set(s.var,
      s.rising ? loop::combine_rising(s.monoid, total, element) : loop::combine(s.monoid, total, element));
}

void CPrinter::store(const Statement& s) {
  DType d = memory(s.buffer);
  auto texts = values_of({s.values[0], s.offset});
  std::string to = place(s.buffer, d, texts[1], s.part);
  line(to + " = " + bare(encoded(d, texts[0])) + ";");
}

void CPrinter::threads_loop(const Statement&) { internal_check(false) << "C: threads in nest " << n_.name; }
void CPrinter::barrier() { internal_check(false) << "C: a barrier in nest " << n_.name; }
void CPrinter::atomic(const Statement& s) {
  DType d = memory(s.buffer);
  auto texts = values_of({s.values[0], s.offset});
  std::string type = type_of(d), to = place(s.buffer, d, texts[1], 0);
  std::vector<Expr> former{loop::local(kFormer, d)}, now{loop::local(kNew, d)};
  open("{");
  line("const " + type + " now = " + bare(texts[0]) + ";");
  std::string changed = values_of(loop::combine(s.monoid, former, now))[0];
  line("facula_atomic(&" + to + ", [&](" + type + " former) { return " + bare(changed) + "; });");
  close();
}

// ---- expressions

// Element `at` of a buffer or an array.
std::string CPrinter::place(int buffer, DType d, const std::string& at, int part) {
  std::string of = buffer >= 0 ? "b" + std::to_string(buffer) : "a" + std::to_string(-1 - buffer);
  if (!is_complex(d)) return of + "[" + bare(at) + "]";
  internal_check(part) << "C99: a complex number of nest " << n_.name << " is not in parts";
  return of + "[2 * " + at + (part == 2 ? " + 1]" : "]");
}

// The values of a statement. The next statement cannot reuse them, since stores and assignments change what was read.
std::vector<std::string> CPrinter::values_of(const std::vector<Expr>& values) {
  names_.clear();
  uses_.clear();
  std::unordered_set<const loop::Node*> seen;
  for (auto& v : values) {
    ++uses_[v.get()];
    loop::visit(v, [&](Expr e) {
      if (!seen.insert(e.get()).second) return;
      for (auto& a : e->args) ++uses_[a.get()];
    });
  }
  std::vector<std::string> texts;
  for (auto& v : values) texts.push_back(value(v));
  return texts;
}

// The text of an operand: a name, a number, or a short expression in parentheses if it is used once. Anything else is
// computed in lines before the current one, with checks in their order.
std::string CPrinter::value(Expr e) {
  switch (e->kind) {
    case Kind::constant: return constant(e);
    case Kind::index: return index(e->slot);
    case Kind::param: return param(e->slot);
    case Kind::local: return local(e->slot);
    default: break;
  }
  if (auto it = names_.find(e.get()); it != names_.end()) return it->second;
  std::string name;
  if (e->kind == Kind::select &&
      ((is_unlikely(e->args[0]) && !straight_) || !is_total(e->args[1]) || !is_total(e->args[2]))) {
    name = branch(e);
  } else {
    std::string text = computed(e);
    constexpr size_t kShort = 48;
    bool checks = e->kind == Kind::check || e->kind == Kind::divisor;
    if (uses_[e.get()] == 1 && text.size() <= kShort && !checks) return "(" + text + ")";
    name = fresh();
    line("const " + std::string(type(e)) + " " + name + " = " + text + ";");
  }
  names_[e.get()] = name;
  return name;
}

// True if e may be computed although it is not needed: it neither reads memory nor checks anything, unless that was
// done already.
bool CPrinter::is_total(Expr e) {
  bool yes = true;
  std::unordered_set<const loop::Node*> seen;
  auto look = [&](Expr x, auto& self) -> void {
    if (!yes || names_.count(x.get()) || !seen.insert(x.get()).second) return;
    yes = x->kind != Kind::load && x->kind != Kind::check && x->kind != Kind::divisor;
    for (auto& a : x->args) self(a, self);
  };
  look(e, look);
  return yes;
}
// The nodes that are computed whenever `e` is.
const CPrinter::Nodes& CPrinter::always(Expr e) {
  auto [it, is_new] = always_.try_emplace(e.get());
  if (!is_new) return it->second;
  Nodes nodes{e.get()};
  auto add = [&](Expr x) {
    auto& of = always(x);
    nodes.insert(of.begin(), of.end());
  };
  if (e->kind == Kind::select) {
    add(e->args[0]);
    Nodes a = always(e->args[1]), b = always(e->args[2]);
    for (auto* n : a)
      if (b.count(n)) nodes.insert(n);
  } else {
    for (auto& a : e->args) add(a);
  }
  return always_[e.get()] = std::move(nodes);
}
std::string CPrinter::branch(Expr e) {
  std::string c = value(e->args[0]);
  // Computes what both sides need once, in front of them.
  auto& b = always(e->args[2]);
  loop::visit(e->args[1], [&](Expr x) {
    if (always(e->args[1]).count(x.get()) && b.count(x.get())) value(x);
  });
  std::string name = fresh();
  line(std::string(type_of(e.dtype())) + " " + name + ";");
  for (int side : {1, 2}) {
    auto outer_names = names_;
    open(side == 1 ? "if (" + bare(c) + ") {" : "else {");
    std::string v = value(e->args[size_t(side)]);
    line(name + " = " + bare(v) + ";");
    close();
    names_ = std::move(outer_names);
  }
  return name;
}

std::string CPrinter::named(Expr e) {
  ++uses_[e.get()];
  return value(e);
}
// Arithmetic on indices, sizes and strides only, which never overflows and so needs no wrapping.
bool CPrinter::is_place(Expr e) {
  if (e.dtype() != DType::Int64) return false;
  switch (e->kind) {
    case Kind::index:
    case Kind::param: return true;
    case Kind::constant: return e->value.to_int() == int32_t(e->value.to_int());
    case Kind::local: return places_.count(e->slot);
    case Kind::call: break;
    case Kind::select: return is_place(e->args[1]) && is_place(e->args[2]);
    default: return false;
  }
  auto [it, is_new] = is_place_.try_emplace(e.get(), false);
  if (is_new) {
    bool yes = true;
    for (auto& a : e->args) yes = yes && is_place(a);
    is_place_[e.get()] = yes;
  }
  return is_place_[e.get()];
}

std::string CPrinter::computed(Expr e) {
  auto arg = [&](size_t k) { return value(e->args[k]); };
  switch (e->kind) {
    case Kind::load: {
      std::string at = place(e->slot, e->memory, arg(0), e->part);
      return e->memory == DType::Bool ? at + " != 0" : decoded(e->memory, at);
    }
    case Kind::cast: return cast(e);
    case Kind::call: return call(e);
    case Kind::select: return arg(0) + " ? " + arg(1) + " : " + arg(2);
    case Kind::random: return "facula_random(" + arg(0) + ", " + arg(1) + ")";
    case Kind::check:
      if (is_in_range(e)) return arg(0);
      return "facula_check(" + arg(0) + ", " + arg(1) + ", " + (e->slot ? "0" : "1") + ", " + reports_to() +
             ")";
    case Kind::divisor:
      return "(" + std::string(type_of(e.dtype())) + ")facula_divisor(" + arg(0) + ", " + reports_to() + ")";
    default: break;
  }
  internal_check(false) << "C: " << loop::print(e) << " cannot stand in a nest";
  return "";
}

std::string CPrinter::cast(Expr e) {
  std::string x = value(e->args[0]);
  DType from = e->args[0].dtype(), to = e.dtype();
  if (e->memory != to) return decoded(e->memory, encoded(e->memory, x));
  if (to == DType::Bool) return x + " != 0";
  std::string type = "(" + std::string(type_of(to)) + ")";
  bool narrow =
      !is_real(to) && to != DType::UInt64 && to != DType::UInt32 && to != DType::Int64 && to != DType::UInt8;
  if (is_float32(from) && narrow) return type + "facula_float_to_int32(" + x + ")";
  if (is_real(from) && !is_real(to))
    return type +
           (to == DType::UInt64                        ? "facula_to_uint64("
            : to == DType::UInt32                      ? "facula_to_uint32("
            : to == DType::Int64 || to == DType::UInt8 ? "facula_to_int64("
                                                       : "facula_to_int32(") +
           x + ")";
  return type + x;
}

std::string CPrinter::entry(Expr e) {
  int64_t row = e->args[0]->value.to_int();
  auto& r = loop::table_row(row);
  rows_.insert(row);
  std::string at = value(e->args[1]);
  if (r.count <= 32) at += " & " + std::to_string(r.count - 1);
  return "facula_table_" + std::to_string(row) + "[" + bare(at) + "]";
}

std::string CPrinter::call(Expr e) {
  e = loop::fused_product(e);
  Fn f = e->fn;
  DType d = e->args[0].dtype();
  if (f == Fn::entry) return entry(e);
  if (f == Fn::unlikely) return value(e->args[0]);
  if (f == Fn::from_bits)
    return "facula_from_bits_i" + std::to_string(itemsize(d) * 8) + "(" + value(e->args[0]) + ")";
  std::vector<std::string> x;
  for (auto& a : e->args) x.push_back(says_twice(f, d) ? named(a) : value(a));
  if (is_place(e) && (f == Fn::add || f == Fn::sub || f == Fn::mul))
    return x[0] + " " + infix(f) + " " + x[1];
  if (d == DType::Bool && (f == Fn::add || f == Fn::mul)) f = f == Fn::add ? Fn::bit_or : Fn::bit_and;
  if (compares(f)) return x[0] + " " + infix(f) + " " + x[1];
  if (is_real(d)) return of_reals(f, d, x);
  bool narrow = n_.index_bits == 32 && is_place(e);
  return of_integers(f, narrow ? DType::Int32 : d, x, narrow);
}

std::string c_prelude() { return kCPrelude; }

}  // namespace facula::codegen
