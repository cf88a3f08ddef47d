// Matrix products. Batch dimensions with uniform strides are merged first; then oneDNN or generated kernels compute float32 and
// bfloat16, BLAS vectors, float64 and complex numbers, and plain loops integers. Very small float32 products are computed here,
// because a library's call would cost more.
#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>
#include <optional>
#include <string_view>

#include "facula/base/cache_sizes.h"
#include "facula/base/matmul_precision.h"
#include "facula/base/parallel.h"
#include "facula/base/processor.h"
#include "facula/base/settings.h"
#include "facula/codegen/compiler.h"
#include "facula/codegen/kernel.h"
#include "facula/device/cpu/cpu.h"
#include "facula/device/cpu/generated_product.h"
#include "facula/device/cpu/onednn.h"
#include "facula/numerics/batched_products.h"
#include "facula/numerics/clones.h"
#include "facula/numerics/integer_products.h"
#include "facula/op/registry.h"
#include "facula/schedule/product_choice.h"

namespace facula::device::cpu {

namespace {

// A batch dimension and its strides.
struct Batch {
  int64_t size, a, b, out;
};

struct Problem {
  DType dtype;
  int64_t m, n, k;
  int64_t a_rs, a_cs, b_rs, b_cs;  // strides of rows and columns
  SmallVector<Batch, 4> batch;
  const char *a, *b;
  char* out;  // row-major matrices
  StorageImpl* b_storage = nullptr;
  const void* bias = nullptr;  // [n]
  Scalar alpha, beta;
  int64_t count() const {
    int64_t c = 1;
    for (auto& d : batch) c *= d.size;
    return c;
  }
};

bool is(const Scalar& s, double x) { return s.to_complex() == std::complex<double>(x); }

// Returns whether a library can read a matrix with these strides: adjacent elements within rows or columns, which may be
// apart.
bool readable(int64_t rows, int64_t cols, int64_t rs, int64_t cs) {
  bool row_major = (cs == 1 || cols == 1) && (rs >= cols || rows == 1),
       column_major = (rs == 1 || rows == 1) && (cs >= rows || cols == 1);
  return row_major || column_major;
}

// The strides of dimensions of size 1 are arbitrary: choose those of a plain matrix.
void settle(int64_t rows, int64_t cols, int64_t& rs, int64_t& cs) {
  if (cols == 1 && rows == 1) {
    rs = cs = 1;
    return;
  }
  if (cols == 1) {
    if (rs == 1) cs = rows;
    else cs = 1;
  } else if (rows == 1) {
    if (cs == 1) rs = cols;
    else rs = 1;
  }
}

void merge_batch(Problem& p, std::span<const Batch> dims) {
  for (auto& d : dims) {
    if (d.size == 1) continue;
    if (!p.batch.empty()) {
      auto& last = p.batch.back();
      if (last.a == d.a * d.size && last.b == d.b * d.size && last.out == d.out * d.size) {
        last = {last.size * d.size, d.a, d.b, d.out};
        continue;
      }
    }
    p.batch.push_back(d);
  }
  // One right-hand matrix for all: a single product with more rows.
  if (p.batch.size() == 1 && p.batch[0].b == 0 && p.batch[0].a == p.m * p.a_rs &&
      p.batch[0].out == p.m * p.n) {
    p.m *= p.batch[0].size;
    p.batch.clear();
  }
}

// f(a, b, out) for every matrix of the batch between begin and end.
template <class F>
void each_matrix(const Problem& p, int64_t begin, int64_t end, F&& f) {
  int64_t size = itemsize(p.dtype);
  for (int64_t k = begin; k < end; ++k) {
    int64_t rest = k, a = 0, b = 0, out = 0;
    for (size_t d = p.batch.size(); d-- > 0;) {
      int64_t i = rest % p.batch[d].size;
      rest /= p.batch[d].size;
      a += i * p.batch[d].a;
      b += i * p.batch[d].b;
      out += i * p.batch[d].out;
    }
    f(p.a + a * size, p.b + b * size, p.out + out * size);
  }
}

// Calls f(m, n, a, b, out) for each matrix, in pieces of at most `longest` rows or columns along the longer side of the
// result. Pieces do not depend on the number of threads: libraries sum in another order in matrices of other sizes, and
// split a long sum among threads.
template <class F>
void each_piece(const Problem& p, int64_t longest, F&& f) {
  constexpr double kWork = 65536;  // multiplications worth a thread
  constexpr int64_t kPart = 16;    // a multiple of what a register holds
  bool by_rows = p.m >= p.n;
  int64_t side = std::max(p.m, p.n), size = itemsize(p.dtype), pieces = (side + longest - 1) / longest;
  // Equal pieces, in a number that two or four threads can share.
  if (p.count() == 1 && pieces > 2) pieces = (pieces + 3) / 4 * 4;
  longest = std::min(longest, ((side + pieces - 1) / pieces + kPart - 1) / kPart * kPart);
  pieces = (side + longest - 1) / longest;
  double work = double(std::min(longest, side)) * double(std::min(p.m, p.n)) * double(p.k);
  parallel_for(p.count() * pieces, int64_t(std::max(1.0, kWork / work)), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      each_matrix(p, t / pieces, t / pieces + 1, [&](const char* a, const char* b, char* out) {
        int64_t at = t % pieces * longest, part = std::min(longest, side - at);
        if (by_rows) f(part, p.n, a + at * p.a_rs * size, b, out + at * p.n * size);
        else f(p.m, part, a, b + at * p.b_cs * size, out + at * size);
      });
  });
}

// ---- tiny float32 products: rows of eight columns, which a register holds
constexpr int64_t kTiny = 4096;  // multiplications; elements of the packed right-hand matrix
using Eight = float __attribute__((vector_size(32), aligned(4)));

[[gnu::always_inline]] inline void rows_of_eight(int64_t m, int64_t n, int64_t k, float alpha, const float* a,
                                                 int64_t a_rs, int64_t a_cs, const float* b, int64_t ldb,
                                                 float beta, const float* bias, float* out) {
  constexpr int64_t kRows = 4;  // at once; the last row is repeated if fewer are left
  for (int64_t i = 0; i < m; i += kRows) {
    int64_t rows = std::min(kRows, m - i);
    const float* from[kRows];
    for (int64_t r = 0; r < kRows; ++r) from[r] = a + (i + std::min(r, rows - 1)) * a_rs;
    for (int64_t j = 0; j < n; j += 8) {
      Eight sum[kRows] = {};
      const float* right = b + j;
      for (int64_t q = 0; q < k; ++q, right += ldb) {
        Eight x = *reinterpret_cast<const Eight*>(right);
#pragma GCC unroll 4  // sums stay in registers
        for (int64_t r = 0; r < kRows; ++r) sum[r] += from[r][q * a_cs] * x;
      }
      for (int64_t r = 0; r < rows; ++r) {
        float* to = out + (i + r) * n + j;
        if (n - j >= 8) {
          Eight y = alpha * sum[r];
          if (beta != 0) y += beta * *reinterpret_cast<const Eight*>(to);
          if (bias) y += *reinterpret_cast<const Eight*>(bias + j);
          std::memcpy(to, &y, sizeof y);
          continue;
        }
        float part[8];
        std::memcpy(part, &sum[r], sizeof part);
        for (int64_t l = 0; l < n - j; ++l) {
          float y = alpha * part[l];
          if (beta != 0) y += beta * to[l];
          to[l] = bias ? y + bias[j + l] : y;
        }
      }
    }
  }
}

FACULA_CLONES("fma", "default")
void tiny_rows(int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t a_rs, int64_t a_cs,
               const float* b, int64_t ldb, float beta, const float* bias, float* out) {
  rows_of_eight(m, n, k, alpha, a, a_rs, a_cs, b, ldb, beta, bias, out);
}
// The same, with every product rounded.
FACULA_CLONES("avx", "default")
void tiny_rows_apart(int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t a_rs, int64_t a_cs,
                     const float* b, int64_t ldb, float beta, const float* bias, float* out) {
  rows_of_eight(m, n, k, alpha, a, a_rs, a_cs, b, ldb, beta, bias, out);
}

bool fits_tiny(const Problem& p) {
  int64_t padded = (p.n + 7) / 8 * 8;
  return p.dtype == DType::Float32 && p.k <= kTiny && p.n <= kTiny && p.m <= kTiny && p.k * padded <= kTiny &&
         p.m * p.k * p.n * p.count() <= kTiny;
}

void tiny(const Problem& p, bool apart = false) {
  float packed[kTiny];
  auto* rows = apart ? tiny_rows_apart : tiny_rows;
  int64_t padded = (p.n + 7) / 8 * 8;
  each_matrix(p, 0, p.count(), [&](const char* a, const char* b_bytes, char* out) {
    auto* b = reinterpret_cast<const float*>(b_bytes);
    int64_t ldb = p.b_rs;
    if (p.b_cs != 1 || padded != p.n) {
      for (int64_t k = 0; k < p.k; ++k) {
        float* row = packed + k * padded;
        for (int64_t j = 0; j < p.n; ++j) row[j] = b[k * p.b_rs + j * p.b_cs];
        for (int64_t j = p.n; j < padded; ++j) row[j] = 0;
      }
      b = packed;
      ldb = padded;
    }
    rows(p.m, p.n, p.k, float(p.alpha.to_double()), reinterpret_cast<const float*>(a), p.a_rs, p.a_cs, b, ldb,
         float(p.beta.to_double()), static_cast<const float*>(p.bias), reinterpret_cast<float*>(out));
  });
}

// ---- tiny complex products: a call of a library takes too long, and its product with alpha makes NaN of infinite parts
constexpr int64_t kTinyComplex = 128;  // multiplications, for which a call takes as long as they do

bool fits_tiny_complex(const Problem& p) {
  return is_complex(p.dtype) && p.m <= kTinyComplex && p.n <= kTinyComplex && p.k <= kTinyComplex &&
         p.m * p.k * p.n <= kTinyComplex && p.m * p.k * p.n * p.count() <= kTinyComplex;
}

template <class T>
struct Pair {
  T re, im;
  Pair operator*(Pair y) const { return {re * y.re - im * y.im, re * y.im + im * y.re}; }
  Pair operator+(Pair y) const { return {re + y.re, im + y.im}; }
};
template <class T>
Pair<T> pair_of(const Scalar& s) {
  return {T(s.to_complex().real()), T(s.to_complex().imag())};
}

template <class T>
void tiny_complex(const Problem& p) {
  using P = Pair<T>;
  P alpha = pair_of<T>(p.alpha), beta = pair_of<T>(p.beta);
  bool scaled = !is(p.alpha, 1), fresh = is(p.beta, 0), added = is(p.beta, 1);
  each_matrix(p, 0, p.count(), [&](const char* a_bytes, const char* b_bytes, char* out_bytes) {
    auto *a = reinterpret_cast<const P*>(a_bytes), *b = reinterpret_cast<const P*>(b_bytes);
    auto* out = reinterpret_cast<P*>(out_bytes);
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        P sum{0, 0};
        for (int64_t k = 0; k < p.k; ++k) sum = sum + a[i * p.a_rs + k * p.a_cs] * b[k * p.b_rs + j * p.b_cs];
        if (scaled) sum = alpha * sum;
        P& to = out[i * p.n + j];
        to = fresh ? sum : (added ? to : beta * to) + sum;
      }
  });
}

