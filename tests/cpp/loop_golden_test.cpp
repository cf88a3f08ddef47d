// Values and gradients of scalar functions against what PyTorch gave (tests/golden/record_loop_functions.py):
// special points, ties, infinities; complex numbers in PyTorch's conjugate convention, also split into real
// arithmetic.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "facula/loop/complex.h"
#include "facula/loop/differentiate.h"
#include "facula/loop/interpret.h"

using namespace facula;
using namespace facula::loop;
using Complex = std::complex<double>;

namespace {

struct Case {
  std::string name;
  DType dtype;
  std::vector<Complex> x, gradients;
  Complex value;
};

const std::map<std::string, Fn>& functions() {
  static const std::map<std::string, Fn> table = {
#define FACULA_FN(n, a, r, u) {#n, Fn::n},
      FACULA_SCALAR_FUNCTIONS(FACULA_FN)
#undef FACULA_FN
  };
  return table;
}
bool gives_real(Fn f) { return f == Fn::abs || f == Fn::real || f == Fn::imag; }

std::vector<Case> cases() {
  const char* source = std::getenv("FACULA_SOURCE");
  std::string path = std::string(source ? source : ".") + "/tests/golden/loop_functions.txt";
  std::ifstream file(path);
  EXPECT_TRUE(file) << "missing " << path;
  std::vector<Case> all;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    Case c;
    std::string dtype, word;
    words >> c.name >> dtype;
    c.dtype = dtype_from_name(dtype);
    std::vector<double> v;
    while (words >> word) v.push_back(std::strtod(word.c_str(), nullptr));
    Fn f = functions().at(c.name);
    size_t at = 0;
    auto take = [&](bool complex) {
      Complex z(v.at(at), complex ? v.at(at + 1) : 0.0);
      at += complex ? 2 : 1;
      return z;
    };
    bool complex = is_complex(c.dtype);
    for (int k = 0; k < arity(f); ++k) c.x.push_back(take(complex));
    c.value = take(complex && !gives_real(f));
    for (int k = 0; k < arity(f); ++k) c.gradients.push_back(take(complex));
    EXPECT_EQ(at, v.size()) << line;
    all.push_back(c);
  }
  return all;
}

Complex evaluated(Expr e, const std::vector<Tensor>& operands) {
  Definition d;
  d.values = {e};
  Dims sizes[] = {{}};
  DType types[] = {e.dtype()};
  return interpret(d, operands, sizes, types)[0].item().to_complex();
}

bool close(double a, double b, double scale, double tolerance) {
  if (std::isnan(b)) return std::isnan(a);
  if (std::isinf(b)) return a == b;
  return std::fabs(a - b) <= tolerance * std::max(scale, 1e-300);
}
bool close(Complex a, Complex b, double tolerance = 1e-13) {
  double scale = std::isfinite(std::abs(b)) ? std::abs(b) : 1;
  return close(a.real(), b.real(), scale, tolerance) && close(a.imag(), b.imag(), scale, tolerance);
}
std::string text(const Case& c) {
  std::ostringstream s;
  s.precision(17);
  s << c.name << " of";
  for (auto& x : c.x) s << " " << x;
  return s.str();
}

}  // namespace

TEST(LoopGolden, FunctionsHaveTheValuesAndGradientsOfPyTorch) {
  auto all = cases();
  ASSERT_GT(all.size(), 800u);
  for (auto& c : all) {
    Fn f = functions().at(c.name);
    std::vector<Tensor> operands;
    std::vector<Expr> x;
    for (auto& v : c.x) {
      operands.push_back(is_complex(c.dtype) ? Tensor::scalar(v, c.dtype)
                                             : Tensor::scalar(v.real(), c.dtype));
      x.push_back(load(int(x.size()), c.dtype, {}));
    }
    Expr y = call(f, x);
    EXPECT_TRUE(close(evaluated(y, operands), c.value, 1e-12))
        << text(c) << ": " << evaluated(y, operands) << " not " << c.value;

    Expr seed = is_complex(y.dtype()) ? constant(Complex(0.5, 2), y.dtype()) : constant(1.0, y.dtype());
    std::vector<Complex> g(x.size());
    for (auto& a : differentiate(y, seed)) g[size_t(a.load->slot)] = evaluated(a.value, operands);
    for (size_t k = 0; k < x.size(); ++k)
      EXPECT_TRUE(close(g[k], c.gradients[k], 1e-11))
          << text(c) << ": gradient " << k << " is " << g[k] << ", not " << c.gradients[k];
  }
}

TEST(LoopGolden, ComplexFunctionsSplitIntoRealArithmetic) {
  for (auto& c : cases()) {
    if (!is_complex(c.dtype)) continue;
    Fn f = functions().at(c.name);
    std::vector<Tensor> operands;
    std::vector<Expr> x;
    for (auto& v : c.x) {
      operands.push_back(Tensor::scalar(v, c.dtype));
      x.push_back(load(int(x.size()), c.dtype, {}));
    }
    auto [re, im] = split_complex(call(f, x));
    for (Expr e : {re, im}) visit(e, [](Expr n) { ASSERT_FALSE(is_complex(n.dtype())) << print(n); });
    Complex got(evaluated(re, operands).real(), evaluated(im, operands).real());
    EXPECT_TRUE(close(got, c.value, 1e-12)) << text(c) << ": " << got << ", not " << c.value;
  }
}
