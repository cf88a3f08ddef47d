// Sorting, the first elements, and the k-th element of one line of adjacent numbers. The order is stable; NaN counts as
// the largest number, and -0 equals 0. Keys are mapped to unsigned integers of the same order, with the position as
// tie-breaker in the low bits: one sort of plain integers, by Highway's vectorized quicksort, is then stable and yields
// the positions. All functions are defined for bool, integers, Half, BFloat16, float and double.
#pragma once
#include <array>
#include <cstdint>

#include "facula/numerics/workspace.h"

namespace facula::numerics {

// Temporary memory of a thread. The functions below use the first two rooms; the third one is the caller's.
struct SortBuffers {
  template <class T>
  T* room(int which, int64_t n) {
    auto& words = rooms[size_t(which)];
    words.resize((size_t(n) * sizeof(T) + sizeof(int64_t) - 1) / sizeof(int64_t));
    return reinterpret_cast<T*>(words.data());
  }
  std::array<Workspace<int64_t>, 3> rooms;
};

// Writes the position of the k-th element of x [n] to order[k].
template <class T>
void order_line(const T* x, int64_t n, bool descending, int64_t* order, SortBuffers& buffers);

// Writes the positions of the first `wanted` > 0 elements to order [wanted], the largest ones or the smallest ones first.
// Among equal elements it chooses and orders as PyTorch's topk does.
template <class T>
void top_line(const T* x, int64_t n, int64_t wanted, bool largest, int64_t* order, SortBuffers& buffers);

// Returns the position of the element of rank k, counting from 0. Among equal elements it is the k-th by position, or the
// one that PyTorch's kthvalue finds.
template <class T>
int64_t kth_position(const T* x, int64_t n, int64_t k, bool by_position, SortBuffers& buffers);

}  // namespace facula::numerics
