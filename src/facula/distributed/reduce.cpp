#include "facula/distributed/reduce.h"

#include <algorithm>
#include <complex>
#include <cstring>
#include <type_traits>

namespace facula::distributed {

namespace {

constexpr const char* kNames[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"};
constexpr size_t kBlock = 1024;  // elements of an accumulator, which stay in the first-level cache

template <class T>
constexpr bool is_complex_type =
    std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;

// The type in which elements are combined.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;

template <Reduction op, class T>
T combine(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    if constexpr (op == Reduction::sum || op == Reduction::max || op == Reduction::bor) return a || b;
    else if constexpr (op == Reduction::bxor) return a != b;
    else return a && b;
  } else if constexpr (op == Reduction::sum || op == Reduction::avg) return T(a + b);
  else if constexpr (op == Reduction::product) return T(a * b);
  else if constexpr (is_complex_type<T>) return a;                          // refused by check_reduction
  else if constexpr (op == Reduction::min) return a < b || a != a ? a : b;  // NaN wins
  else if constexpr (op == Reduction::max) return a > b || a != a ? a : b;
  else if constexpr (std::is_integral_v<T>) {
    if constexpr (op == Reduction::band) return T(a & b);
    else if constexpr (op == Reduction::bor) return T(a | b);
    else return T(a ^ b);
  } else return a;  // refused by check_reduction
}

template <class T>
T load(const void* from, size_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(from) + i * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void store(void* to, size_t i, T value) {
  std::memcpy(static_cast<char*>(to) + i * sizeof(T), &value, sizeof(T));
}

template <Reduction op, class T>
void reduce_two(void* to, const void* a, const void* b, size_t elements) {
  for (size_t i = 0; i < elements; ++i) store<T>(to, i, combine<op, T>(load<T>(a, i), load<T>(b, i)));
}

template <Reduction op, class T>
void reduce_many(void* to, const void* const* sources, int n, size_t elements) {
  using W = Wide<T>;
  W sum[kBlock];
  for (size_t begin = 0; begin < elements; begin += kBlock) {
    size_t count = std::min(kBlock, elements - begin);
    for (size_t i = 0; i < count; ++i) sum[i] = W(load<T>(sources[0], begin + i));
    for (int s = 1; s < n; ++s)
      for (size_t i = 0; i < count; ++i) sum[i] = combine<op, W>(sum[i], W(load<T>(sources[s], begin + i)));
    if constexpr (op == Reduction::avg && !std::is_integral_v<T>) {
      for (size_t i = 0; i < count; ++i) {
        if constexpr (is_complex_type<W>) sum[i] /= typename W::value_type(n);
        else sum[i] /= W(n);
      }
    }
    for (size_t i = 0; i < count; ++i) store<T>(to, begin + i, T(sum[i]));
  }
}

template <Reduction op>
void reduce_as(DType dtype, void* to, const void* const* sources, int n, size_t elements) {
  auto run = [&](auto zero) {
    using T = decltype(zero);
    if (n == 2 && op != Reduction::avg && std::is_same_v<Wide<T>, T>)
      reduce_two<op, T>(to, sources[0], sources[1], elements);
    else reduce_many<op, T>(to, sources, n, elements);
  };
  switch (dtype) {
    case DType::UInt16: return run(uint16_t{});
    case DType::UInt32: return run(uint32_t{});
    case DType::UInt64: return run(uint64_t{});
    default: dispatch(dtype, run);
  }
}

}  // namespace

const char* name(Reduction op) { return kNames[int(op)]; }

void check_reduction(const char* call, Reduction op, DType dtype) {
  bool bitwise = op == Reduction::band || op == Reduction::bor || op == Reduction::bxor;
  bool integral = is_integral(dtype) || is_bool(dtype);
  runtime_check(!bitwise || integral, call)
      << "Cannot use ReduceOp." << name(op) << " with non-integral dtype " << name(dtype);
  runtime_check(op != Reduction::avg || !integral, call)
      << "result type Float can't be cast to the desired output type " << class_name(dtype);
  value_check(!is_complex(dtype) || op == Reduction::sum || op == Reduction::avg, call)
      << "does not support ReduceOp." << name(op) << " on complex tensors";
  runtime_check(!is_float8(dtype) && dtype != DType::Complex32, call)
      << "Invalid scalar type: elements of " << name(dtype) << " cannot be reduced"
      << hint("convert to float32, reduce, and convert back");
}

void reduce(Reduction op, DType dtype, void* to, const void* const* sources, int n, size_t elements) {
  switch (op) {
    case Reduction::sum: return reduce_as<Reduction::sum>(dtype, to, sources, n, elements);
    case Reduction::avg: return reduce_as<Reduction::avg>(dtype, to, sources, n, elements);
    case Reduction::product: return reduce_as<Reduction::product>(dtype, to, sources, n, elements);
    case Reduction::min: return reduce_as<Reduction::min>(dtype, to, sources, n, elements);
    case Reduction::max: return reduce_as<Reduction::max>(dtype, to, sources, n, elements);
    case Reduction::band: return reduce_as<Reduction::band>(dtype, to, sources, n, elements);
    case Reduction::bor: return reduce_as<Reduction::bor>(dtype, to, sources, n, elements);
    case Reduction::bxor: return reduce_as<Reduction::bxor>(dtype, to, sources, n, elements);
  }
}

}  // namespace facula::distributed
