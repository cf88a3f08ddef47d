// Comparisons, logic and operations on bits, element by element.
#include "facula/catalog/pointwise_helpers.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;
using namespace facula::catalog::pointwise_helpers;

namespace {
constexpr auto bits = d::integral | d::boolean;
}  // namespace

FACULA_FAMILY(comparison) {
  define("eq(Tensor self, Tensor|Scalar other) -> Tensor")
      .dtypes(d::stored)
      .doc("self == other.")
      .result(ResultType::boolean)
      .in_place()
      .pointwise([](Expr a, Expr b) { return eq(a, b); })
      .samples(binary_samples());
  define("ne(Tensor self, Tensor|Scalar other) -> Tensor")
      .dtypes(d::stored)
      .doc("self != other.")
      .alias("not_equal")
      .result(ResultType::boolean)
      .in_place()
      .pointwise([](Expr a, Expr b) { return ne(a, b); })
      .samples(binary_samples());
  define("lt(Tensor self, Tensor|Scalar other) -> Tensor")
      .doc("self < other.")
      .alias("less")
      .dtypes(d::real)
      .result(ResultType::boolean)
      .in_place()
      .pointwise([](Expr a, Expr b) { return a < b; })
      .samples(binary_samples());
  define("le(Tensor self, Tensor|Scalar other) -> Tensor")
      .doc("self <= other.")
      .alias("less_equal")
      .dtypes(d::real)
      .result(ResultType::boolean)
      .in_place()
      .pointwise([](Expr a, Expr b) { return a <= b; })
      .samples(binary_samples());
  define("gt(Tensor self, Tensor|Scalar other) -> Tensor")
      .doc("self > other.")
      .alias("greater")
      .dtypes(d::real)
      .result(ResultType::boolean)
      .in_place()
      .pointwise([](Expr a, Expr b) { return a > b; })
      .samples(binary_samples());
  define("ge(Tensor self, Tensor|Scalar other) -> Tensor")
      .doc("self >= other.")
      .alias("greater_equal")
      .dtypes(d::real)
      .result(ResultType::boolean)
      .in_place()
      .pointwise([](Expr a, Expr b) { return a >= b; })
      .samples(binary_samples());
  define("logical_and(Tensor self, Tensor other) -> Tensor")
      .doc("Both are non-zero.")
      .result(ResultType::boolean)
      .in_place()
      .pointwise([](Expr a, Expr b) { return truth(a) & truth(b); })
      .samples(binary_samples());
  define("logical_or(Tensor self, Tensor other) -> Tensor")
      .doc("At least one is non-zero.")
      .result(ResultType::boolean)
      .in_place()
      .pointwise([](Expr a, Expr b) { return truth(a) | truth(b); })
      .samples(binary_samples());
  define("logical_xor(Tensor self, Tensor other) -> Tensor")
      .doc("Exactly one is non-zero.")
      .result(ResultType::boolean)
      .in_place()
      .pointwise([](Expr a, Expr b) { return truth(a) ^ truth(b); })
      .samples(binary_samples());
  define("logical_not(Tensor self) -> Tensor")
      .doc("self is zero.")
      .result(ResultType::boolean)
      .in_place()
      .pointwise([](Expr a) { return bit_not(truth(a)); })
      .samples(unary_samples());
  define("bitwise_and(Tensor|Scalar self, Tensor|Scalar other) -> Tensor")
      .doc("Bitwise and; logical for bool.")
      .dtypes(bits | d::wide_unsigned)
      .in_place()
      .pointwise([](Expr a, Expr b) { return a & b; })
      .samples(binary_samples());
  define("bitwise_or(Tensor|Scalar self, Tensor|Scalar other) -> Tensor")
      .doc("Bitwise or; logical for bool.")
      .dtypes(bits | d::wide_unsigned)
      .in_place()
      .pointwise([](Expr a, Expr b) { return a | b; })
      .samples(binary_samples());
  define("bitwise_xor(Tensor|Scalar self, Tensor|Scalar other) -> Tensor")
      .doc("Bitwise exclusive or; logical for bool.")
      .dtypes(bits | d::wide_unsigned)
      .in_place()
      .pointwise([](Expr a, Expr b) { return a ^ b; })
      .samples(binary_samples());
  define("bitwise_not(Tensor self) -> Tensor")
      .exact_out()
      .doc("Bitwise complement; logical for bool.")
      .dtypes(bits)
      .in_place()
      .pointwise([](Expr a) { return bit_not(a); })
      .samples(unary_samples());
  define("bitwise_left_shift(Tensor|Scalar self, Tensor|Scalar other) -> Tensor")
      .doc("self << other.")
      .dtypes(d::integral)
      .in_place()
      .pointwise([](Expr a, Expr b) { return shl(a, b); })
      .samples(binary_samples(0, 3));
  define("bitwise_right_shift(Tensor|Scalar self, Tensor|Scalar other) -> Tensor")
      .doc("self >> other, arithmetic.")
      .dtypes(d::integral)
      .in_place()
      .pointwise([](Expr a, Expr b) { return shr(a, b); })
      .samples(binary_samples(0, 3));
}
