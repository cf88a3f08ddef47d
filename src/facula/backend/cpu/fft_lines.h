// Fourier transforms of the lines of a tensor along one axis. A line's result depends on the line, on how many there are and how
// they lie, never on threads.
#pragma once
#include <complex>
#include <cstdint>
#include <vector>

namespace facula::backend::cpu {

// Lines of points `from` apart in the source, `to` in the result, and the other dimensions; strides count elements.
struct FourierLines {
  struct Dimension {
    int64_t size, from, to;
  };
  int64_t n;  // points of the transform; of a spectrum of real numbers n / 2 + 1 are there
  int64_t from, to;
  std::vector<Dimension> others;

  int64_t count() const {
    int64_t lines = 1;
    for (auto& d : others) lines *= d.size;
    return lines;
  }
};

// Every result is multiplied by `factor`. Source and result are the same memory or share none.
template <class T>
void transform_lines(const std::complex<T>* from, std::complex<T>* to, const FourierLines& lines,
                     bool forward, T factor);
template <class T>  // forward
void transform_lines(const T* from, std::complex<T>* to, const FourierLines& lines, T factor);
template <class T>  // backward
void transform_lines(const std::complex<T>* from, T* to, const FourierLines& lines, T factor);

}  // namespace facula::backend::cpu
