#include "facula/numerics/small.h"

#include "facula/base/processor.h"
#include "facula/numerics/small_steps.h"

namespace facula::numerics {

namespace {

template <class T>
struct Routines {
  SmallRoutine<T> of[size_t(Small::kCount)] = {};

  Routines() {
    for (auto group : {small_lu<T>, small_factors<T>, small_reflections<T>, small_spectra<T>})
      for (size_t k = 0; k < size_t(Small::kCount); ++k)
        if (auto routine = group(Small(k))) of[k] = routine;
  }
};

}  // namespace

template <class T>
int small_lanes() {
  return vector_bytes() / int(sizeof(typename SmallJob<T>::R));
}

template <class T>
uint32_t run_small(Small routine, const SmallJob<T>& job) {
  static const Routines<T> routines;
  return routines.of[size_t(routine)](job);
}

#define FACULA_INSTANTIATE(T)    \
  template int small_lanes<T>(); \
  template uint32_t run_small(Small, const SmallJob<T>&);
FACULA_INSTANTIATE(float)
FACULA_INSTANTIATE(double)
FACULA_INSTANTIATE(std::complex<float>)
FACULA_INSTANTIATE(std::complex<double>)
#undef FACULA_INSTANTIATE

}  // namespace facula::numerics