// ---- tiny products of a batch: like PyTorch's loops over fewer than 400 multiplications per matrix, term by term and
// with every product rounded, so that infinities of opposite signs cancel in the same places
constexpr int64_t kApart = 400;

bool fits_apart(const Problem& p, int64_t rows) {
  return rows <= kApart && p.n <= kApart && p.k <= kApart && rows * p.k * p.n < kApart &&
         p.m * p.k * p.n * p.count() <= kTiny;
}

template <class T, class A>
void term_by_term(const Problem& p, A alpha, A beta) {
  bool fresh = is(p.beta, 0), plain = fresh && is(p.alpha, 1);
  auto value = [](const T& x) { return A(x); };
  each_matrix(p, 0, p.count(), [&](const char* a_bytes, const char* b_bytes, char* out_bytes) {
    auto *a = reinterpret_cast<const T*>(a_bytes), *b = reinterpret_cast<const T*>(b_bytes);
    auto* out = reinterpret_cast<T*>(out_bytes);
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        A sum{};
        for (int64_t k = 0; k < p.k; ++k)
          sum = sum + value(a[i * p.a_rs + k * p.a_cs]) * value(b[k * p.b_rs + j * p.b_cs]);
        T& to = out[i * p.n + j];
        to = T(plain ? sum : fresh ? alpha * sum : value(to) * beta + alpha * sum);
      }
  });
}

