// Fourier transforms of the lines of a tensor along one axis. A line's result depends on the line, the number of lines
// and their strides, but not on the number of threads.
#pragma once
#include <complex>
#include <cstdint>
#include <vector>

namespace facula::numerics {

// Lines whose points are `from` apart in the source and `to` in the result, and the other dimensions; strides are in
// elements.
struct FourierLines {
  struct Dimension {
    int64_t size, from, to;
  };
  int64_t n;  // points of the transform; a spectrum of real numbers has n / 2 + 1
  int64_t from, to;
  std::vector<Dimension> others;

  int64_t count() const {
    int64_t lines = 1;
    for (auto& d : others) lines *= d.size;
    return lines;
  }
};

// Every result is multiplied by `factor`. Source and result are either the same memory or do not overlap.
template <class T>
void transform_lines(const std::complex<T>* from, std::complex<T>* to, const FourierLines& lines,
                     bool forward, T factor);
template <class T>  // forward
void transform_lines(const T* from, std::complex<T>* to, const FourierLines& lines, T factor);
template <class T>  // backward
void transform_lines(const std::complex<T>* from, T* to, const FourierLines& lines, T factor);

}  // namespace facula::numerics
