// libfacula_sort.so: Highway's vectorized quicksort (vqsort), loaded at the first sort of a long line. Highway measures
// the processor's clock when it is loaded, which took a fifth of the import time.
#include <hwy/contrib/sort/vqsort.h>

namespace {

template <class T>
void ascending(T* x, size_t n) {
  // Constructed for each line, at no measurable cost: a library that is loaded late should not need thread-local memory.
  const hwy::Sorter sorter;
  sorter(x, n, hwy::SortAscending());
}

}  // namespace

extern "C" void facula_sort_64(uint64_t* x, size_t n) { ascending(x, n); }
extern "C" void facula_sort_128(hwy::uint128_t* x, size_t n) { ascending(x, n); }