void apart(const Problem& p) {
  double alpha = p.alpha.to_complex().real(), beta = p.beta.to_complex().real();
  switch (p.dtype) {
    case DType::Float32: return tiny(p, true);
    case DType::Float64: return term_by_term<double>(p, alpha, beta);
    case DType::BFloat16: return term_by_term<BFloat16>(p, float(alpha), float(beta));
    case DType::Complex64:
      return term_by_term<Pair<float>>(p, pair_of<float>(p.alpha), pair_of<float>(p.beta));
    default: return term_by_term<Pair<double>>(p, pair_of<double>(p.alpha), pair_of<double>(p.beta));
  }
}

// ---- many products of a few rows and columns: a library's call takes longer than one of them
bool fits_small_batch(const Problem& p) {
  bool real = p.dtype == DType::Float32 || p.dtype == DType::Float64;
  return p.count() > 1 && p.m <= kFew && p.n <= kFew && p.k <= kFew && !p.bias &&
         (real || (is_complex(p.dtype) && is(p.alpha, 1) && is(p.beta, 0)));
}

void small_batch(const Problem& p) {
  const Batch& last = p.batch.back();
  BatchedProducts some{p.m,
                       p.n,
                       p.k,
                       p.a_rs,
                       p.a_cs,
                       p.b_rs,
                       p.b_cs,
                       p.alpha.to_complex().real(),
                       p.beta.to_complex().real(),
                       last.a,
                       last.b,
                       last.out};
  constexpr int64_t kPiece = 32768;  // multiplications worth a thread
  parallel_for(p.count(), 1 + kPiece / (p.m * p.n * p.k), [&](int64_t begin, int64_t end) {
    for (int64_t count; begin < end; begin += count) {  // of equal indices in all dimensions but the last
      count = std::min(end - begin, last.size - begin % last.size);
      each_matrix(p, begin, begin + 1, [&](const char* a, const char* b, char* out) {
        batched_products(p.dtype, some, a, b, out, count);
      });
    }
  });
}

// Many rows times a small matrix: four rows at a time form one of the products above.
bool fits_narrow_right(const Problem& p) {
  constexpr int64_t kMany = 1024;
  bool real = p.dtype == DType::Float32 || p.dtype == DType::Float64;
  return p.count() == 1 && p.m >= kMany && p.n > 1 && p.n <= kFew && p.k <= kFew && !p.bias &&
         (real || (is_complex(p.dtype) && is(p.alpha, 1) && is(p.beta, 0)));
}
void narrow_right(const Problem& p) {
  constexpr int64_t kRows = 4;
  Problem fours = p;
  fours.m = kRows;
  fours.batch = {{p.m / kRows, kRows * p.a_rs, 0, kRows * p.n}};
  small_batch(fours);
  int64_t done = p.m / kRows * kRows, size = itemsize(p.dtype);
  if (done == p.m) return;
  Problem rest = p;
  rest.m = p.m - done;
  rest.batch = {{1, 0, 0, 0}};
  rest.a += done * p.a_rs * size, rest.out += done * p.n * size;
  small_batch(rest);
}

// ---- oneDNN
struct OneDnnPlan {
  Bound bound;
  bool refused = false;
};

// For operands with gaps between their rows oneDNN uses its older gemm, whose code for each pair of transpositions takes
// 20 to 80 ms to generate. BLAS is loaded already and as fast for small products.
bool is_better_by_blas(const Problem& p, const char* implementation) {
  constexpr double kSmall = 1 << 24;  // multiplications
  return p.dtype == DType::Float32 && std::string_view(implementation).starts_with("gemm") &&
         double(p.m) * double(p.n) * double(p.k) * double(p.count()) <= kSmall;
}

OneDnnPlan make_plan(const Problem& p) {
  using dims = dnnl::memory::dims;
  auto type = onednn_type(p.dtype);
  auto desc = [&](int64_t Batch::* stride, int64_t rows, int64_t cols, int64_t rs, int64_t cs) {
    dims sizes, strides;
    int64_t span = rows == 1 ? cs * cols : cs == 1 ? rs * rows : std::max(rs * rows, cs * cols);
    for (auto& d : p.batch) {
      bool one = d.*stride == 0;  // broadcast
      sizes.push_back(one ? 1 : d.size);
      strides.push_back(one ? span : d.*stride);
    }
    sizes.insert(sizes.end(), {rows, cols});
    strides.insert(strides.end(), {rs, cs});
    return dnnl::memory::desc(sizes, type, strides);
  };
  auto a = desc(&Batch::a, p.m, p.k, p.a_rs, p.a_cs), b = desc(&Batch::b, p.k, p.n, p.b_rs, p.b_cs),
       out = desc(&Batch::out, p.m, p.n, p.n, 1);
  auto attributes = onednn_attributes();
  dnnl::post_ops after;
  if (!is(p.alpha, 1)) after.append_eltwise(dnnl::algorithm::eltwise_linear, float(p.alpha.to_double()), 0);
  if (!is(p.beta, 0)) after.append_sum(float(p.beta.to_double()));
  if (after.len()) attributes.set_post_ops(after);
  dims bias_sizes(p.batch.size() + 2, 1), bias_strides(p.batch.size() + 2, p.n);
  bias_sizes.back() = p.n;
  bias_strides.back() = 1;
  dnnl::memory::desc bias(bias_sizes, type, bias_strides);
  OneDnnPlan plan;
  auto pd = p.bias ? dnnl::matmul::primitive_desc(onednn_engine(), a, b, bias, out, attributes, true)
                   : dnnl::matmul::primitive_desc(onednn_engine(), a, b, out, attributes, true);
  plan.refused =
      !pd || is_reference("matmul", pd.impl_info_str()) || is_better_by_blas(p, pd.impl_info_str());
  if (plan.refused) return plan;
  plan.bound = Bound::of<dnnl::matmul>(pd);
  plan.bound.add(DNNL_ARG_SRC, a);
  plan.bound.add(DNNL_ARG_WEIGHTS, b);
  plan.bound.add(DNNL_ARG_DST, out);
  if (p.bias) plan.bound.add(DNNL_ARG_BIAS, bias);
  return plan;
}

