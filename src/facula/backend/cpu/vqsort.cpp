// libfacula_sort.so: Highway's vectorised quicksort (vqsort), loaded at the first sort of a long line. Highway measures
// the processor's clock when it is loaded, which took a fifth of the time of an import.
#include <hwy/contrib/sort/vqsort.h>

namespace {

template <class T>
void ascending(T* x, size_t n) {
  // Made for each line, which costs nothing that shows: threads keep no memory of a library that is loaded late.
  const hwy::Sorter sorter;
  sorter(x, n, hwy::SortAscending());
}

}  // namespace

extern "C" void facula_sort_64(uint64_t* x, size_t n) { ascending(x, n); }
extern "C" void facula_sort_128(hwy::uint128_t* x, size_t n) { ascending(x, n); }
