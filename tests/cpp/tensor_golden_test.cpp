// Printing, promotion and strides of results against what PyTorch says: tests/golden/, recorded by
// record_tensor.py.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

#include "facula/tensor/promotion.h"
#include "facula/tensor/tensor.h"

namespace facula {
namespace {

std::ifstream golden(const std::string& name) {
  const char* source = std::getenv("FACULA_SOURCE");
  std::string root =
      source ? source : std::string(__FILE__).substr(0, std::string(__FILE__).rfind("/tests/cpp"));
  std::ifstream file(root + "/tests/golden/" + name);
  EXPECT_TRUE(file) << name;
  return file;
}

std::vector<std::string> split(const std::string& s, const std::string& by) {
  std::vector<std::string> parts;
  size_t at = 0;
  for (size_t end; (end = s.find(by, at)) != std::string::npos; at = end + by.size())
    parts.push_back(s.substr(at, end - at));
  parts.push_back(s.substr(at));
  return parts;
}

std::vector<std::string> words(const std::string& s) {
  std::istringstream in(s);
  return {std::istream_iterator<std::string>(in), {}};
}

Ints numbers(const std::string& s) {
  Ints v;
  for (auto& w : words(s)) v.push_back(std::stoll(w));
  return v;
}

Scalar number(const std::string& s) {
  auto colon = s.find(':');
  if (colon != std::string::npos) return std::complex<double>(std::stod(s), std::stod(s.substr(colon + 1)));
  return s.find_first_of(".enif") == std::string::npos ? Scalar(int64_t(std::stoll(s)))
                                                       : Scalar(std::stod(s));
}

Scalar filled(const std::string& fill, int64_t k) {
  if (fill == "count") return k;
  if (fill == "sevenths") return double(k) / 7 - 1;
  if (fill == "parity") return k % 2;
  if (fill == "squares") return k * k;
  return std::complex<double>(double(k) / 2, double(3 - k));  // spiral
}

TEST(Printing, WritesWhatPyTorchWrites) {
  auto file = golden("printing.txt");
  std::string head, line;
  int cases = 0;
  while (std::getline(file, head)) {
    std::string expected;
    while (std::getline(file, line) && line != "---") expected += (expected.empty() ? "" : "\n") + line;
    for (size_t at; (at = expected.find("torch.")) != std::string::npos;) expected.replace(at, 6, "facula.");
    auto parts = split(head, " | ");
    auto t = Tensor::empty(IntSpan(numbers(parts[1])), dtype_from_name(parts[0]));
    auto elements = words(parts[2]);
    for (int64_t k = 0, n = t.numel().concrete(); k < n; ++k)
      (int64_t(elements.size()) == n ? number(elements[size_t(k)]) : filled(elements[0], k))
          .store(t.dtype(), t.data<char>() + k * t.itemsize());
    EXPECT_EQ(to_string(t, parts[3]), expected) << head;
    ++cases;
  }
  EXPECT_GT(cases, 80);
}

TEST(Printing, ReadsStridedElements) {
  int64_t sizes[] = {2, 3}, strides[] = {1, 2}, count[] = {6};
  auto flat = Tensor::empty(IntSpan(count), DType::Int64);
  for (int64_t k = 0; k < 6; ++k) flat.data<int64_t>()[k] = k;
  EXPECT_EQ(to_string(flat.alias(symbolic(sizes), symbolic(strides), 0)),
            "tensor([[0, 2, 4],\n        [1, 3, 5]])");
}

TEST(Promotion, FollowsPyTorch) {
  auto file = golden("promotion.txt");
  std::string a, b, expected;
  auto add = [](Promotion& p, const std::string& operand) {
    DType d = dtype_from_name(operand.substr(2));
    int64_t one[] = {1};
    if (operand[0] == 't') p.add(Tensor::empty(IntSpan(one), d));
    else if (operand[0] == 'z') p.add(Tensor::empty(IntSpan(), d));
    else
      p.add(is_bool(d)       ? Scalar(true)
            : is_integral(d) ? Scalar(2)
            : is_floating(d) ? Scalar(2.5)
                             : Scalar(std::complex<double>(0, 2)));
  };
  int cases = 0;
  while (file >> a >> b >> expected) {
    ++cases;
    if (a == "cast") {
      int castable;
      ASSERT_TRUE(file >> castable);
      EXPECT_EQ(can_cast(dtype_from_name(b), dtype_from_name(expected)), castable == 1)
          << b << " to " << expected;
      continue;
    }
    Promotion p;
    add(p, a);
    add(p, b);
    EXPECT_STREQ(name(p.result()), expected.c_str()) << a << " with " << b;
  }
  EXPECT_EQ(cases, 28 * 28 + 144);
}

TEST(Promotion, IsALatticeWhereThereIsOne) {
  for (int i = 0; i < kDTypeCount; ++i)
    for (int j = 0; j < kDTypeCount; ++j) {
      DType a = DType(i), b = DType(j);
      bool one_float8 = is_float8(a) != is_float8(b) || (is_float8(a) && a != b);
      bool wide = dtypes::wide_unsigned.has(a) || dtypes::wide_unsigned.has(b);
      if (a != b && (one_float8 || (wide && !is_floating(a) && !is_floating(b)))) {
        EXPECT_THROW(promote(a, b), Error) << a << " with " << b;
        continue;
      }
      DType both = promote(DType(i), DType(j));
      EXPECT_EQ(both, promote(DType(j), DType(i)));
      EXPECT_EQ(promote(both, DType(i)), both);
      EXPECT_TRUE(can_cast(DType(i), both));
    }
}

TEST(Strides, OfPointwiseResultsArePyTorchs) {
  auto file = golden("strides.txt");
  std::string line;
  int cases = 0;
  auto parse = [](const std::string& text) {
    auto halves = split(text, "/");
    return std::array{numbers(halves[0]), numbers(halves[1])};
  };
  while (std::getline(file, line)) {
    auto sides = split(line, " = ");
    std::vector<Tensor> operands;
    for (auto& text : split(sides[0], "; ")) {
      auto [sizes, strides] = parse(text);
      operands.push_back(Tensor::empty_strided(symbolic(sizes), symbolic(strides), DType::Float32));
    }
    auto [sizes, strides] = parse(sides[1]);
    std::vector<SymSpan> shapes;
    for (auto& t : operands) shapes.push_back(t.sizes());
    ASSERT_EQ(to_string(broadcast_sizes("add", shapes)), to_string(symbolic(sizes))) << line;
    EXPECT_EQ(to_string(dense_strides_like(symbolic(sizes), operands)), to_string(symbolic(strides))) << line;
    ++cases;
  }
  EXPECT_GE(cases, 500);
}

}  // namespace
}  // namespace facula