Key key_of(const Problem& p) {
  Key key{int64_t(p.dtype), onednn_threads(), p.m,    p.n,    p.k,
          p.a_rs,           p.a_cs,           p.b_rs, p.b_cs, p.bias != nullptr};
  key.push_back(std::bit_cast<int64_t>(p.alpha.to_double()));
  key.push_back(std::bit_cast<int64_t>(p.beta.to_double()));
  for (auto& d : p.batch)
    for (int64_t w : {d.size, d.a, d.b, d.out}) key.push_back(w);
  return key;
}

// Creates the plan for a key of an earlier process, in the background.
const codegen::Thing product_thing("product", [](codegen::Words w) {
  constexpr size_t kFixed = 12;
  if (w.size() < kFixed || (w.size() - kFixed) % 4 || w[1] != onednn_threads()) return;
  Problem p{DType(w[0]), w[2], w[3], w[4], w[5], w[6], w[7], w[8], {}, nullptr, nullptr, nullptr};
  static const char present = 0;
  if (w[9]) p.bias = &present;
  p.alpha = Scalar(std::bit_cast<double>(w[10]));
  p.beta = Scalar(std::bit_cast<double>(w[11]));
  for (size_t k = kFixed; k < w.size(); k += 4) p.batch.push_back({w[k], w[k + 1], w[k + 2], w[k + 3]});
  Prepared<OneDnnPlan>::all().make(Key(w), [&] { return make_plan(p); });
});

bool by_onednn(const Problem& p) {
  auto& plan = planned<OneDnnPlan>(product_thing, key_of(p), [&] { return make_plan(p); });
  if (plan.refused) return false;
  if (p.bias) plan.bound.run({p.a, p.b, p.out, p.bias});
  else plan.bound.run({p.a, p.b, p.out});
  return true;
}

// ---- oneDNN's gemm, which packs both operands
// Its matmul primitives read a right-hand matrix in place, unless its rows are as long as a power of two. For many long
// rows they take 1.1 to 4 times as long as a product that packs them; few rows or columns are not worth the packing.
bool is_better_packed(const Problem& p) {
  constexpr double kWorth = 1 << 24;  // multiplications
  constexpr int64_t kFew = 16, kLong = 768, kMany = 1024;
  if (p.dtype != DType::Float32 || double(p.m) * double(p.n) * double(p.k) < kWorth || p.n < kLong)
    return false;
  if (p.b_cs != 1) return p.m >= kLong && !p.bias;
  return p.m >= (std::has_single_bit(uint64_t(p.b_rs)) ? kMany : kFew);
}

// Makes oneDNN generate the code for all sizes, which happens at its first call (37 ms): in the background if an earlier
// process that began alike has used it.
void generate_gemm() {
  static std::once_flag generated;
  std::call_once(generated, [] {
    const float x[4] = {};  // two rows and columns: products with one go to another function
    float y[4];
    dnnl_sgemm('N', 'N', 2, 2, 2, 1, x, 2, x, 2, 0, y, 2);
  });
}
const codegen::Thing gemm_thing("gemm", [](codegen::Words) { generate_gemm(); }, true);

void by_packing(const Problem& p) {
  constexpr int64_t kLongest = 384;
  static std::once_flag noted;
  std::call_once(noted, [] { codegen::wanted(gemm_thing, {}); });
  generate_gemm();
  bool a_plain = p.a_cs == 1, b_plain = p.b_cs == 1;
  auto alpha = float(p.alpha.to_double()), beta = float(p.beta.to_double());
  onednn_threads();  // if this thread computes all pieces, gemm must not use threads
  each_piece(p, kLongest, [&](int64_t m, int64_t n, const char* a, const char* b, char* out) {
    auto status = dnnl_sgemm(a_plain ? 'N' : 'T', b_plain ? 'N' : 'T', m, n, p.k, alpha,
                             reinterpret_cast<const float*>(a), a_plain ? p.a_rs : p.a_cs,
                             reinterpret_cast<const float*>(b), b_plain ? p.b_rs : p.b_cs, beta,
                             reinterpret_cast<float*>(out), p.n);
    runtime_check(status == dnnl_success, "oneDNN")
        << "a product could not be run (status " << int(status) << ")";
  });
}

// ---- BLAS: one thread per piece, pieces of the batch or of the result
void by_blas(const Problem& p, int64_t longest = 128) {
  each_piece(p, p.count() > 1 ? std::max(p.m, p.n) : longest,
             [&](int64_t m, int64_t n, const char* a, const char* b, char* out) {
               blas_gemm(p.dtype, m, n, p.k, p.alpha, a, p.a_rs, p.a_cs, b, p.b_rs, p.b_cs, p.beta, out, p.n);
             });
}

// ---- generated kernels
bool is_short(DType d) { return d == DType::BFloat16 || d == DType::Float16; }

// Whether libraries multiply 16-bit floats by instructions for them.
bool multiplies_short() {
  static const bool does = vector_bytes() == 64 && __builtin_cpu_supports("avx512bf16");
  return does;
}

MatrixOperand operand_of(const char* data, int64_t rs, int64_t cs, int64_t batch) {
  auto adjacent = cs == 1 ? Adjacent::row : Adjacent::column;
  return {data, adjacent, cs == 1 ? rs : cs, batch};
}

