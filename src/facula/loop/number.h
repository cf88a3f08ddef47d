// Numbers with the semantics of the loop IR: the value of each scalar function. The constant folder and the
// interpreter share this table.
#pragma once
#include <complex>

#include "facula/loop/expr.h"

namespace facula::loop {

// A value of some dtype: `i` for bool and integers (the bits of a uint64), `z` for all others.
struct Number {
  int64_t i = 0;
  std::complex<double> z;
  static Number integer(int64_t v) { return {v, 0.0}; }
  static Number real(double v) { return {0, v}; }
};

int64_t wrap(int64_t v, DType d);   // to the width of an integral dtype
double rounded(double v, DType d);  // to a floating dtype
// The number that is read after a store to memory of dtype `memory` (loop::round_to).
Number stored(const Number& x, DType memory);
// Converts between Scalars and numbers of dtype d.
Number number_of(const Scalar& v, DType d);
Scalar scalar_of(const Number& v, DType d);

// `exact`: float32 results are not rounded (the interpreter's wide mode).
Number evaluate(Fn f, DType operands, std::span<const Number> x, bool exact = false);
Number convert(const Number& x, DType from, DType to, bool exact = false);

}  // namespace facula::loop
