#include "facula/codegen/c99.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "facula/codegen/c99_prelude.h"
#include "facula/loop/monoid.h"

namespace facula::codegen {
namespace {

using loop::Expr;
using loop::Fn;
using loop::Kind;
using loop::Statement;

const char* type_of(DType d) {
  switch (d) {
    case DType::Bool:
    case DType::UInt8: return "uint8_t";
    case DType::Int8: return "int8_t";
    case DType::Int16: return "int16_t";
    case DType::Int32: return "int32_t";
    case DType::Int64: return "int64_t";
    case DType::Float32: return "float";
    case DType::Float64: return "double";
    default: break;
  }
  internal_check(false) << "C99: " << d << " stands in memory only";
  return "";
}
// Of an element in memory; complex numbers are pairs.
const char* memory_type(DType d) {
  if (d == DType::Float16 || d == DType::BFloat16) return "uint16_t";
  return type_of(real_of(d));
}

bool is_float32(DType d) { return d == DType::Float32; }
bool is_real(DType d) { return category(d) == Category::floating; }

std::string number(double v, DType d) {
  std::string suffix = is_float32(d) ? "f" : "";
  if (v != v) return is_float32(d) ? "facula_nan_f32" : "facula_nan_f64";
  if (std::isinf(v))
    return (v < 0 ? "-facula_inf_f" : "facula_inf_f") + std::string(is_float32(d) ? "32" : "64");
  char text[40];
  auto end = std::to_chars(text, text + sizeof text, std::fabs(v), std::chars_format::hex).ptr;
  return (std::signbit(v) ? "-0x" : "0x") + std::string(text, end) +
         (std::string(text, end).find('p') == std::string::npos ? "p0" : "") + suffix;
}
std::string number(int64_t v) {
  if (v == INT64_MIN) return "INT64_MIN";
  return v == int32_t(v) ? std::to_string(v) : "INT64_C(" + std::to_string(v) + ")";
}
std::string constant(Expr e) {
  DType d = e.dtype();
  if (d == DType::Bool) return e->value.to_bool() ? "1" : "0";
  return is_real(d) ? number(e->value.to_double(), d) : number(e->value.to_int());
}

// f(a, b): as C writes it, or null.
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
// Without brackets around all of it.
std::string bare(const std::string& text) {
  if (text.size() < 2 || text[0] != '(') return text;
  int depth = 0;
  for (size_t k = 0; k + 1 < text.size(); ++k) {
    depth += (text[k] == '(') - (text[k] == ')');
    if (!depth) return text;
  }
  return text.substr(1, text.size() - 2);
}
bool compares(Fn f) { return f >= Fn::eq && f <= Fn::ge; }
bool is_mapped(Fn f) {
  switch (f) {
#define FACULA_FN(n, ...) case Fn::n:
    FACULA_MAPPED_UNARY(FACULA_FN)
    FACULA_MAPPED_BINARY(FACULA_FN)
#undef FACULA_FN
    return true;
    default: return false;
  }
}

// The function of libm in double whose result is rounded to the dtype, or null.
const char* libm(Fn f) {
  static constexpr Fn same_name[] = {
      Fn::exp,   Fn::exp2,  Fn::expm1, Fn::log,  Fn::log2,     Fn::log10, Fn::log1p, Fn::sin,
      Fn::cos,   Fn::tan,   Fn::asin,  Fn::acos, Fn::atan,     Fn::sinh,  Fn::cosh,  Fn::tanh,
      Fn::asinh, Fn::acosh, Fn::atanh, Fn::erf,  Fn::erfc,     Fn::pow,   Fn::atan2, Fn::sqrt,
      Fn::floor, Fn::ceil,  Fn::trunc, Fn::fmod, Fn::copysign,
  };
  if (f == Fn::round) return "nearbyint";
  if (f == Fn::abs) return "fabs";
  return std::count(std::begin(same_name), std::end(same_name), f) ? loop::name(f) : nullptr;
}

class Printer {
 public:
  explicit Printer(const loop::Nest& n) : n_(n) {}

