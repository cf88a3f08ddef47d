// Errors of generated scalar functions, in units of the last place, against libm in a wider type; and the
// same bits from vector loops, their masked ends and scalar loops.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <random>
#include <sstream>
#include <string>

#include "again.h"
#include "facula/codegen/kernel.h"

using namespace facula;
using namespace facula::loop;

namespace {

using Wide = long double;

// result[i] = f(operand 0 [i], ...), one task.
Nest map_nest(Fn f, DType d, LoopKind kind) {
  Nest n;
  n.name = name(f);
  std::vector<Expr> args;
  for (int k = 0; k < arity(f); ++k) {
    n.buffers.push_back({d, false, "x"});
    args.push_back(load(k, d, {index(1)}));
  }
  Expr value = call(f, args);
  n.buffers.push_back({value.dtype(), true, "y"});
  n.params = 1;
  n.tasks = constant(int64_t(1), DType::Int64);
  n.cost = param(0);
  Statement s{Statement::Kind::store};
  s.buffer = arity(f);
  s.values = {value};
  s.offset = index(1);
  Statement l{Statement::Kind::loop};
  l.var = 1;
  l.loop = kind;
  l.extent = param(0);
  l.body = {s};
  n.body = {l};
  return n;
}

template <class T>
std::vector<T> samples(bool second) {
  using L = std::numeric_limits<T>;
  std::vector<T> v{0,
                   -T(0),
                   1,
                   -1,
                   T(0.5),
                   T(-0.5),
                   2,
                   -2,
                   3,
                   T(1.5),
                   T(2.5),
                   T(-2.5),
                   10,
                   88,
                   89,
                   -87,
                   -103,
                   -104,
                   100,
                   709,
                   710,
                   -745,
                   L::infinity(),
                   -L::infinity(),
                   L::quiet_NaN(),
                   L::max(),
                   -L::max(),
                   L::min(),
                   -L::min(),
                   L::denorm_min(),
                   -L::denorm_min(),
                   L::epsilon(),
                   T(3.14159265358979),
                   T(1.57079632679490),
                   T(0.99999994),
                   T(1.0000001),
                   T(1e30)};
  std::mt19937_64 random(second ? 11 : 7);
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  for (int i = 0; i < 60000; ++i) v.push_back(std::bit_cast<T>(Bits(random())));  // every exponent
  std::uniform_real_distribution<double> unit(-1, 1);
  for (double range : {1.0, 4.0, 12.0, 100.0, 800.0})
    for (int i = 0; i < 30000; ++i) v.push_back(T(range * unit(random)));
  std::normal_distribution<double> spread(0, 8);
  for (int i = 0; i < 30000; ++i) v.push_back(T((unit(random) < 0 ? -1 : 1) * std::exp(spread(random))));
  for (int i = 0; i < 5000; ++i) {  // where angles and logarithms cancel
    v.push_back(T(std::floor(std::exp2(40 * std::fabs(unit(random)))) * 1.57079632679489662L));
    v.push_back(T(1 + std::ldexp(unit(random), -i % 50)));
  }
  if (second) std::shuffle(v.begin(), v.end(), random);
  return v;
}

Wide reference(Fn f, Wide x, Wide y) {
  switch (f) {
    case Fn::rsqrt: return 1 / std::sqrt(x);
    case Fn::reciprocal: return 1 / x;
    case Fn::sqrt: return std::sqrt(x);
    case Fn::exp: return std::exp(x);
    case Fn::exp2: return std::exp2(x);
    case Fn::expm1: return std::expm1(x);
    case Fn::log: return std::log(x);
    case Fn::log2: return std::log2(x);
    case Fn::log10: return std::log10(x);
    case Fn::log1p: return std::log1p(x);
    case Fn::sin: return std::sin(x);
    case Fn::cos: return std::cos(x);
    case Fn::tan: return std::tan(x);
    case Fn::asin: return std::asin(x);
    case Fn::acos: return std::acos(x);
    case Fn::atan: return std::atan(x);
    case Fn::sinh: return std::sinh(x);
    case Fn::cosh: return std::cosh(x);
    case Fn::tanh: return std::tanh(x);
    case Fn::asinh: return std::asinh(x);
    case Fn::acosh: return std::acosh(x);
    case Fn::atanh: return std::atanh(x);
    case Fn::erf: return std::erf(x);
    case Fn::erfc: return std::erfc(x);
    case Fn::erfinv: {  // bisection, then Newton's steps
      Wide a = std::fabs(x), low = 0, high = 10;
      if (!(a < 1)) return a == 1 ? std::copysign(Wide(INFINITY), x) : Wide(NAN);
      if (a < 1e-9L) return x * std::sqrt(std::acos(Wide(-1))) / 2;
      for (int k = 0; k < 12; ++k) (std::erfc((low + high) / 2) > 1 - a ? low : high) = (low + high) / 2;
      Wide v = (low + high) / 2;
      for (int k = 0; k < 6; ++k)
        v += (a < 0.5 ? a - std::erf(v) : std::erfc(v) - (1 - a)) * std::exp(v * v) *
             std::sqrt(std::acos(Wide(-1))) / 2;
      return std::copysign(v, x);
    }
    case Fn::ndtr: {  // what is lost in the argument's rounding matters far out
      if (!(std::fabs(x) < 100) || x >= 0) return std::erfc(-x / std::sqrt(Wide(2))) / 2;
      Wide z = -x / std::sqrt(Wide(2)), square = x * x;
      return std::erfc(z) * std::exp(std::fma(z, z, -square / 2) - std::fma(x, x, -square) / 2) / 2;
    }
    case Fn::sigmoid: return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
    case Fn::neg: return -x;
    case Fn::abs: return std::fabs(x);
    case Fn::floor: return std::floor(x);
    case Fn::ceil: return std::ceil(x);
    case Fn::trunc: return std::trunc(x);
    case Fn::round: return std::nearbyint(x);
    case Fn::relu: return x < 0 ? 0 : x;
    case Fn::add: return x + y;
    case Fn::sub: return x - y;
    case Fn::mul: return x * y;
    case Fn::div: return x / y;
    case Fn::pow: return std::pow(x, y);
    case Fn::atan2: return std::atan2(x, y);
    case Fn::fmod: return std::fmod(x, y);
    case Fn::remainder: {
      Wide m = std::fmod(x, y);
      return m != 0 && (m < 0) != (y < 0) ? m + y : m;
    }
    case Fn::max: return std::isnan(x) || std::isnan(y) ? NAN : std::max(x, y);
    case Fn::min: return std::isnan(x) || std::isnan(y) ? NAN : std::min(x, y);
    case Fn::fmax: return std::fmax(x, y);
    case Fn::fmin: return std::fmin(x, y);
    case Fn::copysign: return std::copysign(x, y);
    default: ADD_FAILURE() << "no reference for " << name(f); return 0;
  }
}

template <class T>
double ulps(T got, Wide want) {
  T nearest = T(want);
  if (std::isnan(want)) return std::isnan(got) ? 0 : INFINITY;
  if (got == nearest) {
    if (std::isinf(got)) return 0;
  } else if (std::isnan(got) || std::isinf(got) != std::isinf(nearest)) {
    // Beside the largest number, infinity is one unit away.
    bool edge = !std::isnan(got) && std::fabs(want) > 0.9999L * std::numeric_limits<T>::max() &&
                (std::fabs(got) >= std::numeric_limits<T>::max()) && std::signbit(got) == std::signbit(want);
    return edge ? 1 : INFINITY;
  }
  int e = want == 0 ? std::numeric_limits<T>::min_exponent
                    : std::max(std::ilogb(want) + 1, std::numeric_limits<T>::min_exponent);
  return double(std::fabs(Wide(got) - want) / std::ldexp(Wide(1), e - std::numeric_limits<T>::digits));
}

struct Result {
  double worst = 0, x = 0, y = 0, got = 0;
};

template <class T>
Result measure(Fn f) {
  DType d = dtype_of<T>();
  auto x = samples<T>(false), y = samples<T>(true);
  if (f == Fn::remainder || f == Fn::fmod)  // the reference is slow for huge quotients
    for (size_t i = 0; i < x.size(); ++i)
      if (std::fabs(std::log2(std::fabs(x[i] / y[i]))) > 200) y[i] = x[i];
  std::vector<T> vector(x.size() + 1, T(-7)), serial(x.size() + 1, T(-7));
  int64_t n = int64_t(x.size()) - 3;
  for (auto kind : {LoopKind::vector, LoopKind::serial}) {
    auto& out = kind == LoopKind::vector ? vector : serial;
    std::vector<void*> buffers{x.data()};
    if (arity(f) == 2) buffers.push_back(y.data());
    buffers.push_back(out.data());
    codegen::launch(*codegen::kernel(map_nest(f, d, kind)), buffers.data(), &n, name(f));
  }
  Result r;
  int failures = 0;
  for (int64_t i = 0; i < n && failures < 3; ++i) {
    size_t k = size_t(i);
    if (std::memcmp(&vector[k], &serial[k], sizeof(T)) && !(std::isnan(vector[k]) && std::isnan(serial[k]))) {
      ++failures;
      ADD_FAILURE() << name(f) << "(" << x[k] << ", " << y[k] << "): " << vector[k] << " in a vector, "
                    << serial[k] << " alone";
    }
    Wide want = reference(f, x[k], y[k]);
    if (arity(f) == 1 && f != Fn::relu && x[k] == 0 && !std::isnan(want)) {
      EXPECT_EQ(std::signbit(want), std::signbit(vector[k])) << name(f) << "(" << x[k] << ")";
    }
    double e = ulps(vector[k], want);
    if (e > r.worst) r = {e, double(x[k]), double(y[k]), double(vector[k])};
  }
  EXPECT_EQ(vector[size_t(n)], T(-7)) << name(f) << " wrote behind its end";
  return r;
}

// Every special value with every other: signs of zeros too.
template <class T>
void check_pairs(Fn f) {
  auto special = samples<T>(false);
  special.resize(37);
  special.insert(special.end(),
                 {T(4), T(-3), T(1e-20), std::ldexp(T(1), 60), -std::ldexp(T(1), 53), T(1023.5)});
  std::vector<T> x, y;
  for (T a : special)
    for (T b : special) x.push_back(a), y.push_back(b);
  for (auto kind : {LoopKind::vector, LoopKind::serial}) {
    std::vector<T> out(x.size());
    std::vector<void*> buffers{x.data(), y.data(), out.data()};
    int64_t n = int64_t(x.size());
    codegen::launch(*codegen::kernel(map_nest(f, dtype_of<T>(), kind)), buffers.data(), &n, name(f));
    for (size_t k = 0; k < x.size(); ++k) {
      Wide want = reference(f, x[k], y[k]);
      EXPECT_LE(ulps(out[k], want), ulp(f)) << name(f) << "(" << x[k] << ", " << y[k] << ") = " << out[k];
      if (!std::isnan(want)) {
        EXPECT_EQ(std::signbit(want), std::signbit(out[k])) << name(f) << "(" << x[k] << ", " << y[k] << ")";
      }
    }
  }
}

// What is built of a function in a single expression: gelu(x) = x ndtr(x), silu(x) = x sigmoid(x).
template <class T>
double product_ulps(Fn f, T x, T got) {
  // A denormal factor has few digits, which the product can't have more of.
  if (!std::isfinite(x) || std::fabs(reference(f, x, 0)) < std::numeric_limits<T>::min()) return 0;
  return ulps(got, x * reference(f, x, 0));
}
template <class T>
Result measure_product(Fn f) {
  auto x = samples<T>(false);
  std::vector<T> out(x.size());
  int64_t n = int64_t(x.size());
  Nest nest = map_nest(f, dtype_of<T>(), LoopKind::vector);
  Expr in = load(0, dtype_of<T>(), {index(1)});
  nest.body[0].body[0].values = {in * call(f, {in})};
  std::vector<void*> buffers{x.data(), out.data()};
  codegen::launch(*codegen::kernel(nest), buffers.data(), &n, "product");
  Result r;
  for (size_t k = 0; k < x.size(); ++k)
    if (double e = product_ulps(f, x[k], out[k]); e > r.worst) r = {e, double(x[k]), 0, double(out[k])};
  return r;
}

// PyTorch on the same arguments (peer_functions.py).
class Peer {
 public:
  Peer(const std::string& python, const std::string& script, const std::vector<std::string>& names) {
    folder_ = (std::filesystem::temp_directory_path() / "facula-peer-XXXXXX").string();
    EXPECT_TRUE(mkdtemp(folder_.data()));
    write<float>("float32");
    write<double>("float64");
    std::string command = python + " " + script + " " + folder_;
    for (auto& n : names) command += " " + n;
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
  }
  ~Peer() { std::filesystem::remove_all(folder_); }
  template <class T>
  Result measure(const std::string& label, Fn f, bool product) {
    auto x = samples<T>(false), y = samples<T>(true);
    std::vector<T> got(x.size());
    std::ifstream file(folder_ + "/" + label + "." + name(dtype_of<T>()));
    file.read(reinterpret_cast<char*>(got.data()), long(got.size() * sizeof(T)));
    EXPECT_TRUE(file) << label;
    Result r;
    for (size_t k = 0; k < x.size(); ++k) {
      double e = product ? product_ulps(f, x[k], got[k]) : ulps(got[k], reference(f, x[k], y[k]));
      if (e > r.worst) r = {e, double(x[k]), double(y[k]), double(got[k])};
    }
    std::printf("peer %-11s %s  %.3f  at %.9g\n", label.c_str(), name(dtype_of<T>()), r.worst, r.x);
    return r;
  }