// Whether generated kernels can multiply. Results of 16 bits cannot be added to before they are rounded.
bool can_be_generated(const Problem& p) {
  return p.dtype == DType::Float32 || (is_short(p.dtype) && is(p.beta, 0));
}
// `value`, or the element itself, behind the addition of a bias, which comes after the operands of `e`.
schedule::Epilogue behind_bias(const schedule::Epilogue& e, DType d, loop::Expr value) {
  loop::Expr sum = loop::local(schedule::kResultElement, DType::Float32);
  loop::Expr biased = sum + loop::load(int(e.operands.size()), d, {loop::index(1)});
  schedule::Epilogue both = e;
  both.operands.push_back(d);
  both.value = value
                   ? loop::rewrite(value, [&](loop::Expr x) { return same(x, sum) ? biased : loop::Expr(); })
                   : biased;
  return both;
}
// The product of matrices at these addresses as generated kernels take it; `operands` gets those of its epilogue.
GeneratedProduct generated(const Problem& p, const EpilogueCall* epilogue, const char* a, const char* b,
                           float* out, char* result, SmallVector<void*, 8>& operands) {
  const Batch batch = p.batch.size() == 1 ? p.batch[0] : Batch{1, 0, 0, 0};
  GeneratedProduct g{p.m,
                     p.n,
                     p.k,
                     batch.size,
                     operand_of(a, p.a_rs, p.a_cs, batch.a),
                     operand_of(b, p.b_rs, p.b_cs, batch.b),
                     out,
                     p.n,
                     batch.out,
                     float(p.alpha.to_double()),
                     float(p.beta.to_double())};
  if (p.batch.empty()) g.b.storage = p.b_storage;
  if (p.dtype != DType::Float32) g.result = result, g.operand_dtype = g.result_dtype = p.dtype;
  if (epilogue) {
    g.epilogue = epilogue->function;
    for (void* x : epilogue->operands) operands.push_back(x);
    g.params = epilogue->params;
    if (epilogue->out != result) g.result = static_cast<float*>(epilogue->out);
  }
  if (p.bias) {
    if (epilogue && g.result) g.saved = behind_bias(g.epilogue, p.dtype, loop::Expr());
    g.epilogue = behind_bias(g.epilogue, p.dtype, g.epilogue.value);
    operands.push_back(const_cast<void*>(p.bias));
  }
  g.operands = operands;
  return g;
}
// A product of bfloat16 whose time is that of reading a weight, such as one of generating text: up to 4 rows are multiplied by
// vectors, which need no packing, and up to 32 by a matrix unit, whose panels the weight's storage retains.
constexpr int64_t kFewRows = 4, kTileRowsOfWeight = 32;
bool reads_large_weight(const Problem& p, int64_t least_rows, int64_t most_rows) {
  constexpr int64_t kLarge = 1 << 20;  // elements
  return p.dtype == DType::BFloat16 && p.count() == 1 && p.m >= least_rows && p.m <= most_rows &&
         p.b_rs == 1 && p.k * p.n >= kLarge;
}
// The number of bfloat16 that each operand is divided into for a matrix unit (tile_nest.h); 0: it does not multiply.
int tile_parts(const Problem& p, const EpilogueCall* epilogue) {
  if (!can_be_generated(p) || p.dtype == DType::Float16) return 0;
  const bool wide = p.dtype == DType::Float32;
  const int parts = wide ? kMostParts - int(matmul_precision()) : 1;
  if (settings().products == "tiles") return parts;
  if (!settings().products.empty() || !multiplies_tiles()) return 0;
  const schedule::ProductShape shape{p.m, p.n, p.k, p.count()};
  // oneDNN multiplies bfloat16 by the same unit, and is faster unless the time is that of reading the weight.
  if (!wide && !reads_large_weight(p, kFewRows + 1, kTileRowsOfWeight)) return 0;
  if (wide && !schedule::prefers_tiles(shape, parts, codegen::vector_lanes(), cache_sizes())) return 0;
  if (codegen::can_compile()) return parts;
  SmallVector<void*, 8> operands;  // a package may have been made on a processor without the unit
  auto* out = reinterpret_cast<float*>(p.out);
  return has_tile_kernels(generated(p, epilogue, p.a, p.b, out, p.out, operands), parts) ? parts : 0;
}

// Whether generated kernels multiply by vectors: where FACULA_PRODUCTS wants them, or they are faster.
bool prefers_vectors(const Problem& p, bool epilogue) {
  if (!settings().products.empty()) return settings().products == "generated";
  if (is_short(p.dtype))
    return p.dtype == DType::BFloat16 && (!multiplies_short() || reads_large_weight(p, 2, kFewRows));
  bool plain = is(p.alpha, 1) && is(p.beta, 0);
  constexpr double kWorth = 1 << 17;  // multiplications; for fewer ones a call takes most of the time
  auto a = operand_of(p.a, p.a_rs, p.a_cs, 0), b = operand_of(p.b, p.b_rs, p.b_cs, 0);
  if (is_skinny(p.m, p.count(), a, b)) return plain && double(p.m) * double(p.n) * double(p.k) > kWorth;
  return plain && schedule::prefers_generated({p.m, p.n, p.k, p.count()}, epilogue, codegen::vector_lanes(),
                                              cache_sizes());
}
// How generated kernels multiply, before an `epilogue` if there is one: the parts of numbers for a matrix unit, or 0: by vectors. Null:
// they do not, because they cannot, FACULA_PRODUCTS wants another way, or libraries are faster.
std::optional<int> generated_parts(const Problem& p, const EpilogueCall* epilogue = nullptr) {
  const std::string& wish = settings().products;
  value_check(wish.empty() || wish == "generated" || wish == "library" || wish == "tiles", "FACULA_PRODUCTS")
      << "must be 'generated', 'library' or 'tiles', but got '" << wish << "'";
  if (!can_be_generated(p)) return {};
  if (int parts = tile_parts(p, epilogue)) return parts;
  return prefers_vectors(p, epilogue) ? std::optional(0) : std::nullopt;
}
void by_generated(const Problem& p, int parts, const EpilogueCall* epilogue = nullptr) {
  const bool one = p.batch.size() <= 1, rounds = p.dtype != DType::Float32;
  Tensor sums;  // of a result that is rounded
  if (rounds) {
    const int64_t elements[] = {p.m * p.n * (one ? p.count() : 1)};
    sums = Tensor::empty(IntSpan(elements), DType::Float32);
  }
  each_matrix(p, 0, one ? 1 : p.count(), [&](const char* a, const char* b, char* out) {
    SmallVector<void*, 8> operands;
    float* to = rounds ? sums.data<float>() : reinterpret_cast<float*>(out);
    auto g = generated(p, epilogue, a, b, to, out, operands);
    if (parts) run_by_tiles(g, parts);
    else run(g);
  });
}

// Without AVX-512 oneDNN has only its older gemm, which takes 1 to 4 times as long as BLAS (AMD Zen 3).
constexpr int64_t kNarrowPiece = 256;
bool is_narrow(DType d) { return d == DType::Float32 && codegen::vector_lanes() < 16; }