  std::string function(const std::string& name) {
    out_ = "void " + name +
           "(void* const* buffers, const int64_t* params, int64_t begin, int64_t end,\n"
           "    struct facula_status* status) {\n";
    depth_ = 1;
    for (size_t k = 0; k < n_.buffers.size(); ++k) {
      auto& b = n_.buffers[k];
      std::string type = (b.written ? "" : "const ") + std::string(memory_type(b.dtype));
      line(type + "* const b" + std::to_string(k) + " = (" + type + "*)buffers[" + std::to_string(k) + "];");
    }
    line("(void)buffers; (void)params; (void)status;");
    std::string task = index(n_.task_var);
    open("for (int64_t " + task + " = begin; " + task + " < end; ++" + task + ") {");
    block(n_.body);
    close();
    close();
    return std::move(out_);
  }

 private:
  static std::string index(int v) { return "i" + std::to_string(v); }
  static std::string local(int v) { return "v" + std::to_string(v); }

  void line(const std::string& text) { out_ += std::string(size_t(depth_) * 2, ' ') + text + "\n"; }
  void open(const std::string& text) {
    line(text);
    ++depth_;
  }
  void close() {
    --depth_;
    line("}");
  }
  std::string fresh() { return "t" + std::to_string(++temporaries_); }

  // ---- statements

  void block(const loop::Block& b) {
    auto declared = declared_;
    auto arrays = arrays_;
    for (auto& s : b) statement(s);
    declared_ = std::move(declared);
    arrays_ = std::move(arrays);
  }

  void set(int v, DType d, const std::string& value) {
    bool is_new = declared_.insert(v).second;
    line((is_new ? type_of(d) + std::string(" ") : "") + local(v) + " = " + bare(value) + ";");
  }
  void set(int v, const std::vector<Expr>& values) {
    std::vector<std::string> texts = values_of(values);
    std::vector<std::string> kept;  // the components before any of them changes
    for (size_t k = 0; k < values.size(); ++k) {
      if (values.size() == 1) kept = texts;
      else {
        kept.push_back(fresh());
        line("const " + std::string(type_of(values[k].dtype())) + " " + kept.back() + " = " + texts[k] + ";");
      }
    }
    for (size_t k = 0; k < values.size(); ++k) set(v + int(k), values[k].dtype(), kept[k]);
  }

