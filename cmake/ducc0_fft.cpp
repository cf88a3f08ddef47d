// The transforms of ducc0 that Facula calls, for the real type FACULA_FFT_TYPE. Its own files would make many
// more, which takes minutes.
#include "ducc0/fft/fftnd_impl.h"

namespace DUCC0_NAMESPACE::detail_fft {
using Real = FACULA_FFT_TYPE;
using Complex = std::complex<Real>;

template void c2c(const cfmav<Complex>&, const vfmav<Complex>&, const shape_t&, bool, Real, size_t);
template void r2c(const cfmav<Real>&, const vfmav<Complex>&, const shape_t&, bool, Real, size_t);
template void c2r(const cfmav<Complex>&, const vfmav<Real>&, const shape_t&, bool, Real, size_t);
}  // namespace DUCC0_NAMESPACE::detail_fft
