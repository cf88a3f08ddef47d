#include "facula/codegen/c99.h"

#include "facula/codegen/c_printer.h"

namespace facula::codegen {
namespace {

using loop::Statement;

class C99Printer : public CPrinter {
 public:
  using CPrinter::CPrinter;

 private:
  void open_function(const std::string& name) override {
    open("void " + name +
         "(void* const* buffers, const int64_t* params, int64_t begin, int64_t end,\n"
         "    struct facula_status* status) {");
    pointers("buffers", "");
    line("(void)buffers; (void)params; (void)status;");
    std::string task = index(n_.task_var);
    if (n_.end_var < 0)
      return open("for (int64_t " + task + " = begin; " + task + " < end; ++" + task + ") {");
    open("if (begin < end) {");
    line("const int64_t " + task + " = begin, " + index(n_.end_var) + " = end;");
  }
  std::string param(int k) const override { return "params[" + std::to_string(k) + "]"; }
  std::string reports_to() const override { return "status"; }
  void array(const Statement& s) override {
    line(memory_type(s.dtype) + std::string(" a") + std::to_string(s.var) + "[facula_at_least_1(" +
         values_of({s.extent})[0] + (is_complex(s.dtype) ? " * 2" : "") + ")];");
  }
};

// Definitions that the common functions need, and the functions that only C needs.
constexpr char kBefore[] = R"c(#include <math.h>
#include <stdint.h>

#if defined(__clang__) || !defined(__GNUC__) /* GCC takes -ffp-contract=off instead */
#pragma STDC FP_CONTRACT OFF
#endif

#define FACULA_FUNCTION static inline
#define FACULA_SPECIAL static
#define FACULA_TABLE static const
#define FACULA_STATUS struct facula_status*

/* The first failure: 1 an index out of [-size, size), 2 a division by zero. */
struct facula_status {
  int64_t failed, index, size;
};

static inline void facula_fail(struct facula_status* s, int64_t failed, int64_t index, int64_t size) {
  if (s->failed) return;
  s->failed = failed;
  s->index = index;
  s->size = size;
}

)c";
constexpr char kAfter[] = R"c(
/* x * y + z, rounded once. The C libraries of small machines round twice, so that their bits would differ. The product of two
   floats is exact in double; the sum is rounded to odd (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums",
   2008), after which rounding to float is right. */
#if defined(__FP_FAST_FMAF) || defined(__GLIBC__)
#define facula_fmaf fmaf
#else
static inline float facula_fmaf(float x, float y, float z) {
  double product = (double)x * (double)y, addend = (double)z, back, error;
  union facula_bits64 sum;
  sum.f = product + addend;
  back = sum.f - product;
  error = (product - (sum.f - back)) + (addend - back);
  if ((error > 0 || error < 0) && !(sum.i & 1)) sum.i += (error > 0) == (sum.f > 0) ? 1 : -1;
  return (float)sum.f;
}
#endif
static inline double facula_far_sin(double x) { return (double)sinl((long double)x); }
static inline double facula_far_cos(double x) { return (double)cosl((long double)x); }
static inline double facula_far_tan(double x) { return (double)tanl((long double)x); }
)c";

}  // namespace

std::string c99_function(const loop::Nest& n, const std::string& name) {
  return C99Printer(n).function(name);
}

std::string c99_prelude(const std::string& code) {
  loop::Nest none;
  return kBefore + c_prelude() + kAfter + C99Printer(none).functions(code);
}

std::string c99_straight(const std::string& code) {
  loop::Nest none;
  C99Printer printer(none);
  printer.go_straight();
  return printer.functions(code);
}

}  // namespace facula::codegen
