// Prints the elementary functions that special functions call (loop/special_functions.h) as C99, for loop/mapped.cpp: so
// what the host computes has the bits of every other target. For numbers, and for lanes side by side.
#include <fstream>
#include <string>

#include "facula/codegen/c99.h"
#include "facula/loop/mapped.h"
#include "facula/special_text.h"

// The loop language's evaluation of constants wants special functions, which are made of what this prints.
namespace facula::loop::mapped {
#define FACULA_FN(n, ...) \
  double n(double) { return 0; }
FACULA_MAPPED_UNARY(FACULA_FN)
#undef FACULA_FN
#define FACULA_FN(n, ...) \
  double n(double, double) { return 0; }
FACULA_MAPPED_BINARY(FACULA_FN)
#undef FACULA_FN
}  // namespace facula::loop::mapped

int main(int, char** argv) {
  std::string calls;
#define FACULA_FN(n) calls += "facula_" #n "_f64(";
  FACULA_SPECIAL_CALLS(FACULA_FN)
#undef FACULA_FN
  std::ofstream out(argv[1]);
  out << "// Written by cmake/special_elementary.cpp.\n"
      << facula::codegen::c99_prelude(calls)
      << "namespace straight {\n#undef FACULA_FUNCTION\n"
         "#define FACULA_FUNCTION static inline __attribute__((always_inline))\n"
      << facula::codegen::c99_straight(calls) << "}\n";
  return out.flush() ? 0 : 1;
}