// One small matrix: BLAS needs 0.3 to 0.9 of oneDNN's time and no plan, which takes oneDNN as long as a hundred such
// products. With a bias, which has to be copied into the result first, the gain is smaller.
bool is_small(const Problem& p) {
  const double kSmall = p.bias ? 1 << 15 : 1 << 17;  // multiplications
  return p.dtype == DType::Float32 && p.count() == 1 && double(p.m) * double(p.n) * double(p.k) <= kSmall;
}
void small(Problem p) {
  if (p.bias) {
    for (int64_t i = 0; i < p.m; ++i)
      std::memcpy(p.out + i * p.n * int64_t(sizeof(float)), p.bias, size_t(p.n) * sizeof(float));
    p.beta = Scalar(1.0);
  }
  blas_gemm(p.dtype, p.m, p.n, p.k, p.alpha, p.a, p.a_rs, p.a_cs, p.b, p.b_rs, p.b_cs, p.beta, p.out, p.n);
}

// ---- integers, modulo 2^bits
// With fewer rows or columns it is not worth packing a strip.
constexpr int64_t kPackedRows = 4, kPackedColumns = 8;

template <class T>
void by_loops(const Problem& p) {
  using U = std::make_unsigned_t<T>;
  auto alpha = U(p.alpha.to_int()), beta = U(p.beta.to_int());
  if (p.m >= kPackedRows && p.n >= kPackedColumns)
    return each_matrix(p, 0, p.count(), [&](const char* a, const char* b, char* out) {
      integer_product(sizeof(T), {p.m, p.n, p.k, p.a_rs, p.a_cs, p.b_rs, p.b_cs, alpha, beta}, a, b, out);
    });
  each_matrix(p, 0, p.count(), [&](const char* a_bytes, const char* b_bytes, char* out_bytes) {
    auto *a = reinterpret_cast<const U*>(a_bytes), *b = reinterpret_cast<const U*>(b_bytes);
    auto* out = reinterpret_cast<U*>(out_bytes);
    auto grain = std::max<int64_t>(1, 32768 / std::max<int64_t>(1, p.n * p.k));
    parallel_for(p.m, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        U* row = out + i * p.n;
        for (int64_t j = 0; j < p.n; ++j) row[j] = beta ? U(beta * row[j]) : U(0);
        for (int64_t k = 0; k < p.k; ++k) {
          U x = U(alpha * a[i * p.a_rs + k * p.a_cs]);
          const U* from = b + k * p.b_rs;
          if (p.b_cs == 1)
            for (int64_t j = 0; j < p.n; ++j) row[j] = U(row[j] + x * from[j]);
          else
            for (int64_t j = 0; j < p.n; ++j) row[j] = U(row[j] + x * from[j * p.b_cs]);
        }
      }
    });
  });
}

// The stride of an operand for batch dimension d of `out`: 0 for missing dimensions and those of size 1.
int64_t batch_stride(const Tensor& t, size_t d, size_t batch) {
  size_t own = size_t(t.dim()) - 2;
  if (d + own < batch) return 0;
  size_t at = d + own - batch;
  return t.int_sizes()[at] == 1 ? 0 : t.int_strides()[at];
}

void scale(const Tensor& out, const Scalar& beta, const Tensor& bias) {
  Tensor bias_or_zero = bias.defined() ? bias : Tensor::scalar(Scalar(int64_t(0)), out.dtype());
  if (is(beta, 0)) return copy(out, bias_or_zero);
  static const op::Operator &mul = op::get("mul"), &add = op::get("add");
  Tensor to = out.alias(out.sizes(), out.strides(), out.offset());
  op::Value scaled[] = {to, beta};
  op::call(mul, scaled, op::Form::in_place);
  if (bias.defined()) {
    op::Value sum[] = {to, bias, Scalar(int64_t(1))};
    op::call(add, sum, op::Form::in_place);
  }
}

// A few sums of so many terms that threads must share each of them: BLAS uses one thread per sum.
bool is_long_sum(const Problem& p) {
  constexpr int64_t kLong = 32768, kFew = 4;
  return p.count() == 1 && std::min(p.m, p.n) == 1 && std::max(p.m, p.n) <= kFew && p.k >= kLong &&
         (p.m == 1 || p.a_cs == 1) && (p.n == 1 || p.b_rs == 1);
}

// A product of a matrix and a vector by a generated sweep over the matrix; no library has it for 16-bit floats.
void matrix_vector(const Problem& p, const Tensor& a, const Tensor& b, const Tensor& out,
                   const Tensor& bias) {
  static const op::Operator& sweep = op::get("_matrix_vector");
  SymInt k = p.k, n = p.n == 1 ? p.m : p.n, one = int64_t(1);
  Tensor left = a.alias(Dims{p.m, k}, Dims{p.a_rs, p.a_cs}, a.offset()),
         right = b.alias(Dims{p.n, k}, Dims{p.b_cs, p.b_rs}, b.offset());
  Tensor matrix = p.n == 1 ? left : right, vector = p.n == 1 ? right : left;
  vector = vector.alias(Dims{k}, Dims{vector.stride(1)}, vector.offset());
  Tensor to = out.alias(Dims{n}, Dims{one}, out.offset()), addend;
  if (bias.defined()) addend = bias.alias(bias.sizes(), bias.strides(), bias.offset());
  Scalar beta = 1.0;
  if (!is(p.beta, 0)) addend = to, beta = p.beta;
  op::Value args[] = {matrix, vector, addend.defined() ? op::Value(addend) : op::Value(), beta, p.alpha};
  op::call(sweep, args, op::Form::out, std::span<const Tensor>(&to, 1));
}

enum class Right : uint8_t { as_it_is, transposed };
void multiply(const Tensor& a, const Tensor& b, Right right, const Tensor& out, const Tensor& bias,
              const Scalar& alpha, const Scalar& beta);

// Computes in float32 and rounds once.
void in_float32(const Tensor& a, const Tensor& b, Right right, const Tensor& out, const Tensor& bias,
                const Scalar& alpha, const Scalar& beta) {
  Tensor wide = Tensor::empty(out.sizes(), DType::Float32);
  if (!is(beta, 0)) copy(wide, out);
  auto widened = [](const Tensor& t) { return t.defined() ? dense(t, DType::Float32) : t; };
  multiply(widened(a), widened(b), right, wide, widened(bias), alpha, beta);
  copy(out, wide);
}

// A reference to a tensor of the caller, without a reference count, or the copy that replaces it.
class Operand {
 public:
  explicit Operand(const Tensor& tensor, bool transposed = false) : read_(&tensor), transposed_(transposed) {}
  Operand(const Operand&) = delete;
  const Tensor& operator*() const { return *read_; }
  operator const Tensor&() const { return *read_; }
  bool is_transposed() const { return transposed_; }  // its last two dimensions are exchanged when it is read
  void make_dense() {
    copy_ = dense(*read_);
    read_ = &copy_;
  }

