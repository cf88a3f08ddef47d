// Sorting. Keys are mapped to unsigned integers that order alike (NaN last), with the position as tie-breaker in the low
// bits: one sort of plain integers, by Highway's vectorised quicksort, is then stable and yields the indices.
#include <hwy/contrib/sort/vqsort.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "facula/backend/cpu/cpu.h"
#include "facula/base/parallel.h"

namespace facula::backend::cpu {

namespace {

template <class T> struct Bits { using type = std::make_unsigned_t<T>; };
template <> struct Bits<bool> { using type = uint8_t; };
template <> struct Bits<Half> { using type = uint16_t; };
template <> struct Bits<BFloat16> { using type = uint16_t; };
template <> struct Bits<float> { using type = uint32_t; };
template <> struct Bits<double> { using type = uint64_t; };

// An unsigned integer that orders as the value does: NaN the largest and all alike, -0 as 0.
template <class T> typename Bits<T>::type key_of(T value) {
  using U = typename Bits<T>::type;
  constexpr U top = U(U(1) << (8 * sizeof(U) - 1));
  U bits;
  std::memcpy(&bits, &value, sizeof bits);
  if constexpr (std::is_same_v<T, bool> || std::is_unsigned_v<T>) return bits;
  else if constexpr (std::is_integral_v<T>) return U(bits ^ top);
  else {
    auto f = [&] { if constexpr (std::is_same_v<T, double>) return value; else return float(value); }();
    if (f != f) return U(~U(0));
    if (f == 0) bits = 0;
    return U(bits & top ? U(~bits) : U(bits | top));
  }
}

const hwy::Sorter& sorter() {
  thread_local const hwy::Sorter s;
  return s;
}

// Sorts one line of n values; order[k] is the position of the k-th. `small` and `wide` are buffers of the thread.
struct Buffers {
  std::vector<uint64_t> small;
  std::vector<hwy::uint128_t> wide;
};

template <class T> void order_line(const T* x, int64_t stride, int64_t n, int64_t wanted, bool descending, int64_t* order, Buffers& buffers) {
  using U = typename Bits<T>::type;
  auto key = [&](int64_t i) { U k = key_of(x[i * stride]); return descending ? U(~k) : k; };
  if (sizeof(U) <= 4 && n <= (int64_t(1) << 32)) {
    auto& b = buffers.small;
    b.resize(size_t(n));
    for (int64_t i = 0; i < n; ++i) b[size_t(i)] = uint64_t(key(i)) << 32 | uint64_t(i);
    if (wanted < n) {
      std::nth_element(b.begin(), b.begin() + wanted, b.end());
      std::sort(b.begin(), b.begin() + wanted);
    } else if (n < 64) {
      std::sort(b.begin(), b.end());
    } else {
      sorter()(b.data(), size_t(n), hwy::SortAscending());
    }
    for (int64_t k = 0; k < wanted; ++k) order[k] = int64_t(b[size_t(k)] & 0xffffffffu);
    return;
  }
  auto& b = buffers.wide;
  b.resize(size_t(n));
  for (int64_t i = 0; i < n; ++i) {
    b[size_t(i)].lo = uint64_t(i);
    b[size_t(i)].hi = uint64_t(key(i));
  }
  auto before = [](const hwy::uint128_t& p, const hwy::uint128_t& q) { return p.hi != q.hi ? p.hi < q.hi : p.lo < q.lo; };
  if (wanted < n) {
    std::nth_element(b.begin(), b.begin() + wanted, b.end(), before);
    std::sort(b.begin(), b.begin() + wanted, before);
  } else if (n < 64) {
    std::sort(b.begin(), b.end(), before);
  } else {
    sorter()(b.data(), size_t(n), hwy::SortAscending());
  }
  for (int64_t k = 0; k < wanted; ++k) order[k] = int64_t(b[size_t(k)].lo);
}

// The first `wanted` along dimension `dim`: values and positions, into plain tensors.
void sorted(const Tensor& self, int dim, int64_t wanted, bool descending, const Tensor& values, const Tensor& indices) {
  auto sizes = self.int_sizes();
  int64_t n = sizes.empty() ? 1 : sizes[size_t(dim)], inner = 1, outer = 1;
  for (int k = 0; k < dim; ++k) outer *= sizes[size_t(k)];
  for (int k = dim + 1; k < int(sizes.size()); ++k) inner *= sizes[size_t(k)];
  int64_t lines = outer * inner;
  dispatch(self.dtype(), [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>) internal_check(false) << "complex numbers have no order";
    else {
      const T* x = self.data<T>();
      T* value = values.data<T>();
      auto* index = indices.data<int64_t>();
      parallel_for(lines, std::max<int64_t>(1, 8192 / std::max<int64_t>(1, n)), [&](int64_t begin, int64_t end) {
        Buffers buffers;
        std::vector<int64_t> order(static_cast<size_t>(wanted));
        for (int64_t line = begin; line < end; ++line) {
          int64_t o = line / inner, i = line % inner;
          const T* from = x + o * n * inner + i;
          order_line(from, inner, n, wanted, descending, order.data(), buffers);
          int64_t at = o * wanted * inner + i;
          for (int64_t k = 0; k < wanted; ++k) {
            value[at + k * inner] = from[order[size_t(k)] * inner];
            index[at + k * inner] = order[size_t(k)];
          }
        }
      });
    }
  });
}

Results run(const Call& c, Out out, bool descending) {
  Tensor self = c.tensor("self");
  Destination values(out[0]), indices(out[1]);
  if (out[0].numel() != SymInt(int64_t(0))) {
    int d = self.dim() ? c.dim("dim") : 0;
    int64_t wanted = self.dim() ? out[0].int_sizes()[size_t(d)] : 1;
    sorted(dense(self), d, wanted, descending, values.tensor(), indices.tensor());
  }
  values.finish();
  indices.finish();
  return Results{out[0], out[1]};
}

}  // namespace

Results sort(const Call& c, Out out) { return run(c, out, c.flag("descending")); }
Results topk(const Call& c, Out out) { return run(c, out, c.flag("largest")); }

}  // namespace facula::backend::cpu