  void statement(const Statement& s) {
    using SK = Statement::Kind;
    switch (s.kind) {
      case SK::loop: {
        std::string i = index(s.var), extent = values_of({s.extent})[0];
        open("for (int64_t " + i + " = 0; " + i + " < " + bare(extent) + "; ++" + i + ") {");
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
      case SK::let:
        if (is_place(s.values[0])) places_.insert(s.var);
        else places_.erase(s.var);
        is_place_.clear();
        set(s.var, s.values);
        break;
      case SK::assign: set(s.var, s.values); break;
      case SK::accumulator: set(s.var, loop::identity(s.monoid, s.dtype, s.position)); break;
      case SK::accumulate: {
        auto start = loop::identity(s.monoid, s.values[0].dtype(),
                                    s.values.size() > 1 ? s.values[1].dtype() : DType::Int64);
        std::vector<Expr> total, element = loop::lift(s.monoid, s.values);
        for (size_t k = 0; k < start.size(); ++k)
          total.push_back(loop::local(s.var + int(k), start[k].dtype()));
        set(s.var, s.rising ? loop::combine_rising(s.monoid, total, element)
                            : loop::combine(s.monoid, total, element));
        break;
      }
      case SK::array: {
        arrays_[s.var] = s.dtype;
        line(memory_type(s.dtype) + std::string(" a") + std::to_string(s.var) + "[facula_at_least_1(" +
             values_of({s.extent})[0] + (is_complex(s.dtype) ? " * 2" : "") + ")];");
        break;
      }
      case SK::store: {
        DType d = s.buffer >= 0 ? n_.buffers[size_t(s.buffer)].dtype : arrays_.at(-1 - s.buffer);
        auto texts = values_of({s.values[0], s.offset});
        std::string v = texts[0], to = place(s.buffer, d, texts[1], s.part);
        if (d == DType::Float16) v = "facula_to_half(" + v + ")";
        if (d == DType::BFloat16) v = "facula_to_bfloat16(" + v + ")";
        line(to + " = " + bare(v) + ";");
        break;
      }
    }
  }

  // ---- expressions

  // Element `at` of a buffer, or of an array.
  std::string place(int buffer, DType d, const std::string& at, int part) {
    std::string of = buffer >= 0 ? "b" + std::to_string(buffer) : "a" + std::to_string(-1 - buffer);
    if (!is_complex(d)) return of + "[" + bare(at) + "]";
    internal_check(part) << "C99: a complex number of nest " << n_.name << " is not in parts";
    return of + "[2 * " + at + (part == 2 ? " + 1]" : "]");
  }

  // The values of a statement, of which the next one knows nothing: stores and assignments change what was read.
  std::vector<std::string> values_of(const std::vector<Expr>& values) {
    known_.clear();
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

  // An operand of C: a name, a number, or in brackets what is wanted once and short. What it needs besides is computed
  // in lines before the current one, checks in their order.
  std::string value(Expr e) {
    switch (e->kind) {
      case Kind::constant: return constant(e);
      case Kind::index: return index(e->slot);
      case Kind::param: return "params[" + std::to_string(e->slot) + "]";
      case Kind::local: return local(e->slot);
      default: break;
    }
    if (auto it = known_.find(e.get()); it != known_.end()) return it->second;
    std::string name;
    if (e->kind == Kind::select && !(is_total(e->args[1]) && is_total(e->args[2]))) {
      name = branch(e);
    } else {
      std::string text = computed(e);
      constexpr size_t kShort = 48;
      bool checks = e->kind == Kind::check || e->kind == Kind::divisor;
      if (uses_[e.get()] == 1 && text.size() <= kShort && !checks) return "(" + text + ")";
      name = fresh();
      line("const " + std::string(type_of(e.dtype())) + " " + name + " = " + text + ";");
    }
    known_[e.get()] = name;
    return name;
  }

  // May it be computed where it is not wanted? Not if it reads memory or checks something, unless that is done already.
  bool is_total(Expr e) {
    bool yes = true;
    std::unordered_set<const loop::Node*> seen;
    auto look = [&](Expr x, auto& self) -> void {
      if (!yes || known_.count(x.get()) || !seen.insert(x.get()).second) return;
      yes = x->kind != Kind::load && x->kind != Kind::check && x->kind != Kind::divisor;
      for (auto& a : x->args) self(a, self);
    };
    look(e, look);
    return yes;
  }
  // What is computed whenever `e` is.
  using Nodes = std::unordered_set<const loop::Node*>;
  const Nodes& always(Expr e) {
    auto [it, is_new] = always_.try_emplace(e.get());
    if (!is_new) return it->second;
    Nodes found{e.get()};
    auto add = [&](Expr x) {
      auto& of = always(x);
      found.insert(of.begin(), of.end());
    };
    if (e->kind == Kind::select) {
      add(e->args[0]);
      Nodes a = always(e->args[1]), b = always(e->args[2]);
      for (auto* n : a)
        if (b.count(n)) found.insert(n);
    } else {
      for (auto& a : e->args) add(a);
    }
    return always_[e.get()] = std::move(found);
  }
  std::string branch(Expr e) {
    std::string c = value(e->args[0]);
    // What both sides need is computed once, before them.
    auto& b = always(e->args[2]);
    loop::visit(e->args[1], [&](Expr x) {
      if (always(e->args[1]).count(x.get()) && b.count(x.get())) value(x);
    });
    std::string name = fresh();
    line(std::string(type_of(e.dtype())) + " " + name + ";");
    for (int side : {1, 2}) {
      auto known = known_;
      open(side == 1 ? "if (" + bare(c) + ") {" : "else {");
      std::string v = value(e->args[size_t(side)]);
      line(name + " = " + bare(v) + ";");
      close();
      known_ = std::move(known);
    }
    return name;
  }

  // Does the text of f(x, y) hold an operand more than once?
  static bool says_twice(Fn f, DType d) {
    if (is_real(d)) return f == Fn::isnan;
    return f == Fn::max || f == Fn::min || f == Fn::fmax || f == Fn::fmin || f == Fn::abs || f == Fn::sign ||
           f == Fn::relu;
  }
  std::string named(Expr e) {
    ++uses_[e.get()];
    return value(e);
  }
  // Arithmetic on indices, sizes and strides alone, which overflows nowhere, so that it needs no care.
  bool is_place(Expr e) {
    if (e.dtype() != DType::Int64) return false;
    switch (e->kind) {
      case Kind::index:
      case Kind::param:
      case Kind::constant: return true;
      case Kind::local: return places_.count(e->slot);
      case Kind::call: break;
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

  std::string computed(Expr e) {
    auto arg = [&](size_t k) { return value(e->args[k]); };
    switch (e->kind) {
      case Kind::load: {
        std::string at = place(e->slot, e->memory, arg(0), e->part);
        if (e->memory == DType::Float16) return "facula_from_half(" + at + ")";
        if (e->memory == DType::BFloat16) return "facula_from_bfloat16(" + at + ")";
        return e->memory == DType::Bool ? at + " != 0" : at;
      }
      case Kind::cast: return cast(e);
      case Kind::call: return call(e);
      case Kind::select: return arg(0) + " ? " + arg(1) + " : " + arg(2);
      case Kind::random: return "facula_random(" + arg(0) + ", " + arg(1) + ")";
      case Kind::check:
        return "facula_check(" + arg(0) + ", " + arg(1) + ", " + (e->slot ? "0" : "1") + ", status)";
      case Kind::divisor:
        return "(" + std::string(type_of(e.dtype())) + ")facula_divisor(" + arg(0) + ", status)";
      default: break;
    }
    internal_check(false) << "C99: " << loop::print(e) << " cannot stand in a nest";
    return "";
  }

  std::string cast(Expr e) {
    std::string x = value(e->args[0]);
    DType from = e->args[0].dtype(), to = e.dtype();
    if (e->memory == DType::Float16) return "facula_from_half(facula_to_half(" + x + "))";
    if (e->memory == DType::BFloat16) return "facula_from_bfloat16(facula_to_bfloat16(" + x + "))";
    if (to == DType::Bool) return x + " != 0";
    std::string type = "(" + std::string(type_of(to)) + ")";
    if (is_real(from) && !is_real(to))
      return type + (to == DType::Int64 || to == DType::UInt8 ? "facula_to_int64(" : "facula_to_int32(") + x +
             ")";
    return type + x;
  }

  std::string call(Expr e) {
    Fn f = e->fn;
    DType d = e->args[0].dtype();
    std::vector<std::string> x;
    for (auto& a : e->args) x.push_back(says_twice(f, d) ? named(a) : value(a));
    if (is_place(e) && (f == Fn::add || f == Fn::sub || f == Fn::mul))
      return x[0] + " " + infix(f) + " " + x[1];
    if (d == DType::Bool && (f == Fn::add || f == Fn::mul)) f = f == Fn::add ? Fn::bit_or : Fn::bit_and;
    if (compares(f)) return x[0] + " " + infix(f) + " " + x[1];
    return is_real(d) ? of_reals(f, d, x) : of_integers(f, d, x);
  }
  static std::string listed(const std::vector<std::string>& x) {
    std::string s;
    for (auto& a : x) s += (s.empty() ? "" : ", ") + a;
    return "(" + s + ")";
  }
  static std::string of_reals(Fn f, DType d, const std::vector<std::string>& x) {
    std::string rounds = is_float32(d) ? "(float)" : "", of = is_float32(d) ? "_f32" : "_f64";
    if (const char* sign = infix(f)) return x[0] + " " + sign + " " + x[1];
    if (const char* name = libm(f)) return rounds + name + listed(x);
    if (is_mapped(f)) return rounds + "facula_" + loop::name(f) + listed(x);
    switch (f) {
      case Fn::neg: return "-(" + x[0] + ")";
      case Fn::real:
      case Fn::conj: return x[0];
      case Fn::imag: return "0";
      case Fn::isnan: return x[0] + " != " + x[0];
      case Fn::reciprocal: return "1 / " + x[0];
      case Fn::rsqrt:
      case Fn::erfinv:
      case Fn::ndtr:
      case Fn::sigmoid: return rounds + "facula_" + loop::name(f) + listed(x);
      case Fn::fma: return (is_float32(d) ? "fmaf" : "fma") + listed(x);
      case Fn::sign:
      case Fn::relu:
      case Fn::isinf:
      case Fn::floordiv:
      case Fn::truncdiv:
      case Fn::remainder:
      case Fn::max:
      case Fn::min:
      case Fn::fmax:
      case Fn::fmin: return "facula_" + std::string(loop::name(f)) + of + listed(x);
      default: break;
    }
    internal_check(false) << "C99: " << loop::name(f) << " of " << d;
    return "";
  }
  // In 64 bits, cut to the width, which is what wraps.
  static std::string of_integers(Fn f, DType d, const std::vector<std::string>& x) {
    std::string type = "(" + std::string(type_of(d)) + ")", bits = std::to_string(itemsize(d) * 8);
    auto word = [&](size_t k) { return "(uint64_t)" + x[k]; };
    switch (f) {
      case Fn::add:
      case Fn::sub:
      case Fn::mul: return type + "(" + word(0) + " " + infix(f) + " " + word(1) + ")";
      case Fn::bit_and:
      case Fn::bit_or:
      case Fn::bit_xor: return type + "(" + x[0] + " " + infix(f) + " " + x[1] + ")";
      case Fn::fma: return type + "(" + word(0) + " * " + word(1) + " + " + word(2) + ")";
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
      case Fn::truncdiv: return type + "facula_truncdiv_i64" + listed(x);
      case Fn::fmod: return type + "facula_fmod_i64" + listed(x);
      case Fn::floordiv:
      case Fn::remainder:
      case Fn::pow: return type + "facula_" + std::string(loop::name(f)) + "_i64" + listed(x);
      case Fn::shl:
      case Fn::shr: return type + "facula_" + loop::name(f) + "(" + x[0] + ", " + x[1] + ", " + bits + ")";
      case Fn::gcd:
        return type + "facula_gcd(" + x[0] + ", " + x[1] + ", " + (d == DType::UInt8 ? "64" : bits) + ")";
      default: break;
    }
    internal_check(false) << "C99: " << loop::name(f) << " of " << d;
    return "";
  }

  const loop::Nest& n_;
  std::string out_;
  int depth_ = 0, temporaries_ = 0;
  std::set<int> declared_;       // locals in scope
  std::map<int, DType> arrays_;  // in scope
  std::set<int> places_;         // locals that hold places in memory, sizes and the like
  std::unordered_map<const loop::Node*, bool> is_place_;
  std::unordered_map<const loop::Node*, std::string>
      known_;                                        // in this statement: computed already, by which name
  std::unordered_map<const loop::Node*, int> uses_;  // in this statement
  std::unordered_map<const loop::Node*, Nodes> always_;
};

}  // namespace

std::string c99_function(const loop::Nest& n, const std::string& name) {
  std::string title;
  for (char c : n.name) title += c == '*' || c == '/' || c == '\\' || c == '\n' ? '_' : c;
  return "/* " + title + " */\n" + Printer(n).function(name);
}

const std::string& c99_prelude() {
  static const std::string& text = *new std::string([] {
    std::string s = kC99Prelude;
#define FACULA_FN(n, ...) s += "double facula_" #n "(double);\n";
    FACULA_MAPPED_UNARY(FACULA_FN)
#undef FACULA_FN
#define FACULA_FN(n, ...) s += "double facula_" #n "(double, double);\n";
    FACULA_MAPPED_BINARY(FACULA_FN)
#undef FACULA_FN
    return s;
  }());
  return text;
}

}  // namespace facula::codegen