 private:
  const Tensor* read_;
  Tensor copy_;
  bool transposed_;
};

// Sets the strides of an operand's matrices; copies the operand if no library can read it in place.
void take_strides(Operand& t, int64_t rows, int64_t cols, int64_t& rs, int64_t& cs) {
  auto look = [&] {
    auto s = (*t).int_strides();
    rs = s[s.size() - 2];
    cs = s[s.size() - 1];
    if (t.is_transposed()) std::swap(rs, cs);
  };
  look();
  if (!readable(rows, cols, rs, cs)) {
    t.make_dense();
    look();
  }
  settle(rows, cols, rs, cs);
}

void set_operands(Problem& p, Operand& a, Operand& b, const Tensor& out, Operand& bias) {
  take_strides(a, p.m, p.k, p.a_rs, p.a_cs);
  take_strides(b, p.k, p.n, p.b_rs, p.b_cs);
  auto sizes = out.int_sizes();
  size_t batch = sizes.size() - 2;
  SmallVector<Batch, 6> dims;
  int64_t step = p.m * p.n;
  for (size_t d = batch; d-- > 0;) {
    dims.push_back({sizes[d], batch_stride(a, d, batch), batch_stride(b, d, batch), step});
    step *= sizes[d];
  }
  std::reverse(dims.begin(), dims.end());
  p.a = static_cast<const char*>((*a).impl()->data_ptr());
  p.b = static_cast<const char*>((*b).impl()->data_ptr());
  p.b_storage = (*b).impl()->storage.get();
  p.out = static_cast<char*>(out.impl()->data_ptr());
  if ((*bias).defined()) {
    if (!(*bias).is_contiguous()) bias.make_dense();
    p.bias = (*bias).impl()->data_ptr();
  }
  merge_batch(p, dims);
}

// Writes beta * result + bias to the result, to which the product is then added.
void add_bias_first(Problem& p, const Tensor& out, const Tensor& bias) {
  scale(out, p.beta, bias);
  p.bias = nullptr;
  p.beta = Scalar(1.0);
}

// The product of these operands, but for their memory (set_operands).
Problem problem_of(const Tensor& a, const Tensor& out, const Scalar& alpha, const Scalar& beta) {
  Problem p{};
  auto sizes = out.int_sizes();
  p.dtype = out.dtype();
  p.m = sizes[sizes.size() - 2], p.n = sizes.back(), p.k = a.int_sizes().back();
  p.alpha = alpha, p.beta = beta;
  return p;
}

// One row or column: twice as fast by BLAS.
bool is_vector(const Problem& p) {
  return p.dtype == DType::Float32 && (p.m == 1 || p.n == 1) && p.count() == 1;
}
// `rows`: of a matrix, before batches were merged.
bool is_apart(const Problem& p, const Tensor& out, int64_t rows) {
  return out.dim() > 2 && is_differentiable(p.dtype) && p.dtype != DType::Float16 && fits_apart(p, rows) &&
         (p.dtype != DType::Float32 || fits_tiny(p));
}

void multiply(const Tensor& a_tensor, const Tensor& b_tensor, Right right, const Tensor& out,
              const Tensor& bias_tensor, const Scalar& alpha, const Scalar& beta) {
  if (out.numel() == SymInt(int64_t(0))) return;
  Operand a(a_tensor), b(b_tensor, right == Right::transposed), bias(bias_tensor);
  Problem p = problem_of(a_tensor, out, alpha, beta);
  if (p.k == 0) return scale(out, beta, bias);
  bool alone = out.numel() == SymInt(p.m * p.n);
  bool half = p.dtype == DType::Float16 && !(alone && (p.m == 1 || p.n == 1));
  auto parts = half ? generated_parts(p) : std::nullopt;
  if (half && !parts) return in_float32(a, b, right, out, bias, alpha, beta);
  int64_t rows = p.m;
  set_operands(p, a, b, out, bias);
  if (half) return by_generated(p, *parts);
  if (is_apart(p, out, rows)) {
    if (p.bias && p.dtype != DType::Float32) add_bias_first(p, out, bias);
    return apart(p);
  }
  if (fits_small_batch(p)) return small_batch(p);
  if (fits_narrow_right(p)) return narrow_right(p);
  if ((is_short(p.dtype) && (p.m == 1 || p.n == 1) && p.count() == 1) || is_long_sum(p))
    return matrix_vector(p, a, b, out, bias);
  if (p.dtype == DType::Float32 || p.dtype == DType::BFloat16) {
    if (fits_tiny(p)) return tiny(p);
    if (!is_vector(p)) {
      if ((parts = generated_parts(p))) return by_generated(p, *parts);
      if (is_small(p)) return small(p);
      if (is_narrow(p.dtype)) {
        if (p.bias) add_bias_first(p, out, bias);
        return by_blas(p, kNarrowPiece);
      }
      if (is_better_packed(p)) {
        if (p.bias) add_bias_first(p, out, bias);
        return by_packing(p);
      }
      if (by_onednn(p)) return;
      // Matrices of a batch may overlap, and there may be more batch dimensions than oneDNN supports.
      Tensor x = dense(a_tensor), y = dense(b_tensor);
      if (!x.is_same(*a) || !y.is_same(*b)) return multiply(x, y, right, out, bias, alpha, beta);
    }
    if (p.dtype == DType::BFloat16) return in_float32(a, b, right, out, bias, alpha, beta);
  }
  if (p.bias) add_bias_first(p, out, bias);
  if (fits_tiny_complex(p))
    return p.dtype == DType::Complex64 ? tiny_complex<float>(p) : tiny_complex<double>(p);
  if (is_differentiable(p.dtype)) return by_blas(p);
  dispatch(p.dtype, [&](auto x) {
    using T = decltype(x);
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) by_loops<T>(p);
    else internal_check(false) << "product of " << p.dtype;
  });
}

constexpr size_t kMostEpilogue = 12;  // operands and params of an epilogue, and a bias