 private:
  template <class T>
  void write(const std::string& end) {
    for (bool second : {false, true}) {
      auto v = samples<T>(second);
      std::ofstream file(folder_ + (second ? "/y." : "/x.") + end);
      file.write(reinterpret_cast<const char*>(v.data()), long(v.size() * sizeof(T)));
    }
  }
  std::string folder_;
};

template <class T>
void check_all(std::initializer_list<Fn> functions) {
  for (Fn f : functions) {
    Result r = measure<T>(f);
    double bound = std::max(ulp(f), 0.5);
    std::printf("%-11s %s  reached %.3f of %.1f ULP  at %.9g\n", name(f), name(dtype_of<T>()), r.worst, bound,
                r.x);
    EXPECT_LE(r.worst, bound + 1e-3) << name(f) << "(" << r.x << ", " << r.y << ") = " << r.got << " in "
                                     << name(dtype_of<T>()) << ", expected "
                                     << double(reference(f, r.x, r.y));
  }
}

constexpr std::initializer_list<Fn> kFunctions = {
    Fn::rsqrt,  Fn::reciprocal, Fn::sqrt,    Fn::exp,   Fn::exp2,  Fn::expm1, Fn::log,     Fn::log2,
    Fn::log10,  Fn::log1p,      Fn::sin,     Fn::cos,   Fn::tan,   Fn::asin,  Fn::acos,    Fn::atan,
    Fn::sinh,   Fn::cosh,       Fn::tanh,    Fn::asinh, Fn::acosh, Fn::atanh, Fn::erf,     Fn::erfc,
    Fn::erfinv, Fn::ndtr,       Fn::sigmoid, Fn::neg,   Fn::abs,   Fn::floor, Fn::ceil,    Fn::trunc,
    Fn::round,  Fn::relu,       Fn::add,     Fn::sub,   Fn::mul,   Fn::div,   Fn::pow,     Fn::atan2,
    Fn::fmod,   Fn::remainder,  Fn::max,     Fn::min,   Fn::fmax,  Fn::fmin,  Fn::copysign};

TEST(CodegenMath, Float32KeepsItsBounds) { check_all<float>(kFunctions); }
TEST(CodegenMath, Float64KeepsItsBounds) { check_all<double>(kFunctions); }

TEST(CodegenMath, PairsOfSpecialValuesAreLibms) {
  for (Fn f : {Fn::pow, Fn::atan2}) check_pairs<float>(f), check_pairs<double>(f);
}

// Logarithms near 0, which a large exponent multiplies with their errors.
TEST(CodegenMath, PowersKeepTheirBoundNearOne) {
  constexpr int64_t kCount = 100000;
  std::vector<double> x(kCount), y(kCount), out(kCount);
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> unit(-1, 1);
  for (size_t k = 0; k < x.size(); ++k) {
    x[k] = std::exp(unit(random) * std::array{1e-3, 0.06, 0.5, 5.0}[k % 4]);
    y[k] = 700 * unit(random) / std::log(x[k]);
  }
  std::vector<void*> buffers{x.data(), y.data(), out.data()};
  codegen::launch(*codegen::kernel(map_nest(Fn::pow, DType::Float64, LoopKind::vector)), buffers.data(),
                  &kCount, "pow");
  double worst = 0;
  for (size_t k = 0; k < x.size(); ++k) worst = std::max(worst, ulps(out[k], reference(Fn::pow, x[k], y[k])));
  EXPECT_LE(worst, 0.6);
}

// docs/codegen.md shows what is measured here, with vectors of 16 lanes, beside what PyTorch reaches with the
// same arguments; FACULA_RECORD=1 with FACULA_PEER, a Python that has PyTorch, writes it there.
TEST(CodegenMath, TheDocumentationShowsWhatIsMeasured) {
  const char *source = std::getenv("FACULA_SOURCE"), *python = std::getenv("FACULA_PEER");
  if (!source || codegen::vector_lanes() != 16) GTEST_SKIP() << "needs FACULA_SOURCE and AVX-512";
  bool record = std::getenv("FACULA_RECORD");
  ASSERT_TRUE(!record || python) << "FACULA_PEER tells the Python that has PyTorch";
  std::string path = std::string(source) + "/docs/codegen.md", text, table;
  {
    std::ifstream in(path);
    text.assign(std::istreambuf_iterator<char>(in), {});
  }
  const std::string head =
      "| function | float32 | PyTorch | float64 | PyTorch |\n|---|---:|---:|---:|---:|\n";
  size_t at = text.find(head);
  ASSERT_NE(at, std::string::npos) << path << " has no table";
  at += head.size();
  size_t end = std::min(text.find("\n\n", at), text.size() - 1) + 1;
  struct Line {
    std::string label;
    Fn f;
    bool product;
  };
  std::vector<Line> lines;
  for (Fn f : kFunctions)
    if (ulp(f) > 0) lines.push_back({name(f), f, false});
  lines.insert(lines.end(), {{"gelu", Fn::ndtr, true}, {"silu", Fn::sigmoid, true}});
  std::optional<Peer> peer;
  if (record) {
    std::vector<std::string> names;
    for (auto& l : lines) names.push_back(l.label);
    peer.emplace(python, std::string(source) + "/tests/cpp/peer_functions.py", names);
  }
  for (auto& l : lines) {
    double single = (l.product ? measure_product<float>(l.f) : measure<float>(l.f)).worst;
    double wide = (l.product ? measure_product<double>(l.f) : measure<double>(l.f)).worst;
    EXPECT_LE(std::max(single, wide), 1.5) << l.label;
    double shown[4] = {-1, -1, -1, -1};
    if (peer) {
      auto number = [](double v) {
        char digits[32];
        std::snprintf(digits, sizeof digits, v < 100 ? "%.2f" : "> 100", v);
        return std::string(digits);
      };
      double peer_single = peer->measure<float>(l.label, l.f, l.product).worst;
      double peer_wide = peer->measure<double>(l.label, l.f, l.product).worst;
      table += "| " + l.label + " | " + number(single) + " | " + number(peer_single) + " | " + number(wide) +
               " | " + number(peer_wide) + " |\n";
      continue;
    }
    size_t row = text.find("| " + l.label + " |", at);
    ASSERT_LT(row, end) << l.label << " is not in the table";
    size_t from = row + l.label.size() + 5;
    std::stringstream cells(text.substr(from, text.find('\n', from) - from));
    std::string cell;
    for (double& v : shown) {
      std::getline(cells, cell, '|');
      v = cell.find('>') != std::string::npos ? INFINITY : std::atof(cell.c_str());
    }
    EXPECT_NEAR(shown[0], single, 0.02) << l.label << ": FACULA_RECORD=1 brings the table up to date";
    EXPECT_NEAR(shown[2], wide, 0.02) << l.label;
    // As exact as PyTorch's libraries, or to 0.6 units.
    EXPECT_LE(shown[0], std::max(shown[1], 0.6))
        << l.label << " of float32 has a larger error than PyTorch's";
    EXPECT_LE(shown[2], std::max(shown[3], 0.6))
        << l.label << " of float64 has a larger error than PyTorch's";
  }
  if (record) std::ofstream(path) << text.substr(0, at) + table + text.substr(end);
}

TEST(CodegenMath, BoundsHoldOnAvx2Too) {
  if (codegen::vector_lanes() == 8) GTEST_SKIP() << "this is that run";
  auto [status, text] = run_again("avx2", "CodegenMath.Float*");
  EXPECT_EQ(status, 0) << text;
}

}  // namespace
