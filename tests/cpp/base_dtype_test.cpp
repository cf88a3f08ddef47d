// 16-bit floats, dtype names and the facts of dtypes.
#include <gtest/gtest.h>

#include <cmath>

#include "facula/base/device.h"
#include "facula/base/dtype.h"

namespace facula {
namespace {

// What a 16-bit float with so many bits of fraction means, from the definition of the format.
double meaning(uint16_t bits, int fraction_bits) {
  int exponent_bits = 15 - fraction_bits, bias = (1 << (exponent_bits - 1)) - 1;
  int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1),
      fraction = bits & ((1 << fraction_bits) - 1);
  double magnitude = exponent == (1 << exponent_bits) - 1 ? (fraction ? NAN : INFINITY)
                     : exponent ? std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits)
                                : std::ldexp(fraction, 1 - bias - fraction_bits);
  return bits & 0x8000 ? -magnitude : magnitude;
}

template <class T>
void check_format(int fraction_bits) {
  for (uint32_t k = 0; k < 65536; ++k) {
    T h;
    h.bits = uint16_t(k);
    double value = meaning(uint16_t(k), fraction_bits);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(float(h)) && std::isnan(float(T(float(h)))));
      continue;
    }
    ASSERT_EQ(double(float(h)), value) << k;
    ASSERT_EQ(T(float(h)).bits, k);
    // Halfway to the next one goes to the even neighbour, a little less or more to the nearer one.
    double next = meaning(uint16_t(k + 1), fraction_bits);
    if (std::isinf(value) || (k & 0x7fff) == 0x7fff || std::isnan(next)) continue;
    if (std::isinf(next)) next = value + (value - meaning(uint16_t(k - 1), fraction_bits));
    float middle = float((value + next) / 2);
    if (double(middle) != (value + next) / 2) continue;
    ASSERT_EQ(T(middle).bits, k % 2 ? k + 1 : k) << k;
    ASSERT_EQ(T(std::nextafter(middle, float(value))).bits, k);
    ASSERT_EQ(T(std::nextafter(middle, float(next))).bits, k + 1);
  }
}

TEST(DType, HalfConvertsAsIeeeSays) { check_format<Half>(10); }
TEST(DType, BFloat16ConvertsAsIeeeSays) { check_format<BFloat16>(7); }

TEST(DType, FloatsBeyondTheRangeBecomeInfinite) {
  EXPECT_EQ(Half(1e30f).bits, 0x7c00);
  EXPECT_EQ(Half(-65520.f).bits, 0xfc00);
  EXPECT_EQ(Half(65519.f).bits, 0x7bff);
  EXPECT_EQ(Half(1e-30f).bits, 0);
  EXPECT_EQ(BFloat16(3.4e38f).bits, 0x7f80);
  EXPECT_TRUE(std::isnan(float(BFloat16(std::bit_cast<float>(0x7f800001)))));
}

TEST(DType, NamesAreReadBack) {
  for (int k = 0; k < kDTypeCount; ++k) {
    EXPECT_EQ(dtype_from_name(name(DType(k))), DType(k));
    dispatch_stored(DType(k), [&](auto zero) {
      EXPECT_EQ(dtype_of<decltype(zero)>(), DType(k));
      EXPECT_EQ(itemsize(DType(k)), int(sizeof zero));
    });
  }
  try {
    dtype_from_name("float31");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.type(), ErrorType::TypeError);
    EXPECT_NE(std::string(e.what()).find("bfloat16"), std::string::npos);
  }
}

TEST(DType, OnlyFloatsAreDefaults) {
  EXPECT_THROW(set_default_dtype(DType::Int32), Error);
  set_default_dtype(DType::Float64);
  EXPECT_EQ(default_dtype(), DType::Float64);
  set_default_dtype(DType::Float32);
}

TEST(Device, IsReadBack) {
  for (const char* text : {"cpu", "cuda:1", "meta", "cuda", "cpu:0"})
    EXPECT_EQ(to_string(parse_device(text)), text);
  for (const char* text : {"", "gpu", "cuda:", "cuda:-1", "cuda:1x", "cuda:999", "cpu:0:0"})
    EXPECT_THROW(parse_device(text), Error) << text;
}

}  // namespace
}  // namespace facula