// Computes the product with an epilogue by a generated kernel. False, and nothing is written, if another way is chosen.
bool multiply(const Tensor& a_tensor, const Tensor& b_tensor, Right right, const Tensor& out,
              const Tensor& bias_tensor, const Scalar& alpha, const Scalar& beta,
              const EpilogueCall& epilogue) {
  Problem p = problem_of(a_tensor, out, alpha, beta);
  if (p.dtype != DType::Float32 || p.k == 0 || out.numel() == SymInt(int64_t(0)) || !out.is_contiguous())
    return false;
  int64_t rows = p.m;
  Operand a(a_tensor), b(b_tensor, right == Right::transposed), bias(bias_tensor);
  set_operands(p, a, b, out, bias);
  bool other = is_apart(p, out, rows) || fits_small_batch(p) || fits_narrow_right(p) || is_long_sum(p) ||
               fits_tiny(p) || is_vector(p);
  bool fits = epilogue.operands.size() < kMostEpilogue && epilogue.params.size() < kMostEpilogue;
  if (other || !fits || p.batch.size() > 1) return false;
  auto parts = generated_parts(p, &epilogue);
  if (!parts) return false;
  by_generated(p, *parts, &epilogue);
  return true;
}

}  // namespace

void product(const Tensor& a, const Tensor& b, const Tensor& out, const Tensor& bias, const Scalar& alpha,
             const Scalar& beta) {
  multiply(a, b, Right::as_it_is, out, bias, alpha, beta);
}

namespace {

// f(a, b, right, out, bias, alpha, beta) multiplies, by one of the functions above.
template <class F>
auto simple(const Call& c, const Tensor& out, op::ParameterName left, op::ParameterName right, F&& f) {
  return f(Borrowed(c[left].tensor), Borrowed(c[right].tensor), Right::as_it_is, out, Tensor(), 1.0, 0.0);
}

// The addend of addmm and its kind as a bias, if it is one.
Tensor bias_of(const Call& c, const Tensor& out) {
  Tensor self = c.tensor("self");
  auto sizes = self.sizes();
  bool as_bias =
      self.dim() >= 1 && is(c.number("alpha"), 1) && is(c.number("beta"), 1) &&
      sizes.back() == out.sizes().back() &&
      std::all_of(sizes.begin(), sizes.end() - 1, [](SymInt s) { return s == SymInt(int64_t(1)); });
  return as_bias ? self.alias(sizes.last(1), self.strides().last(1), self.offset()) : Tensor();
}

template <class F>
auto linear(const Call& c, const Tensor& out, F&& f) {
  Borrowed input(c["input"].tensor), weight(c["weight"].tensor);
  const op::Value& bias = c["bias"];
  auto run = [&](const Tensor& x, const Tensor& y) {
    return f(x, weight, Right::transposed, y, Borrowed(bias.is_none() ? nullptr : bias.tensor), 1.0, 0.0);
  };
  if (input->dim() == 2) return run(input, out);
  auto sizes = input->sizes();
  Dims flat{product(sizes.first(sizes.size() - 1)), sizes.back()}, matrix{flat[0], weight->size(0)};
  auto strides = op::view_strides(sizes, input->strides(), flat);
  Tensor x = strides ? *input : dense(input);
  if (!strides) strides = contiguous_strides(flat);
  return run(x.alias(flat, *strides, x.offset()),
             out.alias(matrix, contiguous_strides(matrix), out.offset()));
}

// The functions that multiply, without an epilogue and with one.
void plain(const Tensor& a, const Tensor& b, Right right, const Tensor& out, const Tensor& bias,
           const Scalar& alpha, const Scalar& beta) {
  multiply(a, b, right, out, bias, alpha, beta);
}
auto with(const EpilogueCall& e) {
  return [&e](const Tensor& a, const Tensor& b, Right right, const Tensor& out, const Tensor& bias,
              const Scalar& alpha,
              const Scalar& beta) { return multiply(a, b, right, out, bias, alpha, beta, e); };
}

// These functions return no results: callers that pass `out` read only that.
Results simple(const Call& c, Out out, op::ParameterName left, op::ParameterName right) {
  Destination to(out[0]);
  simple(c, to.tensor(), left, right, plain);
  to.finish();
  return {};
}
Results with_addend(const Call& c, Out out, const char* left, const char* right) {
  Destination to(out[0]);
  if (Tensor bias = bias_of(c, out[0]); bias.defined()) {
    product(c.tensor(left), c.tensor(right), to.tensor(), bias);
  } else {
    Scalar beta = c.number("beta");
    if (!is(beta, 0)) copy(to.tensor(), c.tensor("self"));
    product(c.tensor(left), c.tensor(right), to.tensor(), {}, c.number("alpha"), beta);
  }
  to.finish();
  return Results(out[0]);
}
bool with_addend(const Call& c, Out out, const EpilogueCall& e, const char* left, const char* right) {
  Tensor bias = bias_of(c, out[0]);
  if (!bias.defined() && !is(c.number("beta"), 0)) return false;
  return multiply(c.tensor(left), c.tensor(right), Right::as_it_is, out[0], bias,
                  bias.defined() ? Scalar(1.0) : c.number("alpha"), 0.0, e);
}

const char* right_of_bmm(const Call& c) { return c.op().schema.index_of("mat2") >= 0 ? "mat2" : "other"; }

}  // namespace

Results mm(const Call& c, Out out) { return simple(c, out, "self", "mat2"); }
Results bmm(const Call& c, Out out) { return simple(c, out, "self", right_of_bmm(c)); }
Results addmm(const Call& c, Out out) { return with_addend(c, out, "mat1", "mat2"); }
Results baddbmm(const Call& c, Out out) { return with_addend(c, out, "batch1", "batch2"); }
Results linear(const Call& c, Out out) {
  Destination to(out[0]);
  linear(c, to.tensor(), plain);
  to.finish();
  return {};
}

bool mm_epilogue(const Call& c, Out out, const EpilogueCall& e) {
  return simple(c, out[0], "self", "mat2", with(e));
}
bool bmm_epilogue(const Call& c, Out out, const EpilogueCall& e) {
  return simple(c, out[0], "self", right_of_bmm(c), with(e));
}
bool addmm_epilogue(const Call& c, Out out, const EpilogueCall& e) {
  return with_addend(c, out, e, "mat1", "mat2");
}
bool baddbmm_epilogue(const Call& c, Out out, const EpilogueCall& e) {
  return with_addend(c, out, e, "batch1", "batch2");
}
bool linear_epilogue(const Call& c, Out out, const EpilogueCall& e) { return linear(c, out[0], with(e)); }

}  // namespace facula::device::cpu
